/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* FLUSH (R15): both ends of it. */
#include "harness.h"

#define GLOBAL     KARST_FLUSH_GLOBAL
#define PERSISTENT KARST_FLUSH_PERSISTENT
#define WHOLE      (KARST_FLUSH_MR << 4) /* as it is in a FETH */

/* A FLUSH of @len_ bytes at VA + @off_, or of the whole region of @key_. */
#define flush_key(b, seq, feth_, off_, len_, key_)                                     \
	send_pkt(b, RC_FLUSH, seq, .feth = (feth_), .va = VA + (off_), .rkey = (key_), \
		.dma_len = (len_), .ackreq = true)
#define flush(b, seq, feth_, off_, len_) flush_key(b, seq, feth_, off_, len_, (b)->key)

/* --- responder --- */

/* Behind a WRITE and in one burst with it: both are executed, and one response answers both. */
Test(rc_flush, r15_answer)
{
	struct bed *b = bed_rc();
	const struct karst_pkt *p;

	expect_taken(b, send_write(b, R(0), 0, 64));
	expect_taken(b, flush(b, R(1), GLOBAL, 0, 64));
	expect_mem(b, 0, 0, 64);
	p = expect_pkt(b, RC_READ_RESP_ONLY, R(1));
	cr_assert_eq(p->pay_len, 0);
	cr_assert_eq(p->aeth, 0x1f000002);
	expect_none(b);
	cr_assert_eq(count(b, RX_FLUSH_REQUESTS), 1);
	cr_assert_eq(count(b, RX_REQUESTS), 2);
	bed_close(b);
}

/* A WRITE before it is missing: no answer, and it is requested again after that (R2). */
Test(rc_flush, r15_comes_in_its_turn)
{
	struct bed *b = bed_rc();

	expect_drop(b, SEQUENCE, flush(b, R(1), GLOBAL, 0, 64));
	expect_nak(b, R(0), PSN_SEQ, 0);
	expect_none(b);
	cr_assert_eq(count(b, RX_FLUSH_REQUESTS), 0);
	expect_taken(b, send_write(b, R(0), 0, 64));
	expect_ack(b, R(0), 1);
	expect_taken(b, flush(b, R(1), GLOBAL, 0, 64));
	expect_pkt(b, RC_READ_RESP_ONLY, R(1));
	bed_close(b);
}

/* A whole region: address and length are ignored, only the key counts. */
Test(rc_flush, r15_whole_region)
{
	struct bed *b = bed_rc();

	expect_taken(b, flush(b, R(0), WHOLE | GLOBAL, 0u - VA, 0));
	expect_pkt(b, RC_READ_RESP_ONLY, R(0));
	expect_taken(b, flush(b, R(1), WHOLE | GLOBAL, BUF_BYTES, 0xffffffff));
	expect_pkt(b, RC_READ_RESP_ONLY, R(1));
	/* reserved bits of the FETH are ignored */
	expect_taken(b, flush(b, R(2), 0xffffffc0u | GLOBAL, 0, 8));
	expect_pkt(b, RC_READ_RESP_ONLY, R(2));
	bed_close(b);
}

/* An empty range is valid from the first address to the one behind the last. */
Test(rc_flush, r15_empty_range)
{
	struct bed *b = bed_rc();

	expect_taken(b, flush(b, R(0), GLOBAL, 0, 0));
	expect_pkt(b, RC_READ_RESP_ONLY, R(0));
	expect_taken(b, flush(b, R(1), GLOBAL, BUF_BYTES, 0));
	expect_pkt(b, RC_READ_RESP_ONLY, R(1));
	bed_close(b);
}

static void
expect_refused(struct bed *b, const char *what, uint8_t code, enum karst_async_event_code event)
{
	expect_aeth_at(b, what, 0, R(0), KARST_AETH_NAK | code, 0);
	expect_event_at(b, what, 0, event, b->s->qp);
	expect_state(b, ERR);
	cr_assert_eq(count(b, RX_FLUSH_REQUESTS), 0, "%s", what);
}

/* (R1): types and levels that are unknown or not supported. */
Test(rc_flush, r15_invalid)
{
	static const struct {
		const char *what;
		uint32_t feth;
	} bad[] = {
		{"no placement type", 0},
		{"an unknown one", 4},
		{"an unknown one besides", 8 | GLOBAL},
		{"level 2", 0x20 | GLOBAL},
		{"level 3", 0x30 | GLOBAL},
		{"persistence", PERSISTENT},
		{"persistence besides", PERSISTENT | GLOBAL},
		{"persistence of all", WHOLE | PERSISTENT},
	};
	unsigned int i;

	for (i = 0; i < KARST_DIM(bad); i++) {
		struct bed *b = bed_rc();

		expect_drop(b, REQUEST, flush(b, R(0), bad[i].feth, 0, 8));
		expect_refused(b, bad[i].what, KARST_NAK_INV_REQ, KARST_EVENT_QP_REQ_ERR);
		bed_close(b);
	}
}

/* (R1): key, right and range are checked; for no bytes, too, unlike READ and WRITE (R12). */
Test(rc_flush, r15_access)
{
	static const struct {
		const char *what;
		unsigned int access;
		uint32_t key; /* changes the key */
		uint32_t feth;
		uint32_t off;
		uint32_t len;
	} bad[] = {
		{"no right", KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE, 0, GLOBAL, 1024,
			8},
		{"no right to all", KARST_ACCESS_REMOTE_READ, 0, WHOLE | GLOBAL, 1024, 8},
		{"no such key", KARST_ACCESS_FLUSH_GLOBAL, 1, GLOBAL, 1024, 8},
		{"no such key, nothing", KARST_ACCESS_FLUSH_GLOBAL, 1, GLOBAL, 1024, 0},
		{"no such key, all", KARST_ACCESS_FLUSH_GLOBAL, 1u << 20, WHOLE | GLOBAL, 1024, 8},
		{"begins before", KARST_ACCESS_FLUSH_GLOBAL, 0, GLOBAL, 1023, 8},
		{"ends behind", KARST_ACCESS_FLUSH_GLOBAL, 0, GLOBAL, 2041, 8},
		{"nothing, behind", KARST_ACCESS_FLUSH_GLOBAL, 0, GLOBAL, 2049, 0},
	};
	unsigned int i;

	for (i = 0; i < KARST_DIM(bad); i++) {
		struct bed *b = bed_rc();
		uint32_t key = bed_region(b, 1024, 1024, bad[i].access);

		expect_drop(b, REQUEST,
			flush_key(b, R(0), bad[i].feth, bad[i].off, bad[i].len, key ^ bad[i].key));
		expect_refused(b, bad[i].what, KARST_NAK_REM_ACCESS, KARST_EVENT_QP_ACCESS_ERR);
		bed_close(b);
	}
}

/* (R1): rights of the queue pair; FLUSH has a right of its own. */
Test(rc_flush, r15_right_of_the_qp)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.attr.access_flags = KARST_ACCESS_REMOTE & ~KARST_ACCESS_FLUSH_GLOBAL;
	b = bed_open(&s);
	expect_drop(b, REQUEST, flush(b, R(0), GLOBAL, 0, 8));
	expect_refused(b, "FLUSH", KARST_NAK_INV_REQ, KARST_EVENT_QP_REQ_ERR);
	bed_close(b);
	s.attr.access_flags = KARST_ACCESS_FLUSH_GLOBAL;
	b = bed_open(&s);
	expect_taken(b, flush(b, R(0), GLOBAL, 0, 8));
	expect_pkt(b, RC_READ_RESP_ONLY, R(0));
	bed_close(b);
}

/* The right to persistent FLUSH cannot be given. */
Test(rc_flush, r15_no_persistence)
{
	struct bed *b = bed_rc();
	struct karst_core_qp_attr attr = {.access_flags = KARST_ACCESS_FLUSH_PERSISTENT};
	uint32_t key;

	cr_assert_eq(karst_qp_modify(b->core, b->s->qp, &attr, KARST_QP_ACCESS_FLAGS), -EINVAL);
	cr_assert_eq(karst_mr_reg(b->mem, b->pd, b->buf, VA, 64,
			     KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_FLUSH_PERSISTENT, &key),
		-EINVAL);
	bed_close(b);
}

/* A window has the right that it was bound with, and "the whole region" is the window. */
Test(rc_flush, r15_window)
{
	static const struct {
		unsigned int access;
		uint32_t feth;
		uint32_t off;
		bool good;
	} flushes[] = {
		{KARST_ACCESS_FLUSH_GLOBAL, GLOBAL, 0, true},
		{KARST_ACCESS_FLUSH_GLOBAL, WHOLE | GLOBAL, 4096, true},
		{KARST_ACCESS_FLUSH_GLOBAL, GLOBAL, 64, false},
		{KARST_ACCESS_REMOTE_WRITE, WHOLE | GLOBAL, 0, false},
	};
	unsigned int i;

	for (i = 0; i < KARST_DIM(flushes); i++) {
		struct bed *b = bed_rc();
		uint32_t mw;

		cr_assert_eq(karst_mw_alloc(b->mem, b->pd, KARST_MEM_MW2, &mw), 0);
		bed_bind(b, 1, mw, mw, flushes[i].access);
		expect_wc(b, 1, SUCCESS);
		if (flushes[i].good) {
			expect_taken(b,
				flush_key(b, R(0), flushes[i].feth, flushes[i].off, 8, b->wc.imm));
			expect_pkt(b, RC_READ_RESP_ONLY, R(0));
		} else {
			expect_drop(b, REQUEST,
				flush_key(b, R(0), flushes[i].feth, flushes[i].off, 8, b->wc.imm));
			expect_refused(
				b, "window", KARST_NAK_REM_ACCESS, KARST_EVENT_QP_ACCESS_ERR);
		}
		bed_close(b);
	}
}

/* (R5, R6): a duplicate is answered again, whatever has become of the key, and not executed; the
 * answer is sent after responses that are under way. */
Test(rc_flush, r15_duplicate)
{
	struct bed *b = bed_rc();
	uint32_t key = bed_region(b, 0, 64, KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE);

	expect_taken(b, send_write(b, R(0), 0, 8));
	expect_taken(b, flush_key(b, R(1), GLOBAL, 0, 8, key));
	expect_pkt(b, RC_READ_RESP_ONLY, R(1));
	bed_dereg(b, key);
	expect_taken(b, flush_key(b, R(1), GLOBAL, 0, 8, key));
	cr_assert_eq(expect_pkt(b, RC_READ_RESP_ONLY, R(1))->aeth, 0x1f000002);
	cr_assert_eq(count(b, RX_FLUSH_REQUESTS), 1);
	cr_assert_eq(count(b, DUPLICATE_REQUEST), 1);
	/* (R3, L12): a duplicate of the request before it is not acknowledged with its PSN the
	 * first time */
	expect_drop(b, DUPLICATE, send_write(b, R(0), 0, 8));
	expect_none(b);
	expect_drop(b, DUPLICATE, send_write(b, R(0), 0, 8));
	expect_ack(b, R(0), 2);
	/* another kind of request with that PSN, or none, is not a duplicate of it */
	expect_drop(b, DUPLICATE,
		send_pkt(b, RC_READ_REQUEST, R(1), .va = VA, .rkey = b->key, .dma_len = 8));
	expect_drop(b, DUPLICATE,
		send_pkt(b, RC_FETCH_ADD, R(1), .va = VA, .rkey = b->key, .swap_add = 1));
	expect_drop(b, DUPLICATE, flush(b, R(0), GLOBAL, 0, 8));
	expect_none(b);
	bed_close(b);
}

/* (R6): it counts towards the limit of outstanding READs and atomics. */
Test(rc_flush, r6_counts)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.attr.max_dest_rd_atomic = 2;
	b = bed_open(&s);
	expect_taken(b, send_pkt(b, RC_READ_REQUEST, R(0), .va = VA, .rkey = b->key, .dma_len = 8));
	expect_taken(b, flush(b, R(1), GLOBAL, 0, 8));
	expect_drop(b, REQUEST, flush(b, R(2), GLOBAL, 0, 8));
	expect_pkt(b, RC_READ_RESP_ONLY, R(0));
	expect_pkt(b, RC_READ_RESP_ONLY, R(1));
	expect_nak(b, R(2), INV_REQ, 2);
	expect_event(b, QP_REQ_ERR);
	bed_close(b);
}

/* --- requester --- */

static const struct karst_pkt *
expect_flush(struct bed *b, uint32_t psn, uint8_t type, uint8_t level, uint32_t len)
{
	const struct karst_pkt *p = expect_pkt(b, RC_FLUSH, psn);
	const uint8_t *feth = p->data + p->bth_off + KARST_BTH_LEN;

	cr_assert_eq(karst_get_be32(feth), (uint32_t)level << 4 | type);
	cr_assert_eq(p->va, PEER_VA);
	cr_assert_eq(p->rkey, PEER_RKEY);
	cr_assert_eq(p->dma_len, len);
	cr_assert_eq(p->pay_len, 0);
	cr_assert(p->flags & KARST_PKT_ACKREQ);
	return p;
}

/* (W3, W5): FETH and RETH; the answer is an empty READ response, and nothing else is accepted. */
Test(rc_flush, r15_request)
{
	struct bed *b = bed_rc();

	post(b, FLUSH, 1, .flush = {.len = 0xfffffff0, .type = GLOBAL});
	post(b, FLUSH, 2, .flush = {.type = GLOBAL | PERSISTENT, .level = KARST_FLUSH_MR});
	expect_flush(b, S(0), GLOBAL, KARST_FLUSH_RANGE, 0xfffffff0);
	expect_flush(b, S(1), GLOBAL | PERSISTENT, KARST_FLUSH_MR, 0);
	expect_drop(b, UNEXPECTED_RESPONSE, send_pkt(b, RC_ATOMIC_ACK, S(0), .orig = 1));
	expect_drop(b, UNEXPECTED_RESPONSE, send_pkt(b, RC_READ_RESP_FIRST, S(0), .pay_len = 256));
	expect_no_wc(b);
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(0), .aeth = 0x1f000001));
	expect_wc(b, 1, SUCCESS);
	cr_assert_eq(b->wc.opcode, KARST_WC_FLUSH);
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(1), .aeth = 0x1f000002));
	expect_wc(b, 2, SUCCESS);
	bed_close(b);
}

/* (Q3): an answer acknowledges the WRITE before it; an ACK that passes it shows that the answer was
 * lost. */
Test(rc_flush, q3_lost_answer)
{
	struct bed *b = bed_rc();

	post(b, RDMA_WRITE, 1, .len = 8);
	post(b, FLUSH, 2, .flush = {.len = 8, .type = GLOBAL});
	post(b, RDMA_WRITE, 3, .len = 8);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_pkt(b, RC_FLUSH, S(1));
	expect_pkt(b, RC_WRITE_ONLY, S(2));
	expect_taken(b, send_ack(b, S(2), 3));
	expect_wc(b, 1, SUCCESS);
	expect_no_wc(b);
	expect_flush(b, S(1), GLOBAL, KARST_FLUSH_RANGE, 8);
	expect_none(b);
	/* and the acknowledgement counts when the answer has come */
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(1), .aeth = 0x1f000002));
	expect_wc(b, 2, SUCCESS);
	expect_wc(b, 3, SUCCESS);
	bed_close(b);
}

/* (Q4, Q6): after a NAK and after a timeout it is sent again, unchanged. */
Test(rc_flush, q4_q6_again)
{
	struct bed *b = bed_rc();

	post(b, RDMA_WRITE, 1, .len = 8);
	post(b, FLUSH, 2, .flush = {.type = GLOBAL, .level = KARST_FLUSH_MR});
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_flush(b, S(1), GLOBAL, KARST_FLUSH_MR, 0);
	expect_taken(b, send_nak(b, S(0), KARST_NAK_PSN_SEQ));
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_flush(b, S(1), GLOBAL, KARST_FLUSH_MR, 0);
	ack(b, S(0), 1);
	expect_wc(b, 1, SUCCESS);
	advance_time(b, 10ull * 1000 * 1000 * 1000);
	advance_time(b, 10ull * 1000 * 1000 * 1000);
	expect_flush(b, S(1), GLOBAL, KARST_FLUSH_MR, 0);
	bed_forget(b);
	bed_close(b);
}

/* (Q8): the peer refuses it. */
Test(rc_flush, q8_refused)
{
	struct bed *b = bed_rc();

	post(b, FLUSH, 1, .flush = {.len = 8, .type = PERSISTENT});
	expect_pkt(b, RC_FLUSH, S(0));
	expect_taken(b, send_nak(b, S(0), KARST_NAK_INV_REQ));
	expect_wc(b, 1, REM_INV_REQ_ERR);
	expect_state(b, ERR);
	bed_close(b);
}

/* (Q5, Q1): it counts like a READ, and a fence waits for it. */
Test(rc_flush, q5_q1_counts)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.attr.max_rd_atomic = 1;
	b = bed_open(&s);
	post(b, FLUSH, 1, .flush = {.len = 8, .type = GLOBAL});
	post(b, FLUSH, 2, .flush = {.len = 8, .type = GLOBAL});
	expect_pkt(b, RC_FLUSH, S(0));
	expect_none(b);
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(0)));
	expect_wc(b, 1, SUCCESS);
	expect_pkt(b, RC_FLUSH, S(1));
	post(b, SEND, 3, .len = 8, .flags = KARST_SEND_FENCE);
	expect_none(b);
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(1)));
	expect_wc(b, 2, SUCCESS);
	expect_pkt(b, RC_SEND_ONLY, S(2));
	bed_forget(b);
	bed_close(b);
}
