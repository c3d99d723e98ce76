/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* PSN arithmetic modulo 2^24 (P1). */
#include <criterion/criterion.h>

#include "karst_psn.h"

Test(psn, add_wraps)
{
	cr_expect_eq(karst_psn_add(0, 1), 1);
	cr_expect_eq(karst_psn_add(0xffffff, 1), 0);
	cr_expect_eq(karst_psn_add(0xfffffe, 5), 3);
	cr_expect_eq(karst_psn_add(0, (uint32_t)-1), 0xffffff);
	cr_expect_eq(karst_psn_add(2, (uint32_t)-5), 0xfffffd);
}

Test(psn, diff_is_signed_and_wraps)
{
	cr_expect_eq(karst_psn_diff(5, 3), 2);
	cr_expect_eq(karst_psn_diff(3, 5), -2);
	cr_expect_eq(karst_psn_diff(1, 0xffffff), 2);
	cr_expect_eq(karst_psn_diff(0xffffff, 1), -2);
	cr_expect_eq(karst_psn_diff(0x7fffff, 0), 0x7fffff);
	cr_expect_eq(karst_psn_diff(0, 0x7fffff), -0x7fffff);
	cr_expect_eq(karst_psn_diff(0x800000, 0), -0x800000, "exactly half way counts as before");
}

Test(psn, before)
{
	cr_expect(karst_psn_before(0xffffff, 0));
	cr_expect_not(karst_psn_before(0, 0xffffff));
	cr_expect_not(karst_psn_before(7, 7));
	cr_expect(karst_psn_before(0x900000, 0x100000));
	cr_expect(karst_psn_before(0x100000, 0x8fffff));
	cr_expect_not(karst_psn_before(0x100000, 0x900001));
}

Test(psn, add_and_diff_are_inverse_everywhere)
{
	static const uint32_t steps[] = {0, 1, 2, 255, 4096, 0x7fffff};
	uint32_t psn;
	size_t i;

	for (psn = 0; psn <= KARST_PSN_MASK; psn += 4093) {
		for (i = 0; i < KARST_DIM(steps); i++) {
			uint32_t later = karst_psn_add(psn, steps[i]);

			cr_assert_leq(later, KARST_PSN_MASK);
			cr_assert_eq(karst_psn_diff(later, psn), (int32_t)steps[i]);
			cr_assert_eq(karst_psn_diff(psn, later), -(int32_t)steps[i]);
		}
	}
}

Test(psn, packets_of_a_message)
{
	cr_expect_eq(karst_psn_count(0, 12), 1);
	cr_expect_eq(karst_psn_count(1, 12), 1);
	cr_expect_eq(karst_psn_count(4096, 12), 1);
	cr_expect_eq(karst_psn_count(4097, 12), 2);
	cr_expect_eq(karst_psn_count(1000, 8), 4);
	cr_expect_eq(karst_psn_count(0x80000000u, 8), 0x800000);
	cr_expect_eq(karst_psn_count(0xffffffffu, 8), 0x1000000, "no wrap in the rounding");
}
