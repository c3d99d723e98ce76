/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Telemetry of ports: addresses, link, counters of their drivers; and of neighbours. */
#include "karst_neigh.h"
#include "telemetry.h"
#include "port.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void
format_mac(const uint8_t mac[6], char *text, size_t size)
{
	snprintf(text, size, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3],
		mac[4], mac[5]);
}

static void
fill_addresses(const struct karst_engine_port_info *info, struct tel_row *row)
{
	char text[ENG_IP_TEXT], name[24];
	uint32_t i;

	for (i = 0; i < info->num_addrs; i++) {
		if (karst_engine_ip_is_none(info->addrs[i].ip))
			continue;
		snprintf(name, sizeof(name), "address_%u", i);
		tel_row_str(row, name, eng_ip_text(info->addrs[i].ip, text));
	}
}

static void
tel_fill_device(uint16_t ethdev, struct tel_row *row)
{
	struct rte_eth_stats st;

	if (!rte_eth_dev_is_valid_port(ethdev) || rte_eth_stats_get(ethdev, &st) != 0)
		return;
	tel_row_u64(row, "rx_packets", st.ipackets);
	tel_row_u64(row, "rx_bytes", st.ibytes);
	tel_row_u64(row, "rx_missed", st.imissed);
	tel_row_u64(row, "rx_errors", st.ierrors);
	tel_row_u64(row, "rx_no_mbufs", st.rx_nombuf);
	tel_row_u64(row, "tx_packets", st.opackets);
	tel_row_u64(row, "tx_bytes", st.obytes);
	tel_row_u64(row, "tx_errors", st.oerrors);
}

static void
fill_port(const char *device, const struct karst_engine_port_info *info, struct tel_row *row)
{
	char text[32];

	tel_row_str(row, "name", info->name);
	tel_row_str(row, "device", device);
	tel_row_u64(row, "ethdev", info->ethdev);
	tel_row_u64(row, "mtu", info->mtu);
	tel_row_u64(row, "path_mtu", 128u << info->path_mtu);
	format_mac(info->mac, text, sizeof(text));
	tel_row_str(row, "mac", text);
	tel_row_u64(row, "vlan", info->vlan);
	snprintf(text, sizeof(text), "0x%" PRIx64, info->lcore_mask);
	tel_row_str(row, "lcore_mask", text);
	tel_row_str(row, "link", info->link_up ? "up" : "down");
	tel_row_u64(row, "link_mbps", info->link_mbps);
	tel_row_str(row, "netdev", info->netdev);
	tel_row_str(row, "exception_tap", info->exception_tap);
	tel_row_u64(row, "exception_lost", info->exception_lost);
	tel_row_u64(row, "mcast_groups", info->mcast_groups);
	tel_row_u64(row, "mcast_queries", info->mcast_queries);
	tel_row_u64(row, "mcast_bad_queries", info->mcast_bad_queries);
	tel_row_u64(row, "mcast_reports", info->mcast_reports);
	tel_row_u64(row, "igmp_version", info->igmp_version);
	tel_row_u64(row, "mld_version", info->mld_version);
	fill_addresses(info, row);
	tel_fill_device(info->ethdev, row);
}

static int
on_ports(const char *cmd, const char *params, struct rte_tel_data *d)
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
	for (; i < KARST_ENGINE_MAX_PORTS; i++) {
		struct karst_engine_port_info info;
		char name[16];

		if (karst_engine_port_info(e, (uint8_t)i, &info) != 0)
			continue;
		if (!tel_row_begin(&row))
			break;
		fill_port(e->port[i].name, &info, &row);
		snprintf(name, sizeof(name), "%u", (unsigned int)i);
		if (!tel_list_add(&list, name, &row, i))
			break;
	}
	eng_tel_close();
	return 0;
}

/* --- neighbours --- */

enum { NEIGH_COL_PORT, NEIGH_COL_IP, NEIGH_COL_MAC, NEIGH_COL_STATE, NEIGH_COL_AGE };

static const char *const neigh_columns[] = {"port", "ip", "mac", "state", "age_ms", NULL};

static void
add_neigh(struct tel_table *t, const struct karst_engine_neigh *n)
{
	static const char *const states[] = {[KARST_NEIGH_ASKED] = "asked",
		[KARST_NEIGH_KNOWN] = "known",
		[KARST_NEIGH_DOUBTED] = "doubted"};
	char text[ENG_IP_TEXT];

	tel_table_u64(t, NEIGH_COL_PORT, n->port);
	tel_table_str(t, NEIGH_COL_IP, eng_ip_text(n->ip, text));
	format_mac(n->mac, text, sizeof(text));
	tel_table_str(t, NEIGH_COL_MAC, text);
	tel_table_str(t, NEIGH_COL_STATE, n->state < KARST_DIM(states) ? states[n->state] : "?");
	tel_table_u64(t, NEIGH_COL_AGE, n->age_ns / 1000000);
}

/* Adds neighbours from position @at on, port by port, KARST_ENGINE_NEIGH_MAX positions each.
 * @return where to continue; 0: that was all. */
static uint64_t
add_neighs(
	struct karst_engine *e, uint64_t at, struct karst_engine_neigh *list, struct tel_table *t)
{
	uint64_t port = at / KARST_ENGINE_NEIGH_MAX, i = at % KARST_ENGINE_NEIGH_MAX;

	for (; port < KARST_ENGINE_MAX_PORTS; port++, i = 0) {
		int n = karst_engine_neigh_list(e, (uint8_t)port, list, KARST_ENGINE_NEIGH_MAX);

		n = RTE_MIN(n, (int)KARST_ENGINE_NEIGH_MAX);
		for (; (int)i < n; i++) {
			if (!tel_table_row(t))
				return port * KARST_ENGINE_NEIGH_MAX + i;
			add_neigh(t, &list[i]);
		}
	}
	return 0;
}

static int
on_neighbours(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct karst_engine_neigh *list = calloc(KARST_ENGINE_NEIGH_MAX, sizeof(*list));
	struct karst_engine *e;
	struct tel_table table;
	uint64_t at = 0;
	int ret;

	rte_tel_data_start_dict(d);
	if (list == NULL)
		return -ENOMEM;
	ret = eng_tel_open(params, &e, &at);
	if (ret == 0) {
		if (tel_table_begin(&table, d, neigh_columns,
			    1u << NEIGH_COL_IP | 1u << NEIGH_COL_MAC | 1u << NEIGH_COL_STATE))
			tel_table_end(&table, add_neighs(e, at, list, &table));
		else
			ret = -ENOMEM;
		eng_tel_close();
	}
	free(list);
	return ret;
}

const struct tel_cmd eng_tel_ports[] = {
	{"/karst/ports", on_ports, "Ports. Parameter: [engine][:first]"},
	{"/karst/neighbours", on_neighbours,
		"Neighbours of ports, column by column. Parameter: [engine][:first]"},
	{NULL, NULL, NULL},
};
