/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Who waits for readiness waits in the kernel, for the pair.  All that is to be done before is that
 * the connection knows it, and has a token in the pair while there is something to read.  That
 * holds for all who wait from then on, with any call, in any process.
 */
#include "ks.h"

#include <poll.h>
#include <signal.h>
#include <sys/select.h>

static void
watch(int fd)
{
	if (ks_kind(fd) == KS_TRIES)
		ks_settle(fd);
	if (ks_kind(fd) == KS_SMC)
		ks_watch(fd);
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

static void
watch_polled(const struct pollfd *p, nfds_t n)
{
	int err = errno;

	for (nfds_t i = 0; i < n; i++)
		if (ks_kind(p[i].fd) != KS_PLAIN)
			watch(p[i].fd);
	errno = err;
}

static void
watch_selected(int n, const fd_set *r, const fd_set *w)
{
	int err = errno;

	for (int fd = 0; fd < n && fd < FD_SETSIZE; fd++)
		if (ks_kind(fd) != KS_PLAIN &&
			((r != NULL && FD_ISSET(fd, r)) || (w != NULL && FD_ISSET(fd, w))))
			watch(fd);
	errno = err;
}

KS_API int
poll(struct pollfd *p, nfds_t n, int ms)
{
	watch_polled(p, n);
	return real(poll)(p, n, ms);
}

KS_API int
ppoll(struct pollfd *p, nfds_t n, const struct timespec *limit, const sigset_t *mask)
{
	watch_polled(p, n);
	return real(ppoll)(p, n, limit, mask);
}

KS_API int
select(int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *limit)
{
	watch_selected(n, r, w);
	return real(select)(n, r, w, e, limit);
}

KS_API int
pselect(int n, fd_set *r, fd_set *w, fd_set *e, const struct timespec *limit, const sigset_t *mask)
{
	watch_selected(n, r, w);
	return real(pselect)(n, r, w, e, limit, mask);
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
