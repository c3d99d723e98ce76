/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Creates as many objects of each kind as ibv_query_device() reports, one kind at a time: queues of
 * the size that doc/verbs.rst names, and queues of the maximum size, two at a time.
 * Run under karst-run; prints TAP, and how long it took.
 */
#include "calls_bed.h"

/* The size, in requests or entries, of the queues for which the device reports its maximum. */
#define USUAL 256

static struct rig rig, *const r = &rig;
static struct ibv_device_attr dev;

/* --- a kind of object --- */

struct kind {
	const char *name;
	const int *told;
	void *(*make)(void);
	int (*unmake)(void *object);
};

static void *
make_pd(void)
{
	return ibv_alloc_pd(r->ctx);
}

static int
unmake_pd(void *pd)
{
	return ibv_dealloc_pd(pd);
}

static void *
make_mr(void)
{
	return ibv_reg_mr(r->pd, r->buf, 4096, IBV_ACCESS_LOCAL_WRITE);
}

static int
unmake_mr(void *mr)
{
	return ibv_dereg_mr(mr);
}

static void *
make_mw(void)
{
	return ibv_alloc_mw(r->pd, IBV_MW_TYPE_2);
}

static int
unmake_mw(void *mw)
{
	return ibv_dealloc_mw(mw);
}

static void *
make_ah(void)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};

	MUST(ibv_query_gid(r->ctx, 1, 0, &attr.grh.dgid) == 0);
	return ibv_create_ah(r->pd, &attr);
}

static int
unmake_ah(void *ah)
{
	return ibv_destroy_ah(ah);
}

static void *
make_cq(void)
{
	return ibv_create_cq(r->ctx, USUAL, NULL, NULL, 0);
}

static void *
make_cq_ex(void)
{
	struct ibv_cq_init_attr_ex init = {
		.cqe = USUAL, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(r->ctx, &init);

	return cq != NULL ? ibv_cq_ex_to_cq(cq) : NULL;
}

static int
unmake_cq(void *cq)
{
	return ibv_destroy_cq(cq);
}

static void *
make_srq(void)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = USUAL, .max_sge = 1}};

	return ibv_create_srq(r->pd, &init);
}

static int
unmake_srq(void *srq)
{
	return ibv_destroy_srq(srq);
}

static void *
make_usual_qp(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = r->cq,
		.recv_cq = r->cq,
		.cap = {.max_send_wr = USUAL,
			.max_recv_wr = USUAL,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};

	return ibv_create_qp(r->pd, &init);
}

static int
unmake_qp(void *qp)
{
	return ibv_destroy_qp(qp);
}

static const struct kind kinds[] = {
	{"queue pairs", &dev.max_qp, make_usual_qp, unmake_qp},
	{"completion queues", &dev.max_cq, make_cq, unmake_cq},
	{"completion queues with times", &dev.max_cq, make_cq_ex, unmake_cq},
	{"shared receive queues", &dev.max_srq, make_srq, unmake_srq},
	{"memory regions", &dev.max_mr, make_mr, unmake_mr},
	{"memory windows", &dev.max_mw, make_mw, unmake_mw},
	{"protection domains", &dev.max_pd, make_pd, unmake_pd},
	{"address handles", &dev.max_ah, make_ah, unmake_ah},
};

static const struct kind *now; /* the kind that is tested */

/* Creates the maximum number of objects, less those of the rig, and destroys them. */
static void
all(void)
{
	/* regions and windows share one table of keys, so the rig's region counts for both */
	int own = now->told == &dev.max_pd || now->told == &dev.max_cq ||
		now->told == &dev.max_mr || now->told == &dev.max_mw;
	int i, n, count = *now->told - own;
	void **object = calloc((size_t)count, sizeof(*object));
	double began = seconds(), made;

	MUST(object != NULL);
	CHECK(count > 0, "%d", count);
	for (n = 0; n < count && (object[n] = now->make()) != NULL; n++)
		;
	CHECK(n == count, "%d of %d: %s", n, count, strerror(errno));
	made = seconds();
	for (i = 0; i < n; i++)
		EQ(now->unmake(object[i]), 0);
	printf("# %d %s: made in %.1f s, gone in %.1f s\n", n, now->name, made - began,
		seconds() - made);
	free(object);
}

/* --- sizes --- */

static void
longest_queues(void)
{
	struct ibv_cq_init_attr_ex init = {.cqe = (uint32_t)dev.max_cqe};
	struct ibv_cq_ex *cq[2];
	struct ibv_cq *small;
	unsigned int i, timed;

	for (timed = 0; timed < 2; timed++) {
		init.wc_flags = timed ? IBV_WC_EX_WITH_COMPLETION_TIMESTAMP : 0;
		for (i = 0; i < 2; i++) {
			cq[i] = ibv_create_cq_ex(r->ctx, &init);
			MUST(cq[i] != NULL);
			CHECK(ibv_cq_ex_to_cq(cq[i])->cqe >= dev.max_cqe, "%d",
				ibv_cq_ex_to_cq(cq[i])->cqe);
		}
		for (i = 0; i < 2; i++)
			EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq[i])), 0);
	}
	MUST((small = ibv_create_cq(r->ctx, 16, NULL, NULL, 0)) != NULL);
	EQ(ibv_resize_cq(small, dev.max_cqe), 0);
	EQ(ibv_destroy_cq(small), 0);
}

static void
longest_work_queues(void)
{
	struct ibv_srq_init_attr srq_init = {
		.attr = {.max_wr = (uint32_t)dev.max_srq_wr, .max_sge = 1}};
	struct ibv_qp_init_attr init = {
		.send_cq = r->cq,
		.recv_cq = r->cq,
		.cap = {.max_send_wr = (uint32_t)dev.max_qp_wr,
			.max_recv_wr = (uint32_t)dev.max_qp_wr,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp[2];
	struct ibv_srq *srq[2];
	unsigned int i;

	for (i = 0; i < 2; i++) {
		MUST((qp[i] = ibv_create_qp(r->pd, &init)) != NULL);
		MUST((srq[i] = ibv_create_srq(r->pd, &srq_init)) != NULL);
	}
	for (i = 0; i < 2; i++) {
		EQ(ibv_destroy_qp(qp[i]), 0);
		EQ(ibv_destroy_srq(srq[i]), 0);
	}
	init.cap = (struct ibv_qp_cap){1, 1, (uint32_t)dev.max_sge, (uint32_t)dev.max_sge, 0};
	srq_init.attr = (struct ibv_srq_attr){1, (uint32_t)dev.max_srq_sge, 0};
	MUST((qp[0] = ibv_create_qp(r->pd, &init)) != NULL);
	MUST((srq[0] = ibv_create_srq(r->pd, &srq_init)) != NULL);
	EQ(ibv_destroy_qp(qp[0]), 0);
	EQ(ibv_destroy_srq(srq[0]), 0);
}

static void
begin(void)
{
	rig_up(r);
	MUST(ibv_query_device(r->ctx, &dev) == 0);
}

static void
end(void)
{
	rig_connect(r, IBV_QPT_RC);
	nothing_more(r);
	rig_down(r);
}

int
main(void)
{
	run_case("a device", begin);
	run_case("completion queues of the greatest size", longest_queues);
	run_case("work queues of the greatest size", longest_work_queues);
	for (now = kinds; now < kinds + sizeof(kinds) / sizeof(kinds[0]); now++)
		run_case(now->name, all);
	run_case("and all of it still works", end);
	return cases_end();
}
