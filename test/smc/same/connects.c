/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* connect() that does not wait, and connect() on a connected socket. */
#include "same.h"

#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>

/* --- connect() that does not wait --- */

static void
connect_again(bool polls)
{
	struct pollfd p;
	int error = -1;
	socklen_t len = sizeof(error);

	near = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	tell(connect(near, (void *)&address, sizeof(address)));
	far = accept(listener, NULL, NULL); /* so near has connected */
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

const struct same_case connects[] = {
	{"connect without waiting, and again", connect_twice},
	{"connect without waiting, poll, and connect again", connect_and_poll},
	{"connect of what is connected", connect_connected},
	{NULL, NULL},
};
