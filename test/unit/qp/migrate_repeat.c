/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Path migration with selective repeat, without a timeout: packets that are under way over the old
 * path, and acknowledgements of them, are lost for good. */
#include "migrate_bed.h"
#include "repeat_bed.h"

static struct bed *
bed_without_a_clock(void)
{
	struct karst_core_qp_attr a = {.alt_path = alt_path,
		.alt_port_num = 2,
		.alternate_mem = migrate_memory(),
		.path_mig_state = KARST_MIG_REARM};
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.attr.timeout = 0;
	b = open_repeat(&s, 16);
	cr_assert_eq(bed_modify(b, &a, KARST_QP_ALT_PATH | KARST_QP_PATH_MIG_STATE), 0);
	return b;
}

static void
post_writes(struct bed *b, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		post(b, RDMA_WRITE, i, .len = 1);
		expect_pkt(b, RC_WRITE_ONLY, S(i));
	}
}

static void
acknowledge(struct bed *b, uint32_t i)
{
	expect_taken(b, send_pkt(b, RC_ACK, S(i), .aeth = 0x1f000001 + i, .migreq = true));
}

/* The oldest packet is sent again and shows what else is lost (X10).  If the acknowledgement that
 * announces the migration covers exactly that packet, the next one is sent again. */
Test(migrate, g4_x10_without_a_clock)
{
	struct bed *b = bed_without_a_clock();

	post_writes(b, 3);
	peer_migrates(b);
	acknowledge(b, 0);
	expect_event(b, PATH_MIG);
	expect_via(b, expect_pkt(b, RC_ACK, R(-1)), &alt_path, true);
	expect_wc(b, 0, SUCCESS);
	expect_via(b, expect_pkt(b, RC_WRITE_ONLY, S(1)), &alt_path, true);
	expect_none(b);
	acknowledge(b, 1);
	expect_wc(b, 1, SUCCESS);
	expect_via(b, expect_pkt(b, RC_WRITE_ONLY, S(2)), &alt_path, true);
	acknowledge(b, 2);
	expect_wc(b, 2, SUCCESS);
	close_repeat(b);
}

/* The peer has acknowledged the second request by a SACK, and then reported over the old path that
 * it was not ready for it.  That report is lost, and the request is sent again when it is the
 * oldest. */
Test(migrate, g4_x6_not_ready_is_not_heard)
{
	struct bed *b = bed_without_a_clock();

	post_writes(b, 2);
	expect_taken(b, send_sack(b, S(0), 2));
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_none(b);
	expect_mig(b, ARMED);
	cr_assert_eq(migrate_set(b, KARST_MIG_MIGRATED), 0);
	expect_event(b, PATH_MIG);
	expect_via(b, expect_pkt(b, RC_ACK, R(-1)), &alt_path, true);
	expect_via(b, expect_pkt(b, RC_WRITE_ONLY, S(0)), &alt_path, true);
	expect_none(b);
	post(b, RDMA_WRITE, 2, .len = 1);
	expect_via(b, expect_pkt(b, RC_WRITE_ONLY, S(2)), &alt_path, true);
	peer_migrates(b);
	acknowledge(b, 0);
	expect_wc(b, 0, SUCCESS);
	expect_via(b, expect_pkt(b, RC_WRITE_ONLY, S(1)), &alt_path, true);
	/* only once */
	expect_drop(b, GHOST_ACK, send_pkt(b, RC_ACK, S(0), .aeth = 0x1f000001, .migreq = true));
	expect_none(b);
	acknowledge(b, 2);
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	expect_none(b);
	close_repeat(b);
}
