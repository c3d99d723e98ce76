/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * How a thread waits for bytes or room.  Before it sleeps, it polls for up to page.poll_us, as long
 * as polling is successful.
 *
 * Several threads may sleep until bytes of a connection arrive, also of several processes, and a
 * token that one of them takes does not wake the others.  So a reader has to know of them, and does
 * more than it needs for itself.  Each of these threads holds a lock while it sleeps, so that its
 * death is detected: otherwise readers would consider it as long as the connection exists.
 */
#include "ks.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#define LOOKS      64           /* polls between two reads of the clock */
#define SKIP_SHIFT 10           /* at most 2^this waits without polling */
#define LEAVE_NS   200000000ull /* how long a thread that leaves its wait waits for rx_lock */

/* --- the threads that sleep --- */

/* Counts the caller as a sleeping thread.  @return the argument for sleep_end() */
static int
sleep_begin(struct ks_sock *s)
{
	struct karst_sock_page *p = s->page;
	bool died;

	for (unsigned int i = 0; i < KARST_SOCK_SLEEPERS; i++)
		if (ks_take_place(&p->sleeps[i], &died)) {
			p->sleepers += !died; /* a dead owner is still counted */
			return (int)i;
		}
	p->sleepers++;
	p->crowd++;
	return -1;
}

static void
sleep_end(struct ks_sock *s, int place)
{
	s->page->sleepers--;
	if (place >= 0)
		ks_leave_place(&s->page->sleeps[place]);
	else
		s->page->crowd--;
}

bool
ks_sleeps(struct ks_sock *s)
{
	struct karst_sock_page *p = s->page;
	bool died;

	if (__builtin_expect(p->sleepers == 0, 1))
		return false;
	p->sleepers = p->crowd;
	for (unsigned int i = 0; i < KARST_SOCK_SLEEPERS; i++)
		if (ks_take_place(&p->sleeps[i], &died))
			ks_leave_place(&p->sleeps[i]);
		else
			p->sleepers++;
	return p->sleepers != 0;
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

static void
sleep_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static bool
look_for_bytes(int fd, struct ks_sock *s)
{
	uint64_t began = ks_now();

	do {
		for (int i = 0; i < LOOKS; i++) {
			if (ks_has_bytes(fd, s) || ks_is_detached(s))
				return true;
			sleep_pause();
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
			if (!ks_is_full(s))
				return true;
			sleep_pause();
		}
	} while (ks_now() - began < s->poll_ns &&
		(atomic_load(&s->page->flags) & KARST_SOCK_NO_SEND) == 0);
	return false;
}

/* Without waiting: removes what is in the pair, whatever it is. */
static int
look_once(int fd, struct ks_sock *s)
{
	ssize_t n = ks_take_tokens(fd, s, SIZE_MAX);

	ks_unlock_page(&s->page->rx_lock);
	return n > 0 ? 1 : (int)n;
}

void
ks_interrupted(int fd, int flags, int name)
{
	if (!ks_is_late(fd, flags, name, ks_now()))
		errno = EINTR;
}

/* A thread that sleeps until bytes arrive. */
struct sleeper {
	struct ks_sock *s; /* with a reference besides that of the call */
	int place;         /* of sleep_begin() */
};

/* The thread is cancelled, or a handler leaves by siglongjmp(): it does not sleep any more, and its
 * reference is given back, if that was not done before this one.  No other handler runs before both
 * are done.  So if another process is stopped with rx_lock, this thread does not wait for that: it
 * gives back its place, by which ks_sleeps() counts.  Without a place it stays counted, for which
 * readers only do more than they need. */
static void
sleep_left(void *arg)
{
	struct sleeper *is = arg;
	struct ks_sock *s = is->s;

	if (s == NULL)
		return;
	ks_hold();
	if (ks_lock_rx_until(s, ks_now() + LEAVE_NS)) {
		sleep_end(s, is->place);
		ks_unlock_page(&s->page->rx_lock);
	} else if (is->place >= 0) {
		ks_leave_place(&s->page->sleeps[is->place]);
	}
	is->s = NULL;
	ks_put_left(s);
	ks_put(s);
	ks_release();
}

/* Under rx_lock, also on return, but not meanwhile.  The cleanup is in place before a handler can
 * run. */
static ssize_t
sleep_in_pair(int *fd, struct ks_sock *s, int flags, uint32_t ended)
{
	int now = flags & MSG_DONTWAIT;
	struct _pthread_cleanup_buffer left;
	struct sleeper is = {s, sleep_begin(s)};
	char byte;
	ssize_t n;

	atomic_fetch_add(&s->refs, 1);
	_pthread_cleanup_push(&left, sleep_left, &is);
	ks_unlock_page(&s->page->rx_lock);
	if (ks_held.ended != ended)
		now = MSG_DONTWAIT;
	n = real(recv)(*fd, &byte, 1, MSG_PEEK | now);
	*fd = ks_still(*fd, s);
	if (n < 0 && errno == EAGAIN && now != 0)
		ks_interrupted(*fd, flags, SO_RCVTIMEO);
	ks_enter_rx(*fd, s);
	_pthread_cleanup_pop(&left, 0);
	atomic_fetch_sub(&s->refs, 1); /* not the last */
	sleep_end(s, is.place);
	return n;
}

static int
sleep_for_bytes(int fd, struct ks_sock *s, int flags, uint32_t ended)
{
	ssize_t n = sleep_in_pair(&fd, s, flags, ended);

	ks_look_at_wanted(s);
	if (n == 1 && s->page->pending == 0 && !ks_has_bytes(fd, s))
		(void)ks_take_tokens(fd, s, SIZE_MAX); /* sent without cause */
	else if (n == 1 && atomic_load(&s->page->watched) == 0 && !ks_sleeps(s))
		(void)ks_take_tokens(fd, s, 1);
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
	ks_arm(fd, s);
	if (ks_has_bytes(fd, s)) {
		ks_disarm(s);
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
	if (ks_is_full(s))
		ks_mark_full(fd, s);
	ks_unlock_page(&s->page->tx_lock);
	if (!ks_is_full(s))
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
