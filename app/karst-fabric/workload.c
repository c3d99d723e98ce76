/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Workloads: which flows begin at which time.
 *
 * Ring allreduce of N hosts: each host cuts its bytes into N parts, and in each of 2 (N - 1) steps
 * sends one part to its right neighbour: first its own, then always the one that it has received
 * from its left neighbour.  The last WRITE of a part has immediate data, which notifies the
 * receiver.
 *
 * Flows of a distribution have Poisson arrivals, at the given load of all hosts' links by payload
 * bytes.  Sender and receiver are random, and each flow has a queue pair of its own.  Added incasts
 * also have Poisson arrivals, at a load of their own: each is to a random host from fan_in random
 * others at the same time.
 */
#include <math.h>

#include "sim.h"

bool
fab_workload_is_random(enum fab_workload w)
{
	return w >= FAB_WEBSEARCH;
}

bool
fab_workload_reduces(enum fab_workload w)
{
	return w == FAB_RING || w == FAB_TREE;
}

static void
begin_later(struct fab_sim *s, void *arg)
{
	struct fab_flow *f = arg;

	s->waiting--;
	if (s->ended)
		return;
	if (s->c->timed)
		fab_flow_ask(s, f, f->conn);
	else if (f->conn->live)
		fab_flow_begin(s, f, f->conn);
	else
		fab_flow_refuse(s, f);
}

static void
prepare_one(struct fab_sim *s, uint32_t src, uint32_t dst)
{
	struct fab_flow *f;
	uint32_t i;

	for (i = 0; i < s->c->connections; i++) {
		f = fab_flow_new(s, src, dst, s->c->size);
		f->conn = fab_conn_open(s, src, dst);
		f->conn->once = true;
		if (!s->c->timed)
			fab_connect(s, f->conn);
	}
}

static void
begin_flows(struct fab_sim *s)
{
	uint64_t i;

	for (i = 0; i < s->nflows; i++) {
		s->waiting++;
		fab_event_add(s,
			(uint64_t)(fab_uniform(s, FAB_TRAFFIC) * (double)s->c->stagger_ns *
				PS_PER_NS),
			begin_later, fab_flow_at(s, i));
	}
}

/* Sattolo's shuffle: one cycle through all hosts, so that no host sends to itself. */
static void
prepare_permutation(struct fab_sim *s)
{
	uint32_t n = s->c->hosts, i, *to = fab_alloc(s, n * sizeof(*to));

	for (i = 0; i < n; i++)
		to[i] = i;
	for (i = n - 1; i > 0; i--) {
		uint32_t j = fab_below(s, FAB_TRAFFIC, i), t = to[i];

		to[i] = to[j];
		to[j] = t;
	}
	for (i = 0; i < n; i++)
		prepare_one(s, i, to[i]);
	fab_free(s, to);
}

/* --- ring --- */

static uint32_t
ring_steps(const struct fab_sim *s)
{
	return 2 * (s->c->hosts - 1);
}

/* Host @i sends its part of its next step. */
static void
ring_send(struct fab_sim *s, uint32_t i)
{
	uint32_t n = s->c->hosts, step = s->ring_step[i]++;
	uint64_t part = (i + 2 * n - step) % n, size = s->c->size / n + (part < s->c->size % n);
	struct fab_flow *f;

	if (step >= ring_steps(s) || !s->ring[i]->live)
		return;
	f = fab_flow_new(s, i, (i + 1) % n, size);
	f->tell = true;
	f->imm = step;
	fab_flow_begin(s, f, s->ring[i]);
}

static void
prepare_ring(struct fab_sim *s)
{
	uint32_t n = s->c->hosts, i;

	s->ring = fab_alloc(s, n * sizeof(struct fab_conn *));
	s->ring_step = fab_alloc(s, n * sizeof(uint32_t));
	for (i = 0; i < n; i++) {
		s->ring[i] = fab_conn_open(s, i, (i + 1) % n);
		/* the left neighbour may be a step ahead */
		fab_conn_post_recv(s, s->ring[i]);
		fab_conn_post_recv(s, s->ring[i]);
		fab_connect(s, s->ring[i]);
	}
}

static void
begin_ring(struct fab_sim *s)
{
	uint32_t i;

	for (i = 0; i < s->c->hosts; i++)
		ring_send(s, i);
}

void
fab_workload_received(struct fab_sim *s, struct fab_conn *c)
{
	fab_conn_post_recv(s, c);
	if (s->c->workload == FAB_TREE)
		fab_tree_received(s, c);
	else
		ring_send(s, c->end[FAB_RECEIVER].host->id);
}

/* --- arrivals --- */

/* Schedules the next arrival of a Poisson process, unless all flows have begun. */
static void
next_of(struct fab_sim *s, enum fab_chance of, double mean_ps,
	void (*fn)(struct fab_sim *s, void *arg))
{
	double gap = -log(1 - fab_uniform(s, of)) * mean_ps;
	uint64_t at = s->now_ps + (gap < 0x1p62 ? (uint64_t)gap : (uint64_t)1 << 62);

	if ((s->c->flows != 0 && s->nflows >= s->c->flows) ||
		(s->c->duration_ns != 0 && at >= s->c->duration_ns * PS_PER_NS))
		return;
	s->waiting++;
	fab_event_add(s, at, fn, NULL);
}

static void
begin_once(struct fab_sim *s, uint32_t src, uint32_t dst, uint64_t size)
{
	struct fab_conn *c = fab_conn_open(s, src, dst);
	struct fab_flow *f = fab_flow_new(s, src, dst, size);

	c->once = true;
	if (s->c->timed) {
		fab_flow_ask(s, f, c);
		return;
	}
	fab_connect(s, c);
	if (c->live)
		fab_flow_begin(s, f, c);
	else
		fab_flow_refuse(s, f);
}

static void
arrival(struct fab_sim *s, void *arg)
{
	uint32_t src = fab_below(s, FAB_TRAFFIC, s->c->hosts),
		 dst = fab_below(s, FAB_TRAFFIC, s->c->hosts - 1);
	uint64_t size = fab_sizes_draw(s->c->workload, fab_uniform(s, FAB_TRAFFIC));

	(void)arg;
	s->waiting--;
	if (s->ended)
		return;
	begin_once(s, src, dst + (dst >= src), size);
	next_of(s, FAB_TRAFFIC, s->gap_ps, arrival);
}

/* Chooses the senders by as many steps of a shuffle; the initial order does not matter. */
static void
incast_arrival(struct fab_sim *s, void *arg)
{
	uint32_t n = s->c->hosts - 1, dst = fab_below(s, FAB_INCASTS, n + 1), i;

	(void)arg;
	s->waiting--;
	if (s->ended)
		return;
	for (i = 0; i < s->c->fan_in; i++) {
		uint32_t j = i + fab_below(s, FAB_INCASTS, n - i), src = s->incast_order[j];

		s->incast_order[j] = s->incast_order[i];
		s->incast_order[i] = src;
		begin_once(s, src + (src >= dst), dst, s->c->incast_size);
	}
	next_of(s, FAB_INCASTS, s->incast_gap_ps, incast_arrival);
}

static void
begin_incasts(struct fab_sim *s, double bytes_a_ps)
{
	uint32_t i;

	s->incast_order = fab_alloc(s, s->c->hosts * sizeof(uint32_t));
	for (i = 0; i < s->c->hosts; i++)
		s->incast_order[i] = i;
	s->incast_gap_ps =
		(double)s->c->fan_in * (double)s->c->incast_size / (s->c->incast_load * bytes_a_ps);
	next_of(s, FAB_INCASTS, s->incast_gap_ps, incast_arrival);
}

static void
begin_arrivals(struct fab_sim *s)
{
	double bytes_a_ps = (double)s->c->speed / 8e6 * s->c->hosts; /* of all hosts together */

	s->gap_ps = fab_sizes_mean(s->c->workload) / (s->c->load * bytes_a_ps);
	next_of(s, FAB_TRAFFIC, s->gap_ps, arrival);
	if (s->c->fan_in != 0)
		begin_incasts(s, bytes_a_ps);
}

void
fab_workload_prepare(struct fab_sim *s)
{
	uint32_t last = s->c->hosts - 1, i;

	switch (s->c->workload) {
	case FAB_ONE:
		prepare_one(s, 0, last);
		return;
	case FAB_TWO:
		prepare_one(s, 0, last);
		prepare_one(s, 1, last);
		return;
	case FAB_PERMUTATION:
		prepare_permutation(s);
		return;
	case FAB_INCAST:
		for (i = 1; i <= s->c->fan_in; i++)
			prepare_one(s, i, 0);
		return;
	case FAB_RING:
		prepare_ring(s);
		return;
	case FAB_TREE:
		fab_tree_prepare(s);
		return;
	default:
		return;
	}
}

void
fab_workload_begin(struct fab_sim *s)
{
	if (fab_workload_is_random(s->c->workload))
		begin_arrivals(s);
	else if (s->c->workload == FAB_RING)
		begin_ring(s);
	else if (s->c->workload == FAB_TREE)
		fab_tree_begin(s);
	else
		begin_flows(s);
}
