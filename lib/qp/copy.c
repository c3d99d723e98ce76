/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The two passes of operations on unmapped memory; karst_copy.h explains why there are two.
 *
 * Packets.  core->copy is the copy of the packet that is being delivered: NULL until some bytes
 * have to be copied, OPEN while the first pass determines which, DONE in the second pass.  All
 * bytes are placed by one function, karst_qp_place().  In the first pass it records what has to be
 * copied and writes what is mapped, except the last bytes of a message, which are written after all
 * others (R14).  In the second pass it writes those; what had to be copied has then been copied or
 * is refused.  karst_copy_settle() ends each of the two passes: its result "not yet" means that the
 * caller returns, with the queue pair unchanged.
 *
 * Effects of a first pass that are not undone are those that the second pass would repeat
 * identically: a receive request is held, earlier requests are acknowledged, an SRQ is entered, a
 * connection is established.
 *
 * Frames.  A frame requests its unmapped bytes by karst_copy_get(), segment by segment.  If one is
 * not available, the frame is not built, and karst_copy_fetch_*() record the segments of that frame
 * and of the following ones.  Frames are fetched whole, so a frame that was fetched can be built.
 * Each segment has a PSN: a frame uses only bytes that were fetched for it, and so never those that
 * an earlier request had at the same address.
 */
#include "karst_copy.h"

#include "repeat.h"
#include "wqe.h"

/* Placeholder if no copy is free: the packet is dropped. */
static struct karst_copy starved = {.state = KARST_COPY_OPEN};

void
karst_copies_set_flag(struct karst_core_qp *qp)
{
	uint32_t i;

	qp->flags &= (uint8_t)~KARST_QPF_COPIES;
	if (qp->repeat != NULL)
		qp->flags |= KARST_QPF_COPIES;
	for (i = 0; i < KARST_COPY_HALVES; i++)
		if (qp->copy[i] != NULL)
			qp->flags |= KARST_QPF_COPIES;
}

static void
copy_give_back(struct karst_core *core, struct karst_core_qp *qp, enum karst_copy_half half)
{
	struct karst_copy *c = qp->copy[half];

	qp->copy[half] = NULL;
	karst_copies_set_flag(qp);
	core->copy_ops->give_back(core, c);
}

static struct karst_copy *
copy_open(struct karst_core *core, struct karst_core_qp *qp, enum karst_copy_half half,
	enum karst_copy_op op)
{
	struct karst_copy *c = core->copy_ops->take(core);

	if (c == NULL)
		return NULL;
	c->qp = qp;
	c->half = (uint8_t)half;
	c->op = (uint8_t)op;
	c->state = KARST_COPY_OPEN;
	c->end = c->missed = false;
	c->nparts = c->bytes = c->moved = 0;
	c->nbacklog = c->nsmall = 0;
	c->backlog = NULL;
	c->backlog_end = &c->backlog;
	c->pkt = NULL;
	c->used = c->nsegs = c->seg_next = 0;
	return c;
}

static bool
copy_submit(struct karst_core *core, struct karst_copy *c)
{
	struct karst_core_qp *qp = c->qp;

	c->state = KARST_COPY_BUSY;
	if (!core->copy_ops->submit(core, c))
		return false;
	qp->copy[c->half] = c;
	qp->flags |= KARST_QPF_COPIES;
	return true;
}

static bool
copy_add_part(struct karst_copy *c, const uint8_t *host, uint8_t *local, uint32_t n)
{
	if (c->nparts == KARST_COPY_PARTS)
		return false;
	c->part[c->nparts++] = (struct karst_copy_part){
		.host = (uint8_t *)(uintptr_t)host, .local = local, .n = n};
	c->bytes += n;
	return true;
}

/* --- packets --- */

/* Adds bytes that have to be copied.  @return false: they cannot be. */
static bool
place_copied(struct karst_core *core, struct karst_core_qp *qp, uint8_t *host, const uint8_t *src,
	uint32_t n, bool last)
{
	struct karst_copy *c = core->copy;

	if (c == NULL) {
		c = copy_open(core, qp, KARST_COPY_RX, KARST_COPY_WRITE);
		core->copy = c = c != NULL ? c : &starved;
	}
	if (c->state == KARST_COPY_DONE)
		return c->moved == c->bytes;
	if (c == &starved)
		return true;
	if (core->copy_small) {
		/* the source is gone when the copy is made */
		if (n > sizeof(c->small) - c->nsmall)
			return false;
		memcpy(c->small + c->nsmall, src, n);
		src = c->small + c->nsmall;
		c->nsmall += n;
	}
	c->end |= last;
	return copy_add_part(c, host, (uint8_t *)(uintptr_t)src, n);
}

bool
karst_copy_place(struct karst_core *core, struct karst_core_qp *qp, uint32_t key, uint8_t *host,
	const uint8_t *src, uint32_t n, bool end)
{
	while (n > 0) {
		uint32_t m = n;
		uint8_t *to =
			karst_mem_is_unmapped(host) ? core->copy_ops->map(core, host, &m) : host;
		bool last = end && m == n;

		if (to == NULL) {
			if (!place_copied(core, qp, host, src, m, last))
				return false;
		} else if (!last || core->copy == NULL || core->copy->state == KARST_COPY_DONE) {
			karst_mem_place(&core->placer, core->mem, key, to, src, m, last);
		}
		host += m;
		src += m;
		n -= m;
	}
	return true;
}

/* Executes an atomic on unmapped memory: by an instruction if the driver can map the memory,
 * otherwise by a copy.  @return true: it was executed, or has failed. */
bool
karst_copy_atomic(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt,
	struct karst_copy_atomic *a)
{
	struct karst_copy *c = core->copy;
	uint32_t n = 8;
	uint8_t *to;

	if (c != NULL) {
		a->ok = c->moved == c->bytes;
		a->old = c->old;
		return true;
	}
	a->ok = true;
	to = core->copy_ops->map(core, a->host, &n);
	if (to != NULL) {
		if (a->op == KARST_COPY_CAS)
			a->old = karst_mem_cas(to, a->compare, a->operand);
		else if (a->op == KARST_COPY_FAA)
			a->old = karst_mem_faa(to, a->operand);
		else
			karst_mem_store8(to, (const uint8_t *)&a->operand);
		return true;
	}
	c = copy_open(core, qp, KARST_COPY_RX, a->op);
	core->copy = c != NULL ? c : &starved;
	if (c != NULL) {
		c->compare = a->compare;
		c->operand = a->operand;
		copy_add_part(c, a->host, (uint8_t *)&c->old, 8);
	}
	return karst_copy_settle(core, pkt, true);
}

/* The parts have sources in packet @from, which was replaced by @to: adjusts their addresses. */
static void
copy_rebase(struct karst_copy *c, const struct karst_pkt *from, const struct karst_pkt *to)
{
	uint32_t i;

	for (i = 0; i < c->nparts; i++) {
		uint64_t off = (uint64_t)(c->part[i].local - from->data);

		if (off < from->len)
			c->part[i].local = to->data + off;
	}
}

static bool
packet_park(struct karst_core *core, struct karst_copy *c, struct karst_pkt *pkt)
{
	c->pkt = core->copy_kept ? pkt : core->copy_ops->keep(core, c, pkt);
	if (c->pkt == NULL)
		return false;
	if (c->pkt != pkt)
		copy_rebase(c, pkt, c->pkt);
	if (copy_submit(core, c))
		return true;
	/* its driver still has it */
	if (c->pkt != pkt)
		return false;
	c->pkt = NULL;
	if (!core->copy_kept)
		core->copy_ops->unkeep(core, pkt);
	return false;
}

bool
karst_copy_settled(struct karst_core *core, struct karst_pkt *pkt, bool ok)
{
	struct karst_copy *c = core->copy;

	if (c->state == KARST_COPY_DONE)
		return true;
	core->copy = NULL;
	if (ok && c != &starved && packet_park(core, c, pkt))
		return false;
	if (c != &starved)
		core->copy_ops->give_back(core, c);
	if (ok)
		karst_drop_pkt(core, pkt, KARST_DROP_COPY_FULL);
	return !ok;
}

static void
backlog_append(struct karst_copy *c, struct karst_pkt *pkt)
{
	pkt->next = NULL;
	*c->backlog_end = pkt;
	c->backlog_end = &pkt->next;
	c->nbacklog++;
}

/* Requests from PSN @from to @psn had no room in the backlog of @c. */
static void
backlog_missed(struct karst_copy *c, uint32_t from, uint32_t psn)
{
	if (!c->missed || karst_psn_before(from, c->missed_from))
		c->missed_from = from;
	if (!c->missed || karst_psn_before(c->missed_psn, psn))
		c->missed_psn = psn;
	c->missed = true;
}

bool
karst_copy_queue(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt)
{
	struct karst_copy *c = qp->copy[KARST_COPY_RX];
	bool sent_once = qp->type == KARST_QPT_UD || qp->type == KARST_QPT_UC;
	bool answers = qp->type == KARST_QPT_RC || qp->type == KARST_QPT_XRC_RECV;
	struct karst_pkt *kept = NULL;

	if (c->nbacklog < KARST_COPY_BACKLOG || sent_once)
		kept = core->copy_ops->keep(core, c, pkt);
	if (kept == NULL) {
		if (answers && (karst_opcode_flags(pkt->opcode) & KARST_OPF_REQUEST) &&
			!karst_psn_before(pkt->psn, qp->rsp.epsn)) {
			backlog_missed(c, pkt->psn, pkt->psn);
			if (qp->repeat != NULL)
				karst_repeat_missed(qp, pkt->psn);
		}
		karst_drop_pkt(core, pkt, KARST_DROP_COPY_FULL);
		return false;
	}
	backlog_append(c, kept);
	return kept == pkt;
}

/* Delivers the parked packet again, and then the packets that waited behind it.  One of these may
 * be parked in turn. */
static void
packet_redeliver(struct karst_core *core, struct karst_copy *c)
{
	struct karst_core_qp *qp = c->qp;
	struct karst_pkt *pkt, *after;

	core->copy_kept = true;
	core->copy = c;
	karst_qp_rx_again(core, qp, c->pkt);
	core->copy = NULL;
	qp->copy[KARST_COPY_RX] = NULL;
	karst_copies_set_flag(qp);
	if (qp->repeat != NULL)
		karst_repeat_drain(core, qp);
	for (pkt = c->backlog; pkt != NULL; pkt = after) {
		struct karst_copy *next = qp->copy[KARST_COPY_RX];

		after = pkt->next;
		pkt->qp = qp;
		if (next != NULL)
			backlog_append(next, pkt);
		else if (!karst_qp_rx_again(core, qp, pkt))
			core->copy_ops->release(core, pkt);
	}
	core->copy_kept = false;
	if (c->missed && qp->copy[KARST_COPY_RX] != NULL)
		backlog_missed(qp->copy[KARST_COPY_RX], c->missed_from, c->missed_psn);
	else if (c->missed && karst_qp_may_receive(qp))
		karst_responder_missed(core, qp, c->missed_from, c->missed_psn);
	core->copy_ops->give_back(core, c);
	/* what could not be flushed before the copy was done */
	if (qp->state == KARST_QPS_ERR || qp->state == KARST_QPS_SQE)
		karst_core_activate(core, qp);
}

/* --- frames --- */

static void
copy_renew(struct karst_core *core, struct karst_core_qp *qp, enum karst_copy_half half)
{
	if (qp->copy[half] != NULL)
		copy_give_back(core, qp, half);
}

enum karst_wc_status
karst_copy_get(struct karst_core *core, const struct karst_core_qp *qp, enum karst_copy_half half,
	uint32_t psn, const uint8_t *host, uint32_t n, const uint8_t **src)
{
	struct karst_copy *c = qp->copy[half];
	const struct karst_copy_seg *s;
	uint32_t m = n;

	*src = core->copy_ops->map(core, host, &m);
	if (*src != NULL && m == n)
		return KARST_WC_SUCCESS;
	if (c == NULL || c->state != KARST_COPY_DONE || c->seg_next == c->nsegs)
		return KARST_WC_PARKED;
	s = &c->seg[c->seg_next];
	if (s->psn != psn || s->host != host || s->n != n)
		return KARST_WC_PARKED;
	if (s->upto > c->moved)
		return KARST_WC_LOC_PROT_ERR;
	c->seg_next++;
	*src = s->local;
	return KARST_WC_SUCCESS;
}

/* Adds a segment of a frame; its mapped bytes are copied at once.  @return false: no room. */
static bool
copy_add_seg(struct karst_core *core, struct karst_copy *c, uint32_t psn, const uint8_t *host,
	uint32_t n)
{
	uint8_t *local = c->room + c->used;
	uint32_t off, m = n;
	const uint8_t *from = core->copy_ops->map(core, host, &m);

	if (from != NULL && m == n)
		return true;
	if (n > KARST_COPY_ROOM - c->used || c->nsegs == KARST_DIM(c->seg))
		return false;
	for (off = 0; off < n; off += m) {
		m = n - off;
		from = core->copy_ops->map(core, host + off, &m);
		if (from != NULL)
			memcpy(local + off, from, m);
		else if (!copy_add_part(c, host + off, local + off, m))
			return false;
	}
	c->used += n;
	c->seg[c->nsegs++] = (struct karst_copy_seg){
		.host = host, .local = local, .n = n, .psn = psn, .upto = c->bytes};
	return true;
}

/* Adds all segments of a frame of @n bytes, as karst_wqe_gather() will request them, or none. */
static bool
copy_add_frame(struct karst_core *core, const struct karst_core_qp *qp, struct karst_copy *c,
	const struct karst_wqe *w, uint32_t off, uint32_t n, uint32_t psn)
{
	uint32_t nparts = c->nparts, bytes = c->bytes, used = c->used, nsegs = c->nsegs;
	struct karst_sge_cursor at;

	if (w->inline_src != NULL)
		return true;
	karst_wqe_seek(w, &at, off);
	while (n > 0) {
		const struct karst_sge *s = &w->sge[at.i];
		uint32_t m = karst_min_u32(n, s->len - at.off);
		uint8_t *host;

		if (m > 0 &&
			(karst_mem_check_local(core->mem, qp->pd, s->lkey, s->addr + at.off, m, 0,
				 &host) != KARST_MEM_OK ||
				(karst_mem_is_unmapped(host) &&
					!copy_add_seg(core, c, psn, host, m)))) {
			c->nparts = nparts;
			c->bytes = bytes;
			c->used = used;
			c->nsegs = nsegs;
			return false;
		}
		n -= m;
		at.i++;
		at.off = 0;
	}
	return true;
}

static void
refuse(struct karst_core *core, enum karst_refusal why)
{
	if (core->sched.refused < why)
		core->sched.refused = (uint8_t)why;
}

/* Submits what was recorded.  @return false: there was nothing, or it is not accepted now. */
static bool
copy_fetch(struct karst_core *core, struct karst_copy *c)
{
	if (c->nparts > 0 && copy_submit(core, c))
		return true;
	if (c->nparts == 0 && c->nsegs > 0) {
		/* mapped, but not contiguous: it is available already */
		c->state = KARST_COPY_DONE;
		c->qp->copy[c->half] = c;
		c->qp->flags |= KARST_QPF_COPIES;
		return false;
	}
	if (c->nparts > 0)
		refuse(core, KARST_REFUSED);
	core->copy_ops->give_back(core, c);
	return false;
}

/* Opens a copy for a half that sends, in place of the one before.  NULL: there is none, or others
 * of its user wait for it. */
static struct karst_copy *
fetch_open(struct karst_core *core, struct karst_core_qp *qp, enum karst_copy_half half)
{
	bool had = qp->copy[half] != NULL;
	struct karst_copy *c;

	copy_renew(core, qp, half);
	if (had && karst_sched_starves(core, qp)) {
		refuse(core, KARST_YIELDS);
		return NULL;
	}
	c = copy_open(core, qp, half, KARST_COPY_READ);
	if (c == NULL)
		refuse(core, KARST_REFUSED);
	return c;
}

bool
karst_copy_fetch_requests(struct karst_core *core, struct karst_core_qp *qp,
	const struct karst_wqe *w, uint32_t idx, uint32_t off, uint32_t frames)
{
	uint32_t psn = qp->req.snd_psn, mtu = karst_qp_mtu(qp), n;
	struct karst_wqe next;
	struct karst_copy *c;

	c = fetch_open(core, qp, KARST_COPY_REQ);
	if (c == NULL)
		return false;
	for (frames = karst_min_u32(frames, KARST_COPY_AHEAD); frames > 0; frames--) {
		n = karst_min_u32(mtu, w->len - off);
		if (!copy_add_frame(core, qp, c, w, off, n, psn))
			break;
		psn = karst_psn_add(psn, 1);
		off += n;
		if (off != w->len)
			continue;
		/* what will be sent next, as far as that is known */
		if (++idx == qp->sq.tail || karst_wqe_load(qp, idx, &next) != KARST_WC_SUCCESS ||
			(next.info->slot_flags & (KARST_SLOT_LOCAL | KARST_SLOT_RD_ATOMIC)) != 0 ||
			(qp->type == KARST_QPT_UD && next.len > mtu))
			break;
		w = &next;
		off = 0;
	}
	return copy_fetch(core, c);
}

bool
karst_copy_fetch_response(struct karst_core *core, struct karst_core_qp *qp,
	const struct karst_rsp *e, uint32_t psn, uint32_t end)
{
	struct karst_copy *c;
	uint32_t i;

	c = fetch_open(core, qp, KARST_COPY_RSP);
	if (c == NULL)
		return false;
	for (i = 0; i < KARST_COPY_AHEAD && psn != end; i++, psn = karst_psn_add(psn, 1)) {
		uint32_t off = karst_psn_add(psn, -e->psn) << qp->mtu_shift;
		uint32_t n = karst_min_u32(karst_qp_mtu(qp), e->len - off);
		uint8_t *host;

		if (karst_mem_check_remote(core->mem, e->pd, qp->qpn, e->rkey, e->va + off, n,
			    KARST_ACCESS_REMOTE_READ, &host) != KARST_MEM_OK ||
			!copy_add_seg(core, c, psn, host, n))
			break;
	}
	return copy_fetch(core, c);
}

/* --- both --- */

void
karst_copy_done(struct karst_core *core, struct karst_copy *c)
{
	c->state = KARST_COPY_DONE;
	if (c->half == KARST_COPY_RX) {
		packet_redeliver(core, c);
		return;
	}
	karst_core_activate(core, c->qp);
	if (c->half == KARST_COPY_REQ)
		karst_requester_fed(core, c->qp);
}

bool
karst_qp_fetching(const struct karst_core_qp *qp)
{
	return karst_copy_busy(qp, KARST_COPY_REQ) || karst_copy_busy(qp, KARST_COPY_RSP);
}

void
karst_qp_unfetch(struct karst_core *core, struct karst_core_qp *qp)
{
	uint32_t i;

	for (i = KARST_COPY_REQ; i <= KARST_COPY_RSP; i++)
		if (qp->copy[i] != NULL && qp->copy[i]->state == KARST_COPY_DONE)
			copy_give_back(core, qp, i);
}

void
karst_copies_drop(struct karst_core *core, struct karst_core_qp *qp)
{
	const struct karst_copy *rx = qp->copy[KARST_COPY_RX];
	struct karst_pkt *pkt, *after;
	uint32_t i;

	for (pkt = rx != NULL ? rx->backlog : NULL; pkt != NULL; pkt = after) {
		after = pkt->next;
		core->copy_ops->release(core, pkt);
	}
	for (i = 0; i < KARST_COPY_HALVES; i++)
		copy_renew(core, qp, i);
}
