/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Programs that are killed (SIGKILL) at any moment: while they attach, create, register, connect,
 * move data, wait for an address, or destroy.  Several run at once, so that the engine cleans up
 * after one while it serves the others.  And a program whose peer is killed.
 */
#include "hostile.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define VICTIMS   4
#define LIFE_MS   60
#define DEFAULT_N 150
#define MEM_BYTES (1u << 19)

/* Creates more of the objects that a program can have. */
static void
extras(struct report *r, struct end *e)
{
	const struct karst_srq_init_attr srq_init = {.max_wr = 64, .max_sge = 1};
	struct karst_comp_channel *channel;
	struct karst_ah_attr ah_attr = {.port_num = 1};
	struct karst_srq *srq;
	struct karst_ah *ah;
	struct karst_cq *cq;
	struct karst_mw *mw;

	if (karst_create_comp_channel(e->ctx, &channel) != 0 ||
		karst_create_cq(e->ctx, 100, NULL, channel, &cq) != 0 ||
		karst_create_srq(e->pd, &srq_init, &srq) != 0 ||
		karst_alloc_mw(e->pd, KARST_MW_TYPE_2, &mw) != 0 ||
		karst_query_gid(e->ctx, 1, 0, &ah_attr.dgid) != 0 ||
		karst_create_ah(e->pd, &ah_attr, &ah) != 0)
		child_fail(r, "creating: %s", karst_why());
}

static void
work(struct report *r, struct end *a, struct end *b)
{
	struct karst_cqe cqes[16];
	int i, n;

	while (end_post(a, KARST_WR_RDMA_WRITE, 1, 0, 60000, b, 64) == 0)
		;
	while (end_post(b, KARST_WR_RDMA_READ, 2, 100000, 50000, a, 100000) == 0)
		;
	n = karst_poll_cq(a->cq, KARST_DIM(cqes), cqes);
	for (i = 0; i < n; i++)
		if (cqes[i].status != KARST_WC_SUCCESS)
			child_fail(
				r, "%s", karst_wc_status_str((enum karst_wc_status)cqes[i].status));
	if (karst_poll_cq(b->cq, KARST_DIM(cqes), cqes) + n <= 0)
		await_completions();
	atomic_fetch_add(&r->ops, 1);
}

void
attack_kill(struct report *r, void *arg)
{
	const struct attack_start *s = arg;
	struct dice d = {s->seed};

	for (;;) {
		uint32_t rounds = dice_below(&d, 200);
		struct end a, b;

		if (end_open(&a, s->host, "victim a", MEM_BYTES, dice_below(&d, 2)) != 0 ||
			end_open(&b, s->host, "victim b", MEM_BYTES, dice_below(&d, 2)) != 0 ||
			end_qp(&a, KARST_QPT_RC) != 0 || end_qp(&b, KARST_QPT_RC) != 0 ||
			end_connect(&b, a.qp->qp_num) != 0 || end_connect(&a, b.qp->qp_num) != 0)
			child_fail(r, "attaching: %s", karst_why());
		atomic_store(&r->ready, true);
		if (dice_below(&d, 2)) {
			extras(r, &a);
			for (;;)
				work(r, &a, &b);
		}
		while (rounds-- > 0)
			work(r, &a, &b);
		if (end_close(&a) != 0 || end_close(&b) != 0)
			child_fail(r, "closing: %s", karst_why());
	}
}

/* Kills @n; @return false: one ended before it was killed. */
static bool
massacre(const struct host *h, struct dice *d, uint32_t n, struct innocents *in)
{
	struct child c[VICTIMS] = {{0}};
	uint32_t i, killed = 0;
	bool good = true;

	while (good && killed < n) {
		i = dice_below(d, VICTIMS);
		if (c[i].pid == 0) {
			struct attack_start s = {h, dice_roll(d)};

			good = child_start(&c[i], attack_kill, &s);
			sleep_ms(dice_below(d, LIFE_MS / VICTIMS));
			continue;
		}
		/* every second one has time to attach, however slow that is */
		if (dice_below(d, 2))
			(void)child_until_ready(&c[i]);
		sleep_ms(dice_below(d, LIFE_MS / VICTIMS));
		if (!child_alive(&c[i])) {
			note("a victim ended of itself: %s", c[i].report->fault);
			good = false;
		}
		child_kill(&c[i]);
		if (++killed % 50 == 0 && in != NULL)
			good &= innocents_go_on(in);
	}
	for (i = 0; i < VICTIMS; i++)
		if (c[i].pid != 0)
			child_kill(&c[i]);
	return good;
}

/* --- the peer of a killed program --- */

#define PEER_LEN 1000u

static void
peer(struct report *r, void *arg)
{
	const struct attack_start *s = arg;
	struct end e;
	uint32_t i;

	if (end_open(&e, s->host, "peer", MEM_BYTES, false) != 0 || end_qp(&e, KARST_QPT_RC) != 0 ||
		end_connect(&e, r->qpn[1]) != 0)
		child_fail(r, "attaching: %s", karst_why());
	for (i = 0; i < 64; i++)
		if (end_post_recv(&e, i, 0, PEER_LEN) != 0)
			child_fail(r, "posting: %s", karst_why());
	r->qpn[0] = e.qp->qp_num;
	atomic_store(&r->ready, true);
	for (;;)
		sleep_ms(1000);
}

/* Sends to it; @return the status of the first send that fails; -1: none completes. */
static int
send_until_error(struct end *e, struct child *c)
{
	uint64_t until = now_ms() + HANG_S * 1000;
	uint32_t good = 0, out = 0;

	while (now_ms() < until) {
		struct karst_cqe cqe;

		if (out == 0 && end_post(e, KARST_WR_SEND, good, 0, PEER_LEN, NULL, 0) == 0)
			out++;
		if (karst_poll_cq(e->cq, 1, &cqe) != 1) {
			await_completions();
			continue;
		}
		out--;
		if (cqe.status != KARST_WC_SUCCESS)
			return cqe.status;
		if (++good == 10)
			child_kill(c);
	}
	return -1;
}

/* A program whose peer is killed learns it when its retries are exhausted. */
static bool
bereaved(const struct host *h)
{
	struct end e;
	struct child c = {0};
	struct attack_start s = {h, 0};
	int status = -1;

	if (end_open(&e, h, "bereaved", MEM_BYTES, false) != 0 || end_qp(&e, KARST_QPT_RC) != 0) {
		note("attaching: %s", karst_why());
		return false;
	}
	e.timeout = 14; /* 67 ms, 8 times */
	if (!child_start_told(&c, peer, &s, e.qp->qp_num))
		return false;
	if (!child_until_ready(&c) || end_connect(&e, c.report->qpn[0]) != 0)
		note("peer: %s%s", c.report->fault, karst_why());
	else
		status = send_until_error(&e, &c);
	if (c.pid != 0)
		child_kill(&c);
	if (status != KARST_WC_RETRY_EXC_ERR)
		note("sends to a peer that was killed: status %d", status);
	return end_close(&e) == 0 && status == KARST_WC_RETRY_EXC_ERR;
}

bool
case_kill(const struct options *o)
{
	uint32_t kills = o->kills != 0 ? o->kills : DEFAULT_N;
	struct dice d = {o->seed};
	struct innocents in;
	struct usage before;
	struct host h;
	bool good;

	if (!host_up(&h, o->karstd))
		return false;
	/* allocations that are made once and kept are made first */
	good = massacre(&h, &d, 2 * VICTIMS, NULL);
	good = innocents_start(&in, &h, dice_roll(&d)) && good;
	sleep_ms(1000);
	host_usage(&h, &before);
	good = good && massacre(&h, &d, kills, &in);
	note("%u kills", kills);
	good = innocents_go_on(&in) && good;
	good = bereaved(&h) && good;
	good &= host_settles(&h, &before, o->grown);
	good &= innocents_stop(&in);
	return host_end(&h, good);
}
