/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Owners: two programs that see nothing but their memory files, mapped as another process would map
 * them, and one program that rings for queue pairs that are not its own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "engine_bed.h"
#include "karst_owner.h"

#define MSG      4096u
#define MAP_USED (256u << 10) /* all objects of these tests fit in it */

/* What one program has of the engine. */
struct program {
	struct karst_engine_owner *owner;
	struct karst_engine_cq *cq;
	struct karst_engine_qp *qp;
	/* the program's own mappings of its files */
	uint8_t *map[8];
	uint64_t bytes[8];
	struct karst_wq sq;
	struct karst_cq_lane lane[4];
	struct karst_bell_shared *bell;
	uint32_t cells;
	int wake_fd;
	unsigned int cq_events, async_events;
	uint8_t mem[MSG];
	uint32_t key;
};

static void
on_cq(void *user, struct karst_engine_cq *cq)
{
	((struct program *)user)->cq_events++;
}

static void
on_async(void *user, const struct karst_engine_event *event)
{
	((struct program *)user)->async_events++;
}

static const struct karst_engine_ops ops = {.cq_event = on_cq, .async_event = on_async};

/* Where the program has mapped what is at @p in the engine. */
static void *
own_view(struct program *p, const void *at)
{
	uint32_t chunk;
	uint64_t off;
	int fd;

	cr_assert_eq(karst_engine_owner_locate(p->owner, at, &chunk, &off), 0);
	cr_assert_lt(chunk, KARST_DIM(p->map));
	if (p->map[chunk] == NULL) {
		cr_assert_eq(karst_engine_owner_chunk(p->owner, chunk, &fd, &p->bytes[chunk]), 0);
		p->map[chunk] =
			mmap(NULL, p->bytes[chunk], PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		cr_assert_neq(p->map[chunk], MAP_FAILED);
		cr_assert_neq(p->map[chunk], at);
	}
	return p->map[chunk] + off;
}

static void
program_up(struct engine_bed *bed, struct program *p, const char *name, uint32_t lcore)
{
	const struct karst_engine_owner_init init = {
		.name = name, .max_qps = 4, .ops = &ops, .user = p};
	struct karst_engine_cq_init cq = {.entries = 64};
	struct karst_engine_qp_init qp = {.type = KARST_QPT_RC,
		.lcore = lcore,
		.pd = bed->pd,
		.max_send_wr = 16,
		.max_recv_wr = 16,
		.max_dest_rd_atomic = 16};
	uint32_t i;

	memset(p, 0, sizeof(*p));
	cr_assert_eq(karst_engine_owner_create(bed->e, &init, &p->owner), 0);
	cq.owner = qp.owner = p->owner;
	cr_assert_eq(karst_engine_cq_create(bed->e, &cq, &p->cq), 0);
	qp.send_cq = qp.recv_cq = p->cq;
	cr_assert_eq(karst_engine_qp_create(bed->e, &qp, &p->qp), 0);
	cr_assert_eq(karst_engine_owner_bell(p->owner, lcore, &p->bell, &p->cells, &p->wake_fd), 0);
	p->bell = own_view(p, p->bell);
	karst_wq_attach(&p->sq, own_view(p, p->qp->sq.sh), 16, karst_wq_stride(true, 1, 0));
	for (i = 0; i < p->cq->nlanes; i++)
		karst_cq_lane_attach(
			&p->lane[i], own_view(p, p->cq->lane[i].sh), p->cq->entries, 0);
	p->key = engine_bed_mr(bed, p->mem, sizeof(p->mem));
}

static void
program_down(struct engine_bed *bed, struct program *p)
{
	unsigned int i;

	cr_assert_eq(karst_engine_mr_dereg(bed->e, p->key), 0);
	cr_assert_eq(karst_engine_owner_destroy(p->owner), -EBUSY);
	cr_assert_eq(karst_engine_qp_destroy(bed->e, p->qp), 0);
	cr_assert_eq(karst_engine_owner_destroy(p->owner), -EBUSY);
	cr_assert_eq(karst_engine_cq_destroy(bed->e, p->cq), 0);
	cr_assert_eq(karst_engine_owner_destroy(p->owner), 0);
	/* mappings that the program still has do no harm */
	for (i = 0; i < KARST_DIM(p->map); i++) {
		if (p->map[i] == NULL)
			continue;
		memset(p->map[i], 0xff, karst_min_u64(p->bytes[i], MAP_USED));
		munmap(p->map[i], p->bytes[i]);
	}
}

static void
program_write(struct program *p, const struct program *to, uint64_t wr_id)
{
	struct karst_send_wqe *w;

	cr_assert_geq(karst_wq_free(&p->sq, 1), 1);
	w = karst_wq_slot(&p->sq, 0);
	memset(w, 0, sizeof(*w));
	w->wr_id = wr_id;
	w->opcode = KARST_WR_RDMA_WRITE;
	w->flags = KARST_SEND_SIGNALED;
	w->num = 1;
	w->rdma.remote_addr = (uintptr_t)to->mem;
	w->rdma.rkey = to->key;
	w->sge[0] = (struct karst_sge){.addr = (uintptr_t)p->mem, .len = MSG, .lkey = p->key};
	if (!karst_wq_publish(&p->sq, 1))
		return;
	cr_assert_eq(karst_bell_ring(p->bell, p->cells - 1, p->qp->num), 0);
	if (karst_bell_must_wake(p->bell))
		karst_engine_wake(p->wake_fd);
}

/* Takes a completion, if there is one. */
static bool
program_poll(struct program *p, struct karst_cqe *cqe)
{
	const struct karst_cqe *at;
	uint32_t i;

	for (i = 0; i < p->cq->nlanes; i++) {
		if (karst_cq_lane_peek(&p->lane[i], &at) == 0)
			continue;
		*cqe = *at;
		karst_cq_lane_take(&p->lane[i], 1);
		return true;
	}
	return false;
}

static void
exchange(struct engine_bed *bed, struct program *a, struct program *b, unsigned int rounds)
{
	struct karst_cqe cqe;
	unsigned int i;

	for (i = 0; i < rounds; i++) {
		struct program *from = i & 1 ? a : b, *to = i & 1 ? b : a;

		engine_bed_fill(from->mem, MSG, i);
		program_write(from, to, i);
		engine_bed_settle(bed);
		cr_assert(program_poll(from, &cqe), "round %u", i);
		cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
		cr_assert_eq(cqe.wr_id, i);
		cr_assert_eq(memcmp(a->mem, b->mem, MSG), 0);
	}
}

Test(owner, two_programs_over_their_own_mappings)
{
	struct engine_bed_config cfg = {.engine.lcores = 2};
	static struct program a, b;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	program_up(&bed, &a, "a", 0);
	program_up(&bed, &b, "b", 1);
	engine_bed_connect(&bed, a.qp, b.qp);
	exchange(&bed, &a, &b, 100);
	cr_assert_gt(karst_engine_owner_ring_bytes(a.owner), 0);
	program_down(&bed, &a);
	program_down(&bed, &b);
	engine_bed_down(&bed);
}

/* Events go to the owner of the queue. */
Test(owner, events)
{
	struct engine_bed_config cfg = {0};
	static struct program a, b;
	struct karst_cqe cqe;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	program_up(&bed, &a, "a", 0);
	program_up(&bed, &b, "b", 0);
	engine_bed_connect(&bed, a.qp, b.qp);
	karst_cq_arm(own_view(&a, a.cq->sh), false);
	program_write(&a, &b, 1);
	engine_bed_settle(&bed);
	cr_assert(program_poll(&a, &cqe));
	cr_assert_eq(a.cq_events, 1);
	cr_assert_eq(b.cq_events, 0);
	/* an impossible tail fails the queue pair it belongs to, and its owner gets an event */
	atomic_store(&b.sq.sh->tail, 0x55555555);
	cr_assert_eq(karst_bell_ring(b.bell, b.cells - 1, b.qp->num), 0);
	engine_bed_settle(&bed);
	cr_assert_eq(a.async_events, 0);
	cr_assert_eq(b.async_events, 1);
	program_down(&bed, &a);
	program_down(&bed, &b);
	engine_bed_down(&bed);
}

/* Whatever one program rings and writes into its doorbell ring, the other's queue pairs are not
 * affected. */
Test(owner, hostile_bell)
{
	struct engine_bed_config cfg = {.engine.lcores = 2};
	static struct program a, b;
	struct karst_engine_lcore_stats before, after;
	unsigned int round, i, seed = 1;
	struct karst_cqe cqe;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	program_up(&bed, &a, "a", 0);
	program_up(&bed, &b, "b", 0);
	engine_bed_connect(&bed, a.qp, b.qp);
	engine_bed_settle(&bed);
	/* a has posted without ringing; b may not ring for it */
	program_write(&a, &b, 7);
	engine_bed_settle(&bed);
	cr_assert(program_poll(&a, &cqe));
	atomic_store(&a.sq.sh->idle, 0);
	program_write(&a, &b, 8);
	cr_assert_eq(karst_engine_lcore_stats(bed.e, 0, &before), 0);
	cr_assert_eq(karst_bell_ring(b.bell, b.cells - 1, a.qp->num), 0);
	engine_bed_settle(&bed);
	cr_assert_eq(karst_engine_lcore_stats(bed.e, 0, &after), 0);
	cr_assert_eq(after.doorbells, before.doorbells + 1);
	cr_assert_not(program_poll(&a, &cqe));
	cr_assert_eq(karst_bell_ring(a.bell, a.cells - 1, a.qp->num), 0);
	engine_bed_settle(&bed);
	cr_assert(program_poll(&a, &cqe));
	cr_assert_eq(cqe.wr_id, 8);
	/* random values in every byte of the ring, in the asleep word and in the eventfd */
	for (round = 0; round < 200; round++) {
		for (i = 0; i < karst_bell_bytes(b.cells); i++)
			((uint8_t *)b.bell)[i] = (uint8_t)rand_r(&seed);
		karst_engine_wake(b.wake_fd);
		engine_bed_fill(a.mem, MSG, round);
		program_write(&a, &b, round);
		engine_bed_settle(&bed);
		cr_assert(program_poll(&a, &cqe));
		cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
		cr_assert_eq(memcmp(a.mem, b.mem, MSG), 0);
	}
	program_down(&bed, &b);
	program_down(&bed, &a);
	engine_bed_down(&bed);
}

Test(owner, nobody_uses_another_ones_queue)
{
	struct engine_bed_config cfg = {0};
	struct karst_engine_qp_init init = {
		.type = KARST_QPT_RC, .max_send_wr = 1, .max_recv_wr = 1};
	static struct program a, b;
	struct karst_engine_qp *qp;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	program_up(&bed, &a, "a", 0);
	program_up(&bed, &b, "b", 0);
	init.pd = bed.pd;
	init.owner = a.owner;
	init.send_cq = a.cq;
	init.recv_cq = b.cq;
	cr_assert_eq(karst_engine_qp_create(bed.e, &init, &qp), -EINVAL);
	init.recv_cq = bed.cq;
	cr_assert_eq(karst_engine_qp_create(bed.e, &init, &qp), -EINVAL);
	init.owner = NULL;
	cr_assert_eq(karst_engine_qp_create(bed.e, &init, &qp), -EINVAL);
	program_down(&bed, &a);
	program_down(&bed, &b);
	engine_bed_down(&bed);
}

Test(owner, limits)
{
	struct engine_bed_config cfg = {.engine.max_owners = 3};
	struct karst_engine_owner_init init = {.max_ring_bytes = 1};
	struct karst_engine_cq_init cq = {.entries = 1024};
	struct karst_engine_owner *owner[4];
	struct karst_engine_cq *cqs[256];
	unsigned int i, n;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	for (i = 0; i < 3; i++)
		cr_assert_eq(karst_engine_owner_create(bed.e, &init, &owner[i]), 0);
	cr_assert_eq(karst_engine_owner_create(bed.e, &init, &owner[3]), -ENOSPC);
	cr_assert_eq(karst_engine_owner_destroy(owner[1]), 0);
	cr_assert_eq(karst_engine_owner_create(bed.e, &init, &owner[1]), 0);
	/* one chunk, and no more */
	cq.owner = owner[1];
	for (n = 0; n < 256 && karst_engine_cq_create(bed.e, &cq, &cqs[n]) == 0; n++)
		;
	cr_assert_gt(n, 10);
	cr_assert_lt(n, 256);
	cr_assert_leq(karst_engine_owner_ring_bytes(owner[1]), 2 << 20);
	cr_assert_eq(karst_engine_cq_destroy(bed.e, cqs[0]), 0);
	cr_assert_eq(karst_engine_cq_create(bed.e, &cq, &cqs[0]), 0);
	for (i = 0; i < n; i++)
		cr_assert_eq(karst_engine_cq_destroy(bed.e, cqs[i]), 0);
	for (i = 0; i < 3; i++)
		cr_assert_eq(karst_engine_owner_destroy(owner[i]), 0);
	engine_bed_down(&bed);
}

/* More owners than an lcore serves in one turn: the doorbells of all are served. */
Test(owner, many)
{
	enum { MANY = 50 };
	struct engine_bed_config cfg = {.engine.max_owners = MANY};
	static struct program p[MANY];
	struct karst_cqe cqe;
	unsigned int i, round;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	for (i = 0; i < MANY; i++)
		program_up(&bed, &p[i], "many", 0);
	for (i = 0; i < MANY; i += 2)
		engine_bed_connect(&bed, p[i].qp, p[i + 1].qp);
	for (round = 0; round < 10; round++) {
		for (i = 0; i < MANY; i++)
			program_write(&p[i], &p[i ^ 1], round);
		engine_bed_settle(&bed);
		for (i = 0; i < MANY; i++) {
			cr_assert(program_poll(&p[i], &cqe), "program %u", i);
			cr_assert_eq(cqe.wr_id, round);
		}
	}
	for (i = 0; i < MANY; i++)
		program_down(&bed, &p[(i * 7) % MANY]);
	engine_bed_down(&bed);
}

/* Owners are created and destroyed while two others exchange data, with lcores on threads of their
 * own. */
Test(owner, come_and_go_under_traffic)
{
	struct engine_bed_config cfg = {.engine = {.lcores = 2, .max_owners = 4}};
	static struct program a, b, c;
	unsigned int round, files = 0, i;
	struct engine_bed_poller poller;
	unsigned int maps = 0;
	struct karst_cqe cqe;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	program_up(&bed, &a, "a", 0);
	program_up(&bed, &b, "b", 1);
	engine_bed_connect(&bed, a.qp, b.qp);
	engine_bed_poller_start(&poller, &bed, 3);
	for (round = 0; round < 600; round++) {
		engine_bed_fill(a.mem, MSG, round);
		program_write(&a, &b, round);
		program_up(&bed, &c, "c", round & 1);
		karst_bell_ring(c.bell, c.cells - 1, a.qp->num);
		karst_bell_ring(c.bell, c.cells - 1, c.qp->num);
		program_down(&bed, &c);
		for (i = 0; i < 100000000 && !program_poll(&a, &cqe); i++)
			sched_yield();
		cr_assert_eq(cqe.wr_id, round);
		cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
		cr_assert_eq(memcmp(a.mem, b.mem, MSG), 0);
		if (round == 100) {
			files = engine_bed_open_fds();
			maps = engine_bed_mappings("");
		}
	}
	cr_assert_eq(engine_bed_open_fds(), files);
	cr_assert_leq(engine_bed_mappings(""), maps);
	engine_bed_poller_stop(&poller);
	program_down(&bed, &a);
	program_down(&bed, &b);
	engine_bed_down(&bed);
}

/* The end of a session that has many objects. */
Test(owner, many_objects_end_at_once)
{
	enum { QPS = 1000, KEYS = 10000, AHS = 500 };
	static struct karst_engine_qp *qp[QPS];
	static uint32_t key[KEYS], ah[AHS], mw[AHS];
	struct engine_bed_config cfg = {
		.engine = {.lcores = 2, .max_qps = 1024, .max_keys = 16384}};
	struct karst_engine_owner_init oinit = {.name = "many"};
	struct karst_engine_qp_init init = {.type = KARST_QPT_RC,
		.lcore = KARST_ENGINE_ANY_LCORE,
		.max_send_wr = 16,
		.max_recv_wr = 16};
	struct karst_engine_cq_init cq = {.entries = 64};
	struct karst_engine_port_info info;
	struct karst_engine_owner *owner;
	struct engine_bed_poller poller;
	struct karst_path path;
	static uint8_t mem[64];
	unsigned int i, round;
	uint64_t began;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	engine_bed_poller_start(&poller, &bed, 3);
	cr_assert_eq(karst_engine_port_info(bed.e, bed.port[1], &info), 0);
	cr_assert_eq(
		karst_engine_path_init(bed.e, bed.port[0], 0, info.mac, info.addrs[0].ip, &path),
		0);
	for (round = 0; round < 2; round++) {
		cr_assert_eq(karst_engine_owner_create(bed.e, &oinit, &owner), 0);
		cq.owner = init.owner = owner;
		init.pd = bed.pd;
		cr_assert_eq(karst_engine_cq_create(bed.e, &cq, &init.send_cq), 0);
		init.recv_cq = init.send_cq;
		for (i = 0; i < QPS; i++)
			cr_assert_eq(karst_engine_qp_create(bed.e, &init, &qp[i]), 0);
		for (i = 0; i < KEYS; i++)
			key[i] = engine_bed_mr(&bed, mem, sizeof(mem));
		for (i = 0; i < AHS; i++) {
			cr_assert_eq(karst_engine_ah_create(bed.e, bed.pd, &path, &ah[i]), 0);
			cr_assert_eq(
				karst_engine_mw_alloc(bed.e, bed.pd, KARST_MEM_MW2, &mw[i]), 0);
		}
		began = karst_engine_now_ns(bed.e);
		cr_assert_eq(karst_engine_qp_destroy_many(bed.e, qp, QPS), 0);
		cr_assert_eq(karst_engine_mw_free_many(bed.e, mw, AHS), 0);
		cr_assert_eq(karst_engine_mr_dereg_many(bed.e, key, KEYS), 0);
		cr_assert_eq(karst_engine_ah_destroy_many(bed.e, ah, AHS), 0);
		cr_log_info("%u us", (unsigned int)((karst_engine_now_ns(bed.e) - began) / 1000));
		cr_assert_eq(karst_engine_mr_dereg_many(bed.e, key, KEYS), -EINVAL);
		cr_assert_eq(karst_engine_cq_destroy(bed.e, init.send_cq), 0);
		cr_assert_eq(karst_engine_owner_destroy(owner), 0);
	}
	engine_bed_poller_stop(&poller);
	cr_assert_eq(karst_engine_cq_destroy(bed.e, bed.cq), 0);
	cr_assert_eq(karst_engine_pd_free(bed.e, bed.pd), 0, "nothing refers to it any more");
	engine_bed_down(&bed);
}
