/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The worker pool of an lcore: threads, of which one at a time drives the lcore.
 *
 * A copy to or from a program's memory is a system call that the program can make as slow as it
 * likes: the page may have to come from a file system that the program itself serves, and only a
 * signal that ends the process ends that wait.  So a thread that drives an lcore makes such a call
 * only if another thread can continue in its place:
 *
 *	driver    runs the lcore's turns, and copies at their safe points (copies.c)
 *	copiers   make the copies of programs that are known to be slow (deferred.c)
 *	idle      at least one; the watchdog makes it the driver if the driver does not return
 *
 * So there is an idle worker whenever the driver may begin a copy: a worker that is about to become
 * a copier adds another one first.  If that fails, for example because of a limit of the system,
 * the driver makes no copies any more, until a worker could be added or has become idle.  Copiers
 * make them, and they need no worker that could take the lcore over.  A copier that was the last
 * one to be idle waits until the driver has heeded this.
 *
 * The driver sets a bit in workers->drive while it is in a copy.  If the watchdog finds it asleep
 * in the same copy for a millisecond, or busy in it for as long, it takes the lcore from the driver
 * by changing that word, and wakes an idle worker.  All state of the lcore is in its structure,
 * including the position in its turn (lc->step), so the new driver continues where the old one
 * left.  The old one finds the word changed when it returns, hands its copy in like a copier, and
 * becomes idle.
 *
 * All workers are alike: they have the same processors and, while they drive, the same DPDK lcore
 * number, so DPDK's per-lcore caches of buffers have one user at a time.  EAL's own worker only
 * waits for these threads, so stopping never waits for a program: threads that have not returned by
 * then are left behind, with the memory that they may still access: their pool, the lcore's copies,
 * the packets of these, the programs' spaces and the engine's clock.  Their copies are given up.
 * When such a thread returns, it gives its copy back to the lcore, which may run again.
 *
 * An lcore that a program polls cannot be taken from that thread, so none of its copies are made
 * there: from the time when there is memory to be copied, such lcores have pools of copiers without
 * a driver.  Each copy then costs two context switches.
 */
#include "workers.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <rte_lcore.h>

#define STACK_BYTES (256u << 10)
/* A second idle worker waits for work for so long. */
#define IDLE_S 1
/* After a failure to add a worker, another attempt is made so much later. */
#define ADD_AGAIN_NS 100000000u
/* Threads that have not returned so long after the end are left behind. */
#define LEAVE_S 2

/* --- driving --- */

bool
eng_workers_copy(struct eng_workers *workers, struct eng_copy *c)
{
	uint64_t word = atomic_load_explicit(&workers->drive, memory_order_relaxed) | 1;
	struct karst_engine *e = workers->lc->e;

	/* relaxed: the word orders it */
	atomic_store_explicit(&workers->at, c, memory_order_relaxed);
	/* Dekker with the watchdog, which sets dozing and then reads the word once more */
	atomic_exchange_explicit(&workers->drive, word, memory_order_seq_cst);
	if (karst_unlikely(atomic_load_explicit(&e->watch->dozing, memory_order_seq_cst)))
		eng_watch_wake(e);
	c->result = eng_copy_execute(c, engine_now(e), NULL);
	/* release: what this thread did to the lcore, for the thread that takes it; acquire: not
	 * needed */
	return atomic_compare_exchange_strong_explicit(
		&workers->drive, &word, word + 1, memory_order_acq_rel, memory_order_acquire);
}

/* The loop of an lcore.  @return false: another thread has the lcore, and this one must not access
 * it. */
static bool
drive(struct eng_workers *workers, uint64_t carry_ns)
{
	struct eng_lcore *lc = workers->lc;
	struct eng_cost cost;
	int slack;

	eng_copy_cost(&cost);
	lc->cpu_ns = cost.cpu_ns - carry_ns;

	RTE_PER_LCORE(_lcore_id) = lc->eal_lcore;
	/* no thread waits for it: an lcore that was taken over stays attached */
	atomic_store_explicit(&lc->owner, this_thread(), memory_order_relaxed);
	slack = eng_sleep_begin(lc);
	if (!eng_lcore_loop(lc)) {
		RTE_PER_LCORE(_lcore_id) = LCORE_ID_ANY;
		/* if the engine has ended meanwhile, the lcore is gone */
		eng_sleep_end(slack);
		return false;
	}
	eng_sleep_end(slack);
	eng_lcore_detach(lc);
	RTE_PER_LCORE(_lcore_id) = LCORE_ID_ANY;
	return true;
}

/* Drives; the lock is held by the caller but not while it drives. */
static void
be_driver(struct eng_workers *workers, struct eng_worker *w)
{
	uint64_t carry_ns = workers->carry_ns;
	bool ended;

	workers->must_drive = false;
	workers->heeded = atomic_load_explicit(&workers->alone, memory_order_relaxed);
	workers->carry_ns = 0;
	workers->driver = w;
	pthread_mutex_unlock(&workers->lock);
	ended = drive(workers, carry_ns);
	pthread_mutex_lock(&workers->lock);
	if (ended) {
		workers->driver = NULL;
		workers->driven = false;
		pthread_cond_broadcast(&workers->gone);
	} else {
		eng_deferred_over(workers, w);
	}
}

/* --- workers --- */

/* Lock held.  Whether @w is still idle; if so, and @take, removes it from the idle workers. */
static bool
is_idle(struct eng_workers *workers, struct eng_worker *w, bool take)
{
	struct eng_worker **pp;

	for (pp = &workers->idle; *pp != NULL && *pp != w; pp = &(*pp)->below)
		;
	if (*pp == NULL || !take)
		return *pp != NULL;
	*pp = w->below;
	workers->nidle--;
	return true;
}

void
eng_workers_call(struct eng_workers *workers)
{
	struct eng_worker *w = workers->idle;

	if (w == NULL)
		return;
	is_idle(workers, w, true);
	pthread_cond_signal(&w->call);
}

static void
set_alone(struct eng_workers *workers, bool alone)
{
	/* relaxed: the lock orders it, see heeded */
	atomic_store_explicit(&workers->alone, alone, memory_order_relaxed);
	workers->heeded = false;
}

/* Lock held.  The worker that became idle last is called first, so that superfluous workers time
 * out.
 * @return false: there are enough workers without it. */
static bool
wait_for_call(struct eng_workers *workers, struct eng_worker *w)
{
	struct timespec until;

	w->below = workers->idle;
	workers->idle = w;
	workers->nidle++;
	/* this one can take the lcore over, unless there is a copy for it, which it may make only
	 * while the driver makes none */
	if (atomic_load_explicit(&workers->alone, memory_order_relaxed) &&
		eng_deferred_first(workers) == NULL)
		set_alone(workers, false);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += IDLE_S;
	while (is_idle(workers, w, false)) {
		if (pthread_cond_timedwait(&w->call, &workers->lock, &until) != ETIMEDOUT)
			continue;
		if (workers->nidle > 1 && is_idle(workers, w, true))
			return false;
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += IDLE_S;
	}
	return true;
}

static void
leave(struct eng_workers *workers, struct eng_worker *w)
{
	struct eng_worker **pp;

	for (pp = &workers->first; *pp != w; pp = &(*pp)->next)
		;
	*pp = w->next;
	workers->nworkers--;
	pthread_cond_destroy(&w->call);
	free(w);
	pthread_cond_broadcast(&workers->gone);
}

void
eng_engine_put(struct karst_engine *e)
{
	if (atomic_fetch_sub_explicit(&e->holders, 1, memory_order_acq_rel) == 1)
		free(e);
}

static void
workers_free(struct eng_workers *workers)
{
	pthread_cond_destroy(&workers->gone);
	pthread_mutex_destroy(&workers->lock);
	free(workers);
}

static void *
work(void *arg)
{
	struct eng_worker *w = arg;
	struct eng_workers *workers = w->workers;
	struct karst_engine *e = workers->e;
	uint64_t now;
	bool last;

	pthread_mutex_lock(&workers->lock);
	w->tid = (pid_t)syscall(SYS_gettid);
	do {
		if (workers->must_drive) {
			be_driver(workers, w);
			continue;
		}
		if (!eng_deferred_take(workers, w)) {
			if (!workers->end && !wait_for_call(workers, w))
				break;
			continue;
		}
		now = engine_now(workers->lc->e);
		atomic_store_explicit(&w->since_ns, now, memory_order_relaxed);
		pthread_mutex_unlock(&workers->lock);
		eng_deferred_tell(w->copy);
		w->copy->result = eng_copy_execute(w->copy, now, &w->since_ns);
		pthread_mutex_lock(&workers->lock);
		eng_deferred_over(workers, w);
	} while (!workers->end || workers->must_drive);
	leave(workers, w);
	last = workers->left && workers->nworkers == 0;
	pthread_mutex_unlock(&workers->lock);
	if (last) {
		workers_free(workers);
		eng_engine_put(e);
	}
	return NULL;
}

static void
init_cond(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

/* Lock held. */
static int
worker_add(struct eng_workers *workers)
{
	struct eng_worker *w = calloc(1, sizeof(*w));
	pthread_attr_t attr;
	char name[16];
	int rc;

	if (w == NULL)
		return -ENOMEM;
	w->workers = workers;
	init_cond(&w->call);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setaffinity_np(&attr, sizeof(workers->cpus), &workers->cpus);
	rc = pthread_create(&w->thread, &attr, work, w);
	pthread_attr_destroy(&attr);
	if (rc != 0) {
		pthread_cond_destroy(&w->call);
		free(w);
		return -rc;
	}
	snprintf(name, sizeof(name), "karst-lcore-%u", workers->lc->index);
	pthread_setname_np(w->thread, name);
	w->next = workers->first;
	workers->first = w;
	workers->nworkers++;
	return 0;
}

/* Lock held.  @return whether there is one more worker. */
static bool
try_to_add(struct eng_workers *workers)
{
	struct eng_lcore *lc = workers->lc;
	uint64_t now = engine_now(lc->e);
	int ret;

	if (now < workers->add_ns)
		return false;
	ret = worker_add(workers);
	if (ret == 0)
		return true;
	workers->add_ns = now + ADD_AGAIN_NS;
	atomic_fetch_add_explicit(&lc->watched.no_threads, 1, memory_order_relaxed);
	karst_log_some(&lc->e->faults_log, now, KARST_LOG_WARNING,
		"%s: lcore %u: another thread, for memory that is slow to come: %s; until there is "
		"one, copies may wait",
		lc->e->name, lc->index, strerror(-ret));
	return false;
}

bool
eng_worker_spare(struct eng_workers *workers)
{
	if (try_to_add(workers)) {
		set_alone(workers, false);
		return true;
	}
	if (atomic_load_explicit(&workers->alone, memory_order_relaxed))
		return false;
	set_alone(workers, true);
	/* makes the driver take the lock.  release, as in eng_deferred_hand_in() */
	atomic_store_explicit(&workers->over_any, true, memory_order_release);
	eng_lcore_wake(workers->lc);
	return false;
}

/* --- life --- */

static struct eng_workers *
pool_alloc(struct eng_lcore *lc)
{
	struct eng_workers *workers = calloc(1, sizeof(*workers));

	if (workers == NULL)
		return NULL;
	workers->lc = lc;
	workers->e = lc->e;
	workers->copies = lc->copies;
	pthread_mutex_init(&workers->lock, NULL);
	init_cond(&workers->gone);
	if (sched_getaffinity(0, sizeof(workers->cpus), &workers->cpus) != 0)
		CPU_ZERO(&workers->cpus);
	/* threads of former pools may have been left behind */
	eng_deferred_note(workers);
	return workers;
}

/* When no thread drives any more: tells all workers of the pool to end. */
static void
pool_end(struct eng_lcore *lc, struct eng_workers *workers)
{
	eng_watch_leave(lc, workers);
	pthread_mutex_lock(&workers->lock);
	workers->end = true;
	while (workers->idle != NULL)
		eng_workers_call(workers);
	pthread_mutex_unlock(&workers->lock);
}

/* When threads that have not returned are left behind. */
static struct timespec
leave_time(void)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += LEAVE_S;
	return until;
}

/* After pool_end(): waits until the workers have returned, but not longer than @until. */
static void
pool_free(struct eng_lcore *lc, struct eng_workers *workers, const struct timespec *until)
{
	uint32_t left;

	pthread_mutex_lock(&workers->lock);
	while (workers->nworkers > 0 &&
		pthread_cond_timedwait(&workers->gone, &workers->lock, until) != ETIMEDOUT)
		;
	pthread_mutex_unlock(&workers->lock);
	/* as any call while no thread is attached */
	pthread_mutex_lock(&lc->attach_lock);
	left = eng_deferred_end(workers);
	lc->copies->left_behind |= left > 0;
	pthread_mutex_unlock(&lc->attach_lock);
	if (left == 0)
		workers_free(workers);
	else
		karst_log(KARST_LOG_WARNING,
			"%s: %u threads of lcore %u wait for memory of programs; left behind",
			lc->e->name, left, lc->index);
}

/* --- of lcores that are polled --- */

/* On the lcore, which a program may be polling: the pool is there from now on, and takes the copies
 * that no pool has made. */
static int
take_rest(struct eng_lcore *lc, void *arg)
{
	struct eng_workers *workers = arg;
	struct eng_copy_list rest = {0};
	struct eng_copy *c;

	while ((c = eng_copy_first(&lc->copies->todo)) != NULL) {
		if (eng_copy_phase(c) != ENG_COPY_VOID && eng_deferred_submit(lc, c))
			continue;
		eng_copy_set(c, ENG_COPY_VOID);
		eng_copy_append(&rest, c);
	}
	lc->copies->todo = rest;
	/* release: the polling thread finds the pool complete */
	atomic_store_explicit(&lc->workers, workers, memory_order_release);
	return 0;
}

static int
pool_new(struct eng_lcore *lc)
{
	struct eng_workers *workers = pool_alloc(lc);
	int ret;

	if (workers == NULL)
		return -ENOMEM;
	workers->polled = true;
	pthread_mutex_lock(&workers->lock);
	ret = worker_add(workers);
	pthread_mutex_unlock(&workers->lock);
	if (ret != 0) {
		workers_free(workers);
		return ret;
	}
	return eng_mailbox_call(lc, take_rest, workers);
}

int
eng_workers_start(struct karst_engine *e)
{
	int ret = e->watch == NULL ? eng_watch_start(e) : 0;
	uint32_t i;

	for (i = 0; i < e->nlcores && ret == 0; i++)
		if (atomic_load_explicit(&e->lcore[i].workers, memory_order_relaxed) == NULL)
			ret = pool_new(&e->lcore[i]);
	if (ret != 0)
		karst_log(KARST_LOG_ERR, "%s: threads that copy memory of programs: %s", e->name,
			rte_strerror(-ret));
	return ret;
}

void
eng_workers_end(struct karst_engine *e)
{
	struct eng_workers *workers[KARST_ENGINE_MAX_LCORES];
	struct timespec until;
	uint32_t i;

	/* all pools have one limit: programs may hold threads of each */
	for (i = 0; i < e->nlcores; i++) {
		workers[i] = atomic_load_explicit(&e->lcore[i].workers, memory_order_relaxed);
		if (workers[i] != NULL)
			pool_end(&e->lcore[i], workers[i]);
	}
	until = leave_time();
	for (i = 0; i < e->nlcores; i++)
		if (workers[i] != NULL)
			pool_free(&e->lcore[i], workers[i], &until);
}

void
eng_workers_stop(struct karst_engine *e)
{
	eng_workers_end(e);
	eng_watch_stop(e);
}

/* --- of others --- */

int
eng_workers_run(struct eng_lcore *lc)
{
	struct eng_workers *workers = pool_alloc(lc);
	int ret = workers == NULL ? -ENOMEM : eng_lcore_attach(lc);
	struct timespec until;

	if (ret != 0) {
		free(workers);
		atomic_store_explicit(&lc->launched, false, memory_order_relaxed);
		return ret;
	}
	pthread_mutex_lock(&workers->lock);
	ret = worker_add(workers);
	if (ret == 0)
		ret = worker_add(workers);
	if (ret == 0) {
		workers->must_drive = workers->driven = true;
		atomic_store_explicit(&lc->workers, workers, memory_order_release);
		eng_workers_call(workers);
	}
	while (workers->driven)
		pthread_cond_wait(&workers->gone, &workers->lock);
	pthread_mutex_unlock(&workers->lock);
	if (ret != 0) {
		karst_log(KARST_LOG_ERR, "%s: threads of lcore %u: %s", lc->e->name, lc->index,
			rte_strerror(-ret));
		eng_lcore_detach(lc);
	}
	pool_end(lc, workers);
	until = leave_time();
	pool_free(lc, workers, &until);
	/* relaxed: whoever finds it late looks again */
	if (ret != 0)
		atomic_store_explicit(&lc->launched, false, memory_order_relaxed);
	return ret;
}
