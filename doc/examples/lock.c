/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A lock in one program's memory that other programs take by compare-and-swap, and a counter that
 * only the holder of the lock changes: it reads the counter, adds one, and writes it back.  If the
 * lock did not work, counts would be lost.
 *
 *     lock --workers 4 --count 100
 *
 * The worker processes are started before any context is opened, because a child process must not
 * use the contexts of its parent.
 */
#include "example.h"

#include <stdio.h>
#include <stdlib.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

static const char usage[] =
	"usage: lock [OPTION...]\n"
	"\n"
	"Processes count under a lock that they take by compare-and-swap in the owner's memory.\n"
	"\n"
	"  --workers N       processes; default 4\n"
	"  --count N         times that each takes the lock; default 100\n";

/* The memory that the owner of the lock shares. */
struct shared {
	uint64_t lock; /* 0: free, else the number of its holder */
	uint64_t counter;
};

/* --- a worker --- */

struct worker {
	struct example x;
	struct example_link link;
	struct karst_mr *mr;
	uint64_t *word; /* where results go */
	uint64_t id;
};

static void
request(struct worker *w, struct karst_send_wr *wr)
{
	struct karst_sge sge = {
		.addr = (uintptr_t)w->word, .len = sizeof(*w->word), .lkey = w->mr->lkey};

	wr->sg_list = &sge;
	wr->num_sge = 1;
	wr->send_flags |= KARST_SEND_SIGNALED;
	example_check(karst_post_send(w->link.qp, wr, NULL), "karst_post_send");
	example_wait(&w->x);
}

/* @return the old value. */
static uint64_t
compare_and_swap(struct worker *w, uint64_t compare, uint64_t swap)
{
	struct karst_send_wr wr = {
		.opcode = KARST_WR_ATOMIC_CAS,
		.atomic = {.remote_addr = w->link.addr + offsetof(struct shared, lock),
			.compare_add = compare,
			.swap = swap,
			.rkey = w->link.rkey},
	};

	request(w, &wr);
	return *w->word;
}

static void
move_counter(struct worker *w, enum karst_wr_opcode op)
{
	struct karst_send_wr wr = {
		.opcode = op,
		.rdma = {.remote_addr = w->link.addr + offsetof(struct shared, counter),
			.rkey = w->link.rkey},
	};

	request(w, &wr);
}

static int
work(const struct example_opts *o, uint64_t id)
{
	struct worker w = {.id = id};
	unsigned long i, waited = 0;

	srandom((unsigned int)(getpid()));
	example_open(&w.x, o);
	w.word = example_memory(&w.x, sizeof(*w.word), &w.mr);
	example_link(&w.x, o, example_connect(o), NULL, &w.link);
	for (i = 0; i < o->count; i++) {
		while (compare_and_swap(&w, 0, id) != 0) {
			waited++;
			sched_yield();
		}
		move_counter(&w, KARST_WR_RDMA_READ);
		++*w.word;
		move_counter(&w, KARST_WR_RDMA_WRITE);
		if (compare_and_swap(&w, id, 0) != id)
			example_die("worker %lu: somebody else has let go of the lock",
				(unsigned long)id);
	}
	printf("worker %lu: took the lock %lu times, tried %lu times in vain\n", (unsigned long)id,
		o->count, waited);
	example_meet(&w.link);
	example_unlink(&w.link);
	example_free(w.word, w.mr);
	example_close(&w.x);
	return 0;
}

static void
start_workers(const struct example_opts *o)
{
	unsigned long i;
	pid_t pid;

	for (i = 0; i < o->workers; i++) {
		pid = fork();
		if (pid < 0)
			example_die("fork: %m");
		if (pid == 0)
			exit(work(o, (uint64_t)getpid() << 16 | (i + 1)));
	}
}

static int
wait_workers(const struct example_opts *o)
{
	unsigned long i;
	int status, bad = 0;

	for (i = 0; i < o->workers; i++)
		if (wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
			bad = 1;
	return bad;
}

/* --- the owner --- */

static int
own(struct example_opts *o)
{
	int listener = example_listen(o), bad;
	unsigned int number = example_tcp_port(listener);
	struct example_link *link;
	struct shared *shared;
	struct karst_mr *mr;
	struct example x;
	char port[16];
	unsigned long i;

	/* the workers connect to the port that was chosen */
	snprintf(port, sizeof(port), "%u", number);
	o->tcp_port = port;
	o->host = "localhost";
	start_workers(o);

	example_open(&x, o);
	shared = example_memory(&x, sizeof(*shared), &mr);
	link = calloc(o->workers, sizeof(*link));
	if (link == NULL && o->workers > 0)
		example_die("no memory");
	for (i = 0; i < o->workers; i++)
		example_link(&x, o, example_accept(listener), mr, &link[i]);
	for (i = 0; i < o->workers; i++)
		example_meet(&link[i]);
	bad = wait_workers(o);
	printf("%lu workers counted to %lu, which is %s\n", o->workers,
		(unsigned long)shared->counter,
		shared->counter == o->workers * o->count ? "right" : "wrong");
	bad |= shared->counter != o->workers * o->count;
	for (i = 0; i < o->workers; i++)
		example_unlink(&link[i]);
	free(link);
	example_free(shared, mr);
	example_close(&x);
	close(listener);
	return bad;
}

int
main(int argc, char **argv)
{
	struct example_opts o = {.port = 1, .tcp_port = "0", .count = 100, .workers = 4};

	example_options(argc, argv, &o, usage);
	if (o.workers > 50)
		example_die("--workers %lu: at most 50", o.workers);
	return own(&o);
}
