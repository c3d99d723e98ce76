/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* UD: single packets, address handles, Q_Keys, the GRH area (U1), multicast (U4). */
#include "harness.h"

static struct bed *
bed_ud(void)
{
	struct setup s = setup_of(KARST_QPT_UD);

	return bed_open(&s);
}

static uint32_t
ah_of(struct bed *b, const struct karst_path *path)
{
	uint32_t ah = 0;

	cr_assert_eq(karst_ah_create(b->ahs, b->pd, path, &ah), 0);
	cr_assert_neq(ah, 0);
	return ah;
}

static const uint8_t *
deth(const struct karst_pkt *p)
{
	return p->data + p->bth_off + KARST_BTH_LEN;
}

/* (U1, W3): the packet of a send, which completes when the packet is built. */
Test(ud, u1_send)
{
	struct bed *b = bed_ud();
	uint32_t ah = ah_of(b, &b->path);
	const struct karst_pkt *p;

	memcpy(b->buf, b->pattern, 256);
	post(b, SEND, 1, .len = 256, .ah = ah, .qpn = 0x123456, .qkey = 0x4444,
		.flags = KARST_SEND_SOLICITED);
	post(b, SEND_WITH_IMM, 2, .len = 0, .imm = 5, .ah = ah, .qpn = 0x123457,
		.qkey = 0x80000000);
	p = expect_pkt(b, UD_SEND_ONLY, S(0));
	cr_assert_eq(p->dqpn, 0x123456);
	cr_assert_eq(p->qkey, 0x4444);
	cr_assert_eq(p->src_qpn, b->s->qpn);
	cr_assert_eq(karst_get_be32(deth(p)), 0x4444);
	cr_assert_not(p->flags & KARST_PKT_ACKREQ);
	cr_assert(p->flags & KARST_PKT_SE);
	expect_data(b, p, 0, 256);
	p = expect_pkt(b, UD_SEND_ONLY_IMM, S(1));
	cr_assert_eq(p->imm, 5);
	cr_assert_eq(p->qkey, 0x1234); /* the high bit selects the QP's own Q_Key */
	expect_wc(b, 1, SUCCESS);
	cr_assert_eq(b->wc.byte_len, 256);
	expect_wc(b, 2, SUCCESS);
	cr_assert_eq(karst_wq_free(&b->s->sq, 64), 64);
	bed_close(b);
}

static bool
is_not_from(const void *user, uint8_t port, const uint8_t src_ip[16])
{
	return port != 0 || memcmp(src_ip + 12, user, 4) != 0;
}

static bool
is_from_any(const void *user, uint8_t port, const uint8_t src_ip[16])
{
	(void)user;
	(void)port;
	(void)src_ip;
	return true;
}

/* Address handles: destroyed, suspended, of another PD, invalid; the send queue stops, the receive
 * side continues. */
Test(ud, address_handles)
{
	unsigned int i;

	for (i = 0; i < 6; i++) {
		struct bed *b = bed_ud();
		uint32_t ah = ah_of(b, &b->path), again;

		switch (i) {
		case 0:
			cr_assert_eq(karst_ah_destroy(b->ahs, ah), 0);
			cr_assert_eq(karst_ah_destroy(b->ahs, ah), -EINVAL);
			break;
		case 1:
			cr_assert_eq(karst_ah_create(b->ahs, b->pd + 1, &b->path, &ah), 0);
			break;
		case 2:
			ah = 0;
			break;
		case 3: /* the slot was used again since */
			cr_assert_eq(karst_ah_destroy(b->ahs, ah), 0);
			do {
				again = ah_of(b, &b->path);
				cr_assert_neq(again, ah);
				cr_assert_eq(karst_ah_destroy(b->ahs, again), 0);
			} while ((again & 7) != (ah & 7));
			again = ah_of(b, &b->path);
			break;
		case 4:
			karst_ah_suspend(b->ahs, is_not_from, b->path.src_ip + 12);
			break;
		default:
			ah = 0xffffffff;
		}
		post(b, SEND, 1, .len = 4, .ah = ah, .qpn = 5);
		post(b, SEND, 2, .len = 4, .ah = ah, .qpn = 5);
		expect_none(b);
		expect_wc(b, 1, LOC_QP_OP_ERR);
		expect_wc(b, 2, WR_FLUSH_ERR);
		expect_state(b, SQE);
		cr_assert_eq(karst_ah_destroy(b->ahs, ah), i == 1 || i == 4 ? 0 : -EINVAL);
		bed_close(b);
	}
}

/* Handles of other source addresses can be used; a suspended one keeps its slot, and can be used
 * again later. */
Test(ud, suspended_address_handles)
{
	struct bed *b = bed_ud();
	struct karst_path other = b->path;
	uint32_t ah[8], extra, i;

	other.src_ip[15] ^= 1;
	for (i = 0; i < 8; i++)
		ah[i] = ah_of(b, i == 5 ? &other : &b->path);
	karst_ah_suspend(b->ahs, is_not_from, b->path.src_ip + 12);
	cr_assert_eq(karst_ah_create(b->ahs, b->pd, &b->path, &extra), -ENOSPC);
	post(b, SEND, 1, .len = 4, .ah = ah[5], .qpn = 5);
	expect_pkt(b, UD_SEND_ONLY, S(0));
	expect_wc(b, 1, SUCCESS);
	cr_assert_eq(karst_ah_destroy(b->ahs, ah[7]), 0);
	karst_ah_suspend(b->ahs, is_from_any, NULL);
	post(b, SEND, 2, .len = 4, .ah = ah[0], .qpn = 5);
	expect_pkt(b, UD_SEND_ONLY, S(1));
	expect_wc(b, 2, SUCCESS);
	post(b, SEND, 3, .len = 4, .ah = ah[7], .qpn = 5);
	expect_wc(b, 3, LOC_QP_OP_ERR);
	for (i = 0; i < 7; i++)
		cr_assert_eq(karst_ah_destroy(b->ahs, ah[i]), 0);
	bed_close(b);
}

Test(ud, address_handle_table)
{
	struct bed *b = bed_ud();
	struct karst_path bad = b->path;
	uint32_t ah[8], extra, i, round;

	cr_assert_eq(karst_ah_table_bytes(0), 0);
	cr_assert_eq(karst_ah_table_bytes((1u << 20) + 1), 0);
	bad.udp_sport = 80;
	cr_assert_eq(karst_ah_create(b->ahs, b->pd, &bad, &extra), -EINVAL);
	for (round = 0; round < 3; round++) {
		for (i = 0; i < 8; i++)
			ah[i] = ah_of(b, &b->path);
		cr_assert_eq(karst_ah_create(b->ahs, b->pd, &b->path, &extra), -ENOSPC);
		for (i = 0; i < 8; i++)
			cr_assert_eq(karst_ah_destroy(b->ahs, ah[(i * 3) & 7]), 0);
	}
	bed_close(b);
}

/* A visit serves one port; it ends before a packet for another port, and reports which port is
 * next. */
Test(ud, one_port_a_visit)
{
	static const uint8_t ports[] = {0, 0, 3, 3, 3, 0};
	struct bed *b = bed_ud();
	struct karst_path other = b->path;
	uint32_t ah[2], i, n = 0;

	other.port = 3;
	ah[0] = ah_of(b, &b->path);
	ah[1] = ah_of(b, &other);
	for (i = 0; i < KARST_DIM(ports); i++)
		post(b, SEND, i, .ah = ah[ports[i] != 0], .qpn = 7, .qkey = 5, .len = 8);
	while (n < KARST_DIM(ports)) {
		uint8_t port = ports[n];

		cr_assert_eq(karst_qp_port(b->s->qp), port);
		cr_assert_eq(turn_once(b, 32, UINT32_MAX), n < 5);
		for (; n < KARST_DIM(ports) && ports[n] == port; n++) {
			expect_pkt(b, UD_SEND_ONLY, S(n));
			expect_wc(b, n, SUCCESS);
		}
		cr_assert_eq(b->out_head, b->out_tail);
	}
	bed_close(b);
}

/* Longer than the MTU: a datagram is one packet (U1). */
Test(ud, u1_too_long)
{
	struct bed *b = bed_ud();
	uint32_t ah = ah_of(b, &b->path);

	post(b, SEND, 1, .len = 257, .ah = ah, .qpn = 5);
	expect_wc(b, 1, LOC_LEN_ERR);
	expect_state(b, SQE);
	cr_assert_eq(bed_to_state(b, KARST_QPS_RTS), 0);
	post(b, SEND, 2, .len = 256, .ah = ah, .qpn = 5);
	expect_pkt(b, UD_SEND_ONLY, S(0));
	expect_wc(b, 2, SUCCESS);
	bed_close(b);
}

/* WRITE and similar operations do not exist for UD. */
Test(ud, operations_of_rc)
{
	static const enum karst_wr_opcode ops[] = {KARST_WR_RDMA_WRITE, KARST_WR_RDMA_READ,
		KARST_WR_ATOMIC_CAS, KARST_WR_BIND_MW, KARST_WR_LOCAL_INV, KARST_WR_SEND_WITH_INV};
	unsigned int i;

	for (i = 0; i < KARST_DIM(ops); i++) {
		struct bed *b = bed_ud();
		uint32_t ah = ah_of(b, &b->path);

		bed_post(b, &(struct wr){.op = ops[i], .id = 1, .ah = ah});
		expect_wc(b, 1, LOC_QP_OP_ERR);
		bed_close(b);
	}
}

/* (U1): 40 bytes in front of the payload; an IPv4 header is in the last 20 of them. */
Test(ud, u1_receive_ipv4)
{
	struct bed *b = bed_ud();
	struct karst_sge sge[2] = {{VA, 30, b->key}, {VA + 1000, 200, b->key}};
	unsigned int i;

	post_recv_sge(b, 1, sge, 2);
	expect_taken(b,
		send_pkt(b, UD_SEND_ONLY_IMM, 0x55, .qkey = 0x1234, .src_qpn = 0x777,
			.pay_len = 100, .imm = 3, .se = true));
	expect_recv(b, 1, SUCCESS);
	cr_assert_eq(b->wc.byte_len, 140);
	cr_assert_eq(b->wc.src_qpn, 0x777);
	cr_assert_eq(b->wc.flags, KARST_WC_GRH | KARST_WC_IP4 | KARST_WC_WITH_IMM);
	cr_assert_eq(b->wc.imm, 3);
	for (i = 0; i < 20; i++)
		cr_assert_eq(b->buf[i], 0);
	cr_assert_eq(b->buf[20], 0x45);
	cr_assert_arr_eq(b->buf + 1002, b->path.dst_ip + 12, 4);
	cr_assert_arr_eq(b->buf + 1006, b->path.src_ip + 12, 4);
	expect_mem(b, 1010, 0, 100);
	expect_untouched(b, 1110, 100);
	bed_close(b);
}

Test(ud, u1_receive_ipv6)
{
	struct setup s = setup_of(KARST_QPT_UD);
	struct karst_path *p = &s.attr.path;
	struct bed *b;

	p->ip6 = true;
	p->src_ip[0] = p->dst_ip[0] = 0x20;
	b = bed_open(&s);
	post_recv(b, 1, 0, 40);
	expect_taken(b, send_pkt(b, UD_SEND_ONLY, 7, .qkey = 0x1234, .src_qpn = 1));
	expect_recv(b, 1, SUCCESS);
	cr_assert_eq(b->wc.byte_len, 40);
	cr_assert_eq(b->wc.flags, KARST_WC_GRH);
	cr_assert_eq(b->buf[0] >> 4, 6);
	cr_assert_arr_eq(b->buf + 8, p->dst_ip, 16);
	cr_assert_arr_eq(b->buf + 24, p->src_ip, 16);
	bed_close(b);
}

/* (U1, W9): wrong Q_Key, no receive request, one that is too small, a packet that is too big. */
Test(ud, u1_drops)
{
	struct bed *b = bed_ud();

	expect_drop(b, QKEY, send_pkt(b, UD_SEND_ONLY, 0, .qkey = 0x1235, .pay_len = 4));
	expect_drop(b, NO_WQE, send_pkt(b, UD_SEND_ONLY, 0, .qkey = 0x1234, .pay_len = 4));
	post_recv(b, 1, 0, 43);
	expect_drop(b, UD_LENGTH, send_pkt(b, UD_SEND_ONLY, 0, .qkey = 0x1234, .pay_len = 4));
	expect_drop(b, UD_LENGTH, send_pkt(b, UD_SEND_ONLY, 0, .qkey = 0x1234, .pay_len = 257));
	expect_untouched(b, 0, 64);
	/* the request that was too small is used for a datagram that fits; PSNs do not matter */
	expect_taken(b, send_pkt(b, UD_SEND_ONLY, 0x123, .qkey = 0x1234, .pay_len = 3));
	expect_recv(b, 1, SUCCESS);
	expect_none(b);
	expect_drop(b, PKEY,
		send_pkt(b, UD_SEND_ONLY, 0, .qkey = 0x1234, .pkey = 0x8001, .pay_len = 4));
	expect_drop(b, QP_TYPE, send_pkt(b, RC_SEND_ONLY, 0, .pay_len = 4));
	bed_close(b);
}

/* A receive request that is invalid in itself ends the QP. */
Test(ud, bad_receive)
{
	struct bed *b = bed_ud();
	struct karst_sge sge = {VA, 100, 0x666};

	post_recv_sge(b, 1, &sge, 1);
	post_recv(b, 2, 0, 100);
	send_pkt(b, UD_SEND_ONLY, 0, .qkey = 0x1234, .pay_len = 4);
	expect_recv(b, 1, LOC_PROT_ERR);
	expect_recv(b, 2, WR_FLUSH_ERR);
	expect_event(b, QP_FATAL);
	bed_close(b);
}

/* (U4): the MAC address of a group, and QP 0xffffff. */
Test(ud, u4_multicast)
{
	struct bed *b = bed_ud();
	struct karst_path p = b->path;
	static const uint8_t group4[4] = {239, 0x85, 2, 3};
	static const uint8_t mac4[6] = {1, 0, 0x5e, 0x05, 2, 3};
	static const uint8_t mac6[6] = {0x33, 0x33, 0xa, 0xb, 0xc, 0xd};
	const struct karst_pkt *pkt;

	memcpy(p.dst_ip + 12, group4, 4);
	karst_path_multicast_mac(&p);
	cr_assert_arr_eq(p.dst_mac, mac4, 6);
	post(b, SEND, 1, .len = 4, .ah = ah_of(b, &p), .qpn = 0xffffff, .qkey = 9);
	pkt = expect_pkt(b, UD_SEND_ONLY, S(0));
	cr_assert_eq(pkt->dqpn, 0xffffff);
	cr_assert_arr_eq(pkt->data, mac4, 6);
	expect_wc(b, 1, SUCCESS);
	p.ip6 = true;
	memset(p.dst_ip, 0, 16);
	p.dst_ip[0] = 0xff;
	memcpy(p.dst_ip + 12, mac6 + 2, 4);
	karst_path_multicast_mac(&p);
	cr_assert_arr_eq(p.dst_mac, mac6, 6);
	bed_close(b);
}

/* (U1): a receive that is too small stays for the next datagram; but not one of a shared queue,
 * which other QPs would miss: it completes in error (IBTA 9.9.3, class E), and the QP continues. */
Test(ud, u1_too_small_of_a_shared_queue)
{
	struct setup s = setup_of(KARST_QPT_UD);
	struct bed *b;

	s.srq_wr = 8;
	b = bed_open(&s);
	bed_add(b, &s);
	post_recv(b, 1, 0, 40 + 10);
	post_recv(b, 2, 1024, 40 + 256);
	expect_drop(b, UD_LENGTH,
		send_pkt(b, UD_SEND_ONLY, 1, .qkey = 0x1234, .src_qpn = 9, .pay_len = 11));
	expect_recv(b, 1, LOC_LEN_ERR);
	expect_untouched(b, 0, 64);
	b->s = &b->side[0];
	expect_taken(b, send_pkt(b, UD_SEND_ONLY, 1, .qkey = 0x1234, .src_qpn = 9, .pay_len = 11));
	expect_recv(b, 2, SUCCESS);
	expect_no_event(b);
	expect_state(b, RTS);
	bed_close(b);
}
