/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Neighbours and routes: from an IP address to a struct karst_path.
 *
 * The destination of a frame on the wire depends on the IP address:
 *
 *   an address of the port      its loopback port: the frame does not leave; the same for an
 *                               address of another port of the engine that is not on the link
 *   a multicast group           the group's MAC address (U4)
 *   on the link                 the destination, resolved by ARP or neighbour discovery
 *   anywhere else               the port's gateway, resolved in the same way
 *
 * A port that is the engine's own sends and answers these requests itself, and keeps up to
 * KARST_ENGINE_NEIGH_MAX neighbours.  For a port that is a view of a kernel interface
 * (karst_engine_port_config.netdev), the kernel resolves neighbours, answers, and knows the routes.
 */
#ifndef KARST_NEIGH_H
#define KARST_NEIGH_H

#include "karst_engine.h"

#define KARST_ENGINE_NEIGH_MAX 1024u /* of each port */

struct karst_engine_resolve_opts {
	uint32_t timeout_ms; /* 0: 3000 */
	/* Called from time to time during the wait: false ends it.  May be NULL. */
	bool (*alive)(void *user);
	void *user;
	bool quiet;   /* failures are not logged */
	bool no_wait; /* -EAGAIN: a request was sent; call again later */
	/* with no_wait: nothing is sent for an address that is not being resolved already */
	bool look_only;
};

/**
 * Fills a path from address number @addr of @port to @dst_ip (wire order, IPv4 as ::ffff:a.b.c.d).
 * Waits for an answer from the link, so it is for control threads: other threads must poll the
 * lcores that serve the port; the function itself polls lcores that are attached to the calling
 * thread.
 * @opts: NULL for the defaults.
 * -EINVAL: no such port or address, or the families differ; -EHOSTUNREACH: no route, or no answer
 * in time; -EAGAIN: no_wait; -ECANCELED: @alive returned false; -EDEADLK: from a callback.
 */
int karst_engine_resolve(struct karst_engine *e, uint8_t port, uint32_t addr,
	const uint8_t dst_ip[16], const struct karst_engine_resolve_opts *opts,
	struct karst_path *path);

enum karst_neigh_state {
	KARST_NEIGH_ASKED, /* no answer yet */
	KARST_NEIGH_KNOWN,
	KARST_NEIGH_DOUBTED, /* in use, and queried again at the next use */
};

struct karst_engine_neigh {
	uint8_t ip[16];
	uint8_t mac[6];
	uint8_t port;
	uint8_t state;   /* enum karst_neigh_state */
	uint64_t age_ns; /* since it was confirmed, or first queried */
};

/**
 * Lists the neighbours of a port, up to @max; for a view of a kernel interface, those that the
 * kernel has for it.  @return how many there are, or a negative errno.
 */
int karst_engine_neigh_list(
	struct karst_engine *e, uint8_t port, struct karst_engine_neigh *list, unsigned int max);

#endif /* KARST_NEIGH_H */
