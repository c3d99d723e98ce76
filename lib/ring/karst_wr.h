/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The encoder of work requests: converts a request of an API to a slot of the ring.
 *
 * Each API has its own structure (struct karst_send_wr, struct ibv_send_wr).  The file of that API
 * which posts requests converts the structure to a struct karst_wr on the stack, which contains
 * values and no objects of the API.  karst_wr_encode_header() and karst_wr_encode_body() check it
 * against its queue pair and write the slot.  All functions are inline, so that the compiler
 * removes the intermediate structure.  An API that builds a request by several calls (ibv_wr_*())
 * uses the karst_wr_put_*() that these two functions consist of.
 *
 * The checks are those that verbs require at the call; the engine repeats the ones that it needs.
 *
 * For libkarst and the provider above it; not installed.
 */
#ifndef KARST_WR_H
#define KARST_WR_H

#include "karst_ring.h"
#include "karst_verbs.h"

/* --- operations --- */

/** The layout of the slot after the header. */
enum karst_wr_shape {
	KARST_WR_SHAPE_NONE, /* no such operation */
	KARST_WR_SHAPE_SEND,
	KARST_WR_SHAPE_RDMA,
	KARST_WR_SHAPE_ATOMIC,
	KARST_WR_SHAPE_INV,
	KARST_WR_SHAPE_BIND,
	KARST_WR_SHAPE_FLUSH,
};

struct karst_wr_op {
	uint16_t types; /* bits 1 << enum karst_qp_type */
	uint8_t shape;  /* enum karst_wr_shape */
	uint8_t wc;     /* enum karst_wc_opcode */
	bool inlined;   /* the slot may contain the payload */
};

#define KARST_WR_RC (1u << KARST_QPT_RC)
#define KARST_WR_UC (1u << KARST_QPT_UC)
#define KARST_WR_UD (1u << KARST_QPT_UD)
#define KARST_WR_RX (KARST_WR_RC | 1u << KARST_QPT_XRC_SEND) /* XRC has the operations of RC */

#define KARST_WR_OP(opcode, types, shape, wc, inlined) \
	[KARST_WR_##opcode] = {types, KARST_WR_SHAPE_##shape, KARST_WC_##wc, inlined},
static const struct karst_wr_op karst_wr_ops[KARST_WR_MAX] = {
#include "karst_wr_op.def"
};
#undef KARST_WR_OP

/** The operation, if queue pairs of @qp_type have it; otherwise NULL, for any value of @opcode. */
static inline const struct karst_wr_op *
karst_wr_op(unsigned int opcode, unsigned int qp_type)
{
	if (karst_unlikely(opcode >= KARST_WR_MAX || !(karst_wr_ops[opcode].types & 1u << qp_type)))
		return NULL;
	return &karst_wr_ops[opcode];
}

/* --- requests --- */

#define KARST_WR_FLAGS \
	(KARST_SEND_FENCE | KARST_SEND_SIGNALED | KARST_SEND_SOLICITED | KARST_SEND_INLINE)

/** A send request, independent of the API. */
struct karst_wr {
	uint64_t wr_id;
	uint32_t opcode;  /* any value */
	uint32_t flags;   /* any value */
	uint32_t imm;     /* immediate data in host order, or the R_Key to invalidate */
	uint32_t srqn;    /* XRC_SEND: the peer's SRQ */
	uint32_t num_sge; /* any value */
	const void
		/* struct karst_sge, or a type of the same layout; may be NULL if there are none */
		*sges;
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
			uint64_t compare_add; /* atomics */
			uint64_t swap;
		} rdma;
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
			uint32_t len;
			uint32_t type;  /* any value */
			uint32_t level; /* any value */
		} flush;
		struct {
			uint32_t ah; /* number */
			uint32_t remote_qpn;
			uint32_t remote_qkey;
		} ud;
		struct {
			uint64_t addr;
			uint64_t len;
			uint32_t mw_key;
			uint32_t new_key;
			uint32_t mr_key;
			uint32_t access;
		} bind;
	};
};

/** The limits of a queue pair for its requests. */
struct karst_wr_limits {
	uint32_t qp_type; /* enum karst_qp_type */
	uint32_t max_send_sge;
	uint32_t max_inline_data;
};

/** Errors of the encoder. */
enum karst_wr_error {
	KARST_WR_OK,
	KARST_WR_BAD_OPCODE, /* queue pairs of this type do not have the operation */
	KARST_WR_BAD_FLAGS,  /* flags that are not in KARST_WR_FLAGS */
	KARST_WR_BAD_SRQN,   /* more than 24 bits */
	/* more than max_send_sge; inline data: more than KARST_WQ_MAX_SGE; an atomic: not 1; a
	 * FLUSH: not 0 */
	KARST_WR_BAD_NUM_SGE,
	KARST_WR_BAD_INLINE,   /* the operation cannot have inline data */
	KARST_WR_INLINE_BYTES, /* inline data exceeds max_inline_data */
	/* a FLUSH without a placement type, or with an unknown type or level */
	KARST_WR_BAD_FLUSH,
};

/* --- parts of a slot --- */

static inline void
karst_wr_put_header(
	struct karst_send_wqe *w, uint64_t wr_id, uint32_t opcode, uint32_t flags, uint32_t imm)
{
	w->wr_id = wr_id;
	w->opcode = (uint8_t)opcode;
	w->flags = (uint8_t)flags;
	w->imm = imm;
}

static inline void
karst_wr_put_rdma(struct karst_send_wqe *w, uint64_t remote_addr, uint32_t rkey)
{
	w->rdma.remote_addr = remote_addr;
	w->rdma.rkey = rkey;
}

static inline void
karst_wr_put_atomic(struct karst_send_wqe *w, uint64_t compare_add, uint64_t swap)
{
	w->atomic.compare_add = compare_add;
	w->atomic.swap = swap;
}

static inline void
karst_wr_put_ud(struct karst_send_wqe *w, uint32_t ah, uint32_t remote_qpn, uint32_t remote_qkey)
{
	w->ud.ah = ah;
	w->ud.remote_qpn = remote_qpn;
	w->ud.remote_qkey = remote_qkey;
}

static inline void
karst_wr_put_bind(struct karst_send_wqe *w, uint64_t addr, uint64_t len, uint32_t mw_key,
	uint32_t new_key, uint32_t mr_key, uint32_t access)
{
	w->bind.addr = addr;
	w->bind.len = len;
	w->bind.mw_key = mw_key;
	w->bind.new_key = new_key;
	w->bind.mr_key = mr_key;
	w->bind.access = access;
}

/** Writes a FLUSH with these placement types, at least one; it has neither SGEs nor inline data. */
static inline enum karst_wr_error
karst_wr_put_flush(struct karst_send_wqe *w, uint32_t len, uint32_t type, uint32_t level)
{
	if (karst_unlikely(type == 0 || (type & ~(uint32_t)KARST_FLUSH_TYPES) != 0 ||
		    level >= KARST_FLUSH_LEVELS))
		return KARST_WR_BAD_FLUSH;
	w->num = 0;
	w->flush.len = len;
	w->flush.type = (uint8_t)type;
	w->flush.level = (uint8_t)level;
	w->flush.reserved = 0;
	return KARST_WR_OK;
}

/** @at: where the SGEs of its shape begin. */
static inline void
karst_wr_put_sges(
	struct karst_send_wqe *w, struct karst_sge *at, const void *sges, uint32_t num_sge)
{
	w->num = (uint16_t)num_sge;
	if (karst_likely(num_sge == 1))
		memcpy(at, sges, sizeof(*at));
	else if (num_sge > 0)
		memcpy(at, sges, (size_t)num_sge * sizeof(*at));
}

/** Writes the SGEs of the request whose header was written; checks their number. */
static inline enum karst_wr_error
karst_wr_put_sge_list(struct karst_send_wqe *w, const struct karst_wr_limits *limits,
	const void *sges, size_t num_sge)
{
	bool atomic = karst_wr_ops[w->opcode].shape == KARST_WR_SHAPE_ATOMIC;

	if (karst_unlikely(atomic ? num_sge != 1 : num_sge > limits->max_send_sge))
		return KARST_WR_BAD_NUM_SGE;
	karst_wr_put_sges(w, atomic ? w->atomic.sge : w->sge, sges, (uint32_t)num_sge);
	return KARST_WR_OK;
}

/** Appends @len bytes to the inline data, which has w->num bytes. */
static inline enum karst_wr_error
karst_wr_put_inline(
	struct karst_send_wqe *w, uint32_t max_inline_data, const void *data, size_t len)
{
	if (karst_unlikely(len > max_inline_data - w->num))
		return KARST_WR_INLINE_BYTES;
	memcpy(w->inline_data + w->num, data, len);
	w->num = (uint16_t)(w->num + len);
	return KARST_WR_OK;
}

/* --- a whole request --- */

/**
 * Checks the header of @wr, whose operation queue pairs of @qp_type have, and writes it to the free
 * slot @w.  karst_wr_encode_body() follows.  If an error occurs, the slot is never published.
 */
karst_always_inline enum karst_wr_error
karst_wr_encode_header(struct karst_send_wqe *w, uint32_t qp_type, const struct karst_wr *wr)
{
	if (karst_unlikely(wr->flags & ~(uint32_t)KARST_WR_FLAGS))
		return KARST_WR_BAD_FLAGS;
	karst_wr_put_header(w, wr->wr_id, wr->opcode, wr->flags, wr->imm);
	if (karst_unlikely(qp_type == KARST_QPT_XRC_SEND)) {
		if (wr->srqn > 0xffffff)
			return KARST_WR_BAD_SRQN;
		w->rdma.srqn = wr->srqn;
	}
	return KARST_WR_OK;
}

/* Writes the inline data of SGEs.  They need no room in the slot, so there may be more of them than
 * max_send_sge, but not more than any request may have: a program that passes a negative number
 * gets an error.  Not inlined: it would take registers from the usual case. */
karst_noinline static enum karst_wr_error
karst_wr_put_inline_sges(
	struct karst_send_wqe *w, uint32_t max_inline_data, const uint8_t *sges, uint32_t num_sge)
{
	enum karst_wr_error error = KARST_WR_OK;
	struct karst_sge sge;
	uint32_t i;

	if (karst_unlikely(!karst_wr_ops[w->opcode].inlined))
		return KARST_WR_BAD_INLINE;
	if (karst_unlikely(num_sge > KARST_WQ_MAX_SGE))
		return KARST_WR_BAD_NUM_SGE;
	w->num = 0;
	for (i = 0; i < num_sge && error == KARST_WR_OK; i++) {
		memcpy(&sge, sges + (size_t)i * sizeof(sge), sizeof(sge));
		error = karst_wr_put_inline(
			w, max_inline_data, (const void *)(uintptr_t)sge.addr, sge.len);
	}
	return error;
}

/* Writes inline data, or SGEs. */
karst_always_inline enum karst_wr_error
karst_wr_put_payload(
	struct karst_send_wqe *w, const struct karst_wr_limits *limits, const struct karst_wr *wr)
{
	if (wr->flags & KARST_SEND_INLINE)
		return karst_wr_put_inline_sges(
			w, limits->max_inline_data, (const uint8_t *)wr->sges, wr->num_sge);
	if (karst_unlikely(wr->num_sge > limits->max_send_sge))
		return KARST_WR_BAD_NUM_SGE;
	karst_wr_put_sges(w, w->sge, wr->sges, wr->num_sge);
	return KARST_WR_OK;
}

/**
 * Checks the rest of @wr and writes it.  @shape: that of its operation.  The caller had to know it
 * to fill @wr, and passes a constant.
 */
karst_always_inline enum karst_wr_error
karst_wr_encode_body(struct karst_send_wqe *w, const struct karst_wr_limits *limits,
	const struct karst_wr *wr, enum karst_wr_shape shape)
{
	switch (shape) {
	case KARST_WR_SHAPE_RDMA:
		karst_wr_put_rdma(w, wr->rdma.remote_addr, wr->rdma.rkey);
		return karst_wr_put_payload(w, limits, wr);
	case KARST_WR_SHAPE_SEND:
		if (limits->qp_type == KARST_QPT_UD)
			karst_wr_put_ud(w, wr->ud.ah, wr->ud.remote_qpn, wr->ud.remote_qkey);
		return karst_wr_put_payload(w, limits, wr);
	case KARST_WR_SHAPE_ATOMIC:
		if (karst_unlikely(wr->flags & KARST_SEND_INLINE))
			return KARST_WR_BAD_INLINE;
		if (karst_unlikely(wr->num_sge != 1))
			return KARST_WR_BAD_NUM_SGE;
		karst_wr_put_rdma(w, wr->rdma.remote_addr, wr->rdma.rkey);
		karst_wr_put_atomic(w, wr->rdma.compare_add, wr->rdma.swap);
		karst_wr_put_sges(w, w->atomic.sge, wr->sges, 1);
		return KARST_WR_OK;
	case KARST_WR_SHAPE_BIND:
		karst_wr_put_bind(w, wr->bind.addr, wr->bind.len, wr->bind.mw_key, wr->bind.new_key,
			wr->bind.mr_key, wr->bind.access);
		w->num = 0;
		return KARST_WR_OK;
	case KARST_WR_SHAPE_FLUSH:
		if (karst_unlikely(wr->flags & KARST_SEND_INLINE))
			return KARST_WR_BAD_INLINE;
		if (karst_unlikely(wr->num_sge != 0))
			return KARST_WR_BAD_NUM_SGE;
		karst_wr_put_rdma(w, wr->flush.remote_addr, wr->flush.rkey);
		return karst_wr_put_flush(w, wr->flush.len, wr->flush.type, wr->flush.level);
	default: /* INV */
		w->num = 0;
		return KARST_WR_OK;
	}
}

/** Writes a receive request to the free slot @w; @num_sge is at most the queue's max_sge. */
static inline void
karst_wr_encode_recv(struct karst_recv_wqe *w, uint64_t wr_id, const void *sges, uint32_t num_sge)
{
	w->wr_id = wr_id;
	w->num_sge = num_sge;
	if (num_sge > 0)
		memcpy(w->sge, sges, (size_t)num_sge * sizeof(w->sge[0]));
}

#endif /* KARST_WR_H */
