/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Streams of the C library, which reads and writes them internally.  Therefore a stream of a
 * connection is one of fopencookie(), with our functions.
 *
 * When descriptor 0, 1 or 2 is a connection, as in a program that inetd has started or after
 * dup2(), stdin, stdout or stderr is replaced by another stream until the descriptor is something
 * else again.  Bytes that were written to the previous stream and not flushed go to what the
 * descriptor refers to now, as without this library.  Bytes that the previous stream has read ahead
 * are read first.  The other stream has the same buffering.
 *
 * The other stream is created once and never freed, unlike the streams of fdopen(): the program may
 * have kept a pointer to it, or a thread may wait in it.  It reads and writes what its descriptor
 * refers to at the time of the call.
 */
#include "ks.h"

#include <fcntl.h>
#include <stdlib.h>
#include <stdio_ext.h>
#include <sys/mman.h>
#include <unistd.h>
#include <wchar.h>

#define STD_STREAMS  3
#define LEAST_BUFFER 1024u /* size of a buffer for a stream that has none yet */

/*
 * Members of the C library's FILE are used here where it has no function that does the same.  They
 * do not move: programs contain code that uses them, from getc_unlocked() and putc_unlocked().
 *
 *   _fileno           fileno() reads it, and nothing sets it
 *   _IO_write_base    __fpending() tells how many bytes have not been flushed, not which.  To flush
 *                     them into a file needs _fileno, and system calls that a confined program may
 *                     not have
 *   _IO_read_ptr,     nothing tells what was read ahead, and to read until there is nothing left
 *   _IO_read_end      would read the descriptor, too
 *   _IO_read_base     nothing makes a stream forget bytes that were read
 *   _flags            the following:
 */
#define IS_UNBUFFERED 0x0002 /* __fbufsize() tells it only of streams that were used already */
#define NO_READS      0x0004 /* __freadable() reads it, __fwritable() the next; nothing sets them */
#define NO_WRITES     0x0008
#define HAS_ENDED     (_IO_EOF_SEEN | _IO_ERR_SEEN) /* clearerr() clears them, nothing sets them */
#define IN_PUSHED     0x0100 /* the stream reads bytes that ungetc() has put back */

struct stream {
	struct stream *next;
	FILE *file;
	int fd;
};

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream *_Atomic streams;

/* For each of stdin, stdout and stderr.  Under std_lock, except @ours, which changes once.  A
 * thread that holds this lock does not wait for the program, a peer or the lock of a stream. */
static pthread_mutex_t std_lock = PTHREAD_MUTEX_INITIALIZER;
static struct std_stream {
	FILE *before;       /* the C library's stream; it has no descriptor while it is replaced */
	FILE *_Atomic ours; /* NULL: not created yet */
	bool replaced;
	uint32_t changes; /* threads in fclose() and freopen(); it is not replaced meanwhile */
} std_streams[STD_STREAMS];

static ssize_t
cookie_read(void *cookie, char *buf, size_t n)
{
	return read(((struct stream *)cookie)->fd, buf, n);
}

/* Writes all bytes, because the C library treats a short count as an error. */
static ssize_t
cookie_write(void *cookie, const char *buf, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t put = write(((struct stream *)cookie)->fd, buf + done, n - done);

		if (put < 0)
			break;
		done += (size_t)put;
	}
	return (ssize_t)done;
}

static int
cookie_seek(void *cookie, off64_t *at, int whence)
{
	off64_t is = lseek64(((struct stream *)cookie)->fd, *at, whence);

	if (is < 0)
		return -1;
	*at = is;
	return 0;
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
	return close(fd);
}

/* @return NULL and errno on failure */
static FILE *
open_stream(int fd, const char *mode)
{
	const cookie_io_functions_t calls = {cookie_read, cookie_write, cookie_seek, cookie_close};
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
std_variable(int fd)
{
	return fd == STDIN_FILENO ? &stdin : fd == STDOUT_FILENO ? &stdout : &stderr;
}

static int
buffering(FILE *f)
{
	return (f->_flags & IS_UNBUFFERED) != 0 ? _IONBF : __flbf(f) ? _IOLBF : _IOFBF;
}

/* Makes room for @n more bytes in the buffer of @f, which is fully buffered, so that none of them
 * is flushed yet: the peer must not receive them before dup2() has returned, and dup2() must not
 * wait for the peer.  The new buffer is never freed, because the stream uses it.  False: there is
 * no room, and there cannot be more. */
static bool
make_room(FILE *f, size_t n)
{
	size_t there = __fbufsize(f);
	char *room;

	if (__fpending(f) + n < (there != 0 ? there : LEAST_BUFFER))
		return true;
	if (__fpending(f) != 0) /* setvbuf() would flush them */
		return false;
	room = malloc(n + BUFSIZ);
	return room != NULL && setvbuf(f, room, _IOFBF, n + BUFSIZ) == 0;
}

/* As move_written(), for a stream of wide characters: these are converted to bytes only when they
 * are flushed, so they are flushed into a temporary file. */
static bool
move_wide(FILE *from, FILE *to)
{
	int was = from->_fileno, file = memfd_create("karst-stream", MFD_CLOEXEC);
	char buf[BUFSIZ];
	ssize_t n = 0;
	bool has_room;

	if (file < 0)
		return false;
	from->_fileno = file;
	(void)fflush_unlocked(from);
	from->_fileno = was;
	has_room = make_room(to, (size_t)lseek(file, 0, SEEK_END));
	(void)lseek(file, 0, SEEK_SET);
	while (has_room && (n = real(read)(file, buf, sizeof(buf))) > 0)
		(void)fwrite_unlocked(buf, 1, (size_t)n, to);
	real(close)(file);
	return has_room;
}

/* Moves bytes that were written to @from and have not been flushed.  @to is fully buffered, and is
 * not flushed.  False: there is no memory. */
static bool
move_written(FILE *from, FILE *to)
{
	size_t n = __fwritable(from) ? __fpending(from) : 0;

	if (n == 0)
		return true;
	if (fwide(from, 0) > 0)
		return move_wide(from, to);
	return make_room(to, n) && fwrite_unlocked(from->_IO_write_base, 1, n, to) == n;
}

/* Moves bytes that @from has read ahead, but not those of a stream of wide characters.  Makes @to
 * forget the bytes that were read from it before, because ungetc() would step back in them. */
static void
move_read_ahead(FILE *from, FILE *to)
{
	const char *end = from->_IO_read_end;

	if (!__freadable(from) || fwide(from, 0) > 0)
		return;
	if ((to->_flags & IN_PUSHED) == 0)
		to->_IO_read_base = to->_IO_read_ptr;
	while (end > from->_IO_read_ptr)
		(void)ungetc((uint8_t) * --end, to);
}

/* The buffering of @from is now that of @to.  Without a buffer nothing may be pending, because
 * setvbuf() would flush it. */
static void
move_buffering(FILE *from, FILE *to)
{
	int mode = buffering(from);

	if (mode != buffering(to) && (mode != _IONBF || __fpending(to) == 0))
		(void)setvbuf(to, NULL, mode, 0);
}

/* Moves the state of @from to @to.  Does nothing if another thread has locked one of the streams:
 * it may wait in a read or write, and this function must not wait for it. */
static void
move_state(FILE *from, FILE *to)
{
	if (ftrylockfile(from) != 0)
		return;
	if (ftrylockfile(to) == 0) {
		if (__fpending(from) != 0 && buffering(to) != _IOFBF)
			(void)setvbuf(to, NULL, _IOFBF, 0);
		if (move_written(from, to)) {
			move_read_ahead(from, to);
			__fpurge(from);
		}
		move_buffering(from, to);
		to->_flags = (to->_flags & ~HAS_ENDED) | (from->_flags & HAS_ENDED);
		funlockfile(to);
	}
	funlockfile(from);
}

/* Creates the other stream, without the lock, because the C library waits for other threads. */
static void
std_make(int fd, struct std_stream *std)
{
	FILE *none = NULL, *f;

	if (atomic_load(&std->ours) != NULL)
		return;
	f = open_stream(fd, fd == STDIN_FILENO ? "r" : "w");
	if (f == NULL || atomic_compare_exchange_strong(&std->ours, &none, f))
		return;
	stream_of(f)->fd = -1; /* another thread has created one, and the descriptor stays open */
	(void)real(fclose)(f);
}

/* Under the lock: replaces the stream.  If the program has closed it, or has assigned the variable
 * a stream of another descriptor, nothing is replaced. */
static void
std_enter(int fd, struct std_stream *std)
{
	FILE **variable = std_variable(fd);

	if (std->ours == NULL || *variable == NULL || *variable == std->ours ||
		real(fileno)(*variable) != fd)
		return;
	std->before = *variable;
	std->replaced = true;
	move_state(std->before, std->ours);
	/* so that a use of a kept pointer fails: the C library cannot read or write a
	 * connection */
	std->before->_fileno = -1;
	*variable = std->ours;
}

/* Under the lock: ends the replacement.  If the program has assigned another stream to the variable
 * meanwhile, the variable is not changed. */
static void
std_leave(int fd, struct std_stream *std)
{
	FILE **variable = std_variable(fd);

	std->replaced = false;
	std->before->_fileno = fd;
	if (*variable == std->ours)
		*variable = std->before;
	move_state(std->ours, std->before);
}

void
ks_streams_look(int fd)
{
	struct std_stream *std = &std_streams[fd];
	int err = errno;

	if (ks_kind(fd) == KS_SMC)
		std_make(fd, std);
	ks_lock(&std_lock);
	/* freopen() looks when it returns; after fclose() there is nothing to replace */
	if (std->changes == 0 && ks_kind(fd) == KS_SMC && !std->replaced)
		std_enter(fd, std);
	else if (std->changes == 0 && ks_kind(fd) != KS_SMC && std->replaced)
		std_leave(fd, std);
	ks_unlock(&std_lock);
	errno = err;
}

/* @return the descriptor whose stream @f is, by the variable, by a kept pointer to the replaced
 * stream, or by one to the replacement, so that it is not replaced until own_end(); -1: none */
static int
own_begin(const FILE *f)
{
	int found = -1;

	ks_lock(&std_lock);
	for (int fd = 0; f != NULL && found < 0 && fd < STD_STREAMS; fd++) {
		struct std_stream *std = &std_streams[fd];

		if (f != *std_variable(fd) && f != std->ours &&
			(f != std->before || !std->replaced))
			continue;
		std->changes++;
		found = fd;
	}
	ks_unlock(&std_lock);
	return found;
}

static void
own_end(int fd)
{
	if (fd < 0)
		return;
	ks_lock(&std_lock);
	std_streams[fd].changes--;
	ks_unlock(&std_lock);
}

/* For fclose() and freopen(), by which the C library closes or reopens its own stream: if @f is
 * that stream while it is replaced, or its replacement, flushes and ends the replacement.
 * @fd: what own_begin() has returned; *@rc: the result of the flush
 * @return the C library's stream; in all other cases @f */
static FILE *
own_stream(FILE *f, int fd, int *rc)
{
	struct std_stream *std = &std_streams[fd >= 0 ? fd : 0];

	*rc = 0;
	if (fd < 0 || (f != std->ours && f != std->before))
		return f;
	if (f == std->ours || std->replaced)
		*rc = fflush(std->ours); /* without the lock: it may wait */
	ks_lock(&std_lock);
	if (std->replaced)
		std_leave(fd, std);
	ks_unlock(&std_lock);
	return std->before;
}

void
ks_streams_hold(void)
{
	ks_lock(&std_lock);
}

void
ks_streams_release(void)
{
	ks_unlock(&std_lock);
}

void
ks_streams_forked(void)
{
	pthread_mutex_init(&streams_lock, NULL);
	pthread_mutex_init(&std_lock, NULL);
	for (int fd = 0; fd < STD_STREAMS; fd++)
		std_streams[fd].changes = 0; /* the threads do not exist here */
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

/* The C library closes the descriptor of its own streams internally. */
KS_API int
fclose(FILE *f)
{
	struct ks_sock *s = NULL;
	int own = own_begin(f), flushed, rc, fd;

	f = own_stream(f, own, &flushed);
	fd = f != NULL && stream_of(f) == NULL ? real(fileno)(f) : -1;
	if (fd >= 0 && ks_is_ours())
		s = ks_close_begin(fd);
	rc = real(fclose)(f);
	ks_close_end(s);
	own_end(own);
	return flushed != 0 ? flushed : rc;
}

/* The C library can reopen only streams that it reads and writes itself.  For a stream of
 * fopencookie(), the new file @file is duplicated to the descriptor.
 * @return @f; NULL and errno on failure: @f is closed */
static FILE *
reopen_ours(FILE *f, int fd, FILE *file)
{
	const int modes = NO_READS | NO_WRITES;
	int err = errno;

	(void)fflush(f);
	__fpurge(f);
	clearerr(f);
	if (file != NULL && dup2(fileno(file), fd) == fd) {
		f->_flags = (f->_flags & ~modes) | (file->_flags & modes);
		(void)fclose(file);
		return f;
	}
	if (file != NULL) {
		err = errno;
		(void)fclose(file);
	}
	(void)fclose(f);
	errno = err;
	return NULL;
}

static FILE *
reopen(const char *path, const char *mode, FILE *f,
	FILE *(*reopens)(const char *, const char *, FILE *))
{
	const struct stream *st;
	struct ks_sock *s = NULL;
	int own = own_begin(f), flushed;

	f = own_stream(f, own, &flushed);
	st = stream_of(f);
	if (st != NULL) {
		own_end(own);
		errno = ENXIO; /* without a path: the kernel's error for opening a socket again */
		return reopen_ours(f, st->fd, path != NULL ? fopen64(path, mode) : NULL);
	}
	if (ks_is_ours())
		s = ks_close_begin(real(fileno)(f));
	f = reopens(path, mode, f);
	ks_close_end(s);
	own_end(own);
	if (own >= 0 && f != NULL)
		ks_streams_look(own);
	return f;
}

KS_API FILE *
freopen(const char *path, const char *mode, FILE *f)
{
	return reopen(path, mode, f, real(freopen));
}

KS_API FILE *
freopen64(const char *path, const char *mode, FILE *f)
{
	return reopen(path, mode, f, real(freopen64));
}

/* The C library makes the duplicates for descriptors 0 to 2 internally. */
KS_API int
daemon(int nochdir, int noclose)
{
	int rc = real(daemon)(nochdir, noclose);

	for (int fd = 0; rc == 0 && !noclose && fd < STD_STREAMS; fd++) {
		struct ks_sock *s = ks_get(fd);

		ks_forget(fd);
		ks_close_end(s);
		ks_streams_look(fd);
	}
	return rc;
}

/* --- formatted output to a descriptor --- */

int __vasprintf_chk(char **to, int flag, const char *format, va_list ap);
int __vdprintf_chk(int fd, int flag, const char *format, va_list ap);
int __dprintf_chk(int fd, int flag, const char *format, ...);

KS_API int
__vdprintf_chk(int fd, int flag, const char *format, va_list ap)
{
	struct ks_sock *s = ks_enter(fd);
	struct stream st = {.fd = fd};
	char *text;
	int n;

	if (s == NULL)
		return real(__vdprintf_chk)(fd, flag, format, ap);
	ks_put(s);
	n = __vasprintf_chk(&text, flag, format, ap);
	if (n < 0)
		return -1;
	if (cookie_write(&st, text, (size_t)n) < n)
		n = -1;
	free(text);
	return n;
}

KS_API int
vdprintf(int fd, const char *format, va_list ap)
{
	return __vdprintf_chk(fd, 0, format, ap);
}

KS_API int
__dprintf_chk(int fd, int flag, const char *format, ...)
{
	va_list ap;
	int n;

	va_start(ap, format);
	n = __vdprintf_chk(fd, flag, format, ap);
	va_end(ap);
	return n;
}

KS_API int
dprintf(int fd, const char *format, ...)
{
	va_list ap;
	int n;

	va_start(ap, format);
	n = __vdprintf_chk(fd, 0, format, ap);
	va_end(ap);
	return n;
}
