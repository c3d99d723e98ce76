/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Commands of the rdma_cm device that answer with large structures of the kernel's interface: the
 * route of an identifier, attributes for its queue pair, events.
 */
#include "ucma.h"

#include <endian.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#define NO_INDEX UINT32_MAX /* devices of sysfs have no index: librdmacm uses the GUID */

/* --- addresses --- */

static void
address_out(const struct sockaddr_storage *from, struct sockaddr_in6 *to)
{
	if (from->ss_family == AF_INET)
		memcpy(to, from, sizeof(struct sockaddr_in));
	else if (from->ss_family == AF_INET6)
		memcpy(to, from, sizeof(*to));
}

/* Stores the RoCE GID of an address. */
static void
gid_of(const struct sockaddr_storage *from, uint8_t *gid)
{
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;

	if (from->ss_family == AF_INET) {
		gid[10] = gid[11] = 0xff;
		memcpy(gid + 12, &v4->sin_addr, 4);
	} else if (from->ss_family == AF_INET6) {
		memcpy(gid, &v6->sin6_addr, 16);
	}
}

/* port_num is 1, because the device has one port. */
static void
ah_attr_out(const struct karst_ah_attr *from, struct ib_uverbs_ah_attr *to)
{
	if (from->port_num == 0)
		return;
	to->grh.flow_label = from->flow_label;
	to->grh.sgid_index = from->sgid_index;
	to->grh.hop_limit = from->hop_limit;
	to->grh.traffic_class = from->traffic_class;
	memcpy(to->grh.dgid, from->dgid.raw, sizeof(to->grh.dgid));
	to->sl = from->sl;
	to->is_global = 1;
	to->port_num = 1;
}

/* --- the route --- */

static void
path_out(const struct karst_rdmacm_query *q, struct ib_user_path_rec *to)
{
	const uint8_t exactly = 2;

	memcpy(to->dgid, q->dgid.raw, sizeof(to->dgid));
	memcpy(to->sgid, q->sgid.raw, sizeof(to->sgid));
	to->flow_label = htobe32(q->flow_label);
	to->reversible = 1;
	to->mtu = q->path_mtu;
	to->pkey = htobe16(q->pkey);
	to->hop_limit = q->hop_limit;
	to->traffic_class = q->traffic_class;
	to->numb_path = 1;
	to->sl = q->sl;
	to->mtu_selector = exactly;
	to->rate_selector = exactly; /* rate 0: that of the port */
	to->packet_life_time_selector = exactly;
	to->packet_life_time = q->packet_life_time;
}

int
kv_cm_query_route(struct kv_cm_file *file, uint32_t id, struct rdma_ucm_query_route_resp *resp)
{
	struct karst_rdmacm_query q;
	int ret = karst_rdmacm_query(file->engine->karst, id, &q);

	if (ret != 0)
		return ret;
	resp->ibdev_index = NO_INDEX;
	address_out(&q.src, &resp->src_addr);
	address_out(&q.dst, &resp->dst_addr);
	if (q.port_num == 0)
		return 0;
	resp->node_guid = kv_device_guid(file->engine->socket, q.port_num);
	/* the port was added after the program listed the devices */
	if (resp->node_guid == 0)
		return kv_refuse(-ENODEV, "the port was added after the devices were listed");
	resp->port_num = 1;
	resp->num_paths = q.paths;
	if (q.paths != 0) {
		path_out(&q, &resp->ib_route[0]);
		return 0;
	}
	gid_of(&q.dst, resp->ib_route[0].dgid);
	gid_of(&q.src, resp->ib_route[0].sgid);
	resp->ib_route[0].pkey = htobe16(UINT16_MAX);
	return 0;
}

/* --- attributes --- */

int
kv_cm_init_qp_attr(
	struct kv_cm_file *file, uint32_t id, uint32_t state, struct ib_uverbs_qp_attr *resp)
{
	struct karst_qp_attr a = {0};
	unsigned int mask;
	int ret;

	if (state > IBV_QPS_ERR)
		return kv_refuse(-EINVAL, "init_qp_attr: unknown qp_state");
	ret = karst_rdmacm_init_qp_attr(
		file->engine->karst, id, (enum karst_qp_state)state, &a, &mask);
	if (ret != 0)
		return ret;
	resp->qp_attr_mask = mask;
	resp->qp_state = a.qp_state;
	resp->cur_qp_state = a.cur_qp_state;
	resp->path_mtu = a.path_mtu;
	resp->qkey = a.qkey;
	resp->rq_psn = a.rq_psn;
	resp->sq_psn = a.sq_psn;
	resp->dest_qp_num = a.dest_qp_num;
	resp->qp_access_flags = a.qp_access_flags;
	resp->pkey_index = a.pkey_index;
	resp->max_rd_atomic = a.max_rd_atomic;
	resp->max_dest_rd_atomic = a.max_dest_rd_atomic;
	resp->min_rnr_timer = a.min_rnr_timer;
	resp->port_num = 1;
	resp->timeout = a.timeout;
	resp->retry_cnt = a.retry_cnt;
	resp->rnr_retry = a.rnr_retry;
	ah_attr_out(&a.ah_attr, &resp->ah_attr);
	return 0;
}

/* --- events --- */

static void
put_file(void *file)
{
	kv_cm_file_put(file);
}

/* Waits until the file is readable.  A receive with MSG_PEEK waits as the kernel's device does: not
 * if the descriptor is non-blocking, and it is restarted after a signal with SA_RESTART.  The
 * thread may be cancelled here. */
static int
wait_readable(struct kv_cm_file *file, int cancel)
{
	ssize_t n;
	char byte;

	pthread_cleanup_push(put_file, file);
	pthread_setcancelstate(cancel, NULL);
	n = recv(file->fd, &byte, sizeof(byte), MSG_PEEK);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_cleanup_pop(0);
	return n < 0 ? -errno : 0;
}

static int
next_event(struct kv_cm_file *file, int cancel, struct karst_rdmacm_event *event)
{
	int ret;

	do {
		ret = karst_rdmacm_get_event(file->channel, event);
		if (ret != -EAGAIN)
			return ret;
		ret = wait_readable(file, cancel);
	} while (ret == 0);
	return ret;
}

static void
conn_out(const struct karst_rdmacm_conn_param *from, struct rdma_ucm_conn_param *to)
{
	to->qp_num = from->qp_num;
	to->private_data_len = from->private_data_len;
	memcpy(to->private_data, from->private_data, from->private_data_len);
	to->srq = from->srq;
	to->responder_resources = from->responder_resources;
	to->initiator_depth = from->initiator_depth;
	to->flow_control = from->flow_control;
	to->retry_count = from->retry_count;
	to->rnr_retry_count = from->rnr_retry_count;
}

static void
ud_out(const struct karst_rdmacm_event *from, struct rdma_ucm_ud_param *to)
{
	to->qp_num = from->ud.qp_num;
	to->qkey = from->ud.qkey;
	ah_attr_out(&from->ud.ah_attr, &to->ah_attr);
	to->private_data_len = from->conn.private_data_len;
	memcpy(to->private_data, from->conn.private_data, from->conn.private_data_len);
}

/* Has the event parameters of datagrams?  A new identifier is of the same kind as its listener. */
static bool
is_ud(struct kv_cm_file *file, const struct karst_rdmacm_event *e)
{
	switch (e->event) {
	case KARST_RDMACM_MULTICAST_JOIN:
	case KARST_RDMACM_MULTICAST_ERROR:
		return true;
	case KARST_RDMACM_CONNECT_REQUEST:
		return kv_cm_id_is_ud(file, e->listen_id);
	default:
		return kv_cm_id_is_ud(file, e->id);
	}
}

int
kv_cm_get_event(struct kv_cm_file *file, int cancel, struct rdma_ucm_event_resp *resp)
{
	struct karst_rdmacm_event e;
	int ret = next_event(file, cancel, &e);
	bool ud;

	if (ret != 0)
		return ret;
	ud = is_ud(file, &e);
	if (e.event != KARST_RDMACM_MULTICAST_JOIN && e.event != KARST_RDMACM_MULTICAST_ERROR)
		kv_cm_id_told(file, e.event == KARST_RDMACM_CONNECT_REQUEST ? e.listen_id : e.id);
	/* without memory the request is rejected, but the event has been taken, and counts */
	if (e.event == KARST_RDMACM_CONNECT_REQUEST && kv_cm_id_add(file, e.id, ud) != 0)
		karst_rdmacm_destroy_id(file->engine->karst, e.id, NULL);
	resp->uid = e.uid;
	resp->id = e.id;
	resp->event = e.event;
	resp->status = (uint32_t)e.status;
	if (ud)
		ud_out(&e, &resp->param.ud);
	else
		conn_out(&e.conn, &resp->param.conn);
	resp->ece.vendor_id = e.conn.ece.vendor_id;
	resp->ece.attr_mod = e.conn.ece.options;
	return 0;
}
