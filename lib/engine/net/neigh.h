/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * ARP and neighbour discovery of the ports that are the engine's own (neigh.c), and frames that it
 * sends of its own accord.  All of it runs on the port's home lcore, the first one that serves it.
 */
#ifndef ENG_NEIGH_H
#define ENG_NEIGH_H

#include "lcore.h"
#include "neigh_table.h"

struct eng_neigh {
	struct eng_neigh_table table;
	/* Answers that may still be given: a flood of questions is not worth a flood of answers. */
	uint32_t tokens;
	uint64_t refilled_ns;
};

/* For port @port.  -ENOMEM */
int eng_neigh_create(struct karst_engine *e, struct eng_neigh **nb);
void eng_neigh_destroy(struct eng_neigh *nb);

/* What became of a frame. */
enum eng_neigh_fate {
	ENG_NEIGH_OTHER, /* not of this link */
	ENG_NEIGH_DONE,  /* dealt with; the frame is still the caller's */
	ENG_NEIGH_SHARE, /* understood; others may want to see it, too */
	ENG_NEIGH_BAD,   /* malformed, forged, unasked for or too many */
};

/* On any lcore: might eng_neigh_rx() care?  Then the frame goes to the port's home lcore. */
bool eng_neigh_wants(const struct rte_mbuf *m);

/* On the home lcore of @port: a frame that eng_neigh_wants(). */
enum eng_neigh_fate eng_neigh_rx(struct eng_lcore *lc, uint8_t port, const struct rte_mbuf *m);

/* What a frame carries. */
struct eng_l3 {
	const uint8_t *p; /* behind the Ethernet header and the tag */
	uint32_t len;
	uint16_t type;
	uint16_t vlan; /* 0: no tag, or a priority alone */
};
/* False: too short. */
bool eng_l3_find(const struct rte_mbuf *m, struct eng_l3 *l3);

/* A buffer with an Ethernet header, tagged as the port is, and room for @len bytes behind it, all
 * zero.  NULL: no buffer. */
struct rte_mbuf *eng_frame_new(struct eng_lcore *lc, const struct eng_port *p, const uint8_t dst[6],
	uint16_t type, uint32_t len, uint8_t **payload);

/* Questions and announcements that a control thread wants from the home lcore. */
struct eng_neigh_call {
	uint8_t port;
	uint8_t src[16]; /* own address that asks */
	uint8_t ip[16];  /* who is looked for */
	uint8_t mac[6];  /* out */
	struct karst_engine_neigh *list;
	unsigned int max;
};

/* eng_fn.  Looks for a neighbour.  0; -EAGAIN: it was asked, or has been. */
int eng_neigh_use_on_lcore(struct eng_lcore *lc, void *call);
/* eng_fn.  Tells the link all addresses of the port. */
int eng_neigh_announce_on_lcore(struct eng_lcore *lc, void *call);
/* eng_fn.  @return how many there are. */
int eng_neigh_list_on_lcore(struct eng_lcore *lc, void *call);

#endif /* ENG_NEIGH_H */
