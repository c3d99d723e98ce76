/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Makes system calls on sockets that a program has as well: its TCP socket, of which it may have
 * kept a descriptor, and the pair of the other program, of which it has the far end.  Such a call
 * waits for the lock of the socket, even with MSG_DONTWAIT, and the program can hold that lock for
 * as long as it likes: it sends from memory, or receives into memory, whose pages are provided when
 * it likes (FUSE, userfaultfd).  No signal ends that wait.
 *
 * So for users other than root and the daemon's own a thread makes the call.  If the thread sleeps
 * at ASLEEP_LOOKS checks, it is left behind until the call ends.  The service continues without the
 * result, and makes no calls for that user until then and for a while after it.  The same applies
 * to a user whose calls have slept for that time in total, each for less, because the service is
 * blocked meanwhile.  The thread measures how long a call sleeps, for calls that end before the
 * first check.
 */
#include "smc_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ASKERS       32u
#define LOOK_NS      20000000u
#define ASLEEP_LOOKS 5u
#define ASLEEP_NS    (ASLEEP_LOOKS * LOOK_NS)
#define AGAIN_NS     10000000000ull /* pause for a user whose calls have blocked */
#define STACK_BYTES  65536u

struct question {
	int fd;
	int (*fn)(int fd, void *arg);
	size_t bytes;
	int rc;
	uint64_t slept_ns;
	_Alignas(max_align_t) uint8_t arg[];
};

/* A thread, and the user for whom it made a call.  No calls are made for the user while the thread
 * is left behind, and then until that time. */
struct svc_asker {
	struct svc_askers *all;
	uid_t uid;
	bool behind;
	uint64_t until_ns;
};

/* A user, and for how long the user's calls have slept since then. */
struct svc_sleeper {
	uid_t uid;
	uint64_t slept_ns;
	uint64_t since_ns, until_ns; /* no calls are made for the user until then */
};

struct svc_askers {
	pthread_mutex_t lock;
	pthread_cond_t asked, answered;
	struct question *question, *answer;
	struct svc_asker askers[ASKERS];
	struct svc_sleeper sleepers[ASKERS];
	struct svc_asker *at; /* waits for a call, or executes one; NULL: there is no thread */
	pid_t tid;
	uint32_t nbehind;
	bool stop, idle;
};

/* --- the threads --- */

static void
question_free(struct question *q)
{
	close(q->fd);
	free(q);
}

/* Counts the sleeps of the calling thread; waits for a CPU are not included. */
static long
own_sleeps(void)
{
	struct rusage u;

	return getrusage(RUSAGE_THREAD, &u) == 0 ? u.ru_nvcsw : 0;
}

static void
answer(struct question *q)
{
	uint64_t began = kd_clock_ns();
	long sleeps = own_sleeps();

	q->rc = q->fn(q->fd, q->arg);
	if (own_sleeps() != sleeps)
		q->slept_ns = kd_clock_ns() - began;
}

static void *
asker_main(void *arg)
{
	struct svc_asker *me = arg;
	struct svc_askers *a = me->all;
	struct question *q;
	bool last;

	pthread_setname_np(pthread_self(), "karst-smc-ask");
	pthread_mutex_lock(&a->lock);
	a->tid = gettid();
	while (a->at == me && !a->stop) {
		if ((q = a->question) == NULL) {
			pthread_cond_wait(&a->asked, &a->lock);
			continue;
		}
		a->question = NULL;
		pthread_mutex_unlock(&a->lock);
		answer(q);
		pthread_mutex_lock(&a->lock);
		if (a->at == me) {
			a->answer = q;
			pthread_cond_signal(&a->answered);
		} else {
			question_free(q);
		}
	}
	if (me->behind) {
		me->behind = false;
		me->until_ns = kd_clock_ns() + AGAIN_NS;
		a->nbehind--;
	} else {
		a->at = NULL;
		pthread_cond_signal(&a->answered);
	}
	last = a->stop && a->nbehind == 0 && a->idle;
	pthread_mutex_unlock(&a->lock);
	if (last)
		free(a);
	return NULL;
}

static struct svc_askers *
askers_make(void)
{
	struct svc_askers *a = calloc(1, sizeof(*a));
	pthread_condattr_t attr;
	uint32_t i;

	if (a == NULL)
		return NULL;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->asked, NULL);
	pthread_cond_init(&a->answered, &attr);
	pthread_condattr_destroy(&attr);
	for (i = 0; i < ASKERS; i++)
		a->askers[i].all = a;
	return a;
}

/* Lock held.  Starts a thread, in the entry whose user has the shortest wait left; false: none is
 * free. */
static bool
asker_start(struct svc_askers *a)
{
	struct svc_asker *me = NULL;
	pthread_attr_t attr;
	pthread_t thread;
	uint32_t i;

	for (i = 0; i < ASKERS; i++)
		if (!a->askers[i].behind && (me == NULL || a->askers[i].until_ns < me->until_ns))
			me = &a->askers[i];
	if (me == NULL || pthread_attr_init(&attr) != 0)
		return false;
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	me->until_ns = 0;
	a->at = me;
	a->tid = 0;
	if (pthread_create(&thread, &attr, asker_main, me) != 0)
		a->at = NULL;
	pthread_attr_destroy(&attr);
	return a->at != NULL;
}

/* --- detecting a call that blocks --- */

/* Lock held. */
static bool
is_held(const struct svc_askers *a, uid_t uid)
{
	uint64_t now = kd_clock_ns();
	uint32_t i;

	for (i = 0; i < ASKERS; i++)
		if (a->askers[i].uid == uid && (a->askers[i].behind || now < a->askers[i].until_ns))
			return true;
	for (i = 0; i < ASKERS; i++)
		if (a->sleepers[i].uid == uid && now < a->sleepers[i].until_ns)
			return true;
	return a->nbehind == ASKERS;
}

/* If the thread runs, or waits for a CPU, the call will end without help. */
static bool
is_asleep(pid_t tid)
{
	char path[48], text[128], *end;
	ssize_t n;
	int fd;

	if (tid == 0)
		return false; /* it has not started */
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	end = strrchr(text, ')');
	return end == NULL || end[1] == '\0' || end[2] != 'R';
}

/* Lock held.  Waits for the result.  NULL: the call blocks, and is not waited for any longer. */
static struct question *
await(struct svc_askers *a)
{
	uint32_t looks = 0;
	struct timespec until;
	uint64_t ns;

	while (a->answer == NULL && looks < ASLEEP_LOOKS) {
		ns = kd_clock_ns() + LOOK_NS;
		until.tv_sec = (time_t)(ns / 1000000000);
		until.tv_nsec = (long)(ns % 1000000000);
		if (pthread_cond_timedwait(&a->answered, &a->lock, &until) != ETIMEDOUT)
			continue;
		looks = a->question == NULL && is_asleep(a->tid) ? looks + 1 : 0;
	}
	return a->answer;
}

/* Lock held. */
static void
leave_behind(struct kd_smc *s, struct svc_askers *a, uid_t uid)
{
	a->at->uid = uid;
	a->at->behind = true;
	a->at = NULL;
	a->nbehind++;
	s->faults++;
	karst_log_some(&s->log, kd_clock_ns(), KARST_LOG_NOTICE,
		"smc: a program of user %u holds the lock of a socket: nothing "
		"is asked of his connections until he lets go of it, and for some time after",
		(unsigned int)uid);
}

/* Lock held.  Returns the user's record, or the oldest of those that are not in force. */
static struct svc_sleeper *
sleeper_of(struct svc_askers *a, uid_t uid)
{
	struct svc_sleeper *l, *oldest = &a->sleepers[0];
	uint64_t now = kd_clock_ns();

	for (l = a->sleepers; l < &a->sleepers[ASKERS]; l++) {
		if (l->uid == uid && l->slept_ns != 0 && now - l->since_ns < AGAIN_NS)
			return l;
		if (oldest->until_ns > now ||
			(l->until_ns <= now && l->since_ns < oldest->since_ns))
			oldest = l;
	}
	*oldest = (struct svc_sleeper){.uid = uid, .since_ns = now};
	return oldest;
}

/* Lock held.  Adds the time that a call of the user has slept. */
static void
count_sleep(struct kd_smc *s, struct svc_askers *a, uid_t uid, uint64_t slept_ns)
{
	struct svc_sleeper *l;

	if (slept_ns == 0)
		return;
	l = sleeper_of(a, uid);
	l->slept_ns += slept_ns;
	if (l->slept_ns < ASLEEP_NS)
		return;
	l->until_ns = kd_clock_ns() + AGAIN_NS;
	s->faults++;
	karst_log_some(&s->log, kd_clock_ns(), KARST_LOG_NOTICE,
		"smc: programs of user %u hold locks of sockets again and again: nothing is asked "
		"of his connections for some time",
		(unsigned int)uid);
}

static struct question *
question_make(int fd, int (*fn)(int fd, void *arg), const void *arg, size_t bytes)
{
	struct question *q = malloc(sizeof(*q) + bytes);

	if (q == NULL)
		return NULL;
	/* a duplicate: the original may be closed before the call ends */
	*q = (struct question){.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0), .fn = fn, .bytes = bytes};
	if (bytes != 0) /* otherwise @arg may be NULL */
		memcpy(q->arg, arg, bytes);
	if (q->fd < 0) {
		free(q);
		return NULL;
	}
	return q;
}

/* Lock held, and there is a thread. */
static int
ask_thread(struct kd_smc *s, uid_t uid, struct question *q, void *arg)
{
	struct svc_askers *a = s->askers;
	int rc;

	a->question = q;
	pthread_cond_signal(&a->asked);
	if (await(a) == NULL) {
		leave_behind(s, a, uid);
		return -EBUSY;
	}
	count_sleep(s, a, uid, q->slept_ns);
	a->answer = NULL;
	rc = q->rc;
	if (q->bytes != 0)
		memcpy(arg, q->arg, q->bytes);
	question_free(q);
	return rc;
}

int
svc_ask(struct kd_smc *s, uid_t uid, int fd, int (*fn)(int fd, void *arg), void *arg, size_t bytes)
{
	struct svc_askers *a = s->askers;
	struct question *q;
	int rc = -EBUSY;

	if (svc_is_trusted(uid))
		return fn(fd, arg);
	if (a == NULL && (a = s->askers = askers_make()) == NULL)
		return -ENOMEM;
	pthread_mutex_lock(&a->lock);
	if (!is_held(a, uid)) {
		q = a->at != NULL || asker_start(a) ? question_make(fd, fn, arg, bytes) : NULL;
		rc = q != NULL ? ask_thread(s, uid, q, arg) : -ENOMEM;
	}
	pthread_mutex_unlock(&a->lock);
	return rc;
}

bool
svc_is_trusted(uid_t uid)
{
	return uid == 0 || uid == geteuid();
}

/* Threads that are left behind remain until the process ends, or the last of them frees the shared
 * data. */
void
svc_ask_fini(struct kd_smc *s)
{
	struct svc_askers *a = s->askers;
	bool last;

	if (a == NULL)
		return;
	s->askers = NULL;
	pthread_mutex_lock(&a->lock);
	a->stop = true;
	pthread_cond_broadcast(&a->asked);
	while (a->at != NULL)
		pthread_cond_wait(&a->answered, &a->lock);
	a->idle = true;
	last = a->nbehind == 0;
	pthread_mutex_unlock(&a->lock);
	if (last)
		free(a);
}
