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

struct list {
	struct nt_cmd *first;
	struct nt_cmd **last;
};

struct nt_pool {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct list todo, done;
	int fd;
	bool stopping;
	uint32_t nthreads;
	pthread_t threads[];
};

static void
list_clear(struct list *list)
{
	list->first = NULL;
	list->last = &list->first;
}

static void
buffer_list_add(struct list *list, struct nt_cmd *cmd)
{
	cmd->next = NULL;
	*list->last = cmd;
	list->last = &cmd->next;
}

static struct nt_cmd *
list_take(struct list *list)
{
	struct nt_cmd *cmd = list->first;

	if (cmd == NULL)
		return NULL;
	list->first = cmd->next;
	if (list->first == NULL)
		list_clear(list);
	cmd->next = NULL;
	return cmd;
}

static void *
worker_run(void *arg)
{
	struct nt_pool *pool = arg;

	pthread_mutex_lock(&pool->lock);
	for (;;) {
		struct nt_cmd *cmd = list_take(&pool->todo);

		if (cmd == NULL) {
			if (pool->stopping)
				break;
			pthread_cond_wait(&pool->more, &pool->lock);
			continue;
		}
		pthread_mutex_unlock(&pool->lock);
		cmd->work(cmd);
		pthread_mutex_lock(&pool->lock);
		buffer_list_add(&pool->done, cmd);
		/* Cannot fail: the counter does not come near its end. */
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
	list_clear(&pool->todo);
	list_clear(&pool->done);
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
	buffer_list_add(&pool->todo, cmd);
	pthread_cond_signal(&pool->more);
	pthread_mutex_unlock(&pool->lock);
}

int
nt_pool_fd(const struct nt_pool *pool)
{
	return pool->fd;
}

struct nt_cmd *
nt_pool_reap(struct nt_pool *pool)
{
	struct nt_cmd *cmds;
	eventfd_t n;

	(void)eventfd_read(pool->fd, &n);
	pthread_mutex_lock(&pool->lock);
	cmds = pool->done.first;
	list_clear(&pool->done);
	pthread_mutex_unlock(&pool->lock);
	return cmds;
}
