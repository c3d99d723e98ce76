/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "windows.h"

#include <criterion/criterion.h>

/* After the last message the counts are looked at for a while. */
static struct perf_window
drained(struct perf_window *now)
{
	struct perf_window last = *now;
	unsigned int i;

	for (i = 0; i < 20; i++) {
		now->cycles += 10;
		now->cpu_s += 0.5;
		if (i < 4)
			now->messages++;
		if (i < 6)
			now->packets += 3;
		perf_window_follow(&last, now);
	}
	return last;
}

Test(perf_window, ends_with_the_last_message)
{
	struct perf_window now = {.messages = 100, .packets = 300, .cycles = 1000, .cpu_s = 2};
	struct perf_window last = drained(&now);

	cr_expect_eq(last.messages, 104);
	cr_expect_eq(last.packets, 312);
	cr_expect_eq(last.cycles, 1040);
	cr_expect_eq(last.cpu_s, 4);
}

Test(perf_window, ends_at_once_if_none_comes)
{
	struct perf_window last = {.messages = 100, .cycles = 1000}, now = last;

	now.cycles = 2000;
	perf_window_follow(&last, &now);
	cr_expect_eq(last.cycles, 1000);
}

Test(perf_window, leaves_out_the_waits_in_it)
{
	struct perf_window from = {.messages = 10, .packets = 30, .cycles = 500, .cpu_s = 1};
	struct perf_window now = {.messages = 100, .packets = 300, .cycles = 1000, .cpu_s = 2};
	struct perf_window waited = {0}, last, w;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		last = drained(&now);
		perf_window_wait(&waited, &last, &now);
	}
	w = perf_window_between(&from, &now, &waited);
	cr_expect_eq(w.messages, 98);
	cr_expect_eq(w.packets, 306);
	cr_expect_eq(w.cycles, 500 + 2 * 40);
	cr_expect_eq(w.cpu_s, 1 + 2 * 2);
}
