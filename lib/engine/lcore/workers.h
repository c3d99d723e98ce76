/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The threads of an lcore, and the watchdog; see workers.c, deferred.c and watch.c. */
#ifndef ENGINE_WORKERS_H
#define ENGINE_WORKERS_H

#include <semaphore.h>

#include "copies.h"

struct eng_workers;

/* Most workers of an lcore, without those that are written off. */
#define ENG_WORKERS_MAX 32u
/* Of these, one drives and one can take over.  If so many are in copies, the driver makes none: a
 * copier may take one more at the same time. */
#define ENG_COPYING_MAX (ENG_WORKERS_MAX - 2)
/* Threads that programs of one user may hold, including those that are written off or were left
 * behind (deferred.c). */
#define ENG_USER_PART 8u
/* Threads of one lcore that are written off until their user has no more memory copied (watch.c): a
 * program may have queue pairs on all lcores, and hold one of each. */
#define ENG_USER_STUCK 4u
static_assert(ENG_USER_STUCK <= ENG_USER_PART,
	"a user whose threads are all written off is refused copies, which would wait for ever");
static_assert(ENG_USER_PART <= ENG_COPYING_MAX / 2, "a user leaves half of the threads");

/* A thread that drives the lcore, makes deferred copies as a copier, or is idle. */
struct eng_worker {
	struct eng_workers *workers;
	struct eng_worker *next;
	pthread_t thread;
	pid_t tid;
	pthread_cond_t call;       /* it waits here while it is idle */
	struct eng_worker *below;  /* next in the stack of idle workers; it has been idle for
				    * longer */
	struct eng_copy *copy;     /* the copy that it makes, as a copier or after it lost the
				    * lcore; else NULL */
	_Atomic uint64_t since_ns; /* start of that copy, or of its current part */
	uint64_t slept;            /* used by the watchdog, as in struct eng_workers */
	uint64_t slept_ns;
	bool written_off; /* the copy's program has failed, and this thread has not returned from
			   * the copy */
};

struct eng_workers {
	struct eng_lcore
		*lc; /* gone with the engine, after which only threads left behind remain */
	struct eng_copies *copies; /* of the lcore; stay if threads are left behind */
	struct karst_engine *e;
	/* The driver's word: (number of copies << 1 | it is in a copy).  The thread that changes
	 * the word from "in a copy" has the lcore: the driver when it returns, or the watchdog,
	 * which gives the lcore to another thread. */
	_Atomic uint64_t drive;
	struct eng_copy *_Atomic at; /* that copy */
	_Atomic bool over_any;       /* over is not empty */
	/* Who may take no more threads (deferred.c).  Set with the lock held; the driver reads them
	 * without it. */
	_Atomic bool scarce; /* nobody */
	/* No thread is idle and none could be added that would take the lcore over: the driver
	 * makes no copies.  Set in the same way. */
	_Atomic bool alone;
	_Atomic uint32_t nfull; /* users: their uids follow */
	_Atomic uint32_t full[ENG_WORKERS_MAX];

	pthread_mutex_t lock; /* protects everything below */
	pthread_cond_t gone;  /* signalled when a thread has ended */
	struct eng_worker *first;
	struct eng_worker *idle; /* stack of idle workers, the most recent first */
	struct eng_worker *driver;
	uint32_t nworkers, nidle, nstuck;
	bool polled;     /* a program polls the lcore: all workers are copiers */
	bool heeded;     /* the driver knows that it is alone, and is in no copy */
	uint64_t add_ns; /* if adding a worker has failed: not again before that time */
	bool must_drive; /* no thread drives the lcore */
	bool driven;     /* the loop of karst_engine_start() has not ended */
	bool end;
	bool left;                     /* its threads are left behind: the last of them frees it */
	struct eng_copy_list deferred; /* for copiers */
	struct eng_copy_list over;     /* finished by copiers, or given up */
	cpu_set_t cpus;                /* processors of the lcore */

	/* used by the watchdog */
	uint64_t seen_drive;
	uint64_t seen_ns;  /* when seen_drive changed */
	uint64_t seen_ran; /* driver_ran() at that time, if it was in a copy */
	uint64_t carry_ns; /* time that the turn had taken when its driver was replaced */
	uint64_t seen_turns;
	uint64_t turned_ns; /* when seen_turns changed, or was last examined */
	uint64_t slept;     /* has_slept() at that time; UINT64_MAX: it did not sleep */
	uint64_t slept_ns;  /* when slept changed */
};

/* --- workers.c --- */

/* On the lcore's EAL worker: runs the pool that drives the lcore, until the engine stops. */
int eng_workers_run(struct eng_lcore *lc);
/* With ctl_lock held, before there is memory to copy: gives copiers to the lcores that programs
 * poll, so that the polling thread waits for no memory.  Further calls have no effect until
 * eng_workers_end(). */
int eng_workers_start(struct karst_engine *e);
/* While no thread polls, and nobody starts or stops such pools: ends them.  Waits up to some
 * seconds for threads that are in copies, so ctl_lock is not to be held. */
void eng_workers_end(struct karst_engine *e);
/* The same, and ends the watchdog; when the engine is destroyed. */
void eng_workers_stop(struct karst_engine *e);
/* The program that embeds the engine, or the last thread of a pool that was left behind, uses the
 * structure no more. */
void eng_engine_put(struct karst_engine *e);
/* Lock held: adds an idle worker.  @return false: there can be none now; the driver makes no copies
 * until there is one. */
bool eng_worker_spare(struct eng_workers *workers);
/* Lock held: wakes an idle worker, if there is one, to look for work. */
void eng_workers_call(struct eng_workers *workers);
/* Called by the worker that drives: makes @c; the worker may lose the lcore meanwhile.
 * @return false: it has lost it. */
bool eng_workers_copy(struct eng_workers *workers, struct eng_copy *c);

/* --- deferred.c --- */

/* Driver: submits a copy for a copier.  @return false: its program has too many. */
bool eng_deferred_submit(struct eng_lcore *lc, struct eng_copy *c);
/* Driver, not at a safe point: sends submitted copies to the copiers. */
void eng_deferred_send(struct eng_workers *workers);
/* Driver: sends submitted copies to the copiers, and completes the copies that they have finished.
 * The lock may be held by a thread that waits for a processor: the driver does not wait for it, but
 * tries again at the next call. */
void eng_deferred_exchange(struct eng_workers *workers);
/* No thread drives any more, and the pool ends: completes all copies.  Those whose threads have not
 * returned are given up.  @return how many such threads there are; they have the pool then. */
uint32_t eng_deferred_end(struct eng_workers *workers);
/* Lock held: cancels the copies that wait, those of @s or (NULL) all. */
void eng_deferred_cancel(struct eng_workers *workers, const struct karst_space *s);
/* Lock held: cancels those that are not allowed any more (eng_copy_allowed()). */
void eng_deferred_refuse(struct eng_workers *workers);
/* Driver: whether a copier must make the copy: one of its programs is slow, or its user's programs
 * hold their part of the threads, or too few threads are left. */
bool eng_deferred_must(
	const struct eng_workers *workers, const struct eng_copy *c, uint64_t now_ns);
/* Longer than any copy that only moves bytes: there were page faults, or a context switch. */
#define ENG_COPY_SLOW_NS 50000u
/* Whether the driver shall measure the cost of this copy. */
bool eng_copy_asks(const struct eng_copy *c, uint64_t now_ns);
/* CPU time of this thread, and how often it has slept. */
struct eng_cost {
	uint64_t cpu_ns;
	long sleeps;
};
void eng_copy_cost(struct eng_cost *cost);
/* Driver: notes that an inline copy was slow and has cost @ns; 0: not known. */
void eng_copy_took(struct eng_lcore *lc, struct eng_copy *c, uint64_t now_ns, uint64_t ns);
/* Worker, lock held: takes a deferred copy that it may make now into w->copy.
 * @return false: there is none. */
bool eng_deferred_take(struct eng_workers *workers, struct eng_worker *w);
/* Worker: logs once that the program is slow.  A thread that drives an lcore does not log. */
void eng_deferred_tell(const struct eng_copy *c);
/* Worker, lock held: the worker has returned from its copy. */
void eng_deferred_over(struct eng_workers *workers, struct eng_worker *w);
/* Changes the phase: takes references to its programs, or drops them, as the phase requires. */
void eng_copy_set(struct eng_copy *c, enum eng_copy_phase phase);

/* After a key was removed: waits until no copy uses it.  Only callers of a slow program wait long,
 * and not for longer than its copies may take.  Copies of the program that nobody would make
 * meanwhile are refused. */
void eng_copies_settle(struct karst_space *s);

/* --- for watch.c --- */

static inline uint64_t
eng_relaxed(_Atomic uint64_t *p)
{
	return atomic_load_explicit(p, memory_order_relaxed);
}

static inline void
eng_relaxed_set(_Atomic uint64_t *p, uint64_t v)
{
	atomic_store_explicit(p, v, memory_order_relaxed);
}

/* Marks the program of @c as slow from now on, for a while, because of a copy of this lcore. */
void eng_deferred_call(struct eng_lcore *lc, const struct eng_copy *c, uint64_t now_ns);
/* Lock held, after a worker got a copy in another way than by eng_deferred_take(), or was written
 * off, and for a new pool: notes who may take no more threads. */
void eng_deferred_note(struct eng_workers *workers);
/* How many threads of the lcore's former pools, which were left behind, programs of @uid hold.
 * eng_left_user(): whose program holds the one that is in copy[@i]; false: there is none. */
uint32_t eng_left_count(const struct eng_copies *cs, uid_t uid);
bool eng_left_user(const struct eng_copies *cs, uint32_t i, uid_t *uid);
/* Lock held: the copy that a copier may make next; it stays in the queue. */
struct eng_copy *eng_deferred_first(const struct eng_workers *workers);
/* Lock held: passes the copy to the driver, whether or not its thread has returned. */
void eng_deferred_hand_in(struct eng_workers *workers, struct eng_copy *c);
/* --- watch.c --- */

/* @return false: programs of its user hold too many threads. */
bool eng_copy_allowed(struct karst_engine *e, const struct eng_copy *c);
/* With ctl_lock held, for which the thread never waits: start and end the thread that watches all
 * lcores of the engine. */
int eng_watch_start(struct karst_engine *e);
void eng_watch_stop(struct karst_engine *e);
/* The pool is about to be freed: the watchdog does not access it any more. */
void eng_watch_leave(struct eng_lcore *lc, struct eng_workers *workers);
/* Lock held, the pool ends: gives up the copies whose threads have not returned, also of threads
 * that wait for this process.  @return whether some have made their copies and only wait for the
 * lock or a processor; they signal gone. */
bool eng_watch_end(struct eng_workers *workers);
/* Driver, in a copy: wakes the watchdog, which may sleep. */
void eng_watch_wake(struct karst_engine *e);

/* Users that can be barred at a time. */
#define ENG_BARRED 64u

struct eng_watch {
	struct karst_engine *e;
	pthread_t thread;
	sem_t ready;            /* the watchdog has set its priority */
	pthread_mutex_t lock;   /* no driver ever waits for it */
	_Atomic uint32_t rings; /* eng_watch_wake(): a futex */
	_Atomic bool dozing;
	bool stood;               /* the machine stood still since the last look */
	uint64_t looked_ns;       /* time of the last look */
	_Atomic uint32_t nstuck;  /* threads that are written off */
	_Atomic uint32_t nbarred; /* users who hold too many threads: their uids follow */
	_Atomic uint32_t barred[ENG_BARRED];
	bool end;
};

#endif /* ENGINE_WORKERS_H */
