/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A program that first sets filters of system calls without having connections.  Then it waits on
 * both ends of its own connection.  Each wait is interrupted by a signal that comes when the call
 * has begun and does not wait in the kernel yet: in the code of libkarst-sockets before that, where
 * it waits for a lock of the connection.  The handlers only record that they ran, as those of
 * Python do, so a call that still began to wait would wait for ever.
 *
 *   smc-interrupted ADDRESS PORT
 *
 * Then threads that sleep in recv() leave it by siglongjmp(), or are cancelled: the page of the
 * connection must not count them any more; also with a handler on another stack.  Then threads are
 * cancelled in a signal handler, which interrupts close(), accept() and sendfile().  Then another
 * thread opens a connection while a thread sets a filter of system calls; two threads make one
 * number a duplicate; and threads accept connections all the time while a thread sets filters.
 * Last, a handler makes a child, or leaves by siglongjmp(), while the thread sets one.
 *
 * The program prints what each call returned, what the cancelled ones have left, and whether both
 * processes have the filter and can use the connection.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "karst_sock.h"

#define NOBODY 0x3fffffffu /* beyond the kernel's limit of thread numbers */
#define TRIES  1000
#define SEEN   100 /* the library's descriptors have higher numbers */
#define ALL    65536
#define CALLS  8 /* of getpid() that are interrupted, at most */
#define BUSY   2 /* threads that accept, and programs that connect */
#define PASSES 20
#define STACK  (1 << 18)
#define NUMBER 70 /* a free descriptor number */
#define HANG_S 60

static volatile sig_atomic_t armed, came;
/* In a call of one of these, the thread is interrupted by SIGUSR2. */
enum { NOT, IN_STATE, IN_UNLOCK, IN_PID, IN_BPF, IN_PREAD, UNDER_LOCK };
static volatile sig_atomic_t interrupts, skips; /* not in the first calls */
static bool cancels;                            /* and it is to be cancelled */
static bool opens;                              /* instead, another thread opens a connection */
static void let_open(void);
static _Atomic pid_t opener; /* the thread that let_open() waits for ... */
static _Atomic bool waits;   /* ... and whether it waits for a lock, which only let_open()'s has */
static volatile sig_atomic_t clock_reads;
/* Each time that the library builds its rules, it checks by such calls whether it can read the
 * program's filter: both ends of two pieces of memory. */
#define LOOKS 4
static _Atomic int looks;
static int near, far;
static struct karst_sock_page *page, *far_page; /* of near and far */

static void
interrupt_self(void)
{
	if (skips > 0) {
		skips--;
		return;
	}
	interrupts = NOT;
	if (opens) {
		let_open();
		return;
	}
	if (cancels)
		pthread_cancel(pthread_self());
	raise(SIGUSR2);
}

/* These functions replace the C library's, for libraries, too. */
int
pthread_setcancelstate(int state, int *before)
{
	int (*next)(int, int *), rc;

	*(void **)&next = dlsym(RTLD_NEXT, "pthread_setcancelstate");
	if (interrupts == UNDER_LOCK && atomic_load(&far_page->tx_lock.owner) != 0) {
		interrupts = NOT;
		pthread_cancel(pthread_self());
	}
	rc = next(state, before);
	if (interrupts == IN_STATE)
		interrupt_self();
	return rc;
}

int
pthread_mutex_unlock(pthread_mutex_t *lock)
{
	int (*next)(pthread_mutex_t *);

	*(void **)&next = dlsym(RTLD_NEXT, "pthread_mutex_unlock");
	if (interrupts == IN_UNLOCK)
		interrupt_self();
	return next(lock);
}

pid_t
getpid(void)
{
	pid_t (*next)(void);

	*(void **)&next = dlsym(RTLD_NEXT, "getpid");
	if (interrupts == IN_PID)
		interrupt_self();
	return next();
}

int
clock_gettime(clockid_t clock, struct timespec *now)
{
	int (*next)(clockid_t, struct timespec *);

	*(void **)&next = dlsym(RTLD_NEXT, "clock_gettime");
	clock_reads++;
	return next(clock, now);
}

ssize_t
pread64(int fd, void *buf, size_t n, off64_t at)
{
	ssize_t (*next)(int, void *, size_t, off64_t);

	*(void **)&next = dlsym(RTLD_NEXT, "pread64");
	if (interrupts == IN_PREAD)
		interrupt_self();
	return next(fd, buf, n, at);
}

long
syscall(long number, ...)
{
	long (*next)(long, ...), a[6];
	va_list ap;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	*(void **)&next = dlsym(RTLD_NEXT, "syscall");
	if (interrupts == IN_BPF && number == SYS_bpf)
		interrupt_self();
	if (number == SYS_futex && ((int)a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT &&
		gettid() == atomic_load(&opener))
		atomic_store(&waits, true);
	looks += number == SYS_rt_sigprocmask && (int)a[0] == -1;
	if (armed && number == SYS_futex) {
		armed = 0;
		raise(SIGUSR1);
		atomic_store(&page->rx_lock.owner, 0);
		atomic_store(&page->tx_lock.owner, 0);
	}
	return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void
arm(void)
{
	atomic_store(&page->rx_lock.owner, NOBODY);
	atomic_store(&page->tx_lock.owner, NOBODY);
	armed = 1;
}

/* Finds the page whose peer has @port. */
static struct karst_sock_page *
find_page(in_port_t port)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned long from, to;
	char line[512];

	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		struct karst_sock_page *p;

		if (strstr(line, "memfd:karst-smc") == NULL ||
			sscanf(line, "%lx-%lx", &from, &to) != 2 || to - from != KARST_SOCK_PAGE)
			continue;
		p = (struct karst_sock_page *)from;
		if (((const struct sockaddr_in *)&p->peer)->sin_port == port) {
			fclose(f);
			return p;
		}
	}
	fprintf(stderr, "no page\n");
	exit(1);
}

static void
note(int sig)
{
	(void)sig;
	came++;
}

/* For a call that is to be restarted: sends what the call waits for. */
static void
send_byte(int sig)
{
	(void)sig;
	came++;
	if (send(far, "b", 1, 0) != 1)
		abort();
}

static void
handle(void (*handler)(int), int flags)
{
	const struct sigaction act = {.sa_handler = handler, .sa_flags = flags};

	(void)sigaction(SIGUSR1, &act, NULL);
}

/* The C library's header marks it as deprecated, but programs still call it. */
int interrupt_calls(int sig, int interrupts) __asm__("siginterrupt");

static void
tell(const char *what, long rc)
{
	printf("%s %s %d%s\n", what, rc >= 0 ? "returned" : strerrorname_np(errno), (int)came,
		armed ? " without a lock" : "");
	fflush(stdout);
	came = armed = 0;
}

static void
wait_in_each(void)
{
	struct pollfd p = {.fd = near, .events = POLLIN | POLLPRI};
	static char data[1 << 20];
	int tries = 0;
	ssize_t sent;
	fd_set set;
	char byte;

	handle(note, 0);
	arm();
	tell("recv", recv(near, &byte, 1, 0));
	handle(note, SA_RESTART);
	(void)interrupt_calls(SIGUSR1, 1);
	arm();
	tell("recv after siginterrupt", recv(near, &byte, 1, 0));
	arm();
	tell("recv at once", recv(near, &byte, 1, MSG_DONTWAIT));
	arm();
	tell("poll", poll(&p, 1, -1));
	FD_ZERO(&set);
	FD_SET(near, &set);
	arm();
	tell("select", select(near + 1, NULL, NULL, &set, NULL));
	/* bytes may still be on their way to the peer's buffer, and leave room behind them */
	do {
		while (send(near, data, sizeof(data), MSG_DONTWAIT) > 0)
			continue;
		came = 0;
		arm();
		sent = send(near, data, sizeof(data), 0);
	} while (sent > 0 && ++tries < TRIES);
	tell("send", sent);
	handle(send_byte, SA_RESTART);
	arm();
	tell("recv again", recv(near, &byte, 1, 0));
}

/* --- threads that sleep no more --- */

#define SLEEPERS (KARST_SOCK_SLEEPERS + 2) /* more than have a lock in the page */

static sigjmp_buf before_wait;
static _Atomic unsigned int left_waits, begun_waits;

static void
leave_wait(int sig)
{
	(void)sig;
	siglongjmp(before_wait, 1);
}

static void *
leave_waits(void *arg)
{
	char byte;

	for (unsigned int i = 0; i < SLEEPERS; i++) {
		while (atomic_load(&begun_waits) == i)
			usleep(100);
		if (sigsetjmp(before_wait, 1) == 0)
			(void)recv(near, &byte, 1, 0);
		i = atomic_fetch_add(&left_waits, 1); /* its value is lost by siglongjmp() */
	}
	while (atomic_load(&begun_waits) == SLEEPERS)
		usleep(100);
	return arg;
}

/* The thread that waits for bytes of near. */
static _Atomic pid_t waiter;

/* Until it waits in the kernel. */
static void
await_waiter(void)
{
	char path[64];
	int call = -1;

	while (call != SYS_poll && call != SYS_ppoll && call != SYS_recvfrom) {
		FILE *f;

		usleep(100);
		snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)waiter);
		f = fopen(path, "re");
		if (f == NULL)
			continue;
		if (fscanf(f, "%d", &call) != 1) /* it runs */
			call = -1;
		fclose(f);
	}
}

static void *
wait_once(void *arg)
{
	char byte;

	atomic_store(&waiter, gettid());
	(void)recv(near, &byte, 1, 0);
	return arg;
}

/* How many threads sleep until bytes of near arrive, as the page says. */
static uint32_t
sleepers(void)
{
	return atomic_load((_Atomic uint32_t *)&page->sleepers);
}

static void
tell_sleepers(const char *what)
{
	int places = 0;

	for (unsigned int i = 0; i < KARST_SOCK_SLEEPERS; i++)
		places += atomic_load(&page->sleeps[i].owner) != 0;
	printf("%s: %d sleepers, %d places, %d others\n", what, (int)sleepers(), places,
		(int)page->crowd);
}

/* One thread leaves the wait for bytes several times by siglongjmp(), and lives on; then threads
 * that wait are cancelled.  None of them sleeps any more. */
static void
leave_sleeping(void)
{
	const struct sigaction act = {.sa_handler = leave_wait};
	pthread_t t[SLEEPERS];
	uint32_t before;

	(void)sigaction(SIGUSR2, &act, NULL);
	if (pthread_create(&t[0], NULL, leave_waits, NULL) != 0)
		abort();
	for (unsigned int i = 0; i < SLEEPERS; i++) {
		before = sleepers();
		atomic_fetch_add(&begun_waits, 1);
		while (sleepers() == before)
			usleep(100);
		pthread_kill(t[0], SIGUSR2);
		while (atomic_load(&left_waits) == i)
			usleep(100);
	}
	tell_sleepers("after siglongjmp");
	atomic_fetch_add(&begun_waits, 1);
	pthread_join(t[0], NULL);
	for (unsigned int i = 0; i < SLEEPERS; i++)
		if (pthread_create(&t[i], NULL, wait_once, NULL) != 0)
			abort();
	while (sleepers() < SLEEPERS)
		usleep(100);
	for (unsigned int i = 0; i < SLEEPERS; i++)
		pthread_cancel(t[i]);
	for (unsigned int i = 0; i < SLEEPERS; i++)
		pthread_join(t[i], NULL);
	tell_sleepers("after cancellation");
}

static void *
leave_once(void *arg)
{
	char byte;

	atomic_store(&waiter, gettid());
	if (sigsetjmp(before_wait, 1) == 0)
		(void)recv(near, &byte, 1, 0);
	atomic_store(&left_waits, 1);
	return arg;
}

/* A thread leaves the wait for bytes by siglongjmp(), while another one has the lock and does not
 * give it back until this thread has left, or HANG_S later. */
static void
leave_locked(void)
{
	pthread_t t;
	bool left;

	atomic_store(&left_waits, 0);
	if (pthread_create(&t, NULL, leave_once, NULL) != 0)
		abort();
	while (sleepers() == 0)
		usleep(100);
	while (!atomic_compare_exchange_weak(
		&page->rx_lock.owner, &(uint32_t){0}, (uint32_t)gettid()))
		usleep(100);
	pthread_kill(t, SIGUSR2);
	for (int i = 0; i < HANG_S * 100 && atomic_load(&left_waits) == 0; i++)
		usleep(10000);
	left = atomic_load(&left_waits) != 0;
	atomic_store(&page->rx_lock.owner, 0);
	pthread_join(t, NULL);
	printf("while the lock is held: %s\n", left ? "leaves" : "does not leave");
	fflush(stdout);
}

/* --- handlers that have a stack of their own --- */

static _Atomic int jumps;      /* of a handler to itself */
static _Atomic bool jumps_out; /* and then out of the call */

static void
jump_on_stack(int sig)
{
	static sigjmp_buf here;

	(void)sig;
	if (sigsetjmp(here, 0) == 0)
		siglongjmp(here, 1);
	atomic_fetch_add(&jumps, 1);
	if (atomic_load(&jumps_out))
		siglongjmp(before_wait, 1);
}

static void *
leave_by_stack(void *arg)
{
	const stack_t stack = {.ss_sp = arg, .ss_size = STACK};

	if (sigaltstack(&stack, NULL) != 0)
		abort();
	return leave_once(NULL);
}

/* A thread that waits for bytes runs a handler on another stack, above or below its own.  First the
 * handler only jumps to itself, and then leaves the wait. */
static void
leave_other_stack(bool above)
{
	const struct sigaction act = {
		.sa_handler = jump_on_stack, .sa_flags = SA_ONSTACK | SA_RESTART};
	char *mem =
		mmap(NULL, 2 * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_attr_t attr;
	pthread_t t;
	int before;

	(void)sigaction(SIGUSR2, &act, NULL);
	atomic_store(&jumps, 0);
	atomic_store(&jumps_out, false);
	if (mem == MAP_FAILED || pthread_attr_init(&attr) != 0 ||
		pthread_attr_setstack(&attr, above ? mem : mem + STACK, STACK) != 0 ||
		pthread_create(&t, &attr, leave_by_stack, above ? mem + STACK : mem) != 0)
		abort();
	while (sleepers() == 0)
		usleep(100);
	await_waiter();
	pthread_kill(t, SIGUSR2);
	while (atomic_load(&jumps) == 0)
		usleep(100);
	before = (int)sleepers();
	atomic_store(&jumps_out, true);
	pthread_kill(t, SIGUSR2);
	pthread_join(t, NULL);
	munmap(mem, 2 * STACK);
	printf("a stack %s: %d sleepers, then %d\n", above ? "above" : "below", before,
		(int)sleepers());
	fflush(stdout);
}

/* --- threads that are cancelled in a handler --- */

static void
write_far(int sig)
{
	(void)sig;
	interrupts = UNDER_LOCK;
	if (write(far, "x", 1) != 1)
		abort();
}

/* A thread waits in recv(), for which the C library may set the asynchronous type of cancellation.
 * It runs a handler, and is to be cancelled where it holds a lock of a connection.  Prints whether
 * it leaves the lock behind. */
static void
cancel_under_lock(void)
{
	struct sockaddr_in at;
	socklen_t len = sizeof(at);
	pthread_t t;

	if (getsockname(near, (void *)&at, &len) != 0)
		abort();
	far_page = find_page(at.sin_port);
	handle(write_far, SA_RESTART);
	if (pthread_create(&t, NULL, wait_once, NULL) != 0)
		abort();
	while (sleepers() == 0)
		usleep(100);
	await_waiter();
	pthread_kill(t, SIGUSR1);
	pthread_join(t, NULL);
	printf("a thread that waits is cancelled %s\n",
		interrupts == UNDER_LOCK                             ? "nowhere"
			: atomic_load(&far_page->tx_lock.owner) != 0 ? "and leaves a lock behind"
								     : "without a lock");
	fflush(stdout);
}

static void
end_thread(int sig)
{
	(void)sig;
	pthread_testcancel();
}

static void *
close_near(void *arg)
{
	(void)close(near);
	return arg;
}

static void *
accept_one(void *arg)
{
	(void)accept(*(const int *)arg, NULL, NULL);
	return NULL;
}

static void *
send_file(void *arg)
{
	off_t at = 0;

	(void)sendfile(near, *(const int *)arg, &at, 100);
	return NULL;
}

/* @return how many descriptors of pages and rings are open */
static int
count_files(void)
{
	char path[64], to[64];
	int n = 0;

	for (int fd = 0; fd < ALL; fd++) {
		ssize_t len;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		len = readlink(path, to, sizeof(to) - 1);
		if (len > 0) {
			to[len] = '\0';
			n += strstr(to, "memfd:") != NULL;
		}
	}
	return n;
}

/* @return how many descriptors are open with numbers below @end */
static int
count_open(int end)
{
	int n = 0;

	for (int fd = 0; fd < end; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void
cancel_in(void *(*fn)(void *), void *arg, const char *what)
{
	pthread_t t;
	void *rc = NULL;
	int before = count_open(SEEN);

	if (pthread_create(&t, NULL, fn, arg) != 0)
		abort();
	pthread_join(t, &rc);
	interrupts = NOT;
	printf("%s %s, %d files, descriptors %+d\n", what,
		rc == PTHREAD_CANCELED ? "cancelled" : "not cancelled", count_files(),
		count_open(SEEN) - before);
}

static void *
send_files(void *arg)
{
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	off_t at;

	do
		at = 0;
	while (sendfile(near, file, &at, 1 << 20) > 0);
	return arg;
}

/* A thread that waits for room in sendfile() is cancelled in a handler.  Prints whether memory of
 * the thread is left. */
static void
cancel_sendfile(void)
{
	const size_t before = mallinfo2().uordblks;
	size_t after;
	struct pollfd p = {.fd = near, .events = POLLOUT};
	pthread_t t;

	if (pthread_create(&t, NULL, send_files, NULL) != 0)
		abort();
	while (poll(&p, 1, 100) != 0) /* until there is no room */
		continue;
	pthread_cancel(t);
	pthread_kill(t, SIGUSR2);
	pthread_join(t, NULL);
	after = mallinfo2().uordblks;
	printf("sendfile leaves %s\n", after < before + 65536 ? "nothing" : "its memory");
}

static void
open_pair(int listener, const struct sockaddr_in *at)
{
	near = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(near, (const void *)at, sizeof(*at)) != 0 ||
		(far = accept(listener, NULL, NULL)) < 0)
		abort();
}

/* A thread that reads a file in sendfile() is cancelled, and the connection is closed.  Prints how
 * many descriptors this leaves that are not left without it. */
static void
cancel_reading(int listener, const struct sockaddr_in *at)
{
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), left[2];

	for (int i = 0; i < 2; i++) {
		open_pair(listener, at);
		interrupts = i == 0 ? NOT : IN_PREAD;
		cancel_in(send_file, &file, "sendfile");
		close(near);
		close(far);
		left[i] = count_open(ALL);
	}
	close(file);
	printf("sendfile leaves %d descriptors\n", left[1] - left[0]);
}

static void
cancel_in_each(int listener, const struct sockaddr_in *at)
{
	const struct sigaction act = {.sa_handler = end_thread};

	(void)sigaction(SIGUSR2, &act, NULL);
	cancels = true;
	interrupts = IN_STATE;
	cancel_in(close_near, NULL, "close");
	close(far);
	for (int i = 0; i < 2; i++) {
		near = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(near, (const void *)at, sizeof(*at)) != 0)
			abort();
		/* a call for the option is made before the service is asked; the mutex for the
		 * service is unlocked when its answer has come */
		interrupts = i == 0 ? IN_BPF : IN_UNLOCK;
		cancel_in(accept_one, &listener, "accept");
		close(near);
	}
	open_pair(listener, at);
	cancel_sendfile();
	close(near);
	close(far);
	cancel_reading(listener, at);
	open_pair(listener, at);
}

/* --- a filter of system calls --- */

/* Refuses @call from now on. */
static void
refuse(int call)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	const struct sock_fprog prog = {sizeof(code) / sizeof(code[0]), code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) != 0)
		abort();
}

static volatile pid_t child = -1;

/* A process without connections sets two filters.  Where the kernel has to be asked for the time,
 * the first one need not allow this.  Prints how often the clock is read meanwhile. */
static void
refuse_unconnected(void)
{
	int status = -1;

	child = fork();
	if (child == 0) {
		clock_reads = 0;
		refuse(SYS_sysinfo);
		refuse(SYS_times);
		_exit((int)clock_reads);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
		abort();
	printf("without connections the clock is read %d times\n", WEXITSTATUS(status));
	fflush(stdout);
}

static sigjmp_buf before_filter;
static bool leaves; /* the handler does not return */

/* The child sets a filter, and then continues what the handler has interrupted. */
static void
fork_and_refuse(int sig)
{
	(void)sig;
	if (leaves)
		siglongjmp(before_filter, 1);
	child = fork();
	if (child == 0)
		refuse(SYS_recvfrom);
}

static bool
is_refused(int call)
{
	return syscall(call, -1) != 0 && errno == EPERM;
}

/* Interrupts the thread in each call of getpid() while a filter is set: some are made before the
 * library builds what it puts in front of the filter, and some meanwhile. */
static void
refuse_interrupted(void)
{
	static const int calls[CALLS] = {SYS_sysinfo, SYS_times, SYS_uname, SYS_getpgrp, SYS_getsid,
		SYS_getuid, SYS_getgid, SYS_getegid};
	const struct sigaction act = {.sa_handler = fork_and_refuse};
	int n = 0, refused = 0, failed = 0, status = -1;
	char byte;

	(void)sigaction(SIGUSR2, &act, NULL);
	cancels = false;
	do {
		if (send(far, "x", 1, 0) != 1)
			abort();
		child = -1;
		skips = n;
		interrupts = IN_PID;
		refuse(calls[n]);
		interrupts = NOT;
		if (child == 0)
			_exit(is_refused(calls[n]) && recv(near, &byte, 1, 0) == 1 ? 0 : 1);
		refused += is_refused(calls[n++]);
		if (child > 0)
			failed += waitpid(child, &status, 0) != child || status != 0;
	} while (child > 0 && n < CALLS);
	printf("filters %s, %d children cannot read or have no filter\n",
		refused == n && n > 2 ? "set" : "not set", failed);
}

static _Atomic int open_step; /* 1: another thread is to open a connection; 2: it has */
static const struct sockaddr_in *open_at;
static int open_listener, open_near;

/* In the other thread. */
static void
await_step(void)
{
	atomic_store(&opener, gettid());
	while (atomic_load(&open_step) == 0)
		usleep(100);
}

static void *
open_one(void *arg)
{
	await_step();
	open_near = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(open_near, (const void *)open_at, sizeof(*open_at)) != 0 ||
		accept(open_listener, NULL, NULL) < 0)
		abort();
	atomic_store(&open_step, 2);
	return arg;
}

/* Returns when the other thread is ready, or waits for this one. */
static void
let_open(void)
{
	atomic_store(&waits, false);
	atomic_store(&open_step, 1);
	for (int i = 0; i < HANG_S * 10000 && atomic_load(&open_step) == 1 && !atomic_load(&waits);
		i++)
		usleep(100);
}

enum { RULED, ON_TCP, REFUSED, NOT_INTERRUPTED };

/* In a child.  @return its exit status: what the filter, which refuses recv(), but not read(), does
 * to the other connection */
static int
open_in(int call)
{
	pthread_t t;
	char byte;

	if (pthread_create(&t, NULL, open_one, NULL) != 0)
		abort();
	skips = call;
	opens = true;
	interrupts = IN_PID;
	refuse(SYS_recvfrom);
	interrupts = NOT;
	if (atomic_load(&open_step) == 0)
		return NOT_INTERRUPTED;
	pthread_join(t, NULL);
	if (recv(open_near, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN)
		return RULED;
	if (fcntl(open_near, F_SETFL, O_NONBLOCK) != 0)
		abort();
	return read(open_near, &byte, 1) < 0 && errno == EAGAIN ? ON_TCP : REFUSED;
}

/* In each call of getpid() while a thread sets a filter, another thread opens a connection.  The
 * first call is made before that thread has to wait for the filter: its connection is one of SMC-R,
 * and the filter has rules for it.  The other connections stay on TCP, so that the program's own
 * filter decides. */
static void
open_while_setting(int listener, const struct sockaddr_in *at)
{
	int n = 0, wrong = 0, status = 0;

	open_listener = listener;
	open_at = at;
	for (; n < CALLS; n++) {
		child = fork();
		if (child == 0)
			_exit(open_in(n));
		if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
			abort();
		if (WEXITSTATUS(status) == NOT_INTERRUPTED)
			break;
		wrong += WEXITSTATUS(status) != (n == 0 ? RULED : ON_TCP);
	}
	printf("connections opened %s, %d wrong\n", n > 2 && n < CALLS ? "meanwhile" : "not",
		wrong);
}

/* As open_one().  @return NULL */
static void *
duplicate_one(void *arg)
{
	await_step();
	if (dup2(*(const int *)arg, NUMBER) != NUMBER)
		abort();
	atomic_store(&open_step, 2);
	return NULL;
}

/* Whether getsockname() of NUMBER is for the connection that the kernel has there: that of @fd, or
 * another one. */
static bool
is_duplicate_of(int fd)
{
	struct sockaddr_in a = {0}, b = {0};
	socklen_t len = sizeof(a);
	struct stat of_number, of_fd;

	if (getsockname(fd, (void *)&a, &len) != 0 || getsockname(NUMBER, (void *)&b, &len) != 0 ||
		fstat(fd, &of_fd) != 0 || fstat(NUMBER, &of_number) != 0)
		abort();
	return (of_fd.st_ino == of_number.st_ino) == (a.sin_port == b.sin_port);
}

/* In each call of getpid() while a thread makes a number a duplicate, another thread makes it a
 * duplicate of something else.  Prints whether the library and the kernel agree. */
static void
duplicate_meanwhile(void)
{
	int wrong = 0, n = 0;
	pthread_t t;

	for (; n < CALLS; n++) {
		atomic_store(&open_step, 0);
		if (pthread_create(&t, NULL, duplicate_one, &far) != 0)
			abort();
		skips = n;
		opens = true;
		interrupts = IN_PID;
		if (dup2(near, NUMBER) != NUMBER)
			abort();
		interrupts = NOT;
		opens = false;
		atomic_compare_exchange_strong(&open_step, &(int){0}, 1);
		pthread_join(t, NULL);
		wrong += !is_duplicate_of(near);
	}
	close(NUMBER);
	printf("duplicates: %d wrong\n", wrong);
	fflush(stdout);
}

static void *
accept_often(void *arg)
{
	for (;;)
		close(accept(open_listener, NULL, NULL));
	return arg;
}

/* In a child.  @return its exit status: how often the library has built its rules for a filter, at
 * most */
static int
refuse_busy(void)
{
	static const int calls[] = {SYS_sysinfo, SYS_times, SYS_uname, SYS_getpgrp, SYS_getsid};
	pthread_t t;
	int most = 0;

	for (int i = 0; i < BUSY; i++)
		if (pthread_create(&t, NULL, accept_often, NULL) != 0)
			abort();
	for (unsigned int i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		int n;

		usleep(20000);
		atomic_store(&looks, 0);
		refuse(calls[i]);
		n = atomic_load(&looks) / LOOKS;
		most = n > most ? n : most;
	}
	return most < 255 ? most : 255;
}

/* Threads accept connections all the time, which other programs make, while a thread sets filters.
 * Each filter needs rules for all that there are. */
static void
refuse_while_accepting(void)
{
	pid_t clients[BUSY];
	int status = 0;

	for (int i = 0; i < BUSY; i++) {
		clients[i] = fork();
		while (clients[i] == 0) {
			int fd = socket(AF_INET, SOCK_STREAM, 0);

			(void)connect(fd, (const void *)open_at, sizeof(*open_at));
			close(fd);
		}
	}
	child = fork();
	if (child == 0)
		_exit(refuse_busy());
	if (child < 0 || waitpid(child, &status, 0) != child)
		abort();
	for (int i = 0; i < BUSY; i++) {
		kill(clients[i], SIGKILL);
		waitpid(clients[i], NULL, 0);
	}
	printf("rules are built %s\n",
		WIFEXITED(status) && WEXITSTATUS(status) <= PASSES ? "a few times" : "very often");
	fflush(stdout);
}

/* The same with a handler that leaves.  The connection is used with a filter that is set later. */
static void
leave_interrupted(void)
{
	char byte;

	leaves = true;
	for (volatile int i = 0; i < CALLS; i++)
		if (sigsetjmp(before_filter, 1) == 0) {
			skips = i;
			interrupts = IN_PID;
			refuse(SYS_getppid);
		}
	interrupts = NOT;
	refuse(SYS_recvfrom);
	printf("reads %zd\n", send(far, "x", 1, 0) == 1 ? recv(near, &byte, 1, 0) : -1);
}

int
main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (argc != 3 || inet_pton(AF_INET, argv[1], &at.sin_addr) != 1) {
		fprintf(stderr, "usage: smc-interrupted ADDRESS PORT\n");
		return 2;
	}
	at.sin_port = htons((uint16_t)atoi(argv[2]));
	refuse_unconnected();
	near = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(fd, (void *)&at, sizeof(at)) != 0 || listen(fd, 64) != 0 ||
		connect(near, (void *)&at, sizeof(at)) != 0 || (far = accept(fd, NULL, NULL)) < 0) {
		perror("a connection");
		return 1;
	}
	page = find_page(at.sin_port);
	wait_in_each();
	leave_sleeping();
	leave_other_stack(true);
	leave_other_stack(false);
	leave_locked();
	cancel_under_lock();
	cancel_in_each(fd, &at);
	open_while_setting(fd, &at);
	duplicate_meanwhile();
	refuse_while_accepting();
	refuse_interrupted();
	leave_interrupted();
	return 0;
}
