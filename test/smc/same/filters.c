/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Filters of system calls (seccomp), which allow what a program over TCP needs, and kill it for
 * what it does not need.
 */
#include "same.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum way { BY_PRCTL, BY_SECCOMP, BY_NUMBER, UNSEEN };

#define CALLS_MAX   16
#define SETS        0x10000 /* with the number of a call: only if its third argument is not 0 */
#define FILTERS_MAX 50      /* of a thread: their length together is limited */

/* What each of these kills is followed by 0. */
static const int unused_by_reads[] = {SYS_sendto, SYS_recvfrom, SYS_sendmsg, SYS_recvmsg,
	SYS_getsockopt, SYS_setsockopt, SYS_bpf, SYS_sched_getaffinity, SYS_dup3, SYS_socket,
	SYS_connect, 0};
static const int unused_by_clients[] = {SYS_bpf, SYS_sendmsg, SYS_recvmsg, 0};

/* Makes the system call without the C library, as a program does that has none. */
static long
unseen(long n, long a, long b, long c)
{
#if defined(__x86_64__)
	long rc;

	__asm__ volatile("syscall"
			 : "=a"(rc)
			 : "a"(n), "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory");
	return rc;
#else
	return syscall(n, a, b, c);
#endif
}

/* Kills the process for each of @calls from now on. */
static void
confine(const int *calls, enum way way)
{
	struct sock_filter code[5 * CALLS_MAX + 2];
	struct sock_fprog prog = {.filter = code};
	unsigned short n = 0;
	long rc;
	const struct sock_filter number =
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));

	code[n++] = number;
	for (; *calls != 0; calls++) {
		bool sets = (*calls & SETS) != 0;

		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
			(uint32_t)*calls & ~(uint32_t)SETS, 0, sets ? 4 : 1);
		if (sets) {
			code[n++] = (struct sock_filter)BPF_STMT(
				BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2]));
			code[n++] =
				(struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0);
		}
		code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
		if (sets)
			code[n++] = number;
	}
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	prog.len = n;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		fail("PR_SET_NO_NEW_PRIVS");
	if (way == BY_PRCTL)
		rc = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0);
	else if (way == BY_SECCOMP)
		rc = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog);
	else if (way == BY_NUMBER)
		rc = syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0);
	else
		rc = unseen(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&prog);
	if (rc != 0)
		fail("a filter");
}

/* A child that confines itself, first by @before if that is not NULL, echoes what it reads. */
static void
echo_in_filter(const int *before, enum way way)
{
	char buf[100];
	ssize_t n;
	pid_t child;

	open_both();
	child = fork();
	if (child == 0) {
		struct pollfd p = {.fd = near, .events = POLLIN};

		close(far);
		if (before != NULL)
			confine(before, way);
		confine(unused_by_reads, way);
		while (poll(&p, 1, -1) == 1 && (n = read(near, buf, sizeof(buf))) > 0)
			if (write(near, buf, (size_t)n) != n)
				break;
		_exit(7);
	}
	close(near);
	for (int i = 0; i < 3; i++) {
		tell(send(far, "abc", 3, 0));
		tell(recv(far, buf, 3, MSG_WAITALL));
	}
	shutdown(far, SHUT_WR);
	tell(recv(far, buf, 3, 0));
	tell_status(child);
}

static void
echo_by_prctl(void)
{
	echo_in_filter(NULL, BY_PRCTL);
}

static void
echo_by_seccomp(void)
{
	echo_in_filter(NULL, BY_SECCOMP);
}

static void
echo_by_number(void)
{
	echo_in_filter(NULL, BY_NUMBER);
}

static void
echo_in_two_filters(void)
{
	static const int memory[] = {SYS_mmap, SYS_munmap, 0};

	echo_in_filter(memory, BY_SECCOMP);
}

/* Calls of seccomp() that set nothing. */
static void
refused_filters(void)
{
	struct sock_fprog none = {0};

	tell(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL));
	tell(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &none));
	tell(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, ~0u, &none));
	tell(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL));
	open_both();
}

static void
tell_refused(const void *prog)
{
	tell(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, prog, 0, 0));
	tell(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, prog));
}

/* The structure or the instructions are, wholly or in part, in memory that cannot be read. */
static void
unreadable_filters(void)
{
	const struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	const size_t size = (size_t)sysconf(_SC_PAGESIZE);
	char *mem =
		mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *none = mem + size; /* from here on */
	struct sock_fprog prog = {.len = 1, .filter = (void *)none};

	if (mem == MAP_FAILED || mprotect(none, size, PROT_NONE) != 0)
		fail("memory");
	open_both();
	memcpy(none - sizeof(allow), &allow, sizeof(allow));
	/* the kernel checks this before it copies the instructions */
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		fail("PR_SET_NO_NEW_PRIVS");
	tell_refused(NULL);
	tell_refused(none);
	tell_refused(none - 8);
	tell_refused(&prog);
	prog = (struct sock_fprog){.len = 2, .filter = (void *)(none - sizeof(allow))};
	tell_refused(&prog);
	prog.filter = NULL;
	tell_refused(&prog);
	prog.filter = (void *)(none - sizeof(allow));
	prog.len = 0;
	tell_refused(&prog);
	prog.len = BPF_MAXINSNS + 1;
	tell_refused(&prog);
	greet();
	prog.len = 1;
	tell_refused(&prog); /* which is not refused */
	greet();
}

/* Reads and writes a byte with a filter.  @return its exit status */
static int
echo_byte(void)
{
	char byte;

	close(far);
	confine(unused_by_reads, BY_SECCOMP);
	return read(near, &byte, 1) == 1 && write(near, &byte, 1) == 1 ? 0 : 1;
}

static void
tell_byte(pid_t child)
{
	char byte;

	tell_status(child);
	await(far, POLLIN);
	tell(recv(far, &byte, 1, 0));
}

/* A process that has a filter makes a child, which sets another one. */
static void
echo_in_child_of_filtered(void)
{
	pid_t parent, child;
	int status = -1;

	open_both();
	tell(send(far, "x", 1, 0));
	parent = fork();
	if (parent == 0) {
		static const int none[] = {SYS_personality, 0};

		confine(none, BY_SECCOMP);
		child = fork();
		if (child == 0)
			_exit(echo_byte());
		_exit(waitpid(child, &status, 0) == child && status == 0 ? 0 : 1);
	}
	tell_byte(parent);
}

/* A process that only listens waits by numbers of system calls.  Its filter is set unchanged. */
static void
wait_in_filter(void)
{
	static const int calls[] = {SYS_clock_gettime, SYS_recvfrom, SYS_sendto, 0};
	pid_t child = fork();

	if (child == 0) {
		struct pollfd p = {.fd = listener, .events = POLLIN};
		struct timespec limit = {.tv_nsec = 1000000};
		struct timeval short_limit = {.tv_usec = 1000};
		fd_set r;

		confine(calls, BY_SECCOMP);
		if (syscall(SYS_ppoll, &p, 1, &limit, NULL, 8) != 0)
			_exit(1);
		FD_ZERO(&r);
		FD_SET(listener, &r);
		limit.tv_nsec = 1000000;
		if (syscall(SYS_pselect6, listener + 1, &r, NULL, NULL, &limit, NULL) != 0)
			_exit(2);
#ifdef SYS_select
		FD_SET(listener, &r);
		if (syscall(SYS_select, listener + 1, &r, NULL, NULL, &short_limit) != 0)
			_exit(3);
#else
		(void)short_limit;
#endif
		_exit(0);
	}
	tell_status(child);
}

static _Atomic bool enough;

static void *
set_filters(void *arg)
{
	static const int none[] = {SYS_personality, 0};

	for (int i = 0; i < FILTERS_MAX && !atomic_load(&enough); i++)
		confine(none, BY_SECCOMP);
	return arg;
}

/* Another thread may be setting a filter when the child is made. */
static void
fork_while_setting(void)
{
	pthread_t t;
	pid_t child;

	open_both();
	for (int i = 0; i < 20; i++) {
		tell(send(far, "x", 1, 0));
		atomic_store(&enough, false);
		if (pthread_create(&t, NULL, set_filters, NULL) != 0)
			fail("a thread");
		usleep(1000);
		child = fork();
		if (child == 0)
			_exit(echo_byte());
		atomic_store(&enough, true);
		pthread_join(t, NULL);
		tell_byte(child);
	}
}

/* Refuses @call from now on.  @flags: of seccomp() */
static void
refuse(int call, unsigned int flags)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	const struct sock_fprog prog = {sizeof(code) / sizeof(code[0]), code};

	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog) != 0)
		fail("a filter");
}

/* Prints the exit status that @fn returns in a child. */
static void
tell_child(int (*fn)(void))
{
	pid_t child = fork();

	if (child == 0)
		_exit(fn());
	tell_status(child);
}

/* Whether a read that does not wait finds nothing, instead of being refused: over SMC-R it uses
 * recvfrom(). */
static bool
reads_nothing(void)
{
	char byte;

	return read(near, &byte, 1) < 0 && errno == EAGAIN;
}

/* Before a filter is set. */
static void
begin_filters(void)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || fcntl(near, F_SETFL, O_NONBLOCK) != 0)
		fail("a child");
	refuse(SYS_personality, 0);
}

/* The calls that these threads refuse, after recvfrom(), which reads of SMC-R use. */
static const int calls_of_setters[] = {SYS_sysinfo, SYS_times, SYS_uname, SYS_getppid, SYS_getsid,
	SYS_getuid, SYS_getgid, SYS_getegid};
#define SETTERS ((int)(sizeof(calls_of_setters) / sizeof(calls_of_setters[0])))

static pthread_barrier_t setters_start;
static unsigned int setters_flags;

/* Whether refuse() was called for it. */
static bool
is_refused(int call)
{
	long rc = unseen(call, -1, 0, 0);

	return rc == -EPERM || (rc == -1 && errno == EPERM);
}

/* @return NULL: the thread has its filters, and can use the connection */
static void *
set_two(void *arg)
{
	const int *call = arg;

	pthread_barrier_wait(&setters_start);
	refuse(SYS_recvfrom, setters_flags);
	refuse(*call, setters_flags);
	return reads_nothing() && is_refused(*call) ? NULL : arg;
}

/* @return an exit status */
static int
set_at_once(void)
{
	pthread_t threads[SETTERS];
	int before, failed = 0;
	void *rc;

	begin_filters();
	before = count_descriptors();
	pthread_barrier_init(&setters_start, NULL, (unsigned int)SETTERS);
	for (int i = 0; i < SETTERS; i++)
		if (pthread_create(&threads[i], NULL, set_two, (void *)&calls_of_setters[i]) != 0)
			fail("a thread");
	for (int i = 0; i < SETTERS; i++) {
		pthread_join(threads[i], &rc);
		failed += rc != NULL;
	}
	if (setters_flags != 0) /* this thread has all of the filters */
		for (int i = 0; i < SETTERS; i++)
			failed += !is_refused(calls_of_setters[i]);
	return failed != 0 ? 1 : count_descriptors() != before ? 2 : 0;
}

static void
set_filters_at_once(void)
{
	open_both();
	for (int i = 0; i < 20; i++) {
		setters_flags = i % 2 == 0 ? 0 : SECCOMP_FILTER_FLAG_TSYNC;
		tell_child(set_at_once);
	}
	(void)fcntl(near, F_SETFL, 0);
	greet();
}

/* Stops each thread in rt_sigprocmask() with an operation that does not exist, until its call is
 * answered.  Over SMC-R a thread that sets a filter makes such a call; the library does not know of
 * this filter.  @return where the calls are received */
static int
stop_in_masks(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ~0u, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	const struct sock_fprog prog = {sizeof(code) / sizeof(code[0]), code};
	long fd = unseen(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
		(long)&prog);

	if (fd < 0)
		fail("a filter that stops threads");
	return (int)fd;
}

static bool
is_stopped(int calls)
{
	struct pollfd p = {.fd = calls, .events = POLLIN};

	return poll(&p, 1, 1) > 0;
}

/* Waits for the end of the thread, and lets the calls continue that stop meanwhile. */
static void *
join_answering(pthread_t t, int calls)
{
	void *rc;

	while (pthread_tryjoin_np(t, &rc) != 0) {
		struct seccomp_notif call = {0};
		struct seccomp_notif_resp answer = {.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};

		if (!is_stopped(calls) || ioctl(calls, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0)
			continue;
		answer.id = call.id;
		(void)ioctl(calls, SECCOMP_IOCTL_NOTIF_SEND, &answer);
	}
	return rc;
}

static _Atomic bool has_set;

static void *
set_and_wait(void *arg)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	refuse(SYS_personality, 0);
	atomic_store(&has_set, true);
	for (;;)
		pause();
	return arg;
}

/* @return NULL: the filter is set, and the connection can be used */
static void *
set_and_read(void *arg)
{
	refuse(SYS_recvfrom, 0);
	return reads_nothing() ? NULL : arg;
}

/* @return an exit status */
static int
cancel_setting(void)
{
	int before, calls;
	pthread_t t;

	begin_filters();
	calls = stop_in_masks();
	before = count_descriptors();
	if (pthread_create(&t, NULL, set_and_wait, NULL) != 0)
		fail("a thread");
	while (!atomic_load(&has_set) && !is_stopped(calls))
		continue;
	pthread_cancel(t);
	if (join_answering(t, calls) != PTHREAD_CANCELED)
		return 3;
	if (pthread_create(&t, NULL, set_and_read, &has_set) != 0)
		fail("a thread");
	return join_answering(t, calls) != NULL ? 1 : count_descriptors() != before ? 2 : 0;
}

/* A thread that may be cancelled at any instruction is cancelled while it sets a filter. */
static void
cancel_while_setting(void)
{
	open_both();
	tell_child(cancel_setting);
	(void)fcntl(near, F_SETFL, 0);
	greet();
}

static int
count_variables(void)
{
	int n = 0;

	while (environ[n] != NULL)
		n++;
	return n;
}

int
filtered(int port, int variables)
{
	static const int none[] = {SYS_personality, 0};
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = (in_port_t)port};
	char byte;

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	near = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(near, (void *)&to, sizeof(to)) != 0 || write(near, "x", 1) != 1)
		return 1;
	confine(none, BY_PRCTL);
	if (read(near, &byte, 1) != 1)
		return 1;
	return count_variables() == variables ? 8 : 2;
}

/* Removes the folder.  Prints how many files were in it. */
static void
tell_files(const char *folder)
{
	DIR *d = opendir(folder);
	const struct dirent *e;
	int n = 0;

	while (d != NULL && (e = readdir(d)) != NULL)
		if (e->d_name[0] != '.') {
			unlinkat(dirfd(d), e->d_name, 0);
			n++;
		}
	if (d == NULL || closedir(d) != 0 || rmdir(folder) != 0)
		fail("a folder");
	printf("/%d", n);
}

/* Waits for a connection.  False: the child has ended without one. */
static bool
comes_from(pid_t child)
{
	struct pollfd p = {.fd = listener, .events = POLLIN};
	siginfo_t info = {0};

	while (poll(&p, 1, 20) == 0)
		if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
			info.si_pid == child)
			return false;
	return true;
}

/* A program that is executed with a filter connects.  It leaves no file in its folder, where Linux
 * by default writes the core of a process that a filter has killed; and its environment, which
 * programs with other filters may get, has only what it was given. */
static void
connect_in_filter(enum way way, const int *calls)
{
	const struct rlimit large = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
	char port[16], variables[16], buf[10], folder[] = "/tmp/smc-same-XXXXXX";
	pid_t child;

	if (mkdtemp(folder) == NULL)
		fail("a folder");
	child = fork();
	if (child == 0) {
		if (chdir(folder) == 0)
			(void)setrlimit(RLIMIT_CORE, &large);
		snprintf(port, sizeof(port), "%d", address.sin_port);
		snprintf(variables, sizeof(variables), "%d", count_variables());
		confine(calls, way);
		execl("/proc/self/exe", "smc-same", "filtered", port, variables, NULL);
		_exit(9);
	}
	if (comes_from(child)) {
		far = accept(listener, NULL, NULL);
		tell(recv(far, buf, 1, 0));
		tell(send(far, "y", 1, 0));
		tell(recv(far, buf, 1, 0));
	}
	tell_status(child);
	tell_files(folder);
}

static void
inherited(void)
{
	connect_in_filter(BY_PRCTL, unused_by_clients);
	connect_in_filter(BY_SECCOMP, unused_by_clients);
	connect_in_filter(UNSEEN, unused_by_clients);
}

/* The filter allows all that SMC-R needs. */
static void
inherited_harmless(void)
{
	static const int calls[] = {SYS_personality, 0};

	connect_in_filter(UNSEEN, calls);
}

/* The same; it allows to query limits, and kills for setting one. */
static void
inherited_no_limits(void)
{
	static const int calls[] = {SYS_prlimit64 | SETS, SYS_setrlimit, 0};

	connect_in_filter(UNSEEN, calls);
}

/* SMC-R needs this call to deliver deferred signals, and to set filters. */
static void
inherited_no_masks(void)
{
	static const int masks[] = {SYS_rt_sigprocmask, 0};

	connect_in_filter(UNSEEN, masks);
}

/* A process that listens sets a filter, which it may do unchanged; accepts; and sets another. */
static void
accept_between_filters(void)
{
	static const int masks[] = {SYS_rt_sigprocmask, 0};
	char byte = 'x';
	pid_t child = fork();

	if (child == 0) {
		confine(masks, BY_PRCTL);
		near = accept(listener, NULL, NULL);
		confine(unused_by_reads, BY_PRCTL);
		_exit(read(near, &byte, 1) == 1 && write(near, &byte, 1) == 1 ? 0 : 1);
	}
	far = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(far, (void *)&address, sizeof(address)) != 0)
		fail("connect");
	tell(send(far, &byte, 1, MSG_NOSIGNAL));
	tell(recv(far, &byte, 1, 0));
	tell_status(child);
}

/* Begins to connect, sets a filter, and says so; then connects.  @return an exit status */
static int
filter_and_connect(int says)
{
	char byte = 'x';

	near = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (connect(near, (void *)&address, sizeof(address)) != 0 && errno != EINPROGRESS)
		return 1;
	confine(unused_by_clients, BY_SECCOMP);
	if (write(says, &byte, 1) != 1)
		return 2;
	await(near, POLLOUT);
	if (write(near, &byte, 1) != 1)
		return 3;
	await(near, POLLIN);
	return read(near, &byte, 1) == 1 ? 0 : 4;
}

/* @first: what the listener has to accept first, or -1: nothing */
static void
accept_filtered(int first)
{
	int filtered[2];
	pid_t child;
	char byte;

	if (pipe(filtered) != 0)
		fail("a pipe");
	child = fork();
	if (child == 0)
		_exit(filter_and_connect(filtered[1]));
	tell(read(filtered[0], &byte, 1));
	if (first >= 0) {
		close(accept(listener, NULL, NULL));
		close(first);
	}
	far = accept(listener, NULL, NULL);
	tell(recv(far, &byte, 1, 0));
	tell(send(far, &byte, 1, MSG_NOSIGNAL));
	tell_status(child);
}

static void
filter_while_connecting(void)
{
	accept_filtered(-1);
}

/* The listener has no room: it answers when it has accepted another connection. */
static void
filter_before_connected(void)
{
	int first = socket(AF_INET, SOCK_STREAM, 0);

	if (listen(listener, 0) != 0 || connect(first, (void *)&address, sizeof(address)) != 0)
		fail("a connection");
	accept_filtered(first);
}

const struct same_case filters[] = {
	{"a filter of system calls by prctl()", echo_by_prctl},
	{"a filter of system calls by seccomp()", echo_by_seccomp},
	{"a filter of system calls by the number of prctl()", echo_by_number},
	{"two filters of system calls", echo_in_two_filters},
	{"a filter of system calls in a child of a process that has one",
		echo_in_child_of_filtered},
	{"a filter of system calls in a process that listens, and waits by number", wait_in_filter},
	{"a filter of system calls in a child that is made while a filter is set",
		fork_while_setting},
	{"filters of system calls that threads set at the same time", set_filters_at_once},
	{"a filter of system calls after a thread was cancelled that set one",
		cancel_while_setting},
	{"filters of system calls that are refused", refused_filters},
	{"filters of system calls in memory that cannot be read", unreadable_filters},
	{"a program that is executed with a filter of system calls", inherited},
	{"a program that is executed with a harmless filter of system calls", inherited_harmless},
	{"a program that is executed with a filter that kills for setting limits",
		inherited_no_limits},
	{"a program that is executed with a filter that kills for masks of signals",
		inherited_no_masks},
	{"filters of system calls that are set before and after accept", accept_between_filters},
	{"a filter of system calls while a socket connects", filter_while_connecting},
	{"a filter of system calls before a socket has connected", filter_before_connected},
	{NULL, NULL},
};
