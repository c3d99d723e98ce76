/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * How the two sides of a ring wake each other (karst_sock.h has the rules).
 *
 * Tokens.  Each time wanted is cleared, a token is sent, so the number of tokens is known without a
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
 *
 * Before a thread sleeps, it polls for up to page.poll_us, as long as polling is successful.
 */
#include "ks.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define LOOKS      64   /* polls between two reads of the clock */
#define YIELDS     1000 /* limit of yields while a token is on its way */
#define SKIP_SHIFT 10   /* at most 2^this waits without polling */

void
ks_lock(pthread_mutex_t *lock)
{
	ks_hold();
	ks_no_cancel();
	pthread_mutex_lock(lock);
}

void
ks_unlock(pthread_mutex_t *lock)
{
	pthread_mutex_unlock(lock);
	ks_unlocked();
}

void
ks_unlocked(void)
{
	ks_no_cancel_end();
	ks_release();
}

/* Under rx_lock. */
static void
attach_rx(int fd, struct ks_sock *s)
{
	ks_lock_tx(s);
	(void)ks_attach(fd, s);
	ks_unlock_page(&s->page->tx_lock);
}

/* If the previous owner has died, the state of tokens is unknown, so there may be one token too
 * many. */
void
ks_lock_rx(struct ks_sock *s)
{
	struct karst_sock_page *p = s->page;

	if (ks_lock_page(&p->rx_lock)) {
		p->armed = p->pending = 0;
		p->sleepers = 1; /* to make ks_sleeps() count them */
		(void)ks_sleeps(s);
	}
}

void
ks_lock_tx(struct ks_sock *s)
{
	(void)ks_lock_page(&s->page->tx_lock);
}

void
ks_enter_rx(int fd, struct ks_sock *s)
{
	ks_lock_rx(s);
	if (ks_is_detached(s))
		attach_rx(fd, s);
}

static bool
is_direct(const struct ks_sock *s)
{
	return atomic_load_explicit(&s->page->state, memory_order_acquire) == KARST_SOCK_DIRECT;
}

/* poll() reports the byte before the kernel has sent its signal, in the middle of a call.  recv()
 * waits for that call to end. */
bool
ks_urgent_came(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLPRI};
	int err = errno;
	bool has = ks_poll_now(&p) > 0 && (p.revents & POLLPRI) != 0;
	char byte;

	if (has)
		(void)ks_recv_now(fd, &byte, 1, MSG_PEEK);
	errno = err;
	return has;
}

uint64_t
ks_written(int fd, const struct ks_sock *s)
{
	uint64_t head, urgent;

	/* ignore what another process may have put into the page in place of rings */
	if (__builtin_expect(!atomic_load_explicit(&s->attached, memory_order_acquire), 0))
		return atomic_load_explicit(&s->page->rx_tail, memory_order_relaxed);
	head = atomic_load_explicit(&s->rxd->head, memory_order_acquire);
	urgent = atomic_load_explicit(&s->rxd->urgent, memory_order_acquire);
	if (__builtin_expect(!karst_sock_is_ahead(urgent, head, s->buffer), 1))
		return head;
	/* do not check again whether it has come: it may have been taken */
	return urgent == atomic_load_explicit(&s->page->urgent_end, memory_order_relaxed) ||
			ks_urgent_came(fd)
		? urgent
		: head;
}

bool
ks_has_bytes(int fd, const struct ks_sock *s)
{
	return ks_written(fd, s) !=
		atomic_load_explicit(&s->page->rx_tail, memory_order_relaxed) +
		atomic_load_explicit(&s->page->hole, memory_order_relaxed);
}

static bool
is_full(const struct ks_sock *s)
{
	return atomic_load_explicit(&s->page->tx_head, memory_order_relaxed) -
		atomic_load_explicit(&s->txd->tail, memory_order_acquire) >=
		s->buffer;
}

size_t
ks_room(const struct ks_sock *s)
{
	uint64_t used = atomic_load_explicit(&s->page->tx_head, memory_order_relaxed) -
		atomic_load_explicit(&s->txd->tail, memory_order_acquire);

	return used < s->buffer ? s->buffer - (size_t)used : 0;
}

/* --- the other side --- */

static void
ask_wake(int fd, uint32_t flags)
{
	struct karst_sock_msg msg = {.op = KARST_SOCK_WAKE, .flags = flags};
	int fds[KARST_SOCK_FDS], err = errno;

	(void)ks_ask(&msg, fd, fds);
	errno = err;
}

/* The pair may be full, because there is no room to write.  Then the service is asked by a
 * message. */
void
ks_ring(int fd)
{
	int err = errno;

	if (ks_send_now(fd, "", 1, 0) < 0 && errno == EAGAIN)
		ask_wake(fd, 0);
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
		ask_wake(fd, KARST_SOCK_URGENT_PEER);
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
		ask_wake(fd, KARST_SOCK_WAKE_PEER);
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
		ask_wake(fd, KARST_SOCK_EMPTY_PEER);
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
		ask_wake(fd, KARST_SOCK_EMPTY_SELF);
	if (is_direct(s)) {
		int waker = atomic_load(&s->waker);

		atomic_store(&s->txd->ended, 1);
		if (waker >= 0)
			(void)real(shutdown)(waker, SHUT_WR);
		else
			ask_wake(fd, KARST_SOCK_END_PEER);
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
		ask_wake(fd, KARST_SOCK_LOOK_PEER);
	errno = err;
}

void
ks_notice_shut(int fd, struct ks_sock *s)
{
	if ((atomic_fetch_and(&s->txd->left, ~KARST_SOCK_LEFT_SHUT) & KARST_SOCK_LEFT_SHUT) != 0)
		ask_wake(fd, KARST_SOCK_LATE_PEER);
}

/* --- tokens --- */

/* Counts a token if wanted was cleared. */
static void
look_at_wanted(struct ks_sock *s)
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

static void
arm(int fd, struct ks_sock *s)
{
	look_at_wanted(s);
	if (!s->page->armed) {
		s->page->armed = 1;
		atomic_store(&s->rxd->wanted, 1);
	}
	if (!atomic_load(&s->attached) && !want_early(s))
		attach_rx(fd, s);
	/* pairs with karst_sock_take_wanted(): the writer sees wanted, or this thread sees what it
	 * wrote */
	atomic_thread_fence(memory_order_seq_cst);
}

/* The caller no longer needs a notification. */
static void
disarm(struct ks_sock *s)
{
	if (s->page->armed && atomic_exchange(&s->rxd->wanted, 0) == 0)
		s->page->pending++;
	s->page->armed = 0;
}

/* Takes up to @n tokens out of the pair. */
static ssize_t
take_tokens(int fd, struct ks_sock *s, size_t n)
{
	char buf[64];
	ssize_t got = ks_recv_now(fd, buf, n < sizeof(buf) ? n : sizeof(buf), 0);

	look_at_wanted(s);
	if (got > 0)
		s->page->pending -=
			(uint32_t)got < s->page->pending ? (uint32_t)got : s->page->pending;
	return got;
}

void
ks_ask_urgent(int fd)
{
	ask_wake(fd, KARST_SOCK_URGENT_SELF);
}

ssize_t
ks_take_tokens(int fd, struct ks_sock *s)
{
	return take_tokens(fd, s, SIZE_MAX);
}

void
ks_mark_filled(int fd, struct ks_sock *s)
{
	look_at_wanted(s);
	if (s->page->pending != 0)
		return;
	disarm(s);
	if (s->page->pending == 0) {
		s->page->pending = 1;
		ask_wake(fd, KARST_SOCK_WAKE_SELF);
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
		ssize_t got = take_tokens(fd, s, n);

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

	arm(fd, s);
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
			arm(fd, s);
			if (!ks_has_bytes(fd, s))
				(void)take_tokens(fd, s, SIZE_MAX);
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
	atomic_thread_fence(memory_order_seq_cst); /* as in arm() */
	if (!is_full(s)) {
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
		ask_wake(fd, KARST_SOCK_EMPTY_SELF);
	errno = err;
}

/* --- waiting --- */

uint64_t
ks_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

/* A process that has our far end may send tokens without end, or remove the bytes that say that
 * there is no room. */
bool
ks_is_late(int fd, int flags, int name, uint64_t since_ns)
{
	struct timeval tv = {0};
	socklen_t len = sizeof(tv);
	bool late = (flags & MSG_DONTWAIT) != 0 || (real(fcntl64)(fd, F_GETFL) & O_NONBLOCK) != 0;

	if (!late && real(getsockopt)(fd, SOL_SOCKET, name, &tv, &len) == 0 &&
		(tv.tv_sec != 0 || tv.tv_usec != 0))
		late = ks_now() - since_ns >=
			(uint64_t)tv.tv_sec * 1000000000ull + (uint64_t)tv.tv_usec * 1000ull;
	if (late)
		errno = fd < 0 ? EBADF : EAGAIN; /* ks_still() */
	return late;
}

static bool
may_look(const struct ks_sock *s, struct ks_patience *p, int flags)
{
	if (s->poll_ns == 0 || (flags & MSG_DONTWAIT) ||
		atomic_load_explicit(&s->page->nonblock, memory_order_relaxed))
		return false;
	return ks_may_look(p);
}

bool
ks_may_look(struct ks_patience *p)
{
	if (p->skip == 0)
		return true;
	p->skip--;
	return false;
}

void
ks_looked(struct ks_patience *p, bool found)
{
	if (found) {
		p->failed = 0;
		return;
	}
	if (p->failed < SKIP_SHIFT)
		p->failed++;
	p->skip = p->failed > 1 ? 1u << p->failed : 0;
}

static bool
look_for_bytes(int fd, struct ks_sock *s)
{
	uint64_t began = ks_now();

	do {
		for (int i = 0; i < LOOKS; i++) {
			if (ks_has_bytes(fd, s) || ks_is_detached(s))
				return true;
			__builtin_ia32_pause();
		}
		if (ks_has_ended(s))
			return true;
		/* the writer may not have the connection yet, and the service needs a processor */
		if (!atomic_load(&s->attached))
			sched_yield();
	} while (ks_now() - began < s->poll_ns);
	return false;
}

static bool
look_for_room(struct ks_sock *s)
{
	uint64_t began = ks_now();

	do {
		for (int i = 0; i < LOOKS; i++) {
			if (!is_full(s))
				return true;
			__builtin_ia32_pause();
		}
	} while (ks_now() - began < s->poll_ns &&
		(atomic_load(&s->page->flags) & KARST_SOCK_NO_SEND) == 0);
	return false;
}

/* Without waiting: removes what is in the pair, whatever it is. */
static int
look_once(int fd, struct ks_sock *s)
{
	ssize_t n = take_tokens(fd, s, SIZE_MAX);

	ks_unlock_page(&s->page->rx_lock);
	return n > 0 ? 1 : (int)n;
}

void
ks_interrupted(int fd, int flags, int name)
{
	if (!ks_is_late(fd, flags, name, ks_now()))
		errno = EINTR;
}

static int
sleep_for_bytes(int fd, struct ks_sock *s, int flags, uint32_t ended)
{
	int place = ks_sleep_begin(s), now = flags & MSG_DONTWAIT;
	ssize_t n;

	ks_unlock_page(&s->page->rx_lock);
	if (ks_held.ended != ended)
		now = MSG_DONTWAIT;
	n = ks_recv_with(s, fd, now);
	fd = ks_still(fd, s);
	if (n < 0 && errno == EAGAIN && now != 0)
		ks_interrupted(fd, flags, SO_RCVTIMEO);
	ks_enter_rx(fd, s);
	ks_sleep_end(s, place);
	look_at_wanted(s);
	if (n == 1 && s->page->pending == 0 && !ks_has_bytes(fd, s))
		(void)take_tokens(fd, s, SIZE_MAX); /* sent without cause */
	else if (n == 1 && atomic_load(&s->page->watched) == 0 && !ks_sleeps(s))
		(void)take_tokens(fd, s, 1);
	ks_unlock_page(&s->page->rx_lock);
	return (int)n;
}

int
ks_wait_bytes(int fd, struct ks_sock *s, int flags, uint32_t ended)
{
	if (may_look(s, &s->rx_patience, flags)) {
		bool found = look_for_bytes(fd, s);

		ks_looked(&s->rx_patience, found);
		if (found)
			return 1;
	}
	ks_enter_rx(fd, s);
	arm(fd, s);
	if (ks_has_bytes(fd, s)) {
		disarm(s);
		ks_unlock_page(&s->page->rx_lock);
		return 1;
	}
	if (flags & MSG_DONTWAIT)
		return look_once(fd, s);
	return sleep_for_bytes(fd, s, flags, ended);
}

int
ks_wait_room(int fd, struct ks_sock *s, int flags, uint32_t ended)
{
	int now = flags & MSG_DONTWAIT;

	if (may_look(s, &s->tx_patience, flags)) {
		bool found = look_for_room(s);

		ks_looked(&s->tx_patience, found);
		if (found)
			return 0;
	}
	ks_lock_tx(s);
	if (is_full(s))
		ks_mark_full(fd, s);
	ks_unlock_page(&s->page->tx_lock);
	if (!is_full(s))
		return 0;
	if (ks_held.ended != ended)
		now = MSG_DONTWAIT;
	if (ks_send_with(s, fd, now) < 0) {
		if (errno == EAGAIN && now != 0)
			ks_interrupted(fd, flags, SO_SNDTIMEO);
		return -1;
	}
	/* this byte has to be taken out later */
	ks_lock_tx(s);
	s->page->strays = 1;
	atomic_store(&s->txd->blocked, 1);
	ks_unlock_page(&s->page->tx_lock);
	return 0;
}

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
		if (is_full(s))
			ks_mark_full(fd, s);
		ks_unlock_page(&s->page->tx_lock);
	}
	ks_put(s);
}
