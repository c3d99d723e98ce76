/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Contexts: how they are opened, also with forks and signals at the same time, and how they are
 * abandoned. */
#include "client_bed.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "karst_ctl_sock.h"
#include "karst_rdmacm.h"

/* A child may not use what it inherited, and the parent does not notice that there is a child. */
Test(client_context, fork)
{
	static uint8_t mem[4096];
	struct karst_async_event ev;
	struct karst_context *ctx;
	struct karst_mr *mr;
	struct karst_qp *qp;
	struct karst_cqe e;
	struct karst_pd *pd;
	struct client_bed b;
	int status;
	pid_t pid;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	qp = client_bed_qp(&b, KARST_QPT_RC);
	mr = client_bed_mr(&b, mem, sizeof(mem));
	pid = fork();
	if (pid == 0) {
		if (karst_alloc_pd(b.ctx, &pd) != -EPERM)
			_exit(1);
		if (karst_poll_cq(b.cq, 1, &e) != -EPERM)
			_exit(2);
		if (client_bed_post(qp, KARST_WR_SEND, 1, mr, 0, 1, NULL, 0) != -EPERM ||
			client_bed_recv(qp, 1, mr, 0, 1) != -EPERM || karst_ring_bell(qp) != -EPERM)
			_exit(3);
		if (karst_dereg_mr(mr) != -EPERM || karst_destroy_qp(qp) != -EPERM ||
			karst_destroy_cq(b.cq) != -EPERM || karst_dealloc_pd(b.pd) != -EPERM ||
			karst_close(b.ctx) != -EPERM)
			_exit(4);
		if (karst_get_async_event(b.ctx, &ev) != -EPERM ||
			karst_req_notify_cq(b.cq, false) != -EPERM)
			_exit(5);
		if (karst_open("/nonexistent", NULL, &ctx) != -ENOENT)
			_exit(6);
		_exit(strstr(karst_why(), "/nonexistent") != NULL ? 0 : 7);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child: %x", status);
	cr_assert_eq(karst_dereg_mr(mr), 0);
	cr_assert_eq(karst_destroy_qp(qp), 0);
	client_bed_down(&b);
}

Test(client_context, open)
{
	struct karst_open_attr attr = {.connect_timeout_ms = 100};
	struct karst_context *ctx;
	char path[200];

	memset(path, 'x', sizeof(path));
	path[sizeof(path) - 1] = 0;
	cr_assert_eq(karst_open(path, &attr, &ctx), -EINVAL);
	cr_assert_eq(karst_open("/nonexistent/karst.sock", &attr, &ctx), -ENOENT);
	says("karstd");
	setenv("KARST_SOCKET", "/nonexistent/by.environment", 1);
	cr_assert_eq(karst_open(NULL, NULL, &ctx), -ENOENT);
	says("by.environment");
}

Test(client_context, names)
{
	cr_assert_str_eq(karst_wc_status_str(KARST_WC_SUCCESS), "success");
	cr_assert_str_eq(karst_wc_status_str((enum karst_wc_status)200), "unknown");
	cr_assert_str_eq(karst_wr_opcode_str(KARST_WR_RDMA_READ), "RDMA READ");
	cr_assert_str_eq(karst_wr_opcode_str(KARST_WR_MAX), "unknown");
	cr_assert_str_eq(karst_event_str(KARST_EVENT_DEVICE_FATAL), "engine gone");
	cr_assert_str_eq(karst_event_str((enum karst_async_event_code)77), "unknown");
	cr_assert_str_eq(karst_qp_state_str(KARST_QPS_SQE), "SQE");
	cr_assert_str_eq(karst_qp_state_str((enum karst_qp_state)7), "unknown");
}

/* --- an incident on a control connection --- */

struct between {
	struct karst_ctl_conn real;
	int fd;
	pid_t child; /* forked during the first request */
};

static void
between_close(void *user)
{
	struct between *b = user;

	b->real.close(b->real.user);
}

/* Opens a context over @call and @close, which get @b, the address of the first member of its
 * structure.  @return as karst_open_conn(). */
static int
open_between(struct client_bed *bed, struct between *b,
	__typeof__(((struct karst_ctl_conn *)0)->call) call, void (*close)(void *user),
	struct karst_context **ctx)
{
	const struct karst_ctl_conn conn = {
		.call = call, .close = close, .user = b, .hup_fd = b->fd};

	client_bed_up(bed, &(struct client_bed_config){.lcores = 1});
	cr_assert_eq(karst_session_conn(bed->e, NULL, &b->real), 0);
	return karst_open_conn(&conn, NULL, ctx);
}

static int
forking_call(void *user, const void *req, size_t len, const int *fds, unsigned int nfds, void *rsp,
	size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds)
{
	struct between *f = user;

	if (f->child == 0) {
		f->child = fork();
		if (f->child == 0)
			_exit(fcntl(f->fd, F_GETFD) >= 0);
	}
	return f->real.call(f->real.user, req, len, fds, nfds, rsp, rsp_len, rsp_fds, nrsp_fds);
}

/* Otherwise the engine would keep the program's objects for as long as the child lives. */
Test(client_context, fork_while_it_opens)
{
	struct between f = {.fd = -1};
	struct karst_context *ctx;
	struct client_bed b;
	int pair[2], status;

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	f.fd = pair[0];
	cr_assert_eq(open_between(&b, &f, forking_call, between_close, &ctx), 0, "%s", karst_why());
	cr_assert_eq(waitpid(f.child, &status, 0), f.child);
	cr_assert_eq(status, 0, "the child has the connection");
	cr_assert_eq(karst_close(ctx), 0);
	close(pair[0]);
	close(pair[1]);
	client_bed_down(&b);
}

/* Called with the descriptor before the program connects. */
static void (*before_connect)(int fd);
static unsigned int interruptions;

int
connect(int fd, const struct sockaddr *to, socklen_t len)
{
	if (before_connect != NULL)
		before_connect(fd);
	if (interruptions > 0) {
		interruptions--;
		errno = EINTR;
		return -1;
	}
	return (int)syscall(SYS_connect, fd, to, len);
}

static int child_status = -1;

static void
fork_now(int fd)
{
	pid_t child = fork();

	if (child == 0)
		_exit(fcntl(fd, F_GETFD) >= 0);
	cr_assert_eq(waitpid(child, &child_status, 0), child);
}

Test(client_context, fork_before_it_connects)
{
	struct karst_context *ctx;

	before_connect = fork_now;
	cr_assert_eq(karst_open("/nonexistent/karst.sock", NULL, &ctx), -ENOENT);
	cr_assert_eq(child_status, 0, "the child has the connection");
}

/* As when the engine has many connections to serve, and the program's timer expires. */
Test(client_context, interrupted_while_it_connects)
{
	struct karst_context *ctx;

	interruptions = 3;
	cr_assert_eq(karst_open("/nonexistent/karst.sock", NULL, &ctx), -ENOENT);
	cr_assert_eq(interruptions, 0);
}

static int
lying_call(void *user, const void *req, size_t len, const int *fds, unsigned int nfds, void *rsp,
	size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds)
{
	struct between *b = user;
	const struct karst_ctl_hdr *h = req;
	int ret = b->real.call(b->real.user, req, len, fds, nfds, rsp, rsp_len, rsp_fds, nrsp_fds);

	if (ret == 0 && h->op == KARST_CTL_GET_CHUNK)
		((struct karst_ctl_get_chunk_rsp *)((struct karst_ctl_hdr *)rsp + 1))->chunk =
			UINT32_MAX;
	return ret;
}

/* A wrong reply of an engine does not make the program fault. */
Test(client_context, memory_file_of_a_wrong_number)
{
	struct between l = {.fd = -1};
	struct karst_context *ctx;
	struct client_bed b;

	cr_assert_eq(open_between(&b, &l, lying_call, between_close, &ctx), -EPROTO);
	says("4294967295");
	between_close(&l);
	client_bed_down(&b);
}

struct bereft {
	struct between b;
	int ret;          /* what the call returns for replies whose descriptors are lost */
	uint32_t channel; /* the channel that was created last */
	unsigned int given_back;
};

static int
bereft_call(void *user, const void *req, size_t len, const int *fds, unsigned int nfds, void *rsp,
	size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds)
{
	struct bereft *b = user;
	const struct karst_ctl_hdr *h = req;
	struct karst_ctl_hdr *r = rsp;
	int ret = b->b.real.call(
		b->b.real.user, req, len, fds, nfds, rsp, rsp_len, rsp_fds, nrsp_fds);

	/* the structures of both kinds of channels are the same */
	if (h->op == KARST_CTL_CREATE_CHANNEL || h->op == KARST_CTL_CM_CREATE_CHANNEL) {
		b->channel = ((const struct karst_ctl_create_channel_rsp *)(r + 1))->channel;
		karst_ctl_close_fds(rsp_fds, *nrsp_fds);
		*nrsp_fds = r->nfds = 0;
		return b->ret;
	}
	if (h->op == KARST_CTL_DESTROY_CHANNEL || h->op == KARST_CTL_CM_DESTROY_CHANNEL)
		b->given_back += ((const struct karst_ctl_destroy_channel_req *)(h + 1))->channel ==
				b->channel &&
			r->status == 0;
	return ret;
}

/* As for a program that has as many descriptors open as it may. */
Test(client_context, channels_without_their_descriptors)
{
	struct bereft n = {.b.fd = -1};
	struct karst_rdmacm_channel *cm;
	struct karst_comp_channel *ch;
	struct karst_context *ctx;
	struct client_bed b;
	unsigned int i;

	cr_assert_eq(
		open_between(&b, &n.b, bereft_call, between_close, &ctx), 0, "%s", karst_why());
	for (i = 0; i < 2; i++) {
		n.ret = i == 0 ? 0 : -EMFILE;
		cr_expect_eq(karst_create_comp_channel(ctx, &ch), i == 0 ? -EPROTO : -EMFILE);
		says("descriptor");
		cr_expect_eq(n.given_back, 2 * i + 1, "the engine keeps it");
		cr_expect_eq(karst_rdmacm_create_channel(ctx, &cm), i == 0 ? -EPROTO : -EMFILE);
		says("descriptor");
		cr_expect_eq(n.given_back, 2 * i + 2, "the engine keeps it");
	}
	cr_assert_eq(karst_close(ctx), 0);
	client_bed_down(&b);
}

/* --- abandoning without cleaning up --- */

Test(client_context, abandon)
{
	struct karst_session_info infos[4];
	/* their memory is not freed, and this is no leak */
	static struct karst_context *other;
	static struct karst_cq *cq;
	static struct karst_pd *pd;
	struct client_bed b;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	other = client_bed_open(&b);
	cr_assert_eq(karst_alloc_pd(other, &pd), 0);
	cr_assert_eq(karst_create_cq(other, 8, NULL, NULL, &cq), 0);
	cr_assert_eq(karst_close(other), -EBUSY);
	cr_assert_eq(karst_session_list(b.e, infos, 4), 2);
	karst_abandon(other);
	cr_assert_eq(karst_session_list(b.e, infos, 4), 1);
	cr_assert_eq(infos[0].client, b.ctx->client, "the other one is still there");
	client_bed_down(&b);
}

struct abandoner {
	struct karst_context *ctx;
	_Atomic pid_t tid;
	atomic_bool finished;
};

static void *
abandon_it(void *arg)
{
	struct abandoner *a = arg;

	atomic_store(&a->tid, gettid());
	karst_abandon(a->ctx);
	atomic_store(&a->finished, true);
	return NULL;
}

/* A control connection with a request that takes long. */
struct lasting {
	struct between b;
	struct karst_context *ctx;
	atomic_bool last, inside, may_end, closed_inside;
};

static int
lasting_call(void *user, const void *req, size_t len, const int *fds, unsigned int nfds, void *rsp,
	size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds)
{
	struct lasting *l = user;
	int ret;

	atomic_store(&l->inside, true);
	while (atomic_load(&l->last) && !atomic_load(&l->may_end))
		sched_yield();
	ret = l->b.real.call(l->b.real.user, req, len, fds, nfds, rsp, rsp_len, rsp_fds, nrsp_fds);
	atomic_store(&l->inside, false);
	return ret;
}

static void
lasting_close(void *user)
{
	struct lasting *l = user;

	atomic_store(&l->closed_inside, atomic_load(&l->inside));
	atomic_store(&l->may_end, true);
	while (atomic_load(&l->inside))
		sched_yield();
	between_close(&l->b);
}

static void *
alloc_pd(void *arg)
{
	static struct karst_pd *pd;

	return (void *)(intptr_t)karst_alloc_pd(arg, &pd);
}

/* The connection is closed when the request has ended. */
Test(client_context, abandon_in_a_request)
{
	static struct karst_context *other;
	struct lasting l = {.b.fd = -1};
	struct abandoner a = {.tid = 0};
	pthread_t request, end;
	struct client_bed b;

	cr_assert_eq(
		open_between(&b, &l.b, lasting_call, lasting_close, &other), 0, "%s", karst_why());
	a.ctx = other;
	atomic_store(&l.last, true);
	cr_assert_eq(pthread_create(&request, NULL, alloc_pd, other), 0);
	while (!atomic_load(&l.inside))
		sched_yield();
	cr_assert_eq(pthread_create(&end, NULL, abandon_it, &a), 0);
	while (!atomic_load(&l.closed_inside) &&
		!client_bed_in_syscall(atomic_load(&a.tid), SYS_futex))
		sched_yield();
	atomic_store(&l.may_end, true);
	cr_assert_eq(pthread_join(request, NULL), 0);
	cr_assert_eq(pthread_join(end, NULL), 0);
	cr_assert(!atomic_load(&l.closed_inside), "closed under the request");
	client_bed_down(&b);
}

/* And when the request gets no answer. */
Test(client_context, abandon_without_an_answer)
{
	/* its memory is not freed, and this is no leak */
	static struct client_bed b;
	pthread_t request;
	void *ret;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1, .forked = true});
	cr_assert_eq(kill(b.child, SIGSTOP), 0);
	cr_assert_eq(waitpid(b.child, NULL, WUNTRACED), b.child);
	cr_assert_eq(pthread_create(&request, NULL, alloc_pd, b.ctx), 0);
	karst_abandon(b.ctx);
	cr_assert_eq(pthread_join(request, &ret), 0);
	cr_assert_eq((intptr_t)ret, -EIO);
	cr_assert_eq(kill(b.child, SIGCONT), 0);
	client_bed_kill(&b);
}

struct bell {
	struct karst_qp *qp;
	_Atomic pid_t tid;
	atomic_bool stop;
};

static void *
ring_on_and_on(void *arg)
{
	struct bell *r = arg;

	atomic_store(&r->tid, gettid());
	while (!atomic_load(&r->stop)) {
		/* as the engine sets it before it sleeps */
		atomic_store(&r->qp->bell->asleep, 1);
		karst_ring_bell(r->qp);
	}
	return NULL;
}

/* The descriptor that wakes an lcore stays open until a thread that is about to write to it has
 * done so. */
Test(client_context, abandon_beside_a_bell)
{
	static struct client_bed with;
	struct karst_session_info infos[4];
	struct abandoner a = {.tid = 0};
	struct bell r = {.tid = 0};
	pthread_t ringer, end;
	struct client_bed b;
	char bytes[4096];
	int fds[2], i;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	a.ctx = client_bed_open(&b);
	with = (struct client_bed){.ctx = a.ctx};
	cr_assert_eq(karst_alloc_pd(a.ctx, &with.pd), 0);
	cr_assert_eq(karst_create_cq(a.ctx, 8, NULL, NULL, &with.cq), 0);
	r.qp = client_bed_qp(&with, KARST_QPT_RC);
	/* the write() to this pipe does not return until the test reads from it */
	cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
	memset(bytes, 0, sizeof(bytes));
	fcntl(fds[1], F_SETFL, O_NONBLOCK);
	while (write(fds[1], bytes, sizeof(bytes)) > 0)
		;
	fcntl(fds[1], F_SETFL, 0);
	cr_assert_eq(dup2(fds[1], r.qp->wake_fd), r.qp->wake_fd);
	cr_assert_eq(pthread_create(&ringer, NULL, ring_on_and_on, &r), 0);
	while (!client_bed_in_syscall(atomic_load(&r.tid), SYS_write))
		sched_yield();
	cr_assert_eq(pthread_create(&end, NULL, abandon_it, &a), 0);
	while (karst_session_list(b.e, infos, 4) != 1)
		sched_yield();
	for (i = 0; i < 1000; i++)
		sched_yield();
	cr_assert(!atomic_load(&a.finished), "the descriptor was closed under the write");
	atomic_store(&r.stop, true);
	cr_assert_gt(read(fds[0], bytes, sizeof(bytes)), 0);
	cr_assert_eq(pthread_join(ringer, NULL), 0);
	cr_assert_eq(pthread_join(end, NULL), 0);
	close(fds[0]);
	close(fds[1]);
	client_bed_down(&b);
}

/* A thread that posts after karst_abandon() does not write into a file that was opened since. */
Test(client_context, abandoned_bell)
{
	static struct karst_context *other;
	static struct client_bed with;
	static struct karst_qp *qp;
	struct client_bed b;
	int fd, wake;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	other = client_bed_open(&b);
	with = (struct client_bed){.ctx = other};
	cr_assert_eq(karst_alloc_pd(other, &with.pd), 0);
	cr_assert_eq(karst_create_cq(other, 8, NULL, NULL, &with.cq), 0);
	qp = client_bed_qp(&with, KARST_QPT_RC);
	wake = qp->wake_fd;
	karst_abandon(other);
	fd = memfd_create("opened later", MFD_CLOEXEC);
	cr_assert_geq(fd, 0);
	cr_assert_eq(dup2(fd, wake), wake);
	atomic_store(&qp->bell->asleep, 1); /* as the engine left it */
	cr_assert_eq(karst_ring_bell(qp), 0);
	cr_assert_eq(lseek(fd, 0, SEEK_END), 0);
	close(wake);
	close(fd);
	client_bed_down(&b);
}
