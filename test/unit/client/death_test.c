/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The engine is killed while requests are outstanding: all of them complete, and no thread
 * hangs. */
#include "client_bed.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <criterion/criterion.h>

static uint8_t mem[1 << 20];

struct pair {
	struct client_bed b;
	struct karst_mr *mr;
	struct karst_qp *a;
	struct karst_qp *z;
};

static void
pair_up(struct pair *p, uint32_t lcores)
{
	client_bed_up(&p->b, &(struct client_bed_config){.lcores = lcores, .forked = true});
	p->mr = client_bed_mr(&p->b, mem, sizeof(mem));
	p->a = client_bed_qp(&p->b, KARST_QPT_RC);
	p->z = client_bed_qp(&p->b, KARST_QPT_RC);
	client_bed_connect(p->a, p->z);
}

static void
pair_down(struct pair *p)
{
	cr_assert_eq(karst_close(p->b.ctx), -EBUSY, "also after the engine's death");
	cr_assert_eq(karst_destroy_qp(p->a), 0, "%s", karst_why());
	cr_assert_eq(karst_destroy_qp(p->z), 0);
	cr_assert_eq(karst_dereg_mr(p->mr), 0);
	client_bed_down(&p->b);
}

static void
expect_fatal(struct karst_context *ctx)
{
	struct pollfd fd = {.fd = ctx->async_fd, .events = POLLIN};
	struct karst_async_event ev;

	do {
		cr_assert_eq(poll(&fd, 1, (int)BED_PATIENCE_MS), 1);
		cr_assert_eq(karst_get_async_event(ctx, &ev), 0);
		karst_ack_async_event(&ev);
	} while (ev.event != KARST_EVENT_DEVICE_FATAL);
	cr_assert_eq(ev.object, KARST_ASYNC_OBJECT_NONE);
	cr_assert_eq(karst_get_async_event(ctx, &ev), -EIO, "once");
}

/* Outstanding requests on queues without progress are flushed, signaled or not, in order; and so
 * are requests that are posted afterwards. */
Test(client_death, outstanding)
{
	struct karst_sge sge;
	struct karst_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = KARST_WR_SEND};
	struct karst_pd *pd;
	struct karst_cqe e;
	struct pair p;
	uint32_t i;

	pair_up(&p, 1);
	sge = (struct karst_sge){p.mr->iova, 8, p.mr->lkey};
	/* the peer has no receive: the sends wait */
	for (i = 0; i < 10; i++) {
		wr.wr_id = i;
		wr.send_flags = i & 1 ? KARST_SEND_SIGNALED : 0;
		cr_assert_eq(karst_post_send(p.a, &wr, NULL), 0);
		cr_assert_eq(client_bed_recv(p.a, 100 + i, p.mr, 0, 8), 0);
	}
	client_bed_nothing(p.b.cq);
	client_bed_kill(&p.b);
	for (i = 0; i < 20; i++) {
		e = client_bed_wait(p.b.cq);
		cr_assert_eq(e.status, KARST_WC_WR_FLUSH_ERR);
		cr_assert_eq(e.wr_id, i < 10 ? i : 90 + i);
		cr_assert_eq(e.qpn, p.a->qp_num);
		cr_assert_eq(e.opcode, i < 10 ? KARST_WC_SEND : KARST_WC_RECV);
	}
	client_bed_nothing(p.b.cq);
	for (i = 0; i < 100; i++) {
		wr.wr_id = 1000 + i;
		cr_assert_eq(karst_post_send(p.a, &wr, NULL), 0);
		e = client_bed_wait(p.b.cq);
		cr_assert_eq(e.wr_id, 1000 + i);
		cr_assert_eq(e.status, KARST_WC_WR_FLUSH_ERR);
	}
	cr_assert_eq(karst_alloc_pd(p.b.ctx, &pd), -EIO);
	cr_assert_not_null(strstr(karst_why(), "gone"));
	expect_fatal(p.b.ctx);
	pair_down(&p);
}

/* How far the engine came with completions that were not published to the program. */
enum stage {
	WRITTEN, /* written over old ones, which were polled long ago: their requests are
		  * outstanding like the others */
	READY,
	GIVEN_BACK, /* and their requests' slots were freed, and have been filled again since */
};

/*
 * The engine is killed while it holds completions that were not published; @alone: all published
 * completions are another queue's.  Each request completes once, and then there is room for as many
 * requests as the queue has slots.
 */
static void
killed_before_showing(enum stage stage, bool alone)
{
	const uint32_t waiting = 10, written = 4, slots = 16;
	struct karst_cq_lane *lane;
	struct karst_cqe *entries, e;
	struct karst_wq *sq;
	struct pair p;
	uint32_t i, posted = waiting;

	pair_up(&p, 1);
	lane = &p.b.cq->lane[p.a->lcore];
	sq = &p.a->sq;
	for (i = 0; i < 2 * (lane->mask + 1); i++) {
		cr_assert_eq(client_bed_post(alone ? p.z : p.a, KARST_WR_RDMA_WRITE, i, p.mr, 0, 8,
				     p.mr, 64),
			0);
		cr_assert_eq(client_bed_wait(p.b.cq).status, KARST_WC_SUCCESS);
	}
	/* the peer has no receive: they wait */
	for (i = 0; i < waiting; i++)
		cr_assert_eq(client_bed_post(p.a, KARST_WR_SEND, i, p.mr, 0, 8, NULL, 0), 0);
	client_bed_nothing(p.b.cq);
	client_bed_kill(&p.b);
	entries = (struct karst_cqe *)(uintptr_t)(lane->sh + 1);
	for (i = 0; i < written; i++)
		entries[(lane->sh->tail + i) & lane->mask] = (struct karst_cqe){
			.wr_id = i,
			.qpn = p.a->qp_num,
			.opcode = KARST_WC_SEND,
			.slot = sq->sh->head + i,
		};
	if (stage >= READY)
		atomic_fetch_add(&lane->sh->ready, written);
	if (stage >= GIVEN_BACK)
		atomic_fetch_add(&sq->sh->head, written);
	while (client_bed_post(p.a, KARST_WR_SEND, posted, p.mr, 0, 8, NULL, 0) == 0)
		posted++;
	cr_assert_eq(posted, slots + (stage >= GIVEN_BACK ? written : 0));
	for (i = 0; i < posted; i++) {
		e = client_bed_wait(p.b.cq);
		cr_assert_eq(e.status,
			stage >= READY && i < written ? KARST_WC_SUCCESS : KARST_WC_WR_FLUSH_ERR);
		cr_assert_eq(e.wr_id, i);
	}
	client_bed_nothing(p.b.cq);
	for (i = 0; i < slots; i++)
		cr_assert_eq(client_bed_post(p.a, KARST_WR_SEND, i, p.mr, 0, 8, NULL, 0), 0);
	for (i = 0; i < slots; i++)
		cr_assert_eq(client_bed_wait(p.b.cq).wr_id, i);
	client_bed_nothing(p.b.cq);
	pair_down(&p);
}

Test(client_death, completions_that_were_written)
{
	killed_before_showing(WRITTEN, false);
}

Test(client_death, completions_of_nobody_else_that_were_written)
{
	killed_before_showing(WRITTEN, true);
}

Test(client_death, completions_that_were_ready)
{
	killed_before_showing(READY, false);
}

Test(client_death, completions_of_nobody_else_that_were_ready)
{
	killed_before_showing(READY, true);
}

Test(client_death, slots_given_back_before_their_completions)
{
	killed_before_showing(GIVEN_BACK, false);
}

Test(client_death, slots_given_back_to_nobody_else)
{
	killed_before_showing(GIVEN_BACK, true);
}

/* Impossible values that the engine left are not believed. */
Test(client_death, impossible_ready)
{
	static const uint32_t off[] = {UINT32_MAX, 1025, 0x7fffffff, 0x80000000};
	struct karst_cq_lane *lane;
	struct pair p;
	uint32_t i;

	for (i = 0; i < KARST_DIM(off); i++) {
		pair_up(&p, 1);
		lane = &p.b.cq->lane[p.a->lcore];
		cr_assert_eq(client_bed_post(p.a, KARST_WR_SEND, 7, p.mr, 0, 8, NULL, 0), 0);
		client_bed_nothing(p.b.cq);
		client_bed_kill(&p.b);
		atomic_fetch_add(&lane->sh->ready, off[i]);
		cr_assert_eq(client_bed_wait(p.b.cq).wr_id, 7);
		client_bed_nothing(p.b.cq);
		pair_down(&p);
	}
}

/* Under traffic each request completes exactly once, whenever the engine is killed. */
static void
killed_under_traffic(unsigned int after)
{
	uint32_t posted = 0, done = 0, flushed = 0, i;
	struct karst_cqe e[16];
	struct pair p;
	int n;

	pair_up(&p, 2);
	while (done < after || flushed == 0 || done < posted) {
		if (flushed == 0 && posted < after + 5000)
			for (i = 0; i < 16 &&
				client_bed_post(p.a, KARST_WR_RDMA_WRITE, posted, p.mr, 0, 3000,
					p.mr, 500000) == 0;
				i++)
				posted++;
		if (p.b.child != 0 && done >= after) {
			client_bed_kill(&p.b);
			p.b.child = 0;
		}
		n = karst_poll_cq(p.b.cq, KARST_DIM(e), e);
		cr_assert_geq(n, 0, "%s", karst_why());
		for (i = 0; i < (uint32_t)n; i++) {
			cr_assert_eq(e[i].wr_id, done, "%llu where %u is due",
				(unsigned long long)e[i].wr_id, done);
			done++;
			flushed += e[i].status == KARST_WC_WR_FLUSH_ERR;
			cr_assert(e[i].status == 0 || e[i].status == KARST_WC_WR_FLUSH_ERR);
			cr_assert(flushed == 0 || e[i].status != 0, "a success after a flush");
		}
		if (n == 0)
			client_bed_pause();
	}
	client_bed_nothing(p.b.cq);
	pair_down(&p);
}

Test(client_death, under_traffic)
{
	killed_under_traffic(2000);
}

Test(client_death, under_traffic_early)
{
	killed_under_traffic(3);
}

static void *
kill_soon(void *arg)
{
	struct client_bed *b = arg;

	usleep(2000 + (useconds_t)random() % 20000);
	client_bed_kill(b);
	return NULL;
}

/* The engine is killed, usually in the middle of a resize: each request completes exactly once,
 * wherever the lanes were. */
static void
killed_while_resizing(unsigned int seed)
{
	uint32_t posted = 0, done = 0, resized = 0;
	bool flushed = false;
	struct karst_cqe e;
	struct pair p;
	pthread_t t;
	int ret = 0;

	srandom(seed);
	pair_up(&p, 2);
	cr_assert_eq(pthread_create(&t, NULL, kill_soon, &p.b), 0);
	while (!flushed || done < posted) {
		while (!flushed && posted - done < 16 &&
			client_bed_post(
				p.a, KARST_WR_RDMA_WRITE, posted, p.mr, 0, 8, p.mr, 500000) == 0)
			posted++;
		if (ret == 0)
			ret = karst_resize_cq(p.b.cq, resized++ % 2 ? 32 : 500);
		cr_assert(ret == 0 || ret == -EIO, "%s", karst_why());
		/* not all: each resize finds unread completions */
		if (karst_poll_cq(p.b.cq, 1, &e) != 1)
			continue;
		cr_assert_eq(
			e.wr_id, done, "%llu where %u is due", (unsigned long long)e.wr_id, done);
		cr_assert(e.status == 0 || e.status == KARST_WC_WR_FLUSH_ERR);
		flushed |= e.status != 0;
		done++;
	}
	pthread_join(t, NULL);
	cr_assert_eq(karst_resize_cq(p.b.cq, 100), -EIO);
	client_bed_nothing(p.b.cq);
	pair_down(&p);
}

#define RESIZING(seed)                            \
	Test(client_death, while_resizing_##seed) \
	{                                         \
		killed_while_resizing(seed);      \
	}
RESIZING(1)
RESIZING(2)
RESIZING(3)

static void *
wait_for_event(void *arg)
{
	struct karst_comp_channel *ch = arg;
	struct karst_cq *cq;
	void *context;
	int ret;

	ret = karst_get_cq_event(ch, &cq, &context);
	if (ret == 0)
		karst_ack_cq_events(cq, 1);
	return (void *)(intptr_t)ret;
}

/* A thread that waits for an event gets one if there is something to flush, and then learns the
 * reason. */
Test(client_death, blocked_in_events)
{
	struct karst_comp_channel *ch, *idle;
	struct karst_qp_init_attr init;
	struct karst_cq *cq;
	struct karst_qp *qp;
	pthread_t t[2];
	struct pair p;
	void *ret;

	pair_up(&p, 1);
	cr_assert_eq(karst_create_comp_channel(p.b.ctx, &ch), 0);
	cr_assert_eq(karst_create_comp_channel(p.b.ctx, &idle), 0);
	cr_assert_eq(karst_create_cq(p.b.ctx, 16, NULL, ch, &cq), 0);
	init = client_bed_init(&p.b, KARST_QPT_RC);
	init.recv_cq = cq;
	cr_assert_eq(karst_create_qp(p.b.pd, &init, &qp), 0);
	cr_assert_eq(client_bed_to(qp, KARST_QPS_INIT, 1, 0), 0);
	cr_assert_eq(client_bed_recv(qp, 77, p.mr, 0, 8), 0);
	cr_assert_eq(karst_req_notify_cq(cq, false), 0);
	cr_assert_eq(pthread_create(&t[0], NULL, wait_for_event, ch), 0);
	cr_assert_eq(pthread_create(&t[1], NULL, wait_for_event, idle), 0);
	client_bed_pause();
	client_bed_kill(&p.b);
	pthread_join(t[0], &ret);
	cr_assert_eq((intptr_t)ret, 0, "the armed queue has something");
	pthread_join(t[1], &ret);
	cr_assert_eq((intptr_t)ret, -EIO);
	cr_assert_eq(client_bed_wait(cq).wr_id, 77);
	cr_assert_eq(karst_req_notify_cq(cq, false), 0);
	cr_assert_eq((intptr_t)wait_for_event(ch), -EIO);
	expect_fatal(p.b.ctx);
	cr_assert_eq(karst_destroy_qp(qp), 0);
	cr_assert_eq(karst_destroy_cq(cq), 0);
	cr_assert_eq(karst_destroy_comp_channel(ch), 0);
	cr_assert_eq(karst_destroy_comp_channel(idle), 0);
	pair_down(&p);
}

/* A control request that the engine no longer answers. */
Test(client_death, found_by_a_request)
{
	struct karst_device_attr device;
	struct karst_cqe e;
	struct pair p;

	pair_up(&p, 1);
	client_bed_kill(&p.b);
	cr_assert_eq(karst_query_device(p.b.ctx, &device), -EIO);
	cr_assert_eq(client_bed_to(p.a, KARST_QPS_ERR, 0, 0), -EIO);
	cr_assert_eq(karst_poll_cq(p.b.cq, 1, &e), 0);
	pair_down(&p);
}
