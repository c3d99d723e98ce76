/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The DPDK device: a virtual device, "net_kport0,iface=eth0" or "net_kport0,tap=kt0", whose
 * arguments README.rst explains.  Queue pair i is packet socket i, or tap i.  Link and MTU are
 * those of the interface; the MTU can only be changed in the kernel.  The MAC address is that of
 * the interface (iface=), or an address of the port's own at the other end of a tap.
 */
#include "kport.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <linux/if_packet.h>
#include <rte_kvargs.h>
#include <sys/utsname.h>

#define RCVBUF_DEFAULT (64u << 20)
#define SNDBUF_DEFAULT (8u << 20)

/* --- arguments --- */

static int
parse_text(const char *key, const char *value, void *to)
{
	if (strlen(value) == 0 || strlen(value) >= IF_NAMESIZE) {
		KP_LOG(ERR, "%s=%s: a name of 1 to %d characters\n", key, value, IF_NAMESIZE - 1);
		return -EINVAL;
	}
	memcpy(to, value, strlen(value) + 1);
	return 0;
}

static int
parse_number(const char *key, const char *value, uint32_t least, uint32_t most, uint32_t *to)
{
	char *end;
	unsigned long v = strtoul(value, &end, 10);

	if (end == value || *end != '\0' || v < least || v > most) {
		KP_LOG(ERR, "%s=%s: a number from %u to %u\n", key, value, least, most);
		return -EINVAL;
	}
	*to = (uint32_t)v;
	return 0;
}

static int
parse_queues(const char *key, const char *value, void *to)
{
	return parse_number(key, value, 1, KP_MAX_QUEUES, to);
}

static int
parse_flag(const char *key, const char *value, void *to)
{
	uint32_t v;
	int rc = parse_number(key, value, 0, 1, &v);

	if (rc == 0)
		*(bool *)to = v != 0;
	return rc;
}

static int
parse_bytes(const char *key, const char *value, void *to)
{
	return parse_number(key, value, 65536, 1u << 30, to);
}

static int
parse_spread(const char *key, const char *value, void *to)
{
	static const char *const words[] = {"qpn", "flow", "cpu"};
	unsigned int i;

	for (i = 0; i < RTE_DIM(words); i++) {
		if (strcmp(value, words[i]) == 0) {
			*(enum kp_spread *)to = i;
			return 0;
		}
	}
	KP_LOG(ERR, "%s=%s: qpn, flow or cpu\n", key, value);
	return -EINVAL;
}

static int
parse_mac(const char *key, const char *value, void *to)
{
	struct rte_ether_addr mac;

	if (rte_ether_unformat_addr(value, &mac) != 0 || !rte_is_valid_assigned_ether_addr(&mac)) {
		KP_LOG(ERR, "%s=%s: an address such as 02:00:00:00:00:01, not a group's\n", key,
			value);
		return -EINVAL;
	}
	*(struct rte_ether_addr *)to = mac;
	return 0;
}

/* Checks that the arguments fit together. */
static int
check_args(const char *args, struct kp_port *p, const char *tap)
{
	p->tap = tap[0] != '\0';
	if (p->tap == (p->iface[0] != '\0')) {
		KP_LOG(ERR, "\"%s\": %s\n", args,
			p->tap ? "iface=NAME or tap=NAME, not both"
			       : "iface=NAME is missing, or tap=NAME");
		return -EINVAL;
	}
	if (!p->tap && !rte_is_zero_ether_addr(&p->mac)) {
		KP_LOG(ERR, "\"%s\": mac= is for a tap; %s has its own\n", args, p->iface);
		return -EINVAL;
	}
	if (p->tap)
		memcpy(p->iface, tap, sizeof(p->iface));
	if (p->tap && rte_is_zero_ether_addr(&p->mac))
		rte_eth_random_addr(p->mac.addr_bytes);
	p->tags = !p->tap && !p->roce;
	return 0;
}

static int
parse_args(const char *args, struct kp_port *p)
{
	static const char *const keys[] = {"iface", "tap", "mac", "qpairs", "roce", "trains",
		"ring", "spread", "rcvbuf", "sndbuf", NULL};
	char tap[IF_NAMESIZE] = "";
	uint32_t queues = 1;
	struct {
		const char *key;
		arg_handler_t fn;
		void *to;
	} table[] = {
		{"iface", parse_text, p->iface},
		{"tap", parse_text, tap},
		{"mac", parse_mac, &p->mac},
		{"qpairs", parse_queues, &queues},
		{"roce", parse_flag, &p->roce},
		{"trains", parse_flag, &p->trains},
		{"ring", parse_flag, &p->want_ring},
		{"spread", parse_spread, &p->spread},
		{"rcvbuf", parse_bytes, &p->rcvbuf},
		{"sndbuf", parse_bytes, &p->sndbuf},
	};
	struct rte_kvargs *kv = rte_kvargs_parse(args, keys);
	size_t i;
	int rc = 0;

	if (kv == NULL) {
		KP_LOG(ERR,
			"\"%s\": its arguments are iface, tap, mac, qpairs, roce, trains, ring, "
			"spread, rcvbuf, sndbuf\n",
			args);
		return -EINVAL;
	}
	for (i = 0; rc == 0 && i < RTE_DIM(table); i++)
		rc = rte_kvargs_process(kv, table[i].key, table[i].fn, table[i].to);
	rte_kvargs_free(kv);
	if (rc == 0)
		rc = check_args(args, p, tap);
	p->nq = p->nrx = (uint16_t)queues;
	p->most_queues = p->tap ? p->nq : KP_MAX_QUEUES;
	return rc < 0 ? -EINVAL : 0;
}

/* --- configuration, start, stop, close --- */

static int
dev_configure(struct rte_eth_dev *dev)
{
	struct kp_port *p = dev->data->dev_private;

	/* The kernel gives frames to each queue of a tap that may send. */
	if (p->tap && dev->data->nb_rx_queues < dev->data->nb_tx_queues) {
		KP_LOG(ERR,
			"tap %s: %u queues that send need as many queues that receive, instead of %u\n",
			p->iface, dev->data->nb_tx_queues, dev->data->nb_rx_queues);
		return -EINVAL;
	}
	p->strip = (dev->data->dev_conf.rxmode.offloads & RTE_ETH_RX_OFFLOAD_VLAN_STRIP) != 0;
	p->nrx = dev->data->nb_rx_queues;
	p->nq = RTE_MAX(p->nrx, dev->data->nb_tx_queues);
	/* No other program sets the MTU that is asked for now. */
	if (p->tap && dev->data->mtu != p->mtu && kp_tap_set_mtu(p, dev->data->mtu) != 0)
		dev->data->mtu = (uint16_t)RTE_MIN(p->mtu, (uint32_t)dev->data->mtu);
	return 0;
}

static int
dev_start(struct rte_eth_dev *dev)
{
	struct kp_port *p = dev->data->dev_private;
	uint16_t i;
	int rc = 0;

	if (p->tap)
		kp_tap_start(p);
	else
		rc = kp_sockets_open(p);
	if (rc != 0)
		return rc;
	for (i = 0; i < p->nq; i++) {
		if (p->rxq[i] != NULL) {
			p->rxq[i]->fd = p->fd[i];
			p->rxq[i]->ring = p->ring[i].base != NULL ? &p->ring[i] : NULL;
			kp_rxq_arm(p->rxq[i]);
		}
		if (p->txq[i] != NULL)
			p->txq[i]->fd = p->fd[i];
	}
	p->started = true;
	dev->data->dev_link.link_status = RTE_ETH_LINK_UP;
	return 0;
}

static void
add_missed(struct kp_port *p)
{
	/* relaxed: a counter */
	atomic_fetch_add_explicit(&p->missed, kp_sockets_missed(p), memory_order_relaxed);
}

static int
dev_stop(struct rte_eth_dev *dev)
{
	struct kp_port *p = dev->data->dev_private;
	uint16_t i;

	for (i = 0; i < p->nq; i++)
		if (p->rxq[i] != NULL)
			p->rxq[i]->ring = NULL;
	if (p->tap) {
		kp_tap_stop(p);
	} else {
		add_missed(p);
		/* DPDK asks for them again at the next start */
		kp_memberships_drop(p);
		kp_sockets_mute(p);
	}
	p->started = false;
	dev->data->dev_link.link_status = RTE_ETH_LINK_DOWN;
	return 0;
}

static void
rx_queue_release(struct rte_eth_dev *dev, uint16_t queue)
{
	struct kp_port *p = dev->data->dev_private;

	if (p->rxq[queue] != NULL)
		kp_rxq_fini(p->rxq[queue]);
	rte_free(p->rxq[queue]);
	p->rxq[queue] = NULL;
}

static void
tx_queue_release(struct rte_eth_dev *dev, uint16_t queue)
{
	struct kp_port *p = dev->data->dev_private;

	rte_free(p->txq[queue]);
	p->txq[queue] = NULL;
}

static int
rx_queue_setup(struct rte_eth_dev *dev, uint16_t queue, uint16_t slots, unsigned int socket,
	const struct rte_eth_rxconf *conf, struct rte_mempool *pool)
{
	struct kp_port *p = dev->data->dev_private;
	struct kp_rxq *q;

	rx_queue_release(dev, queue);
	q = rte_zmalloc_socket("net_kport", sizeof(*q), RTE_CACHE_LINE_SIZE, dev->data->numa_node);
	if (q == NULL)
		return -ENOMEM;
	q->port = p;
	q->pool = pool;
	q->port_id = dev->data->port_id;
	q->room = rte_pktmbuf_data_room_size(pool) - RTE_PKTMBUF_HEADROOM;
	q->fd = -1;
	p->rx_base[queue] = q->stats;
	p->rxq[queue] = q;
	if (kp_rxq_init(q) != 0) {
		rx_queue_release(dev, queue);
		return -ENOMEM;
	}
	dev->data->rx_queues[queue] = q;
	return 0;
}

static int
tx_queue_setup(struct rte_eth_dev *dev, uint16_t queue, uint16_t slots, unsigned int socket,
	const struct rte_eth_txconf *conf)
{
	struct kp_port *p = dev->data->dev_private;
	struct kp_txq *q;

	tx_queue_release(dev, queue);
	q = rte_zmalloc_socket("net_kport", sizeof(*q), RTE_CACHE_LINE_SIZE, dev->data->numa_node);
	if (q == NULL)
		return -ENOMEM;
	q->port = p;
	q->fd = -1;
	p->tx_base[queue] = q->stats;
	p->txq[queue] = q;
	dev->data->tx_queues[queue] = q;
	return 0;
}

static int
dev_close(struct rte_eth_dev *dev)
{
	struct kp_port *p = dev->data->dev_private;
	uint16_t i;

	if (rte_eal_process_type() != RTE_PROC_PRIMARY)
		return 0;
	for (i = 0; i < KP_MAX_QUEUES; i++) {
		rx_queue_release(dev, i);
		tx_queue_release(dev, i);
	}
	kp_sockets_close(p);
	dev->data->mac_addrs = NULL; /* part of the private data */
	return 0;
}

/* --- information --- */

/* Linux 6.2 and later accept UDP segmentation from packet sockets. */
static bool
kernel_has_trains(void)
{
	struct utsname u;
	unsigned int major = 0, minor = 0;

	return uname(&u) == 0 && sscanf(u.release, "%u.%u", &major, &minor) == 2 &&
		(major > 6 || (major == 6 && minor >= 2));
}

static int
dev_infos_get(struct rte_eth_dev *dev, struct rte_eth_dev_info *info)
{
	struct kp_port *p = dev->data->dev_private;
	unsigned int ifindex, flags;

	(void)kp_iface_read(p, &ifindex, &flags);
	info->if_index = p->ifindex;
	info->max_mac_addrs = 1;
	info->max_rx_queues = info->max_tx_queues = p->most_queues;
	info->min_rx_bufsize = 0;
	info->max_mtu = (uint16_t)RTE_MIN(p->tap ? KP_TAP_MTU_MAX : p->mtu, (uint32_t)UINT16_MAX);
	info->min_mtu = RTE_ETHER_MIN_MTU;
	info->max_rx_pktlen = info->max_mtu + RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;
	info->rx_offload_capa = p->tags ? RTE_ETH_RX_OFFLOAD_VLAN_STRIP : 0;
	info->tx_offload_capa = RTE_ETH_TX_OFFLOAD_MULTI_SEGS | RTE_ETH_TX_OFFLOAD_UDP_CKSUM |
		RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
	if (p->trains && kernel_has_trains() && (!p->tap || p->tx_trains))
		info->tx_offload_capa |= RTE_ETH_TX_OFFLOAD_UDP_TSO;
	return 0;
}

static int
mtu_set(struct rte_eth_dev *dev, uint16_t mtu)
{
	struct kp_port *p = dev->data->dev_private;

	if (p->tap)
		return kp_tap_set_mtu(p, mtu);
	return mtu <= p->mtu ? 0 : -EINVAL;
}

/* The interface may be gone, or may have been replaced by another one of the same name. */
static int
link_update(struct rte_eth_dev *dev, int wait)
{
	struct rte_eth_link link = {.link_duplex = RTE_ETH_LINK_FULL_DUPLEX,
		.link_autoneg = RTE_ETH_LINK_FIXED,
		.link_speed = RTE_ETH_SPEED_NUM_UNKNOWN};
	struct kp_port *p = dev->data->dev_private;
	unsigned int ifindex, flags = 0;
	int rc = kp_iface_read(p, &ifindex, &flags);

	if (rc == 0 && p->started && p->tap && ifindex != p->ifindex)
		rc = -ENODEV;
	else if (rc == 0 && p->started && !p->tap &&
		(ifindex != p->ifindex || kp_sockets_astray(p)))
		rc = kp_sockets_follow(p, ifindex);
	if (rc == 0)
		link.link_speed = kp_iface_speed(p);
	link.link_status =
		rc == 0 && p->started && (flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING);
	if (!p->tap && link.link_status == RTE_ETH_LINK_UP) {
		add_missed(p);
		kp_rings_renew(p);
	}
	dev->data->dev_link = link;
	return 0;
}

static int
is_removed(struct rte_eth_dev *dev)
{
	struct kp_port *p = dev->data->dev_private;
	unsigned int ifindex, flags;

	return kp_iface_read(p, &ifindex, &flags) == -ENODEV;
}

static int
promiscuous_enable(struct rte_eth_dev *dev)
{
	return kp_membership(dev->data->dev_private, PACKET_MR_PROMISC, true);
}

static int
promiscuous_disable(struct rte_eth_dev *dev)
{
	return kp_membership(dev->data->dev_private, PACKET_MR_PROMISC, false);
}

static int
allmulticast_enable(struct rte_eth_dev *dev)
{
	return kp_membership(dev->data->dev_private, PACKET_MR_ALLMULTI, true);
}

static int
allmulticast_disable(struct rte_eth_dev *dev)
{
	return kp_membership(dev->data->dev_private, PACKET_MR_ALLMULTI, false);
}

/* At the end of a tap any address is possible; the address of an interface can only be changed in
 * the kernel. */
static int
mac_addr_set(struct rte_eth_dev *dev, struct rte_ether_addr *mac)
{
	struct kp_port *p = dev->data->dev_private;

	if (!p->tap)
		return -ENOTSUP;
	p->mac = *mac;
	return 0;
}

/* Returns the number of frames for which there was no room. */
static uint64_t
missed(struct kp_port *p)
{
	if (p->tap) {
		uint64_t n = kp_tap_missed(p);

		/* the tap may have gone, or be in another namespace */
		return n < p->missed_base ? 0 : n - p->missed_base;
	}
	if (p->started)
		add_missed(p);
	return atomic_load_explicit(&p->missed, memory_order_relaxed);
}

/* --- counters: values since a queue was set up, minus those at the last reset --- */

static int
stats_get(struct rte_eth_dev *dev, struct rte_eth_stats *st)
{
	struct kp_port *p = dev->data->dev_private;
	uint16_t i;

	for (i = 0; i < KP_MAX_QUEUES; i++) {
		if (p->rxq[i] != NULL) {
			const struct kp_rx_stats *s = &p->rxq[i]->stats, *b = &p->rx_base[i];

			st->ipackets += s->frames - b->frames;
			st->ibytes += s->bytes - b->bytes;
			st->ierrors += s->bad - b->bad + s->too_long - b->too_long;
			st->rx_nombuf += s->no_bufs - b->no_bufs;
			st->imissed += s->missed - b->missed;
		}
		if (p->txq[i] != NULL) {
			const struct kp_tx_stats *s = &p->txq[i]->stats, *b = &p->tx_base[i];

			st->opackets += s->frames - b->frames;
			st->obytes += s->bytes - b->bytes;
			st->oerrors += s->errors - b->errors;
		}
	}
	st->imissed += missed(p);
	return 0;
}

static int
stats_reset(struct rte_eth_dev *dev)
{
	struct kp_port *p = dev->data->dev_private;
	uint16_t i;

	for (i = 0; i < KP_MAX_QUEUES; i++) {
		if (p->rxq[i] != NULL)
			p->rx_base[i] = p->rxq[i]->stats;
		if (p->txq[i] != NULL)
			p->tx_base[i] = p->txq[i]->stats;
	}
	p->missed_base = p->tap ? kp_tap_missed(p) : 0;
	if (p->started && !p->tap)
		(void)kp_sockets_missed(p);
	p->missed = 0;
	return 0;
}

static const struct {
	const char *name;
	bool rx;
	size_t at;
} xstats[] = {
	{"rx_trains", true, offsetof(struct kp_rx_stats, trains)},
	{"rx_train_datagrams", true, offsetof(struct kp_rx_stats, datagrams)},
	{"rx_copied_datagrams", true, offsetof(struct kp_rx_stats, copied)},
	{"rx_bad_messages", true, offsetof(struct kp_rx_stats, bad)},
	{"rx_too_long", true, offsetof(struct kp_rx_stats, too_long)},
	{"rx_socket_errors", true, offsetof(struct kp_rx_stats, errors)},
	{"tx_trains", false, offsetof(struct kp_tx_stats, trains)},
	{"tx_train_datagrams", false, offsetof(struct kp_tx_stats, datagrams)},
	{"tx_socket_full", false, offsetof(struct kp_tx_stats, full)},
};

static uint64_t
xstat_of(const struct kp_port *p, unsigned int x)
{
	uint64_t sum = 0, v, base;
	uint16_t i;

	for (i = 0; i < KP_MAX_QUEUES; i++) {
		const void *q = xstats[x].rx ? (const void *)p->rxq[i] : (const void *)p->txq[i];
		const char *s, *b;

		if (q == NULL)
			continue;
		s = xstats[x].rx ? (const char *)&p->rxq[i]->stats
				 : (const char *)&p->txq[i]->stats;
		b = xstats[x].rx ? (const char *)&p->rx_base[i] : (const char *)&p->tx_base[i];
		memcpy(&v, s + xstats[x].at, sizeof(v));
		memcpy(&base, b + xstats[x].at, sizeof(base));
		sum += v - base;
	}
	return sum;
}

static int
xstats_get(struct rte_eth_dev *dev, struct rte_eth_xstat *to, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < RTE_DIM(xstats) && i < n; i++) {
		to[i].id = i;
		to[i].value = xstat_of(dev->data->dev_private, i);
	}
	return RTE_DIM(xstats);
}

static int
xstats_get_names(struct rte_eth_dev *dev, struct rte_eth_xstat_name *names, unsigned int n)
{
	unsigned int i;

	for (i = 0; names != NULL && i < RTE_DIM(xstats) && i < n; i++)
		snprintf(names[i].name, sizeof(names[i].name), "%s", xstats[i].name);
	return RTE_DIM(xstats);
}

static const struct eth_dev_ops ops = {
	.dev_configure = dev_configure,
	.dev_start = dev_start,
	.dev_stop = dev_stop,
	.dev_close = dev_close,
	.link_update = link_update,
	.is_removed = is_removed,
	.promiscuous_enable = promiscuous_enable,
	.promiscuous_disable = promiscuous_disable,
	.allmulticast_enable = allmulticast_enable,
	.allmulticast_disable = allmulticast_disable,
	.mac_addr_set = mac_addr_set,
	.mtu_set = mtu_set,
	.stats_get = stats_get,
	.stats_reset = stats_reset,
	.xstats_get = xstats_get,
	.xstats_reset = stats_reset,
	.xstats_get_names = xstats_get_names,
	.dev_infos_get = dev_infos_get,
	.rx_queue_setup = rx_queue_setup,
	.rx_queue_release = rx_queue_release,
	.tx_queue_setup = tx_queue_setup,
	.tx_queue_release = tx_queue_release,
};

/* --- on the virtual bus --- */

static int
check_iface(struct kp_port *p)
{
	unsigned int ifindex = 0, flags;
	int rc = p->tap ? kp_tap_open(p) : 0;

	if (rc != 0)
		return rc;
	rc = kp_iface_read(p, &ifindex, &flags);
	p->ifindex = ifindex;
	if (rc == -EPROTOTYPE)
		KP_LOG(ERR, "%s: the interface is not Ethernet\n", p->iface);
	else if (rc != 0)
		KP_LOG(ERR, "%s: %s\n", p->iface,
			rc == -ENODEV ? "there is no such interface" : strerror(-rc));
	if (rc != 0)
		kp_sockets_close(p);
	return rc;
}

static int
kp_probe(struct rte_vdev_device *vdev)
{
	struct kp_port wish = {.trains = true,
		.want_ring = true,
		.rcvbuf = RCVBUF_DEFAULT,
		.sndbuf = SNDBUF_DEFAULT};
	const char *args = vdev->device.devargs != NULL ? vdev->device.devargs->args : "";
	struct rte_eth_dev *dev;
	struct kp_port *p;
	int rc;

	if (!dpdk_abi_fits() || rte_eal_process_type() != RTE_PROC_PRIMARY) {
		KP_LOG(ERR, "this driver is for primary processes of DPDK 22.11, this is %s\n",
			rte_version());
		return -ENOTSUP;
	}
	memset(wish.fd, -1, sizeof(wish.fd));
	rc = parse_args(args != NULL ? args : "", &wish);
	if (rc == 0)
		rc = check_iface(&wish);
	if (rc != 0)
		return rc;
	dev = rte_eth_dev_allocate(vdev->device.name);
	p = rte_zmalloc_socket(
		"net_kport", sizeof(*p), RTE_CACHE_LINE_SIZE, vdev->device.numa_node);
	if (dev == NULL || p == NULL) {
		kp_sockets_close(&wish);
		rte_free(p);
		rte_eth_dev_release_port(dev);
		return -ENOMEM;
	}
	*p = wish;
	p->data = dev->data;
	dev->data->dev_private = p;
	dev->data->mac_addrs = &p->mac;
	dev->data->mtu = (uint16_t)RTE_MIN(p->mtu, (uint32_t)UINT16_MAX);
	dev->data->numa_node = vdev->device.numa_node;
	dev->device = &vdev->device;
	dev->dev_ops = &ops;
	dev->rx_pkt_burst = kp_rx_burst;
	dev->tx_pkt_burst = kp_tx_burst;
	rte_eth_dev_probing_finish(dev);
	return 0;
}

static int
kp_remove(struct rte_vdev_device *vdev)
{
	struct rte_eth_dev *dev = rte_eth_dev_allocated(vdev->device.name);

	if (dev == NULL)
		return 0;
	dev_close(dev);
	return rte_eth_dev_release_port(dev);
}

static struct rte_vdev_driver driver = {
	.driver = {.name = "net_kport"}, .probe = kp_probe, .remove = kp_remove};

RTE_INIT(kp_register)
{
	kp_logtype = rte_log_register_type_and_pick_level("pmd.net.kport", RTE_LOG_NOTICE);
	rte_vdev_register(&driver);
}
