/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Telemetry of queue pairs.
 *
 * A single QP is described by its lcore, between two turns.  A list would stop an lcore for as long
 * as it takes to load some hundred QPs.  So the list is made by the calling thread, under ctl_lock,
 * without which no QP is created or destroyed, from counters that are written in whole words.
 */
#include "telemetry.h"
#include "object.h"

static void
fill_qp(uint32_t qpn, const struct eng_qp_report *r, struct rte_tel_data *d)
{
	const struct karst_core_qp_attr *a = &r->attr;
	const struct {
		const char *name;
		uint64_t value;
	} rows[] = {
		{"port_num", a->port_num},
		{"path_mtu", a->path_mtu == 0 ? 0 : 128u << a->path_mtu},
		{"dest_qpn", a->dest_qpn},
		{"rq_psn", a->rq_psn},
		{"sq_psn", a->sq_psn},
		{"max_rd_atomic", a->max_rd_atomic},
		{"max_dest_rd_atomic", a->max_dest_rd_atomic},
		{"timeout", a->timeout},
		{"retry_cnt", a->retry_cnt},
		{"rnr_retry", a->rnr_retry},
		{"repeat_window", a->repeat_window},
		{"sq_posted", r->sq_seen},
		{"sq_done", r->sq_done},
		{"tx_packets", r->stats.tx_packets},
		{"tx_bytes", r->stats.tx_bytes},
		{"rx_packets", r->stats.rx_packets},
		{"rx_bytes", r->stats.rx_bytes},
		{"retransmits", r->stats.retransmits},
		{"timeouts", r->stats.timeouts},
		{"seq_naks", r->stats.seq_naks},
		{"rnr_naks", r->stats.rnr_naks},
		{"out_of_sequence", r->stats.out_of_sequence},
		{"duplicates", r->stats.duplicates},
		{"rate", r->rate.rate},
		{"rate_limit", r->rate.program_rate},
		{"cc_rate", r->rate.cc_rate},
		{"cc_target", r->rate.cc_target},
		{"cc_alpha", r->rate.cc_alpha},
		{"cwnd", r->rate.cwnd},
		{"target_delay_ns", r->rate.target_ns},
		{"delay_ns", r->rate.delay_ns},
	};
	size_t i;

	rte_tel_data_add_dict_u64(d, "qpn", qpn);
	rte_tel_data_add_dict_string(d, "type", eng_qp_type_name(r->type));
	rte_tel_data_add_dict_string(d, "state", eng_qp_state_name(a->qp_state));
	rte_tel_data_add_dict_u64(d, "lcore", r->lcore);
	rte_tel_data_add_dict_u64(d, "pd", r->pd);
	for (i = 0; i < KARST_DIM(rows); i++)
		rte_tel_data_add_dict_u64(d, rows[i].name, rows[i].value);
}

static int
on_qp(const char *cmd, const char *params, struct rte_tel_data *d)
{
	uint64_t qpn = UINT64_MAX;
	struct eng_qp_report report;
	struct karst_engine *e;
	int ret;

	rte_tel_data_start_dict(d);
	ret = eng_tel_open(params, &e, &qpn);
	if (ret != 0)
		return ret;
	ret = qpn <= 0xffffff ? eng_qp_by_number(e, (uint32_t)qpn, &report) : -EINVAL;
	eng_tel_close();
	if (ret == 0)
		fill_qp((uint32_t)qpn, &report, d);
	return ret;
}

enum {
	QP_COL_QPN,
	QP_COL_TYPE,
	QP_COL_STATE,
	QP_COL_CLIENT,
	QP_COL_TX_PACKETS,
	QP_COL_TX_BYTES,
	QP_COL_RX_PACKETS,
	QP_COL_RX_BYTES,
	QP_COL_RETRANSMITS,
	QP_COL_TIMEOUTS
};

static const char *const qp_columns[] = {"qpn", "type", "state", "client", "tx_packets", "tx_bytes",
	"rx_packets", "rx_bytes", "retransmits", "timeouts", NULL};

/* The session number of the QP's program; 0: the program that embeds the engine. */
static uint32_t
client_of(const struct karst_core_qp *qp)
{
	return ((const struct eng_qp *)karst_qp_user(qp))->owner->client;
}

static void
add_qp(struct tel_table *t, const struct karst_core_qp *qp)
{
	struct karst_qp_stats s;

	karst_qp_stats(qp, &s);
	tel_table_u64(t, QP_COL_QPN, karst_qp_num(qp));
	tel_table_str(t, QP_COL_TYPE, eng_qp_type_name(karst_qp_type(qp)));
	tel_table_str(t, QP_COL_STATE, eng_qp_state_name(karst_qp_state(qp)));
	tel_table_u64(t, QP_COL_CLIENT, client_of(qp));
	tel_table_u64(t, QP_COL_TX_PACKETS, s.tx_packets);
	tel_table_u64(t, QP_COL_TX_BYTES, s.tx_bytes);
	tel_table_u64(t, QP_COL_RX_PACKETS, s.rx_packets);
	tel_table_u64(t, QP_COL_RX_BYTES, s.rx_bytes);
	tel_table_u64(t, QP_COL_RETRANSMITS, s.retransmits);
	tel_table_u64(t, QP_COL_TIMEOUTS, s.timeouts);
}

/* Adds QPs from position @at on: one position for each slot of each lcore's table, lcore by lcore.
 * @return where to continue; 0: that was all. */
static uint64_t
add_qps(const struct karst_engine *e, uint64_t at, struct tel_table *t)
{
	uint32_t slots = e->lcore[0].core->qpns;

	for (; at < (uint64_t)slots * e->nlcores; at++) {
		const struct karst_core *core = e->lcore[at / slots].core;
		const struct karst_core_qp *qp = core->qps[at % slots];

		if (qp == NULL)
			continue;
		if (!tel_table_row(t))
			return at;
		add_qp(t, qp);
	}
	return 0;
}

static int
on_qps(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct karst_engine *e;
	struct tel_table table;
	uint64_t at = 0;
	int ret;

	rte_tel_data_start_dict(d);
	ret = eng_tel_open(params, &e, &at);
	if (ret != 0)
		return ret;
	ret = eng_ctl_enter(e);
	if (ret == 0) {
		if (tel_table_begin(&table, d, qp_columns, 1u << QP_COL_TYPE | 1u << QP_COL_STATE))
			tel_table_end(&table, add_qps(e, at, &table));
		else
			ret = -ENOMEM;
		eng_ctl_leave(e);
	}
	eng_tel_close();
	return ret;
}

const struct tel_cmd eng_tel_qps[] = {
	{"/karst/qp", on_qp, "A queue pair. Parameter: [engine:]number"},
	{"/karst/qps", on_qps, "Queue pairs, column by column. Parameter: [engine][:first]"},
	{NULL, NULL, NULL},
};
