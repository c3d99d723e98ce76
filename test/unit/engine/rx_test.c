/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Forged and broken frames on the wire: each is dropped, counted under the right reason, and only
 * once. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <criterion/criterion.h>
#include <rte_mbuf.h>

#include "engine_bed.h"
#include "karst_build.h"
#include "karst_hdr.h"
#include "karst_icrc.h"
#include "karst_opcode.h"

struct wire {
	struct engine_bed bed;
	struct rte_mempool *pool;
	struct karst_counters before;
};

static void
wire_up(struct wire *w, const struct engine_bed_config *cfg)
{
	engine_bed_up(&w->bed, cfg);
	w->pool = rte_pktmbuf_pool_create("other", 255, 0, sizeof(struct karst_pkt), 2048, 0);
	cr_assert_not_null(w->pool);
	engine_bed_settle(&w->bed); /* the announcements of the ports */
	karst_engine_counters(w->bed.e, KARST_ENGINE_ANY_LCORE, &w->before);
}

/* A valid RoCE frame from A to B, for a QP that does not exist. */
static struct karst_frame
good_frame(void)
{
	struct karst_frame f = {
		.dmac = {2, 0, 0, 0, 0, 2},
		.smac = {2, 0, 0, 0, 0, 1},
		.ttl = 64,
		.ip_frag = 0x4000,
		.saddr = {10, 0, 0, 1},
		.daddr = {10, 0, 0, 2},
		.sport = 50000,
		.dport = KARST_ROCE_UDP_PORT,
		.ib = {.opcode = KARST_RC_SEND_ONLY, .pkey = 0xffff, .dqpn = 0x77, .pay_len = 64},
	};
	return f;
}

/* @spoil: XORed into one byte of the ICRC. */
static struct rte_mbuf *
frame_of(struct wire *w, const struct karst_frame *f, uint8_t spoil)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(w->pool);
	unsigned int l3 = f->vlan ? 18 : 14;
	uint8_t *p;
	uint32_t crc;
	int len;

	cr_assert_not_null(m);
	p = rte_pktmbuf_mtod(m, uint8_t *);
	len = karst_build_frame(p, rte_pktmbuf_tailroom(m), f);
	cr_assert_gt(len, 0);
	crc = karst_icrc_rocev2(p + l3, (size_t)len - l3 - 4, f->ip6);
	memcpy(p + len - 4, &crc, 4);
	p[len - 1] ^= spoil;
	rte_pktmbuf_append(m, (uint16_t)len);
	return m;
}

/* Puts a frame on B's wire. */
static void
put(struct wire *w, const struct karst_frame *f, uint8_t spoil)
{
	cr_assert_eq(rte_ring_enqueue(w->bed.ring[0][0], frame_of(w, f, spoil)), 0);
}

/* Expects one more drop for @reason (NONE: no drop), and none for any other. */
static void
expect_drop(struct wire *w, enum karst_drop reason)
{
	struct karst_counters now;
	unsigned int i;

	engine_bed_settle(&w->bed);
	karst_engine_counters(w->bed.e, KARST_ENGINE_ANY_LCORE, &now);
	for (i = 0; i < KARST_DROP_MAX; i++)
		cr_assert_eq(now.drop[i], w->before.drop[i] + (i != KARST_DROP_NONE && i == reason),
			"%s: %lu after %lu", karst_drop_name(i), (unsigned long)now.drop[i],
			(unsigned long)w->before.drop[i]);
	w->before = now;
	cr_assert_eq(
		rte_mempool_avail_count(w->pool), 255, "a buffer of the other pool is missing");
}

static void
wire_down(struct wire *w)
{
	engine_bed_down(&w->bed);
	rte_mempool_free(w->pool);
}

Test(rx, drops_by_reason)
{
	struct engine_bed_config cfg = {0};
	struct karst_frame f;
	struct rte_mbuf *m, *tail;
	struct wire w;

	wire_up(&w, &cfg);
	f = good_frame();
	put(&w, &f, 0);
	expect_drop(&w, KARST_DROP_NO_QP);
	put(&w, &f, 1);
	expect_drop(&w, KARST_DROP_ICRC);
	f.daddr[3] = 3;
	put(&w, &f, 0);
	expect_drop(&w, KARST_DROP_DEST_ADDRESS);
	f = good_frame();
	f.vlan = true;
	f.vlan_tci = 5;
	put(&w, &f, 0);
	expect_drop(&w, KARST_DROP_VLAN);
	f.vlan_tci = 0xe000; /* a VLAN tag with a priority and without a VLAN */
	put(&w, &f, 0);
	expect_drop(&w, KARST_DROP_NO_QP);
	f = good_frame();
	f.daddr[0] = 239; /* a group address may have members here */
	put(&w, &f, 0);
	expect_drop(&w, KARST_DROP_NO_QP);
	f = good_frame();
	f.dport = 53;
	put(&w, &f, 0);
	expect_drop(&w, KARST_DROP_NOT_ROCE);
	m = rte_pktmbuf_alloc(w.pool);
	rte_pktmbuf_append(m, 20);
	memset(rte_pktmbuf_mtod(m, void *), 0, 20);
	cr_assert_eq(rte_ring_enqueue(w.bed.ring[0][0], m), 0);
	expect_drop(&w, KARST_DROP_ETHERTYPE);
	/* in two segments */
	m = rte_pktmbuf_alloc(w.pool);
	tail = rte_pktmbuf_alloc(w.pool);
	memset(rte_pktmbuf_append(m, 100), 0, 100);
	memset(rte_pktmbuf_append(tail, 100), 0, 100);
	cr_assert_eq(rte_pktmbuf_chain(m, tail), 0);
	cr_assert_eq(rte_ring_enqueue(w.bed.ring[0][0], m), 0);
	expect_drop(&w, KARST_DROP_ETHERTYPE);
	/* in two, and the first has no room for the rest */
	m = rte_pktmbuf_alloc(w.pool);
	tail = rte_pktmbuf_alloc(w.pool);
	rte_pktmbuf_append(m, rte_pktmbuf_tailroom(m));
	rte_pktmbuf_append(tail, 100);
	cr_assert_eq(rte_pktmbuf_chain(m, tail), 0);
	cr_assert_eq(rte_ring_enqueue(w.bed.ring[0][0], m), 0);
	expect_drop(&w, KARST_DROP_SEGMENTED);
	wire_down(&w);
}

/* Some adapters fill a buffer only up to a limit (those of Intel that count in KiB) and put the
 * rest of a long frame into another one, wherever that cuts the frame: it must be accepted like
 * others. */
Test(rx, w1_frame_in_segments)
{
	const struct engine_bed_config cfg = {0};
	struct karst_frame f = good_frame();
	struct rte_mbuf *m, *tail;
	uint32_t cut, len;
	struct wire w;

	wire_up(&w, &cfg);
	put(&w, &f, 0);
	expect_drop(&w, KARST_DROP_NO_QP);
	for (cut = 1;; cut++) {
		m = frame_of(&w, &f, 0);
		len = rte_pktmbuf_data_len(m);
		if (cut == len) {
			rte_pktmbuf_free(m);
			break;
		}
		tail = rte_pktmbuf_alloc(w.pool);
		memcpy(rte_pktmbuf_append(tail, (uint16_t)(len - cut)),
			rte_pktmbuf_mtod_offset(m, uint8_t *, cut), len - cut);
		rte_pktmbuf_trim(m, (uint16_t)(len - cut));
		cr_assert_eq(rte_pktmbuf_chain(m, tail), 0);
		cr_assert_eq(rte_ring_enqueue(w.bed.ring[0][0], m), 0);
		/* its ICRC was found right, or the reason would be another one */
		expect_drop(&w, KARST_DROP_NO_QP);
	}
	wire_down(&w);
}

/* Only management datagrams get to queue pair 1.  Whether anyone wants them there is another
 * question.  On an engine of two lcores, the second of which the number names. */
Test(rx, u2_queue_pair_1)
{
	struct engine_bed_config cfg = {.engine.lcores = 2};
	struct karst_frame good = good_frame(), f;
	struct karst_counters now;
	struct wire w;

	wire_up(&w, &cfg);
	good.ib = (struct karst_ib_hdrs){.opcode = KARST_UD_SEND_ONLY,
		.pkey = 0xffff,
		.dqpn = 1,
		.qkey = 0x80010000,
		.src_qpn = 1,
		.pay_len = 256};
	f = good;
	f.ib.qkey = 0x80010001;
	put(&w, &f, 0);
	expect_drop(&w, KARST_DROP_QKEY);
	f = good;
	f.ib.src_qpn = 2;
	put(&w, &f, 0);
	expect_drop(&w, KARST_DROP_GSI_SOURCE);
	f = good;
	f.ib.src_qpn = 0x800001;
	put(&w, &f, 0);
	expect_drop(&w, KARST_DROP_GSI_SOURCE);
	f = good;
	f.ib.pay_len = 252;
	put(&w, &f, 0);
	expect_drop(&w, KARST_DROP_UD_LENGTH);
	f = good;
	f.ib.pkey = 0x8001;
	put(&w, &f, 0);
	expect_drop(&w, KARST_DROP_PKEY);
	f = good;
	f.ib.opcode = KARST_RC_SEND_ONLY;
	put(&w, &f, 0);
	expect_drop(&w, KARST_DROP_QP_TYPE);
	put(&w, &good, 1);
	expect_drop(&w, KARST_DROP_ICRC);
	karst_engine_counters(w.bed.e, KARST_ENGINE_ANY_LCORE, &now);
	cr_assert_eq(now.ctr[KARST_CTR_RX_MADS], 0);
	put(&w, &good, 0);
	expect_drop(&w, KARST_DROP_NONE);
	karst_engine_counters(w.bed.e, KARST_ENGINE_ANY_LCORE, &now);
	cr_assert_eq(now.ctr[KARST_CTR_RX_MADS], 1);
	wire_down(&w);
}

/* QPNs of an lcore that the engine does not have (three lcores, two bits). */
Test(rx, no_such_lcore)
{
	struct engine_bed_config cfg = {.engine.lcores = 3};
	struct karst_frame f = good_frame();
	struct wire w;

	wire_up(&w, &cfg);
	f.ib.dqpn = 0x77; /* low bits 3 */
	put(&w, &f, 0);
	expect_drop(&w, KARST_DROP_NO_QP);
	f.ib.dqpn = 0x76; /* 2: handed over, and no such QP */
	put(&w, &f, 0);
	expect_drop(&w, KARST_DROP_NO_QP);
	wire_down(&w);
}

Test(rx, tagged_port)
{
	struct engine_bed_config cfg = {.vlan = 7};
	struct karst_frame f = good_frame();
	struct wire w;

	wire_up(&w, &cfg);
	put(&w, &f, 0);
	expect_drop(&w, KARST_DROP_VLAN);
	f.vlan = true;
	f.vlan_tci = 7;
	put(&w, &f, 0);
	expect_drop(&w, KARST_DROP_NO_QP);
	f.vlan_tci = 8;
	put(&w, &f, 0);
	expect_drop(&w, KARST_DROP_VLAN);
	wire_down(&w);
}

/* Frames that wait at A in front of the acknowledgement: several bursts. */
#define AHEAD 200

/* An lcore had no processor for longer than the timeout: frames that have arrived meanwhile are
 * processed before the timer expires, however many bursts they are. */
Test(rx, q6_before_timers)
{
	const struct timespec away = {.tv_nsec = 200000000};
	struct engine_bed_config cfg = {0};
	static uint8_t mem[2][64];
	struct karst_frame f = good_frame();
	struct karst_engine_qp *qp[2];
	struct karst_counters now;
	struct karst_cqe cqe;
	uint32_t key, i;
	struct wire w;

	wire_up(&w, &cfg);
	w.bed.timeout = 14; /* 67 ms */
	key = engine_bed_mr(&w.bed, mem, sizeof(mem));
	qp[0] = engine_bed_qp(&w.bed, KARST_QPT_RC, 0);
	qp[1] = engine_bed_qp(&w.bed, KARST_QPT_RC, 0);
	engine_bed_connect(&w.bed, qp[0], qp[1]);
	engine_bed_post(qp[0], KARST_WR_RDMA_WRITE, 1, mem[0], 64, key, mem[1], key);
	while (rte_ring_empty(w.bed.ring[0][0]))
		karst_engine_poll(w.bed.e, 0);
	for (i = 0; i < AHEAD; i++)
		cr_assert_eq(rte_ring_enqueue(w.bed.ring[1][0], frame_of(&w, &f, 0)), 0);
	/* received, and its acknowledgement waits behind these */
	while (!rte_ring_empty(w.bed.ring[0][0]))
		karst_engine_poll(w.bed.e, 0);
	cr_assert_gt(rte_ring_count(w.bed.ring[1][0]), 64);
	nanosleep(&away, NULL);
	cr_assert(engine_bed_wait(&w.bed, &cqe));
	cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
	karst_engine_counters(w.bed.e, KARST_ENGINE_ANY_LCORE, &now);
	cr_assert_eq(now.ctr[KARST_CTR_LOCAL_ACK_TIMEOUT], 0);
	wire_down(&w);
}

struct exceptions {
	unsigned int times;
	enum karst_drop why;
	uint8_t port;
	bool take;
};

static bool
on_exception(void *user, const struct karst_engine_exception *ex)
{
	struct exceptions *seen = user;

	seen->times++;
	seen->why = ex->why;
	seen->port = ex->port;
	if (seen->take)
		rte_pktmbuf_free(ex->mbuf);
	return seen->take;
}

/* Frames that are not RoCE are offered to the program; invalid RoCE frames are not. */
Test(rx, exceptions)
{
	const struct karst_engine_ops ops = {.exception = on_exception};
	struct exceptions seen = {.take = true};
	struct engine_bed_config cfg = {.engine = {.ops = &ops, .user = &seen}};
	struct karst_frame f = good_frame();
	struct wire w;

	wire_up(&w, &cfg);
	seen.times = 0;
	f.dport = 53;
	put(&w, &f, 0);
	expect_drop(&w, KARST_DROP_NONE - 1);
	cr_assert_eq(seen.times, 1);
	cr_assert_eq(seen.why, KARST_DROP_NOT_ROCE);
	cr_assert_eq(seen.port, 1);
	seen.take = false;
	put(&w, &f, 0);
	expect_drop(&w, KARST_DROP_NOT_ROCE);
	cr_assert_eq(seen.times, 2);
	f = good_frame();
	put(&w, &f, 1);
	expect_drop(&w, KARST_DROP_ICRC);
	cr_assert_eq(seen.times, 2);
	wire_down(&w);
}

/* Random bytes and truncated frames of all kinds: whatever they are, they are counted and freed. */
Test(rx, noise)
{
	struct engine_bed_config cfg = {.engine.lcores = 2};
	struct karst_counters now;
	unsigned int seed = 3, i, k, sent = 0;
	uint64_t drops = 0;
	struct wire w;

	wire_up(&w, &cfg);
	for (i = 0; i < 3000; i++) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(w.pool);
		struct karst_frame f = good_frame();
		uint8_t *p = rte_pktmbuf_mtod(m, uint8_t *);
		int len = karst_build_frame(p, 2000, &f);

		for (k = 0; k < 4; k++)
			p[(unsigned int)rand_r(&seed) % (unsigned int)len] = (uint8_t)rand_r(&seed);
		rte_pktmbuf_append(m, (uint16_t)(1 + rand_r(&seed) % len));
		cr_assert_eq(rte_ring_enqueue(w.bed.ring[0][i & 1], m), 0);
		sent++;
		if (i % 50 == 0)
			engine_bed_settle(&w.bed);
	}
	engine_bed_settle(&w.bed);
	karst_engine_counters(w.bed.e, KARST_ENGINE_ANY_LCORE, &now);
	for (i = 0; i < KARST_DROP_MAX; i++)
		drops += now.drop[i] - w.before.drop[i];
	cr_assert_eq(drops, sent);
	cr_assert_eq(rte_mempool_avail_count(w.pool), 255);
	wire_down(&w);
}
