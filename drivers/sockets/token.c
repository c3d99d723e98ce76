/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What is in the pair of a connection, so that poll() reports correctly: tokens while there is
 * something to read, and bytes that leave no room while the ring has none (karst_sock.h has the
 * rules).
 *
 * Each time wanted is cleared, a token is sent, so the number of tokens is known without a
 * check of the pair: pending counts those that have come or are under way, and armed says that
 * wanted was set and may have been cleared since.  A watched connection has a token when there is
 * something to read, and none when there is nothing:
 *
 *   its ring has become empty   wanted is set; if still nothing has come, the tokens are taken
 *                               out.  Bytes that arrive in between cause another token, and
 *                               one is left.
 *   it is not empty             a token is pending, or is requested
 *
 * A thread that is going to sleep sets wanted as well.  Several threads may sleep: while others do,
 * a thread that leaves bytes in the ring, or leaves it empty, acts as if the connection was
 * watched.  A token is taken out under the lock, and only when no other thread needs it: if the
 * thread is killed after it was woken, the token is still there.
 */
#include "ks.h"

#include <sched.h>
#include <sys/socket.h>

#define YIELDS 1000 /* limit of yields while a token is on its way */

/* Counts a token if wanted was cleared. */
void
ks_look_at_wanted(struct ks_sock *s)
{
	if (s->page->armed && atomic_load(&s->rxd->wanted) == 0) {
		s->page->armed = 0;
		s->page->pending++;
	}
}

/* Requests a token while there are no rings.  False: there are rings by now. */
static bool
want_early(struct ks_sock *s)
{
	uint32_t early = atomic_load(&s->page->early);

	do {
		if (early & KARST_SOCK_EARLY_CLOSED)
			return false;
	} while (!atomic_compare_exchange_weak(
		&s->page->early, &early, early | KARST_SOCK_EARLY_WANTED));
	return true;
}

void
ks_arm(int fd, struct ks_sock *s)
{
	ks_look_at_wanted(s);
	if (!s->page->armed) {
		s->page->armed = 1;
		atomic_store(&s->rxd->wanted, 1);
	}
	if (!atomic_load(&s->attached) && !want_early(s))
		ks_attach_rx(fd, s);
	/* pairs with karst_sock_take_wanted(): the writer sees wanted, or this thread sees what it
	 * wrote */
	atomic_thread_fence(memory_order_seq_cst);
}

/* The caller no longer needs a notification. */
void
ks_disarm(struct ks_sock *s)
{
	if (s->page->armed && atomic_exchange(&s->rxd->wanted, 0) == 0)
		s->page->pending++;
	s->page->armed = 0;
}

/* Takes up to @n tokens out of the pair. */
ssize_t
ks_take_tokens(int fd, struct ks_sock *s, size_t n)
{
	char buf[64];
	ssize_t got = ks_recv_now(fd, buf, n < sizeof(buf) ? n : sizeof(buf), 0);

	ks_look_at_wanted(s);
	if (got > 0)
		s->page->pending -=
			(uint32_t)got < s->page->pending ? (uint32_t)got : s->page->pending;
	return got;
}

void
ks_mark_filled(int fd, struct ks_sock *s)
{
	ks_look_at_wanted(s);
	if (s->page->pending != 0)
		return;
	ks_disarm(s);
	if (s->page->pending == 0) {
		s->page->pending = 1;
		ks_ask_wake(fd, KARST_SOCK_WAKE_SELF);
	}
}

/*
 * Takes @n tokens, and no more: a new one that is needed may have come.  A writer may not have sent
 * its token yet.  The function waits for it, because otherwise poll() would report it while the
 * ring is empty.  If it does not come in time, a later call that does not wait finds no bytes and
 * takes the token.
 */
static void
take_old(int fd, struct ks_sock *s, uint32_t n)
{
	for (int i = 0; n != 0 && i < YIELDS; i++) {
		ssize_t got = ks_take_tokens(fd, s, n);

		if (got > 0)
			n -= (uint32_t)got;
		else if (got == 0 || errno != EAGAIN)
			return;
		else
			sched_yield();
	}
}

void
ks_mark_empty(int fd, struct ks_sock *s)
{
	int err = errno;
	uint32_t old;

	ks_arm(fd, s);
	old = s->page->pending;
	if (ks_has_bytes(fd, s))
		ks_mark_filled(fd, s);
	else if (atomic_load_explicit(&s->page->hole, memory_order_relaxed) == 0)
		take_old(fd, s, old); /* else they may be after an urgent byte, which stays */
	errno = err;
}

/* A stray token belongs to bytes that were read since, or was sent without cause. */
bool
ks_is_stray(int fd, struct ks_sock *s)
{
	int err = errno;
	bool stray = false;
	uint64_t tail;
	char byte;
	ssize_t n;

	if (ks_has_bytes(fd, s) || ks_has_ended(s) || ks_is_detached(s))
		return false;
	ks_enter_rx(fd, s);
	(void)ks_look(fd, s, &tail);
	if (s->page->urgent != KARST_SOCK_URGENT_VALID && !ks_has_bytes(fd, s) &&
		!ks_has_ended(s)) {
		/* the pair reports the end before the service knows of it */
		n = ks_recv_now(fd, &byte, 1, MSG_PEEK);
		stray = n > 0 || (n < 0 && errno == EAGAIN);
		if (n > 0) {
			ks_arm(fd, s);
			if (!ks_has_bytes(fd, s))
				(void)ks_take_tokens(fd, s, SIZE_MAX);
			if (ks_has_bytes(fd, s)) {
				ks_mark_filled(fd, s);
				stray = false;
			}
		}
	}
	ks_unlock_page(&s->page->rx_lock);
	errno = err;
	return stray;
}

/* --- no room --- */

/* Makes the pair as small as possible, so that few bytes fill it.  Most short streams never fill
 * the ring; they avoid this call. */
static void
make_small(int fd, struct ks_sock *s)
{
	const int room = KARST_SOCK_SNDBUF;

	if (!s->small)
		s->small = real(setsockopt)(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)) == 0;
}

void
ks_mark_full(int fd, struct ks_sock *s)
{
	static const char bytes[KARST_SOCK_STOP];
	int err = errno;

	if (atomic_load(&s->txd->blocked) != 0 && !s->page->strays)
		return; /* already marked */
	atomic_store(&s->txd->blocked, 1);
	atomic_thread_fence(memory_order_seq_cst); /* as in ks_arm() */
	if (!ks_is_full(s)) {
		if (!s->page->strays)
			(void)atomic_exchange(&s->txd->blocked, 0);
		return;
	}
	s->page->strays = 0;
	/* when the other program has closed, the service sets the flags and then reads this; this
	 * thread checks the flags below */
	atomic_store(&s->page->filled, 1);
	make_small(fd, s);
	(void)ks_send_now(fd, bytes, sizeof(bytes), 0);
	/* it was emptied before it was full, or no other process will empty it */
	if (atomic_load(&s->txd->blocked) == 0 ||
		(atomic_load(&s->page->flags) & KARST_SOCK_NO_SEND) != 0 ||
		(atomic_load(&s->page->shut) & KARST_SOCK_SHUT_WR) != 0)
		ks_ask_wake(fd, KARST_SOCK_EMPTY_SELF);
	errno = err;
}

/* --- both --- */

void
ks_watch(int fd)
{
	struct ks_sock *s = ks_get(fd);

	if (s == NULL)
		return;
	ks_meet_peer(fd, s);
	if (atomic_load(&s->page->watched) == 0 && atomic_exchange(&s->page->watched, 1) == 0) {
		ks_enter_rx(fd, s);
		if (ks_has_bytes(fd, s))
			ks_mark_filled(fd, s);
		else
			ks_mark_empty(fd, s);
		ks_unlock_page(&s->page->rx_lock);
		ks_lock_tx(s);
		if (ks_is_full(s))
			ks_mark_full(fd, s);
		ks_unlock_page(&s->page->tx_lock);
	}
	ks_put(s);
}
