/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Path migration between two ports (G2, G4, G5).  The first queue pair's primary path is from port
 * A to port B, and its alternate path from B to A; its peer's are the reverse.
 */
#include <criterion/criterion.h>

#include <rte_mbuf.h>

#include "engine_bed.h"
#include "karst_owner.h"

#define BUF 65536u

struct seen {
	const struct karst_engine_qp *qp[2];
	unsigned int migrated[2], lost[2];
};

static void
on_event(void *user, const struct karst_engine_event *event)
{
	struct seen *seen = user;
	int i;

	for (i = 0; i < 2; i++) {
		if (event->qp == NULL || event->qp != seen->qp[i])
			continue;
		seen->migrated[i] += event->event == KARST_EVENT_PATH_MIG;
		seen->lost[i] += event->event == KARST_EVENT_PATH_MIG_ERR;
	}
}

static const struct karst_engine_ops ops = {.async_event = on_event};

struct ends {
	struct engine_bed bed;
	struct seen seen;
	struct karst_engine_qp *qp[2];
	uint32_t key[2];
};

static uint8_t mem[2][BUF];

/* Loads an alternate path from port @from to the other one, and asks for REARM. */
static int
rearm_from(struct ends *t, int side, int from)
{
	struct karst_core_qp_attr attr = {.alt_timeout = 17, .path_mig_state = KARST_MIG_REARM};
	struct karst_engine_port_info dst;
	struct engine_bed *bed = &t->bed;

	cr_assert_eq(karst_engine_port_info(bed->e, bed->port[1 - from], &dst), 0);
	cr_assert_eq(karst_engine_path_init(
			     bed->e, bed->port[from], 0, dst.mac, dst.addrs[0].ip, &attr.alt_path),
		0);
	return karst_engine_qp_modify(
		bed->e, t->qp[side], &attr, KARST_QP_ALT_PATH | KARST_QP_PATH_MIG_STATE);
}

static int
rearm(struct ends *t, int side)
{
	return rearm_from(t, side, 1 - side);
}

static void
write_and_wait(struct ends *t, int side, unsigned int n)
{
	struct karst_cqe cqe;
	unsigned int i;

	for (i = 0; i < n; i++)
		engine_bed_post(t->qp[side], KARST_WR_RDMA_WRITE, i, mem[side], BUF, t->key[side],
			mem[1 - side], t->key[1 - side]);
	for (i = 0; i < n; i++) {
		cr_assert(engine_bed_wait(&t->bed, &cqe), "completion %u", i);
		cr_assert_eq(cqe.status, KARST_WC_SUCCESS, "status %u", cqe.status);
		cr_assert_eq(cqe.wr_id, i);
	}
	cr_assert_arr_eq(mem[side], mem[1 - side], BUF);
}

static void
expect_state(struct ends *t, int side, enum karst_mig_state state, uint8_t port)
{
	struct karst_core_qp_attr is;

	cr_assert_eq(karst_engine_qp_query(t->bed.e, t->qp[side], &is), 0);
	cr_assert_eq(is.qp_state, KARST_QPS_RTS);
	cr_assert_eq(is.path_mig_state, state, "side %d: %u", side, is.path_mig_state);
	cr_assert_eq(is.path.port, port);
	cr_assert_eq(is.port_num, port + 1);
	cr_assert_eq(is.alt_port_num != 0, state != KARST_MIG_MIGRATED);
}

static void
ends_armed(struct ends *t)
{
	const struct engine_bed_config cfg = {.engine = {.ops = &ops, .user = &t->seen}};
	int side;

	memset(t, 0, sizeof(*t));
	engine_bed_up(&t->bed, &cfg);
	for (side = 0; side < 2; side++) {
		t->seen.qp[side] = t->qp[side] = engine_bed_qp(&t->bed, KARST_QPT_RC, 0);
		engine_bed_fill(mem[side], BUF, (unsigned int)side);
		t->key[side] = engine_bed_mr(&t->bed, mem[side], BUF);
	}
	engine_bed_connect(&t->bed, t->qp[0], t->qp[1]);
	cr_assert_eq(rearm(t, 0), 0);
	cr_assert_eq(rearm(t, 1), 0);
	write_and_wait(t, 0, 1);
	expect_state(t, 0, KARST_MIG_ARMED, t->bed.port[0]);
	expect_state(t, 1, KARST_MIG_ARMED, t->bed.port[1]);
}

/* The program migrates while requests are under way, and back again. */
Test(migrate, g4_by_command)
{
	const struct karst_core_qp_attr go = {.path_mig_state = KARST_MIG_MIGRATED};
	struct ends t;
	unsigned int i;

	ends_armed(&t);
	engine_bed_fill(mem[0], BUF, 7);
	for (i = 0; i < 8; i++)
		engine_bed_post(
			t.qp[0], KARST_WR_RDMA_WRITE, i, mem[0], BUF, t.key[0], mem[1], t.key[1]);
	karst_engine_poll(t.bed.e, 0);
	cr_assert_eq(karst_engine_qp_modify(t.bed.e, t.qp[0], &go, KARST_QP_PATH_MIG_STATE), 0);
	for (i = 0; i < 8; i++) {
		struct karst_cqe cqe;

		cr_assert(engine_bed_wait(&t.bed, &cqe), "completion %u", i);
		cr_assert_eq(cqe.status, KARST_WC_SUCCESS, "status %u", cqe.status);
		cr_assert_eq(cqe.wr_id, i);
	}
	cr_assert_arr_eq(mem[0], mem[1], BUF);
	for (i = 0; i < 2; i++) {
		cr_assert_eq(t.seen.migrated[i], 1, "side %u", i);
		cr_assert_eq(t.seen.lost[i], 0);
		expect_state(&t, (int)i, KARST_MIG_MIGRATED, t.bed.port[1 - i]);
	}
	engine_bed_fill(mem[1], BUF, 8);
	write_and_wait(&t, 1, 2);
	engine_bed_down(&t.bed);
}

/* A port is removed.  A queue pair whose primary path used it migrates; one whose alternate path
 * used it gets an event that it has no alternate path any more. */
Test(migrate, g5_port_lost)
{
	struct ends t;

	ends_armed(&t);
	cr_assert_eq(karst_engine_port_lose(t.bed.e, t.bed.port[1]), 0);
	cr_assert_eq(t.seen.migrated[0], 0);
	cr_assert_eq(t.seen.lost[0], 1);
	cr_assert_eq(t.seen.migrated[1], 1);
	cr_assert_eq(t.seen.lost[1], 0);
	expect_state(&t, 0, KARST_MIG_MIGRATED, t.bed.port[0]);
	expect_state(&t, 1, KARST_MIG_MIGRATED, t.bed.port[0]);
	engine_bed_down(&t.bed);
}

/* Impossible paths: of no port, from another port's address, over a port whose MTU is too small. */
Test(migrate, g2_refused)
{
	const struct engine_bed_config cfg = {.mtu = 9000, .mtu_b = 1500};
	struct karst_core_qp_attr attr, good;
	struct karst_engine_port_info dst;
	struct karst_engine_qp *qp;
	struct engine_bed bed;
	unsigned int mask;

	engine_bed_up(&bed, &cfg);
	qp = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	mask = engine_bed_attr(&bed, KARST_QPT_RC, 0, 1, KARST_QPS_INIT, &attr);
	cr_assert_eq(karst_engine_qp_modify(bed.e, qp, &attr, mask), 0);
	mask = engine_bed_attr(&bed, KARST_QPT_RC, 0, 1, KARST_QPS_RTR, &attr);
	cr_assert_eq(karst_engine_port_info(bed.e, bed.port[0], &dst), 0);
	cr_assert_eq(karst_engine_path_init(
			     bed.e, bed.port[1], 0, dst.mac, dst.addrs[0].ip, &attr.alt_path),
		0);
	good = attr;
	cr_assert_eq(karst_engine_qp_modify(bed.e, qp, &attr, mask | KARST_QP_ALT_PATH), -EINVAL,
		"path MTU 4096 over an MTU of 1500");
	attr.alt_path.port = 7;
	cr_assert_eq(karst_engine_qp_modify(bed.e, qp, &attr, mask | KARST_QP_ALT_PATH), -EINVAL);
	attr = good;
	memcpy(attr.alt_path.src_ip, dst.addrs[0].ip, 16);
	attr.path_mtu = 3;
	cr_assert_eq(karst_engine_qp_modify(bed.e, qp, &attr, mask | KARST_QP_ALT_PATH), -EINVAL);
	cr_assert_eq(karst_engine_qp_modify(bed.e, qp, &good, mask), 0);
	mask = engine_bed_attr(&bed, KARST_QPT_RC, 0, 1, KARST_QPS_RTS, &attr);
	attr.alt_path = good.alt_path;
	cr_assert_eq(karst_engine_qp_modify(bed.e, qp, &attr, mask | KARST_QP_ALT_PATH), -EINVAL,
		"that path MTU was agreed to");
	cr_assert_eq(karst_engine_qp_modify(bed.e, qp, &attr, mask), 0);
	engine_bed_down(&bed);
}

/* The alternate path leads to an address that nobody has: the queue pair fails on it as on any
 * other path, and its peer, which has heard nothing, stays armed. */
Test(migrate, g4_wrong_address)
{
	const struct karst_core_qp_attr go = {.path_mig_state = KARST_MIG_MIGRATED};
	struct karst_core_qp_attr attr = {.alt_timeout = 8, .path_mig_state = KARST_MIG_REARM}, is;
	struct karst_engine_port_info dst;
	struct karst_cqe cqe;
	struct ends t;

	ends_armed(&t);
	cr_assert_eq(karst_engine_port_info(t.bed.e, t.bed.port[0], &dst), 0);
	dst.addrs[0].ip[15] ^= 0x55;
	cr_assert_eq(karst_engine_path_init(
			     t.bed.e, t.bed.port[1], 0, dst.mac, dst.addrs[0].ip, &attr.alt_path),
		0);
	cr_assert_eq(karst_engine_qp_modify(
			     t.bed.e, t.qp[0], &attr, KARST_QP_ALT_PATH | KARST_QP_PATH_MIG_STATE),
		0);
	write_and_wait(&t, 0, 1);
	expect_state(&t, 0, KARST_MIG_ARMED, t.bed.port[0]);
	cr_assert_eq(karst_engine_qp_modify(t.bed.e, t.qp[0], &go, KARST_QP_PATH_MIG_STATE), 0);
	engine_bed_post(t.qp[0], KARST_WR_RDMA_READ, 1, mem[0], 8, t.key[0], mem[1], t.key[1]);
	engine_bed_post(t.qp[0], KARST_WR_RDMA_WRITE, 2, mem[0], 8, t.key[0], mem[1], t.key[1]);
	cr_assert(engine_bed_wait(&t.bed, &cqe));
	cr_assert_eq(cqe.wr_id, 1);
	cr_assert_eq(cqe.status, KARST_WC_RETRY_EXC_ERR, "status %u", cqe.status);
	cr_assert(engine_bed_wait(&t.bed, &cqe));
	cr_assert_eq(cqe.wr_id, 2);
	cr_assert_eq(cqe.status, KARST_WC_WR_FLUSH_ERR, "status %u", cqe.status);
	cr_assert_eq(t.seen.migrated[0], 1);
	cr_assert_eq(t.seen.migrated[1], 0);
	cr_assert_eq(karst_engine_qp_query(t.bed.e, t.qp[0], &is), 0);
	cr_assert_eq(is.qp_state, KARST_QPS_ERR);
	expect_state(&t, 1, KARST_MIG_ARMED, t.bed.port[1]);
	engine_bed_down(&t.bed);
}

/* --- both ends migrate at once, again and again --- */

#define ROUNDS 60
#define MIXED  12u /* requests of each side in a round */
#define PART   (BUF / MIXED / 4 * 4)

/* Losses of a round, by frames that have left; both ends migrate after that. */
static const unsigned int turns[] = {0, 1, 2, 3, 5, 8};

struct mixed {
	uint64_t sum, old[MIXED];
	uint8_t got[MIXED][PART];
};

static struct mixed mixed[2];

static void
post_mixed(struct ends *t, int side, const uint32_t key[2])
{
	struct karst_send_wqe *w;
	unsigned int i;

	for (i = 0; i < MIXED; i++) {
		uint64_t id = (unsigned int)side * 100 + i;

		if (i % 3 == 0) {
			engine_bed_post(t->qp[side], KARST_WR_RDMA_READ, id, mixed[side].got[i],
				PART, key[side], mem[1 - side] + i * PART, t->key[1 - side]);
			continue;
		}
		if (i % 3 == 1) {
			engine_bed_post(t->qp[side], KARST_WR_SEND, id, mem[side] + i * PART, PART,
				t->key[side], NULL, 0);
			continue;
		}
		w = karst_engine_send_slot(t->qp[side], 0);
		memset(w, 0, sizeof(*w));
		w->wr_id = id;
		w->opcode = KARST_WR_ATOMIC_FAA;
		w->flags = KARST_SEND_SIGNALED;
		w->num = 1;
		w->rdma.remote_addr = (uintptr_t)&mixed[1 - side].sum;
		w->rdma.rkey = key[1 - side];
		w->atomic.sge[0] = (struct karst_sge){(uintptr_t)&mixed[side].old[i], 8, key[side]};
		w->atomic.compare_add = 1;
		cr_assert_eq(karst_engine_post_send(t->qp[side], 1), 0);
	}
}

/* Throws away what is on the wires. */
static void
lose_all(struct engine_bed *bed)
{
	unsigned int i, k;
	void *m;

	for (i = 0; i < 2; i++)
		for (k = 0; k < 4 && bed->ring[i][k] != NULL; k++)
			while (rte_ring_dequeue(bed->ring[i][k], &m) == 0)
				rte_pktmbuf_free(m);
}

/* Checks one completion of a round.  @next: number of the next request and receive of each side. */
static void
check_mixed(const struct karst_cqe *cqe, uint64_t sum, unsigned int next[2][2])
{
	unsigned int side = (unsigned int)(cqe->wr_id / 100 % 10),
		     i = (unsigned int)(cqe->wr_id % 100);
	bool received = cqe->wr_id >= 1000;

	cr_assert_eq(cqe->status, KARST_WC_SUCCESS, "%lu: status %u", (unsigned long)cqe->wr_id,
		cqe->status);
	cr_assert_eq(
		i, next[side][received]++, "%lu comes out of order", (unsigned long)cqe->wr_id);
	if (!received && i % 3 == 0)
		cr_assert_arr_eq(mixed[side].got[i], mem[1 - side] + i * PART, PART);
	if (!received && i % 3 == 2)
		cr_assert_eq(mixed[side].old[i], sum + i / 3);
}

static void
round_of_both(struct ends *t, unsigned int round, const uint32_t key[2])
{
	const struct karst_core_qp_attr go = {.path_mig_state = KARST_MIG_MIGRATED};
	unsigned int i, next[2][2] = {{0}}, side;
	uint64_t sum = mixed[0].sum;
	struct karst_cqe cqe;

	for (side = 0; side < 2; side++) {
		engine_bed_fill(mem[side], BUF, round * 2 + side);
		memset(mixed[side].got, 0, sizeof(mixed[side].got));
		for (i = 0; i < MIXED / 3; i++)
			engine_bed_post_recv(t->qp[side], 1000 + side * 100 + i,
				mixed[side].got[i * 3 + 1], PART, key[side]);
	}
	for (side = 0; side < 2; side++)
		post_mixed(t, (int)side, key);
	for (i = 0; i < turns[round % (sizeof(turns) / sizeof(turns[0]))]; i++)
		karst_engine_poll(t->bed.e, 0);
	lose_all(&t->bed);
	for (side = 0; side < 2; side++)
		cr_assert_eq(
			karst_engine_qp_modify(t->bed.e, t->qp[side], &go, KARST_QP_PATH_MIG_STATE),
			0);
	for (i = 0; i < 2 * (MIXED + MIXED / 3); i++) {
		cr_assert(engine_bed_wait(&t->bed, &cqe), "round %u: completion %u", round, i);
		check_mixed(&cqe, sum, next);
	}
	for (side = 0; side < 2; side++) {
		cr_assert_eq(mixed[side].sum, sum + MIXED / 3);
		for (i = 1; i < MIXED; i += 3)
			cr_assert_arr_eq(mixed[side].got[i], mem[1 - side] + i * PART, PART);
		cr_assert_eq(t->seen.migrated[side], round + 1, "side %u, round %u: %u", side,
			round, t->seen.migrated[side]);
		cr_assert_eq(t->seen.lost[side], 0);
	}
}

/* READs, SENDs and atomics of both ends are under way, and all frames are lost, when both migrate;
 * each is done once, and both can be armed for the way back. */
Test(migrate, g6_both_at_once)
{
	uint32_t key[2];
	struct ends t;
	unsigned int round, side;

	memset(mixed, 0, sizeof(mixed));
	ends_armed(&t);
	for (side = 0; side < 2; side++)
		key[side] = engine_bed_mr(&t.bed, &mixed[side], sizeof(mixed[side]));
	for (round = 0; round < ROUNDS; round++) {
		round_of_both(&t, round, key);
		engine_bed_settle(&t.bed);
		for (side = 0; side < 2; side++) {
			/* where it is now, and where it was */
			int is = (int)(round % 2 == 0 ? 1 - side : side);

			expect_state(&t, (int)side, KARST_MIG_MIGRATED, t.bed.port[is]);
			cr_assert_eq(rearm_from(&t, (int)side, 1 - is), 0);
		}
		write_and_wait(&t, 0, 1);
		engine_bed_settle(&t.bed);
		for (side = 0; side < 2; side++)
			expect_state(&t, (int)side, KARST_MIG_ARMED,
				t.bed.port[round % 2 == 0 ? 1 - side : side]);
	}
	engine_bed_down(&t.bed);
}
