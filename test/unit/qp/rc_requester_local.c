/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Local operations of the RC requester: invalidating keys and binding windows. */

#include "harness.h"

/* (Q1): LOCAL_INV waits for everything before it, invalidates the key, takes no PSN. */
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

/* A type 1 window belongs to the PD: it can be bound again at any time, with a new key each
 * time. */
Test(rc_requester, bind_window_type_1)
{
	struct bed *b = bed_rc();
	uint32_t mw, first;

	cr_assert_eq(karst_mw_alloc(b->mem, b->pd, KARST_MEM_MW1, &mw), 0);
	bed_bind(b, 1, mw, 0, KARST_ACCESS_REMOTE_READ);
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

/* (Q1): local operations complete in order among requests that wait for an acknowledgement. */
Test(rc_requester, q1_local_operation_completes_in_order)
{
	struct bed *b = bed_rc();
	uint32_t mw;

	cr_assert_eq(karst_mw_alloc(b->mem, b->pd, KARST_MEM_MW1, &mw), 0);
	post(b, RDMA_WRITE, 1, .len = 8);
	bed_bind(b, 2, mw, 0, KARST_ACCESS_REMOTE_READ);
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
