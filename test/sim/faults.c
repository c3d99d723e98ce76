/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Injected faults, and the errors that each of them excuses.
 *
 * A fault is either a correct work request that is changed so that it must fail in one way, or an
 * action of the program on its queue pair at some time.  Everything else of the schedule, other
 * connections and all other memory, must not be affected.
 *
 * Keys, ranges and access that do not fit (R1), words that are not aligned (R7), messages that are
 * too long or name a key that cannot be invalidated (R9) and peers that are never ready (R8, Q7)
 * end with the statuses of Q6 to Q8 at the requester.
 */
#include "sim.h"

static const char *const fault_names[FAULT_MAX] = {"none", "peer dies", "bad R_Key", "out of range",
	"no access", "misaligned", "SEND too long", "RNR", "bad L_Key", "bad L_Key of a receive",
	"bad key to invalidate", "key of an unbound window", "bad work request",
	"bad local invalidation", "bad bind", "moved to Error", "reset", "destroyed",
	"region deregistered", "CQ overflow", "scribbled rings", "forged frames"};

const char *
sim_fault_name(enum sim_fault f)
{
	return f < FAULT_MAX ? fault_names[f] : "?";
}

static bool
is_op(enum sim_fault f)
{
	switch (f) {
	case FAULT_BAD_RKEY:
	case FAULT_RANGE:
	case FAULT_ACCESS:
	case FAULT_MISALIGNED:
	case FAULT_LONG_SEND:
	case FAULT_LOCAL_KEY:
	case FAULT_BAD_INV:
	case FAULT_STALE_MW:
	case FAULT_BAD_WQE:
	case FAULT_LOCAL_INV:
	case FAULT_BIND:
		return true;
	default:
		return false;
	}
}

bool
sim_fault_due(const struct sim_ep *ep)
{
	const struct sim_pair *p = ep->pair;

	if (ep != &p->ep[p->fault_end] || ep->fault_done || !is_op(p->fault) ||
		ep->nops < ep->fault_at)
		return false;
	return p->fault != FAULT_STALE_MW || ep->peer->mw.stale_key != 0;
}

unsigned int
sim_fault_opcode(struct sim_ep *ep)
{
	static const uint8_t remote[] = {KARST_WR_RDMA_WRITE, KARST_WR_RDMA_READ,
		KARST_WR_ATOMIC_FAA, KARST_WR_ATOMIC_CAS, KARST_WR_ATOMIC_WRITE,
		KARST_WR_RDMA_WRITE_WITH_IMM, KARST_WR_FLUSH};
	struct sim_rng *r = &ep->s->rng;

	switch (ep->pair->fault) {
	case FAULT_BAD_RKEY:
	case FAULT_ACCESS:
	case FAULT_RANGE:
		return remote[rng_below(r, KARST_DIM(remote))];
	case FAULT_STALE_MW:
		return remote[rng_below(r, 2)];
	case FAULT_MISALIGNED:
		return remote[rng_range(r, 2, 4)];
	case FAULT_LOCAL_KEY:
		if (ep->pair->type == KARST_QPT_UD)
			return KARST_WR_SEND;
		if (ep->pair->type == KARST_QPT_UC)
			return rng_one_in(r, 2) ? KARST_WR_SEND : KARST_WR_RDMA_WRITE;
		return rng_one_in(r, 3) ? KARST_WR_SEND : remote[rng_below(r, 4)];
	default:
		return KARST_WR_SEND;
	}
}

/* --- spoiling a work request --- */

/* An operation that is not executed does not change the word.  One whose local key is wrong is
 * executed. */
static void
word_not_posted(struct sim_op *op)
{
	if (op->word != NULL && op->word->kind == WORD_FAA)
		op->word->posted_bits &= ~op->compare_add;
}

/* Gives the work request one SGE for the whole message, without inline data. */
static struct karst_sge *
plain_sge(struct sim_ep *ep, struct sim_op *op, struct karst_send_wqe *w, uint32_t len)
{
	struct sim *s = ep->s;
	bool atomic = op->opcode == KARST_WR_ATOMIC_CAS || op->opcode == KARST_WR_ATOMIC_FAA;
	struct karst_sge *sge = atomic ? w->atomic.sge : w->sge;
	struct sim_buf *b = op->buf;
	uint32_t i;

	if (b == NULL) {
		for (i = 0; i < ep->nbufs && ep->bufs[i].busy; i++)
			;
		b = op->buf = &ep->bufs[i < ep->nbufs ? i : 0];
	}
	b->busy = true;
	w->flags &= (uint8_t)~KARST_SEND_INLINE;
	w->num = 1;
	op->len = len;
	op->npieces = 1;
	op->pieces = sim_alloc_raw(s, sizeof(*op->pieces));
	op->pieces[0].off = b->off;
	op->pieces[0].len = len;
	sge->addr = b->mr->va + (b->off - b->mr->off);
	sge->len = len;
	sge->lkey = b->mr->key;
	if (op->data != NULL) {
		op->data = sim_alloc_raw(s, len + 8);
		sim_fill(op->data, len, rng_u64(&s->rng));
		memcpy(ep->node->mem + b->off, op->data, len);
		memcpy(ep->node->shadow + b->off, op->data, len);
	}
	return sge;
}

static void
spoil_range(struct sim_ep *ep, struct sim_op *op, struct karst_send_wqe *w)
{
	const struct sim_mr *mr = op->word ? op->word->mr : op->cell->mr;
	uint32_t first = op->len; /* bytes that the peer checks first */

	/* The range of each packet of a divided WRITE is checked by itself (Q13).  If the first one
	 * were within the region, it would be executed, and could overwrite an atomic word. */
	if (sim_is_divided(ep->s, ep, op))
		first = karst_min_u32(first, 1u << ep->pair->mtu_shift);
	op->mw = NULL;
	op->rkey = mr->key;
	switch (rng_below(&ep->s->rng, 3)) {
	case 0:
		op->rva = mr->va + mr->len - (first & ~7u) + 8;
		break;
	case 1:
		op->rva = mr->va - 8;
		break;
	default:
		op->rva = mr->va + mr->len;
		break;
	}
	op->expect = KARST_WC_REM_ACCESS_ERR;
	w->rdma.remote_addr = op->rva;
	w->rdma.rkey = op->rkey;
}

static void
spoil_access(struct sim_ep *ep, struct sim_op *op, struct karst_send_wqe *w)
{
	const struct sim_mr *mr = ep->peer->lmr;

	if (ep->peer->access == 0)
		return; /* all accesses fail */
	if (mr == ep->peer->tmr) {
		spoil_range(ep, op, w);
		return;
	}
	op->mw = NULL;
	op->rkey = mr->key;
	op->rva = (mr->va + 7) & ~7ull;
	op->expect = KARST_WC_REM_ACCESS_ERR;
	w->rdma.remote_addr = op->rva;
	w->rdma.rkey = op->rkey;
}

static void
spoil_local(struct sim_ep *ep, struct sim_op *op, struct karst_send_wqe *w)
{
	struct karst_sge *sge = plain_sge(ep, op, w, op->len);

	if (rng_one_in(&ep->s->rng, 2))
		sge->lkey ^= 1u << rng_below(&ep->s->rng, 32);
	else
		sge->addr = op->buf->mr->va + op->buf->mr->len - rng_below(&ep->s->rng, sge->len);
	op->expect = KARST_WC_LOC_PROT_ERR;
}

/* Changes a SEND to an operation that uses no PSN and no buffer. */
static void
strip(struct sim_op *op, struct karst_send_wqe *w, unsigned int opcode)
{
	w->opcode = (uint8_t)opcode;
	w->flags &= (uint8_t)~KARST_SEND_INLINE;
	w->num = 0;
	op->opcode = (uint8_t)opcode;
	op->len = 0;
	op->npieces = 0;
	if (op->buf != NULL)
		op->buf->busy = false;
	op->buf = NULL;
}

static void
spoil_wqe(struct sim_ep *ep, struct sim_op *op, struct karst_send_wqe *w)
{
	static const uint8_t unknown[] = {10, 11, 12, 13, 16, 200, 255};
	struct sim_rng *r = &ep->s->rng;

	op->expect = SIM_EXPECT_FAIL;
	switch (rng_below(r, 3)) {
	case 0:
		w->opcode = unknown[rng_below(r, KARST_DIM(unknown))];
		break;
	case 1:
		w->flags &= (uint8_t)~KARST_SEND_INLINE;
		w->num = (uint16_t)rng_range(r, ep->init.max_send_sge + 1, 65535);
		break;
	default:
		w->flags |= KARST_SEND_INLINE;
		w->num = (uint16_t)rng_range(r, ep->init.max_inline + 1, 65535);
		break;
	}
}

static void
spoil_bind(struct sim_ep *ep, struct sim_op *op, struct karst_send_wqe *w)
{
	const struct sim_mr *mr = ep->tmr;

	strip(op, w, KARST_WR_BIND_MW);
	w->bind.addr = mr->va + mr->len - 8;
	w->bind.len = 9 + rng_below(&ep->s->rng, 100);
	w->bind.mw_key = ep->mw.key;
	w->bind.new_key = ep->mw.key + 1;
	w->bind.mr_key = mr->key;
	w->bind.access = KARST_ACCESS_REMOTE_READ;
	op->expect = KARST_WC_MW_BIND_ERR;
}

void
sim_fault_op(struct sim_ep *ep, struct sim_op *op, struct karst_send_wqe *w)
{
	struct sim *s = ep->s;
	struct sim_pair *p = ep->pair;

	ep->fault_done = true;
	switch (p->fault) {
	case FAULT_BAD_RKEY:
		op->mw = NULL;
		op->rkey ^= 1u << rng_below(&s->rng, 32);
		w->rdma.rkey = op->rkey;
		op->expect = KARST_WC_REM_ACCESS_ERR;
		break;
	case FAULT_RANGE:
		spoil_range(ep, op, w);
		break;
	case FAULT_ACCESS:
		spoil_access(ep, op, w);
		break;
	case FAULT_MISALIGNED:
		op->rva += rng_range(&s->rng, 1, 7);
		w->rdma.remote_addr = op->rva;
		op->expect = KARST_WC_REM_INV_REQ_ERR;
		break;
	case FAULT_LONG_SEND:
		plain_sge(ep, op, w, p->msg_max + 24 + rng_below(&s->rng, 60));
		op->expect = KARST_WC_REM_INV_REQ_ERR;
		break;
	case FAULT_LOCAL_KEY:
		spoil_local(ep, op, w);
		break;
	case FAULT_BAD_INV:
		w->opcode = op->opcode = KARST_WR_SEND_WITH_INV;
		op->imm = w->imm = (uint32_t)rng_u64(&s->rng);
		op->expect = SIM_EXPECT_ANY;
		break;
	case FAULT_STALE_MW:
		op->mw = NULL;
		op->rkey = w->rdma.rkey = ep->peer->mw.stale_key;
		op->expect = KARST_WC_REM_ACCESS_ERR;
		break;
	case FAULT_BAD_WQE:
		spoil_wqe(ep, op, w);
		break;
	case FAULT_LOCAL_INV:
		strip(op, w, KARST_WR_LOCAL_INV);
		op->imm = w->imm = (uint32_t)rng_u64(&s->rng);
		op->expect = SIM_EXPECT_FAIL;
		break;
	case FAULT_BIND:
		spoil_bind(ep, op, w);
		break;
	default:
		break;
	}
	if (op->expect != KARST_WC_SUCCESS && op->expect != KARST_WC_LOC_PROT_ERR)
		word_not_posted(op);
	sim_note(s, "pair %u QP %#x: number %u is faulty: %s", p->idx, ep->qpn, ep->nops,
		sim_fault_name(p->fault));
}

/* --- what a program does to its queue pair --- */

static void
fault_modify(struct sim_ep *ep, enum karst_qp_state to)
{
	struct karst_core_qp_attr a = {.qp_state = to};
	int rc;

	ep->core->core->now_ns = ep->s->now_ns;
	rc = karst_qp_modify(ep->core->core, ep->qp, &a, KARST_QP_STATE);
	if (rc != 0)
		sim_fail(ep->s, "pair %u, QP %#x: modify to state %d: %d", ep->pair->idx, ep->qpn,
			to, rc);
	ep->asked = to;
}

static void
dereg(struct sim_ep *ep)
{
	int rc = karst_mr_dereg_begin(ep->node->mem_table, ep->tmr->key);

	if (rc == -EBUSY && ep->mw.state != MW_UNBOUND)
		return;
	if (rc != 0)
		sim_fail(ep->s, "karst_mr_dereg_begin(): %d", rc);
	karst_mr_dereg_end(ep->node->mem_table, ep->tmr->key);
	ep->tmr->gone = true;
}

/* Writes garbage over memory that the program may write.  The engine must tolerate this. */
static void
scribble(struct sim_ep *ep)
{
	struct sim *s = ep->s;
	struct sim_rng *r = &s->rng;
	struct karst_wq *q = ep->rq.sh != NULL && rng_one_in(r, 3) ? &ep->rq : &ep->sq;
	uint32_t bytes = (q->mask + 1) << q->shift, n = rng_log(r, 1, 64), i;

	ep->scribbles--;
	switch (rng_below(r, 6)) {
	case 0:
		atomic_store(&q->sh->tail, (uint32_t)rng_u64(r));
		break;
	case 1:
		atomic_store(&q->sh->tail, atomic_load(&q->sh->tail) + rng_below(r, 2 * q->mask));
		break;
	case 2:
		atomic_store(&q->sh->head, (uint32_t)rng_u64(r));
		atomic_store(&q->sh->idle, (uint32_t)rng_u64(r));
		break;
	case 3:
		karst_cq_lane(ep->scq->lanes, ep->scq->entries, 0, ep->core->idx)->head =
			(uint32_t)rng_u64(r);
		break;
	default:
		for (i = 0; i < n; i++)
			q->slots[rng_below(r, bytes)] = (uint8_t)rng_u64(r);
		if (rng_one_in(r, 2))
			atomic_store(&q->sh->tail,
				atomic_load(&q->sh->tail) + rng_below(r, q->mask + 2));
		break;
	}
	if (rng_one_in(r, 2))
		karst_core_doorbell(ep->core->core, ep->qpn);
}

static bool
strike_victim(struct sim_ep *ep, enum sim_eager eager)
{
	if (ep->pair->fault == FAULT_FORGED ||
		(ep->nops < ep->fault_at && eager != EAGER && !rng_one_in(&ep->s->rng, 8)))
		return false;
	ep->core->core->now_ns = ep->s->now_ns;
	scribble(ep);
	return true;
}

bool
sim_fault_strike(struct sim_ep *ep, enum sim_eager eager)
{
	struct sim_pair *p = ep->pair;

	if (p->victim)
		return strike_victim(ep, eager);
	if (ep != &p->ep[p->fault_end] || ep->fault_done || is_op(p->fault) ||
		ep->nops < ep->fault_at || ep->s->finishing || ep->state != EP_LIVE)
		return false;
	switch (p->fault) {
	case FAULT_PEER_DIES:
		p->dead_ns = ep->s->now_ns;
		break;
	case FAULT_TO_ERR:
		fault_modify(ep, KARST_QPS_ERR);
		break;
	case FAULT_RESET:
		fault_modify(ep, KARST_QPS_RESET);
		sim_ep_lost(ep);
		break;
	case FAULT_DESTROY:
		sim_ep_destroy(ep);
		sim_ep_lost(ep);
		break;
	case FAULT_DEREG:
		dereg(ep);
		break;
	case FAULT_CQ_OVERFLOW:
		ep->scq->neglected = ep->rcq->neglected = true;
		break;
	default:
		return false;
	}
	ep->fault_done = true;
	sim_note(ep->s, "pair %u QP %#x: %s", p->idx, ep->qpn, sim_fault_name(p->fault));
	return true;
}

/* A program that has not polled its completion queue finally moves its queue pair to Error. */
bool
sim_fault_give_up(struct sim_ep *ep)
{
	if (!ep->scq->neglected || ep->state == EP_GONE || ep->s->finishing ||
		karst_qp_state(ep->qp) == KARST_QPS_ERR || !sim_ep_idle(ep) ||
		!rng_one_in(&ep->s->rng, 8))
		return false;
	fault_modify(ep, KARST_QPS_ERR);
	return true;
}

/* --- excuses --- */

bool
sim_fault_excuses(const struct sim_ep *ep, const struct sim_op *op, enum karst_wc_status status)
{
	const struct sim_pair *p = ep->pair;
	bool mine = ep == &p->ep[p->fault_end];

	switch (p->fault) {
	case FAULT_RNR:
		return op != NULL && mine && status == KARST_WC_RNR_RETRY_EXC_ERR;
	case FAULT_LONG_SEND:
		return op == NULL && !mine && status == KARST_WC_LOC_LEN_ERR;
	case FAULT_BAD_INV:
		return op == NULL && !mine;
	case FAULT_RECV_KEY:
		return op == NULL ? mine && status == KARST_WC_LOC_PROT_ERR
				  : !mine && status == KARST_WC_REM_OP_ERR;
	case FAULT_DEREG:
		return status == KARST_WC_REM_ACCESS_ERR || status == KARST_WC_LOC_PROT_ERR ||
			status == KARST_WC_REM_OP_ERR || status == KARST_WC_MW_BIND_ERR;
	default:
		return false;
	}
}
