/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Many threads on one context, and many queue pairs: threads that each have their own objects, and
 * threads that create, use and destroy queue pairs while other traffic continues.  All requests
 * must complete, and all data must arrive.  Run under karst-run; prints TAP, and how long it took.
 */
#include "calls_bed.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS 16u

static struct rig rig, *const r = &rig;

/* Runs @fn in @n threads; its argument is the thread's number. */
static void
in_threads(unsigned int n, void *(*fn)(void *number))
{
	pthread_t thread[64];
	unsigned int i;

	for (i = 0; i < n; i++)
		MUST(pthread_create(&thread[i], NULL, fn, (void *)(uintptr_t)i) == 0);
	for (i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
}

/* As to_rts(), with a long timeout: packets are not lost, but an lcore may have to wait for a
 * processor. */
static int
to_rts_patient(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = 0x123456,
		.timeout = 20, /* 4.3 s */
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 4,
	};

	return ibv_modify_qp(qp, &a,
		IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* Polls until @n completions have come, and checks that each is a success. */
static void
take(struct ibv_cq *cq, unsigned int n)
{
	struct ibv_wc wc[16];
	int i, now;

	for (; n > 0; n -= (unsigned int)now) {
		now = ibv_poll_cq(cq, n < 16 ? (int)n : 16, wc);
		MUST(now >= 0);
		for (i = 0; i < now; i++)
			if (!CHECK(wc[i].status == IBV_WC_SUCCESS, "%s, QP %u",
				    ibv_wc_status_str(wc[i].status), wc[i].qp_num))
				give_up();
	}
}

/* --- threads that share only the context --- */

#define QPS      128u
#define BUFFERS  1024u
#define MESSAGES (BUFFERS / QPS) /* for each queue pair */
#define BYTES    64u

struct own {
	struct ibv_pd *pd;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	struct ibv_qp *qp[QPS];
	uint8_t *buf; /* the sent data, then the received data */
};

static void
own_up(struct own *o)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = BUFFERS, .max_sge = 1}};
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = MESSAGES, .max_send_sge = 1}, .qp_type = IBV_QPT_RC};
	unsigned int i;

	MUST((o->pd = ibv_alloc_pd(r->ctx)) != NULL);
	MUST((o->send_cq = ibv_create_cq(r->ctx, BUFFERS, NULL, NULL, 0)) != NULL);
	MUST((o->recv_cq = ibv_create_cq(r->ctx, BUFFERS, NULL, NULL, 0)) != NULL);
	MUST((o->srq = ibv_create_srq(o->pd, &srq)) != NULL);
	MUST((o->buf = calloc(BUFFERS + 1, BYTES)) != NULL);
	MUST((o->mr = ibv_reg_mr(o->pd, o->buf, (size_t)(BUFFERS + 1) * BYTES,
		      IBV_ACCESS_LOCAL_WRITE)) != NULL);
	init.send_cq = o->send_cq;
	init.recv_cq = o->recv_cq;
	init.srq = o->srq;
	for (i = 0; i < QPS; i++)
		MUST((o->qp[i] = ibv_create_qp(o->pd, &init)) != NULL);
	for (i = 0; i < QPS; i++) {
		MUST(to_init(o->qp[i]) == 0);
		MUST(to_rtr(o->qp[i], o->qp[i ^ 1]->qp_num) == 0);
		MUST(to_rts_patient(o->qp[i]) == 0);
	}
}

static void
own_down(struct own *o)
{
	unsigned int i;

	for (i = 0; i < QPS; i++)
		MUST(ibv_destroy_qp(o->qp[i]) == 0);
	MUST(ibv_dereg_mr(o->mr) == 0);
	MUST(ibv_destroy_srq(o->srq) == 0);
	MUST(ibv_destroy_cq(o->send_cq) == 0);
	MUST(ibv_destroy_cq(o->recv_cq) == 0);
	MUST(ibv_dealloc_pd(o->pd) == 0);
	free(o->buf);
}

static void
own_traffic(struct own *o)
{
	struct ibv_sge sge = {.length = BYTES, .lkey = o->mr->lkey};
	struct ibv_recv_wr *bad_recv, recv = {.sg_list = &sge, .num_sge = 1};
	struct ibv_send_wr *bad,
		wr = {.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED};
	unsigned int i;

	memset(o->buf, 0x5a, BYTES);
	for (i = 0; i < BUFFERS; i++) {
		sge.addr = (uintptr_t)o->buf + (size_t)(i + 1) * BYTES;
		MUST(ibv_post_srq_recv(o->srq, &recv, &bad_recv) == 0);
	}
	sge.addr = (uintptr_t)o->buf;
	for (i = 0; i < BUFFERS; i++)
		MUST(ibv_post_send(o->qp[i % QPS], &wr, &bad) == 0);
	take(o->send_cq, BUFFERS);
	take(o->recv_cq, BUFFERS);
	MUST(memcmp(o->buf, o->buf + BYTES, (size_t)BUFFERS * BYTES) == 0);
}

static void *
for_itself(void *number)
{
	struct own o;

	(void)number;
	own_up(&o);
	own_traffic(&o);
	own_down(&o);
	return NULL;
}

static void
all_for_themselves(void)
{
	double began = seconds();

	rig_up(r);
	in_threads(THREADS, for_itself);
	rig_down(r);
	printf("# %u threads, %u queue pairs each: %.1f s\n", THREADS, QPS, seconds() - began);
}

/* --- creating and destroying queue pairs, with other traffic --- */

#define ROUNDS 32u
#define WRITES 64u
#define STEADY 4u /* threads that keep their queue pairs */

static _Atomic unsigned int makers; /* threads that create queue pairs and have not finished */

/* Two connected queue pairs with a completion queue; the region and the domain are the rig's. */
struct pair {
	struct ibv_cq *cq;
	struct ibv_qp *qp[2];
};

static void
pair_up(struct pair *p)
{
	struct rig own = *r;
	unsigned int i;

	MUST((own.cq = p->cq = ibv_create_cq(r->ctx, 2 * WRITES, NULL, NULL, 0)) != NULL);
	for (i = 0; i < 2; i++)
		p->qp[i] = make_qp(&own, IBV_QPT_RC, NULL);
	for (i = 0; i < 2; i++) {
		MUST(to_init(p->qp[i]) == 0);
		MUST(to_rtr(p->qp[i], p->qp[!i]->qp_num) == 0);
		MUST(to_rts_patient(p->qp[i]) == 0);
	}
}

static void
pair_down(struct pair *p)
{
	MUST(ibv_destroy_qp(p->qp[0]) == 0);
	MUST(ibv_destroy_qp(p->qp[1]) == 0);
	MUST(ibv_destroy_cq(p->cq) == 0);
}

static void
post_write(const struct pair *p, unsigned int which)
{
	struct ibv_sge sge = piece(r, 0, 256);
	struct ibv_send_wr *bad,
		wr = {.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = {(uintptr_t)r->buf + 4096, r->mr->rkey}};

	MUST(ibv_post_send(p->qp[which], &wr, &bad) == 0);
}

static void *
makes_and_unmakes(void *number)
{
	unsigned int round, i;
	struct pair p;

	for (round = 0; round < ROUNDS; round++) {
		pair_up(&p);
		for (i = 0; i < WRITES; i += 8) {
			unsigned int k;

			for (k = 0; k < 8; k++)
				post_write(&p, k & 1);
			take(p.cq, 8);
		}
		/* in every other round they are destroyed with outstanding requests */
		if ((round + (unsigned int)(uintptr_t)number) % 2 != 0)
			for (i = 0; i < 8; i++)
				post_write(&p, i & 1);
		pair_down(&p);
	}
	makers--;
	return NULL;
}

static void *
goes_on(void *number)
{
	struct pair p;
	unsigned int k;

	(void)number;
	pair_up(&p);
	while (makers > 0) {
		for (k = 0; k < 8; k++)
			post_write(&p, k & 1);
		take(p.cq, 8);
	}
	pair_down(&p);
	return NULL;
}

static void *
either(void *number)
{
	return (uintptr_t)number < STEADY ? goes_on(number) : makes_and_unmakes(number);
}

static void
come_and_go(void)
{
	double began = seconds();

	rig_up(r);
	makers = THREADS;
	in_threads(THREADS + STEADY, either);
	rig_down(r);
	printf("# %u threads, %u pairs each, one after another: %.1f s\n", THREADS, ROUNDS,
		seconds() - began);
}

int
main(void)
{
	run_case("threads with all for themselves", all_for_themselves);
	run_case("queue pairs come and go beside traffic", come_and_go);
	return cases_end();
}
