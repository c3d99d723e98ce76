/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Congestion: links that mark frames, and checks of the notifications (CNPs) that answer marks.
 *
 * A link marks only ECT frames (E1).  When a marked frame is delivered, it is known whether a CNP
 * is due (E4): this depends on the frame and on the time of the last CNP.  Each CNP that is sent
 * must be due, and at the end no CNP may be due.
 *
 * The parameters of the reaction are drawn so that a queue pair does not recover for a second after
 * a CNP.  So from the first CNP on its rate is at most about half of the highest, and what it sends
 * can be checked without a complete model (E2, E6).
 */
#include "karst_hdr.h"
#include "karst_opcode.h"
#include "sim.h"

/* A queue pair that has received a CNP does not recover before this time. */
#define RESET_US 1000000u
/* How much a queue pair that waited may send above its rate, as time. */
#define LATE_NS 250000u

/* Maximum number of CNPs that wait in a core.  Marks that arrive then are not answered. */
#define KEPT 64u

void
sim_marks_config(struct sim *s)
{
	struct sim_rng *r = &s->marks;

	r->state = sim_mix(s->seed ^ 0x6d61726b73ull);
	karst_congestion_defaults(&s->congestion);
	s->ce_ppm = rng_one_in(r, 3) ? 0 : rng_below(r, 300000);
	if (rng_one_in(r, 2))
		return;
	s->congestion.mode = rng_one_in(r, 2) ? KARST_CONGESTION_NOTIFY : KARST_CONGESTION_DCQCN;
	/* at the lowest rate a frame takes much less time than any timeout */
	s->congestion.rp.rpg_max_rate = rng_log(r, 1000, 20000);
	s->congestion.rp.rpg_min_rate = 500;
	s->congestion.rp.rpg_time_reset = RESET_US;
	s->congestion.rp.rpg_byte_reset = 0;
	s->congestion.rp.rate_reduce_monitor_period = rng_log(r, 1, 1000);
	s->congestion.np.min_time_between_cnps = rng_one_in(r, 3) ? 0 : rng_log(r, 1, 1000);
	/* the simulator does not know which forged frames were answered */
	if (s->profile != SIM_HOSTILE)
		s->congestion.np.cnp_scope = rng_below(r, 3);
	s->congestion.np.cnp_dscp = rng_below(r, 64);
	s->congestion.np.cnp_802p_prio = rng_below(r, 8);
}

/* --- links --- */

/* Sets ECN to CE, and updates the checksum of an IPv4 header. */
void
sim_marks_link(struct sim *s, struct sim_frame *f, const struct karst_pkt *p)
{
	uint8_t *l3 = f->buf + karst_pkt_l3_off(p);
	bool ip6 = (p->flags & KARST_PKT_IP6) != 0;
	uint8_t ecn = ip6 ? l3[1] >> 4 & 3 : l3[1] & 3;
	uint32_t sum = 0, i;

	if (ecn == 0 || ecn == 3 || !rng_ppm(&s->marks, s->ce_ppm))
		return;
	s->stats.marked++;
	if (ip6) {
		l3[1] |= 3 << 4;
		return;
	}
	l3[1] |= 3;
	karst_put_be16(l3 + 10, 0);
	for (i = 0; i < KARST_IP4_LEN; i += 2)
		sum += karst_get_be16(l3 + i);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	karst_put_be16(l3 + 10, (uint16_t)~sum);
}

/* --- what is due --- */

/* For XRC: the index of the queue pair of this end that a packet is for; otherwise 0. */
static uint32_t
half_of(const struct sim_ep *ep, uint32_t qpn)
{
	return ep->target != NULL && qpn == ep->target_qpn;
}

/* Whether the packet was dropped before its mark counts (W9). */
static bool
is_nobodys(enum karst_drop drop)
{
	return drop == KARST_DROP_QP_STATE || drop == KARST_DROP_QP_TYPE ||
		drop == KARST_DROP_PKEY || drop == KARST_DROP_ADDRESS || drop == KARST_DROP_QKEY ||
		drop == KARST_DROP_CNP;
}

static uint64_t *
next_of(struct sim_core *c, struct sim_ep *ep, const struct karst_pkt *p)
{
	switch (c->node->s->congestion.np.cnp_scope) {
	case KARST_CNP_ADDRESS:
		return &c->cnp_next_ns[1 + ep->peer->node->idx][(p->flags & KARST_PKT_IP6) != 0];
	case KARST_CNP_PORT:
		return &c->cnp_next_ns[0][0];
	default:
		return &ep->cnp_next_ns[half_of(ep, p->dqpn)];
	}
}

/* Notes the time of the first CNP that has an effect (E5). */
static void
heard(struct sim *s, struct sim_ep *ep, const struct karst_pkt *p)
{
	uint32_t half = half_of(ep, p->dqpn);

	if (s->congestion.mode != KARST_CONGESTION_DCQCN || ep->pair->type == KARST_QPT_UD ||
		p->drop != KARST_DROP_CNP || ep->slow_ns[half] != 0)
		return;
	ep->slow_ns[half] = s->now_ns;
	ep->slow_bytes[half] = 0;
}

/* Congestion control starts again (G4). */
void
sim_marks_migrated(struct sim_ep *ep)
{
	ep->slow_ns[0] = ep->slow_ns[1] = 0;
}

void
sim_marks_data(struct sim *s, struct sim_ep *ep, const struct karst_pkt *p)
{
	bool answer = (karst_opcode_flags(p->opcode) & KARST_OPF_RESPONSE) != 0;
	uint32_t half = ep->target != NULL && answer;
	uint64_t ns = s->now_ns - ep->slow_ns[half], rate, may;

	if (ep->slow_ns[half] == 0 || (p->opcode & KARST_OPERATION_MASK) == KARST_OPERATION_ACK)
		return;
	if (ns >= RESET_US * 1000ull) {
		ep->slow_ns[half] = UINT64_MAX; /* its rate is not known any more */
		return;
	}
	/* bytes a second: 1 - 1023/2048 of the highest rate, but not less than the lowest */
	rate = karst_max_u64(s->congestion.rp.rpg_max_rate * 62562ull,
		s->congestion.rp.rpg_min_rate * 125000ull);
	may = rate * (ns + LATE_NS) / 1000000000 + 2 * KARST_FRAME_MAX;
	ep->slow_bytes[half] += p->len;
	if (ep->slow_bytes[half] > may)
		sim_fail(s, "QP %#x: %llu bytes %llu ns after a CNP, allowed are %llu (E6)",
			ep->qpn, (unsigned long long)ep->slow_bytes[half], (unsigned long long)ns,
			(unsigned long long)may);
}

void
sim_marks_delivered(struct sim *s, struct sim_core *c, struct sim_ep *ep, const struct karst_pkt *p)
{
	uint32_t opf = karst_opcode_flags(p->opcode);
	uint64_t *next;

	if (p->opcode == KARST_CNP)
		heard(s, ep, p);
	if (!(p->flags & KARST_PKT_CE) || s->congestion.mode == KARST_CONGESTION_OFF ||
		is_nobodys((enum karst_drop)p->drop))
		return;
	if ((opf & (KARST_OPF_REQUEST | KARST_OPF_READ)) == 0)
		return;
	/* a corrupted Ethernet address may be a group address */
	if (ep->pair->type == KARST_QPT_UD && ((p->data[0] | p->data[6]) & 1) != 0)
		return;
	next = next_of(c, ep, p);
	if (s->now_ns < *next || c->cnps_due == KEPT)
		return;
	*next = s->now_ns + s->congestion.np.min_time_between_cnps * 1000ull;
	ep->cnps_due[half_of(ep, p->dqpn)]++;
	c->cnps_due++;
}

/* A datagram is answered to the QPN in its DETH, which may be that of any end of @from. */
void
sim_marks_forged(
	struct sim *s, struct sim_node *from, const struct sim_ep *to, const struct karst_pkt *p)
{
	struct sim_ep *ep;

	if (to->pair->type != KARST_QPT_UD || !(p->flags & KARST_PKT_CE) ||
		s->congestion.mode == KARST_CONGESTION_OFF || is_nobodys((enum karst_drop)p->drop))
		return;
	ep = sim_ep_of(from, p->src_qpn);
	if (ep != NULL)
		ep->cnps_forged++;
}

/* --- what is sent --- */

/* Checks the format of a CNP (E3), except what the parser has checked. */
static void
check_format(struct sim *s, const struct karst_pkt *p)
{
	const struct karst_np_params *np = &s->congestion.np;
	const uint8_t *l3 = p->data + karst_pkt_l3_off(p), *bth = p->data + p->bth_off;
	bool ip6 = (p->flags & KARST_PKT_IP6) != 0;
	uint8_t tclass = ip6 ? karst_ip6_tclass(l3) : karst_ip4_tos(l3);
	static const uint8_t zeros[16];

	if (s->congestion.mode == KARST_CONGESTION_OFF)
		sim_fail(s, "a CNP although congestion control is off (E1)");
	if (tclass != np->cnp_dscp << 2)
		sim_fail(s, "traffic class %#x of a CNP (E3)", tclass);
	if ((p->flags & KARST_PKT_VLAN) && karst_get_be16(p->data + 14) >> 13 != np->cnp_802p_prio)
		sim_fail(s, "VLAN tag %#x of a CNP (E3)", karst_get_be16(p->data + 14));
	if (bth[1] != 0 || p->pkey != 0xffff || bth[4] != KARST_BTH_BECN ||
		karst_get_be32(bth + 8) != 0 || p->pay_len != 16 ||
		memcmp(bth + KARST_BTH_LEN, zeros, 16) != 0)
		sim_fail(s, "bytes of a CNP (E3)");
}

static struct sim_node *
node_of(struct sim *s, const struct karst_pkt *p)
{
	const uint8_t *l3 = p->data + karst_pkt_l3_off(p);
	bool ip6 = (p->flags & KARST_PKT_IP6) != 0;
	uint32_t i;

	for (i = 0; i < s->nnodes; i++) {
		const struct sim_node *n = &s->nodes[i];

		if (sim_paths_to(n, l3 + (ip6 ? 24 : 16), ip6))
			return &s->nodes[i];
	}
	sim_fail(s, "a CNP to nobody's address (E3)");
}

static void
check_path(struct sim *s, const struct sim_ep *ep, const struct karst_pkt *p)
{
	const struct karst_path *path = sim_paths_of_cnp(ep, p);
	const uint8_t *l3 = p->data + karst_pkt_l3_off(p);
	bool ip6 = (p->flags & KARST_PKT_IP6) != 0;

	/* the answer to a datagram uses its Ethernet header, which no ICRC covers */
	bool exact = ep->pair->type != KARST_QPT_UD || !s->lossy;

	if (ip6 != path->ip6 || ((p->flags & KARST_PKT_VLAN) != 0) != path->has_vlan)
		sim_fail(s, "QP %#x: a CNP by another network (E3)", ep->qpn);
	if (exact &&
		((path->has_vlan &&
			 ((karst_get_be16(p->data + 14) ^ path->vlan_tci) & 0x1fff) != 0) ||
			memcmp(p->data, path->dst_mac, 6) != 0 ||
			memcmp(p->data + 6, path->src_mac, 6) != 0))
		sim_fail(s, "QP %#x: a CNP by another path (E3)", ep->qpn);
	if (ip6 ? memcmp(l3 + 8, path->src_ip, 16) || memcmp(l3 + 24, path->dst_ip, 16)
		: memcmp(l3 + 12, path->src_ip + 12, 4) || memcmp(l3 + 16, path->dst_ip + 12, 4))
		sim_fail(s, "QP %#x: a CNP between other addresses (E3)", ep->qpn);
}

struct sim_pair *
sim_marks_sent(struct sim *s, struct sim_core *c, struct sim_frame *f, const struct karst_pkt *p)
{
	struct sim_node *to = node_of(s, p);
	struct sim_ep *peer = sim_ep_of(to, p->dqpn), *ep;
	uint32_t half;

	check_format(s, p);
	f->to = (uint8_t)to->idx;
	s->stats.cnps++;
	c->cnps_due--;
	if (peer == NULL) /* destroyed */
		return NULL;
	ep = peer->peer;
	if (ep->pair->victim)
		return ep->pair;
	/* the target of this end answers packets of the peer's initiator */
	half = ep->target != NULL && p->dqpn == peer->qpn;
	if (peer->cnps_forged != 0 && (ep->core != c || ep->cnps_stale + ep->cnps_due[half] == 0)) {
		peer->cnps_forged--;
		return ep->pair;
	}
	if (ep->core != c)
		sim_fail(s, "a CNP to QP %#x, which is not connected here (E3)", p->dqpn);
	check_path(s, ep, p);
	if (ep->cnps_stale != 0)
		ep->cnps_stale--; /* CNPs wait in order, so the stale ones are sent first */
	else if (ep->cnps_due[half] != 0)
		ep->cnps_due[half]--;
	else
		sim_fail(s, "QP %#x: a CNP to %#x that is not due (E4)", ep->qpn, p->dqpn);
	return ep->pair;
}

void
sim_marks_final(struct sim *s, const struct sim_ep *ep)
{
	/* if the port accepts no frames, its CNPs still wait */
	if (ep->core->shut_ns == 0 && ep->cnps_due[0] + ep->cnps_due[1] != 0)
		sim_fail(s, "pair %u, QP %#x: %u marks were not answered (E4)", ep->pair->idx,
			ep->qpn, ep->cnps_due[0] + ep->cnps_due[1]);
}
