/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A timer is on the level of the highest byte in which its tick differs from now_tick of the wheel,
 * in the slot whose number is this byte of its tick.  It follows, with N for now_tick:
 *
 *  - on levels 0..2 only slots above N's own byte of that level are occupied, and everything
 *    on a lower level fires before anything on a higher one.  So the first occupied slot of
 *    the lowest occupied level is the next event, and the bitmaps find it without a search
 *    through the empty ticks between;
 *  - level 3 is a ring: its slots are 1..256 steps ahead of N's byte (256 is N's own slot, a
 *    whole turn away), which is what a horizon of 2^32 - 1 ticks can reach.
 *
 * To advance is to set N from event to event.  At a slot of level 0 the slot's list becomes the
 * list "due", whose timers are returned to the caller.  At a slot of a higher level N is the first
 * tick of the slot, the slot's list becomes the list "moving", and its timers are placed again with
 * the new N: on a lower level, or on "due".  Both lists are emptied before N advances, but not
 * necessarily in one call: a call moves at most a few timers for each that may fire, so that a slot
 * with a hundred thousand of them does not stop the data path.
 *
 * Deadlines are rounded up to a tick and the time down, so nothing fires early.  A timer that is
 * armed while timers fire gets a tick after N, and so is never put on the lists that are being
 * emptied.
 */
#include "karst_wheel.h"

#define SLOT_BITS     8
#define SLOT_MASK     (KARST_WHEEL_SLOTS - 1)
#define SLOT_WORDS    (KARST_WHEEL_SLOTS / 64)
#define HORIZON_TICKS ((1ull << (SLOT_BITS * KARST_WHEEL_LEVELS)) - 1)

/* Limit of the timers that one call moves to a lower level: MOVES_FOR_ONE for each that may fire,
 * and not less than MOVES_MIN, which is about 2.5 us of work if all miss the cache. */
#define MOVES_FOR_ONE 4u
#define MOVES_MIN     64u

static_assert(KARST_WHEEL_SLOTS == 1 << SLOT_BITS, "a slot is named by one byte of the tick");

static void
list_push(struct karst_timer **head, struct karst_timer *t)
{
	t->next = *head;
	t->pprev = head;
	if (t->next != NULL)
		t->next->pprev = &t->next;
	*head = t;
}

static struct karst_timer *
list_pop(struct karst_timer **head)
{
	struct karst_timer *t = *head;

	*head = t->next;
	if (t->next != NULL) {
		t->next->pprev = head;
		__builtin_prefetch(t->next);
	}
	t->next = NULL;
	t->pprev = NULL;
	return t;
}

/* Puts @t, whose tick is after now_tick, into its slot. */
static void
wheel_place(struct karst_wheel *w, struct karst_timer *t)
{
	unsigned int level =
		(63u - (unsigned int)__builtin_clzll(t->tick ^ w->now_tick)) / SLOT_BITS;
	unsigned int i;

	if (level >= KARST_WHEEL_LEVELS)
		level = KARST_WHEEL_LEVELS - 1;
	i = (t->tick >> (SLOT_BITS * level)) & SLOT_MASK;
	list_push(&w->slot[level][i], t);
	w->occupied[level][i / 64] |= 1ull << (i % 64);
}

/* The first occupied slot of @level at @from or above; -1 if there is none. */
static int
first_occupied(const struct karst_wheel *w, unsigned int level, unsigned int from)
{
	unsigned int i = from / 64;
	uint64_t word;

	if (from >= KARST_WHEEL_SLOTS)
		return -1;
	word = w->occupied[level][i] & (UINT64_MAX << (from % 64));
	while (word == 0) {
		if (++i == SLOT_WORDS)
			return -1;
		word = w->occupied[level][i];
	}
	return (int)(i * 64 + (unsigned int)__builtin_ctzll(word));
}

/* The next event: its level and slot, and the tick at which it begins.  -1: no slot is occupied. */
static int
next_slot(const struct karst_wheel *w, unsigned int *slot, uint64_t *tick)
{
	const unsigned int top = KARST_WHEEL_LEVELS - 1;
	unsigned int level, shift, cur;
	int i;

	for (level = 0; level < top; level++) {
		shift = SLOT_BITS * level;
		cur = (w->now_tick >> shift) & SLOT_MASK;
		i = first_occupied(w, level, cur + 1);
		if (i < 0)
			continue;
		*slot = (unsigned int)i;
		*tick = ((w->now_tick >> shift) + (*slot - cur)) << shift;
		return (int)level;
	}
	shift = SLOT_BITS * top;
	cur = (w->now_tick >> shift) & SLOT_MASK;
	i = first_occupied(w, top, cur + 1);
	if (i < 0)
		i = first_occupied(w, top, 0);
	if (i < 0)
		return -1;
	*slot = (unsigned int)i;
	*tick = ((w->now_tick >> shift) + ((*slot - cur - 1) & SLOT_MASK) + 1) << shift;
	return (int)top;
}

/* Makes the whole list of a slot the list @head, which is empty. */
static void
take_slot(struct karst_wheel *w, unsigned int level, unsigned int slot, struct karst_timer **head)
{
	struct karst_timer *first = w->slot[level][slot];

	assert(*head == NULL && first != NULL);
	*head = first;
	first->pprev = head;
	w->slot[level][slot] = NULL;
	w->occupied[level][slot / 64] &= ~(1ull << (slot % 64));
}

void
karst_wheel_init(struct karst_wheel *w, uint64_t now_ns)
{
	memset(w, 0, sizeof(*w));
	w->origin_ns = now_ns;
}

void
karst_wheel_add(struct karst_wheel *w, struct karst_timer *t, uint64_t deadline_ns)
{
	uint64_t ns = deadline_ns > w->origin_ns ? deadline_ns - w->origin_ns : 0;
	uint64_t tick = ns / KARST_WHEEL_TICK_NS + (ns % KARST_WHEEL_TICK_NS != 0);

	karst_wheel_del(w, t);
	tick = karst_max_u64(tick, w->now_tick + 1);
	t->tick = karst_min_u64(tick, w->now_tick + HORIZON_TICKS);
	wheel_place(w, t);
	w->count++;
}

void
karst_wheel_del(struct karst_wheel *w, struct karst_timer *t)
{
	struct karst_timer **pprev = t->pprev;
	size_t i;

	if (pprev == NULL)
		return;
	*pprev = t->next;
	if (t->next != NULL) {
		t->next->pprev = pprev;
	} else {
		/* Was it the only one in its slot?  "due" and "moving" are outside of the array. */
		i = ((uintptr_t)pprev - (uintptr_t)w->slot) / sizeof(w->slot[0][0]);
		if (i < KARST_WHEEL_LEVELS * KARST_WHEEL_SLOTS)
			w->occupied[i / KARST_WHEEL_SLOTS][(i & SLOT_MASK) / 64] &=
				~(1ull << (i % 64));
	}
	t->next = NULL;
	t->pprev = NULL;
	w->count--;
}

/* Places up to @budget timers of "moving" again.  @return the rest of @budget. */
static unsigned int
move_down(struct karst_wheel *w, unsigned int budget)
{
	struct karst_timer *t;

	while (w->moving != NULL && budget > 0) {
		t = list_pop(&w->moving);
		if (t->tick == w->now_tick)
			list_push(&w->due, t);
		else
			wheel_place(w, t);
		budget--;
	}
	return budget;
}

unsigned int
karst_wheel_advance(
	struct karst_wheel *w, uint64_t now_ns, struct karst_timer **fired, unsigned int max)
{
	uint64_t target = now_ns > w->origin_ns ? (now_ns - w->origin_ns) / KARST_WHEEL_TICK_NS : 0;
	unsigned int moves = max < MOVES_MIN / MOVES_FOR_ONE ? MOVES_MIN : MOVES_FOR_ONE * max;
	unsigned int n = 0, slot = 0;
	uint64_t tick = 0;
	int level;

	for (;;) {
		moves = move_down(w, moves);
		while (w->due != NULL && n < max) {
			fired[n++] = list_pop(&w->due);
			w->count--;
		}
		if (w->due != NULL || w->moving != NULL || target <= w->now_tick)
			return n;
		level = w->count != 0 ? next_slot(w, &slot, &tick) : -1;
		if (level < 0 || tick > target) {
			w->now_tick = target;
			return n;
		}
		w->now_tick = tick;
		take_slot(w, (unsigned int)level, slot, level == 0 ? &w->due : &w->moving);
	}
}

uint64_t
karst_wheel_next_ns(const struct karst_wheel *w)
{
	unsigned int slot;
	uint64_t tick;

	if (w->count == 0)
		return UINT64_MAX;
	if (w->due != NULL || w->moving != NULL)
		tick = w->now_tick;
	else
		next_slot(w, &slot, &tick);
	return w->origin_ns + tick * KARST_WHEEL_TICK_NS;
}
