/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Where the fields of a queue pair are: the fields that every packet uses are in few cache
 * lines. */
#include <criterion/criterion.h>

#include "qp_priv.h"

#define LINE(type, field) (offsetof(type, field) / KARST_CACHE_LINE)

Test(layout, identity_is_one_line)
{
	cr_assert_eq(_Alignof(struct karst_core_qp), KARST_CACHE_LINE);
	cr_assert_eq(LINE(struct karst_core_qp, qpn), 0);
	cr_assert_eq(LINE(struct karst_core_qp, rx_ip4), 0);
	cr_assert_eq(LINE(struct karst_core_qp, pkey), 0);
	cr_assert_eq(LINE(struct karst_core_qp, qkey), 0);
}

Test(layout, requester_cursors_are_one_line)
{
	cr_assert_eq(
		LINE(struct karst_core_qp, req.una_idx), LINE(struct karst_core_qp, req.snd_psn));
	cr_assert_eq(
		LINE(struct karst_core_qp, req.una_idx), LINE(struct karst_core_qp, req.flags));
	cr_assert_eq(
		LINE(struct karst_core_qp, req.una_idx), LINE(struct karst_core_qp, req.rd_out));
}

Test(layout, responder_state_is_one_line)
{
	cr_assert_eq(offsetof(struct karst_core_qp, rsp) % KARST_CACHE_LINE, 0);
	cr_assert_eq(LINE(struct karst_core_qp, rsp.epsn), LINE(struct karst_core_qp, rsp.rkey));
	cr_assert_eq(LINE(struct karst_core_qp, rsp.epsn), LINE(struct karst_core_qp, rsp.left));
}

/*
 * When 100,000 queue pairs take turns with WRITEs of 64 B, what a WRITE needs is in no cache.  The
 * receiver needs five lines of its queue pair in all: identity, the first line of requester and of
 * responder, the send ring with the counters, the headers.  The sender needs the second line of its
 * requester, too.
 */
Test(layout, a_write_needs_few_lines)
{
	cr_assert_eq(LINE(struct karst_core_qp, ringer), 0);
	cr_assert_eq(LINE(struct karst_core_qp, deficit), 0);
	cr_assert_eq(LINE(struct karst_core_qp, req.window), LINE(struct karst_core_qp, req));
	cr_assert_lt(offsetof(struct karst_requester, ssn), KARST_CACHE_LINE,
		"the bits before it say what a visit has to do");
	cr_assert_eq(LINE(struct karst_core_qp, rsp.fatal), LINE(struct karst_core_qp, rsp));
	cr_assert_eq(LINE(struct karst_core_qp, rsp.lead), LINE(struct karst_core_qp, rsp));
	cr_assert_eq(LINE(struct karst_core_qp, rsp.rsp_saved), LINE(struct karst_core_qp, rsp));
	cr_assert_eq(LINE(struct karst_core_qp, rsp.rsp_again), LINE(struct karst_core_qp, rsp));
	cr_assert_eq(LINE(struct karst_core_qp, sq.tail), LINE(struct karst_core_qp, sq));
	cr_assert_eq(LINE(struct karst_core_qp, tx_packets), LINE(struct karst_core_qp, sq));
	cr_assert_eq(LINE(struct karst_core_qp, rx_bytes), LINE(struct karst_core_qp, sq));
	cr_assert_eq(offsetof(struct karst_core_qp, tmpl) % KARST_CACHE_LINE, 0);
	cr_assert_eq(LINE(struct karst_core_qp,
			     tmpl.bytes[KARST_ETH_LEN + KARST_IP4_LEN + KARST_UDP_LEN +
				     KARST_BTH_LEN - 1]),
		LINE(struct karst_core_qp, tmpl));
}

Test(layout, small_things)
{
	cr_assert_eq(sizeof(struct karst_sq_slot), 16);
	cr_assert_eq(sizeof(struct karst_rsp), 40);
	cr_assert_eq(sizeof(struct karst_cq_lane_state) % KARST_CACHE_LINE, 0);
	cr_assert_leq(18 + 40 + 8 + 12, KARST_TMPL_MAX);
}

/* An idle QP with 64 requests each way takes 2048 bytes at most, without its rings. */
Test(layout, memory_of_an_idle_qp)
{
	static struct karst_core_cq cq;
	static char ring;
	struct karst_qp_init init = {.type = KARST_QPT_RC,
		.send_cq = &cq,
		.recv_cq = &cq,
		.sq_shared = &ring,
		.rq_shared = &ring,
		.max_send_wr = 64,
		.max_recv_wr = 64,
		.max_send_sge = 1,
		.max_recv_sge = 1,
		.max_dest_rd_atomic = 4};

	cr_assert_gt(karst_qp_bytes(&init), sizeof(struct karst_core_qp));
	cr_assert_leq(karst_qp_bytes(&init), 2048);
}
