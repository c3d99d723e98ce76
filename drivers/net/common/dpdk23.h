/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Private declarations that DPDK shares with its drivers, ABI 23 (DPDK 22.11).  The headers that
 * contain them are not packaged, so this file declares what karst's drivers need of them; layouts
 * and names are those of that interface.  Another ABI needs another file like this one;
 * dpdk_abi_fits() checks that at run time.
 *
 * Three parts: devices and drivers of the virtual bus, an Ethernet device, its table of operations.
 */
#ifndef KARST_DPDK23_H
#define KARST_DPDK23_H

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_devargs.h>
#include <rte_ethdev.h>
#include <rte_version.h>

/* --- the virtual bus --- */

struct rte_driver {
	void *link[2];
	const char *name;
	const char *alias;
};

struct rte_device {
	void *link[2];
	const char *name;
	const char *bus_info;
	const struct rte_driver *driver;
	const struct rte_bus *bus;
	int numa_node;
	struct rte_devargs *devargs;
};

struct rte_vdev_device {
	void *link[2];
	struct rte_device device;
};

struct rte_vdev_driver {
	void *link[2];
	struct rte_driver driver;
	int (*probe)(struct rte_vdev_device *dev);
	int (*remove)(struct rte_vdev_device *dev);
	void *dma[2];
	uint32_t drv_flags;
};

void rte_vdev_register(struct rte_vdev_driver *driver);

/* --- an Ethernet device --- */

struct rte_eth_dev;

/* The part that all processes share. */
struct rte_eth_dev_data {
	char name[RTE_ETH_NAME_MAX_LEN];
	void **rx_queues;
	void **tx_queues;
	uint16_t nb_rx_queues;
	uint16_t nb_tx_queues;
	uint16_t sriov[3];
	void *dev_private;
	struct rte_eth_link dev_link;
	struct rte_eth_conf dev_conf;
	uint16_t mtu;
	uint32_t min_rx_buf_size;
	uint64_t rx_mbuf_alloc_failed;
	struct rte_ether_addr *mac_addrs;
	uint64_t mac_pool_sel[RTE_ETH_NUM_RECEIVE_MAC_ADDR];
	struct rte_ether_addr *hash_mac_addrs;
	uint16_t port_id;
	uint8_t bits;
	uint8_t rx_queue_state[RTE_MAX_QUEUES_PER_PORT];
	uint8_t tx_queue_state[RTE_MAX_QUEUES_PER_PORT];
	uint32_t dev_flags;
	int numa_node;
};

static_assert(offsetof(struct rte_eth_dev_data, dev_private) == 96, "as DPDK has it");
static_assert(offsetof(struct rte_eth_dev_data, mac_addrs) == 2400, "as DPDK has it");
static_assert(offsetof(struct rte_eth_dev_data, port_id) == 3440, "as DPDK has it");
static_assert(offsetof(struct rte_eth_dev_data, numa_node) == 5496, "as DPDK has it");

/* --- its operations: 113 in all; unused ones are placeholders --- */

struct eth_dev_ops {
	int (*dev_configure)(struct rte_eth_dev *dev);
	int (*dev_start)(struct rte_eth_dev *dev);
	int (*dev_stop)(struct rte_eth_dev *dev);
	int (*dev_set_link_up)(struct rte_eth_dev *dev);
	int (*dev_set_link_down)(struct rte_eth_dev *dev);
	int (*dev_close)(struct rte_eth_dev *dev);
	void *reset;
	int (*link_update)(struct rte_eth_dev *dev, int wait);
	int (*is_removed)(struct rte_eth_dev *dev);
	int (*promiscuous_enable)(struct rte_eth_dev *dev);
	int (*promiscuous_disable)(struct rte_eth_dev *dev);
	int (*allmulticast_enable)(struct rte_eth_dev *dev);
	int (*allmulticast_disable)(struct rte_eth_dev *dev);
	void (*mac_addr_remove)(struct rte_eth_dev *dev, uint32_t index);
	int (*mac_addr_add)(
		struct rte_eth_dev *dev, struct rte_ether_addr *mac, uint32_t index, uint32_t pool);
	int (*mac_addr_set)(struct rte_eth_dev *dev, struct rte_ether_addr *mac);
	int (*set_mc_addr_list)(struct rte_eth_dev *dev, struct rte_ether_addr *macs, uint32_t n);
	int (*mtu_set)(struct rte_eth_dev *dev, uint16_t mtu);
	int (*stats_get)(struct rte_eth_dev *dev, struct rte_eth_stats *stats);
	int (*stats_reset)(struct rte_eth_dev *dev);
	int (*xstats_get)(struct rte_eth_dev *dev, struct rte_eth_xstat *stats, unsigned int n);
	int (*xstats_reset)(struct rte_eth_dev *dev);
	int (*xstats_get_names)(
		struct rte_eth_dev *dev, struct rte_eth_xstat_name *names, unsigned int n);
	void *queue_stats_mapping;
	int (*dev_infos_get)(struct rte_eth_dev *dev, struct rte_eth_dev_info *info);
	void *unused_25[16];
	int (*rx_queue_setup)(struct rte_eth_dev *dev, uint16_t queue, uint16_t slots,
		unsigned int socket, const struct rte_eth_rxconf *conf, struct rte_mempool *pool);
	void (*rx_queue_release)(struct rte_eth_dev *dev, uint16_t queue);
	int (*rx_queue_intr_enable)(struct rte_eth_dev *dev, uint16_t queue);
	int (*rx_queue_intr_disable)(struct rte_eth_dev *dev, uint16_t queue);
	int (*tx_queue_setup)(struct rte_eth_dev *dev, uint16_t queue, uint16_t slots,
		unsigned int socket, const struct rte_eth_txconf *conf);
	void (*tx_queue_release)(struct rte_eth_dev *dev, uint16_t queue);
	void *unused_47[66];
};

static_assert(offsetof(struct eth_dev_ops, mtu_set) == 17 * sizeof(void *), "as DPDK has it");
static_assert(offsetof(struct eth_dev_ops, dev_infos_get) == 24 * sizeof(void *), "as DPDK has it");
static_assert(
	offsetof(struct eth_dev_ops, tx_queue_release) == 46 * sizeof(void *), "as DPDK has it");
static_assert(sizeof(struct eth_dev_ops) == 113 * sizeof(void *), "as DPDK has it");

/* The part of one process.  DPDK allocates it; drivers do not depend on its size. */
struct rte_eth_dev {
	eth_rx_burst_t rx_pkt_burst;
	eth_tx_burst_t tx_pkt_burst;
	eth_tx_prep_t tx_pkt_prepare;
	eth_rx_queue_count_t rx_queue_count;
	eth_rx_descriptor_status_t rx_descriptor_status;
	eth_tx_descriptor_status_t tx_descriptor_status;
	struct rte_eth_dev_data *data;
	void *process_private;
	const struct eth_dev_ops *dev_ops;
	struct rte_device *device;
	struct rte_intr_handle *intr_handle;
};

static_assert(offsetof(struct rte_eth_dev, device) == 72, "as DPDK has it");

struct rte_eth_dev *rte_eth_dev_allocate(const char *name);
struct rte_eth_dev *rte_eth_dev_allocated(const char *name);
int rte_eth_dev_release_port(struct rte_eth_dev *dev);
void rte_eth_dev_probing_finish(struct rte_eth_dev *dev);
int rte_eth_dev_callback_process(struct rte_eth_dev *dev, enum rte_eth_event_type event, void *ret);

/** Is this the DPDK that the declarations above describe? */
static inline bool
dpdk_abi_fits(void)
{
	return strncmp(rte_version(), "DPDK 22.11.", 11) == 0;
}

#endif /* KARST_DPDK23_H */
