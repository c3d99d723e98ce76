/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Properties of the device for this program: limits, ports, GIDs; ring memory; protection domains.
 */
#include "session_priv.h"

#include <net/if.h>
#include <stdio.h>

#define PORT_DOWN         1u /* enum ibv_port_state */
#define PORT_STATE_ACTIVE 4u
#define GID_ROCE2         2u

/* Counts removed ports, too: programs read the number once, and the ports may return. */
uint32_t
eng_session_nports(const struct karst_engine *e)
{
	return e->nports;
}

/* A port that was removed is reported as down and without addresses. */
static int
find_port(const struct karst_session *s, struct session_call *c, uint32_t number,
	struct karst_engine_port_info *info)
{
	if (number < 1 || number > eng_session_nports(s->e))
		return reason(c, -EINVAL, "port %u: no such port; ports are 1 to %u", number,
			eng_session_nports(s->e));
	if (karst_engine_port_info(s->e, (uint8_t)(number - 1), info) != 0)
		*info = (struct karst_engine_port_info){.path_mtu = 1};
	return 0;
}

/* The EUI-64 of the first port's MAC address. */
static uint64_t
node_guid(const struct karst_engine *e)
{
	struct karst_engine_port_info info;
	uint64_t guid = 0;
	uint32_t i;

	for (i = 0; i < KARST_ENGINE_MAX_PORTS; i++)
		if (karst_engine_port_info(e, (uint8_t)i, &info) == 0)
			break;
	if (i == KARST_ENGINE_MAX_PORTS)
		return 0;
	for (i = 0; i < 6; i++) {
		guid = guid << 8 | (i == 0 ? info.mac[i] ^ 2u : info.mac[i]);
		if (i == 2)
			guid = guid << 16 | 0xfffe;
	}
	return guid;
}

/* @limit, reduced to what the program's user may have. */
static uint32_t
device_most(const struct karst_session *s, enum eng_share_kind kind, uint32_t limit)
{
	return (uint32_t)karst_min_u64(limit, eng_share_most(s->share, kind));
}

int
eng_session_query_device(struct karst_session *s, struct session_call *c)
{
	struct karst_ctl_query_device_rsp *rsp = c->rsp;
	const struct karst_session_limits *l = &s->limits;

	rsp->node_guid = node_guid(s->e);
	rsp->max_mr_bytes = l->max_mr_bytes;
	rsp->nports = eng_session_nports(s->e);
	eng_session_max_queues(s, &rsp->max_qp, &rsp->max_cq, &rsp->max_srq);
	rsp->max_qp = device_most(s, ENG_SHARE_QPS, rsp->max_qp);
	rsp->max_qp_wr = rsp->max_srq_wr = eng_session_max_wr(s);
	rsp->max_sge = rsp->max_srq_sge = KARST_WQ_MAX_SGE;
	rsp->max_inline = KARST_WQ_MAX_INLINE;
	rsp->max_cqe = eng_session_max_cqe(s);
	rsp->max_mr = device_most(s, ENG_SHARE_KEYS, l->max_mrs);
	rsp->max_mw = device_most(s, ENG_SHARE_KEYS, l->max_mws);
	rsp->max_pd = device_most(s, ENG_SHARE_PDS, l->max_pds);
	rsp->max_ah = device_most(s, ENG_SHARE_AHS, l->max_ahs);
	rsp->max_qp_rd_atom = KARST_QP_MAX_RD_ATOMIC;
	rsp->max_channels = device_most(s, ENG_SHARE_DESCRIPTORS, l->max_channels);
	rsp->max_mcasts = device_most(
		s, ENG_SHARE_MCASTS, karst_min_u32(l->max_mcasts, s->e->cfg.max_mcasts));
	rsp->max_mcast_qps = karst_min_u32(
		rsp->max_mcasts, (uint32_t)eng_share_most_of(s->share, KARST_ENGINE_GROUP_QPS));
	rsp->max_xrcd = device_most(s, ENG_SHARE_XRCDS, l->max_xrcds);
	rsp->ece = s->e->cfg.ece != KARST_ENGINE_ECE_OFF;
	return 0;
}

int
eng_session_query_port(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_query_port_req *req = c->body;
	struct karst_ctl_query_port_rsp *rsp = c->rsp;
	struct karst_engine_port_info info;
	int ret = find_port(s, c, req->port, &info);

	if (ret != 0)
		return ret;
	rsp->state = info.link_up ? PORT_STATE_ACTIVE : PORT_DOWN;
	rsp->max_mtu = rsp->active_mtu = info.path_mtu;
	memcpy(rsp->mac, info.mac, sizeof(rsp->mac));
	rsp->vlan = info.vlan;
	rsp->mtu = info.mtu;
	rsp->gids = KARST_ENGINE_MAX_ADDRS; /* including those that may be added */
	rsp->mbps = info.link_mbps;
	snprintf(rsp->name, sizeof(rsp->name), "%s", info.name);
	snprintf(rsp->netdev, sizeof(rsp->netdev), "%s", info.netdev);
	return 0;
}

int
eng_session_query_gids(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_query_gids_req *req = c->body;
	struct karst_ctl_query_gids_rsp *rsp = c->rsp;
	struct karst_engine_port_info info;
	int ret = find_port(s, c, req->port, &info);
	uint32_t i, ifindex;

	if (ret != 0)
		return ret;
	ifindex = info.netdev[0] != 0 ? if_nametoindex(info.netdev) : 0;
	for (i = req->first; i < info.num_addrs && rsp->n < KARST_CTL_GIDS; i++, rsp->n++) {
		memcpy(rsp->gid[rsp->n].gid, info.addrs[i].ip, sizeof(rsp->gid[0].gid));
		rsp->gid[rsp->n].vlan = info.vlan;
		rsp->gid[rsp->n].type = GID_ROCE2;
		rsp->gid[rsp->n].valid = !karst_engine_ip_is_none(info.addrs[i].ip);
		rsp->gid[rsp->n].ifindex = ifindex;
	}
	return 0;
}

int
eng_session_get_chunk(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_get_chunk_req *req = c->body;
	struct karst_ctl_get_chunk_rsp *rsp = c->rsp;
	int fd;

	rsp->chunk = req->chunk;
	if (req->chunk == KARST_CTL_CHUNK_UNSEALED &&
		karst_engine_owner_unsealed(s->owner, &rsp->chunk) != 0)
		return reason(c, -EINVAL, "all chunks of this program's ring memory are sealed");
	if (karst_engine_owner_chunk(s->owner, rsp->chunk, &fd, &rsp->bytes) != 0)
		return reason(c, -EINVAL, "chunk %u does not exist in this program's ring memory",
			req->chunk);
	return eng_session_give_fd(c, fd);
}

int
eng_session_seal_chunk(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_seal_chunk_req *req = c->body;
	int ret = karst_engine_owner_seal(s->owner, req->chunk);
	uint32_t chunk;

	if (ret == -EINVAL)
		return reason(c, ret, "chunk %u does not exist in this program's ring memory",
			req->chunk);
	if (ret != 0)
		return reason(c, ret, "chunk %u cannot be sealed: %s", req->chunk, strerror(-ret));
	if (!s->listened_to && karst_engine_owner_unsealed(s->owner, &chunk) != 0) {
		s->listened_to = true;
		karst_engine_owner_listen(s->owner);
	}
	return 0;
}

int
eng_session_alloc_pd(struct karst_session *s, struct session_call *c)
{
	struct karst_ctl_alloc_pd_rsp *rsp = c->rsp;
	struct session_pd *pd = calloc(1, sizeof(*pd));
	int ret;

	if (pd == NULL)
		return reason(c, -ENOMEM, "protection domain: the engine has no memory");
	ret = eng_session_handle_add(c, &s->pds, pd, "protection domains", "max_pds", &pd->handle);
	if (ret != 0) {
		free(pd);
		return ret;
	}
	ret = karst_engine_pd_alloc(s->e, &pd->pd);
	if (ret != 0) {
		eng_handles_del(&s->pds, pd->handle);
		free(pd);
		return reason(c, ret, "protection domain: the engine's limit of %u is reached",
			s->e->cfg.max_pds);
	}
	rsp->pd = pd->handle;
	return 0;
}

int
eng_session_free_pd(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_free_pd_req *req = c->body;
	struct session_pd *pd = eng_session_find(c, &s->pds, req->pd, "pd");
	int ret;

	if (pd == NULL)
		return -EINVAL;
	ret = karst_engine_pd_free(s->e, pd->pd);
	if (ret != 0)
		return reason(c, ret,
			"pd %u: regions, windows, address handles, shared receive queues or queue "
			"pairs of it are left",
			req->pd);
	eng_handles_del(&s->pds, pd->handle);
	free(pd);
	return 0;
}

void
eng_session_drop_pds(struct karst_session *s)
{
	struct session_pd *pd;
	uint32_t at = 0;
	int ret;

	while ((pd = eng_handles_next(&s->pds, &at)) != NULL) {
		ret = karst_engine_pd_free(s->e, pd->pd);
		assert(ret == 0);
		(void)ret;
		eng_handles_del(&s->pds, pd->handle);
		free(pd);
	}
}
