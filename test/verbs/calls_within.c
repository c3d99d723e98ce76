/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* A program changes a completion queue between ibv_start_poll() and ibv_end_poll(): in reaction to
 * a completion it destroys or resets a queue pair, or resizes the queue. */
#include "calls_bed.h"

#include <pthread.h>
#include <unistd.h>

#define WITHIN_MESSAGES 4u

/* Two connections.  Their receivers have completions in @ex, their senders in r.cq. */
struct within {
	struct rig r, other;
	struct ibv_cq_ex *ex;
	uint64_t stamp;
};

static void
connect_pair(struct within *w, struct rig *pair)
{
	struct ibv_cq *senders = w->r.cq;

	*pair = w->r;
	pair->qp[0] = make_qp(pair, IBV_QPT_RC, NULL);
	pair->cq = ibv_cq_ex_to_cq(w->ex);
	pair->qp[1] = make_qp(pair, IBV_QPT_RC, NULL);
	pair->cq = senders;
	rig_link(pair);
}

static void
complete_message(struct rig *r, uint64_t wr_id)
{
	EQ(post_recv(r, r->qp[1], wr_id, 0, 64), 0);
	EQ(post_send(r, r->qp[0], wr_id, 64, 8, 0), 0);
	/* the SEND is acknowledged, so its receive has completed */
	EQ(wait_for(r->cq).wr_id, wr_id);
}

/* Creates completions 100, 200, 101, 201, and so on; the hundreds stand for the queue pair. */
static void
within_up(struct within *w, bool single)
{
	struct ibv_cq_init_attr_ex init = {
		.cqe = 64,
		.wc_flags = IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = single ? IBV_CREATE_CQ_ATTR_SINGLE_THREADED : 0,
	};
	unsigned int i;

	rig_up(&w->r);
	MUST((w->ex = ibv_create_cq_ex(w->r.ctx, &init)) != NULL);
	connect_pair(w, &w->other);
	connect_pair(w, &w->r);
	for (i = 0; i < WITHIN_MESSAGES; i++) {
		complete_message(&w->other, 100 + i);
		complete_message(&w->r, 200 + i);
	}
	alarm(PATIENCE_S);
}

static void
within_down(struct within *w)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		if (w->other.qp[i] != NULL)
			EQ(ibv_destroy_qp(w->other.qp[i]), 0);
		EQ(ibv_destroy_qp(w->r.qp[i]), 0);
		w->r.qp[i] = NULL;
	}
	EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(w->ex)), 0);
	alarm(0);
	rig_down(&w->r);
}

/* Reads the first three completions; the poll is then at 101. */
static void
poll_begins(struct within *w)
{
	struct ibv_poll_cq_attr attr = {0};

	MUST(ibv_start_poll(w->ex, &attr) == 0);
	EQ(w->ex->wr_id, 100);
	EQ(ibv_next_poll(w->ex), 0);
	EQ(w->ex->wr_id, 200);
	EQ(ibv_next_poll(w->ex), 0);
	EQ(w->ex->wr_id, 101);
	w->stamp = ibv_wc_read_completion_ts(w->ex);
}

/* Checks that completion 101 can still be read. */
static void
poll_stands(struct within *w, uint32_t qp_num)
{
	EQ(w->ex->wr_id, 101);
	EQ(ibv_wc_read_opcode(w->ex), IBV_WC_RECV);
	EQ(ibv_wc_read_qp_num(w->ex), qp_num);
	EQ(ibv_wc_read_completion_ts(w->ex), w->stamp);
}

/* Checks that the next completion is @wr_id, in the poll that is at 101 or in another poll. */
static void
poll_goes_on(struct within *w, bool in_another, uint64_t wr_id)
{
	struct ibv_poll_cq_attr attr = {0};

	if (in_another) {
		ibv_end_poll(w->ex);
		MUST(ibv_start_poll(w->ex, &attr) == 0);
	} else {
		MUST(ibv_next_poll(w->ex) == 0);
	}
	EQ(w->ex->wr_id, wr_id);
}

static void
poll_ends(struct within *w)
{
	struct ibv_wc wc;

	EQ(ibv_next_poll(w->ex), ENOENT);
	ibv_end_poll(w->ex);
	EQ(ibv_poll_cq(ibv_cq_ex_to_cq(w->ex), 1, &wc), 0);
	complete_message(&w->r, 300);
	EQ(wait_for(ibv_cq_ex_to_cq(w->ex)).wr_id, 300);
}

/* Destroys or resets a queue pair during a poll: its completions are removed, except for the one
 * that is being read; those of the other queue pair stay. */
static void
one_qp_goes(bool single, bool reset, bool in_another)
{
	struct ibv_qp_attr to_reset = {.qp_state = IBV_QPS_RESET};
	struct within w;
	uint32_t qp_num;
	unsigned int i;

	within_up(&w, single);
	qp_num = w.other.qp[1]->qp_num;
	poll_begins(&w);
	if (reset) {
		EQ(ibv_modify_qp(w.other.qp[1], &to_reset, IBV_QP_STATE), 0);
	} else {
		EQ(ibv_destroy_qp(w.other.qp[1]), 0);
		w.other.qp[1] = NULL;
	}
	poll_stands(&w, qp_num);
	poll_goes_on(&w, in_another, 201);
	for (i = 2; i < WITHIN_MESSAGES; i++)
		poll_goes_on(&w, false, 200 + i);
	poll_ends(&w);
	within_down(&w);
}

void
queue_pairs_go_within_a_poll(void)
{
	unsigned int i;

	for (i = 0; i < 8; i++)
		one_qp_goes(i & 1, i & 2, i & 4);
}

void
resized_within_a_poll(void)
{
	unsigned int i, j;
	struct within w;

	for (i = 0; i < 4; i++) {
		within_up(&w, i & 1);
		poll_begins(&w);
		EQ(ibv_resize_cq(ibv_cq_ex_to_cq(w.ex), 500), 0);
		poll_stands(&w, w.other.qp[1]->qp_num);
		poll_goes_on(&w, i & 2, 201);
		for (j = 2; j < WITHIN_MESSAGES; j++) {
			poll_goes_on(&w, false, 100 + j);
			poll_goes_on(&w, false, 200 + j);
		}
		poll_ends(&w);
		within_down(&w);
	}
}

/* --- two threads, each within a poll of a queue that the other's change needs --- */

enum change { DESTROY, RESET, RESIZE };

struct side {
	pthread_t thread;
	pthread_barrier_t *both;
	enum change change;
	struct ibv_cq_ex *ex, *others; /* that this thread polls, that the other one polls */
	struct ibv_qp **qp;
	uint64_t wr_id; /* of the first completion of ex */
};

static void
change_something(struct side *s)
{
	struct ibv_qp_attr to_reset = {.qp_state = IBV_QPS_RESET};

	switch (s->change) {
	case DESTROY:
		EQ(ibv_destroy_qp(*s->qp), 0);
		*s->qp = NULL;
		break;
	case RESET:
		EQ(ibv_modify_qp(*s->qp, &to_reset, IBV_QP_STATE), 0);
		break;
	case RESIZE:
		EQ(ibv_resize_cq(ibv_cq_ex_to_cq(s->others), 500), 0);
		break;
	}
}

static void *
change_within_a_poll(void *arg)
{
	struct ibv_poll_cq_attr attr = {0};
	struct side *s = arg;
	uint32_t qp_num;
	int ret;

	while ((ret = ibv_start_poll(s->ex, &attr)) == ENOENT)
		;
	MUST(ret == 0);
	qp_num = ibv_wc_read_qp_num(s->ex);
	pthread_barrier_wait(s->both);
	change_something(s);
	/* the completion that is being read is kept */
	EQ(s->ex->status, IBV_WC_SUCCESS);
	EQ(s->ex->wr_id, s->wr_id);
	EQ(ibv_wc_read_qp_num(s->ex), qp_num);
	while ((ret = ibv_next_poll(s->ex)) == ENOENT && s->change == RESIZE)
		;
	EQ(ret, s->change == RESIZE ? 0 : ENOENT);
	if (ret == 0)
		EQ(s->ex->wr_id, s->wr_id + 1);
	ibv_end_poll(s->ex);
	return NULL;
}

/* The SENDs of both queue pairs complete in one queue, and the receives in another. */
static void
two_threads_change(enum change change)
{
	struct ibv_cq_init_attr_ex init = {.cqe = 64, .wc_flags = IBV_WC_EX_WITH_QP_NUM};
	struct side side[2] = {{.change = change, .wr_id = 11}, {.change = change, .wr_id = 20}};
	pthread_barrier_t both;
	unsigned int i;
	struct rig r;

	rig_up(&r);
	alarm(PATIENCE_S);
	MUST(pthread_barrier_init(&both, NULL, 2) == 0);
	for (i = 0; i < 2; i++)
		MUST((side[i].ex = ibv_create_cq_ex(r.ctx, &init)) != NULL);
	for (i = 0; i < 2; i++) {
		struct ibv_qp_init_attr of = {
			.send_cq = ibv_cq_ex_to_cq(side[0].ex),
			.recv_cq = ibv_cq_ex_to_cq(side[1].ex),
			.cap = {.max_send_wr = 4,
				.max_recv_wr = 4,
				.max_send_sge = 1,
				.max_recv_sge = 1},
			.qp_type = IBV_QPT_RC,
		};

		MUST((r.qp[i] = ibv_create_qp(r.pd, &of)) != NULL);
		side[i].both = &both;
		side[i].others = side[!i].ex;
		side[i].qp = &r.qp[i];
	}
	rig_link(&r);
	for (i = 0; i < 3; i++) {
		EQ(post_recv(&r, r.qp[1], 20 + i, 0, 64), 0);
		EQ(post_send(&r, r.qp[0], 10 + i, 64, 8, 0), 0);
	}
	/* the SEND is acknowledged, so its receive has completed */
	EQ(wait_for(ibv_cq_ex_to_cq(side[0].ex)).wr_id, 10);
	for (i = 0; i < 2; i++)
		MUST(pthread_create(&side[i].thread, NULL, change_within_a_poll, &side[i]) == 0);
	for (i = 0; i < 2; i++)
		pthread_join(side[i].thread, NULL);
	for (i = 0; i < 2; i++) {
		if (r.qp[i] != NULL)
			EQ(ibv_destroy_qp(r.qp[i]), 0);
		r.qp[i] = NULL;
	}
	for (i = 0; i < 2; i++) {
		EQ(ibv_poll_cq(ibv_cq_ex_to_cq(side[i].ex), 1, &(struct ibv_wc){0}), 0);
		EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(side[i].ex)), 0);
	}
	pthread_barrier_destroy(&both);
	alarm(0);
	rig_down(&r);
}

/* Neither thread waits until the other one has ended its poll. */
void
changed_by_two_threads_within_polls(void)
{
	two_threads_change(DESTROY);
	two_threads_change(RESET);
	two_threads_change(RESIZE);
}
