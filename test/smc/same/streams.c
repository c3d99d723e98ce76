/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Streams of the C library: fdopen(), and stdin and stdout when these are connections. */
#include "same.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ELSEWHERE 50 /* a number for what stdout is */

static void
text(int fd, const char *what)
{
	size_t n = strlen(what);

	if (send(fd, what, n, 0) != (ssize_t)n)
		fail("text");
}

/* What has come to far, when it is @n bytes. */
static void
tell_text(size_t n)
{
	tell(recv(far, data, n, MSG_WAITALL));
	printf(" %.*s", (int)n - 1, data);
}

static void
stream_of_fdopen(void)
{
	char line[16];
	FILE *f, *g;

	open_both();
	f = fdopen(near, "r");
	g = fdopen(dup(near), "w");
	tell(fileno(f) == near);
	tell(fileno_unlocked(f) == near);
	tell(fileno(g) > near);
	text(far, "one\ntwo\n");
	tell(fgets(line, sizeof(line), f) != NULL);
	printf(" %.3s", line);
	fprintf(g, "%d\n", 11);
	tell(fflush(g));
	tell_text(3);
	fprintf(g, "12\n");
	tell(fclose(g));
	tell_text(3);
	tell(fgets(line, sizeof(line), f) != NULL);
	shutdown(far, SHUT_WR);
	tell(fgetc(f) == EOF);
	tell(feof(f) != 0);
	tell(fclose(f));
	await(far, POLLRDHUP);
	tell(recv(far, data, 1, 0));
}

static void
stdin_is_connection(void)
{
	char word[8];
	int number = 0;

	open_both();
	tell(dup2(near, STDIN_FILENO));
	close(near);
	text(far, "word 12\nx");
	tell(scanf("%7s %d", word, &number));
	printf(" %s %d", word, number);
	tell(fileno(stdin));
	tell(getchar());
	tell(getchar());
	shutdown(far, SHUT_WR);
	tell(getchar() == EOF);
	tell(fclose(stdin));
	await(far, POLLRDHUP);
	tell(fcntl(STDIN_FILENO, F_GETFD));
}

static void
stdout_is_connection(void)
{
	open_both();
	if (fflush(stdout) != 0 || dup2(STDOUT_FILENO, ELSEWHERE) != ELSEWHERE)
		fail("a number for stdout");
	printf("before ");
	if (dup2(near, STDOUT_FILENO) != STDOUT_FILENO)
		fail("dup2");
	printf("after %d", fileno(stdout));
	fflush(stdout);
	printf("back");
	if (dup2(ELSEWHERE, STDOUT_FILENO) != STDOUT_FILENO)
		fail("dup2");
	tell_text(14);
	close(near);
	tell(recv(far, data, 9, 0));
}

static void
stdout_is_opened_again(void)
{
	open_both();
	if (fflush(stdout) != 0 || dup2(STDOUT_FILENO, ELSEWHERE) != ELSEWHERE ||
		dup2(near, STDOUT_FILENO) != STDOUT_FILENO)
		fail("dup2");
	close(near);
	printf("last\n");
	if (freopen("/proc/self/fd/50", "a", stdout) == NULL)
		fail("freopen");
	tell_text(5);
	await(far, POLLRDHUP);
	tell(recv(far, data, 1, 0));
}

/* As inetd does; sed reads and writes by streams. */
static void
program_of_inetd(void)
{
	pid_t child;
	int status;

	open_both();
	text(far, "abc\n");
	fflush(stdout);
	child = fork();
	if (child == 0) {
		close(far);
		if (dup2(near, STDIN_FILENO) == 0 && dup2(near, STDOUT_FILENO) == STDOUT_FILENO)
			execlp("sed", "sed", "-n", "1{s/a/x/p;q}", (char *)NULL);
		_exit(1);
	}
	close(near);
	tell_text(4);
	if (waitpid(child, &status, 0) != child)
		fail("a child");
	tell(status);
	tell(recv(far, data, 1, 0));
}

const struct same_case streams[] = {
	{"streams of fdopen()", stream_of_fdopen},
	{"stdin is a connection", stdin_is_connection},
	{"stdout is a connection, and is not", stdout_is_connection},
	{"stdout is a connection, and is opened again", stdout_is_opened_again},
	{"stdin and stdout of a program that is executed", program_of_inetd},
	{NULL, NULL},
};
