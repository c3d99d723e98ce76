/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The table of edges, hashed by page. */
#include "edges.h"

#include <string.h>

#include "karst_vma.h"
#include "sys.h"

#define BUCKETS 4096u

/* Process-wide, as the addresses are; under cli_pages_lock(). */
static LIST_HEAD(edge_list, cli_edge) table[BUCKETS];

static uint64_t
page_of(uint64_t addr)
{
	return addr & ~(uint64_t)(CLI_PAGE - 1);
}

static struct edge_list *
edge_bucket(uint64_t addr)
{
	return &table[addr / CLI_PAGE % BUCKETS];
}

void
cli_edge_add(struct cli_edge *e)
{
	struct edge_list *list = edge_bucket(e->from);

	LIST_INSERT_HEAD(list, e, next);
	e->listed = true;
}

void
cli_edge_del(struct cli_edge *e)
{
	if (!e->listed)
		return;
	LIST_REMOVE(e, next);
	e->listed = false;
}

bool
cli_edges_cover(uint64_t from, uint64_t to)
{
	uint64_t page = page_of(from), at = page, before;
	const struct cli_edge *e;

	do {
		before = at;
		if (from <= at && at < to)
			at = to;
		LIST_FOREACH(e, edge_bucket(from), next)
			if (e->from <= at && at < e->to && page_of(e->from) == page)
				at = e->to;
	} while (at != before && at < page + CLI_PAGE);
	return at >= page + CLI_PAGE;
}

void
cli_edges_each(uint64_t page, void (*tell)(struct cli_edge *e))
{
	struct cli_edge *e;

	LIST_FOREACH(e, edge_bucket(page), next)
		if (page_of(e->from) == page)
			tell(e);
}

void
cli_edges_forget(void)
{
	memset(table, 0, sizeof(table));
}
