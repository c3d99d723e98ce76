/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Reading and writing: peeking for more bytes than there are, reads of no bytes, too many buffers
 * or bytes, and calls with a file offset.
 */
#include "same.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

/* --- peeking for more than there is --- */

static void
begin_peek(struct call *c)
{
	open_both();
	if (send(near, "abc", 3, 0) != 3)
		fail("send");
	begin_call(c, call_recv, far, 10, MSG_PEEK | MSG_WAITALL);
}

static void
peek_for_all(void)
{
	struct call c;

	begin_peek(&c);
	if (send(near, "defghij", 7, 0) != 7)
		fail("send");
	end_call(&c);
	printf(" %.10s", data);
	tell(recv(far, data, sizeof(data), 0));
}

static void
peek_until_end(void)
{
	struct call c;

	begin_peek(&c);
	close(near);
	end_call(&c);
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
	end_call(&c);
}

static void
peek_without_waiting(void)
{
	const struct timeval limit = {.tv_usec = 10000};

	open_both();
	if (send(near, "abc", 3, 0) != 3)
		fail("send");
	tell(recv(far, data, 1, MSG_PEEK)); /* the byte has arrived */
	tell(recv(far, data, 10, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT));
	setsockopt(far, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	tell(recv(far, data, 10, MSG_PEEK | MSG_WAITALL));
}

/* --- no bytes, too many of them, and calls with a file offset --- */

static void
receive_none(void)
{
	struct call c;
	char byte;

	open_both();
	tell(recv(far, &byte, 0, MSG_DONTWAIT));
	tell(read(far, &byte, 0));
	begin_call(&c, call_recv, far, 0, 0);
	if (send(near, "a", 1, 0) != 1)
		fail("send");
	end_call(&c);
	tell(send(near, &byte, 0, 0));
	tell(recv(far, &byte, 1, 0));
	close(near);
	tell(recv(far, &byte, 0, 0));
}

/* volatile, because the compiler would warn of these values. */
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

const struct same_case reads[] = {
	{"MSG_PEEK and MSG_WAITALL", peek_for_all},
	{"MSG_PEEK and MSG_WAITALL, and an end", peek_until_end},
	{"MSG_PEEK and MSG_WAITALL, and a signal", peek_until_signal},
	{"MSG_PEEK and MSG_WAITALL, without waiting", peek_without_waiting},
	{"no bytes", receive_none},
	{"vectors that are too long", vectors},
	{"preadv2 and pwritev2", places},
	{NULL, NULL},
};
