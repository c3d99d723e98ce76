/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Sends MADs: the caller's thread builds the frames, with the slow and general builder, and the
 * home lcore of the port puts them into its queue.
 */
#include "gsi.h"

#include "karst_build.h"
#include "karst_crc.h"
#include "karst_hdr.h"
#include "karst_icrc.h"
#include "karst_opcode.h"
#include "port.h"

/* W1 without a flow label, for QP 1 to QP 1 */
#define GSI_UDP_SPORT 0xc001u

/* Frames for the ports of one home lcore, or of all. */
struct burst {
	unsigned int n;
	uint8_t port[ENG_GSI_BURST]; /* or its loopback port */
	struct rte_mbuf *m[ENG_GSI_BURST];
};

static void
mad_describe(struct eng_gsi *g, const struct eng_gsi_out *out, struct karst_frame *f)
{
	const struct karst_path *path = &out->path;
	unsigned int skip = path->ip6 ? 0 : 12;

	*f = (struct karst_frame){
		.vlan = path->has_vlan,
		.vlan_tci = path->vlan_tci,
		.ip6 = path->ip6,
		.tclass = karst_path_tclass(path),
		.ttl = path->hop_limit != 0 ? path->hop_limit : 64,
		/* L1: never 0 */
		.ip_id = g->ip_id = g->ip_id == UINT16_MAX ? 1 : (uint16_t)(g->ip_id + 1),
		.ip_frag = 0x4000,
		.flow_label = path->flow_label,
		.sport = GSI_UDP_SPORT,
		.dport = KARST_ROCE_UDP_PORT,
		.ib = {.opcode = KARST_UD_SEND_ONLY,
			/* L1: AckReq is set in MADs, although nothing acknowledges them */
			.ackreq = true,
			.pkey = ENG_GSI_PKEY,
			.dqpn = ENG_GSI_QPN,
			.psn = g->psn++ & 0xffffff,
			.qkey = ENG_GSI_QKEY,
			.src_qpn = ENG_GSI_QPN,
			.pay = out->mad,
			.pay_len = ENG_GSI_MAD_BYTES},
	};
	memcpy(f->dmac, path->dst_mac, sizeof(f->dmac));
	memcpy(f->smac, path->src_mac, sizeof(f->smac));
	memcpy(f->saddr, path->src_ip + skip, 16 - skip);
	memcpy(f->daddr, path->dst_ip + skip, 16 - skip);
}

/* Builds the frame of a MAD in a new buffer; NULL: there is none. */
static struct rte_mbuf *
mad_frame_of(struct karst_engine *e, const struct eng_gsi_out *out)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(e->pool);
	struct karst_frame f;
	uint8_t *data, *l3;
	uint32_t icrc;
	int len;

	if (m == NULL)
		return NULL;
	data = rte_pktmbuf_mtod(m, uint8_t *);
	mad_describe(e->gsi, out, &f);
	len = karst_build_frame(data, rte_pktmbuf_tailroom(m), &f);
	assert(len > 0);
	l3 = data + KARST_ETH_LEN + (f.vlan ? KARST_VLAN_LEN : 0);
	icrc = karst_icrc_rocev2(l3, (size_t)(data + len - l3) - KARST_ICRC_LEN, f.ip6);
	memcpy(data + len - KARST_ICRC_LEN, &icrc, sizeof(icrc));
	m->data_len = (uint16_t)len;
	m->pkt_len = (uint32_t)len;
	return m;
}

static int
gsi_send_on_lcore(struct eng_lcore *lc, void *arg)
{
	struct burst *b = arg;
	unsigned int i, kept = 0;

	for (i = 0; i < b->n; i++) {
		if (lc->e->port[eng_port_base(b->port[i])].home != lc->index) {
			b->port[kept] = b->port[i];
			b->m[kept++] = b->m[i];
			continue;
		}
		eng_tx_frame(lc, b->port[i], b->m[i]);
		karst_count(&lc->core->counters, KARST_CTR_TX_MADS);
	}
	b->n = kept;
	return 0;
}

void
eng_gsi_send(struct karst_engine *e, const struct eng_gsi_out *out, unsigned int n)
{
	struct burst b = {0};
	unsigned int i;

	assert(n <= ENG_GSI_BURST);
	if (eng_ctl_enter(e) != 0)
		return;
	for (i = 0; i < n; i++) {
		uint8_t base = eng_port_base(out[i].path.port);

		/* the port may have been removed meanwhile */
		if (out[i].path.port >= ENG_TXQS || !eng_port_present(e, base))
			continue;
		b.m[b.n] = mad_frame_of(e, &out[i]);
		b.port[b.n] = out[i].path.port;
		b.n += b.m[b.n] != NULL;
	}
	while (b.n > 0)
		eng_mailbox_call(
			&e->lcore[e->port[eng_port_base(b.port[0])].home], gsi_send_on_lcore, &b);
	eng_ctl_leave(e);
}
