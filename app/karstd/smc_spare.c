/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Rings of connections over RDMA.  Allocating memory for a connection, giving it keys, having the
 * peer confirm one of them, and removing all of that is most of the cost of such a connection.  So
 * when a connection has ended normally, its program keeps the rings for its next connection with
 * the same peer in the same role, and the peer's right to write into them stays: they are spare.
 * lib/smc knows whether that is possible (karst_smc_conn_keep()), and whether the next connection
 * can use them, which depends on its link group (karst_smc_conn_take()).
 *
 * Only this program ever gets them, and no other one can have them mapped (svc_rings.shared).  So
 * they contain only bytes that it has sent to this peer or received from it.  If it continues to
 * write there, it harms only its own connections.
 *
 * There are limits for all programs and for one program; beyond the latter the oldest rings of the
 * program are dropped.  A user has a share, as of connections; beyond it the user's own oldest
 * rings are dropped.  Rings that are not used for a while are dropped, too, as are all rings of a
 * program that ends, and of a group that ends.
 */
#include "smc_priv.h"

#include <stdlib.h>

#define SPARE_BYTES ((uint64_t)64 << 20) /* of all programs */

static uint32_t
spares_max(const struct kd_smc *s)
{
	uint64_t n = SPARE_BYTES / karst_sock_bytes((uint32_t)s->conf->smc.buffer);

	return (uint32_t)karst_min_u64(n, SMC_SPARES);
}

void
svc_spare_leave(struct svc_rings *r)
{
	struct svc_rings **at = &r->smc->spares;

	if (!r->spare)
		return;
	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	if (*at == NULL)
		r->smc->spares_tail = at;
	r->spare = false;
	r->keeper->kept[SVC_KEPT_SPARES]--;
	r->keeper = NULL;
	if (r->side[0].prog != NULL)
		r->side[0].prog->nspares--;
}

/* Drops the key, now or when the peer has answered.  The rings are destroyed with it if they are
 * not in use. */
static void
spare_drop(struct svc_rings *r)
{
	struct kd_smc *s = r->smc;
	uint32_t rmb = r->rmb;

	svc_spare_leave(r);
	(void)karst_smc_rmb_drop(s->core, rmb);
}

/* Drops the oldest of @p; or of @u; or of all, if both are NULL. */
static void
drop_oldest(struct kd_smc *s, const struct svc_prog *p, const struct svc_user *u)
{
	struct svc_rings *r = s->spares;

	while (r != NULL && ((p != NULL && r->side[0].prog != p) || (u != NULL && r->keeper != u)))
		r = r->next;
	if (r != NULL)
		spare_drop(r);
}

static bool
may_keep_spare(const struct kd_smc *s, const struct svc_prog *p)
{
	return p->nspares < karst_sock_spares((uint32_t)s->conf->smc.buffer) &&
		svc_user_may_keep(p->user, SVC_KEPT_SPARES, s->nspares, spares_max(s));
}

/* A user who has spare rings gives up one of them, so that users do not take what others keep.  A
 * user who has none, and trusted users, get the place of the oldest. */
static void
make_spare_room(struct kd_smc *s, const struct svc_prog *p)
{
	const struct svc_user *u = p->user;

	if (p->nspares >= karst_sock_spares((uint32_t)s->conf->smc.buffer))
		drop_oldest(s, p, NULL);
	else if (u->kept[SVC_KEPT_SPARES] == 0 || svc_is_trusted(u->uid))
		drop_oldest(s, NULL, NULL);
	else
		drop_oldest(s, NULL, u);
}

static bool
may_be_kept(const struct svc_rings *r)
{
	return r->remote && r->kept && !r->shared && r->side[0].prog != NULL && r->keys == 1 &&
		r->rmb != SMC_NO_ID;
}

void
svc_spare_keep(struct svc_conn *c)
{
	struct kd_smc *s = c->smc;
	struct svc_rings *r = c->rings;
	struct svc_prog *p;
	uint32_t rmb;

	if (r == NULL || !may_be_kept(r))
		return;
	p = r->side[0].prog;
	if (!may_keep_spare(s, p))
		make_spare_room(s, p);
	/* whose key may exist until the peer has answered */
	if (!may_keep_spare(s, p) || karst_smc_conn_keep(s->core, c->id, &rmb) != 0)
		return;
	r->spare = true;
	r->keeper = p->user;
	r->keeper->kept[SVC_KEPT_SPARES]++;
	r->until_ns = s->core->now_ns + s->conf->smc.group_idle_s * 1000000000ull;
	r->next = NULL;
	*s->spares_tail = r;
	s->spares_tail = &r->next;
	s->nspares++;
	p->nspares++;
	svc_rdma_leave_rmb(s, rmb);
}

/* Gives the buffer to its connection, if lib/smc still has it. */
void
svc_spare_take(struct svc_conn *c)
{
	struct svc_rings *r = c->rings;

	if (r == NULL || !r->spare || karst_smc_conn_take(c->smc->core, c->id, r->rmb) != 0)
		return;
	svc_spare_leave(r);
	c->smc->nspares--;
	svc_rdma_enter_rmb(c, r->rmb);
}

void
svc_spare_settle(struct svc_rings *r)
{
	if (r->spare && !may_be_kept(r))
		spare_drop(r);
}

struct svc_rings *
svc_spare_find(struct kd_smc *s, const struct svc_prog *p, const uint8_t ip[16], bool server)
{
	struct svc_rings *r;

	for (r = s->spares; r != NULL; r = r->next)
		if (r->refs == 0 && r->side[0].prog == p && r->server == server &&
			memcmp(r->peer_ip, ip, sizeof(r->peer_ip)) == 0)
			return r;
	return NULL;
}

void
svc_spare_expire(struct kd_smc *s)
{
	while (s->spares != NULL && s->spares->until_ns <= s->core->now_ns)
		spare_drop(s->spares);
}

uint64_t
svc_spare_next_ns(const struct kd_smc *s)
{
	return s->spares != NULL ? s->spares->until_ns : UINT64_MAX;
}
