/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Lcores that sleep, and everything that may wake them.  A lost wake-up shows as a completion that
 * does not come; so there are many rounds, with pauses about as long as an lcore waits before it
 * goes to sleep.
 */
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <rte_mbuf.h>

#include "engine_bed.h"
#include "karst_owner.h"
#include "lcore.h"

#define PATIENCE_NS 120000000000ull
/* Frames that announce the addresses of added ports: two for each port of the bed, one for each
 * that is added again. */
#define ANNOUNCED 6
#define BYTES     20000u
#define ROUNDS    3000u
/* Rounds at most until an lcore has slept: on a busy machine it may find work each time it gets a
 * processor. */
#define MANY_ROUNDS 300000u

struct sleepers {
	struct engine_bed bed;
	struct karst_engine_qp *a, *b; /* lcores 0 and 1, by loopback */
	uint8_t mem[2][BYTES];
	uint32_t key[2];
};

static void
pause_ns(uint64_t ns)
{
	const struct timespec ts = {.tv_nsec = (long)ns};

	nanosleep(&ts, NULL);
}

static uint64_t
sleeps(const struct engine_bed *bed, uint32_t lcore)
{
	struct karst_engine_lcore_stats s;

	cr_assert_eq(karst_engine_lcore_stats(bed->e, lcore, &s), 0);
	return s.sleeps;
}

static void
connect_loop(struct engine_bed *bed, struct karst_engine_qp *a, struct karst_engine_qp *b,
	uint8_t timeout)
{
	struct karst_engine_qp *qp[2] = {a, b};
	struct karst_engine_port_info info;
	struct karst_core_qp_attr attr;
	enum karst_qp_state to;
	int i;

	cr_assert_eq(karst_engine_port_info(bed->e, bed->port[0], &info), 0);
	for (to = KARST_QPS_INIT; to <= KARST_QPS_RTS; to++) {
		for (i = 0; i < 2; i++) {
			unsigned int mask =
				engine_bed_attr(bed, KARST_QPT_RC, 0, qp[1 - i]->num, to, &attr);

			cr_assert_eq(karst_engine_path_init(bed->e, bed->port[0], 0, info.mac,
					     info.addrs[0].ip, &attr.path),
				0);
			attr.rq_psn = attr.sq_psn = 5;
			attr.timeout = timeout;
			attr.retry_cnt = 3;
			cr_assert_eq(karst_engine_qp_modify(bed->e, qp[i], &attr, mask), 0);
		}
	}
}

/* Starts an engine of two lcores that only loopback traffic keeps awake. */
static void
sleepers_up(struct sleepers *s)
{
	const struct karst_engine_addr addr = karst_engine_addr_ip4(0x0a0a0a0a);
	struct karst_engine_port_config port = {
		.ethdev = KARST_ENGINE_NO_ETHDEV, .num_addrs = 1, .addrs = &addr};
	struct engine_bed_config cfg = {.engine = {.lcores = 2, .idle = KARST_IDLE_SLEEP}};
	int i;

	engine_bed_up(&s->bed, &cfg);
	for (i = 0; i < 2; i++) {
		cr_assert_eq(karst_engine_port_remove(s->bed.e, s->bed.port[i]), 0);
		s->key[i] = engine_bed_mr(&s->bed, s->mem[i], BYTES);
	}
	cr_assert_eq(karst_engine_port_add(s->bed.e, &port, &s->bed.port[0]), 0);
	s->bed.port[1] = s->bed.port[0];
	s->a = engine_bed_qp(&s->bed, KARST_QPT_RC, 0);
	s->b = engine_bed_qp(&s->bed, KARST_QPT_RC, 1);
	/* no retransmission, which would hide a lost wake-up */
	connect_loop(&s->bed, s->a, s->b, 0);
	s->bed.mine = 0;
	cr_assert_eq(karst_engine_start(s->bed.e, NULL), 0);
}

static void
sleepers_down(struct sleepers *s)
{
	karst_engine_stop(s->bed.e);
	engine_bed_down(&s->bed);
}

Test(sleep, no_wake_up_is_lost)
{
	static struct sleepers s;
	unsigned int i, seed = 3;
	uint64_t began, most = 0, sum = 0, slept;
	struct karst_cqe cqe;

	sleepers_up(&s);
	slept = sleeps(&s.bed, 0);
	for (i = 0; i < (sleeps(&s.bed, 0) == slept ? MANY_ROUNDS : ROUNDS); i++) {
		unsigned int from = i & 1;
		uint64_t took;

		engine_bed_fill(s.mem[from], BYTES, i);
		pause_ns((uint64_t)rand_r(&seed) % 100000);
		began = karst_engine_now_ns(s.bed.e);
		engine_bed_post(from == 0 ? s.a : s.b, KARST_WR_RDMA_WRITE, i, s.mem[from], BYTES,
			s.key[from], s.mem[1 - from], s.key[1 - from]);
		cr_assert(engine_bed_wait(&s.bed, &cqe), "round %u", i);
		took = karst_engine_now_ns(s.bed.e) - began;
		sum += took;
		most = took > most ? took : most;
		cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
		cr_assert_eq(memcmp(s.mem[0], s.mem[1], BYTES), 0);
	}
	cr_log_info("a write of %u bytes: %u us, at most %u; lcore 0 slept %u times", BYTES,
		(unsigned int)(sum / i / 1000), (unsigned int)(most / 1000),
		(unsigned int)(sleeps(&s.bed, 0) - slept));
	cr_assert_gt(sleeps(&s.bed, 0), slept);
	sleepers_down(&s);
}

static void
on_cq(void *user, struct karst_engine_cq *cq)
{
}

/* A program wakes the lcore by its own eventfd, and another owner that does nothing does not
 * disturb. */
Test(sleep, owners_wake_it)
{
	static const struct karst_engine_ops ops = {.cq_event = on_cq};
	struct karst_engine_owner_init oinit = {.name = "one", .ops = &ops};
	struct karst_engine_cq_init cinit = {.entries = 64};
	struct karst_engine_qp_init init = {.type = KARST_QPT_RC,
		.max_send_wr = 16,
		.max_recv_wr = 1,
		.max_dest_rd_atomic = 16};
	struct karst_engine_owner *owner, *other;
	struct karst_engine_cq *cq;
	struct karst_engine_qp *qp;
	static struct sleepers s;
	unsigned int i, seed = 4;
	struct karst_cqe cqe;
	uint64_t until;

	sleepers_up(&s);
	cr_assert_eq(karst_engine_owner_create(s.bed.e, &oinit, &owner), 0);
	cr_assert_eq(karst_engine_owner_create(s.bed.e, &oinit, &other), 0);
	cinit.owner = init.owner = owner;
	cr_assert_eq(karst_engine_cq_create(s.bed.e, &cinit, &cq), 0);
	init.send_cq = init.recv_cq = cq;
	init.pd = s.bed.pd;
	init.lcore = 1;
	cr_assert_eq(karst_engine_qp_create(s.bed.e, &init, &qp), 0);
	s.a = engine_bed_qp(&s.bed, KARST_QPT_RC, 0);
	connect_loop(&s.bed, qp, s.a, 0);
	for (i = 0; i < ROUNDS; i++) {
		pause_ns((uint64_t)rand_r(&seed) % 100000);
		engine_bed_post(
			qp, KARST_WR_RDMA_WRITE, i, s.mem[0], 64, s.key[0], s.mem[1], s.key[1]);
		until = karst_engine_now_ns(s.bed.e) + PATIENCE_NS;
		while (karst_engine_cq_poll(cq, &cqe, 1) == 0 &&
			karst_engine_now_ns(s.bed.e) < until)
			sched_yield();
		cr_assert_eq(cqe.wr_id, i);
		cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
	}
	cr_assert_eq(karst_engine_qp_destroy(s.bed.e, qp), 0);
	cr_assert_eq(karst_engine_cq_destroy(s.bed.e, cq), 0);
	cr_assert_eq(karst_engine_owner_destroy(owner), 0);
	cr_assert_eq(karst_engine_owner_destroy(other), 0);
	sleepers_down(&s);
}

/* The time of an offered yield belongs to other threads and does not count for a busy turn.  While
 * others are known to want the processor for long, a turn makes no offer. */
Test(sleep, offers_of_the_processor)
{
	struct engine_bed_config cfg = {.engine = {.lcores = 1, .idle = KARST_IDLE_YIELD}};
	struct engine_bed bed;
	struct eng_lcore *lc;
	uint64_t turn, cycles, now;

	engine_bed_up(&bed, &cfg);
	lc = &bed.e->lcore[0];
	karst_engine_poll(bed.e, 0);
	turn = lc->turn_tsc;
	cycles = lc->stats.cycles;
	now = lc->core->now_ns;
	cr_assert(eng_sleep_offer(lc));
	cr_assert_gt(lc->turn_tsc, turn);
	cr_assert_eq(lc->stats.cycles - cycles, lc->turn_tsc - turn);
	cr_assert_gt(lc->core->now_ns, now, "and its clock goes on");
	lc->wanted_until = lc->core->now_ns + 1000000000;
	turn = lc->turn_tsc;
	cr_assert(!eng_sleep_offer(lc));
	cr_assert_eq(lc->turn_tsc, turn);
	/* a busy lcore that has not offered the processor for long */
	lc->wanted_until = 0;
	lc->offered_tsc = 0;
	eng_sleep_busy(lc, false);
	cr_assert_eq(lc->offered_tsc, 0, "only if it is to be polite");
	eng_sleep_busy(lc, true);
	cr_assert_neq(lc->offered_tsc, 0);
	/* and one that just has */
	turn = lc->offered_tsc;
	eng_sleep_busy(lc, true);
	cr_assert_eq(lc->offered_tsc, turn);
	engine_bed_down(&bed);
}

/* Control calls reach a sleeping lcore, and do not wait for a sleeping lcore to end its turn. */
Test(sleep, control_calls)
{
	static struct sleepers s;
	struct karst_engine_qp *qp;
	unsigned int i;
	uint32_t key;

	sleepers_up(&s);
	for (i = 0; i < 500; i++) {
		if (i % 8 == 0)
			pause_ns(100000);
		qp = engine_bed_qp(&s.bed, KARST_QPT_RC, i & 1);
		key = engine_bed_mr(&s.bed, s.mem, sizeof(s.mem));
		cr_assert_eq(karst_engine_mr_dereg(s.bed.e, key), 0);
		cr_assert_eq(karst_engine_qp_destroy(s.bed.e, qp), 0);
	}
	sleepers_down(&s);
}

/* No peer answers: a timer wakes the lcore, again and again, until the request has failed. */
Test(sleep, timers)
{
	static struct sleepers s;
	struct karst_engine_qp *a, *b;
	struct karst_cqe cqe;
	int i;

	sleepers_up(&s);
	a = engine_bed_qp(&s.bed, KARST_QPT_RC, 0);
	b = engine_bed_qp(&s.bed, KARST_QPT_RC, 1);
	for (i = 0; i < 3; i++) {
		connect_loop(&s.bed, a, b, 10);
		cr_assert_eq(karst_engine_qp_destroy(s.bed.e, b), 0);
		engine_bed_post(
			a, KARST_WR_RDMA_WRITE, 9, s.mem[0], 64, s.key[0], s.mem[1], s.key[1]);
		cr_assert(engine_bed_wait(&s.bed, &cqe));
		cr_assert_eq(cqe.status, KARST_WC_RETRY_EXC_ERR);
		cr_assert_eq(karst_engine_qp_destroy(s.bed.e, a), 0);
		a = engine_bed_qp(&s.bed, KARST_QPT_RC, 0);
		b = engine_bed_qp(&s.bed, KARST_QPT_RC, 1);
	}
	sleepers_down(&s);
}

Test(sleep, stop_and_start)
{
	static struct sleepers s;
	struct karst_cqe cqe;
	unsigned int i;

	sleepers_up(&s);
	for (i = 0; i < 50; i++) {
		if (i % 2 == 0)
			pause_ns(200000);
		karst_engine_stop(s.bed.e);
		engine_bed_post(
			s.a, KARST_WR_RDMA_WRITE, i, s.mem[0], 64, s.key[0], s.mem[1], s.key[1]);
		cr_assert_eq(karst_engine_start(s.bed.e, NULL), 0);
		cr_assert(engine_bed_wait(&s.bed, &cqe));
	}
	sleepers_down(&s);
}

/* Frames wake an lcore through a port's descriptor. */
Test(sleep, frames_wake_it)
{
	struct engine_bed_config cfg = {.engine = {.lcores = 1, .idle = KARST_IDLE_SLEEP}};
	const struct karst_engine_addr addr = karst_engine_addr_ip4(0x0a0a0a0a);
	int fd[2] = {eventfd(0, EFD_NONBLOCK), eventfd(0, EFD_NONBLOCK)};
	struct karst_engine_port_config port = {.num_addrs = 1, .addrs = &addr, .nwake_fds = 1};
	struct karst_engine_lcore_stats stats;
	uint64_t count, until, before;
	struct rte_mempool *pool;
	struct rte_mbuf *m;
	struct engine_bed bed;
	unsigned int i;

	engine_bed_up(&bed, &cfg);
	pool = rte_pktmbuf_pool_create("frames", 255, 0, 64, 2048, 0);
	cr_assert_not_null(pool);
	for (i = 0; i < 2; i++) {
		cr_assert_eq(karst_engine_port_remove(bed.e, bed.port[i]), 0);
		port.ethdev = bed.ethdev[i];
		port.wake_fds = &fd[i];
		port.nwake_fds = 3;
		cr_assert_eq(karst_engine_port_add(bed.e, &port, &bed.port[i]), -EINVAL);
		port.nwake_fds = 1;
		cr_assert_eq(karst_engine_port_add(bed.e, &port, &bed.port[i]), 0);
	}
	cr_assert_eq(karst_engine_start(bed.e, NULL), 0);
	/* these wake no lcore, and come before those that are counted */
	until = karst_engine_now_ns(bed.e) + PATIENCE_NS;
	do {
		for (i = 0, count = 1; i < 2; i++)
			cr_assert_eq(write(fd[i], &count, sizeof(count)), sizeof(count));
		sched_yield();
		cr_assert_eq(karst_engine_lcore_stats(bed.e, 0, &stats), 0);
	} while (stats.rx_frames < ANNOUNCED && karst_engine_now_ns(bed.e) < until);
	cr_assert_eq(stats.rx_frames, ANNOUNCED);
	for (i = 0; i < 2; i++)
		cr_assert_eq(read(fd[i], &count, sizeof(count)), sizeof(count));
	for (i = 0; i < (stats.sleeps == 0 ? MANY_ROUNDS : 300); i++) {
		pause_ns(i % 3 * 60000);
		m = rte_pktmbuf_alloc(pool);
		cr_assert_not_null(m);
		memset(rte_pktmbuf_append(m, 60), 0, 60);
		cr_assert_eq(karst_engine_lcore_stats(bed.e, 0, &stats), 0);
		before = stats.rx_frames;
		cr_assert_eq(rte_ring_enqueue(bed.ring[0][0], m), 0);
		count = 1;
		cr_assert_eq(write(fd[1], &count, sizeof(count)), sizeof(count));
		until = karst_engine_now_ns(bed.e) + PATIENCE_NS;
		do {
			sched_yield();
			karst_engine_lcore_stats(bed.e, 0, &stats);
		} while (stats.rx_frames == before && karst_engine_now_ns(bed.e) < until);
		cr_assert_eq(stats.rx_frames, before + 1);
		cr_assert_eq(read(fd[1], &count, sizeof(count)), sizeof(count));
	}
	cr_assert_gt(stats.sleeps, 0);
	karst_engine_stop(bed.e);
	engine_bed_down(&bed);
}

/* Ports without a descriptor cannot wake an lcore: it naps. */
Test(sleep, naps_without_descriptors)
{
	struct engine_bed_config cfg = {.engine = {.lcores = 2, .idle = KARST_IDLE_SLEEP}};
	static uint8_t mem[2][BYTES];
	struct karst_engine_qp *a, *b;
	struct karst_cqe cqe;
	uint32_t key[2];
	struct engine_bed bed;
	unsigned int i;

	engine_bed_up(&bed, &cfg);
	key[0] = engine_bed_mr(&bed, mem[0], BYTES);
	key[1] = engine_bed_mr(&bed, mem[1], BYTES);
	a = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	b = engine_bed_qp(&bed, KARST_QPT_RC, 1);
	engine_bed_connect(&bed, a, b);
	bed.mine = 0;
	cr_assert_eq(karst_engine_start(bed.e, NULL), 0);
	for (i = 0; i < (sleeps(&bed, 0) == 0 ? MANY_ROUNDS : 200); i++) {
		engine_bed_post(a, KARST_WR_RDMA_WRITE, i, mem[0], BYTES, key[0], mem[1], key[1]);
		cr_assert(engine_bed_wait(&bed, &cqe));
		pause_ns(100000);
	}
	cr_assert_gt(sleeps(&bed, 0), 0);
	karst_engine_stop(bed.e);
	engine_bed_down(&bed);
}

/* A nap of any length ends for everything except frames of ports that cannot wake the lcore. */
Test(sleep, long_naps_end_for_whoever_can_wake_it)
{
	struct engine_bed_config cfg = {
		.engine = {.lcores = 1, .idle = KARST_IDLE_SLEEP, .sleep_max_us = 1000000}};
	struct karst_engine_lcore_stats stats;
	struct karst_engine_qp *qp;
	struct engine_bed bed;
	uint64_t until;
	unsigned int i;

	engine_bed_up(&bed, &cfg);
	bed.mine = 0;
	cr_assert_eq(karst_engine_start(bed.e, NULL), 0);
	for (i = 0; i < 20; i++) {
		until = karst_engine_now_ns(bed.e) + PATIENCE_NS;
		while (atomic_load(&bed.e->lcore[0].asleep) == 0 &&
			karst_engine_now_ns(bed.e) < until)
			pause_ns(1000);
		cr_assert_eq(atomic_load(&bed.e->lcore[0].asleep), 1, "round %u", i);
		/* a control call, which waits until that lcore has run it */
		qp = engine_bed_qp(&bed, KARST_QPT_RC, 0);
		cr_assert_eq(karst_engine_qp_destroy(bed.e, qp), 0);
	}
	cr_assert_eq(karst_engine_lcore_stats(bed.e, 0, &stats), 0);
	cr_assert_gt(stats.sleeps, 0);
	karst_engine_stop(bed.e);
	engine_bed_down(&bed);
}

static int
ascending(const void *a, const void *b)
{
	return *(const uint32_t *)a > *(const uint32_t *)b ? 1 : -1;
}

/* The time from posting to the completion of a small write on an lcore that sleeps. */
static void
report_wake_up(struct sleepers *s)
{
	enum { TIMES = 201 };
	struct karst_engine_qp *a = engine_bed_qp(&s->bed, KARST_QPT_RC, 0);
	struct karst_engine_qp *b = engine_bed_qp(&s->bed, KARST_QPT_RC, 0);
	uint32_t took[TIMES];
	struct karst_cqe cqe;
	unsigned int i;

	connect_loop(&s->bed, a, b, 0);
	for (i = 0; i < TIMES; i++) {
		uint64_t began;

		pause_ns(1000000);
		began = karst_engine_now_ns(s->bed.e);
		engine_bed_post(
			a, KARST_WR_RDMA_WRITE, i, s->mem[0], 64, s->key[0], s->mem[1], s->key[1]);
		while (karst_engine_cq_poll(s->bed.cq, &cqe, 1) == 0)
			sched_yield();
		took[i] = (uint32_t)(karst_engine_now_ns(s->bed.e) - began);
	}
	qsort(took, TIMES, sizeof(took[0]), ascending);
	cr_log_info("a sleeper has written 64 bytes after %u ns (p50), %u (p90), %u (most)",
		took[TIMES / 2], took[TIMES * 9 / 10], took[TIMES - 1]);
}

/* What an idle engine costs; reported, not judged. */
Test(sleep, what_idling_costs)
{
	struct rusage from, to;
	static struct sleepers s;
	uint64_t us;

	sleepers_up(&s);
	pause_ns(200000000);
	getrusage(RUSAGE_SELF, &from);
	pause_ns(900000000);
	getrusage(RUSAGE_SELF, &to);
	us = (uint64_t)(to.ru_utime.tv_sec - from.ru_utime.tv_sec + to.ru_stime.tv_sec -
		     from.ru_stime.tv_sec) *
			1000000 +
		(uint64_t)(to.ru_utime.tv_usec - from.ru_utime.tv_usec + to.ru_stime.tv_usec -
			from.ru_stime.tv_usec);
	cr_log_info("two idle lcores: %u us of processor time in 900 ms", (unsigned int)us);
	report_wake_up(&s);
	sleepers_down(&s);
}
