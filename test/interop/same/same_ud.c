/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Datagrams and multicast.  rxe does not deliver a multicast datagram to the port that sends it. */
#include "same.h"

#define GRH 40u

static struct ibv_ah *way;

static void
connect_ud(void)
{
	struct ibv_ah_attr attr;

	bed_open();
	connect_pair(IBV_QPT_UD);
	attr = full_attr(IBV_QPS_RTR, 0).ah_attr;
	MUST((way = ibv_create_ah(pd, &attr)) != NULL);
}

static int
send_to(uint32_t qpn, uint32_t qkey, uint32_t len, unsigned int flags)
{
	struct ibv_sge sge = piece(0, len);
	struct ibv_send_wr wr = send_wr(IBV_WR_SEND, 1, &sge), *bad;

	wr.send_flags = IBV_SEND_SIGNALED | flags;
	wr.wr.ud.ah = way;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = qkey;
	return ibv_post_send(qp[0], &wr, &bad);
}

/* A datagram, and the GRH that the receiver gets: its last 20 bytes are the IPv4 header. */
static void
datagram(void)
{
	struct ibv_wc wc;
	struct ibv_ah_attr back = {0};
	struct ibv_grh *grh;
	int rc, i, n = 2;

	connect_ud();
	memset(buf, 'a', 100);
	MUST(post_recv(qp[1], 2, 1024, GRH + 100) == 0);
	say_rc("sent", send_to(qp[1]->qp_num, QKEY, 100, 0));
	for (i = 0; i < n; i++) {
		wc = next_wc(cq);
		say(wc.wr_id == RECV_ID + 2 ? "received" : "completes", "status %d opcode %d",
			wc.status, wc.opcode);
		if (wc.wr_id != RECV_ID + 2)
			continue;
		say("fields", "bytes %u flags %#x src_qp %d pkey_index %d slid %d path %d",
			wc.byte_len, (unsigned int)wc.wc_flags & ~(unsigned int)IBV_WC_IP_CSUM_OK,
			wc.src_qp == qp[0]->qp_num, wc.pkey_index, wc.slid, wc.dlid_path_bits);
		grh = (void *)(buf + 1024);
		say("header", "version %d, its source %d, destination %d, class %#x",
			buf[1044] >> 4, memcmp(buf + 1024 + 32, own_gid.raw + 12, 4) == 0,
			memcmp(buf + 1024 + 36, own_gid.raw + 12, 4) == 0, buf[1024 + 21]);
		say("data", "%c%c", buf[1024 + GRH], buf[1024 + GRH + 99]);
		rc = ibv_init_ah_from_wc(ctx, 1, &wc, grh, &back);
		say_rc("way back", rc);
		say("way back", "%d %d %d %d", back.is_global,
			memcmp(&back.grh.dgid, &own_gid, 16) == 0, back.grh.sgid_index == own_index,
			back.port_num);
		say_ptr("AH from it", ibv_create_ah_from_wc(pd, &wc, grh, 1));
	}
}

/* Sends a datagram that is lost: the send succeeds, and the receiver gets no completion. */
static void
lost(const char *what, uint32_t qpn, uint32_t qkey, uint32_t len)
{
	say_rc(what, send_to(qpn, qkey, len, 0));
	say_wcs(what, cq, 1);
	say_none(what, cq);
	say(what, "%s %s", state_name(state_of(qp[0])), state_name(state_of(qp[1])));
}

static void
datagrams_lost(void)
{
	connect_ud();
	lost("without a receive", qp[1]->qp_num, QKEY, 8);
	MUST(post_recv(qp[1], 2, 1024, GRH + 8) == 0);
	lost("with a wrong Q_Key", qp[1]->qp_num, QKEY + 1, 8);
	lost("to nobody", 0xfffffe, QKEY, 8);
	say_rc("with a Q_Key of the queue pair's", send_to(qp[1]->qp_num, 0x80000001, 8, 0));
	say_wcs("with a Q_Key of the queue pair's", cq, 1);
	say_none("with a Q_Key of the queue pair's", cq);
}

static void
datagram_own_qkey(void)
{
	struct ibv_qp_attr a;

	connect_ud();
	a = full_attr(IBV_QPS_RTS, 0);
	a.qkey = 0x80000001;
	say_rc("a privileged Q_Key", ibv_modify_qp(qp[0], &a, IBV_QP_QKEY));
}

static void
datagram_short(void)
{
	connect_ud();
	MUST(post_recv(qp[1], 2, 1024, 10) == 0);
	MUST(post_recv(qp[1], 3, 1024, GRH + 64) == 0);
	say_rc("longer than the receive", send_to(qp[1]->qp_num, QKEY, 8, 0));
	say_wcs("longer than the receive", cq, 1);
	say_none("then", cq);
	say("then", "%s %s", state_name(state_of(qp[0])), state_name(state_of(qp[1])));
}

static void
datagram_wrong(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr, *bad;

	connect_ud();
	sge = piece(0, 8);
	wr = send_wr(IBV_WR_RDMA_WRITE, 1, &sge);
	say("WRITE", "%d", ibv_post_send(qp[0], &wr, &bad) != 0);
	wr = send_wr(IBV_WR_RDMA_READ, 1, &sge);
	say("READ", "%d", ibv_post_send(qp[0], &wr, &bad) != 0);
	say("after it", "%s", state_name(state_of(qp[0])));
	sge.lkey ^= 0x5500;
	wr = send_wr(IBV_WR_SEND, 1, &sge);
	wr.wr.ud.ah = way;
	wr.wr.ud.remote_qpn = qp[1]->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	say_rc("a wrong key", ibv_post_send(qp[0], &wr, &bad));
	say_wcs("a wrong key", cq, 1);
	say("after it", "%s", state_name(state_of(qp[0])));
}

static void
groups(void)
{
	union ibv_gid group = {.raw = {[10] = 0xff, [11] = 0xff, 239, 1, 2, 3}}, other = group;
	struct ibv_qp *rc;
	struct ibv_ah_attr attr;

	connect_ud();
	rc = make_qp(IBV_QPT_RC);
	other.raw[15] = 4;
	say_rc("joined", ibv_attach_mcast(qp[1], &group, 0));
	say_rc("joined twice", ibv_attach_mcast(qp[1], &group, 0));
	say_rc("left another", ibv_detach_mcast(qp[1], &other, 0));
	say_rc("not a group", ibv_attach_mcast(qp[1], &own_gid, 0));
	say_rc("RC", ibv_attach_mcast(rc, &group, 0));
	attr = full_attr(IBV_QPS_RTR, 0).ah_attr;
	attr.grh.dgid = group;
	way = ibv_create_ah(pd, &attr);
	say_ptr("AH of the group", way);
	say_rc("left", ibv_detach_mcast(qp[1], &group, 0));
	say_rc("left twice", ibv_detach_mcast(qp[1], &group, 0));
}

const struct same_case ud_cases[] = {
	{"datagram", datagram},
	{"datagrams lost", datagrams_lost},
	{"privileged Q_Key", datagram_own_qkey},
	{"datagram too long", datagram_short},
	{"wrong datagrams", datagram_wrong},
	{"groups", groups},
	{0},
};
