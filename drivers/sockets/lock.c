/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Locks: mutexes of this process, and locks in the page of a connection.
 *
 * The page is shared by all processes that have the connection: children, programs started by
 * exec(), and processes that got it in a message.  They may belong to different users, and one of
 * them may attack another, for example a child that gave up its rights and was then broken into may
 * attack its parent.  It may keep a lock, or corrupt one, but it must not get access to the memory
 * of the others.  Therefore these are not robust mutexes of the C library: those contain addresses,
 * and a thread that unlocks one writes to these addresses.
 *
 * A lock in the page is the number of the thread that holds it, or 0.  A thread that waits for a
 * lock asks the kernel from time to time whether the owner still exists.  If the owner is in
 * another PID namespace, it cannot be checked, and the thread continues to wait.
 */
#include "ks.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WAITED   0x80000000u /* bit of the owner: a thread waits */
#define LOOK_MS  20u         /* time of waiting before the first check */
#define LOOK_MAX 1280u

/* --- mutexes of this process --- */

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

/* --- locks in a page --- */

/* The PID namespace of this process; 0: not known.  Set before there are threads. */
static uint32_t space;

void
ks_locks_began(void)
{
	struct stat st;
	int err = errno;

	ks_held.thread = 0;
	space = stat("/proc/self/ns/pid", &st) == 0 ? (uint32_t)st.st_ino : 0;
	errno = err;
}

/* If the parent is not visible, the child is in another PID namespace. */
void
ks_locks_forked(void)
{
	if (getppid() == 0)
		ks_locks_began();
	ks_held.thread = 0;
}

static uint32_t
self(void)
{
	if (__builtin_expect(ks_held.thread == 0, 0))
		ks_held.thread = (uint32_t)syscall(SYS_gettid);
	return ks_held.thread;
}

static bool
take(struct karst_sock_lock *l, uint32_t from, uint32_t to)
{
	if (!atomic_compare_exchange_strong_explicit(
		    &l->owner, &from, to, memory_order_acquire, memory_order_relaxed))
		return false;
	atomic_store_explicit(&l->space, space, memory_order_relaxed);
	return true;
}

/* Signal 0 is not sent: the call only checks whether it could be.  If this process is not permitted
 * to send one, the error differs from that of a thread that does not exist. */
static bool
is_dead(struct karst_sock_lock *l, uint32_t owner)
{
	uint32_t where = atomic_load_explicit(&l->space, memory_order_relaxed);
	int err = errno;
	bool dead = space != 0 && where == space &&
		((owner & ~WAITED) == 0 ||
			(syscall(SYS_tkill, owner & ~WAITED, 0) != 0 && errno == ESRCH));

	errno = err;
	return dead;
}

/* A thread does not wait for itself: if the owner has the caller's number, the owner has died, and
 * the number was assigned again.  But a child that was made by a direct system call, which the C
 * library has not seen, still has its parent's number in ks_held. */
static bool
is_of_old(uint32_t owner)
{
	return (owner & ~WAITED) == self() && (uint32_t)syscall(SYS_gettid) == self();
}

/* Waits until the lock is released, for at most @ms. */
static void
wait_for(struct karst_sock_lock *l, uint32_t owner, uint32_t ms)
{
	const struct timespec limit = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
	int err = errno;

	(void)syscall(SYS_futex, &l->owner, FUTEX_WAIT, owner, &limit, NULL, 0);
	errno = err;
}

enum taken { TAKEN, TAKEN_FROM_DEAD, NOT_TAKEN };

/* Waits for the lock, until @end_ns if that is not 0.  A thread that has waited sets WAITED,
 * because it does not know whether others wait, too. */
static enum taken
lock_slowly(struct karst_sock_lock *l, uint64_t end_ns)
{
	uint32_t ms = LOOK_MS;

	while (end_ns == 0 || ks_now() < end_ns) {
		uint32_t owner = atomic_load_explicit(&l->owner, memory_order_relaxed);
		uint64_t began;

		if (owner == 0) {
			if (take(l, 0, self() | WAITED))
				return TAKEN;
			continue;
		}
		if ((owner & WAITED) == 0 &&
			!atomic_compare_exchange_strong(&l->owner, &owner, owner | WAITED))
			continue;
		began = ks_now();
		wait_for(l, owner | WAITED, ms);
		if (ks_now() - began < ms * 1000000ull)
			continue;
		owner = atomic_load_explicit(&l->owner, memory_order_relaxed);
		if (owner != 0 && (is_dead(l, owner) || is_of_old(owner)) &&
			take(l, owner, self() | WAITED))
			return TAKEN_FROM_DEAD;
		ms = ms < LOOK_MAX && end_ns == 0 ? 2 * ms : ms;
	}
	return NOT_TAKEN;
}

bool
ks_lock_page(struct karst_sock_lock *l)
{
	ks_hold();
	return !take(l, 0, self()) && lock_slowly(l, 0) == TAKEN_FROM_DEAD;
}

bool
ks_take_place(struct karst_sock_lock *l, bool *died)
{
	uint32_t owner = atomic_load_explicit(&l->owner, memory_order_relaxed);

	*died = false;
	if (owner == 0)
		return take(l, 0, self());
	*died = is_dead(l, owner) && take(l, owner, self());
	return *died;
}

void
ks_leave_place(struct karst_sock_lock *l)
{
	uint32_t owner = atomic_exchange_explicit(&l->owner, 0, memory_order_release);
	int err = errno;

	if (owner & WAITED)
		(void)syscall(SYS_futex, &l->owner, FUTEX_WAKE, 1, NULL, NULL, 0);
	errno = err;
}

void
ks_unlock_page(struct karst_sock_lock *l)
{
	ks_leave_place(l);
	ks_release();
}

/* --- the two locks of a connection --- */

/* Under rx_lock. */
void
ks_attach_rx(int fd, struct ks_sock *s)
{
	ks_lock_tx(s);
	(void)ks_attach(fd, s);
	ks_unlock_page(&s->page->tx_lock);
}

/* If the previous owner has died, the state of tokens is unknown, so there may be one token too
 * many. */
static void
take_over_rx(struct ks_sock *s)
{
	struct karst_sock_page *p = s->page;

	p->armed = p->pending = 0;
	p->sleepers = 1; /* to make ks_sleeps() count them */
	(void)ks_sleeps(s);
}

void
ks_lock_rx(struct ks_sock *s)
{
	if (ks_lock_page(&s->page->rx_lock))
		take_over_rx(s);
}

bool
ks_lock_rx_until(struct ks_sock *s, uint64_t end_ns)
{
	struct karst_sock_lock *l = &s->page->rx_lock;
	enum taken is;

	ks_hold();
	is = take(l, 0, self()) ? TAKEN : lock_slowly(l, end_ns);
	if (is == TAKEN_FROM_DEAD)
		take_over_rx(s);
	if (is == NOT_TAKEN)
		ks_release();
	return is != NOT_TAKEN;
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
		ks_attach_rx(fd, s);
}
