/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * CLC on the TCP socket, which the program may use as well.  So bytes that are not CLC must stay
 * there: a message is peeked at, and read when lib/smc knows it.
 *
 * For a user who is not trusted each call costs two switches of threads (smc_ask.c).  So one call
 * sends lib/smc's answer to a message and reads the message.
 */
#include "smc_priv.h"

#include <errno.h>
#include <sys/socket.h>

#define CLC_BYTES 2048

struct clc_seen {
	uint16_t n;
	uint8_t buf[CLC_BYTES];
};

struct svc_clc_answer {
	uint16_t taken; /* bytes of the peer's message */
	uint16_t len;   /* 0: there is no answer */
	uint8_t bytes[KARST_SMC_CLC_BUILD_MAX];
};

static int
look_at_clc(int fd, void *arg)
{
	struct clc_seen *seen = arg;
	ssize_t n = recv(fd, seen->buf, sizeof(seen->buf), MSG_PEEK | MSG_DONTWAIT);

	seen->n = n < 0 ? 0 : (uint16_t)n;
	return n < 0 ? -errno : 0;
}

/* Sends the answer first, because the peer waits for it.  CLC messages are the first bytes of a
 * connection, so the socket has room for them. */
static int
answer_clc(int fd, void *arg)
{
	const struct svc_clc_answer *a = arg;
	ssize_t n = a->len != 0 ? send(fd, a->bytes, a->len, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
	int rc = n < 0 ? -errno : n < a->len ? -EIO : 0;

	/* on a TCP socket MSG_TRUNC discards the bytes */
	if (a->taken != 0 && recv(fd, NULL, a->taken, MSG_TRUNC | MSG_DONTWAIT) != a->taken &&
		rc == 0)
		rc = -EIO;
	return rc;
}

static bool
ask_to_answer(struct svc_conn *c, struct svc_clc_answer *a)
{
	int rc = svc_ask(c->smc, c->uid, c->tcp, answer_clc, a, sizeof(*a));

	if (rc != 0) {
		c->tcp_reset |= rc == -ECONNRESET; /* the kernel reports that only once */
		c->tcp_news = true;                /* the connection ends at the next attempt to
						    * read */
		svc_conn_queue(c);
	}
	return rc == 0;
}

void
svc_clc_send(struct svc_conn *c, const void *msg, size_t len)
{
	struct svc_clc_answer one = {.len = 0}, *a = c->clc != NULL ? c->clc : &one;

	if (a->len != 0) /* a second answer */
		(void)ask_to_answer(c, a);
	a->len = (uint16_t)len;
	memcpy(a->bytes, msg, len);
	if (a == &one)
		(void)ask_to_answer(c, a);
}

/*
 * The peer has sent all of its messages on TCP, unless it declines; the rest goes over the link.  A
 * peer that is connected may end its direction, and with it TCP's, before this side knows that it
 * is connected.
 */
static bool
clc_is_over(struct svc_conn *c)
{
	struct karst_smc_conn_info info;

	return karst_smc_conn_info(c->smc->core, c->id, &info) == 0 &&
		(info.state == KARST_SMC_WAIT_CONFIRM_LINK ||
			info.state == KARST_SMC_WAIT_ADD_LINK || info.state >= KARST_SMC_ACTIVE);
}

/* @return the number of bytes that were handled. */
static uint16_t
take_clc(struct svc_conn *c, const struct clc_seen *seen)
{
	struct svc_clc_answer answer = {.len = 0};
	int used;

	/* The peer assigns its buffer to this connection as soon as the last message of another
	 * connection has arrived, which must be handled before what the peer says about this
	 * one. */
	svc_rdma_poll_all(c->smc);
	c->clc = &answer;
	used = karst_smc_clc_rx(c->smc->core, c->id, seen->buf, seen->n);
	c->clc = NULL;
	answer.taken = used > 0 ? (uint16_t)used : 0;
	if (answer.taken == 0 && answer.len == 0)
		return 0;
	return ask_to_answer(c, &answer) ? answer.taken : 0;
}

/* Bytes that arrive behind those that were seen cause another event; so does the end, unless it
 * arrived before. */
void
svc_clc_read(struct svc_conn *c)
{
	struct clc_seen seen;
	uint16_t taken;
	int rc;

	c->tcp_news = false;
	while (c->what == SMC_AGREEING && c->id != SMC_NO_ID && !c->tcp_over) {
		rc = svc_ask(c->smc, c->uid, c->tcp, look_at_clc, &seen, sizeof(seen));
		if (rc == -EAGAIN || (rc == 0 && seen.n == 0 && clc_is_over(c)))
			return;
		if (rc != 0 || seen.n == 0) {
			/* it ended before the exchange was complete */
			c->tcp_reset |= rc == -ECONNRESET;
			(void)karst_smc_conn_abort(c->smc->core, c->id);
			return;
		}
		taken = take_clc(c, &seen);
		if (taken == 0 || (taken == seen.n && taken < CLC_BYTES && !c->tcp_ends))
			return;
	}
}
