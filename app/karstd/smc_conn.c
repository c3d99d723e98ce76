/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A connection as its program sees it (karst_sock.h describes what they share).
 *
 * The page is untrusted.  A position that the program writes there is read once, and used if it is
 * possible: it must not have gone back, nor beyond what there was.  Otherwise the connection ends
 * as if the program had been killed, and that is counted.
 *
 * svc_conn_work() is called after each event of a connection: it takes over what the program has
 * written and read, tells lib/smc or the TCP socket, and shows the result to the program.
 * smc_conn_life.c opens and frees connections.
 */
#include "smc_priv.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- to the program --- */

static void
conn_put_token(struct svc_conn *c)
{
	if (karst_sock_take_wanted(c->rxd))
		(void)send(c->pair, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void
svc_conn_urgent(struct svc_conn *c)
{
	(void)send(c->pair, "", 1, MSG_OOB | MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Called before head is moved beyond the byte. */
static void
show_urgent(struct svc_conn *c)
{
	if (c->rx_urgent == c->rx_urgent_told)
		return;
	c->rx_urgent_told = c->rx_urgent;
	atomic_store_explicit(&c->rxd->urgent, c->rx_urgent, memory_order_release);
	svc_conn_urgent(c);
}

/* Before Linux 6.16 a program can send descriptors through its end.  The receiver has to close them
 * and holds them until then, so this function peeks first.  *@len: number of bytes that may be
 * read */
static bool
brings_rights(const struct svc_conn *c, char *buf, size_t *len)
{
	struct iovec iov = {.iov_base = buf, .iov_len = *len};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (!c->smc->rights_come)
		return false;
	n = recvmsg(c->pair, &mh, MSG_PEEK | MSG_DONTWAIT);
	*len = n > 0 ? (size_t)n : 0;
	return n >= 0 && (mh.msg_flags & MSG_CTRUNC) != 0;
}

/* Only an attacker sends a descriptor there.  Handled as if the program had closed its end: what is
 * pending is closed with the pair, by another thread. */
static void
end_pair(struct svc_conn *c)
{
	c->smc->faults++;
	karst_log_some(&c->smc->log, kd_clock_ns(), KARST_LOG_NOTICE,
		"smc: process %d sends descriptors by a pair", (int)c->pid);
	shutdown(c->pair, SHUT_RDWR);
	c->gone = c->shut = c->hung_up = true;
	svc_conn_queue(c);
}

static void
empty_own(struct svc_conn *c)
{
	char buf[KARST_SOCK_STOP];
	size_t len = sizeof(buf);
	unsigned int nfds;
	int i;

	for (i = 0; i < KARST_SOCK_EMPTIES && len == sizeof(buf) && !c->hung_up; i++) {
		if (brings_rights(c, buf, &len))
			end_pair(c);
		else if (len == 0 || svc_recv(c->smc, c->uid, c->pair, buf, &len, NULL, &nfds) != 0)
			break;
		else if (nfds != 0)
			end_pair(c);
	}
}

/* Reads once.  @return the number of bytes; 0: nothing, or the end; -EPERM: with a descriptor */
static ssize_t
empty_some(int fd, void *buf, size_t bytes)
{
	union {
		struct cmsghdr hdr;
		uint8_t bytes[CMSG_SPACE(SVC_RIGHTS * sizeof(int))];
	} anc;
	struct iovec iov = {.iov_base = buf, .iov_len = bytes};
	struct msghdr mh = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &anc,
		.msg_controllen = sizeof(anc)};
	ssize_t n = recvmsg(fd, &mh, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	const struct cmsghdr *m = n > 0 ? CMSG_FIRSTHDR(&mh) : NULL;
	size_t i;
	int one;

	if (m != NULL && m->cmsg_level == SOL_SOCKET && m->cmsg_type == SCM_RIGHTS) {
		for (i = 0; i < (m->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			memcpy(&one, CMSG_DATA(m) + i * sizeof(int), sizeof(one));
			close(one);
		}
		return -EPERM;
	}
	return n > 0 ? n : 0;
}

/* The same for a pair of which another program has the far end and can make the call block
 * (smc_ask.c). */
static int
empty_far(int fd, void *arg)
{
	char buf[KARST_SOCK_STOP];
	ssize_t n = sizeof(buf);
	int i;

	for (i = 0; i < KARST_SOCK_EMPTIES && n == sizeof(buf); i++)
		n = empty_some(fd, buf, sizeof(buf));
	return n < 0 ? (int)n : 0;
}

static void
empty_pair(struct svc_conn *c)
{
	if (!c->has_far || svc_is_trusted(c->far_uid))
		empty_own(c);
	else if (svc_ask(c->smc, c->far_uid, c->pair, empty_far, NULL, 0) != 0)
		shutdown(c->pair, SHUT_RDWR); /* this also wakes a thread that waits for room
					       * there */
	c->rang = false;
}

/* Bytes that arrive meanwhile are read with the rest, and epoll does not report them any more: so
 * the connection is checked again. */
void
svc_conn_empty(struct svc_conn *c)
{
	empty_pair(c);
	svc_conn_queue(c);
}

static bool
has_room(const struct svc_conn *c)
{
	return c->what == SMC_OVER || c->tx_head - c->tx_tail <= c->buffer - c->buffer / 4;
}

void
svc_conn_show(struct svc_conn *c)
{
	if (c->txd == NULL)
		return; /* nothing has arrived, and the program does not wait for room, because
			 * it would have rung */
	atomic_store_explicit(&c->txd->tail, c->tx_tail, memory_order_release);
	show_urgent(c);
	atomic_store_explicit(&c->rxd->head, c->rx_head, memory_order_release);
	/* because of an urgent mark the program may have read all of it before */
	if (c->rx_head != atomic_load(&c->rxd->tail))
		conn_put_token(c);
	/* if the program finds that "blocked" was cleared while it filled the pair, the pair is
	 * emptied again */
	if ((has_room(c) && karst_sock_take_blocked(c->txd)) ||
		(c->rang && atomic_load(&c->txd->blocked) == 0))
		svc_conn_empty(c);
}

void
svc_conn_hang_up(struct svc_conn *c)
{
	shutdown(c->pair, c->rings != NULL && !c->has_rings ? SHUT_WR : SHUT_RDWR);
}

void
svc_conn_eof(struct svc_conn *c)
{
	if (c->eof)
		return;
	c->eof = true;
	atomic_fetch_or(&c->page->flags, KARST_SOCK_EOF);
	if (c->pair >= 0)
		shutdown(c->pair, SHUT_WR);
}

void
svc_conn_note_reset(struct svc_conn *c)
{
	uint32_t none = 0;

	(void)atomic_compare_exchange_strong(&c->page->lost, &none, KARST_SOCK_LOST_UNTOLD);
}

void
svc_conn_fail(struct svc_conn *c, int error)
{
	c->what = SMC_OVER;
	svc_conn_unname(c);
	if (!c->eof || (error != 0 && error != ECONNRESET && error != EPIPE))
		atomic_store(&c->page->error, error != 0 ? error : ECONNRESET);
	else
		svc_conn_note_reset(c);
	atomic_fetch_or(&c->page->flags, KARST_SOCK_NO_SEND);
	atomic_store(&c->page->state, KARST_SOCK_OVER);
	svc_conn_show(c);
	svc_conn_eof(c);
	svc_conn_hang_up(c);
}

void
svc_conn_leave_tcp(struct svc_conn *c)
{
	if (c->tcp_heard)
		(void)epoll_ctl(c->smc->epoll, EPOLL_CTL_DEL, c->tcp, NULL);
	c->tcp_heard = false;
}

void
svc_conn_put_tcp(struct svc_conn *c, bool reset)
{
	svc_conn_leave_tcp(c);
	svc_end(c->smc, c->uid, c->tcp, reset ? SVC_END_RESETS : SVC_END_ORDERLY);
	c->tcp = -1;
}

void
svc_conn_close_tcp(struct svc_conn *c, bool reset)
{
	if (c->tcp < 0 || c->tcp_over)
		return;
	c->tcp_over = true;
	/* as long as the program exists, it may ask for options of the socket */
	if (c->gone ||
		!svc_end_open(c->smc, c->uid, c->tcp, reset ? SVC_END_DISCONNECTS : SVC_END_SHUTS))
		svc_conn_put_tcp(c, reset);
}

void
svc_conn_drop_program(struct svc_conn *c)
{
	if (c->pair < 0)
		return;
	svc_unwatch(c->smc, c->pair);
	svc_let_go(c->smc, c->uid, c->pair);
	c->pair = -1;
	svc_conn_put(c);
}

/* --- actions of the program --- */

static void
conn_abort(struct svc_conn *c, int error)
{
	svc_conn_agree(c); /* whose end is also that of the TCP connection */
	if (c->id != SMC_NO_ID)
		(void)karst_smc_conn_abort(c->smc->core, c->id);
	if (c->what == SMC_RELAY)
		svc_conn_close_tcp(c, true);
	svc_conn_fail(c, error);
}

static void
conn_hostile(struct svc_conn *c, const char *what)
{
	c->smc->faults++;
	karst_log_some(&c->smc->log, kd_clock_ns(), KARST_LOG_NOTICE,
		"smc: process %d: impossible %s in a control page", (int)c->pid, what);
	conn_abort(c, ECONNABORTED);
}

/* Passes to lib/smc what was written from @from to @to, with an urgent mark if there is one. */
static void
give(struct svc_conn *c, uint64_t from, uint64_t to)
{
	uint64_t urgent = c->tx_urgent;

	if (urgent > from && urgent <= to) {
		(void)karst_smc_conn_send(c->smc->core, c->id, (uint32_t)(urgent - from), true);
		from = urgent;
	}
	if (from != to)
		(void)karst_smc_conn_send(c->smc->core, c->id, (uint32_t)(to - from), false);
}

/* A mark outside the new bytes is ignored: earlier ones were taken over, and the byte of a later
 * one is behind @head, where it will be seen. */
static void
take_urgent(struct svc_conn *c, uint64_t head)
{
	uint64_t urgent = atomic_load_explicit(&c->txd->urgent, memory_order_acquire);

	if (urgent > c->tx_head && urgent <= head)
		c->tx_urgent = urgent;
}

/* Takes over the program's positions.  @return false: they are impossible. */
static bool
take_positions(struct svc_conn *c)
{
	uint64_t head = atomic_load_explicit(&c->txd->head, memory_order_acquire);
	uint64_t tail = atomic_load_explicit(&c->rxd->tail, memory_order_acquire);

	if (head - c->tx_tail > c->buffer || head - c->tx_tail < c->tx_head - c->tx_tail) {
		conn_hostile(c, "end of what was written");
		return false;
	}
	if (tail - c->rx_tail > c->rx_head - c->rx_tail) {
		conn_hostile(c, "end of what was read");
		return false;
	}
	take_urgent(c, head);
	if (c->what == SMC_RDMA && c->id != SMC_NO_ID) {
		give(c, c->tx_head, head);
		if (tail != c->rx_tail)
			(void)karst_smc_conn_consumed(
				c->smc->core, c->id, (uint32_t)(tail - c->rx_tail));
	}
	c->tx_head = head;
	c->rx_tail = tail;
	return true;
}

/* Whether bytes have come after the program has shut down both directions, which causes a reset as
 * with TCP. */
static bool
is_late(const struct svc_conn *c, const struct karst_smc_conn_info *info)
{
	return c->what == SMC_RDMA && info->error == 0 && info->recv_pos != c->rx_head &&
		(atomic_load(&c->page->shut) & KARST_SOCK_SHUT) == KARST_SOCK_SHUT && !c->gone;
}

static void
take_info(struct svc_conn *c)
{
	struct karst_smc_conn_info info;

	if (c->id == SMC_NO_ID || karst_smc_conn_info(c->smc->core, c->id, &info) != 0)
		return;
	if (is_late(c, &info)) {
		svc_conn_fail(c, ECONNRESET); /* first: on_reset() changes nothing then */
		(void)karst_smc_conn_abort(c->smc->core, c->id);
		return;
	}
	c->tx_tail = info.send_over ? c->tx_head : info.free_pos;
	c->rx_head = info.recv_pos;
	if (info.urgent)
		c->rx_urgent = info.urgent_pos + 1;
	if (info.error != 0)
		return; /* svc_conn_fail() sets the error before it signals the end */
	if (info.send_over)
		atomic_fetch_or(&c->page->flags, KARST_SOCK_NO_SEND | KARST_SOCK_CLOSED);
	if (info.peer_blocked)
		atomic_fetch_or(&c->page->flags, KARST_SOCK_PEER_BLOCKED);
	else
		atomic_fetch_and(&c->page->flags, ~KARST_SOCK_PEER_BLOCKED);
	if (info.peer_done) {
		svc_conn_show(c);
		svc_conn_eof(c);
	}
}

/* Tells lib/smc that the program's direction, or the whole connection, has ended. */
static void
tell_end(struct svc_conn *c)
{
	if (c->ended || c->id == SMC_NO_ID)
		return;
	if (c->gone) {
		c->ended = true;
		if (atomic_load(&c->page->reset) != 0)
			(void)karst_smc_conn_abort(c->smc->core, c->id);
		else
			(void)karst_smc_conn_close(c->smc->core, c->id);
	} else if (c->shut && !c->shut_told) {
		c->shut_told = true;
		(void)karst_smc_conn_shutdown(c->smc->core, c->id);
	}
}

/* A program that rings may be waiting for room.  Otherwise the rings are of no interest before it
 * is decided what becomes of the connection: what has been written until then is there. */
static bool
needs_rings(const struct svc_conn *c)
{
	return c->rang || c->what == SMC_RDMA || c->what == SMC_RELAY;
}

static void
drop_if_over(struct svc_conn *c)
{
	if (c->gone && c->what != SMC_AGREEING && (c->what != SMC_RELAY || c->tcp_over))
		svc_conn_drop_program(c);
}

/* Pairs with the program, which writes, and then checks whether the service wants to know.  Not
 * used before it is decided what becomes of the connection: what has been written until then is
 * taken over then. */
static void
want_more(struct svc_conn *c)
{
	atomic_store(&c->txd->wanted, 1);
	if (atomic_load(&c->txd->head) != c->tx_head && c->what != SMC_OVER)
		svc_conn_queue(c);
}

void
svc_conn_work(struct svc_conn *c)
{
	if (!c->begun)
		svc_conn_begin(c);
	/* before everything else is checked: rings from here on cause another event */
	if (c->pair >= 0 && c->rang &&
		(c->rings == NULL || (svc_conn_map(c) && atomic_load(&c->txd->blocked) == 0)))
		empty_pair(c); /* a program without rings does not wait for room in them */
	if (c->what == SMC_DIRECT) {
		svc_direct_work(c);
		return;
	}
	if (c->what != SMC_AGREEING)
		svc_direct_alone(c);
	else if (c->tcp_news)
		svc_clc_read(c);
	if (needs_rings(c) && !svc_conn_map(c))
		conn_abort(c, ENOMEM);
	if (c->txd == NULL) {
		drop_if_over(c);
		return;
	}
	if (c->what != SMC_OVER) {
		/* first: what was written before the shutdown is taken over below */
		c->shut |= (atomic_load(&c->page->shut) & KARST_SOCK_SHUT_WR) != 0;
		if (!take_positions(c))
			return;
	}
	if (c->what == SMC_RDMA) {
		tell_end(c);
		take_info(c);
	} else if (c->what == SMC_RELAY) {
		svc_relay_work(c);
	}
	if (c->pair < 0)
		return;
	svc_conn_show(c);
	if (needs_rings(c) || c->what == SMC_OVER)
		want_more(c);
	/* pairs with the program, which reads, and then checks the flag */
	if ((atomic_load(&c->page->flags) & KARST_SOCK_PEER_BLOCKED) &&
		atomic_load(&c->rxd->tail) != c->rx_tail)
		svc_conn_queue(c);
	drop_if_over(c);
}

/* --- events of lib/smc --- */

static void
conn_over(struct svc_conn *c)
{
	uint32_t id = c->id;

	c->id = SMC_NO_ID;
	(void)karst_smc_conn_release(c->smc->core, id);
	svc_conn_put(c); /* the reference of lib/smc */
}

static void
on_connected(struct svc_conn *c)
{
	if (svc_rdma_tx_key(c) != 0) {
		(void)karst_smc_conn_abort(c->smc->core, c->id);
		return;
	}
	c->what = SMC_RDMA;
	svc_conn_unname(c);
	atomic_store(&c->page->state, KARST_SOCK_RDMA);
	/* what was written meanwhile */
	give(c, 0, c->tx_head);
}

static void
on_fallback(struct svc_conn *c)
{
	struct karst_smc_conn_info info = {0};

	(void)karst_smc_conn_info(c->smc->core, c->id, &info);
	conn_over(c);
	svc_relay_begin(c, info.reason);
}

static void
on_failed(struct svc_conn *c)
{
	struct karst_smc_conn_info info = {0};

	(void)karst_smc_conn_info(c->smc->core, c->id, &info);
	conn_over(c);
	if (c->what == SMC_DIRECT)
		return; /* lib/smc is not needed any more */
	svc_conn_close_tcp(c, true);
	svc_conn_fail(c, c->tcp_reset ? ECONNRESET : info.error);
}

static void
on_reset(struct svc_conn *c)
{
	struct karst_smc_conn_info info = {0};

	(void)karst_smc_conn_info(c->smc->core, c->id, &info);
	if (c->what != SMC_OVER) {
		take_info(c);
		svc_conn_fail(c, info.error);
	}
	if (!c->ended) {
		c->ended = true;
		(void)karst_smc_conn_close(c->smc->core, c->id);
	}
}

void
svc_conn_event(struct svc_conn *c, uint32_t what)
{
	c->refs++; /* the reference of lib/smc may be the last one */
	if (what & KARST_SMC_EV_CONNECTED)
		on_connected(c);
	if (what & KARST_SMC_EV_FALLBACK) {
		on_fallback(c);
	} else if (what & KARST_SMC_EV_FAILED) {
		on_failed(c);
	} else {
		if (what & KARST_SMC_EV_RESET)
			on_reset(c);
		if (what & KARST_SMC_EV_CLOSED) {
			if (c->what == SMC_RDMA)
				take_info(c);
			svc_conn_close_tcp(c, false);
			if (c->what != SMC_OVER && !c->gone)
				svc_conn_fail(c, ECONNABORTED);
			c->what = SMC_OVER;
			atomic_store(&c->page->state, KARST_SOCK_OVER);
			svc_spare_keep(c);
			conn_over(c);
		}
	}
	svc_conn_queue(c);
	svc_conn_put(c);
}
