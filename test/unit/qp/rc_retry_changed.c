/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What the RC requester must not believe, and what has changed when it sends again: ghost ACKs,
 * requests rewritten by the program, deregistered regions, local operations that must not be
 * repeated.
 */
#include "harness.h"

/* (Q10): acknowledgements outside of the outstanding PSNs change nothing and are counted. */
Test(rc_retry, q10_ghosts)
{
	struct bed *b = bed_rc();

	expect_drop(b, GHOST_ACK, send_ack(b, S(0), 1));
	post(b, RDMA_WRITE, 1, .len = 2 * MTU);
	expect_write(b, 0, 0, 2);
	expect_drop(b, GHOST_ACK, send_ack(b, S(2), 1));
	expect_drop(b, GHOST_ACK, send_ack(b, S(-1), 1));
	expect_drop(b, GHOST_ACK, send_ack(b, S(0x800000), 1));
	expect_drop(b, GHOST_ACK, send_nak(b, S(2), 0));
	expect_drop(b, GHOST_ACK, send_nak(b, S(-1), 2));
	expect_drop(b, GHOST_ACK, send_pkt(b, RC_ACK, S(5), .aeth = 0x20000000));
	expect_drop(b, UNEXPECTED_RESPONSE, send_pkt(b, RC_READ_RESP_ONLY, S(2), .pay_len = 4));
	expect_drop(b, UNEXPECTED_RESPONSE, send_pkt(b, RC_ATOMIC_ACK, S(9)));
	/* a response inside of the range for which no READ waits */
	expect_drop(b, UNEXPECTED_RESPONSE, send_pkt(b, RC_READ_RESP_ONLY, S(0), .pay_len = 4));
	expect_none(b);
	expect_no_wc(b);
	cr_assert_eq(drops(b, GHOST_ACK), 7);
	cr_assert_eq(drops(b, UNEXPECTED_RESPONSE), 3);
	expect_taken(b, send_ack(b, S(1), 1));
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* (Q10): the same for a reserved syndrome, also in a NAK inside of the range. */
Test(rc_retry, q10_reserved_syndromes)
{
	static const uint8_t bad[] = {0x40, 0x5f, 0x65, 0x7f, 0x80, 0x9f, 0xff, 0xe0, 0xa0, 0xc1};
	struct bed *b = bed_rc();
	unsigned int i;

	post(b, RDMA_WRITE, 1, .len = 1);
	post(b, RDMA_WRITE, 2, .len = 1);
	expect_write(b, 0, 0, 1);
	expect_write(b, 1, 0, 1);
	for (i = 0; i < sizeof(bad); i++) {
		expect_drop(b, BAD_SYNDROME,
			send_pkt(b, RC_ACK, S(1), .aeth = (uint32_t)bad[i] << 24 | 2));
		expect_no_wc(b);
	}
	expect_none(b);
	cr_assert_eq(drops(b, BAD_SYNDROME), sizeof(bad));
	bed_forget(b);
	bed_close(b);
}

/* (Q10, W9): and for packets to a QP that cannot have sent anything. */
Test(rc_retry, q10_before_rts)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.state = KARST_QPS_RTR;
	b = bed_open(&s);
	expect_drop(b, QP_STATE, send_ack(b, S(0), 1));
	bed_close(b);
}

/* The send cursor does not stay at the slot of a local operation behind a late response. */
Test(rc_retry, local_operation_behind_the_cursor)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;
	uint32_t mw;

	s.qp.max_send_wr = 2;
	b = bed_open(&s);
	cr_assert_eq(karst_mw_alloc(b->mem, b->pd, KARST_MEM_MW1, &mw), 0);
	post(b, RDMA_READ, 1, .len = 1);
	bed_bind(b, 2, mw, 0, KARST_ACCESS_REMOTE_READ);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_taken(b, send_nak(b, S(0), 0)); /* the cursor goes back ... */
	/* ... and both complete before it goes on */
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(0), .aeth = 0x1f000001, .pay_len = 1));
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	/* the program may use their slots again */
	post(b, RDMA_WRITE, 3, .len = 1);
	post(b, RDMA_WRITE, 4, .len = 1);
	expect_write(b, 1, 0, 1);
	expect_write(b, 2, 0, 1);
	expect_taken(b, send_ack(b, S(2), 3));
	expect_wc(b, 3, SUCCESS);
	expect_wc(b, 4, SUCCESS);
	bed_close(b);
}

/* Local operations are executed once, however often the requests around them are sent. */
Test(rc_retry, local_operation_is_not_repeated)
{
	struct bed *b = bed_rc();
	uint32_t mw;

	cr_assert_eq(karst_mw_alloc(b->mem, b->pd, KARST_MEM_MW1, &mw), 0);
	post(b, RDMA_WRITE, 1, .len = 1);
	bed_bind(b, 2, mw, 0, KARST_ACCESS_REMOTE_READ);
	post(b, RDMA_WRITE, 3, .len = 1);
	expect_write(b, 0, 0, 1);
	expect_write(b, 1, 0, 1);
	expect_taken(b, send_nak(b, S(0), 0));
	expect_write(b, 0, 0, 1);
	expect_write(b, 1, 0, 1);
	expect_taken(b, send_ack(b, S(1), 2));
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	cr_assert_eq(karst_mem_query(b->mem, b->wc.imm, &(struct karst_mr_attr){0}), 0);
	expect_wc(b, 3, SUCCESS);
	bed_close(b);
}

/* The program has changed the second of two outstanding WRITEs; the peer requests both again. */
static struct bed *
bed_changed(void)
{
	struct bed *b = bed_rc();
	struct karst_send_wqe *w;

	post(b, RDMA_WRITE, 1, .len = 1);
	w = bed_slot(b);
	post(b, RDMA_WRITE, 2, .len = 1);
	expect_write(b, 0, 0, 1);
	expect_write(b, 1, 0, 1);
	w->sge[0].len = 5;
	expect_taken(b, send_nak(b, S(0), 0));
	expect_write(b, 0, 0, 1);
	expect_none(b);
	return b;
}

/* The program changes an outstanding request: its own QP fails, when that request is next. */
Test(rc_retry, request_changed_by_the_program)
{
	struct bed *b = bed_changed();

	cr_assert_eq(count(b, SQ_CORRUPT), 1);
	/* it is found again in each visit until the request before it is complete */
	karst_core_doorbell(b->core, b->s->qpn);
	expect_none(b);
	cr_assert_eq(count(b, SQ_CORRUPT), 1);
	expect_taken(b, send_nak(b, S(1), 0));
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, LOC_QP_OP_ERR);
	expect_state(b, ERR);
	bed_close(b);
}

/* The request had arrived all the same: the acknowledgement comes before the failure takes effect.
 * A request that was never posted must not complete. */
Test(rc_retry, changed_request_is_acknowledged_after_all)
{
	struct bed *b = bed_changed();

	expect_taken(b, send_ack(b, S(1), 2));
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	expect_no_wc(b);
	expect_state(b, RTS);
	cr_assert_eq(karst_wq_free(&b->s->sq, 64), 64);
	post(b, RDMA_WRITE, 3, .len = 1);
	expect_write(b, 2, 0, 1);
	expect_taken(b, send_ack(b, S(2), 3));
	expect_wc(b, 3, SUCCESS);
	bed_close(b);
}

/* Memory is deregistered under a request that must be sent again. */
Test(rc_retry, source_deregistered)
{
	struct bed *b = bed_rc();
	uint32_t key = bed_region(b, 0, 4096, KARST_ACCESS_LOCAL_WRITE);

	post(b, RDMA_WRITE, 1, .len = 2 * MTU, .lkey = key);
	expect_write(b, 0, 0, 2);
	bed_dereg(b, key);
	expect_taken(b, send_nak(b, S(1), 0));
	expect_wc(b, 1, LOC_PROT_ERR);
	bed_close(b);
}

/* And under a READ that is being answered. */
Test(rc_retry, sink_deregistered)
{
	struct bed *b = bed_rc();
	uint32_t key = bed_region(b, 0, 4096, KARST_ACCESS_LOCAL_WRITE);

	post(b, RDMA_READ, 1, .len = 2 * MTU, .lkey = key);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_taken(b, send_pkt(b, RC_READ_RESP_FIRST, S(0), .pay_len = 256));
	bed_dereg(b, key);
	expect_taken(b, send_pkt(b, RC_READ_RESP_LAST, S(1), .pay_len = 256));
	expect_wc(b, 1, LOC_PROT_ERR);
	expect_untouched(b, 256, 256);
	bed_close(b);
}

/* The program changes a READ or an atomic while the response is under way. */
Test(rc_retry, sink_changed_by_the_program)
{
	static const enum karst_wr_opcode ops[] = {KARST_WR_RDMA_READ, KARST_WR_ATOMIC_FAA};
	unsigned int i;

	for (i = 0; i < KARST_DIM(ops); i++) {
		struct bed *b = bed_rc();
		struct karst_send_wqe *w = bed_slot(b);

		bed_post(b, &(struct wr){.op = ops[i], .id = 1, .len = 8});
		turn(b);
		b->out_head = b->out_tail;
		if (i == 0) {
			w->sge[0].len = 9;
			expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(0), .pay_len = 8));
		} else {
			w->opcode = KARST_WR_ATOMIC_CAS;
			expect_taken(b, send_pkt(b, RC_ATOMIC_ACK, S(0)));
		}
		expect_wc(b, 1, LOC_QP_OP_ERR);
		expect_untouched(b, 0, 64);
		bed_close(b);
	}
}

/* ATOMIC WRITE whose source is deregistered before it can be sent again. */
Test(rc_retry, atomic_write_source_deregistered)
{
	struct bed *b = bed_rc();
	uint32_t key = bed_region(b, 0, 64, 0);

	post(b, ATOMIC_WRITE, 1, .len = 8, .lkey = key);
	expect_pkt(b, RC_ATOMIC_WRITE, S(0));
	bed_dereg(b, key);
	expect_taken(b, send_nak(b, S(0), 0));
	expect_wc(b, 1, LOC_PROT_ERR);
	bed_close(b);
}
