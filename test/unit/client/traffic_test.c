/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Posting and polling: every operation, what is refused at once, and the zero-copy calls. */
#include "client_bed.h"

#include <errno.h>

#include <criterion/criterion.h>

static uint8_t mem[65536] __attribute__((aligned(4096)));

static void
fill(size_t off, size_t len, unsigned int seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		mem[off + i] = (uint8_t)(i * 7 + seed);
}

struct pair {
	struct client_bed b;
	struct karst_mr *mr;
	struct karst_qp *a;
	struct karst_qp *z;
};

static void
pair_up(struct pair *p, uint32_t lcores, enum karst_qp_type type)
{
	client_bed_up(&p->b, &(struct client_bed_config){.lcores = lcores});
	p->mr = client_bed_mr(&p->b, mem, sizeof(mem));
	p->a = client_bed_qp(&p->b, type);
	p->z = client_bed_qp(&p->b, type);
	client_bed_connect(p->a, p->z);
}

static void
pair_down(struct pair *p)
{
	cr_assert_eq(karst_destroy_qp(p->a), 0);
	cr_assert_eq(karst_destroy_qp(p->z), 0);
	cr_assert_eq(karst_dereg_mr(p->mr), 0);
	client_bed_down(&p->b);
}

#define expect(cqe, id, op)                                                                     \
	do {                                                                                    \
		struct karst_cqe e_ = (cqe);                                                    \
		cr_assert_eq(e_.status, KARST_WC_SUCCESS, "%s",                                 \
			karst_wc_status_str((enum karst_wc_status)e_.status));                  \
		cr_assert_eq(e_.wr_id, id, "completion of %llu", (unsigned long long)e_.wr_id); \
		cr_assert_eq(e_.opcode, op);                                                    \
	} while (0)

Test(client_traffic, rdma)
{
	struct pair p;

	pair_up(&p, 1, KARST_QPT_RC);
	fill(0, 10000, 1);
	cr_assert_eq(client_bed_post(p.a, KARST_WR_RDMA_WRITE, 1, p.mr, 0, 10000, p.mr, 20000), 0);
	expect(client_bed_wait(p.b.cq), 1, KARST_WC_RDMA_WRITE);
	cr_assert_eq(memcmp(mem, mem + 20000, 10000), 0);
	cr_assert_eq(client_bed_post(p.z, KARST_WR_RDMA_READ, 2, p.mr, 40000, 10000, p.mr, 0), 0);
	expect(client_bed_wait(p.b.cq), 2, KARST_WC_RDMA_READ);
	cr_assert_eq(memcmp(mem, mem + 40000, 10000), 0);
	pair_down(&p);
}

Test(client_traffic, atomics)
{
	uint64_t *word = (uint64_t *)(mem + 4096), *old = (uint64_t *)mem;
	struct pair p;
	struct karst_sge sge;
	struct karst_send_wr wr = {.wr_id = 1,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = KARST_WR_ATOMIC_FAA,
		.send_flags = KARST_SEND_SIGNALED};

	pair_up(&p, 1, KARST_QPT_RC);
	*word = 40;
	sge = (struct karst_sge){p.mr->iova, 8, p.mr->lkey};
	wr.atomic.remote_addr = p.mr->iova + 4096;
	wr.atomic.rkey = p.mr->rkey;
	wr.atomic.compare_add = 2;
	cr_assert_eq(karst_post_send(p.a, &wr, NULL), 0);
	expect(client_bed_wait(p.b.cq), 1, KARST_WC_FETCH_ADD);
	cr_assert_eq(*old, 40);
	cr_assert_eq(*word, 42);
	wr.opcode = KARST_WR_ATOMIC_CAS;
	wr.atomic.compare_add = 42;
	wr.atomic.swap = 7;
	cr_assert_eq(karst_post_send(p.a, &wr, NULL), 0);
	expect(client_bed_wait(p.b.cq), 1, KARST_WC_COMP_SWAP);
	cr_assert_eq(*old, 42);
	cr_assert_eq(*word, 7);
	wr.num_sge = 2;
	cr_assert_eq(karst_post_send(p.a, &wr, NULL), -EINVAL);
	pair_down(&p);
}

/* (R15): data that was written before a FLUSH is in memory when the FLUSH has completed. */
Test(client_traffic, r15_flush)
{
	struct karst_sge sge;
	struct karst_send_wr wr[2];
	struct pair p;

	pair_up(&p, 2, KARST_QPT_RC);
	fill(0, 10000, 3);
	sge = (struct karst_sge){p.mr->iova, 10000, p.mr->lkey};
	wr[0] = (struct karst_send_wr){.wr_id = 1,
		.next = &wr[1],
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = KARST_WR_RDMA_WRITE,
		.rdma = {p.mr->iova + 20000, p.mr->rkey}};
	wr[1] = (struct karst_send_wr){.wr_id = 2,
		.opcode = KARST_WR_FLUSH,
		.send_flags = KARST_SEND_SIGNALED,
		.flush = {p.mr->iova + 20000, p.mr->rkey, 10000, KARST_FLUSH_GLOBAL,
			KARST_FLUSH_RANGE}};
	cr_assert_eq(karst_post_send(p.a, wr, NULL), 0);
	expect(client_bed_wait(p.b.cq), 2, KARST_WC_FLUSH);
	cr_assert_eq(memcmp(mem, mem + 20000, 10000), 0);
	wr[1].flush.remote_addr = 0;
	wr[1].flush.level = KARST_FLUSH_MR;
	cr_assert_eq(karst_post_send(p.a, &wr[1], NULL), 0);
	expect(client_bed_wait(p.b.cq), 2, KARST_WC_FLUSH);
	/* may be posted, as other peers may support it; an engine refuses it */
	wr[1].flush.type = KARST_FLUSH_PERSISTENT;
	cr_assert_eq(karst_post_send(p.a, &wr[1], NULL), 0);
	cr_assert_eq(client_bed_wait(p.b.cq).status, KARST_WC_REM_INV_REQ_ERR);
	pair_down(&p);
}

/* A send with everything that a send may carry: an SGE list, inline data, immediate data. */
Test(client_traffic, send)
{
	struct karst_sge sge[3];
	struct karst_send_wr wr = {.wr_id = 5,
		.sg_list = sge,
		.num_sge = 3,
		.opcode = KARST_WR_SEND_WITH_IMM,
		.send_flags = KARST_SEND_SIGNALED | KARST_SEND_INLINE,
		.imm_data = 0x12345678};
	struct karst_cqe e;
	struct pair p;
	int i;

	pair_up(&p, 1, KARST_QPT_RC);
	fill(0, 300, 3);
	for (i = 0; i < 3; i++)
		sge[i] = (struct karst_sge){p.mr->iova + (uint64_t)i * 10, 10, p.mr->lkey};
	cr_assert_eq(client_bed_recv(p.z, 6, p.mr, 1000, 100), 0);
	cr_assert_eq(karst_post_send(p.a, &wr, NULL), 0);
	memset(mem, 0, 30); /* inline data is gathered when it is posted */
	for (i = 0; i < 2; i++) {
		e = client_bed_wait(p.b.cq);
		cr_assert_eq(e.status, 0);
		if (e.wr_id != 6)
			continue;
		cr_assert_eq(e.opcode, KARST_WC_RECV);
		cr_assert_eq(e.byte_len, 30);
		cr_assert_eq(e.imm, 0x12345678);
		cr_assert(e.flags & KARST_WC_WITH_IMM);
	}
	fill(0, 30, 3);
	cr_assert_eq(memcmp(mem, mem + 1000, 30), 0);
	/* from several SGEs, unsignaled: only the receive completes */
	wr.send_flags = 0;
	cr_assert_eq(client_bed_recv(p.z, 7, p.mr, 1000, 100), 0);
	cr_assert_eq(karst_post_send(p.a, &wr, NULL), 0);
	expect(client_bed_wait(p.b.cq), 7, KARST_WC_RECV);
	client_bed_nothing(p.b.cq);
	pair_down(&p);
}

Test(client_traffic, refused)
{
	struct karst_sge sge[8];
	struct karst_send_wr wr[3] = {{.opcode = KARST_WR_RDMA_WRITE}}, *w = &wr[1];
	struct karst_recv_wr rr = {.sg_list = sge, .num_sge = 5};
	const struct karst_send_wr *bad = NULL;
	const struct karst_recv_wr *bad_recv = NULL;
	struct pair p;
	uint32_t i;

	pair_up(&p, 1, KARST_QPT_RC);
	for (i = 0; i < KARST_DIM(sge); i++)
		sge[i] = (struct karst_sge){p.mr->iova, 60, p.mr->lkey};
	wr[0] = (struct karst_send_wr){.wr_id = 1,
		.next = &wr[1],
		.sg_list = sge,
		.num_sge = 1,
		.opcode = KARST_WR_RDMA_WRITE,
		.send_flags = KARST_SEND_SIGNALED,
		.rdma = {p.mr->iova + 8192, p.mr->rkey}};
	wr[2] = wr[0];
	wr[2].next = NULL;
#define REFUSED(...)                                                     \
	do {                                                             \
		*w = wr[0];                                              \
		w->next = &wr[2];                                        \
		__VA_ARGS__;                                             \
		bad = NULL;                                              \
		cr_assert_eq(karst_post_send(p.a, wr, &bad), -EINVAL);   \
		cr_assert_eq(bad, w, "the second");                      \
		cr_assert_neq(karst_why()[0], 0);                        \
		expect(client_bed_wait(p.b.cq), 1, KARST_WC_RDMA_WRITE); \
		client_bed_nothing(p.b.cq);                              \
	} while (0)
	REFUSED(w->opcode = (enum karst_wr_opcode)10);
	REFUSED(w->opcode = KARST_WR_MAX);
	REFUSED(w->opcode = (enum karst_wr_opcode) - 1);
	REFUSED(w->send_flags = 1u << 9);
	REFUSED(w->num_sge = 5);
	REFUSED(w->num_sge = UINT32_MAX);
	REFUSED(w->num_sge = 2; w->send_flags |= KARST_SEND_INLINE); /* 120 bytes */
	REFUSED(w->opcode = KARST_WR_RDMA_READ; w->send_flags |= KARST_SEND_INLINE);
	REFUSED(w->opcode = KARST_WR_ATOMIC_CAS; w->send_flags |= KARST_SEND_INLINE);
	REFUSED(w->opcode = KARST_WR_BIND_MW; w->bind_mw.mw = NULL);
	REFUSED(w->opcode = KARST_WR_FLUSH; w->flush.type = KARST_FLUSH_GLOBAL; w->flush.level = 0);
#define FLUSH(type_, level_)        \
	w->opcode = KARST_WR_FLUSH; \
	w->num_sge = 0;             \
	w->flush.type = (type_);    \
	w->flush.level = (level_)
	REFUSED(FLUSH(0, KARST_FLUSH_RANGE));
	REFUSED(FLUSH(1u << 8, KARST_FLUSH_RANGE));
	REFUSED(FLUSH(KARST_FLUSH_GLOBAL, KARST_FLUSH_LEVELS));
	REFUSED(FLUSH(KARST_FLUSH_GLOBAL, KARST_FLUSH_MR); w->send_flags |= KARST_SEND_INLINE);
	cr_assert_eq(karst_post_recv(p.a, &rr, &bad_recv), -EINVAL);
	cr_assert_eq(bad_recv, &rr);
	pair_down(&p);
}

/* The states in which a request may be posted, and that a full queue takes as many as fit. */
Test(client_traffic, states_and_room)
{
	struct karst_sge sge;
	struct karst_send_wr wr[20];
	const struct karst_send_wr *bad = NULL;
	struct pair p;
	uint32_t i;

	client_bed_up(&p.b, &(struct client_bed_config){.lcores = 1});
	p.mr = client_bed_mr(&p.b, mem, sizeof(mem));
	p.a = client_bed_qp(&p.b, KARST_QPT_RC);
	p.z = client_bed_qp(&p.b, KARST_QPT_RC);
	cr_assert_eq(client_bed_recv(p.a, 1, p.mr, 0, 8), -EINVAL, "in RESET");
	cr_assert_eq(client_bed_post(p.a, KARST_WR_SEND, 1, p.mr, 0, 8, NULL, 0), -EINVAL);
	cr_assert_eq(client_bed_to(p.a, KARST_QPS_INIT, 1, 0), 0);
	cr_assert_eq(client_bed_recv(p.a, 1, p.mr, 0, 8), 0, "from INIT on");
	cr_assert_eq(client_bed_post(p.a, KARST_WR_SEND, 1, p.mr, 0, 8, NULL, 0), -EINVAL);
	cr_assert_eq(client_bed_to(p.a, KARST_QPS_RTR, 1, p.z->qp_num), 0);
	cr_assert_eq(client_bed_post(p.a, KARST_WR_SEND, 1, p.mr, 0, 8, NULL, 0), -EINVAL);
	cr_assert_eq(client_bed_to(p.a, KARST_QPS_RTS, 1, 0), 0);

	/* nobody answers, so nothing completes: the peer is in RESET */
	sge = (struct karst_sge){p.mr->iova, 8, p.mr->lkey};
	for (i = 0; i < KARST_DIM(wr); i++)
		wr[i] = (struct karst_send_wr){.wr_id = 100 + i,
			.next = i + 1 < KARST_DIM(wr) ? &wr[i + 1] : NULL,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = KARST_WR_SEND};
	cr_assert_eq(karst_post_send(p.a, wr, &bad), -ENOMEM);
	cr_assert_eq(bad, &wr[16]);
	cr_assert_eq(client_bed_to(p.a, KARST_QPS_ERR, 0, 0), 0);
	/* all of them complete, signaled or not, and the receive */
	for (i = 0; i < 16; i++) {
		struct karst_cqe e = client_bed_wait(p.b.cq);

		cr_assert_eq(e.status, KARST_WC_WR_FLUSH_ERR);
		cr_assert_eq(e.wr_id, 100 + i);
	}
	cr_assert_eq(client_bed_wait(p.b.cq).wr_id, 1);
	/* in Error, posted requests are flushed */
	cr_assert_eq(client_bed_post(p.a, KARST_WR_SEND, 3, p.mr, 0, 8, NULL, 0), 0);
	cr_assert_eq(client_bed_wait(p.b.cq).status, KARST_WC_WR_FLUSH_ERR);
	cr_assert_eq(client_bed_to(p.a, KARST_QPS_RESET, 0, 0), 0);
	cr_assert_eq(client_bed_post(p.a, KARST_WR_SEND, 1, p.mr, 0, 8, NULL, 0), -EINVAL);
	/* and the same once more */
	client_bed_connect(p.a, p.z);
	cr_assert_eq(client_bed_post(p.a, KARST_WR_RDMA_WRITE, 9, p.mr, 0, 8, p.mr, 100), 0);
	expect(client_bed_wait(p.b.cq), 9, KARST_WC_RDMA_WRITE);
	pair_down(&p);
}

/* More requests than the rings have room for, from both ends, on two lcores: the lanes take
 * turns. */
Test(client_traffic, many)
{
	struct karst_qp_init_attr init;
	struct karst_cqe e[32];
	uint32_t i, side, posted[2] = {0, 0}, done[2] = {0, 0};
	struct pair p;
	int n;

	client_bed_up(&p.b, &(struct client_bed_config){.lcores = 2});
	p.mr = client_bed_mr(&p.b, mem, sizeof(mem));
	init = client_bed_init(&p.b, KARST_QPT_RC);
	init.on_lcore = true;
	cr_assert_eq(karst_create_qp(p.b.pd, &init, &p.a), 0);
	init.lcore = 1;
	cr_assert_eq(karst_create_qp(p.b.pd, &init, &p.z), 0);
	cr_assert_eq(p.z->lcore, 1);
	client_bed_connect(p.a, p.z);
	while (done[0] < 3000 || done[1] < 3000) {
		for (side = 0; side < 2; side++)
			while (posted[side] < 3000 &&
				client_bed_post(side ? p.z : p.a, KARST_WR_RDMA_WRITE, posted[side],
					p.mr, side * 16384u, 2000, p.mr, side * 16384u + 8192) == 0)
				posted[side]++;
		n = karst_poll_cq(p.b.cq, (int)KARST_DIM(e), e);
		cr_assert_geq(n, 0);
		for (i = 0; i < (uint32_t)n; i++) {
			side = e[i].qpn == p.z->qp_num;
			cr_assert_eq(e[i].status, 0);
			cr_assert_eq(e[i].wr_id, done[side]);
			done[side]++;
		}
	}
	pair_down(&p);
}

/* A program that has polled a completion may post in its place: the slot is free by then, at both
 * ends. */
Test(client_traffic, a_completion_makes_room)
{
	uint32_t slots, sends = 0, recvs = 0, posted = 0, done = 0, i;
	struct karst_cqe e[4];
	struct pair p;
	int n;

	pair_up(&p, 1, KARST_QPT_RC);
	slots = p.a->sq.mask + 1;
	cr_assert_eq(p.z->rq.mask + 1, slots);
	while (done < 300000) {
		for (; recvs < slots; recvs++, posted++)
			cr_assert_eq(client_bed_recv(p.z, 1, p.mr, 0, 64), 0, "after %u", done);
		for (; sends < slots && posted > 0; sends++, posted--)
			cr_assert_eq(client_bed_post(p.a, KARST_WR_SEND, 2, p.mr, 4096, 8, p.mr, 0),
				0, "after %u", done);
		n = karst_poll_cq(p.b.cq, (int)KARST_DIM(e), e);
		cr_assert_geq(n, 0);
		for (i = 0; i < (uint32_t)n; i++) {
			cr_assert_eq(e[i].status, KARST_WC_SUCCESS);
			if (e[i].wr_id == 1)
				recvs--;
			else
				sends--;
			done++;
		}
	}
	while (sends > 0) {
		if (client_bed_wait(p.b.cq).wr_id == 2)
			sends--;
	}
	pair_down(&p);
}

/* A lane that is never empty does not keep another one waiting. */
Test(client_traffic, lanes_take_turns)
{
	const struct karst_cqe *at;
	struct karst_qp_init_attr init;
	struct karst_cqe e;
	uint32_t i, seen = 0;
	struct pair p;

	client_bed_up(&p.b, &(struct client_bed_config){.lcores = 2});
	p.mr = client_bed_mr(&p.b, mem, sizeof(mem));
	init = client_bed_init(&p.b, KARST_QPT_RC);
	init.on_lcore = true;
	cr_assert_eq(karst_create_qp(p.b.pd, &init, &p.a), 0);
	init.lcore = 1;
	cr_assert_eq(karst_create_qp(p.b.pd, &init, &p.z), 0);
	client_bed_connect(p.a, p.z);
	for (i = 0; i < 8; i++) {
		cr_assert_eq(client_bed_post(p.a, KARST_WR_RDMA_WRITE, i, p.mr, 0, 8, p.mr, 64), 0);
		cr_assert_eq(client_bed_post(p.z, KARST_WR_RDMA_WRITE, i, p.mr, 0, 8, p.mr, 64), 0);
	}
	/* let all of them complete: a queue pair that goes to Error and back has nothing
	 * outstanding */
	while (atomic_load(&p.a->sq.sh->head) != 8 || atomic_load(&p.z->sq.sh->head) != 8)
		client_bed_pause();
	for (i = 0; i < 4; i++) {
		cr_assert_eq(karst_poll_cq(p.b.cq, 1, &e), 1);
		seen |= e.qpn == p.z->qp_num ? 2 : 1;
	}
	cr_assert_eq(seen, 3, "one at a time, both lanes in turn");
	for (seen = i = 0; i < 4; i++) {
		cr_assert_gt(karst_cq_peek(p.b.cq, &at), 0);
		seen |= at->qpn == p.z->qp_num ? 2 : 1;
		karst_cq_take(p.b.cq, 1);
	}
	cr_assert_eq(seen, 3);
	for (i = 0; i < 8; i++)
		client_bed_wait(p.b.cq);
	pair_down(&p);
}

Test(client_traffic, zero_copy)
{
	const struct karst_cqe *at;
	uint32_t i, n, got = 0;
	struct pair p;

	pair_up(&p, 1, KARST_QPT_RC);
	fill(0, 1024, 9);
	cr_assert_geq(karst_recv_room(p.z, 8), 8);
	for (i = 0; i < 8; i++) {
		struct karst_recv_wqe *r = karst_recv_slot(p.z, i);
		struct karst_send_wqe *s = karst_send_slot(p.a, i);

		r->wr_id = 100 + i;
		r->num_sge = 1;
		r->sge[0] = (struct karst_sge){p.mr->iova + 4096 + i * 128, 128, p.mr->lkey};
		memset(s, 0, sizeof(*s));
		s->wr_id = i;
		s->opcode = KARST_WR_SEND;
		s->flags = KARST_SEND_SIGNALED;
		s->num = 1;
		s->sge[0] = (struct karst_sge){p.mr->iova + i * 128, 128, p.mr->lkey};
	}
	cr_assert_eq(karst_recv_publish(p.z, 8), 0);
	cr_assert_geq(karst_send_room(p.a, 8), 8);
	cr_assert_eq(karst_send_publish(p.a, 8), 0);
	while (got < 16) {
		n = karst_cq_peek(p.b.cq, &at);
		for (i = 0; i < n; i++)
			cr_assert_eq(at[i].status, 0);
		karst_cq_take(p.b.cq, n);
		got += n;
	}
	cr_assert_eq(memcmp(mem, mem + 4096, 1024), 0);
	pair_down(&p);
}

Test(client_traffic, datagrams)
{
	struct karst_ah_attr attr = {.port_num = 1};
	struct karst_sge sge;
	struct karst_send_wr wr = {.wr_id = 1,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = KARST_WR_SEND,
		.send_flags = KARST_SEND_SIGNALED};
	struct karst_cqe e;
	struct karst_ah *ah;
	struct pair p;
	int i;

	pair_up(&p, 1, KARST_QPT_UD);
	fill(0, 100, 4);
	cr_assert_eq(karst_query_gid(p.b.ctx, 2, 0, &attr.dgid), 0);
	cr_assert_eq(karst_create_ah(p.b.pd, &attr, &ah), 0, "%s", karst_why());
	cr_assert_eq(karst_dealloc_pd(p.b.pd), -EBUSY);
	sge = (struct karst_sge){p.mr->iova, 100, p.mr->lkey};
	cr_assert_eq(karst_post_send(p.a, &wr, NULL), -EINVAL, "no address");
	wr.ud.ah = ah;
	wr.ud.remote_qpn = p.z->qp_num;
	wr.ud.remote_qkey = 0x1234;
	cr_assert_eq(client_bed_recv(p.z, 2, p.mr, 4096, 200), 0);
	cr_assert_eq(karst_post_send(p.a, &wr, NULL), 0);
	for (i = 0; i < 2; i++) {
		e = client_bed_wait(p.b.cq);
		cr_assert_eq(e.status, 0);
		if (e.wr_id == 2) {
			cr_assert_eq(e.byte_len, 140);
			cr_assert_eq(e.src_qpn, p.a->qp_num);
			cr_assert(e.flags & KARST_WC_GRH);
		}
	}
	cr_assert_eq(memcmp(mem, mem + 4096 + 40, 100), 0);
	wr.opcode = KARST_WR_RDMA_WRITE;
	cr_assert_eq(karst_post_send(p.a, &wr, NULL), -EINVAL, "not with datagrams");
	cr_assert_eq(karst_destroy_ah(ah), 0);
	attr.sgid_index = 200;
	cr_assert_eq(karst_create_ah(p.b.pd, &attr, &ah), -EINVAL);
	pair_down(&p);
}

/* A program does not need an address handle any more once it has posted, and destroys it. */
Test(client_traffic, datagrams_outlive_their_handle)
{
	struct karst_ah_attr attr = {.port_num = 1};
	struct karst_sge sge;
	struct karst_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = KARST_WR_SEND};
	struct karst_ah *ah;
	struct karst_cqe e;
	struct pair p;
	int round, i;

	pair_up(&p, 1, KARST_QPT_UD);
	cr_assert_eq(karst_query_gid(p.b.ctx, 2, 0, &attr.dgid), 0);
	sge = (struct karst_sge){p.mr->iova, 100, p.mr->lkey};
	wr.ud.remote_qpn = p.z->qp_num;
	wr.ud.remote_qkey = 0x1234;
	for (round = 0; round < 500; round++) {
		cr_assert_eq(karst_create_ah(p.b.pd, &attr, &ah), 0, "%s", karst_why());
		wr.ud.ah = ah;
		for (i = 0; i < 4; i++)
			cr_assert_eq(client_bed_recv(p.z, 2, p.mr, 4096, 200), 0);
		for (i = 0; i < 4; i++)
			cr_assert_eq(karst_post_send(p.a, &wr, NULL), 0);
		cr_assert_eq(karst_destroy_ah(ah), 0);
		for (i = 0; i < 4; i++) {
			e = client_bed_wait(p.b.cq);
			cr_assert_eq(e.status, 0, "round %d", round);
			cr_assert_eq(e.wr_id, 2);
		}
	}
	pair_down(&p);
}

Test(client_traffic, shared_receive_queue)
{
	struct karst_srq_init_attr sinit = {.max_wr = 8, .max_sge = 2};
	struct karst_qp_init_attr init;
	struct karst_sge sge[3];
	struct karst_recv_wr rr[10];
	const struct karst_recv_wr *bad = NULL;
	struct karst_srq_attr attr;
	struct karst_srq *srq;
	struct karst_cqe e;
	struct pair p;
	uint32_t i;

	client_bed_up(&p.b, &(struct client_bed_config){.lcores = 1});
	p.mr = client_bed_mr(&p.b, mem, sizeof(mem));
	cr_assert_eq(karst_create_srq(p.b.pd, &sinit, &srq), 0, "%s", karst_why());
	init = client_bed_init(&p.b, KARST_QPT_RC);
	init.srq = srq;
	cr_assert_eq(karst_create_qp(p.b.pd, &init, &p.z), 0);
	p.a = client_bed_qp(&p.b, KARST_QPT_RC);
	client_bed_connect(p.a, p.z);
	cr_assert_eq(client_bed_recv(p.z, 1, p.mr, 0, 8), -EINVAL, "it has a shared one");
	for (i = 0; i < 3; i++)
		sge[i] = (struct karst_sge){p.mr->iova + 4096, 64, p.mr->lkey};
	for (i = 0; i < KARST_DIM(rr); i++)
		rr[i] = (struct karst_recv_wr){.wr_id = 50 + i,
			.next = i + 1 < KARST_DIM(rr) ? &rr[i + 1] : NULL,
			.sg_list = sge,
			.num_sge = 1};
	cr_assert_eq(karst_post_srq_recv(srq, rr, &bad), -ENOMEM);
	cr_assert_eq(bad, &rr[8]);
	rr[9].num_sge = 3;
	cr_assert_eq(karst_post_srq_recv(srq, &rr[9], &bad), -EINVAL);
	cr_assert_eq(client_bed_post(p.a, KARST_WR_SEND, 1, p.mr, 0, 64, NULL, 0), 0);
	for (i = 0; i < 2; i++) {
		e = client_bed_wait(p.b.cq);
		cr_assert_eq(e.status, 0);
		cr_assert(e.wr_id == 1 || e.wr_id == 50);
	}
	cr_assert_eq(karst_query_srq(srq, &attr), 0);
	cr_assert_eq(attr.max_wr, 8);
	cr_assert_eq(attr.max_sge, 2);
	cr_assert_eq(karst_modify_srq(srq, 100), -EINVAL);
	cr_assert_eq(karst_modify_srq(srq, 3), 0);
	cr_assert_eq(karst_query_srq(srq, &attr), 0);
	cr_assert_eq(attr.srq_limit, 3);
	cr_assert_eq(karst_destroy_qp(p.z), 0);
	cr_assert_eq(karst_destroy_srq(srq), 0);
	p.z = client_bed_qp(&p.b, KARST_QPT_RC);
	pair_down(&p);
}

/* Type 1: the new key is known at once.  Type 2: the program chooses the key. */
Test(client_traffic, windows)
{
	struct karst_mw_bind_info bind = {
		.addr = (uintptr_t)mem + 4096, .length = 64, .access = KARST_ACCESS_REMOTE_WRITE};
	struct karst_send_wr wr = {
		.wr_id = 3, .opcode = KARST_WR_BIND_MW, .send_flags = KARST_SEND_SIGNALED};
	struct karst_mw *w1, *w2;
	struct karst_mr window;
	uint32_t old;
	struct pair p;

	pair_up(&p, 1, KARST_QPT_RC);
	bind.mr = p.mr;
	cr_assert_eq(karst_alloc_mw(p.b.pd, KARST_MW_TYPE_1, &w1), 0, "%s", karst_why());
	cr_assert_eq(karst_alloc_mw(p.b.pd, KARST_MW_TYPE_2, &w2), 0, "%s", karst_why());
	old = w1->rkey;
	cr_assert_eq(karst_bind_mw(p.z, w2, 1, KARST_SEND_SIGNALED, &bind), -EINVAL);
	cr_assert_eq(karst_bind_mw(p.z, w1, 1, KARST_SEND_SIGNALED, &bind), 0);
	cr_assert_neq(w1->rkey, old);
	expect(client_bed_wait(p.b.cq), 1, KARST_WC_BIND_MW);
	fill(0, 64, 5);
	window = *p.mr;
	window.rkey = w1->rkey;
	cr_assert_eq(client_bed_post(p.a, KARST_WR_RDMA_WRITE, 2, p.mr, 0, 64, &window, 4096), 0);
	expect(client_bed_wait(p.b.cq), 2, KARST_WC_RDMA_WRITE);
	cr_assert_eq(memcmp(mem, mem + 4096, 64), 0);
	/* bound again, twice in a row, without waiting */
	cr_assert_eq(karst_bind_mw(p.z, w1, 1, 0, &bind), 0);
	cr_assert_eq(karst_bind_mw(p.z, w1, 1, KARST_SEND_SIGNALED, &bind), 0);
	expect(client_bed_wait(p.b.cq), 1, KARST_WC_BIND_MW);

	wr.bind_mw.mw = w1;
	wr.bind_mw.mr = p.mr;
	wr.bind_mw.addr = bind.addr;
	wr.bind_mw.length = 64;
	wr.bind_mw.access = bind.access;
	cr_assert_eq(karst_post_send(p.z, &wr, NULL), -EINVAL, "type 1");
	wr.bind_mw.mw = w2;
	wr.bind_mw.rkey = karst_inc_rkey(w2->rkey);
	cr_assert_eq(karst_post_send(p.z, &wr, NULL), 0);
	expect(client_bed_wait(p.b.cq), 3, KARST_WC_BIND_MW);
	window.rkey = wr.bind_mw.rkey;
	memset(mem + 4096, 0, 64);
	cr_assert_eq(client_bed_post(p.a, KARST_WR_RDMA_WRITE, 4, p.mr, 0, 64, &window, 4096), 0);
	expect(client_bed_wait(p.b.cq), 4, KARST_WC_RDMA_WRITE);
	cr_assert_eq(memcmp(mem, mem + 4096, 64), 0);
	cr_assert_eq(karst_dereg_mr(p.mr), -EBUSY, "windows are bound");
	cr_assert_eq(karst_dealloc_mw(w1), 0);
	cr_assert_eq(karst_dealloc_mw(w2), 0);
	pair_down(&p);
}

/* More completions than the queue has room for. */
Test(client_traffic, overflow)
{
	struct karst_qp_init_attr init;
	struct karst_cqe e;
	struct karst_cq *cq;
	struct pair p;
	uint32_t i;
	int n;

	client_bed_up(&p.b, &(struct client_bed_config){.lcores = 1});
	p.mr = client_bed_mr(&p.b, mem, sizeof(mem));
	cr_assert_eq(karst_create_cq(p.b.ctx, 4, NULL, NULL, &cq), 0);
	init = client_bed_init(&p.b, KARST_QPT_RC);
	init.send_cq = cq;
	cr_assert_eq(karst_create_qp(p.b.pd, &init, &p.a), 0);
	p.z = client_bed_qp(&p.b, KARST_QPT_RC);
	client_bed_connect(p.a, p.z);
	for (i = 0; i < 10; i++)
		cr_assert_eq(client_bed_post(p.a, KARST_WR_RDMA_WRITE, i, p.mr, 0, 8, p.mr, 64), 0);
	while (atomic_load(&cq->sh->overflown) == 0)
		client_bed_pause();
	for (i = 0; (n = karst_poll_cq(cq, 1, &e)) == 1; i++)
		cr_assert_eq(e.wr_id, i);
	cr_assert_eq(n, -EIO);
	cr_assert_eq(i, 4);
	cr_assert_not_null(strstr(karst_why(), "overflown"));
	cr_assert_eq(karst_destroy_qp(p.a), 0);
	cr_assert_eq(karst_destroy_cq(cq), 0);
	p.a = client_bed_qp(&p.b, KARST_QPT_RC);
	pair_down(&p);
}
