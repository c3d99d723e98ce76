/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Paths that are sought, and alternate paths by libkarst (G2 to G5).  There the first queue
 * pair's primary path is from port 1 to port 2, and its alternate path from port 2 to port 1; its
 * peer's are the reverse.
 */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "client_bed.h"
#include "karst_ctl_msg.h"
#include "karst_log.h"

#define BYTES 4096u
#define BOTH  (KARST_QP_ALT_PATH | KARST_QP_PATH_MIG_STATE)

static uint8_t mem[2][BYTES];

struct ends {
	struct client_bed b;
	struct karst_qp *qp[2];
	struct karst_mr *mr[2];
};

static void
ends_up(struct ends *t)
{
	int i;

	client_bed_up(&t->b, &(struct client_bed_config){.lcores = 1});
	for (i = 0; i < 2; i++) {
		t->qp[i] = client_bed_qp(&t->b, KARST_QPT_RC);
		t->mr[i] = client_bed_mr(&t->b, mem[i], BYTES);
	}
	client_bed_connect(t->qp[0], t->qp[1]);
}

static void
ends_down(struct ends *t)
{
	int i;

	for (i = 0; i < 2; i++) {
		cr_assert_eq(karst_destroy_qp(t->qp[i]), 0);
		cr_assert_eq(karst_dereg_mr(t->mr[i]), 0);
	}
	client_bed_down(&t->b);
}

/* The path from @port to the other port, to be armed. */
static struct karst_qp_attr
alternate(const struct ends *t, uint8_t port)
{
	struct karst_qp_attr a = {
		.alt_port_num = port,
		.alt_timeout = 16,
		.alt_ah_attr = {.port_num = port, .traffic_class = 0x20, .hop_limit = 9, .sl = 3},
		.path_mig_state = KARST_MIG_REARM,
	};

	cr_assert_eq(karst_query_gid(t->b.ctx, 3u - port, 0, &a.alt_ah_attr.dgid), 0);
	return a;
}

static struct karst_qp_attr
query(struct karst_qp *qp)
{
	struct karst_qp_attr a;

	cr_assert_eq(karst_query_qp(qp, &a, NULL), 0, "%s", karst_why());
	return a;
}

static void
write_once(struct ends *t, int side)
{
	struct karst_cqe c;

	memset(mem[side], mem[1 - side][0] + 1, BYTES);
	cr_assert_eq(client_bed_post(t->qp[side], KARST_WR_RDMA_WRITE, 1, t->mr[side], 0, BYTES,
			     t->mr[1 - side], 0),
		0);
	c = client_bed_wait(t->b.cq);
	cr_assert_eq(c.status, KARST_WC_SUCCESS, "%s", karst_wc_status_str(c.status));
	cr_assert_arr_eq(mem[0], mem[1], BYTES);
}

/* Waits for one event of each queue pair, in any order. */
static void
expect_migrated(struct ends *t)
{
	struct karst_async_event e;
	bool seen[2] = {false, false};
	int i, which;

	for (i = 0; i < 2; i++) {
		do {
			cr_assert_eq(karst_get_async_event(t->b.ctx, &e), 0, "%s", karst_why());
			karst_ack_async_event(&e);
		} while (e.event == KARST_EVENT_COMM_EST);
		cr_assert_eq(e.event, KARST_EVENT_PATH_MIG);
		cr_assert_eq(e.object, KARST_ASYNC_OBJECT_QP);
		which = e.element.qp == t->qp[1];
		cr_assert_eq(e.element.qp, t->qp[which]);
		cr_assert_not(seen[which], "twice");
		seen[which] = true;
	}
}

static void
expect_primary(struct ends *t, int side, uint8_t port)
{
	struct karst_qp_attr is = query(t->qp[side]);

	cr_assert_eq(is.path_mig_state, KARST_MIG_MIGRATED);
	cr_assert_eq(is.port_num, port);
	cr_assert_eq(is.ah_attr.port_num, port);
	cr_assert_eq(is.alt_port_num, 0);
	cr_assert_eq(is.alt_ah_attr.port_num, 0);
}

/* (G2, G3, G4): loaded, armed by the peer, and migrated to; queries report the attributes as they
 * were set. */
Test(client_path, g4_between_two_ports)
{
	const struct karst_qp_attr go = {.path_mig_state = KARST_MIG_MIGRATED};
	struct karst_qp_attr to, is;
	struct ends t;
	uint8_t i;

	ends_up(&t);
	for (i = 0; i < 2; i++) {
		to = alternate(&t, 2 - i);
		cr_assert_eq(karst_modify_qp(t.qp[i], &to, BOTH), 0, "%s", karst_why());
		is = query(t.qp[i]);
		cr_assert_eq(is.alt_port_num, 2 - i);
		cr_assert_eq(is.alt_timeout, 16);
		cr_assert_eq(memcmp(&is.alt_ah_attr, &to.alt_ah_attr, sizeof(to.alt_ah_attr)), 0);
		cr_assert_eq(is.ah_attr.port_num, 1 + i);
	}
	write_once(&t, 0);
	write_once(&t, 1);
	for (i = 0; i < 2; i++)
		cr_assert_eq(query(t.qp[i]).path_mig_state, KARST_MIG_ARMED);
	cr_assert_eq(karst_modify_qp(t.qp[0], &go, KARST_QP_PATH_MIG_STATE), 0, "%s", karst_why());
	write_once(&t, 0);
	expect_migrated(&t);
	for (i = 0; i < 2; i++) {
		expect_primary(&t, i, 2 - i);
		is = query(t.qp[i]);
		cr_assert_eq(is.timeout, 16);
		cr_assert_eq(is.ah_attr.traffic_class, 0x20);
		cr_assert_eq(is.ah_attr.hop_limit, 9);
		cr_assert_eq(is.ah_attr.sl, 3);
	}
	/* and back: the path that is primary now is reported as it was set, too */
	for (i = 0; i < 2; i++) {
		to = alternate(&t, 1 + i);
		cr_assert_eq(karst_modify_qp(t.qp[i], &to, BOTH), 0, "%s", karst_why());
		cr_assert_eq(query(t.qp[i]).ah_attr.sl, 3);
	}
	write_once(&t, 0);
	write_once(&t, 1);
	cr_assert_eq(karst_modify_qp(t.qp[1], &go, KARST_QP_PATH_MIG_STATE), 0, "%s", karst_why());
	write_once(&t, 1);
	expect_migrated(&t);
	for (i = 0; i < 2; i++)
		expect_primary(&t, i, 1 + i);
	ends_down(&t);
}

/* (G2): what is refused, with a reason, and changes nothing. */
Test(client_path, g2_refused)
{
	struct karst_qp_attr to;
	struct ends t;

	ends_up(&t);
	to = alternate(&t, 1);
	to.path_mig_state = KARST_MIG_ARMED;
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, BOTH), -EINVAL);
	says("path_mig_state 2: must be 0 to 1");
	to = alternate(&t, 1);
	to.alt_port_num = 2;
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, BOTH), -EINVAL);
	says("alt_port_num 2: alt_ah has port_num 1");
	to.alt_port_num = to.alt_ah_attr.port_num = 3;
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, BOTH), -EINVAL);
	says("alternate path: ah.port_num 3: no such port");
	to = alternate(&t, 1);
	to.alt_ah_attr.sgid_index = 77;
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, BOTH), -EINVAL);
	says("alternate path: sgid_index 77");
	to = alternate(&t, 1);
	to.alt_timeout = 32;
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, BOTH), -EINVAL);
	says("alt_timeout 32: must be 0 to 31");
	to = alternate(&t, 1);
	to.alt_pkey_index = 1;
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, BOTH), -EINVAL);
	says("alt_pkey_index 1");
	to = alternate(&t, 1);
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, KARST_QP_PATH_MIG_STATE), -EINVAL);
	says("there is no alternate path");
	cr_assert_eq(query(t.qp[0]).alt_port_num, 0);
	cr_assert_eq(query(t.qp[0]).path_mig_state, KARST_MIG_MIGRATED);
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, BOTH), 0, "%s", karst_why());
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, KARST_QP_ALT_PATH), -EINVAL);
	says("only with PATH_MIG_STATE REARM");
	to.path_mig_state = KARST_MIG_MIGRATED;
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, KARST_QP_PATH_MIG_STATE), -EINVAL);
	says("in REARM");
	cr_assert_eq(query(t.qp[0]).path_mig_state, KARST_MIG_REARM);
	/* RESET forgets the alternate path, whatever was loaded */
	to.qp_state = KARST_QPS_RESET;
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, KARST_QP_STATE), 0);
	cr_assert_eq(query(t.qp[0]).alt_port_num, 0);
	ends_down(&t);
}

static atomic_uint lines;

static void
count_lines(enum karst_log_level level, const char *fmt, va_list ap)
{
	lines += level <= KARST_LOG_NOTICE;
}

/* An MTU that the port of an alternate path does not carry is reported to the program, and not to
 * the log, which the program could make as long as it likes. */
Test(client_path, g2_mtu)
{
	struct karst_qp_attr to, sqd = {.qp_state = KARST_QPS_SQD};
	struct ends t;

	ends_up(&t);
	cr_assert_eq(karst_engine_port_set_mtu(t.b.e, 1, 600), 0);
	karst_log_set_sink(count_lines);
	to = alternate(&t, 2);
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, BOTH), -EINVAL);
	says("alternate path: path_mtu 3 (1024 bytes): MTU 600 of port 2 carries 512");
	cr_assert_eq(karst_modify_qp(t.qp[0], &sqd, KARST_QP_STATE), 0, "%s", karst_why());
	to.ah_attr = to.alt_ah_attr;
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, KARST_QP_AV), -EINVAL);
	says("path_mtu 3 (1024 bytes): MTU 600 of port 2 carries 512");
	cr_assert_eq(lines, 0);
	cr_assert_eq(query(t.qp[0]).ah_attr.port_num, 1);
	ends_down(&t);
}

/* (G5): the port of an alternate path is removed. */
Test(client_path, g5_port_is_gone)
{
	struct karst_async_event e;
	struct karst_qp_attr to;
	struct ends t;

	ends_up(&t);
	to = alternate(&t, 2);
	cr_assert_eq(karst_modify_qp(t.qp[0], &to, BOTH), 0, "%s", karst_why());
	cr_assert_eq(karst_engine_port_lose(t.b.e, 1), 0);
	do {
		cr_assert_eq(karst_get_async_event(t.b.ctx, &e), 0, "%s", karst_why());
		karst_ack_async_event(&e);
	} while (e.event == KARST_EVENT_COMM_EST);
	cr_assert_eq(e.event, KARST_EVENT_PATH_MIG_ERR, "event %d", e.event);
	cr_assert_eq(e.element.qp, t.qp[0]);
	cr_assert_eq(query(t.qp[0]).alt_port_num, 0);
	cr_assert_eq(query(t.qp[0]).path_mig_state, KARST_MIG_MIGRATED);
	ends_down(&t);
}

/* --- paths that are sought --- */

/* More calls than can return between the end of the search and its being noticed. */
#define CALLS_MEANWHILE 20u

struct search {
	struct client_bed b;
	struct karst_qp *qp; /* NULL: for an address handle */
	_Atomic pid_t tid;
	atomic_bool over;
	int ret;
};

/* Looks for an address that nobody has. */
static void *
look_for_nobody(void *arg)
{
	struct karst_qp_attr a = {.qp_state = KARST_QPS_RTR,
		.ah_attr = {.port_num = 1, .dgid.raw = {[10] = 0xff, 0xff, 10, 0, 0, 77}},
		.path_mtu = KARST_MTU_1024,
		.dest_qp_num = 17,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1};
	struct search *s = arg;
	struct karst_ah *ah;

	atomic_store(&s->tid, gettid());
	s->ret = s->qp == NULL
		? karst_create_ah(s->b.pd, &a.ah_attr, &ah)
		: karst_modify_qp(s->qp, &a,
			  KARST_QP_STATE | KARST_QP_AV | KARST_QP_PATH_MTU | KARST_QP_DEST_QPN |
				  KARST_QP_RQ_PSN | KARST_QP_MAX_DEST_RD_ATOMIC |
				  KARST_QP_MIN_RNR_TIMER);
	if (s->ret == -EHOSTUNREACH)
		says("10.0.0.77");
	atomic_store(&s->over, true);
	return NULL;
}

static void
others_meanwhile(bool of_qp)
{
	struct karst_comp_channel *ch;
	struct karst_cq *cq, *of;
	struct search s = {.tid = 0};
	uint32_t n = 0;
	pthread_t t;

	client_bed_up(&s.b, &(struct client_bed_config){.lcores = 1});
	cr_assert_eq(karst_create_comp_channel(s.b.ctx, &ch), 0);
	cr_assert_eq(karst_create_cq(s.b.ctx, 4, NULL, ch, &cq), 0);
	s.qp = of_qp ? client_bed_qp(&s.b, KARST_QPT_RC) : NULL;
	if (of_qp)
		cr_assert_eq(client_bed_to(s.qp, KARST_QPS_INIT, 1, 0), 0);
	cr_assert_eq(pthread_create(&t, NULL, look_for_nobody, &s), 0);
	while (atomic_load(&s.tid) == 0 ||
		!client_bed_in_syscall(atomic_load(&s.tid), SYS_clock_nanosleep))
		client_bed_pause();
	/* as ibv_req_notify_cq() does it */
	for (; !atomic_load(&s.over); n++) {
		cr_assert_eq(karst_req_notify_cq(cq, false), 0);
		cr_assert_eq(karst_raise_cq_event(cq), 0, "%s", karst_why());
		cr_assert_eq(karst_get_cq_event(ch, &of, NULL), 0);
		karst_ack_cq_events(of, 1);
	}
	cr_assert_gt(n, CALLS_MEANWHILE, "%u calls", n);
	pthread_join(t, NULL);
	cr_assert_eq(s.ret, -EHOSTUNREACH);
	if (of_qp)
		cr_assert_eq(karst_destroy_qp(s.qp), 0);
	cr_assert_eq(karst_destroy_cq(cq), 0);
	cr_assert_eq(karst_destroy_comp_channel(ch), 0);
	client_bed_down(&s.b);
}

/* While one thread of a program waits for the path to a peer that is gone, others do not wait for
 * that thread. */
Test(client_path, others_while_a_queue_pair_looks)
{
	others_meanwhile(true);
}

Test(client_path, others_while_an_address_handle_looks)
{
	others_meanwhile(false);
}

/* A program that embeds the engine and polls the lcores by the thread that looks for the peer: the
 * lcores take their turns meanwhile, so that the peer's answer and other traffic arrive. */
Test(client_path, who_looks_polls_its_own_lcores)
{
	struct karst_ah_attr attr = {.port_num = 1};
	static uint8_t mem[2 * BYTES];
	struct karst_qp *a, *z;
	struct client_bed b;
	struct karst_mr *mr;
	struct karst_cqe e;
	struct karst_ah *ah;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1, .alone = true});
	client_bed_turn(&b);
	cr_assert_eq(karst_query_gid(b.ctx, 2, 0, &attr.dgid), 0);
	cr_assert_eq(karst_create_ah(b.pd, &attr, &ah), 0, "%s", karst_why());
	cr_assert_eq(karst_destroy_ah(ah), 0);
	a = client_bed_qp(&b, KARST_QPT_RC);
	z = client_bed_qp(&b, KARST_QPT_RC);
	client_bed_connect(a, z);
	mr = client_bed_mr(&b, mem, sizeof(mem));
	memset(mem, 7, BYTES);
	cr_assert_eq(client_bed_post(a, KARST_WR_RDMA_WRITE, 1, mr, 0, BYTES, mr, BYTES), 0);
	cr_assert_eq(karst_poll_cq(b.cq, 1, &e), 0);
	attr.dgid.raw[15] = 77; /* nobody has it */
	cr_assert_eq(karst_create_ah(b.pd, &attr, &ah), -EHOSTUNREACH);
	cr_assert_eq(karst_poll_cq(b.cq, 1, &e), 1, "the lcore stood still");
	cr_assert_eq(e.status, KARST_WC_SUCCESS);
	cr_assert_eq(mem[2 * BYTES - 1], 7);
	cr_assert_eq(karst_dereg_mr(mr), 0);
	cr_assert_eq(karst_destroy_qp(a), 0);
	cr_assert_eq(karst_destroy_qp(z), 0);
	client_bed_down(&b);
}

/* An engine of before NO_WAIT refuses what it does not know. */
static int
call_of_old(void *user, const void *req, size_t len, const int *fds, unsigned int nfds, void *rsp,
	size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds)
{
	const struct karst_ctl_hdr *h = req;
	const struct karst_ctl_create_ah_req *ah = (const void *)(h + 1);
	const struct karst_ctl_modify_qp_req *qp = (const void *)(h + 1);
	const struct karst_ctl_conn *conn = user;
	int ret = 0;

	if (h->op == KARST_CTL_CREATE_AH && ah->no_wait != 0)
		ret = -EPROTO;
	if (h->op == KARST_CTL_MODIFY_QP && (qp->mask & KARST_CTL_QP_NO_WAIT) != 0)
		ret = -EINVAL;
	if (ret == 0)
		return conn->call(conn->user, req, len, fds, nfds, rsp, rsp_len, rsp_fds, nrsp_fds);
	*nrsp_fds = 0;
	*rsp_len = karst_ctl_refuse(req, len, ret, "not known", rsp);
	return 0;
}

static void
close_of_old(void *user)
{
	const struct karst_ctl_conn *conn = user;

	conn->close(conn->user);
}

struct counted {
	struct karst_ctl_conn conn;
	unsigned int modifies, ahs;
};

static int
call_counted(void *user, const void *req, size_t len, const int *fds, unsigned int nfds, void *rsp,
	size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds)
{
	const struct karst_ctl_hdr *h = req;
	struct counted *n = user;

	n->modifies += h->op == KARST_CTL_MODIFY_QP;
	n->ahs += h->op == KARST_CTL_CREATE_AH;
	return n->conn.call(n->conn.user, req, len, fds, nfds, rsp, rsp_len, rsp_fds, nrsp_fds);
}

static void
close_counted(void *user)
{
	const struct counted *n = user;

	n->conn.close(n->conn.user);
}

/* A request with a path is refused: it is sent once, and @ahs requests for address handles are. */
static void
expect_refused(struct counted *n, struct karst_qp *qp, const char *why, unsigned int ahs)
{
	n->modifies = n->ahs = 0;
	cr_assert_eq(client_bed_to(qp, KARST_QPS_RTR, 1, 17), -EINVAL);
	says(why);
	cr_expect_eq(n->modifies, 1, "%u requests", n->modifies);
	cr_expect_eq(n->ahs, ahs, "%u requests for an address handle", n->ahs);
}

Test(client_path, engines_without_no_wait)
{
	struct counted n = {.modifies = 0};
	struct karst_ctl_conn session,
		conn = {.call = call_counted, .close = close_counted, .user = &n, .hup_fd = -1};
	struct karst_ah_attr attr = {.port_num = 1};
	struct karst_qp_init_attr init;
	struct karst_context *ctx;
	struct karst_ah *ah = NULL;
	struct client_bed b, o;
	struct karst_qp *qp;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	cr_assert_eq(karst_session_conn(b.e, NULL, &session), 0);
	n.conn = (struct karst_ctl_conn){
		.call = call_of_old, .close = close_of_old, .user = &session, .hup_fd = -1};
	cr_assert_eq(karst_open_conn(&conn, NULL, &ctx), 0, "%s", karst_why());
	cr_assert_eq(karst_alloc_pd(ctx, &o.pd), 0);
	cr_assert_eq(karst_create_cq(ctx, 16, NULL, NULL, &o.cq), 0);
	init = client_bed_init(&o, KARST_QPT_RC);
	cr_assert_eq(karst_query_gid(ctx, 2, 0, &attr.dgid), 0);
	cr_assert_eq(karst_create_ah(o.pd, &attr, &ah), 0, "%s", karst_why());
	cr_assert_eq(karst_create_qp(o.pd, &init, &qp), 0, "%s", karst_why());
	cr_assert_eq(client_bed_to(qp, KARST_QPS_INIT, 1, 0), 0, "%s", karst_why());
	cr_assert_eq(client_bed_to(qp, KARST_QPS_RTR, 1, 17), 0, "%s", karst_why());
	expect_refused(&n, qp, "RTR to RTR", 0);
	cr_assert_eq(karst_destroy_qp(qp), 0);
	cr_assert_eq(karst_destroy_ah(ah), 0);
	cr_assert_eq(karst_destroy_cq(o.cq), 0);
	cr_assert_eq(karst_dealloc_pd(o.pd), 0);
	cr_assert_eq(karst_close(ctx), 0);
	client_bed_down(&b);
}

/* A request that is refused is sent once.  If the engine has not shown yet whether it knows
 * NO_WAIT, it is asked for that. */
Test(client_path, refused_once)
{
	struct counted n = {.modifies = 0};
	struct karst_ctl_conn conn = {
		.call = call_counted, .close = close_counted, .user = &n, .hup_fd = -1};
	struct karst_qp_init_attr init;
	struct karst_context *ctx;
	struct client_bed b, o;
	struct karst_qp *qp;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	cr_assert_eq(karst_session_conn(b.e, NULL, &n.conn), 0);
	cr_assert_eq(karst_open_conn(&conn, NULL, &ctx), 0, "%s", karst_why());
	cr_assert_eq(karst_alloc_pd(ctx, &o.pd), 0);
	cr_assert_eq(karst_create_cq(ctx, 16, NULL, NULL, &o.cq), 0);
	init = client_bed_init(&o, KARST_QPT_RC);
	cr_assert_eq(karst_create_qp(o.pd, &init, &qp), 0, "%s", karst_why());
	/* without a path */
	cr_assert_eq(client_bed_to(qp, KARST_QPS_RTS, 1, 17), -EINVAL);
	cr_assert_eq(n.modifies, 1, "%u requests", n.modifies);
	/* with a path: the engine is asked for NO_WAIT once */
	expect_refused(&n, qp, "RESET to RTR", 1);
	expect_refused(&n, qp, "RESET to RTR", 0);
	cr_assert_eq(client_bed_to(qp, KARST_QPS_INIT, 1, 0), 0, "%s", karst_why());
	cr_assert_eq(client_bed_to(qp, KARST_QPS_RTR, 1, 17), 0, "%s", karst_why());
	expect_refused(&n, qp, "RTR to RTR", 0);
	cr_assert_eq(karst_destroy_qp(qp), 0);
	cr_assert_eq(karst_destroy_cq(o.cq), 0);
	cr_assert_eq(karst_dealloc_pd(o.pd), 0);
	cr_assert_eq(karst_close(ctx), 0);
	client_bed_down(&b);
}
