/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Sending (S4, S12, S14, S16): WRITEs into the peer's element, and the CDC message that announces
 * them.
 *
 *        fin          prod            snd_pos          fin + send_bytes
 *   ------|------------|----------------|-------------------|-----
 *   free  | may be     | to be written  | free: for the program
 *         | read again |
 *
 * The queue pair keeps the order, so the completion of a CDC message shows that the WRITEs before
 * it are complete, too.  The room in the peer's element is what is between prod and peer_cons plus
 * its size.
 *
 * A message is sent if there is something to write, or if want_cdc.  If there is no slot, the
 * connection waits in its link's list, and then sends everything in one message.
 *
 * After an urgent byte nothing is written until the peer has consumed it (urgent_hold), as Linux
 * does: a Linux receiver does not count that byte, and supports only one, the last.
 *
 * Failover (S17): prod goes back to fin, because it is unknown whether what was under way has
 * arrived.  Bytes that have are written again, with the same contents, and the peer ignores cursors
 * that go backwards.  What the peer has consumed meanwhile need not be written: then prod follows
 * peer_cons.
 */
#include "smc_priv.h"

static uint64_t
room_of(const struct smc_conn *conn)
{
	if (smc_mutant(NO_WINDOW))
		return conn->peer_bytes;
	return conn->peer_bytes - (conn->prod - conn->peer_cons);
}

static uint32_t
tx_writable(const struct smc_core *c, const struct smc_conn *conn)
{
	uint64_t n = conn->snd_pos - conn->prod;

	if (conn->dead)
		return 0;
	if (conn->prod >= conn->urgent_hold && conn->peer_cons < conn->urgent_hold)
		return 0;
	if (n < c->cfg.cork_bytes && conn->in_flight != 0 && !conn->urgent_set)
		return 0;
	n = karst_min_u64(n, room_of(conn));
	if (conn->urgent_set && conn->prod < conn->urgent_end && !smc_mutant(URGENT_LATE))
		n = karst_min_u64(n, conn->urgent_end - conn->prod);
	if (conn->prod < conn->urgent_hold) /* after failover */
		n = karst_min_u64(n, conn->urgent_hold - conn->prod);
	return (uint32_t)karst_min_u64(n, conn->peer_bytes);
}

static void
write_one(struct smc_core *c, struct smc_conn *conn, uint64_t pos, uint32_t len)
{
	const struct smc_rtoken *t = &conn->group->rtokens[conn->rtoken];
	unsigned int n = link_slot(conn->link);
	struct karst_smc_write w = {
		.link = link_id(c, conn->link),
		.conn = conn_id(c, conn),
		.user = conn->user,
		.pos = pos,
		.len = len,
		.rkey = t->rkey[n],
		.vaddr = t->vaddr[n] + conn->peer_offset + (pos & (conn->peer_bytes - 1)),
	};

	count(c, KARST_SMC_CTR_WRITES);
	c->cfg.ops->write(c->cfg.user, &w);
}

/* Writes @len bytes, split where the peer's element ends and where the send buffer ends. */
static void
write_bytes(struct smc_core *c, struct smc_conn *conn, uint32_t len)
{
	uint64_t pos = conn->prod;

	while (len > 0) {
		uint32_t n = len;

		n = karst_min_u32(n, conn->send_bytes - (uint32_t)(pos & (conn->send_bytes - 1)));
		if (!smc_mutant(NO_SPLIT))
			n = karst_min_u32(
				n, conn->peer_bytes - (uint32_t)(pos & (conn->peer_bytes - 1)));
		write_one(c, conn, pos, n);
		pos += n;
		len -= n;
	}
	conn->prod = pos;
	if (pos > conn->prod_high)
		conn->prod_high = pos;
}

static void
send_cdc(struct smc_core *c, struct smc_conn *conn, uint16_t seq, uint8_t prod_flags)
{
	struct karst_smc_cdc m = {
		.seq = seq,
		.token = conn->peer_token,
		.prod = karst_smc_cursor_of(conn->prod, conn->peer_bytes),
		.cons = karst_smc_cursor_of(conn->cons, conn->rmb_bytes),
		.prod_flags = prod_flags,
		.conn_flags = conn->conn_flags,
	};
	uint8_t buf[KARST_SMC_CDC_LEN];

	/* After failover, the flags for the end are sent later again. */
	if (!conn->dead && conn->prod != conn->snd_pos && !smc_mutant(CLOSE_EARLY))
		m.conn_flags &= KARST_SMC_CDC_ABORT;
	karst_smc_cdc_build(&m, buf);
	count(c, KARST_SMC_CTR_CDC_TX);
	if (!smc_link_send(c, conn->link, conn, buf, sizeof(buf)))
		assert(!"a slot was there");
}

static void
send_validation(struct smc_core *c, struct smc_conn *conn)
{
	uint16_t seq = conn->seq;

	conn->validate = false;
	conn->seq = conn->seq_fin; /* for the slot: its completion shows nothing new */
	send_cdc(c, conn, conn->seq_fin, KARST_SMC_CDC_VALIDATE);
	conn->seq = seq;
}

static void
tx_send_one(struct smc_core *c, struct smc_conn *conn, uint32_t len)
{
	uint64_t pending = conn->dead ? 0 : conn->snd_pos - conn->prod;
	bool urgent = conn->urgent_set && len != 0 && conn->prod + len >= conn->urgent_end;
	uint8_t flags = 0;

	if (pending != 0 && pending >= room_of(conn) && !smc_mutant(NO_BLOCKED))
		flags |= KARST_SMC_CDC_BLOCKED;
	if (flags != 0 && !(conn->prod_flags & KARST_SMC_CDC_BLOCKED))
		count(c, KARST_SMC_CTR_BLOCKED);
	if (len != 0)
		write_bytes(c, conn, len);
	if (urgent) {
		flags |= KARST_SMC_CDC_URGENT | KARST_SMC_CDC_URGENT_PENDING;
		conn->urgent_set = false;
		conn->urgent_hold = conn->prod;
	} else if (conn->urgent_set && !conn->dead) {
		flags |= KARST_SMC_CDC_URGENT_PENDING;
	}
	if (conn->asks && !conn->dead)
		flags |= KARST_SMC_CDC_UPDATE;
	conn->prod_flags = flags;
	conn->want_cdc = false;
	conn->cons_told = conn->cons;
	conn->seq++;
	send_cdc(c, conn, conn->seq, flags);
}

/* Sends as much as possible; the end of the connection may require more messages. */
static void
tx_push(struct smc_core *c, struct smc_conn *conn)
{
	uint32_t len;

	for (;;) {
		len = conn_connected(conn) ? tx_writable(c, conn) : 0;
		if (len == 0 && !conn->want_cdc && !conn->validate)
			return;
		if (conn->link == NULL || !link_usable(conn->link)) {
			conn->want_cdc = conn->validate = false;
			return;
		}
		if (!smc_link_has_slot(c, conn->link)) {
			smc_link_wait(c, conn);
			return;
		}
		if (conn->validate)
			send_validation(c, conn);
		else
			tx_send_one(c, conn, len);
	}
}

void
smc_push(struct smc_core *c, struct smc_conn *conn)
{
	if (conn->state < KARST_SMC_ACTIVE)
		return;
	tx_push(c, conn);
	smc_close_step(c, conn);
}

void
smc_push_cdc(struct smc_core *c, struct smc_conn *conn)
{
	conn->want_cdc = true;
	smc_push(c, conn);
}

void
smc_sent(struct smc_core *c, struct smc_conn *conn, const struct smc_slot *slot)
{
	if (slot->prod > conn->fin) {
		conn->fin = slot->prod;
		smc_conn_event(c, conn, KARST_SMC_EV_WRITABLE);
	}
	if ((int16_t)(uint16_t)(slot->seq - conn->seq_fin) > 0)
		conn->seq_fin = slot->seq;
	smc_push(c, conn); /* sends bytes that were held back (cork_bytes) */
	smc_close_quiet(c, conn);
}

void
smc_fail_over(struct smc_core *c, struct smc_conn *conn, struct smc_link *link)
{
	count(c, KARST_SMC_CTR_FAILOVER);
	conn->link = link;
	if (!smc_mutant(NO_REWIND)) {
		if (conn->peer_cons > conn->fin)
			conn->fin = conn->peer_cons; /* the queue pair that could read it is gone */
		conn->prod = conn->fin;
	}
	if (conn->urgent_end > conn->prod && conn->urgent_end <= conn->snd_pos)
		conn->urgent_set = true; /* the message that announced it may be lost */
	conn->validate = !smc_mutant(NO_VALIDATE);
	conn->want_cdc = true; /* this side's cursor and flags may be lost, too */
	smc_conn_event(c, conn, KARST_SMC_EV_WRITABLE);
	smc_push(c, conn);
}
