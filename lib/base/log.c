/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Logging, and the escaping of text.  The sink pointer is process-wide. */
#include "karst_log.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define LINE_BYTES 1024u
#define SOME_NS    UINT64_C(60000000000)

/* --- text of programs and peers --- */

/* The number of bytes of the UTF-8 character at @s, and the character; 0: there is none. */
static unsigned int
decode(const uint8_t *s, uint32_t *c)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	unsigned int n = s[0] < 0x80 ? 1
		: s[0] < 0xc2        ? 0
		: s[0] < 0xe0        ? 2
		: s[0] < 0xf0        ? 3
				     : 4,
		     i;

	if (n == 0 || s[0] > 0xf4)
		return 0;
	*c = n == 1 ? s[0] : s[0] & (0xffu >> (n + 1));
	for (i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80) /* also stops at the final 0 */
			return 0;
		*c = *c << 6 | (s[i] & 0x3f);
	}
	return *c < least[n] || (*c >= 0xd800 && *c < 0xe000) || *c > 0x10ffff ? 0 : n;
}

/* The number of bytes of the character at @s if it is harmless in a line of text; else 0. */
static unsigned int
harmless(const uint8_t *s)
{
	uint32_t c = 0;
	unsigned int n = decode(s, &c);
	bool bad = c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x61c ||
		(c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
		(c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffb) ||
		(c >= 0xe0000 && c <= 0xe007f);

	return bad ? 0 : n;
}

size_t
karst_text_escape(char *to, size_t room, const char *from)
{
	const uint8_t *s = (const uint8_t *)from;
	size_t n = 0;

	while (*s != 0) {
		unsigned int whole = harmless(s), bytes = whole != 0 ? whole : 4;

		if (n + bytes >= room)
			break;
		if (whole != 0)
			memcpy(to + n, s, whole);
		else
			snprintf(to + n, room - n, "\\x%02x", s[0]);
		n += bytes;
		s += whole != 0 ? whole : 1;
	}
	to[n] = '\0';
	return n;
}

void
karst_text_clean(char *text)
{
	unsigned int n;

	for (; *text != '\0'; text += n) {
		n = harmless((const uint8_t *)text);
		if (n == 0) {
			*text = '?';
			n = 1;
		}
	}
}

/* --- lines --- */

static void
stderr_sink(enum karst_log_level level, const char *fmt, va_list ap)
{
	static const char *const names[] = {"error", "warning", "notice", "info", "debug"};

	if (level > KARST_LOG_NOTICE)
		return;
	fprintf(stderr, "karst: %s: ", names[level]);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
}

static karst_log_sink_fn sink = stderr_sink;

void
karst_log_set_sink(karst_log_sink_fn fn)
{
	sink = fn != NULL ? fn : stderr_sink;
}

/* Calls the sink, which takes a format and its arguments. */
__attribute__((format(printf, 2, 3))) static void
pass(enum karst_log_level level, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	sink(level, fmt, ap);
	va_end(ap);
}

static void
log_line(enum karst_log_level level, const char *fmt, va_list ap)
{
	char line[LINE_BYTES], shown[LINE_BYTES];

	vsnprintf(line, sizeof(line), fmt, ap);
	karst_text_escape(shown, sizeof(shown), line);
	pass(level, "%s", shown);
}

void
karst_log(enum karst_log_level level, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	log_line(level, fmt, ap);
	va_end(ap);
}

/* Whether the limit allows one more line.  *left_out: lines that were not reported yet.  All
 * relaxed: these are counters, and an error of one line does no harm. */
static bool
some_take(struct karst_log_some *some, uint64_t now_ns, uint32_t *left_out)
{
	uint64_t until = __atomic_load_n(&some->until_ns, __ATOMIC_RELAXED);

	*left_out = 0;
	/* one of the threads that arrive here begins the next minute */
	if (now_ns >= until &&
		__atomic_compare_exchange_n(&some->until_ns, &until, now_ns + SOME_NS, false,
			__ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
		*left_out = __atomic_exchange_n(&some->left_out, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&some->lines, 0, __ATOMIC_RELAXED);
	}
	if (__atomic_fetch_add(&some->lines, 1, __ATOMIC_RELAXED) < KARST_LOG_SOME_LINES)
		return true;
	__atomic_fetch_add(&some->left_out, 1, __ATOMIC_RELAXED);
	return false;
}

void
karst_log_some(struct karst_log_some *some, uint64_t now_ns, enum karst_log_level level,
	const char *fmt, ...)
{
	uint32_t left_out;
	va_list ap;

	if (!some_take(some, now_ns, &left_out))
		return;
	if (left_out != 0)
		karst_log(KARST_LOG_NOTICE, "%u lines like the next one were left out", left_out);
	va_start(ap, fmt);
	log_line(level, fmt, ap);
	va_end(ap);
}
