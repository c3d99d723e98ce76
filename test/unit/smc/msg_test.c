/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Messages: those of smcr_echo.pcap and others byte by byte, and damaged ones (S2, S3, S4, S19). */
#include <criterion/criterion.h>

#include <errno.h>
#include <stdio.h>

#include "karst_smc_msg.h"

#define EID "494e5445524f5031202020202020202020202020202020202020202020202020"
#define Z16 "00000000000000000000000000000000"
#define PROPOSAL                                                                             \
	"e2d4c3d901009c22" Z16 Z16 "00000000000000000000001c" Z16 "000000000000000000000000" \
	"0100001000000000"                                                                   \
	"00000000000000000000ffffc0000201"                                                   \
	"ff020001000000000000000000000000" EID "e2d4c3d9"
#define ACCEPT                                                                  \
	"e2d4c3d90200a0284ee352540000000200000000000000000000ffffc0000202"      \
	"525400000002000015000008f401"                                          \
	"000000012300ff2cf0e4572e000000c3dfb8" EID "00000000000000008021000042" \
	"20202020202020202020202020202020202020202020202020202020202020"        \
	"ff020001000000000000000000000000e2d4c3d9"
#define REUSE                                                              \
	"e2d4c3d903006c20893c52540000000100000000000000000000ffffc0000201" \
	"5254000000010000150000089c01"                                     \
	"000000022300ff1a51e6c4a5000000b159ed" EID "0000000000000000e2d4c3d9"
#define DECLINE1 "e2d4c3d904001c10893c5254000000010303000000000000e2d4c3d9"
#define DECLINE2                                                           \
	"e2d4c3d904002c2039b252540000000203030000200000000000000000000000" \
	"0000000000000000e2d4c3d9"
#define ADD_LINK                                                   \
	"22580000525400000002000000000000000000000000ffffc0000202" \
	"0000160203895ed80000000000000000"                         \
	"800000000000000000000000ffffc00002020000000000000000"     \
	"0100000008f400000a12ff2cf0e4572e0000"

static size_t
unhex(const char *hex, uint8_t *buf)
{
	size_t n = 0;
	unsigned int v;

	for (; *hex != '\0'; hex += 2) {
		while (*hex == ' ')
			hex++;
		sscanf(hex, "%2x", &v);
		buf[n++] = (uint8_t)v;
	}
	return n;
}

static void
clc_there_and_back(const char *hex)
{
	uint8_t in[1024], out[1024];
	size_t len = unhex(hex, in), i;
	struct karst_smc_clc m;

	cr_assert_eq(karst_smc_clc_parse(in, len, &m), (int)len, "%zu: %s", len, hex);
	cr_assert_eq(karst_smc_clc_build(&m, out, sizeof(out)), (int)len);
	cr_assert_arr_eq(in, out, len);
	for (i = 0; i < len; i++) /* truncated: more is awaited, and no field is used */
		cr_assert_eq(karst_smc_clc_parse(in, i, &m), -EAGAIN, "%zu bytes", i);
	in[len - 1] ^= 1;
	cr_assert_eq(karst_smc_clc_parse(in, len, &m), -EPROTO);
	in[len - 1] ^= 1;
	in[0] ^= 1;
	cr_assert_eq(karst_smc_clc_parse(in, len, &m), -EPROTO);
}

Test(smc_msg, s2_clc_of_linux)
{
	clc_there_and_back(PROPOSAL);
	clc_there_and_back(ACCEPT);
	clc_there_and_back(REUSE);
	clc_there_and_back(DECLINE1);
	clc_there_and_back(DECLINE2);
}

Test(smc_msg, s6_fields)
{
	uint8_t in[1024];
	struct karst_smc_clc m;

	karst_smc_clc_parse(in, unhex(PROPOSAL, in), &m);
	cr_assert_eq(m.proposal.version, 2);
	cr_assert_eq(m.proposal.mode1, KARST_SMC_MODE_N);
	cr_assert_eq(m.proposal.mode2, KARST_SMC_MODE_R);
	cr_assert_eq(m.proposal.release, 1);
	cr_assert_eq(m.proposal.neids, 1);
	cr_assert_eq(m.proposal.roce[15], 1);
	cr_assert_eq(m.proposal.max_conns, 255);
	cr_assert_eq(m.proposal.max_links, 2);
	karst_smc_clc_parse(in, unhex(ACCEPT, in), &m);
	cr_assert(m.accept.first_contact && m.accept.direct);
	cr_assert_eq(m.accept.qpn, 0x15);
	cr_assert_eq(m.accept.rkey, 0x8f4);
	cr_assert_eq(m.accept.index, 1);
	cr_assert_eq(m.accept.token, 1);
	cr_assert_eq(karst_smc_size_bytes(m.accept.size), 65536);
	cr_assert_eq(m.accept.mtu, 3);
	cr_assert_eq(m.accept.vaddr, 0xff2cf0e4572e0000);
	cr_assert_eq(m.accept.psn, 0xc3dfb8);
	cr_assert_eq(m.accept.hostname[0], 'B');
}

/* An Accept of 6.1 is shorter: nothing behind the host name. */
Test(smc_msg, s6_accept_of_release_0)
{
	uint8_t in[1024];
	struct karst_smc_clc m;
	size_t len = unhex(ACCEPT, in) - 16;

	memcpy(in + len - 4, in, 4);
	in[6] = (uint8_t)len;
	cr_assert_eq(karst_smc_clc_parse(in, len, &m), -EPROTO, "release 1 must say more");
	in[105] = 0x20;
	cr_assert_eq(karst_smc_clc_parse(in, len, &m), (int)len);
	cr_assert_eq(m.accept.release, 0);
	cr_assert_eq(m.accept.max_conns, 0);
}

/* Offsets and counts that are out of range. */
Test(smc_msg, s19_proposals)
{
	static const struct {
		unsigned int at;
		uint8_t value;
	} bad[] = {{50, 0xff}, {51, 0xff}, {80, 9}, {80, 2}, {6, 0x9b}, {5, 0xff}, {7, 2}, {4, 9}};
	uint8_t in[1024];
	struct karst_smc_clc m;

	for (size_t i = 0; i < KARST_DIM(bad); i++) {
		size_t len = unhex(PROPOSAL, in);

		in[bad[i].at] = bad[i].value;
		cr_assert_eq(karst_smc_clc_parse(in, len, &m), -EPROTO, "byte %u", bad[i].at);
	}
}

Test(smc_msg, s3_add_link_of_linux)
{
	static struct karst_smc_llc m;
	uint8_t in[1024], out[1024];
	size_t len = unhex(ADD_LINK, in);

	cr_assert_eq(len, 88);
	cr_assert_eq(karst_smc_llc_parse(in, len, &m), 0);
	cr_assert(m.v2 && m.direct);
	cr_assert_eq(m.qpn, 0x16);
	cr_assert_eq(m.link, 2);
	cr_assert_eq(m.mtu, 3);
	cr_assert_eq(m.nrtokens, 1);
	cr_assert_eq(m.rtokens[0].link, 0x8f4);
	cr_assert_eq(m.rtokens[0].rkey, 0xa12);
	cr_assert_eq(karst_smc_llc_build(&m, out, sizeof(out)), (int)len);
	cr_assert_arr_eq(in, out, len);
	/* numbers in the byte order of a wrong peer */
	in[1] = 0;
	in[2] = 88;
	in[70] = 0;
	in[71] = 1;
	cr_assert_eq(karst_smc_llc_parse(in, len, &m), 0);
	cr_assert_eq(m.nrtokens, 1);
	/* refused: keys that the peer names all the same are ignored */
	in[3] = KARST_SMC_LLC_RESPONSE | KARST_SMC_LLC_REJECTED;
	cr_assert_eq(karst_smc_llc_parse(in, len, &m), 0);
	cr_assert_eq(m.nrtokens, 0);
	cr_assert_eq(karst_smc_llc_build(&m, out, sizeof(out)), KARST_SMC_LLC_LEN);
	in[3] = 0;
	in[71] = 9;
	in[70] = 9;
	cr_assert_eq(karst_smc_llc_parse(in, len, &m), -EPROTO);
	cr_assert_eq(karst_smc_llc_parse(in, len - 1, &m), -EPROTO);
	cr_assert_eq(karst_smc_llc_parse(in, 43, &m), -EPROTO);
}

Test(smc_msg, s13_cursors)
{
	uint64_t pos = UINT64_C(65536) * 70000 + 5; /* wraps are counted modulo 2^16 */
	struct karst_smc_cursor c = karst_smc_cursor_of(pos + 65536, 65536);

	cr_assert_eq(c.count, 5);
	cr_assert_eq(c.wrap, 70001 % 65536);
	cr_assert_eq(karst_smc_cursor_ahead(c, pos, 65536), 65536);
	cr_assert_eq(karst_smc_cursor_ahead(c, pos + 65537, 65536), -1);
}

Test(smc_msg, s7_reasons)
{
	cr_assert_not_null(karst_smc_reason_text(0x03030000));
	cr_assert_null(karst_smc_reason_text(1));
	cr_assert_eq(KARST_SMC_DECL_OUT_OF_SYNC, 0x04000000);
	cr_assert_eq(KARST_SMC_DECL_OPTION, 0x03060000);
	cr_assert_eq(KARST_SMC_DECL_TIMEOUT_CONFIRM_LINK, 0x02010000);
}
