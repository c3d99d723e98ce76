/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Who waits for readiness waits in the kernel, for the pair.  All that is to be done before is that
 * the connection knows it, and has a token in the pair while there is something to read.  That
 * holds for all who wait from then on, with any call, in any process.  Afterwards there is urgent
 * data to be told from data, which the pair cannot.
 */
#include "ks.h"

#include <poll.h>
#include <signal.h>
#include <sys/select.h>

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

/* This one and its like: @return whether handlers of signals have run meanwhile.
 * Not const: glibc declares what poll() gets as written only, and gcc would warn of it. */
static bool
watch_polled(struct pollfd *p, nfds_t n)
{
	uint32_t before = ks_held.handled;
	int err = errno;

	for (nfds_t i = 0; i < n; i++)
		if (ks_kind(p[i].fd) != KS_PLAIN)
			watch(p[i].fd, (p[i].events & POLLPRI) != 0);
	errno = err;
	return ks_held.handled != before;
}

/* What says that there is urgent data is a byte in the pair, but none to be read. */
static bool
is_alone(int fd)
{
	struct ks_sock *s = ks_get(fd);
	bool alone = s != NULL && ks_urgent_alone(fd, s);

	if (s != NULL)
		ks_put(s);
	return alone;
}

static int
polled(struct pollfd *p, nfds_t n, int rc)
{
	for (nfds_t i = 0; rc > 0 && i < n; i++)
		if ((p[i].revents & (POLLIN | POLLPRI | POLLHUP)) == (POLLIN | POLLPRI) &&
			ks_kind(p[i].fd) == KS_SMC && is_alone(p[i].fd))
			p[i].revents &= ~(POLLIN | POLLRDNORM);
	return rc;
}

static int
selected(int n, fd_set *r, const fd_set *e, int rc)
{
	if (r == NULL || e == NULL)
		return rc;
	for (int fd = 0; rc > 0 && fd < n && fd < FD_SETSIZE; fd++)
		if (FD_ISSET(fd, e) && FD_ISSET(fd, r) && ks_kind(fd) == KS_SMC && is_alone(fd)) {
			FD_CLR(fd, r);
			rc--; /* it is in the other set */
		}
	return rc;
}

static bool
is_in(int fd, const fd_set *set)
{
	return set != NULL && FD_ISSET(fd, set);
}

static bool
watch_selected(int n, const fd_set *r, const fd_set *w, const fd_set *e)
{
	uint32_t before = ks_held.handled;
	int err = errno;

	for (int fd = 0; fd < n && fd < FD_SETSIZE; fd++)
		if (ks_kind(fd) != KS_PLAIN && (is_in(fd, r) || is_in(fd, w) || is_in(fd, e)))
			watch(fd, is_in(fd, e));
	errno = err;
	return ks_held.handled != before;
}

/* A handler that has run while connections were looked at, before the call waits, would have ended
 * the wait.  So then it does not wait, and this is what becomes of its result. */
static int
ended(bool handled, int rc)
{
	if (!handled || rc != 0)
		return rc;
	errno = EINTR;
	return -1;
}

KS_API int
poll(struct pollfd *p, nfds_t n, int ms)
{
	bool handled = watch_polled(p, n);

	return polled(p, n, ended(handled, real(poll)(p, n, handled ? 0 : ms)));
}

KS_API int
ppoll(struct pollfd *p, nfds_t n, const struct timespec *limit, const sigset_t *mask)
{
	const struct timespec none = {0};
	bool handled = watch_polled(p, n);

	return polled(p, n, ended(handled, real(ppoll)(p, n, handled ? &none : limit, mask)));
}

KS_API int
select(int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *limit)
{
	struct timeval none = {0};
	bool handled = watch_selected(n, r, w, e);
	int rc = real(select)(n, r, w, e, handled ? &none : limit);

	return selected(n, r, e, ended(handled, rc));
}

KS_API int
pselect(int n, fd_set *r, fd_set *w, fd_set *e, const struct timespec *limit, const sigset_t *mask)
{
	const struct timespec none = {0};
	bool handled = watch_selected(n, r, w, e);
	int rc = real(pselect)(n, r, w, e, handled ? &none : limit, mask);

	return selected(n, r, e, ended(handled, rc));
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
