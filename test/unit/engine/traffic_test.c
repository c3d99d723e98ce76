/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Real frames between two ports: operations, sizes, lcores, hand-off, full queues. */
#include <criterion/criterion.h>

#include "engine_bed.h"

#define BUF (1u << 20)

struct ends {
	struct karst_engine_qp *qp[2];
	uint8_t *mem[2];
	uint32_t key[2];
};

static void
ends_up(struct engine_bed *bed, struct ends *t, uint32_t lcore_a, uint32_t lcore_b)
{
	static uint8_t mem[2][BUF];
	int side;

	t->qp[0] = engine_bed_qp(bed, KARST_QPT_RC, lcore_a);
	t->qp[1] = engine_bed_qp(bed, KARST_QPT_RC, lcore_b);
	engine_bed_connect(bed, t->qp[0], t->qp[1]);
	for (side = 0; side < 2; side++) {
		t->mem[side] = mem[side];
		engine_bed_fill(t->mem[side], BUF, (unsigned int)side);
		t->key[side] = engine_bed_mr(bed, t->mem[side], BUF);
	}
}

static void
expect(struct engine_bed *bed, uint64_t wr_id, enum karst_wc_opcode op, uint32_t qpn)
{
	struct karst_cqe cqe;

	cr_assert(engine_bed_wait(bed, &cqe), "no completion for %lu", (unsigned long)wr_id);
	cr_assert_eq(cqe.status, KARST_WC_SUCCESS, "status %u", cqe.status);
	cr_assert_eq(cqe.wr_id, wr_id);
	cr_assert_eq(cqe.opcode, op);
	cr_assert_eq(cqe.qpn, qpn);
}

/* A SEND and its receive complete on the lanes of two lcores, so in any order. */
static void
expect_send_and_recv(
	struct engine_bed *bed, const struct ends *t, uint64_t send_id, uint64_t recv_id)
{
	unsigned int seen = 0, i;

	for (i = 0; i < 2; i++) {
		struct karst_cqe cqe;
		bool recv;

		cr_assert(engine_bed_wait(bed, &cqe), "no completion for %lu",
			(unsigned long)send_id);
		cr_assert_eq(cqe.status, KARST_WC_SUCCESS, "status %u", cqe.status);
		recv = cqe.qpn == t->qp[1]->num;
		cr_assert_eq(cqe.qpn, t->qp[recv]->num);
		cr_assert_eq(cqe.opcode, recv ? KARST_WC_RECV : KARST_WC_SEND);
		cr_assert_eq(cqe.wr_id, recv ? recv_id : send_id);
		seen |= 1u << recv;
	}
	cr_assert_eq(seen, 3);
}

/* WRITE, READ and SEND of many sizes from A to B, every byte compared. */
static void
run_operations(struct engine_bed *bed, struct ends *t)
{
	static const uint32_t sizes[] = {0, 1, 63, 64, 4095, 4096, 4097, 65536, 300001, BUF};
	size_t i;

	for (i = 0; i < KARST_DIM(sizes); i++) {
		uint32_t len = sizes[i];

		engine_bed_fill(t->mem[0], BUF, (unsigned int)i + 10);
		memset(t->mem[1], 0, BUF);
		engine_bed_post(t->qp[0], KARST_WR_RDMA_WRITE, i, t->mem[0], len, t->key[0],
			t->mem[1], t->key[1]);
		expect(bed, i, KARST_WC_RDMA_WRITE, t->qp[0]->num);
		cr_assert_arr_eq(t->mem[0], t->mem[1], len);
		cr_assert(len == BUF || t->mem[1][len] == 0);

		engine_bed_fill(t->mem[1], BUF, (unsigned int)i + 50);
		engine_bed_post(t->qp[0], KARST_WR_RDMA_READ, i, t->mem[0], len, t->key[0],
			t->mem[1], t->key[1]);
		expect(bed, i, KARST_WC_RDMA_READ, t->qp[0]->num);
		cr_assert_arr_eq(t->mem[0], t->mem[1], len);

		engine_bed_fill(t->mem[0], BUF, (unsigned int)i + 90);
		engine_bed_post_recv(t->qp[1], 100 + i, t->mem[1], BUF, t->key[1]);
		engine_bed_post(t->qp[0], KARST_WR_SEND, i, t->mem[0], len, t->key[0], NULL, 0);
		expect_send_and_recv(bed, t, i, 100 + i);
		cr_assert_arr_eq(t->mem[0], t->mem[1], len);
	}
}

static void
count(struct engine_bed *bed, struct karst_counters *c)
{
	karst_engine_counters(bed->e, KARST_ENGINE_ANY_LCORE, c);
}

static uint64_t
handed_over(struct engine_bed *bed, uint32_t lcore)
{
	struct karst_engine_lcore_stats st;

	cr_assert_eq(karst_engine_lcore_stats(bed->e, lcore, &st), 0);
	return st.handoff_in;
}

Test(traffic, one_lcore)
{
	struct engine_bed_config cfg = {0};
	struct karst_counters c;
	struct engine_bed bed;
	struct ends t;

	engine_bed_up(&bed, &cfg);
	bed.timeout = 0; /* otherwise it could expire while this thread is away between two turns */
	ends_up(&bed, &t, 0, 0);
	run_operations(&bed, &t);
	count(&bed, &c);
	cr_assert_eq(c.ctr[KARST_CTR_RETRANSMITS], 0);
	engine_bed_settle(&bed);
	count(&bed, &c);
	cr_assert_eq(c.ctr[KARST_CTR_RX_PACKETS], c.ctr[KARST_CTR_TX_PACKETS]);
	engine_bed_down(&bed);
}

Test(traffic, ip6)
{
	struct engine_bed_config cfg = {.ip6 = true};
	struct engine_bed bed;
	struct ends t;

	engine_bed_up(&bed, &cfg);
	ends_up(&bed, &t, 0, 0);
	run_operations(&bed, &t);
	engine_bed_down(&bed);
}

/* One lcore at each end, each polled by its own thread. */
Test(traffic, two_threads)
{
	struct engine_bed_config cfg = {.engine.lcores = 2, .mask = {1, 2}};
	struct engine_bed_poller far;
	struct engine_bed bed;
	struct ends t;

	engine_bed_up(&bed, &cfg);
	ends_up(&bed, &t, 0, 1);
	engine_bed_poller_start(&far, &bed, 2);
	run_operations(&bed, &t);
	engine_bed_poller_stop(&far);
	cr_assert_eq(handed_over(&bed, 0), 0);
	cr_assert_eq(handed_over(&bed, 1), 0);
	engine_bed_down(&bed);
}

/* Polls A's lcore alone, for @n bursts; returns the number of frames. */
static unsigned int
frames_of_bursts(struct engine_bed *bed, unsigned int n)
{
	unsigned int count, polls, bursts = 0, before = rte_ring_count(bed->ring[0][0]);

	for (polls = 0; bursts < n && polls < 1000; polls++) {
		count = rte_ring_count(bed->ring[0][0]);
		karst_engine_poll(bed->e, 0);
		bursts += rte_ring_count(bed->ring[0][0]) != count;
	}
	return rte_ring_count(bed->ring[0][0]) - before;
}

/* A port sends up to 64 KiB of frames of one length together, which are 15 frames here: a burst of
 * such frames ends behind two times 15, and not behind the 32nd. */
Test(traffic, bursts_end_behind_whole_trains)
{
	struct engine_bed_config cfg = {.engine.lcores = 2, .mask = {1, 2}};
	struct engine_bed bed;
	struct ends t;
	unsigned int i;

	engine_bed_up(&bed, &cfg);
	ends_up(&bed, &t, 0, 1);
	/* the first packets of a queue pair are few until they are acknowledged */
	engine_bed_post(
		t.qp[0], KARST_WR_RDMA_WRITE, 1, t.mem[0], BUF, t.key[0], t.mem[1], t.key[1]);
	expect(&bed, 1, KARST_WC_RDMA_WRITE, t.qp[0]->num);
	/* each WRITE has a longer frame and 15 others */
	for (i = 0; i < 4; i++)
		engine_bed_post(t.qp[0], KARST_WR_RDMA_WRITE, 2 + i, t.mem[0], 65536, t.key[0],
			t.mem[1], t.key[1]);
	cr_assert_eq(frames_of_bursts(&bed, 1), 32);
	cr_assert_eq(frames_of_bursts(&bed, 1), 32);
	for (i = 0; i < 4; i++)
		expect(&bed, 2 + i, KARST_WC_RDMA_WRITE, t.qp[0]->num);
	engine_bed_post(t.qp[0], KARST_WR_SEND, 6, t.mem[0], BUF, t.key[0], NULL, 0);
	cr_assert_eq(frames_of_bursts(&bed, 1), 30);
	cr_assert_eq(frames_of_bursts(&bed, 2), 60);
	engine_bed_release(&bed);
	engine_bed_down(&bed);
}

/* Each port has a queue for each lcore, and what A's lcore sends arrives in the queue of the lcore
 * that does not own the peer: every packet is handed off. */
Test(traffic, handoff)
{
	struct engine_bed_config cfg = {.engine.lcores = 2};
	struct karst_counters c;
	struct engine_bed bed;
	struct ends t;

	engine_bed_up(&bed, &cfg);
	ends_up(&bed, &t, 0, 1);
	run_operations(&bed, &t);
	engine_bed_settle(&bed);
	count(&bed, &c);
	cr_assert_eq(handed_over(&bed, 0) + handed_over(&bed, 1), c.ctr[KARST_CTR_RX_PACKETS]);
	cr_assert_gt(handed_over(&bed, 0), 0);
	cr_assert_gt(handed_over(&bed, 1), 0);
	engine_bed_down(&bed);
}

Test(traffic, handoff_between_threads)
{
	struct engine_bed_config cfg = {.engine.lcores = 2};
	struct engine_bed_poller far;
	struct engine_bed bed;
	struct ends t;

	engine_bed_up(&bed, &cfg);
	ends_up(&bed, &t, 0, 1);
	engine_bed_poller_start(&far, &bed, 2);
	run_operations(&bed, &t);
	engine_bed_poller_stop(&far);
	cr_assert_gt(handed_over(&bed, 0), 0);
	cr_assert_gt(handed_over(&bed, 1), 0);
	engine_bed_down(&bed);
}

/* Three lcores need two bits of a QPN: numbers that name a fourth lcore, which does not exist, must
 * do no harm. */
Test(traffic, three_lcores)
{
	struct engine_bed_config cfg = {.engine.lcores = 3};
	struct engine_bed bed;
	struct ends t;

	engine_bed_up(&bed, &cfg);
	ends_up(&bed, &t, 2, 1);
	run_operations(&bed, &t);
	engine_bed_down(&bed);
}

/* A short hand-off ring loses packets, counts them, and the transport recovers. */
Test(traffic, handoff_full)
{
	struct engine_bed_config cfg = {.engine = {.lcores = 2, .handoff_slots = 4}};
	struct karst_counters c;
	unsigned int i;
	struct engine_bed bed;
	struct ends t;

	engine_bed_up(&bed, &cfg);
	ends_up(&bed, &t, 0, 1);
	memset(t.mem[1], 0, BUF);
	engine_bed_post(
		t.qp[0], KARST_WR_RDMA_WRITE, 1, t.mem[0], 300000, t.key[0], t.mem[1], t.key[1]);
	for (i = 0; i < 20; i++)
		karst_engine_poll(bed.e, 0);
	count(&bed, &c);
	cr_assert_gt(c.drop[KARST_DROP_HANDOFF_FULL], 0);
	expect(&bed, 1, KARST_WC_RDMA_WRITE, t.qp[0]->num);
	cr_assert_arr_eq(t.mem[0], t.mem[1], 300000);
	engine_bed_down(&bed);
}

#define MANY 12u

/* A wire of eight slots: frames wait, nothing is lost, every QP progresses. */
Test(traffic, back_pressure)
{
	struct engine_bed_config cfg = {.slots = 8};
	struct karst_engine_lcore_stats st;
	struct karst_engine_qp *qp[2][MANY];
	struct karst_counters c;
	struct engine_bed bed;
	struct ends t;
	unsigned int i;

	engine_bed_up(&bed, &cfg);
	bed.timeout = 0; /* as above: no retransmission */
	ends_up(&bed, &t, 0, 0);
	memset(t.mem[1], 0, BUF);
	for (i = 0; i < MANY; i++) {
		qp[0][i] = engine_bed_qp(&bed, KARST_QPT_RC, 0);
		qp[1][i] = engine_bed_qp(&bed, KARST_QPT_RC, 0);
		engine_bed_connect(&bed, qp[0][i], qp[1][i]);
		engine_bed_post(qp[0][i], KARST_WR_RDMA_WRITE, i, t.mem[0] + i * 80000, 80000,
			t.key[0], t.mem[1] + i * 80000, t.key[1]);
	}
	for (i = 0; i < MANY; i++) {
		struct karst_cqe cqe;

		cr_assert(engine_bed_wait(&bed, &cqe));
		cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
	}
	cr_assert_arr_eq(t.mem[0], t.mem[1], MANY * 80000);
	cr_assert_eq(karst_engine_lcore_stats(bed.e, 0, &st), 0);
	cr_assert_gt(st.tx_full, 0);
	cr_assert_eq(st.tx_dropped, 0);
	count(&bed, &c);
	cr_assert_eq(c.ctr[KARST_CTR_RETRANSMITS], 0);
	engine_bed_down(&bed);
}

/* The wire is not emptied: QPs of that port are parked, can be destroyed, and the others continue
 * when it drains. */
Test(traffic, destroy_while_parked)
{
	struct engine_bed_config cfg = {.engine.lcores = 2, .mask = {1, 2}, .slots = 8};
	struct karst_engine_qp *qp[2][MANY];
	struct engine_bed bed;
	struct ends t;
	unsigned int i;

	engine_bed_up(&bed, &cfg);
	ends_up(&bed, &t, 0, 1);
	for (i = 0; i < MANY; i++) {
		qp[0][i] = engine_bed_qp(&bed, KARST_QPT_RC, 0);
		qp[1][i] = engine_bed_qp(&bed, KARST_QPT_RC, 1);
		engine_bed_connect(&bed, qp[0][i], qp[1][i]);
		engine_bed_post(qp[0][i], KARST_WR_RDMA_WRITE, i, t.mem[0] + i * 80000, 80000,
			t.key[0], t.mem[1] + i * 80000, t.key[1]);
	}
	for (i = 0; i < 50; i++)
		karst_engine_poll(bed.e, 0);
	for (i = 0; i < MANY; i += 2)
		cr_assert_eq(karst_engine_qp_destroy(bed.e, qp[0][i]), 0);
	for (i = 1; i < MANY; i += 2) {
		struct karst_cqe cqe;

		cr_assert(engine_bed_wait(&bed, &cqe));
		cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
		cr_assert_eq(cqe.wr_id % 2, 1);
	}
	for (i = 1; i < MANY; i += 2)
		cr_assert_arr_eq(t.mem[0] + i * 80000, t.mem[1] + i * 80000, 80000);
	engine_bed_down(&bed);
}

/* --- posted requests are sent before their QP is stopped --- */

enum stop {
	STOP_ERR,
	STOP_RESET,
	STOP_DESTROY,
};

/* A program posts its last requests and ends before the lcore has polled its queue. */
static void
last_words(enum stop how, uint32_t len)
{
	struct engine_bed_config cfg = {0};
	struct karst_core_qp_attr attr = {
		.qp_state = how == STOP_ERR ? KARST_QPS_ERR : KARST_QPS_RESET};
	struct karst_cqe cqe;
	struct engine_bed bed;
	struct ends t;

	engine_bed_up(&bed, &cfg);
	ends_up(&bed, &t, 0, 0);
	engine_bed_post_recv(t.qp[1], 1, t.mem[1], len, t.key[1]);
	engine_bed_settle(&bed); /* the lcore is this thread's, and the queue idle */
	engine_bed_post(t.qp[0], KARST_WR_SEND, 2, t.mem[0], len, t.key[0], NULL, 0);
	if (how == STOP_DESTROY)
		cr_assert_eq(karst_engine_qp_destroy(bed.e, t.qp[0]), 0);
	else
		cr_assert_eq(karst_engine_qp_modify(bed.e, t.qp[0], &attr, KARST_QP_STATE), 0);
	do {
		cr_assert(engine_bed_wait(&bed, &cqe), "it did not arrive");
		cr_assert_eq(cqe.status, cqe.wr_id == 1 ? KARST_WC_SUCCESS : KARST_WC_WR_FLUSH_ERR);
	} while (cqe.wr_id != 1);
	cr_assert_eq(cqe.byte_len, len);
	cr_assert_arr_eq(t.mem[0], t.mem[1], len);
	engine_bed_down(&bed);
}

Test(traffic, last_words_before_error)
{
	last_words(STOP_ERR, 64);
}

Test(traffic, last_words_before_reset)
{
	last_words(STOP_RESET, 64);
}

Test(traffic, last_words_before_destruction)
{
	last_words(STOP_DESTROY, 64);
}

/* More requests than fit into one burst. */
Test(traffic, long_last_words)
{
	last_words(STOP_ERR, 200000);
}

/* --- doorbells of queue pairs that are stopped --- */

#define STOPS 300u /* more than the doorbell ring has cells */

/* A program uses one queue pair after the other, while no lcore polls its doorbells. */
static void
rung_and_stopped(enum stop how)
{
	struct engine_bed_config cfg = {.engine.max_qps = 2};
	const struct karst_core_qp_attr reset = {.qp_state = KARST_QPS_RESET};
	struct engine_bed bed;
	struct karst_cqe cqe;
	struct ends t;
	uint32_t i, side;

	engine_bed_up(&bed, &cfg);
	ends_up(&bed, &t, 0, 0);
	engine_bed_settle(&bed);
	for (i = 0; i < STOPS; i++) {
		engine_bed_post(t.qp[0], KARST_WR_RDMA_WRITE, i, t.mem[0], 64, t.key[0], t.mem[1],
			t.key[1]);
		for (side = 0; side < 2; side++) {
			if (how == STOP_RESET) {
				cr_assert_eq(karst_engine_qp_modify(
						     bed.e, t.qp[side], &reset, KARST_QP_STATE),
					0);
				continue;
			}
			cr_assert_eq(karst_engine_qp_destroy(bed.e, t.qp[side]), 0);
			t.qp[side] = engine_bed_qp(&bed, KARST_QPT_RC, 0);
		}
		engine_bed_connect(&bed, t.qp[0], t.qp[1]);
	}
	engine_bed_post(
		t.qp[0], KARST_WR_RDMA_WRITE, i, t.mem[0], 64, t.key[0], t.mem[1], t.key[1]);
	/* earlier ones may have completed before the queue pair was stopped */
	do
		cr_assert(engine_bed_wait(&bed, &cqe), "the last one does not complete");
	while (cqe.wr_id != i);
	cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
	cr_assert_eq(cqe.qpn, t.qp[0]->num);
	engine_bed_down(&bed);
}

Test(traffic, rung_and_reset)
{
	rung_and_stopped(STOP_RESET);
}

Test(traffic, rung_and_destroyed)
{
	rung_and_stopped(STOP_DESTROY);
}

#define ROUNDS 40u

/* Two QPs with long queues progress at the same rate, though one has small messages and the other
 * large ones. */
Test(traffic, scheduler_is_fair_by_bytes)
{
	struct engine_bed_config cfg = {0};
	struct karst_engine_qp *qp[2][2];
	uint64_t bytes[2] = {0};
	struct karst_cqe cqe;
	unsigned int i, k;
	struct engine_bed bed;
	struct ends t;

	engine_bed_up(&bed, &cfg);
	ends_up(&bed, &t, 0, 0);
	for (i = 0; i < 2; i++) {
		qp[0][i] = engine_bed_qp(&bed, KARST_QPT_RC, 0);
		qp[1][i] = engine_bed_qp(&bed, KARST_QPT_RC, 0);
		engine_bed_connect(&bed, qp[0][i], qp[1][i]);
	}
	for (k = 0; k < ROUNDS; k++)
		engine_bed_post(qp[0][0], KARST_WR_RDMA_WRITE, 0, t.mem[0], 8192, t.key[0],
			t.mem[1], t.key[1]);
	for (k = 0; k < 8; k++)
		engine_bed_post(qp[0][1], KARST_WR_RDMA_WRITE, 1, t.mem[0], 65536, t.key[0],
			t.mem[1] + 65536, t.key[1]);
	/* until the small messages are complete */
	while (bytes[0] < ROUNDS * 8192) {
		cr_assert(engine_bed_wait(&bed, &cqe));
		cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
		bytes[cqe.wr_id] += cqe.wr_id == 0 ? 8192 : 65536;
	}
	/* 320 KiB were sent; of the other 512 KiB about as much, plus or minus two messages */
	cr_assert_geq(bytes[1], 3 * 65536, "%lu bytes", (unsigned long)bytes[1]);
	cr_assert_leq(bytes[1], 7 * 65536, "%lu bytes", (unsigned long)bytes[1]);
	engine_bed_down(&bed);
}

/* Injected loss: frames are counted and sent again, and it ends when it is turned off. */
Test(traffic, injected_loss)
{
	struct engine_bed_config cfg = {0};
	struct karst_counters c, d;
	struct engine_bed bed;
	struct ends t;

	engine_bed_up(&bed, &cfg);
	ends_up(&bed, &t, 0, 0);
	cr_assert_eq(karst_engine_set_loss(bed.e, 1.5, 1), -EINVAL);
	cr_assert_eq(karst_engine_set_loss(bed.e, 0.02, 1), 0);
	run_operations(&bed, &t);
	count(&bed, &c);
	cr_assert_gt(c.drop[KARST_DROP_INJECTED], 0);
	cr_assert_gt(c.ctr[KARST_CTR_RETRANSMITS], 0);
	cr_assert_eq(karst_engine_set_loss(bed.e, 0, 0), 0);
	run_operations(&bed, &t);
	count(&bed, &d);
	cr_assert_eq(c.drop[KARST_DROP_INJECTED], d.drop[KARST_DROP_INJECTED]);
	engine_bed_down(&bed);
}

/* A pool so small that buffers run out in between: traffic is slower, not wrong. */
Test(traffic, few_buffers)
{
	struct engine_bed_config cfg = {.engine.mbufs = 256};
	struct engine_bed bed;
	struct ends t;

	engine_bed_up(&bed, &cfg);
	ends_up(&bed, &t, 0, 0);
	run_operations(&bed, &t);
	engine_bed_down(&bed);
}

/* UD by address handle, into a buffer with room for the GRH. */
Test(traffic, datagrams)
{
	struct engine_bed_config cfg = {0};
	struct karst_engine_port_info dst;
	struct karst_engine_qp *qp[2];
	struct karst_send_wqe *w, *again;
	struct karst_path path;
	struct karst_cqe cqe;
	enum karst_qp_state to;
	struct engine_bed bed;
	struct ends t;
	uint32_t ah;
	int side;

	engine_bed_up(&bed, &cfg);
	ends_up(&bed, &t, 0, 0);
	for (side = 0; side < 2; side++) {
		qp[side] = engine_bed_qp(&bed, KARST_QPT_UD, 0);
		for (to = KARST_QPS_INIT; to <= KARST_QPS_RTS; to++) {
			struct karst_core_qp_attr attr;
			unsigned int mask = engine_bed_attr(&bed, KARST_QPT_UD, side, 0, to, &attr);

			cr_assert_eq(karst_engine_qp_modify(bed.e, qp[side], &attr, mask), 0);
		}
	}
	cr_assert_eq(karst_engine_port_info(bed.e, 1, &dst), 0);
	cr_assert_eq(karst_engine_path_init(bed.e, 0, 0, dst.mac, dst.addrs[0].ip, &path), 0);
	cr_assert_eq(karst_engine_ah_create(bed.e, bed.pd, &path, &ah), 0);
	engine_bed_post_recv(qp[1], 5, t.mem[1], 40 + 1000, t.key[1]);
	w = karst_engine_send_slot(qp[0], 0);
	memset(w, 0, sizeof(*w));
	w->opcode = KARST_WR_SEND;
	w->flags = KARST_SEND_SIGNALED;
	w->num = 1;
	w->wr_id = 6;
	w->ud.ah = ah;
	w->ud.remote_qpn = qp[1]->num;
	w->ud.remote_qkey = 0x1234;
	w->sge[0] = (struct karst_sge){.addr = (uintptr_t)t.mem[0], .len = 1000, .lkey = t.key[0]};
	cr_assert_eq(karst_engine_post_send(qp[0], 1), 0);
	expect(&bed, 6, KARST_WC_SEND, qp[0]->num);
	cr_assert(engine_bed_wait(&bed, &cqe));
	cr_assert_eq(cqe.wr_id, 5);
	cr_assert_eq(cqe.byte_len, 1040);
	cr_assert_eq(cqe.src_qpn, qp[0]->num);
	cr_assert_arr_eq(t.mem[0], t.mem[1] + 40, 1000);
	cr_assert_eq(karst_engine_pd_free(bed.e, bed.pd), -EBUSY);
	/* posted requests are sent before the handle is destroyed, if that is asked for */
	engine_bed_post_recv(qp[1], 7, t.mem[1], 40 + 1000, t.key[1]);
	engine_bed_settle(&bed);
	again = karst_engine_send_slot(qp[0], 0);
	*again = *w;
	again->wr_id = 8;
	cr_assert_eq(karst_engine_post_send(qp[0], 1), 0);
	cr_assert_eq(karst_engine_qp_send_posted(bed.e, qp[0]), 0);
	cr_assert_eq(karst_engine_ah_destroy(bed.e, ah), 0);
	expect(&bed, 8, KARST_WC_SEND, qp[0]->num);
	expect(&bed, 7, KARST_WC_RECV, qp[1]->num);
	cr_assert_eq(karst_engine_qp_send_posted(bed.e, qp[0]), 0);
	cr_assert_eq(karst_engine_ah_destroy(bed.e, ah), -EINVAL);
	engine_bed_down(&bed);
}

/* Two QPs share a receive queue; its limit event names the queue. */
static void
note_event(void *user, const struct karst_engine_event *ev)
{
	struct karst_engine_event *seen = user;

	*seen = *ev;
}

Test(traffic, shared_receive_queue)
{
	struct karst_engine_event seen = {.event = KARST_EVENT_CQ_ERR};
	const struct karst_engine_ops ops = {.async_event = note_event};
	struct engine_bed_config cfg = {.engine = {.ops = &ops, .user = &seen}};
	struct karst_engine_srq *srq;
	struct karst_engine_qp *far;
	struct engine_bed bed;
	struct ends t;
	unsigned int i;

	engine_bed_up(&bed, &cfg);
	ends_up(&bed, &t, 0, 0);
	{
		struct karst_engine_srq_init si = {.pd = bed.pd, .max_wr = 8, .limit = 2};
		struct karst_engine_qp_init qi = {
			.type = KARST_QPT_RC,
			.lcore = KARST_ENGINE_ANY_LCORE,
			.pd = bed.pd,
			.send_cq = bed.cq,
			.recv_cq = bed.cq,
			.max_send_wr = 1,
		};

		cr_assert_eq(karst_engine_srq_create(bed.e, &si, &srq), 0);
		qi.srq = srq;
		qi.max_dest_rd_atomic = 16;
		cr_assert_eq(karst_engine_qp_create(bed.e, &qi, &far), 0);
	}
	t.qp[0] = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	engine_bed_connect(&bed, t.qp[0], far);
	for (i = 0; i < 3; i++) {
		struct karst_recv_wqe *w = karst_wq_slot(&srq->rq, 0);

		*w = (struct karst_recv_wqe){.wr_id = 20 + i, .num_sge = 1};
		w->sge[0] = (struct karst_sge){
			.addr = (uintptr_t)t.mem[1] + i * 1000, .len = 1000, .lkey = t.key[1]};
		karst_engine_post_srq_recv(srq, 1);
	}
	for (i = 0; i < 3; i++) {
		engine_bed_post(
			t.qp[0], KARST_WR_SEND, i, t.mem[0] + i * 1000, 1000, t.key[0], NULL, 0);
		expect(&bed, 20 + i, KARST_WC_RECV, far->num);
		expect(&bed, i, KARST_WC_SEND, t.qp[0]->num);
	}
	cr_assert_arr_eq(t.mem[0], t.mem[1], 3000);
	cr_assert_eq(seen.event, KARST_EVENT_SRQ_LIMIT_REACHED);
	cr_assert_eq(seen.srq, srq);
	cr_assert_eq(karst_engine_srq_destroy(bed.e, srq), -EBUSY);
	cr_assert_eq(karst_engine_qp_destroy(bed.e, far), 0);
	cr_assert_eq(karst_engine_srq_destroy(bed.e, srq), 0);
	engine_bed_down(&bed);
}

/* With an embedded engine unread completions stay, and a size that is too small for them is
 * refused. */
Test(traffic, resized_completion_queue)
{
	struct engine_bed_config cfg = {.engine = {.lcores = 2}};
	struct engine_bed_poller poller;
	struct engine_bed bed;
	struct ends t;
	uint32_t i, round;

	engine_bed_up(&bed, &cfg);
	ends_up(&bed, &t, 0, 1);
	cr_assert_eq(karst_engine_cq_switch_lanes(bed.e, bed.cq), -EINVAL, "none are laid");
	cr_assert_eq(karst_engine_cq_resize(bed.e, bed.cq, 0), -EINVAL);
	for (round = 0; round < 3; round++) {
		for (i = 0; i < 10; i++)
			engine_bed_post(t.qp[0], KARST_WR_RDMA_WRITE, i, t.mem[0], 8, t.key[0],
				t.mem[1], t.key[1]);
		engine_bed_settle(&bed);
		cr_assert_eq(karst_engine_cq_resize(bed.e, bed.cq, 8), -ENOSPC);
		/* the lcores are this thread's, or another one's */
		if (round == 1)
			engine_bed_poller_start(&poller, &bed, 3);
		cr_assert_eq(karst_engine_cq_resize(bed.e, bed.cq, round == 0 ? 5000 : 16), 0);
		cr_assert_eq(bed.cq->entries, round == 0 ? 8192 : 16);
		if (round == 1)
			engine_bed_poller_stop(&poller);
		for (i = 0; i < 10; i++)
			expect(&bed, i, KARST_WC_RDMA_WRITE, t.qp[0]->num);
	}
	engine_bed_down(&bed);
}
