/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * karstd is killed, or told to end, under traffic.  A program learns it in every possible way:
 * completions in error for all outstanding requests, none of which completes twice; a thread that
 * waits for a completion event wakes; the asynchronous event; errors of calls.  And the program can
 * destroy everything, close, and attach to the next karstd at the same socket.
 */
#include "hostile.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define PROGRAMS  3
#define ROUNDS    10 /* half of them end with SIGTERM */
#define MEM_BYTES (1u << 18)
#define DEPTH     16
#define LEN       8192
#define MORE_MS   50 /* an engine that is still there would have completed requests again */

struct start {
	const struct host *host;
	bool copied;
};

struct program {
	struct report *r;
	struct end a, b;
	struct karst_comp_channel *channel;
	struct karst_cq *quiet; /* nothing but a receive completes into it */
	struct karst_qp *idle;
	uint32_t out;
	uint64_t flushed;
};

/* Makes a queue pair that waits for a message which never comes, and a thread that waits for its
 * completion. */
static void
make_idle(struct program *p)
{
	struct karst_qp_init_attr init = {.qp_type = KARST_QPT_RC, .cap = {1, 1, 1, 1, 0}};
	const struct karst_recv_wr wr = {.wr_id = 77};
	struct karst_qp_attr a = {.qp_state = KARST_QPS_INIT, .port_num = 1, .qp_access_flags = 0};

	if (karst_create_comp_channel(p->a.ctx, &p->channel) != 0 ||
		karst_create_cq(p->a.ctx, 4, p, p->channel, &p->quiet) != 0)
		child_fail(p->r, "channel: %s", karst_why());
	init.send_cq = init.recv_cq = p->quiet;
	if (karst_create_qp(p->a.pd, &init, &p->idle) != 0 ||
		karst_modify_qp(p->idle, &a,
			KARST_QP_STATE | KARST_QP_PKEY_INDEX | KARST_QP_PORT |
				KARST_QP_ACCESS_FLAGS) != 0 ||
		karst_post_recv(p->idle, &wr, NULL) != 0 ||
		karst_req_notify_cq(p->quiet, false) != 0)
		child_fail(p->r, "a queue pair that waits: %s", karst_why());
}

static void *
wait_for_event(void *arg)
{
	struct program *p = arg;
	struct karst_cqe cqe;
	struct karst_cq *cq;
	void *user;

	if (karst_get_cq_event(p->channel, &cq, &user) != 0)
		child_fail(p->r, "waiting for an event: %s", karst_why());
	karst_ack_cq_events(cq, 1);
	if (cq != p->quiet || user != p || karst_poll_cq(cq, 1, &cqe) != 1 || cqe.wr_id != 77 ||
		cqe.status != KARST_WC_WR_FLUSH_ERR)
		child_fail(p->r, "the event is not that of the receive which was flushed");
	if (karst_get_cq_event(p->channel, &cq, &user) != -EIO)
		child_fail(p->r, "a second event");
	return NULL;
}

/* @return false: the engine is gone. */
static bool
work(struct program *p)
{
	struct karst_cqe cqes[DEPTH];
	int i, n;

	while (p->out < DEPTH &&
		end_post(&p->a, KARST_WR_RDMA_WRITE, p->out, 0, LEN, &p->b, LEN) == 0)
		p->out++;
	n = karst_poll_cq(p->a.cq, DEPTH, cqes);
	if (n < 0)
		child_fail(p->r, "polling: %s", karst_why());
	for (i = 0; i < n; i++) {
		p->out--;
		if (cqes[i].status == KARST_WC_WR_FLUSH_ERR)
			p->flushed++;
		else if (cqes[i].status != KARST_WC_SUCCESS)
			child_fail(p->r, "completion: %s",
				karst_wc_status_str((enum karst_wc_status)cqes[i].status));
		else if (p->flushed != 0)
			child_fail(p->r, "a success behind what was flushed");
		else
			atomic_fetch_add(&p->r->ops, 1);
	}
	return p->flushed == 0;
}

/* Everything that was outstanding completes, and nothing else. */
static void
drain(struct program *p)
{
	uint64_t until = now_ms() + HANG_S * 1000;
	struct karst_cqe cqe;

	while (p->out > 0) {
		int n = karst_poll_cq(p->a.cq, 1, &cqe);

		if (n < 0 || now_ms() > until)
			child_fail(p->r, "%u requests have not completed", p->out);
		if (n == 1 && cqe.status != KARST_WC_WR_FLUSH_ERR)
			child_fail(p->r, "a completion that is no flush");
		p->out -= (uint32_t)n;
	}
	for (until = now_ms() + MORE_MS; now_ms() < until; sleep_ms(1))
		if (karst_poll_cq(p->a.cq, 1, &cqe) != 0)
			child_fail(p->r, "more completions than requests");
}

static void
check_events(struct program *p)
{
	struct karst_async_event event;
	struct karst_pd *pd;

	if (karst_get_async_event(p->a.ctx, &event) != 0 || event.event != KARST_EVENT_DEVICE_FATAL)
		child_fail(p->r, "no asynchronous event of the engine's death");
	karst_ack_async_event(&event);
	if (karst_get_async_event(p->a.ctx, &event) != -EIO ||
		karst_alloc_pd(p->a.ctx, &pd) != -EIO)
		child_fail(p->r, "calls do not fail with EIO");
}

static void
one_engine(struct program *p, const struct start *s)
{
	pthread_t waiter;

	p->out = 0;
	p->flushed = 0;
	if (end_open(&p->a, s->host, "mourner", MEM_BYTES, s->copied) != 0 ||
		end_open(&p->b, s->host, "mourner", MEM_BYTES, s->copied) != 0 ||
		end_qp(&p->a, KARST_QPT_RC) != 0 || end_qp(&p->b, KARST_QPT_RC) != 0 ||
		end_connect(&p->b, p->a.qp->qp_num) != 0 ||
		end_connect(&p->a, p->b.qp->qp_num) != 0)
		child_fail(p->r, "attaching: %s", karst_why());
	make_idle(p);
	if (pthread_create(&waiter, NULL, wait_for_event, p) != 0)
		child_fail(p->r, "no thread");
	atomic_store(&p->r->ready, true);
	while (work(p))
		;
	drain(p);
	check_events(p);
	pthread_join(waiter, NULL);
	if (karst_destroy_qp(p->idle) != 0 || karst_destroy_cq(p->quiet) != 0 ||
		karst_destroy_comp_channel(p->channel) != 0 || end_close(&p->a) != 0 ||
		end_close(&p->b) != 0)
		child_fail(p->r, "destroying: %s", karst_why());
	atomic_fetch_add(&p->r->bytes, 1);
}

static void
program(struct report *r, void *arg)
{
	const struct start *s = arg;
	struct program p = {.r = r};

	while (!atomic_load(&r->stop)) {
		atomic_store(&r->ready, false);
		one_engine(&p, s);
		/* the test sets this when there is another engine */
		while (!atomic_load(&r->stop) && atomic_load(&r->bytes) != 0)
			sleep_ms(1);
	}
}

/* Waits until all programs are at work, or have all seen the end. */
static bool
wait_all(struct child *c, bool working)
{
	uint64_t until = now_ms() + HANG_S * 1000;
	int i;

	for (i = 0; i < PROGRAMS; i++) {
		uint64_t ops = atomic_load(&c[i].report->ops);

		while (working ? !atomic_load(&c[i].report->ready) ||
					atomic_load(&c[i].report->ops) < ops + 50
			       : atomic_load(&c[i].report->bytes) == 0) {
			if (!child_alive(&c[i]) || now_ms() > until) {
				note("program %d: %s", i,
					child_alive(&c[i]) ? "hangs" : c[i].report->fault);
				return false;
			}
			sleep_ms(1);
		}
	}
	return true;
}

/* Lets karstd's threads run rarely on a busy machine, except for the lcore and the main thread: the
 * lcore completes requests for long after karstd was told to end. */
static void
make_threads_late(const struct host *h)
{
	const struct dirent *d;
	char path[320], name[32];
	DIR *dir;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)h->pid);
	dir = opendir(path);
	while (dir != NULL && (d = readdir(dir)) != NULL) {
		pid_t tid = (pid_t)atoi(d->d_name);

		snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", (int)h->pid, d->d_name);
		f = tid > 0 && tid != h->pid ? fopen(path, "r") : NULL;
		if (f == NULL)
			continue;
		if (fgets(name, sizeof(name), f) != NULL && strncmp(name, "karst-lcore", 11) != 0)
			(void)setpriority(PRIO_PROCESS, (id_t)tid, 19);
		fclose(f);
	}
	if (dir != NULL)
		closedir(dir);
}

bool
case_death(const struct options *o)
{
	struct child c[PROGRAMS] = {{0}};
	struct dice d = {o->seed};
	bool good = true;
	struct host h;
	int i, round;

	if (!host_up(&h, o->karstd))
		return false;
	for (i = 0; i < PROGRAMS; i++) {
		struct start s = {&h, i % 2 != 0};

		good &= child_start(&c[i], program, &s);
	}
	for (round = 0; good && round < ROUNDS; round++) {
		good = wait_all(c, true);
		sleep_ms(dice_below(&d, 50));
		for (i = 0; i < PROGRAMS; i++)
			if (round + 1 == ROUNDS)
				atomic_store(&c[i].report->stop, true);
		if (round % 2 == 0) {
			host_kill(&h);
		} else {
			make_threads_late(&h);
			good = good && host_stop(&h);
		}
		good = good && wait_all(c, false);
		good = good && host_start(&h);
		for (i = 0; i < PROGRAMS; i++)
			atomic_store(&c[i].report->bytes, 0);
	}
	note("%d engines have ended", round);
	for (i = 0; i < PROGRAMS; i++)
		if (c[i].pid > 0)
			good &= child_stop(&c[i], "program");
	return host_end(&h, good);
}
