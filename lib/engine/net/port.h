/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Ports, their addresses, and paths to other hosts. */
#ifndef ENGINE_PORT_H
#define ENGINE_PORT_H

#include "lcore.h"

/* Functions of this folder that lcores call (hooks.c). */
extern const struct eng_lcore_hooks eng_net_hooks;

/* --- port.c --- */

/* Sets the port's MTU after the device's MTU has changed to @mtu; buffers may hold less.  Within a
 * control call. */
void eng_port_follow_mtu(const struct karst_engine *e, struct eng_port *p, uint16_t mtu);

/* --- port_life.c --- */

/* Attaches a configured and started port to every lcore that serves it.  -ENOMEM */
int eng_port_join(struct karst_engine *e, uint8_t port);
/* Stops the device, if there is one. */
void eng_port_stop(struct eng_port *p);
/* To be called at the end of the engine, when no lcore runs any more. */
void eng_port_fini(struct karst_engine *e, uint8_t port);
void eng_port_link_init(struct eng_port *p);
/* As karst_engine_port_remove(), within a control call. */
int eng_port_remove(struct karst_engine *e, uint8_t port);
/* Sends an event of the port to all owners, within a control call. */
void eng_port_event(struct karst_engine *e, uint8_t port, enum karst_async_event_code event);

/* --- port_addr.c --- */

/* What is wrong with the addresses; NULL if nothing is. */
const char *eng_port_addrs_fault(uint32_t n, const struct karst_engine_addr *addrs);
/* Sets the addresses of a port that no lcore uses yet; otherwise use the two functions below. */
void eng_port_store_addrs(struct eng_port *p, const uint8_t mac[6], uint32_t n,
	const struct karst_engine_addr *addrs);
/* Suspends the address handles whose source address their port does not have, and no others; after
 * the addresses of a port have changed, within a control call. */
void eng_port_check_handles(const struct karst_engine *e);
/* Change the addresses or the MAC address of a port in use; within a control call. */
void eng_port_set_addrs(
	struct karst_engine *e, uint8_t port, uint32_t n, const struct karst_engine_addr *addrs);
void eng_port_set_mac(struct karst_engine *e, uint8_t port, const uint8_t mac[6]);
/* Whether lcore @lc may use @path: 0 or -EINVAL, logged. */
int eng_port_check_path(
	const struct karst_engine *e, uint32_t lcore, const struct karst_path *path);

/* --- resolve.c --- */

/* Looks up the path from own address @src_ip of @port to @dst_ip once, without waiting for an
 * answer.  -EAGAIN: a request was sent, call again; -EHOSTUNREACH; -EINVAL: not an address of the
 * port. */
int eng_resolve_try(struct karst_engine *e, uint8_t port, const uint8_t src_ip[16],
	const uint8_t dst_ip[16], struct karst_path *path);

#define ENG_IP_TEXT INET6_ADDRSTRLEN
/* For logs. */
const char *eng_ip_text(const uint8_t ip[16], char text[ENG_IP_TEXT]);

#endif /* ENGINE_PORT_H */
