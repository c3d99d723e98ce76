/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A mutex whose holder cannot be cancelled.  Control requests send and receive with a lock held,
 * and both are cancellation points: a thread that ended there would leave the lock held, and the
 * next request, or fork(), would wait forever.  A request to cancel is deferred until the lock is
 * released, and takes effect at the thread's next cancellation point.
 *
 * A thread that holds several of these mutexes releases them in reverse order.  For libkarst and
 * the shims above it; not installed.
 */
#ifndef KARST_MUTEX_H
#define KARST_MUTEX_H

#include <pthread.h>

struct karst_mutex {
	pthread_mutex_t mutex;
	int cancel; /* the holder's cancel state before it took the mutex; under the mutex */
};

#define KARST_MUTEX_INITIALIZER                    \
	{                                          \
		.mutex = PTHREAD_MUTEX_INITIALIZER \
	}

/** Disables cancellation.  @return the argument for karst_cancel_restore(). */
static inline int
karst_cancel_disable(void)
{
	int old;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	return old;
}

static inline void
karst_cancel_restore(int old)
{
	int disabled;

	pthread_setcancelstate(old, &disabled);
}

static inline void
karst_mutex_init(struct karst_mutex *m)
{
	pthread_mutex_init(&m->mutex, NULL);
}

static inline void
karst_mutex_destroy(struct karst_mutex *m)
{
	pthread_mutex_destroy(&m->mutex);
}

static inline void
karst_mutex_lock(struct karst_mutex *m)
{
	int old = karst_cancel_disable();

	pthread_mutex_lock(&m->mutex);
	m->cancel = old;
}

static inline void
karst_mutex_unlock(struct karst_mutex *m)
{
	int old = m->cancel;

	pthread_mutex_unlock(&m->mutex);
	karst_cancel_restore(old);
}

/** As pthread_cond_wait(), but not a cancellation point. */
static inline void
karst_mutex_wait(struct karst_mutex *m, pthread_cond_t *cond)
{
	int old = m->cancel;

	pthread_cond_wait(cond, &m->mutex);
	/* other threads have held the mutex meanwhile */
	m->cancel = old;
}

/** In a forked child: resets a mutex that its only thread took before fork(). */
static inline void
karst_mutex_reset(struct karst_mutex *m)
{
	pthread_mutex_init(&m->mutex, NULL);
	karst_cancel_restore(m->cancel);
}

#endif /* KARST_MUTEX_H */
