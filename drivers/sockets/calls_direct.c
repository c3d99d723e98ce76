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

/* --- calls on one descriptor, the first argument --- */

static bool
direct_bytes(long n, const long *a, long *rc)
{
	int fd = (int)a[0];

	if (n == SYS_read)
		*rc = read(fd, (void *)a[1], (size_t)a[2]);
	else if (n == SYS_write)
		*rc = write(fd, (const void *)a[1], (size_t)a[2]);
	else if (n == SYS_readv)
		*rc = readv(fd, (const struct iovec *)a[1], (int)a[2]);
	else if (n == SYS_writev)
		*rc = writev(fd, (const struct iovec *)a[1], (int)a[2]);
	else if (n == SYS_preadv2) /* a[3] is the whole offset, a[4] is for kernels of 32 bits */
		*rc = preadv64v2(fd, (const struct iovec *)a[1], (int)a[2], a[3], (int)a[5]);
	else if (n == SYS_pwritev2)
		*rc = pwritev64v2(fd, (const struct iovec *)a[1], (int)a[2], a[3], (int)a[5]);
	else if (n == SYS_recvfrom)
		*rc = recvfrom(
			fd, (void *)a[1], (size_t)a[2], (int)a[3], (void *)a[4], (socklen_t *)a[5]);
	else if (n == SYS_sendto)
		*rc = sendto(fd, (const void *)a[1], (size_t)a[2], (int)a[3], (const void *)a[4],
			(socklen_t)a[5]);
	else if (n == SYS_recvmsg)
		*rc = recvmsg(fd, (struct msghdr *)a[1], (int)a[2]);
	else if (n == SYS_sendmsg)
		*rc = sendmsg(fd, (const struct msghdr *)a[1], (int)a[2]);
	else if (n == SYS_recvmmsg)
		*rc = recvmmsg(fd, (struct mmsghdr *)a[1], (unsigned int)a[2], (int)a[3],
			(struct timespec *)a[4]);
	else if (n == SYS_sendmmsg)
		*rc = sendmmsg(fd, (struct mmsghdr *)a[1], (unsigned int)a[2], (int)a[3]);
	else if (n == SYS_sendfile)
		*rc = sendfile(fd, (int)a[1], (off_t *)a[2], (size_t)a[3]);
	else
		return false;
	return true;
}

static bool
direct_life(long n, const long *a, long *rc)
{
	int fd = (int)a[0];

	if (n == SYS_accept)
		*rc = accept(fd, (void *)a[1], (socklen_t *)a[2]);
	else if (n == SYS_accept4)
		*rc = accept4(fd, (void *)a[1], (socklen_t *)a[2], (int)a[3]);
	else if (n == SYS_connect)
		*rc = connect(fd, (const void *)a[1], (socklen_t)a[2]);
	else if (n == SYS_listen)
		*rc = listen(fd, (int)a[1]);
	else if (n == SYS_shutdown)
		*rc = shutdown(fd, (int)a[1]);
	else if (n == SYS_close)
		*rc = close(fd);
	else if (n == SYS_dup)
		*rc = dup(fd);
	else if (n == SYS_fcntl)
		*rc = fcntl64(fd, (int)a[1], (void *)a[2]);
	else if (n == SYS_ioctl)
		*rc = ioctl(fd, (unsigned long)a[1], (void *)a[2]);
	else if (n == SYS_getsockopt)
		*rc = getsockopt(fd, (int)a[1], (int)a[2], (void *)a[3], (socklen_t *)a[4]);
	else if (n == SYS_setsockopt)
		*rc = setsockopt(fd, (int)a[1], (int)a[2], (const void *)a[3], (socklen_t)a[4]);
	else if (n == SYS_getsockname)
		*rc = getsockname(fd, (void *)a[1], (socklen_t *)a[2]);
	else if (n == SYS_getpeername)
		*rc = getpeername(fd, (void *)a[1], (socklen_t *)a[2]);
	else
		return false;
	return true;
}

/* --- calls on several, and on any --- */

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

/* Calls that concern this library whatever their descriptors are. */
static bool
is_general(long n, const long *a)
{
	return n == SYS_close_range || n == SYS_pidfd_getfd || n == SYS_recvmsg ||
		n == SYS_recvmmsg || n == SYS_epoll_ctl || n == SYS_setsockopt ||
		(n == SYS_fcntl && is_of_owner((int)a[1])) ||
		(n == SYS_ioctl &&
			((unsigned int)a[1] == FIOSETOWN || (unsigned int)a[1] == SIOCSPGRP));
}

/* Calls whose descriptors are in memory. */
static bool
is_wait(long n)
{
	return n == SYS_ppoll || n == SYS_pselect6
#ifdef SYS_poll
		|| n == SYS_poll || n == SYS_select
#endif
		;
}

/* Whether the call may be one of these.  Most are not, and get no further. */
static bool
is_concern(long n, const long *a)
{
	return is_known(a[0]) || is_known(a[1]) || is_known(a[2]) || is_general(n, a) || is_wait(n);
}

static bool
is_any_polled(const struct pollfd *p, unsigned long n)
{
	if (p == NULL || n > KS_MAX_FDS)
		return false;
	while (n > 0 && !is_known(p->fd)) {
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
			if (a[set] != 0 && FD_ISSET(fd, (const fd_set *)a[set]) && is_known(fd))
				return true;
	return false;
}

/* Unlike the functions of the C library, these system calls store the remaining time in @limit, if
 * they accept it and it is not 0. */
static void
store_left(struct timespec *limit, uint64_t began, long rc)
{
	uint64_t took = ks_now() - began;

	if (limit == NULL || (limit->tv_sec == 0 && limit->tv_nsec == 0) ||
		(rc < 0 && errno == EINVAL))
		return;
	limit->tv_sec -= (time_t)(took / SECOND_NS);
	limit->tv_nsec -= (long)(took % SECOND_NS);
	if (limit->tv_nsec < 0) {
		limit->tv_nsec += (long)SECOND_NS;
		limit->tv_sec--;
	}
	if (limit->tv_sec < 0)
		*limit = (struct timespec){0};
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

/* The last argument of pselect6(). */
struct direct_mask {
	const sigset_t *set;
	size_t size;
};

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

/* A mask of another size is left to the kernel, which refuses it. */
static bool
is_mask_ok(const struct direct_mask *mask)
{
	return mask == NULL || mask->set == NULL || mask->size == SET_SIZE;
}

static bool
direct_wait(long n, const long *a, long *rc)
{
	if (n == SYS_ppoll && is_any_polled((void *)a[0], (unsigned long)a[1]) &&
		(a[3] == 0 || a[4] == SET_SIZE))
		*rc = direct_ppoll(a);
	else if (n == SYS_pselect6 && is_any_selected(a) && is_mask_ok((const void *)a[5]))
		*rc = direct_pselect(a);
#ifdef SYS_poll
	else if (n == SYS_poll && is_any_polled((void *)a[0], (unsigned long)a[1]))
		*rc = poll((struct pollfd *)a[0], (nfds_t)a[1], (int)a[2]);
	else if (n == SYS_select && is_any_selected(a))
		*rc = select((int)a[0], (fd_set *)a[1], (fd_set *)a[2], (fd_set *)a[3],
			(struct timeval *)a[4]);
#endif
	else
		return false;
	return true;
}

static bool
direct_several(long n, const long *a, long *rc)
{
	if (n == SYS_close_range)
		*rc = close_range((unsigned int)a[0], (unsigned int)a[1], (int)a[2]);
	else if (n == SYS_pidfd_getfd)
		*rc = pidfd_getfd((int)a[0], (int)a[1], (unsigned int)a[2]);
	else if (n == SYS_epoll_ctl)
		*rc = epoll_ctl((int)a[0], (int)a[1], (int)a[2], (struct epoll_event *)a[3]);
	else if (n == SYS_dup3 && (is_known(a[0]) || is_known(a[1])))
		*rc = dup3((int)a[0], (int)a[1], (int)a[2]);
#ifdef SYS_dup2
	else if (n == SYS_dup2 && (is_known(a[0]) || is_known(a[1])))
		*rc = dup2((int)a[0], (int)a[1]);
#endif
	else if (n == SYS_splice && (is_known(a[0]) || is_known(a[2])))
		*rc = splice((int)a[0], (off64_t *)a[1], (int)a[2], (off64_t *)a[3], (size_t)a[4],
			(unsigned int)a[5]);
	else
		return false;
	return true;
}

/* @return whether the call was made: its result is in *@rc, and errno */
static bool
direct_call(long n, const long *a, long *rc)
{
	if (direct_several(n, a, rc) || direct_wait(n, a, rc))
		return true;
	return (is_known(a[0]) || is_general(n, a)) &&
		(direct_bytes(n, a, rc) || direct_life(n, a, rc));
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
	bool made;
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
	if (is_concern(n, a)) {
		ks_no_cancel();
		made = direct_call(n, a, &rc);
		ks_no_cancel_end();
		if (made)
			return rc;
	}
	return direct_result(raw(n, a));
}

#endif /* HAS_RAW */
