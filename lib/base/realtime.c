/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "karst_realtime.h"

#define NS_PER_S      1000000000
#define PAIRS_PER_S   1000u /* closer pairs are ignored */
#define SET_SHARE     100   /* 1 %: if two pairs differ from the frequency by more, it was set */
#define READ_ATTEMPTS 3u

void
karst_realtime_init(struct karst_realtime *r, uint64_t hz, uint64_t tsc, uint64_t ns)
{
	*r = (struct karst_realtime){.hz = hz,
		.tsc = tsc,
		.ns = ns,
		.first_tsc = tsc,
		.first_ns = ns,
		.num_ns = NS_PER_S,
		.num_cycles = hz};
}

static int64_t
realtime_since(const struct karst_realtime *r, uint64_t tsc)
{
	return (int64_t)((__int128)(int64_t)(tsc - r->tsc) * (__int128)r->num_ns /
		(__int128)r->num_cycles);
}

void
karst_realtime_pair(struct karst_realtime *r, uint64_t tsc, uint64_t ns)
{
	int64_t expected, off;

	if ((int64_t)(tsc - r->tsc) < (int64_t)(r->hz / PAIRS_PER_S))
		return;
	expected = realtime_since(r, tsc);
	off = (int64_t)(ns - r->ns) - expected;
	if ((off < 0 ? -off : off) > expected / SET_SHARE) {
		/* the clock was set: the frequency remains */
		r->first_tsc = tsc;
		r->first_ns = ns;
		r->last_tsc = r->last_ns = 0;
	} else {
		r->num_ns = ns - r->first_ns;
		r->num_cycles = tsc - r->first_tsc;
	}
	r->tsc = tsc;
	r->ns = ns;
}

uint64_t
karst_realtime_at(struct karst_realtime *r, uint64_t tsc)
{
	uint64_t ns = r->ns + (uint64_t)realtime_since(r, tsc);

	if (tsc < r->last_tsc)
		return ns;
	/* a new pair may be some ns earlier than what the one before it gave */
	ns = karst_max_u64(ns, r->last_ns);
	r->last_tsc = tsc;
	r->last_ns = ns;
	return ns;
}

void
karst_realtime_read(
	uint64_t (*read_tsc)(void), uint64_t (*read_ns)(void), uint64_t *tsc, uint64_t *ns)
{
	uint64_t best = UINT64_MAX;
	unsigned int i;

	for (i = 0; i < READ_ATTEMPTS; i++) {
		uint64_t before = read_tsc(), now = read_ns(), took = read_tsc() - before;

		if (took >= best)
			continue;
		best = took;
		*tsc = before + took / 2;
		*ns = now;
	}
}
