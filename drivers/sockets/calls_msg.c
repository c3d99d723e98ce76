/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Messages, single and many.  A connection transfers bytes only, without addresses and ancillary
 * data.  Messages with descriptors on other sockets may bring connections.
 */
#include "ks.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#define MSG_NS 1000000000l /* nanoseconds in a second */

void
ks_look_at_rights(struct msghdr *m)
{
	struct cmsghdr *c;

	if (m->msg_controllen == 0)
		return;
	for (c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
		size_t i, n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		int fd;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (i = 0; i < n; i++) {
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			ks_forget(fd);
			ks_look_at(fd);
		}
	}
}

/* @return 0, or an errno */
static int
refuse_message(const struct msghdr *m)
{
	if (m->msg_name != NULL && (int)m->msg_namelen < 0)
		return EINVAL;
	return ks_refuse_iov(m->msg_iov, m->msg_iovlen, EMSGSIZE);
}

/* As TCP, which ignores what is for other kinds of sockets.  What TCP would use itself (for example
 * SO_TIMESTAMPING) is rejected, because a connection does not support it. */
static int
refuse_control(const struct msghdr *m)
{
	const char *end = (const char *)m->msg_control + m->msg_controllen;
	struct cmsghdr *c;

	if (m->msg_control == NULL && m->msg_controllen != 0)
		return EFAULT;
	for (c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR((struct msghdr *)(uintptr_t)m, c)) {
		if (c->cmsg_len < sizeof(*c) || c->cmsg_len > (size_t)(end - (const char *)c))
			return EINVAL;
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type != SCM_RIGHTS &&
			c->cmsg_type != SCM_CREDENTIALS)
			return EINVAL;
	}
	return 0;
}

static ssize_t
sendmsg_here(int fd, struct ks_sock *s, const struct msghdr *m, int flags)
{
	int err = refuse_message(m);

	if (err == 0)
		err = refuse_control(m);
	if (err == 0)
		return ks_send(fd, s, m->msg_iov, (int)m->msg_iovlen, flags);
	errno = err;
	return -1;
}

/* Adds the number of bytes that are left, as far as there is room.  As with TCP, the end of the
 * stream counts as one. */
static void
put_inq(int fd, struct ks_sock *s, struct msghdr *m, size_t room)
{
	int left = ks_has_ended(s); /* first */
	struct cmsghdr head = {.cmsg_level = IPPROTO_TCP, .cmsg_type = TCP_CM_INQ};
	char *at = m->msg_control;
	size_t len = CMSG_LEN(sizeof(left));

	left += (int)ks_urgent_inq(fd, s);
	if (room < len)
		m->msg_flags |= MSG_CTRUNC;
	if (at == NULL || room < sizeof(head))
		return;
	head.cmsg_len = len < room ? len : room;
	memcpy(at, &head, sizeof(head));
	memcpy(at + CMSG_LEN(0), &left, head.cmsg_len - CMSG_LEN(0));
	m->msg_controllen = CMSG_SPACE(sizeof(left)) < room ? CMSG_SPACE(sizeof(left)) : room;
}

static ssize_t
recvmsg_here(int fd, struct ks_sock *s, struct msghdr *m, int flags)
{
	int err = refuse_message(m);
	size_t room = m->msg_controllen;
	ssize_t n = -1;

	if (err == 0)
		n = ks_recv(fd, s, m->msg_iov, (int)m->msg_iovlen, flags);
	else
		errno = err;
	if (n >= 0) {
		m->msg_namelen = 0;
		m->msg_controllen = 0;
		m->msg_flags = flags & (MSG_OOB | MSG_CMSG_CLOEXEC);
		if (atomic_load_explicit(&s->page->inq, memory_order_relaxed) != 0 &&
			(flags & MSG_OOB) == 0)
			put_inq(fd, s, m, room);
	}
	return n;
}

KS_API ssize_t
recvmsg(int fd, struct msghdr *m, int flags)
{
	struct ks_sock *s = ks_enter_cancelled(fd);
	ssize_t n;

	if (s == NULL) {
		n = real(recvmsg)(fd, m, flags);
		if (n >= 0)
			ks_look_at_rights(m);
		return n;
	}
	n = recvmsg_here(fd, s, m, flags);
	ks_put(s);
	return n;
}

KS_API ssize_t
sendmsg(int fd, const struct msghdr *m, int flags)
{
	struct ks_sock *s = ks_enter_cancelled(fd);
	ssize_t n;

	if (s == NULL)
		return real(sendmsg)(fd, m, flags);
	n = sendmsg_here(fd, s, m, flags);
	ks_put(s);
	return n;
}

/* @return whether the time is over; *@limit: the remaining time */
static bool
is_past(struct timespec *limit, uint64_t until)
{
	uint64_t now, left;

	if (limit == NULL)
		return false;
	now = ks_now();
	left = until > now ? until - now : 0;
	*limit = (struct timespec){(time_t)(left / MSG_NS), (long)(left % MSG_NS)};
	return left == 0;
}

/* The limit is checked only after a message has come.  @return how many came, and in *@err the
 * error that has ended this, if any */
static unsigned int
recv_many(int fd, struct ks_sock *s, struct mmsghdr *m, unsigned int n, int flags,
	struct timespec *limit, int *err)
{
	uint64_t until = 0;
	unsigned int i;

	if (limit != NULL && limit->tv_sec <= UINT32_MAX)
		until = ks_now() + (uint64_t)limit->tv_sec * MSG_NS + (uint64_t)limit->tv_nsec;
	else if (limit != NULL)
		until = UINT64_MAX;
	for (i = 0; i < n; i++) {
		ssize_t len = recvmsg_here(fd, s, &m[i].msg_hdr, flags & ~MSG_WAITFORONE);

		if (len < 0) {
			*err = errno;
			return i;
		}
		m[i].msg_len = (unsigned int)len;
		if (flags & MSG_WAITFORONE)
			flags |= MSG_DONTWAIT;
		if (is_past(limit, until) || (flags & MSG_OOB))
			n = i + 1;
	}
	return n;
}

/* As in the kernel: an earlier error is reported first, and an error after messages is left to the
 * next call. */
static int
recvmmsg_here(int fd, struct ks_sock *s, struct mmsghdr *m, unsigned int n, int flags,
	struct timespec *limit)
{
	unsigned int got;
	int err = 0;

	if (limit != NULL && (limit->tv_sec < 0 || limit->tv_nsec < 0 || limit->tv_nsec >= MSG_NS))
		err = EINVAL;
	else if ((flags & MSG_ERRQUEUE) == 0)
		err = ks_take_error(fd, s);
	if (err != 0) {
		errno = err;
		return -1;
	}
	got = recv_many(fd, s, m, n, flags, limit, &err);
	if (got > 0 && err != 0 && err != EAGAIN && err != EINTR)
		atomic_store(&s->page->error, err);
	if (got == 0 && err != 0) {
		errno = err;
		return -1;
	}
	return (int)got;
}

static int
recvmmsg_elsewhere(int fd, struct mmsghdr *m, unsigned int n, int flags, struct timespec *limit)
{
	int got = real(recvmmsg)(fd, m, n, flags, limit);

	for (int i = 0; i < got; i++)
		ks_look_at_rights(&m[i].msg_hdr);
	return got;
}

KS_API int
recvmmsg(int fd, struct mmsghdr *m, unsigned int n, int flags, struct timespec *limit)
{
	struct ks_sock *s = ks_enter_cancelled(fd);
	int rc;

	if (s == NULL)
		return recvmmsg_elsewhere(fd, m, n, flags, limit);
	rc = recvmmsg_here(fd, s, m, n, flags, limit);
	ks_put(s);
	return rc;
}

KS_API int
sendmmsg(int fd, struct mmsghdr *m, unsigned int n, int flags)
{
	struct ks_sock *s = ks_enter_cancelled(fd);
	unsigned int i;

	if (s == NULL)
		return real(sendmmsg)(fd, m, n, flags);
	n = n < UIO_MAXIOV ? n : UIO_MAXIOV; /* limit of one call, as in the kernel */
	for (i = 0; i < n; i++) {
		ssize_t len = sendmsg_here(fd, s, &m[i].msg_hdr, flags);

		if (len < 0)
			break;
		m[i].msg_len = (unsigned int)len;
	}
	ks_put(s);
	return i > 0 || n == 0 ? (int)i : -1;
}
