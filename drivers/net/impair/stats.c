/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Counters.  Packets and bytes are those of the port below, that is, between the rules and the
 * wire.  Extended counters tell what the rules did: by direction and action, then by rule.  They
 * are followed by those of the port below, with the prefix "below_".
 */
#include "impair.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_ethdev.h>

int
imp_stats_get(struct rte_eth_dev *dev, struct rte_eth_stats *stats)
{
	struct imp_port *p = dev->data->dev_private;

	return p->gone ? 0 : rte_eth_stats_get(p->below, stats);
}

void
imp_stats_sum(const struct imp_port *p, unsigned int direction, struct imp_queue_stats *to)
{
	const size_t n = sizeof(*to) / sizeof(uint64_t);
	size_t i, k;

	memset(to, 0, sizeof(*to));
	for (i = 0; i < IMP_MAX_QUEUES; i++) {
		const struct imp_queue *q = p->queue[direction][i];
		const uint64_t *base = (const uint64_t *)&p->base[direction][i];

		for (k = 0; q != NULL && k < n; k++)
			((uint64_t *)to)[k] +=
				__atomic_load_n((const uint64_t *)&q->stats + k, __ATOMIC_RELAXED) -
				base[k];
	}
}

uint64_t
imp_stats_waiting(const struct imp_port *p, unsigned int direction)
{
	uint64_t n = 0;
	size_t i;

	for (i = 0; i < IMP_MAX_QUEUES; i++) {
		const struct imp_queue *q = p->queue[direction][i];

		if (q != NULL)
			n += __atomic_load_n(&q->held.ntimed, __ATOMIC_RELAXED) +
				__atomic_load_n(&q->held.ncounted, __ATOMIC_RELAXED) +
				__atomic_load_n(&q->nready, __ATOMIC_RELAXED);
	}
	return n;
}

uint64_t
imp_stats_rule(const struct imp_port *p, uint32_t rule)
{
	uint64_t n = 0;
	size_t d, i, k;

	for (d = 0; d < IMP_BOTH; d++)
		for (i = 0; i < IMP_MAX_QUEUES; i++) {
			const struct imp_queue *q = p->queue[d][i];
			/* acquire: pairs with the release of adopt() in burst.c */
			const struct imp_set *s =
				q != NULL ? __atomic_load_n(&q->set, __ATOMIC_ACQUIRE) : NULL;

			if (s == NULL || s->rules != p->rules)
				continue; /* does not use the current rules yet */
			for (k = 0; k < s->n; k++)
				if (s->live[k].number == rule)
					n += __atomic_load_n(&s->live[k].hits, __ATOMIC_RELAXED);
		}
	return n;
}

int
imp_xstats_reset(struct rte_eth_dev *dev)
{
	struct imp_port *p = dev->data->dev_private;
	size_t d, i;

	/* telemetry reads the same from a thread of its own */
	pthread_mutex_lock(&p->lock);
	for (d = 0; d < IMP_BOTH; d++)
		for (i = 0; i < IMP_MAX_QUEUES; i++)
			if (p->queue[d][i] != NULL)
				p->base[d][i] = p->queue[d][i]->stats;
	pthread_mutex_unlock(&p->lock);
	return p->gone ? 0 : rte_eth_xstats_reset(p->below);
}

int
imp_stats_reset(struct rte_eth_dev *dev)
{
	const struct imp_port *p = dev->data->dev_private;

	return p->gone ? 0 : rte_eth_stats_reset(p->below);
}

/* --- extended --- */

/* In the order of struct imp_queue_stats, after the actions. */
static const char *const others[] = {
	"spared", "released", "discarded", "flows_evicted", "rate_dropped"};

#define OTHERS    (sizeof(others) / sizeof(others[0]))
#define OF_QUEUES (IMP_ACTIONS + OTHERS + 1) /* plus the number that is waiting */
#define ALWAYS    (IMP_BOTH * OF_QUEUES + 2) /* plus those of the log */

static_assert(sizeof(struct imp_queue_stats) == (IMP_ACTIONS + OTHERS) * sizeof(uint64_t),
	"a name for each");

static void
own_name(unsigned int i, char *to, size_t len)
{
	unsigned int k = i % OF_QUEUES;

	if (i >= IMP_BOTH * OF_QUEUES)
		snprintf(to, len, "%s", i == IMP_BOTH * OF_QUEUES ? "log_records" : "log_lost");
	else
		snprintf(to, len, "%s_%s", i / OF_QUEUES == IMP_RX ? "rx" : "tx",
			k < IMP_ACTIONS             ? imp_action_name(k)
				: k < OF_QUEUES - 1 ? others[k - IMP_ACTIONS]
						    : "waiting");
}

static void
own_values(const struct imp_port *p, uint64_t to[ALWAYS])
{
	struct imp_queue_stats sum;
	unsigned int d;

	for (d = 0; d < IMP_BOTH; d++) {
		imp_stats_sum(p, d, &sum);
		memcpy(to + d * OF_QUEUES, &sum, sizeof(sum));
		to[d * OF_QUEUES + OF_QUEUES - 1] = imp_stats_waiting(p, d);
	}
	to[IMP_BOTH * OF_QUEUES] = p->log != NULL ? imp_log_written(p->log) : 0;
	to[IMP_BOTH * OF_QUEUES + 1] = p->log != NULL ? imp_log_lost(p->log) : 0;
}

static unsigned int
count_below(const struct imp_port *p)
{
	int n = p->gone ? 0 : rte_eth_xstats_get(p->below, NULL, 0);

	return n > 0 ? (unsigned int)n : 0;
}

/* Appends the counters of the port below to the first @at of @to. */
static unsigned int
below_values(const struct imp_port *p, struct rte_eth_xstat *to, unsigned int at, unsigned int n)
{
	unsigned int want = count_below(p), i;
	struct rte_eth_xstat *from = calloc(want + 1, sizeof(*from));
	int got = from != NULL && want > 0 ? rte_eth_xstats_get(p->below, from, want) : 0;

	for (i = 0; i < want && at + i < n; i++) {
		to[at + i].id = at + i;
		to[at + i].value = (int)i < got ? from[i].value : 0;
	}
	free(from);
	return want;
}

int
imp_xstats_get(struct rte_eth_dev *dev, struct rte_eth_xstat *to, unsigned int n)
{
	struct imp_port *p = dev->data->dev_private;
	uint64_t own[ALWAYS];
	unsigned int i, total;

	pthread_mutex_lock(&p->lock);
	own_values(p, own);
	total = ALWAYS + p->rules->n;
	for (i = 0; to != NULL && i < total && i < n; i++) {
		to[i].id = i;
		to[i].value = i < ALWAYS ? own[i] : imp_stats_rule(p, i - ALWAYS);
	}
	total += to != NULL && n > total ? below_values(p, to, total, n) : count_below(p);
	pthread_mutex_unlock(&p->lock);
	return (int)total;
}

static unsigned int
below_names(
	const struct imp_port *p, struct rte_eth_xstat_name *to, unsigned int at, unsigned int n)
{
	unsigned int want = count_below(p), i;
	struct rte_eth_xstat_name *from = calloc(want + 1, sizeof(*from));
	int got = from != NULL && want > 0 ? rte_eth_xstats_get_names(p->below, from, want) : 0;

	for (i = 0; i < want && at + i < n; i++)
		snprintf(to[at + i].name, sizeof(to[0].name), "below_%.56s",
			(int)i < got ? from[i].name : "unknown");
	free(from);
	return want;
}

int
imp_xstats_get_names(struct rte_eth_dev *dev, struct rte_eth_xstat_name *to, unsigned int n)
{
	struct imp_port *p = dev->data->dev_private;
	unsigned int i, total;

	pthread_mutex_lock(&p->lock);
	total = ALWAYS + p->rules->n;
	for (i = 0; to != NULL && i < total && i < n; i++) {
		if (i < ALWAYS)
			own_name(i, to[i].name, sizeof(to[i].name));
		else
			snprintf(to[i].name, sizeof(to[i].name), "rule_%s",
				p->rules->rule[i - ALWAYS].name);
	}
	total += to != NULL && n > total ? below_names(p, to, total, n) : count_below(p);
	pthread_mutex_unlock(&p->lock);
	return (int)total;
}
