/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A stock of what connections need: pairs, memory files whose first page exists, and for those to
 * other systems files of which all pages exist, and queue pairs of links (smc_link.c).  Creating
 * one takes several system calls, and touching a page for the first time costs more than these.  A
 * program that opens a connection would have to wait for that.
 *
 * The stock is filled while there are programs and the service has nothing else to do: a little
 * each time when there was no event for a while, because the programs that were just answered may
 * be waiting for the CPU.  Each connection uses up pairs, so those for the next connection are made
 * at once; files are mostly kept by programs (smc_page.c, smc_rings.c).
 */
#include "smc_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define AT_ONCE   2u         /* pairs: as many as a connection of two programs needs */
#define FAR_BYTES (2u << 20) /* of rings whose pages are allocated in advance, at most */

/* --- files --- */

static uint64_t
rings_bytes(const struct kd_smc *s)
{
	return karst_sock_bytes((uint32_t)s->conf->smc.buffer);
}

/* Creates a file whose page exists when this returns. */
static int
make_page(struct svc_file *f)
{
	int rc = svc_make_file(KARST_SOCK_PAGE, &f->fd, &f->mem);

	if (rc == 0)
		memset(f->mem, 0, 1);
	return rc;
}

/* Creates a file in which the page with the positions exists; a short stream needs no other
 * page. */
static int
make_rings_file(const struct kd_smc *s, struct svc_file *f)
{
	int rc = svc_make_file(rings_bytes(s), &f->fd, NULL);

	f->mem = NULL;
	if (rc == 0 && pwrite(f->fd, "", 1, (off_t)(KARST_SOCK_NEAR + s->conf->smc.buffer)) != 1) {
		rc = -ENOMEM;
		close(f->fd);
	}
	return rc;
}

/* The same, with all pages: what a queue pair reads and writes has to exist. */
static int
make_far_file(const struct kd_smc *s, struct svc_file *f)
{
	int rc = make_rings_file(s, f);

	if (rc == 0 && fallocate(f->fd, 0, 0, (off_t)rings_bytes(s)) != 0) {
		rc = -errno;
		close(f->fd);
	}
	return rc;
}

static void
drop_file(struct svc_file *f)
{
	if (f->mem != NULL)
		munmap(f->mem, KARST_SOCK_PAGE);
	close(f->fd);
}

/* --- taking --- */

int
svc_stock_pair(struct kd_smc *s, struct svc_pair *p)
{
	s->stock_failed = false;
	if (s->npairs == 0)
		return svc_pair_make(s, p);
	*p = s->pairs[--s->npairs];
	return 0;
}

int
svc_stock_page(struct kd_smc *s, int *fd, void **mem)
{
	s->stock_failed = false;
	if (s->npages == 0)
		return svc_make_file(KARST_SOCK_PAGE, fd, mem);
	s->npages--;
	*fd = s->pages[s->npages].fd;
	*mem = s->pages[s->npages].mem;
	return 0;
}

/* Whether queue pairs will use its rings, as far as it is known when it begins. */
static bool
is_far(const struct svc_conn *c)
{
	uint8_t gid[16];

	return !c->decline && !svc_direct_is_near(c) && svc_rdma_is_here(c) &&
		svc_rdma_gid(c->smc, &c->local, gid);
}

int
svc_stock_rings(struct kd_smc *s, const struct svc_conn *c, int *fd)
{
	s->stock_failed = false;
	if (c != NULL && s->nfar != 0 && is_far(c)) {
		*fd = s->far[--s->nfar].fd;
		return 0;
	}
	if (s->nrings == 0)
		return svc_make_file(rings_bytes(s), fd, NULL);
	*fd = s->rings[--s->nrings].fd;
	return 0;
}

/* --- filling --- */

/* Rings for other systems, of which all pages exist: not if the configuration makes them large. */
static bool
lacks_far(const struct kd_smc *s)
{
	return s->nfar < SMC_FAR && rings_bytes(s) <= FAR_BYTES && svc_link_port(s) != 0;
}

static bool
lacks_small(const struct kd_smc *s)
{
	return s->npairs < SMC_PAIRS || s->npages < SMC_PAGES || s->nrings < SMC_RINGS;
}

bool
svc_stock_lacks(const struct kd_smc *s, bool all)
{
	if (s->progs == NULL || s->stock_failed)
		return false;
	return s->npairs < AT_ONCE ||
		(all && (lacks_small(s) || lacks_far(s) || svc_link_lacks(s)));
}

/* Makes one small object, of the kind that the next connection needs most.  @return false: it
 * failed. */
static bool
make_small(struct kd_smc *s)
{
	if (s->npairs < AT_ONCE)
		return svc_pair_make(s, &s->pairs[s->npairs]) == 0 && ++s->npairs;
	if (s->npages < SMC_PAGES)
		return make_page(&s->pages[s->npages]) == 0 && ++s->npages;
	if (s->nrings < SMC_RINGS)
		return make_rings_file(s, &s->rings[s->nrings]) == 0 && ++s->nrings;
	return s->npairs >= SMC_PAIRS ||
		(svc_pair_make(s, &s->pairs[s->npairs]) == 0 && ++s->npairs);
}

/* Makes one large object. */
static bool
make_large(struct kd_smc *s)
{
	if (lacks_far(s))
		return make_far_file(s, &s->far[s->nfar]) == 0 && ++s->nfar;
	return !svc_link_lacks(s) || svc_link_stock(s);
}

void
svc_stock_fill(struct kd_smc *s)
{
	uint32_t n;

	if (!lacks_small(s)) {
		s->stock_failed = !make_large(s);
		return;
	}
	for (n = 0; n < AT_ONCE && !s->stock_failed; n++)
		s->stock_failed = !make_small(s);
}

void
svc_stock_fini(struct kd_smc *s)
{
	while (s->npairs != 0) {
		s->npairs--;
		close(s->pairs[s->npairs].far);
		close(s->pairs[s->npairs].end);
	}
	while (s->npages != 0)
		drop_file(&s->pages[--s->npages]);
	while (s->nfar != 0)
		drop_file(&s->far[--s->nfar]);
	while (s->nrings != 0)
		drop_file(&s->rings[--s->nrings]);
}
