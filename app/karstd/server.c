/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Messages that a program has sent and that were not read are discarded with its socket, and
 * closing that may take as long as the program likes: a TCP socket among the descriptors of a
 * message lingers, a file of a file system that the program serves itself is flushed.  So a
 * connection is closed by its own thread, without the lock, and never by the thread that accepts.
 * Until that is done, it counts as one of its user's connections.  A thread that lingers returns
 * when it gets a signal; other threads are left behind when the daemon ends.
 *
 * A user for whom so many threads close already gets no more of them.  A further connection is
 * shut down, and closed at once if no descriptor is in its messages.  Otherwise it is kept until
 * one of the user's threads has returned.  The messages are not read meanwhile, so their
 * descriptors count against what the kernel allows the user to have in messages (RLIMIT_NOFILE).
 */
#include "server.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "karst_ctl_msg.h"
#include "karst_ctl_sock.h"
#include "karst_log.h"
#include "karst_session.h"

#define MAX_GROUPS      65536u /* NGROUPS_MAX of the kernel */
#define MAX_REFUSED     256u  /* connections that are not admitted yet, or wait for their refusal */
#define MAX_UNHEARD     1024u /* connections that are only closed, and FEW_CLOSING of each user */
#define FEW_CLOSING     8u    /* each connection is closed for a moment when it has ended */
#define REFUSE_WITHIN_S 2
/* How long the end of the daemon waits for the threads of programs, and how often it interrupts
 * them. */
#define LEAVE_WITHIN_MS    20000u
#define NUDGE_MS           100u
#define SERVER_STACK_BYTES (1u << 20)

struct client {
	struct kd_server *server;
	struct client *next, **pprev;
	uid_t uid; /* user that has connected */
	struct karst_ctl_peer peer;
	struct karst_session *session;
	struct kd_part_line line;
	pthread_t thread;
	int fd;       /* -1: it is being closed */
	bool refused; /* does not count as attached */
	bool unheard; /* it is only closed, perhaps after a refusal */
};

struct kd_server {
	struct karst_engine *engine;
	struct kd_part *part;
	struct karst_log_some refused_log; /* a program that is refused may try again at once */
	pthread_mutex_t lock;              /* protects all following members */
	pthread_cond_t left;
	struct kd_conf conf;
	struct client *clients;
	struct client *kept; /* without threads; their users have others whose threads close */
	uint32_t nclients;   /* attached */
	uint32_t nrefused;
	uint32_t nunheard;
	int waiting_fd; /* used only by the accepting thread: a connection that was accepted, but
			 * for which no thread could be created; -1: none */
};

/* --- admission --- */

/* Returns the groups of a program, in memory that the caller frees; NULL: no memory. */
static uint32_t *
groups_of(int fd, const struct karst_ctl_peer *peer, uint32_t *n)
{
	socklen_t len = 0;
	uint32_t *gids;

	/* there is no room for groups, so that the kernel says how much they need */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &len) == 0 || errno != ERANGE ||
		len > MAX_GROUPS * sizeof(*gids))
		len = 0;
	gids = malloc(sizeof(*gids) + len);
	if (gids == NULL)
		return NULL;
	gids[0] = peer->gid;
	*n = 1;
	if (len != 0 && getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, gids + 1, &len) == 0)
		*n += (uint32_t)(len / sizeof(*gids));
	return gids;
}

static uint32_t
attached_of_user(const struct kd_server *s, uid_t uid)
{
	const struct client *c;
	uint32_t n = 0;

	for (c = s->clients; c != NULL; c = c->next)
		n += !c->refused && c->uid == uid;
	return n;
}

static int
say_unfair(const struct client *c, char *why)
{
	return karst_ctl_reason(why, -EUSERS,
		"user %u has so many programs attached that one more would leave too little to "
		"others ([limits] share)",
		c->peer.uid);
}

/* Counts @c as attached if that is allowed.  Otherwise @why receives the reason. */
static int
admit(struct client *c, struct karst_session_limits *limits, char *why)
{
	struct kd_server *s = c->server;
	uint32_t ngids, most, *gids = groups_of(c->fd, &c->peer, &ngids);
	struct kd_conf_limits l;
	int rc = 0;

	if (gids == NULL)
		return karst_ctl_reason(
			why, -ENOMEM, "no memory for the groups of user %u", c->peer.uid);
	pthread_mutex_lock(&s->lock);
	l = kd_conf_limits_of(&s->conf, c->peer.uid, gids, ngids);
	free(gids);
	most = l.clients;
	if (s->nclients >= s->conf.socket.max_clients)
		rc = karst_ctl_reason(why, -EUSERS,
			"%u programs are attached, which is all that [socket] max_clients allows",
			s->nclients);
	else if (most != 0 && attached_of_user(s, c->peer.uid) >= most)
		rc = karst_ctl_reason(why, -EUSERS,
			"user %u has %u programs attached, which is all that [limits] clients "
			"allows",
			c->peer.uid, most);
	/* checked here as well, so that programs that are refused do not occupy places meanwhile */
	else if (!karst_session_admits(s->engine, c->peer.uid, l.share))
		rc = say_unfair(c, why);
	if (rc == 0) {
		c->refused = false;
		s->nrefused--;
		s->nclients++;
	}
	pthread_mutex_unlock(&s->lock);
	*limits = (struct karst_session_limits){
		.max_qps = l.qps,
		.max_cqs = l.cqs,
		.max_srqs = l.srqs,
		.max_mrs = l.mrs,
		.max_mws = l.mws,
		.max_pds = l.pds,
		.max_ahs = l.ahs,
		.max_channels = l.channels,
		.max_mcasts = l.mcasts,
		.max_xrcds = l.xrcds,
		.max_cm_ids = l.cm_ids,
		.max_ring_bytes = l.ring_bytes,
		.max_mr_bytes = l.mr_bytes,
		.share = l.share,
		.calls = l.calls,
		.controlled_qkeys = l.controlled_qkeys == KD_ALLOWED,
		.max_window_bytes = l.window_bytes,
		.max_held_bytes = l.held_bytes,
	};
	return rc;
}

/* Waits, for a short time, for the first message, and leaves it in the socket.  Whatever follows
 * may take as long as descriptors of the message need to be closed, so from then on the connection
 * counts as one that is only closed.  @return false: there is none */
static bool
client_await(struct client *c)
{
	const struct timeval within = {.tv_sec = REFUSE_WITHIN_S};
	uint8_t byte;

	setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &within, sizeof(within));
	if (recv(c->fd, &byte, sizeof(byte), MSG_PEEK) <= 0)
		return false;
	pthread_mutex_lock(&c->server->lock);
	c->unheard = true;
	c->server->nrefused--;
	c->server->nunheard++;
	pthread_mutex_unlock(&c->server->lock);
	return true;
}

/* Refuses the first request. */
static void
refuse(struct client *c, int status, const char *why)
{
	uint8_t *buf = malloc(2 * KARST_CTL_MAX);
	int fds[KARST_CTL_MAX_FDS];
	unsigned int nfds = 0;
	size_t len;

	if (buf == NULL)
		return;
	if (client_await(c) && karst_ctl_recv(c->fd, buf, &len, fds, &nfds) == 0) {
		len = karst_ctl_refuse(buf, len, status, why, buf + KARST_CTL_MAX);
		(void)karst_ctl_send_now(c->fd, buf + KARST_CTL_MAX, len, NULL, 0);
		karst_ctl_close_fds(fds, nfds);
	}
	free(buf);
}

/* --- one attachment, on its thread --- */

static bool
is_alive(void *user)
{
	const struct client *c = user;

	return !karst_ctl_hung_up(c->fd);
}

static int
handle(void *user, const void *req, size_t len, const int *fds, unsigned int nfds, void *rsp,
	size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds)
{
	struct client *c = user;

	return karst_session_handle(
		c->session, req, len, fds, nfds, rsp, rsp_len, rsp_fds, nrsp_fds);
}

static void
client_attend(void *user)
{
	struct client *c = user;

	karst_session_attend(c->session);
}

/* Opens a file for the program, with the rights of the program's user. */
static int
open_for(void *user, int memfd, const struct karst_files_ask *ask)
{
	struct client *c = user;

	return kd_part_ask(c->server->part, &c->line, c->fd, memfd, ask);
}

static int
open_session(struct client *c, char *why)
{
	struct karst_session_init init = {
		.program = "?",
		.pid = c->peer.pid,
		.pidfd = c->peer.pidfd,
		.uid = c->peer.uid,
		.gid = c->peer.gid,
		.alive = is_alive,
		.user = c,
	};
	int rc = admit(c, &init.limits, why);

	if (rc != 0)
		return rc;
	/* without a privileged part this process opens what it may: files of its own user */
	if (c->server->part->fd >= 0)
		init.opener = (struct karst_space_opener){open_for, c};
	rc = karst_session_create(c->server->engine, &init, &c->session);
	if (rc == -EUSERS)
		say_unfair(c, why);
	else if (rc != 0)
		karst_ctl_reason(
			why, rc, "no session for process %d: %s", (int)c->peer.pid, strerror(-rc));
	return rc;
}

/* Frees the program's place before the program can notice that the connection is gone. */
static void
dismiss(struct client *c)
{
	bool alone;

	pthread_mutex_lock(&c->server->lock);
	if (!c->refused) {
		c->refused = true;
		c->server->nclients--;
		c->server->nrefused++;
	}
	alone = c->server->nclients == 0;
	pthread_mutex_unlock(&c->server->lock);
	/* the C library keeps the memory that many programs needed in pieces */
	if (alone)
		malloc_trim(0);
}

static void
server_serve(struct client *c)
{
	struct karst_ctl_server server = {.handle = handle, .attend = client_attend, .user = c};
	char why[KARST_CTL_WHY] = "";
	int rc = open_session(c, why);

	/* it disconnected before it was attached, and gets no answer */
	if (rc == -ECANCELED) {
		dismiss(c);
		return;
	}
	if (rc != 0) {
		dismiss(c);
		karst_log_some(&c->server->refused_log, kd_clock_ns(), KARST_LOG_NOTICE,
			"process %d of user %u is refused: %s", (int)c->peer.pid, c->peer.uid, why);
		refuse(c, rc, why);
		return;
	}
	karst_log(KARST_LOG_INFO, "process %d of user %u attached", (int)c->peer.pid, c->peer.uid);
	server.attend_fd = karst_session_fd(c->session);
	rc = karst_ctl_serve(c->fd, &server);
	karst_session_destroy(c->session);
	kd_part_hang_up(&c->line);
	dismiss(c);
	karst_log(KARST_LOG_INFO, "process %d of user %u is gone%s%s", (int)c->peer.pid,
		c->peer.uid, rc != 0 ? ": " : "", rc != 0 ? strerror(-rc) : "");
}

/* Closes the connection.  Other threads may find it in the list meanwhile; they do not wait for
 * this. */
static void
client_close(struct client *c)
{
	struct kd_server *s = c->server;
	int fd = c->fd;

	pthread_mutex_lock(&s->lock);
	c->fd = -1;
	if (!c->unheard) {
		c->unheard = true;
		s->nrefused--;
		s->nunheard++;
	}
	pthread_mutex_unlock(&s->lock);
	close(fd);
	if (c->peer.pidfd >= 0)
		close(c->peer.pidfd);
}

static void
client_put(struct client **list, struct client *c)
{
	c->next = *list;
	c->pprev = list;
	if (c->next != NULL)
		c->next->pprev = &c->next;
	*list = c;
}

static void
client_take(struct client *c)
{
	*c->pprev = c->next;
	if (c->next != NULL)
		c->next->pprev = c->pprev;
}

/* Gives @c, whose connection is closed, another one of its user that was kept.  Lock held.
 * @return false: there is none */
static bool
client_take_over(struct client *c)
{
	struct client *k = c->server->kept;

	while (k != NULL && k->uid != c->uid)
		k = k->next;
	if (k == NULL)
		return false;
	client_take(k);
	c->fd = k->fd;
	c->peer.pidfd = -1;
	free(k);
	return true;
}

/* Removes @c from the list, after which the server may be gone.  @return false: there is another
 * connection to close */
static bool
client_leave(struct client *c)
{
	struct kd_server *s = c->server;

	pthread_mutex_lock(&s->lock);
	if (client_take_over(c)) {
		pthread_mutex_unlock(&s->lock);
		return false;
	}
	client_take(c);
	s->nunheard--;
	free(c);
	if (s->clients == NULL)
		pthread_cond_signal(&s->left);
	pthread_mutex_unlock(&s->lock);
	return true;
}

static void
client_hear(struct client *c)
{
	int rc = karst_ctl_peer(c->fd, &c->peer);

	if (rc == 0)
		server_serve(c);
	else
		karst_log_some(&c->server->refused_log, kd_clock_ns(), KARST_LOG_NOTICE,
			"a connection whose process cannot be identified: %s", strerror(-rc));
}

static void *
client_main(void *arg)
{
	struct client *c = arg;

	if (!c->unheard)
		client_hear(c);
	do
		client_close(c);
	while (!client_leave(c));
	return NULL;
}

/* --- all connections --- */

static int
start_thread(struct client *c)
{
	pthread_attr_t attr;
	int rc = pthread_attr_init(&attr);

	if (rc != 0)
		return -rc;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, SERVER_STACK_BYTES);
	rc = pthread_create(&c->thread, &attr, client_main, c);
	pthread_attr_destroy(&attr);
	return -rc;
}

/* Whether a user that has @mine of @n places, of which there are @max, may have one more: at most
 * three times as many as the number that is left (lib/engine/util/share.h), but at least one. */
static bool
has_share(uint32_t mine, uint32_t n, uint32_t max)
{
	return mine == 0 || (n < max && mine < 3 * (max - n));
}

enum place { HEARD, UNHEARD, KEPT };

/* Prevents a user from blocking others by connections that send nothing, or whose close does not
 * return.  A user whose threads close as many as they may is not heard any more, either.  Lock
 * held. */
static enum place
place_of(const struct kd_server *s, uid_t uid)
{
	uint32_t waiting = 0, closing = 0;
	const struct client *c;

	for (c = s->clients; c != NULL; c = c->next)
		if (c->uid == uid) {
			waiting += c->refused && !c->unheard;
			closing += c->unheard;
		}
	/* connections that end are closed without regard to shares, so there may be more than
	 * MAX_UNHEARD, of which a user with few has none to answer for */
	if (closing >= FEW_CLOSING && !has_share(closing, s->nunheard, MAX_UNHEARD))
		return KEPT;
	return has_share(waiting, s->nrefused, MAX_REFUSED) ? HEARD : UNHEARD;
}

/* Discards messages without descriptors, of a connection that gets no more of them.  With
 * SO_PASSCRED each message has control data, which tells an empty one from the end; there is no
 * room for descriptors beside them.  @return whether none is left, so that close() does not wait */
static bool
discard_messages(int fd)
{
	union {
		struct cmsghdr hdr;
		uint8_t bytes[CMSG_SPACE(sizeof(struct ucred))];
	} control;
	const int on = 1;
	uint8_t byte;

	if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0)
		return false;
	for (;;) {
		struct iovec v = {.iov_base = &byte, .iov_len = sizeof(byte)};
		struct msghdr m = {.msg_iov = &v,
			.msg_iovlen = 1,
			.msg_control = &control,
			.msg_controllen = sizeof(control)};
		ssize_t n = recvmsg(fd, &m, MSG_PEEK | MSG_DONTWAIT);

		if (n < 0 && errno == ECONNRESET) /* which is reported once */
			continue;
		if (n < 0 || (m.msg_flags & MSG_CTRUNC))
			return false;
		if (m.msg_controllen == 0)
			return true;
		(void)recv(fd, &byte, sizeof(byte), MSG_DONTWAIT);
	}
}

/* The user may have no more threads.  Closes @fd now or later, and not in a way that can wait. */
static int
keep_client(struct kd_server *s, int fd, uid_t uid)
{
	struct client *c;
	bool kept = false;

	shutdown(fd, SHUT_RDWR);
	karst_log_some(&s->refused_log, kd_clock_ns(), KARST_LOG_NOTICE,
		"a connection of user %u is refused: the user's earlier connections cannot be "
		"closed, because of descriptors that were sent on them",
		uid);
	if (discard_messages(fd)) {
		close(fd);
		return 0;
	}
	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return -ENOMEM;
	c->fd = fd;
	c->uid = uid;
	pthread_mutex_lock(&s->lock);
	kept = place_of(s, uid) == KEPT;
	if (kept)
		client_put(&s->kept, c);
	pthread_mutex_unlock(&s->lock);
	if (kept)
		return 0;
	free(c);
	return -EAGAIN; /* a thread of the user has returned */
}

/* A connection counts as refused until it is admitted. */
static int
add_client(struct kd_server *s, int fd, uid_t uid)
{
	struct client *c = calloc(1, sizeof(*c));
	enum place place;
	int rc = 0;

	if (c == NULL)
		return -ENOMEM;
	c->server = s;
	c->fd = fd;
	c->uid = uid;
	c->peer.pidfd = -1;
	c->refused = true;
	pthread_mutex_lock(&s->lock);
	place = place_of(s, uid);
	c->unheard = place != HEARD;
	client_put(&s->clients, c);
	s->nunheard += c->unheard;
	s->nrefused += !c->unheard;
	rc = place != KEPT ? start_thread(c) : -EUSERS;
	if (rc != 0) {
		client_take(c);
		s->nunheard -= c->unheard;
		s->nrefused -= !c->unheard;
	}
	pthread_mutex_unlock(&s->lock);
	if (rc != 0)
		free(c);
	return rc == -EUSERS ? keep_client(s, fd, uid) : rc;
}

static bool
is_crowded(struct kd_server *s)
{
	bool yes;

	pthread_mutex_lock(&s->lock);
	yes = s->nrefused >= MAX_REFUSED;
	pthread_mutex_unlock(&s->lock);
	return yes;
}

int
kd_server_accept(struct kd_server *s, int listen_fd)
{
	struct ucred cred = {.uid = (uid_t)-1};
	socklen_t len = sizeof(cred);
	int rc, fd;

	/* a connection for which no thread could be created comes first */
	if (is_crowded(s))
		return -EAGAIN;
	fd = s->waiting_fd;
	if (fd < 0)
		fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		return errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS
			? -errno
			: 0;
	/* a connection whose credentials are unknown belongs to no user; it gets an error */
	(void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
	rc = add_client(s, fd, cred.uid);
	s->waiting_fd = rc != 0 ? fd : -1;
	if (rc != 0)
		karst_log(KARST_LOG_WARNING, "a connection waits: %s", strerror(-rc));
	return rc;
}

static void
interrupted(int signo)
{
	(void)signo;
}

/* Lock held. */
static void
nudge(const struct kd_server *s, bool all)
{
	const struct client *c;

	for (c = s->clients; c != NULL; c = c->next)
		if (all || c->unheard)
			pthread_kill(c->thread, SIGURG);
}

void
kd_server_watch(struct kd_server *s)
{
	pthread_mutex_lock(&s->lock);
	nudge(s, false);
	pthread_mutex_unlock(&s->lock);
	if (s->waiting_fd >= 0)
		(void)kd_server_accept(s, -1);
}

void
kd_server_set_limits(struct kd_server *s, const struct kd_conf *conf)
{
	pthread_mutex_lock(&s->lock);
	kd_conf_reload(&s->conf, conf, NULL, NULL);
	pthread_mutex_unlock(&s->lock);
}

struct kd_server *
kd_server_create(struct karst_engine *e, const struct kd_conf *conf, struct kd_part *part)
{
	/* without SA_RESTART, because the signal has to interrupt system calls */
	const struct sigaction sa = {.sa_handler = interrupted};
	struct kd_server *s = calloc(1, sizeof(*s));
	pthread_condattr_t attr;

	if (s == NULL)
		return NULL;
	s->engine = e;
	s->part = part;
	s->conf = *conf;
	s->waiting_fd = -1;
	sigaction(SIGURG, &sa, NULL);
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->left, &attr);
	pthread_condattr_destroy(&attr);
	return s;
}

/* Lock held. */
static void
wait_a_little(struct kd_server *s)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += NUDGE_MS * 1000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_cond_timedwait(&s->left, &s->lock, &until);
}

void
kd_server_hang_up(struct kd_server *s)
{
	const struct client *c;

	pthread_mutex_lock(&s->lock);
	for (c = s->clients; c != NULL; c = c->next)
		if (c->fd >= 0)
			shutdown(c->fd, SHUT_RDWR);
	pthread_mutex_unlock(&s->lock);
	if (s->waiting_fd >= 0)
		shutdown(s->waiting_fd, SHUT_RDWR);
}

bool
kd_server_destroy(struct kd_server *s)
{
	const struct client *c;
	uint32_t n = 0, ms;

	pthread_mutex_lock(&s->lock);
	/* This ends what a thread does for its program.  A program that has a session must not see
	 * POLLHUP before close(): it would complete its requests in error (lib/client/flush.c)
	 * while an lcore still carries them out. */
	for (c = s->clients; c != NULL; c = c->next)
		if (c->fd >= 0)
			shutdown(c->fd, c->refused ? SHUT_RDWR : SHUT_RD);
	for (ms = 0; s->clients != NULL && ms < LEAVE_WITHIN_MS; ms += NUDGE_MS) {
		wait_a_little(s);
		nudge(s, true);
	}
	for (c = s->clients; c != NULL; c = c->next)
		n++;
	pthread_mutex_unlock(&s->lock);
	if (n != 0) {
		karst_log(KARST_LOG_WARNING,
			"threads that serve %u programs still wait for requests, and are left "
			"behind",
			n);
		return false;
	}
	if (s->waiting_fd >= 0) {
		/* otherwise the end of this process closes it, which waits for nothing */
		shutdown(s->waiting_fd, SHUT_RDWR);
		if (discard_messages(s->waiting_fd))
			close(s->waiting_fd);
	}
	pthread_cond_destroy(&s->left);
	pthread_mutex_destroy(&s->lock);
	free(s);
	return true;
}
