/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Doorbells that an lcore listens to.
 *
 * Each owner has one doorbell ring and one eventfd for each lcore.  An lcore keeps an
 * array of the bells, which only it touches: adding and removing one are calls through the mailbox.
 * In a turn it looks at ENG_BELL_LOOKS of them, and goes on with the next ones in the next turn, so
 * that hundreds of owners that do nothing cost as much as a few.
 *
 * A bell counts only for queue pairs of its owner: else one program could keep an lcore busy with
 * the idle queues of another.
 */
#include "lcore.h"

/* The QP that bell @b rings for, if it may. */
static inline bool
may_ring(const struct eng_lcore *lc, const struct eng_bell *b, uint32_t qpn)
{
	const struct karst_core_qp *qp = karst_core_lookup(lc->core, qpn);

	return qp != NULL && karst_qp_ringer(qp) == b->owner;
}

static unsigned int
bell_poll(struct eng_lcore *lc, struct eng_bell *b)
{
	struct karst_core *core = lc->core;
	uint32_t qpns[ENG_BELLS];
	unsigned int i, n = karst_bell_poll(&b->ring, qpns, ENG_BELLS);

	if (n == 0)
		return 0;
	/* first their places in the table, then they themselves, and only then it rings */
	for (i = 0; i < n && n > 1; i++) {
		uint32_t slot = qpns[i] >> core->lcore_bits;

		if (karst_likely(slot < core->qpns))
			__builtin_prefetch(&core->qps[slot]);
	}
	for (i = 0; i < n && n > 1; i++) {
		const struct karst_core_qp *qp = karst_core_lookup(core, qpns[i]);

		if (qp != NULL)
			karst_qp_prefetch(qp);
	}
	for (i = 0; i < n; i++)
		if (karst_likely(may_ring(lc, b, qpns[i])))
			karst_core_doorbell(core, qpns[i]);
	stat_add(&lc->stats.doorbells, n);
	return n;
}

unsigned int
eng_bells_poll(struct eng_lcore *lc)
{
	unsigned int i, n = 0, looks = karst_min_u32(lc->nbells, ENG_BELL_LOOKS);

	for (i = 0; i < looks; i++) {
		eng_bell_touch(lc, &lc->bells[lc->next_bell]);
		n += bell_poll(lc, &lc->bells[lc->next_bell]);
		if (++lc->next_bell == lc->nbells)
			lc->next_bell = 0;
	}
	eng_bell_touch(lc, NULL);
	return n;
}

int
eng_bell_add_on_lcore(struct eng_lcore *lc, void *arg)
{
	struct karst_engine_owner *o = arg;
	struct eng_bell *b = &lc->bells[lc->nbells++];

	b->owner = o;
	karst_bell_init(&b->ring, o->doorbell[lc->index].bell, o->bell_cells);
	return 0;
}

int
eng_bell_del_on_lcore(struct eng_lcore *lc, void *arg)
{
	uint32_t i = 0;

	while (i < lc->nbells && lc->bells[i].owner != arg)
		i++;
	if (i == lc->nbells)
		return -ENOENT;
	lc->bells[i] = lc->bells[--lc->nbells];
	if (lc->next_bell >= lc->nbells)
		lc->next_bell = 0;
	return 0;
}
