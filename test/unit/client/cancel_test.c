/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Threads are cancelled during calls of libkarst: the call finishes, and no lock stays taken. */
#include "client_bed.h"

#include <errno.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "karst_rdmacm.h"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

/* A control connection whose requests can be made to wait at a cancellation point. */
struct slow {
	struct karst_ctl_conn real;
	atomic_bool wait;
	sem_t inside;
	sem_t go;
};

static int
slow_call(void *user, const void *req, size_t len, const int *fds, unsigned int nfds, void *rsp,
	size_t *rsp_len, int *rsp_fds, unsigned int *nrsp_fds)
{
	struct slow *s = user;

	if (atomic_exchange(&s->wait, false)) {
		sem_post(&s->inside);
		while (sem_wait(&s->go) != 0)
			;
	}
	return s->real.call(s->real.user, req, len, fds, nfds, rsp, rsp_len, rsp_fds, nrsp_fds);
}

static void
slow_close(void *user)
{
	struct slow *s = user;

	s->real.close(s->real.user);
}

/* Ends the thread if it was cancelled.  Without this call the address sanitizer would take the
 * stack frames of such a thread for live ones. */
static void
end_if_cancelled(void)
{
#ifdef __SANITIZE_ADDRESS__
	__asan_handle_no_return();
#endif
	pthread_testcancel();
}

struct thread {
	struct karst_context *ctx;
	struct karst_comp_channel *ch;
	struct karst_rdmacm_channel *cm;
	struct karst_pd *pd;
	struct karst_cq *cq;
	struct karst_qp *qp;
	atomic_bool finished;
	int (*call)(struct thread *t); /* argument of cancelled_before() */
};

static void *
alloc_pd(void *arg)
{
	struct thread *t = arg;

	if (karst_alloc_pd(t->ctx, &t->pd) == 0)
		atomic_store(&t->finished, true);
	end_if_cancelled();
	return NULL;
}

static void *
call_cancelled(void *arg)
{
	struct thread *t = arg;

	pthread_cancel(pthread_self());
	if (t->call(t) == 0)
		atomic_store(&t->finished, true);
	end_if_cancelled();
	return NULL;
}

/* Makes @call in a thread that is cancelled beforehand. */
static void
cancelled_before(int (*call)(struct thread *t), struct thread *t)
{
	pthread_t thread;
	void *end;

	t->call = call;
	atomic_store(&t->finished, false);
	cr_assert_eq(pthread_create(&thread, NULL, call_cancelled, t), 0);
	cr_assert_eq(pthread_join(thread, &end), 0);
	cr_assert(atomic_load(&t->finished), "it was cut off");
	cr_assert_eq(end, PTHREAD_CANCELED, "later it can be cancelled");
}

static int
open_none(struct thread *t)
{
	struct karst_context *ctx;

	(void)t;
	return karst_open("/nonexistent/karst.sock", NULL, &ctx) != -ENOENT;
}

Test(client_cancel, in_an_open)
{
	struct thread t = {0};

	cancelled_before(open_none, &t);
}

static int
destroy_channel(struct thread *t)
{
	return karst_destroy_comp_channel(t->ch);
}

static int
destroy_cm_channel(struct thread *t)
{
	return karst_rdmacm_destroy_channel(t->cm);
}

static int
close_context(struct thread *t)
{
	return karst_close(t->ctx);
}

/* Objects that the engine has destroyed are destroyed in the program, too, though the thread is
 * cancelled. */
Test(client_cancel, in_the_end)
{
	struct karst_session_info infos[4];
	struct thread t = {0};
	struct client_bed b;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	t.ctx = client_bed_open(&b);
	cr_assert_eq(karst_create_comp_channel(t.ctx, &t.ch), 0);
	cr_assert_eq(karst_rdmacm_create_channel(t.ctx, &t.cm), 0);
	cancelled_before(destroy_channel, &t);
	cancelled_before(destroy_cm_channel, &t);
	cancelled_before(close_context, &t);
	cr_assert_eq(karst_session_list(b.e, infos, 4), 1);
	client_bed_down(&b);
}

Test(client_cancel, in_a_request)
{
	struct slow s = {.wait = false};
	struct thread t = {0};
	struct client_bed b;
	pthread_t thread;
	void *end;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	sem_init(&s.inside, 0, 0);
	sem_init(&s.go, 0, 0);
	cr_assert_eq(karst_session_conn(b.e, NULL, &s.real), 0);
	cr_assert_eq(
		karst_open_conn(
			&(struct karst_ctl_conn){
				.call = slow_call, .close = slow_close, .user = &s, .hup_fd = -1},
			NULL, &t.ctx),
		0, "%s", karst_why());
	atomic_store(&s.wait, true);
	cr_assert_eq(pthread_create(&thread, NULL, alloc_pd, &t), 0);
	while (sem_wait(&s.inside) != 0)
		;
	cr_assert_eq(pthread_cancel(thread), 0);
	sem_post(&s.go);
	cr_assert_eq(pthread_join(thread, &end), 0);
	cr_assert(atomic_load(&t.finished), "the request was cut off, with the lock held");
	cr_assert_eq(end, PTHREAD_CANCELED, "later it can be cancelled");
	cr_assert_eq(karst_dealloc_pd(t.pd), 0);
	cr_assert_eq(karst_close(t.ctx), 0);
	client_bed_down(&b);
}

/* The first poll that finds nothing checks whether the engine is alive. */
static void *
poll_once(void *arg)
{
	struct thread *t = arg;
	struct karst_cqe e;

	pthread_cancel(pthread_self());
	if (karst_poll_cq(t->cq, 1, &e) == 0)
		atomic_store(&t->finished, true);
	end_if_cancelled();
	return NULL;
}

Test(client_cancel, in_a_poll)
{
	struct thread t = {0};
	struct client_bed b;
	pthread_t thread;
	void *end;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1, .forked = true});
	t.cq = b.cq;
	cr_assert_eq(pthread_create(&thread, NULL, poll_once, &t), 0);
	cr_assert_eq(pthread_join(thread, &end), 0);
	cr_assert(atomic_load(&t.finished), "the poll was cut off, with the lock held");
	cr_assert_eq(end, PTHREAD_CANCELED);
	client_bed_down(&b);
}

static void *
ring_once(void *arg)
{
	struct thread *t = arg;

	pthread_cancel(pthread_self());
	/* as the engine sets it before it sleeps */
	atomic_store(&t->qp->bell->asleep, 1);
	if (karst_ring_bell(t->qp) == 0)
		atomic_store(&t->finished, true);
	end_if_cancelled();
	return NULL;
}

Test(client_cancel, in_a_bell)
{
	struct thread t = {0};
	struct client_bed b;
	pthread_t thread;
	void *end;

	client_bed_up(&b, &(struct client_bed_config){.lcores = 1});
	t.qp = client_bed_qp(&b, KARST_QPT_RC);
	cr_assert_eq(pthread_create(&thread, NULL, ring_once, &t), 0);
	cr_assert_eq(pthread_join(thread, &end), 0);
	cr_assert(atomic_load(&t.finished), "the post was cut off, with the lock held");
	cr_assert_eq(end, PTHREAD_CANCELED);
	cr_assert_eq(karst_destroy_qp(t.qp), 0);
	client_bed_down(&b);
}
