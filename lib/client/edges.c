/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The table of edges, by page. */
#include "edges.h"

#include <string.h>

#include "karst_vma.h"
#include "sys.h"

#define BUCKETS 4096u

/* Of the process, whose addresses they are; under cli_pages_lock(). */
static struct cli_edge *table[BUCKETS];

static uint64_t
page_of(uint64_t addr)
{
	return addr & ~(uint64_t)(CLI_PAGE - 1);
}

static struct cli_edge **
edge_bucket(uint64_t addr)
{
	return &table[addr / CLI_PAGE % BUCKETS];
}

void
cli_edge_add(struct cli_edge *e)
{
	struct cli_edge **at = edge_bucket(e->from);

	e->next = *at;
	e->pprev = at;
	if (e->next != NULL)
		e->next->pprev = &e->next;
	*at = e;
}

void
cli_edge_del(struct cli_edge *e)
{
	if (e->pprev == NULL)
		return;
	*e->pprev = e->next;
	if (e->next != NULL)
		e->next->pprev = e->pprev;
	e->pprev = NULL;
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
		for (e = *edge_bucket(from); e != NULL; e = e->next)
			if (e->from <= at && at < e->to && page_of(e->from) == page)
				at = e->to;
	} while (at != before && at < page + CLI_PAGE);
	return at >= page + CLI_PAGE;
}

void
cli_edges_each(uint64_t page, void (*tell)(struct cli_edge *e))
{
	struct cli_edge *e;

	for (e = *edge_bucket(page); e != NULL; e = e->next)
		if (page_of(e->from) == page)
			tell(e);
}

void
cli_edges_forget(void)
{
	memset(table, 0, sizeof(table));
}
