/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A hierarchical timing wheel: adding, deleting and firing a timer cost O(1).
 *
 * Time is an argument (nanoseconds of any monotonic origin).  Four levels of 256 slots; one
 * slot of level 0 is one tick of 4.096 us (the unit of the IBTA timeouts), so the horizon is
 * 2^32 - 1 ticks, about 4.9 hours from the tick that the wheel has reached; a deadline further
 * away fires at the horizon.  A timer never fires early and fires at most two ticks late for a
 * caller that advances continuously.
 *
 * One owner thread; the timers are embedded in their objects, and nothing is allocated.
 */
#ifndef KARST_WHEEL_H
#define KARST_WHEEL_H

#include "karst_base.h"

#define KARST_WHEEL_TICK_NS 4096u
#define KARST_WHEEL_LEVELS  4
#define KARST_WHEEL_SLOTS   256

/** A timer; zero-initialised means "not on any wheel". */
struct karst_timer {
	struct karst_timer *next;
	struct karst_timer **pprev; /* the pointer to this timer; NULL when idle */
	uint64_t tick;              /* when it fires, in ticks since the wheel's origin */
	uint32_t kind;              /* set by its owner: the type of the structure that embeds it */
};

struct karst_wheel {
	uint64_t origin_ns;
	/* every tick up to this one has fired, except for the timers on "due" */
	uint64_t now_tick;
	uint64_t count;          /* timers on the wheel, "due" and "moving" included */
	struct karst_timer *due; /* expired, to be handed out */
	/* timers of a slot that is being distributed to the lower levels */
	struct karst_timer *moving;
	uint64_t occupied[KARST_WHEEL_LEVELS][KARST_WHEEL_SLOTS / 64];
	struct karst_timer *slot[KARST_WHEEL_LEVELS][KARST_WHEEL_SLOTS];
};

/** Initialises an empty wheel whose time begins at @now_ns. */
void karst_wheel_init(struct karst_wheel *w, uint64_t now_ns);

/** Arms @t for @deadline_ns; changes the deadline if it is armed. */
void karst_wheel_add(struct karst_wheel *w, struct karst_timer *t, uint64_t deadline_ns);

/** Disarms @t; no effect if it is not armed. */
void karst_wheel_del(struct karst_wheel *w, struct karst_timer *t);

static inline bool
karst_timer_armed(const struct karst_timer *t)
{
	return t->pprev != NULL;
}

/**
 * Advances time to @now_ns and removes up to @max expired timers to @fired.  The work is bounded:
 * by @max, and by a few timers moved to a lower level for each of these; an empty tick costs
 * nothing.
 *
 * @return how many expired.  If this equals @max, there may be more: call again with the same time.
 *   If it is less than @max, some may also remain, when a crowded slot takes several calls to
 *   distribute; karst_wheel_next_ns() is then not later than @now_ns, and every call makes
 *   progress.  A fired timer is idle and may be armed again at once.  Earlier ticks come first; the
 *   order among timers of the same tick is unspecified.
 */
unsigned int karst_wheel_advance(
	struct karst_wheel *w, uint64_t now_ns, struct karst_timer **fired, unsigned int max);

/**
 * The next time at which karst_wheel_advance() has work, in ns; UINT64_MAX when the wheel is empty.
 * It is later than the first deadline by less than a tick (a deadline is rounded up to a tick), and
 * may be earlier.  It is later than the time of the last advance, unless that left some timers: so
 * a caller that advances to each of these times always makes progress.
 */
uint64_t karst_wheel_next_ns(const struct karst_wheel *w);

#endif /* KARST_WHEEL_H */
