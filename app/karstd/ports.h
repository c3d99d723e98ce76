/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Ports: from [port NAME] to a DPDK device in an engine.  port_kind.h has what differs. */
#ifndef KARSTD_PORTS_H
#define KARSTD_PORTS_H

#include "conf.h"
#include "hotplug.h"
#include "netdev.h"
#include "wake.h"

struct kd_port {
	struct kd_conf_port *conf;
	uint8_t number; /* of the engine */
	bool added;
	uint16_t ethdev;
	bool probed; /* ethdev is to be closed */
	/* ethdev is net_impair's, over this one, which is to be closed, too */
	bool impaired;
	uint16_t below;
	struct kd_addrs addresses;
	struct kd_fds fds; /* that its driver receives by */
	bool removed;      /* from the configuration */
	/* of kernel interfaces; the name of others' */
	struct kd_netdev netdev;
	int silence_fd;       /* kd_netdev_silence(); -1 */
	uint32_t opened_mtu;  /* the interface's, when its driver made its buffers */
	bool left;            /* there was news that the interface has gone */
	bool away;            /* the port has gone with it */
	bool bare;            /* it was said that there are no addresses */
	const char *obstacle; /* to the port's return, as it was said last; NULL: none */
	/* of a net_memif that is a client */
	struct {
		bool said;         /* that its server has gone */
		uint32_t wait;     /* looks until it is asked for */
		uint32_t patience; /* and, while it has begun to answer, until the next time */
	} ask;
	/* of net_virtio_user */
	struct kd_backend {
		int listen_fd;     /* where it is waited for; -1 */
		bool away;         /* there is none, or not yet */
		bool said;         /* and that was said */
		bool unlike;       /* it was said that one did not answer as it should */
		uint8_t mac[6];    /* made up, if none is configured; begins with no 0 then */
		uint32_t lived;    /* for how many looks it is there */
		uint32_t wait;     /* looks until the next try */
		uint32_t patience; /* and how many the next time */
	} backend;
	/* of PCI adapters */
	struct kd_hotplug hotplug;
};

struct kd_ports {
	uint32_t n;
	struct kd_port port[KD_MAX_PORTS];
	int xdp_fd;  /* the program as a file; -1: not needed yet */
	int news_fd; /* of kernel interfaces (follow.h), or -1 */
};

/** Before DPDK starts: are the devices there?  Errors are logged, all of them.  -ENODEV */
int kd_ports_check(const struct kd_conf *c);

/** Makes all ports.  -EIO: said why; kd_ports_close() in any case. */
int kd_ports_open(struct kd_ports *ps, struct kd_conf *c, struct karst_engine *e);

/** Follows kernel interfaces, links, and adapters that are unplugged and come back.  To be called
 * each second or so. */
void kd_ports_watch(struct kd_ports *ps, const struct kd_conf *c, struct karst_engine *e);

/** The engine stays, without any port. */
void kd_ports_withdraw(struct kd_ports *ps, struct karst_engine *e);

/** After the engine is gone, or its ports. */
void kd_ports_close(struct kd_ports *ps);

#endif /* KARSTD_PORTS_H */
