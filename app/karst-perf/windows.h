/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Windows of traffic: what was counted at their beginning and end.
 *
 * After the last message, a measurement waits for messages that may still be on their way, until
 * none has come for a while.  This wait is no traffic.  So the window ends when the last message
 * completed or arrived, and a wait within the window is left out.
 */
#ifndef PERF_WINDOWS_H
#define PERF_WINDOWS_H

#include <stdint.h>

/** Counts at a moment; or sums over the measured windows. */
struct perf_window {
	uint64_t messages;
	uint64_t packets; /* frames that both ends sent */
	uint64_t cycles;  /* TSC */
	double cpu_s;     /* --compare: of all processors of the machine */
};

/** Sets @last to @now if messages have completed or arrived since. */
static inline void
perf_window_follow(struct perf_window *last, const struct perf_window *now)
{
	if (now->messages != last->messages)
		*last = *now;
}

/** Adds the time from @last to @now to @waited.  Messages and packets of this time do count. */
static inline void
perf_window_wait(
	struct perf_window *waited, const struct perf_window *last, const struct perf_window *now)
{
	waited->cycles += now->cycles - last->cycles;
	waited->cpu_s += now->cpu_s - last->cpu_s;
}

/** @return what was counted from @from to @to, without the time that was @waited in between. */
static inline struct perf_window
perf_window_between(const struct perf_window *from, const struct perf_window *to,
	const struct perf_window *waited)
{
	return (struct perf_window){.messages = to->messages - from->messages,
		.packets = to->packets - from->packets,
		.cycles = to->cycles - from->cycles - waited->cycles,
		.cpu_s = to->cpu_s - from->cpu_s - waited->cpu_s};
}

#endif /* PERF_WINDOWS_H */
