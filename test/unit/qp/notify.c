/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Congestion: ECT, marks and the CNPs that answer them (E1, E3, E4), and received CNPs (E5). */
#include "harness.h"

static struct karst_congestion_config config;

/* setup_of() with notification. */
static struct setup
noticing(enum karst_qp_type type)
{
	return setup_congested(type, KARST_CONGESTION_NOTIFY, &config);
}

/* The frame that bed_rx() would send, marked by the network. */
static struct karst_frame
marked(const struct bed *b, const struct karst_ib_hdrs *ib)
{
	struct karst_frame f = bed_frame(b, ib);

	f.tclass |= 3;
	return f;
}

static enum karst_drop
rx_marked(struct bed *b, const struct karst_ib_hdrs *ib)
{
	struct karst_frame f = marked(b, ib);

	return bed_rx_frame(b, &f);
}
#define send_marked(b, opc, seq, ...) \
	rx_marked(b, &(struct karst_ib_hdrs){.opcode = KARST_##opc, .psn = (seq), ##__VA_ARGS__})

static uint8_t
tclass_of(const struct karst_pkt *p)
{
	const uint8_t *l3 = p->data + karst_pkt_l3_off(p);

	return p->flags & KARST_PKT_IP6 ? karst_ip6_tclass(l3) : karst_ip4_tos(l3);
}

/* Expects a CNP (E3), compared byte for byte except for addresses and destination. */
static const struct karst_pkt *
expect_cnp(struct bed *b, uint32_t dqpn)
{
	static const uint8_t zeros[16];
	const struct karst_pkt *p = expect_pkt(b, CNP, 0);
	const uint8_t *bth = p->data + p->bth_off;

	cr_assert_eq(bth[1], 0, "SE, MigReq, pad, version");
	cr_assert_eq(p->pkey, 0xffff);
	cr_assert_eq(bth[4], KARST_BTH_BECN);
	cr_assert_eq(p->dqpn, dqpn);
	cr_assert_eq(karst_get_be32(bth + 8), 0, "AckReq and PSN");
	cr_assert_arr_eq(bth + KARST_BTH_LEN, zeros, 16);
	cr_assert_eq(p->len, p->bth_off + KARST_BTH_LEN + 16u + KARST_ICRC_LEN);
	cr_assert_eq(tclass_of(p), config.np.cnp_dscp << 2, "never ECT");
	return p;
}

/* (E1): packets are ECT(0) whatever the program asks for; its DSCP is kept. */
Test(notify, e1_data_is_ect0)
{
	unsigned int ecn, ip6;

	for (ecn = 0; ecn < 8; ecn++) {
		struct setup s = noticing(KARST_QPT_RC);
		struct bed *b;

		ip6 = ecn >> 2;
		s.attr.path.tclass = (uint8_t)(0x68 | (ecn & 3));
		s.attr.path.ip6 = ip6;
		s.attr.path.src_ip[0] = s.attr.path.dst_ip[0] = 0xfd;
		b = bed_open(&s);
		post(b, SEND, 1, .len = 5);
		cr_assert_eq(tclass_of(expect_pkt(b, RC_SEND_ONLY, S(0))), 0x6a);
		bed_forget(b);
		bed_close(b);
	}
}

/* (E1): so are datagrams, by their address handles; without congestion control, handles cannot set
 * CE. */
Test(notify, e1_handles)
{
	struct setup s = noticing(KARST_QPT_UD);
	struct bed *b = bed_open(&s);
	uint32_t ah = 0, ect, ecn;

	for (ect = 0; ect < 2; ect++) {
		karst_ah_table_set_ect(b->ahs, ect);
		for (ecn = 0; ecn < 4; ecn++) {
			uint32_t off = ecn == 3 ? 0 : ecn;

			b->path.tclass = (uint8_t)(0x68 | ecn);
			cr_assert_eq(karst_ah_create(b->ahs, b->pd, &b->path, &ah), 0);
			post(b, SEND, 1, .len = 5, .ah = ah, .qpn = 5);
			cr_assert_eq(tclass_of(expect_pkt(b, UD_SEND_ONLY, S(4 * ect + ecn))),
				0x68 | (ect ? 2 : off));
			expect_wc(b, 1, SUCCESS);
			cr_assert_eq(karst_ah_destroy(b->ahs, ah), 0);
		}
	}
	bed_close(b);
}

/* (E1): when it is off, marks are counted, and no bit of the packets that are sent changes. */
Test(notify, e1_off)
{
	struct bed *b = bed_rc();

	expect_taken(b, send_marked(b, RC_WRITE_ONLY, R(0), .ackreq = true));
	expect_ack(b, R(0), 1);
	expect_none(b);
	cr_assert_eq(count(b, NP_ECN_MARKED), 1);
	cr_assert_eq(count(b, NP_CNP_SENT), 0);
	bed_close(b);
}

static void
format(bool ip6, bool vlan)
{
	struct setup s = noticing(KARST_QPT_RC);
	struct karst_path *path = &s.attr.path;
	const struct karst_pkt *p;
	const uint8_t *l3;
	struct bed *b;

	config.np.cnp_dscp = ip6 ? 26 : 48;
	path->tclass = 0x40;
	path->udp_sport = 0xc123;
	path->ip6 = ip6;
	path->src_ip[0] = path->dst_ip[0] = 0xfd;
	path->has_vlan = vlan;
	path->vlan_tci = 0x3abc;
	b = bed_open(&s);
	expect_taken(b, send_marked(b, RC_WRITE_ONLY, R(0), .ackreq = true));
	/* ahead of other packets */
	p = expect_cnp(b, PEER_QPN);
	l3 = p->data + karst_pkt_l3_off(p);
	cr_assert_arr_eq(p->data, path->dst_mac, 6);
	cr_assert_arr_eq(p->data + 6, path->src_mac, 6);
	cr_assert_eq((p->flags & KARST_PKT_VLAN) != 0, vlan);
	if (vlan)
		cr_assert_eq(karst_get_be16(p->data + 14), 0xdabc, "priority 6, the same VLAN");
	if (ip6) {
		cr_assert_arr_eq(karst_ip6_src(l3), path->src_ip, 16);
		cr_assert_arr_eq(karst_ip6_dst(l3), path->dst_ip, 16);
	} else {
		cr_assert_arr_eq(karst_ip4_src(l3), path->src_ip + 12, 4);
		cr_assert_arr_eq(karst_ip4_dst(l3), path->dst_ip + 12, 4);
	}
	cr_assert_eq(karst_udp_sport(p->data + p->bth_off - KARST_UDP_LEN), 0xc123);
	expect_ack(b, R(0), 1);
	cr_assert_eq(count(b, NP_CNP_SENT), 1);
	cr_assert_eq(count(b, TX_PACKETS), 2);
	bed_close(b);
}

/* (E3): a CNP, byte for byte. */
Test(notify, e3_format)
{
	format(false, false);
	format(true, false);
	format(false, true);
	format(true, true);
}

/* (E4): one CNP, however many marks there are, until the interval is over. */
Test(notify, e4_interval)
{
	struct setup s = noticing(KARST_QPT_RC);
	struct bed *b = bed_open(&s);
	uint32_t i;

	for (i = 0; i < 3; i++)
		expect_taken(b, send_marked(b, RC_WRITE_ONLY, R(i)));
	expect_cnp(b, PEER_QPN);
	expect_none(b);
	advance_time(b, 4 * US - 1);
	expect_taken(b, send_marked(b, RC_WRITE_ONLY, R(3)));
	expect_none(b);
	advance_time(b, 1);
	expect_none(b);
	expect_taken(b, send_marked(b, RC_WRITE_ONLY, R(4)));
	expect_cnp(b, PEER_QPN);
	expect_none(b);
	cr_assert_eq(count(b, NP_ECN_MARKED), 5);
	cr_assert_eq(count(b, NP_CNP_SENT), 2);
	bed_close(b);
}

/* (E4): interval 0: one for each mark; marks for which there is no room are dropped, and nothing
 * gets stuck. */
Test(notify, e4_no_interval)
{
	struct setup s = noticing(KARST_QPT_RC);
	struct bed *b;
	uint32_t i;

	config.np.min_time_between_cnps = 0;
	b = bed_open(&s);
	for (i = 0; i < 100; i++)
		expect_taken(b, send_marked(b, RC_WRITE_ONLY, R(i)));
	/* a full burst leaves the rest for the next visit */
	cr_assert(turn_once(b, 1, 4096));
	for (i = 0; i < 64; i++)
		expect_cnp(b, PEER_QPN);
	expect_none(b);
	expect_taken(b, send_marked(b, RC_WRITE_ONLY, R(100)));
	expect_cnp(b, PEER_QPN);
	bed_close(b);
}

/* Marks packets to two queue pairs of one peer.  @return how many CNPs that causes. */
static uint32_t
cnps_of_two(uint32_t scope, uint8_t other_address)
{
	struct setup s = noticing(KARST_QPT_RC);
	uint64_t cnps;
	struct bed *b;

	config.np.cnp_scope = scope;
	b = bed_open(&s);
	expect_taken(b, send_marked(b, RC_WRITE_ONLY, R(0)));
	s.attr.path.dst_ip[15] = b->path.dst_ip[15] = other_address;
	bed_add(b, &s);
	expect_taken(b, send_marked(b, RC_WRITE_ONLY, R(0)));
	turn(b);
	cnps = count(b, NP_CNP_SENT);
	/* and later once more */
	advance_time(b, 4 * US);
	expect_taken(b, send_marked(b, RC_WRITE_ONLY, R(1)));
	turn(b);
	cr_assert_eq(count(b, NP_CNP_SENT), cnps + 1);
	bed_forget(b);
	bed_close(b);
	return (uint32_t)cnps;
}

/* (E4): the scope within which the interval is kept. */
Test(notify, e4_scope)
{
	cr_assert_eq(cnps_of_two(KARST_CNP_QP, 2), 2);
	cr_assert_eq(cnps_of_two(KARST_CNP_ADDRESS, 2), 1);
	cr_assert_eq(cnps_of_two(KARST_CNP_ADDRESS, 3), 2);
	cr_assert_eq(cnps_of_two(KARST_CNP_PORT, 3), 1);
}

/* A datagram as the peer sends it. */
static struct karst_ib_hdrs
datagram(void)
{
	return (struct karst_ib_hdrs){
		.opcode = KARST_UD_SEND_ONLY, .qkey = 0x1234, .src_qpn = 0x5678};
}

/* (E4): with many addresses none gets CNPs more often, though not all addresses are remembered. */
Test(notify, e4_many_addresses)
{
	struct setup s = noticing(KARST_QPT_UD);
	struct karst_ib_hdrs ib = datagram();
	uint32_t round, i, sent, before;
	static uint8_t heard[4096];
	struct bed *b;

	config.np.cnp_scope = KARST_CNP_ADDRESS;
	b = bed_open(&s);
	for (round = 0; round < 2; round++) {
		sent = 0;
		memset(heard, 0, sizeof(heard));
		for (i = 0; i < 2 * KARST_DIM(heard); i++) {
			struct karst_frame f = marked(b, &ib);
			uint32_t who = i % KARST_DIM(heard);

			karst_put_be16(f.saddr + 2, (uint16_t)who);
			before = (uint32_t)count(b, NP_CNP_SENT);
			bed_rx_frame(b, &f);
			turn(b);
			bed_forget(b);
			heard[who] += (uint8_t)(count(b, NP_CNP_SENT) - before);
			cr_assert_leq(heard[who], 1, "address %u heard twice", who);
			sent += (uint32_t)(count(b, NP_CNP_SENT) - before);
		}
		cr_assert_geq(sent, 200, "only %u addresses heard", sent);
		advance_time(b, 4 * US);
	}
	bed_close(b);
}

/* (E4): the sender of a datagram is taken from the datagram; but only if it was accepted, and sent
 * to us alone. */
Test(notify, e4_datagrams)
{
	struct setup s = noticing(KARST_QPT_UD);
	struct bed *b = bed_open(&s);
	struct karst_ib_hdrs ib = datagram();
	const struct karst_pkt *p;
	struct karst_frame f;

	f = marked(b, &ib);
	f.vlan = true;
	f.vlan_tci = 0x0007;
	f.smac[5] = 0x77;
	f.saddr[3] = 99;
	expect_drop(b, NO_WQE, bed_rx_frame(b, &f));
	p = expect_cnp(b, 0x5678);
	cr_assert_eq(p->data[5], 0x77);
	cr_assert_eq(karst_get_be16(p->data + 14), 0xc007);
	cr_assert_eq(karst_ip4_dst(p->data + karst_pkt_l3_off(p))[3], 99);
	cr_assert_arr_eq(karst_ip4_src(p->data + karst_pkt_l3_off(p)), s.attr.path.src_ip + 12, 4);
	advance_time(b, 4 * US);
	ib.qkey = 0x4321;
	expect_drop(b, QKEY, rx_marked(b, &ib));
	ib = datagram();
	f = marked(b, &ib);
	f.dmac[0] |= 1; /* to a group */
	expect_drop(b, NO_WQE, bed_rx_frame(b, &f));
	f = marked(b, &ib);
	f.smac[0] |= 1; /* from a MAC address to which nothing may be sent */
	expect_drop(b, NO_WQE, bed_rx_frame(b, &f));
	expect_none(b);
	/* over IPv6 */
	f = marked(b, &ib);
	f.ip6 = true;
	memset(f.saddr, 0x31, 16);
	memset(f.daddr, 0x32, 16);
	expect_drop(b, NO_WQE, bed_rx_frame(b, &f));
	p = expect_cnp(b, 0x5678);
	cr_assert_arr_eq(karst_ip6_dst(p->data + 14), f.saddr, 16);
	cr_assert_arr_eq(karst_ip6_src(p->data + 14), f.daddr, 16);
	bed_close(b);
}

/* (E4): READ responses are data and are answered by the requester; acknowledgements and CNPs are
 * not answered. */
Test(notify, e4_what_is_answered)
{
	struct setup s = noticing(KARST_QPT_RC);
	struct bed *b;

	config.np.min_time_between_cnps = 0;
	b = bed_open(&s);
	post(b, RDMA_READ, 1, .len = 2 * MTU);
	post(b, SEND, 2, .len = 4);
	post(b, ATOMIC_FAA, 3, .len = 8, .compare_add = 1);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_pkt(b, RC_SEND_ONLY, S(2));
	expect_pkt(b, RC_FETCH_ADD, S(3));
	expect_taken(
		b, send_marked(b, RC_READ_RESP_FIRST, S(0), .aeth = 0x1f000000, .pay_len = MTU));
	expect_cnp(b, PEER_QPN);
	expect_taken(
		b, send_marked(b, RC_READ_RESP_LAST, S(1), .aeth = 0x1f000001, .pay_len = MTU));
	expect_cnp(b, PEER_QPN);
	expect_taken(b, send_marked(b, RC_ACK, S(2), .aeth = 0x1f000002));
	expect_taken(b, send_marked(b, RC_ATOMIC_ACK, S(3), .aeth = 0x1f000003));
	expect_drop(b, CNP, send_marked(b, CNP, 0, .becn = true));
	expect_none(b);
	cr_assert_eq(count(b, NP_ECN_MARKED), 5);
	cr_assert_eq(count(b, NP_CNP_SENT), 2);
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	expect_wc(b, 3, SUCCESS);
	/* a packet that was sent twice or came too early went through the network all the same */
	expect_drop(b, SEQUENCE, send_marked(b, RC_WRITE_ONLY, R(5)));
	expect_cnp(b, PEER_QPN);
	expect_nak(b, R(0), PSN_SEQ, 0);
	bed_close(b);
}

/* (E4): UC, and both ends of XRC. */
Test(notify, e4_other_transports)
{
	struct setup s = noticing(KARST_QPT_UC);
	struct bed *b = bed_open(&s);

	expect_taken(b, send_marked(b, UC_WRITE_ONLY, R(0)));
	expect_cnp(b, PEER_QPN);
	bed_close(b);
	s = noticing(KARST_QPT_XRC_RECV);
	b = bed_open(&s);
	expect_taken(b,
		send_marked(
			b, XRC_WRITE_ONLY, R(0), .srqn = karst_srq_num(b->srq), .ackreq = true));
	expect_cnp(b, PEER_QPN);
	expect_pkt(b, XRC_ACK, R(0));
	bed_close(b);
	s = noticing(KARST_QPT_XRC_SEND);
	b = bed_open(&s);
	post(b, RDMA_READ, 1, .len = 4, .srqn = 5);
	expect_pkt(b, XRC_READ_REQUEST, S(0));
	expect_taken(b, send_marked(b, XRC_READ_RESP_ONLY, S(0), .aeth = 0x1f000001, .pay_len = 4));
	expect_cnp(b, PEER_QPN);
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* (E4): a queue pair that is destroyed before its CNP is sent does no harm. */
Test(notify, e4_queue_pair_gone)
{
	struct setup s = noticing(KARST_QPT_RC);
	struct bed *b = bed_open(&s);

	expect_taken(b, send_marked(b, RC_WRITE_ONLY, R(0)));
	bed_destroy_side(b, b->s);
	bed_add(b, &s);
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
	expect_cnp(b, PEER_QPN);
	expect_ack(b, R(0), 1);
	bed_close(b);
}

/* (E5): a CNP is checked against its queue pair like any packet. */
Test(notify, e5_forged)
{
	struct setup s = noticing(KARST_QPT_RC);
	struct karst_ib_hdrs ib = {.opcode = KARST_CNP, .becn = true};
	struct bed *b = bed_open(&s);
	struct karst_frame f;

	expect_drop(b, CNP, bed_rx(b, &ib));
	ib.pkey = 0x1234;
	expect_drop(b, PKEY, bed_rx(b, &ib));
	ib.pkey = 0;
	f = bed_frame(b, &ib);
	f.saddr[3] ^= 1;
	expect_drop(b, ADDRESS, bed_rx_frame(b, &f));
	cr_assert_eq(count(b, RP_CNP_IGNORED), 3);
	cr_assert_eq(count(b, RX_PACKETS), 0);
	bed_to_state(b, KARST_QPS_ERR);
	expect_drop(b, QP_STATE, bed_rx(b, &ib));
	expect_none(b);
	bed_close(b);
}

/* (E5, L5): a CNP does not latch a port, and must not come from another one. */
Test(notify, e5_latched)
{
	struct setup s = noticing(KARST_QPT_RC);
	struct karst_ib_hdrs ib = {.opcode = KARST_CNP, .becn = true};
	struct karst_frame f, write;
	struct bed *b;

	s.core.latch_sport = true;
	s.attr.sq_psn = 0;
	b = bed_open(&s);
	post(b, SEND, 1, .len = 4); /* PSN 0 is outstanding, and the CNP has it, too */
	expect_pkt(b, RC_SEND_ONLY, S(0));
	f = bed_frame(b, &ib);
	f.sport = 0xc777;
	expect_drop(b, CNP, bed_rx_frame(b, &f));
	write = bed_frame(b,
		&(struct karst_ib_hdrs){
			.opcode = KARST_RC_WRITE_ONLY, .psn = R(0), .ackreq = true});
	write.sport = 0xc001;
	expect_taken(b, bed_rx_frame(b, &write));
	expect_ack(b, R(0), 1);
	expect_drop(b, SOURCE_PORT, bed_rx_frame(b, &f));
	f.sport = 0xc001;
	expect_drop(b, CNP, bed_rx_frame(b, &f));
	write = bed_frame(b,
		&(struct karst_ib_hdrs){.opcode = KARST_RC_ACK, .psn = S(0), .aeth = 0x1f000001});
	write.sport = 0xc001;
	expect_taken(b, bed_rx_frame(b, &write));
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* With parameters out of range no core can be created. */
Test(notify, bad_parameters)
{
	struct setup s = noticing(KARST_QPT_RC);
	struct karst_core_config c = s.core;

	cr_assert(karst_congestion_valid(&config));
	config.np.cnp_dscp = 64;
	cr_assert_not(karst_congestion_valid(&config));
	cr_assert_eq(karst_core_bytes(&c), 0);
	config.np.cnp_dscp = 63;
	config.np.cnp_802p_prio = 8;
	cr_assert_not(karst_congestion_valid(&config));
	config.np.cnp_802p_prio = 7;
	config.np.cnp_scope = KARST_CNP_PORT + 1;
	cr_assert_not(karst_congestion_valid(&config));
	config.np.cnp_scope = 0;
	config.mode = KARST_CONGESTION_SWIFT + 1;
	cr_assert_not(karst_congestion_valid(&config));
}
