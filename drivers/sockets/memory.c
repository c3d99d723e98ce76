/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Memory of objects of one size each, but not by malloc(): a call may come from a signal handler
 * that has interrupted malloc().
 */
#include "ks.h"

#include <pthread.h>
#include <sys/mman.h>

#define SLAB 16384u

/* At file scope: the calls of programs have no argument for it. */
static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;

void *
ks_map(size_t bytes)
{
	void *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return mem != MAP_FAILED ? mem : NULL;
}

/* Under the lock. */
static void *
take_object(struct ks_pool *p)
{
	void *mem = p->free;

	if (mem != NULL) {
		p->free = *(void **)mem;
		memset(mem, 0, p->bytes);
		return mem;
	}
	if (p->left < p->bytes) {
		p->slab = ks_map(SLAB);
		p->left = p->slab != NULL ? SLAB : 0;
	}
	if (p->left < p->bytes)
		return NULL;
	mem = p->slab;
	p->slab += p->bytes;
	p->left -= p->bytes;
	return mem;
}

void *
ks_pool_take(struct ks_pool *p)
{
	void *mem;

	ks_lock(&memory_lock);
	mem = take_object(p);
	ks_unlock(&memory_lock);
	return mem;
}

void
ks_pool_give(struct ks_pool *p, void *mem)
{
	ks_lock(&memory_lock);
	*(void **)mem = p->free;
	p->free = mem;
	ks_unlock(&memory_lock);
}

void
ks_memory_hold(void)
{
	ks_lock(&memory_lock);
}

void
ks_memory_release(void)
{
	ks_unlock(&memory_lock);
}

void
ks_memory_forked(void)
{
	pthread_mutex_init(&memory_lock, NULL);
}
