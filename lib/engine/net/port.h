/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Ports, their addresses, and paths to other hosts. */
#ifndef ENGINE_PORT_H
#define ENGINE_PORT_H

#include "lcore.h"

/* What lcores ask of this folder (hooks.c). */
extern const struct eng_lcore_hooks eng_net_hooks;

/* --- port.c --- */

/* The device's MTU has changed to @mtu, of which buffers may hold less; within a control call. */
void eng_port_follow_mtu(const struct karst_engine *e, struct eng_port *p, uint16_t mtu);

/* --- port_life.c --- */

/* A port that is configured and started: every lcore that serves it begins to.  -ENOMEM */
int eng_port_join(struct karst_engine *e, uint8_t port);
/* Stops the device, if there is one. */
void eng_port_stop(struct eng_port *p);
/* As the engine ends: no lcore runs any more. */
void eng_port_fini(struct karst_engine *e, uint8_t port);
void eng_port_link_init(struct eng_port *p);
/* As karst_engine_port_remove(), within a control call. */
int eng_port_remove(struct karst_engine *e, uint8_t port);
/* Tells all owners, within a control call. */
void eng_port_event(struct karst_engine *e, uint8_t port, enum karst_async_event_code event);

/* --- port_addr.c --- */

/* What is wrong with them, or NULL. */
const char *eng_port_addrs_fault(uint32_t n, const struct karst_engine_addr *addrs);
/* Nothing may change while the port is looked at but by the two below. */
void eng_port_store_addrs(struct eng_port *p, const uint8_t mac[6], uint32_t n,
	const struct karst_engine_addr *addrs);
/* Other addresses, another MAC address, of a port that is there; within a control call. */
void eng_port_set_addrs(
	struct karst_engine *e, uint8_t port, uint32_t n, const struct karst_engine_addr *addrs);
void eng_port_set_mac(struct karst_engine *e, uint8_t port, const uint8_t mac[6]);
/* May lcore @lc use @path?  0 or -EINVAL, logged. */
int eng_port_check_path(
	const struct karst_engine *e, uint32_t lcore, const struct karst_path *path);

/* --- resolve.c --- */

/* One look for the path from own address @src_ip of @port to @dst_ip, which does not wait for
 * anybody's answer.  -EAGAIN: asked, look again; -EHOSTUNREACH; -EINVAL: not an address of the
 * port. */
int eng_resolve_try(struct karst_engine *e, uint8_t port, const uint8_t src_ip[16],
	const uint8_t dst_ip[16], struct karst_path *path);

#define ENG_IP_TEXT INET6_ADDRSTRLEN
/* For logs. */
const char *eng_ip_text(const uint8_t ip[16], char text[ENG_IP_TEXT]);

#endif /* ENGINE_PORT_H */
