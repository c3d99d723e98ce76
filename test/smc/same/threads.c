/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Threads that use one connection, signals that come while a call waits, and cancellation.
 */
#include "same.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- another thread ends what a thread waits for --- */

static void
shut_while_receiving(int how, bool other)
{
	struct call c;

	open_both();
	begin_call(&c, call_recv, near, 10, 0);
	tell(shutdown(other ? far : near, how));
	end_call(&c);
	tell(recv(near, data, 1, MSG_DONTWAIT));
	tell(send(near, data, 1, MSG_NOSIGNAL));
	tell(send(far, data, 1, MSG_NOSIGNAL));
}

static void
shut_own_reading(void)
{
	shut_while_receiving(SHUT_RD, false);
}

static void
shut_both_ways(void)
{
	shut_while_receiving(SHUT_RDWR, false);
}

static void
shut_by_peer(void)
{
	shut_while_receiving(SHUT_WR, true);
}

static void
two_receive(void)
{
	struct call a, b;

	open_both();
	begin_call(&a, call_recv, near, 10, 0);
	begin_call(&b, call_recv, near, 10, 0);
	tell(send(far, "abc", 3, 0));
	while (!atomic_load(&a.done) && !atomic_load(&b.done))
		usleep(1000);
	tell(send(far, "defgh", 3, 0));
	end_call(&a);
	end_call(&b);
	begin_call(&a, call_recv, near, 10, 0);
	begin_call(&b, call_recv, near, 10, 0);
	close(far);
	end_call(&a);
	end_call(&b);
}

static void
two_receive_and_reset(void)
{
	struct call a, b;

	open_both();
	begin_call(&a, call_recv, near, 10, 0);
	begin_call(&b, call_recv, near, 10, 0);
	reset(far);
	pthread_join(a.thread, NULL);
	pthread_join(b.thread, NULL);
	/* one of them gets the error */
	printf(" %ld", a.rc + b.rc);
	tell(recv(near, data, 10, 0));
}

static void
two_poll(void)
{
	struct call a, b;

	open_both();
	begin_call(&a, call_poll, near, 0, POLLIN);
	begin_call(&b, call_poll, near, 0, POLLIN);
	tell(send(far, "abc", 3, 0));
	end_call(&a);
	end_call(&b);
	tell(recv(near, data, 10, 0));
}

static void
two_send(void)
{
	struct call a, b;

	handle(SIGPIPE, SA_RESTART);
	open_both();
	fill();
	begin_call(&a, call_send, near, 1, 0);
	begin_call(&b, call_send, near, 1, 0);
	reset(far);
	pthread_join(a.thread, NULL);
	pthread_join(b.thread, NULL);
	printf(" %ld", a.rc + b.rc);
}

static void
close_while_sending(void)
{
	struct call c;
	ssize_t n;

	open_both();
	fill();
	handle(SIGPIPE, SA_RESTART);
	begin_call(&c, call_send, near, 1, MSG_NOSIGNAL);
	tell(close(near));
	do
		n = recv(far, data, sizeof(data), 0);
	while (n > 0);
	tell(n);
	end_call(&c);
}

static void
close_peer_while_polling(void)
{
	struct call c;

	open_both();
	begin_call(&c, call_poll, near, 0, POLLIN | POLLRDHUP);
	tell(close(far));
	end_call(&c);
}

static long
call_accept(struct call *c)
{
	return accept(c->fd, NULL, NULL);
}

static void
shut_while_accepting(void)
{
	struct call c;

	begin_call(&c, call_accept, listener, 0, 0);
	tell(shutdown(listener, SHUT_RDWR));
	end_call(&c);
}

/* --- signals --- */

enum waits_in {
	IN_RECV,
	IN_READ,
	IN_RECVMSG,
	IN_ALL,
	IN_SEND,
	IN_WRITEV,
	IN_POLL,
	IN_SELECT,
	IN_EPOLL,
	IN_ACCEPT,
	IN_STREAM,
	WAITS
};

static enum waits_in what;
static int epoll_set;

static long
wait_in(void)
{
	struct iovec one = {data, 10};
	struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1};
	struct pollfd p = {.fd = near, .events = POLLIN};
	struct epoll_event e = {.events = EPOLLIN};
	char byte = 0;
	fd_set r;

	switch (what) {
	case IN_RECV:
		return recv(near, data, 10, 0);
	case IN_READ:
		return read(near, data, 10);
	case IN_RECVMSG:
		return recvmsg(near, &m, 0);
	case IN_ALL:
		return recv(near, data, 3, MSG_WAITALL);
	case IN_SEND:
		return send(near, &byte, 1, 0);
	case IN_WRITEV:
		one.iov_len = 1;
		return writev(near, &one, 1);
	case IN_POLL:
		return poll(&p, 1, -1);
	case IN_SELECT:
		FD_ZERO(&r);
		FD_SET(near, &r);
		return select(near + 1, &r, NULL, NULL, NULL);
	case IN_EPOLL:
		return epoll_wait(epoll_set, &e, 1, -1);
	case IN_ACCEPT:
		return accept(listener, NULL, NULL) >= 0 ? 0 : -1;
	case IN_STREAM:
		return fgetc(stdin) >= 0 ? 1 : -1;
	default:
		return -1;
	}
}

static bool
sends_in(void)
{
	return what == IN_SEND || what == IN_WRITEV;
}

static long
call_what(struct call *c)
{
	long rc;

	(void)c;
	do
		rc = wait_in();
	while (sends_in() && rc > 0);
	return rc;
}

/* Begins the call that is to wait on near. */
static void
begin_what(struct call *c, enum waits_in in)
{
	struct epoll_event e = {.events = EPOLLIN};

	what = in;
	epoll_set = -1;
	if (in == IN_EPOLL) {
		epoll_set = epoll_create1(0);
		epoll_ctl(epoll_set, EPOLL_CTL_ADD, near, &e);
	}
	if (in == IN_STREAM && dup2(near, 0) != 0)
		fail("dup2");
	if (sends_in())
		fill();
	begin_call(c, call_what, near, 0, 0);
}

/* Sends a signal, and waits until the thread sleeps again or has returned. */
static void
signal_to(struct call *c)
{
	came = 0;
	pthread_kill(c->thread, SIGUSR1);
	while (came == 0)
		usleep(1000);
	await_call(c);
	printf("%s", atomic_load(&c->done) ? " ends:" : " waits:");
}

/* Signals the thread in its call; then lets the call end, if it still waits. */
static void
signal_in(enum waits_in in, int flags)
{
	struct call c;
	int fd;

	open_both();
	handle(SIGUSR1, flags);
	begin_what(&c, in);
	signal_to(&c);
	if (!atomic_load(&c.done)) {
		if (sends_in()) {
			reset(far);
		} else if (in == IN_ACCEPT) {
			fd = socket(AF_INET, SOCK_STREAM, 0);
			if (connect(fd, (void *)&address, sizeof(address)) != 0)
				fail("connect");
		} else if (send(far, "abc", 3, 0) != 3) {
			fail("send");
		}
	}
	end_call(&c);
}

static void
signals_in_all(int flags)
{
	for (int i = 0; i < WAITS; i++)
		signal_in((enum waits_in)i, flags);
}

static void
signals_that_end(void)
{
	handle(SIGPIPE, SA_RESTART);
	signals_in_all(0);
}

static void
signals_that_restart(void)
{
	handle(SIGPIPE, SA_RESTART);
	signals_in_all(SA_RESTART);
}

/* With a time limit a call is not restarted, whatever the handler's flags say. */
static void
signals_and_limits(void)
{
	const struct timeval limit = {.tv_sec = 100};

	handle(SIGUSR1, SA_RESTART);
	for (int i = 0; i < 2; i++) {
		int name = i == 0 ? SO_RCVTIMEO : SO_SNDTIMEO;
		struct call c;

		open_both();
		tell(setsockopt(near, SOL_SOCKET, name, &limit, sizeof(limit)));
		begin_what(&c, i == 0 ? IN_RECV : IN_SEND);
		signal_to(&c);
		if (!atomic_load(&c.done))
			reset(far);
		end_call(&c);
	}
}

/* A signal without a handler, which stops and continues. */
static void
stopped(void)
{
	pid_t child;
	int status;

	open_both();
	fflush(stdout);
	child = fork();
	if (child == 0) {
		close(far);
		_exit(recv(near, data, 10, 0) == 3 ? 0 : 1);
	}
	kill(child, SIGSTOP);
	tell(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
	kill(child, SIGCONT);
	tell(send(far, "abc", 3, 0));
	waitpid(child, &status, 0);
	printf(" %d", status);
}

/* --- SIGPIPE --- */

static long
write_by(int how)
{
	struct iovec one = {data, 1};
	struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1};
	struct mmsghdr mm = {.msg_hdr = m};
	int file, ends[2];
	long rc;

	switch (how) {
	case 0:
		return send(near, data, 1, 0);
	case 1:
		return send(near, data, 1, MSG_NOSIGNAL);
	case 2:
		return write(near, data, 1);
	case 3:
		return writev(near, &one, 1);
	case 4:
		return sendmsg(near, &m, 0);
	case 5:
		return sendmsg(near, &m, MSG_NOSIGNAL);
	case 6:
		return sendmmsg(near, &mm, 1, 0);
	case 7:
		file = fileno(fopen("/proc/self/exe", "r"));
		return sendfile(near, file, NULL, 1);
	case 8:
		if (pipe(ends) != 0 || write(ends[1], "x", 1) != 1)
			fail("a pipe");
		return splice(ends[0], NULL, near, NULL, 1, 0);
	case 9:
		return send(near, data, 0, 0);
	case 10:
		return write(near, data, 0);
	case 11:
		rc = dprintf(near, "x");
		return rc;
	case 12:
		return send(near, data, 1, MSG_OOB);
	default:
		return sendto(near, data, 1, 0, (void *)&address, sizeof(address));
	}
}

#define WRITES 14

static void
pipes_after(bool by_reset)
{
	handle(SIGPIPE, SA_RESTART);
	for (int how = 0; how < WRITES; how++) {
		open_both();
		if (by_reset) {
			reset(far);
			await(near, POLLRDHUP);
			tell(recv(near, data, 1, 0));
		} else {
			shutdown(near, SHUT_WR);
		}
		came = 0;
		tell(write_by(how));
		printf("/%d", (int)came);
	}
}

static void
pipes_after_shutdown(void)
{
	pipes_after(false);
}

static void
pipes_after_reset(void)
{
	pipes_after(true);
}

static void
pipe_kills(void)
{
	sigset_t signs;
	pid_t child;
	int status;

	open_both();
	shutdown(near, SHUT_WR);
	fflush(stdout);
	child = fork();
	if (child == 0) {
		(void)send(near, data, 1, 0);
		_exit(0);
	}
	waitpid(child, &status, 0);
	printf(" %d", status);
	signal(SIGPIPE, SIG_IGN);
	tell(send(near, data, 1, 0));
	sigemptyset(&signs);
	sigaddset(&signs, SIGPIPE);
	handle(SIGPIPE, 0);
	sigprocmask(SIG_BLOCK, &signs, NULL);
	tell(send(near, data, 1, 0));
	sigpending(&signs);
	printf(" %d/%d", sigismember(&signs, SIGPIPE), (int)came);
	sigemptyset(&signs);
	sigprocmask(SIG_SETMASK, &signs, NULL);
	printf("/%d", (int)came);
}

/* --- cancellation --- */

static void
tell_cancelled(pthread_t t)
{
	void *rc;

	pthread_join(t, &rc);
	printf(" %s", rc == PTHREAD_CANCELED ? "cancelled" : "not");
}

static void
cancel_in_all(void)
{
	for (int i = 0; i < WAITS; i++) {
		int before = count_descriptors();
		struct call c;

		if (i == IN_STREAM)
			continue;
		open_both();
		begin_what(&c, (enum waits_in)i);
		pthread_cancel(c.thread);
		tell_cancelled(c.thread);
		/* the connection works as before */
		if (sends_in()) {
			shutdown(near, SHUT_WR);
			while (recv(far, data, sizeof(data), 0) > 0)
				continue;
			tell(send(far, "abc", 3, 0));
			tell(recv(near, data, 3, MSG_WAITALL));
		} else {
			greet();
			greet();
		}
		tell(close(near));
		tell(recv(far, data, 10, 0));
		close(far);
		if (epoll_set >= 0)
			close(epoll_set);
		tell(count_descriptors() - before);
	}
}

/* A thread that is to be cancelled, and that finds all that it wants. */
static void *
cancelled_before(void *arg)
{
	long rc = -2;

	(void)arg;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_cancel(pthread_self());
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	rc = what == WAITS ? send(near, data, 1, 0) : wait_in();
	return rc == -2 ? NULL : (void *)&what;
}

static void
cancel_with_bytes(void)
{
	static const enum waits_in ways[] = {
		IN_RECV, IN_READ, IN_RECVMSG, IN_ALL, IN_POLL, IN_SELECT, WAITS, IN_WRITEV};
	pthread_t t;

	open_both();
	give(far, 100);
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		what = ways[i];
		if (pthread_create(&t, NULL, cancelled_before, NULL) != 0)
			fail("a thread");
		tell_cancelled(t);
	}
	tell(recv(near, data, 200, 0));
	tell(recv(far, data, 10, MSG_DONTWAIT));
}

/* As the one above, with connect(), accept(), close() and calls that are no cancellation points. */
static void *
cancelled_in_connect(void *arg)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_cancel(pthread_self());
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	if (arg != NULL) {
		int v;
		socklen_t len = sizeof(v);

		(void)getsockopt(near, IPPROTO_TCP, TCP_NODELAY, &v, &len);
		(void)shutdown(near, SHUT_WR);
		(void)close(dup(near)); /* a cancellation point */
	} else {
		(void)connect(near, (void *)&address, sizeof(address));
	}
	return NULL;
}

static void
cancel_connect(void)
{
	pthread_t t;

	near = socket(AF_INET, SOCK_STREAM, 0);
	if (pthread_create(&t, NULL, cancelled_in_connect, NULL) != 0)
		fail("a thread");
	tell_cancelled(t);
	close(near);
	open_both();
	if (pthread_create(&t, NULL, cancelled_in_connect, &what) != 0)
		fail("a thread");
	tell_cancelled(t);
	await(far, POLLRDHUP);
	tell(recv(far, data, 1, 0));
	close(near);
	close(far);
	open_both();
}

/* --- the asynchronous type of cancellation --- */

static pthread_key_t at_end;
static int seen[2]; /* signals in the cleanup handler, and in the destructor */

static void
raise_in(void *arg)
{
	sigset_t mask;

	came = 0;
	raise(SIGUSR1);
	(void)pthread_sigmask(SIG_SETMASK, NULL, &mask);
	*(int *)arg = (int)came + 10 * sigismember(&mask, SIGUSR2);
}

/* Waits for a byte by the number of the system call: over SMC-R this is no cancellation point, and
 * the thread is cancelled when the call has ended. */
static void *
wait_asynchronously(void *arg)
{
	struct call *c = arg;
	char byte;

	(void)pthread_setspecific(at_end, &seen[1]);
	pthread_cleanup_push(raise_in, &seen[0]);
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	atomic_store(&c->id, (pid_t)syscall(SYS_gettid));
	(void)syscall(SYS_recvfrom, near, &byte, 1, 0, NULL, NULL);
	pthread_cleanup_pop(0);
	return NULL;
}

static void
cancel_asynchronously(void)
{
	struct call c = {.fd = -1};

	handle(SIGUSR1, SA_RESTART);
	if (pthread_key_create(&at_end, raise_in) != 0)
		fail("a key");
	open_both();
	if (pthread_create(&c.thread, NULL, wait_asynchronously, &c) != 0)
		fail("a thread");
	await_call(&c);
	pthread_cancel(c.thread);
	tell(send(far, "x", 1, 0));
	tell_cancelled(c.thread);
	printf(" %d %d", seen[0], seen[1]);
	tell(send(near, "y", 1, 0));
	tell(recv(far, data, 1, 0));
}

/* The type that a thread has set is the one that is reported, also in a handler. */
static int types[3];

static void
note_type(int sig)
{
	(void)sig;
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &types[0]);
}

static void
type_in_handler(void)
{
	const struct sigaction act = {.sa_handler = note_type};

	open_both();
	(void)sigaction(SIGUSR1, &act, NULL);
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &types[1]);
	greet();
	raise(SIGUSR1);
	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &types[2]);
	greet();
	for (int i = 0; i < 3; i++)
		printf(" %d", types[i] == PTHREAD_CANCEL_ASYNCHRONOUS);
}

/* A child that has this memory: vfork(). */
static void
executed_by_vfork(void)
{
	pid_t child;
	int status = -1;

	open_both();
	if (send(far, "hi\n", 3, 0) != 3)
		fail("send");
	fflush(stdout);
	child = vfork();
	if (child == 0) {
		if (dup2(near, STDIN_FILENO) == 0 && dup2(near, STDOUT_FILENO) == STDOUT_FILENO)
			execl("/bin/sh", "sh", "-c", "read x; echo $x", (char *)NULL);
		_exit(9);
	}
	tell(waitpid(child, &status, 0) == child);
	printf("/%d", status);
	tell(recv(far, data, 3, MSG_WAITALL));
	printf("/%.2s", data);
	greet();
	tell(close(near));
	tell(recv(far, data, 1, 0));
}

static void
closed_by_vfork(void)
{
	pid_t child;
	int status = -1;

	open_both();
	fflush(stdout);
	child = vfork();
	if (child == 0) {
		close(near);
		close(far);
		_exit(0);
	}
	tell(waitpid(child, &status, 0) == child);
	greet();
	child = vfork();
	if (child == 0) {
		(void)write(near, "child", 5);
		_exit(0);
	}
	tell(waitpid(child, &status, 0) == child);
	tell(recv(far, data, 5, MSG_WAITALL));
	greet();
}

/* --- a handler leaves a waiting call --- */

static sigjmp_buf before_wait;

static void
leave_wait(int sig)
{
	(void)sig;
	siglongjmp(before_wait, 1);
}

static void *
wait_and_leave(void *arg)
{
	struct call *c = arg;

	if (sigsetjmp(before_wait, 1) == 0) {
		atomic_store(&c->id, (pid_t)syscall(SYS_gettid));
		(void)c->fn(c);
	}
	pthread_exit(arg);
}

static int file_to_send;

static long
send_from_file(struct call *c)
{
	return sendfile(c->fd, file_to_send, NULL, c->len);
}

/* Prints whether the connection leaves a descriptor behind when it is closed. */
static void
leave_waiting(long (*fn)(struct call *c))
{
	struct call c = {.fn = fn};
	int before = count_descriptors();

	open_both();
	if (fn != call_recv)
		fill();
	c.fd = near;
	c.len = 1;
	if (pthread_create(&c.thread, NULL, wait_and_leave, &c) != 0)
		fail("a thread");
	await_call(&c);
	pthread_kill(c.thread, SIGUSR1);
	pthread_join(c.thread, NULL);
	close(near);
	close(far);
	tell(count_descriptors() - before);
}

static void
leave_by_siglongjmp(void)
{
	const struct sigaction act = {.sa_handler = leave_wait};

	(void)sigaction(SIGUSR1, &act, NULL);
	file_to_send = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (file_to_send < 0)
		fail("a file");
	/* what the first connection of a process needs stays open */
	open_both();
	close(near);
	close(far);
	for (int i = 0; i < 3; i++) {
		leave_waiting(call_recv);
		leave_waiting(call_send);
		leave_waiting(send_from_file);
	}
}

/* --- duplicates --- */

#define ROUNDS 2000
#define NUMBER 70 /* a free descriptor number */

static _Atomic int rounds, duplicated;
static _Atomic bool over;

/* In each round, makes NUMBER a duplicate of the descriptor. */
static void *
duplicate_often(void *arg)
{
	int fd = *(const int *)arg;

	for (int i = 1; i <= ROUNDS; i++) {
		while (atomic_load(&rounds) < i)
			sched_yield();
		if (dup2(fd, NUMBER) != NUMBER)
			fail("dup2");
		atomic_fetch_add(&duplicated, 1);
	}
	return arg;
}

static void *
use_duplicate(void *arg)
{
	char byte;

	while (!atomic_load(&over))
		if (recv(NUMBER, &byte, 1, MSG_DONTWAIT) >= 0)
			fail("there are no bytes");
	return arg;
}

static int
port_of(int fd)
{
	struct sockaddr_in at = {0};
	socklen_t len = sizeof(at);

	if (getsockname(fd, (void *)&at, &len) != 0)
		fail("getsockname");
	return at.sin_port;
}

static ino_t
inode_of(int fd)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		fail("fstat");
	return st.st_ino;
}

/* Two threads make the same number a duplicate, and a third one uses it.  Whoever was last, all
 * calls on the number are for the same connection. */
static void
two_duplicate(void)
{
	int ends[2], wrong = 0, before;
	pthread_t t[3];
	ino_t inode;

	open_both();
	ends[0] = near;
	open_both();
	ends[1] = near;
	inode = inode_of(ends[0]);
	if (dup2(near, NUMBER) != NUMBER)
		fail("dup2");
	before = count_descriptors();
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, duplicate_often, &ends[i]);
	pthread_create(&t[2], NULL, use_duplicate, NULL);
	for (int i = 1; i <= ROUNDS; i++) {
		atomic_store(&rounds, i);
		while (atomic_load(&duplicated) < 2 * i)
			sched_yield();
		wrong += (inode_of(NUMBER) == inode) != (port_of(NUMBER) == port_of(ends[0]));
	}
	atomic_store(&over, true);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	tell(wrong);
	tell(count_descriptors() - before);
	close(NUMBER);
	greet();
	close(ends[1]);
	tell(recv(far, data, 1, 0));
}

const struct same_case concurrent[] = {
	{"shutdown, reading, while a thread receives", shut_own_reading},
	{"shutdown, both, while a thread receives", shut_both_ways},
	{"shutdown by the peer while a thread receives", shut_by_peer},
	{"two threads receive", two_receive},
	{"two threads receive, and a reset", two_receive_and_reset},
	{"two threads poll", two_poll},
	{"two threads send, and a reset", two_send},
	{"close while a thread sends", close_while_sending},
	{"close by the peer while a thread polls", close_peer_while_polling},
	{"shutdown of a listener while a thread accepts", shut_while_accepting},
	{"signals that end calls", signals_that_end},
	{"signals after which calls continue", signals_that_restart},
	{"signals and time limits", signals_and_limits},
	{"a process that is stopped", stopped},
	{"SIGPIPE after shutdown", pipes_after_shutdown},
	{"SIGPIPE after a reset", pipes_after_reset},
	{"SIGPIPE that kills, is ignored or blocked", pipe_kills},
	{"cancelled while it waits", cancel_in_all},
	{"cancelled before a call that need not wait", cancel_with_bytes},
	{"cancelled before connect", cancel_connect},
	{"cancelled with the asynchronous type", cancel_asynchronously},
	{"the asynchronous type of cancellation", type_in_handler},
	{"a handler leaves a waiting call by siglongjmp()", leave_by_siglongjmp},
	{"two threads make a number a duplicate", two_duplicate},
	{"a connection of a program that vfork has begun", executed_by_vfork},
	{"calls of a child of vfork", closed_by_vfork},
	{NULL, NULL},
};
