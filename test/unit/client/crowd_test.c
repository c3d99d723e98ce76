/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Threads use the same queue pair, the same completion queue and the same context at once: each
 * request completes exactly once, while other threads make calls about other objects.
 */
#include "client_bed.h"

#include <sched.h>
#include <stdlib.h>

#include <criterion/criterion.h>

#define POSTERS 3
#define POLLERS 3
#define EACH    5000u
#define ROOM    512u /* of the completion queue: the engine frees slots of a send queue by itself */

static uint8_t mem[65536];

struct crowd {
	struct client_bed b;
	struct karst_mr *mr;
	struct karst_qp *a, *z;
	_Atomic uint8_t seen[POSTERS * EACH];
	_Atomic uint32_t begun;
	_Atomic uint32_t done;
	_Atomic uint32_t bad;
	_Atomic uint32_t number;
};

static void *
post(void *arg)
{
	struct crowd *c = arg;
	uint32_t me = atomic_fetch_add(&c->number, 1), i = 0;

	while (i < EACH && atomic_load(&c->bad) == 0) {
		if (atomic_fetch_add(&c->begun, 1) - atomic_load(&c->done) < ROOM &&
			client_bed_post(c->a, KARST_WR_RDMA_WRITE, me * EACH + i, c->mr, 0, 64,
				c->mr, 4096 + me * 64) == 0) {
			i++;
		} else {
			atomic_fetch_sub(&c->begun, 1);
			sched_yield();
		}
	}
	return NULL;
}

static void *
take(void *arg)
{
	struct crowd *c = arg;
	struct karst_cqe e[7];
	int i, n;

	while (atomic_load(&c->done) < POSTERS * EACH && atomic_load(&c->bad) == 0) {
		n = karst_poll_cq(c->b.cq, (int)KARST_DIM(e), e);
		for (i = 0; i < n; i++)
			if (e[i].status != 0 || e[i].wr_id >= POSTERS * EACH ||
				atomic_fetch_add(&c->seen[e[i].wr_id], 1) != 0)
				atomic_fetch_add(&c->bad, 1);
		if (n < 0)
			atomic_fetch_add(&c->bad, 1);
		else if (n > 0)
			atomic_fetch_add(&c->done, (uint32_t)n);
		else
			sched_yield();
	}
	return NULL;
}

/* Creates and destroys objects on the same context. */
static void *
churn(void *arg)
{
	struct crowd *c = arg;
	struct karst_qp_init_attr init = client_bed_init(&c->b, KARST_QPT_RC);
	struct karst_qp *qp;
	struct karst_mr *mr;
	struct karst_pd *pd;

	while (atomic_load(&c->done) < POSTERS * EACH && atomic_load(&c->bad) == 0) {
		if (karst_alloc_pd(c->b.ctx, &pd) != 0 || karst_create_qp(pd, &init, &qp) != 0 ||
			karst_reg_mr(pd, mem, 4096, 0, &mr) != 0 || karst_dereg_mr(mr) != 0 ||
			karst_destroy_qp(qp) != 0 || karst_dealloc_pd(pd) != 0)
			atomic_fetch_add(&c->bad, 1);
	}
	return NULL;
}

Test(client_crowd, crowd)
{
	pthread_t t[POSTERS + POLLERS + 1];
	struct crowd *c = calloc(1, sizeof(*c));
	uint32_t i;

	cr_assert_not_null(c);
	client_bed_up(&c->b, &(struct client_bed_config){.lcores = 2});
	c->mr = client_bed_mr(&c->b, mem, sizeof(mem));
	c->a = client_bed_qp(&c->b, KARST_QPT_RC);
	c->z = client_bed_qp(&c->b, KARST_QPT_RC);
	client_bed_connect(c->a, c->z);
	for (i = 0; i < KARST_DIM(t); i++)
		cr_assert_eq(pthread_create(&t[i], NULL,
				     i < POSTERS                     ? post
					     : i < POSTERS + POLLERS ? take
								     : churn,
				     c),
			0);
	for (i = 0; i < KARST_DIM(t); i++)
		pthread_join(t[i], NULL);
	cr_assert_eq(c->bad, 0);
	cr_assert_eq(c->done, POSTERS * EACH);
	client_bed_nothing(c->b.cq);
	cr_assert_eq(karst_destroy_qp(c->a), 0);
	cr_assert_eq(karst_destroy_qp(c->z), 0);
	cr_assert_eq(karst_dereg_mr(c->mr), 0);
	client_bed_down(&c->b);
	free(c);
}

/* Two contexts in one process, as of two programs: one has no effect on the other. */
Test(client_crowd, contexts)
{
	struct karst_context *other;
	struct karst_pd *pd;
	struct karst_mr *mr;
	struct client_bed b;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	other = client_bed_open(&b);
	cr_assert_neq(other->client, b.ctx->client);
	cr_assert_eq(karst_alloc_pd(other, &pd), 0);
	cr_assert_eq(karst_reg_mr(pd, mem, 100, 0, &mr), 0);
	cr_assert_eq(karst_dereg_mr(mr), 0);
	cr_assert_eq(karst_dealloc_pd(pd), 0);
	cr_assert_eq(karst_close(other), 0);
	client_bed_down(&b);
}
