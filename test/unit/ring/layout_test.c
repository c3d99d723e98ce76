/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The layout of shared memory, as doc/ring-abi.rst defines it: changing a number here changes what
 * programs and engines of different builds agree on.
 */
#include <criterion/criterion.h>

#include "karst_ring.h"

#define AT(type, field, offset, size)                                         \
	cr_assert_eq(offsetof(struct type, field), offset, #type "." #field); \
	cr_assert_eq(sizeof(((struct type *)0)->field), size, #type "." #field)

Test(layout, work_queue)
{
	cr_assert_eq(sizeof(struct karst_wq_shared), 128);
	AT(karst_wq_shared, tail, 0, 4);
	AT(karst_wq_shared, head, 64, 4);
	AT(karst_wq_shared, idle, 68, 4);
	cr_assert_eq(karst_wq_bytes(8, 64), 128 + 8 * 64);
}

Test(layout, send_request)
{
	cr_assert_eq(sizeof(struct karst_send_wqe), 64);
	AT(karst_send_wqe, wr_id, 0, 8);
	AT(karst_send_wqe, opcode, 8, 1);
	AT(karst_send_wqe, flags, 9, 1);
	AT(karst_send_wqe, num, 10, 2);
	AT(karst_send_wqe, imm, 12, 4);
	AT(karst_send_wqe, rdma.remote_addr, 16, 8);
	AT(karst_send_wqe, rdma.rkey, 24, 4);
	AT(karst_send_wqe, ud.ah, 16, 4);
	AT(karst_send_wqe, ud.remote_qpn, 20, 4);
	AT(karst_send_wqe, ud.remote_qkey, 24, 4);
	AT(karst_send_wqe, sge, 32, 32);
	AT(karst_send_wqe, inline_data, 32, 32);
	AT(karst_send_wqe, atomic.compare_add, 32, 8);
	AT(karst_send_wqe, atomic.swap, 40, 8);
	AT(karst_send_wqe, atomic.sge, 48, 16);
	AT(karst_send_wqe, bind.addr, 32, 8);
	AT(karst_send_wqe, bind.len, 40, 8);
	AT(karst_send_wqe, bind.mw_key, 48, 4);
	AT(karst_send_wqe, bind.new_key, 52, 4);
	AT(karst_send_wqe, bind.mr_key, 56, 4);
	AT(karst_send_wqe, bind.access, 60, 4);
	AT(karst_send_wqe, flush.len, 32, 4);
	AT(karst_send_wqe, flush.type, 36, 1);
	AT(karst_send_wqe, flush.level, 37, 1);
}

Test(layout, sge_and_receive_request)
{
	cr_assert_eq(sizeof(struct karst_sge), 16);
	AT(karst_sge, addr, 0, 8);
	AT(karst_sge, len, 8, 4);
	AT(karst_sge, lkey, 12, 4);
	cr_assert_eq(sizeof(struct karst_recv_wqe), 32);
	AT(karst_recv_wqe, wr_id, 0, 8);
	AT(karst_recv_wqe, num_sge, 8, 4);
	AT(karst_recv_wqe, reserved, 12, 4);
	AT(karst_recv_wqe, sge, 16, 16);
}

Test(layout, completion_queue)
{
	cr_assert_eq(sizeof(struct karst_cq_shared), 64);
	AT(karst_cq_shared, armed, 0, 4);
	AT(karst_cq_shared, overflown, 4, 4);
	cr_assert_eq(sizeof(struct karst_lane_shared), 128);
	AT(karst_lane_shared, tail, 0, 4);
	AT(karst_lane_shared, head, 64, 4);
	AT(karst_lane_shared, armed_at, 68, 4);
	AT(karst_lane_shared, live, 4, 4);
	AT(karst_lane_shared, ready, 8, 4);
	cr_assert_eq(karst_lane_bytes(16, 0), 128 + 16 * 32);
	cr_assert_eq(karst_cq_lanes_bytes(16, 3, 0), 3 * (128 + 16 * 32));
	cr_assert_eq(KARST_CQ_TIMESTAMPS, 1);
	cr_assert_eq(karst_lane_bytes(16, KARST_CQ_TIMESTAMPS), 128 + 16 * 32 + 16 * 8);
	/* whole cache lines */
	cr_assert_eq(karst_lane_bytes(2, KARST_CQ_TIMESTAMPS), 128 + 2 * 32 + 64);
	cr_assert_eq(sizeof(struct karst_cqe), 32);
	AT(karst_cqe, wr_id, 0, 8);
	AT(karst_cqe, qpn, 8, 4);
	AT(karst_cqe, byte_len, 12, 4);
	AT(karst_cqe, imm, 16, 4);
	AT(karst_cqe, src_qpn, 20, 4);
	AT(karst_cqe, status, 24, 1);
	AT(karst_cqe, opcode, 25, 1);
	AT(karst_cqe, flags, 26, 1);
	AT(karst_cqe, syndrome, 27, 1);
	AT(karst_cqe, slot, 28, 4);
}

Test(layout, doorbell_ring)
{
	cr_assert_eq(sizeof(struct karst_bell_shared), 128);
	AT(karst_bell_shared, tail, 0, 4);
	AT(karst_bell_shared, asleep, 64, 4);
	cr_assert_eq(sizeof(struct karst_bell_cell), 8);
	AT(karst_bell_cell, seq, 0, 4);
	AT(karst_bell_cell, qpn, 4, 4);
	cr_assert_eq(karst_bell_bytes(32), 128 + 32 * 8);
	cr_assert_eq(KARST_RING_ABI, 5);
}

/* Values in shared memory are those of verbs. */
Test(layout, values)
{
	cr_assert_eq(KARST_WR_SEND_WITH_INV, 9);
	cr_assert_eq(KARST_WR_FLUSH, 14);
	cr_assert_eq(KARST_WR_ATOMIC_WRITE, 15);
	cr_assert_eq(KARST_SEND_INLINE, 8);
	cr_assert_eq(KARST_WC_RNR_RETRY_EXC_ERR, 13);
	cr_assert_eq(KARST_WC_WR_FLUSH_ERR, 5);
	cr_assert_eq(KARST_WC_RECV_RDMA_WITH_IMM, 129);
	cr_assert_eq(KARST_WC_WITH_INV, 8);
	cr_assert_eq(KARST_WC_IP4, 128);
	cr_assert_eq(KARST_CQ_ARM_SOLICITED, 1);
	cr_assert_eq(KARST_CQ_ARM_NEXT, 2);
}
