/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Send work requests in the requester: a private, validated copy.
 *
 * A request is read from the ring each time the requester comes (back) to it.  It is copied first
 * and then checked, so a concurrent change of the slot by the program cannot bypass a check.  What
 * must not change between two readings (length and operation, hence PSNs) is kept in the
 * karst_sq_slot and compared.
 */
#ifndef KARST_QP_WQE_H
#define KARST_QP_WQE_H

#include "frame.h"

/** Properties of a work request operation. */
struct karst_wr_info {
	uint8_t opc[4]; /* BTH operation by (first << 1 | last) */
	uint8_t slot_flags;
	uint8_t wc;       /* enum karst_wc_opcode */
	uint16_t types;   /* 1 << enum karst_qp_type */
	bool reth : 1;    /* First carries RETH */
	bool imm : 1;     /* Last carries ImmDt */
	bool inv : 1;     /* Last carries IETH */
	bool sink : 1;    /* SGEs are written to: READ and atomics */
	bool inlined : 1; /* may be inline */
};

extern const struct karst_wr_info karst_wr_infos[KARST_WR_MAX];

struct karst_wqe {
	const struct karst_wr_info *info;
	const uint8_t *inline_src; /* NULL: SGEs */
	uint32_t len;              /* message bytes */
	uint32_t nsge;
	const struct karst_sge *sge;
	union {
		struct karst_send_wqe h;
		uint8_t raw[KARST_SEND_WQE_HDR + (KARST_WQ_MAX_SGE + 1) * sizeof(struct karst_sge)];
	};
};

/** A position in the payload of a message. */
struct karst_sge_cursor {
	uint32_t i;
	uint32_t off;
};

/**
 * Copies and validates request @idx.
 * @return KARST_WC_SUCCESS, or the status with which the request fails: LOC_QP_OP_ERR, LOC_LEN_ERR.
 */
enum karst_wc_status karst_wqe_load(
	const struct karst_core_qp *qp, uint32_t idx, struct karst_wqe *w);

/** Checks that all SGEs are in memory that this QP may access so.  KARST_WC_SUCCESS or
 *  LOC_PROT_ERR. */
enum karst_wc_status karst_wqe_check(
	const struct karst_core *core, const struct karst_core_qp *qp, const struct karst_wqe *w);

/** Moves a cursor to message offset @off. */
static inline void
karst_wqe_seek(const struct karst_wqe *w, struct karst_sge_cursor *c, uint32_t off)
{
	c->i = 0;
	c->off = off;
	if (w->inline_src != NULL)
		return;
	while (c->i < w->nsge && c->off >= w->sge[c->i].len) {
		c->off -= w->sge[c->i].len;
		c->i++;
	}
}

/** Appends @n bytes from the cursor to the open frame.  KARST_WC_SUCCESS, LOC_PROT_ERR, or PARKED:
 *  some bytes are not available yet. */
static inline enum karst_wc_status
karst_wqe_gather(struct karst_core *core, const struct karst_core_qp *qp, const struct karst_wqe *w,
	struct karst_sge_cursor *c, uint32_t n, struct karst_tx_burst *b)
{
	if (w->inline_src != NULL) {
		karst_frame_seg(b, w->inline_src + c->off, n);
		c->off += n;
		return KARST_WC_SUCCESS;
	}
	while (n > 0) {
		const struct karst_sge *s = &w->sge[c->i];
		uint32_t m = karst_min_u32(n, s->len - c->off);
		const uint8_t *src;
		uint8_t *host;

		if (m > 0) {
			if (karst_unlikely(karst_mem_check_local(core->mem, qp->pd, s->lkey,
						   s->addr + c->off, m, 0, &host) != KARST_MEM_OK))
				return KARST_WC_LOC_PROT_ERR;
			src = host;
			if (karst_mem_is_unmapped(src)) {
				enum karst_wc_status st = karst_copy_get(
					core, qp, KARST_COPY_REQ, qp->req.snd_psn, host, m, &src);

				if (karst_unlikely(st != KARST_WC_SUCCESS))
					return st;
			}
			karst_frame_seg(b, src, m);
			n -= m;
			c->off += m;
		}
		if (c->off == s->len) {
			c->i++;
			c->off = 0;
		}
	}
	return KARST_WC_SUCCESS;
}

/** Writes @n bytes of @src to message offset @off of a READ's or atomic's SGEs; karst_copy_settle()
 *  follows. */
enum karst_wc_status karst_wqe_scatter(struct karst_core *core, struct karst_core_qp *qp,
	const struct karst_wqe *w, uint32_t off, const uint8_t *src, uint32_t n);

#endif /* KARST_QP_WQE_H */
