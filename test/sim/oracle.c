/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Judges completions and events.
 *
 * The wr_id identifies the work request of each completion.  Send completions must arrive in the
 * order of posting; an unsignaled work request is known to be done when a later one completes.  The
 * first error ends a queue: it needs an excuse (an injected fault, or enough lost packets), and all
 * later work requests are flushed, signaled or not.
 */
#include <stdio.h>

#include "sim.h"

const char *
sim_op_name(unsigned int opcode)
{
	static const char *const names[KARST_WR_MAX] = {[KARST_WR_RDMA_WRITE] = "WRITE",
		[KARST_WR_RDMA_WRITE_WITH_IMM] = "WRITE with Imm",
		[KARST_WR_SEND] = "SEND",
		[KARST_WR_SEND_WITH_IMM] = "SEND with Imm",
		[KARST_WR_RDMA_READ] = "READ",
		[KARST_WR_ATOMIC_CAS] = "COMPARE SWAP",
		[KARST_WR_ATOMIC_FAA] = "FETCH ADD",
		[KARST_WR_LOCAL_INV] = "LOCAL INV",
		[KARST_WR_BIND_MW] = "BIND MW",
		[KARST_WR_SEND_WITH_INV] = "SEND with Inv",
		[KARST_WR_FLUSH] = "FLUSH",
		[KARST_WR_ATOMIC_WRITE] = "ATOMIC WRITE"};

	return opcode < KARST_WR_MAX && names[opcode] ? names[opcode] : "unknown operation";
}

uint64_t
sim_wr_id(const struct sim *s, unsigned int kind, uint32_t a, uint32_t b, uint32_t idx)
{
	return (uint64_t)kind << 56 | (uint64_t)a << 48 | (uint64_t)b << 44 |
		(uint64_t)(s->epoch & 15) << 40 | idx;
}

#define WR_KIND(id)  ((unsigned int)((id) >> 56))
#define WR_A(id)     ((uint32_t)((id) >> 48 & 255))
#define WR_B(id)     ((uint32_t)((id) >> 44 & 15))
#define WR_EPOCH(id) ((uint32_t)((id) >> 40 & 15))
#define WR_IDX(id)   ((uint32_t)(id))

static void
ep_failed(struct sim_ep *ep)
{
	if (ep->state == EP_LIVE)
		ep->state = EP_ERROR;
	ep->pair->broken = true;
	/* The signaled request for which an entry was reserved will not be posted. */
	ep->sq_used -= ep->unsignaled != 0;
	ep->unsignaled = 0;
}

/* --- send completions --- */

static void
op_release(struct sim_ep *ep, struct sim_op *op)
{
	if (op->buf != NULL)
		op->buf->busy = false;
	if (op->mw != NULL && op->opcode != KARST_WR_BIND_MW && op->opcode != KARST_WR_LOCAL_INV &&
		op->opcode != KARST_WR_SEND_WITH_INV)
		op->mw->users--;
	ep->sq_used--;
	ep->s->last_progress_ns = ep->s->now_ns;
}

/* The program overwrites a buffer that it owns again: the engine must not read it any more. */
static void
scramble(struct sim_ep *ep, const struct sim_op *op)
{
	uint32_t i;

	for (i = 0; i < op->npieces; i++) {
		memset(ep->node->mem + op->pieces[i].off, 0xee, op->pieces[i].len);
		memset(ep->node->shadow + op->pieces[i].off, 0xee, op->pieces[i].len);
	}
}

static void
bind_done(struct sim *s, struct sim_ep *ep, struct sim_op *op)
{
	struct sim_mw *mw = &ep->mw;
	struct karst_mr_attr a;

	mw->key = op->new_key;
	if (karst_mem_query(ep->node->mem_table, mw->key, &a) != 0)
		sim_fail(s, "pair %u: BIND MW completed, the key %#x is not usable", ep->pair->idx,
			mw->key);
	mw->state = MW_BOUND;
	mw->was_bound = true;
}

static void
window_gone(struct sim *s, struct sim_ep *owner, uint32_t key)
{
	struct karst_mr_attr a;

	if (karst_mem_query(owner->node->mem_table, key, &a) == 0)
		sim_fail(s, "pair %u: key %#x was invalidated and is still usable (R9)",
			owner->pair->idx, key);
	owner->mw.stale_key = key;
	owner->mw.state = MW_UNBOUND;
}

/* A SEND has completed: its data must be in the receive buffer, unless the receiver has already
 * seen the completion. */
static void
check_sent(struct sim *s, struct sim_ep *ep, const struct sim_op *op)
{
	struct sim_ep *to = ep->peer;
	const struct sim_recv *r;

	if (to->srq != NULL || op->received || to->state != EP_LIVE ||
		ep->pair->type != KARST_QPT_RC)
		return;
	if (op->recv_seq >= to->nrecvs)
		sim_fail(s,
			"pair %u, QP %#x: %s number %u completed without a receive work request",
			ep->pair->idx, ep->qpn, sim_op_name(op->opcode), (uint32_t)(op - ep->ops));
	r = &to->recvs[op->recv_seq];
	if (r->done || op->opcode == KARST_WR_RDMA_WRITE_WITH_IMM)
		return;
	if (!sim_pieces_match(to->node, r->pieces, r->npieces, 0, op->data, op->len, true))
		sim_fail(s,
			"pair %u, QP %#x: %s number %u completed, but its %u bytes are not in the "
			"receive buffer",
			ep->pair->idx, ep->qpn, sim_op_name(op->opcode), (uint32_t)(op - ep->ops),
			op->len);
}

static void
op_succeeded(struct sim *s, struct sim_ep *ep, struct sim_op *op)
{
	if (op->expect != KARST_WC_SUCCESS && op->expect != SIM_EXPECT_ANY)
		sim_fail(s,
			"pair %u, QP %#x: %s number %u succeeded, but it has to fail with %u (%s)",
			ep->pair->idx, ep->qpn, sim_op_name(op->opcode), (uint32_t)(op - ep->ops),
			op->expect, sim_fault_name(ep->pair->fault));
	op->state = OP_DONE;
	switch (op->opcode) {
	case KARST_WR_RDMA_WRITE:
	case KARST_WR_RDMA_WRITE_WITH_IMM:
	case KARST_WR_ATOMIC_WRITE:
		if (ep->pair->type == KARST_QPT_RC)
			sim_cell_apply(s, ep, op);
		if (op->recv_seq != OP_NO_RECV)
			check_sent(s, ep, op);
		scramble(ep, op);
		break;
	case KARST_WR_SEND:
	case KARST_WR_SEND_WITH_IMM:
	case KARST_WR_SEND_WITH_INV:
		check_sent(s, ep, op);
		scramble(ep, op);
		break;
	case KARST_WR_RDMA_READ:
		if (op->len != 0)
			sim_cell_read(s, ep, op);
		sim_pieces_accept(ep->node, op->pieces, op->npieces);
		break;
	case KARST_WR_ATOMIC_CAS:
	case KARST_WR_ATOMIC_FAA:
		sim_word_done(s, ep, op);
		sim_pieces_accept(ep->node, op->pieces, op->npieces);
		break;
	case KARST_WR_BIND_MW:
		bind_done(s, ep, op);
		break;
	case KARST_WR_LOCAL_INV:
		window_gone(s, ep, op->imm);
		break;
	default:
		break;
	}
	op_release(ep, op);
}

/* In a queue that has ended, requests without a completion of their own have succeeded
 * (sim_sends_over()). */
void
sim_trailing(struct sim *s, struct sim_ep *ep)
{
	for (; ep->done < ep->nops; ep->done++)
		op_succeeded(s, ep, &ep->ops[ep->done]);
}

static const uint8_t wc_opcodes[KARST_WR_MAX] = {
	[KARST_WR_RDMA_WRITE] = KARST_WC_RDMA_WRITE,
	[KARST_WR_RDMA_WRITE_WITH_IMM] = KARST_WC_RDMA_WRITE,
	[KARST_WR_SEND] = KARST_WC_SEND,
	[KARST_WR_SEND_WITH_IMM] = KARST_WC_SEND,
	[KARST_WR_RDMA_READ] = KARST_WC_RDMA_READ,
	[KARST_WR_ATOMIC_CAS] = KARST_WC_COMP_SWAP,
	[KARST_WR_ATOMIC_FAA] = KARST_WC_FETCH_ADD,
	[KARST_WR_LOCAL_INV] = KARST_WC_LOCAL_INV,
	[KARST_WR_BIND_MW] = KARST_WC_BIND_MW,
	[KARST_WR_SEND_WITH_INV] = KARST_WC_SEND,
	[KARST_WR_FLUSH] = KARST_WC_FLUSH,
	[KARST_WR_ATOMIC_WRITE] = KARST_WC_ATOMIC_WRITE,
};

static void
check_success(struct sim *s, struct sim_ep *ep, const struct sim_op *op, const struct karst_cqe *e)
{
	bool sized = op->opcode == KARST_WR_RDMA_READ || op->opcode == KARST_WR_ATOMIC_CAS ||
		op->opcode == KARST_WR_ATOMIC_FAA;

	if (!op->signaled)
		sim_fail(s,
			"pair %u, QP %#x: completion of number %u, which was not signalled (Q1)",
			ep->pair->idx, ep->qpn, (uint32_t)(op - ep->ops));
	if (ep->send_failed)
		sim_fail(s, "pair %u, QP %#x: success of number %u behind an error", ep->pair->idx,
			ep->qpn, (uint32_t)(op - ep->ops));
	if (e->opcode != wc_opcodes[op->opcode])
		sim_fail(s, "pair %u, QP %#x: %s completed with opcode %u", ep->pair->idx, ep->qpn,
			sim_op_name(op->opcode), e->opcode);
	if (sized && e->byte_len != op->len)
		sim_fail(s, "pair %u, QP %#x: %s of %u bytes completed with byte_len %u",
			ep->pair->idx, ep->qpn, sim_op_name(op->opcode), op->len, e->byte_len);
	if (ep->pair->type == KARST_QPT_RC && !op->started && op->npsn != 0)
		sim_fail(s, "pair %u, QP %#x: %s number %u completed and was never sent",
			ep->pair->idx, ep->qpn, sim_op_name(op->opcode), (uint32_t)(op - ep->ops));
}

/* Checks that there is a reason for an error completion. */
static void
check_error(struct sim *s, struct sim_ep *ep, const struct sim_op *op, enum karst_wc_status status,
	uint32_t lost)
{
	struct sim_pair *p = ep->pair;
	bool first = !ep->send_failed;

	if (p->victim)
		return;
	if (!first && status == KARST_WC_WR_FLUSH_ERR)
		return;
	if (!first && ep->asked != KARST_QPS_ERR)
		sim_fail(s, "pair %u, QP %#x: status %u for number %u instead of a flush", p->idx,
			ep->qpn, status, (uint32_t)(op - ep->ops));
	if (op->expect == status || op->expect == SIM_EXPECT_ANY || op->expect == SIM_EXPECT_FAIL)
		return;
	/* Q6, Q11: all retries must have waited for their timeouts, regardless of probes */
	if (status == KARST_WC_RETRY_EXC_ERR && p->type == KARST_QPT_RC && ep->timeout != 0 &&
		s->now_ns < ep->quiet_ns + (ep->retry_cnt + 1) * (4096ull << ep->timeout))
		sim_fail(s,
			"pair %u, QP %#x: number %u was given up %llu ns after the last acknowledgement, "
			"timeout %u, retry_cnt %u",
			p->idx, ep->qpn, (uint32_t)(op - ep->ops),
			(unsigned long long)(s->now_ns - ep->quiet_ns), ep->timeout, ep->retry_cnt);
	if (status == KARST_WC_RETRY_EXC_ERR && p->type == KARST_QPT_RC) {
		if (s->now_ns >= p->dead_ns || p->broken || ep->peer->state != EP_LIVE ||
			sim_pauses_excuse(ep, lost))
			return;
		if (p->fault != FAULT_NONE && ep->peer->qp != NULL &&
			karst_qp_state(ep->peer->qp) == KARST_QPS_ERR)
			return;
	}
	if (status == KARST_WC_WR_FLUSH_ERR && (p->fault != FAULT_NONE || p->broken))
		return;
	if (sim_fault_excuses(ep, op, status))
		return;
	sim_fail(s,
		"pair %u, QP %#x: %s number %u ended with status %u (fault: %s, %u packets lost or "
		"spoilt since the last acknowledgement, %u tries in pauses, retry_cnt %u)",
		p->idx, ep->qpn, sim_op_name(op->opcode), (uint32_t)(op - ep->ops), status,
		sim_fault_name(p->fault), lost, ep->waited, ep->retry_cnt);
}

/* R13: a responder that has refused a request is in Error, and its program has got an event. */
static void
check_refused(struct sim *s, const struct sim_ep *ep, enum karst_wc_status status)
{
	const struct sim_ep *peer = ep->peer;

	switch (ep->pair->fault) {
	case FAULT_BAD_RKEY:
	case FAULT_RANGE:
	case FAULT_ACCESS:
	case FAULT_MISALIGNED:
	case FAULT_LONG_SEND:
	case FAULT_RECV_KEY:
	case FAULT_STALE_MW:
		break;
	default:
		return;
	}
	if (status != KARST_WC_REM_ACCESS_ERR && status != KARST_WC_REM_INV_REQ_ERR &&
		status != KARST_WC_REM_OP_ERR)
		return;
	if (karst_qp_state(peer->qp) != KARST_QPS_ERR || peer->bad_events == 0)
		sim_fail(s, "pair %u, QP %#x has refused a request; state %d, %u events (R13)",
			ep->pair->idx, peer->qpn, karst_qp_state(peer->qp), peer->bad_events);
}

static void
op_failed(struct sim *s, struct sim_ep *ep, struct sim_op *op, enum karst_wc_status status,
	uint32_t lost)
{
	sim_note(s, "pair %u QP %#x: number %u ends with status %u", ep->pair->idx, ep->qpn,
		(uint32_t)(op - ep->ops), status);
	check_error(s, ep, op, status, lost);
	check_refused(s, ep, status);
	ep_failed(ep);
	ep->send_failed = true;
	ep->hard_error |= status != KARST_WC_WR_FLUSH_ERR;
	s->stats.errors++;
	op->state = status == KARST_WC_WR_FLUSH_ERR ? OP_FLUSHED : OP_FAILED;
	if (op->opcode == KARST_WR_RDMA_READ || op->opcode == KARST_WR_ATOMIC_CAS ||
		op->opcode == KARST_WR_ATOMIC_FAA)
		sim_pieces_accept(ep->node, op->pieces, op->npieces);
	if (op->opcode == KARST_WR_BIND_MW || op->opcode == KARST_WR_LOCAL_INV)
		ep->mw.state = MW_LOST;
	if (op->opcode == KARST_WR_SEND_WITH_INV)
		ep->peer->mw.state = MW_LOST;
	op_release(ep, op);
}

static void
send_completion(struct sim *s, struct sim_ep *ep, const struct karst_cqe *e)
{
	uint32_t idx = WR_IDX(e->wr_id), lost = ep->adverse - ep->adverse_done;

	if (idx >= ep->nops || ep->ops[idx].wr_id != e->wr_id)
		sim_fail(s, "QP %#x: completion of a work request that was not posted: %#llx",
			ep->qpn, (unsigned long long)e->wr_id);
	if (idx < ep->done)
		sim_fail(s,
			"pair %u, QP %#x: number %u completed twice or out of order (status %u)",
			ep->pair->idx, ep->qpn, idx, e->status);
	for (; ep->done < idx; ep->done++) {
		struct sim_op *op = &ep->ops[ep->done];

		if (op->signaled || ep->send_failed)
			sim_fail(s,
				"pair %u, QP %#x: number %u completed with status %u, but number %u (%s%s) "
				"before it has not",
				ep->pair->idx, ep->qpn, idx, e->status, ep->done,
				sim_op_name(op->opcode), op->signaled ? ", signalled" : "");
		if (ep->pair->type == KARST_QPT_RC && op->npsn != 0 &&
			op->lpsn + op->npsn > ep->acked)
			sim_fail(s,
				"pair %u, QP %#x: number %u completed with status %u, number %u "
				"before it was not acknowledged",
				ep->pair->idx, ep->qpn, idx, e->status, ep->done);
		op_succeeded(s, ep, op);
	}
	if (e->status == KARST_WC_SUCCESS) {
		check_success(s, ep, &ep->ops[idx], e);
		op_succeeded(s, ep, &ep->ops[idx]);
	} else {
		op_failed(s, ep, &ep->ops[idx], e->status, lost);
	}
	ep->done++;
}

/* --- receive completions --- */

static void
recv_failed(struct sim *s, struct sim_ep *ep, struct sim_recv *r, enum karst_wc_status status)
{
	struct sim_pair *p = ep->pair;

	sim_note(s, "pair %u QP %#x: a receive ends with status %u", p->idx, ep->qpn, status);
	/* U1: with an SRQ, the receive of an incomplete message completes in error, and the queue
	 * pair continues */
	if (p->type == KARST_QPT_UC && ep->srq != NULL && status == KARST_WC_REM_INV_REQ_ERR &&
		(s->lossy || s->jumbled || p->fault != FAULT_NONE)) {
		sim_pieces_accept(ep->node, r->pieces, r->npieces);
		return;
	}
	if (status != KARST_WC_WR_FLUSH_ERR && !sim_fault_excuses(ep, NULL, status))
		sim_fail(s, "pair %u, QP %#x: a receive ended with status %u (fault: %s)", p->idx,
			ep->qpn, status, sim_fault_name(p->fault));
	/* The failed send may be in another completion queue that was not polled yet. */
	if (status == KARST_WC_WR_FLUSH_ERR && p->fault == FAULT_NONE && ep->asked != KARST_QPS_ERR)
		ep->unexplained = true;
	if (status != KARST_WC_WR_FLUSH_ERR)
		s->stats.errors++;
	ep_failed(ep);
	ep->recv_failed = true;
	sim_pieces_accept(ep->node, r->pieces, r->npieces);
}

static bool
message_fits(const struct sim_ep *ep, const struct sim_recv *r, const struct sim_op *op,
	const struct karst_cqe *e)
{
	uint32_t grh = ep->pair->type == KARST_QPT_UD ? 40 : 0;

	if (op->recv_seq == OP_NO_RECV || e->byte_len != op->len + grh)
		return false;
	if ((op->opcode == KARST_WR_RDMA_WRITE_WITH_IMM) !=
		(e->opcode == KARST_WC_RECV_RDMA_WITH_IMM))
		return false;
	if ((e->flags & KARST_WC_WITH_IMM) &&
		((op->opcode != KARST_WR_SEND_WITH_IMM &&
			 op->opcode != KARST_WR_RDMA_WRITE_WITH_IMM) ||
			e->imm != op->imm))
		return false;
	if (!(e->flags & KARST_WC_WITH_IMM) &&
		(op->opcode == KARST_WR_SEND_WITH_IMM ||
			op->opcode == KARST_WR_RDMA_WRITE_WITH_IMM))
		return false;
	if (((e->flags & KARST_WC_WITH_INV) != 0) != (op->opcode == KARST_WR_SEND_WITH_INV))
		return false;
	if (op->opcode == KARST_WR_RDMA_WRITE_WITH_IMM)
		return true;
	return sim_pieces_match(ep->node, r->pieces, r->npieces, grh, op->data, op->len,
		ep->pair->type != KARST_QPT_UC);
}

/* The message that a completion reports: for RC the next one, otherwise the next that matches. */
static struct sim_op *
match(struct sim *s, struct sim_ep *ep, const struct sim_recv *r, const struct karst_cqe *e)
{
	struct sim_ep *from = ep->peer;
	uint32_t i;

	for (i = ep->rx_next; i < from->nops; i++) {
		if (from->ops[i].recv_seq == OP_NO_RECV)
			continue;
		if (message_fits(ep, r, &from->ops[i], e)) {
			ep->rx_next = i + 1;
			return &from->ops[i];
		}
		if (ep->pair->type == KARST_QPT_RC)
			sim_fail(s,
				"pair %u, QP %#x: received opcode %u, %u bytes, flags %#x, imm %#x: not the "
				"peer's number %u (%s of %u bytes, imm %#x) or damaged",
				ep->pair->idx, ep->qpn, e->opcode, e->byte_len, e->flags, e->imm, i,
				sim_op_name(from->ops[i].opcode), from->ops[i].len,
				from->ops[i].imm);
	}
	if (ep->pair->type != KARST_QPT_RC && s->jumbled) {
		for (i = 0; i < ep->rx_next; i++) {
			if (message_fits(ep, r, &from->ops[i], e))
				return &from->ops[i];
		}
	}
	sim_fail(s, "pair %u, QP %#x: received %u bytes that nobody sent, or not whole, or not now",
		ep->pair->idx, ep->qpn, e->byte_len);
}

static void
check_grh(struct sim *s, struct sim_ep *ep, const struct sim_recv *r, const struct karst_cqe *e)
{
	uint8_t grh[40];
	uint32_t i, at = 0, n;
	const struct karst_path *path = &ep->peer->path;

	if (ep->pair->type != KARST_QPT_UD)
		return;
	if (e->src_qpn != ep->peer->qpn || (e->flags & KARST_WC_GRH) == 0)
		sim_fail(s, "pair %u, QP %#x: source QP %#x, flags %#x", ep->pair->idx, ep->qpn,
			e->src_qpn, e->flags);
	for (i = 0; i < r->npieces && at < 40; i++, at += n) {
		n = karst_min_u32(r->pieces[i].len, 40 - at);
		memcpy(grh + at, ep->node->mem + r->pieces[i].off, n);
	}
	if (path->ip6 ? grh[0] >> 4 != 6 || memcmp(grh + 8, path->src_ip, 16) ||
				memcmp(grh + 24, path->dst_ip, 16)
		      : grh[20] != 0x45 || memcmp(grh + 32, path->src_ip + 12, 4) ||
				memcmp(grh + 36, path->dst_ip + 12, 4))
		sim_fail(s, "pair %u, QP %#x: the GRH area is not the sender's header (U1)",
			ep->pair->idx, ep->qpn);
}

/* When a receive completes, the data of its message is in memory, and so is the data of the WRITE
 * that it ends (R14). */
static void
recv_succeeded(struct sim *s, struct sim_ep *ep, struct sim_recv *r, const struct karst_cqe *e)
{
	struct sim_op *op;

	if (ep->recv_failed)
		sim_fail(s, "pair %u, QP %#x: a receive succeeds behind an error", ep->pair->idx,
			ep->qpn);
	if (r->bad && e->opcode == KARST_WC_RECV && e->byte_len != 0)
		sim_fail(s, "pair %u, QP %#x: a receive with a bad key succeeds", ep->pair->idx,
			ep->qpn);
	op = match(s, ep, r, e);
	if (op->srq != r->srq && ep->pair->xrc)
		sim_fail(s, "pair %u, QP %#x: number %u is for SRQ %u and came to %u (U3)",
			ep->pair->idx, ep->qpn, (uint32_t)(op - ep->peer->ops), op->srq, r->srq);
	op->received = true;
	ep->rx_received++;
	if (ep->pair->type == KARST_QPT_RC && ep->rcq->armed == KARST_CQ_ARM_SOLICITED &&
		(op->flags & KARST_SEND_SOLICITED) != 0)
		sim_fail(s, "pair %u, QP %#x: a solicited completion without event", ep->pair->idx,
			ep->qpn);
	check_grh(s, ep, r, e);
	if (op->opcode == KARST_WR_RDMA_WRITE_WITH_IMM && op->state == OP_POSTED &&
		ep->pair->type == KARST_QPT_RC)
		sim_cell_shows(s, ep->peer, op);
	if (op->opcode == KARST_WR_SEND_WITH_INV)
		window_gone(s, ep, op->imm);
	sim_pieces_accept(ep->node, r->pieces, r->npieces);
}

static void
recv_completion(struct sim *s, struct sim_ep *ep, struct sim_recv *r, const struct karst_cqe *e)
{
	if (r->done)
		sim_fail(s, "pair %u, QP %#x: a receive completed twice", ep->pair->idx, ep->qpn);
	r->done = true;
	if (e->status == KARST_WC_SUCCESS)
		recv_succeeded(s, ep, r, e);
	else
		recv_failed(s, ep, r, e->status);
	r->buf->busy = false;
	s->last_progress_ns = s->now_ns;
}

static void
own_recv(struct sim *s, struct sim_ep *ep, const struct karst_cqe *e)
{
	uint32_t idx = WR_IDX(e->wr_id);

	if (idx >= ep->nrecvs || idx != ep->rdone)
		sim_fail(s, "pair %u, QP %#x: receive %u completed instead of %u", ep->pair->idx,
			ep->qpn, idx, ep->rdone);
	ep->rdone++;
	ep->rq_used--;
	recv_completion(s, ep, &ep->recvs[idx], e);
}

static void
shared_recv(struct sim *s, struct sim_cq *cq, struct sim_ep *ep, const struct karst_cqe *e)
{
	uint32_t idx = WR_IDX(e->wr_id), which = WR_B(e->wr_id) / SIM_MAX_CORES % SIM_SRQS;
	struct sim_core *c = &cq->node->cores[WR_B(e->wr_id) % SIM_MAX_CORES];
	struct sim_srq *q = &c->srq[which];

	if (idx >= q->nrecvs || ep->core != c || ep->srq == NULL || (which != 0) != ep->pair->xrc)
		sim_fail(s, "QP %#x: completion of a shared receive that was not posted", ep->qpn);
	q->taken++;
	q->used--;
	recv_completion(s, ep, &q->recvs[idx], e);
}

/* --- both --- */

/* The endpoint with the QPN of a completion, even if its QP was destroyed. */
static struct sim_ep *
ep_by_qpn(struct sim *s, struct sim_node *n, uint32_t qpn)
{
	uint32_t i;

	for (i = 0; i < s->npairs * 2; i++) {
		struct sim_ep *ep = &s->pairs[i / 2].ep[i & 1];

		if (ep->node == n && (ep->qpn == qpn || ep->target_qpn == qpn))
			return ep;
	}
	return NULL;
}

/* Checks that no completion arrives in an armed queue without the event that it must raise. */
static void
check_event(struct sim *s, struct sim_cq *cq, const struct sim_ep *ep, const struct karst_cqe *e)
{
	if (cq->armed == KARST_CQ_ARM_NEXT ||
		(cq->armed == KARST_CQ_ARM_SOLICITED && e->status != KARST_WC_SUCCESS))
		sim_fail(s, "QP %#x: completion (status %u) in a CQ armed with %u, without event",
			ep->qpn, e->status, cq->armed);
}

/* Completions of a victim are not checked; its program continues if it can. */
static void
victim_completion(struct sim *s, struct sim_ep *ep, const struct karst_cqe *e)
{
	uint32_t idx = WR_IDX(e->wr_id);

	if (e->status != KARST_WC_SUCCESS && ep->state == EP_LIVE)
		ep->state = EP_ERROR;
	if (WR_KIND(e->wr_id) == 1 && idx < ep->nops && ep->ops[idx].wr_id == e->wr_id &&
		ep->ops[idx].state == OP_POSTED) {
		ep->ops[idx].state = OP_DONE;
		if (ep->ops[idx].buf != NULL)
			ep->ops[idx].buf->busy = false;
		ep->sq_used -= ep->sq_used != 0;
		s->last_progress_ns = s->now_ns;
	}
	if (WR_KIND(e->wr_id) == 2 && idx < ep->nrecvs && !ep->recvs[idx].done) {
		ep->recvs[idx].done = true;
		ep->recvs[idx].buf->busy = false;
		ep->rq_used -= ep->rq_used != 0;
	}
}

void
sim_completion(struct sim *s, struct sim_cq *cq, const struct karst_cqe *e)
{
	struct sim_ep *ep = ep_by_qpn(s, cq->node, e->qpn);
	unsigned int kind = WR_KIND(e->wr_id);

	s->stats.completions++;
	if (ep == NULL)
		sim_fail(s, "a completion of QP %#x, which does not exist", e->qpn);
	if (ep->pair->victim) {
		victim_completion(s, ep, e);
		return;
	}
	check_event(s, cq, ep, e);
	if (kind < 1 || kind > 3)
		sim_fail(s, "QP %#x: a completion with wr_id %#llx", e->qpn,
			(unsigned long long)e->wr_id);
	if (WR_EPOCH(e->wr_id) != (s->epoch & 15) && kind != 3)
		sim_fail(s, "QP %#x: a completion of before the reset", e->qpn);
	if (kind != 3 &&
		(WR_A(e->wr_id) != ep->pair->idx || WR_B(e->wr_id) != (ep == &ep->pair->ep[1])))
		sim_fail(s, "QP %#x: a completion of another QP's work request", e->qpn);
	if (e->qpn != (kind == 1 ? ep->qpn : ep->target_qpn))
		sim_fail(s, "QP %#x: a completion that is for the other half of it", e->qpn);
	if (cq != (kind == 1 ? ep->scq : ep->rcq))
		sim_fail(s, "QP %#x: a completion in the wrong CQ", e->qpn);
	if (ep->state == EP_GONE)
		return;
	if (kind == 1)
		send_completion(s, ep, e);
	else if (kind == 2)
		own_recv(s, ep, e);
	else
		shared_recv(s, cq, ep, e);
}

/* Reset and destruction discard all requests without completions. */
void
sim_ep_lost(struct sim_ep *ep)
{
	for (; ep->done < ep->nops; ep->done++) {
		struct sim_op *op = &ep->ops[ep->done];

		op->state = OP_GONE;
		if (op->opcode == KARST_WR_RDMA_READ || op->opcode == KARST_WR_ATOMIC_CAS ||
			op->opcode == KARST_WR_ATOMIC_FAA)
			sim_pieces_accept(ep->node, op->pieces, op->npieces);
		if (op->opcode == KARST_WR_BIND_MW || op->opcode == KARST_WR_LOCAL_INV)
			ep->mw.state = MW_LOST;
		if (op->opcode == KARST_WR_SEND_WITH_INV)
			ep->peer->mw.state = MW_LOST;
		op_release(ep, op);
	}
	for (; ep->rdone < ep->nrecvs; ep->rdone++) {
		struct sim_recv *r = &ep->recvs[ep->rdone];

		sim_pieces_accept(ep->node, r->pieces, r->npieces);
		r->done = true;
		r->buf->busy = false;
		ep->rq_used--;
	}
	ep_failed(ep);
	ep->state = EP_GONE;
}

/* --- asynchronous events --- */

static void
qp_event(struct sim *s, enum karst_async_event_code ev, struct karst_core_qp *qp)
{
	struct sim_ep *ep = karst_qp_user(qp);
	struct sim_pair *p = ep->pair;

	if (p->victim)
		return;
	switch (ev) {
	case KARST_EVENT_COMM_EST:
		ep->comm_est = true;
		break;
	case KARST_EVENT_PATH_MIG:
		sim_paths_event(s, ep);
		sim_delay_migrated(ep);
		sim_marks_migrated(ep);
		break;
	case KARST_EVENT_SQ_DRAINED:
		if (!ep->draining || ep->drained)
			sim_fail(s, "pair %u, QP %#x: SQ_DRAINED that nobody asked for", p->idx,
				ep->qpn);
		ep->drained = true;
		break;
	case KARST_EVENT_QP_LAST_WQE_REACHED:
		if (ep->srq == NULL || ep->last_wqe_event || (p->xrc && qp != ep->target))
			sim_fail(s, "pair %u, QP %#x: LAST_WQE_REACHED", p->idx, ep->qpn);
		ep->last_wqe_event = true;
		break;
	default:
		if (p->fault == FAULT_NONE)
			sim_fail(s, "pair %u, QP %#x: asynchronous event %d", p->idx, ep->qpn, ev);
		ep->bad_events++;
		break;
	}
}

void
sim_async(struct sim *s, struct sim_core *c, enum karst_async_event_code ev, void *object)
{
	struct sim_cq *cq;
	struct sim_srq *q;

	sim_note(s, "node %u core %u: asynchronous event %d", c->node->idx, c->idx, ev);
	switch (ev) {
	case KARST_EVENT_CQ_ERR:
		cq = karst_cq_user(object);
		if (!cq->exclusive)
			sim_fail(s, "a completion queue with room has overflown");
		cq->overflow = true;
		break;
	case KARST_EVENT_SRQ_LIMIT_REACHED:
		q = karst_srq_user(object);
		if (q->limit == 0)
			sim_fail(s, "SRQ limit event without a limit");
		if (q->nrecvs - q->taken >= q->limit + SIM_MAX_PAIRS * 2)
			sim_fail(s, "SRQ limit event with %u left, the limit is %u",
				q->nrecvs - q->taken, q->limit);
		q->limit = 0;
		q->limit_events++;
		break;
	case KARST_EVENT_SRQ_ERR:
		sim_fail(s, "SRQ error event");
	default:
		qp_event(s, ev, object);
		break;
	}
}
