/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Descriptors whose close never returns, and which no signal ends: files of a file system that the
 * program serves itself, with bytes that it does not accept.  A user sends more of them, each on a
 * connection of its own that then hangs up, than karstd has threads that only close.  Others attach
 * meanwhile, the user does not, and karstd has closed everything when the program has ended.
 *
 * The files are in messages of sockets, and these are what is sent: to close a descriptor of a file
 * would wait in this program.
 */
#include "hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "karst_ctl_sock.h"
#include "late_file.h"

#define FILES   1500 /* more than the threads that karstd may have for them */
#define THREADS 700  /* of these, so many must be waiting: else this tests nothing */
#define FULL_MS 5000 /* karstd accepts nothing for so long: it is full */
#define BYTES   4096u
#define STACK   65536u

/* --- files in messages of sockets --- */

/* @return the socket that has the only reference to a new struct file of the file at @path */
static int
pack_file(struct report *r, const char *path)
{
	const struct karst_ctl_hdr hdr = {.nfds = 1};
	int pair[2], fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0 ||
		karst_ctl_send(pair[0], &hdr, sizeof(hdr), &fd, 1) != 0)
		child_fail(r, "a file in a message: %s", strerror(errno));
	close(fd);
	close(pair[0]);
	return pair[1];
}

/* If karstd has dropped its reference before, this does not return before the end, either. */
static void *
drop(void *arg)
{
	close((int)(intptr_t)arg);
	return NULL;
}

static void
drop_aside(struct report *r, int fd)
{
	pthread_attr_t attr;
	pthread_t t;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK);
	errno = pthread_create(&t, &attr, drop, (void *)(intptr_t)fd);
	if (errno != 0)
		child_fail(r, "a thread: %s", strerror(errno));
	pthread_attr_destroy(&attr);
}

/* Sends @fd on a connection of its own, and hangs up.  @return false: karstd accepts no more */
static bool
send_packed(struct report *r, const struct host *h, int fd)
{
	const struct karst_ctl_hdr hdr = {.nfds = 1};
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	uint64_t until = now_ms() + FULL_MS;

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", h->sock);
	while (connect(sock, (struct sockaddr *)&a, sizeof(a)) != 0) {
		if (errno != EAGAIN)
			child_fail(r, "connecting: %s", strerror(errno));
		if (now_ms() > until) {
			close(sock);
			return false;
		}
		sleep_ms(1);
	}
	/* it may have been shut down already */
	if (karst_ctl_send(sock, &hdr, sizeof(hdr), &fd, 1) == 0)
		atomic_fetch_add(&r->ops, 1);
	drop_aside(r, fd);
	close(sock);
	return true;
}

struct sender {
	struct report *r;
	const struct host *host;
};

static void
send_all(int fd, void *arg)
{
	static const uint8_t page[BYTES];
	static int packed[FILES];
	const struct sender *s = arg;
	char path[32];
	int i;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	for (i = 0; i < FILES; i++)
		packed[i] = pack_file(s->r, path);
	child_become_nobody(s->r);
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* which a change of user clears */
	if (getppid() == 1)
		_exit(1);
	if (write(fd, page, sizeof(page)) != (ssize_t)sizeof(page))
		child_fail(s->r, "write: %s", strerror(errno));
	for (i = 0; i < FILES && send_packed(s->r, s->host, packed[i]); i++)
		;
	atomic_store(&s->r->ready, true);
	for (;;)
		pause();
}

static void
sender(struct report *r, void *arg)
{
	const struct rlimit many = {.rlim_cur = 4096, .rlim_max = 4096};
	struct sender s = {.r = r, .host = arg};
	const char *fault;

	if (setrlimit(RLIMIT_NOFILE, &many) != 0)
		child_fail(r, "RLIMIT_NOFILE: %s", strerror(errno));
	fault = late_file_unwritten(send_all, &s, &r->stop);
	if (fault != NULL)
		child_fail(r, "%s: %s", fault, strerror(errno));
	_exit(0);
}

/* --- others --- */

static void
refused_user(struct report *r, void *arg)
{
	const struct karst_open_attr attr = {.connect_timeout_ms = HANG_S * 1000};
	const struct host *h = arg;
	struct karst_context *ctx;

	child_become_nobody(r);
	if (karst_open(h->sock, &attr, &ctx) == 0)
		child_fail(r, "the user whose descriptors cannot be closed attaches");
}

static bool
attach_meanwhile(const struct host *h)
{
	const struct karst_open_attr attr = {.connect_timeout_ms = HANG_S * 1000};
	struct karst_context *ctx;

	if (karst_open(h->sock, &attr, &ctx) == 0)
		return karst_close(ctx) == 0;
	note("a program of another user cannot attach: %s", karst_why());
	return false;
}

/* --- the case --- */

static bool
beside_sender(const struct host *h, struct child *c)
{
	struct usage u;
	struct child same;

	if (!child_until_ready(c)) {
		note("who sends: %s", c->report->fault);
		return false;
	}
	host_usage(h, &u);
	note("%d connections, %ld threads", (int)atomic_load(&c->report->ops), u.threads);
	return u.threads >= THREADS && attach_meanwhile(h) &&
		child_start(&same, refused_user, (void *)(uintptr_t)h) &&
		child_stop(&same, "another program of the user");
}

bool
case_unclosed(const struct options *o)
{
	struct usage before;
	struct child c;
	struct host h;
	bool good;

	if (!can_serve_files() || !can_be_two_users())
		return true;
	if (!host_up(&h, o->karstd))
		return false;
	if (!host_for_all(&h) || !attach_meanwhile(&h))
		return host_end(&h, false);
	host_usage(&h, &before);
	if (!child_start(&c, sender, &h))
		return host_end(&h, false);
	good = beside_sender(&h, &c);
	good &= child_stop(&c, "who sends descriptors");
	/* the memory of threads is kept for others */
	good = good && host_settles(&h, &before, true) && attach_meanwhile(&h);
	return host_end(&h, good);
}
