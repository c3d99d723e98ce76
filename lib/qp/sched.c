/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Deficit round robin on two levels: users take turns, and in a user's turn that user's queue pairs
 * do.
 *
 * A queue pair whose deficit is used up gets one more quantum when its turn comes.  It keeps its
 * turn until the quantum is spent or it has nothing to send.  A frame may exceed the quantum; the
 * next rounds make up for the excess.  Requests that make no frame are charged like small ones
 * (karst_tx_burst.charge).  If the burst is full first, the queue pair stays at the front for the
 * next burst.  The same rules apply to users: if other users are active, the turn of a user ends
 * after a quantum, and the queue pair that was sending is the first in that user's next turn.  A
 * visit that sends nothing, or finds that the port accepts nothing, is charged like one request
 * without a frame.
 *
 * The users who have active queue pairs form a circle, and s->turn points into it.  Only the user
 * at s->turn may be in the circle without an active queue pair: if the last one becomes inactive in
 * the user's own turn, the user stays until the next pick, or, as the only user, until another user
 * enters.  So a user who is the only active one does not enter and leave the circle with each
 * message.  Each visit then costs one comparison more, and no deficit of the user is kept.  A user
 * who leaves the circle keeps a negative deficit and loses a positive one.
 *
 * The list of a user is a chain of blocks.  The blocks belong to the core and suffice for all lists
 * together: only the first and the last block of a list may have free places.  Queue pairs are
 * moved from the list to ready[], a few at a time.  While one of them builds frames, those that are
 * next on the list are prefetched.  This needs arrays of pointers: in a list linked through the
 * queue pairs, each queue pair would have to be loaded before the next one is known.  A queue pair
 * knows its block, so that it can be found and removed, however long the list is; the last one of
 * the list takes its place.
 *
 * A queue pair whose port accepts nothing is parked at that port, and is put at the end of the list
 * when the port accepts frames again.  If it is in Error, it is flushed nevertheless.  A UD queue
 * pair is parked at the port of its next packet: no visit builds for two ports.
 *
 * A queue pair that wants a copy while the driver accepts none for it is not activated again, but
 * waits until the driver lets it try once more (karst_core_feed()): there may be so many that
 * nothing else would be done.  If others of its user wait, a queue pair that has used up its copy
 * waits behind them, since a user has only so many copies.
 *
 * A queue pair in ready[], or parked, may also be on the list, since karst_core_activate() tests
 * only one bit; it then gets an extra turn, in which it has nothing to send.
 */
#include "qp_priv.h"

#include "pacer.h"

/* Distance in ready[] from the queue pair that builds to the one whose send ring is prefetched. */
#define SEND_AHEAD 2u
/* Limit of a user's negative deficit, in quanta: so that there is a bound on what is repaid for
 * bytes that control calls sent out of turn (pick_first). */
#define DEBT_MAX 64

#define BLOCK_QPS 30u
/* block numbers this far apart have the same low bits, as kept in karst_core_qp */
#define BLOCK_EACH 65536u

struct karst_sched_block {
	struct karst_sched_block *next;
	struct karst_sched_block *prev;      /* valid except in the head block */
	struct karst_core_qp *qp[BLOCK_QPS]; /* NULL: free place */
};
static_assert(BLOCK_QPS >= KARST_SCHED_READY, "what is fetched ahead is in the first two blocks");

/* A list of n has at most n / BLOCK_QPS + 2 blocks, and an empty list may have one. */
static uint32_t
max_blocks(const struct karst_core_config *cfg, uint32_t sharers)
{
	return cfg->max_qps / BLOCK_QPS + 2 * sharers;
}

size_t
karst_sched_users_bytes(uint32_t sharers)
{
	return sharers * sizeof(struct karst_sched_user);
}

size_t
karst_sched_list_bytes(const struct karst_core_config *cfg, uint32_t sharers)
{
	return max_blocks(cfg, sharers) * sizeof(struct karst_sched_block);
}

void
karst_sched_init(struct karst_core *core, struct karst_sched_user *users, uint32_t sharers,
	void *lists, uint32_t quantum)
{
	struct karst_sched *s = &core->sched;

	s->users = users;
	s->nusers = sharers;
	s->blocks = lists;
	s->quantum = (int32_t)quantum;
	s->turn = users[0].next = users[0].prev = &users[0];
	TAILQ_INIT(&s->starving);
}

/* --- the circle of users --- */

/* Whether another user is in the circle that @u is in. */
static inline bool
user_has_company(const struct karst_sched_user *u)
{
	return karst_unlikely(u->next != u);
}

static inline bool
user_is_empty(const struct karst_sched_user *u)
{
	return (u->nready | u->nactive) == 0;
}

/* Gives the turn to @u, or, if @u still has a negative deficit, to the next user.  A deficit stands
 * for bytes sent before, so on average this is one step per turn. */
static void
user_begin(struct karst_sched *s, struct karst_sched_user *u)
{
	for (;; u = u->next) {
		if (u->deficit <= 0)
			u->deficit += s->quantum;
		if (u->deficit > 0)
			break;
	}
	s->turn = u;
}

/* Adds @u to the circle, last in order. */
static karst_noinline void
user_enter(struct karst_sched *s, struct karst_sched_user *u)
{
	u->next = s->turn;
	u->prev = s->turn->prev;
	u->prev->next = u;
	u->next->prev = u;
}

/* Removes @u, who has no active queue pair any more, from the circle. */
static void
user_leave(struct karst_sched *s, struct karst_sched_user *u)
{
	struct karst_sched_user *next = u->next;

	if (next == u)
		return;
	u->prev->next = next;
	next->prev = u->prev;
	u->next = NULL;
	if (u->deficit > 0)
		u->deficit = 0;
	if (s->resumes == u)
		s->resumes = next;
	if (s->turn == u)
		user_begin(s, next);
}

/* The user who has the turn, while others are in the circle, has spent @bytes in it. */
static karst_noinline void
user_charge(struct karst_sched *s, struct karst_sched_user *u, uint32_t bytes)
{
	u->deficit -= (int32_t)bytes;
	if (u->deficit < -DEBT_MAX * s->quantum)
		u->deficit = -DEBT_MAX * s->quantum;
	if (s->resumes != NULL) {
		s->turn = s->resumes;
		s->resumes = NULL;
	} else if (u->deficit <= 0) {
		user_begin(s, u->next);
	}
	s->out_of_turn = NULL;
	if (user_is_empty(u))
		user_leave(s, u);
}

/* --- the list of a user --- */

static karst_noinline void
list_grow(struct karst_sched *s, struct karst_sched_user *u)
{
	struct karst_sched_block *b = s->spare;

	if (b != NULL) {
		s->spare = b->next;
	} else {
		b = &s->blocks[s->nblocks++];
		memset(b, 0, sizeof(*b));
	}
	if (u->tail != NULL)
		u->tail->next = b;
	else
		u->head = b;
	b->prev = u->tail;
	u->tail = b;
	u->room = BLOCK_QPS;
	u->block = (uint16_t)((size_t)(b - s->blocks) % BLOCK_EACH);
}

/* Entry @i of the list, of the first KARST_SCHED_READY ones. */
static inline struct karst_core_qp *
list_at(const struct karst_sched_user *u, uint32_t i)
{
	uint32_t at = u->first + i;

	return at < BLOCK_QPS ? u->head->qp[at] : u->head->next->qp[at - BLOCK_QPS];
}

/* Removes the first @n entries, which are in the first block, and puts them into @out. */
static inline void
list_take(struct karst_sched *s, struct karst_sched_user *u, struct karst_core_qp **out, uint32_t n)
{
	struct karst_sched_block *b = u->head;
	uint32_t i;

	for (i = 0; i < n; i++) {
		out[i] = b->qp[u->first + i];
		out[i]->flags &= (uint8_t)~KARST_QPF_ACTIVE;
		b->qp[u->first + i] = NULL;
	}
	u->nfetched -= karst_min_u32(u->nfetched, n);
	u->nactive -= n;
	u->first += n;
	if (u->nactive == 0) {
		/* a short list stays in the same few cache lines */
		u->first = 0;
		u->room = BLOCK_QPS;
	} else if (u->first == BLOCK_QPS) {
		u->first = 0;
		u->head = b->next;
		b->next = s->spare;
		s->spare = b;
	}
}

/* The place of @qp on the list.  Several blocks may share the low bits of their numbers if there
 * are very many blocks; each of these is searched. */
static struct karst_core_qp **
list_place(const struct karst_sched *s, const struct karst_core_qp *qp)
{
	uint32_t n, at;

	for (n = qp->block; n < s->nblocks; n += BLOCK_EACH)
		for (at = 0; at < BLOCK_QPS; at++)
			if (s->blocks[n].qp[at] == qp)
				return &s->blocks[n].qp[at];
	assert(!"an active queue pair stands on the list");
	return NULL;
}

/* The last entry was removed.  As in list_take(), an empty block stays if it is the only one. */
static void
list_step_back(struct karst_sched *s, struct karst_sched_user *u)
{
	struct karst_sched_block *b = u->tail;

	u->room++;
	if (--u->nactive == 0) {
		u->first = 0;
		u->room = BLOCK_QPS;
	} else if (u->room == BLOCK_QPS) {
		u->tail = b->prev;
		u->block = (uint16_t)((size_t)(u->tail - s->blocks) % BLOCK_EACH);
		u->room = 0;
		b->next = s->spare;
		s->spare = b;
	}
}

/* Removes @qp from any place on the list. */
static void
list_remove(struct karst_sched *s, struct karst_sched_user *u, struct karst_core_qp *qp)
{
	struct karst_core_qp **place = list_place(s, qp);
	struct karst_core_qp **end = &u->tail->qp[BLOCK_QPS - u->room - 1], *last = *end;

	*place = last;
	last->block = qp->block;
	*end = NULL;
	list_step_back(s, u);
	u->nfetched = 0;
	qp->flags &= (uint8_t)~KARST_QPF_ACTIVE;
}

void
karst_core_activate(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_sched_user *u = karst_sched_user_of(core, qp);

	if (qp->flags & KARST_QPF_ACTIVE)
		return;
	qp->flags |= KARST_QPF_ACTIVE;
	if (karst_unlikely(u->room == 0))
		list_grow(&core->sched, u);
	u->tail->qp[BLOCK_QPS - u->room--] = qp;
	qp->block = u->block;
	u->nactive++;
	if (karst_unlikely(u->next == NULL))
		user_enter(&core->sched, u);
}

struct karst_core_qp *
karst_core_next_active(struct karst_core *core)
{
	struct karst_sched *s = &core->sched;
	struct karst_sched_user *u = s->turn;
	struct karst_core_qp *qp;

	/* of the one before, which was not visited by karst_core_visit() */
	s->refused = KARST_NOT_REFUSED;
	while (u->nactive == 0) {
		u = u->next;
		if (u == s->turn)
			return NULL;
	}
	list_take(s, u, &qp, 1);
	s->turn = u->next;
	if (user_is_empty(u))
		user_leave(s, u);
	return qp;
}

unsigned int
karst_core_sends(const struct karst_core *core)
{
	const struct karst_sched_user *u = core->sched.turn;
	unsigned int sends = !user_is_empty(u) || user_has_company(u) ? KARST_SENDS : 0;

	if (karst_unlikely(!TAILQ_EMPTY(&core->sched.starving)))
		sends |= KARST_SENDS_STARVED;
	return sends;
}

bool
karst_core_has_ready(const struct karst_core *core)
{
	return (karst_core_sends(core) & KARST_SENDS) != 0;
}

bool
karst_core_has_active(const struct karst_core *core)
{
	return karst_core_sends(core) != 0;
}

bool
karst_core_has_starved(const struct karst_core *core)
{
	return !TAILQ_EMPTY(&core->sched.starving);
}

/* Prefetches the next queue pair on the list that is not being prefetched yet. */
static inline void
sched_fetch_one(struct karst_sched_user *u)
{
	if (u->nfetched < KARST_SCHED_READY && u->nfetched < u->nactive)
		karst_qp_prefetch(list_at(u, u->nfetched++));
}

/* The user who has the turn has no queue pair ready.
 * @return the user who has the turn from now on; NULL: no user has one. */
static struct karst_sched_user *
sched_take_more(struct karst_core *core)
{
	struct karst_sched *s = &core->sched;
	struct karst_sched_user *u = s->turn;
	uint32_t i;

	while (karst_unlikely(user_is_empty(u))) {
		if (u->next == u)
			return NULL;
		user_leave(s, u);
		u = s->turn;
	}
	if (u->nready != 0)
		return u;
	for (i = u->nfetched; i < KARST_SCHED_READY && i < u->nactive; i++)
		sched_fetch_one(u);
	u->ready_head = 0;
	while (u->nready < KARST_SCHED_READY && u->nactive != 0) {
		uint32_t n = karst_min_u32(KARST_SCHED_READY - u->nready, u->nactive);

		n = karst_min_u32(n, BLOCK_QPS - u->first);
		list_take(s, u, &u->ready[u->nready], n);
		u->nready += n;
	}
	return u;
}

static inline void
sched_drop_first(struct karst_sched_user *u)
{
	u->ready_head++;
	u->nready--;
}

struct karst_core_qp *
karst_core_pick(struct karst_core *core)
{
	struct karst_sched_user *u = core->sched.turn;

	if (u->nready == 0) {
		u = sched_take_more(core);
		if (u == NULL)
			return NULL;
	}
	if (u->nready > SEND_AHEAD)
		karst_qp_prefetch_send(u->ready[u->ready_head + SEND_AHEAD]);
	sched_fetch_one(u);
	return u->ready[u->ready_head];
}

/* What the user who has the turn may spend, while others are in the circle.  Bytes that a control
 * call sends out of turn are limited only by the bursts of that call. */
static karst_noinline uint32_t
user_limit(const struct karst_sched *s, const struct karst_sched_user *u,
	const struct karst_core_qp *qp)
{
	if (qp == s->out_of_turn)
		return UINT32_MAX;
	return u->deficit > 0 ? (uint32_t)u->deficit : 1;
}

/* A queue pair that is parked anyway, and was activated by something else, stays where it is. */
static karst_noinline void
starve(struct karst_core *core, struct karst_sched_user *u, struct karst_core_qp *qp)
{
	/* what the other half has fetched may be what others wait for */
	karst_qp_unfetch(core, qp);
	if (qp->parked.le_prev != NULL)
		return;
	if (u->starved_last == NULL)
		LIST_INSERT_HEAD(&u->starved, qp, parked);
	else
		LIST_INSERT_AFTER(u->starved_last, qp, parked);
	u->starved_last = qp;
	qp->starved = true;
	if (!u->starves)
		TAILQ_INSERT_TAIL(&core->sched.starving, u, starving);
	u->starves = true;
}

/* The visited queue pair, or a half of it, got no copy.  @used: bytes that it has sent
 * nevertheless; @more: it has more to send. */
static karst_noinline void
visit_refused(struct karst_core *core, struct karst_sched_user *u, struct karst_core_qp *qp,
	uint32_t used, bool more)
{
	bool waits = core->sched.refused == KARST_YIELDS || used == 0;

	core->sched.refused = KARST_NOT_REFUSED;
	sched_drop_first(u);
	if (!more) {
		qp->deficit = 0;
	} else if (waits) {
		starve(core, u, qp);
	} else {
		karst_core_activate(core, qp);
		karst_requester_fed(core, qp);
	}
}

void
karst_core_visit(struct karst_core *core, struct karst_tx_burst *b, uint32_t max_bytes)
{
	struct karst_sched *s = &core->sched;
	struct karst_sched_user *u = s->turn;
	struct karst_core_qp *qp = u->ready[u->ready_head];
	uint32_t before = b->bytes + b->charge, limit = max_bytes - before, used;
	bool alone = !user_has_company(u), more = true;

	if (qp->deficit <= 0)
		qp->deficit += s->quantum;
	if (karst_likely(qp->deficit > 0)) {
		limit = karst_min_u32((uint32_t)qp->deficit, limit);
		if (!alone)
			limit = karst_min_u32(limit, user_limit(s, u, qp));
		more = karst_qp_tx(core, qp, b, limit);
	}
	used = b->bytes + b->charge - before;
	qp->deficit -= (int32_t)used;
	if (karst_unlikely(s->refused != KARST_NOT_REFUSED)) {
		visit_refused(core, u, qp, used, more);
	} else if (!more) {
		qp->deficit = 0;
		sched_drop_first(u);
	} else if (qp->deficit <= 0 || used == 0) {
		sched_drop_first(u);
		karst_core_activate(core, qp);
	}
	if (!alone)
		user_charge(s, u, used != 0 ? used : KARST_QUIET_COST);
}

void
karst_sched_unpark(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_sched_user *u = karst_sched_user_of(core, qp);

	if (qp->parked.le_prev == NULL)
		return;
	if (qp == u->starved_last)
		u->starved_last = qp != LIST_FIRST(&u->starved)
			? karst_container_of(
				  qp->parked.le_prev, struct karst_core_qp, parked.le_next)
			: NULL;
	LIST_REMOVE(qp, parked);
	qp->parked.le_prev = NULL;
	qp->starved = false;
}

void
karst_sched_move(struct karst_core *core, struct karst_core_qp *qp)
{
	if (qp->parked.le_prev == NULL || qp->starved)
		return;
	karst_sched_unpark(core, qp);
	karst_core_activate(core, qp);
}

karst_noinline void
karst_core_park(struct karst_core *core, struct karst_tx_burst *b, struct karst_parked *parked)
{
	struct karst_sched_user *u = core->sched.turn;
	struct karst_core_qp *qp = u->ready[u->ready_head];

	sched_drop_first(u);
	karst_qp_unfetch(core, qp);
	if (karst_qp_tx_quiet(core, qp, b)) {
		karst_core_activate(core, qp);
	} else if (qp->parked.le_prev == NULL) {
		LIST_INSERT_HEAD(parked, qp, parked);
		if (karst_unlikely(qp->req.paced))
			karst_pacer_parked(core, qp);
	}
	if (user_has_company(u))
		user_charge(&core->sched, u, KARST_QUIET_COST);
}

bool
karst_core_unpark(struct karst_core *core, struct karst_parked *parked, uint32_t most)
{
	struct karst_core_qp *qp;

	for (; (qp = LIST_FIRST(parked)) != NULL && most != 0; most--) {
		karst_sched_unpark(core, qp);
		karst_core_activate(core, qp);
	}
	return qp == NULL;
}

void
karst_core_park_over(struct karst_parked *from, struct karst_parked *to)
{
	*to = *from;
	if (!LIST_EMPTY(to))
		LIST_FIRST(to)->parked.le_prev = &LIST_FIRST(to);
	LIST_INIT(from);
}

void
karst_core_feed(struct karst_core *core, uint32_t most)
{
	struct karst_sched *s = &core->sched;
	struct karst_sched_user *u;
	struct karst_core_qp *qp;

	while (most != 0 && (u = TAILQ_FIRST(&s->starving)) != NULL) {
		TAILQ_REMOVE(&s->starving, u, starving);
		qp = LIST_FIRST(&u->starved);
		if (qp != NULL) {
			karst_sched_unpark(core, qp);
			karst_core_activate(core, qp);
			karst_requester_fed(core, qp);
			most--;
		}
		u->starves = !LIST_EMPTY(&u->starved);
		if (u->starves)
			TAILQ_INSERT_TAIL(&s->starving, u, starving);
	}
}

bool
karst_sched_starves(const struct karst_core *core, const struct karst_core_qp *qp)
{
	return !LIST_EMPTY(&karst_sched_user_of(core, qp)->starved);
}

/* Removes a queue pair from ready[]. */
static void
sched_unready(struct karst_sched_user *u, const struct karst_core_qp *qp)
{
	uint32_t i, kept = 0;

	for (i = 0; i < u->nready; i++)
		if (u->ready[u->ready_head + i] != qp)
			u->ready[kept++] = u->ready[u->ready_head + i];
	u->ready_head = 0;
	u->nready = kept;
}

void
karst_core_pick_first(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_sched_user *u = karst_sched_user_of(core, qp);
	struct karst_sched *s = &core->sched;
	uint32_t i;

	karst_sched_unpark(core, qp);
	sched_unready(u, qp);
	if (u->nready == KARST_SCHED_READY)
		karst_core_activate(core, u->ready[--u->nready]);
	for (i = u->nready++; i > 0; i--)
		u->ready[i] = u->ready[i - 1];
	u->ready[0] = qp;
	if (qp->deficit < 0)
		qp->deficit = 0;
	s->out_of_turn = qp;
	if (s->turn == u)
		return;
	if (u->next == NULL)
		user_enter(s, u);
	if (s->resumes == NULL)
		s->resumes = s->turn;
	s->turn = u;
}

void
karst_sched_forget(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_sched_user *u = karst_sched_user_of(core, qp);
	struct karst_sched *s = &core->sched;

	karst_sched_unpark(core, qp);
	sched_unready(u, qp);
	if (qp->flags & KARST_QPF_ACTIVE)
		list_remove(s, u, qp);
	if (s->out_of_turn == qp)
		s->out_of_turn = NULL;
	if (u->next != NULL && user_is_empty(u))
		user_leave(s, u);
}

void
karst_sched_share(struct karst_core *core, struct karst_core_qp *qp, uint32_t sharer)
{
	if (qp->sharer == sharer)
		return;
	karst_sched_forget(core, qp);
	karst_sched_user_of(core, qp)->gaps -= qp->gaps;
	karst_timer_share(core, qp->sharer, sharer, &qp->req.timer);
	if (qp->pacer != NULL)
		karst_timer_share(core, qp->sharer, sharer, &qp->pacer->timer);
	qp->sharer = (uint16_t)sharer;
	karst_sched_user_of(core, qp)->gaps += qp->gaps;
	/* it may have been active; if not, it gets a turn in which it sends nothing */
	if (qp->state != KARST_QPS_RESET)
		karst_core_activate(core, qp);
}
