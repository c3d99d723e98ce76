/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Edges: the pages that a registration has only a part of, and copies.  Buffers that lie side by
 * side, as from one malloc(), share such pages: a page that several registrations cover together
 * belongs to nobody else, and can be moved as those can that one has alone.
 *
 * Under cli_pages_lock().
 */
#ifndef KARST_CLIENT_EDGES_H
#define KARST_CLIENT_EDGES_H

#include <sys/queue.h>

#include "karst_base.h"

/** A part of one page; belongs to the registration, which takes it out of the table. */
struct cli_edge {
	uint64_t from, to; /* addresses */
	void *owner;
	bool listed; /* in the table */
	LIST_ENTRY(cli_edge) next;
};

/** @e->from, to and owner are set. */
void cli_edge_add(struct cli_edge *e);
/** Also one that was never added. */
void cli_edge_del(struct cli_edge *e);

/** Do [from, to) and the edges of the page of @from cover that page? */
bool cli_edges_cover(uint64_t from, uint64_t to);

/** Calls @tell for each edge of the page at @page. */
void cli_edges_each(uint64_t page, void (*tell)(struct cli_edge *e));

/** In a child: there are none. */
void cli_edges_forget(void);

#endif /* KARST_CLIENT_EDGES_H */
