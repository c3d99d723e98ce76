/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Selective repeat over several paths (X12): source ports, and which overtaken packets count as
 * lost. */
#include "repeat_bed.h"

static uint16_t
port_of(const struct karst_pkt *p)
{
	return karst_udp_sport(p->data + p->bth_off - KARST_UDP_LEN);
}

/* The source port of packets that are not sprayed. */
static uint16_t
first_port(struct bed *b)
{
	expect_taken(b, send_write(b, R(0), 0, 64));
	return port_of(expect_pkt(b, RC_ACK, R(0)));
}

/* Expects a WRITE of @n packets, each sent by the path of its PSN. */
static void
expect_sprayed(struct bed *b, uint16_t first, uint32_t n, uint32_t ports)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		const struct karst_pkt *p = i == 0 ? expect_pkt(b, RC_WRITE_FIRST, S(0))
			: i == n - 1               ? expect_pkt(b, RC_WRITE_LAST, S(i))
						   : expect_pkt(b, RC_WRITE_MIDDLE, S(i));

		cr_assert_eq(port_of(p), first ^ (S(i) & (ports - 1)), "packet %u", i);
	}
}

/* (X12): ports are used in turn; retransmissions use the next path; READ requests are sprayed, too,
 * and responses are not. */
Test(repeat_spray, x12_ports_by_turns)
{
	struct bed *b = bed_repeat_spray(8, false);
	uint16_t first = first_port(b);
	const struct karst_pkt *p;

	post(b, RDMA_WRITE, 1, .len = 17 * MTU);
	expect_sprayed(b, first, 17, 8);
	/* the last packet of this path has arrived, so those before it on this path are lost */
	expect_taken(b, send_sack(b, S(0), 1u << 16));
	p = expect_pkt(b, RC_WRITE_FIRST, S(0));
	cr_assert_eq(port_of(p), first ^ ((S(0) + 1) & 7));
	p = expect_pkt(b, RC_WRITE_MIDDLE, S(8));
	cr_assert_eq(port_of(p), first ^ ((S(8) + 1) & 7));
	expect_none(b);
	expect_taken(b, send_ack(b, S(16), 1));
	expect_wc(b, 1, SUCCESS);
	post(b, RDMA_READ, 2, .len = 1);
	p = expect_pkt(b, RC_READ_REQUEST, S(17));
	cr_assert_eq(port_of(p), first ^ (S(17) & 7));
	close_repeat(b);
}

/* (X12): a packet that overtakes on another path shows nothing; three on the same path show a
 * loss. */
Test(repeat_spray, x12_lost_on_its_path)
{
	struct bed *b = bed_repeat_spray(2, false);
	uint16_t first = first_port(b);

	post(b, RDMA_WRITE, 1, .len = 16 * MTU);
	expect_sprayed(b, first, 16, 2);
	/* all packets of one path have arrived, and none of the other: nothing is sent again */
	expect_taken(b, send_sack(b, S(0), 0xaaaa));
	expect_none(b);
	/* two have overtaken the first one on its own path: not yet */
	expect_taken(b, send_sack(b, S(0), 0xaaaa | 1u << 2 | 1u << 4));
	expect_none(b);
	expect_taken(b, send_sack(b, S(0), 0xaaaa | 1u << 2 | 1u << 4 | 1u << 6));
	expect_pkt(b, RC_WRITE_FIRST, S(0));
	expect_none(b);
	expect_taken(b, send_ack(b, S(15), 1));
	expect_wc(b, 1, SUCCESS);
	cr_assert_eq(count(b, RETRANSMITS), 1);
	close_repeat(b);
}

/* (X12, X9): a retransmission is judged on its new path. */
Test(repeat_spray, x12_again_on_its_new_path)
{
	struct bed *b = bed_repeat_spray(2, false);
	uint16_t first = first_port(b);

	post(b, RDMA_WRITE, 1, .len = 16 * MTU);
	expect_sprayed(b, first, 16, 2);
	expect_taken(b, send_sack(b, S(0), 1u << 6));
	expect_pkt(b, RC_WRITE_FIRST, S(0));
	expect_none(b);
	/* the end of the path on which it was lost: everything else that is missing on that path is
	 * sent again */
	expect_taken(b, send_sack(b, S(0), 1u << 6 | 1u << 14));
	expect_pkt(b, RC_WRITE_MIDDLE, S(2));
	expect_pkt(b, RC_WRITE_MIDDLE, S(4));
	expect_pkt(b, RC_WRITE_MIDDLE, S(8));
	expect_pkt(b, RC_WRITE_MIDDLE, S(10));
	expect_pkt(b, RC_WRITE_MIDDLE, S(12));
	expect_none(b);
	expect_taken(b, send_ack(b, S(15), 1));
	expect_wc(b, 1, SUCCESS);
	close_repeat(b);
}

/* (X12, X10): after a timeout the answer to the oldest packet tells about all paths. */
Test(repeat_spray, x12_silence_tells_of_all)
{
	struct bed *b = bed_repeat_spray(4, false);
	uint16_t first = first_port(b);
	uint32_t i;

	post(b, RDMA_WRITE, 1, .len = 8 * MTU);
	expect_sprayed(b, first, 8, 4);
	advance_time(b, RTO + 20 * US);
	expect_pkt(b, RC_WRITE_FIRST, S(0));
	expect_none(b);
	ack(b, S(0), 0);
	for (i = 1; i < 7; i++)
		expect_pkt(b, RC_WRITE_MIDDLE, S(i));
	expect_pkt(b, RC_WRITE_LAST, S(7));
	expect_none(b);
	expect_taken(b, send_ack(b, S(7), 1));
	expect_wc(b, 1, SUCCESS);
	close_repeat(b);
}

static enum karst_drop
write_from(struct bed *b, uint32_t psn, uint16_t port)
{
	struct karst_frame f = bed_frame(b,
		&(struct karst_ib_hdrs){.opcode = KARST_RC_WRITE_ONLY, .psn = psn, .ackreq = true});

	f.sport = port;
	return bed_rx_frame(b, &f);
}

/* (X12, L5): the latch ignores the bits that differ between paths, and no others. */
Test(repeat_spray, x12_l5_latched)
{
	struct bed *b = bed_repeat_spray(1, true);

	expect_taken(b, write_from(b, R(0), 0xc123));
	expect_ack(b, R(0), 1);
	expect_taken(b, write_from(b, R(1), 0xc12f));
	expect_ack(b, R(1), 2);
	expect_drop(b, SOURCE_PORT, write_from(b, R(2), 0xc133));
	close_repeat(b);
}

/* (X12, X1): without agreement there is one port, whatever is configured; and what cannot be
 * configured. */
Test(repeat_spray, x12_x1_not_agreed)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct karst_core_config c;
	struct bed *b;
	uint16_t port;
	uint32_t i;

	s.core.spray_ports = 16;
	b = bed_open(&s);
	post(b, RDMA_WRITE, 1, .len = 3 * MTU);
	port = port_of(expect_pkt(b, RC_WRITE_FIRST, S(0)));
	cr_assert_eq(port_of(expect_pkt(b, RC_WRITE_MIDDLE, S(1))), port);
	cr_assert_eq(port_of(expect_pkt(b, RC_WRITE_LAST, S(2))), port);
	bed_close(b);
	c = (struct karst_core_config){
		.max_qps = 1, .mem = (void *)&c, .ops = (void *)&c, .spray_ports = 16};
	cr_assert_neq(karst_core_bytes(&c), 0);
	for (i = 3; i < 64; i = 2 * i - 1) {
		c.spray_ports = i;
		cr_assert_eq(karst_core_bytes(&c), 0, "%u", i);
	}
	c.spray_ports = 32;
	cr_assert_eq(karst_core_bytes(&c), 0);
}
