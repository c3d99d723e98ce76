/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Programs that are late, and who notices.
 *
 * A program is late whose memory has let the driver of an lcore sleep: once for a millisecond, as
 * the watch saw, which then has given the lcore to another thread (crew.c); or often for less, as
 * the driver itself found out.  How long a copy took is not enough to tell, since the thread may
 * have had to wait for the processor; it is asked whether it slept.  To be asked costs a system
 * call, so the first slow copy of a program is only the reason to ask at the next ones.
 *
 * For a while after that, and longer each time, no driver touches that program's memory: couriers
 * do, each of them one copy at a time, and no two the same program's, so programs that are late
 * wait for themselves.  A copy of which a part, some pages, takes more than DEADLINE_NS is given
 * up: its program has failed, its queue pairs go into Error, and the thread that is in it is
 * written off until it comes back. Nobody can be written off for without bounds: a user whose
 * programs hold STUCK_UID threads, or anybody but root when STUCK_ALL are held, has no more memory
 * copied.
 *
 * The watch is one thread of the engine.  While there is copying it looks every millisecond, else
 * it sleeps until the first copy, but for a look at the turns of all lcores now and then: an lcore
 * that does not end its turn is told of, and the program whose queue pair it is at fails.
 */
#include "crew.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000u
/* How soon the watch looks again, and what it takes for a driver that does not come back. */
#define LOOK_NS MS
/* After the last copy it looks so long. */
#define BUSY_NS (100u * MS)
/* Between two looks at turns; also how long a turn may take before it is told of. */
#define TURN_NS (100u * MS)

/* Slower than any copy that only moves bytes: a page fault or a switch of the processor. */
#define SLOW_NS 50000u
/* How long a program that was slow is asked about. */
#define ASK_NS (1000u * MS)
/* What it may cost a driver in a window before it is late: so much of the time at most. */
#define WINDOW_NS (100u * MS)
#define BLAME_NS  (2u * MS)
/* How long it is late, the first time; each time twice as long, up to 2^LATE_SHIFT times. */
#define LATE_NS    (1000u * MS)
#define LATE_SHIFT 6u
/* As long as an impatient peer waits for an answer, all retries together. */
#define DEADLINE_NS (1000u * MS)
/* A courier that takes longer no longer counts as one that is free soon. */
#define SOON_NS   (5u * MS)
#define CREW_MAX  16u
#define LATE_MAX  64u /* copies of one program in an lcore's queue */
#define STUCK_UID 2u
#define STUCK_ALL 32u

/* --- who is late --- */

static uint64_t
load(_Atomic uint64_t *p)
{
	return atomic_load_explicit(p, memory_order_relaxed);
}

static void
store(_Atomic uint64_t *p, uint64_t v)
{
	atomic_store_explicit(p, v, memory_order_relaxed);
}

bool
eng_copy_is_late(const struct eng_copy *c, uint64_t now_ns)
{
	uint32_t i;

	for (i = 0; i < c->pub.nparts; i++)
		if (load(&c->where[i].space->late.until_ns) > now_ns)
			return true;
	return false;
}

static void
call_late(struct karst_space *s, uint64_t now_ns)
{
	uint32_t times;

	if (load(&s->late.until_ns) > now_ns)
		return;
	times = atomic_fetch_add_explicit(&s->late.times, 1, memory_order_relaxed);
	store(&s->late.until_ns, now_ns + ((uint64_t)LATE_NS << karst_min_u32(times, LATE_SHIFT)));
	if (times == 0)
		karst_log(KARST_LOG_NOTICE,
			"%s: the memory of process %d is slow to come: couriers copy it from now on",
			s->e->name, (int)s->pid);
}

bool
eng_copy_asks(const struct eng_copy *c, uint64_t now_ns)
{
	return load(&c->where[0].space->late.ask_ns) > now_ns;
}

long
eng_copy_sleeps(void)
{
	struct rusage ru;

	return getrusage(RUSAGE_THREAD, &ru) == 0 ? ru.ru_nvcsw : 0;
}

void
eng_copy_took(struct eng_copy *c, uint64_t now_ns, uint64_t ns, bool slept)
{
	struct karst_space *s = c->where[0].space;

	if (ns < SLOW_NS)
		return;
	store(&s->late.ask_ns, now_ns + ASK_NS);
	if (!slept)
		return;
	if (now_ns - load(&s->late.window_ns) > WINDOW_NS) {
		store(&s->late.window_ns, now_ns);
		store(&s->late.spent_ns, 0);
	}
	store(&s->late.spent_ns, load(&s->late.spent_ns) + ns);
	if (load(&s->late.spent_ns) > BLAME_NS)
		call_late(s, now_ns);
}

/* --- programs that copies are under way for --- */

void
eng_copy_hold(struct eng_copy *c)
{
	uint32_t i;

	c->held = true;
	for (i = 0; i < c->pub.nparts; i++) {
		eng_space_get(c->where[i].space);
		atomic_fetch_add_explicit(&c->where[i].space->late.copies, 1, memory_order_relaxed);
	}
}

void
eng_copy_unhold(struct eng_copy *c)
{
	uint32_t i;

	if (!c->held)
		return;
	c->held = false;
	for (i = 0; i < c->pub.nparts; i++) {
		/* release: with the bytes moved, for eng_copies_settle() */
		atomic_fetch_sub_explicit(&c->where[i].space->late.copies, 1, memory_order_release);
		eng_space_put(c->where[i].space);
	}
}

void
eng_copies_settle(struct karst_space *s)
{
	const struct timespec nap = {.tv_nsec = MS};

	while (atomic_load_explicit(&s->late.copies, memory_order_acquire) > 0 &&
		!karst_space_failed(s))
		nanosleep(&nap, NULL);
}

/* --- the queue of an lcore --- */

/* Lock held: to the driver, whether or not the thread is back. */
static void
hand_in(struct eng_crew *crew, struct eng_copy *c)
{
	if (!c->handed) {
		c->handed = true;
		eng_copy_append(&crew->over, c);
	}
	if (crew->end)
		return;
	/* release, pairs with the driver's look; the lock orders the rest */
	atomic_store_explicit(&crew->over_any, true, memory_order_release);
	eng_lcore_wake(crew->lc);
}

/* Lock held. */
static uint32_t
queued(const struct eng_crew *crew, const struct karst_space *s)
{
	const struct eng_copy *c;
	uint32_t n = 0;

	for (c = crew->late.head; c != NULL; c = c->next)
		n += c->where[0].space == s;
	return n;
}

bool
eng_late_submit(struct eng_crew *crew, struct eng_copy *c)
{
	bool ok;

	pthread_mutex_lock(&crew->lock);
	ok = queued(crew, c->where[0].space) < LATE_MAX;
	if (ok) {
		eng_copy_hold(c);
		c->handed = false;
		atomic_store_explicit(&c->phase, ENG_COPY_LATE, memory_order_relaxed);
		eng_copy_append(&crew->late, c);
		pthread_cond_signal(&crew->call);
	}
	pthread_mutex_unlock(&crew->lock);
	if (atomic_load_explicit(&crew->lc->e->watch->dozing, memory_order_relaxed))
		eng_watch_wake(crew->lc->e);
	return ok;
}

static void
remove_late(struct eng_crew *crew, struct eng_copy *c)
{
	struct eng_copy *before = NULL, *at;

	for (at = crew->late.head; at != c; at = at->next)
		before = at;
	if (before == NULL)
		crew->late.head = c->next;
	else
		before->next = c->next;
	if (crew->late.tail == c)
		crew->late.tail = before;
}

/* Does a courier of this crew copy for @s? */
static bool
served(const struct eng_crew *crew, const struct karst_space *s)
{
	const struct eng_worker *w;

	for (w = crew->workers; w != NULL; w = w->next)
		if (w->copy != NULL && w->copy->where[0].space == s)
			return true;
	return false;
}

struct eng_copy *
eng_late_take(struct eng_crew *crew, struct eng_worker *w)
{
	struct eng_copy *c, *best = NULL;

	/* somebody must be left, or can be hired, who takes the lcore over */
	if (crew->end || (crew->nidle == 0 && crew->nworkers - crew->nstuck >= CREW_MAX))
		return NULL;
	for (c = crew->late.head; c != NULL; c = c->next)
		if (!served(crew, c->where[0].space) &&
			(best == NULL ||
				load(&c->where[0].space->late.served_ns) <
					load(&best->where[0].space->late.served_ns)))
			best = c;
	if (best == NULL)
		return NULL;
	remove_late(crew, best);
	store(&best->where[0].space->late.served_ns, engine_now(crew->lc->e));
	atomic_store_explicit(&best->phase, ENG_COPY_RUNNING, memory_order_relaxed);
	return best;
}

void
eng_late_over(struct eng_crew *crew, struct eng_worker *w)
{
	struct eng_copy *c = w->copy;

	w->copy = NULL;
	if (w->written_off) {
		w->written_off = false;
		crew->nstuck--;
	}
	/* relaxed: the lock orders it */
	atomic_store_explicit(&c->phase, ENG_COPY_OVER, memory_order_relaxed);
	eng_copy_unhold(c);
	hand_in(crew, c);
}

void
eng_late_collect(struct eng_crew *crew)
{
	struct eng_copy *c;
	bool back = false;

	do {
		pthread_mutex_lock(&crew->lock);
		c = eng_copy_first(&crew->over);
		if (c != NULL) {
			c->handed = false;
			back = atomic_load_explicit(&c->phase, memory_order_relaxed) ==
				ENG_COPY_OVER;
		} else {
			atomic_store_explicit(&crew->over_any, false, memory_order_relaxed);
		}
		pthread_mutex_unlock(&crew->lock);
		if (c != NULL)
			eng_copy_finish(crew->lc, c, back);
	} while (c != NULL);
}

/* Lock held: copies that nobody has begun are not made. */
void
eng_late_cancel(struct eng_crew *crew, const struct karst_space *s)
{
	struct eng_copy *c, *next;

	for (c = crew->late.head; c != NULL; c = next) {
		next = c->next;
		if (s != NULL && c->where[0].space != s)
			continue;
		remove_late(crew, c);
		c->result = 0;
		atomic_store_explicit(&c->phase, ENG_COPY_OVER, memory_order_relaxed);
		eng_copy_unhold(c);
		hand_in(crew, c);
	}
}

/* --- the watch --- */

static void
count(_Atomic uint64_t *counter)
{
	atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* Does the thread sleep?  Else it runs, or waits for a processor, and comes back by itself. */
static bool
is_asleep(pid_t tid)
{
	char path[48], text[128], *end;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return true;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return true;
	text[n] = '\0';
	end = strrchr(text, ')');
	return end == NULL || end[1] == '\0' || end[2] != 'R';
}

/* Lock held.  The driver has been in one copy since the last look. */
static void
take_over(struct eng_crew *crew, uint64_t word, uint64_t now_ns)
{
	struct eng_worker *w = crew->driver;
	struct eng_copy *c = atomic_load_explicit(&crew->at, memory_order_relaxed);

	if (w == NULL || !is_asleep(w->tid))
		return;
	/* acquire: all that the driver did to the lcore; the lock gives it to the next one */
	if (!atomic_compare_exchange_strong_explicit(
		    &crew->drive, &word, word + 1, memory_order_acq_rel, memory_order_relaxed))
		return;
	/* the lcore has not ended its turn, so the copy's programs are still here */
	eng_copy_hold(c);
	c->handed = false;
	atomic_store_explicit(&c->phase, ENG_COPY_RUNNING, memory_order_relaxed);
	call_late(c->where[0].space, now_ns);
	w->copy = c;
	store(&w->since_ns, now_ns);
	crew->driver = NULL;
	crew->must_drive = true;
	count(&crew->lc->watched.taken_over);
	pthread_cond_broadcast(&crew->call);
}

/* Lock held: the program of @c has had its time. */
static void
give_up(struct eng_watch *watch, struct eng_crew *crew, struct eng_copy *c)
{
	struct karst_space *s = c->where[0].space;

	if (!karst_space_failed(s)) {
		karst_log(KARST_LOG_WARNING,
			"%s: process %d of uid %u: its memory did not come within %u ms: it has "
			"failed",
			watch->e->name, (int)s->pid, (unsigned int)s->uid, DEADLINE_NS / MS);
		count(&crew->lc->watched.overdue);
		eng_space_fail(s);
	}
	eng_late_cancel(crew, s);
}

/* Lock held. */
static void
look_at_couriers(struct eng_watch *watch, struct eng_crew *crew, uint64_t now_ns)
{
	struct eng_worker *w;
	uint32_t slow = 0;
	uint64_t since;

	for (w = crew->workers; w != NULL; w = w->next) {
		if (w->copy == NULL)
			continue;
		since = load(&w->since_ns);
		if (since >= now_ns)
			continue;
		slow += now_ns - since > SOON_NS;
		if (w->written_off || now_ns - since <= DEADLINE_NS)
			continue;
		give_up(watch, crew, w->copy);
		w->written_off = true;
		crew->nstuck++;
		/* whoever waits for it need not wait any longer; the thread has it still */
		hand_in(crew, w->copy);
	}
	/* one who can drive, and one for who waits behind couriers that take their time */
	if (crew->nidle == 0 && !crew->end && crew->nworkers - crew->nstuck < CREW_MAX &&
		(slow > 0 || crew->must_drive))
		eng_crew_hire(crew);
	if (crew->late.head != NULL && crew->nidle > 0)
		pthread_cond_signal(&crew->call);
}

/*
 * Lock held.  An lcore that does not end its turn, and whose driver sleeps, but not in a copy, nor
 * because there is nothing to do: it waits for a page of mapped memory, or the like.  There is no
 * going on without it; but the program that it is at shall not do that again.
 */
static void
look_at_turn(struct eng_crew *crew, uint64_t word, uint64_t now_ns)
{
	struct eng_lcore *lc = crew->lc;
	uint64_t turns = __atomic_load_n(&lc->stats.turns, __ATOMIC_RELAXED);
	struct karst_space *s;
	struct eng_qp *q;

	if (turns != crew->seen_turns || (word & 1) != 0 || crew->driver == NULL ||
		atomic_load_explicit(&lc->asleep, memory_order_relaxed) != 0) {
		crew->seen_turns = turns;
		crew->turned_ns = now_ns;
		return;
	}
	if (now_ns - crew->turned_ns < TURN_NS || !is_asleep(crew->driver->tid))
		return;
	crew->turned_ns = now_ns;
	/* it stays as long as the lcore does not end its turn */
	q = atomic_load_explicit(&lc->at, memory_order_relaxed);
	s = q != NULL ? atomic_load_explicit(&q->owner->space, memory_order_relaxed) : NULL;
	karst_log(KARST_LOG_WARNING,
		"%s: lcore %u has not ended its turn for %u ms; it is at queue pair %u of process "
		"%d",
		lc->e->name, lc->index, TURN_NS / MS, q != NULL ? q->pub.num : 0,
		s != NULL ? (int)s->pid : 0);
	if (s == NULL || karst_space_failed(s))
		return;
	count(&lc->watched.ejected);
	eng_share_eject(s->share);
	eng_space_fail(s);
}

/* How many threads programs of @uid hold, or of anybody. */
static uint32_t
stuck(struct karst_engine *e, uid_t uid, bool anybody)
{
	uint32_t i, n = 0;

	for (i = 0; i < e->nlcores; i++) {
		struct eng_crew *crew =
			atomic_load_explicit(&e->lcore[i].crew, memory_order_acquire);
		const struct eng_worker *w;

		if (crew == NULL)
			continue;
		pthread_mutex_lock(&crew->lock);
		for (w = crew->workers; w != NULL; w = w->next)
			n += w->written_off && (anybody || w->copy->where[0].space->uid == uid);
		pthread_mutex_unlock(&crew->lock);
	}
	return n;
}

static void
note_stuck(struct eng_watch *watch)
{
	uint32_t n = stuck(watch->e, 0, true);

	atomic_store_explicit(&watch->nstuck, n, memory_order_relaxed);
}

bool
eng_copy_allowed(struct karst_engine *e, const struct eng_copy *c)
{
	uid_t uid = c->where[0].space->uid;
	uint32_t n;

	if (e->watch == NULL)
		return true;
	/* relaxed: soon is enough */
	n = atomic_load_explicit(&e->watch->nstuck, memory_order_relaxed);
	if (karst_likely(n == 0))
		return true;
	if (n >= STUCK_ALL && uid != 0)
		return false;
	pthread_mutex_lock(&e->watch->lock);
	n = stuck(e, uid, false);
	pthread_mutex_unlock(&e->watch->lock);
	return n < STUCK_UID;
}

/* @return true: it copies, or has. */
static bool
look_at(struct eng_watch *watch, struct eng_crew *crew, uint64_t now_ns)
{
	uint64_t word = atomic_load_explicit(&crew->drive, memory_order_seq_cst);
	const struct eng_worker *w;
	bool busy;

	pthread_mutex_lock(&crew->lock);
	if (word != crew->seen_drive) {
		crew->seen_drive = word;
		crew->seen_ns = now_ns;
	} else if ((word & 1) != 0 && now_ns - crew->seen_ns >= LOOK_NS) {
		take_over(crew, word, now_ns);
	}
	look_at_turn(crew, word, now_ns);
	look_at_couriers(watch, crew, now_ns);
	store(&crew->lc->watched.stuck, crew->nstuck);
	busy = now_ns - crew->seen_ns < BUSY_NS || (word & 1) != 0 || crew->late.head != NULL ||
		crew->must_drive;
	for (w = crew->workers; w != NULL; w = w->next)
		busy |= w->copy != NULL && !w->written_off;
	pthread_mutex_unlock(&crew->lock);
	return busy;
}

static bool
look_round(struct eng_watch *watch, uint64_t now_ns)
{
	struct karst_engine *e = watch->e;
	bool busy = false;
	uint32_t i;

	for (i = 0; i < e->nlcores; i++) {
		/* stays while the watch's lock is held */
		struct eng_crew *crew =
			atomic_load_explicit(&e->lcore[i].crew, memory_order_acquire);

		if (crew != NULL)
			busy |= look_at(watch, crew, now_ns);
	}
	note_stuck(watch);
	return busy;
}

static void
nap(struct eng_watch *watch, uint64_t ns)
{
	struct timespec t;
	uint64_t at;

	clock_gettime(CLOCK_MONOTONIC, &t);
	at = (uint64_t)t.tv_nsec + ns;
	t.tv_sec += (time_t)(at / 1000000000u);
	t.tv_nsec = (long)(at % 1000000000u);
	pthread_cond_timedwait(&watch->call, &watch->lock, &t);
}

static void *
watch_all(void *arg)
{
	struct eng_watch *watch = arg;
	struct karst_engine *e = watch->e;

	pthread_mutex_lock(&watch->lock);
	while (!watch->end) {
		uint64_t now = engine_now(e);

		if (look_round(watch, now)) {
			nap(watch, LOOK_NS);
			continue;
		}
		/* Dekker with eng_crew_copy() */
		atomic_store_explicit(&watch->dozing, true, memory_order_seq_cst);
		if (!look_round(watch, now))
			nap(watch, TURN_NS);
		atomic_store_explicit(&watch->dozing, false, memory_order_relaxed);
	}
	pthread_mutex_unlock(&watch->lock);
	return NULL;
}

void
eng_watch_wake(struct karst_engine *e)
{
	/* with the lock, so that it has begun to wait */
	pthread_mutex_lock(&e->watch->lock);
	pthread_cond_signal(&e->watch->call);
	pthread_mutex_unlock(&e->watch->lock);
}

void
eng_watch_leave(struct eng_lcore *lc, struct eng_crew *crew)
{
	if (lc->e->watch == NULL)
		return;
	pthread_mutex_lock(&lc->e->watch->lock);
	atomic_store_explicit(&lc->crew, NULL, memory_order_relaxed);
	pthread_mutex_unlock(&lc->e->watch->lock);
}

int
eng_watch_start(struct karst_engine *e)
{
	struct eng_watch *watch = calloc(1, sizeof(*watch));
	pthread_condattr_t attr;
	int rc;

	if (watch == NULL)
		return -ENOMEM;
	watch->e = e;
	pthread_mutex_init(&watch->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&watch->call, &attr);
	pthread_condattr_destroy(&attr);
	e->watch = watch;
	rc = pthread_create(&watch->thread, NULL, watch_all, watch);
	if (rc != 0) {
		e->watch = NULL;
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
	pthread_cond_signal(&watch->call);
	pthread_mutex_unlock(&watch->lock);
	pthread_join(watch->thread, NULL);
	pthread_cond_destroy(&watch->call);
	pthread_mutex_destroy(&watch->lock);
	free(watch);
	e->watch = NULL;
}
