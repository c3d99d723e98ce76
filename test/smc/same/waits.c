/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* A direction ends, or a descriptor is closed or becomes another one, while a thread waits. */
#include "same.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- the end of a direction, while a thread waits --- */

static void
shut_while_sending(int how)
{
	struct call c;

	handle(SIGPIPE, SA_RESTART);
	open_both();
	fill();
	begin_call(&c, call_send, near, 1, 0);
	tell(shutdown(near, how));
	end_call(&c);
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
	begin_call(&c, call_poll, near, 0, POLLOUT);
	tell(shutdown(near, SHUT_WR));
	end_call(&c);
}

/* --- a descriptor is closed, or becomes another one, while a thread waits --- */

/* Prints what came, and the next bytes of the descriptor that has the number now: no other thread
 * has read from it or written to it. */
static void
number_taken(struct call *c, int other)
{
	char word[8] = "";

	if (send(near, "abc", 3, 0) != 3)
		fail("send");
	end_call(c);
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
	begin_call(&c, call_recv, far, 10, 0);
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
	begin_call(&c, call_recv, far, 10, 0);
	tell(dup2(ends[0], far) - far);
	number_taken(&c, ends[1]);
}

const struct same_case waits[] = {
	{"shutdown, writing, while a thread sends", shutdown_write_while_sending},
	{"shutdown, both, while a thread sends", shutdown_both_while_sending},
	{"shutdown, writing, while a thread polls", shutdown_while_polling},
	{"close, while a thread receives", close_while_receiving},
	{"dup2, while a thread receives", dup2_while_receiving},
	{NULL, NULL},
};
