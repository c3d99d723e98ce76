/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* What is left to a process whose system calls are limited as karstd's are (TAP). */
#include "confine.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "karst_base.h"

#define PAGE 4096

/* Each tries something; the result of the system call, -1 with errno if it is refused. */

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

static const struct {
	const char *name;
	long (*try)(void);
} refused[] = {
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
	{"a packet socket without a port that needs it", try_packet_socket},
	{"bpf() without a port that needs it", try_bpf},
};

/* A thread that was there before is limited, too: what it tried returned this. */
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

/* What the daemon does while it runs.  @return what of it did not work; NULL: it all did. */
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
	if (setfsuid(geteuid()) != (int)geteuid())
		return "the identity for files";
	return NULL;
}

int
main(void)
{
	const struct kd_confine none = {.frames = false};
	const char *fault;
	pthread_t thread;
	size_t i;
	int rc, bad = 0;

	printf("1..%zu\n", KARST_DIM(refused) + 2);
	if (pthread_create(&thread, NULL, before, NULL) != 0)
		return 1;
	rc = kd_confine(&none);
	if (rc != 0) {
		printf("Bail out! %s\n", strerror(-rc));
		return 1;
	}
	for (i = 0; i < KARST_DIM(refused); i++) {
		long ret;

		errno = 0;
		ret = refused[i].try();
		if (ret != -1 || errno != ENOSYS) {
			bad = 1;
			printf("not ");
		}
		printf("ok %zu - refused: %s\n# returned %ld, %s\n", i + 1, refused[i].name, ret,
			strerror(errno));
		fflush(stdout);
	}
	atomic_store(&turn, 1);
	pthread_join(thread, NULL);
	bad |= atomic_load(&thread_errno) != ENOSYS;
	printf("%sok %zu - a thread that was there before is limited, too\n",
		atomic_load(&thread_errno) == ENOSYS ? "" : "not ", i + 1);
	fault = daily_life();
	bad |= fault != NULL;
	printf("%sok %zu - what a daemon does works%s%s\n", fault != NULL ? "not " : "", i + 2,
		fault != NULL ? ", but for: " : "", fault != NULL ? fault : "");
	return bad;
}
