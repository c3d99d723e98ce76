/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Buffers for drivers that register the pool's memory elsewhere; and which buffers an lcore takes
 * for cold. */
#include <criterion/criterion.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "engine_bed.h"
#include "lcore.h"

#define MBUFS 1500u

/* net_af_xdp describes a pool to the kernel by its first chunk and the number of objects times
 * their size: all buffers lie within that range, and none crosses a page. */
static void
check_place(struct rte_mempool *mp, void *opaque, void *object, unsigned int index)
{
	uintptr_t *at = opaque, begin = (uintptr_t)object - mp->header_size;

	cr_assert_geq(begin, at[0], "buffer %u", index);
	cr_assert_leq(begin + at[1], at[0] + mp->populated_size * at[1], "buffer %u", index);
	cr_assert_eq(begin / 4096, (begin + at[1] - 1) / 4096, "buffer %u", index);
}

Test(pool, buffers_that_are_pages)
{
	struct engine_bed_config cfg = {
		.engine = {.name = "pages", .page_buffers = true, .mbufs = MBUFS}};
	struct rte_mempool *mp;
	uintptr_t at[2];
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	cr_assert_eq(karst_engine_config(bed.e)->frame_bytes, 3712);
	mp = rte_mempool_lookup("pages");
	cr_assert_not_null(mp);
	cr_assert_eq(mp->populated_size, MBUFS);
	at[0] = (uintptr_t)STAILQ_FIRST(&mp->mem_list)->addr;
	at[1] = rte_mempool_calc_obj_size(mp->elt_size, mp->flags, NULL);
	cr_assert_eq(rte_mempool_obj_iter(mp, check_place, at), MBUFS);
	engine_bed_down(&bed);
}

/* The buffer that was freed last is used first.  DPDK's default handler would use it last, when all
 * others of the pool have been through the caches. */
Test(pool, last_in_first_out)
{
	struct engine_bed_config cfg = {.engine.name = "lifo"};
	struct rte_mempool *mp;
	struct engine_bed bed;
	struct rte_mbuf *m;

	engine_bed_up(&bed, &cfg);
	mp = rte_mempool_lookup("lifo");
	cr_assert_not_null(mp);
	cr_assert_str_eq(rte_mempool_get_ops(mp->ops_index)->name, "stack");
	m = rte_pktmbuf_alloc(mp);
	cr_assert_not_null(m);
	rte_pktmbuf_free(m);
	cr_assert_eq(rte_pktmbuf_alloc(mp), m);
	rte_pktmbuf_free(m);
	engine_bed_down(&bed);
}

/* Such buffers carry frames like all others. */
Test(pool, traffic_in_pages)
{
	struct engine_bed_config cfg = {.engine.page_buffers = true};
	static uint8_t mem[2][6000];
	struct karst_core_qp_attr attr;
	struct karst_engine_qp *qp[2];
	enum karst_qp_state to;
	struct karst_cqe cqe;
	int side;
	struct engine_bed bed;
	uint32_t key;

	engine_bed_up(&bed, &cfg);
	qp[0] = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	qp[1] = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	for (to = KARST_QPS_INIT; to <= KARST_QPS_RTS; to++) {
		for (side = 0; side < 2; side++) {
			unsigned int mask = engine_bed_attr(
				&bed, KARST_QPT_RC, side, qp[1 - side]->num, to, &attr);

			attr.path_mtu = 4; /* the largest MTU that fits */
			cr_assert_eq(karst_engine_qp_modify(bed.e, qp[side], &attr, mask), 0);
		}
	}
	key = engine_bed_mr(&bed, mem, sizeof(mem));
	engine_bed_fill(mem[0], sizeof(mem[0]), 1);
	engine_bed_post(qp[0], KARST_WR_RDMA_WRITE, 1, mem[0], sizeof(mem[0]), key, mem[1], key);
	cr_assert(engine_bed_wait(&bed, &cqe));
	cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
	cr_assert_arr_eq(mem[0], mem[1], sizeof(mem[0]));
	engine_bed_down(&bed);
}

Test(pool, what_does_not_fit)
{
	struct karst_engine_config cfg = {.page_buffers = true, .frame_bytes = 3713};
	struct karst_engine *e = NULL;
	struct engine_bed_config up = {0};
	struct engine_bed bed;

	engine_bed_up(&bed, &up); /* EAL */
	cr_assert_eq(karst_engine_create(&cfg, &e), -EINVAL);
	cr_assert_null(e);
	engine_bed_down(&bed);
}

/* --- cold buffers --- */

#define WRITTEN (256u << 10) /* two bursts of frames */

/* How many of the buffers that lcore 0 has ready after both bursts are taken for cold. */
static unsigned int
cold_after_sending(struct engine_bed *bed)
{
	static uint8_t mem[WRITTEN];
	const struct eng_lcore *lc = &bed->e->lcore[0];
	struct karst_engine_lcore_stats stats;
	struct karst_core_qp_attr attr;
	unsigned int i, cold = 0;
	enum karst_qp_state to;
	uint32_t key = engine_bed_mr(bed, mem, sizeof(mem));
	struct karst_engine_qp *qp = engine_bed_qp(bed, KARST_QPT_RC, 0);

	bed->timeout = 0; /* no peer answers */
	for (to = KARST_QPS_INIT; to <= KARST_QPS_RTS; to++) {
		unsigned int mask = engine_bed_attr(bed, KARST_QPT_RC, 0, 0x100, to, &attr);

		cr_assert_eq(karst_engine_qp_modify(bed->e, qp, &attr, mask), 0);
	}
	engine_bed_post(qp, KARST_WR_RDMA_WRITE, 1, mem, sizeof(mem), key, mem, key);
	bed->mine = 1;
	engine_bed_settle(bed);
	cr_assert_eq(karst_engine_lcore_stats(bed->e, 0, &stats), 0);
	cr_assert_geq(stats.tx_frames, WRITTEN / 4096);
	cr_assert_eq(lc->tx_ready, karst_engine_config(bed->e)->tx_burst);
	for (i = 0; i < lc->tx_ready; i++)
		cold += lc->seals[i].cold;
	return cold;
}

/* A port that has copied a frame, or discards it, frees the buffer at once: the buffer is in the
 * cache of this lcore, and prefetching it for writing would be useless. */
Test(pool, buffers_that_come_back_at_once_are_warm)
{
	const struct karst_engine_addr addr = karst_engine_addr_ip4(0x0a000003);
	struct karst_engine_port_config port = {.num_addrs = 1, .addrs = &addr};
	struct engine_bed_config cfg = {0};
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	cr_assert_eq(rte_eal_hotplug_add("vdev", "net_null0", "no-rx=1"), 0);
	cr_assert_eq(rte_eth_dev_get_port_by_name("net_null0", &port.ethdev), 0);
	cr_assert_eq(karst_engine_port_add(bed.e, &port, &bed.port[0]), 0);
	cr_assert_eq(cold_after_sending(&bed), 0);
	engine_bed_down(&bed);
}

/* A receiver that gets a frame by its pointer has the frame in its own cache. */
Test(pool, buffers_that_others_have_are_cold)
{
	struct engine_bed_config cfg = {.engine.lcores = 2, .mask = {1, 2}};
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	cr_assert_eq(cold_after_sending(&bed), karst_engine_config(bed.e)->tx_burst);
	engine_bed_down(&bed);
}
