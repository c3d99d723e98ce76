/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "telemetry.h"

#include <stdio.h>

#include "cm.h"

/* "tx_REQ" */
static void
add_kind(struct rte_tel_data *d, const char *what, enum karst_cm_kind kind, uint64_t v)
{
	char name[RTE_TEL_MAX_STRING_LEN];

	snprintf(name, sizeof(name), "%s_%s", what, karst_cm_kind_name(kind));
	for (char *c = name; *c != '\0'; c++)
		if (*c == ' ')
			*c = '_';
	rte_tel_data_add_dict_u64(d, name, v);
}

static void
add_report(struct rte_tel_data *d, const struct cm_report *r)
{
	const struct karst_cm_counters *c = &r->counters;
	unsigned int i;

	rte_tel_data_add_dict_u64(d, "listeners", r->listeners);
	rte_tel_data_add_dict_u64(d, "connections", r->connections);
	rte_tel_data_add_dict_u64(d, "half_open", r->half_open);
	rte_tel_data_add_dict_u64(d, "paths", r->npaths);
	for (i = 0; i < KARST_CM_KINDS; i++) {
		add_kind(d, "tx", i, c->tx[i]);
		add_kind(d, "tx_retries", i, c->tx_retries[i]);
		add_kind(d, "rx", i, c->rx[i]);
		add_kind(d, "rx_duplicates", i, c->rx_duplicates[i]);
	}
	for (i = 0; i < KARST_CM_CTRS; i++)
		rte_tel_data_add_dict_u64(d, karst_cm_counter_name(i), c->other[i]);
	rte_tel_data_add_dict_u64(d, "events_lost", r->stats.events_lost);
	rte_tel_data_add_dict_u64(d, "mads_dropped", r->stats.mads_dropped);
	rte_tel_data_add_dict_u64(d, "paths_failed", r->stats.paths_failed);
	rte_tel_data_add_dict_u64(d, "backlog_full", r->stats.backlog_full);
	rte_tel_data_add_dict_u64(d, "limit_reached", r->stats.limit_reached);
	rte_tel_data_add_dict_u64(d, "ask_share", r->stats.ask_share);
	rte_tel_data_add_dict_u64(d, "ece_offered", r->stats.ece_offered);
	rte_tel_data_add_dict_u64(d, "ece_agreed", r->stats.ece_agreed);
	rte_tel_data_add_dict_u64(d, "ece_ignored", r->stats.ece_ignored);
}

static int
on_cm(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct cm_report report;
	struct karst_engine *e;
	uint64_t none = 0;
	int ret;

	rte_tel_data_start_dict(d);
	ret = eng_tel_open(params, &e, &none);
	if (ret != 0)
		return ret;
	eng_cm_report(e, &report);
	eng_tel_close();
	add_report(d, &report);
	return 0;
}

const struct tel_cmd eng_tel_cm[] = {
	{"/karst/cm", on_cm, "Connection management. Parameter: [engine]"},
	{NULL, NULL, NULL},
};
