/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The memory that requests name by R_Key and address.
 *
 * A key's region is exactly what all requests with it have named that were not refused.  A key that
 * a SEND with Invalidate names is a window of type 2, bound by the queue pair, as karst requires
 * (R9).  A key that was refused for every request is made so that karst has to refuse it, for a
 * reason that the caller chooses: there is no such key, it does not permit the access, or the range
 * is too long.
 */
#include <stdlib.h>

#include "replay.h"

#define NO_SUCH_KEY 0xdeadbe00u
#define REGION_MOST (64u << 20)

static struct rp_region *
find(const struct rp_regions *g, uint32_t rkey)
{
	unsigned int i;

	for (i = 0; i < g->n; i++) {
		if (g->all[i].rkey == rkey)
			return &g->all[i];
	}
	return NULL;
}

/* Whether the request was refused with NAK remote access error. */
static bool
refused(const struct rp_stream *s, const struct rp_frame *f)
{
	unsigned int i;

	for (i = 0; i < s->nanswers; i++) {
		const struct karst_ib_hdrs *ib = &s->answers[i]->f.ib;

		if (s->answers[i]->ns >= f->ns && ib->opcode == KARST_RC_ACK &&
			ib->aeth >> 24 == 0x62 && ib->psn == f->f.ib.psn)
			return true;
	}
	return false;
}

static void
cover(struct rp_regions *g, const struct rp_stream *s, const struct rp_frame *f)
{
	const struct karst_ib_hdrs *ib = &f->f.ib;
	uint64_t end = ib->va + (f->opf & KARST_OPF_RETH ? ib->dma_len : 8);
	bool good = !refused(s, f);
	struct rp_region *r = find(g, ib->rkey);

	/* in a FLUSH of a whole region (R15) the range is ignored */
	if (end == ib->va || ((f->opf & KARST_OPF_FLUSH) && (ib->feth & 0x30) != 0))
		return;
	if (r == NULL) {
		g->all = realloc(g->all, (g->n + 1) * sizeof(*g->all));
		r = &g->all[g->n++];
		*r = (struct rp_region){.rkey = ib->rkey, .va = ib->va, .end = end, .good = good};
		return;
	}
	if (!good)
		return;
	if (!r->good) {
		r->va = ib->va;
		r->end = end;
		r->good = true;
	}
	if (ib->va < r->va)
		r->va = ib->va;
	if (end > r->end)
		r->end = end;
}

static void
region_must(int rc)
{
	if (rc != 0) {
		fprintf(stderr, "karst-replay: a region cannot be made: %s\n", strerror(-rc));
		abort();
	}
}

static void
bind_window(struct rp_bed *b, struct rp_region *r, uint32_t mr_key)
{
	struct karst_mw_bind bind = {.pd = b->pd,
		.qpn = b->qpn,
		.mr_key = mr_key,
		.va = r->va,
		.len = r->end - r->va,
		.access = KARST_ACCESS_REMOTE};

	region_must(karst_mw_alloc(b->mem, b->pd, KARST_MEM_MW2, &bind.mw_key));
	bind.new_key = (bind.mw_key & 0xffffff00) | ((bind.mw_key + 1) & 0xff);
	region_must(karst_mw_bind(b->mem, &bind, &r->key));
}

static void
make(struct rp_bed *b, struct rp_region *r, enum rp_refusal refusal)
{
	uint64_t len = r->end - r->va;
	unsigned int access = KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE | KARST_ACCESS_MW_BIND;
	uint32_t key;

	r->key = NO_SUCH_KEY;
	if (len > REGION_MOST || (!r->good && refusal == RP_UNKNOWN_KEY))
		return;
	/* the CPU requires the same alignment as the peer */
	r->host = (uint8_t *)aligned_alloc(64, (len + 127) & ~63ull) + (r->va & 63);
	memset(r->host, 0, len);
	if (!r->good && refusal == RP_NO_PERMISSION)
		access = KARST_ACCESS_LOCAL_WRITE;
	if (!r->good && refusal == RP_OUT_OF_BOUNDS)
		len--;
	region_must(karst_mr_reg(b->mem, b->pd, r->host, r->va, len, access, &key));
	r->key = key;
	if (r->invalidated)
		bind_window(b, r, key);
}

void
rp_regions_open(
	struct rp_regions *g, struct rp_bed *b, const struct rp_stream *s, enum rp_refusal refusal)
{
	unsigned int i;

	*g = (struct rp_regions){0};
	for (i = 0; i < s->nrequests; i++) {
		if (s->requests[i]->opf & (KARST_OPF_RETH | KARST_OPF_ATOMICETH))
			cover(g, s, s->requests[i]);
	}
	for (i = 0; i < s->nrequests; i++) {
		const struct rp_frame *f = s->requests[i];
		struct rp_region *r = f->opf & KARST_OPF_IETH ? find(g, f->f.ib.inv_rkey) : NULL;

		if (r != NULL)
			r->invalidated = true;
		else if (f->opf & KARST_OPF_IETH) {
			/* a key that was never used: any memory will do */
			g->all = realloc(g->all, (g->n + 1) * sizeof(*g->all));
			g->all[g->n++] = (struct rp_region){.rkey = f->f.ib.inv_rkey,
				.va = 0x1000,
				.end = 0x2000,
				.good = true,
				.invalidated = true};
		}
	}
	for (i = 0; i < g->n; i++)
		make(b, &g->all[i], refusal);
}

void
rp_regions_close(struct rp_regions *g)
{
	unsigned int i;

	for (i = 0; i < g->n; i++) {
		if (g->all[i].host != NULL)
			free(g->all[i].host - (g->all[i].va & 63));
	}
	free(g->all);
}

uint8_t *
rp_region_at(const struct rp_regions *g, uint32_t rkey, uint64_t va, uint32_t len)
{
	const struct rp_region *r = find(g, rkey);

	if (r == NULL || r->host == NULL || va < r->va || va + len > r->end)
		return NULL;
	return r->host + (va - r->va);
}

void
rp_regions_translate(const struct rp_regions *g, struct karst_ib_hdrs *ib, uint32_t opf)
{
	const struct rp_region *r;

	if ((opf & KARST_OPF_RETH) && !(opf & KARST_OPF_FLUSH) && ib->dma_len == 0) {
		/* for no bytes the key is not checked, by Linux neither (R12, L5) */
		ib->rkey = NO_SUCH_KEY;
	} else if (opf & (KARST_OPF_RETH | KARST_OPF_ATOMICETH)) {
		r = find(g, ib->rkey);
		ib->rkey = r != NULL ? r->key : NO_SUCH_KEY;
	}
	if (opf & KARST_OPF_IETH) {
		r = find(g, ib->inv_rkey);
		ib->inv_rkey = r != NULL ? r->key : NO_SUCH_KEY;
	}
}
