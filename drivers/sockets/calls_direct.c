/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * syscall(), by which programs make system calls for which their C library has, or had, no
 * function: close_range(), accept4(), pidfd_getfd(), or seccomp() as libseccomp calls it.  A call
 * on a connection, on a listener or on a range of descriptors, one that may bring a connection, one
 * that sets what a later connection takes over, and one that sets a filter of system calls, is made
 * by our function of that name.  All others are made as they are.
 */
#include "ks.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARGS      6
#define MAX_ERRNO 4095 /* the kernel's */
#define SET_SIZE  8    /* of the kernel's set of signals, in bytes */
#define SECOND_NS 1000000000ull

/* Not the C library's syscall(): to find that may allocate memory, and an allocator may make such a
 * call while it begins. */
#if defined(__x86_64__)
__attribute__((no_stack_protector)) static long
raw(long n, const long *a)
{
	register long a3 __asm__("r10") = a[3], a4 __asm__("r8") = a[4], a5 __asm__("r9") = a[5];
	long rc;

	__asm__ volatile("syscall"
			 : "=a"(rc)
			 : "a"(n), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(a3), "r"(a4), "r"(a5)
			 : "rcx", "r11", "memory");
	return rc;
}
#define HAS_RAW
#elif defined(__aarch64__)
__attribute__((no_stack_protector)) static long
raw(long n, const long *a)
{
	register long nr __asm__("x8") = n, a0 __asm__("x0") = a[0], a1 __asm__("x1") = a[1];
	register long a2 __asm__("x2") = a[2], a3 __asm__("x3") = a[3];
	register long a4 __asm__("x4") = a[4], a5 __asm__("x5") = a[5];

	__asm__ volatile("svc 0"
			 : "+r"(a0)
			 : "r"(nr), "r"(a1), "r"(a2), "r"(a3), "r"(a4), "r"(a5)
			 : "memory");
	return a0;
}
#define HAS_RAW
#endif

__attribute__((no_stack_protector)) static long
direct_result(long rc)
{
	if (rc < -MAX_ERRNO || rc >= 0)
		return rc;
	errno = (int)-rc;
	return -1;
}

long
ks_seccomp(unsigned int op, unsigned int flags, const void *filter)
{
#ifdef HAS_RAW
	const long a[ARGS] = {op, flags, (long)filter};

	return direct_result(raw(SYS_seccomp, a));
#else
	return syscall(SYS_seccomp, op, flags, filter);
#endif
}

/* Another process may have a connection, too. */
KS_API int
pidfd_getfd(int pidfd, int target, unsigned int flags)
{
	int fd = real(pidfd_getfd)(pidfd, target, flags);

	if (fd >= 0 && ks_is_ours() && !ks_is_confined()) {
		ks_forget(fd);
		ks_look_at(fd);
	}
	return fd;
}

#ifdef HAS_RAW

/* --- for which arguments a call is made by our function --- */

/* The upper half of an argument is not defined if the kernel takes an int. */
static bool
is_known(long arg)
{
	int fd = (int)arg;

	return (unsigned int)fd < KS_MAX_FDS && (ks_kind(fd) != KS_PLAIN || ks_is_hidden(fd));
}

static bool
is_of_owner(int cmd)
{
	return cmd == F_SETOWN || cmd == F_SETOWN_EX || cmd == F_SETSIG;
}

static bool
is_to_owner(unsigned int request)
{
	return request == FIOSETOWN || request == SIOCSPGRP;
}

/* Whether a wait for it differs from the kernel's.  A wait for others is made as it is: the filter
 * of a program that only listens may forbid the calls of ours (is_writable()). */
static bool
is_watched(int fd)
{
	enum ks_kind kind = (unsigned int)fd < KS_MAX_FDS ? ks_kind(fd) : KS_PLAIN;

	return kind == KS_SMC ||
		((kind == KS_EARLY || kind == KS_TRIES || kind == KS_WAITS) && ks_may_settle());
}

/* @a: the arguments of poll() */
static bool
is_any_polled(const long *a)
{
	const struct pollfd *p = (const struct pollfd *)a[0];
	unsigned long n = (unsigned long)a[1];

	if (p == NULL || n > KS_MAX_FDS)
		return false;
	while (n > 0 && !is_watched(p->fd)) {
		p++;
		n--;
	}
	return n > 0;
}

/* @a: the arguments of select() */
static bool
is_any_selected(const long *a)
{
	int n = (int)a[0] < FD_SETSIZE ? (int)a[0] : FD_SETSIZE;

	for (int fd = 0; fd < n; fd++)
		for (int set = 1; set <= 3; set++)
			if (a[set] != 0 && FD_ISSET(fd, (const fd_set *)a[set]) && is_watched(fd))
				return true;
	return false;
}

/* The last argument of pselect6(). */
struct direct_mask {
	const sigset_t *set;
	size_t size;
};

static bool
is_mask_ok(const struct direct_mask *mask)
{
	return mask == NULL || mask->set == NULL || mask->size == SET_SIZE;
}

/* --- waits --- */

/* Unlike most functions of the C library, these system calls store the remaining time in the limit.
 * The kernel ignores it if the memory cannot be written.  A limit of 0 is not changed, nor one that
 * is not accepted. */
static bool
has_left(const struct timespec *limit, long rc)
{
	return limit != NULL && (limit->tv_sec != 0 || limit->tv_nsec != 0) &&
		(rc >= 0 || errno != EINVAL);
}

/* Whether @limit can be written: this system call, which puts the time there, fails if not. */
static bool
is_writable(struct timespec *limit)
{
	const long a[ARGS] = {CLOCK_MONOTONIC, (long)limit};

	return raw(SYS_clock_gettime, a) == 0;
}

static void
store_left(struct timespec *limit, uint64_t began, long rc)
{
	uint64_t took = ks_now() - began;
	struct timespec left;

	if (!has_left(limit, rc))
		return;
	left = *limit;
	left.tv_sec -= (time_t)(took / SECOND_NS);
	left.tv_nsec -= (long)(took % SECOND_NS);
	if (left.tv_nsec < 0) {
		left.tv_nsec += (long)SECOND_NS;
		left.tv_sec--;
	}
	if (left.tv_sec < 0)
		left = (struct timespec){0};
	if (is_writable(limit))
		*limit = left;
}

static long
direct_ppoll(const long *a)
{
	struct timespec *limit = (struct timespec *)a[2];
	uint64_t began = ks_now();
	long rc = ppoll((struct pollfd *)a[0], (nfds_t)a[1], limit, (const sigset_t *)a[3]);

	store_left(limit, began, rc);
	return rc;
}

static long
direct_pselect(const long *a)
{
	const struct direct_mask *mask = (const struct direct_mask *)a[5];
	struct timespec *limit = (struct timespec *)a[4];
	uint64_t began = ks_now();
	long rc = pselect((int)a[0], (fd_set *)a[1], (fd_set *)a[2], (fd_set *)a[3], limit,
		mask != NULL ? mask->set : NULL);

	store_left(limit, began, rc);
	return rc;
}

#ifdef SYS_select
/* The C library's select() stores the remaining time, too, but not by the kernel. */
static long
direct_select(const long *a)
{
	struct timeval *limit = (struct timeval *)a[4], left;
	long rc;

	static_assert(sizeof(*limit) == sizeof(struct timespec), "for is_writable()");
	if (limit != NULL)
		left = *limit;
	rc = select((int)a[0], (fd_set *)a[1], (fd_set *)a[2], (fd_set *)a[3],
		limit != NULL ? &left : NULL);
	if (limit != NULL && memcmp(limit, &left, sizeof(left)) != 0 &&
		is_writable((struct timespec *)limit))
		*limit = left;
	return rc;
}
#endif

/* --- the table --- */

#define KS_DIRECT(name, when, how)                    \
	static bool direct_when_##name(const long *a) \
	{                                             \
		(void)a;                              \
		return when;                          \
	}                                             \
	static long direct_how_##name(const long *a)  \
	{                                             \
		return how;                           \
	}
#include "direct.def"
#undef KS_DIRECT

/* By the number of the system call. */
static const struct {
	bool (*when)(const long *a);
	long (*how)(const long *a);
} directs[] = {
#define KS_DIRECT(name, when, how) [SYS_##name] = {direct_when_##name, direct_how_##name},
#include "direct.def"
#undef KS_DIRECT
};

static bool
is_direct(long n, const long *a)
{
	return (unsigned long)n < sizeof(directs) / sizeof(directs[0]) && directs[n].when != NULL &&
		directs[n].when(a);
}

/* A message on a socket that is not ours may bring connections.  The call itself is made as it is,
 * because it may wait, and a thread may be cancelled meanwhile if its type of cancellation is
 * asynchronous. */
static void
look_at_messages(long n, const long *a, long rc)
{
	struct mmsghdr *many = (struct mmsghdr *)a[1];

	if (n == SYS_recvmsg)
		rc = 1;
	for (long i = 0; i < rc; i++) {
		struct msghdr *m = n == SYS_recvmsg ? (struct msghdr *)a[1] : &many[i].msg_hdr;

		if (m->msg_controllen == 0)
			continue;
		ks_no_cancel();
		ks_look_at_rights(m);
		ks_no_cancel_end();
	}
}

/* Calls after which the caller's thread pointer or stack may be another one. */
static bool
is_of_thread(long n)
{
	return n == SYS_clone || n == SYS_clone3 || n == SYS_rt_sigreturn
#ifdef SYS_arch_prctl
		|| n == SYS_arch_prctl
#endif
#ifdef SYS_vfork
		|| n == SYS_fork || n == SYS_vfork
#endif
		;
}

/* Unlike the functions of the C library, this is no cancellation point.  It has no stack protector,
 * whose value depends on the thread pointer. */
__attribute__((no_stack_protector)) KS_API long
syscall(long n, ...)
{
	long a[ARGS], rc;
	va_list ap;

	va_start(ap, n);
	for (int i = 0; i < ARGS; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (is_of_thread(n))
		return direct_result(raw(n, a));
	if (n == SYS_prctl && a[0] == PR_SET_SECCOMP)
		return prctl((int)a[0], a[1], a[2], a[3], a[4]);
	if (n == SYS_seccomp && a[0] == SECCOMP_SET_MODE_FILTER && a[2] != 0 && ks_is_ours())
		return ks_confine((unsigned int)a[1], (const void *)a[2]);
	if (is_direct(n, a)) {
		ks_no_cancel();
		rc = directs[n].how(a);
		ks_no_cancel_end();
		return rc;
	}
	rc = direct_result(raw(n, a));
	if ((n == SYS_recvmsg || n == SYS_recvmmsg) && rc >= 0)
		look_at_messages(n, a, rc);
	return rc;
}

#endif /* HAS_RAW */
