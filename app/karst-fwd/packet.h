/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Build the headers of packets from a template, and step through the packets of a flow.
 *
 * A message is one packet, or First, Middle ..., Last.  There is a shape for each of these, with
 * headers that lib/wire has built.  A packet is a copy of its shape's headers, in which the fields
 * are replaced that differ between flows and packets.
 */
#ifndef FWD_PACKET_H
#define FWD_PACKET_H

#include "template.h"

enum fwd_place { FWD_ONLY, FWD_FIRST, FWD_MIDDLE, FWD_LAST, FWD_PLACES };

#define FWD_HEADERS_MAX 128

struct fwd_shape {
	/* Ethernet to the last extended header; fields that differ between flows are set later */
	uint8_t hdr[FWD_HEADERS_MAX];
	uint16_t hdr_len, pay_len; /* without pad */
	uint8_t pad, bth_off, l3_off, opcode;
	bool ackreq;
	uint32_t len; /* of the frame, including the ICRC */
};

struct fwd_shapes {
	struct fwd_template t;
	uint32_t packets; /* in a message */
	uint32_t psns;    /* of a message */
	struct fwd_shape shape[FWD_PLACES];
};

/** @smac, @dmac: used if the template has none. */
void fwd_shapes_build(struct fwd_shapes *s, const struct fwd_template *t, const uint8_t smac[6],
	const uint8_t dmac[6]);

/**
 * State of one flow.  Initially all members are 0 except @qpn, @sport, and @psn, which is the
 * template's.
 */
struct fwd_gen_flow {
	const struct fwd_shapes *shapes;
	uint32_t qpn, src_qpn, psn;
	uint16_t sport;
	uint32_t packet;   /* index in the message */
	uint64_t messages; /* sent */
};

/** @number: of the flow among all flows of its template in this program. */
void fwd_gen_flow_init(struct fwd_gen_flow *g, const struct fwd_shapes *s, uint32_t number);

/** Whether all its messages are sent. */
static inline bool
fwd_gen_flow_done(const struct fwd_gen_flow *g)
{
	return g->shapes->t.count != 0 && g->messages == g->shapes->t.count;
}

/** @return the shape of the next packet. */
static inline const struct fwd_shape *
fwd_gen_flow_shape(const struct fwd_gen_flow *g)
{
	const struct fwd_shapes *s = g->shapes;

	if (s->packets == 1)
		return &s->shape[FWD_ONLY];
	if (g->packet == 0)
		return &s->shape[FWD_FIRST];
	return &s->shape[g->packet + 1 == s->packets ? FWD_LAST : FWD_MIDDLE];
}

/** Writes the headers of the next packet to @to, and advances to the packet after it. */
void fwd_gen_flow_next(struct fwd_gen_flow *g, uint8_t *to);

#endif /* FWD_PACKET_H */
