/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A program punches holes into a large memory file, a small part of which is registered, while the
 * engine writes there.  An access to a page of a range that is being punched waits in the kernel
 * until the punching is complete, and the thread that punches has the lowest priority, beside
 * others that use all processors.  So an lcore waits in memory that it has mapped.  The watchdog
 * must detect that, and eject the attachment, whose later requests fail.  The engine and all other
 * programs continue, and no memory of that user is mapped any more.
 */
#include "hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FILE_BYTES  (UINT64_C(1) << 28)
#define PIECE_BYTES 65536u
#define BURNERS     4
#define TRIES       20

struct punch {
	struct end e, a, b, target;
	int fd;
	_Atomic bool go, over;
};

static void *
burn(void *arg)
{
	struct punch *p = arg;

	while (!atomic_load(&p->over))
		;
	return NULL;
}

static void *
punch(void *arg)
{
	const struct sched_param none = {0};
	struct punch *p = arg;

	(void)sched_setscheduler(0, SCHED_IDLE, &none);
	while (!atomic_load(&p->go))
		;
	(void)fallocate(p->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)FILE_BYTES);
	atomic_store(&p->over, true);
	return NULL;
}

/* @after: a program of this user has been ejected before. */
static void
set_up(struct report *r, struct punch *p, const struct host *h, bool after)
{
	uint8_t *all;

	p->fd = memfd_create("punch", MFD_CLOEXEC);
	if (p->fd < 0 || ftruncate(p->fd, (off_t)FILE_BYTES) != 0)
		child_fail(r, "memory file: %s", strerror(errno));
	all = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, p->fd, 0);
	if (all == MAP_FAILED)
		child_fail(r, "mapping: %s", strerror(errno));
	p->target.mem = mmap(NULL, PIECE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, p->fd, 0);
	munmap(all, FILE_BYTES);
	if (end_open(&p->e, h, "punch", PIECE_BYTES, false) != 0 ||
		karst_reg_mr(p->e.pd, p->target.mem, PIECE_BYTES,
			KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE, &p->target.mr) != 0)
		child_fail(r, "attaching: %s", karst_why());
	if ((p->target.mr->copied_bytes != 0) != after)
		child_fail(r, "%lu bytes of a memory file are copied",
			(unsigned long)p->target.mr->copied_bytes);
	p->a = p->b = p->e;
	if (end_qp(&p->a, KARST_QPT_RC) != 0 || end_qp(&p->b, KARST_QPT_RC) != 0 ||
		end_connect(&p->a, p->b.qp->qp_num) != 0 ||
		end_connect(&p->b, p->a.qp->qp_num) != 0)
		child_fail(r, "connecting: %s", karst_why());
}

/* Posts one WRITE after the other, until one fails. */
static void
write_on(struct report *r, struct punch *p)
{
	uint64_t until = now_ms() + HANG_S * 1000;
	struct karst_cqe cqe;
	int ret;

	do {
		if (end_post(&p->a, KARST_WR_RDMA_WRITE, 1, 0, PIECE_BYTES, &p->target, 0) != 0)
			return;
		atomic_store(&p->go, true);
		while ((ret = karst_poll_cq(p->e.cq, 1, &cqe)) == 0 && now_ms() < until)
			;
		if (ret == 0)
			child_fail(r, "a WRITE does not complete");
	} while (ret == 1 && cqe.status == KARST_WC_SUCCESS && now_ms() < until);
	if (ret == 1 && cqe.status == KARST_WC_SUCCESS)
		child_fail(r, "WRITEs to memory that is gone succeed");
}

/* Later programs of that user have nothing by which they could do that again. */
static void
next(struct report *r, void *arg)
{
	static struct punch p;

	child_become_nobody(r);
	set_up(r, &p, arg, true);
	atomic_fetch_add(&r->ops, 1);
}

static void
puncher(struct report *r, void *arg)
{
	static struct punch p;
	pthread_t thread[BURNERS + 1];
	int i;

	child_become_nobody(r);
	set_up(r, &p, arg, false);
	if (pthread_create(&thread[BURNERS], NULL, punch, &p) != 0)
		child_fail(r, "a thread");
	for (i = 0; i < BURNERS; i++)
		if (pthread_create(&thread[i], NULL, burn, &p) != 0)
			child_fail(r, "a thread");
	write_on(r, &p);
	/* nothing needs to delay the punching any more */
	atomic_store(&p.over, true);
	for (i = 0; i <= BURNERS; i++)
		pthread_join(thread[i], NULL);
	atomic_fetch_add(&r->ops, 1);
}

bool
case_punch(const struct options *o)
{
	struct innocents in;
	struct usage before;
	struct child c;
	struct host h;
	bool good = true;
	int i;

	if (!host_up(&h, o->karstd))
		return false;
	/* a user without rights may attach */
	if (!host_for_all(&h) || !innocents_start(&in, &h, o->seed))
		return false;
	sleep_ms(500);
	host_usage(&h, &before);
	/* whether an lcore reaches such a page in time is a matter of chance */
	for (i = 0; good && i < TRIES && host_ask(&h, "/karst/lcores", "ejected_programs") == 0;
		i++) {
		good = child_start(&c, puncher, &h);
		while (good && child_alive(&c))
			sleep_ms(10);
		good = good && child_stop(&c, "the puncher") && innocents_go_on(&in);
	}
	note("%d programs, of which %ld were ejected; the longest turn of an lcore took %ld us", i,
		host_ask(&h, "/karst/lcores", "ejected_programs"),
		host_ask(&h, "/karst/lcores", "longest_turn_ns") / 1000);
	if (good && host_ask(&h, "/karst/lcores", "ejected_programs") > 0)
		good = child_start(&c, next, &h) && child_stop(&c, "the user's next program");
	good &= host_settles(&h, &before, o->grown);
	good &= innocents_stop(&in);
	return host_end(&h, good);
}
