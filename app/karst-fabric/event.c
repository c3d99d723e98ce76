/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The queue of events, ordered by time: a heap with four children to a node, whose entries contain
 * the keys.
 */
#include "sim.h"

#define CHILDREN 4u
#define FIRST    1024u

static inline bool
earlier(const struct fab_event *a, const struct fab_event *b)
{
	return a->at_ps != b->at_ps ? a->at_ps < b->at_ps : a->seq < b->seq;
}

static karst_noinline void
events_grow(struct fab_sim *s)
{
	struct fab_events *q = &s->events;
	uint64_t cap = q->cap != 0 ? 2 * q->cap : FIRST;
	struct fab_event *heap = fab_alloc(s, cap * sizeof(*heap));

	if (q->n != 0)
		memcpy(heap, q->heap, q->n * sizeof(*heap));
	fab_free(s, q->heap);
	q->heap = heap;
	q->cap = cap;
}

void
fab_event_add(struct fab_sim *s, uint64_t at_ps, fab_event_fn *fn, void *arg)
{
	struct fab_events *q = &s->events;
	struct fab_event e = {.at_ps = at_ps, .seq = q->seq++, .fn = fn, .arg = arg};
	uint64_t i;

	if (karst_unlikely(q->n == q->cap))
		events_grow(s);
	for (i = q->n++; i > 0 && earlier(&e, &q->heap[(i - 1) / CHILDREN]); i = (i - 1) / CHILDREN)
		q->heap[i] = q->heap[(i - 1) / CHILDREN];
	q->heap[i] = e;
}

bool
fab_event_next(struct fab_events *q, struct fab_event *e)
{
	struct fab_event last;
	uint64_t i = 0, first;

	if (q->n == 0)
		return false;
	*e = q->heap[0];
	last = q->heap[--q->n];
	while ((first = CHILDREN * i + 1) < q->n) {
		uint64_t end = karst_min_u64(first + CHILDREN, q->n), best = first, c;

		for (c = first + 1; c < end; c++)
			if (earlier(&q->heap[c], &q->heap[best]))
				best = c;
		if (!earlier(&q->heap[best], &last))
			break;
		q->heap[i] = q->heap[best];
		i = best;
	}
	q->heap[i] = last;
	return true;
}
