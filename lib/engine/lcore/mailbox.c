/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Control calls across threads.
 *
 * State of an lcore belongs to the thread that it is attached to; while it is attached to none, it
 * belongs to the holder of its attach_lock.  So a call about an lcore runs at once on the thread
 * that has the lcore, or under the lock if no thread has it.  Otherwise the call goes into the
 * mailbox, which the owner reads once a turn, and the caller waits.
 *
 * There is no deadlock, because
 *   - what runs on an lcore (an eng_fn) never waits, and takes only locks whose holders do not wait
 *     for an lcore;
 *   - a thread that waits, for a message, for ctl_lock or for quiescence, meanwhile handles the
 *     messages of the lcores that are attached to itself, and reports them quiescent: they are
 *     between two turns, since calls from callbacks, which are inside a turn, are refused;
 *   - a message to an lcore that is being detached is handled by the detaching thread, or by its
 *     sender, who checks again whether a thread is attached.
 */
#include "copies.h"

#include <sched.h>
#include <time.h>

/* Lock of the user for whom this thread makes control calls (share.h).  A user may have hundreds of
 * programs whose calls take long; with this lock, only one of them at a time waits for ctl_lock. */
static _Thread_local pthread_mutex_t *ctl_turn;

/* During the first so many waits no system call is worth it. */
#define PAUSES 64u
/* A thread that polls while it waits sleeps for so long after a turn without work. */
#define NAP_IDLE_NS 50000u

/* The machine may have fewer processors than threads, or other work. */
void
eng_back_off(struct karst_engine *e, unsigned int *times)
{
	const struct timespec nap = {.tv_nsec = 50000};

	if (++*times < PAUSES)
		rte_pause();
	else if (*times < 256)
		karst_yield(&e->waiting);
	else
		nanosleep(&nap, NULL);
}

/* Runs @fn as the lcore's thread, or in place of it. */
static int
mailbox_run(struct eng_lcore *lc, eng_fn fn, void *arg)
{
	int ret;

	lc->core->now_ns = engine_now(lc->e);
	ret = fn(lc, arg);
	eng_flush(lc);
	return ret;
}

unsigned int
eng_mailbox_serve(struct eng_lcore *lc, uint64_t ns)
{
	uint64_t until = ns == UINT64_MAX ? ns : engine_now(lc->e) + ns;
	unsigned int n = 0;
	void *p;

	while (rte_ring_sc_dequeue(lc->mailbox, &p) == 0) {
		struct eng_msg *msg = p;

		msg->ret = mailbox_run(lc, msg->fn, msg->arg);
		n++;
		/* release, pairs with the acquire in eng_mailbox_call(); msg may not be accessed
		 * afterwards */
		atomic_store_explicit(&msg->done, true, memory_order_release);
		if (engine_now(lc->e) >= until)
			break;
	}
	if (n > 0)
		stat_add(&lc->stats.messages, n);
	return n;
}

static bool
is_mine(const struct eng_lcore *lc, uintptr_t me)
{
	/* relaxed: only this thread itself stores its own id */
	return atomic_load_explicit(&lc->owner, memory_order_relaxed) == me;
}

/* Whether an lcore is attached to this thread. */
static bool
have_lcore(const struct karst_engine *e)
{
	uintptr_t me = this_thread();
	uint32_t i;

	for (i = 0; i < e->nlcores; i++)
		if (is_mine(&e->lcore[i], me))
			return true;
	return false;
}

/* Serves the lcores that are attached to this thread, while it waits. */
static void
serve_mine(struct karst_engine *e)
{
	uintptr_t me = this_thread();
	uint32_t i;

	for (i = 0; i < e->nlcores; i++) {
		if (!is_mine(&e->lcore[i], me))
			continue;
		eng_mailbox_serve(&e->lcore[i], UINT64_MAX);
		/* copies that calls have begun: their keys may be removed from now on */
		eng_copies_hold(e->lcore[i].copies);
		rte_rcu_qsbr_quiescent(e->rcu, i);
	}
}

unsigned int
eng_poll_mine(struct karst_engine *e)
{
	uintptr_t me = this_thread();
	unsigned int n = 0;
	uint32_t i;

	for (i = 0; i < e->nlcores; i++)
		if (is_mine(&e->lcore[i], me))
			n += karst_engine_poll(e, i);
	return n;
}

void
eng_nap(struct karst_engine *e, uint32_t ns)
{
	const struct timespec all = {.tv_nsec = (long)ns};
	const struct timespec idle = {.tv_nsec = (long)karst_min_u32(ns, NAP_IDLE_NS)};
	uint64_t until = engine_now(e) + ns;

	if (!have_lcore(e)) {
		nanosleep(&all, NULL);
		return;
	}
	do {
		if (eng_poll_mine(e) == 0)
			nanosleep(&idle, NULL);
	} while (engine_now(e) < until);
}

bool
eng_lcore_visit(struct eng_lcore *lc)
{
	/* relaxed: it changes under attach_lock */
	bool visiting = atomic_load_explicit(&lc->owner, memory_order_relaxed) == 0;

	if (visiting)
		rte_rcu_qsbr_thread_online(lc->e->rcu, lc->index);
	return visiting;
}

void
eng_lcore_leave(struct eng_lcore *lc, bool visiting)
{
	eng_copies_hold(lc->copies);
	if (visiting)
		rte_rcu_qsbr_thread_offline(lc->e->rcu, lc->index);
}

/* Calls @fn if the lcore is attached to no thread.  @return false: it is attached to one. */
static bool
run_unattached(struct eng_lcore *lc, eng_fn fn, void *arg, int *ret)
{
	bool mine;

	pthread_mutex_lock(&lc->attach_lock);
	mine = eng_lcore_visit(lc);
	if (mine) {
		eng_mailbox_serve(lc, UINT64_MAX);
		if (fn != NULL)
			*ret = mailbox_run(lc, fn, arg);
		eng_lcore_leave(lc, true);
	}
	pthread_mutex_unlock(&lc->attach_lock);
	return mine;
}

int
eng_mailbox_call(struct eng_lcore *lc, eng_fn fn, void *arg)
{
	struct eng_msg msg = {.fn = fn, .arg = arg};
	unsigned int times = 0;
	int ret = 0;

	if (is_mine(lc, this_thread()))
		return mailbox_run(lc, fn, arg);
	for (;;) {
		if (run_unattached(lc, fn, arg, &ret))
			return ret;
		if (rte_ring_mp_enqueue(lc->mailbox, &msg) == 0) {
			eng_lcore_wake(lc);
			break;
		}
		serve_mine(lc->e);
		eng_back_off(lc->e, &times);
	}
	/* acquire, pairs with the release in eng_mailbox_serve() */
	while (!atomic_load_explicit(&msg.done, memory_order_acquire)) {
		serve_mine(lc->e);
		eng_back_off(lc->e, &times);
		if (atomic_load_explicit(&lc->owner, memory_order_relaxed) == 0)
			run_unattached(lc, NULL, NULL, NULL);
	}
	return msg.ret;
}

/* The processor that this thread is bound to; -1: not bound to one. */
static int32_t
own_cpu(void)
{
	cpu_set_t set;
	int32_t cpu;

	if (sched_getaffinity(0, sizeof(set), &set) != 0 || CPU_COUNT(&set) != 1)
		return -1;
	for (cpu = 0; !CPU_ISSET(cpu, &set); cpu++)
		;
	return cpu;
}

int
eng_lcore_attach(struct eng_lcore *lc)
{
	uintptr_t me = this_thread(), owner;

	pthread_mutex_lock(&lc->attach_lock);
	owner = atomic_load_explicit(&lc->owner, memory_order_relaxed);
	if (owner == 0) {
		rte_rcu_qsbr_thread_online(lc->e->rcu, lc->index);
		atomic_store_explicit(&lc->cpu, own_cpu(), memory_order_relaxed);
		lc->turn_tsc = lc->look_tsc = rte_rdtsc();
		lc->cpu_ns = UINT64_MAX;
		lc->was_busy = false;
		atomic_store_explicit(&lc->owner, me, memory_order_relaxed);
	}
	pthread_mutex_unlock(&lc->attach_lock);
	return owner == 0 || owner == me ? 0 : -EBUSY;
}

void
eng_lcore_detach(struct eng_lcore *lc)
{
	if (!is_mine(lc, this_thread()))
		return;
	pthread_mutex_lock(&lc->attach_lock);
	eng_mailbox_serve(lc, UINT64_MAX);
	/* those calls may have begun copies */
	eng_copies_hold(lc->copies);
	rte_rcu_qsbr_thread_offline(lc->e->rcu, lc->index);
	atomic_store_explicit(&lc->owner, 0, memory_order_relaxed);
	pthread_mutex_unlock(&lc->attach_lock);
}

static bool
in_callback(const struct karst_engine *e)
{
	uintptr_t me = this_thread();
	uint32_t i;

	for (i = 0; i < e->nlcores; i++)
		if (__atomic_load_n(&e->lcore[i].in_callback, __ATOMIC_RELAXED) == me)
			return true;
	return false;
}

/* A thread that polls an lcore must not sleep here, since others may need that lcore meanwhile.
 * Other threads sleep: there may be one for each program, and many that spin would leave no
 * processor for the lock's holder or for lcores. */
static void
ctl_lock(struct karst_engine *e, pthread_mutex_t *lock)
{
	unsigned int times = 0;

	while (pthread_mutex_trylock(lock) != 0) {
		if (times >= PAUSES && !have_lcore(e)) {
			pthread_mutex_lock(lock);
			return;
		}
		serve_mine(e);
		eng_back_off(e, &times);
	}
}

void
eng_ctl_for(struct eng_share *user)
{
	ctl_turn = user != NULL ? eng_share_turn(user) : NULL;
}

int
eng_ctl_enter(struct karst_engine *e)
{
	if (in_callback(e)) {
		karst_log(KARST_LOG_ERR, "%s: control call from inside of a callback", e->name);
		return -EDEADLK;
	}
	if (ctl_turn != NULL)
		ctl_lock(e, ctl_turn);
	ctl_lock(e, &e->ctl_lock);
	return 0;
}

void
eng_ctl_leave(struct karst_engine *e)
{
	pthread_mutex_unlock(&e->ctl_lock);
	if (ctl_turn != NULL)
		pthread_mutex_unlock(ctl_turn);
}

void
eng_serve_mine(struct karst_engine *e)
{
	if (!in_callback(e))
		serve_mine(e);
}

void
eng_ctl_quiesce(struct karst_engine *e)
{
	uint64_t token = rte_rcu_qsbr_start(e->rcu);
	unsigned int times = 0;

	while (rte_rcu_qsbr_check(e->rcu, token, false) == 0) {
		serve_mine(e);
		eng_back_off(e, &times);
	}
}
