/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * XRC: the XRCETH of a request names its receive queue (U3).
 *
 * On the wire an XRC connection is an RC connection in one direction, so its ends are RC's
 * requester and RC's responder.  The target differs in srq, pd and recv_cq: the first packet of
 * each message sets them (karst_xrc_enter()), and RC's code then uses them as usual.  They remain
 * set until another SRQ is named, or the SRQ or the target is destroyed; each SRQ lists the targets
 * that refer to it.  READs store their PD, because they are answered later.
 *
 * The SRQ's protection domain is that of the message, for receives as for READs, WRITEs and
 * atomics; targets have none of their own.  A request that names an SRQ which does not exist, one
 * of another domain, or another one in the middle of a message gets a NAK "invalid request", and
 * the connection ends.  A message has begun when a receive was taken for it, even if its first
 * packet has to be sent again.
 *
 * An SRQ's number is (n << lcore_bits | lcore), modulo 2^24, where n is incremented with each SRQ
 * of the core and skips values whose place in the table (the low bits of n) is taken.  So a number
 * is reused when n has wrapped around.  0 is never given out.
 */
#include "qp_priv.h"

#include <errno.h>

/* --- numbers --- */

static struct karst_core_srq **
srq_place(const struct karst_core *core, uint32_t number)
{
	return &core->srqs[(number >> core->lcore_bits) & core->srq_mask];
}

int
karst_xrc_number(struct karst_core *core, struct karst_core_srq *srq)
{
	uint32_t number;

	if (core->nsrqs > core->srq_mask)
		return -ENOSPC;
	do {
		number = (core->next_srq++ << core->lcore_bits | core->lcore) & 0xffffff;
	} while (number == 0 || *srq_place(core, number) != NULL);
	*srq_place(core, number) = srq;
	core->nsrqs++;
	srq->number = number;
	return 0;
}

struct karst_core_srq *
karst_xrc_find(const struct karst_core *core, const struct karst_core_qp *qp, uint32_t number)
{
	struct karst_core_srq *srq = *srq_place(core, number);

	return srq != NULL && srq->number == number && srq->xrcd == qp->xrcd ? srq : NULL;
}

/* --- targets and SRQs --- */

static void
target_detach(struct karst_core_qp *qp)
{
	*qp->pprev_target = qp->next_target;
	if (qp->next_target != NULL)
		qp->next_target->pprev_target = qp->pprev_target;
	qp->srq = NULL;
	qp->recv_cq = NULL;
	qp->pd = 0;
}

static void
target_attach(struct karst_core_qp *qp, struct karst_core_srq *srq)
{
	if (qp->srq != NULL)
		target_detach(qp);
	qp->next_target = srq->targets;
	qp->pprev_target = &srq->targets;
	if (srq->targets != NULL)
		srq->targets->pprev_target = &qp->next_target;
	srq->targets = qp;
	qp->srq = srq;
	qp->recv_cq = srq->cq;
	qp->pd = srq->pd;
}

bool
karst_xrc_enter(
	struct karst_core *core, struct karst_core_qp *qp, struct karst_pkt *pkt, uint32_t opf)
{
	struct karst_core_srq *srq = qp->srq;

	if (karst_mutant(KARST_MUTANT_XRC_STICKS) && srq != NULL)
		return true;
	/* an SRQ that is being withdrawn has number 0, which no packet can name */
	if (srq != NULL && srq->number == pkt->srqn && srq->number != 0)
		return true;
	/* a held receive belongs to the SRQ that the packet named when it could not be placed */
	srq = opf & KARST_OPF_START && !qp->rsp.rwqe.held ? karst_xrc_find(core, qp, pkt->srqn)
							  : NULL;
	if (srq == NULL) {
		karst_refuse(core, qp, pkt, KARST_NAK_INV_REQ);
		return false;
	}
	target_attach(qp, srq);
	return true;
}

void
karst_xrc_drop(struct karst_core_qp *qp)
{
	if (qp->srq != NULL && qp->srq->number == 0)
		qp->rsp.rwqe.held = false;
}

void
karst_xrc_leave(struct karst_core *core, struct karst_core_qp *qp)
{
	const struct karst_recv_done done = {
		.status = KARST_WC_WR_FLUSH_ERR, .opcode = KARST_WC_RECV};

	if (qp->srq == NULL)
		return;
	karst_xrc_drop(qp);
	if (qp->rsp.rwqe.held)
		karst_recv_complete(core, qp, &done);
	target_detach(qp);
}

bool
karst_srq_withdraw(struct karst_core *core, struct karst_core_srq *srq, uint32_t most)
{
	if (srq->number != 0) {
		*srq_place(core, srq->number) = NULL;
		core->nsrqs--;
		srq->number = 0;
	}
	for (; srq->targets != NULL && most != 0; most--)
		karst_xrc_leave(core, srq->targets);
	return srq->targets == NULL;
}
