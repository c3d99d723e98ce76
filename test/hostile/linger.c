/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Descriptors that block the process that closes them: TCP sockets that linger for days, because
 * their other end reads nothing.  They are in messages that karstd has not read when their
 * connection ends: the connection is closed halfway, or before karstd accepted it.  Or they are in
 * requests that karstd refuses, each of which is answered nevertheless.  Others attach meanwhile,
 * and karstd ends when it is told to.
 */
#include "hostile.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "karst_ctl_sock.h"

#define LINGER_S 1000000
#define DEAF     8   /* connections that end while an answer cannot be sent */
#define UNHEARD  300 /* connections that send one message and close */
#define REFUSED  300 /* more than karstd lets wait for their refusal */
#define ANSWER_S 60
#define PROGRAMS 8
#define DAEMON   1 /* user of refused() */

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

/* Sends one message, and waits for the answer. */
static void
refused(struct report *r, const struct host *h, int lingering)
{
	const struct timeval within = {.tv_sec = ANSWER_S};
	const struct karst_ctl_hdr hdr = {.nfds = lingering >= 0};
	static uint8_t buf[KARST_CTL_MAX];
	int ret, fd = connect_to(h, 0), fds[KARST_CTL_MAX_FDS];
	unsigned int nfds;
	size_t len;

	if (fd < 0)
		child_fail(r, "connecting: %s", strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &within, sizeof(within));
	ret = karst_ctl_send(fd, &hdr, sizeof(hdr), &lingering, hdr.nfds);
	/* This is not the last close unless karstd was faster, which shows nothing then. */
	/* again and again: the first may come before close() waits */
	setitimer(ITIMER_REAL, &(struct itimerval){{1, 0}, {1, 0}}, NULL);
	if (lingering >= 0)
		close(lingering);
	setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
	if (ret == 0)
		ret = karst_ctl_recv(fd, buf, &len, fds, &nfds);
	if (ret != 0)
		child_fail(r, "no answer to request %d: %s", (int)atomic_load(&r->ops),
			strerror(-ret));
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

static void
interrupted(int signo)
{
	(void)signo;
}

/* Its first connection is all that karstd lets it have. */
static void
refused_lingerer(struct report *r, void *arg)
{
	const struct sigaction sa = {.sa_handler = interrupted};
	const struct host *h = arg;
	struct tcp t;
	int i;

	child_become(r, DAEMON);
	sigaction(SIGALRM, &sa, NULL);
	tcp_listen(r, &t);
	refused(r, h, -1); /* it is attached, and keeps this connection */
	for (i = 0; i < REFUSED; i++) {
		in_process(r, h, &t, refused);
		atomic_fetch_add(&r->ops, 1);
	}
	atomic_store(&r->ready, true);
	while (!atomic_load(&r->stop))
		sleep_ms(10);
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

static bool
beside_refused(const struct host *h)
{
	struct child c;
	bool good;

	if (!can_be_two_users())
		return true;
	if (!child_start(&c, refused_lingerer, (void *)(uintptr_t)h))
		return false;
	good = child_until_ready(&c) && attach(h);
	if (!good)
		note("who is refused: %s", c.report->fault);
	return child_stop(&c, "who is refused") && good;
}

bool
case_linger(const struct options *o)
{
	uint64_t until = now_ms() + HANG_S * 1000;
	struct child c;
	struct host h;
	bool good = true;
	int i;

	if (!host_up_with(&h, o->karstd, "[limits daemon]\nclients = 1\n"))
		return false;
	if (!host_for_all(&h) || !beside_refused(&h) || !child_start(&c, lingerer, &h))
		return host_end(&h, false);
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
