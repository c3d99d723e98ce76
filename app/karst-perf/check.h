/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * --verify.  Before a message is posted, its pattern (pattern.h) is written to where its data
 * comes from; after it has arrived, every byte is compared where it should be, and the bytes
 * from there to the next place must still be zero.  Who can know that it has arrived, looks:
 *
 *   WRITE, ATOMIC WRITE over RC   client, at the completion, in the server's memory
 *   READ                          client, at the completion, in its own memory
 *   SEND, WRITE with immediate    server, at the receive; a place is posted again afterwards
 *   WRITE over UC                 client, when the wire is empty (perf_client_settle())
 *   CAS, FAA                      client: the old value must be the one that all operations
 *                                 before have led to; at the end every target is compared
 *
 * Every fourth CAS compares with a wrong value, must fail and must leave its target alone.
 * All of this runs in the reactor, so figures with --verify are lower.
 */
#ifndef PERF_CHECK_H
#define PERF_CHECK_H

#include "traffic.h"

/** Before the first message: clears what messages are written to. */
void perf_check_begin(struct perf_client *c);

/** Message @seq of @flow, with its place at @off, is about to be posted with @w. */
void perf_check_posted(
	struct perf_client *c, struct karst_send_wqe *w, uint32_t flow, uint64_t seq, uint64_t off);

/** The next @n messages of @flow have completed. */
void perf_check_completed(struct perf_client *c, uint32_t flow, uint32_t n);

/** The server received completion @e of sink @flow. */
void perf_check_received(struct perf_server *s, uint32_t flow, const struct karst_cqe *e);

#endif /* PERF_CHECK_H */
