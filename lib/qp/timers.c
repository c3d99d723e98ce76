/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Timers: each user has a wheel.
 *
 * The users who have timers form a circle.  In a turn, KARST_TIMERS_LOOKS of their wheels are
 * advanced, and these share the budget of timers to fire: so a user with a hundred thousand timers
 * that are due together delays only that user's own timers.  The budget of a wheel also limits how
 * many timers of a crowded slot are moved to a lower level (wheel.c).
 *
 * A wheel is initialised with the first timer of its user, so that wheels of users without timers
 * need no pages.  An empty wheel stands still; it is advanced to the present before a timer is
 * added.
 */
#include "pacer.h"

/* Wheels that are advanced in a turn. */
#define KARST_TIMERS_LOOKS 8u

size_t
karst_timers_bytes(uint32_t sharers)
{
	return sharers * sizeof(struct karst_timers);
}

void
karst_timers_init(struct karst_core *core, void *buf)
{
	core->timing.wheels = buf;
	core->timing.origin_ns = core->now_ns;
}

/* The first timer of @u is about to be armed: adds the wheel to the circle, last in order. */
static karst_noinline void
timers_enter(struct karst_core *core, struct karst_sched_user *u)
{
	struct karst_timing *g = &core->timing;
	struct karst_timers *c = u->timers;

	if (c == NULL) {
		c = u->timers = &g->wheels[u - core->sched.users];
		karst_wheel_init(&c->wheel, g->origin_ns);
	}
	/* it has stood still, perhaps for longer than its range */
	karst_wheel_advance(&c->wheel, core->now_ns, NULL, 0);
	if (g->nusers++ == 0) {
		g->turn = c->next = c->prev = c;
		return;
	}
	c->next = g->turn;
	c->prev = g->turn->prev;
	c->prev->next = c;
	c->next->prev = c;
}

/* Removes a wheel without timers from the circle. */
static karst_noinline void
timers_leave(struct karst_core *core, struct karst_timers *c)
{
	struct karst_timing *g = &core->timing;

	g->nusers--;
	c->prev->next = c->next;
	c->next->prev = c->prev;
	if (g->turn == c)
		g->turn = c->next;
}

void
karst_timer_add(struct karst_core *core, uint32_t sharer, struct karst_timer *t, uint64_t ns)
{
	struct karst_sched_user *u = &core->sched.users[sharer];

	if (!karst_timer_armed(t)) {
		if (karst_timers_of(u) == 0)
			timers_enter(core, u);
		core->timing.count++;
	}
	karst_wheel_add(&u->timers->wheel, t, ns);
}

void
karst_timer_del(struct karst_core *core, uint32_t sharer, struct karst_timer *t)
{
	struct karst_timers *c = core->sched.users[sharer].timers;

	if (!karst_timer_armed(t))
		return;
	karst_wheel_del(&c->wheel, t);
	core->timing.count--;
	if (c->wheel.count == 0)
		timers_leave(core, c);
}

void
karst_timer_share(struct karst_core *core, uint32_t from, uint32_t to, struct karst_timer *t)
{
	uint64_t ns = karst_timer_ns(core, t);

	if (!karst_timer_armed(t))
		return;
	karst_timer_del(core, from, t);
	karst_timer_add(core, to, t, ns);
}

static inline void
timer_fire(struct karst_core *core, struct karst_timer *t)
{
	if (karst_likely(t->kind == KARST_TIMER_QP))
		karst_requester_expire(
			core, karst_container_of(t, struct karst_core_qp, req.timer));
	else if (t->kind == KARST_TIMER_PACER)
		karst_pacer_expire(core, karst_container_of(t, struct karst_pacer, timer)->qp);
	else
		karst_cq_expire(core, karst_container_of(t, struct karst_cq_lane_state, timer));
}

/* Fires timers of @c alone. */
static unsigned int
timers_expire(struct karst_core *core, struct karst_timers *c, unsigned int budget)
{
	struct karst_timer *fired[32];
	unsigned int i, n, want, done = 0;

	do {
		want = karst_min_u32(budget - done, KARST_DIM(fired));
		n = karst_wheel_advance(&c->wheel, core->now_ns, fired, want);
		core->timing.count -= n;
		/* if one of them arms a timer again, the wheel enters the circle as the last */
		if (n != 0 && c->wheel.count == 0)
			timers_leave(core, c);
		for (i = 0; i < n; i++)
			timer_fire(core, fired[i]);
		done += n;
	} while (n == want && done < budget && c->wheel.count != 0);
	return done;
}

unsigned int
karst_core_expire(struct karst_core *core, unsigned int budget)
{
	struct karst_timing *g = &core->timing;
	unsigned int looks = karst_min_u32(g->nusers, KARST_TIMERS_LOOKS), done = 0;

	for (; looks != 0 && g->nusers != 0 && done < budget; looks--) {
		struct karst_timers *c = g->turn;

		g->turn = c->next;
		done += timers_expire(core, c, (budget - done + looks - 1) / looks);
	}
	return done;
}

uint64_t
karst_core_next_ns(const struct karst_core *core)
{
	const struct karst_timers *c = core->timing.turn;
	uint64_t next = UINT64_MAX;
	uint32_t i;

	for (i = 0; i < core->timing.nusers; i++, c = c->next)
		next = karst_min_u64(next, karst_wheel_next_ns(&c->wheel));
	return next;
}
