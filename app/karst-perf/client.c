/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "traffic.h"
#include "check.h"

#include <stdlib.h>

#include <rte_cycles.h>
#include <rte_prefetch.h>

/* How many visits ahead parts of a queue pair are prefetched; each part needs the one before. */
#define AHEAD_FLOW  12u
#define AHEAD_QP    8u
#define AHEAD_RING  4u
#define TURN_BUDGET 32u

static uint8_t
wr_opcode(const struct perf_job *j)
{
	static const uint8_t opcodes[PERF_OP_MAX] = {
		[PERF_OP_WRITE] = KARST_WR_RDMA_WRITE,
		[PERF_OP_WRITE_IMM] = KARST_WR_RDMA_WRITE_WITH_IMM,
		[PERF_OP_READ] = KARST_WR_RDMA_READ,
		[PERF_OP_SEND] = KARST_WR_SEND,
		[PERF_OP_CAS] = KARST_WR_ATOMIC_CAS,
		[PERF_OP_FAA] = KARST_WR_ATOMIC_FAA,
		[PERF_OP_ATOMIC_WRITE] = KARST_WR_ATOMIC_WRITE,
	};

	return opcodes[j->op];
}

/* Fills the part that all work requests of the measurement have in common. */
static void
client_template(struct perf_client *c)
{
	struct karst_send_wqe *w = &c->template;
	const struct perf_job *j = &c->job;

	w->opcode = wr_opcode(j);
	w->flags = j->inlined ? KARST_SEND_INLINE : 0;
	w->num = j->inlined ? (uint16_t)j->size : 1;
	if (j->transport == PERF_UD) {
		w->ud.ah = c->bed->ah[PERF_CLIENT];
		w->ud.remote_qkey = PERF_QKEY;
	} else {
		w->rdma.rkey = c->bed->far[PERF_SERVER].key;
	}
	if (j->op == PERF_OP_CAS || j->op == PERF_OP_FAA) {
		w->atomic.sge[0].len = j->size;
		w->atomic.sge[0].lkey = c->bed->far[PERF_CLIENT].key;
		w->atomic.compare_add = 1;
	} else if (!j->inlined) {
		w->sge[0].len = j->size;
		w->sge[0].lkey = c->bed->far[PERF_CLIENT].key;
	}
}

/* Must messages be checked later, because no end can check each of them as it completes? */
static bool
checks_late(const struct perf_bed *bed)
{
	const struct perf_job *j = bed->job;

	if (bed->mem->base[PERF_SERVER] != NULL)
		return j->transport == PERF_UC && j->op == PERF_OP_WRITE;
	return j->op == PERF_OP_WRITE || j->op == PERF_OP_READ || j->op == PERF_OP_ATOMIC_WRITE;
}

int
perf_client_create(const struct perf_bed *bed, bool verify, uint64_t seed, struct perf_client *c)
{
	const struct perf_job *j = bed->job;
	uint32_t i;

	memset(c, 0, sizeof(*c));
	c->bed = bed;
	c->job = *j;
	c->verify = verify;
	c->late_check = verify && checks_late(bed);
	c->seed = seed;
	c->lanes = bed->sends;
	c->rows = j->slots / j->batch;
	c->turn_budget = j->batch > TURN_BUDGET ? j->batch : TURN_BUDGET;
	c->left = UINT64_MAX;
	c->local = bed->far[PERF_CLIENT].base;
	c->remote = bed->far[PERF_SERVER].base;
	client_template(c);
	if (posix_memalign((void **)&c->flows, KARST_CACHE_LINE, j->qps * sizeof(*c->flows)) != 0)
		c->flows = NULL;
	c->loaded = perf_hist_create();
	if (verify && (j->op == PERF_OP_CAS || j->op == PERF_OP_FAA))
		c->shadow = calloc((size_t)j->qps * j->slots, sizeof(*c->shadow));
	if (c->flows == NULL || c->loaded == NULL ||
		(verify && (j->op == PERF_OP_CAS || j->op == PERF_OP_FAA) && c->shadow == NULL)) {
		perf_client_destroy(c);
		return -ENOMEM;
	}
	memset(c->flows, 0, j->qps * sizeof(*c->flows));
	for (i = 0; i < j->qps; i++) {
		c->flows[i].qp = &bed->qps[PERF_CLIENT][i];
		c->flows[i].peer_qpn = bed->far[PERF_SERVER].qpns[i];
	}
	perf_check_begin(c);
	return 0;
}

void
perf_client_destroy(struct perf_client *c)
{
	free(c->flows);
	free(c->loaded);
	free(c->shadow);
	c->flows = NULL;
	c->loaded = NULL;
	c->shadow = NULL;
}

/* --- completions --- */

static karst_noinline void
take_error(struct perf_client *c, const struct karst_cqe *e)
{
	if (c->tally.errors == 0)
		c->first_error = e->status;
	perf_tally_add(&c->tally.errors, 1);
	c->failed = true;
}

static inline void
take_sample(struct perf_client *c, struct perf_flow *f)
{
	if (f->sample_tsc == 0 || f->completed <= f->sample)
		return;
	perf_hist_add(c->loaded, rte_rdtsc() - f->sample_tsc);
	f->sample_tsc = 0;
}

/* A completion covers all messages up to the one whose number it contains. */
static inline uint32_t
take_one(struct perf_client *c, const struct karst_cqe *e)
{
	uint32_t flow = (uint32_t)(e->wr_id >> 32), n;
	struct perf_flow *f;

	if (karst_unlikely(e->status != KARST_WC_SUCCESS || flow >= c->job.qps)) {
		take_error(c, e);
		return 0;
	}
	f = &c->flows[flow];
	n = (uint32_t)e->wr_id + 1 - (uint32_t)f->completed;
	if (karst_unlikely(n > f->posted - f->completed)) {
		take_error(c, e);
		return 0;
	}
	if (c->verify)
		perf_check_completed(c, flow, n);
	f->completed += n;
	take_sample(c, f);
	return n;
}

static uint32_t
client_reap_lane(struct perf_client *c, struct karst_cq_lane *lane)
{
	const struct karst_cqe *cqes;
	uint32_t i, n = karst_cq_lane_peek(lane, &cqes), done = 0;

	if (n == 0)
		return 0;
	for (i = 0; i < n; i++)
		done += take_one(c, &cqes[i]);
	karst_cq_lane_take(lane, n);
	c->outstanding -= done;
	perf_tally_add(&c->tally.completed, done);
	return n;
}

uint32_t
perf_client_reap(struct perf_client *c)
{
	uint32_t i, n = 0;

	for (i = 0; i < c->lanes.n; i++)
		n += client_reap_lane(c, &c->lanes.lane[i]);
	return n;
}

/* --- work requests --- */

/* Fills in the place and the peer of a message. */
static inline void
fill_wqe(struct perf_client *c, struct karst_send_wqe *w, const struct perf_flow *f, uint64_t off)
{
	const struct perf_job *j = &c->job;

	if (j->transport == PERF_UD)
		w->ud.remote_qpn = f->peer_qpn;
	else
		w->rdma.remote_addr = c->remote + off;
	if (j->op == PERF_OP_CAS || j->op == PERF_OP_FAA)
		w->atomic.sge[0].addr = c->local + off;
	else if (j->inlined)
		memcpy(w->inline_data, (const void *)(uintptr_t)(c->local + off), j->size);
	else
		w->sge[0].addr = c->local + off;
}

static inline void
post_batch(struct perf_client *c, uint32_t flow, uint32_t n)
{
	const struct perf_job *j = &c->job;
	struct perf_flow *f = &c->flows[flow];
	uint64_t off = ((uint64_t)f->row * j->qps + flow) * j->batch * j->stride + j->headroom;
	struct karst_send_wqe *w = NULL;
	uint32_t i;

	for (i = 0; i < n; i++, off += j->stride) {
		w = perf_qp_send_slot(f->qp, i);
		*w = c->template;
		if (c->verify)
			perf_check_posted(c, w, flow, f->posted + i, off);
		if (j->op == PERF_OP_WRITE_IMM)
			w->imm = (uint32_t)(f->posted + i);
		fill_wqe(c, w, f, off);
	}
	f->posted += n;
	w->wr_id = (uint64_t)flow << 32 | (uint32_t)(f->posted - 1);
	w->flags |= KARST_SEND_SIGNALED;
	if (f->sample_tsc == 0) {
		f->sample_tsc = rte_rdtsc();
		f->sample = f->posted - 1;
	}
	f->row = f->row + 1 == c->rows ? 0 : f->row + 1;
	if (karst_unlikely(perf_qp_post_send(f->qp, n) != 0))
		c->failed = true;
}

static inline uint32_t
client_wrap(const struct perf_client *c, uint32_t flow)
{
	return flow >= c->job.qps ? flow % c->job.qps : flow;
}

/* Prefetches the cache lines of the next flows, which only pays off when there are many. */
static inline void
prefetch_ahead(const struct perf_client *c)
{
	const struct perf_qp *qp;
	uint32_t i;

	rte_prefetch0(&c->flows[client_wrap(c, c->next + AHEAD_FLOW)]);
	rte_prefetch0(c->flows[client_wrap(c, c->next + AHEAD_QP)].qp);
	qp = c->flows[client_wrap(c, c->next + AHEAD_RING)].qp;
	rte_prefetch0(&qp->sq.sh->tail);
	rte_prefetch0(&qp->sq.sh->idle);
	for (i = 0; i < c->job.batch && i < 8; i++)
		rte_prefetch0(perf_qp_send_slot(qp, i));
}

/* How many messages may be posted to the flow now: a whole batch, or all messages that are left; 0:
 * none. */
static inline uint32_t
client_room(const struct perf_client *c, const struct perf_flow *f)
{
	uint32_t n = (uint32_t)karst_min_u64(c->job.batch, c->left);

	if (f->posted - f->completed + n > c->job.depth || karst_wq_free(&f->qp->sq, n) < n)
		return 0;
	/* a place is not used again before it was checked */
	if (karst_unlikely(c->late_check && f->posted - f->checked + n > c->job.slots))
		return 0;
	return n;
}

uint32_t
perf_client_post(struct perf_client *c)
{
	uint32_t posted = 0, full = 0;

	while (posted < c->turn_budget && c->outstanding + c->job.batch <= c->job.inflight &&
		!c->failed) {
		uint32_t flow = c->next, n = client_room(c, &c->flows[flow]);

		c->next = flow + 1 == c->job.qps ? 0 : flow + 1;
		if (n == 0) {
			/* nearly always the least recently visited flow: if it is full, all are */
			if (++full >= karst_min_u32(c->job.qps, 4))
				break;
			continue;
		}
		if (c->job.qps > AHEAD_FLOW)
			prefetch_ahead(c);
		post_batch(c, flow, n);
		c->outstanding += n;
		c->left -= n;
		posted += n;
	}
	if (posted > 0)
		perf_tally_add(&c->tally.posted, posted);
	return posted;
}
