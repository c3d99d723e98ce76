/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The links: one for each direction between two nodes.
 *
 * A frame that is sent gets a random fate: it is lost, corrupted (bits flipped, bytes overwritten,
 * truncated), duplicated, overtaken by later ones, or only delayed.  So requests arrive ahead and
 * twice (P3), and acknowledgements arrive as ghosts (Q10).  Frames in flight are in a heap, by time
 * of arrival.  A corrupted frame has a copy of the original, to judge the receiver's decision: it
 * may accept the frame only if nothing that the ICRC covers has changed.
 */
#include <stdlib.h>

#include "karst_hdr.h"
#include "karst_opcode.h"
#include "sim.h"

#define HEADROOM 32

struct sim_frame *
sim_frame_get(struct sim *s)
{
	struct sim_frame *f = s->free_frames;

	if (f != NULL)
		s->free_frames = f->next;
	else
		f = sim_alloc_raw(s, sizeof(*f));
	f->next = NULL;
	f->corrupt = f->noise = false;
	f->clean = NULL;
	/* Drivers differ in the alignment of the start. */
	f->buf = f->store + HEADROOM;
	return f;
}

void
sim_frame_put(struct sim *s, struct sim_frame *f)
{
	if (f->clean != NULL) {
		struct sim_frame *c = karst_container_of(f->clean, struct sim_frame, store);

		c->next = s->free_frames;
		s->free_frames = c;
	}
	f->clean = NULL;
	f->next = s->free_frames;
	s->free_frames = f;
}

/* --- heap --- */

static bool
earlier(const struct sim_frame *a, const struct sim_frame *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->seq < b->seq;
}

static void
heap_push(struct sim *s, struct sim_frame *f)
{
	uint32_t i = s->nheap++;

	if (i == KARST_DIM(s->heap))
		sim_fail(s, "simulator: too many frames in flight");
	while (i > 0 && earlier(f, s->heap[(i - 1) / 2])) {
		s->heap[i] = s->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	s->heap[i] = f;
}

static struct sim_frame *
heap_pop(struct sim *s)
{
	struct sim_frame *top = s->heap[0], *f = s->heap[--s->nheap];
	uint32_t i = 0, c;

	while ((c = 2 * i + 1) < s->nheap) {
		if (c + 1 < s->nheap && earlier(s->heap[c + 1], s->heap[c]))
			c++;
		if (!earlier(s->heap[c], f))
			break;
		s->heap[i] = s->heap[c];
		i = c;
	}
	s->heap[i] = f;
	return top;
}

/* --- damage --- */

static void
flip_bits(struct sim *s, struct sim_frame *f)
{
	uint32_t n = rng_log(&s->rng, 1, 16);

	while (n-- > 0) {
		uint32_t bit = rng_below(&s->rng, f->len * 8u);

		/* Errors in headers are more interesting. */
		if (rng_one_in(&s->rng, 2) && f->len > 60)
			bit = rng_below(&s->rng, 70 * 8) % (f->len * 8u);
		f->buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

static void
spoil(struct sim *s, struct sim_frame *f)
{
	struct sim_frame *c = sim_frame_get(s);
	uint32_t i, n, at;

	memcpy(c->store, f->buf, f->len);
	f->clean = c->store;
	f->clean_len = f->len;
	f->corrupt = true;
	switch (rng_below(&s->rng, 4)) {
	case 0: /* cut off */
		f->len = (uint16_t)rng_below(&s->rng, f->len);
		break;
	case 1: /* a run of garbage */
		n = rng_log(&s->rng, 1, 32);
		at = rng_below(&s->rng, f->len);
		for (i = at; i < at + n && i < f->len; i++)
			f->buf[i] = (uint8_t)rng_u64(&s->rng);
		break;
	default:
		flip_bits(s, f);
		break;
	}
}

/*
 * Whether the frame equals the one that was sent, from the IP header to the ICRC, except in fields
 * that the ICRC does not cover (W7).  Only for frames that the parser accepted.
 */
bool
sim_frame_same(const struct sim_frame *f)
{
	const uint8_t *a = f->buf, *b = f->clean;
	uint32_t l3 = 14, i, l4, n;
	bool ip6;

	if (a[12] == 0x81 && a[13] == 0)
		l3 = 18;
	if ((b[12] == 0x81 && b[13] == 0) != (l3 == 18))
		return false;
	ip6 = a[l3 - 2] == 0x86;
	l4 = l3 + (ip6 ? 40 : 20);
	n = l4 + karst_get_be16(a + l4 + 4);
	if (n > f->len || n > f->clean_len)
		return false;
	for (i = l3; i < n; i++) {
		if (a[i] == b[i] || i == l4 + 6 || i == l4 + 7 || i == l4 + 8 + 4)
			continue;
		if (!ip6 && (i == l3 + 1 || i == l3 + 8 || i == l3 + 10 || i == l3 + 11))
			continue;
		if (ip6 &&
			((i == l3 && (a[i] & 0xf0) == (b[i] & 0xf0)) || (i > l3 && i < l3 + 4) ||
				i == l3 + 7))
			continue;
		return false;
	}
	return true;
}

/* --- sending --- */

static bool
is_ack(const struct karst_pkt *p)
{
	return (karst_opcode_flags(p->opcode) & KARST_OPF_RESPONSE) != 0;
}

static void
dispatch(struct sim *s, struct sim_link *l, struct sim_frame *f, bool late)
{
	uint64_t at = s->now_ns + l->delay_ns;

	if (rng_ppm(&s->rng, l->jitter_ppm))
		at += rng_below(&s->rng, l->jitter_ns);
	if (late) {
		at += rng_below(&s->rng, l->reorder_ns);
	} else {
		at = karst_max_u64(at, l->last_ns);
		l->last_ns = at;
	}
	f->at_ns = at;
	f->seq = s->frame_seq++;
	heap_push(s, f);
}

static struct sim_frame *
frame_copy(struct sim *s, const struct sim_frame *f)
{
	struct sim_frame *c = sim_frame_get(s);

	memcpy(c->buf, f->buf, f->len);
	c->len = f->len;
	c->from = f->from;
	c->to = f->to;
	c->flow = f->flow;
	c->noise = f->noise;
	return c;
}

static void
adverse(struct sim_pair *pair)
{
	if (pair == NULL)
		return;
	pair->ep[0].adverse++;
	pair->ep[1].adverse++;
}

void
sim_link_send(
	struct sim *s, struct sim_frame *f, const struct karst_pkt *info, struct sim_pair *pair)
{
	struct sim_link *l = &s->links[f->from][f->to];
	bool dead = pair != NULL && s->now_ns >= pair->dead_ns, late;

	f->flow = pair != NULL ? (uint8_t)(pair->idx / 2) : 0;
	if (pair != NULL && pair->two_paths && sim_paths_dead(s, pair, info)) {
		/* without adverse(): a failed path is no reason to use up all retries */
		sim_trace(s, FATE_LOST, f->from, f->to, info, true);
		s->stats.dropped++;
		sim_frame_put(s, f);
		return;
	}
	if (dead || rng_ppm(&s->rng, l->drop_ppm) ||
		(l->ack_drop_ppm != 0 && is_ack(info) && rng_ppm(&s->rng, l->ack_drop_ppm))) {
		sim_trace(s, FATE_LOST, f->from, f->to, info, true);
		s->stats.dropped++;
		adverse(pair);
		sim_frame_put(s, f);
		return;
	}
	sim_marks_link(s, f, info);
	if (s->noise_ppm != 0 && rng_ppm(&s->rng, s->noise_ppm)) {
		struct sim_frame *c = frame_copy(s, f);

		sim_forge_noise(s, c, info);
		dispatch(s, l, c, false);
	}
	if (pair != NULL && pair->fault == FAULT_FORGED && rng_one_in(&s->rng, 12))
		sim_forge(s, f, info);
	if (rng_ppm(&s->rng, l->dup_ppm)) {
		uint32_t n = rng_log(&s->rng, 1, 4);

		s->stats.duplicated++;
		sim_trace(s, FATE_DUPLICATED, f->from, f->to, info, true);
		while (n-- > 0)
			dispatch(s, l, frame_copy(s, f), rng_one_in(&s->rng, 2));
	}
	late = rng_ppm(&s->rng, l->reorder_ppm);
	if (rng_ppm(&s->rng, l->corrupt_ppm)) {
		spoil(s, f);
		s->stats.corrupted++;
		adverse(pair);
		sim_trace(s, FATE_SPOILT, f->from, f->to, info, true);
	} else {
		sim_trace(s, late ? FATE_DELAYED : FATE_SENT, f->from, f->to, info, true);
	}
	if (late)
		adverse(pair);
	dispatch(s, l, f, late);
}

void
sim_link_deliver(struct sim *s)
{
	while (s->nheap > 0 && s->heap[0]->at_ns <= s->now_ns) {
		struct sim_frame *f = heap_pop(s);
		/* All frames of a flow go to one core, possibly the wrong one, as with a NIC. */
		uint32_t at = s->jumbled ? rng_below(&s->rng, s->ncores) : f->flow % s->ncores;
		struct sim_core *c = &s->nodes[f->to].cores[at];

		f->next = NULL;
		*c->inbox.tail = f;
		c->inbox.tail = &f->next;
		c->inbox.n++;
	}
}

uint64_t
sim_link_next(const struct sim *s)
{
	return s->nheap > 0 ? s->heap[0]->at_ns : UINT64_MAX;
}
