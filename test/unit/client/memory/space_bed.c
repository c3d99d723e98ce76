/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Maps the child's memory as a session does; requests go through two lcores. */
#include "space_bed.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "karst_ctl_sock.h"

/* Hands over what a program sends with HELLO. */
void
give_memory(struct karst_space *s, pid_t pid)
{
	char path[32], why[KARST_CTL_WHY];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	fd = open(path, O_RDWR);
	cr_assert_eq(karst_space_reach(s, fd, why), 0, "%s", why);
	close(fd);
}

static void
rig_up_with(struct rig *rig, uid_t uid, const struct engine_bed_config *cfg)
{
	unsigned int i;

	rig->nkeys = 0;
	program_start(&rig->prog, uid);
	engine_bed_up(&rig->bed, cfg);
	cr_assert_eq(karst_space_create(
			     rig->bed.e, rig->prog.pid, rig->prog.pidfd, uid, uid, &rig->space),
		0);
	give_memory(rig->space, rig->prog.pid);
	for (i = 0; i < 2; i++) {
		rig->near[i] = engine_bed_qp(&rig->bed, KARST_QPT_RC, i);
		rig->far[i] = engine_bed_qp(&rig->bed, KARST_QPT_RC, i);
		engine_bed_connect(&rig->bed, rig->near[i], rig->far[i]);
	}
	rig->local =
		mmap(NULL, SPACE_LOCAL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(rig->local, MAP_FAILED);
	rig->local_key = engine_bed_mr(&rig->bed, rig->local, SPACE_LOCAL);
}

void
rig_up_as(struct rig *rig, uid_t uid)
{
	rig_up_with(rig, uid, &(struct engine_bed_config){.engine = {.lcores = 2}});
}

void
rig_up(struct rig *rig)
{
	rig_up_as(rig, 0);
}

void
rig_up_started(struct rig *rig)
{
	rig_up_with(rig, 0,
		&(struct engine_bed_config){.engine = {.lcores = 2, .idle = KARST_IDLE_SLEEP}});
	engine_bed_release(&rig->bed);
	rig->bed.mine = 0;
	cr_assert_eq(karst_engine_start(rig->bed.e, NULL), 0);
}

void
rig_down(struct rig *rig)
{
	/* as when a session ends: no waiting packet finds memory of the space any more */
	cr_assert_eq(karst_engine_mr_dereg_many(rig->bed.e, rig->key, rig->nkeys), 0);
	karst_space_destroy(rig->space);
	munmap(rig->local, SPACE_LOCAL);
	engine_bed_down(&rig->bed);
}

int
map_pieces(struct rig *rig, uint64_t addr, uint64_t len, bool write, struct program_pieces *p,
	struct region *out)
{
	int ret = karst_space_map(
		rig->space, addr, len, write, p->piece, p->n, p->fds, p->nfds, &out->r, p->why);

	karst_ctl_close_fds(p->fds, p->nfds);
	if (ret != 0)
		return ret;
	cr_assert_lt(rig->nkeys, SPACE_KEYS);
	out->addr = addr;
	out->len = len;
	karst_space_bytes(out->r, &out->shared, &out->migrated, &out->copied);
	cr_assert_eq(out->shared + out->copied, len);
	cr_assert_leq(out->migrated, out->shared);
	cr_assert_eq(karst_engine_mr_reg(rig->bed.e, rig->bed.pd, karst_space_host(out->r), addr,
			     len, write ? SPACE_ALL : KARST_ACCESS_REMOTE_READ, &out->key),
		0);
	rig->key[rig->nkeys++] = out->key;
	return 0;
}

/* Makes a region as a session does for REG_MR; returns errors of the program's side, too. */
int
region_make(
	struct rig *rig, uint64_t addr, uint64_t len, bool write, uint64_t min, struct region *out)
{
	static struct program_pieces p;
	int ret = program_register(&rig->prog, addr, len, write, min, &p);

	if (ret == 0)
		ret = map_pieces(rig, addr, len, write, &p, out);
	if (ret != 0)
		cr_assert_gt(strlen(p.why), 0, "a reason");
	return ret;
}

void
region_drop(struct rig *rig, struct region *r)
{
	uint32_t i = 0;

	while (rig->key[i] != r->key)
		i++;
	rig->key[i] = rig->key[--rig->nkeys];
	cr_assert_eq(karst_engine_mr_dereg(rig->bed.e, r->key), 0);
	karst_space_unmap(r->r);
}

/* --- traffic --- */

enum karst_wc_status
wait_one(struct rig *rig)
{
	struct karst_cqe cqe;

	cr_assert(engine_bed_wait(&rig->bed, &cqe), "no completion");
	return (enum karst_wc_status)cqe.status;
}

/* A request of the peer: @op between our local memory and the program's. */
enum karst_wc_status
remote_op(struct rig *rig, unsigned int pair, enum karst_wr_opcode op, uint64_t local_off,
	uint64_t addr, uint32_t len, uint32_t key)
{
	engine_bed_post(rig->near[pair], op, 1, rig->local + local_off, len, rig->local_key,
		(void *)(uintptr_t)addr, key);
	return wait_one(rig);
}

/* A request of the program: its memory is local to far[]. */
enum karst_wc_status
own_op(struct rig *rig, enum karst_wr_opcode op, uint64_t local_off, uint64_t addr, uint32_t len,
	uint32_t key)
{
	engine_bed_post(rig->far[0], op, 2, (void *)(uintptr_t)addr, len, key,
		rig->local + local_off, rig->local_key);
	return wait_one(rig);
}

void
fill_local(struct rig *rig, uint64_t len, unsigned int seed)
{
	uint64_t i;

	for (i = 0; i < len; i++)
		rig->local[i] = program_byte(seed, i);
}

void
expect_local(
	const struct rig *rig, uint64_t from, uint64_t len, unsigned int seed, const char *what)
{
	uint64_t i;

	for (i = 0; i < len; i++)
		if (rig->local[i] != program_byte(seed, from + i))
			cr_assert_fail("%s: byte %llu of %llu", what, (unsigned long long)i,
				(unsigned long long)len);
}

/* Sends a message from near to a receive in the program's memory. */
static void
receive(struct rig *rig, uint64_t addr, uint32_t len, uint32_t key)
{
	engine_bed_post_recv(rig->far[0], 3, (void *)(uintptr_t)addr, len, key);
	engine_bed_post(rig->near[0], KARST_WR_SEND, 4, rig->local, len, rig->local_key, NULL, 0);
	cr_assert_eq(wait_one(rig), KARST_WC_SUCCESS);
	cr_assert_eq(wait_one(rig), KARST_WC_SUCCESS);
}

/* Runs every operation that reads or writes the region, and watches the bytes around it. */
void
exercise(struct rig *rig, const struct region *r, uint64_t edge)
{
	struct program *p = &rig->prog;
	uint32_t len = (uint32_t)r->len, third = len / 3;

	fill_local(rig, len, 2);
	cr_assert_eq(remote_op(rig, 0, KARST_WR_RDMA_WRITE, 0, r->addr, third, r->key), 0);
	cr_assert_eq(
		remote_op(rig, 1, KARST_WR_RDMA_WRITE, third, r->addr + third, len - third, r->key),
		0);
	cr_assert(program_shows(p, edge, len, 2, 0), "written");
	cr_assert(program_shows(p, 0, edge, 1, 0), "before it");

	program_fill(p, 3);
	memset(rig->local, 0, len);
	cr_assert_eq(remote_op(rig, 1, KARST_WR_RDMA_READ, 0, r->addr, len, r->key), 0);
	expect_local(rig, edge, len, 3, "read by a peer");

	program_fill(p, 4);
	cr_assert_eq(own_op(rig, KARST_WR_RDMA_WRITE, 0, r->addr, len, r->key), 0);
	expect_local(rig, edge, len, 4, "sent");

	fill_local(rig, len, 5);
	cr_assert_eq(own_op(rig, KARST_WR_RDMA_READ, 0, r->addr, len, r->key), 0);
	cr_assert(program_shows(p, edge, len, 5, 0), "the result of an own READ");

	fill_local(rig, len, 6);
	receive(rig, r->addr, len, r->key);
	cr_assert(program_shows(p, edge, len, 6, 0), "received");
	cr_assert(program_shows(p, 0, edge, 4, 0), "before it, to the end");
}

bool
can_migrate(void)
{
	return geteuid() == 0 || access("/dev/userfaultfd", R_OK | W_OK) == 0;
}

void
post_faa(struct rig *rig, unsigned int pair, uint64_t addr, uint32_t key)
{
	struct karst_engine_qp *qp = rig->near[pair];
	struct karst_send_wqe *w;

	cr_assert_geq(karst_engine_send_room(qp, 1), 1);
	w = karst_engine_send_slot(qp, 0);
	memset(w, 0, sizeof(*w));
	w->opcode = KARST_WR_ATOMIC_FAA;
	w->flags = KARST_SEND_SIGNALED;
	w->num = 1;
	w->rdma.remote_addr = addr;
	w->rdma.rkey = key;
	w->atomic.compare_add = 1;
	w->atomic.sge[0] = (struct karst_sge){
		.addr = (uintptr_t)rig->local + 64 * pair, .len = 8, .lkey = rig->local_key};
	cr_assert_eq(karst_engine_post_send(qp, 1), 0);
}
