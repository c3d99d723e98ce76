/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* sendfile() and splice(). */
#include "same.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

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

static int ends_of_pipe[2];

static long
call_splice(struct call *c)
{
	return splice(c->fd, NULL, ends_of_pipe[1], NULL, c->len, (unsigned int)c->flags);
}

/* SPLICE_F_NONBLOCK is for the pipe: whether the call waits for bytes of a socket is up to
 * O_NONBLOCK. */
static void
splice_without_waiting(void)
{
	struct call c;

	open_both();
	if (pipe(ends_of_pipe) != 0)
		fail("a pipe");
	begin_call(&c, call_splice, near, 9, SPLICE_F_NONBLOCK);
	if (send(far, "abc", 3, 0) != 3)
		fail("send");
	end_call(&c);
	tell(splice(ends_of_pipe[0], NULL, near, NULL, 2, SPLICE_F_NONBLOCK));
	tell(splice(ends_of_pipe[0], NULL, near, NULL, 2, SPLICE_F_NONBLOCK));
	tell(splice(ends_of_pipe[0], NULL, near, NULL, 2, SPLICE_F_NONBLOCK));
	tell(recv(far, data, 3, MSG_WAITALL));
	tell(fcntl(near, F_SETFL, O_NONBLOCK));
	tell(splice(near, NULL, ends_of_pipe[1], NULL, 9, 0));
}

const struct same_case files[] = {
	{"sendfile of what is no file", send_what_is_no_file},
	{"sendfile behind the end", send_file_behind_end},
	{"splice of what cannot be spliced", splice_what_cannot},
	{"splice without waiting", splice_without_waiting},
	{NULL, NULL},
};
