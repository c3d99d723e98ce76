/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Adjacent regions, with an engine of another process: registering one of them can make the others
 * eligible for migration, which then happens under their traffic, and no request notices.
 */
#include "client_bed.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "karst_ctl.h"

#define LEAD  16u           /* as malloc() leaves in front of a block */
#define BYTES (20u * 4096u) /* more than the least that is migrated */
#define PAIRS 48u
#define PLAIN (KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE | KARST_ACCESS_REMOTE_READ)

struct rig {
	struct client_bed b;
	struct karst_qp *a, *z;
	uint8_t *pool;
};

static void
rig_up(struct rig *r, uint32_t lcores)
{
	size_t i, len = LEAD + (2 * PAIRS + 1) * (size_t)BYTES;

	/* as in memory/space_bed.c */
	if (geteuid() != 0 && access("/dev/userfaultfd", R_OK | W_OK) != 0)
		cr_skip("needs userfaultfd");
	client_bed_up(&r->b, &(struct client_bed_config){.lcores = lcores, .forked = true});
	r->a = client_bed_qp(&r->b, KARST_QPT_RC);
	r->z = client_bed_qp(&r->b, KARST_QPT_RC);
	client_bed_connect(r->a, r->z);
	r->pool = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(r->pool, MAP_FAILED);
	for (i = 0; i < len; i++)
		r->pool[i] = (uint8_t)(i * 31 + i / BYTES);
}

static void
rig_down(struct rig *r)
{
	cr_assert_eq(karst_destroy_qp(r->a), 0);
	cr_assert_eq(karst_destroy_qp(r->z), 0);
	client_bed_down(&r->b);
}

static struct karst_mr *
reg(struct rig *r, uint32_t i, unsigned int access)
{
	struct karst_mr *mr = NULL;

	cr_assert_eq(karst_reg_mr(r->b.pd, r->pool + LEAD + i * (size_t)BYTES, BYTES, access, &mr),
		0, "%s", karst_why());
	return mr;
}

static void
write_all(struct rig *r, struct karst_mr *from, struct karst_mr *to)
{
	struct karst_cqe e;

	cr_assert_eq(client_bed_post(r->a, KARST_WR_RDMA_WRITE, 1, from, 0, BYTES, to, 0), 0);
	e = client_bed_wait(r->b.cq);
	cr_assert_eq(e.status, KARST_WC_SUCCESS, "%s",
		karst_wc_status_str((enum karst_wc_status)e.status));
	cr_assert_eq(memcmp(from->addr, to->addr, BYTES), 0);
}

Test(client_neighbour, edges_are_copied_no_more)
{
	struct karst_mr *mr[4];
	struct rig r;
	uint32_t i;

	rig_up(&r, 1);
	mr[0] = reg(&r, 0, PLAIN);
	cr_assert_eq(
		mr[0]->copied_bytes, 4096, "its first page but 16 bytes, and those of its last");
	mr[1] = reg(&r, 1, PLAIN);
	cr_assert_eq(mr[0]->copied_bytes, 4096 - LEAD);
	cr_assert_eq(mr[1]->copied_bytes, LEAD);
	mr[2] = reg(&r, 2, PLAIN);
	cr_assert_eq(mr[1]->copied_bytes, 0);
	cr_assert_eq(mr[1]->migrated_bytes, BYTES);
	mr[3] = reg(&r, 3, PLAIN);
	write_all(&r, mr[1], mr[2]);
	write_all(&r, mr[0], mr[3]);
	/* the memory stays migrated for the regions that are left */
	cr_assert_eq(karst_dereg_mr(mr[1]), 0);
	memset(r.pool + LEAD + BYTES, 0x5a, BYTES);
	write_all(&r, mr[0], mr[2]);
	write_all(&r, mr[3], mr[0]);
	/* and for regions that are registered again */
	mr[1] = reg(&r, 1, PLAIN);
	cr_assert_eq(mr[1]->copied_bytes, 0);
	write_all(&r, mr[2], mr[1]);
	for (i = 0; i < 4; i++)
		cr_assert_eq(karst_dereg_mr(mr[i]), 0);
	rig_down(&r);
}

/* Regions of two kinds stay as they are: windows store addresses of their own, and atomics of all
 * lcores must use the same address. */
Test(client_neighbour, some_stay_as_they_are)
{
	static const unsigned int more[] = {KARST_ACCESS_MW_BIND, KARST_ACCESS_REMOTE_ATOMIC};
	struct karst_mr *a, *b;
	struct rig r;
	uint32_t i;

	rig_up(&r, 1);
	for (i = 0; i < 2; i++) {
		a = reg(&r, 0, PLAIN | more[i]);
		b = reg(&r, 1, PLAIN);
		cr_assert_eq(a->copied_bytes, 4096);
		cr_assert_eq(b->copied_bytes, LEAD);
		write_all(&r, a, b);
		cr_assert_eq(karst_dereg_mr(a), 0);
		cr_assert_eq(karst_dereg_mr(b), 0);
	}
	a = reg(&r, 0, PLAIN);
	/* programs cannot ask for this */
	cr_assert_eq(karst_rereg_mr(a, KARST_CTL_REREG_PIECES, r.b.pd, a->addr, BYTES, 0), -EINVAL);
	cr_assert_eq(karst_dereg_mr(a), 0);
	rig_down(&r);
}

struct registrar {
	struct rig *r;
	struct karst_mr *mr[PAIRS];
	atomic_bool done;
};

static void *
register_neighbours(void *arg)
{
	struct registrar *g = arg;
	uint32_t i;

	for (i = 0; i < PAIRS; i++)
		g->mr[i] = reg(g->r, 2 * i + 1, PLAIN);
	atomic_store(&g->done, true);
	return NULL;
}

/* Every second buffer has traffic while the buffers between are registered. */
Test(client_neighbour, under_traffic)
{
	struct karst_mr *mr[PAIRS + 1];
	struct registrar g = {0};
	uint64_t copied = 0;
	uint32_t i, n = 0;
	pthread_t t;
	struct rig r;

	rig_up(&r, 2);
	g.r = &r;
	for (i = 0; i <= PAIRS; i++)
		mr[i] = reg(&r, 2 * i, PLAIN);
	cr_assert_eq(pthread_create(&t, NULL, register_neighbours, &g), 0);
	do {
		/* the data from before the move, and the data that was written during it, is
		 * right */
		write_all(&r, mr[n % (PAIRS + 1)], mr[(n + 1) % (PAIRS + 1)]);
		n++;
		memset(mr[n % (PAIRS + 1)]->addr, (int)n, 32);
	} while (!atomic_load(&g.done) || n < 2 * PAIRS);
	pthread_join(t, NULL);
	for (i = 0; i <= PAIRS; i++) {
		copied += mr[i]->copied_bytes;
		cr_assert_eq(karst_dereg_mr(mr[i]), 0);
	}
	cr_assert_eq(copied, 4096, "those of the first and the last page of the pool");
	for (i = 0; i < PAIRS; i++)
		cr_assert_eq(karst_dereg_mr(g.mr[i]), 0);
	rig_down(&r);
}
