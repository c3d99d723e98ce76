/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Send work requests: the table of operations, and the validated private copy (wqe.h). */
#include "wqe.h"

#include "karst_wr.h"

/* The BTH operations of the packets of a message. */
#define OPC(mid, last, first, only)                                                     \
	{                                                                               \
		KARST_OPERATION_##mid, KARST_OPERATION_##last, KARST_OPERATION_##first, \
			KARST_OPERATION_##only                                          \
	}
#define ONE(op) OPC(op, op, op, op)

/* Messages cannot be longer than this (IBTA: 2^31 bytes). */
#define MAX_MESSAGE (1u << 31)

/* The headers of each operation on the wire; the rest is in karst_wr_op.def. */
#define WIRE_RDMA_WRITE OPC(WRITE_MIDDLE, WRITE_LAST, WRITE_FIRST, WRITE_ONLY), 0, .reth = true
#define WIRE_RDMA_WRITE_WITH_IMM                                                           \
	OPC(WRITE_MIDDLE, WRITE_LAST_IMM, WRITE_FIRST, WRITE_ONLY_IMM), KARST_SLOT_CREDIT, \
		.reth = true, .imm = true
#define WIRE_SEND OPC(SEND_MIDDLE, SEND_LAST, SEND_FIRST, SEND_ONLY), KARST_SLOT_CREDIT
#define WIRE_SEND_WITH_IMM \
	OPC(SEND_MIDDLE, SEND_LAST_IMM, SEND_FIRST, SEND_ONLY_IMM), KARST_SLOT_CREDIT, .imm = true
#define WIRE_SEND_WITH_INV \
	OPC(SEND_MIDDLE, SEND_LAST_INV, SEND_FIRST, SEND_ONLY_INV), KARST_SLOT_CREDIT, .inv = true
#define WIRE_RDMA_READ    ONE(READ_REQUEST), KARST_SLOT_RD_ATOMIC, .reth = true, .sink = true
#define WIRE_ATOMIC_CAS   ONE(CMP_SWAP), KARST_SLOT_RD_ATOMIC, .sink = true
#define WIRE_ATOMIC_FAA   ONE(FETCH_ADD), KARST_SLOT_RD_ATOMIC, .sink = true
#define WIRE_ATOMIC_WRITE ONE(ATOMIC_WRITE), KARST_SLOT_RD_ATOMIC, .reth = true
#define WIRE_FLUSH        ONE(FLUSH), KARST_SLOT_RD_ATOMIC, .reth = true
#define WIRE_LOCAL_INV    ONE(SEND_ONLY), KARST_SLOT_LOCAL
#define WIRE_BIND_MW      ONE(SEND_ONLY), KARST_SLOT_LOCAL

#define KARST_WR_OP(opcode, types_, shape, wc_, inlined_) \
	[KARST_WR_##opcode] = {                           \
		WIRE_##opcode, .wc = KARST_WC_##wc_, .types = (types_), .inlined = (inlined_)},
const struct karst_wr_info karst_wr_infos[KARST_WR_MAX] = {
#include "karst_wr_op.def"
};
#undef KARST_WR_OP

/* Copies the SGEs, as many as the header says, and adds up their lengths. */
static enum karst_wc_status
load_sges(const struct karst_core_qp *qp, const uint8_t *slot, struct karst_wqe *w)
{
	bool atomic = w->h.opcode == KARST_WR_ATOMIC_CAS || w->h.opcode == KARST_WR_ATOMIC_FAA;
	uint32_t max = atomic ? 1 : qp->sq.max_sge, i;
	uint64_t len = 0;

	if (karst_unlikely(w->h.num > max))
		return KARST_WC_LOC_QP_OP_ERR;
	w->inline_src = NULL;
	w->nsge = w->h.num;
	w->sge = atomic ? w->h.atomic.sge : w->h.sge;
	if (w->nsge > 2)
		memcpy(w->raw + sizeof(w->h), slot + sizeof(w->h),
			(w->nsge - 2) * sizeof(struct karst_sge));
	for (i = 0; i < w->nsge; i++)
		len += w->sge[i].len;
	if (karst_unlikely(len > MAX_MESSAGE))
		return KARST_WC_LOC_LEN_ERR;
	w->len = (uint32_t)len;
	return KARST_WC_SUCCESS;
}

/* FLUSH has no payload; its placement type must be valid and not empty (R15). */
static enum karst_wc_status
load_flush(struct karst_wqe *w)
{
	uint8_t type = w->h.flush.type;

	w->inline_src = NULL;
	w->len = w->nsge = 0;
	if ((w->h.flags & KARST_SEND_INLINE) || w->h.num != 0 || type == 0 ||
		(type & ~KARST_FLUSH_TYPES) != 0 || w->h.flush.level >= KARST_FLUSH_LEVELS)
		return KARST_WC_LOC_QP_OP_ERR;
	return KARST_WC_SUCCESS;
}

enum karst_wc_status
karst_wqe_load(const struct karst_core_qp *qp, uint32_t idx, struct karst_wqe *w)
{
	const uint8_t *slot = karst_wqe_slot(&qp->sq, idx);
	enum karst_wc_status st;
	uint32_t want;

	memcpy(&w->h, slot, sizeof(w->h));
	if (karst_unlikely(w->h.opcode >= KARST_WR_MAX))
		return KARST_WC_LOC_QP_OP_ERR;
	w->info = &karst_wr_infos[w->h.opcode];
	if (karst_unlikely(!(w->info->types & 1u << qp->type)))
		return KARST_WC_LOC_QP_OP_ERR;
	if (w->info->slot_flags & KARST_SLOT_LOCAL) {
		w->inline_src = NULL;
		w->len = w->nsge = 0;
		return KARST_WC_SUCCESS;
	}
	if (karst_unlikely(qp->type == KARST_QPT_XRC_SEND) && w->h.rdma.srqn > 0xffffff)
		return KARST_WC_LOC_QP_OP_ERR;
	if (karst_unlikely(w->h.opcode == KARST_WR_FLUSH))
		return load_flush(w);
	if (w->h.flags & KARST_SEND_INLINE) {
		if (karst_unlikely(!w->info->inlined || w->h.num > qp->sq.max_inline))
			return KARST_WC_LOC_QP_OP_ERR;
		w->inline_src = slot + KARST_SEND_WQE_HDR;
		w->len = w->h.num;
		w->nsge = 1; /* one source */
	} else {
		st = load_sges(qp, slot, w);
		if (karst_unlikely(st != KARST_WC_SUCCESS))
			return st;
	}
	/* atomics move exactly eight bytes */
	want = w->h.opcode;
	if ((want == KARST_WR_ATOMIC_CAS || want == KARST_WR_ATOMIC_FAA ||
		    want == KARST_WR_ATOMIC_WRITE) &&
		karst_unlikely(w->len != 8))
		return KARST_WC_LOC_LEN_ERR;
	return KARST_WC_SUCCESS;
}

enum karst_wc_status
karst_wqe_check(
	const struct karst_core *core, const struct karst_core_qp *qp, const struct karst_wqe *w)
{
	unsigned int access = w->info->sink ? KARST_ACCESS_LOCAL_WRITE : 0;
	uint8_t *host;
	uint32_t i;

	if (w->inline_src != NULL)
		return KARST_WC_SUCCESS;
	for (i = 0; i < w->nsge; i++) {
		const struct karst_sge *s = &w->sge[i];

		if (s->len != 0 &&
			karst_unlikely(karst_mem_check_local(core->mem, qp->pd, s->lkey, s->addr,
					       s->len, access, &host) != KARST_MEM_OK))
			return KARST_WC_LOC_PROT_ERR;
	}
	return KARST_WC_SUCCESS;
}

enum karst_wc_status
karst_wqe_scatter(struct karst_core *core, struct karst_core_qp *qp, const struct karst_wqe *w,
	uint32_t off, const uint8_t *src, uint32_t n)
{
	bool end = off + n == w->len;
	struct karst_sge_cursor c;

	if (karst_unlikely(n > w->len || off > w->len - n))
		return KARST_WC_LOC_LEN_ERR;
	karst_wqe_seek(w, &c, off);
	while (n > 0) {
		const struct karst_sge *s = &w->sge[c.i];
		uint32_t m = karst_min_u32(n, s->len - c.off);
		uint8_t *host;

		if (m > 0) {
			if (karst_unlikely(karst_mem_check_local(core->mem, qp->pd, s->lkey,
						   s->addr + c.off, m, KARST_ACCESS_LOCAL_WRITE,
						   &host) != KARST_MEM_OK))
				return KARST_WC_LOC_PROT_ERR;
			if (karst_unlikely(!karst_qp_place(
				    core, qp, s->lkey, host, src, m, end && m == n)))
				return KARST_WC_LOC_PROT_ERR;
			src += m;
			n -= m;
		}
		c.i++;
		c.off = 0;
	}
	return KARST_WC_SUCCESS;
}
