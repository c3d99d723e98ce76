/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Copies that have not ended when the engine or an lcore stops: the threads that are left behind,
 * and the counts of copies for which calls that remove a key wait.
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <rte_mempool.h>

#include "copies.h"
#include "engine_priv.h"
#include "inside_bed.h"
#include "workers.h"

/* --- threads that are left behind --- */

/* How many threads of this process are an lcore's. */
static uint32_t
lcore_threads(void)
{
	const struct dirent *d;
	char path[320], name[32];
	uint32_t n = 0;
	DIR *dir = opendir("/proc/self/task");
	FILE *f;

	while (dir != NULL && (d = readdir(dir)) != NULL) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", d->d_name);
		f = fopen(path, "r");
		n += f != NULL && fgets(name, sizeof(name), f) != NULL &&
			strncmp(name, "karst-lcore-", strlen("karst-lcore-")) == 0;
		if (f != NULL)
			fclose(f);
	}
	if (dir != NULL)
		closedir(dir);
	return n;
}

/* The engine of @rig ends while two of its threads wait for pages of the program.  When the program
 * ends, they return, and access nothing that is gone.  The packets that they copy from stay. */
static void
end_before_program(struct rig *rig, bool started)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	char pool[RTE_MEMPOOL_NAMESIZE];
	struct region r;
	uint32_t i;

	never_region(rig, &r);
	stick(rig, r.addr, r.key);
	snprintf(pool, sizeof(pool), "%s", karst_engine_config(rig->bed.e)->name);
	if (started)
		karst_engine_stop(rig->bed.e);
	rig_down(rig);
	cr_assert_eq(lcore_threads(), 2);
	cr_assert_not_null(rte_mempool_lookup(pool));
	program_kill(&rig->prog);
	for (i = 0; i < PATIENCE_NS / 1000000 && lcore_threads() > 0; i++)
		nanosleep(&nap, NULL);
	cr_assert_eq(lcore_threads(), 0);
}

Test(inside, copiers_that_outlive_the_engine)
{
	struct rig rig;

	if (access("/dev/fuse", R_OK | W_OK) != 0)
		cr_skip("needs /dev/fuse");
	rig_up(&rig);
	end_before_program(&rig, false);
}

Test(inside, drivers_that_outlive_the_engine)
{
	struct rig rig;

	if (access("/dev/fuse", R_OK | W_OK) != 0)
		cr_skip("needs /dev/fuse");
	rig_up_started(&rig);
	end_before_program(&rig, true);
}

/* A copy whose thread is left behind when the engine stops is given up, so that its queue pair does
 * not wait for it after the next start.  It is free again when the thread has returned. */
Test(inside, a_copy_that_is_left_behind)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	const struct eng_lcore *lc;
	struct karst_cqe cqe;
	struct region r;
	struct rig rig;

	if (access("/dev/fuse", R_OK | W_OK) != 0)
		cr_skip("needs /dev/fuse");
	rig_up_started(&rig);
	lc = &rig.bed.e->lcore[rig.far[0]->lcore];
	never_region(&rig, &r);
	post_faa(&rig, 0, r.addr, r.key);
	while (atomic_load(&lc->watched.taken_over) == 0)
		nanosleep(&nap, NULL);
	karst_engine_stop(rig.bed.e);
	cr_assert_eq(karst_engine_start(rig.bed.e, NULL), 0);
	cr_assert(engine_bed_wait(&rig.bed, &cqe));
	cr_assert_eq(cqe.status, KARST_WC_REM_ACCESS_ERR, "status %d: it waits still", cqe.status);
	cr_assert(karst_space_failed(rig.space), "calls wait for its copies");
	eng_copies_settle(rig.space);
	cr_assert_eq(__atomic_load_n(&lc->copies->ncounted, __ATOMIC_RELAXED), 1);
	program_kill(&rig.prog);
	/* the thread does not wake the lcore; further copies are refused, as the program is gone */
	do {
		nanosleep(&nap, NULL);
		write_more(&rig, r.addr, r.key);
		cr_assert(engine_bed_wait(&rig.bed, &cqe));
	} while (__atomic_load_n(&lc->copies->ncounted, __ATOMIC_RELAXED) != 0);
	karst_engine_stop(rig.bed.e);
	rig_down(&rig);
}

struct holder {
	struct rig *rig;
	const struct eng_lcore *lc;
	_Atomic bool locked;
};

/* Has the lock of the program's atomics until no thread drives an lcore any more. */
static void *
hold_until_the_end(void *arg)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	struct holder *h = arg;
	uint32_t i;

	pthread_mutex_lock(&h->rig->space->atomics->lock);
	atomic_store(&h->locked, true);
	while (atomic_load(&h->lc->workers) == NULL)
		nanosleep(&nap, NULL);
	while (atomic_load(&h->lc->workers) != NULL)
		nanosleep(&nap, NULL);
	for (i = 0; i < h->rig->bed.e->nlcores; i++)
		while (atomic_load(&h->rig->bed.e->lcore[i].owner) != 0)
			nanosleep(&nap, NULL);
	pthread_mutex_unlock(&h->rig->space->atomics->lock);
	return NULL;
}

/* A copy ends while the engine stops, and the next packet of its queue pair needs a copy, too.  It
 * waits for the next start; calls that remove a key wait for it. */
Test(inside, a_copy_that_begins_at_the_end)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	const struct eng_lcore *lc;
	struct karst_cqe cqe;
	struct holder holder;
	uint64_t addr, len;
	pthread_t thread;
	struct region r;
	struct rig rig;

	rig_up_started(&rig);
	lc = &rig.bed.e->lcore[rig.far[0]->lcore];
	cr_assert_eq(program_make(&rig.prog, KIND_STACK, &addr, &len), 0);
	addr = (addr + 63) & ~63ull;
	cr_assert_eq(region_make(&rig, addr, 4096, true, UINT64_MAX, &r), 0);
	holder = (struct holder){.rig = &rig, .lc = lc};
	cr_assert_eq(pthread_create(&thread, NULL, hold_until_the_end, &holder), 0);
	while (!atomic_load(&holder.locked))
		nanosleep(&nap, NULL);
	post_faa(&rig, 0, addr, r.key);
	while (atomic_load(&lc->watched.taken_over) == 0)
		nanosleep(&nap, NULL);
	engine_bed_post(rig.near[0], KARST_WR_RDMA_WRITE, 2, rig.local, 64, rig.local_key,
		(void *)(uintptr_t)addr, r.key);
	while (__atomic_load_n(&lc->copies->nkept, __ATOMIC_RELAXED) < 2)
		nanosleep(&nap, NULL);
	/* as if no thread could be created for the time in which the program polls: copies wait */
	rig.bed.e->copies = false;
	karst_engine_stop(rig.bed.e);
	pthread_join(thread, NULL);
	cr_assert_not_null(lc->copies->todo.head, "the copy of the second packet waits");
	cr_assert_eq(
		space_copies(&rig), 1, "%u copies of the program are counted", space_copies(&rig));
	cr_assert_eq(karst_engine_start(rig.bed.e, NULL), 0);
	cr_assert(engine_bed_wait(&rig.bed, &cqe));
	cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
	cr_assert(engine_bed_wait(&rig.bed, &cqe));
	cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
	karst_engine_stop(rig.bed.e);
	program_end(&rig.prog);
	rig_down(&rig);
}

/* All copies of an lcore are held by threads that were left behind, and one of these returns: the
 * next packet gets its copy. */
Test(inside, a_copy_that_is_the_only_one)
{
	struct eng_copies *cs;
	uint64_t addr, len;
	struct region r;
	struct rig rig;

	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_STACK, &addr, &len), 0);
	addr = (addr + 63) & ~63ull;
	cr_assert_eq(region_make(&rig, addr, 4096, true, UINT64_MAX, &r), 0);
	engine_bed_settle(&rig.bed);
	cs = rig.bed.e->lcore[rig.far[0]->lcore].copies;
	cr_assert_eq(cs->nused, 0);
	cs->nused = ENG_COPIES;
	cs->copy[0].pub.room = cs->room[0];
	cs->copy[0].dropped = true;
	atomic_store(&cs->copy[0].phase, ENG_COPY_OVER);
	eng_copy_return(cs, &cs->copy[0]);
	karst_engine_poll(rig.bed.e, rig.far[0]->lcore);
	cr_expect_null(atomic_load(&cs->returned), "it is not taken");
	cr_expect_eq(remote_op(&rig, 0, KARST_WR_RDMA_WRITE, 0, addr, 64, r.key), KARST_WC_SUCCESS);
	program_end(&rig.prog);
	rig_down(&rig);
}

/* A program is attached twice.  A thread waits for its memory with the lock of its atomics, and
 * another thread, for the other attachment, waits for that lock: both attachments fail when the
 * engine stops, whichever thread is asked first.  If one did not, calls of it would wait for its
 * copy. */
Test(inside, two_attachments_that_are_left_behind)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	struct karst_space *again;
	const struct eng_lcore *lc;
	struct region r;
	uint64_t addr;
	struct rig rig;
	uint32_t key;

	if (access("/dev/fuse", R_OK | W_OK) != 0)
		cr_skip("needs /dev/fuse");
	rig_up_started(&rig);
	lc = &rig.bed.e->lcore[rig.far[0]->lcore];
	rig.near[1] = engine_bed_qp(&rig.bed, KARST_QPT_RC, rig.near[0]->lcore);
	rig.far[1] = engine_bed_qp(&rig.bed, KARST_QPT_RC, rig.far[0]->lcore);
	engine_bed_connect(&rig.bed, rig.near[1], rig.far[1]);
	never_region(&rig, &r);
	key = never_of(&rig, &rig.prog, &again, &addr);
	cr_assert_eq(again->atomics, rig.space->atomics);
	post_faa(&rig, 0, r.addr, r.key);
	while (atomic_load(&lc->watched.taken_over) < 1)
		nanosleep(&nap, NULL);
	post_faa(&rig, 1, addr, key);
	while (atomic_load(&lc->watched.taken_over) < 2)
		nanosleep(&nap, NULL);
	karst_engine_stop(rig.bed.e);
	cr_expect(karst_space_failed(rig.space), "the one whose thread has the lock");
	cr_expect(karst_space_failed(again), "the one whose thread waits for the lock");
	program_kill(&rig.prog);
	cr_assert_eq(karst_engine_mr_dereg_many(rig.bed.e, rig.key, rig.nkeys), 0);
	rig.nkeys = 0;
	karst_space_destroy(again);
	rig_down(&rig);
}

/* --- counts of references --- */

/* On the lcore: sends in a call, as before a queue pair is stopped. */
static int
send_in_a_call(struct eng_lcore *lc, void *arg)
{
	const struct karst_engine_qp *qp = arg;

	karst_core_doorbell(lc->core, qp->num);
	eng_tx_poll(lc);
	return 0;
}

/* A call on the lcore of near[0], which this thread has, sends a message that has to be copied.  No
 * thread can be created that copies it. */
static void
copy_of_a_call(struct rig *rig, struct region *r)
{
	struct eng_lcore *lc = &rig->bed.e->lcore[rig->near[0]->lcore];
	uint64_t addr, len;

	cr_assert_eq(program_make(&rig->prog, KIND_STACK, &addr, &len), 0);
	addr = (addr + 63) & ~63ull;
	cr_assert_eq(region_make(rig, addr, 4096, true, UINT64_MAX, r), 0);
	engine_bed_settle(&rig->bed);
	eng_workers_stop(rig->bed.e);
	engine_bed_post(rig->near[0], KARST_WR_RDMA_WRITE, 1, (void *)(uintptr_t)addr, 64, r->key,
		rig->local, rig->local_key);
	cr_assert_eq(eng_mailbox_call(lc, send_in_a_call, rig->near[0]), 0);
	cr_assert_not_null(lc->copies->todo.head, "no copy waits");
}

/* The same in the last call before the lcore is released. */
static void
copy_after_the_last_turn(struct rig *rig, struct region *r)
{
	copy_of_a_call(rig, r);
	engine_bed_release(&rig->bed);
}

/* Calls that remove a key wait for such a copy, until its queue pair is destroyed.  Then the
 * program may go, although the copy is still in the list. */
Test(inside, a_copy_after_the_last_turn)
{
	struct eng_lcore *lc;
	struct region r;
	struct rig rig;

	rig_up(&rig);
	lc = &rig.bed.e->lcore[rig.near[0]->lcore];
	copy_after_the_last_turn(&rig, &r);
	cr_expect_eq(
		space_copies(&rig), 1, "%u copies of the program are counted", space_copies(&rig));
	cr_assert_eq(karst_engine_qp_destroy(rig.bed.e, rig.near[0]), 0);
	cr_assert_eq(space_copies(&rig), 0, "calls wait for a copy that nobody makes");
	cr_assert_not_null(lc->copies->todo.head);
	cr_assert_eq(karst_engine_mr_dereg_many(rig.bed.e, rig.key, rig.nkeys), 0);
	program_end(&rig.prog);
	karst_space_destroy(rig.space);
	cr_assert_eq(eng_lcore_attach(lc), 0);
	eng_lcore_detach(lc);
	munmap(rig.local, SPACE_LOCAL);
	engine_bed_down(&rig.bed);
}

/* The engine is destroyed while such a copy waits: what it refers to is freed, too. */
Test(inside, a_copy_that_waits_for_a_start_that_never_comes)
{
	struct karst_space *space;
	struct region r;
	struct rig rig;

	rig_up(&rig);
	space = rig.space;
	copy_after_the_last_turn(&rig, &r);
	cr_assert_eq(
		space_copies(&rig), 1, "%u copies of the program are counted", space_copies(&rig));
	eng_space_get(space);
	program_end(&rig.prog);
	rig_down(&rig);
	cr_assert_eq(atomic_load(&space->refs), 1, "the copy has a reference");
	eng_space_put(space);
}

/* The threads that are created later do not take the copy, since too many others wait for the
 * program: calls that remove a key do not wait until the lcore is polled again. */
Test(inside, a_copy_that_is_refused_later)
{
	struct karst_cqe cqe;
	struct region r;
	struct rig rig;

	rig_up(&rig);
	copy_after_the_last_turn(&rig, &r);
	cr_assert_eq(
		space_copies(&rig), 1, "%u copies of the program are counted", space_copies(&rig));
	atomic_store(&rig.space->slow.until_ns, UINT64_MAX);
	atomic_store(&rig.space->slow.queued, 1000);
	cr_assert_eq(eng_workers_start(rig.bed.e), 0);
	cr_assert_eq(space_copies(&rig), 0, "calls wait for a copy that nobody makes");
	atomic_store(&rig.space->slow.queued, 0);
	cr_assert(engine_bed_wait(&rig.bed, &cqe));
	cr_assert_eq(cqe.status, KARST_WC_LOC_PROT_ERR);
	program_end(&rig.prog);
	rig_down(&rig);
}

/* --- threads for copies that come late --- */

struct poller {
	struct rig *rig;
	struct region r;
	uint32_t key;
	_Atomic bool registered;
};

/* Polls lcore 0 until the other thread has registered memory. */
static void *
poll_until_registered(void *arg)
{
	struct poller *p = arg;

	while (!atomic_load(&p->registered))
		karst_engine_poll(p->rig->bed.e, 0);
	karst_engine_release(p->rig->bed.e, 0);
	return NULL;
}

static void *
register_memory(void *arg)
{
	struct poller *p = arg;
	const struct rig *rig = p->rig;

	cr_assert_eq(karst_engine_mr_reg(rig->bed.e, rig->bed.pd, karst_space_host(p->r.r),
			     p->r.addr, p->r.len, SPACE_ALL, &p->key),
		0);
	atomic_store(&p->registered, true);
	return NULL;
}

/* No thread could be created when the engine was stopped, so the thread that polls makes the copies
 * itself.  Another thread registers memory, for which threads can be created: they take the copies
 * that wait, but not while the lcore is in a turn. */
Test(inside, threads_that_are_created_in_a_turn)
{
	const struct timespec nap = {.tv_nsec = 1000000}, while_ns = {.tv_nsec = 200000000};
	struct karst_engine_qp *near, *far;
	struct eng_copies *cs;
	struct karst_cqe cqe;
	struct poller poller;
	pthread_t thread[2];
	uint64_t addr, len;
	struct rig rig;
	uint32_t i;

	rig_up(&rig);
	poller = (struct poller){.rig = &rig};
	cr_assert_eq(program_make(&rig.prog, KIND_STACK, &addr, &len), 0);
	addr = (addr + 63) & ~63ull;
	cr_assert_eq(region_make(&rig, addr, 4096, true, UINT64_MAX, &poller.r), 0);
	near = engine_bed_qp(&rig.bed, KARST_QPT_RC, 0);
	far = engine_bed_qp(&rig.bed, KARST_QPT_RC, 0);
	engine_bed_connect(&rig.bed, near, far);
	engine_bed_settle(&rig.bed);
	engine_bed_release(&rig.bed);
	eng_workers_stop(rig.bed.e);
	rig.bed.e->copies = false;
	cs = rig.bed.e->lcore[0].copies;
	pthread_mutex_lock(&rig.space->atomics->lock);
	post_faa(&rig, 0, addr, poller.r.key);
	engine_bed_post(near, KARST_WR_RDMA_WRITE, 2, rig.local + 4096, 64, rig.local_key,
		(void *)(uintptr_t)(addr + 64), poller.r.key);
	cr_assert_eq(pthread_create(&thread[0], NULL, poll_until_registered, &poller), 0);
	/* the thread waits in the first copy, and the second one waits behind it */
	while (__atomic_load_n(&cs->todo.head, __ATOMIC_RELAXED) != &cs->copy[1] ||
		!atomic_load(&cs->copy[0].inside))
		nanosleep(&nap, NULL);
	cr_assert_eq(pthread_create(&thread[1], NULL, register_memory, &poller), 0);
	nanosleep(&while_ns, NULL);
	cr_expect_eq(__atomic_load_n(&cs->todo.head, __ATOMIC_RELAXED), &cs->copy[1],
		"the list is taken while the lcore works on it");
	pthread_mutex_unlock(&rig.space->atomics->lock);
	for (i = 0; i < 2; i++)
		pthread_join(thread[1 - i], NULL);
	rig.key[rig.nkeys++] = poller.key;
	for (i = 0; i < 2; i++) {
		cr_assert(engine_bed_wait(&rig.bed, &cqe));
		cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
	}
	program_end(&rig.prog);
	rig_down(&rig);
}

/* --- copies that nobody would make --- */

struct settler {
	struct karst_space *space;
	_Atomic bool over;
};

static void *
settle(void *arg)
{
	struct settler *s = arg;

	eng_copies_settle(s->space);
	atomic_store(&s->over, true);
	return NULL;
}

/* No thread can be created for the copies of an lcore that no thread polls: a call that removes a
 * key does not wait until there is one, and the copy fails. */
Test(inside, a_copy_that_no_thread_would_make)
{
	const struct timespec nap = {.tv_nsec = 1000000}, while_ns = {.tv_nsec = 300000000};
	struct settler settler;
	struct karst_cqe cqe;
	pthread_t thread;
	struct region r;
	struct rig rig;
	uint32_t i;

	rig_up(&rig);
	copy_after_the_last_turn(&rig, &r);
	cr_assert_eq(
		space_copies(&rig), 1, "%u copies of the program are counted", space_copies(&rig));
	settler = (struct settler){.space = rig.space};
	/* as while the engine starts: its threads will make the copy */
	atomic_store(&rig.bed.e->lcore[rig.near[0]->lcore].launched, true);
	cr_assert_eq(pthread_create(&thread, NULL, settle, &settler), 0);
	nanosleep(&while_ns, NULL);
	cr_assert_not(atomic_load(&settler.over), "the copy is refused while threads are created");
	atomic_store(&rig.bed.e->lcore[rig.near[0]->lcore].launched, false);
	for (i = 0; i < PATIENCE_NS / 1000000 && !atomic_load(&settler.over); i++)
		nanosleep(&nap, NULL);
	cr_assert(atomic_load(&settler.over), "it waits for a copy that nobody makes");
	pthread_join(thread, NULL);
	cr_assert(engine_bed_wait(&rig.bed, &cqe));
	cr_assert_eq(cqe.status, KARST_WC_LOC_PROT_ERR);
	program_end(&rig.prog);
	rig_down(&rig);
}

/* --- bytes that are there when the engine ends --- */

static _Atomic int stalled; /* 1: the thread stands in the handler, 2: it may go on */

static void
stall(int sig)
{
	const struct timespec nap = {.tv_nsec = 1000000};

	(void)sig;
	atomic_store(&stalled, 1);
	while (atomic_load(&stalled) != 2)
		nanosleep(&nap, NULL);
}

static void *
stop_workers(void *arg)
{
	eng_workers_stop(arg);
	return NULL;
}

/* The thread of lcore 0 that is in a copy, or NULL. */
static struct eng_worker *
copier_of(struct eng_workers *workers)
{
	struct eng_worker *w;

	pthread_mutex_lock(&workers->lock);
	for (w = workers->first; w != NULL && w->copy == NULL; w = w->next)
		;
	pthread_mutex_unlock(&workers->lock);
	return w;
}

/* A thread has moved the bytes of its copy, but gets no processor until the engine gives up the
 * copies that have not ended: the program does not fail. */
Test(inside, a_thread_that_only_has_to_hand_in)
{
	const struct timespec nap = {.tv_nsec = 1000000}, longer = {.tv_sec = 3};
	struct sigaction act = {.sa_handler = stall};
	struct eng_workers *workers;
	uint64_t addr, len, now = 0;
	struct eng_worker *w;
	struct karst_cqe cqe;
	pthread_t thread;
	struct region r;
	struct rig rig;

	rig_up(&rig);
	cr_assert_eq(sigaction(SIGUSR1, &act, NULL), 0);
	cr_assert_eq(program_make(&rig.prog, KIND_STACK, &addr, &len), 0);
	addr = (addr + 63) & ~63ull;
	cr_assert_eq(region_make(&rig, addr, 4096, true, UINT64_MAX, &r), 0);
	workers = atomic_load(&rig.bed.e->lcore[0].workers);
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_RDMA_WRITE, 0, addr, 64, r.key), KARST_WC_SUCCESS);
	pthread_mutex_lock(&rig.space->atomics->lock);
	post_faa(&rig, 0, addr, r.key);
	while ((w = copier_of(workers)) == NULL || !atomic_load(&w->copy->inside))
		engine_bed_settle(&rig.bed);
	engine_bed_release(&rig.bed);
	pthread_mutex_lock(&workers->lock);
	pthread_mutex_unlock(&rig.space->atomics->lock);
	/* rig.local was 0 */
	while (now != 1 || !atomic_load(&w->copy->made)) {
		struct iovec to = {&now, 8}, from = {(void *)(uintptr_t)addr, 8};

		cr_assert_eq(process_vm_readv(rig.prog.pid, &to, 1, &from, 1, 0), 8);
		nanosleep(&nap, NULL);
	}
	cr_assert_eq(pthread_kill(w->thread, SIGUSR1), 0);
	while (atomic_load(&stalled) == 0)
		nanosleep(&nap, NULL);
	pthread_mutex_unlock(&workers->lock);
	cr_assert_eq(pthread_create(&thread, NULL, stop_workers, rig.bed.e), 0);
	while (atomic_load(&rig.bed.e->lcore[0].workers) != NULL)
		nanosleep(&nap, NULL);
	nanosleep(&longer, NULL);
	cr_expect_not(karst_space_failed(rig.space), "its bytes are there");
	atomic_store(&stalled, 2);
	pthread_join(thread, NULL);
	cr_expect_eq(space_copies(&rig), 0);
	cr_assert_eq(eng_workers_start(rig.bed.e), 0);
	cr_assert(engine_bed_wait(&rig.bed, &cqe));
	cr_expect_eq(cqe.status, KARST_WC_SUCCESS);
	program_end(&rig.prog);
	rig_down(&rig);
}

/* --- copies that begin while no thread has the lcore --- */

static struct {
	struct karst_copy_ops ops;
	uint32_t begun;   /* while no thread had the lcore */
	uint32_t ignored; /* of these, those that a thread which removes a key would not wait for */
} unattached;

static bool
submit_and_look(struct karst_core *core, struct karst_copy *copy)
{
	const struct eng_lcore *lc = core->user;
	struct karst_engine *e = lc->e;

	if (atomic_load(&lc->owner) == 0) {
		unattached.begun++;
		unattached.ignored += rte_rcu_qsbr_check(e->rcu, rte_rcu_qsbr_start(e->rcu), false);
	}
	return eng_unmapped_ops.submit(core, copy);
}

static int
look_at_copies(struct eng_lcore *lc, void *arg)
{
	(void)arg;
	unattached.ops = eng_unmapped_ops;
	unattached.ops.submit = submit_and_look;
	lc->core->copy_ops = &unattached.ops;
	return 0;
}

/* A key is removed just when a copy begins because the engine has ended another one: the thread
 * that removes the key waits until that copy is counted. */
Test(inside, a_key_that_is_removed_at_the_end)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	struct eng_lcore *lc;
	struct holder holder;
	uint64_t addr, len;
	struct karst_cqe cqe;
	pthread_t thread;
	struct region r;
	struct rig rig;
	uint32_t i;

	rig_up_started(&rig);
	lc = &rig.bed.e->lcore[rig.far[0]->lcore];
	cr_assert_eq(program_make(&rig.prog, KIND_STACK, &addr, &len), 0);
	addr = (addr + 63) & ~63ull;
	cr_assert_eq(region_make(&rig, addr, 4096, true, UINT64_MAX, &r), 0);
	cr_assert_eq(eng_mailbox_call(lc, look_at_copies, NULL), 0);
	holder = (struct holder){.rig = &rig, .lc = lc};
	cr_assert_eq(pthread_create(&thread, NULL, hold_until_the_end, &holder), 0);
	while (!atomic_load(&holder.locked))
		nanosleep(&nap, NULL);
	post_faa(&rig, 0, addr, r.key);
	while (atomic_load(&lc->watched.taken_over) == 0)
		nanosleep(&nap, NULL);
	engine_bed_post(rig.near[0], KARST_WR_RDMA_WRITE, 2, rig.local, 64, rig.local_key,
		(void *)(uintptr_t)addr, r.key);
	while (__atomic_load_n(&lc->copies->nkept, __ATOMIC_RELAXED) < 2)
		nanosleep(&nap, NULL);
	rig.bed.e->copies = false; /* otherwise threads are created again */
	karst_engine_stop(rig.bed.e);
	pthread_join(thread, NULL);
	cr_assert_eq(unattached.begun, 1);
	cr_assert_eq(unattached.ignored, 0, "its key may be gone before it is counted");
	/* the copy waits for the next start */
	cr_assert_eq(karst_engine_start(rig.bed.e, NULL), 0);
	for (i = 0; i < 2; i++) {
		cr_assert(engine_bed_wait(&rig.bed, &cqe));
		cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
	}
	karst_engine_stop(rig.bed.e);
	program_end(&rig.prog);
	rig_down(&rig);
}

/* The same if a call begins the copy. */
Test(inside, a_copy_of_a_call_without_a_thread)
{
	struct eng_lcore *lc;
	uint64_t addr, len;
	struct region r;
	struct rig rig;

	rig_up(&rig);
	lc = &rig.bed.e->lcore[rig.near[0]->lcore];
	cr_assert_eq(program_make(&rig.prog, KIND_STACK, &addr, &len), 0);
	addr = (addr + 63) & ~63ull;
	cr_assert_eq(region_make(&rig, addr, 4096, true, UINT64_MAX, &r), 0);
	engine_bed_settle(&rig.bed);
	eng_workers_stop(rig.bed.e);
	engine_bed_post(rig.near[0], KARST_WR_RDMA_WRITE, 1, (void *)(uintptr_t)addr, 64, r.key,
		rig.local, rig.local_key);
	cr_assert_eq(eng_mailbox_call(lc, look_at_copies, NULL), 0);
	engine_bed_release(&rig.bed);
	cr_assert_eq(eng_mailbox_call(lc, send_in_a_call, rig.near[0]), 0);
	cr_assert_eq(unattached.begun, 1);
	cr_expect_eq(unattached.ignored, 0, "its key may be gone before it is counted");
	cr_expect_eq(
		space_copies(&rig), 1, "%u copies of the program are counted", space_copies(&rig));
	cr_assert_eq(karst_engine_qp_destroy(rig.bed.e, rig.near[0]), 0);
	program_end(&rig.prog);
	rig_down(&rig);
}

/* The same if the thread that has the lcore makes the call, and then another one that waits. */
Test(inside, a_copy_of_a_call_before_a_wait)
{
	struct region r;
	struct rig rig;
	uint32_t key;

	rig_up(&rig);
	copy_of_a_call(&rig, &r);
	cr_assert_eq(
		karst_engine_mr_reg(rig.bed.e, rig.bed.pd, rig.local, 0, 64, SPACE_ALL, &key), 0);
	cr_assert_eq(karst_engine_mr_dereg_many(rig.bed.e, &key, 1), 0);
	cr_expect_eq(
		space_copies(&rig), 1, "%u copies of the program are counted", space_copies(&rig));
	cr_assert_eq(karst_engine_qp_destroy(rig.bed.e, rig.near[0]), 0);
	program_end(&rig.prog);
	rig_down(&rig);
}
