/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "traffic.h"
#include "check.h"

#include <stdlib.h>

/* Fills the @i-th free receive of a sink with its next place. */
static void
fill_recv(struct perf_server *s, uint32_t flow, uint32_t i)
{
	const struct perf_job *j = &s->job;
	struct perf_sink *k = &s->sinks[flow];
	struct karst_recv_wqe *w = perf_qp_recv_slot(k->qp, i);
	uint64_t place = ((uint64_t)k->row * j->qps + flow) * j->batch + k->col;
	uint32_t grh = j->transport == PERF_UD ? PERF_GRH_BYTES : 0;

	w->wr_id = (uint64_t)flow << 32 | (k->row * j->batch + k->col);
	w->reserved = 0;
	if (j->op == PERF_OP_WRITE_IMM) {
		w->num_sge = 0;
		return;
	}
	w->num_sge = 1;
	w->sge[0].addr = s->bed->far[PERF_SERVER].base + place * j->stride + j->headroom - grh;
	w->sge[0].len = j->size + grh;
	w->sge[0].lkey = s->bed->far[PERF_SERVER].key;
	if (++k->col == j->batch) {
		k->col = 0;
		k->row = k->row + 1 == s->rows ? 0 : k->row + 1;
	}
}

static inline void
server_publish(struct perf_server *s, uint32_t flow, uint32_t n)
{
	if (karst_unlikely(n > 0 && perf_qp_post_recv(s->sinks[flow].qp, n) != 0))
		perf_tally_add(&s->tally.errors, 1);
}

int
perf_server_create(const struct perf_bed *bed, bool verify, uint64_t seed, struct perf_server *s)
{
	const struct perf_job *j = bed->job;
	uint32_t i, k;

	memset(s, 0, sizeof(*s));
	s->bed = bed;
	s->job = *j;
	s->verify = verify;
	s->seed = seed;
	s->lanes = bed->receives;
	s->rows = j->slots / j->batch;
	s->sinks = calloc(j->qps, sizeof(*s->sinks));
	if (s->sinks == NULL)
		return -ENOMEM;
	for (i = 0; i < j->qps; i++) {
		s->sinks[i].qp = &bed->qps[PERF_SERVER][i];
		s->sinks[i].peer_qpn = bed->far[PERF_CLIENT].qpns[i];
		for (k = 0; k < j->recv_depth; k++)
			fill_recv(s, i, k);
		server_publish(s, i, j->recv_depth);
	}
	return 0;
}

void
perf_server_destroy(struct perf_server *s)
{
	free(s->sinks);
	s->sinks = NULL;
}

static uint32_t
take_lane(struct perf_server *s, struct karst_cq_lane *lane)
{
	const struct karst_cqe *cqes;
	uint32_t i, n, flow = 0, fresh = 0, good = 0;

	n = karst_cq_lane_peek(lane, &cqes);
	if (n == 0)
		return 0;
	for (i = 0; i < n; i++) {
		const struct karst_cqe *e = &cqes[i];
		uint32_t of = (uint32_t)(e->wr_id >> 32);

		if (karst_unlikely(e->status != KARST_WC_SUCCESS || of >= s->job.qps)) {
			if (s->tally.errors == 0)
				s->first_error = e->status;
			perf_tally_add(&s->tally.errors, 1);
			continue;
		}
		if (s->verify)
			perf_check_received(s, of, e);
		/* the receives of a queue pair are published together */
		if (of != flow) {
			server_publish(s, flow, fresh);
			fresh = 0;
			flow = of;
		}
		fill_recv(s, of, fresh++);
		good++;
	}
	server_publish(s, flow, fresh);
	karst_cq_lane_take(lane, n);
	perf_tally_add(&s->tally.completed, good);
	return n;
}

uint32_t
perf_server_turn(struct perf_server *s)
{
	uint32_t i, n = 0;

	if (s->job.recv_depth == 0)
		return 0;
	for (i = 0; i < s->lanes.n; i++)
		n += take_lane(s, &s->lanes.lane[i]);
	return n;
}
