/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The harness: work requests of the program, completions and events. */

#include "harness.h"

#define fail(...) cr_assert(false, __VA_ARGS__)

/* --- the program --- */

struct karst_send_wqe *
bed_slot(struct bed *b)
{
	cr_assert_gt(karst_wq_free(&b->s->sq, 1), 0, "send queue is full");
	return karst_wq_slot(&b->s->sq, 0);
}

void
bed_publish(struct bed *b, uint32_t n)
{
	if (karst_wq_publish(&b->s->sq, n))
		karst_core_doorbell(b->core, b->s->qpn);
}

static void
put_operands(struct bed *b, struct karst_send_wqe *w, const struct wr *wr)
{
	switch (wr->op) {
	case KARST_WR_BIND_MW:
		w->bind.addr = wr->bind.va;
		w->bind.len = wr->bind.len;
		w->bind.mw_key = wr->bind.mw_key;
		w->bind.new_key = wr->bind.new_key;
		w->bind.mr_key = wr->bind.mr_key;
		w->bind.access = wr->bind.access;
		return;
	case KARST_WR_ATOMIC_CAS:
	case KARST_WR_ATOMIC_FAA:
		w->atomic.compare_add = wr->compare_add;
		w->atomic.swap = wr->swap;
		w->atomic.sge[0] = (struct karst_sge){
			VA + wr->off, wr->len != 0 ? wr->len : 8, wr->lkey ? wr->lkey : b->key};
		w->num = 1;
		return;
	case KARST_WR_FLUSH:
		w->flush.len = wr->flush.len;
		w->flush.type = wr->flush.type;
		w->flush.level = wr->flush.level;
		w->num = (uint16_t)wr->nsge;
		return;
	default:
		break;
	}
	if (wr->inl != NULL) {
		w->flags |= KARST_SEND_INLINE;
		w->num = (uint16_t)wr->len;
		memcpy(w->inline_data, wr->inl, wr->len);
	} else if (wr->sge != NULL || wr->len == 0) {
		w->num = (uint16_t)wr->nsge;
		if (wr->nsge != 0)
			memcpy(w->sge, wr->sge, wr->nsge * sizeof(*wr->sge));
	} else {
		w->num = 1;
		w->sge[0] = (struct karst_sge){
			VA + wr->off, wr->len, wr->lkey != 0 ? wr->lkey : b->key};
	}
}

void
bed_post(struct bed *b, const struct wr *wr)
{
	struct karst_send_wqe *w = bed_slot(b);

	memset(w, 0, KARST_SEND_WQE_HDR);
	w->wr_id = wr->id;
	w->opcode = (uint8_t)wr->op;
	w->flags = (uint8_t)(wr->flags | (wr->quiet ? 0 : KARST_SEND_SIGNALED));
	w->imm = wr->imm;
	if (karst_qp_type(b->s->qp) == KARST_QPT_UD) {
		w->ud.ah = wr->ah;
		w->ud.remote_qpn = wr->qpn;
		w->ud.remote_qkey = wr->qkey;
	} else {
		w->rdma.remote_addr = wr->va != 0 ? wr->va : PEER_VA;
		w->rdma.rkey = wr->rkey != 0 ? wr->rkey : PEER_RKEY;
		w->rdma.srqn = wr->srqn;
	}
	put_operands(b, w, wr);
	bed_publish(b, 1);
}

void
bed_bind(struct bed *b, uint64_t id, uint32_t mw, uint32_t new_key, unsigned int access)
{
	post(b, BIND_MW, id,
		.bind = {.mw_key = mw,
			.new_key = new_key,
			.mr_key = b->key,
			.va = VA,
			.len = 64,
			.access = access});
}

void
post_recv_sge(struct bed *b, uint64_t id, const struct karst_sge *sge, uint32_t nsge)
{
	struct karst_wq *wq = b->srq != NULL ? &b->srq_wq : &b->s->rq;
	struct karst_recv_wqe *w;

	cr_assert_gt(karst_wq_free(wq, 1), 0, "receive queue is full");
	w = karst_wq_slot(wq, 0);
	w->wr_id = id;
	w->num_sge = nsge;
	if (nsge != 0)
		memcpy(w->sge, sge, nsge * sizeof(*sge));
	if (karst_wq_publish(wq, 1))
		karst_core_doorbell(b->core, b->s->qpn);
}

void
post_recv(struct bed *b, uint64_t id, uint32_t off, uint32_t len)
{
	struct karst_sge sge = {VA + off, len, b->key};

	post_recv_sge(b, id, &sge, 1);
}

/* --- completions and events --- */

static bool
next_wc(struct bed *b, bool recv)
{
	struct karst_cq_lane *l = recv ? &b->rlane : &b->slane;
	const struct karst_cqe *cqe;

	if (karst_cq_lane_peek(l, &cqe) == 0)
		turn(b);
	if (karst_cq_lane_peek(l, &cqe) == 0)
		return false;
	b->wc = *cqe;
	karst_cq_lane_take(l, 1);
	return true;
}

const struct karst_cqe *
expect_wc_at(
	struct bed *b, const char *file, int line, bool recv, uint64_t id, enum karst_wc_status st)
{
	if (!next_wc(b, recv))
		fail("%s:%d: no completion", file, line);
	if (b->wc.wr_id != id || b->wc.status != st)
		fail("%s:%d: expected completion of %llu with %d, got %llu with %d", file, line,
			(unsigned long long)id, st, (unsigned long long)b->wc.wr_id, b->wc.status);
	if ((b->wc.opcode & KARST_WC_RECV) != (recv ? KARST_WC_RECV : 0))
		fail("%s:%d: completion of operation %u", file, line, b->wc.opcode);
	return &b->wc;
}

void
expect_no_wc_at(struct bed *b, const char *file, int line)
{
	if (next_wc(b, false) || next_wc(b, true))
		fail("%s:%d: unexpected completion of %llu with %d", file, line,
			(unsigned long long)b->wc.wr_id, b->wc.status);
}

void
expect_event_at(struct bed *b, const char *file, int line, enum karst_async_event_code event,
	const void *object)
{
	struct event e;

	if (b->event_head == b->event_tail)
		turn(b);
	if (b->event_head == b->event_tail)
		fail("%s:%d: expected event %d, there is none", file, line, event);
	e = b->events[b->event_head++ % EVENT_MAX];
	if (e.event != event || e.object != object)
		fail("%s:%d: expected event %d, got %d%s", file, line, event, e.event,
			e.object != object ? " of another object" : "");
}

void
expect_no_event_at(struct bed *b, const char *file, int line)
{
	if (b->event_head == b->event_tail)
		turn(b);
	if (b->event_head != b->event_tail)
		fail("%s:%d: unexpected event %d", file, line,
			b->events[b->event_head % EVENT_MAX].event);
}

void
expect_state_at(struct bed *b, const char *file, int line, enum karst_qp_state state)
{
	if (karst_qp_state(b->s->qp) != state)
		fail("%s:%d: QP is in state %d", file, line, karst_qp_state(b->s->qp));
}
