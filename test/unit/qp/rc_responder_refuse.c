/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What the RC responder refuses: packets out of sequence, memory that the peer may not use,
 * messages that do not fit, keys that cannot be invalidated (R1, R7, R9, R13).
 */
#include "harness.h"

/* A refused request: NAK, event, Error, and nothing touched (R13). */
static void
expect_refused_at(struct bed *b, int line, uint32_t psn, uint8_t code, uint32_t msn,
	enum karst_async_event_code event)
{
	expect_aeth_at(b, __FILE__, line, psn, KARST_AETH_NAK | code, msn);
	expect_event_at(b, __FILE__, line, event, b->s->qp);
	expect_state_at(b, __FILE__, line, KARST_QPS_ERR);
	cr_assert_eq(count(b, ERROR_NAK_SENT), 1);
	expect_untouched_at(b, __FILE__, line, 0, BUF_BYTES);
}
#define expect_inv_req(b, psn) \
	expect_refused_at(b, __LINE__, psn, KARST_NAK_INV_REQ, 0, KARST_EVENT_QP_REQ_ERR)
#define expect_access(b, psn) \
	expect_refused_at(b, __LINE__, psn, KARST_NAK_REM_ACCESS, 0, KARST_EVENT_QP_ACCESS_ERR)

struct wrong {
	const char *what;
	uint8_t first; /* 0xff: no packet before it */
	uint8_t opcode;
	uint16_t pay_len;
	uint32_t dma_len;
};

static const struct wrong wrong_order[] = {
	{"SEND Middle out of the blue", 0xff, KARST_RC_SEND_MIDDLE, 256, 0},
	{"SEND Last out of the blue", 0xff, KARST_RC_SEND_LAST, 4, 0},
	{"SEND Last Imm out of the blue", 0xff, KARST_RC_SEND_LAST_IMM, 4, 0},
	{"SEND Last Inv out of the blue", 0xff, KARST_RC_SEND_LAST_INV, 4, 0},
	{"WRITE Middle out of the blue", 0xff, KARST_RC_WRITE_MIDDLE, 256, 0},
	{"WRITE Last out of the blue", 0xff, KARST_RC_WRITE_LAST, 4, 0},
	{"WRITE Last Imm out of the blue", 0xff, KARST_RC_WRITE_LAST_IMM, 4, 0},
	{"short SEND First", 0xff, KARST_RC_SEND_FIRST, 255, 0},
	{"long SEND First", 0xff, KARST_RC_SEND_FIRST, 257, 0},
	{"short WRITE First", 0xff, KARST_RC_WRITE_FIRST, 252, 512},
	{"long SEND Only", 0xff, KARST_RC_SEND_ONLY, 257, 0},
	{"long WRITE Only", 0xff, KARST_RC_WRITE_ONLY, 260, 260},
	{"RETH longer than WRITE Only", 0xff, KARST_RC_WRITE_ONLY, 8, 9},
	{"RETH shorter than WRITE Only", 0xff, KARST_RC_WRITE_ONLY, 8, 7},
	{"WRITE First that is all", 0xff, KARST_RC_WRITE_FIRST, 256, 256},
	{"WRITE of more than 2^31", 0xff, KARST_RC_WRITE_FIRST, 256, 0x80000001},
	{"FLUSH to nowhere", 0xff, KARST_RC_FLUSH, 0, 8},
};

static const struct wrong wrong_next[] = {
	{"SEND First twice", KARST_RC_SEND_FIRST, KARST_RC_SEND_FIRST, 256, 0},
	{"SEND Only in a SEND", KARST_RC_SEND_FIRST, KARST_RC_SEND_ONLY, 4, 0},
	{"WRITE Middle in a SEND", KARST_RC_SEND_FIRST, KARST_RC_WRITE_MIDDLE, 256, 0},
	{"WRITE Last in a SEND", KARST_RC_SEND_FIRST, KARST_RC_WRITE_LAST, 4, 0},
	{"READ in a SEND", KARST_RC_SEND_FIRST, KARST_RC_READ_REQUEST, 0, 8},
	{"FLUSH in a SEND", KARST_RC_SEND_FIRST, KARST_RC_FLUSH, 0, 8},
	{"atomic in a SEND", KARST_RC_SEND_FIRST, KARST_RC_FETCH_ADD, 0, 0},
	{"empty SEND Last", KARST_RC_SEND_FIRST, KARST_RC_SEND_LAST, 0, 0},
	{"long SEND Last", KARST_RC_SEND_FIRST, KARST_RC_SEND_LAST, 257, 0},
	{"short SEND Middle", KARST_RC_SEND_FIRST, KARST_RC_SEND_MIDDLE, 200, 0},
	{"SEND Middle in a WRITE", KARST_RC_WRITE_FIRST, KARST_RC_SEND_MIDDLE, 256, 0},
	{"SEND Only in a WRITE", KARST_RC_WRITE_FIRST, KARST_RC_SEND_ONLY, 4, 0},
	{"WRITE First twice", KARST_RC_WRITE_FIRST, KARST_RC_WRITE_FIRST, 256, 600},
	{"ATOMIC WRITE in a WRITE", KARST_RC_WRITE_FIRST, KARST_RC_ATOMIC_WRITE, 8, 8},
	{"empty WRITE Last", KARST_RC_WRITE_FIRST, KARST_RC_WRITE_LAST, 0, 0},
	{"WRITE Last that is too short", KARST_RC_WRITE_FIRST, KARST_RC_WRITE_LAST, 40, 0},
	{"WRITE Last that is too long", KARST_RC_WRITE_FIRST, KARST_RC_WRITE_LAST, 48, 0},
	{"WRITE Middle that is too much", KARST_RC_WRITE_FIRST, KARST_RC_WRITE_MIDDLE, 256, 0},
};

static void
send_wrong(struct bed *b, const struct wrong *w, uint32_t n)
{
	struct karst_ib_hdrs ib = {.opcode = w->opcode,
		.psn = R(n),
		.va = VA,
		.rkey = b->key,
		.dma_len = w->dma_len,
		.pay_len = w->pay_len,
		.ackreq = true};

	cr_assert_eq(bed_rx(b, &ib), KARST_DROP_REQUEST, "%s", w->what);
}

/* (R1, W10, L3, R13): opcode and length, outside of a message. */
Test(rc_responder, r1_first_packet)
{
	unsigned int i;

	for (i = 0; i < KARST_DIM(wrong_order); i++) {
		struct bed *b = bed_rc();

		post_recv(b, 1, 0, 4096);
		send_wrong(b, &wrong_order[i], 0);
		expect_inv_req(b, R(0));
		expect_recv(b, 1, WR_FLUSH_ERR);
		bed_close(b);
	}
}

/* (R1, W10, L3): and in the middle of a SEND or WRITE of 300 bytes. */
Test(rc_responder, r1_next_packet)
{
	unsigned int i;

	for (i = 0; i < KARST_DIM(wrong_next); i++) {
		const struct wrong *w = &wrong_next[i];
		struct bed *b = bed_rc();
		struct karst_ib_hdrs ib = {.opcode = w->first,
			.psn = R(0),
			.va = VA,
			.rkey = b->key,
			.dma_len = 300,
			.pay_len = 256};

		post_recv(b, 1, 0, 4096);
		expect_taken(b, bed_rx(b, &ib));
		send_wrong(b, w, 1);
		expect_nak(b, R(1), INV_REQ, 0);
		expect_event(b, QP_REQ_ERR);
		expect_recv(b, 1, WR_FLUSH_ERR);
		expect_untouched(b, 256, 512);
		bed_close(b);
	}
}

/* (R1, L3): key, PD, right, range; the check at the first packet covers the whole message. */

struct no_access {
	const char *what;
	uint64_t va;
	uint32_t len;
	unsigned int rights; /* of the region [1024, 2048) that is named; ~0: an invalid key */
};

static const struct no_access no_access[] = {
	{"no such key", VA + 1024, 8, ~0u},
	{"no right to write", VA + 1024, 8, KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_READ},
	{"begins before", VA + 1023, 8, KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE},
	{"ends behind", VA + 2041, 8, KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE},
	{"wraps around", UINT64_MAX - 3, 8, KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE},
	{"later packets end behind", VA + 1536, 513,
		KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE},
};

Test(rc_responder, r1_write_access)
{
	unsigned int i;

	for (i = 0; i < KARST_DIM(no_access); i++) {
		const struct no_access *a = &no_access[i];
		struct bed *b = bed_rc();
		uint32_t key = a->rights == ~0u ? 0x666 : bed_region(b, 1024, 1024, a->rights);
		struct karst_ib_hdrs ib = {
			.opcode = a->len > MTU ? KARST_RC_WRITE_FIRST : KARST_RC_WRITE_ONLY,
			.psn = R(0),
			.va = a->va,
			.rkey = key,
			.dma_len = a->len,
			.pay_len = (uint16_t)(a->len > MTU ? MTU : a->len)};

		cr_assert_eq(bed_rx(b, &ib), KARST_DROP_REQUEST, "%s", a->what);
		expect_access(b, R(0));
		bed_close(b);
	}
}

Test(rc_responder, r1_read_access)
{
	struct bed *b = bed_rc();
	uint32_t key = bed_region(b, 0, 64, KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE);

	expect_drop(b, REQUEST,
		send_pkt(b, RC_READ_REQUEST, R(0), .va = VA, .rkey = key, .dma_len = 8));
	expect_access(b, R(0));
	bed_close(b);
}

Test(rc_responder, r1_atomic_access)
{
	struct bed *b = bed_rc();
	uint32_t key = bed_region(b, 0, 64,
		KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE | KARST_ACCESS_REMOTE_READ);

	expect_drop(b, REQUEST, send_pkt(b, RC_FETCH_ADD, R(0), .va = VA, .rkey = key));
	expect_access(b, R(0));
	bed_close(b);
}

/* (R1): a region of another protection domain. */
Test(rc_responder, r1_other_pd)
{
	struct bed *b = bed_rc();
	uint32_t pd, key;

	cr_assert_eq(karst_pd_alloc(b->mem, &pd), 0);
	cr_assert_eq(karst_mr_reg(b->mem, pd, b->buf, VA, 64,
			     KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE, &key),
		0);
	expect_drop(b, REQUEST,
		send_pkt(
			b, RC_WRITE_ONLY, R(0), .va = VA, .rkey = key, .dma_len = 4, .pay_len = 4));
	expect_access(b, R(0));
	bed_close(b);
}

/* (R1): an operation that the QP itself does not allow is an invalid request. */
Test(rc_responder, r1_access_flags_of_the_qp)
{
	static const struct wrong requests[] = {
		{"WRITE", 0xff, KARST_RC_WRITE_ONLY, 8, 8},
		{"READ", 0xff, KARST_RC_READ_REQUEST, 0, 8},
		{"CmpSwap", 0xff, KARST_RC_CMP_SWAP, 0, 0},
		{"FetchAdd", 0xff, KARST_RC_FETCH_ADD, 0, 0},
		{"ATOMIC WRITE", 0xff, KARST_RC_ATOMIC_WRITE, 8, 8},
	};
	unsigned int i;

	for (i = 0; i < KARST_DIM(requests); i++) {
		struct setup s = setup_of(KARST_QPT_RC);
		struct bed *b;

		s.attr.access_flags = 0;
		b = bed_open(&s);
		send_wrong(b, &requests[i], 0);
		expect_inv_req(b, R(0));
		bed_close(b);
	}
}

/* A window of another QP (type 2) cannot be used (R1). */
Test(rc_responder, r1_window_of_another_qp)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b = bed_open(&s);
	uint32_t mw, key;

	cr_assert_eq(karst_mw_alloc(b->mem, b->pd, KARST_MEM_MW2, &mw), 0);
	bed_bind(b, 1, mw, mw, KARST_ACCESS_REMOTE_WRITE);
	expect_wc(b, 1, SUCCESS);
	key = b->wc.imm;
	bed_add(b, &s);
	expect_drop(b, REQUEST,
		send_pkt(
			b, RC_WRITE_ONLY, R(0), .va = VA, .rkey = key, .dma_len = 4, .pay_len = 4));
	expect_access(b, R(0));
	b->s = &b->side[0];
	expect_taken(b,
		send_pkt(
			b, RC_WRITE_ONLY, R(0), .va = VA, .rkey = key, .dma_len = 4, .pay_len = 4));
	bed_close(b);
}

/* Memory that vanishes in the middle of a WRITE stops it there (R1). */
Test(rc_responder, r1_region_gone_within_a_write)
{
	struct bed *b = bed_rc();
	uint32_t key = bed_region(b, 0, 4096, KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE);

	expect_taken(b,
		send_pkt(b, RC_WRITE_FIRST, R(0), .va = VA, .rkey = key, .dma_len = 300,
			.pay_len = 256));
	bed_dereg(b, key);
	expect_drop(b, REQUEST, send_pkt(b, RC_WRITE_LAST, R(1), .pay_len = 44));
	expect_nak(b, R(1), REM_ACCESS, 0);
	expect_event(b, QP_ACCESS_ERR);
	expect_untouched(b, 256, 44);
	bed_close(b);
}

/* (R7, L3): misaligned. */
Test(rc_responder, r7_misaligned)
{
	uint32_t off;

	for (off = 1; off < 8; off++) {
		struct bed *b = bed_rc();

		expect_drop(b, REQUEST,
			send_pkt(b, RC_FETCH_ADD, R(0), .va = VA + off, .rkey = b->key,
				.swap_add = 1));
		expect_inv_req(b, R(0));
		bed_close(b);
	}
}

/* (R7): aligned for the peer, but the region is not aligned in memory. */
Test(rc_responder, r7_region_misaligned)
{
	struct bed *b = bed_rc();
	uint32_t key;

	cr_assert_eq(karst_mr_reg(b->mem, b->pd, b->buf + 4, 0, 64,
			     KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_ATOMIC |
				     KARST_ACCESS_ZERO_BASED,
			     &key),
		0);
	expect_drop(b, REQUEST, send_pkt(b, RC_FETCH_ADD, R(0), .va = 8, .rkey = key));
	expect_access(b, R(0));
	bed_close(b);
}

/* (R9, L3): a receive request that is too small: karst reports an invalid request. */
Test(rc_responder, r9_too_long)
{
	struct bed *b = bed_rc();

	post_recv(b, 1, 0, 300);
	post_recv(b, 2, 0, 300);
	expect_taken(b, send_pkt(b, RC_SEND_FIRST, R(0), .pay_len = 256));
	expect_drop(b, REQUEST, send_pkt(b, RC_SEND_LAST, R(1), .pay_len = 45, .ackreq = true));
	expect_nak(b, R(1), INV_REQ, 0);
	expect_recv(b, 1, LOC_LEN_ERR);
	expect_recv(b, 2, WR_FLUSH_ERR);
	expect_event(b, QP_REQ_ERR);
	expect_untouched(b, 256, 300);
	cr_assert_eq(count(b, RESP_CQE_ERROR), 2);
	bed_close(b);
}

/* (R9): the receive request itself is invalid: key, PD, range, number of SGEs. */
Test(rc_responder, r9_bad_receive)
{
	unsigned int i;

	for (i = 0; i < 5; i++) {
		struct bed *b = bed_rc();
		struct karst_sge sge = {VA, 300, b->key};
		uint32_t pd, nsge = 1;

		switch (i) {
		case 0:
			sge.lkey = 0x666;
			break;
		case 1:
			sge.addr = VA + BUF_BYTES - 4;
			break;
		case 2:
			cr_assert_eq(karst_pd_alloc(b->mem, &pd), 0);
			cr_assert_eq(karst_mr_reg(b->mem, pd, b->buf, VA, 300,
					     KARST_ACCESS_LOCAL_WRITE, &sge.lkey),
				0);
			break;
		case 3: /* read-only */
			sge.lkey = bed_region(b, 0, 300, 0);
			break;
		default:
			nsge = 5;
		}
		if (nsge == 5) {
			post_recv_sge(b, 1, &sge, 1);
			((struct karst_recv_wqe *)(void *)b->s->rq.slots)->num_sge = nsge;
		} else {
			post_recv_sge(b, 1, &sge, 1);
		}
		expect_drop(b, REQUEST, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 16));
		expect_nak(b, R(0), REM_OP, 0);
		expect_recv(b, 1, LOC_PROT_ERR);
		expect_event(b, QP_REQ_ERR);
		expect_untouched(b, 0, BUF_BYTES);
		bed_close(b);
	}
}

/* SEND with Invalidate: the window that it names is invalidated (R9). */
Test(rc_responder, r9_send_with_invalidate)
{
	struct bed *b = bed_rc();
	uint32_t mw, key;

	cr_assert_eq(karst_mw_alloc(b->mem, b->pd, KARST_MEM_MW2, &mw), 0);
	bed_bind(b, 1, mw, mw, KARST_ACCESS_REMOTE_WRITE);
	expect_wc(b, 1, SUCCESS);
	key = b->wc.imm;
	post_recv(b, 2, 4096, 64);
	expect_taken(b,
		send_pkt(b, RC_SEND_ONLY_INV, R(0), .inv_rkey = key, .pay_len = 8, .ackreq = true));
	expect_ack(b, R(0), 1);
	expect_recv(b, 2, SUCCESS);
	cr_assert_eq(b->wc.flags, KARST_WC_WITH_INV);
	cr_assert_eq(b->wc.imm, key);
	expect_drop(b, REQUEST,
		send_pkt(
			b, RC_WRITE_ONLY, R(1), .va = VA, .rkey = key, .dma_len = 4, .pay_len = 4));
	expect_nak(b, R(1), REM_ACCESS, 1);
	expect_untouched(b, 0, 64);
	bed_forget(b);
	bed_close(b);
}

/* (R9, L8): a key that cannot be invalidated: the data is placed and acknowledged, MSN is not
 * moved, Error. */
Test(rc_responder, r9_invalidate_fails)
{
	struct bed *b = bed_rc();

	post_recv(b, 1, 0, 64);
	post_recv(b, 2, 0, 64);
	/* a region cannot be invalidated by a peer */
	expect_taken(b,
		send_pkt(b, RC_SEND_ONLY_INV, R(0), .inv_rkey = b->key, .pay_len = 8,
			.ackreq = true));
	expect_ack(b, R(0), 0);
	expect_mem(b, 0, 0, 8);
	expect_recv(b, 1, REM_INV_REQ_ERR);
	expect_recv(b, 2, WR_FLUSH_ERR);
	expect_event(b, QP_ACCESS_ERR);
	expect_state(b, ERR);
	bed_close(b);
}

/* (R13): after a fatal NAK nothing is answered, and the NAK is sent behind responses that are
 * due. */
Test(rc_responder, r13_nak_behind_responses)
{
	struct bed *b = bed_rc();

	expect_taken(b, send_pkt(b, RC_READ_REQUEST, R(0), .va = VA, .rkey = b->key, .dma_len = 8));
	expect_drop(b, REQUEST,
		send_pkt(b, RC_WRITE_ONLY, R(1), .va = VA, .rkey = 1, .dma_len = 4, .pay_len = 4));
	expect_drop(b, QP_STATE, send_write(b, R(1), 0, 4));
	expect_pkt(b, RC_READ_RESP_ONLY, R(0));
	expect_nak(b, R(1), REM_ACCESS, 1);
	expect_event(b, QP_ACCESS_ERR);
	expect_drop(b, QP_STATE, send_write(b, R(1), 0, 4));
	expect_none(b);
	bed_close(b);
}

/* The NAK is sent even when the burst has no room for it at first (R13). */
Test(rc_responder, r13_nak_when_the_burst_is_full)
{
	struct bed *b = bed_rc();

	expect_taken(
		b, send_pkt(b, RC_READ_REQUEST, R(0), .va = VA, .rkey = b->key, .dma_len = 300));
	expect_drop(b, REQUEST, send_pkt(b, RC_SEND_MIDDLE, R(2), .pay_len = 256));
	cr_assert(turn_once(b, 1, UINT32_MAX));
	cr_assert(turn_once(b, 1, UINT32_MAX));
	turn_once(b, 1, UINT32_MAX);
	expect_pkt(b, RC_READ_RESP_FIRST, R(0));
	expect_pkt(b, RC_READ_RESP_LAST, R(1));
	expect_nak(b, R(2), INV_REQ, 1);
	expect_event(b, QP_REQ_ERR);
	bed_close(b);
}
