/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Memory is migrated under threads that write to it, by their own stores and through system calls,
 * and no write is lost; several threads register overlapping ranges meanwhile.  Prints TAP itself.
 */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory.h"

#define PAGE   4096u
#define PAGES  96u
#define WORDS  (PAGE / sizeof(uint64_t))
#define TRIPS  300u
#define MOVERS 2u

static struct {
	uint64_t *word; /* [PAGES * WORDS] */
	atomic_bool stop;
	uint64_t stores, reads, trips, bad;
	int pipe[2];
} bed;

/* Adds one to a word of each page in turn; the sum of each word is known. */
static void *
store(void *arg)
{
	uint64_t n = 0;
	uint32_t page;

	while (!atomic_load(&bed.stop)) {
		for (page = 0; page < PAGES; page++) {
			uint64_t *w = &bed.word[page * WORDS];

			/* relaxed: only this thread writes the word; the page under it changes */
			__atomic_store_n(
				w, __atomic_load_n(w, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
		}
		n++;
	}
	bed.stores = n;
	return NULL;
}

/* The kernel writes for this thread: each read() must arrive complete. */
static void *
receive(void *arg)
{
	uint64_t n = 0, value;

	while (!atomic_load(&bed.stop)) {
		uint64_t *w = &bed.word[n % PAGES * WORDS + 1];

		n++;
		if (write(bed.pipe[1], &n, sizeof(n)) != sizeof(n) ||
			read(bed.pipe[0], w, sizeof(*w)) != sizeof(*w))
			bed.bad++;
		value = __atomic_load_n(w, __ATOMIC_RELAXED);
		bed.bad += value != n;
	}
	bed.reads = n;
	return NULL;
}

static void *
move(void *arg)
{
	uint32_t i, shift = (uint32_t)(uintptr_t)arg * 16;
	char why[KARST_CTL_WHY];
	struct karst_memory *m;

	for (i = 0; i < TRIPS; i++) {
		if (karst_memory_get(&bed.word[shift * WORDS], (PAGES - 2 * shift) * PAGE, true,
			    PAGE, &m, why) != 0) {
			__atomic_fetch_add(&bed.bad, 1, __ATOMIC_RELAXED);
			break;
		}
		karst_memory_put(m);
		__atomic_fetch_add(&bed.trips, 1, __ATOMIC_RELAXED);
		if (i % 8 == 0)
			sched_yield();
	}
	return NULL;
}

int
main(void)
{
	pthread_t writer, reader, mover[MOVERS];
	uint64_t lost = 0;
	uint32_t i;

	if (geteuid() != 0 && access("/dev/userfaultfd", R_OK | W_OK) != 0) {
		printf("1..0 # SKIP needs userfaultfd\n");
		return 0;
	}
	bed.word = mmap(
		NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (bed.word == MAP_FAILED || pipe(bed.pipe) != 0)
		return 1;
	pthread_create(&writer, NULL, store, NULL);
	pthread_create(&reader, NULL, receive, NULL);
	for (i = 0; i < MOVERS; i++)
		pthread_create(&mover[i], NULL, move, (void *)(uintptr_t)i);
	for (i = 0; i < MOVERS; i++)
		pthread_join(mover[i], NULL);
	atomic_store(&bed.stop, true);
	pthread_join(writer, NULL);
	pthread_join(reader, NULL);
	for (i = 0; i < PAGES; i++)
		lost += bed.stores - bed.word[i * WORDS];
	printf("1..3\n");
	printf("%sok 1 - registrations succeed\n", bed.trips == MOVERS * TRIPS ? "" : "not ");
	printf("%sok 2 - no store is lost\n", lost == 0 && bed.stores > 0 ? "" : "not ");
	printf("%sok 3 - what the kernel writes arrives\n",
		bed.bad == 0 && bed.reads > 0 ? "" : "not ");
	printf("# %" PRIu64 " trips, %" PRIu64 " rounds of stores (%" PRIu64 " lost), %" PRIu64
	       " reads\n",
		bed.trips, bed.stores, lost, bed.reads);
	return bed.trips == MOVERS * TRIPS && lost == 0 && bed.bad == 0 ? 0 : 1;
}
