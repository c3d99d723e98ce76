/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* System calls that are made by syscall(). */
#include "same.h"

#if defined(__x86_64__)
#include <asm/prctl.h>
#endif
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define HIGH      60 /* a free descriptor number */
#define SET_BYTES 8  /* size of the kernel's set of signals */

static void
calls_by_number(void)
{
	struct sockaddr_in n = {0};
	socklen_t len = sizeof(n);
	struct pollfd p;
	char buf[10] = "";
	long fd;

	near = socket(AF_INET, SOCK_STREAM, 0);
	tell(connect(near, (void *)&address, sizeof(address)));
	far = (int)syscall(SYS_accept4, listener, NULL, NULL, SOCK_CLOEXEC);
	tell(fcntl(far, F_GETFD));
	tell(syscall(SYS_write, near, "abc", 3));
	p = (struct pollfd){.fd = far, .events = POLLIN};
	tell(syscall(SYS_ppoll, &p, 1, NULL, NULL, 0));
	tell(syscall(SYS_read, far, buf, 2));
	tell(syscall(SYS_recvfrom, far, buf, 9, 0, NULL, NULL));
	tell(syscall(SYS_sendto, far, buf, 1, 0, NULL, 0));
	tell(recv(near, buf, 9, 0));
	tell(syscall(SYS_getpeername, near, &n, &len));
	tell(len);
	tell(syscall(SYS_dup3, near, 77, 0));
	tell(write(77, "abcd", 4));
	tell(recv(far, buf, 9, 0));
	tell(syscall(SYS_shutdown, near, SHUT_WR));
	tell(recv(far, buf, 9, 0));
	tell(syscall(SYS_read, -1, buf, 1));
	fd = syscall(SYS_getpid);
	tell(fd == getpid());
}

/* The numbers of what was closed are used again. */
static void
closes_by_number(void)
{
	char buf[10] = "";
	int fd;

	open_both();
	tell(syscall(SYS_close, near));
	fd = open("/dev/null", O_RDWR);
	tell(fd == near);
	tell(write(fd, "abc", 3));
	tell(recv(far, buf, 9, 0));
	close(fd);
	close(far);
	open_both();
	tell(syscall(SYS_close_range, near, near, 0));
	fd = open("/dev/null", O_RDWR);
	tell(fd == near);
	tell(write(fd, "abc", 3));
	tell(read(fd, buf, 3));
	tell(recv(far, buf, 9, 0));
}

static void
from_another_process(void)
{
	char buf[10] = "", byte;
	int ends[2], pidfd;
	pid_t child;

	open_both();
	if (pipe(ends) != 0)
		fail("a pipe");
	child = fork();
	if (child == 0) {
		close(ends[1]);
		_exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
	}
	pidfd = (int)syscall(SYS_pidfd_open, child, 0);
	close(near);
	near = (int)syscall(SYS_pidfd_getfd, pidfd, near, 0);
	tell(near >= 0);
	tell(write(near, "abc", 3));
	tell(recv(far, buf, 9, 0));
	tell(send(far, "abcd", 4, 0));
	tell(read(near, buf, 9));
	close(ends[1]);
	tell_status(child);
}

/* A program may change its thread pointer, and with it the value of the stack protector. */
__attribute__((no_stack_protector)) static void
thread_pointer_by_number(void)
{
#ifdef SYS_arch_prctl
	static uint64_t other[32];
	const uint64_t *own;
	long rc;

	if (syscall(SYS_arch_prctl, ARCH_GET_FS, &own) != 0)
		fail("ARCH_GET_FS");
	memcpy(other, own, sizeof(other));
	other[0] = other[2] = (uint64_t)(uintptr_t)other;
	other[5] ^= 0x5500;
	rc = syscall(SYS_arch_prctl, ARCH_SET_FS, other);
	rc += syscall(SYS_arch_prctl, ARCH_SET_FS, own);
	tell(rc);
#endif
	open_both();
}

static void
places_by_number(void)
{
	static const int flags[] = {
		0, RWF_NOWAIT, RWF_HIPRI, RWF_SYNC | RWF_DSYNC, RWF_APPEND, 1 << 30};
	struct iovec one = {data, 2};

	open_both();
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		give(far, 2);
		tell(syscall(SYS_preadv2, near, &one, 1, -1L, -1L, flags[i]));
		tell(syscall(SYS_pwritev2, near, &one, 1, -1L, -1L, flags[i]));
	}
	tell(syscall(SYS_preadv2, near, &one, 1, -1L, 0L, 0));
	tell(syscall(SYS_preadv2, near, &one, 1, 0L, 0L, 0));
	tell(syscall(SYS_preadv2, near, &one, 1, -2L, 0L, 0));
	tell(syscall(SYS_preadv2, near, &one, -1L, -1L, 0L, 0));
	tell(syscall(SYS_pwritev2, near, &one, 1, 0L, 0L, 0));
	tell(syscall(SYS_preadv2, near, &one, 0, -1L, 0L, 0));
	tell(syscall(SYS_preadv, near, &one, 1, 0L, 0L));
	tell(syscall(SYS_pwritev, near, &one, 1, 0L, 0L));
	tell(syscall(SYS_pread64, near, data, 1, 0L));
	tell(syscall(SYS_pwrite64, near, data, 1, 0L));
	tell(recv(far, data, 100, 0));
	tell(recv(near, data, 100, MSG_DONTWAIT));
}

static void
messages_by_number(void)
{
	struct iovec one = {data, 2};
	struct mmsghdr m[2] = {{.msg_hdr = {.msg_iov = &one, .msg_iovlen = 1}}};
	struct timespec limit = {.tv_sec = 1};

	m[1] = m[0];
	open_both();
	tell(syscall(SYS_sendmsg, near, &m[0].msg_hdr, 0));
	tell(syscall(SYS_sendmmsg, near, m, 2, 0));
	tell(syscall(SYS_writev, near, &one, 1));
	while (recv(far, data, 8, MSG_PEEK) < 8)
		usleep(1000);
	tell(syscall(SYS_recvmsg, far, &m[0].msg_hdr, 0));
	tell(syscall(SYS_recvmmsg, far, m, 2, 0, &limit));
	printf("/%u/%u", m[0].msg_len, m[1].msg_len);
	tell(syscall(SYS_readv, far, &one, 1));
	tell(syscall(SYS_recvmmsg, far, m, 2, MSG_DONTWAIT, NULL));
}

static void
files_by_number(void)
{
	int ends[2], file = open("/proc/self/exe", O_RDONLY);
	struct iovec one = {data, 1};
	long at = 1;

	open_both();
	if (pipe(ends) != 0)
		fail("a pipe");
	tell(syscall(SYS_sendfile, near, file, &at, 3));
	tell(at);
	tell(recv(far, data, 9, 0));
	printf(" %.3s", data);
	give(far, 5);
	tell(syscall(SYS_splice, near, NULL, ends[1], NULL, 3, 0));
	tell(syscall(SYS_splice, ends[0], NULL, near, NULL, 3, 0));
	tell(recv(far, data, 9, 0));
	tell(syscall(SYS_tee, near, ends[1], 1, 0));
	tell(syscall(SYS_tee, ends[0], near, 1, 0));
	tell(syscall(SYS_vmsplice, near, &one, 1, 0));
	tell(syscall(SYS_copy_file_range, near, NULL, far, NULL, 1, 0));
	tell(syscall(SYS_copy_file_range, file, NULL, near, NULL, 1, 0));
	tell(syscall(SYS_sendfile, file, near, NULL, 1));
	tell(syscall(SYS_sendfile, far, near, NULL, 1));
	tell(syscall(SYS_lseek, near, 0, SEEK_CUR));
	tell(syscall(SYS_fsync, near));
	tell(syscall(SYS_fdatasync, near));
	tell(recv(near, data, 9, 0));
}

static void
settings_by_number(void)
{
	int n = -1, on = 1;
	struct sockaddr_in name = {0};
	socklen_t len = sizeof(n);

	open_both();
	give(far, 3);
	tell(syscall(SYS_ioctl, near, FIONREAD, &n));
	tell(n);
	tell(syscall(SYS_ioctl, near, FIONBIO, &on));
	tell(syscall(SYS_fcntl, near, F_GETFL));
	tell(syscall(SYS_fcntl, near, F_SETFL, 0L));
	tell(syscall(SYS_getsockopt, near, SOL_SOCKET, SO_PROTOCOL, &n, &len));
	tell(n);
	tell(syscall(SYS_setsockopt, near, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)));
	tell(syscall(SYS_getsockopt, near, SOL_SOCKET, SO_KEEPALIVE, &n, &len));
	tell(n);
	len = sizeof(name);
	tell(syscall(SYS_getsockname, far, &name, &len));
	tell(name.sin_port == address.sin_port);
	tell(syscall(SYS_bind, near, &address, sizeof(address)));
	tell(syscall(SYS_listen, near, 1));
	tell(syscall(SYS_accept4, near, NULL, NULL, 0));
	tell(syscall(SYS_connect, near, &address, sizeof(address)));
	tell(syscall(SYS_shutdown, near, SHUT_RD));
	tell(syscall(SYS_shutdown, near, 7));
	tell(recv(near, data, 9, 0));
	tell(recv(near, data, 9, 0));
}

/* These settings are made before there is a connection. */
static void
settings_before_by_number(void)
{
	const struct timeval limit = {.tv_usec = 10000};
	const struct linger now = {.l_onoff = 1};
	sigset_t sig;

	handle(SIGUSR2, SA_RESTART);
	sigemptyset(&sig);
	sigaddset(&sig, SIGUSR2);
	near = socket(AF_INET, SOCK_STREAM, 0);
	tell(syscall(SYS_setsockopt, near, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)));
	tell(syscall(SYS_setsockopt, near, SOL_SOCKET, SO_LINGER, &now, sizeof(now)));
	tell(syscall(SYS_fcntl, near, F_SETOWN, getpid()));
	tell(syscall(SYS_fcntl, near, F_SETSIG, SIGUSR2));
	tell(syscall(SYS_fcntl, near, F_SETFL, O_ASYNC));
	if (connect(near, (void *)&address, sizeof(address)) != 0)
		fail("connect");
	far = accept(listener, NULL, NULL);
	sigprocmask(SIG_BLOCK, &sig, NULL);
	greet(); /* a call with a time limit is ended by a signal */
	sigprocmask(SIG_UNBLOCK, &sig, NULL);
	came = 0;
	tell(recv(near, data, 9, 0));
	tell(send(far, "x", 1, 0));
	while (came == 0)
		usleep(1000);
	tell(recv(near, data, 9, 0));
	close(near);
	await(far, POLLRDHUP);
	tell(recv(far, data, 9, 0));
}

static void
duplicates_by_number(void)
{
	int one, two;

	open_both();
	one = (int)syscall(SYS_dup, near);
	two = (int)syscall(SYS_fcntl, near, F_DUPFD_CLOEXEC, HIGH);
	tell(two);
	tell(fcntl(two, F_GETFD));
	tell(syscall(SYS_dup3, near, near, 0));
	tell(syscall(SYS_dup3, near, HIGH + 1, O_CLOEXEC));
	tell(syscall(SYS_dup3, listener, two, 0));
	tell(send(HIGH + 1, data, 1, 0));
	tell(send(one, data, 1, 0));
	tell(send(two, data, 1, MSG_NOSIGNAL));
	tell(recv(far, data, 2, MSG_WAITALL));
	close(one);
	close(HIGH + 1);
	tell(syscall(SYS_close_range, near, near, CLOSE_RANGE_CLOEXEC));
	tell(fcntl(near, F_GETFD));
	tell(syscall(SYS_close, near));
	tell(recv(far, data, 2, 0));
}

/* --- waiting --- */

static long
select_by_number(int fd, struct timespec *limit)
{
	sigset_t none;
	struct {
		const sigset_t *set;
		size_t len;
	} mask = {&none, SET_BYTES};
	fd_set r;

	sigemptyset(&none);
	FD_ZERO(&r);
	FD_SET(fd, &r);
	return syscall(SYS_pselect6, fd + 1, &r, NULL, NULL, limit, &mask);
}

static long
poll_by_number(int fd, struct timespec *limit)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return syscall(SYS_ppoll, &p, 1, limit, NULL, 0);
}

/* The kernel stores the remaining time. */
static void
wait_by_number(long (*wait)(int fd, struct timespec *limit))
{
	struct timespec limit = {.tv_nsec = 20000000};

	open_both();
	tell(wait(near, &limit));
	printf("/%ld/%ld", (long)limit.tv_sec, limit.tv_nsec);
	tell(wait(near, &limit));
	give(far, 2);
	limit.tv_sec = 50;
	tell(wait(near, &limit));
	printf("/%d/%d", limit.tv_sec<50, limit.tv_sec> 0);
	limit = (struct timespec){.tv_sec = -1};
	tell(wait(near, &limit));
	printf("/%ld", (long)limit.tv_sec);
	tell(wait(near, NULL));
	tell(recv(near, data, 9, 0));
	limit = (struct timespec){0};
	tell(wait(near, &limit));
}

static void
select_with_mask_by_number(void)
{
	wait_by_number(select_by_number);
}

static void
poll_with_mask_by_number(void)
{
	wait_by_number(poll_by_number);
}

/* Calls that only some machines have. */
static void
older_waits_by_number(void)
{
	struct timeval limit = {.tv_sec = 50};
	struct pollfd p = {.events = POLLIN};
	fd_set r;

	open_both();
	give(far, 2);
	FD_ZERO(&r);
	FD_SET(near, &r);
	p.fd = near;
#ifdef SYS_select
	tell(syscall(SYS_select, near + 1, &r, NULL, NULL, &limit));
	printf("/%d/%d", limit.tv_sec < 50, FD_ISSET(near, &r));
	tell(syscall(SYS_select, -1, &r, NULL, NULL, &limit));
#endif
#ifdef SYS_poll
	tell(syscall(SYS_poll, &p, 1, -1));
	printf("/%d", p.revents);
#endif
	tell(recv(near, data, 9, 0));
#ifdef SYS_select
	limit = (struct timeval){.tv_usec = 10000};
	tell(syscall(SYS_select, near + 1, &r, NULL, NULL, &limit));
	printf("/%ld/%d", (long)limit.tv_usec, FD_ISSET(near, &r));
#endif
}

/* The remaining time cannot be stored in these limits, which the kernel ignores. */
static void
waits_with_const_limits(void)
{
	static const struct timespec limit = {.tv_sec = 1, .tv_nsec = 20000000};
	struct pollfd p = {.events = POLLIN};
	fd_set r;

	open_both();
	give(far, 2);
	p.fd = near;
	FD_ZERO(&r);
	FD_SET(near, &r);
	tell(syscall(SYS_ppoll, &p, 1, &limit, NULL, 0));
	tell(syscall(SYS_pselect6, near + 1, &r, NULL, NULL, &limit, NULL));
#ifdef SYS_select
	static const struct timeval older = {.tv_usec = 10000};

	tell(syscall(SYS_select, near + 1, &r, NULL, NULL, &older));
	tell(recv(near, data, 9, 0));
	tell(syscall(SYS_select, near + 1, &r, NULL, NULL, &older));
#endif
}

/* The socket is in the set before it is connected. */
static void
epoll_by_number(void)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.fd = 5}, got = {0};
	const struct timespec limit = {.tv_sec = 50};
	int set = (int)syscall(SYS_epoll_create1, 0);

	near = socket(AF_INET, SOCK_STREAM, 0);
	tell(syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, near, &e));
	tell(connect(near, (void *)&address, sizeof(address)));
	far = accept(listener, NULL, NULL);
	greet();
	tell(syscall(SYS_epoll_pwait, set, &got, 1, 5000, NULL, SET_BYTES));
	printf("/%u/%d", got.events, got.data.fd);
	e.events = EPOLLIN;
	tell(syscall(SYS_epoll_ctl, set, EPOLL_CTL_MOD, near, &e));
	tell(syscall(SYS_epoll_pwait2, set, &got, 1, &(struct timespec){0}, NULL, SET_BYTES));
	tell(send(far, "abc", 3, 0));
	tell(syscall(SYS_epoll_pwait2, set, &got, 1, &limit, NULL, SET_BYTES));
	printf("/%u", got.events);
	tell(syscall(SYS_epoll_ctl, set, EPOLL_CTL_DEL, near, NULL));
	tell(recv(near, data, 9, 0));
}

/* --- a connection that comes in a message --- */

static void
brought_by_number(bool many)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
	char byte = 0;
	struct iovec one = {&byte, 1};
	struct mmsghdr m = {.msg_hdr = {.msg_iov = &one,
				    .msg_iovlen = 1,
				    .msg_control = &control,
				    .msg_controllen = sizeof(control)}};
	int ends[2], fd;

	open_both();
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
		fail("a pair");
	memcpy(CMSG_DATA(&control.head), &near, sizeof(near));
	tell(syscall(SYS_sendmsg, ends[0], &m.msg_hdr, 0));
	close(near);
	if (many)
		tell(syscall(SYS_recvmmsg, ends[1], &m, 1, 0, NULL));
	else
		tell(syscall(SYS_recvmsg, ends[1], &m.msg_hdr, 0));
	memcpy(&fd, CMSG_DATA(&control.head), sizeof(fd));
	near = fd;
	give(far, 3);
	tell(read(near, data, 9));
	tell(write(near, data, 2));
	tell(recv(far, data, 9, 0));
	close(near);
	await(far, POLLRDHUP);
	tell(recv(far, data, 9, 0));
}

static void
from_a_message_by_number(void)
{
	brought_by_number(false);
	close(far);
	brought_by_number(true);
}

/* A thread that waits for a message on another socket can be cancelled, if its type is
 * asynchronous. */
static long
wait_for_message(struct call *c)
{
	struct iovec one = {data, 1};
	struct mmsghdr m = {.msg_hdr = {.msg_iov = &one, .msg_iovlen = 1}};

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	return c->flags == 0 ? syscall(SYS_recvmsg, c->fd, &m.msg_hdr, 0)
			     : syscall(SYS_recvmmsg, c->fd, &m, 1, 0, NULL);
}

static void
cancelled_by_number(void)
{
	struct call c;
	int ends[2];
	void *rc;

	open_both();
	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) != 0)
		fail("a pair");
	for (int many = 0; many < 2; many++) {
		begin_call(&c, wait_for_message, ends[0], 0, many);
		pthread_cancel(c.thread);
		pthread_join(c.thread, &rc);
		tell(rc == PTHREAD_CANCELED);
	}
	greet();
}

/* --- handlers that leave a call --- */

static sigjmp_buf before_call;
static volatile int state_in_handler;
static bool leaves;

static int
cancel_state(void)
{
	int state = -1;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_setcancelstate(state, NULL);
	return state;
}

static void
leave(int sig)
{
	(void)sig;
	state_in_handler = cancel_state();
	if (leaves)
		siglongjmp(before_call, 1);
}

/* @return whether the thread can be cancelled afterwards */
static long
call_and_leave(struct call *c)
{
	struct timespec limit = {.tv_sec = 50};
	int file = open("/proc/self/exe", O_RDONLY);

	if (sigsetjmp(before_call, 1) == 0) {
		if (c->flags == 0)
			(void)syscall(SYS_read, c->fd, data, 1);
		else if (c->flags == 1)
			(void)select_by_number(c->fd, &limit);
		else
			while (sendfile(c->fd, file, &(off_t){0}, 100) > 0)
				continue;
	}
	close(file);
	return cancel_state() == PTHREAD_CANCEL_ENABLE;
}

static void
leave_calls(void)
{
	const struct sigaction act = {.sa_handler = leave};
	struct call c;

	sigaction(SIGUSR1, &act, NULL);
	for (int way = 0; way < 6; way++) {
		open_both();
		leaves = way < 3;
		state_in_handler = -1;
		if (way % 3 == 2)
			fill();
		begin_call(&c, call_and_leave, near, 0, way % 3);
		pthread_kill(c.thread, SIGUSR1);
		end_call(&c);
		printf("/%d", state_in_handler == PTHREAD_CANCEL_ENABLE);
		if (way % 3 != 2)
			greet();
	}
}

const struct same_case by_number[] = {
	{"system calls by number", calls_by_number},
	{"closes by number", closes_by_number},
	{"another thread pointer by number", thread_pointer_by_number},
	{"a connection from another process by pidfd_getfd()", from_another_process},
	{"preadv2 and pwritev2 by number", places_by_number},
	{"messages by number", messages_by_number},
	{"files by number", files_by_number},
	{"settings by number", settings_by_number},
	{"settings before connect by number", settings_before_by_number},
	{"duplicates by number", duplicates_by_number},
	{"pselect6 by number", select_with_mask_by_number},
	{"ppoll by number", poll_with_mask_by_number},
	{"select and poll by number", older_waits_by_number},
	{"waits by number with limits that are constant", waits_with_const_limits},
	{"epoll by number", epoll_by_number},
	{"a connection that comes in a message by number", from_a_message_by_number},
	{"cancelled while it waits for a message by number", cancelled_by_number},
	{"handlers that leave calls by siglongjmp", leave_calls},
	{NULL, NULL},
};
