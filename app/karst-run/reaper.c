/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "reaper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "folder.h"
#include "opts.h"
#include "tree.h"

/* Programs and shells do not expect their own descriptors at this number. */
#define HIGH_FD 100

static bool
is_kept(int fd, const int *keep, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		if (keep[i] == fd)
			return true;
	return false;
}

void
kr_reaper_detach(const char *name, const int *keep, unsigned int n)
{
	static const int deaf[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGTSTP};
	long max = sysconf(_SC_OPEN_MAX);
	unsigned int i;
	int fd, last = 2;

	setsid();
	prctl(PR_SET_NAME, name);
	for (i = 0; i < sizeof(deaf) / sizeof(deaf[0]); i++)
		signal(deaf[i], SIG_IGN);
	fd = open("/dev/null", O_RDWR);
	for (i = 0; i < 3; i++)
		if (!is_kept((int)i, keep, n))
			dup2(fd, (int)i);
	for (i = 0; i < n; i++)
		if (keep[i] > last)
			last = keep[i];
	for (fd = 3; fd <= last && fd < max; fd++)
		if (!is_kept(fd, keep, n))
			close(fd);
	syscall(SYS_close_range, last + 1, ~0u, 0);
	if (chdir("/") != 0)
		_exit(1);
}

/* Waits for an event of @fd, which is its end of file. */
static void
wait_for(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	while (fd >= 0 && poll(&p, 1, -1) < 0 && errno == EINTR)
		;
}

static void
reaper_reap(const char *folder, const char *tree, int held, int pidfd, int end)
{
	const int keep[] = {held, pidfd, end};

	kr_reaper_detach("karst-reaper", keep, 3);
	wait_for(pidfd);
	wait_for(end);
	if (tree != NULL)
		kr_tree_remove(tree);
	if (held >= 0)
		close(held);
	kr_folder_leave(folder);
	_exit(0);
}

/* Forks twice; the first child exits at once, so that the reaper is not a child of this process. */
static int
reaper_spawn(const char *folder, const char *tree, int held, int end)
{
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0), status = 1;
	pid_t pid = fork();

	if (pid == 0) {
		pid = fork();
		if (pid == 0)
			reaper_reap(folder, tree, held, pidfd, end);
		_exit(pid < 0);
	}
	if (pidfd >= 0)
		close(pidfd);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
		return -EAGAIN;
	return 0;
}

int
kr_reaper_start(const char *folder, const char *tree, int held)
{
	int fds[2], ret, high;

	if (pipe2(fds, O_CLOEXEC) != 0) {
		kr_fail("a pipe: %s", strerror(errno));
		return -errno;
	}
	ret = reaper_spawn(folder, tree, held, fds[0]);
	close(fds[0]);
	high = ret == 0 ? fcntl(fds[1], F_DUPFD, HIGH_FD) : -1;
	if (ret == 0 && high < 0)
		high = fcntl(fds[1], F_DUPFD, 3); /* the limit of descriptors is lower */
	close(fds[1]);
	if (ret == 0 && high < 0)
		ret = -errno;
	if (ret != 0)
		kr_fail("a process that cleans up afterwards: %s", strerror(-ret));
	return ret;
}
