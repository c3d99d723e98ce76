/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The objects that events name.  The engine gets a cookie (index and generation) and returns it
 * with an event.  The cookie of an object that is gone does not match any object.
 */
#include "client_priv.h"

#include <errno.h>
#include <stdlib.h>

static uint64_t
cookie_of(uint32_t index, uint32_t generation)
{
	return (uint64_t)generation << 32 | (index + 1u);
}

/* Adds free entries to the table, in a list; with reg held. */
static int
entries_grow(struct karst_client *c)
{
	uint32_t i, n = c->nentries, more = n + 16;
	struct cli_entry *p = realloc(c->entry, (n + more) * sizeof(*p));

	if (p == NULL)
		return -ENOMEM;
	for (i = n; i < n + more; i++)
		p[i] = (struct cli_entry){.next_free = i + 1 < n + more ? i + 2 : 0};
	c->entry = p;
	c->nentries = n + more;
	c->free_entry = n + 1;
	return 0;
}

uint64_t
cli_object_add(struct karst_client *c, enum cli_kind kind, void *object)
{
	uint64_t cookie = 0;
	uint32_t i;

	karst_mutex_lock(&c->reg);
	if (c->free_entry != 0 || entries_grow(c) == 0) {
		i = c->free_entry - 1;
		c->free_entry = c->entry[i].next_free;
		c->entry[i].object = object;
		c->entry[i].kind = kind;
		cookie = cookie_of(i, c->entry[i].generation);
	}
	karst_mutex_unlock(&c->reg);
	return cookie;
}

void *
cli_object_find(const struct karst_client *c, enum cli_kind kind, uint64_t cookie)
{
	uint32_t i = (uint32_t)cookie - 1;

	if (i >= c->nentries || c->entry[i].kind != kind ||
		cookie_of(i, c->entry[i].generation) != cookie)
		return NULL;
	return c->entry[i].object;
}

static void
entry_free(struct karst_client *c, uint64_t cookie)
{
	uint32_t i = (uint32_t)cookie - 1;

	assert(i < c->nentries);
	c->entry[i].kind = CLI_FREE;
	c->entry[i].object = NULL;
	c->entry[i].generation++;
	c->entry[i].next_free = c->free_entry;
	c->free_entry = i + 1;
}

void
cli_object_del(struct karst_client *c, uint64_t cookie)
{
	karst_mutex_lock(&c->reg);
	entry_free(c, cookie);
	karst_mutex_unlock(&c->reg);
}

void
cli_object_end(struct karst_client *c, uint64_t cookie, struct cli_stream *channel,
	const struct cli_events *events, const struct cli_events *more)
{
	karst_mutex_lock(&c->reg);
	entry_free(c, cookie);
	cli_stream_purge(c, &c->async);
	if (channel != NULL)
		cli_stream_purge(c, channel);
	while (events->got != events->acked || (more != NULL && more->got != more->acked))
		karst_mutex_wait(&c->reg, &c->acked);
	karst_mutex_unlock(&c->reg);
}
