/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * In the guest: runs the shell lines that arrive on a virtio-serial port, several at a time.
 *
 *   agent PORT        (the guest's init executes it)
 *
 * Lines to it:   run ID LIMIT_MS COMMAND    a job: sh -c COMMAND, in a session of its own
 *                kill ID                    ends it
 * From it:       ready
 *                out ID LENGTH, followed by that many bytes of the job's output
 *                end ID STATUS              exit status; 128 and the signal's number; -1: the limit
 *
 * The host chooses the IDs, below JOBS; an ID is free again when its end was sent.  When a job's
 * first process ends, the rest of its session's process group is killed, so that no case leaves
 * processes to the next; a process that is meant to stay starts a session of its own (setsid).
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define JOBS       64u
#define LINE_BYTES 8192u
#define CHUNK      4096u

struct job {
	pid_t pid; /* 0: free */
	int out;   /* -1: the job has closed it */
	bool late; /* its limit was reached */
	int64_t end_ms;
};

struct agent {
	int port;
	int children; /* signalfd of SIGCHLD */
	struct job job[JOBS];
	char line[LINE_BYTES];
	size_t have;
};

static int64_t
now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void
say(struct agent *a, const void *data, size_t len)
{
	const char *at = data;
	ssize_t n;

	while (len > 0) {
		n = write(a->port, at, len);
		if (n > 0) {
			at += n;
			len -= (size_t)n;
		} else if (errno == EAGAIN) {
			poll(&(struct pollfd){.fd = a->port, .events = POLLOUT}, 1, 1000);
		} else if (errno != EINTR) {
			_exit(1);
		}
	}
}

static void
say_end(struct agent *a, uint32_t id, int status)
{
	char text[64];

	say(a, text, (size_t)snprintf(text, sizeof(text), "end %u %d\n", id, status));
}

/* In the job's process: sets it up. */
static void
become(const char *command, int out)
{
	int null = open("/dev/null", O_RDONLY);
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	if (dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
		_exit(127);
	execl("/bin/sh", "sh", "-c", command, (char *)NULL);
	_exit(127);
}

static void
start(struct agent *a, uint32_t id, long limit_ms, const char *command)
{
	struct job *j = &a->job[id];
	int fds[2];

	if (j->pid != 0 || pipe2(fds, O_CLOEXEC) != 0) {
		say_end(a, id, 126);
		return;
	}
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	j->pid = fork();
	if (j->pid == 0)
		become(command, fds[1]);
	close(fds[1]);
	if (j->pid < 0) {
		close(fds[0]);
		j->pid = 0;
		say_end(a, id, 126);
		return;
	}
	j->out = fds[0];
	j->late = false;
	j->end_ms = now_ms() + limit_ms;
}

static void
end_group(const struct job *j)
{
	if (kill(-j->pid, SIGKILL) != 0)
		kill(j->pid, SIGKILL); /* it has no session yet */
}

static void
obey(struct agent *a, char *line)
{
	unsigned int id;
	long limit_ms;
	int at = 0;

	if (sscanf(line, "run %u %ld %n", &id, &limit_ms, &at) == 2 && at > 0 && id < JOBS)
		start(a, id, limit_ms, line + at);
	else if (sscanf(line, "kill %u", &id) == 1 && id < JOBS && a->job[id].pid != 0)
		end_group(&a->job[id]);
}

/* @return false: nothing is listening at the other end. */
static bool
take_lines(struct agent *a)
{
	ssize_t n = read(a->port, a->line + a->have, sizeof(a->line) - 1 - a->have);
	char *end;

	if (n <= 0)
		return n < 0 && (errno == EAGAIN || errno == EINTR);
	a->have += (size_t)n;
	while ((end = memchr(a->line, '\n', a->have)) != NULL) {
		*end++ = '\0';
		obey(a, a->line);
		a->have -= (size_t)(end - a->line);
		memmove(a->line, end, a->have);
	}
	return a->have < sizeof(a->line) - 1;
}

static void
pass_on(struct agent *a, uint32_t id)
{
	char text[64 + CHUNK];
	char data[CHUNK];
	ssize_t n;
	int head;

	if (a->job[id].out < 0)
		return;
	while ((n = read(a->job[id].out, data, sizeof(data))) > 0) {
		head = snprintf(text, sizeof(text), "out %u %zd\n", id, n);
		memcpy(text + head, data, (size_t)n);
		say(a, text, (size_t)head + (size_t)n);
	}
	if (n == 0) {
		close(a->job[id].out);
		a->job[id].out = -1;
	}
}

static void
look_after(struct agent *a, uint32_t id)
{
	struct job *j = &a->job[id];
	int status;

	if (!j->late && now_ms() >= j->end_ms) {
		j->late = true;
		end_group(j);
	}
	pass_on(a, id);
	if (waitpid(j->pid, &status, WNOHANG) != j->pid)
		return;
	kill(-j->pid, SIGKILL);
	pass_on(a, id);
	if (j->out >= 0)
		close(j->out);
	j->pid = 0;
	if (j->late)
		say_end(a, id, -1);
	else
		say_end(a, id, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* Reaps orphans, as this process is init. */
static void
reap_others(struct agent *a)
{
	siginfo_t info = {0};
	uint32_t id;

	while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
		for (id = 0; id < JOBS; id++)
			if (a->job[id].pid == info.si_pid)
				return;
		waitpid(info.si_pid, NULL, 0);
		info.si_pid = 0;
	}
}

/* How long to wait for events: until the first limit. -1: for ever */
static int
nap_ms(const struct agent *a)
{
	int64_t first = INT64_MAX, now = now_ms();
	uint32_t id;

	for (id = 0; id < JOBS; id++)
		if (a->job[id].pid != 0 && !a->job[id].late && a->job[id].end_ms < first)
			first = a->job[id].end_ms;
	if (first == INT64_MAX)
		return -1;
	first = first > now ? first - now : 0;
	return first > INT_MAX ? INT_MAX : (int)first;
}

/* Waits for a line, for output, for the end of a process or of a job's time.  @return whether there
 * may be lines. */
static bool
wait_for_any(const struct agent *a)
{
	struct signalfd_siginfo ended;
	struct pollfd all[JOBS + 2];
	nfds_t n = 0;
	uint32_t id;

	all[n++] = (struct pollfd){.fd = a->port, .events = POLLIN};
	all[n++] = (struct pollfd){.fd = a->children, .events = POLLIN};
	for (id = 0; id < JOBS; id++)
		if (a->job[id].pid != 0)
			all[n++] = (struct pollfd){.fd = a->job[id].out, .events = POLLIN};
	poll(all, n, nap_ms(a));
	while (read(a->children, &ended, sizeof(ended)) > 0)
		;
	return all[0].revents & (POLLIN | POLLHUP | POLLERR);
}

int
main(int argc, char **argv)
{
	static struct agent a;
	bool open_end = true;
	sigset_t child;
	uint32_t id;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	a.children = signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC);
	if (argc != 2 || a.children < 0 || (a.port = open(argv[1], O_RDWR | O_CLOEXEC)) < 0) {
		fprintf(stderr, "agent: no port\n");
		return 1;
	}
	fcntl(a.port, F_SETFL, O_NONBLOCK);
	say(&a, "ready\n", 6);
	while (open_end) {
		if (wait_for_any(&a))
			open_end = take_lines(&a);
		for (id = 0; id < JOBS; id++)
			if (a.job[id].pid != 0)
				look_after(&a, id);
		reap_others(&a);
	}
	return 0;
}
