/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Queue pairs: creation in the caller's memory, reset, failure, flushing and queries; modify.c has
 * the transitions.
 *
 * Memory of a QP: struct karst_core_qp, then one karst_sq_slot for each send ring slot, then the
 * karst_rsp ring, then the SGEs of the receive work request in progress.  XRC types lack a queue or
 * two; each is replaced by a private ring that is always empty, so that no code needs a special
 * case.
 */
#include "karst_qp.h"

#include "karst_prf.h"
#include "gaps.h"
#include "migrate.h"
#include "pacer.h"
#include "probe.h"
#include "repeat.h"
#include "wqe.h"

#include <errno.h>

/* --- layout --- */

static bool
type_is_xrc(const struct karst_qp_init *init)
{
	return init->type == KARST_QPT_XRC_SEND || init->type == KARST_QPT_XRC_RECV;
}

static uint32_t
sq_slots(const struct karst_qp_init *init)
{
	return init->type == KARST_QPT_XRC_RECV ? 1 : init->max_send_wr;
}

static uint32_t
rsp_slots(const struct karst_qp_init *init)
{
	return (init->type == KARST_QPT_RC || init->type == KARST_QPT_XRC_RECV) &&
			init->max_dest_rd_atomic != 0
		? karst_pow2_ceil(init->max_dest_rd_atomic)
		: 1;
}

static uint32_t
recv_sges(const struct karst_qp_init *init)
{
	uint32_t n = init->srq != NULL ? init->srq->ring.max_sge : init->max_recv_sge;

	if (init->type == KARST_QPT_XRC_RECV)
		return KARST_WQ_MAX_SGE; /* for any SRQ */
	return n != 0 ? n : 1;
}

/* An XRC target has only its domain. */
static bool
target_ok(const struct karst_qp_init *init)
{
	return init->pd == 0 && init->xrcd != 0 && init->send_cq == NULL && init->recv_cq == NULL &&
		init->srq == NULL && init->sq_shared == NULL && init->rq_shared == NULL &&
		init->max_send_wr == 0 && init->max_recv_wr == 0;
}

static bool
queues_ok(const struct karst_qp_init *init)
{
	if (init->sq_shared == NULL || !karst_is_pow2(init->max_send_wr) ||
		init->max_send_wr > KARST_WQ_MAX_SLOTS || init->max_send_sge == 0 ||
		init->max_send_sge > KARST_WQ_MAX_SGE || init->max_inline > KARST_WQ_MAX_INLINE ||
		init->send_cq == NULL || init->xrcd != 0)
		return false;
	if (init->type == KARST_QPT_XRC_SEND)
		return init->recv_cq == NULL && init->srq == NULL && init->rq_shared == NULL &&
			init->max_recv_wr == 0;
	if (init->recv_cq == NULL)
		return false;
	if (init->srq != NULL)
		return init->rq_shared == NULL && init->srq->xrcd == 0;
	return init->rq_shared != NULL && karst_is_pow2(init->max_recv_wr) &&
		init->max_recv_wr <= KARST_WQ_MAX_SLOTS && init->max_recv_sge != 0 &&
		init->max_recv_sge <= KARST_WQ_MAX_SGE;
}

size_t
karst_qp_bytes(const struct karst_qp_init *init)
{
	size_t n = offsetof(struct karst_core_qp, tail);

	if (init->type != KARST_QPT_RC && init->type != KARST_QPT_UC &&
		init->type != KARST_QPT_UD && !type_is_xrc(init))
		return 0;
	if (!(init->type == KARST_QPT_XRC_RECV ? target_ok(init) : queues_ok(init)) ||
		init->max_dest_rd_atomic > KARST_QP_MAX_RD_ATOMIC || init->ud_mtu > 5)
		return 0;
	n += sq_slots(init) * sizeof(struct karst_sq_slot);
	n += rsp_slots(init) * sizeof(struct karst_rsp);
	n += recv_sges(init) * sizeof(struct karst_sge);
	n += init->pacer ? sizeof(struct karst_pacer) : 0;
	n = (n + KARST_CACHE_LINE - 1) & ~(size_t)(KARST_CACHE_LINE - 1);
	return type_is_xrc(init) ? n + 2 * sizeof(struct karst_wq_shared) : n;
}

/* --- numbers --- */

static uint32_t *
free_at(struct karst_core *core, uint32_t i)
{
	uint32_t at = core->free_head + i;

	return &core->free[at < core->qpns ? at : at - core->qpns];
}

/* Draws a slot of the QPN table, from the older half of the free ones.  At least one is free. */
static uint32_t
draw_slot(struct karst_core *core)
{
	uint64_t random = karst_prf(core->qpn_key, core->drawn++, 0);
	uint32_t *first = free_at(core, 0);
	uint32_t *at = free_at(core, (uint32_t)(random % ((core->nfree + 1) / 2)));
	uint32_t slot = *at;

	*at = *first;
	core->free_head = core->free_head + 1 < core->qpns ? core->free_head + 1 : 0;
	core->nfree--;
	return slot;
}

static void
free_slot(struct karst_core *core, uint32_t slot)
{
	*free_at(core, core->nfree) = slot;
	core->nfree++;
}

/* --- creation and destruction --- */

static void
init_tail(struct karst_core_qp *qp, const struct karst_qp_init *init, size_t bytes)
{
	/* at the end, if the QP has such rings */
	struct karst_wq_shared *none = (struct karst_wq_shared *)((uint8_t *)qp + bytes) - 2;
	uint8_t *p = (uint8_t *)qp->tail;

	if (type_is_xrc(init))
		karst_wqe_init(&qp->rq, &none[0], 1, karst_wq_stride(false, 1, 0), 1, 0, false);
	if (init->type == KARST_QPT_XRC_RECV)
		karst_wqe_init(&qp->sq, &none[1], 1, karst_wq_stride(true, 1, 0), 1, 0, true);
	else
		karst_wqe_init(&qp->sq, init->sq_shared, init->max_send_wr,
			karst_wq_stride(true, init->max_send_sge, init->max_inline),
			init->max_send_sge, init->max_inline, true);
	if (init->rq_shared != NULL)
		karst_wqe_init(&qp->rq, init->rq_shared, init->max_recv_wr,
			karst_wq_stride(false, init->max_recv_sge, 0), init->max_recv_sge, 0,
			false);
	qp->req.slots = (struct karst_sq_slot *)p;
	p += sq_slots(init) * sizeof(struct karst_sq_slot);
	qp->rsp.rsps = (struct karst_rsp *)p;
	qp->rsp.rsp_mask = (uint16_t)(rsp_slots(init) - 1);
	p += rsp_slots(init) * sizeof(struct karst_rsp);
	qp->rsp.rwqe.sge = (struct karst_sge *)p;
	p += recv_sges(init) * sizeof(struct karst_sge);
	karst_pacer_open(qp, init->pacer ? (struct karst_pacer *)p : NULL);
}

static bool
lane_ok(const struct karst_core *core, const struct karst_core_cq *cq)
{
	return cq == NULL || cq->nlanes > core->lcore;
}

/* Adds @n to the use counts of the objects that the QP was created with. */
static void
count_users(struct karst_core_qp *qp, uint32_t n)
{
	if (qp->send_cq != NULL)
		atomic_fetch_add(&qp->send_cq->users, n);
	if (qp->recv_cq != NULL)
		atomic_fetch_add(&qp->recv_cq->users, n);
	if (qp->srq != NULL)
		qp->srq->users += n;
}

void
karst_qp_prepare(void *buf, const struct karst_qp_init *init)
{
	memset(buf, 0, karst_qp_bytes(init));
}

int
karst_qp_create(struct karst_core *core, void *buf, const struct karst_qp_init *init,
	struct karst_core_qp **out)
{
	size_t bytes = karst_qp_bytes(init);
	struct karst_core_qp *qp = buf;
	uint32_t slot;

	if (bytes == 0 || !lane_ok(core, init->send_cq) || !lane_ok(core, init->recv_cq) ||
		init->sharer >= core->sched.nusers ||
		(!init->pacer && (core->rp != NULL || core->swift != NULL)))
		return -EINVAL;
	/* the table has three numbers more than there are QPs, for those that are never given
	 * out */
	if (core->nqps == core->max_qps)
		return -ENOSPC;
	slot = draw_slot(core);
	qp->qpn = slot << core->lcore_bits | core->lcore;
	qp->type = (uint8_t)init->type;
	qp->state = KARST_QPS_RESET;
	qp->mtu_shift = (uint8_t)(7 + (init->ud_mtu != 0 ? init->ud_mtu : 5));
	qp->flags = (init->sq_sig_all ? KARST_QPF_SIG_ALL : 0) |
		(init->credits && !type_is_xrc(init) ? KARST_QPF_CREDITS : 0);
	qp->pd = init->pd;
	qp->pkey = 0xffff;
	qp->send_cq = init->send_cq;
	qp->recv_cq = init->recv_cq;
	qp->srq = init->srq;
	qp->xrcd = init->xrcd;
	qp->user = init->user;
	qp->ringer = init->ringer;
	qp->sharer = (uint16_t)init->sharer;
	init_tail(qp, init, bytes);
	karst_requester_reset(core, qp);
	karst_responder_reset(core, qp);

	count_users(qp, 1);
	core->qps[slot] = qp;
	core->nqps++;
	*out = qp;
	return 0;
}

static void
qp_unretire(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_core_qp **pp;

	if (!(qp->flags & KARST_QPF_RETIRED))
		return;
	for (pp = &core->retired; *pp != qp; pp = &(*pp)->next_retired)
		;
	*pp = qp->next_retired;
}

void
karst_qp_destroy(struct karst_core *core, struct karst_core_qp *qp)
{
	karst_copies_drop(core, qp);
	karst_gaps_drop(core, qp);
	karst_repeat_close(core, qp);
	if (qp->type == KARST_QPT_XRC_RECV)
		karst_xrc_leave(core, qp);
	karst_requester_timer_del(core, qp);
	karst_pacer_reset(core, qp);
	karst_requester_unlinger(core, qp);
	karst_sched_forget(core, qp);
	qp_unretire(core, qp);
	core->qps[qp->qpn >> core->lcore_bits] = NULL;
	free_slot(core, qp->qpn >> core->lcore_bits);
	core->nqps--;
	count_users(qp, UINT32_MAX);
}

/* Discards what the program has posted, even with an invalid tail. */
static void
empty_ring(struct karst_wqe_ring *ring, bool idle)
{
	uint32_t tail = atomic_load_explicit(&ring->sh->tail, memory_order_acquire);

	ring->tail = tail;
	karst_wqe_publish_head(ring, tail);
	/* release, as in karst_wqe_idle_begin() */
	atomic_store_explicit(&ring->sh->idle, idle, memory_order_release);
}

void
karst_requester_reset(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_requester *r = &qp->req;

	karst_requester_timer_del(core, qp);
	karst_pacer_reset(core, qp);
	karst_requester_unlinger(core, qp);
	karst_gaps_drop(core, qp);
	empty_ring(&qp->sq, true);
	r->una_idx = r->snd_idx = r->nxt_idx = qp->sq.tail;
	r->una_psn = r->snd_psn = r->nxt_psn = r->asked_psn = qp->sq_psn;
	r->rd_out = r->rd_psns = 0;
	r->flags = KARST_REQ_IDLE;
	r->ssn = 0;
	r->deadline_ns = 0;
	r->retry_left = r->retry_cnt;
	r->rnr_left = r->rnr_retry;
	r->window = core->window_packets;
	r->told = 0;
	qp->sq_corrupt = false;
	karst_probe_forget(r);
	r->probes = 0;
	qp->probe.rtt_ns = 0;
	qp->probe.steady = core->window_packets;
}

void
karst_responder_reset(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_responder *r = &qp->rsp;

	karst_sched_forget(core, qp);
	if (qp->srq == NULL)
		empty_ring(&qp->rq, false);
	qp->flags &= (uint8_t) ~(KARST_QPF_COMM_EST | KARST_QPF_RQ_BROKEN);
	qp->last_wqe = false;
	r->epsn = qp->rq_psn;
	r->msn = 0;
	r->op = KARST_MSG_NONE;
	r->wait = KARST_WAIT_NONE;
	r->owed = KARST_OWED_NONE;
	r->fatal = false;
	r->lead = 0;
	r->rsp_added = r->rsp_cur = r->rsp_done = r->rsp_again = 0;
	r->rsp_saved = 0;
	r->rsp_clock = 0;
	karst_rsp_leave_none(r);
	r->rwqe.held = false;
}

/* --- failing --- */

void
karst_qp_sq_corrupt(struct karst_core *core, struct karst_core_qp *qp)
{
	if (!qp->sq_corrupt)
		karst_count(&core->counters, KARST_CTR_SQ_CORRUPT);
	qp->sq_corrupt = true;
}

void
karst_qp_error(struct karst_core *core, struct karst_core_qp *qp, int event)
{
	struct karst_responder *r = &qp->rsp;

	if (qp->state == KARST_QPS_ERR)
		return;
	qp->state = KARST_QPS_ERR;
	if (karst_repeat_of(qp) != NULL)
		karst_repeat_drop_held(core, qp);
	karst_gaps_drop(core, qp);
	karst_requester_timer_del(core, qp);
	qp->req.deadline_ns = 0;
	if (!r->fatal) {
		/* no NAK is to be sent: the peer gets no answers any more */
		r->rsp_cur = r->rsp_added;
		r->owed = KARST_OWED_NONE;
	}
	if (event >= 0)
		karst_event(core, (enum karst_async_event_code)event, qp);
	karst_core_activate(core, qp);
}

/* --- flushing --- */

static void
flush_send(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_requester *r = &qp->req;
	uint32_t idx = r->una_idx;
	const struct karst_send_wqe *wqe = karst_wqe_slot(&qp->sq, idx);
	struct karst_cqe *cqe = karst_cq_push(core, qp->send_cq, true);
	uint8_t op = wqe->opcode;

	r->una_idx = idx + 1;
	karst_count(&core->counters, KARST_CTR_REQ_COMPLETIONS);
	karst_count(&core->counters, KARST_CTR_REQ_CQE_ERROR);
	karst_count(&core->counters, KARST_CTR_REQ_CQE_FLUSH_ERROR);
	if (cqe == NULL)
		return;
	*cqe = (struct karst_cqe){
		.wr_id = wqe->wr_id,
		.qpn = qp->qpn,
		.status = KARST_WC_WR_FLUSH_ERR,
		.opcode = op < KARST_WR_MAX ? karst_wr_infos[op].wc : KARST_WC_SEND,
		.slot = idx,
	};
}

/* @return true if the budget ended before the queue. */
static bool
flush_sq(struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b)
{
	struct karst_requester *r = &qp->req;
	bool more, broken;
	uint32_t n = 0;

	do {
		/* an invalid tail: what was read before is flushed, and nothing more is read */
		broken = karst_wqe_poll(&qp->sq) != 0;
		if (broken)
			karst_qp_sq_corrupt(core, qp);
		while (r->una_idx != qp->sq.tail && n < KARST_VISIT_QUIET) {
			if (karst_mutant(KARST_MUTANT_DEAF_FLUSH) &&
				r->una_idx + 1 == qp->sq.tail) {
				r->una_idx++;
				break;
			}
			flush_send(core, qp);
			n++;
		}
		more = r->una_idx != qp->sq.tail;
	} while (!more && !broken && karst_wqe_idle(&qp->sq));
	if (!more)
		r->flags |= KARST_REQ_IDLE;
	/* a queue that leaves SQE begins after what was flushed */
	if ((int32_t)(r->una_idx - r->nxt_idx) > 0)
		r->nxt_idx = r->una_idx;
	r->snd_idx = r->nxt_idx;
	r->snd_psn = r->una_psn = r->nxt_psn;
	r->rd_out = 0;
	karst_qp_retire_sends(core, qp);
	b->charge += n * KARST_QUIET_COST;
	return more;
}

static void
flush_one_recv(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_recv_done done = {.status = KARST_WC_WR_FLUSH_ERR, .opcode = KARST_WC_RECV};

	karst_recv_complete(core, qp, &done);
}

static bool
flush_rq(struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b)
{
	uint32_t n = 0;

	if (qp->type == KARST_QPT_XRC_RECV)
		karst_xrc_drop(qp);
	if (qp->rsp.rwqe.held)
		flush_one_recv(core, qp);
	if (qp->srq != NULL || qp->type == KARST_QPT_XRC_RECV) {
		if (!qp->last_wqe) {
			qp->last_wqe = true;
			karst_event(core, KARST_EVENT_QP_LAST_WQE_REACHED, qp);
		}
		return false;
	}
	if (qp->flags & KARST_QPF_RQ_BROKEN)
		return false;
	do {
		while (karst_recv_take(core, qp) == KARST_RWQE_OK) {
			flush_one_recv(core, qp);
			b->charge += KARST_QUIET_COST;
			if (++n == KARST_VISIT_QUIET)
				return true;
		}
	} while (!(qp->flags & KARST_QPF_RQ_BROKEN) && karst_wqe_idle(&qp->rq));
	return false;
}

bool
karst_qp_flush(struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b)
{
	bool more;

	/* bytes may still be written for a request; karst_copy_done() activates the QP again */
	if (karst_unlikely(qp->flags & KARST_QPF_COPIES) && qp->copy[KARST_COPY_RX] != NULL)
		return false;
	more = flush_sq(core, qp, b);
	if (qp->state == KARST_QPS_ERR)
		more |= flush_rq(core, qp, b);
	return more;
}

/* --- queries --- */

void
karst_qp_stats(const struct karst_core_qp *qp, struct karst_qp_stats *s)
{
	*s = (struct karst_qp_stats){
		.tx_packets = __atomic_load_n(&qp->tx_packets, __ATOMIC_RELAXED),
		.tx_bytes = __atomic_load_n(&qp->tx_bytes, __ATOMIC_RELAXED),
		.rx_packets = __atomic_load_n(&qp->rx_packets, __ATOMIC_RELAXED),
		.rx_bytes = __atomic_load_n(&qp->rx_bytes, __ATOMIC_RELAXED),
		.retransmits = __atomic_load_n(&qp->retransmits, __ATOMIC_RELAXED),
		.timeouts = __atomic_load_n(&qp->timeouts, __ATOMIC_RELAXED),
		.seq_naks = __atomic_load_n(&qp->seq_naks, __ATOMIC_RELAXED),
		.rnr_naks = __atomic_load_n(&qp->rnr_naks, __ATOMIC_RELAXED),
		.out_of_sequence = __atomic_load_n(&qp->out_of_sequence, __ATOMIC_RELAXED),
		.duplicates = __atomic_load_n(&qp->duplicates, __ATOMIC_RELAXED),
	};
}

void
karst_qp_send_queue(const struct karst_core_qp *qp, uint32_t *seen, uint32_t *done)
{
	*seen = qp->sq.tail;
	*done = qp->sq.head;
}

uint32_t
karst_qp_num(const struct karst_core_qp *qp)
{
	return qp->qpn;
}

enum karst_qp_state
karst_qp_state(const struct karst_core_qp *qp)
{
	return qp->state;
}

enum karst_qp_type
karst_qp_type(const struct karst_core_qp *qp)
{
	return qp->type;
}

void *
karst_qp_user(const struct karst_core_qp *qp)
{
	return qp->user;
}

void
karst_qp_set_user(struct karst_core *core, struct karst_core_qp *qp, void *user, const void *ringer,
	uint32_t sharer)
{
	qp->user = user;
	qp->ringer = ringer;
	karst_sched_share(core, qp, sharer);
}

const void *
karst_qp_ringer(const struct karst_core_qp *qp)
{
	return qp->ringer;
}

uint32_t
karst_qp_xrcd(const struct karst_core_qp *qp)
{
	return qp->xrcd;
}

uint8_t
karst_qp_port(const struct karst_core_qp *qp)
{
	return qp->port;
}

void
karst_qp_query(const struct karst_core_qp *qp, struct karst_core_qp_attr *attr)
{
	const struct karst_alternate *alt = qp->alternate;

	*attr = (struct karst_core_qp_attr){
		.qp_state = qp->state,
		.cur_qp_state = qp->state,
		.path_mtu = (uint8_t)(qp->mtu_shift - 7),
		.qkey = qp->type == KARST_QPT_UD ? qp->qkey : 0,
		.rq_psn = qp->rsp.epsn,
		.sq_psn = qp->req.nxt_psn,
		.dest_qpn = qp->dest_qpn,
		.access_flags = qp->rsp.access,
		.pkey = qp->pkey,
		.en_sqd_async_notify = (qp->flags & KARST_QPF_SQD_NOTIFY) != 0,
		.sq_draining =
			qp->state == KARST_QPS_SQD && (qp->req.flags & KARST_REQ_DRAIN_TOLD) == 0,
		.max_rd_atomic = qp->req.max_rd_atomic,
		.max_dest_rd_atomic = (uint8_t)qp->rsp.rsp_max,
		.min_rnr_timer = qp->rsp.min_rnr_timer,
		.port_num = qp->port_num,
		.timeout = qp->req.timeout,
		.retry_cnt = qp->req.retry_cnt,
		.rnr_retry = qp->req.rnr_retry,
		.path = qp->path,
		.repeat_window = qp->repeat != NULL ? qp->repeat->window : 0,
	};
	if (alt == NULL)
		return;
	attr->path_mig_state = (enum karst_mig_state)alt->state;
	if (!alt->loaded)
		return;
	attr->alt_path = alt->path;
	attr->alt_port_num = alt->port_num;
	attr->alt_timeout = alt->timeout;
}
