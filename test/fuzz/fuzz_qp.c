/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Fuzz target: the entry points of queue pairs.
 *
 * The first bytes of an input choose two queue pairs of one kind (RC, UC, UD; or the two halves of
 * XRC, with two SRQs), their limits, and what they share.  The rest is a list of actions: raw
 * frames; frames of chosen fields near significant PSNs, with a right ICRC, so that the state
 * machines are reached; time; transmission with small budgets; valid and invalid work requests;
 * random bytes in the shared rings; modify calls; regions that are deregistered.
 *
 * What must hold: no sanitizer report; the invariants of unit/qp/selfcheck.h after every action;
 * every frame sent parses and carries a right ICRC; memory that may not be written keeps its
 * contents: the guards, a read-only region, a region of another protection domain, and one without
 * remote rights as long as the program has not named it.  In the end the queue pairs go into Error
 * and everything is flushed within a bounded number of turns (principle: never stuck).
 */
#include "fuzz.h"
#include "qp_rig.h"

#define ACTIONS   400u
#define MAX_TURNS 4096u

/* Aborts if @wrong, the result of a self-check, is not NULL. */
static void
fine(const char *wrong)
{
	check(wrong == NULL, wrong, __FILE__, __LINE__);
}

/* --- what must hold --- */

static void
page_untouched(unsigned int page)
{
	const uint8_t *p = arena + page * PAGE;

	CHECK(p[0] == 0xee && memcmp(p, p + 1, PAGE - 1) == 0);
}

static void
check_memory(const struct rig *r)
{
	page_untouched(0);
	page_untouched(2);
	page_untouched(6);
	page_untouched(PAGE_READ_ONLY);
	page_untouched(PAGE_OTHER_PD);
	if (!r->local_named)
		page_untouched(PAGE_LOCAL);
}

static void
check_qps(const struct rig *r)
{
	unsigned int i;

	for (i = 0; i < QPS; i++)
		fine(qp_selfcheck(r->core, r->qp[i]));
}

/* Whatever happened, Error flushes all that was posted, and then nothing more is sent. */
static void
end(struct rig *r)
{
	struct karst_core_qp_attr a = {.qp_state = KARST_QPS_ERR};
	struct karst_core_qp *qp;
	unsigned int i, turns = 0;

	for (i = 0; i < QPS; i++)
		CHECK(karst_qp_modify(r->core, r->qp[i], &a, KARST_QP_STATE) == 0);
	while ((qp = karst_core_next_active(r->core)) != NULL) {
		CHECK(turns++ < MAX_TURNS);
		visit(r, qp, FRAMES, UINT32_MAX);
	}
	karst_core_flush(r->core);
	r->core->now_ns += 1ull << 40;
	karst_core_expire(r->core, 1000);
	CHECK(karst_core_next_active(r->core) == NULL);
	for (i = 0; i < QPS; i++) {
		qp = r->qp[i];
		fine(qp_flushed(qp));
		a.qp_state = KARST_QPS_RESET;
		CHECK(karst_qp_modify(r->core, qp, &a, KARST_QP_STATE) == 0);
		karst_qp_destroy(r->core, qp);
	}
	CHECK(r->core->timing.count == 0 && !karst_core_has_active(r->core));
	CHECK(r->srq == NULL || karst_srq_destroy(r->core, r->srq) == 0);
	CHECK(r->srq2 == NULL || karst_srq_destroy(r->core, r->srq2) == 0);
	CHECK(karst_cq_destroy(r->cq) == 0);
}

static void
act(struct rig *r, struct input *in)
{
	uint8_t what = u8(in);

	switch (what % 16) {
	case 0:
		raw_frame(r, in);
		break;
	case 1:
	case 2:
	case 3:
	case 4:
		made_frame(r, in);
		break;
	case 5:
	case 6:
		transmit(r, in);
		break;
	case 7:
		pass_time(r, in);
		break;
	case 8:
	case 9:
		post_send(r, in);
		break;
	case 10:
		post_recv(r, in);
		break;
	case 11:
		scribble(r, in);
		break;
	case 12:
		modify(r, in);
		break;
	case 13:
		take_completions(r, in);
		break;
	case 14:
		karst_core_doorbell(r->core, take(in, 1));
		if (r->srq != NULL)
			karst_srq_set_limit(r->core, r->srq, what >> 4);
		if (r->srq2 != NULL && what >> 4 == 15) {
			/* at any point of the traffic */
			CHECK(karst_srq_destroy(r->core, r->srq2) == 0);
			r->srq2 = open_xrc_srq(r, 1);
		}
		break;
	default:
		renew_region(r);
	}
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	unsigned int actions;
	struct rig r;

	open_rig(&r, &in);
	for (actions = 0; actions < ACTIONS && in.left > 0; actions++) {
		act(&r, &in);
		check_qps(&r);
	}
	end(&r);
	check_memory(&r);
	return 0;
}
