/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The notification point: when a packet arrives that the network has marked "congestion
 * experienced", its sender is informed by a CNP (E3, E4).
 *
 * The core, not the queue pair, keeps the CNPs to send: their headers are built when the mark is
 * received, and wait in a small ring until any queue pair of the core is visited.  So visits test
 * only one more counter, and queue pairs have no more hot state.  The queue pair that received the
 * mark is put on the list, so that there is a visit.
 *
 * All of this is bounded: if the ring is full, the CNP is not sent; the next mark is answered
 * instead.
 */
#include "notify.h"

#include "frame.h"
#include "pacer.h"

#define CNP_PAYLOAD 16u /* reserved, zeros */

/* So many addresses that fall into one set of the table are kept apart. */
#define ADDR_WAYS 4u
#define ADDR_SETS 64u
#define PORTS     64u
/* Limit of CNPs that wait for a visit. */
#define OWED_MAX 64u

struct addr_slot {
	uint8_t ip[16];
	uint64_t next_ns; /* no CNP is sent before that */
};

struct karst_np {
	struct karst_np_params p;
	uint64_t gap_ns;
	uint32_t head; /* of owed[], a ring that holds core->ncnps of them */
	struct karst_tmpl owed[OWED_MAX];
	uint64_t port_next_ns[PORTS];
	struct addr_slot addr[ADDR_SETS][ADDR_WAYS];
};

size_t
karst_np_bytes(void)
{
	return sizeof(struct karst_np);
}

void
karst_np_init(struct karst_np *np, const struct karst_np_params *p)
{
	np->p = *p;
	np->gap_ns = p->min_time_between_cnps * 1000ull;
}

/* --- the interval --- */

/* The slot of an address, or the one of its set that may be replaced first; NULL: none may be,
 * because the intervals of all its addresses are not over. */
static uint64_t *
addr_next(struct karst_np *np, const uint8_t ip[16], uint64_t now_ns)
{
	uint32_t h = 0, i;
	struct addr_slot *set, *oldest;

	for (i = 0; i < 16; i++)
		h = (h ^ ip[i]) * 0x01000193u;
	set = np->addr[(h ^ h >> 16) % ADDR_SETS];
	oldest = set;
	for (i = 0; i < ADDR_WAYS; i++) {
		if (memcmp(set[i].ip, ip, 16) == 0)
			return &set[i].next_ns;
		if (set[i].next_ns < oldest->next_ns)
			oldest = &set[i];
	}
	if (oldest->next_ns > now_ns)
		return NULL;
	memcpy(oldest->ip, ip, 16);
	return &oldest->next_ns;
}

/* Converts an address of a packet to the form in a path. */
static void
put_ip(const struct karst_pkt *pkt, const uint8_t *from, uint8_t ip[16])
{
	if (pkt->flags & KARST_PKT_IP6) {
		memcpy(ip, from, 16);
		return;
	}
	memset(ip, 0, 10);
	memset(ip + 10, 0xff, 2);
	memcpy(ip + 12, from, 4);
}

static void
source_of(const struct karst_pkt *pkt, uint8_t ip[16])
{
	const uint8_t *l3 = pkt->data + karst_pkt_l3_off(pkt);

	put_ip(pkt, pkt->flags & KARST_PKT_IP6 ? karst_ip6_src(l3) : karst_ip4_src(l3), ip);
}

/* E4: where the earliest time of the next CNP is kept, for the set of packets that this one is
 * in. */
static uint64_t *
next_of(struct karst_core *core, struct karst_core_qp *qp, const struct karst_pkt *pkt)
{
	uint8_t ip[16];

	switch (core->np->p.cnp_scope) {
	case KARST_CNP_ADDRESS:
		source_of(pkt, ip);
		return addr_next(core->np, ip, core->now_ns);
	case KARST_CNP_PORT:
		return &core->np->port_next_ns[pkt->port % PORTS];
	default:
		return &qp->cnp_next_ns;
	}
}

/* --- what is answered, and by which headers --- */

/* E4: data is answered.  An acknowledgement is not, since its sender cannot send fewer of them.  A
 * datagram is answered if the Q_Key matches, and if it was not sent to a group: the CNP would have
 * the group's address as its source. */
static bool
is_answered(const struct karst_core_qp *qp, const struct karst_pkt *pkt)
{
	uint32_t opf = karst_opcode_flags(pkt->opcode);

	if (qp->type == KARST_QPT_UD)
		return pkt->qkey == qp->qkey && ((pkt->data[0] | pkt->data[6]) & 1) == 0;
	return (opf & KARST_OPF_REQUEST) != 0 || (opf & KARST_OPF_READ) != 0;
}

/* The return path of a datagram. */
static void
path_back(const struct karst_pkt *pkt, struct karst_path *path)
{
	const uint8_t *l3 = pkt->data + karst_pkt_l3_off(pkt);

	memset(path, 0, sizeof(*path));
	memcpy(path->dst_mac, pkt->data + 6, 6);
	memcpy(path->src_mac, pkt->data, 6);
	path->port = pkt->port;
	path->ip6 = (pkt->flags & KARST_PKT_IP6) != 0;
	path->has_vlan = (pkt->flags & KARST_PKT_VLAN) != 0;
	if (path->has_vlan)
		path->vlan_tci = karst_get_be16(pkt->data + 14);
	source_of(pkt, path->dst_ip);
	put_ip(pkt, path->ip6 ? karst_ip6_dst(l3) : karst_ip4_dst(l3), path->src_ip);
}

/* E3: never ECT, or a mark on a CNP would cause another CNP. */
static void
owe(struct karst_core *core, struct karst_core_qp *qp, struct karst_path *path, uint32_t dqpn)
{
	struct karst_np *np = core->np;
	uint8_t tclass = (uint8_t)(np->p.cnp_dscp << 2);

	if (karst_mutant(KARST_MUTANT_CNP_ECT))
		tclass |= KARST_ECN_ECT0;
	if (karst_mutant(KARST_MUTANT_CNP_TO_SELF))
		dqpn = qp->qpn;
	path->vlan_tci = (uint16_t)((path->vlan_tci & 0x1fff) | np->p.cnp_802p_prio << 13);
	karst_tmpl_init(&np->owed[(np->head + core->ncnps) % OWED_MAX], path, tclass, qp->qpn, dqpn,
		qp->pkey);
	core->ncnps++;
	karst_core_activate(core, qp);
}

karst_noinline void
karst_np_marked(struct karst_core *core, struct karst_core_qp *qp, const struct karst_pkt *pkt)
{
	bool ud = qp->type == KARST_QPT_UD;
	struct karst_path path;
	uint64_t *next;

	karst_count(&core->counters, KARST_CTR_NP_ECN_MARKED);
	if (core->np == NULL)
		return;
	if (!is_answered(qp, pkt) && !karst_mutant(KARST_MUTANT_CNP_FOR_ACK))
		return;
	next = next_of(core, qp, pkt);
	if (next == NULL || core->ncnps == OWED_MAX)
		return;
	if (core->now_ns < *next && !karst_mutant(KARST_MUTANT_CNP_FLOOD))
		return;
	*next = core->now_ns + core->np->gap_ns;
	if (ud)
		path_back(pkt, &path);
	else
		path = qp->path;
	if (!karst_mutant(KARST_MUTANT_NO_CNP))
		owe(core, qp, &path, ud ? pkt->src_qpn : qp->dest_qpn);
}

/* --- sending --- */

/* E3: reserved bytes are zeros, MigReq is 0 whatever other packets have, the PSN is 0. */
static void
build_cnp(struct karst_core *core, const struct karst_tmpl *t, struct karst_tx_burst *b)
{
	uint8_t *p = karst_frame_open(b, t), *bth = p - KARST_BTH_LEN;
	struct karst_pkt *pkt = b->pkts[b->n];

	/* the frame builder treats these as headers, a parser as payload */
	memset(p, 0, CNP_PAYLOAD);
	karst_frame_close(b, t, p + CNP_PAYLOAD, KARST_CNP, 0, false, 0, 0);
	pkt->pay_off = (uint8_t)(pkt->pay_off - CNP_PAYLOAD);
	pkt->pay_len = CNP_PAYLOAD;
	bth[1] = 0;
	bth[4] = KARST_BTH_BECN;
	karst_count(&core->counters, KARST_CTR_NP_CNP_SENT);
}

karst_noinline void
karst_np_tx(struct karst_core *core, struct karst_tx_burst *b)
{
	struct karst_np *np = core->np;
	uint32_t n = b->n, bytes = b->bytes;

	while (core->ncnps != 0 && karst_frame_room(b, 0)) {
		build_cnp(core, &np->owed[np->head], b);
		np->head = (np->head + 1) % OWED_MAX;
		core->ncnps--;
	}
	karst_count_n(&core->counters, KARST_CTR_TX_PACKETS, b->n - n);
	karst_count_n(&core->counters, KARST_CTR_TX_BYTES, b->bytes - bytes);
}

/* --- received CNPs --- */

karst_noinline enum karst_drop
karst_cnp_rx(struct karst_core *core, struct karst_core_qp *qp, const struct karst_pkt *pkt,
	enum karst_drop drop)
{
	/* if the port is latched, the address was checked again */
	if (drop == KARST_DROP_NONE)
		drop = KARST_DROP_CNP;
	if (pkt->flags & KARST_PKT_CE)
		karst_count(&core->counters, KARST_CTR_NP_ECN_MARKED);
	if (drop == KARST_DROP_CNP && (pkt->flags & KARST_PKT_BECN) && karst_pacer_cnp(core, qp))
		karst_count(&core->counters, KARST_CTR_RP_CNP_HANDLED);
	else
		karst_count(&core->counters, KARST_CTR_RP_CNP_IGNORED);
	return drop;
}
