/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "session_bed.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "karst_ctl_sock.h"

#define PATIENCE_NS 120000000000ull

struct client *
client_open_raw(struct karst_engine *e, const struct karst_session_limits *limits)
{
	struct client *c = calloc(1, sizeof(*c));

	cr_assert_eq(karst_session_conn(e, limits, &c->conn), 0);
	c->s = karst_session_of(&c->conn);
	c->async_fd = -1;
	return c;
}

/* Maps a chunk that is to be sealed, and confirms that to the engine. */
static void
map_chunk(struct client *c)
{
	uint32_t chunk;
	void *p;

	cr_assert_eq(
		CALL(c, GET_CHUNK, get_chunk, .chunk = KARST_CTL_CHUNK_UNSEALED), 0, "%s", c->why);
	cr_assert_eq(c->nfds, 1);
	chunk = RSP(c, get_chunk)->chunk;
	cr_assert_lt(chunk, CLIENT_CHUNKS);
	c->chunk_bytes[chunk] = RSP(c, get_chunk)->bytes;
	p = mmap(NULL, c->chunk_bytes[chunk], PROT_READ | PROT_WRITE, MAP_SHARED, c->fds[0], 0);
	cr_assert_neq(p, MAP_FAILED);
	close(c->fds[0]);
	c->nfds = 0;
	c->chunk[chunk] = p;
	cr_assert_eq(CALL(c, SEAL_CHUNK, seal_chunk, .chunk = chunk), 0, "%s", c->why);
}

static void
greet(struct client *c, int mem_fd)
{
	const struct karst_ctl_hello_req req = {.program = "test", .abi = KARST_RING_ABI};
	const struct karst_ctl_hello_rsp *rsp = RSP(c, hello);
	struct karst_ctl_hello_rsp hello;
	uint32_t i;

	cr_assert_eq(client_call_fds(c, KARST_CTL_HELLO, &req, sizeof(req), &mem_fd, mem_fd >= 0),
		0, "%s", c->why);
	c->nlcores = rsp->nlcores;
	c->number = rsp->client;
	c->bell_cells = rsp->bell_cells;
	cr_assert_eq(c->nfds, 1 + rsp->nlcores);
	c->async_fd = c->fds[0];
	karst_ctl_close_fds(c->fds + 1, c->nfds - 1);
	c->nfds = 0;
	hello = *rsp;
	c->maps = true;
	for (i = 0; i < hello.nchunks; i++)
		map_chunk(c);
	for (i = 0; i < c->nlcores; i++)
		c->bell[i] = client_at(c, &hello.bell[i]);
}

struct client *
client_open(struct karst_engine *e, const struct karst_session_limits *limits)
{
	struct client *c = client_open_raw(e, limits);

	greet(c, -1);
	return c;
}

static int
session_call(void *user, const void *req, size_t len, const int *fds, unsigned int nfds, void *rsp,
	size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds)
{
	return karst_session_handle(user, req, len, fds, nfds, rsp, rsp_len, rsp_fds, nrsp_fds);
}

static void
session_close(void *user)
{
	karst_session_destroy(user);
}

struct client *
client_over(struct karst_session *s, int mem_fd)
{
	struct client *c = calloc(1, sizeof(*c));

	c->s = s;
	c->conn = (struct karst_ctl_conn){
		.call = session_call, .close = session_close, .user = s, .hup_fd = -1};
	greet(c, mem_fd);
	return c;
}

struct client *
client_of_process(struct karst_engine *e, pid_t pid, int pidfd)
{
	struct karst_session_init init = {
		.program = "process", .pid = pid, .pidfd = pidfd, .uid = getuid(), .gid = getgid()};
	struct karst_session *s;
	struct client *c;
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	cr_assert_eq(karst_session_create(e, &init, &s), 0);
	c = client_over(s, fd);
	close(fd);
	return c;
}

void
client_free(struct client *c)
{
	uint32_t i;

	for (i = 0; i < CLIENT_CHUNKS; i++)
		if (c->chunk[i] != NULL)
			munmap(c->chunk[i], c->chunk_bytes[i]);
	if (c->async_fd >= 0)
		close(c->async_fd);
	free(c);
}

void
client_close(struct client *c)
{
	c->conn.close(c->conn.user);
	client_free(c);
}

static int
call_once(struct client *c, uint32_t op, const void *body, size_t bytes, const int *fds,
	unsigned int nfds)
{
	const struct karst_ctl_fault *fault = client_rsp(c);
	struct karst_ctl_hdr *h = (void *)c->req, *out = (void *)c->rsp;
	size_t rsp_len = 0, len = sizeof(*h) + bytes;
	char wrong[KARST_CTL_WHY];

	*h = (struct karst_ctl_hdr){.magic = KARST_CTL_MAGIC,
		.version = KARST_CTL_VERSION,
		.op = (uint16_t)op,
		.len = (uint32_t)len,
		.seq = out->seq + 1,
		.nfds = nfds};
	memcpy(h + 1, body, bytes);
	memset(c->rsp, 0xa5, sizeof(c->rsp));
	cr_assert_eq(
		c->conn.call(c->conn.user, h, len, fds, nfds, out, &rsp_len, c->fds, &c->nfds), 0);
	cr_assert_eq(karst_ctl_check_reply(h, out, rsp_len, c->nfds, wrong), 0, "%s", wrong);
	c->status = out->status;
	c->why[0] = 0;
	if (c->status < 0) {
		memcpy(c->why, fault->why, sizeof(c->why));
		cr_assert_neq(c->why[0], 0);
		cr_assert_eq(c->nfds, 0);
	}
	return c->status;
}

int
client_call_fds(struct client *c, uint32_t op, const void *body, size_t bytes, const int *fds,
	unsigned int nfds)
{
	int ret = call_once(c, op, body, bytes, fds, nfds);

	while (ret == -ENOBUFS && c->maps) {
		map_chunk(c);
		ret = call_once(c, op, body, bytes, fds, nfds);
	}
	return ret;
}

int
client_call(struct client *c, uint32_t op, const void *body, size_t bytes)
{
	return client_call_fds(c, op, body, bytes, NULL, 0);
}

void *
client_at(struct client *c, const struct karst_ctl_place *place)
{
	const struct karst_ctl_place at = *place; /* a copy, as *place may be in the reply buffer */

	cr_assert_lt(at.chunk, CLIENT_CHUNKS);
	cr_assert_not_null(c->chunk[at.chunk]);
	cr_assert_leq(at.off + at.len, c->chunk_bytes[at.chunk]);
	return c->chunk[at.chunk] + at.off;
}

uint32_t
client_pd(struct client *c)
{
	cr_assert_eq(CALL(c, ALLOC_PD, alloc_pd, .reserved = 0), 0, "%s", c->why);
	return RSP(c, alloc_pd)->pd;
}

uint32_t
client_mr(struct client *c, uint32_t pd, void *mem, size_t len)
{
	cr_assert_eq(CALL(c, REG_MR, reg_mr, .pd = pd,
			     .access = KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE |
				     KARST_ACCESS_MW_BIND,
			     .addr = (uintptr_t)mem, .len = len, .iova = (uintptr_t)mem),
		0, "%s", c->why);
	return RSP(c, reg_mr)->key;
}

void
client_cq(
	struct client *c, uint32_t entries, uint32_t channel, uint64_t cookie, struct client_cq *cq)
{
	struct karst_ctl_create_cq_rsp rsp;
	void *lanes;
	uint32_t i;

	cr_assert_eq(CALL(c, CREATE_CQ, create_cq, .entries = entries, .channel = channel,
			     .cookie = cookie),
		0, "%s", c->why);
	rsp = *RSP(c, create_cq);
	cq->handle = rsp.cq;
	cq->nlanes = rsp.nlanes;
	cr_assert_eq(rsp.place.len, sizeof(*cq->sh));
	cr_assert_eq(rsp.lanes.len, karst_cq_lanes_bytes(rsp.entries, rsp.nlanes, 0));
	cq->sh = client_at(c, &rsp.place);
	lanes = client_at(c, &rsp.lanes);
	for (i = 0; i < rsp.nlanes; i++)
		karst_cq_lane_attach(
			&cq->lane[i], karst_cq_lane(lanes, rsp.entries, 0, i), rsp.entries, 0);
}

unsigned int
client_poll(struct client_cq *cq, struct karst_cqe *cqe)
{
	const struct karst_cqe *at;
	uint32_t i;

	for (i = 0; i < cq->nlanes; i++) {
		if (karst_cq_lane_peek(&cq->lane[i], &at) == 0)
			continue;
		*cqe = *at;
		karst_cq_lane_take(&cq->lane[i], 1);
		return 1;
	}
	return 0;
}

void
client_qp(struct client *c, enum karst_qp_type type, uint32_t pd, const struct client_cq *cq,
	uint32_t srq, uint64_t cookie, struct client_qp *qp)
{
	struct karst_ctl_create_qp_rsp rsp;

	cr_assert_eq(CALL(c, CREATE_QP, create_qp, .type = type, .pd = pd, .send_cq = cq->handle,
			     .recv_cq = cq->handle, .srq = srq, .max_send_wr = 16,
			     .max_recv_wr = srq != 0 ? 0 : 16, .max_dest_rd_atomic = 16,
			     .lcore = UINT32_MAX, .cookie = cookie),
		0, "%s", c->why);
	rsp = *RSP(c, create_qp);
	qp->handle = rsp.qp;
	qp->num = rsp.qpn;
	qp->lcore = rsp.lcore;
	qp->bell = c->bell[rsp.lcore];
	qp->bell_mask = c->bell_cells - 1;
	cr_assert_eq(rsp.sq.len, karst_wq_bytes(rsp.max_send_wr, rsp.send_stride));
	karst_wq_attach(&qp->sq, client_at(c, &rsp.sq), rsp.max_send_wr, rsp.send_stride);
	cr_assert_eq(rsp.rq.len == 0, srq != 0);
	if (srq == 0)
		karst_wq_attach(&qp->rq, client_at(c, &rsp.rq), rsp.max_recv_wr, rsp.recv_stride);
}

int
client_step(struct client *c, const struct engine_bed *bed, const struct client_qp *qp, int side,
	uint32_t peer, enum karst_qp_state to)
{
	struct karst_ctl_modify_qp_req req = {.qp = qp->handle};
	struct karst_engine_port_info dst;
	struct karst_core_qp_attr a;

	req.mask = engine_bed_attr(bed, KARST_QPT_RC, side, peer, to, &a);
	cr_assert_eq(karst_engine_port_info(bed->e, bed->port[1 - side], &dst), 0);
	req.attr = (struct karst_ctl_qp_attr){
		.qp_state = a.qp_state,
		.path_mtu = a.path_mtu,
		.qkey = a.qkey,
		.rq_psn = a.rq_psn,
		.sq_psn = a.sq_psn,
		.dest_qpn = a.dest_qpn,
		.access_flags = a.access_flags,
		.max_rd_atomic = a.max_rd_atomic,
		.max_dest_rd_atomic = a.max_dest_rd_atomic,
		.min_rnr_timer = a.min_rnr_timer,
		.port_num = a.port_num,
		.timeout = a.timeout,
		.retry_cnt = a.retry_cnt,
		.rnr_retry = a.rnr_retry,
		.ah = {.port_num = (uint8_t)(bed->port[side] + 1), .hop_limit = 64},
	};
	memcpy(req.attr.ah.dgid, dst.addrs[0].ip, 16);
	return client_call(c, KARST_CTL_MODIFY_QP, &req, sizeof(req));
}

void
client_connect(const struct engine_bed *bed, struct client *ca, const struct client_qp *a,
	struct client *cb, const struct client_qp *b)
{
	enum karst_qp_state to;

	for (to = KARST_QPS_INIT; to <= KARST_QPS_RTS; to++) {
		cr_assert_eq(client_step(ca, bed, a, 0, b->num, to), 0, "%s", ca->why);
		cr_assert_eq(client_step(cb, bed, b, 1, a->num, to), 0, "%s", cb->why);
	}
}

void
client_post(struct client_qp *qp, enum karst_wr_opcode op, uint64_t wr_id, const void *local,
	uint32_t len, uint32_t lkey, uint64_t remote, uint32_t rkey)
{
	struct karst_send_wqe *w;

	cr_assert_geq(karst_wq_free(&qp->sq, 1), 1);
	w = karst_wq_slot(&qp->sq, 0);
	memset(w, 0, sizeof(*w));
	w->wr_id = wr_id;
	w->opcode = (uint8_t)op;
	w->flags = KARST_SEND_SIGNALED;
	w->num = 1;
	w->rdma.remote_addr = remote;
	w->rdma.rkey = rkey;
	w->sge[0] = (struct karst_sge){.addr = (uintptr_t)local, .len = len, .lkey = lkey};
	if (karst_wq_publish(&qp->sq, 1))
		cr_assert_eq(karst_bell_ring(qp->bell, qp->bell_mask, qp->num), 0);
}

void
client_post_recv(struct client_qp *qp, uint64_t wr_id, void *buf, uint32_t len, uint32_t lkey)
{
	struct karst_recv_wqe *w;

	cr_assert_geq(karst_wq_free(&qp->rq, 1), 1);
	w = karst_wq_slot(&qp->rq, 0);
	memset(w, 0, sizeof(*w));
	w->wr_id = wr_id;
	w->num_sge = 1;
	w->sge[0] = (struct karst_sge){.addr = (uintptr_t)buf, .len = len, .lkey = lkey};
	if (karst_wq_publish(&qp->rq, 1))
		cr_assert_eq(karst_bell_ring(qp->bell, qp->bell_mask, qp->num), 0);
}

bool
client_wait(struct engine_bed *bed, struct client_cq *cq, struct karst_cqe *cqe)
{
	uint64_t until = karst_engine_now_ns(bed->e) + PATIENCE_NS;
	uint64_t lcores;

	while (karst_engine_now_ns(bed->e) < until) {
		if (client_poll(cq, cqe) == 1)
			return true;
		for (lcores = bed->mine; lcores != 0; lcores &= lcores - 1)
			karst_engine_poll(bed->e, (uint32_t)__builtin_ctzll(lcores));
		if (bed->mine == 0)
			sched_yield();
	}
	return false;
}

struct karst_session_info
client_info(struct karst_engine *e, const struct client *c)
{
	struct karst_session_info infos[8];
	unsigned int i, n = karst_session_list(e, infos, 8);

	cr_assert_leq(n, 8);
	for (i = 0; i < n; i++)
		if (infos[i].client == c->number)
			return infos[i];
	cr_assert_fail("not in the list");
	return infos[0];
}
