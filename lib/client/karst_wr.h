/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What kinds of send work requests there are: on which types of queue pairs, with what in their
 * slots, and as what they complete.  For libkarst and the shims above it that write slots
 * themselves; not installed.
 */
#ifndef KARST_WR_H
#define KARST_WR_H

#include "karst_ring.h"
#include "karst_verbs.h"

/** What stands in the slot beside the header. */
enum karst_wr_shape {
	KARST_WR_SHAPE_NONE, /* no such operation */
	KARST_WR_SHAPE_SEND,
	KARST_WR_SHAPE_RDMA,
	KARST_WR_SHAPE_ATOMIC,
	KARST_WR_SHAPE_INV,
	KARST_WR_SHAPE_BIND,
};

struct karst_wr_op {
	uint16_t types; /* bits 1 << enum karst_qp_type */
	uint8_t shape;  /* enum karst_wr_shape */
	uint8_t wc;     /* enum karst_wc_opcode */
	bool inlined;   /* may bring its payload in the slot */
};

#define KARST_WR_RC (1u << KARST_QPT_RC)
#define KARST_WR_UC (1u << KARST_QPT_UC)
#define KARST_WR_UD (1u << KARST_QPT_UD)
#define KARST_WR_RX (KARST_WR_RC | 1u << KARST_QPT_XRC_SEND) /* what RC has, XRC has */

static const struct karst_wr_op karst_wr_ops[KARST_WR_MAX] = {
	[KARST_WR_RDMA_WRITE] = {KARST_WR_RX | KARST_WR_UC, KARST_WR_SHAPE_RDMA,
		KARST_WC_RDMA_WRITE, true},
	[KARST_WR_RDMA_WRITE_WITH_IMM] = {KARST_WR_RX | KARST_WR_UC, KARST_WR_SHAPE_RDMA,
		KARST_WC_RDMA_WRITE, true},
	[KARST_WR_SEND] = {KARST_WR_RX | KARST_WR_UC | KARST_WR_UD, KARST_WR_SHAPE_SEND,
		KARST_WC_SEND, true},
	[KARST_WR_SEND_WITH_IMM] = {KARST_WR_RX | KARST_WR_UC | KARST_WR_UD, KARST_WR_SHAPE_SEND,
		KARST_WC_SEND, true},
	[KARST_WR_SEND_WITH_INV] = {KARST_WR_RX, KARST_WR_SHAPE_SEND, KARST_WC_SEND, true},
	[KARST_WR_RDMA_READ] = {KARST_WR_RX, KARST_WR_SHAPE_RDMA, KARST_WC_RDMA_READ, false},
	[KARST_WR_ATOMIC_CAS] = {KARST_WR_RX, KARST_WR_SHAPE_ATOMIC, KARST_WC_COMP_SWAP, false},
	[KARST_WR_ATOMIC_FAA] = {KARST_WR_RX, KARST_WR_SHAPE_ATOMIC, KARST_WC_FETCH_ADD, false},
	[KARST_WR_ATOMIC_WRITE] = {KARST_WR_RX, KARST_WR_SHAPE_RDMA, KARST_WC_ATOMIC_WRITE, true},
	[KARST_WR_LOCAL_INV] = {KARST_WR_RX | KARST_WR_UC, KARST_WR_SHAPE_INV, KARST_WC_LOCAL_INV,
		false},
	[KARST_WR_BIND_MW] = {KARST_WR_RX | KARST_WR_UC, KARST_WR_SHAPE_BIND, KARST_WC_BIND_MW,
		false},
};

/** The operation, if queue pairs of this type have it; NULL otherwise, whatever @opcode is. */
static inline const struct karst_wr_op *
karst_wr_op(unsigned int opcode, unsigned int qp_type)
{
	if (karst_unlikely(opcode >= KARST_WR_MAX || !(karst_wr_ops[opcode].types & 1u << qp_type)))
		return NULL;
	return &karst_wr_ops[opcode];
}

#endif /* KARST_WR_H */
