/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Logging, for control paths only: nothing on the data path logs.  The library writes through a
 * sink that the embedding program may replace (lib/engine routes it to rte_log).
 *
 * A line may quote text that a program or a peer has sent.  karst_log() escapes the whole line
 * before the sink gets it, so that this text cannot end the line, forge another one, or control the
 * reader's terminal.  Callers need no other precautions.
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

/** Logs one line of up to 1,023 bytes; no trailing newline in @fmt.  The line is escaped by
 *  karst_text_escape().  Any thread; never on the data path. */
void karst_log(enum karst_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/** Limit, in a minute, of the logged lines that programs or peers can cause as often as they like;
 *  the next line is preceded by the number of lines left out. */
#define KARST_LOG_SOME_LINES 16u

/** The lines that are counted together; initially zero. */
struct karst_log_some {
	uint64_t until_ns; /* when the minute is over */
	uint32_t lines, left_out;
};

/** As karst_log(), if the limit allows one more line.  @now_ns: of any clock that does not go
 *  back. */
void karst_log_some(struct karst_log_some *some, uint64_t now_ns, enum karst_log_level level,
	const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/**
 * Copies @from to @to, of @room bytes including the final 0.  Each byte that is not part of
 * printable UTF-8 becomes \xNN: control characters, characters that change the direction of
 * writing, line and paragraph separators, and bytes that are not UTF-8.  Stops early rather than
 * split a character.
 * @return the length of @to.
 */
size_t karst_text_escape(char *to, size_t room, const char *from);

/** The same in place, with '?' for each such byte: for names that are stored and displayed. */
void karst_text_clean(char *text);

#endif /* KARST_LOG_H */
