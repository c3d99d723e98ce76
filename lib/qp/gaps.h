/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Gaps among responses (X11): what the requester calls when a response comes before others that are
 * missing, when one of these comes after all, and when the missing ones are asked for again.
 */
#ifndef KARST_QP_GAPS_H
#define KARST_QP_GAPS_H

#include "qp_priv.h"

/* READs and atomics of one core with something missing, at once.  They are shared out (gaps.c), and
 * of so many a queue pair that is alone may have KARST_QP_MAX_RD_ATOMIC. */
#define KARST_GAPS 256u

/* Responses behind the first that is missing, of one READ, that can be noted; a power of two. */
#define KARST_GAP_PSNS 256u

/** A READ or atomic, responses of which are missing while later ones are here. */
struct karst_gap {
	struct karst_core_qp *qp; /* NULL: free */
	uint32_t first;           /* the first response that is missing */
	uint32_t heard;           /* of the oldest request: all before it the peer has answered */
	uint32_t asked_psn;       /* the first PSN that was not sent yet when this was asked for */
	uint32_t asked_end;       /* behind what comes only because it was asked for again */
	uint32_t asked_to;        /* behind what was asked for */
	uint32_t from;            /* where asking begins */
	uint32_t order;           /* of asking; 0: not asked for again */
	uint16_t next;            /* free ones: number of the next */
	uint64_t map[KARST_GAP_PSNS / 64]; /* responses behind first that are here, by PSN */
};

struct karst_gaps {
	uint32_t order; /* of what was asked for last */
	uint16_t free;  /* number of the first that is free; 0: none */
	uint16_t used;
	struct karst_gap at[KARST_GAPS];
};

void karst_gaps_init(struct karst_gaps *g);
/** The queue pair begins anew or has ended: nothing of it is missing. */
void karst_gaps_drop(struct karst_core *core, struct karst_core_qp *qp);

/** Is a response of the oldest request missing, and something behind it here or acknowledged?  If
 *  not, nothing that is here is behind a gap. */
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

/* --- hearing --- */

/** What a response that came behind a gap is. */
enum karst_gap_answer {
	KARST_GAP_ANSWER, /* it is taken, if it is right */
	KARST_GAP_KNOWN,  /* it is here already, or answers nothing */
	KARST_GAP_FAR,    /* it is dropped, but shows that something is missing */
	KARST_GAP_NONE,   /* no gap can be noted any more: go back */
};

/** The response @pkt, with others before it missing: which request it is of, and what it is. */
enum karst_gap_answer karst_gaps_find(struct karst_core *core, struct karst_core_qp *qp,
	const struct karst_pkt *pkt, uint32_t *idx);
/** Its bytes are where they belong. */
void karst_gaps_taken(
	struct karst_core *core, struct karst_core_qp *qp, uint32_t idx, uint32_t psn);
/** The peer has answered all before PSN @end, which an acknowledgement or a response has said, and
 *  something is missing.  @return false: no gap can be noted any more: go back. */
bool karst_gaps_heard(struct karst_core *core, struct karst_core_qp *qp, uint32_t end);

/** The first missing response of all is here, and with it what is behind it. */
void karst_gaps_filled(struct karst_core *core, struct karst_core_qp *qp);
/** una_psn has come to a request of which something is here: it moves over that. */
void karst_gaps_enter(struct karst_core *core, struct karst_core_qp *qp);
/** una_psn moves over @npsn responses: they are not under way any more. */
static inline void
karst_gaps_pass(struct karst_requester *r, uint32_t npsn)
{
	/* the cursor may have gone back, and not have followed yet */
	if (karst_psn_before(r->una_psn, r->snd_psn))
		r->rd_psns -= karst_min_u32(npsn, karst_psn_distance(r->snd_psn, r->una_psn));
	r->una_psn = karst_psn_add(r->una_psn, npsn);
}

/* --- asking --- */

/** Asks for what is missing.  @return as karst_repeat_tx() */
int karst_gaps_tx(struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b,
	uint32_t limit);
/** A READ or atomic is to be sent again from PSN @psn on.  @return the first PSN to ask for; *end
 *  is behind the last. */
uint32_t karst_gaps_range(const struct karst_core *core, const struct karst_core_qp *qp,
	const struct karst_sq_slot *slot, uint32_t psn, uint32_t *end);
/** It has left, and asks for what is before @end. */
void karst_gaps_asked(struct karst_core *core, struct karst_core_qp *qp, struct karst_sq_slot *slot,
	uint32_t end);

#endif /* KARST_QP_GAPS_H */
