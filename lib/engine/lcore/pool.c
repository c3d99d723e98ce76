/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The pool of frame buffers, shared by all lcores and ports of an engine.
 *
 * net_af_xdp tells the kernel that the memory of a pool is so many contiguous objects of one size.
 * Without huge pages, objects do not cross pages, so there are gaps between them, and much of the
 * memory lies beyond the end that the kernel was told: the kernel refuses buffers from there, in
 * both directions, and they are lost.  So engines with such ports have buffers of one page each, in
 * memory that begins at a page boundary.
 */
#include "lcore.h"

#include <sys/mman.h>

#include <rte_errno.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_memzone.h>

#define POOL_OPS        "stack"
#define POOL_PAGE_SHIFT 12u
#define POOL_PAGE_BYTES (1u << POOL_PAGE_SHIFT)

/* Bytes in front of the mbuf, of what occupies a page. */
static uint32_t
page_header_bytes(void)
{
	struct rte_mempool_objsz sz;

	rte_mempool_calc_obj_size(0, RTE_MEMPOOL_F_NO_SPREAD, &sz);
	return sz.header_size;
}

uint32_t
eng_pool_page_room(void)
{
	return POOL_PAGE_BYTES - page_header_bytes() - (uint32_t)sizeof(struct rte_mbuf) -
		(uint32_t)sizeof(struct karst_pkt) - RTE_PKTMBUF_HEADROOM;
}

/* Whether this process has a mempool handler with that name (they are plug-ins). */
static bool
have_pool_ops(const char *name)
{
	uint32_t i;

	for (i = 0; i < rte_mempool_ops_table.num_ops; i++)
		if (strcmp(rte_mempool_ops_table.ops[i].name, name) == 0)
			return true;
	return false;
}

static void
free_memory(struct rte_mempool_memhdr *chunk, void *opaque)
{
	const struct rte_memzone *mz = opaque;

	(void)chunk;
	rte_memzone_free(mz);
}

/* If EAL has no huge pages, asks the kernel for transparent huge pages, and to populate all pages
 * at once: one by one, when objects are created and the first frames arrive, they take several
 * times as long.  Both may fail. */
static void
back_memory(const struct rte_memzone *mz)
{
	uintptr_t from = (uintptr_t)mz->addr & ~(uintptr_t)(POOL_PAGE_BYTES - 1);
	size_t len = (uintptr_t)mz->addr + mz->len - from;

	if (rte_eal_has_hugepages())
		return;
	madvise((void *)from, len, MADV_HUGEPAGE);
	madvise((void *)from, len, MADV_POPULATE_WRITE);
}

static int
populate(struct rte_mempool *mp, const struct karst_engine *e)
{
	size_t min_chunk, align = POOL_PAGE_BYTES;
	ssize_t len = (ssize_t)e->cfg.mbufs * POOL_PAGE_BYTES;
	const struct rte_memzone *mz;
	int ret;

	/* DPDK lets no object that fits into a page cross its end */
	if (!e->cfg.page_buffers)
		len = rte_mempool_op_calc_mem_size_default(mp, e->cfg.mbufs,
			mp->header_size + mp->elt_size + mp->trailer_size <= POOL_PAGE_BYTES
				? POOL_PAGE_SHIFT
				: 0,
			&min_chunk, &align);
	if (len < 0)
		return (int)len;
	mz = rte_memzone_reserve_aligned(e->name, (size_t)len, (int)rte_socket_id(),
		RTE_MEMZONE_SIZE_HINT_ONLY, (unsigned int)align);
	if (mz == NULL)
		return -rte_errno;
	back_memory(mz);
	if (e->cfg.page_buffers)
		ret = rte_mempool_populate_virt(mp, mz->addr, (size_t)len, POOL_PAGE_BYTES,
			free_memory, (void *)(uintptr_t)mz);
	else
		ret = rte_mempool_populate_iova(
			mp, mz->addr, mz->iova, (size_t)len, free_memory, (void *)(uintptr_t)mz);
	if (ret == (int)e->cfg.mbufs)
		return 0;
	/* if the pool contains objects, the memory is freed with the pool */
	if (ret <= 0)
		rte_memzone_free(mz);
	return ret < 0 ? ret : -ENOBUFS;
}

/* As rte_pktmbuf_pool_create_by_ops(), in memory of the engine's choice. */
static struct rte_mempool *
make_pool(const struct karst_engine *e, uint16_t room)
{
	struct rte_pktmbuf_pool_private priv = {
		.mbuf_data_room_size = room, .mbuf_priv_size = sizeof(struct karst_pkt)};
	uint32_t size = e->cfg.page_buffers
		? POOL_PAGE_BYTES - page_header_bytes()
		: (uint32_t)(sizeof(struct rte_mbuf) + sizeof(struct karst_pkt)) + room;
	struct rte_mempool *mp =
		rte_mempool_create_empty(e->name, e->cfg.mbufs, size, 0, sizeof(priv),
			(int)rte_socket_id(), e->cfg.page_buffers ? RTE_MEMPOOL_F_NO_SPREAD : 0);
	int ret;

	if (mp == NULL)
		return NULL;
	ret = rte_mempool_set_ops_byname(mp, e->cfg.pool_ops, NULL);
	if (ret == 0) {
		rte_pktmbuf_pool_init(mp, &priv);
		ret = populate(mp, e);
	}
	if (ret != 0) {
		rte_mempool_free(mp);
		rte_errno = -ret;
		return NULL;
	}
	rte_mempool_obj_iter(mp, rte_pktmbuf_init, NULL);
	return mp;
}

int
eng_pool_create(struct karst_engine *e)
{
	uint16_t room = (uint16_t)(RTE_PKTMBUF_HEADROOM + e->cfg.frame_bytes);

	if (e->cfg.pool_ops == NULL && have_pool_ops(POOL_OPS)) {
		e->cfg.pool_ops = POOL_OPS;
	} else if (e->cfg.pool_ops == NULL) {
		e->cfg.pool_ops = rte_mbuf_best_mempool_ops();
		karst_log(KARST_LOG_NOTICE,
			"%s: DPDK's mempool handler \"%s\" is not loaded; with \"%s\" buffers are in "
			"no cache when they are used again",
			e->name, POOL_OPS, e->cfg.pool_ops);
	}
	/* in huge pages DPDK may use several pieces of memory */
	if (e->cfg.page_buffers || !rte_eal_has_hugepages())
		e->pool = make_pool(e, room);
	else
		e->pool = rte_pktmbuf_pool_create_by_ops(e->name, e->cfg.mbufs, 0,
			sizeof(struct karst_pkt), room, (int)rte_socket_id(), e->cfg.pool_ops);
	if (e->pool == NULL) {
		karst_log(KARST_LOG_ERR, "%s: a pool of %u buffers of %u bytes by \"%s\": %s",
			e->name, e->cfg.mbufs, room, e->cfg.pool_ops, rte_strerror(rte_errno));
		return -rte_errno;
	}
	return 0;
}
