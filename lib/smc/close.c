/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The end of connections (S15), with the states of RFC 7609.
 *
 *   program                                      peer says
 *   shutdown  ACTIVE -> PEER_CLOSE_WAIT1         done    ACTIVE -> APP_CLOSE_WAIT1
 *             APP_CLOSE_WAIT1 -> APP_CLOSE_WAIT2         PEER_CLOSE_WAIT1 -> PEER_CLOSE_WAIT2
 *   close     ACTIVE -> PEER_CLOSE_WAIT1         closed  ACTIVE -> APP_CLOSE_WAIT1
 *             APP_CLOSE_WAIT -> PEER_FIN_CLOSE_WAIT      PEER_CLOSE_WAIT -> APP_FIN_CLOSE_WAIT,
 *                (CLOSED, if the peer has closed)           CLOSED if the program has closed
 *             APP_FIN_CLOSE_WAIT -> CLOSED               PEER_FIN_CLOSE_WAIT -> CLOSED
 *             PROCESS_ABORT -> CLOSED            abort   -> PROCESS_ABORT, CLOSED if closed
 *   abort     -> PEER_ABORT_WAIT                         PEER_ABORT_WAIT -> CLOSED
 *
 * A shutdown or close takes effect when all bytes of the program are written.  A program that
 * closes with unread bytes aborts, as with TCP.  The event CLOSED is raised when the last message
 * is complete: only then does nothing read the send buffer any more.
 *
 * After a close the peer has close_wait_ns to answer.  That time begins again when all is written,
 * and with each message that the peer has read more.  After it the connection is aborted, and bytes
 * that are not written are discarded.  A peer with much room does not tell by itself what it reads
 * (S14).  So after half of the time it is asked, if it has not told that it has read everything.
 */
#include "smc_priv.h"

#define ANY_CLOSE (KARST_SMC_CDC_CLOSED | KARST_SMC_CDC_ABORT)

void
smc_close_quiet(struct smc_core *c, struct smc_conn *conn)
{
	if (conn->state != KARST_SMC_CLOSED || conn->closed_told)
		return;
	if (conn->link == NULL || !link_usable(conn->link))
		conn->want_cdc = conn->validate = false;
	if (conn->in_flight != 0 || conn->want_cdc)
		return;
	conn->closed_told = true;
	smc_conn_event(c, conn, KARST_SMC_EV_CLOSED);
}

void
smc_conn_closed(struct smc_core *c, struct smc_conn *conn)
{
	conn->state = KARST_SMC_CLOSED;
	conn->dead = true;
	smc_timer_stop(c, &conn->timer);
	smc_close_quiet(c, conn);
}

/* Sends @flag, which remains set, and enters @state. */
static void
close_tell(struct smc_core *c, struct smc_conn *conn, uint8_t flag, enum karst_smc_state state)
{
	conn->conn_flags |= flag;
	conn->want_cdc = true;
	conn->state = state;
	if (state == KARST_SMC_CLOSED)
		conn->dead = true;
	smc_push(c, conn);
	if (state == KARST_SMC_CLOSED)
		smc_conn_closed(c, conn);
}

static uint8_t
final_flag(const struct smc_conn *conn)
{
	return conn->recv_pos != conn->cons && !smc_mutant(NO_ABORT) ? KARST_SMC_CDC_ABORT
								     : KARST_SMC_CDC_CLOSED;
}

static void
close_shut(struct smc_core *c, struct smc_conn *conn)
{
	conn->shut_done = true;
	if (conn->state == KARST_SMC_ACTIVE)
		close_tell(c, conn, KARST_SMC_CDC_DONE_WRITING, KARST_SMC_PEER_CLOSE_WAIT1);
	else if (conn->state == KARST_SMC_APP_CLOSE_WAIT1)
		close_tell(c, conn, KARST_SMC_CDC_DONE_WRITING, KARST_SMC_APP_CLOSE_WAIT2);
}

static void
close_finish(struct smc_core *c, struct smc_conn *conn)
{
	bool said = conn->conn_flags & ANY_CLOSE;

	conn->close_done = true;
	switch (conn->state) {
	case KARST_SMC_ACTIVE:
		close_tell(c, conn, final_flag(conn), KARST_SMC_PEER_CLOSE_WAIT1);
		break;
	case KARST_SMC_APP_CLOSE_WAIT1:
	case KARST_SMC_APP_CLOSE_WAIT2:
		close_tell(c, conn, final_flag(conn),
			conn->rx_flags & ANY_CLOSE ? KARST_SMC_CLOSED
						   : KARST_SMC_PEER_FIN_CLOSE_WAIT);
		break;
	case KARST_SMC_PEER_CLOSE_WAIT1:
	case KARST_SMC_PEER_CLOSE_WAIT2:
		if (!said)
			close_tell(c, conn, final_flag(conn), conn->state);
		break;
	case KARST_SMC_APP_FIN_CLOSE_WAIT:
		if (!said)
			close_tell(c, conn, final_flag(conn), KARST_SMC_CLOSED);
		else
			smc_conn_closed(c, conn);
		break;
	case KARST_SMC_PROCESS_ABORT:
		close_tell(c, conn, KARST_SMC_CDC_ABORT, KARST_SMC_CLOSED);
		break;
	default:
		break;
	}
	if (conn_connected(conn))
		smc_close_wait(c, conn);
}

void
smc_close_wait(struct smc_core *c, struct smc_conn *conn)
{
	conn->close_at = c->pub.now_ns + c->cfg.close_wait_ns;
	/* one that is aborted is not asked */
	smc_timer_set(
		c, &conn->timer, conn->dead ? c->cfg.close_wait_ns : c->cfg.close_wait_ns / 2);
}

bool
smc_close_waits(struct smc_core *c, struct smc_conn *conn)
{
	if (!conn->app_closed || conn->dead || c->pub.now_ns >= conn->close_at)
		return false;
	smc_timer_set(c, &conn->timer, conn->close_at - c->pub.now_ns);
	if (conn->peer_cons != conn->prod_high) {
		conn->asks = true;
		smc_push_cdc(c, conn);
	}
	return true;
}

/* Whether nothing is left to write, or can be written any more. */
static bool
all_written(const struct smc_conn *conn)
{
	return conn->dead || (conn->prod == conn->snd_pos && !conn->validate) ||
		smc_mutant(CLOSE_EARLY);
}

void
smc_close_step(struct smc_core *c, struct smc_conn *conn)
{
	if (conn->app_shut && !conn->shut_done && all_written(conn))
		close_shut(c, conn);
	if (conn->app_closed && !conn->close_done && all_written(conn))
		close_finish(c, conn);
	smc_close_quiet(c, conn);
}

/* --- requests of the program --- */

int
karst_smc_conn_shutdown(struct karst_smc *smc, uint32_t id)
{
	struct smc_core *c = core_of(smc);
	struct smc_conn *conn = smc_conn_find(c, id);

	if (conn == NULL)
		return -ENOENT;
	if (conn->state < KARST_SMC_ACTIVE || conn->state == KARST_SMC_CLOSED)
		return -ENOTCONN;
	conn->app_shut = true;
	smc_push(c, conn);
	return 0;
}

int
karst_smc_conn_close(struct karst_smc *smc, uint32_t id)
{
	struct smc_core *c = core_of(smc);
	struct smc_conn *conn = smc_conn_find(c, id);

	if (conn == NULL)
		return -ENOENT;
	if (conn->state == KARST_SMC_FREE || conn->app_closed)
		return 0;
	conn->app_closed = true;
	if (conn->state < KARST_SMC_FELL_BACK) {
		smc_fail(c, conn, ECONNABORTED);
	} else if (conn_connected(conn)) {
		smc_push(c, conn);
		if (conn_connected(conn))
			smc_close_wait(c, conn);
	}
	return 0;
}

int
karst_smc_conn_abort(struct karst_smc *smc, uint32_t id)
{
	struct smc_core *c = core_of(smc);
	struct smc_conn *conn = smc_conn_find(c, id);

	if (conn == NULL)
		return -ENOENT;
	if (conn->state < KARST_SMC_FELL_BACK)
		smc_fail(c, conn, ECONNABORTED);
	else
		smc_conn_abort(c, conn, ECONNABORTED, true);
	return 0;
}

/* --- aborts --- */

/* Discards unwritten bytes, which cannot be written any more. */
static void
drop_unwritten(struct smc_core *c, struct smc_conn *conn)
{
	conn->dead = true;
	conn->validate = false;
	smc_conn_event(c, conn, KARST_SMC_EV_WRITABLE);
}

void
smc_conn_abort(struct smc_core *c, struct smc_conn *conn, int error, bool tell)
{
	if (!conn_connected(conn))
		return;
	count(c, KARST_SMC_CTR_ABORTED);
	if (conn->error == 0)
		conn->error = error;
	drop_unwritten(c, conn);
	conn->close_done = conn->shut_done = true;
	smc_conn_event(c, conn, KARST_SMC_EV_RESET);
	if (!tell || conn->link == NULL || !link_usable(conn->link)) {
		conn->want_cdc = false;
		smc_conn_closed(c, conn);
	} else if (conn->state == KARST_SMC_PROCESS_ABORT || conn->rx_flags & ANY_CLOSE) {
		close_tell(c, conn, KARST_SMC_CDC_ABORT, KARST_SMC_CLOSED);
	} else if (conn->state != KARST_SMC_PEER_ABORT_WAIT) {
		smc_timer_set(c, &conn->timer, c->cfg.close_wait_ns);
		close_tell(c, conn, KARST_SMC_CDC_ABORT, KARST_SMC_PEER_ABORT_WAIT);
	}
}

static void
peer_aborted(struct smc_core *c, struct smc_conn *conn)
{
	bool program_done = false;

	count(c, KARST_SMC_CTR_RESET_RX);
	drop_unwritten(c, conn);
	switch (conn->state) {
	case KARST_SMC_PEER_CLOSE_WAIT1:
	case KARST_SMC_PEER_CLOSE_WAIT2:
		program_done = conn->conn_flags & ANY_CLOSE;
		break;
	case KARST_SMC_PEER_FIN_CLOSE_WAIT:
	case KARST_SMC_PEER_ABORT_WAIT:
		program_done = true;
		break;
	default:
		break;
	}
	if (!program_done) {
		if (conn->error == 0)
			conn->error = ECONNRESET;
		conn->state = KARST_SMC_PROCESS_ABORT;
		smc_conn_event(c, conn, KARST_SMC_EV_RESET | KARST_SMC_EV_PEER_DONE);
	} else {
		smc_conn_closed(c, conn);
	}
}

/* --- flags from the peer --- */

void
smc_close_peer(struct smc_core *c, struct smc_conn *conn, uint8_t news)
{
	if (!conn_connected(conn))
		return;
	if (news & KARST_SMC_CDC_ABORT) {
		peer_aborted(c, conn);
		return;
	}
	smc_conn_event(c, conn, KARST_SMC_EV_PEER_DONE);
	if (conn->rx_flags & KARST_SMC_CDC_CLOSED)
		drop_unwritten(c, conn); /* the peer would not read it */
	switch (conn->state) {
	case KARST_SMC_ACTIVE:
		conn->state = KARST_SMC_APP_CLOSE_WAIT1;
		break;
	case KARST_SMC_PEER_CLOSE_WAIT1:
		conn->state = KARST_SMC_PEER_CLOSE_WAIT2;
		/* fall through */
	case KARST_SMC_PEER_CLOSE_WAIT2:
		if (!(conn->rx_flags & ANY_CLOSE))
			break;
		if (conn->app_closed && conn->conn_flags & ANY_CLOSE)
			smc_conn_closed(c, conn);
		else
			conn->state = KARST_SMC_APP_FIN_CLOSE_WAIT;
		break;
	case KARST_SMC_PEER_FIN_CLOSE_WAIT:
	case KARST_SMC_PEER_ABORT_WAIT:
		if (conn->rx_flags & ANY_CLOSE)
			smc_conn_closed(c, conn);
		break;
	default:
		break;
	}
}
