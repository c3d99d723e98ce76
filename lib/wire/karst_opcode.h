/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * BTH opcodes: constants KARST_RC_SEND_FIRST, KARST_UC_..., and the headers of each.  Generated
 * from karst_opcode.def.
 */
#ifndef KARST_OPCODE_H
#define KARST_OPCODE_H

#include "karst_base.h"

/* Properties of an opcode. */
enum karst_opcode_flags {
	KARST_OPF_REQUEST = 1u << 0,
	KARST_OPF_RESPONSE = 1u << 1,
	KARST_OPF_START = 1u << 2, /* First or Only */
	KARST_OPF_END = 1u << 3,   /* Last or Only */
	KARST_OPF_PAYLOAD = 1u << 4,
	KARST_OPF_SEND = 1u << 5,
	KARST_OPF_WRITE = 1u << 6,
	KARST_OPF_READ = 1u << 7,   /* READ request or READ response */
	KARST_OPF_ATOMIC = 1u << 8, /* CmpSwap, FetchAdd or their acknowledge */
	KARST_OPF_ATOMICWRITE = 1u << 9,
	KARST_OPF_FLUSH = 1u << 10,
	KARST_OPF_CNP = 1u << 11,
	/* extended headers, in the order of the wire (W5) */
	KARST_OPF_RDETH = 1u << 16,
	KARST_OPF_DETH = 1u << 17,
	KARST_OPF_XRCETH = 1u << 18,
	KARST_OPF_FETH = 1u << 19,
	KARST_OPF_RETH = 1u << 20,
	KARST_OPF_ATOMICETH = 1u << 21,
	KARST_OPF_AETH = 1u << 22,
	KARST_OPF_ATOMICACK = 1u << 23,
	KARST_OPF_IMM = 1u << 24,
	KARST_OPF_IETH = 1u << 25,
	KARST_OPF_KNOWN = 1u << 31,
};

/* The transports that have an operation. */
enum karst_opcode_transports {
	KARST_OPT_RC = 1u << 0,
	KARST_OPT_UC = 1u << 1,
	KARST_OPT_RD = 1u << 2,
	KARST_OPT_UD = 1u << 3,
	KARST_OPT_CNP = 1u << 4,
	KARST_OPT_XRC = 1u << 5,
	KARST_OPT_VENDOR = 1u << 6,
};

enum karst_transport {
#define KARST_TRANSPORT(code, sym, req, rsp) KARST_TRANSPORT_##sym = code,
#include "karst_opcode.def"
#undef KARST_TRANSPORT
	KARST_TRANSPORT_MASK = 0xe0,
};

enum karst_operation {
#define KARST_OPERATION(code, sym, name, flags, on) KARST_OPERATION_##sym = code,
#include "karst_opcode.def"
#undef KARST_OPERATION
	KARST_OPERATION_MASK = 0x1f,
};

/*
 * Every combination has a constant; the table and the parser treat combinations that no transport
 * has as unknown.
 */
enum karst_opcode {
#define KARST_OPERATION(code, sym, name, flags, on)   \
	KARST_RC_##sym = KARST_TRANSPORT_RC | (code), \
	KARST_UC_##sym = KARST_TRANSPORT_UC | (code), \
	KARST_RD_##sym = KARST_TRANSPORT_RD | (code), \
	KARST_UD_##sym = KARST_TRANSPORT_UD | (code), \
	KARST_XRC_##sym = KARST_TRANSPORT_XRC | (code),
#include "karst_opcode.def"
#undef KARST_OPERATION
	KARST_CNP = 0x81,
	KARST_SACK = 0xd1,
};

struct karst_opcode_info {
	uint32_t flags;  /* enum karst_opcode_flags; 0 for an unknown opcode */
	uint8_t hdr_len; /* BTH and extended headers, bytes */
	uint8_t reserved[3];
};

extern const struct karst_opcode_info karst_opcode_table[256];

/** Flags of an opcode; 0 if it is unknown. */
static inline uint32_t
karst_opcode_flags(uint8_t opcode)
{
	return karst_opcode_table[opcode].flags;
}

/** "RC SEND First"; "unknown" for an unknown opcode. */
const char *karst_opcode_name(uint8_t opcode);

/** The name of its constant without "KARST_": "RC_SEND_FIRST"; "unknown" for an unknown opcode. */
const char *karst_opcode_symbol(uint8_t opcode);

#endif /* KARST_OPCODE_H */
