/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Closes descriptors that programs have sent.  That may take as long as the programs like: a TCP
 * socket with bytes that its peer does not accept lingers (SO_LINGER), a file of a file system that
 * the program serves itself is flushed, and a socket is closed together with all descriptors that
 * were sent to it and not received.  So descriptors that users other than root and the daemon's own
 * have had are closed by separate threads: the service never blocks.
 *
 * A thread that lingers returns when it gets a signal, which is sent after a while; a thread that
 * waits for a file system that does not answer stays.  So each user gets a thread, whatever other
 * users do, and some get more.  If much of a user's descriptors is not closed yet, no requests of
 * that user are handled meanwhile; the limit is lower if other users have more.  A user without
 * such descriptors is not delayed.
 *
 * Waking a thread is expensive, and a short connection leaves half a dozen descriptors.  So the
 * threads get them when the service has nothing else to do, and one thread is woken for all
 * descriptors of a user.  If that thread has to wait, another one continues after a while.
 */
#include "smc_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "karst_log.h"
#include "opts.h"

#define CLOSERS        128u
#define CLOSERS_SHARED 32u   /* beyond this number no user gets a second thread */
#define CLOSERS_EACH   4u    /* for one user */
#define CLOSE_EACH     512u  /* pending descriptors of a user until the user's requests wait */
#define CLOSE_ALL      2048u /* and of all users; or rejected connections before others wait */
#define NUDGE_MS       100u
#define STACK_BYTES    65536u
#define LEAVE_MS       5000u

struct closing {
	struct closing *next;
	int fd;
	enum svc_end how;
	bool turned_away;
};

/* A user who has descriptors that are pending or being closed. */
struct closing_user {
	struct closing_user *next;
	uid_t uid;
	struct closing *first, **last;
	uint32_t nwaiting, nbusy;
};

struct closer {
	struct svc_closers *all;
	pthread_t thread;
	bool busy;
};

struct svc_closers {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct closing_user *users, **last; /* a user that was served moves behind the others */
	struct closer closers[CLOSERS];
	uint32_t nclosers, nidle, nwakes;
	uint32_t nwaiting, nturned_away;
	bool given;             /* there are new descriptors for which no thread was woken yet */
	_Atomic uint32_t nbusy; /* read without the lock */
	uint64_t nudged_ns;     /* used by the service's thread only */
	bool stop;
};

/* --- users; all with the lock held --- */

static struct closing_user *
closing_user(const struct svc_closers *a, uid_t uid)
{
	struct closing_user *u = a->users;

	while (u != NULL && u->uid != uid)
		u = u->next;
	return u;
}

static void
user_in(struct svc_closers *a, struct closing_user *u)
{
	u->next = NULL;
	*a->last = u;
	a->last = &u->next;
}

static void
user_out(struct svc_closers *a, struct closing_user *u)
{
	struct closing_user **at = &a->users;

	while (*at != u)
		at = &(*at)->next;
	*at = u->next;
	if (*at == NULL)
		a->last = at;
}

/* @return false: no memory. */
static bool
user_add(struct svc_closers *a, uid_t uid, struct closing *w)
{
	struct closing_user *u = closing_user(a, uid);

	if (u == NULL) {
		u = calloc(1, sizeof(*u));
		if (u == NULL)
			return false;
		u->uid = uid;
		u->last = &u->first;
		user_in(a, u);
	}
	*u->last = w;
	u->last = &w->next;
	u->nwaiting++;
	a->nwaiting++;
	a->nturned_away += w->turned_away;
	a->given = true;
	return true;
}

/* --- the threads --- */

/* Returns the first user that needs a thread; NULL: none. */
static struct closing_user *
closing_next(const struct svc_closers *a)
{
	bool shared = atomic_load(&a->nbusy) < CLOSERS_SHARED;
	struct closing_user *u = a->users;

	while (u != NULL && (u->first == NULL || u->nbusy >= (shared ? CLOSERS_EACH : 1u)))
		u = u->next;
	return u;
}

static struct closing *
pick(struct svc_closers *a, struct closing_user *u)
{
	struct closing *w = u->first;

	u->first = w->next;
	if (u->first == NULL)
		u->last = &u->first;
	u->nwaiting--;
	a->nwaiting--;
	a->nturned_away -= w->turned_away;
	user_out(a, u);
	user_in(a, u);
	return w;
}

static void
wait_for_more(struct svc_closers *a)
{
	a->nidle++;
	while (a->nwakes == 0 && !a->stop)
		pthread_cond_wait(&a->more, &a->lock);
	if (a->nwakes > 0)
		a->nwakes--;
}

/* The socket may linger for as long as its program has set for its own close(). */
static void
end_socket(int fd, enum svc_end how)
{
	const struct sockaddr none = {.sa_family = AF_UNSPEC};
	const struct linger linger = {.l_onoff = how == SVC_END_RESETS};

	if (how == SVC_END_ORDERLY || how == SVC_END_RESETS)
		(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	else if (how == SVC_END_WRITES)
		shutdown(fd, SHUT_WR);
	else if (how == SVC_END_SHUTS)
		shutdown(fd, SHUT_RDWR);
	else if (how == SVC_END_DISCONNECTS)
		(void)connect(fd, &none, sizeof(none));
}

static void wake_one(struct svc_closers *a);

/* Releases the lock meanwhile. */
static void
close_one(struct closer *c, struct closing_user *u)
{
	struct svc_closers *a = c->all;
	struct closing *w = pick(a, u);
	const struct closing_user *next;

	c->busy = true;
	u->nbusy++;
	atomic_fetch_add(&a->nbusy, 1);
	next = closing_next(a);
	if (next != NULL && next != u)
		wake_one(a);
	pthread_mutex_unlock(&a->lock);
	end_socket(w->fd, w->how);
	close(w->fd);
	free(w);
	pthread_mutex_lock(&a->lock);
	c->busy = false;
	atomic_fetch_sub(&a->nbusy, 1);
	if (--u->nbusy == 0 && u->first == NULL) {
		user_out(a, u);
		free(u);
	}
}

static void *
closer_main(void *arg)
{
	struct closer *c = arg;
	struct svc_closers *a = c->all;
	struct closing_user *u;

	pthread_setname_np(pthread_self(), "karst-smc-close");
	pthread_mutex_lock(&a->lock);
	while (!a->stop) {
		u = closing_next(a);
		if (u != NULL)
			close_one(c, u);
		else
			wait_for_more(a);
	}
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

static void
closer_interrupted(int signo)
{
	(void)signo;
}

static int
closers_make(struct kd_smc *s)
{
	/* without SA_RESTART, because the signal has to interrupt system calls; as in server.c */
	const struct sigaction sa = {.sa_handler = closer_interrupted};
	struct svc_closers *a = calloc(1, sizeof(*a));

	if (a == NULL)
		return -ENOMEM;
	sigaction(SIGURG, &sa, NULL);
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->more, NULL);
	a->last = &a->users;
	s->closers = a;
	return 0;
}

/* Lock held. */
static void
one_more(struct svc_closers *a)
{
	struct closer *c = &a->closers[a->nclosers];
	pthread_attr_t attr;

	if (a->nclosers == CLOSERS || pthread_attr_init(&attr) != 0)
		return;
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	c->all = a;
	if (pthread_create(&c->thread, &attr, closer_main, c) == 0)
		a->nclosers++;
	pthread_attr_destroy(&attr);
}

static void
wake_one(struct svc_closers *a)
{
	if (a->nidle > 0) {
		a->nidle--;
		a->nwakes++;
		pthread_cond_signal(&a->more);
	} else {
		one_more(a);
	}
}

/* --- handing over --- */

static void
give_away(struct kd_smc *s, uid_t uid, int fd, enum svc_end how, bool turned_away)
{
	struct svc_closers *a = s->closers;
	struct closing *w = NULL;
	bool given = false;

	if (!svc_is_trusted(uid) && (a != NULL || closers_make(s) == 0))
		w = calloc(1, sizeof(*w));
	if (w != NULL) {
		a = s->closers;
		*w = (struct closing){.fd = fd, .how = how, .turned_away = turned_away};
		pthread_mutex_lock(&a->lock);
		given = user_add(a, uid, w);
		pthread_mutex_unlock(&a->lock);
	}
	if (given)
		return;
	free(w);
	end_socket(fd, how);
	close(fd);
}

void
svc_let_go(struct kd_smc *s, uid_t uid, int fd)
{
	give_away(s, uid, fd, SVC_END_AS_IT_IS, false);
}

void
svc_turn_away(struct kd_smc *s, uid_t uid, int fd)
{
	if (s->rights_wait)
		give_away(s, uid, fd, SVC_END_AS_IT_IS, true);
	else
		close(fd);
}

void
svc_end(struct kd_smc *s, uid_t uid, int fd, enum svc_end how)
{
	give_away(s, uid, fd, how, false);
}

bool
svc_end_open(struct kd_smc *s, uid_t uid, int fd, enum svc_end how)
{
	if (svc_is_trusted(uid)) {
		end_socket(fd, how);
		return true;
	}
	fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (fd >= 0)
		svc_end(s, uid, fd, how);
	return fd >= 0;
}

int
svc_recv(
	struct kd_smc *s, uid_t uid, int fd, void *buf, size_t *len, int *first, unsigned int *nfds)
{
	union {
		struct cmsghdr hdr;
		uint8_t bytes[CMSG_SPACE(SVC_RIGHTS * sizeof(int))];
	} anc;
	struct iovec iov = {.iov_base = buf, .iov_len = *len};
	struct msghdr mh = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &anc,
		.msg_controllen = sizeof(anc)};
	struct cmsghdr *c;
	size_t i, have;
	ssize_t n;
	int one;

	*nfds = 0;
	n = recvmsg(fd, &mh, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (n < 0)
		return -errno;
	*len = (size_t)n;
	for (c = CMSG_FIRSTHDR(&mh); c != NULL; c = CMSG_NXTHDR(&mh, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		have = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (i = 0; i < have; i++) {
			memcpy(&one, CMSG_DATA(c) + i * sizeof(int), sizeof(one));
			if ((*nfds)++ == 0 && first != NULL)
				*first = one;
			else
				svc_let_go(s, uid, one);
		}
	}
	return mh.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ? -EMSGSIZE : 0;
}

/* --- called by the service's thread --- */

/* A user may have at most three times as many as the number left for others, as with connections
 * (smc_prog.c). */
static bool
has_much(const struct svc_closers *a, uid_t uid)
{
	const struct closing_user *u = closing_user(a, uid);
	uint32_t left = a->nwaiting < CLOSE_ALL ? CLOSE_ALL - a->nwaiting : 0;

	return u != NULL && u->nwaiting != 0 && u->nwaiting >= karst_min_u32(CLOSE_EACH, 3 * left);
}

bool
svc_is_behind(struct kd_smc *s, uid_t uid)
{
	struct svc_closers *a = s->closers;
	bool yes;

	if (a == NULL)
		return false;
	pthread_mutex_lock(&a->lock);
	yes = has_much(a, uid);
	pthread_mutex_unlock(&a->lock);
	return yes;
}

bool
svc_is_full(struct kd_smc *s)
{
	struct svc_closers *a = s->closers;
	bool yes;

	if (a == NULL)
		return false;
	pthread_mutex_lock(&a->lock);
	yes = a->nturned_away >= CLOSE_ALL;
	pthread_mutex_unlock(&a->lock);
	return yes;
}

/* Lock held. */
static void
closers_nudge(struct svc_closers *a)
{
	uint32_t i;

	for (i = 0; i < a->nclosers; i++)
		if (a->closers[i].busy)
			pthread_kill(a->closers[i].thread, SIGURG);
}

/* Descriptors behind one that blocks get a thread of their own. */
void
svc_close_expire(struct kd_smc *s)
{
	struct svc_closers *a = s->closers;
	uint64_t now = kd_clock_ns();

	if (a == NULL || now - a->nudged_ns < NUDGE_MS * 1000000ull)
		return;
	a->nudged_ns = now;
	pthread_mutex_lock(&a->lock);
	closers_nudge(a);
	if (closing_next(a) != NULL)
		wake_one(a);
	pthread_mutex_unlock(&a->lock);
}

void
svc_close_begin(struct kd_smc *s)
{
	struct svc_closers *a = s->closers;

	if (a == NULL || !a->given)
		return;
	pthread_mutex_lock(&a->lock);
	a->given = false;
	if (closing_next(a) != NULL && a->nwakes == 0) /* otherwise a thread is about to look */
		wake_one(a);
	pthread_mutex_unlock(&a->lock);
}

uint64_t
svc_close_next_ns(const struct kd_smc *s)
{
	struct svc_closers *a = s->closers;
	bool waits;

	if (a == NULL)
		return UINT64_MAX;
	pthread_mutex_lock(&a->lock);
	waits = a->nwaiting != 0 || atomic_load(&a->nbusy) != 0;
	pthread_mutex_unlock(&a->lock);
	return waits ? kd_clock_ns() + NUDGE_MS * 1000000ull : UINT64_MAX;
}

/* Lock held.  Those that a thread handles belong to that thread. */
static void
forget_waiting(struct svc_closers *a)
{
	struct closing_user **at = &a->users, *u;
	struct closing *w;

	while ((u = *at) != NULL) {
		while ((w = u->first) != NULL) {
			u->first = w->next;
			free(w);
		}
		u->last = &u->first;
		if (u->nbusy != 0) {
			at = &u->next;
		} else {
			*at = u->next;
			free(u);
		}
	}
	a->last = at;
}

/* What is not closed by then is left to the end of the process. */
void
svc_close_fini(struct kd_smc *s)
{
	struct svc_closers *a = s->closers;
	uint32_t i, ms;

	if (a == NULL)
		return;
	svc_close_begin(s);
	pthread_mutex_lock(&a->lock);
	for (ms = 0; a->nwaiting != 0 && ms < NUDGE_MS; ms++) {
		pthread_mutex_unlock(&a->lock);
		usleep(1000);
		pthread_mutex_lock(&a->lock);
	}
	a->stop = true;
	pthread_cond_broadcast(&a->more);
	for (ms = 0; atomic_load(&a->nbusy) != 0 && ms < LEAVE_MS; ms++) {
		closers_nudge(a);
		pthread_mutex_unlock(&a->lock);
		usleep(1000);
		pthread_mutex_lock(&a->lock);
	}
	forget_waiting(a);
	s->closers = NULL;
	if (atomic_load(&a->nbusy) != 0) {
		karst_log(KARST_LOG_WARNING,
			"smc: threads still wait until what programs have sent is closed, and are "
			"left behind");
		pthread_mutex_unlock(&a->lock);
		return;
	}
	pthread_mutex_unlock(&a->lock);
	for (i = 0; i < a->nclosers; i++)
		pthread_join(a->closers[i].thread, NULL);
	pthread_cond_destroy(&a->more);
	pthread_mutex_destroy(&a->lock);
	free(a);
}
