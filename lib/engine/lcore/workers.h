/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The threads of an lcore, and who watches them; workers.c, deferred.c and watch.c say how. */
#ifndef ENGINE_WORKERS_H
#define ENGINE_WORKERS_H

#include <semaphore.h>

#include "copies.h"

struct eng_workers;

/* A thread: it drives the lcore, makes deferred copies as a copier, or waits to be needed. */
struct eng_worker {
	struct eng_workers *workers;
	struct eng_worker *next;
	pthread_t thread;
	pid_t tid;
	pthread_cond_t call;       /* it waits for it while it is idle */
	struct eng_worker *below;  /* idle for longer */
	struct eng_copy *copy;     /* copier, or taken over from: what it is doing; else NULL */
	_Atomic uint64_t since_ns; /* of that, or of its part */
	uint64_t slept;            /* the watch's, as in struct eng_workers */
	uint64_t slept_ns;
	bool written_off; /* the copy's program has failed, and it has not come back */
};

struct eng_workers {
	struct eng_lcore *lc;
	/* The driver's: (copies << 1 | it is in one).  Who changes the word from "in a copy" has the
	 * lcore: the driver as it comes back, or the watch, which gives it to another thread. */
	_Atomic uint64_t drive;
	struct eng_copy *_Atomic at; /* that copy */
	_Atomic bool over_any;       /* over is not empty */

	pthread_mutex_t lock; /* everything below */
	pthread_cond_t gone;  /* something has ended */
	struct eng_worker *first;
	struct eng_worker *idle; /* who has been so for the shortest time */
	struct eng_worker *driver;
	uint32_t nworkers, nidle, nstuck;
	bool polled;     /* a program polls the lcore: all of the pool are copiers */
	bool must_drive; /* nobody does */
	bool driven;     /* karst_engine_start()'s loop is not over */
	bool end;
	struct eng_copy_list deferred; /* for copiers */
	struct eng_copy_list over;     /* done by them, or not to be waited for */
	cpu_set_t cpus;                /* of the lcore */

	/* the watch's */
	uint64_t seen_drive;
	uint64_t seen_ns;  /* when that was new */
	uint64_t seen_ran; /* driver_ran() then, if it was in a copy */
	uint64_t carry_ns; /* that the turn had taken when its driver was replaced */
	uint64_t seen_turns;
	uint64_t turned_ns; /* when that was new, or was looked into last */
	uint64_t slept;     /* has_slept() then; UINT64_MAX: it did not sleep */
	uint64_t slept_ns;  /* when that was new */
};

/* --- workers.c --- */

/* On the lcore's EAL worker: its pool drives it until the engine stops. */
int eng_workers_run(struct eng_lcore *lc);
/* With ctl_lock held, before there is anything to copy: lcores that programs poll have copiers, so
 * that who polls waits for no memory.  Once is enough, until they are dismissed. */
int eng_workers_start(struct karst_engine *e);
/* While nobody polls. */
void eng_workers_stop(struct karst_engine *e);
/* One more worker.  With the pool's lock held. */
int eng_worker_add(struct eng_workers *workers);
/* Lock held: an idle worker, if there is one, looks what there is to do. */
void eng_workers_call(struct eng_workers *workers);
/* The thread that calls is a worker, and drives: does @c, in which it may lose the lcore.
 * @return false: it has. */
bool eng_workers_copy(struct eng_workers *workers, struct eng_copy *c);

/* --- deferred.c --- */

/* Driver: a copy for a copier.  @return false: its program has too many. */
bool eng_deferred_submit(struct eng_lcore *lc, struct eng_copy *c);
/* Driver, not at a safe point: copiers get what was submitted. */
void eng_deferred_send(struct eng_workers *workers);
/* Driver: copiers get what was submitted, and what they have done is over.  It waits for the lock,
 * which threads that wait for a processor may have, only if @wait; else there is a next time. */
void eng_deferred_exchange(struct eng_workers *workers, bool wait);
/* Lock held: nobody will do those that wait, of @s or (NULL) of anybody. */
void eng_deferred_cancel(struct eng_workers *workers, const struct karst_space *s);
/* Is one of its programs slow? */
bool eng_copy_is_slow(const struct eng_copy *c, uint64_t now_ns);
/* Slower than any copy that only moves bytes: page faults, or a switch of the processor. */
#define ENG_COPY_SLOW_NS 50000u
/* Shall the driver find out what it costs? */
bool eng_copy_asks(const struct eng_copy *c, uint64_t now_ns);
/* What this thread has run, and how often it has slept. */
struct eng_cost {
	uint64_t cpu_ns;
	long sleeps;
};
void eng_copy_cost(struct eng_cost *cost);
/* Driver: an inline copy was slow, and has cost @ns, if that is known, else 0. */
void eng_copy_took(struct eng_copy *c, uint64_t now_ns, uint64_t ns);
/* Worker, lock held: a deferred copy that it may do now; NULL: none. */
struct eng_copy *eng_deferred_take(struct eng_workers *workers, struct eng_worker *w);
/* Worker: says once that the program is slow.  Who drives an lcore does not log. */
void eng_deferred_tell(const struct eng_copy *c);
/* Worker, lock held: it has come back from its copy. */
void eng_deferred_over(struct eng_workers *workers, struct eng_worker *w);
/* Its programs stay until eng_copy_unhold(); once is enough. */
void eng_copy_hold(struct eng_copy *c);
void eng_copy_unhold(struct eng_copy *c);

/* After a key has gone: waits until no copy moves bytes by it; a program that is slow waits for
 * itself, and not for longer than its copies may take. */
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

/* The program is slow from now on, for a while. */
void eng_deferred_call(struct karst_space *s, uint64_t now_ns);
/* Lock held: the copy that a copier may do next; it stays in the queue. */
struct eng_copy *eng_deferred_first(const struct eng_workers *workers);
/* Lock held: to the driver, whether or not the thread is back. */
void eng_deferred_hand_in(struct eng_workers *workers, struct eng_copy *c);
/* Of one lcore. */
#define ENG_WORKERS_MAX 16u

/* --- watch.c --- */

/* false: its user's programs hold too many threads. */
bool eng_copy_allowed(struct karst_engine *e, const struct eng_copy *c);
/* Starts and ends the thread that watches all lcores of the engine. */
int eng_watch_start(struct karst_engine *e);
void eng_watch_stop(struct karst_engine *e);
/* The pool is about to go: the watch does not look at it any more. */
void eng_watch_leave(struct eng_lcore *lc, struct eng_workers *workers);
/* Driver, in a copy: the watch may be asleep. */
void eng_watch_wake(struct karst_engine *e);

/* As many threads as all users together may hold. */
#define ENG_BARRED 32u

struct eng_watch {
	struct karst_engine *e;
	pthread_t thread;
	sem_t ready;            /* it has the priority that it may have */
	pthread_mutex_t lock;   /* no driver ever waits for it */
	_Atomic uint32_t rings; /* eng_watch_wake(): a futex */
	_Atomic bool dozing;
	bool stood;               /* the machine did, since the last look: */
	uint64_t looked_ns;       /* when that was */
	_Atomic uint32_t nstuck;  /* threads that are written off */
	_Atomic uint32_t nbarred; /* users who hold too many of them: */
	_Atomic uint32_t barred[ENG_BARRED];
	bool end;
};

#endif /* ENGINE_WORKERS_H */
