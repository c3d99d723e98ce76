/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Rings of connections by RDMA.  To make memory for one, give it keys, have the peer confirm one
 * of them, and take all of that away again is most of what such a connection costs.  So a program
 * keeps the rings of one that has ended well for its next connection with the same peer in the
 * same role, and what the peer may write into stays so: they are spare.  lib/smc knows whether
 * that can be (karst_smc_conn_keep()), and whether the next connection can have them, which depends
 * on its link group (karst_smc_conn_take()).
 *
 * Nobody but this program ever gets them, and nobody else can have them mapped (svc_rings.shared):
 * so what is left in them are bytes that it has sent to, or got from, this peer.  If it goes on
 * writing there it hurts but its own connections.
 *
 * There are so many at most of all programs, and of one of them: of these the oldest makes room.  A
 * user has a share, as of connections, and beyond that the oldest of his own does.
 * One that nobody wants for a while goes, too, and all of a program's go with it, and of a group.
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

/* The key goes, now or when the peer has answered.  With it the rings, if nobody has them. */
static void
spare_drop(struct svc_rings *r)
{
	struct kd_smc *s = r->smc;
	uint32_t rmb = r->rmb;

	svc_spare_leave(r);
	(void)karst_smc_rmb_drop(s->core, rmb);
}

/* The oldest of @p's; or of @u's; or of all, if both are NULL. */
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

/* Who has some gives up one of his own, so that nobody takes what others keep; who has none, and
 * those whom nobody is protected from, get the oldest one's place. */
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
	/* whose key may be there until the peer has answered */
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

/* Its connection is to have the buffer, if lib/smc still has it. */
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
