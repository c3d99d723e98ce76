/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * mpi_check [ROUNDS]: an MPI program that checks every value it receives.  It tests point-to-point
 * messages of sizes below and above each protocol's limits, collective operations, whose results
 * each rank computes by itself, and one-sided operations.  Rank 0 prints "all right", and the
 * program exits with 0, if nothing was wrong on any rank.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#define MAX_BYTES (3u << 20)
#define WORDS     1000

static int rank, ranks;
static uint64_t wrong;
static uint8_t *out, *in;

static void
check(int right, const char *what)
{
	if (right)
		return;
	if (wrong++ < 10)
		fprintf(stderr, "rank %d: %s\n", rank, what);
}

static uint8_t
pattern(int from, int to, uint32_t i, uint32_t round)
{
	return (uint8_t)(i * 131 + (i >> 8) * 7 + (uint32_t)from * 17 + (uint32_t)to * 29 + round);
}

static void
fill(uint8_t *p, uint32_t n, int from, int to, uint32_t round)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		p[i] = pattern(from, to, i, round);
}

static void
compare(const uint8_t *p, uint32_t n, int from, int to, uint32_t round, const char *what)
{
	uint32_t i;

	for (i = 0; i < n && p[i] == pattern(from, to, i, round); i++)
		;
	check(i == n, what);
}

/* --- point to point --- */

/* Each rank sends to the next rank of a ring, all at the same time. */
static void
ring(uint32_t n, uint32_t round)
{
	int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
	MPI_Request request[2];
	MPI_Status status[2];
	int got;

	fill(out, n, rank, next, round);
	memset(in, 0, n);
	MPI_Irecv(in, (int)n, MPI_BYTE, last, (int)round, MPI_COMM_WORLD, &request[0]);
	MPI_Isend(out, (int)n, MPI_BYTE, next, (int)round, MPI_COMM_WORLD, &request[1]);
	MPI_Waitall(2, request, status);
	MPI_Get_count(&status[0], MPI_BYTE, &got);
	check(got == (int)n, "ring: length");
	compare(in, n, last, rank, round, "ring: content");
}

/* Messages that arrive before their receives are posted; received by tag in reverse order. */
static void
unexpected(void)
{
	int i, value, peer = rank ^ 1;

	if (peer >= ranks)
		return;
	for (i = 0; i < 50; i++) {
		value = rank * 1000 + i;
		MPI_Send(&value, 1, MPI_INT, peer, 100 + i, MPI_COMM_WORLD);
	}
	for (i = 49; i >= 0; i--) {
		MPI_Recv(&value, 1, MPI_INT, peer, 100 + i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		check(value == peer * 1000 + i, "tags");
	}
}

/* --- collective operations --- */

static void
collective(uint32_t round)
{
	static int64_t a[WORDS], b[WORDS];
	int64_t sum = (int64_t)ranks * (ranks - 1) / 2, upto = (int64_t)rank * (rank + 1) / 2;
	int root = (int)(round % (uint32_t)ranks), i;

	for (i = 0; i < WORDS; i++)
		a[i] = rank == root ? i * 3 + root : -1;
	MPI_Bcast(a, WORDS, MPI_INT64_T, root, MPI_COMM_WORLD);
	for (i = 0; i < WORDS; i++)
		check(a[i] == i * 3 + root, "bcast");
	for (i = 0; i < WORDS; i++)
		a[i] = rank + i;
	MPI_Allreduce(a, b, WORDS, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	for (i = 0; i < WORDS; i++)
		check(b[i] == sum + (int64_t)ranks * i, "allreduce");
	MPI_Reduce(a, b, WORDS, MPI_INT64_T, MPI_MAX, root, MPI_COMM_WORLD);
	for (i = 0; i < WORDS && rank == root; i++)
		check(b[i] == ranks - 1 + i, "reduce");
	MPI_Scan(a, b, WORDS, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	for (i = 0; i < WORDS; i++)
		check(b[i] == upto + (int64_t)(rank + 1) * i, "scan");
	MPI_Barrier(MPI_COMM_WORLD);
}

/* @return a number of bytes, which is different for each pair of ranks */
static uint32_t
share(int from, int to)
{
	return (uint32_t)(1000 + from * 7013 + to * 311);
}

static void
exchange(uint32_t round)
{
	int *n = calloc(4 * (size_t)ranks, sizeof(*n));
	int *sent = n, *sent_at = n + ranks, *got = n + 2 * ranks, *got_at = n + 3 * ranks, i;

	if (n == NULL)
		MPI_Abort(MPI_COMM_WORLD, 2);
	for (i = 0; i < ranks; i++) {
		sent[i] = (int)share(rank, i);
		got[i] = (int)share(i, rank);
		sent_at[i] = i > 0 ? sent_at[i - 1] + sent[i - 1] : 0;
		got_at[i] = i > 0 ? got_at[i - 1] + got[i - 1] : 0;
		fill(out + sent_at[i], (uint32_t)sent[i], rank, i, round);
	}
	MPI_Alltoallv(out, sent, sent_at, MPI_BYTE, in, got, got_at, MPI_BYTE, MPI_COMM_WORLD);
	for (i = 0; i < ranks; i++)
		compare(in + got_at[i], (uint32_t)got[i], i, rank, round, "alltoallv");
	for (i = 0; i < ranks; i++)
		fill(out + i * 5000, 5000, rank, i, round + 1);
	MPI_Alltoall(out, 5000, MPI_BYTE, in, 5000, MPI_BYTE, MPI_COMM_WORLD);
	for (i = 0; i < ranks; i++)
		compare(in + i * 5000, 5000, i, rank, round + 1, "alltoall");
	MPI_Allgather(out, 5000, MPI_BYTE, in, 5000, MPI_BYTE, MPI_COMM_WORLD);
	for (i = 0; i < ranks; i++)
		compare(in + i * 5000, 5000, i, 0, round + 1, "allgather");
	free(n);
}

/* --- one-sided --- */

static void
one_sided(void)
{
	int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
	int64_t one = 1, old, *base;
	MPI_Win win;
	int i;

	MPI_Win_allocate((MPI_Aint)(2 * WORDS * sizeof(*base)), sizeof(*base), MPI_INFO_NULL,
		MPI_COMM_WORLD, &base, &win);
	for (i = 0; i < 2 * WORDS; i++)
		base[i] = i < WORDS ? -1 : rank * 10000 + i;
	MPI_Win_fence(0, win);
	for (i = 0; i < WORDS; i++)
		((int64_t *)out)[i] = rank * 10000 + i;
	MPI_Put(out, WORDS, MPI_INT64_T, next, 0, WORDS, MPI_INT64_T, win);
	MPI_Get(in, WORDS, MPI_INT64_T, next, WORDS, WORDS, MPI_INT64_T, win);
	MPI_Win_fence(0, win);
	for (i = 0; i < WORDS; i++) {
		check(base[i] == last * 10000 + i, "put");
		check(((int64_t *)in)[i] == next * 10000 + WORDS + i, "get");
	}
	base[0] = 0;
	MPI_Win_fence(0, win);
	for (i = 0; i < 20; i++) {
		MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
		MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 0, 0, MPI_SUM, win);
		MPI_Win_unlock(0, win);
		check(old >= i && old < 20 * ranks, "fetch and add: old value");
	}
	MPI_Win_fence(0, win);
	check(rank != 0 || base[0] == 20 * ranks, "fetch and add: sum");
	MPI_Win_free(&win);
}

int
main(int argc, char **argv)
{
	static const uint32_t sizes[] = {
		0, 1, 8, 100, 1024, 4096, 8191, 20000, 65536, 300001, MAX_BYTES};
	uint32_t round, rounds = argc > 1 ? (uint32_t)atoi(argv[1]) : 2, i;
	uint64_t all;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	out = malloc(MAX_BYTES);
	in = malloc(MAX_BYTES);
	if (out == NULL || in == NULL)
		MPI_Abort(MPI_COMM_WORLD, 2);
	for (round = 0; round < rounds; round++) {
		for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			ring(sizes[i], round);
		unexpected();
		collective(round);
		exchange(round);
		one_sided();
	}
	MPI_Allreduce(&wrong, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d ranks: %s\n", ranks, all == 0 ? "all right" : "wrong");
	MPI_Finalize();
	return all != 0;
}
