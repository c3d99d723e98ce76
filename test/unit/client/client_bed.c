/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "client_bed.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <rte_eal.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_ring.h>

#include "../idle.h"
#include "karst_ctl_sock.h"
#include "karst_engine.h"

/* --- the engine --- */

static int
make_ports(struct karst_engine *e, uint32_t lcores)
{
	struct rte_ring *ring[2][4];
	unsigned int side, q;
	char name[32];

	for (side = 0; side < 2; side++) {
		for (q = 0; q < lcores; q++) {
			snprintf(name, sizeof(name), "wire%u_%u", side, q);
			ring[side][q] = rte_ring_create(name, 1024, 0, RING_F_EXACT_SZ);
			if (ring[side][q] == NULL)
				return -1;
		}
	}
	for (side = 0; side < 2; side++) {
		struct karst_engine_addr addr = karst_engine_addr_ip4(0x0a000001 + side);
		struct karst_engine_port_config port = {
			.mac = {2, 0, 0, 0, 0, (uint8_t)(side + 1)},
			.num_addrs = 1,
			.addrs = &addr,
		};
		uint8_t number;
		int id;

		snprintf(name, sizeof(name), "side%u", side);
		id = rte_eth_from_rings(name, ring[1 - side], lcores, ring[side], lcores, 0);
		if (id < 0)
			return -1;
		port.ethdev = (uint16_t)id;
		if (karst_engine_port_add(e, &port, &number) != 0)
			return -1;
	}
	return 0;
}

static struct karst_engine *
make_engine(const struct client_bed_config *bed)
{
	char *argv[] = {(char *)"bed", (char *)"--no-huge", (char *)"--no-shconf",
		(char *)"--no-pci", (char *)"-m", (char *)"64", (char *)"--log-level=4",
		(char *)"--lcores", (char *)"(0-2)@(0-1)", (char *)"--no-telemetry"};
	struct karst_engine_config cfg = {.name = "bed",
		.lcores = bed->lcores,
		.max_qps = 64,
		.max_cm_ids = bed->max_cm_ids,
		.ece = bed->ece};
	struct karst_engine *e;

	if (rte_eal_init(KARST_DIM(argv), argv) < 0 || karst_engine_create(&cfg, &e) != 0 ||
		make_ports(e, bed->lcores) != 0)
		return NULL;
	return e;
}

static unsigned int
turn(struct karst_engine *e)
{
	unsigned int n = 0;
	uint32_t i;

	for (i = 0; i < karst_engine_config(e)->lcores; i++)
		n += karst_engine_poll(e, i);
	return n;
}

static void
bind_to_last(void)
{
	int cpu, last = 0;
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		abort();
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &set))
			last = cpu;
	CPU_ZERO(&set);
	CPU_SET(last, &set);
	if (sched_setaffinity(0, sizeof(set), &set) != 0)
		abort();
}

void
client_bed_turn(struct client_bed *b)
{
	turn(b->e);
}

static void
release_all(struct client_bed *b)
{
	uint32_t i;

	for (i = 0; i < karst_engine_config(b->e)->lcores; i++)
		karst_engine_release(b->e, i);
}

static void *
poller(void *arg)
{
	struct client_bed *b = arg;
	unsigned int idle = 0;

	if (b->bound)
		bind_to_last();
	while (!atomic_load(&b->stop)) {
		idle_after(&idle, turn(b->e) != 0);
		atomic_store(&b->at_work, true);
	}
	release_all(b);
	return NULL;
}

static void
start_poller(struct client_bed *b)
{
	atomic_store(&b->stop, false);
	atomic_store(&b->at_work, false);
	cr_assert_eq(pthread_create(&b->poller, NULL, poller, b), 0);
	while (!atomic_load(&b->at_work))
		sched_yield();
}

/* --- contexts --- */

struct karst_context *
client_bed_open(struct client_bed *b)
{
	struct karst_context *ctx = NULL;
	struct karst_ctl_conn conn;

	cr_assert_eq(karst_session_conn(b->e, NULL, &conn), 0);
	cr_assert_eq(karst_open_conn(&conn, NULL, &ctx), 0, "%s", karst_why());
	return ctx;
}

static void
first_objects(struct client_bed *b)
{
	cr_assert_eq(karst_alloc_pd(b->ctx, &b->pd), 0, "%s", karst_why());
	cr_assert_eq(karst_create_cq(b->ctx, 1024, NULL, NULL, &b->cq), 0, "%s", karst_why());
}

static void
up_here(struct client_bed *b, const struct client_bed_config *cfg)
{
	b->e = make_engine(cfg);
	cr_assert_not_null(b->e);
	if (!b->alone)
		start_poller(b);
	b->ctx = client_bed_open(b);
	first_objects(b);
}

void
client_bed_down(struct client_bed *b)
{
	cr_assert_eq(karst_destroy_cq(b->cq), 0, "%s", karst_why());
	cr_assert_eq(karst_dealloc_pd(b->pd), 0, "%s", karst_why());
	cr_assert_eq(karst_close(b->ctx), 0, "%s", karst_why());
	if (b->e == NULL)
		return;
	atomic_store(&b->stop, true);
	if (b->alone)
		release_all(b);
	else
		pthread_join(b->poller, NULL);
	cr_assert_eq(karst_engine_destroy(b->e), 0);
}

/* --- an engine in a child process --- */

struct forked_engine {
	struct karst_engine *e;
	int fd;
};

static int
handle(void *user, const void *req, size_t len, const int *fds, unsigned int nfds, void *rsp,
	size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds)
{
	return karst_session_handle(user, req, len, fds, nfds, rsp, rsp_len, rsp_fds, nrsp_fds);
}

/* The thread that answers requests; the engine ends with its only program. */
static void *
serve(void *arg)
{
	const struct forked_engine *a = arg;
	pid_t peer = getppid();
	struct karst_session_init init = {.program = "test",
		.pid = peer,
		.pidfd = (int)syscall(SYS_pidfd_open, peer, 0),
		.uid = getuid(),
		.gid = getgid()};
	struct karst_ctl_server server = {.handle = handle, .attend_fd = -1};
	struct karst_session *s;

	if (karst_session_create(a->e, &init, &s) != 0)
		_exit(3);
	server.user = s;
	karst_ctl_serve(a->fd, &server);
	karst_session_destroy(s);
	_exit(0);
}

static void
child_main(int fd, const struct client_bed_config *cfg)
{
	struct forked_engine a = {.fd = fd};
	unsigned int idle = 0;
	pthread_t t;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	a.e = make_engine(cfg);
	if (a.e == NULL || pthread_create(&t, NULL, serve, &a) != 0)
		_exit(2);
	for (;;)
		idle_after(&idle, turn(a.e) != 0);
}

static void
up_forked(struct client_bed *b, const struct client_bed_config *cfg)
{
	struct karst_ctl_conn conn;
	int fd[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd), 0);
	b->child = fork();
	cr_assert_geq(b->child, 0);
	if (b->child == 0) {
		close(fd[0]);
		child_main(fd[1], cfg);
	}
	close(fd[1]);
	cr_assert_eq(karst_ctl_socket_conn(fd[0], &conn), 0);
	cr_assert_eq(karst_open_conn(&conn, NULL, &b->ctx), 0, "%s", karst_why());
	first_objects(b);
}

struct client_bed *
client_bed_up(struct client_bed *bed, const struct client_bed_config *cfg)
{
	memset(bed, 0, sizeof(*bed));
	bed->bound = cfg->bound;
	bed->alone = cfg->alone;
	if (cfg->forked)
		up_forked(bed, cfg);
	else
		up_here(bed, cfg);
	return bed;
}

void
client_bed_kill(struct client_bed *b)
{
	cr_assert_eq(kill(b->child, SIGKILL), 0);
	cr_assert_eq(waitpid(b->child, NULL, 0), b->child);
}

bool
client_bed_in_syscall(pid_t tid, long number)
{
	char path[64], word[32] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)tid);
	f = fopen(path, "r");
	if (f == NULL) /* the process has ended */
		return false;
	if (fscanf(f, "%31s", word) != 1)
		word[0] = '-';
	fclose(f);
	return word[0] >= '0' && word[0] <= '9' && atol(word) == number;
}

/* --- objects --- */

struct karst_qp_init_attr
client_bed_init(struct client_bed *b, enum karst_qp_type type)
{
	return (struct karst_qp_init_attr){
		.qp_type = type,
		.send_cq = b->cq,
		.recv_cq = b->cq,
		.cap = {.max_send_wr = 16,
			.max_recv_wr = 16,
			.max_send_sge = 4,
			.max_recv_sge = 4,
			.max_inline_data = 64},
	};
}

struct karst_qp *
client_bed_qp(struct client_bed *b, enum karst_qp_type type)
{
	struct karst_qp_init_attr init = client_bed_init(b, type);
	struct karst_qp *qp = NULL;

	cr_assert_eq(karst_create_qp(b->pd, &init, &qp), 0, "%s", karst_why());
	return qp;
}

static unsigned int
attr_init(struct karst_qp_attr *a, enum karst_qp_type type, uint32_t port)
{
	a->port_num = (uint8_t)port;
	a->qp_access_flags = KARST_ACCESS_REMOTE;
	a->qkey = 0x1234;
	return KARST_QP_PKEY_INDEX | KARST_QP_PORT |
		(type == KARST_QPT_UD ? KARST_QP_QKEY : KARST_QP_ACCESS_FLAGS);
}

static unsigned int
attr_rtr(struct karst_qp *qp, struct karst_qp_attr *a, uint32_t port, uint32_t peer)
{
	unsigned int mask = KARST_QP_AV | KARST_QP_PATH_MTU | KARST_QP_DEST_QPN | KARST_QP_RQ_PSN;

	if (qp->qp_type == KARST_QPT_UD)
		return 0;
	a->ah_attr.port_num = (uint8_t)port;
	cr_assert_eq(
		karst_query_gid(qp->context, 3 - port, 0, &a->ah_attr.dgid), 0, "%s", karst_why());
	a->path_mtu = KARST_MTU_1024;
	a->dest_qp_num = peer;
	a->rq_psn = 100;
	if (qp->qp_type == KARST_QPT_RC || qp->qp_type == KARST_QPT_XRC_RECV) {
		a->max_dest_rd_atomic = 4;
		a->min_rnr_timer = 1;
		mask |= KARST_QP_MAX_DEST_RD_ATOMIC | KARST_QP_MIN_RNR_TIMER;
	}
	return mask;
}

static unsigned int
attr_rts(struct karst_qp *qp, struct karst_qp_attr *a)
{
	a->sq_psn = 100;
	a->timeout = 17; /* half a second: the thread that answers may get no processor for a
			  * while */
	if (qp->qp_type == KARST_QPT_XRC_RECV)
		return KARST_QP_SQ_PSN | KARST_QP_TIMEOUT;
	if (qp->qp_type != KARST_QPT_RC && qp->qp_type != KARST_QPT_XRC_SEND)
		return KARST_QP_SQ_PSN;
	a->retry_cnt = 7;
	a->rnr_retry = 7;
	a->max_rd_atomic = 4;
	return KARST_QP_SQ_PSN | KARST_QP_TIMEOUT | KARST_QP_RETRY_CNT | KARST_QP_RNR_RETRY |
		KARST_QP_MAX_QP_RD_ATOMIC;
}

int
client_bed_to(struct karst_qp *qp, enum karst_qp_state to, uint32_t port, uint32_t peer)
{
	struct karst_qp_attr a = {.qp_state = to};
	unsigned int mask = KARST_QP_STATE;

	if (to == KARST_QPS_INIT)
		mask |= attr_init(&a, qp->qp_type, port);
	else if (to == KARST_QPS_RTR)
		mask |= attr_rtr(qp, &a, port, peer);
	else if (to == KARST_QPS_RTS)
		mask |= attr_rts(qp, &a);
	return karst_modify_qp(qp, &a, mask);
}

void
client_bed_connect(struct karst_qp *a, struct karst_qp *b)
{
	enum karst_qp_state to;

	for (to = KARST_QPS_INIT; to <= KARST_QPS_RTS; to++) {
		cr_assert_eq(client_bed_to(a, to, 1, b->qp_num), 0, "%s", karst_why());
		cr_assert_eq(client_bed_to(b, to, 2, a->qp_num), 0, "%s", karst_why());
	}
}

struct karst_mr *
client_bed_mr(struct client_bed *b, void *mem, size_t len)
{
	struct karst_mr *mr = NULL;

	cr_assert_eq(
		karst_reg_mr(b->pd, mem, len,
			KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE | KARST_ACCESS_MW_BIND, &mr),
		0, "%s", karst_why());
	return mr;
}

/* --- completions --- */

static uint64_t
now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

struct karst_cqe
client_bed_wait(struct karst_cq *cq)
{
	uint64_t until = now_ms() + BED_PATIENCE_MS;
	unsigned int idle = 0;
	struct karst_cqe e;
	int n;

	do {
		n = karst_poll_cq(cq, 1, &e);
		if (n == 0)
			idle_after(&idle, false);
	} while (n == 0 && now_ms() < until);
	cr_assert_eq(n, 1, "no completion: %d %s", n, karst_why());
	return e;
}

void
client_bed_pause(void)
{
	static unsigned int calls; /* calls in this process, which runs one test only */

	cr_assert_lt(++calls, BED_PATIENCE_MS * 10);
	usleep(100);
}

void
client_bed_nothing(struct karst_cq *cq)
{
	struct karst_cqe e;
	unsigned int i;

	for (i = 0; i < 1000; i++) {
		cr_assert_eq(karst_poll_cq(cq, 1, &e), 0, "completion of %llu",
			(unsigned long long)e.wr_id);
		sched_yield();
	}
}

int
client_bed_post(struct karst_qp *qp, enum karst_wr_opcode op, uint64_t wr_id, struct karst_mr *mr,
	size_t off, uint32_t len, struct karst_mr *remote, size_t remote_off)
{
	struct karst_sge sge = {.addr = mr->iova + off, .len = len, .lkey = mr->lkey};
	struct karst_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = op,
		.send_flags = KARST_SEND_SIGNALED,
	};

	if (remote != NULL) {
		wr.rdma.remote_addr = remote->iova + remote_off;
		wr.rdma.rkey = remote->rkey;
	}
	return karst_post_send(qp, &wr, NULL);
}

int
client_bed_recv(struct karst_qp *qp, uint64_t wr_id, struct karst_mr *mr, size_t off, uint32_t len)
{
	struct karst_sge sge = {.addr = mr->iova + off, .len = len, .lkey = mr->lkey};
	struct karst_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1};

	return karst_post_recv(qp, &wr, NULL);
}
