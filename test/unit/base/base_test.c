/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The helpers of lib/base: arithmetic, names of counters and drops, the log sink. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "karst_counters.h"
#include "karst_cpu.h"
#include "karst_log.h"
#include "karst_prf.h"

Test(base, pow2)
{
	uint32_t v;

	cr_assert_eq(karst_pow2_ceil(0), 1);
	for (v = 1; v < 100000; v++) {
		uint32_t p = karst_pow2_ceil(v);

		cr_assert(karst_is_pow2(p) && p >= v && p / 2 < v);
		cr_assert_eq(1u << karst_log2(p), p);
	}
	cr_assert_eq(karst_pow2_ceil(1u << 31), 1u << 31);
	cr_assert_not(karst_is_pow2(0));
	cr_assert_not(karst_is_pow2(12));
}

/* A telemetry name is one lower-case word, given once, with a meaning. */
static void
check_names(const char *(*name)(int), const char *(*help)(int), int max)
{
	int i, j;

	for (i = 0; i < max; i++) {
		cr_assert_neq(name(i), NULL, "%d has no name", i);
		cr_assert_neq(help(i), NULL, "%s has no help", name(i));
		cr_assert_eq(strspn(name(i), "abcdefghijklmnopqrstuvwxyz0123456789_"),
			strlen(name(i)), "%s", name(i));
		for (j = 0; j < i; j++)
			cr_assert_str_neq(name(i), name(j));
	}
	cr_assert_str_eq(name(max), "unknown");
	cr_assert_str_eq(help(-1), "unknown");
}

static const char *
drop_name(int i)
{
	return karst_drop_name((enum karst_drop)i);
}

static const char *
drop_help(int i)
{
	return karst_drop_help((enum karst_drop)i);
}

static const char *
counter_name(int i)
{
	return karst_counter_name((enum karst_counter)i);
}

static const char *
counter_help(int i)
{
	return karst_counter_help((enum karst_counter)i);
}

static const char *
hw_name(int i)
{
	return karst_hw_counter_name((unsigned int)i);
}

static const char *
hw_help(int i)
{
	return karst_hw_counter_help((unsigned int)i);
}

Test(base, names)
{
	check_names(hw_name, hw_help, KARST_HW_COUNTERS);
	check_names(drop_name, drop_help, KARST_DROP_MAX);
	check_names(counter_name, counter_help, KARST_CTR_MAX);
}

Test(base, counters_add)
{
	struct karst_counters *c = aligned_alloc(KARST_CACHE_LINE, 2 * sizeof(*c));
	int i;

	memset(c, 0, 2 * sizeof(*c));
	for (i = 0; i < KARST_DROP_MAX; i++)
		karst_count_drop(&c[0], (enum karst_drop)i);
	for (i = 0; i < KARST_CTR_MAX; i++)
		karst_count_n(&c[0], (enum karst_counter)i, (uint64_t)i << 40);
	karst_counters_add(&c[1], &c[0]);
	karst_counters_add(&c[1], &c[0]);
	for (i = 0; i < KARST_DROP_MAX; i++)
		cr_assert_eq(c[1].drop[i], 2);
	for (i = 0; i < KARST_CTR_MAX; i++)
		cr_assert_eq(c[1].ctr[i], (uint64_t)i << 41);
	free(c);
}

static uint64_t
hw_value(const struct karst_counters *c, const char *name)
{
	unsigned int i;

	for (i = 0; i < KARST_HW_COUNTERS; i++)
		if (strcmp(karst_hw_counter_name(i), name) == 0)
			return karst_hw_counter_value(c, i);
	cr_assert_fail("no %s", name);
	return 0;
}

Test(base, hw_counters)
{
	struct karst_counters *c = aligned_alloc(KARST_CACHE_LINE, sizeof(*c));

	memset(c, 0, sizeof(*c));
	karst_count_n(c, KARST_CTR_PACKET_SEQ_ERR, 3);
	karst_count_n(c, KARST_CTR_RNR_NAK_SENT, 5);
	karst_count_drop(c, KARST_DROP_NO_WQE);
	karst_count_drop(c, KARST_DROP_ICRC);
	cr_assert_eq(hw_value(c, "packet_seq_err"), 3);
	cr_assert_eq(hw_value(c, "out_of_buffer"), 6);
	cr_assert_eq(hw_value(c, "rx_icrc_encapsulated"), 1);
	cr_assert_eq(hw_value(c, "local_ack_timeout_err"), 0);
	cr_assert_eq(karst_hw_counter_value(c, KARST_HW_COUNTERS), 0);
	free(c);
}

Test(base, cpu_features_are_nested)
{
	unsigned int f = karst_cpu_features();

	cr_assert_eq(f, karst_cpu_features());
	cr_assert((f & KARST_CPU_VPCLMUL_256) == 0 || (f & KARST_CPU_PCLMUL) != 0);
	cr_assert((f & KARST_CPU_VPCLMUL_512) == 0 || (f & KARST_CPU_VPCLMUL_256) != 0);
}

static char logged[64];
static enum karst_log_level logged_level;

static void
log_to_buffer(enum karst_log_level level, const char *fmt, va_list ap)
{
	logged_level = level;
	vsnprintf(logged, sizeof(logged), fmt, ap);
}

Test(base, log_sink)
{
	karst_log_set_sink(log_to_buffer);
	karst_log(KARST_LOG_DEBUG, "port %d: %s", 3, "up");
	cr_assert_str_eq(logged, "port 3: up");
	cr_assert_eq(logged_level, KARST_LOG_DEBUG);
	karst_log_set_sink(NULL);
	karst_log(KARST_LOG_DEBUG, "not to the buffer");
	cr_assert_str_eq(logged, "port 3: up");
}

/* The test vector of the algorithm's authors for the 16 bytes 00 to 0f under the key 00 to 0f. */
Test(base, prf_is_siphash)
{
	const uint64_t key[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};

	cr_assert_eq(karst_prf(key, key[0], key[1]), 0x3f2acc7f57c29bdb);
}

/* Keys for different purposes, and for different objects of one purpose, are unrelated. */
Test(base, prf_keys_are_derived)
{
	const uint64_t secret[2] = {1, 0};
	uint64_t key[9][2];
	int i, j;

	for (i = 0; i < 9; i++)
		karst_prf_derive(secret, (uint64_t)i / 3, (uint64_t)i % 3, key[i]);
	for (i = 0; i < 9; i++) {
		cr_assert_neq(key[i][0], key[i][1]);
		for (j = 0; j < i; j++)
			cr_assert(key[i][0] != key[j][0] && key[i][1] != key[j][1] &&
				key[i][0] != key[j][1] && key[i][1] != key[j][0]);
	}
	/* in place: the derived key overwrites the key that it comes from */
	karst_prf_derive(key[0], 5, 0, key[1]);
	karst_prf_derive(key[0], 5, 0, key[0]);
	cr_assert_arr_eq(key[0], key[1], sizeof(key[0]));
}

/* --- text of programs and peers in lines that people read --- */

static char heard[2048];

static void
hear(enum karst_log_level level, const char *fmt, va_list ap)
{
	(void)level;
	vsnprintf(heard, sizeof(heard), fmt, ap);
}

static char heard_before[2048];
static uint32_t lines_heard;

static void
hear_all(enum karst_log_level level, const char *fmt, va_list ap)
{
	memcpy(heard_before, heard, sizeof(heard));
	hear(level, fmt, ap);
	lines_heard++;
}

static const struct {
	const char *from, *shown, *cleaned;
} texts[] = {
	{"", "", ""},
	{"plain name, 100% of it: \\", "plain name, 100% of it: \\", "plain name, 100% of it: \\"},
	{"a\nkarstd: error: all is lost", "a\\x0akarstd: error: all is lost",
		"a?karstd: error: all is lost"},
	{"\x1b[2J\x1b]0;t\a", "\\x1b[2J\\x1b]0;t\\x07", "?[2J?]0;t?"},
	{"\x7f\t\r", "\\x7f\\x09\\x0d", "???"},
	{"Gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x90\x9f",
		"Gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x90\x9f",
		"Gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x90\x9f"},
	/* control characters above 0x7f: CSI in one byte and in two; complete, and cut off */
	{"\x9b"
	 "31m",
		"\\x9b"
		"31m",
		"?31m"},
	{"\xc2\x9b"
	 "31m",
		"\\xc2\\x9b"
		"31m",
		"??31m"},
	{"\xe2\x82", "\\xe2\\x82", "??"},
	/* an overlong form of '\n', a surrogate, a code point above the range of Unicode */
	{"\xc0\x8a", "\\xc0\\x8a", "??"},
	{"\xe0\x80\x8a", "\\xe0\\x80\\x8a", "???"},
	{"\xed\xa0\x80", "\\xed\\xa0\\x80", "???"},
	{"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80", "????"},
	{"\xff", "\\xff", "?"},
	/* a right-to-left override; a line separator */
	{"a\xe2\x80\xaetxt", "a\\xe2\\x80\\xaetxt", "a???txt"},
	{"a\xe2\x80\xa8"
	 "b",
		"a\\xe2\\x80\\xa8"
		"b",
		"a???b"},
};

Test(base, text_of_others)
{
	char to[128], tiny[6];
	size_t i;

	for (i = 0; i < KARST_DIM(texts); i++) {
		cr_assert_eq(
			karst_text_escape(to, sizeof(to), texts[i].from), strlen(texts[i].shown));
		cr_assert_str_eq(to, texts[i].shown);
		snprintf(to, sizeof(to), "%s", texts[i].from);
		karst_text_clean(to);
		cr_assert_str_eq(to, texts[i].cleaned);
	}
	/* neither a part of an escape sequence nor a part of a character */
	cr_assert_eq(karst_text_escape(tiny, sizeof(tiny), "ab\n"), 2);
	cr_assert_str_eq(tiny, "ab");
	cr_assert_eq(karst_text_escape(tiny, sizeof(tiny), "abc\xe2\x82\xac"), 3);
	cr_assert_eq(karst_text_escape(tiny, sizeof(tiny), "a\n"), 5);
	cr_assert_eq(karst_text_escape(tiny, 1, "a"), 0);
}

Test(base, log_lines_are_escaped)
{
	char name[3000];

	karst_log_set_sink(hear);
	karst_log(KARST_LOG_ERR, "program %s: %d%%", "x\n\x1b[31m%s", 7);
	cr_assert_str_eq(heard, "program x\\x0a\\x1b[31m%s: 7%");
	memset(name, '\n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	karst_log(KARST_LOG_ERR, "%s", name);
	cr_assert_eq(strlen(heard), 1020);
	cr_assert_eq(strcspn(heard, "\n"), 1020);
	karst_log_set_sink(NULL);
}

/* Logs as many lines as the limit allows; the next minute reports how many were suppressed. */
Test(base, some_lines_of_many)
{
	struct karst_log_some some = {0};
	const uint64_t minute = UINT64_C(60000000000);
	uint32_t i;

	karst_log_set_sink(hear_all);
	for (i = 0; i < 100; i++)
		karst_log_some(&some, 7 + i, KARST_LOG_WARNING, "fault %u", i);
	cr_assert_eq(lines_heard, KARST_LOG_SOME_LINES);
	cr_assert_str_eq(heard, "fault 15");
	karst_log_some(&some, 6 + minute, KARST_LOG_WARNING, "too early");
	cr_assert_eq(lines_heard, KARST_LOG_SOME_LINES);
	karst_log_some(&some, 7 + minute, KARST_LOG_WARNING, "fault %u", i);
	cr_assert_eq(lines_heard, KARST_LOG_SOME_LINES + 2);
	cr_assert_str_eq(heard_before, "85 lines like the next one were left out");
	cr_assert_str_eq(heard, "fault 100");
	karst_log_some(&some, 8 + 2 * minute, KARST_LOG_WARNING, "alone");
	cr_assert_eq(lines_heard, KARST_LOG_SOME_LINES + 3);
	karst_log_set_sink(NULL);
}
