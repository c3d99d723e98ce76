/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Reading and writing, except messages (calls_msg.c).  A connection transfers bytes only, without
 * addresses.
 */
#include "ks.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK 65536u /* size of a part of a file that is sent */

/* These four give back the reference that ks_enter() has taken. */
static ssize_t
recv_iov(int fd, struct ks_sock *s, const struct iovec *iov, int n, int flags)
{
	ssize_t rc = ks_recv(fd, s, iov, n, flags);

	ks_put(s);
	return rc;
}

static ssize_t
recv_one(int fd, struct ks_sock *s, void *buf, size_t len, int flags)
{
	const struct iovec iov = {.iov_base = buf, .iov_len = len};

	return recv_iov(fd, s, &iov, 1, flags);
}

static ssize_t
send_iov(int fd, struct ks_sock *s, const struct iovec *iov, int n, int flags)
{
	ssize_t rc = ks_send(fd, s, iov, n, flags);

	ks_put(s);
	return rc;
}

static ssize_t
send_one(int fd, struct ks_sock *s, const void *buf, size_t len, int flags)
{
	const struct iovec iov = {.iov_base = (void *)(uintptr_t)buf, .iov_len = len};

	return send_iov(fd, s, &iov, 1, flags);
}

int
ks_refuse_iov(const struct iovec *iov, size_t n, int many)
{
	if (n > IOV_MAX)
		return many;
	for (size_t i = 0; i < n; i++)
		if (iov[i].iov_len > SSIZE_MAX)
			return EINVAL;
	return 0;
}

/* This function gives back the reference, too. */
static ssize_t
refused_with(struct ks_sock *s, int err)
{
	ks_put(s);
	errno = err;
	return -1;
}

static bool
is_empty(const struct iovec *iov, int n)
{
	int i = 0;

	while (i < n && iov[i].iov_len == 0)
		i++;
	return i == n;
}

/* A read of no bytes does nothing, unlike a receive of none. */
static ssize_t
read_iov(int fd, struct ks_sock *s, const struct iovec *iov, int n, int flags)
{
	int err = ks_refuse_iov(iov, (size_t)n, EINVAL);

	if (err != 0)
		return refused_with(s, err);
	if (is_empty(iov, n)) {
		ks_put(s);
		return 0;
	}
	return recv_iov(fd, s, iov, n, flags);
}

static ssize_t
write_iov(int fd, struct ks_sock *s, const struct iovec *iov, int n, int flags)
{
	int err = ks_refuse_iov(iov, (size_t)n, EINVAL);

	if (err != 0)
		return refused_with(s, err);
	if (is_empty(iov, n)) {
		ks_put(s);
		return 0; /* also after the end, unlike write() */
	}
	return send_iov(fd, s, iov, n, flags);
}

KS_API ssize_t
read(int fd, void *buf, size_t len)
{
	struct ks_sock *s = ks_enter_cancelled(fd);
	const struct iovec iov = {.iov_base = buf, .iov_len = len};

	if (s != NULL && len > SSIZE_MAX)
		return refused_with(s, EFAULT); /* no buffer can have this size */
	return s != NULL ? read_iov(fd, s, &iov, 1, 0) : real(read)(fd, buf, len);
}

KS_API ssize_t
write(int fd, const void *buf, size_t len)
{
	struct ks_sock *s = ks_enter_cancelled(fd);

	if (s != NULL && len > SSIZE_MAX)
		return refused_with(s, EFAULT);
	return s != NULL ? send_one(fd, s, buf, len, 0) : real(write)(fd, buf, len);
}

KS_API ssize_t
readv(int fd, const struct iovec *iov, int n)
{
	struct ks_sock *s = ks_enter_cancelled(fd);

	return s != NULL ? read_iov(fd, s, iov, n, 0) : real(readv)(fd, iov, n);
}

KS_API ssize_t
writev(int fd, const struct iovec *iov, int n)
{
	struct ks_sock *s = ks_enter_cancelled(fd);

	return s != NULL ? write_iov(fd, s, iov, n, 0) : real(writev)(fd, iov, n);
}

/* A connection has no file offsets: only -1, which stands for none, is valid.  Only one flag of
 * these calls concerns connections.  @return 0, or an errno */
static int
refuse_place(off64_t at, int rwf, int *flags)
{
	*flags = (rwf & RWF_NOWAIT) != 0 ? MSG_DONTWAIT : 0;
	if (at != -1)
		return at < 0 ? EINVAL : ESPIPE;
	return (rwf & ~(RWF_NOWAIT | RWF_HIPRI | RWF_SYNC | RWF_DSYNC | RWF_APPEND)) != 0
		? EOPNOTSUPP
		: 0;
}

KS_API ssize_t
preadv64v2(int fd, const struct iovec *iov, int n, off64_t at, int rwf)
{
	struct ks_sock *s = ks_enter_cancelled(fd);
	int flags, err = refuse_place(at, rwf, &flags);

	if (s == NULL)
		return real(preadv64v2)(fd, iov, n, at, rwf);
	return err != 0 ? refused_with(s, err) : read_iov(fd, s, iov, n, flags);
}

KS_API ssize_t
preadv2(int fd, const struct iovec *iov, int n, off_t at, int rwf)
{
	return preadv64v2(fd, iov, n, at, rwf);
}

KS_API ssize_t
pwritev64v2(int fd, const struct iovec *iov, int n, off64_t at, int rwf)
{
	struct ks_sock *s = ks_enter_cancelled(fd);
	int flags, err = refuse_place(at, rwf, &flags);

	if (s == NULL)
		return real(pwritev64v2)(fd, iov, n, at, rwf);
	return err != 0 ? refused_with(s, err) : write_iov(fd, s, iov, n, flags);
}

KS_API ssize_t
pwritev2(int fd, const struct iovec *iov, int n, off_t at, int rwf)
{
	return pwritev64v2(fd, iov, n, at, rwf);
}

KS_API ssize_t
recv(int fd, void *buf, size_t len, int flags)
{
	struct ks_sock *s = ks_enter_cancelled(fd);

	return s != NULL ? recv_one(fd, s, buf, len, flags) : real(recv)(fd, buf, len, flags);
}

KS_API ssize_t
send(int fd, const void *buf, size_t len, int flags)
{
	struct ks_sock *s = ks_enter_cancelled(fd);

	return s != NULL ? send_one(fd, s, buf, len, flags) : real(send)(fd, buf, len, flags);
}

KS_API ssize_t
recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *from, socklen_t *from_len)
{
	struct ks_sock *s = ks_enter_cancelled(fd);
	ssize_t n;

	if (s == NULL)
		return real(recvfrom)(fd, buf, len, flags, from, from_len);
	n = recv_one(fd, s, buf, len, flags);
	if (n >= 0 && from != NULL && from_len != NULL)
		*from_len = 0;
	return n;
}

KS_API ssize_t
sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *to, socklen_t to_len)
{
	struct ks_sock *s = ks_enter_cancelled(fd);

	return s != NULL ? send_one(fd, s, buf, len, flags)
			 : real(sendto)(fd, buf, len, flags, to, to_len);
}

/* --- files --- */

/* Whether the kernel cannot send @from as a file. */
static bool
is_no_file(int from)
{
	struct stat st;

	return fstat(from, &st) == 0 &&
		(S_ISSOCK(st.st_mode) || S_ISFIFO(st.st_mode) || S_ISDIR(st.st_mode));
}

/* Sends parts of the file by way of @buf, of CHUNK bytes. */
static ssize_t
send_parts(int to, struct ks_sock *s, int from, off64_t *at, size_t n, char *buf)
{
	size_t done = 0;

	while (done < n) {
		size_t want = n - done < CHUNK ? n - done : CHUNK;
		/* a handler that ends the thread there gives back the reference, as in ks_send() */
		ssize_t got = at != NULL ? ks_pread_with(s, from, buf, want, *at)
					 : ks_read_with(s, from, buf, want),
			put;
		const struct iovec iov = {.iov_base = buf, .iov_len = got > 0 ? (size_t)got : 0};

		put = got > 0 ? ks_send(to, s, &iov, 1, 0) : got;
		if (put > 0 && at != NULL)
			*at += put;
		/* bytes that were read and not sent are to be read again */
		if (at == NULL && got > 0 && put < got)
			(void)lseek64(from, (put > 0 ? put : 0) - got, SEEK_CUR);
		if (put > 0)
			done += (size_t)put;
		if (put <= 0 || put < got)
			return done > 0 ? (ssize_t)done : put;
	}
	return (ssize_t)done;
}

/* A handler of the program has ended the thread, or left.  The calls that wait give the reference
 * back. */
static void
free_parts(void *arg)
{
	char **at = arg, *buf = *at;

	*at = NULL;
	free(buf);
}

static ssize_t
send_file(int to, struct ks_sock *s, int from, off64_t *at, size_t n)
{
	struct _pthread_cleanup_buffer left;
	ssize_t rc;
	char *buf;

	if (is_no_file(from)) {
		errno = EINVAL;
		return -1;
	}
	buf = malloc(CHUNK);
	if (buf == NULL)
		return -1;
	_pthread_cleanup_push(&left, free_parts, &buf); /* a handler may be a cancellation point */
	rc = send_parts(to, s, from, at, n, buf);
	_pthread_cleanup_pop(&left, 0);
	free(buf);
	return rc;
}

KS_API ssize_t
sendfile64(int to, int from, off64_t *at, size_t n)
{
	struct ks_sock *s = ks_enter(to);
	ssize_t rc;

	if (s == NULL)
		return real(sendfile64)(to, from, at, n);
	ks_no_cancel(); /* no cancellation point */
	rc = send_file(to, s, from, at, n);
	ks_no_cancel_end();
	ks_put(s);
	return rc;
}

KS_API ssize_t
sendfile(int to, int from, off_t *at, size_t n)
{
	static_assert(sizeof(off_t) == sizeof(off64_t), "the same");
	return sendfile64(to, from, (off64_t *)at, n);
}

/* --- with _FORTIFY_SOURCE --- */

ssize_t __read_chk(int fd, void *buf, size_t len, size_t room);
ssize_t __recv_chk(int fd, void *buf, size_t len, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t room, int flags, struct sockaddr *from,
	socklen_t *from_len);
void __chk_fail(void) __attribute__((noreturn));

KS_API ssize_t
__read_chk(int fd, void *buf, size_t len, size_t room)
{
	if (len > room)
		__chk_fail();
	return read(fd, buf, len);
}

KS_API ssize_t
__recv_chk(int fd, void *buf, size_t len, size_t room, int flags)
{
	if (len > room)
		__chk_fail();
	return recv(fd, buf, len, flags);
}

KS_API ssize_t
__recvfrom_chk(int fd, void *buf, size_t len, size_t room, int flags, struct sockaddr *from,
	socklen_t *from_len)
{
	if (len > room)
		__chk_fail();
	return recvfrom(fd, buf, len, flags, from, from_len);
}
