/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Path migration while a packet of the old path waits for a copy. */
#include "copy_bed.h"
#include "migrate_bed.h"

/* R5, R7, G3: the copy has executed the atomic, so it is saved and answered although the peer has
 * migrated meanwhile.  The peer sends it again over the new path, and it is a duplicate. */
Test(copy, atomic_of_the_old_path)
{
	struct bed *b = open_far(KARST_QPT_RC);
	const struct karst_pkt *p;
	uint64_t v;

	memcpy(&v, b->buf, 8);
	cr_assert_eq(migrate_rearm(b), 0);
	expect_taken(b,
		send_pkt(b, RC_FETCH_ADD, R(0), .va = FAR, .rkey = far_key, .swap_add = 1,
			.ackreq = true));
	expect_mig(b, ARMED);
	cr_assert_eq(driver.ntodo, 1);
	peer_migrates(b);
	expect_taken(b,
		send_pkt(b, RC_FETCH_ADD, R(0), .va = FAR, .rkey = far_key, .swap_add = 1,
			.ackreq = true, .migreq = true));
	expect_event(b, PATH_MIG);
	copy_all(b);
	p = expect_pkt(b, RC_ATOMIC_ACK, R(0));
	expect_via(b, p, &alt_path, true);
	cr_assert_eq(karst_get_be64(p->data + p->bth_off + KARST_BTH_LEN + KARST_AETH_LEN), v);
	v++;
	cr_assert_eq(memcmp(b->buf, &v, 8), 0, "executed more than once");
	bed_forget(b);
	close_far(b);
}
