/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Control calls: from other threads, across reactors, from callbacks, under traffic; limits. */
#include <sched.h>

#include <criterion/criterion.h>
#include <time.h>

#include "engine_bed.h"

#define BUF (256u << 10)

/* --- which thread --- */

/* The lcore is polled by one thread, and this is another one. */
Test(control, from_another_thread)
{
	struct engine_bed_config cfg = {0};
	struct karst_engine_lcore_stats st;
	struct engine_bed_poller poller;
	struct karst_core_qp_attr attr;
	struct engine_bed bed;
	unsigned int i;

	engine_bed_up(&bed, &cfg);
	engine_bed_poller_start(&poller, &bed, 1);
	for (i = 0; i < 50; i++) {
		struct karst_engine_qp *a = engine_bed_qp(&bed, KARST_QPT_RC, 0);
		struct karst_engine_qp *b = engine_bed_qp(&bed, KARST_QPT_RC, 0);

		engine_bed_connect(&bed, a, b);
		cr_assert_eq(karst_engine_qp_query(bed.e, b, &attr), 0);
		cr_assert_eq(attr.qp_state, KARST_QPS_RTS);
		cr_assert_eq(attr.dest_qpn, a->num);
		cr_assert_eq(karst_engine_qp_destroy(bed.e, a), 0);
		cr_assert_eq(karst_engine_qp_destroy(bed.e, b), 0);
	}
	engine_bed_poller_stop(&poller);
	cr_assert_eq(karst_engine_lcore_stats(bed.e, 0, &st), 0);
	cr_assert_eq(st.messages, 50 * (2 + 6 + 1 + 2));
	engine_bed_down(&bed);
}

/* Two reactors, each of which makes calls about the other's objects; memory calls wait for both. */
struct reactor {
	struct engine_bed *bed;
	uint32_t mine;
	uint32_t other;
	unsigned int made;
	atomic_uint *running;
};

static void *
reactor(void *arg)
{
	struct reactor *r = arg;
	struct karst_engine *e = r->bed->e;
	static uint8_t mem[2][4096];

	while (r->made < 100) {
		struct karst_engine_qp *qp;
		uint32_t key;

		karst_engine_poll(e, r->mine);
		qp = engine_bed_qp(r->bed, KARST_QPT_RC, r->other);
		cr_assert_eq(qp->lcore, r->other);
		key = engine_bed_mr(r->bed, mem[r->mine], sizeof(mem[0]));
		cr_assert_eq(karst_engine_mr_dereg(e, key), 0);
		cr_assert_eq(karst_engine_qp_destroy(e, qp), 0);
		r->made++;
	}
	atomic_fetch_sub(r->running, 1);
	/* the other reactor may still wait for this one */
	while (atomic_load(r->running) > 0)
		if (karst_engine_poll(e, r->mine) == 0)
			sched_yield();
	karst_engine_release(e, r->mine);
	return NULL;
}

Test(control, two_reactors_across)
{
	struct engine_bed_config cfg = {.engine.lcores = 2};
	pthread_t thread[2];
	struct reactor r[2];
	atomic_uint running;
	struct engine_bed bed;
	unsigned int i;

	engine_bed_up(&bed, &cfg);
	atomic_init(&running, 2);
	for (i = 0; i < 2; i++) {
		r[i] = (struct reactor){
			.bed = &bed, .mine = i, .other = 1 - i, .running = &running};
		cr_assert_eq(pthread_create(&thread[i], NULL, reactor, &r[i]), 0);
	}
	for (i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	cr_assert_eq(r[0].made, 100);
	cr_assert_eq(r[1].made, 100);
	engine_bed_down(&bed);
}

/* One thread polls both lcores: there is no other thread to wait for. */
Test(control, one_thread_many_lcores)
{
	struct engine_bed_config cfg = {.engine.lcores = 2};
	struct karst_engine_qp *qp;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	karst_engine_poll(bed.e, 0);
	karst_engine_poll(bed.e, 1);
	qp = engine_bed_qp(&bed, KARST_QPT_RC, 1);
	cr_assert_eq(karst_engine_qp_destroy(bed.e, qp), 0);
	cr_assert_eq(karst_engine_destroy(bed.e), -EBUSY);
	engine_bed_down(&bed);
}

struct callback_seen {
	struct karst_engine *e;
	struct karst_engine_cq *cq;
	unsigned int times;
	int ret;
};

static void
on_cq(void *user, struct karst_engine_cq *cq)
{
	struct callback_seen *seen = user;
	uint32_t pd;

	seen->cq = cq;
	seen->times++;
	seen->ret = karst_engine_pd_alloc(seen->e, &pd);
}

/* The event comes once each time the queue is armed; control calls are not allowed in the
 * callback. */
Test(control, from_a_callback)
{
	const struct karst_engine_ops ops = {.cq_event = on_cq};
	struct callback_seen seen = {0};
	struct engine_bed_config cfg = {.engine = {.ops = &ops, .user = &seen}};
	static uint8_t mem[4096];
	struct karst_engine_qp *a, *b;
	struct karst_cqe cqe;
	struct engine_bed bed;
	uint32_t key, pd;
	int i;

	engine_bed_up(&bed, &cfg);
	seen.e = bed.e;
	a = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	b = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	engine_bed_connect(&bed, a, b);
	key = engine_bed_mr(&bed, mem, sizeof(mem));
	karst_cq_arm(bed.cq->sh, false);
	for (i = 0; i < 3; i++) {
		engine_bed_post(a, KARST_WR_RDMA_WRITE, 1, mem, 64, key, mem + 2048, key);
		cr_assert(engine_bed_wait(&bed, &cqe));
	}
	cr_assert_eq(seen.times, 1);
	cr_assert_eq(seen.cq, bed.cq);
	cr_assert_eq(seen.ret, -EDEADLK);
	cr_assert_eq(karst_engine_pd_alloc(bed.e, &pd), 0);
	engine_bed_down(&bed);
}

/* --- memory under traffic --- */

/* After the deregistration nothing is written to the memory any more, though the requester, in
 * another thread, goes on until it gets a NAK. */
Test(control, dereg_under_traffic)
{
	struct engine_bed_config cfg = {.engine.lcores = 2, .mask = {1, 2}};
	struct karst_engine_qp *a, *b;
	static uint8_t src[BUF], dst[BUF];
	struct engine_bed_poller poller;
	struct karst_cqe cqe;
	uint32_t ks, kd, i;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	a = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	b = engine_bed_qp(&bed, KARST_QPT_RC, 1);
	engine_bed_connect(&bed, a, b);
	ks = engine_bed_mr(&bed, src, BUF);
	kd = engine_bed_mr(&bed, dst, BUF);
	memset(src, 0x11, BUF);
	for (i = 0; i < 32; i++)
		engine_bed_post(a, KARST_WR_RDMA_WRITE, i, src, BUF, ks, dst, kd);
	engine_bed_poller_start(&poller, &bed, 3);
	cr_assert(engine_bed_wait(&bed, &cqe));
	cr_assert_eq(karst_engine_mr_dereg(bed.e, kd), 0);
	memset(dst, 0xee, BUF);
	do {
		/* all may have been written in time; one more is always under way */
		engine_bed_post(a, KARST_WR_RDMA_WRITE, i, src, BUF, ks, dst, kd);
		cr_assert(engine_bed_wait(&bed, &cqe));
	} while (cqe.status == KARST_WC_SUCCESS);
	cr_assert_eq(cqe.status, KARST_WC_REM_ACCESS_ERR, "status %u", cqe.status);
	engine_bed_poller_stop(&poller);
	for (i = 0; i < BUF; i++)
		cr_assert_eq(dst[i], 0xee, "byte %u", i);
	cr_assert_eq(karst_engine_mr_dereg(bed.e, kd), -EINVAL);
	engine_bed_down(&bed);
}

Test(control, rereg_keeps_the_key)
{
	struct engine_bed_config cfg = {0};
	static uint8_t mem[3][4096];
	struct karst_engine_qp *a, *b;
	struct karst_mr_attr attr;
	struct karst_cqe cqe;
	struct engine_bed bed;
	uint32_t key;

	engine_bed_up(&bed, &cfg);
	a = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	b = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	engine_bed_connect(&bed, a, b);
	key = engine_bed_mr(&bed, mem, sizeof(mem));
	attr = (struct karst_mr_attr){
		.host = mem[2], .va = (uintptr_t)mem[1], .len = sizeof(mem[0])};
	engine_bed_fill(mem[0], sizeof(mem[0]), 3);
	engine_bed_post(a, KARST_WR_RDMA_WRITE, 1, mem[0], 4096, key, mem[1], key);
	cr_assert(engine_bed_wait(&bed, &cqe));
	cr_assert_arr_eq(mem[0], mem[1], 4096);
	cr_assert_eq(karst_engine_mr_rereg(bed.e, key, KARST_REREG_TRANSLATION, &attr), 0);
	/* the same address now holds other memory */
	engine_bed_fill(mem[2], sizeof(mem[2]), 9);
	memset(mem[1], 0, sizeof(mem[1]));
	engine_bed_post(a, KARST_WR_RDMA_WRITE, 2, mem[1], 64, key, mem[1] + 64, key);
	cr_assert(engine_bed_wait(&bed, &cqe));
	cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
	cr_assert_arr_eq(mem[2], mem[2] + 64, 64);
	cr_assert_eq(mem[1][64], 0);
	engine_bed_down(&bed);
}

/* --- limits and refusals --- */

Test(control, limits)
{
	struct engine_bed_config cfg = {.engine = {.lcores = 2, .max_qps = 4}};
	struct karst_engine_qp_init init = {
		.type = KARST_QPT_RC, .max_send_wr = 3, .max_recv_wr = 1};
	const struct karst_engine_cq_init none = {.entries = 0};
	const struct karst_engine_cq_init many = {.entries = KARST_CQ_MAX_ENTRIES + 1};
	struct karst_engine_qp *qp[8], *more;
	struct karst_engine_cq *cq;
	unsigned int i, on[2] = {0};
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	init.lcore = KARST_ENGINE_ANY_LCORE;
	init.pd = bed.pd;
	init.send_cq = init.recv_cq = bed.cq;
	for (i = 0; i < 8; i++) {
		cr_assert_eq(karst_engine_qp_create(bed.e, &init, &qp[i]), 0);
		on[qp[i]->lcore]++;
	}
	cr_assert_eq(on[0], 4);
	cr_assert_eq(on[1], 4);
	cr_assert_eq(qp[0]->sq.mask + 1, 4);
	cr_assert_eq(karst_engine_qp_create(bed.e, &init, &more), -ENOSPC);
	cr_assert_eq(karst_engine_cq_destroy(bed.e, bed.cq), -EBUSY);
	cr_assert_eq(karst_engine_pd_free(bed.e, bed.pd), -EBUSY);
	cr_assert_eq(karst_engine_qp_destroy(bed.e, qp[3]), 0);
	cr_assert_eq(karst_engine_qp_create(bed.e, &init, &qp[3]), 0);
	for (i = 0; i < 8; i++)
		cr_assert_eq(karst_engine_qp_destroy(bed.e, qp[i]), 0);

	init.lcore = 2;
	cr_assert_eq(karst_engine_qp_create(bed.e, &init, &more), -EINVAL);
	init.lcore = 0;
	init.max_send_wr = KARST_WQ_MAX_SLOTS + 1;
	cr_assert_eq(karst_engine_qp_create(bed.e, &init, &more), -EINVAL);
	init.max_send_wr = 1;
	init.max_inline = KARST_WQ_MAX_INLINE + 1;
	cr_assert_eq(karst_engine_qp_create(bed.e, &init, &more), -EINVAL);
	init.max_inline = 0;
	init.pd = bed.pd + 1;
	cr_assert_eq(karst_engine_qp_create(bed.e, &init, &more), -EINVAL);
	cr_assert_eq(karst_engine_cq_create(bed.e, &none, &cq), -EINVAL);
	cr_assert_eq(karst_engine_cq_create(bed.e, &many, &cq), -EINVAL);
	cr_assert_eq(karst_engine_cq_destroy(bed.e, bed.cq), 0);
	cr_assert_eq(karst_engine_pd_free(bed.e, bed.pd), 0);
	engine_bed_down(&bed);
}

/* A destroyed object leaves nothing behind: the same memory serves the next thousand objects. */
Test(control, objects_come_and_go)
{
	struct engine_bed_config cfg = {.engine.max_qps = 4};
	struct engine_bed bed;
	unsigned int i;

	engine_bed_up(&bed, &cfg);
	for (i = 0; i < 1000; i++) {
		struct karst_engine_qp *a = engine_bed_qp(&bed, KARST_QPT_RC, 0);
		struct karst_engine_qp *b = engine_bed_qp(&bed, KARST_QPT_RC, 0);

		engine_bed_connect(&bed, a, b);
		cr_assert_eq(karst_engine_qp_destroy(bed.e, a), 0);
		cr_assert_eq(karst_engine_qp_destroy(bed.e, b), 0);
	}
	engine_bed_down(&bed);
}

Test(control, bad_configurations)
{
	static const struct karst_engine_config bad[] = {
		{.lcores = 65}, {.max_qps = 1u << 23}, {.max_keys = 1u << 21},
		{.max_ahs = 1u << 21}, {.max_pds = 65537}, {.max_owners = 4097},
		{.max_mcasts = 65537}, {.rx_burst = 65}, {.tx_burst = 65}, {.mbufs = 10},
		{.idle = (enum karst_idle)7}, {.name = "a name that is much too long"},
		{.name = "karst0"}, /* the name of the bed's engine */
	};
	struct engine_bed_config cfg = {0};
	struct karst_engine *e;
	struct engine_bed bed;
	size_t i;

	engine_bed_up(&bed, &cfg);
	for (i = 0; i < KARST_DIM(bad); i++)
		cr_assert_lt(karst_engine_create(&bad[i], &e), 0, "configuration %zu", i);
	engine_bed_down(&bed);
}

/* --- ports --- */

static int
try_port(struct engine_bed *bed, struct karst_engine_port_config port)
{
	uint8_t number;

	return karst_engine_port_add(bed->e, &port, &number);
}

Test(control, bad_ports)
{
	struct karst_engine_addr addr = karst_engine_addr_ip4(0x0a000001);
	struct karst_engine_port_config good = {.num_addrs = 1, .addrs = &addr};
	struct engine_bed_config cfg = {.engine.lcores = 2, .queues = 1, .mask = {1, 2}};
	struct karst_engine_port_config c;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	good.ethdev = bed.ethdev[0];
	c = good;
	c.ethdev = 99;
	cr_assert_eq(try_port(&bed, c), -EINVAL);
	c = good;
	c.num_addrs = 0;
	cr_assert_eq(try_port(&bed, c), -EINVAL);
	c = good;
	c.lcore_mask = 8;
	cr_assert_eq(try_port(&bed, c), -EINVAL);
	c = good;
	c.lcore_mask = 3; /* two lcores, and one device queue */
	cr_assert_eq(try_port(&bed, c), -EINVAL);
	c = good;
	c.mtu = 100;
	cr_assert_eq(try_port(&bed, c), -EINVAL);
	karst_engine_poll(bed.e, 0);
	c = good;
	c.lcore_mask = 1;
	cr_assert_eq(try_port(&bed, c), -EBUSY);
	engine_bed_down(&bed);
}

Test(control, paths_and_mtu)
{
	struct engine_bed_config cfg = {.engine.lcores = 2, .mask = {1, 2}, .mtu = 1500};
	struct karst_engine_port_info info;
	struct karst_engine_addr v6 = {.ip = {0xfd, [15] = 9}};
	struct karst_engine_qp *qp;
	struct karst_core_qp_attr attr;
	struct karst_path path;
	unsigned int mask;
	struct engine_bed bed;
	uint32_t ah;

	engine_bed_up(&bed, &cfg);
	cr_assert_eq(karst_engine_port_info(bed.e, 0, &info), 0);
	cr_assert_eq(info.mtu, 1500);
	cr_assert_eq(info.path_mtu, 3, "1024 fits 1500");
	cr_assert_eq(karst_engine_port_info(bed.e, 2, &info), -EINVAL);
	cr_assert_eq(karst_engine_path_init(bed.e, 0, 2, info.mac, v6.ip, &path), -EINVAL);
	cr_assert_eq(karst_engine_path_init(bed.e, 0, 0, info.mac, v6.ip, &path), -EINVAL);
	cr_assert_eq(karst_engine_path_init(bed.e, 0, 1, info.mac, v6.ip, &path), 0);

	qp = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	mask = engine_bed_attr(&bed, KARST_QPT_RC, 0, 0, KARST_QPS_INIT, &attr);
	attr.port_num = 3;
	cr_assert_eq(karst_engine_qp_modify(bed.e, qp, &attr, mask), -EINVAL);
	attr.port_num = 1;
	cr_assert_eq(karst_engine_qp_modify(bed.e, qp, &attr, mask), 0);
	mask = engine_bed_attr(&bed, KARST_QPT_RC, 0, 5, KARST_QPS_RTR, &attr);
	cr_assert_eq(karst_engine_qp_modify(bed.e, qp, &attr, mask), -EINVAL, "MTU 4096");
	attr.path_mtu = 3;
	path = attr.path;
	attr.path.port = 1;
	cr_assert_eq(karst_engine_qp_modify(bed.e, qp, &attr, mask), -EINVAL, "not served");
	attr.path = path;
	attr.path.src_ip[15] ^= 0x40;
	cr_assert_eq(karst_engine_qp_modify(bed.e, qp, &attr, mask), -EINVAL, "not our address");
	attr.path = path;
	cr_assert_eq(karst_engine_qp_modify(bed.e, qp, &attr, mask), 0);
	path.port = 7;
	cr_assert_eq(karst_engine_ah_create(bed.e, bed.pd, &path, &ah), -EINVAL);
	engine_bed_down(&bed);
}

/* --- the longest turn --- */

static uint64_t
cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t
longest_turn(const struct engine_bed *bed)
{
	struct karst_engine_lcore_stats st;

	cr_assert_eq(karst_engine_lcore_stats(bed->e, 0, &st), 0);
	return st.longest_turn_ns;
}

/* The time that a reactor spends between two turns counts with the first turn: here the reactor
 * works, or sleeps. */
Test(control, longest_turn)
{
	const struct timespec nap = {.tv_nsec = 30000000};
	struct engine_bed_config cfg = {0};
	struct karst_engine_lcore_stats st;
	uint64_t began, before, slept;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	/* so that the next turn reads the CPU time of this thread */
	nanosleep(&nap, NULL);
	began = cpu_ns();
	karst_engine_poll(bed.e, 0);
	/* sleeping delays no one: it counts at most as the CPU time that the thread has used
	 * meanwhile */
	before = longest_turn(&bed);
	karst_engine_poll(bed.e, 0);
	nanosleep(&nap, NULL);
	karst_engine_poll(bed.e, 0);
	slept = longest_turn(&bed);
	cr_assert(slept == before || slept <= cpu_ns() - began);
	/* work counts */
	began = cpu_ns();
	while (cpu_ns() - began < slept + 3000000)
		;
	karst_engine_poll(bed.e, 0);
	cr_assert_geq(longest_turn(&bed), slept + 3000000);
	cr_assert_leq(longest_turn(&bed), cpu_ns());
	/* and the value stays */
	karst_engine_poll(bed.e, 0);
	cr_assert_geq(longest_turn(&bed), slept + 3000000);
	/* a turn of 5 ms is counted, too */
	cr_assert_eq(karst_engine_lcore_stats(bed.e, 0, &st), 0);
	before = st.long_turns;
	began = cpu_ns();
	while (cpu_ns() - began < 6000000)
		;
	karst_engine_poll(bed.e, 0);
	cr_assert_eq(karst_engine_lcore_stats(bed.e, 0, &st), 0);
	cr_assert_gt(st.long_turns, before);
	engine_bed_down(&bed);
}

/* --- lcores with threads of the engine --- */

static void
run_started(enum karst_idle idle)
{
	struct engine_bed_config cfg = {
		.engine = {.lcores = 2, .idle = idle, .sleep_max_us = 200}, .mask = {1, 2}};
	struct karst_engine_qp *a, *b;
	static uint8_t mem[2][65536];
	struct karst_engine_lcore_stats st;
	struct karst_cqe cqe;
	struct engine_bed bed;
	uint32_t key;
	int i;

	engine_bed_up(&bed, &cfg);
	cr_assert_eq(karst_engine_start(bed.e, NULL), 0);
	cr_assert_eq(karst_engine_start(bed.e, NULL), -EBUSY);
	bed.mine = 0;
	a = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	b = engine_bed_qp(&bed, KARST_QPT_RC, 1);
	engine_bed_connect(&bed, a, b);
	key = engine_bed_mr(&bed, mem, sizeof(mem));
	for (i = 0; i < 5; i++) {
		engine_bed_fill(mem[0], sizeof(mem[0]), (unsigned int)i);
		engine_bed_post(
			a, KARST_WR_RDMA_WRITE, 1, mem[0], sizeof(mem[0]), key, mem[1], key);
		cr_assert(engine_bed_wait(&bed, &cqe));
		cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
		cr_assert_arr_eq(mem[0], mem[1], sizeof(mem[0]));
	}
	do {
		sched_yield();
		cr_assert_eq(karst_engine_lcore_stats(bed.e, 1, &st), 0);
	} while (idle == KARST_IDLE_SLEEP && st.sleeps == 0);
	cr_assert_eq(karst_engine_destroy(bed.e), -EBUSY);
	karst_engine_stop(bed.e);
	karst_engine_stop(bed.e);
	/* and a second time */
	cr_assert_eq(karst_engine_start(bed.e, (const unsigned int[]){2, 1}), 0);
	cr_assert_eq(karst_engine_qp_destroy(bed.e, a), 0);
	cr_assert_eq(karst_engine_qp_destroy(bed.e, b), 0);
	karst_engine_stop(bed.e);
	engine_bed_down(&bed);
}

Test(control, own_lcores_that_yield)
{
	run_started(KARST_IDLE_YIELD);
}

Test(control, own_lcores_that_sleep)
{
	run_started(KARST_IDLE_SLEEP);
}

Test(control, own_lcores_that_spin)
{
	run_started(KARST_IDLE_POLL);
}

Test(control, more_lcores_than_workers)
{
	struct engine_bed_config cfg = {.engine.lcores = 3};
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	cr_assert_eq(karst_engine_start(bed.e, NULL), -ENOSPC);
	engine_bed_down(&bed);
}

/* A drained QP moves to a path that carries its packets, and to no other. */
Test(control, moved_to_a_smaller_mtu)
{
	struct engine_bed_config cfg = {.mtu = 9000, .mtu_b = 1500};
	struct karst_core_qp_attr attr, is;
	struct karst_engine_port_info dst;
	struct karst_engine_qp *qp;
	enum karst_qp_state to;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	qp = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	for (to = KARST_QPS_INIT; to <= KARST_QPS_RTS; to++) {
		unsigned int mask = engine_bed_attr(&bed, KARST_QPT_RC, 0, 0x777, to, &attr);

		cr_assert_eq(karst_engine_qp_modify(bed.e, qp, &attr, mask), 0);
	}
	attr.qp_state = KARST_QPS_SQD;
	cr_assert_eq(karst_engine_qp_modify(bed.e, qp, &attr, KARST_QP_STATE), 0);
	cr_assert_eq(karst_engine_port_info(bed.e, bed.port[0], &dst), 0);
	cr_assert_eq(
		karst_engine_path_init(bed.e, bed.port[1], 0, dst.mac, dst.addrs[0].ip, &attr.path),
		0);
	cr_assert_eq(
		karst_engine_qp_modify(bed.e, qp, &attr, KARST_QP_STATE | KARST_QP_AV), -EINVAL);
	cr_assert_eq(karst_engine_qp_query(bed.e, qp, &is), 0);
	cr_assert_eq(is.path.port, bed.port[0]);
	cr_assert_eq(karst_engine_port_info(bed.e, bed.port[1], &dst), 0);
	cr_assert_eq(
		karst_engine_path_init(bed.e, bed.port[0], 0, dst.mac, dst.addrs[0].ip, &attr.path),
		0);
	cr_assert_eq(karst_engine_qp_modify(bed.e, qp, &attr, KARST_QP_STATE | KARST_QP_AV), 0);
	engine_bed_down(&bed);
}
