/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Slow programs, and the queue of their copies.
 *
 * A program is slow if its memory has made the driver of an lcore sleep: once for a millisecond, in
 * which case the watchdog has given the lcore to another thread (workers.c), or often for less, as
 * the driver itself measures.  It is also slow if its memory keeps the driver busy for long,
 * because pages must be created, or found in a long list.  The duration of a copy is not enough to
 * tell, since the thread may have waited for the processor: the driver asks whether the thread
 * slept and, if not, how long it ran.  Asking costs system calls, so the first slow copy of a
 * program only makes the driver ask at the next ones.
 *
 * After that, for a while that grows each time, no driver accesses that program's memory.  Copiers
 * do, each with one copy at a time, and no two for the same program, so slow programs delay only
 * themselves.  The watchdog handles a copy that takes too long (watch.c).
 *
 * A user whose programs become slow one after another, on one lcore, is treated as a whole: for a
 * second, copiers copy for all of them.
 *
 * The first slow copy of a program holds the thread that was the driver, and the number of an
 * lcore's threads is limited.  So if a user's programs hold their part of the threads, which is
 * smaller if others hold many, the driver makes no copies for that user, and if nearly all threads
 * are in copies, it makes none at all: copiers make them when they are free.  Thus there is always
 * a thread that drives the lcore.
 */
#include "workers.h"

#include <sys/resource.h>
#include <time.h>

#define MS 1000000u
/* How long the driver measures the copies of a program after a slow one. */
#define SLOW_ASK_NS (1000u * MS)
/* A program becomes slow if its slow copies cost a driver more than BLAME_NS within WINDOW_NS,
 * beyond ENG_COPY_SLOW_NS each. */
#define WINDOW_NS (100u * MS)
#define BLAME_NS  (2u * MS)
/* How long it is slow the first time; this doubles each time, up to 2^SLOW_SHIFT. */
#define SLOW_NS    (1000u * MS)
#define SLOW_SHIFT 6u
/* If so many programs of one user became slow on an lcore within USER_WINDOW_NS, all programs of
 * that user count as slow there for as long. */
#define USER_SLOW      8u
#define USER_WINDOW_NS (1000u * MS)
#define DEFERRED_MAX   64u /* copies of one slow program in the queues of lcores */
/* A call that waits for copies looks after so many milliseconds whether anyone will make them. */
#define SETTLE_AGAIN 100u

/* --- which programs are slow --- */

static bool
deferred_is_slow(const struct eng_copy *c, uint64_t now_ns)
{
	uint32_t i;

	for (i = 0; i < c->pub.nparts; i++)
		if (eng_relaxed(&c->where[i].space->slow.until_ns) > now_ns)
			return true;
	return false;
}

/* A user may have a new program at any time, of which nobody knows that it is slow: each costs a
 * driver some time once, and so many do not. */
static void
call_user(struct eng_copies_user *u, uint64_t now_ns)
{
	if (now_ns > eng_relaxed(&u->window_ns) + USER_WINDOW_NS) {
		eng_relaxed_set(&u->window_ns, now_ns);
		atomic_store_explicit(&u->nslow, 0, memory_order_relaxed);
	}
	if (atomic_fetch_add_explicit(&u->nslow, 1, memory_order_relaxed) + 1 >= USER_SLOW)
		eng_relaxed_set(&u->until_ns, now_ns + USER_WINDOW_NS);
}

void
eng_deferred_call(struct eng_lcore *lc, const struct eng_copy *c, uint64_t now_ns)
{
	struct karst_space *s = c->where[0].space;
	uint32_t times;

	if (eng_relaxed(&s->slow.until_ns) > now_ns)
		return;
	times = atomic_fetch_add_explicit(&s->slow.times, 1, memory_order_relaxed);
	eng_relaxed_set(&s->slow.until_ns,
		now_ns + ((uint64_t)SLOW_NS << karst_min_u32(times, SLOW_SHIFT)));
	call_user(&lc->copies->of_user[c->user], now_ns);
}

void
eng_deferred_tell(const struct eng_copy *c)
{
	struct karst_space *s = c->where[0].space;

	/* copiers of a polled lcore also copy for programs that are not slow */
	if (atomic_load_explicit(&s->slow.times, memory_order_relaxed) > 0 &&
		!atomic_exchange_explicit(&s->slow.told, true, memory_order_relaxed))
		karst_log_some(&s->e->faults_log, engine_now(s->e), KARST_LOG_NOTICE,
			"%s: the memory of process %d is slow to come: threads of its own copy it from now on",
			s->e->name, (int)s->pid);
}

bool
eng_copy_asks(const struct eng_copy *c, uint64_t now_ns)
{
	return eng_relaxed(&c->where[0].space->slow.ask_ns) > now_ns;
}

void
eng_copy_cost(struct eng_cost *cost)
{
	struct timespec t;
	struct rusage ru;

	cost->sleeps = getrusage(RUSAGE_THREAD, &ru) == 0 ? ru.ru_nvcsw : 0;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	cost->cpu_ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void
eng_copy_took(struct eng_lcore *lc, struct eng_copy *c, uint64_t now_ns, uint64_t ns)
{
	struct karst_space *s = c->where[0].space;

	eng_relaxed_set(&s->slow.ask_ns, now_ns + SLOW_ASK_NS);
	if (ns < ENG_COPY_SLOW_NS)
		return;
	if (now_ns - eng_relaxed(&s->slow.window_ns) > WINDOW_NS) {
		eng_relaxed_set(&s->slow.window_ns, now_ns);
		eng_relaxed_set(&s->slow.spent_ns, 0);
	}
	/* a program with many copies is not slow for it, if this processor is slow */
	ns -= ENG_COPY_SLOW_NS;
	eng_relaxed_set(&s->slow.spent_ns, eng_relaxed(&s->slow.spent_ns) + ns);
	if (eng_relaxed(&s->slow.spent_ns) > BLAME_NS)
		eng_deferred_call(lc, c, now_ns);
}

/* --- references to the programs of copies --- */

static bool
has_references(enum eng_copy_phase phase)
{
	return phase == ENG_COPY_WAITING || phase == ENG_COPY_DEFERRED || phase == ENG_COPY_RUNNING;
}

/* The copy is about to enter a phase in which it has references. */
static void
copy_hold(struct eng_copy *c)
{
	uint32_t i;

	for (i = 0; i < c->pub.nparts; i++) {
		eng_space_get(c->where[i].space);
		atomic_fetch_add_explicit(&c->where[i].space->slow.copies, 1, memory_order_relaxed);
	}
}

/* The copy has left the last phase in which it had references. */
static void
copy_unhold(struct eng_copy *c)
{
	uint32_t i;

	for (i = 0; i < c->pub.nparts; i++) {
		/* release: with the bytes moved, for eng_copies_settle() */
		atomic_fetch_sub_explicit(&c->where[i].space->slow.copies, 1, memory_order_release);
		eng_space_put(c->where[i].space);
	}
}

void
eng_copy_set(struct eng_copy *c, enum eng_copy_phase phase)
{
	bool had = has_references(eng_copy_phase(c));

	if (!had && has_references(phase))
		copy_hold(c);
	/* relaxed, as eng_copy_phase() */
	atomic_store_explicit(&c->phase, phase, memory_order_relaxed);
	if (had && !has_references(phase))
		copy_unhold(c);
}

/* A call that waits for the copies of @space. */
struct settling {
	struct karst_space *space;
	uintptr_t caller; /* its thread */
	bool late;        /* it has waited for a while */
};

static bool
is_copy_of(const struct eng_copy *c, const struct karst_space *s)
{
	uint32_t i;

	for (i = 0; i < c->pub.nparts; i++)
		if (c->where[i].space == s)
			return true;
	return false;
}

/* Refuses the copies of @s that wait for a safe point. */
static void
refuse_rest(struct eng_lcore *lc, const struct karst_space *s)
{
	struct eng_copy *c;

	for (c = lc->copies->todo.head; c != NULL; c = c->next)
		if (is_copy_of(c, s))
			eng_copy_set(c, ENG_COPY_VOID);
}

static int
settle_on_lcore(struct eng_lcore *lc, void *arg)
{
	struct eng_workers *workers = atomic_load_explicit(&lc->workers, memory_order_relaxed);
	uintptr_t owner = atomic_load_explicit(&lc->owner, memory_order_relaxed);
	const struct settling *call = arg;

	if (workers != NULL && workers->polled)
		eng_deferred_send(workers);
	/* threads could not be created, and nobody else polls the lcore */
	if (workers == NULL && call->late && (owner == 0 || owner == call->caller) &&
		!atomic_load_explicit(&lc->launched, memory_order_relaxed))
		refuse_rest(lc, call->space);
	return 0;
}

static bool
is_settled(const struct karst_space *s)
{
	/* acquire: the bytes moved, from copy_unhold() */
	return atomic_load_explicit(&s->slow.copies, memory_order_acquire) == 0;
}

void
eng_copies_settle(struct karst_space *s)
{
	struct settling call = {.space = s, .caller = this_thread()};
	const struct timespec nap = {.tv_nsec = MS};
	uint32_t i, times = 0;

	while (!is_settled(s) && !karst_space_failed(s)) {
		if (times++ % SETTLE_AGAIN != 0) {
			nanosleep(&nap, NULL);
			continue;
		}
		/* the thread that waits here may be the one that polls */
		for (i = 0; i < s->e->nlcores && !is_settled(s); i++)
			eng_mailbox_call(&s->e->lcore[i], settle_on_lcore, &call);
		call.late = true;
	}
}

/* --- threads that were left behind --- */

/* @left: the thread that is in @c is left behind; else it has returned. */
static void
set_left(struct eng_copies *cs, const struct eng_copy *c, bool left)
{
	uint64_t user = left ? (uint64_t)c->where[0].space->uid + 1 : 0;

	/* relaxed: until it is seen that a thread has returned, its user gets no other one */
	atomic_store_explicit(&cs->left[c - cs->copy], user, memory_order_relaxed);
	atomic_fetch_add_explicit(&cs->nleft, left ? 1 : -1u, memory_order_relaxed);
}

bool
eng_left_user(const struct eng_copies *cs, uint32_t i, uid_t *uid)
{
	uint64_t user = atomic_load_explicit(&cs->left[i], memory_order_relaxed);

	*uid = (uid_t)(user - 1);
	return user != 0;
}

uint32_t
eng_left_count(const struct eng_copies *cs, uid_t uid)
{
	uint32_t i, n = 0;
	uid_t user;

	if (karst_likely(atomic_load_explicit(&cs->nleft, memory_order_relaxed) == 0))
		return 0;
	for (i = 0; i < ENG_COPIES; i++)
		n += eng_left_user(cs, i, &user) && user == uid;
	return n;
}

/* --- the queue of an lcore --- */

/* Lock held: passes the copy to the driver, whether or not its thread has returned. */
void
eng_deferred_hand_in(struct eng_workers *workers, struct eng_copy *c)
{
	if (!c->handed) {
		c->handed = true;
		eng_copy_append(&workers->over, c);
	}
	if (workers->end)
		return;
	/* release, pairs with the driver's load; the lock orders the rest */
	atomic_store_explicit(&workers->over_any, true, memory_order_release);
	eng_lcore_wake(workers->lc);
}

bool
eng_deferred_submit(struct eng_lcore *lc, struct eng_copy *c)
{
	struct karst_space *s = c->where[0].space;
	struct eng_copies *cs = lc->copies;

	/* now: later, its programs may be gone */
	c->slow = deferred_is_slow(c, lc->core->now_ns);
	/* of slow programs only: what others send is lost if it gets no copy.  A user who has no
	 * other copy gets one. */
	if (c->slow && cs->nawaited >= ENG_COPIES_MOST &&
		cs->of_user[c->user].ncounted > c->counted)
		return false;
	/* relaxed: it is a limit, and each lcore may exceed it by one */
	if (c->slow && atomic_load_explicit(&s->slow.queued, memory_order_relaxed) >= DEFERRED_MAX)
		return false;
	atomic_fetch_add_explicit(&s->slow.queued, 1, memory_order_relaxed);
	c->queued = c->awaited = true;
	cs->nawaited++;
	c->handed = false;
	eng_copy_set(c, ENG_COPY_DEFERRED);
	eng_copy_append(&cs->unsent, c);
	return true;
}

static void
unqueue(struct eng_copy *c)
{
	if (c->queued)
		atomic_fetch_sub_explicit(&c->where[0].space->slow.queued, 1, memory_order_relaxed);
	c->queued = false;
}

static void
remove_late(struct eng_workers *workers, struct eng_copy *c)
{
	struct eng_copy *before = NULL, *at;

	for (at = workers->deferred.head; at != c; at = at->next)
		before = at;
	if (before == NULL)
		workers->deferred.head = c->next;
	else
		before->next = c->next;
	if (workers->deferred.tail == c)
		workers->deferred.tail = before;
}

/* Whether a copier of this pool copies for @s. */
static bool
served(const struct eng_workers *workers, const struct karst_space *s)
{
	const struct eng_worker *w;

	for (w = workers->first; w != NULL; w = w->next)
		if (w->copy != NULL && w->copy->where[0].space == s)
			return true;
	return false;
}

/* Whether threads of this pool copy for enough programs of @uid.  A user may have another thread
 * while more are free than he has: so users who collude leave threads to others, too. */
static bool
has_its_part(const struct eng_workers *workers, uid_t uid)
{
	uint32_t mine = eng_left_count(workers->copies, uid), all = 0;
	const struct eng_worker *w;

	for (w = workers->first; w != NULL; w = w->next) {
		if (w->copy == NULL)
			continue;
		mine += w->copy->where[0].space->uid == uid;
		all += !w->written_off;
	}
	return mine >= ENG_USER_PART || mine + all >= ENG_COPYING_MAX;
}

static bool
user_is_full(const struct eng_workers *workers, uid_t uid)
{
	uint32_t i, n = atomic_load_explicit(&workers->nfull, memory_order_relaxed);

	for (i = 0; i < n; i++)
		if (atomic_load_explicit(&workers->full[i], memory_order_relaxed) == uid)
			return true;
	return false;
}

/* Adds @uid to the @n users who may take no more threads, if that is so.  @return how many there
 * are. */
static uint32_t
add_full(const struct eng_workers *workers, uid_t uid, uid_t *full, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (full[i] == uid)
			return n;
	if (n < ENG_WORKERS_MAX && has_its_part(workers, uid))
		full[n++] = uid;
	return n;
}

void
eng_deferred_note(struct eng_workers *workers)
{
	const struct eng_copies *cs = workers->copies;
	bool left = atomic_load_explicit(&cs->nleft, memory_order_relaxed) > 0;
	const struct eng_worker *w;
	uid_t full[ENG_WORKERS_MAX], uid;
	uint32_t i, nfull = 0, n = 0;

	for (w = workers->first; w != NULL; w = w->next) {
		if (w->copy == NULL)
			continue;
		n += !w->written_off;
		nfull = add_full(workers, w->copy->where[0].space->uid, full, nfull);
	}
	for (i = 0; left && i < ENG_COPIES; i++)
		if (eng_left_user(cs, i, &uid))
			nfull = add_full(workers, uid, full, nfull);
	/* relaxed: a driver that has read the old values makes one more copy */
	for (i = 0; i < nfull; i++)
		atomic_store_explicit(&workers->full[i], (uint32_t)full[i], memory_order_relaxed);
	atomic_store_explicit(&workers->nfull, nfull, memory_order_relaxed);
	atomic_store_explicit(&workers->scarce, n >= ENG_COPYING_MAX, memory_order_relaxed);
}

bool
eng_deferred_must(const struct eng_workers *workers, const struct eng_copy *c, uint64_t now_ns)
{
	return deferred_is_slow(c, now_ns) ||
		eng_relaxed(&workers->lc->copies->of_user[c->user].until_ns) > now_ns ||
		atomic_load_explicit(&workers->alone, memory_order_relaxed) ||
		user_is_full(workers, c->where[0].space->uid) ||
		atomic_load_explicit(&workers->scarce, memory_order_relaxed);
}

/* Lock held.  Of the programs that no copier copies for, chooses the one that was served the
 * longest ago. */
struct eng_copy *
eng_deferred_first(const struct eng_workers *workers)
{
	struct eng_copy *c, *best = NULL;

	for (c = workers->deferred.head; c != NULL; c = c->next)
		if ((best == NULL ||
			    eng_relaxed(&c->where[0].space->slow.served_ns) <
				    eng_relaxed(&best->where[0].space->slow.served_ns)) &&
			!served(workers, c->where[0].space) &&
			!has_its_part(workers, c->where[0].space->uid))
			best = c;
	return best;
}

/* Lock held.  Whether a worker may copy: another one must be able to take the lcore over, if a
 * driver may block in a copy. */
static bool
may_take(struct eng_workers *workers)
{
	if (workers->nidle > 0)
		return true;
	if (workers->nworkers - workers->nstuck >= ENG_WORKERS_MAX)
		return false;
	if (workers->polled || workers->heeded)
		return true;
	return eng_worker_spare(workers);
}

bool
eng_deferred_take(struct eng_workers *workers, struct eng_worker *w)
{
	struct eng_copy *best;

	if (workers->end)
		return false;
	best = eng_deferred_first(workers);
	if (best == NULL || !may_take(workers))
		return false;
	remove_late(workers, best);
	unqueue(best);
	eng_relaxed_set(&best->where[0].space->slow.served_ns, engine_now(workers->lc->e));
	eng_copy_set(best, ENG_COPY_RUNNING);
	w->copy = best;
	eng_deferred_note(workers);
	return true;
}

void
eng_deferred_over(struct eng_workers *workers, struct eng_worker *w)
{
	struct eng_copy *c = w->copy;

	w->copy = NULL;
	if (w->written_off) {
		w->written_off = false;
		workers->nstuck--;
		if (c->pub.op > KARST_COPY_READ)
			atomic_fetch_sub_explicit(
				&c->where[0].space->atomics->stuck, 1, memory_order_relaxed);
	}
	eng_deferred_note(workers);
	if (workers->left)
		set_left(workers->copies, c, false);
	eng_copy_set(c, ENG_COPY_OVER);
	if (workers->left)
		eng_copy_return(workers->copies, c);
	else
		eng_deferred_hand_in(workers, c);
}

/* Lock held: takes the finished copies for the driver.  When the lock is free, a copy whose thread
 * has not returned may be handed in again, so it must not be in a list of the driver. */
static uint32_t
take_over_list(struct eng_workers *workers, struct eng_copy **copy, bool *back)
{
	struct eng_copy *c;
	uint32_t n = 0;

	while (n < ENG_COPIES && (c = eng_copy_first(&workers->over)) != NULL) {
		c->handed = false;
		back[n] = eng_copy_phase(c) == ENG_COPY_OVER;
		copy[n++] = c;
	}
	atomic_store_explicit(&workers->over_any, false, memory_order_relaxed);
	return n;
}

/* Whether a copy of the program is already in the queue. */
static bool
is_queued(const struct eng_workers *workers, const struct karst_space *s)
{
	const struct eng_copy *c;

	for (c = workers->deferred.head; c != NULL; c = c->next)
		if (c->where[0].space == s)
			return true;
	return false;
}

/* Lock held.  Calls one worker for each program: a worker that has made a copy looks for the next
 * one.  Further workers would find nothing but would stay idle for it.  @return whether there was
 * anything. */
static bool
send_late(struct eng_workers *workers)
{
	struct eng_copy *c;
	bool sent = false;

	while ((c = eng_copy_first(&workers->lc->copies->unsent)) != NULL) {
		const struct karst_space *s = c->where[0].space;

		if (!served(workers, s) && !is_queued(workers, s))
			eng_workers_call(workers);
		eng_copy_append(&workers->deferred, c);
		sent = true;
	}
	return sent;
}

static void
wake_watch(struct karst_engine *e)
{
	if (atomic_load_explicit(&e->watch->dozing, memory_order_relaxed))
		eng_watch_wake(e);
}

void
eng_deferred_send(struct eng_workers *workers)
{
	bool sent;

	pthread_mutex_lock(&workers->lock);
	sent = send_late(workers);
	pthread_mutex_unlock(&workers->lock);
	if (sent)
		wake_watch(workers->lc->e);
}

static void
finish_all(struct eng_lcore *lc, struct eng_copy **copy, const bool *back, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		eng_copy_finish(lc, copy[i], back[i]);
}

void
eng_deferred_exchange(struct eng_workers *workers)
{
	const struct eng_copy_list *unsent = &workers->lc->copies->unsent;
	struct eng_copy *copy[ENG_COPIES];
	bool back[ENG_COPIES], sent;
	uint32_t n;

	if (unsent->head == NULL && !atomic_load_explicit(&workers->over_any, memory_order_acquire))
		return;
	if (pthread_mutex_trylock(&workers->lock) != 0)
		return;
	workers->heeded = atomic_load_explicit(&workers->alone, memory_order_relaxed);
	sent = send_late(workers);
	n = take_over_list(workers, copy, back);
	pthread_mutex_unlock(&workers->lock);
	if (sent)
		wake_watch(workers->lc->e);
	finish_all(workers->lc, copy, back, n);
}

static void
deferred_drop(struct eng_workers *workers, struct eng_copy *c)
{
	remove_late(workers, c);
	unqueue(c);
	c->result = 0;
	eng_copy_set(c, ENG_COPY_OVER);
	eng_deferred_hand_in(workers, c);
}

/* Lock held: cancels copies that no thread has begun. */
void
eng_deferred_cancel(struct eng_workers *workers, const struct karst_space *s)
{
	struct eng_copy *c, *next;

	for (c = workers->deferred.head; c != NULL; c = next) {
		next = c->next;
		if (s == NULL || c->where[0].space == s)
			deferred_drop(workers, c);
	}
}

uint32_t
eng_deferred_end(struct eng_workers *workers)
{
	struct eng_lcore *lc = workers->lc;
	struct eng_copy *copy[ENG_COPIES];
	bool back[ENG_COPIES], visiting;
	const struct eng_worker *w;
	uint32_t n, left;

	pthread_mutex_lock(&workers->lock);
	send_late(workers);
	eng_deferred_cancel(workers, NULL);
	/* not for long: no program can delay these threads */
	while (eng_watch_end(workers))
		pthread_cond_wait(&workers->gone, &workers->lock);
	for (w = workers->first; w != NULL; w = w->next)
		if (w->copy != NULL)
			set_left(workers->copies, w->copy, true);
	n = take_over_list(workers, copy, back);
	left = workers->nworkers;
	workers->left = left > 0;
	/* relaxed: the caller has the structure */
	if (workers->left)
		atomic_fetch_add_explicit(&workers->e->holders, 1, memory_order_relaxed);
	pthread_mutex_unlock(&workers->lock);
	/* from here on the pool belongs to its threads, if there are any */
	visiting = eng_lcore_visit(lc);
	finish_all(lc, copy, back, n);
	/* the packets behind those copies may have begun others */
	eng_lcore_leave(lc, visiting);
	return left;
}

void
eng_deferred_refuse(struct eng_workers *workers)
{
	struct eng_copy *c, *next;

	for (c = workers->deferred.head; c != NULL; c = next) {
		next = c->next;
		if (!eng_copy_allowed(workers->lc->e, c))
			deferred_drop(workers, c);
	}
}
