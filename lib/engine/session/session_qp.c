/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Queue pairs of a session: creation and destruction.  session_attr.c checks their attributes.
 */
#include "session_priv.h"

#define QP_KNOWN_FLAGS (KARST_CTL_QP_SIG_ALL | KARST_CTL_QP_CREDITS)

/* --- checks --- */

static int
check_most(struct session_call *c, const char *name, uint32_t value, uint32_t most)
{
	return value <= most ? 0 : reason(c, -EINVAL, "%s %u exceeds %u", name, value, most);
}

static int
check_sizes(struct session_call *c, const struct karst_ctl_create_qp_req *req)
{
	int ret = check_most(c, "max_send_wr", req->max_send_wr, KARST_WQ_MAX_SLOTS);

	if (ret == 0)
		ret = check_most(c, "max_recv_wr", req->max_recv_wr, KARST_WQ_MAX_SLOTS);
	if (ret == 0)
		ret = check_most(c, "max_send_sge", req->max_send_sge, KARST_WQ_MAX_SGE);
	if (ret == 0)
		ret = check_most(c, "max_recv_sge", req->max_recv_sge, KARST_WQ_MAX_SGE);
	if (ret == 0)
		ret = check_most(c, "max_inline", req->max_inline, KARST_WQ_MAX_INLINE);
	if (ret == 0)
		ret = check_most(
			c, "max_dest_rd_atomic", req->max_dest_rd_atomic, KARST_QP_MAX_RD_ATOMIC);
	return ret;
}

static bool
type_is_xrc(uint32_t type)
{
	return type == KARST_QPT_XRC_SEND || type == KARST_QPT_XRC_RECV;
}

static int
check_type(struct session_call *c, uint32_t type)
{
	if ((type >= KARST_QPT_RC && type <= KARST_QPT_UD) || type_is_xrc(type))
		return 0;
	return reason(c, -EINVAL,
		"type %u: must be %u (RC), %u (UC), %u (UD), %u (XRC_SEND) or %u (XRC_RECV)", type,
		KARST_QPT_RC, KARST_QPT_UC, KARST_QPT_UD, KARST_QPT_XRC_SEND, KARST_QPT_XRC_RECV);
}

/* Members that a type does not have must be 0. */
static int
check_absent(struct session_call *c, const struct karst_ctl_create_qp_req *req)
{
	const struct {
		const char *name;
		uint32_t value;
		bool of_send, of_recv; /* whether XRC_SEND, XRC_RECV and the other types have it */
		bool of_others;
	} members[] = {
		{"pd", req->pd, true, false, true},
		{"send_cq", req->send_cq, true, false, true},
		{"recv_cq", req->recv_cq, false, false, true},
		{"srq", req->srq, false, false, true},
		{"max_send_wr", req->max_send_wr, true, false, true},
		{"max_recv_wr", req->max_recv_wr, false, false, true},
		{"max_send_sge", req->max_send_sge, true, false, true},
		{"max_recv_sge", req->max_recv_sge, false, false, true},
		{"max_inline", req->max_inline, true, false, true},
		{"xrcd", req->xrcd, false, true, false},
	};
	size_t i;

	for (i = 0; i < KARST_DIM(members); i++) {
		bool has = req->type == KARST_QPT_XRC_SEND ? members[i].of_send
			: req->type == KARST_QPT_XRC_RECV  ? members[i].of_recv
							   : members[i].of_others;

		if (!has && members[i].value != 0)
			return reason(c, -EINVAL, "%s %u: must be 0 for a queue pair of type %s",
				members[i].name, members[i].value,
				eng_qp_type_name((enum karst_qp_type)req->type));
	}
	return 0;
}

static int
check_create(const struct karst_session *s, struct session_call *c,
	const struct karst_ctl_create_qp_req *req, const uint32_t *home)
{
	if ((req->flags & ~(uint32_t)QP_KNOWN_FLAGS) != 0)
		return reason(c, -EINVAL, "flags 0x%x has unknown bits; known are 0x%x", req->flags,
			QP_KNOWN_FLAGS);
	if (req->lcore != KARST_ENGINE_ANY_LCORE && req->lcore >= s->e->nlcores)
		return reason(c, -EINVAL,
			"lcore %u: the engine has %u lcores, numbered from 0; %u means any",
			req->lcore, s->e->nlcores, KARST_ENGINE_ANY_LCORE);
	if (home != NULL && req->lcore != KARST_ENGINE_ANY_LCORE && req->lcore != *home)
		return reason(c, -EINVAL, "lcore %u: must be that of the %s, %u", req->lcore,
			req->srq != 0 ? "shared receive queue" : "XRC domain", *home);
	return check_sizes(c, req);
}

/* --- creation --- */

static int
create_fault(const struct karst_session *s, struct session_call *c, int ret)
{
	if (ret == -ENOSPC)
		return reason(c, ret, "queue pair: the lcore's limit of %u is reached",
			s->e->cfg.max_qps);
	if (ret == -ENOMEM && eng_session_ring_fault(s, c))
		return ret;
	if (ret == -ENOMEM)
		return reason(c, ret,
			"queue pair: no room in the ring memory, of which this program has %llu "
			"bytes and may have %llu (max_ring_bytes)",
			(unsigned long long)karst_engine_owner_ring_bytes(s->owner),
			(unsigned long long)s->limits.max_ring_bytes);
	return reason(c, ret, "queue pair: %s", strerror(-ret));
}

static void
place_queue(const struct karst_session *s, const struct karst_wq *wq, uint32_t *slots,
	uint32_t *stride, struct karst_ctl_place *place)
{
	*slots = wq->mask + 1;
	*stride = 1u << wq->shift;
	eng_session_place(s, wq->sh, karst_wq_bytes(*slots, *stride), place);
}

static void
fill_created(const struct karst_session *s, const struct session_qp *qp,
	const struct karst_engine_qp_init *init, struct karst_ctl_create_qp_rsp *rsp)
{
	rsp->qp = qp->handle;
	rsp->qpn = qp->qp->num;
	rsp->lcore = qp->qp->lcore;
	if (init->type == KARST_QPT_XRC_RECV)
		return;
	rsp->max_send_sge = init->max_send_sge;
	rsp->max_inline = init->max_inline;
	place_queue(s, &qp->qp->sq, &rsp->max_send_wr, &rsp->send_stride, &rsp->sq);
	if (init->srq != NULL || init->type == KARST_QPT_XRC_SEND)
		return;
	rsp->max_recv_sge = init->max_recv_sge;
	place_queue(s, &qp->qp->rq, &rsp->max_recv_wr, &rsp->recv_stride, &rsp->rq);
}

/* Looks up the objects that the message names. */
static int
find_all(struct karst_session *s, struct session_call *c, const struct karst_ctl_create_qp_req *req,
	struct session_xrcd **xrcd, struct karst_engine_qp_init *init)
{
	const struct session_srq *srq;
	const struct session_pd *pd;
	const struct session_cq *cq;

	*xrcd = NULL;
	if (req->type == KARST_QPT_XRC_RECV) {
		*xrcd = eng_session_find(c, &s->xrcds, req->xrcd, "xrcd");
		if (*xrcd == NULL)
			return -EINVAL;
		init->xrcd = (*xrcd)->xrcd;
		return 0;
	}
	pd = eng_session_find(c, &s->pds, req->pd, "pd");
	if (pd == NULL)
		return -EINVAL;
	init->pd = pd->pd;
	cq = eng_session_find(c, &s->cqs, req->send_cq, "send_cq");
	if (cq == NULL)
		return -EINVAL;
	init->send_cq = cq->cq;
	if (req->type == KARST_QPT_XRC_SEND)
		return 0;
	cq = eng_session_find(c, &s->cqs, req->recv_cq, "recv_cq");
	if (cq == NULL)
		return -EINVAL;
	init->recv_cq = cq->cq;
	if (req->srq == 0)
		return 0;
	srq = eng_session_find(c, &s->srqs, req->srq, "srq");
	if (srq == NULL)
		return -EINVAL;
	if (srq->xrcd != NULL)
		return reason(c, -EINVAL,
			"srq %u is of type XRC, which serves only XRC_RECV queue pairs of its "
			"domain",
			req->srq);
	init->srq = srq->srq;
	return 0;
}

/* Checks and translates the message; sizes become at least 1 where necessary. */
static int
qp_prepare(struct karst_session *s, struct session_call *c,
	const struct karst_ctl_create_qp_req *req, struct session_xrcd **xrcd,
	struct karst_engine_qp_init *init)
{
	int ret = check_type(c, req->type);

	*init = (struct karst_engine_qp_init){
		.owner = s->owner,
		.type = (enum karst_qp_type)req->type,
		.lcore = req->lcore,
		.max_send_wr = req->max_send_wr,
		.max_recv_wr = req->max_recv_wr,
		.max_send_sge = req->max_send_sge != 0 ? req->max_send_sge : 1,
		.max_recv_sge = req->max_recv_sge != 0 ? req->max_recv_sge : 1,
		.max_inline = req->max_inline,
		.max_dest_rd_atomic = req->max_dest_rd_atomic,
		.sq_sig_all = (req->flags & KARST_CTL_QP_SIG_ALL) != 0,
		.credits = (req->flags & KARST_CTL_QP_CREDITS) != 0,
	};
	if (ret == 0)
		ret = check_absent(c, req);
	if (ret == 0)
		ret = find_all(s, c, req, xrcd, init);
	if (ret != 0)
		return ret;
	return check_create(s, c, req,
		*xrcd != NULL               ? &init->xrcd->lcore
			: init->srq != NULL ? &init->srq->lcore
					    : NULL);
}

int
eng_session_create_qp(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_create_qp_req *req = c->body;
	struct karst_engine_qp_init init;
	struct session_xrcd *xrcd;
	struct session_qp *qp;
	int ret = qp_prepare(s, c, req, &xrcd, &init);

	if (ret != 0)
		return ret;
	qp = calloc(1, sizeof(*qp));
	if (qp == NULL)
		return reason(c, -ENOMEM, "queue pair: the engine has no memory");
	qp->cookie = req->cookie;
	qp->type = init.type;
	qp->max_dest_rd_atomic = req->max_dest_rd_atomic;
	init.user = qp;
	ret = eng_session_handle_add(c, &s->qps, qp, "queue pairs", "max_qps", &qp->handle);
	if (ret != 0) {
		free(qp);
		return ret;
	}
	ret = karst_engine_qp_create(s->e, &init, &qp->qp);
	if (ret != 0) {
		eng_handles_del(&s->qps, qp->handle);
		free(qp);
		return create_fault(s, c, ret);
	}
	qp->xrcd = xrcd;
	if (xrcd != NULL)
		xrcd->users++;
	fill_created(s, qp, &init, c->rsp);
	return 0;
}

/* --- destruction --- */

static void
qp_forget(struct karst_session *s, struct session_qp *qp)
{
	if (qp->xrcd != NULL)
		qp->xrcd->users--;
	eng_handles_del(&s->qps, qp->handle);
	free(qp);
}

int
eng_session_destroy_qp(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_destroy_qp_req *req = c->body;
	struct session_qp *qp = eng_session_find(c, &s->qps, req->qp, "qp");
	int ret;

	if (qp == NULL)
		return -EINVAL;
	ret = karst_engine_qp_destroy(s->e, qp->qp);
	if (ret != 0)
		return reason(c, ret, "qp %u: %s", req->qp, strerror(-ret));
	qp_forget(s, qp);
	return 0;
}

/* --- multicast --- */

static int
mcast_fault(const struct karst_session *s, struct session_call *c, int ret,
	const struct session_qp *qp, uint32_t handle)
{
	if (ret == -EINVAL && qp->type != KARST_QPT_UD)
		return reason(c, ret,
			"qp %u: only UD queue pairs can be attached to a multicast group", handle);
	if (ret == -EINVAL)
		return reason(c, ret,
			"gid: a multicast group is an IPv4 address from 224.0.0.0 to "
			"239.255.255.255, as ::ffff:a.b.c.d, or an IPv6 address of ff00::/8");
	if (ret == -EDQUOT)
		return reason(c, -ENOSPC,
			"multicast attachments: this program's limit of %u is reached (max_mcasts)",
			s->limits.max_mcasts);
	if (ret == -ENOSPC && eng_session_share_fault(s, c, ENG_SHARE_MCASTS, 1))
		return ret;
	if (ret == -ENOSPC)
		return reason(c, ret,
			"multicast attachments: the engine's limit of %u is reached (max_mcasts)",
			s->e->cfg.max_mcasts);
	if (ret == -EUSERS)
		return reason(c, -ENOSPC,
			"gid: a group has %u queue pairs at most, and of these a user no more than "
			"his share (limits, share)",
			KARST_ENGINE_GROUP_QPS);
	return reason(c, ret, "multicast attachment: %s", strerror(-ret));
}

int
eng_session_attach_mcast(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_attach_mcast_req *req = c->body;
	const struct session_qp *qp = eng_session_find(c, &s->qps, req->qp, "qp");
	int ret;

	if (qp == NULL)
		return -EINVAL;
	ret = karst_engine_qp_attach_mcast(s->e, qp->qp, req->gid);
	return ret == 0 ? 0 : mcast_fault(s, c, ret, qp, req->qp);
}

int
eng_session_detach_mcast(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_detach_mcast_req *req = c->body;
	const struct session_qp *qp = eng_session_find(c, &s->qps, req->qp, "qp");
	int ret;

	if (qp == NULL)
		return -EINVAL;
	ret = karst_engine_qp_detach_mcast(s->e, qp->qp, req->gid);
	return ret == 0 ? 0 : reason(c, ret, "qp %u is not attached to this group", req->qp);
}

void
eng_session_drop_qps(struct karst_session *s)
{
	struct karst_engine_qp *gone[DROP_BATCH];
	struct session_qp *qp[DROP_BATCH];
	uint32_t i, n, at = 0;
	int ret;

	while (s->qps.used > 0) {
		for (n = 0; n < DROP_BATCH; n++) {
			qp[n] = eng_handles_next(&s->qps, &at);
			if (qp[n] == NULL)
				break;
			gone[n] = qp[n]->qp;
		}
		ret = karst_engine_qp_destroy_many(s->e, gone, n);
		assert(ret == 0);
		(void)ret;
		/* no event refers to them any more */
		for (i = 0; i < n; i++) {
			qp_forget(s, qp[i]);
		}
	}
}

void
eng_session_stop_qps(struct karst_session *s)
{
	const struct karst_core_qp_attr attr = {.qp_state = KARST_QPS_ERR};
	struct session_qp *qp;
	uint32_t at = 0;

	while ((qp = eng_handles_next(&s->qps, &at)) != NULL)
		if (qp->xrcd == NULL || !karst_engine_qp_is_shared(s->e, qp->qp))
			karst_engine_qp_modify(s->e, qp->qp, &attr, KARST_QP_STATE);
}
