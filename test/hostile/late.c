/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* A program whose memory becomes available late, or never, beside innocents: they make progress,
 * and it blocks one thread at most. */
#include "late_program.h"

#include <unistd.h>

#include "late_file.h"

/* For a program whose pages do come, beside innocents: a second or two. */
#define LATE_OPS(delay_us) ((delay_us) < 10000 ? 512u : 16u)

static bool
enough(const struct child *c, uint32_t delay_us)
{
	return delay_us == LATE_NEVER ? atomic_load(&c->report->ready)
				      : atomic_load(&c->report->ops) >= LATE_OPS(delay_us);
}

/* A user whose programs hold several threads has no more memory copied (watch.c), and the innocents
 * are of the same user: so one program must not hold several. */
static bool
holds_one(const struct host *h)
{
	long stuck = host_ask(h, "/karst/lcores", "stuck_threads");

	if (stuck <= 1)
		return true;
	note("the late program holds %ld threads", stuck);
	return false;
}

/* Innocents make progress beside a program whose pages take @delay_us. */
static bool
beside(const struct options *o, struct innocents *in, uint32_t delay_us)
{
	const struct late_program s = {.host = in->host, .delay_us = delay_us};
	uint64_t began = now_ms(), until = began + 1000ull * o->seconds;
	long turns = host_ask(in->host, "/karst/lcores", "turns");
	struct child c;
	bool good;

	if (!late_program_start(&c, &s))
		return false;
	good = innocents_go_on(in);
	while (good && (o->seconds != 0 ? now_ms() < until : !enough(&c, delay_us))) {
		good = innocents_go_on(in) && late_programs_keep_going(&c, 1, &s) &&
			now_ms() - began < HANG_S * 1000 + 1000ull * o->seconds;
		sleep_ms(1);
	}
	if (delay_us == LATE_NEVER)
		good = good && child_until_ready(&c) && holds_one(in->host);
	note("pages after %d us: %llu operations of the late program, %ld turns of the lcore",
		(int)delay_us, (unsigned long long)atomic_load(&c.report->ops),
		host_ask(in->host, "/karst/lcores", "turns") - turns);
	good &= delay_us == LATE_NEVER || atomic_load(&c.report->ops) > 0;
	if (delay_us == LATE_NEVER && host_ask(in->host, "/karst/lcores", "overdue_programs") < 1) {
		note("nobody was overdue");
		good = false;
	}
	return late_programs_stop(&c, 1) && good;
}

/* One round beside innocents. */
static bool
round_of(const struct options *o, struct host *h)
{
	struct innocents in;
	bool good = innocents_start(&in, h, o->seed) && beside(o, &in, 900) &&
		beside(o, &in, 100000) && beside(o, &in, LATE_NEVER) && innocents_go_on(&in);

	return innocents_stop(&in) && good;
}

bool
case_late(const struct options *o)
{
	struct usage before;
	struct host h;
	bool good;

	if (!can_serve_files())
		return true;
	if (!host_up(&h, o->karstd))
		return false;
	/* threads that were needed once are kept for later */
	good = round_of(o, &h);
	sleep_ms(3000);
	host_usage(&h, &before);
	good = good && round_of(o, &h) && host_settles(&h, &before, o->grown) && host_stop(&h);
	if (host_alive(&h))
		host_kill(&h);
	if (good)
		host_remove(&h);
	return good;
}
