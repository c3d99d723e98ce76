/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Every kernel against the bitwise reference, at every length; the choice of a kernel; the VCRC. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

#include "karst_cpu.h"
#include "karst_log.h"
#include "reference.h"

#define LONGEST    9000u
#define ALIGNMENTS 64u
#define FENCE      0xa5

static uint8_t in[LONGEST + ALIGNMENTS];
static uint8_t out[LONGEST + 2 * ALIGNMENTS];

/* With a sanitizer, whose checks take most of the time, long inputs are tried at four alignments
 * only. */
static bool
is_tried(size_t len, unsigned int align)
{
#ifdef __SANITIZE_ADDRESS__
	return len < 1100 || (len + align) % 16 == 0;
#else
	return true;
#endif
}

static void
try_kernels(uint32_t begin, const uint8_t *p, size_t len, uint32_t want)
{
	const struct karst_crc_ops *ops;
	bool runs;

	for (unsigned int i = 0; (ops = karst_crc_ops_at(i, &runs)) != NULL; i++)
		if (runs && ops->update(begin, p, len) != want)
			cr_assert_fail(
				"%s: %zu bytes at %u", ops->name, len, (unsigned int)(p - in));
}

Test(crc, every_length_and_alignment)
{
	ref_fill(in, sizeof(in), 1);
	for (unsigned int align = 0; align < ALIGNMENTS; align++) {
		const uint8_t *p = in + align;
		uint32_t begin = align % 3 == 0 ? KARST_CRC32_INIT : align * 0x01234567u;
		uint32_t want = begin;

		for (size_t len = 0; len <= LONGEST; len++) {
			if (is_tried(len, align))
				try_kernels(begin, p, len, want);
			want = ref_crc32_byte(want, p[len]);
		}
	}
}

Test(crc, copy_every_length)
{
	const struct karst_crc_ops *ops;

	ref_fill(in, sizeof(in), 2);
	memset(out, FENCE, sizeof(out));
	for (unsigned int k = 0; (ops = ref_kernel(k)) != NULL; k++) {
		uint32_t want = 77;

		for (size_t len = 0; len <= LONGEST; len++) {
			unsigned int from = 5, to = (unsigned int)(1 + len % ALIGNMENTS);

			if (ops->copy(77, out + to, in + from, len) != want ||
				memcmp(out + to, in + from, len) != 0 || out[to - 1] != FENCE ||
				out[to + len] != FENCE)
				cr_assert_fail("%s: %zu bytes", ops->name, len);
			memset(out, FENCE, to + len + 1);
			want = ref_crc32_byte(want, in[from + len]);
		}
	}
}

Test(crc, copy_every_alignment)
{
	const struct karst_crc_ops *ops;
	static const uint16_t lens[] = {1, 3, 4, 15, 17, 63, 64, 65, 130, 257, 700, 1025};

	ref_fill(in, sizeof(in), 3);
	for (unsigned int k = 0; (ops = ref_kernel(k)) != NULL; k++) {
		for (unsigned int i = 0; i < KARST_DIM(lens) * ALIGNMENTS * ALIGNMENTS; i++) {
			unsigned int from = i % ALIGNMENTS, to = 1 + i / ALIGNMENTS % ALIGNMENTS;
			unsigned int len = lens[i / ALIGNMENTS / ALIGNMENTS];

			out[to - 1] = FENCE;
			out[to + len] = FENCE;
			if (ops->copy(0, out + to, in + from, len) !=
					ops->update(0, in + from, len) ||
				memcmp(out + to, in + from, len) != 0 || out[to - 1] != FENCE ||
				out[to + len] != FENCE)
				cr_assert_fail(
					"%s: %u bytes from %u to %u", ops->name, len, from, to);
		}
	}
}

/* No byte outside of the input is accessed: the bytes lie next to inaccessible pages. */
Test(crc, edges_of_memory)
{
	struct ref_guard from = ref_guard_open(LONGEST), to = ref_guard_open(LONGEST);
	const struct karst_crc_ops *ops;

	ref_fill(from.first, from.room, 4);
	for (unsigned int k = 0; (ops = ref_kernel(k)) != NULL; k++) {
		for (size_t len = 0; len < LONGEST; len += len < 1100 ? 1 : 61) {
			const uint8_t *tail = ref_tail(&from, len);
			uint32_t head = ref_crc32(3, from.first, len),
				 end = ref_crc32(3, tail, len);

			cr_assert_eq(ops->update(3, from.first, len), head);
			cr_assert_eq(ops->update(3, tail, len), end);
			cr_assert_eq(ops->copy(3, to.first, tail, len), end);
			cr_assert_eq(memcmp(to.first, tail, len), 0);
			cr_assert_eq(ops->copy(3, ref_tail(&to, len), from.first, len), head);
			cr_assert_eq(memcmp(ref_tail(&to, len), from.first, len), 0);
		}
	}
	ref_guard_close(&from);
	ref_guard_close(&to);
}

/* Any split into pieces gives the same result as one piece. */
Test(crc, splits)
{
	const struct karst_crc_ops *ops;
	uint64_t seed = 5;

	ref_fill(in, sizeof(in), 6);
	for (unsigned int k = 0; (ops = ref_kernel(k)) != NULL; k++) {
		for (unsigned int round = 0; round < 3000; round++) {
			size_t len = ref_rand(&seed) % (round % 2 ? 300 : LONGEST), at = 0;
			uint32_t begin = ref_rand(&seed), state = begin;
			unsigned int from = ref_rand(&seed) % ALIGNMENTS;
			uint32_t most = ref_rand(&seed) % 4 ? 200 : 2000;

			while (at < len) {
				size_t n = ref_rand(&seed) % most;

				n = n < len - at ? n : len - at;
				if (ref_rand(&seed) & 1)
					state = ops->update(state, in + from + at, n);
				else
					state = ops->copy(state, out, in + from + at, n);
				at += n;
			}
			cr_assert_eq(state, ops->update(begin, in + from, len), "%s", ops->name);
		}
	}
}

Test(crc, known_answers)
{
	const struct karst_crc_ops *ops;

	for (unsigned int k = 0; (ops = ref_kernel(k)) != NULL; k++) {
		cr_assert_eq(~ops->update(KARST_CRC32_INIT, "123456789", 9), 0xcbf43926u);
		cr_assert_eq(~ops->update(KARST_CRC32_INIT,
				     "The quick brown fox jumps over the lazy dog", 43),
			0x414fa339u);
		cr_assert_eq(ops->update(42, NULL, 0), 42u);
		cr_assert_eq(ops->copy(42, NULL, NULL, 0), 42u);
	}
}

static void
quiet(enum karst_log_level level, const char *fmt, va_list ap)
{
}

Test(crc, choosing)
{
	const struct karst_crc_ops *ops, *best = NULL;
	bool runs;

	karst_log_set_sink(quiet);
	unsetenv("KARST_CRC");
	cr_assert_str_eq(karst_crc_ops()->name, "scalar", "before anyone chose");
	for (unsigned int i = 0; (ops = karst_crc_ops_at(i, &runs)) != NULL; i++) {
		int want = runs ? 0 : -ENOTSUP;

		cr_assert_eq(karst_crc_init(ops->name), want, "%s", ops->name);
		setenv("KARST_CRC", ops->name, 1);
		cr_assert_eq(karst_crc_init(NULL), want);
		if (runs) {
			best = ops;
			cr_assert_eq(karst_crc_ops(), ops);
		}
	}
	setenv("KARST_CRC", "abacus", 1);
	cr_assert_eq(karst_crc_init(NULL), -ENOENT);
	cr_assert_eq(karst_crc_ops(), best, "a failure changes nothing");
	cr_assert_eq(karst_crc_init("scalar"), 0, "an argument wins over the environment");
	cr_assert_eq(karst_crc_init(""), 0, "no name at all is the best");
	cr_assert_neq(karst_crc_init("scala"), 0);
	setenv("KARST_CRC", "", 1);
	cr_assert_eq(karst_crc_init(NULL), 0);
	if (karst_cpu_features() & (KARST_CPU_PCLMUL | KARST_CPU_PMULL))
		cr_assert_str_neq(karst_crc_ops()->name, "scalar");
}

Test(crc, vcrc)
{
	ref_fill(in, sizeof(in), 7);
	for (size_t len = 0; len < 400; len++)
		cr_assert_eq(karst_vcrc(in + len, len), ref_vcrc(in + len, len), "%zu", len);
	/* Whatever the packet was, the register has the same value after the packet and its
	 * VCRC. */
	for (size_t len = 10; len < 50; len++) {
		uint16_t v = karst_vcrc(in, len);

		memcpy(out, in, len);
		out[len] = (uint8_t)v;
		out[len + 1] = (uint8_t)(v >> 8);
		cr_assert_eq(karst_vcrc(out, len + 2), karst_vcrc((uint8_t[]){0, 0}, 2));
	}
}
