/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Buffers that peers write into (S5), and the exchange about their keys (S9).
 *
 * A buffer has one element, as Linux' have, and so one connection at a time.  Its keys are valid
 * from when a connection takes it to when the peer has answered that it will not use them any more.
 * Then the buffer waits in the pool, open, for another connection of any group that needs its size.
 *
 * Alternatively the connection's owner keeps it for the next one (karst_smc_conn_keep()): then it
 * remains the owner's, with its key, which the peer need not confirm again.  This requires that the
 * connection has ended properly, since nothing is written any more when both ends have said so.  It
 * lasts as long as the group has the same links: over another link, bytes that had arrived might be
 * written once more.
 *
 * A group has a list of its buffers, which are few of all that may exist.  It has one request about
 * a key outstanding at a time.  The buffers that wait for this are a list of the group; the first
 * is the one of the outstanding request, if flow_sent.
 */
#include "smc_priv.h"

static void
close_one(struct smc_core *c, struct smc_rmb *rmb)
{
	c->cfg.ops->rmb_close(c->cfg.user, rmb_index(c, rmb));
	rmb->state = RMB_NONE;
	rmb->next = c->free_rmb;
	c->free_rmb = rmb_index(c, rmb);
	c->pub.nrmbs--;
}

/* Closes an idle buffer of another size, so that a new one can be opened. */
static bool
make_room(struct smc_core *c)
{
	for (unsigned int size = 0; size <= KARST_SMC_SIZE_MAX && c->free_rmb == NIL; size++) {
		uint32_t i = c->idle_rmbs[size];

		if (i != NIL) {
			c->idle_rmbs[size] = c->rmbs[i].next;
			close_one(c, &c->rmbs[i]);
		}
	}
	return c->free_rmb != NIL;
}

/* Takes an idle buffer, or opens one.  -errno */
static int
take_idle(struct smc_core *c, uint8_t size, struct smc_rmb **rmb)
{
	uint32_t i = c->idle_rmbs[size];
	int rc;

	if (i != NIL) {
		*rmb = &c->rmbs[i];
		c->idle_rmbs[size] = (*rmb)->next;
		return 0;
	}
	if (!make_room(c))
		return -ENOSPC;
	i = c->free_rmb;
	rc = c->cfg.ops->rmb_open(c->cfg.user, i, karst_smc_size_bytes(size));
	if (rc != 0)
		return rc;
	*rmb = &c->rmbs[i];
	c->free_rmb = (*rmb)->next;
	**rmb = (struct smc_rmb){.size = size};
	c->pub.nrmbs++;
	return 0;
}

static void
give_idle(struct smc_core *c, struct smc_rmb *rmb)
{
	c->cfg.ops->rmb_unkey(c->cfg.user, rmb_index(c, rmb));
	TAILQ_REMOVE(&rmb->group->rmbs, rmb, of_group);
	rmb->state = RMB_IDLE;
	rmb->group = NULL;
	rmb->conn = NULL;
	rmb->next = c->idle_rmbs[rmb->size];
	c->idle_rmbs[rmb->size] = rmb_index(c, rmb);
}

static void
enqueue(struct smc_core *c, struct smc_rmb *rmb)
{
	struct smc_group *g = rmb->group;
	uint32_t self = rmb_index(c, rmb);

	rmb->queued = true;
	rmb->flow_next = NIL;
	if (g->flow == NIL)
		g->flow = self;
	else
		c->rmbs[g->flow_tail].flow_next = self;
	g->flow_tail = self;
	smc_flow_next(c, g);
}

/* Tells the peer not to use the key any more, if a link is there to do so. */
static void
delete_key(struct smc_core *c, struct smc_rmb *rmb)
{
	if (smc_group_link(rmb->group, NULL) == NULL || smc_mutant(NO_DELETE_RKEY)) {
		give_idle(c, rmb);
	} else {
		rmb->state = RMB_DELETING;
		enqueue(c, rmb);
	}
}

static void
drop_spare(struct smc_core *c, struct smc_rmb *rmb)
{
	rmb->group->nspares--;
	delete_key(c, rmb);
}

/* Limits spare buffers.  A peer has room for as many keys as a group has connections (S5), and
 * spare buffers must not take the place of those. */
static void
make_key_room(struct smc_core *c, struct smc_group *g)
{
	while (g->nspares != 0 && g->nconns + g->nspares > KARST_SMC_CONNS) {
		struct smc_rmb *oldest = NULL, *rmb;

		TAILQ_FOREACH(rmb, &g->rmbs, of_group)
			if (rmb->state == RMB_SPARE &&
				(oldest == NULL || rmb->spare_at < oldest->spare_at))
				oldest = rmb;
		drop_spare(c, oldest);
	}
}

void
smc_rmb_links_changed(struct smc_core *c, struct smc_group *g)
{
	struct smc_rmb *rmb, *next;

	g->changes++;
	for (rmb = TAILQ_FIRST(&g->rmbs); rmb != NULL && g->nspares != 0; rmb = next) {
		next = TAILQ_NEXT(rmb, of_group);
		if (rmb->state == RMB_SPARE)
			drop_spare(c, rmb);
	}
}

static int
key_on(struct smc_core *c, struct smc_rmb *rmb, struct smc_link *link)
{
	unsigned int n = link_slot(link);

	return c->cfg.ops->rmb_key(c->cfg.user, rmb_index(c, rmb),
		rmb->conn != NULL ? rmb->conn->user : NULL, link_id(c, link), &rmb->rkey[n],
		&rmb->vaddr[n]);
}

/* Whether the peer has, or will have, the key on all links of the group. */
static bool
is_of(const struct smc_rmb *rmb, const struct smc_group *g)
{
	return rmb->group == g && rmb->changes == g->changes && g->state == GROUP_ACTIVE;
}

int
smc_rmb_get(struct smc_core *c, struct smc_conn *conn)
{
	struct smc_group *g = conn->group;
	struct smc_rmb *rmb;
	unsigned int n;
	int rc;

	if (conn->rmb != NULL && is_of(conn->rmb, g) && conn->rmb->size == conn->size)
		return 0;
	smc_rmb_put(c, conn);
	make_key_room(c, g);
	rc = take_idle(c, conn->size, &rmb);
	if (rc != 0)
		return rc;
	rmb->state = RMB_KEYED;
	rmb->group = g;
	TAILQ_INSERT_TAIL(&g->rmbs, rmb, of_group);
	rmb->conn = conn;
	rmb->queued = false;
	rmb->again = false;
	rmb->changes = g->changes;
	for (n = 0; n < KARST_SMC_LINKS && rc == 0; n++) {
		if (g->links[n].state != LINK_NONE)
			rc = key_on(c, rmb, &g->links[n]);
	}
	if (rc != 0) {
		give_idle(c, rmb);
		return rc;
	}
	conn->rmb = rmb;
	return 0;
}

int
smc_rmb_add_link(struct smc_core *c, struct smc_group *g, struct smc_link *link)
{
	struct smc_rmb *rmb;
	int rc = 0;

	TAILQ_FOREACH(rmb, &g->rmbs, of_group)
		if (rc == 0)
			rc = key_on(c, rmb, link);
	return rc;
}

/*
 * Whether something was received on the link recently.  A peer that has restarted has no keys, and
 * sent no message when the old process ended.  So only a peer from which something was just
 * received is assumed to have them; others are asked, and one that does not answer gets a new group
 * (smc_server_anew()).
 */
static bool
was_heard_of(const struct smc_core *c, const struct smc_link *link)
{
	return c->pub.now_ns - link->last_rx_ns < c->cfg.heard_ns && !smc_group_adding(link->group);
}

void
smc_rmb_confirm(struct smc_core *c, struct smc_rmb *rmb)
{
	if (smc_mutant(NO_CONFIRM_RKEY)) {
		smc_conn_rkey_done(c, rmb->conn, true);
		return;
	}
	if (rmb->again && was_heard_of(c, rmb->conn->link)) {
		count(c, KARST_SMC_CTR_RMB_REUSED);
		smc_conn_rkey_done(c, rmb->conn, true);
		return;
	}
	rmb->state = RMB_CONFIRMING;
	enqueue(c, rmb);
}

/* Whether it is in the list, without an outstanding request. */
static bool
waits(const struct smc_core *c, const struct smc_rmb *rmb)
{
	return rmb->queued && !(rmb->group->flow == rmb_index(c, rmb) && rmb->group->flow_sent);
}

static void
dequeue(struct smc_core *c, struct smc_rmb *rmb)
{
	struct smc_group *g = rmb->group;
	uint32_t *at = &g->flow, self = rmb_index(c, rmb), before = NIL;

	while (*at != self) {
		before = *at;
		at = &c->rmbs[*at].flow_next;
	}
	*at = rmb->flow_next;
	if (g->flow_tail == self)
		g->flow_tail = before;
	rmb->queued = false;
}

void
smc_rmb_put(struct smc_core *c, struct smc_conn *conn)
{
	struct smc_rmb *rmb = conn->rmb;
	struct smc_group *g;

	if (rmb == NULL)
		return;
	conn->rmb = NULL;
	rmb->conn = NULL;
	g = rmb->group;
	if (rmb->state == RMB_CONFIRMING && !waits(c, rmb))
		return; /* the key is deleted when the answer has arrived */
	if (rmb->queued && rmb->again) {
		rmb->state = RMB_DELETING; /* the peer has the key from the previous connection */
	} else if (rmb->queued) {
		dequeue(c, rmb); /* the peer does not have its key */
		give_idle(c, rmb);
		smc_group_rearm(c, g);
	} else {
		delete_key(c, rmb);
	}
}

/* Whether both sides have closed, and have received all that was sent. */
static bool
ended_well(const struct smc_conn *conn)
{
	return conn->state == KARST_SMC_CLOSED && conn->closed_told && conn->in_flight == 0 &&
		conn->error == 0 && conn->recv_pos == conn->cons &&
		(conn->conn_flags & conn->rx_flags & KARST_SMC_CDC_CLOSED) != 0 &&
		((conn->conn_flags | conn->rx_flags) & KARST_SMC_CDC_ABORT) == 0;
}

int
karst_smc_conn_keep(struct karst_smc *smc, uint32_t id, uint32_t *index)
{
	struct smc_core *c = core_of(smc);
	struct smc_conn *conn = smc_conn_find(c, id);
	struct smc_rmb *rmb = conn != NULL ? conn->rmb : NULL;
	struct smc_group *g = rmb != NULL ? rmb->group : NULL;

	if (conn == NULL)
		return -ENOENT;
	if (rmb == NULL || rmb->state != RMB_KEYED || !is_of(rmb, g) || g->no_reuse ||
		(!ended_well(conn) && !smc_mutant(KEEP_ANY)))
		return -EINVAL;
	if (smc_group_adding(g) || g->nconns + g->nspares > KARST_SMC_CONNS)
		return -EBUSY;
	conn->rmb = NULL;
	rmb->conn = NULL;
	rmb->state = RMB_SPARE;
	rmb->spare_at = c->nspared++;
	g->nspares++;
	*index = rmb_index(c, rmb);
	return 0;
}

static struct smc_rmb *
spare_of(struct smc_core *c, uint32_t index)
{
	return index < c->cfg.max_rmbs && c->rmbs[index].state == RMB_SPARE ? &c->rmbs[index]
									    : NULL;
}

int
karst_smc_conn_take(struct karst_smc *smc, uint32_t id, uint32_t index)
{
	struct smc_core *c = core_of(smc);
	struct smc_conn *conn = smc_conn_find(c, id);
	struct smc_rmb *rmb = spare_of(c, index);

	if (conn == NULL || rmb == NULL)
		return -ENOENT;
	if (conn->rmb != NULL || conn->state > KARST_SMC_WAIT_ACCEPT)
		return -EINVAL;
	rmb->group->nspares--;
	rmb->state = RMB_KEYED;
	rmb->again = true;
	rmb->conn = conn;
	conn->rmb = rmb;
	return 0;
}

int
karst_smc_rmb_drop(struct karst_smc *smc, uint32_t index)
{
	struct smc_core *c = core_of(smc);
	struct smc_rmb *rmb = spare_of(c, index);

	if (rmb == NULL)
		return -ENOENT;
	drop_spare(c, rmb);
	return 0;
}

void
smc_rmb_group_gone(struct smc_core *c, struct smc_group *g)
{
	struct smc_rmb *rmb;

	while ((rmb = TAILQ_FIRST(&g->rmbs)) != NULL) {
		if (rmb->conn != NULL)
			rmb->conn->rmb = NULL;
		give_idle(c, rmb);
	}
	g->nspares = 0;
	g->flow = g->flow_tail = NIL;
	g->flow_sent = false;
}

/* --- one request at a time --- */

static void
send_confirm(struct smc_core *c, struct smc_rmb *rmb, struct smc_link *link)
{
	struct karst_smc_llc *m = smc_llc_new(c, link, KARST_SMC_LLC_CONFIRM_RKEY, 0);
	struct smc_group *g = rmb->group;
	unsigned int n;

	m->first = (struct karst_smc_rtoken){
		0, rmb->rkey[link_slot(link)], rmb->vaddr[link_slot(link)]};
	for (n = 0; n < KARST_SMC_LINKS; n++) {
		if (link_usable(&g->links[n]) && &g->links[n] != link)
			m->rtokens[m->nrtokens++] = (struct karst_smc_rtoken){
				g->links[n].number, rmb->rkey[n], rmb->vaddr[n]};
	}
	smc_llc_send(c, link);
}

static void
send_delete(struct smc_core *c, struct smc_rmb *rmb, struct smc_link *link)
{
	struct karst_smc_llc *m = smc_llc_new(c, link, KARST_SMC_LLC_DELETE_RKEY, 0);

	m->nrtokens = 1;
	m->rtokens[0].rkey = rmb->rkey[link_slot(link)];
	smc_llc_send(c, link);
}

void
smc_flow_next(struct smc_core *c, struct smc_group *g)
{
	struct smc_link *link = smc_group_link(g, NULL);
	struct smc_rmb *rmb;

	if (g->flow == NIL || g->flow_sent || smc_group_adding(g) || link == NULL ||
		g->state == GROUP_ENDING) {
		smc_group_rearm(c, g);
		return;
	}
	rmb = &c->rmbs[g->flow];
	g->flow_sent = true;
	g->flow_link = link;
	g->flow_rkey = rmb->rkey[link_slot(link)];
	smc_timer_set(c, &g->timer, c->cfg.llc_wait_ns);
	if (rmb->state == RMB_CONFIRMING) {
		count(c, KARST_SMC_CTR_RKEY_ASKED);
		send_confirm(c, rmb, link);
	} else {
		send_delete(c, rmb, link);
	}
}

void
smc_flow_over(struct smc_core *c, struct smc_group *g, bool good)
{
	struct smc_rmb *rmb = &c->rmbs[g->flow];
	struct smc_conn *conn = rmb->conn;
	bool confirmed = rmb->state == RMB_CONFIRMING && good;

	g->flow_sent = false;
	smc_timer_stop(c, &g->timer);
	dequeue(c, rmb);
	if (rmb->state == RMB_DELETING) {
		give_idle(c, rmb);
	} else if (conn == NULL) {
		delete_key(c, rmb); /* without a good answer, too: the peer may have the key */
	} else {
		rmb->state = RMB_KEYED;
		smc_conn_rkey_done(c, conn, confirmed);
	}
	if (g->state != GROUP_NONE)
		smc_flow_next(c, g);
}

void
smc_flow_answer(struct smc_core *c, struct smc_group *g, struct smc_link *link,
	const struct karst_smc_llc *m)
{
	struct smc_rmb *rmb = g->flow != NIL ? &c->rmbs[g->flow] : NULL;
	enum smc_rmb_state about =
		m->type == KARST_SMC_LLC_CONFIRM_RKEY ? RMB_CONFIRMING : RMB_DELETING;

	if (!g->flow_sent || g->flow_link != link || rmb->state != about ||
		(about == RMB_CONFIRMING && m->first.rkey != g->flow_rkey)) {
		count(c, KARST_SMC_CTR_LLC_BAD); /* late, or not requested */
		return;
	}
	smc_flow_over(c, g, !(m->flags & KARST_SMC_LLC_NEGATIVE));
}

void
smc_flow_link_lost(struct smc_core *c, struct smc_group *g, struct smc_link *link)
{
	if (!g->flow_sent || g->flow_link != link)
		return;
	g->flow_sent = false; /* the request is repeated on the other link */
	if (g->state == GROUP_ENDING)
		return; /* the timer is that of the end */
	smc_timer_stop(c, &g->timer);
	smc_flow_next(c, g);
}
