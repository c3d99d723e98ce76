/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Messages as structures and back (U2, C1, C2): compared with the bytes of Linux peers in
 * test/captures, and with bytes written by hand where no capture has the message.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "karst_cm.h"
#include "karst_hdr.h"
#include "karst_parse.h"

static const uint8_t *
message(const uint8_t *mad)
{
	return mad + 24;
}

/* --- captures --- */

struct totals {
	unsigned int of[KARST_CM_KINDS];
	unsigned int other;
};

static void
check_mad(const uint8_t *mad, size_t len, struct totals *t)
{
	uint8_t again[KARST_CM_MAD_LEN];
	struct karst_cm_msg m;

	cr_assert_eq(karst_cm_msg_parse(mad, len, &m), KARST_CM_PARSE_OK);
	cr_assert_eq(karst_cm_msg_build(&m, again), 0);
	cr_assert_arr_eq(again, mad, KARST_CM_MAD_LEN);
	t->of[m.kind]++;
}

static void
check_file(const char *path, struct totals *t)
{
	static uint8_t frame[65536];
	struct karst_pkt p;
	uint32_t record[4];
	FILE *f = fopen(path, "rb");

	cr_assert_not_null(f, "%s", path);
	cr_assert_eq(fseek(f, 24, SEEK_SET), 0);
	while (fread(record, sizeof(record), 1, f) == 1) {
		cr_assert_leq(record[2], sizeof(frame));
		cr_assert_eq(fread(frame, 1, record[2], f), record[2]);
		p = (struct karst_pkt){.data = frame, .len = (uint16_t)record[2]};
		if (karst_parse(&p) != KARST_DROP_NONE || p.dqpn != KARST_CM_QPN)
			continue;
		cr_assert_eq(p.qkey, KARST_CM_QKEY);
		cr_assert_eq(p.src_qpn, KARST_CM_QPN);
		if (frame[p.pay_off + 1] == 7)
			check_mad(frame + p.pay_off, p.pay_len, t);
		else
			t->other++;
	}
	fclose(f);
}

/* Every message of the captures is parsed and built again, bit for bit. */
Test(cm_msg, u2_captures)
{
	struct totals t = {{0}};
	const struct dirent *e;
	DIR *dir = opendir(CAPTURES);
	char path[4096];

	cr_assert_not_null(dir);
	while ((e = readdir(dir)) != NULL) {
		if (strncmp(e->d_name, "native", 6) == 0 || strstr(e->d_name, ".pcap") == NULL)
			continue;
		snprintf(path, sizeof(path), "%s/%s", CAPTURES, e->d_name);
		check_file(path, &t);
	}
	closedir(dir);
	/* counted by another program */
	cr_expect_eq(t.of[KARST_CM_REQ], 28);
	cr_expect_eq(t.of[KARST_CM_REJ], 1);
	cr_expect_eq(t.of[KARST_CM_REP], 27);
	cr_expect_eq(t.of[KARST_CM_RTU], 27);
	cr_expect_eq(t.of[KARST_CM_DREQ], 28);
	cr_expect_eq(t.of[KARST_CM_DREP], 28);
	cr_expect_eq(t.of[KARST_CM_SIDR_REQ], 3);
	cr_expect_eq(t.of[KARST_CM_SIDR_REP], 3);
	cr_expect_eq(t.other, 0);
}

/* --- field by field, by hand --- */

static void
check_path(const uint8_t *p, const struct karst_cm_wire_path *path)
{
	cr_expect_eq(karst_get_be16(p), path->local_lid);
	cr_expect_eq(karst_get_be16(p + 2), path->remote_lid);
	cr_expect_arr_eq(p + 4, path->local_gid, 16);
	cr_expect_arr_eq(p + 20, path->remote_gid, 16);
	cr_expect_eq(karst_get_be32(p + 36), path->flow_label << 12 | path->rate);
	cr_expect_eq(p[40], path->tclass);
	cr_expect_eq(p[41], path->hop_limit);
	cr_expect_eq(p[42], path->sl << 4 | path->subnet_local << 3);
	cr_expect_eq(p[43], path->ack_timeout << 3);
}

static const struct karst_cm_wire_path some_path = {
	.local_gid = {1, 2, 3},
	.remote_gid = {4, 5, 6, [15] = 7},
	.local_lid = 0x1234,
	.remote_lid = 0x5678,
	.flow_label = 0xabcde,
	.rate = 0x2a,
	.tclass = 0x91,
	.hop_limit = 33,
	.sl = 5,
	.ack_timeout = 19,
	.subnet_local = true,
};

Test(cm_msg, c2_req_fields)
{
	uint8_t mad[KARST_CM_MAD_LEN] = {0}, private_data[KARST_CM_REQ_PRIVATE];
	struct karst_cm_msg m = {.kind = KARST_CM_REQ, .tid = 0x1122334455667788, .local_id = 0x99};
	const uint8_t *p = message(mad);

	memset(private_data, 0xee, sizeof(private_data));
	m.req = (struct karst_cm_req){.service_id = 0x0102030405060708,
		.guid = 0x1112131415161718,
		.qkey = 0x21222324,
		.qpn = 0x313233,
		.eecn = 0x414243,
		.remote_eecn = 0x515253,
		.psn = 0x616263,
		.pkey = 0x7172,
		.responder_resources = 0x81,
		.initiator_depth = 0x91,
		.remote_response_timeout = 0x15,
		.local_response_timeout = 0x0a,
		.transport = 3,
		.extended_transport = 1,
		.retry_count = 6,
		.rnr_retry_count = 5,
		.mtu = 4,
		.max_retries = 9,
		.flow_control = true,
		.rdc_exists = true,
		.srq = true,
		.primary = some_path,
		.alternate = some_path,
		.ece = {.vendor = 0xa1a2a3, .options = 0xb1b2b3b4}};
	m.req.alternate.sl = 9;
	m.private_data = private_data;
	m.private_data_len = sizeof(private_data);
	cr_assert_eq(karst_cm_msg_build(&m, mad), 0);
	cr_expect_arr_eq(mad,
		"\1\7\2\3\0\0\0\0\x11\x22\x33\x44\x55\x66\x77\x88\0\x10\0\0\xb1\xb2\xb3\xb4", 24);
	cr_expect_eq(karst_get_be32(p), 0x99);
	cr_expect_eq(karst_get_be32(p + 4), 0x00a1a2a3); /* (C3) */
	cr_expect_eq(karst_get_be64(p + 8), 0x0102030405060708);
	cr_expect_eq(karst_get_be64(p + 16), 0x1112131415161718);
	cr_expect_eq(karst_get_be32(p + 24), 0);
	cr_expect_eq(karst_get_be32(p + 28), 0x21222324);
	cr_expect_eq(karst_get_be32(p + 32), 0x31323381);
	cr_expect_eq(karst_get_be32(p + 36), 0x41424391);
	cr_expect_eq(karst_get_be32(p + 40), 0x515253af); /* 10101 11 1 */
	cr_expect_eq(karst_get_be32(p + 44), 0x61626356); /* 01010 110 */
	cr_expect_eq(karst_get_be32(p + 48), 0x71724d99); /* 0100 1 101, 1001 1 001 */
	check_path(p + 52, &m.req.primary);
	check_path(p + 96, &m.req.alternate);
	cr_expect_arr_eq(p + 140, private_data, sizeof(private_data));
}

Test(cm_msg, c2_rep_fields)
{
	struct karst_cm_msg m = {.kind = KARST_CM_REP, .tid = 1, .local_id = 2, .remote_id = 3};
	uint8_t mad[KARST_CM_MAD_LEN] = {0};
	const uint8_t *p = message(mad);

	m.rep = (struct karst_cm_rep){.guid = 0x1112131415161718,
		.qkey = 0x21222324,
		.qpn = 0x313233,
		.eecn = 0x414243,
		.psn = 0x515253,
		.responder_resources = 0x61,
		.initiator_depth = 0x71,
		.target_ack_delay = 0x15,
		.failover = 2,
		.rnr_retry_count = 5,
		.flow_control = true,
		.srq = true,
		.ece = {.vendor = 0xa1a2a3, .options = 0xb1b2b3b4}};
	m.private_data = (const uint8_t *)"ab";
	m.private_data_len = 2;
	cr_assert_eq(karst_cm_msg_build(&m, mad), 0);
	cr_expect_arr_eq(p,
		"\0\0\0\2\0\0\0\3\x21\x22\x23\x24\x31\x32\x33\xa1\x41\x42\x43\xa2"
		"\x51\x52\x53\xa3\x61\x71\xad\xb0\x11\x12\x13\x14\x15\x16\x17\x18"
		"ab\0",
		39);
	cr_expect_eq(karst_get_be32(mad + 20), 0xb1b2b3b4);
}

/* (C3): without options no bit changes, and a vendor of more than 24 bits does not overwrite its
 * neighbours. */
Test(cm_msg, c3_silent)
{
	struct karst_cm_msg m = {.kind = KARST_CM_REQ};
	uint8_t mad[KARST_CM_MAD_LEN], loud[KARST_CM_MAD_LEN];
	unsigned int i, changed = 0;

	for (m.kind = KARST_CM_REQ; m.kind <= KARST_CM_REP; m.kind += KARST_CM_REP - KARST_CM_REQ) {
		m.req = (struct karst_cm_req){0};
		cr_assert_eq(karst_cm_msg_build(&m, mad), 0);
		cr_expect_eq(karst_get_be32(mad + 20), 0);
		for (i = 24; i < sizeof(mad); i++)
			cr_expect_eq(mad[i], 0, "%u", i);
		if (m.kind == KARST_CM_REQ)
			m.req.ece =
				(struct karst_cm_ece){.vendor = UINT32_MAX, .options = UINT32_MAX};
		else
			m.rep.ece =
				(struct karst_cm_ece){.vendor = UINT32_MAX, .options = UINT32_MAX};
		cr_assert_eq(karst_cm_msg_build(&m, loud), 0);
		for (i = changed = 0; i < sizeof(mad); i++)
			changed += mad[i] != loud[i];
		cr_expect_eq(changed, 3 + 4);
	}
}

/* (C3): options may be in these messages, of any vendor, and in no others. */
Test(cm_msg, c3_modifier)
{
	struct karst_cm_msg m, seen;
	uint8_t mad[KARST_CM_MAD_LEN];
	bool may;

	for (unsigned int kind = 0; kind < KARST_CM_KINDS; kind++) {
		m = (struct karst_cm_msg){.kind = kind};
		cr_assert_eq(karst_cm_msg_build(&m, mad), 0);
		mad[20] = 0x80;
		may = kind == KARST_CM_REQ || kind == KARST_CM_REP || kind == KARST_CM_SIDR_REP;
		cr_expect_eq(karst_cm_msg_parse(mad, sizeof(mad), &seen),
			may ? KARST_CM_PARSE_OK : KARST_CM_PARSE_METHOD, "%u", kind);
	}
}

/* Messages that no capture has. */
Test(cm_msg, c1_mra_rej_lap_apr_fields)
{
	struct karst_cm_msg m = {.kind = KARST_CM_MRA, .local_id = 2, .remote_id = 3};
	uint8_t mad[KARST_CM_MAD_LEN] = {0}, again[KARST_CM_MAD_LEN];
	const uint8_t *p = message(mad);

	m.private_data = (const uint8_t *)"xy";
	m.private_data_len = 2;
	m.mra.message = 1;
	m.mra.service_timeout = 24;
	cr_assert_eq(karst_cm_msg_build(&m, mad), 0);
	cr_expect_arr_eq(p, "\0\0\0\2\0\0\0\3\x40\xc0xy\0", 13);

	m.kind = KARST_CM_REJ;
	m.rej.message = 2;
	m.rej.reason = 0x1234;
	m.info = (const uint8_t *)"info";
	m.info_len = 4;
	cr_assert_eq(karst_cm_msg_build(&m, mad), 0);
	cr_expect_arr_eq(p, "\0\0\0\2\0\0\0\3\x80\x08\x12\x34info\0", 17);
	cr_expect_arr_eq(p + 84, "xy\0", 3);

	m.kind = KARST_CM_APR;
	m.apr.status = KARST_CM_APR_UNSUPPORTED;
	cr_assert_eq(karst_cm_msg_build(&m, mad), 0);
	cr_expect_arr_eq(p, "\0\0\0\2\0\0\0\3\4\2\0\0info\0", 17);
	cr_expect_arr_eq(p + 84, "xy\0", 3);

	m = (struct karst_cm_msg){.kind = KARST_CM_LAP, .local_id = 2, .remote_id = 3};
	m.lap.qpn = 0x313233;
	m.lap.remote_response_timeout = 0x15;
	m.lap.alternate = some_path;
	m.private_data = (const uint8_t *)"xy";
	m.private_data_len = 2;
	cr_assert_eq(karst_cm_msg_build(&m, mad), 0);
	cr_expect_arr_eq(p, "\0\0\0\2\0\0\0\3\0\0\0\0\x31\x32\x33\xa8\0\0\0\0\x12\x34\x56\x78", 24);
	cr_expect_arr_eq(p + 24, some_path.local_gid, 16);
	cr_expect_arr_eq(p + 40, some_path.remote_gid, 16);
	cr_expect_arr_eq(p + 56, "\xab\xcd\xe0\x91\x21\x2a\x58\x98xy\0", 11);
	cr_assert_eq(karst_cm_msg_parse(mad, sizeof(mad), &m), KARST_CM_PARSE_OK);
	cr_assert_eq(karst_cm_msg_build(&m, again), 0);
	cr_expect_arr_eq(again, mad, sizeof(mad));
}

/* Whatever the fields hold, a built message is parsed to the same values, and the reverse. */
Test(cm_msg, random_bytes)
{
	uint8_t mad[KARST_CM_MAD_LEN], again[KARST_CM_MAD_LEN], third[KARST_CM_MAD_LEN];
	struct karst_cm_msg m;
	unsigned int i, j;
	uint32_t x = 1;

	for (i = 0; i < 20000; i++) {
		for (j = 24; j < sizeof(mad); j++)
			mad[j] = (uint8_t)((x = x * 1664525 + 1013904223) >> 24);
		memcpy(mad, "\1\7\2\3\0\0\0\0\1\2\3\4\5\6\7\10\0\0\0\0\0\0\0\0", 24);
		mad[17] = (uint8_t)(0x10 + i % KARST_CM_KINDS);
		if (karst_cm_msg_parse(mad, sizeof(mad), &m) != KARST_CM_PARSE_OK)
			continue;
		cr_assert_eq(karst_cm_msg_build(&m, again), 0);
		cr_assert_eq(karst_cm_msg_parse(again, sizeof(again), &m), KARST_CM_PARSE_OK);
		cr_assert_eq(karst_cm_msg_build(&m, third), 0);
		cr_assert_arr_eq(third, again, sizeof(mad));
	}
}

/* --- what is refused --- */

Test(cm_msg, u2_refused)
{
	struct karst_cm_msg m = {.kind = KARST_CM_REJ, .private_data_len = 0}, seen;
	uint8_t good[KARST_CM_MAD_LEN], bad[KARST_CM_MAD_LEN];
	static const struct {
		uint8_t at, value;
		enum karst_cm_parse verdict;
	} cases[] = {
		{0, 2, KARST_CM_PARSE_CLASS},
		{1, 3, KARST_CM_PARSE_CLASS},
		{1, 0x81, KARST_CM_PARSE_CLASS},
		{2, 1, KARST_CM_PARSE_VERSION},
		{2, 3, KARST_CM_PARSE_VERSION},
		{3, 1, KARST_CM_PARSE_METHOD},
		{3, 0x81, KARST_CM_PARSE_METHOD},
		{5, 1, KARST_CM_PARSE_METHOD},
		{23, 1, KARST_CM_PARSE_METHOD},
		{16, 1, KARST_CM_PARSE_ATTRIBUTE},
		{17, 0x0f, KARST_CM_PARSE_ATTRIBUTE},
		{17, 0x01, KARST_CM_PARSE_ATTRIBUTE},
		{17, 0x1b, KARST_CM_PARSE_ATTRIBUTE},
		{24 + 9, 73 << 1, KARST_CM_PARSE_FIELD},
	};
	unsigned int i;

	cr_assert_eq(karst_cm_msg_build(&m, good), 0);
	cr_assert_eq(karst_cm_msg_parse(good, sizeof(good), &seen), KARST_CM_PARSE_OK);
	for (i = 0; i < KARST_DIM(cases); i++) {
		memcpy(bad, good, sizeof(good));
		bad[cases[i].at] = cases[i].value;
		cr_expect_eq(karst_cm_msg_parse(bad, sizeof(bad), &seen), cases[i].verdict,
			"case %u", i);
	}
	for (i = 0; i < sizeof(good); i++)
		cr_expect_eq(karst_cm_msg_parse(good, i, &seen), KARST_CM_PARSE_LENGTH);
}

/* As much private data as a message holds, and one byte more. */
Test(cm_msg, c1_private_data)
{
	static const unsigned int most[KARST_CM_KINDS] = {
		92, 222, 148, 196, 224, 220, 224, 216, 136, 168, 148};
	uint8_t mad[KARST_CM_MAD_LEN], was[KARST_CM_MAD_LEN], data[256];
	struct karst_cm_msg m, seen;
	unsigned int i;

	memset(data, 0x5a, sizeof(data));
	for (i = 0; i < KARST_CM_KINDS; i++) {
		m = (struct karst_cm_msg){.kind = i, .private_data = data};
		cr_expect_eq(karst_cm_private_max(i), most[i]);
		m.private_data_len = (uint8_t)most[i];
		cr_assert_eq(karst_cm_msg_build(&m, mad), 0);
		cr_assert_eq(karst_cm_msg_parse(mad, sizeof(mad), &seen), KARST_CM_PARSE_OK);
		cr_expect_eq(seen.private_data_len, most[i]);
		cr_expect_eq(seen.private_data + most[i], mad + sizeof(mad));
		cr_expect_arr_eq(seen.private_data, data, most[i]);
		memcpy(was, mad, sizeof(mad));
		m.private_data_len++;
		cr_expect_eq(karst_cm_msg_build(&m, mad), -EMSGSIZE);
		cr_expect_arr_eq(mad, was, sizeof(mad));
		m.private_data_len = 0;
		m.info = data;
		m.info_len =
			i == KARST_CM_REJ || i == KARST_CM_APR || i == KARST_CM_SIDR_REP ? 73 : 1;
		cr_expect_eq(karst_cm_msg_build(&m, mad), -EMSGSIZE);
	}
	cr_expect_eq(karst_cm_private_max(KARST_CM_KINDS), 0);
	cr_expect_null(karst_cm_kind_name(KARST_CM_KINDS));
}

/* --- the header of the RDMA CM --- */

Test(cm_msg, c1_ip_header)
{
	struct karst_cm_ip ip = {.src_port = 0xb045}, seen = {0};
	uint8_t h[KARST_CM_IP_LEN];

	memcpy(ip.src_ip, "\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\2\1", 16);
	memcpy(ip.dst_ip, "\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\2\2", 16);
	karst_cm_ip_build(&ip, h);
	cr_expect_arr_eq(h,
		"\0\x40\xb0\x45\0\0\0\0\0\0\0\0\0\0\0\0\xc0\0\2\1"
		"\0\0\0\0\0\0\0\0\0\0\0\0\xc0\0\2\2",
		KARST_CM_IP_LEN);
	cr_assert_eq(karst_cm_ip_parse(h, sizeof(h), &seen), 0);
	cr_expect_arr_eq(&seen, &ip, sizeof(ip));

	ip.ip6 = true;
	memcpy(ip.src_ip, "\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1", 16);
	memcpy(ip.dst_ip, "\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\2", 16);
	karst_cm_ip_build(&ip, h);
	cr_expect_arr_eq(h, "\0\x60\xb0\x45\xfd", 5);
	cr_expect_arr_eq(h + 20, ip.dst_ip, 16);
	cr_assert_eq(karst_cm_ip_parse(h, sizeof(h), &seen), 0);
	cr_expect_arr_eq(&seen, &ip, sizeof(ip));

	cr_expect_eq(karst_cm_ip_parse(h, sizeof(h) - 1, &seen), -EPROTO);
	h[0] = 0x10;
	cr_expect_eq(karst_cm_ip_parse(h, sizeof(h), &seen), -EPROTO);
	h[0] = 0;
	h[1] = 0x50;
	cr_expect_eq(karst_cm_ip_parse(h, sizeof(h), &seen), -EPROTO);
	cr_expect_eq(karst_cm_service_id(KARST_CM_PS_TCP, 0x1c06), 0x0000000001061c06);
	cr_expect_eq(karst_cm_service_id(KARST_CM_PS_UDP, 7174), 0x0000000001111c06);
}
