/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Cancellation of threads (pthread_cancel()).  Most calls of the C library that this library uses
 * are cancellation points: a thread that is to be cancelled ends there.  A thread that holds a lock
 * would leave it locked, for other threads and for its own cleanup handlers; any thread would leave
 * descriptors and memory behind.  So the calls that this library makes are of three kinds:
 *
 *   ks_enter_cancelled()  at the beginning of the program's call, where nothing has been done
 *   ks_*_with()           where a thread waits: a cancelled thread gives its reference back
 *                         (for bytes to read: sleep.c)
 *   all others            are made after ks_no_cancel(), which each mutex implies
 *
 * Locks of a page (lock.c) do not imply it, because they are taken for each read and write; the
 * calls that are made with them are ks_*_now().
 *
 * With the asynchronous type a thread may be cancelled at any instruction.  POSIX allows such a
 * thread no call on a socket, but others that come here, and some programs read with it.  While
 * such a thread holds a lock, its type is the deferred one (ks_hold()).
 */
#include "ks.h"

#include <pthread.h>
#include <unistd.h>

/* No handler sees the thread's state and no_cancel differ. */
static void
begin_no_cancel(uint32_t calls)
{
	int before = PTHREAD_CANCEL_ENABLE;

	ks_hold();
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	ks_held.cancel_state = before;
	ks_held.no_cancel = calls;
	ks_release();
}

void
ks_no_cancel(void)
{
	if (ks_held.no_cancel != 0)
		ks_held.no_cancel++;
	else
		begin_no_cancel(1);
}

void
ks_no_cancel_end(void)
{
	if (ks_held.no_cancel > 1) {
		ks_held.no_cancel--;
		return;
	}
	ks_hold();
	ks_held.no_cancel = 0;
	pthread_setcancelstate(ks_held.cancel_state, NULL);
	ks_release();
}

uint32_t
ks_no_cancel_leave(void)
{
	uint32_t calls = ks_held.no_cancel;

	if (calls != 0) {
		ks_held.no_cancel = 1;
		ks_no_cancel_end();
	}
	return calls;
}

void
ks_no_cancel_return(uint32_t calls)
{
	if (calls != 0)
		begin_no_cancel(calls);
}

/* --- the asynchronous type --- */

void
ks_defer(void)
{
	(void)real(pthread_setcanceltype)(PTHREAD_CANCEL_DEFERRED, NULL);
}

void
ks_defer_end(void)
{
	(void)real(pthread_setcanceltype)(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
}

/* The type is not always the program's: the C library (glibc up to 2.40) sets the asynchronous one
 * while a thread waits in the kernel, and the signal may have come between a change of the type and
 * that of ks_held.depth. */
int
ks_defer_leave(void)
{
	int wanted = ks_held.async ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED, type;

	if (real(pthread_setcanceltype)(wanted, &type) != 0 || type == wanted)
		return -1;
	return type;
}

/* If nothing was changed, the type is what the handler may have set.  Otherwise the code that was
 * interrupted sets the program's. */
void
ks_defer_return(int type)
{
	if (type >= 0)
		(void)real(pthread_setcanceltype)(type, NULL);
}

/* What is recorded may say asynchronous while the type is not, but not the opposite. */
KS_API int
pthread_setcanceltype(int type, int *old)
{
	bool before = ks_held.async;
	int rc;

	if (type == PTHREAD_CANCEL_ASYNCHRONOUS)
		ks_held.async = true;
	rc = real(pthread_setcanceltype)(type, old);
	if (rc == 0)
		ks_held.async = type == PTHREAD_CANCEL_ASYNCHRONOUS;
	else
		ks_held.async = before;
	return rc;
}

/* --- calls that do not wait --- */

/* Not interrupted by a handler either, which may leave by longjmp(). */
ssize_t
ks_send_now(int fd, const void *buf, size_t n, int flags)
{
	ssize_t rc;

	ks_hold();
	ks_no_cancel();
	rc = real(send)(fd, buf, n, flags | MSG_DONTWAIT | MSG_NOSIGNAL);
	ks_no_cancel_end();
	ks_release();
	return rc;
}

ssize_t
ks_recv_now(int fd, void *buf, size_t n, int flags)
{
	ssize_t rc;

	ks_hold();
	ks_no_cancel();
	rc = real(recv)(fd, buf, n, flags | MSG_DONTWAIT);
	ks_no_cancel_end();
	ks_release();
	return rc;
}

int
ks_poll_now(struct pollfd *p)
{
	int rc;

	ks_hold();
	ks_no_cancel();
	rc = real(poll)(p, 1, 0);
	ks_no_cancel_end();
	ks_release();
	return rc;
}

/* --- calls that wait --- */

static void
cancel_give_back(void *arg)
{
	struct ks_sock **at = arg, *s = *at;

	*at = NULL;
	if (s != NULL)
		ks_put_left(s);
}

int
ks_poll_with(struct ks_sock *s, struct pollfd *p, nfds_t n, int ms)
{
	struct _pthread_cleanup_buffer left;
	int rc;

	_pthread_cleanup_push(&left, cancel_give_back, &s);
	rc = real(poll)(p, n, ms);
	_pthread_cleanup_pop(&left, 0);
	return rc;
}

ssize_t
ks_send_with(struct ks_sock *s, int fd, int flags)
{
	struct _pthread_cleanup_buffer left;
	ssize_t n;

	_pthread_cleanup_push(&left, cancel_give_back, &s);
	n = real(send)(fd, "", 1, MSG_NOSIGNAL | flags);
	_pthread_cleanup_pop(&left, 0);
	return n;
}

ssize_t
ks_pread_with(struct ks_sock *s, int fd, void *buf, size_t n, off64_t at)
{
	struct _pthread_cleanup_buffer left;
	ssize_t got;

	_pthread_cleanup_push(&left, cancel_give_back, &s);
	got = pread64(fd, buf, n, at);
	_pthread_cleanup_pop(&left, 0);
	return got;
}

ssize_t
ks_read_with(struct ks_sock *s, int fd, void *buf, size_t n)
{
	struct _pthread_cleanup_buffer left;
	ssize_t got;

	_pthread_cleanup_push(&left, cancel_give_back, &s);
	got = real(read)(fd, buf, n);
	_pthread_cleanup_pop(&left, 0);
	return got;
}
