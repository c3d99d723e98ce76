/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * CLC: the negotiation over TCP (S2, S6, S7), as far as it is the same on both sides.
 *
 * Until both sides know that the connection is SMC-R, a side that cannot continue sends DECLINE and
 * the connection is TCP.  CLC messages that the peer has sent before it receives the DECLINE must
 * not remain in the stream, where the program would read them.  So a side declines only after it
 * has received the message that the peer is about to send (smc_refuse()).  While both sides wait
 * for the link to be confirmed, the client is the one to give up, and the server only long after
 * that.  From CONFIRM_LINK on the connection cannot fall back.
 *
 * A side that receives nothing must not fall back by itself: the peer may still treat what it reads
 * as CLC, or have treated CLC as data.  Then the connection fails.
 */
#include "smc_priv.h"

void
smc_clc_send(struct smc_core *c, struct smc_conn *conn, const struct karst_smc_clc *msg)
{
	uint8_t buf[KARST_SMC_CLC_BUILD_MAX];
	int len = karst_smc_clc_build(msg, buf, sizeof(buf));

	assert(len > 0);
	c->cfg.ops->clc(c->cfg.user, conn_id(c, conn), conn->user, buf, (size_t)len);
}

/* Removes the connection from its group, and takes its buffer and its token away. */
void
smc_clc_detach(struct smc_core *c, struct smc_conn *conn)
{
	struct smc_group *g = conn->group;

	if (g != NULL && g->state == GROUP_NEW && conn->counted)
		smc_group_kill(c, g, 0); /* which removes this connection */
	smc_rmb_put(c, conn);
	smc_group_leave(c, conn);
}

static void
come_to_nothing(struct smc_core *c, struct smc_conn *conn, enum karst_smc_state state)
{
	smc_timer_stop(c, &conn->timer);
	conn->state = state;
	smc_clc_detach(c, conn);
}

void
smc_fall_back(struct smc_core *c, struct smc_conn *conn, uint32_t reason, bool local)
{
	count(c, local ? KARST_SMC_CTR_DECLINED : KARST_SMC_CTR_PEER_DECLINED);
	come_to_nothing(c, conn, KARST_SMC_FELL_BACK);
	conn->reason = reason;
	conn->local_reason = local;
	smc_conn_event(c, conn, KARST_SMC_EV_FALLBACK);
}

void
smc_decline(struct smc_core *c, struct smc_conn *conn, uint32_t reason)
{
	struct karst_smc_clc msg = {.type = KARST_SMC_CLC_DECLINE,
		.decline = {.version = conn->version > 1 ? 2 : 1,
			.out_of_sync = reason == KARST_SMC_DECL_OUT_OF_SYNC,
			.reason = reason,
			.os = KARST_SMC_OS_LINUX}};

	memcpy(msg.decline.system_id, c->cfg.system_id, 8);
	smc_clc_send(c, conn, &msg);
	smc_fall_back(c, conn, reason, true);
}

void
smc_refuse(struct smc_core *c, struct smc_conn *conn, uint32_t reason)
{
	bool wait = conn->state == KARST_SMC_WAIT_PROPOSAL ||
		conn->state == KARST_SMC_WAIT_ACCEPT || conn->state == KARST_SMC_WAIT_CONFIRM ||
		(conn->state == KARST_SMC_WAIT_CONFIRM_LINK && conn->role == KARST_SMC_SERVER);

	if (!wait) {
		smc_decline(c, conn, reason);
		return;
	}
	if (conn->refuse == 0)
		conn->refuse = reason;
	smc_clc_detach(c, conn);
}

void
smc_fail(struct smc_core *c, struct smc_conn *conn, int error)
{
	count(c, KARST_SMC_CTR_CLC_FAILED);
	come_to_nothing(c, conn, KARST_SMC_FAILED);
	conn->error = error;
	smc_conn_event(c, conn, KARST_SMC_EV_FAILED);
}

void
smc_connected(struct smc_core *c, struct smc_conn *conn)
{
	count(c, KARST_SMC_CTR_CONNECTED);
	if (conn->first_contact)
		count(c, KARST_SMC_CTR_FIRST_CONTACT);
	smc_timer_stop(c, &conn->timer);
	conn->state = KARST_SMC_ACTIVE;
	smc_conn_event(c, conn, KARST_SMC_EV_CONNECTED | KARST_SMC_EV_WRITABLE);
	if (conn->recv_pos != 0)
		smc_conn_event(c, conn, KARST_SMC_EV_READABLE);
	if (conn->rx_flags != 0) /* a peer that sends early */
		smc_close_peer(c, conn, conn->rx_flags);
	smc_push(c, conn);
}

uint32_t
smc_reason_of(int rc)
{
	switch (rc) {
	case -ENODEV:
		return KARST_SMC_DECL_NO_DEVICE;
	case -EHOSTUNREACH:
		return KARST_SMC_DECL_NO_ROUTE;
	case -ENOMEM:
	case -ENOSPC:
		return KARST_SMC_DECL_MEMORY;
	default:
		return KARST_SMC_DECL_INTERNAL;
	}
}

const uint8_t *
smc_eid_match(const struct smc_core *c, const uint8_t (*eids)[KARST_SMC_EID_LEN], unsigned int n)
{
	unsigned int i, k;

	for (i = 0; i < n; i++) {
		for (k = 0; k < c->cfg.neids; k++) {
			if (memcmp(c->cfg.eids[k], eids[i], KARST_SMC_EID_LEN) == 0)
				return c->cfg.eids[k];
		}
	}
	return NULL;
}

static void
fill_first_contact(
	const struct smc_core *c, const struct smc_conn *conn, struct karst_smc_accept *a)
{
	a->direct = conn->group->direct;
	a->release = conn->release;
	a->os = KARST_SMC_OS_LINUX;
	memcpy(a->hostname, c->cfg.hostname, sizeof(a->hostname));
	if (conn->release == 0)
		return;
	a->max_conns = conn->max_conns;
	a->max_links = conn->max_links;
	a->features = conn->features;
}

void
smc_send_accept(struct smc_core *c, struct smc_conn *conn, enum karst_smc_clc_type type)
{
	const struct karst_smc_end *end = &conn->link->local;
	unsigned int n = link_slot(conn->link);
	struct karst_smc_clc msg = {.type = type,
		.accept = {
			.version = conn->version,
			.first_contact = conn->first_contact,
			.qpn = end->qpn,
			.psn = end->psn,
			.rkey = conn->rmb->rkey[n],
			.vaddr = conn->rmb->vaddr[n],
			.index = 1,
			.token = conn->token,
			.size = conn->size,
			.mtu = end->mtu,
		}};
	struct karst_smc_accept *a = &msg.accept;

	memcpy(a->peer.system_id, c->cfg.system_id, 8);
	memcpy(a->peer.gid, end->gid, 16);
	memcpy(a->peer.mac, end->mac, 6);
	if (conn->version > 1) {
		memcpy(a->eid, conn->eid, KARST_SMC_EID_LEN);
		if (conn->first_contact)
			fill_first_contact(c, conn, a);
		if (type == KARST_SMC_CLC_CONFIRM) {
			a->ngids = 1;
			memcpy(a->gids[0], end->gid, 16);
		}
	}
	smc_clc_send(c, conn, &msg);
}

bool
smc_take_element(struct smc_conn *conn, const struct karst_smc_accept *a)
{
	uint64_t offset = (uint64_t)(a->index - 1) << (14 + a->size);

	if (a->vaddr + offset < a->vaddr ||
		a->vaddr + offset + karst_smc_size_bytes(a->size) - 1 < a->vaddr + offset)
		return false; /* it would wrap around the end of the address space */
	conn->peer_token = a->token;
	conn->peer_bytes = karst_smc_size_bytes(a->size);
	conn->peer_offset = offset;
	return true;
}

/* Whether another connection still writes with a key.  The peer gives its buffer to the next
 * connection when the last message of the previous one is complete, and this side has received that
 * by then. */
static bool
rtoken_in_use(const struct smc_core *c, const struct smc_conn *conn, int rtoken)
{
	const struct smc_conn *user = smc_conn_find(c, conn->group->rtokens[rtoken].conn);

	return user != NULL && user != conn && user->group == conn->group &&
		user->rtoken == rtoken && !user->dead && user->state != KARST_SMC_FELL_BACK &&
		user->state != KARST_SMC_FAILED && user->state != KARST_SMC_CLOSED;
}

/*
 * The peer has confirmed on the link that the key exists.  But what the key is for is said only on
 * TCP, where a program that has kept its socket can send anything.  A WRITE beyond the peer's
 * buffer would end the link, for all connections, so only the first statement about a key's
 * elements is believed.  A WRITE into another connection's buffer would be read as data of that
 * connection.
 */
bool
smc_take_rtoken(
	struct smc_core *c, struct smc_conn *conn, int rtoken, const struct karst_smc_accept *a)
{
	struct smc_rtoken *t = &conn->group->rtokens[rtoken];

	if (a->first_contact)
		conn->group->one_element = a->os == KARST_SMC_OS_LINUX;
	if ((conn->group->one_element && (a->index != 1 || rtoken_in_use(c, conn, rtoken))) ||
		(t->sized && t->size != a->size))
		return false;
	t->sized = true;
	t->size = a->size;
	t->conn = conn_id(c, conn);
	conn->rtoken = (uint16_t)rtoken;
	return true;
}

/* --- first contact: after CONFIRM_LINK (S8, S10) --- */

static struct smc_conn *
maker_of(struct smc_core *c, struct smc_group *g, enum karst_smc_state state)
{
	uint32_t i;

	for (i = g->conns; i != NIL; i = c->conns[i].group_next) {
		if (c->conns[i].state == state)
			return &c->conns[i];
	}
	return NULL;
}

void
smc_first_contact_linked(struct smc_core *c, struct smc_group *g, int rc)
{
	bool client = g->role == KARST_SMC_CLIENT;
	struct smc_conn *conn =
		maker_of(c, g, client ? KARST_SMC_WAIT_LINK : KARST_SMC_WAIT_CONFIRM_LINK);

	if (conn == NULL)
		return;
	if (rc != 0) /* a server waits until the client gives up */
		smc_refuse(c, conn, KARST_SMC_DECL_READY_LINK);
	else if (client)
		smc_client_linked(c, conn);
	else
		smc_server_linked(c, conn);
}

void
smc_first_contact_confirmed(struct smc_core *c, struct smc_group *g)
{
	struct smc_conn *conn = maker_of(c, g, KARST_SMC_WAIT_CONFIRM_LINK);

	if (conn == NULL)
		return;
	conn->state = KARST_SMC_WAIT_ADD_LINK;
	smc_timer_set(c, &conn->timer, c->cfg.llc_wait_ns);
	/* A side of release 0 expects ADD_LINK; later ones do if two links were agreed on. */
	if (g->release > 0 && g->max_links == 1)
		smc_first_contact_over(c, g);
	else if (g->role == KARST_SMC_SERVER)
		karst_smc_group_add_link(&c->pub, group_index(c, g));
}

void
smc_first_contact_over(struct smc_core *c, struct smc_group *g)
{
	struct smc_conn *conn = maker_of(c, g, KARST_SMC_WAIT_ADD_LINK);

	if (conn == NULL)
		return;
	g->state = GROUP_ACTIVE;
	smc_group_event(c, g, KARST_SMC_EV_GROUP_UP);
	smc_connected(c, conn);
	smc_group_settled(c, g);
}

/* --- received messages, and timeouts --- */

void
smc_conn_rkey_done(struct smc_core *c, struct smc_conn *conn, bool confirmed)
{
	if (conn->state != KARST_SMC_WAIT_RKEY)
		return;
	if (!confirmed)
		smc_decline(c, conn, KARST_SMC_DECL_REGISTER);
	else if (conn->role == KARST_SMC_CLIENT) {
		smc_client_confirm(c, conn);
	} else {
		conn->state = KARST_SMC_WAIT_CONFIRM;
		smc_timer_set(c, &conn->timer, c->cfg.clc_wait_ns);
		smc_send_accept(c, conn, KARST_SMC_CLC_ACCEPT);
	}
}

void
smc_conn_timeout(struct smc_core *c, struct smc_conn *conn)
{
	switch (conn->state) {
	case KARST_SMC_WAIT_RKEY:
		count(c, KARST_SMC_CTR_LLC_TIMEOUT);
		if (conn->role == KARST_SMC_SERVER)
			smc_server_anew(c, conn);
		else
			smc_decline(c, conn, KARST_SMC_DECL_REGISTER);
		break;
	case KARST_SMC_WAIT_LINK:
		smc_decline(c, conn, KARST_SMC_DECL_READY_LINK);
		break;
	case KARST_SMC_WAIT_CONFIRM_LINK:
		count(c, KARST_SMC_CTR_LLC_TIMEOUT);
		smc_decline(c, conn,
			conn->refuse != 0 ? conn->refuse : KARST_SMC_DECL_TIMEOUT_CONFIRM_LINK);
		break;
	case KARST_SMC_WAIT_ADD_LINK: /* one link is enough */
		smc_first_contact_over(c, conn->group);
		break;
	case KARST_SMC_PARKED:
		smc_server_unpark(c, conn);
		break;
	case KARST_SMC_WAIT_PROPOSAL:
	case KARST_SMC_WAIT_ACCEPT:
	case KARST_SMC_WAIT_CONFIRM:
		smc_fail(c, conn, ETIMEDOUT);
		break;
	default: /* the program has closed, and the peer does not answer */
		if (smc_close_waits(c, conn))
			break;
		smc_conn_abort(c, conn, ETIMEDOUT, true);
		if (conn->state == KARST_SMC_PEER_ABORT_WAIT)
			smc_conn_closed(c, conn);
	}
}

static void
clc_declined(struct smc_core *c, struct smc_conn *conn, const struct karst_smc_decline *d)
{
	/*
	 * Linux ends the group at once.  The TCP connection does not prove the identity of the
	 * sender, so the connections in the group keep it; it accepts no others (S7, S11).
	 */
	if (d->out_of_sync && conn->group != NULL && conn->state != KARST_SMC_PARKED)
		conn->group->no_reuse = true;
	if (conn->state >= KARST_SMC_ACTIVE)
		smc_conn_abort(c, conn, ECONNABORTED, true);
	else
		smc_fall_back(c, conn, d->reason, false);
}

static bool
clc_expected(const struct smc_conn *conn, enum karst_smc_clc_type type)
{
	switch (type) {
	case KARST_SMC_CLC_PROPOSAL:
		return conn->state == KARST_SMC_WAIT_PROPOSAL;
	case KARST_SMC_CLC_ACCEPT:
		return conn->state == KARST_SMC_WAIT_ACCEPT;
	case KARST_SMC_CLC_CONFIRM:
		return conn->state == KARST_SMC_WAIT_CONFIRM;
	case KARST_SMC_CLC_DECLINE:
		return conn->state != KARST_SMC_CLOSED;
	}
	return false;
}

static void
clc_take(struct smc_core *c, struct smc_conn *conn, const struct karst_smc_clc *msg)
{
	switch (msg->type) {
	case KARST_SMC_CLC_PROPOSAL:
		smc_server_proposed(c, conn, &msg->proposal);
		break;
	case KARST_SMC_CLC_ACCEPT:
		smc_client_accepted(c, conn, &msg->accept);
		break;
	case KARST_SMC_CLC_CONFIRM:
		smc_server_confirmed(c, conn, &msg->accept);
		break;
	case KARST_SMC_CLC_DECLINE:
		clc_declined(c, conn, &msg->decline);
	}
}

/* Handles bytes that are no CLC message, or an unexpected one. */
static void
clc_nonsense(struct smc_core *c, struct smc_conn *conn, const void *buf, size_t len)
{
	count(c, KARST_SMC_CTR_CLC_BAD);
	if (conn->state == KARST_SMC_WAIT_PROPOSAL && !karst_smc_clc_begins(buf, len))
		smc_fall_back(
			c, conn, KARST_SMC_DECL_PEER_NO_SMC, true); /* data: nothing was sent yet */
	else if (conn->state < KARST_SMC_ACTIVE)
		smc_fail(c, conn, EPROTO);
	else
		smc_conn_abort(c, conn, EPROTO, true);
}

int
karst_smc_clc_rx(struct karst_smc *smc, uint32_t id, const void *buf, size_t len)
{
	struct smc_core *c = core_of(smc);
	struct smc_conn *conn = smc_conn_find(c, id);
	struct karst_smc_clc msg;
	int rc;

	if (conn == NULL)
		return -ENOENT;
	if (len == 0 || conn->state == KARST_SMC_FELL_BACK || conn->state == KARST_SMC_FAILED)
		return 0;
	rc = karst_smc_clc_parse(buf, len, &msg);
	if (rc == -EAGAIN)
		return 0;
	if (rc < 0 || !clc_expected(conn, msg.type)) {
		clc_nonsense(c, conn, buf, len);
		return 0;
	}
	if (conn->refuse == 0 || msg.type == KARST_SMC_CLC_DECLINE)
		clc_take(c, conn, &msg);
	else if (msg.type == KARST_SMC_CLC_CONFIRM && conn->first_contact)
		smc_server_await_decline(c, conn);
	else
		smc_decline(c, conn, conn->refuse);
	return rc;
}
