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

/* X5: a held request for which no copy was free when its turn came is executed when a later one
 * arrives.  The peer does not send it again before a timeout, since it knows that it is held. */
Test(copy, held_without_a_copy)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	setup_repeat(&s, 16);
	b = open_far_with(&s);
	expect_taken(b, write_far(b, 1, 0, 64));
	expect_sack(b, R(0), 2);
	driver.full = true;
	expect_taken(b, send_write(b, R(0), 1024, 8));
	expect_sack(b, R(1), 0);
	expect_untouched(b, 0, 64);
	driver.full = false;
	expect_taken(b, send_write(b, R(2), 2048, 8));
	copy_all(b);
	expect_mem(b, 0, 0, 64);
	expect_ack(b, R(2), 3);
	expect_none(b);
	close_far(b);
	free(repeat_mem);
}

/* X4: what had no room behind a parked request is reported when its copy is made. */
Test(copy, x4_behind_a_full_backlog)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;
	uint32_t i;

	setup_repeat(&s, 16);
	b = open_far_with(&s);
	expect_taken(b, write_far(b, 0, 0, 64));
	for (i = 1; i <= KARST_COPY_BACKLOG; i++)
		expect_taken(b, send_write(b, R(i), 1024, 8));
	expect_drop(b, COPY_FULL, send_write(b, R(i), 1024, 8));
	copy_all(b);
	expect_sack(b, R(i), 1);
	expect_taken(b, send_write(b, R(i), 1024, 8));
	expect_ack(b, R(i), i + 1);
	close_far(b);
	free(repeat_mem);
}
