/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Threads of cases, and what can be done to them: see calls_task.c. */
#ifndef CALLS_TASK_H
#define CALLS_TASK_H

#include <pthread.h>
#include <semaphore.h>
#include <sys/types.h>

#include "calls_bed.h"

/** What a thread does, and where it is. */
struct task {
	pthread_t thread;
	struct ibv_context *ctx;
	struct ibv_comp_channel *channel;
	struct rdma_event_channel *events;
	struct ibv_cq *cq, *told; /* told: by an event */
	struct ibv_mr *mr;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_async_event event;
	int ret;
	bool hold;  /* its first request waits for @go before it hears the answer */
	bool spoil; /* its first request is about an object that is none, and so refused */
	/* called at its first free() after an answer, or @freeing, with the memory gone; once */
	void (*at_free)(struct task *t);
	bool freeing;
	void (*at_sysconf)(struct task *t); /* called at its next sysconf(); once */
	sem_t inside, go;
	_Atomic pid_t tid; /* it has begun */
	_Atomic bool finished;
};

/** The thread's own; by it. */
void task_is_mine(struct task *t);
void task_begin(struct task *t, void *(*fn)(void *));
/** With a request that is held. */
void task_begin_held(struct task *t, void *(*fn)(void *));
void task_end(struct task *t);
/** It waits for another thread: not for the engine's answer, which is a message. */
bool task_waits(const struct task *t);
void until_it_waits(const struct task *t);
/** All that there was to read of @fd it has read, and it waits: for more, or another thread. */
void until_it_has_read(const struct task *t, int fd);

#endif /* CALLS_TASK_H */
