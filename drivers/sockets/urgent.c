/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Urgent data, as with TCP.  One byte of the stream is marked: the last byte that was sent as
 * urgent.
 *
 *   NONE     there is no mark
 *   VALID    reading stops before the byte; MSG_OOB gets it
 *   READ     MSG_OOB has got the byte; reading still stops there
 *   PASSED   as READ, and nothing is left before the byte: its room in the ring is free already,
 *            because the peer may wait for that, but the program is at the mark (SIOCATMARK)
 *            until it reads on
 *
 * A read that continues at the mark skips the byte, unless it is in line (SO_OOBINLINE).
 *
 * The writer publishes the mark, sends an urgent byte into the pair, which causes SIGURG and
 * POLLPRI, and then moves head.  With that byte a mark counts as head does (ks_written()).  So a
 * reader that is notified of it finds the byte of the stream, however long head takes; and a reader
 * that is notified by head finds the byte in the pair, and takes it out when the mark is not VALID
 * any more.  As any byte in the pair, it also causes POLLIN: poll() and select() correct this when
 * they return, epoll cannot.
 *
 * No read passes a mark before the handler of SIGURG, which has come by then, could take the byte:
 * the read that first finds the mark lets the handler run (ks_release()), and is interrupted if the
 * handler ends calls.
 */
#include "ks.h"

#include <fcntl.h>
#include <pthread.h>

#define TAKES 64 /* reads of the pair; each ends before an urgent byte */

static bool
urgent_is_inline(const struct ks_sock *s)
{
	return atomic_load_explicit(&s->page->oob_inline, memory_order_relaxed) != 0;
}

static uint64_t
tail_of(const struct ks_sock *s)
{
	return atomic_load_explicit(&s->page->rx_tail, memory_order_relaxed);
}

static bool
is_marked(const struct karst_sock_page *p)
{
	return p->urgent == KARST_SOCK_URGENT_VALID || p->urgent == KARST_SOCK_URGENT_READ;
}

/* Updates hole: the urgent byte alone, which poll() need not report. */
static void
note_hole(struct ks_sock *s)
{
	struct karst_sock_page *p = s->page;

	atomic_store(&p->hole,
		p->urgent == KARST_SOCK_URGENT_VALID && !urgent_is_inline(s) &&
			tail_of(s) == p->urgent_end - 1);
}

static void
skip_byte(struct ks_sock *s)
{
	uint64_t tail = tail_of(s) + 1;

	atomic_store_explicit(&s->page->rx_tail, tail, memory_order_relaxed);
	atomic_store_explicit(&s->rxd->tail, tail, memory_order_release);
}

void
ks_urgent_look(struct ks_sock *s, uint64_t *tail, uint64_t *there)
{
	struct karst_sock_page *p = s->page;
	uint64_t end = atomic_load_explicit(&s->rxd->urgent, memory_order_acquire);

	if (__builtin_expect(end <= p->urgent_end, 1) || end > *tail + *there || end <= *tail)
		return;
	if (is_marked(p) && *tail == p->urgent_end - 1 && !urgent_is_inline(s)) {
		skip_byte(s); /* at the place of the earlier mark: its byte is not read as data */
		(*tail)++;
		(*there)--;
	}
	p->urgent_end = end;
	p->urgent = KARST_SOCK_URGENT_VALID;
	note_hole(s);
}

uint64_t
ks_urgent_limit(struct ks_sock *s, uint64_t tail, uint64_t there, bool peek, uint64_t *hole)
{
	struct karst_sock_page *p = s->page;
	uint64_t before = p->urgent_end - 1 - tail;

	*hole = 0;
	if (p->urgent == KARST_SOCK_URGENT_PASSED && !peek)
		p->urgent = KARST_SOCK_URGENT_NONE;
	if (!is_marked(p) || there == 0) /* there are bytes, unless the page has invalid values */
		return there;
	if (before != 0)
		return karst_min_u64(before, there);
	if (urgent_is_inline(s))
		return there;
	*hole = 1;
	return there - 1;
}

bool
ks_urgent_here(const struct ks_sock *s)
{
	const struct karst_sock_page *p = s->page;

	return p->urgent == KARST_SOCK_URGENT_PASSED ||
		(is_marked(p) && tail_of(s) == p->urgent_end - 1);
}

/* Takes out the byte that causes POLLPRI, and all tokens around it; a waiter that needs a token
 * gets a new one. */
static void
take_out(int fd, struct ks_sock *s)
{
	int err = errno;

	for (int i = 0; i < TAKES && ks_take_tokens(fd, s, SIZE_MAX) > 0; i++)
		continue;
	ks_mark(fd, s);
	errno = err;
}

void
ks_urgent_restore(int fd, struct ks_sock *s)
{
	if (s->page->urgent == KARST_SOCK_URGENT_VALID && !ks_urgent_came(fd))
		ks_ask_urgent(fd);
}

void
ks_urgent_watch(int fd)
{
	struct ks_sock *s = ks_get(fd);
	uint64_t tail;

	if (s == NULL)
		return;
	ks_enter_rx(fd, s);
	(void)ks_look(fd, s, &tail);
	ks_urgent_restore(fd, s);
	ks_unlock_page(&s->page->rx_lock);
	ks_put(s);
}

void
ks_urgent_moved(int fd, struct ks_sock *s)
{
	struct karst_sock_page *p = s->page;
	uint32_t before = p->urgent;

	if (!is_marked(p))
		return;
	if (tail_of(s) >= p->urgent_end) {
		p->urgent = KARST_SOCK_URGENT_NONE;
	} else if (before == KARST_SOCK_URGENT_READ && tail_of(s) == p->urgent_end - 1 &&
		!urgent_is_inline(s)) {
		p->urgent = KARST_SOCK_URGENT_PASSED;
		skip_byte(s);
	}
	note_hole(s);
	if (is_marked(p))
		return;
	ks_tell_service(fd, s); /* its peer sends nothing after an urgent byte until then */
	if (before == KARST_SOCK_URGENT_VALID)
		take_out(fd, s);
}

/* --- MSG_OOB --- */

/* Under rx_lock. */
static ssize_t
read_urgent(int fd, struct ks_sock *s, uint8_t *to, int flags)
{
	struct karst_sock_page *p = s->page;
	uint64_t tail;

	(void)ks_look(fd, s, &tail);
	if (urgent_is_inline(s) || p->urgent != KARST_SOCK_URGENT_VALID ||
		!atomic_load(&s->attached))
		return -EINVAL;
	karst_sock_copy_out(to, s->rx, s->buffer, p->urgent_end - 1 + s->rx_shift, 1);
	if (flags & MSG_PEEK)
		return 1;
	p->urgent = KARST_SOCK_URGENT_READ;
	note_hole(s);
	ks_urgent_moved(fd, s);
	take_out(fd, s);
	return 1;
}

ssize_t
ks_recv_urgent(int fd, struct ks_sock *s, const struct iovec *iov, int n, int flags)
{
	uint8_t byte;
	ssize_t rc;

	ks_enter_rx(fd, s);
	rc = read_urgent(fd, s, &byte, flags);
	ks_unlock_page(&s->page->rx_lock);
	if (rc < 0) {
		errno = (int)-rc;
		return -1;
	}
	while (n > 0 && iov->iov_len == 0) {
		iov++;
		n--;
	}
	if (n == 0)
		return 0;
	if ((flags & MSG_TRUNC) == 0)
		memcpy(iov->iov_base, &byte, 1);
	return 1;
}

/* --- what is asked --- */

bool
ks_urgent_at_mark(int fd, struct ks_sock *s)
{
	uint64_t tail;
	bool here;

	ks_enter_rx(fd, s);
	(void)ks_look(fd, s, &tail);
	here = ks_urgent_here(s);
	ks_unlock_page(&s->page->rx_lock);
	return here;
}

uint64_t
ks_urgent_inq(int fd, struct ks_sock *s)
{
	struct karst_sock_page *p = s->page;
	uint64_t tail, n;

	ks_enter_rx(fd, s);
	n = ks_look(fd, s, &tail);
	if (is_marked(p) && !urgent_is_inline(s))
		n = p->urgent_end - 1 - tail;
	else if (p->urgent == KARST_SOCK_URGENT_PASSED && !urgent_is_inline(s))
		n = 0; /* as with TCP, which counts up to the mark */
	ks_unlock_page(&p->rx_lock);
	return n;
}

bool
ks_urgent_alone(int fd, struct ks_sock *s)
{
	uint64_t tail;
	bool alone;

	ks_enter_rx(fd, s);
	(void)ks_look(fd, s, &tail);
	alone = atomic_load(&s->page->hole) != 0 && !ks_has_bytes(fd, s) && !ks_has_ended(s);
	ks_unlock_page(&s->page->rx_lock);
	return alone;
}

void
ks_urgent_inline(struct ks_sock *s, bool on)
{
	ks_lock_rx(s);
	atomic_store(&s->page->oob_inline, on);
	note_hole(s);
	ks_unlock_page(&s->page->rx_lock);
}
