/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Telemetry of the SMC service; doc/smc.rst describes the commands. karst-smc reads it.
 *
 * rte_telemetry passes no pointer to its callbacks, so the one service of this process is in a
 * static variable.
 */
#include "smc_priv.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdlib.h>

#include <rte_telemetry.h>

#define PAGE_ROWS 32u /* of an answer, whose limit is 16 KiB */

static struct {
	pthread_mutex_t lock;
	struct kd_smc *smc;
	bool registered;
} service = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct kd_smc *
enter(void)
{
	pthread_mutex_lock(&service.lock);
	if (service.smc == NULL) {
		pthread_mutex_unlock(&service.lock);
		return NULL;
	}
	pthread_mutex_lock(&service.smc->lock);
	return service.smc;
}

static void
tel_leave(struct kd_smc *s)
{
	pthread_mutex_unlock(&s->lock);
	pthread_mutex_unlock(&service.lock);
}

/* --- overview --- */

static int
on_smc(const char *cmd, const char *params, struct rte_tel_data *d)
{
	static const char *const counts[KD_SMC_COUNTS] = {"option_offered", "option_answered",
		"option_seen_active", "option_seen_passive", "option_held_back", "option_no_room"};
	struct kd_smc *s = enter();
	unsigned int i;

	if (s == NULL)
		return -1;
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "eid", s->conf->smc.eid);
	rte_tel_data_add_dict_u64(d, "programs", s->nprogs);
	rte_tel_data_add_dict_u64(d, "turned_away", s->turned_away);
	rte_tel_data_add_dict_u64(d, "connections", s->nconns);
	rte_tel_data_add_dict_u64(d, "groups", s->core->ngroups);
	rte_tel_data_add_dict_u64(d, "buffers", s->core->nrmbs);
	rte_tel_data_add_dict_u64(d, "buffers_kept", s->nspares);
	rte_tel_data_add_dict_u64(d, "pages_kept", s->nfree_pages);
	rte_tel_data_add_dict_u64(d, "rings_kept", s->nfree_rings);
	rte_tel_data_add_dict_u64(d, "opened", s->opened);
	rte_tel_data_add_dict_u64(d, "direct", s->joined);
	rte_tel_data_add_dict_u64(d, "faults", s->faults);
	rte_tel_data_add_dict_u64(d, "short_on_tcp", s->short_on_tcp);
	for (i = 0; i < KD_SMC_COUNTS; i++)
		rte_tel_data_add_dict_u64(d, counts[i], atomic_load(&s->option.counts[i]));
	for (i = 0; i < KARST_SMC_CTRS; i++)
		rte_tel_data_add_dict_u64(d, karst_smc_counter_name(i), s->core->counters[i]);
	tel_leave(s);
	return 0;
}

static int
on_reasons(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct kd_smc *s = enter();
	const char *text;
	char name[16];
	uint32_t number;
	unsigned int i;

	if (s == NULL)
		return -1;
	rte_tel_data_start_dict(d);
	for (i = 0; (text = svc_reason_text(i, &number)) != NULL; i++) {
		struct rte_tel_data *row = s->fell_back[i] != 0 ? rte_tel_data_alloc() : NULL;

		if (row == NULL)
			continue;
		rte_tel_data_start_dict(row);
		rte_tel_data_add_dict_string(row, "text", text);
		rte_tel_data_add_dict_u64(row, "connections", s->fell_back[i]);
		snprintf(name, sizeof(name), "%08x", number);
		rte_tel_data_add_dict_container(d, name, row, 0);
	}
	tel_leave(s);
	return 0;
}

/* --- connections --- */

static void
add_address(struct rte_tel_data *d, const char *name, const struct sockaddr_storage *a)
{
	char ip[INET6_ADDRSTRLEN] = "", text[INET6_ADDRSTRLEN + 16];
	const struct sockaddr_in *a4 = (const void *)a;
	const struct sockaddr_in6 *a6 = (const void *)a;

	if (a->ss_family == AF_INET)
		inet_ntop(AF_INET, &a4->sin_addr, ip, sizeof(ip));
	else
		inet_ntop(AF_INET6, &a6->sin6_addr, ip, sizeof(ip));
	snprintf(text, sizeof(text), a->ss_family == AF_INET ? "%s:%u" : "[%s]:%u", ip,
		ntohs(a->ss_family == AF_INET ? a4->sin_port : a6->sin6_port));
	rte_tel_data_add_dict_string(d, name, text);
}

/* Reads the positions that the programs have written, which may be wrong.  Leaves the rings mapped
 * or unmapped as before: an idle connection stays without a mapping. */
static void
read_positions(struct svc_conn *c)
{
	bool mapped = c->txd != NULL, was_mapped = c->was_mapped;

	if (!svc_conn_map(c))
		return;
	c->tx_head = atomic_load(&c->txd->head);
	c->tx_tail = atomic_load(&c->txd->tail);
	c->rx_head = karst_sock_written(c->rxd, c->buffer);
	c->rx_tail = atomic_load(&c->rxd->tail);
	if (!mapped) {
		svc_conn_unmap(c);
		c->was_mapped = was_mapped;
	}
}

static void
add_conn(struct rte_tel_data *d, struct svc_conn *c)
{
	static const char *const modes[] = {"agreeing", "SMC-R", "TCP", "direct", "over"};
	struct karst_smc_conn_info info = {0};
	char reason[16];

	rte_tel_data_start_dict(d);
	add_address(d, "local", &c->local);
	add_address(d, "peer", &c->peer);
	rte_tel_data_add_dict_string(d, "mode", modes[c->what]);
	rte_tel_data_add_dict_string(d, "role", c->server ? "server" : "client");
	rte_tel_data_add_dict_u64(d, "pid", (uint64_t)c->pid);
	rte_tel_data_add_dict_u64(d, "uid", c->user->uid);
	rte_tel_data_add_dict_u64(d, "buffer", c->buffer);
	if (c->what == SMC_DIRECT)
		read_positions(c);
	rte_tel_data_add_dict_u64(d, "sent", c->tx_tail);
	rte_tel_data_add_dict_u64(d, "unsent", c->tx_head - c->tx_tail);
	rte_tel_data_add_dict_u64(d, "received", c->rx_head);
	rte_tel_data_add_dict_u64(d, "unread", c->rx_head - c->rx_tail);
	if (c->id != SMC_NO_ID && karst_smc_conn_info(c->smc->core, c->id, &info) == 0) {
		rte_tel_data_add_dict_string(d, "state", karst_smc_state_name(info.state));
		rte_tel_data_add_dict_u64(d, "group", info.group);
	}
	if (c->reason != 0) {
		snprintf(reason, sizeof(reason), "0x%08x", c->reason);
		rte_tel_data_add_dict_string(d, "reason", reason);
	}
}

static int
by_number(const void *a, const void *b)
{
	const struct svc_conn *const *x = a, *const *y = b;

	return ((*x)->number > (*y)->number) - ((*x)->number < (*y)->number);
}

/* Adds rows of connections from number @from on, and the number at which the next page begins. */
static void
add_page(struct kd_smc *s, struct rte_tel_data *d, uint64_t from)
{
	struct svc_conn **all = calloc(s->nconns + 1, sizeof(struct svc_conn *)), *c;
	uint32_t n = 0, i;
	char name[24];

	if (all == NULL)
		return;
	for (c = s->conns; c != NULL; c = c->next)
		if (c->number >= from)
			all[n++] = c;
	qsort(all, n, sizeof(struct svc_conn *), by_number);
	for (i = 0; i < n && i < PAGE_ROWS; i++) {
		struct rte_tel_data *row = rte_tel_data_alloc();

		if (row == NULL)
			break;
		add_conn(row, all[i]);
		snprintf(name, sizeof(name), "%" PRIu64, all[i]->number);
		rte_tel_data_add_dict_container(d, name, row, 0);
	}
	if (i < n)
		rte_tel_data_add_dict_u64(d, "next", all[i]->number);
	free(all);
}

static int
on_conns(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct kd_smc *s = enter();

	if (s == NULL)
		return -1;
	rte_tel_data_start_dict(d);
	add_page(s, d, params != NULL ? strtoull(params, NULL, 10) : 0);
	tel_leave(s);
	return 0;
}

/* --- link groups --- */

static void
add_link(struct rte_tel_data *d, const struct karst_smc_group_info *g, unsigned int i,
	const char *which)
{
	const struct {
		const char *name;
		const struct karst_smc_end *end;
	} ends[] = {{"local", &g->local[i]}, {"remote", &g->remote[i]}};
	char name[32], text[INET6_ADDRSTRLEN];

	for (unsigned int n = 0; n < KARST_DIM(ends); n++) {
		snprintf(name, sizeof(name), "%s_qpn%s", ends[n].name, which);
		rte_tel_data_add_dict_u64(d, name, ends[n].end->qpn);
		snprintf(name, sizeof(name), "%s_gid%s", ends[n].name, which);
		inet_ntop(AF_INET6, ends[n].end->gid, text, sizeof(text));
		rte_tel_data_add_dict_string(d, name, text);
	}
}

static void
add_group(struct rte_tel_data *d, const struct karst_smc_group_info *g)
{
	unsigned int first = !g->active[0] && g->active[1];

	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "role", g->role == KARST_SMC_SERVER ? "server" : "client");
	rte_tel_data_add_dict_u64(d, "version", g->version);
	rte_tel_data_add_dict_u64(d, "release", g->release);
	rte_tel_data_add_dict_u64(d, "connections", g->nconns);
	rte_tel_data_add_dict_u64(d, "max_connections", g->max_conns);
	rte_tel_data_add_dict_u64(d, "links", g->nlinks);
	add_link(d, g, first, "");
	if (g->nlinks == 2)
		add_link(d, g, !first, "2");
}

static int
on_groups(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct kd_smc *s = enter();
	struct karst_smc_group_info info;
	uint32_t i, n = 0, from = params != NULL ? (uint32_t)strtoul(params, NULL, 10) : 0;
	char name[16];

	if (s == NULL)
		return -1;
	rte_tel_data_start_dict(d);
	for (i = from; i < SMC_GROUPS; i++) {
		struct rte_tel_data *row;

		if (karst_smc_group_info(s->core, i, &info) != 0)
			continue;
		if (n++ == PAGE_ROWS) {
			rte_tel_data_add_dict_u64(d, "next", i);
			break;
		}
		row = rte_tel_data_alloc();
		if (row == NULL)
			break;
		add_group(row, &info);
		snprintf(name, sizeof(name), "%u", i);
		rte_tel_data_add_dict_container(d, name, row, 0);
	}
	tel_leave(s);
	return 0;
}

void
svc_tel_open(struct kd_smc *s)
{
	pthread_mutex_lock(&service.lock);
	service.smc = s;
	if (!service.registered) {
		rte_telemetry_register_cmd("/karst/smc", on_smc, "SMC-R. No parameters.");
		rte_telemetry_register_cmd("/karst/smc_connections", on_conns,
			"Connections of SMC programs. Parameter: [first number]");
		rte_telemetry_register_cmd("/karst/smc_groups", on_groups,
			"Link groups of SMC-R. Parameter: [first number]");
		rte_telemetry_register_cmd("/karst/smc_reasons", on_reasons,
			"Why connections stayed on TCP. No parameters.");
		service.registered = true;
	}
	pthread_mutex_unlock(&service.lock);
}

void
svc_tel_close(struct kd_smc *s)
{
	pthread_mutex_lock(&service.lock);
	if (service.smc == s)
		service.smc = NULL;
	pthread_mutex_unlock(&service.lock);
}
