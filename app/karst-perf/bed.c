/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "bed.h"

#include <stdio.h>
#include <stdlib.h>

#define RETRIES     7
#define RNR_FOREVER 7
#define RNR_CODE    1 /* 0.01 ms (Q7) */

/* --- an embedded engine's objects --- */

struct perf_bed_engine {
	const struct perf_ports *ports;
	uint32_t pd;
	uint32_t num_ahs;  /* created ones */
	uint32_t num_keys; /* created ones, of the traffic */
	uint32_t num_lat_keys;
	struct karst_engine_cq *send_cq; /* of the client's sends */
	struct karst_engine_cq *recv_cq; /* of the server's receives */
	struct karst_engine_cq *idle_cq; /* for the directions that nothing uses */
	struct karst_engine_qp **qps[PERF_ENDS];
	struct karst_engine_cq *lat_cq[PERF_ENDS]; /* of sends and receives */
	struct karst_engine_qp *lat_qp[PERF_ENDS];
};

static int
bed_refused(const char *what, int rc)
{
	fprintf(stderr, "karst-perf: %s: %s\n", what, strerror(-rc));
	return rc;
}

enum karst_qp_type
perf_qp_type(enum perf_transport t)
{
	return t == PERF_RC ? KARST_QPT_RC : t == PERF_UC ? KARST_QPT_UC : KARST_QPT_UD;
}

static uint8_t
mtu_code(uint32_t mtu)
{
	return (uint8_t)(karst_log2(mtu) - 7);
}

static int
bed_to_init(const struct perf_bed *b, int end, struct karst_engine_qp *qp)
{
	struct karst_core_qp_attr a = {
		.qp_state = KARST_QPS_INIT,
		.port_num = (uint8_t)(b->engine->ports->port[end] + 1),
		.access_flags = KARST_ACCESS_REMOTE,
		.qkey = PERF_QKEY,
	};
	unsigned int mask = KARST_QP_STATE | KARST_QP_PKEY_INDEX | KARST_QP_PORT;

	if (b->job->transport == PERF_UC)
		a.access_flags = KARST_ACCESS_REMOTE_WRITE;
	mask |= b->job->transport == PERF_UD ? KARST_QP_QKEY : KARST_QP_ACCESS_FLAGS;
	return karst_engine_qp_modify(b->engine->ports->engine, qp, &a, mask);
}

static int
to_rtr(const struct perf_bed *b, int end, struct karst_engine_qp *qp,
	const struct karst_engine_qp *peer)
{
	struct karst_core_qp_attr a = {
		.qp_state = KARST_QPS_RTR,
		.path = b->engine->ports->path[end],
		.path_mtu = mtu_code(b->job->mtu),
		.dest_qpn = peer->num,
		.rq_psn = peer->num & 0xffffff,
		.max_dest_rd_atomic = (uint8_t)b->job->rd_atomic,
		.min_rnr_timer = RNR_CODE,
	};
	unsigned int mask = KARST_QP_STATE;

	if (b->job->transport != PERF_UD)
		mask |= KARST_QP_AV | KARST_QP_PATH_MTU | KARST_QP_DEST_QPN | KARST_QP_RQ_PSN;
	if (b->job->transport == PERF_RC)
		mask |= KARST_QP_MAX_DEST_RD_ATOMIC | KARST_QP_MIN_RNR_TIMER;
	return karst_engine_qp_modify(b->engine->ports->engine, qp, &a, mask);
}

static int
to_rts(const struct perf_bed *b, struct karst_engine_qp *qp)
{
	struct karst_core_qp_attr a = {
		.qp_state = KARST_QPS_RTS,
		.sq_psn = qp->num & 0xffffff,
		.timeout = (uint8_t)b->job->timeout,
		.retry_cnt = RETRIES,
		.rnr_retry = RNR_FOREVER,
		.max_rd_atomic = (uint8_t)b->job->rd_atomic,
	};
	unsigned int mask = KARST_QP_STATE | KARST_QP_SQ_PSN;

	if (b->job->transport == PERF_RC)
		mask |= KARST_QP_TIMEOUT | KARST_QP_RETRY_CNT | KARST_QP_RNR_RETRY |
			KARST_QP_MAX_QP_RD_ATOMIC;
	return karst_engine_qp_modify(b->engine->ports->engine, qp, &a, mask);
}

static int
connect_pair(const struct perf_bed *b, struct karst_engine_qp *qp[PERF_ENDS])
{
	int end, rc = 0;

	for (end = 0; rc == 0 && end < PERF_ENDS; end++)
		rc = bed_to_init(b, end, qp[end]);
	for (end = 0; rc == 0 && end < PERF_ENDS; end++)
		rc = to_rtr(b, end, qp[end], qp[1 - end]);
	for (end = 0; rc == 0 && end < PERF_ENDS; end++)
		rc = to_rts(b, qp[end]);
	return rc == 0 ? 0 : bed_refused("queue pair", rc);
}

/* The QP of one end of the traffic. */
static void
traffic_init(const struct perf_bed *b, int end, struct karst_engine_qp_init *init)
{
	const struct perf_job *j = b->job;

	*init = (struct karst_engine_qp_init){
		.type = perf_qp_type(j->transport),
		.lcore = b->engine->ports->lcore[end],
		.pd = b->engine->pd,
		.send_cq = end == PERF_CLIENT ? b->engine->send_cq : b->engine->idle_cq,
		.recv_cq = end == PERF_SERVER ? b->engine->recv_cq : b->engine->idle_cq,
		.max_send_wr = end == PERF_CLIENT ? karst_pow2_ceil(j->depth) : 1,
		.max_recv_wr = end == PERF_SERVER && j->recv_depth != 0 ? j->recv_depth : 1,
		.max_inline = end == PERF_CLIENT && j->inlined ? j->size : 0,
		.max_dest_rd_atomic = j->transport == PERF_RC ? j->rd_atomic : 0,
	};
}

static int
bed_create_qps(struct perf_bed *b)
{
	uint32_t i;
	int end, rc;

	for (end = 0; end < PERF_ENDS; end++) {
		struct karst_engine_qp_init init;

		traffic_init(b, end, &init);
		b->engine->qps[end] = calloc(b->job->qps, sizeof(*b->engine->qps[end]));
		if (b->engine->qps[end] == NULL)
			return bed_refused("queue pairs", -ENOMEM);
		for (i = 0; i < b->job->qps; i++) {
			rc = karst_engine_qp_create(
				b->engine->ports->engine, &init, &b->engine->qps[end][i]);
			if (rc != 0)
				return bed_refused("queue pair", rc);
		}
	}
	for (i = 0; i < b->job->qps; i++) {
		struct karst_engine_qp *pair[PERF_ENDS] = {
			b->engine->qps[0][i], b->engine->qps[1][i]};

		rc = connect_pair(b, pair);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int
new_cq(struct karst_engine *e, uint32_t entries, struct karst_engine_cq **cq)
{
	const struct karst_engine_cq_init init = {.entries = entries};

	return karst_engine_cq_create(e, &init, cq);
}

static int
create_lat_pair(struct perf_bed *b)
{
	const struct perf_job *j = b->job;
	struct karst_engine *e = b->engine->ports->engine;
	int end, rc;

	for (end = 0; end < PERF_ENDS; end++) {
		struct karst_engine_qp_init init = {
			.type = perf_qp_type(j->transport),
			.lcore = b->engine->ports->lcore[end],
			.pd = b->engine->pd,
			.max_send_wr = PERF_LAT_WRS,
			.max_recv_wr = PERF_LAT_WRS,
			.max_inline = j->inlined ? j->size : 0,
			.max_dest_rd_atomic = j->transport == PERF_RC ? j->rd_atomic : 0,
		};

		rc = new_cq(e, 4 * PERF_LAT_WRS, &b->engine->lat_cq[end]);
		if (rc != 0)
			return bed_refused("completion queue", rc);
		rc = karst_engine_mr_reg(e, b->engine->pd, b->mem->lat[end],
			(uintptr_t)b->mem->lat[end], b->mem->lat_bytes, PERF_ACCESS,
			&b->far[end].lat_key);
		if (rc != 0)
			return bed_refused("memory region", rc);
		b->engine->num_lat_keys++;
		init.send_cq = init.recv_cq = b->engine->lat_cq[end];
		rc = karst_engine_qp_create(e, &init, &b->engine->lat_qp[end]);
		if (rc != 0)
			return bed_refused("queue pair", rc);
	}
	return connect_pair(b, b->engine->lat_qp);
}

void
perf_bed_cq_sizes(const struct perf_job *j, uint32_t *sends, uint32_t *receives)
{
	*sends = j->inflight + 64;
	*receives = 64;
	/* an unreliable sender does not wait for the receiver, but it cannot get further ahead
	 * than the receiver has work requests, and those are limited by the burst of a turn */
	if (j->recv_depth != 0)
		*receives += (uint32_t)karst_min_u64(
			(uint64_t)j->recv_depth * j->qps, j->inflight + 2 * j->recv_depth);
}

static int
bed_create_cqs(struct perf_bed *b)
{
	struct karst_engine *e = b->engine->ports->engine;
	uint32_t sends, receives;
	int rc;

	perf_bed_cq_sizes(b->job, &sends, &receives);
	rc = new_cq(e, sends, &b->engine->send_cq);
	if (rc == 0)
		rc = new_cq(e, receives, &b->engine->recv_cq);
	if (rc == 0)
		rc = new_cq(e, 64, &b->engine->idle_cq);
	return rc == 0 ? 0 : bed_refused("completion queue", rc);
}

static int
bed_create_memory(struct perf_bed *b)
{
	struct karst_engine *e = b->engine->ports->engine;
	int end, rc = karst_engine_pd_alloc(e, &b->engine->pd);

	if (rc != 0)
		return bed_refused("protection domain", rc);
	for (end = 0; end < PERF_ENDS; end++) {
		uint8_t *base = b->mem->base[end];

		rc = karst_engine_mr_reg(e, b->engine->pd, base, (uintptr_t)base,
			b->job->working_set, PERF_ACCESS, &b->far[end].key);
		if (rc != 0)
			return bed_refused("memory region", rc);
		b->engine->num_keys++;
		if (b->job->transport != PERF_UD)
			continue;
		rc = karst_engine_ah_create(
			e, b->engine->pd, &b->engine->ports->path[end], &b->ah[end]);
		if (rc != 0)
			return bed_refused("address handle", rc);
		b->engine->num_ahs++;
	}
	return 0;
}

/* The memory of a queue pair, for the report. */
static void
bed_account(struct perf_bed *b)
{
	int end;

	b->qp_bytes = sizeof(struct karst_engine_qp);
	for (end = 0; end < PERF_ENDS; end++) {
		struct karst_engine_qp_init i;
		struct karst_qp_init core;

		traffic_init(b, end, &i);
		core = (struct karst_qp_init){
			.type = i.type,
			/* only compared with NULL */
			.send_cq = (struct karst_core_cq *)b->engine->send_cq,
			.recv_cq = (struct karst_core_cq *)b->engine->recv_cq,
			.sq_shared = b->mem->base[end],
			.rq_shared = b->mem->base[end],
			.max_send_wr = i.max_send_wr,
			.max_recv_wr = i.max_recv_wr,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline = i.max_inline,
			.max_dest_rd_atomic = i.max_dest_rd_atomic,
		};
		b->qp_bytes += karst_qp_bytes(&core) / PERF_ENDS;
		if (end == PERF_CLIENT)
			b->ring_bytes = karst_wq_bytes(i.max_send_wr,
						karst_wq_stride(true, 1, i.max_inline)) +
				karst_wq_bytes(i.max_recv_wr, karst_wq_stride(false, 1, 0));
	}
}

/* --- as the traffic sees it --- */

int
perf_bed_init(const struct perf_job *job, const struct perf_memory *mem, struct perf_bed *b)
{
	int end;

	memset(b, 0, sizeof(*b));
	b->job = job;
	b->mem = mem;
	for (end = 0; end < PERF_ENDS; end++) {
		b->far[end].base = (uintptr_t)mem->base[end];
		b->far[end].lat = (uintptr_t)mem->lat[end];
		b->far[end].qpns = calloc(job->qps, sizeof(*b->far[end].qpns));
		if (b->far[end].qpns == NULL)
			return bed_refused("queue pairs", -ENOMEM);
	}
	return 0;
}

void
perf_bed_fini(struct perf_bed *b)
{
	int end;

	for (end = 0; end < PERF_ENDS; end++) {
		free(b->far[end].qpns);
		free(b->qps[end]);
		free(b->lat_qp[end]);
	}
	free(b->engine);
	memset(b, 0, sizeof(*b));
}

struct perf_qp *
perf_qp_array(uint32_t n)
{
	void *p;

	if (posix_memalign(&p, KARST_CACHE_LINE, n * sizeof(struct perf_qp)) != 0)
		return NULL;
	memset(p, 0, n * sizeof(struct perf_qp));
	return p;
}

static void
bed_show_qp(const struct karst_engine_qp *from, struct perf_qp *to)
{
	to->sq = from->sq;
	to->rq = from->rq;
	to->bell = from->bell;
	to->bell_mask = from->bell_mask;
	to->num = from->num;
}

static struct perf_lanes
show_cq(const struct perf_bed *b, struct karst_engine_cq *cq, int end)
{
	return (struct perf_lanes){&cq->lane[b->engine->ports->lcore[end]], 1};
}

static int
bed_show(struct perf_bed *b, bool latency)
{
	const struct perf_bed_engine *own = b->engine;
	uint32_t i;
	int end;

	for (end = 0; end < PERF_ENDS; end++) {
		b->qps[end] = perf_qp_array(b->job->qps);
		if (latency)
			b->lat_qp[end] = perf_qp_array(1);
		if (b->qps[end] == NULL || (latency && b->lat_qp[end] == NULL))
			return bed_refused("queue pairs", -ENOMEM);
		for (i = 0; i < b->job->qps; i++) {
			bed_show_qp(own->qps[end][i], &b->qps[end][i]);
			b->far[end].qpns[i] = own->qps[end][i]->num;
		}
		if (!latency)
			continue;
		bed_show_qp(own->lat_qp[end], b->lat_qp[end]);
		b->far[end].lat_qpn = own->lat_qp[end]->num;
		b->lat_lanes[end] = show_cq(b, own->lat_cq[end], end);
	}
	b->sends = show_cq(b, own->send_cq, PERF_CLIENT);
	b->receives = show_cq(b, own->recv_cq, PERF_SERVER);
	return 0;
}

int
perf_bed_create(const struct perf_job *job, const struct perf_ports *ports,
	const struct perf_memory *mem, bool latency, struct perf_bed *b)
{
	int rc;

	rc = perf_bed_init(job, mem, b);
	if (rc == 0 && (b->engine = calloc(1, sizeof(*b->engine))) == NULL)
		rc = bed_refused("queue pairs", -ENOMEM);
	if (rc != 0) {
		perf_bed_fini(b);
		return 1;
	}
	b->engine->ports = ports;
	rc = bed_create_memory(b);
	if (rc == 0)
		rc = bed_create_cqs(b);
	if (rc == 0)
		rc = bed_create_qps(b);
	if (rc == 0 && latency)
		rc = create_lat_pair(b);
	if (rc != 0) {
		perf_bed_destroy(b);
		return 1;
	}
	bed_account(b);
	rc = bed_show(b, latency);
	if (rc != 0)
		perf_bed_destroy(b);
	return rc == 0 ? 0 : 1;
}

static void
destroy_qps(struct perf_bed *b)
{
	struct karst_engine *e = b->engine->ports->engine;
	uint32_t i;
	int end;

	for (end = 0; end < PERF_ENDS; end++) {
		for (i = 0; b->engine->qps[end] != NULL && i < b->job->qps; i++)
			if (b->engine->qps[end][i] != NULL)
				karst_engine_qp_destroy(e, b->engine->qps[end][i]);
		free(b->engine->qps[end]);
		if (b->engine->lat_qp[end] != NULL)
			karst_engine_qp_destroy(e, b->engine->lat_qp[end]);
	}
}

void
perf_bed_destroy(struct perf_bed *b)
{
	struct karst_engine *e = b->engine->ports->engine;
	struct karst_engine_cq *cqs[] = {b->engine->send_cq, b->engine->recv_cq, b->engine->idle_cq,
		b->engine->lat_cq[0], b->engine->lat_cq[1]};
	uint32_t i;

	destroy_qps(b);
	for (i = 0; i < KARST_DIM(cqs); i++)
		if (cqs[i] != NULL)
			karst_engine_cq_destroy(e, cqs[i]);
	while (b->engine->num_ahs > 0)
		karst_engine_ah_destroy(e, b->ah[--b->engine->num_ahs]);
	while (b->engine->num_keys > 0)
		karst_engine_mr_dereg(e, b->far[--b->engine->num_keys].key);
	while (b->engine->num_lat_keys > 0)
		karst_engine_mr_dereg(e, b->far[--b->engine->num_lat_keys].lat_key);
	if (b->engine->pd != 0)
		karst_engine_pd_free(e, b->engine->pd);
	perf_bed_fini(b);
}
