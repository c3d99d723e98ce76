/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Control pages.  Creating a page, mapping it in two processes and removing it costs more than
 * everything else in a short connection.  So a program keeps the pages that it has, and its next
 * connections reuse them.  No other program ever gets them.
 *
 * A page is free when both sides have finished with it: the connection is freed here, and its
 * program has said with a later request that it does not access the page any more.  A page that
 * other processes may have mapped (KARST_SOCK_ADOPT) is not reused.  Each user has a share of the
 * free pages, as of connections.
 */
#include "smc_priv.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_FREE 1024u /* of all programs: each page needs a descriptor */

static void
page_destroy(struct svc_page *g)
{
	munmap(g->mem, KARST_SOCK_PAGE);
	close(g->fd);
	free(g);
}

/* Adds @more to the number of free pages of @p. */
static void
free_count(struct svc_prog *p, int more)
{
	p->smc->nfree_pages += (uint32_t)more;
	p->user->kept[SVC_KEPT_PAGES] += (uint32_t)more;
}

/* Frees or destroys the page if it is no longer in use. */
static void
page_settle(struct svc_page *g)
{
	struct svc_prog *p = g->prog;

	if (g->used || (p != NULL && g->mapped))
		return;
	svc_rings_put(g->rings);
	g->rings = NULL;
	if (p == NULL) {
		page_destroy(g);
	} else if (!g->adopted &&
		svc_user_may_keep(p->user, SVC_KEPT_PAGES, p->smc->nfree_pages, MAX_FREE)) {
		free_count(p, 1);
		g->next = p->free_pages;
		p->free_pages = g;
	} else {
		p->pages[g->number - 1] = NULL;
		page_destroy(g);
	}
}

/* Returns a free number; 0: the maximum number of pages is kept. */
static uint32_t
new_number(const struct svc_prog *p)
{
	uint32_t i;

	for (i = 0; i < KARST_SOCK_KEPT; i++)
		if (p->pages[i] == NULL)
			return i + 1;
	return 0;
}

int
svc_page_get(struct svc_prog *p, struct svc_page **page)
{
	struct svc_page *g = p->free_pages;
	void *mem;
	int rc;

	if (g != NULL) {
		p->free_pages = g->next;
		free_count(p, -1);
		/* the early bytes need not be cleared: only those that were written are read */
		memset(g->mem, 0, offsetof(struct karst_sock_page, early_bytes));
		g->kept = g->used = g->mapped = true;
		*page = g;
		return 0;
	}
	g = calloc(1, sizeof(*g));
	if (g == NULL)
		return -ENOMEM;
	rc = svc_stock_page(p->smc, &g->fd, &mem);
	if (rc != 0) {
		free(g);
		return rc;
	}
	g->mem = mem;
	g->used = g->mapped = true;
	g->number = new_number(p);
	if (g->number != 0) {
		g->prog = p;
		p->pages[g->number - 1] = g;
	}
	*page = g;
	return 0;
}

void
svc_page_put(struct svc_page *g)
{
	if (g == NULL)
		return;
	g->used = false;
	page_settle(g);
}

void
svc_page_share(struct svc_page *g)
{
	g->adopted = true;
	if (g->rings != NULL)
		g->rings->shared = true;
}

void
svc_page_unmapped(struct svc_prog *p, const struct karst_sock_msg *req)
{
	uint32_t i, number;

	for (i = 0; i + sizeof(number) <= req->len && i < KARST_SOCK_DATA; i += sizeof(number)) {
		bool shared;

		memcpy(&number, req->data + i, sizeof(number));
		shared = (number & KARST_SOCK_SHARED) != 0;
		number &= ~KARST_SOCK_SHARED;
		if (number == 0 || number > KARST_SOCK_KEPT || p->pages[number - 1] == NULL ||
			!p->pages[number - 1]->mapped)
			continue;
		p->pages[number - 1]->mapped = false;
		if (shared)
			svc_page_share(p->pages[number - 1]);
		page_settle(p->pages[number - 1]);
	}
}

void
svc_page_leave(struct svc_prog *p)
{
	uint32_t i;

	for (i = 0; i < KARST_SOCK_KEPT; i++) {
		struct svc_page *g = p->pages[i];

		if (g == NULL)
			continue;
		if (!g->used && !g->mapped)
			free_count(p, -1);
		p->pages[i] = NULL;
		g->prog = NULL;
		page_settle(g);
	}
	p->free_pages = NULL;
}
