/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reaper.h"

#define STOP_MS 5000

void
kr_supervised_init(
	struct kr_supervised *k, const struct kr_opts *o, const char *karstd, const char *folder)
{
	memset(k, 0, sizeof(*k));
	k->karstd = karstd;
	k->folder = folder;
	k->linger_s = o->linger_s;
	snprintf(k->socket, sizeof(k->socket), "%s/karst.sock", folder);
	snprintf(k->socket_lock, sizeof(k->socket_lock), "%s.lock", k->socket);
	snprintf(k->conf, sizeof(k->conf), "%s/karst.conf", folder);
	snprintf(k->alive, sizeof(k->alive), "%s/alive", folder);
	k->log_is_ours = o->engine_log == NULL;
	if (k->log_is_ours)
		snprintf(k->log, sizeof(k->log), "%s/karstd.log", folder);
	else
		snprintf(k->log, sizeof(k->log), "%s", o->engine_log);
	k->log_fd = -1;
}

void
kr_supervised_remove(const struct kr_supervised *k)
{
	unlink(k->alive);
	unlink(k->conf);
	if (k->log_is_ours)
		unlink(k->log);
	unlink(k->socket);
	unlink(k->socket_lock);
}

/* --- karstd --- */

static void
become_karstd(const struct kr_supervised *k, pid_t supervisor)
{
	char *const argv[] = {(char *)(uintptr_t) "karstd", (char *)(uintptr_t) "--config",
		(char *)(uintptr_t)k->conf, (char *)(uintptr_t) "--socket",
		(char *)(uintptr_t)k->socket, NULL};
	int i;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != supervisor)
		_exit(1);
	for (i = 1; i < NSIG; i++) /* the supervisor ignores signals, and that would be inherited */
		signal(i, SIG_DFL);
	unsetenv("NOTIFY_SOCKET"); /* systemd waits for another service */
	dup2(k->log_fd, STDOUT_FILENO);
	dup2(k->log_fd, STDERR_FILENO);
	execv(k->karstd, argv);
	dprintf(k->log_fd, "%s: %s\n", k->karstd, strerror(errno));
	_exit(127);
}

static bool
ended_within(int pidfd, int ms)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	return poll(&p, 1, ms) > 0;
}

static void
engine_stop(pid_t pid, int pidfd)
{
	kill(pid, SIGTERM);
	if (!ended_within(pidfd, STOP_MS))
		kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* --- supervising --- */

static bool
is_used(int alive)
{
	struct pollfd p = {.fd = alive};

	return poll(&p, 1, 0) == 0; /* POLLHUP: no process has it open for writing */
}

/* Do the files in the folder still belong to this engine, and not to a successor? */
static bool
engine_is_ours(const struct kr_supervised *k, int alive)
{
	struct stat a, b;

	return fstat(alive, &a) == 0 && lstat(k->alive, &b) == 0 && a.st_ino == b.st_ino &&
		a.st_dev == b.st_dev;
}

static void
clean_up(const struct kr_supervised *k, int alive, int lock)
{
	if (engine_is_ours(k, alive))
		kr_supervised_remove(k);
	kr_folder_unlock(k->folder, lock);
}

/* Waits until karstd ends itself (true), or has not been used for a while (false, with the
 * lock). */
static bool
wait_for_end(const struct kr_supervised *k, int alive, int pidfd, int *lock)
{
	for (;;) {
		struct pollfd p[] = {{.fd = alive}, {.fd = pidfd, .events = POLLIN}};

		if (poll(p, 2, -1) < 0)
			continue;
		if (p[1].revents != 0 || ended_within(pidfd, (int)k->linger_s * 1000))
			return true;
		*lock = kr_folder_lock(k->folder);
		if (*lock < 0 || !is_used(alive))
			return false;
		kr_folder_unlock(k->folder, *lock);
		*lock = -1;
	}
}

static void
supervisor_run(const struct kr_supervised *k, int alive, int report)
{
	pid_t self = getpid(), pid = fork();
	int pidfd, status = 0, lock = -1;

	if (pid == 0)
		become_karstd(k, self);
	close(k->log_fd);
	pidfd = pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0)
		_exit(1);
	if (wait_for_end(k, alive, pidfd, &lock)) {
		waitpid(pid, &status, 0);
		/* the process that has started the supervisor may be waiting for the status, with
		 * the lock */
		if (write(report, &status, sizeof(status)) < 0)
			status = 0;
		lock = kr_folder_lock(k->folder);
	} else {
		engine_stop(pid, pidfd);
	}
	if (lock >= 0)
		clean_up(k, alive, lock);
	_exit(0);
}

int
kr_supervisor_start(const struct kr_supervised *k)
{
	int fds[2], status = 1;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) != 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		pid = fork();
		if (pid == 0) {
			int alive = open(k->alive, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
			const int kept[] = {alive, fds[1], k->log_fd};

			if (alive < 0)
				_exit(1);
			kr_reaper_detach("karst-supervise", kept, 3);
			supervisor_run(k, alive, fds[1]);
		}
		_exit(pid < 0);
	}
	close(fds[1]);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
		close(fds[0]);
		return -EAGAIN;
	}
	return fds[0];
}
