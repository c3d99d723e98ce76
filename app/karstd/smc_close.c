/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Closing what programs have sent.  That may take as long as they like: a TCP socket with bytes
 * that its peer does not take lingers (SO_LINGER), a file of a file system that the program serves
 * itself is flushed, and a socket goes with all descriptors that have been sent to it and nobody
 * has read.  So what users have had in their hands, other than root and the daemon's own, is closed
 * by threads that do nothing else: the service never waits.
 *
 * A thread that lingers comes back when it gets a signal, which it gets after a while.  No user
 * takes all threads, and of one who has much that is not closed yet nothing is heard meanwhile.
 *
 * To wake a thread is dear, and a short connection leaves half a dozen descriptors.  So the threads
 * get them when the service has nothing else to do, and one of them is woken for all of a user's.
 * If that one has to wait, another one goes on after a while.
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

#define CLOSERS      32u
#define CLOSERS_EACH 4u    /* for one user */
#define CLOSE_EACH   512u  /* descriptors of a user that wait, until he does */
#define CLOSE_ALL    2048u /* until new programs do */
#define NUDGE_MS     100u
#define STACK_BYTES  65536u
#define LEAVE_MS     5000u

struct closing {
	struct closing *next;
	uid_t uid;
	int fd;
	enum svc_end how;
};

struct closer {
	struct svc_closers *all;
	pthread_t thread;
	uid_t uid;
	bool busy;
};

struct svc_closers {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct closing *first, **last;
	struct closer closers[CLOSERS];
	uint32_t nclosers, nidle, nwakes;
	uint32_t nwaiting;
	bool given;             /* there is something for which nobody was woken yet */
	_Atomic uint32_t nbusy; /* read without the lock */
	uint64_t nudged_ns;     /* the service's alone */
	bool stop;
};

/* --- the threads --- */

static uint32_t
busy_for(const struct svc_closers *a, uid_t uid)
{
	uint32_t i, n = 0;

	for (i = 0; i < a->nclosers; i++)
		n += a->closers[i].busy && a->closers[i].uid == uid;
	return n;
}

/* The first whose user has a thread left; NULL. */
static struct closing *
pick(struct svc_closers *a)
{
	struct closing **at = &a->first, *w;

	while (*at != NULL && busy_for(a, (*at)->uid) >= CLOSERS_EACH)
		at = &(*at)->next;
	w = *at;
	if (w == NULL)
		return NULL;
	*at = w->next;
	if (w->next == NULL)
		a->last = at;
	a->nwaiting--;
	return w;
}

/* Something of another user's waits, and he has a thread left. */
static bool
others_wait(const struct svc_closers *a, uid_t uid)
{
	const struct closing *w;

	for (w = a->first; w != NULL; w = w->next)
		if (w->uid != uid && busy_for(a, w->uid) < CLOSERS_EACH)
			return true;
	return false;
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

/* The socket may linger for as long as its program has said, which is for its own close(). */
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

static void *
closer_main(void *arg)
{
	struct closer *c = arg;
	struct svc_closers *a = c->all;
	struct closing *w;

	pthread_setname_np(pthread_self(), "karst-smc-close");
	pthread_mutex_lock(&a->lock);
	while (!a->stop) {
		w = pick(a);
		if (w == NULL) {
			wait_for_more(a);
			continue;
		}
		c->uid = w->uid;
		c->busy = true;
		atomic_fetch_add(&a->nbusy, 1);
		if (others_wait(a, w->uid))
			wake_one(a);
		pthread_mutex_unlock(&a->lock);
		end_socket(w->fd, w->how);
		close(w->fd);
		free(w);
		pthread_mutex_lock(&a->lock);
		c->busy = false;
		atomic_fetch_sub(&a->nbusy, 1);
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
	/* without SA_RESTART, for that is what it is for; as server.c */
	const struct sigaction sa = {.sa_handler = closer_interrupted};
	struct svc_closers *a = calloc(1, sizeof(*a));

	if (a == NULL)
		return -ENOMEM;
	sigaction(SIGURG, &sa, NULL);
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->more, NULL);
	a->last = &a->first;
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

/* --- what is given to them --- */

void
svc_let_go(struct kd_smc *s, uid_t uid, int fd)
{
	svc_end(s, uid, fd, SVC_END_AS_IT_IS);
}

void
svc_end(struct kd_smc *s, uid_t uid, int fd, enum svc_end how)
{
	struct svc_closers *a = s->closers;
	struct closing *w = NULL;

	if (!svc_is_trusted(uid) && (a != NULL || closers_make(s) == 0))
		w = calloc(1, sizeof(*w));
	if (w == NULL) {
		end_socket(fd, how);
		close(fd);
		return;
	}
	a = s->closers;
	*w = (struct closing){.uid = uid, .fd = fd, .how = how};
	pthread_mutex_lock(&a->lock);
	*a->last = w;
	a->last = &w->next;
	a->nwaiting++;
	a->given = true;
	pthread_mutex_unlock(&a->lock);
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

/* --- of the service's thread --- */

static bool
has_much(const struct svc_closers *a, uid_t uid)
{
	const struct closing *w;
	uint32_t n = 0;

	if (a->nwaiting < CLOSE_EACH)
		return false;
	for (w = a->first; w != NULL; w = w->next)
		n += w->uid == uid;
	return n >= CLOSE_EACH;
}

bool
svc_is_behind(struct kd_smc *s, uid_t uid)
{
	struct svc_closers *a = s->closers;
	bool yes;

	if (a == NULL)
		return false;
	pthread_mutex_lock(&a->lock);
	yes = uid == SVC_ANYBODY ? a->nwaiting >= CLOSE_ALL : has_much(a, uid);
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

/* What waits behind one that waits gets a thread of its own. */
void
svc_close_expire(struct kd_smc *s)
{
	struct svc_closers *a = s->closers;
	uint64_t now = svc_now();

	if (a == NULL || now - a->nudged_ns < NUDGE_MS * 1000000ull)
		return;
	a->nudged_ns = now;
	pthread_mutex_lock(&a->lock);
	closers_nudge(a);
	if (a->first != NULL)
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
	if (a->first != NULL && a->nwakes == 0) /* else one is about to look */
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
	return waits ? svc_now() + NUDGE_MS * 1000000ull : UINT64_MAX;
}

/* What is not closed by then is with the process. */
void
svc_close_fini(struct kd_smc *s)
{
	struct svc_closers *a = s->closers;
	struct closing *w;
	uint32_t i, ms;

	if (a == NULL)
		return;
	svc_close_begin(s);
	pthread_mutex_lock(&a->lock);
	for (ms = 0; a->first != NULL && ms < NUDGE_MS; ms++) {
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
	while ((w = a->first) != NULL) {
		a->first = w->next;
		free(w);
	}
	a->last = &a->first;
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
