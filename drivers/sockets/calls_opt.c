/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Options and properties of a socket.  Time limits, O_NONBLOCK and the like are those of the pair;
 * options of TCP and IP are those of the TCP socket, which the service has.
 */
#include "ks.h"

#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/time.h>

#define IP_OPTIONS_MOST 40u
#define NAME_MOST       15u /* limit of the name of a congestion control */
/* place of tcpi_notsent_bytes, which the C library's struct tcp_info is too old to have */
#define NOTSENT_AT 144u

/* --- options --- */

static int
failed(int rc)
{
	if (rc >= 0)
		return rc;
	errno = -rc;
	return -1;
}

static bool
is_pairs(int level, int name)
{
	return level == SOL_SOCKET &&
		(name == SO_RCVTIMEO || name == SO_SNDTIMEO || name == SO_TYPE ||
			name == SO_RCVLOWAT || name == SO_ACCEPTCONN);
}

static int
copy_value(const void *from, size_t n, void *value, socklen_t *len)
{
	size_t room = *len < n ? *len : n;

	memcpy(value, from, room);
	*len = (socklen_t)room;
	return 0;
}

/* Whether the service has no TCP socket for the connection: it does not know the connection any
 * more, or has ended.  A program that has confined itself cannot make another socket. */
static bool
has_no_socket(int rc)
{
	return (rc == -ENOENT || rc == -EIO) && !ks_is_confined();
}

static int
ask_option(int fd, int level, int name, void *value, socklen_t *len)
{
	struct karst_sock_msg msg = {.op = KARST_SOCK_GETOPT,
		.level = level,
		.name = name,
		.len = *len < KARST_SOCK_DATA ? *len : KARST_SOCK_DATA};
	int fds[KARST_SOCK_FDS];
	int rc = ks_ask(&msg, fd, fds);

	return rc == 0 ? copy_value(msg.data, msg.len, value, len) : rc;
}

/* Returns the error and clears it.  That includes the EPIPE that TCP reports after a write to a
 * peer that has closed. */
static int
tell_error(int fd, struct ks_sock *s)
{
	uint32_t untold = KARST_SOCK_LOST_UNTOLD;
	int err = ks_take_error(fd, s);

	if (err == 0 &&
		atomic_compare_exchange_strong(&s->page->lost, &untold, KARST_SOCK_LOST_TOLD))
		err = EPIPE;
	return err;
}

/* Whether both directions have ended, or the connection was reset: then TCP has no connection any
 * more. */
static bool
is_over(int fd, struct ks_sock *s)
{
	uint32_t flags;

	ks_notice_close(fd, s);
	if (atomic_load(&s->page->state) == KARST_SOCK_OVER)
		return true;
	flags = atomic_load(&s->page->flags);
	return ks_has_ended(s) &&
		((atomic_load(&s->page->shut) & KARST_SOCK_SHUT_WR) != 0 ||
			atomic_load(&s->page->lost) != 0 ||
			(flags & (KARST_SOCK_NO_SEND | KARST_SOCK_CLOSED)) == KARST_SOCK_NO_SEND);
}

/* Number of written bytes that have not come to the other side.  At most the size of the ring,
 * whatever the peer's position says.  Between two programs of a daemon one ring serves as the send
 * buffer of one side and the receive buffer of the other: half of it counts as each. */
static uint32_t
bytes_unsent(const struct ks_sock *s)
{
	uint64_t tail = atomic_load(&s->txd->tail); /* first: it must not be ahead of head */
	uint64_t n = karst_min_u64(atomic_load(&s->page->tx_head) - tail, s->buffer);
	uint32_t state = atomic_load(&s->page->state);

	if (state == KARST_SOCK_DIRECT || state == KARST_SOCK_CONNECTING)
		n -= karst_min_u64(n, s->buffer / 2);
	return (uint32_t)n;
}

static int
state_of_tcp(int fd, struct ks_sock *s)
{
	bool shut = (atomic_load(&s->page->shut) & KARST_SOCK_SHUT_WR) != 0;

	if (is_over(fd, s))
		return TCP_CLOSE;
	if (shut)
		return TCP_FIN_WAIT2;
	return ks_has_ended(s) ? TCP_CLOSE_WAIT : TCP_ESTABLISHED;
}

/* The TCP socket, which the service has, knows nothing of the ends of the two directions, nor of
 * the bytes.  It may be closed already. */
static int
ask_info(int fd, struct ks_sock *s, void *value, socklen_t *len)
{
	struct tcp_info info;
	uint8_t all[KARST_SOCK_DATA] = {0};
	socklen_t have = sizeof(all);

	if (ask_option(fd, IPPROTO_TCP, TCP_INFO, all, &have) != 0 &&
		(ks_is_confined() || ks_get_ended(s, IPPROTO_TCP, TCP_INFO, all, &have) != 0))
		have = sizeof(info);
	memcpy(&info, all, sizeof(info));
	info.tcpi_state = (uint8_t)state_of_tcp(fd, s);
	memcpy(all, &info, sizeof(info));
	if (have >= NOTSENT_AT + sizeof(uint32_t))
		memcpy(all + NOTSENT_AT, &(uint32_t){bytes_unsent(s)}, sizeof(uint32_t));
	return copy_value(all, have, value, len);
}

KS_API int
getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	struct ks_sock *s = ks_enter(fd);
	int rc, err, on;

	if (s == NULL || is_pairs(level, name)) {
		rc = real(getsockopt)(fd, level, name, value, len);
	} else if (value == NULL || len == NULL) {
		rc = failed(-EFAULT);
	} else if ((int)*len < 0) {
		rc = failed(-EINVAL);
	} else if (level == SOL_SOCKET && name == SO_ERROR) {
		err = tell_error(fd, s);
		rc = copy_value(&err, sizeof(err), value, len);
	} else if (level == SOL_SOCKET && name == SO_OOBINLINE) {
		on = (int)atomic_load(&s->page->oob_inline);
		rc = copy_value(&on, sizeof(on), value, len);
	} else if (level == IPPROTO_TCP && name == TCP_INQ) {
		on = (int)atomic_load(&s->page->inq);
		rc = copy_value(&on, sizeof(on), value, len);
	} else if (level == IPPROTO_TCP && name == TCP_INFO) {
		rc = ask_info(fd, s, value, len);
	} else {
		rc = ask_option(fd, level, name, value, len);
		rc = failed(has_no_socket(rc) ? ks_get_ended(s, level, name, value, len) : rc);
	}
	if (s != NULL)
		ks_put(s);
	return rc;
}

/* @return how many bytes of an option's value the kernel reads, at most @len.  Only these are
 * copied, because @len may exceed the program's memory. */
static socklen_t
looked_at(int level, int name, socklen_t len)
{
	socklen_t most = sizeof(int);

	if (level == IPPROTO_IP && name == IP_OPTIONS)
		most = IP_OPTIONS_MOST + 1; /* enough for the kernel to reject it */
	else if (level == IPPROTO_TCP && name == TCP_CONGESTION)
		most = NAME_MOST;
	else if (level == SOL_SOCKET && name == SO_BINDTODEVICE)
		most = IFNAMSIZ;
	else if (level == SOL_SOCKET && name == SO_LINGER)
		most = sizeof(struct linger);
	else if (level == SOL_SOCKET && name == SO_MAX_PACING_RATE)
		most = sizeof(long);
	return len < most ? len : most;
}

static int
set_inq(struct ks_sock *s, const void *value, socklen_t len)
{
	int on;

	if (len < sizeof(on))
		return -EINVAL;
	memcpy(&on, value, sizeof(on));
	if (on != 0 && on != 1)
		return -EINVAL;
	atomic_store(&s->page->inq, (uint32_t)on);
	return 0;
}

static int
set_option(int fd, struct ks_sock *s, int level, int name, const void *value, socklen_t len)
{
	struct karst_sock_msg msg = {.op = KARST_SOCK_SETOPT,
		.level = level,
		.name = name,
		.len = looked_at(level, name, len)};
	int fds[KARST_SOCK_FDS];
	const struct linger *linger = value;
	int rc;

	if (level == IPPROTO_TCP && name == TCP_ULP)
		return -ENOPROTOOPT;
	if (level == IPPROTO_TCP && name == TCP_INQ)
		return set_inq(s, value, len);
	if (level == SOL_SOCKET && name == SO_OOBINLINE) {
		if (len < sizeof(int))
			return -EINVAL;
		ks_urgent_inline(s, *(const int *)value != 0);
		return 0;
	}
	if (level == SOL_SOCKET && name == SO_LINGER && len >= sizeof(*linger))
		atomic_store(&s->page->reset, linger->l_onoff && linger->l_linger == 0);
	memcpy(msg.data, value, msg.len);
	rc = ks_ask(&msg, fd, fds);
	if (has_no_socket(rc))
		rc = ks_set_ended(s, level, name, value, looked_at(level, name, len));
	if (rc == 0)
		ks_note_value(s, level, name, value, looked_at(level, name, len));
	return rc;
}

/* Whether an option keeps a socket on TCP, because SMC-R does not support it. */
static bool
is_never(int level, int name)
{
	static const int tcp[] = {TCP_FASTOPEN, TCP_FASTOPEN_CONNECT, TCP_REPAIR, TCP_MD5SIG};
	static const int any[] = {SO_ZEROCOPY, SO_PEEK_OFF, SO_TIMESTAMP_OLD, SO_TIMESTAMPNS_OLD,
		SO_TIMESTAMPING_OLD, SO_TIMESTAMP_NEW, SO_TIMESTAMPNS_NEW, SO_TIMESTAMPING_NEW};
	bool never = false;

	for (size_t i = 0; level == IPPROTO_TCP && i < sizeof(tcp) / sizeof(tcp[0]); i++)
		never |= name == tcp[i];
	for (size_t i = 0; level == SOL_SOCKET && i < sizeof(any) / sizeof(any[0]); i++)
		never |= name == any[i];
	return never;
}

KS_API int
setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	struct ks_sock *s = ks_enter(fd);
	int rc;

	if (s == NULL || is_pairs(level, name)) {
		if (s == NULL)
			ks_note_option(level, name);
		rc = real(setsockopt)(fd, level, name, value, len);
		if (s == NULL && rc == 0 && is_never(level, name) &&
			(ks_kind(fd) == KS_PLAIN || ks_kind(fd) == KS_EARLY)) {
			ks_forget(fd);
			ks_set(fd, KS_NEVER, NULL);
		}
	} else if ((int)len < 0 || (value == NULL && len < sizeof(int))) {
		rc = failed(-EINVAL);
	} else if (value == NULL) {
		rc = failed(-EFAULT);
	} else {
		rc = failed(set_option(fd, s, level, name, value, len));
	}
	if (s != NULL)
		ks_put(s);
	return rc;
}

/* --- names --- */

static int
name_of(const struct sockaddr_storage *from, uint32_t bytes, struct sockaddr *to, socklen_t *len)
{
	if (to == NULL || len == NULL)
		return failed(-EFAULT);
	if ((int)*len < 0)
		return failed(-EINVAL);
	bytes = bytes < sizeof(*from) ? bytes : sizeof(*from);
	memcpy(to, from, *len < bytes ? *len : bytes);
	*len = bytes;
	return 0;
}

KS_API int
getsockname(int fd, struct sockaddr *name, socklen_t *len)
{
	struct ks_sock *s = ks_enter(fd);
	int rc;

	if (s == NULL)
		return real(getsockname)(fd, name, len);
	rc = name_of(&s->page->local, s->page->local_len, name, len);
	ks_put(s);
	return rc;
}

KS_API int
getpeername(int fd, struct sockaddr *name, socklen_t *len)
{
	struct ks_sock *s = ks_enter(fd);
	int rc;

	if (s == NULL)
		return real(getpeername)(fd, name, len);
	if (is_over(fd, s))
		rc = failed(-ENOTCONN);
	else
		rc = name_of(&s->page->peer, s->page->peer_len, name, len);
	ks_put(s);
	return rc;
}

/* --- the rest --- */

KS_API int
shutdown(int fd, int how)
{
	struct ks_sock *s = ks_enter(fd);
	bool over;
	int rc;

	if (s == NULL)
		return real(shutdown)(fd, how);
	if (how < SHUT_RD || how > SHUT_RDWR) {
		ks_put(s);
		return failed(-EINVAL);
	}
	over = is_over(fd, s);
	if (how != SHUT_WR)
		atomic_fetch_or(&s->page->shut, KARST_SOCK_SHUT_RD);
	rc = how == SHUT_WR ? 0 : real(shutdown)(fd, SHUT_RD);
	if (rc == 0 && how != SHUT_RD)
		ks_end(fd, s);
	if (rc == 0 && (atomic_load(&s->page->shut) & KARST_SOCK_SHUT) == KARST_SOCK_SHUT) {
		atomic_fetch_or(&s->rxd->left, KARST_SOCK_LEFT_SHUT);
		if (how == SHUT_RD) /* a connection on TCP is shut down there, too */
			ks_tell_service(fd, s);
	}
	ks_put(s);
	return rc == 0 && over ? failed(-ENOTCONN) : rc;
}

/* As fcntl() does by F_SETFL and F_SETOWN. */
static int
set_signals(int fd, unsigned long request, void *arg)
{
	int rc;

	if (request != FIOASYNC)
		ks_note_set(KS_SET_OWNER);
	rc = real(ioctl)(fd, request, arg);
	if (rc == 0)
		ks_watch(fd);
	return rc;
}

KS_API int
ioctl(int fd, unsigned long request, ...)
{
	struct ks_sock *s;
	va_list ap;
	void *arg;
	int rc = 0;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (request == FIONBIO)
		ks_note_nonblock(fd, arg != NULL && *(const int *)arg != 0);
	if (request == FIOASYNC || request == FIOSETOWN || request == SIOCSPGRP)
		return set_signals(fd, request, arg);
	if (request != FIONREAD && request != SIOCOUTQ && request != SIOCOUTQNSD &&
		request != SIOCATMARK)
		return real(ioctl)(fd, request, arg);
	s = ks_enter(fd);
	if (s == NULL)
		return real(ioctl)(fd, request, arg);
	if (request == FIONREAD)
		*(int *)arg = (int)ks_urgent_inq(fd, s);
	else if (request == SIOCATMARK)
		*(int *)arg = ks_urgent_at_mark(fd, s);
	else
		*(int *)arg = (int)bytes_unsent(s);
	ks_put(s);
	return rc;
}

KS_API int
epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	int rc;

	ks_settle_early(fd);
	rc = real(epoll_ctl)(epfd, op, fd, event);
	if (rc == 0 && op == EPOLL_CTL_ADD && ks_kind(fd) == KS_PLAIN && !ks_is_confined() &&
		ks_is_unused(fd))
		ks_set(fd, KS_EARLY, NULL);
	if (rc == 0 && ks_may_settle() &&
		(ks_kind(fd) == KS_TRIES || ks_kind(fd) == KS_WAITS || ks_kind(fd) == KS_EARLY))
		ks_epoll_note(epfd, op, fd, event);
	else if (rc == 0 && op != EPOLL_CTL_DEL && ks_kind(fd) == KS_SMC)
		ks_watch(fd);
	if (rc == 0 && op != EPOLL_CTL_DEL && (event->events & EPOLLPRI) && ks_kind(fd) == KS_SMC)
		ks_urgent_watch(fd);
	return rc;
}
