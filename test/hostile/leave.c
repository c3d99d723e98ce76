/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * karstd is told to end, while programs block its threads: one whose memory never becomes
 * available, so that a copier waits for it; one that has sent a file whose close() never ends; one
 * that is stopped and answers nothing.  No signal ends the first two waits, not even SIGKILL, so
 * the process may stay as long as these programs do.  But karstd releases all that the next karstd
 * needs, among it a tap, which only one process can have; and once the programs are gone it ends as
 * it should.
 */
#include "hostile.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "karst_ctl_sock.h"
#include "late_file.h"

#define BYTES      65536u
#define MANY_TURNS 20000

static const char ports[] = "[port loop]\n"
			    "device = loopback\n"
			    "[port tap]\n"
			    "device = tap:leave0\n"
			    "addresses = 192.0.2.1/24\n";

/* --- programs --- */

static void
say_ready(struct report *r)
{
	atomic_store(&r->ready, true);
	while (!atomic_load(&r->stop))
		sleep_ms(10);
	/* without what would need the file system of this process */
	_exit(0);
}

/* Posts a WRITE of one queue pair of @e to another, for @target. */
static void
write_to(struct report *r, const struct end *e, const struct end *target)
{
	struct end a = *e, b = *e;

	if (end_qp(&a, KARST_QPT_RC) != 0 || end_qp(&b, KARST_QPT_RC) != 0 ||
		end_connect(&a, b.qp->qp_num) != 0 || end_connect(&b, a.qp->qp_num) != 0 ||
		end_post(&a, KARST_WR_RDMA_WRITE, 1, 0, 64, target, 100) != 0)
		child_fail(r, "connecting: %s", karst_why());
}

static void
never(struct report *r, void *arg)
{
	struct end a, target = {0};
	const char *fault;
	void *mem;

	fault = late_file_map(BYTES, LATE_NEVER, &mem);
	if (fault != NULL)
		child_fail(r, "%s: %s", fault, strerror(errno));
	if (end_open(&a, arg, "never", BYTES, false) != 0)
		child_fail(r, "attaching: %s", karst_why());
	target.mem = mem;
	if (karst_reg_mr(a.pd, mem, BYTES,
		    KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE | KARST_ACCESS_ON_DEMAND,
		    &target.mr) != 0)
		child_fail(r, "memory on demand: %s", karst_why());
	write_to(r, &a, &target);
	/* when the program is known to be slow: this copy waits behind the other */
	sleep_ms(200);
	write_to(r, &a, &target);
	say_ready(r);
}

/* Gives karstd, which is stopped, the last descriptor of the file. */
static void
kept(struct report *r, void *arg)
{
	const struct karst_ctl_hdr hdr = {.nfds = 1};
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	const struct host *h = arg;
	const char *fault;
	int fd, sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	fault = late_file_open(&fd);
	if (fault != NULL)
		child_fail(r, "%s: %s", fault, strerror(errno));
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", h->sock);
	if (connect(sock, (struct sockaddr *)&a, sizeof(a)) != 0 ||
		karst_ctl_send(sock, &hdr, sizeof(hdr), &fd, 1) != 0)
		child_fail(r, "connecting: %s", strerror(errno));
	close(fd);
	late_file_keep();
	say_ready(r);
}

/* Attaches, and never reads that the engine ends. */
static void
stopped(struct report *r, void *arg)
{
	struct end a;

	if (end_open(&a, arg, "stopped", BYTES, true) != 0)
		child_fail(r, "attaching: %s", karst_why());
	atomic_store(&r->ready, true);
	raise(SIGSTOP);
	say_ready(r);
}

/* --- the case --- */

/* A thread is blocked by the memory that never becomes available, and was written off.  Meanwhile
 * the lcore, which has no other work, sleeps: its turns would show a thread that works, or polls
 * again and again. */
static bool
sleeps_while_stuck(const struct host *h)
{
	long turns = host_ask(h, "/karst/lcores", "turns");
	bool stuck = host_until_stuck(h, 1, LONG_MAX);

	turns = host_ask(h, "/karst/lcores", "turns") - turns;
	note("the lcore took %ld turns while a thread waited for memory", turns);
	if (turns >= MANY_TURNS)
		note("it does not sleep");
	return stuck && turns < MANY_TURNS;
}

/* Checks that what another karstd needs is free, though the first process may still exist. */
static bool
next_starts(const struct host *h, struct host *next)
{
	uint64_t until = now_ms() + HANG_S * 1000;
	char lock[sizeof(h->sock) + 8];

	*next = *h;
	next->pid = 0;
	snprintf(next->name, sizeof(next->name), "next%d", (int)getpid() % 1000000);
	/* the lock is released last */
	snprintf(lock, sizeof(lock), "%s.lock", h->sock);
	while (access(lock, F_OK) == 0 && now_ms() < until)
		sleep_ms(10);
	return host_start(next);
}

struct way {
	const char *what;
	void (*program)(struct report *r, void *arg);
	bool unheard; /* until it is ready */
	bool copied;  /* a thread waits in its memory */
};

static bool
with_program(const struct options *o, const struct way *way, const char *conf)
{
	struct host h, next = {0};
	struct child c, first = {0};
	bool good;

	if (!host_up_with(&h, o->karstd, conf))
		return false;
	first.pid = h.pid;
	if (way->unheard)
		(void)(kill(h.pid, SIGSTOP) == 0 && waitpid(h.pid, NULL, WUNTRACED));
	if (!child_start(&c, way->program, &h))
		return false;
	good = child_until_ready(&c);
	kill(h.pid, SIGCONT);
	good = good && (!way->copied || sleeps_while_stuck(&h));
	kill(h.pid, SIGTERM);
	good = good && next_starts(&h, &next);
	note("%s: karstd is %s", way->what, child_alive(&first) ? "there still" : "gone");
	kill(c.pid, SIGCONT);
	good &= child_stop(&c, way->what);
	good &= host_stop(&h);
	if (next.pid > 0)
		good &= host_stop(&next);
	if (good)
		host_remove(&h);
	return good;
}

bool
case_leave(const struct options *o)
{
	static const struct way ways[] = {
		{"a program that is stopped", stopped, false, false},
		{"a program whose memory never comes", never, false, true},
		{"a program whose file is never closed", kept, true, false},
	};
	/* interfaces of this process alone */
	bool own = unshare(CLONE_NEWNET) == 0, good = true;
	const char *conf = own && access("/dev/net/tun", F_OK) == 0 ? ports : "";
	size_t i, n = can_serve_files() ? KARST_DIM(ways) : 1;

	if (conf[0] == '\0')
		note("no tap");
	for (i = 0; i < n; i++)
		good &= with_program(o, &ways[i], conf);
	return good;
}
