/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Programs take away memory that they have registered, under many regions of many attachments at
 * once: they truncate memory files, or punch holes into them.  The engine must continue, must not
 * need more mappings than before, and must not allocate a page in place of those that are gone.
 */
#include "hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROUNDS       6
#define ATTACHMENTS  12
#define REGIONS      32
#define REGION_BYTES 32768u
#define BYTES        (REGIONS * REGION_BYTES)

struct plan {
	const struct host *host;
	bool punch;
	int attachments; /* up to ATTACHMENTS */
};

/* One attachment, and a file to which all of its regions belong. */
struct robber {
	struct end e, a, b;
	struct end target; /* the file, and a region of it */
	struct karst_mr *mr[REGIONS];
	int fd;
};

static void
attach(struct report *r, struct robber *x, const struct host *h)
{
	unsigned int access = KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE;
	int i;

	x->fd = memfd_create("robber", MFD_CLOEXEC);
	if (x->fd < 0 || ftruncate(x->fd, BYTES) != 0)
		child_fail(r, "memory file: %s", strerror(errno));
	x->target.mem = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, x->fd, 0);
	if (x->target.mem == MAP_FAILED || end_open(&x->e, h, "robber", REGION_BYTES, false) != 0)
		child_fail(r, "attaching: %s", karst_why());
	memset(x->target.mem, 1, BYTES);
	for (i = 0; i < REGIONS; i++)
		if (karst_reg_mr(x->e.pd, x->target.mem + (size_t)i * REGION_BYTES, REGION_BYTES,
			    access, &x->mr[i]) != 0)
			child_fail(r, "registering: %s", karst_why());
	if (x->mr[0]->copied_bytes != 0)
		child_fail(r, "a memory file is copied");
	x->a = x->b = x->e;
	if (end_qp(&x->a, KARST_QPT_RC) != 0 || end_qp(&x->b, KARST_QPT_RC) != 0 ||
		end_connect(&x->a, x->b.qp->qp_num) != 0 ||
		end_connect(&x->b, x->a.qp->qp_num) != 0)
		child_fail(r, "connecting: %s", karst_why());
}

static void
read_all(struct report *r, struct robber *x)
{
	int i;

	for (i = 0; i < REGIONS; i++) {
		x->target.mr = x->mr[i];
		if (end_post(&x->a, KARST_WR_RDMA_READ, (uint64_t)i, 0, REGION_BYTES, &x->target,
			    (size_t)i * REGION_BYTES) != 0)
			child_fail(r, "posting: %s", karst_why());
	}
}

/* @return how many of them have failed. */
static int
wait_all(struct report *r, struct robber *x)
{
	uint64_t until = now_ms() + HANG_S * 1000;
	int i = 0, failed = 0;
	struct karst_cqe cqe;

	while (i < REGIONS && now_ms() < until)
		if (karst_poll_cq(x->e.cq, 1, &cqe) == 1) {
			failed += cqe.status != KARST_WC_SUCCESS;
			i++;
		} else {
			await_completions();
		}
	if (i < REGIONS)
		child_fail(r, "requests do not complete");
	return failed;
}

static void
take_away(struct report *r, const struct robber *x, bool punch)
{
	if (punch ? fallocate(x->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES) != 0
		  : ftruncate(x->fd, 0) != 0)
		child_fail(r, "taking away: %s", strerror(errno));
}

static void
robbers(struct report *r, void *arg)
{
	static struct robber x[ATTACHMENTS];
	const struct plan *plan = arg;
	struct stat st;
	int i;

	/* a karstd that has dropped its rights cannot look at mappings of processes with more
	 * rights */
	child_become_nobody(r);
	for (i = 0; i < plan->attachments; i++) {
		attach(r, &x[i], plan->host);
		read_all(r, &x[i]);
		if (wait_all(r, &x[i]) != 0)
			child_fail(r, "READs fail while everything is there");
	}
	for (i = 0; i < plan->attachments; i++)
		take_away(r, &x[i], plan->punch);
	for (i = 0; i < plan->attachments; i++)
		read_all(r, &x[i]);
	for (i = 0; i < plan->attachments; i++) {
		if (wait_all(r, &x[i]) != REGIONS)
			child_fail(r, "READs of what is gone have succeeded");
		if (fstat(x[i].fd, &st) != 0 || st.st_blocks != 0)
			child_fail(
				r, "the engine has made %ld blocks of a file", (long)st.st_blocks);
		atomic_fetch_add(&r->ops, 1);
	}
}

/* Once: a program that has lost its memory is not served any more, so the next process
 * continues. */
void
attack_takeaway(struct report *r, void *arg)
{
	const struct attack_start *s = arg;
	struct plan plan = {s->host, s->seed % 2, 3};

	robbers(r, &plan);
}

/* --- the case --- */

static bool
one_round(const struct host *h, bool punch)
{
	struct plan plan = {h, punch, ATTACHMENTS};
	uint64_t until = now_ms() + 2 * HANG_S * 1000;
	struct child c;

	if (!child_start(&c, robbers, &plan))
		return false;
	while (child_alive(&c) && host_alive(h) && now_ms() < until)
		sleep_ms(5);
	return child_stop(&c, punch ? "who punches holes" : "who cuts off");
}

bool
case_takeaway(const struct options *o)
{
	struct innocents in;
	struct usage before;
	struct host h;
	bool good;
	int i;

	if (!host_up(&h, o->karstd))
		return false;
	if (chmod(h.folder, 0711) != 0 || chmod(h.sock, 0666) != 0)
		note("%s: %s", h.folder, strerror(errno));
	/* allocations that are made once and kept are made first */
	good = one_round(&h, false) & one_round(&h, true);
	good = innocents_start(&in, &h, o->seed) && good;
	sleep_ms(200);
	host_usage(&h, &before);
	for (i = 0; i < ROUNDS && good; i++)
		good = one_round(&h, i % 2 != 0) && innocents_go_on(&in);
	note("%d times %d attachments with %d regions each", ROUNDS, ATTACHMENTS, REGIONS);
	good &= host_settles(&h, &before, o->grown);
	good &= innocents_stop(&in);
	return host_end(&h, good);
}
