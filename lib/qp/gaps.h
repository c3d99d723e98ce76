/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Gaps among responses (X11).  The requester calls these functions when a response arrives before
 * others that are missing, when one of the missing ones arrives, and when it requests the missing
 * ones again.
 */
#ifndef KARST_QP_GAPS_H
#define KARST_QP_GAPS_H

#include "qp_priv.h"

/* Limit of the READs and atomics of one core that have missing responses at one time.  They are
 * shared out (gaps.c); with this limit, a queue pair that is the only one to use them may have
 * KARST_QP_MAX_RD_ATOMIC. */
#define KARST_GAPS 256u

/* Limit of the recorded responses of one READ, counted from the first missing one; a power of
 * two. */
#define KARST_GAP_PSNS 256u

/** A READ or atomic with missing responses, while later ones have arrived. */
struct karst_gap {
	struct karst_core_qp *qp; /* NULL: free */
	uint32_t first;           /* the first missing response */
	/* valid in the gap of the oldest request: the peer has answered all before this PSN */
	uint32_t heard;
	/* the first PSN that was not sent yet when this was requested again */
	uint32_t asked_psn;
	/* responses before this PSN arrive only because they were requested again */
	uint32_t asked_end;
	uint32_t asked_to; /* the first PSN after what was requested again */
	uint32_t from;     /* where the next request begins */
	uint32_t order;    /* sequence number of the request; 0: not requested again */
	uint16_t next;     /* in a free gap: number of the next free one */
	uint64_t map[KARST_GAP_PSNS / 64]; /* responses after @first that have arrived, by PSN */
};

struct karst_gaps {
	uint32_t order; /* sequence number of the newest request */
	uint16_t free;  /* number of the first free gap; 0: none */
	uint16_t used;
	struct karst_gap at[KARST_GAPS];
};

void karst_gaps_init(struct karst_gaps *g);
/** Frees the gaps of a queue pair that is reset or destroyed. */
void karst_gaps_drop(struct karst_core *core, struct karst_core_qp *qp);

/** Whether a response of the oldest request is missing while something after it has arrived or was
 *  acknowledged.  If not, nothing has arrived after a gap. */
static inline bool
karst_gaps_any(const struct karst_core_qp *qp)
{
	const struct karst_requester *r = &qp->req;

	return r->una_idx != r->nxt_idx && r->slots[r->una_idx & qp->sq.mask].gap != 0;
}

static inline struct karst_gap *
karst_gap_of(const struct karst_core *core, const struct karst_sq_slot *slot)
{
	return &core->gaps->at[slot->gap - 1];
}

/* --- received responses --- */

/** The kinds of response that arrive after a gap. */
enum karst_gap_answer {
	KARST_GAP_ANSWER, /* it is accepted if it is valid */
	KARST_GAP_KNOWN,  /* it has arrived before, or answers no request */
	KARST_GAP_FAR,    /* it is dropped, but shows that a response is missing */
	KARST_GAP_NONE,   /* no gap can be recorded any more: the requester goes back */
};

/** Finds the request of response @pkt, which arrives while others before it are missing, and
 *  returns the kind of response. */
enum karst_gap_answer karst_gaps_find(struct karst_core *core, struct karst_core_qp *qp,
	const struct karst_pkt *pkt, uint32_t *idx);
/** The bytes of the response have been placed. */
void karst_gaps_taken(
	struct karst_core *core, struct karst_core_qp *qp, uint32_t idx, uint32_t psn);
/** An acknowledgement or a response has shown that the peer has answered all before PSN @end, and
 *  responses are missing.  @return false: no gap can be recorded any more: the requester goes
 *  back. */
bool karst_gaps_heard(struct karst_core *core, struct karst_core_qp *qp, uint32_t end);

/** The first missing response of all has arrived: takes it, and what is contiguous after it. */
void karst_gaps_filled(struct karst_core *core, struct karst_core_qp *qp);
/** una_psn has reached a request with responses that have arrived: moves una_psn past them. */
void karst_gaps_enter(struct karst_core *core, struct karst_core_qp *qp);
/** Moves una_psn past @npsn responses, which are not under way any more. */
static inline void
karst_gaps_pass(struct karst_requester *r, uint32_t npsn)
{
	/* the cursor may have gone back, and be behind una still */
	if (karst_psn_before(r->una_psn, r->snd_psn))
		r->rd_psns -= karst_min_u32(npsn, karst_psn_distance(r->snd_psn, r->una_psn));
	r->una_psn = karst_psn_add(r->una_psn, npsn);
}

/* --- requesting again --- */

/** Requests missing responses again.  @return as karst_repeat_tx() */
int karst_gaps_tx(struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b,
	uint32_t limit);
/** A READ or atomic is to be sent again from PSN @psn on.  @return the first PSN to request; *end
 *  is after the last. */
uint32_t karst_gaps_range(const struct karst_core *core, const struct karst_core_qp *qp,
	const struct karst_sq_slot *slot, uint32_t psn, uint32_t *end);
/** The request was sent, and requests responses before @end. */
void karst_gaps_asked(struct karst_core *core, struct karst_core_qp *qp, struct karst_sq_slot *slot,
	uint32_t end);

#endif /* KARST_QP_GAPS_H */
