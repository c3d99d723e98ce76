/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Two of the three entry points: a packet arrived; frames may be built.  Packets are checked
 * against their queue pair before any state changes (W9), and dispatched by transport and
 * direction.
 */
#include "migrate.h"
#include "notify.h"
#include "pacer.h"
#include "repeat.h"

/* W9: low 15 bits equal, at least one side a full member. */
static inline bool
pkey_ok(uint16_t a, uint16_t b)
{
	return ((a ^ b) & 0x7fff) == 0 && ((a | b) & 0x8000) != 0;
}

/* W9: RC, UC and XRC packets come from the peer and are for this end.  False also for a QP that
 * latches the peer's port, or watches MigReq: check_address_again() then decides. */
static bool
address_ok(const struct karst_core_qp *qp, const struct karst_pkt *pkt)
{
	const uint8_t *l3 = pkt->data + karst_pkt_l3_off(pkt);
	uint64_t pair;

	if (karst_unlikely(qp->ip6 != (pkt->flags & KARST_PKT_IP6)))
		return false;
	if (qp->ip6)
		return memcmp(karst_ip6_src(l3), qp->path.dst_ip, 16) == 0 &&
			memcmp(karst_ip6_dst(l3), qp->path.src_ip, 16) == 0;
	memcpy(&pair, karst_ip4_src(l3), sizeof(pair)); /* includes the destination */
	return pair == qp->rx_ip4;
}

/* CNPs, and SACKs where they were agreed to; otherwise that opcode is unknown (X1). */
static karst_noinline bool
any_transport(const struct karst_core_qp *qp, const struct karst_pkt *pkt)
{
	return pkt->opcode == KARST_CNP ||
		(pkt->opcode == KARST_SACK && karst_repeat_of(qp) != NULL);
}

static enum karst_drop
packet_check(const struct karst_core_qp *qp, const struct karst_pkt *pkt)
{
	if (karst_unlikely((pkt->opcode & KARST_TRANSPORT_MASK) != karst_qp_transport(qp)) &&
		!any_transport(qp, pkt))
		return pkt->opcode == KARST_SACK ? KARST_DROP_OPCODE : KARST_DROP_QP_TYPE;
	if (karst_unlikely(!karst_qp_may_receive(qp)))
		return KARST_DROP_QP_STATE;
	if (karst_unlikely(!pkey_ok(pkt->pkey, qp->pkey)))
		return KARST_DROP_PKEY;
	if (qp->type != KARST_QPT_UD && karst_unlikely(!address_ok(qp, pkt)))
		return KARST_DROP_ADDRESS;
	return karst_likely(pkt->opcode != KARST_CNP) ? KARST_DROP_NONE : KARST_DROP_CNP;
}

/* Whether the packet is the next request of the peer, or answers what is outstanding. */
static bool
packet_is_expected(const struct karst_core_qp *qp, const struct karst_pkt *pkt)
{
	const struct karst_requester *r = &qp->req;

	if (karst_opcode_flags(pkt->opcode) & KARST_OPF_REQUEST)
		return pkt->psn == qp->rsp.epsn;
	return karst_psn_distance(pkt->psn, r->una_psn) <
		karst_psn_distance(r->nxt_psn, r->una_psn);
}

/* L5: the peer's source port is that of the first packet that only the peer is likely to send. */
static enum karst_drop
check_latched(struct karst_core_qp *qp, const struct karst_pkt *pkt)
{
	uint16_t sport = karst_udp_sport(pkt->data + pkt->bth_off - KARST_UDP_LEN);
	/* X12: a peer that sprays uses ports that differ in these bits */
	uint16_t free = karst_repeat_of(qp) != NULL ? KARST_SPRAY_MAX - 1 : 0;

	if (qp->peer_sport == 0 && pkt->opcode != KARST_CNP && packet_is_expected(qp, pkt))
		qp->peer_sport = sport;
	return qp->peer_sport == 0 || ((qp->peer_sport ^ sport) & ~free) == 0
		? KARST_DROP_NONE
		: KARST_DROP_SOURCE_PORT;
}

/* Checks packets whose addresses are not those of the primary path, or that always need this
 * check. */
static karst_noinline enum karst_drop
check_address_again(struct karst_core *core, struct karst_core_qp *qp, const struct karst_pkt *pkt)
{
	uint8_t odd = qp->ip6 & KARST_QP_ODD;
	enum karst_drop drop;
	bool good;

	if (odd == 0 && qp->alternate == NULL)
		return KARST_DROP_ADDRESS;
	qp->ip6 &= (uint8_t)~KARST_QP_ODD;
	good = address_ok(qp, pkt);
	qp->ip6 |= odd;
	drop = good && (odd & KARST_QP_LATCHES) ? check_latched(qp, pkt)
		: good                          ? KARST_DROP_NONE
						: KARST_DROP_ADDRESS;
	if (qp->alternate == NULL || drop == KARST_DROP_SOURCE_PORT)
		return drop;
	return karst_migrate_heard(core, qp, pkt, good) ? KARST_DROP_NONE : KARST_DROP_ADDRESS;
}

/* Each end of an XRC connection is one half of an RC queue pair. */
static karst_noinline void
rx_xrc(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt)
{
	bool request = (karst_opcode_flags(pkt->opcode) & KARST_OPF_REQUEST) != 0;

	if (request != (qp->type == KARST_QPT_XRC_RECV))
		karst_drop_pkt(core, pkt, KARST_DROP_QP_TYPE);
	else if (request)
		karst_responder_rx(core, qp, pkt);
	else
		karst_requester_rx(core, qp, pkt);
}

static inline void
packet_deliver(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt)
{
	if (qp->type == KARST_QPT_RC) {
		if (karst_opcode_flags(pkt->opcode) & KARST_OPF_REQUEST)
			karst_responder_rx(core, qp, pkt);
		else
			karst_requester_rx(core, qp, pkt);
	} else if (qp->type == KARST_QPT_UC) {
		karst_uc_rx(core, qp, pkt);
	} else if (qp->type != KARST_QPT_UD) {
		rx_xrc(core, qp, pkt);
	} else {
		karst_ud_rx(core, qp, pkt);
	}
}

/* Whether @pkt, which has just been delivered, was parked or held. */
static inline bool
is_parked(const struct karst_core_qp *qp, const struct karst_pkt *pkt)
{
	if (karst_likely(!(qp->flags & KARST_QPF_COPIES)))
		return false;
	return (qp->copy[KARST_COPY_RX] != NULL && qp->copy[KARST_COPY_RX]->pkt == pkt) ||
		(qp->repeat != NULL && karst_repeat_is_fresh(qp->repeat, pkt));
}

static inline bool
packet_accept(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt)
{
	karst_count(&core->counters, KARST_CTR_RX_PACKETS);
	karst_count_n(&core->counters, KARST_CTR_RX_BYTES, pkt->len);
	karst_qp_add(&qp->rx_packets, 1);
	karst_qp_add(&qp->rx_bytes, pkt->len);
	if (karst_unlikely(pkt->flags & KARST_PKT_CE))
		karst_np_marked(core, qp, pkt);
	if (karst_unlikely(qp->flags & KARST_QPF_COPIES) && qp->copy[KARST_COPY_RX] != NULL)
		return karst_copy_queue(core, qp, pkt);
	packet_deliver(core, qp, pkt);
	return is_parked(qp, pkt);
}

/* A separate function, so that the usual case need not save registers for it. */
static karst_noinline bool
rx_odd(struct karst_core *core, struct karst_pkt *pkt, enum karst_drop drop)
{
	if (drop == KARST_DROP_ADDRESS)
		drop = check_address_again(core, pkt->qp, pkt);
	if (pkt->opcode == KARST_CNP)
		drop = karst_cnp_rx(core, pkt->qp, pkt, drop);
	if (drop == KARST_DROP_NONE)
		return packet_accept(core, pkt->qp, pkt);
	karst_drop_pkt(core, pkt, drop);
	return false;
}

bool
karst_qp_rx(struct karst_core *core, struct karst_pkt *pkt)
{
	enum karst_drop drop = packet_check(pkt->qp, pkt);

	if (karst_unlikely(drop != KARST_DROP_NONE))
		return rx_odd(core, pkt, drop);
	return packet_accept(core, pkt->qp, pkt);
}

/* For a mutant: whether the packet would be dropped if it came now. */
static inline bool
is_dropped_now(struct karst_core *core, struct karst_core_qp *qp, const struct karst_pkt *pkt)
{
	enum karst_drop drop = packet_check(qp, pkt);

	if (drop == KARST_DROP_ADDRESS)
		drop = check_address_again(core, qp, pkt);
	return drop != KARST_DROP_NONE;
}

bool
karst_qp_rx_again(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt)
{
	/* Its address was checked when it arrived.  Since then the queue pair may have migrated to
	 * another path, but an atomic whose copy has been made must not be dropped: it would be
	 * executed again when the peer repeats it. */
	if (!karst_qp_may_receive(qp) ||
		(karst_mutant(KARST_MUTANT_OLD_PATH) && is_dropped_now(core, qp, pkt))) {
		karst_drop_pkt(core, pkt, KARST_DROP_QP_STATE);
		return false;
	}
	packet_deliver(core, qp, pkt);
	return is_parked(qp, pkt);
}

/* Whether the half that has just been asked for frames sent nothing, since it got no copy: the
 * other half may need none. */
static inline bool
is_refused(const struct karst_core *core, const struct karst_tx_burst *b, uint32_t bytes)
{
	return core->sched.refused != KARST_NOT_REFUSED && b->bytes == bytes;
}

/* Whether karst_responder_tx() has certainly nothing to do. */
static inline bool
has_no_answers(const struct karst_core_qp *qp)
{
	return qp->rsp.owed == KARST_OWED_NONE && qp->rsp.rsp_cur == qp->rsp.rsp_added &&
		!(qp->flags & KARST_QPF_COPIES);
}

/* Whether karst_requester_tx() has certainly nothing to do: everything has been sent, the program
 * rings for the next request, and there is room, so that no further visit is needed. */
static inline bool
has_no_requests(const struct karst_core_qp *qp, const struct karst_tx_burst *b, uint32_t limit)
{
	const struct karst_requester *r = &qp->req;

	return (r->flags & KARST_REQ_IDLE) && r->snd_idx == r->nxt_idx &&
		!(r->paced | r->probe_due | r->asks) && !(qp->flags & KARST_QPF_COPIES) &&
		b->n < b->max && b->bytes < limit;
}

/*
 * Answers and requests of one QP share its visits by bytes.  The half that goes first and does not
 * finish is charged for what it has sent; while its lead is positive the other half goes first.  A
 * half that has nothing to send loses what it has saved, as in any round robin.
 */
static karst_noinline bool
tx_requests_first(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b, uint32_t limit)
{
	uint32_t bytes = b->bytes;

	if (karst_requester_tx(core, qp, b, limit)) {
		qp->rsp.lead -= (int32_t)(b->bytes - bytes);
		if (karst_unlikely(is_refused(core, b, bytes)) && karst_qp_may_receive(qp))
			(void)karst_responder_tx(core, qp, b, limit);
		return true;
	}
	qp->rsp.lead = 0;
	/* a request may have failed */
	return karst_qp_may_receive(qp) && karst_responder_tx(core, qp, b, limit);
}

static bool
tx_reliable(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b, uint32_t limit)
{
	uint32_t bytes = b->bytes;

	if (karst_unlikely(qp->rsp.lead > 0) && karst_qp_may_receive(qp) &&
		!karst_mutant(KARST_MUTANT_ANSWERS_FIRST))
		return tx_requests_first(core, qp, b, limit);
	if (has_no_answers(qp)) {
		qp->rsp.fatal = false;
	} else if (karst_qp_may_receive(qp) || qp->rsp.fatal) {
		/* in Error, only the NAK that explains it */
		if (karst_unlikely(karst_responder_tx(core, qp, b, limit))) {
			qp->rsp.lead += (int32_t)(b->bytes - bytes);
			if (karst_unlikely(is_refused(core, b, bytes)))
				(void)karst_requester_tx(core, qp, b, limit);
			return true;
		}
		/* payload that is being fetched for answers precedes the NAK */
		if (!karst_copy_busy(qp, KARST_COPY_RSP))
			qp->rsp.fatal = false;
	}
	qp->rsp.lead = 0;
	return !has_no_requests(qp, b, limit) && karst_requester_tx(core, qp, b, limit);
}

bool
karst_qp_tx(struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b,
	uint32_t max_bytes)
{
	uint32_t limit = b->bytes + karst_min_u32(max_bytes, UINT32_MAX - b->bytes);
	uint32_t n, bytes;
	bool more = false;

	if (karst_unlikely(core->ncnps != 0))
		karst_np_tx(core, b);
	if (karst_unlikely(qp->req.paced))
		limit = karst_pacer_limit(core, qp, b, limit);
	n = b->n;
	bytes = b->bytes;
	if (karst_qp_reliable(qp)) {
		more = tx_reliable(core, qp, b, limit);
	} else if (qp->type == KARST_QPT_UC) {
		more = karst_requester_tx(core, qp, b, limit);
	} else {
		more = karst_datagram_tx(core, qp, b, limit);
	}
	if (karst_unlikely(qp->req.paced))
		more = karst_pacer_charge(core, qp, b, n, more);
	if (karst_unlikely(qp->state == KARST_QPS_ERR || qp->state == KARST_QPS_SQE))
		more |= karst_qp_flush(core, qp, b);
	if (karst_unlikely(qp->flags & KARST_QPF_COPIES) && !more)
		karst_qp_unfetch(core, qp);
	more |= core->ncnps != 0; /* there was not room for all */
	karst_count_n(&core->counters, KARST_CTR_TX_PACKETS, b->n - n);
	karst_count_n(&core->counters, KARST_CTR_TX_BYTES, b->bytes - bytes);
	karst_qp_add(&qp->tx_packets, b->n - n);
	karst_qp_add(&qp->tx_bytes, b->bytes - bytes);
	return more;
}

bool
karst_qp_tx_quiet(struct karst_core *core, struct karst_core_qp *qp, struct karst_tx_burst *b)
{
	return (qp->state == KARST_QPS_ERR || qp->state == KARST_QPS_SQE) &&
		!karst_mutant(KARST_MUTANT_FLUSH_WAITS) && karst_qp_flush(core, qp, b);
}

/*
 * With many queue pairs each line below comes from memory, so only lines that are certainly needed
 * are loaded: a queue pair that answers a WRITE needs five lines, and not those of its requests.
 */

static inline void
prefetch_lines(const struct karst_core_qp *qp, const uint16_t *lines, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		__builtin_prefetch((const char *)qp + lines[i]);
}

void
karst_qp_prefetch(const struct karst_core_qp *qp)
{
	static const uint16_t lines[] = {0, offsetof(struct karst_core_qp, req),
		offsetof(struct karst_core_qp, sq), offsetof(struct karst_core_qp, rsp),
		offsetof(struct karst_core_qp, tmpl)};

	prefetch_lines(qp, lines, KARST_DIM(lines));
}

void
karst_qp_prefetch_rx(const struct karst_core_qp *qp, uint8_t opcode)
{
	static const uint16_t request[] = {
		0, offsetof(struct karst_core_qp, sq), offsetof(struct karst_core_qp, rsp)};
	static const uint16_t response[] = {0, offsetof(struct karst_core_qp, req),
		offsetof(struct karst_core_qp, req) + KARST_CACHE_LINE,
		offsetof(struct karst_core_qp, sq)};
	uint32_t opf = karst_opcode_flags(opcode);

	if (opf & KARST_OPF_RESPONSE) {
		prefetch_lines(qp, response, KARST_DIM(response));
		return;
	}
	prefetch_lines(qp, request, KARST_DIM(request));
	/* others need receive work requests, or saved answers */
	if (!(opf & KARST_OPF_WRITE) || (opf & KARST_OPF_IMM))
		__builtin_prefetch((const char *)&qp->rsp + KARST_CACHE_LINE);
}

void
karst_qp_prefetch_send(const struct karst_core_qp *qp)
{
	const struct karst_requester *r = &qp->req;

	/* as have_request() */
	if (r->snd_idx == r->nxt_idx && (r->flags & KARST_REQ_IDLE))
		return;
	__builtin_prefetch((const char *)r + KARST_CACHE_LINE);
	__builtin_prefetch(&qp->sq.sh->tail);
	karst_prefetchw(&qp->sq.sh->head);
	__builtin_prefetch(karst_wqe_slot(&qp->sq, r->snd_idx));
	karst_prefetchw(&qp->tail[r->snd_idx & qp->sq.mask]);
}

void
karst_qp_prefetch_response(const struct karst_core_qp *qp)
{
	karst_prefetchw(&qp->sq.sh->head);
	__builtin_prefetch(karst_wqe_slot(&qp->sq, qp->req.una_idx));
	__builtin_prefetch(&qp->tail[qp->req.una_idx & qp->sq.mask]);
}
