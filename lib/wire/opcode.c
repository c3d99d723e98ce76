/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The opcode tables, generated from karst_opcode.def.
 *
 * Each row of the .def is expanded once per transport.  A combination that no transport has is
 * written, as zeros, to slot 0xff: that code belongs to the reserved transport 7, so it is unknown
 * anyway.  The place of the combination itself may belong to another row (CNP shares its operation
 * code with SEND Middle), which is not overwritten.
 */
#include "karst_opcode.h"
#include "karst_hdr.h"
#include "layout.h"

#define NOWHERE 0xff

/* The headers that a transport adds in front of an operation's, on requests and on responses. */
enum transport_headers {
#define KARST_TRANSPORT(code, sym, req, rsp) REQ_##sym = (req), RSP_##sym = (rsp),
#include "karst_opcode.def"
#undef KARST_TRANSPORT
};

#define ON(on, t)          (((on)&KARST_OPT_##t) != 0)
#define PLACE(code, on, t) (ON(on, t) ? KARST_TRANSPORT_##t | (code) : NOWHERE)

/* The headers of an operation that the transport adds. */
#define FRONT(flags, t)                                         \
	(((flags)&KARST_OPF_REQUEST ? (uint32_t)REQ_##t : 0u) | \
		((flags)&KARST_OPF_RESPONSE ? (uint32_t)RSP_##t : 0u))
#define FLAGS(flags, t) ((uint32_t)(flags) | KARST_OPF_KNOWN | FRONT(flags, t))

/* Offset of each header, in the order of the wire (W5), and of the end of the last one. */
#define HAS(f, sym)     (((f)&KARST_OPF_##sym) != 0)
#define AT_DETH(f)      (KARST_BTH_LEN + HAS(f, RDETH) * KARST_RDETH_LEN)
#define AT_XRCETH(f)    (AT_DETH(f) + HAS(f, DETH) * KARST_DETH_LEN)
#define AT_FETH(f)      (AT_XRCETH(f) + HAS(f, XRCETH) * KARST_XRCETH_LEN)
#define AT_RETH(f)      (AT_FETH(f) + HAS(f, FETH) * KARST_FETH_LEN)
#define AT_ATOMICETH(f) (AT_RETH(f) + HAS(f, RETH) * KARST_RETH_LEN)
#define AT_AETH(f)      (AT_ATOMICETH(f) + HAS(f, ATOMICETH) * KARST_ATOMICETH_LEN)
#define AT_ATOMICACK(f) (AT_AETH(f) + HAS(f, AETH) * KARST_AETH_LEN)
#define AT_IMM(f)       (AT_ATOMICACK(f) + HAS(f, ATOMICACK) * KARST_ATOMICACK_LEN)
#define AT_IETH(f)      (AT_IMM(f) + HAS(f, IMM) * KARST_IMM_LEN)
#define AT_END(f)       (AT_IETH(f) + HAS(f, IETH) * KARST_IETH_LEN)

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init" /* slot NOWHERE, see above */

#define ENTRY(code, flag, on, t)                                   \
	[PLACE(code, on, t)] = {                                   \
		.flags = ON(on, t) ? FLAGS(flag, t) : 0,           \
		.hdr_len = ON(on, t) ? AT_END(FLAGS(flag, t)) : 0, \
	},

const struct karst_opcode_info karst_opcode_table[256] = {
#define KARST_OPERATION(code, sym, name, flags, on) \
	ENTRY(code, flags, on, RC)                  \
	ENTRY(code, flags, on, UC)                  \
	ENTRY(code, flags, on, RD)                  \
	ENTRY(code, flags, on, UD)                  \
	ENTRY(code, flags, on, CNP)                 \
	ENTRY(code, flags, on, XRC)                 \
	ENTRY(code, flags, on, VENDOR)
#include "karst_opcode.def"
#undef KARST_OPERATION
};

/* @f: all flags, including those of the transport. */
#define LAYOUT(f)                                             \
	{                                                     \
		.hdr_len = (f) != 0 ? AT_END(f) : 0,          \
		.reth = HAS(f, RETH)        ? AT_RETH(f)      \
			: HAS(f, ATOMICETH) ? AT_ATOMICETH(f) \
					    : 0,              \
		.imm = HAS(f, IMM)     ? AT_IMM(f)            \
			: HAS(f, IETH) ? AT_IETH(f)           \
				       : 0,                   \
		.aeth = HAS(f, AETH)   ? AT_AETH(f)           \
			: HAS(f, DETH) ? AT_DETH(f)           \
				       : 0,                   \
		.src = HAS(f, DETH)      ? AT_DETH(f) + 4     \
			: HAS(f, XRCETH) ? AT_XRCETH(f)       \
					 : 0,                 \
		.payload = HAS(f, PAYLOAD) || HAS(f, CNP),    \
	},
#define PLACED(code, flag, on, t) [PLACE(code, on, t)] = LAYOUT(ON(on, t) ? FLAGS(flag, t) : 0u)

const struct karst_wire_layout karst_wire_layouts[256] = {
#define KARST_OPERATION(code, sym, name, flags, on) \
	PLACED(code, flags, on, RC)                 \
	PLACED(code, flags, on, UC)                 \
	PLACED(code, flags, on, RD)                 \
	PLACED(code, flags, on, UD)                 \
	PLACED(code, flags, on, CNP)                \
	PLACED(code, flags, on, XRC)                \
	PLACED(code, flags, on, VENDOR)
#include "karst_opcode.def"
#undef KARST_OPERATION
};

/* CNP and SACK are each the only operation of a transport, which the name does not repeat. */
#define TEXT(code, on, t, text) [PLACE(code, on, t)] = ON(on, t) ? (text) : NULL,

static const char *const names[256] = {
#define KARST_OPERATION(code, sym, name, flags, on) \
	TEXT(code, on, RC, "RC " name)              \
	TEXT(code, on, UC, "UC " name)              \
	TEXT(code, on, RD, "RD " name)              \
	TEXT(code, on, UD, "UD " name)              \
	TEXT(code, on, CNP, name)                   \
	TEXT(code, on, XRC, "XRC " name)            \
	TEXT(code, on, VENDOR, name)
#include "karst_opcode.def"
#undef KARST_OPERATION
};

static const char *const symbols[256] = {
#define KARST_OPERATION(code, sym, name, flags, on) \
	TEXT(code, on, RC, "RC_" #sym)              \
	TEXT(code, on, UC, "UC_" #sym)              \
	TEXT(code, on, RD, "RD_" #sym)              \
	TEXT(code, on, UD, "UD_" #sym)              \
	TEXT(code, on, CNP, #sym)                   \
	TEXT(code, on, XRC, "XRC_" #sym)            \
	TEXT(code, on, VENDOR, #sym)
#include "karst_opcode.def"
#undef KARST_OPERATION
};

#pragma GCC diagnostic pop

const char *
karst_opcode_name(uint8_t opcode)
{
	return names[opcode] != NULL ? names[opcode] : "unknown";
}

const char *
karst_opcode_symbol(uint8_t opcode)
{
	return symbols[opcode] != NULL ? symbols[opcode] : "unknown";
}
