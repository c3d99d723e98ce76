/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The arena against a list of the blocks in use: alignment, zeros, no overlap, reuse. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "arena.h"
#include "engine_bed.h"

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

/* Tells whether every byte is @value. libc does the comparison, as all blocks together are a
 * gigabyte. */
static void
all_are(const uint8_t *p, size_t size, uint8_t value)
{
	size_t i;

	if (size == 0 || (p[0] == value && memcmp(p, p + 1, size - 1) == 0))
		return;
	for (i = 0; p[i] == value;)
		i++;
	cr_assert_fail("byte %zu of %zu is %#x, not %#x", i, size, p[i], value);
}

static void
take(struct arena *a, struct piece *pc, unsigned int *seed)
{
	pc->size = draw_size(seed);
	pc->p = eng_arena_alloc(a, pc->size);
	pc->mark = (uint8_t)rand_r(seed);
	cr_assert_not_null(pc->p);
	cr_assert_eq((uintptr_t)pc->p % KARST_CACHE_LINE, 0);
	all_are(pc->p, pc->size, 0);
	memset(pc->p, pc->mark, pc->size);
}

/* What was written after a block was allocated is still there when it is freed. */
static void
give(struct arena *a, struct piece *pc)
{
	all_are(pc->p, pc->size, pc->mark);
	eng_arena_free(a, pc->p, pc->size);
	pc->p = NULL;
}

static void
random_life(struct arena *a)
{
	static struct piece live[LIVE];
	unsigned int seed = 7, i, k;

	for (k = 0; k < 6000; k++) {
		i = (unsigned int)rand_r(&seed) % LIVE;
		if (live[i].p == NULL)
			take(a, &live[i], &seed);
		else
			give(a, &live[i]);
	}
	for (i = 0; i < LIVE; i++)
		if (live[i].p != NULL)
			give(a, &live[i]);
	cr_assert_eq(a->used, 0);
	eng_arena_free(a, NULL, 100);
	eng_arena_fini(a);
	cr_assert_eq(a->mapped, 0);
}

Test(arena, random_life)
{
	struct arena a;

	eng_arena_init(&a);
	random_life(&a);
}

Test(arena, random_life_of_files)
{
	struct arena a;

	eng_arena_init_files(&a, "test", 0);
	random_life(&a);
}

/* Objects of one kind are adjacent, and freed memory is used before new memory is. */
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

/* Allocates as many blocks of @size as there is room for; then frees all of them. */
static unsigned int
fill_and_empty(struct arena *a, size_t size)
{
	static uint8_t *p[20000];
	unsigned int i, n = 0;
	size_t at;

	while (n < KARST_DIM(p) && (p[n] = eng_arena_alloc(a, size)) != NULL) {
		for (at = 0; at < size; at += 512)
			cr_assert_eq(p[n][at], 0, "block %u of %zu, byte %zu", n, size, at);
		memset(p[n++], 0xee, size);
	}
	for (i = 0; i < n; i++)
		eng_arena_free(a, p[i], size);
	cr_assert_eq(a->used, 0);
	return n;
}

/* Memory that was used for one size can be used for another, however large. */
Test(arena, sizes_change_at_the_limit)
{
	static const size_t sizes[] = {5000, 700, 20u << 20, 64000, 27u << 20, 64, 20u << 20};
	uint64_t limit = 64u << 20;
	struct arena a;
	unsigned int i, n;

	eng_arena_init_files(&a, "test", limit);
	for (i = 0; i < KARST_DIM(sizes); i++) {
		n = fill_and_empty(&a, sizes[i]);
		cr_assert(n == 20000 || (n + 1) * eng_arena_bytes(sizes[i]) > limit / 4 * 3 ||
				n == limit / eng_arena_bytes(sizes[i]),
			"%u of %zu", n, sizes[i]);
		cr_assert_leq(a.mapped, limit);
	}
	eng_arena_fini(&a);
	cr_assert_eq(a.mapped, 0);
}

/* Chunks that still have a block in use are not touched. */
Test(arena, what_is_used_stays_at_the_limit)
{
	struct arena a;
	uint8_t *kept[3];
	unsigned int i;

	eng_arena_init_files(&a, "test", 16u << 20);
	for (i = 0; i < 3; i++) {
		kept[i] = eng_arena_alloc(&a, 1000);
		memset(kept[i], 0x40 + (int)i, 1000);
		while (eng_arena_alloc(&a, 100000) != NULL && a.mapped < (i + 1) * 5u << 20)
			;
	}
	while (eng_arena_alloc(&a, 3000) != NULL)
		;
	for (i = 0; i < 3; i++)
		cr_assert(kept[i][0] == 0x40 + i && kept[i][999] == 0x40 + i);
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

/* Shared memory: a mapping of the file shows the block's contents at the place that the arena
 * reports. */
static void
check_place(const struct arena *a, const uint8_t *p, size_t size)
{
	uint64_t off, bytes;
	uint32_t number;
	uint8_t *view;
	int fd;

	cr_assert_eq(eng_arena_find(a, p, &number, &off), 0);
	cr_assert_eq(eng_arena_file(a, number, &fd, &bytes), 0);
	cr_assert_leq(off + size, bytes);
	view = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	cr_assert_neq(view, MAP_FAILED);
	cr_assert_eq(memcmp(view + off, p, size), 0);
	view[off] ^= 0xff;
	cr_assert_eq(memcmp(view + off, p, size), 0);
	munmap(view, bytes);
}

Test(arena, files_are_found)
{
	static const size_t sizes[] = {64, 5000, 3 << 20, 20 << 20, 100, 9 << 20, 40 << 20};
	uint8_t *p[KARST_DIM(sizes)];
	uint32_t number;
	struct arena a;
	uint64_t off;
	size_t i;
	int fd;

	eng_arena_init_files(&a, "test", 0);
	for (i = 0; i < KARST_DIM(sizes); i++) {
		p[i] = eng_arena_alloc(&a, sizes[i]);
		cr_assert_not_null(p[i]);
		memset(p[i], (int)i + 1, sizes[i]);
	}
	for (i = 0; i < KARST_DIM(sizes); i++)
		check_place(&a, p[i], sizes[i]);
	cr_assert_eq(eng_arena_find(&a, &a, &number, &off), -EINVAL);
	cr_assert_eq(eng_arena_file(&a, 100, &fd, &off), -EINVAL);
	eng_arena_fini(&a);
}

/* Rings hold data of programs, too. */
Test(arena, files_are_not_in_core_dumps)
{
	struct arena a;
	void *p;

	eng_arena_init_files(&a, "test", 0);
	p = eng_arena_alloc(&a, 4096);
	cr_assert_not_null(p);
	cr_assert_not(engine_bed_is_dumped(p));
	eng_arena_free(&a, p, 4096);
	eng_arena_fini(&a);
}

/* A process that gets the file can neither shrink nor grow it, nor forbid writing to it. */
Test(arena, files_are_sealed)
{
	uint32_t number;
	uint64_t off, bytes;
	struct arena a;
	uint8_t *p;
	int fd;

	eng_arena_init_files(&a, "test", 0);
	p = eng_arena_alloc(&a, 4096);
	cr_assert_eq(eng_arena_find(&a, p, &number, &off), 0);
	cr_assert_eq(eng_arena_file(&a, number, &fd, &bytes), 0);
	cr_assert_neq(ftruncate(fd, 0), 0);
	cr_assert_neq(ftruncate(fd, (off_t)bytes - 4096), 0);
	cr_assert_neq(ftruncate(fd, (off_t)bytes + 4096), 0);
	cr_assert_neq(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
	cr_assert_neq(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
	/* punching a hole is possible, and harmless: a hole reads as zero and takes what is
	 * written */
	memset(p, 7, 4096);
	cr_assert_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes), 0);
	cr_assert_eq(p[0], 0);
	p[0] = 1;
	eng_arena_fini(&a);
}

/* A block of a file that is sealed only if @seal says so. */
static void *
alloc_sealed(struct arena *a, size_t size)
{
	void *p = eng_arena_alloc(a, size);
	uint32_t number;

	while (p == NULL && eng_arena_unsealed(a, &number) == 0) {
		uint64_t bytes;
		int fd;

		cr_assert_eq(eng_arena_file(a, number, &fd, &bytes), 0);
		cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL), 0);
		eng_arena_sealed(a, number);
		p = eng_arena_alloc(a, size);
	}
	return p;
}

static void
sealed_up(struct arena *a, uint64_t limit)
{
	eng_arena_init_files(a, "test", limit);
	eng_arena_seal_files(a);
	eng_arena_shared(a);
}

/* An unsealed file holds no block, and at most one file is unsealed. */
Test(arena, files_that_are_not_sealed)
{
	uint32_t number, again;
	uint64_t off, bytes;
	struct arena a;
	struct stat st;
	uint8_t *p;
	int fd;

	eng_arena_init_files(&a, "test", 0);
	eng_arena_seal_files(&a);
	p = eng_arena_alloc(&a, 4096);
	cr_assert_not_null(p, "nobody has its descriptor yet");
	cr_assert_eq(eng_arena_unsealed(&a, &number), 0);
	eng_arena_shared(&a);
	cr_assert_eq(eng_arena_file(&a, number, &fd, &bytes), 0);
	cr_assert_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes), 0);
	cr_assert(fstat(fd, &st) == 0 && st.st_blocks == 0);
	eng_arena_sealed(&a, number);
	cr_assert(fstat(fd, &st) == 0 && st.st_blocks > 0, "its page is there again");
	cr_assert_leq(st.st_blocks * 512, 65536, "and no more than what is used");
	cr_assert_eq(eng_arena_unsealed(&a, &number), -ENOENT);
	cr_assert_null(eng_arena_alloc(&a, 5u << 20));
	cr_assert_eq(eng_arena_unsealed(&a, &number), 0);
	cr_assert_null(eng_arena_alloc(&a, 20u << 20));
	cr_assert_null(eng_arena_alloc(&a, 5u << 20));
	cr_assert_eq(eng_arena_unsealed(&a, &again), 0);
	cr_assert_eq(again, number);
	cr_assert_eq(eng_arena_file(&a, number, &fd, &bytes), 0);
	/* the other process can add seals, but cannot forbid the arena to write */
	cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL), 0);
	cr_assert_neq(
		fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes), 0);
	eng_arena_sealed(&a, number);
	p = eng_arena_alloc(&a, 5u << 20);
	cr_assert_not_null(p);
	cr_assert_eq(eng_arena_find(&a, p, &again, &off), 0);
	cr_assert_eq(again, number, "it is the one that was made for it");
	eng_arena_fini(&a);
}

/* Memory that is used again is zero, though the pages of a sealed file cannot be freed; memory that
 * is freed stays in the account. */
Test(arena, sealed_files_change_at_the_limit)
{
	static const size_t sizes[] = {5000, 20u << 20, 700, 27u << 20, 64000, 5000, 40u << 20, 64};
	const struct eng_share_rule rule = {.percent = 100};
	struct eng_share_info info;
	struct eng_share *share;
	struct eng_shares shares;
	uint64_t limit = 64u << 20;
	struct arena a;
	unsigned int i, n;
	static uint8_t *p[20000];

	eng_shares_init(&shares);
	sealed_up(&a, limit);
	a.share = share = eng_share_join(&shares, 1, &rule, 0);
	for (i = 0; i < KARST_DIM(sizes); i++) {
		for (n = 0; n < KARST_DIM(p) && (p[n] = alloc_sealed(&a, sizes[i])) != NULL; n++) {
			cr_assert(p[n][0] == 0 && memcmp(p[n], p[n] + 1, sizes[i] - 1) == 0,
				"size %zu, block %u", sizes[i], n);
			memset(p[n], 0xa5, sizes[i]);
		}
		cr_assert(n == KARST_DIM(p) ||
				(n + 1) * eng_arena_bytes(sizes[i]) > limit / 4 * 3 ||
				n == limit / eng_arena_bytes(sizes[i]),
			"%u of %zu", n, sizes[i]);
		cr_assert_leq(a.mapped, limit);
		while (n-- > 0)
			eng_arena_free(&a, p[n], sizes[i]);
		eng_share_info(share, &info);
		cr_assert_eq(info.used[ENG_SHARE_RING_BYTES], a.mapped + a.left);
	}
	cr_assert_gt(a.left, 0);
	eng_arena_fini(&a);
	eng_share_info(share, &info);
	cr_assert_eq(info.used[ENG_SHARE_RING_BYTES], 0);
	cr_assert_eq(info.used[ENG_SHARE_DESCRIPTORS], 0);
	eng_share_leave(share);
	eng_shares_fini(&shares);
}

/* Another process that scribbles on freed memory, which it still has mapped, does not mislead the
 * arena. */
Test(arena, hostile_free_memory)
{
	uint8_t *p[64];
	struct arena a;
	unsigned int i;

	eng_arena_init_files(&a, "test", 0);
	for (i = 0; i < 64; i++)
		p[i] = eng_arena_alloc(&a, 640);
	for (i = 0; i < 64; i++)
		eng_arena_free(&a, p[i], 640);
	for (i = 0; i < 64; i++)
		memset(p[i], 0xa5, 640);
	for (i = 0; i < 64; i++) {
		uint8_t *again = eng_arena_alloc(&a, 640);

		cr_assert_eq(again, p[63 - i], "last in, first out");
		cr_assert_eq(again[0] | again[639], 0);
	}
	eng_arena_fini(&a);
}

Test(arena, limit_of_files)
{
	struct arena a;
	unsigned int i;
	uint8_t *p;

	eng_arena_init_files(&a, "test", 5 << 20); /* 6 MiB */
	for (i = 0; eng_arena_alloc(&a, 1 << 20) != NULL; i++)
		;
	cr_assert_eq(i, 6);
	cr_assert_eq(a.mapped, 6 << 20);
	for (i = 0; i < 10000; i++)
		cr_assert_null(eng_arena_alloc(&a, 1 << 20));
	cr_assert_leq(a.nrecords, 1000, "refusals cost nothing");
	eng_arena_fini(&a);

	eng_arena_init_files(&a, "test", 64 << 20);
	for (i = 0; i < 5; i++) { /* two of these do not fit */
		p = eng_arena_alloc(&a, 40 << 20);
		cr_assert_not_null(p);
		cr_assert_eq(p[0] | p[(40 << 20) - 1], 0);
		p[0] = p[(40 << 20) - 1] = 1;
		eng_arena_free(&a, p, 40 << 20);
	}
	eng_arena_fini(&a);
}
