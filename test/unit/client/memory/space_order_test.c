/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Atomics, ordering and unreliable connections on copied memory; and many regions that come and go.
 */
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "karst_ctl_sock.h"
#include "maps.h"
#include "space_bed.h"

#define ROUNDS      3 /* of 64 regions with 10 MiB each, which cost page faults */
#define PATIENCE_NS 120000000000ull

/* --- atomics --- */

/* R7 on copied memory: no addition of either lcore is lost. */
Test(space, r7_atomics_on_copied_memory)
{
	struct engine_bed_poller second;
	struct karst_cqe cqe;
	struct region r;
	struct rig rig;
	uint64_t addr, len, value = 0;
	unsigned int i, done = 0;

	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_STACK, &addr, &len), 0);
	addr = (addr + 63) & ~63ull;
	cr_assert_eq(region_make(&rig, addr, 4096, true, UINT64_MAX, &r), 0);
	memset(rig.local, 0, 64);
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_ATOMIC_WRITE, 0, addr, 8, r.key), 0);
	engine_bed_poller_start(&second, &rig.bed, 2);
	for (i = 0; i < 200; i++) {
		post_faa(&rig, 0, addr, r.key);
		post_faa(&rig, 1, addr, r.key);
		for (done = 0; done < 2; done++) {
			cr_assert(engine_bed_wait(&rig.bed, &cqe));
			cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
		}
	}
	engine_bed_poller_stop(&second);
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_RDMA_READ, 128, addr, 8, r.key), 0);
	memcpy(&value, rig.local + 128, 8);
	cr_assert_eq(value, 400);
	program_end(&rig.prog);
	rig_down(&rig);
}

/* R14: an atomic and a READ are executed after the WRITEs before them, whether queued or not. */
Test(space, r14_order_on_copied_memory)
{
	struct karst_cqe cqe;
	struct region r;
	struct rig rig;
	uint64_t addr, len, round, old, *w;

	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_STACK, &addr, &len), 0);
	addr = (addr + 63) & ~63ull;
	cr_assert_eq(region_make(&rig, addr, 4096, true, UINT64_MAX, &r), 0);
	w = (uint64_t *)(void *)(rig.local + 256);
	for (round = 1; round < 200; round++) {
		unsigned int i;

		*w = round * 1000;
		for (i = 0; i < 4; i++)
			engine_bed_post(rig.near[0], KARST_WR_RDMA_WRITE, i, w, 8, rig.local_key,
				(void *)(uintptr_t)addr, r.key);
		post_faa(&rig, 0, addr, r.key);
		engine_bed_post(rig.near[0], KARST_WR_RDMA_READ, 9, rig.local + 512, 8,
			rig.local_key, (void *)(uintptr_t)addr, r.key);
		for (i = 0; i < 6; i++) {
			cr_assert(engine_bed_wait(&rig.bed, &cqe));
			cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
		}
		memcpy(&old, rig.local, 8);
		cr_assert_eq(old, round * 1000);
		memcpy(&old, rig.local + 512, 8);
		cr_assert_eq(old, round * 1000 + 1);
	}
	program_end(&rig.prog);
	rig_down(&rig);
}

/* --- without acknowledgements --- */

static void
connect_uc(struct rig *rig, struct karst_engine_qp *qp[2])
{
	struct karst_core_qp_attr attr;
	enum karst_qp_state to;
	int side;

	for (side = 0; side < 2; side++)
		qp[side] = engine_bed_qp(&rig->bed, KARST_QPT_UC, 0);
	for (to = KARST_QPS_INIT; to <= KARST_QPS_RTS; to++) {
		for (side = 0; side < 2; side++) {
			unsigned int mask = engine_bed_attr(
				&rig->bed, KARST_QPT_UC, side, qp[1 - side]->num, to, &attr);

			cr_assert_eq(karst_engine_qp_modify(rig->bed.e, qp[side], &attr, mask), 0);
		}
	}
}

/* Nothing reports when an unacknowledged WRITE has arrived, and the copies are made by other
 * threads than the one that polls. */
static bool
shows_in_time(struct rig *rig, uint64_t off, uint64_t len, unsigned int seed)
{
	uint64_t until = karst_engine_now_ns(rig->bed.e) + PATIENCE_NS;

	while (!program_shows(&rig->prog, off, len, seed, 0)) {
		if (karst_engine_now_ns(rig->bed.e) > until)
			return false;
		engine_bed_settle(&rig->bed);
	}
	return true;
}

/* UC (U1) completes at once, so it must be known at once which memory is there and which is not. */
Test(space, u1_uc_on_copied_memory)
{
	struct karst_engine_qp *qp[2];
	struct karst_cqe cqe;
	struct region r;
	struct rig rig;
	uint64_t addr, len;
	unsigned int i;

	rig_up(&rig);
	connect_uc(&rig, qp);
	cr_assert_eq(program_make(&rig.prog, KIND_PRIVATE_FILE, &addr, &len), 0);
	cr_assert_eq(region_make(&rig, addr, len, true, UINT64_MAX, &r), 0);
	cr_assert_eq(r.copied, len);

	fill_local(&rig, 65536, 2);
	engine_bed_post_recv(qp[1], 3, (void *)(uintptr_t)addr, 65536, r.key);
	engine_bed_post(qp[0], KARST_WR_SEND, 4, rig.local, 65536, rig.local_key, NULL, 0);
	for (i = 0; i < 2; i++)
		cr_assert_eq(wait_one(&rig), KARST_WC_SUCCESS);
	cr_assert(program_shows(&rig.prog, 0, 65536, 2, 0), "received");

	engine_bed_post(qp[0], KARST_WR_RDMA_WRITE, 5, rig.local, 32768, rig.local_key,
		(void *)(uintptr_t)(addr + 100000), r.key);
	cr_assert_eq(wait_one(&rig), KARST_WC_SUCCESS);
	cr_assert(shows_in_time(&rig, 100000, 32768, 2), "written");

	program_fill(&rig.prog, 3);
	engine_bed_post(qp[1], KARST_WR_RDMA_WRITE, 6, (void *)(uintptr_t)addr, 65536, r.key,
		rig.local, rig.local_key);
	cr_assert_eq(wait_one(&rig), KARST_WC_SUCCESS);
	engine_bed_settle(&rig.bed);
	expect_local(&rig, 0, 65536, 3, "sent");

	cr_assert_eq(program_munmap(&rig.prog, addr + 8192, len - 8192), 0);
	engine_bed_post_recv(qp[1], 7, (void *)(uintptr_t)(addr + 4096), 65536, r.key);
	engine_bed_post(qp[0], KARST_WR_SEND, 8, rig.local, 65536, rig.local_key, NULL, 0);
	for (i = 0; i < 2; i++) {
		cr_assert(engine_bed_wait(&rig.bed, &cqe));
		cr_assert_eq(cqe.status, cqe.wr_id == 7 ? KARST_WC_LOC_PROT_ERR : KARST_WC_SUCCESS);
	}
	engine_bed_post(
		qp[0], KARST_WR_SEND, 9, (void *)(uintptr_t)(addr + 4096), 65536, r.key, NULL, 0);
	cr_assert_eq(wait_one(&rig), KARST_WC_LOC_PROT_ERR);
	program_end(&rig.prog);
	rig_down(&rig);
}

/* --- many --- */

/* The number of the engine's mappings does not grow, whatever comes and goes. */
Test(space, regions_come_and_go)
{
	static struct program_pieces p;
	struct karst_space_region *r[64];
	struct rig rig;
	unsigned int i, k, before = 0;
	uint64_t addr, len;

	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_MALLOC, &addr, &len), 0);
	cr_assert_eq(program_register(&rig.prog, addr, len, true, 4096, &p), 0);
	for (k = 0; k < ROUNDS; k++) {
		for (i = 0; i < KARST_DIM(r); i++)
			cr_assert_eq(karst_space_map(rig.space, addr + i, len - 60 * i, true,
					     p.piece, p.n, p.fds, p.nfds, &r[i], p.why),
				0, "%s", p.why);
		for (i = 0; i < KARST_DIM(r); i++)
			karst_space_unmap(r[(i * 37) % KARST_DIM(r)]);
		if (k == 0)
			before = maps_count();
	}
	cr_assert_leq(maps_count(), before);
	karst_ctl_close_fds(p.fds, p.nfds);
	program_end(&rig.prog);
	rig_down(&rig);
}
