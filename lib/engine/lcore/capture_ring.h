/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The lcore's side of a packet capture: the ring that it writes frames to.  capture.h describes
 * captures. */
#ifndef ENGINE_CAPTURE_RING_H
#define ENGINE_CAPTURE_RING_H

#include "lcore.h"

#define ENG_CAPTURE_SLOTS 2048u /* a power of two */

struct eng_capture_slot {
	uint64_t tsc;
	uint16_t len;
	uint16_t have;
	uint8_t port;
	bool out;
	uint16_t reserved;
	uint8_t data[];
};

struct eng_capture_ring {
	/* the lcore's */
	uint32_t qpn;
	uint32_t snaplen;
	uint32_t stride;
	uint32_t tail;
	uint64_t left;  /* frames that may still be captured */
	uint64_t built; /* frames of the QP in the burst under construction, a bit set */
	uint64_t dropped;
	uint8_t *slots;

	/* shared by the lcore and the writer */
	_Atomic uint32_t shared_tail karst_cache_aligned;
	_Atomic uint32_t shared_head karst_cache_aligned;
};

static inline struct eng_capture_slot *
eng_capture_slot_at(const struct eng_capture_ring *c, uint32_t i)
{
	return (struct eng_capture_slot *)(void *)(c->slots +
		(size_t)(i & (ENG_CAPTURE_SLOTS - 1)) * c->stride);
}

/* --- on the lcore, while lc->capture is set --- */

/* Captures packets of a burst, before they are delivered. */
void eng_capture_rx(struct eng_lcore *lc, struct karst_pkt *const *pkts, unsigned int n);
/* Notes that frames [from, to) of the burst under construction belong to @qp. */
void eng_capture_built(
	struct eng_lcore *lc, const struct karst_core_qp *qp, unsigned int from, unsigned int to);
/* Captures the frames of a sealed burst; @lost: bit set of frames that will not be sent. */
void eng_capture_tx(struct eng_lcore *lc, unsigned int n, uint64_t lost);

#endif /* ENGINE_CAPTURE_RING_H */
