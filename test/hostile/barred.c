/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The programs of one user block threads of an lcore.  When they block as many as a user may,
 * memory of this user is not copied any more; that of other users is. */
#include "late_program.h"

#include <unistd.h>

#include "late_file.h"

#define PAGE    4096u
#define THREADS 4 /* of one lcore, that a user's programs may hold (watch.c) */

/* One WRITE between two attachments whose memory the engine copies; word[0] gets its status. */
static void
once(struct report *r, void *arg)
{
	const struct late_program *s = arg;
	struct karst_cqe cqe;
	struct end a, b;
	int n;

	child_become_nobody(r);
	if (end_open(&a, s->host, "once a", PAGE, true) != 0 ||
		end_open(&b, s->host, "once b", PAGE, true) != 0 || end_qp(&a, KARST_QPT_RC) != 0 ||
		end_qp(&b, KARST_QPT_RC) != 0 || end_connect(&b, a.qp->qp_num) != 0 ||
		end_connect(&a, b.qp->qp_num) != 0 ||
		end_post(&a, KARST_WR_RDMA_WRITE, 1, 0, 64, &b, 0) != 0)
		child_fail(r, "attaching: %s", karst_why());
	while ((n = karst_poll_cq(a.cq, 1, &cqe)) == 0)
		sleep_ms(1);
	if (n < 0)
		child_fail(r, "polling: %s", karst_why());
	atomic_store(&r->word[0], cqe.status);
	if (end_close(&a) != 0 || end_close(&b) != 0)
		child_fail(r, "closing: %s", karst_why());
	atomic_store(&r->ready, true);
	while (!atomic_load(&r->stop))
		sleep_ms(1);
}

static bool
once_is(const struct late_program *s, enum karst_wc_status want)
{
	enum karst_wc_status status;
	struct child c;
	bool good;

	if (!child_start(&c, once, (void *)(uintptr_t)s))
		return false;
	good = child_until_ready(&c);
	status = (enum karst_wc_status)atomic_load(&c.report->word[0]);
	if (good && status != want) {
		note("a WRITE of the same user ends with %s, not %s", karst_wc_status_str(status),
			karst_wc_status_str(want));
		good = false;
	}
	return child_stop(&c, "program of the same user") && good;
}

/* A user's programs hold threads until that user's memory is not copied any more; others' is. */
static bool
barred_by_four(const struct options *o)
{
	struct child c[THREADS] = {{0}};
	struct innocents in;
	struct host h;
	const struct late_program s = {.host = &h, .delay_us = LATE_NEVER, .nobody = true};
	bool good;
	int i;

	if (!host_up(&h, o->karstd))
		return false;
	(void)host_for_all(&h);
	good = innocents_start(&in, &h, o->seed);
	for (i = 0; i < THREADS - 1; i++)
		good = good && late_program_start(&c[i], &s);
	for (i = 0; i < THREADS - 1; i++)
		good = good && child_until_ready(&c[i]);
	good = good && host_until_stuck(&h, THREADS - 1, THREADS - 1) &&
		once_is(&s, KARST_WC_SUCCESS) && late_program_start(&c[i], &s) &&
		child_until_ready(&c[i]) && host_until_stuck(&h, THREADS, THREADS) &&
		once_is(&s, KARST_WC_LOC_PROT_ERR) && innocents_go_on(&in);
	good &= late_programs_stop(c, THREADS);
	good = good && host_until_stuck(&h, 0, 0) && once_is(&s, KARST_WC_SUCCESS);
	good &= innocents_stop(&in);
	return host_end(&h, good);
}

/* Two programs with queue pairs on two lcores hold four threads, but only two of each lcore. */
static bool
allowed_with_two_lcores(const struct options *o)
{
	struct child c[THREADS / 2] = {{0}};
	struct host h;
	const struct late_program s = {.host = &h, .delay_us = LATE_NEVER, .nobody = true};
	bool good = true;
	int i;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
		note("one processor: not with two lcores");
		return true;
	}
	if (!host_up_as(&h, o->karstd, "lcores = 0,1\n", ""))
		return false;
	(void)host_for_all(&h);
	for (i = 0; i < THREADS / 2; i++)
		good = good && late_program_start(&c[i], &s);
	for (i = 0; i < THREADS / 2; i++)
		good = good && child_until_ready(&c[i]);
	sleep_ms(200); /* until threads of both lcores have been given up */
	good = good && once_is(&s, KARST_WC_SUCCESS);
	good &= late_programs_stop(c, THREADS / 2);
	return host_end(&h, good);
}

bool
case_barred(const struct options *o)
{
	if (!can_serve_files() || !can_be_two_users())
		return true;
	return barred_by_four(o) && allowed_with_two_lcores(o);
}
