/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * How this program notifies the other side of a connection of what it has written, read or ended
 * (karst_sock.h has the rules): in state DIRECT by the far end of the other program's pair (waker),
 * or, where it has none, by a request to the service; in other states by the service.
 */
#include "ks.h"

#include <sys/socket.h>

static bool
is_direct(const struct ks_sock *s)
{
	return atomic_load_explicit(&s->page->state, memory_order_acquire) == KARST_SOCK_DIRECT;
}

void
ks_ask_wake(int fd, uint32_t flags)
{
	struct karst_sock_msg msg = {.op = KARST_SOCK_WAKE, .flags = flags};
	int fds[KARST_SOCK_FDS], err = errno;

	(void)ks_ask(&msg, fd, fds);
	errno = err;
}

void
ks_ask_urgent(int fd)
{
	ks_ask_wake(fd, KARST_SOCK_URGENT_SELF);
}

/* The pair may be full, because there is no room to write.  Then the service is asked by a
 * message. */
void
ks_ring(int fd)
{
	int err = errno;

	if (ks_send_now(fd, "", 1, 0) < 0 && errno == EAGAIN)
		ks_ask_wake(fd, 0);
	errno = err;
}

/* Under both locks: from here on no other thread tells the service what the other program has to
 * know. */
void
ks_meet_peer(int fd, struct ks_sock *s)
{
	struct karst_sock_msg msg = {.op = KARST_SOCK_WAKER};
	int fds[KARST_SOCK_FDS], err = errno;

	if (!ks_is_detached(s) &&
		(__builtin_expect(atomic_load(&s->waker) >= 0 || !is_direct(s), 1) ||
			atomic_load(&s->no_waker)))
		return;
	ks_lock_rx(s);
	ks_lock_tx(s);
	ks_no_cancel();
	if (ks_is_detached(s))
		(void)ks_attach(fd, s);
	if (is_direct(s) && atomic_load(&s->waker) < 0 && !atomic_load(&s->no_waker)) {
		/* an earlier mark may have to be forwarded, which only the service knows */
		if (s->next_waker >= 0 && atomic_load(&s->txd->urgent) == 0) {
			atomic_store(&s->page->met, 1);
			atomic_store(&s->waker, s->next_waker);
			s->next_waker = -1;
		} else if (ks_ask(&msg, fd, fds) == 0 && fds[0] >= 0) {
			atomic_store(&s->waker, ks_hide_own(fds[0]));
		} else {
			atomic_store(&s->no_waker, true); /* then the service wakes it */
		}
	}
	ks_no_cancel_end();
	ks_unlock_page(&s->page->tx_lock);
	ks_unlock_page(&s->page->rx_lock);
	errno = err;
}

void
ks_wrote_urgent(int fd, struct ks_sock *s, uint64_t end)
{
	int waker = atomic_load_explicit(&s->waker, memory_order_relaxed), err = errno;

	/* either the service, which publishes the state and then checks, sees the mark, or this
	 * thread sees what the other program has done */
	atomic_store(&s->page->marked, 1);
	atomic_store(&s->txd->urgent, end);
	if (waker >= 0)
		(void)ks_send_now(waker, "", 1, MSG_OOB);
	else if (is_direct(s))
		ks_ask_wake(fd, KARST_SOCK_URGENT_PEER);
	/* else the service sees the mark together with head */
	errno = err;
}

void
ks_tell_service(int fd, struct ks_sock *s)
{
	if (!is_direct(s))
		ks_ring(fd);
}

void
ks_wrote(int fd, struct ks_sock *s)
{
	int waker = atomic_load_explicit(&s->waker, memory_order_relaxed), err = errno;

	/* because of an urgent mark the reader may have read it before */
	if (atomic_load(&s->txd->tail) ==
			atomic_load_explicit(&s->txd->head, memory_order_relaxed) ||
		!karst_sock_take_wanted(s->txd))
		return;
	if (waker >= 0)
		(void)ks_send_now(waker, "", 1, 0);
	else if (is_direct(s))
		ks_ask_wake(fd, KARST_SOCK_WAKE_PEER);
	else
		ks_ring(fd);
	errno = err;
}

static void
empty_peer(int fd, struct ks_sock *s)
{
	int waker = atomic_load_explicit(&s->waker, memory_order_relaxed), err = errno;
	char buf[KARST_SOCK_STOP];

	if (waker < 0)
		ks_ask_wake(fd, KARST_SOCK_EMPTY_PEER);
	for (int i = 0; waker >= 0 && i < KARST_SOCK_EMPTIES; i++)
		if (ks_recv_now(waker, buf, sizeof(buf), 0) != sizeof(buf))
			break;
	errno = err;
}

/* Notifies the service when there is enough room for a message to the peer. */
static void
tell_service(int fd, struct ks_sock *s, uint64_t tail)
{
	struct karst_sock_page *p = s->page;

	if (tail - atomic_load_explicit(&p->rx_told, memory_order_relaxed) < s->buffer / 4 &&
		(atomic_load(&p->flags) & KARST_SOCK_PEER_BLOCKED) == 0)
		return;
	atomic_store_explicit(&p->rx_told, tail, memory_order_relaxed);
	ks_ring(fd);
}

void
ks_read(int fd, struct ks_sock *s, uint64_t tail)
{
	if (!is_direct(s)) {
		tell_service(fd, s, tail);
		return;
	}
	/* not for each byte: only if half of the ring is free */
	if (ks_written(fd, s) - tail <= s->buffer / 2 && karst_sock_take_blocked(s->rxd))
		empty_peer(fd, s);
}

void
ks_end(int fd, struct ks_sock *s)
{
	ks_meet_peer(fd, s);
	ks_lock_tx(s);
	atomic_fetch_or(&s->page->shut, KARST_SOCK_SHUT_WR);
	/* a thread that waits for room has to be woken; a thread that comes later sees it */
	if (atomic_load(&s->txd->blocked) != 0)
		ks_ask_wake(fd, KARST_SOCK_EMPTY_SELF);
	if (is_direct(s)) {
		int waker = atomic_load(&s->waker);

		atomic_store(&s->txd->ended, 1);
		if (waker >= 0)
			(void)real(shutdown)(waker, SHUT_WR);
		else
			ks_ask_wake(fd, KARST_SOCK_END_PEER);
	} else {
		/* the program's end of the pair stays open, to notify the service later */
		ks_ring(fd);
	}
	ks_unlock_page(&s->page->tx_lock);
}

/* The kernel knows that the other program has closed before the service does, but only the service
 * knows whether that was a reset.  If this program has no waker, it could not ask the service
 * either, or the other program had gone before. */
void
ks_notice_close(int fd, struct ks_sock *s)
{
	struct pollfd p;
	int err = errno;

	if (ks_is_detached(s))
		ks_meet_peer(fd, s);
	p = (struct pollfd){.fd = atomic_load_explicit(&s->waker, memory_order_relaxed)};
	/* first: a process that closes after this sets left again */
	if (p.fd >= 0 &&
		(atomic_fetch_and(&s->txd->left, ~KARST_SOCK_LEFT_CLOSED) &
			KARST_SOCK_LEFT_CLOSED) != 0 &&
		ks_poll_now(&p) > 0 && (p.revents & POLLHUP))
		ks_ask_wake(fd, KARST_SOCK_LOOK_PEER);
	errno = err;
}

void
ks_notice_shut(int fd, struct ks_sock *s)
{
	if ((atomic_fetch_and(&s->txd->left, ~KARST_SOCK_LEFT_SHUT) & KARST_SOCK_LEFT_SHUT) != 0)
		ks_ask_wake(fd, KARST_SOCK_LATE_PEER);
}
