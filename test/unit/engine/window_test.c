/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Windows: their addresses, how many of them there can be, and what is mapped there. */
#include "window.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "engine_bed.h"
#include "space_priv.h"

#define WINDOWS 512

static uint64_t
roll(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Tells whether a window of @bytes can be allocated.  For the whole address range the words in the
 * table are a gigabyte, all written. */
static bool
there_are(uint64_t bytes)
{
	struct eng_window w = {.bytes = bytes};

	if (eng_window_alloc(&w, 4096, 0) != 0)
		return false;
	eng_window_free(&w);
	return true;
}

/* The largest power of two that can be allocated. */
static uint64_t
largest(void)
{
	uint64_t bytes = 1ull << 45;

	while (bytes >= 4096 && !there_are(bytes))
		bytes /= 2;
	return bytes;
}

/* Allocates a window.  One in 16 may be of 32 GB, whose words in the table, 4 MB, are all written;
 * the others are of 256 MB at most. */
static void
take_one(struct eng_window *w, uint64_t *seed)
{
	uint64_t align = 4096ull << roll(seed) % 10;
	unsigned int most = roll(seed) % 16 == 0 ? 24 : 17;

	w->bytes = 1 + roll(seed) % (1ull << (12 + roll(seed) % most));
	w->npieces = 0;
	cr_assert_eq(eng_window_alloc(w, align, roll(seed) % align), 0);
	cr_assert_eq(eng_window_of(w->base), w);
	cr_assert_eq(eng_window_of(w->base + w->bytes - 1), w);
}

/* Whatever was allocated and freed, in the end the whole range is one block again. */
Test(window, addresses_come_back_whole)
{
	static struct eng_window w[WINDOWS];
	uint64_t seed = (uint64_t)time(NULL) | 1, whole;
	const char *given = getenv("KARST_TEST_SEED");
	unsigned int i, k;

	if (given != NULL)
		seed = strtoull(given, NULL, 0);
	fprintf(stderr, "KARST_TEST_SEED=%llu\n", (unsigned long long)seed);
	cr_assert_eq(eng_window_init(), 0);
	whole = largest();
	cr_assert_geq(whole, 1ull << 34);
	for (i = 0; i < 20000; i++) {
		k = (unsigned int)(roll(&seed) % WINDOWS);
		if (w[k].base == NULL) {
			take_one(&w[k], &seed);
		} else {
			cr_assert_eq(eng_window_of(w[k].base), &w[k]);
			eng_window_free(&w[k]);
			cr_assert_null(eng_window_of(w[k].base));
			w[k].base = NULL;
		}
	}
	cr_assert_not(there_are(whole), "some are taken");
	for (k = 0; k < WINDOWS; k++)
		if (w[k].base != NULL)
			eng_window_free(&w[k]);
	cr_assert(there_are(whole));
}

/* No two windows share an address, and each is aligned as requested. */
Test(window, addresses_are_of_one)
{
	static struct eng_window w[WINDOWS];
	uint64_t seed = 88172645463325252ull;
	unsigned int i, k;

	cr_assert_eq(eng_window_init(), 0);
	for (i = 0; i < WINDOWS; i++)
		take_one(&w[i], &seed);
	for (i = 0; i < WINDOWS; i++)
		for (k = 0; k < i; k++)
			cr_assert(w[i].base + w[i].bytes <= w[k].base ||
				w[k].base + w[k].bytes <= w[i].base);
	for (i = 0; i < WINDOWS; i++)
		eng_window_free(&w[i]);
}

/* --- what is mapped --- */

#define PAGES 64u
#define BYTES (PAGES * 4096u)

static unsigned int times_broken;

static void
on_broken(struct eng_window *w)
{
	times_broken++;
}

/* Counts the mappings in the window alone: allocators create mappings elsewhere at any time. */
static unsigned int
mappings(const struct eng_window *w)
{
	FILE *f = fopen("/proc/self/maps", "r");
	const uintptr_t base = (uintptr_t)w->base;
	unsigned int n = 0;
	uintptr_t from, to;
	char line[512];

	cr_assert_not_null(f);
	while (fgets(line, sizeof(line), f) != NULL)
		n += sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &from, &to) == 2 &&
			from < base + BYTES && to > base;
	fclose(f);
	return n;
}

/* Makes a file of @pages pages; the rest of BYTES is a hole. */
static int
make_file(unsigned int pages)
{
	int fd = memfd_create("window", MFD_CLOEXEC);
	unsigned int i;

	cr_assert_eq(ftruncate(fd, BYTES), 0);
	for (i = 0; i < pages; i++)
		cr_assert_eq(pwrite(fd, "x", 1, i * 4096), 1);
	return fd;
}

static void
window_up(struct eng_window *w, struct eng_piece *piece)
{
	cr_assert_eq(eng_window_init(), 0);
	*piece = (struct eng_piece){.len = BYTES, .page = 4096, .writable = true};
	*w = (struct eng_window){.bytes = BYTES, .npieces = 1, .piece = piece, .broken = on_broken};
	cr_assert_eq(eng_window_alloc(w, 4096, 0), 0);
}

static blkcnt_t
blocks(int fd)
{
	struct stat st;

	cr_assert_eq(fstat(fd, &st), 0);
	return st.st_blocks;
}

/* A page that does not exist would be allocated at the engine's expense. */
Test(window, holes_are_not_mapped)
{
	struct eng_piece piece;
	struct eng_window w;
	int fd = make_file(PAGES - 1);
	blkcnt_t before = blocks(fd);

	window_up(&w, &piece);
	cr_assert_not(eng_window_map(w.base, BYTES, 4096, fd, 0, true));
	cr_assert_not(eng_window_map(w.base, BYTES, 4096, fd, 0, false));
	cr_assert_eq(blocks(fd), before);
	cr_assert(eng_window_map(w.base, BYTES - 4096, 4096, fd, 0, true));
	cr_assert_eq(w.base[0], 'x');
	eng_window_free(&w);
	close(fd);
}

/* Holes that are punched later, and files that are truncated: one fault, one mapping, no page. */
static void
take_away(bool punch)
{
	struct eng_piece piece;
	struct eng_window w;
	int fd = make_file(PAGES);
	unsigned int i, maps;

	window_up(&w, &piece);
	cr_assert(eng_window_map(w.base, BYTES, 4096, fd, 0, true));
	maps = mappings(&w);
	if (punch)
		cr_assert_eq(
			fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES), 0);
	else
		cr_assert_eq(ftruncate(fd, 0), 0);
	for (i = 0; i < PAGES; i += 2)
		cr_assert_eq(((volatile uint8_t *)w.base)[i * 4096], 0);
	w.base[4096] = 1;
	cr_assert_eq(times_broken, 1);
	cr_assert_leq(mappings(&w), maps);
	cr_assert_eq(blocks(fd), 0, "nothing was made");
	eng_window_free(&w);
	close(fd);
}

Test(window, holes_that_come_later)
{
	take_away(true);
}

Test(window, ends_that_are_cut_off)
{
	take_away(false);
}

/* If no private memory can be allocated, the zeros come from elsewhere. */
Test(window, nothing_to_mend_with)
{
	struct rlimit was, none;
	struct eng_piece piece;
	struct eng_window w;
	int fd = make_file(PAGES);
	unsigned int i, sum = 0;

	window_up(&w, &piece);
	cr_assert(eng_window_map(w.base, BYTES, 4096, fd, 0, true));
	cr_assert_eq(ftruncate(fd, 0), 0);
	cr_assert_eq(getrlimit(RLIMIT_DATA, &was), 0);
	none = (struct rlimit){4096, was.rlim_max};
	cr_assert_eq(setrlimit(RLIMIT_DATA, &none), 0);
	for (i = 0; i < PAGES; i++) {
		sum += ((volatile uint8_t *)w.base)[i * 4096];
		((volatile uint8_t *)w.base)[i * 4096] = 1;
	}
	cr_assert_eq(setrlimit(RLIMIT_DATA, &was), 0);
	cr_assert_eq(sum, 0);
	cr_assert_eq(times_broken, 1);
	eng_window_free(&w);
	/* what was written is not seen by the next access to such zeros */
	cr_assert_eq(eng_window_alloc(&w, 4096, 0), 0);
	eng_window_free(&w);
	close(fd);
}

/* Memory that others have mapped into the engine does not get into a core dump. */
Test(window, not_in_core_dumps)
{
	struct eng_piece piece;
	struct eng_window w;
	int fd = make_file(PAGES);

	window_up(&w, &piece);
	cr_assert(eng_window_map(w.base, BYTES, 4096, fd, 0, true));
	cr_assert_not(engine_bed_is_dumped(w.base));
	cr_assert_eq(ftruncate(fd, 0), 0);
	cr_assert_eq(w.base[0], 0);
	cr_assert_not(engine_bed_is_dumped(w.base), "zeros instead");
	eng_window_free(&w);
	cr_assert_not(engine_bed_is_dumped(w.base), "nothing");
	close(fd);
}

/* The descriptor that tells of a failed space stays open as long as a copy may use it.  If the
 * session closed it, its number might belong to another file, which would be written to. */
Test(window, told_as_long_as_copies_last)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct karst_space *s;

	cr_assert_eq(karst_space_create(NULL, getpid(), -1, getuid(), getgid(), &s), 0);
	karst_space_watch(s, fd);
	eng_space_get(s);
	karst_space_destroy(s);
	cr_assert_geq(fcntl(fd, F_GETFD), 0, "a copy may tell still");
	eng_space_put(s);
	cr_assert_lt(fcntl(fd, F_GETFD), 0, "nobody has it");
}
