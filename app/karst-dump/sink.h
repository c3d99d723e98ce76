/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Where a decoded frame goes: one readable line, or one JSON object.  show.c walks the fields
 * once and does not know which.
 *
 * A frame is a sequence of groups ("bth", "reth"), a group a sequence of fields.  As text:
 * "| bth qp 0x000011 psn 0x0000a5 ackreq"; as JSON: "bth": {"qp": 17, "psn": 165, ...}.
 */
#ifndef KARST_DUMP_SINK_H
#define KARST_DUMP_SINK_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct sink {
	FILE *out;
	bool json;
	json_t *frame; /* JSON: the object being made, and the group in it */
	json_t *group;
};

/** @out stays the caller's. */
void sink_init(struct sink *s, FILE *out, bool json);

/** A frame starts: its number in the file, seconds since the file's first. */
void sink_frame_begin(struct sink *s, uint64_t number, int64_t time_ns);
/** The frame is complete: prints it. */
void sink_frame_end(struct sink *s);

/** Following fields belong to @name; @title, if not NULL, stands for it in text. */
void sink_group(struct sink *s, const char *name, const char *title);

void sink_dec(struct sink *s, const char *key, uint64_t v);
/** @digits of hexadecimal in text; in JSON a number, or a string if 64 bits wide. */
void sink_hex(struct sink *s, const char *key, uint64_t v, int digits);
void sink_str(struct sink *s, const char *key, const char *v);
/** Whose value speaks for itself: in text without the key. */
void sink_word(struct sink *s, const char *key, const char *v);
void sink_hexword(struct sink *s, const char *key, uint64_t v, int digits);
/** In text only the key, and only if @v. */
void sink_flag(struct sink *s, const char *key, bool v);
/** In text "from > to". */
void sink_pair(struct sink *s, const char *from, const char *to);

#endif /* KARST_DUMP_SINK_H */
