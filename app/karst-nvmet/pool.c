/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "target.h"

struct nt_pool {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct nt_cmds todo, done;
	int fd;
	bool stopping;
	uint32_t nthreads;
	pthread_t threads[];
};

static void *
worker_run(void *arg)
{
	struct nt_pool *pool = arg;

	pthread_mutex_lock(&pool->lock);
	for (;;) {
		struct nt_cmd *cmd = STAILQ_FIRST(&pool->todo);

		if (cmd == NULL) {
			if (pool->stopping)
				break;
			pthread_cond_wait(&pool->more, &pool->lock);
			continue;
		}
		STAILQ_REMOVE_HEAD(&pool->todo, next);
		pthread_mutex_unlock(&pool->lock);
		cmd->work(cmd);
		pthread_mutex_lock(&pool->lock);
		STAILQ_INSERT_TAIL(&pool->done, cmd, next);
		/* Cannot fail: the counter never gets near its limit. */
		(void)eventfd_write(pool->fd, 1);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

struct nt_pool *
nt_pool_start(uint32_t threads)
{
	struct nt_pool *pool = calloc(1, sizeof(*pool) + threads * sizeof(pool->threads[0]));

	if (pool == NULL)
		return NULL;
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->more, NULL);
	STAILQ_INIT(&pool->todo);
	STAILQ_INIT(&pool->done);
	pool->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	while (pool->fd >= 0 && pool->nthreads < threads) {
		if (pthread_create(&pool->threads[pool->nthreads], NULL, worker_run, pool) != 0)
			break;
		pool->nthreads++;
	}
	if (pool->fd < 0 || pool->nthreads < threads) {
		nt_pool_stop(pool);
		return NULL;
	}
	return pool;
}

void
nt_pool_stop(struct nt_pool *pool)
{
	uint32_t i;

	pthread_mutex_lock(&pool->lock);
	pool->stopping = true;
	pthread_cond_broadcast(&pool->more);
	pthread_mutex_unlock(&pool->lock);
	for (i = 0; i < pool->nthreads; i++)
		pthread_join(pool->threads[i], NULL);
	if (pool->fd >= 0)
		close(pool->fd);
	pthread_cond_destroy(&pool->more);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

void
nt_pool_submit(struct nt_pool *pool, struct nt_cmd *cmd)
{
	pthread_mutex_lock(&pool->lock);
	STAILQ_INSERT_TAIL(&pool->todo, cmd, next);
	pthread_cond_signal(&pool->more);
	pthread_mutex_unlock(&pool->lock);
}

int
nt_pool_fd(const struct nt_pool *pool)
{
	return pool->fd;
}

void
nt_pool_reap(struct nt_pool *pool, struct nt_cmds *done)
{
	eventfd_t n;

	STAILQ_INIT(done);
	(void)eventfd_read(pool->fd, &n);
	pthread_mutex_lock(&pool->lock);
	STAILQ_CONCAT(done, &pool->done);
	pthread_mutex_unlock(&pool->lock);
}
