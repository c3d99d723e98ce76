/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Links: queue pairs, messages under way on them, and their failure (S17, S18).
 *
 * A link has at most cfg.send_slots incomplete messages.  The last few slots are for LLC.  A
 * connection that finds no slot waits in the link's list, first in first out.
 */
#include "smc_priv.h"

#include "karst_hdr.h"

int
smc_link_start(struct smc_core *c, struct smc_group *g, unsigned int n, uint8_t number,
	const uint8_t *local_gid, const uint8_t *remote_gid)
{
	struct smc_link *link = &g->links[n];
	struct karst_smc_link_ask ask;
	struct karst_smc_end local = {.mtu = 3};
	uint16_t generation = (uint16_t)(link->generation + 1);
	int rc;

	*link = (struct smc_link){.group = g,
		.generation = generation,
		.number = number,
		.timer.kind = TIMER_LINK,
		.waiting = NIL,
		.waiting_tail = NIL};
	ask = (struct karst_smc_link_ask){link_id(c, link), group_index(c, g), number, g->role,
		g->version, local_gid, remote_gid};
	rc = c->cfg.ops->link_open(c->cfg.user, &ask, &local);
	if (rc != 0)
		return rc;
	link->state = LINK_OPEN;
	link->local = local;
	if (number == 1)
		g->uid = c->next_uid += 1u << 8;
	karst_put_be32(link->uid, g->uid | number);
	return 0;
}

int
smc_link_connect(struct smc_core *c, struct smc_link *link)
{
	struct karst_smc_end remote = link->remote;
	int rc;

	if (remote.mtu > link->local.mtu)
		remote.mtu = link->local.mtu;
	rc = c->cfg.ops->link_connect(c->cfg.user, link_id(c, link), &remote);
	if (rc == -EINPROGRESS)
		link->state = LINK_CONNECTING;
	else if (rc == 0)
		link->state = LINK_READY;
	return rc == -EINPROGRESS ? 0 : rc;
}

void
karst_smc_link_connected(struct karst_smc *smc, uint32_t id, int rc)
{
	struct smc_core *c = core_of(smc);
	struct smc_link *link = smc_link_find(c, id);

	if (link == NULL || link->state != LINK_CONNECTING)
		return;
	if (rc == 0)
		link->state = LINK_READY;
	if (smc_group_link(link->group, link) == NULL)
		smc_first_contact_linked(c, link->group, rc);
	else
		smc_llc_linked(c, link, rc);
}

void
smc_link_active(struct smc_core *c, struct smc_link *link)
{
	struct smc_group *g = link->group;

	link->state = LINK_ACTIVE;
	link->last_rx_ns = c->pub.now_ns;
	smc_timer_set(c, &link->timer, c->cfg.test_ns);
	if (g->state == GROUP_ACTIVE) {
		smc_group_event(c, g, KARST_SMC_EV_LINK_UP);
		smc_rmb_links_changed(c, g);
		smc_flow_next(c, g);
	}
}

/* Frees all slots: what was under way will not complete. */
static void
drop_slots(struct smc_core *c, struct smc_link *link)
{
	for (; link->nslots > 0; link->nslots--) {
		struct smc_conn *conn = link->slots[link->first_slot].conn;

		link->first_slot = (link->first_slot + 1) % SLOTS_MAX;
		if (conn != NULL)
			conn->in_flight--;
	}
	while (link->waiting != NIL)
		smc_link_unwait(c, &c->conns[link->waiting]);
}

void
smc_link_close(struct smc_core *c, struct smc_link *link)
{
	c->cfg.ops->link_close(c->cfg.user, link_id(c, link));
	drop_slots(c, link);
	smc_timer_stop(c, &link->timer);
	link->state = LINK_NONE;
	for (unsigned int i = 0; i < KARST_SMC_CONNS; i++)
		link->group->rtokens[i].known[link_slot(link)] = false;
}

/* Moves the connections of @link to @other; ends those whose peer's buffer is not known there. */
static void
move_conns(struct smc_core *c, struct smc_link *link, struct smc_link *other)
{
	struct smc_group *g = link->group;
	uint32_t i, next;

	for (i = g->conns; i != NIL; i = next) {
		struct smc_conn *conn = &c->conns[i];

		next = conn->group_next;
		if (conn->link != link)
			continue;
		if (!conn_connected(conn) && conn->state != KARST_SMC_CLOSED) {
			/* The key that was sent on TCP belongs to the lost link. */
			if (conn->state > KARST_SMC_PARKED && conn->state < KARST_SMC_FELL_BACK)
				smc_refuse(c, conn, KARST_SMC_DECL_NO_ACTIVE_LINK);
			continue;
		}
		conn->link = other;
		if (conn->state == KARST_SMC_CLOSED && conn->closed_told)
			continue;
		if (conn->dead || g->rtokens[conn->rtoken].known[link_slot(other)])
			smc_fail_over(c, conn, other); /* perhaps only to send the last message */
		else
			smc_conn_abort(c, conn, ECONNABORTED, true);
	}
}

void
smc_link_lost(struct smc_core *c, struct smc_link *link, uint32_t tell)
{
	struct smc_group *g = link->group;
	struct smc_link *other = smc_group_link(g, link);
	uint8_t number = link->number;
	bool was_active = link->state == LINK_ACTIVE;

	if (!was_active && other != NULL && g->state != GROUP_NEW) {
		smc_link_close(c, link); /* it was being added */
		smc_flow_next(c, g);
		return;
	}
	count(c, KARST_SMC_CTR_LINK_DOWN);
	if (other == NULL) {
		count(c, KARST_SMC_CTR_GROUP_DOWN);
		smc_group_terminate(c, g);
		return;
	}
	smc_group_event(c, g, KARST_SMC_EV_LINK_DOWN);
	smc_link_close(c, link);
	smc_flow_link_lost(c, g, link);
	smc_rmb_links_changed(c, g);
	move_conns(c, link, other);
	if (g->state == GROUP_ENDING && g->end_link == link) {
		g->end_link = other;
		smc_llc_delete_link(c, other, 0, KARST_SMC_LLC_ALL, KARST_SMC_DEL_LOST_PATH);
	} else if (tell != 0) {
		smc_llc_delete_link(c, other, number, 0, tell);
	}
	smc_flow_next(c, g);
}

void
karst_smc_link_down(struct karst_smc *smc, uint32_t id)
{
	struct smc_core *c = core_of(smc);
	struct smc_link *link = smc_link_find(c, id);

	if (link != NULL)
		smc_link_lost(c, link, KARST_SMC_DEL_LOST_PATH);
}

void
smc_link_timeout(struct smc_core *c, struct smc_link *link)
{
	uint64_t silent = c->pub.now_ns - link->last_rx_ns;

	switch (link->state) {
	case LINK_ACTIVE:
		if (link->tested) {
			count(c, KARST_SMC_CTR_LLC_TIMEOUT);
			smc_link_lost(c, link, KARST_SMC_DEL_LOST_PATH);
		} else if (silent >= c->cfg.test_ns) {
			smc_llc_new(c, link, KARST_SMC_LLC_TEST_LINK, 0);
			smc_llc_send(c, link);
			link->tested = true;
			smc_timer_set(c, &link->timer, c->cfg.llc_wait_ns);
		} else {
			smc_timer_set(c, &link->timer, c->cfg.test_ns - silent);
		}
		break;
	case LINK_ADDING:
	case LINK_CONNECTING:
	case LINK_READY:
	case LINK_CONFIRMING: /* a second link that was not established */
		count(c, KARST_SMC_CTR_LLC_TIMEOUT);
		smc_link_lost(c, link, 0);
		break;
	default:
		break;
	}
}

void
karst_smc_link_rx(struct karst_smc *smc, uint32_t id, const void *msg, size_t len)
{
	struct smc_core *c = core_of(smc);
	struct smc_link *link = smc_link_find(c, id);
	const uint8_t *m = msg;

	if (link == NULL || link->state < LINK_READY)
		return;
	link->last_rx_ns = smc->now_ns;
	if (link->tested) {
		link->tested = false;
		smc_timer_set(c, &link->timer, c->cfg.test_ns);
	}
	if (len != 0 && m[0] == KARST_SMC_CDC)
		smc_cdc_rx(c, link, msg, len);
	else
		smc_llc_rx(c, link, msg, len);
}

/* --- messages under way --- */

static unsigned int
slots_for(const struct smc_core *c, bool cdc)
{
	return c->cfg.send_slots - (cdc ? SLOTS_RESERVED : 0);
}

bool
smc_link_has_slot(const struct smc_core *c, const struct smc_link *link)
{
	return link->nslots < slots_for(c, true);
}

bool
smc_link_has_llc_slot(const struct smc_core *c, const struct smc_link *link)
{
	return link->nlater == 0 && link->nslots < slots_for(c, false);
}

bool
smc_link_send(struct smc_core *c, struct smc_link *link, struct smc_conn *conn, const void *msg,
	size_t len)
{
	struct smc_slot *slot = &link->slots[(link->first_slot + link->nslots) % SLOTS_MAX];

	if (link->nslots >= slots_for(c, conn != NULL))
		return false;
	*slot = (struct smc_slot){.conn = conn};
	if (conn != NULL) {
		slot->prod = conn->prod;
		slot->seq = conn->seq;
		conn->in_flight++;
	}
	link->nslots++;
	c->cfg.ops->send(c->cfg.user, link_id(c, link), msg, len);
	return true;
}

void
smc_link_wait(struct smc_core *c, struct smc_conn *conn)
{
	struct smc_link *link = conn->link;
	uint32_t self = conn_index(c, conn);

	if (conn->on_link || smc_mutant(FORGET_WAITING))
		return;
	conn->on_link = true;
	conn->link_next = NIL;
	conn->link_prev = link->waiting_tail;
	if (link->waiting == NIL)
		link->waiting = self;
	else
		c->conns[link->waiting_tail].link_next = self;
	link->waiting_tail = self;
}

void
smc_link_unwait(struct smc_core *c, struct smc_conn *conn)
{
	struct smc_link *link = conn->link;

	if (!conn->on_link)
		return;
	conn->on_link = false;
	if (conn->link_prev != NIL)
		c->conns[conn->link_prev].link_next = conn->link_next;
	else
		link->waiting = conn->link_next;
	if (conn->link_next != NIL)
		c->conns[conn->link_next].link_prev = conn->link_prev;
	else
		link->waiting_tail = conn->link_prev;
}

void
smc_link_forget(struct smc_core *c, struct smc_conn *conn)
{
	(void)c;
	for (unsigned int i = 0; conn->in_flight != 0 && i < conn->link->nslots; i++) {
		struct smc_slot *slot =
			&conn->link->slots[(conn->link->first_slot + i) % SLOTS_MAX];

		if (slot->conn == conn) {
			slot->conn = NULL;
			conn->in_flight--;
		}
	}
}

static void
send_later(struct smc_core *c, struct smc_link *link)
{
	unsigned int n = 0;

	while (n < link->nlater && smc_link_send(c, link, NULL, link->later[n], KARST_SMC_LLC_LEN))
		n++;
	link->nlater -= n;
	memmove(link->later, link->later[n], link->nlater * sizeof(link->later[0]));
}

/* Serves each waiting connection at most once: it may have to wait again. */
static void
serve_waiting(struct smc_core *c, struct smc_link *link)
{
	unsigned int turns = slots_for(c, true);

	for (; turns > 0 && link->waiting != NIL && smc_link_has_slot(c, link); turns--) {
		struct smc_conn *conn = &c->conns[link->waiting];

		smc_link_unwait(c, conn);
		smc_push(c, conn);
	}
}

void
karst_smc_link_sent(struct karst_smc *smc, uint32_t id, unsigned int n)
{
	struct smc_core *c = core_of(smc);
	struct smc_link *link = smc_link_find(c, id);

	if (link == NULL)
		return;
	for (; n > 0 && link->nslots > 0; n--) {
		struct smc_slot slot = link->slots[link->first_slot];

		link->first_slot = (link->first_slot + 1) % SLOTS_MAX;
		link->nslots--;
		if (slot.conn != NULL) {
			slot.conn->in_flight--;
			smc_sent(c, slot.conn, &slot);
		}
	}
	send_later(c, link);
	serve_waiting(c, link);
	if (link->group->state == GROUP_ENDING && link->group->end_link == link &&
		link->nslots == 0)
		smc_group_kill(c, link->group, ECONNABORTED); /* the peer has been told */
}
