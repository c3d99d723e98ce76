/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Attachments to engines for connection management: one for each engine that has an open file.  The
 * attachments of libibverbs' contexts cannot be used, because identifiers exist before any context
 * is opened.
 */
#include "ucma.h"

#include <string.h>

/* One for the process; reset in a forked child. */
static struct {
	struct karst_mutex lock; /* also held while attaching, so that only one thread attaches */
	LIST_HEAD(, kv_cm_engine) engines;
} engine_state = {.lock = KARST_MUTEX_INITIALIZER};

/* With the lock held. */
static int
engine_attach(const char *socket, struct kv_cm_engine **engine)
{
	struct kv_cm_engine *e = calloc(1, sizeof(*e));
	int ret;

	if (e == NULL)
		return kv_refuse(-ENOMEM, "no memory");
	ret = karst_open(socket, NULL, &e->karst);
	if (ret != 0) {
		free(e);
		return ret;
	}
	memcpy(e->socket, socket, strnlen(socket, sizeof(e->socket) - 1));
	LIST_INSERT_HEAD(&engine_state.engines, e, next);
	*engine = e;
	return 0;
}

int
kv_cm_engine_get(const char *socket, struct kv_cm_engine **engine)
{
	struct kv_cm_engine *e;
	int ret = 0;

	karst_mutex_lock(&engine_state.lock);
	LIST_FOREACH(e, &engine_state.engines, next)
		if (strcmp(e->socket, socket) == 0)
			break;
	if (e == NULL)
		ret = engine_attach(socket, &e);
	if (ret == 0) {
		e->users++;
		*engine = e;
	}
	karst_mutex_unlock(&engine_state.lock);
	return ret;
}

/* With the lock held. */
static void
engine_unlist(struct kv_cm_engine *engine)
{
	const struct kv_cm_engine *e;

	/* an attachment from before a fork, or one that was retired, is not in the list */
	LIST_FOREACH(e, &engine_state.engines, next)
		if (e == engine)
			break;
	if (e != NULL)
		LIST_REMOVE(engine, next);
}

void
kv_cm_engine_put(struct kv_cm_engine *engine)
{
	bool is_last;

	karst_mutex_lock(&engine_state.lock);
	is_last = --engine->users == 0;
	if (is_last)
		engine_unlist(engine);
	karst_mutex_unlock(&engine_state.lock);
	if (!is_last)
		return;
	if (karst_close(engine->karst) != 0)
		karst_abandon(engine->karst);
	free(engine);
}

void
kv_cm_engine_retire(struct kv_cm_engine *engine)
{
	karst_mutex_lock(&engine_state.lock);
	engine_unlist(engine);
	karst_mutex_unlock(&engine_state.lock);
}

void
kv_cm_engine_forget(void)
{
	karst_mutex_init(&engine_state.lock);
	LIST_INIT(&engine_state.engines);
}
