/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The ethdev device: "net_impair0,port=net_ring0,rules=/etc/karst/rules".  It owns the port below,
 * so that programs that use all ports see only this one.  It configures the port below as it is
 * configured itself, and passes operations to it.
 */
#include "impair.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_ethdev.h>
#include <rte_kvargs.h>
#include <rte_malloc.h>

int imp_logtype;

#define HELD_DEFAULT  1024u
#define SLOTS_DEFAULT 4096u

/* --- arguments --- */

struct args {
	char port[RTE_ETH_NAME_MAX_LEN];
	char rules[4096], log[4096];
	uint32_t held, slots;
};

struct text_arg {
	char *to;
	size_t len;
};

static int
parse_text(const char *key, const char *value, void *to)
{
	const struct text_arg *t = to;

	if (strlen(value) == 0 || strlen(value) >= t->len) {
		IMP_LOG(ERR, "%s=%s: 1 to %zu characters\n", key, value, t->len - 1);
		return -EINVAL;
	}
	memcpy(t->to, value, strlen(value) + 1);
	return 0;
}

static int
args_parse_number(const char *key, const char *value, void *to)
{
	char *end;
	unsigned long v = strtoul(value, &end, 10);

	if (end == value || *end != '\0' || v < 16 || v > 1u << 20) {
		IMP_LOG(ERR, "%s=%s: a number from 16 to 1048576\n", key, value);
		return -EINVAL;
	}
	*(uint32_t *)to = (uint32_t)v;
	return 0;
}

static int
parse_args(const char *text, struct args *a)
{
	static const char *const keys[] = {"port", "rules", "log", "held", "log_slots", NULL};
	struct text_arg port = {a->port, sizeof(a->port)}, rules = {a->rules, sizeof(a->rules)},
			log = {a->log, sizeof(a->log)};
	const struct {
		const char *key;
		arg_handler_t fn;
		void *to;
	} table[] = {
		{"port", parse_text, &port},
		{"rules", parse_text, &rules},
		{"log", parse_text, &log},
		{"held", args_parse_number, &a->held},
		{"log_slots", args_parse_number, &a->slots},
	};
	struct rte_kvargs *kv = rte_kvargs_parse(text, keys);
	size_t i;
	int rc = 0;

	if (kv == NULL) {
		IMP_LOG(ERR, "\"%s\": its arguments are port, rules, log, held, log_slots\n", text);
		return -EINVAL;
	}
	for (i = 0; rc == 0 && i < RTE_DIM(table); i++)
		rc = rte_kvargs_process(kv, table[i].key, table[i].fn, table[i].to);
	rte_kvargs_free(kv);
	if (rc == 0 && a->port[0] == '\0') {
		IMP_LOG(ERR, "\"%s\": port=NAME is missing, the port to be impaired\n", text);
		rc = -EINVAL;
	}
	return rc < 0 ? -EINVAL : 0;
}

/* --- events of the port below --- */

static int
pass_event(struct imp_port *p, enum rte_eth_event_type event)
{
	if (event == RTE_ETH_EVENT_DESTROY) {
		IMP_LOG(NOTICE, "%s: the port below, %s, is removed\n", p->dev->data->name,
			p->below_name);
		p->gone = true;
		p->dev->data->dev_link.link_status = RTE_ETH_LINK_DOWN;
		event = RTE_ETH_EVENT_INTR_RMV;
	} else if (event == RTE_ETH_EVENT_INTR_LSC) {
		(void)rte_eth_link_get_nowait(p->below, &p->dev->data->dev_link);
	}
	return rte_eth_dev_callback_process(p->dev, event, NULL); /* may have closed the port */
}

/*
 * Handles an event of the port below, on a thread of DPDK or on the one that removes the port.
 * @arg: id of the device above.  Both this device and the port of the event may be gone by now, and
 * the program may close the device: another thread waits for this function, and this thread may do
 * it in a callback.
 */
static int
on_event(uint16_t port_id, enum rte_eth_event_type event, void *arg, void *ret)
{
	struct imp_use use;
	struct imp_port *p = imp_control_use(&use, (uint16_t)(uintptr_t)arg);
	int rc = p == NULL || p->gone || p->below != port_id ? 0 : pass_event(p, event);

	(void)ret;
	imp_control_leave(&use);
	return rc;
}

static const enum rte_eth_event_type below_events[] = {RTE_ETH_EVENT_DESTROY,
	RTE_ETH_EVENT_INTR_RMV, RTE_ETH_EVENT_INTR_LSC, RTE_ETH_EVENT_INTR_RESET};

static void
listen_below(struct imp_port *p, bool on)
{
	void *arg = (void *)(uintptr_t)p->dev->data->port_id;
	size_t i;

	for (i = 0; i < RTE_DIM(below_events); i++)
		if (on)
			rte_eth_dev_callback_register(p->below, below_events[i], on_event, arg);
		else
			rte_eth_dev_callback_unregister(p->below, below_events[i], on_event, arg);
}

/* --- queues --- */

static void
queue_free(struct imp_port *p, unsigned int direction, uint16_t queue)
{
	struct imp_queue *q = p->queue[direction][queue];

	if (q == NULL)
		return;
	pthread_mutex_lock(&p->lock);
	p->queue[direction][queue] = NULL;
	memset(&p->base[direction][queue], 0, sizeof(p->base[0][0]));
	pthread_mutex_unlock(&p->lock);
	imp_queue_empty(q);
	pthread_mutex_lock(&p->lock);
	imp_set_free(q->set);
	imp_set_free(q->next);
	imp_sets_free(q->retired);
	pthread_mutex_unlock(&p->lock);
	rte_free(q->ready);
	rte_free(q->held.timed);
	rte_free(q);
}

static struct imp_queue *
queue_new(struct imp_port *p, unsigned int direction, uint16_t queue, struct rte_mempool *pool)
{
	int socket = p->dev->data->numa_node;
	struct imp_queue *q;

	queue_free(p, direction, queue);
	q = rte_zmalloc_socket("net_impair", sizeof(*q), RTE_CACHE_LINE_SIZE, socket);
	if (q == NULL)
		return NULL;
	*q = (struct imp_queue){.port = p,
		.below = p->below,
		.queue = queue,
		.direction = (uint8_t)direction,
		.port_id = p->dev->data->port_id,
		.pool = pool};
	q->ready = rte_zmalloc_socket(
		"net_impair", IMP_READY * sizeof(q->ready[0]), RTE_CACHE_LINE_SIZE, socket);
	q->held.room = p->held_room;
	q->held.timed = rte_zmalloc_socket(
		"net_impair", p->held_room * sizeof(q->held.timed[0]), RTE_CACHE_LINE_SIZE, socket);
	if (p->log != NULL)
		q->log = imp_log_ring(p->log, direction, queue);
	pthread_mutex_lock(&p->lock);
	q->set = imp_control_set(p, direction, queue);
	if (q->ready != NULL && q->held.timed != NULL && q->set != NULL &&
		(p->log == NULL || q->log != NULL)) {
		p->queue[direction][queue] = q;
		pthread_mutex_unlock(&p->lock);
		return q;
	}
	imp_set_free(q->set);
	pthread_mutex_unlock(&p->lock);
	rte_free(q->ready);
	rte_free(q->held.timed);
	rte_free(q);
	return NULL;
}

static int
rx_queue_setup(struct rte_eth_dev *dev, uint16_t queue, uint16_t slots, unsigned int socket,
	const struct rte_eth_rxconf *conf, struct rte_mempool *pool)
{
	struct imp_port *p = dev->data->dev_private;
	int rc = rte_eth_rx_queue_setup(p->below, queue, slots, socket, conf, pool);

	if (rc != 0)
		return rc;
	dev->data->rx_queues[queue] = queue_new(p, IMP_RX, queue, pool);
	return dev->data->rx_queues[queue] != NULL ? 0 : -ENOMEM;
}

/* Packets without a pool of their own are copied into buffers of the first receive queue's pool. */
static int
tx_queue_setup(struct rte_eth_dev *dev, uint16_t queue, uint16_t slots, unsigned int socket,
	const struct rte_eth_txconf *conf)
{
	struct imp_port *p = dev->data->dev_private;
	struct imp_queue *rx = p->queue[IMP_RX][0];
	int rc = rte_eth_tx_queue_setup(p->below, queue, slots, socket, conf);

	if (rc != 0)
		return rc;
	dev->data->tx_queues[queue] = queue_new(p, IMP_TX, queue, rx != NULL ? rx->pool : NULL);
	return dev->data->tx_queues[queue] != NULL ? 0 : -ENOMEM;
}

static void
rx_queue_release(struct rte_eth_dev *dev, uint16_t queue)
{
	queue_free(dev->data->dev_private, IMP_RX, queue);
}

static void
tx_queue_release(struct rte_eth_dev *dev, uint16_t queue)
{
	queue_free(dev->data->dev_private, IMP_TX, queue);
}

/* Discards the packets that a stopped device holds. */
static void
empty_queues(struct imp_port *p)
{
	unsigned int d, i;

	for (d = 0; d < IMP_BOTH; d++)
		for (i = 0; i < IMP_MAX_QUEUES; i++)
			if (p->queue[d][i] != NULL)
				imp_queue_empty(p->queue[d][i]);
}

/* --- life --- */

static int
dev_configure(struct rte_eth_dev *dev)
{
	struct imp_port *p = dev->data->dev_private;

	if (p->gone)
		return -ENODEV;
	return rte_eth_dev_configure(
		p->below, dev->data->nb_rx_queues, dev->data->nb_tx_queues, &dev->data->dev_conf);
}

static int
dev_start(struct rte_eth_dev *dev)
{
	struct imp_port *p = dev->data->dev_private;
	int rc = p->gone ? -ENODEV : rte_eth_dev_start(p->below);

	if (rc == 0) {
		p->started = true;
		(void)rte_eth_link_get_nowait(p->below, &dev->data->dev_link);
	}
	return rc;
}

static int
dev_stop(struct rte_eth_dev *dev)
{
	struct imp_port *p = dev->data->dev_private;
	int rc = p->gone || !p->started ? 0 : rte_eth_dev_stop(p->below);

	p->started = false;
	dev->data->dev_link.link_status = RTE_ETH_LINK_DOWN;
	empty_queues(p);
	return rc;
}

/* Closes the device.  The port below is stopped again and has no owner, as before. */
static int
dev_close(struct rte_eth_dev *dev)
{
	struct imp_port *p = dev->data->dev_private;
	uint16_t i;

	if (rte_eal_process_type() != RTE_PROC_PRIMARY)
		return 0;
	(void)dev_stop(dev);
	for (i = 0; i < IMP_MAX_QUEUES; i++) {
		queue_free(p, IMP_RX, i);
		queue_free(p, IMP_TX, i);
	}
	imp_control_remove(p);
	if (!p->gone) {
		listen_below(p, false);
		rte_eth_dev_owner_unset(p->below, p->owner);
	}
	imp_log_close(p->log);
	pthread_mutex_destroy(&p->lock);
	if (--p->rules->users == 0)
		imp_rules_free(p->rules);
	dev->data->mac_addrs = NULL; /* part of the private data */
	return 0;
}

/* --- operations of the port below --- */

#define BELOW(dev) (((struct imp_port *)(dev)->data->dev_private)->below)
/* Operations on a port that was removed return -ENODEV. */
#define ASK(dev, call) (((struct imp_port *)(dev)->data->dev_private)->gone ? -ENODEV : (call))

/*
 * Does not announce offloads by which one buffer is several packets, because rules are about
 * packets.
 */
static int
dev_infos_get(struct rte_eth_dev *dev, struct rte_eth_dev_info *info)
{
	struct rte_device *device = info->device;
	int rc = ASK(dev, rte_eth_dev_info_get(BELOW(dev), info));

	info->device = device;
	if (rc != 0)
		return rc;
	info->max_rx_queues = (uint16_t)RTE_MIN(info->max_rx_queues, IMP_MAX_QUEUES);
	info->max_tx_queues = (uint16_t)RTE_MIN(info->max_tx_queues, IMP_MAX_QUEUES);
	info->max_mac_addrs = RTE_MIN(info->max_mac_addrs, (uint32_t)RTE_ETH_NUM_RECEIVE_MAC_ADDR);
	info->rx_offload_capa &= ~(RTE_ETH_RX_OFFLOAD_TCP_LRO | RTE_ETH_RX_OFFLOAD_VLAN_FILTER |
		RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT);
	info->tx_offload_capa &= ~(RTE_ETH_TX_OFFLOAD_TCP_TSO | RTE_ETH_TX_OFFLOAD_UDP_TSO |
		RTE_ETH_TX_OFFLOAD_VXLAN_TNL_TSO | RTE_ETH_TX_OFFLOAD_GRE_TNL_TSO |
		RTE_ETH_TX_OFFLOAD_IPIP_TNL_TSO | RTE_ETH_TX_OFFLOAD_GENEVE_TNL_TSO |
		RTE_ETH_TX_OFFLOAD_UDP_TNL_TSO | RTE_ETH_TX_OFFLOAD_IP_TNL_TSO);
	info->switch_info.name = NULL;
	return 0;
}

static int
link_update(struct rte_eth_dev *dev, int wait)
{
	struct imp_port *p = dev->data->dev_private;
	struct rte_eth_link link = {.link_status = RTE_ETH_LINK_DOWN};

	if (!p->gone && wait)
		(void)rte_eth_link_get(p->below, &link);
	else if (!p->gone)
		(void)rte_eth_link_get_nowait(p->below, &link);
	dev->data->dev_link = link;
	return 0;
}

static int
set_link_up(struct rte_eth_dev *dev)
{
	return ASK(dev, rte_eth_dev_set_link_up(BELOW(dev)));
}

static int
set_link_down(struct rte_eth_dev *dev)
{
	return ASK(dev, rte_eth_dev_set_link_down(BELOW(dev)));
}

static int
is_removed(struct rte_eth_dev *dev)
{
	return ASK(dev, 0) != 0 || rte_eth_dev_is_removed(BELOW(dev));
}

static int
promiscuous_enable(struct rte_eth_dev *dev)
{
	return ASK(dev, rte_eth_promiscuous_enable(BELOW(dev)));
}

static int
promiscuous_disable(struct rte_eth_dev *dev)
{
	return ASK(dev, rte_eth_promiscuous_disable(BELOW(dev)));
}

static int
allmulticast_enable(struct rte_eth_dev *dev)
{
	return ASK(dev, rte_eth_allmulticast_enable(BELOW(dev)));
}

static int
allmulticast_disable(struct rte_eth_dev *dev)
{
	return ASK(dev, rte_eth_allmulticast_disable(BELOW(dev)));
}

static int
mac_addr_set(struct rte_eth_dev *dev, struct rte_ether_addr *mac)
{
	return ASK(dev, rte_eth_dev_default_mac_addr_set(BELOW(dev), mac));
}

static int
mac_addr_add(struct rte_eth_dev *dev, struct rte_ether_addr *mac, uint32_t index, uint32_t pool)
{
	(void)index;
	return ASK(dev, rte_eth_dev_mac_addr_add(BELOW(dev), mac, pool));
}

static void
mac_addr_remove(struct rte_eth_dev *dev, uint32_t index)
{
	(void)ASK(dev, rte_eth_dev_mac_addr_remove(BELOW(dev), &dev->data->mac_addrs[index]));
}

static int
set_mc_addr_list(struct rte_eth_dev *dev, struct rte_ether_addr *macs, uint32_t n)
{
	return ASK(dev, rte_eth_dev_set_mc_addr_list(BELOW(dev), macs, n));
}

static int
mtu_set(struct rte_eth_dev *dev, uint16_t mtu)
{
	return ASK(dev, rte_eth_dev_set_mtu(BELOW(dev), mtu));
}

static int
rx_queue_intr_enable(struct rte_eth_dev *dev, uint16_t queue)
{
	return ASK(dev, rte_eth_dev_rx_intr_enable(BELOW(dev), queue));
}

static int
rx_queue_intr_disable(struct rte_eth_dev *dev, uint16_t queue)
{
	return ASK(dev, rte_eth_dev_rx_intr_disable(BELOW(dev), queue));
}

static uint32_t
rx_queue_count(void *queue)
{
	const struct imp_queue *q = queue;
	int n = q->port->gone ? 0 : rte_eth_rx_queue_count(q->below, q->queue);

	return n < 0 ? 0 : (uint32_t)n;
}

static int
rx_descriptor_status(void *queue, uint16_t offset)
{
	const struct imp_queue *q = queue;

	return q->port->gone ? -ENODEV : rte_eth_rx_descriptor_status(q->below, q->queue, offset);
}

static int
tx_descriptor_status(void *queue, uint16_t offset)
{
	const struct imp_queue *q = queue;

	return q->port->gone ? -ENODEV : rte_eth_tx_descriptor_status(q->below, q->queue, offset);
}

static const struct eth_dev_ops ops = {
	.dev_configure = dev_configure,
	.dev_start = dev_start,
	.dev_stop = dev_stop,
	.dev_set_link_up = set_link_up,
	.dev_set_link_down = set_link_down,
	.dev_close = dev_close,
	.link_update = link_update,
	.is_removed = is_removed,
	.promiscuous_enable = promiscuous_enable,
	.promiscuous_disable = promiscuous_disable,
	.allmulticast_enable = allmulticast_enable,
	.allmulticast_disable = allmulticast_disable,
	.mac_addr_remove = mac_addr_remove,
	.mac_addr_add = mac_addr_add,
	.mac_addr_set = mac_addr_set,
	.set_mc_addr_list = set_mc_addr_list,
	.mtu_set = mtu_set,
	.stats_get = imp_stats_get,
	.stats_reset = imp_stats_reset,
	.xstats_get = imp_xstats_get,
	.xstats_reset = imp_xstats_reset,
	.xstats_get_names = imp_xstats_get_names,
	.dev_infos_get = dev_infos_get,
	.rx_queue_setup = rx_queue_setup,
	.rx_queue_release = rx_queue_release,
	.rx_queue_intr_enable = rx_queue_intr_enable,
	.rx_queue_intr_disable = rx_queue_intr_disable,
	.tx_queue_setup = tx_queue_setup,
	.tx_queue_release = tx_queue_release,
};

/* --- on the virtual bus --- */

static void
args_say_mistake(void *user, const char *line)
{
	(void)user;
	IMP_LOG(ERR, "%s\n", line);
}

/* Finds the port below by its name or number, and takes ownership of it. */
static int
own_below(struct imp_port *p, const struct args *a, const char *name)
{
	struct rte_eth_dev_owner owner = {0};
	char *end;
	unsigned long id = strtoul(a->port, &end, 10);
	int rc = rte_eth_dev_get_port_by_name(a->port, &p->below);

	if (rc != 0 && *end == '\0' && id < RTE_MAX_ETHPORTS &&
		rte_eth_dev_is_valid_port((uint16_t)id)) {
		p->below = (uint16_t)id;
		rc = 0;
	}
	if (rc != 0) {
		IMP_LOG(ERR,
			"port=%s: there is no such port; it has to be made first, by an earlier --vdev "
			"or -a\n",
			a->port);
		return -ENODEV;
	}
	rte_eth_dev_get_name_by_port(p->below, p->below_name);
	rc = rte_eth_dev_owner_new(&p->owner);
	owner.id = p->owner;
	snprintf(owner.name, sizeof(owner.name), "%s", name);
	if (rc == 0)
		rc = rte_eth_dev_owner_set(p->below, &owner);
	if (rc != 0)
		IMP_LOG(ERR, "port=%s: another driver has it\n", a->port);
	return rc;
}

static int
judged_flag(struct imp_port *p)
{
	static const struct rte_mbuf_dynflag flag = {.name = "net_impair_judged"};
	int bit = rte_mbuf_dynflag_register(&flag);

	if (bit < 0) {
		IMP_LOG(ERR, "there is no flag of mbufs left\n");
		return -ENOSPC;
	}
	p->judged_flag = UINT64_C(1) << bit;
	return 0;
}

/*
 * Initialises a port, except for its device.  On failure it has printed a message, and the caller
 * frees @p and its rules.
 */
static int
port_init(struct imp_port *p, const struct args *a, const char *name)
{
	int rc;

	pthread_mutex_init(&p->lock, NULL);
	p->held_room = a->held;
	p->log_slots = rte_align32pow2(a->slots);
	snprintf(p->rules_path, sizeof(p->rules_path), "%s", a->rules);
	p->rules = a->rules[0] != '\0' ? imp_rules_read(a->rules, args_say_mistake, NULL)
				       : imp_rules_none();
	if (p->rules == NULL)
		return -EINVAL;
	p->rules->users = 1;
	p->generation = 1;
	rc = judged_flag(p);
	if (rc == 0)
		rc = own_below(p, a, name);
	if (rc != 0)
		return rc;
	if (a->log[0] == '\0')
		return 0;
	p->log = imp_log_open(a->log, name, p->log_slots);
	if (p->log == NULL) {
		rte_eth_dev_owner_unset(p->below, p->owner);
		return -EIO;
	}
	imp_log_rules(p->log, a->rules, p->rules, p->generation);
	return 0;
}

static void
device_init(struct rte_eth_dev *dev, struct imp_port *p, struct rte_vdev_device *vdev)
{
	struct rte_eth_dev *below = rte_eth_dev_allocated(p->below_name);
	struct rte_eth_dev_data *data = dev->data;

	p->dev = dev;
	data->dev_private = p;
	data->mac_addrs = p->macs;
	(void)rte_eth_macaddr_get(p->below, &p->macs[0]);
	(void)rte_eth_dev_get_mtu(p->below, &data->mtu);
	data->numa_node = rte_eth_dev_socket_id(p->below);
	data->dev_flags |= below->data->dev_flags & (RTE_ETH_DEV_INTR_LSC | RTE_ETH_DEV_INTR_RMV);
	dev->intr_handle = below->intr_handle;
	dev->device = &vdev->device;
	dev->dev_ops = &ops;
	dev->rx_pkt_burst = imp_rx_burst;
	dev->tx_pkt_burst = imp_tx_burst;
	dev->tx_pkt_prepare = imp_tx_prepare;
	dev->rx_queue_count = rx_queue_count;
	dev->rx_descriptor_status = rx_descriptor_status;
	dev->tx_descriptor_status = tx_descriptor_status;
}

static int
imp_probe(struct rte_vdev_device *vdev)
{
	const char *text = vdev->device.devargs != NULL ? vdev->device.devargs->args : "";
	struct args a = {.held = HELD_DEFAULT, .slots = SLOTS_DEFAULT};
	struct rte_eth_dev *dev;
	struct imp_port *p;
	int rc;

	if (!dpdk_abi_fits() || rte_eal_process_type() != RTE_PROC_PRIMARY) {
		IMP_LOG(ERR, "this driver is for primary processes of DPDK 22.11, this is %s\n",
			rte_version());
		return -ENOTSUP;
	}
	rc = parse_args(text != NULL ? text : "", &a);
	if (rc != 0)
		return rc;
	p = rte_zmalloc("net_impair", sizeof(*p), RTE_CACHE_LINE_SIZE);
	if (p == NULL)
		return -ENOMEM;
	rc = port_init(p, &a, vdev->device.name);
	dev = rc == 0 ? rte_eth_dev_allocate(vdev->device.name) : NULL;
	if (dev == NULL) {
		if (rc == 0) {
			imp_log_close(p->log);
			rte_eth_dev_owner_unset(p->below, p->owner);
			rc = -ENOMEM;
		}
		imp_rules_free(p->rules);
		rte_free(p);
		return rc;
	}
	device_init(dev, p, vdev);
	imp_control_add(p);
	listen_below(p, true);
	rte_eth_dev_probing_finish(dev);
	return 0;
}

static int
imp_remove(struct rte_vdev_device *vdev)
{
	struct rte_eth_dev *dev = rte_eth_dev_allocated(vdev->device.name);

	if (dev == NULL)
		return 0;
	dev_close(dev);
	return rte_eth_dev_release_port(dev);
}

static struct rte_vdev_driver driver = {
	.driver = {.name = "net_impair"}, .probe = imp_probe, .remove = imp_remove};

RTE_INIT(imp_register)
{
	imp_logtype = rte_log_register_type_and_pick_level("pmd.net.impair", RTE_LOG_NOTICE);
	rte_vdev_register(&driver);
}
