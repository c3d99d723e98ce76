/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Kinds of ports, that is, what can stand behind "device =": a row of kd_port_kinds (port_kind.c)
 * and a file each.
 *
 *   port_loopback.c   loopback          no device at all
 *   port_pci.c        PCI address       probed when EAL starts, which may touch no other device
 *   port_virtio.c     net_virtio_user   made when its backend is there
 *   port_vdev.c       net_...           made by hot-plug
 *   port_tap.c        tap:NAME          a tap by net_kport: the port is its other end
 *   port_netdev.c     kernel interface  net_kport, net_af_packet or net_af_xdp, made by hot-plug;
 *                                       ARP, routes and all that is not RoCE stay with the kernel
 */
#ifndef KARSTD_PORT_KIND_H
#define KARSTD_PORT_KIND_H

#include "conf.h"
#include "ports.h"

/** What the daemon has to provide for a port. */
struct kd_port_needs {
	uint32_t rx_buffers; /* packet buffers for each receive descriptor; 0: no device, none */
	bool page_buffers;   /* each buffer must be a page */
	bool trains;         /* it takes trains of packets */
	bool dma;            /* its device reads and writes the buffers */
	bool xdp;            /* a program is attached to the interface */
};

/** Why a key is of no use with this kind of port, for each that is not; NULL: it is. */
struct kd_port_unused {
	const char *exception_tap, *vlan, *mac, *gateway;
};

/** Members that are functions may be NULL: nothing to do. */
struct kd_port_kind {
	const char *form; /* what its devices are called, for messages */
	bool (*matches)(const char *device);

	/* --- configuration --- */
	struct kd_port_unused unused;
	bool has_drivers;    /* driver = is of use */
	bool can_isolate;    /* isolate = yes is */
	bool has_addresses;  /* of its own */
	bool waits_for_taps; /* its lcores, instead of sockets */
	bool many;           /* any number of ports may have the same device */
	void (*defaults)(struct kd_conf_port *p);
	struct kd_port_needs (*needs)(const struct kd_conf_port *p);

	/* --- before DPDK starts --- */
	/* Is the device there?  If not, says so.  0 or negative. */
	int (*check)(const struct kd_conf_port *p);
	/* The file that has the device's NUMA node. */
	void (*node_path)(const struct kd_conf_port *p, char *path, size_t len);
	/* The name of a device that EAL is to probe. */
	void (*eal_device)(const struct kd_conf_port *p, char *name, size_t len);

	/* --- ports.c --- */
	/* May the port be opened?  1; 0: not yet, follow() opens it later; -EIO: said why. */
	int (*there)(struct kd_port *port);
	/* Sets port->ethdev, and port->probed if there is one.  0, or -EIO: said why. */
	int (*open)(struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port);
	/* Fills in what differs from what all ports have. */
	void (*fill)(const struct kd_ports *ps, struct kd_port *port,
		struct karst_engine_port_config *cfg);
	/* The engine has the port; @fds: its sockets.  0, or -EIO: said why. */
	int (*ready)(const struct kd_port *port, const struct kd_fds *fds);
	/* What may help if the device does not become a port.  "" or "; ..." */
	const char *(*hint)(const struct kd_port *port);
	/* Logs what is worth to know of it. */
	void (*announce)(const struct kd_port *port);
	/* To be called each second or so: follows what happens to the device. */
	void (*follow)(struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port,
		struct karst_engine *e);
	/* With kd_port_close_device(), which is all if this is NULL. */
	void (*close)(struct kd_port *port);
};

extern const struct kd_port_kind kd_port_loopback, kd_port_pci, kd_port_virtio, kd_port_vdev,
	kd_port_tap, kd_port_netdev;

/** The kind of device that looks like this; NULL: none does. */
const struct kd_port_kind *kd_port_kind_of(const char *device);

/** "a PCI address, a kernel interface, tap:NAME, net_..., or loopback", in some order. */
void kd_port_kind_forms(char *to, size_t len);

/** @device as logs show it: without the value of "secret=", which its peer has to know.  @return @to */
const char *kd_port_shown(const char *device, char to[KD_TEXT]);

/** What port @p needs; of what @c's ports need, whether any needs it. */
struct kd_port_needs kd_port_needs(const struct kd_conf_port *p);
struct kd_port_needs kd_port_needs_any(const struct kd_conf *c);

/* --- ports.c --- */

/** Logs an error of a port.  @return -EIO */
int kd_port_fault(const struct kd_conf_port *p, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/** Makes a virtual device. */
int kd_port_plug(struct kd_port *port, const char *name, const char *args);

/** The lcores that serve a port whose device has @queues, bits of [engine] lcores: those that are
 *  configured, else all, or the first ones. */
uint64_t kd_port_lcores(const struct kd_conf *c, const struct kd_conf_port *p, uint32_t queues);

/** Sets port->addresses from the configuration, or the device's own; link-local ones from @mac. */
void kd_port_choose_addresses(struct kd_port *port, const uint8_t mac[6]);

/** All from the device to the port of the engine.  -EIO: said why; kd_port_close_device() in any
 *  case. */
int kd_port_open(
	struct kd_ports *ps, const struct kd_conf *c, struct karst_engine *e, struct kd_port *port);
/** Its device is open, and was the engine's before (karst_engine_port_lose).  -EIO: said why. */
int kd_port_again(const struct kd_ports *ps, const struct kd_conf *c, struct karst_engine *e,
	struct kd_port *port);
/** All that open has made; for good. */
void kd_port_close(struct kd_port *port);
/** If it is open.  The port may be opened again, as new. */
void kd_port_close_device(struct kd_port *port);

#endif /* KARSTD_PORT_KIND_H */
