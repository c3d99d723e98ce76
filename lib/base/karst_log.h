/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Logging, for control paths only: nothing on the data path logs.  The library writes
 * through a sink that the embedding program may replace (lib/engine routes it to rte_log).
 *
 * A line may quote what a program or a peer has sent.  So that none of it can end the line, forge
 * another, or steer the terminal of whoever reads it, karst_log() escapes the whole line before
 * the sink sees it; callers need not think of it.
 */
#ifndef KARST_LOG_H
#define KARST_LOG_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

enum karst_log_level {
	KARST_LOG_ERR,
	KARST_LOG_WARNING,
	KARST_LOG_NOTICE,
	KARST_LOG_INFO,
	KARST_LOG_DEBUG,
};

typedef void (*karst_log_sink_fn)(enum karst_log_level level, const char *fmt, va_list ap);

/**
 * Replaces the sink; NULL restores the default, which prints NOTICE and worse to stderr.
 * Call before other threads use karst.
 */
void karst_log_set_sink(karst_log_sink_fn sink);

/** Logs one line of up to 1,023 bytes; no trailing newline in @fmt.  What karst_text_escape()
 *  escapes is escaped.  Any thread; never on the data path. */
void karst_log(enum karst_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/** Of lines that programs or peers can cause as often as they like, so many are logged in a minute;
 *  how many were left out is said with the next one. */
#define KARST_LOG_SOME_LINES 16u

/** Those that are counted together; at first zero. */
struct karst_log_some {
	uint64_t until_ns; /* when the minute is over */
	uint32_t lines, left_out;
};

/** As karst_log(), if there is room for one more.  @now_ns: of any clock that does not go back. */
void karst_log_some(struct karst_log_some *some, uint64_t now_ns, enum karst_log_level level,
	const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/**
 * Writes @from to @to, of @room bytes with the 0 at the end, with each byte that is no part of
 * printable UTF-8 as \xNN: control characters, what turns the direction of writing, line and
 * paragraph separators, and what is no UTF-8 at all.  Ends early rather than within a character.
 * @return the length of @to.
 */
size_t karst_text_escape(char *to, size_t room, const char *from);

/** The same in place, with '?' for each such byte: for names that are kept and shown. */
void karst_text_clean(char *text);

#endif /* KARST_LOG_H */
