/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Selective repeat between two karst ends (rules X): the state of a queue pair that has agreed to
 * it, in memory that its modify call supplied.  Other queue pairs have a NULL pointer.  Their
 * KARST_QPF_COPIES, which each code path that differs tests, is 0 unless a copy is under way.
 *
 *   repeat_hold.c  the responder: requests ahead of the expected PSN are held; responder.c executes
 *                  them in order as usual
 *   repeat.c       the requester: what the peer holds, what is lost, what is sent again
 *
 * Both index by PSN modulo the window.
 */
#ifndef KARST_QP_REPEAT_H
#define KARST_QP_REPEAT_H

#include "qp_priv.h"

/* Limit of the parts of READs that a peer has requested again and that are not answered yet. */
#define KARST_REPEAT_PARTS 32u

struct karst_repeat_part {
	uint32_t which; /* number of its saved READ or atomic */
	uint32_t beg;   /* its first PSN */
	uint32_t psn;   /* the next PSN to answer */
	uint32_t end;   /* the PSN after the last */
	/* the PSN after the last that was requested, which may be answered anyway */
	uint32_t last;
};

struct karst_repeat {
	uint32_t window; /* PSNs; a power of two */

	/* responder */
	uint32_t nheld;
	uint32_t top_psn;  /* the highest held PSN, if there is one */
	uint32_t unsaid;   /* frames held since the last SACK */
	uint32_t ndropped; /* bits that are set in @dropped */
	/* bits: PSNs that were dropped for lack of room and are still missing */
	uint8_t *dropped;
	bool lacks;                    /* the next SACK reports such a drop */
	bool plain;                    /* the ACK to send is for a duplicate */
	const struct karst_pkt *fresh; /* held, while its driver is still delivering it */
	struct karst_pkt **held;
	uint32_t part; /* the oldest part, modulo their number */
	uint32_t nparts;
	struct karst_repeat_part parts[KARST_REPEAT_PARTS];

	/* requester: state of the PSNs from base_psn on */
	uint32_t base_psn;  /* una_psn at the last update */
	uint32_t noted_psn; /* packets before it have a sequence number */
	uint32_t noted_idx; /* the request that noted_psn is in */
	/* request packets sent and not acknowledged; READs have fewer packets than PSNs */
	uint32_t npackets;
	uint32_t nhave; /* packets of these that the peer has */
	uint32_t nlost; /* packets of these that are lost and not sent again yet */
	uint32_t again; /* bit set of the paths with packets sent again that have not arrived */
	/* sequence number, on its path, of the packet with that PSN; 0: there is none */
	uint32_t *sent;
	/* state of that packet: enum karst_repeat_state; from bit 4 on its path */
	uint8_t *state;
	bool news; /* a packet has arrived since the last search for losses */
	/* X12 */
	uint8_t paths; /* number of paths minus one: a mask */
	uint8_t via;   /* path of the packet that is being sent again */
	uint8_t probe; /* enum karst_repeat_probe */
	uint8_t probe_path;
	uint32_t probe_psn;
	uint32_t probe_order;
	struct karst_repeat_path {
		uint32_t order;   /* sequence number of the newest packet */
		uint32_t reached; /* highest sequence number that has arrived */
		uint32_t again;   /* sequence number of the newest packet that was sent again */
		uint32_t before;  /* sequence number of the last packet before the probe */
	} path[KARST_SPRAY_MAX];
};

enum karst_repeat_state { KARST_REPEAT_OUT, KARST_REPEAT_HAVE, KARST_REPEAT_LOST };
#define KARST_REPEAT_PATH 4u
static_assert(KARST_SPRAY_MAX <= 1u << (8 - KARST_REPEAT_PATH), "four bits of a state");

/* State of the oldest packet that is sent again alone (X6, X10): to be sent, or sent. */
enum karst_repeat_probe { KARST_REPEAT_NO_PROBE, KARST_REPEAT_PROBE_DUE, KARST_REPEAT_PROBE_OUT };

static inline enum karst_repeat_state
karst_repeat_state(const struct karst_repeat *p, uint32_t at)
{
	return p->state[at] & ((1u << KARST_REPEAT_PATH) - 1);
}

/** NULL: selective repeat was not agreed to. */
static inline struct karst_repeat *
karst_repeat_of(const struct karst_core_qp *qp)
{
	return karst_unlikely(qp->flags & KARST_QPF_COPIES) ? qp->repeat : NULL;
}

/** Whether @pkt was held when it was delivered just now.  Call it once only. */
static inline bool
karst_repeat_is_fresh(struct karst_repeat *p, const struct karst_pkt *pkt)
{
	bool fresh = p->fresh == pkt;

	p->fresh = NULL;
	return fresh;
}

/** Initialises the state in @mem, which is zeroed memory, at the start of a connection. */
void karst_repeat_open(
	const struct karst_core *core, struct karst_core_qp *qp, void *mem, uint32_t window);
/** The first PSN of requests is known: sets it. */
void karst_repeat_begin(struct karst_core_qp *qp);
/** The connection is over: frees what is held; the memory is the caller's again. */
void karst_repeat_close(struct karst_core *core, struct karst_core_qp *qp);

/* --- responder (repeat_hold.c) --- */

/** Holds or drops a request that is @ahead PSNs after the expected one (X4). */
void karst_repeat_ahead(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt, uint32_t ahead);
/** Records that there was no room for a request with PSN @psn; tell_dropped() reports it when it is
 *  the expected one (X4). */
void karst_repeat_missed(struct karst_core_qp *qp, uint32_t psn);
/** Reports that there was no room for a request, once until the expected PSN has arrived, and again
 *  if it was the @expected one (X4). */
void karst_repeat_lacks(struct karst_core *core, struct karst_core_qp *qp, bool expected);
/** Executes the expected request, and the held requests that follow it (X5). */
void karst_repeat_expected(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt);
/** Executes what is held for the expected PSN, and what follows it. */
void karst_repeat_drain(struct karst_core *core, struct karst_core_qp *qp);
/** Whether an acknowledgement has to report what is held, or what could not be held (X7). */
static inline bool
karst_repeat_says(const struct karst_core_qp *qp)
{
	return qp->repeat->nheld != 0 || qp->rsp.wait == KARST_WAIT_HELD;
}

/** The peer requests the PSNs from @psn to before @end of the saved READ or atomic @which again
 *  (X11). */
void karst_repeat_answer(struct karst_core *core, struct karst_core_qp *qp, uint32_t which,
	uint32_t psn, uint32_t end);
/** The next part to answer; NULL: there is none. */
struct karst_repeat_part *karst_repeat_part(struct karst_core_qp *qp);

/** Frees all that is held (X6), and discards the parts to answer again. */
void karst_repeat_drop_held(struct karst_core *core, struct karst_core_qp *qp);
/** Writes the bitmap of a SACK (X7).  @return its end. */
uint8_t *karst_repeat_put_bitmap(struct karst_core_qp *qp, uint8_t *p);

/* --- requester (repeat.c) --- */

/** Takes the bits of a SACK, and finds what is lost (X8, X9).  The caller processes what the SACK
 *  acknowledges.  @return false: it is invalid, and was dropped; nothing has changed. */
bool karst_repeat_heard(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt);
/** Something was acknowledged: it may have been sent again after what is still missing (X9). */
void karst_repeat_acked(struct karst_core *core, struct karst_core_qp *qp);
/** Marks the oldest packet, of all outstanding ones, to be sent again (X10). */
void karst_repeat_oldest(struct karst_core_qp *qp);
/** The peer has executed what is before PSN @before, which cannot be acknowledged because an answer
 *  is missing: these packets are not under way, as those that the peer holds (X2). */
void karst_repeat_executed(struct karst_core_qp *qp, uint32_t before);
/** Marks READs and atomics whose answers were dropped because they arrived after a lost one. */
void karst_repeat_answers(struct karst_core_qp *qp);
/** The packets that are taken to be under way, including those of answers. */
uint32_t karst_repeat_under_way(struct karst_core_qp *qp);
/** How many new packets may be sent (X2), or a lower bound above 1; 1: this packet has to ask for
 *  an acknowledgement. */
uint32_t karst_repeat_room_left(const struct karst_core *core, struct karst_core_qp *qp);

static inline uint32_t
karst_repeat_room(const struct karst_core *core, struct karst_core_qp *qp)
{
	const struct karst_requester *r = &qp->req;
	uint32_t out = karst_psn_distance(r->snd_psn, r->una_psn);

	/* there is so much room that the exact number under way does not matter */
	if (karst_likely(out + 1 < karst_min_u32(r->window, qp->repeat->window)))
		return 2;
	return karst_repeat_room_left(core, qp);
}

/** The request packet at the send cursor, whose BTH is at @bth, is sent: selects its path.  The
 *  source port of the template is that of path 0 (X12). */
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

/** Sends lost packets again.  @return 0: new packets may follow; 1: call again; -1: an event will
 *  activate the queue pair. */
int karst_repeat_tx(struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b,
	uint32_t limit);

/* --- functions of requester_build.c and responder.c for these --- */

/** Builds packet @psn of request @idx again, with a request for an acknowledgement.
 *  @return as karst_repeat_tx(), and 2: the request has failed. */
int karst_requester_repeat(struct karst_core *core, struct karst_core_qp *qp, uint32_t idx,
	uint32_t psn, struct karst_tx_burst *b);
/** Executes a request whose PSN is the expected one. */
void karst_responder_execute(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt, uint32_t opf);
/** The expected PSN has arrived: what an earlier NAK requested is here. */
void karst_responder_end_wait(struct karst_core *core, struct karst_core_qp *qp);
/** Schedules an acknowledgement. */
void karst_responder_owe_ack(struct karst_core *core, struct karst_core_qp *qp);

#endif /* KARST_QP_REPEAT_H */
