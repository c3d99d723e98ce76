/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Valid templates, and the messages for invalid ones. */
#include "template.h"

#include <criterion/criterion.h>

Test(fwd_template, nothing_is_the_default)
{
	struct fwd_template t, want;
	char why[FWD_WHY];

	fwd_template_default(&want);
	memset(&t, 0xff, sizeof(t));
	cr_assert_eq(fwd_template_parse(&t, " \t\n", why), 0);
	cr_assert_eq(memcmp(&t, &want, sizeof(t)), 0);
}

Test(fwd_template, every_key)
{
	struct fwd_template t;
	char why[FWD_WHY];

	cr_assert_eq(
		fwd_template_parse(&t,
			"transport=uc op=write-imm size=65536 mtu=4096 flows=3 count=7\tackreq=none "
			"smac=02:00:00:00:00:01 dmac=02:00:00:00:00:02 src=2001:db8::1 "
			"dst=2001:db8::2 sport=50000 tclass=3 ttl=9 vlan=0x2005 pkey=0x8001 "
			"qpn=0x123456 src-qpn=5 qkey=6 psn=0xfffffe va=0xfedcba9876543210 "
			"rkey=0xffffffff imm=8",
			why),
		0, "%s", why);
	cr_assert_eq(t.transport, FWD_UC);
	cr_assert_eq(t.op, FWD_WRITE_IMM);
	cr_assert_eq(t.ackreq, FWD_ACK_NONE);
	cr_assert_eq(t.size, 65536);
	cr_assert_eq(t.mtu, 4096);
	cr_assert_eq(t.flows, 3);
	cr_assert_eq(t.count, 7);
	cr_assert(t.smac_set && t.smac[5] == 1 && t.dmac_set && t.dmac[5] == 2);
	cr_assert(t.ip6 && t.src[15] == 1 && t.dst[15] == 2 && t.dst[0] == 0x20);
	cr_assert_eq(t.sport, 50000);
	cr_assert_eq(t.tclass, 3);
	cr_assert_eq(t.ttl, 9);
	cr_assert(t.vlan_set && t.vlan == 0x2005);
	cr_assert_eq(t.pkey, 0x8001);
	cr_assert_eq(t.qpn, 0x123456);
	cr_assert_eq(t.src_qpn, 5);
	cr_assert_eq(t.qkey, 6);
	cr_assert_eq(t.psn, 0xfffffe);
	cr_assert_eq(t.va, UINT64_C(0xfedcba9876543210));
	cr_assert_eq(t.rkey, 0xffffffff);
	cr_assert_eq(t.imm, 8);
}

/* Each is refused, with a message that names the key, and leaves the template as it was. */
Test(fwd_template, mistakes)
{
	static const char *const bad[][2] = {
		{"transport=xrc", "transport=xrc: allowed: rc|uc|ud"},
		{"transport=", "transport="},
		{"transport=r", "allowed"},
		{"op=sen", "op=sen"},
		{"size=1x", "size=1x"},
		{"size=-1", "from 0 to 1073741824"},
		{"size=1073741825", "size"},
		{"mtu=1000", "mtu"},
		{"mtu=8192", "mtu"},
		{"flows=0", "flows=0"},
		{"flows=65537", "from 1 to 65536"},
		{"smac=2:3", "smac"},
		{"dmac=02:00:00:00:00:01:02", "dmac"},
		{"smac=0x:00:00:00:00:01", "smac"},
		{"dmac=02:00:00:00:00:0X", "dmac"},
		{"dmac=02:\r0:00:00:00:01", "dmac"},
		{"src=1.2.3", "src=1.2.3"},
		{"src=2001:db8::1", "both IPv4 or both IPv6"},
		{"sport=4791", "sport"},
		{"qpn=0x1000000", "qpn"},
		{"qpn=0xffffff flows=2", "QP numbers"},
		{"psn=16777216", "from 0 to 16777215"},
		{"transport=ud", "transport=ud"},
		{"transport=ud op=send size=2000", "mtu"},
		{"transport=uc op=read", "transport=uc"},
		{"colour=red", "keys transport op"},
		{"bla", "key=value"},
		{"=", "key=value"},
		{"op", "key=value"},
	};
	struct fwd_template t, before;
	char why[FWD_WHY], longest[4096];
	size_t i;

	fwd_template_default(&t);
	before = t;
	for (i = 0; i < KARST_DIM(bad); i++) {
		why[0] = '\0';
		cr_assert_eq(fwd_template_parse(&t, bad[i][0], why), -1, "%s", bad[i][0]);
		cr_assert_not_null(strstr(why, bad[i][1]), "%s: %s", bad[i][0], why);
		cr_assert_eq(memcmp(&t, &before, sizeof(t)), 0, "%s", bad[i][0]);
	}
	memset(longest, 'a', sizeof(longest));
	longest[sizeof(longest) - 1] = '\0';
	memcpy(longest, "size=", 5);
	cr_assert_eq(fwd_template_parse(&t, longest, why), -1);
}
