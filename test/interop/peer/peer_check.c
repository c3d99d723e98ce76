/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What interop-peer holds against a step: every completion at both ends, the states of the queue
 * pairs, and every byte of all buffers.
 *
 * Checks of completions note in the wanted images (image.want) what each item ought to have done;
 * images_end() compares.  Where nobody can say what is there, as in the receive of a message that
 * failed, the image takes over what is found.  Of a message that was lost on the way a part may
 * have arrived, or not yet: no completion tells.  What comes behind it on the same queue pair, in
 * the next step, does, so until then the place of it is not compared, but for what that step puts
 * there.
 */
#include "peer.h"

#include <arpa/inet.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* --- patterns --- */

uint64_t
pattern_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

uint64_t
pattern_seed(const struct peer *p, uint32_t end, uint32_t buffer)
{
	return pattern_mix(((uint64_t)p->number << 8) | (end << 4) | buffer);
}

void
pattern_fill(uint8_t *to, uint64_t seed, uint64_t off, uint32_t len)
{
	uint64_t word;
	uint32_t skip, n;

	while (len > 0) {
		word = pattern_mix(seed ^ (off / 8));
		skip = off % 8;
		n = len < 8 - skip ? len : 8 - skip;
		memcpy(to, (uint8_t *)&word + skip, n);
		to += n;
		off += n;
		len -= n;
	}
}

static void
image_fill(struct image *i, uint64_t seed)
{
	uint32_t k;

	i->seed = seed;
	pattern_fill(i->want, seed, 0, i->size + GUARD);
	memcpy(i->bytes, i->want, i->size + GUARD);
	for (k = 0; k < i->size; k++)
		i->late[k] -= i->late[k] > 0;
}

void
images_begin(struct peer *p)
{
	image_fill(&p->local, pattern_seed(p, p->me, BUFFER_LOCAL));
	image_fill(&p->area, pattern_seed(p, p->me, BUFFER_AREA));
	image_fill(&p->recvs, pattern_seed(p, p->me, BUFFER_RECVS));
}

/* The 8 bytes that a step begins with at @off of the area of @end. */
static uint64_t
cell(const struct peer *p, uint32_t end, uint32_t off)
{
	uint64_t value;

	pattern_fill((uint8_t *)&value, pattern_seed(p, end, BUFFER_AREA), off, 8);
	return value;
}

void
items_resolve(const struct peer *p, struct item *items, uint32_t n, uint32_t end)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (items[i].op == OP_CAS && i % 2 == 0)
			items[i].add = cell(p, end, items[i].area_off);
}

/* The content is not known. */
static void
image_any(struct image *i, uint32_t off, uint32_t len)
{
	memcpy(i->want + off, i->bytes + off, len);
}

/* Parts of a lost message may arrive there, in this step and the next. */
static void
image_late(struct image *i, uint32_t off, uint32_t len)
{
	memset(i->late + off, 2, len);
}

/* What must be there, whatever may have arrived before. */
static void
image_put(struct image *i, uint32_t off, uint64_t seed, uint64_t seed_off, uint32_t len)
{
	pattern_fill(i->want + off, seed, seed_off, len);
	memset(i->late + off, 0, len);
}

static bool
byte_right(const struct image *i, uint32_t k)
{
	return i->bytes[k] == i->want[k] || i->late[k] > 0;
}

static bool
image_right(const struct image *i)
{
	uint32_t k;

	for (k = 0; k < i->size + GUARD; k++)
		if (!byte_right(i, k))
			return false;
	return true;
}

static void
image_check(struct peer *p, const struct image *i)
{
	uint32_t first = UINT32_MAX, last = 0, n = 0, k;

	if (image_right(i))
		return;
	for (k = 0; k < i->size + GUARD; k++) {
		if (byte_right(i, k))
			continue;
		n++;
		last = k;
		if (first == UINT32_MAX)
			first = k;
	}
	if (n == 0)
		return;
	problem(p, "%s: %u bytes of %u are wrong, from %u to %u; the first is %02x, not %02x",
		i->name, n, i->size, first, last, i->bytes[first], i->want[first]);
}

void
images_end(struct peer *p)
{
	time_t end = time(NULL) + p->opt.patience_s;

	/* without acknowledgements the actor completes before its WRITE has arrived */
	while (p->opt.qp_type != IBV_QPT_RC && !image_right(&p->area) && time(NULL) <= end)
		usleep(1000);
	image_check(p, &p->local);
	image_check(p, &p->area);
	image_check(p, &p->recvs);
}

/* --- the expected end of a step --- */

static bool
step_fails(const struct step *s)
{
	return s->status != IBV_WC_SUCCESS || s->recv_status > IBV_WC_SUCCESS;
}

/* Whether the target's queue pair ends in error. */
static bool
target_down(const struct step *s)
{
	if (s->flags & (F_TARGET_UP | F_TARGET_DOWN))
		return s->flags & F_TARGET_DOWN;
	return s->recv_status > IBV_WC_SUCCESS || s->flags & F_DEAF ||
		s->status == IBV_WC_REM_INV_REQ_ERR || s->status == IBV_WC_REM_ACCESS_ERR ||
		s->status == IBV_WC_REM_OP_ERR;
}

/* Whether item @i arrives as it should. */
static bool
arrives(const struct step *s, uint32_t i)
{
	if (step_fails(s))
		return i < s->at;
	return !(s->flags & F_LOST && i == s->at);
}

/* --- the actor --- */

static void
status_check(struct peer *p, const struct ibv_wc *wc, uint32_t i, const char *what, int status)
{
	if (wc->status != (enum ibv_wc_status)status)
		problem(p, "item %u: %s ends with %s (vendor %#x), not %s", i, what,
			status_name(wc->status), wc->vendor_err, status_name(status));
}

static void
sent_check(struct peer *p, const struct ibv_wc *wc, uint32_t i, const struct item *item)
{
	static const int opcodes[] = {
		[OP_SEND] = IBV_WC_SEND,
		[OP_SEND_IMM] = IBV_WC_SEND,
		[OP_SEND_INV] = IBV_WC_SEND,
		[OP_WRITE] = IBV_WC_RDMA_WRITE,
		[OP_WRITE_IMM] = IBV_WC_RDMA_WRITE,
		[OP_READ] = IBV_WC_RDMA_READ,
		[OP_CAS] = IBV_WC_COMP_SWAP,
		[OP_FAA] = IBV_WC_FETCH_ADD,
		[OP_AWRITE] = IBV_WC_ATOMIC_WRITE,
	};
	const struct step *s = p->step;

	if (wc->wr_id != i)
		problem(p, "item %u: the completion is of item %u", i, (uint32_t)wc->wr_id);
	if (wc->qp_num != p->qp->qp_num)
		problem(p, "item %u: the completion is of queue pair %#x", i, wc->qp_num);
	status_check(p, wc, i, op_names[item->op],
		!step_fails(s) || i < s->at ? IBV_WC_SUCCESS
			: i == s->at        ? s->status
					    : IBV_WC_WR_FLUSH_ERR);
	if (wc->status == IBV_WC_SUCCESS && (int)wc->opcode != opcodes[item->op])
		problem(p, "item %u: the completion is of opcode %d", i, wc->opcode);
}

/* What the items write into the actor's memory. */
static void
actor_results(struct peer *p, const struct item *items, uint32_t n)
{
	uint64_t old, added = 0;
	uint32_t i;

	for (i = 0; i < n; i++) {
		const struct item *item = &items[i];

		if (item->op != OP_READ && item->op != OP_CAS && item->op != OP_FAA)
			continue;
		if (!arrives(p->step, i)) {
			if (i == p->step->at)
				image_any(&p->local, item->local_off, item->len);
			continue;
		}
		if (item->op == OP_READ) {
			pattern_fill(p->local.want + item->local_off,
				pattern_seed(p, !p->me, BUFFER_AREA), item->area_off, item->len);
			p->verified += item->len;
			continue;
		}
		old = cell(p, !p->me, item->area_off) + (item->op == OP_FAA ? added : 0);
		memcpy(p->local.want + item->local_off, &old, 8);
		if (item->op == OP_FAA)
			added += item->add;
	}
}

/* A queue pair in error accepts requests and flushes them. */
static void
flush_check(struct peer *p)
{
	struct item item = {.op = OP_SEND, .local_off = 0, .len = 1};
	struct ibv_wc wc;

	items_post(p, &item, 1);
	if (wait_cq(p, p->scq, &wc))
		status_check(p, &wc, 0, "a SEND after the error", IBV_WC_WR_FLUSH_ERR);
}

void
actor_check(struct peer *p, const struct item *items, uint32_t n)
{
	const struct step *s = p->step;
	struct ibv_wc wc;
	uint32_t i;

	for (i = s->flags & F_UNSIGNALLED ? n - 1 : 0; i < n; i++) {
		if (!wait_cq(p, p->scq, &wc))
			return;
		sent_check(p, &wc, i, &items[i]);
	}
	actor_results(p, items, n);
	if (s->status != IBV_WC_SUCCESS) {
		qp_state_is(p, IBV_QPS_ERR);
		flush_check(p);
	} else if (!step_fails(s)) {
		qp_state_is(p, IBV_QPS_RTS);
	}
	if (ibv_poll_cq(p->scq, 1, &wc) != 0)
		problem(p, "a completion too many: %s", status_name(wc.status));
}

/* --- the target --- */

/* The IP header that a datagram's receive begins with. */
static void
grh_check(struct peer *p, uint32_t i, const struct item *item, uint32_t off)
{
	uint32_t payload =
		8 + 12 + 8 + (item->op == OP_SEND_IMM ? 4 : 0) + (item->len + 3) / 4 * 4 + 4;
	const uint8_t *at = p->recvs.bytes + off, *v4 = at + 20;
	bool is_v4 = p->gid.raw[10] == 0xff && p->gid.raw[0] == 0;
	uint16_t len;

	memcpy(&len, is_v4 ? v4 + 2 : at + 4, 2);
	if (ntohs(len) != payload + (is_v4 ? 20 : 0))
		problem(p, "item %u: the IP header says %u bytes", i, ntohs(len));
	if (is_v4 ? v4[0] != 0x45 || v4[9] != 17 : at[0] >> 4 != 6 || at[6] != 17)
		problem(p, "item %u: no IP and UDP header before the datagram", i);
	if (is_v4 ? memcmp(v4 + 12, p->other.gid.raw + 12, 4) != 0 ||
				memcmp(v4 + 16, p->gid.raw + 12, 4) != 0
		  : memcmp(at + 8, p->other.gid.raw, 16) != 0 ||
				memcmp(at + 24, p->gid.raw, 16) != 0)
		problem(p, "item %u: other addresses before the datagram", i);
	image_any(&p->recvs, off, GRH_BYTES);
}

/* A receive that ended well. */
static void
received_check(struct peer *p, const struct ibv_wc *wc, uint32_t i, const struct item *item)
{
	bool ud = p->opt.qp_type == IBV_QPT_UD, imm = item->op == OP_WRITE_IMM;
	unsigned int flags = (item->op == OP_SEND_IMM || imm           ? IBV_WC_WITH_IMM
					     : item->op == OP_SEND_INV ? IBV_WC_WITH_INV
								       : 0) |
		(ud ? IBV_WC_GRH : 0);
	unsigned int known = IBV_WC_WITH_IMM | IBV_WC_WITH_INV | IBV_WC_GRH;
	unsigned int wc_flags = wc->wc_flags;
	uint32_t len = item->len + (ud ? GRH_BYTES : 0);

	/* rxe passes the kernel's value of this flag to programs, where it has another meaning */
	if (wc_flags & IBV_WC_IP_CSUM_OK)
		wc_flags |= IBV_WC_WITH_INV;
	/* on a connection a receiver has no GRH */
	if (!ud)
		known &= ~(unsigned int)IBV_WC_GRH;
	if (wc->opcode != (imm ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV))
		problem(p, "item %u: the receive is of opcode %d", i, wc->opcode);
	if (wc->byte_len != len)
		problem(p, "item %u: the receive has %u bytes, not %u", i, wc->byte_len, len);
	if ((wc_flags & known) != flags)
		problem(p, "item %u: the receive's flags are %#x, not %#x", i, wc->wc_flags, flags);
	if (flags & IBV_WC_WITH_IMM && ntohl(wc->imm_data) != (uint32_t)item->add)
		problem(p, "item %u: the immediate data are %#x, not %#x", i, ntohl(wc->imm_data),
			(uint32_t)item->add);
	if (flags & IBV_WC_WITH_INV && wc->invalidated_rkey != p->window_rkey[p->me])
		problem(p, "item %u: %#x was invalidated, not %#x", i, wc->invalidated_rkey,
			p->window_rkey[p->me]);
	if (wc->qp_num != p->qp->qp_num)
		problem(p, "item %u: the receive is of queue pair %#x", i, wc->qp_num);
	if (ud && wc->src_qp != p->other.qpn)
		problem(p, "item %u: the datagram is from queue pair %#x, not %#x", i, wc->src_qp,
			p->other.qpn);
}

/* Removes the oldest outstanding receive. */
static struct recv
recv_take(struct peer *p, const struct ibv_wc *wc, uint32_t i)
{
	struct recv r = p->posted[0];

	if (wc->wr_id != r.off)
		problem(p, "item %u: receives complete in another order than they were posted in",
			i);
	p->n_posted--;
	memmove(p->posted, p->posted + 1, p->n_posted * sizeof(r));
	if (p->n_posted == 0)
		p->recv_cursor = 0;
	return r;
}

/* One receive, and where its bytes must be. */
static bool
receive(struct peer *p, uint32_t i, const struct item *item)
{
	uint32_t grh = p->opt.qp_type == IBV_QPT_UD ? GRH_BYTES : 0;
	struct ibv_wc wc;
	struct recv r;

	if (!wait_cq(p, p->rcq, &wc))
		return false;
	r = recv_take(p, &wc, i);
	status_check(p, &wc, i, "its receive", IBV_WC_SUCCESS);
	if (wc.status != IBV_WC_SUCCESS)
		return false;
	received_check(p, &wc, i, item);
	if (grh)
		grh_check(p, i, item, r.off);
	if (item->op == OP_WRITE_IMM)
		return true;
	image_put(&p->recvs, (uint32_t)r.off + grh, pattern_seed(p, !p->me, BUFFER_LOCAL),
		item->local_off, item->len);
	p->verified += item->len;
	return true;
}

/* The effect of an item on the target's area. */
static void
area_result(struct peer *p, const struct item *item, uint32_t i)
{
	uint8_t *want = p->area.want + item->area_off;
	uint64_t value;

	switch (item->op) {
	case OP_WRITE:
	case OP_WRITE_IMM:
	case OP_AWRITE:
		image_put(&p->area, item->area_off, pattern_seed(p, !p->me, BUFFER_LOCAL),
			item->local_off, item->len);
		p->verified += item->len;
		break;
	case OP_FAA:
		memcpy(&value, want, 8);
		value += item->add;
		memcpy(want, &value, 8);
		break;
	case OP_CAS:
		if (i % 2 == 0)
			memcpy(want, &item->swap, 8);
		break;
	default:
		break;
	}
}

void
target_collect(struct peer *p, const struct item *items, uint32_t n)
{
	const struct step *s = p->step;
	uint32_t i;

	for (i = 0; i < n; i++) {
		if (!arrives(s, i))
			continue;
		if (item_receives(&items[i]) && !receive(p, i, &items[i]))
			return;
		area_result(p, &items[i], i);
	}
}

/* The receive of the item that failed, and those behind it. */
static void
failed_receives(struct peer *p, const struct item *failed)
{
	int status = item_receives(failed) ? p->step->recv_status : IBV_WC_WR_FLUSH_ERR;
	bool first = true;
	struct ibv_wc wc;
	struct recv r;

	while (p->n_posted > 0 && (p->srq == NULL || (first && status > IBV_WC_SUCCESS))) {
		if (!wait_cq(p, p->rcq, &wc))
			return;
		r = recv_take(p, &wc, p->step->at);
		if (wc.status == IBV_WC_SUCCESS)
			problem(p, "a receive ends well after an error");
		else if (!first || status > IBV_WC_SUCCESS)
			status_check(p, &wc, p->step->at, first ? "its receive" : "a later receive",
				first ? status : IBV_WC_WR_FLUSH_ERR);
		if (first && item_receives(failed))
			image_any(&p->recvs, r.off, r.len);
		first = false;
	}
}

void
target_check(struct peer *p, const struct item *items, uint32_t n)
{
	const struct step *s = p->step;
	const struct item *at = &items[s->at];
	struct ibv_wc wc;

	if (step_fails(s) && target_down(s) && n > 0)
		failed_receives(p, at);
	qp_state_is(p, step_fails(s) && target_down(s) ? IBV_QPS_ERR : IBV_QPS_RTS);
	/* an interrupted message may have begun */
	if (n > 0 && (s->flags & F_LOST || s->status == IBV_WC_RETRY_EXC_ERR)) {
		if (item_receives(at) && at->op != OP_WRITE_IMM && p->n_posted > 0)
			image_late(&p->recvs, p->posted[0].off, p->posted[0].len);
		else if (at->op == OP_WRITE || at->op == OP_WRITE_IMM)
			image_late(&p->area, at->area_off, at->len);
	}
	if (ibv_poll_cq(p->rcq, 1, &wc) != 0)
		problem(p, "a receive too many: %s, %u bytes", status_name(wc.status), wc.byte_len);
}
