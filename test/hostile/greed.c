/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A user takes as much as possible of everything, with as many programs as can attach, and goes on
 * trying.  The user also fills the socket with connections that never read their refusal, and sends
 * to queue pair 1 like a connection manager.  A second user, who comes later, must get what they
 * need.  The innocents are root's.
 *
 * What each may have follows from the rule of lib/engine/util/share.h, and telemetry confirms it.
 */
#include "hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define GREEDY_UID    65533u
#define MODEST_UID    65534u
#define MOST_PROGRAMS 256u
#define GSI_QPN       1u
#define GSI_QKEY      0x80010000u
/* How much of each thing the modest user needs. */
#define MODEST_NEED 32u

/* Becomes a user without any rights, in a child process. */
static void
become(struct report *r, uid_t uid)
{
	/* a process that has changed its user becomes undumpable, and others may not look into it,
	 * unless it sets the flag again */
	if (setgroups(0, NULL) != 0 || setresgid(uid, uid, uid) != 0 ||
		setresuid(uid, uid, uid) != 0 || prctl(PR_SET_DUMPABLE, 1) != 0 ||
		prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		child_fail(r, "becoming user %u: %s", uid, strerror(errno));
}

/* --- allocate one more of each thing --- */

static int
one_pd(struct end *e)
{
	struct karst_pd *pd;

	return karst_alloc_pd(e->ctx, &pd);
}

static int
one_qp(struct end *e)
{
	struct karst_qp_init_attr init = {.send_cq = e->cq,
		.recv_cq = e->cq,
		.qp_type = KARST_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1}};
	struct karst_qp *qp;

	return karst_create_qp(e->pd, &init, &qp);
}

static int
one_window(struct end *e)
{
	struct karst_mw *mw;

	return karst_alloc_mw(e->pd, KARST_MW_TYPE_2, &mw);
}

static int
one_ah(struct end *e)
{
	struct karst_ah_attr attr = {.port_num = 1};
	int ret = karst_query_gid(e->ctx, 1, 0, &attr.dgid);
	struct karst_ah *ah;

	return ret != 0 ? ret : karst_create_ah(e->pd, &attr, &ah);
}

static int
one_channel(struct end *e)
{
	struct karst_comp_channel *channel;

	return karst_create_comp_channel(e->ctx, &channel);
}

static int
one_xrcd(struct end *e)
{
	struct karst_xrcd *xrcd;

	return karst_open_xrcd(e->ctx, -1, O_CREAT, &xrcd);
}

/* Memory that the engine maps, and holds. */
static int
one_mr(struct end *e)
{
	void *mem = karst_alloc(1 << 20);
	struct karst_mr *mr;
	int ret;

	if (mem == NULL)
		return -ENOMEM;
	ret = karst_reg_mr(e->pd, mem, 1 << 20, KARST_ACCESS_LOCAL_WRITE, &mr);
	if (ret != 0)
		karst_free(mem);
	return ret;
}

/* A megabyte of ring memory, some of which the program may have already. */
static int
one_cq(struct end *e)
{
	struct karst_cq *cq;

	return karst_create_cq(e->ctx, 1 << 14, NULL, NULL, &cq);
}

static const struct {
	const char *what;
	int (*one)(struct end *e);
} things[] = {
	{"protection domains", one_pd},
	{"queue pairs", one_qp},
	{"regions", one_mr}, /* before the windows: both use keys */
	{"windows", one_window},
	{"address handles", one_ah},
	{"channels", one_channel},
	{"XRC domains", one_xrcd},
	{"completion queues", one_cq},
};

/* --- the greedy user --- */

/* Opens connections that neither send nor read: as many as the socket takes, and again when those
 * are closed. */
static void
crowd(const struct host *h, int *fd, uint32_t n)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct pollfd p = {.events = POLLIN};
	uint32_t i;

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", h->sock);
	for (i = 0; i < n; i++) {
		p.fd = fd[i];
		if (fd[i] > 0 && poll(&p, 1, 0) == 1 && (p.revents & POLLHUP)) {
			close(fd[i]);
			fd[i] = 0;
		}
		if (fd[i] > 0)
			continue;
		fd[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (connect(fd[i], (struct sockaddr *)&addr, sizeof(addr)) != 0) {
			close(fd[i]);
			fd[i] = 0;
		}
	}
}

/* Repeats until it is refused, which must be because the limit is reached, and with a reason. */
static void
take(struct report *r, struct end *e, size_t i)
{
	int ret;

	while ((ret = things[i].one(e)) == 0)
		atomic_fetch_add(&r->ops, 1);
	if ((ret != -ENOSPC && ret != -ENOMEM) || karst_why()[0] == '\0')
		child_fail(r, "too many %s: %s: %s", things[i].what, strerror(-ret), karst_why());
}

/* Q_Keys of the connection manager are refused, and a datagram that is posted with one is sent with
 * another. */
static void
speak_as_manager(struct report *r, struct end *e)
{
	struct karst_qp_attr a = {.qp_state = KARST_QPS_INIT, .port_num = 1, .qkey = GSI_QKEY};
	const unsigned int to_init =
		KARST_QP_STATE | KARST_QP_PKEY_INDEX | KARST_QP_PORT | KARST_QP_QKEY;
	struct karst_sge sge = {.addr = (uintptr_t)e->mem, .len = 256, .lkey = e->mr->lkey};
	struct karst_ah_attr where = {.port_num = 1};
	struct karst_send_wr wr = {.sg_list = &sge,
		.num_sge = 1,
		.opcode = KARST_WR_SEND,
		.send_flags = KARST_SEND_SIGNALED,
		.ud = {.remote_qpn = GSI_QPN, .remote_qkey = GSI_QKEY}};
	struct karst_cqe cqe;
	struct karst_ah *ah;
	int ret, i;

	if (end_qp(e, KARST_QPT_UD) != 0)
		child_fail(r, "a UD queue pair: %s", karst_why());
	ret = karst_modify_qp(e->qp, &a, to_init);
	if (ret != -EPERM)
		child_fail(r, "INIT with Q_Key 0x%x: %d: %s", GSI_QKEY, ret, karst_why());
	if (end_connect(e, 0) != 0)
		child_fail(r, "a UD queue pair to RTS: %s", karst_why());
	ret = karst_modify_qp(e->qp, &a, KARST_QP_QKEY);
	if (ret != -EPERM)
		child_fail(r, "Q_Key 0x%x in RTS: %d: %s", GSI_QKEY, ret, karst_why());
	ret = karst_query_gid(e->ctx, 1, 0, &where.dgid);
	if (ret != 0 || karst_create_ah(e->pd, &where, &ah) != 0)
		child_fail(r, "an address handle: %s", karst_why());
	wr.ud.ah = ah;
	for (i = 0; i < 16; i++) {
		if (karst_post_send(e->qp, &wr, NULL) != 0)
			child_fail(r, "posting: %s", karst_why());
		while ((ret = karst_poll_cq(e->cq, 1, &cqe)) == 0)
			await_completions();
		if (ret != 1 || cqe.status != KARST_WC_SUCCESS)
			child_fail(r, "a datagram to queue pair 1: %d", ret);
	}
}

static void
greedy(struct report *r, void *arg)
{
	static struct end e[MOST_PROGRAMS];
	static int silent[300];
	struct karst_context *ctx;
	uint32_t n = 0, i, k;
	int ret;

	become(r, GREEDY_UID);
	/* a program that gets no processor for two seconds is too late to read why it was not
	 * admitted */
	while (n < MOST_PROGRAMS &&
		((ret = end_open(&e[n], arg, "greedy", 4096, n % 2)) == 0 || ret == -EIO))
		n += ret == 0;
	if (n == MOST_PROGRAMS || ret != -EUSERS || strstr(karst_why(), "share") == NULL)
		child_fail(r, "%u attachments: %d: %s", n, ret, karst_why());
	speak_as_manager(r, &e[0]);
	for (k = 0; k < KARST_DIM(things); k++)
		for (i = 0; i < n; i++)
			take(r, &e[i], k);
	r->qpn[0] = n;
	atomic_store(&r->ready, true);
	/* and whatever others free; as fast as possible */
	for (i = 0; !atomic_load(&r->stop); i++) {
		take(r, &e[i % n], i / n % KARST_DIM(things));
		atomic_fetch_add(&r->ops, 1);
		crowd(arg, silent, KARST_DIM(silent));
		if (i % 16 == 0 && karst_open(((struct host *)arg)->sock, NULL, &ctx) == 0)
			karst_abandon(ctx);
	}
}

void
attack_greed(struct report *r, void *arg)
{
	const struct attack_start *s = arg;

	greedy(r, (void *)(uintptr_t)s->host);
}

/* --- the modest user --- */

/* Takes what this user needs, of everything, and sends a byte from one of the user's programs to
 * the other. */
static void
modest(struct report *r, void *arg)
{
	struct karst_cqe cqe;
	struct end a, b;
	uint32_t i, k;
	int ret;

	become(r, MODEST_UID);
	if (end_open(&a, arg, "modest", 4096, false) != 0 ||
		end_open(&b, arg, "modest", 4096, true) != 0)
		child_fail(r, "attaching: %s", karst_why());
	if (end_qp(&a, KARST_QPT_RC) != 0 || end_qp(&b, KARST_QPT_RC) != 0 ||
		end_connect(&a, b.qp->qp_num) != 0 || end_connect(&b, a.qp->qp_num) != 0)
		child_fail(r, "queue pairs: %s", karst_why());
	for (k = 0; k + 1 < KARST_DIM(things); k++)
		for (i = 0; i < MODEST_NEED; i++)
			if (things[k].one(i % 2 ? &a : &b) != 0)
				child_fail(r, "%s, of which there are %u: %s", things[k].what, i,
					karst_why());
	a.mem[0] = 0x5a;
	if (end_post(&a, KARST_WR_RDMA_WRITE, 1, 0, 64, &b, 128) != 0)
		child_fail(r, "posting: %s", karst_why());
	while ((ret = karst_poll_cq(a.cq, 1, &cqe)) == 0)
		await_completions();
	if (ret != 1 || cqe.status != KARST_WC_SUCCESS || b.mem[128] != 0x5a)
		child_fail(r, "what was written did not come");
}

/* --- the case --- */

/* Checks the account of a user: at most three quarters of everything, and further requests
 * refused. */
static bool
judge(const struct host *h)
{
	static const struct {
		const char *what;
		long total;
	} most[] = {{"clients", 64}, {"qps", 1024}, {"keys", 2048}, {"pds", 1024}, {"ahs", 2048},
		/* the user's limit, not a share */
		{"held_bytes", ((64l << 20) + 3) / 3 * 4}};
	char user[64], refused[64];
	bool good = true;
	size_t i;

	snprintf(user, sizeof(user), "/karst/users,%s:%u", h->name, GREEDY_UID);
	for (i = 0; i < KARST_DIM(most); i++) {
		long n = host_ask(h, user, most[i].what), no;

		snprintf(refused, sizeof(refused), "refused_%s", most[i].what);
		no = host_ask(h, user, refused);
		note("the greedy user has %ld of %ld %s, and was refused more %ld times", n,
			most[i].total, most[i].what, no);
		if (n <= 0 || 4 * n > 3 * most[i].total || no <= 0)
			good = false;
	}
	note("he made %ld calls, of which %ld had to wait", host_ask(h, user, "calls"),
		host_ask(h, user, "calls_late"));
	/* 16 datagrams to queue pair 1 were sent with another Q_Key */
	if (host_ask(h, "/karst/drops", "qkey") != 16 ||
		host_ask(h, "/karst/counters", "rx_mads") != 0) {
		note("management datagrams of a program: %ld came, %ld were dropped",
			host_ask(h, "/karst/counters", "rx_mads"),
			host_ask(h, "/karst/drops", "qkey"));
		good = false;
	}
	return good;
}

/* Until karstd has cleaned up, what a user's programs had still counts for the user. */
static bool
is_gone(const struct host *h, uid_t uid)
{
	uint64_t until = now_ms() + HANG_S * 1000;
	char user[64];

	snprintf(user, sizeof(user), "/karst/users,%s:%u", h->name, uid);
	while (host_ask(h, user, "clients") > 0) {
		if (now_ms() > until) {
			note("programs of user %u do not go", uid);
			return false;
		}
		sleep_ms(5);
	}
	return true;
}

/* Waits until the greedy user has all that can be had. */
static bool
is_full(struct child *c)
{
	uint64_t until = now_ms() + HANG_S * 1000, ops = 0;

	while (!atomic_load(&c->report->ready)) {
		if (atomic_load(&c->report->ops) != ops)
			until = now_ms() + HANG_S * 1000;
		ops = atomic_load(&c->report->ops);
		if (!child_alive(c) || now_ms() > until) {
			note("the greedy user does not get full: %s", c->report->fault);
			return false;
		}
		sleep_ms(10);
	}
	note("the greedy user has %u attachments", c->report->qpn[0]);
	return true;
}

static bool
run(const struct options *o, struct host *h, struct innocents *in)
{
	uint64_t until = now_ms() + (o->seconds != 0 ? o->seconds : 1) * 1000;
	struct child bad, next;
	bool good;

	if (!child_start(&bad, greedy, h))
		return false;
	good = is_full(&bad);
	do {
		good = good && innocents_go_on(in);
		if (good && child_start(&next, modest, h))
			good = child_stop(&next, "the modest user") && is_gone(h, MODEST_UID);
	} while (good && now_ms() < until);
	good = good && judge(h);
	return child_stop(&bad, "the greedy user") && good;
}

bool
case_greed(const struct options *o)
{
	struct innocents in;
	struct usage before;
	struct host h;
	bool good;

	if (!host_up(&h, o->karstd))
		return false;
	if (!host_for_all(&h))
		return false;
	good = innocents_start(&in, &h, o->seed);
	sleep_ms(500);
	host_usage(&h, &before);
	good = good && run(o, &h, &in);
	/* tables that have grown stay */
	good &= host_settles(&h, &before, true);
	good &= innocents_stop(&in);
	return host_end(&h, good);
}
