/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * LLC messages (S3, S8 to S10, S18): a received message is answered at once, or answers a request.
 *
 * Roles are fixed: CONFIRM_LINK and ADD_LINK requests come from servers, REQ_ADD_LINK from clients;
 * requests about keys, tests and deletions from both.  Messages that do not fit are counted and
 * have no effect.
 */
#include "smc_priv.h"

struct karst_smc_llc *
smc_llc_new(struct smc_core *c, const struct smc_link *link, enum karst_smc_llc_type type,
	uint8_t flags)
{
	struct karst_smc_llc *m = &c->llc_tx;

	memset(m, 0, offsetof(struct karst_smc_llc, rtokens));
	m->ngids = 0;
	m->type = type;
	m->v2 = link->group->version > 1;
	m->flags = flags;
	return m;
}

static void
llc_send(struct smc_core *c, struct smc_link *link, const struct karst_smc_llc *m)
{
	int len = karst_smc_llc_build(m, c->buf, sizeof(c->buf));

	assert(len > 0);
	if (link->nlater == 0 && smc_link_send(c, link, NULL, c->buf, (size_t)len)) {
		count(c, KARST_SMC_CTR_LLC_TX);
	} else if (len == KARST_SMC_LLC_LEN && link->nlater < LATER_MAX) {
		memcpy(link->later[link->nlater++], c->buf, KARST_SMC_LLC_LEN);
		count(c, KARST_SMC_CTR_LLC_TX);
	} else {
		count(c, KARST_SMC_CTR_LLC_NO_SLOT);
	}
}

void
smc_llc_send(struct smc_core *c, struct smc_link *link)
{
	llc_send(c, link, &c->llc_tx);
}

/* Sends @m back, as an answer. */
static void
llc_answer(struct smc_core *c, struct smc_link *link, struct karst_smc_llc *m, uint8_t flags)
{
	m->flags |= KARST_SMC_LLC_RESPONSE | flags;
	llc_send(c, link, m);
}

static bool
llc_bad(struct smc_core *c)
{
	count(c, KARST_SMC_CTR_LLC_BAD);
	return false;
}

/* --- CONFIRM_LINK (S8) --- */

void
smc_llc_confirm_link(struct smc_core *c, struct smc_link *link, uint8_t flags)
{
	struct karst_smc_llc *m = smc_llc_new(
		c, link, KARST_SMC_LLC_CONFIRM_LINK, KARST_SMC_LLC_NO_EYECATCHER | flags);

	memcpy(m->mac, link->local.mac, 6);
	memcpy(m->gid, link->local.gid, 16);
	m->qpn = link->local.qpn;
	m->link = link->number;
	memcpy(m->link_uid, link->uid, 4);
	m->max_links = link->group->release > 0 ? link->group->max_links : KARST_SMC_LINKS;
	m->max_conns = link->group->release > 0 ? link->group->max_conns : 0;
	smc_llc_send(c, link);
	/* else the timer of the group's first connection runs */
	if (flags == 0 && link->group->state != GROUP_NEW)
		smc_timer_set(c, &link->timer, c->cfg.add_wait_ns);
}

/* Declines the group's first connection, because elements have eyecatchers. */
static void
llc_eyecatcher(struct smc_core *c, struct smc_link *link)
{
	struct smc_group *g = link->group;

	for (uint32_t i = g->conns; g->state == GROUP_NEW && i != NIL; i = c->conns[i].group_next) {
		if (c->conns[i].state == KARST_SMC_WAIT_CONFIRM_LINK) {
			smc_decline(c, &c->conns[i], KARST_SMC_DECL_EYECATCHER);
			return;
		}
	}
	llc_bad(c);
}

static void
rx_confirm_link(struct smc_core *c, struct smc_link *link, const struct karst_smc_llc *m)
{
	struct smc_group *g = link->group;
	bool response = m->flags & KARST_SMC_LLC_RESPONSE, new = g->state == GROUP_NEW;

	if (response != (g->role == KARST_SMC_SERVER) || m->qpn != link->remote.qpn ||
		memcmp(m->gid, link->remote.gid, 16) != 0 ||
		link->state != (response ? LINK_CONFIRMING : LINK_READY)) {
		llc_bad(c);
		return;
	}
	if ((m->flags & KARST_SMC_LLC_NO_EYECATCHER) != KARST_SMC_LLC_NO_EYECATCHER) {
		llc_eyecatcher(c, link);
		return;
	}
	if (!response) {
		link->number = m->link;
		smc_llc_confirm_link(c, link, KARST_SMC_LLC_RESPONSE);
	}
	smc_link_active(c, link);
	if (new)
		smc_first_contact_confirmed(c, g);
}

/* --- ADD_LINK (S10) --- */

/* Writes the number of a link, and one of its ends. */
static void
put_end(struct karst_smc_llc *m, const struct smc_link *link, const struct karst_smc_end *end)
{
	memcpy(m->mac, end->mac, 6);
	memcpy(m->gid, end->gid, 16);
	m->qpn = end->qpn;
	m->psn = end->psn;
	m->link = link->number;
	m->mtu = end->mtu;
}

static void
fill_add_link(struct karst_smc_llc *m, const struct smc_link *on, const struct smc_link *added)
{
	const struct smc_group *g = on->group;
	const struct smc_rmb *rmb;

	put_end(m, added, &added->local);
	m->direct = g->direct;
	memcpy(m->target, added->local.gid, 16);
	TAILQ_FOREACH(rmb, &g->rmbs, of_group)
		if (m->nrtokens < KARST_SMC_RKEYS_MAX)
			m->rtokens[m->nrtokens++] =
				(struct karst_smc_rtoken){rmb->rkey[link_slot(on)],
					rmb->rkey[link_slot(added)], rmb->vaddr[link_slot(added)]};
}

void
smc_llc_add_link(struct smc_core *c, struct smc_group *g, struct smc_link *added)
{
	struct smc_link *on = smc_group_link(g, added);
	struct karst_smc_llc *m = smc_llc_new(c, on, KARST_SMC_LLC_ADD_LINK, 0);

	if (added != NULL) {
		fill_add_link(m, on, added);
	} else { /* none to offer: with no MTU it is refused at once, and no side waits */
		memcpy(m->mac, on->local.mac, 6);
		memcpy(m->gid, on->local.gid, 16);
		m->direct = g->direct;
	}
	smc_llc_send(c, on);
}

/* Whether enough time has passed since the last second link.  A queue pair is expensive to create,
 * and the peer can at once refuse, or delete, what it has requested or offered. */
static bool
may_add(const struct smc_core *c, const struct smc_group *g)
{
	return c->pub.now_ns >= g->add_ns;
}

static int
start_second(struct smc_core *c, struct smc_link *on, struct smc_link *added, uint8_t number,
	const uint8_t *remote_gid)
{
	struct smc_group *g = on->group;
	int rc = smc_link_start(c, g, link_slot(added), number, NULL, remote_gid);

	if (rc == 0)
		g->add_ns = c->pub.now_ns + ADD_EACH;
	return rc;
}

int
karst_smc_group_add_link(struct karst_smc *smc, uint32_t group)
{
	struct smc_core *c = core_of(smc);
	struct smc_group *g;
	struct smc_link *on, *added;
	int rc = -ENODEV;

	if (group >= c->cfg.max_groups || c->groups[group].state == GROUP_NONE)
		return -ENOENT;
	g = &c->groups[group];
	on = smc_group_link(g, NULL);
	if (g->role != KARST_SMC_SERVER || g->state == GROUP_ENDING || on == NULL)
		return -EINVAL;
	added = &g->links[!link_slot(on)];
	if (added->state != LINK_NONE || g->flow_sent || !smc_link_has_llc_slot(c, on))
		return -EBUSY;
	if (g->max_links > 1)
		rc = start_second(c, on, added, on->number == 1 ? 2 : 1, NULL);
	if (rc == 0) {
		rc = smc_rmb_add_link(c, g, added);
		if (rc != 0)
			smc_link_close(c, added);
	}
	if (rc == 0) {
		added->state = LINK_ADDING;
		smc_timer_set(c, &added->timer, c->cfg.add_wait_ns);
	}
	if (rc == 0 || g->state == GROUP_NEW)
		smc_llc_add_link(c, g, rc == 0 ? added : NULL);
	return rc;
}

int
karst_smc_group_ask_link(struct karst_smc *smc, uint32_t group, const uint8_t gid[16])
{
	struct smc_core *c = core_of(smc);
	struct smc_group *g;
	struct smc_link *on;
	struct karst_smc_llc *m;

	if (group >= c->cfg.max_groups || c->groups[group].state == GROUP_NONE)
		return -ENOENT;
	g = &c->groups[group];
	on = smc_group_link(g, NULL);
	if (g->role != KARST_SMC_CLIENT || g->state != GROUP_ACTIVE || g->version < 2 ||
		g->max_links < 2 || on == NULL)
		return -EINVAL;
	if (g->links[!link_slot(on)].state != LINK_NONE)
		return -EBUSY;
	m = smc_llc_new(c, on, KARST_SMC_LLC_REQ_ADD_LINK, 0);
	m->ngids = 1;
	memcpy(m->gids[0], gid, 16);
	smc_llc_send(c, on);
	return 0;
}

/* Takes the keys on @added of the peer's keys that are known on @on. */
static void
take_keys(struct smc_link *on, struct smc_link *added, const struct karst_smc_llc *m)
{
	struct smc_group *g = on->group;

	for (unsigned int i = 0; i < m->nrtokens; i++) {
		int t = smc_rtoken_find(g, on, m->rtokens[i].link);

		if (t < 0)
			continue;
		g->rtokens[t].known[link_slot(added)] = true;
		g->rtokens[t].rkey[link_slot(added)] = m->rtokens[i].rkey;
		g->rtokens[t].vaddr[link_slot(added)] = m->rtokens[i].vaddr;
	}
}

static void
take_end(struct smc_link *added, const struct karst_smc_llc *m)
{
	added->remote = (struct karst_smc_end){.qpn = m->qpn, .psn = m->psn, .mtu = m->mtu};
	memcpy(added->remote.gid, m->gid, 16);
	memcpy(added->remote.mac, m->mac, 6);
}

/* As client.  NULL: the link is refused. */
static struct smc_link *
join_link(struct smc_core *c, struct smc_link *on, const struct karst_smc_llc *m)
{
	struct smc_group *g = on->group;
	struct smc_link *added = &g->links[!link_slot(on)];

	if (!m->v2 || m->mtu < 1 || m->mtu > 5 || g->max_links < 2 || added->state != LINK_NONE ||
		m->link == on->number || !may_add(c, g))
		return NULL;
	if (start_second(c, on, added, m->link, m->gid) != 0)
		return NULL;
	take_end(added, m);
	if (smc_rmb_add_link(c, g, added) != 0 || smc_link_connect(c, added) != 0) {
		smc_link_close(c, added);
		return NULL;
	}
	take_keys(on, added, m);
	smc_timer_set(
		c, &added->timer, karst_min_u64(c->cfg.confirm_wait_ns, 2 * c->cfg.add_wait_ns));
	return added;
}

/* As client. */
static void
accept_link(struct smc_core *c, struct smc_link *on, struct smc_link *added)
{
	struct karst_smc_llc *r =
		smc_llc_new(c, on, KARST_SMC_LLC_ADD_LINK, KARST_SMC_LLC_RESPONSE);

	fill_add_link(r, on, added);
	smc_llc_send(c, on);
}

/* As client: refuses, with the fields that the server has offered. */
static void
reject_link(struct smc_core *c, struct smc_link *on, const struct smc_link *added)
{
	struct karst_smc_llc *r = smc_llc_new(
		c, on, KARST_SMC_LLC_ADD_LINK, KARST_SMC_LLC_RESPONSE | KARST_SMC_LLC_REJECTED);

	put_end(r, added, &added->remote);
	smc_llc_send(c, on);
}

void
smc_llc_linked(struct smc_core *c, struct smc_link *added, int rc)
{
	struct smc_group *g = added->group;
	struct smc_link *on = smc_group_link(g, added);

	if (rc == 0 && g->role == KARST_SMC_SERVER) {
		added->state = LINK_CONFIRMING;
		smc_llc_confirm_link(c, added, 0);
	} else if (rc == 0 && smc_link_has_llc_slot(c, on)) {
		accept_link(c, on, added);
	} else {
		if (g->role == KARST_SMC_CLIENT)
			reject_link(c, on, added);
		smc_link_close(c, added);
		smc_flow_next(c, g);
	}
}

static void
rx_add_link_request(struct smc_core *c, struct smc_link *link, struct karst_smc_llc *m)
{
	struct smc_group *g = link->group;
	/* the answer is long, and cannot be queued for a slot */
	struct smc_link *added = smc_link_has_llc_slot(c, link) ? join_link(c, link, m) : NULL;

	if (added == NULL)
		llc_answer(c, link, m, KARST_SMC_LLC_REJECTED);
	else if (added->state == LINK_READY)
		accept_link(c, link, added);
	if (g->state == GROUP_NEW)
		smc_first_contact_over(c, g);
}

static void
rx_add_link_response(struct smc_core *c, struct smc_link *link, const struct karst_smc_llc *m)
{
	struct smc_group *g = link->group;
	struct smc_link *added = &g->links[!link_slot(link)];

	if (added->state == LINK_ADDING) {
		take_end(added, m);
		if (m->flags & KARST_SMC_LLC_REJECTED || m->mtu < 1 || m->mtu > 5 ||
			smc_link_connect(c, added) != 0) {
			smc_link_close(c, added);
		} else {
			take_keys(link, added, m);
			if (added->state == LINK_READY)
				smc_llc_linked(c, added, 0);
		}
	} else if (g->state != GROUP_NEW) {
		llc_bad(c);
	}
	if (g->state == GROUP_NEW)
		smc_first_contact_over(c, g);
	else
		smc_flow_next(c, g);
}

static void
rx_add_link(struct smc_core *c, struct smc_link *link, struct karst_smc_llc *m)
{
	bool response = m->flags & KARST_SMC_LLC_RESPONSE;

	if (!link_usable(link) || response != (link->group->role == KARST_SMC_SERVER))
		llc_bad(c);
	else if (response)
		rx_add_link_response(c, link, m);
	else
		rx_add_link_request(c, link, m);
}

static void
rx_link_wanted(struct smc_core *c, struct smc_group *g)
{
	if (!may_add(c, g) || karst_smc_group_add_link(&c->pub, group_index(c, g)) == -EBUSY)
		smc_group_event(c, g, KARST_SMC_EV_LINK_ASKED);
}

/* --- DELETE_LINK (S18) --- */

void
smc_llc_delete_link(
	struct smc_core *c, struct smc_link *link, uint8_t number, uint8_t flags, uint32_t reason)
{
	struct karst_smc_llc *m = smc_llc_new(c, link, KARST_SMC_LLC_DELETE_LINK, flags);

	m->link = number;
	m->reason = reason;
	smc_llc_send(c, link);
}

static void
rx_delete_link(struct smc_core *c, struct smc_link *link, struct karst_smc_llc *m)
{
	struct smc_group *g = link->group;
	struct smc_link *dead = NULL, *other;
	uint32_t tell = g->role == KARST_SMC_SERVER ? m->reason : 0;

	if (m->flags & KARST_SMC_LLC_RESPONSE)
		return;
	for (unsigned int n = 0; n < KARST_SMC_LINKS; n++) {
		if (g->links[n].state != LINK_NONE && g->links[n].number == m->link)
			dead = &g->links[n];
	}
	other = smc_group_link(g, dead);
	if (m->flags & KARST_SMC_LLC_ALL || (dead != NULL && other == NULL)) {
		count(c, KARST_SMC_CTR_GROUP_DOWN);
		smc_group_terminate(c, g);
		return;
	}
	if (g->role == KARST_SMC_CLIENT) { /* also if this side knew */
		if (dead == NULL)
			m->reason = KARST_SMC_DEL_UNKNOWN;
		llc_answer(c, other, m, 0);
	}
	if (dead != NULL)
		smc_link_lost(c, dead, tell);
}

/* --- keys (S9) --- */

static void
rx_confirm_rkey(struct smc_core *c, struct smc_link *link, struct karst_smc_llc *m)
{
	struct smc_group *g = link->group;
	unsigned int i, n;
	int t;

	if (m->flags & KARST_SMC_LLC_RESPONSE) {
		smc_flow_answer(c, g, link, m);
		return;
	}
	t = smc_rtoken_add(g, link, m->first.rkey, m->first.vaddr, NULL);
	for (i = 0; t >= 0 && i < m->nrtokens; i++) {
		for (n = 0; n < KARST_SMC_LINKS; n++) {
			if (&g->links[n] == link || g->links[n].state == LINK_NONE ||
				g->links[n].number != m->rtokens[i].link)
				continue;
			g->rtokens[t].known[n] = true;
			g->rtokens[t].rkey[n] = m->rtokens[i].rkey;
			g->rtokens[t].vaddr[n] = m->rtokens[i].vaddr;
		}
	}
	llc_answer(c, link, m, t < 0 ? KARST_SMC_LLC_NEGATIVE : 0);
}

static void
rx_delete_rkey(struct smc_core *c, struct smc_link *link, struct karst_smc_llc *m)
{
	uint8_t errors = 0;
	bool any = false;

	if (m->flags & KARST_SMC_LLC_RESPONSE) {
		smc_flow_answer(c, link->group, link, m);
		return;
	}
	for (unsigned int i = 0; i < m->nrtokens; i++) {
		if (smc_rtoken_remove(c, link->group, link, m->rtokens[i].rkey))
			continue;
		any = true;
		if (i < 8)
			errors |= (uint8_t)(0x80u >> i);
	}
	m->error_mask = errors;
	llc_answer(c, link, m, any ? KARST_SMC_LLC_NEGATIVE : 0);
}

/* --- all of them --- */

static void
llc_dispatch(struct smc_core *c, struct smc_link *link, struct karst_smc_llc *m)
{
	switch (m->type) {
	case KARST_SMC_LLC_CONFIRM_LINK:
		rx_confirm_link(c, link, m);
		break;
	case KARST_SMC_LLC_ADD_LINK:
		rx_add_link(c, link, m);
		break;
	case KARST_SMC_LLC_DELETE_LINK:
		rx_delete_link(c, link, m);
		break;
	case KARST_SMC_LLC_REQ_ADD_LINK:
		/* the answer to this side's request is the ADD_LINK, or there is none */
		if (!(m->flags & KARST_SMC_LLC_RESPONSE) && link_usable(link) &&
			link->group->state == GROUP_ACTIVE)
			rx_link_wanted(c, link->group);
		break;
	case KARST_SMC_LLC_CONFIRM_RKEY:
		rx_confirm_rkey(c, link, m);
		break;
	case KARST_SMC_LLC_TEST_LINK:
		if (!(m->flags & KARST_SMC_LLC_RESPONSE))
			llc_answer(c, link, m, 0);
		break;
	case KARST_SMC_LLC_DELETE_RKEY:
		rx_delete_rkey(c, link, m);
		break;
	case KARST_SMC_LLC_ADD_LINK_CONT:
	case KARST_SMC_LLC_CONFIRM_RKEY_CONT:
		llc_bad(c); /* this side begins no exchange that is continued so */
	}
}

void
smc_llc_rx(struct smc_core *c, struct smc_link *link, const void *msg, size_t len)
{
	struct karst_smc_llc *m = &c->llc_rx;

	count(c, KARST_SMC_CTR_LLC_RX);
	if (karst_smc_llc_parse(msg, len, m) != 0 || m->v2 != (link->group->version > 1))
		llc_bad(c);
	else if (link->group->state == GROUP_ENDING)
		return; /* the last message for the peer is under way */
	else if (!link_usable(link) && m->type != KARST_SMC_LLC_CONFIRM_LINK)
		llc_bad(c);
	else
		llc_dispatch(c, link, m);
}
