/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The watchdog: one thread of the engine, which ensures that no program's memory blocks an lcore.
 *
 * While copies are made, it checks every millisecond.  A driver that sleeps in one copy, or is busy
 * in it, for that long loses its lcore to another thread (workers.c).  If a part of a copy, some
 * pages, takes more than COPY_DEADLINE_NS, the copy is given up: its program has failed, its queue
 * pairs go to the Error state, and the thread that is in the copy is written off until it returns.
 * Time in which the thread waits for this process, or in which the machine stands still, does not
 * count.  The number of such threads is bounded: if a user's programs hold ENG_USER_STUCK threads
 * of one lcore, also from before the engine was stopped, that user has no more memory copied.  If
 * all users together hold STUCK_MANY threads for each lcore, that applies to everyone who holds
 * one, and at STUCK_ALL to every user but root.
 *
 * Otherwise the watchdog sleeps until the first copy, and only checks the turns of all lcores from
 * time to time: if an lcore sleeps and does not end its turn, the watchdog logs it, and the program
 * whose queue pair the lcore is serving fails.
 */
#include "workers.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000u
/* Interval of the watchdog's checks, after which a driver that has not returned is examined. */
#define WATCH_LOOK_NS MS
/* CPU time after which a driver that is busy in a copy is replaced.  For example, the last thread
 * that copies from a process that has ended frees all memory of that process within its system
 * call. */
#define BUSY_COPY_NS (WATCH_LOOK_NS * 3 / 4)
/* It keeps this interval for so long after the last copy. */
#define WATCH_BUSY_NS (100u * MS)
/* Interval of its checks of turns. */
#define TURN_NS (100u * MS)
/* Longest time that a copy may take.  Pages of well-behaved programs may also take a second: from a
 * busy disk, or in a virtual machine whose host has swapped them out. */
#define COPY_DEADLINE_MS 5000
#define COPY_DEADLINE_NS ((uint64_t)COPY_DEADLINE_MS * MS)
/* A program stays slow for so long after a slow copy was seen. */
#define STAY_NS (1000u * MS)
/* An lcore may sleep in a turn for so long, while the machine runs, before a program fails for
 * it. */
#define TURN_DEADLINE_NS (1000u * MS)
/* If the watchdog's interval was longer than this, the machine stood still. */
#define STANDSTILL_NS (3 * TURN_NS)
/* A copier that takes longer does not count as free soon. */
#define SOON_NS (5u * MS)
/* Threads for each lcore that are written off: of all users, until one thread is too many for a
 * user, and until nobody but root has memory copied. */
#define STUCK_MANY 32u
#define STUCK_ALL  128u
static_assert(STUCK_MANY >= 2 * (ENG_USER_PART + 1), "two users do not bar those who hold fewer");
static_assert(STUCK_ALL >= STUCK_MANY + 2 * ENG_WORKERS_MAX,
	"nor do those whose threads are written off at once bar others");

static void
store32(_Atomic uint32_t *p, uint32_t v)
{
	atomic_store_explicit(p, v, memory_order_relaxed);
}

static void
count(_Atomic uint64_t *counter)
{
	atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static bool
read_task(pid_t tid, const char *file, char *text, size_t room)
{
	char path[48];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/%s", (int)tid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, room - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/* Whether the thread sleeps.  Otherwise it runs, or waits for a processor, and returns by
 * itself. */
static bool
is_asleep(pid_t tid)
{
	char text[128], *end;

	if (!read_task(tid, "stat", text, sizeof(text)))
		return true;
	end = strrchr(text, ')');
	return end == NULL || end[1] == '\0' || end[2] != 'R';
}

/* The same, and the number of times that it has slept: a thread that sleeps and has the same number
 * as before has slept all the time. */
static bool
has_slept(pid_t tid, uint64_t *times)
{
	static const char name[] = "\nvoluntary_ctxt_switches:";
	const char *state, *at;
	char text[4096];

	if (!read_task(tid, "status", text, sizeof(text)))
		return false;
	state = strstr(text, "\nState:\t");
	at = strstr(text, name);
	if (state == NULL || at == NULL)
		return false;
	*times = strtoull(at + sizeof(name) - 1, NULL, 10);
	return state[8] != 'R';
}

/* CPU time of the driver.  Lock held. */
static uint64_t
driver_ran(const struct eng_workers *workers)
{
	struct timespec t;
	clockid_t clock;

	if (workers->driver == NULL ||
		pthread_getcpuclockid(workers->driver->thread, &clock) != 0 ||
		clock_gettime(clock, &t) != 0)
		return 0;
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Lock held.  The driver has been in one copy since the last check: replaces it if it is
 * blocked. */
static void
take_over(struct eng_workers *workers, uint64_t word, uint64_t now_ns)
{
	struct eng_worker *w = workers->driver;
	struct eng_copy *c = atomic_load_explicit(&workers->at, memory_order_relaxed);
	uint64_t ran = driver_ran(workers) - workers->seen_ran;

	if (w == NULL || (ran < BUSY_COPY_NS && !is_asleep(w->tid)))
		return;
	/* acquire: all that the driver did to the lcore; the lock passes it to the next driver */
	if (!atomic_compare_exchange_strong_explicit(
		    &workers->drive, &word, word + 1, memory_order_acq_rel, memory_order_relaxed))
		return;
	/* the lcore has not ended its turn, so the copy's programs still exist */
	eng_copy_set(c, ENG_COPY_RUNNING);
	c->handed = false;
	eng_deferred_call(workers->lc, c, now_ns);
	w->copy = c;
	eng_deferred_note(workers);
	eng_relaxed_set(&w->since_ns, now_ns);
	workers->driver = NULL;
	workers->must_drive = true;
	workers->carry_ns = ran;
	count(&workers->lc->watched.taken_over);
	eng_workers_call(workers);
}

/* Lock held: the program of @c has exceeded its time. */
static void
give_up(struct eng_workers *workers, struct eng_copy *c, const char *when)
{
	struct karst_space *s = c->where[0].space;
	struct karst_engine *e = workers->e;

	if (!karst_space_failed(s)) {
		karst_log_some(&e->faults_log, engine_now(e), KARST_LOG_WARNING,
			"%s: process %d of uid %u: its memory did not come %s: it has failed",
			e->name, (int)s->pid, (unsigned int)s->uid, when);
		count(&workers->lc->watched.overdue);
		eng_space_fail(s);
	}
	eng_deferred_cancel(workers, s);
}

/* Lock held: writes the worker off until it returns. */
static void
write_off(struct eng_workers *workers, struct eng_worker *w)
{
	w->written_off = true;
	workers->nstuck++;
	eng_deferred_note(workers);
	if (w->copy->pub.op > KARST_COPY_READ)
		atomic_fetch_add_explicit(
			&w->copy->where[0].space->atomics->stuck, 1, memory_order_relaxed);
}

/* Lock held.  Whether the thread waits for another thread of this process, or for this process's
 * memory.  If that other thread is written off, this one waits for the program. */
static bool
waits_inside(const struct eng_copy *c)
{
	/* relaxed: there is another check later */
	return atomic_load_explicit(&c->inside, memory_order_relaxed) &&
		atomic_load_explicit(&c->where[0].space->atomics->stuck, memory_order_relaxed) == 0;
}

/* Lock held.  Whether its copy has waited for the program for too long.  A thread that gets no
 * processor does not wait for the program; a thread that sleeps, and has slept for a while,
 * does. */
static bool
is_overdue(const struct eng_watch *watch, struct eng_worker *w, uint64_t now_ns)
{
	uint64_t times;

	if (now_ns - eng_relaxed(&w->since_ns) <= COPY_DEADLINE_NS)
		return false;
	if (watch->stood || waits_inside(w->copy)) {
		/* the whole time counts anew */
		eng_relaxed_set(&w->since_ns, now_ns);
		return false;
	}
	if (!has_slept(w->tid, &times))
		times = UINT64_MAX;
	if (times == w->slept && times != UINT64_MAX)
		return now_ns - w->slept_ns >= TURN_NS;
	w->slept = times;
	w->slept_ns = now_ns;
	return false;
}

/* Keeps the program slow, so that it holds only one thread and not another one each time it stops
 * being slow. */
static void
stay_slow(struct karst_space *s, uint64_t now_ns)
{
	if (eng_relaxed(&s->slow.until_ns) < now_ns + STAY_NS)
		eng_relaxed_set(&s->slow.until_ns, now_ns + STAY_NS);
}

/* Lock held. */
static void
look_at_deferred(struct eng_watch *watch, struct eng_workers *workers, uint64_t now_ns)
{
	bool alone = atomic_load_explicit(&workers->alone, memory_order_relaxed);
	struct eng_worker *w;
	uint32_t slow = 0;
	uint64_t since;

	eng_deferred_refuse(workers);
	for (w = workers->first; w != NULL; w = w->next) {
		if (w->copy == NULL)
			continue;
		since = eng_relaxed(&w->since_ns);
		if (since >= now_ns)
			continue;
		if (now_ns - since > SOON_NS) {
			slow++;
			stay_slow(w->copy->where[0].space, now_ns);
		}
		if (w->written_off || !is_overdue(watch, w, now_ns))
			continue;
		give_up(workers, w->copy, "within " RTE_STR(COPY_DEADLINE_MS) " ms");
		write_off(workers, w);
		/* nothing needs to wait for the copy any more; the thread still has it */
		eng_deferred_hand_in(workers, w->copy);
	}
	/* one worker that can drive, and one for programs that wait behind copiers that take
	 * long */
	if (!workers->end && workers->nworkers - workers->nstuck < ENG_WORKERS_MAX &&
		(alone || (workers->nidle == 0 && (slow > 0 || workers->must_drive))))
		eng_worker_spare(workers);
	if (workers->nidle > 0 && (workers->must_drive || eng_deferred_first(workers) != NULL))
		eng_workers_call(workers);
}

bool
eng_watch_end(struct eng_workers *workers)
{
	struct eng_worker *w;
	bool returning = false;

	for (w = workers->first; w != NULL; w = w->next) {
		if (w->copy == NULL || w->written_off)
			continue;
		if (atomic_load_explicit(&w->copy->made, memory_order_relaxed)) {
			returning = true;
			continue;
		}
		/* also if it waits for this process: that may be a thread, of any lcore, that is
		 * written off next; and no watchdog will look at this copy again */
		give_up(workers, w->copy, "before the engine stopped");
		write_off(workers, w);
		eng_deferred_hand_in(workers, w->copy);
	}
	return returning;
}

/* Programs that may have made an lcore sleep. */
struct suspects {
	struct karst_space *space; /* the first */
	uint32_t n;
};

static void
suspect(struct karst_space *s, void *arg)
{
	struct suspects *who = arg;

	if (who->n == 0)
		who->space = s;
	who->n += who->n == 0 || s != who->space;
}

/* @at: a queue pair; ENG_AT_NONE: its doorbells. */
static void
accuse(struct eng_watch *watch, struct eng_lcore *lc, uint32_t at, struct karst_space *s)
{
	char where[32] = "its doorbells";

	if (at != ENG_AT_NONE)
		snprintf(where, sizeof(where), "queue pair %u", at);
	karst_log(KARST_LOG_WARNING,
		"%s: lcore %u has slept for %u ms at %s of process %d of uid %u: it has failed",
		watch->e->name, lc->index, TURN_DEADLINE_NS / MS, where, (int)s->pid,
		(unsigned int)s->uid);
	/* also of a program that has failed before: its doorbells are still polled */
	if (at == ENG_AT_NONE)
		eng_space_silence(s);
	if (karst_space_failed(s))
		return;
	count(&lc->watched.ejected);
	eng_share_eject(s->share);
	eng_space_fail(s);
}

static void
accuse_alone(struct karst_space *s, void *arg)
{
	struct eng_lcore *lc = arg;

	accuse(lc->e->watch, lc, 0, s);
}

/* Frames of several queue pairs are being sealed.  If all their unmapped bytes belong to one
 * program, that program is responsible. */
static void
accuse_sealed(struct eng_lcore *lc)
{
	struct suspects who = {0};
	const void *p = NULL;
	uint32_t i, k;

	for (i = 0; i < karst_min_u32(lc->nseals, ENG_MAX_BURST); i++)
		for (k = 0; k < karst_min_u32(lc->seals[i].nsegs, KARST_WQ_MAX_SGE); k++)
			if (eng_window_tell(lc->seals[i].segs[k].src, suspect, &who) && who.n == 1)
				p = lc->seals[i].segs[k].src;
	karst_log(KARST_LOG_WARNING,
		"%s: lcore %u has slept for %u ms as it read the memory of %u programs",
		lc->e->name, lc->index, TURN_DEADLINE_NS / MS, who.n);
	/* found again, as it may have gone */
	if (who.n == 1)
		eng_window_tell(p, accuse_alone, lc);
}

/* The lcore sleeps, so what it is serving stays; if it wakes up now, the names are still valid. */
static void
accuse_somebody(struct eng_watch *watch, struct eng_lcore *lc)
{
	uint32_t at = atomic_load_explicit(&lc->core->rechecked, memory_order_relaxed), slot;
	struct karst_engine_owner *ringer;
	struct karst_space *s = NULL;

	if (at == 0)
		at = atomic_load_explicit(&lc->at, memory_order_relaxed);
	slot = at >> lc->e->lcore_bits;
	if (at == ENG_AT_SEAL) {
		accuse_sealed(lc);
		return;
	}
	pthread_mutex_lock(&lc->e->names_lock);
	/* the owner of a bell that an lcore is accessing is freed only under this lock (owner.c) */
	ringer = atomic_load_explicit(&lc->at_bell, memory_order_relaxed);
	if (ringer != NULL)
		s = atomic_load_explicit(&ringer->space, memory_order_relaxed);
	if (s != NULL)
		accuse(watch, lc, ENG_AT_NONE, s);
	else if (at != ENG_AT_NONE && slot < lc->core->qpns && lc->space_of[slot] != NULL)
		accuse(watch, lc, at, lc->space_of[slot]);
	else
		karst_log(KARST_LOG_WARNING,
			"%s: lcore %u has slept for %u ms, and not for a program", lc->e->name,
			lc->index, TURN_DEADLINE_NS / MS);
	pthread_mutex_unlock(&lc->e->names_lock);
}

/* Whether the lcore sleeps because there is nothing to do, or is about to; it does not count while
 * it accesses the doorbell rings to announce this. */
static bool
is_dozing(const struct eng_lcore *lc)
{
	return atomic_load_explicit(&lc->asleep, memory_order_relaxed) != 0 &&
		atomic_load_explicit(&lc->at_bell, memory_order_relaxed) == NULL;
}

/*
 * Lock held.  Handles an lcore that does not end its turn and whose driver sleeps all the time, but
 * neither in a copy nor because there is nothing to do: it waits for a page of mapped memory, or
 * the like.  The lcore cannot continue without that page, but the program that it is serving shall
 * not cause this again.  A driver that only waits for a processor also sleeps now and then, but
 * never once for so long.
 */
static void
look_at_turn(struct eng_watch *watch, struct eng_workers *workers, uint64_t word, uint64_t now_ns)
{
	struct eng_lcore *lc = workers->lc;
	uint64_t turns = __atomic_load_n(&lc->stats.turns, __ATOMIC_RELAXED), times;

	if (turns != workers->seen_turns || (word & 1) != 0 || workers->driver == NULL ||
		watch->stood || is_dozing(lc)) {
		workers->seen_turns = turns;
		workers->turned_ns = now_ns;
		workers->slept = UINT64_MAX;
		return;
	}
	if (now_ns - workers->turned_ns < TURN_NS)
		return;
	workers->turned_ns = now_ns;
	if (!has_slept(workers->driver->tid, &times))
		times = UINT64_MAX;
	if (times != workers->slept || times == UINT64_MAX) {
		workers->slept = times;
		workers->slept_ns = now_ns;
	} else if (now_ns - workers->slept_ns >= TURN_DEADLINE_NS) {
		workers->slept_ns = now_ns;
		accuse_somebody(watch, lc);
	}
}

/* Lock held.  How many threads of the pool are written off because of programs of @uid. */
static uint32_t
held_by(const struct eng_workers *workers, uid_t uid)
{
	const struct eng_worker *w;
	uint32_t n = 0;

	for (w = workers->first; w != NULL; w = w->next)
		n += w->written_off && w->copy->where[0].space->uid == uid;
	return n;
}

static bool
is_listed(const struct eng_watch *watch, uint32_t n, uid_t uid)
{
	uint32_t i;

	/* relaxed: only the caller writes them */
	for (i = 0; i < n; i++)
		if (atomic_load_explicit(&watch->barred[i], memory_order_relaxed) == uid)
			return true;
	return false;
}

/* Bars the user if programs of his hold @most of the lcore's threads, @held of its pool.  *nbarred:
 * how many users are barred so far. */
static void
bar_user(struct eng_watch *watch, const struct eng_lcore *lc, uid_t uid, uint32_t held,
	uint32_t most, uint32_t *nbarred)
{
	/* he may hold as many on another lcore */
	if (held + eng_left_count(lc->copies, uid) >= most && *nbarred < ENG_BARRED &&
		!is_listed(watch, *nbarred, uid))
		store32(&watch->barred[(*nbarred)++], (uint32_t)uid);
}

/* Bars users who hold @most threads of the lcore.  @return how many threads are held. */
static uint32_t
bar_users(struct eng_watch *watch, struct eng_lcore *lc, uint32_t most, uint32_t *nbarred)
{
	struct eng_workers *workers = atomic_load_explicit(&lc->workers, memory_order_acquire);
	uint32_t i, nstuck = atomic_load_explicit(&lc->copies->nleft, memory_order_relaxed);
	const struct eng_worker *w;
	uid_t uid;

	for (i = 0; nstuck > 0 && i < ENG_COPIES; i++)
		if (eng_left_user(lc->copies, i, &uid))
			bar_user(watch, lc, uid, 0, most, nbarred);
	if (workers == NULL)
		return nstuck;
	pthread_mutex_lock(&workers->lock);
	for (w = workers->first; w != NULL; w = w->next) {
		if (!w->written_off)
			continue;
		uid = w->copy->where[0].space->uid;
		bar_user(watch, lc, uid, held_by(workers, uid), most, nbarred);
	}
	nstuck += workers->nstuck;
	pthread_mutex_unlock(&workers->lock);
	return nstuck;
}

/* Stores the numbers for drivers, which read them without a lock. */
static void
note_stuck(struct eng_watch *watch)
{
	struct karst_engine *e = watch->e;
	uint32_t i, most = ENG_USER_STUCK, nbarred = 0, nstuck = 0;

	/* as counted in the last look; only this thread writes it */
	if (atomic_load_explicit(&watch->nstuck, memory_order_relaxed) >= STUCK_MANY * e->nlcores)
		most = 1;
	for (i = 0; i < e->nlcores; i++)
		nstuck += bar_users(watch, &e->lcore[i], most, &nbarred);
	store32(&watch->nbarred, nbarred);
	store32(&watch->nstuck, nstuck);
}

bool
eng_copy_allowed(struct karst_engine *e, const struct eng_copy *c)
{
	uid_t uid = c->where[0].space->uid;
	uint32_t i, n;

	/* relaxed, all of it: a slightly old value is good enough */
	n = e->watch != NULL ? atomic_load_explicit(&e->watch->nstuck, memory_order_relaxed) : 0;
	if (karst_likely(n == 0))
		return true;
	if (n >= STUCK_ALL * e->nlcores && uid != 0)
		return false;
	n = atomic_load_explicit(&e->watch->nbarred, memory_order_relaxed);
	for (i = 0; i < n; i++)
		if (atomic_load_explicit(&e->watch->barred[i], memory_order_relaxed) == uid)
			return false;
	return true;
}

/* @return true: copies are being made, or were made recently. */
static bool
look_at(struct eng_watch *watch, struct eng_workers *workers, uint64_t now_ns)
{
	uint64_t word = atomic_load_explicit(&workers->drive, memory_order_seq_cst);
	const struct eng_worker *w;
	bool busy;

	pthread_mutex_lock(&workers->lock);
	if (word != workers->seen_drive) {
		workers->seen_drive = word;
		workers->seen_ns = now_ns;
		if ((word & 1) != 0)
			workers->seen_ran = driver_ran(workers);
	} else if ((word & 1) != 0 && now_ns - workers->seen_ns >= WATCH_LOOK_NS) {
		take_over(workers, word, now_ns);
	}
	look_at_turn(watch, workers, word, now_ns);
	look_at_deferred(watch, workers, now_ns);
	eng_relaxed_set(&workers->lc->watched.stuck,
		workers->nstuck +
			atomic_load_explicit(&workers->copies->nleft, memory_order_relaxed));
	busy = now_ns - workers->seen_ns < WATCH_BUSY_NS || (word & 1) != 0 ||
		workers->deferred.head != NULL || workers->must_drive;
	for (w = workers->first; w != NULL; w = w->next)
		busy |= w->copy != NULL && !w->written_off;
	pthread_mutex_unlock(&workers->lock);
	return busy;
}

static bool
look_round(struct eng_watch *watch, uint64_t now_ns)
{
	struct karst_engine *e = watch->e;
	bool busy = false;
	uint32_t i;

	watch->stood = now_ns - watch->looked_ns > STANDSTILL_NS;
	watch->looked_ns = now_ns;
	for (i = 0; i < e->nlcores; i++) {
		/* the pool stays while the watchdog's lock is held */
		struct eng_workers *workers =
			atomic_load_explicit(&e->lcore[i].workers, memory_order_acquire);

		if (workers != NULL)
			busy |= look_at(watch, workers, now_ns);
	}
	note_stuck(watch);
	return busy;
}

static void
futex(_Atomic uint32_t *word, int op, uint32_t val, const struct timespec *within)
{
	syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, val, within, NULL, 0);
}

/* Sleeps; the lock is held by the caller but not during the sleep.  @rings: value before the last
 * check. */
static void
watch_nap(struct eng_watch *watch, uint32_t rings, uint64_t ns)
{
	const struct timespec t = {.tv_nsec = (long)ns};

	pthread_mutex_unlock(&watch->lock);
	futex(&watch->rings, FUTEX_WAIT, rings, &t);
	pthread_mutex_lock(&watch->lock);
}

/*
 * The watchdog must run when all processors are busy; otherwise it detects a blocked lcore late.
 * It sleeps nearly always, so real-time priority takes nothing from others.  The priority is for
 * this thread only: the threads that it creates drive lcores, and would keep a processor for
 * themselves.  Not every user may set it, and the ordinary priority is good enough.
 */
static void
raise_priority(void)
{
	const struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_FIFO)};

	(void)sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &lowest);
}

static void *
watch_all(void *arg)
{
	struct eng_watch *watch = arg;
	struct karst_engine *e = watch->e;

	raise_priority();
	sem_post(&watch->ready);
	pthread_mutex_lock(&watch->lock);
	while (!watch->end) {
		/* acquire, pairs with eng_watch_wake() */
		uint32_t rings = atomic_load_explicit(&watch->rings, memory_order_acquire);

		if (look_round(watch, engine_now(e))) {
			watch_nap(watch, rings, WATCH_LOOK_NS);
			continue;
		}
		/* Dekker with eng_workers_copy() */
		atomic_store_explicit(&watch->dozing, true, memory_order_seq_cst);
		if (!look_round(watch, engine_now(e)))
			watch_nap(watch, rings, TURN_NS);
		atomic_store_explicit(&watch->dozing, false, memory_order_relaxed);
	}
	pthread_mutex_unlock(&watch->lock);
	return NULL;
}

/* The caller may drive an lcore, so this does not wait for a lock. */
void
eng_watch_wake(struct karst_engine *e)
{
	/* release: what is to be checked */
	atomic_fetch_add_explicit(&e->watch->rings, 1, memory_order_release);
	futex(&e->watch->rings, FUTEX_WAKE, 1, NULL);
}

void
eng_watch_leave(struct eng_lcore *lc, struct eng_workers *workers)
{
	if (lc->e->watch == NULL)
		return;
	pthread_mutex_lock(&lc->e->watch->lock);
	atomic_store_explicit(&lc->workers, NULL, memory_order_relaxed);
	pthread_mutex_unlock(&lc->e->watch->lock);
}

int
eng_watch_start(struct karst_engine *e)
{
	struct eng_watch *watch = calloc(1, sizeof(*watch));
	int rc;

	if (watch == NULL)
		return -ENOMEM;
	watch->e = e;
	pthread_mutex_init(&watch->lock, NULL);
	sem_init(&watch->ready, 0, 0);
	/* threads may have been left behind when the engine stopped */
	note_stuck(watch);
	e->watch = watch;
	rc = pthread_create(&watch->thread, NULL, watch_all, watch);
	/* when this function has returned, the caller may drop the privilege for that priority */
	while (rc == 0 && sem_wait(&watch->ready) != 0)
		;
	if (rc != 0) {
		e->watch = NULL;
		sem_destroy(&watch->ready);
		pthread_mutex_destroy(&watch->lock);
		free(watch);
		return -rc;
	}
	pthread_setname_np(watch->thread, "karst-watch");
	return 0;
}

void
eng_watch_stop(struct karst_engine *e)
{
	struct eng_watch *watch = e->watch;

	if (watch == NULL)
		return;
	pthread_mutex_lock(&watch->lock);
	watch->end = true;
	pthread_mutex_unlock(&watch->lock);
	eng_watch_wake(e);
	pthread_join(watch->thread, NULL);
	sem_destroy(&watch->ready);
	pthread_mutex_destroy(&watch->lock);
	free(watch);
	e->watch = NULL;
}
