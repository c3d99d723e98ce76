/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Keep the requests of one queue pair in the order of their PSNs.  They are in an array that grows,
 * up to a limit, while requests wait for acknowledgement; otherwise the oldest entries are removed.
 * Retransmissions of requests that were removed can no longer be judged.
 */
#include <stdlib.h>

#include "an_priv.h"

#define FIRST_CAP 32
#define MAX_CAP   32768
/* for a flow that is seen in one direction only, where nothing is ever acknowledged */
#define MAX_ALONE 256
#define MAX_REACH (1 << 22)

uint32_t
an_stream_lower(const struct an_stream *s, uint32_t psn)
{
	uint32_t lo = 0, hi = s->n;

	if (s->n != 0 && karst_psn_diff(an_rec_at(s, s->n - 1)->psn, psn) < 0)
		return s->n;
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (karst_psn_diff(an_rec_at(s, mid)->psn, psn) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

uint32_t
an_stream_upto(const struct an_stream *s, uint32_t psn)
{
	uint32_t i = an_stream_lower(s, psn);

	if (i < s->n && an_rec_at(s, i)->psn == psn)
		return i;
	return i != 0 ? i - 1 : s->n;
}

struct an_rec *
an_stream_find(struct an_stream *s, uint32_t psn)
{
	uint32_t i = an_stream_lower(s, psn);
	struct an_rec *r;

	if (i < s->n && an_rec_at(s, i)->psn == psn)
		return an_rec_at(s, i);
	if (i == 0)
		return NULL;
	r = an_rec_at(s, i - 1);
	return karst_psn_diff(psn, r->psn) < (int32_t)r->span ? r : NULL;
}

/* Makes room after the last record.  @return whether there is room. */
static bool
make_room(struct an_stream *s, bool paired)
{
	uint32_t want = s->cap, max = paired ? MAX_CAP : MAX_ALONE, keep;
	struct an_rec *v;

	if (s->head + s->n < s->cap)
		return true;
	/* grow if more than half of the records wait for acknowledgement */
	if (s->n == s->cap && s->cap < max && s->n != 0 &&
		(!s->una_known || s->n - an_stream_lower(s, s->una) > s->n / 2))
		want = s->cap * 2;
	else if (s->cap == 0)
		want = FIRST_CAP;
	if (want != s->cap) {
		v = realloc(s->v, want * sizeof(*v));
		if (v != NULL) {
			s->v = v;
			s->cap = want;
			return true;
		}
		if (s->cap == 0)
			return false;
	}
	keep = s->n > s->cap / 2 ? s->cap / 2 : s->n;
	s->head += s->n - keep;
	s->n = keep;
	memmove(s->v, s->v + s->head, keep * sizeof(*v));
	s->head = 0;
	return true;
}

struct an_rec *
an_stream_insert(struct an_stream *s, uint32_t psn, bool paired)
{
	struct an_rec *r;
	uint32_t i;

	while (s->n != 0 && karst_psn_diff(psn, an_rec_at(s, 0)->psn) > MAX_REACH) {
		s->head++;
		s->n--;
	}
	if (!make_room(s, paired))
		return NULL;
	i = an_stream_lower(s, psn);
	r = an_rec_at(s, i);
	memmove(r + 1, r, (s->n - i) * sizeof(*r));
	s->n++;
	*r = (struct an_rec){.psn = psn, .span = 1};
	return r;
}

void
an_stream_advance(struct an_stream *s)
{
	uint32_t i = an_stream_lower(s, s->front);

	for (; i < s->n && an_rec_at(s, i)->psn == s->front && !an_rec_at(s, i)->damaged; i++) {
		struct an_rec *r = an_rec_at(s, i);

		s->cum += (karst_opcode_flags(r->opcode) & KARST_OPF_END) != 0;
		r->cum = s->cum;
		s->front = karst_psn_add(r->psn, r->span);
	}
}

void
an_stream_restart_at(struct an_stream *s, uint32_t psn)
{
	uint32_t i = an_stream_lower(s, psn);

	s->head += i;
	s->n -= i;
	s->una = s->front = psn;
	s->una_known = s->ack_seen = s->msn_known = false;
	s->nak.valid = s->rnr.valid = s->gap.valid = s->nak_before.valid = false;
	s->early.valid = false;
	s->cum = 0;
	an_stream_advance(s);
}

void
an_stream_restart(struct an_stream *s)
{
	struct an_stream was = *s;

	*s = (struct an_stream){.v = was.v,
		.cap = was.cap,
		.asked = was.asked,
		.acks = was.acks,
		.sent = was.sent,
		.again = was.again,
		.naks = was.naks,
		.rnrs = was.rnrs,
		.timeouts = was.timeouts,
		.reads = was.reads,
		.coalesced_max = was.coalesced_max,
		.plot = was.plot};
}
