/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Drives a protocol core as an engine does, but with bursts, budgets and an order of the entry
 * points that change from turn to turn: the core must not depend on them, although one ACK may
 * acknowledge many packets (R11).
 */
#include "karst_icrc.h"
#include "karst_opcode.h"
#include "karst_parse.h"
#include "sim.h"

static void
on_cq_event(struct karst_core *core, struct karst_core_cq *cq)
{
	struct sim_core *c = core->user;
	struct sim_cq *q = karst_cq_user(cq);
	struct sim *s = c->node->s;

	if (q->armed == 0)
		sim_fail(s, "event of a completion queue that was not armed");
	q->armed = 0;
	q->events++;
	s->stats.events++;
}

static void
on_async_event(struct karst_core *core, enum karst_async_event_code event, void *object)
{
	struct sim_core *c = core->user;

	sim_async(c->node->s, c, event, object);
}

const struct karst_core_ops sim_core_ops = {
	.cq_event = on_cq_event,
	.async_event = on_async_event,
};

/* --- receive --- */

static struct sim_frame *
inbox_pop(struct sim_core *c)
{
	struct sim_frame *f = c->inbox.head;

	c->inbox.head = f->next;
	if (c->inbox.head == NULL)
		c->inbox.tail = &c->inbox.head;
	c->inbox.n--;
	return f;
}

/* Checks the decision of the parser and of the ICRC check on a frame. */
static void
judge_frame(struct sim *s, const struct sim_frame *f, const struct karst_pkt *p)
{
	if (f->noise)
		return;
	if (p->drop != KARST_DROP_NONE) {
		if (!f->corrupt)
			sim_fail(s, "an undamaged frame of node %u was refused: %s", f->from,
				karst_drop_name((enum karst_drop)p->drop));
		return;
	}
	if (f->corrupt && !sim_frame_same(f))
		sim_fail(s, "a damaged frame of node %u was accepted", f->from);
}

static void
receive_one(struct sim *s, struct sim_core *c, struct sim_frame *f, struct karst_pkt *p)
{
	struct karst_core *core = c->core;
	uint32_t owner;
	struct sim_ep *ep;

	judge_frame(s, f, p);
	if (p->drop != KARST_DROP_NONE) {
		karst_count_drop(&core->counters, (enum karst_drop)p->drop);
		sim_trace(s, FATE_REFUSED, f->from, f->to, p, p->drop == KARST_DROP_ICRC);
		return;
	}
	owner = karst_qpn_lcore(core, p->dqpn);
	if (owner != c->idx) {
		core = c->node->cores[owner].core;
		c = &c->node->cores[owner];
		core->now_ns = s->now_ns;
	}
	p->qp = karst_core_lookup(core, p->dqpn);
	if (p->qp == NULL) {
		karst_count_drop(&core->counters, KARST_DROP_NO_QP);
		p->drop = KARST_DROP_NO_QP;
		sim_trace(s, FATE_RECEIVED, f->from, f->to, p, true);
		return;
	}
	ep = sim_ep_of(c->node, p->dqpn);
	if (ep == NULL || (p->dqpn == ep->qpn ? ep->qp : ep->target) != p->qp)
		sim_fail(s, "lookup of QPN %#x gives another QP", p->dqpn);
	if (!ep->pair->victim && !f->noise && sim_paths_may_take(ep, p)) {
		sim_wire_delivered(s, ep, p);
		sim_delay_heard(ep, p);
	}
	karst_qp_prefetch_rx(p->qp, p->opcode);
	karst_qp_rx(core, p);
	sim_wire_taken(ep, p);
	if (!ep->pair->victim && !f->noise)
		sim_marks_delivered(s, c, ep, p);
	else if (f->noise)
		sim_marks_forged(s, &s->nodes[f->from], ep, p);
	/* one that waits behind a copy is dropped later */
	if (f->noise && !ep->pair->victim && p->drop == KARST_DROP_NONE && c->copies == NULL)
		sim_fail(s, "QP %#x took a frame that is not meant for it: %s", p->dqpn,
			karst_opcode_name(p->opcode));
	sim_trace(s, FATE_RECEIVED, f->from, f->to, p, true);
}

static void
receive(struct sim *s, struct sim_core *c)
{
	struct sim_frame *frames[SIM_MAX_BURST];
	struct karst_pkt pkts[SIM_MAX_BURST], *ptrs[SIM_MAX_BURST];
	uint32_t n = rng_range(&s->rng, 1, s->max_burst), i;

	if (n > c->inbox.n)
		n = c->inbox.n;
	if (n == 0)
		return;
	for (i = 0; i < n; i++) {
		frames[i] = inbox_pop(c);
		pkts[i].data = frames[i]->buf;
		pkts[i].len = frames[i]->len;
		pkts[i].port = 0;
		ptrs[i] = &pkts[i];
	}
	karst_parse_burst(ptrs, n);
	if (!s->opt.no_icrc)
		karst_icrc_verify_burst(ptrs, n);
	for (i = 0; i < n; i++) {
		receive_one(s, c, frames[i], &pkts[i]);
		sim_frame_put(s, frames[i]);
	}
	for (i = 0; i < s->ncores; i++)
		karst_core_flush(c->node->cores[i].core);
}

/* --- transmit --- */

static void
emit(struct sim *s, struct sim_core *c, struct sim_ep *ep, struct sim_frame *f,
	const struct karst_pkt *built)
{
	struct karst_pkt p = {.data = built->data, .len = built->len};

	if (built->data < f->store || built->data + built->len > f->store + sizeof(f->store))
		sim_fail(s, "a frame outside of its buffer");
	f->buf = built->data;
	f->len = built->len;
	f->from = (uint8_t)c->node->idx;
	f->to = (uint8_t)ep->peer->node->idx;
	if (karst_parse(&p) != KARST_DROP_NONE) {
		sim_trace(s, FATE_REFUSED, f->from, f->to, &p, false);
		sim_fail(s, "QP %#x sent a frame that is not RoCE: %s", ep->qpn,
			karst_drop_name((enum karst_drop)p.drop));
	}
	if (p.len != built->len)
		sim_fail(
			s, "QP %#x: frame length %u but %u bytes used", ep->qpn, built->len, p.len);
	s->stats.packets++;
	c->tx_packets++;
	if (p.opcode == KARST_CNP) {
		/* the next queue pair that is visited builds the CNPs of all queue pairs */
		struct sim_pair *pair = sim_marks_sent(s, c, f, &p);

		sim_link_send(s, f, &p, pair);
		return;
	}
	if (!ep->pair->victim) {
		sim_marks_data(s, ep, &p);
		sim_delay_sent(s, ep, &p);
		sim_wire_sent(s, c, ep, &p);
	}
	sim_link_send(s, f, &p, ep->pair);
}

static bool
transmit_qp(struct sim *s, struct sim_core *c, struct karst_core_qp *qp, uint32_t max)
{
	struct sim_frame *frames[SIM_MAX_BURST];
	struct karst_pkt pkts[SIM_MAX_BURST], *ptrs[SIM_MAX_BURST];
	struct karst_seal seals[SIM_MAX_BURST];
	struct karst_seg segs[SIM_MAX_BURST * KARST_WQ_MAX_SGE];
	struct karst_tx_burst b = {.pkts = ptrs, .seals = seals, .segs = segs, .max = max};
	struct sim_ep *ep = karst_qp_user(qp);
	uint32_t i;
	bool more;

	b.max_segs = rng_one_in(&s->rng, 4) ? KARST_WQ_MAX_SGE : max * KARST_WQ_MAX_SGE;
	for (i = 0; i < max; i++) {
		frames[i] = sim_frame_get(s);
		pkts[i].data = frames[i]->buf;
		ptrs[i] = &pkts[i];
	}
	more = karst_qp_tx(c->core, qp, &b, rng_range(&s->rng, 1, s->max_bytes));
	if (b.n > max || b.nsegs > b.max_segs)
		sim_fail(s, "QP %#x overran its burst: %u packets, %u segments", ep->qpn, b.n,
			b.nsegs);
	karst_icrc_seal_burst(seals, b.n);
	for (i = 0; i < b.n; i++)
		emit(s, c, ep, frames[i], &pkts[i]);
	for (; i < max; i++)
		sim_frame_put(s, frames[i]);
	return more;
}

/* The port accepts no frames: the queue pair is not activated again, unless it has more work that
 * needs no frame. */
static void
wait_for_port(struct sim_core *c, struct karst_core_qp *qp)
{
	struct karst_tx_burst b = {.max = 0};

	if (karst_qp_tx_quiet(c->core, qp, &b))
		karst_core_activate(c->core, qp);
}

void
sim_port_open(struct sim *s, struct sim_core *c)
{
	uint32_t i;

	if (c->shut_ns == 0)
		return;
	c->shut_ns = 0;
	/* there is no list of the queue pairs that wait, so activate all */
	for (i = 0; i < 2 * s->npairs; i++) {
		struct sim_ep *ep = &s->pairs[i / 2].ep[i & 1];

		if (ep->core != c || ep->qp == NULL)
			continue;
		if (karst_qp_state(ep->qp) != KARST_QPS_RESET)
			karst_core_activate(c->core, ep->qp);
		if (ep->target != NULL && karst_qp_state(ep->target) != KARST_QPS_RESET)
			karst_core_activate(c->core, ep->target);
	}
}

/* The port is shut for less than any timeout. */
static void
shut_now_and_then(struct sim *s, struct sim_core *c)
{
	if (s->shuts && c->shut_ns == 0 && rng_one_in(&s->ports, 200))
		c->shut_ns = s->now_ns + rng_log(&s->ports, 100, 100000);
}

static void
transmit(struct sim *s, struct sim_core *c)
{
	uint32_t turns = rng_range(&s->rng, 1, 4);

	if (c->shut_ns != 0 && s->now_ns >= c->shut_ns)
		sim_port_open(s, c);
	shut_now_and_then(s, c);
	while (turns-- > 0) {
		struct karst_core_qp *qp = karst_core_next_active(c->core);

		if (qp == NULL)
			return;
		if (c->shut_ns != 0) {
			wait_for_port(c, qp);
			continue;
		}
		if (transmit_qp(s, c, qp, rng_range(&s->rng, 1, s->max_burst)))
			karst_core_activate(c->core, qp);
	}
}

/* --- the rest --- */

void
sim_ring(struct sim_ep *ep)
{
	struct sim *s = ep->s;
	struct sim_core *c = ep->core;

	c->core->now_ns = s->now_ns;
	if (rng_one_in(&s->rng, 4)) {
		karst_core_doorbell(c->core, ep->qpn);
		return;
	}
	if (karst_bell_ring(c->bell_shared, c->bell_mask, ep->qpn) != 0)
		sim_fail(s, "doorbell ring is full");
	c->bells++;
}

static void
bells(struct sim *s, struct sim_core *c)
{
	uint32_t qpns[16];
	unsigned int n = karst_bell_poll(&c->bell, qpns, rng_range(&s->rng, 1, 16)), i;

	c->bells -= n;
	for (i = 0; i < n; i++)
		karst_core_doorbell(c->core, qpns[i]);
	/* Any program may ring the doorbell of any QPN. */
	if (rng_one_in(&s->rng, 64))
		karst_core_doorbell(c->core, (uint32_t)rng_u64(&s->rng));
}

static void
timers(struct sim *s, struct sim_core *c)
{
	karst_core_expire(c->core, rng_range(&s->rng, 1, 16));
}

void
sim_core_turn(struct sim *s, struct sim_core *c)
{
	if (c->step == 0) {
		c->first = rng_below(&s->rng, 4);
		c->core->now_ns = s->now_ns;
		sim_copies_turn(s, c);
	}
	while (c->step < 4) {
		switch ((c->first + c->step++) & 3) {
		case 0:
			if (c->inbox.n != 0)
				receive(s, c);
			break;
		case 1:
			bells(s, c);
			break;
		case 2:
			/* frames that arrived in a pause are handled before timers expire */
			if (!sim_pauses_late(c))
				timers(s, c);
			break;
		default:
			karst_core_linger(c->core);
			transmit(s, c);
			break;
		}
		if (rng_one_in(&s->rng, 4))
			karst_core_flush(c->core);
		if (sim_pauses_in_turn(s, c->node))
			return;
	}
	c->step = 0;
	karst_core_recheck(c->core);
	karst_core_flush(c->core);
}

bool
sim_core_ready(const struct sim *s, const struct sim_core *c)
{
	if (sim_away(c->node))
		return false;
	return c->step != 0 || c->inbox.n != 0 || c->bells != 0 || karst_core_has_active(c->core) ||
		c->core->nlinger != 0 || (c->shut_ns != 0 && s->now_ns >= c->shut_ns) ||
		karst_core_next_ns(c->core) <= s->now_ns || sim_copies_next(c) <= s->now_ns;
}

uint64_t
sim_core_next(const struct sim_core *c)
{
	uint64_t next = karst_min_u64(karst_core_next_ns(c->core), sim_copies_next(c));

	return c->shut_ns != 0 ? karst_min_u64(next, c->shut_ns) : next;
}
