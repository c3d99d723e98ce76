/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Link groups (S5, S11): two systems, in given roles, and the links between them.
 *
 * A group is NEW while its first connection is being established, ACTIVE afterwards, and ENDING
 * between the message that announces its end and the end of its links.  When its last link is lost,
 * the group ends.
 */
#include "smc_priv.h"

#define CLIENT_LONGER UINT64_C(10000000000) /* so that the server is the side that ends it */

/* Whether two addresses may belong to one machine; of IPv6 a machine has at least a 64-bit
 * network. */
static bool
is_near(const uint8_t a[16], const uint8_t b[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	return memcmp(a, b, memcmp(a, mapped, sizeof(mapped)) == 0 ? 16 : 8) == 0;
}

/*
 * Whether an address already has too many groups, so that it leaves some to others: an address has
 * at most three times as many as are left.  A peer could make groups with ever new system ids.
 */
static bool
has_too_many(const struct smc_core *c, const uint8_t ip[16])
{
	static const uint8_t unknown[16];
	uint32_t i, his = 0;

	if (memcmp(ip, unknown, sizeof(unknown)) == 0)
		return false;
	for (i = 0; i < c->cfg.max_groups; i++)
		his += c->groups[i].state != GROUP_NONE && is_near(c->groups[i].peer_ip, ip);
	return his != 0 && his >= 3 * (c->cfg.max_groups - c->pub.ngroups);
}

struct smc_group *
smc_group_new(struct smc_core *c, struct smc_conn *conn)
{
	struct smc_group *g;
	uint16_t generations[KARST_SMC_LINKS];
	struct smc_group old;
	unsigned int i;

	if (c->free_group == NIL || has_too_many(c, conn->peer_ip))
		return NULL;
	g = &c->groups[c->free_group];
	c->free_group = g->next_free;
	for (i = 0; i < KARST_SMC_LINKS; i++)
		generations[i] = g->links[i].generation;
	old.ev = g->ev;
	old.ev_next = g->ev_next;
	old.ev_listed = g->ev_listed;
	*g = (struct smc_group){
		.state = GROUP_NEW,
		.role = conn->role,
		.version = conn->version,
		.release = conn->release,
		.max_conns = conn->max_conns,
		.max_links = conn->max_links,
		.eid = conn->eid,
		.conns = NIL,
		.flow = NIL,
		.flow_tail = NIL,
		.timer.kind = TIMER_GROUP,
		.ev = old.ev,
		.ev_next = old.ev_next,
		.ev_listed = old.ev_listed,
	};
	TAILQ_INIT(&g->rmbs);
	for (i = 0; i < KARST_SMC_LINKS; i++) {
		g->links[i].group = g;
		g->links[i].generation = generations[i];
		g->links[i].timer.kind = TIMER_LINK;
	}
	c->pub.ngroups++;
	memcpy(g->peer_ip, conn->peer_ip, 16);
	smc_group_join(c, g, conn);
	return g;
}

/* Frees a group whose links and members are gone. */
static void
group_free(struct smc_core *c, struct smc_group *g)
{
	smc_timer_stop(c, &g->timer);
	g->state = GROUP_NONE;
	g->next_free = c->free_group;
	c->free_group = group_index(c, g);
	c->pub.ngroups--;
}

void
smc_group_join(struct smc_core *c, struct smc_group *g, struct smc_conn *conn)
{
	uint32_t self = conn_index(c, conn);

	conn->group = g;
	conn->group_prev = NIL;
	conn->group_next = g->conns;
	if (g->conns != NIL)
		c->conns[g->conns].group_prev = self;
	g->conns = self;
	conn->counted = conn->state != KARST_SMC_PARKED;
	if (!conn->counted)
		return;
	g->nconns++;
	smc_conn_name(c, conn);
	smc_group_rearm(c, g);
}

void
smc_group_leave(struct smc_core *c, struct smc_conn *conn)
{
	struct smc_group *g = conn->group;

	if (g == NULL)
		return;
	smc_conn_unname(c, conn);
	smc_link_unwait(c, conn);
	smc_link_forget(c, conn);
	if (conn->group_prev != NIL)
		c->conns[conn->group_prev].group_next = conn->group_next;
	else
		g->conns = conn->group_next;
	if (conn->group_next != NIL)
		c->conns[conn->group_next].group_prev = conn->group_prev;
	conn->group = NULL;
	conn->link = NULL;
	if (conn->counted)
		g->nconns--;
	conn->counted = false;
	if (g->state != GROUP_NONE)
		smc_group_rearm(c, g);
}

struct smc_link *
smc_link_of_client(
	const struct smc_core *c, const struct smc_conn *conn, const struct karst_smc_accept *a)
{
	unsigned int i, n;

	for (i = 0; i < c->cfg.max_groups; i++) {
		struct smc_group *g = &c->groups[i];

		if ((g->state != GROUP_ACTIVE && g->state != GROUP_NEW) ||
			g->role != KARST_SMC_CLIENT || g->no_reuse || g->version != conn->version ||
			g->eid != conn->eid || memcmp(g->peer.system_id, a->peer.system_id, 8) != 0)
			continue;
		for (n = 0; n < KARST_SMC_LINKS; n++) {
			struct smc_link *link = &g->links[n];

			if (link_usable(link) && link->remote.qpn == a->qpn &&
				memcmp(link->remote.gid, a->peer.gid, 16) == 0)
				return link;
		}
	}
	return NULL;
}

struct smc_group *
smc_group_of_server(const struct smc_core *c, const struct smc_conn *conn)
{
	for (unsigned int i = 0; i < c->cfg.max_groups; i++) {
		struct smc_group *g = &c->groups[i];

		if ((g->state == GROUP_NEW ||
			    (g->state == GROUP_ACTIVE && g->nconns < g->max_conns)) &&
			g->role == KARST_SMC_SERVER && !g->no_reuse &&
			g->version == conn->version && g->eid == conn->eid &&
			memcmp(g->key_system, conn->peer_system, 8) == 0 &&
			memcmp(g->key_gid, conn->peer_roce, 16) == 0 &&
			memcmp(g->peer_ip, conn->peer_ip, 16) == 0)
			return g;
	}
	return NULL;
}

void
smc_group_settled(struct smc_core *c, struct smc_group *g)
{
	uint32_t i = g->conns, next;

	for (; i != NIL; i = next) {
		struct smc_conn *conn = &c->conns[i];

		next = conn->group_next;
		if (conn->state != KARST_SMC_PARKED)
			continue;
		smc_group_leave(c, conn);
		conn->state = KARST_SMC_WAIT_PROPOSAL; /* as if its Proposal had arrived now */
		smc_server_choose(c, conn);
		/*
		 * The connection may have joined this group again, at the head of its list.  The
		 * call changes none of the connections that are left, so @next is still valid.
		 */
	}
}

/* Ends the connections of a group without links. */
static void
abort_conns(struct smc_core *c, struct smc_group *g, int error)
{
	uint32_t i, next;

	for (i = g->conns; i != NIL; i = next) {
		struct smc_conn *conn = &c->conns[i];

		next = conn->group_next;
		if (conn->state == KARST_SMC_PARKED)
			continue;
		if (conn_connected(conn))
			smc_conn_abort(c, conn, error, false);
		else if (conn->state < KARST_SMC_FELL_BACK)
			smc_refuse(c, conn, KARST_SMC_DECL_NO_ACTIVE_LINK);
		smc_close_quiet(c, conn);
		smc_rmb_put(c, conn);
		smc_group_leave(c, conn);
	}
}

void
smc_group_kill(struct smc_core *c, struct smc_group *g, int error)
{
	if (g->state != GROUP_NEW)
		smc_group_event(c, g, KARST_SMC_EV_GROUP_DOWN);
	g->state = GROUP_ENDING; /* a connection that falls back does not end it again */
	for (unsigned int n = 0; n < KARST_SMC_LINKS; n++) {
		if (g->links[n].state != LINK_NONE)
			smc_link_close(c, &g->links[n]);
	}
	abort_conns(c, g, error);
	smc_rmb_group_gone(c, g);
	g->state = GROUP_NONE; /* it is not found any more */
	smc_group_settled(c, g);
	group_free(c, g);
}

void
smc_group_terminate(struct smc_core *c, struct smc_group *g)
{
	uint32_t i;

	/* With a confirmed link the connection cannot fall back (S7): connect it, then reset it. */
	smc_first_contact_over(c, g);
	for (i = g->state == GROUP_NEW ? g->conns : NIL; i != NIL; i = c->conns[i].group_next) {
		if (c->conns[i].counted) {
			smc_refuse(c, &c->conns[i],
				KARST_SMC_DECL_NO_ACTIVE_LINK); /* which also ends the group */
			return;
		}
	}
	smc_group_kill(c, g, ECONNRESET);
}

void
smc_group_end(struct smc_core *c, struct smc_group *g, uint8_t flags, uint32_t reason)
{
	struct smc_link *link = smc_group_link(g, NULL);

	if (g->state == GROUP_NEW || link == NULL) {
		smc_group_terminate(c, g);
		return;
	}
	g->state = GROUP_ENDING;
	g->end_link = link;
	smc_llc_delete_link(c, link, 0, KARST_SMC_LLC_ALL | flags, reason);
	smc_timer_set(c, &g->timer, c->cfg.llc_wait_ns);
}

struct smc_link *
smc_group_link(struct smc_group *g, const struct smc_link *but)
{
	for (unsigned int n = 0; n < KARST_SMC_LINKS; n++) {
		if (link_usable(&g->links[n]) && &g->links[n] != but)
			return &g->links[n];
	}
	return NULL;
}

bool
smc_group_adding(const struct smc_group *g)
{
	for (unsigned int n = 0; n < KARST_SMC_LINKS; n++) {
		if (g->state != GROUP_NEW && g->links[n].state > LINK_NONE &&
			g->links[n].state < LINK_ACTIVE)
			return true;
	}
	return false;
}

/* --- time --- */

void
smc_group_rearm(struct smc_core *c, struct smc_group *g)
{
	uint64_t idle = c->cfg.group_idle_ns + (g->role == KARST_SMC_CLIENT ? CLIENT_LONGER : 0);

	if (g->flow_sent || g->state == GROUP_ENDING)
		return; /* these use the timer */
	if (g->nconns == 0 && g->flow == NIL && g->state == GROUP_ACTIVE) {
		if (!karst_timer_armed(&g->timer))
			smc_timer_set(c, &g->timer, idle);
	} else {
		smc_timer_stop(c, &g->timer);
	}
}

void
smc_group_timeout(struct smc_core *c, struct smc_group *g)
{
	if (g->state == GROUP_ENDING) {
		smc_group_kill(c, g, ECONNABORTED); /* the message was not sent */
	} else if (g->flow_sent) {
		count(c, KARST_SMC_CTR_LLC_TIMEOUT);
		smc_flow_over(c, g, false);
	} else {
		count(c, KARST_SMC_CTR_GROUP_IDLE);
		smc_group_end(c, g, KARST_SMC_LLC_ORDERLY, KARST_SMC_DEL_PROGRAM);
	}
}

int
karst_smc_group_end(struct karst_smc *smc, uint32_t group)
{
	struct smc_core *c = core_of(smc);

	if (group >= c->cfg.max_groups || c->groups[group].state == GROUP_NONE)
		return -ENOENT;
	if (c->groups[group].state != GROUP_ENDING) {
		count(c, KARST_SMC_CTR_GROUP_DOWN);
		smc_group_end(c, &c->groups[group], 0, KARST_SMC_DEL_OPERATOR);
	}
	return 0;
}

/* --- keys of the peer --- */

int
smc_rtoken_find(struct smc_group *g, struct smc_link *link, uint32_t rkey)
{
	unsigned int n = link_slot(link);

	for (int i = 0; i < KARST_SMC_CONNS; i++) {
		if (g->rtokens[i].used && g->rtokens[i].known[n] && g->rtokens[i].rkey[n] == rkey)
			return i;
	}
	return -1;
}

int
smc_rtoken_add(
	struct smc_group *g, struct smc_link *link, uint32_t rkey, uint64_t vaddr, bool *known)
{
	unsigned int n = link_slot(link);
	int i = smc_rtoken_find(g, link, rkey);

	if (known != NULL)
		*known = i >= 0;
	if (i >= 0)
		return g->rtokens[i].vaddr[n] == vaddr ? i : -1;
	for (i = 0; i < KARST_SMC_CONNS && g->rtokens[i].used; i++)
		;
	if (i == KARST_SMC_CONNS)
		return -1;
	g->rtokens[i] = (struct smc_rtoken){.used = true};
	g->rtokens[i].known[n] = true;
	g->rtokens[i].rkey[n] = rkey;
	g->rtokens[i].vaddr[n] = vaddr;
	return i;
}

/* Whether the connection has taken a key of the peer, with which it writes, or will write. */
static bool
has_rtoken(const struct smc_conn *conn)
{
	return conn_connected(conn) ||
		(conn->state == KARST_SMC_WAIT_RKEY && conn->role == KARST_SMC_CLIENT);
}

/*
 * Removes a key.  A connection that still writes with it is ended, since a WRITE would put the
 * peer's queue pair into Error and end all connections.  One that is being made is declined.
 */
bool
smc_rtoken_remove(struct smc_core *c, struct smc_group *g, struct smc_link *link, uint32_t rkey)
{
	int t = smc_rtoken_find(g, link, rkey);
	uint32_t i, next;

	if (t < 0)
		return false;
	/* With a confirmed link the first connection cannot fall back (S7): connect it, then reset
	 * it.  Also, a group that is NEW would end with any of its connections. */
	smc_first_contact_over(c, g);
	g->rtokens[t].used = false;
	for (i = g->conns; i != NIL; i = next) {
		struct smc_conn *conn = &c->conns[i];

		next = conn->group_next;
		if (!has_rtoken(conn) || conn->rtoken != t || conn->dead)
			continue;
		if (conn_connected(conn)) {
			smc_conn_abort(c, conn, ECONNRESET, true);
			conn->dead = true;
		} else {
			smc_refuse(c, conn, KARST_SMC_DECL_RTOKEN);
		}
	}
	return true;
}
