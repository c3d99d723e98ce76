/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The privileged part is the daemon's program, executed again, so that its addresses and its stack
 * canary differ from the engine's.  It gets the capabilities that it keeps as ambient ones.
 *
 * Each program has a line of its own to it, which is created at its first request.  So if a program
 * keeps its address space locked, only that program's own threads on both sides wait.
 */
#include "part.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "caps.h"
#include "karst_ctl_sock.h"
#include "karst_log.h"
#include "opts.h"
#include "part_msg.h"
#include "port_kind.h"
#include "xdp.h"

#define SELF       "/proc/self/exe"
#define WITHIN_MS  15000  /* if a program keeps its address space locked; less than a stop takes */
#define STARTUP_MS 120000 /* a part that ends is noticed at once; this is for one that hangs */

/* --- start --- */

/* Fills in the configuration that it needs. */
static void
fill_setup(struct kd_part_setup *s, const struct kd_conf *c)
{
	uint32_t i;

	memset(s, 0, sizeof(*s));
	memcpy(s->socket, c->socket.path, sizeof(s->socket));
	s->max_lines = c->socket.max_clients;
	for (i = 0; i < c->nports; i++)
		if (kd_port_needs(&c->port[i]).xdp)
			snprintf(s->xdp[s->nxdp++], sizeof(s->xdp[0]), "%.15s", c->port[i].device);
}

/* Runs in the child; calls only async-signal-safe functions. */
static void
part_become(int fd, uint64_t keep)
{
	char *const argv[] = {
		(char *)(uintptr_t) "karstd-part", (char *)(uintptr_t)KD_PART_OPTION, NULL};
	int rc = kd_caps_hand_over(keep);

	if (rc == 0 && fd == KD_PART_CHANNEL)
		rc = fcntl(fd, F_SETFD, 0);
	else if (rc == 0)
		rc = dup2(fd, KD_PART_CHANNEL);
	if (rc >= 0)
		close_range(KD_PART_CHANNEL + 1, ~0u, 0);
	if (rc >= 0)
		execv(SELF, argv);
	_exit(KD_EXIT_FAILED);
}

/* Waits for an answer on the daemon's channel. */
static int
part_answer(const struct kd_part *p, int within_ms)
{
	struct pollfd fd = {.fd = p->fd, .events = POLLIN};
	struct kd_part_answer a;
	int n;

	do {
		n = poll(&fd, 1, within_ms);
	} while (n < 0 && errno == EINTR);
	if (n == 0)
		return -ETIMEDOUT;
	if (recv(p->fd, &a, sizeof(a), MSG_DONTWAIT) != sizeof(a))
		return -ECONNRESET;
	return a.status;
}

static int
fork_it(struct kd_part *p, uint64_t keep)
{
	int ends[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		part_become(ends[1], keep);
	close(ends[1]);
	p->fd = ends[0];
	return pid > 0 ? 0 : -errno;
}

int
kd_part_start(struct kd_part *p, const struct kd_conf *c)
{
	const struct timeval within = {.tv_sec = WITHIN_MS / 1000};
	uint64_t keep = kd_caps_have() & kd_caps_of_part(kd_port_needs_any(c).xdp);
	struct kd_part_setup setup;
	int rc;

	p->fd = -1;
	atomic_init(&p->gone, false);
	if (keep == 0)
		return 0;
	fill_setup(&setup, c);
	rc = fork_it(p, keep);
	if (rc == 0)
		rc = karst_ctl_send(p->fd, &setup, sizeof(setup), NULL, 0);
	if (rc == 0)
		rc = part_answer(p, STARTUP_MS);
	if (rc != 0)
		karst_log(KARST_LOG_ERR, "the privileged part does not start: %s", strerror(-rc));
	else
		setsockopt(p->fd, SOL_SOCKET, SO_SNDTIMEO, &within, sizeof(within));
	return rc;
}

/* Opens the programs that are attached to the interfaces, one descriptor each.  -ENOENT: one cannot
 * be opened. */
static int
xdp_programs(const struct kd_part_setup *s, int *fds)
{
	uint32_t i;

	for (i = 0; i < s->nxdp; i++) {
		fds[i] = kd_xdp_program(s->xdp[i]);
		if (fds[i] < 0) {
			karst_ctl_close_fds(fds, i);
			return -ENOENT;
		}
	}
	return 0;
}

int
kd_part_ready(struct kd_part *p, const struct kd_conf *c)
{
	const struct kd_part_msg msg = {.kind = KD_PART_READY};
	struct kd_part_setup setup;
	int fds[KD_MAX_PORTS], rc;

	if (p->fd < 0)
		return 0;
	fill_setup(&setup, c);
	if (xdp_programs(&setup, fds) != 0) {
		karst_log(KARST_LOG_WARNING,
			"XDP programs stay attached when this daemon ends: it may not look at "
			"them");
		return 0;
	}
	rc = karst_ctl_send(p->fd, &msg, sizeof(msg), fds, setup.nxdp);
	karst_ctl_close_fds(fds, setup.nxdp);
	if (rc == 0)
		rc = part_answer(p, STARTUP_MS);
	if (rc != 0)
		karst_log(KARST_LOG_ERR, "the privileged part: %s", strerror(-rc));
	return rc;
}

/* --- end --- */

void
kd_part_lost(struct kd_part *p)
{
	if (!atomic_exchange(&p->gone, true))
		karst_log(KARST_LOG_ERR,
			"the privileged part has ended unexpectedly: shared memory of other "
			"users' programs is copied from now on, and XDP programs stay attached "
			"when "
			"this daemon ends; start it again when that suits");
}

void
kd_part_stop(struct kd_part *p)
{
	struct pollfd fd = {.fd = p->fd, .events = POLLIN};

	if (p->fd < 0)
		return;
	shutdown(p->fd, SHUT_WR);
	/* it closes its end when it is done */
	while (poll(&fd, 1, STARTUP_MS) < 0 && errno == EINTR)
		;
	close(p->fd);
	p->fd = -1;
}

/* --- a program's line --- */

static int
open_line(struct kd_part *p, struct kd_part_line *line, int socket, int memfd)
{
	const struct kd_part_msg msg = {.kind = KD_PART_PROGRAM};
	int ends[2], rc;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
		return -errno;
	rc = karst_ctl_send(p->fd, &msg, sizeof(msg), (const int[]){socket, ends[1], memfd},
		memfd >= 0 ? 3 : 2);
	close(ends[1]);
	if (rc != 0) {
		close(ends[0]);
		return rc;
	}
	line->fd = ends[0];
	line->state = KD_PART_OPEN;
	return 0;
}

void
kd_part_hang_up(struct kd_part_line *line)
{
	if (line->state == KD_PART_OPEN)
		close(line->fd);
	line->state = KD_PART_REFUSED;
}

/* @return the descriptor; -1: there is none; a -errno less than -1: the connection is broken. */
static int
part_ask(const struct kd_part_line *line, const struct karst_files_ask *what)
{
	struct pollfd fd = {.fd = line->fd, .events = POLLIN};
	int fds[KARST_CTL_MAX_FDS], rc;
	uint8_t buf[KARST_CTL_MAX];
	struct kd_part_answer a;
	unsigned int nfds;
	size_t len;

	rc = karst_ctl_send(line->fd, what, sizeof(*what), NULL, 0);
	while (rc == 0 && (rc = poll(&fd, 1, WITHIN_MS)) < 0 && errno == EINTR)
		rc = 0;
	if (rc <= 0)
		return -ETIMEDOUT;
	if (karst_ctl_recv(line->fd, buf, &len, fds, &nfds) != 0)
		return -ECONNRESET;
	memcpy(&a, buf, sizeof(a));
	if (len == sizeof(a) && nfds == (a.status == 0))
		return nfds == 1 ? fds[0] : -1;
	karst_ctl_close_fds(fds, nfds);
	return -EPROTO;
}

int
kd_part_ask(struct kd_part *p, struct kd_part_line *line, int socket, int memfd,
	const struct karst_files_ask *what)
{
	int fd;

	if (p->fd < 0 || atomic_load(&p->gone) || line->state == KD_PART_REFUSED)
		return -1;
	if (line->state == KD_PART_NOT_YET && open_line(p, line, socket, memfd) != 0)
		return -1;
	fd = part_ask(line, what);
	if (fd < -1)
		kd_part_hang_up(line);
	return fd < 0 ? -1 : fd;
}
