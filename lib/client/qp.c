/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Queue pairs: creation, states, destruction. */
#include "client_priv.h"

#include <errno.h>
#include <stdlib.h>

/* --- the reply of the engine --- */

static bool
queue_ok(uint32_t slots, uint32_t stride, bool send, uint32_t max_sge, uint32_t max_inline)
{
	return karst_is_pow2(slots) && slots <= KARST_WQ_MAX_SLOTS && max_sge <= KARST_WQ_MAX_SGE &&
		max_inline <= KARST_WQ_MAX_INLINE &&
		stride == karst_wq_stride(send, max_sge, max_inline);
}

/* The queues that a queue pair has of its own. */

static bool
has_sends(const struct cli_qp *q)
{
	return q->pub.qp_type != KARST_QPT_XRC_RECV;
}

static bool
has_recvs(const struct cli_qp *q)
{
	return q->pub.srq == NULL && q->pub.recv_cq != NULL;
}

static void
set_lcore(struct karst_client *c, struct cli_qp *q, uint32_t lcore)
{
	q->pub.lcore = lcore;
	q->pub.bell = c->bell[lcore];
	q->pub.bell_mask = c->bell_mask;
	q->pub.wake_fd = c->wake_fd[lcore];
}

static int
attach_queues(struct karst_client *c, struct cli_qp *q, const struct karst_ctl_create_qp_rsp *r)
{
	void *at;
	int ret;

	if (!has_sends(q))
		return 0;
	ret = cli_place(
		c, &r->sq, karst_wq_bytes(r->max_send_wr, r->send_stride), "send queue", &at);
	if (ret != 0)
		return ret;
	karst_wq_attach(&q->pub.sq, at, r->max_send_wr, r->send_stride);
	q->pub.sq.cross_cpu = true;
	if (!has_recvs(q))
		return 0;
	ret = cli_place(
		c, &r->rq, karst_wq_bytes(r->max_recv_wr, r->recv_stride), "receive queue", &at);
	if (ret != 0)
		return ret;
	karst_wq_attach(&q->pub.rq, at, r->max_recv_wr, r->recv_stride);
	q->pub.rq.cross_cpu = true;
	return 0;
}

static int
qp_attach(struct karst_client *c, struct cli_qp *q, const struct karst_ctl_create_qp_rsp *r)
{
	if (r->lcore >= c->pub.nlcores ||
		(has_sends(q) &&
			!queue_ok(r->max_send_wr, r->send_stride, true, r->max_send_sge,
				r->max_inline)) ||
		(has_recvs(q) &&
			!queue_ok(r->max_recv_wr, r->recv_stride, false, r->max_recv_sge, 0)))
		return cli_fail(-EPROTO,
			"the engine made a queue pair of %u and %u requests of %u and %u bytes on "
			"lcore %u",
			r->max_send_wr, r->max_recv_wr, r->send_stride, r->recv_stride, r->lcore);
	q->pub.handle = r->qp;
	q->pub.qp_num = r->qpn;
	set_lcore(c, q, r->lcore);
	q->pub.cap = (struct karst_qp_cap){
		.max_send_wr = r->max_send_wr,
		.max_recv_wr = has_recvs(q) ? r->max_recv_wr : 0,
		.max_send_sge = r->max_send_sge,
		.max_recv_sge = has_recvs(q) ? r->max_recv_sge : 0,
		.max_inline_data = r->max_inline,
	};
	return attach_queues(c, q, r);
}

/* --- the lists of the completion queues --- */

static void
qp_list_add(struct cli_qp *q)
{
	struct cli_cq *cq;

	if (q->pub.send_cq != NULL) {
		cq = cli_cq_of(q->pub.send_cq);
		karst_lock(&cq->lock);
		q->next_send = cq->sends;
		q->link_send = &cq->sends;
		if (q->next_send != NULL)
			q->next_send->link_send = &q->next_send;
		cq->sends = q;
		karst_unlock(&cq->lock);
	}
	if (q->pub.recv_cq != NULL) {
		cq = cli_cq_of(q->pub.recv_cq);
		karst_lock(&cq->lock);
		q->next_recv = cq->recvs;
		q->link_recv = &cq->recvs;
		if (q->next_recv != NULL)
			q->next_recv->link_recv = &q->next_recv;
		cq->recvs = q;
		karst_unlock(&cq->lock);
	}
}

static void
qp_list_del(struct cli_qp *q)
{
	struct cli_cq *cq;

	if (q->pub.send_cq != NULL) {
		cq = cli_cq_of(q->pub.send_cq);
		karst_lock(&cq->lock);
		*q->link_send = q->next_send;
		if (q->next_send != NULL)
			q->next_send->link_send = q->link_send;
		karst_unlock(&cq->lock);
	}
	if (q->pub.recv_cq != NULL) {
		cq = cli_cq_of(q->pub.recv_cq);
		karst_lock(&cq->lock);
		*q->link_recv = q->next_recv;
		if (q->next_recv != NULL)
			q->next_recv->link_recv = q->link_recv;
		karst_unlock(&cq->lock);
	}
}

/* Adds @n to the use counts of the objects that the QP uses (UINT32_MAX: -1). */
static void
qp_count_users(struct cli_qp *q, uint32_t n)
{
	atomic_fetch_add(&cli_of(q->pub.context)->nobjects, n);
	if (q->pub.pd != NULL)
		atomic_fetch_add(&cli_pd_of(q->pub.pd)->users, n);
	if (q->pub.send_cq != NULL)
		atomic_fetch_add(&cli_cq_of(q->pub.send_cq)->users, n);
	if (q->pub.recv_cq != NULL)
		atomic_fetch_add(&cli_cq_of(q->pub.recv_cq)->users, n);
	if (q->pub.srq != NULL)
		atomic_fetch_add(&cli_srq_of(q->pub.srq)->users, n);
	if (q->pub.xrcd != NULL)
		atomic_fetch_add(&cli_xrcd_of(q->pub.xrcd)->users, n);
}

/* --- creating --- */

/* Fills in the members that the QP's type has; the others are 0. */
static void
qp_create_req(const struct cli_qp *q, const struct karst_qp_init_attr *init,
	struct karst_ctl_create_qp_req *r)
{
	if (has_sends(q)) {
		r->pd = q->pub.pd->handle;
		r->send_cq = q->pub.send_cq->handle;
		r->max_send_wr = init->cap.max_send_wr;
		r->max_send_sge = init->cap.max_send_sge;
		r->max_inline = init->cap.max_inline_data;
	} else {
		r->xrcd = q->pub.xrcd->handle;
	}
	if (q->pub.recv_cq != NULL)
		r->recv_cq = q->pub.recv_cq->handle;
	if (q->pub.srq != NULL)
		r->srq = q->pub.srq->handle;
	if (has_recvs(q)) {
		r->max_recv_wr = init->cap.max_recv_wr;
		r->max_recv_sge = init->cap.max_recv_sge;
	}
}

static int
qp_create(struct karst_client *c, struct cli_qp *q, const struct karst_qp_init_attr *init)
{
	CLI_REQ(create_qp)
	m = {.body = {.type = (uint32_t)init->qp_type,
		     .max_dest_rd_atomic = c->max_rd_atomic,
		     .flags = (init->sq_sig_all ? KARST_CTL_QP_SIG_ALL : 0) |
			     (init->credits ? KARST_CTL_QP_CREDITS : 0),
		     .lcore = init->on_lcore ? init->lcore : UINT32_MAX,
		     .cookie = q->cookie}};
	struct karst_ctl_create_qp_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	int ret;

	qp_create_req(q, init, &m.body);
	ret = cli_call(c, KARST_CTL_CREATE_QP, &m.hdr, sizeof(m), NULL, 0, &reply);
	if (ret != 0)
		return ret;
	ret = qp_attach(c, q, &r);
	if (ret != 0)
		cli_destroy_call(c, KARST_CTL_DESTROY_QP, r.qp);
	return ret;
}

static int
qp_init_check(const struct karst_pd *pd, const struct karst_qp_init_attr *init)
{
	bool sender = init->qp_type == KARST_QPT_XRC_SEND;

	if (pd == NULL)
		return cli_fail_const(-EINVAL, "pd is NULL: only XRC_RECV queue pairs have none");
	if (init->send_cq == NULL || (init->recv_cq == NULL && !sender))
		return cli_fail_const(-EINVAL, "send_cq or recv_cq is NULL");
	if (sender && init->srq != NULL)
		return cli_fail_const(-EINVAL, "srq must be NULL for queue pairs of XRC types");
	if (init->send_cq->context != pd->context ||
		(!sender && init->recv_cq->context != pd->context) ||
		(init->srq != NULL && init->srq->context != pd->context))
		return cli_fail_const(
			-EINVAL, "send_cq, recv_cq or srq belongs to another context than pd");
	return 0;
}

static struct cli_qp *
alloc_qp(struct karst_context *ctx, void *qp_context)
{
	struct cli_qp *q = aligned_alloc(KARST_CACHE_LINE, sizeof(*q));

	if (q == NULL) {
		cli_fail_const(-ENOMEM, "no memory");
		return NULL;
	}
	memset(q, 0, sizeof(*q));
	q->pub.context = ctx;
	q->pub.qp_context = qp_context;
	q->cookie = cli_object_add(cli_of(ctx), CLI_QP, q);
	if (q->cookie != 0)
		return q;
	free(q);
	cli_fail_const(-ENOMEM, "no memory");
	return NULL;
}

static void
free_qp(struct cli_qp *q)
{
	cli_object_del(cli_of(q->pub.context), q->cookie);
	free(q);
}

int
karst_create_qp(struct karst_pd *pd, struct karst_qp_init_attr *init, struct karst_qp **qp)
{
	bool target = init->qp_type == KARST_QPT_XRC_RECV;
	struct karst_client *c;
	struct cli_qp *q;
	int ret;

	if (target ? init->xrcd == NULL : pd == NULL)
		return target ? cli_fail_const(-EINVAL, "xrcd is NULL: qp_type XRC_RECV needs one")
			      : qp_init_check(pd, init);
	c = cli_of(target ? init->xrcd->context : pd->context);
	ret = cli_check(c);
	if (ret == 0 && !target)
		ret = qp_init_check(pd, init);
	if (ret != 0)
		return ret;
	q = alloc_qp(&c->pub, init->qp_context);
	if (q == NULL)
		return -ENOMEM;
	q->pub.qp_type = init->qp_type;
	q->sig_all = init->sq_sig_all;
	q->credits = init->credits;
	if (target) {
		q->pub.xrcd = init->xrcd;
	} else {
		q->pub.pd = pd;
		q->pub.send_cq = init->send_cq;
		q->pub.recv_cq = init->qp_type == KARST_QPT_XRC_SEND ? NULL : init->recv_cq;
		q->pub.srq = init->srq;
	}
	ret = qp_create(c, q, init);
	if (ret != 0) {
		free_qp(q);
		return ret;
	}
	init->cap = q->pub.cap;
	qp_list_add(q);
	qp_count_users(q, 1);
	*qp = &q->pub;
	return 0;
}

int
karst_open_qp(struct karst_xrcd *xrcd, uint32_t qp_num, void *qp_context, struct karst_qp **qp)
{
	CLI_REQ(open_qp) m = {.body = {.xrcd = xrcd->handle, .qpn = qp_num}};
	struct karst_client *c = cli_of(xrcd->context);
	struct karst_ctl_open_qp_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	struct cli_qp *q;
	int ret = cli_check(c);

	if (ret != 0)
		return ret;
	q = alloc_qp(xrcd->context, qp_context);
	if (q == NULL)
		return -ENOMEM;
	m.body.cookie = q->cookie;
	ret = cli_call(c, KARST_CTL_OPEN_QP, &m.hdr, sizeof(m), NULL, 0, &reply);
	if (ret == 0 && r.lcore >= c->pub.nlcores) {
		ret = cli_fail(-EPROTO, "the engine has a queue pair on lcore %u", r.lcore);
		cli_destroy_call(c, KARST_CTL_DESTROY_QP, r.qp);
	}
	if (ret != 0) {
		free_qp(q);
		return ret;
	}
	q->pub.qp_type = KARST_QPT_XRC_RECV;
	q->pub.xrcd = xrcd;
	q->pub.handle = r.qp;
	q->pub.qp_num = qp_num;
	set_lcore(c, q, r.lcore);
	qp_count_users(q, 1);
	*qp = &q->pub;
	return 0;
}

/* --- states --- */

static void
attr_to_ctl(const struct karst_qp_attr *a, struct karst_ctl_qp_attr *w)
{
	*w = (struct karst_ctl_qp_attr){
		.qp_state = (uint32_t)a->qp_state,
		.cur_qp_state = (uint32_t)a->cur_qp_state,
		.path_mtu = (uint32_t)a->path_mtu,
		.qkey = a->qkey,
		.rq_psn = a->rq_psn,
		.sq_psn = a->sq_psn,
		.dest_qpn = a->dest_qp_num,
		.access_flags = a->qp_access_flags,
		.pkey_index = a->pkey_index,
		.en_sqd_async_notify = a->en_sqd_async_notify,
		.max_rd_atomic = a->max_rd_atomic,
		.max_dest_rd_atomic = a->max_dest_rd_atomic,
		.min_rnr_timer = a->min_rnr_timer,
		.port_num = a->port_num,
		.timeout = a->timeout,
		.retry_cnt = a->retry_cnt,
		.rnr_retry = a->rnr_retry,
		.path_mig_state = (uint8_t)a->path_mig_state,
		.alt_pkey_index = a->alt_pkey_index,
		.alt_port_num = a->alt_port_num,
		.alt_timeout = a->alt_timeout,
	};
	cli_ah_attr_to_ctl(&a->ah_attr, &w->ah);
	cli_ah_attr_to_ctl(&a->alt_ah_attr, &w->alt_ah);
}

void
cli_qp_attr_of_ctl(const struct karst_ctl_qp_attr *w, struct karst_qp_attr *a)
{
	*a = (struct karst_qp_attr){
		.qp_state = (enum karst_qp_state)w->qp_state,
		.cur_qp_state = (enum karst_qp_state)w->cur_qp_state,
		.path_mtu = (enum karst_mtu)w->path_mtu,
		.qkey = w->qkey,
		.rq_psn = w->rq_psn,
		.sq_psn = w->sq_psn,
		.dest_qp_num = w->dest_qpn,
		.qp_access_flags = w->access_flags,
		.pkey_index = w->pkey_index,
		.en_sqd_async_notify = w->en_sqd_async_notify,
		.sq_draining = w->sq_draining,
		.max_rd_atomic = w->max_rd_atomic,
		.max_dest_rd_atomic = w->max_dest_rd_atomic,
		.min_rnr_timer = w->min_rnr_timer,
		.port_num = w->port_num,
		.timeout = w->timeout,
		.retry_cnt = w->retry_cnt,
		.rnr_retry = w->rnr_retry,
		.path_mig_state = (enum karst_mig_state)w->path_mig_state,
		.alt_pkey_index = w->alt_pkey_index,
		.alt_port_num = w->alt_port_num,
		.alt_timeout = w->alt_timeout,
	};
	cli_ah_attr_of_ctl(&w->ah, &a->ah_attr);
	cli_ah_attr_of_ctl(&w->alt_ah, &a->alt_ah_attr);
}

int
karst_modify_qp(struct karst_qp *qp, const struct karst_qp_attr *attr, unsigned int mask)
{
	struct karst_client *c = cli_of(qp->context);
	CLI_REQ(modify_qp) m = {.body = {.qp = qp->handle, .mask = mask}};
	bool path = (mask & (KARST_QP_AV | KARST_QP_ALT_PATH)) != 0;
	struct karst_ctl_modify_qp_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	struct cli_qp *q = cli_qp_of(qp);
	int ret;

	if ((mask & KARST_CTL_QP_NO_WAIT) != 0)
		return cli_fail(-EINVAL, "attr_mask 0x%x has unknown bits", mask);
	attr_to_ctl(attr, &m.body.attr);
	ret = -EINVAL;
	if (path && !cli_has_lacked_no_wait(c)) {
		m.body.mask |= KARST_CTL_QP_NO_WAIT;
		ret = cli_call_path(c, KARST_CTL_MODIFY_QP, &m.hdr, sizeof(m), &reply);
	}
	if (!path || (ret == -EINVAL && cli_lacks_no_wait(c))) {
		m.body.mask = mask;
		ret = cli_call(c, KARST_CTL_MODIFY_QP, &m.hdr, sizeof(m), NULL, 0, &reply);
	}
	if (ret == 0 && (mask & KARST_QP_STATE))
		atomic_store_explicit(&q->state, (uint32_t)attr->qp_state, memory_order_relaxed);
	return ret;
}

int
karst_modify_qp_rate_limit(struct karst_qp *qp, const struct karst_qp_rate_limit_attr *attr)
{
	CLI_REQ(rate_qp)
	m = {.body = {
		     .qp = qp->handle, .rate_kbps = attr->rate_limit, .burst = attr->max_burst_sz}};
	struct karst_ctl_rate_qp_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};

	return cli_call(cli_of(qp->context), KARST_CTL_RATE_QP, &m.hdr, sizeof(m), NULL, 0, &reply);
}

int
karst_query_qp(struct karst_qp *qp, struct karst_qp_attr *attr, struct karst_qp_init_attr *init)
{
	const struct cli_qp *q = cli_qp_of(qp);
	CLI_REQ(query_qp) m = {.body.qp = qp->handle};
	struct karst_ctl_query_qp_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	int ret = cli_call(
		cli_of(qp->context), KARST_CTL_QUERY_QP, &m.hdr, sizeof(m), NULL, 0, &reply);

	if (ret != 0)
		return ret;
	cli_qp_attr_of_ctl(&r.attr, attr);
	attr->cap = qp->cap;
	if (init != NULL)
		*init = (struct karst_qp_init_attr){
			.qp_context = qp->qp_context,
			.send_cq = qp->send_cq,
			.recv_cq = qp->recv_cq,
			.srq = qp->srq,
			.xrcd = qp->xrcd,
			.cap = qp->cap,
			.qp_type = qp->qp_type,
			.sq_sig_all = q->sig_all,
			.credits = q->credits,
			.lcore = qp->lcore,
		};
	return 0;
}

/* --- enhanced connection establishment --- */

/* librdmacm asks with every connection, so that no request is made to an engine that has ECE
 * off. */
static int
check_ece(const struct karst_qp *qp)
{
	if (qp->qp_type == KARST_QPT_RC && cli_of(qp->context)->ece)
		return 0;
	return cli_fail_const(-EOPNOTSUPP,
		"ECE: RC queue pairs have it, and only if the engine's configuration says so");
}

int
karst_query_ece(struct karst_qp *qp, struct karst_ece *ece)
{
	CLI_REQ(query_ece) m = {.body.qp = qp->handle};
	struct karst_ctl_query_ece_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	int ret = check_ece(qp);

	if (ret == 0)
		ret = cli_call(cli_of(qp->context), KARST_CTL_QUERY_ECE, &m.hdr, sizeof(m), NULL, 0,
			&reply);
	if (ret == 0)
		*ece = (struct karst_ece){.vendor_id = r.ece.vendor, .options = r.ece.options};
	return ret;
}

int
karst_set_ece(struct karst_qp *qp, struct karst_ece *ece)
{
	CLI_REQ(set_ece)
	m = {.body = {
		     .qp = qp->handle, .ece = {.vendor = ece->vendor_id, .options = ece->options}}};
	struct karst_ctl_set_ece_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	int ret = check_ece(qp);

	if (ret == 0)
		ret = cli_call(
			cli_of(qp->context), KARST_CTL_SET_ECE, &m.hdr, sizeof(m), NULL, 0, &reply);
	if (ret == 0)
		*ece = (struct karst_ece){.vendor_id = r.ece.vendor, .options = r.ece.options};
	return ret;
}

int
karst_destroy_qp(struct karst_qp *qp)
{
	struct karst_client *c = cli_of(qp->context);
	struct cli_qp *q = cli_qp_of(qp);
	int ret = cli_destroy_call(c, KARST_CTL_DESTROY_QP, qp->handle);

	if (ret != 0)
		return ret;
	qp_list_del(q);
	cli_object_end(c, q->cookie, NULL, &q->async, NULL);
	qp_count_users(q, UINT32_MAX);
	free(q);
	return 0;
}

/* --- multicast --- */

int
karst_attach_mcast(struct karst_qp *qp, const union karst_gid *gid)
{
	CLI_REQ(attach_mcast) m = {.body.qp = qp->handle};
	struct karst_ctl_attach_mcast_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};

	memcpy(m.body.gid, gid->raw, sizeof(m.body.gid));
	return cli_call(
		cli_of(qp->context), KARST_CTL_ATTACH_MCAST, &m.hdr, sizeof(m), NULL, 0, &reply);
}

int
karst_detach_mcast(struct karst_qp *qp, const union karst_gid *gid)
{
	CLI_REQ(detach_mcast) m = {.body.qp = qp->handle};
	struct karst_ctl_detach_mcast_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};

	memcpy(m.body.gid, gid->raw, sizeof(m.body.gid));
	return cli_call(
		cli_of(qp->context), KARST_CTL_DETACH_MCAST, &m.hdr, sizeof(m), NULL, 0, &reply);
}
