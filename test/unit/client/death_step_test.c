/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The engine is killed between any two stores by which it publishes completions to a program.  The
 * engine is traced and stops at each change of those words.  The first run kills it after the first
 * change, the second run after the second, and so on, until there is nothing left to publish.  The
 * processor's debug registers stop the engine; where they do not (virtual machines accept their
 * values and never trap), it runs in single steps.
 */
#include "client_bed.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <criterion/criterion.h>

#define ENTRIES  16u
#define REQUESTS 4u

static uint8_t mem[4096];

struct pair {
	struct client_bed b;
	struct karst_mr *mr;
	struct karst_cq *cq; /* of all queues */
	struct karst_cq_lane *lane;
	struct karst_qp *a; /* the sender */
	struct karst_qp *z; /* the receiver */
	uint32_t shown;     /* completions that the program was shown before the sends */
	bool watched;       /* the engine stops at its stores, not at each instruction */
};

/* The words that the engine stores, in this order, for a batch of completions. */
struct words {
	uint32_t ready;
	uint32_t send_head;
	uint32_t recv_head;
	uint32_t tail;
};

static struct words
look(const struct pair *p)
{
	return (struct words){.ready = atomic_load(&p->lane->sh->ready),
		.send_head = atomic_load(&p->a->sq.sh->head),
		.recv_head = atomic_load(&p->z->rq.sh->head),
		.tail = atomic_load(&p->lane->sh->tail)};
}

/* A line of /proc/PID/maps. */
struct mapping {
	unsigned long from, upto, offset, inode;
};

/* Finds the mapping of @pid that holds address @at; if @at is 0, the mapping that holds offset
 * @offset of file @inode. */
static bool
find_mapping(
	pid_t pid, unsigned long at, unsigned long offset, unsigned long inode, struct mapping *m)
{
	char path[64], line[512];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "re");
	cr_assert_not_null(f);
	while (!found && fgets(line, sizeof(line), f) != NULL)
		found = sscanf(line, "%lx-%lx %*s %lx %*s %lu", &m->from, &m->upto, &m->offset,
				&m->inode) == 4 &&
			(at != 0 ? at >= m->from && at < m->upto
				 : m->inode == inode && offset >= m->offset &&
						offset - m->offset < m->upto - m->from);
	fclose(f);
	return found;
}

#ifdef __x86_64__
static bool
poke_debug_register(pid_t pid, unsigned int i, unsigned long value)
{
	size_t at = offsetof(struct user, u_debugreg) + i * sizeof(value);

	return ptrace(PTRACE_POKEUSER, pid, at, value) == 0;
}

/* Tells whether the processor stops a process as its debug registers say.  Tried with a process
 * that stores once. */
static bool
debug_registers_work(void)
{
	static volatile int word;
	pid_t child = fork();
	int status;

	cr_assert_geq(child, 0);
	if (child == 0) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		word = 1;
		_exit(0);
	}
	waitpid(child, &status, 0);
	if (poke_debug_register(child, 0, (unsigned long)&word) &&
		poke_debug_register(child, 7, 1ul | (1ul | 3ul << 2) << 16)) {
		ptrace(PTRACE_CONT, child, NULL, NULL);
		waitpid(child, &status, 0);
	}
	if (!WIFEXITED(status)) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	return WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP;
}

/* Makes the engine stop after each store to one of the four words, whose addresses in the engine
 * are in @words. */
static bool
watch_words(const struct pair *p, const karst_word *const *words)
{
	unsigned long control = 0;
	struct mapping here, there;
	unsigned int i;

	if (!debug_registers_work())
		return false;
	for (i = 0; i < 4; i++) {
		unsigned long at = (unsigned long)words[i], offset;

		if (!find_mapping(getpid(), at, 0, 0, &here))
			return false;
		offset = at - here.from + here.offset;
		if (!find_mapping(p->b.child, 0, offset, here.inode, &there) ||
			!poke_debug_register(p->b.child, i, there.from + (offset - there.offset)))
			return false;
		/* enabled; on writes; four bytes */
		control |= 1ul << 2 * i | (1ul | 3ul << 2) << (16 + 4 * i);
	}
	return poke_debug_register(p->b.child, 7, control);
}
#else
static bool
watch_words(const struct pair *p, const karst_word *const *words)
{
	(void)p;
	(void)words;
	return false;
}
#endif

static struct karst_qp *
small_qp(struct pair *p)
{
	struct karst_qp_init_attr init = client_bed_init(&p->b, KARST_QPT_RC);
	struct karst_qp *qp;

	init.send_cq = init.recv_cq = p->cq;
	init.cap.max_send_wr = init.cap.max_recv_wr = REQUESTS;
	cr_assert_eq(karst_create_qp(p->b.pd, &init, &qp), 0, "%s", karst_why());
	return qp;
}

/* Connects two queue pairs, of whose lane each entry last held a completion of another queue; then
 * stops the engine. */
static void
pair_up(struct pair *p)
{
	uint32_t i;

	client_bed_up(&p->b, &(struct client_bed_config){.lcores = 1, .forked = true});
	p->mr = client_bed_mr(&p->b, mem, sizeof(mem));
	cr_assert_eq(karst_create_cq(p->b.ctx, ENTRIES, NULL, NULL, &p->cq), 0);
	cr_assert_eq(p->cq->cqe, ENTRIES);
	p->lane = &p->cq->lane[0];
	p->a = small_qp(p);
	p->z = small_qp(p);
	client_bed_connect(p->a, p->z);
	for (i = 0; i < 2 * ENTRIES; i++) {
		cr_assert_eq(
			client_bed_post(p->z, KARST_WR_RDMA_WRITE, i, p->mr, 0, 8, p->mr, 64), 0);
		cr_assert_eq(client_bed_wait(p->cq).status, KARST_WC_SUCCESS);
	}
	p->shown = atomic_load(&p->lane->sh->tail);
	/* the first thread of the engine is the lcore */
	cr_assert_eq(ptrace(PTRACE_SEIZE, p->b.child, NULL, NULL), 0);
	cr_assert_eq(ptrace(PTRACE_INTERRUPT, p->b.child, NULL, NULL), 0);
	cr_assert_eq(waitpid(p->b.child, NULL, __WALL), p->b.child);
	p->watched = watch_words(p,
		(const karst_word *const[]){&p->lane->sh->ready, &p->a->sq.sh->head,
			&p->z->rq.sh->head, &p->lane->sh->tail});
}

static void
pair_down(struct pair *p)
{
	cr_assert_eq(karst_destroy_qp(p->a), 0);
	cr_assert_eq(karst_destroy_qp(p->z), 0);
	cr_assert_eq(karst_destroy_cq(p->cq), 0);
	cr_assert_eq(karst_dereg_mr(p->mr), 0);
	client_bed_down(&p->b);
}

/* Runs the engine until @changes changes of the words were seen.  @return false: all was published
 * before. */
static bool
step(const struct pair *p, uint32_t changes)
{
	struct words was = look(p), is;

	while (changes > 0) {
		if (was.tail == p->shown + 2 * REQUESTS)
			return false;
		cr_assert_eq(ptrace(p->watched ? PTRACE_CONT : PTRACE_SINGLESTEP, p->b.child, NULL,
				     NULL),
			0);
		cr_assert_eq(waitpid(p->b.child, NULL, __WALL), p->b.child);
		is = look(p);
		changes -= memcmp(&is, &was, sizeof(is)) != 0;
		was = is;
	}
	return true;
}

/* Polls @n completions, each expected once, in order for each queue, and no success after a
 * failure.  @return how many succeeded. */
static uint32_t
take(const struct pair *p, uint32_t n)
{
	uint32_t next[2] = {0, 0}, good[2] = {0, 0}, i;

	for (i = 0; i < n; i++) {
		struct karst_cqe e = client_bed_wait(p->cq);
		bool recv = (e.opcode & KARST_WC_RECV) != 0;

		cr_assert_eq(e.qpn, recv ? p->z->qp_num : p->a->qp_num);
		cr_assert_eq(e.wr_id, next[recv]++);
		cr_assert(e.status == KARST_WC_SUCCESS || e.status == KARST_WC_WR_FLUSH_ERR);
		if (e.status != KARST_WC_SUCCESS)
			continue;
		cr_assert_eq(good[recv]++, e.wr_id);
	}
	client_bed_nothing(p->cq);
	return good[0] + good[1];
}

static void
post(const struct pair *p)
{
	uint32_t i;

	for (i = 0; i < REQUESTS; i++) {
		cr_assert_eq(client_bed_recv(p->z, i, p->mr, 64 + 8 * i, 8), 0);
		cr_assert_eq(client_bed_post(p->a, KARST_WR_SEND, i, p->mr, 0, 8, NULL, 0), 0);
	}
}

/* @return whether there is a later change after which to kill the engine. */
static bool
killed_after(uint32_t changes)
{
	struct words told;
	struct pair p;
	bool more;

	pair_up(&p);
	post(&p);
	more = step(&p, changes);
	client_bed_kill(&p.b);
	told = look(&p);
	cr_assert_eq(take(&p, 2 * REQUESTS), told.ready - p.shown, "what was ready counts");
	/* all slots are free again */
	post(&p);
	cr_assert_eq(take(&p, 2 * REQUESTS), 0);
	pair_down(&p);
	return more;
}

Test(client_death, between_any_two_stores, .timeout = 1500)
{
	uint32_t changes = 0;

	while (killed_after(changes))
		changes++;
	/* ready, head and tail, of sends and of receives */
	cr_assert_geq(changes, 6, "%u changes", changes);
}
