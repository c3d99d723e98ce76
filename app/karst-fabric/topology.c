/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Links between hosts and switches, and routes.
 *
 *   star       hosts -- switch
 *   dumbbell   hosts -- left == right -- hosts
 *   clos       hosts -- leaves -- spines: each leaf has the same number of hosts and one link to
 *              each spine
 */
#include <stdio.h>

#include "sim.h"

uint32_t
fab_topology_switches(const struct fab_config *c)
{
	switch (c->topology) {
	case FAB_STAR:
		return 1;
	case FAB_DUMBBELL:
		return 2;
	default:
		return c->leaves + c->spines;
	}
}

/* Links host @h to port @port of @w. */
static void
attach(struct fab_sim *s, struct fab_switch *w, uint32_t port, struct fab_host *h)
{
	fab_port_init(s, &h->port, s->c->speed, s->c->delay_ns);
	fab_port_init(s, &w->port[port], s->c->speed, s->c->delay_ns);
	fab_link(&h->port, &w->port[port]);
	w->route[h->id] = (struct fab_route){.first = (uint16_t)port, .n = 1};
}

static void
join(struct fab_sim *s, struct fab_switch *a, uint32_t pa, struct fab_switch *b, uint32_t pb)
{
	fab_port_init(s, &a->port[pa], s->c->core_speed, s->c->delay_ns);
	fab_port_init(s, &b->port[pb], s->c->core_speed, s->c->delay_ns);
	fab_link(&a->port[pa], &b->port[pb]);
}

/* Links hosts first..first+n-1 to ports 0..n-1 of @w; the next @n_up ports lead to all other
 * hosts. */
static void
populate(struct fab_sim *s, struct fab_switch *w, uint32_t first, uint32_t n, uint32_t n_up)
{
	uint32_t i;

	fab_switch_init(s, w, n + n_up);
	for (i = 0; i < s->c->hosts; i++)
		w->route[i] = (struct fab_route){.first = (uint16_t)n, .n = (uint16_t)n_up};
	for (i = 0; i < n; i++)
		attach(s, w, i, &s->host[first + i]);
}

static void
build_dumbbell(struct fab_sim *s)
{
	uint32_t left = s->c->hosts / 2, right = s->c->hosts - left;

	populate(s, &s->sw[0], 0, left, 1);
	populate(s, &s->sw[1], left, right, 1);
	join(s, &s->sw[0], left, &s->sw[1], right);
	snprintf(s->sw[0].name, sizeof(s->sw[0].name), "left");
	snprintf(s->sw[1].name, sizeof(s->sw[1].name), "right");
}

static void
build_clos(struct fab_sim *s)
{
	uint32_t each = s->c->hosts / s->c->leaves, leaf, spine, i;

	for (leaf = 0; leaf < s->c->leaves; leaf++) {
		struct fab_switch *w = &s->sw[leaf];

		populate(s, w, leaf * each, each, s->c->spines);
		snprintf(w->name, sizeof(w->name), "leaf%u", leaf);
	}
	for (spine = 0; spine < s->c->spines; spine++) {
		struct fab_switch *w = &s->sw[s->c->leaves + spine];

		fab_switch_init(s, w, s->c->leaves);
		snprintf(w->name, sizeof(w->name), "spine%u", spine);
		for (i = 0; i < s->c->hosts; i++)
			w->route[i] = (struct fab_route){.first = (uint16_t)(i / each), .n = 1};
		for (leaf = 0; leaf < s->c->leaves; leaf++)
			join(s, &s->sw[leaf], each + spine, w, leaf);
	}
}

void
fab_topology_build(struct fab_sim *s)
{
	uint32_t i;

	s->nswitches = fab_topology_switches(s->c);
	s->sw = fab_alloc(s, s->nswitches * sizeof(*s->sw));
	s->host = fab_alloc(s, s->c->hosts * sizeof(*s->host));
	for (i = 0; i < s->c->hosts; i++)
		fab_host_init(s, &s->host[i], i);
	if (s->c->topology == FAB_STAR) {
		populate(s, &s->sw[0], 0, s->c->hosts, 0);
		snprintf(s->sw[0].name, sizeof(s->sw[0].name), "switch");
	} else if (s->c->topology == FAB_DUMBBELL) {
		build_dumbbell(s);
	} else {
		build_clos(s);
	}
	for (i = 0; i < s->nswitches; i++)
		fab_switch_ready(s, &s->sw[i]);
}
