/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Threads of cases, whose calls can be delayed or made to fail: see calls_task.c. */
#ifndef CALLS_TASK_H
#define CALLS_TASK_H

#include <pthread.h>
#include <semaphore.h>
#include <sys/types.h>

#include "calls_bed.h"

/** What a thread uses, and its state. */
struct task {
	pthread_t thread;
	struct ibv_context *ctx;
	struct ibv_comp_channel *channel;
	struct rdma_event_channel *events;
	struct ibv_cq *cq, *told; /* told: the queue that an event named */
	struct ibv_mr *mr;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_async_event event;
	int ret;
	bool hold;  /* its first request waits for @go before it reads the reply */
	bool spoil; /* its next request names an object that does not exist, and is refused */
	unsigned int spare; /* requests before that one */
	/* called once, after the memory is freed, at the thread's first free() that follows a reply
	 * or for which @freeing is set */
	void (*at_free)(struct task *t);
	bool freeing;
	void (*at_sysconf)(struct task *t); /* called once, at the thread's next sysconf() */
	sem_t inside, go;
	_Atomic pid_t tid; /* 0: the thread has not begun */
	_Atomic bool finished;
};

/** Makes @t the task of the calling thread. */
void task_is_mine(struct task *t);
void task_begin(struct task *t, void *(*fn)(void *));
/** As task_begin(), and waits until the thread's first request is held. */
void task_begin_held(struct task *t, void *(*fn)(void *));
void task_end(struct task *t);
/** Does the thread wait for another thread?  Waiting for the engine's reply does not count: that is
 *  a wait for a message. */
bool task_waits(const struct task *t);
void until_it_waits(const struct task *t);
/** Waits until the thread has read everything from @fd and waits for more or for another thread. */
void until_it_has_read(const struct task *t, int fd);

#endif /* CALLS_TASK_H */
