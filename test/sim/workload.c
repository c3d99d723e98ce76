/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The programs.  Each endpoint has one; it posts receives and sends, polls and arms completion
 * queues, drains its queue from time to time, and follows the rules of verbs: it posts no more than
 * may complete, touches no buffer that a work request owns, and uses a window only while it is
 * bound.
 */
#include "sim.h"

/* --- completion queue room --- */

/*
 * A work request is posted only if there is room for its completion; the entries of a completion
 * queue are divided equally among its users.  A send queue with outstanding unsignaled requests
 * reserves one more entry, for the signaled request that must follow.
 */
static bool
cq_room(const struct sim_cq *cq, uint32_t used, uint32_t n)
{
	return cq->neglected || used + n <= cq->entries / cq->users;
}

/* --- buffers --- */

static struct sim_buf *
buf_get(struct sim *s, struct sim_buf *b, uint32_t n)
{
	uint32_t first = rng_below(&s->rng, n), i;

	for (i = 0; i < n; i++) {
		struct sim_buf *x = &b[(first + i) % n];

		if (!x->busy)
			return x;
	}
	return NULL;
}

/* Cuts @len bytes of a buffer into 1..max pieces with gaps. */
static uint32_t
cut(struct sim *s, const struct sim_buf *b, uint32_t len, uint32_t max, struct sim_piece **out)
{
	uint32_t n = rng_range(&s->rng, 1, max), i, at = 0, slack = b->len - len;
	struct sim_piece *p;

	p = sim_alloc_raw(s, n * sizeof(*p));
	for (i = 0; i < n; i++) {
		uint32_t gap = rng_below(&s->rng, slack / 4 + 1);

		at += gap;
		slack -= gap;
		p[i].len = i == n - 1 ? len : rng_below(&s->rng, len + 1);
		p[i].off = b->off + at;
		at += p[i].len;
		len -= p[i].len;
	}
	*out = p;
	return n;
}

static uint64_t
va_of(const struct sim_mr *mr, uint32_t off)
{
	return mr->va + (off - mr->off);
}

static void
put_sges(struct karst_sge *sge, const struct sim_buf *b, const struct sim_piece *p, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		sge[i].addr = va_of(b->mr, p[i].off);
		sge[i].len = p[i].len;
		sge[i].lkey = b->mr->key;
	}
}

/* --- receives --- */

static uint32_t
recv_bytes(struct sim *s, const struct sim_ep *ep, uint32_t msg_max)
{
	return msg_max + rng_below(&s->rng, 24) + (ep && ep->pair->type == KARST_QPT_UD ? 40 : 0);
}

static void
fill_recv(struct karst_recv_wqe *w, struct sim_recv *r, uint32_t total)
{
	memset(r, 0, sizeof(*r));
	r->total = total;
	w->reserved = 0;
}

static void
post_recv_one(struct sim_ep *ep, struct sim_buf *b)
{
	struct sim *s = ep->s;
	struct karst_recv_wqe *w = karst_wq_slot(&ep->rq, 0);
	struct sim_recv *r = &ep->recvs[ep->nrecvs];
	const struct sim_pair *p = ep->pair;

	fill_recv(w, r, recv_bytes(s, ep, p->msg_max));
	r->buf = b;
	b->busy = true;
	r->npieces = cut(s, b, r->total, ep->init.max_recv_sge, &r->pieces);
	r->wr_id = w->wr_id = sim_wr_id(s, 2, p->idx, ep == &p->ep[1], ep->nrecvs);
	w->num_sge = r->npieces;
	put_sges(w->sge, b, r->pieces, r->npieces);
	if (p->fault == FAULT_RECV_KEY && ep == &p->ep[p->fault_end] && !ep->fault_done &&
		ep->nrecvs >= ep->fault_at / 4) {
		w->sge[0].lkey ^= 1u << rng_below(&s->rng, 32);
		w->sge[0].len = r->pieces[0].len == 0 ? 1 : w->sge[0].len;
		r->bad = true;
		ep->fault_done = true;
	}
	ep->nrecvs++;
	ep->rq_used++;
	s->stats.recvs++;
	if (karst_wq_publish(&ep->rq, 1))
		sim_ring(ep);
}

static bool
post_recvs(struct sim_ep *ep, enum sim_eager eager)
{
	struct sim *s = ep->s;
	const struct sim_pair *p = ep->pair;
	uint32_t n = rng_range(&s->rng, 1, 8);
	bool did = false;
	struct sim_buf *b;

	if (ep->srq != NULL || ep->state != EP_LIVE || s->finishing)
		return false;
	if (p->fault == FAULT_RNR && ep == &p->ep[1 - p->fault_end] &&
		ep->nrecvs >= ep->fault_at / 4)
		return false;
	if (p->rnr_pressure && eager != EAGER && !rng_one_in(&s->rng, eager == LAZY ? 12 : 3))
		return false;
	if (p->rnr_pressure)
		n = 1;
	while (n-- > 0 && ep->nrecvs < ep->recvs_cap && karst_wq_free(&ep->rq, 1) != 0 &&
		cq_room(ep->rcq, ep->rq_used, 1) &&
		(b = buf_get(s, ep->rbufs, ep->nrbufs)) != NULL) {
		post_recv_one(ep, b);
		did = true;
	}
	return did;
}

static bool
post_srq(struct sim *s, struct sim_srq *q, enum sim_eager eager)
{
	struct sim_core *c = q->core;
	struct karst_recv_wqe *w;
	struct sim_recv *r;
	struct sim_buf *b;
	int rc;

	if (q->srq == NULL || s->finishing || q->nrecvs == q->cap)
		return false;
	if (eager == LAZY && !rng_one_in(&s->rng, 4))
		return false;
	if (karst_wq_free(&q->wq, 1) == 0 || !cq_room(q->rcq, q->used, 1) ||
		(b = buf_get(s, q->bufs, q->nbufs)) == NULL)
		return false;
	w = karst_wq_slot(&q->wq, 0);
	r = &q->recvs[q->nrecvs];
	fill_recv(w, r, q->msg_max + 40 + rng_below(&s->rng, 16));
	r->buf = b;
	b->busy = true;
	r->npieces = cut(s, b, r->total, q->max_sge, &r->pieces);
	r->srq = q->which;
	r->wr_id = w->wr_id =
		sim_wr_id(s, 3, c->node->idx, c->idx + SIM_MAX_CORES * q->which, q->nrecvs);
	w->num_sge = r->npieces;
	put_sges(w->sge, b, r->pieces, r->npieces);
	q->nrecvs++;
	q->used++;
	s->stats.recvs++;
	karst_wq_publish(&q->wq, 1);
	if (q->limit == 0 && rng_one_in(&s->rng, 16)) {
		q->limit = rng_range(&s->rng, 1, q->slots);
		rc = karst_srq_set_limit(c->core, q->srq, q->limit);
		if (rc != 0)
			sim_fail(s, "karst_srq_set_limit(%u of %u): %d", q->limit, q->slots, rc);
	}
	return true;
}

bool
sim_post_srq(struct sim *s, struct sim_core *c, enum sim_eager eager)
{
	bool did = false;
	uint32_t i;

	for (i = 0; i < SIM_SRQS; i++)
		did |= post_srq(s, &c->srq[i], eager);
	return did;
}

/* --- sends --- */

static bool
wr_takes_recv(unsigned int opcode)
{
	return opcode == KARST_WR_SEND || opcode == KARST_WR_SEND_WITH_IMM ||
		opcode == KARST_WR_SEND_WITH_INV || opcode == KARST_WR_RDMA_WRITE_WITH_IMM;
}

static bool
wr_is_send(unsigned int opcode)
{
	return opcode == KARST_WR_SEND || opcode == KARST_WR_SEND_WITH_IMM ||
		opcode == KARST_WR_SEND_WITH_INV;
}

static bool
wr_is_write(unsigned int opcode)
{
	return opcode == KARST_WR_RDMA_WRITE || opcode == KARST_WR_RDMA_WRITE_WITH_IMM;
}

static bool
wr_is_atomic(unsigned int opcode)
{
	return opcode == KARST_WR_ATOMIC_CAS || opcode == KARST_WR_ATOMIC_FAA;
}

/* Whether the program may post the operation now, as far as the program knows. */
static bool
feasible(const struct sim_ep *ep, unsigned int opcode)
{
	const struct sim_mw *mine = &ep->mw, *theirs = &ep->peer->mw;

	switch (opcode) {
	case KARST_WR_BIND_MW:
		return mine->state == MW_UNBOUND;
	case KARST_WR_LOCAL_INV:
		return mine->state == MW_BOUND && mine->users == 0;
	case KARST_WR_SEND_WITH_INV:
		return theirs->state == MW_BOUND;
	default:
		return true;
	}
}

static unsigned int
pick_opcode(struct sim *s, const struct sim_ep *ep)
{
	const uint32_t *mix = ep->pair->mix;
	uint32_t sum = 0, i, x;

	for (i = 0; i < KARST_WR_MAX; i++)
		sum += feasible(ep, i) ? mix[i] : 0;
	x = rng_below(&s->rng, sum);
	for (i = 0; i < KARST_WR_MAX; i++) {
		if (!feasible(ep, i))
			continue;
		if (x < mix[i])
			return i;
		x -= mix[i];
	}
	return KARST_WR_SEND;
}

static uint32_t
pick_len(struct sim *s, const struct sim_ep *ep)
{
	uint32_t max = ep->pair->msg_max, mtu = 1u << ep->pair->mtu_shift, len;

	if (rng_ppm(&s->rng, ep->pair->zero_ppm) && !sim_fault_due(ep))
		return 0;
	if (max > mtu && rng_one_in(&s->rng, 4)) {
		/* Around a multiple of the MTU. */
		len = mtu * rng_range(&s->rng, 1, max / mtu);
		len += rng_below(&s->rng, 3) - 1;
		return karst_min_u32(len, max);
	}
	return rng_one_in(&s->rng, 2) ? rng_range(&s->rng, 1, max) : rng_log(&s->rng, 1, max);
}

/* Sets the address and the key of the target in a cell of @to: those of its region, or of a memory
 * window that is bound to the cell. */
static void
pick_key(struct sim *s, struct sim_ep *to, struct sim_op *op)
{
	struct sim_cell *c = op->cell;

	op->rva = va_of(c->mr, c->off + op->cell_off);
	op->rkey = c->mr->key;
	if (to->mw.state == MW_BOUND && to->mw.cell == c && rng_one_in(&s->rng, 2)) {
		op->mw = &to->mw;
		op->rkey = to->mw.key;
		if (to->mw.zero_based)
			op->rva = op->cell_off;
	}
}

/* Chooses a target in a cell of the peer, with the key of the region or of a memory window. */
static bool
pick_target(struct sim *s, struct sim_ep *ep, struct sim_op *op)
{
	struct sim_ep *to = ep->peer;
	struct sim_cell *c = &to->cells[rng_below(&s->rng, SIM_CELLS)];
	bool write = op->opcode != KARST_WR_RDMA_READ;

	op->cell = c;
	op->cell_off = rng_below(&s->rng, c->len - op->len + 1);
	if (op->opcode == KARST_WR_ATOMIC_WRITE)
		op->cell_off &= ~7u;
	else if (rng_one_in(&s->rng, 2))
		op->cell_off = 0;
	pick_key(s, to, op);
	if (op->len == 0 && rng_one_in(&s->rng, 2)) {
		/* R12: for an access of no bytes the key does not matter. */
		op->mw = NULL;
		op->rkey = (uint32_t)rng_u64(&s->rng);
		op->rva = rng_u64(&s->rng);
	}
	if (write && op->len != 0 && c->npending >= SIM_CELL_PENDING - 4)
		return false;
	return true;
}

/* Chooses a word of the peer's node, of any connection with the same protection domain. */
static bool
pick_word(struct sim *s, struct sim_ep *ep, struct sim_op *op)
{
	struct sim_ep *to = ep->peer;
	uint32_t first, i;

	if (rng_one_in(&s->rng, 2)) {
		struct sim_ep *other =
			&s->pairs[rng_below(&s->rng, s->npairs)].ep[rng_below(&s->rng, 2)];

		if (other->node == to->node && other->init.pd == to->init.pd &&
			other->pair->fault == FAULT_NONE && ep->pair->fault == FAULT_NONE)
			to = other;
	}
	first = rng_below(&s->rng, SIM_WORDS);
	for (i = 0; i < SIM_WORDS; i++) {
		struct sim_word *w = &to->words[(first + i) % SIM_WORDS];

		if ((w->kind == WORD_FAA) != (op->opcode == KARST_WR_ATOMIC_FAA) || w->nops >= 62)
			continue;
		op->word = w;
		op->rva = va_of(w->mr, w->off);
		op->rkey = w->mr->key;
		return true;
	}
	return false;
}

/* A FLUSH of a range in a cell of the peer, sometimes of no bytes, or of the whole region or memory
 * window. */
static void
fill_flush(struct sim *s, struct sim_ep *ep, struct sim_op *op, struct karst_send_wqe *w)
{
	struct sim_ep *to = ep->peer;
	struct sim_cell *c = &to->cells[rng_below(&s->rng, SIM_CELLS)];

	bool fault = sim_fault_due(ep); /* then a range of some bytes: others cannot be faulty */

	op->len = 0;
	op->cell = c;
	op->cell_off = rng_below(&s->rng, c->len);
	op->flush_len = rng_range(&s->rng, fault, c->len - op->cell_off);
	op->flush_level = rng_one_in(&s->rng, 3) && !fault ? KARST_FLUSH_MR : KARST_FLUSH_RANGE;
	pick_key(s, to, op);
	if (op->flush_level == KARST_FLUSH_MR && rng_one_in(&s->rng, 2)) {
		op->rva = rng_u64(&s->rng);
		op->flush_len = (uint32_t)rng_u64(&s->rng);
	}
	w->flush.len = op->flush_len;
	w->flush.type = KARST_FLUSH_GLOBAL;
	w->flush.level = op->flush_level;
	w->num = 0;
}

static void
fill_bind(struct sim *s, struct sim_ep *ep, struct sim_op *op, struct karst_send_wqe *w)
{
	struct sim_mw *mw = &ep->mw;
	struct sim_cell *c;

	/* A random cell each time. */
	mw->cell = c = &ep->cells[rng_below(&s->rng, SIM_CELLS)];
	mw->zero_based = rng_one_in(&s->rng, 3);
	mw->state = MW_BINDING;
	op->mw = mw;
	op->new_key = (mw->key & ~0xffu) | ((mw->key + 1) & 0xff);
	w->bind.addr = va_of(c->mr, c->off);
	w->bind.len = c->len;
	w->bind.mw_key = mw->key;
	w->bind.new_key = op->new_key;
	w->bind.mr_key = c->mr->key;
	w->bind.access = KARST_ACCESS_REMOTE | (mw->zero_based ? KARST_ACCESS_ZERO_BASED : 0);
	w->num = 0;
}

static void
fill_payload(struct sim *s, struct sim_ep *ep, struct sim_op *op, struct karst_send_wqe *w)
{
	bool outward = wr_is_send(op->opcode) || wr_is_write(op->opcode) ||
		op->opcode == KARST_WR_ATOMIC_WRITE;
	struct karst_sge *sge = wr_is_atomic(op->opcode) ? w->atomic.sge : w->sge;
	uint32_t i, at = 0;

	if (outward) {
		op->data = sim_alloc_raw(s, op->len + 8);
		sim_fill(op->data, op->len, rng_u64(&s->rng));
	}
	if (outward && op->len <= ep->init.max_inline && rng_ppm(&s->rng, ep->pair->inline_ppm)) {
		w->flags |= KARST_SEND_INLINE;
		w->num = (uint16_t)op->len;
		memcpy(w->inline_data, op->data, op->len);
		op->npieces = 0;
		op->buf = NULL;
		return;
	}
	if (op->len == 0 && rng_one_in(&s->rng, 2)) {
		op->npieces = 0;
		op->buf = NULL;
		w->num = 0;
		return;
	}
	op->buf->busy = true;
	op->npieces = (uint16_t)cut(s, op->buf, op->len,
		wr_is_atomic(op->opcode) ? 1 : ep->init.max_send_sge, &op->pieces);
	for (i = 0; i < op->npieces && outward; i++) {
		memcpy(ep->node->mem + op->pieces[i].off, op->data + at, op->pieces[i].len);
		memcpy(ep->node->shadow + op->pieces[i].off, op->data + at, op->pieces[i].len);
		at += op->pieces[i].len;
	}
	put_sges(sge, op->buf, op->pieces, op->npieces);
	w->num = op->npieces;
}

/* Sets the destination of a work request. */
static void
set_target(struct sim *s, struct sim_ep *ep, struct sim_op *op, struct karst_send_wqe *w)
{
	if (ep->pair->type == KARST_QPT_UD) {
		w->ud.ah = ep->ah;
		w->ud.remote_qpn = ep->peer->qpn;
		w->ud.remote_qkey = ep->peer->qkey;
		if (ep->qkey == ep->peer->qkey && rng_one_in(&s->rng, 2))
			w->ud.remote_qkey = 0x80000000u | (uint32_t)rng_u64(&s->rng);
	} else {
		w->rdma.remote_addr = op->rva;
		w->rdma.rkey = op->rkey;
	}
	if (ep->pair->xrc) {
		op->srq = 1 + rng_below(&s->rng, SIM_SRQS - 1);
		w->rdma.srqn = karst_srq_num(ep->peer->core->srq[op->srq].srq);
	}
}

/* Fills in what depends on the operation.  If there is no target for it, another operation is
 * used. */
static void
fill_op(struct sim *s, struct sim_ep *ep, struct sim_op *op, struct karst_send_wqe *w)
{
	if (op->opcode == KARST_WR_BIND_MW) {
		fill_bind(s, ep, op, w);
		return;
	}
	if (op->opcode == KARST_WR_LOCAL_INV) {
		op->mw = &ep->mw;
		op->imm = w->imm = ep->mw.key;
		ep->mw.state = MW_DYING;
		w->num = 0;
		return;
	}
	if (op->opcode == KARST_WR_FLUSH) {
		fill_flush(s, ep, op, w);
		set_target(s, ep, op, w);
		return;
	}
	op->len = wr_is_atomic(op->opcode) || op->opcode == KARST_WR_ATOMIC_WRITE ? 8
										  : pick_len(s, ep);
	if (wr_is_send(op->opcode) && ep->peer->srq != NULL)
		op->len = karst_min_u32(op->len, ep->peer->srq->msg_max);
	if (wr_is_atomic(op->opcode)) {
		if (pick_word(s, ep, op)) {
			sim_word_posted(s, ep, op);
			w->atomic.compare_add = op->compare_add;
			w->atomic.swap = op->swap;
		} else {
			op->len = 0;
			op->opcode = w->opcode = KARST_WR_RDMA_WRITE;
		}
	} else if (!wr_is_send(op->opcode) && !pick_target(s, ep, op)) {
		op->len = 0;
		op->mw = NULL;
		if (op->opcode == KARST_WR_ATOMIC_WRITE)
			op->opcode = w->opcode = KARST_WR_RDMA_WRITE;
	}
	if (wr_takes_recv(op->opcode))
		op->imm = w->imm = (uint32_t)rng_u64(&s->rng);
	if (op->opcode == KARST_WR_SEND_WITH_INV) {
		op->mw = &ep->peer->mw;
		op->imm = w->imm = op->mw->key;
		op->mw->state = MW_DYING;
		/* READs with that key may be executed again until they are answered. */
		w->flags |= KARST_SEND_FENCE;
	}
	fill_payload(s, ep, op, w);
	set_target(s, ep, op, w);
}

/* Records a work request in the model, when it is final. */
static void
enter(struct sim *s, struct sim_ep *ep, struct sim_op *op, const struct karst_send_wqe *w)
{
	op->flags = w->flags;
	op->opcode = w->opcode < KARST_WR_MAX ? w->opcode : op->opcode;
	op->signaled = ep->init.sq_sig_all || (op->flags & KARST_SEND_SIGNALED) != 0;
	op->posted_ns = s->now_ns;
	op->lpsn = ep->next_lpsn;
	op->msn = ep->next_msn;
	op->recv_seq = OP_NO_RECV;
	if (op->opcode != KARST_WR_BIND_MW && op->opcode != KARST_WR_LOCAL_INV) {
		op->npsn = (op->len + (1u << ep->pair->mtu_shift) - 1) >> ep->pair->mtu_shift;
		op->npsn += op->npsn == 0;
		ep->next_msn += sim_is_divided(s, ep, op) ? op->npsn : 1;
	}
	ep->next_lpsn += op->npsn;
	if (wr_takes_recv(op->opcode))
		op->recv_seq = ep->next_recv_seq++;
	if (ep->peer->access == 0 && op->expect == KARST_WC_SUCCESS && !wr_is_send(op->opcode) &&
		op->npsn != 0)
		op->expect = KARST_WC_REM_INV_REQ_ERR; /* the QP does not allow that */
	/* A bad local key may be found only after the first packets were sent. */
	if ((wr_is_write(op->opcode) || op->opcode == KARST_WR_ATOMIC_WRITE) && op->len != 0 &&
		op->cell != NULL &&
		(op->expect == KARST_WC_SUCCESS || op->expect == KARST_WC_LOC_PROT_ERR))
		sim_cell_add(s, op);
	if (op->mw != NULL && op->mw == &ep->peer->mw && op->opcode != KARST_WR_SEND_WITH_INV)
		op->mw->users++;
	ep->nops++;
	ep->sq_used++;
	s->stats.ops++;
	if (op->signaled) {
		ep->sq_used -= ep->unsignaled != 0;
		ep->unsignaled = 0;
	} else {
		ep->sq_used += ep->unsignaled == 0;
		ep->unsignaled++;
	}
}

static void
build_send(struct sim_ep *ep, uint32_t slot, struct sim_buf *b)
{
	struct sim *s = ep->s;
	struct sim_pair *p = ep->pair;
	struct karst_send_wqe *w = karst_wq_slot(&ep->sq, slot);
	struct sim_op *op = &ep->ops[ep->nops];
	bool fault = sim_fault_due(ep), rd;
	unsigned int opcode = fault ? sim_fault_opcode(ep) : KARST_WR_MAX;
	uint32_t most = karst_min_u32(ep->init.max_send_wr, ep->nbufs) / 2;

	memset(op, 0, sizeof(*op));
	op->buf = b;
	op->ep = ep;
	op->opcode = (uint8_t)(opcode == KARST_WR_MAX ? pick_opcode(s, ep) : opcode);
	op->wr_id = w->wr_id = sim_wr_id(s, 1, p->idx, ep == &p->ep[1], ep->nops);
	w->opcode = op->opcode;
	w->flags = 0;
	w->imm = (uint32_t)rng_u64(&s->rng);
	fill_op(s, ep, op, w);
	rd = op->opcode == KARST_WR_RDMA_READ || wr_is_atomic(op->opcode);
	if (rng_ppm(&s->rng, p->fence_ppm) && p->type == KARST_QPT_RC)
		w->flags |= KARST_SEND_FENCE;
	if (rng_one_in(&s->rng, 3) && !rd)
		w->flags |= KARST_SEND_SOLICITED;
	/* The program waits for binds and invalidations, and must learn when everything is done. */
	if (rng_one_in(&s->rng, 2) || ep->budget == 1 || fault || ep->unsignaled + 1 >= most ||
		op->opcode == KARST_WR_BIND_MW || op->opcode == KARST_WR_LOCAL_INV ||
		op->opcode == KARST_WR_SEND_WITH_INV || op->mw != NULL ||
		!cq_room(ep->scq, ep->sq_used, ep->unsignaled != 0 ? 1 : 2))
		w->flags |= KARST_SEND_SIGNALED;
	if (fault)
		sim_fault_op(ep, op, w);
	if (op->buf != NULL && !op->buf->busy)
		op->buf = NULL;
	enter(s, ep, op, w);
	ep->budget--;
}

static bool
post_sends(struct sim_ep *ep, enum sim_eager eager)
{
	struct sim *s = ep->s;
	uint32_t want = rng_range(&s->rng, 1, 4), n = 0, spare;
	struct sim_buf *b;

	if (ep->state != EP_LIVE || s->finishing || ep->budget == 0)
		return false;
	if (eager == LAZY && rng_one_in(&s->rng, 2))
		return false;
	while (n < want && ep->budget != 0 && ep->nops < ep->ops_cap &&
		karst_wq_free(&ep->sq, n + 1) > n) {
		/* An entry is reserved for the signaled request that must follow. */
		spare = ep->unsignaled != 0 ? 0 : 1;
		b = buf_get(s, ep->bufs, ep->nbufs);
		if (b == NULL || !cq_room(ep->scq, ep->sq_used, spare))
			break;
		build_send(ep, n++, b);
	}
	if (n == 0)
		return false;
	if (karst_wq_publish(&ep->sq, n))
		sim_ring(ep);
	return true;
}

/* --- draining --- */

static bool
drain(struct sim_ep *ep)
{
	struct karst_core_qp_attr a = {.en_sqd_async_notify = 1};
	struct sim *s = ep->s;
	int rc;

	if (!ep->pair->use_sqd || ep->state != EP_LIVE || karst_qp_state(ep->qp) == KARST_QPS_ERR)
		return false;
	ep->core->core->now_ns = s->now_ns;
	if (!ep->draining) {
		if (!rng_one_in(&s->rng, 40) || s->finishing)
			return false;
		a.qp_state = KARST_QPS_SQD;
		ep->draining = true;
		ep->drained = false;
		ep->asked = KARST_QPS_SQD;
		rc = karst_qp_modify(
			ep->core->core, ep->qp, &a, KARST_QP_STATE | KARST_QP_EN_SQD_ASYNC_NOTIFY);
	} else {
		if (!ep->drained)
			return false;
		a.qp_state = KARST_QPS_RTS;
		ep->draining = false;
		ep->asked = KARST_QPS_RTS;
		rc = karst_qp_modify(ep->core->core, ep->qp, &a, KARST_QP_STATE);
	}
	sim_note(s, "pair %u QP %#x: to %s", ep->pair->idx, ep->qpn, ep->draining ? "SQD" : "RTS");
	if (rc != 0)
		sim_fail(s, "pair %u, QP %#x: modify to %s: %d", ep->pair->idx, ep->qpn,
			ep->draining ? "SQD" : "RTS", rc);
	return true;
}

/* --- the program --- */

bool
sim_program(struct sim_ep *ep, enum sim_eager eager)
{
	bool did = false;

	if (ep->state == EP_GONE || (ep->pair->victim && ep->scribbles == 0))
		return false;
	if (sim_fault_strike(ep, eager) || (eager == WILLING && sim_fault_give_up(ep)))
		return true;
	sim_paths_strike(ep);
	did |= drain(ep);
	did |= post_recvs(ep, eager);
	did |= post_sends(ep, eager);
	return did;
}

/* In a queue in Error, unsignaled requests that are not flushed have succeeded before. */
bool
sim_sends_over(const struct sim_ep *ep)
{
	uint32_t i, end;

	if (ep->done == ep->nops)
		return true;
	if (ep->qp == NULL || karst_qp_state(ep->qp) != KARST_QPS_ERR)
		return false;
	for (i = ep->done; i < ep->nops; i++) {
		end = ep->ops[i].lpsn + ep->ops[i].npsn;
		if (ep->ops[i].signaled ||
			end > (ep->pair->type == KARST_QPT_RC ? ep->acked : ep->tx_hi))
			return false;
	}
	return true;
}

bool
sim_ep_idle(const struct sim_ep *ep)
{
	if (ep->pair->victim)
		return ep->scribbles == 0 ||
			(ep->pair->fault == FAULT_FORGED &&
				(ep->budget == 0 || karst_qp_state(ep->qp) == KARST_QPS_ERR));
	if (ep->state == EP_GONE)
		return true;
	if (ep->draining && ep->state == EP_LIVE && karst_qp_state(ep->qp) != KARST_QPS_ERR)
		return false;
	/* Completions are not polled: the endpoint is idle when nothing more can be posted. */
	if (ep->scq->neglected)
		return ep->nops - ep->done >= karst_min_u32(ep->nbufs, ep->init.max_send_wr) ||
			ep->budget == 0 || karst_qp_state(ep->qp) == KARST_QPS_ERR;
	return sim_sends_over(ep) &&
		(ep->budget == 0 || ep->state != EP_LIVE ||
			karst_qp_state(ep->qp) == KARST_QPS_ERR);
}

/* --- polling --- */

static bool
poll_lane(struct sim *s, struct sim_cq *cq, uint32_t lane, uint32_t max)
{
	const struct karst_cqe *e;
	uint32_t n, i;

	n = karst_min_u32(karst_cq_lane_peek(&cq->lane[lane], &e), max);
	for (i = 0; i < n; i++)
		sim_completion(s, cq, &e[i]);
	karst_cq_lane_take(&cq->lane[lane], n);
	return n != 0;
}

bool
sim_poll_cq(struct sim *s, struct sim_cq *cq, uint32_t max)
{
	const struct karst_cqe *e;
	uint32_t i;
	bool did = false, solicited;

	if (cq->neglected)
		return false;
	for (i = 0; i < s->ncores; i++)
		did |= poll_lane(s, cq, i, max);
	if (did || cq->armed != 0 || cq->exclusive || !rng_one_in(&s->rng, 4))
		return did;
	/* There are no completions: arm the queue and poll once more, as verbs require. */
	solicited = rng_one_in(&s->rng, 2);
	karst_cq_arm(cq->shared, solicited);
	for (i = 0; i < s->ncores; i++) {
		if (karst_cq_lane_peek(&cq->lane[i], &e) != 0)
			sim_fail(s, "a lane has grown while nobody worked");
	}
	cq->armed = solicited ? KARST_CQ_ARM_SOLICITED : KARST_CQ_ARM_NEXT;
	return false;
}
