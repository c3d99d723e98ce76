/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Queue pair 1 of the engine, the general services interface: management datagrams (MADs) to and
 * from peers (U2).  It has no queues in a program's memory: received MADs wait in a ring of the
 * engine until one thread takes them.
 */
#ifndef ENG_GSI_RX_H
#define ENG_GSI_RX_H

#include "lcore.h"

#define ENG_GSI_QPN       1u
#define ENG_GSI_QKEY      0x80010000u
#define ENG_GSI_PKEY      0xffffu
#define ENG_GSI_MAD_BYTES 256u
/* MADs that can wait: enough for a burst of connections. */
#define ENG_GSI_SLOTS 1024u

/* A received MAD. */
struct eng_gsi_mad {
	uint8_t src_ip[16]; /* the peer's; IPv4 as ::ffff:a.b.c.d */
	uint8_t dst_ip[16]; /* of this engine */
	uint16_t pkey;
	uint8_t port; /* port of the engine, never a loopback port */
	uint8_t tclass;
	uint8_t hop_limit;
	uint8_t bytes[ENG_GSI_MAD_BYTES] karst_aligned(8);
};

struct eng_gsi {
	struct rte_ring *free;
	struct rte_ring *full;
	struct eng_gsi_mad *mads; /* [ENG_GSI_SLOTS] */
	int wake_fd;
	_Atomic uint32_t asleep; /* the thread that takes MADs sleeps */
	uint32_t psn;            /* of the next MAD sent */
	uint16_t ip_id;
};

int eng_gsi_init(struct karst_engine *e);
void eng_gsi_fini(struct karst_engine *e);

/* On any lcore: accepts a packet to QP 1 whose ICRC is right, and wakes the thread that takes
 * MADs. */
void eng_gsi_rx(struct eng_lcore *lc, const struct karst_pkt *pkt);

/* For one thread: takes the oldest MAD, to be returned by eng_gsi_give(); NULL: there is none. */
struct eng_gsi_mad *eng_gsi_take(struct karst_engine *e);
void eng_gsi_give(struct karst_engine *e, struct eng_gsi_mad *mad);
/* Waits until a MAD comes, eng_gsi_wake() is called, or @ns have passed (UINT64_MAX: no limit). */
void eng_gsi_wait(struct karst_engine *e, uint64_t ns);
/* Any thread. */
void eng_gsi_wake(struct karst_engine *e);

#endif /* ENG_GSI_RX_H */
