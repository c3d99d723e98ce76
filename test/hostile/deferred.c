/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Many programs are late at the same time, then few.  Threads that many programs needed end, though
 * some of these programs continue. */
#include "late_program.h"

#include <limits.h>

#define CROWD 8
#define STAY  3
/* One drives, one can take over, and one copies for each program that is still slow. */
#define POOL (2 + STAY)

/* Runs beside @n programs. */
static bool
until_threads(struct child *c, int n, const struct late_program *s, long from, long to)
{
	uint64_t until = now_ms() + HANG_S * 1000;
	long have = -1, raised = 0;

	while (late_programs_keep_going(c, n, s) && now_ms() < until) {
		have = host_threads(s->host, "karst-lcore-0", &raised);
		/* the thread that drives an lcore must leave the processor to others */
		if (raised > 0) {
			note("%ld threads of lcore 0 have real-time priority", raised);
			return false;
		}
		if (have >= from && have <= to)
			return true;
		sleep_ms(2);
	}
	note("lcore 0 has %ld threads, and not %ld to %ld", have, from, to);
	return false;
}

bool
case_deferred(const struct options *o)
{
	struct child c[CROWD] = {{0}};
	struct host h;
	struct late_program s = {.host = &h, .delay_us = 900};
	bool good = true;
	int i;

	if (!can_serve_files())
		return true;
	if (!host_up(&h, o->karstd))
		return false;
	for (i = 0; i < CROWD; i++)
		good = good && late_program_start(&c[i], &s);
	good = good && until_threads(c, CROWD, &s, POOL + 2, LONG_MAX);
	(void)late_programs_stop(c + STAY, CROWD - STAY);
	good = good && until_threads(c, STAY, &s, 1, POOL);
	(void)late_programs_stop(c, STAY);
	return host_end(&h, good);
}
