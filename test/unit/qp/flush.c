/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* States ERR, SQD and SQE: what is flushed, drained, resumed, reset. */
#include "harness.h"

/* Both queues, requests started or not, in order; signaled or not. */
Test(flush, order)
{
	struct bed *b = bed_rc();
	uint32_t i;

	for (i = 0; i < 20; i++)
		post_recv(b, 100 + i, 0, 64);
	for (i = 0; i < 20; i++)
		post(b, RDMA_READ, i, .len = 8, .quiet = true); /* four may be started */
	turn(b);
	b->out_head = b->out_tail;
	cr_assert_eq(bed_to_state(b, KARST_QPS_ERR), 0);
	for (i = 0; i < 20; i++)
		expect_wc(b, i, WR_FLUSH_ERR);
	for (i = 0; i < 20; i++)
		expect_recv(b, 100 + i, WR_FLUSH_ERR);
	expect_no_event(b); /* the program asked for it */
	bed_close(b);
}

/* A queue longer than one visit's budget, posted in state ERR. */
Test(flush, posted_in_error)
{
	struct bed *b = bed_rc();
	uint32_t i, round;

	cr_assert_eq(bed_to_state(b, KARST_QPS_ERR), 0);
	for (round = 0; round < 3; round++) {
		for (i = 0; i < 64; i++) {
			post_recv(b, i, 0, 1);
			post(b, SEND, i, .len = 1);
		}
		for (i = 0; i < 64; i++) {
			expect_wc(b, i, WR_FLUSH_ERR);
			expect_recv(b, i, WR_FLUSH_ERR);
		}
	}
	bed_close(b);
}

/* When a message has been partly received, its receive request is flushed, too. */
Test(flush, receive_in_progress)
{
	struct bed *b = bed_rc();

	post_recv(b, 1, 0, 1024);
	post_recv(b, 2, 0, 1024);
	expect_taken(b, send_pkt(b, RC_SEND_FIRST, R(0), .pay_len = 256));
	cr_assert_eq(bed_to_state(b, KARST_QPS_ERR), 0);
	expect_recv(b, 1, WR_FLUSH_ERR);
	expect_recv(b, 2, WR_FLUSH_ERR);
	bed_close(b);
}

/* Responses that are due when the program moves the QP to ERR are not sent. */
Test(flush, nothing_is_sent_any_more)
{
	struct bed *b = bed_rc();

	expect_taken(b, send_pkt(b, RC_READ_REQUEST, R(0), .va = VA, .rkey = b->key, .dma_len = 8));
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(1), .ackreq = true));
	post(b, RDMA_WRITE, 1, .len = 1);
	cr_assert_eq(bed_to_state(b, KARST_QPS_ERR), 0);
	expect_none(b);
	expect_wc(b, 1, WR_FLUSH_ERR);
	bed_close(b);
}

/* RESET discards everything without completions, and the QP can be used again. */
Test(flush, reset_and_again)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b = bed_open(&s);
	uint32_t i;

	for (i = 0; i < 5; i++) {
		post_recv(b, 1, 0, 300);
		post(b, RDMA_WRITE, 2, .len = 300);
		post(b, RDMA_READ, 3, .len = 8);
		expect_pkt(b, RC_WRITE_FIRST, S(0));
		expect_pkt(b, RC_WRITE_LAST, S(1));
		expect_pkt(b, RC_READ_REQUEST, S(2));
		/* half a message, a response that is due, a gap */
		expect_taken(b, send_pkt(b, RC_FETCH_ADD, R(0), .va = VA, .rkey = b->key));
		expect_taken(b, send_pkt(b, RC_SEND_FIRST, R(1), .pay_len = 256));
		expect_drop(b, SEQUENCE, send_pkt(b, RC_SEND_LAST, R(3), .pay_len = 4));
		if (i & 1)
			bed_forget(b);
		cr_assert_eq(bed_to_state(b, KARST_QPS_RESET), 0);
		advance_time(b, 1000 * MS);
		expect_none(b);
		expect_drop(b, QP_STATE, send_pkt(b, RC_WRITE_ONLY, R(0)));
		cr_assert_eq(karst_wq_free(&b->s->sq, 64), 64);
		cr_assert_eq(karst_wq_free(&b->s->rq, 64), 64);
		bed_bring_up(b, &s, KARST_QPS_RTS);
		/* PSNs, MSN and the replay ring start from the beginning */
		expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
		expect_ack(b, R(0), 1);
		expect_drop(b, DUPLICATE, send_pkt(b, RC_FETCH_ADD, R(-1), .rkey = b->key));
		cr_assert_eq(bed_to_state(b, KARST_QPS_RESET), 0);
		bed_bring_up(b, &s, KARST_QPS_RTS);
	}
	bed_close(b);
}

/* A thread that posts may be overtaken by one that resets.  A program that has rung does not ring
 * again until the queue was looked at, so the core looks at it when the QP is ready. */
Test(flush, rung_in_reset)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b = bed_open(&s);

	cr_assert_eq(bed_to_state(b, KARST_QPS_RESET), 0);
	post(b, RDMA_WRITE, 1, .len = 1);
	expect_none(b);
	bed_bring_up(b, &s, KARST_QPS_RTS);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	post(b, RDMA_WRITE, 2, .len = 1);
	expect_pkt(b, RC_WRITE_ONLY, S(1));
	bed_forget(b);
	bed_close(b);
}

/* SQD: requests that were started are finished, no others are started, the event tells when; then
 * the queue resumes. */
Test(flush, drain)
{
	struct karst_core_qp_attr attr = {.qp_state = KARST_QPS_SQD, .en_sqd_async_notify = 1}, is;
	struct bed *b = bed_rc();

	post(b, RDMA_WRITE, 1, .len = 2 * MTU);
	turn_once(b, 1, UINT32_MAX);
	expect_pkt(b, RC_WRITE_FIRST, S(0));
	post(b, RDMA_WRITE, 2, .len = 1);
	cr_assert_eq(bed_modify(b, &attr, KARST_QP_STATE | KARST_QP_EN_SQD_ASYNC_NOTIFY), 0);
	expect_pkt(b, RC_WRITE_LAST, S(1));
	expect_none(b);
	/* (Q6): the timer still runs */
	advance_time(b, 4 * (4096ull << 10));
	expect_pkt(b, RC_WRITE_FIRST, S(0));
	expect_pkt(b, RC_WRITE_LAST, S(1));
	expect_no_event(b);
	karst_qp_query(b->s->qp, &is);
	cr_assert(is.sq_draining);
	ack(b, S(1), 1);
	expect_wc(b, 1, SUCCESS);
	expect_event(b, SQ_DRAINED);
	karst_qp_query(b->s->qp, &is);
	cr_assert_not(is.sq_draining);
	post(b, RDMA_WRITE, 3, .len = 1);
	expect_none(b);
	attr.qp_state = KARST_QPS_RTS;
	cr_assert_eq(bed_modify(b, &attr, KARST_QP_STATE), 0);
	expect_pkt(b, RC_WRITE_ONLY, S(2));
	expect_pkt(b, RC_WRITE_ONLY, S(3));
	ack(b, S(3), 3);
	expect_wc(b, 2, SUCCESS);
	expect_wc(b, 3, SUCCESS);
	bed_close(b);
}

/* No request was outstanding: the event comes at once, and only once. */
Test(flush, drain_when_idle)
{
	struct karst_core_qp_attr attr = {.qp_state = KARST_QPS_SQD, .en_sqd_async_notify = 1};
	struct bed *b = bed_rc();

	cr_assert_eq(bed_modify(b, &attr, KARST_QP_STATE | KARST_QP_EN_SQD_ASYNC_NOTIFY), 0);
	expect_event(b, SQ_DRAINED);
	cr_assert_eq(bed_modify(b, &attr, KARST_QP_STATE), 0);
	expect_no_event(b);
	bed_close(b);
}

/* No event comes if the program did not ask for one. */
Test(flush, drain_silently)
{
	struct bed *b = bed_rc();

	cr_assert_eq(bed_to_state(b, KARST_QPS_SQD), 0);
	expect_no_event(b);
	cr_assert_eq(bed_to_state(b, KARST_QPS_ERR), 0);
	bed_close(b);
}

/* A program that asked for the event once gets none for a later drain without that request. */
Test(flush, drain_again_silently)
{
	struct karst_core_qp_attr attr = {.qp_state = KARST_QPS_SQD, .en_sqd_async_notify = 1};
	struct bed *b = bed_rc();

	cr_assert_eq(bed_modify(b, &attr, KARST_QP_STATE | KARST_QP_EN_SQD_ASYNC_NOTIFY), 0);
	expect_event(b, SQ_DRAINED);
	cr_assert_eq(bed_to_state(b, KARST_QPS_RTS), 0);
	cr_assert_eq(bed_to_state(b, KARST_QPS_SQD), 0);
	expect_no_event(b);
	cr_assert_eq(bed_to_state(b, KARST_QPS_RTS), 0);
	cr_assert_eq(bed_modify(b, &attr, KARST_QP_STATE | KARST_QP_EN_SQD_ASYNC_NOTIFY), 0);
	expect_event(b, SQ_DRAINED);
	bed_close(b);
}

/* A UC message that is partly sent has drained when its last packet has been sent. */
Test(flush, drain_uc)
{
	struct karst_core_qp_attr attr = {.qp_state = KARST_QPS_SQD, .en_sqd_async_notify = 1};
	struct setup s = setup_of(KARST_QPT_UC);
	struct bed *b = bed_open(&s);

	post(b, SEND, 1, .len = 3 * MTU);
	post(b, SEND, 2, .len = 1);
	turn_once(b, 1, UINT32_MAX);
	expect_pkt(b, UC_SEND_FIRST, S(0));
	cr_assert_eq(bed_modify(b, &attr, KARST_QP_STATE | KARST_QP_EN_SQD_ASYNC_NOTIFY), 0);
	cr_assert_eq(b->event_head, b->event_tail);
	expect_pkt(b, UC_SEND_MIDDLE, S(1));
	expect_pkt(b, UC_SEND_LAST, S(2));
	expect_none(b);
	expect_wc(b, 1, SUCCESS);
	expect_event(b, SQ_DRAINED);
	cr_assert_eq(bed_to_state(b, KARST_QPS_RTS), 0);
	expect_pkt(b, UC_SEND_ONLY, S(3));
	expect_wc(b, 2, SUCCESS);
	bed_close(b);
}

/* SQE: a failed send of UC stops its send queue alone; RTS resumes behind the failed request. */
Test(flush, send_queue_error_uc)
{
	struct setup s = setup_of(KARST_QPT_UC);
	struct bed *b = bed_open(&s);

	post(b, SEND, 1, .len = 4);
	post(b, SEND, 2, .len = 4, .lkey = 0x666);
	post(b, SEND, 3, .len = 4);
	expect_pkt(b, UC_SEND_ONLY, S(0));
	expect_none(b);
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, LOC_PROT_ERR);
	expect_wc(b, 3, WR_FLUSH_ERR);
	expect_state(b, SQE);
	/* the receive side continues */
	post_recv(b, 9, 0, 64);
	expect_taken(b, send_pkt(b, UC_SEND_ONLY, R(0), .pay_len = 4));
	expect_recv(b, 9, SUCCESS);
	/* requests that are posted meanwhile are flushed */
	post(b, SEND, 4, .len = 4);
	expect_wc(b, 4, WR_FLUSH_ERR);
	cr_assert_eq(bed_to_state(b, KARST_QPS_RTS), 0);
	post(b, SEND, 5, .len = 4);
	expect_pkt(b, UC_SEND_ONLY, S(1));
	expect_wc(b, 5, SUCCESS);
	expect_no_event(b);
	bed_close(b);
}

/* Destroyed while everything is under way: nothing is left behind. */
Test(flush, destroy_while_active)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b = bed_open(&s);
	unsigned int i;

	bed_add(b, &s);
	bed_add(b, &s);
	for (i = 0; i < 3; i++) {
		b->s = &b->side[i];
		post_recv(b, 1, 0, 64);
		post(b, RDMA_READ, 1, .len = 8);
		turn_once(b, 1, UINT32_MAX);
		post(b, RDMA_WRITE, 2, .len = 8);
		expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
	}
	b->out_head = b->out_tail;
	bed_destroy_side(b, &b->side[1]); /* the middle of the list */
	bed_destroy_side(b, &b->side[2]); /* its end */
	b->s = &b->side[0];
	expect_pkt(b, RC_ACK, R(0));
	expect_pkt(b, RC_WRITE_ONLY, S(1));
	advance_time(b, 100 * MS);
	bed_forget(b);
	bed_close(b);
}

/* QP numbers: never 0, 1 or 0xffffff; reused late; numbers of another core are not found. */
Test(flush, numbers)
{
	struct setup s = setup_of(KARST_QPT_RC);
	uint32_t seen[64], i, j;
	struct bed *b;

	s.state = KARST_QPS_RESET;
	s.core.max_qps = 4;
	s.core.lcore_bits = 2;
	s.core.seed[0] = 0;
	for (s.core.lcore = 0; s.core.lcore < 1; s.core.lcore++) {
		b = bed_open(&s);
		bed_destroy_side(b, &b->side[0]);
		for (i = 0; i < 60; i++) {
			b->nsides = 0;
			bed_add(b, &s);
			seen[i] = b->s->qpn;
			cr_assert_gt(seen[i], 1);
			cr_assert_lt(seen[i], 0xffffff);
			cr_assert_eq(karst_qpn_lcore(b->core, seen[i]), s.core.lcore);
			cr_assert_eq(karst_core_lookup(b->core, seen[i]), b->s->qp);
			cr_assert_null(karst_core_lookup(b->core, seen[i] ^ 1));
			for (j = i > 3 ? i - 3 : 0; j < i; j++)
				cr_assert_neq(seen[i], seen[j]);
			bed_destroy_side(b, b->s);
		}
		bed_close(b);
	}
}

/* C1: a number is given again only after half of the others, however few QPs there may be at a
 * time; and each number is given. */
Test(flush, c1_numbers_come_back_late)
{
	static uint32_t seen[64]; /* the round in which it was given, from 1 */
	struct setup s = setup_of(KARST_QPT_RC);
	uint32_t i, qpn, never = 0;
	struct bed *b;

	s.state = KARST_QPS_RESET;
	s.core.max_qps = 2;
	s.core.qpns = 64;
	b = bed_open(&s);
	/* without 0 and 1, and without the number of the bed's own QP */
	for (i = 1; i <= 20 * KARST_DIM(seen); i++) {
		b->nsides = 1;
		bed_add(b, &s);
		qpn = b->side[1].qpn;
		cr_assert(qpn < KARST_DIM(seen) && qpn > 1 && qpn != b->side[0].qpn);
		cr_assert(seen[qpn] == 0 || i - seen[qpn] > (KARST_DIM(seen) - 3) / 2,
			"number %u was given %u before", qpn, i - seen[qpn]);
		seen[qpn] = i;
		cr_assert_eq(karst_core_lookup(b->core, qpn), b->side[1].qp);
		bed_destroy_side(b, &b->side[1]);
	}
	for (i = 0; i < KARST_DIM(seen); i++)
		never += seen[i] == 0;
	cr_assert_eq(never, 3);
	bed_close(b);
}

/* Stores the numbers of @n queue pairs of a core with @seed. */
static void
draw_numbers(const uint64_t seed[2], uint32_t *qpn, uint32_t n)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;
	uint32_t i;

	s.state = KARST_QPS_RESET;
	s.core.qpns = 1 << 16;
	s.core.seed[0] = seed[0];
	s.core.seed[1] = seed[1];
	b = bed_open(&s);
	for (i = 0; i < n; i++) {
		b->nsides = 1;
		bed_add(b, &s);
		qpn[i] = b->side[1].qpn;
		bed_destroy_side(b, &b->side[1]);
	}
	bed_close(b);
}

/* C1: seeing some numbers does not help to guess the next; the same seed gives the same numbers,
 * and both words of the seed count. */
Test(flush, c1_numbers_are_not_in_sequence)
{
	uint32_t first[32], other[32], i, j, near = 0, same = 0;
	uint64_t seed[2] = {4711, 4712};

	draw_numbers(seed, first, 32);
	draw_numbers(seed, other, 32);
	cr_assert_arr_eq(first, other, sizeof(first));
	for (i = 1; i < 32; i++)
		for (j = 0; j < i; j++)
			near += first[i] - first[j] + 64 < 128;
	cr_assert_lt(near, 16);
	seed[1]++;
	draw_numbers(seed, other, 32);
	for (i = 0; i < 32; i++)
		same += first[i] == other[i];
	cr_assert_lt(same, 4);
}

/* The end of the table: no number is 0xffffff, and one more QP than allowed is refused. */
Test(flush, numbers_at_the_end)
{
	static uint8_t *mem;
	struct setup s = setup_of(KARST_QPT_RC);
	struct karst_qp_init init;
	struct karst_core_qp *qp;
	struct bed *b;
	uint32_t i;

	s.state = KARST_QPS_RESET;
	s.core.max_qps = 3;
	b = bed_open(&s);
	bed_add(b, &s);
	bed_add(b, &s);
	init = s.qp;
	init.pd = b->pd;
	init.send_cq = b->scq;
	init.recv_cq = b->rcq;
	init.sq_shared = b->s->sq_mem;
	init.rq_shared = b->s->rq_mem;
	mem = aligned_alloc(64, karst_qp_bytes(&init));
	cr_assert_eq(karst_qp_create(b->core, mem, &init, &qp), -ENOSPC);
	free(mem);
	bed_close(b);

	s.core.max_qps = (1u << 16) - 3;
	s.core.lcore_bits = 8;
	s.core.lcore = 255;
	s.cq_entries = 16;
	{
		struct karst_core_config cfg = s.core;
		struct karst_mem_config mc = {.max_keys = 2, .max_pds = 1};
		static const struct karst_core_ops ops;
		struct karst_core *core;
		void *core_mem, *m = aligned_alloc(64, (karst_mem_size(&mc) + 63) & ~63ul);
		uint32_t num, lowest = UINT32_MAX, highest = 0;
		void *rings, *qmem;
		struct karst_core_cq *cq;
		struct karst_cq_init ci = {.entries = 2, .nlanes = 256};
		void *lanes, *cqo;
		struct karst_cq_shared cqs;

		cr_assert_eq(karst_mem_init(m, &mc, &cfg.mem), 0);
		cfg.ops = &ops;
		core_mem = aligned_alloc(64, (karst_core_bytes(&cfg) + 63) & ~63ul);
		cr_assert_eq(karst_core_init(core_mem, &cfg, 0, &core), 0);
		ci.shared = &cqs;
		ci.lanes = lanes = aligned_alloc(64, karst_cq_lanes_bytes(2, 256, 0));
		cqo = aligned_alloc(64, karst_cq_object_bytes(&ci));
		cr_assert_eq(karst_cq_create(cqo, &ci, &cq), 0);
		rings = calloc(1, 65536);
		init.send_cq = init.recv_cq = cq;
		init.sq_shared = init.rq_shared = (void *)(((uintptr_t)rings + 63) & ~63ul);
		qmem = aligned_alloc(64, karst_qp_bytes(&init));
		for (i = 0; i < 8u << 16; i++) {
			karst_qp_prepare(qmem, &init);
			cr_assert_eq(karst_qp_create(core, qmem, &init, &qp), 0);
			num = karst_qp_num(qp);
			cr_assert_eq(num & 0xff, 255);
			lowest = karst_min_u32(lowest, num);
			highest = num > highest ? num : highest;
			karst_qp_destroy(core, qp);
		}
		/* all numbers except 0xffffff are given */
		cr_assert_eq(lowest, 0x0000ff);
		cr_assert_eq(highest, 0xfffeff);
		free(qmem);
		free(core_mem);
		free(m);
		free(lanes);
		free(cqo);
		free(rings);
	}
}

/* Configurations of a core that are impossible. */
Test(flush, core_config)
{
	struct bed *b = bed_rc();
	static const struct karst_core_ops none;
	struct karst_core_config good = {.max_qps = 1, .mem = b->mem, .ops = &none}, bad;
	struct karst_core *core;
	static char buf[64] karst_cache_aligned;

	cr_assert_neq(karst_core_bytes(&good), 0);
#define REFUSED(field, value)                            \
	bad = good;                                      \
	bad.field = (value);                             \
	cr_assert_eq(karst_core_bytes(&bad), 0, #field); \
	cr_assert_eq(karst_core_init(buf, &bad, 0, &core), -EINVAL)
	REFUSED(max_qps, 0);
	REFUSED(max_qps, (1u << 24) - 2);
	REFUSED(lcore_bits, 9);
	REFUSED(qpns, (1u << 24) + 1);
	REFUSED(lcore, 1);
	REFUSED(mem, NULL);
	REFUSED(ops, NULL);
	REFUSED(window_packets, (1u << 22) + 1);
#undef REFUSED
	/* a QP that cannot be created leaves the table as it was */
	cr_assert_eq(karst_qp_create(b->core, buf, &(struct karst_qp_init){0}, NULL), -EINVAL);
	cr_assert_eq(b->core->nqps, 1);
	/* in RESET nothing is received */
	cr_assert_eq(bed_to_state(b, KARST_QPS_RESET), 0);
	karst_core_doorbell(b->core, b->s->qpn);
	cr_assert_null(karst_core_next_active(b->core));
	bed_close(b);
}
