/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The objects that exist.  An object that a program passes may be NULL, destroyed, a copy, made up
 * by the program, or have another handle than it was created with; the kernel would not find it.
 * Therefore all objects are listed here by address, and calls that change anything look the object
 * up first.  An object is never accessed before it is found.
 *
 * A hash table of lists whose links are in the objects: adding an object cannot fail, and the time
 * of a lookup is negligible in a call that also asks the engine.
 */
#include "provider.h"

#define HASH_BITS 14u

/* One for the process; protected by the lock, under which no other lock is taken. */
static struct {
	struct karst_mutex lock;
	LIST_HEAD(live_list, kv_live) list[1u << HASH_BITS];
} live = {.lock = KARST_MUTEX_INITIALIZER};

static void
lock_live(void)
{
	karst_mutex_lock(&live.lock);
}

static void
unlock_live(void)
{
	karst_mutex_unlock(&live.lock);
}

void
kv_live_init(void)
{
	pthread_atfork(lock_live, unlock_live, unlock_live);
}

static struct live_list *
list_of(const void *ibv)
{
	return &live.list[(uintptr_t)ibv * 0x9e3779b97f4a7c15u >> (64 - HASH_BITS)];
}

static void
live_put(struct kv_live *l)
{
	struct live_list *list = list_of(l->ibv);

	lock_live();
	LIST_INSERT_HEAD(list, l, next);
	unlock_live();
}

void
kv_live_add(struct kv_live *l, enum kv_kind kind, const struct ibv_context *ctx, const void *ibv,
	const uint32_t *handle)
{
	l->ctx = ctx;
	l->ibv = ibv;
	l->kind = kind;
	l->at = handle;
	l->handle = handle != NULL ? *handle : 0;
	live_put(l);
}

void
kv_live_del(struct kv_live *l)
{
	lock_live();
	LIST_REMOVE(l, next);
	unlock_live();
}

int
kv_live_decide(struct kv_live *l, int ret)
{
	if (ret != 0)
		live_put(l);
	return ret;
}

void
kv_live_end(const struct ibv_context *ctx)
{
	struct kv_live *l, *next;
	unsigned int i;

	lock_live();
	for (i = 0; i < KARST_DIM(live.list); i++) {
		for (l = LIST_FIRST(&live.list[i]); l != NULL; l = next) {
			next = LIST_NEXT(l, next);
			if (l->ctx == ctx)
				LIST_REMOVE(l, next);
		}
	}
	unlock_live();
}

void
kv_live_each(enum kv_kind kind, void (*fn)(struct kv_live *l, void *arg), void *arg)
{
	struct kv_live *l;
	unsigned int i;

	lock_live();
	for (i = 0; i < KARST_DIM(live.list); i++)
		LIST_FOREACH(l, &live.list[i], next)
			if (l->kind == kind)
				fn(l, arg);
	unlock_live();
}

/* @ctx may be NULL: the object may be of any context. */
static int
check(enum kv_kind kind, const struct ibv_context *ctx, const void *ibv)
{
	const struct kv_live *l;
	bool known, is_here;

	if (ibv == NULL)
		return kv_refuse(-EINVAL, "an object that the call needs is NULL");
	lock_live();
	LIST_FOREACH(l, list_of(ibv), next)
		if (l->ibv == ibv && l->kind == kind)
			break;
	known = l != NULL && (l->at == NULL || *l->at == l->handle);
	is_here = known && (ctx == NULL || l->ctx == ctx);
	unlock_live();
	if (!known)
		return kv_refuse(
			-ENOENT, "no such object: it was destroyed, or its handle was changed");
	if (!is_here)
		return kv_refuse(-EINVAL, "an object belongs to another context");
	return 0;
}

int
kv_check(enum kv_kind kind, const void *ibv)
{
	return check(kind, NULL, ibv);
}

int
kv_check_in(enum kv_kind kind, const struct ibv_context *ctx, const void *ibv)
{
	return check(kind, ctx, ibv);
}

int
kv_check_in_if(enum kv_kind kind, const struct ibv_context *ctx, const void *ibv)
{
	return ibv != NULL ? check(kind, ctx, ibv) : 0;
}
