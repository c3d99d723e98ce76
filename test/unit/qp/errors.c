/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * How requests fail: NAKs from the peer (Q8), invalid responses, and packets that are dropped
 * before any state changes (W9).
 */
#include "harness.h"

struct fatal {
	uint8_t syndrome;
	enum karst_wc_status status;
};

/* (Q8, L3): the status of each fatal NAK; some implementations send 0x63 for a receive that is too
 * small. */
static const struct fatal fatals[] = {
	{0x61, KARST_WC_REM_INV_REQ_ERR},
	{0x62, KARST_WC_REM_ACCESS_ERR},
	{0x63, KARST_WC_REM_OP_ERR},
};

/* (Q8, Q3): requests before the NAK complete, the request that it names fails, the rest is
 * flushed. */
Test(errors, q8_fatal_naks)
{
	unsigned int i;

	for (i = 0; i < KARST_DIM(fatals); i++) {
		struct bed *b = bed_rc();

		post(b, RDMA_WRITE, 1, .len = 4);
		post(b, RDMA_WRITE, 2, .len = 300, .quiet = true);
		post(b, RDMA_READ, 3, .len = 4, .quiet = true);
		post(b, LOCAL_INV, 4, .imm = b->key, .quiet = true);
		turn(b);
		b->out_head = b->out_tail;
		expect_taken(
			b, send_pkt(b, RC_ACK, S(2), .aeth = (uint32_t)fatals[i].syndrome << 24));
		expect_wc_at(b, __FILE__, __LINE__, false, 1, KARST_WC_SUCCESS);
		expect_wc_at(b, __FILE__, __LINE__, false, 2, fatals[i].status);
		cr_assert_eq(b->wc.syndrome, fatals[i].syndrome);
		expect_wc(b, 3, WR_FLUSH_ERR);
		cr_assert_eq(b->wc.opcode, KARST_WC_RDMA_READ);
		expect_wc(b, 4, WR_FLUSH_ERR);
		expect_state(b, ERR);
		/* nothing is received any more */
		expect_drop(b, QP_STATE, send_pkt(b, RC_ACK, S(3), .aeth = 0x1f000000));
		bed_close(b);
	}
}

/* (Q3): a fatal NAK behind a READ whose response is missing: the READ is completed first. */
Test(errors, q3_fatal_nak_past_a_read)
{
	struct bed *b = bed_rc();

	post(b, RDMA_READ, 1, .len = 4);
	post(b, RDMA_WRITE, 2, .len = 4);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_pkt(b, RC_WRITE_ONLY, S(1));
	expect_taken(b, send_pkt(b, RC_ACK, S(1), .aeth = 0x62000000));
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_pkt(b, RC_WRITE_ONLY, S(1));
	expect_no_wc(b);
	expect_state(b, RTS);
	bed_forget(b);
	bed_close(b);
}

/* (W10): READ responses are split as the request requires, or the READ fails. */
Test(errors, w10_bad_responses)
{
	static const struct {
		uint8_t opcode;
		uint16_t len;
		uint32_t n; /* valid responses before it */
	} bad[] = {
		{KARST_RC_READ_RESP_FIRST, 255, 0},
		{KARST_RC_READ_RESP_FIRST, 300, 0},
		{KARST_RC_READ_RESP_ONLY, 256, 0},
		{KARST_RC_READ_RESP_LAST, 256, 0},
		{KARST_RC_READ_RESP_MIDDLE, 44, 1},
		{KARST_RC_READ_RESP_LAST, 43, 1},
		{KARST_RC_READ_RESP_LAST, 45, 1},
		{KARST_RC_READ_RESP_LAST, 0, 1},
	};
	unsigned int i;

	for (i = 0; i < KARST_DIM(bad); i++) {
		struct bed *b = bed_rc();
		struct karst_ib_hdrs ib = {
			.opcode = bad[i].opcode, .psn = S(bad[i].n), .pay_len = bad[i].len};

		post(b, RDMA_READ, 1, .len = 300);
		expect_pkt(b, RC_READ_REQUEST, S(0));
		if (bad[i].n != 0)
			expect_taken(b, send_pkt(b, RC_READ_RESP_FIRST, S(0), .pay_len = 256));
		bed_rx(b, &ib);
		expect_wc(b, 1, BAD_RESP_ERR);
		expect_state(b, ERR);
		expect_untouched(b, 256 * bad[i].n, 1024);
		bed_close(b);
	}
}

/* An ATOMIC WRITE response has no payload. */
Test(errors, w10_atomic_write_response)
{
	struct bed *b = bed_rc();

	post(b, ATOMIC_WRITE, 1, .len = 8);
	expect_pkt(b, RC_ATOMIC_WRITE, S(0));
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(0), .pay_len = 4));
	expect_wc(b, 1, BAD_RESP_ERR);
	bed_close(b);
}

/* (R15): nor has the response to a FLUSH. */
Test(errors, w10_flush_response)
{
	struct bed *b = bed_rc();

	post(b, FLUSH, 1, .flush = {.len = 8, .type = KARST_FLUSH_GLOBAL});
	expect_pkt(b, RC_FLUSH, S(0));
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(0), .pay_len = 4));
	expect_wc(b, 1, BAD_RESP_ERR);
	bed_close(b);
}

/* Requests that the program may not make, each with its status; the peer sees nothing. */
Test(errors, requests_that_make_no_sense)
{
	static const struct {
		const char *what;
		struct wr wr;
		enum karst_wc_status status;
	} bad[] = {
		{"operation that does not exist", {.op = 10, .len = 4}, KARST_WC_LOC_QP_OP_ERR},
		{"operation far away", {.op = 200, .len = 4}, KARST_WC_LOC_QP_OP_ERR},
		{"no such key", {.op = KARST_WR_SEND, .len = 4, .lkey = 5}, KARST_WC_LOC_PROT_ERR},
		{"behind the region", {.op = KARST_WR_SEND, .off = BUF_BYTES - 3, .len = 4},
			KARST_WC_LOC_PROT_ERR},
		{"atomic of 4", {.op = KARST_WR_ATOMIC_CAS, .len = 4}, KARST_WC_LOC_LEN_ERR},
		{"atomic of 16", {.op = KARST_WR_ATOMIC_FAA, .len = 16}, KARST_WC_LOC_LEN_ERR},
		{"ATOMIC WRITE of 4", {.op = KARST_WR_ATOMIC_WRITE, .len = 4},
			KARST_WC_LOC_LEN_ERR},
		{"FLUSH to nowhere", {.op = KARST_WR_FLUSH}, KARST_WC_LOC_QP_OP_ERR},
		{"FLUSH to a place unknown", {.op = KARST_WR_FLUSH, .flush = {.type = 5}},
			KARST_WC_LOC_QP_OP_ERR},
		{"FLUSH of what is unknown",
			{.op = KARST_WR_FLUSH, .flush = {.type = 1, .level = 2}},
			KARST_WC_LOC_QP_OP_ERR},
		{"FLUSH with an SGE", {.op = KARST_WR_FLUSH, .nsge = 1, .flush = {.type = 1}},
			KARST_WC_LOC_QP_OP_ERR},
		{"inline FLUSH",
			{.op = KARST_WR_FLUSH, .flags = KARST_SEND_INLINE, .flush = {.type = 1}},
			KARST_WC_LOC_QP_OP_ERR},
		{"inline READ", {.op = KARST_WR_RDMA_READ, .inl = "abcd", .len = 4},
			KARST_WC_LOC_QP_OP_ERR},
	};
	unsigned int i;

	for (i = 0; i < KARST_DIM(bad); i++) {
		struct bed *b = bed_rc();

		bed_post(b, &bad[i].wr);
		turn(b);
		cr_assert_eq(b->out_head, b->out_tail, "%s", bad[i].what);
		expect_wc_at(b, __FILE__, __LINE__, false, 0, bad[i].status);
		expect_state(b, ERR);
		bed_close(b);
	}
}

/* The destination of a READ must be writable. */
Test(errors, sink_may_only_be_read)
{
	struct bed *b = bed_rc();
	uint32_t key = bed_region(b, 0, 64, 0);

	post(b, RDMA_WRITE, 1, .len = 4, .lkey = key);
	post(b, RDMA_READ, 2, .len = 4, .lkey = key);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_pkt(b, RC_READ_REQUEST, S(1));
	expect_taken(b, send_pkt(b, RC_ACK, S(0), .aeth = 0x1f000001));
	expect_wc(b, 1, SUCCESS);
	expect_no_wc(b);
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(1), .pay_len = 4));
	expect_wc(b, 2, LOC_PROT_ERR);
	expect_untouched(b, 0, 4);
	bed_close(b);
}

/* (D29): READs and atomics are sent whatever their own key is: only the response needs it.  So if
 * both keys are wrong, the peer's error is reported, and an atomic is executed at the peer. */
Test(errors, d29_which_error_wins)
{
	static const enum karst_wr_opcode ops[] = {
		KARST_WR_RDMA_READ, KARST_WR_ATOMIC_CAS, KARST_WR_ATOMIC_FAA};
	static const uint8_t sent[] = {
		KARST_RC_READ_REQUEST, KARST_RC_CMP_SWAP, KARST_RC_FETCH_ADD};
	unsigned int i;

	for (i = 0; i < 2 * KARST_DIM(ops); i++) {
		struct bed *b = bed_rc();
		bool refused = i & 1;

		bed_post(b, &(struct wr){.op = ops[i / 2], .id = 1, .len = 8, .lkey = 0x7777});
		expect_at(b, __FILE__, __LINE__, sent[i / 2], S(0));
		expect_no_wc(b);
		if (refused)
			expect_taken(b,
				send_pkt(b, RC_ACK, S(0),
					.aeth = (KARST_AETH_NAK | KARST_NAK_REM_ACCESS) << 24));
		else if (i == 0)
			expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(0), .pay_len = 8));
		else
			expect_taken(b, send_pkt(b, RC_ATOMIC_ACK, S(0)));
		if (refused)
			expect_wc(b, 1, REM_ACCESS_ERR);
		else
			expect_wc(b, 1, LOC_PROT_ERR);
		expect_state(b, ERR);
		bed_close(b);
	}
}

/* (Q1): nothing of a READ is placed unless all of it has a place. */
Test(errors, sink_is_checked_as_a_whole)
{
	struct bed *b = bed_rc();
	uint32_t key = bed_region(b, 0, 3 * MTU, KARST_ACCESS_LOCAL_WRITE);

	post(b, RDMA_READ, 1, .len = 3 * MTU + 1, .lkey = key);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_taken(b, send_pkt(b, RC_READ_RESP_FIRST, S(0), .pay_len = MTU));
	expect_wc(b, 1, LOC_PROT_ERR);
	expect_untouched(b, 0, MTU);
	bed_close(b);
}

/* (IBTA) no message is longer than 2^31 bytes. */
Test(errors, message_too_long)
{
	struct bed *b = bed_rc();
	struct karst_sge sge[2] = {{VA, 0x80000000u, b->key}, {VA, 1, b->key}};

	post(b, RDMA_WRITE, 1, .sge = sge, .nsge = 2);
	expect_wc(b, 1, LOC_LEN_ERR);
	bed_close(b);
}

/* --- dropped before any state changes (W9) --- */

static void
expect_nothing_happened(struct bed *b)
{
	expect_none(b);
	expect_no_wc(b);
	expect_no_event(b);
	expect_untouched(b, 0, BUF_BYTES);
	cr_assert_eq(count(b, RX_PACKETS), 0);
}

/* (W9, L4): every silent drop, and its reason. */
Test(errors, w9_silent_drops)
{
	struct bed *b = bed_rc();
	const struct karst_ib_hdrs write = {.opcode = KARST_RC_WRITE_ONLY,
		.psn = R(0),
		.va = VA,
		.rkey = b->key,
		.dma_len = 4,
		.pay_len = 4,
		.ackreq = true};
	struct karst_ib_hdrs ib = write;
	struct karst_frame f;

	ib.tver = 1;
	expect_drop(b, TVER, bed_rx(b, &ib));
	ib = write;
	ib.dqpn = b->s->qpn + 1;
	expect_drop(b, NO_QP, bed_rx(b, &ib));
	ib.dqpn = 0xffffff;
	expect_drop(b, NO_QP, bed_rx(b, &ib));
	ib.dqpn = 1;
	expect_drop(b, NO_QP, bed_rx(b, &ib));
	ib = write;
	ib.pkey = 0xfffe;
	expect_drop(b, PKEY, bed_rx(b, &ib));
	ib = write;
	ib.opcode = KARST_UC_WRITE_ONLY;
	expect_drop(b, QP_TYPE, bed_rx(b, &ib));
	ib.opcode = KARST_UD_SEND_ONLY;
	expect_drop(b, QP_TYPE, bed_rx(b, &ib));
	ib.opcode = KARST_XRC_WRITE_ONLY;
	expect_drop(b, QP_TYPE, bed_rx(b, &ib));
	ib.opcode = KARST_RD_WRITE_ONLY;
	expect_drop(b, QP_TYPE, bed_rx(b, &ib));
	ib = write;
	ib.opcode = KARST_CNP;
	ib.pay_len = 0;
	expect_drop(b, CNP, bed_rx(b, &ib));
	f = bed_frame(b, &write);
	f.saddr[3] ^= 1;
	expect_drop(b, ADDRESS, bed_rx_frame(b, &f));
	f = bed_frame(b, &write);
	f.daddr[0] ^= 1;
	expect_drop(b, ADDRESS, bed_rx_frame(b, &f));
	f = bed_frame(b, &write);
	f.ip6 = true;
	expect_drop(b, ADDRESS, bed_rx_frame(b, &f));
	expect_nothing_happened(b);
	bed_close(b);
}

/* (W9, L5): packets that are accepted although they look unusual. */
Test(errors, w9_accepted)
{
	struct bed *b = bed_rc();
	struct karst_ib_hdrs ib = {.opcode = KARST_RC_WRITE_ONLY, .psn = R(0), .pkey = 0x7fff};
	struct karst_frame f;

	expect_taken(b, bed_rx(b, &ib)); /* from a limited member: this side is a full one */
	ib = (struct karst_ib_hdrs){.opcode = KARST_RC_WRITE_ONLY,
		.psn = R(1),
		.fecn = true,
		.becn = true,
		.migreq = true,
		.resv6 = 0x3f,
		.resv7 = 0x7f};
	f = bed_frame(b, &ib);
	f.sport = 0xffff;
	f.tclass = 0xff;
	f.ttl = 1;
	f.ip_frag = 0;
	memset(f.smac, 9, 6);
	expect_taken(b, bed_rx_frame(b, &f));
	ib = (struct karst_ib_hdrs){.opcode = KARST_RC_WRITE_ONLY, .psn = R(2), .ackreq = true};
	f = bed_frame(b, &ib);
	f.sport = 1;
	expect_taken(b, bed_rx_frame(b, &f));
	expect_ack(b, R(2), 3);
	bed_close(b);
}

/* (W9): two limited members may not talk; a full one and a limited one may. */
Test(errors, w9_limited_members)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.attr.pkey = 0x1234;
	b = bed_open(&s);
	expect_drop(b, PKEY, send_pkt(b, RC_WRITE_ONLY, R(0), .pkey = 0x1234, .ackreq = true));
	expect_drop(b, PKEY, send_pkt(b, RC_WRITE_ONLY, R(0), .pkey = 0x9235, .ackreq = true));
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(0), .pkey = 0x9234, .ackreq = true));
	cr_assert_eq(expect_pkt(b, RC_ACK, R(0))->pkey, 0x1234);
	bed_close(b);
}

/* (W9): states in which nothing may be received. */
Test(errors, w9_states)
{
	static const enum karst_qp_state deaf[] = {KARST_QPS_RESET, KARST_QPS_INIT};
	unsigned int i;

	for (i = 0; i < KARST_DIM(deaf); i++) {
		struct setup s = setup_of(KARST_QPT_RC);
		struct bed *b;

		s.state = deaf[i];
		b = bed_open(&s);
		expect_drop(b, QP_STATE, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
		expect_nothing_happened(b);
		bed_close(b);
	}
}

/* Sends the next request, of no bytes, from a UDP source port. */
static enum karst_drop
from_port(struct bed *b, uint32_t psn, uint16_t sport)
{
	struct karst_ib_hdrs ib = {.opcode = KARST_RC_WRITE_ONLY, .psn = psn, .ackreq = true};
	struct karst_frame f = bed_frame(b, &ib);

	f.sport = sport;
	return bed_rx_frame(b, &f);
}

/* (L5): the port that is latched is that of the first expected packet; a packet before it that did
 * not fit latches nothing, and a peer that connects again is latched again. */
static void
latched(bool ip6)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct karst_path *p = &s.attr.path;
	struct karst_frame f;
	struct bed *b;

	s.core.latch_sport = true;
	if (ip6) {
		memset(p->src_ip, 0, 16);
		memset(p->dst_ip, 0, 16);
		p->ip6 = true;
		p->src_ip[0] = p->dst_ip[0] = 0x20;
		p->src_ip[15] = 1;
		p->dst_ip[15] = 2;
	}
	b = bed_open(&s);
	/* a sender that does not know the PSN: as if no port were latched */
	expect_drop(b, SEQUENCE, from_port(b, R(5), 0xc555));
	expect_pkt(b, RC_ACK, R(0));
	expect_taken(b, from_port(b, R(0), 0xc001));
	expect_ack(b, R(0), 1);
	expect_drop(b, SOURCE_PORT, from_port(b, R(1), 0xc002));
	expect_drop(b, SOURCE_PORT, from_port(b, R(1), 0xc555));
	f = bed_frame(b, &(struct karst_ib_hdrs){.opcode = KARST_RC_WRITE_ONLY, .psn = R(1)});
	f.sport = 0xc001;
	f.saddr[3] ^= 1;
	expect_drop(b, ADDRESS, bed_rx_frame(b, &f));
	expect_taken(b, from_port(b, R(1), 0xc001));
	expect_ack(b, R(1), 2);
	/* responses, too */
	post(b, RDMA_WRITE, 1, .len = 1);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	f = bed_frame(b,
		&(struct karst_ib_hdrs){.opcode = KARST_RC_ACK, .psn = S(0), .aeth = 0x1f000001});
	f.sport = 0xc002;
	expect_drop(b, SOURCE_PORT, bed_rx_frame(b, &f));
	f.sport = 0xc001;
	expect_taken(b, bed_rx_frame(b, &f));
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

Test(errors, l5_latched_source_port)
{
	latched(false);
	latched(true);
}

/* (L5): a response to our request also latches, and a packet that answers nothing does not. */
Test(errors, l5_latched_by_an_answer)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct karst_frame f;
	struct bed *b;

	s.core.latch_sport = true;
	b = bed_open(&s);
	f = bed_frame(b,
		&(struct karst_ib_hdrs){.opcode = KARST_RC_ACK, .psn = S(0), .aeth = 0x1f000001});
	f.sport = 0xc555;
	expect_drop(b, GHOST_ACK, bed_rx_frame(b, &f));
	post(b, RDMA_WRITE, 1, .len = 1);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	f.sport = 0xc001;
	expect_taken(b, bed_rx_frame(b, &f));
	expect_wc(b, 1, SUCCESS);
	expect_drop(b, SOURCE_PORT, from_port(b, R(0), 0xc555));
	expect_taken(b, from_port(b, R(0), 0xc001));
	expect_ack(b, R(0), 1);
	bed_close(b);
}

/* (W9): the other address family and a path with a VLAN. */
Test(errors, w9_ipv6_addresses)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct karst_path *p = &s.attr.path;
	struct karst_ib_hdrs ib = {.opcode = KARST_RC_WRITE_ONLY, .psn = FIRST_PSN, .ackreq = true};
	struct karst_frame f;
	struct bed *b;

	memset(p->src_ip, 0, 16);
	memset(p->dst_ip, 0, 16);
	p->ip6 = true;
	p->src_ip[0] = p->dst_ip[0] = 0x20;
	p->src_ip[15] = 1;
	p->dst_ip[15] = 2;
	b = bed_open(&s);
	f = bed_frame(b, &ib);
	f.saddr[5] = 1;
	expect_drop(b, ADDRESS, bed_rx_frame(b, &f));
	f = bed_frame(b, &ib);
	f.daddr[15] = 9;
	expect_drop(b, ADDRESS, bed_rx_frame(b, &f));
	f = bed_frame(b, &ib);
	f.ip6 = false;
	expect_drop(b, ADDRESS, bed_rx_frame(b, &f));
	expect_taken(b, bed_rx(b, &ib));
	expect_ack(b, R(0), 1);
	bed_close(b);
}
