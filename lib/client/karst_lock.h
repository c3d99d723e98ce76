/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The lock of a queue.  Normally one thread uses a queue, so the lock is uncontended and taking it
 * is one atomic exchange.  A thread that finds the lock held spins, and yields its CPU from time to
 * time.  For libkarst and the shims above it; not installed.
 */
#ifndef KARST_LOCK_H
#define KARST_LOCK_H

#include <sched.h>
#include <stdatomic.h>

#include "karst_base.h"

struct karst_lock {
	_Atomic uint32_t held;
};

static inline void
karst_lock(struct karst_lock *l)
{
	unsigned int spins = 0;

	/* acquire, pairs with the release in karst_unlock(): makes the last holder's stores
	 * visible */
	while (karst_unlikely(atomic_exchange_explicit(&l->held, 1, memory_order_acquire) != 0)) {
		/* the holder may wait for the CPU that this thread uses */
		while (atomic_load_explicit(&l->held, memory_order_relaxed) != 0)
			if (++spins % 64 == 0)
				sched_yield();
	}
}

/** @return false: the lock is held. */
static inline bool
karst_trylock(struct karst_lock *l)
{
	/* acquire, as in karst_lock() */
	return atomic_exchange_explicit(&l->held, 1, memory_order_acquire) == 0;
}

static inline void
karst_unlock(struct karst_lock *l)
{
	/* release, pairs with the acquire in karst_lock() */
	atomic_store_explicit(&l->held, 0, memory_order_release);
}

#endif /* KARST_LOCK_H */
