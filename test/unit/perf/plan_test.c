/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "bed.h"

#include <getopt.h>
#include <stdio.h>

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#define GIB      (UINT64_C(1) << 30)
#define MAX_ARGS 32

/* Parses a command line in one string, and makes its plan. */
static int
plan(const char *line, uint64_t memory, struct perf_opts *o, struct perf_plan *p)
{
	static char text[512];
	char *argv[MAX_ARGS], *rest = text, *word;
	int argc = 0, rc;

	snprintf(text, sizeof(text), "karst-perf %s", line);
	while ((word = strsep(&rest, " ")) != NULL)
		if (*word != '\0')
			argv[argc++] = word;
	argv[argc] = NULL;
	optind = 0; /* getopt starts from the beginning */
	memset(p, 0, sizeof(*p));
	rc = perf_opts_parse(argc, argv, o);
	return rc >= 0 ? rc : perf_plan_make(o, memory, p);
}

static void
refused(const char *line)
{
	struct perf_opts o;
	struct perf_plan p;

	cr_assert(eq(int, plan(line, 16 * GIB, &o, &p), 2), "%s", line);
}

Test(plan, defaults)
{
	struct perf_opts o;
	struct perf_plan p;

	cr_assert(eq(int, plan("", 16 * GIB, &o, &p), 0));
	cr_assert(eq(u32, p.num_jobs, 1));
	cr_assert(eq(int, p.jobs[0].op, PERF_OP_WRITE));
	cr_assert(eq(u32, p.jobs[0].size, 65536));
	cr_assert(eq(u32, p.jobs[0].depth, 64));
	cr_assert(eq(u64, p.jobs[0].working_set, 64 << 20));
	perf_plan_free(&p);
}

Test(plan, sweep_has_what_the_transport_has)
{
	struct perf_opts o;
	struct perf_plan p;
	uint32_t i;

	cr_assert(eq(int, plan("--op all --size all", 16 * GIB, &o, &p), 0));
	cr_assert(eq(u32, p.num_jobs, 4 * 7 + 3));
	perf_plan_free(&p);
	cr_assert(eq(int, plan("--op all --size all --transport uc", 16 * GIB, &o, &p), 0));
	cr_assert(eq(u32, p.num_jobs, 3 * 7));
	perf_plan_free(&p);
	cr_assert(eq(
		int, plan("--op all --size all --transport ud --mtu 1024", 16 * GIB, &o, &p), 0));
	cr_assert(eq(u32, p.num_jobs, 3));
	for (i = 0; i < p.num_jobs; i++)
		cr_assert(le(u32, p.jobs[i].size, 1024));
	perf_plan_free(&p);
}

Test(plan, atomics_are_of_eight_bytes_once)
{
	struct perf_opts o;
	struct perf_plan p;

	cr_assert(eq(int, plan("--op write,faa --size 64,4K", 16 * GIB, &o, &p), 0));
	cr_assert(eq(u32, p.num_jobs, 3));
	cr_assert(eq(u32, p.jobs[2].size, 8));
	perf_plan_free(&p);
	refused("--op cas --size 64");
}

Test(plan, what_does_not_go_together)
{
	refused("--op read --transport uc");
	refused("--op write --transport ud");
	refused("--transport ud --op send --size 4097");
	refused("--transport ud --op send --size 2K --mtu 1024");
	refused("--depth 8 --batch 16");
	refused("--inflight 8 --batch 16");
	refused("--iters 5 --duration 1");
	refused("--vdev net_tap0");
	refused("--vdev net_tap0 --vdev net_tap1 --vdev net_tap2");
	refused("--transport uc --verify --loss 0.1 --size 7");
	refused("write");
}

Test(plan, what_is_not_a_value)
{
	static const char *const lines[] = {"--size 0", "--size -1", "--size 1T", "--size 2G",
		"--size 4K4", "--size ,", "--mtu 512K", "--mtu 300", "--mtu 8192", "--qps -1",
		"--qps 1e3", "--lcores 0", "--duration 0", "--duration nan", "--duration inf",
		"--loss -0.1", "--loss 0.51", "--iters 0", "--ring-size 100", "--ring-size 16",
		"--timeout 32", "--timeout 0", "--depth 0", "--depth 16385", "--idle sleep",
		"--working-set 64", "--working-set 99999G", "--seed x", "--vdev foo", "--op",
		"--op write,", "--size 1,2,x", "--rd-atomic 129"};
	uint32_t i;

	for (i = 0; i < KARST_DIM(lines); i++)
		refused(lines[i]);
}

Test(plan, depth_fits_a_working_set_that_was_given)
{
	struct perf_opts o;
	struct perf_plan p;

	cr_assert(eq(int, plan("--size 1M --working-set 4M", 16 * GIB, &o, &p), 0));
	cr_assert(eq(u32, p.jobs[0].depth, 4));
	perf_plan_free(&p);
	refused("--size 1M --working-set 4M --depth 5");
	refused("--size 8M --working-set 4M");
}

Test(plan, memory_is_not_overbooked)
{
	struct perf_opts o;
	struct perf_plan p;

	cr_assert(eq(int, plan("--working-set 3G", 8 * GIB, &o, &p), 0));
	perf_plan_free(&p);
	cr_assert(eq(int, plan("--working-set 5G", 8 * GIB, &o, &p), 2));
	cr_assert(eq(int, plan("--size 1G --depth 64", 8 * GIB, &o, &p), 2));
}

Test(plan, what_follows_two_dashes_is_for_eal)
{
	struct perf_opts o;
	struct perf_plan p;

	cr_assert(eq(int, plan("--op read -- -l 0-2 --file-prefix x", 16 * GIB, &o, &p), 0));
	cr_assert(eq(u32, o.num_eal_args, 4));
	cr_assert(eq(str, (char *)(uintptr_t)o.eal_args[1], "0-2"));
	perf_plan_free(&p);
}

/* No two places overlap, all lie within the working set, and batches of all queue pairs that are
 * posted one after the other are adjacent in that order. */
Test(plan, places_walk_through_memory)
{
	struct perf_job j = {.qps = 3, .batch = 4, .slots = 8, .stride = 128};
	uint64_t at = 0;
	uint32_t row, qp, i;

	for (row = 0; row < 2; row++)
		for (qp = 0; qp < 3; qp++)
			for (i = 0; i < 4; i++, at += 128)
				cr_assert(eq(u64, perf_bed_offset(&j, qp, row * 4 + i), at));
	cr_assert(eq(u64, perf_bed_offset(&j, 1, 8), perf_bed_offset(&j, 1, 0)));
}
