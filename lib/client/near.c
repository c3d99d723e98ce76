/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Where a thread runs that polls.  With fewer CPUs than threads that poll it shares one with
 * others, and gives it to them while it waits.  The best of these is the lcore that it waits
 * for: a message is then two switches away.  Beside another's lcore and another program it is
 * as many more as there are threads in the round, and its own lcore gives its CPU to nobody.
 * The scheduler balances loads and does not know who waits for whom.
 */
#include "client_priv.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

/* So often in a period it must have been found that others use the thread's CPU. */
#define TIMES     8u
#define PERIOD_NS 2000000u

/* To CPU @cpu, and free to be moved away from it again as before. */
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
	/* the first time for long begins a period */
	ret = times > TIMES && now - since < 2 * (uint64_t)PERIOD_NS
		? move_to((uint32_t)c->cpu[lcore])
		: 0;
	since = now;
	times = 0;
	return ret < 0 ? cli_fail(ret, "the CPU of lcore %u: %s", lcore, strerror(-ret)) : ret;
}
