/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The RC requester when nothing goes wrong: what it sends for each work request, what completes
 * when.
 */
#include "harness.h"

static void
ack(struct bed *b, uint32_t psn, uint32_t msn)
{
	expect_taken(b, send_pkt(b, RC_ACK, psn, .aeth = 0x1f000000 | msn));
}

/* (W4, W5, Q2): an Only with RETH, AckReq and the data; completed by its ACK (Q3). */
Test(rc_requester, write_only)
{
	struct bed *b = bed_rc();
	const struct karst_pkt *p;

	memcpy(b->buf + 100, b->pattern, 200);
	post(b, RDMA_WRITE, 1, .off = 100, .len = 200);
	p = expect_pkt(b, RC_WRITE_ONLY, S(0));
	cr_assert_eq(p->va, PEER_VA);
	cr_assert_eq(p->rkey, PEER_RKEY);
	cr_assert_eq(p->dma_len, 200);
	cr_assert_eq(p->dqpn, PEER_QPN);
	cr_assert(p->flags & KARST_PKT_ACKREQ);
	cr_assert(p->flags & KARST_PKT_MIGREQ);
	expect_data(b, p, 100, 200);
	expect_no_wc(b);
	ack(b, S(0), 1);
	expect_wc(b, 1, SUCCESS);
	cr_assert_eq(b->wc.opcode, KARST_WC_RDMA_WRITE);
	cr_assert_eq(b->wc.byte_len, 200);
	cr_assert_eq(b->wc.qpn, b->s->qpn);
	bed_close(b);
}

/* (W10, P1, Q2): a message of 2.5 MTUs is First, Middle, Last; AckReq on the last only. */
Test(rc_requester, write_segments)
{
	struct bed *b = bed_rc();
	const struct karst_pkt *p;

	memcpy(b->buf, b->pattern, 640);
	post(b, RDMA_WRITE, 1, .len = 640);
	p = expect_pkt(b, RC_WRITE_FIRST, S(0));
	cr_assert_eq(p->dma_len, 640);
	cr_assert_not(p->flags & KARST_PKT_ACKREQ);
	expect_data(b, p, 0, 256);
	p = expect_pkt(b, RC_WRITE_MIDDLE, S(1));
	cr_assert_not(p->flags & KARST_PKT_ACKREQ);
	expect_data(b, p, 256, 256);
	p = expect_pkt(b, RC_WRITE_LAST, S(2));
	cr_assert(p->flags & KARST_PKT_ACKREQ);
	expect_data(b, p, 512, 128);
	/* (Q3): an ACK of a part moves the window and completes nothing */
	ack(b, S(1), 0);
	expect_no_wc(b);
	ack(b, S(2), 1);
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* (W5): every SEND and WRITE with what its last packet carries. */
Test(rc_requester, opcodes_and_their_headers)
{
	struct bed *b = bed_rc();
	const struct karst_pkt *p;

	post(b, SEND, 1, .len = 10);
	post(b, SEND_WITH_IMM, 2, .len = 10, .imm = 0x01020304);
	post(b, SEND_WITH_INV, 3, .len = 10, .imm = 0x11223344);
	post(b, RDMA_WRITE_WITH_IMM, 4, .len = 10, .imm = 0x05060708);
	post(b, SEND_WITH_IMM, 5, .len = 300, .imm = 0x21);
	post(b, SEND_WITH_INV, 6, .len = 300, .imm = 0x22);
	post(b, RDMA_WRITE_WITH_IMM, 7, .len = 300, .imm = 0x23);
	post(b, SEND, 8, .len = 600);
	cr_assert_eq(expect_pkt(b, RC_SEND_ONLY, S(0))->pay_len, 10);
	cr_assert_eq(expect_pkt(b, RC_SEND_ONLY_IMM, S(1))->imm, 0x01020304);
	cr_assert_eq(expect_pkt(b, RC_SEND_ONLY_INV, S(2))->inv_rkey, 0x11223344);
	p = expect_pkt(b, RC_WRITE_ONLY_IMM, S(3));
	cr_assert_eq(p->imm, 0x05060708);
	cr_assert_eq(p->va, PEER_VA);
	expect_pkt(b, RC_SEND_FIRST, S(4));
	cr_assert_eq(expect_pkt(b, RC_SEND_LAST_IMM, S(5))->imm, 0x21);
	expect_pkt(b, RC_SEND_FIRST, S(6));
	cr_assert_eq(expect_pkt(b, RC_SEND_LAST_INV, S(7))->inv_rkey, 0x22);
	expect_pkt(b, RC_WRITE_FIRST, S(8));
	cr_assert_eq(expect_pkt(b, RC_WRITE_LAST_IMM, S(9))->imm, 0x23);
	expect_pkt(b, RC_SEND_FIRST, S(10));
	expect_pkt(b, RC_SEND_MIDDLE, S(11));
	expect_pkt(b, RC_SEND_LAST, S(12));
	/* (Q3): one ACK for all, completions in order (Q1) */
	ack(b, S(12), 8);
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	expect_wc(b, 3, SUCCESS);
	expect_wc(b, 4, SUCCESS);
	expect_wc(b, 5, SUCCESS);
	expect_wc(b, 6, SUCCESS);
	expect_wc(b, 7, SUCCESS);
	expect_wc(b, 8, SUCCESS);
	cr_assert_eq(b->wc.opcode, KARST_WC_SEND);
	bed_close(b);
}

/* SE stands on the last packet, and only where it wakes somebody. */
Test(rc_requester, solicited_flag)
{
	struct bed *b = bed_rc();

	post(b, SEND, 1, .len = 300, .flags = KARST_SEND_SOLICITED);
	post(b, RDMA_WRITE, 2, .len = 4, .flags = KARST_SEND_SOLICITED);
	post(b, RDMA_WRITE_WITH_IMM, 3, .len = 4, .flags = KARST_SEND_SOLICITED);
	cr_assert_not(expect_pkt(b, RC_SEND_FIRST, S(0))->flags & KARST_PKT_SE);
	cr_assert(expect_pkt(b, RC_SEND_LAST, S(1))->flags & KARST_PKT_SE);
	cr_assert_not(expect_pkt(b, RC_WRITE_ONLY, S(2))->flags & KARST_PKT_SE);
	cr_assert(expect_pkt(b, RC_WRITE_ONLY_IMM, S(3))->flags & KARST_PKT_SE);
	bed_forget(b);
	bed_close(b);
}

/* (P1, W10): nothing at all takes one packet and one PSN, in every operation. */
Test(rc_requester, zero_length)
{
	struct bed *b = bed_rc();

	post(b, RDMA_WRITE, 1);
	post(b, SEND, 2);
	post(b, RDMA_READ, 3);
	post(b, RDMA_WRITE_WITH_IMM, 4);
	post(b, SEND, 5, .inl = "");
	cr_assert_eq(expect_pkt(b, RC_WRITE_ONLY, S(0))->pay_len, 0);
	cr_assert_eq(expect_pkt(b, RC_SEND_ONLY, S(1))->pay_len, 0);
	cr_assert_eq(expect_pkt(b, RC_READ_REQUEST, S(2))->dma_len, 0);
	expect_pkt(b, RC_WRITE_ONLY_IMM, S(3));
	expect_pkt(b, RC_SEND_ONLY, S(4));
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(2), .aeth = 0x1f000003));
	ack(b, S(4), 5);
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	expect_wc(b, 3, SUCCESS);
	cr_assert_eq(b->wc.byte_len, 0);
	expect_wc(b, 4, SUCCESS);
	expect_wc(b, 5, SUCCESS);
	bed_close(b);
}

/* SGEs of any length, none at all among them, are gathered across packet boundaries. */
Test(rc_requester, gather_crosses_packets)
{
	struct bed *b = bed_rc();
	struct karst_sge sge[4] = {{VA + 1000, 100, b->key}, {VA + 77, 0, b->key},
		{VA + 3001, 155, b->key}, {VA + 5000, 300, b->key}};
	const struct karst_pkt *p;

	memcpy(b->buf, b->pattern, 8192);
	post(b, SEND, 1, .sge = sge, .nsge = 4);
	p = expect_pkt(b, RC_SEND_FIRST, S(0));
	cr_assert_eq(p->pay_len, 256);
	cr_assert_arr_eq(p->data + p->pay_off, b->buf + 1000, 100);
	cr_assert_arr_eq(p->data + p->pay_off + 100, b->buf + 3001, 155);
	cr_assert_arr_eq(p->data + p->pay_off + 255, b->buf + 5000, 1);
	p = expect_pkt(b, RC_SEND_MIDDLE, S(1));
	expect_data(b, p, 5001, 256);
	p = expect_pkt(b, RC_SEND_LAST, S(2));
	expect_data(b, p, 5257, 43);
	cr_assert_eq(karst_pkt_pad(p), 1); /* (W6) */
	ack(b, S(2), 1);
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* (Q1): inline data is in the request, and no key is looked at. */
Test(rc_requester, inline_data)
{
	struct bed *b = bed_rc();
	const struct karst_pkt *p;

	post(b, RDMA_WRITE, 1, .inl = b->pattern, .len = 128, .lkey = 0x666);
	p = expect_pkt(b, RC_WRITE_ONLY, S(0));
	cr_assert_eq(p->pay_len, 128);
	cr_assert_arr_eq(p->data + p->pay_off, b->pattern, 128);
	ack(b, S(0), 1);
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* (Q1): an unsignalled request completes with the next signalled one, and frees its slot. */
Test(rc_requester, unsignalled)
{
	struct bed *b = bed_rc();
	unsigned int i;

	for (i = 0; i < 63; i++)
		post(b, RDMA_WRITE, i, .len = 1, .quiet = true);
	post(b, RDMA_WRITE, 63, .len = 1);
	cr_assert_eq(karst_wq_free(&b->s->sq, 1), 0);
	turn(b);
	ack(b, S(62), 63);
	expect_no_wc(b);
	cr_assert_eq(karst_wq_free(&b->s->sq, 64), 63);
	ack(b, S(63), 64);
	expect_wc(b, 63, SUCCESS);
	cr_assert_eq(karst_wq_free(&b->s->sq, 64), 64);
	cr_assert_eq(count(b, REQ_COMPLETIONS), 64);
	bed_forget(b);
	bed_close(b);
}

Test(rc_requester, signal_all)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.qp.sq_sig_all = true;
	b = bed_open(&s);
	post(b, RDMA_WRITE, 1, .len = 1, .quiet = true);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	ack(b, S(0), 1);
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* (P1, Q5): a READ of 2.5 MTUs is one request that takes three PSNs; responses in order. */
Test(rc_requester, read)
{
	struct bed *b = bed_rc();
	const struct karst_pkt *p;

	post(b, RDMA_READ, 1, .off = 50, .len = 640);
	post(b, RDMA_WRITE, 2, .len = 4);
	p = expect_pkt(b, RC_READ_REQUEST, S(0));
	cr_assert_eq(p->dma_len, 640);
	cr_assert_eq(p->va, PEER_VA);
	cr_assert(p->flags & KARST_PKT_ACKREQ);
	expect_pkt(b, RC_WRITE_ONLY, S(3));
	expect_taken(b, send_pkt(b, RC_READ_RESP_FIRST, S(0), .pay_len = 256, .aeth = 0x1f000001));
	expect_taken(
		b, send_pkt(b, RC_READ_RESP_MIDDLE, S(1), .pay = b->pattern + 256, .pay_len = 256));
	expect_no_wc(b);
	expect_taken(b,
		send_pkt(b, RC_READ_RESP_LAST, S(2), .pay = b->pattern + 512, .pay_len = 128,
			.aeth = 0x1f000001));
	expect_wc(b, 1, SUCCESS);
	cr_assert_eq(b->wc.opcode, KARST_WC_RDMA_READ);
	cr_assert_eq(b->wc.byte_len, 640);
	expect_mem(b, 50, 0, 640);
	expect_untouched(b, 0, 50);
	expect_untouched(b, 690, 100);
	ack(b, S(3), 2);
	expect_wc(b, 2, SUCCESS);
	bed_close(b);
}

/* (Q5): responses are scattered over the SGEs wherever packets end. */
Test(rc_requester, read_scatter)
{
	struct bed *b = bed_rc();
	struct karst_sge sge[4] = {{VA + 1000, 200, b->key}, {VA + 1, 0, b->key},
		{VA + 2000, 57, b->key}, {VA + 3000, 143, b->key}};

	post(b, RDMA_READ, 1, .sge = sge, .nsge = 4);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_taken(b, send_pkt(b, RC_READ_RESP_FIRST, S(0), .pay_len = 256));
	expect_taken(
		b, send_pkt(b, RC_READ_RESP_LAST, S(1), .pay = b->pattern + 256, .pay_len = 144));
	expect_wc(b, 1, SUCCESS);
	expect_mem(b, 1000, 0, 200);
	expect_mem(b, 2000, 200, 57);
	expect_mem(b, 3000, 257, 143);
	expect_untouched(b, 0, 1000);
	expect_untouched(b, 1200, 800);
	expect_untouched(b, 2057, 943);
	bed_close(b);
}

/* Atomics: the operands on the wire, the old value in host order in memory. */
Test(rc_requester, atomics)
{
	struct bed *b = bed_rc();
	const struct karst_pkt *p;
	const uint8_t *eth;
	uint64_t old;

	post(b, ATOMIC_CAS, 1, .off = 16, .compare_add = 0x1111222233334444, .swap = 0x55);
	post(b, ATOMIC_FAA, 2, .off = 24, .compare_add = 7, .swap = 0xdead);
	p = expect_pkt(b, RC_CMP_SWAP, S(0));
	eth = p->data + p->bth_off + KARST_BTH_LEN;
	cr_assert_eq(karst_atomiceth_compare(eth), 0x1111222233334444);
	cr_assert_eq(karst_atomiceth_swap_add(eth), 0x55);
	cr_assert_eq(p->va, PEER_VA);
	cr_assert_eq(p->rkey, PEER_RKEY);
	p = expect_pkt(b, RC_FETCH_ADD, S(1));
	eth = p->data + p->bth_off + KARST_BTH_LEN;
	cr_assert_eq(karst_atomiceth_swap_add(eth), 7);
	cr_assert_eq(karst_atomiceth_compare(eth), 0);
	expect_taken(b, send_pkt(b, RC_ATOMIC_ACK, S(0), .aeth = 0x1f000001, .orig = 0xabcdef));
	expect_taken(b, send_pkt(b, RC_ATOMIC_ACK, S(1), .aeth = 0x1f000002, .orig = ~0ull));
	expect_wc(b, 1, SUCCESS);
	cr_assert_eq(b->wc.opcode, KARST_WC_COMP_SWAP);
	expect_wc(b, 2, SUCCESS);
	cr_assert_eq(b->wc.opcode, KARST_WC_FETCH_ADD);
	cr_assert_eq(b->wc.byte_len, 8);
	memcpy(&old, b->buf + 16, 8);
	cr_assert_eq(old, 0xabcdef);
	memcpy(&old, b->buf + 24, 8);
	cr_assert_eq(old, ~0ull);
	bed_close(b);
}

/* (W4, L6): ATOMIC WRITE carries eight bytes and is answered by an empty READ response. */
Test(rc_requester, atomic_write)
{
	struct bed *b = bed_rc();
	const struct karst_pkt *p;

	post(b, ATOMIC_WRITE, 1, .inl = b->pattern, .len = 8);
	p = expect_pkt(b, RC_ATOMIC_WRITE, S(0));
	cr_assert_eq(p->dma_len, 8);
	cr_assert_eq(p->pay_len, 8);
	cr_assert_arr_eq(p->data + p->pay_off, b->pattern, 8);
	/* an ATOMIC ACK is no answer to it */
	expect_drop(b, UNEXPECTED_RESPONSE, send_pkt(b, RC_ATOMIC_ACK, S(0), .orig = 1));
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(0), .aeth = 0x1f000001));
	expect_wc(b, 1, SUCCESS);
	cr_assert_eq(b->wc.opcode, KARST_WC_ATOMIC_WRITE);
	bed_close(b);
}

/* (Q5): READs and atomics together never exceed max_rd_atomic. */
Test(rc_requester, q5_read_limit)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.attr.max_rd_atomic = 2;
	b = bed_open(&s);
	post(b, RDMA_READ, 1, .len = 300);
	post(b, ATOMIC_FAA, 2, .off = 512);
	post(b, RDMA_READ, 3, .len = 8);
	post(b, RDMA_WRITE, 4, .len = 8);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_pkt(b, RC_FETCH_ADD, S(2));
	expect_none(b);
	expect_taken(b, send_pkt(b, RC_READ_RESP_FIRST, S(0), .pay_len = 256));
	expect_none(b);
	expect_taken(b, send_pkt(b, RC_READ_RESP_LAST, S(1), .pay_len = 44));
	expect_wc(b, 1, SUCCESS);
	expect_pkt(b, RC_READ_REQUEST, S(3));
	expect_pkt(b, RC_WRITE_ONLY, S(4));
	expect_taken(b, send_pkt(b, RC_ATOMIC_ACK, S(2)));
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(3), .pay_len = 8));
	ack(b, S(4), 4);
	expect_wc(b, 2, SUCCESS);
	expect_wc(b, 3, SUCCESS);
	expect_wc(b, 4, SUCCESS);
	bed_close(b);
}

/* (Q5): a QP that may send no READ says so at once instead of waiting for ever. */
Test(rc_requester, q5_no_reads_at_all)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.attr.max_rd_atomic = 0;
	b = bed_open(&s);
	post(b, RDMA_READ, 1, .len = 8);
	expect_wc(b, 1, LOC_QP_OP_ERR);
	expect_state(b, ERR);
	bed_close(b);
}

/* (Q1): a fence waits for earlier READs and atomics, for nothing else. */
Test(rc_requester, q1_fence)
{
	struct bed *b = bed_rc();

	post(b, RDMA_WRITE, 1, .len = 8);
	post(b, RDMA_WRITE, 2, .len = 8, .flags = KARST_SEND_FENCE);
	post(b, RDMA_READ, 3, .len = 8);
	post(b, ATOMIC_FAA, 4, .off = 512);
	post(b, SEND, 5, .len = 8);
	post(b, SEND, 6, .len = 8, .flags = KARST_SEND_FENCE);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_pkt(b, RC_WRITE_ONLY, S(1));
	expect_pkt(b, RC_READ_REQUEST, S(2));
	expect_pkt(b, RC_FETCH_ADD, S(3));
	expect_pkt(b, RC_SEND_ONLY, S(4));
	expect_none(b);
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(2), .pay_len = 8));
	expect_none(b);
	expect_taken(b, send_pkt(b, RC_ATOMIC_ACK, S(3)));
	expect_pkt(b, RC_SEND_ONLY, S(5));
	bed_forget(b);
	bed_close(b);
}

/* (Q2): a long message asks for an acknowledgement every ack_interval packets. */
Test(rc_requester, q2_ack_interval)
{
	struct setup s = setup_of(KARST_QPT_RC);
	const struct karst_pkt *p;
	struct bed *b;
	uint32_t i;

	s.core.ack_interval = 4;
	b = bed_open(&s);
	post(b, RDMA_WRITE, 1, .len = 10 * MTU);
	for (i = 0; i < 10; i++) {
		uint8_t opc = i == 0 ? KARST_RC_WRITE_FIRST
			: i == 9     ? KARST_RC_WRITE_LAST
				     : KARST_RC_WRITE_MIDDLE;

		p = expect_at(b, __FILE__, __LINE__, opc, S(i));
		cr_assert_eq((p->flags & KARST_PKT_ACKREQ) != 0, i == 3 || i == 7 || i == 9,
			"packet %u", i);
	}
	ack(b, S(9), 1);
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* (P2): the window stops a long message, and each ACK moves it. */
Test(rc_requester, p2_window)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.core.window_packets = 4;
	s.core.ack_interval = 2;
	b = bed_open(&s);
	post(b, SEND, 1, .len = 7 * MTU);
	expect_pkt(b, RC_SEND_FIRST, S(0));
	expect_pkt(b, RC_SEND_MIDDLE, S(1));
	expect_pkt(b, RC_SEND_MIDDLE, S(2));
	expect_pkt(b, RC_SEND_MIDDLE, S(3));
	expect_none(b);
	ack(b, S(1), 0);
	expect_pkt(b, RC_SEND_MIDDLE, S(4));
	expect_pkt(b, RC_SEND_MIDDLE, S(5));
	expect_none(b);
	ack(b, S(5), 0);
	expect_pkt(b, RC_SEND_LAST, S(6));
	ack(b, S(6), 1);
	expect_wc(b, 1, SUCCESS);
	cr_assert_eq(count(b, RETRANSMITS), 0);
	bed_close(b);
}

/* (Q2): a window smaller than ack_interval still hears of its packets. */
Test(rc_requester, q2_window_smaller_than_interval)
{
	struct setup s = setup_of(KARST_QPT_RC);
	const struct karst_pkt *p = NULL;
	struct bed *b;
	uint32_t i;

	s.core.window_packets = 4;
	b = bed_open(&s);
	post(b, SEND, 1, .len = 9 * MTU);
	for (i = 0; i < 4; i++)
		p = expect_at(b, __FILE__, __LINE__,
			i == 0 ? KARST_RC_SEND_FIRST : KARST_RC_SEND_MIDDLE, S(i));
	expect_none(b);
	cr_assert(p->flags & KARST_PKT_ACKREQ, "nobody will ever open the window");
	bed_forget(b);
	bed_close(b);
}

/* (P2): two READs that would take more than 2^23 PSNs together go one after the other. */
Test(rc_requester, p2_half_of_the_number_space)
{
	static uint8_t nothing;
	struct setup s = setup_of(KARST_QPT_RC);
	struct karst_sge sge;
	struct bed *b;
	uint32_t key;

	s.attr.timeout = 0;
	b = bed_open(&s);
	/* not memory, but nothing is read or written in this test */
	cr_assert_eq(karst_mr_reg(b->mem, b->pd, &nothing, 1ull << 32, 1ull << 31,
			     KARST_ACCESS_LOCAL_WRITE, &key),
		0);
	sge = (struct karst_sge){1ull << 32, 1u << 31, key};
	post(b, RDMA_WRITE, 1, .len = 4);
	post(b, RDMA_READ, 2, .sge = &sge, .nsge = 1);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_none(b);
	ack(b, S(0), 1);
	expect_wc(b, 1, SUCCESS);
	cr_assert_eq(expect_pkt(b, RC_READ_REQUEST, S(1))->dma_len, 1u << 31);
	/* exactly 2^23 outstanding: the next waits */
	post(b, RDMA_WRITE, 3, .len = 4);
	expect_none(b);
	/* and the last one is inside, the one behind it outside (Q10) */
	expect_drop(b, GHOST_ACK, send_pkt(b, RC_ACK, S(1 + (1 << 23)), .aeth = 0x1f000000));
	expect_no_wc(b);
	bed_forget(b);
	bed_close(b);
}

/* Q1: what the program has wrong fails in its place: earlier requests complete before. */
Test(rc_requester, q1_failure_waits_for_its_turn)
{
	struct bed *b = bed_rc();

	post(b, RDMA_WRITE, 1, .len = 8, .quiet = true);
	post(b, RDMA_WRITE, 2, .len = 8, .lkey = 0x7777);
	post(b, RDMA_WRITE, 3, .len = 8);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_none(b);
	expect_no_wc(b);
	expect_state(b, RTS);
	ack(b, S(0), 1);
	expect_wc(b, 2, LOC_PROT_ERR);
	expect_wc(b, 3, WR_FLUSH_ERR);
	expect_state(b, ERR);
	cr_assert_eq(count(b, REQ_CQE_ERROR), 2);
	bed_close(b);
}

/* (Q1): LOCAL_INV waits for everything before it, makes the key useless, takes no PSN. */
Test(rc_requester, local_invalidate)
{
	struct bed *b = bed_rc();
	uint32_t key = bed_region(b, 0, 4096, KARST_ACCESS_LOCAL_WRITE);

	post(b, RDMA_WRITE, 1, .len = 8, .lkey = key);
	post(b, LOCAL_INV, 2, .imm = key);
	post(b, RDMA_WRITE, 3, .len = 8);
	post(b, RDMA_WRITE, 4, .len = 8, .lkey = key);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_none(b);
	ack(b, S(0), 1);
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	cr_assert_eq(b->wc.opcode, KARST_WC_LOCAL_INV);
	expect_pkt(b, RC_WRITE_ONLY, S(1));
	ack(b, S(1), 2);
	expect_wc(b, 3, SUCCESS);
	expect_wc(b, 4, LOC_PROT_ERR);
	bed_dereg(b, key);
	bed_close(b);
}

Test(rc_requester, local_invalidate_of_garbage)
{
	struct bed *b = bed_rc();

	post(b, LOCAL_INV, 1, .imm = 0x12345678);
	expect_wc(b, 1, LOC_QP_OP_ERR);
	expect_state(b, ERR);
	bed_close(b);
}

/* A type 2 window: bound by a request, used by the peer, refused after LOCAL_INV. */
Test(rc_requester, bind_window_type_2)
{
	struct bed *b = bed_rc();
	uint32_t mw, key;

	cr_assert_eq(karst_mw_alloc(b->mem, b->pd, KARST_MEM_MW2, &mw), 0);
	key = (mw & ~0xffu) | ((mw + 1) & 0xff);
	post(b, BIND_MW, 1,
		.bind = {.mw_key = mw,
			.new_key = key,
			.mr_key = b->key,
			.va = VA + 1000,
			.len = 100,
			.access = KARST_ACCESS_REMOTE_WRITE});
	expect_wc(b, 1, SUCCESS);
	cr_assert_eq(b->wc.opcode, KARST_WC_BIND_MW);
	cr_assert_eq(b->wc.imm, key);
	expect_taken(b,
		send_pkt(b, RC_WRITE_ONLY, R(0), .va = VA + 1000, .rkey = key, .dma_len = 100,
			.pay_len = 100, .ackreq = true));
	expect_ack(b, R(0), 1);
	expect_mem(b, 1000, 0, 100);
	post(b, LOCAL_INV, 2, .imm = key);
	expect_wc(b, 2, SUCCESS);
	expect_drop(b, REQUEST,
		send_pkt(b, RC_WRITE_ONLY, R(1), .va = VA + 1000, .rkey = key, .dma_len = 4,
			.pay_len = 4));
	expect_nak(b, R(1), REM_ACCESS, 1);
	expect_event(b, QP_ACCESS_ERR);
	bed_close(b);
}

/* A type 1 window belongs to the PD: bound again at will, with a new key each time. */
Test(rc_requester, bind_window_type_1)
{
	struct bed *b = bed_rc();
	uint32_t mw, first;

	cr_assert_eq(karst_mw_alloc(b->mem, b->pd, KARST_MEM_MW1, &mw), 0);
	post(b, BIND_MW, 1,
		.bind = {.mw_key = mw,
			.mr_key = b->key,
			.va = VA,
			.len = 64,
			.access = KARST_ACCESS_REMOTE_READ});
	expect_wc(b, 1, SUCCESS);
	first = b->wc.imm;
	cr_assert_eq(first >> 8, mw >> 8);
	post(b, BIND_MW, 2,
		.bind = {.mw_key = first,
			.mr_key = b->key,
			.va = VA + 64,
			.len = 64,
			.access = KARST_ACCESS_REMOTE_READ});
	expect_wc(b, 2, SUCCESS);
	cr_assert_neq(b->wc.imm, first);
	expect_taken(b,
		send_pkt(b, RC_READ_REQUEST, R(0), .va = VA + 64, .rkey = b->wc.imm, .dma_len = 8));
	expect_pkt(b, RC_READ_RESP_ONLY, R(0));
	expect_drop(b, REQUEST,
		send_pkt(b, RC_READ_REQUEST, R(1), .va = VA + 64, .rkey = first, .dma_len = 8));
	expect_nak(b, R(1), REM_ACCESS, 1);
	bed_forget(b);
	bed_close(b);
}

Test(rc_requester, bind_refused)
{
	struct bed *b = bed_rc();
	uint32_t mw, key = bed_region(b, 0, 64, KARST_ACCESS_LOCAL_WRITE);

	cr_assert_eq(karst_mw_alloc(b->mem, b->pd, KARST_MEM_MW2, &mw), 0);
	post(b, BIND_MW, 1,
		.bind = {.mw_key = mw,
			.new_key = mw ^ 1,
			.mr_key = key, /* without the right to bind */
			.va = VA,
			.len = 64,
			.access = KARST_ACCESS_REMOTE_READ});
	expect_wc(b, 1, MW_BIND_ERR);
	expect_state(b, ERR);
	bed_close(b);
}

/* (Q1): local operations keep their place among others that wait for an acknowledgement. */
Test(rc_requester, q1_local_operation_completes_in_order)
{
	struct bed *b = bed_rc();
	uint32_t mw;

	cr_assert_eq(karst_mw_alloc(b->mem, b->pd, KARST_MEM_MW1, &mw), 0);
	post(b, RDMA_WRITE, 1, .len = 8);
	post(b, BIND_MW, 2,
		.bind = {.mw_key = mw,
			.mr_key = b->key,
			.va = VA,
			.len = 64,
			.access = KARST_ACCESS_REMOTE_READ});
	post(b, RDMA_WRITE, 3, .len = 8);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_pkt(b, RC_WRITE_ONLY, S(1));
	expect_no_wc(b);
	ack(b, S(0), 1);
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	expect_no_wc(b);
	ack(b, S(1), 2);
	expect_wc(b, 3, SUCCESS);
	bed_close(b);
}

/* The doorbell is asked for once the queue has been seen empty, not before. */
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
		/* once is enough until the engine has looked */
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

/* A queue that ran dry is looked at for some turns more, in which nobody need ring. */
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

/* What a visit has seen and not started, because its burst was full, is not forgotten while the
 * queue waits for its turn, or for its port: the program was not told to ring for it. */
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
	karst_core_activate(b->core, b->s->qp); /* for another reason, such as an ACK that came */
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

/* No more than a few queues linger; what goes, errs or is reset does so no longer. */
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

/* A visit stops at its budget of frames or bytes and goes on from there. */
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

/* A budget without end is one even when the burst holds bytes of another QP already. */
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
