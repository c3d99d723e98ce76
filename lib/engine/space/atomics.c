/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Locks of programs whose memory is copied, for atomics on it (copies.c). */
#include "space_priv.h"

#include <stdlib.h>

static struct {
	pthread_mutex_t lock;
	LIST_HEAD(, eng_atomics) list;
} all_atomics = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct eng_atomics *
eng_atomics_get(pid_t pid)
{
	struct eng_atomics *a;

	pthread_mutex_lock(&all_atomics.lock);
	LIST_FOREACH(a, &all_atomics.list, next)
		if (a->pid == pid)
			break;
	if (a == NULL && (a = calloc(1, sizeof(*a))) != NULL) {
		a->pid = pid;
		pthread_mutex_init(&a->lock, NULL);
		LIST_INSERT_HEAD(&all_atomics.list, a, next);
	}
	if (a != NULL)
		a->users++;
	pthread_mutex_unlock(&all_atomics.lock);
	return a;
}

void
eng_atomics_put(struct eng_atomics *a)
{
	pthread_mutex_lock(&all_atomics.lock);
	if (--a->users == 0) {
		LIST_REMOVE(a, next);
		pthread_mutex_destroy(&a->lock);
		free(a);
	}
	pthread_mutex_unlock(&all_atomics.lock);
}
