/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Transitions of a queue pair, as in ibv_modify_qp(3).  A table contains, for each transition and
 * type, which attributes must and may be given.  All values are checked before any is applied, so a
 * call that fails has changed nothing.
 */
#include "migrate.h"
#include "repeat.h"

#include <errno.h>

#define PKEY_      KARST_QP_PKEY_INDEX
#define PORT_      KARST_QP_PORT
#define ACC_       KARST_QP_ACCESS_FLAGS
#define QKEY_      KARST_QP_QKEY
#define CUR_       KARST_QP_CUR_STATE
#define RNRT_      KARST_QP_MIN_RNR_TIMER
#define ALT_       KARST_QP_ALT_PATH
#define MIG_       (KARST_QP_ALT_PATH | KARST_QP_PATH_MIG_STATE)
#define SQD_UC_OPT (PORT_ | KARST_QP_AV | ACC_ | PKEY_ | MIG_)
#define SQD_RC_OPT                                                                 \
	(SQD_UC_OPT | KARST_QP_TIMEOUT | KARST_QP_RETRY_CNT | KARST_QP_RNR_RETRY | \
		KARST_QP_MAX_QP_RD_ATOMIC | KARST_QP_MAX_DEST_RD_ATOMIC | RNRT_)

/* each has those of RC's attributes that belong to its direction */
#define INI_ KARST_QPT_XRC_SEND
#define TGT_ KARST_QPT_XRC_RECV

struct rule {
	uint8_t from;
	uint8_t to;
	uint8_t type;
	uint32_t required;
	uint32_t optional;
};

static const struct rule rules[] = {
	{KARST_QPS_RESET, KARST_QPS_INIT, KARST_QPT_RC, PKEY_ | PORT_ | ACC_, 0},
	{KARST_QPS_RESET, KARST_QPS_INIT, KARST_QPT_UC, PKEY_ | PORT_ | ACC_, 0},
	{KARST_QPS_RESET, KARST_QPS_INIT, KARST_QPT_UD, PKEY_ | PORT_ | QKEY_, 0},
	{KARST_QPS_RESET, KARST_QPS_INIT, INI_, PKEY_ | PORT_ | ACC_, 0},
	{KARST_QPS_RESET, KARST_QPS_INIT, TGT_, PKEY_ | PORT_ | ACC_, 0},
	{KARST_QPS_INIT, KARST_QPS_INIT, KARST_QPT_RC, 0, PKEY_ | PORT_ | ACC_},
	{KARST_QPS_INIT, KARST_QPS_INIT, KARST_QPT_UC, 0, PKEY_ | PORT_ | ACC_},
	{KARST_QPS_INIT, KARST_QPS_INIT, KARST_QPT_UD, 0, PKEY_ | PORT_ | QKEY_},
	{KARST_QPS_INIT, KARST_QPS_INIT, INI_, 0, PKEY_ | PORT_ | ACC_},
	{KARST_QPS_INIT, KARST_QPS_INIT, TGT_, 0, PKEY_ | PORT_ | ACC_},
	{KARST_QPS_INIT, KARST_QPS_RTR, KARST_QPT_RC,
		KARST_QP_AV | KARST_QP_PATH_MTU | KARST_QP_DEST_QPN | KARST_QP_RQ_PSN |
			KARST_QP_MAX_DEST_RD_ATOMIC | RNRT_,
		ACC_ | PKEY_ | ALT_ | KARST_QP_REPEAT},
	{KARST_QPS_INIT, KARST_QPS_RTR, KARST_QPT_UC,
		KARST_QP_AV | KARST_QP_PATH_MTU | KARST_QP_DEST_QPN | KARST_QP_RQ_PSN,
		ACC_ | PKEY_ | ALT_},
	{KARST_QPS_INIT, KARST_QPS_RTR, KARST_QPT_UD, 0, PKEY_ | QKEY_},
	{KARST_QPS_INIT, KARST_QPS_RTR, INI_,
		KARST_QP_AV | KARST_QP_PATH_MTU | KARST_QP_DEST_QPN | KARST_QP_RQ_PSN,
		ACC_ | PKEY_ | ALT_},
	{KARST_QPS_INIT, KARST_QPS_RTR, TGT_,
		KARST_QP_AV | KARST_QP_PATH_MTU | KARST_QP_DEST_QPN | KARST_QP_RQ_PSN |
			KARST_QP_MAX_DEST_RD_ATOMIC | RNRT_,
		ACC_ | PKEY_ | ALT_},
	{KARST_QPS_RTR, KARST_QPS_RTS, KARST_QPT_RC,
		KARST_QP_TIMEOUT | KARST_QP_RETRY_CNT | KARST_QP_RNR_RETRY | KARST_QP_SQ_PSN |
			KARST_QP_MAX_QP_RD_ATOMIC,
		CUR_ | ACC_ | MIG_ | RNRT_},
	{KARST_QPS_RTR, KARST_QPS_RTS, KARST_QPT_UC, KARST_QP_SQ_PSN, CUR_ | ACC_ | MIG_},
	{KARST_QPS_RTR, KARST_QPS_RTS, KARST_QPT_UD, KARST_QP_SQ_PSN, CUR_ | QKEY_},
	{KARST_QPS_RTR, KARST_QPS_RTS, INI_,
		KARST_QP_TIMEOUT | KARST_QP_RETRY_CNT | KARST_QP_RNR_RETRY | KARST_QP_SQ_PSN |
			KARST_QP_MAX_QP_RD_ATOMIC,
		CUR_ | ACC_ | MIG_},
	{KARST_QPS_RTR, KARST_QPS_RTS, TGT_, KARST_QP_TIMEOUT | KARST_QP_SQ_PSN,
		CUR_ | ACC_ | MIG_ | RNRT_},
	{KARST_QPS_RTS, KARST_QPS_RTS, KARST_QPT_RC, 0, CUR_ | ACC_ | MIG_ | RNRT_},
	{KARST_QPS_RTS, KARST_QPS_RTS, KARST_QPT_UC, 0, CUR_ | ACC_ | MIG_},
	{KARST_QPS_RTS, KARST_QPS_RTS, KARST_QPT_UD, 0, CUR_ | QKEY_},
	{KARST_QPS_RTS, KARST_QPS_RTS, INI_, 0, CUR_ | ACC_ | MIG_},
	{KARST_QPS_RTS, KARST_QPS_RTS, TGT_, 0, CUR_ | ACC_ | MIG_ | RNRT_},
	{KARST_QPS_RTS, KARST_QPS_SQD, KARST_QPT_RC, 0, KARST_QP_EN_SQD_ASYNC_NOTIFY},
	{KARST_QPS_RTS, KARST_QPS_SQD, KARST_QPT_UC, 0, KARST_QP_EN_SQD_ASYNC_NOTIFY},
	{KARST_QPS_RTS, KARST_QPS_SQD, KARST_QPT_UD, 0, KARST_QP_EN_SQD_ASYNC_NOTIFY},
	{KARST_QPS_RTS, KARST_QPS_SQD, INI_, 0, KARST_QP_EN_SQD_ASYNC_NOTIFY},
	{KARST_QPS_RTS, KARST_QPS_SQD, TGT_, 0, KARST_QP_EN_SQD_ASYNC_NOTIFY},
	{KARST_QPS_SQD, KARST_QPS_RTS, KARST_QPT_RC, 0, CUR_ | ACC_ | MIG_ | RNRT_},
	{KARST_QPS_SQD, KARST_QPS_RTS, KARST_QPT_UC, 0, CUR_ | ACC_ | MIG_},
	{KARST_QPS_SQD, KARST_QPS_RTS, KARST_QPT_UD, 0, CUR_ | QKEY_},
	{KARST_QPS_SQD, KARST_QPS_RTS, INI_, 0, CUR_ | ACC_ | MIG_},
	{KARST_QPS_SQD, KARST_QPS_RTS, TGT_, 0, CUR_ | ACC_ | MIG_ | RNRT_},
	{KARST_QPS_SQD, KARST_QPS_SQD, KARST_QPT_RC, 0, SQD_RC_OPT},
	{KARST_QPS_SQD, KARST_QPS_SQD, KARST_QPT_UC, 0, SQD_UC_OPT},
	{KARST_QPS_SQD, KARST_QPS_SQD, KARST_QPT_UD, 0, PKEY_ | QKEY_},
	{KARST_QPS_SQD, KARST_QPS_SQD, INI_, 0,
		SQD_UC_OPT | KARST_QP_TIMEOUT | KARST_QP_RETRY_CNT | KARST_QP_RNR_RETRY |
			KARST_QP_MAX_QP_RD_ATOMIC},
	{KARST_QPS_SQD, KARST_QPS_SQD, TGT_, 0,
		SQD_UC_OPT | KARST_QP_TIMEOUT | KARST_QP_MAX_DEST_RD_ATOMIC | RNRT_},
	{KARST_QPS_SQE, KARST_QPS_RTS, KARST_QPT_UC, 0, CUR_ | ACC_},
	{KARST_QPS_SQE, KARST_QPS_RTS, KARST_QPT_UD, 0, CUR_ | QKEY_},
};

/* --- checks --- */

int
karst_qp_transition(enum karst_qp_type type, enum karst_qp_state from, enum karst_qp_state to,
	unsigned int *required, unsigned int *optional)
{
	size_t i;

	*required = 0;
	*optional = 0;
	if (to == KARST_QPS_RESET || to == KARST_QPS_ERR)
		return 0;
	for (i = 0; i < KARST_DIM(rules); i++) {
		const struct rule *r = &rules[i];

		if (r->from != from || r->to != to || r->type != type)
			continue;
		*required = r->required;
		*optional = r->optional;
		return 0;
	}
	return -EINVAL;
}

static int
check_transition(const struct karst_core_qp *qp, uint8_t from, uint8_t to, unsigned int mask)
{
	unsigned int required, optional;

	mask &= ~(unsigned int)KARST_QP_STATE;
	if (karst_qp_transition(qp->type, from, to, &required, &optional) != 0 ||
		(mask & required) != required || (mask & ~(required | optional)) != 0)
		return -EINVAL;
	return 0;
}

static int
check_addresses(const struct karst_core_qp_attr *a, unsigned int mask)
{
	if ((mask & KARST_QP_AV) && karst_path_check(&a->path) != 0)
		return -EINVAL;
	if ((mask & KARST_QP_PATH_MTU) && (a->path_mtu < 1 || a->path_mtu > 5))
		return -EINVAL;
	if ((mask & KARST_QP_DEST_QPN) && a->dest_qpn > 0xffffff)
		return -EINVAL;
	if ((mask & KARST_QP_PKEY_INDEX) && a->pkey_index != 0)
		return -EINVAL;
	if ((mask & KARST_QP_ALT_PATH) &&
		(karst_path_check(&a->alt_path) != 0 || a->alt_pkey_index != 0 ||
			a->alt_port_num == 0 || a->alt_timeout > 31))
		return -EINVAL;
	if ((mask & KARST_QP_PORT) && a->port_num == 0)
		return -EINVAL;
	return 0;
}

static int
check_values(const struct karst_core_qp *qp, const struct karst_core_qp_attr *a, unsigned int mask)
{
	if ((mask & KARST_QP_ACCESS_FLAGS) &&
		(a->access_flags &
			~(unsigned int)(KARST_ACCESS_REMOTE | KARST_ACCESS_LOCAL_WRITE |
				KARST_ACCESS_MW_BIND)))
		return -EINVAL;
	if (((mask & KARST_QP_RQ_PSN) && a->rq_psn > KARST_PSN_MASK) ||
		((mask & KARST_QP_SQ_PSN) && a->sq_psn > KARST_PSN_MASK))
		return -EINVAL;
	if (((mask & KARST_QP_TIMEOUT) && a->timeout > 31) ||
		((mask & KARST_QP_RETRY_CNT) && a->retry_cnt > 7) ||
		((mask & KARST_QP_RNR_RETRY) && a->rnr_retry > 7) ||
		((mask & KARST_QP_MIN_RNR_TIMER) && a->min_rnr_timer > 31))
		return -EINVAL;
	if ((mask & KARST_QP_MAX_QP_RD_ATOMIC) && a->max_rd_atomic > KARST_QP_MAX_RD_ATOMIC)
		return -EINVAL;
	if ((mask & KARST_QP_MAX_DEST_RD_ATOMIC) && a->max_dest_rd_atomic > qp->rsp.rsp_mask + 1u)
		return -EINVAL;
	return 0;
}

/* X1, X2: accepts 0, or a window that this core has room for. */
static int
check_repeat(const struct karst_core *core, const struct karst_core_qp_attr *a)
{
	if (a->repeat_window == 0)
		return 0;
	return karst_repeat_bytes(a->repeat_window) == 0 || a->repeat_mem == NULL ||
			core->held_max == 0
		? -EINVAL
		: 0;
}

/* --- applying --- */

void
karst_qp_renew_watch(struct karst_core_qp *qp)
{
	qp->ip6 &= (uint8_t)~KARST_QP_WATCHES;
	if (karst_migrate_watches(qp))
		qp->ip6 |= KARST_QP_WATCHES;
}

void
karst_qp_renew_template(const struct karst_core *core, struct karst_core_qp *qp)
{
	uint8_t pair[8];

	if (qp->type == KARST_QPT_UD)
		return;
	karst_tmpl_init(&qp->tmpl, &qp->path, karst_tclass(&qp->path, core->ect), qp->qpn,
		qp->dest_qpn, qp->pkey);
	qp->tmpl.bth_flags = karst_migrate_bth_flags(core, qp);
	qp->ip6 = qp->path.ip6 ? KARST_PKT_IP6 : 0;
	if (core->latch_sport)
		qp->ip6 |= KARST_QP_LATCHES;
	karst_qp_renew_watch(qp);
	qp->peer_sport = 0;
	memcpy(pair, qp->path.dst_ip + 12, 4);
	memcpy(pair + 4, qp->path.src_ip + 12, 4);
	memcpy(&qp->rx_ip4, pair, sizeof(qp->rx_ip4));
}

static void
take_identity(struct karst_core *core, struct karst_core_qp *qp, const struct karst_core_qp_attr *a,
	unsigned int mask)
{
	uint8_t port = qp->port;

	if (mask & KARST_QP_PKEY_INDEX)
		qp->pkey = a->pkey != 0 ? a->pkey : 0xffff;
	if (mask & KARST_QP_PORT)
		qp->port_num = a->port_num;
	if ((mask & KARST_QP_PORT) && (qp->type == KARST_QPT_UD || qp->state <= KARST_QPS_INIT))
		qp->port = (uint8_t)(a->port_num - 1);
	if (mask & KARST_QP_QKEY)
		qp->qkey = a->qkey;
	if (mask & KARST_QP_AV) {
		qp->path = a->path;
		qp->port = a->path.port;
	}
	if (qp->port != port)
		karst_sched_move(core, qp);
	if (mask & KARST_QP_PATH_MTU)
		qp->mtu_shift = (uint8_t)(a->path_mtu + 7);
	if (mask & KARST_QP_DEST_QPN)
		qp->dest_qpn = a->dest_qpn;
	if (mask & (KARST_QP_AV | KARST_QP_DEST_QPN | KARST_QP_PKEY_INDEX))
		karst_qp_renew_template(core, qp);
	/* applies to one drain: each transition to SQD has to request it again */
	if ((mask & KARST_QP_STATE) && a->qp_state == KARST_QPS_SQD && qp->state != KARST_QPS_SQD) {
		qp->flags &= (uint8_t)~KARST_QPF_SQD_NOTIFY;
		if ((mask & KARST_QP_EN_SQD_ASYNC_NOTIFY) && a->en_sqd_async_notify)
			qp->flags |= KARST_QPF_SQD_NOTIFY;
	}
}

static void
take_responder(struct karst_core_qp *qp, const struct karst_core_qp_attr *a, unsigned int mask)
{
	struct karst_responder *r = &qp->rsp;

	if (mask & KARST_QP_ACCESS_FLAGS)
		r->access = a->access_flags & KARST_ACCESS_REMOTE;
	if (mask & KARST_QP_RQ_PSN)
		qp->rq_psn = r->epsn = a->rq_psn;
	if (mask & KARST_QP_MIN_RNR_TIMER)
		r->min_rnr_timer = a->min_rnr_timer;
	if (mask & KARST_QP_MAX_DEST_RD_ATOMIC) {
		r->rsp_max = a->max_dest_rd_atomic;
		if (r->rsp_saved > r->rsp_max)
			r->rsp_saved = r->rsp_max;
	}
}

static void
take_requester(struct karst_core *core, struct karst_core_qp *qp,
	const struct karst_core_qp_attr *a, unsigned int mask)
{
	struct karst_requester *r = &qp->req;

	if (mask & KARST_QP_SQ_PSN)
		qp->sq_psn = r->una_psn = r->snd_psn = r->nxt_psn = r->asked_psn = a->sq_psn;
	if (mask & KARST_QP_TIMEOUT) {
		r->timeout = a->timeout;
		r->rto_ns = a->timeout != 0 ? 4096ull << a->timeout : 0; /* Q6 */
		karst_requester_retime(core, qp);
	}
	if (mask & KARST_QP_RETRY_CNT)
		r->retry_cnt = r->retry_left = a->retry_cnt;
	if (mask & KARST_QP_RNR_RETRY)
		r->rnr_retry = r->rnr_left = a->rnr_retry;
	if (mask & KARST_QP_MAX_QP_RD_ATOMIC)
		r->max_rd_atomic = a->max_rd_atomic;
}

static void
qp_enter_state(struct karst_core *core, struct karst_core_qp *qp, uint8_t to)
{
	uint8_t from = qp->state;

	switch (to) {
	case KARST_QPS_RESET:
		karst_copies_drop(core, qp);
		karst_repeat_close(core, qp);
		karst_migrate_reset(qp);
		if (qp->type == KARST_QPT_XRC_RECV)
			karst_xrc_leave(core, qp);
		qp->state = KARST_QPS_RESET;
		qp->flags &= (uint8_t)~KARST_QPF_SQD_NOTIFY;
		karst_requester_reset(core, qp);
		karst_responder_reset(core, qp);
		return;
	case KARST_QPS_ERR:
		/* by the program: no event, and no NAK to send */
		karst_qp_error(core, qp, -1);
		return;
	default:
		qp->state = to;
	}
	if (to == KARST_QPS_SQD && from != KARST_QPS_SQD)
		qp->req.flags &= (uint8_t)~KARST_REQ_DRAIN_TOLD;
	/* requests may have been posted before; a queue that is drained raises the event */
	if (to == KARST_QPS_RTS)
		karst_core_activate(core, qp);
	else if (to == KARST_QPS_SQD)
		karst_requester_settle(core, qp);
}

int
karst_qp_modify(struct karst_core *core, struct karst_core_qp *qp,
	const struct karst_core_qp_attr *attr, unsigned int mask)
{
	uint8_t to = mask & KARST_QP_STATE ? (uint8_t)attr->qp_state : qp->state;
	int rc;

	if (mask & KARST_QP_CAP)
		return -EOPNOTSUPP;
	if ((mask & ~KARST_QP_REPEAT & ~((KARST_QP_DEST_QPN << 1) - 1u)) || to > KARST_QPS_ERR)
		return -EINVAL;
	if ((mask & KARST_QP_CUR_STATE) && attr->cur_qp_state != qp->state)
		return -EINVAL;
	rc = check_transition(qp, qp->state, to, mask);
	if (rc == 0 && (mask & KARST_QP_REPEAT))
		rc = check_repeat(core, attr);
	if (rc == 0)
		rc = check_addresses(attr, mask);
	if (rc == 0)
		rc = check_values(qp, attr, mask);
	if (rc == 0)
		rc = karst_migrate_check(qp, attr, mask);
	if (rc != 0)
		return rc;
	take_identity(core, qp, attr, mask);
	take_responder(qp, attr, mask);
	take_requester(core, qp, attr, mask);
	if ((mask & KARST_QP_REPEAT) && attr->repeat_window != 0)
		karst_repeat_open(core, qp, attr->repeat_mem, attr->repeat_window);
	if ((mask & KARST_QP_SQ_PSN) && qp->repeat != NULL)
		karst_repeat_begin(qp);
	if ((mask & KARST_QP_STATE) && (to != qp->state || to == KARST_QPS_SQD))
		qp_enter_state(core, qp, to);
	if (mask & MIG_)
		karst_migrate_modify(core, qp, attr, mask);
	return 0;
}
