/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Hosts without a processor: in some schedules the cores and programs of a node pause from time to
 * time, for up to some ACK timeouts, while frames arrive at the node and its peers wait.  A node
 * may pause between two steps of a turn, and continues there with the clock that it has read
 * before.
 *
 * After a pause a node handles all received frames before it lets timers expire, as
 * karst_core_expire() requires.  So a pause of its own uses at most one retry, and a pause of the
 * peer as many as fit into it; all other retries must be due to losses (Q6).
 */
#include "sim.h"

/* Limit of a pause, in units of the shortest timeout of a connection: less than the tries of a
 * connection without an injected fault. */
#define PAUSE_TIMEOUTS 5u

/* Chooses some schedules.  The constant is such that those of seeds.txt are not among them. */
void
sim_pauses_config(struct sim *s)
{
	s->pauses.state = sim_mix(s->seed ^ 0x706175736608ull);
	s->pause_every = rng_one_in(&s->pauses, 6) ? rng_log(&s->pauses, 30, 3000) : 0;
	s->paused = false;
}

bool
sim_away(const struct sim_node *n)
{
	return n->s->now_ns < n->away_ns;
}

static uint64_t
timeout_ns(const struct sim_ep *ep)
{
	return 4096ull << ep->timeout;
}

/* Tries of @ep that end while its peer is paused, from now on. */
static uint32_t
tries_of(const struct sim_ep *ep)
{
	const struct sim *s = ep->s;

	if (!sim_away(ep->peer->node) || ep->timeout == 0)
		return 0;
	return (uint32_t)((ep->peer->node->away_ns - s->now_ns) / timeout_ns(ep)) + 1;
}

/* The shortest timeout of the connections of @n; 0: no connection has a timeout. */
static uint64_t
shortest(const struct sim *s, const struct sim_node *n)
{
	uint64_t ns = 0;
	uint32_t i, e;

	for (i = 0; i < s->npairs; i++) {
		const struct sim_pair *p = &s->pairs[i];

		if (p->type != KARST_QPT_RC || (p->ep[0].node != n && p->ep[1].node != n))
			continue;
		for (e = 0; e < 2; e++)
			if (p->ep[e].timeout != 0 && (ns == 0 || timeout_ns(&p->ep[e]) < ns))
				ns = timeout_ns(&p->ep[e]);
	}
	return ns;
}

static void
pause_node(struct sim *s, struct sim_node *n)
{
	uint64_t most = shortest(s, n) * PAUSE_TIMEOUTS;
	uint32_t i, tries;

	/* also pauses that no timer notices */
	if (most == 0 || rng_one_in(&s->pauses, 4))
		most = 1000000;
	n->away_ns = s->now_ns + 1 + (uint64_t)rng_below(&s->pauses, (uint32_t)most);
	s->paused = n->behind = true;
	for (i = 0; i < s->ncores; i++)
		n->cores[i].late = true;
	for (i = 0; i < 2 * s->npairs; i++) {
		struct sim_ep *ep = &s->pairs[i / 2].ep[i & 1];

		if (ep->node != n && ep->peer->node != n)
			continue;
		tries = ep->node == n ? 1 : tries_of(ep);
		ep->waited += tries;
		if (ep->waited_once < tries)
			ep->waited_once = tries;
	}
	sim_note(s, "node %u has no processor for %llu ns", n->idx,
		(unsigned long long)(n->away_ns - s->now_ns));
}

/* Whether no core of @n has anything to do. */
static bool
has_caught_up(const struct sim_node *n)
{
	uint32_t i;

	for (i = 0; i < n->s->ncores; i++)
		if (sim_core_ready(n->s, &n->cores[i]) || n->cores[i].copies != NULL)
			return false;
	return true;
}

/* A node may not pause before it has handled everything that arrived in its last pause, so that
 * each pause can be judged separately. */
static bool
may_pause(struct sim_node *n)
{
	if (!sim_away(n) && n->behind)
		n->behind = !has_caught_up(n);
	return !n->behind;
}

void
sim_pauses_strike(struct sim *s)
{
	struct sim_node *n;
	uint32_t i;

	if (s->pause_every == 0 || s->finishing)
		return;
	for (i = 0; i < s->nnodes; i++)
		may_pause(&s->nodes[i]);
	n = &s->nodes[rng_below(&s->pauses, s->nnodes)];
	if (rng_one_in(&s->pauses, s->pause_every) && may_pause(n))
		pause_node(s, n);
}

/* Not with congestion control: its checks use the clock of the simulator. */
bool
sim_pauses_in_turn(struct sim *s, struct sim_node *n)
{
	if (s->pause_every == 0 || s->finishing || s->congestion.mode != KARST_CONGESTION_OFF ||
		!rng_one_in(&s->pauses, 8 * s->pause_every) || n->behind)
		return false;
	pause_node(s, n);
	return true;
}

/* Frames for this core may have arrived at another one. */
bool
sim_pauses_late(struct sim_core *c)
{
	uint32_t i, n = 0;

	for (i = 0; c->late && i < c->node->s->ncores; i++)
		n += c->node->cores[i].inbox.n;
	c->late = n != 0;
	return c->late;
}

void
sim_pauses_heard(struct sim_ep *ep)
{
	ep->waited = ep->waited_once = tries_of(ep);
}

/* If nothing was lost, one pause of the peer must be as long as all tries, except one try that a
 * pause of this node may have used. */
bool
sim_pauses_excuse(const struct sim_ep *ep, uint32_t lost)
{
	if (lost == 0 && ep->waited != 0)
		return ep->waited_once + 1 >= ep->retry_cnt;
	return lost + ep->waited >= ep->retry_cnt;
}
