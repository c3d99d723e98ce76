/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* What a process can still do whose system calls are limited as karstd's are, or, with "part", as
 * those of its privileged part are (TAP). */
#include "confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "karst_base.h"

#define PAGE 4096

/* Each function tries something; returns the result of the system call, -1 with errno if it is
 * refused. */

static long
try_exec(void)
{
	char *const argv[] = {(char *)(uintptr_t) "true", NULL};

	return execv("/bin/true", argv);
}

static long
try_process(void)
{
	long pid = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);

	if (pid == 0)
		_exit(0);
	return pid;
}

static long
try_namespace(void)
{
	return unshare(CLONE_NEWNS);
}

static long
try_trace(void)
{
	return ptrace(PTRACE_TRACEME, 0, NULL, NULL);
}

static long
try_user(void)
{
	return syscall(SYS_setresuid, -1, -1, -1);
}

static long
try_code(void)
{
	void *p = mmap(
		NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? -1 : 0;
}

static long
try_code_later(void)
{
	void *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return mprotect(p, PAGE, PROT_READ | PROT_EXEC);
}

static long
try_kill(void)
{
	return kill(getppid(), 0);
}

static long
try_signal_another(void)
{
	return syscall(SYS_tgkill, getppid(), getppid(), 0);
}

static long
try_dumpable(void)
{
	return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

static long
try_crypto_socket(void)
{
	return socket(AF_ALG, SOCK_SEQPACKET, 0);
}

static long
try_packet_socket(void)
{
	return socket(AF_PACKET, SOCK_RAW, 0);
}

static long
try_bpf(void)
{
	return syscall(SYS_bpf, 0, NULL, 0);
}

static long
try_identity(void)
{
	errno = 0;
	syscall(SYS_setfsuid, geteuid());
	return errno != 0 ? -1 : 0;
}

static long
try_caps(void)
{
	return syscall(SYS_capset, NULL, NULL);
}

static long
try_connect(void)
{
	return connect(0, NULL, 0);
}

static long
try_inet_socket(void)
{
	return socket(AF_INET6, SOCK_STREAM, 0);
}

static long
try_write(void)
{
	return write(-1, "", 0);
}

static long
try_unlink(void)
{
	return unlink("");
}

static long
try_faults(void)
{
	return syscall(SYS_userfaultfd, 1 /* for accesses of this process alone */);
}

static long
try_typing(void)
{
	return ioctl(-1, TIOCSTI, "x");
}

/* The kernel uses the lower half alone. */
static long
try_typing_by_a_long_number(void)
{
	return syscall(SYS_ioctl, -1, UINT64_C(1) << 32 | TIOCSTI, "x");
}

static long
try_pasting(void)
{
	return ioctl(-1, TIOCLINUX, "x");
}

struct refusal {
	const char *name;
	long (*try)(void);
};

static const struct refusal of_both[] = {
	{"executing a program", try_exec},
	{"making a process", try_process},
	{"a namespace", try_namespace},
	{"being traced", try_trace},
	{"another user", try_user},
	{"memory to write and to execute", try_code},
	{"memory that was written, to execute", try_code_later},
	{"a signal to another process", try_kill},
	{"a signal to a thread of another process", try_signal_another},
	{"prctl() of what is not listed", try_dumpable},
	{"a socket of another family", try_crypto_socket},
	{"a packet socket", try_packet_socket},
	{"bpf() without a port that needs it", try_bpf},
	{"typing into the terminal", try_typing},
	{"the same, by a number that is too long", try_typing_by_a_long_number},
	{"pasting into the terminal", try_pasting},
};

static const struct refusal of_engine[] = {
	{"another identity for files", try_identity},
	{"other capabilities", try_caps},
};

static const struct refusal of_part[] = {
	{"connecting to anybody", try_connect},
	{"a socket of IPv6", try_inet_socket},
	{"writing to a file", try_write},
	{"removing a file", try_unlink},
	{"page faults", try_faults},
};

/* A thread that existed before is limited, too: the result of its attempt. */
static _Atomic int turn, thread_errno = -1;

static void *
before(void *arg)
{
	(void)arg;
	while (atomic_load(&turn) == 0)
		sched_yield();
	atomic_store(&thread_errno, try_kill() == 0 ? 0 : errno);
	return NULL;
}

static void *
nothing(void *arg)
{
	return arg;
}

/* What the daemon does while it runs.  @return what did not work; NULL: everything did. */
static const char *
daily_life(void)
{
	pthread_t thread;
	int fd = memfd_create("confined", MFD_CLOEXEC);
	void *p;

	if (fd < 0 || ftruncate(fd, PAGE) != 0)
		return "a memory file";
	p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED || munmap(p, PAGE) != 0 || close(fd) != 0)
		return "a mapping";
	if (pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0)
		return "a thread";
	fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || close(fd) != 0)
		return "a file";
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0 || close(fd) != 0)
		return "a socket";
	/* requests whose numbers are near those of terminals, or far from them */
	if (ioctl(-1, TUNSETCARRIER, NULL) == 0 || errno != EBADF ||
		ioctl(-1, SIOCGIFMTU, NULL) == 0 || errno != EBADF ||
		ioctl(-1, TCGETS, NULL) == 0 || errno != EBADF)
		return "ioctl()";
	return NULL;
}

/* What the privileged part does. */
static const char *
life_of_part(void)
{
	pthread_t thread;
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

	if (fd < 0 || close(fd) != 0)
		return "a file";
	if (pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0)
		return "a thread";
	if (syscall(SYS_setfsuid, geteuid()) != (long)geteuid())
		return "the identity for files";
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (fd < 0 || close(fd) != 0)
		return "a socket of netlink";
	return NULL;
}

/* Shared with the process that prints the results, as a confined process may be unable to. */
static struct results {
	unsigned int points;
	bool done;
	size_t used;
	char text[16384];
} * results;

__attribute__((format(printf, 1, 2))) static void
say(const char *fmt, ...)
{
	size_t room = sizeof(results->text) - results->used;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(results->text + results->used, room, fmt, ap);
	va_end(ap);
	results->used += n > 0 && (size_t)n < room ? (size_t)n : 0;
}

static void
point(bool good, const char *name, const char *more)
{
	say("%sok %u - %s%s\n", good ? "" : "not ", ++results->points, name, more);
}

static void
try_all(const struct refusal *r, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		long ret;
		int err;

		errno = 0;
		ret = r[i].try();
		err = errno;
		point(ret == -1 && err == ENOSYS, "refused: ", r[i].name);
		say("# returned %ld, %s\n", ret, strerror(err));
	}
}

static void
confined(bool part)
{
	const struct kd_confine c = {.part = part ? KD_CONFINE_PART : KD_CONFINE_ENGINE};
	const char *fault;
	pthread_t thread;
	int rc;

	if (pthread_create(&thread, NULL, before, NULL) != 0)
		return;
	rc = kd_confine(&c);
	if (rc != 0) {
		say("Bail out! %s\n", strerror(-rc));
		return;
	}
	try_all(of_both, KARST_DIM(of_both));
	if (part)
		try_all(of_part, KARST_DIM(of_part));
	else
		try_all(of_engine, KARST_DIM(of_engine));
	atomic_store(&turn, 1);
	pthread_join(thread, NULL);
	point(atomic_load(&thread_errno) == ENOSYS,
		"a thread that was there before is limited, too", "");
	fault = part ? life_of_part() : daily_life();
	point(fault == NULL, "what it does works", fault != NULL ? ", but for: " : "");
	if (fault != NULL)
		say("# %s\n", fault);
	results->done = true;
}

int
main(int argc, char **argv)
{
	bool part = argc == 2 && strcmp(argv[1], "part") == 0;
	pid_t child;

	results = mmap(
		NULL, sizeof(*results), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (results == MAP_FAILED)
		return 1;
	child = fork();
	if (child == 0) {
		confined(part);
		_exit(0);
	}
	waitpid(child, NULL, 0);
	point(results->done, "it comes to its end", "");
	fputs(results->text, stdout);
	printf("1..%u\n", results->points);
	return strncmp(results->text, "not ok", 6) == 0 ||
		strstr(results->text, "\nnot ok") != NULL;
}
