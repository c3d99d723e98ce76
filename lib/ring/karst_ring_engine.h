/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The engine's side of the rings of karst_ring.h.
 *
 * Shared memory is not trusted.  The engine keeps its own copy of every mask, stride and index.  Of
 * what the program wrote it reads a tail or a head, checks that the value is valid, and from then
 * on uses its own copy.  An invalid index is reported to the caller, which fails that one queue.
 * Slots are copied to private memory before their contents are examined.
 *
 * One lcore owns each queue, lane and doorbell ring.
 */
#ifndef KARST_RING_ENGINE_H
#define KARST_RING_ENGINE_H

#include "karst_ring.h"

/* --- work queue --- */

struct karst_wqe_ring {
	struct karst_wq_shared *sh;
	const uint8_t *slots;
	uint32_t mask;
	uint8_t shift; /* log2 of the stride */
	uint8_t max_sge;
	uint16_t max_inline;
	uint32_t head; /* slots given back */
	uint32_t tail; /* slots that the program has published, as of the last poll */
};

/**
 * Initialises the shared memory and the engine's view; @slots a power of two.
 * @idle: whether the first post rings the doorbell: send queues yes, receive queues no.
 */
static inline void
karst_wqe_init(struct karst_wqe_ring *r, void *shared, uint32_t slots, uint32_t stride,
	uint32_t max_sge, uint32_t max_inline, bool idle)
{
	r->sh = shared;
	r->slots = (const uint8_t *)(r->sh + 1);
	r->mask = slots - 1;
	r->shift = (uint8_t)karst_log2(stride);
	r->max_sge = (uint8_t)max_sge;
	r->max_inline = (uint16_t)max_inline;
	r->head = r->tail = 0;
	atomic_store_explicit(&r->sh->tail, 0, memory_order_relaxed);
	atomic_store_explicit(&r->sh->head, 0, memory_order_relaxed);
	atomic_store_explicit(&r->sh->idle, idle, memory_order_release);
}

/** Reads the tail for newly published slots.  @return 0, or -EPROTO if the tail is invalid. */
static inline int
karst_wqe_poll(struct karst_wqe_ring *r)
{
	/* acquire, pairs with the release in karst_wq_publish() */
	uint32_t tail = atomic_load_explicit(&r->sh->tail, memory_order_acquire);

	if (karst_unlikely(tail - r->head > r->mask + 1 || (int32_t)(tail - r->tail) < 0))
		return -EPROTO;
	r->tail = tail;
	return 0;
}

/** Address of slot @idx; copy it once, to private memory. */
static inline const void *
karst_wqe_slot(const struct karst_wqe_ring *r, uint32_t idx)
{
	return r->slots + ((size_t)(idx & r->mask) << r->shift);
}

/** Allows the program to fill all slots before @head again; @head is not less than in an earlier
 *  call. */
static inline void
karst_wqe_show_head(const struct karst_wqe_ring *r, uint32_t head)
{
	/* release, pairs with the acquire in karst_wq_free(): this side has read the slots */
	atomic_store_explicit(&r->sh->head, head, memory_order_release);
}

/** Gives all slots before @head back to the program. */
static inline void
karst_wqe_publish_head(struct karst_wqe_ring *r, uint32_t head)
{
	r->head = head;
	karst_wqe_show_head(r, head);
}

/** Whether the program has published nothing since the last karst_wqe_poll().  One load. */
static inline bool
karst_wqe_dry(const struct karst_wqe_ring *r)
{
	/* relaxed: karst_wqe_poll() orders what is then read */
	return atomic_load_explicit(&r->sh->tail, memory_order_relaxed) == r->tail;
}

/** The first half of karst_wqe_idle(): after a fence (seq_cst) karst_wqe_idle_end() follows.  So
 *  one fence is enough for many queues. */
static inline void
karst_wqe_idle_begin(struct karst_wqe_ring *r)
{
	/* release, pairs with the acquire in karst_wq_publish(): the cells of the doorbells taken
	 * so far are free */
	atomic_store_explicit(&r->sh->idle, 1, memory_order_release);
}

/** The second half.  @return as karst_wqe_idle() */
static inline bool
karst_wqe_idle_end(struct karst_wqe_ring *r)
{
	if (karst_likely(atomic_load_explicit(&r->sh->tail, memory_order_relaxed) == r->tail))
		return false;
	/* The program may have seen the flag as well; if it has cleared it, it rings. */
	return atomic_exchange_explicit(&r->sh->idle, 0, memory_order_relaxed) != 0;
}

/**
 * The engine stops polling this queue until the doorbell rings.
 * @return true if slots were published meanwhile and no doorbell will follow: then the queue is not
 *   idle, continue (the next karst_wqe_poll() finds an invalid tail and returns -EPROTO).
 */
static inline bool
karst_wqe_idle(struct karst_wqe_ring *r)
{
	karst_wqe_idle_begin(r);
	/* Dekker with karst_wq_publish(): idle flag before tail */
	atomic_thread_fence(memory_order_seq_cst);
	return karst_wqe_idle_end(r);
}

/** The doorbell rang, or the engine polls the queue anyway: no more doorbells are needed. */
static inline void
karst_wqe_busy(struct karst_wqe_ring *r)
{
	atomic_store_explicit(&r->sh->idle, 0, memory_order_relaxed);
}

/* --- completion lane --- */

struct karst_lane {
	struct karst_lane_shared *sh;
	struct karst_cqe *cqes;
	uint64_t *stamps; /* NULL: none */
	uint32_t mask;
	uint32_t tail;      /* written, perhaps not published */
	uint32_t published; /* value of sh->tail */
	uint32_t head_seen; /* last valid value of sh->head */
};

static inline void
karst_lane_init(
	struct karst_lane *l, struct karst_lane_shared *sh, uint32_t entries, unsigned int flags)
{
	l->sh = sh;
	l->cqes = (struct karst_cqe *)(sh + 1);
	l->stamps = karst_lane_stamps(sh, entries, flags);
	l->mask = entries - 1;
	l->tail = l->published = l->head_seen = 0;
	atomic_store_explicit(&sh->tail, 0, memory_order_relaxed);
	atomic_store_explicit(&sh->ready, 0, memory_order_relaxed);
	atomic_store_explicit(&sh->head, 0, memory_order_relaxed);
	atomic_store_explicit(&sh->armed_at, 0, memory_order_relaxed);
	atomic_store_explicit(&sh->live, 1, memory_order_release);
}

/** Whether there is room for one more entry.  An invalid head is treated as no progress. */
static inline bool
karst_lane_room(struct karst_lane *l)
{
	if (karst_unlikely(l->tail - l->head_seen > l->mask)) {
		/* acquire, pairs with the release in karst_cq_lane_take() */
		uint32_t head = atomic_load_explicit(&l->sh->head, memory_order_acquire);

		if (l->tail - head <= l->mask + 1)
			l->head_seen = head;
	}
	return l->tail - l->head_seen <= l->mask;
}

/** The place of the next entry; only after karst_lane_room(). */
static inline struct karst_cqe *
karst_lane_next(struct karst_lane *l)
{
	return &l->cqes[l->tail++ & l->mask];
}

/** Sets the timestamp of all entries that are not published yet to @ns. */
static inline void
karst_lane_stamp(struct karst_lane *l, uint64_t ns)
{
	uint32_t i;

	for (i = l->published; i != l->tail; i++)
		l->stamps[i & l->mask] = ns;
}

/* Replacing the memory of a lane.  Unread is called by the lane's lcore; copy by any thread, which
 * may take long, since published entries do not change; move by the lcore again. */

/** A range of entries, by index. */
struct karst_lane_span {
	uint32_t from; /* the first that the program has not read */
	uint32_t upto; /* entries before it have been copied */
};

/** The entries that the program has not read.  Of these functions only this one reads the program's
 *  head, which may be invalid. */
static inline struct karst_lane_span
karst_lane_unread(const struct karst_lane *l)
{
	/* acquire, pairs with the release in karst_cq_lane_take() */
	uint32_t head = atomic_load_explicit(&l->sh->head, memory_order_acquire);

	/* not beyond what was published, not before what it is known to have read */
	if (l->published - head > l->published - l->head_seen)
		head = l->head_seen;
	return (struct karst_lane_span){.from = head, .upto = l->published};
}

/** The lane @l as it would be in the memory @sh of @entries. */
static inline struct karst_lane
karst_lane_in(const struct karst_lane *l, struct karst_lane_shared *sh, uint32_t entries)
{
	struct karst_lane to = *l;

	to.sh = sh;
	to.cqes = (struct karst_cqe *)(sh + 1);
	to.stamps = l->stamps != NULL ? (uint64_t *)(to.cqes + entries) : NULL;
	to.mask = entries - 1;
	return to;
}

/** Copies entries @from to before @upto. */
static inline void
karst_lane_copy(
	const struct karst_lane *to, const struct karst_lane *l, uint32_t from, uint32_t upto)
{
	uint32_t i;

	for (i = from; i != upto; i++) {
		to->cqes[i & to->mask] = l->cqes[i & l->mask];
		if (to->stamps != NULL)
			to->stamps[i & to->mask] = l->stamps[i & l->mask];
	}
}

/**
 * Continues in the memory @sh of @entries, to which @done was copied.  The rest is copied now;
 * @done then is what both memories contain.  Indices do not change.  -ENOSPC: more than @entries
 * entries are unread; nothing has changed.
 */
static inline int
karst_lane_move(struct karst_lane *l, struct karst_lane_shared *sh, uint32_t entries,
	struct karst_lane_span *done)
{
	struct karst_lane to = karst_lane_in(l, sh, entries);

	if (l->tail - done->from > entries)
		return -ENOSPC;
	karst_lane_copy(&to, l, done->upto, l->tail);
	done->upto = l->tail;
	to.head_seen = done->from;
	atomic_store_explicit(&sh->head, done->from, memory_order_relaxed);
	atomic_store_explicit(&sh->armed_at,
		atomic_load_explicit(&l->sh->armed_at, memory_order_relaxed), memory_order_relaxed);
	atomic_store_explicit(&sh->tail, to.published, memory_order_relaxed);
	atomic_store_explicit(&sh->ready, to.published, memory_order_relaxed);
	/* release, pairs with the acquire of a program whose engine died meanwhile: it continues
	 * with this lane; for a moment both lanes are valid */
	atomic_store_explicit(&sh->live, 1, memory_order_release);
	atomic_store_explicit(&l->sh->live, 0, memory_order_release);
	*l = to;
	return 0;
}

/** Before a return to memory of @entries, which must not fail: if the program has claimed to have
 *  read entries that it had not, the newest are kept. */
static inline void
karst_lane_trim(const struct karst_lane *l, uint32_t entries, struct karst_lane_span *span)
{
	if (l->tail - span->from <= entries)
		return;
	span->from = l->tail - entries;
	if ((int32_t)(span->upto - span->from) < 0)
		span->upto = span->from;
}

/** All entries written so far count from now on: the program gets them even if the engine dies
 *  before karst_lane_publish().  The slots of their requests can be given back. */
static inline void
karst_lane_ready(const struct karst_lane *l)
{
	/* release: after the entries, for a program that reads this when the engine is gone; the
	 * heads of work queues are stored with release after it, and so is the tail */
	atomic_store_explicit(&l->sh->ready, l->tail, memory_order_release);
}

/** Publishes all entries written so far; after karst_lane_ready(). */
static inline void
karst_lane_publish(struct karst_lane *l)
{
	l->published = l->tail;
	/* release, pairs with the acquire in karst_cq_lane_peek() (R14) */
	atomic_store_explicit(&l->sh->tail, l->tail, memory_order_release);
}

/** After karst_lane_publish() of a single entry: demotes its lines, so that a program on another
 *  processor reads them sooner.  Several entries will soon be followed by others, which would need
 *  the lines again. */
static inline void
karst_lane_hand_over(const struct karst_lane *l)
{
	karst_demote(&l->sh->tail);
	karst_demote(&l->cqes[(l->tail - 1) & l->mask]);
}

/* --- doorbell ring --- */

struct karst_bell {
	struct karst_bell_shared *sh;
	struct karst_bell_cell *cells;
	uint32_t mask;
	uint32_t head;
};

static inline void
karst_bell_init(struct karst_bell *b, void *shared, uint32_t cells)
{
	uint32_t i;

	b->sh = shared;
	b->cells = (struct karst_bell_cell *)(b->sh + 1);
	b->mask = cells - 1;
	b->head = 0;
	for (i = 0; i < cells; i++)
		atomic_store_explicit(&b->cells[i].seq, i, memory_order_relaxed);
	atomic_store_explicit(&b->sh->asleep, 0, memory_order_relaxed);
	atomic_store_explicit(&b->sh->tail, 0, memory_order_release);
}

/** Takes up to @max rung QPNs, unchecked: they may have any 32-bit value.  @return how many. */
static inline unsigned int
karst_bell_poll(struct karst_bell *b, uint32_t *qpns, unsigned int max)
{
	unsigned int n = 0;

	while (n < max) {
		struct karst_bell_cell *c = &b->cells[b->head & b->mask];

		/* acquire, pairs with the release in karst_bell_ring(): the QPN is written */
		if (atomic_load_explicit(&c->seq, memory_order_acquire) != b->head + 1)
			break;
		qpns[n++] = c->qpn;
		/* release, pairs with the acquire in karst_bell_ring(): the cell is free */
		atomic_store_explicit(&c->seq, b->head + b->mask + 1, memory_order_release);
		b->head++;
	}
	return n;
}

/** Whether the ring is empty.  A ticket that was taken without the cell being written yet does not
 *  count: the thread that took it writes the cell, and then tests the asleep word. */
static inline bool
karst_bell_empty(const struct karst_bell *b)
{
	/* relaxed: karst_bell_poll() orders what is then read */
	return atomic_load_explicit(&b->cells[b->head & b->mask].seq, memory_order_relaxed) !=
		b->head + 1;
}

/** First half of karst_bell_sleep(), for an lcore that sleeps on several rings: call this for each
 *  of them, then a full fence, then karst_bell_empty() for each. */
static inline void
karst_bell_doze(struct karst_bell *b)
{
	/* relaxed: the fence that follows orders it */
	atomic_store_explicit(&b->sh->asleep, 1, memory_order_relaxed);
}

/** The engine is awake: doorbells need no eventfd.  A program that has just read the word may still
 *  write to the eventfd. */
static inline void
karst_bell_awake(struct karst_bell *b)
{
	/* relaxed: a thread that sees the old value makes one unnecessary write to the eventfd */
	atomic_store_explicit(&b->sh->asleep, 0, memory_order_relaxed);
}

/**
 * The engine is about to sleep until the eventfd of this ring is written (or another event wakes
 * it).
 * @return false: a doorbell has been rung, do not sleep.
 */
static inline bool
karst_bell_sleep(struct karst_bell *b)
{
	karst_bell_doze(b);
	/* Dekker with karst_bell_must_wake(): the asleep word before the cell */
	atomic_thread_fence(memory_order_seq_cst);
	if (karst_likely(karst_bell_empty(b)))
		return true;
	karst_bell_awake(b);
	return false;
}

#endif /* KARST_RING_ENGINE_H */
