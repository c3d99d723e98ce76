/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "sim_cm.h"

void
node_address(uint32_t node, uint8_t ip[16])
{
	static const uint8_t net[16] = {[10] = 0xff, 0xff, 192, 0, 2, 1};

	memcpy(ip, net, 16);
	ip[15] = (uint8_t)(ip[15] + node);
}

/* Puts a datagram of 256 bytes (U2) in flight. */
static void
launch(struct world *w, uint32_t node, const struct karst_cm_path *path, const uint8_t *mad)
{
	struct flight *f;

	if (w->nflights == FLIGHTS) {
		violated(w, "more than %u messages on their way", FLIGHTS);
		return;
	}
	f = malloc(sizeof(*f));
	if (f == NULL)
		abort();
	f->at = w->now_ns + w->delay_min_ns +
		rng_u64(&w->rng) % (w->delay_max_ns - w->delay_min_ns + 1);
	f->order = w->sent;
	f->node = node;
	f->seen = *path;
	memcpy(f->seen.local_ip, path->remote_ip, 16);
	memcpy(f->seen.remote_ip, path->local_ip, 16);
	memcpy(f->mad, mad, KARST_CM_MAD_LEN);
	w->flights[w->nflights++] = f;
}

void
link_send(struct world *w, uint32_t node, const struct karst_cm_path *path, const uint8_t *mad)
{
	uint8_t ip[16];
	uint32_t to;

	node_address(node, ip);
	REQUIRE(w, memcmp(path->local_ip, ip, 16) == 0, "node %u sends as somebody else", node);
	for (to = 0; to < w->nnodes; to++) {
		node_address(to, ip);
		if (memcmp(path->remote_ip, ip, 16) == 0)
			break;
	}
	REQUIRE(w, to < w->nnodes, "node %u sends to nobody", node);
	w->sent++;
	if (w->verbose)
		printf("%12.6f  node %u -> %u  %s\n", (double)w->now_ns / 1e9, node, to,
			karst_cm_kind_name(karst_cm_mad_kind(mad)));
	if (to == w->nnodes || rng_ppm(&w->rng, w->loss_ppm))
		return;
	launch(w, to, path, mad);
	while (rng_ppm(&w->rng, w->double_ppm))
		launch(w, to, path, mad);
}

static uint32_t
first(const struct world *w)
{
	uint32_t i, best = 0;

	for (i = 1; i < w->nflights; i++)
		if (w->flights[i]->at < w->flights[best]->at ||
			(w->flights[i]->at == w->flights[best]->at &&
				w->flights[i]->order < w->flights[best]->order))
			best = i;
	return best;
}

uint64_t
link_next(const struct world *w)
{
	return w->nflights == 0 ? NEVER : w->flights[first(w)]->at;
}

void
link_deliver(struct world *w)
{
	uint32_t i = first(w);
	struct flight *f = w->flights[i];

	w->flights[i] = w->flights[--w->nflights];
	w->cm[f->node]->now_ns = w->now_ns;
	karst_cm_rx(w->cm[f->node], &f->seen, f->mad, KARST_CM_MAD_LEN);
	free(f);
}

void
link_clear(struct world *w)
{
	while (w->nflights > 0)
		free(w->flights[--w->nflights]);
}
