/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The device and its port: attaching to the engine; attributes. */
#include "provider.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

#define VENDOR_ID      0x4b52u /* "KR": no PCI vendor */
#define VENDOR_PART_ID 1u
#define MAX_MSG_BYTES  (1u << 31)
#define NS_PER_S       1000000000u

/* of enum ibv_port_cap_flags, for RoCE ports */
#define PORT_IP_BASED_GIDS (1u << 26)

#define ODP_DATAGRAM (IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV)
#define ODP_RC \
	(ODP_DATAGRAM | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC)

/* --- the list of devices --- */

static struct {
	struct karst_mutex lock;
	LIST_HEAD(, kv_device) list;
} devices = {.lock = KARST_MUTEX_INITIALIZER};

static void
lock_devices(void)
{
	karst_mutex_lock(&devices.lock);
}

static void
unlock_devices(void)
{
	karst_mutex_unlock(&devices.lock);
}

void
kv_device_init(void)
{
	pthread_atfork(lock_devices, unlock_devices, unlock_devices);
}

void
kv_device_add(struct kv_device *dev)
{
	karst_mutex_lock(&devices.lock);
	LIST_INSERT_HEAD(&devices.list, dev, next);
	karst_mutex_unlock(&devices.lock);
}

void
kv_device_remove(struct kv_device *dev)
{
	karst_mutex_lock(&devices.lock);
	LIST_REMOVE(dev, next);
	karst_mutex_unlock(&devices.lock);
}

bool
kv_device_first(char *socket)
{
	const struct kv_device *d, *first;

	karst_mutex_lock(&devices.lock);
	first = LIST_FIRST(&devices.list);
	LIST_FOREACH(d, &devices.list, next)
		if (strverscmp(d->vdev.device.name, first->vdev.device.name) < 0)
			first = d;
	if (first != NULL)
		memcpy(socket, first->socket, sizeof(first->socket));
	karst_mutex_unlock(&devices.lock);
	return first != NULL;
}

uint64_t
kv_device_guid(const char *socket, uint32_t port)
{
	struct kv_device *d;
	uint64_t guid = 0;

	karst_mutex_lock(&devices.lock);
	LIST_FOREACH(d, &devices.list, next)
		if (guid == 0 && d->port == port && strcmp(d->socket, socket) == 0)
			guid = ibv_get_device_guid(&d->vdev.device);
	karst_mutex_unlock(&devices.lock);
	return guid;
}

/* --- attaching --- */

/* The smallest region, in bytes, whose pages are migrated.  Programs register buffers once and use
 * them often, and use small ones where latency matters most, so even one page is worth migrating.
 * $KARST_MIGRATE_MIN overrides this. */
static uint64_t
migrate_min(void)
{
	const char *min = getenv("KARST_MIGRATE_MIN");
	unsigned long long bytes;
	char *end;

	if (min == NULL)
		return 1;
	errno = 0;
	bytes = strtoull(min, &end, 0);
	if (errno == 0 && end != min && *end == 0)
		return bytes;
	fprintf(stderr, "karst: KARST_MIGRATE_MIN: '%s' is no number of bytes\n", min);
	return 1;
}

struct karst_context *
kv_attach(const struct kv_device *dev)
{
	const struct karst_open_attr attr = {.migrate_min = migrate_min(), .event_port = dev->port};
	struct karst_context *karst;
	int ret = karst_open(dev->socket, &attr, &karst);

	if (ret != 0) {
		/* libibverbs itself only reports "failed to open" */
		fprintf(stderr, "karst: %s: %s\n", dev->vdev.device.name, karst_why());
		errno = -ret;
		return NULL;
	}
	if (dev->port == 0 || dev->port > karst->nports) {
		fprintf(stderr, "karst: %s is port %u of an engine that has %u\n",
			dev->vdev.device.name, dev->port, karst->nports);
		karst_close(karst);
		errno = ENODEV;
		return NULL;
	}
	return karst;
}

int
kv_check_process(struct ibv_context *ibv)
{
	uint64_t ns;

	return karst_query_clock(kv_context_of(ibv)->karst, &ns);
}

/* --- the device --- */

static int
device_clamp(uint64_t n)
{
	return n > INT32_MAX ? INT32_MAX : (int)n;
}

static void
fill_device(struct ibv_device_attr *to, const struct karst_device_attr *from)
{
	snprintf(to->fw_ver, sizeof(to->fw_ver), "%s", from->version);
	to->sys_image_guid = htobe64(from->node_guid);
	to->max_mr_size = from->max_mr_size;
	to->page_size_cap = from->page_size_cap;
	to->vendor_id = VENDOR_ID;
	to->vendor_part_id = VENDOR_PART_ID;
	to->max_qp = device_clamp(from->max_qp);
	to->max_qp_wr = device_clamp(from->max_qp_wr);
	to->device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT |
		IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_XRC |
		IBV_DEVICE_AUTO_PATH_MIG | IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_MGT_EXTENSIONS |
		IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	to->max_sge = device_clamp(from->max_sge);
	to->max_sge_rd = device_clamp(from->max_sge);
	to->max_cq = device_clamp(from->max_cq);
	to->max_cqe = device_clamp(from->max_cqe);
	to->max_mr = device_clamp(from->max_mr);
	to->max_pd = device_clamp(from->max_pd);
	to->max_qp_rd_atom = device_clamp(from->max_qp_rd_atom);
	to->max_res_rd_atom = device_clamp((uint64_t)from->max_qp_rd_atom * from->max_qp);
	to->max_qp_init_rd_atom = device_clamp(from->max_qp_rd_atom);
	to->atomic_cap = IBV_ATOMIC_HCA;
	to->max_mw = device_clamp(from->max_mw);
	to->max_mcast_grp = device_clamp(from->max_mcast_grp);
	to->max_mcast_qp_attach = device_clamp(from->max_mcast_qp_attach);
	to->max_total_mcast_qp_attach = device_clamp(from->max_total_mcast_qp_attach);
	to->max_ah = device_clamp(from->max_ah);
	to->max_srq = device_clamp(from->max_srq);
	to->max_srq_wr = device_clamp(from->max_srq_wr);
	to->max_srq_sge = device_clamp(from->max_srq_sge);
	to->max_pkeys = 1;
	to->local_ca_ack_delay = KARST_CA_ACK_DELAY;
	to->phys_port_cnt = 1;
}

int
kv_query_device_ex(struct ibv_context *ibv, const struct ibv_query_device_ex_input *input,
	struct ibv_device_attr_ex *attr, size_t attr_size)
{
	struct ibv_device_attr_ex all = {
		.completion_timestamp_mask = UINT64_MAX,
		.hca_core_clock = NS_PER_S / 1000, /* in kHz */
		.cq_mod_caps = {.max_cq_count = UINT16_MAX, .max_cq_period = UINT16_MAX},
		.phys_port_cnt_ex = 1,
		.packet_pacing_caps = {.qp_rate_limit_min = KARST_RATE_LIMIT_MIN,
			.qp_rate_limit_max = KARST_RATE_LIMIT_MAX,
			.supported_qpts = 1u << IBV_QPT_RC | 1u << IBV_QPT_UC | 1u << IBV_QPT_UD |
				1u << IBV_QPT_XRC_SEND | 1u << IBV_QPT_XRC_RECV},
		/* on-demand regions are copied memory: all operations are supported, a region of
		 * all addresses (implicit ODP) is not */
		.odp_caps = {.general_caps = IBV_ODP_SUPPORT,
			.per_transport_caps = {.rc_odp_caps = ODP_RC,
				.uc_odp_caps = ODP_DATAGRAM | IBV_ODP_SUPPORT_WRITE,
				.ud_odp_caps = ODP_DATAGRAM}},
		.xrc_odp_caps = ODP_RC,
	};
	struct karst_device_attr from;
	int ret;

	if ((input != NULL && input->comp_mask != 0) || attr_size < sizeof(all.orig_attr))
		return kv_error(kv_refuse(-EINVAL,
			"comp_mask must be 0, attr_size at least that of struct ibv_device_attr"));
	ret = karst_query_device(kv_context_of(ibv)->karst, &from);
	if (ret != 0)
		return kv_error(ret);
	fill_device(&all.orig_attr, &from);
	/* the port's GUID, since the device is one port; libibverbs has read it from sysfs */
	all.orig_attr.node_guid = ibv_get_device_guid(ibv->device);
	all.device_cap_flags_ex = all.orig_attr.device_cap_flags;
	memset(attr, 0, attr_size);
	memcpy(attr, &all, attr_size < sizeof(all) ? attr_size : sizeof(all));
	return 0;
}

int
kv_query_rt_values(struct ibv_context *ibv, struct ibv_values_ex *values)
{
	uint32_t want = values->comp_mask;
	uint64_t ns;
	int ret;

	if (want & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK)
		return kv_error(kv_refuse(
			-EOPNOTSUPP, "comp_mask: only IBV_VALUES_MASK_RAW_CLOCK is supported"));
	if (!(want & IBV_VALUES_MASK_RAW_CLOCK))
		return 0;
	ret = karst_query_clock(kv_context_of(ibv)->karst, &ns);
	if (ret != 0)
		return kv_error(ret);
	/* in cycles of hca_core_clock, like the timestamps of completions; by convention of the
	 * interface, tv_nsec has the whole number */
	values->raw_clock.tv_sec = 0;
	values->raw_clock.tv_nsec = (long)ns;
	return 0;
}

/* --- the port --- */

/* Width and speed are codes; the rate is the product of what they mean.  A port that does not know
 * its rate reports the lowest.  Lanes of 25.78, 14.06 (as 16), 10, 5 and 2.5 Gb/s. */
static void
fill_rate(struct ibv_port_attr *to, uint32_t mbps)
{
	static const struct {
		uint32_t mbps;
		uint8_t width, speed;
	} rates[] = {
		{400000, 4, 128}, /* 8 lanes of HDR */
		{200000, 2, 128}, /* 4 of HDR */
		{100000, 2, 32},  /* 4 of EDR */
		{50000, 1, 64},
		{40000, 2, 4},
		{25000, 1, 32},
		{10000, 1, 4},
		{5000, 1, 2},
		{0, 1, 1},
	};
	unsigned int i;

	for (i = 0; mbps < rates[i].mbps; i++)
		;
	to->active_width = rates[i].width;
	to->active_speed = rates[i].speed;
}

int
kv_query_port(struct ibv_context *ibv, uint8_t port, struct ibv_port_attr *attr)
{
	const struct kv_context *ctx = kv_context_of(ibv);
	struct karst_port_attr from;
	int ret;

	if (port != 1)
		return kv_error(kv_refuse(-EINVAL, "port_num must be 1"));
	ret = karst_query_port(ctx->karst, ctx->port, &from);
	if (ret != 0)
		return kv_error(ret);
	memset(attr, 0, sizeof(*attr));
	attr->state = (enum ibv_port_state)from.state;
	attr->max_mtu = (enum ibv_mtu)from.max_mtu;
	attr->active_mtu = (enum ibv_mtu)from.active_mtu;
	attr->gid_tbl_len = device_clamp(from.gid_tbl_len);
	attr->port_cap_flags = PORT_IP_BASED_GIDS;
	attr->max_msg_sz = MAX_MSG_BYTES;
	attr->pkey_tbl_len = 1;
	attr->max_vl_num = 1;
	attr->phys_state = from.state == KARST_PORT_ACTIVE ? 5 : 3; /* LinkUp, Disabled */
	attr->link_layer = IBV_LINK_LAYER_ETHERNET;
	/* addresses are GIDs: kv_ah_attr() requires a GRH */
	attr->flags = IBV_QPF_GRH_REQUIRED;
	fill_rate(attr, from.mbps);
	return 0;
}
