/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Selective repeat at the requester (X8 to X10): the send cursor never goes back.  Only lost
 * packets are sent again, before new ones.
 *
 * Packets are numbered in the order in which they were last sent.  Each outstanding packet is in
 * one of three states: under way, received according to the peer, or lost.  It is lost if three
 * packets that were sent after it have arrived, or the last of all that were sent (X9).  So a
 * packet that was sent again is lost again when others that were sent after it arrive, and never in
 * less than a round trip.  This needs no clock.
 *
 * If packets are sprayed over several paths (X12), one overtakes another without a loss.  On one
 * path they stay in order, so each path has its own sequence numbers, and a packet is compared only
 * with those of its path.  The path of a packet that is sent for the first time follows from its
 * PSN, so it need not be recorded; a packet that is sent again takes the path after the one on
 * which it was lost.  If the oldest packet is sent again alone (X10), this shows too little:
 * nothing else is sent, and its arrival says something about its own path only.  But it is sent
 * long after everything else, so what has not arrived when it has is lost, on any path.
 *
 * New packets are recorded only when the state is examined (note_sent()), before any other packet
 * is sent again: so sending them costs nothing, and their order is that of their PSNs.
 * Acknowledged packets are removed at the same time (forget_acked()).  A READ is one packet, with
 * its first PSN; gaps.c handles the loss of its responses.
 */
#include "repeat.h"

#include "migrate.h"
#include "pacer.h"
#include "wqe.h"

/* X9: number of later packets whose arrival shows that a packet is lost. */
#define OVERTAKEN 3

/* Limit of PSNs that are sent and not recorded. */
#define NOTE_PSNS (1u << 16)

/* The range of windows that can be agreed to. */
#define WINDOW_MIN 64u
#define WINDOW_MAX 1024u

static inline uint32_t
at_of(const struct karst_repeat *p, uint32_t psn)
{
	return psn & (p->window - 1);
}

static inline struct karst_repeat_path *
path_of(struct karst_repeat *p, uint32_t at)
{
	return &p->path[p->state[at] >> KARST_REPEAT_PATH];
}

static inline void
has_arrived(struct karst_repeat *p, uint32_t at)
{
	struct karst_repeat_path *path = path_of(p, at);

	if ((int32_t)(p->sent[at] - path->reached) <= 0)
		return;
	path->reached = p->sent[at];
	p->news = true;
}

/* --- life --- */

size_t
karst_repeat_bytes(uint32_t window)
{
	if (!karst_is_pow2(window) || window < WINDOW_MIN || window > WINDOW_MAX)
		return 0;
	return sizeof(struct karst_repeat) +
		window * (sizeof(struct karst_pkt *) + sizeof(uint32_t) + sizeof(uint8_t)) +
		window / 8;
}

void
karst_repeat_open(
	const struct karst_core *core, struct karst_core_qp *qp, void *mem, uint32_t window)
{
	struct karst_repeat *p = mem;

	memset(p, 0, karst_repeat_bytes(window));
	p->window = window;
	p->paths = core->spray_mask;
	p->held = (struct karst_pkt **)(p + 1);
	p->sent = (uint32_t *)(p->held + window);
	p->state = (uint8_t *)(p->sent + window);
	p->dropped = p->state + window;
	qp->repeat = p;
	qp->flags |= KARST_QPF_COPIES;
}

void
karst_repeat_begin(struct karst_core_qp *qp)
{
	struct karst_repeat *p = qp->repeat;

	p->base_psn = p->noted_psn = qp->req.una_psn;
	p->noted_idx = qp->req.una_idx;
}

void
karst_repeat_close(struct karst_core *core, struct karst_core_qp *qp)
{
	if (qp->repeat == NULL)
		return;
	karst_repeat_drop_held(core, qp);
	qp->repeat = NULL;
	karst_copies_set_flag(qp);
}

/* --- what is outstanding --- */

static void
set_state(struct karst_repeat *p, uint32_t at, enum karst_repeat_state to)
{
	enum karst_repeat_state from = karst_repeat_state(p, at);

	p->nhave += (to == KARST_REPEAT_HAVE) - (from == KARST_REPEAT_HAVE);
	p->nlost += (to == KARST_REPEAT_LOST) - (from == KARST_REPEAT_LOST);
	p->state[at] = (uint8_t)((p->state[at] ^ from) | to);
}

static uint32_t
next_order(struct karst_repeat_path *path)
{
	if (++path->order == 0)
		path->order = 1;
	return path->order;
}

/* Records that the packet is sent now, on @path. */
static void
leaves_by(struct karst_repeat *p, uint32_t at, uint32_t path)
{
	p->state[at] = (uint8_t)(path << KARST_REPEAT_PATH | karst_repeat_state(p, at));
	p->sent[at] = next_order(&p->path[path]);
}

static void
note(struct karst_repeat *p, uint32_t psn)
{
	uint32_t at = at_of(p, psn);

	if (p->sent[at] == 0)
		p->npackets++;
	leaves_by(p, at, psn & p->paths);
}

static void
forget_acked(struct karst_repeat *p, const struct karst_requester *r)
{
	uint32_t n = karst_min_u32(karst_psn_distance(r->una_psn, p->base_psn), p->window);
	uint32_t psn = p->base_psn;

	for (; p->npackets != 0 && n > 0; n--, psn = karst_psn_add(psn, 1)) {
		uint32_t at = at_of(p, psn);

		if (p->sent[at] == 0)
			continue;
		has_arrived(p, at);
		if (karst_unlikely(karst_repeat_state(p, at) != KARST_REPEAT_OUT))
			set_state(p, at, KARST_REPEAT_OUT);
		p->sent[at] = 0;
		p->npackets--;
	}
	p->base_psn = r->una_psn;
}

/* Records the packets of a request from PSN @from to before @end; both are in the request. */
static void
note_request(struct karst_repeat *p, const struct karst_sq_slot *slot, uint32_t from, uint32_t end)
{
	if (slot->flags & KARST_SLOT_RD_ATOMIC) {
		if (from == slot->psn && from != end)
			note(p, from);
		return;
	}
	for (; from != end; from = karst_psn_add(from, 1))
		note(p, from);
}

/* All packets that were sent have arrived, and some of them are not recorded. */
static void
all_arrived(struct karst_repeat *p)
{
	uint32_t i;

	for (i = 0; i <= p->paths; i++)
		p->path[i].reached = next_order(&p->path[i]);
	p->news = true;
}

static void
note_sent(struct karst_repeat *p, const struct karst_core_qp *qp)
{
	const struct karst_requester *r = &qp->req;
	uint32_t idx = p->noted_idx, out = karst_psn_distance(r->nxt_psn, p->noted_psn);

	/* what was acknowledged since then was all that had been sent */
	if (karst_psn_distance(r->una_psn, p->noted_psn) <= out && r->una_psn != p->noted_psn) {
		p->noted_psn = r->una_psn;
		all_arrived(p);
	}
	if ((int32_t)(idx - r->una_idx) < 0)
		idx = r->una_idx;
	for (; p->noted_psn != r->nxt_psn; idx++) {
		const struct karst_sq_slot *slot = &r->slots[idx & qp->sq.mask];
		uint32_t left = slot->npsn - karst_psn_distance(p->noted_psn, slot->psn), end;

		if (slot->npsn == 0 || karst_psn_distance(p->noted_psn, slot->psn) >= slot->npsn)
			continue;
		end = karst_psn_add(p->noted_psn,
			karst_min_u32(left, karst_psn_distance(r->nxt_psn, p->noted_psn)));
		note_request(p, slot, p->noted_psn, end);
		p->noted_psn = end;
		if (end != karst_psn_add(slot->psn, slot->npsn))
			break;
	}
	p->noted_idx = idx;
}

static void
repeat_look(struct karst_repeat *p, const struct karst_core_qp *qp)
{
	if (p->base_psn != qp->req.una_psn)
		forget_acked(p, &qp->req);
	if (p->noted_psn != qp->req.nxt_psn)
		note_sent(p, qp);
}

/* The packets that are taken to be under way. */
static inline uint32_t
in_flight(const struct karst_repeat *p)
{
	return p->npackets - p->nhave - p->nlost;
}

uint32_t
karst_repeat_under_way(struct karst_core_qp *qp)
{
	const struct karst_requester *r = &qp->req;
	struct karst_repeat *p = qp->repeat;
	uint32_t out = karst_psn_distance(r->snd_psn, r->una_psn);

	if (p->nhave + p->nlost == 0)
		return out;
	repeat_look(p, qp);
	return karst_min_u32(out, in_flight(p) + r->rd_psns);
}

uint32_t
karst_repeat_room_left(const struct karst_core *core, struct karst_core_qp *qp)
{
	const struct karst_requester *r = &qp->req;
	struct karst_repeat *p = qp->repeat;
	uint32_t out = karst_psn_distance(r->snd_psn, r->una_psn), most, room;

	if (out >= p->window)
		return 0;
	if (p->nhave + p->nlost == 0) {
		/* nothing is missing: the same as without selective repeat, also for requests for
		 * an acknowledgement (Q2) */
		most = out - r->rd_psns;
		if (most >= r->window)
			return 0;
		room = r->window == core->window_packets ? 2 : r->window - most;
		/* the last packet of the agreed window asks for an acknowledgement, too */
		return karst_min_u32(room, p->window - out);
	}
	repeat_look(p, qp);
	most = r->window > in_flight(p) ? r->window - in_flight(p) : 0;
	return karst_min_u32(most, p->window - out);
}

/* --- losses --- */

static void
lose(struct karst_repeat *p, uint32_t psn)
{
	uint32_t at = at_of(p, psn);

	/* the rest of a READ that was answered in part */
	if (p->sent[at] == 0)
		note(p, psn);
	set_state(p, at, KARST_REPEAT_LOST);
}

void
karst_repeat_oldest(struct karst_core_qp *qp)
{
	const struct karst_requester *r = &qp->req;
	struct karst_repeat *p = qp->repeat;

	repeat_look(p, qp);
	if (r->una_psn == r->nxt_psn)
		return;
	lose(p, r->una_psn);
	p->probe = KARST_REPEAT_PROBE_DUE;
	p->probe_psn = r->una_psn;
}

void
karst_repeat_executed(struct karst_core_qp *qp, uint32_t before)
{
	const struct karst_requester *r = &qp->req;
	struct karst_repeat *p = qp->repeat;
	uint32_t psn = r->una_psn, n;

	repeat_look(p, qp);
	n = karst_min_u32(karst_psn_distance(before, psn), p->window);
	for (; n > 0; n--, psn = karst_psn_add(psn, 1)) {
		uint32_t at = at_of(p, psn);

		if (p->sent[at] == 0 || karst_repeat_state(p, at) != KARST_REPEAT_OUT)
			continue;
		has_arrived(p, at);
		set_state(p, at, KARST_REPEAT_HAVE);
	}
}

void
karst_repeat_answers(struct karst_core_qp *qp)
{
	const struct karst_requester *r = &qp->req;
	struct karst_repeat *p = qp->repeat;
	uint32_t i;

	repeat_look(p, qp);
	for (i = r->una_idx; i != r->snd_idx; i++) {
		const struct karst_sq_slot *slot = &r->slots[i & qp->sq.mask];

		if ((slot->flags & KARST_SLOT_RD_ATOMIC) && !(slot->flags & KARST_SLOT_DONE))
			lose(p,
				karst_psn_distance(r->una_psn, slot->psn) < slot->npsn ? r->una_psn
										       : slot->psn);
	}
}

/* Whether the probe has arrived, or a packet sent after it on its path.  Call it once only. */
static bool
probe_arrived(struct karst_repeat *p)
{
	if (p->probe != KARST_REPEAT_PROBE_OUT ||
		(int32_t)(p->path[p->probe_path].reached - p->probe_order) < 0)
		return false;
	p->probe = KARST_REPEAT_NO_PROBE;
	return p->paths != 0;
}

/* X9, X12: whether packets sent later have overtaken this one, which is on @path.  @probed: the
 * probe has arrived, so that it counts too. */
static bool
overtaken(const struct karst_repeat *p, const struct karst_repeat_path *path, uint32_t at,
	bool probed)
{
	uint32_t sent = p->sent[at];

	/* there is no later packet that could still arrive and overtake it */
	if (path->reached == path->order)
		return sent != path->order;
	return (int32_t)(path->reached - sent) >= OVERTAKEN ||
		(probed && (int32_t)(path->before - sent) >= 0);
}

static void
find_lost(struct karst_core *core, struct karst_core_qp *qp)
{
	const struct karst_requester *r = &qp->req;
	struct karst_repeat *p = qp->repeat;
	uint32_t n = karst_min_u32(karst_psn_distance(r->nxt_psn, r->una_psn), p->window), i,
		 lost = p->nlost;
	bool probed = probe_arrived(p);

	p->news = false;
	for (i = 0; i < n; i++) {
		uint32_t at = at_of(p, r->una_psn + i);

		if (p->sent[at] == 0 || karst_repeat_state(p, at) == KARST_REPEAT_LOST)
			continue;
		if (karst_repeat_state(p, at) == KARST_REPEAT_HAVE &&
			!karst_mutant(KARST_MUTANT_BIT_FORGOTTEN))
			continue;
		if (overtaken(p, path_of(p, at), at, probed))
			set_state(p, at, KARST_REPEAT_LOST);
	}
	for (i = 0; p->again >> i != 0; i++)
		if ((p->again >> i & 1) && (int32_t)(p->path[i].reached - p->path[i].again) >= 0)
			p->again &= ~(1u << i);
	if (p->nlost > lost)
		karst_pacer_lost(core, qp);
	if (p->nlost != 0)
		karst_core_activate(core, qp);
}

void
karst_repeat_acked(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_requester *r = &qp->req;
	struct karst_repeat *p = qp->repeat;
	bool left = karst_migrate_left(qp);

	if ((p->again == 0 && !(r->flags & KARST_REQ_UNSENT) && !left) || !karst_qp_may_send(qp))
		return;
	repeat_look(p, qp);
	if (p->news)
		find_lost(core, qp);
	if (p->nlost != 0 || (r->flags & KARST_REQ_RNR_WAIT))
		return;
	if (left) {
		/* once for each: its answer acknowledges more, or names it */
		if (p->probe_psn != r->una_psn) {
			karst_repeat_oldest(qp);
			karst_core_activate(core, qp);
		}
	} else if (r->flags & KARST_REQ_UNSENT) {
		/* what was to be sent again has arrived after all: the acknowledgement timer counts
		 * for the rest */
		karst_requester_left(core, qp);
		karst_requester_arm(core, qp);
	}
}

/* --- received SACKs --- */

/* Whether each bit of this bitmap, the first of which is for @base, may be set.  Only for packets
 * that were sent is that possible. */
static bool
bits_possible(const struct karst_repeat *p, const struct karst_requester *r, const uint8_t *map,
	uint32_t n, uint32_t base)
{
	uint32_t first = karst_psn_distance(base, r->una_psn),
		 out = karst_psn_distance(r->nxt_psn, r->una_psn), i;

	for (i = 1; i < n; i++) {
		if ((map[i / 8] >> i % 8 & 1) == 0)
			continue;
		if (first + i >= out || first + i >= p->window || p->sent[at_of(p, base + i)] == 0)
			return false;
	}
	return true;
}

/* Takes the bits of the bitmap except the first, which has another meaning: the expected packet has
 * not been executed, and has to be sent again if the peer was not ready for it (X6). */
static void
take_bits(struct karst_repeat *p, const uint8_t *map, uint32_t n, uint32_t base)
{
	uint32_t i;

	for (i = 1; i < n; i++) {
		uint32_t at = at_of(p, base + i);

		if ((map[i / 8] >> i % 8 & 1) == 0)
			continue;
		has_arrived(p, at);
		set_state(p, at, KARST_REPEAT_HAVE);
	}
}

/* X4: the peer had no room for a packet, so the expected one is sent again, once in a round: when
 * it has arrived, it has overtaken what else is missing.  This is as for a sequence NAK (Q4). */
static void
make_room(struct karst_core *core, struct karst_core_qp *qp, uint32_t base)
{
	struct karst_requester *r = &qp->req;
	struct karst_repeat *p = qp->repeat;
	uint32_t at = at_of(p, base);

	if (base == r->nxt_psn || karst_psn_distance(base, r->una_psn) >= p->window ||
		p->sent[at] == 0 || karst_repeat_state(p, at) != KARST_REPEAT_OUT ||
		(base == r->una_psn && (r->flags & KARST_REQ_ROUND)))
		return;
	lose(p, base);
	r->flags |= KARST_REQ_ROUND;
	karst_core_activate(core, qp);
}

/* What is before @base has arrived.  A missing answer is requested separately (X11): the request
 * itself is not lost, even if later packets have overtaken it. */
static void
take_before(struct karst_repeat *p, const struct karst_requester *r, uint32_t base)
{
	uint32_t psn = r->una_psn, n = karst_min_u32(karst_psn_distance(base, psn), p->window);

	for (; n > 0; n--, psn = karst_psn_add(psn, 1)) {
		uint32_t at = at_of(p, psn);

		if (p->sent[at] == 0)
			continue;
		has_arrived(p, at);
		if (karst_repeat_state(p, at) == KARST_REPEAT_OUT)
			set_state(p, at, KARST_REPEAT_HAVE);
	}
}

bool
karst_repeat_heard(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt)
{
	const struct karst_requester *r = &qp->req;
	const uint8_t *map = pkt->data + pkt->pay_off;
	uint32_t base = karst_psn_add(pkt->psn, 1), n = pkt->pay_len * 8u;
	struct karst_repeat *p = qp->repeat;

	repeat_look(p, qp);
	if (karst_psn_distance(base, r->una_psn) > karst_psn_distance(r->nxt_psn, r->una_psn)) {
		karst_drop_pkt(core, pkt, KARST_DROP_GHOST_ACK);
		return false;
	}
	if ((karst_aeth_syndrome(pkt->aeth) & KARST_AETH_TYPE_MASK) != KARST_AETH_ACK || n == 0 ||
		n % 32 != 0 || n > p->window || !bits_possible(p, r, map, n, base)) {
		karst_drop_pkt(core, pkt, KARST_DROP_SACK);
		return false;
	}
	karst_count(&core->counters, KARST_CTR_SACK_RECEIVED);
	take_before(p, r, base);
	take_bits(p, map, n, base);
	if (map[0] & 1)
		make_room(core, qp, base);
	find_lost(core, qp);
	return true;
}

/* --- sending again --- */

/* The packet was sent again, over p->via. */
static void
left_again(struct karst_repeat *p, uint32_t at, uint32_t psn)
{
	bool probe = p->probe == KARST_REPEAT_PROBE_DUE && psn == p->probe_psn;
	uint32_t i;

	for (i = 0; probe && i <= p->paths; i++)
		p->path[i].before = p->path[i].order;
	leaves_by(p, at, p->via);
	p->path[p->via].again = p->sent[at];
	p->again |= 1u << p->via;
	if (!probe)
		return;
	p->probe = KARST_REPEAT_PROBE_OUT;
	p->probe_path = p->via;
	p->probe_order = p->sent[at];
}

int
karst_repeat_tx(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b, uint32_t limit)
{
	const struct karst_requester *r = &qp->req;
	struct karst_repeat *p = qp->repeat;
	bool unsent = (r->flags & KARST_REQ_UNSENT) != 0;
	uint32_t idx, psn, left, window;
	int step;

	/* new packets are recorded when something is missing, but before their PSNs wrap around */
	if (karst_likely(p->nlost == 0 && karst_psn_distance(r->nxt_psn, p->noted_psn) < NOTE_PSNS))
		return 0;
	repeat_look(p, qp);
	idx = r->una_idx;
	psn = r->una_psn;
	window = karst_min_u32(r->window, karst_pacer_window(core, qp));
	for (left = p->window; p->nlost != 0 && left > 0; left--, psn = karst_psn_add(psn, 1)) {
		const struct karst_sq_slot *slot = &r->slots[idx & qp->sq.mask];
		uint32_t at = at_of(p, psn);

		if (karst_repeat_state(p, at) != KARST_REPEAT_LOST)
			continue;
		/* the oldest is sent whatever may be under way, since all of that may be lost; and
		 * so is the first of a round, since no timer runs before that was sent */
		if (psn != r->una_psn && in_flight(p) >= window && !unsent)
			return 0;
		if (b->bytes >= limit)
			return 1;
		if (karst_pacer_holds(core, qp))
			return -1;
		for (; slot->npsn == 0 || karst_psn_distance(psn, slot->psn) >= slot->npsn;
			slot = &r->slots[++idx & qp->sq.mask])
			;
		/* a request that cannot be sent again fails in order; those after it do not
		 * matter */
		if ((r->flags & KARST_REQ_FAILED) && (int32_t)(idx - r->fail_idx) >= 0)
			return 0;
		if (slot->flags & KARST_SLOT_DONE) {
			/* its answer has arrived before those of earlier requests */
			set_state(p, at, KARST_REPEAT_HAVE);
			continue;
		}
		p->via = (uint8_t)(((p->state[at] >> KARST_REPEAT_PATH) + 1) & p->paths);
		step = karst_requester_repeat(core, qp, idx, psn, b);
		if (step == 1 || step == -1)
			return step;
		if (!karst_qp_may_send(qp))
			return -1;
		set_state(p, at, KARST_REPEAT_OUT);
		unsent = false;
		if (step == 0)
			left_again(p, at, psn);
	}
	return 0;
}
