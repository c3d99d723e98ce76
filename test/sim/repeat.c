/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Selective repeat (X1 to X10): which ends assume that it was agreed on, how many frames a core may
 * hold, and checks of the bits of SACKs (X13).
 *
 *   - an end that has not agreed sends no SACK, and answers a gap by a sequence NAK;
 *   - a bit stands for a packet that was delivered, and no later SACK or ACK revokes it: so it
 *     stands for a frame that is held;
 *   - only an end that has agreed sends requests with several source ports in turn;
 *     acknowledgements and responses always have the same port (X12);
 *   - a packet that the peer has reported as received is not sent again, except the oldest one,
 *     which is sent after a timeout, or when the peer names it because it was not ready.
 *
 * READs and atomics are sent again when their responses are lost.  If only one end assumes an
 * agreement, losses are detected only by timeouts, and everything must still arrive.
 */
#include "karst_opcode.h"
#include "karst_psn.h"
#include "sim.h"

#define BAD(s, ep, p, fmt, ...)                                                           \
	sim_fail(s, "pair %u, QP %#x sent %s psn %06x: " fmt, (ep)->pair->idx, (ep)->qpn, \
		karst_opcode_name((p)->opcode), (p)->psn, ##__VA_ARGS__)

/* Number of PSNs of a connection that are checked.  Without laps a schedule uses fewer. */
#define PSNS 65536u

enum sim_psn_flags {
	PSN_DELIVERED = 1, /* to the responder, at least once */
	PSN_SAID = 2,      /* the responder has reported that it is held */
	PSN_HEARD = 4,     /* and the requester has received that report */
};

/* --- who --- */

void
sim_repeat_config(struct sim *s, struct sim_pair *p)
{
	/* not drawn, so that recorded seeds still give the same schedules */
	uint64_t x = sim_mix(s->seed * SIM_MAX_PAIRS + p->idx + 0x7265706561740000ull);

	if (p->type != KARST_QPT_RC || p->xrc || x % 8 < 3)
		return;
	p->repeat_window = 64u << (x >> 8) % 5;
	p->repeats = 3;
	if (x % 8 == 3)
		p->repeats = 1 + (x >> 16) % 2;
}

uint32_t
sim_repeat_frames(const struct sim_core *c)
{
	uint64_t x = sim_mix(c->node->s->seed + c->node->idx * 8 + c->idx + 0x68656c6400ull);

	/* often too few frames */
	return x % 3 == 0 ? 1 + (uint32_t)(x >> 8) % 40 : 1024;
}

uint32_t
sim_repeat_spray(const struct sim_core *c)
{
	uint64_t x = sim_mix(c->node->s->seed + c->node->idx * 8 + c->idx + 0x737072617900ull);

	return x % 2 == 0 ? 1 : 1u << (x >> 8) % 5;
}

uint32_t
sim_repeat_ports(const struct sim_ep *ep, const struct karst_pkt *p, uint32_t *path)
{
	uint32_t mask = sim_repeat_spray(ep->core) - 1;

	*path = 0;
	if (!sim_repeats(ep) || !(karst_opcode_flags(p->opcode) & KARST_OPF_REQUEST))
		return 0;
	if (karst_psn_add(p->psn, (uint32_t)-ep->sq_psn) < ep->tx_hi)
		return mask;
	*path = p->psn & mask;
	return 0;
}

bool
sim_repeats(const struct sim_ep *ep)
{
	return ep->pair->repeat_window != 0 &&
		(ep->pair->repeats >> (ep == &ep->pair->ep[1]) & 1) != 0;
}

bool
sim_repeat_disagrees(const struct sim *s)
{
	uint32_t i;

	for (i = 0; i < s->npairs; i++)
		if (s->pairs[i].repeats == 1 || s->pairs[i].repeats == 2)
			return true;
	return false;
}

unsigned int
sim_repeat_attr(struct sim_ep *ep, struct karst_core_qp_attr *a)
{
	if (!sim_repeats(ep))
		return 0;
	if (ep->repeat_mem == NULL)
		ep->repeat_mem = sim_alloc(ep->s, karst_repeat_bytes(ep->pair->repeat_window));
	a->repeat_window = ep->pair->repeat_window;
	a->repeat_mem = ep->repeat_mem;
	return KARST_QP_REPEAT;
}

void
sim_repeat_reset(struct sim_ep *ep)
{
	ep->said_hi = 0;
	ep->rnr_at = UINT32_MAX;
	if (!sim_repeats(ep) && !sim_repeats(ep->peer))
		return;
	ep->psn_flags = sim_alloc_raw(ep->s, PSNS);
	memset(ep->psn_flags, 0, PSNS);
}

static uint8_t *
flags_of(struct sim_ep *req, uint32_t at)
{
	return req->psn_flags != NULL && at < PSNS ? &req->psn_flags[at] : NULL;
}

/* --- frames that are held --- */

struct sim_held {
	struct karst_pkt pkt;
	struct sim_held *next;
	uint8_t data[KARST_FRAME_MAX];
};

static struct karst_pkt *
hold(struct karst_core *core, struct karst_pkt *pkt)
{
	struct sim_core *c = core->user;
	struct sim_held *h = c->held_free;

	if (h != NULL)
		c->held_free = h->next;
	else
		h = sim_alloc_raw(c->node->s, sizeof(*h));
	h->pkt = *pkt;
	h->pkt.data = h->data;
	memcpy(h->data, pkt->data, pkt->len);
	c->nheld++;
	return &h->pkt;
}

static void
hold_release(struct karst_core *core, struct karst_pkt *pkt)
{
	struct sim_core *c = core->user;
	struct sim_held *h = karst_container_of(pkt, struct sim_held, pkt);

	/* a later read of the frame will be noticed */
	memset(h->data, 0x6d, sizeof(h->data));
	h->next = c->held_free;
	c->held_free = h;
	c->nheld--;
}

const struct karst_hold_ops sim_hold_ops = {.hold = hold, .release = hold_release};

/* --- requests --- */

void
sim_repeat_delivered(struct sim_ep *req, uint32_t at)
{
	uint8_t *f = flags_of(req, at);

	if (f != NULL)
		*f |= PSN_DELIVERED;
}

void
sim_repeat_again(
	struct sim *s, struct sim_ep *ep, uint32_t at, bool answered, const struct karst_pkt *p)
{
	const uint8_t *f = flags_of(ep, at);

	if (!sim_repeats(ep) || f == NULL || answered || at <= ep->acked)
		return;
	if (*f & PSN_HEARD)
		BAD(s, ep, p, "again, and the peer has said that it has it (X13)");
}

/* --- what is said of them --- */

static bool
bit(const struct karst_pkt *p, uint32_t i)
{
	return i < p->pay_len * 8u && (p->data[p->pay_off + i / 8] >> i % 8 & 1) != 0;
}

void
sim_repeat_sack(struct sim *s, struct sim_ep *ep, const struct karst_pkt *p)
{
	struct sim_ep *req = ep->peer;
	uint32_t base = karst_psn_add(p->psn, 1u - req->sq_psn), i;
	uint8_t *f;

	s->stats.sacks++;
	if (!sim_repeats(ep))
		BAD(s, ep, p, "nobody has agreed to that (X1)");
	if (p->pay_len == 0 || p->pay_len % 4 != 0 ||
		p->pay_len * 8u > karst_min_u32(ep->pair->repeat_window, 1024))
		BAD(s, ep, p, "a bitmap of %u bytes (X7)", p->pay_len);
	if (base > req->delivered_hi)
		BAD(s, ep, p, "acknowledges what was not delivered");
	for (i = 1; i < p->pay_len * 8u; i++) {
		f = flags_of(req, base + i);
		if (!bit(p, i) || f == NULL)
			continue;
		if (!(*f & PSN_DELIVERED))
			BAD(s, ep, p, "has a bit for PSN %06x, which was not delivered (X13)",
				karst_psn_add(p->psn, 1 + i));
		*f |= PSN_SAID;
		if (base + i >= req->said_hi)
			req->said_hi = base + i + 1;
	}
	/* not the expected PSN: its bit may be clear although it was held, if there was no receive
	 * work request */
	for (i = base + 1; i < req->said_hi; i++) {
		f = flags_of(req, i);
		if (f != NULL && (*f & PSN_SAID) && !bit(p, i - base) &&
			ep->pair->fault == FAULT_NONE)
			BAD(s, ep, p, "takes back the bit of PSN %06x (X4)",
				karst_psn_add(req->sq_psn, i));
	}
}

void
sim_repeat_ack(
	struct sim *s, struct sim_ep *ep, uint32_t at, bool answered, const struct karst_pkt *p)
{
	const uint8_t *f = flags_of(ep->peer, at);

	/* READs and atomics behind it may have been executed and not be acknowledged yet (L12) */
	if (f != NULL && !answered && (*f & PSN_SAID) && ep->pair->fault == FAULT_NONE &&
		at != ep->rnr_at && ep->core->copies == NULL) /* it may wait for a copy */
		BAD(s, ep, p, "takes back the bit of the PSN behind it (X4)");
}

void
sim_repeat_heard(struct sim_ep *req, const struct karst_pkt *p)
{
	uint32_t base = karst_psn_add(p->psn, 1u - req->sq_psn), i;
	uint8_t *f;

	/* a SACK that is older than a later acknowledgement is ignored (Q10); and it may wait
	 * behind a packet that waits for a copy */
	if (base < req->acked || base > req->tx_hi || req->core->copies != NULL)
		return;
	for (i = 1; i < p->pay_len * 8u; i++) {
		f = flags_of(req, base + i);
		if (bit(p, i) && f != NULL)
			*f |= PSN_HEARD;
	}
}
