/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Make the rules of one direction of a queue, with their counts.  Queues share only the rules'
 * limits.  So the packets that are hit depend only on the packets of the queue and the seed.
 */
#include "impair.h"

#include <stdlib.h>

static uint64_t
cycles(uint64_t us)
{
	return (uint64_t)((unsigned __int128)us * rte_get_tsc_hz() / 1000000);
}

/* SplitMix64's finalizer: maps neighbouring numbers to unrelated ones. */
static uint64_t
scatter(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static void
live_init(struct imp_live *l, struct imp_rules *rules, uint32_t number, unsigned int direction,
	uint16_t queue, uint64_t now)
{
	const struct imp_conf_rule *c = &rules->rule[number];
	uint64_t hz = rte_get_tsc_hz();
	bool any_opcode = (c->opcode[0] | c->opcode[1] | c->opcode[2] | c->opcode[3]) == 0;
	unsigned int i;

	*l = (struct imp_live){.conf = c,
		.number = number,
		.qpn_any = c->nqpn == 0,
		.psn_any = c->npsn == 0,
		.source_ports = (uint16_t)c->source_ports,
		.qpn_only = c->nqpn == 1 && c->qpn[0].first == c->qpn[0].last ? c->qpn[0].first
									      : UINT32_MAX,
		.choice = (uint8_t)c->choice,
		.transmission = c->transmission,
		.counter = -1,
		.next = c->choice == IMP_NTH ? c->nth[0] : c->every,
		.taken = &rules->taken[number],
		.delay = cycles(c->delay_us),
		.hold = cycles(c->time_us),
		.queue = cycles(c->queue_us)};
	for (i = 0; i < 4; i++)
		l->opcode[i] = any_opcode ? UINT64_MAX : c->opcode[i];
	l->salt = scatter(rules->seed +
		scatter(c->seed + ((uint64_t)number << 32) + ((uint64_t)direction << 16) + queue +
			1));
	l->from = c->from_ms == 0 ? 0 : now + cycles(c->from_ms * 1000);
	l->until = c->until_ms == UINT64_MAX ? UINT64_MAX : now + cycles(c->until_ms * 1000);
	if (c->action == IMP_RATE) {
		unsigned __int128 byte = ((unsigned __int128)hz << 32) * 8;

		l->byte_cycles = (uint64_t)(byte / (c->rate_kbps * 1000));
		l->tau = (uint64_t)((unsigned __int128)l->byte_cycles * c->burst_bytes >> 32);
	}
}

static void
let_through(struct imp_set *s, const struct imp_live *l, bool whole_flow)
{
	uint32_t i, qpn;

	for (i = 0; i < 256; i++)
		s->opcode[i] |= whole_flow || (l->opcode[i / 64] >> (i % 64) & 1) != 0;
	if (l->qpn_any)
		memset(s->qpn, 0xff, sizeof(s->qpn));
	for (i = 0; i < l->conf->nqpn; i++) {
		const struct imp_range *r = &l->conf->qpn[i];

		if (r->last - r->first >= UINT16_MAX)
			memset(s->qpn, 0xff, sizeof(s->qpn));
		else
			for (qpn = r->first; qpn <= r->last; qpn++)
				s->qpn[imp_qpn_bit(qpn) / 64] |= UINT64_C(1)
					<< imp_qpn_bit(qpn) % 64;
	}
}

static bool
needs_time(const struct imp_conf_rule *c)
{
	return c->from_ms != 0 || c->until_ms != UINT64_MAX || c->action == IMP_DELAY ||
		c->action == IMP_RATE || c->action == IMP_HOLD || c->action == IMP_REORDER;
}

/* Whether the rule matches all packets, and hits by their number alone. */
static bool
counts_all(const struct imp_conf_rule *c, const struct imp_live *l)
{
	return (l->opcode[0] & l->opcode[1] & l->opcode[2] & l->opcode[3]) == UINT64_MAX &&
		l->qpn_any && l->psn_any && l->source_ports == UINT16_MAX && c->transmission == 0 &&
		c->per == 0 && c->from_ms == 0 && c->until_ms == UINT64_MAX &&
		(c->choice == IMP_NTH || c->choice == IMP_EVERY);
}

struct imp_set *
imp_set_new(struct imp_rules *rules, unsigned int direction, uint16_t queue, uint32_t generation,
	uint64_t now)
{
	struct imp_set *s = NULL;
	uint32_t i, counters = 0;
	bool psns = false;
	size_t size = sizeof(*s) + rules->n * sizeof(s->live[0]);

	s = aligned_alloc(64, RTE_ALIGN_CEIL(size, (size_t)64));
	if (s == NULL)
		return NULL;
	memset(s, 0, size);
	s->rules = rules;
	s->generation = generation;
	s->counts_all = true;
	for (i = 0; i < rules->n; i++) {
		const struct imp_conf_rule *c = &rules->rule[i];
		struct imp_live *l = &s->live[s->n];

		if (c->direction != IMP_BOTH && c->direction != direction)
			continue;
		live_init(l, rules, i, direction, queue, now);
		if (c->per != 0)
			l->counter = (int32_t)counters++;
		psns |= c->transmission != 0;
		s->times |= needs_time(c);
		s->counts_all &= counts_all(c, l);
		let_through(s, l, c->transmission != 0);
		s->n++;
	}
	if (psns || counters > 0) {
		s->flows = imp_flows_new(rules->flows, counters, psns, rules->seed);
		if (s->flows == NULL) {
			free(s);
			return NULL;
		}
	}
	rules->users++;
	return s;
}

void
imp_set_free(struct imp_set *s)
{
	if (s == NULL)
		return;
	if (--s->rules->users == 0)
		imp_rules_free(s->rules);
	imp_flows_free(s->flows);
	free(s);
}

void
imp_sets_free(struct imp_set *list)
{
	struct imp_set *older;

	for (; list != NULL; list = older) {
		older = list->older;
		imp_set_free(list);
	}
}
