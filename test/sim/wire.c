/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Checks frames: each request that is sent must be a packet of a posted work request, with the PSN,
 * opcode, length, address and flags that follow from it; each response must answer a delivered
 * request.
 *
 * PSNs are counted from the start of the connection; a schedule never uses all of them.  It is
 * known which frames were delivered, but not whether the core has dropped them, so limits that
 * depend on acknowledgements are checked in the core's favour.
 */
#include "karst_hdr.h"
#include "karst_opcode.h"
#include "karst_psn.h"
#include "sim.h"

#define BAD(s, ep, p, fmt, ...)                                                           \
	sim_fail(s, "pair %u, QP %#x sent %s psn %06x: " fmt, (ep)->pair->idx, (ep)->qpn, \
		karst_opcode_name((p)->opcode), (p)->psn, ##__VA_ARGS__)

static uint32_t
max_u32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

/* --- finding the work request --- */

/* The operation that PSN number @at belongs to. */
static struct sim_op *
op_of(struct sim_ep *ep, uint32_t at)
{
	uint32_t lo = 0, hi = ep->nops;

	if (at >= ep->next_lpsn)
		return NULL;
	if (ep->hint < ep->nops && at - ep->ops[ep->hint].lpsn < ep->ops[ep->hint].npsn)
		return &ep->ops[ep->hint];
	/* The first operation that ends after it: the one that has this PSN. */
	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if (ep->ops[mid].lpsn + ep->ops[mid].npsn <= at)
			lo = mid + 1;
		else
			hi = mid;
	}
	ep->hint = lo;
	return &ep->ops[lo];
}

/* Number of messages that end before PSN number @at. */
static uint32_t
messages_before(const struct sim *s, struct sim_ep *ep, uint32_t at)
{
	const struct sim_op *op;

	if (at >= ep->next_lpsn)
		return ep->next_msn;
	op = op_of(ep, at);
	return op->msn + (sim_is_divided(s, ep, op) ? at - op->lpsn : 0);
}

/* --- requests --- */

static const uint8_t send_ops[4][4] = {
	/* rows: plain, imm, inv; columns: first, middle, last, only */
	{KARST_RC_SEND_FIRST, KARST_RC_SEND_MIDDLE, KARST_RC_SEND_LAST, KARST_RC_SEND_ONLY},
	{KARST_RC_SEND_FIRST, KARST_RC_SEND_MIDDLE, KARST_RC_SEND_LAST_IMM, KARST_RC_SEND_ONLY_IMM},
	{KARST_RC_SEND_FIRST, KARST_RC_SEND_MIDDLE, KARST_RC_SEND_LAST_INV, KARST_RC_SEND_ONLY_INV},
};
static const uint8_t write_ops[2][4] = {
	{KARST_RC_WRITE_FIRST, KARST_RC_WRITE_MIDDLE, KARST_RC_WRITE_LAST, KARST_RC_WRITE_ONLY},
	{KARST_RC_WRITE_FIRST, KARST_RC_WRITE_MIDDLE, KARST_RC_WRITE_LAST_IMM,
		KARST_RC_WRITE_ONLY_IMM},
};

/* The opcode of packet @i (W4). */
static unsigned int
opcode_for(const struct sim_op *op, uint32_t i, bool divided)
{
	unsigned int pos = op->npsn == 1 || divided ? 3 : i == 0 ? 0 : i == op->npsn - 1 ? 2 : 1;

	switch (op->opcode) {
	case KARST_WR_SEND:
		return send_ops[0][pos];
	case KARST_WR_SEND_WITH_IMM:
		return send_ops[1][pos];
	case KARST_WR_SEND_WITH_INV:
		return send_ops[2][pos];
	case KARST_WR_RDMA_WRITE:
		return write_ops[0][pos];
	case KARST_WR_RDMA_WRITE_WITH_IMM:
		return write_ops[1][pos];
	case KARST_WR_RDMA_READ:
		return KARST_RC_READ_REQUEST;
	case KARST_WR_ATOMIC_CAS:
		return KARST_RC_CMP_SWAP;
	case KARST_WR_ATOMIC_FAA:
		return KARST_RC_FETCH_ADD;
	case KARST_WR_ATOMIC_WRITE:
		return KARST_RC_ATOMIC_WRITE;
	case KARST_WR_FLUSH:
		return KARST_RC_FLUSH;
	default:
		return 0xff;
	}
}

static bool
is_rd_atomic(const struct sim_op *op)
{
	return op->opcode == KARST_WR_RDMA_READ || op->opcode == KARST_WR_ATOMIC_CAS ||
		op->opcode == KARST_WR_ATOMIC_FAA;
}

/* Checks the FETH and the RETH of a FLUSH (W3). */
static void
check_flush(struct sim *s, struct sim_ep *ep, const struct sim_op *op, const struct karst_pkt *p)
{
	const uint8_t *feth = p->data + p->pay_off - KARST_RETH_LEN - KARST_FETH_LEN;

	if (karst_feth_type(feth) != KARST_FLUSH_GLOBAL ||
		karst_feth_level(feth) != op->flush_level || p->va != op->rva ||
		p->rkey != op->rkey || p->dma_len != op->flush_len)
		BAD(s, ep, p, "another FLUSH than was posted (R15)");
}

/* X11: a requester that has agreed requests again what is missing from packet @i on, in whole
 * packets, and nothing that it has received. */
static void
check_part(struct sim *s, struct sim_ep *ep, const struct sim_op *op, uint32_t i,
	const struct karst_pkt *p)
{
	uint32_t mtu = 1u << ep->pair->mtu_shift, rest = op->len - i * mtu, n;

	if (p->dma_len > rest || (p->dma_len != rest && (p->dma_len == 0 || p->dma_len % mtu != 0)))
		BAD(s, ep, p, "DMA length %u of %u (X11)", p->dma_len, rest);
	if (!op->started && p->dma_len != rest)
		BAD(s, ep, p, "DMA length %u of %u for the first time", p->dma_len, rest);
	/* if the local memory is not valid, responses that come early are dropped, and the request
	 * fails when its turn comes */
	if (op->came == NULL || ep->spilt || op->expect != KARST_WC_SUCCESS)
		return;
	/* what has come may wait for a copy */
	if (ep->core->copies != NULL)
		return;
	for (n = i; n < op->npsn && (n - i) * mtu < p->dma_len; n++)
		if (op->came[n])
			BAD(s, ep, p, "asks for packet %u, which has come (X11)", n);
}

/* Checks headers and payload of packet @i (W3, W5, W10).  If a READ is requested again from the
 * middle, its address, length and PSN must all be advanced alike (Q5). */
static void
check_content(struct sim *s, struct sim_ep *ep, const struct sim_op *op, uint32_t i,
	const struct karst_pkt *p)
{
	uint32_t mtu = 1u << ep->pair->mtu_shift, fl = karst_opcode_flags(p->opcode);
	bool last = i == op->npsn - 1, divided = sim_is_divided(s, ep, op);
	uint32_t len = op->opcode == KARST_WR_RDMA_READ || (fl & KARST_OPF_ATOMIC)
		? 0
		: karst_min_u32(mtu, op->len - i * mtu);
	unsigned int want = opcode_for(op, i, divided) |
		(ep->pair->type == KARST_QPT_UC ? KARST_TRANSPORT_UC : KARST_TRANSPORT_RC);

	if (ep->pair->xrc && p->srqn != karst_srq_num(ep->peer->core->srq[op->srq].srq))
		BAD(s, ep, p, "SRQ %#x (U3)", p->srqn);
	if (p->opcode != want)
		BAD(s, ep, p, "packet %u of %s number %u should be %s", i, sim_op_name(op->opcode),
			(uint32_t)(op - ep->ops), karst_opcode_name((uint8_t)want));
	if (p->pay_len != len)
		BAD(s, ep, p, "%u bytes instead of %u of %u", p->pay_len, len, op->len);
	if (len != 0 && memcmp(p->data + p->pay_off, op->data + i * mtu, len) != 0)
		BAD(s, ep, p, "the payload is not what was posted (packet %u of number %u)", i,
			(uint32_t)(op - ep->ops));
	if ((fl & KARST_OPF_FLUSH) != 0) {
		check_flush(s, ep, op, p);
	} else if ((fl & KARST_OPF_RETH) != 0) {
		uint32_t skip = op->opcode == KARST_WR_RDMA_READ || divided ? i * mtu : 0;
		uint32_t rest = divided ? len : op->len - skip;

		if (op->len != 0 && (p->va != op->rva + skip || p->rkey != op->rkey))
			BAD(s, ep, p, "address %#llx key %#x instead of %#llx %#x",
				(unsigned long long)p->va, p->rkey,
				(unsigned long long)(op->rva + skip), op->rkey);
		if (op->opcode == KARST_WR_RDMA_READ && sim_repeats(ep))
			check_part(s, ep, op, i, p);
		else if (p->dma_len != rest && op->opcode != KARST_WR_ATOMIC_WRITE)
			BAD(s, ep, p, "DMA length %u instead of %u", p->dma_len, rest);
	}
	if ((fl & KARST_OPF_ATOMICETH) != 0) {
		const uint8_t *h = p->data + p->pay_off - KARST_ATOMICETH_LEN;
		uint64_t swap_add = op->opcode == KARST_WR_ATOMIC_CAS ? op->swap : op->compare_add;

		if (p->va != op->rva || p->rkey != op->rkey ||
			karst_atomiceth_swap_add(h) != swap_add ||
			(op->opcode == KARST_WR_ATOMIC_CAS &&
				karst_atomiceth_compare(h) != op->compare_add))
			BAD(s, ep, p, "wrong operands");
	}
	if ((fl & (KARST_OPF_IMM | KARST_OPF_IETH)) != 0 && p->imm != op->imm)
		BAD(s, ep, p, "immediate %#x instead of %#x", p->imm, op->imm);
	if (last && ep->pair->type == KARST_QPT_RC && !(p->flags & KARST_PKT_ACKREQ))
		BAD(s, ep, p,
			"the last packet of a message does not ask for an acknowledgement (Q2)");
	if (last && (fl & (KARST_OPF_SEND | KARST_OPF_IMM)) != 0 &&
		((p->flags & KARST_PKT_SE) != 0) != ((op->flags & KARST_SEND_SOLICITED) != 0))
		BAD(s, ep, p, "solicited event bit");
	if (!last && (p->flags & KARST_PKT_SE) != 0)
		BAD(s, ep, p, "solicited event bit before the last packet");
}

static void
check_fence(struct sim *s, struct sim_ep *ep, const struct sim_op *op, const struct karst_pkt *p)
{
	const struct sim_op *o;

	for (o = ep->ops + ep->done; o < op; o++) {
		if (is_rd_atomic(o) && !o->answered)
			BAD(s, ep, p, "fenced number %u started before number %u was answered (Q1)",
				(uint32_t)(op - ep->ops), (uint32_t)(o - ep->ops));
	}
}

/* Whether the operation has a response of its own, and so counts against max_rd_atomic. */
static bool
is_answered(const struct sim_op *op)
{
	return is_rd_atomic(op) || op->opcode == KARST_WR_ATOMIC_WRITE ||
		op->opcode == KARST_WR_FLUSH;
}

/* Number of responses of a READ or atomic that were received before the first missing one. */
static uint32_t
came_in_order(const struct sim_op *op)
{
	uint32_t n = 0;

	while (op->came != NULL && n < op->npsn && op->came[n])
		n++;
	return n;
}

/*
 * Acknowledges everything before PSN number @end.  This stops at a READ or atomic until its
 * responses are received (Q3); then what was acknowledged behind it counts (X11).
 * @return false if it has stopped at one.
 */
static bool
acknowledge(struct sim_ep *req, uint32_t end)
{
	req->known = end = max_u32(req->known, end);
	for (; req->confirmed < req->nops; req->confirmed++) {
		const struct sim_op *op = &req->ops[req->confirmed];

		if (op->npsn == 0)
			continue;
		if (op->lpsn >= end)
			break;
		if (is_answered(op) && !op->answered) {
			req->acked = max_u32(req->acked, op->lpsn + came_in_order(op));
			return false;
		}
		if (op->lpsn + op->npsn > end) {
			req->acked = max_u32(req->acked, end);
			break;
		}
		if (is_answered(op))
			req->rd_out--;
		req->acked = max_u32(req->acked, op->lpsn + op->npsn);
		req->adverse_done = req->adverse;
	}
	return true;
}

/* Q9: without credits one message may be sent as a probe, if nothing else is outstanding. */
static void
check_credit(struct sim *s, struct sim_ep *ep, const struct sim_op *op, const struct karst_pkt *p)
{
	uint32_t idx = (uint32_t)(op - ep->ops);

	acknowledge(ep, ep->acked);
	/* credits may wait for a copy */
	if (!s->copies && ep->limited && op->recv_seq != OP_NO_RECV && op->msn + 1 > ep->lsn &&
		ep->confirmed < idx && op->lpsn != ep->admitted)
		BAD(s, ep, p, "message %u, but the peer has allowed %u (Q9)", op->msn + 1, ep->lsn);
}

/* Number of PSNs of READs and atomics before @op that are not acknowledged. */
static uint32_t
answers_out(const struct sim_ep *ep, const struct sim_op *op)
{
	uint32_t n = 0, i = (uint32_t)(op - ep->ops);

	while (i-- > 0 && ep->ops[i].lpsn + ep->ops[i].npsn > ep->acked) {
		const struct sim_op *x = &ep->ops[i];

		if (is_answered(x))
			n += x->npsn - (ep->acked > x->lpsn ? ep->acked - x->lpsn : 0);
	}
	return n;
}

/* Checks a PSN that is sent for the first time, and the number of outstanding READs and atomics
 * (Q5, R6). */
static void
check_new(struct sim *s, struct sim_core *c, struct sim_ep *ep, struct sim_op *op, uint32_t at,
	const struct karst_pkt *p)
{
	bool message = !is_answered(op);

	if (!op->started && (op->flags & KARST_SEND_FENCE) != 0)
		check_fence(s, ep, op, p);
	if (!op->started)
		check_credit(s, ep, op, p);
	if (!op->started && !message) {
		ep->rd_out++;
		if (ep->rd_out > ep->max_rd_atomic)
			BAD(s, ep, p, "%u READs and atomics outstanding, agreed are %u", ep->rd_out,
				ep->max_rd_atomic);
	}
	op->started = true;
	ep->tx_hi = op->opcode == KARST_WR_RDMA_READ ? op->lpsn + op->npsn : at + 1;
	/* a SACK may open the window for many packets although none is acknowledged (X2) */
	if (sim_repeats(ep)) {
		if (at - ep->acked >= ep->pair->repeat_window)
			BAD(s, ep, p, "%u PSNs after the oldest, the window is %u (X2)",
				at - ep->acked, ep->pair->repeat_window);
		return;
	}
	/* READs and atomics have a limit of their own. */
	if (ep->tx_hi - ep->acked > 1u << 23 ||
		(message && at - ep->acked - answers_out(ep, op) >= c->window))
		BAD(s, ep, p, "%u PSNs unacknowledged, the window is %u (P2)",
			ep->tx_hi - ep->acked, c->window);
}

/* Limit of probes without a response (Q11). */
#define PROBES 6u

/*
 * Checks how often the oldest packet that is not acknowledged is sent (Q6, Q7, Q11): once for each
 * retry and each probe; each packet from the peer allows all retries again.  If a sequence NAK was
 * received, once more in each round when the window is full (Q12).  A packet that waits for a copy
 * counts before it has any effect: what is sent again when it has is once more.
 */
static void
check_patience(struct sim *s, struct sim_ep *ep, uint32_t at, const struct karst_pkt *p)
{
	if (ep->quiet_psn != ep->acked) {
		ep->quiet_psn = ep->acked;
		ep->tries = 0;
	}
	if (at == ep->acked &&
		++ep->tries > (1 + ep->heard) * (1u + ep->retry_cnt) + (s->early ? PROBES : 0) +
				(ep->naks ? 1 + ep->heard : 0) + (s->copies ? 1 + ep->heard : 0))
		BAD(s, ep, p,
			"for the %uth time, retry_cnt %u, and %u packets have come (Q11, Q12)",
			ep->tries, ep->retry_cnt, ep->heard);
}

/* New PSNs have no gaps, also where PSNs wrap around (P1). */
static void
request_sent(struct sim *s, struct sim_core *c, struct sim_ep *ep, const struct karst_pkt *p)
{
	uint32_t at = karst_psn_add(p->psn, (uint32_t)-ep->sq_psn);
	struct sim_op *op = op_of(ep, at);

	if (op == NULL)
		BAD(s, ep, p, "no work request that takes this PSN was posted");
	if (at > ep->tx_hi)
		BAD(s, ep, p, "PSNs from %06x on were skipped",
			karst_psn_add(ep->sq_psn, ep->tx_hi));
	/* the memory for a response is checked when the response arrives */
	if ((op->expect == KARST_WC_LOC_PROT_ERR && !is_rd_atomic(op)) ||
		op->expect == KARST_WC_LOC_QP_OP_ERR)
		BAD(s, ep, p, "number %u is not valid and was sent all the same",
			(uint32_t)(op - ep->ops));
	check_content(s, ep, op, at - op->lpsn, p);
	if (ep->pair->type != KARST_QPT_RC) {
		if (at != ep->tx_hi)
			BAD(s, ep, p, "an unreliable QP repeats itself");
		ep->tx_hi++;
		return;
	}
	/* The count starts again when the requester goes back. */
	if (p->flags & KARST_PKT_ACKREQ || is_rd_atomic(op) || at != ep->tx_last + 1)
		ep->since_ackreq = 0;
	else if (++ep->since_ackreq > 2 * c->ack_interval)
		BAD(s, ep, p, "no acknowledgement asked for in %u packets (Q2)", ep->since_ackreq);
	ep->tx_last = at;
	check_patience(s, ep, at, p);
	if (at == ep->tx_hi) {
		check_new(s, c, ep, op, at, p);
		return;
	}
	ep->retransmits++;
	sim_repeat_again(s, ep, at, is_answered(op), p);
}

/* --- responses --- */

static void
check_msn(struct sim *s, struct sim_ep *ep, const struct karst_pkt *p, uint32_t at)
{
	struct sim_ep *req = ep->peer;
	uint32_t lo, hi = messages_before(s, req, req->delivered_hi), msn = karst_aeth_msn(p->aeth);

	if (ep->pair->fault != FAULT_NONE)
		return;
	lo = messages_before(s, req, at);
	if (karst_psn_diff(msn, lo) < 0 || karst_psn_diff(hi, msn) < 0)
		BAD(s, ep, p, "MSN %u, but %u messages were acknowledged and %u delivered (R10)",
			msn, lo, hi);
}

/* R15: everything that was written before a FLUSH is in memory when its response is sent. */
static void
check_flushed(struct sim *s, struct sim_ep *req, const struct sim_op *op)
{
	const struct sim_op *w;

	if (req->pair->fault != FAULT_NONE)
		return;
	for (w = req->ops + req->done; w < op; w++) {
		if (w->opcode == KARST_WR_RDMA_WRITE || w->opcode == KARST_WR_ATOMIC_WRITE ||
			w->opcode == KARST_WR_RDMA_WRITE_WITH_IMM)
			sim_cell_shows(s, req, w);
	}
}

/* The number, the PSNs and the lengths of responses follow from the request, also for duplicates
 * (R4, W10). */
static void
check_read_response(struct sim *s, struct sim_ep *ep, const struct karst_pkt *p,
	const struct sim_op *op, uint32_t i)
{
	uint32_t mtu = 1u << ep->pair->mtu_shift, len;
	bool last = i == op->npsn - 1;

	if (op->opcode == KARST_WR_ATOMIC_WRITE || op->opcode == KARST_WR_FLUSH) {
		if (p->opcode != KARST_RC_READ_RESP_ONLY || p->pay_len != 0)
			BAD(s, ep, p, "not the answer to %s", sim_op_name(op->opcode));
		if (op->opcode == KARST_WR_FLUSH)
			check_flushed(s, ep->peer, op);
		return;
	}
	if (op->opcode != KARST_WR_RDMA_READ)
		BAD(s, ep, p, "that PSN is %s", sim_op_name(op->opcode));
	len = karst_min_u32(mtu, op->len - i * mtu);
	if (p->pay_len != len)
		BAD(s, ep, p, "%u bytes instead of %u", p->pay_len, len);
	/* the response to a part may end at any packet (X11) */
	if ((karst_opcode_flags(p->opcode) & KARST_OPF_END ? true : false) != last &&
		(last || ep->pair->repeats == 0))
		BAD(s, ep, p, "packet %u of %u", i, op->npsn);
}

/* Each response answers a delivered request, and a sequence NAK names the next PSN (R2). */
static void
response_sent(struct sim *s, struct sim_ep *ep, const struct karst_pkt *p)
{
	struct sim_ep *req = ep->peer;
	uint32_t at = karst_psn_add(p->psn, (uint32_t)-req->sq_psn),
		 fl = karst_opcode_flags(p->opcode);
	unsigned int type = karst_aeth_syndrome(p->aeth) & KARST_AETH_TYPE_MASK;
	bool ack = p->opcode != KARST_RC_ACK || type == KARST_AETH_ACK;
	struct sim_op *op;

	if (ep->pair->type != KARST_QPT_RC)
		BAD(s, ep, p, "responses belong to reliable connections");
	if (p->opcode == KARST_SACK) {
		sim_repeat_sack(s, ep, p);
		if (at != KARST_PSN_MASK)
			check_msn(s, ep, p, at + 1);
		return;
	}
	if (p->opcode == KARST_RC_ACK && type == KARST_AETH_NAK &&
		karst_aeth_syndrome(p->aeth) == (KARST_AETH_NAK | KARST_NAK_PSN_SEQ)) {
		s->stats.naks++;
		if (sim_repeats(ep))
			BAD(s, ep, p, "a sequence NAK where a SACK was agreed to (X7)");
		/* A NAK names the next PSN, which need not have been delivered. */
		if (at > req->delivered_hi)
			BAD(s, ep, p, "asks for a PSN far from what it got");
		return;
	}
	if (p->opcode == KARST_RC_ACK && type == KARST_AETH_RNR) {
		s->stats.rnrs++;
		ep->rnr_at = at;
	}
	/* Nothing was executed yet: the PSN is the one before the first. */
	if (ack && p->opcode == KARST_RC_ACK && at == KARST_PSN_MASK &&
		(karst_aeth_msn(p->aeth) == 0 || ep->migrations != 0))
		return; /* an end that migrates sends it before READ responses, too (L12, G4) */
	if (at >= req->delivered_hi)
		BAD(s, ep, p, "answers a request that was not delivered");
	op = op_of(req, at);
	if (p->opcode == KARST_RC_ACK && ack && at + 1 < req->next_lpsn)
		sim_repeat_ack(s, ep, at + 1, is_answered(op_of(req, at + 1)), p);
	op = op_of(req, at);
	if (fl & KARST_OPF_READ)
		check_read_response(s, ep, p, op, at - op->lpsn);
	if (p->opcode == KARST_RC_ATOMIC_ACK && op->opcode != KARST_WR_ATOMIC_CAS &&
		op->opcode != KARST_WR_ATOMIC_FAA)
		BAD(s, ep, p, "that PSN is %s", sim_op_name(op->opcode));
	if (p->opcode == KARST_RC_ACK && ack)
		check_msn(s, ep, p, at + 1);
	else if ((fl & KARST_OPF_AETH) != 0)
		check_msn(s, ep, p, at);
}

/* --- datagrams --- */

static void
datagram_sent(struct sim *s, struct sim_ep *ep, const struct karst_pkt *p)
{
	uint32_t at = karst_psn_add(p->psn, (uint32_t)-ep->sq_psn);
	struct sim_op *op = op_of(ep, at);

	if (op == NULL || at != ep->tx_hi)
		BAD(s, ep, p, "PSN out of order");
	ep->tx_hi++;
	if (p->src_qpn != ep->qpn || p->qkey != ep->peer->qkey)
		BAD(s, ep, p, "source QP %#x, Q_Key %#x", p->src_qpn, p->qkey);
	if (p->opcode !=
		(op->opcode == KARST_WR_SEND ? KARST_UD_SEND_ONLY : KARST_UD_SEND_ONLY_IMM))
		BAD(s, ep, p, "number %u is %s", (uint32_t)(op - ep->ops), sim_op_name(op->opcode));
	if (p->pay_len != op->len || memcmp(p->data + p->pay_off, op->data, op->len) != 0)
		BAD(s, ep, p, "the payload is not what was posted");
}

/* --- headers --- */

/* E1: with congestion control all packets are ECT(0); without, the program sets the ECN bits, but
 * only the network may set CE. */
static void
check_ecn(struct sim *s, struct sim_ep *ep, const struct karst_pkt *p)
{
	const uint8_t *l3 = p->data + karst_pkt_l3_off(p);
	uint8_t want = ep->path.tclass;
	uint8_t got = ep->path.ip6 ? karst_ip6_tclass(l3) : karst_ip4_tos(l3);

	if (s->congestion.mode != KARST_CONGESTION_OFF)
		want = (uint8_t)((want & 0xfc) | 2);
	else if ((want & 3) == 3)
		want &= 0xfc;
	if (got != want)
		BAD(s, ep, p, "traffic class %#x instead of %#x (E1)", got, want);
}

/* Checks addresses, ports, pad, and the destination and partition in the BTH (W2). */
static void
check_headers(struct sim *s, struct sim_ep *ep, const struct karst_pkt *p)
{
	const struct karst_path *to = &ep->path;
	const uint8_t *l3 = p->data + karst_pkt_l3_off(p), *udp = p->data + p->bth_off - 8;
	uint32_t sport = karst_get_be16(udp);
	bool answer = (karst_opcode_flags(p->opcode) & KARST_OPF_RESPONSE) != 0;
	uint16_t *was = &ep->pair->udp_sport[(ep == &ep->pair->ep[1]) + (answer ? 2 : 0)];
	uint32_t i, path, any = sim_repeat_ports(ep, p, &path);

	if (!ep->pair->xrc)
		was = &ep->pair->udp_sport[ep == &ep->pair->ep[1]];
	if (p->dqpn != (answer ? ep->peer->qpn : ep->peer->target_qpn))
		BAD(s, ep, p, "destination QP %#x", p->dqpn);
	if (((p->flags & KARST_PKT_IP6) != 0) != to->ip6 ||
		((p->flags & KARST_PKT_VLAN) != 0) != to->has_vlan)
		BAD(s, ep, p, "IP version or VLAN tag");
	if (to->has_vlan && karst_get_be16(p->data + 14) != to->vlan_tci)
		BAD(s, ep, p, "VLAN %#x instead of %#x", karst_get_be16(p->data + 14),
			to->vlan_tci);
	if (memcmp(p->data, to->dst_mac, 6) != 0 || memcmp(p->data + 6, to->src_mac, 6) != 0)
		BAD(s, ep, p, "MAC addresses");
	if (to->ip6 ? memcmp(l3 + 8, to->src_ip, 16) || memcmp(l3 + 24, to->dst_ip, 16)
		    : memcmp(l3 + 12, to->src_ip + 12, 4) || memcmp(l3 + 16, to->dst_ip + 12, 4))
		BAD(s, ep, p, "IP addresses");
	check_ecn(s, ep, p);
	if (!to->ip6 && (l3[6] & 0x40) == 0)
		BAD(s, ep, p, "DF is not set (W1)");
	if (*was != 0 && ((sport ^ *was) & ~any & 0xffff) == path)
		sport = *was;
	else
		sport ^= path;
	if (sport < 0xc000 || (to->udp_sport != 0 && sport != to->udp_sport))
		BAD(s, ep, p, "UDP source port %#x (W1)", sport);
	if (*was == 0)
		*was = (uint16_t)sport;
	if (ep->pair->type != KARST_QPT_UD && *was != sport)
		BAD(s, ep, p, "UDP source port changed to %#x (W1)", sport);
	for (i = 0; i < karst_pkt_pad(p); i++) {
		if (p->data[p->pay_off + p->pay_len + i] != 0)
			BAD(s, ep, p, "pad is not zero (W6)");
	}
	if (p->pkey != 0xffff)
		BAD(s, ep, p, "P_Key %#x", p->pkey);
}

/* Converts a packet of XRC to one of RC, from which it differs only in its transport. */
static const struct karst_pkt *
as_rc(struct sim *s, struct sim_ep *ep, const struct karst_pkt *p, struct karst_pkt *copy)
{
	if (!ep->pair->xrc)
		return p;
	if ((p->opcode & KARST_TRANSPORT_MASK) != KARST_TRANSPORT_XRC)
		BAD(s, ep, p, "not a packet of XRC");
	*copy = *p;
	copy->opcode &= KARST_OPERATION_MASK;
	return copy;
}

void
sim_wire_sent(struct sim *s, struct sim_core *c, struct sim_ep *ep, const struct karst_pkt *p)
{
	struct karst_pkt copy;

	check_headers(s, ep, p);
	sim_paths_sent(s, c, ep, p);
	p = as_rc(s, ep, p, &copy);
	if (ep->asked != KARST_QPS_RTS && ep->asked != KARST_QPS_SQD && ep->asked != KARST_QPS_ERR)
		BAD(s, ep, p, "in state %d", ep->asked);
	if (ep->pair->type == KARST_QPT_UD)
		datagram_sent(s, ep, p);
	else if (karst_opcode_flags(p->opcode) & KARST_OPF_REQUEST)
		request_sent(s, c, ep, p);
	else
		response_sent(s, ep, p);
}

/* --- packets that are delivered --- */

static void
request_delivered(struct sim_ep *req, const struct karst_pkt *p)
{
	uint32_t at = karst_psn_add(p->psn, (uint32_t)-req->sq_psn);
	struct sim_op *op = op_of(req, at);

	if (op == NULL)
		return;
	sim_repeat_delivered(req, at);
	if (op->opcode == KARST_WR_RDMA_READ)
		at = op->lpsn + op->npsn - 1;
	if (at >= req->delivered_hi)
		req->delivered_hi = at + 1;
}

static const uint16_t credits[31] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256,
	384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};

/* Takes the credits of an AETH.  Judged in the requester's favour: the largest limit counts. */
static void
credits_heard(struct sim_ep *req, uint32_t aeth, bool taken)
{
	uint32_t code = karst_aeth_syndrome(aeth) & KARST_AETH_VALUE_MASK;

	if ((karst_aeth_syndrome(aeth) & KARST_AETH_TYPE_MASK) != KARST_AETH_ACK)
		return;
	if (code == KARST_AETH_CREDIT_UNLIMITED) {
		req->limited = false;
		return;
	}
	if (taken && !req->limited) {
		req->limited = true;
		req->admitted = req->tx_hi;
	}
	if (karst_aeth_msn(aeth) + credits[code] > req->lsn)
		req->lsn = karst_aeth_msn(aeth) + credits[code];
}

/* A response packet of a READ or atomic.  It counts even if others before it are missing (X11). */
static bool
response_taken(struct sim_ep *req, struct sim_op *op, uint32_t at)
{
	acknowledge(req, at);
	if (!is_answered(op) || !op->started || op->answered)
		return false;
	if (op->npsn > 1 && op->came == NULL) {
		op->came = sim_alloc_raw(req->s, op->npsn);
		memset(op->came, 0, op->npsn);
	}
	if (op->came != NULL && op->came[at - op->lpsn])
		return false;
	if (op->came != NULL)
		op->came[at - op->lpsn] = 1;
	op->answered = ++op->got == op->npsn;
	acknowledge(req, at + 1);
	return true;
}

static void
response_delivered(struct sim_ep *req, const struct karst_pkt *p)
{
	uint32_t at = karst_psn_add(p->psn, (uint32_t)-req->sq_psn),
		 fl = karst_opcode_flags(p->opcode);
	bool ack = (karst_aeth_syndrome(p->aeth) & KARST_AETH_TYPE_MASK) == KARST_AETH_ACK, taken;
	struct sim_op *op = op_of(req, at);
	uint32_t before = req->acked;

	/* the queue pair has failed, and its program has not polled the completion yet */
	if (karst_qp_state(req->qp) == KARST_QPS_ERR)
		return;
	/* the PSN before the first one: an end that migrates repeats its last acknowledgement (G4),
	 * and the credits in it count (Q9) */
	if (op == NULL && at == KARST_PSN_MASK &&
		(p->opcode == KARST_RC_ACK || p->opcode == KARST_SACK))
		credits_heard(req, p->aeth, false);
	if (p->opcode == KARST_SACK) {
		if (!sim_repeats(req))
			return;
		sim_repeat_heard(req, p);
		/* the PSN before the first one; the SACK still shows what is lost */
		if (op == NULL) {
			req->heard++;
			return;
		}
	}
	if (op == NULL || at >= req->tx_hi)
		return;
	if (p->opcode == KARST_RC_ACK &&
		karst_aeth_syndrome(p->aeth) == (KARST_AETH_NAK | KARST_NAK_PSN_SEQ))
		req->naks = true;
	if (p->opcode == KARST_RC_ACK || p->opcode == KARST_SACK)
		/* a NAK acknowledges everything before its PSN */
		taken = acknowledge(req, ack ? at + 1 : at) && req->acked != before;
	else
		taken = response_taken(req, op, at);
	if (req->acked != before) {
		/* the time that the core has read: it may have been paused since */
		req->quiet_ns = req->core->core->now_ns;
		sim_pauses_heard(req);
		req->heard = 0;
	} else {
		req->heard++;
	}
	if (fl & KARST_OPF_AETH)
		credits_heard(req, p->aeth, taken && ack);
}

void
sim_wire_delivered(struct sim *s, struct sim_ep *ep, const struct karst_pkt *p)
{
	struct karst_pkt copy;

	if (ep->pair->type == KARST_QPT_UD || p->opcode == KARST_CNP)
		return;
	p = as_rc(s, ep, p, &copy);
	if (karst_opcode_flags(p->opcode) & KARST_OPF_REQUEST)
		request_delivered(ep->peer, p);
	else if (ep->pair->type == KARST_QPT_RC)
		response_delivered(ep, p);
}

void
sim_wire_taken(struct sim_ep *ep, const struct karst_pkt *p)
{
	if (p->drop != KARST_DROP_NONE && (karst_opcode_flags(p->opcode) & KARST_OPF_RESPONSE) != 0)
		ep->spilt |= p->drop != KARST_DROP_UNEXPECTED_RESPONSE;
}
