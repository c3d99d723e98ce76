/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Hold packets.  Nothing calls a driver when a packet's time has come: it leaves with the next
 * burst of its queue, and stays if there is none.
 *
 * Packets that are held only for a time are in a binary heap; of those with the same time, the one
 * held first leaves first.  Packets that are held for later packets are few, and are checked with
 * each packet; they may have a time, too.
 */
#include "impair.h"

static bool
before(const struct imp_waiting *a, const struct imp_waiting *b)
{
	return a->due != b->due ? a->due < b->due : a->order < b->order;
}

bool
imp_hold_timed(struct imp_held *h, const struct imp_waiting *w)
{
	uint32_t i = h->ntimed;

	if (h->ntimed == h->room)
		return false;
	h->timed[i] = *w;
	h->timed[i].order = h->order++;
	h->ntimed++;
	while (i > 0 && before(&h->timed[i], &h->timed[(i - 1) / 2])) {
		struct imp_waiting up = h->timed[(i - 1) / 2];

		h->timed[(i - 1) / 2] = h->timed[i];
		h->timed[i] = up;
		i = (i - 1) / 2;
	}
	return true;
}

static void
take_top(struct imp_held *h, struct imp_waiting *to)
{
	struct imp_waiting last;
	uint32_t i = 0, child;

	*to = h->timed[0];
	last = h->timed[--h->ntimed];
	for (child = 1; child < h->ntimed; child = 2 * i + 1) {
		if (child + 1 < h->ntimed && before(&h->timed[child + 1], &h->timed[child]))
			child++;
		if (!before(&h->timed[child], &last))
			break;
		h->timed[i] = h->timed[child];
		i = child;
	}
	if (h->ntimed > 0)
		h->timed[i] = last;
}

bool
imp_hold_counted(struct imp_held *h, const struct imp_waiting *w)
{
	if (h->ncounted == IMP_COUNTED)
		return false;
	h->counted[h->ncounted++] = *w;
	return true;
}

/* Takes packet number @i; the others keep their order. */
static void
take_counted(struct imp_held *h, uint32_t i, struct imp_waiting *to)
{
	*to = h->counted[i];
	h->ncounted--;
	memmove(&h->counted[i], &h->counted[i + 1], (h->ncounted - i) * sizeof(h->counted[0]));
}

bool
imp_held_due(struct imp_held *h, uint64_t now, struct imp_waiting *to)
{
	uint32_t i;

	if (h->ntimed > 0 && h->timed[0].due <= now) {
		take_top(h, to);
		to->record.why = IMP_WHY_TIME;
		return true;
	}
	for (i = 0; i < h->ncounted; i++)
		if (h->counted[i].due <= now) {
			take_counted(h, i, to);
			to->record.why = IMP_WHY_TIME;
			return true;
		}
	return false;
}

bool
imp_held_passed(struct imp_held *h, const struct imp_frame *f, bool first, struct imp_waiting *to)
{
	uint32_t i;

	for (i = 0; first && i < h->ncounted; i++) {
		struct imp_waiting *w = &h->counted[i];

		if (w->left > 0 && (w->any || (f != NULL && f->qpn == w->record.qpn)))
			w->left--;
	}
	for (i = 0; i < h->ncounted; i++)
		if (h->counted[i].left == 0) {
			take_counted(h, i, to);
			to->record.why = IMP_WHY_PACKETS;
			return true;
		}
	return false;
}

bool
imp_held_any(struct imp_held *h, struct imp_waiting *to)
{
	if (h->ncounted > 0)
		take_counted(h, 0, to);
	else if (h->ntimed > 0)
		take_top(h, to);
	else
		return false;
	return true;
}
