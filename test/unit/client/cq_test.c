/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Completion queues: timestamps and resizing. */
#include "client_bed.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>

#include <criterion/criterion.h>

static uint8_t mem[65536] __attribute__((aligned(4096)));

struct pair {
	struct client_bed b;
	struct karst_mr *mr;
	struct karst_cq *cq; /* the CQ of both send queues */
	struct karst_qp *qp[2];
};

/* Uses the bed's context. */
static void
pair_make(struct pair *p, const struct karst_cq_init_attr *cq)
{
	uint32_t i, lcores = p->b.ctx->nlcores;
	struct karst_qp_init_attr init;

	p->mr = client_bed_mr(&p->b, mem, sizeof(mem));
	cr_assert_eq(karst_create_cq_ex(p->b.ctx, cq, &p->cq), 0, "%s", karst_why());
	for (i = 0; i < 2; i++) {
		init = client_bed_init(&p->b, KARST_QPT_RC);
		init.send_cq = p->cq;
		init.on_lcore = true;
		init.lcore = i % lcores;
		cr_assert_eq(karst_create_qp(p->b.pd, &init, &p->qp[i]), 0, "%s", karst_why());
	}
	client_bed_connect(p->qp[0], p->qp[1]);
}

static void
pair_up(struct pair *p, uint32_t lcores, const struct karst_cq_init_attr *cq)
{
	client_bed_up(&p->b, &(struct client_bed_config){.lcores = lcores});
	pair_make(p, cq);
}

static void
pair_unmake(struct pair *p)
{
	cr_assert_eq(karst_destroy_qp(p->qp[0]), 0);
	cr_assert_eq(karst_destroy_qp(p->qp[1]), 0);
	cr_assert_eq(karst_destroy_cq(p->cq), 0, "%s", karst_why());
	cr_assert_eq(karst_dereg_mr(p->mr), 0);
}

static void
pair_down(struct pair *p)
{
	pair_unmake(p);
	client_bed_down(&p->b);
}

static int
write_by(struct pair *p, uint32_t i, uint64_t wr_id)
{
	return client_bed_post(p->qp[i], KARST_WR_RDMA_WRITE, wr_id, p->mr, 0, 8, p->mr, 4096);
}

/* Entries that were published and not yet polled, in all lanes. */
static uint32_t
unread(const struct karst_cq *cq)
{
	uint32_t i, n = 0;

	for (i = 0; i < cq->nlanes; i++)
		n += atomic_load(&cq->lane[i].sh->tail) - cq->lane[i].head;
	return n;
}

/* Makes @n completions of QP @i, with wr_ids from @from on, that nobody polls. */
static void
pile_up(struct pair *p, uint32_t i, uint32_t from, uint32_t n)
{
	uint32_t is = unread(p->cq), k;

	for (k = 0; k < n; k++)
		while (write_by(p, i, from + k) != 0)
			client_bed_pause();
	while (unread(p->cq) < is + n)
		client_bed_pause();
}

static uint64_t
clock_of(struct pair *p)
{
	uint64_t ns = 0;

	cr_assert_eq(karst_query_clock(p->b.ctx, &ns), 0);
	return ns;
}

/* Times lie between the post and the poll and do not go back, while a small queue wraps around many
 * times. */
Test(client_cq, times)
{
	const struct karst_cq_init_attr attr = {.cqe = 4, .flags = KARST_CQ_TIMESTAMPS};
	uint64_t last = 0, posted;
	const struct karst_cqe *e;
	const uint64_t *at;
	struct pair p;
	uint32_t round, got, i;

	pair_up(&p, 1, &attr);
	for (round = 0; round < 50; round++) {
		uint32_t n = 1 + round % 4;

		posted = clock_of(&p);
		pile_up(&p, 0, 4 * round, n);
		for (i = 0; i < n;) {
			got = karst_cq_peek(p.cq, &e);
			at = karst_cq_stamps(p.cq);
			cr_assert_gt(got, 0);
			cr_assert_eq(e[0].wr_id, 4 * round + i);
			for (uint32_t k = 0; k < got; k++) {
				cr_assert_geq(at[k], posted);
				cr_assert_geq(at[k], last);
				last = at[k];
			}
			cr_assert_leq(last, clock_of(&p));
			karst_cq_take(p.cq, got);
			i += got;
		}
	}
	pair_down(&p);
}

/* Looking at a completion leaves it in the queue, with its time. */
Test(client_cq, look_takes_nothing)
{
	const struct karst_cq_init_attr attr = {.cqe = 4, .flags = KARST_CQ_TIMESTAMPS};
	const struct karst_cqe *e;
	struct karst_cqe made;
	struct pair p;
	uint32_t i;

	pair_up(&p, 1, &attr);
	cr_assert_eq(karst_cq_look(p.cq, 1, &made), 0, "nothing");
	pile_up(&p, 0, 0, 3);
	cr_assert_eq(karst_cq_look(p.cq, 1, &made), 0);
	cr_assert_eq(karst_cq_look(p.cq, -1, &made), -EINVAL);
	cr_assert_eq(karst_cq_peek(p.cq, &e), 3);
	cr_assert_eq(e[0].wr_id, 0);
	cr_assert_neq(karst_cq_stamps(p.cq)[0], 0);
	karst_cq_take(p.cq, 3);
	/* more than the queue has room for: the error comes after the completions that fitted */
	for (i = 0; i < 6; i++)
		while (write_by(&p, 0, i) != 0)
			client_bed_pause();
	while (atomic_load(&p.cq->sh->overflown) == 0)
		client_bed_pause();
	for (i = 0; i < 4; i++) {
		cr_assert_eq(karst_cq_look(p.cq, 1, &made), 0);
		cr_assert_gt(karst_cq_peek(p.cq, &e), 0);
		karst_cq_take(p.cq, 1);
	}
	cr_assert_eq(karst_cq_look(p.cq, 1, &made), -EIO);
	pair_down(&p);
}

Test(client_cq, vectors_and_flags)
{
	struct karst_cq_init_attr attr = {.cqe = 10, .cq_context = mem};
	struct karst_device_attr device;
	const struct karst_cqe *e;
	struct karst_cq *cq;
	struct pair p;

	pair_up(&p, 2, &attr);
	cr_assert_null(karst_cq_stamps(p.cq), "it has none");
	cr_assert_eq(karst_cq_peek(p.cq, &e), 0);
	cr_assert_eq(karst_query_device(p.b.ctx, &device), 0);
	cr_assert_eq(device.num_comp_vectors, 2);
	attr.comp_vector = 1;
	cr_assert_eq(karst_create_cq_ex(p.b.ctx, &attr, &cq), 0);
	cr_assert_eq(cq->cq_context, mem);
	cr_assert_eq(karst_destroy_cq(cq), 0);
	attr.comp_vector = 2;
	cr_assert_eq(karst_create_cq_ex(p.b.ctx, &attr, &cq), -EINVAL);
	cr_assert_not_null(strstr(karst_why(), "comp_vector 2: must be 0 to 1"));
	attr.comp_vector = 0;
	attr.flags = 4;
	cr_assert_eq(karst_create_cq_ex(p.b.ctx, &attr, &cq), -EINVAL);
	pair_down(&p);
}

static void
expect_ids(struct pair *p, uint32_t n0, uint32_t n1)
{
	uint32_t next[2] = {0, 1000}, i;

	for (i = 0; i < n0 + n1; i++) {
		struct karst_cqe e = client_bed_wait(p->cq);
		uint32_t which = e.qpn == p->qp[1]->qp_num;

		cr_assert_eq(e.status, KARST_WC_SUCCESS);
		cr_assert_eq(e.wr_id, next[which]);
		next[which]++;
	}
	cr_assert_eq(next[0], n0);
	cr_assert_eq(next[1], 1000 + n1);
	client_bed_nothing(p->cq);
}

/* Unread completions move to the new queue, larger or smaller, with their times; or the resize is
 * refused if they do not fit. */
Test(client_cq, resize_keeps_what_is_unread)
{
	const struct karst_cq_init_attr attr = {.cqe = 128, .flags = KARST_CQ_TIMESTAMPS};
	const struct karst_cqe *e;
	uint64_t before;
	struct pair p;
	uint32_t n;

	pair_up(&p, 2, &attr);
	/* the lanes have wrapped around before */
	pile_up(&p, 0, 0, 100);
	pile_up(&p, 1, 1000, 70);
	expect_ids(&p, 100, 70);
	before = clock_of(&p);
	pile_up(&p, 0, 0, 100);
	pile_up(&p, 1, 1000, 30);
	cr_assert_eq(karst_resize_cq(p.cq, 99), 0, "%s", karst_why());
	cr_assert_eq(p.cq->cqe, 128, "the next power of two");
	cr_assert_eq(karst_resize_cq(p.cq, 64), -EINVAL);
	cr_assert_not_null(strstr(karst_why(), "wait to be polled"), "%s", karst_why());
	cr_assert_eq(p.cq->cqe, 128);
	cr_assert_eq(karst_resize_cq(p.cq, 0), -EINVAL);
	cr_assert_eq(karst_resize_cq(p.cq, KARST_CQ_MAX_ENTRIES + 1), -EINVAL);
	cr_assert_eq(karst_resize_cq(p.cq, 1000), 0, "%s", karst_why());
	cr_assert_eq(p.cq->cqe, 1024);
	n = karst_cq_peek(p.cq, &e);
	cr_assert_gt(n, 0);
	cr_assert_geq(karst_cq_stamps(p.cq)[0], before);
	cr_assert_leq(karst_cq_stamps(p.cq)[0], clock_of(&p));
	expect_ids(&p, 100, 30);
	/* there is really room for these */
	pile_up(&p, 0, 0, 900);
	expect_ids(&p, 900, 0);
	cr_assert_eq(karst_resize_cq(p.cq, 1), 0, "%s", karst_why());
	cr_assert_eq(p.cq->cqe, 2);
	pile_up(&p, 0, 0, 2);
	expect_ids(&p, 2, 0);
	pair_down(&p);
}

/* Arming, moderation and channel are the same after a resize. */
Test(client_cq, resize_keeps_the_event)
{
	struct karst_cq_init_attr attr = {.cqe = 64};
	struct karst_comp_channel *ch;
	struct karst_cq *cq = NULL;
	struct pollfd fd = {.events = POLLIN};
	struct pair p;
	void *context;

	client_bed_up(&p.b, &(struct client_bed_config){.lcores = 2});
	cr_assert_eq(karst_create_comp_channel(p.b.ctx, &ch), 0);
	attr.channel = ch;
	attr.cq_context = &p;
	pair_make(&p, &attr);
	fd.fd = ch->fd;
	cr_assert_eq(karst_modify_cq(p.cq, 3, 0), 0);
	cr_assert_eq(karst_req_notify_cq(p.cq, false), 0);
	cr_assert_eq(karst_resize_cq(p.cq, 500), 0);
	pile_up(&p, 0, 0, 2);
	cr_assert_eq(poll(&fd, 1, 0), 0, "two of three");
	cr_assert_eq(karst_resize_cq(p.cq, 2), 0);
	cr_assert_eq(karst_resize_cq(p.cq, 30), 0);
	pile_up(&p, 0, 2, 1);
	cr_assert_eq(karst_get_cq_event(ch, &cq, &context), 0);
	cr_assert_eq(cq, p.cq);
	cr_assert_eq(context, &p);
	karst_ack_cq_events(cq, 1);
	expect_ids(&p, 3, 0);
	pair_unmake(&p);
	cr_assert_eq(karst_destroy_comp_channel(ch), 0);
	client_bed_down(&p.b);
}

struct resizer {
	struct karst_cq *cq;
	atomic_bool stop;
	atomic_uint done;
	int ret;
};

static void *
resize_on_and_on(void *arg)
{
	static const uint32_t sizes[] = {64, 4096, 100, 33, 1000, 32, 20000};
	struct resizer *r = arg;

	while (!atomic_load(&r->stop) && r->ret == 0)
		r->ret = karst_resize_cq(
			r->cq, sizes[atomic_fetch_add(&r->done, 1) % KARST_DIM(sizes)]);
	return NULL;
}

/* The lock of a program that takes completions in place. */
struct own_lock {
	unsigned int refusals; /* how often to refuse still, as if another thread had the lock */
	unsigned int taken, given;
};

static bool
own_try_lock(void *arg)
{
	struct own_lock *l = arg;

	if (l->refusals > 0) {
		l->refusals--;
		return false;
	}
	l->taken++;
	return true;
}

static void
own_unlock(void *arg)
{
	struct own_lock *l = arg;

	l->given++;
}

Test(client_cq, resize_takes_the_programs_lock)
{
	struct own_lock l = {.refusals = 3};
	const struct karst_cq_init_attr attr = {
		.cqe = 8, .cq_context = &l, .try_lock = own_try_lock, .unlock = own_unlock};
	struct client_bed b;
	struct karst_cq *cq;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	cr_assert_eq(karst_create_cq_ex(b.ctx, &attr, &cq), 0);
	cr_assert_eq(l.taken, 0);
	cr_assert_eq(karst_resize_cq(cq, 100), 0);
	cr_assert_eq(l.refusals, 0);
	cr_assert_eq(l.taken, 1);
	cr_assert_eq(l.given, 1);
	cr_assert_eq(karst_resize_cq(cq, 0), -EINVAL);
	cr_assert_eq(l.taken, 2);
	cr_assert_eq(l.given, 2, "kept after a failure");
	cr_assert_eq(karst_destroy_cq(cq), 0);
	client_bed_down(&b);
}

/* While completions arrive on two lanes and another thread polls them, each comes once, in
 * order. */
Test(client_cq, resize_under_traffic)
{
	const struct karst_cq_init_attr attr = {.cqe = 32, .flags = KARST_CQ_TIMESTAMPS};
	uint32_t posted[2] = {0}, done[2] = {0}, i;
	struct resizer r = {.stop = false};
	struct karst_cqe e[8];
	struct pair p;
	pthread_t t;

	/* neither QP has more than 16 outstanding, so 32 is enough */
	pair_up(&p, 2, &attr);
	r.cq = p.cq;
	cr_assert_eq(pthread_create(&t, NULL, resize_on_and_on, &r), 0);
	while (done[0] < 20000 || done[1] < 20000 || !atomic_load(&r.stop)) {
		int n = karst_poll_cq(p.cq, KARST_DIM(e), e);

		cr_assert_geq(n, 0, "%s", karst_why());
		for (int k = 0; k < n; k++) {
			i = e[k].qpn == p.qp[1]->qp_num;
			cr_assert_eq(e[k].status, 0);
			cr_assert_eq(e[k].wr_id, done[i]);
			done[i]++;
		}
		for (i = 0; i < 2; i++)
			if (posted[i] - done[i] < 16 && write_by(&p, i, posted[i]) == 0)
				posted[i]++;
		if (done[0] >= 20000 && done[1] >= 20000 && atomic_load(&r.done) >= 50)
			atomic_store(&r.stop, true);
	}
	pthread_join(t, NULL);
	cr_assert_eq(r.ret, 0);
	for (i = 0; i < 2; i++)
		for (; done[i] < posted[i]; done[i]++)
			client_bed_wait(p.cq);
	client_bed_nothing(p.cq);
	pair_down(&p);
}

/* --- an engine that ends during a resize --- */

/* A control connection to a real session, which breaks at SWITCH_CQ. */
struct breaking {
	struct karst_ctl_conn conn;
	struct pair *p;
	bool after; /* break after the engine has switched, when completions are in the new lanes */
};

static int
breaking_call(void *user, const void *req, size_t len, const int *fds, unsigned int nfds, void *rsp,
	size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds)
{
	const struct karst_ctl_hdr *h = req;
	struct breaking *br = user;
	struct pair *p = br->p;
	uint32_t i;

	if (h->op != KARST_CTL_SWITCH_CQ)
		return br->conn.call(
			br->conn.user, req, len, fds, nfds, rsp, rsp_len, rsp_fds, nrsp_fds);
	if (br->after) {
		br->conn.call(br->conn.user, req, len, fds, nfds, rsp, rsp_len, rsp_fds, nrsp_fds);
		for (i = 0; i < 5; i++)
			cr_assert_eq(write_by(p, 1, 1030 + i), 0);
		/* completions are ready before the slots of their requests are free */
		while (atomic_load(&p->qp[1]->sq.sh->head) != p->qp[1]->sq.tail)
			client_bed_pause();
	}
	return -EIO;
}

static void
breaking_close(void *user)
{
	struct breaking *br = user;

	br->conn.close(br->conn.user);
}

static void
broken_resize(bool after)
{
	const struct karst_cq_init_attr attr = {.cqe = 64, .flags = KARST_CQ_TIMESTAMPS};
	struct pair p;
	struct breaking br = {.p = &p, .after = after};
	const struct karst_ctl_conn conn = {
		.call = breaking_call, .close = breaking_close, .user = &br, .hup_fd = -1};
	struct client_bed bed;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 2});
	cr_assert_eq(karst_session_conn(bed.e, NULL, &br.conn), 0);
	cr_assert_eq(karst_open_conn(&conn, NULL, &p.b.ctx), 0, "%s", karst_why());
	cr_assert_eq(karst_alloc_pd(p.b.ctx, &p.b.pd), 0);
	cr_assert_eq(karst_create_cq(p.b.ctx, 16, NULL, NULL, &p.b.cq), 0);
	pair_make(&p, &attr);
	pile_up(&p, 0, 0, 40);
	pile_up(&p, 1, 1000, 30);
	cr_assert_eq(karst_resize_cq(p.cq, 500), -EIO);
	expect_ids(&p, 40, after ? 35 : 30);
	pair_unmake(&p);
	cr_assert_eq(karst_destroy_cq(p.b.cq), 0);
	cr_assert_eq(karst_dealloc_pd(p.b.pd), 0);
	cr_assert_eq(karst_close(p.b.ctx), 0);
	client_bed_down(&bed);
}

Test(client_cq, engine_goes_before_it_resizes)
{
	broken_resize(false);
}

Test(client_cq, engine_goes_after_it_resized)
{
	broken_resize(true);
}
