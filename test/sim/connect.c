/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Connects two queue pairs, resets them between epochs, and destroys the world.  Every call must
 * succeed, because it is valid.
 */
#include "sim.h"

static void
modify_qp(struct sim_ep *ep, struct karst_core_qp *qp, struct karst_core_qp_attr *a,
	enum karst_qp_state to, unsigned int mask)
{
	int rc;

	a->qp_state = to;
	ep->core->core->now_ns = ep->s->now_ns;
	rc = karst_qp_modify(ep->core->core, qp, a, mask | KARST_QP_STATE);
	if (rc != 0)
		sim_fail(ep->s, "pair %u end %u: karst_qp_modify to state %d, mask %#x: %d",
			ep->pair->idx, (unsigned int)(ep == &ep->pair->ep[1]), to, mask, rc);
	if (karst_qp_state(qp) != to)
		sim_fail(ep->s, "pair %u: state is %d instead of %d", ep->pair->idx,
			karst_qp_state(qp), to);
	ep->asked = to;
}

static void
connect_modify(
	struct sim_ep *ep, struct karst_core_qp_attr *a, enum karst_qp_state to, unsigned int mask)
{
	modify_qp(ep, ep->qp, a, to, mask);
}

/* Draws new attributes for each epoch: PSNs, which often wrap around (P1), outstanding READs (Q5,
 * R6), times (Q6, Q7). */
static void
draw_attr(struct sim_ep *ep)
{
	struct sim *s = ep->s;
	struct sim_rng *r = &s->rng;
	struct sim_pair *p = ep->pair;

	ep->sq_psn = rng_one_in(r, 2) ? rng_below(r, 1 << 24) : 0xffffff - rng_below(r, 80);
	ep->max_rd_atomic = (uint8_t)rng_log(r, 1, 16);
	ep->max_dest_rd_atomic = 0; /* set when both ends are drawn */
	ep->min_rnr_timer = (uint8_t)(rng_one_in(r, 10) ? rng_below(r, 32) : rng_range(r, 1, 10));
	ep->timeout = (uint8_t)rng_range(r, 9, 14);
	if (!s->lossy && !s->jumbled && p->fault == FAULT_NONE && rng_one_in(r, 4))
		ep->timeout = 0;
	ep->retry_cnt = 7;
	ep->rnr_retry = 7;
	ep->access = KARST_ACCESS_REMOTE;
	if (p->fault != FAULT_NONE && rng_one_in(r, 2))
		ep->retry_cnt = (uint8_t)rng_range(r, s->lossy ? 5 : 0, 7);
	if (p->fault == FAULT_RNR && &p->ep[p->fault_end] == ep) {
		ep->rnr_retry = (uint8_t)rng_below(r, 7);
		ep->peer->min_rnr_timer = (uint8_t)rng_range(r, 1, 20);
	}
	if (p->fault == FAULT_ACCESS && &p->ep[p->fault_end] == ep->peer && rng_one_in(r, 2))
		ep->access = 0; /* the peer's accesses are refused */
}

static void
reset_ep_model(struct sim_ep *ep)
{
	struct sim *s = ep->s;
	uint32_t i;

	ep->state = EP_LIVE;
	ep->send_failed = ep->recv_failed = ep->hard_error = ep->unexplained = false;
	ep->ops_cap = s->ops_per_ep + 8;
	ep->ops = sim_alloc_raw(s, ep->ops_cap * sizeof(*ep->ops));
	ep->nops = ep->done = 0;
	ep->budget = rng_range(&s->rng, s->ops_per_ep / 2, s->ops_per_ep);
	ep->unsignaled = ep->sq_used = ep->rq_used = 0;
	ep->next_lpsn = ep->next_msn = ep->next_recv_seq = 0;
	ep->draining = ep->drained = false;
	ep->recvs_cap = 4096;
	ep->recvs = sim_alloc_raw(s, ep->recvs_cap * sizeof(*ep->recvs));
	ep->nrecvs = ep->rdone = ep->rx_next = ep->rx_received = 0;
	ep->last_wqe_event = ep->comm_est = false;
	ep->bad_events = 0;
	ep->tx_last = UINT32_MAX;
	ep->confirmed = ep->lsn = 0;
	ep->limited = false;
	ep->quiet_ns = s->now_ns;
	ep->quiet_psn = ep->tries = ep->heard = 0;
	ep->naks = false;
	ep->waited = ep->waited_once = 0;
	ep->known = 0;
	ep->spilt = false;
	ep->tx_hi = ep->acked = ep->delivered_hi = ep->hint = ep->rd_out = 0;
	ep->cnps_stale += ep->cnps_due[0] + ep->cnps_due[1];
	ep->cnps_due[0] = ep->cnps_due[1] = 0;
	ep->slow_ns[0] = ep->slow_ns[1] = 0;
	sim_repeat_reset(ep);
	sim_delay_reset(ep);
	sim_paths_reset(ep);
	ep->since_ackreq = ep->adverse = ep->adverse_done = ep->ud_psn = 0;
	ep->fault_at = rng_below(&s->rng, ep->budget);
	ep->fault_done = false;
	ep->scribbles = ep->pair->victim ? 30 : 0;
	for (i = 0; i < SIM_CELLS; i++)
		ep->cells[i].npending = ep->cells[i].readers = 0;
	if (ep->mw.state == MW_BINDING || ep->mw.state == MW_DYING)
		ep->mw.state = MW_LOST;
	ep->mw.users = 0;
	for (i = 0; i < SIM_WORDS; i++) {
		struct sim_word *w = &ep->words[i];

		memcpy(&w->initial, ep->node->mem + w->off, 8);
		w->done_bits = w->posted_bits = 0;
		w->nops = 0;
		w->last_seen = w->initial;
	}
}

static void
to_init(struct sim_ep *ep)
{
	struct karst_core_qp_attr a = {.pkey_index = 0, .port_num = 1};

	a.access_flags = ep->access;
	a.qkey = ep->qkey;
	connect_modify(ep, &a, KARST_QPS_INIT,
		KARST_QP_PKEY_INDEX | KARST_QP_PORT |
			(ep->pair->type == KARST_QPT_UD ? KARST_QP_QKEY : KARST_QP_ACCESS_FLAGS));
	if (ep->target != NULL)
		modify_qp(ep, ep->target, &a, KARST_QPS_INIT,
			KARST_QP_PKEY_INDEX | KARST_QP_PORT | KARST_QP_ACCESS_FLAGS);
	if (ep->srq == NULL)
		karst_wq_attach(&ep->rq, ep->init.rq_shared, ep->init.max_recv_wr,
			karst_wq_stride(false, ep->init.max_recv_sge, 0));
	karst_wq_attach(&ep->sq, ep->init.sq_shared, ep->init.max_send_wr,
		karst_wq_stride(true, ep->init.max_send_sge, ep->init.max_inline));
}

static void
to_rtr(struct sim_ep *ep)
{
	struct karst_core_qp_attr a = {.path_mtu = (uint8_t)(ep->pair->mtu_shift - 7)};
	unsigned int mask = 0;

	a.dest_qpn = ep->peer->target_qpn;
	a.rq_psn = ep->peer->sq_psn;
	a.path = ep->path;
	a.max_dest_rd_atomic = ep->max_dest_rd_atomic;
	a.min_rnr_timer = ep->min_rnr_timer;
	if (ep->pair->type != KARST_QPT_UD)
		mask = KARST_QP_AV | KARST_QP_PATH_MTU | KARST_QP_DEST_QPN | KARST_QP_RQ_PSN;
	if (ep->target != NULL) {
		/* the target receives from the peer's requester; the requester here receives no
		 * requests */
		connect_modify(ep, &a, KARST_QPS_RTR, mask);
		a.dest_qpn = ep->peer->qpn;
		modify_qp(ep, ep->target, &a, KARST_QPS_RTR,
			mask | KARST_QP_MAX_DEST_RD_ATOMIC | KARST_QP_MIN_RNR_TIMER);
		return;
	}
	if (ep->pair->type == KARST_QPT_RC)
		mask |= KARST_QP_MAX_DEST_RD_ATOMIC | KARST_QP_MIN_RNR_TIMER;
	mask |= sim_repeat_attr(ep, &a) | sim_paths_attr(ep, &a);
	connect_modify(ep, &a, KARST_QPS_RTR, mask);
}

static void
to_rts(struct sim_ep *ep)
{
	struct karst_core_qp_attr a = {.sq_psn = ep->sq_psn};
	unsigned int mask = KARST_QP_SQ_PSN;

	a.timeout = ep->timeout;
	a.retry_cnt = ep->retry_cnt;
	a.rnr_retry = ep->rnr_retry;
	a.max_rd_atomic = ep->max_rd_atomic;
	if (ep->pair->type == KARST_QPT_RC)
		mask |= KARST_QP_TIMEOUT | KARST_QP_RETRY_CNT | KARST_QP_RNR_RETRY |
			KARST_QP_MAX_QP_RD_ATOMIC;
	if (sim_paths_attr(ep, &a) != 0)
		mask |= KARST_QP_PATH_MIG_STATE;
	connect_modify(ep, &a, KARST_QPS_RTS, mask);
	if (ep->target != NULL)
		modify_qp(ep, ep->target, &a, KARST_QPS_RTS, KARST_QP_SQ_PSN | KARST_QP_TIMEOUT);
}

void
sim_connect(struct sim *s, struct sim_pair *p)
{
	uint32_t e;

	p->broken = p->torn = false;
	p->dead_ns = UINT64_MAX;
	for (e = 0; e < 2; e++)
		draw_attr(&p->ep[e]);
	for (e = 0; e < 2; e++) {
		struct sim_ep *ep = &p->ep[e];
		uint32_t n = ep->peer->max_rd_atomic + (rng_one_in(&s->rng, 2) ? 0 : 3);

		ep->max_dest_rd_atomic = (uint8_t)n;
		reset_ep_model(ep);
		to_init(ep);
	}
	to_rtr(&p->ep[0]);
	to_rtr(&p->ep[1]);
	to_rts(&p->ep[0]);
	to_rts(&p->ep[1]);
}

void
sim_disconnect(struct sim *s, struct sim_pair *p)
{
	struct karst_core_qp_attr a = {0};
	uint32_t e;

	for (e = 0; e < 2; e++) {
		struct sim_ep *ep = &p->ep[e];

		if (ep->qp == NULL)
			continue;
		connect_modify(ep, &a, KARST_QPS_RESET, 0);
		if (ep->target != NULL)
			modify_qp(ep, ep->target, &a, KARST_QPS_RESET, 0);
	}
}

void
sim_ep_destroy(struct sim_ep *ep)
{
	struct sim *s = ep->s;

	if (ep->qp == NULL)
		return;
	ep->core->core->now_ns = s->now_ns;
	karst_qp_destroy(ep->core->core, ep->qp);
	if (karst_core_lookup(ep->core->core, ep->qpn) != NULL)
		sim_fail(s, "QP %#x can be found after its destruction", ep->qpn);
	memset(ep->qp_mem, 0x7e, karst_qp_bytes(&ep->init));
	karst_mw_release_qp(ep->node->mem_table, ep->qpn);
	karst_pd_unref(ep->node->mem_table, ep->init.pd);
	ep->core->by_slot[ep->qpn >> s->lcore_bits] = NULL;
	ep->qp = NULL;
	if (ep->target == NULL)
		return;
	karst_qp_destroy(ep->core->core, ep->target);
	ep->core->by_slot[ep->target_qpn >> s->lcore_bits] = NULL;
	ep->target = NULL;
}

static void
take_down_node(struct sim *s, struct sim_node *n)
{
	uint32_t i, j;
	int rc;

	for (i = 0; i < s->ncores; i++) {
		struct sim_core *c = &n->cores[i];

		if (karst_core_has_active(c->core) || c->core->timing.count != 0)
			sim_fail(s, "node %u core %u: %s without any QP", n->idx, i,
				karst_core_has_active(c->core) ? "active list" : "timers");
		if (c->nheld != 0 || c->core->nheld != 0)
			sim_fail(s, "node %u core %u: %u frames are held without any QP", n->idx, i,
				c->nheld);
		for (j = 0; j < SIM_SRQS; j++) {
			if (c->srq[j].srq == NULL)
				continue;
			rc = karst_srq_destroy(c->core, c->srq[j].srq);
			if (rc != 0)
				sim_fail(s, "karst_srq_destroy(): %d", rc);
			karst_pd_unref(n->mem_table, c->srq[j].pd);
		}
	}
	for (i = 0; i < n->ncqs; i++) {
		rc = karst_cq_destroy(n->cqs[i].cq);
		if (rc != 0)
			sim_fail(s, "karst_cq_destroy(): %d", rc);
	}
	for (i = 0; i < n->nmrs; i++) {
		if (n->mrs[i].gone)
			continue;
		rc = karst_mr_dereg_begin(n->mem_table, n->mrs[i].key);
		if (rc != 0)
			sim_fail(s, "karst_mr_dereg_begin() at the end: %d", rc);
		karst_mr_dereg_end(n->mem_table, n->mrs[i].key);
	}
}

void
sim_take_down(struct sim *s)
{
	uint32_t i, e;

	for (i = 0; i < s->npairs; i++) {
		for (e = 0; e < 2; e++) {
			struct sim_ep *ep = &s->pairs[i].ep[e];

			if (ep->pair->type == KARST_QPT_UD &&
				karst_ah_destroy(ep->node->ahs, ep->ah) != 0)
				sim_fail(s, "karst_ah_destroy()");
			sim_ep_destroy(ep);
			if (ep->pair->type == KARST_QPT_RC) {
				if (karst_mw_free_begin(ep->node->mem_table, ep->mw.key) != 0)
					sim_fail(s, "karst_mw_free_begin()");
				karst_mw_free_end(ep->node->mem_table, ep->mw.key);
			}
		}
	}
	for (i = 0; i < s->nnodes; i++)
		take_down_node(s, &s->nodes[i]);
}
