/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Edges: pages that a registration covers only in part, and that are copied.  Adjacent buffers, for
 * example from malloc(), share such pages.  A page that several registrations cover completely
 * together contains no other data, so it can be migrated like a page that one registration covers
 * alone.
 *
 * Under cli_pages_lock().
 */
#ifndef KARST_CLIENT_EDGES_H
#define KARST_CLIENT_EDGES_H

#include <sys/queue.h>

#include "karst_base.h"

/** A part of one page.  It belongs to the registration, which removes it from the table. */
struct cli_edge {
	uint64_t from, to; /* addresses */
	void *owner;
	bool listed; /* in the table */
	LIST_ENTRY(cli_edge) next;
};

/** @e->from, to and owner are set. */
void cli_edge_add(struct cli_edge *e);
/** Removes @e; an edge that was never added is allowed. */
void cli_edge_del(struct cli_edge *e);

/** Do [from, to) and the edges of the page of @from cover that page? */
bool cli_edges_cover(uint64_t from, uint64_t to);

/** Calls @tell for each edge in the page at @page. */
void cli_edges_each(uint64_t page, void (*tell)(struct cli_edge *e));

/** In a forked child: empties the table. */
void cli_edges_forget(void);

#endif /* KARST_CLIENT_EDGES_H */
