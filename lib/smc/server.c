/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The server side: Proposal, Accept, Confirm (S2, S6).
 *
 * While the first connection with a peer is being established, other connections from that peer
 * wait for its group: otherwise a burst of them would make a group each.  They do not wait long:
 * one of the two programs may have taken the message that this side waits for out of TCP, and the
 * waiting connections belong to other users.
 */
#include "smc_priv.h"

#define REUSE_WAIT    UINT64_C(3000000000) /* half of what a client of Linux waits for the Accept */
#define SERVER_LONGER UINT64_C(3000000000) /* so that the client is the side that gives up */

static bool
offers_r(uint8_t mode)
{
	return mode == KARST_SMC_MODE_R || mode == KARST_SMC_MODE_B;
}

static uint32_t
negotiate_v2(struct smc_core *c, struct smc_conn *conn, const struct karst_smc_proposal *p)
{
	conn->eid = smc_eid_match(c, p->eids, p->neids);
	if (conn->eid == NULL)
		return p->neids == 0 ? KARST_SMC_DECL_NO_UEID : KARST_SMC_DECL_NO_DEVICE;
	conn->version = 2;
	conn->release = p->release < c->cfg.release ? p->release : c->cfg.release;
	conn->max_conns = KARST_SMC_CONNS;
	conn->max_links = 1;
	memcpy(conn->peer_roce, p->roce, 16);
	memcpy(conn->peer_system, p->peer.system_id, 8);
	if (conn->release == 0)
		return 0;
	if (p->max_conns < CONNS_MIN)
		return KARST_SMC_DECL_MAX_CONNS;
	if (p->max_links < 1)
		return KARST_SMC_DECL_MAX_LINKS;
	conn->max_conns = p->max_conns < c->cfg.group_conns ? p->max_conns : c->cfg.group_conns;
	conn->max_links = p->max_links < c->cfg.group_links ? p->max_links : c->cfg.group_links;
	conn->features = p->features & c->cfg.features;
	return 0;
}

/* Negotiates the best version that both have.  0, or the reason why there is none. */
static uint32_t
server_negotiate(struct smc_core *c, struct smc_conn *conn, const struct karst_smc_proposal *p)
{
	uint32_t reason = KARST_SMC_DECL_VERSION;

	if (c->cfg.neids == 0 && !c->cfg.v1)
		return KARST_SMC_DECL_NO_DEVICE;
	if (p->version > 1 && offers_r(p->mode2) && c->cfg.neids != 0) {
		reason = negotiate_v2(c, conn, p);
		if (reason == 0)
			return 0;
	}
	if (!offers_r(p->mode1) || !c->cfg.v1)
		return !offers_r(p->mode1) && !offers_r(p->mode2) ? KARST_SMC_DECL_MODE : reason;
	conn->version = 1;
	conn->release = 0;
	conn->max_conns = KARST_SMC_CONNS;
	conn->max_links = 1;
	memcpy(conn->peer_roce, p->peer.gid, 16);
	memcpy(conn->peer_system, p->peer.system_id, 8);
	return 0;
}

void
smc_server_proposed(struct smc_core *c, struct smc_conn *conn, const struct karst_smc_proposal *p)
{
	uint32_t reason;

	conn->version = p->version > 1 ? 2 : 1; /* the version of a DECLINE */
	reason = server_negotiate(c, conn, p);
	if (reason != 0)
		smc_decline(c, conn, reason);
	else
		smc_server_choose(c, conn);
}

/* 0, or the reason to decline. */
static uint32_t
server_first_contact(struct smc_core *c, struct smc_conn *conn)
{
	struct smc_group *g = smc_group_new(c, conn);
	int rc;

	if (g == NULL)
		return KARST_SMC_DECL_MEMORY;
	conn->first_contact = true;
	memcpy(g->key_system, conn->peer_system, 8);
	memcpy(g->key_gid, conn->peer_roce, 16);
	memcpy(g->peer.gid, conn->peer_roce, 16);
	g->direct = true;
	rc = smc_link_start(c, g, 0, 1, conn->local_gid, conn->peer_roce);
	if (rc != 0)
		return smc_reason_of(rc);
	conn->link = &g->links[0];
	rc = smc_rmb_get(c, conn);
	return rc != 0 ? smc_reason_of(rc) : 0;
}

static uint32_t
server_reuse(struct smc_core *c, struct smc_conn *conn, struct smc_group *g)
{
	int rc;

	smc_group_join(c, g, conn);
	conn->link = smc_group_link(g, NULL);
	conn->release = g->release;
	if (conn->link == NULL)
		return KARST_SMC_DECL_NO_ACTIVE_LINK;
	rc = smc_rmb_get(c, conn);
	return rc != 0 ? smc_reason_of(rc) : 0;
}

void
smc_server_choose(struct smc_core *c, struct smc_conn *conn)
{
	struct smc_group *g = smc_group_of_server(c, conn);
	uint32_t reason;

	if (g != NULL && g->state == GROUP_NEW) {
		conn->state = KARST_SMC_PARKED;
		smc_timer_set(c, &conn->timer, REUSE_WAIT);
		smc_group_join(c, g, conn);
		return;
	}
	reason = g == NULL ? server_first_contact(c, conn) : server_reuse(c, conn, g);
	if (reason != 0) {
		smc_decline(c, conn, reason);
	} else if (g == NULL) {
		conn->state = KARST_SMC_WAIT_CONFIRM;
		smc_timer_set(c, &conn->timer, c->cfg.clc_wait_ns);
		smc_send_accept(c, conn, KARST_SMC_CLC_ACCEPT);
	} else {
		conn->state = KARST_SMC_WAIT_RKEY;
		smc_timer_set(c, &conn->timer, karst_min_u64(REUSE_WAIT, c->cfg.llc_wait_ns / 2));
		smc_rmb_confirm(c, conn->rmb);
	}
}

/*
 * The link of the group does not answer.  It may belong to a former process at the peer's address:
 * Linux does not identify the system in version 2's Proposal.  So this connection makes a new
 * group.
 */
void
smc_server_anew(struct smc_core *c, struct smc_conn *conn)
{
	conn->group->no_reuse = true;
	smc_clc_detach(c, conn);
	smc_server_choose(c, conn);
}

/* The group that the connection waits for is not established yet: the connection makes one, for
 * which later connections wait. */
void
smc_server_unpark(struct smc_core *c, struct smc_conn *conn)
{
	conn->group->no_reuse = true;
	smc_group_leave(c, conn);
	conn->state = KARST_SMC_WAIT_PROPOSAL;
	smc_server_choose(c, conn);
}

/* 0, or the reason to decline. */
static uint32_t
confirmed_first(struct smc_core *c, struct smc_conn *conn, const struct karst_smc_accept *a)
{
	struct smc_group *g = conn->group;
	int rc;

	if (conn->version > 1) {
		if (a->release != conn->release)
			return KARST_SMC_DECL_RELEASE;
		if (conn->release > 0 && a->max_conns != conn->max_conns)
			return KARST_SMC_DECL_MAX_CONNS;
		if (conn->release > 0 && a->max_links != conn->max_links)
			return KARST_SMC_DECL_MAX_LINKS;
		if (memcmp(a->peer.gid, conn->peer_roce, 16) != 0)
			return KARST_SMC_DECL_OUT_OF_SYNC; /* not the sender of the Proposal */
	}
	rc = smc_rtoken_add(g, conn->link, a->rkey, a->vaddr, NULL);
	if (rc < 0 || !smc_take_rtoken(c, conn, rc, a))
		return KARST_SMC_DECL_RTOKEN;
	g->peer = a->peer;
	conn->link->remote = (struct karst_smc_end){.qpn = a->qpn, .psn = a->psn, .mtu = a->mtu};
	memcpy(conn->link->remote.gid, a->peer.gid, 16);
	memcpy(conn->link->remote.mac, a->peer.mac, 6);
	return smc_link_connect(c, conn->link) != 0 ? KARST_SMC_DECL_READY_LINK : 0;
}

/* Checks that the sender is the peer at the other end of the link, and not just knows its GID
 * (S11). */
static uint32_t
confirmed_reuse(struct smc_core *c, struct smc_conn *conn, const struct karst_smc_accept *a)
{
	const struct smc_link *link = conn->link;
	int rc = smc_rtoken_find(conn->group, conn->link, a->rkey);

	if (a->qpn != link->remote.qpn || memcmp(a->peer.gid, link->remote.gid, 16) != 0)
		return KARST_SMC_DECL_OUT_OF_SYNC;
	if (rc < 0 || conn->group->rtokens[rc].vaddr[link_slot(link)] != a->vaddr)
		return KARST_SMC_DECL_RTOKEN;
	return smc_take_rtoken(c, conn, rc, a) ? 0 : KARST_SMC_DECL_RTOKEN;
}

void
smc_server_confirmed(struct smc_core *c, struct smc_conn *conn, const struct karst_smc_accept *a)
{
	uint32_t reason = 0;

	if (a->version != conn->version)
		reason = KARST_SMC_DECL_VERSION;
	else if (a->first_contact != conn->first_contact)
		reason = KARST_SMC_DECL_OUT_OF_SYNC;
	else if (!smc_take_element(conn, a))
		reason = KARST_SMC_DECL_RTOKEN;
	else
		reason = conn->first_contact ? confirmed_first(c, conn, a)
					     : confirmed_reuse(c, conn, a);
	if (reason != 0) {
		smc_decline(c, conn, reason);
	} else if (!conn->first_contact) {
		smc_connected(c, conn);
	} else {
		conn->state = KARST_SMC_WAIT_CONFIRM_LINK;
		smc_timer_set(c, &conn->timer, c->cfg.confirm_wait_ns + SERVER_LONGER);
		if (conn->link->state == LINK_READY)
			smc_server_linked(c, conn);
	}
}

void
smc_server_linked(struct smc_core *c, struct smc_conn *conn)
{
	conn->link->state = LINK_CONFIRMING;
	smc_llc_confirm_link(c, conn->link, 0);
}

/* The client now waits for the link, and gives up; if this side had declined, the client's DECLINE
 * would be read as data. */
void
smc_server_await_decline(struct smc_core *c, struct smc_conn *conn)
{
	conn->state = KARST_SMC_WAIT_CONFIRM_LINK;
	smc_timer_set(c, &conn->timer, c->cfg.confirm_wait_ns + SERVER_LONGER);
}
