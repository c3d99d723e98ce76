/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Streams of events to programs; see stream.c. */
#ifndef ENGINE_STREAM_H
#define ENGINE_STREAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct eng_stream {
	int fd;
	_Atomic bool awaited;   /* epoll will tell when there is room (session_events.c) */
	_Atomic uint64_t *lost; /* records that the program does not get */
};

/* *@reader: the program's end; the caller closes it. */
int eng_stream_open(struct eng_stream *st, _Atomic uint64_t *lost, int *reader);
void eng_stream_close(struct eng_stream *st);
/* Any thread; does not wait.  @return false: there is no room now, until the program has read.  A
 * record that cannot be sent at all is counted as lost. */
bool eng_stream_try(const struct eng_stream *st, const void *record, size_t bytes);
/* The same; a record that finds no room is lost. */
void eng_stream_put(const struct eng_stream *st, const void *record, size_t bytes);
/* Counts a record as lost. */
void eng_stream_lose(const struct eng_stream *st);

#endif /* ENGINE_STREAM_H */
