/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The arena against a list of what is out: alignment, zeros, no overlap, reuse. */
#include <stdlib.h>

#include <criterion/criterion.h>

#include "arena.h"

#define LIVE 400u

struct piece {
	uint8_t *p;
	size_t size;
	uint8_t mark;
};

static size_t
draw_size(unsigned int *seed)
{
	static const size_t edges[] = {0, 1, 63, 64, 65, 4095, 4096, 4097, 4608, 4609, 8191, 8192,
		8193, 1 << 20, (1 << 20) + 1, 16 << 20, (16 << 20) + 1};
	unsigned int r = (unsigned int)rand_r(seed);

	if (r % 50 == 0)
		return edges[(r / 50) % KARST_DIM(edges)];
	return r % 4 == 0 ? (r >> 4) % 20000 : (r >> 4) % 1500;
}

static void
take(struct arena *a, struct piece *pc, unsigned int *seed)
{
	size_t i;

	pc->size = draw_size(seed);
	pc->p = eng_arena_alloc(a, pc->size);
	pc->mark = (uint8_t)rand_r(seed);
	cr_assert_not_null(pc->p);
	cr_assert_eq((uintptr_t)pc->p % KARST_CACHE_LINE, 0);
	for (i = 0; i < pc->size; i++)
		cr_assert_eq(pc->p[i], 0, "byte %zu of %zu", i, pc->size);
	memset(pc->p, pc->mark, pc->size);
}

/* What was written when it was taken is there when it is given back. */
static void
give(struct arena *a, struct piece *pc)
{
	size_t i;

	for (i = 0; i < pc->size; i++)
		cr_assert_eq(pc->p[i], pc->mark, "byte %zu of %zu", i, pc->size);
	eng_arena_free(a, pc->p, pc->size);
	pc->p = NULL;
}

Test(arena, random_life)
{
	static struct piece live[LIVE];
	unsigned int seed = 7, i, k;
	struct arena a;

	eng_arena_init(&a);
	for (k = 0; k < 6000; k++) {
		i = (unsigned int)rand_r(&seed) % LIVE;
		if (live[i].p == NULL)
			take(&a, &live[i], &seed);
		else
			give(&a, &live[i]);
	}
	for (i = 0; i < LIVE; i++)
		if (live[i].p != NULL)
			give(&a, &live[i]);
	cr_assert_eq(a.used, 0);
	eng_arena_free(&a, NULL, 100);
	eng_arena_fini(&a);
	cr_assert_eq(a.mapped, 0);
}

/* Objects of one kind are neighbours, and what was freed is used before new memory is. */
Test(arena, dense_and_reused)
{
	uint8_t *p[1000];
	struct arena a;
	uint64_t mapped;
	unsigned int i;

	eng_arena_init(&a);
	for (i = 0; i < 1000; i++)
		p[i] = eng_arena_alloc(&a, 700);
	for (i = 1; i < 1000; i++)
		cr_assert_eq(p[i] - p[i - 1], 704);
	mapped = a.mapped;
	eng_arena_free(&a, p[500], 700);
	cr_assert_eq(eng_arena_alloc(&a, 690), p[500]);
	cr_assert_eq(a.mapped, mapped);
	eng_arena_fini(&a);
}

Test(arena, too_much)
{
	struct arena a;

	eng_arena_init(&a);
	cr_assert_null(eng_arena_alloc(&a, SIZE_MAX));
	cr_assert_null(eng_arena_alloc(&a, SIZE_MAX / 8));
	cr_assert_eq(a.used, 0);
	eng_arena_fini(&a);
}
