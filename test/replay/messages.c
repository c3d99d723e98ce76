/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The work requests behind the packets of a requester: what its program must have posted.
 *
 * Packets are taken by PSN; of several with the same PSN the first that was captured counts, the
 * others are retransmissions.  A READ that was sent again from its middle names a smaller part: the
 * whole one came first.  The length of a message whose end was never sent is in its RETH; the
 * length of such a SEND is taken to be one byte more than was seen.
 */
#include <stdlib.h>

#include "replay.h"

static const struct rp_frame *
with_psn(const struct rp_stream *s, uint32_t psn)
{
	unsigned int i;

	for (i = 0; i < s->nrequests; i++) {
		if (s->requests[i]->f.ib.psn == psn)
			return s->requests[i];
	}
	return NULL;
}

static enum karst_wr_opcode
op_of(uint32_t opf, uint8_t opcode)
{
	if (opf & KARST_OPF_READ)
		return KARST_WR_RDMA_READ;
	if (opf & KARST_OPF_ATOMICWRITE)
		return KARST_WR_ATOMIC_WRITE;
	if (opf & KARST_OPF_FLUSH)
		return KARST_WR_FLUSH;
	if (opf & KARST_OPF_ATOMIC)
		return (opcode & KARST_OPERATION_MASK) == KARST_OPERATION_CMP_SWAP
			? KARST_WR_ATOMIC_CAS
			: KARST_WR_ATOMIC_FAA;
	if (opf & KARST_OPF_WRITE)
		return opf & KARST_OPF_IMM ? KARST_WR_RDMA_WRITE_WITH_IMM : KARST_WR_RDMA_WRITE;
	if (opf & KARST_OPF_IETH)
		return KARST_WR_SEND_WITH_INV;
	return opf & KARST_OPF_IMM ? KARST_WR_SEND_WITH_IMM : KARST_WR_SEND;
}

static void
add_data(struct rp_message *m, const struct karst_ib_hdrs *ib, uint32_t more)
{
	m->data = realloc(m->data, m->len + ib->pay_len + more + 1);
	memcpy(m->data + m->len, ib->pay, ib->pay_len);
	memset(m->data + m->len + ib->pay_len, 0, more);
	m->len += ib->pay_len + more;
}

/* SEND and WRITE: collects all packets up to the end. */
static void
gather(struct rp_message *m, const struct rp_stream *s, const struct rp_frame *f)
{
	uint32_t psn = m->psn;

	for (;;) {
		const struct karst_ib_hdrs *ib = &f->f.ib;
		bool end = (f->opf & KARST_OPF_END) != 0;
		const struct rp_frame *next = end ? NULL : with_psn(s, karst_psn_add(psn, 1));
		uint32_t more = 0;

		if (!end && next == NULL)
			more = f->opf & KARST_OPF_SEND ? 1
				: m->len + ib->pay_len < m->expect_len
				? m->expect_len - m->len - ib->pay_len
				: 0;
		add_data(m, ib, more);
		m->npsn++;
		if (next == NULL) {
			m->npsn = m->len == 0 ? 1 : (m->len - 1) / (128u << s->mtu) + 1;
			m->op = op_of(f->opf, ib->opcode);
			m->solicited = ib->se;
			m->imm = f->opf & KARST_OPF_IETH ? ib->inv_rkey : ib->imm;
			return;
		}
		f = next;
		psn = karst_psn_add(psn, 1);
	}
}

/* READ, atomics: what the requester received.  A FLUSH receives nothing (R15). */
static void
find_result(struct rp_message *m, const struct rp_stream *s)
{
	uint32_t mtu = 128u << s->mtu;
	unsigned int i;

	for (i = 0; i < s->nanswers; i++) {
		const struct rp_frame *a = s->answers[i];
		uint32_t nth = karst_psn_add(a->f.ib.psn, -m->psn);

		if (nth >= m->npsn || a->f.ib.opcode == KARST_RC_ACK)
			continue;
		if (a->f.ib.opcode == KARST_RC_ATOMIC_ACK)
			memcpy(m->expect, &a->f.ib.orig, 8);
		else if (nth * mtu + a->f.ib.pay_len <= m->len)
			memcpy(m->expect + nth * mtu, a->f.ib.pay, a->f.ib.pay_len);
	}
}

static void
understand(struct rp_message *m, const struct rp_stream *s, const struct rp_frame *f)
{
	const struct karst_ib_hdrs *ib = &f->f.ib;

	m->psn = ib->psn;
	m->va = ib->va;
	m->rkey = ib->rkey;
	m->compare = ib->compare;
	m->swap_add = ib->swap_add;
	m->expect_len = ib->dma_len;
	m->feth = ib->feth;
	if (f->opf & (KARST_OPF_SEND | KARST_OPF_WRITE | KARST_OPF_ATOMICWRITE)) {
		gather(m, s, f);
		return;
	}
	m->op = op_of(f->opf, ib->opcode);
	m->solicited = ib->se;
	m->len = f->opf & KARST_OPF_READ ? ib->dma_len : f->opf & KARST_OPF_FLUSH ? 0 : 8;
	m->npsn = rp_npsn(s, f);
	m->data = calloc(1, m->len + 1);
	m->expect = calloc(1, m->len + 1);
	find_result(m, s);
}

struct rp_message *
rp_messages(struct rp_report *r, const struct rp_stream *s, unsigned int *n)
{
	struct rp_message *all = NULL;
	uint32_t psn = rp_first_psn(s);
	const struct rp_frame *f;

	for (*n = 0; (f = with_psn(s, psn)) != NULL; psn = karst_psn_add(psn, all[*n - 1].npsn)) {
		if (!(f->opf & KARST_OPF_START)) {
			rp_problem(r, "PSN %06x: a message without a beginning", psn);
			break;
		}
		all = realloc(all, (*n + 1) * sizeof(*all));
		all[*n] = (struct rp_message){0};
		understand(&all[(*n)++], s, f);
	}
	return all;
}

void
rp_messages_free(struct rp_message *m, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		free(m[i].data);
		free(m[i].expect);
	}
	free(m);
}

void
rp_message_post(struct rp_bed *b, struct rp_message *m)
{
	struct karst_send_wqe *w = rp_bed_slot(b);
	struct karst_sge sge = {RP_LOCAL_VA, m->len, 0};

	/* each has a region of its own, at the same address */
	if (m->len != 0) {
		int rc = karst_mr_reg(b->mem, b->pd, m->data, RP_LOCAL_VA, m->len,
			KARST_ACCESS_LOCAL_WRITE, &sge.lkey);

		if (rc != 0) {
			fprintf(stderr, "karst-replay: no region: %s\n", strerror(-rc));
			abort();
		}
	}
	w->wr_id = m->psn;
	w->opcode = (uint8_t)m->op;
	w->flags |= m->solicited ? KARST_SEND_SOLICITED : 0;
	w->imm = m->imm;
	w->num = m->len != 0;
	if (m->op == KARST_WR_ATOMIC_CAS || m->op == KARST_WR_ATOMIC_FAA) {
		w->atomic.compare_add = m->op == KARST_WR_ATOMIC_CAS ? m->compare : m->swap_add;
		w->atomic.swap = m->swap_add;
		w->atomic.sge[0] = sge;
	} else if (m->op == KARST_WR_FLUSH) {
		w->flush.len = m->expect_len;
		w->flush.type = m->feth & 15;
		w->flush.level = m->feth >> 4 & 3;
	} else {
		w->sge[0] = sge;
	}
	w->rdma.remote_addr = m->va;
	w->rdma.rkey = m->rkey;
	rp_bed_post(b);
	m->posted = true;
}
