/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What the manual pages say of sockets, and the kernel's TCP does.  It is run over TCP and over
 * SMC-R, and has to say the same (same.py):
 *
 *   smc-same ADDRESS
 *
 * Each case is a process of its own, with both ends of a connection.  A thread that is to wait is
 * seen to sleep in its call before the case goes on, or to have come back.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define HANG_S 60
#define MUCH   (8u << 20) /* more than there is room for on the way */

static struct sockaddr_in address;
static int listener, near, far;
static char data[MUCH];
static volatile sig_atomic_t came; /* signals */

static void __attribute__((noreturn)) fail(const char *what)
{
	printf(" %s: %s\n", what, strerror(errno));
	exit(1);
}

/* What a call has returned. */
static void
tell(long rc)
{
	if (rc >= 0)
		printf(" %ld", rc);
	else
		printf(" %s", strerrorname_np(errno));
}

static void
note(int sig)
{
	(void)sig;
	came++;
}

static void
handle(int sig, int flags)
{
	const struct sigaction act = {.sa_handler = note, .sa_flags = flags};

	if (sigaction(sig, &act, NULL) != 0)
		fail("sigaction");
}

/* A byte has gone each way: what is agreed on at the beginning is. */
static void
greet(void)
{
	char byte;

	if (send(near, "x", 1, 0) != 1 || recv(far, &byte, 1, 0) != 1 ||
		send(far, "y", 1, 0) != 1 || recv(near, &byte, 1, 0) != 1)
		fail("a byte each way");
}

static void
open_both(void)
{
	near = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(near, (void *)&address, sizeof(address)) != 0)
		fail("connect");
	far = accept(listener, NULL, NULL);
	if (far < 0)
		fail("accept");
	greet();
}

/* Until there is no room, also when what is on its way has come. */
static void
fill(void)
{
	struct pollfd p = {.fd = near, .events = POLLOUT};

	do
		while (send(near, data, sizeof(data), MSG_DONTWAIT) > 0)
			continue;
	while (poll(&p, 1, 100) > 0);
}

/* --- a thread that waits in a call --- */

struct call {
	long (*fn)(struct call *c);
	int fd, flags;
	size_t len;
	long rc;
	int err;
	_Atomic pid_t id;
	_Atomic bool done;
	pthread_t thread;
};

static void *
make_call(void *arg)
{
	struct call *c = arg;

	atomic_store(&c->id, (pid_t)syscall(SYS_gettid));
	c->rc = c->fn(c);
	c->err = errno;
	atomic_store(&c->done, true);
	return NULL;
}

/* In one of those in which who has a connection sleeps. */
static bool
sleeps(pid_t id)
{
	char path[64];
	long number = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)id);
	f = fopen(path, "re");
	if (f == NULL || fscanf(f, "%ld", &number) != 1)
		number = -1;
	if (f != NULL)
		fclose(f);
	return number == SYS_recvfrom || number == SYS_sendto || number == SYS_poll;
}

static void
begin(struct call *c, long (*fn)(struct call *c), int fd, size_t len, int flags)
{
	*c = (struct call){.fn = fn, .fd = fd, .len = len, .flags = flags};
	if (pthread_create(&c->thread, NULL, make_call, c) != 0)
		fail("a thread");
	while (!atomic_load(&c->done) && (atomic_load(&c->id) == 0 || !sleeps(atomic_load(&c->id))))
		usleep(1000);
}

static void
end(struct call *c)
{
	pthread_join(c->thread, NULL);
	errno = c->err;
	tell(c->rc);
}

/* Until it cannot: where TCP has no room for much it may have some for a little. */
static long
call_send(struct call *c)
{
	ssize_t n;

	do
		n = send(c->fd, data, c->len, c->flags);
	while (n > 0);
	return n;
}

static long
call_poll(struct call *c)
{
	struct pollfd p = {.fd = c->fd, .events = (short)c->flags};

	return poll(&p, 1, -1) > 0 ? p.revents : -1;
}

/* --- the end of a direction, while a thread waits --- */

static void
shut_while_sending(int how)
{
	struct call c;

	handle(SIGPIPE, SA_RESTART);
	open_both();
	fill();
	begin(&c, call_send, near, 1, 0);
	tell(shutdown(near, how));
	end(&c);
	printf(" %d", (int)came);
}

static void
shutdown_write_while_sending(void)
{
	shut_while_sending(SHUT_WR);
}

static void
shutdown_both_while_sending(void)
{
	shut_while_sending(SHUT_RDWR);
}

static void
shutdown_while_polling(void)
{
	struct call c;

	open_both();
	fill();
	begin(&c, call_poll, near, 0, POLLOUT);
	tell(shutdown(near, SHUT_WR));
	end(&c);
}

/* --- a descriptor is closed, or becomes another one, while a thread waits --- */

static long
call_recv(struct call *c)
{
	return recv(c->fd, data, c->len, c->flags);
}

/* What came, and the next of what has the number now: nobody else has read it, or written there. */
static void
number_taken(struct call *c, int other)
{
	char word[8] = "";

	if (send(near, "abc", 3, 0) != 3)
		fail("send");
	end(c);
	printf(" %.3s", data);
	tell(recv(c->fd, word, sizeof(word) - 1, MSG_DONTWAIT));
	printf(" %s", word);
	tell(recv(other, word, sizeof(word), MSG_DONTWAIT));
}

static void
close_while_receiving(void)
{
	struct call c;
	int ends[2];

	open_both();
	begin(&c, call_recv, far, 10, 0);
	close(far);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0 || send(ends[1], "hello", 5, 0) != 5)
		fail("a pair");
	printf(" %d", ends[0] == far);
	number_taken(&c, ends[1]);
}

static void
dup2_while_receiving(void)
{
	struct call c;
	int ends[2];

	open_both();
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0 || send(ends[1], "hello", 5, 0) != 5)
		fail("a pair");
	begin(&c, call_recv, far, 10, 0);
	tell(dup2(ends[0], far) - far);
	number_taken(&c, ends[1]);
}

/* --- peeking for more than there is --- */

static void
begin_peek(struct call *c)
{
	open_both();
	if (send(near, "abc", 3, 0) != 3)
		fail("send");
	begin(c, call_recv, far, 10, MSG_PEEK | MSG_WAITALL);
}

static void
peek_for_all(void)
{
	struct call c;

	begin_peek(&c);
	if (send(near, "defghij", 7, 0) != 7)
		fail("send");
	end(&c);
	printf(" %.10s", data);
	tell(recv(far, data, sizeof(data), 0));
}

static void
peek_until_end(void)
{
	struct call c;

	begin_peek(&c);
	close(near);
	end(&c);
	tell(recv(far, data, sizeof(data), MSG_PEEK | MSG_WAITALL));
	tell(recv(far, data, sizeof(data), 0));
	tell(recv(far, data, sizeof(data), MSG_PEEK | MSG_WAITALL));
}

static void
peek_until_signal(void)
{
	struct call c;

	handle(SIGUSR1, SA_RESTART);
	begin_peek(&c);
	pthread_kill(c.thread, SIGUSR1);
	end(&c);
}

static void
peek_without_waiting(void)
{
	const struct timeval limit = {.tv_usec = 10000};

	open_both();
	if (send(near, "abc", 3, 0) != 3)
		fail("send");
	tell(recv(far, data, 1, MSG_PEEK)); /* it is there */
	tell(recv(far, data, 10, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT));
	setsockopt(far, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	tell(recv(far, data, 10, MSG_PEEK | MSG_WAITALL));
}

/* --- no bytes, too many of them, and calls with a place --- */

static void
receive_none(void)
{
	struct call c;
	char byte;

	open_both();
	tell(recv(far, &byte, 0, MSG_DONTWAIT));
	tell(read(far, &byte, 0));
	begin(&c, call_recv, far, 0, 0);
	if (send(near, "a", 1, 0) != 1)
		fail("send");
	end(&c);
	tell(send(near, &byte, 0, 0));
	tell(recv(far, &byte, 1, 0));
	close(near);
	tell(recv(far, &byte, 0, 0));
}

/* Of what the compiler would warn. */
static volatile int negative = -1;
static volatile size_t huge = SIZE_MAX;

static void
vectors(void)
{
	static struct iovec many[IOV_MAX + 1];
	struct iovec one = {data, 4}, large[2] = {{data, 4}, {data, SIZE_MAX}};
	struct msghdr m = {.msg_iov = many, .msg_iovlen = IOV_MAX + 1};

	open_both();
	if (send(near, "abc", 3, 0) != 3)
		fail("send");
	tell(readv(far, &one, negative));
	tell(readv(far, &one, 0));
	tell(readv(far, many, IOV_MAX + 1));
	tell(readv(far, many, IOV_MAX));
	tell(readv(far, large, 2));
	tell(writev(far, &one, negative));
	tell(writev(far, many, IOV_MAX + 1));
	tell(writev(far, large, 2));
	tell(recvmsg(far, &m, 0));
	tell(sendmsg(far, &m, 0));
	m = (struct msghdr){.msg_iov = large, .msg_iovlen = 2};
	tell(recvmsg(far, &m, 0));
	tell(sendmsg(far, &m, 0));
	tell(read(far, data, huge));
	tell(write(far, data, huge));
	tell(readv(far, &one, 1));
}

static void
places(void)
{
	struct iovec one = {data, 4};

	open_both();
	tell(preadv2(far, &one, 1, -1, RWF_NOWAIT));
	one.iov_len = 3;
	tell(pwritev2(near, &one, 1, -1, 0));
	tell(pwritev2(near, &one, 1, 0, 0));
	tell(pwritev2(near, &one, 1, -2, 0));
	one.iov_len = 4;
	tell(preadv2(far, &one, 1, 0, 0));
	tell(preadv2(far, &one, negative, -1, 0));
	tell(preadv2(far, &one, 1, -1, 0));
	tell(preadv2(far, &one, 1, -1, RWF_NOWAIT));
}

/* --- sendfile and splice --- */

static void
send_what_is_no_file(void)
{
	int ends[2], folder = open("/", O_RDONLY), none = open("/dev/null", O_WRONLY);

	open_both();
	if (pipe(ends) != 0 || write(ends[1], "abc", 3) != 3 || send(near, "abc", 3, 0) != 3)
		fail("a pipe");
	tell(sendfile(near, far, NULL, 3));
	tell(sendfile(near, ends[0], NULL, 3));
	tell(sendfile(near, folder, NULL, 3));
	tell(sendfile(near, none, NULL, 3));
	tell(sendfile(near, -1, NULL, 3));
	tell(sendfile(near, listener, NULL, 3));
}

static void
send_file_behind_end(void)
{
	int file = open("/proc/self/exe", O_RDONLY);
	off_t at = 0;

	handle(SIGPIPE, SA_RESTART);
	open_both();
	shutdown(near, SHUT_WR);
	tell(sendfile(near, file, &at, 10));
	printf(" %d", (int)came);
	tell(at);
}

static void
splice_what_cannot(void)
{
	int ends[2], file = open("/dev/null", O_RDWR);

	open_both();
	if (pipe(ends) != 0 || send(near, "abc", 3, 0) != 3)
		fail("a pipe");
	tell(splice(far, NULL, ends[1], NULL, 0, 0));
	tell(splice(ends[0], NULL, far, NULL, 0, 0));
	tell(splice(far, NULL, file, NULL, 3, 0));
	tell(splice(file, NULL, far, NULL, 3, 0));
	tell(splice(far, NULL, ends[0], NULL, 3, 0));
	tell(splice(ends[1], NULL, far, NULL, 3, 0));
	tell(splice(far, NULL, -1, NULL, 3, 0));
	tell(splice(-1, NULL, far, NULL, 3, 0));
	tell(splice(far, NULL, near, NULL, 3, 0));
	tell(splice(far, NULL, ends[1], NULL, 3, 0));
}

/* --- connect() that does not wait --- */

static void
connect_again(bool polls)
{
	struct pollfd p;
	int error = -1;
	socklen_t len = sizeof(error);

	near = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	tell(connect(near, (void *)&address, sizeof(address)));
	far = accept(listener, NULL, NULL); /* so it has connected */
	p = (struct pollfd){.fd = near, .events = POLLOUT};
	if (polls)
		tell(poll(&p, 1, -1));
	tell(connect(near, (void *)&address, sizeof(address)));
	tell(connect(near, (void *)&address, sizeof(address)));
	tell(getsockopt(near, SOL_SOCKET, SO_ERROR, &error, &len));
	printf(" %d", error);
}

static void
connect_twice(void)
{
	connect_again(false);
}

static void
connect_and_poll(void)
{
	connect_again(true);
}

static void
connect_connected(void)
{
	open_both();
	tell(connect(near, (void *)&address, sizeof(address)));
	tell(connect(far, (void *)&address, sizeof(address)));
}

/* --- signals that bytes have come --- */

static void
signals_of_bytes(int from, int to)
{
	char byte;

	for (int i = 0; i < 2; i++) {
		came = 0;
		tell(send(from, "x", 1, 0));
		while (came == 0)
			usleep(1000);
		tell(recv(to, &byte, 1, 0));
	}
}

static void
signals_by_ioctl(void)
{
	int on = 1, owner = (int)getpid();

	handle(SIGIO, SA_RESTART);
	open_both();
	tell(ioctl(far, FIOSETOWN, &owner));
	tell(ioctl(far, FIOASYNC, &on));
	signals_of_bytes(near, far);
}

static void
signals_by_fcntl(void)
{
	handle(SIGUSR2, SA_RESTART);
	open_both();
	tell(fcntl(far, F_SETOWN, getpid()));
	tell(fcntl(far, F_SETSIG, SIGUSR2));
	tell(fcntl(far, F_SETFL, O_ASYNC));
	signals_of_bytes(near, far);
}

static void
signals_from_before(void)
{
	handle(SIGUSR2, SA_RESTART);
	near = socket(AF_INET, SOCK_STREAM, 0);
	tell(fcntl(near, F_SETOWN, getpid()));
	tell(fcntl(near, F_SETSIG, SIGUSR2));
	tell(fcntl(near, F_SETFL, O_ASYNC));
	if (connect(near, (void *)&address, sizeof(address)) != 0)
		fail("connect");
	far = accept(listener, NULL, NULL);
	greet();
	signals_of_bytes(far, near);
}

/* --- all of it --- */

static const struct {
	const char *name;
	void (*fn)(void);
} cases[] = {
	{"shutdown, writing, while a thread sends", shutdown_write_while_sending},
	{"shutdown, both, while a thread sends", shutdown_both_while_sending},
	{"shutdown, writing, while a thread polls", shutdown_while_polling},
	{"close, while a thread receives", close_while_receiving},
	{"dup2, while a thread receives", dup2_while_receiving},
	{"MSG_PEEK and MSG_WAITALL", peek_for_all},
	{"MSG_PEEK and MSG_WAITALL, and an end", peek_until_end},
	{"MSG_PEEK and MSG_WAITALL, and a signal", peek_until_signal},
	{"MSG_PEEK and MSG_WAITALL, without waiting", peek_without_waiting},
	{"no bytes", receive_none},
	{"vectors that are too long", vectors},
	{"preadv2 and pwritev2", places},
	{"sendfile of what is no file", send_what_is_no_file},
	{"sendfile behind the end", send_file_behind_end},
	{"splice of what cannot be spliced", splice_what_cannot},
	{"connect without waiting, and again", connect_twice},
	{"connect without waiting, poll, and connect again", connect_and_poll},
	{"connect of what is connected", connect_connected},
	{"SIGIO by ioctl", signals_by_ioctl},
	{"another signal by fcntl", signals_by_fcntl},
	{"a signal that was asked for before connect", signals_from_before},
};

static void
run(size_t i)
{
	socklen_t len = sizeof(address);

	alarm(HANG_S);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (void *)&address, sizeof(address)) != 0 || listen(listener, 8) != 0 ||
		getsockname(listener, (void *)&address, &len) != 0)
		fail("a listener");
	cases[i].fn();
	exit(0);
}

int
main(int argc, char **argv)
{
	size_t i;
	int status;

	address.sin_family = AF_INET;
	if (argc != 2 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) {
		fprintf(stderr, "usage: smc-same ADDRESS\n");
		return 2;
	}
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		pid_t child;

		printf("%s:", cases[i].name);
		fflush(stdout);
		child = fork();
		if (child == 0)
			run(i);
		if (child < 0 || waitpid(child, &status, 0) != child)
			fail("a child");
		if (status != 0)
			printf(" status %d", status);
		printf("\n");
	}
	return 0;
}
