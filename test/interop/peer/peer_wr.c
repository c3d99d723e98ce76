/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The work requests of interop-peer: which items a step has and where their bytes are, posting them
 * and the receives for them, waiting for completions.
 *
 * Ranges of items follow each other in each buffer, a few bytes apart and at odd addresses, so that
 * no item overwrites another and bytes beyond a range hit bytes that must not change.
 */
#include "peer.h"

#include <arpa/inet.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FAA_CELL  8u  /* all fetch-and-adds of a step go there, so that one that runs twice shows */
#define FIRST_OFF 24u /* behind it */

#define NAP_FIRST_US 100u
#define NAP_MAX_US   20000u

bool
item_receives(const struct item *item)
{
	return item->op == OP_SEND || item->op == OP_SEND_IMM || item->op == OP_SEND_INV ||
		item->op == OP_WRITE_IMM;
}

static bool
in_area(enum op op)
{
	return op >= OP_WRITE && op <= OP_AWRITE;
}

static bool
wr_is_atomic(enum op op)
{
	return op == OP_CAS || op == OP_FAA || op == OP_AWRITE;
}

/* --- which items --- */

static enum op
mixed_op(const struct peer *p, uint64_t random)
{
	static const enum op rc[] = {
		OP_SEND, OP_SEND_IMM, OP_WRITE, OP_WRITE_IMM, OP_READ, OP_READ, OP_CAS, OP_FAA};
	static const enum op uc[] = {OP_SEND, OP_SEND_IMM, OP_WRITE, OP_WRITE_IMM};

	if (p->opt.qp_type == IBV_QPT_UD)
		return uc[random % 2];
	return p->opt.qp_type == IBV_QPT_UC ? uc[random % 4] : rc[random % 8];
}

/* Where the range of @item begins in the area; @cursor: after the previous one. */
static uint32_t
area_place(const struct peer *p, const struct step *s, const struct item *item, uint32_t cursor)
{
	uint32_t window = s->flags & F_WINDOW ? WINDOW_OFF : 0;
	uint32_t end = s->flags & F_WINDOW ? WINDOW_OFF + p->window_len : p->area.size;

	/* the size is not known yet when memory is planned; the range is not part of it anyway */
	if (s->flags & F_END && p->area.size > 0)
		return wr_is_atomic(item->op) ? end : end - item->len / 2;
	if (item->op == OP_FAA)
		return window + FAA_CELL + !!(s->flags & F_ODD);
	if (wr_is_atomic(item->op))
		return window + (cursor + 7) / 8 * 8 + !!(s->flags & F_ODD);
	return window + cursor;
}

static uint32_t
aligned(uint32_t off)
{
	return (off + 7) / 8 * 8;
}

uint32_t
step_items(const struct peer *p, const struct step *s, struct item *items, uint32_t *local_bytes,
	uint32_t *area_bytes, uint32_t *recv_bytes)
{
	uint32_t local = FIRST_OFF, area = FIRST_OFF, recvs = 0, n, gap;
	uint64_t random = pattern_mix(s->len + 1);
	struct item *item;

	if (s->op > OP_MIX) {
		*local_bytes = *recv_bytes = 0;
		*area_bytes = s->op == OP_BIND1 || s->op == OP_BIND2 ? WINDOW_OFF + s->len : 0;
		return 0;
	}
	for (n = 0; n < s->count; n++) {
		item = &items[n];
		random = pattern_mix(random + n);
		item->op = s->op == OP_MIX ? mixed_op(p, random >> 20) : s->op;
		item->len = s->op != OP_MIX            ? s->len
			: wr_is_atomic(item->op)       ? 8
			: p->opt.qp_type == IBV_QPT_UD ? random % (p->opt.mtu + 1)
						       : random % (3 * p->opt.mtu + 2);
		item->add = pattern_mix(random ^ 1);
		item->swap = pattern_mix(random ^ 2);
		gap = 3 + random % 11;
		item->local_off = wr_is_atomic(item->op) ? aligned(local) : local;
		local = item->local_off + item->len + gap;
		item->area_off = in_area(item->op) ? area_place(p, s, item, area) : 0;
		if (in_area(item->op) && !(s->flags & F_END))
			area += 8 + item->len + gap;
		if (item_receives(item))
			recvs += 64 + GRH_BYTES +
				(s->recv_len > (int32_t)item->len ? (uint32_t)s->recv_len
								  : item->len);
	}
	*local_bytes = local;
	*area_bytes = area + (s->flags & F_WINDOW ? WINDOW_OFF : 0);
	*recv_bytes = recvs;
	return n;
}

/* --- receives --- */

/* Splits contiguous bytes into @n SGEs.  @return how many: at most one if there are no bytes. */
static int
pieces(struct ibv_sge *sge, uint8_t *at, uint32_t len, uint32_t lkey, uint32_t n)
{
	uint32_t i, part;

	if (len < n)
		n = len > 0;
	for (i = 0; i < n; i++) {
		part = i + 1 < n ? len / n : len;
		sge[i] = (struct ibv_sge){(uintptr_t)at, part, lkey};
		at += part;
		len -= part;
	}
	return (int)n;
}

static void
recv_post(struct peer *p, uint32_t len)
{
	uint32_t lkey = p->recv_mr->lkey ^ (p->step->flags & F_BAD_RECV ? p->bad_key : 0);
	struct recv *r = &p->posted[p->n_posted];
	struct ibv_recv_wr wr = {.wr_id = p->recv_cursor}, *bad;
	struct ibv_sge sge[MAX_SGE];
	int err;

	*r = (struct recv){p->recv_cursor, len};
	if (p->n_posted == MAX_ITEMS || r->off + len > p->recvs.size)
		die(p, "too many receives are outstanding");
	wr.sg_list = sge;
	wr.num_sge = pieces(sge, p->recvs.bytes + r->off, len, lkey, p->step->recv_sge);
	err = p->srq != NULL ? ibv_post_srq_recv(p->srq, &wr, &bad)
			     : ibv_post_recv(p->qp, &wr, &bad);
	if (err != 0)
		die(p, "posting a receive: %s", strerror(err));
	p->n_posted++;
	p->recv_cursor += len + 19; /* bytes in between are watched */
}

void
recvs_post(struct peer *p, const struct item *items, uint32_t n)
{
	uint32_t grh = p->opt.qp_type == IBV_QPT_UD ? GRH_BYTES : 0, left = p->n_posted, i, len;
	const struct step *s = p->step;

	for (i = 0; i < n; i++) {
		if (!item_receives(&items[i]))
			continue;
		if (left > 0) { /* of a message that was lost */
			left--;
			continue;
		}
		/* some fit exactly, some do not */
		len = items[i].op == OP_WRITE_IMM ? 0 : items[i].len + (p->number + i) % 2 * 9;
		if (s->recv_len >= 0)
			len = (uint32_t)s->recv_len;
		recv_post(p, len + grh);
	}
}

/* --- requests --- */

static uint32_t
rkey_of(const struct peer *p)
{
	const uint32_t *rkey = p->other.rkey;
	uint32_t flags = p->step->flags;

	if (flags & F_WINDOW)
		return p->window_rkey[!p->me];
	return flags & F_BAD_KEY       ? rkey[KEY_ALL] ^ p->bad_key
		: flags & F_DEAD_KEY   ? rkey[KEY_DEAD]
		: flags & F_OTHER_PD   ? rkey[KEY_OTHER_PD]
		: flags & F_READ_ONLY  ? rkey[KEY_READ]
		: flags & F_WRITE_ONLY ? rkey[KEY_WRITE]
		: flags & F_NO_REMOTE  ? rkey[KEY_NONE]
				       : rkey[KEY_ALL];
}

static unsigned int
send_flags(const struct step *s, bool last)
{
	return (s->flags & F_UNSIGNALLED && !last ? 0 : IBV_SEND_SIGNALED) |
		(s->flags & F_INLINE ? IBV_SEND_INLINE : 0) |
		(s->flags & F_SOLICITED ? IBV_SEND_SOLICITED : 0) |
		(s->flags & F_FENCE ? IBV_SEND_FENCE : 0);
}

static void
awrite_post(struct peer *p, const struct item *item, uint64_t wr_id, bool last)
{
	int err;

	if (p->qpx == NULL || !p->other.atomic_write)
		die(p, "no ATOMIC WRITE at the %s end", p->qpx == NULL ? "own" : "other");
	ibv_wr_start(p->qpx);
	p->qpx->wr_id = wr_id;
	p->qpx->wr_flags = send_flags(p->step, last);
	ibv_wr_atomic_write(p->qpx, rkey_of(p), p->other.area + item->area_off,
		p->local.bytes + item->local_off);
	err = ibv_wr_complete(p->qpx);
	if (err != 0)
		die(p, "posting an ATOMIC WRITE: %s", strerror(err));
}

static void
target_fill(const struct peer *p, const struct item *item, struct ibv_send_wr *wr)
{
	uint64_t addr = p->other.area + item->area_off;

	if (p->opt.qp_type == IBV_QPT_UD) {
		wr->wr.ud.ah = p->ah;
		wr->wr.ud.remote_qpn = p->other.qpn;
		wr->wr.ud.remote_qkey = p->step->flags & F_BAD_QKEY ? 0x22222222 : 0x11111111;
	} else if (wr_is_atomic(item->op)) {
		wr->wr.atomic.remote_addr = addr;
		wr->wr.atomic.rkey = rkey_of(p);
		wr->wr.atomic.compare_add = item->add;
		wr->wr.atomic.swap = item->swap;
	} else {
		wr->wr.rdma.remote_addr = addr;
		wr->wr.rdma.rkey = rkey_of(p);
	}
	if (item->op == OP_SEND_INV)
		wr->invalidate_rkey = p->step->flags & F_WINDOW
			? p->window_rkey[!p->me]
			: p->other.rkey[KEY_ALL] ^ p->bad_key;
	else
		wr->imm_data = htonl((uint32_t)item->add);
}

/* All at once: one list, except for ATOMIC WRITEs, which only the other interface has. */
void
items_post(struct peer *p, const struct item *items, uint32_t n)
{
	static const enum ibv_wr_opcode opcodes[] = {
		[OP_SEND] = IBV_WR_SEND,
		[OP_SEND_IMM] = IBV_WR_SEND_WITH_IMM,
		[OP_SEND_INV] = IBV_WR_SEND_WITH_INV,
		[OP_WRITE] = IBV_WR_RDMA_WRITE,
		[OP_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
		[OP_READ] = IBV_WR_RDMA_READ,
		[OP_CAS] = IBV_WR_ATOMIC_CMP_AND_SWP,
		[OP_FAA] = IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	uint32_t lkey = p->local_mr->lkey ^ (p->step->flags & F_BAD_LKEY ? p->bad_key : 0), i;
	struct ibv_send_wr wr[MAX_ITEMS], *bad;
	struct ibv_sge sge[MAX_ITEMS][MAX_SGE];
	int err;

	for (i = 0; i < n; i++) {
		if (items[i].op == OP_AWRITE) {
			awrite_post(p, &items[i], i, i + 1 == n);
			continue;
		}
		wr[i] = (struct ibv_send_wr){
			.wr_id = i,
			.next = i + 1 < n ? &wr[i + 1] : NULL,
			.sg_list = sge[i],
			.num_sge = pieces(sge[i], p->local.bytes + items[i].local_off, items[i].len,
				lkey, wr_is_atomic(items[i].op) ? 1 : p->step->sge),
			.opcode = opcodes[items[i].op],
			.send_flags = send_flags(p->step, i + 1 == n),
		};
		target_fill(p, &items[i], &wr[i]);
	}
	if (n == 0 || items[0].op == OP_AWRITE)
		return;
	err = ibv_post_send(p->qp, wr, &bad);
	if (err != 0)
		die(p, "posting item %u: %s", (uint32_t)bad->wr_id, strerror(err));
}

/* --- completions --- */

/* Sleeps until there may be a completion: longer and longer without events, since a guest has one
 * processor, which the peer may need.  @return false: no event has come. */
static bool
rest(struct peer *p, useconds_t *nap_us)
{
	struct pollfd in = {.events = POLLIN};
	struct ibv_cq *cq;
	void *context;

	if (p->channel == NULL) {
		usleep(*nap_us);
		*nap_us = *nap_us < NAP_MAX_US / 2 ? *nap_us * 2 : NAP_MAX_US;
		return true;
	}
	in.fd = p->channel->fd;
	if (poll(&in, 1, (int)p->opt.patience_s * 1000) <= 0)
		return false;
	if (ibv_get_cq_event(p->channel, &cq, &context) != 0)
		die(p, "no event where there was one");
	ibv_ack_cq_events(cq, 1);
	return true;
}

bool
wait_cq(struct peer *p, struct ibv_cq *cq, struct ibv_wc *wc)
{
	/* if only a solicited event can wake this thread, nothing else does */
	int solicited = cq == p->rcq && p->step->flags & F_SOLICITED;
	time_t end = time(NULL) + p->opt.patience_s;
	useconds_t nap_us = NAP_FIRST_US;
	int n, err;

	for (;;) {
		n = ibv_poll_cq(cq, 1, wc);
		if (n == 0 && p->channel != NULL) {
			err = ibv_req_notify_cq(cq, solicited);
			if (err != 0)
				die(p, "ibv_req_notify_cq: %s", strerror(err));
			n = ibv_poll_cq(cq, 1, wc);
		}
		if (n < 0)
			die(p, "ibv_poll_cq: %d", n);
		if (n == 1)
			return true;
		if (time(NULL) > end || !rest(p, &nap_us))
			break;
	}
	problem(p, "no completion in the %s queue within %u s", cq == p->scq ? "send" : "receive",
		p->opt.patience_s);
	return false;
}
