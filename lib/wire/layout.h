/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Offsets of the fields of struct karst_pkt, per opcode: the second table generated from
 * karst_opcode.def, private to lib/wire.
 */
#ifndef KARST_WIRE_LAYOUT_H
#define KARST_WIRE_LAYOUT_H

#include "karst_base.h"

/* Offsets from the BTH; 0 where the opcode has no such header. */
struct karst_wire_layout {
	uint8_t hdr_len; /* BTH and extended headers; 0: unknown opcode */
	uint8_t reth;    /* RETH or AtomicETH: va, rkey, dma_len */
	uint8_t imm;     /* ImmDt or IETH */
	uint8_t aeth;    /* AETH, or the Q_Key of DETH */
	uint8_t src;     /* the source QP of DETH, or XRCETH */
	uint8_t payload; /* 1: bytes may follow the headers */
	uint8_t reserved[2];
};

static_assert(sizeof(struct karst_wire_layout) == 8, "eight opcodes to a cache line");

extern const struct karst_wire_layout karst_wire_layouts[256];

#endif /* KARST_WIRE_LAYOUT_H */
