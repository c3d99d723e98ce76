/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The program of late_program.h, and how cases start and stop it. */
#include "late_program.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "late_file.h"

#define PAGE  4096u
#define PAGES 16384u /* each page is late once: a second access is not, so this ends */

static uint8_t *
late_memory(struct report *r, uint32_t delay_us)
{
	void *p;
	const char *fault = late_file_map((size_t)PAGES * PAGE, delay_us, &p);

	if (fault != NULL)
		child_fail(r, "%s: %s", fault, strerror(errno));
	return p;
}

static void
connect_ends(struct report *r, const struct host *h, struct end *a, struct end *b, uint8_t *late)
{
	unsigned int access = KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE |
		KARST_ACCESS_REMOTE_READ | KARST_ACCESS_REMOTE_ATOMIC;

	if (end_open(a, h, "late a", 8 * PAGE, false) != 0 ||
		end_open(b, h, "late b", 8 * PAGE, false) != 0)
		child_fail(r, "attaching: %s", karst_why());
	if (karst_dereg_mr(b->mr) != 0 ||
		karst_reg_mr(b->pd, late, (size_t)PAGES * PAGE, access | KARST_ACCESS_ON_DEMAND,
			&b->mr) != 0)
		child_fail(r, "memory on demand: %s", karst_why());
	b->mem = late;
	if (end_qp(a, KARST_QPT_RC) != 0 || end_qp(b, KARST_QPT_RC) != 0 ||
		end_connect(b, a->qp->qp_num) != 0 || end_connect(a, b->qp->qp_num) != 0)
		child_fail(r, "connecting: %s", karst_why());
}

/* Writes, reads, sends from and adds to page after page. */
static int
post(struct end *a, struct end *b, uint32_t i)
{
	size_t page = (size_t)(i % PAGES) * PAGE;

	switch (i % 4) {
	case 0:
		return end_post(a, KARST_WR_RDMA_WRITE, i, 0, 64, b, page + 100);
	case 1:
		return end_post(a, KARST_WR_RDMA_READ, i, 0, 64, b, page);
	case 2:
		return end_post(b, KARST_WR_RDMA_WRITE, i, page, 64, a, 0);
	default:
		return end_post(a, KARST_WR_ATOMIC_FAA, i, 0, 8, b, page + 8);
	}
}

/* Another queue pair between the same attachments.  With two lcores each attachment then has one of
 * either, because they are placed by turns. */
static void
connect_more(struct report *r, struct end *a, struct end *b)
{
	a->qp = b->qp = NULL;
	if (end_qp(b, KARST_QPT_RC) != 0 || end_qp(a, KARST_QPT_RC) != 0 ||
		end_connect(b, a->qp->qp_num) != 0 || end_connect(a, b->qp->qp_num) != 0)
		child_fail(r, "connecting two more: %s", karst_why());
}

static void
late(struct report *r, void *arg)
{
	const struct late_program *s = arg;
	struct end a, b, a2, b2;
	uint32_t posted = 0, done = 0;
	uint8_t *mem;

	mem = late_memory(r, s->delay_us);
	if (s->nobody)
		child_become_nobody(r);
	connect_ends(r, s->host, &a, &b, mem);
	a2 = a;
	b2 = b;
	connect_more(r, &a2, &b2);
	/* The first operations of both reach the lcore in one turn, so it begins several copies at
	 * one safe point.  Not each of them may take a thread with it. */
	kill(s->host->pid, SIGSTOP);
	for (; posted < 8; posted++)
		if (post(posted < 4 ? &a : &a2, posted < 4 ? &b : &b2, posted) != 0)
			child_fail(r, "posting: %s", karst_why());
	kill(s->host->pid, SIGCONT);
	while (!atomic_load(&r->stop)) {
		struct karst_cqe cqe[16];
		int i, n;

		if (posted - done < 16 && post(&a, &b, posted) == 0)
			posted++;
		n = karst_poll_cq(a.cq, 16, cqe);
		if (n <= 0)
			n = karst_poll_cq(b.cq, 16, cqe);
		for (i = 0; i < n; i++) {
			atomic_fetch_add(&r->ops, cqe[i].status == KARST_WC_SUCCESS);
			if (cqe[i].status != KARST_WC_SUCCESS && s->delay_us != LATE_NEVER)
				child_fail(r, "%s",
					karst_wc_status_str((enum karst_wc_status)cqe[i].status));
			if (cqe[i].status != KARST_WC_SUCCESS)
				atomic_store(&r->ready, true);
			done++;
		}
		/* about as long as a page takes */
		if (n <= 0)
			sleep_ms(1);
	}
	_exit(0);
}

/* --- for cases --- */

bool
late_program_start(struct child *c, const struct late_program *s)
{
	return child_start(c, late, (void *)(uintptr_t)s);
}

bool
late_programs_keep_going(struct child *c, int n, const struct late_program *s)
{
	bool good = true;
	int i;

	for (i = 0; i < n && good; i++)
		if (!child_alive(&c[i])) {
			child_stop(&c[i], "late program");
			good = late_program_start(&c[i], s);
		}
	return good;
}

bool
late_programs_stop(struct child *c, int n)
{
	bool good = true;
	int i;

	for (i = 0; i < n; i++)
		if (c[i].pid != 0)
			good &= child_stop(&c[i], "late program");
	return good;
}
