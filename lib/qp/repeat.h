/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Selective repeat between two karst ends (rules X): what a queue pair that has agreed to it keeps
 * besides, in memory that its modify call brought.  Those that have not have a NULL pointer, and
 * KARST_QPF_COPIES, which every path that differs looks at, is 0 unless a copy is under way.
 *
 *   repeat_hold.c  the responder: requests ahead of the expected PSN are held, and executed in
 *                  their turn by responder.c as ever
 *   repeat.c       the requester: what the peer holds, what is lost, what goes again
 *
 * Both index by PSN modulo the window.
 */
#ifndef KARST_QP_REPEAT_H
#define KARST_QP_REPEAT_H

#include "qp_priv.h"

/* Parts of READs that a peer may have asked for again and that were not answered yet. */
#define KARST_REPEAT_PARTS 32u

struct karst_repeat_part {
	uint32_t which; /* number of the saved READ or atomic */
	uint32_t beg;   /* its first PSN */
	uint32_t psn;   /* the next that is answered */
	uint32_t end;   /* behind the last */
	uint32_t last;  /* behind the last that was asked for, which may be answered anyway */
};

struct karst_repeat {
	uint32_t window; /* PSNs; a power of two */

	/* responder */
	uint32_t nheld;
	uint32_t top_psn;              /* the last that is held, if any is */
	uint32_t unsaid;               /* frames held since the last SACK */
	uint32_t ndropped;             /* bits that are set in @dropped */
	uint8_t *dropped;              /* bits: PSNs dropped for want of room, missing yet */
	bool lacks;                    /* the next SACK tells of that */
	bool plain;                    /* the ACK that is owed is for a duplicate */
	const struct karst_pkt *fresh; /* held, and not yet out of its driver's hands */
	struct karst_pkt **held;
	uint32_t part; /* the oldest, modulo their number */
	uint32_t nparts;
	struct karst_repeat_part parts[KARST_REPEAT_PARTS];

	/* requester: of the PSNs from base_psn on */
	uint32_t base_psn;  /* una_psn, when somebody has looked last */
	uint32_t noted_psn; /* packets before it have a place in the order */
	uint32_t noted_idx; /* the request that this is in */
	uint32_t npackets;  /* request packets sent and not acknowledged: there are READs, too */
	uint32_t nhave;     /* of these, the peer has */
	uint32_t nlost;     /* of these, lost and not sent again yet */
	uint32_t again;     /* bit set of the paths with packets sent again that have not arrived */
	uint32_t *sent;     /* order of the packet with that PSN, on its path; 0: there is none */
	uint8_t *state;     /* of it: enum karst_repeat_state; from bit 4 on its path */
	bool news;          /* something has arrived, and nobody has looked what it leaves out */
	/* X12 */
	uint8_t paths; /* less one: a mask */
	uint8_t via;   /* of the packet that is being sent again */
	uint8_t probe; /* enum karst_repeat_probe */
	uint8_t probe_path;
	uint32_t probe_psn;
	uint32_t probe_order;
	struct karst_repeat_path {
		uint32_t order;   /* of the packet sent last */
		uint32_t reached; /* of the packet sent last among those that have arrived */
		uint32_t again;   /* of the packet sent again last */
		uint32_t before;  /* of that sent last before the probe */
	} path[KARST_SPRAY_MAX];
};

enum karst_repeat_state { KARST_REPEAT_OUT, KARST_REPEAT_HAVE, KARST_REPEAT_LOST };
#define KARST_REPEAT_PATH 4u
static_assert(KARST_SPRAY_MAX <= 1u << (8 - KARST_REPEAT_PATH), "four bits of a state");

/* The oldest packet that goes again alone (X6, X10): it is to, and it has. */
enum karst_repeat_probe { KARST_REPEAT_NO_PROBE, KARST_REPEAT_PROBE_DUE, KARST_REPEAT_PROBE_OUT };

static inline enum karst_repeat_state
karst_repeat_state(const struct karst_repeat *p, uint32_t at)
{
	return p->state[at] & ((1u << KARST_REPEAT_PATH) - 1);
}

/** NULL: not agreed. */
static inline struct karst_repeat *
karst_repeat_of(const struct karst_core_qp *qp)
{
	return karst_unlikely(qp->flags & KARST_QPF_COPIES) ? qp->repeat : NULL;
}

/** Was @pkt held when it was delivered just now?  Asked once. */
static inline bool
karst_repeat_is_fresh(struct karst_repeat *p, const struct karst_pkt *pkt)
{
	bool fresh = p->fresh == pkt;

	p->fresh = NULL;
	return fresh;
}

/** Makes it in @mem, of zeros, at the start of a connection. */
void karst_repeat_open(
	const struct karst_core *core, struct karst_core_qp *qp, void *mem, uint32_t window);
/** The first PSN of requests is known. */
void karst_repeat_begin(struct karst_core_qp *qp);
/** The connection is over: nothing is held, and the memory is the caller's. */
void karst_repeat_close(struct karst_core *core, struct karst_core_qp *qp);

/* --- responder (repeat_hold.c) --- */

/** A request @ahead PSNs after the expected one: held, or dropped (X4). */
void karst_repeat_ahead(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt, uint32_t ahead);
/** The expected request, where something may be held: it, and what follows it (X5). */
void karst_repeat_expected(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt);
/** What is held for the expected PSN, and what follows it. */
void karst_repeat_drain(struct karst_core *core, struct karst_core_qp *qp);
/** Has an acknowledgement to say what is held, or that something could not be (X7)? */
static inline bool
karst_repeat_says(const struct karst_core_qp *qp)
{
	return qp->repeat->nheld != 0 || qp->rsp.wait == KARST_WAIT_HELD;
}

/** PSNs from @psn to before @end of the saved READ or atomic @which are asked for again (X11). */
void karst_repeat_answer(struct karst_core *core, struct karst_core_qp *qp, uint32_t which,
	uint32_t psn, uint32_t end);
/** The part to answer next; NULL: there is none. */
struct karst_repeat_part *karst_repeat_part(struct karst_core_qp *qp);

/** Frees all that is held (X6), and answers nothing again. */
void karst_repeat_drop_held(struct karst_core *core, struct karst_core_qp *qp);
/** Writes the bitmap of a SACK (X7).  @return its end. */
uint8_t *karst_repeat_put_bitmap(struct karst_core_qp *qp, uint8_t *p);

/* --- requester (repeat.c) --- */

/** A SACK: takes its bits, and finds what is lost (X8, X9).  What it acknowledges besides is the
 *  caller's matter.  @return false: it cannot be, and was dropped; nothing has changed. */
bool karst_repeat_heard(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt);
/** Something was acknowledged: it may have been sent again behind what is still missing (X9). */
void karst_repeat_acked(struct karst_core *core, struct karst_core_qp *qp);
/** Of all that is outstanding only the oldest goes again (X10). */
void karst_repeat_oldest(struct karst_core_qp *qp);
/** The peer has executed what is before PSN @before, which is not acknowledged for want of an
 *  answer: nobody waits for it, as nobody does for what is held (X2). */
void karst_repeat_executed(struct karst_core_qp *qp, uint32_t before);
/** READs and atomics whose answers were dropped, because they came behind one that is lost. */
void karst_repeat_answers(struct karst_core_qp *qp);
/** Packets that are under way for all that is known, those of answers counted. */
uint32_t karst_repeat_under_way(struct karst_core_qp *qp);
/** How many new packets may go out (X2), or a lower bound above 1; 1: this one has to ask for an
 *  acknowledgement. */
uint32_t karst_repeat_room_left(const struct karst_core *core, struct karst_core_qp *qp);

static inline uint32_t
karst_repeat_room(const struct karst_core *core, struct karst_core_qp *qp)
{
	const struct karst_requester *r = &qp->req;
	uint32_t out = karst_psn_distance(r->snd_psn, r->una_psn);

	/* so much that what is under way need not be known exactly */
	if (karst_likely(out + 1 < karst_min_u32(r->window, qp->repeat->window)))
		return 2;
	return karst_repeat_room_left(core, qp);
}

/** The request packet at the send cursor, whose BTH is at @bth, leaves by its path: the source port
 *  of the template is that of path 0 (X12). */
static inline void
karst_repeat_spray(const struct karst_core_qp *qp, uint8_t *bth)
{
	const struct karst_repeat *p = karst_repeat_of(qp);
	const struct karst_requester *r = &qp->req;

	if (karst_mutant(KARST_MUTANT_SPRAY_UNASKED) && p == NULL)
		bth[1 - (int)KARST_UDP_LEN] ^= (uint8_t)(r->snd_psn & 1);
	if (karst_unlikely(p != NULL && p->paths != 0))
		bth[1 - (int)KARST_UDP_LEN] ^=
			r->snd_psn == r->nxt_psn ? (uint8_t)(r->snd_psn & p->paths) : p->via;
}

/** Sends again what is lost.  @return 0: new packets may follow; 1: come back; -1: something will
 *  bring us back. */
int karst_repeat_tx(struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b,
	uint32_t limit);

/* --- what these need of requester_build.c and responder.c --- */

/** Builds packet @psn of request @idx once more, asking for an acknowledgement.  @return as
 *  karst_repeat_tx(), and 2: the request has failed. */
int karst_requester_repeat(struct karst_core *core, struct karst_core_qp *qp, uint32_t idx,
	uint32_t psn, struct karst_tx_burst *b);
/** Executes a request whose PSN is the expected one. */
void karst_responder_execute(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt, uint32_t opf);
/** The expected PSN has come: what an earlier NAK asked for is here. */
void karst_responder_end_wait(struct karst_responder *r);
/** An acknowledgement is owed. */
void karst_responder_owe_ack(struct karst_core *core, struct karst_core_qp *qp);

#endif /* KARST_QP_REPEAT_H */
