/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A program of another user than the innocents', with many attachments.  Each sends from a page
 * that never comes, and all begin at the same time, so none is known to be slow.  Nevertheless, a
 * thread must drive the lcore all the time, and no operation may wait for ever.  Several users who
 * do that together must leave threads to others, too.
 *
 * The same with many queue pairs, which send from such pages or receive into them: they must not
 * use up the copies of the lcore, nor the places of packets that wait for copies.
 */
#include "hostile.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "late_file.h"

#define PAGE     4096u
#define MANY     24 /* attachments: more than an lcore may have threads */
#define BEGUN    6  /* threads of an lcore of which some wait for pages */
#define ATTEMPTS 3
#define MOST     9 /* threads that one user may hold: some were given them at the same time */
#define USERS    3 /* who collude */
#define FRESH    9 /* times in a second that one user's programs may take a thread that drives */

static const uid_t who[USERS] = {NOBODY, 1, 2}; /* of Debian: nobody, daemon, bin */

/* In report.word. */
enum { OVER, GO, POSTED };

#define CROWDS 5  /* attachments: their copies are more than an lcore has */
#define QPS    64 /* of each of them: as many copies of one program wait */
#define WRITES 48 /* of each queue pair */
#define MORE   32 /* queue pairs of one attachment whose packets are dropped, as so many wait */

struct start {
	const struct host *host;
	uid_t uid;
	uint32_t many; /* attachments */
	uint32_t delay_us;
	uint32_t crowds, qps;
	enum karst_qp_type type;
	bool receives; /* into the pages that never come; else it sends from them */
};

/* An attachment whose queue pair is connected to itself, and whose memory is the page at @late. */
static void
open_one(struct report *r, const struct host *h, struct end *e, uint8_t *late)
{
	unsigned int access = KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE;

	if (end_open(e, h, "one of many", PAGE, false) != 0 || karst_dereg_mr(e->mr) != 0 ||
		karst_reg_mr(e->pd, late, PAGE, access | KARST_ACCESS_ON_DEMAND, &e->mr) != 0 ||
		end_qp(e, KARST_QPT_RC) != 0 || end_connect(e, e->qp->qp_num) != 0)
		child_fail(r, "attaching: %s", karst_why());
	e->mem = late;
}

static void
many(struct report *r, void *arg)
{
	const struct start *s = arg;
	static struct end e[MANY];
	bool over[MANY] = {false};
	const char *fault;
	uint32_t i, left;
	void *late;

	fault = late_file_map((size_t)PAGE * MANY, s->delay_us, &late);
	if (fault != NULL)
		child_fail(r, "%s: %s", fault, strerror(errno));
	child_become(r, s->uid);
	for (i = 0; i < s->many; i++)
		open_one(r, s->host, &e[i], (uint8_t *)late + (size_t)i * PAGE);
	atomic_store(&r->ready, true);
	while (atomic_load(&r->word[GO]) == 0 && !atomic_load(&r->stop))
		sleep_ms(1);
	for (i = 0; i < s->many; i++)
		if (end_post(&e[i], KARST_WR_RDMA_WRITE, i, 0, 64, &e[i], 64) != 0)
			child_fail(r, "posting: %s", karst_why());
	atomic_store(&r->word[POSTED], 1);
	for (left = s->many; left > 0 && !atomic_load(&r->stop); sleep_ms(1))
		for (i = 0; i < s->many; i++) {
			struct karst_cqe cqe;

			/* an error, or its session has ended */
			if (over[i] || karst_poll_cq(e[i].cq, 1, &cqe) == 0)
				continue;
			over[i] = true;
			atomic_store(&r->word[OVER], --left == 0);
		}
	while (!atomic_load(&r->stop))
		sleep_ms(1);
	_exit(0);
}

/* An attachment with many queue pairs, each connected to itself. */
struct crowd {
	struct end e;    /* with memory that is mapped */
	struct end late; /* the same, with a page that never comes */
	struct karst_qp *qp[QPS + MORE];
};

static void
open_crowd(struct report *r, const struct start *s, struct crowd *c, uint8_t *late)
{
	unsigned int access = KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE;
	uint32_t i;

	if (end_open(&c->e, s->host, "one of a crowd", PAGE, false) != 0)
		child_fail(r, "attaching: %s", karst_why());
	c->late = c->e;
	c->late.mem = late;
	if (karst_reg_mr(c->e.pd, late, PAGE, access | KARST_ACCESS_ON_DEMAND, &c->late.mr) != 0)
		child_fail(r, "memory on demand: %s", karst_why());
	for (i = 0; i < s->qps; i++) {
		if (end_qp(&c->e, s->type) != 0 || end_connect(&c->e, c->e.qp->qp_num) != 0)
			child_fail(r, "connecting: %s", karst_why());
		c->qp[i] = c->e.qp;
	}
}

static void
post_crowd(struct report *r, const struct start *s, struct crowd *c)
{
	struct end *from = s->receives ? &c->e : &c->late, *to = s->receives ? &c->late : &c->e;
	uint32_t i, k;

	for (i = 0; i < s->qps; i++) {
		from->qp = c->qp[i];
		/* of UC, each packet would wait until all places are taken */
		for (k = 0; k < (s->type == KARST_QPT_UC && i <= QPS ? 1 : WRITES); k++)
			if (end_post(from, KARST_WR_RDMA_WRITE, k, 0, 64, to, 64) != 0)
				child_fail(r, "posting: %s", karst_why());
	}
}

static void
crowds(struct report *r, void *arg)
{
	const struct start *s = arg;
	static struct crowd c[CROWDS];
	const char *fault;
	uint32_t i;
	void *late;

	fault = late_file_map((size_t)PAGE * CROWDS, LATE_NEVER, &late);
	if (fault != NULL)
		child_fail(r, "%s: %s", fault, strerror(errno));
	child_become(r, s->uid);
	for (i = 0; i < s->crowds; i++)
		open_crowd(r, s, &c[i], (uint8_t *)late + (size_t)i * PAGE);
	atomic_store(&r->ready, true);
	while (atomic_load(&r->word[GO]) == 0 && !atomic_load(&r->stop))
		sleep_ms(1);
	/* from now on, this process's mappings cannot change: a thread of the engine reads them
	 * while it waits */
	for (i = 0; i < s->crowds; i++)
		post_crowd(r, s, &c[i]);
	atomic_store(&r->word[POSTED], 1);
	while (!atomic_load(&r->stop))
		sleep_ms(1);
	_exit(0);
}

static bool
until(const struct child *c, const struct host *h,
	bool (*is)(const struct child *c, const struct host *h))
{
	uint64_t end = now_ms() + HANG_S * 1000;

	while (!is(c, h) && now_ms() < end && child_alive((struct child *)(uintptr_t)c))
		sleep_ms(2);
	if (is(c, h))
		return true;
	note("many attachments: %s", c->report->fault[0] != '\0' ? c->report->fault : "a timeout");
	return false;
}

static bool
is_ready(const struct child *c, const struct host *h)
{
	(void)h;
	return atomic_load(&c->report->ready);
}

static bool
has_posted(const struct child *c, const struct host *h)
{
	(void)h;
	return atomic_load(&c->report->word[POSTED]) != 0;
}

static bool
has_begun(const struct child *c, const struct host *h)
{
	(void)c;
	return host_threads(h, "karst-lcore-0", NULL) >= BEGUN;
}

static bool
has_failed(const struct child *c, const struct host *h)
{
	(void)c;
	return host_ask(h, "/karst/lcores", "stuck_threads") > 0;
}

static bool
is_over(const struct child *c, const struct host *h)
{
	(void)h;
	return atomic_load(&c->report->word[OVER]) != 0;
}

/* Innocents make progress before the first page is given up.  *@stood: they do not. */
static bool
meanwhile(struct innocents *in, bool *stood)
{
	long before = host_ask(in->host, "/karst/lcores", "overdue_programs");
	int i;

	/* enough for the lcore to meet all of the pages */
	sleep_ms(500);
	for (i = 0; i < INNOCENTS; i++)
		in->ops[i] = atomic_load(&in->child[i].report->ops);
	if (!innocents_go_on(in))
		return false;
	*stood = host_ask(in->host, "/karst/lcores", "overdue_programs") != before;
	if (!*stood)
		return true;
	note("innocents stood still until pages of another user were given up");
	return false;
}

static bool
hold_few(const struct host *h, int users)
{
	long stuck = host_ask(h, "/karst/lcores", "stuck_threads");

	if (stuck <= MOST * users)
		return true;
	note("%d users hold %ld threads of an lcore", users, stuck);
	return false;
}

/* Programs of @users users post at once: the lcore finds all in one turn. */
static bool
go(struct child *c, const struct host *h, int users)
{
	bool good = true;
	int i;

	kill(h->pid, SIGSTOP);
	for (i = 0; i < users; i++)
		atomic_store(&c[i].report->word[GO], 1);
	for (i = 0; i < users && good; i++)
		good = until(&c[i], h, has_posted);
	kill(h->pid, SIGCONT);
	return good;
}

static bool
many_beside(const struct options *o, int users, bool *stood)
{
	struct start s[USERS];
	struct child c[USERS] = {{0}};
	struct innocents in;
	struct host h;
	bool good;
	int i;

	*stood = false;
	if (!host_up(&h, o->karstd))
		return false;
	good = host_for_all(&h) && innocents_start(&in, &h, o->seed);
	for (i = 0; i < users; i++) {
		s[i] = (struct start){.host = &h,
			.uid = who[i],
			.many = MANY / (uint32_t)users,
			.delay_us = LATE_NEVER};
		good = good && child_start(&c[i], many, &s[i]) && until(&c[i], &h, is_ready);
	}
	good = good && go(c, &h, users) && until(&c[0], &h, has_begun) && meanwhile(&in, stood);
	for (i = 0; i < users; i++)
		good = good && until(&c[i], &h, is_over);
	good = good && hold_few(&h, users) && innocents_go_on(&in);
	for (i = 0; i < users; i++)
		if (c[i].pid != 0)
			good &= child_stop(&c[i], "program with many attachments");
	good &= innocents_stop(&in);
	return host_end(&h, good);
}

static bool
many_of(const struct options *o, int users)
{
	bool good = false, stood = true;
	int i;

	if (!can_serve_files() || !can_be_two_users())
		return true;
	/* innocents that get no processor for five seconds stand still, too, but not each time */
	for (i = 0; i < ATTEMPTS && !good && stood; i++)
		good = many_beside(o, users, &stood);
	return good;
}

bool
case_many(const struct options *o)
{
	return many_of(o, 1);
}

/* Pages that come soon: each attachment is new and takes a thread that drives the lcore, but not
 * one after another without end. */
bool
case_fresh(const struct options *o)
{
	uint64_t began;
	struct child c = {0};
	struct host h;
	const struct start s = {.host = &h, .uid = NOBODY, .many = MANY, .delay_us = 5000};
	long taken, most;
	bool good;

	if (!can_serve_files())
		return true;
	if (!host_up(&h, o->karstd))
		return false;
	good = host_for_all(&h) && child_start(&c, many, (void *)(uintptr_t)&s) &&
		until(&c, &h, is_ready);
	began = now_ms();
	good = good && go(&c, &h, 1) && until(&c, &h, is_over);
	taken = host_ask(&h, "/karst/lcores", "taken_over");
	most = (long)((now_ms() - began) / 1000 + 1) * FRESH;
	note("%d new attachments: the lcore was taken over %ld times in %d ms", MANY, taken,
		(int)(now_ms() - began));
	good &= taken <= most;
	if (c.pid != 0)
		good &= child_stop(&c, "program with many attachments");
	return host_end(&h, good);
}

/* One round beside innocents: all copies and packets that an lcore keeps are not those of one user,
 * or of @users who collude.  *@stood: the innocents do not make progress meanwhile. */
static bool
crowds_beside(const struct options *o, const struct start *s, int users, bool *stood)
{
	struct child c[USERS] = {{0}};
	struct start of[USERS];
	struct innocents in;
	bool good;
	int i;

	*stood = false;
	good = innocents_start(&in, s->host, o->seed);
	for (i = 0; i < users; i++) {
		of[i] = *s;
		of[i].uid = who[i];
		good = good && child_start(&c[i], crowds, &of[i]) &&
			until(&c[i], s->host, is_ready);
	}
	good = good && go(c, s->host, users) && meanwhile(&in, stood) &&
		until(&c[0], s->host, has_failed) && innocents_go_on(&in);
	for (i = 0; i < users; i++)
		if (c[i].pid != 0)
			good &= child_stop(&c[i], "program with many queue pairs");
	return innocents_stop(&in) && good;
}

/* As many calls a second as they like, so that this does not take a minute. */
static const char many_calls[] = "[limits nobody]\ncalls = 1000000\n"
				 "[limits daemon]\ncalls = 1000000\n";

bool
case_crowds(const struct options *o)
{
	struct host h;
	const struct start s[] = {
		{&h, NOBODY, 0, LATE_NEVER, CROWDS, QPS, KARST_QPT_RC, false},
		{&h, NOBODY, 0, LATE_NEVER, CROWDS, QPS, KARST_QPT_RC, true},
		/* packets that are dropped take no place; the round after it would notice */
		{&h, NOBODY, 0, LATE_NEVER, 1, QPS + MORE, KARST_QPT_UC, true},
		{&h, NOBODY, 0, LATE_NEVER, 1, 1, KARST_QPT_RC, true},
	};
	bool good, stood;
	size_t i;

	if (!can_serve_files() || !can_be_two_users())
		return true;
	if (!host_up_with(&h, o->karstd, many_calls))
		return false;
	good = host_for_all(&h);
	for (i = 0; i < KARST_DIM(s) && good; i++)
		/* innocents that stand still for want of a processor do not matter here */
		good = crowds_beside(o, &s[i], 1, &stood) || stood;
	return host_end(&h, good);
}

static bool
crowds_collude(const struct options *o, bool receive, bool *stood)
{
	struct host h;
	const struct start s = {&h, NOBODY, 0, LATE_NEVER, CROWDS, QPS, KARST_QPT_RC, receive};
	bool good;

	if (!host_up_with(&h, o->karstd, many_calls))
		return false;
	good = host_for_all(&h) && crowds_beside(o, &s, 2, stood);
	return host_end(&h, good);
}

bool
case_colluders(const struct options *o)
{
	bool good = many_of(o, USERS), stood, receive = false;
	int i;

	if (!can_serve_files() || !can_be_two_users())
		return good;
	for (; good; receive = true) {
		for (i = 0, good = false, stood = true; i < ATTEMPTS && !good && stood; i++)
			good = crowds_collude(o, receive, &stood);
		if (receive)
			break;
	}
	return good;
}
