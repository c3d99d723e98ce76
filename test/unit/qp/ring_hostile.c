/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Programs that write invalid values into shared memory: they may lose their own queue pair,
 * nothing else, and what they had posted before is completed.
 */
#include "harness.h"

static void
break_tail(struct karst_wq *wq, uint32_t by)
{
	atomic_store(&wq->sh->tail, wq->tail + by);
}

static const uint32_t impossible[] = {65, 1000, 0x7fffffff, 0x80000000, 0xffffffff};

/* An impossible send tail: the QP fails, another QP is not affected. */
Test(ring_hostile, send_tail)
{
	unsigned int i;

	for (i = 0; i < KARST_DIM(impossible); i++) {
		struct setup s = setup_of(KARST_QPT_RC);
		struct bed *b = bed_open(&s);

		bed_add(b, &s);
		b->s = &b->side[0];
		post(b, RDMA_WRITE, 1, .len = 4);
		expect_pkt(b, RC_WRITE_ONLY, S(0));
		break_tail(&b->s->sq, impossible[i]);
		karst_core_doorbell(b->core, b->s->qpn);
		expect_event(b, QP_FATAL);
		expect_state(b, ERR);
		/* requests that were seen before are flushed, and no others */
		expect_wc(b, 1, WR_FLUSH_ERR);
		expect_no_wc(b);
		cr_assert_eq(count(b, SQ_CORRUPT), 1);
		b->s = &b->side[1];
		post(b, RDMA_WRITE, 2, .len = 4);
		expect_pkt(b, RC_WRITE_ONLY, S(0));
		expect_taken(b, send_pkt(b, RC_ACK, S(0), .aeth = 0x1f000001));
		expect_wc(b, 2, SUCCESS);
		bed_close(b);
	}
}

/* The same in Error, where the queue is flushed. */
Test(ring_hostile, send_tail_in_error)
{
	struct bed *b = bed_rc();

	post(b, RDMA_WRITE, 1, .len = 4);
	post(b, RDMA_WRITE, 2, .len = 4);
	turn(b);
	b->out_head = b->out_tail;
	break_tail(&b->s->sq, 1000);
	cr_assert_eq(bed_to_state(b, KARST_QPS_ERR), 0);
	expect_wc(b, 1, WR_FLUSH_ERR);
	expect_wc(b, 2, WR_FLUSH_ERR);
	cr_assert_eq(count(b, SQ_CORRUPT), 1);
	/* the same corruption, in a later visit */
	karst_core_doorbell(b->core, b->s->qpn);
	turn(b);
	cr_assert_eq(count(b, SQ_CORRUPT), 1);
	bed_close(b);
}

/* UD and UC read the tail in code of their own. */
Test(ring_hostile, send_tail_of_other_types)
{
	static const enum karst_qp_type types[] = {KARST_QPT_UC, KARST_QPT_UD};
	unsigned int i;

	for (i = 0; i < 2; i++) {
		struct setup s = setup_of(types[i]);
		struct bed *b = bed_open(&s);

		break_tail(&b->s->sq, 65);
		karst_core_doorbell(b->core, b->s->qpn);
		expect_event(b, QP_FATAL);
		expect_state(b, ERR);
		turn(b);
		cr_assert_eq(count(b, SQ_CORRUPT), 1);
		bed_close(b);
	}
}

/* A tail that goes back. */
Test(ring_hostile, send_tail_backwards)
{
	struct bed *b = bed_rc();

	post(b, RDMA_WRITE, 1, .len = 4);
	post(b, RDMA_WRITE, 2, .len = 4);
	turn(b);
	b->out_head = b->out_tail;
	break_tail(&b->s->sq, (uint32_t)-1);
	karst_core_doorbell(b->core, b->s->qpn);
	expect_event(b, QP_FATAL);
	expect_wc(b, 1, WR_FLUSH_ERR);
	expect_wc(b, 2, WR_FLUSH_ERR);
	bed_close(b);
}

/* RESET recovers: the ring begins at whatever value the tail has. */
Test(ring_hostile, reset_heals)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b = bed_open(&s);

	break_tail(&b->s->sq, 0x80001234);
	karst_core_doorbell(b->core, b->s->qpn);
	expect_event(b, QP_FATAL);
	cr_assert_eq(bed_to_state(b, KARST_QPS_RESET), 0);
	karst_wq_attach(&b->s->sq, b->s->sq_mem, 64,
		karst_wq_stride(true, s.qp.max_send_sge, s.qp.max_inline));
	bed_bring_up(b, &s, KARST_QPS_RTS);
	post(b, RDMA_WRITE, 1, .len = 4);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_taken(b, send_pkt(b, RC_ACK, S(0), .aeth = 0x1f000001));
	expect_wc(b, 1, SUCCESS);
	/* a corruption after that is another one */
	cr_assert_eq(count(b, SQ_CORRUPT), 1);
	break_tail(&b->s->sq, 65);
	karst_core_doorbell(b->core, b->s->qpn);
	expect_event(b, QP_FATAL);
	cr_assert_eq(count(b, SQ_CORRUPT), 2);
	bed_close(b);
}

/* An impossible receive tail: found when a message needs a receive request; the peer gets no
 * RNR. */
Test(ring_hostile, receive_tail)
{
	unsigned int i;

	for (i = 0; i < KARST_DIM(impossible); i++) {
		struct bed *b = bed_rc();

		post_recv(b, 1, 0, 64);
		expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 4));
		expect_recv(b, 1, SUCCESS);
		break_tail(&b->s->rq, impossible[i]);
		expect_drop(b, RNR, send_pkt(b, RC_SEND_ONLY, R(1), .pay_len = 4, .ackreq = true));
		expect_event(b, QP_FATAL);
		expect_state(b, ERR);
		expect_none(b);
		expect_no_wc(b);
		cr_assert_geq(count(b, RQ_CORRUPT), 1);
		bed_close(b);
	}
}

/* WRITE with immediate needs one, too. */
Test(ring_hostile, receive_tail_write_imm)
{
	struct bed *b = bed_rc();

	break_tail(&b->s->rq, 65);
	expect_drop(b, RNR, send_pkt(b, RC_WRITE_ONLY_IMM, R(0), .ackreq = true));
	expect_event(b, QP_FATAL);
	bed_close(b);
}

/* A shared queue: it gets its event, and the QP that found it fails. */
Test(ring_hostile, srq_tail)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.srq_wr = 8;
	b = bed_open(&s);
	break_tail(&b->srq_wq, 9);
	expect_drop(b, RNR, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 4, .ackreq = true));
	expect_event_of(b, SRQ_ERR, b->srq);
	expect_event(b, QP_FATAL);
	expect_event(b, QP_LAST_WQE_REACHED);
	/* the next QP on it does not make its peer wait for ever */
	bed_add(b, &s);
	expect_drop(b, RNR, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 4, .ackreq = true));
	expect_event(b, QP_FATAL);
	expect_event(b, QP_LAST_WQE_REACHED);
	expect_none(b);
	bed_close(b);
}

/* Every byte value in the fields of a request that define what and how much. */
Test(ring_hostile, garbage_requests)
{
	static const uint8_t flags[] = {0, 0xff, KARST_SEND_INLINE, KARST_SEND_FENCE};
	static const uint16_t nums[] = {0, 1, 4, 5, 128, 129, 0x7fff, 0xffff};
	unsigned int op, f, n;

	for (op = 0; op < 256; op += op < 24 ? 1 : 77) {
		for (f = 0; f < KARST_DIM(flags); f++) {
			for (n = 0; n < KARST_DIM(nums); n++) {
				struct bed *b = bed_rc();
				struct karst_send_wqe *w = bed_slot(b);

				memset(w, 0xff, 128);
				w->wr_id = 5;
				w->opcode = (uint8_t)op;
				w->flags = flags[f];
				w->num = nums[n];
				bed_publish(b, 1);
				turn(b);
				cr_assert_eq(bed_to_state(b, KARST_QPS_ERR), 0);
				bed_forget(b);
				cr_assert_eq(karst_wq_free(&b->s->sq, 64), 64, "op %u %x %u", op,
					flags[f], nums[n]);
				expect_untouched(b, 0, BUF_BYTES);
				bed_close(b);
			}
		}
	}
}

/* SGEs whose lengths add up beyond 32 bits: there is room for any message, and the pieces that it
 * does not reach are not looked at. */
Test(ring_hostile, sums_that_wrap)
{
	struct bed *b = bed_rc();
	struct karst_sge sge[4] = {{VA, 0xffffffff, b->key}, {VA, 0xffffffff, b->key},
		{VA, 2, b->key}, {VA, 4, b->key}};

	post_recv_sge(b, 1, sge, 4);
	expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 4));
	expect_recv(b, 1, SUCCESS);
	expect_untouched(b, 4, 64);
	bed_close(b);
}
