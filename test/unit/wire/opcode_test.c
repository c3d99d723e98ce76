/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The generated opcode table against a list written by hand from W4 and W5. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "karst_opcode.h"

#define RETH KARST_OPF_RETH
#define AETH KARST_OPF_AETH
#define IMM  KARST_OPF_IMM
#define IETH KARST_OPF_IETH

/* For each operation, written by hand: the transports that have it and its headers on RC. */
struct fact {
	uint8_t operation;
	const char *text;
	bool uc, ud;
	uint8_t rc_len; /* BTH and extended headers */
	bool request, payload;
	uint32_t headers;
};

static const struct fact facts[] = {
	{0x00, "SEND_FIRST", true, false, 12, true, true, 0},
	{0x01, "SEND_MIDDLE", true, false, 12, true, true, 0},
	{0x02, "SEND_LAST", true, false, 12, true, true, 0},
	{0x03, "SEND_LAST_IMM", true, false, 12 + 4, true, true, IMM},
	{0x04, "SEND_ONLY", true, true, 12, true, true, 0},
	{0x05, "SEND_ONLY_IMM", true, true, 12 + 4, true, true, IMM},
	{0x06, "WRITE_FIRST", true, false, 12 + 16, true, true, RETH},
	{0x07, "WRITE_MIDDLE", true, false, 12, true, true, 0},
	{0x08, "WRITE_LAST", true, false, 12, true, true, 0},
	{0x09, "WRITE_LAST_IMM", true, false, 12 + 4, true, true, IMM},
	{0x0a, "WRITE_ONLY", true, false, 12 + 16, true, true, RETH},
	{0x0b, "WRITE_ONLY_IMM", true, false, 12 + 16 + 4, true, true, RETH | IMM},
	{0x0c, "READ_REQUEST", false, false, 12 + 16, true, false, RETH},
	{0x0d, "READ_RESP_FIRST", false, false, 12 + 4, false, true, AETH},
	{0x0e, "READ_RESP_MIDDLE", false, false, 12, false, true, 0},
	{0x0f, "READ_RESP_LAST", false, false, 12 + 4, false, true, AETH},
	{0x10, "READ_RESP_ONLY", false, false, 12 + 4, false, true, AETH},
	{0x11, "ACK", false, false, 12 + 4, false, false, AETH},
	{0x12, "ATOMIC_ACK", false, false, 12 + 4 + 8, false, false, AETH | KARST_OPF_ATOMICACK},
	{0x13, "CMP_SWAP", false, false, 12 + 28, true, false, KARST_OPF_ATOMICETH},
	{0x14, "FETCH_ADD", false, false, 12 + 28, true, false, KARST_OPF_ATOMICETH},
	{0x16, "SEND_LAST_INV", false, false, 12 + 4, true, true, IETH},
	{0x17, "SEND_ONLY_INV", false, false, 12 + 4, true, true, IETH},
	{0x1c, "FLUSH", false, false, 12 + 4 + 16, true, false, KARST_OPF_FETH | RETH},
	{0x1d, "ATOMIC_WRITE", false, false, 12 + 16, true, true, RETH},
};

/* Without the headers that the transport puts in front. */
#define OWN_HEADERS \
	(KARST_OPF_FETH | RETH | KARST_OPF_ATOMICETH | AETH | KARST_OPF_ATOMICACK | IMM | IETH)

static void
check(uint8_t opcode, const char *transport, const struct fact *f, unsigned int extra)
{
	const struct karst_opcode_info *info = &karst_opcode_table[opcode];
	char symbol[64];

	snprintf(symbol, sizeof(symbol), "%s_%s", transport, f->text);
	cr_expect_str_eq(karst_opcode_symbol(opcode), symbol);
	cr_expect(info->flags & KARST_OPF_KNOWN, "%s", symbol);
	cr_expect_eq(info->hdr_len, f->rc_len + extra, "%s: %u", symbol, info->hdr_len);
	cr_expect_eq((info->flags & KARST_OPF_REQUEST) != 0, f->request, "%s", symbol);
	cr_expect_eq((info->flags & KARST_OPF_RESPONSE) != 0, !f->request, "%s", symbol);
	cr_expect_eq((info->flags & KARST_OPF_PAYLOAD) != 0, f->payload, "%s", symbol);
	cr_expect_eq(info->flags & OWN_HEADERS, f->headers, "%s", symbol);
	cr_expect_eq(info->flags, karst_opcode_flags(opcode), "%s", symbol);
}

Test(opcode, known_ones_are_as_written_by_hand)
{
	size_t i;

	for (i = 0; i < KARST_DIM(facts); i++) {
		const struct fact *f = &facts[i];
		/* RD: RDETH always, DETH on requests; XRC: XRCETH on requests; UD: DETH (W4) */
		check(0x00 | f->operation, "RC", f, 0);
		check(0x40 | f->operation, "RD", f, f->request ? 4 + 8 : 4);
		check(0xa0 | f->operation, "XRC", f, f->request ? 4 : 0);
		if (f->uc)
			check(0x20 | f->operation, "UC", f, 0);
		if (f->ud)
			check(0x60 | f->operation, "UD", f, 8);
	}
}

Test(opcode, no_others_are_known)
{
	bool known[256] = {false};
	unsigned int n = 0;
	size_t i;

	for (i = 0; i < KARST_DIM(facts); i++) {
		known[0x00 | facts[i].operation] = true;
		known[0x40 | facts[i].operation] = true;
		known[0xa0 | facts[i].operation] = true;
		known[0x20 | facts[i].operation] = facts[i].uc;
		known[0x60 | facts[i].operation] = facts[i].ud;
	}
	known[0x81] = known[0xd1] = true;
	for (i = 0; i < 256; i++) {
		n += karst_opcode_flags((uint8_t)i) != 0;
		cr_expect_eq(karst_opcode_flags((uint8_t)i) != 0, known[i], "0x%02zx", i);
		cr_expect_eq(karst_opcode_table[i].hdr_len != 0, known[i], "0x%02zx", i);
		if (!known[i]) {
			cr_expect_str_eq(karst_opcode_name((uint8_t)i), "unknown");
			cr_expect_str_eq(karst_opcode_symbol((uint8_t)i), "unknown");
		}
	}
	cr_expect_eq(n, 25 * 3 + 12 + 2 + 1 + 1);
}

Test(opcode, cnp)
{
	cr_expect_eq(KARST_CNP, 0x81);
	cr_expect_str_eq(karst_opcode_name(0x81), "CNP");
	cr_expect_str_eq(karst_opcode_symbol(0x81), "CNP");
	cr_expect_eq(karst_opcode_flags(0x81), KARST_OPF_CNP | KARST_OPF_KNOWN);
	cr_expect_eq(karst_opcode_table[0x81].hdr_len, 12);
}

/* (X7): an acknowledgement with a bitmap behind it. */
Test(opcode, x7_sack)
{
	cr_expect_eq(KARST_SACK, 0xd1);
	cr_expect_str_eq(karst_opcode_name(0xd1), "SACK");
	cr_expect_str_eq(karst_opcode_symbol(0xd1), "SACK");
	cr_expect_eq(karst_opcode_flags(0xd1),
		KARST_OPF_RESPONSE | AETH | KARST_OPF_PAYLOAD | KARST_OPF_KNOWN);
	cr_expect_eq(karst_opcode_table[0xd1].hdr_len, 16);
}

Test(opcode, names_and_constants)
{
	cr_expect_str_eq(karst_opcode_name(KARST_RC_SEND_FIRST), "RC SEND First");
	cr_expect_str_eq(karst_opcode_name(KARST_UD_SEND_ONLY_IMM), "UD SEND Only Imm");
	cr_expect_str_eq(karst_opcode_name(KARST_XRC_ATOMIC_WRITE), "XRC ATOMIC WRITE");
	cr_expect_eq(KARST_RC_ACK, 0x11);
	cr_expect_eq(KARST_UC_WRITE_ONLY_IMM, 0x2b);
	cr_expect_eq(KARST_RD_FETCH_ADD, 0x54);
	cr_expect_eq(KARST_UD_SEND_ONLY, 0x64);
	cr_expect_eq(KARST_XRC_SEND_ONLY_INV, 0xb7);
	cr_expect_eq(KARST_RC_FLUSH, 0x1c);
}

/* First, Middle, Last, Only (W4): by START and END. */
Test(opcode, position_in_the_message)
{
	static const uint8_t first[] = {0x00, 0x06, 0x0d}, middle[] = {0x01, 0x07, 0x0e};
	static const uint8_t last[] = {0x02, 0x03, 0x08, 0x09, 0x0f, 0x16};
	static const uint8_t only[] = {
		0x04, 0x05, 0x0a, 0x0b, 0x0c, 0x10, 0x13, 0x14, 0x17, 0x1c, 0x1d};
	const uint32_t both = KARST_OPF_START | KARST_OPF_END;
	size_t i;

	for (i = 0; i < sizeof(first); i++)
		cr_expect_eq(karst_opcode_flags(first[i]) & both, KARST_OPF_START);
	for (i = 0; i < sizeof(middle); i++)
		cr_expect_eq(karst_opcode_flags(middle[i]) & both, 0);
	for (i = 0; i < sizeof(last); i++)
		cr_expect_eq(karst_opcode_flags(last[i]) & both, KARST_OPF_END);
	for (i = 0; i < sizeof(only); i++)
		cr_expect_eq(karst_opcode_flags(only[i]) & both, both);
}
