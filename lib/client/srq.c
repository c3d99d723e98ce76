/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Shared receive queues. */
#include "client_priv.h"

#include <errno.h>
#include <stdlib.h>

static int
srq_attach(struct karst_client *c, struct cli_srq *s, const struct karst_ctl_create_srq_rsp *r)
{
	void *at;
	int ret;

	if (!karst_is_pow2(r->max_wr) || r->max_wr > KARST_WQ_MAX_SLOTS ||
		r->max_sge > KARST_WQ_MAX_SGE || r->lcore >= c->pub.nlcores ||
		r->stride != karst_wq_stride(false, r->max_sge, 0))
		return cli_fail(-EPROTO,
			"the engine made a shared receive queue of %u requests of %u SGEs in %u "
			"bytes",
			r->max_wr, r->max_sge, r->stride);
	ret = cli_place(
		c, &r->place, karst_wq_bytes(r->max_wr, r->stride), "shared receive queue", &at);
	if (ret != 0)
		return ret;
	karst_wq_attach(&s->pub.rq, at, r->max_wr, r->stride);
	s->pub.rq.cross_cpu = true;
	s->pub.handle = r->srq;
	s->pub.lcore = r->lcore;
	s->pub.max_sge = r->max_sge;
	s->pub.srq_num = r->srqn;
	return 0;
}

static int
srq_create(struct karst_client *c, struct cli_srq *s, const struct karst_srq_init_attr *init)
{
	CLI_REQ(create_srq)
	m = {.body = {.pd = s->pub.pd->handle,
		     .max_wr = init->max_wr,
		     .max_sge = init->max_sge,
		     .limit = init->srq_limit,
		     .cookie = s->cookie,
		     .type = (uint32_t)init->srq_type}};
	struct karst_ctl_create_srq_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	int ret;

	if (s->pub.xrcd != NULL) {
		m.body.xrcd = s->pub.xrcd->handle;
		m.body.cq = s->pub.cq->handle;
	}
	ret = cli_call(c, KARST_CTL_CREATE_SRQ, &m.hdr, sizeof(m), NULL, 0, &reply);
	if (ret != 0)
		return ret;
	ret = srq_attach(c, s, &r);
	if (ret != 0)
		cli_destroy_call(c, KARST_CTL_DESTROY_SRQ, r.srq);
	return ret;
}

static int
check_xrc(const struct karst_pd *pd, const struct karst_srq_init_attr *init)
{
	if (init->srq_type != KARST_SRQT_XRC)
		return 0;
	if (init->xrcd == NULL || init->cq == NULL)
		return cli_fail_const(-EINVAL, "srq_type XRC needs xrcd and cq");
	if (init->xrcd->context != pd->context || init->cq->context != pd->context)
		return cli_fail_const(-EINVAL, "xrcd or cq belongs to another context than pd");
	return 0;
}

/* Adds @n to the use counts of the objects that an XRC SRQ uses (UINT32_MAX: -1). */
static void
srq_count_users(struct cli_srq *s, uint32_t n)
{
	if (s->pub.xrcd == NULL)
		return;
	atomic_fetch_add(&cli_xrcd_of(s->pub.xrcd)->users, n);
	atomic_fetch_add(&cli_cq_of(s->pub.cq)->users, n);
}

int
karst_create_srq(
	struct karst_pd *pd, const struct karst_srq_init_attr *init, struct karst_srq **srq)
{
	struct karst_client *c = cli_of(pd->context);
	struct cli_srq *s;
	int ret = cli_check(c);

	if (ret == 0)
		ret = check_xrc(pd, init);
	if (ret != 0)
		return ret;
	s = aligned_alloc(KARST_CACHE_LINE, sizeof(*s));
	if (s == NULL)
		return cli_fail_const(-ENOMEM, "no memory");
	memset(s, 0, sizeof(*s));
	s->pub.context = pd->context;
	s->pub.pd = pd;
	s->pub.srq_context = init->srq_context;
	if (init->srq_type == KARST_SRQT_XRC) {
		s->pub.xrcd = init->xrcd;
		s->pub.cq = init->cq;
	}
	s->cookie = cli_object_add(c, CLI_SRQ, s);
	ret = s->cookie != 0 ? srq_create(c, s, init) : cli_fail_const(-ENOMEM, "no memory");
	if (ret != 0) {
		if (s->cookie != 0)
			cli_object_del(c, s->cookie);
		free(s);
		return ret;
	}
	srq_count_users(s, 1);
	cli_pd_get(pd);
	*srq = &s->pub;
	return 0;
}

int
karst_modify_srq(struct karst_srq *srq, uint32_t srq_limit)
{
	CLI_REQ(modify_srq) m = {.body = {.srq = srq->handle, .limit = srq_limit}};
	struct karst_ctl_modify_srq_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};

	return cli_call(
		cli_of(srq->context), KARST_CTL_MODIFY_SRQ, &m.hdr, sizeof(m), NULL, 0, &reply);
}

int
karst_query_srq(struct karst_srq *srq, struct karst_srq_attr *attr)
{
	CLI_REQ(query_srq) m = {.body.srq = srq->handle};
	struct karst_ctl_query_srq_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	int ret = cli_call(
		cli_of(srq->context), KARST_CTL_QUERY_SRQ, &m.hdr, sizeof(m), NULL, 0, &reply);

	if (ret == 0)
		*attr = (struct karst_srq_attr){r.max_wr, r.max_sge, r.limit};
	return ret;
}

bool
karst_srq_in_use(const struct karst_srq *srq)
{
	return atomic_load(&karst_container_of(srq, const struct cli_srq, pub)->users) != 0;
}

int
karst_destroy_srq(struct karst_srq *srq)
{
	struct karst_client *c = cli_of(srq->context);
	struct cli_srq *s = cli_srq_of(srq);
	uint32_t users;
	int ret;

	if (cli_forked(c))
		return cli_fail_forked();
	users = atomic_load(&s->users);
	if (users != 0)
		return cli_fail(-EBUSY, "%u queue pairs use this shared receive queue", users);
	ret = cli_destroy_call(c, KARST_CTL_DESTROY_SRQ, srq->handle);
	if (ret != 0)
		return ret;
	cli_object_end(c, s->cookie, NULL, &s->async, NULL);
	srq_count_users(s, UINT32_MAX);
	cli_pd_put(srq->pd);
	free(s);
	return 0;
}
