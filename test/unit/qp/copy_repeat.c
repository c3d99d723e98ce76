/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Selective repeat while the expected request waits for a copy. */
#include "copy_bed.h"
#include "repeat_bed.h"

/* X4, X7: what was dropped is still reported while the expected request waits for its copy, and not
 * any more when it has been executed. */
Test(copy, dropped_behind_a_parked_one)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	setup_repeat(&s, 16);
	b = open_far_with(&s);
	expect_drop(b, HELD_FULL, send_write(b, R(WINDOW + 1), 0, 8));
	expect_taken(b, write_far(b, 0, 0, 64));
	expect_sack(b, R(0), 1);
	copy_all(b);
	expect_mem(b, 0, 0, 64);
	expect_ack(b, R(0), 1);
	expect_none(b);
	close_far(b);
	free(repeat_mem);
}
