/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Keep the points of the sequence plot.  A flow keeps up to POINTS of them.  When they are full,
 * every second ordinary point (new packets, ACKs) is removed, from then on only every second one is
 * added, and so on.  Marks (retransmissions, NAKs, RNR NAKs, CNPs) are kept while there is room.
 */
#include <stdlib.h>

#include "an_priv.h"

#define POINTS   4096
#define MAX_FLOW 64

static bool
ordinary(uint8_t kind)
{
	return kind == AN_PT_NEW || kind == AN_PT_ACK;
}

static void
thin(struct an_plot *t)
{
	unsigned int i, kept = 0, odd = 0;

	for (i = 0; i < t->n; i++)
		if (!ordinary(t->at[i].kind) || (odd++ & 1) == 0)
			t->at[kept++] = t->at[i];
	t->n = kept;
	t->stride *= 2;
}

void
an_plot(struct an *a, struct an_stream *s, enum an_point_kind kind, uint32_t psn, uint64_t ns)
{
	struct an_plot *t = &s->plot;

	if (!a->o->plot)
		return;
	if (t->at == NULL) {
		if (a->plots == MAX_FLOW || (t->at = calloc(POINTS, sizeof(*t->at))) == NULL)
			return;
		a->plots++;
		t->stride = 1;
	}
	if (ordinary((uint8_t)kind) && ++t->skipped < t->stride)
		return;
	t->skipped = ordinary((uint8_t)kind) ? 0 : t->skipped;
	if (t->n == POINTS)
		thin(t);
	if (t->n == POINTS) {
		t->missing++;
		return;
	}
	t->at[t->n++] = (struct an_point){.ns = ns, .psn = psn, .kind = (uint8_t)kind};
}
