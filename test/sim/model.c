/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The model of memory: which contents are right.
 *
 * The shadow of a node's memory holds the certain contents.  Outstanding WRITEs are uncertain: each
 * cell has a list of the WRITEs that are posted and not known to be executed, oldest first.  A byte
 * of a cell is right if it is that of the shadow or of one of these WRITEs.  When a WRITE
 * completes, it must be visible except where a later one may be; then it becomes part of the
 * shadow.  A READ must return bytes that were right at some time while it was outstanding: since
 * everything posted before it is in the shadow when it completes, these are bytes of the shadow or
 * of a later WRITE.  A duplicate that is executed again restores old bytes, which are neither (R3).
 *
 * Each FETCH ADD of a word adds a different bit, so a value is the set of those that were executed;
 * executing one twice carries into the next bit (R5).  COMPARE SWAPs store values that are never
 * used twice, so the successful ones form a chain (R7).
 */
#include "sim.h"

void
sim_fill(uint8_t *p, uint32_t len, uint64_t seed)
{
	uint64_t v = sim_mix(seed + 1);

	for (; len >= 8; len -= 8, p += 8) {
		v = v * 0x9e3779b97f4a7c15ull + 0x1234567;
		v ^= v >> 29;
		memcpy(p, &v, 8);
	}
	v = sim_mix(v);
	memcpy(p, &v, len);
}

/* --- pieces --- */

bool
sim_pieces_match(const struct sim_node *n, const struct sim_piece *p, uint32_t np, uint32_t skip,
	const uint8_t *data, uint32_t len, bool strict)
{
	uint32_t i, at, part;

	for (i = 0; i < np; i++) {
		at = 0;
		part = karst_min_u32(skip, p[i].len);
		skip -= part;
		at += part;
		part = karst_min_u32(len, p[i].len - at);
		if (memcmp(n->mem + p[i].off + at, data, part) != 0)
			return false;
		data += part;
		len -= part;
		at += part;
		if (strict &&
			memcmp(n->mem + p[i].off + at, n->shadow + p[i].off + at, p[i].len - at) !=
				0)
			return false;
	}
	return len == 0;
}

void
sim_pieces_accept(struct sim_node *n, const struct sim_piece *p, uint32_t np)
{
	uint32_t i;

	for (i = 0; i < np; i++)
		memcpy(n->shadow + p[i].off, n->mem + p[i].off, p[i].len);
}

/* --- cells --- */

void
sim_cell_add(struct sim *s, struct sim_op *op)
{
	struct sim_cell *c = op->cell;

	if (c->npending == SIM_CELL_PENDING)
		sim_fail(s, "simulator: too many writes pending");
	c->pending[c->npending++] = op;
}

static uint32_t
pending_index(const struct sim_op *op)
{
	const struct sim_cell *c = op->cell;
	uint32_t i;

	for (i = 0; i < c->npending && c->pending[i] != op; i++)
		;
	return i;
}

/* Whether one of the pending writes, from @first on, writes @v at offset @at of the cell. */
static bool
written_by(const struct sim_cell *c, uint32_t first, uint32_t at, uint8_t v)
{
	uint32_t i;

	for (i = first; i < c->npending; i++) {
		const struct sim_op *w = c->pending[i];

		if (at - w->cell_off < w->len && w->data[at - w->cell_off] == v)
			return true;
	}
	return false;
}

void
sim_cell_shows(struct sim *s, struct sim_ep *ep, const struct sim_op *op)
{
	const struct sim_cell *c = op->cell;
	const uint8_t *mem;
	uint32_t i, later;

	if (op->len == 0)
		return;
	mem = ep->peer->node->mem + c->off + op->cell_off;
	if (memcmp(mem, op->data, op->len) == 0)
		return;
	later = pending_index(op) + 1;
	for (i = 0; i < op->len; i++) {
		if (mem[i] != op->data[i] && !written_by(c, later, op->cell_off + i, mem[i]))
			sim_fail(s,
				"pair %u, QP %#x: %s number %u has completed, but byte %u of %u at "
				"the target is %02x instead of %02x",
				ep->pair->idx, ep->qpn, sim_op_name(op->opcode),
				(uint32_t)(op - ep->ops), i, op->len, mem[i], op->data[i]);
	}
}

void
sim_cell_apply(struct sim *s, struct sim_ep *ep, struct sim_op *op)
{
	struct sim_cell *c = op->cell;
	uint32_t at;

	if (op->len == 0)
		return;
	sim_cell_shows(s, ep, op);
	memcpy(ep->peer->node->shadow + c->off + op->cell_off, op->data, op->len);
	at = pending_index(op);
	c->npending--;
	memmove(&c->pending[at], &c->pending[at + 1], (c->npending - at) * sizeof(c->pending[0]));
}

void
sim_cell_read(struct sim *s, struct sim_ep *ep, const struct sim_op *op)
{
	const struct sim_cell *c = op->cell;
	const uint8_t *shadow = ep->peer->node->shadow;
	uint32_t i, j, at = op->cell_off;

	for (i = 0; i < op->npieces; i++) {
		const uint8_t *got = ep->node->mem + op->pieces[i].off;
		uint32_t n = op->pieces[i].len;

		if (memcmp(got, shadow + c->off + at, n) == 0) {
			at += n;
			continue;
		}
		for (j = 0; j < n; j++, at++) {
			if (got[j] != shadow[c->off + at] && !written_by(c, 0, at, got[j]))
				sim_fail(s,
					"pair %u, QP %#x: READ number %u returned %02x as byte %u of "
					"%u, which was never there (%02x is)",
					ep->pair->idx, ep->qpn, (uint32_t)(op - ep->ops), got[j],
					at - op->cell_off, op->len, shadow[c->off + at]);
		}
	}
}

void
sim_cell_final(struct sim *s, struct sim_node *n, struct sim_cell *c, bool exact)
{
	uint32_t i;

	if (exact) {
		for (i = 0; i < c->npending; i++)
			memcpy(n->shadow + c->off + c->pending[i]->cell_off, c->pending[i]->data,
				c->pending[i]->len);
		c->npending = 0;
	}
	for (i = 0; i < c->len; i++) {
		uint8_t v = n->mem[c->off + i];

		if (v != n->shadow[c->off + i] && !written_by(c, 0, i, v))
			sim_fail(s,
				"node %u: byte %u of a target area of %u bytes is %02x at the end; "
				"%02x was there and no write that may have happened put it",
				n->idx, i, c->len, v, n->shadow[c->off + i]);
	}
	memcpy(n->shadow + c->off, n->mem + c->off, c->len);
	c->npending = 0;
}

/* --- atomic words --- */

void
sim_word_posted(struct sim *s, struct sim_ep *ep, struct sim_op *op)
{
	struct sim_word *w = op->word;
	uint32_t i;

	if (w->kind == WORD_FAA) {
		op->compare_add = 1ull << w->nops;
		op->seen_bits = w->done_bits;
		for (i = 0; i < w->nops; i++) {
			if (w->ops[i]->ep == ep)
				op->seen_bits |= w->ops[i]->compare_add;
		}
		w->posted_bits |= op->compare_add;
	} else {
		op->compare_add = rng_one_in(&s->rng, 4) ? rng_u64(&s->rng) : w->last_seen;
		op->swap = rng_u64(&s->rng);
		/* A guess of the word's value when the next one is executed. */
		if (rng_one_in(&s->rng, 2))
			w->last_seen = op->swap;
	}
	w->ops[w->nops++] = op;
}

static void
faa_done(struct sim *s, struct sim_ep *ep, struct sim_op *op)
{
	struct sim_word *w = op->word;
	uint64_t set = op->result - w->initial;

	if ((set & op->compare_add) != 0 || (set & ~w->posted_bits) != 0 ||
		(op->seen_bits & ~set) != 0)
		sim_fail(s,
			"pair %u, QP %#x: FETCH ADD number %u of bit %#llx returned %#llx over the "
			"initial value: posted %#llx, must be there %#llx",
			ep->pair->idx, ep->qpn, (uint32_t)(op - ep->ops),
			(unsigned long long)op->compare_add, (unsigned long long)set,
			(unsigned long long)w->posted_bits, (unsigned long long)op->seen_bits);
	w->done_bits |= op->compare_add;
}

static void
cas_done(struct sim *s, struct sim_ep *ep, struct sim_op *op)
{
	struct sim_word *w = op->word;
	uint32_t i;

	op->swapped = op->result == op->compare_add;
	w->last_seen = op->swapped ? op->swap : op->result;
	if (op->result == w->initial)
		return;
	for (i = 0; i < w->nops; i++) {
		if (w->ops[i] != op && w->ops[i]->swap == op->result)
			return;
	}
	sim_fail(s,
		"pair %u, QP %#x: COMPARE SWAP number %u returned %#llx, which was never in that word%s",
		ep->pair->idx, ep->qpn, (uint32_t)(op - ep->ops), (unsigned long long)op->result,
		op->result == op->swap ? " before it (executed twice?)" : "");
}

void
sim_word_done(struct sim *s, struct sim_ep *ep, struct sim_op *op)
{
	memcpy(&op->result, ep->node->mem + op->pieces[0].off, 8);
	if (op->word->kind == WORD_FAA)
		faa_done(s, ep, op);
	else
		cas_done(s, ep, op);
}

static void
faa_final(struct sim *s, struct sim_node *n, const struct sim_word *w, uint64_t value)
{
	uint64_t set = value - w->initial;
	uint32_t i, j;

	if ((w->done_bits & ~set) != 0 || (set & ~w->posted_bits) != 0)
		sim_fail(s,
			"node %u: a word has had FETCH ADDs %#llx executed at the end; completed "
			"%#llx, posted %#llx",
			n->idx, (unsigned long long)set, (unsigned long long)w->done_bits,
			(unsigned long long)w->posted_bits);
	/* The old values form a chain of growing sets. */
	for (i = 0; i < w->nops; i++) {
		for (j = 0; j < i && w->ops[i]->state == OP_DONE; j++) {
			uint64_t a = w->ops[i]->result - w->initial;
			uint64_t b = w->ops[j]->result - w->initial;

			if (w->ops[j]->state == OP_DONE && ((a & ~b) != 0) == ((b & ~a) != 0))
				sim_fail(s, "node %u: FETCH ADDs returned %#llx and %#llx", n->idx,
					(unsigned long long)a, (unsigned long long)b);
		}
	}
}

/* Whether the chain can continue from @v to @end so that it contains all swaps of @must that are
 * not in @used. */
static bool
cas_chain(const struct sim_word *w, uint64_t v, uint64_t end, uint64_t used, uint64_t must,
	uint32_t *fuel)
{
	uint32_t i;

	if (v == end && (must & ~used) == 0)
		return true;
	if ((*fuel)-- == 0)
		return true; /* too many possibilities to judge */
	for (i = 0; i < w->nops; i++) {
		const struct sim_op *op = w->ops[i];

		if (used >> i & 1 || op->compare_add != v)
			continue;
		if (op->state == OP_DONE && !op->swapped)
			continue;
		if (cas_chain(w, op->swap, end, used | 1ull << i, must, fuel))
			return true;
		if (*fuel == 0)
			return true;
	}
	return false;
}

static void
cas_final(struct sim *s, struct sim_node *n, const struct sim_word *w, uint64_t value)
{
	uint32_t i, fuel = 2000;
	uint64_t must = 0;

	for (i = 0; i < w->nops; i++) {
		if (w->ops[i]->state == OP_DONE && w->ops[i]->swapped)
			must |= 1ull << i;
	}
	if (!cas_chain(w, w->initial, value, 0, must, &fuel))
		sim_fail(s,
			"node %u: no order of the COMPARE SWAPs leads from %#llx to %#llx with each "
			"successful one executed once",
			n->idx, (unsigned long long)w->initial, (unsigned long long)value);
}

void
sim_word_final(struct sim *s, struct sim_node *n, struct sim_word *w)
{
	uint64_t value;

	memcpy(&value, n->mem + w->off, 8);
	if (w->kind == WORD_FAA)
		faa_final(s, n, w, value);
	else
		cas_final(s, n, w, value);
	memcpy(n->shadow + w->off, n->mem + w->off, 8);
}

/* --- everything --- */

void
sim_memory_final(struct sim *s, struct sim_node *n)
{
	uint32_t i, j;

	if (n->mem_used == 0 || memcmp(n->mem, n->shadow, n->mem_used + SIM_GUARD) == 0)
		return;
	for (i = 0; n->mem[i] == n->shadow[i]; i++)
		;
	for (j = 0; j < n->nmrs; j++) {
		if (i - n->mrs[j].off < n->mrs[j].len)
			break;
	}
	sim_fail(s, "node %u: byte %u of memory (%s %u, offset %u) is %02x and must be %02x",
		n->idx, i, j < n->nmrs ? "region" : "between regions,", j,
		j < n->nmrs ? i - n->mrs[j].off : 0, n->mem[i], n->shadow[i]);
}
