/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "pattern.h"

#include <stdlib.h>

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#define SEED 42u

Test(pattern, every_length_fits_and_no_byte_is_left_out)
{
	uint8_t buf[200];
	uint32_t bytes, i;

	for (bytes = 1; bytes <= 130; bytes++) {
		memset(buf, 0xee, sizeof(buf));
		perf_pattern_fill(buf, bytes, SEED, 3, 17);
		cr_assert(eq(u8, buf[bytes], 0xee));
		cr_assert(perf_pattern_check(buf, bytes, SEED, 3, 17));
		cr_assert(perf_pattern_check_end(buf, bytes, SEED, 3, 17));
		for (i = 0; i < bytes; i++) {
			buf[i] ^= 0x10;
			cr_assert(not(perf_pattern_check(buf, bytes, SEED, 3, 17)), "byte %u of %u",
				i, bytes);
			buf[i] ^= 0x10;
		}
	}
}

/* Data of another message, or from another place of the same message, is detected. */
Test(pattern, depends_on_queue_pair_message_and_place)
{
	uint8_t buf[4096 + 64];

	perf_pattern_fill(buf, sizeof(buf), SEED, 3, 17);
	cr_assert(not(perf_pattern_check(buf, 4096, SEED, 4, 17)));
	cr_assert(not(perf_pattern_check(buf, 4096, SEED, 3, 18)));
	cr_assert(not(perf_pattern_check(buf, 4096, SEED + 1, 3, 17)));
	memmove(buf + 1024, buf + 2048, 1024);
	cr_assert(not(perf_pattern_check(buf, 4096, SEED, 3, 17)));
}

Test(pattern, first_bytes_tell_the_message)
{
	uint8_t buf[64];
	uint64_t first;
	uint32_t seq;

	for (seq = 0xfffffff0; seq != 16; seq++) {
		perf_pattern_fill(buf, sizeof(buf), SEED, 9, seq);
		memcpy(&first, buf, sizeof(first));
		cr_assert(eq(u32, perf_pattern_seq(SEED, 9, first), seq));
	}
}

Test(pattern, end_is_the_end)
{
	uint8_t now[100], before[100];

	perf_pattern_fill(now, sizeof(now), SEED, 1, 2);
	perf_pattern_fill(before, sizeof(before), SEED, 1, 1);
	memcpy(now, before, 90);
	cr_assert(perf_pattern_check_end(now, sizeof(now), SEED, 1, 2));
	cr_assert(not(perf_pattern_check_end(before, sizeof(before), SEED, 1, 2)));
}

Test(pattern, zero)
{
	uint8_t buf[70] = {0};

	cr_assert(perf_pattern_zero(buf, sizeof(buf)));
	buf[69] = 1;
	cr_assert(not(perf_pattern_zero(buf, sizeof(buf))));
	cr_assert(perf_pattern_zero(buf, 69));
	cr_assert(perf_pattern_zero(buf, 0));
}
