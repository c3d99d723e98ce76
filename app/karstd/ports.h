/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Ports: from [port NAME] to a DPDK device in an engine.  port_kind.h has the differences between
 * kinds. */
#ifndef KARSTD_PORTS_H
#define KARSTD_PORTS_H

#include "conf.h"
#include "hotplug.h"
#include "netdev.h"
#include "wake.h"

struct kd_port {
	struct kd_conf_port *conf;
	uint8_t number; /* number in the engine */
	bool added;
	uint16_t ethdev;
	bool probed; /* ethdev has to be closed */
	/* ethdev is a net_impair on top of this one, which has to be closed, too */
	bool impaired;
	uint16_t below;
	struct kd_addrs addresses;
	struct kd_fds fds; /* through which its driver receives */
	bool removed;      /* removed from the configuration */
	/* of kernel interfaces; for other kinds the name */
	struct kd_netdev netdev;
	int silence_fd;       /* kd_netdev_silence(); -1 */
	uint32_t opened_mtu;  /* MTU of the interface when its driver created its buffers */
	bool left;            /* the kernel reported that the interface has gone */
	bool groups_lost;     /* the kernel may have forgotten IPv6 groups that were joined there */
	bool away;            /* the port was removed with it */
	bool bare;            /* it was logged that there are no addresses */
	uint32_t left_out;    /* it was logged that so many addresses are not used */
	const char *obstacle; /* the obstacle to the port's return that was logged last; NULL:
			       * none */
	/* of a net_memif of role client */
	struct {
		bool said;         /* it was logged that its server has gone */
		uint32_t wait;     /* checks until it asks again */
		uint32_t patience; /* checks until the next attempt, while the server has begun
				    * to answer */
	} ask;
	/* of net_virtio_user */
	struct kd_backend {
		int listen_fd;     /* socket that waits for the backend; -1 */
		bool away;         /* there is no backend, or not yet */
		bool said;         /* and that was logged */
		bool unlike;       /* it was logged that a backend did not answer correctly */
		uint8_t mac[6];    /* generated if none is configured; byte 0 is not 0 then */
		uint32_t lived;    /* number of checks for which the backend has existed */
		uint32_t wait;     /* checks until the next try */
		uint32_t patience; /* and the number of checks the next time */
	} backend;
	/* of PCI adapters */
	struct kd_hotplug hotplug;
};

struct kd_ports {
	uint32_t n;
	struct kd_port port[KD_MAX_PORTS];
	int xdp_fd;  /* the XDP program as a file; -1: not needed yet */
	int news_fd; /* changes of kernel interfaces (follow.h), or -1 */
};

/** Checks before DPDK starts whether the devices exist.  All errors are logged.  -ENODEV */
int kd_ports_check(const struct kd_conf *c);

/** Opens all ports.  -EIO: the reason was logged; kd_ports_close() is needed in any case. */
int kd_ports_open(struct kd_ports *ps, struct kd_conf *c, struct karst_engine *e);

/**
 * Follows kernel interfaces, links, and adapters that are unplugged and come back.  Called about
 * once a second.
 */
void kd_ports_watch(struct kd_ports *ps, const struct kd_conf *c, struct karst_engine *e);

/** Removes all ports from the engine, which continues to exist. */
void kd_ports_withdraw(struct kd_ports *ps, struct karst_engine *e);

/** Call after the engine, or its ports, are gone. */
void kd_ports_close(struct kd_ports *ps);

#endif /* KARSTD_PORTS_H */
