/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* When the RC requester is visited, and how much it may send: doorbells, lingering, budgets. */

#include "harness.h"

/* A doorbell is requested once the queue has been seen empty, not before. */
Test(rc_requester, doorbell)
{
	struct bed *b = bed_rc();
	struct karst_send_wqe *w;
	unsigned int i;

	turn(b);
	for (i = 0; i < 2; i++) {
		w = bed_slot(b);
		memset(w, 0, sizeof(*w));
		w->opcode = KARST_WR_RDMA_WRITE;
		/* one is enough until the engine has looked */
		cr_assert_eq(karst_wq_publish(&b->s->sq, 1), i == 0);
	}
	expect_none(b);
	karst_core_doorbell(b->core, 0xffffffff);
	karst_core_doorbell(b->core, b->s->qpn + 1);
	expect_none(b);
	karst_core_doorbell(b->core, b->s->qpn);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_pkt(b, RC_WRITE_ONLY, S(1));
	expect_none(b);
	w = bed_slot(b);
	memset(w, 0, sizeof(*w));
	cr_assert(karst_wq_publish(&b->s->sq, 1));
	karst_core_doorbell(b->core, b->s->qpn);
	expect_pkt(b, RC_WRITE_ONLY, S(2));
	bed_close(b);
}

static void
post_silently(struct bed *b, bool rings)
{
	struct karst_send_wqe *w = bed_slot(b);

	memset(w, 0, sizeof(*w));
	w->opcode = KARST_WR_RDMA_WRITE;
	cr_assert_eq(karst_wq_publish(&b->s->sq, 1), rings);
}

/* A queue that has become empty is polled for some more turns, in which no doorbell is needed. */
Test(rc_requester, linger)
{
	struct bed *b = bed_rc();
	unsigned int i;

	b->core->linger_turns = 3;
	post_silently(b, true);
	karst_core_doorbell(b->core, b->s->qpn);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	cr_assert_eq(b->core->nlinger, 1);
	for (i = 0; i < 3; i++)
		karst_core_linger(b->core);
	post_silently(b, false);
	karst_core_linger(b->core);
	cr_assert_eq(b->core->nlinger, 0);
	expect_pkt(b, RC_WRITE_ONLY, S(1));
	cr_assert_eq(b->core->nlinger, 1, "and so again");
	for (i = 0; i < 4; i++)
		karst_core_linger(b->core);
	cr_assert_eq(b->core->nlinger, 0);
	expect_none(b);
	post_silently(b, true);
	karst_core_linger(b->core);
	expect_none(b);
	karst_core_doorbell(b->core, b->s->qpn);
	expect_pkt(b, RC_WRITE_ONLY, S(2));
	bed_forget(b);
	bed_close(b);
}

/* The program publishes a request while its queue goes idle, does not see that yet, and does not
 * ring. */
static void
post_unseen(struct bed *b)
{
	uint32_t was = atomic_exchange(&b->s->sq.sh->idle, 0);

	post_silently(b, false);
	atomic_store(&b->s->sq.sh->idle, was);
}

/* Queues that have just gone idle are looked into once more. */
Test(rc_requester, recheck)
{
	struct bed *b = bed_rc();

	post_silently(b, true);
	karst_core_doorbell(b->core, b->s->qpn);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	cr_assert_eq(b->core->nidled, 1);
	post_unseen(b);
	karst_core_recheck(b->core);
	cr_assert_eq(b->core->nidled, 0);
	expect_pkt(b, RC_WRITE_ONLY, S(1));
	cr_assert_eq(b->core->nidled, 1);
	post_unseen(b);
	karst_core_linger(b->core);
	expect_pkt(b, RC_WRITE_ONLY, S(2));
	/* the doorbell rings first */
	post_silently(b, true);
	karst_core_doorbell(b->core, b->s->qpn);
	karst_core_recheck(b->core);
	expect_pkt(b, RC_WRITE_ONLY, S(3));
	/* nothing came */
	karst_core_recheck(b->core);
	expect_none(b);
	post_silently(b, true);
	karst_core_doorbell(b->core, b->s->qpn);
	expect_pkt(b, RC_WRITE_ONLY, S(4));
	cr_assert_eq(b->core->nidled, 1);
	cr_assert_eq(bed_to_state(b, KARST_QPS_RESET), 0);
	cr_assert_eq(b->core->nidled, 0, "a queue pair that is reset is not looked into");
	bed_forget(b);
	bed_close(b);
}

/* Requests that a visit has seen and not started, because its burst was full, are not forgotten
 * while the queue pair waits for its turn or its port: the program was not asked to ring for
 * them. */
Test(rc_requester, linger_with_requests_left)
{
	struct bed *b = bed_rc();
	struct karst_core_qp *qp;
	unsigned int i;

	b->core->linger_turns = 3;
	post_silently(b, true);
	karst_core_doorbell(b->core, b->s->qpn);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	cr_assert_eq(b->core->nlinger, 1);
	post_silently(b, false);
	post_silently(b, false);
	karst_core_activate(b->core, b->s->qp); /* for another reason, such as an ACK that has
						 * arrived */
	cr_assert(turn_once(b, 1, UINT32_MAX), "more than one frame");
	expect_pkt(b, RC_WRITE_ONLY, S(1));
	/* it is in ready[], or parked at a port: not on the core's list */
	while ((qp = karst_core_next_active(b->core)) != NULL)
		cr_assert_eq(qp, b->s->qp);
	for (i = 0; i < 5; i++)
		karst_core_linger(b->core);
	cr_assert_eq(b->core->nlinger, 0);
	karst_core_activate(b->core, b->s->qp);
	expect_pkt(b, RC_WRITE_ONLY, S(2));
	bed_forget(b);
	bed_close(b);
}

/* Only a few queues linger; a queue pair that is destroyed, fails or is reset stops lingering. */
Test(rc_requester, linger_ends)
{
	struct bed *b = bed_rc();

	b->core->linger_turns = 3;
	b->core->nlinger = KARST_DIM(b->core->linger);
	post_silently(b, true);
	karst_core_doorbell(b->core, b->s->qpn);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	b->core->nlinger = 0;
	post_silently(b, true);
	karst_core_doorbell(b->core, b->s->qpn);
	expect_pkt(b, RC_WRITE_ONLY, S(1));
	cr_assert_eq(b->core->nlinger, 1);
	cr_assert_eq(bed_to_state(b, KARST_QPS_ERR), 0);
	turn(b);
	karst_core_linger(b->core);
	cr_assert_eq(b->core->nlinger, 0);
	expect_wc(b, 0, WR_FLUSH_ERR);
	expect_wc(b, 0, WR_FLUSH_ERR);
	bed_close(b);
}

/* A visit stops at its budget of frames or bytes; the next one continues from there. */
Test(rc_requester, budgets)
{
	struct bed *b = bed_rc();

	post(b, SEND, 1, .len = 4 * MTU);
	post(b, RDMA_READ, 2, .len = 4);
	cr_assert(turn_once(b, 1, UINT32_MAX));
	expect_pkt(b, RC_SEND_FIRST, S(0));
	cr_assert(turn_once(b, 64, 1)); /* the last frame may exceed it */
	expect_pkt(b, RC_SEND_MIDDLE, S(1));
	cr_assert(turn_once(b, 64, MTU + 60));
	expect_pkt(b, RC_SEND_MIDDLE, S(2));
	turn_once(b, 1, 4096);
	expect_pkt(b, RC_SEND_LAST, S(3));
	expect_pkt(b, RC_READ_REQUEST, S(4));
	bed_forget(b);
	bed_close(b);
}

/* An unlimited budget stays unlimited even when the burst already holds bytes of another QP. */
Test(rc_requester, budget_does_not_wrap)
{
	struct bed *b = bed_rc();
	uint8_t data[2][KARST_FRAME_MAX];
	struct karst_pkt pkt[2] = {{.data = data[0]}, {.data = data[1]}}, *pkts[] = {pkt, pkt + 1};
	struct karst_seal seals[2];
	struct karst_seg segs[64];
	struct karst_tx_burst burst = {
		.pkts = pkts, .seals = seals, .segs = segs, .max = 2, .max_segs = 64, .bytes = 100};

	post(b, SEND, 1, .len = 4);
	cr_assert_eq(karst_core_next_active(b->core), b->s->qp);
	cr_assert_not(karst_qp_tx(b->core, b->s->qp, &burst, UINT32_MAX));
	cr_assert_eq(burst.n, 1);
	bed_forget(b);
	bed_close(b);
}
