/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Calls of libibverbs that no other program of this folder tests: order of destruction, lists,
 * events, attributes, threads, forks.  Run under karst-run; prints TAP.
 */
#include "calls_bed.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- orders --- */

static void
what_is_used_stays(void)
{
	struct ibv_td_init_attr td_init = {0};
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_parent_domain_init_attr init = {0};
	struct ibv_pd *parent;
	struct ibv_srq *srq;
	struct ibv_td *td;
	struct rig r;

	rig_up(&r);
	rig_connect(&r, IBV_QPT_RC);
	EQ(ibv_destroy_cq(r.cq), EBUSY);
	EQ(ibv_dealloc_pd(r.pd), EBUSY);
	MUST((td = ibv_alloc_td(r.ctx, &td_init)) != NULL);
	init.pd = r.pd;
	init.td = td;
	MUST((parent = ibv_alloc_parent_domain(r.ctx, &init)) != NULL);
	EQ(ibv_dealloc_td(td), EBUSY);
	MUST((srq = ibv_create_srq(parent, &srq_init)) != NULL);
	EQ(ibv_dealloc_pd(parent), EBUSY);
	EQ(ibv_destroy_srq(srq), 0);
	EQ(ibv_dealloc_pd(parent), 0);
	EQ(ibv_dealloc_td(td), 0);
	rig_down(&r);
}

static void
bound_regions_stay(void)
{
	struct ibv_mw_bind bind = {.wr_id = 1, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_mw *mw;
	struct rig r;

	rig_up(&r);
	rig_connect(&r, IBV_QPT_RC);
	MUST((mw = ibv_alloc_mw(r.pd, IBV_MW_TYPE_1)) != NULL);
	bind.bind_info = (struct ibv_mw_bind_info){
		.mr = r.mr,
		.addr = (uintptr_t)r.buf,
		.length = 4096,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	EQ(ibv_bind_mw(r.qp[0], mw, &bind), 0);
	EQ(wait_for(r.cq).status, IBV_WC_SUCCESS);
	EQ(ibv_dereg_mr(r.mr), EBUSY);
	EQ(ibv_rereg_mr(r.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE),
		IBV_REREG_MR_ERR_CMD);
	EQ(errno, EBUSY);
	EQ(ibv_dealloc_mw(mw), 0);
	rig_down(&r);
}

/* Closing a device destroys the objects that are left in it.  calls.py checks that in the engine
 * afterwards. */
static void
closing_ends_all(void)
{
	static struct rig r; /* static: its registered buffer is not freed */

	rig_up(&r);
	rig_connect(&r, IBV_QPT_RC);
	EQ(ibv_close_device(r.ctx), 0);
}

/* --- memory --- */

static void
keys_stay(void)
{
	struct ibv_pd *other;
	uint32_t lkey, rkey;
	struct rig r;

	rig_up(&r);
	lkey = r.mr->lkey;
	rkey = r.mr->rkey;
	MUST((other = ibv_alloc_pd(r.ctx)) != NULL);
	/* arguments that the flags do not name are ignored */
	EQ(ibv_rereg_mr(r.mr, IBV_REREG_MR_CHANGE_ACCESS, (void *)16, (void *)1, 1,
		   IBV_ACCESS_REMOTE_READ),
		0);
	EQ(ibv_rereg_mr(r.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, r.buf + 4096, 4096, 0), 0);
	EQ(ibv_rereg_mr(r.mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0), 0);
	EQ(r.mr->lkey, lkey);
	EQ(r.mr->rkey, rkey);
	EQ(ibv_dealloc_pd(other), EBUSY);
	EQ(ibv_dealloc_pd(r.pd), 0);
	r.pd = other;
	rig_down(&r);
}

/* --- lists --- */

static void
lists_stop_at_the_first_mistake(void)
{
	struct ibv_sge sge, two[3];
	struct ibv_send_wr wr[4], *bad = NULL;
	struct rig r;
	unsigned int i;

	rig_up(&r);
	rig_connect(&r, IBV_QPT_RC);
	sge = piece(&r, 0, 8);
	memset(wr, 0, sizeof(wr));
	for (i = 0; i < 4; i++) {
		EQ(post_recv(&r, r.qp[1], 100 + i, 1024 * i, 1024), 0);
		wr[i] = (struct ibv_send_wr){
			.wr_id = i,
			.next = i < 3 ? &wr[i + 1] : NULL,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED,
		};
	}
	two[0] = two[1] = two[2] = sge;
	wr[2].sg_list = two;
	wr[2].num_sge = 3; /* max_send_sge is 2 */
	EQ(ibv_post_send(r.qp[0], wr, &bad), EINVAL);
	CHECK(bad == &wr[2], "request %ld", (long)(bad - wr));
	for (i = 0; i < 4; i++)
		EQ(wait_for(r.cq).status, IBV_WC_SUCCESS);
	/* the requests after it were not sent: two receives are left */
	wr[0].opcode = 99;
	EQ(ibv_post_send(r.qp[0], wr, &bad), EINVAL);
	CHECK(bad == &wr[0], "request %ld", (long)(bad - wr));
	sge.length = 65;
	wr[0].opcode = IBV_WR_SEND;
	wr[0].send_flags = IBV_SEND_INLINE;
	EQ(ibv_post_send(r.qp[0], wr, &bad), ENOMEM);
	for (i = 0; i < 2; i++) {
		EQ(post_send(&r, r.qp[0], 7, 0, 8, 0), 0);
		EQ(wait_for(r.cq).status, IBV_WC_SUCCESS);
		EQ(wait_for(r.cq).status, IBV_WC_SUCCESS);
	}
	nothing_more(&r);
	rig_down(&r);
}

/* The pieces of a receive may have more bytes than any message; only those that a message needs
 * have to be in their region. */
static void
receives_longer_than_any_message(void)
{
	struct ibv_recv_wr wr = {.wr_id = 1, .num_sge = 2}, *bad;
	struct ibv_sge sge[2];
	struct ibv_wc wc;
	struct rig r;

	rig_up(&r);
	rig_connect(&r, IBV_QPT_RC);
	sge[0] = sge[1] = piece(&r, 4096, 1u << 31);
	wr.sg_list = sge;
	EQ(ibv_post_recv(r.qp[1], &wr, &bad), 0);
	memcpy(r.buf, "a few", 6);
	EQ(post_send(&r, r.qp[0], 2, 0, 6, 0), 0);
	wc = wait_for(r.cq);
	if (wc.wr_id != 1)
		wc = wait_for(r.cq);
	EQ(wc.status, IBV_WC_SUCCESS);
	EQ(wc.byte_len, 6);
	EQ(memcmp(r.buf + 4096, "a few", 6), 0);
	rig_down(&r);
}

static struct ibv_qp_ex *
make_qp_ex(struct rig *r)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = r->cq,
		.recv_cq = r->cq,
		.cap = {.max_send_wr = 4,
			.max_recv_wr = 4,
			.max_send_sge = 2,
			.max_recv_sge = 2,
			.max_inline_data = 64},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = r->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE,
	};

	MUST((r->qp[0] = ibv_create_qp_ex(r->ctx, &init)) != NULL);
	r->qp[1] = make_qp(r, IBV_QPT_RC, NULL);
	MUST(to_init(r->qp[0]) == 0 && to_init(r->qp[1]) == 0);
	MUST(to_rtr(r->qp[0], r->qp[1]->qp_num) == 0 && to_rtr(r->qp[1], r->qp[0]->qp_num) == 0);
	MUST(to_rts(r->qp[0]) == 0 && to_rts(r->qp[1]) == 0);
	return ibv_qp_to_qp_ex(r->qp[0]);
}

static void
write_inline(struct rig *r, struct ibv_qp_ex *ex, uint64_t wr_id, size_t to, size_t len)
{
	static char data[128] = "data that may change at once";

	ex->wr_id = wr_id;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(ex, r->mr->rkey, (uintptr_t)r->buf + to);
	ibv_wr_set_inline_data(ex, data, len);
}

static void
lists_of_calls_go_out_whole_or_not(void)
{
	struct ibv_qp_ex *ex;
	struct rig r;
	unsigned int i;

	rig_up(&r);
	ex = make_qp_ex(&r);
	ibv_wr_start(ex);
	write_inline(&r, ex, 1, 0, 8);
	ibv_wr_abort(ex);
	ibv_wr_start(ex);
	write_inline(&r, ex, 2, 0, 8);
	write_inline(&r, ex, 3, 0, 65);
	EQ(ibv_wr_complete(ex), ENOMEM);
	ibv_wr_start(ex);
	for (i = 0; i < 65; i++)
		write_inline(&r, ex, 4, 0, 8);
	EQ(ibv_wr_complete(ex), ENOMEM); /* more requests than the queue has slots */
	EQ(r.buf[0], 0);
	ibv_wr_start(ex);
	for (i = 0; i < 3; i++)
		write_inline(&r, ex, 10 + i, 64 * i, 8);
	EQ(ibv_wr_complete(ex), 0);
	for (i = 0; i < 3; i++)
		EQ(wait_for(r.cq).wr_id, 10 + i);
	EQ(memcmp(r.buf + 128, "data tha", 9), 0);
	nothing_more(&r);
	rig_down(&r);
}

/* --- attributes --- */

static void
attributes_come_back(void)
{
	const int all = 0x1ffffff;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;
	union ibv_gid gid;
	struct rig r;

	rig_up(&r);
	rig_connect(&r, IBV_QPT_RC);
	EQ(ibv_query_gid(r.ctx, 1, 0, &gid), 0);
	EQ(ibv_query_qp(r.qp[0], &a, all, &init), 0);
	EQ(a.qp_state, IBV_QPS_RTS);
	EQ(a.path_mtu, IBV_MTU_1024);
	EQ(a.rq_psn, 0x123456);
	EQ(a.dest_qp_num, r.qp[1]->qp_num);
	EQ(a.qp_access_flags, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	EQ(a.max_rd_atomic, 4);
	EQ(a.max_dest_rd_atomic, 4);
	EQ(a.min_rnr_timer, 12);
	EQ(a.port_num, 1);
	EQ(a.timeout, 14);
	EQ(a.retry_cnt, 7);
	EQ(a.rnr_retry, 7);
	EQ(a.ah_attr.is_global, 1);
	EQ(a.ah_attr.grh.hop_limit, 64);
	EQ(memcmp(&a.ah_attr.grh.dgid, &gid, sizeof(gid)), 0);
	CHECK(init.cap.max_send_wr >= 16, "%u", init.cap.max_send_wr);
	CHECK(init.send_cq == r.cq && init.qp_type == IBV_QPT_RC, "of another");
	rig_down(&r);
}

/* Attributes that tell a program how to address its peers; no other test checks them. */
static void
ports_need_grhs(void)
{
	struct ibv_port_attr port;
	struct rig r;

	rig_up(&r);
	EQ(ibv_query_port(r.ctx, 1, &port), 0);
	EQ(port.flags, IBV_QPF_GRH_REQUIRED);
	EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	rig_down(&r);
}

/* The maximum difference between the clocks of a virtual machine's processors. */
#define SKEW_NS 20000u
/* Many, to hit the case that a completion arrives between two steps of one poll. */
#define TIME_ROUNDS 600u

/* Takes @n completions and checks that their times are not before their queue pair's in @last. */
static void
take_in_order(struct rig *r, struct ibv_cq_ex *ex, unsigned int n, uint64_t last[2])
{
	struct ibv_poll_cq_attr poll = {0};
	unsigned int i, q;
	uint64_t now;

	for (i = 0; i < n; i++) {
		while (ibv_start_poll(ex, &poll) == ENOENT)
			;
		now = ibv_wc_read_completion_ts(ex);
		q = ibv_wc_read_qp_num(ex) == r->qp[1]->qp_num;
		CHECK(now >= last[q], "%llu after %llu", (unsigned long long)now,
			(unsigned long long)last[q]);
		last[q] = now;
		ibv_end_poll(ex);
	}
}

static void
times_are_in_order(void)
{
	struct ibv_values_ex before = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK}, after = before;
	struct ibv_cq_init_attr_ex init = {
		.cqe = 16, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_QP_NUM};
	uint64_t last[2]; /* one for each queue pair: different lcores' times are not ordered */
	unsigned int round, i, q;
	struct ibv_cq_ex *ex;
	struct rig r;

	rig_up(&r);
	EQ(ibv_destroy_cq(r.cq), 0);
	MUST((ex = ibv_create_cq_ex(r.ctx, &init)) != NULL);
	r.cq = ibv_cq_ex_to_cq(ex);
	rig_connect(&r, IBV_QPT_RC);
	EQ(ibv_query_rt_values_ex(r.ctx, &before), 0);
	/* this time was read on another processor, whose clock may be ahead */
	last[0] = last[1] = (uint64_t)before.raw_clock.tv_nsec - SKEW_NS;
	for (round = 0; round < TIME_ROUNDS; round++) {
		for (i = 0; i < 3; i++) {
			EQ(post_recv(&r, r.qp[1], i, 0, 64), 0);
			EQ(post_send(&r, r.qp[0], i, 64, 8, IBV_SEND_INLINE), 0);
		}
		take_in_order(&r, ex, 6, last);
	}
	EQ(ibv_query_rt_values_ex(r.ctx, &after), 0);
	for (q = 0; q < 2; q++)
		CHECK((uint64_t)after.raw_clock.tv_nsec + SKEW_NS >= last[q],
			"the clock is behind");
	rig_down(&r);
}

/* --- datagrams --- */

static void
groups(void)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1}};
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	union ibv_gid gid;
	struct ibv_ah *ah;
	struct rig r;

	rig_up(&r);
	rig_connect(&r, IBV_QPT_UD);
	EQ(inet_pton(AF_INET6, "::ffff:239.1.2.3", &gid), 1);
	attr.grh.dgid = gid;
	MUST((ah = ibv_create_ah(r.pd, &attr)) != NULL);
	EQ(ibv_attach_mcast(r.qp[1], &gid, 0), 0);
	EQ(post_recv(&r, r.qp[1], 1, 0, 1024), 0);
	memcpy(r.buf + 2048, "to all", 7);
	sge = piece(&r, 2048, 7);
	wr = (struct ibv_send_wr){
		.wr_id = 2,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.wr.ud = {ah, 0xffffff, 0x1234},
	};
	EQ(ibv_post_send(r.qp[0], &wr, &bad), 0);
	EQ(wait_for(r.cq).wr_id, 1);
	EQ(memcmp(r.buf + 40, "to all", 7), 0);
	EQ(ibv_detach_mcast(r.qp[1], &gid, 0), 0);
	EQ(ibv_detach_mcast(r.qp[1], &gid, 0), EINVAL);
	EQ(ibv_destroy_ah(ah), 0);
	/* a queue pair leaves the group when it is destroyed */
	EQ(ibv_attach_mcast(r.qp[1], &gid, 0), 0);
	rig_down(&r);
}

/* --- threads and processes --- */

#define THREADS        4u
#define CROWD_MESSAGES 2000u

static struct rig crowd;

/* Posts and polls; each thread counts the completions that it finds, in one common counter. */
static void *
one_of_many(void *done)
{
	_Atomic unsigned int *n = done;
	unsigned int posted = 0;
	struct ibv_wc wc;

	while (*n < THREADS * CROWD_MESSAGES) {
		struct ibv_sge sge = piece(&crowd, 0, 8);
		struct ibv_send_wr wr = {
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = {(uintptr_t)crowd.buf + 64, crowd.mr->rkey},
		};
		struct ibv_send_wr *bad;

		if (posted < CROWD_MESSAGES && ibv_post_send(crowd.qp[0], &wr, &bad) == 0)
			posted++;
		if (ibv_poll_cq(crowd.cq, 1, &wc) == 1) {
			if (wc.status != IBV_WC_SUCCESS)
				return done;
			++*n;
		}
	}
	return NULL;
}

static void
threads_share_queues(void)
{
	static _Atomic unsigned int done;
	pthread_t thread[THREADS];
	void *bad = NULL;
	unsigned int i;

	rig_up(&crowd);
	rig_connect(&crowd, IBV_QPT_RC);
	for (i = 0; i < THREADS; i++)
		MUST(pthread_create(&thread[i], NULL, one_of_many, &done) == 0);
	for (i = 0; i < THREADS; i++) {
		pthread_join(thread[i], &bad);
		CHECK(bad == NULL, "a completion in error");
	}
	EQ(done, THREADS * CROWD_MESSAGES);
	rig_down(&crowd);
}

/* Runs in a child.  @return its exit status; 0: all is well. */
static int
child(struct rig *parents)
{
	struct rig r;

	if (parents->buf[0] != 0x11)
		return 3;
	memset(parents->buf, 0x99, BUF_BYTES);
	if (ibv_alloc_pd(parents->ctx) != NULL || errno != EPERM)
		return 1;
	if (ibv_destroy_qp(parents->qp[0]) != EPERM)
		return 2;
	rig_up(&r);
	rig_connect(&r, IBV_QPT_RC);
	nothing_more(&r);
	rig_down(&r);
	return 0;
}

static void
children_have_their_own(void)
{
	int status = -1;
	struct rig r;
	pid_t pid;

	rig_up(&r);
	rig_connect(&r, IBV_QPT_RC);
	memset(r.buf, 0x11, BUF_BYTES);
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(child(&r));
	/* bytes that the peer writes meanwhile are separate from those that the child writes */
	EQ(post_recv(&r, r.qp[1], 1, 4096, 100), 0);
	EQ(post_send(&r, r.qp[0], 2, 0, 100, IBV_SEND_SIGNALED), 0);
	EQ(wait_for(r.cq).status, IBV_WC_SUCCESS);
	EQ(wait_for(r.cq).status, IBV_WC_SUCCESS);
	EQ(waitpid(pid, &status, 0), pid);
	CHECK(r.buf[0] == 0x11 && r.buf[4096] == 0x11 && r.buf[4195] == 0x11, "the child's bytes");
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", (unsigned int)status);
	nothing_more(&r);
	rig_down(&r);
}

/* Calls of a child about its parent's queues are refused, even if a thread of the parent was in the
 * midst of posting when the process forked. */
static void
children_arm_and_bind_nothing(void)
{
	struct ibv_mw_bind bind = {.wr_id = 1};
	struct ibv_qp_ex *ex;
	struct ibv_mw *mw;
	int status = -1;
	struct rig r;
	pid_t pid;

	rig_up(&r);
	ex = make_qp_ex(&r);
	MUST((mw = ibv_alloc_mw(r.pd, IBV_MW_TYPE_1)) != NULL);
	fflush(stdout);
	ibv_wr_start(ex);
	pid = fork();
	if (pid == 0) {
		alarm(PATIENCE_S);
		if (ibv_req_notify_cq(r.cq, 0) != EPERM)
			_exit(1);
		_exit(ibv_bind_mw(r.qp[0], mw, &bind) == EPERM ? 0 : 2);
	}
	ibv_wr_abort(ex);
	EQ(waitpid(pid, &status, 0), pid);
	EQ(status, 0);
	EQ(ibv_dealloc_mw(mw), 0);
	rig_down(&r);
}

/* --- the engine's end --- */

/* Prints "# ready" when the engine may be killed. */
static void
engine_goes(void)
{
	struct ibv_async_event e;
	struct ibv_wc wc;
	struct rig r;
	unsigned int i;

	rig_up(&r);
	rig_connect(&r, IBV_QPT_RC);
	for (i = 0; i < 3; i++)
		EQ(post_recv(&r, r.qp[1], i, 0, 64), 0);
	printf("# ready\n");
	fflush(stdout);
	MUST(ibv_get_async_event(r.ctx, &e) == 0);
	EQ(e.event_type, IBV_EVENT_DEVICE_FATAL);
	ibv_ack_async_event(&e);
	for (i = 0; i < 3; i++) {
		wc = wait_for(r.cq);
		EQ(wc.wr_id, i);
		EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
		EQ(wc.qp_num, r.qp[1]->qp_num);
	}
	EQ(post_recv(&r, r.qp[1], 4, 0, 64), 0);
	EQ(wait_for(r.cq).wr_id, 4);
	CHECK(ibv_alloc_pd(r.ctx) == NULL && errno == EIO, "%s", strerror(errno));
	rig_down(&r);
}

/* Leaves objects of all kinds and outstanding requests when the program ends. */
static void
leaves(void)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 16, .max_sge = 1}};
	struct rig r;
	unsigned int i;

	rig_up(&r);
	for (i = 0; i < 20; i++) {
		rig_connect(&r, IBV_QPT_RC);
		EQ(post_send(&r, r.qp[0], i, 0, 4096, 0), 0);
		MUST(ibv_create_srq(r.pd, &srq) != NULL);
		MUST(ibv_alloc_mw(r.pd, IBV_MW_TYPE_2) != NULL);
		MUST(ibv_create_comp_channel(r.ctx) != NULL);
	}
}

int
main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "--leave") == 0) {
		run_case("leaves everything as it is", leaves);
		return cases_end();
	}
	if (argc > 1 && strcmp(argv[1], "--ports") == 0) {
		run_case("events are of the device's own port", events_of_its_own_port);
		return cases_end();
	}
	if (argc > 1 && strcmp(argv[1], "--end") == 0) {
		run_case("the engine goes", engine_goes);
		return cases_end();
	}
	run_case("what is used stays", what_is_used_stays);
	run_case("regions with windows stay", bound_regions_stay);
	run_case("binds that fail are undone", failed_binds_are_undone);
	run_case("closing a device ends all that is in it", closing_ends_all);
	run_case("keys stay over re-registrations", keys_stay);
	run_case("regions of no bytes", empty_regions);
	run_case("lists stop at the first mistake", lists_stop_at_the_first_mistake);
	run_case("receives longer than any message", receives_longer_than_any_message);
	run_case("lists of ibv_wr calls go out whole or not", lists_of_calls_go_out_whole_or_not);
	run_case("completion events", completion_events);
	run_case("completions between the last poll and arming", armed_late);
	run_case("a queue is armed for solicited completions", armed_for_solicited);
	run_case("events are for what is left", events_are_for_what_is_left);
	run_case("one poll for each event", one_poll_for_each_event);
	run_case("a queue is armed before any poll", armed_before_any_poll);
	run_case("one completion for each event", one_completion_for_each_event);
	run_case("a queue is armed in the midst of a poll", armed_while_polled);
	run_case("unread events go with their object", unread_events_go_along);
	run_case("queues that are not destroyed keep their events", refused_queues_keep_events);
	run_case("shared receive queues that are not destroyed keep their events",
		refused_srqs_keep_events);
	run_case("asynchronous events that are read while their object may go",
		asynchronous_events_while_it_goes);
	run_case("completion events that are read while their queue may go",
		completion_events_while_it_goes);
	run_case("calls about what goes", calls_about_what_goes);
	run_case("memory is watched beside forks", memory_is_watched_beside_forks);
	run_case("channels end beside others", channels_end_beside_others);
	run_case("polls in vain look again", polls_look_again);
	run_case("queue pairs go within a poll", queue_pairs_go_within_a_poll);
	run_case("a queue is resized within a poll", resized_within_a_poll);
	run_case("queues are changed by two threads within polls",
		changed_by_two_threads_within_polls);
	run_case("completion queues that are only named", cqs_that_are_only_named);
	run_case("polls go on beside requests", polls_go_on_beside_requests);
	run_case("requests in the midst of a poll", requests_in_the_midst_of_a_poll);
	run_case("no advice about what goes", no_advice_about_what_goes);
	run_case("regions go beside advice", regions_go_beside_advice);
	run_case("a region is re-registered by two threads", reregistered_by_two_threads);
	run_case("cancelled while it destroys", cancelled_while_it_destroys);
	run_case("used until it is acknowledged", used_until_acknowledged);
	run_case("children wait for nobody", children_wait_for_nobody);
	run_case("children are refused at once", children_are_refused_at_once);
	run_case("children move nothing", children_move_nothing);
	run_case("children close channels", children_close_channels);
	run_case("children close all", children_close_all);
	run_case("asynchronous events", asynchronous_events);
	run_case("ports say that addresses need a GRH", ports_need_grhs);
	run_case("attributes come back", attributes_come_back);
	run_case("rates are kept", rates_are_kept);
	run_case("limits and states change together", limits_and_states_change_together);
	run_case("times are in order", times_are_in_order);
	run_case("multicast groups", groups);
	run_case("threads share queues", threads_share_queues);
	run_case("children have their own", children_have_their_own);
	run_case("children arm and bind nothing", children_arm_and_bind_nothing);
	return cases_end();
}
