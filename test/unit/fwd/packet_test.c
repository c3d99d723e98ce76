/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The packets of templates, as the parser decodes them. */
#include "packet.h"

#include <criterion/criterion.h>

#include "karst_hdr.h"
#include "karst_opcode.h"
#include "karst_parse.h"

static const uint8_t port_mac[6] = {2, 0, 0, 0, 0, 1}, peer_mac[6] = {2, 0, 0, 0, 0, 2};
static struct fwd_shapes shapes;
static uint8_t frame[8192];

static struct fwd_gen_flow
flow(const char *text, uint32_t number)
{
	struct fwd_template t;
	struct fwd_gen_flow g;
	char why[FWD_WHY];

	cr_assert_eq(fwd_template_parse(&t, text, why), 0, "%s", why);
	fwd_shapes_build(&shapes, &t, port_mac, peer_mac);
	fwd_gen_flow_init(&g, &shapes, number);
	return g;
}

/* The next packet of @g, without its payload. */
static struct karst_pkt
next(struct fwd_gen_flow *g)
{
	struct karst_pkt p = {.data = frame, .len = (uint16_t)fwd_gen_flow_shape(g)->len};

	memset(frame, 0, sizeof(frame));
	fwd_gen_flow_next(g, frame);
	cr_assert_eq(karst_parse(&p), KARST_DROP_NONE);
	return p;
}

Test(fwd_packet, message_of_several)
{
	static const uint8_t opcodes[] = {KARST_RC_WRITE_FIRST, KARST_RC_WRITE_MIDDLE,
		KARST_RC_WRITE_MIDDLE, KARST_RC_WRITE_LAST};
	struct fwd_gen_flow g = flow(
		"size=3073 mtu=1024 psn=0xfffffd count=2 va=0x1000 rkey=9 flows=5 qpn=0x20", 4);
	uint32_t i;

	for (i = 0; i < 8; i++) {
		struct karst_pkt p;

		cr_assert_not(fwd_gen_flow_done(&g));
		p = next(&g);
		cr_assert_eq(p.opcode, opcodes[i % 4]);
		cr_assert_eq(p.psn, (0xfffffd + i) & 0xffffff);
		cr_assert_eq(p.dqpn, 0x24);
		cr_assert_eq(p.pay_len, i % 4 == 3 ? 1 : 1024);
		cr_assert_eq((p.flags & KARST_PKT_ACKREQ) != 0, i % 4 == 3);
		cr_assert_eq(karst_udp_sport(p.data + p.bth_off - KARST_UDP_LEN), 49156);
		if (i % 4 == 0)
			cr_assert(p.va == 0x1000 && p.rkey == 9 && p.dma_len == 3073);
		cr_assert_eq(memcmp(frame, peer_mac, 6), 0);
		cr_assert_eq(memcmp(frame + 6, port_mac, 6), 0);
	}
	cr_assert(fwd_gen_flow_done(&g));
}

Test(fwd_packet, read_takes_the_psns_of_its_response)
{
	struct fwd_gen_flow g = flow("op=read size=10000 mtu=4096 psn=5", 0);
	struct karst_pkt p = next(&g);

	cr_assert(p.opcode == KARST_RC_READ_REQUEST && p.psn == 5 && p.dma_len == 10000);
	cr_assert_eq(next(&g).psn, 8);
}

Test(fwd_packet, datagrams)
{
	struct fwd_gen_flow g =
		flow("transport=ud op=send-imm size=5 qkey=77 src-qpn=3 src=2001:db8::1 "
		     "dst=2001:db8::2 vlan=100",
			2);
	struct karst_pkt p = next(&g);

	cr_assert_eq(p.opcode, KARST_UD_SEND_ONLY_IMM);
	cr_assert(p.qkey == 77 && p.src_qpn == 5 && p.dqpn == 0x13 && p.pay_len == 5);
	cr_assert_eq(p.flags & (KARST_PKT_IP6 | KARST_PKT_VLAN), KARST_PKT_IP6 | KARST_PKT_VLAN);
	cr_assert_not(p.flags & KARST_PKT_ACKREQ);
	cr_assert_eq(next(&g).psn, 1);
}

Test(fwd_packet, unconnected_never_asks_for_acknowledgements)
{
	struct fwd_gen_flow g = flow("transport=uc op=send size=0 ackreq=all", 0);
	struct karst_pkt p = next(&g);

	cr_assert_eq(p.opcode, KARST_UC_SEND_ONLY);
	cr_assert_eq(p.pay_len, 0);
	cr_assert_not(p.flags & KARST_PKT_ACKREQ);
}

Test(fwd_packet, atomics)
{
	struct fwd_gen_flow g = flow("op=fetch-add va=0x88 rkey=3 ackreq=all", 0);
	struct karst_pkt p = next(&g);

	cr_assert(p.opcode == KARST_RC_FETCH_ADD && p.va == 0x88 && p.rkey == 3 && p.pay_len == 0);
	cr_assert_eq(next(&g).psn, 1);
}

/* Source ports stay in the range that RoCE uses. */
Test(fwd_packet, source_ports_wrap)
{
	struct fwd_gen_flow g = flow("sport=65535", 1);
	struct karst_pkt p = next(&g);

	cr_assert_eq(karst_udp_sport(p.data + p.bth_off - KARST_UDP_LEN), 49152);
}
