/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Duplicates, other processes that have a connection, and calls that are for files. */
#include "same.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define HIGH 60 /* a free descriptor number */

static void
tell_one(int fd)
{
	tell(recv(fd, data, 1, MSG_DONTWAIT));
}

static void
duplicates(void)
{
	int one, two, three;

	open_both();
	one = dup(near);
	two = fcntl(near, F_DUPFD_CLOEXEC, HIGH);
	tell(two);
	tell(fcntl(two, F_GETFD));
	tell(fcntl(one, F_GETFD));
	tell(close(near));
	tell(read(near, data, 1));
	near = one;
	give(near, 1);
	three = dup3(one, HIGH + 5, O_CLOEXEC);
	tell(three);
	tell(dup3(one, one, 0));
	tell(dup2(one, one) == one);
	tell(dup2(999, one));
	tell(dup2(one, -1));
	close(one);
	tell(send(two, data, 1, 0));
	close(two);
	near = three;
	give(far, 1);
	tell_one(three);
	tell(fcntl(three, F_SETFL, O_NONBLOCK));
	one = dup(three);
	tell(recv(one, data, 1, 0));
	tell(dup2(listener, three) == three);
	near = one;
	give(far, 1);
	tell_one(one);
	close(one);
	await(far, POLLRDHUP);
	tell(recv(far, data, 9, 0));
	tell(recv(far, data, 9, 0));
}

/* A call that is refused closes nothing. */
static void
ranges(void)
{
	open_both();
	tell(dup2(near, HIGH));
	tell(close_range(HIGH, HIGH + 5, 0x100));
	tell(close_range(HIGH + 5, HIGH, 0));
	tell(send(HIGH, "x", 1, 0));
	tell(recv(far, data, 9, 0));
	tell(close_range(HIGH, HIGH + 5, CLOSE_RANGE_CLOEXEC));
	tell(fcntl(HIGH, F_GETFD));
	tell(send(HIGH, "x", 1, 0));
	tell(recv(far, data, 9, 0));
	tell(close_range(HIGH, HIGH + 5, CLOSE_RANGE_UNSHARE));
	tell(send(HIGH, "x", 1, 0));
	tell(send(near, "x", 1, 0));
	tell(close_range((unsigned int)near, (unsigned int)near, 0));
	tell(recv(far, data, 9, 0));
	tell(recv(far, data, 9, 0));
}

static int
ended(pid_t child)
{
	int status = -1;

	if (child < 0 || waitpid(child, &status, 0) != child)
		fail("a child");
	return status;
}

static void
two_processes(void)
{
	pid_t child;

	open_both();
	give(far, 4);
	fflush(stdout);
	child = fork();
	if (child == 0)
		_exit(recv(near, data, 2, 0) == 2 && send(near, "A", 1, 0) == 1 ? 0 : 1);
	tell(ended(child));
	tell(recv(near, data, 9, 0));
	tell(send(near, "B", 1, 0));
	tell(recv(far, data, 2, MSG_WAITALL));
	child = fork();
	if (child == 0) {
		close(near);
		_exit(0);
	}
	tell(ended(child));
	tell(send(near, data, 1, 0));
	child = fork();
	if (child == 0)
		_exit(shutdown(near, SHUT_WR) == 0 ? 0 : 1);
	tell(ended(child));
	await(far, POLLRDHUP);
	tell(recv(far, data, 9, 0));
	tell(send(near, data, 1, MSG_NOSIGNAL));
	tell(send(far, data, 1, 0));
	tell(recv(near, data, 9, 0));
}

/* Uses @fd, which has come to this process and to no other. */
static int
use_what_came(int fd)
{
	struct sockaddr_in peer;
	socklen_t len = sizeof(peer);

	if (fcntl(fd, F_GETFD) != FD_CLOEXEC || recv(fd, data, 9, 0) != 3)
		return 1;
	if (getpeername(fd, (void *)&peer, &len) != 0 || peer.sin_port != address.sin_port)
		return 2;
	return send(fd, "ok", 2, 0) == 2 ? 0 : 3;
}

static void
sent_to_another(void)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
	char byte = 0;
	struct iovec one = {&byte, 1};
	struct msghdr m = {.msg_iov = &one,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};
	int ends[2], fd;
	pid_t child;

	open_both();
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
		fail("a pair");
	fflush(stdout);
	child = fork();
	if (child == 0) {
		close(near);
		close(far);
		if (recvmsg(ends[1], &m, MSG_CMSG_CLOEXEC) != 1)
			_exit(9);
		memcpy(&fd, CMSG_DATA(&control.head), sizeof(fd));
		_exit(use_what_came(fd));
	}
	give(far, 3);
	memcpy(CMSG_DATA(&control.head), &near, sizeof(near));
	tell(sendmsg(ends[0], &m, 0));
	close(near);
	tell(ended(child));
	tell(recv(far, data, 9, 0));
	await(far, POLLRDHUP);
	tell(recv(far, data, 9, 0));
}

/* Sends or receives the descriptor *@fd. */
static bool
carry(int by, int *fd, bool sends)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
	char byte = 0;
	struct iovec one = {&byte, 1};
	struct msghdr m = {.msg_iov = &one,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};

	if (sends)
		memcpy(CMSG_DATA(&control.head), fd, sizeof(*fd));
	if ((sends ? sendmsg(by, &m, 0) : recvmsg(by, &m, 0)) != 1)
		return false;
	if (!sends)
		memcpy(fd, CMSG_DATA(&control.head), sizeof(*fd));
	return true;
}

int
relay(int by)
{
	int fd;

	return carry(by, &fd, false) && carry(by, &fd, true) ? 0 : 1;
}

int
bring(int by, int port)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return connect(fd, (void *)&to, sizeof(to)) == 0 && carry(by, &fd, true) ? 0 : 1;
}

/* Starts a program that is not under karst-run.  *@by: a socket of which it has the other end */
static pid_t
start_without(const char *program, int *by)
{
	char number[16], port[16];
	int ends[2];
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
		fail("a pair");
	snprintf(number, sizeof(number), "%d", ends[1]);
	snprintf(port, sizeof(port), "%d", ntohs(address.sin_port));
	fflush(stdout);
	child = fork();
	if (child == 0) {
		close(near);
		close(far);
		close(listener);
		unsetenv("LD_PRELOAD");
		execl("/proc/self/exe", "smc-same", program, number,
			program[0] == 'b' ? port : NULL, (char *)NULL);
		_exit(9);
	}
	*by = ends[0];
	return child;
}

static void
brought_by_another(void)
{
	int by;
	pid_t child = start_without("bring", &by);

	far = accept(listener, NULL, NULL);
	tell(far >= 0 ? 0 : -1);
	tell(carry(by, &near, false));
	tell(ended(child));
	greet();
	tell(close(near));
	tell(recv(far, data, 9, 0));
}

/* The other program has the only descriptor for a time. */
static void
sent_to_another_and_back(void)
{
	int by;
	pid_t child;

	open_both();
	child = start_without("relay", &by);
	give(far, 3);
	tell(carry(by, &near, true));
	close(near);
	tell(send(far, data, 2, 0));
	tell(carry(by, &near, false));
	tell(ended(child));
	tell(recv(near, data, 5, MSG_WAITALL));
	greet();
	close(near);
	await(far, POLLRDHUP);
	tell(recv(far, data, 9, 0));
}

static void
executed(void)
{
	pid_t child;

	open_both();
	tell(fcntl(near, F_DUPFD_CLOEXEC, HIGH));
	if (send(far, "hi\n", 3, 0) != 3)
		fail("send");
	fflush(stdout);
	child = fork();
	if (child == 0) {
		if (dup2(near, STDIN_FILENO) == 0 && dup2(near, STDOUT_FILENO) == STDOUT_FILENO)
			execl("/bin/sh", "sh", "-c", "read x; echo $x; ! test -e /proc/self/fd/60",
				(char *)NULL);
		_exit(9);
	}
	tell(ended(child));
	tell(recv(far, data, 3, MSG_WAITALL));
	tell(recv(far, data, 1, MSG_DONTWAIT));
	close(near);
	close(HIGH);
	await(far, POLLRDHUP);
	tell(recv(far, data, 9, 0));
}

static void
calls_of_files(void)
{
	struct iovec one = {data, 1};
	struct flock lock = {.l_type = F_WRLCK};
	char path[32], to[8] = "";
	struct stat st;

	open_both();
	give(far, 3);
	tell(lseek(near, 0, SEEK_CUR));
	tell(ftruncate(near, 0));
	tell(pread(near, data, 1, 0));
	tell(pwrite(near, data, 1, 0));
	tell(preadv(near, &one, 1, 0));
	tell(flock(near, LOCK_EX));
	tell(fcntl(near, F_SETLK, &lock));
	tell(fcntl(near, F_GETPIPE_SZ));
	tell(fsync(near));
	tell(posix_fallocate(near, 0, 1));
	tell(fchdir(near));
	tell(isatty(near));
	tell(copy_file_range(near, NULL, far, NULL, 1, 0));
	tell(vmsplice(near, &one, 1, 0));
	tell(tee(near, far, 1, 0));
	tell(fstat(near, &st));
	printf(" %o %ld", st.st_mode, (long)st.st_size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", near);
	tell(readlink(path, to, sizeof(to) - 1));
	printf(" %s", to);
	tell(open(path, O_RDWR));
	tell(fcntl(near, F_GETFL));
	tell(recv(near, data, 9, 0));
}

static void
tell_number(unsigned long request)
{
	int n = -1;

	tell(ioctl(near, request, &n));
	printf("/%d", n);
}

static void
calls_of_ioctl(void)
{
	int on = 1;

	open_both();
	tell_number(FIONREAD);
	tell_number(TIOCOUTQ);
	tell_number(0x89ff);
	tell(ioctl(near, FIOCLEX));
	tell(fcntl(near, F_GETFD));
	tell(ioctl(near, FIONCLEX));
	tell(ioctl(near, FIONBIO, &on));
	tell(fcntl(near, F_GETFL));
	tell(recv(near, data, 1, 0));
	on = 0;
	tell(ioctl(near, FIONBIO, &on));
	tell(fcntl(near, F_GETFL));
	give(far, 2);
	tell_number(FIONREAD);
	tell(recv(near, data, 1, 0));
	tell_number(FIONREAD);
}

const struct same_case descriptors[] = {
	{"duplicates", duplicates},
	{"close_range()", ranges},
	{"two processes with a connection", two_processes},
	{"a connection that is sent to another process", sent_to_another},
	{"a connection that goes to a program without the library, and back",
		sent_to_another_and_back},
	{"a connection that a program without the library brings", brought_by_another},
	{"a connection of a program that is executed", executed},
	{"calls that are for files", calls_of_files},
	{"ioctl", calls_of_ioctl},
	{NULL, NULL},
};
