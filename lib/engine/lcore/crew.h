/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The threads of an lcore, and who watches them; crew.c, courier.c and watch.c say how. */
#ifndef ENGINE_CREW_H
#define ENGINE_CREW_H

#include <semaphore.h>

#include "copies.h"

struct eng_crew;

/* A thread: it drives the lcore, does late copies as a courier, or waits to be needed. */
struct eng_worker {
	struct eng_crew *crew;
	struct eng_worker *next;
	pthread_t thread;
	pid_t tid;
	pthread_cond_t call;       /* it waits for it while it is idle */
	struct eng_worker *below;  /* idle for longer */
	struct eng_copy *copy;     /* courier, or taken over from: what it is doing; else NULL */
	_Atomic uint64_t since_ns; /* of that, or of its part */
	uint64_t slept;            /* the watch's, as in struct eng_crew */
	uint64_t slept_ns;
	bool written_off; /* the copy's program has failed, and it has not come back */
};

struct eng_crew {
	struct eng_lcore *lc;
	/* The driver's: (copies << 1 | it is in one).  Who changes the word from "in a copy" has the
	 * lcore: the driver as it comes back, or the watch, which gives it to another thread. */
	_Atomic uint64_t drive;
	struct eng_copy *_Atomic at; /* that copy */
	_Atomic bool over_any;       /* over is not empty */

	pthread_mutex_t lock; /* everything below */
	pthread_cond_t gone;  /* something has ended */
	struct eng_worker *workers;
	struct eng_worker *idle; /* who has been so for the shortest time */
	struct eng_worker *driver;
	uint32_t nworkers, nidle, nstuck;
	bool polled;     /* a program polls the lcore: all of the crew are couriers */
	bool must_drive; /* nobody does */
	bool driven;     /* karst_engine_start()'s loop is not over */
	bool end;
	struct eng_copy_list late; /* for couriers */
	struct eng_copy_list over; /* done by them, or not to be waited for */
	cpu_set_t cpus;            /* of the lcore */

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

/* --- crew.c --- */

/* On the lcore's EAL worker: its crew drives it until the engine stops. */
int eng_crew_run(struct eng_lcore *lc);
/* With ctl_lock held, before there is anything to copy: lcores that programs poll have couriers, so
 * that who polls waits for no memory.  Once is enough, until they are dismissed. */
int eng_crews_muster(struct karst_engine *e);
/* While nobody polls. */
void eng_crews_dismiss(struct karst_engine *e);
/* One more worker.  With the crew's lock held. */
int eng_crew_hire(struct eng_crew *crew);
/* Lock held: an idle worker, if there is one, looks what there is to do. */
void eng_crew_call(struct eng_crew *crew);
/* The thread that calls is a worker, and drives: does @c, in which it may lose the lcore.
 * @return false: it has. */
bool eng_crew_copy(struct eng_crew *crew, struct eng_copy *c);

/* --- courier.c --- */

/* Driver: a copy for a courier.  @return false: its program has too many. */
bool eng_late_submit(struct eng_lcore *lc, struct eng_copy *c);
/* Driver, not at a safe point: couriers get what was submitted. */
void eng_late_send(struct eng_crew *crew);
/* Driver: couriers get what was submitted, and what they have done is over.  It waits for the lock,
 * which threads that wait for a processor may have, only if @wait; else there is a next time. */
void eng_late_exchange(struct eng_crew *crew, bool wait);
/* Lock held: nobody will do those that wait, of @s or (NULL) of anybody. */
void eng_late_cancel(struct eng_crew *crew, const struct karst_space *s);
/* Is one of its programs late? */
bool eng_copy_is_late(const struct eng_copy *c, uint64_t now_ns);
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
/* Worker, lock held: a late copy that it may do now; NULL: none. */
struct eng_copy *eng_late_take(struct eng_crew *crew, struct eng_worker *w);
/* Worker: says once that the program is late.  Who drives an lcore does not log. */
void eng_late_tell(const struct eng_copy *c);
/* Worker, lock held: it has come back from its copy. */
void eng_late_over(struct eng_crew *crew, struct eng_worker *w);
/* Its programs stay until eng_copy_unhold(); once is enough. */
void eng_copy_hold(struct eng_copy *c);
void eng_copy_unhold(struct eng_copy *c);

/* After a key has gone: waits until no copy moves bytes by it; a program that is late waits for
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

/* The program is late from now on, for a while. */
void eng_late_call(struct karst_space *s, uint64_t now_ns);
/* Lock held: the copy that a courier may do next; it stays in the queue. */
struct eng_copy *eng_late_first(const struct eng_crew *crew);
/* Lock held: to the driver, whether or not the thread is back. */
void eng_late_hand_in(struct eng_crew *crew, struct eng_copy *c);
/* Of one lcore. */
#define ENG_CREW_MAX 16u

/* --- watch.c --- */

/* false: its user's programs hold too many threads. */
bool eng_copy_allowed(struct karst_engine *e, const struct eng_copy *c);
/* Starts and ends the thread that watches all lcores of the engine. */
int eng_watch_start(struct karst_engine *e);
void eng_watch_stop(struct karst_engine *e);
/* The crew is about to go: the watch does not look at it any more. */
void eng_watch_leave(struct eng_lcore *lc, struct eng_crew *crew);
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

#endif /* ENGINE_CREW_H */
