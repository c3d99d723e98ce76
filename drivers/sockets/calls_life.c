/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Calls that create, close and duplicate descriptors.
 */
#include "ks.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/* other flags are refused, and nothing is closed */
#define CLOSE_RANGE_FLAGS (CLOSE_RANGE_CLOEXEC | CLOSE_RANGE_UNSHARE)

/* --- connecting --- */

static bool
is_internet(const struct sockaddr *to)
{
	return to != NULL && (to->sa_family == AF_INET || to->sa_family == AF_INET6);
}

static bool
is_plain(int fd)
{
	return ks_kind(fd) == KS_PLAIN || ks_kind(fd) == KS_EARLY;
}

/* Checks first what needs no system call: to stay on TCP because of the peer, or because a filter
 * forbids system calls, needs none. */
static bool
may_try(int fd, const struct sockaddr *to)
{
	return is_internet(to) && is_plain(fd) && !ks_is_confined() &&
		(ks_require || (ks_has_room() && !ks_peer_stays(to))) && ks_is_tcp(fd) &&
		!ks_uring_connects() && ks_service();
}

/* Whether the socket would stay on TCP, which the program must not do (--require). */
static bool
is_refused(int fd)
{
	return ks_require && is_plain(fd) && ks_is_tcp(fd) &&
		(ks_is_confined() || ks_uring_listens());
}

/* Once the kernel has connected the socket, another thread that uses it, or calls poll(), must get
 * the pair, and not the TCP socket, which then belongs to the service. */
static int
offer(int fd, const struct sockaddr *to, socklen_t len)
{
	enum ks_kind before = ks_kind(fd);
	int rc;

	ks_option_want(fd, true);
	ks_set(fd, KS_WAITS, NULL);
	rc = real(connect)(fd, to, len);
	if (rc != 0) {
		bool tries = errno == EINPROGRESS || errno == EINTR;

		/* the next time the library may not want it, and would not negotiate; with a filter
		 * that was set meanwhile it never will */
		if (!tries && !ks_is_confined())
			ks_option_want(fd, false);
		ks_settle_not(fd, tries ? KS_TRIES : before);
		return rc;
	}
	rc = ks_settle_own(fd);
	if (rc == 0)
		return 0;
	errno = -rc;
	return -1;
}

/* connect() on a connection. */
static int
connect_again(struct ks_sock *s, socklen_t len)
{
	bool untold;

	if (len < sizeof(sa_family_t) || len > sizeof(struct sockaddr_storage)) {
		ks_put(s);
		errno = EINVAL;
		return -1;
	}
	untold = atomic_exchange(&s->untold, false);
	ks_put(s);
	if (untold)
		return 0;
	errno = EISCONN;
	return -1;
}

KS_API int
connect(int fd, const struct sockaddr *to, socklen_t len)
{
	struct ks_sock *s = ks_enter(fd);

	if (s != NULL)
		return connect_again(s, len);
	if (may_try(fd, to))
		return offer(fd, to, len);
	if (is_internet(to) && is_refused(fd)) {
		errno = ECONNABORTED;
		return -1;
	}
	return real(connect)(fd, to, len);
}

KS_API int
listen(int fd, int backlog)
{
	bool may = (ks_require || !ks_is_confined()) && is_plain(fd) && ks_is_tcp(fd);
	bool stays = may && (ks_is_confined() || ks_uring_listens());

	if (stays && ks_require) {
		errno = EOPNOTSUPP;
		return -1;
	}
	if (may && !stays && ks_service()) {
		ks_option_want(fd, true);
		ks_epoll_leave(fd);
		ks_set(fd, KS_LISTENS, NULL);
	}
	return real(listen)(fd, backlog);
}

static void
close_accepted(void *arg)
{
	int *at = arg, fd = *at;

	*at = -1;
	if (fd >= 0)
		(void)close(fd);
}

/* The descriptor is not the program's yet: if a handler ends the thread, or leaves, nobody knows
 * it. */
static int
become_accepted(int fd, int flags)
{
	struct _pthread_cleanup_buffer left;
	int rc;

	_pthread_cleanup_push(&left, close_accepted, &fd);
	rc = ks_service() ? ks_become(fd, flags) : 0;
	_pthread_cleanup_pop(&left, 0);
	return rc;
}

KS_API int
accept4(int fd, struct sockaddr *from, socklen_t *len, int flags)
{
	/* read before: the descriptor may be closed meanwhile, or its number reused */
	bool listens = ks_kind(fd) == KS_LISTENS;
	int got = real(accept4)(fd, from, len, flags), rc;

	if (got < 0 || (!listens && ks_kind(fd) != KS_LISTENS))
		return got;
	rc = become_accepted(got, flags);
	if (rc == 0)
		return got;
	real(close)(got);
	errno = -rc;
	return -1;
}

KS_API int
accept(int fd, struct sockaddr *from, socklen_t *len)
{
	return accept4(fd, from, len, 0);
}

/* --- closing --- */

struct ks_sock *
ks_close_begin(int fd)
{
	struct ks_sock *s = ks_get(fd);

	ks_forget(fd);
	if (s != NULL && ks_is_detached(s))
		ks_meet_peer(fd, s);
	return s;
}

/* The other program must learn of the close no later than a TCP peer would. */
void
ks_close_end(struct ks_sock *s)
{
	int err = errno;

	if (s == NULL)
		return;
	atomic_fetch_or_explicit(&s->rxd->left, KARST_SOCK_LEFT_CLOSED, memory_order_release);
	ks_put(s);
	errno = err;
}

KS_API int
close(int fd)
{
	struct ks_sock *s = NULL;
	int rc;

	if (ks_kind(fd) == KS_PLAIN && !ks_is_hidden(fd))
		return real(close)(fd); /* without ks_is_ours(): the table does not change */
	pthread_testcancel();           /* as close(), before it does anything */
	if (ks_is_ours() && ks_is_hidden(fd)) {
		errno = EBADF;
		return -1;
	}
	ks_hold(); /* a handler may end the thread, or leave by longjmp() */
	ks_no_cancel();
	if (ks_is_ours())
		s = ks_close_begin(fd);
	rc = real(close)(fd);
	ks_close_end(s);
	ks_no_cancel_end();
	ks_release();
	return rc;
}

static int
close_between(unsigned int first, unsigned int last, int flags)
{
	return first > last ? 0 : real(close_range)(first, last, flags);
}

/* Skips the descriptors that the program does not see. */
KS_API int
close_range(unsigned int first, unsigned int last, int flags)
{
	unsigned int fd;
	int rc = 0;

	if (!ks_is_ours() || first > last || (flags & ~CLOSE_RANGE_FLAGS) != 0)
		return real(close_range)(first, last, flags);
	for (fd = first; fd <= last && fd < KS_MAX_FDS && rc == 0; fd++) {
		if (ks_is_hidden((int)fd)) {
			rc = close_between(first, fd - 1, flags);
			first = fd + 1;
		} else if ((flags & CLOSE_RANGE_CLOEXEC) == 0) {
			ks_forget((int)fd);
		}
	}
	return rc == 0 ? close_between(first, last, flags) : rc;
}

KS_API void
closefrom(int first)
{
	(void)close_range(first > 0 ? (unsigned int)first : 0, ~0u, 0);
}

/* --- duplicates --- */

/* Of a thread that makes a duplicate, until the table has it: another one may make the same number
 * a duplicate of something else, and the last of them must be the last in both.  At file scope: the
 * calls of programs have no argument for it. */
static struct karst_sock_lock numbers_lock;

void
ks_life_forked(void)
{
	atomic_store(&numbers_lock.owner, 0);
}

struct duplicate {
	bool ours;      /* ks_is_ours() */
	bool locked;    /* with numbers_lock; without connections no system call is made for it */
	bool connected; /* it is one of a connection, so that a filter needs rules for it */
};

/* From here to duplicated(), which has the result, no handler of the program runs, which might end
 * the thread or leave by siglongjmp(): the table would have another kind for the new number than
 * the kernel. */
static struct duplicate
begin_duplicate(int from)
{
	struct duplicate d = {.ours = ks_is_ours()};

	ks_settle_early(from);
	ks_hold();
	ks_no_cancel();
	d.connected = d.ours && ks_kind(from) == KS_SMC;
	if (d.connected)
		ks_confine_open_begin();
	d.locked = d.ours && ks_connects();
	if (d.locked)
		(void)ks_lock_page(&numbers_lock);
	return d;
}

static int
duplicated(int from, int to, struct duplicate d)
{
	int err = errno;

	if (to >= 0 && d.ours)
		ks_copy(from, to);
	if (d.locked)
		ks_unlock_page(&numbers_lock);
	if (d.ours && to >= 0 && to <= STDERR_FILENO)
		ks_streams_look(to);
	if (d.connected)
		ks_confine_open_end();
	ks_no_cancel_end();
	ks_release();
	errno = err;
	return to;
}

/* Whether the number belongs to a descriptor that the program does not see; such numbers are
 * high. */
static bool
is_taken(int fd)
{
	if (!ks_is_ours() || !ks_is_hidden(fd))
		return false;
	errno = EBUSY;
	return true;
}

/* Keeps what @to is open until numbers_lock is released: its last close may wait for long
 * (SO_LINGER).  @return a descriptor, or -1 */
static int
keep_replaced(int to)
{
	if (!ks_is_ours() || !ks_connects() || ks_is_confined() || ks_kind(to) != KS_PLAIN)
		return -1;
	return real(fcntl64)(to, F_DUPFD_CLOEXEC, to);
}

static int
drop_replaced(int kept, int rc)
{
	int err = errno;

	if (kept >= 0)
		real(close)(kept);
	ks_release();
	errno = err;
	return rc;
}

KS_API int
dup(int fd)
{
	struct duplicate d = begin_duplicate(fd);

	return duplicated(fd, real(dup)(fd), d);
}

KS_API int
dup2(int fd, int to)
{
	struct duplicate d;
	int kept;

	ks_settle_early(fd);
	if (fd == to)
		return real(dup2)(fd, to);
	if (is_taken(to))
		return -1;
	ks_hold();
	kept = keep_replaced(to);
	d = begin_duplicate(fd);
	return drop_replaced(kept, duplicated(fd, real(dup2)(fd, to), d));
}

KS_API int
dup3(int fd, int to, int flags)
{
	struct duplicate d;
	int kept;

	if (is_taken(to))
		return -1;
	ks_hold();
	kept = keep_replaced(to);
	d = begin_duplicate(fd);
	return drop_replaced(kept, duplicated(fd, real(dup3)(fd, to, flags), d));
}

KS_API int
fcntl64(int fd, int cmd, ...)
{
	va_list ap;
	void *arg;
	struct duplicate d;
	int rc;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC) {
		d = begin_duplicate(fd);
		return duplicated(fd, real(fcntl64)(fd, cmd, arg), d);
	}
	if (cmd == F_SETOWN || cmd == F_SETOWN_EX || cmd == F_SETSIG)
		ks_note_set(KS_SET_OWNER);
	rc = real(fcntl64)(fd, cmd, arg);
	if (cmd == F_SETFL && rc == 0)
		ks_note_nonblock(fd, ((intptr_t)arg & O_NONBLOCK) != 0);
	if ((cmd == F_SETFL && ((intptr_t)arg & O_ASYNC)) || cmd == F_SETOWN || cmd == F_SETSIG ||
		cmd == F_SETOWN_EX)
		ks_watch(fd);
	return rc;
}

KS_API int
fcntl(int fd, int cmd, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	return fcntl64(fd, cmd, arg);
}
