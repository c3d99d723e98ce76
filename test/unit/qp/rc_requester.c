/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The RC requester without errors: what it sends for each work request, and what completes when.
 * Its limits, local operations, and visits are in rc_requester_*.c.
 */
#include "harness.h"

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
	/* (Q3): an ACK of a part moves the window and completes no request */
	ack(b, S(1), 0);
	expect_no_wc(b);
	ack(b, S(2), 1);
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* (Q13): where WRITEs are divided, each packet is an Only with its part of the address and length;
 * still only the last one asks (Q2), and the request completes once, as a whole. */
Test(rc_requester, q13_write_divided)
{
	struct setup s = setup_of(KARST_QPT_RC);
	const struct karst_pkt *p;
	struct bed *b;
	uint32_t i;

	s.core.divide_writes = true;
	b = bed_open(&s);
	memcpy(b->buf, b->pattern, 640);
	post(b, RDMA_WRITE, 1, .len = 640);
	for (i = 0; i < 3; i++) {
		p = expect_pkt(b, RC_WRITE_ONLY, S(i));
		cr_assert_eq(p->va, PEER_VA + 256 * i);
		cr_assert_eq(p->rkey, PEER_RKEY);
		cr_assert_eq(p->dma_len, i < 2 ? 256 : 128);
		cr_assert_eq((p->flags & KARST_PKT_ACKREQ) != 0, i == 2);
		expect_data(b, p, 256 * i, p->dma_len);
	}
	ack(b, S(1), 2);
	expect_no_wc(b);
	ack(b, S(2), 3);
	expect_wc(b, 1, SUCCESS);
	cr_assert_eq(b->wc.byte_len, 640);
	expect_no_wc(b);
	/* with an immediate, the peer has to know the length of the whole: not divided */
	post(b, RDMA_WRITE_WITH_IMM, 2, .len = 300, .imm = 7);
	cr_assert_eq(expect_pkt(b, RC_WRITE_FIRST, S(3))->dma_len, 300);
	expect_pkt(b, RC_WRITE_LAST_IMM, S(4));
	bed_forget(b);
	bed_close(b);
}

/* (Q13, Q4): what is sent again has the same form. */
Test(rc_requester, q13_write_divided_again)
{
	struct setup s = setup_of(KARST_QPT_RC);
	const struct karst_pkt *p;
	struct bed *b;
	uint32_t i;

	s.core.divide_writes = true;
	b = bed_open(&s);
	post(b, RDMA_WRITE, 1, .len = 640);
	for (i = 0; i < 3; i++)
		expect_pkt(b, RC_WRITE_ONLY, S(i));
	expect_taken(b, send_nak(b, S(1), 0));
	p = expect_pkt(b, RC_WRITE_ONLY, S(1));
	cr_assert_eq(p->va, PEER_VA + 256);
	cr_assert_eq(p->dma_len, 256);
	p = expect_pkt(b, RC_WRITE_ONLY, S(2));
	cr_assert_eq(p->va, PEER_VA + 512);
	cr_assert_eq(p->dma_len, 128);
	ack(b, S(2), 3);
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* (W5): every SEND and WRITE with the headers that its last packet carries. */
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

/* SE is set in the last packet, and only where it has an effect. */
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

/* (P1, W10): an empty message takes one packet and one PSN, in every operation. */
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

/* SGEs of any length, also of none, are gathered across packet boundaries. */
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

/* (Q1): inline data is in the request, and no key is checked. */
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

/* (Q1): an unsignaled request completes with the next signaled one, which frees its slot. */
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
