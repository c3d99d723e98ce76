/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Real frames between two ports: operations, sizes, lcores, hand-off, full queues. */
#include <stdlib.h>

#include <criterion/criterion.h>

#include "bed.h"

#define BUF (1u << 20)

struct ends {
	struct karst_engine_qp *qp[2];
	uint8_t *mem[2];
	uint32_t key[2];
};

static void
ends_up(struct bed *bed, struct ends *t, uint32_t lcore_a, uint32_t lcore_b)
{
	int side;

	t->qp[0] = bed_qp(bed, KARST_QPT_RC, lcore_a);
	t->qp[1] = bed_qp(bed, KARST_QPT_RC, lcore_b);
	bed_connect(bed, t->qp[0], t->qp[1]);
	for (side = 0; side < 2; side++) {
		t->mem[side] = malloc(BUF);
		bed_fill(t->mem[side], BUF, (unsigned int)side);
		t->key[side] = bed_mr(bed, t->mem[side], BUF);
	}
}

static void
expect(struct bed *bed, uint64_t wr_id, enum karst_wc_opcode op, uint32_t qpn)
{
	struct karst_cqe cqe;

	cr_assert(bed_wait(bed, &cqe), "no completion for %lu", (unsigned long)wr_id);
	cr_assert_eq(cqe.status, KARST_WC_SUCCESS, "status %u", cqe.status);
	cr_assert_eq(cqe.wr_id, wr_id);
	cr_assert_eq(cqe.opcode, op);
	cr_assert_eq(cqe.qpn, qpn);
}

/* WRITE, READ and SEND of many sizes from A to B, every byte compared. */
static void
run_operations(struct bed *bed, struct ends *t)
{
	static const uint32_t sizes[] = {0, 1, 63, 64, 4095, 4096, 4097, 65536, 300001, BUF};
	size_t i;

	for (i = 0; i < KARST_DIM(sizes); i++) {
		uint32_t len = sizes[i];

		bed_fill(t->mem[0], BUF, (unsigned int)i + 10);
		memset(t->mem[1], 0, BUF);
		bed_post(t->qp[0], KARST_WR_RDMA_WRITE, i, t->mem[0], len, t->key[0], t->mem[1],
			t->key[1]);
		expect(bed, i, KARST_WC_RDMA_WRITE, t->qp[0]->num);
		cr_assert_arr_eq(t->mem[0], t->mem[1], len);
		cr_assert(len == BUF || t->mem[1][len] == 0);

		bed_fill(t->mem[1], BUF, (unsigned int)i + 50);
		bed_post(t->qp[0], KARST_WR_RDMA_READ, i, t->mem[0], len, t->key[0], t->mem[1],
			t->key[1]);
		expect(bed, i, KARST_WC_RDMA_READ, t->qp[0]->num);
		cr_assert_arr_eq(t->mem[0], t->mem[1], len);

		bed_fill(t->mem[0], BUF, (unsigned int)i + 90);
		bed_post_recv(t->qp[1], 100 + i, t->mem[1], BUF, t->key[1]);
		bed_post(t->qp[0], KARST_WR_SEND, i, t->mem[0], len, t->key[0], NULL, 0);
		expect(bed, 100 + i, KARST_WC_RECV, t->qp[1]->num);
		expect(bed, i, KARST_WC_SEND, t->qp[0]->num);
		cr_assert_arr_eq(t->mem[0], t->mem[1], len);
	}
}

static void
count(struct bed *bed, struct karst_counters *c)
{
	karst_engine_counters(bed->e, KARST_ENGINE_ANY_LCORE, c);
}

Test(traffic, one_lcore)
{
	struct bed_config cfg = {0};
	struct karst_counters c;
	struct bed bed;
	struct ends t;

	bed_up(&bed, &cfg);
	ends_up(&bed, &t, 0, 0);
	run_operations(&bed, &t);
	count(&bed, &c);
	cr_assert_eq(c.ctr[KARST_CTR_RETRANSMITS], 0);
	cr_assert_eq(c.ctr[KARST_CTR_RX_PACKETS], c.ctr[KARST_CTR_TX_PACKETS]);
	bed_down(&bed);
}
