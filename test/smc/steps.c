/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A signal handler leaves a call by siglongjmp(), at each instruction of the call.  POSIX allows
 * this in calls that are safe in signal handlers, as these are.
 *
 *   smc-steps ADDRESS COUNT [CALL [STEP]]
 *
 * COUNT: how many instructions of each call, evenly spread; 0: all.  CALL: only this one, and STEP:
 * only after this many instructions.
 *
 * A child makes the calls on its own connection.  The parent executes it instruction by instruction
 * (PTRACE_SINGLESTEP) from before the call on, and then sends the signal.  After each
 * call the child checks the connection, its locks, the descriptors, and the state of the thread.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "karst_sock.h"

#define HANG_S   10
#define TICK_MS  5 /* a step that takes longer may be a system call that waits */
#define AT_BEGIN SIGSTOP
#define AT_END   SIGTTIN
#define SEEN     100 /* the library's descriptors have higher numbers */
#define MUCH     (1 << 20)
#define LEAST    100 /* instructions of a call, at least */

static struct sockaddr_in address;
static int listener, near = -1, far = -1;
/* The number that a duplicate of near gets, and the other end of the connection that has this
 * number before; -1: it has another file. */
static int again = -1, other = -1;
static char data[MUCH], other_stack[65536];
static sigjmp_buf back;
static volatile sig_atomic_t inside, came;

/* --- the child --- */

static void
wrong(const char *what)
{
	printf("%s\n", what);
	fflush(stdout);
	_exit(1);
}

static void
leave(int sig)
{
	(void)sig;
	if (inside)
		siglongjmp(back, 1);
}

static void
note(int sig)
{
	(void)sig;
	came = 1;
}

static int
count_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (d != NULL && readdir(d) != NULL)
		n++;
	if (d == NULL || closedir(d) != 0)
		wrong("the descriptors cannot be counted");
	return n;
}

static bool
is_ready(int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};

	return poll(&p, 1, 0) > 0;
}

static void
begin_connect(void)
{
	near = socket(AF_INET, SOCK_STREAM, 0);
}

static void
begin_accept(void)
{
	begin_connect();
	if (connect(near, (void *)&address, sizeof(address)) != 0)
		wrong("connect");
}

static void
begin_wait(void)
{
	char byte;

	begin_accept();
	far = accept(listener, NULL, NULL);
	if (far < 0 || send(near, "x", 1, 0) != 1 || recv(far, &byte, 1, 0) != 1 ||
		send(far, "y", 1, 0) != 1 || recv(near, &byte, 1, 0) != 1)
		wrong("a connection");
}

static void
begin_byte(void)
{
	struct pollfd p = {.events = POLLIN};

	begin_wait();
	p.fd = near;
	if (send(far, "z", 1, 0) != 1 || poll(&p, 1, -1) != 1)
		wrong("a byte");
}

static void
begin_full(void)
{
	begin_wait();
	while (send(near, data, sizeof(data), MSG_DONTWAIT) > 0)
		continue;
}

static void
begin_duplicate_on_file(void)
{
	begin_wait();
	again = open("/dev/null", O_RDWR | O_CLOEXEC);
}

static void
begin_duplicate_on_connection(void)
{
	begin_wait();
	again = near;
	other = far;
	begin_wait();
}

static void
do_duplicate(void)
{
	(void)dup2(near, again);
}

static void
do_connect(void)
{
	(void)connect(near, (void *)&address, sizeof(address));
}

static void
do_accept(void)
{
	far = accept(listener, NULL, NULL);
}

static void
do_read(void)
{
	(void)!read(near, data, 10);
}

static void
do_write(void)
{
	(void)!write(near, "w", 1);
}

static void
do_poll(void)
{
	struct pollfd p = {.fd = near, .events = POLLIN};

	(void)poll(&p, 1, -1);
}

static void
do_close(void)
{
	(void)close(near);
}

static const struct {
	const char *name;
	void (*begin)(void), (*call)(void);
	bool waits;   /* until it is left.  The others end, perhaps after they have waited */
	bool may_end; /* it waits, unless the service makes room meanwhile */
	bool other;   /* the handler runs on a stack of its own */
} cases[] = {
	{"read", begin_wait, do_read, true},
	{"read-byte", begin_byte, do_read, false},
	{"write", begin_wait, do_write, false},
	{"write-full", begin_full, do_write, true, true},
	{"poll", begin_wait, do_poll, true},
	{"poll-byte", begin_byte, do_poll, false},
	{"connect", begin_connect, do_connect, false},
	{"accept", begin_accept, do_accept, false},
	{"close", begin_wait, do_close, false},
	{"dup2-file", begin_duplicate_on_file, do_duplicate, false},
	{"dup2-connection", begin_duplicate_on_connection, do_duplicate, false},
	{"read-other-stack", begin_wait, do_read, true, .other = true},
	{"read-byte-other-stack", begin_byte, do_read, false, .other = true},
	{"write-other-stack", begin_wait, do_write, false, .other = true},
	{"accept-other-stack", begin_accept, do_accept, false, .other = true},
};
#define CASES (sizeof(cases) / sizeof(cases[0]))

/* The page of near, by its own port.  NULL: it has none. */
static const struct karst_sock_page *
find_page(void)
{
	struct sockaddr_in own;
	socklen_t len = sizeof(own);
	FILE *f = fopen("/proc/self/maps", "re");
	const struct karst_sock_page *found = NULL;
	unsigned long from, to;
	char line[512];

	if (getsockname(near, (void *)&own, &len) != 0)
		own.sin_port = 0;
	while (f != NULL && own.sin_port != 0 && fgets(line, sizeof(line), f) != NULL) {
		const struct karst_sock_page *p;

		if (strstr(line, "memfd:karst-smc") == NULL ||
			sscanf(line, "%lx-%lx", &from, &to) != 2 || to - from != KARST_SOCK_PAGE)
			continue;
		p = (const struct karst_sock_page *)from;
		if (((const struct sockaddr_in *)&p->local)->sin_port == own.sin_port)
			found = p;
	}
	if (f != NULL)
		fclose(f);
	return found;
}

static void
check_page(void)
{
	const struct karst_sock_page *p = find_page();

	if (p == NULL)
		wrong("it has no page");
	if (atomic_load(&p->rx_lock.owner) != 0 || atomic_load(&p->tx_lock.owner) != 0)
		wrong("a lock of the page is held");
	if (*(const volatile uint32_t *)&p->sleepers != 0 || p->crowd != 0)
		wrong("the page counts a thread that sleeps");
}

static void
check_thread(void)
{
	sigset_t mask;
	int state;

	came = 0;
	raise(SIGUSR1);
	if (!came)
		wrong("signals do not come");
	if (sigprocmask(SIG_BLOCK, NULL, &mask) != 0 || sigismember(&mask, SIGALRM) ||
		sigismember(&mask, SIGUSR2))
		wrong("a signal is blocked");
	if (pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) != 0 ||
		state != PTHREAD_CANCEL_ENABLE)
		wrong("the thread cannot be cancelled");
}

/* Whether @to gets @byte, after what was on its way before, and no more. */
static bool
is_last(int from, int to, char byte)
{
	ssize_t n;

	while (recv(to, data, sizeof(data), MSG_DONTWAIT) > 0)
		continue;
	if (send(from, &byte, 1, 0) != 1)
		return false;
	do
		n = recv(to, data, sizeof(data), 0);
	while (n > 0 && data[n - 1] != byte);
	return n > 0 && !is_ready(to, POLLIN);
}

/* Whatever was sent, and the call may have taken, the connection transfers what comes next, and
 * ends. */
static void
check_bytes(void)
{
	if (!is_last(far, near, 'e'))
		wrong("near does not get a byte, and no more");
	if (!is_last(near, far, 'f'))
		wrong("far does not get a byte, and no more");
	close(near);
	if (recv(far, data, 1, 0) != 0)
		wrong("far does not get the end");
}

/* The number transfers bytes of the connection that it has in the kernel. */
static void
check_duplicate(void)
{
	struct stat a, b;
	int end = other;

	if (fstat(near, &a) != 0 || fstat(again, &b) != 0)
		wrong("a descriptor is closed");
	if (a.st_ino == b.st_ino && a.st_dev == b.st_dev)
		end = far;
	if (end >= 0 && (!is_last(end, again, 'g') || !is_last(again, end, 'h')))
		wrong("the duplicate does not transfer a byte, and no more");
	close(again);
	if (other >= 0 && recv(other, data, 1, 0) != 0)
		wrong("the connection that had the number does not end");
	again = other = -1;
}

/* As the kernel's accept(), the call may have been left when it had a descriptor already. */
static void
close_all(int from)
{
	for (int fd = from; fd < SEEN; fd++)
		(void)close(fd);
	while (is_ready(listener, POLLIN))
		close(accept(listener, NULL, NULL));
	near = far = -1;
}

static void
end_call(unsigned int c)
{
	check_thread();
	if (cases[c].call == do_duplicate)
		check_duplicate();
	if (cases[c].call == do_close) {
		close(near);
		if (recv(far, data, 1, 0) != 0)
			wrong("far does not get the end");
	} else if (cases[c].call != do_connect && cases[c].call != do_accept) {
		check_page();
		check_bytes();
	}
	check_thread();
}

/* Where the parent begins to count, and where it ends.  It does not deliver these signals. */
static void
stop_here(int sig)
{
	(void)kill(getpid(), sig);
}

static void
call_once(unsigned int c)
{
	cases[c].begin();
	if (sigsetjmp(back, 1) == 0) {
		inside = 1;
		stop_here(AT_BEGIN);
		cases[c].call();
		inside = 0;
		stop_here(AT_END);
	}
	inside = 0;
	end_call(c);
}

/* Makes the same call until it is killed. */
static void
call_often(unsigned int c)
{
	const struct sigaction leaves = {.sa_handler = leave,
				       .sa_flags = cases[c].other ? SA_ONSTACK : 0},
			       notes = {.sa_handler = note};
	const stack_t stack = {.ss_sp = other_stack, .ss_size = sizeof(other_stack)};
	socklen_t len = sizeof(address);
	int before, now;

	listener = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (void *)&address, sizeof(address)) != 0 || listen(listener, 8) != 0 ||
		getsockname(listener, (void *)&address, &len) != 0)
		wrong("a listener");
	(void)sigaltstack(&stack, NULL);
	(void)sigaction(SIGALRM, &leaves, NULL);
	(void)sigaction(SIGUSR1, &notes, NULL);
	for (int i = 0; i < 2; i++) { /* what the first connection of a process needs stays open */
		begin_wait();
		end_call(0);
		close_all(listener + 1);
	}
	before = count_descriptors();
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
		wrong("PTRACE_TRACEME");
	for (;;) {
		call_once(c);
		close_all(listener + 1);
		now = count_descriptors();
		if (now != before) {
			printf("%+d descriptors: ", now - before);
			wrong("they stay open");
		}
	}
}

/* --- the parent --- */

static pid_t child;

static double
now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Whether the child sleeps in a system call. */
static bool
is_asleep(void)
{
	char path[64], state = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)child);
	f = fopen(path, "re");
	if (f == NULL || fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	if (f != NULL)
		fclose(f);
	return state == 'S';
}

/* A signal comes each TICK_MS, and interrupts waitpid(). */
static void
begin_ticks(void)
{
	const struct sigaction ticks = {.sa_handler = note};
	const struct itimerval each = {{.tv_usec = TICK_MS * 1000}, {.tv_usec = TICK_MS * 1000}};

	(void)sigaction(SIGALRM, &ticks, NULL);
	(void)setitimer(ITIMER_REAL, &each, NULL);
}

/* Waits for the next stop of the child.  @return the signal; 0: not within @limit_s, and if that is
 * 0 not before it sleeps; -1: it has ended */
static int
await_stop(double limit_s)
{
	double began = now_s();
	int status, ticks = 0;

	for (;;) {
		pid_t rc = waitpid(child, &status, 0);

		if (rc == child)
			return WIFSTOPPED(status) ? WSTOPSIG(status) : -1;
		if (errno != EINTR)
			return -1;
		if (limit_s != 0 ? now_s() - began > limit_s : ++ticks > 1 && is_asleep())
			return 0;
	}
}

/* Lets the child run until it stops itself before a call.  False: it has ended, or hangs. */
static bool
run_to_stop(int sig)
{
	for (;;) {
		(void)ptrace(PTRACE_CONT, child, NULL, (void *)(long)sig);
		sig = await_stop(HANG_S);
		if (sig == AT_BEGIN)
			return true;
		if (sig == 0)
			printf("the child hangs\n");
		if (sig <= 0)
			return false;
		if (sig == AT_END)
			sig = 0;
	}
}

/* Executes up to @most instructions from there on.  @waits: the call waits until it is left;
 * otherwise each system call of it returns.  *@asleep: the last is a system call that waits;
 * *@ended: the call has ended.  @return how many were executed */
static unsigned int
step(unsigned int most, bool waits, bool *asleep, bool *ended)
{
	unsigned int n = 0;

	*asleep = *ended = false;
	while (n < most && !*asleep && !*ended) {
		int sig;

		(void)ptrace(PTRACE_SINGLESTEP, child, NULL, NULL);
		n++;
		sig = await_stop(0);
		if (sig == 0 && !waits && n < most) /* e.g. the service is slow */
			sig = await_stop(HANG_S);
		if (sig == 0)
			*asleep = true;
		else if (sig != SIGTRAP)
			*ended = true;
	}
	return n;
}

/* Stores where the child is: a file, and the offset in it. */
static void
see_place(char *place, size_t size)
{
	char path[64], line[512] = "", name[256];
	unsigned long from, to, offset, at = 0;
	FILE *f;

	place[0] = '\0';
	snprintf(path, sizeof(path), "/proc/%d/syscall", (int)child);
	f = fopen(path, "re");
	if (f != NULL && fgets(line, sizeof(line), f) != NULL && strrchr(line, ' ') != NULL)
		at = strtoul(strrchr(line, ' '), NULL, 16);
	if (f != NULL)
		fclose(f);
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)child);
	f = fopen(path, "re");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "%lx-%lx %*s %lx %*s %*s %255s", &from, &to, &offset, name) == 4 &&
			at >= from && at < to)
			snprintf(place, size, "%s+0x%lx", name, at - from + offset);
	if (f != NULL)
		fclose(f);
}

static void
begin_child(unsigned int c)
{
	fflush(stdout);
	child = fork();
	if (child == 0)
		call_often(c);
	if (child < 0)
		abort();
}

static void
end_child(void)
{
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

/* One call that is left after @most instructions.  The child has stopped before it.
 * @return how many there were; 0: the child has ended, after a fault */
static unsigned int
leave_after(unsigned int c, unsigned int most)
{
	bool asleep, ended;
	unsigned int n = step(most, cases[c].waits, &asleep, &ended);
	char place[512];

	if (asleep) {
		kill(child, SIGALRM);
		(void)await_stop(HANG_S);
	}
	see_place(place, sizeof(place));
	if (run_to_stop(ended ? 0 : SIGALRM))
		return n;
	printf("  after %u instructions of %s, at %s\n", n, cases[c].name, place);
	return 0;
}

/* Counts the instructions of the call, and lets the child run until the next one.  The child has
 * stopped before it.  0: after a fault */
static unsigned int
count_steps(unsigned int c)
{
	bool asleep, ended;
	unsigned int n = step(~0u, cases[c].waits, &asleep, &ended);

	if ((asleep != cases[c].waits && !cases[c].may_end) || n < LEAST) {
		printf("%s %s after %u instructions\n", cases[c].name, asleep ? "waits" : "ends",
			n);
		return 0;
	}
	if (asleep) {
		kill(child, SIGALRM);
		(void)await_stop(HANG_S);
	}
	return run_to_stop(ended ? 0 : SIGALRM) ? n : 0;
}

/* @return how many of the instructions left something wrong behind */
static int
leave_at_each(unsigned int c, unsigned int count, unsigned int only)
{
	unsigned int length = 0, at, i;
	int failed = 0;

	begin_child(c);
	if (await_stop(HANG_S) == AT_BEGIN)
		length = count_steps(c);
	if (length == 0) {
		end_child();
		return 1;
	}
	if (count == 0 || count > length)
		count = length;
	for (i = 0; i < count; i++) {
		at = only != 0 ? only : (unsigned int)((2ull * i + 1) * length / (2ull * count));
		if (at == 0)
			at = 1;
		if (leave_after(c, at) == 0) {
			failed++;
			end_child();
			begin_child(c);
			if (await_stop(HANG_S) != AT_BEGIN) {
				end_child();
				return failed;
			}
		}
		if (only != 0)
			break;
	}
	end_child();
	printf("%s: %u of %u instructions, %d wrong\n", cases[c].name, i, length, failed);
	return failed;
}

int
main(int argc, char **argv)
{
	int failed = 0;

	address.sin_family = AF_INET;
	if (argc < 3 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) {
		fprintf(stderr, "usage: smc-steps ADDRESS COUNT [CALL [STEP]]\n");
		return 2;
	}
	begin_ticks();
	for (unsigned int c = 0; c < CASES; c++)
		if (argc < 4 || strcmp(argv[3], cases[c].name) == 0)
			failed += leave_at_each(c, (unsigned int)atoi(argv[2]),
				argc > 4 ? (unsigned int)atoi(argv[4]) : 0);
	return failed != 0;
}
