/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Memory that vanishes, is held, or never becomes available while requests use it: that program's
 * requests fail, and no other program's.
 */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "karst_ctl_sock.h"
#include "space_bed.h"

Test(space, r13_unmapped_under_traffic)
{
	struct region r;
	struct rig rig;
	uint64_t addr, len;

	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_PRIVATE_FILE, &addr, &len), 0);
	cr_assert_eq(region_make(&rig, addr, len, true, UINT64_MAX, &r), 0);
	cr_assert_eq(r.copied, len);
	cr_assert_eq(program_munmap(&rig.prog, addr + 8192, len - 8192), 0);
	/* the part that is left works, the part that is gone does not, and no byte of it is
	 * invented */
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_RDMA_WRITE, 0, addr, 8192, r.key), 0);
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_RDMA_WRITE, 0, addr, 65536, r.key),
		KARST_WC_REM_ACCESS_ERR);
	cr_assert_eq(remote_op(&rig, 1, KARST_WR_RDMA_READ, 0, addr, 65536, r.key),
		KARST_WC_REM_ACCESS_ERR);
	cr_assert_not(karst_space_failed(rig.space), "it hurts its own requests alone");
	program_end(&rig.prog);
	rig_down(&rig);
}

Test(space, unmapped_under_own_requests)
{
	struct karst_cqe cqe;
	struct region r;
	struct rig rig;
	uint64_t addr, len;
	unsigned int i, remote = 0, local = 0;

	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_PRIVATE_FILE, &addr, &len), 0);
	cr_assert_eq(region_make(&rig, addr, len, true, UINT64_MAX, &r), 0);
	cr_assert_eq(program_munmap(&rig.prog, addr + 8192, len - 8192), 0);
	cr_assert_eq(own_op(&rig, KARST_WR_RDMA_WRITE, 0, addr, 8192, r.key), 0);
	cr_assert_eq(
		own_op(&rig, KARST_WR_RDMA_WRITE, 0, addr, 65536, r.key), KARST_WC_LOC_PROT_ERR);
	/* a message to a receive whose memory is gone: both sides get an error */
	engine_bed_post_recv(rig.far[1], 3, (void *)(uintptr_t)addr, 65536, r.key);
	engine_bed_post(rig.near[1], KARST_WR_SEND, 4, rig.local, 65536, rig.local_key, NULL, 0);
	for (i = 0; i < 2; i++) {
		cr_assert(engine_bed_wait(&rig.bed, &cqe));
		remote += cqe.status == KARST_WC_REM_OP_ERR && cqe.wr_id == 4;
		local += cqe.status == KARST_WC_LOC_PROT_ERR && cqe.wr_id == 3;
	}
	cr_assert(remote == 1 && local == 1);
	program_end(&rig.prog);
	rig_down(&rig);
}

Test(space, own_read_into_what_is_gone)
{
	struct region r;
	struct rig rig;
	uint64_t addr, len;

	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_PRIVATE_FILE, &addr, &len), 0);
	cr_assert_eq(region_make(&rig, addr, len, true, UINT64_MAX, &r), 0);
	cr_assert_eq(program_munmap(&rig.prog, addr + 8192, len - 8192), 0);
	cr_assert_eq(
		own_op(&rig, KARST_WR_RDMA_READ, 0, addr, 65536, r.key), KARST_WC_LOC_PROT_ERR);
	program_end(&rig.prog);
	rig_down(&rig);
}

/* A file shrinks under the engine: SIGBUS in this process, no frame carries zeros, the program's
 * keys become invalid. */
Test(space, truncated_under_traffic)
{
	struct karst_space *other;
	struct program second;
	struct region r, good;
	static struct program_pieces p;
	struct rig rig;
	uint64_t addr, len, addr2, len2;

	program_start(&second, 0);
	rig_up(&rig);
	cr_assert_eq(karst_space_create(rig.bed.e, second.pid, second.pidfd, 0, 0, &other), 0);
	give_memory(other, second.pid);
	cr_assert_eq(program_make(&second, KIND_MEMFD, &addr2, &len2), 0);
	cr_assert_eq(program_register(&second, addr2, len2, true, UINT64_MAX, &p), 0);
	cr_assert_eq(karst_space_map(
			     other, addr2, len2, true, p.piece, p.n, p.fds, p.nfds, &good.r, p.why),
		0);
	cr_assert_eq(karst_engine_mr_reg(rig.bed.e, rig.bed.pd, karst_space_host(good.r), addr2,
			     len2, SPACE_ALL, &good.key),
		0);

	cr_assert_eq(program_make(&rig.prog, KIND_MEMFD, &addr, &len), 0);
	cr_assert_eq(region_make(&rig, addr, len, true, UINT64_MAX, &r), 0);
	cr_assert_eq(r.copied, 0);
	fill_local(&rig, 65536, 9);
	cr_assert_eq(program_truncate(&rig.prog, 8192), 0);
	/* a READ of pages that are gone moves nothing but a NAK */
	cr_assert_neq(remote_op(&rig, 0, KARST_WR_RDMA_READ, 16384, addr + 16384, 16384, r.key), 0);
	expect_local(&rig, 0, 65536, 9, "what a failed READ left alone");
	cr_assert(karst_space_failed(rig.space));
	cr_assert_eq(remote_op(&rig, 1, KARST_WR_RDMA_WRITE, 0, addr, 8, r.key),
		KARST_WC_REM_ACCESS_ERR, "no key of it is good any more");

	/* another program has noticed nothing */
	rig.near[0] = engine_bed_qp(&rig.bed, KARST_QPT_RC, 0);
	rig.far[0] = engine_bed_qp(&rig.bed, KARST_QPT_RC, 0);
	engine_bed_connect(&rig.bed, rig.near[0], rig.far[0]);
	cr_assert_not(karst_space_failed(other));
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_RDMA_WRITE, 0, addr2, 65536, good.key), 0);
	cr_assert(program_shows(&second, 0, 65536, 9, 0));
	karst_space_destroy(other);
	program_end(&rig.prog);
	program_end(&second);
	rig_down(&rig);
}

/* The same when the program's own requests read the memory, and when something is written to it. */
Test(space, truncated_under_own_requests)
{
	struct region r;
	struct rig rig;
	uint64_t addr, len;

	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_POSIX_SHM, &addr, &len), 0);
	cr_assert_eq(region_make(&rig, addr, len, true, UINT64_MAX, &r), 0);
	cr_assert_eq(r.copied, 0);
	fill_local(&rig, 65536, 9);
	cr_assert_eq(program_truncate(&rig.prog, 0), 0);
	cr_assert_eq(
		own_op(&rig, KARST_WR_RDMA_WRITE, 0, addr, 65536, r.key), KARST_WC_LOC_PROT_ERR);
	expect_local(&rig, 0, 65536, 9, "the target of a request that failed");
	program_end(&rig.prog);
	rig_down(&rig);
}

Test(space, killed_under_traffic)
{
	struct region r;
	struct rig rig;
	uint64_t addr, len;

	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_STACK, &addr, &len), 0);
	cr_assert_eq(region_make(&rig, addr, len, true, UINT64_MAX, &r), 0);
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_RDMA_WRITE, 0, addr, 65536, r.key), 0);
	program_kill(&rig.prog);
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_RDMA_WRITE, 0, addr, 65536, r.key),
		KARST_WC_REM_ACCESS_ERR);
	cr_assert_eq(remote_op(&rig, 1, KARST_WR_RDMA_READ, 0, addr, 65536, r.key),
		KARST_WC_REM_ACCESS_ERR);
	cr_assert(karst_space_failed(rig.space));
	rig_down(&rig);
}

struct releaser {
	struct program *prog;
	uint64_t addr, len;
};

static void *
release_writers(void *arg)
{
	const struct releaser *r = arg;

	usleep(20000);
	cr_assert_eq(program_release_writers(r->prog, r->addr, r->len), 0);
	return NULL;
}

/* As while libkarst migrates a page of a copied region: a peer's WRITE to it waits. */
Test(space, writers_are_held)
{
	struct releaser held;
	struct region r;
	struct rig rig;
	uint64_t addr, len;
	pthread_t t;

	if (!can_migrate())
		cr_skip("needs userfaultfd");
	rig_up(&rig);
	cr_assert_eq(program_make(&rig.prog, KIND_ANONYMOUS, &addr, &len), 0);
	program_fill(&rig.prog, 1);
	cr_assert_eq(region_make(&rig, addr, 16 * 4096, true, UINT64_MAX, &r), 0);
	cr_assert_eq(r.copied, r.len);
	held = (struct releaser){&rig.prog, addr + 3 * 4096, 2 * 4096};
	fill_local(&rig, r.len, 2);
	cr_assert_eq(program_hold_writers(held.prog, held.addr, held.len), 0);
	cr_assert_eq(pthread_create(&t, NULL, release_writers, &held), 0);
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_RDMA_WRITE, 0, addr, (uint32_t)r.len, r.key),
		KARST_WC_SUCCESS);
	pthread_join(t, NULL);
	memset(rig.local, 0, r.len);
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_RDMA_READ, 0, addr, (uint32_t)r.len, r.key),
		KARST_WC_SUCCESS);
	expect_local(&rig, 0, r.len, 2, "written around and into held pages");
	/* a program that holds its writers for ever fails, no other one does, and not too soon */
	cr_assert_eq(program_hold_writers(held.prog, held.addr, held.len), 0);
	cr_assert_eq(remote_op(&rig, 0, KARST_WR_RDMA_WRITE, 0, addr, (uint32_t)r.len, r.key),
		KARST_WC_REM_ACCESS_ERR);
	program_kill(&rig.prog);
	rig_down(&rig);
}

/* A thread that polls an lcore does not wait for pages that never become available: other programs
 * go on, and in the end the program that has such pages fails. */
Test(space, nobody_who_polls_waits)
{
	static struct program_pieces p = {.n = 1};
	bool failed = false;
	struct karst_cqe cqe;
	struct region r;
	struct rig rig;
	int others = 0;

	if (access("/dev/fuse", R_OK | W_OK) != 0)
		cr_skip("needs /dev/fuse");
	rig_up(&rig);
	p.piece[0] = (struct karst_ctl_piece){
		.len = 65536, .kind = KARST_CTL_PIECE_COPY, .flags = KARST_CTL_PIECE_ON_DEMAND};
	cr_assert_eq(program_never(&rig.prog, 65536, &p.piece[0].addr), 0);
	cr_assert_eq(map_pieces(&rig, p.piece[0].addr, 65536, true, &p, &r), 0, "%s", p.why);
	engine_bed_post(rig.near[0], KARST_WR_RDMA_WRITE, 7, rig.local, 65536, rig.local_key,
		(void *)(uintptr_t)r.addr, r.key);
	/* memory of another program */
	engine_bed_post(rig.near[1], KARST_WR_RDMA_WRITE, 8, rig.local, 4096, rig.local_key,
		rig.local + 8192, rig.local_key);
	/* the first request may fail earlier, because it was retried too often */
	while (!failed || others == 0 || !karst_space_failed(rig.space)) {
		cr_assert(engine_bed_wait(&rig.bed, &cqe), "no completion");
		if (cqe.wr_id == 7) {
			cr_assert_neq(cqe.status, KARST_WC_SUCCESS);
			failed = true;
			continue;
		}
		cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
		others++;
		engine_bed_post(rig.near[1], KARST_WR_RDMA_WRITE, 8, rig.local, 4096, rig.local_key,
			rig.local + 8192, rig.local_key);
	}
	program_kill(&rig.prog);
	rig_down(&rig);
}
