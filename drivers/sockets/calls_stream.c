/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Streams of the C library, which reads and writes by itself: a stream of a connection is one of
 * fopencookie(), whose calls are ours.
 *
 * When 0, 1 or 2 is a connection, as it is in a program that inetd has started or after dup2(),
 * stdin, stdout or stderr is another stream until the number is something else again.  What was
 * written to the stream before, and has not been flushed, goes where the number leads now, as it
 * would without us.
 */
#include "ks.h"

#include <fcntl.h>
#include <stdlib.h>
#include <stdio_ext.h>
#include <unistd.h>

#define STD_STREAMS 3

struct stream {
	struct stream *next;
	FILE *file;
	int fd; /* -1: it is not the stream's any more */
};

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream *_Atomic streams;

/* What stdin, stdout and stderr were, and what they are for the time being. */
static FILE *std_before[STD_STREAMS], *std_now[STD_STREAMS];

static ssize_t
cookie_read(void *cookie, char *buf, size_t n)
{
	return read(((struct stream *)cookie)->fd, buf, n);
}

static ssize_t
cookie_write(void *cookie, const char *buf, size_t n)
{
	ssize_t put = write(((struct stream *)cookie)->fd, buf, n);

	return put < 0 ? 0 : put;
}

static void
unlink_stream(const struct stream *st)
{
	struct stream *at;

	ks_lock(&streams_lock);
	at = atomic_load(&streams);
	if (at == st) {
		atomic_store(&streams, st->next);
	} else {
		while (at->next != st)
			at = at->next;
		at->next = st->next;
	}
	ks_unlock(&streams_lock);
}

static int
cookie_close(void *cookie)
{
	struct stream *st = cookie;
	int fd = st->fd;

	unlink_stream(st);
	free(st);
	return fd >= 0 ? close(fd) : 0;
}

/* NULL: errno */
static FILE *
open_stream(int fd, const char *mode)
{
	const cookie_io_functions_t calls = {cookie_read, cookie_write, NULL, cookie_close};
	struct stream *st = malloc(sizeof(*st));

	if (st == NULL)
		return NULL;
	st->fd = fd;
	st->file = fopencookie(st, mode, calls);
	if (st->file == NULL) {
		free(st);
		return NULL;
	}
	ks_lock(&streams_lock);
	st->next = atomic_load(&streams);
	atomic_store(&streams, st);
	ks_unlock(&streams_lock);
	return st->file;
}

static struct stream *
stream_of(const FILE *f)
{
	struct stream *st;

	if (atomic_load(&streams) == NULL)
		return NULL;
	ks_lock(&streams_lock);
	for (st = atomic_load(&streams); st != NULL && st->file != f; st = st->next)
		continue;
	ks_unlock(&streams_lock);
	return st;
}

/* --- stdin, stdout and stderr --- */

static FILE **
std_stream(int fd)
{
	return fd == STDIN_FILENO ? &stdin : fd == STDOUT_FILENO ? &stdout : &stderr;
}

/* What was written to one, and is not flushed. */
static void
move_pending(FILE *from, FILE *to)
{
	size_t n = __fwritable(from) ? __fpending(from) : 0;

	if (n != 0)
		(void)fwrite(from->_IO_write_base, 1, n, to);
	__fpurge(from);
}

static void
std_enter(int fd)
{
	FILE **std = std_stream(fd),
	     *f = *std != NULL ? open_stream(fd, fd == 0 ? "r" : "w") : NULL;

	if (f == NULL)
		return;
	if (fd == STDERR_FILENO)
		(void)setvbuf(f, NULL, _IONBF, 0);
	if (fd != STDIN_FILENO)
		move_pending(*std, f);
	std_before[fd] = *std;
	std_now[fd] = *std = f;
}

/* The program may have given the variable another value meanwhile. */
static void
std_leave(int fd)
{
	FILE **std = std_stream(fd), *f = std_now[fd];
	struct stream *st = stream_of(f);

	std_now[fd] = NULL;
	if (*std == f)
		*std = std_before[fd];
	if (st == NULL)
		return; /* it was closed */
	if (fd != STDIN_FILENO)
		move_pending(f, std_before[fd]);
	st->fd = -1;
	(void)real(fclose)(f);
}

void
ks_streams_look(void)
{
	int err = errno;

	for (int fd = 0; fd < STD_STREAMS; fd++) {
		bool is = ks_kind(fd) == KS_SMC;

		if (is && std_now[fd] == NULL)
			std_enter(fd);
		else if (!is && std_now[fd] != NULL)
			std_leave(fd);
	}
	errno = err;
}

void
ks_streams_forked(void)
{
	pthread_mutex_init(&streams_lock, NULL);
}

/* --- calls --- */

KS_API FILE *
fdopen(int fd, const char *mode)
{
	struct ks_sock *s = ks_enter(fd);

	if (s == NULL)
		return real(fdopen)(fd, mode);
	ks_put(s);
	return open_stream(fd, mode);
}

KS_API int
fileno(FILE *f)
{
	const struct stream *st = stream_of(f);

	return st != NULL ? st->fd : real(fileno)(f);
}

KS_API int
fileno_unlocked(FILE *f)
{
	return fileno(f);
}

/* It closes its descriptor by itself, too. */
KS_API int
fclose(FILE *f)
{
	int fd = f != NULL && stream_of(f) == NULL ? real(fileno)(f) : -1;

	for (int i = 0; i < STD_STREAMS; i++)
		if (f != NULL && std_now[i] == f)
			std_now[i] = NULL;
	if (fd >= 0 && ks_is_ours())
		ks_forget(fd);
	return real(fclose)(f);
}

/* Only a stream that the C library reads and writes itself can be opened again. */
static FILE *
before_reopen(FILE *f)
{
	for (int fd = 0; fd < STD_STREAMS; fd++)
		if (f != NULL && std_now[fd] == f) {
			(void)fflush(f);
			std_leave(fd);
			ks_forget(fd);
			return std_before[fd];
		}
	return f;
}

KS_API FILE *
freopen(const char *path, const char *mode, FILE *f)
{
	return real(freopen)(path, mode, before_reopen(f));
}

KS_API FILE *
freopen64(const char *path, const char *mode, FILE *f)
{
	return real(freopen64)(path, mode, before_reopen(f));
}
