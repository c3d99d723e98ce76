/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Kinds of ports, which are the possible values of "device =": a row of kd_port_kinds (port_kind.c)
 * and a file for each.
 *
 *   port_loopback.c   loopback          no device
 *   port_pci.c        PCI address       probed when EAL starts, which may use no other device
 *   port_virtio.c     net_virtio_user   created when its backend exists
 *   port_vdev.c       net_...           created by hot-plug
 *   port_tap.c        tap:NAME          a tap by net_kport: the port is its other end
 *   port_netdev.c     kernel interface  net_kport, net_af_packet or net_af_xdp, created by
 *                                       hot-plug; the kernel keeps handling ARP, routes and all
 *                                       that is not RoCE
 */
#ifndef KARSTD_PORT_KIND_H
#define KARSTD_PORT_KIND_H

#include "conf.h"
#include "ports.h"

/** What a port needs from the daemon. */
struct kd_port_needs {
	uint32_t rx_buffers; /* packet buffers for each receive descriptor; 0: no device, so none */
	bool page_buffers;   /* each buffer must be a page */
	bool trains;         /* it accepts trains of packets */
	bool dma;            /* its device accesses the buffers by DMA */
	bool xdp;            /* an XDP program is attached to the interface */
};

/** The reasons why keys have no use with this kind of port; NULL: the key has a use. */
struct kd_port_unused {
	const char *exception_tap, *vlan, *mac, *gateway;
};

/** Function pointers may be NULL if there is nothing to do. */
struct kd_port_kind {
	const char *form; /* what its devices are called in messages */
	bool (*matches)(const char *device);

	/* --- configuration --- */
	struct kd_port_unused unused;
	bool has_drivers;    /* driver = has a use */
	bool can_isolate;    /* isolate = yes has a use */
	bool has_addresses;  /* the device has addresses of its own */
	bool waits_for_taps; /* its lcores wait for taps instead of sockets */
	bool many;           /* several ports may have the same device */
	void (*defaults)(struct kd_conf_port *p);
	struct kd_port_needs (*needs)(const struct kd_conf_port *p);

	/* --- before DPDK starts --- */
	/* Checks whether the device exists, and logs an error if not. 0 or negative. */
	int (*check)(const struct kd_conf_port *p);
	/* Returns the path of the file that contains the device's NUMA node. */
	void (*node_path)(const struct kd_conf_port *p, char *path, size_t len);
	/* Returns the name of a device that EAL has to probe. */
	void (*eal_device)(const struct kd_conf_port *p, char *name, size_t len);

	/* --- ports.c --- */
	/* Can the port be opened? 1; 0: not yet, follow() opens it later; -EIO: the reason was
	 * logged. */
	int (*there)(struct kd_port *port);
	/* Sets port->ethdev, and port->probed if there is a device. 0, or -EIO: the reason was
	 * logged. */
	int (*open)(struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port);
	/* Fills in members that differ from those that all ports have. */
	void (*fill)(const struct kd_ports *ps, struct kd_port *port,
		struct karst_engine_port_config *cfg);
	/* The engine has the port; @fds: its sockets. 0, or -EIO: the reason was logged. */
	int (*ready)(const struct kd_port *port, const struct kd_fds *fds);
	/* Returns a hint that may help if the device does not become a port.  "" or "; ..." */
	const char *(*hint)(const struct kd_port *port);
	/* Logs useful information about the port. */
	void (*announce)(const struct kd_port *port);
	/* Called about once a second: reacts to changes of the device. */
	void (*follow)(struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port,
		struct karst_engine *e);
	/* Called with kd_port_close_device(), which is sufficient if this is NULL. */
	void (*close)(struct kd_port *port);
};

extern const struct kd_port_kind kd_port_loopback, kd_port_pci, kd_port_virtio, kd_port_vdev,
	kd_port_tap, kd_port_netdev;

/** Returns the kind that a device of this form has; NULL: none. */
const struct kd_port_kind *kd_port_kind_of(const char *device);

/**
 * Lists the forms: "a PCI address, a kernel interface, tap:NAME, net_..., or loopback", in some
 * order.
 */
void kd_port_kind_forms(char *to, size_t len);

/**
 * Copies @device in the form for logs: without the value of "secret=", which authenticates its
 * peer.  @return @to
 */
const char *kd_port_shown(const char *device, char to[KD_TEXT]);

/** Return what port @p needs, and what any of the ports of @c needs. */
struct kd_port_needs kd_port_needs(const struct kd_conf_port *p);
struct kd_port_needs kd_port_needs_any(const struct kd_conf *c);

/* --- ports.c --- */

/** Logs an error of a port.  @return -EIO */
int kd_port_fault(const struct kd_conf_port *p, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/** Creates a virtual device. */
int kd_port_plug(struct kd_port *port, const char *name, const char *args);

/**
 * Returns the lcores that serve a port whose device has @queues, as bits of [engine] lcores: those
 * that are configured, otherwise all, or the first ones.
 */
uint64_t kd_port_lcores(const struct kd_conf *c, const struct kd_conf_port *p, uint32_t queues);

/**
 * Sets port->addresses from the configuration, or to the device's own; link-local ones are made
 * from @mac.
 */
void kd_port_choose_addresses(struct kd_port *port, const uint8_t mac[6]);

/**
 * Performs all steps from the device to the port of the engine.  -EIO: the reason was logged;
 * kd_port_close_device() is needed in any case.
 */
int kd_port_open(
	struct kd_ports *ps, const struct kd_conf *c, struct karst_engine *e, struct kd_port *port);
/**
 * Adds a port again whose device is open and that the engine had before (karst_engine_port_lose).
 * -EIO: the reason was logged.
 */
int kd_port_again(const struct kd_ports *ps, const struct kd_conf *c, struct karst_engine *e,
	struct kd_port *port);
/** Closes everything that was opened, for good. */
void kd_port_close(struct kd_port *port);
/** Closes the device if it is open.  The port can be opened again like a new one. */
void kd_port_close_device(struct kd_port *port);

#endif /* KARSTD_PORT_KIND_H */
