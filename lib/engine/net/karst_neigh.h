/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Neighbours and routes: from an IP address to a struct karst_path.
 *
 * Whom a frame is for on the wire is found like this:
 *
 *   an address of the port      its loopback twin: the frame never leaves; likewise an address of
 *                               another port of the engine that the link does not lead to
 *   a multicast group           the group's MAC address (U4)
 *   on the link                 the destination, asked for by ARP or neighbour discovery
 *   anywhere else               the port's gateway, asked for likewise
 *
 * A port that is the engine's own asks and answers by itself, and remembers up to
 * KARST_ENGINE_NEIGH_MAX neighbours.  A port that is a view of a kernel interface
 * (karst_engine_port_config.netdev) leaves asking, answering and routes to the kernel.
 */
#ifndef KARST_NEIGH_H
#define KARST_NEIGH_H

#include "karst_engine.h"

#define KARST_ENGINE_NEIGH_MAX 1024u /* of each port */

struct karst_engine_resolve_opts {
	uint32_t timeout_ms; /* 0: 3000 */
	/* Asked now and then while it waits: false ends it.  May be NULL. */
	bool (*alive)(void *user);
	void *user;
	bool quiet;   /* what fails is not logged */
	bool no_wait; /* -EAGAIN: whoever knows has been asked; to be looked for again */
};

/**
 * Fills a path from address number @addr of @port to @dst_ip (wire order, IPv4 as ::ffff:a.b.c.d).
 * Waits for an answer from the link, so it is for control threads: somebody else polls the lcores
 * that serve the port; lcores that are attached to the calling thread, it polls itself.
 * @opts: NULL for the defaults.
 * -EINVAL: no such port or address, or the families differ; -EHOSTUNREACH: no route, or no answer
 * in time; -EAGAIN: no_wait; -ECANCELED: @alive said so; -EDEADLK: from a callback.
 */
int karst_engine_resolve(struct karst_engine *e, uint8_t port, uint32_t addr,
	const uint8_t dst_ip[16], const struct karst_engine_resolve_opts *opts,
	struct karst_path *path);

enum karst_neigh_state {
	KARST_NEIGH_ASKED, /* no answer yet */
	KARST_NEIGH_KNOWN,
	KARST_NEIGH_DOUBTED, /* used, and asked again at the next use */
};

struct karst_engine_neigh {
	uint8_t ip[16];
	uint8_t mac[6];
	uint8_t port;
	uint8_t state;   /* enum karst_neigh_state */
	uint64_t age_ns; /* since it was confirmed, or asked for the first time */
};

/**
 * The neighbours of a port, up to @max; those that the kernel keeps for it if it is a view of an
 * interface.  @return how many there are, or a negative errno.
 */
int karst_engine_neigh_list(
	struct karst_engine *e, uint8_t port, struct karst_engine_neigh *list, unsigned int max);

#endif /* KARST_NEIGH_H */
