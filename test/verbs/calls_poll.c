/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Empty polls, which yield the processor to other threads.  A completion that arrives while those
 * run must be returned by the poll that yielded: the program may next find that its peer has closed
 * the connection, and destroy the queue pair with the completions that it has not seen.
 *
 * The provider calls this program's sched_yield(), because a program's symbols take precedence over
 * a library's.
 */
#include "calls_bed.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

/* More than enough: the provider yields after at most 255 empty polls. */
#define POLLS 100000u

/* Not NULL: during the next yield a message to the second queue pair arrives. */
static struct rig *coming;

int
sched_yield(void)
{
	struct rig *r = coming;

	coming = NULL;
	if (r == NULL)
		return (int)syscall(SYS_sched_yield);
	EQ(post_recv(r, r->qp[1], 7, 0, 64), 0);
	EQ(post_send(r, r->qp[0], 8, 64, 8, 0), 0);
	/* the SEND is acknowledged, so its receive has completed */
	EQ(wait_for(r->cq).wr_id, 8);
	return 0;
}

/* Polls with ibv_poll_cq().  @return completions of the poll during which the message came */
static int
poll_plain(struct rig *r, struct ibv_cq_ex *cq, uint64_t *wr_id)
{
	struct ibv_wc wc;
	unsigned int i;
	int n = 0;

	coming = r;
	for (i = 0; i < POLLS && coming != NULL; i++)
		n = ibv_poll_cq(ibv_cq_ex_to_cq(cq), 1, &wc);
	CHECK(coming == NULL, "no offer in %u polls", i);
	if (n == 1)
		*wr_id = wc.wr_id;
	return n;
}

/* The same with ibv_start_poll(). */
static int
poll_extended(struct rig *r, struct ibv_cq_ex *cq, uint64_t *wr_id)
{
	struct ibv_poll_cq_attr attr = {0};
	int ret = ENOENT;
	unsigned int i;

	coming = r;
	for (i = 0; i < POLLS && coming != NULL; i++)
		ret = ibv_start_poll(cq, &attr);
	CHECK(coming == NULL, "no offer in %u polls", i);
	if (ret != 0)
		return 0;
	*wr_id = cq->wr_id;
	ibv_end_poll(cq);
	return 1;
}

void
polls_look_again(void)
{
	static int (*const poll[])(struct rig *, struct ibv_cq_ex *, uint64_t *) = {
		poll_plain, poll_extended};
	struct ibv_cq_init_attr_ex init = {.cqe = 16};
	struct ibv_cq *senders;
	struct ibv_cq_ex *cq;
	uint64_t wr_id = 0;
	struct rig r;
	unsigned int i;

	rig_up(&r);
	MUST((cq = ibv_create_cq_ex(r.ctx, &init)) != NULL);
	senders = r.cq;
	r.qp[0] = make_qp(&r, IBV_QPT_RC, NULL);
	r.cq = ibv_cq_ex_to_cq(cq);
	r.qp[1] = make_qp(&r, IBV_QPT_RC, NULL);
	r.cq = senders;
	rig_link(&r);
	for (i = 0; i < sizeof(poll) / sizeof(poll[0]); i++) {
		EQ(poll[i](&r, cq, &wr_id), 1);
		EQ(wr_id, 7);
		wr_id = 0;
		/* the next poll, of either kind, does not return the completion again */
		if (i == 0)
			EQ(ibv_poll_cq(ibv_cq_ex_to_cq(cq), 1, &(struct ibv_wc){0}), 0);
	}
	for (i = 0; i < 2; i++) {
		EQ(ibv_destroy_qp(r.qp[i]), 0);
		r.qp[i] = NULL;
	}
	EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	rig_down(&r);
}
