/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Streams of the C library: fdopen(), and stdin and stdout when these are connections. */
#include "same.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

#define ELSEWHERE 50 /* a descriptor number for a duplicate of stdout */

static void
text(int fd, const char *what)
{
	size_t n = strlen(what);

	if (send(fd, what, n, 0) != (ssize_t)n)
		fail("text");
}

/* Prints what has come to far, when it is @n bytes. */
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

/* A child that does not outlive its case. */
static pid_t
make_child(void)
{
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return child;
}

static void
stdout_leaves(void)
{
	if (fflush(stdout) != 0 || dup2(STDOUT_FILENO, ELSEWHERE) != ELSEWHERE ||
		dup2(near, STDOUT_FILENO) != STDOUT_FILENO)
		fail("stdout");
}

static void
stdout_returns(void)
{
	if (dup2(ELSEWHERE, STDOUT_FILENO) != STDOUT_FILENO)
		fail("stdout");
}

/* The buffering that was set before stdout became a connection still applies. */
static void
buffering_stays(void)
{
	open_both();
	setvbuf(stdout, NULL, _IONBF, 0);
	stdout_leaves();
	printf("at once");
	await(far, POLLIN);
	stdout_returns();
	setvbuf(stdout, NULL, _IOLBF, 0);
	tell_text(7);
	stdout_leaves();
	printf("a line\n");
	await(far, POLLIN);
	stdout_returns();
	tell_text(7);
}

static void
pointer_is_kept(void)
{
	void *memory[64];
	FILE *kept;

	open_both();
	stdout_leaves();
	kept = stdout;
	stdout_returns();
	for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++)
		memory[i] = memset(malloc(32 * (i + 1)), 'x', 32 * (i + 1));
	fprintf(kept, " kept");
	fflush(kept);
	for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++)
		free(memory[i]);
	stdout_leaves();
	fprintf(kept, "again");
	fflush(kept);
	stdout_returns();
	tell_text(5);
}

static void
much_is_pending(void)
{
	static char buffer[MUCH];
	size_t n = MUCH - 1, got = 0;
	ssize_t some;
	pid_t child;

	open_both();
	child = make_child();
	if (child == 0) {
		setvbuf(stdout, buffer, _IOFBF, MUCH);
		for (size_t i = 0; i < n; i++)
			putchar('x');
		dup2(near, STDOUT_FILENO);
		text(far, "y"); /* dup2() has returned before any byte was read */
		exit(0);
	}
	tell(recv(near, data, 1, 0));
	close(near);
	while (got < n && (some = recv(far, data, MUCH, 0)) > 0)
		got += (size_t)some;
	tell((long)got);
	waitpid(child, NULL, 0);
}

static void
wide_is_pending(void)
{
	setlocale(LC_ALL, "C.UTF-8");
	open_both();
	if (make_child() == 0) {
		FILE *f = freopen("/dev/null", "w", stdout);

		if (f == NULL || wprintf(L"wide \u00e4\n") < 0)
			_exit(1);
		dup2(near, STDOUT_FILENO);
		exit(0);
	}
	tell_text(8);
}

static void
stdout_is_closed(void)
{
	void *memory[64];
	pid_t child;
	int status;

	open_both();
	child = make_child();
	if (child == 0) {
		close(far);
		dup2(near, STDOUT_FILENO);
		close(near);
		printf("last\n");
		status = fclose(stdout) != 0;
		for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++)
			memory[i] = memset(malloc(32 * (i + 1)), 'x', 32 * (i + 1));
		status |= (puts("none") == EOF) << 1;
		_exit(status | (fflush(stdout) == 0) << 2 | (memory[0] == NULL) << 3);
	}
	close(near);
	waitpid(child, &status, 0);
	tell(status);
	tell_text(5);
	tell(recv(far, data, 1, 0));
}

static long
call_getc(struct call *c)
{
	(void)c;
	return getchar();
}

/* dup2() does not wait for a thread that reads from the stream. */
static void
stdin_is_read_meanwhile(void)
{
	int before = dup(STDIN_FILENO);
	struct call c;

	open_both();
	dup2(near, STDIN_FILENO);
	begin_call(&c, call_getc, STDIN_FILENO, 0, 0);
	tell(dup2(before, STDIN_FILENO));
	text(far, "z");
	end_call(&c);
	tell(getchar() == EOF);
}

static void
tell_line(void)
{
	char line[16];

	printf(" %.1s", fgets(line, sizeof(line), stdin) != NULL ? line : "-");
}

static void
read_ahead(void)
{
	int ends[2];

	open_both();
	if (pipe(ends) != 0 || write(ends[1], "a\nb\nc\n", 6) != 6)
		fail("a pipe");
	close(ends[1]);
	dup2(ends[0], STDIN_FILENO);
	tell_line();
	text(far, "1\n2\n3\n");
	for (int i = 0; i < 5; i++) {
		dup2(i % 2 != 0 ? ends[0] : near, STDIN_FILENO);
		tell_line();
	}
	dup2(ends[0], STDIN_FILENO);
	tell(feof(stdin));
	tell_line();
	tell(feof(stdin) != 0);
}

static long
call_fwrite(struct call *c)
{
	FILE *f = fdopen(c->fd, "w");

	return (long)fwrite(data, 1, sizeof(data), f);
}

#define EXCHANGES 30000

static void *
exchange(void *to)
{
	for (int i = 0; i < EXCHANGES; i++)
		if (dup2(*(int *)to, STDOUT_FILENO) != STDOUT_FILENO)
			fail("dup2");
	return NULL;
}

static void *
open_again(void *arg)
{
	for (int i = 0; i < EXCHANGES / 10; i++)
		if (freopen("/dev/null", "w", stdout) == NULL)
			fail("freopen");
	return arg;
}

/* Threads change descriptor 1 at once; the stream is afterwards what it was. */
static void
stdout_is_exchanged(void *(*other)(void *))
{
	int elsewhere = ELSEWHERE;
	pthread_t threads[4];
	FILE *first = stdout;

	open_both();
	if (fflush(stdout) != 0 || dup2(STDOUT_FILENO, ELSEWHERE) != ELSEWHERE)
		fail("a number for stdout");
	for (int i = 0; i < 4; i++)
		if (pthread_create(&threads[i], NULL, i == 3 ? other : exchange,
			    i % 2 != 0 ? &elsewhere : &near) != 0)
			fail("a thread");
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	if (dup2(near, STDOUT_FILENO) != STDOUT_FILENO)
		fail("dup2");
	printf("there\n");
	fflush(stdout);
	stdout_returns();
	tell_text(6);
	tell(stdout == first);
	tell(fileno(first));
}

static void
stdout_is_exchanged_at_once(void)
{
	stdout_is_exchanged(exchange);
}

static void
stdout_is_exchanged_and_opened(void)
{
	stdout_is_exchanged(open_again);
}

/* If a signal handler ends a write early, another write follows for the rest. */
static void
fwrite_is_interrupted(void)
{
	size_t got = 0;
	struct call c;

	open_both();
	handle(SIGUSR1, 0);
	begin_call(&c, call_fwrite, near, 0, 0);
	pthread_kill(c.thread, SIGUSR1);
	while (came == 0)
		usleep(1000);
	while (!atomic_load(&c.done) || (long)got < c.rc) {
		struct pollfd p = {.fd = far, .events = POLLIN};

		if (poll(&p, 1, 10) > 0)
			got += (size_t)recv(far, data, 65536, 0);
	}
	end_call(&c);
	tell((long)got);
}

static void
stream_is_opened_again(void)
{
	FILE *f;

	open_both();
	f = fdopen(near, "w");
	fprintf(f, "last\n");
	tell(freopen("/dev/zero", "r", f) == f);
	tell(fileno(f) == near);
	tell_text(5);
	await(far, POLLRDHUP);
	tell(recv(far, data, 1, 0));
	tell(fgetc(f));
	tell(fclose(f));
	tell(fcntl(near, F_GETFD));
}

/* A socket has no file offset. */
static void
no_place(void)
{
	FILE *f;

	open_both();
	f = fdopen(near, "r+");
	text(far, "ab");
	tell(fgetc(f));
	tell(fputc('c', f) == EOF || fflush(f) == EOF ? -1 : 0);
	tell(fseek(f, 0, SEEK_END));
}

static void
print_into_descriptor(void)
{
	open_both();
	tell(dprintf(near, "%d\n", 1234));
	tell_text(5);
	reset(far);
	await(near, POLLRDHUP);
	tell(dprintf(near, "%d\n", 1234));
}

/* daemon() makes duplicates inside the C library. */
static void
program_becomes_daemon(void)
{
	pid_t child;
	char byte;

	open_both();
	child = make_child();
	if (child == 0) {
		dup2(near, STDIN_FILENO);
		dup2(near, STDOUT_FILENO);
		close(near);
		if (daemon(1, 0) == 0 && read(STDIN_FILENO, &byte, 1) == 0 && getchar() == EOF) {
			printf("nowhere");
			fflush(stdout);
			(void)!write(STDOUT_FILENO, "nowhere", 7);
			text(far, "z");
		}
		_exit(0);
	}
	waitpid(child, NULL, 0);
	tell(recv(near, data, 1, 0));
	close(near);
	tell(recv(far, data, 1, 0));
}

static void
stdout_comes_by_rights(void)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {.align = {.cmsg_len = CMSG_LEN(sizeof(int)),
			     .cmsg_level = SOL_SOCKET,
			     .cmsg_type = SCM_RIGHTS}};
	char byte = 0;
	struct iovec iov = {&byte, 1};
	struct msghdr m = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};
	int ends[2];

	open_both();
	memcpy(CMSG_DATA(&control.align), &near, sizeof(near));
	fflush(stdout);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0 || sendmsg(ends[0], &m, 0) != 1 ||
		dup2(STDOUT_FILENO, ELSEWHERE) != ELSEWHERE || close(STDOUT_FILENO) != 0 ||
		recvmsg(ends[1], &m, 0) != 1)
		fail("a descriptor");
	printf("here\n");
	fflush(stdout);
	stdout_returns();
	tell_text(5);
}

/* Starts a program as inetd does; sed reads and writes by streams. */
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
	{"stdout becomes a connection, and is buffered as before", buffering_stays},
	{"a pointer to stdout that was kept", pointer_is_kept},
	{"stdout becomes a connection with much that is pending", much_is_pending},
	{"stdout becomes a connection with wide characters pending", wide_is_pending},
	{"stdout is a connection, is closed, and is used", stdout_is_closed},
	{"stdin is a connection that a thread reads, and another file", stdin_is_read_meanwhile},
	{"stdin has read ahead, and is another", read_ahead},
	{"stdout becomes a connection and another file, by several threads",
		stdout_is_exchanged_at_once},
	{"stdout becomes a connection, and is opened again, by several threads",
		stdout_is_exchanged_and_opened},
	{"fwrite() and a handler", fwrite_is_interrupted},
	{"a stream of fdopen() is opened again", stream_is_opened_again},
	{"a stream has no places", no_place},
	{"dprintf()", print_into_descriptor},
	{"daemon() with stdin and stdout that are connections", program_becomes_daemon},
	{"stdout is a connection that comes by SCM_RIGHTS", stdout_comes_by_rights},
	{NULL, NULL},
};
