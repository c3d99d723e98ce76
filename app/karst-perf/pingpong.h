/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * --lat: one message in flight, on a separate queue pair at each end.
 *
 *   SEND, WRITE with immediate   the server answers each receive with the same operation
 *   WRITE                        the server polls the last byte in its memory and writes
 *                                back; the client polls the last byte of the answer (R14)
 *   READ and atomics             there is no answer except the completion
 *
 * The measured time is from before the client posts until it has seen the answer: the full round
 * trip, or for READ and atomics the time of one operation.
 *
 * The last byte of a message (or its immediate data) is its number, so an answer to an older
 * message is not taken for the current one when an unreliable transport loses messages.
 */
#ifndef PERF_PINGPONG_H
#define PERF_PINGPONG_H

#include "traffic.h"

struct perf_pinger {
	const struct perf_bed *bed;
	struct perf_qp *qp;
	struct perf_lanes lanes;
	struct karst_send_wqe template;
	uint8_t *out; /* what is sent */
	uint8_t *in;  /* payload of what is received */
	struct karst_recv_wqe receive;
	uint32_t posted;
	uint32_t number;   /* client: of the message in flight; server: of the last answered */
	uint32_t received; /* number of the last message that arrived in a receive */
	bool fetches;      /* the completion is the answer */
	bool polls;        /* the last byte is polled */
	bool done;         /* client: the completion has arrived */
	uint64_t errors;
};

/** Bytes of perf_memory.lat for messages of @size. */
uint64_t perf_pinger_bytes(uint32_t size);

void perf_pinger_init(const struct perf_bed *bed, enum perf_end end, struct perf_pinger *p);

/** Client: sends the next message. */
void perf_ping(struct perf_pinger *p);

/** Client: has the answer arrived? */
bool perf_ping_done(struct perf_pinger *p);

/** Server: answers if a message has arrived. */
void perf_pong(struct perf_pinger *p);

#endif /* PERF_PINGPONG_H */
