/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Telemetry of lcores: statistics of their turns, their counters and drops.  Only the lcores write
 * them; reading them affects an lcore only by the cache lines that are read.
 */
#include "telemetry.h"

#include <stdio.h>

/* Adds a row for each lcore, beginning with the one in @params; @fill fills the row. */
static int
for_each_lcore(const char *params, struct rte_tel_data *d,
	void (*fill)(const struct eng_lcore *lc, struct tel_row *row))
{
	struct karst_engine *e;
	struct tel_list list;
	struct tel_row row;
	uint64_t i = 0;
	int ret;

	tel_list_begin(&list, d);
	ret = eng_tel_open(params, &e, &i);
	if (ret != 0)
		return ret;
	for (; i < e->nlcores && tel_row_begin(&row); i++) {
		char name[16];

		fill(&e->lcore[i], &row);
		snprintf(name, sizeof(name), "%u", (unsigned int)i);
		if (!tel_list_add(&list, name, &row, i))
			break;
	}
	eng_tel_close();
	return 0;
}

static void
fill_lcore(const struct eng_lcore *lc, struct tel_row *row)
{
	struct karst_engine_lcore_stats s;
	const struct {
		const char *name;
		const uint64_t *value;
	} rows[] = {
		{"turns", &s.turns},
		{"idle_turns", &s.idle_turns},
		{"sleeps", &s.sleeps},
		{"rx_bursts", &s.rx_bursts},
		{"rx_frames", &s.rx_frames},
		{"tx_bursts", &s.tx_bursts},
		{"tx_frames", &s.tx_frames},
		{"tx_full", &s.tx_full},
		{"tx_dropped", &s.tx_dropped},
		{"handoff_in", &s.handoff_in},
		{"handoff_out", &s.handoff_out},
		{"doorbells", &s.doorbells},
		{"messages", &s.messages},
		{"no_mbufs", &s.no_mbufs},
		{"neigh_rx", &s.neigh_rx},
		{"neigh_tx", &s.neigh_tx},
		{"tap_rx", &s.tap_rx},
		{"tap_tx", &s.tap_tx},
		{"cycles", &s.cycles},
		{"busy_cycles", &s.busy_cycles},
		{"longest_turn_ns", &s.longest_turn_ns},
		{"long_turns", &s.long_turns},
	};
	const struct {
		const char *name;
		const _Atomic uint64_t *value;
	} watched[] = {
		{"taken_over", &lc->watched.taken_over},
		{"overdue_programs", &lc->watched.overdue},
		{"ejected_programs", &lc->watched.ejected},
		{"stuck_threads", &lc->watched.stuck},
		{"threads_refused", &lc->watched.no_threads},
	};
	size_t i;

	karst_engine_lcore_stats(lc->e, lc->index, &s);
	tel_row_u64(row, "attached", atomic_load_explicit(&lc->owner, memory_order_relaxed) != 0);
	tel_row_u64(row, "qps", __atomic_load_n(&lc->e->nqps[lc->index], __ATOMIC_RELAXED));
	for (i = 0; i < KARST_DIM(rows); i++)
		tel_row_u64(row, rows[i].name, *rows[i].value);
	for (i = 0; i < KARST_DIM(watched); i++)
		tel_row_u64(row, watched[i].name,
			atomic_load_explicit(watched[i].value, memory_order_relaxed));
}

static void
fill_counters(const struct eng_lcore *lc, struct tel_row *row)
{
	struct karst_counters sum;
	unsigned int i;

	karst_engine_counters(lc->e, lc->index, &sum);
	for (i = 0; i < KARST_CTR_MAX; i++)
		tel_row_u64(row, karst_counter_name(i), sum.ctr[i]);
}

static void
fill_drops(const struct eng_lcore *lc, struct tel_row *row)
{
	struct karst_counters sum;
	unsigned int i;

	karst_engine_counters(lc->e, lc->index, &sum);
	for (i = KARST_DROP_NONE + 1; i < KARST_DROP_MAX; i++)
		tel_row_u64(row, karst_drop_name(i), sum.drop[i]);
}

static int
on_lcores(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return for_each_lcore(params, d, fill_lcore);
}

static int
on_counters(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return for_each_lcore(params, d, fill_counters);
}

static int
on_drops(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return for_each_lcore(params, d, fill_drops);
}

/* Sums of all lcores, like the counters of a device. */
static int
on_hw_counters(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct karst_counters sum;
	struct karst_engine *e;
	uint64_t none = 0;
	unsigned int i;
	int ret;

	rte_tel_data_start_dict(d);
	ret = eng_tel_open(params, &e, &none);
	if (ret != 0)
		return ret;
	karst_engine_counters(e, KARST_ENGINE_ANY_LCORE, &sum);
	eng_tel_close();
	for (i = 0; i < KARST_HW_COUNTERS; i++)
		rte_tel_data_add_dict_u64(
			d, karst_hw_counter_name(i), karst_hw_counter_value(&sum, i));
	return 0;
}

/* Explains the names. */
static int
on_help(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const char *what = params == NULL ? "" : params;
	unsigned int i;

	rte_tel_data_start_dict(d);
	if (strcmp(what, "counters") == 0) {
		for (i = 0; i < KARST_CTR_MAX; i++)
			rte_tel_data_add_dict_string(
				d, karst_counter_name(i), karst_counter_help(i));
	} else if (strcmp(what, "drops") == 0) {
		for (i = KARST_DROP_NONE + 1; i < KARST_DROP_MAX; i++)
			rte_tel_data_add_dict_string(d, karst_drop_name(i), karst_drop_help(i));
	} else if (strcmp(what, "hw_counters") == 0) {
		for (i = 0; i < KARST_HW_COUNTERS; i++)
			rte_tel_data_add_dict_string(
				d, karst_hw_counter_name(i), karst_hw_counter_help(i));
	} else {
		return -EINVAL;
	}
	return 0;
}

const struct tel_cmd eng_tel_lcores[] = {
	{"/karst/lcores", on_lcores,
		"What each lcore did. Parameter: [engine][:first], by default the first of all."},
	{"/karst/counters", on_counters,
		"Protocol counters of each lcore. Parameter: [engine][:first]"},
	{"/karst/drops", on_drops,
		"Dropped frames of each lcore by reason. Parameter: [engine][:first]"},
	{"/karst/hw_counters", on_hw_counters,
		"Counters under the names of Linux's hw_counters. Parameter: [engine]"},
	{"/karst/help", on_help, "What names mean. Parameter: counters, drops or hw_counters"},
	{NULL, NULL, NULL},
};
