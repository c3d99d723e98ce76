/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Automatic path migration (rules G): a connection has a second path, and migrates to it when the
 * first fails, or when the program or the peer demands it.
 *
 *               program: REARM             packet with MigReq 0
 *   MIGRATED ------------------> REARM ------------------------> ARMED
 *      ^                           |                               |
 *      +---------------------------+-------------------------------+
 *     peer: MigReq 1 over the alternate path; ARMED only: retries exhausted, program
 *
 * A queue pair that migrates sets MigReq to 1 in all that it sends from then on, over the new path;
 * in REARM and ARMED the bit is 0.  To inform the peer at once, it repeats its last
 * acknowledgement.  It also goes back to the oldest packet that is not acknowledged, since what was
 * under way over the old path is lost.
 *
 * A migration uses up the alternate path: there is none until the program loads another one.  Only
 * the program can end the state MIGRATED, so whatever a peer sends causes at most one migration for
 * each REARM.
 *
 * In ARMED there is no extra cost: packets of the primary path are processed as usual, and those of
 * the alternate one do not match, which is where this file begins.  In REARM, and if both paths
 * have the same addresses, all packets are treated as mismatches (KARST_QP_WATCHES).
 */
#include "migrate.h"

#include <errno.h>

#include "karst_psn.h"
#include "pacer.h"
#include "probe.h"
#include "repeat.h"

/* Limit of what a peer that goes back sends again: what may be unacknowledged (P2). */
#define REPEATED_MAX (1u << 22)

static enum karst_mig_state
state_of(const struct karst_core_qp *qp)
{
	return qp->alternate != NULL ? (enum karst_mig_state)qp->alternate->state
				     : KARST_MIG_MIGRATED;
}

size_t
karst_qp_alternate_bytes(void)
{
	return sizeof(struct karst_alternate);
}

uint8_t
karst_migrate_bth_flags(const struct karst_core *core, const struct karst_core_qp *qp)
{
	const struct karst_alternate *alt = qp->alternate;

	if (alt == NULL)
		return core->bth_flags;
	if (alt->state != KARST_MIG_MIGRATED)
		return 0;
	/* this must be signalled, whatever is configured (W2) */
	return alt->migrated && !karst_mutant(KARST_MUTANT_MIGRATE_SILENT) ? KARST_BTH_MIGREQ
									   : core->bth_flags;
}

static bool
same_addresses(const struct karst_path *a, const struct karst_path *b)
{
	return a->ip6 == b->ip6 && memcmp(a->src_ip, b->src_ip, 16) == 0 &&
		memcmp(a->dst_ip, b->dst_ip, 16) == 0;
}

bool
karst_migrate_watches(const struct karst_core_qp *qp)
{
	return state_of(qp) == KARST_MIG_REARM ||
		(state_of(qp) == KARST_MIG_ARMED &&
			same_addresses(&qp->path, &qp->alternate->path));
}

/* The state has changed, and the path has not. */
static void
renew_bits(const struct karst_core *core, struct karst_core_qp *qp)
{
	qp->tmpl.bth_flags = karst_migrate_bth_flags(core, qp);
	karst_qp_renew_watch(qp);
}

/* --- migrating --- */

/* Sends the last acknowledgement again. */
static void
repeat_ack(struct karst_core *core, struct karst_core_qp *qp)
{
	if (qp->type == KARST_QPT_RC || qp->type == KARST_QPT_XRC_RECV)
		karst_responder_owe_ack(core, qp);
}

static void
requester_migrate(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_requester *r = &qp->req;

	r->timeout = qp->alternate->timeout;
	r->rto_ns = r->timeout != 0 ? 4096ull << r->timeout : 0; /* Q6 */
	r->retry_left = r->retry_cnt;
	qp->alternate->left = r->timeout == 0 && r->una_psn != r->nxt_psn;
	qp->alternate->left_psn = r->nxt_psn;
	/* measurements belong to the old path */
	qp->probe.rtt_ns = 0;
	karst_probe_forget(r);
	if (!karst_qp_may_send(qp) || (r->flags & KARST_REQ_RNR_WAIT))
		return;
	if (r->una_psn != r->nxt_psn)
		karst_requester_rewind(core, qp);
	karst_requester_retime(core, qp);
}

static void
migrate(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_alternate *alt = qp->alternate;

	qp->path = alt->path;
	qp->port = alt->path.port;
	qp->port_num = alt->port_num;
	alt->state = KARST_MIG_MIGRATED;
	alt->loaded = false;
	alt->migrated = true;
	karst_qp_renew_template(core, qp);
	/* it may be parked at the port of the old path, which may never accept frames again */
	karst_sched_unpark(core, qp);
	karst_event(core, KARST_EVENT_PATH_MIG, qp);
	karst_pacer_another_path(core, qp);
	if (karst_qp_reliable(qp)) {
		requester_migrate(core, qp);
		repeat_ack(core, qp);
	}
	karst_core_activate(core, qp);
}

bool
karst_migrate_still_left(struct karst_core_qp *qp)
{
	struct karst_alternate *alt = qp->alternate;

	alt->left = karst_psn_diff(qp->req.una_psn, alt->left_psn) < 0;
	return alt->left;
}

bool
karst_migrate_instead(struct karst_core *core, struct karst_core_qp *qp)
{
	if (state_of(qp) != KARST_MIG_ARMED || karst_mutant(KARST_MUTANT_NO_MIGRATION))
		return false;
	migrate(core, qp);
	return true;
}

/* --- received packets --- */

static bool
is_of_alternate(const struct karst_path *path, const struct karst_pkt *pkt)
{
	const uint8_t *l3 = pkt->data + karst_pkt_l3_off(pkt);

	if (path->ip6 != ((pkt->flags & KARST_PKT_IP6) != 0))
		return false;
	if (path->ip6)
		return memcmp(karst_ip6_src(l3), path->dst_ip, 16) == 0 &&
			memcmp(karst_ip6_dst(l3), path->src_ip, 16) == 0;
	return memcmp(karst_ip4_src(l3), path->dst_ip + 12, 4) == 0 &&
		memcmp(karst_ip4_dst(l3), path->src_ip + 12, 4) == 0;
}

/* Whether the peer may send this packet when it goes back to what was not acknowledged, or repeats
 * its last acknowledgement.  A forged packet does not always meet this. */
static bool
peer_may_send(const struct karst_core_qp *qp, const struct karst_pkt *pkt)
{
	const struct karst_requester *r = &qp->req;

	if (qp->type == KARST_QPT_UC)
		return true;
	if (karst_opcode_flags(pkt->opcode) & KARST_OPF_REQUEST)
		return karst_psn_distance(qp->rsp.epsn, pkt->psn) <= REPEATED_MAX;
	/* what is outstanding; and an acknowledgement of what precedes READs at the end (L12) */
	return karst_psn_distance(pkt->psn, r->una_psn) <
		karst_psn_distance(r->nxt_psn, r->una_psn) ||
		((pkt->opcode & KARST_OPERATION_MASK) == KARST_OPERATION_ACK &&
			karst_psn_distance(r->una_psn - 1, pkt->psn) <= REPEATED_MAX);
}

bool
karst_migrate_heard(struct karst_core *core, struct karst_core_qp *qp, const struct karst_pkt *pkt,
	bool primary)
{
	struct karst_alternate *alt = qp->alternate;
	bool asks = (pkt->flags & KARST_PKT_MIGREQ) != 0;

	/* E3: in a CNP the bit means nothing */
	if (state_of(qp) == KARST_MIG_MIGRATED || pkt->opcode == KARST_CNP)
		return primary;
	if (asks && is_of_alternate(&alt->path, pkt) && peer_may_send(qp, pkt)) {
		migrate(core, qp);
		return true;
	}
	if (!asks && primary && alt->state == KARST_MIG_REARM) {
		alt->state = KARST_MIG_ARMED;
		karst_qp_renew_watch(qp);
	}
	return primary || karst_mutant(KARST_MUTANT_ANY_ADDRESS);
}

/* --- the program --- */

int
karst_migrate_check(
	const struct karst_core_qp *qp, const struct karst_core_qp_attr *a, unsigned int mask)
{
	bool loads = (mask & KARST_QP_ALT_PATH) != 0;
	bool loaded = loads || (qp->alternate != NULL && qp->alternate->loaded);
	enum karst_mig_state now = state_of(qp);

	if (loads && a->alternate_mem == NULL)
		return -EINVAL;
	if (!(mask & KARST_QP_PATH_MIG_STATE))
		return loads && now != KARST_MIG_MIGRATED ? -EINVAL : 0;
	if (a->path_mig_state == KARST_MIG_REARM)
		return loaded ? 0 : -EINVAL;
	if (a->path_mig_state != KARST_MIG_MIGRATED || now == KARST_MIG_REARM)
		return -EINVAL;
	return loads && now != KARST_MIG_MIGRATED ? -EINVAL : 0;
}

void
karst_migrate_modify(struct karst_core *core, struct karst_core_qp *qp,
	const struct karst_core_qp_attr *a, unsigned int mask)
{
	struct karst_alternate *alt = qp->alternate;

	if (mask & KARST_QP_ALT_PATH) {
		if (alt == NULL)
			memset(a->alternate_mem, 0, sizeof(*alt));
		alt = qp->alternate = a->alternate_mem;
		alt->path = a->alt_path;
		alt->port_num = a->alt_port_num;
		alt->timeout = a->alt_timeout;
		alt->loaded = true;
	}
	if (!(mask & KARST_QP_PATH_MIG_STATE) || alt == NULL)
		return;
	if (a->path_mig_state == KARST_MIG_REARM) {
		alt->state = KARST_MIG_REARM;
		renew_bits(core, qp);
	} else if (alt->state == KARST_MIG_ARMED) {
		migrate(core, qp);
	}
}

void
karst_migrate_reset(struct karst_core_qp *qp)
{
	struct karst_alternate *alt = qp->alternate;

	if (alt != NULL)
		memset(alt, 0, sizeof(*alt));
}

void
karst_qp_alternate_lost(struct karst_core *core, struct karst_core_qp *qp)
{
	struct karst_alternate *alt = qp->alternate;

	if (alt == NULL || !alt->loaded)
		return;
	alt->loaded = false;
	if (alt->state == KARST_MIG_MIGRATED)
		return;
	alt->state = KARST_MIG_MIGRATED;
	renew_bits(core, qp);
	karst_event(core, KARST_EVENT_PATH_MIG_ERR, qp);
}

const struct karst_path *
karst_qp_alternate(const struct karst_core_qp *qp)
{
	return qp->alternate != NULL && qp->alternate->loaded ? &qp->alternate->path : NULL;
}
