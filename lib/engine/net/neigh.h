/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * ARP and neighbour discovery for ports that are the engine's own (neigh.c), and helpers for frames
 * that the engine builds itself.  All of it runs on the port's home lcore, the first one that
 * serves it.
 */
#ifndef ENG_NEIGH_H
#define ENG_NEIGH_H

#include "lcore.h"
#include "neigh_table.h"

struct eng_neigh {
	struct eng_neigh_table table;
	/* Answers that may be sent now: limits the answers to a flood of requests. */
	uint32_t tokens;
	uint64_t refilled_ns;
};

/* For port @port.  -ENOMEM */
int eng_neigh_create(struct karst_engine *e, struct eng_neigh **nb);
void eng_neigh_destroy(struct eng_neigh *nb);

/* Result of processing a frame. */
enum eng_neigh_fate {
	ENG_NEIGH_OTHER, /* not processed: of another VLAN, or an invalid query */
	ENG_NEIGH_DONE,  /* processed; the frame is still the caller's */
	ENG_NEIGH_SHARE, /* processed; the kernel or the program may need it, too */
	ENG_NEIGH_BAD,   /* malformed, forged, unsolicited or too many */
};

/* On any lcore: whether eng_neigh_rx() may need the frame.  If so, pass it to the port's home
 * lcore. */
bool eng_neigh_wants(const struct rte_mbuf *m);

/* On the home lcore of @port: processes a frame that eng_neigh_wants(). */
enum eng_neigh_fate eng_neigh_rx(struct eng_lcore *lc, uint8_t port, const struct rte_mbuf *m);

/* Payload of an Ethernet frame. */
struct eng_l3 {
	const uint8_t *p; /* after the Ethernet header and the tag */
	uint32_t len;
	uint16_t type;
	uint16_t vlan; /* 0: no tag, or only a priority */
};
/* @return false: the frame is too short. */
bool eng_l3_find(const struct rte_mbuf *m, struct eng_l3 *l3);

/* Allocates a buffer with an Ethernet header, tagged as the port is, and @len zero bytes of payload
 * after it.  NULL: no buffer. */
struct rte_mbuf *eng_frame_new(struct eng_lcore *lc, const struct eng_port *p, const uint8_t dst[6],
	uint16_t type, uint32_t len, uint8_t **payload);

/* A request of a control thread to the home lcore. */
struct eng_neigh_call {
	uint8_t port;
	uint8_t src[16]; /* own address, the source of the request */
	uint8_t ip[16];  /* address to resolve */
	uint8_t mac[6];  /* out */
	bool look_only;  /* -EAGAIN if there is no entry; none is created */
	struct karst_engine_neigh *list;
	unsigned int max;
};

/* eng_fn.  Looks a neighbour up.  @return 0; -EAGAIN: not known yet, a request was sent now or
 * before. */
int eng_neigh_use_on_lcore(struct eng_lcore *lc, void *call);
/* eng_fn.  Announces all addresses of the port on the link. */
int eng_neigh_announce_on_lcore(struct eng_lcore *lc, void *call);
/* eng_fn.  Lists the neighbours.  @return how many there are. */
int eng_neigh_list_on_lcore(struct eng_lcore *lc, void *call);

#endif /* ENG_NEIGH_H */
