/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * An innocent pair: two attachments in one process, with a queue pair each.  In each of a few slots
 * one operation after another goes from one side to the other: WRITE, READ, SEND or fetch-and-add,
 * of any length at any offset.  When it has completed, every byte of the slot must be right, also
 * those in front of it and behind it.  One of the pairs has memory that the engine copies, the
 * other memory that the engine maps.
 */
#include "hostile.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SLOTS      8
#define SLOT_BYTES 20000u
#define COUNTER    (SLOTS * SLOT_BYTES)
#define MEM_BYTES  (COUNTER + 8 * (SLOTS + 1))
#define PATTERN    0xa5
#define AT_A_TIME  (2 * SLOTS) /* operations, then a pause for other processes */

struct slot {
	enum karst_wr_opcode op;
	uint32_t off, len;
	uint64_t seed;
	bool busy;
	bool sent, received;
};

struct pair {
	struct report *r;
	struct end a, b;
	struct slot slot[SLOTS];
	struct dice dice;
	uint64_t added;
};

struct start {
	const struct host *host;
	uint64_t seed;
	bool copied;
};

static void
fill(uint8_t *to, uint32_t len, uint64_t seed)
{
	struct dice d = {seed};
	uint32_t i;

	for (i = 0; i + 8 <= len; i += 8) {
		uint64_t x = dice_roll(&d);

		memcpy(to + i, &x, 8);
	}
	for (; i < len; i++)
		to[i] = (uint8_t)dice_roll(&d);
}

/* --- starting an operation --- */

static void
begin(struct pair *p, uint32_t i)
{
	static const enum karst_wr_opcode ops[] = {
		KARST_WR_RDMA_WRITE, KARST_WR_RDMA_READ, KARST_WR_SEND, KARST_WR_ATOMIC_FAA};
	struct slot *s = &p->slot[i];
	uint32_t at = i * SLOT_BYTES;
	const uint8_t *from;
	int ret = 0;

	s->op = ops[dice_below(&p->dice, KARST_DIM(ops))];
	s->len = 1 + dice_below(&p->dice, dice_below(&p->dice, 4) == 0 ? SLOT_BYTES : 256);
	s->off = dice_below(&p->dice, SLOT_BYTES - s->len + 1);
	s->seed = dice_roll(&p->dice);
	s->busy = true;
	s->sent = false;
	s->received = s->op != KARST_WR_SEND;
	from = s->op == KARST_WR_RDMA_READ ? p->b.mem : p->a.mem;
	memset((s->op == KARST_WR_RDMA_READ ? p->a.mem : p->b.mem) + at, PATTERN, SLOT_BYTES);
	fill((uint8_t *)(uintptr_t)from + at + s->off, s->len, s->seed);
	if (s->op == KARST_WR_SEND)
		ret = end_post_recv(&p->b, i, at + s->off, SLOT_BYTES - s->off);
	if (ret == 0 && s->op == KARST_WR_ATOMIC_FAA)
		ret = end_post(&p->a, s->op, i, COUNTER + 8 * (i + 1), 8, &p->b, COUNTER);
	else if (ret == 0)
		ret = end_post(&p->a, s->op, i, at + s->off, s->len, &p->b, at + s->off);
	if (ret != 0)
		child_fail(p->r, "posting operation %d: %s", (int)s->op, karst_why());
}

/* --- checking it --- */

static void
check_bytes(struct pair *p, uint32_t i)
{
	const struct slot *s = &p->slot[i];
	const uint8_t *mem = (s->op == KARST_WR_RDMA_READ ? p->a.mem : p->b.mem) + i * SLOT_BYTES;
	static uint8_t want[SLOT_BYTES];
	uint32_t at;

	memset(want, PATTERN, SLOT_BYTES);
	fill(want + s->off, s->len, s->seed);
	if (memcmp(mem, want, SLOT_BYTES) == 0)
		return;
	for (at = 0; mem[at] == want[at];)
		at++;
	child_fail(p->r,
		"operation %d of %u bytes at %u, the %" PRIu64 "th: byte %u is %#x, not %#x",
		(int)s->op, s->len, s->off, atomic_load(&p->r->ops), at, mem[at], want[at]);
}

static void
check_counter(struct pair *p, uint32_t i)
{
	uint64_t old;

	memcpy(&old, p->a.mem + COUNTER + 8 * (i + 1), 8);
	if (old != p->added)
		child_fail(p->r, "the counter was %" PRIu64 ", not %" PRIu64, old, p->added);
	p->added++;
}

static void
end_op(struct pair *p, uint32_t i)
{
	struct slot *s = &p->slot[i];

	if (!s->sent || !s->received)
		return;
	if (s->op == KARST_WR_ATOMIC_FAA)
		check_counter(p, i);
	else
		check_bytes(p, i);
	s->busy = false;
	atomic_fetch_add(&p->r->ops, 1);
	atomic_fetch_add(&p->r->bytes, s->op == KARST_WR_ATOMIC_FAA ? 8 : s->len);
}

static uint32_t
poll_end(struct pair *p, struct end *e)
{
	struct karst_cqe cqes[16];
	int i, n = karst_poll_cq(e->cq, KARST_DIM(cqes), cqes);

	if (n < 0)
		child_fail(p->r, "polling: %s", karst_why());
	for (i = 0; i < n; i++) {
		struct slot *s = &p->slot[cqes[i].wr_id % SLOTS];

		if (cqes[i].status != KARST_WC_SUCCESS || cqes[i].wr_id >= SLOTS || !s->busy)
			child_fail(p->r, "completion %" PRIu64 " of operation %d: %s",
				cqes[i].wr_id, (int)s->op,
				karst_wc_status_str((enum karst_wc_status)cqes[i].status));
		if (cqes[i].opcode & KARST_WC_RECV) {
			if (s->received || cqes[i].byte_len != s->len)
				child_fail(p->r, "a message of %u bytes, not %u", cqes[i].byte_len,
					s->len);
			s->received = true;
		} else {
			if (s->sent)
				child_fail(p->r, "completed twice");
			s->sent = true;
		}
		end_op(p, (uint32_t)cqes[i].wr_id);
	}
	return (uint32_t)n;
}

/* --- the process --- */

static void
open_pair(struct pair *p, const struct start *s)
{
	if (end_open(&p->a, s->host, "innocent a", MEM_BYTES, s->copied) != 0 ||
		end_open(&p->b, s->host, "innocent b", MEM_BYTES, s->copied) != 0 ||
		end_qp(&p->a, KARST_QPT_RC) != 0 || end_qp(&p->b, KARST_QPT_RC) != 0 ||
		end_connect(&p->b, p->a.qp->qp_num) != 0 ||
		end_connect(&p->a, p->b.qp->qp_num) != 0)
		child_fail(p->r, "attaching: %s", karst_why());
	if ((p->a.mr->copied_bytes != 0) != s->copied)
		child_fail(p->r, "%" PRIu64 " bytes are copied", p->a.mr->copied_bytes);
	p->r->qpn[0] = p->a.qp->qp_num;
	p->r->qpn[1] = p->b.qp->qp_num;
	atomic_store(&p->r->ready, true);
}

static void
innocent(struct report *r, void *arg)
{
	const struct start *s = arg;
	static struct pair p;
	uint64_t last, rested = 0;
	uint32_t i, busy;

	p.r = r;
	p.dice.state = s->seed;
	open_pair(&p, s);
	last = now_ms();
	do {
		bool stop = atomic_load(&r->stop);

		for (i = busy = 0; i < SLOTS; i++) {
			if (!p.slot[i].busy && !stop)
				begin(&p, i);
			busy += p.slot[i].busy;
		}
		if (poll_end(&p, &p.a) + poll_end(&p, &p.b) > 0) {
			last = now_ms();
			if (atomic_load(&r->ops) < rested + AT_A_TIME)
				continue;
			rested = atomic_load(&r->ops);
			sleep_ms(1);
			continue;
		}
		if (now_ms() - last > atomic_load(&r->pause_ms))
			atomic_store(&r->pause_ms, now_ms() - last);
		if (now_ms() - last > HANG_S * 1000)
			child_fail(r, "nothing completes any more");
		await_completions();
	} while (busy > 0);
	if (end_close(&p.a) != 0 || end_close(&p.b) != 0)
		child_fail(r, "closing: %s", karst_why());
}

/* --- for the tests --- */

bool
innocents_start(struct innocents *in, const struct host *h, uint64_t seed)
{
	int i;

	in->host = h;
	for (i = 0; i < INNOCENTS; i++) {
		struct start s = {.host = h, .seed = seed + (uint64_t)i, .copied = i % 2 != 0};

		in->ops[i] = 0;
		if (!child_start(&in->child[i], innocent, &s))
			return false;
		(void)child_until_ready(&in->child[i]);
	}
	return innocents_go_on(in);
}

bool
innocents_go_on(struct innocents *in)
{
	uint64_t until = now_ms() + HANG_S * 1000;
	int i;

	for (i = 0; i < INNOCENTS; i++) {
		struct child *c = &in->child[i];

		while (atomic_load(&c->report->ops) < in->ops[i] + 2 * SLOTS) {
			if (!child_alive(c) || now_ms() > until) {
				note("innocent pair %d stands still after %" PRIu64
				     " operations: %s",
					i, atomic_load(&c->report->ops), c->report->fault);
				return false;
			}
			sleep_ms(1);
		}
		in->ops[i] = atomic_load(&c->report->ops);
	}
	return true;
}

/* Checks that nothing was sent again, and that no timer fired. */
static bool
sent_once(const struct host *h, const struct report *r)
{
	static const char *const never[] = {
		"retransmits", "timeouts", "seq_naks", "rnr_naks", "out_of_sequence", "duplicates"};
	bool good = true;
	char cmd[64];
	size_t i, j;

	for (i = 0; i < 2; i++) {
		snprintf(cmd, sizeof(cmd), "/karst/qp,%u", r->qpn[i]);
		for (j = 0; j < KARST_DIM(never); j++) {
			long n = host_ask(h, cmd, never[j]);

			if (n != 0) {
				note("queue pair %u of an innocent: %ld %s", r->qpn[i], n,
					never[j]);
				good = false;
			}
		}
	}
	if (!good) {
		host_show(h, "/karst/drops");
		host_show(h, "/karst/lcores");
		host_show(h, "/karst/ports");
	}
	return good;
}

bool
innocents_stop(struct innocents *in)
{
	bool good = true;
	int i;

	for (i = 0; i < INNOCENTS; i++) {
		struct child *c = &in->child[i];

		good &= sent_once(in->host, c->report);
		note("innocent pair %d: %" PRIu64 " operations, %" PRIu64
		     " bytes, each looked at; longest pause %" PRIu64 " ms",
			i, atomic_load(&c->report->ops), atomic_load(&c->report->bytes),
			atomic_load(&c->report->pause_ms));
		good &= child_stop(c, "innocent pair");
	}
	return host_rests(in->host) && good;
}
