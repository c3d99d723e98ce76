/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * One schedule: builds and connects the world, runs programs, links and cores in random order until
 * all work is done, checks the result, and destroys the world.  Some schedules do this twice, with
 * a reset of the queue pairs in between.
 *
 * Time advances by small random steps while there is work, and else to the next arrival or
 * deadline.  If there is none, and the programs have nothing to do although work is outstanding,
 * the schedule is stuck, which is an error.
 */
#include <stdarg.h>
#include <stdio.h>

#include "sim.h"

#define MAX_STEPS    3000000
#define MAX_QUIET_NS 120000000000ull /* longest time without a completion */

void
sim_fail(struct sim *s, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(s->why, sizeof(s->why), fmt, ap);
	va_end(ap);
	s->failed = true;
	longjmp(s->bail, 1);
}

static struct sim_ep *
ep_at(struct sim *s, uint32_t i)
{
	return &s->pairs[i / 2].ep[i & 1];
}

/* --- when is a phase over? --- */

static bool
cores_quiet(const struct sim *s)
{
	uint32_t i, j;

	if (s->nheap != 0)
		return false;
	for (i = 0; i < s->nnodes; i++) {
		if (sim_away(&s->nodes[i]))
			return false;
		for (j = 0; j < s->ncores; j++) {
			const struct sim_core *c = &s->nodes[i].cores[j];

			if (sim_core_ready(s, c) || c->copies != NULL)
				return false;
		}
	}
	return true;
}

static bool
flushed(const struct sim_ep *ep)
{
	if (ep->pair->victim || ep->state == EP_GONE)
		return true;
	return sim_sends_over(ep) && (ep->srq != NULL || ep->rdone == ep->nrecvs);
}

static bool
phase_over(struct sim *s)
{
	uint32_t i;

	for (i = 0; i < 2 * s->npairs; i++) {
		struct sim_ep *ep = ep_at(s, i);

		if (s->finishing ? !flushed(ep) : !sim_ep_idle(ep))
			return false;
	}
	return true;
}

static void
stuck(struct sim *s, const char *how)
{
	uint32_t i;

	for (i = 0; i < 2 * s->npairs; i++) {
		struct sim_ep *ep = ep_at(s, i);

		if (s->finishing ? !flushed(ep) : !sim_ep_idle(ep))
			sim_fail(s,
				"%s: pair %u, QP %#x (state %d): %u of %u sends and %u of %u receives "
				"completed, %u to post%s; next is %s",
				how, ep->pair->idx, ep->qpn,
				ep->qp ? (int)karst_qp_state(ep->qp) : -1, ep->done, ep->nops,
				ep->rdone, ep->nrecvs, ep->budget, s->finishing ? ", flushing" : "",
				ep->done < ep->nops ? sim_op_name(ep->ops[ep->done].opcode)
						    : "nothing");
	}
	sim_fail(s, "%s, with nothing outstanding", how);
}

/* --- turns --- */

static bool
some_core(struct sim *s)
{
	uint32_t n = s->nnodes * s->ncores, first = rng_below(&s->rng, n), i;

	for (i = 0; i < n; i++) {
		uint32_t j = (first + i) % n;
		struct sim_core *c = &s->nodes[j / s->ncores].cores[j % s->ncores];

		if (sim_core_ready(s, c)) {
			sim_core_turn(s, c);
			return true;
		}
	}
	if (rng_one_in(&s->rng, 16) && !sim_away(&s->nodes[first / s->ncores]))
		sim_core_turn(s, &s->nodes[first / s->ncores].cores[first % s->ncores]);
	return false;
}

static bool
poll_some(struct sim *s)
{
	struct sim_node *n = &s->nodes[rng_below(&s->rng, s->nnodes)];

	if (n->ncqs == 0 || sim_away(n))
		return false;
	return sim_poll_cq(s, &n->cqs[rng_below(&s->rng, n->ncqs)], rng_range(&s->rng, 1, 16));
}

static bool
poll_all(struct sim *s)
{
	uint32_t i, j;
	bool did = false;

	for (i = 0; i < s->nnodes; i++) {
		for (j = 0; j < s->nodes[i].ncqs && !sim_away(&s->nodes[i]); j++)
			did |= sim_poll_cq(s, &s->nodes[i].cqs[j], UINT32_MAX);
	}
	return did;
}

/* Lets each program act once.  @return whether any of them did something. */
static bool
sweep(struct sim *s, enum sim_eager eager)
{
	bool did = poll_all(s);
	uint32_t i, j;

	for (i = 0; i < s->nnodes; i++) {
		for (j = 0; j < s->ncores && !sim_away(&s->nodes[i]); j++)
			did |= sim_post_srq(s, &s->nodes[i].cores[j], eager);
	}
	for (i = 0; i < 2 * s->npairs; i++)
		if (!sim_away(ep_at(s, i)->node))
			did |= sim_program(ep_at(s, i), eager);
	return did;
}

static uint64_t
next_event(const struct sim *s)
{
	uint64_t t = sim_link_next(s);
	uint32_t i, j;

	for (i = 0; i < s->nnodes; i++) {
		const struct sim_node *n = &s->nodes[i];

		if (sim_away(n)) {
			t = karst_min_u64(t, n->away_ns);
			continue;
		}
		for (j = 0; j < s->ncores; j++)
			t = karst_min_u64(t, sim_core_next(&n->cores[j]));
	}
	return t;
}

/* Ends the bad actions of connections whose frames are forged. */
static void
forget_forged(struct sim *s)
{
	uint32_t i;

	for (i = 0; i < 2 * s->npairs; i++) {
		if (ep_at(s, i)->pair->fault == FAULT_FORGED)
			ep_at(s, i)->scribbles = 0;
	}
}

/* No core has anything to do: lets programs act, or advances the time. */
static void
idle_turn(struct sim *s)
{
	uint64_t next;

	if (sweep(s, WILLING))
		return;
	next = next_event(s);
	if (next == UINT64_MAX) {
		if (sweep(s, EAGER))
			return;
		forget_forged(s);
		if (!phase_over(s))
			stuck(s, "stuck");
		return;
	}
	if (next > s->now_ns)
		s->now_ns = next + (rng_one_in(&s->rng, 4) ? rng_below(&s->rng, 10000) : 0);
}

static void
run_phase(struct sim *s)
{
	s->last_progress_ns = s->now_ns;
	for (;;) {
		if (++s->steps > MAX_STEPS)
			stuck(s, "too many steps");
		if (s->now_ns - s->last_progress_ns > MAX_QUIET_NS)
			stuck(s, "no completion for two minutes");
		sim_link_deliver(s);
		sim_pauses_strike(s);
		if (some_core(s))
			s->now_ns += rng_below(&s->rng, s->step_ns);
		else if (phase_over(s) && cores_quiet(s) && !poll_all(s))
			return;
		else
			idle_turn(s);
		if (rng_one_in(&s->rng, 2)) {
			struct sim_ep *ep = ep_at(s, rng_below(&s->rng, 2 * s->npairs));

			if (!sim_away(ep->node))
				sim_program(ep, LAZY);
		}
		if (rng_one_in(&s->rng, 2))
			poll_some(s);
		if (rng_one_in(&s->rng, 4)) {
			struct sim_node *n = &s->nodes[rng_below(&s->rng, s->nnodes)];

			if (!sim_away(n))
				sim_post_srq(s, &n->cores[rng_below(&s->rng, s->ncores)], LAZY);
		}
	}
}

/* --- judgement --- */

static uint64_t
sum_counter(const struct sim *s, enum karst_counter ctr)
{
	uint64_t sum = 0;
	uint32_t i, j;

	for (i = 0; i < s->nnodes; i++) {
		for (j = 0; j < s->ncores; j++)
			sum += s->nodes[i].cores[j].core->counters.ctr[ctr];
	}
	return sum;
}

static uint64_t
sum_drop(const struct sim *s, enum karst_drop reason)
{
	uint64_t sum = 0;
	uint32_t i, j;

	for (i = 0; i < s->nnodes; i++) {
		for (j = 0; j < s->ncores; j++)
			sum += s->nodes[i].cores[j].core->counters.drop[reason];
	}
	return sum;
}

static bool
any_fault(const struct sim *s)
{
	uint32_t i;

	for (i = 0; i < s->npairs; i++) {
		if (s->pairs[i].fault != FAULT_NONE)
			return true;
	}
	return false;
}

/* Whether frames of sim_forge_noise() may be dropped for this reason. */
static bool
is_noise(enum karst_drop reason)
{
	switch (reason) {
	case KARST_DROP_PKEY:
	case KARST_DROP_ADDRESS:
	case KARST_DROP_NO_QP:
	case KARST_DROP_TVER:
	case KARST_DROP_OPCODE:
	case KARST_DROP_QP_TYPE:
	case KARST_DROP_QKEY:
	case KARST_DROP_CNP:
	case KARST_DROP_PAD:
	case KARST_DROP_RUNT:
	case KARST_DROP_SACK:
		return true;
	default:
		return false;
	}
}

/* If links lose and reorder nothing, nothing may be sent twice or dropped. */
static void
judge_counters(struct sim *s)
{
	uint64_t sent = 0;
	uint32_t i, j;

	for (i = 0; i < s->nnodes; i++) {
		for (j = 0; j < s->ncores; j++)
			sent += s->nodes[i].cores[j].tx_packets;
	}
	if (sum_counter(s, KARST_CTR_TX_PACKETS) != sent)
		sim_fail(s, "tx_packets is %llu, sent were %llu",
			(unsigned long long)sum_counter(s, KARST_CTR_TX_PACKETS),
			(unsigned long long)sent);
	/* ends that disagree about selective repeat drop each other's SACKs, and answer twice; when
	 * a connection migrates, the packets in flight on its old path are lost */
	if (s->lossy || s->jumbled || any_fault(s) || sim_repeat_disagrees(s) || s->migrated ||
		s->paused || s->copies)
		return;
	if (sum_counter(s, KARST_CTR_RNR_NAK_SENT) == 0) {
		uint64_t again = sum_counter(s, KARST_CTR_LOCAL_ACK_TIMEOUT) +
			sum_counter(s, KARST_CTR_SEQ_NAK_SENT) +
			sum_counter(s, KARST_CTR_SACK_SENT);

		/* a slow peer may have been probed unnecessarily */
		if (sum_counter(s, KARST_CTR_ADP_RETRANS) == 0)
			again += sum_counter(s, KARST_CTR_RETRANSMITS) +
				sum_counter(s, KARST_CTR_DUPLICATE_REQUEST);
		if (again != 0)
			sim_fail(s,
				"nothing was lost, but there were %llu retransmissions, %llu timeouts, "
				"%llu sequence NAKs, %llu duplicates",
				(unsigned long long)sum_counter(s, KARST_CTR_RETRANSMITS),
				(unsigned long long)sum_counter(s, KARST_CTR_LOCAL_ACK_TIMEOUT),
				(unsigned long long)sum_counter(s, KARST_CTR_SEQ_NAK_SENT),
				(unsigned long long)sum_counter(s, KARST_CTR_DUPLICATE_REQUEST));
	}
	for (i = KARST_DROP_NONE + 1; i < KARST_DROP_MAX; i++) {
		if (i == KARST_DROP_RNR || i == KARST_DROP_NO_WQE || i == KARST_DROP_SEQUENCE ||
			i == KARST_DROP_NAKED || i == KARST_DROP_DUPLICATE ||
			i == KARST_DROP_UC_MESSAGE || i == KARST_DROP_GHOST_ACK ||
			i == KARST_DROP_HELD_FULL)
			continue;
		/* if there is no room, READs are requested again, as after a loss, and a slow peer
		 * may be probed: in both cases the peer answers twice */
		if (i == KARST_DROP_UNEXPECTED_RESPONSE &&
			(sum_drop(s, KARST_DROP_HELD_FULL) != 0 ||
				sum_counter(s, KARST_CTR_ADP_RETRANS) != 0))
			continue;
		if (i == KARST_DROP_CNP && s->congestion.mode != KARST_CONGESTION_OFF)
			continue;
		if (s->noise_ppm != 0 && is_noise((enum karst_drop)i))
			continue;
		if (sum_drop(s, i) != 0)
			sim_fail(s, "nothing was lost, but %llu packets were dropped: %s",
				(unsigned long long)sum_drop(s, i), karst_drop_name(i));
	}
}

static void
judge_pair(struct sim *s, struct sim_pair *p)
{
	bool exact = !s->lossy && !s->jumbled && p->fault == FAULT_NONE &&
		sum_drop(s, KARST_DROP_NO_WQE) == 0;
	uint32_t e, i;

	for (e = 0; e < 2; e++) {
		if (sim_sends_over(&p->ep[e]))
			sim_trailing(s, &p->ep[e]);
	}
	for (e = 0; e < 2; e++) {
		struct sim_ep *ep = &p->ep[e];

		if (!p->broken && p->fault == FAULT_NONE)
			sim_marks_final(s, ep);
		if (ep->unexplained && !ep->hard_error)
			sim_fail(s, "pair %u, QP %#x: receives were flushed for no reason", p->idx,
				ep->qpn);
		if ((p->type == KARST_QPT_RC ? !p->broken && p->fault == FAULT_NONE : exact) &&
			!ep->rcq->neglected && ep->rx_received != ep->peer->next_recv_seq)
			sim_fail(s, "pair %u, QP %#x: %u messages were sent to it, %u received",
				p->idx, ep->qpn, ep->peer->next_recv_seq, ep->rx_received);
		for (i = 0; i < SIM_CELLS; i++)
			sim_cell_final(
				s, ep->node, &ep->cells[i], exact && p->type == KARST_QPT_UC);
		for (i = 0; i < SIM_WORDS; i++)
			sim_word_final(s, ep->node, &ep->words[i]);
	}
}

/* Memory that a hostile program has registered may have any contents. */
static void
accept_victim(struct sim_ep *ep)
{
	struct sim_node *n = ep->node;

	memcpy(n->shadow + ep->lmr->off, n->mem + ep->lmr->off, ep->lmr->len);
	memcpy(n->shadow + ep->tmr->off, n->mem + ep->tmr->off, ep->tmr->len);
}

static void
accept_srq(struct sim *s, struct sim_node *n)
{
	uint32_t i, j;

	for (i = 0; i < s->ncores * SIM_SRQS; i++) {
		struct sim_srq *q = &n->cores[i / SIM_SRQS].srq[i % SIM_SRQS];

		for (j = 0; j < q->nrecvs; j++) {
			if (!q->recvs[j].done)
				sim_pieces_accept(n, q->recvs[j].pieces, q->recvs[j].npieces);
		}
	}
}

static void
judge(struct sim *s)
{
	uint32_t i;

	for (i = 0; i < s->npairs; i++) {
		if (!s->pairs[i].victim)
			judge_pair(s, &s->pairs[i]);
	}
	judge_counters(s);
}

static void
judge_memory(struct sim *s)
{
	uint32_t i;

	for (i = 0; i < 2 * s->npairs; i++) {
		struct sim_ep *ep = ep_at(s, i);

		if (ep->pair->victim)
			accept_victim(ep);
		if (ep->srq != NULL && ep->state != EP_GONE && !ep->last_wqe_event)
			sim_fail(s, "pair %u, QP %#x: no LAST_WQE_REACHED", ep->pair->idx, ep->qpn);
	}
	for (i = 0; i < s->nnodes; i++) {
		accept_srq(s, &s->nodes[i]);
		sim_memory_final(s, &s->nodes[i]);
	}
	if (!sim_arena_check(&s->arena))
		sim_fail(s, "something was written behind the end of an object");
}

/* --- the schedule --- */

/* Moves all queue pairs to Error: what is still in receive queues must be flushed. */
static void
finish(struct sim *s)
{
	struct karst_core_qp_attr a = {.qp_state = KARST_QPS_ERR};
	uint32_t i;
	int rc;

	s->finishing = true;
	sim_note(s, "all to Error");
	for (i = 0; i < 2 * s->npairs; i++) {
		struct sim_ep *ep = ep_at(s, i);

		if (ep->scq->neglected && ep->state != EP_GONE)
			sim_ep_lost(ep);
		if (ep->qp == NULL || karst_qp_state(ep->qp) == KARST_QPS_RESET)
			continue;
		ep->core->core->now_ns = s->now_ns;
		rc = karst_qp_modify(ep->core->core, ep->qp, &a, KARST_QP_STATE);
		if (rc == 0 && ep->target != NULL)
			rc = karst_qp_modify(ep->core->core, ep->target, &a, KARST_QP_STATE);
		if (rc != 0)
			sim_fail(s, "pair %u, QP %#x: modify to Error: %d", ep->pair->idx, ep->qpn,
				rc);
		ep->asked = KARST_QPS_ERR;
	}
	/* from now on ports accept no frames: queue pairs in Error must not wait for them */
	for (i = 0; s->shuts && i < s->nnodes * s->ncores; i++)
		s->nodes[i / s->ncores].cores[i % s->ncores].shut_ns = UINT64_MAX;
	run_phase(s);
	for (i = 0; i < s->nnodes * s->ncores; i++)
		sim_port_open(s, &s->nodes[i / s->ncores].cores[i % s->ncores]);
	s->finishing = false;
}

static void
run_epoch(struct sim *s)
{
	uint32_t i;

	for (i = 0; i < s->npairs; i++)
		sim_connect(s, &s->pairs[i]);
	run_phase(s);
	sim_laps(s);
	judge(s);
	finish(s);
	judge_memory(s);
}

static void
collect(struct sim *s)
{
	s->stats.schedules++;
	s->stats.retransmits += sum_counter(s, KARST_CTR_RETRANSMITS);
	s->stats.timeouts += sum_counter(s, KARST_CTR_LOCAL_ACK_TIMEOUT);
	s->stats.virtual_ns += s->now_ns;
	s->stats.steps += s->steps;
}

bool
sim_run(struct sim *s, uint64_t seed)
{
	uint32_t i;

	s->seed = seed;
	s->rng.state = sim_mix(seed * 2 + 1);
	s->failed = false;
	s->why[0] = '\0';
	s->now_ns = rng_u64(&s->rng) >> rng_range(&s->rng, 20, 40);
	s->steps = s->ntrace = s->frame_seq = 0;
	s->finishing = false;
	s->epoch = 0;
	if (setjmp(s->bail) != 0)
		return false;
	sim_config(s);
	sim_build(s);
	for (s->epoch = 0; s->epoch < s->epochs; s->epoch++) {
		if (s->epoch != 0) {
			for (i = 0; i < s->npairs; i++)
				sim_disconnect(s, &s->pairs[i]);
		}
		run_epoch(s);
	}
	collect(s);
	sim_take_down(s);
	return true;
}
