/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A program that waits for readiness waits in the kernel, for the pair.  Before that the library
 * only has to make the connection watched, so that there is a token in the pair while there is
 * something to read.  That holds from then on for all waits, by any call, in any process.
 *
 * Afterwards poll() and select() distinguish what the pair cannot: urgent data from data, and a
 * token whose bytes are there from one whose bytes have been read meanwhile, because its writer
 * lost the processor between the bytes and the token.  A program that was told of bytes may read
 * then, and block if there are none.  So if there is nothing to report, the wait continues for the
 * rest of its time.
 */
#include "ks.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/select.h>

#define NS 1000000000ull /* nanoseconds in a second */
#define MS 1000000       /* nanoseconds in a millisecond */

static void
watch(int fd, bool urgent)
{
	ks_settle_early(fd);
	if (ks_kind(fd) != KS_SMC)
		return;
	ks_watch(fd);
	if (urgent)
		ks_urgent_watch(fd);
}

void
ks_note_nonblock(int fd, bool on)
{
	struct ks_sock *s = ks_get(fd);

	if (s == NULL)
		return;
	atomic_store(&s->page->nonblock, on);
	ks_put(s);
}

/* Not const: glibc declares the argument of poll() as written only, and gcc would warn. */
static void
watch_polled(struct pollfd *p, nfds_t n)
{
	int err = errno;

	for (nfds_t i = 0; i < n; i++)
		if (ks_kind(p[i].fd) != KS_PLAIN)
			watch(p[i].fd, (p[i].events & POLLPRI) != 0);
	errno = err;
}

/* Called when the pair reports something to read, and with @urgent also urgent data.  @return
 * whether there are no bytes to read: the urgent byte makes the pair readable, too. */
static bool
is_untrue(int fd, bool urgent)
{
	struct ks_sock *s = ks_get(fd);
	bool untrue;

	if (s == NULL)
		return false;
	untrue = urgent ? ks_urgent_alone(fd, s) : ks_is_stray(fd, s);
	ks_put(s);
	return untrue;
}

static void
poll_correct(struct pollfd *p)
{
	const short in = POLLIN | POLLRDNORM;

	if ((p->revents & in) == 0 || (p->revents & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL)) ||
		ks_kind(p->fd) != KS_SMC)
		return;
	if (is_untrue(p->fd, (p->revents & POLLPRI) != 0))
		p->revents &= ~in;
}

static int
polled(struct pollfd *p, nfds_t n, int rc)
{
	int err = errno;

	for (nfds_t i = 0; rc > 0 && i < n; i++) {
		if (p[i].revents == 0)
			continue;
		poll_correct(&p[i]);
		if (p[i].revents == 0)
			rc--;
	}
	errno = err;
	return rc;
}

static bool
is_in(int fd, const fd_set *set)
{
	return set != NULL && FD_ISSET(fd, set);
}

static int
selected(int n, fd_set *r, const fd_set *e, int rc)
{
	int err = errno;

	for (int fd = 0; r != NULL && rc > 0 && fd < n && fd < FD_SETSIZE; fd++)
		if (FD_ISSET(fd, r) && ks_kind(fd) == KS_SMC && is_untrue(fd, is_in(fd, e))) {
			FD_CLR(fd, r);
			rc--;
		}
	errno = err;
	return rc;
}

static void
watch_selected(int n, const fd_set *r, const fd_set *w, const fd_set *e)
{
	int err = errno;

	for (int fd = 0; fd < n && fd < FD_SETSIZE; fd++)
		if (ks_kind(fd) != KS_PLAIN && (is_in(fd, r) || is_in(fd, w) || is_in(fd, e)))
			watch(fd, is_in(fd, e));
	errno = err;
}

/* Whether signal handlers have run since @before, which was the value of ks_held.handled. */
static bool
has_handled(uint32_t before)
{
	return ks_held.handled != before;
}

/* A handler that has run while connections were checked, before the call waits, would have ended
 * the wait.  So the call does not wait then, and this function converts its result. */
static int
watch_ended(bool handled, int rc)
{
	if (!handled || rc != 0)
		return rc;
	errno = EINTR;
	return -1;
}

/* @return the time when a wait that begins now ends; 0: it does not wait; UINT64_MAX: never */
static uint64_t
watch_until(const struct timespec *limit)
{
	uint64_t ns;

	if (limit == NULL || limit->tv_sec < 0 || limit->tv_sec > UINT32_MAX)
		return UINT64_MAX;
	ns = (uint64_t)limit->tv_sec * NS + (uint64_t)limit->tv_nsec;
	return ns == 0 ? 0 : ks_now() + ns;
}

/* @return the remaining time; if there is none, *@until is 0 from then on */
static const struct timespec *
watch_left(uint64_t *until, struct timespec *left)
{
	uint64_t now, ns;

	if (*until == UINT64_MAX)
		return NULL;
	now = ks_now();
	ns = *until > now ? *until - now : 0;
	if (ns == 0)
		*until = 0;
	*left = (struct timespec){(time_t)(ns / NS), (long)(ns % NS)};
	return left;
}

/* Each call continues by its own system call, because a program may be confined to these. */

KS_API int
poll(struct pollfd *p, nfds_t n, int ms)
{
	uint64_t until = ms > 0 ? ks_now() + (uint64_t)ms * MS : 0;
	uint32_t before = ks_held.handled;
	struct timespec left = {0};
	bool handled;
	int rc;

	for (;;) {
		watch_polled(p, n);
		handled = has_handled(before);
		rc = watch_ended(handled, real(poll)(p, n, handled ? 0 : ms));
		before = ks_held.handled;
		if (rc <= 0 || (rc = polled(p, n, rc)) != 0 || ms == 0)
			return rc;
		if (ms > 0) {
			(void)watch_left(&until, &left);
			ms = (int)(left.tv_sec * 1000 + (left.tv_nsec + MS - 1) / MS);
		}
	}
}

KS_API int
ppoll(struct pollfd *p, nfds_t n, const struct timespec *limit, const sigset_t *mask)
{
	const struct timespec none = {0};
	uint64_t until = watch_until(limit);
	uint32_t before = ks_held.handled;
	struct timespec left = {0};
	bool handled;
	int rc;

	for (;;) {
		watch_polled(p, n);
		handled = has_handled(before);
		rc = watch_ended(handled, real(ppoll)(p, n, handled ? &none : limit, mask));
		before = ks_held.handled;
		if (rc <= 0 || (rc = polled(p, n, rc)) != 0 || until == 0)
			return rc;
		limit = watch_left(&until, &left);
	}
}

/* The sets that select() was called with, if they are not larger than can be kept. */
struct watch_sets {
	fd_set r, w, e;
};

/* Copies only the part that the kernel uses: the program's set may be no longer than that. */
static void
copy_set(int n, fd_set *to, const fd_set *from)
{
	if (to != NULL && from != NULL && n > 0 && n <= FD_SETSIZE)
		memcpy(to, from, (size_t)(n + NFDBITS - 1) / NFDBITS * sizeof(fd_mask));
}

static void
copy_sets(int n, struct watch_sets *to, const fd_set *r, const fd_set *w, const fd_set *e)
{
	copy_set(n, &to->r, r);
	copy_set(n, &to->w, w);
	copy_set(n, &to->e, e);
}

static void
restore_sets(int n, const struct watch_sets *from, fd_set *r, fd_set *w, fd_set *e)
{
	copy_set(n, r, &from->r);
	copy_set(n, w, &from->w);
	copy_set(n, e, &from->e);
}

/* The kernel stores the remaining time in @limit. */
KS_API int
select(int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *limit)
{
	struct timeval none = {0};
	uint32_t before = ks_held.handled;
	struct watch_sets asked;
	bool handled;
	int rc;

	copy_sets(n, &asked, r, w, e);
	for (;;) {
		watch_selected(n, r, w, e);
		handled = has_handled(before);
		rc = watch_ended(handled, real(select)(n, r, w, e, handled ? &none : limit));
		before = ks_held.handled;
		if (rc <= 0 || (rc = selected(n, r, e, rc)) != 0 || n > FD_SETSIZE ||
			(limit != NULL && limit->tv_sec == 0 && limit->tv_usec == 0))
			return rc;
		restore_sets(n, &asked, r, w, e);
	}
}

KS_API int
pselect(int n, fd_set *r, fd_set *w, fd_set *e, const struct timespec *limit, const sigset_t *mask)
{
	const struct timespec none = {0};
	uint64_t until = watch_until(limit);
	uint32_t before = ks_held.handled;
	struct watch_sets asked;
	struct timespec left;
	bool handled;
	int rc;

	copy_sets(n, &asked, r, w, e);
	for (;;) {
		watch_selected(n, r, w, e);
		handled = has_handled(before);
		rc = watch_ended(handled, real(pselect)(n, r, w, e, handled ? &none : limit, mask));
		before = ks_held.handled;
		if (rc <= 0 || (rc = selected(n, r, e, rc)) != 0 || n > FD_SETSIZE || until == 0)
			return rc;
		restore_sets(n, &asked, r, w, e);
		limit = watch_left(&until, &left);
	}
}

/* --- with _FORTIFY_SOURCE --- */

int __poll_chk(struct pollfd *p, nfds_t n, int ms, size_t room);
int __ppoll_chk(struct pollfd *p, nfds_t n, const struct timespec *limit, const sigset_t *mask,
	size_t room);
void __chk_fail(void) __attribute__((noreturn));

KS_API int
__poll_chk(struct pollfd *p, nfds_t n, int ms, size_t room)
{
	if (room / sizeof(*p) < n)
		__chk_fail();
	return poll(p, n, ms);
}

KS_API int
__ppoll_chk(
	struct pollfd *p, nfds_t n, const struct timespec *limit, const sigset_t *mask, size_t room)
{
	if (room / sizeof(*p) < n)
		__chk_fail();
	return ppoll(p, n, limit, mask);
}
