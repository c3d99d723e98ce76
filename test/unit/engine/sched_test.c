/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Ports that are full, or slower than what is sent: which queue pairs wait for them, and which do
 * not. */
#include <criterion/criterion.h>
#include <rte_mbuf.h>

#include "engine_bed.h"
#include "karst_owner.h"
#include "engine_priv.h"

#define BUF (1u << 20)

static uint8_t mem[2][BUF];

static struct karst_engine_qp *
ud_qp(struct engine_bed *bed, int side, uint32_t lcore)
{
	struct karst_engine_qp *qp = engine_bed_qp(bed, KARST_QPT_UD, lcore);
	enum karst_qp_state to;

	for (to = KARST_QPS_INIT; to <= KARST_QPS_RTS; to++) {
		struct karst_core_qp_attr attr;
		unsigned int mask = engine_bed_attr(bed, KARST_QPT_UD, side, 0, to, &attr);

		cr_assert_eq(karst_engine_qp_modify(bed->e, qp, &attr, mask), 0);
	}
	return qp;
}

/* An address handle from port @side to the other port. */
static uint32_t
ah_over(struct engine_bed *bed, int side)
{
	struct karst_engine_port_info dst;
	struct karst_path path;
	uint32_t ah;

	cr_assert_eq(karst_engine_port_info(bed->e, bed->port[1 - side], &dst), 0);
	cr_assert_eq(
		karst_engine_path_init(bed->e, bed->port[side], 0, dst.mac, dst.addrs[0].ip, &path),
		0);
	cr_assert_eq(karst_engine_ah_create(bed->e, bed->pd, &path, &ah), 0);
	return ah;
}

static void
post_ud(struct karst_engine_qp *qp, uint32_t ah, uint32_t len, uint32_t lkey)
{
	struct karst_send_wqe *w = karst_engine_send_slot(qp, 0);

	memset(w, 0, sizeof(*w));
	w->opcode = KARST_WR_SEND;
	w->num = 1;
	w->wr_id = 6;
	w->ud.ah = ah;
	w->ud.remote_qpn = 0x777;
	w->ud.remote_qkey = 0x1234;
	w->sge[0] = (struct karst_sge){.addr = (uintptr_t)mem[0], .len = len, .lkey = lkey};
	cr_assert_eq(karst_engine_post_send(qp, 1), 0);
}

/*
 * A program sends datagrams without end over a port that is not its queue pair's, and faster than
 * that port sends them.  The queue pairs of that port get their share, and no datagram is dropped.
 */
static void
flood(bool both_ports)
{
	struct engine_bed_config cfg = {.slots = 8};
	struct karst_engine_lcore_stats st;
	struct karst_engine_qp *rc[2], *ud;
	uint32_t key[2], ah[2], i, n;
	struct karst_cqe cqe = {.wr_id = 0};
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	engine_bed_fill(mem[1], BUF, 1);
	memset(mem[0], 0, BUF);
	key[0] = engine_bed_mr(&bed, mem[0], BUF);
	key[1] = engine_bed_mr(&bed, mem[1], BUF);
	rc[0] = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	rc[1] = engine_bed_qp(&bed, KARST_QPT_RC, 0);
	engine_bed_connect(&bed, rc[0], rc[1]);
	ud = ud_qp(&bed, 0, 0);
	ah[0] = ah_over(&bed, 0);
	ah[1] = ah_over(&bed, 1);
	for (i = 0, n = 0; i < 100000 && cqe.wr_id != 9; i++) {
		while (karst_engine_send_room(ud, 1) >= 1)
			post_ud(ud, ah[both_ports ? ++n & 1 : 1], 1024, key[0]);
		karst_engine_poll(bed.e, 0);
		if (i == 100)
			engine_bed_post(
				rc[1], KARST_WR_RDMA_WRITE, 9, mem[1], BUF, key[1], mem[0], key[0]);
		karst_engine_cq_poll(bed.cq, &cqe, 1);
	}
	cr_assert_eq(cqe.wr_id, 9, "it was not sent in 100000 turns");
	cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
	cr_assert_arr_eq(mem[0], mem[1], BUF);
	cr_assert_eq(karst_engine_lcore_stats(bed.e, 0, &st), 0);
	cr_assert_gt(st.tx_full, 0);
	cr_assert_eq(st.tx_dropped, 0);
	engine_bed_down(&bed);
}

Test(sched, datagrams_over_another_port)
{
	flood(false);
}

Test(sched, datagrams_over_both_ports)
{
	flood(true);
}

#define MANY 12u

/* The wire is not emptied: a queue pair that is moved to Error is flushed all the same, and so is
 * what a program posts then. */
Test(sched, flushed_while_the_port_is_full)
{
	struct engine_bed_config cfg = {.engine.lcores = 2, .mask = {1, 2}, .slots = 8};
	struct karst_core_qp_attr attr = {.qp_state = KARST_QPS_ERR};
	struct karst_engine_qp *qp[2][MANY];
	uint32_t key[2], i, k;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	for (i = 0; i < 2; i++)
		key[i] = engine_bed_mr(&bed, mem[i], BUF);
	for (i = 0; i < MANY; i++) {
		qp[0][i] = engine_bed_qp(&bed, KARST_QPT_RC, 0);
		qp[1][i] = engine_bed_qp(&bed, KARST_QPT_RC, 1);
		engine_bed_connect(&bed, qp[0][i], qp[1][i]);
		engine_bed_post(qp[0][i], KARST_WR_RDMA_WRITE, i, mem[0] + i * 80000, 80000, key[0],
			mem[1] + i * 80000, key[1]);
	}
	karst_engine_release(bed.e, 1);
	bed.mine = 1;
	for (i = 0; i < 50; i++)
		karst_engine_poll(bed.e, 0);
	for (i = 0; i < MANY; i += 2) {
		cr_assert_eq(karst_engine_qp_modify(bed.e, qp[0][i], &attr, KARST_QP_STATE), 0);
		for (k = 0; k < 2; k++) {
			struct karst_cqe cqe = {.wr_id = 99};
			uint32_t turns;

			for (turns = 0; turns < 1000 && cqe.wr_id == 99; turns++) {
				karst_engine_poll(bed.e, 0);
				karst_engine_cq_poll(bed.cq, &cqe, 1);
			}
			cr_assert_eq(cqe.wr_id, i, "QP %u was not flushed in 1000 turns", i);
			cr_assert_eq(cqe.status, KARST_WC_WR_FLUSH_ERR);
			if (k == 0)
				engine_bed_post(
					qp[0][i], KARST_WR_SEND, i, mem[0], 8, key[0], NULL, 0);
		}
	}
	bed.mine = 3;
	engine_bed_down(&bed);
}

#define WAITERS 200u

static bool
some_wait(const struct engine_bed *bed)
{
	uint32_t port;

	for (port = 0; port < ENG_TXQS; port++) {
		const struct eng_txq *q = &bed->e->lcore[0].tx[port];

		if (!LIST_EMPTY(&q->parked) || !LIST_EMPTY(&q->back))
			return true;
	}
	return false;
}

/* Hundreds of queue pairs wait for a port.  When the port takes frames again, they do not all come
 * back in one turn, because all other queue pairs would wait for that; but all come back. */
Test(sched, who_has_waited_for_a_port)
{
	struct engine_bed_config cfg = {.engine.lcores = 2, .mask = {1, 2}, .slots = 8};
	struct karst_engine_qp *qp[2][WAITERS];
	uint32_t key[2], i, pending, done = 0;
	struct karst_cqe cqe;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	for (i = 0; i < 2; i++)
		key[i] = engine_bed_mr(&bed, mem[i], BUF);
	for (i = 0; i < WAITERS; i++) {
		qp[0][i] = engine_bed_qp(&bed, KARST_QPT_RC, 0);
		qp[1][i] = engine_bed_qp(&bed, KARST_QPT_RC, 1);
		engine_bed_connect(&bed, qp[0][i], qp[1][i]);
	}
	karst_engine_release(bed.e, 1);
	bed.mine = 1;
	for (i = 0; i < WAITERS; i++)
		engine_bed_post(
			qp[0][i], KARST_WR_RDMA_WRITE, i, mem[0], 64, key[0], mem[1], key[1]);
	for (i = 0; i < 100; i++)
		karst_engine_poll(bed.e, 0);
	cr_assert(some_wait(&bed));
	bed.mine = 3;
	/* until the frames that were built have left, and the first of these queue pairs build
	 * some */
	do {
		pending = bed.e->lcore[0].tx[0].n;
		karst_engine_poll(bed.e, 1);
		karst_engine_poll(bed.e, 0);
	} while (bed.e->lcore[0].tx[0].n != 0 && bed.e->lcore[0].tx[0].n < pending);
	cr_assert(some_wait(&bed), "all are back in one turn");
	for (i = 0; i < 100000 && done < WAITERS; i++) {
		karst_engine_poll(bed.e, 1);
		karst_engine_poll(bed.e, 0);
		while (karst_engine_cq_poll(bed.cq, &cqe, 1) == 1) {
			cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
			done++;
		}
	}
	cr_assert_eq(done, WAITERS);
	cr_assert_not(some_wait(&bed));
	engine_bed_down(&bed);
}

/* The opcodes of the frames that wait on the wire from port B to port A. */
static uint32_t
operations(const struct engine_bed *bed, uint8_t *to, uint32_t max)
{
	uint32_t n = 0, q;
	void *m;

	for (q = 0; q < 4; q++) {
		while (bed->ring[1][q] != NULL && n < max &&
			rte_ring_dequeue(bed->ring[1][q], &m) == 0) {
			/* Ethernet, IPv4, UDP */
			to[n++] =
				rte_pktmbuf_mtod((struct rte_mbuf *)m, const uint8_t *)[42] & 0x1f;
			rte_pktmbuf_free(m);
		}
	}
	return n;
}

/* An answer that is posted at once is not delayed until the acknowledgement of the request has been
 * sent. */
Test(sched, answers_leave_before_acknowledgements)
{
	struct engine_bed_config cfg = {.engine.lcores = 2, .mask = {1, 2}};
	struct karst_engine_qp *qp[2];
	struct engine_bed bed;
	uint32_t key[2], i;
	uint8_t ops[8];

	engine_bed_up(&bed, &cfg);
	for (i = 0; i < 2; i++) {
		key[i] = engine_bed_mr(&bed, mem[i], BUF);
		qp[i] = engine_bed_qp(&bed, KARST_QPT_RC, i);
	}
	engine_bed_connect(&bed, qp[0], qp[1]);
	engine_bed_settle(&bed);
	operations(&bed, ops, KARST_DIM(ops));
	engine_bed_post(qp[0], KARST_WR_RDMA_WRITE, 1, mem[0], 64, key[0], mem[1], key[1]);
	karst_engine_poll(bed.e, 0);
	engine_bed_post(qp[1], KARST_WR_RDMA_WRITE, 2, mem[1], 64, key[1], mem[0], key[0]);
	karst_engine_poll(bed.e, 1);
	cr_assert_eq(operations(&bed, ops, KARST_DIM(ops)), 2);
	cr_assert_eq(ops[0], 0x0a, "first a WRITE, not %#x", ops[0]);
	cr_assert_eq(ops[1], 0x11, "then an acknowledgement, not %#x", ops[1]);
	engine_bed_down(&bed);
}

/* --- users --- */

#define MANY_QPS  40u
#define MSG       8192u
#define DEPTH     128u /* of each queue pair: 1 MiB */
#define HIS_BYTES (64u * MSG)

/* A program of some user, with queue pairs (UC) that have much to send. */
struct program {
	struct engine_bed *bed;
	struct karst_engine_owner *owner;
	struct eng_share *share;
	struct karst_engine_cq *cq;
	struct karst_engine_qp *qp[MANY_QPS];
	uint32_t nqps;
	uint64_t bytes; /* sent so far */
};

static void
program_up(struct program *p, struct engine_bed *bed, uid_t uid, uint32_t nqps)
{
	const struct eng_share_rule rule = {.percent = 75};
	struct karst_engine_cq_init cq = {.entries = 8192};
	struct karst_engine_owner_init owner = {.name = "user"};
	struct karst_engine_qp_init init = {
		.type = KARST_QPT_UC, .pd = bed->pd, .max_send_wr = DEPTH, .max_recv_wr = 1};
	struct karst_core_qp_attr attr;
	enum karst_qp_state to;
	unsigned int mask;
	uint32_t i;

	*p = (struct program){.bed = bed, .nqps = nqps};
	owner.share = p->share = eng_share_join(&bed->e->shares, uid, &rule, 0);
	cr_assert_eq(karst_engine_owner_create(bed->e, &owner, &p->owner), 0);
	cq.owner = init.owner = p->owner;
	cr_assert_eq(karst_engine_cq_create(bed->e, &cq, &p->cq), 0);
	init.send_cq = init.recv_cq = p->cq;
	for (i = 0; i < nqps; i++) {
		cr_assert_eq(karst_engine_qp_create(bed->e, &init, &p->qp[i]), 0);
		for (to = KARST_QPS_INIT; to <= KARST_QPS_RTS; to++) {
			/* no QP has that number: all is sent, and the other side drops it */
			mask = engine_bed_attr(bed, KARST_QPT_UC, 0, 0xabcdef, to, &attr);
			cr_assert_eq(karst_engine_qp_modify(bed->e, p->qp[i], &attr, mask), 0);
		}
	}
}

static void
program_sends(struct program *p, uint32_t key)
{
	uint32_t i, k;

	for (k = 0; k < DEPTH; k++)
		for (i = 0; i < p->nqps; i++)
			if (karst_engine_send_room(p->qp[i], 1) >= 1)
				engine_bed_post(p->qp[i], KARST_WR_RDMA_WRITE, 1, mem[0], MSG, key,
					mem[1], key);
}

static void
program_looks(struct program *p)
{
	struct karst_cqe cqe[16];
	unsigned int i, n;

	while ((n = karst_engine_cq_poll(p->cq, cqe, 16)) != 0)
		for (i = 0; i < n; i++)
			if (cqe[i].status == KARST_WC_SUCCESS)
				p->bytes += MSG;
}

static void
program_down(struct program *p)
{
	cr_assert_eq(karst_engine_qp_destroy_many(p->bed->e, p->qp, p->nqps), 0);
	cr_assert_eq(karst_engine_cq_destroy(p->bed->e, p->cq), 0);
	cr_assert_eq(karst_engine_owner_destroy(p->owner), 0);
	eng_share_leave(p->share);
}

/* @return the bytes that @many have sent together while @one has sent HIS_BYTES. */
static uint64_t
sent_meanwhile(struct engine_bed *bed, struct program *one, struct program *const *many, uint32_t n)
{
	uint64_t until, sum = 0;
	uint32_t i;

	program_looks(one);
	until = one->bytes + HIS_BYTES;
	for (i = 0; i < n; i++) {
		program_looks(many[i]);
		sum -= many[i]->bytes;
	}
	while (one->bytes < until) {
		karst_engine_poll(bed->e, 0);
		program_looks(one);
		for (i = 0; i < n; i++)
			program_looks(many[i]);
	}
	for (i = 0; i < n; i++)
		sum += many[i]->bytes;
	return sum;
}

/* Messages are counted when they are complete, so some more bytes of each queue pair have been sent
 * before that. */
static void
expect_share(uint64_t bytes, uint32_t shares, uint32_t nqps)
{
	cr_assert_leq(bytes, (shares * HIS_BYTES) + (nqps + 8) * MSG, "%u KiB in %u shares",
		(unsigned)(bytes >> 10), shares);
	cr_assert_geq(bytes + (nqps + 8) * MSG, (shares * HIS_BYTES), "%u KiB in %u shares",
		(unsigned)(bytes >> 10), shares);
}

/*
 * An lcore's turns are shared out by users: a user with a single queue pair sends as much as a user
 * with many, in however many programs.  A third user arrives, and gets the share and the number of
 * a user who left in the middle of the test.
 */
Test(sched, users_share_an_lcore)
{
	struct program many[2], one, third;
	struct program *of_many[] = {&many[0], &many[1]}, *of_third[] = {&third};
	struct engine_bed_config cfg = {.engine = {.lcores = 1}};
	struct engine_bed bed;
	uint32_t key;

	engine_bed_up(&bed, &cfg);
	key = engine_bed_mr(&bed, mem, sizeof(mem));
	program_up(&many[0], &bed, 1001, MANY_QPS / 2);
	program_up(&one, &bed, 1002, 1);
	program_up(&many[1], &bed, 1001, MANY_QPS / 2);
	program_sends(&many[0], key);
	program_sends(&many[1], key);
	program_sends(&one, key);
	expect_share(sent_meanwhile(&bed, &one, of_many, 2), 1, MANY_QPS);
	program_down(&many[0]);
	program_down(&many[1]);
	program_up(&third, &bed, 1003, MANY_QPS);
	program_sends(&third, key);
	program_sends(&one, key);
	expect_share(sent_meanwhile(&bed, &one, of_third, 1), 1, MANY_QPS);
	program_down(&one);
	program_down(&third);
	engine_bed_down(&bed);
}

/* The program that embeds the engine is a user of its own, beside those that are attached. */
Test(sched, the_program_itself_is_a_user)
{
	struct engine_bed_config cfg = {.engine = {.lcores = 1}};
	struct program itself, other, *of_other[] = {&other};
	struct karst_core_qp_attr attr;
	struct engine_bed bed;
	enum karst_qp_state to;
	unsigned int mask;
	uint32_t key;

	engine_bed_up(&bed, &cfg);
	key = engine_bed_mr(&bed, mem, sizeof(mem));
	program_up(&other, &bed, 1001, MANY_QPS);
	itself = (struct program){.bed = &bed, .cq = bed.cq, .nqps = 1};
	itself.qp[0] = engine_bed_qp(&bed, KARST_QPT_UC, 0);
	for (to = KARST_QPS_INIT; to <= KARST_QPS_RTS; to++) {
		mask = engine_bed_attr(&bed, KARST_QPT_UC, 0, 0xabcdef, to, &attr);
		cr_assert_eq(karst_engine_qp_modify(bed.e, itself.qp[0], &attr, mask), 0);
	}
	program_sends(&other, key);
	program_sends(&itself, key);
	expect_share(sent_meanwhile(&bed, &itself, of_other, 1), 1, MANY_QPS);
	program_down(&other);
	engine_bed_down(&bed);
}

/* --- doorbells --- */

#define MANY_OWNERS 40u

static uint64_t
rung(struct engine_bed *bed)
{
	struct karst_engine_lcore_stats st;

	cr_assert_eq(karst_engine_lcore_stats(bed->e, 0, &st), 0);
	return st.doorbells;
}

static void
ring(struct karst_engine_owner *o)
{
	cr_assert_eq(karst_bell_ring(o->doorbell[0].bell, o->bell_cells - 1, 0xabcdef), 0);
}

/* The largest number of turns until a doorbell of @o is served, wherever the lcore's scan has got
 * to. */
static uint64_t
turns_until_heard(struct engine_bed *bed, struct karst_engine_owner *o)
{
	uint64_t before, turns, most = 0;
	uint32_t i;

	for (i = 0; i < 2 * MANY_OWNERS; i++) {
		before = rung(bed);
		ring(o);
		for (turns = 0; rung(bed) == before && turns <= MANY_OWNERS; turns++)
			karst_engine_poll(bed->e, 0);
		most = karst_max_u64(most, turns);
	}
	return most;
}

/* Expects that the doorbells of all existing owners are served. */
static void
expect_all_heard(struct engine_bed *bed, struct karst_engine_owner *const *o, uint32_t n)
{
	uint64_t before = rung(bed), there = 0;
	uint32_t i;

	for (i = 0; i < n; i++) {
		if (o[i] == NULL)
			continue;
		ring(o[i]);
		there++;
	}
	for (i = 0; i < n; i++)
		karst_engine_poll(bed->e, 0);
	cr_assert_eq(rung(bed) - before, there, "%u of %u", (unsigned)(rung(bed) - before),
		(unsigned)there);
}

/* However many programs a user has, the doorbells of another user are served in each turn; and as
 * programs come and go, all doorbells are served. */
Test(sched, doorbells_are_shared_by_users)
{
	const struct eng_share_rule rule = {.percent = 75};
	struct engine_bed_config cfg = {.engine = {.lcores = 1, .max_owners = MANY_OWNERS + 1}};
	struct karst_engine_owner_init init = {.name = "user"};
	struct karst_engine_owner *o[MANY_OWNERS + 1] = {0};
	struct eng_share *many, *one;
	struct engine_bed bed;
	uint32_t i;

	engine_bed_up(&bed, &cfg);
	many = eng_share_join(&bed.e->shares, 1001, &rule, 0);
	one = eng_share_join(&bed.e->shares, 1002, &rule, 0);
	for (i = 0; i < KARST_DIM(o); i++) {
		init.share = i == MANY_OWNERS / 2 ? one : many;
		cr_assert_eq(karst_engine_owner_create(bed.e, &init, &o[i]), 0);
		expect_all_heard(&bed, o, KARST_DIM(o));
	}
	cr_assert_eq(turns_until_heard(&bed, o[MANY_OWNERS / 2]), 1);
	for (i = 0; i < KARST_DIM(o); i++) {
		uint32_t k = (i * 7 + 3) % KARST_DIM(o);

		if (k == MANY_OWNERS / 2)
			cr_assert_eq(turns_until_heard(&bed, o[k]), 1);
		cr_assert_eq(karst_engine_owner_destroy(o[k]), 0);
		o[k] = NULL;
		expect_all_heard(&bed, o, KARST_DIM(o));
	}
	eng_share_leave(many);
	eng_share_leave(one);
	engine_bed_down(&bed);
}
