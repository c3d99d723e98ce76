/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Protection domains, and the objects in them that have no file of their own: memory windows and
 * address handles. */
#include "client_priv.h"

#include <errno.h>
#include <stdlib.h>

int
karst_alloc_pd(struct karst_context *ctx, struct karst_pd **pd)
{
	struct karst_client *c = cli_of(ctx);
	CLI_REQ(alloc_pd) m = {.body.reserved = 0};
	struct karst_ctl_alloc_pd_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	struct cli_pd *p = calloc(1, sizeof(*p));
	int ret;

	if (p == NULL)
		return cli_fail_const(-ENOMEM, "no memory");
	ret = cli_call(c, KARST_CTL_ALLOC_PD, &m.hdr, sizeof(m), NULL, 0, &reply);
	if (ret != 0) {
		free(p);
		return ret;
	}
	p->pub.context = ctx;
	p->pub.handle = r.pd;
	atomic_fetch_add(&c->nobjects, 1);
	*pd = &p->pub;
	return 0;
}

int
karst_dealloc_pd(struct karst_pd *pd)
{
	struct karst_client *c = cli_of(pd->context);
	struct cli_pd *p = cli_pd_of(pd);
	uint32_t users;
	int ret;

	if (cli_forked(c))
		return cli_fail_forked();
	users = atomic_load(&p->users);
	if (users != 0)
		return cli_fail(-EBUSY, "%u objects are in this protection domain", users);
	ret = cli_destroy_call(c, KARST_CTL_FREE_PD, pd->handle);
	if (ret != 0)
		return ret;
	atomic_fetch_sub(&c->nobjects, 1);
	free(p);
	return 0;
}

/* Adds @n to the number of objects in @pd (UINT32_MAX: -1). */
static void
pd_count_users(struct karst_pd *pd, uint32_t n)
{
	atomic_fetch_add(&cli_pd_of(pd)->users, n);
	atomic_fetch_add(&cli_of(pd->context)->nobjects, n);
}

void
cli_pd_get(struct karst_pd *pd)
{
	pd_count_users(pd, 1);
}

void
cli_pd_put(struct karst_pd *pd)
{
	pd_count_users(pd, UINT32_MAX);
}

/* --- memory windows --- */

int
karst_alloc_mw(struct karst_pd *pd, enum karst_mw_type type, struct karst_mw **mw)
{
	CLI_REQ(alloc_mw) m = {.body = {.pd = pd->handle, .type = (uint32_t)type}};
	struct karst_ctl_alloc_mw_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	struct karst_mw *w = calloc(1, sizeof(*w));
	int ret;

	if (w == NULL)
		return cli_fail_const(-ENOMEM, "no memory");
	ret = cli_call(cli_of(pd->context), KARST_CTL_ALLOC_MW, &m.hdr, sizeof(m), NULL, 0, &reply);
	if (ret != 0) {
		free(w);
		return ret;
	}
	*w = (struct karst_mw){pd->context, pd, r.key, type, r.key};
	cli_pd_get(pd);
	*mw = w;
	return 0;
}

int
karst_dealloc_mw(struct karst_mw *mw)
{
	int ret = cli_destroy_call(cli_of(mw->context), KARST_CTL_FREE_MW, mw->handle);

	if (ret != 0)
		return ret;
	cli_pd_put(mw->pd);
	free(mw);
	return 0;
}

/* --- address handles --- */

void
cli_ah_attr_to_ctl(const struct karst_ah_attr *a, struct karst_ctl_ah_attr *w)
{
	*w = (struct karst_ctl_ah_attr){
		.flow_label = a->flow_label,
		.port_num = a->port_num,
		.sgid_index = a->sgid_index,
		.hop_limit = a->hop_limit,
		.traffic_class = a->traffic_class,
		.sl = a->sl,
	};
	memcpy(w->dgid, a->dgid.raw, sizeof(w->dgid));
}

void
cli_ah_attr_of_ctl(const struct karst_ctl_ah_attr *w, struct karst_ah_attr *a)
{
	*a = (struct karst_ah_attr){
		.flow_label = w->flow_label,
		.sgid_index = w->sgid_index,
		.hop_limit = w->hop_limit,
		.traffic_class = w->traffic_class,
		.sl = w->sl,
		.port_num = w->port_num,
	};
	memcpy(a->dgid.raw, w->dgid, sizeof(w->dgid));
}

int
karst_create_ah(struct karst_pd *pd, const struct karst_ah_attr *attr, struct karst_ah **ah)
{
	struct karst_client *c = cli_of(pd->context);
	CLI_REQ(create_ah) m = {.body = {.pd = pd->handle, .no_wait = 1}};
	struct karst_ctl_create_ah_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	struct karst_ah *a = calloc(1, sizeof(*a));
	int ret;

	if (a == NULL)
		return cli_fail_const(-ENOMEM, "no memory");
	cli_ah_attr_to_ctl(attr, &m.body.attr);
	ret = -EPROTO;
	if (!cli_has_lacked_no_wait(c))
		ret = cli_call_path(c, KARST_CTL_CREATE_AH, &m.hdr, sizeof(m), &reply);
	if (ret == -EPROTO && cli_lacks_no_wait(c)) {
		m.body.no_wait = 0;
		ret = cli_call(c, KARST_CTL_CREATE_AH, &m.hdr, sizeof(m), NULL, 0, &reply);
	}
	if (ret != 0) {
		free(a);
		return ret;
	}
	*a = (struct karst_ah){pd->context, pd, r.ah};
	cli_pd_get(pd);
	*ah = a;
	return 0;
}

int
karst_destroy_ah(struct karst_ah *ah)
{
	int ret = cli_destroy_call(cli_of(ah->context), KARST_CTL_DESTROY_AH, ah->handle);

	if (ret != 0)
		return ret;
	cli_pd_put(ah->pd);
	free(ah);
	return 0;
}
