/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Reports of a port's multicast groups to the link: by the engine, on the port's home lcore, for a
 * port that is the engine's own (member_port.c); by the kernel for a port that is a view of a
 * kernel interface (member_kernel.c).
 */
#ifndef ENG_MEMBER_PORT_H
#define ENG_MEMBER_PORT_H

#include "member.h"
#include "neigh.h"

/* -ENOMEM */
int eng_member_create(struct karst_engine *e, struct eng_members **members);
void eng_member_destroy(struct eng_members *members);

/* On any lcore: whether eng_member_rx() may need the frame.  If so, pass it to the port's home
 * lcore. */
bool eng_member_wants(const struct rte_mbuf *m);
/* On the home lcore of @port: processes a frame that eng_member_wants(). */
enum eng_neigh_fate eng_member_rx(struct eng_lcore *lc, uint8_t port, const struct rte_mbuf *m);
/* At lc->member_ns: sends what is due. */
void eng_member_expire(struct eng_lcore *lc);

/* A control thread: sets the groups of @port that the engine reports, in ascending order. */
void eng_member_set(struct karst_engine *e, uint8_t port, const uint8_t (*ips)[16], uint32_t n);

/* The same for ports whose groups the kernel reports.  Errors are logged. */
struct eng_member_kernel;
void eng_member_kernel_set(
	struct karst_engine *e, struct eng_port *p, const uint8_t (*ips)[16], uint32_t n);
/* Joins the IPv6 groups once more, and those that the kernel refused. */
void eng_member_kernel_renew(struct karst_engine *e, struct eng_port *p);
/* The kernel leaves all groups. */
void eng_member_kernel_fini(struct eng_port *p);

#endif /* ENG_MEMBER_PORT_H */
