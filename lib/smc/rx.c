/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Received CDC messages (S4, S13 to S16).
 *
 * Cursors of the peer are checked: its producer may be ahead of what it knows to be consumed by at
 * most the element's size, and its consumer may not be ahead of what was ever written.  A cursor
 * that goes back is old, and is repeated by failover.  Any other violation ends that connection,
 * and affects no other one.
 */
#include "smc_priv.h"

/* False: the values are impossible. */
static bool
take_producer(struct smc_core *c, struct smc_conn *conn, const struct karst_smc_cdc *m)
{
	int64_t ahead;

	if (m->prod.count >= conn->rmb_bytes)
		return false;
	ahead = karst_smc_cursor_ahead(m->prod, conn->recv_pos, conn->rmb_bytes);
	if (ahead < 0) {
		count(c, KARST_SMC_CTR_CURSOR_BACK);
		return true;
	}
	if (conn->recv_pos + (uint64_t)ahead - conn->cons_told > conn->rmb_bytes)
		return false;
	if (ahead == 0)
		return true;
	conn->recv_pos += (uint64_t)ahead;
	if (conn->state >= KARST_SMC_ACTIVE)
		smc_conn_event(c, conn, KARST_SMC_EV_READABLE);
	if (m->prod_flags & KARST_SMC_CDC_URGENT) {
		conn->urgent_seen = true;
		conn->urgent_pos = conn->recv_pos - 1;
		smc_conn_event(c, conn, KARST_SMC_EV_URGENT);
	}
	return true;
}

static bool
take_consumer(struct smc_core *c, struct smc_conn *conn, const struct karst_smc_cdc *m)
{
	int64_t ahead;

	if (conn->peer_bytes == 0) /* its Confirm has not arrived: this side has written nothing */
		return m->cons.wrap == 0 && m->cons.count == 0;
	if (m->cons.count >= conn->peer_bytes)
		return false;
	ahead = karst_smc_cursor_ahead(m->cons, conn->peer_cons, conn->peer_bytes);
	if (ahead < 0) {
		count(c, KARST_SMC_CTR_CURSOR_BACK);
		return true;
	}
	if (conn->peer_cons + (uint64_t)ahead > conn->prod_high)
		return false;
	conn->peer_cons += (uint64_t)ahead;
	if (ahead > 0 && conn->app_closed && !conn->dead)
		smc_close_wait(c, conn);    /* it reads: wait longer */
	if (conn->peer_cons > conn->prod) { /* after failover: the bytes had arrived */
		conn->prod = conn->peer_cons;
		conn->want_cdc = true; /* the send buffer is free when this message is complete */
	}
	return true;
}

static void
rx_violation(struct smc_core *c, struct smc_conn *conn)
{
	count(c, KARST_SMC_CTR_CDC_BAD);
	if (conn->state < KARST_SMC_ACTIVE)
		smc_fail(c, conn, EPROTO);
	else
		smc_conn_abort(c, conn, EPROTO, true);
}

/*
 * Whether the peer waits for a message of this side.  One message is enough: the peer may request
 * the same.  For an urgent byte the peer waits until there is room; it may know about that already.
 */
static bool
rx_asks(const struct smc_conn *conn, uint8_t before)
{
	uint8_t wants = conn->rx_prod_flags & (KARST_SMC_CDC_UPDATE | KARST_SMC_CDC_URGENT_PENDING);

	return (wants & ~before & KARST_SMC_CDC_UPDATE) != 0 ||
		(wants != 0 && conn->cons != conn->cons_told);
}

static void
rx_take(struct smc_core *c, struct smc_conn *conn, const struct karst_smc_cdc *m)
{
	uint8_t before = conn->rx_prod_flags, news = m->conn_flags & ~conn->rx_flags;

	conn->rx_seen = true;
	conn->rx_seq = m->seq;
	if (!take_producer(c, conn, m) || !take_consumer(c, conn, m)) {
		rx_violation(c, conn);
		return;
	}
	conn->rx_prod_flags = m->prod_flags;
	conn->rx_flags |= m->conn_flags;
	if (conn->state < KARST_SMC_ACTIVE)
		return; /* processed again when it is connected */
	if (rx_asks(conn, before))
		conn->want_cdc = true;
	if (news != 0)
		smc_close_peer(c, conn, news);
	smc_push(c, conn);
}

/*
 * The peer has left the link of the connection.  What it has sent there, and writes again here, may
 * still be under way.  It must not arrive when the program has taken these bytes and others are in
 * their place (S17).  So that link is ended before any message that allows the peer to write more.
 */
static void
rx_validation(struct smc_core *c, struct smc_link *link, struct smc_conn *conn,
	const struct karst_smc_cdc *m)
{
	struct smc_link *left = conn->link;
	bool server = link->group->role == KARST_SMC_SERVER;

	if ((int16_t)(uint16_t)(conn->rx_seq - m->seq) < 0)
		rx_violation(c, conn); /* something was lost that the peer considered delivered */
	if (left != NULL && left != link && link_usable(left))
		smc_link_lost(c, left, server ? KARST_SMC_DEL_LOST_PATH : 0);
}

void
smc_cdc_rx(struct smc_core *c, struct smc_link *link, const void *msg, size_t len)
{
	struct karst_smc_cdc m;
	struct smc_conn *conn;

	count(c, KARST_SMC_CTR_CDC_RX);
	if (karst_smc_cdc_parse(msg, len, &m) != 0) {
		count(c, KARST_SMC_CTR_CDC_BAD);
		return;
	}
	conn = smc_conn_by_token(c, link->group, m.token);
	if (conn == NULL || conn->state < KARST_SMC_WAIT_CONFIRM ||
		conn->state == KARST_SMC_CLOSED) {
		count(c, KARST_SMC_CTR_CDC_UNKNOWN);
		return;
	}
	if (m.prod_flags & KARST_SMC_CDC_VALIDATE) {
		rx_validation(c, link, conn, &m);
		return;
	}
	if (conn->rx_seen && (int16_t)(uint16_t)(m.seq - conn->rx_seq) < 0) {
		count(c, KARST_SMC_CTR_CDC_OLD);
		return;
	}
	rx_take(c, conn, &m);
}
