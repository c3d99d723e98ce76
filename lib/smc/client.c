/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The client side: Proposal, Accept, Confirm (S2, S6). */
#include "smc_priv.h"

static void
fill_v2(const struct smc_core *c, struct smc_conn *conn, struct karst_smc_proposal *p)
{
	p->mode2 = KARST_SMC_MODE_R;
	p->release = c->cfg.release;
	p->neids = c->cfg.neids;
	memcpy(p->eids, c->cfg.eids, sizeof(p->eids));
	memcpy(p->roce, conn->local_gid, 16);
	if (c->cfg.release == 0)
		return;
	p->max_conns = c->cfg.group_conns;
	p->max_links = conn->links_proposed = c->cfg.group_links;
	p->features = c->cfg.features;
}

static void
fill_v1(const struct smc_core *c, const struct smc_conn *conn, struct karst_smc_proposal *p)
{
	p->mode1 = KARST_SMC_MODE_R;
	memcpy(p->peer.gid, conn->local_gid, 16);
	memcpy(p->peer.mac, c->cfg.mac, 6);
	/* the whole address: this library has no routes, and so leaves to its callers whether both
	 * sides are in one network */
	p->subnet = (uint32_t)conn->local_gid[12] << 24 | (uint32_t)conn->local_gid[13] << 16 |
		(uint32_t)conn->local_gid[14] << 8 | conn->local_gid[15];
	p->subnet_len = 32;
}

void
smc_client_propose(struct smc_core *c, struct smc_conn *conn)
{
	struct karst_smc_clc msg = {.type = KARST_SMC_CLC_PROPOSAL,
		.proposal = {.mode1 = KARST_SMC_MODE_N, .mode2 = KARST_SMC_MODE_N}};

	conn->state = KARST_SMC_WAIT_ACCEPT;
	if (c->cfg.neids == 0 && !c->cfg.v1) {
		smc_decline(c, conn, KARST_SMC_DECL_NO_DEVICE);
		return;
	}
	conn->version = c->cfg.neids != 0 ? 2 : 1;
	msg.proposal.version = conn->version;
	/*
	 * Linux proposes version 2 alone without the system id, but uses it to find the groups of
	 * its clients: without it, a group of a former process at this address could be taken for
	 * one of this process.
	 */
	memcpy(msg.proposal.peer.system_id, c->cfg.system_id, 8);
	if (c->cfg.v1)
		fill_v1(c, conn, &msg.proposal);
	if (c->cfg.neids != 0)
		fill_v2(c, conn, &msg.proposal);
	smc_clc_send(c, conn, &msg);
}

/* Negotiates version 2.  0, or the reason to decline. */
static uint32_t
client_negotiate(struct smc_core *c, struct smc_conn *conn, const struct karst_smc_accept *a)
{
	conn->eid = smc_eid_match(c, &a->eid, 1);
	if (conn->eid == NULL)
		return KARST_SMC_DECL_NO_DEVICE;
	if (!a->first_contact)
		return 0;
	if (a->release > c->cfg.release)
		return KARST_SMC_DECL_RELEASE;
	conn->release = a->release;
	conn->max_conns = KARST_SMC_CONNS;
	conn->max_links = 1;
	if (a->release == 0)
		return 0;
	if (a->max_conns < CONNS_MIN || a->max_conns > c->cfg.group_conns)
		return KARST_SMC_DECL_MAX_CONNS;
	if (a->max_links < 1 || a->max_links > conn->links_proposed)
		return KARST_SMC_DECL_MAX_LINKS;
	conn->max_conns = a->max_conns;
	conn->max_links = a->max_links;
	conn->features = a->features & c->cfg.features;
	return 0;
}

/* 0, or the reason to decline. */
static uint32_t
client_first_contact(struct smc_core *c, struct smc_conn *conn, const struct karst_smc_accept *a)
{
	struct smc_group *g = smc_group_new(c, conn);
	int rc;

	if (g == NULL)
		return KARST_SMC_DECL_MEMORY;
	g->peer = a->peer;
	g->direct = conn->version == 1 || a->direct;
	rc = smc_link_start(c, g, 0, 1, conn->local_gid, a->peer.gid);
	if (rc != 0)
		return smc_reason_of(rc);
	conn->link = &g->links[0];
	rc = smc_rmb_get(c, conn);
	if (rc != 0)
		return smc_reason_of(rc);
	rc = smc_rtoken_add(g, conn->link, a->rkey, a->vaddr, NULL);
	if (rc < 0 || !smc_take_rtoken(c, conn, rc, a))
		return KARST_SMC_DECL_RTOKEN;
	conn->link->remote = (struct karst_smc_end){.qpn = a->qpn, .psn = a->psn, .mtu = a->mtu};
	memcpy(conn->link->remote.gid, a->peer.gid, 16);
	memcpy(conn->link->remote.mac, a->peer.mac, 6);
	return smc_link_connect(c, conn->link) != 0 ? KARST_SMC_DECL_READY_LINK : 0;
}

/* The group exists, on both sides if they are in sync.  0, or the reason to decline. */
static uint32_t
client_reuse(struct smc_core *c, struct smc_conn *conn, const struct karst_smc_accept *a)
{
	struct smc_link *link = smc_link_of_client(c, conn, a);
	struct smc_group *g = link != NULL ? link->group : NULL;
	int rc;

	if (g == NULL)
		return KARST_SMC_DECL_OUT_OF_SYNC;
	if (g->nconns >= KARST_SMC_CONNS)
		return KARST_SMC_DECL_MEMORY; /* connections have not ended here yet */
	rc = smc_rtoken_find(g, link, a->rkey);
	if (rc < 0 || g->rtokens[rc].vaddr[link_slot(link)] != a->vaddr)
		/* the peer has not asked this side to confirm it (S9) */
		return KARST_SMC_DECL_RTOKEN;
	smc_group_join(c, g, conn);
	conn->link = link;
	if (!smc_take_rtoken(c, conn, rc, a))
		return KARST_SMC_DECL_RTOKEN;
	conn->release = g->release;
	rc = smc_rmb_get(c, conn);
	return rc != 0 ? smc_reason_of(rc) : 0;
}

void
smc_client_accepted(struct smc_core *c, struct smc_conn *conn, const struct karst_smc_accept *a)
{
	uint32_t reason = 0;

	if (a->version > conn->version || (a->version == 1 && !c->cfg.v1)) {
		smc_decline(c, conn, KARST_SMC_DECL_VERSION);
		return;
	}
	conn->version = a->version;
	conn->first_contact = a->first_contact;
	conn->max_conns = KARST_SMC_CONNS;
	conn->max_links = 1;
	if (conn->version > 1)
		reason = client_negotiate(c, conn, a);
	if (reason == 0 && !smc_take_element(conn, a))
		reason = KARST_SMC_DECL_RTOKEN;
	if (reason == 0)
		reason = a->first_contact ? client_first_contact(c, conn, a)
					  : client_reuse(c, conn, a);
	if (reason != 0) {
		smc_decline(c, conn, reason);
	} else if (a->first_contact) {
		conn->state = KARST_SMC_WAIT_LINK;
		smc_timer_set(c, &conn->timer, c->cfg.confirm_wait_ns);
		if (conn->link->state == LINK_READY)
			smc_client_linked(c, conn);
	} else {
		conn->state = KARST_SMC_WAIT_RKEY;
		smc_timer_stop(c, &conn->timer); /* the exchanges that precede it have their own */
		smc_rmb_confirm(c, conn->rmb);
	}
}

void
smc_client_linked(struct smc_core *c, struct smc_conn *conn)
{
	conn->state = KARST_SMC_WAIT_CONFIRM_LINK;
	smc_timer_set(c, &conn->timer, c->cfg.confirm_wait_ns);
	smc_send_accept(c, conn, KARST_SMC_CLC_CONFIRM);
}

void
smc_client_confirm(struct smc_core *c, struct smc_conn *conn)
{
	assert(conn->group->rtokens[conn->rtoken].used); /* else smc_rtoken_remove() has declined */
	smc_send_accept(c, conn, KARST_SMC_CLC_CONFIRM);
	smc_connected(c, conn);
}
