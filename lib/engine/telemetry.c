/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * rte_telemetry: what the engines of this process are doing.
 *
 *	/karst/lcores     what each lcore's wheel did
 *	/karst/counters   protocol counters, of each lcore that has counted something
 *	/karst/drops      dropped frames by reason, likewise
 *	/karst/ports      address, MTU, who serves it
 *	/karst/qp,NUM     one queue pair
 *
 * Each takes the name of an engine as parameter (with /karst/qp: NAME:NUM); without one, the
 * oldest engine answers.  /karst/engines lists them.
 *
 * rte_telemetry has one table of commands for the process and hands no pointer to the callbacks,
 * so there is a list of engines here: the one piece of state of the library that is not an
 * engine's.  Its lock is held while a command runs, so that no engine vanishes under it.
 */
#include "engine_priv.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_telemetry.h>

#include "karst_crc.h"

static struct {
	pthread_mutex_t lock;
	struct karst_engine *first;
	unsigned int count; /* engines ever made, for names */
	bool registered;
} engines = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The engine that @params names, up to a comma or colon; or the oldest. */
static struct karst_engine *
find_engine(const char *params)
{
	size_t n = params == NULL ? 0 : strcspn(params, ",:");
	struct karst_engine *e;

	for (e = engines.first; e != NULL; e = e->next)
		if (e->ready && (n == 0 || (strlen(e->name) == n && !strncmp(e->name, params, n))))
			return e;
	return NULL;
}

static int
on_engines(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct karst_engine *e;

	rte_tel_data_start_array(d, RTE_TEL_STRING_VAL);
	pthread_mutex_lock(&engines.lock);
	for (e = engines.first; e != NULL; e = e->next)
		if (e->ready)
			rte_tel_data_add_array_string(d, e->name);
	pthread_mutex_unlock(&engines.lock);
	return 0;
}

/* Adds one entry to @d for each lcore: what @fill makes of it. */
static int
for_each_lcore(const char *params, struct rte_tel_data *d,
	void (*fill)(const struct eng_lcore *lc, struct rte_tel_data *d))
{
	struct karst_engine *e;
	uint32_t i;
	int ret = -ENOENT;

	rte_tel_data_start_dict(d);
	pthread_mutex_lock(&engines.lock);
	e = find_engine(params);
	for (i = 0; e != NULL && i < e->nlcores; i++) {
		struct rte_tel_data *sub = rte_tel_data_alloc();
		char name[16];

		if (sub == NULL)
			break;
		rte_tel_data_start_dict(sub);
		fill(&e->lcore[i], sub);
		snprintf(name, sizeof(name), "%u", i);
		rte_tel_data_add_dict_container(d, name, sub, 0);
		ret = 0;
	}
	pthread_mutex_unlock(&engines.lock);
	return ret;
}

static void
fill_lcore(const struct eng_lcore *lc, struct rte_tel_data *d)
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
	};
	size_t i;

	karst_engine_lcore_stats(lc->e, lc->index, &s);
	rte_tel_data_add_dict_int(
		d, "attached", atomic_load_explicit(&lc->owner, memory_order_relaxed) != 0);
	rte_tel_data_add_dict_u64(d, "qps", lc->core->nqps);
	for (i = 0; i < KARST_DIM(rows); i++)
		rte_tel_data_add_dict_u64(d, rows[i].name, *rows[i].value);
}

static void
fill_counters(const struct eng_lcore *lc, struct rte_tel_data *d)
{
	struct karst_counters sum;
	unsigned int i;

	karst_engine_counters(lc->e, lc->index, &sum);
	for (i = 0; i < KARST_CTR_MAX; i++)
		rte_tel_data_add_dict_u64(d, karst_counter_name(i), sum.ctr[i]);
}

static void
fill_drops(const struct eng_lcore *lc, struct rte_tel_data *d)
{
	struct karst_counters sum;
	unsigned int i;

	karst_engine_counters(lc->e, lc->index, &sum);
	for (i = KARST_DROP_NONE + 1; i < KARST_DROP_MAX; i++)
		rte_tel_data_add_dict_u64(d, karst_drop_name(i), sum.drop[i]);
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

static void
fill_port(
	const struct eng_port *p, const struct karst_engine_port_info *info, struct rte_tel_data *d)
{
	char text[RTE_TEL_MAX_STRING_LEN];
	uint32_t i;

	rte_tel_data_add_dict_string(d, "device", p->name);
	rte_tel_data_add_dict_u64(d, "ethdev", info->ethdev);
	rte_tel_data_add_dict_u64(d, "mtu", info->mtu);
	rte_tel_data_add_dict_u64(d, "path_mtu", 128u << info->path_mtu);
	snprintf(text, sizeof(text), "%02x:%02x:%02x:%02x:%02x:%02x", info->mac[0], info->mac[1],
		info->mac[2], info->mac[3], info->mac[4], info->mac[5]);
	rte_tel_data_add_dict_string(d, "mac", text);
	rte_tel_data_add_dict_u64(d, "vlan", info->vlan);
	rte_tel_data_add_dict_string(d, "link", info->link_up ? "up" : "down");
	rte_tel_data_add_dict_u64(d, "link_mbps", info->link_mbps);
	rte_tel_data_add_dict_string(d, "netdev", info->netdev);
	snprintf(text, sizeof(text), "0x%" PRIx64, info->lcore_mask);
	rte_tel_data_add_dict_string(d, "lcore_mask", text);
	for (i = 0; i < info->num_addrs; i++) {
		char name[24];

		snprintf(name, sizeof(name), "address_%u", i);
		if (karst_engine_addr_is_ip4(&info->addrs[i]))
			inet_ntop(AF_INET, info->addrs[i].ip + 12, text, sizeof(text));
		else
			inet_ntop(AF_INET6, info->addrs[i].ip, text, sizeof(text));
		rte_tel_data_add_dict_string(d, name, text);
	}
}

static int
on_ports(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct karst_engine *e;
	uint32_t i;

	rte_tel_data_start_dict(d);
	pthread_mutex_lock(&engines.lock);
	e = find_engine(params);
	for (i = 0; e != NULL && i < e->nports; i++) {
		struct karst_engine_port_info info;
		struct rte_tel_data *sub;
		char name[16];

		if (karst_engine_port_info(e, (uint8_t)i, &info) != 0)
			continue;
		sub = rte_tel_data_alloc();
		if (sub == NULL)
			break;
		rte_tel_data_start_dict(sub);
		fill_port(&e->port[i], &info, sub);
		snprintf(name, sizeof(name), "%u", i);
		rte_tel_data_add_dict_container(d, name, sub, 0);
	}
	pthread_mutex_unlock(&engines.lock);
	return e == NULL ? -ENOENT : 0;
}

static void
fill_qp(const struct karst_engine_qp *qp, const struct karst_core_qp_attr *a,
	struct rte_tel_data *d)
{
	static const char *const states[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

	rte_tel_data_add_dict_u64(d, "qpn", qp->num);
	rte_tel_data_add_dict_u64(d, "lcore", qp->lcore);
	rte_tel_data_add_dict_u64(d, "pd", qp->pd);
	rte_tel_data_add_dict_string(
		d, "state", a->qp_state < KARST_DIM(states) ? states[a->qp_state] : "?");
	rte_tel_data_add_dict_u64(d, "port_num", a->port_num);
	rte_tel_data_add_dict_u64(d, "path_mtu", a->path_mtu == 0 ? 0 : 128u << a->path_mtu);
	rte_tel_data_add_dict_u64(d, "dest_qpn", a->dest_qpn);
	rte_tel_data_add_dict_u64(d, "rq_psn", a->rq_psn);
	rte_tel_data_add_dict_u64(d, "sq_psn", a->sq_psn);
	rte_tel_data_add_dict_u64(d, "max_rd_atomic", a->max_rd_atomic);
	rte_tel_data_add_dict_u64(d, "max_dest_rd_atomic", a->max_dest_rd_atomic);
	rte_tel_data_add_dict_u64(d, "timeout", a->timeout);
	rte_tel_data_add_dict_u64(d, "retry_cnt", a->retry_cnt);
	rte_tel_data_add_dict_u64(d, "rnr_retry", a->rnr_retry);
	rte_tel_data_add_dict_u64(d, "sq_posted", qp->sq.tail);
	rte_tel_data_add_dict_u64(
		d, "sq_done", atomic_load_explicit(&qp->sq.sh->head, memory_order_relaxed));
}

static int
on_qp(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const char *num = params == NULL ? NULL : strrchr(params, ':');
	struct karst_core_qp_attr attr;
	struct karst_engine_qp qp;
	struct karst_engine *e;
	unsigned long qpn;
	char *end;
	int ret = -ENOENT;

	rte_tel_data_start_dict(d);
	if (params == NULL)
		return -EINVAL;
	num = num == NULL ? params : num + 1;
	qpn = strtoul(num, &end, 0);
	if (end == num || *end != '\0' || qpn > 0xffffff)
		return -EINVAL;
	pthread_mutex_lock(&engines.lock);
	e = find_engine(num == params ? NULL : params);
	if (e != NULL)
		ret = eng_qp_by_number(e, (uint32_t)qpn, &qp, &attr);
	if (ret == 0)
		fill_qp(&qp, &attr, d);
	pthread_mutex_unlock(&engines.lock);
	return ret;
}

static void
register_commands(void)
{
	const struct {
		const char *cmd;
		telemetry_cb fn;
		const char *help;
	} rows[] = {
		{"/karst/engines", on_engines, "Names of the karst engines. No parameters."},
		{"/karst/lcores", on_lcores, "What each lcore did. Parameter: engine (optional)."},
		{"/karst/counters", on_counters,
			"Protocol counters of each lcore. Parameter: engine (optional)."},
		{"/karst/drops", on_drops,
			"Dropped frames of each lcore by reason. Parameter: engine (optional)."},
		{"/karst/ports", on_ports, "Ports. Parameter: engine (optional)."},
		{"/karst/qp", on_qp, "A queue pair. Parameter: [engine:]number."},
	};
	size_t i;

	for (i = 0; i < KARST_DIM(rows); i++)
		rte_telemetry_register_cmd(rows[i].cmd, rows[i].fn, rows[i].help);
}

static int
add_locked(struct karst_engine *e)
{
	struct karst_engine **at;

	if (!engines.registered) {
		int ret = karst_crc_init(NULL);

		if (ret != 0) {
			karst_log(KARST_LOG_ERR, "choosing CRC kernels: %s", rte_strerror(-ret));
			return ret;
		}
		/* Without telemetry (--no-telemetry) they are registered and never asked. */
		register_commands();
		engines.registered = true;
	}
	if (e->cfg.name != NULL)
		snprintf(e->name, sizeof(e->name), "%s", e->cfg.name);
	else
		snprintf(e->name, sizeof(e->name), "karst%u", engines.count);
	e->cfg.name = e->name;
	for (at = &engines.first; *at != NULL; at = &(*at)->next) {
		if (strcmp((*at)->name, e->name) == 0) {
			karst_log(KARST_LOG_ERR, "there is an engine \"%s\" already", e->name);
			return -EEXIST;
		}
	}
	*at = e;
	engines.count++;
	return 0;
}

int
eng_telemetry_add(struct karst_engine *e)
{
	int ret;

	pthread_mutex_lock(&engines.lock);
	ret = add_locked(e);
	pthread_mutex_unlock(&engines.lock);
	return ret;
}

void
eng_telemetry_ready(struct karst_engine *e)
{
	pthread_mutex_lock(&engines.lock);
	e->ready = true;
	pthread_mutex_unlock(&engines.lock);
}

void
eng_telemetry_del(struct karst_engine *e)
{
	struct karst_engine **at;

	pthread_mutex_lock(&engines.lock);
	for (at = &engines.first; *at != NULL; at = &(*at)->next) {
		if (*at == e) {
			*at = e->next;
			break;
		}
	}
	pthread_mutex_unlock(&engines.lock);
}
