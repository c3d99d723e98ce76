/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define DEFAULT_WORKING_SET (UINT64_C(64) << 20)
#define DEFAULT_SIZE        65536u
#define ATOMIC_SIZE         8u
#define DEFAULT_DEPTH       64u
#define DEFAULT_INFLIGHT    1024u
#define INFLIGHT_BYTES      (64u << 20)
#define BATCH_BYTES         65536u /* bytes that are posted at once */
#define MAX_BATCH           16u
/* A receiver takes at most a burst of frames in a turn and then posts receives again.  This is
 * enough for such a burst, for transports whose sender does not wait for acknowledgements. */
#define MIN_RECV_UNRELIABLE 128u

/* Operations of each transport (W4); --op all means these. */
static const uint32_t ops_of[PERF_TRANSPORT_MAX] = {
	[PERF_RC] = (1u << PERF_OP_MAX) - 1,
	[PERF_UC] = 1u << PERF_OP_WRITE | 1u << PERF_OP_WRITE_IMM | 1u << PERF_OP_SEND,
	[PERF_UD] = 1u << PERF_OP_SEND,
};

static const char *const ops_text[PERF_TRANSPORT_MAX] = {
	[PERF_RC] = "all",
	[PERF_UC] = "write, write-imm, send, all",
	[PERF_UD] = "send, all",
};

static uint64_t
align_up(uint64_t v, uint64_t to)
{
	return (v + to - 1) / to * to;
}

static uint32_t
recv_depth(const struct perf_job *j)
{
	uint32_t n;

	if (!perf_op_receives(j->op))
		return 0;
	/* the sender may be a whole depth ahead of what the receiver has seen */
	n = 2 * j->depth;
	if (j->transport != PERF_RC && n < MIN_RECV_UNRELIABLE)
		n = MIN_RECV_UNRELIABLE;
	return karst_pow2_ceil(n);
}

/* How many places a queue pair must have, at least. */
static uint32_t
slots_needed(const struct perf_job *j)
{
	uint32_t n = j->depth;

	if (j->op == PERF_OP_WRITE_IMM)
		n += j->recv_depth; /* a message is checked when its receive is polled */
	else if (j->op == PERF_OP_SEND && j->recv_depth > n)
		n = j->recv_depth; /* places are receive buffers */
	return n;
}

static int
too_large(const struct perf_job *j, uint64_t need, uint64_t have, const char *what)
{
	fprintf(stderr,
		"karst-perf: %s: %" PRIu64 " bytes do not hold %u queue pairs with %u messages of "
		"%u bytes (%" PRIu64 " bytes); allowed: fewer --qps, less --depth or --size%s\n",
		what, have, j->qps, slots_needed(j), j->size, need,
		what[2] == 'w' ? ", or a larger --working-set" : "");
	return 2;
}

/* Bytes of one batch of every queue pair. */
static uint64_t
row_bytes(const struct perf_job *j)
{
	return (uint64_t)j->qps * j->batch * j->stride;
}

static uint64_t
rows_needed(const struct perf_job *j)
{
	return align_up(slots_needed(j), j->batch) / j->batch;
}

/* Computes the number and the size of the places in memory. */
static int
lay_out(const struct perf_opts *o, uint64_t memory, struct perf_job *j)
{
	uint64_t want = o->working_set != 0 ? o->working_set : DEFAULT_WORKING_SET;
	uint64_t row = row_bytes(j), least = rows_needed(j), rows;

	rows = want / row;
	if (rows < least) {
		if (o->working_set != 0)
			return too_large(j, least * row, want, "--working-set");
		rows = least;
	}
	/* both ends have a working set */
	if (rows * row > memory / 2) {
		if (o->working_set == 0 || least * row > memory / 2)
			return too_large(j, rows * row, memory / 2, "half of the free memory");
		fprintf(stderr,
			"karst-perf: --working-set: %" PRIu64
			" bytes for each end do not fit into the free memory; allowed: at most "
			"%" PRIu64 "\n",
			want, memory / 2);
		return 2;
	}
	j->slots = (uint32_t)karst_min_u64(rows * j->batch, UINT32_MAX / j->batch * j->batch);
	j->working_set = (uint64_t)j->slots * j->qps * j->stride;
	return 0;
}

/* 0.5 s, which is long because a reactor may lose its processor for a while.  With losses, 1 ms if
 * the peer is the same thread, else 8 ms. */
static uint32_t
default_timeout(const struct perf_opts *o)
{
	if (o->loss == 0)
		return 17;
	return o->lcores == 1 && !perf_opts_attached(o) ? 8 : 11;
}

/* More than one queue pair needs, but so few that the outstanding messages stay in the cache. */
static uint32_t
default_inflight(const struct perf_job *j)
{
	uint32_t n = karst_min_u32(DEFAULT_INFLIGHT, INFLIGHT_BYTES / j->size);

	return n > j->depth ? n : j->depth;
}

/* Sets everything that depends on the depth. */
static int
fit_depth(const struct perf_opts *o, struct perf_job *j, uint32_t depth)
{
	j->depth = depth;
	j->inflight = o->inflight != 0 ? o->inflight : default_inflight(j);
	j->batch = o->batch;
	if (j->batch == 0) {
		j->batch =
			karst_min_u32(MAX_BATCH, BATCH_BYTES / karst_min_u32(j->size, BATCH_BYTES));
		j->batch = karst_min_u32(j->batch, depth > 1 ? depth / 2 : 1);
		j->batch = karst_min_u32(j->batch, j->inflight);
	}
	j->recv_depth = recv_depth(j);
	j->headroom = j->transport == PERF_UD ? PERF_GRH_ROOM : 0;
	j->stride = (uint32_t)align_up(j->headroom + j->size, KARST_CACHE_LINE);
	if (j->batch <= depth && j->batch <= j->inflight)
		return 0;
	fprintf(stderr,
		"karst-perf: --batch: %u is not allowed; allowed: at most --depth (%u) and "
		"--inflight (%u)\n",
		j->batch, depth, j->inflight);
	return 2;
}

static int
fill_job(const struct perf_opts *o, uint64_t memory, enum perf_op op, uint32_t size,
	struct perf_job *j)
{
	uint32_t depth = o->depth != 0 ? o->depth : DEFAULT_DEPTH;
	int rc;

	*j = (struct perf_job){
		.op = op,
		.transport = o->transport,
		.size = size,
		.mtu = o->mtu,
		.qps = o->qps,
		.rd_atomic = o->rd_atomic,
		.lcores = o->lcores,
		.inlined = op != PERF_OP_READ && !perf_op_atomic(op) && size <= o->inline_bytes,
		.timeout = o->timeout >= 0 ? (uint32_t)o->timeout : default_timeout(o),
	};
	rc = fit_depth(o, j, depth);
	while (rc == 0 && o->depth == 0 && o->working_set != 0 && depth > o->batch && depth > 1 &&
		row_bytes(j) * rows_needed(j) > o->working_set) {
		depth /= 2;
		rc = fit_depth(o, j, depth);
	}
	if (rc == 0)
		rc = lay_out(o, memory, j);
	if (rc == 0 && o->depth == 0 && depth != DEFAULT_DEPTH)
		fprintf(stderr, "karst-perf: %s of %u bytes: depth %u, to fit --working-set\n",
			perf_op_name(op), size, depth);
	return rc;
}

/* Checks combinations that are wrong whatever the op and the size. */
static int
check_opts(const struct perf_opts *o)
{
	uint32_t has = ops_of[o->transport], op,
		 atomics = 1u << PERF_OP_CAS | 1u << PERF_OP_FAA | 1u << PERF_OP_ATOMIC_WRITE;

	for (op = 0; op < PERF_OP_MAX; op++) {
		if (o->all_ops || (o->ops & ~has & 1u << op) == 0)
			continue;
		fprintf(stderr,
			"karst-perf: --op: %s is not allowed with --transport %s; allowed: %s\n",
			perf_op_name((enum perf_op)op), perf_transport_name(o->transport),
			ops_text[o->transport]);
		return 2;
	}
	if ((o->ops & ~atomics) == 0 && o->num_sizes != 0 && !o->all_sizes &&
		(o->num_sizes != 1 || o->sizes[0] != ATOMIC_SIZE)) {
		fprintf(stderr,
			"karst-perf: --size: %u is not allowed with --op cas, faa and "
			"atomic-write; allowed: 8\n",
			o->sizes[o->num_sizes - 1]);
		return 2;
	}
	return 0;
}

/* Sizes for @op.  @return 0 and a list, or 2. */
static int
sizes_for(const struct perf_opts *o, enum perf_op op, uint32_t *sizes, uint32_t *num)
{
	uint32_t i;

	*num = 0;
	if (perf_op_atomic(op)) {
		sizes[(*num)++] = ATOMIC_SIZE;
		return 0;
	}
	if (o->num_sizes == 0) {
		sizes[(*num)++] = o->transport == PERF_UD ? o->mtu : DEFAULT_SIZE;
		return 0;
	}
	for (i = 0; i < o->num_sizes; i++) {
		uint32_t size = o->sizes[i];
		bool short_uc = o->verify && o->loss > 0 && o->transport != PERF_RC && size < 8;

		if (o->transport == PERF_UD && size > o->mtu && o->all_sizes)
			continue;
		if ((o->transport == PERF_UD && size > o->mtu) || short_uc) {
			fprintf(stderr,
				"karst-perf: --size: %u is not allowed with --transport %s; allowed: "
				"%u..%u\n",
				size, perf_transport_name(o->transport), short_uc ? 8 : 1,
				o->transport == PERF_UD ? o->mtu : 1u << 30);
			return 2;
		}
		sizes[(*num)++] = size;
	}
	return 0;
}

int
perf_plan_make(const struct perf_opts *o, uint64_t memory, struct perf_plan *plan)
{
	uint32_t sizes[PERF_MAX_SIZES], num, op, i;
	int rc = check_opts(o);

	memset(plan, 0, sizeof(*plan));
	if (rc != 0)
		return rc;
	plan->jobs = calloc((size_t)PERF_OP_MAX * PERF_MAX_SIZES, sizeof(*plan->jobs));
	if (plan->jobs == NULL) {
		fputs("karst-perf: no memory\n", stderr);
		return 1;
	}
	for (op = 0; rc == 0 && op < PERF_OP_MAX; op++) {
		if ((o->ops & ops_of[o->transport] & 1u << op) == 0)
			continue;
		rc = sizes_for(o, (enum perf_op)op, sizes, &num);
		for (i = 0; rc == 0 && i < num; i++) {
			struct perf_job *j = &plan->jobs[plan->num_jobs];

			rc = fill_job(o, memory, (enum perf_op)op, sizes[i], j);
			if (rc != 0)
				break;
			plan->num_jobs++;
			plan->max_working_set =
				karst_max_u64(plan->max_working_set, j->working_set);
		}
	}
	if (rc != 0)
		perf_plan_free(plan);
	return rc;
}

void
perf_plan_free(struct perf_plan *plan)
{
	free(plan->jobs);
	memset(plan, 0, sizeof(*plan));
}
