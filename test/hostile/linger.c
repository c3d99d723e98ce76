/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Descriptors that block the process that closes them: TCP sockets that linger for days, because
 * their other end reads nothing.  They are in messages that karstd has not read when their
 * connection ends: the connection is closed halfway, or before karstd accepted it.  Others attach
 * meanwhile, and karstd ends when it is told to.
 */
#include "hostile.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "karst_ctl_sock.h"

#define LINGER_S 1000000
#define DEAF     8   /* connections that end while an answer cannot be sent */
#define UNHEARD  300 /* connections that send one message and close */
#define PROGRAMS 8

/* --- a socket that lingers --- */

struct tcp {
	int listener;
	struct sockaddr_in at;
};

static void
tcp_listen(struct report *r, struct tcp *t)
{
	socklen_t len = sizeof(t->at);
	const int bytes = 4096;

	t->at = (struct sockaddr_in){
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	t->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(t->listener, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	if (t->listener < 0 || bind(t->listener, (struct sockaddr *)&t->at, len) != 0 ||
		listen(t->listener, 4096) != 0 ||
		getsockname(t->listener, (struct sockaddr *)&t->at, &len) != 0)
		child_fail(r, "a listener: %s", strerror(errno));
}

/* Makes one: its other end is never accepted, and was sent more than it has room for. */
static int
tcp_lingering(struct report *r, const struct tcp *t)
{
	const struct linger l = {.l_onoff = 1, .l_linger = LINGER_S};
	static const uint8_t bytes[65536];
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), room = 4096;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l)) != 0 ||
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)) != 0 ||
		connect(fd, (const struct sockaddr *)&t->at, sizeof(t->at)) != 0)
		child_fail(r, "a TCP socket: %s", strerror(errno));
	while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		;
	return fd;
}

/* --- connections --- */

/* -1: karstd has not accepted earlier connections yet. */
static int
connect_to(const struct host *h, int flags)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", h->sock);
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
		return fd;
	close(fd);
	return -1;
}

/* Sends so much, without reading an answer, that karstd has not read all of it; then only that
 * queue holds @lingering. */
static void
deaf(struct report *r, const struct host *h, int lingering)
{
	const struct karst_ctl_hdr hdr = {.nfds = 1};
	struct pollfd p = {.events = POLLOUT};

	p.fd = connect_to(h, 0);
	if (p.fd < 0)
		child_fail(r, "connecting: %s", strerror(errno));
	fcntl(p.fd, F_SETFL, O_NONBLOCK);
	/* once more if karstd continues to read within that time, which it cannot do for ever */
	do {
		while (karst_ctl_send(p.fd, &hdr, sizeof(hdr), &lingering, 1) == 0)
			;
	} while (!atomic_load(&r->stop) && poll(&p, 1, 100) == 1 && (p.revents & POLLHUP) == 0);
}

/* Sends one message, if karstd has room for it. */
static void
unheard(struct report *r, const struct host *h, int lingering)
{
	const struct karst_ctl_hdr hdr = {.nfds = 1};
	int fd = connect_to(h, SOCK_NONBLOCK);

	(void)r;
	if (fd >= 0)
		(void)karst_ctl_send(fd, &hdr, sizeof(hdr), &lingering, 1);
}

/* Each runs in a process of its own: if karstd has closed its descriptor first, this one is the
 * last, and close() would block here.  The end of a process does not block. */
static void
in_process(struct report *r, const struct host *h, const struct tcp *t,
	void (*fn)(struct report *r, const struct host *h, int lingering))
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		fn(r, h, tcp_lingering(r, t));
		_exit(0);
	}
	if (pid < 0)
		child_fail(r, "fork: %s", strerror(errno));
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (status != 0)
		_exit(1); /* it has said why */
}

static void
lingerer(struct report *r, void *arg)
{
	const struct host *h = arg;
	struct tcp t;
	uint32_t i;

	child_become_nobody(r);
	tcp_listen(r, &t);
	for (i = 0; i < DEAF; i++) {
		in_process(r, h, &t, deaf);
		atomic_fetch_add(&r->ops, 1);
	}
	for (i = 0; i < UNHEARD && !atomic_load(&r->stop); i++)
		in_process(r, h, &t, unheard);
	atomic_store(&r->ready, true);
	while (!atomic_load(&r->stop))
		sleep_ms(10);
	/* the sockets of this process linger in karstd as long as their other ends exist here */
	_exit(0);
}

/* --- the case --- */

/* Where all programs belong to one user, no place may be free for a moment. */
static bool
attach(const struct host *h)
{
	const struct karst_open_attr attr = {.connect_timeout_ms = HANG_S * 1000};
	uint64_t until = now_ms() + HANG_S * 1000;
	struct karst_context *ctx;
	int ret;

	while ((ret = karst_open(h->sock, &attr, &ctx)) != 0 && now_ms() < until)
		sleep_ms(20);
	if (ret == 0)
		return karst_close(ctx) == 0;
	note("a program cannot attach: %s", karst_why());
	return false;
}

bool
case_linger(const struct options *o)
{
	uint64_t until = now_ms() + HANG_S * 1000;
	struct child c;
	struct host h;
	bool good = true;
	int i;

	if (!host_up(&h, o->karstd))
		return false;
	if (!host_for_all(&h) || !child_start(&c, lingerer, &h))
		return false;
	while (child_alive(&c) && atomic_load(&c.report->ops) == 0 && now_ms() < until)
		sleep_ms(1);
	for (i = 0; good && i < PROGRAMS; i++)
		good = attach(&h);
	good = good && child_until_ready(&c) && attach(&h);
	if (!good)
		note("%d programs could attach, beside %d connections: %s", i,
			(int)atomic_load(&c.report->ops), c.report->fault);
	/* while the other ends of its sockets exist */
	good &= host_stop(&h);
	good &= child_stop(&c, "who lingers");
	if (good)
		host_remove(&h);
	return good;
}
