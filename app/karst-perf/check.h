/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * --verify.  Before a message is posted, its pattern (pattern.h) is written to its source memory.
 * After it has arrived, every byte is compared in the destination memory, and the bytes up to the
 * next place must still be zero.  The end that can know that the message has arrived compares:
 *
 *   WRITE, ATOMIC WRITE over RC   client, at the completion, in the server's memory
 *   READ                          client, at the completion, in its own memory
 *   SEND, WRITE with immediate    server, at the receive; a place is posted again afterwards
 *   WRITE over UC                 client, when the wire is empty (perf_client_settle())
 *   CAS, FAA                      client: the old value must be the result of all operations
 *                                 before; at the end every target is compared
 *
 * Over a karstd the client cannot access the server's memory.  Then the server checks what was
 * written, and prepares what is going to be read, while the wire is empty; the client uses only
 * places again that the server has checked (perf_server_settle()).
 *
 * Every fourth CAS compares with a wrong value; it must fail and must not change its target.
 * All of this runs in the reactor, so figures with --verify are lower.
 */
#ifndef PERF_CHECK_H
#define PERF_CHECK_H

#include "traffic.h"

/** Before the first message: clears the destination memory of the messages. */
void perf_check_begin(struct perf_client *c);

/** Message @seq of @flow, with its place at @off, is about to be posted with @w. */
void perf_check_posted(
	struct perf_client *c, struct karst_send_wqe *w, uint32_t flow, uint64_t seq, uint64_t off);

/** The next @n messages of @flow have completed. */
void perf_check_completed(struct perf_client *c, uint32_t flow, uint32_t n);

/** Attached: prepares the server's memory before the first message. */
void perf_check_expect(struct perf_server *s);

/** Attached: messages of @flow up to number @posted have completed. */
void perf_server_settle(struct perf_server *s, uint32_t flow, uint64_t posted);

/** Attached: a checksum of the values of all targets of atomics. */
uint64_t perf_check_targets(const struct perf_server *s);

/** The server received completion @e of sink @flow. */
void perf_check_received(struct perf_server *s, uint32_t flow, const struct karst_cqe *e);

#endif /* PERF_CHECK_H */
