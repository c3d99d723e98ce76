/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Memory that becomes available late, or never: on-demand regions over a file in a file system that
 * the program serves itself.  Its queue pairs write into that memory, read it and send from it.  A
 * page that takes 0.9 ms, or 100 ms, delays that program alone; a page that never comes ends the
 * program's session.
 */
#include "hostile.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "late_file.h"

#define PAGE  4096u
#define PAGES 16384u /* each page is late once: a second access is not, so this ends */
/* For a program whose pages do come, beside innocents: a second or two. */
#define LATE_OPS(delay_us) ((delay_us) < 10000 ? 512u : 16u)

struct start {
	const struct host *host;
	uint32_t delay_us;
	bool nobody; /* it is another user's than the innocents are */
};

static uint8_t *
late_memory(struct report *r, uint32_t delay_us)
{
	void *p;
	const char *fault = late_file_map((size_t)PAGES * PAGE, delay_us, &p);

	if (fault != NULL)
		child_fail(r, "%s: %s", fault, strerror(errno));
	return p;
}

/* --- the program --- */

static void
connect_ends(struct report *r, const struct host *h, struct end *a, struct end *b, uint8_t *late)
{
	unsigned int access = KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE |
		KARST_ACCESS_REMOTE_READ | KARST_ACCESS_REMOTE_ATOMIC;

	if (end_open(a, h, "late a", 8 * PAGE, false) != 0 ||
		end_open(b, h, "late b", 8 * PAGE, false) != 0)
		child_fail(r, "attaching: %s", karst_why());
	if (karst_dereg_mr(b->mr) != 0 ||
		karst_reg_mr(b->pd, late, (size_t)PAGES * PAGE, access | KARST_ACCESS_ON_DEMAND,
			&b->mr) != 0)
		child_fail(r, "memory on demand: %s", karst_why());
	b->mem = late;
	if (end_qp(a, KARST_QPT_RC) != 0 || end_qp(b, KARST_QPT_RC) != 0 ||
		end_connect(b, a->qp->qp_num) != 0 || end_connect(a, b->qp->qp_num) != 0)
		child_fail(r, "connecting: %s", karst_why());
}

/* Writes, reads, sends from and adds to page after page. */
static int
post(struct end *a, struct end *b, uint32_t i)
{
	size_t page = (size_t)(i % PAGES) * PAGE;

	switch (i % 4) {
	case 0:
		return end_post(a, KARST_WR_RDMA_WRITE, i, 0, 64, b, page + 100);
	case 1:
		return end_post(a, KARST_WR_RDMA_READ, i, 0, 64, b, page);
	case 2:
		return end_post(b, KARST_WR_RDMA_WRITE, i, page, 64, a, 0);
	default:
		return end_post(a, KARST_WR_ATOMIC_FAA, i, 0, 8, b, page + 8);
	}
}

/* Another queue pair between the same attachments.  With two lcores each attachment then has one of
 * either, because they are placed by turns. */
static void
connect_more(struct report *r, struct end *a, struct end *b)
{
	a->qp = b->qp = NULL;
	if (end_qp(b, KARST_QPT_RC) != 0 || end_qp(a, KARST_QPT_RC) != 0 ||
		end_connect(b, a->qp->qp_num) != 0 || end_connect(a, b->qp->qp_num) != 0)
		child_fail(r, "connecting two more: %s", karst_why());
}

static void
late(struct report *r, void *arg)
{
	const struct start *s = arg;
	struct end a, b, a2, b2;
	uint32_t posted = 0, done = 0;
	uint8_t *mem;

	mem = late_memory(r, s->delay_us);
	if (s->nobody)
		child_become_nobody(r);
	connect_ends(r, s->host, &a, &b, mem);
	a2 = a;
	b2 = b;
	connect_more(r, &a2, &b2);
	/* The first operations of both reach the lcore in one turn, so it begins several copies at
	 * one safe point.  Not each of them may take a thread with it. */
	kill(s->host->pid, SIGSTOP);
	for (; posted < 8; posted++)
		if (post(posted < 4 ? &a : &a2, posted < 4 ? &b : &b2, posted) != 0)
			child_fail(r, "posting: %s", karst_why());
	kill(s->host->pid, SIGCONT);
	while (!atomic_load(&r->stop)) {
		struct karst_cqe cqe[16];
		int i, n;

		if (posted - done < 16 && post(&a, &b, posted) == 0)
			posted++;
		n = karst_poll_cq(a.cq, 16, cqe);
		if (n <= 0)
			n = karst_poll_cq(b.cq, 16, cqe);
		for (i = 0; i < n; i++) {
			atomic_fetch_add(&r->ops, cqe[i].status == KARST_WC_SUCCESS);
			if (cqe[i].status != KARST_WC_SUCCESS && s->delay_us != LATE_NEVER)
				child_fail(r, "%s",
					karst_wc_status_str((enum karst_wc_status)cqe[i].status));
			if (cqe[i].status != KARST_WC_SUCCESS)
				atomic_store(&r->ready, true);
			done++;
		}
		/* about as long as a page takes */
		if (n <= 0)
			sleep_ms(1);
	}
	_exit(0);
}

/* --- the case --- */

static bool
start_late(struct child *c, const struct start *s)
{
	return child_start(c, late, (void *)(uintptr_t)s);
}

static bool
enough(const struct child *c, uint32_t delay_us)
{
	return delay_us == LATE_NEVER ? atomic_load(&c->report->ready)
				      : atomic_load(&c->report->ops) >= LATE_OPS(delay_us);
}

/* If its file system gets no processor, a program may be ended for being slow. */
static bool
keep_going(struct child *c, int n, const struct start *s)
{
	bool good = true;
	int i;

	for (i = 0; i < n && good; i++)
		if (!child_alive(&c[i])) {
			child_stop(&c[i], "late program");
			good = start_late(&c[i], s);
		}
	return good;
}

/* A user whose programs hold several threads has no more memory copied (watch.c), and the innocents
 * are of the same user: so one program must not hold several. */
static bool
holds_one(const struct host *h)
{
	long stuck = host_ask(h, "/karst/lcores", "stuck_threads");

	if (stuck <= 1)
		return true;
	note("the late program holds %ld threads", stuck);
	return false;
}

/* Innocents make progress beside a program whose pages take @delay_us. */
static bool
beside(const struct options *o, struct innocents *in, uint32_t delay_us)
{
	const struct start s = {.host = in->host, .delay_us = delay_us};
	uint64_t began = now_ms(), until = began + 1000ull * o->seconds;
	long turns = host_ask(in->host, "/karst/lcores", "turns");
	struct child c;
	bool good;

	if (!start_late(&c, &s))
		return false;
	good = innocents_go_on(in);
	while (good && (o->seconds != 0 ? now_ms() < until : !enough(&c, delay_us))) {
		good = innocents_go_on(in) && keep_going(&c, 1, &s) &&
			now_ms() - began < HANG_S * 1000 + 1000ull * o->seconds;
		sleep_ms(1);
	}
	if (delay_us == LATE_NEVER)
		good = good && child_until_ready(&c) && holds_one(in->host);
	note("pages after %d us: %llu operations of the late program, %ld turns of the lcore",
		(int)delay_us, (unsigned long long)atomic_load(&c.report->ops),
		host_ask(in->host, "/karst/lcores", "turns") - turns);
	good &= delay_us == LATE_NEVER || atomic_load(&c.report->ops) > 0;
	if (delay_us == LATE_NEVER && host_ask(in->host, "/karst/lcores", "overdue_programs") < 1) {
		note("nobody was overdue");
		good = false;
	}
	return child_stop(&c, "late program") && good;
}

/* One round beside innocents. */
static bool
round_of(const struct options *o, struct host *h)
{
	struct innocents in;
	bool good = innocents_start(&in, h, o->seed) && beside(o, &in, 900) &&
		beside(o, &in, 100000) && beside(o, &in, LATE_NEVER) && innocents_go_on(&in);

	return innocents_stop(&in) && good;
}

bool
case_late(const struct options *o)
{
	struct usage before;
	struct host h;
	bool good;

	if (!can_serve_files())
		return true;
	if (!host_up(&h, o->karstd))
		return false;
	/* threads that were needed once are kept for later */
	good = round_of(o, &h);
	sleep_ms(3000);
	host_usage(&h, &before);
	good = good && round_of(o, &h) && host_settles(&h, &before, o->grown) && host_stop(&h);
	if (host_alive(&h))
		host_kill(&h);
	if (good)
		host_remove(&h);
	return good;
}

/* --- threads for many --- */

#define CROWD 8
#define STAY  3
/* One drives, one can take over, and one copies for each program that is still slow. */
#define POOL (2 + STAY)

/* Runs beside @n programs. */
static bool
until_threads(struct child *c, int n, const struct start *s, long from, long to)
{
	uint64_t until = now_ms() + HANG_S * 1000;
	long have = -1, raised = 0;

	while (keep_going(c, n, s) && now_ms() < until) {
		have = host_threads(s->host, "karst-lcore-0", &raised);
		/* the thread that drives an lcore must leave the processor to others */
		if (raised > 0) {
			note("%ld threads of lcore 0 have real-time priority", raised);
			return false;
		}
		if (have >= from && have <= to)
			return true;
		sleep_ms(2);
	}
	note("lcore 0 has %ld threads, and not %ld to %ld", have, from, to);
	return false;
}

/* Threads that many programs needed end, though some of these programs continue. */
bool
case_deferred(const struct options *o)
{
	struct child c[CROWD] = {{0}};
	struct host h;
	struct start s = {.host = &h, .delay_us = 900};
	bool good = true;
	int i;

	if (!can_serve_files())
		return true;
	if (!host_up(&h, o->karstd))
		return false;
	for (i = 0; i < CROWD; i++)
		good = good && start_late(&c[i], &s);
	good = good && until_threads(c, CROWD, &s, POOL + 2, LONG_MAX);
	for (i = STAY; i < CROWD; i++)
		if (c[i].pid != 0)
			child_stop(&c[i], "late program");
	good = good && until_threads(c, STAY, &s, 1, POOL);
	for (i = 0; i < STAY; i++)
		if (c[i].pid != 0)
			child_stop(&c[i], "late program");
	good &= host_stop(&h);
	if (good)
		host_remove(&h);
	return good;
}

/* --- one user's threads --- */

#define THREADS 4 /* of one lcore, that a user's programs may hold (watch.c) */

/* One WRITE between two attachments whose memory the engine copies; word[0] gets its status. */
static void
once(struct report *r, void *arg)
{
	const struct start *s = arg;
	struct karst_cqe cqe;
	struct end a, b;
	int n;

	child_become_nobody(r);
	if (end_open(&a, s->host, "once a", PAGE, true) != 0 ||
		end_open(&b, s->host, "once b", PAGE, true) != 0 || end_qp(&a, KARST_QPT_RC) != 0 ||
		end_qp(&b, KARST_QPT_RC) != 0 || end_connect(&b, a.qp->qp_num) != 0 ||
		end_connect(&a, b.qp->qp_num) != 0 ||
		end_post(&a, KARST_WR_RDMA_WRITE, 1, 0, 64, &b, 0) != 0)
		child_fail(r, "attaching: %s", karst_why());
	while ((n = karst_poll_cq(a.cq, 1, &cqe)) == 0)
		sleep_ms(1);
	if (n < 0)
		child_fail(r, "polling: %s", karst_why());
	atomic_store(&r->word[0], cqe.status);
	if (end_close(&a) != 0 || end_close(&b) != 0)
		child_fail(r, "closing: %s", karst_why());
	atomic_store(&r->ready, true);
	while (!atomic_load(&r->stop))
		sleep_ms(1);
}

static bool
once_is(const struct start *s, enum karst_wc_status want)
{
	enum karst_wc_status status;
	struct child c;
	bool good;

	if (!child_start(&c, once, (void *)(uintptr_t)s))
		return false;
	good = child_until_ready(&c);
	status = (enum karst_wc_status)atomic_load(&c.report->word[0]);
	if (good && status != want) {
		note("a WRITE of the same user ends with %s, not %s", karst_wc_status_str(status),
			karst_wc_status_str(want));
		good = false;
	}
	return child_stop(&c, "program of the same user") && good;
}

/* A user's programs hold threads until that user's memory is not copied any more; others' is. */
static bool
barred_by_four(const struct options *o)
{
	struct child c[THREADS] = {{0}};
	struct innocents in;
	struct host h;
	const struct start s = {.host = &h, .delay_us = LATE_NEVER, .nobody = true};
	bool good;
	int i;

	if (!host_up(&h, o->karstd))
		return false;
	(void)chmod(h.folder, 0711);
	good = innocents_start(&in, &h, o->seed);
	for (i = 0; i < THREADS - 1; i++)
		good = good && start_late(&c[i], &s);
	for (i = 0; i < THREADS - 1; i++)
		good = good && child_until_ready(&c[i]);
	good = good && host_until_stuck(&h, THREADS - 1, THREADS - 1) &&
		once_is(&s, KARST_WC_SUCCESS) && start_late(&c[i], &s) &&
		child_until_ready(&c[i]) && host_until_stuck(&h, THREADS, THREADS) &&
		once_is(&s, KARST_WC_LOC_PROT_ERR) && innocents_go_on(&in);
	for (i = 0; i < THREADS; i++)
		if (c[i].pid != 0)
			good &= child_stop(&c[i], "late program");
	good = good && host_until_stuck(&h, 0, 0) && once_is(&s, KARST_WC_SUCCESS);
	good &= innocents_stop(&in);
	good &= host_stop(&h);
	if (good)
		host_remove(&h);
	return good;
}

/* Two programs with queue pairs on two lcores hold four threads, but only two of each lcore. */
static bool
allowed_with_two_lcores(const struct options *o)
{
	struct child c[THREADS / 2] = {{0}};
	struct host h;
	const struct start s = {.host = &h, .delay_us = LATE_NEVER, .nobody = true};
	bool good = true;
	int i;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
		note("one processor: not with two lcores");
		return true;
	}
	if (!host_up_as(&h, o->karstd, "lcores = 0,1\n", ""))
		return false;
	(void)chmod(h.folder, 0711);
	for (i = 0; i < THREADS / 2; i++)
		good = good && start_late(&c[i], &s);
	for (i = 0; i < THREADS / 2; i++)
		good = good && child_until_ready(&c[i]);
	sleep_ms(200); /* until threads of both lcores have been given up */
	good = good && once_is(&s, KARST_WC_SUCCESS);
	for (i = 0; i < THREADS / 2; i++)
		if (c[i].pid != 0)
			good &= child_stop(&c[i], "late program");
	good &= host_stop(&h);
	if (good)
		host_remove(&h);
	return good;
}

bool
case_barred(const struct options *o)
{
	if (!can_serve_files() || !can_be_two_users())
		return true;
	return barred_by_four(o) && allowed_with_two_lcores(o);
}
