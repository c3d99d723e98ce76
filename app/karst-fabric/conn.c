/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Connections: a queue pair of the sender and one of the receiver.  They learn their attributes
 * from each other by lib/cm (connect.c).  Their memory is used again for the next connection,
 * between any two hosts.
 */
#include <stdio.h>

#include "sim.h"

#define RECV_SLOTS    4u
#define MIN_RNR_TIMER 12u /* 640 us */

static void
make_end(struct fab_sim *s, struct fab_end *e)
{
	struct karst_qp_init *in = &e->init;

	*in = (struct karst_qp_init){
		.type = KARST_QPT_RC,
		.pd = s->pd,
		/* any queue: it is replaced by that of the host */
		.send_cq = s->host[0].cq,
		.recv_cq = s->host[0].cq,
		.max_send_wr = s->c->depth,
		.max_recv_wr = RECV_SLOTS,
		.max_send_sge = 1,
		.max_recv_sge = 1,
		.max_dest_rd_atomic = FAB_READS,
		.sq_sig_all = true,
		.pacer = true,
	};
	in->sq_shared = fab_alloc(s, karst_wq_bytes(in->max_send_wr, karst_wq_stride(true, 1, 0)));
	in->rq_shared = fab_alloc(s, karst_wq_bytes(in->max_recv_wr, karst_wq_stride(false, 1, 0)));
	e->mem = fab_alloc(s, karst_qp_bytes(in));
	if (s->c->repeat)
		e->repeat = fab_alloc(s, karst_repeat_bytes(FAB_REPEAT_WINDOW));
}

static void
conns_grow(struct fab_sim *s)
{
	uint32_t cap = s->conns_cap != 0 ? 2 * s->conns_cap : 64;
	struct fab_conn **all = fab_alloc(s, cap * sizeof(*all));

	if (s->nconns != 0)
		memcpy(all, s->conn, s->nconns * sizeof(*all));
	fab_free(s, s->conn);
	s->conn = all;
	s->conns_cap = cap;
}

static struct fab_conn *
get_conn(struct fab_sim *s)
{
	struct fab_conn *c = s->free_conns;

	if (c != NULL) {
		s->free_conns = c->next;
		return c;
	}
	if (s->nconns == s->conns_cap)
		conns_grow(s);
	c = s->conn[s->nconns] = fab_alloc(s, sizeof(*c));
	c->index = s->nconns++;
	make_end(s, &c->end[FAB_SENDER]);
	make_end(s, &c->end[FAB_RECEIVER]);
	c->posted_ps = fab_alloc(s, s->c->depth * sizeof(*c->posted_ps));
	return c;
}

static void
create_qp(struct fab_sim *s, struct fab_conn *c, struct fab_end *e, struct fab_host *h)
{
	int rc;

	if (h->nqps == FAB_MAX_QPS)
		fab_bail(s, -ENOSPC,
			"host %u: %u flows at once, more queue pairs than a host may have here; with a "
			"lower --load, or a shorter --duration, there are less",
			h->id, FAB_MAX_QPS);
	e->host = h;
	e->init.send_cq = e->init.recv_cq = h->cq;
	e->init.user = c;
	fab_host_enter(s, h);
	karst_qp_prepare(e->mem, &e->init);
	rc = karst_qp_create(h->core, e->mem, &e->init, &e->qp);
	if (rc != 0)
		fab_bail(s, rc, "queue pair of host %u: %s", h->id, strerror(-rc));
	h->nqps++;
}

static void
modify(struct fab_sim *s, struct fab_end *e, struct karst_core_qp_attr *a, unsigned int mask,
	enum karst_qp_state to)
{
	int rc;

	a->qp_state = to;
	rc = karst_qp_modify(e->host->core, e->qp, a, mask | KARST_QP_STATE);
	if (rc != 0)
		fab_bail(s, rc, "queue pair of host %u to state %d: %s", e->host->id, to,
			strerror(-rc));
}

uint8_t
fab_mtu_code(uint32_t mtu)
{
	return (uint8_t)(karst_log2(mtu) - 7);
}

static void
to_init(struct fab_sim *s, struct fab_end *e)
{
	struct karst_core_qp_attr a = {
		.port_num = 1,
		.access_flags = KARST_ACCESS_REMOTE_WRITE | KARST_ACCESS_REMOTE_READ,
	};

	modify(s, e, &a, KARST_QP_PKEY_INDEX | KARST_QP_PORT | KARST_QP_ACCESS_FLAGS,
		KARST_QPS_INIT);
	karst_wq_attach(
		&e->sq, e->init.sq_shared, e->init.max_send_wr, karst_wq_stride(true, 1, 0));
	karst_wq_attach(
		&e->rq, e->init.rq_shared, e->init.max_recv_wr, karst_wq_stride(false, 1, 0));
}

void
fab_conn_ready(struct fab_sim *s, struct fab_end *e, uint32_t peer, const struct fab_peer *p)
{
	struct karst_core_qp_attr a = {
		.path_mtu = p->path_mtu,
		.dest_qpn = p->qpn,
		.rq_psn = e->psn,
		.sq_psn = p->sq_psn,
		.max_rd_atomic = p->max_rd_atomic,
		.max_dest_rd_atomic = p->max_dest_rd_atomic,
		.min_rnr_timer = MIN_RNR_TIMER,
		.timeout = p->timeout,
		.retry_cnt = p->retry_cnt,
		.rnr_retry = p->rnr_retry,
		.repeat_window = p->repeat ? FAB_REPEAT_WINDOW : 0,
		.repeat_mem = p->repeat ? e->repeat : NULL,
	};

	fab_address(a.path.src_ip, a.path.src_mac, e->host->id);
	fab_address(a.path.dst_ip, a.path.dst_mac, peer);
	fab_host_enter(s, e->host);
	modify(s, e, &a,
		KARST_QP_AV | KARST_QP_PATH_MTU | KARST_QP_DEST_QPN | KARST_QP_RQ_PSN |
			KARST_QP_MAX_DEST_RD_ATOMIC | KARST_QP_MIN_RNR_TIMER | KARST_QP_REPEAT,
		KARST_QPS_RTR);
	modify(s, e, &a,
		KARST_QP_SQ_PSN | KARST_QP_TIMEOUT | KARST_QP_RETRY_CNT | KARST_QP_RNR_RETRY |
			KARST_QP_MAX_QP_RD_ATOMIC,
		KARST_QPS_RTS);
}

static void
create_qps(
	struct fab_sim *s, struct fab_conn *c, struct fab_host *sender, struct fab_host *receiver)
{
	create_qp(s, c, &c->end[FAB_SENDER], sender);
	create_qp(s, c, &c->end[FAB_RECEIVER], receiver);
	to_init(s, &c->end[FAB_SENDER]);
	to_init(s, &c->end[FAB_RECEIVER]);
	c->open = true;
}

struct fab_conn *
fab_conn_open(struct fab_sim *s, uint32_t src, uint32_t dst)
{
	struct fab_conn *c = get_conn(s);

	c->next = NULL;
	c->head = c->post = NULL;
	c->tail = &c->head;
	c->once = false;
	c->nposted = c->ncompleted = 0;
	c->tries = 0;
	/* READs are posted at the destination of their data */
	create_qps(s, c, &s->host[s->c->read ? dst : src], &s->host[s->c->read ? src : dst]);
	return c;
}

static void
destroy_qps(struct fab_sim *s, struct fab_conn *c)
{
	uint32_t i;

	for (i = 0; i < FAB_SIDES; i++) {
		struct fab_end *e = &c->end[i];

		fab_host_enter(s, e->host);
		/* discards completions that were not polled yet */
		karst_core_flush(e->host->core);
		karst_cq_lane_drop(&e->host->lane, karst_qp_num(e->qp));
		karst_qp_destroy(e->host->core, e->qp);
		e->host->nqps--;
	}
	c->open = false;
}

void
fab_conn_renew(struct fab_sim *s, struct fab_conn *c)
{
	destroy_qps(s, c);
	create_qps(s, c, c->end[FAB_SENDER].host, c->end[FAB_RECEIVER].host);
}

void
fab_conn_close(struct fab_sim *s, struct fab_conn *c)
{
	destroy_qps(s, c);
	c->live = false;
	/* connections made before the workload's time end after it, so as not to affect it */
	if (!s->at_once && !s->c->timed)
		return;
	fab_disconnect(s, c);
	c->next = s->free_conns;
	s->free_conns = c;
}

void
fab_conn_post_recv(struct fab_sim *s, struct fab_conn *c)
{
	struct fab_end *e = &c->end[FAB_RECEIVER];
	struct karst_recv_wqe *w;

	if (karst_wq_free(&e->rq, 1) == 0)
		fab_bail(s, -ENOSPC, "host %u: receive queue is full", e->host->id);
	w = karst_wq_slot(&e->rq, 0);
	*w = (struct karst_recv_wqe){.wr_id = (uintptr_t)c};
	karst_wq_publish(&e->rq, 1);
}
