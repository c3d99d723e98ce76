/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Streams of events to programs; see stream.c. */
#ifndef ENGINE_STREAM_H
#define ENGINE_STREAM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct eng_stream {
	int fd;
	_Atomic uint64_t *lost; /* records for which there was no room */
};

/* *@reader: the program's end; the caller closes it. */
int eng_stream_open(struct eng_stream *st, _Atomic uint64_t *lost, int *reader);
void eng_stream_close(struct eng_stream *st);
/* Any thread; does not wait. */
void eng_stream_put(const struct eng_stream *st, const void *record, size_t bytes);

#endif /* ENGINE_STREAM_H */
