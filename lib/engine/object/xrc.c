/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * XRC domains, and targets with handles of several programs.
 *
 * A domain belongs to one lcore, because a target and the SRQ that a request names must be on the
 * same lcore.  The domain exists as long as it is open or contains objects.
 *
 * A target QP may be opened again.  Each handle is a struct eng_qp with its own owner; all handles
 * share the karst_core_qp, and "same" links them in a ring.  One of them is karst_qp_user(): it
 * represents all in telemetry and for the scheduler, where the target takes turns of that handle's
 * user.  If it is removed, another handle takes its place.  Events go to all handles, so their
 * number is limited.  The memory of an alternate path belongs to the QP, too: one of the handles
 * has it, and passes it to the next when it is removed.
 *
 * All functions here hold ctl_lock.
 */
#include "object.h"

#include "karst_prf.h"

/* --- domains --- */

/* The hash has a secret key, since programs choose files, and choose which of many domains they
 * keep. */
static struct eng_xrcds *
place_of_file(struct karst_engine *e, uint64_t dev, uint64_t ino)
{
	return &e->xrcds_by_file[karst_prf(e->xrcd_key, dev, ino) % ENG_XRCD_PLACES];
}

static struct eng_xrcds *
place_of_number(struct karst_engine *e, uint32_t number)
{
	return &e->xrcds_by_number[karst_prf(e->xrcd_key, number, 0) % ENG_XRCD_PLACES];
}

static struct eng_xrcd *
find_shared(struct karst_engine *e, const struct karst_engine_xrcd_init *init)
{
	struct eng_xrcd *x;

	LIST_FOREACH(x, place_of_file(e, init->dev, init->ino), by_file)
		if (x->dev == init->dev && x->ino == init->ino)
			break;
	return x;
}

static bool
number_taken(struct karst_engine *e, uint32_t number)
{
	const struct eng_xrcd *x;

	LIST_FOREACH(x, place_of_number(e, number), by_number)
		if (x->pub.number == number)
			return true;
	return false;
}

static int
xrcd_make(struct karst_engine *e, const struct karst_engine_xrcd_init *init, struct eng_xrcd **out)
{
	struct eng_xrcd *x;
	uint32_t lcore;
	int ret = eng_choose_lcore(e, init->lcore, &lcore);

	if (ret != 0)
		return ret;
	x = eng_arena_alloc(&e->objects, sizeof(*x));
	if (x == NULL)
		return -ENOMEM;
	while (e->last_xrcd == UINT32_MAX || number_taken(e, e->last_xrcd + 1))
		e->last_xrcd++;
	*x = (struct eng_xrcd){.pub = {.number = ++e->last_xrcd, .lcore = lcore},
		.shared = init->shared,
		.dev = init->dev,
		.ino = init->ino};
	LIST_INSERT_HEAD(place_of_number(e, x->pub.number), x, by_number);
	if (x->shared)
		LIST_INSERT_HEAD(place_of_file(e, x->dev, x->ino), x, by_file);
	*out = x;
	return 0;
}

int
karst_engine_xrcd_open(struct karst_engine *e, const struct karst_engine_xrcd_init *init,
	struct karst_engine_xrcd **xrcd)
{
	struct eng_xrcd *x;
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	x = init->shared ? find_shared(e, init) : NULL;
	if (x != NULL)
		ret = init->exclusive ? -EEXIST : 0;
	else
		ret = init->shared && !init->create ? -ENOENT : xrcd_make(e, init, &x);
	if (ret == 0) {
		x->users++;
		*xrcd = &x->pub;
	}
	eng_ctl_leave(e);
	return ret;
}

void
eng_xrcd_get(struct karst_engine_xrcd *xrcd)
{
	karst_container_of(xrcd, struct eng_xrcd, pub)->users++;
}

void
eng_xrcd_put(struct karst_engine *e, struct karst_engine_xrcd *xrcd)
{
	struct eng_xrcd *x = karst_container_of(xrcd, struct eng_xrcd, pub);

	if (--x->users != 0)
		return;
	LIST_REMOVE(x, by_number);
	if (x->shared)
		LIST_REMOVE(x, by_file);
	eng_arena_free(&e->objects, x, sizeof(*x));
}

int
karst_engine_xrcd_close(struct karst_engine *e, struct karst_engine_xrcd *xrcd)
{
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	eng_xrcd_put(e, xrcd);
	eng_ctl_leave(e);
	return 0;
}

/* --- further handles of a target --- */

struct open_call {
	const struct karst_engine_qp_open *in;
	struct eng_qp *q;
};

static int
open_on_lcore(struct eng_lcore *lc, void *arg)
{
	const struct karst_engine_qp_open *in = ((struct open_call *)arg)->in;
	struct karst_core_qp *qp = karst_core_lookup(lc->core, in->qpn);
	struct eng_qp *first, *h, *q = ((struct open_call *)arg)->q;
	uint32_t n = 1;

	if (qp == NULL || karst_qp_xrcd(qp) != in->xrcd->number)
		return -ENOENT;
	first = karst_qp_user(qp);
	for (h = first; h->same != first; h = h->same)
		n++;
	if (n == KARST_ENGINE_TARGET_HANDLES)
		return -EUSERS;
	*q = (struct eng_qp){.pub = first->pub,
		.qp = qp,
		.owner = in->owner != NULL ? in->owner : lc->e->self,
		.xrcd = first->xrcd,
		.core_mem = first->core_mem,
		.core_bytes = first->core_bytes,
		.self_bytes = sizeof(*q),
		.same = first->same};
	q->pub.user = in->user;
	eng_qp_set_doorbell(q, lc->index);
	first->same = q;
	return 0;
}

static int
qp_open(struct karst_engine *e, const struct karst_engine_qp_open *in, struct karst_engine_qp **qp)
{
	struct open_call call = {.in = in, .q = eng_arena_alloc(&e->objects, sizeof(*call.q))};
	int ret;

	if (call.q == NULL)
		return -ENOMEM;
	ret = eng_mailbox_call(&e->lcore[in->xrcd->lcore], open_on_lcore, &call);
	if (ret != 0) {
		eng_arena_free(&e->objects, call.q, sizeof(*call.q));
		return ret;
	}
	call.q->owner->nobjects++;
	eng_xrcd_get(call.q->xrcd);
	*qp = &call.q->pub;
	return 0;
}

int
karst_engine_qp_open(struct karst_engine *e, const struct karst_engine_qp_open *open,
	struct karst_engine_qp **qp)
{
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = qp_open(e, open, qp);
	eng_ctl_leave(e);
	return ret;
}

bool
karst_engine_qp_is_shared(struct karst_engine *e, const struct karst_engine_qp *qp)
{
	const struct eng_qp *q = karst_container_of(qp, const struct eng_qp, pub);
	bool shared;

	if (eng_ctl_enter(e) != 0)
		return true;
	shared = q->same != q;
	eng_ctl_leave(e);
	return shared;
}

void **
eng_qp_alternate(struct eng_qp *q)
{
	struct eng_qp *h = q;

	while (h->alternate_mem == NULL && h->same != q)
		h = h->same;
	return &h->alternate_mem;
}

bool
eng_qp_part(struct eng_lcore *lc, struct eng_qp *q)
{
	struct eng_qp *before = q;

	if (q->same == q)
		return false;
	if (karst_qp_user(q->qp) == q)
		karst_qp_set_user(lc->core, q->qp, q->same, q->same->owner, q->same->owner->sharer);
	/* the QP still uses it (see eng_qp_alternate()) */
	if (q->alternate_mem != NULL)
		q->same->alternate_mem = q->alternate_mem;
	q->alternate_mem = NULL;
	while (before->same != q)
		before = before->same;
	before->same = q->same;
	q->qp = NULL;
	return true;
}
