/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Memory of a run, which is all freed when the run ends, for whatever reason.  A run that cannot
 * continue ends at the place where that is detected, so that callers need no error checks.  Also
 * random numbers: they depend on the seed, and on the earlier numbers for the same purpose.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "karst_prf.h"
#include "sim.h"

struct fab_block {
	struct fab_block *next;
	struct fab_block **pprev;
	size_t size;
} karst_cache_aligned;

void
fab_charge(struct fab_sim *s, size_t bytes)
{
	if (s->c->memory != 0 && bytes > s->c->memory - s->allocated)
		fab_bail(s, -ENOMEM,
			"out of memory: more than --memory, %llu bytes; fewer hosts or "
			"connections, or less buffer or delay, need less",
			(unsigned long long)s->c->memory);
	s->allocated += bytes;
}

/* @charged: the memory counts from now on. */
static void *
get_block(struct fab_sim *s, size_t bytes, bool charged)
{
	struct fab_block *b = NULL;
	size_t size;

	if (__builtin_add_overflow(bytes, sizeof(*b) + KARST_CACHE_LINE - 1, &size))
		fab_bail(s, -ENOMEM, "out of memory: %zu bytes at once", bytes);
	size &= ~(size_t)(KARST_CACHE_LINE - 1);
	if (charged)
		fab_charge(s, size);
	b = aligned_alloc(KARST_CACHE_LINE, size);
	if (b == NULL)
		fab_bail(s, -ENOMEM, "out of memory: %zu bytes more are needed", bytes);
	b->size = charged ? size : 0;
	b->next = s->blocks;
	b->pprev = &s->blocks;
	if (b->next != NULL)
		b->next->pprev = &b->next;
	s->blocks = b;
	return b + 1;
}

void *
fab_alloc(struct fab_sim *s, size_t bytes)
{
	return memset(get_block(s, bytes, true), 0, bytes);
}

void *
fab_reserve(struct fab_sim *s, size_t bytes)
{
	return get_block(s, bytes, false);
}

void
fab_free(struct fab_sim *s, void *p)
{
	struct fab_block *b;

	if (p == NULL)
		return;
	b = (struct fab_block *)p - 1;
	*b->pprev = b->next;
	if (b->next != NULL)
		b->next->pprev = b->pprev;
	s->allocated -= b->size;
	free(b);
}

void
fab_free_all(struct fab_sim *s)
{
	while (s->blocks != NULL)
		fab_free(s, s->blocks + 1);
}

void
fab_bail(struct fab_sim *s, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(s->r->error, sizeof(s->r->error), fmt, ap);
	va_end(ap);
	s->rc = rc;
	longjmp(s->bail, 1);
}

uint64_t
fab_random(struct fab_sim *s, enum fab_chance of)
{
	return karst_prf(s->secret, of, s->draws[of]++);
}

double
fab_uniform(struct fab_sim *s, enum fab_chance of)
{
	return (double)(fab_random(s, of) >> 11) * 0x1p-53;
}

uint32_t
fab_below(struct fab_sim *s, enum fab_chance of, uint32_t n)
{
	return (uint32_t)((fab_random(s, of) >> 32) * n >> 32);
}
