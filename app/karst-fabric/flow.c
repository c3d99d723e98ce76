/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Flows: bytes that a program moves over a connection by WRITEs, or by READs, as many at a time as
 * the send queue holds.  A flow is done when its last request has completed at the host that posted
 * it.
 *
 * All requests use one region as source and destination, because the contents do not matter.
 */
#include "sim.h"

struct fab_flow *
fab_flow_at(struct fab_sim *s, uint64_t i)
{
	return &s->flow[i / FAB_FLOW_CHUNK][i % FAB_FLOW_CHUNK];
}

/* Adds a chunk. */
static void
flows_grow(struct fab_sim *s)
{
	uint64_t n = s->nflows / FAB_FLOW_CHUNK;
	struct fab_flow **all;

	/* the list doubles */
	if ((n & (n - 1)) == 0) {
		all = fab_alloc(s, (n != 0 ? 2 * n : 1) * sizeof(*all));
		if (n != 0)
			memcpy(all, s->flow, n * sizeof(*all));
		fab_free(s, s->flow);
		s->flow = all;
	}
	s->flow[n] = fab_alloc(s, FAB_FLOW_CHUNK * sizeof(**all));
}

struct fab_flow *
fab_flow_new(struct fab_sim *s, uint32_t src, uint32_t dst, uint64_t size)
{
	struct fab_flow *f;

	if (s->nflows % FAB_FLOW_CHUNK == 0)
		flows_grow(s);
	f = fab_flow_at(s, s->nflows++);
	f->r.src = src;
	f->r.dst = dst;
	f->r.size = size;
	return f;
}

/* --- posting --- */

static bool
is_posted(const struct fab_flow *f)
{
	return f->r.size != 0 && f->posted == f->r.size;
}

static void
fill(const struct fab_sim *s, const struct fab_conn *c, struct fab_flow *f,
	struct karst_send_wqe *w)
{
	uint64_t n = s->c->message;
	bool last;

	if (f->r.size != 0)
		n = karst_min_u64(n, f->r.size - f->posted);
	f->posted += n;
	last = is_posted(f);
	*w = (struct karst_send_wqe){
		.wr_id = (uintptr_t)c,
		.opcode = s->c->read      ? KARST_WR_RDMA_READ
			: last && f->tell ? KARST_WR_RDMA_WRITE_WITH_IMM
					  : KARST_WR_RDMA_WRITE,
		.num = 1,
		.imm = f->imm,
	};
	w->rdma.remote_addr = (uintptr_t)s->region;
	w->rdma.rkey = s->key;
	w->sge[0].addr = (uintptr_t)s->region;
	w->sge[0].len = (uint32_t)n;
	w->sge[0].lkey = s->key;
}

static void
post(struct fab_sim *s, struct fab_conn *c)
{
	struct fab_end *e = &c->end[FAB_SENDER];
	uint32_t room = karst_wq_free(&e->sq, e->init.max_send_wr), n = 0;

	if (s->ended)
		return;
	while (c->post != NULL && n < room) {
		fill(s, c, c->post, karst_wq_slot(&e->sq, n++));
		c->posted_ps[c->nposted++ & (s->c->depth - 1)] = s->now_ps;
		if (is_posted(c->post))
			c->post = c->post->next;
	}
	if (n != 0 && karst_wq_publish(&e->sq, n)) {
		fab_host_enter(s, e->host);
		karst_core_doorbell(e->host->core, karst_qp_num(e->qp));
	}
}

void
fab_flow_begin(struct fab_sim *s, struct fab_flow *f, struct fab_conn *c)
{
	f->conn = c;
	if (!f->asked)
		f->r.start_ps = s->now_ps;
	f->r.ideal_ps = fab_ideal_ps(s, f->r.src, f->r.dst, f->r.size, f->tell);
	*c->tail = f;
	c->tail = &f->next;
	if (c->post == NULL)
		c->post = f;
	s->running++;
	post(s, c);
	fab_host_run(s, c->end[FAB_SENDER].host);
}

void
fab_flow_ask(struct fab_sim *s, struct fab_flow *f, struct fab_conn *c)
{
	f->asked = true;
	f->r.start_ps = s->now_ps;
	c->first = f;
	s->waiting++;
	fab_connect(s, c);
}

/* --- ending --- */

void
fab_flow_refuse(struct fab_sim *s, struct fab_flow *f)
{
	if (!f->asked)
		f->r.start_ps = s->now_ps;
	f->r.state = FAB_FLOW_FAILED;
	f->r.end_ps = s->now_ps;
	f->conn = NULL;
}

static void
end_flow(struct fab_sim *s, struct fab_conn *c, enum fab_flow_state state)
{
	struct fab_flow *f = c->head;

	f->r.state = state;
	f->r.end_ps = s->now_ps;
	f->conn = NULL;
	s->running--;
	c->head = f->next;
	if (c->head == NULL)
		c->tail = &c->head;
}

/* Fails all flows of the connection. */
void
fab_flow_fail(struct fab_sim *s, struct fab_conn *c)
{
	while (c->head != NULL)
		end_flow(s, c, FAB_FLOW_FAILED);
	c->post = NULL;
	fab_conn_close(s, c);
}

void
fab_flow_completion(struct fab_sim *s, const struct karst_cqe *cqe)
{
	struct fab_conn *c = (struct fab_conn *)(uintptr_t)cqe->wr_id;
	struct fab_flow *f = c->head;

	if (cqe->opcode & KARST_WC_RECV) {
		if (cqe->status == KARST_WC_SUCCESS)
			fab_workload_received(s, c);
		return;
	}
	if (cqe->status != KARST_WC_SUCCESS) {
		fab_flow_fail(s, c);
		return;
	}
	if (s->counted_until_ps == 0)
		fab_gauge_count(
			&s->message, s->now_ps - c->posted_ps[c->ncompleted & (s->c->depth - 1)]);
	c->ncompleted++;
	f->r.bytes += cqe->byte_len;
	if (f->r.size != 0 && f->r.bytes == f->r.size) {
		end_flow(s, c, FAB_FLOW_DONE);
		if (c->once && c->head == NULL) {
			fab_conn_close(s, c);
			return;
		}
	}
	post(s, c);
}
