/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Enhanced connection establishment of queue pairs (C3, X1): what a queue pair may offer, and what
 * it has agreed on with its peer.
 *
 *	active side                        passive side
 *	query: an offer
 *	REQ with it               ->       connect request, the offer with it
 *	                                   set: the offer; the result is the answer
 *	                                   RTR
 *	connect response          <-       REP with it
 *	set: the answer
 *	RTR
 *
 * The program passes these values between its queue pair and connection management (cm_ece.c),
 * since the queue pair and the identifier do not know each other; librdmacm does this
 * automatically.  The values are checked in both directions, so that a program can only harm
 * itself: a queue pair that assumes an agreement that does not exist uses selective repeat, and its
 * peer does not.
 */
#include <errno.h>

#include "ece.h"
#include "object.h"

static struct karst_cm_ece
offer_of(const struct karst_engine *e)
{
	return karst_cm_ece_offer(eng_ece_can(&e->cfg), ENG_REPEAT_WINDOW_SHIFT);
}

static int
qp_state_on_lcore(struct eng_lcore *lc, void *arg)
{
	const struct eng_qp *q = arg;

	(void)lc;
	return (int)karst_qp_state(q->qp);
}

/* With ctl_lock held.  -EINVAL: it is too late for an agreement. */
static int
check_early(struct karst_engine *e, struct eng_qp *q)
{
	int state = eng_mailbox_call(&e->lcore[q->pub.lcore], qp_state_on_lcore, q);

	if (state < 0)
		return state;
	return state == KARST_QPS_RESET || state == KARST_QPS_INIT ? 0 : -EINVAL;
}

/* Computes what is agreed from what the peer has sent, and the value that expresses it. */
static struct karst_cm_ece
agree(const struct karst_engine *e, const struct karst_cm_ece *said, uint32_t *agreed)
{
	const struct karst_cm_ece offer = offer_of(e);
	struct karst_cm_ece answer =
		karst_cm_ece_answer(said, eng_ece_can(&e->cfg), ENG_REPEAT_WINDOW_SHIFT);

	/* the peer sent an answer, not an offer: it is final */
	if (!karst_cm_ece_is(&answer) && karst_cm_ece_agreed(&offer, said) != 0)
		answer = *said;
	*agreed = karst_cm_ece_agreed(&offer, &answer);
	return answer;
}

int
karst_engine_qp_query_ece(struct karst_engine *e, const struct karst_engine_qp *qp,
	uint32_t *vendor, uint32_t *options)
{
	const struct eng_qp *q = karst_container_of(qp, const struct eng_qp, pub);
	struct karst_cm_ece ece;
	int ret;

	if (eng_ece_can(&e->cfg) == 0 || karst_qp_type(q->qp) != KARST_QPT_RC)
		return -EOPNOTSUPP;
	ret = eng_ctl_enter(e);
	if (ret != 0)
		return ret;
	ece = offer_of(e);
	*vendor = ece.vendor;
	*options = q->ece_set ? q->ece_options : ece.options;
	eng_ctl_leave(e);
	return 0;
}

int
karst_engine_qp_set_ece(
	struct karst_engine *e, struct karst_engine_qp *qp, uint32_t *vendor, uint32_t *options)
{
	struct eng_qp *q = karst_container_of(qp, struct eng_qp, pub);
	struct karst_cm_ece said = {.vendor = *vendor, .options = *options};
	int ret;

	if (eng_ece_can(&e->cfg) == 0 || karst_qp_type(q->qp) != KARST_QPT_RC)
		return -EOPNOTSUPP;
	if (said.vendor != 0 && said.vendor != KARST_CM_ECE_VENDOR)
		return -EINVAL;
	ret = eng_ctl_enter(e);
	if (ret != 0)
		return ret;
	ret = check_early(e, q);
	if (ret == 0) {
		said = agree(e, &said, &q->ece_agreed);
		q->ece_set = true;
		q->ece_options = said.options;
		*vendor = said.vendor;
		*options = said.options;
	}
	eng_ctl_leave(e);
	return ret;
}

bool
eng_qp_ece_repeats(const struct eng_qp *q)
{
	return (q->ece_agreed & KARST_CM_ECE_REPEAT) != 0;
}

void
eng_qp_ece_forget(struct eng_qp *q)
{
	q->ece_set = false;
	q->ece_agreed = 0;
	q->ece_options = 0;
}
