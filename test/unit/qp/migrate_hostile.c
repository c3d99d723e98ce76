/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Path migration that is abused (G6), and an alternate path that is removed (G5). */

#include "migrate_bed.h"

/* --- hostile (G6) --- */

/* MigReq from a wrong address, to a wrong address, or with PSNs that the peer cannot send. */
Test(migrate, g6_forged)
{
	struct bed *b = bed_armed(KARST_QPT_RC);
	struct karst_path good = b->path;
	unsigned int i;

	for (i = 0; i < 32; i++) {
		b->path = alt_path;
		(i < 16 ? b->path.dst_ip : b->path.src_ip)[12 + i % 4] ^= (uint8_t)(1 << i / 4 % 8);
		expect_drop(b, ADDRESS, send_pkt(b, RC_WRITE_ONLY, R(1), .migreq = true));
	}
	b->path = alt_path;
	expect_drop(b, ADDRESS, send_pkt(b, RC_WRITE_ONLY, R(2), .migreq = true));
	expect_drop(b, ADDRESS, send_pkt(b, RC_WRITE_ONLY, R(1u << 22), .migreq = true));
	expect_drop(b, ADDRESS, send_pkt(b, RC_WRITE_ONLY, R(-(1 << 22)), .migreq = true));
	expect_drop(b, ADDRESS, send_pkt(b, RC_ACK, S(0), .migreq = true));
	expect_drop(b, ADDRESS, send_pkt(b, RC_ACK, S(-2 - (1 << 22)), .migreq = true));
	expect_drop(b, ADDRESS, send_pkt(b, RC_READ_RESP_ONLY, S(-1), .migreq = true));
	expect_drop(b, PKEY, send_pkt(b, RC_WRITE_ONLY, R(1), .migreq = true, .pkey = 0x7ffe));
	expect_drop(b, QP_TYPE, send_pkt(b, UC_WRITE_ONLY, R(1), .migreq = true));
	/* on the primary path the bit has no effect */
	b->path = good;
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(1), .ackreq = true, .migreq = true));
	expect_via(b, expect_pkt(b, RC_ACK, R(1)), &good, false);
	expect_mig(b, ARMED);
	expect_no_event(b);
	bed_close(b);
}

/* The bit changes with each packet, on both paths: there is one migration, and no more. */
Test(migrate, g6_flips)
{
	struct bed *b = bed_armed(KARST_QPT_RC);
	struct karst_path old = b->path;
	uint32_t i, n = 1;

	for (i = 0; i < 1000; i++) {
		b->path = i & 2 ? alt_path : old;
		if (send_pkt(b, RC_WRITE_ONLY, R(n), .ackreq = true, .migreq = i & 1) ==
			KARST_DROP_NONE) {
			expect_pkt(b, RC_ACK, R(n));
			n++;
		}
	}
	expect_event(b, PATH_MIG);
	expect_no_event(b);
	expect_mig(b, MIGRATED);
	expect_path(b, &alt_path);
	cr_assert_gt(n, 400);
	bed_close(b);
}

/* Many requests to migrate, to a queue pair whose program rearms after each migration: one
 * migration for each REARM, and one frame for each migration. */
Test(migrate, g6_storm)
{
	struct bed *b = bed_armed(KARST_QPT_RC);
	struct karst_path now = b->path, other = alt_path;
	uint32_t i, j;

	for (i = 1; i <= 20; i++) {
		struct karst_path was = now;

		b->path = now = other;
		other = was;
		for (j = 0; j < 50; j++)
			send_pkt(b, RC_WRITE_ONLY, R(i - 1), .migreq = true);
		expect_event(b, PATH_MIG);
		expect_no_event(b);
		expect_pkt(b, RC_ACK, R(i - 1));
		expect_none(b);
		cr_assert_eq(migrate_load(b, &other, KARST_MIG_REARM,
				     KARST_QP_ALT_PATH | KARST_QP_PATH_MIG_STATE),
			0);
		expect_taken(b, send_write(b, R(i), 0, 8));
		expect_pkt(b, RC_ACK, R(i));
		expect_mig(b, ARMED);
	}
	bed_close(b);
}

/* --- the alternate path is removed (G5) --- */

Test(migrate, g5_lost)
{
	struct bed *b = bed_armed(KARST_QPT_RC);

	karst_qp_alternate_lost(b->core, b->s->qp);
	expect_event(b, PATH_MIG_ERR);
	expect_mig(b, MIGRATED);
	karst_qp_alternate_lost(b->core, b->s->qp);
	expect_no_event(b);
	cr_assert_eq(migrate_set(b, KARST_MIG_REARM), -EINVAL);
	expect_taken(b, send_write(b, R(1), 0, 8));
	expect_via(b, expect_pkt(b, RC_ACK, R(1)), &b->path, true);
	expect_exhausted(b);
	bed_close(b);
}

/* A path that was loaded and not armed is removed without an event. */
Test(migrate, g5_lost_unasked)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b = bed_open(&s);

	karst_qp_alternate_lost(b->core, b->s->qp);
	cr_assert_eq(migrate_load(b, &alt_path, 0, KARST_QP_ALT_PATH), 0);
	karst_qp_alternate_lost(b->core, b->s->qp);
	cr_assert_null(karst_qp_alternate(b->s->qp));
	bed_close(b);
}

/* (W2): an end that is configured to send MigReq 0 sends 1 when it has migrated. */
Test(migrate, g1_migreq_no)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.core.migreq = false;
	b = bed_open(&s);
	cr_assert_eq(migrate_rearm(b), 0);
	expect_taken(b, send_write(b, R(0), 0, 8));
	expect_via(b, expect_pkt(b, RC_ACK, R(0)), &b->path, false);
	cr_assert_eq(migrate_set(b, KARST_MIG_MIGRATED), 0);
	expect_event(b, PATH_MIG);
	expect_via(b, expect_pkt(b, RC_ACK, R(0)), &alt_path, true);
	bed_close(b);
}
