/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * An attacker who has found a vulnerability in the engine can make the system calls that the engine
 * makes, and no others: they cannot execute a program, create or trace a process, change the user,
 * mount a file system, load a kernel module, or put input into the terminal that the daemon was
 * started from.  In the privileged part (part.h) they can make the few calls that it makes, and one
 * thing more: it takes on other users' identities for opening files (setfsuid).
 *
 * A system call that is missing here causes an error that a test finds: the test suites run with
 * this filter.  The error is ENOSYS rather than EPERM, because the C library then falls back to
 * calls of older kernels.  Refused calls are not logged, since one happens with each new thread
 * (clone3).
 */
#include "confine.h"

#include <errno.h>
#include <linux/filter.h>
#include <sched.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <seccomp.h>

#include "karst_base.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WATCHED true /* their checks at exit create and trace processes */
#else
#define WATCHED false
#endif

#define USER_MODE_ONLY 1 /* UFFD_USER_MODE_ONLY */

/* Allowed with any arguments. */
static const char *const of_engine[] = {
	/* files */
	"read",
	"readv",
	"pread64",
	"preadv",
	"preadv2",
	"write",
	"writev",
	"pwrite64",
	"pwritev",
	"pwritev2",
	"open",
	"openat",
	"close",
	"close_range",
	"stat",
	"fstat",
	"lstat",
	"newfstatat",
	"statx",
	"statfs",
	"fstatfs",
	"lseek",
	"access",
	"faccessat",
	"faccessat2",
	"readlink",
	"readlinkat",
	"getdents64",
	"getcwd",
	"fcntl",
	"flock",
	"ftruncate",
	"fallocate",
	"fsync",
	"fdatasync",
	"dup",
	"dup2",
	"dup3",
	"pipe2",
	"memfd_create",
	"mkdir",
	"mkdirat",
	"rmdir",
	"unlink",
	"unlinkat",
	"rename",
	"renameat",
	"renameat2",
	"umask",
	/* memory */
	"brk",
	"munmap",
	"mremap",
	"madvise",
	"msync",
	"mincore",
	"mlock",
	"mlock2",
	"munlock",
	"mlockall",
	"munlockall",
	"mbind",
	"get_mempolicy",
	"set_mempolicy",
	"move_pages",
	"membarrier",
	/* waiting, time */
	"poll",
	"ppoll",
	"select",
	"pselect6",
	"epoll_create",
	"epoll_create1",
	"epoll_ctl",
	"epoll_wait",
	"epoll_pwait",
	"epoll_pwait2",
	"eventfd2",
	"signalfd4",
	"timerfd_create",
	"timerfd_settime",
	"timerfd_gettime",
	"inotify_init1",
	"inotify_add_watch",
	"inotify_rm_watch",
	"nanosleep",
	"clock_nanosleep",
	"clock_gettime",
	"clock_getres",
	"gettimeofday",
	"time",
	"restart_syscall",
	/* threads */
	"futex",
	"futex_waitv",
	"set_robust_list",
	"get_robust_list",
	"set_tid_address",
	"rseq",
	"gettid",
	"exit",
	"exit_group",
	"sched_yield",
	"sched_getaffinity",
	"sched_setaffinity",
	"sched_getparam",
	"sched_getscheduler",
	"sched_get_priority_max",
	"sched_get_priority_min",
	"getcpu",
	"rt_sigaction",
	"rt_sigprocmask",
	"rt_sigreturn",
	"rt_sigpending",
	"rt_sigtimedwait",
	"rt_sigsuspend",
	"sigaltstack",
	/* sockets */
	"socketpair",
	"bind",
	"listen",
	"accept",
	"accept4",
	"connect",
	"shutdown",
	"getsockname",
	"getpeername",
	"getsockopt",
	"setsockopt",
	"sendto",
	"sendmsg",
	"sendmmsg",
	"recvfrom",
	"recvmsg",
	"recvmmsg",
	/* identity, properties of the machine */
	"getpid",
	"getppid",
	"getuid",
	"geteuid",
	"getgid",
	"getegid",
	"getgroups",
	"getresuid",
	"getresgid",
	"getrlimit",
	"getrusage",
	"getrandom",
	"uname",
	"sysinfo",
	"times",
	/* programs' memory */
	"pidfd_open",
};

static const char *const of_part[] = {
	/* files, with another user's identity; capset() cannot give more capabilities than are
	 * permitted */
	"openat",
	"open",
	"close",
	"close_range",
	"read",
	"fstat",
	"newfstatat",
	"statx",
	"fstatfs",
	"lseek",
	"fcntl",
	"pidfd_open",
	"setfsuid",
	"setfsgid",
	"setgroups",
	"getgroups",
	"capget",
	"capset",
	"getuid",
	"geteuid",
	"getgid",
	"getegid",
	/* sockets */
	"bind",
	"getsockname",
	"getpeername",
	"getsockopt",
	"setsockopt",
	"sendto",
	"sendmsg",
	"recvfrom",
	"recvmsg",
	/* memory, threads */
	"brk",
	"munmap",
	"mremap",
	"madvise",
	"poll",
	"ppoll",
	"restart_syscall",
	"clock_gettime",
	"gettimeofday",
	"time",
	"futex",
	"set_robust_list",
	"rseq",
	"getpid",
	"gettid",
	"exit",
	"exit_group",
	"sched_yield",
	"sched_getaffinity",
	"rt_sigaction",
	"rt_sigprocmask",
	"rt_sigreturn",
	"getrandom",
};

/* prctl(): names of threads and mappings, and the precision of sleeps. */
static const int prctls[] = {PR_SET_NAME, PR_GET_NAME, PR_SET_TIMERSLACK, PR_GET_TIMERSLACK,
	PR_GET_DUMPABLE, PR_CAPBSET_READ, 0x53564d41 /* PR_SET_VMA */};
/* ioctl(): the requests of the terminal range that the C library and others use with any
 * descriptor. */
static const int terminal[] = {TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIOCLEX, FIONCLEX};
static const int families[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};
static const int part_families[] = {AF_UNIX, AF_INET, AF_NETLINK};

/* Returns -1 for a call that does not exist on this machine. */
static int
number_of(const char *name)
{
	int nr = seccomp_syscall_resolve_name(name);

	return nr == __NR_SCMP_ERROR ? -1 : nr;
}

static int
allow(scmp_filter_ctx ctx, const char *name)
{
	int nr = number_of(name);

	return nr < 0 ? 0 : seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 0);
}

/* Allows a call if argument @arg, masked with @mask, is @value. */
static int
allow_if(scmp_filter_ctx ctx, const char *name, unsigned int arg, uint64_t mask, uint64_t value)
{
	int nr = number_of(name);

	return nr < 0 ? 0
		      : seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 1,
				SCMP_CMP(arg, SCMP_CMP_MASKED_EQ, mask, value));
}

static int
allow_each(scmp_filter_ctx ctx, const char *name, const int *values, size_t n)
{
	int rc = 0;
	size_t i;

	for (i = 0; rc == 0 && i < n; i++)
		rc = allow_if(ctx, name, 0, UINT32_MAX, (uint32_t)values[i]);
	return rc;
}

static int
allow_plain(scmp_filter_ctx ctx, const char *const *names, size_t n)
{
	int rc = 0;
	size_t i;

	for (i = 0; rc == 0 && i < n; i++)
		rc = allow(ctx, names[i]);
	return rc;
}

/* Allows all requests except those of terminals, which are 0x54 and a byte.  The kernel uses only
 * 32 bits of a request.  A request that differs from 0x54 in any bit is not one of them. */
static int
allow_ioctl(scmp_filter_ctx ctx)
{
	const uint64_t of_terminal = (uint64_t)'T' << 8;
	unsigned int bit;
	size_t i;
	int rc = 0;

	for (bit = 8; rc == 0 && bit < 32; bit++)
		rc = allow_if(
			ctx, "ioctl", 1, UINT64_C(1) << bit, ~of_terminal & UINT64_C(1) << bit);
	for (i = 0; rc == 0 && i < KARST_DIM(terminal); i++)
		rc = allow_if(ctx, "ioctl", 1, UINT32_MAX, (uint32_t)terminal[i]);
	return rc;
}

/* What both parts need, with conditions on arguments. */
static int
allow_common(scmp_filter_ctx ctx)
{
	/* memory can be writable or executable, but not both, nor one after the other; mapping
	 * files as code is allowed, because the C library does that later, too */
	int rc = allow_if(ctx, "mmap", 2, PROT_EXEC, 0);

	if (rc == 0)
		rc = allow_if(ctx, "mmap", 2, PROT_WRITE | PROT_EXEC, PROT_EXEC);
	if (rc == 0)
		rc = allow_if(ctx, "mprotect", 2, PROT_EXEC, 0);
	/* threads, but not processes; the flags of clone3() cannot be checked, and the C library
	 * works without it */
	if (rc == 0)
		rc = allow_if(ctx, "clone", 0, CLONE_THREAD, CLONE_THREAD);
	if (rc == 0)
		rc = allow_ioctl(ctx);
	/* signals to this process only, limits of this process only */
	if (rc == 0)
		rc = allow_if(ctx, "tgkill", 0, UINT32_MAX, (uint32_t)getpid());
	return rc == 0 ? allow_if(ctx, "prlimit64", 0, UINT32_MAX, 0) : rc;
}

static int
allow_engine(scmp_filter_ctx ctx, const struct kd_confine *c)
{
	int rc = allow_plain(ctx, of_engine, KARST_DIM(of_engine));

	/* page faults of this process only, and only in user mode */
	if (rc == 0)
		rc = allow_if(ctx, "userfaultfd", 0, USER_MODE_ONLY, USER_MODE_ONLY);
	if (rc == 0)
		rc = allow_each(ctx, "prctl", prctls, KARST_DIM(prctls));
	if (rc == 0)
		rc = allow_each(ctx, "socket", families, KARST_DIM(families));
	/* maps of an XDP program or of the TCP option's program; other uses need a capability */
	if (rc == 0 && c->bpf)
		rc = allow(ctx, "bpf");
	return rc;
}

static int
allow_part(scmp_filter_ctx ctx)
{
	int rc = allow_plain(ctx, of_part, KARST_DIM(of_part));

	return rc == 0 ? allow_each(ctx, "socket", part_families, KARST_DIM(part_families)) : rc;
}

int
kd_confine(const struct kd_confine *c)
{
	scmp_filter_ctx ctx;
	int rc;

	if (WATCHED)
		return 0;
	ctx = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
	if (ctx == NULL)
		return -ENOMEM;
	rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_TSYNC, 1);
	/* a binary tree, so that frequent calls cost only a few comparisons */
	if (rc == 0)
		rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (rc == 0)
		rc = allow_common(ctx);
	if (rc == 0)
		rc = c->part == KD_CONFINE_PART ? allow_part(ctx) : allow_engine(ctx, c);
	if (rc == 0)
		rc = seccomp_load(ctx);
	seccomp_release(ctx);
	return rc;
}
