/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The crew of an lcore: the threads of which one at a time drives it.
 *
 * A copy to or from a program's memory is a system call that the program can make as slow as it
 * likes: its page may have to come from a file system that it serves itself, and no signal ends
 * that wait but one that ends the process.  So no thread that must go on makes such a call without
 * another one that can go on in its place:
 *
 *	driver    runs the lcore's turns, and copies at their safe points (copies.c)
 *	couriers  do the copies of programs that are known to be late (courier.c)
 *	idle      one at least, whom the watch makes the driver if the driver does not come back
 *
 * The driver says in crew->drive that it is in a copy.  The watch, which sees it asleep in the same
 * one for a millisecond, or busy in it for as long, takes the lcore from it by changing that word,
 * and calls an idle worker.
 * Everything that the lcore knows stands in its structure, and where in its turn it is (lc->step),
 * so the new driver goes on where the old one left.  That one finds the word changed when it comes
 * back, hands its copy in like a courier, and is idle.
 *
 * Workers are alike: the same processors, and, as they drive, the same number for DPDK, whose
 * per-lcore caches of buffers thus have one user at a time.  EAL's own worker only waits for the
 * crew, so stopping never waits for a program: who has not come back by then is left behind, with
 * the memory that it may still touch.
 *
 * An lcore that a program polls cannot be taken from that thread.  So none of its copies are made
 * there: from when there is memory to be copied, such lcores have crews without a driver, of
 * couriers alone.  A copy costs two switches of threads then.
 */
#include "crew.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <rte_lcore.h>

#define STACK_BYTES (256u << 10)
/* A second idle worker waits so long for work. */
#define IDLE_S 1
/* Who has not come back so long after the end is left behind. */
#define LEAVE_S 2

/* --- driving --- */

bool
eng_crew_copy(struct eng_crew *crew, struct eng_copy *c)
{
	uint64_t word = atomic_load_explicit(&crew->drive, memory_order_relaxed) | 1;
	struct karst_engine *e = crew->lc->e;

	/* relaxed: the word orders it */
	atomic_store_explicit(&crew->at, c, memory_order_relaxed);
	/* Dekker with the watch, which says that it dozes and looks at the word once more */
	atomic_exchange_explicit(&crew->drive, word, memory_order_seq_cst);
	if (karst_unlikely(atomic_load_explicit(&e->watch->dozing, memory_order_seq_cst)))
		eng_watch_wake(e);
	c->result = eng_copy_execute(c, engine_now(e), NULL);
	/* release: what this thread did to the lcore, for who takes it; acquire: not needed */
	return atomic_compare_exchange_strong_explicit(
		&crew->drive, &word, word + 1, memory_order_acq_rel, memory_order_acquire);
}

/* The loop of an lcore.  @return false: another one has it now, and this thread may not touch
 * it. */
static bool
drive(struct eng_crew *crew, uint64_t carry_ns)
{
	struct eng_lcore *lc = crew->lc;
	struct eng_cost cost;
	int slack;

	eng_copy_cost(&cost);
	lc->cpu_ns = cost.cpu_ns - carry_ns;

	RTE_PER_LCORE(_lcore_id) = lc->eal_lcore;
	/* nobody waits for it: an lcore that was taken over is attached all the time */
	atomic_store_explicit(&lc->owner, this_thread(), memory_order_relaxed);
	slack = eng_sleep_begin(lc);
	if (!eng_lcore_loop(lc)) {
		RTE_PER_LCORE(_lcore_id) = LCORE_ID_ANY;
		eng_sleep_end(lc, slack);
		return false;
	}
	eng_sleep_end(lc, slack);
	eng_lcore_detach(lc);
	RTE_PER_LCORE(_lcore_id) = LCORE_ID_ANY;
	return true;
}

/* Lock held, but not while it drives. */
static void
be_driver(struct eng_crew *crew, struct eng_worker *w)
{
	uint64_t carry_ns = crew->carry_ns;
	bool ended;

	crew->must_drive = false;
	crew->carry_ns = 0;
	crew->driver = w;
	pthread_mutex_unlock(&crew->lock);
	ended = drive(crew, carry_ns);
	pthread_mutex_lock(&crew->lock);
	if (ended) {
		crew->driver = NULL;
		crew->driven = false;
		pthread_cond_broadcast(&crew->gone);
	} else {
		eng_late_over(crew, w);
	}
}

/* --- workers --- */

/* Lock held.  Is @w idle still?  If so, and @take, it is so no longer. */
static bool
is_idle(struct eng_crew *crew, struct eng_worker *w, bool take)
{
	struct eng_worker **pp;

	for (pp = &crew->idle; *pp != NULL && *pp != w; pp = &(*pp)->below)
		;
	if (*pp == NULL || !take)
		return *pp != NULL;
	*pp = w->below;
	crew->nidle--;
	return true;
}

void
eng_crew_call(struct eng_crew *crew)
{
	struct eng_worker *w = crew->idle;

	if (w == NULL)
		return;
	is_idle(crew, w, true);
	pthread_cond_signal(&w->call);
}

/* Lock held.  Who was idle last is called first, so that those whom nobody needs notice it.
 * @return false: there are enough without it. */
static bool
wait_for_call(struct eng_crew *crew, struct eng_worker *w)
{
	struct timespec until;

	w->below = crew->idle;
	crew->idle = w;
	crew->nidle++;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += IDLE_S;
	while (is_idle(crew, w, false)) {
		if (pthread_cond_timedwait(&w->call, &crew->lock, &until) != ETIMEDOUT)
			continue;
		if (crew->nidle > 1 && is_idle(crew, w, true))
			return false;
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += IDLE_S;
	}
	return true;
}

static void
leave(struct eng_crew *crew, struct eng_worker *w)
{
	struct eng_worker **pp;

	for (pp = &crew->workers; *pp != w; pp = &(*pp)->next)
		;
	*pp = w->next;
	crew->nworkers--;
	pthread_cond_destroy(&w->call);
	free(w);
	pthread_cond_broadcast(&crew->gone);
}

static void *
work(void *arg)
{
	struct eng_worker *w = arg;
	struct eng_crew *crew = w->crew;
	uint64_t now;

	pthread_mutex_lock(&crew->lock);
	w->tid = (pid_t)syscall(SYS_gettid);
	do {
		if (crew->must_drive) {
			be_driver(crew, w);
			continue;
		}
		w->copy = eng_late_take(crew, w);
		if (w->copy == NULL) {
			if (!crew->end && !wait_for_call(crew, w))
				break;
			continue;
		}
		now = engine_now(crew->lc->e);
		atomic_store_explicit(&w->since_ns, now, memory_order_relaxed);
		pthread_mutex_unlock(&crew->lock);
		eng_late_tell(w->copy);
		w->copy->result = eng_copy_execute(w->copy, now, &w->since_ns);
		pthread_mutex_lock(&crew->lock);
		eng_late_over(crew, w);
	} while (!crew->end || crew->must_drive);
	leave(crew, w);
	pthread_mutex_unlock(&crew->lock);
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

int
eng_crew_hire(struct eng_crew *crew)
{
	struct eng_worker *w = calloc(1, sizeof(*w));
	pthread_attr_t attr;
	char name[16];
	int rc;

	if (w == NULL)
		return -ENOMEM;
	w->crew = crew;
	init_cond(&w->call);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setaffinity_np(&attr, sizeof(crew->cpus), &crew->cpus);
	rc = pthread_create(&w->thread, &attr, work, w);
	pthread_attr_destroy(&attr);
	if (rc != 0) {
		pthread_cond_destroy(&w->call);
		free(w);
		return -rc;
	}
	snprintf(name, sizeof(name), "karst-lcore-%u", crew->lc->index);
	pthread_setname_np(w->thread, name);
	w->next = crew->workers;
	crew->workers = w;
	crew->nworkers++;
	return 0;
}

/* --- life --- */

static struct eng_crew *
assemble(struct eng_lcore *lc)
{
	struct eng_crew *crew = calloc(1, sizeof(*crew));

	if (crew == NULL)
		return NULL;
	crew->lc = lc;
	pthread_mutex_init(&crew->lock, NULL);
	init_cond(&crew->gone);
	if (sched_getaffinity(0, sizeof(crew->cpus), &crew->cpus) != 0)
		CPU_ZERO(&crew->cpus);
	return crew;
}

/* Everybody goes home.  @return false: some do not come. */
static bool
dismiss(struct eng_crew *crew)
{
	struct timespec until;
	bool all;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += LEAVE_S;
	pthread_mutex_lock(&crew->lock);
	crew->end = true;
	while (crew->idle != NULL)
		eng_crew_call(crew);
	while (crew->nworkers > 0 &&
		pthread_cond_timedwait(&crew->gone, &crew->lock, &until) != ETIMEDOUT)
		;
	all = crew->nworkers == 0;
	if (!all)
		karst_log(KARST_LOG_WARNING,
			"%s: %u threads of lcore %u wait for memory of programs; left behind",
			crew->lc->e->name, crew->nworkers, crew->lc->index);
	pthread_mutex_unlock(&crew->lock);
	return all;
}

/* What waits for copies that nobody makes any more hears so. */
static void
settle(struct eng_crew *crew)
{
	/* as whoever makes a call while nobody is attached */
	pthread_mutex_lock(&crew->lc->attach_lock);
	eng_late_exchange(crew, true);
	pthread_mutex_lock(&crew->lock);
	eng_late_cancel(crew, NULL);
	pthread_mutex_unlock(&crew->lock);
	eng_late_exchange(crew, true);
	pthread_mutex_unlock(&crew->lc->attach_lock);
}

/* Nobody drives any more. */
static void
disperse(struct eng_lcore *lc, struct eng_crew *crew)
{
	bool all;

	eng_watch_leave(lc, crew);
	all = dismiss(crew);
	lc->copies->left_behind |= !all;
	settle(crew);
	if (!all)
		return;
	pthread_cond_destroy(&crew->gone);
	pthread_mutex_destroy(&crew->lock);
	free(crew);
}

/* --- of lcores that are polled --- */

/* What the thread that drove the lcore has left, if one did. */
static void
take_rest(struct eng_lcore *lc)
{
	struct eng_copy_list rest = {0};
	struct eng_copy *c;

	while ((c = eng_copy_first(&lc->copies->todo)) != NULL) {
		if (!c->dropped && !c->refused && eng_late_submit(lc, c))
			continue;
		c->refused = true;
		eng_copy_append(&rest, c);
	}
	lc->copies->todo = rest;
}

static int
muster(struct eng_lcore *lc)
{
	struct eng_crew *crew = assemble(lc);
	int ret;

	if (crew == NULL)
		return -ENOMEM;
	crew->polled = true;
	pthread_mutex_lock(&crew->lock);
	ret = eng_crew_hire(crew);
	pthread_mutex_unlock(&crew->lock);
	if (ret != 0) {
		pthread_cond_destroy(&crew->gone);
		pthread_mutex_destroy(&crew->lock);
		free(crew);
		return ret;
	}
	take_rest(lc);
	/* release: who polls finds it whole */
	atomic_store_explicit(&lc->crew, crew, memory_order_release);
	return 0;
}

int
eng_crews_muster(struct karst_engine *e)
{
	int ret = e->watch == NULL ? eng_watch_start(e) : 0;
	uint32_t i;

	for (i = 0; i < e->nlcores && ret == 0; i++)
		if (atomic_load_explicit(&e->lcore[i].crew, memory_order_relaxed) == NULL)
			ret = muster(&e->lcore[i]);
	if (ret != 0)
		karst_log(KARST_LOG_ERR, "%s: threads that copy memory of programs: %s", e->name,
			rte_strerror(-ret));
	return ret;
}

void
eng_crews_dismiss(struct karst_engine *e)
{
	struct eng_crew *crew;
	uint32_t i;

	for (i = 0; i < e->nlcores; i++) {
		crew = atomic_load_explicit(&e->lcore[i].crew, memory_order_relaxed);
		if (crew != NULL)
			disperse(&e->lcore[i], crew);
	}
	eng_watch_stop(e);
}

/* --- of others --- */

int
eng_crew_run(struct eng_lcore *lc)
{
	struct eng_crew *crew = assemble(lc);
	int ret = crew == NULL ? -ENOMEM : eng_lcore_attach(lc);

	if (ret != 0) {
		free(crew);
		return ret;
	}
	pthread_mutex_lock(&crew->lock);
	ret = eng_crew_hire(crew);
	if (ret == 0)
		ret = eng_crew_hire(crew);
	if (ret == 0) {
		crew->must_drive = crew->driven = true;
		atomic_store_explicit(&lc->crew, crew, memory_order_release);
		eng_crew_call(crew);
	}
	while (crew->driven)
		pthread_cond_wait(&crew->gone, &crew->lock);
	pthread_mutex_unlock(&crew->lock);
	if (ret != 0) {
		karst_log(KARST_LOG_ERR, "%s: threads of lcore %u: %s", lc->e->name, lc->index,
			rte_strerror(-ret));
		eng_lcore_detach(lc);
	}
	disperse(lc, crew);
	return ret;
}
