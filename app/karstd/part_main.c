/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The process of the privileged part.  An attacker may control the engine that sends a request, so
 * only what the kernel reports is trusted: the given socket must be from the daemon's listening
 * socket and have a connected peer, and the files that are opened are those of that peer's process.
 * So a request gives the engine only what it gets anyway from programs that are attached.
 *
 * Each program has a thread, because opening a file of a program may block for as long as the
 * program likes (it keeps its address space locked by means of a file system of its own).  Such
 * threads remain when the engine has given up.  Therefore they are counted, and a user has at most
 * three times as many as the number that is left.
 *
 * The part prints nothing, writes no file, and ignores the signals that end the daemon: it ends
 * when the channel is closed.
 */
#include "part.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "caps.h"
#include "confine.h"
#include "karst_ctl_sock.h"
#include "opts.h"
#include "part_msg.h"
#include "xdp.h"

#define PART_STACK_BYTES (192u << 10)
#define MAX_FDS          3u

struct part;

/* A program, served by a thread of its own. */
struct program {
	struct part *part;
	struct program *next, **pprev;
	uid_t uid;
	int line;
	int socket;
	int memfd; /* -1: none */
	struct karst_files files;
};

struct part {
	int fd;
	struct kd_part_setup setup;
	int xdp_fd[KD_MAX_PORTS]; /* programs that are attached; valid once @noted is set */
	bool noted;
	pthread_attr_t attr;
	pthread_mutex_t lock; /* protects the following members */
	struct program *programs;
	uint32_t n;
};

static int
part_tell(int fd, int status, const int *fds, unsigned int nfds)
{
	const struct kd_part_answer a = {.status = status};

	return karst_ctl_send(fd, &a, sizeof(a), fds, nfds);
}

/* --- identifying the program --- */

/*
 * Was this socket created by a connection to the daemon's socket?  Then it has the name of the
 * listening socket, and its other end has no name.  If the engine has connected a socket to another
 * daemon's, the kernel would report the credentials of that daemon; but then it is the other end
 * that has a name.
 */
static bool
has_connected(const struct part *p, int fd)
{
	struct sockaddr_un at;
	socklen_t len = sizeof(at), type_len = sizeof(int);
	int type;

	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len) != 0 || type != SOCK_SEQPACKET)
		return false;
	memset(&at, 0, sizeof(at));
	if (getsockname(fd, (struct sockaddr *)&at, &len) != 0 || len > sizeof(at) ||
		at.sun_family != AF_UNIX ||
		strncmp(at.sun_path, p->setup.socket, sizeof(at.sun_path)) != 0)
		return false;
	len = sizeof(at);
	return getpeername(fd, (struct sockaddr *)&at, &len) == 0 && len == sizeof(sa_family_t);
}

/* Finds /proc/PID of the process that has connected.  It is certain if the kernel provides a
 * descriptor of the process, or if the program's memory was opened there. */
static bool
find_process(struct program *g)
{
	struct karst_ctl_peer peer;
	bool certain;
	int dir;

	if (!has_connected(g->part, g->socket) || karst_ctl_peer(g->socket, &peer) != 0)
		return false;
	certain = peer.pidfd >= 0;
	if (!certain)
		peer.pidfd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
	if (peer.pidfd < 0)
		return false;
	dir = karst_files_dir(peer.pid, peer.pidfd);
	close(peer.pidfd);
	if (dir >= 0 && !certain && !karst_files_is_of(dir, g->memfd)) {
		close(dir);
		dir = -1;
	}
	g->files = (struct karst_files){dir, peer.uid, peer.gid};
	return dir >= 0;
}

/* --- the thread of a program --- */

static void
part_serve(const struct program *g)
{
	struct karst_files_ask ask;
	int fd, rc = 0;
	ssize_t n;

	while (rc == 0) {
		n = recv(g->line, &ask, sizeof(ask), MSG_TRUNC);
		if (n != sizeof(ask))
			break;
		fd = karst_files_open(&g->files, &ask);
		rc = part_tell(g->line, fd >= 0 ? 0 : -EACCES, &fd, fd >= 0);
		if (fd >= 0)
			close(fd);
	}
}

static void
part_forget(struct program *g)
{
	struct part *p = g->part;

	pthread_mutex_lock(&p->lock);
	*g->pprev = g->next;
	if (g->next != NULL)
		g->next->pprev = g->pprev;
	p->n--;
	pthread_mutex_unlock(&p->lock);
	if (g->files.procfd >= 0)
		close(g->files.procfd);
	close(g->line);
	free(g);
}

/* Closes the copy of the program's socket early, so that the program notices when the engine closes
 * the connection. */
static void
drop_sources(struct program *g)
{
	close(g->socket);
	if (g->memfd >= 0)
		close(g->memfd);
}

static void *
program_main(void *arg)
{
	struct program *g = arg;
	bool good = find_process(g);

	drop_sources(g);
	if (good)
		part_serve(g);
	part_forget(g);
	return NULL;
}

/* --- the daemon's channel --- */

/* Is there room for one more program of this user? */
static bool
part_may_have(const struct part *p, uid_t uid)
{
	const struct program *g;
	uint32_t mine = 0, left;

	for (g = p->programs; g != NULL; g = g->next)
		mine += g->uid == uid;
	/* threads that wait forever must not exclude other users */
	left = 2 * p->setup.max_lines - karst_min_u32(p->n, 2 * p->setup.max_lines);
	return left > 0 && (mine == 0 || mine < 3 * left);
}

/* Takes over the descriptors.  @return false: they still belong to the caller. */
static bool
add_program(struct part *p, const int *fds, unsigned int nfds)
{
	struct program *g = nfds == 2 || nfds == 3 ? calloc(1, sizeof(*g)) : NULL;
	struct ucred cred;
	socklen_t len = sizeof(cred);
	pthread_t thread;
	bool good = false;

	if (g == NULL)
		return false;
	*g = (struct program){.part = p,
		.line = fds[KD_PART_FD_LINE],
		.socket = fds[KD_PART_FD_SOCKET],
		.memfd = nfds == 3 ? fds[KD_PART_FD_MEMORY] : -1,
		.files = {.procfd = -1}};
	pthread_mutex_lock(&p->lock);
	if (getsockopt(g->socket, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 &&
		part_may_have(p, cred.uid)) {
		g->uid = cred.uid;
		g->next = p->programs;
		g->pprev = &p->programs;
		if (g->next != NULL)
			g->next->pprev = &g->next;
		p->programs = g;
		p->n++;
		good = pthread_create(&thread, &p->attr, program_main, g) == 0;
		if (!good) {
			p->programs = g->next;
			if (g->next != NULL)
				g->next->pprev = &p->programs;
			p->n--;
		}
	}
	pthread_mutex_unlock(&p->lock);
	if (!good)
		free(g);
	return good;
}

/* Takes over the descriptors, one program for each interface.  @return false: they still belong to
 * the caller. */
static bool
note_xdp(struct part *p, const int *fds, unsigned int nfds)
{
	if (p->noted || nfds != p->setup.nxdp)
		return false;
	memcpy(p->xdp_fd, fds, nfds * sizeof(*fds));
	p->noted = true;
	return true;
}

/* Removes the daemon's programs, but not programs that were attached by others since. */
static void
remove_xdp(const struct part *p)
{
	uint32_t i;

	for (i = 0; p->noted && i < p->setup.nxdp; i++)
		kd_xdp_remove(p->setup.xdp[i], p->xdp_fd[i]);
}

/* @return true: the descriptors were taken over. */
static bool
part_take(struct part *p, uint32_t kind, const int *fds, unsigned int nfds)
{
	bool taken;

	switch (kind) {
	case KD_PART_PROGRAM:
		return add_program(p, fds, nfds);
	case KD_PART_READY:
		taken = note_xdp(p, fds, nfds);
		(void)part_tell(p->fd, taken ? 0 : -EPROTO, NULL, 0);
		return taken;
	default:
		return false;
	}
}

/* Handles messages, one by one, until the engine's end is closed. */
static void
part_attend(struct part *p, uint8_t *buf)
{
	int fds[KARST_CTL_MAX_FDS], rc;
	struct kd_part_msg msg;
	unsigned int nfds;
	size_t len;

	for (;;) {
		rc = karst_ctl_recv(p->fd, buf, &len, fds, &nfds);
		if (rc == -EMSGSIZE || rc == -EMFILE)
			continue;
		if (rc != 0)
			return;
		memcpy(&msg, buf, sizeof(msg));
		if (!part_take(p, len == sizeof(msg) ? msg.kind : 0, fds, nfds))
			karst_ctl_close_fds(fds, nfds);
	}
}

/* --- start --- */

static int
take_setup(struct part *p, uint8_t *buf)
{
	int fds[KARST_CTL_MAX_FDS];
	unsigned int nfds;
	size_t len;
	int rc = karst_ctl_recv(p->fd, buf, &len, fds, &nfds);

	if (rc != 0)
		return rc;
	karst_ctl_close_fds(fds, nfds);
	if (len != sizeof(p->setup))
		return -EPROTO;
	memcpy(&p->setup, buf, sizeof(p->setup));
	p->setup.socket[sizeof(p->setup.socket) - 1] = '\0';
	return p->setup.nxdp <= KD_MAX_PORTS ? 0 : -EPROTO;
}

static void
ignore_signals(void)
{
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
}

int
kd_part_main(int fd)
{
	static const struct kd_confine confine = {.part = KD_CONFINE_PART};
	uint8_t *buf = malloc(KARST_CTL_MAX);
	struct part *p = calloc(1, sizeof(*p));
	int rc;

	if (p == NULL || buf == NULL)
		return KD_EXIT_FAILED;
	ignore_signals();
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	p->fd = fd;
	pthread_mutex_init(&p->lock, NULL);
	pthread_attr_init(&p->attr);
	pthread_attr_setdetachstate(&p->attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&p->attr, PART_STACK_BYTES);
	rc = take_setup(p, buf);
	/* if it runs as user 0, it got all capabilities when it was executed */
	if (rc == 0)
		rc = kd_caps_keep(kd_caps_ambient(), KD_CAPS_WITHIN_S);
	if (rc == 0)
		rc = kd_caps_raise();
	if (rc == 0)
		rc = kd_confine(&confine);
	if (rc == 0)
		rc = part_tell(fd, 0, NULL, 0);
	if (rc != 0)
		return KD_EXIT_FAILED;
	part_attend(p, buf);
	remove_xdp(p);
	return 0;
}
