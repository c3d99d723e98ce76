/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Shared receive queues: two QPs, one queue; limit events; the last work request. */
#include "harness.h"

static struct bed *
bed_srq(uint32_t limit, struct setup *s)
{
	struct bed *b;

	*s = setup_of(KARST_QPT_RC);
	s->srq_wr = 8;
	s->srq_limit = limit;
	b = bed_open(s);
	bed_add(b, s);
	return b;
}

static enum karst_drop
send_to(struct bed *b, unsigned int side, uint32_t psn, uint8_t opcode, uint16_t len)
{
	struct karst_ib_hdrs ib = {
		.opcode = opcode, .psn = psn, .pay_len = len, .dqpn = b->side[side].qpn};

	return bed_rx(b, &ib);
}

/* First come, first served; messages end in another order than they began. */
Test(srq, shared)
{
	struct setup s;
	struct bed *b = bed_srq(0, &s);

	post_recv(b, 1, 0, 1024);
	post_recv(b, 2, 1024, 1024);
	post_recv(b, 3, 2048, 1024);
	expect_taken(b, send_to(b, 0, R(0), KARST_RC_SEND_FIRST, 256));
	expect_taken(b, send_to(b, 1, R(0), KARST_RC_SEND_FIRST, 256));
	expect_taken(b, send_to(b, 1, R(1), KARST_RC_SEND_LAST, 4));
	expect_recv(b, 2, SUCCESS);
	cr_assert_eq(b->wc.qpn, b->side[1].qpn);
	expect_taken(b, send_to(b, 0, R(1), KARST_RC_SEND_LAST, 8));
	expect_recv(b, 1, SUCCESS);
	cr_assert_eq(b->wc.qpn, b->side[0].qpn);
	cr_assert_eq(b->wc.byte_len, 264);
	expect_taken(b, send_to(b, 1, R(2), KARST_RC_SEND_ONLY, 4));
	expect_recv(b, 3, SUCCESS);
	/* (R8): empty for both */
	expect_drop(b, RNR, send_to(b, 0, R(2), KARST_RC_SEND_ONLY, 4));
	expect_rnr(b, R(2), 12, 1);
	expect_drop(b, RNR, send_to(b, 1, R(3), KARST_RC_SEND_ONLY, 4));
	expect_rnr(b, R(3), 12, 2);
	cr_assert_eq(karst_wq_free(&b->srq_wq, 8), 8);
	cr_assert_eq(karst_srq_destroy(b->core, b->srq), -EBUSY);
	cr_assert_eq(karst_srq_user(b->srq), b);
	bed_close(b);
}

/* The event comes once, when fewer than the limit are left; then it must be armed anew. */
Test(srq, limit)
{
	struct setup s;
	struct bed *b = bed_srq(3, &s);
	uint32_t i;

	for (i = 0; i < 4; i++)
		post_recv(b, i, 0, 64);
	expect_taken(b, send_to(b, 0, R(0), KARST_RC_SEND_ONLY, 4));
	expect_recv(b, 0, SUCCESS);
	expect_no_event(b); /* three are left */
	expect_taken(b, send_to(b, 0, R(1), KARST_RC_SEND_ONLY, 4));
	expect_recv(b, 1, SUCCESS);
	expect_event_of(b, SRQ_LIMIT_REACHED, b->srq);
	cr_assert_eq(karst_srq_limit(b->srq), 0);
	expect_taken(b, send_to(b, 1, R(0), KARST_RC_SEND_ONLY, 4));
	expect_recv(b, 2, SUCCESS);
	expect_no_event(b);
	cr_assert_eq(karst_srq_set_limit(b->core, b->srq, 9), -EINVAL);
	cr_assert_eq(karst_srq_set_limit(b->core, b->srq, 1), 0);
	cr_assert_eq(karst_srq_limit(b->srq), 1);
	expect_no_event(b); /* one is left */
	expect_taken(b, send_to(b, 1, R(1), KARST_RC_SEND_ONLY, 4));
	expect_recv(b, 3, SUCCESS);
	expect_event_of(b, SRQ_LIMIT_REACHED, b->srq);
	/* the limit is above what there is: the event comes at once */
	cr_assert_eq(karst_srq_set_limit(b->core, b->srq, 2), 0);
	expect_event_of(b, SRQ_LIMIT_REACHED, b->srq);
	bed_close(b);
}

/* Receives that were posted since the queue was last looked at count. */
Test(srq, limit_counts_new_ones)
{
	struct setup s;
	struct bed *b = bed_srq(2, &s);
	uint32_t i;

	post_recv(b, 0, 0, 64);
	post_recv(b, 1, 0, 64);
	expect_taken(b, send_to(b, 0, R(0), KARST_RC_SEND_ONLY, 4));
	expect_event_of(b, SRQ_LIMIT_REACHED, b->srq);
	cr_assert_eq(karst_srq_set_limit(b->core, b->srq, 0), 0);
	for (i = 2; i < 6; i++)
		post_recv(b, i, 0, 64);
	cr_assert_eq(karst_srq_set_limit(b->core, b->srq, 3), 0);
	expect_taken(b, send_to(b, 0, R(1), KARST_RC_SEND_ONLY, 4));
	expect_no_event(b);
	bed_forget(b);
	bed_close(b);
}

/* In Error: the QP's receives are flushed, the queue keeps its own, and LAST_WQE_REACHED comes. */
Test(srq, last_wqe_reached)
{
	struct setup s;
	struct bed *b = bed_srq(0, &s);

	post_recv(b, 1, 0, 1024);
	post_recv(b, 2, 0, 1024);
	expect_taken(b, send_to(b, 1, R(0), KARST_RC_SEND_FIRST, 256));
	cr_assert_eq(bed_to_state(b, KARST_QPS_ERR), 0);
	expect_recv(b, 1, WR_FLUSH_ERR);
	expect_event(b, QP_LAST_WQE_REACHED);
	karst_core_doorbell(b->core, b->s->qpn);
	expect_no_event(b);
	expect_no_wc(b);
	b->s = &b->side[0];
	expect_taken(b, send_to(b, 0, R(0), KARST_RC_SEND_ONLY, 4));
	expect_recv(b, 2, SUCCESS);
	bed_close(b);
}

/* (U1): UD and UC take from a shared queue as well. */
Test(srq, u1_other_types)
{
	static const enum karst_qp_type types[] = {KARST_QPT_UC, KARST_QPT_UD};
	unsigned int i;

	for (i = 0; i < 2; i++) {
		struct setup s = setup_of(types[i]);
		struct bed *b;

		s.srq_wr = 2;
		b = bed_open(&s);
		post_recv(b, 1, 0, 64);
		if (types[i] == KARST_QPT_UC)
			expect_taken(b, send_pkt(b, UC_SEND_ONLY, R(0), .pay_len = 4));
		else
			expect_taken(
				b, send_pkt(b, UD_SEND_ONLY, R(0), .qkey = 0x1234, .pay_len = 4));
		expect_recv(b, 1, SUCCESS);
		bed_close(b);
	}
}

/* What cannot be created. */
Test(srq, create)
{
	struct setup s;
	struct bed *b = bed_srq(0, &s);
	struct karst_srq_init good = {
		.pd = b->pd, .shared = b->side[0].sq_mem, .max_wr = 8, .max_sge = 1};
	struct karst_srq_init bad;
	void *mem = aligned_alloc(64, (karst_srq_object_bytes() + 63) & ~63ul);
	struct karst_core_srq *srq;
	struct karst_qp_init init = s.qp;

	bad = good;
	bad.shared = NULL;
	cr_assert_eq(karst_srq_create(b->core, mem, &bad, &srq), -EINVAL);
	bad = good;
	bad.max_wr = 6;
	cr_assert_eq(karst_srq_create(b->core, mem, &bad, &srq), -EINVAL);
	bad = good;
	bad.max_sge = 0;
	cr_assert_eq(karst_srq_create(b->core, mem, &bad, &srq), -EINVAL);
	bad = good;
	bad.limit = 9;
	cr_assert_eq(karst_srq_create(b->core, mem, &bad, &srq), -EINVAL);
	free(mem);
	/* a QP of any PD may use it, but no QP with a receive queue of its own */
	init.send_cq = b->scq;
	init.recv_cq = b->rcq;
	init.sq_shared = b->side[0].sq_mem;
	init.srq = b->srq;
	init.pd = b->pd + 1;
	cr_assert_neq(karst_qp_bytes(&init), 0);
	init.rq_shared = b->side[0].sq_mem;
	cr_assert_eq(karst_qp_bytes(&init), 0);
	bed_close(b);
}

/* Queue and QP may be of two protection domains, as with adapters: receives are checked against the
 * queue's, keys from the peer against the QP's. */
Test(srq, of_another_protection_domain)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct karst_sge sge = {VA, 256, 0};
	struct bed *b;

	s.srq_wr = 8;
	s.srq_own_pd = true;
	b = bed_open(&s);
	cr_assert_neq(b->srq_pd, b->pd);
	cr_assert_eq(karst_mr_reg(b->mem, b->srq_pd, b->buf, VA, 4096, KARST_ACCESS_LOCAL_WRITE,
			     &sge.lkey),
		0);
	post_recv_sge(b, 1, &sge, 1);
	expect_taken(b, send_to(b, 0, R(0), KARST_RC_SEND_ONLY, 100));
	expect_recv(b, 1, SUCCESS);
	expect_mem(b, 0, 0, 100);
	expect_taken(b,
		send_pkt(b, RC_WRITE_ONLY, R(1), .va = VA + 8192, .rkey = b->key, .dma_len = 8,
			.pay_len = 8));
	expect_mem(b, 8192, 0, 8);
	/* a key of the QP's domain is not valid in the queue's */
	post_recv(b, 2, 0, 256);
	expect_drop(b, REQUEST, send_to(b, 0, R(2), KARST_RC_SEND_ONLY, 100));
	expect_nak(b, R(2), REM_OP, 2);
	expect_recv(b, 2, LOC_PROT_ERR);
	bed_forget(b);
	bed_close(b);
}
