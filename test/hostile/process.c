/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Processes that report, what a machine permits them, time, and the TAP stream. */
#include "hostile.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void
note(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	printf("# ");
	vprintf(fmt, ap);
	printf("\n");
	fflush(stdout);
	va_end(ap);
}

uint64_t
now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void
sleep_ms(uint32_t ms)
{
	const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

	nanosleep(&t, NULL);
}

void
await_completions(void)
{
	const struct timespec t = {.tv_nsec = 200000};

	nanosleep(&t, NULL);
}

bool
can_serve_files(void)
{
	if (access("/dev/fuse", R_OK | W_OK) == 0)
		return true;
	note("no /dev/fuse");
	return false;
}

bool
can_be_two_users(void)
{
	if (geteuid() == 0)
		return true;
	note("needs root, for programs of two users");
	return false;
}

bool
child_start(struct child *c, void (*fn)(struct report *r, void *arg), void *arg)
{
	return child_start_told(c, fn, arg, 0);
}

bool
child_start_told(
	struct child *c, void (*fn)(struct report *r, void *arg), void *arg, uint32_t peer_qpn)
{
	pid_t parent = getpid();

	c->report = mmap(NULL, sizeof(*c->report), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (c->report == MAP_FAILED) {
		note("mmap: %s", strerror(errno));
		return false;
	}
	c->report->qpn[1] = peer_qpn;
	c->pid = fork();
	if (c->pid < 0)
		note("fork: %s", strerror(errno));
	if (c->pid != 0)
		return c->pid > 0;
	/* whatever happens to the test, no child is left behind */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	fn(c->report, arg);
	_exit(0);
}

void
child_fail(struct report *r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->fault, sizeof(r->fault), fmt, ap);
	va_end(ap);
	_exit(1);
}

void
child_become(struct report *r, uid_t uid)
{
	/* a change of user makes a process undumpable, so that others may not look into it */
	if (geteuid() == 0 &&
		(setgroups(0, NULL) != 0 || setgid(uid) != 0 || setuid(uid) != 0 ||
			prctl(PR_SET_DUMPABLE, 1) != 0))
		child_fail(r, "becoming user %u: %s", uid, strerror(errno));
}

void
child_become_nobody(struct report *r)
{
	child_become(r, NOBODY);
}

bool
child_alive(struct child *c)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
		info.si_pid == 0;
}

bool
child_until_ready(struct child *c)
{
	uint64_t until = now_ms() + HANG_S * 1000;

	while (child_alive(c) && !atomic_load(&c->report->ready)) {
		if (now_ms() > until) {
			note("process %d is not ready after %d s", (int)c->pid, HANG_S);
			return false;
		}
		sleep_ms(1);
	}
	return atomic_load(&c->report->ready);
}

static void
forget(struct child *c)
{
	munmap(c->report, sizeof(*c->report));
	c->pid = 0;
}

void
child_kill(struct child *c)
{
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
	forget(c);
}

bool
child_stop(struct child *c, const char *what)
{
	uint64_t until = now_ms() + HANG_S * 1000;
	int status = 0;
	bool good;

	atomic_store(&c->report->stop, true);
	while (child_alive(c)) {
		if (now_ms() > until) {
			note("%s: does not stop", what);
			child_kill(c);
			return false;
		}
		sleep_ms(2);
	}
	waitpid(c->pid, &status, 0);
	good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
	if (!good && WIFSIGNALED(status))
		note("%s: killed by signal %d", what, WTERMSIG(status));
	else if (!good)
		note("%s: %s", what, c->report->fault);
	forget(c);
	return good;
}
