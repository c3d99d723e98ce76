/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Addresses, flags and counts of recvfrom(), recvmsg(), recvmmsg(), sendmmsg() and writev(). */
#include "same.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* --- one message --- */

static void
addresses_of_messages(void)
{
	struct sockaddr_in from;
	socklen_t len = 77;

	open_both();
	tell(recvfrom(near, data, 1, MSG_DONTWAIT, (void *)&from, &len));
	tell(len);
	give(far, 3);
	tell(recvfrom(near, data, 1, 0, NULL, &len));
	tell(len);
	tell(recvfrom(near, data, 1, 0, (void *)&from, &len));
	tell(len);
	tell(sendto(far, data, 1, 0, (void *)&address, sizeof(address)));
	tell(sendto(far, data, 1, 0, (void *)&address, 1));
}

static void
tell_message(int flags)
{
	char name[40], control[100];
	struct iovec one = {data, 2};
	struct msghdr m = {.msg_name = name,
		.msg_namelen = sizeof(name),
		.msg_iov = &one,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
		.msg_flags = 0x1234};

	tell(recvmsg(near, &m, flags));
	printf(" (%u %zu %x)", m.msg_namelen, m.msg_controllen, (unsigned int)m.msg_flags);
}

static void
flags_of_messages(void)
{
	open_both();
	tell_message(MSG_DONTWAIT);
	give(far, 8);
	tell_message(0);
	tell_message(MSG_PEEK);
	tell_message(MSG_CMSG_CLOEXEC);
	tell_message(MSG_TRUNC);
	tell_message(MSG_ERRQUEUE);
	tell_message(MSG_OOB);
	shutdown(far, SHUT_WR);
	tell_message(MSG_WAITALL);
	tell_message(0);
	tell_message(MSG_PEEK);
}

/* --- what comes with a message --- */

/* Receives two bytes, with @room for what comes with them. */
static void
tell_left(int fd, int flags, size_t room)
{
	char control[100] = "";
	struct iovec one = {data, 2};
	struct msghdr m = {.msg_iov = &one,
		.msg_iovlen = 1,
		.msg_control = room != 0 ? control : NULL,
		.msg_controllen = room};
	struct cmsghdr c = {0};
	int left = -1;

	tell(recvmsg(fd, &m, flags));
	memcpy(&c, control, sizeof(c));
	memcpy(&left, control + CMSG_LEN(0), sizeof(left));
	printf(" (%zu %x %zu/%d/%d=%d)", m.msg_controllen, (unsigned int)m.msg_flags, c.cmsg_len,
		c.cmsg_level, c.cmsg_type, c.cmsg_len >= CMSG_LEN(sizeof(left)) ? left : 0);
}

static void
tell_inq(int fd)
{
	int on = -1;
	socklen_t len = sizeof(on);

	tell(getsockopt(fd, IPPROTO_TCP, TCP_INQ, &on, &len));
	printf("=%d", on);
}

static void
bytes_left(void)
{
	static const size_t rooms[] = {100, 24, 23, 20, 19, 16, 15, 0};
	const int on = 1, off = 0, wrong = 2;

	open_both();
	tell_inq(near);
	tell(setsockopt(near, IPPROTO_TCP, TCP_INQ, &wrong, sizeof(wrong)));
	tell(setsockopt(near, IPPROTO_TCP, TCP_INQ, &on, 1));
	tell(setsockopt(near, IPPROTO_TCP, TCP_INQ, &on, sizeof(on)));
	tell_inq(near);
	give(far, 20);
	tell_left(near, MSG_PEEK, 100);
	for (size_t i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++)
		tell_left(near, 0, rooms[i]);
	tell_left(near, MSG_TRUNC, 100);
	tell(setsockopt(near, IPPROTO_TCP, TCP_INQ, &off, sizeof(off)));
	tell_left(near, 0, 100);
	tell(setsockopt(near, IPPROTO_TCP, TCP_INQ, &on, sizeof(on)));
	tell_left(near, MSG_DONTWAIT, 100);
	give(far, 3);
	shutdown(far, SHUT_WR);
	await(near, POLLRDHUP);
	for (int i = 0; i < 4; i++)
		tell_left(near, 0, 100);
}

/* An accepted socket has the option of its listener. */
static void
bytes_left_as_before(void)
{
	const int on = 1;

	near = socket(AF_INET, SOCK_STREAM, 0);
	tell(setsockopt(near, IPPROTO_TCP, TCP_INQ, &on, sizeof(on)));
	tell(setsockopt(listener, IPPROTO_TCP, TCP_INQ, &on, sizeof(on)));
	tell(connect(near, (void *)&address, sizeof(address)));
	far = accept(listener, NULL, NULL);
	greet();
	give(far, 10);
	tell_left(near, 0, 100);
	give(near, 10);
	tell_left(far, 0, 100);
	tell_inq(near);
	tell_inq(far);
}

/* Waits until a message has a time stamp: the kernel begins to take them some time after it was
 * asked for the first one. */
static void
tell_stamp(int fd, int from)
{
	union {
		struct cmsghdr head;
		char room[100];
	} control;
	struct iovec one = {data, 2};
	struct msghdr m;

	do {
		m = (struct msghdr){.msg_iov = &one,
			.msg_iovlen = 1,
			.msg_control = &control,
			.msg_controllen = sizeof(control)};
		give(from, 2);
		if (recvmsg(fd, &m, 0) != 2)
			fail("recvmsg");
	} while (m.msg_controllen == 0);
	printf(" %zu %d %d", m.msg_controllen, control.head.cmsg_level, control.head.cmsg_type);
}

/* The options are set before there is a connection, which is then one of TCP. */
static void
stamps(void)
{
	static const int names[] = {SO_TIMESTAMP, SO_TIMESTAMPNS};
	const int on = 1;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		socklen_t len = sizeof(address);

		near = socket(AF_INET, SOCK_STREAM, 0);
		tell(setsockopt(near, SOL_SOCKET, names[i], &on, sizeof(on)));
		close(listener);
		listener = socket(AF_INET, SOCK_STREAM, 0);
		tell(setsockopt(listener, SOL_SOCKET, names[i], &on, sizeof(on)));
		tell(listen(listener, 1));
		getsockname(listener, (void *)&address, &len);
		address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		tell(connect(near, (void *)&address, sizeof(address)));
		far = accept(listener, NULL, NULL);
		greet();
		tell_stamp(near, far);
		tell_stamp(far, near);
	}
}

/* Flags of a send that TCP ignores, and one that it does not. */
static void
flags_of_sends(void)
{
	static const int flags[] = {MSG_MORE, MSG_EOR, MSG_CONFIRM | MSG_DONTROUTE, MSG_TRUNC,
		MSG_PROXY, MSG_ZEROCOPY, MSG_FASTOPEN};

	open_both();
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		tell(send(near, data, 3, flags[i]));
	tell(sendto(near, data, 3, MSG_FASTOPEN, (void *)&address, sizeof(address)));
	tell(send(near, data, 0, MSG_FASTOPEN));
	tell(recv(far, data, 18, MSG_WAITALL));
	shutdown(near, SHUT_WR);
	tell(recv(far, data, 18, 0));
}

/* --- many of them --- */

#define MANY 3

static struct mmsghdr many[MANY];
static struct iovec parts[MANY];

static void
make_many(size_t len)
{
	for (int i = 0; i < MANY; i++) {
		parts[i] = (struct iovec){data, len};
		many[i] = (struct mmsghdr){
			.msg_hdr = {.msg_iov = &parts[i], .msg_iovlen = 1}, .msg_len = 99};
	}
}

static void
tell_many(int flags, struct timespec *limit)
{
	make_many(2);
	tell(recvmmsg(near, many, MANY, flags, limit));
	printf(" (%u %u %u)", many[0].msg_len, many[1].msg_len, many[2].msg_len);
}

static void
many_messages(void)
{
	open_both();
	tell_many(MSG_DONTWAIT, NULL);
	give(far, 3);
	tell_many(MSG_WAITFORONE, NULL);
	tell(recvmmsg(near, many, 0, 0, NULL));
	give(far, 3);
	shutdown(far, SHUT_WR);
	await(near, POLLRDHUP);
	tell_many(0, NULL);
	tell_many(0, NULL);
}

/* An expired limit ends the call after a message.  The remaining time depends on the clock. */
static void
many_with_limits(void)
{
	struct timespec none = {0, 0}, past = {-1, 0}, wrong = {0, 1000000000}, large = {600, 0};

	open_both();
	give(far, 8);
	tell_many(0, &none);
	tell(none.tv_sec + none.tv_nsec);
	tell_many(0, &past);
	tell_many(0, &wrong);
	tell_many(0, &large);
	printf(" %d", large.tv_sec < 600);
	tell_many(MSG_DONTWAIT, &large);
}

static void
many_and_an_error(void)
{
	open_both();
	give(far, 2);
	reset(far);
	await(near, POLLRDHUP);
	tell_many(0, NULL);
	tell_many(0, NULL);
}

/* If a call that got messages is ended by an error, the next call reports the error. */
static void
many_before_an_error(void)
{
	struct call c;

	open_both();
	begin_call(&c, call_recv_many, near, 2, 0);
	if (send(far, "ab", 2, 0) != 2)
		fail("send");
	while (*(volatile char *)data != 'a') /* the call has got these bytes */
		usleep(1000);
	reset(far);
	end_call(&c);
	tell(recv(near, data, 1, 0));
	tell(recv(near, data, 1, 0));
}

static void
send_many(void)
{
	static struct mmsghdr more[UIO_MAXIOV + 1];

	open_both();
	make_many(2);
	tell(sendmmsg(near, many, MANY, 0));
	printf(" (%u %u %u)", many[0].msg_len, many[1].msg_len, many[2].msg_len);
	tell(sendmmsg(near, many, 0, 0));
	for (int i = 0; i <= UIO_MAXIOV; i++)
		more[i] = many[0];
	tell(sendmmsg(near, more, UIO_MAXIOV + 1, 0));
	shutdown(near, SHUT_WR);
	tell(sendmmsg(near, many, MANY, MSG_NOSIGNAL));
}

/* Sends a message with control data, which a connection does not use. */
static void
tell_control(int level, int type, size_t len)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {.head = {.cmsg_level = level, .cmsg_type = type, .cmsg_len = len}};
	struct iovec one = {data, 1};
	struct msghdr m = {.msg_iov = &one,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};

	tell(sendmsg(near, &m, 0));
}

static void
send_control(void)
{
	struct iovec one = {data, 1};
	struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1, .msg_name = &address};
	struct msghdr none = {.msg_iov = &one, .msg_iovlen = 1, .msg_controllen = 32};

	open_both();
	tell_control(SOL_SOCKET, SCM_RIGHTS, CMSG_LEN(sizeof(int)));
	tell_control(SOL_SOCKET, SCM_CREDENTIALS, CMSG_LEN(sizeof(int)));
	tell_control(SOL_SOCKET, 999, CMSG_LEN(sizeof(int)));
	tell_control(IPPROTO_IP, 999, CMSG_LEN(sizeof(int)));
	tell_control(IPPROTO_IP, 999, 3);
	tell_control(SOL_SOCKET, SCM_RIGHTS, 1000);
	tell(sendmsg(near, &none, 0));
	m.msg_namelen = (socklen_t)-1;
	tell(sendmsg(near, &m, 0));
	tell(recvmsg(near, &m, MSG_DONTWAIT));
	m.msg_namelen = 1000;
	tell(sendmsg(near, &m, 0));
}

/* --- writes of no bytes after the end --- */

static void
write_none_behind_end(void)
{
	struct iovec none = {data, 0};
	struct msghdr m = {.msg_iov = &none, .msg_iovlen = 1};

	handle(SIGPIPE, SA_RESTART);
	open_both();
	shutdown(near, SHUT_WR);
	tell(send(near, data, 0, 0));
	tell(write(near, data, 0));
	tell(sendmsg(near, &m, 0));
	printf(" %d", (int)came);
	tell(writev(near, &none, 1));
	tell(writev(near, &none, 0));
	printf(" %d", (int)came);
}

const struct same_case messages[] = {
	{"addresses of messages", addresses_of_messages},
	{"flags of messages", flags_of_messages},
	{"bytes left, by TCP_INQ", bytes_left},
	{"bytes left, by TCP_INQ before connect", bytes_left_as_before},
	{"time stamps of what is received", stamps},
	{"flags of sends", flags_of_sends},
	{"many messages", many_messages},
	{"many messages with time limits", many_with_limits},
	{"many messages, and an error", many_and_an_error},
	{"many messages before an error", many_before_an_error},
	{"many messages are sent", send_many},
	{"what goes with a message", send_control},
	{"no bytes are written behind the end", write_none_behind_end},
	{NULL, NULL},
};
