/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * shmem_check: an OpenSHMEM program that checks every value.  It tests puts, gets, strided puts and
 * atomic operations between neighbours, locks, and a reduction.  Element 0 prints "all right", and
 * the program exits with 0, if nothing was wrong on any element.
 */
#include <stdio.h>
#include <string.h>

#include <shmem.h>

#define WORDS  20000
#define ROUNDS 3
#define ADDS   50

/* symmetric variables: the same address on each element */
static long out[WORDS], in[WORDS], counter, guarded, lock, wrong, wrong_of_all;
static long work[SHMEM_REDUCE_MIN_WRKDATA_SIZE], sync_work[SHMEM_REDUCE_SYNC_SIZE];

static int me, n;

static long
pattern(int from, long round, long i)
{
	return (long)from * 1000003 + round * 131071 + i * 7;
}

static void
check(int right, const char *what)
{
	if (right)
		return;
	if (wrong++ < 10)
		fprintf(stderr, "element %d: %s\n", me, what);
}

static void
fill(long round)
{
	long i;

	for (i = 0; i < WORDS; i++) {
		out[i] = pattern(me, round, i);
		in[i] = -1;
	}
	shmem_barrier_all();
}

static void
compare(int from, long round, const char *what)
{
	long i;

	for (i = 0; i < WORDS && in[i] == pattern(from, round, i); i++)
		;
	check(i == WORDS, what);
}

static void
puts_and_gets(long round)
{
	int next = (me + 1) % n, last = (me + n - 1) % n;
	long i;

	fill(round);
	shmem_long_put(in, out, WORDS, next);
	shmem_barrier_all();
	compare(last, round, "put");
	memset(in, 0, sizeof(in));
	shmem_long_get(in, out, WORDS, next);
	compare(next, round, "get");
	shmem_barrier_all();
	fill(round + 1);
	for (i = 0; i < 2; i++)
		shmem_long_iput(in + i, out + i, 2, 2, WORDS / 2, next);
	shmem_barrier_all();
	compare(last, round + 1, "strided put");
}

static void
atomics(void)
{
	long i, old;

	for (i = 0; i < ADDS; i++)
		shmem_long_atomic_add(&counter, 1, 0);
	for (i = 0; i < ADDS; i++) {
		shmem_set_lock(&lock);
		old = shmem_long_g(&guarded, 0);
		shmem_long_p(&guarded, old + 1, 0);
		shmem_quiet();
		shmem_clear_lock(&lock);
	}
	shmem_barrier_all();
	check(shmem_long_atomic_fetch(&counter, 0) == (long)n * ADDS, "atomic_add");
	check(shmem_long_g(&guarded, 0) == (long)n * ADDS, "lock");
	old = shmem_long_atomic_compare_swap(&counter, -1, 5, me);
	check(me != 0 || old == (long)n * ADDS, "atomic_compare_swap");
}

int
main(void)
{
	long i;

	shmem_init();
	me = shmem_my_pe();
	n = shmem_n_pes();
	for (i = 0; i < SHMEM_REDUCE_SYNC_SIZE; i++)
		sync_work[i] = SHMEM_SYNC_VALUE;
	shmem_barrier_all();
	for (i = 0; i < ROUNDS; i++)
		puts_and_gets(2 * i);
	atomics();
	shmem_barrier_all();
	shmem_long_sum_to_all(&wrong_of_all, &wrong, 1, 0, 0, n, work, sync_work);
	if (me == 0)
		printf("%d elements: %s\n", n, wrong_of_all == 0 ? "all right" : "wrong");
	shmem_finalize();
	return wrong_of_all != 0;
}
