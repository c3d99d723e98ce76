/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Path migration (G1 to G6): some connections have a second path.  When both ends are armed, the
 * first path fails for ever, or one of the programs migrates.  No request may be lost, executed
 * twice or fail: the other files check that as usual.  This file checks:
 *
 *   - MigReq is 0 before an end has migrated, and 1 from then on;
 *   - an end migrates once, and only for a reason: its program, the failure of the path, or links
 *     that lose so much that retries are exhausted;
 *   - from then on it sends only over the other path (wire.c).
 */
#include "karst_opcode.h"
#include "sim.h"

#define ALTERNATE 0x40u /* of the third byte of an IPv4 address, the last but one of IPv6 */

void
sim_paths_config(struct sim *s, struct sim_pair *p)
{
	bool by_address = s->congestion.mode != KARST_CONGESTION_OFF &&
		s->congestion.np.cnp_scope == KARST_CNP_ADDRESS;
	/* not drawn, so that recorded seeds still give the same schedules */
	uint64_t x = sim_mix(s->seed * SIM_MAX_PAIRS + p->idx + 0x706174687300ull);

	p->cut_ns = UINT64_MAX;
	/* with that scope the simulator counts intervals between CNPs by node, not by address */
	p->two_paths = p->type == KARST_QPT_RC && !p->xrc && p->fault == FAULT_NONE &&
		!by_address && x % 4 == 0;
}

void
sim_paths_draw(struct sim_ep *ep)
{
	struct karst_path *alt = &ep->paths[1];

	*alt = ep->paths[0] = ep->path;
	alt->src_ip[14] ^= ALTERNATE;
	alt->dst_ip[14] ^= ALTERNATE;
	alt->src_mac[4] ^= ALTERNATE;
	alt->dst_mac[4] ^= ALTERNATE;
}

void
sim_paths_reset(struct sim_ep *ep)
{
	ep->path = ep->paths[0];
	ep->migrations = 0;
	ep->pair->cut_ns = UINT64_MAX;
	ep->pair->moved = false;
}

unsigned int
sim_paths_attr(struct sim_ep *ep, struct karst_core_qp_attr *a)
{
	if (!ep->pair->two_paths)
		return 0;
	if (ep->alternate_mem == NULL)
		ep->alternate_mem = sim_alloc(ep->s, karst_qp_alternate_bytes());
	a->alt_path = ep->paths[1];
	a->alt_port_num = 1;
	a->alt_timeout = ep->timeout;
	a->alternate_mem = ep->alternate_mem;
	a->path_mig_state = KARST_MIG_REARM;
	return KARST_QP_ALT_PATH;
}

static bool
is_armed(const struct sim_ep *ep)
{
	struct karst_core_qp_attr a;

	if (ep->state != EP_LIVE || karst_qp_state(ep->qp) != KARST_QPS_RTS)
		return false;
	karst_qp_query(ep->qp, &a);
	return a.path_mig_state == KARST_MIG_ARMED;
}

static void
go_over(struct sim_ep *ep)
{
	const struct karst_core_qp_attr a = {.path_mig_state = KARST_MIG_MIGRATED};
	int rc;

	ep->pair->moved = true;
	ep->core->core->now_ns = ep->s->now_ns;
	rc = karst_qp_modify(ep->core->core, ep->qp, &a, KARST_QP_PATH_MIG_STATE);
	if (rc != 0)
		sim_fail(ep->s, "pair %u, QP %#x: MIGRATED while armed: %d", ep->pair->idx, ep->qpn,
			rc);
}

void
sim_paths_strike(struct sim_ep *ep)
{
	struct sim *s = ep->s;
	struct sim_pair *p = ep->pair;

	bool no_clock = p->ep[0].timeout == 0 || p->ep[1].timeout == 0;

	if (!p->two_paths || p->cut_ns != UINT64_MAX || p->moved || s->finishing ||
		!rng_one_in(&s->paths, 12) || !is_armed(&p->ep[0]) || !is_armed(&p->ep[1]))
		return;
	/* the peer would ignore the SACK that reports the migration, and nothing is sent again that
	 * could report it */
	if (no_clock && (p->repeats == 1 || p->repeats == 2))
		return;
	/* without a timeout an end would not detect losses */
	if (rng_one_in(&s->paths, 3) || no_clock) {
		sim_note(s, "pair %u, QP %#x goes over to its other path", p->idx, ep->qpn);
		go_over(ep);
	} else {
		sim_note(s, "pair %u: its first path dies", p->idx);
		p->cut_ns = s->now_ns;
	}
}

bool
sim_paths_dead(const struct sim *s, const struct sim_pair *p, const struct karst_pkt *pkt)
{
	const uint8_t *l3 = pkt->data + karst_pkt_l3_off(pkt);
	const struct karst_path *alt = &p->ep[0].paths[1];

	if (s->now_ns < p->cut_ns)
		return false;
	/* in this byte, source and destination have the same bit for the path */
	return ((alt->ip6 ? l3[24 + 14] : l3[16 + 2]) ^ alt->dst_ip[14]) & ALTERNATE;
}

void
sim_paths_sent(struct sim *s, struct sim_core *c, struct sim_ep *ep, const struct karst_pkt *p)
{
	bool want = c->core->bth_flags != 0;

	if (ep->pair->two_paths)
		want = ep->migrations != 0;
	if (((p->flags & KARST_PKT_MIGREQ) != 0) != want)
		sim_fail(s, "pair %u, QP %#x: MigReq is %d (G1)", ep->pair->idx, ep->qpn, !want);
}

/* A mark from before the migration may be answered after it. */
const struct karst_path *
sim_paths_of_cnp(const struct sim_ep *ep, const struct karst_pkt *p)
{
	const uint8_t *l3 = p->data + karst_pkt_l3_off(p);
	const uint8_t *at = l3 + (p->flags & KARST_PKT_IP6 ? 24 + 14 : 16 + 2);

	/* or after RESET */
	if (ep->migrations == 0 && ep->cnps_stale == 0)
		return &ep->path;
	return &ep->paths[*at != ep->paths[0].dst_ip[14]];
}

bool
sim_paths_may_take(const struct sim_ep *ep, const struct karst_pkt *p)
{
	const uint8_t *l3 = p->data + karst_pkt_l3_off(p);
	const uint8_t at = l3[p->flags & KARST_PKT_IP6 ? 24 + 14 : 16 + 2];

	return !ep->pair->two_paths || ((at ^ ep->path.src_ip[14]) & ALTERNATE) == 0 ||
		(ep->migrations == 0 && (p->flags & KARST_PKT_MIGREQ) != 0);
}

bool
sim_paths_to(const struct sim_node *n, const uint8_t *ip, bool ip6)
{
	uint8_t is[16];

	memcpy(is, ip6 ? n->ip6 : n->ip4, 16);
	if (memcmp(ip, is + (ip6 ? 0 : 12), ip6 ? 16 : 4) == 0)
		return true;
	is[14] ^= ALTERNATE;
	return memcmp(ip, is + (ip6 ? 0 : 12), ip6 ? 16 : 4) == 0;
}

void
sim_paths_event(struct sim *s, struct sim_ep *ep)
{
	struct sim_pair *p = ep->pair;

	if (!p->two_paths || ep->migrations != 0)
		sim_fail(s, "pair %u, QP %#x: migrates for the %uth time (G6)", p->idx, ep->qpn,
			ep->migrations + 1);
	if (p->cut_ns == UINT64_MAX && !p->moved && !s->lossy && !s->jumbled && !s->paused &&
		!p->broken)
		sim_fail(s, "pair %u, QP %#x: migrates without a reason (G4)", p->idx, ep->qpn);
	ep->migrations = 1;
	ep->path = ep->paths[1];
	/* retries start again (G4), and the packets in flight are lost */
	ep->tries = 0;
	s->migrated = true;
	s->stats.migrations++;
}
