/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Who tells the link of a port's multicast groups: the engine where the port is its own, on the
 * port's home lcore (member_port.c); the kernel where the port is a view of a kernel interface
 * (member_kernel.c).
 */
#ifndef ENG_MEMBER_PORT_H
#define ENG_MEMBER_PORT_H

#include "member.h"
#include "neigh.h"

/* -ENOMEM */
int eng_member_create(struct karst_engine *e, struct eng_members **members);
void eng_member_destroy(struct eng_members *members);

/* On any lcore: might eng_member_rx() care?  Then the frame goes to the port's home lcore. */
bool eng_member_wants(const struct rte_mbuf *m);
/* On the home lcore of @port: a frame that eng_member_wants(). */
enum eng_neigh_fate eng_member_rx(struct eng_lcore *lc, uint8_t port, const struct rte_mbuf *m);
/* At lc->member_ns: sends what is due. */
void eng_member_expire(struct eng_lcore *lc);

/* A control thread: the groups of @port, which the engine reports, are these now, in ascending
 * order. */
void eng_member_set(struct karst_engine *e, uint8_t port, const uint8_t (*ips)[16], uint32_t n);

/* The kernel's part of it.  Errors are logged. */
struct eng_member_kernel;
void eng_member_kernel_set(
	struct karst_engine *e, struct eng_port *p, const uint8_t (*ips)[16], uint32_t n);
/* The kernel leaves them all. */
void eng_member_kernel_fini(struct eng_port *p);

#endif /* ENG_MEMBER_PORT_H */
