/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * READs, atomics and FLUSH at the responder (RC), and the state to answer them again.
 *
 * rsps[] is a ring of the last max_dest_rd_atomic READs and atomics (R6), with a cursor (rsp_cur,
 * rsp_psn) at the next response to send (responder_tx.c).  A duplicate READ or atomic moves the
 * cursor back to the PSN that it requests (R4, R5).  From there the cursor advances as far as
 * duplicates have requested (rsp_again), and then continues with what was never answered
 * (rsp_done).  A duplicate for responses that the cursor has yet to reach changes nothing.  PSNs
 * wrap around, so entries are also discarded by age (karst_rsp_age()).
 */
#include "repeat.h"

/* --- new requests --- */

/*
 * A place in rsps[] for a new READ or atomic (R6); NULL if the peer has more outstanding than was
 * agreed: the oldest was never answered.
 */
static struct karst_rsp *
rsp_room(struct karst_responder *r)
{
	if (r->rsp_added - r->rsp_done >= r->rsp_max)
		return NULL;
	if (r->rsp_added - r->rsp_cur >= r->rsp_max) {
		/* the oldest is only being answered again, to a peer that has sent new requests
		 * since */
		r->rsp_cur = r->rsp_added - r->rsp_max + 1;
		karst_rsp_seek(r);
	}
	return karst_rsp_at(r, r->rsp_added);
}

/*
 * A requester has at most 2^23 PSNs outstanding (P2), so an entry that ends further back is not
 * requested again; and 2^24 later its PSNs belong to other requests.  It is enough to check once in
 * KARST_RSP_AGE, and when a READ takes many PSNs at once: until the next check no entry is as old
 * as 2^24.
 */
void
karst_rsp_age(struct karst_responder *r, uint32_t npsn)
{
	while (r->rsp_saved != 0 && !karst_mutant(KARST_MUTANT_SAVED_FOR_EVER)) {
		uint32_t oldest = r->rsp_added - r->rsp_saved;
		const struct karst_rsp *e = karst_rsp_at(r, oldest);
		uint32_t end = karst_psn_add(e->psn, e->npsn);

		/* an entry that is still to be answered is discarded after that */
		if (karst_psn_add(r->epsn, -end) + npsn <= 1u << 23 ||
			(int32_t)(r->rsp_cur - oldest) <= 0)
			return;
		r->rsp_saved--;
	}
}

static void
rsp_add(struct karst_core *core, struct karst_core_qp *qp, struct karst_rsp *e,
	const struct karst_pkt *pkt, uint32_t npsn)
{
	struct karst_responder *r = &qp->rsp;

	karst_rsp_age(r, npsn);
	/* its response also acknowledges any earlier duplicate that got no ACK (R3) */
	if (r->owed != KARST_OWED_NAK)
		karst_rsp_leave_none(r);
	e->psn = e->beg = pkt->psn;
	e->npsn = npsn;
	e->end = karst_psn_add(pkt->psn, npsn);
	if (r->rsp_cur == r->rsp_added)
		r->rsp_psn = e->psn;
	r->rsp_added++;
	if (r->rsp_saved < r->rsp_max)
		r->rsp_saved++;
	/* the response acknowledges everything before it */
	if (r->owed == KARST_OWED_ACK)
		r->owed = KARST_OWED_NONE;
	r->epsn = e->end;
	karst_message_done(core, qp);
	karst_core_activate(core, qp);
}

void
karst_responder_read(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt)
{
	struct karst_responder *r = &qp->rsp;
	struct karst_rsp *e = rsp_room(r);
	uint8_t *host;

	if (e == NULL || !(r->access & KARST_ACCESS_REMOTE_READ) || pkt->dma_len > 1u << 31) {
		karst_refuse(core, qp, pkt, KARST_NAK_INV_REQ);
		return;
	}
	if (pkt->dma_len != 0 &&
		karst_mem_check_remote(core->mem, qp->pd, qp->qpn, pkt->rkey, pkt->va, pkt->dma_len,
			KARST_ACCESS_REMOTE_READ, &host) != KARST_MEM_OK) {
		karst_refuse(core, qp, pkt, KARST_NAK_REM_ACCESS);
		return;
	}
	e->type = KARST_RSP_READ;
	e->pd = qp->pd;
	e->va = pkt->va;
	e->rkey = pkt->rkey;
	e->len = pkt->dma_len;
	karst_count(&core->counters, KARST_CTR_RX_READ_REQUESTS);
	rsp_add(core, qp, e, pkt, karst_psn_count(pkt->dma_len, qp->mtu_shift));
}

/* AtomicETH is the last header, whatever precedes it. */
static inline const uint8_t *
atomiceth_of(const struct karst_pkt *pkt)
{
	return pkt->data + pkt->pay_off - KARST_ATOMICETH_LEN;
}

static inline bool
is_cas(const struct karst_pkt *pkt)
{
	return (pkt->opcode & KARST_OPERATION_MASK) == KARST_OPERATION_CMP_SWAP;
}

/* R7: executes an atomic by an instruction of the CPU.  @return the value before. */
static uint64_t
execute_atomic(const struct karst_pkt *pkt, uint8_t *host)
{
	const uint8_t *eth = atomiceth_of(pkt);

	if (is_cas(pkt))
		return karst_mem_cas(
			host, karst_atomiceth_compare(eth), karst_atomiceth_swap_add(eth));
	return karst_mem_faa(host, karst_atomiceth_swap_add(eth));
}

/* The same, and ATOMIC WRITE, for unmapped memory.  @return false: not yet. */
static bool
execute_unmapped(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt,
	bool write, struct karst_copy_atomic *a)
{
	const uint8_t *eth = atomiceth_of(pkt);

	if (write) {
		a->op = KARST_COPY_STORE;
		memcpy(&a->operand, pkt->data + pkt->pay_off, sizeof(a->operand));
	} else {
		a->op = is_cas(pkt) ? KARST_COPY_CAS : KARST_COPY_FAA;
		a->compare = karst_atomiceth_compare(eth);
		a->operand = karst_atomiceth_swap_add(eth);
	}
	return karst_copy_atomic(core, qp, pkt, a);
}

void
karst_responder_atomic(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt, uint32_t opf)
{
	struct karst_responder *r = &qp->rsp;
	struct karst_rsp *e = rsp_room(r);
	bool write = (opf & KARST_OPF_ATOMICWRITE) != 0;
	unsigned int access = write ? KARST_ACCESS_REMOTE_WRITE : KARST_ACCESS_REMOTE_ATOMIC;
	uint8_t *host;

	if (e == NULL || !(r->access & access) || (pkt->va & 7) != 0 ||
		(write && (pkt->dma_len != 8 || pkt->pay_len != 8))) {
		karst_refuse(core, qp, pkt, KARST_NAK_INV_REQ);
		return;
	}
	/* zero-based and shifted regions: the host address must be aligned, too */
	if (karst_mem_check_remote(core->mem, qp->pd, qp->qpn, pkt->rkey, pkt->va, 8, access,
		    &host) != KARST_MEM_OK ||
		((uintptr_t)host & 7) != 0) {
		karst_refuse(core, qp, pkt, KARST_NAK_REM_ACCESS);
		return;
	}
	if (karst_mem_is_unmapped(host)) {
		struct karst_copy_atomic a = {.host = host};

		if (!execute_unmapped(core, qp, pkt, write, &a))
			return;
		if (!a.ok) {
			karst_refuse(core, qp, pkt, KARST_NAK_REM_ACCESS);
			return;
		}
		e->va = a.old;
	} else if (write) {
		karst_mem_store8(host, pkt->data + pkt->pay_off);
	} else {
		e->va = execute_atomic(pkt, host);
	}
	e->type = write ? KARST_RSP_ATOMIC_WRITE : KARST_RSP_ATOMIC;
	e->rkey = pkt->rkey;
	e->len = 0;
	karst_count(&core->counters, KARST_CTR_RX_ATOMIC_REQUESTS);
	rsp_add(core, qp, e, pkt, 1);
}

/* FETH is the header between BTH (and XRCETH) and RETH. */
static inline const uint8_t *
feth_of(const struct karst_pkt *pkt)
{
	return pkt->data + pkt->pay_off - KARST_RETH_LEN - KARST_FETH_LEN;
}

/* The rights that a FLUSH of @type needs; 0: the type is invalid. */
static unsigned int
flush_rights(uint8_t type)
{
	unsigned int rights = 0;

	if (type & ~KARST_FLUSH_TYPES)
		return 0;
	if (type & KARST_FLUSH_GLOBAL)
		rights |= KARST_ACCESS_FLUSH_GLOBAL;
	if (type & KARST_FLUSH_PERSISTENT)
		rights |= KARST_ACCESS_FLUSH_PERSISTENT;
	return rights;
}

/*
 * R15.  A FLUSH is executed in order, so all earlier writes have been placed, and what had to be
 * copied is copied: packets wait behind a parked one.  It only has to wait for the stores of this
 * processor.  No queue pair has the right to persistence: modify.c and lib/mem grant none.
 */
void
karst_responder_flush(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt)
{
	struct karst_responder *r = &qp->rsp;
	struct karst_rsp *e = rsp_room(r);
	unsigned int rights = flush_rights(karst_feth_type(feth_of(pkt)));
	uint8_t level = karst_feth_level(feth_of(pkt));
	bool whole = level == KARST_FLUSH_MR;
	uint8_t *host;

	if (e == NULL || rights == 0 || level >= KARST_FLUSH_LEVELS ||
		((r->access & rights) != rights && !karst_mutant(KARST_MUTANT_FLUSH_RIGHTS))) {
		karst_refuse(core, qp, pkt, KARST_NAK_INV_REQ);
		return;
	}
	if (karst_mem_check_remote(core->mem, qp->pd, qp->qpn, pkt->rkey,
		    whole ? karst_mem_base_of(core->mem, pkt->rkey) : pkt->va,
		    whole ? 0 : pkt->dma_len, rights, &host) != KARST_MEM_OK) {
		karst_refuse(core, qp, pkt, KARST_NAK_REM_ACCESS);
		return;
	}
	karst_mem_show(&core->placer);
	e->type = KARST_RSP_FLUSH;
	e->rkey = pkt->rkey;
	e->len = 0;
	karst_count(&core->counters, KARST_CTR_RX_FLUSH_REQUESTS);
	rsp_add(core, qp, e, pkt, 1);
}

/* --- duplicates --- */

/* The saved entry that PSN @psn belongs to; *which is its number. */
static struct karst_rsp *
rsp_find(struct karst_responder *r, uint32_t psn, uint32_t *which)
{
	uint32_t i;

	/* newest first: an old entry may have had the same PSN 2^24 packets ago */
	for (i = 1; i <= r->rsp_saved; i++) {
		struct karst_rsp *e = karst_rsp_at(r, r->rsp_added - i);

		if (karst_psn_distance(psn, e->psn) < e->npsn) {
			*which = r->rsp_added - i;
			return e;
		}
	}
	return NULL;
}

/* All of entry @i has to be answered. */
static void
rsp_whole(struct karst_responder *r, uint32_t i)
{
	struct karst_rsp *e = karst_rsp_at(r, i);

	e->beg = e->psn;
	e->end = karst_psn_add(e->psn, e->npsn);
}

/* The cursor has not reached entry @which: makes it answer up to there before it continues with new
 * entries. */
static void
rsp_extend(struct karst_responder *r, uint32_t which, uint32_t psn, uint32_t end)
{
	struct karst_rsp *e = karst_rsp_at(r, which);

	/* the cursor will reach it anyway */
	if ((int32_t)(which - r->rsp_done) >= 0 || (int32_t)(which - r->rsp_again) < 0)
		return;
	for (; r->rsp_again != which; r->rsp_again++)
		rsp_whole(r, r->rsp_again);
	e->beg = psn;
	e->end = end;
	r->rsp_again = which + 1;
}

/* Moves the cursor back to PSN @psn of entry @which, unless it has not reached that yet. */
static void
rsp_rewind(struct karst_core *core, struct karst_core_qp *qp, uint32_t which, uint32_t psn,
	uint32_t end)
{
	struct karst_responder *r = &qp->rsp;
	struct karst_rsp *e = karst_rsp_at(r, which);
	int32_t behind = (int32_t)(r->rsp_cur - which);

	/* a peer that has agreed requests only what is missing, and keeps the rest (X11) */
	if (karst_repeat_of(qp) != NULL) {
		karst_repeat_answer(core, qp, which, psn, end);
		return;
	}
	/* an entry that was never answered is answered to its end, whatever is requested now */
	if ((int32_t)(which - r->rsp_done) >= 0)
		end = karst_psn_add(e->psn, e->npsn);
	if (behind < 0) {
		rsp_extend(r, which, psn, end);
		return;
	}
	if (behind == 0 && karst_psn_diff(r->rsp_psn, psn) <= 0) {
		if (karst_psn_before(e->end, end))
			e->end = end;
		return;
	}
	/* what was being answered again follows after it; otherwise only this entry was
	 * requested */
	if ((int32_t)(r->rsp_cur - r->rsp_done) >= 0)
		r->rsp_again = which + 1;
	for (; (int32_t)(r->rsp_cur - which) > 0; r->rsp_cur--)
		rsp_whole(r, r->rsp_cur - 1);
	e->beg = psn;
	e->end = end;
	r->rsp_psn = psn;
	karst_core_activate(core, qp);
}

/* The response to PSN @psn also acknowledges an earlier duplicate that got no ACK (R3). */
static void
asked_again(struct karst_responder *r, uint32_t psn)
{
	if (r->owed != KARST_OWED_NAK && karst_psn_before(r->left_psn, psn))
		karst_rsp_leave_none(r);
}

/* R4: whether a duplicate READ is a part of the original. */
static bool
part_of(const struct karst_core_qp *qp, const struct karst_rsp *e, const struct karst_pkt *pkt,
	uint32_t npsn)
{
	uint32_t skip = karst_psn_add(pkt->psn, -e->psn), off = skip << qp->mtu_shift;

	return e->type == KARST_RSP_READ && off <= e->len && pkt->dma_len <= e->len - off &&
		skip + npsn <= e->npsn && pkt->va == e->va + off;
}

/*
 * The key of a duplicate READ is not valid any more.  A peer that still waits for the response gets
 * a NAK and fails.  But the packet may be a late copy of a READ that was answered long ago, with a
 * window that was invalidated since.  So this side continues, and a peer that has moved on treats
 * the NAK as a ghost (Q10).
 */
static void
refuse_duplicate(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt)
{
	struct karst_responder *r = &qp->rsp;

	karst_drop_pkt(core, pkt, KARST_DROP_REQUEST);
	/* answers to newer requests are more important; the peer will send the duplicate again */
	if (r->owed != KARST_OWED_NONE || r->wait != KARST_WAIT_NONE)
		return;
	karst_count(&core->counters, KARST_CTR_ERROR_NAK_SENT);
	karst_count(&core->counters, KARST_CTR_RESP_REMOTE_ACCESS_ERRORS);
	karst_owe_nak(core, qp, KARST_AETH_NAK | KARST_NAK_REM_ACCESS, KARST_WAIT_NONE);
	r->nak_psn = pkt->psn;
}

void
karst_responder_dup_read(struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt)
{
	struct karst_responder *r = &qp->rsp;
	uint32_t which, npsn = karst_psn_count(pkt->dma_len, qp->mtu_shift);
	struct karst_rsp *e = rsp_find(r, pkt->psn, &which);
	uint32_t pd = qp->pd;
	uint8_t *host;

	if (e == NULL || !part_of(qp, e, pkt, npsn)) {
		karst_drop_pkt(core, pkt, KARST_DROP_DUPLICATE);
		return;
	}
	/* the PD of the request, which may not be the one in progress; none if its SRQ is gone */
	if (qp->type == KARST_QPT_XRC_RECV) {
		const struct karst_core_srq *srq = karst_xrc_find(core, qp, pkt->srqn);

		pd = srq != NULL ? srq->pd : 0;
	}
	/* the key is checked again, and may be another key of the same memory */
	if (pkt->dma_len != 0 &&
		karst_mem_check_remote(core->mem, pd, qp->qpn, pkt->rkey, pkt->va, pkt->dma_len,
			KARST_ACCESS_REMOTE_READ, &host) != KARST_MEM_OK) {
		refuse_duplicate(core, qp, pkt);
		return;
	}
	e->rkey = pkt->rkey;
	e->pd = pd;
	asked_again(r, pkt->psn);
	rsp_rewind(core, qp, which, pkt->psn, karst_psn_add(pkt->psn, npsn));
}

void
karst_responder_dup_atomic(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt, uint32_t opf)
{
	struct karst_responder *r = &qp->rsp;
	uint32_t which, type;
	struct karst_rsp *e = rsp_find(r, pkt->psn, &which);
	uint8_t *host;

	type = opf & KARST_OPF_FLUSH          ? KARST_RSP_FLUSH
		: opf & KARST_OPF_ATOMICWRITE ? KARST_RSP_ATOMIC_WRITE
					      : KARST_RSP_ATOMIC;
	if (e == NULL || e->type != type) {
		karst_drop_pkt(core, pkt, KARST_DROP_DUPLICATE);
		return;
	}
	if (karst_mutant(KARST_MUTANT_DUP_ATOMIC) && type == KARST_RSP_ATOMIC &&
		karst_mem_check_remote(core->mem, qp->pd, qp->qpn, pkt->rkey, pkt->va, 8,
			KARST_ACCESS_REMOTE_ATOMIC, &host) == KARST_MEM_OK)
		e->va = execute_atomic(pkt, host);
	asked_again(r, pkt->psn);
	/* R5: neither key nor address is checked */
	rsp_rewind(core, qp, which, pkt->psn, karst_psn_add(pkt->psn, 1));
}
