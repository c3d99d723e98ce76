/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * How frames reach the lcores that serve a port, best first:
 *
 *   flow rules   the device spreads RoCE, and only RoCE, over the queues
 *   RSS          the device spreads everything
 *   software     all frames come by one queue
 *
 * In each case the device does not know which lcore has a queue pair: a frame that another lcore
 * receives is handed off (handoff.c).  The capabilities of the device are not read but tried, by
 * rte_flow_validate().
 */
#include "flow.h"

#include <rte_flow.h>

#include "karst_hdr.h"

static const char *
flow_reason(const struct rte_flow_error *err, int ret)
{
	return err->message != NULL ? err->message : rte_strerror(-ret);
}

int
eng_flow_isolate(struct eng_port *p)
{
	struct rte_flow_error err = {0};
	int ret = rte_flow_isolate(p->info.ethdev, 1, &err);

	if (ret != 0)
		karst_log(KARST_LOG_ERR,
			"%s: isolate: the device cannot be shared with the kernel: %s", p->name,
			flow_reason(&err, ret));
	return ret;
}

/* Creates the rule for one version of IP. */
static int
add_rule(struct eng_port *p, bool ip6, struct rte_flow **flow, struct rte_flow_error *err)
{
	const struct rte_flow_attr attr = {.ingress = 1};
	const struct rte_flow_item_udp udp = {
		.hdr.dst_port = rte_cpu_to_be_16(KARST_ROCE_UDP_PORT)};
	const struct rte_flow_item_udp udp_mask = {.hdr.dst_port = 0xffff};
	const struct rte_flow_item pattern[] = {
		{.type = RTE_FLOW_ITEM_TYPE_ETH},
		{.type = ip6 ? RTE_FLOW_ITEM_TYPE_IPV6 : RTE_FLOW_ITEM_TYPE_IPV4},
		{.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &udp, .mask = &udp_mask},
		{.type = RTE_FLOW_ITEM_TYPE_END},
	};
	const struct rte_flow_item tagged[] = {
		pattern[0], {.type = RTE_FLOW_ITEM_TYPE_VLAN}, pattern[1], pattern[2], pattern[3]};
	const struct rte_flow_action_queue one = {.index = 0};
	uint16_t queues[KARST_ENGINE_MAX_LCORES];
	const struct rte_flow_action_rss rss = {
		.types = RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP, .queue_num = p->nq, .queue = queues};
	const struct rte_flow_action actions[] = {
		{.type = p->nq == 1 ? RTE_FLOW_ACTION_TYPE_QUEUE : RTE_FLOW_ACTION_TYPE_RSS,
			.conf = p->nq == 1 ? (const void *)&one : (const void *)&rss},
		{.type = RTE_FLOW_ACTION_TYPE_END},
	};
	const struct rte_flow_item *items = p->info.vlan != 0 ? tagged : pattern;
	uint16_t i;
	int ret;

	for (i = 0; i < p->nq; i++)
		queues[i] = i;
	ret = rte_flow_validate(p->info.ethdev, &attr, items, actions, err);
	if (ret != 0)
		return ret;
	*flow = rte_flow_create(p->info.ethdev, &attr, items, actions, err);
	return *flow != NULL ? 0 : -rte_errno;
}

void
eng_flow_clear(struct eng_port *p)
{
	struct rte_flow_error err;
	unsigned int i;

	for (i = 0; i < KARST_DIM(p->flow); i++) {
		if (p->flow[i] != NULL)
			rte_flow_destroy(p->info.ethdev, p->flow[i], &err);
		p->flow[i] = NULL;
	}
}

int
eng_flow_steer(struct eng_port *p, bool rss, bool isolate)
{
	struct rte_flow_error err = {0};
	unsigned int i;
	int ret = 0;

	if (p->nq == 1 && !isolate)
		return 0;
	for (i = 0; ret == 0 && i < KARST_DIM(p->flow); i++)
		ret = add_rule(p, i == 1, &p->flow[i], &err);
	if (ret == 0) {
		karst_log(KARST_LOG_NOTICE, "%s: RoCE comes by flow rules, over %u queues%s",
			p->name, p->nq, isolate ? ", and nothing else" : "");
		return 0;
	}
	eng_flow_clear(p);
	if (isolate) {
		karst_log(KARST_LOG_ERR, "%s: isolate: the device refuses the rule for RoCE: %s",
			p->name, flow_reason(&err, ret));
		return ret;
	}
	karst_log(KARST_LOG_NOTICE, "%s: frames come %s (no flow rules: %s)", p->name,
		rss ? "over all queues by RSS" : "by any queue, and are handed on in software",
		flow_reason(&err, ret));
	return 0;
}
