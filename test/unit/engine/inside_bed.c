/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Requests for pages that do not come, and for other memory of a program. */
#include "inside_bed.h"

#include <time.h>

#include <criterion/criterion.h>

#include "copies.h"
#include "engine_priv.h"
#include "karst_ctl_sock.h"

uint32_t
space_copies(const struct rig *rig)
{
	return atomic_load(&rig->space->slow.copies);
}

void
poll_a_while(struct rig *rig)
{
	const struct timespec nap = {.tv_nsec = 10000000};

	engine_bed_settle(&rig->bed);
	nanosleep(&nap, NULL);
}

static uint64_t
stuck_threads(const struct rig *rig)
{
	uint64_t n = 0;
	uint32_t i;

	for (i = 0; i < rig->bed.e->nlcores; i++)
		n += atomic_load(&rig->bed.e->lcore[i].watched.stuck);
	return n;
}

void
never_region(struct rig *rig, struct region *r)
{
	static struct program_pieces p = {.n = 1};

	p.piece[0] = (struct karst_ctl_piece){.len = NEVER_BYTES,
		.kind = KARST_CTL_PIECE_COPY,
		.flags = KARST_CTL_PIECE_ON_DEMAND};
	cr_assert_eq(program_never(&rig->prog, NEVER_BYTES, &p.piece[0].addr), 0);
	cr_assert_eq(map_pieces(rig, p.piece[0].addr, NEVER_BYTES, true, &p, r), 0, "%s", p.why);
}

void
stick(struct rig *rig, uint64_t addr, uint32_t key)
{
	uint64_t until = karst_engine_now_ns(rig->bed.e) + PATIENCE_NS;

	cr_assert_neq(rig->far[0]->lcore, rig->far[1]->lcore);
	post_faa(rig, 0, addr, key);
	post_faa(rig, 1, addr, key);
	while (stuck_threads(rig) < 2) {
		cr_assert_lt(karst_engine_now_ns(rig->bed.e), until, "%d threads are written off",
			(int)stuck_threads(rig));
		poll_a_while(rig);
	}
	cr_assert(karst_space_failed(rig->space));
}

uint32_t
attach_never(struct rig *rig, struct program *p, uint64_t addr, struct karst_space **s)
{
	const struct karst_ctl_piece piece = {.addr = addr,
		.len = NEVER_BYTES,
		.kind = KARST_CTL_PIECE_COPY,
		.flags = KARST_CTL_PIECE_ON_DEMAND};
	struct karst_space_region *r;
	char why[KARST_CTL_WHY];
	uint32_t key;

	cr_assert_eq(karst_space_create(rig->bed.e, p->pid, p->pidfd, 0, 0, s), 0);
	give_memory(*s, p->pid);
	cr_assert_eq(karst_space_map(*s, addr, piece.len, true, &piece, 1, NULL, 0, &r, why), 0,
		"%s", why);
	cr_assert_eq(karst_engine_mr_reg(rig->bed.e, rig->bed.pd, karst_space_host(r), addr,
			     piece.len, SPACE_ALL, &key),
		0);
	rig->key[rig->nkeys++] = key;
	return key;
}

uint32_t
never_of(struct rig *rig, struct program *p, struct karst_space **s, uint64_t *addr)
{
	cr_assert_eq(program_never(p, NEVER_BYTES, addr), 0);
	return attach_never(rig, p, *addr, s);
}

void
write_more(struct rig *rig, uint64_t addr, uint32_t key)
{
	struct karst_engine_qp *near = engine_bed_qp(&rig->bed, KARST_QPT_RC, 0);
	struct karst_engine_qp *far = engine_bed_qp(&rig->bed, KARST_QPT_RC, 0);

	engine_bed_connect(&rig->bed, near, far);
	engine_bed_post(near, KARST_WR_RDMA_WRITE, 1, rig->local, 64, rig->local_key,
		(void *)(uintptr_t)addr, key);
}
