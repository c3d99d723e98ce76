/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Moves polling threads to the CPU of the lcore that they wait for.  If there are fewer CPUs than
 * polling threads, a thread shares its CPU and yields it while it waits.  The best CPU is that of
 * the lcore that the thread waits for: a message then takes two context switches.  On the CPU of
 * another lcore and another program it takes as many more as there are threads on that CPU, and the
 * thread's own lcore yields its CPU to no thread.  The scheduler balances load and does not know
 * which thread waits for which.
 */
#include "client_priv.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

/* How often in a period other threads must have used the thread's CPU. */
#define TIMES     8u
#define PERIOD_NS 2000000u

/* Moves the thread to CPU @cpu and restores its affinity, so that it can be moved again. */
static int
move_to(uint32_t cpu)
{
	cpu_set_t may, there;

	if (sched_getaffinity(0, sizeof(may), &may) != 0)
		return -errno;
	if (cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &may))
		return 0;
	CPU_ZERO(&there);
	CPU_SET(cpu, &there);
	if (sched_setaffinity(0, sizeof(there), &there) != 0 ||
		sched_setaffinity(0, sizeof(may), &may) != 0)
		return -errno;
	return 1;
}

int
karst_near_lcore(struct karst_context *ctx, uint32_t lcore)
{
	static __thread uint64_t since;
	static __thread uint32_t times;
	const struct karst_client *c = cli_of(ctx);
	uint64_t now;
	int ret;

	if (cli_forked(c))
		return cli_fail_forked();
	if (lcore >= ctx->nlcores)
		return cli_fail(-EINVAL, "lcore %u: must be below %u", lcore, ctx->nlcores);
	if (!c->polite || c->cpu[lcore] < 0 || sched_getcpu() == c->cpu[lcore])
		return 0;
	ret = karst_query_clock(ctx, &now);
	if (ret != 0)
		return ret;
	times++;
	if (now - since < PERIOD_NS)
		return 0;
	/* the first call after a pause begins a period */
	ret = times > TIMES && now - since < 2 * (uint64_t)PERIOD_NS
		? move_to((uint32_t)c->cpu[lcore])
		: 0;
	since = now;
	times = 0;
	return ret < 0 ? cli_fail(ret, "the CPU of lcore %u: %s", lcore, strerror(-ret)) : ret;
}
