/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What one visit to a queue pair may do: its two halves share the room, requests without a frame
 * are charged, and the timer of a retransmission starts when it is sent.
 */
#include "harness.h"

#define RTO (4096ull << 10) /* timeout 10 */

static enum karst_drop
read_req(struct bed *b, uint32_t psn, uint32_t len)
{
	return send_pkt(b, RC_READ_REQUEST, psn, .va = VA, .rkey = b->key, .dma_len = len);
}

/* Makes one visit; counts the frames of each half, in bytes. */
struct share {
	uint32_t answers;
	uint32_t requests;
	uint32_t read_ends; /* last packets of READ responses */
};

static struct share
visit(struct bed *b, uint32_t frames, uint32_t bytes)
{
	struct share s = {0};

	turn_once(b, frames, bytes);
	while (b->out_head != b->out_tail) {
		const struct karst_pkt *p = &b->out[b->out_head++ % OUT_MAX].pkt;

		if (karst_opcode_flags(p->opcode) & KARST_OPF_REQUEST) {
			s.requests += p->len;
			continue;
		}
		s.answers += p->len;
		s.read_ends += p->opcode == KARST_RC_READ_RESP_LAST;
	}
	return s;
}

/* A peer always has two READs outstanding: requests are still sent, and as many bytes as
 * responses. */
Test(rc_share, a_peer_that_reads_without_end)
{
	struct bed *b = bed_rc();
	uint32_t psn, i, n = 0;
	struct share s, sum = {0};

	for (i = 0; i < 2; i++)
		expect_taken(b, read_req(b, R(16 * i), 4096));
	psn = R(32);
	visit(b, 4, 1024);
	post(b, RDMA_WRITE, 1, .len = 65536);
	for (i = 0; i < 100; i++) {
		s = visit(b, 4, 1024);
		n += s.requests == 0;
		sum.requests += s.requests;
		sum.answers += s.answers;
		for (; s.read_ends > 0; s.read_ends--) {
			expect_taken(b, read_req(b, psn, 4096));
			psn = karst_psn_add(psn, 16);
		}
		if (i == 3)
			cr_assert_gt(sum.requests, 0, "nothing was sent in four visits");
	}
	cr_assert_gt(sum.requests, sum.answers / 2, "%u bytes of requests, %u of answers",
		sum.requests, sum.answers);
	cr_assert_gt(sum.answers, sum.requests / 2, "%u bytes of requests, %u of answers",
		sum.requests, sum.answers);
	cr_assert_leq(n, 60);
	bed_forget(b);
	bed_close(b);
}

/* The last packet of a READ response and the first one of the next have one length, and a port
 * sends packets of one length together: a visit ends behind both of them. */
Test(rc_share, a_visit_does_not_part_responses)
{
	const uint32_t middle = 314, end = 318; /* the latter with an AETH */
	struct bed *b = bed_rc();
	uint32_t i;

	for (i = 0; i < 3; i++)
		expect_taken(b, read_req(b, R(3 * i), 3 * MTU));
	expect_taken(b, read_req(b, R(9), 2 * MTU + 8));
	cr_assert_eq(visit(b, 32, end + middle + 1).answers, middle + 3 * end);
	cr_assert_eq(visit(b, 32, middle + 1).answers, middle + 2 * end);
	expect_taken(b, read_req(b, R(12), 3 * MTU));
	expect_taken(b, read_req(b, R(15), 8));
	/* there is no buffer for the first one of the next */
	cr_assert_eq(visit(b, 2, middle + 1).answers, middle + end);
	cr_assert_eq(visit(b, 32, 1).answers, end);
	/* the last packet is shorter than the first one of the next response */
	cr_assert_eq(visit(b, 32, middle + 1).answers, middle + end - MTU + 8);
	/* and here longer */
	cr_assert_eq(visit(b, 32, middle + end + 1).answers, middle + 2 * end);
	cr_assert_eq(visit(b, 32, 1).answers, end - MTU + 8);
	/* nothing is left */
	cr_assert_eq(visit(b, 32, 1).answers, 0);
	bed_forget(b);
	bed_close(b);
}

/* (E6): nor does it exceed the limit of a pacer for that. */
Test(rc_share, e6_a_paced_visit_may_part_responses)
{
	struct bed *b = bed_rc();

	karst_qp_rate_limit(b->core, b->s->qp, 1000000000, 65536, NULL);
	expect_taken(b, read_req(b, R(0), 3 * MTU));
	expect_taken(b, read_req(b, R(3), 3 * MTU));
	cr_assert_eq(visit(b, 32, 900).answers, 318, "the bucket was empty");
	b->core->now_ns += 1000000;
	karst_core_expire(b->core, 100);
	cr_assert_eq(visit(b, 32, 315).answers, 314 + 318);
	bed_forget(b);
	bed_close(b);
}

/* (Q6): the queue pair is not visited, as its port is full: no retry is used meanwhile. */
Test(rc_share, q6_retries_are_transmissions)
{
	struct bed *b = bed_rc(); /* retry_cnt 3 */
	uint32_t i;

	post(b, SEND, 1, .len = 8);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	for (i = 0; i < 8; i++) {
		b->core->now_ns += RTO / 2 + RTO / 8;
		karst_core_expire(b->core, 100);
	}
	expect_state(b, RTS);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 1);
	/* the three that are left, each with the whole timeout from when it is sent */
	for (i = 0; i < 3; i++) {
		turn(b);
		expect_pkt(b, RC_SEND_ONLY, S(0));
		advance_time(b, RTO / 2);
		expect_none(b);
		expect_no_wc(b);
		advance_time(b, 4 * RTO);
	}
	expect_wc(b, 1, RETRY_EXC_ERR);
	expect_state(b, ERR);
	bed_close(b);
}

/* (Q6): a NAK requests a packet again and it cannot be sent: the timer does not run for that,
 * either. */
Test(rc_share, q6_after_a_nak)
{
	struct bed *b = bed_rc();

	post(b, SEND, 1, .len = 8);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	expect_taken(
		b, send_pkt(b, RC_ACK, S(0), .aeth = (KARST_AETH_NAK | KARST_NAK_PSN_SEQ) << 24));
	b->core->now_ns += 2 * RTO;
	karst_core_expire(b->core, 100);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 0);
	turn(b);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	advance_time(b, RTO / 2);
	expect_none(b);
	expect_taken(b, send_pkt(b, RC_ACK, S(0), .aeth = 0x1f000001));
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* (Q6): not for ever: a port that never sends again is treated like a peer that is gone. */
Test(rc_share, q6_nothing_ever_leaves)
{
	struct bed *b = bed_rc();
	uint32_t i;

	post(b, SEND, 1, .len = 8);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	for (i = 0; i < 32 && karst_qp_state(b->s->qp) == KARST_QPS_RTS; i++) {
		b->core->now_ns += RTO;
		karst_core_expire(b->core, 100);
	}
	expect_state(b, ERR);
	expect_wc(b, 1, RETRY_EXC_ERR);
	bed_close(b);
}

/* (Q6, D15): a peer that is gone is given up after about (retry_cnt + 1) times the timeout, for
 * every queue pair; the waits are spread, except for the first. */
Test(rc_share, q6_all_of_it)
{
	uint64_t first_wait[2] = {0, 0}, second[2] = {0, 0};
	unsigned int i, differ = 0;

	for (i = 0; i < 16; i++) {
		struct setup s = setup_of(KARST_QPT_RC);
		struct bed *b;
		uint64_t t0;

		s.core.seed[0] = i;
		s.attr.retry_cnt = 5;
		b = bed_open(&s);
		post(b, RDMA_WRITE, 1, .len = 1);
		turn(b);
		t0 = b->core->now_ns;
		while (count(b, LOCAL_ACK_TIMEOUT) < 1)
			advance_time(b, RTO / 64);
		first_wait[i & 1] = b->core->now_ns - t0;
		while (count(b, LOCAL_ACK_TIMEOUT) < 2)
			advance_time(b, RTO / 64);
		second[i & 1] = b->core->now_ns - t0;
		differ += i > 0 && second[0] != second[1];
		cr_assert(i == 0 || first_wait[0] == first_wait[1]);
		while (karst_qp_state(b->s->qp) == KARST_QPS_RTS)
			advance_time(b, RTO / 64);
		cr_assert_geq(b->core->now_ns - t0, 6 * RTO);
		cr_assert_leq(b->core->now_ns - t0, 6 * RTO * 5 / 4 + 6 * RTO / 32);
		bed_forget(b);
		bed_close(b);
	}
	cr_assert_gt(differ, 8, "they all come back at once");
}

/* --- the window --- */

/* (P2): READ responses do not count in the requester's window: a SEND is sent right behind a long
 * READ, and as many packets of a message as without it. */
Test(rc_share, p2_messages_behind_a_read)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;
	uint32_t i;

	s.core.window_packets = 4;
	b = bed_open(&s);
	post(b, RDMA_READ, 1, .len = 16 * MTU);
	post(b, SEND, 2, .len = 8);
	post(b, RDMA_READ, 3, .off = 16 * MTU, .len = 16 * MTU);
	post(b, RDMA_WRITE, 4, .len = 6 * MTU);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_pkt(b, RC_SEND_ONLY, S(16));
	expect_pkt(b, RC_READ_REQUEST, S(17));
	for (i = 0; i < 3; i++)
		expect_at(b, __FILE__, __LINE__,
			i == 0 ? KARST_RC_WRITE_FIRST : KARST_RC_WRITE_MIDDLE, S(33 + i));
	expect_none(b);
	/* responses do not open the window, but the requests that they acknowledge do */
	for (i = 0; i < 16; i++) {
		expect_taken(b,
			bed_rx(b,
				&(struct karst_ib_hdrs){.psn = S(i),
					.opcode = i == 0  ? KARST_RC_READ_RESP_FIRST
						: i == 15 ? KARST_RC_READ_RESP_LAST
							  : KARST_RC_READ_RESP_MIDDLE,
					.pay_len = MTU}));
		expect_none(b);
	}
	expect_wc(b, 1, SUCCESS);
	expect_taken(b, send_pkt(b, RC_ACK, S(16), .aeth = 0x1f000002));
	expect_wc(b, 2, SUCCESS);
	expect_pkt(b, RC_WRITE_MIDDLE, S(36));
	expect_none(b);
	/* a gap: the second READ is requested from its fourth packet on, and nothing of what is
	 * behind it */
	for (i = 0; i < 3; i++)
		expect_taken(b,
			bed_rx(b,
				&(struct karst_ib_hdrs){.psn = S(17 + i),
					.opcode = i == 0 ? KARST_RC_READ_RESP_FIRST
							 : KARST_RC_READ_RESP_MIDDLE,
					.pay_len = MTU}));
	expect_taken(b, send_pkt(b, RC_READ_RESP_MIDDLE, S(21), .pay_len = MTU));
	expect_pkt(b, RC_READ_REQUEST, S(20));
	expect_none(b);
	bed_forget(b);
	bed_close(b);
}

/* --- requests without a frame --- */

#define LOCALS 1024u /* more than one visit may do */

static struct bed *
bed_deep(enum karst_qp_type type)
{
	struct setup s = setup_of(type);

	s.qp.max_send_wr = s.qp.max_recv_wr = 2 * LOCALS;
	s.cq_entries = 8 * LOCALS;
	return bed_open(&s);
}

/* Posts the next of two alternating requests: BIND_MW and LOCAL_INV of one window. */
static void
feed(struct bed *b, uint32_t *key, uint64_t id)
{
	if (id & 1) {
		post(b, LOCAL_INV, id, .imm = *key, .quiet = true);
		return;
	}
	post(b, BIND_MW, id, .quiet = true,
		.bind = {.mw_key = *key,
			.new_key = (*key & ~0xffu) | ((*key + 1) & 0xff),
			.mr_key = b->key,
			.va = VA,
			.len = 64,
			.access = KARST_ACCESS_REMOTE_READ});
	*key = (*key & ~0xffu) | ((*key + 1) & 0xff);
}

static uint32_t
done(const struct bed *b)
{
	uint32_t seen, given_back;

	karst_qp_send_queue(b->s->qp, &seen, &given_back);
	return given_back;
}

/*
 * A visit ends, though the program always has more requests.  Executed requests are charged as
 * bytes, so the given room bounds them, too.
 */
Test(rc_share, local_requests_without_end)
{
	struct bed *b = bed_deep(KARST_QPT_RC);
	uint32_t key = 0, start = done(b), before = start, posted = 0, i, n;

	cr_assert_eq(karst_mw_alloc(b->mem, b->pd, KARST_MEM_MW2, &key), 0);
	for (i = 0; i < 200; i++) {
		while (karst_wq_free(&b->s->sq, 1) != 0)
			feed(b, &key, posted++);
		cr_assert(turn_once(b, 32, UINT32_MAX), "there is more");
		n = done(b) - before;
		before += n;
		cr_assert_gt(n, 0);
		cr_assert_leq(n, KARST_VISIT_QUIET, "%u requests in one visit", n);
		cr_assert_eq(b->charge, n * KARST_QUIET_COST);
	}
	/* less room, fewer requests */
	cr_assert(turn_once(b, 32, 4 * KARST_QUIET_COST));
	cr_assert_eq(done(b) - before, 4);
	cr_assert(turn_once(b, 32, 1));
	cr_assert_eq(done(b) - before, 5);
	/* and all of them in the end */
	turn(b);
	cr_assert_eq(done(b) - start, posted);
	expect_state(b, RTS);
	bed_close(b);
}

/* The same in Error: flushing makes no frames, either. */
Test(rc_share, flushing_without_end)
{
	struct bed *b = bed_deep(KARST_QPT_RC);
	const struct karst_cqe *cqe;
	uint32_t i, sends, recvs;

	cr_assert_eq(bed_to_state(b, KARST_QPS_ERR), 0);
	for (i = 0; i < 50; i++) {
		while (karst_wq_free(&b->s->sq, 1) != 0)
			post(b, SEND, 1, .len = 8);
		while (karst_wq_free(&b->s->rq, 1) != 0)
			post_recv(b, 2, 0, 8);
		cr_assert(turn_once(b, 32, UINT32_MAX), "there is more");
		for (sends = 0; karst_cq_lane_peek(&b->slane, &cqe) != 0; sends++)
			karst_cq_lane_take(&b->slane, 1);
		for (recvs = 0; karst_cq_lane_peek(&b->rlane, &cqe) != 0; recvs++)
			karst_cq_lane_take(&b->rlane, 1);
		cr_assert(sends > 0 && sends <= KARST_VISIT_QUIET, "%u sends", sends);
		cr_assert(recvs > 0 && recvs <= KARST_VISIT_QUIET, "%u receives", recvs);
		cr_assert_eq(b->charge, (sends + recvs) * KARST_QUIET_COST);
	}
	bed_forget(b);
	bed_close(b);
}
