/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Sessions at work: data between two of them, events, memory of another process, the end. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "engine_priv.h"
#include "session_bed.h"

#define BUF (64u << 10)

static uint8_t src[BUF], dst[BUF];

struct side {
	struct client *c;
	uint32_t pd;
	uint32_t key;
	int channel_fd;
	struct client_cq cq;
	struct client_qp qp;
};

static void
side_up(struct side *s, struct engine_bed *bed, void *mem, uint64_t cookie)
{
	uint32_t channel;

	s->c = client_open(bed->e, NULL);
	s->pd = client_pd(s->c);
	s->key = client_mr(s->c, s->pd, mem, BUF);
	cr_assert_eq(CALL(s->c, CREATE_CHANNEL, create_channel, .reserved = 0), 0);
	s->channel_fd = s->c->fds[0];
	channel = RSP(s->c, create_channel)->channel;
	client_cq(s->c, 64, channel, cookie, &s->cq);
	client_qp(s->c, KARST_QPT_RC, s->pd, &s->cq, 0, cookie + 1, &s->qp);
}

static void
side_down(struct side *s)
{
	close(s->channel_fd);
	client_close(s->c);
}

static void
sides_up(struct engine_bed *bed, const struct engine_bed_config *cfg, struct side side[2])
{
	engine_bed_up(bed, cfg);
	engine_bed_settle(bed);
	side_up(&side[0], bed, src, 100);
	side_up(&side[1], bed, dst, 200);
	client_connect(bed, side[0].c, &side[0].qp, side[1].c, &side[1].qp);
}

/* Two connected programs: one writes into the other's memory. */
Test(session_traffic, write)
{
	struct engine_bed_config cfg = {.engine.lcores = 2};
	struct side side[2];
	struct karst_cqe cqe;
	unsigned int i;
	struct engine_bed bed;

	sides_up(&bed, &cfg, side);
	for (i = 0; i < 50; i++) {
		engine_bed_fill(src, BUF, i);
		client_post(&side[0].qp, KARST_WR_RDMA_WRITE, i, src, BUF, side[0].key,
			(uintptr_t)dst, side[1].key);
		cr_assert(client_wait(&bed, &side[0].cq, &cqe));
		cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
		cr_assert_eq(cqe.wr_id, i);
		cr_assert_eq(memcmp(src, dst, BUF), 0);
	}
	/* the key of another session's region is not valid as a local key */
	client_post(&side[0].qp, KARST_WR_RDMA_WRITE, 99, src, 8, side[1].key, (uintptr_t)dst,
		side[1].key);
	cr_assert(client_wait(&bed, &side[0].cq, &cqe));
	cr_assert_eq(cqe.status, KARST_WC_LOC_PROT_ERR);
	side_down(&side[0]);
	side_down(&side[1]);
	engine_bed_down(&bed);
}

static bool
readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

/* Events: one each time the queue is armed, with its cookie, in the channel's stream. */
Test(session_traffic, completion_events)
{
	struct engine_bed_config cfg = {0};
	struct side side[2];
	struct karst_cqe cqe;
	uint64_t cookie;
	unsigned int i;
	struct engine_bed bed;

	sides_up(&bed, &cfg, side);
	for (i = 0; i < 3; i++) {
		client_post_recv(&side[1].qp, i, dst, 64, side[1].key);
		karst_cq_arm(side[1].cq.sh, false);
		cr_assert_not(readable(side[1].channel_fd));
		client_post(&side[0].qp, KARST_WR_SEND, i, src, 64, side[0].key, 0, 0);
		cr_assert(client_wait(&bed, &side[1].cq, &cqe));
		cr_assert_eq(cqe.opcode, KARST_WC_RECV);
		engine_bed_settle(&bed);
		cr_assert(readable(side[1].channel_fd));
		cr_assert_eq(read(side[1].channel_fd, &cookie, sizeof(cookie)), 8);
		cr_assert_eq(cookie, 200);
		cr_assert_not(readable(side[1].channel_fd));
	}
	/* not armed: no event */
	cr_assert_not(readable(side[0].channel_fd));
	cr_assert_eq(CALL(side[1].c, DESTROY_QP, destroy_qp, .qp = side[1].qp.handle), 0);
	cr_assert_eq(CALL(side[1].c, DESTROY_CQ, destroy_cq, .cq = side[1].cq.handle), 0);
	side_down(&side[0]);
	/* a session's streams end with the session */
	cr_assert_not(readable(side[1].channel_fd));
	side[1].c->conn.close(side[1].c->conn.user);
	cr_assert_eq(read(side[1].channel_fd, &cookie, sizeof(cookie)), 0);
	cr_assert_eq(read(side[1].c->async_fd, &cookie, sizeof(cookie)), 0);
	close(side[1].channel_fd);
	client_free(side[1].c);
	engine_bed_down(&bed);
}

/* A program that arms a queue again and again without reading its events loses them except for one
 * that waits, and nothing waits for it. */
Test(session_traffic, events_unread, .timeout = 1500)
{
	struct karst_session_info info[2] = {{0}};
	struct engine_bed_config cfg = {0};
	struct side side[2];
	struct karst_cqe cqe;
	uint64_t n = 0, i, cookie, got = 0;
	struct engine_bed bed;

	sides_up(&bed, &cfg, side);
	while (info[0].lost_events + info[1].lost_events < 10) {
		karst_cq_arm(side[0].cq.sh, false);
		client_post(&side[0].qp, KARST_WR_RDMA_WRITE, n++, src, 0, side[0].key,
			(uintptr_t)dst, side[1].key);
		cr_assert(client_wait(&bed, &side[0].cq, &cqe));
		engine_bed_settle(&bed);
		cr_assert_lt(n, 100000);
		karst_session_list(bed.e, info, 2);
	}
	cr_assert_gt(n, 200);
	for (;;) {
		if (readable(karst_session_fd(side[0].c->s)))
			karst_session_attend(side[0].c->s);
		if (!readable(side[0].channel_fd))
			break;
		cr_assert_eq(read(side[0].channel_fd, &cookie, sizeof(cookie)), 8, "whole records");
		cr_assert_eq(cookie, 100);
		got++;
	}
	i = info[0].lost_events + info[1].lost_events;
	cr_assert_eq(got + i, n);
	side_down(&side[0]);
	side_down(&side[1]);
	engine_bed_down(&bed);
}

/* More objects than a stream has room for, each with one event. */
#define MANY_OBJECTS 4000u

/* Whatever an lcore had no room for comes when the program has read. */
static uint32_t
read_of_each(struct client *c, int fd, size_t bytes, size_t at)
{
	static bool seen[MANY_OBJECTS];
	uint8_t record[64] = {0};
	uint64_t cookie;
	uint32_t n = 0;

	memset(seen, 0, sizeof(seen));
	for (;;) {
		if (readable(karst_session_fd(c->s)))
			karst_session_attend(c->s);
		if (!readable(fd))
			return n;
		cr_assert_eq(read(fd, record, bytes), bytes, "whole records");
		memcpy(&cookie, record + at, sizeof(cookie));
		cr_assert_lt(cookie, MANY_OBJECTS);
		cr_assert_not(seen[cookie], "one event of each");
		seen[cookie] = true;
		n++;
	}
}

/* A program with many queues on one channel arms each of them once.  It reads late, and gets the
 * event of each. */
Test(session_traffic, events_of_many_queues, .timeout = 1500)
{
	static struct client_cq cq[MANY_OBJECTS];
	struct engine_bed_config cfg = {0};
	struct engine_bed bed;
	struct client *c;
	uint32_t i, channel;
	int fd;

	engine_bed_up(&bed, &cfg);
	c = client_open(bed.e, NULL);
	cr_assert_eq(CALL(c, CREATE_CHANNEL, create_channel, .reserved = 0), 0);
	channel = RSP(c, create_channel)->channel;
	fd = c->fds[0];
	for (i = 0; i < MANY_OBJECTS; i++) {
		client_cq(c, 1, channel, i, &cq[i]);
		karst_cq_arm(cq[i].sh, false);
	}
	for (i = 0; i < MANY_OBJECTS; i++)
		cr_assert_eq(CALL(c, RAISE_CQ, raise_cq, .cq = cq[i].handle), 0);
	cr_assert_eq(read_of_each(c, fd, sizeof(uint64_t), 0), MANY_OBJECTS);
	cr_assert_eq(client_info(bed.e, c).lost_events, 0);
	close(fd);
	client_close(c);
	engine_bed_down(&bed);
}

/* Creates shared receive queues that have an event each. */
static void
arm_many(struct client *c, uint32_t pd)
{
	static uint32_t srq[MANY_OBJECTS];
	uint32_t i;

	for (i = 0; i < MANY_OBJECTS; i++) {
		cr_assert_eq(CALL(c, CREATE_SRQ, create_srq, .pd = pd, .max_wr = 1, .max_sge = 1,
				     .type = KARST_SRQT_BASIC, .cookie = i),
			0, "%s", c->why);
		srq[i] = RSP(c, create_srq)->srq;
	}
	/* there are fewer receives already */
	for (i = 0; i < MANY_OBJECTS; i++)
		cr_assert_eq(CALL(c, MODIFY_SRQ, modify_srq, .srq = srq[i], .limit = 1), 0);
}

/* The same with asynchronous events, which all objects of a program share one stream for. */
Test(session_traffic, events_of_many_objects, .timeout = 1500)
{
	struct engine_bed_config cfg = {0};
	struct engine_bed bed;
	struct client *c;

	engine_bed_up(&bed, &cfg);
	c = client_open(bed.e, NULL);
	arm_many(c, client_pd(c));
	engine_bed_settle(&bed);
	cr_assert_eq(read_of_each(c, c->async_fd, sizeof(struct karst_ctl_async),
			     offsetof(struct karst_ctl_async, cookie)),
		MANY_OBJECTS);
	cr_assert_eq(client_info(bed.e, c).lost_events, 0);
	client_close(c);
	engine_bed_down(&bed);
}

/* Reads events, and attends to the session, as long as they are of shared receive queues. */
static void
read_past_limits(struct client *c, struct karst_ctl_async *ev)
{
	uint32_t n = 0;

	do {
		if (readable(karst_session_fd(c->s)))
			karst_session_attend(c->s);
		cr_assert(readable(c->async_fd), "nothing after %u events", n);
		cr_assert_eq(read(c->async_fd, ev, sizeof(*ev)), sizeof(*ev));
		n += ev->event == KARST_EVENT_SRQ_LIMIT_REACHED;
	} while (ev->event == KARST_EVENT_SRQ_LIMIT_REACHED);
	cr_assert_eq(n, MANY_OBJECTS);
}

/* A port that is lost, behind the events of many objects, and added again if @again. */
static void
port_behind_many(bool again)
{
	static const uint32_t lost[] = {KARST_EVENT_PORT_ERR, KARST_EVENT_PORT_GONE};
	/* of the link the last state only */
	static const uint32_t back[] = {
		KARST_EVENT_PORT_GONE, KARST_EVENT_GID_CHANGE, KARST_EVENT_PORT_ACTIVE};
	const struct karst_engine_addr addr = karst_engine_addr_ip4(0x0a000002);
	struct karst_engine_port_config port = {
		.mac = {2, 0, 0, 0, 0, 2}, .num_addrs = 1, .addrs = &addr};
	const unsigned int n = again ? KARST_DIM(back) : KARST_DIM(lost);
	const uint32_t *in_order = again ? back : lost;
	struct engine_bed_config cfg = {0};
	struct karst_ctl_async ev;
	struct engine_bed bed;
	struct client *c;
	unsigned int i;

	engine_bed_up(&bed, &cfg);
	c = client_open(bed.e, NULL);
	arm_many(c, client_pd(c));
	engine_bed_settle(&bed);
	cr_assert_eq(karst_engine_port_lose(bed.e, bed.port[1]), 0);
	port.ethdev = bed.ethdev[1];
	port.number = bed.port[1] + 1u;
	if (again)
		cr_assert_eq(karst_engine_port_add(bed.e, &port, &bed.port[1]), 0);
	read_past_limits(c, &ev);
	for (i = 0; i < n; i++) {
		cr_assert_eq(ev.event, in_order[i], "event %u: %#x", i, ev.event);
		cr_assert_eq(ev.handle, bed.port[1] + 1u);
		cr_assert_eq(readable(c->async_fd), i + 1 < n);
		if (i + 1 < n)
			cr_assert_eq(read(c->async_fd, &ev, sizeof(ev)), sizeof(ev));
	}
	client_close(c);
	engine_bed_down(&bed);
}

/* A port that is lost makes many queue pairs fail; its own events come behind theirs. */
Test(session_traffic, events_of_ports_behind_many, .timeout = 1500)
{
	port_behind_many(false);
}

/* The same, and the port's number is used again: the program hears last that the port works. */
Test(session_traffic, port_back_behind_many, .timeout = 1500)
{
	port_behind_many(true);
}

/* A corrupted send queue fails its queue pair, its program gets an event, and no other program is
 * affected. */
Test(session_traffic, broken_ring)
{
	struct engine_bed_config cfg = {0};
	struct karst_ctl_async ev;
	struct karst_session_info info[2];
	struct side side[2];
	struct engine_bed bed;

	sides_up(&bed, &cfg, side);
	atomic_store(&side[0].qp.sq.sh->tail, 0x7fffffff);
	cr_assert_eq(karst_bell_ring(side[0].qp.bell, side[0].qp.bell_mask, side[0].qp.num), 0);
	engine_bed_settle(&bed);
	cr_assert(readable(side[0].c->async_fd));
	cr_assert_eq(read(side[0].c->async_fd, &ev, sizeof(ev)), sizeof(ev));
	cr_assert_eq(ev.event, KARST_EVENT_QP_FATAL);
	cr_assert_eq(ev.handle, side[0].qp.handle);
	cr_assert_eq(ev.cookie, 101);
	cr_assert_not(readable(side[1].c->async_fd));
	cr_assert_eq(karst_session_list(bed.e, info, 2), 2);
	cr_assert_not(info[0].failed || info[1].failed);
	cr_assert_eq(CALL(side[0].c, DESTROY_QP, destroy_qp, .qp = side[0].qp.handle), 0);
	side_down(&side[0]);
	side_down(&side[1]);
	engine_bed_down(&bed);
}

/* --- another process's memory --- */

/* A child process that has @shared memory at the same address, and private memory, and waits. */
struct child {
	pid_t pid;
	int pidfd;
	int memfd;
	int wait_fd;
	uint8_t *shared;  /* BUF bytes of memfd */
	uint8_t *private; /* BUF bytes of its own */
};

static void
child_up(struct child *ch)
{
	int pipefd[2], ready[2];
	char c = 0;

	ch->memfd = memfd_create("child", MFD_ALLOW_SEALING);
	cr_assert_eq(ftruncate(ch->memfd, BUF), 0);
	ch->shared = mmap(NULL, BUF, PROT_READ | PROT_WRITE, MAP_SHARED, ch->memfd, 0);
	memset(ch->shared, 0, BUF); /* pages that do not exist are not mapped */
	ch->private = mmap(NULL, BUF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_eq(pipe(pipefd), 0);
	cr_assert_eq(pipe(ready), 0);
	ch->pid = fork();
	if (ch->pid == 0) {
		close(pipefd[1]);
		engine_bed_fill(ch->private, BUF, 77);
		if (write(ready[1], &c, 1) != 1 || read(pipefd[0], &c, 1) < 0)
			_exit(1);
		/* exit status: whether the engine has written there */
		_exit(ch->private[5] == 0x5a ? 0 : 2);
	}
	close(pipefd[0]);
	cr_assert_eq(read(ready[0], &c, 1), 1);
	ch->wait_fd = pipefd[1];
	ch->pidfd = (int)syscall(SYS_pidfd_open, ch->pid, 0);
	cr_assert_geq(ch->pidfd, 0);
}

/* Registers a region of one piece: @fd's memory, or private memory that is copied. */
static int
register_piece(
	struct client *c, uint32_t pd, const void *addr, uint32_t kind, int fd, uint32_t access)
{
	const struct karst_ctl_reg_mr_req req = {
		.pd = pd,
		.access = access,
		.addr = (uintptr_t)addr,
		.len = BUF,
		.iova = (uintptr_t)addr,
		.npieces = 1,
	};
	const struct karst_ctl_piece piece = {.addr = (uintptr_t)addr, .len = BUF, .kind = kind};
	uint8_t m[sizeof(req) + sizeof(piece)];

	memcpy(m, &req, sizeof(req));
	memcpy(m + sizeof(req), &piece, sizeof(piece));
	return client_call_fds(c, KARST_CTL_REG_MR, m, sizeof(m), &fd, fd >= 0);
}

Test(session_traffic, memory_of_a_process, .timeout = 1500)
{
	const uint32_t all = KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE;
	struct engine_bed_config cfg = {0};
	uint32_t pd, shared, private;
	struct karst_cqe cqe;
	struct side side[2];
	struct client_cq cq;
	struct client_qp qp;
	unsigned int maps;
	struct client *c;
	struct child ch;
	struct engine_bed bed;
	int status;

	child_up(&ch);
	sides_up(&bed, &cfg, side);
	c = client_of_process(bed.e, ch.pid, ch.pidfd);
	pd = client_pd(c);
	maps = engine_bed_mappings("child");
	cr_assert_eq(register_piece(c, pd, ch.shared, KARST_CTL_PIECE_FD, ch.memfd, all), 0, "%s",
		c->why);
	shared = RSP(c, reg_mr)->key;
	cr_assert_eq(RSP(c, reg_mr)->shared_bytes, BUF);
	cr_assert_gt(engine_bed_mappings("child"), maps);
	cr_assert_eq(
		register_piece(c, pd, ch.private, KARST_CTL_PIECE_COPY, -1, all), 0, "%s", c->why);
	private = RSP(c, reg_mr)->key;
	cr_assert_eq(RSP(c, reg_mr)->copied_bytes, BUF);
	/* no such memory there */
	cr_assert_lt(register_piece(c, pd, (void *)4096, KARST_CTL_PIECE_COPY, -1, all), 0);
	cr_assert_lt(register_piece(c, pd, ch.shared, KARST_CTL_PIECE_FD, -1, all), 0);
	/* the peer is the child's queue pair */
	client_cq(c, 64, 0, 0, &cq);
	client_qp(c, KARST_QPT_RC, pd, &cq, 0, 0, &qp);
	cr_assert_eq(CALL(side[0].c, DESTROY_QP, destroy_qp, .qp = side[0].qp.handle), 0);
	client_qp(side[0].c, KARST_QPT_RC, side[0].pd, &side[0].cq, 0, 0, &side[0].qp);
	client_connect(&bed, side[0].c, &side[0].qp, c, &qp);
	engine_bed_fill(src, BUF, 3);
	client_post(&side[0].qp, KARST_WR_RDMA_WRITE, 1, src, BUF, side[0].key,
		(uintptr_t)ch.shared, shared);
	cr_assert(client_wait(&bed, &side[0].cq, &cqe));
	cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
	cr_assert_eq(memcmp(src, ch.shared, BUF), 0);
	client_post(&side[0].qp, KARST_WR_RDMA_READ, 2, src, BUF, side[0].key,
		(uintptr_t)ch.private, private);
	cr_assert(client_wait(&bed, &side[0].cq, &cqe));
	cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
	engine_bed_fill(dst, BUF, 77);
	cr_assert_eq(memcmp(src, dst, BUF), 0);
	src[0] = 0x5a;
	client_post(&side[0].qp, KARST_WR_RDMA_WRITE, 3, src, 1, side[0].key,
		(uintptr_t)ch.private + 5, private);
	cr_assert(client_wait(&bed, &side[0].cq, &cqe));
	cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
	close(ch.wait_fd);
	cr_assert_eq(waitpid(ch.pid, &status, 0), ch.pid);
	cr_assert_eq(WEXITSTATUS(status), 0);
	cr_assert_eq(CALL(c, DEREG_MR, dereg_mr, .key = shared), 0, "%s", c->why);
	client_close(c);
	side_down(&side[0]);
	side_down(&side[1]);
	cr_assert_eq(engine_bed_mappings("child"), maps);
	engine_bed_down(&bed);
}

/* An XRC target of the program that is not at fault, of which the other one has a handle, too, and
 * an SRQ. */
static uint32_t
share_target(struct client *innocent, struct client *other, uint32_t pd, uint32_t cq, int fd)
{
	const struct karst_ctl_open_xrcd_req req = {.flags = KARST_CTL_XRCD_CREATE};
	uint32_t xrcd, tgt, qpn;

	cr_assert_eq(client_call_fds(innocent, KARST_CTL_OPEN_XRCD, &req, sizeof(req), &fd, 1), 0,
		"%s", innocent->why);
	xrcd = RSP(innocent, open_xrcd)->xrcd;
	cr_assert_eq(CALL(innocent, CREATE_QP, create_qp, .type = KARST_QPT_XRC_RECV, .xrcd = xrcd,
			     .lcore = UINT32_MAX),
		0, "%s", innocent->why);
	tgt = RSP(innocent, create_qp)->qp;
	qpn = RSP(innocent, create_qp)->qpn;
	cr_assert_eq(client_call_fds(other, KARST_CTL_OPEN_XRCD, &req, sizeof(req), &fd, 1), 0);
	xrcd = RSP(other, open_xrcd)->xrcd;
	cr_assert_eq(CALL(other, OPEN_QP, open_qp, .xrcd = xrcd, .qpn = qpn), 0, "%s", other->why);
	cr_assert_eq(CALL(other, CREATE_SRQ, create_srq, .pd = pd, .max_wr = 4,
			     .type = KARST_SRQT_XRC, .xrcd = xrcd, .cq = cq),
		0, "%s", other->why);
	cr_assert_neq(RSP(other, create_srq)->srqn, 0);
	return tgt;
}

/* Pages are taken away: the session fails, its queue pairs go to Error, the other session
 * continues. */
Test(session_traffic, memory_taken_away, .timeout = 1500)
{
	const uint32_t all = KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE;
	struct engine_bed_config cfg = {0};
	struct karst_ctl_async ev;
	struct karst_session_info info;
	struct karst_cqe cqe;
	struct side side[2];
	struct client_cq cq;
	struct client_qp qp;
	uint32_t pd, shared, tgt;
	struct client *c;
	struct child ch;
	struct engine_bed bed;
	int status;

	child_up(&ch);
	sides_up(&bed, &cfg, side);
	c = client_of_process(bed.e, ch.pid, ch.pidfd);
	pd = client_pd(c);
	cr_assert_eq(register_piece(c, pd, ch.shared, KARST_CTL_PIECE_FD, ch.memfd, all), 0, "%s",
		c->why);
	shared = RSP(c, reg_mr)->key;
	client_cq(c, 64, 0, 0, &cq);
	client_qp(c, KARST_QPT_RC, pd, &cq, 0, 0, &qp);
	tgt = share_target(side[1].c, c, pd, cq.handle, ch.memfd);
	cr_assert_eq(CALL(side[0].c, DESTROY_QP, destroy_qp, .qp = side[0].qp.handle), 0);
	client_qp(side[0].c, KARST_QPT_RC, side[0].pd, &side[0].cq, 0, 0, &side[0].qp);
	client_connect(&bed, side[0].c, &side[0].qp, c, &qp);
	cr_assert_not(readable(karst_session_fd(c->s)));
	if (ftruncate(ch.memfd, 0) != 0)
		cr_skip_test("the engine's mapping keeps the file from shrinking");
	client_post(&side[0].qp, KARST_WR_RDMA_WRITE, 1, src, BUF, side[0].key,
		(uintptr_t)ch.shared, shared);
	cr_assert(client_wait(&bed, &side[0].cq, &cqe));
	cr_assert(readable(karst_session_fd(c->s)));
	karst_session_attend(c->s);
	cr_assert_not(readable(karst_session_fd(c->s)));
	do {
		cr_assert(readable(c->async_fd));
		cr_assert_eq(read(c->async_fd, &ev, sizeof(ev)), sizeof(ev));
	} while (ev.event != KARST_EVENT_DEVICE_FATAL);
	cr_assert_eq(karst_session_list(bed.e, &info, 1), 3);
	cr_assert(info.failed);
	cr_assert_eq(CALL(c, QUERY_QP, query_qp, .qp = qp.handle), -EIO);
	cr_assert_eq(CALL(c, ALLOC_PD, alloc_pd, .reserved = 0), -EIO);
	cr_assert_eq(CALL(side[1].c, QUERY_QP, query_qp, .qp = tgt), 0);
	cr_assert_eq(RSP(side[1].c, query_qp)->attr.qp_state, KARST_QPS_RESET, "it is shared");
	client_close(c);
	/* the other sessions do not notice */
	cr_assert_eq(CALL(side[0].c, ALLOC_PD, alloc_pd, .reserved = 0), 0);
	cr_assert_not(readable(side[1].c->async_fd));
	close(ch.wait_fd);
	waitpid(ch.pid, &status, 0);
	side_down(&side[0]);
	side_down(&side[1]);
	engine_bed_down(&bed);
}

/* --- nothing is left --- */

/* A session with objects of all kinds and traffic under way, which ends without cleaning up. */
static void
one_life(struct engine_bed *bed, unsigned int round)
{
	struct karst_ctl_ah_attr ah = {.port_num = 1};
	struct side side[2];
	unsigned int i;

	side_up(&side[0], bed, src, 1);
	side_up(&side[1], bed, dst, 2);
	client_connect(bed, side[0].c, &side[0].qp, side[1].c, &side[1].qp);
	for (i = 0; i < 3; i++) {
		cr_assert_eq(CALL(side[0].c, ALLOC_MW, alloc_mw, .pd = side[0].pd, .type = 2), 0);
		cr_assert_eq(
			CALL(side[0].c, CREATE_SRQ, create_srq, .pd = side[0].pd, .max_wr = 4), 0);
	}
	memcpy(ah.dgid, (uint8_t[16]){[10] = 0xff, 0xff, 10, 0, 0, 2}, 16);
	cr_assert_eq(CALL(side[0].c, CREATE_AH, create_ah, .pd = side[0].pd, .attr = ah), 0);
	for (i = 0; i < 8; i++)
		client_post(&side[0].qp, KARST_WR_RDMA_WRITE, i, src, BUF, side[0].key,
			(uintptr_t)dst, side[1].key);
	for (i = 0; i < round % 7; i++)
		karst_engine_poll(bed->e, 0);
	side_down(&side[round % 2]);
	side_down(&side[1 - round % 2]);
}

Test(session_traffic, many_lives, .timeout = 1500)
{
	struct engine_bed_config cfg = {0};
	unsigned int i, fds, maps;
	uint64_t objects, rings;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	engine_bed_settle(&bed);
	for (i = 0; i < 10; i++)
		one_life(&bed, i);
	fds = engine_bed_open_fds();
	maps = engine_bed_mappings("");
	objects = bed.e->objects.used;
	rings = bed.e->objects.mapped;
	for (i = 0; i < 500; i++)
		one_life(&bed, i);
	cr_assert_eq(engine_bed_open_fds(), fds);
	cr_assert_eq(bed.e->objects.used, objects);
	cr_assert_eq(bed.e->objects.mapped, rings);
	cr_assert_leq(engine_bed_mappings(""), maps);
	cr_assert_eq(bed.e->nqps[0], 0);
	cr_assert_eq(karst_session_list(bed.e, NULL, 0), 0);
	engine_bed_down(&bed);
}

/* Regions are registered and deregistered. */
Test(session_traffic, many_regions, .timeout = 1500)
{
	struct engine_bed_config cfg = {0};
	unsigned int i, fds, maps;
	uint64_t objects;
	struct client *c;
	uint32_t pd, key;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	engine_bed_settle(&bed);
	c = client_open(bed.e, NULL);
	pd = client_pd(c);
	fds = engine_bed_open_fds();
	maps = engine_bed_mappings("");
	objects = bed.e->objects.used;
	for (i = 0; i < 100000; i++) {
		key = client_mr(c, pd, src, sizeof(src));
		cr_assert_eq(CALL(c, DEREG_MR, dereg_mr, .key = key), 0);
	}
	cr_assert_eq(engine_bed_open_fds(), fds);
	cr_assert_eq(bed.e->objects.used, objects);
	cr_assert_leq(engine_bed_mappings(""), maps);
	client_close(c);
	engine_bed_down(&bed);
}
