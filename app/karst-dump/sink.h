/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Output of a decoded frame: one line of text, or one JSON object.  show.c goes through the fields
 * once and does not know which of the two is written.
 *
 * A frame is a sequence of groups ("bth", "reth"), a group is a sequence of fields.  As text: "|
 * bth qp 0x000011 psn 0x0000a5 ackreq"; as JSON: "bth": {"qp": 17, "psn": 165, ...}.
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
	json_t *frame; /* JSON: the object under construction, and its current group */
	json_t *group;
};

/** @out remains the caller's. */
void sink_init(struct sink *s, FILE *out, bool json);

/** Begin a frame: its number in the file, and nanoseconds since the first frame of the file. */
void sink_frame_begin(struct sink *s, uint64_t number, int64_t time_ns);
/** Print the frame, which is complete. */
void sink_frame_end(struct sink *s);

/** Begin group @name.  In text @title, if not NULL, replaces the name. */
void sink_group(struct sink *s, const char *name, const char *title);

void sink_dec(struct sink *s, const char *key, uint64_t v);
/** In text, @digits hexadecimal digits; in JSON a number, or a string if it is 64 bits wide. */
void sink_hex(struct sink *s, const char *key, uint64_t v, int digits);
void sink_str(struct sink *s, const char *key, const char *v);
/** In text, the value without the key. */
void sink_word(struct sink *s, const char *key, const char *v);
void sink_hexword(struct sink *s, const char *key, uint64_t v, int digits);
/** In text, only the key, and only if @v is true. */
void sink_flag(struct sink *s, const char *key, bool v);
/** In text, "from > to". */
void sink_pair(struct sink *s, const char *from, const char *to);

#endif /* KARST_DUMP_SINK_H */
