/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The doorbells of an lcore.
 *
 * Each owner has one doorbell ring and one eventfd for each lcore.  An lcore keeps an array of the
 * bells, which only the lcore accesses: bells are added and removed by calls through the mailbox.
 * In each turn it checks ENG_BELL_LOOKS of them and continues with the next ones in the next turn,
 * so that hundreds of idle owners cost as much as a few.  If there are more bells, users
 * (karst_sched.h) take turns, and in a user's turn one bell of that user is checked: the number of
 * bells of one user does not delay those of other users.
 *
 * A bell counts only for queue pairs of its owner: otherwise a program could keep an lcore busy
 * with the idle queues of another program.
 */
#include "lcore.h"

/* Whether bell @b may ring for @qp, which is NULL if there is no such queue pair. */
static inline bool
may_ring(const struct eng_bell *b, const struct karst_core_qp *qp)
{
	return qp != NULL && karst_qp_ringer(qp) == b->owner;
}

static unsigned int
bell_poll(struct eng_lcore *lc, struct eng_bell *b)
{
	struct karst_core *core = lc->core;
	uint32_t qpns[ENG_BELLS];
	struct karst_core_qp *qps[ENG_BELLS];
	unsigned int i, n = karst_bell_poll(&b->ring, qpns, ENG_BELLS);

	if (n == 0)
		return 0;
	/* prefetch the table entries, then the QPs, and then process the doorbells */
	for (i = 0; i < n && n > 1; i++) {
		uint32_t slot = qpns[i] >> core->lcore_bits;

		if (karst_likely(slot < core->qpns))
			__builtin_prefetch(&core->qps[slot]);
	}
	for (i = 0; i < n; i++) {
		qps[i] = karst_core_lookup(core, qpns[i]);
		if (qps[i] != NULL && n > 1)
			karst_qp_prefetch(qps[i]);
	}
	for (i = 0; i < n; i++)
		if (karst_likely(may_ring(b, qps[i])))
			karst_qp_doorbell(core, qps[i]);
	stat_add(&lc->stats.doorbells, n);
	return n;
}

static inline unsigned int
bell_look(struct eng_lcore *lc, struct eng_bell *b)
{
	eng_bell_touch(lc, b);
	return bell_poll(lc, b);
}

unsigned int
eng_bells_poll(struct eng_lcore *lc)
{
	unsigned int i, n = 0;

	if (karst_likely(lc->nbells <= ENG_BELL_LOOKS)) {
		for (i = 0; i < lc->nbells; i++)
			n += bell_look(lc, &lc->bells[i]);
	} else {
		for (i = 0; i < ENG_BELL_LOOKS; i++) {
			uint32_t *at = &lc->ringer_bell[lc->next_ringer];
			struct eng_bell *b = &lc->bells[*at];

			*at = b->next;
			if (++lc->next_ringer == lc->nringers)
				lc->next_ringer = 0;
			n += bell_look(lc, b);
		}
	}
	eng_bell_touch(lc, NULL);
	return n;
}

/* --- what goes through all bells --- */

void
eng_bell_poll_of(struct eng_lcore *lc, const struct karst_engine_owner *o)
{
	uint32_t i = 0;

	while (i < lc->nbells && lc->bells[i].owner != o)
		i++;
	if (i == lc->nbells)
		return;
	bell_look(lc, &lc->bells[i]);
	eng_bell_touch(lc, NULL);
}

/* Index of the owner's user in ringer_bell; nringers: the user has no bells. */
static uint32_t
ringer_find(const struct eng_lcore *lc, const struct karst_engine_owner *o)
{
	uint32_t i = 0;

	while (i < lc->nringers && lc->bells[lc->ringer_bell[i]].owner->sharer != o->sharer)
		i++;
	return i;
}

/* The bell of the same user whose next one is @i. */
static uint32_t
bell_before(const struct eng_lcore *lc, uint32_t i)
{
	uint32_t at = i;

	while (lc->bells[at].next != i)
		at = lc->bells[at].next;
	return at;
}

int
eng_bell_add_on_lcore(struct eng_lcore *lc, void *arg)
{
	struct karst_engine_owner *o = arg;
	uint32_t i = lc->nbells++, r = ringer_find(lc, o);
	struct eng_bell *b = &lc->bells[i];

	b->owner = o;
	karst_bell_init(&b->ring, o->doorbell[lc->index].bell, o->bell_cells);
	b->next = i;
	if (r == lc->nringers) {
		lc->ringer_bell[lc->nringers++] = i;
	} else {
		struct eng_bell *last = &lc->bells[bell_before(lc, lc->ringer_bell[r])];

		b->next = last->next;
		last->next = i;
	}
	return 0;
}

/* Removes bell @i from the ring of its user. */
static void
bell_unlink(struct eng_lcore *lc, uint32_t i)
{
	uint32_t r = ringer_find(lc, lc->bells[i].owner), next = lc->bells[i].next;

	if (next == i) {
		lc->ringer_bell[r] = lc->ringer_bell[--lc->nringers];
		if (lc->next_ringer >= lc->nringers)
			lc->next_ringer = 0;
		return;
	}
	lc->bells[bell_before(lc, i)].next = next;
	if (lc->ringer_bell[r] == i)
		lc->ringer_bell[r] = next;
}

int
eng_bell_del_on_lcore(struct eng_lcore *lc, void *arg)
{
	uint32_t i = 0, last, r;

	while (i < lc->nbells && lc->bells[i].owner != arg)
		i++;
	if (i == lc->nbells)
		return -ENOENT;
	bell_unlink(lc, i);
	last = --lc->nbells;
	if (i == last)
		return 0;
	/* move the last bell to the free place */
	lc->bells[bell_before(lc, last)].next = i;
	r = ringer_find(lc, lc->bells[last].owner);
	if (lc->ringer_bell[r] == last)
		lc->ringer_bell[r] = i;
	lc->bells[i] = lc->bells[last];
	return 0;
}
