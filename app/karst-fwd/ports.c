/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include <stdlib.h>

#include <rte_errno.h>
#include <rte_lcore.h>

#include "fwd.h"

#define DESCRIPTORS 512u
#define MBUFS_MIN   4096u

/*
 * Handles a removal.  DPDK's interrupt thread calls this, or the thread that removes the device.
 * It only makes the streams stop using the port.
 */
static int
removed(uint16_t id, enum rte_eth_event_type type, void *arg, void *out)
{
	struct fwd_port *p = arg;

	atomic_store_explicit(&p->gone, true, memory_order_relaxed);
	return 0;
}

static int
port_failed(const struct fwd_port *p, const char *what, int rc)
{
	fprintf(stderr, "karst-fwd: port %u (%s): %s: %s\n", p->id, p->name, what,
		rte_strerror(rc < 0 ? -rc : rc));
	return 1;
}

/* Finds the ports to use. */
static int
find(struct fwd *f)
{
	const struct fwd_opts *o = &f->opts;
	uint64_t left = o->portmask;
	uint32_t i;
	uint16_t id;

	RTE_ETH_FOREACH_DEV(id)
	{
		struct fwd_port *p = &f->ports[f->nports];

		if (o->portmask_set && (id >= 64 || (o->portmask >> id & 1) == 0))
			continue;
		if (id < 64)
			left &= ~(UINT64_C(1) << id);
		f->nports++;
		p->id = id;
		rte_eth_dev_get_name_by_port(id, p->name);
		rte_eth_macaddr_get(id, &p->mac);
		p->peer = (struct rte_ether_addr){{2, 0, 0, 0, 0, (uint8_t)id}};
		for (i = 0; i < o->npeers; i++)
			if (o->peers[i].port == id)
				p->peer = o->peers[i].mac;
	}
	if (f->nports != 0 && left == 0)
		return 0;
	fprintf(stderr,
		f->nports == 0 && left == 0
			? "karst-fwd: DPDK knows no port; --vdev or -a before '--' names some\n"
			: "karst-fwd: --portmask names ports that DPDK does not know\n");
	return 2;
}

static int
make_pool(struct fwd *f)
{
	const struct fwd_opts *o = &f->opts;
	uint32_t n = o->total_mbufs;

	if (n == 0)
		n = f->nports *
				(o->rxq * (o->rxd != 0 ? o->rxd : DESCRIPTORS) +
					o->txq * (o->txd != 0 ? o->txd : DESCRIPTORS)) +
			rte_lcore_count() * (o->mbcache * 2 + FWD_BURST_MAX);
	n = (uint32_t)karst_max_u64(n, o->total_mbufs != 0 ? 0 : MBUFS_MIN);
	f->pool = rte_pktmbuf_pool_create("fwd", n, (uint32_t)karst_min_u32(o->mbcache, n / 3), 0,
		(uint16_t)o->mbuf_size, SOCKET_ID_ANY);
	if (f->pool != NULL)
		return 0;
	fprintf(stderr,
		"karst-fwd: %u buffers of %u bytes (--total-num-mbufs, --mbuf-size): %s; -m before "
		"'--' gives DPDK more memory\n",
		n, o->mbuf_size, rte_strerror(rte_errno));
	return 1;
}

/* Checks the number of queues before memory for them is allocated. */
static int
check_queues(const struct fwd *f, const struct fwd_port *p)
{
	const struct fwd_opts *o = &f->opts;
	struct rte_eth_dev_info info;
	int rc = rte_eth_dev_info_get(p->id, &info);

	if (rc != 0)
		return port_failed(p, "what it can do", rc);
	if (o->rxq <= info.max_rx_queues && o->txq <= info.max_tx_queues)
		return 0;
	fprintf(stderr,
		"karst-fwd: port %u (%s): --rxq %u, --txq %u: up to %u and %u are allowed\n", p->id,
		p->name, o->rxq, o->txq, info.max_rx_queues, info.max_tx_queues);
	return 2;
}

static int
configure(struct fwd *f, struct fwd_port *p)
{
	const struct fwd_opts *o = &f->opts;
	struct rte_eth_conf conf = {.rxmode = {.mq_mode = RTE_ETH_MQ_RX_NONE}};
	struct rte_eth_dev_info info;
	int rc = rte_eth_dev_info_get(p->id, &info);

	if (rc != 0)
		return port_failed(p, "what it can do", rc);
	if (o->rxq > 1) {
		conf.rx_adv_conf.rss_conf.rss_hf =
			(RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP) & info.flow_type_rss_offloads;
		if (conf.rx_adv_conf.rss_conf.rss_hf != 0)
			conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
	}
	rc = rte_eth_dev_configure(p->id, (uint16_t)o->rxq, (uint16_t)o->txq, &conf);
	if (rc != 0)
		return port_failed(p, "configuration", rc);
	if (o->max_pkt_len != 0) {
		rc = rte_eth_dev_set_mtu(
			p->id, (uint16_t)(o->max_pkt_len - RTE_ETHER_HDR_LEN - RTE_ETHER_CRC_LEN));
		if (rc != 0)
			return port_failed(p, "--max-pkt-len", rc);
	}
	return 0;
}

static int
setup_queues(struct fwd *f, struct fwd_port *p)
{
	const struct fwd_opts *o = &f->opts;
	uint16_t rxd = (uint16_t)(o->rxd != 0 ? o->rxd : DESCRIPTORS);
	uint16_t txd = (uint16_t)(o->txd != 0 ? o->txd : DESCRIPTORS), q;
	int rc = rte_eth_dev_adjust_nb_rx_tx_desc(p->id, &rxd, &txd);

	for (q = 0; rc == 0 && q < o->rxq; q++)
		rc = rte_eth_rx_queue_setup(
			p->id, q, rxd, (unsigned int)rte_eth_dev_socket_id(p->id), NULL, f->pool);
	for (q = 0; rc == 0 && q < o->txq; q++)
		rc = rte_eth_tx_queue_setup(
			p->id, q, txd, (unsigned int)rte_eth_dev_socket_id(p->id), NULL);
	return rc == 0 ? 0 : port_failed(p, "queues", rc);
}

static int
open_port(struct fwd *f, struct fwd_port *p)
{
	int rc = configure(f, p);

	if (rc == 0)
		rc = setup_queues(f, p);
	if (rc != 0)
		return rc;
	rc = rte_eth_dev_callback_register(p->id, RTE_ETH_EVENT_INTR_RMV, removed, p);
	if (rc == 0)
		rc = rte_eth_dev_start(p->id);
	if (rc != 0)
		return port_failed(p, "start", rc);
	p->started = true;
	/* receive frames to other addresses, too; a port without this mode receives all anyway */
	(void)rte_eth_promiscuous_enable(p->id);
	return 0;
}

int
fwd_ports_open(struct fwd *f)
{
	uint32_t i;
	int rc = find(f);

	for (i = 0; rc == 0 && i < f->nports; i++)
		rc = check_queues(f, &f->ports[i]);
	if (rc == 0)
		rc = make_pool(f);
	for (i = 0; rc == 0 && i < f->nports; i++)
		rc = open_port(f, &f->ports[i]);
	return rc;
}

/*
 * A device may disappear without an event, for example if another thread of the process removes it.
 */
void
fwd_ports_look(struct fwd *f)
{
	uint32_t i;

	for (i = 0; i < f->nports; i++) {
		struct fwd_port *p = &f->ports[i];
		struct rte_eth_link link;

		if (p->said_gone)
			continue;
		if (!fwd_port_is_gone(p) && !rte_eth_dev_is_removed(p->id)) {
			/* net_kport replaces a ring that has stopped when it is asked for this */
			(void)rte_eth_link_get_nowait(p->id, &link);
			continue;
		}
		atomic_store_explicit(&p->gone, true, memory_order_relaxed);
		p->said_gone = true;
		printf("port %u (%s) is gone; the other ports go on\n", p->id, p->name);
		fflush(stdout);
	}
}

void
fwd_ports_close(struct fwd *f)
{
	uint32_t i;

	for (i = 0; i < f->nports; i++) {
		struct fwd_port *p = &f->ports[i];

		if (!rte_eth_dev_is_valid_port(p->id))
			continue;
		rte_eth_dev_callback_unregister(p->id, RTE_ETH_EVENT_INTR_RMV, removed, p);
		if (p->started)
			(void)rte_eth_dev_stop(p->id);
		p->started = false;
		(void)rte_eth_dev_close(p->id);
	}
}

struct fwd_port *
fwd_port_of(struct fwd *f, uint16_t id)
{
	uint32_t i;

	for (i = 0; i < f->nports; i++)
		if (f->ports[i].id == id)
			return &f->ports[i];
	return NULL;
}
