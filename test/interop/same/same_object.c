/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Objects: calls that are refused, attributes, and the order of destruction. */
#include "same.h"

#include <fcntl.h>

static void
order(void)
{
	struct ibv_comp_channel *channel;
	struct ibv_cq *with;
	struct ibv_ah_attr way;
	struct ibv_ah *ah;
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 16, .max_sge = 1}};
	struct ibv_srq *srq;
	struct ibv_mw *mw;
	struct ibv_pd *second;
	struct ibv_qp_init_attr init;

	bed_open();
	MUST((channel = ibv_create_comp_channel(ctx)) != NULL);
	MUST((with = ibv_create_cq(ctx, 16, NULL, channel, 0)) != NULL);
	say_rc("a channel with a queue", ibv_destroy_comp_channel(channel));
	say_rc("the queue", ibv_destroy_cq(with));
	say_rc("the channel", ibv_destroy_comp_channel(channel));
	qp[0] = make_qp(IBV_QPT_RC);
	say_rc("a CQ with a QP", ibv_destroy_cq(cq));
	MUST((second = ibv_alloc_pd(ctx)) != NULL);
	say_rc("an empty PD", ibv_dealloc_pd(second));
	MUST((second = ibv_alloc_pd(ctx)) != NULL);
	init = qp_init(IBV_QPT_UD);
	MUST((qp[1] = ibv_create_qp(second, &init)) != NULL);
	say_rc("a PD with a QP", ibv_dealloc_pd(second));
	say_rc("that QP", ibv_destroy_qp(qp[1]));
	way = full_attr(IBV_QPS_RTR, 0).ah_attr;
	MUST((ah = ibv_create_ah(second, &way)) != NULL);
	say_rc("a PD with an AH", ibv_dealloc_pd(second));
	say_rc("that AH", ibv_destroy_ah(ah));
	MUST((srq = ibv_create_srq(second, &srq_init)) != NULL);
	say_rc("a PD with an SRQ", ibv_dealloc_pd(second));
	init = qp_init(IBV_QPT_RC);
	init.srq = srq;
	MUST((qp[1] = ibv_create_qp(second, &init)) != NULL);
	say_rc("an SRQ with a QP", ibv_destroy_srq(srq));
	say_rc("that QP", ibv_destroy_qp(qp[1]));
	say_rc("that SRQ", ibv_destroy_srq(srq));
	MUST((mw = ibv_alloc_mw(second, IBV_MW_TYPE_1)) != NULL);
	say_rc("a PD with an MW", ibv_dealloc_pd(second));
	say_rc("that MW", ibv_dealloc_mw(mw));
	say_rc("that PD", ibv_dealloc_pd(second));
	say_rc("a PD with an MR", ibv_dealloc_pd(pd));
	say_rc("that QP", ibv_destroy_qp(qp[0]));
	say_rc("the CQ", ibv_destroy_cq(cq));
	say_rc("the MR", ibv_dereg_mr(mr));
	say_rc("the PD", ibv_dealloc_pd(pd));
	say_rc("the device", ibv_close_device(ctx));
}

static void
try_qp(const char *what, struct ibv_qp_init_attr *init)
{
	struct ibv_qp *made = ibv_create_qp(pd, init);

	say_ptr(what, made);
	if (made != NULL)
		ibv_destroy_qp(made);
}

#define TRY_QP(field, value)                              \
	do {                                              \
		init = qp_init(IBV_QPT_RC);               \
		init.field = (value);                     \
		try_qp("with " #field " " #value, &init); \
	} while (0)

static void
create_qp(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_device_attr dev;

	bed_open();
	MUST(ibv_query_device(ctx, &dev) == 0);
	TRY_QP(cap.max_send_wr, 0);
	TRY_QP(cap.max_recv_wr, 0);
	TRY_QP(cap.max_send_sge, 0);
	TRY_QP(cap.max_recv_sge, 0);
	TRY_QP(cap.max_inline_data, 0);
	TRY_QP(cap.max_send_wr, (uint32_t)dev.max_qp_wr + 1);
	TRY_QP(cap.max_recv_wr, (uint32_t)dev.max_qp_wr + 1);
	TRY_QP(cap.max_send_sge, (uint32_t)dev.max_sge + 1);
	TRY_QP(cap.max_recv_sge, (uint32_t)dev.max_sge + 1);
	TRY_QP(cap.max_send_sge, (uint32_t)dev.max_sge);
	TRY_QP(cap.max_inline_data, 1u << 20);
	TRY_QP(cap.max_send_wr, UINT32_MAX);
	TRY_QP(qp_type, 0);
	TRY_QP(qp_type, 77);
	init = qp_init(IBV_QPT_RC);
	MUST((qp[0] = ibv_create_qp(pd, &init)) != NULL);
	say("caps", "%d %d %d %d %d", init.cap.max_send_wr >= 16, init.cap.max_recv_wr >= 16,
		init.cap.max_send_sge >= 2, init.cap.max_recv_sge >= 2,
		init.cap.max_inline_data >= 32);
	say("its fields", "%d %d %d %d %s %d", qp[0]->qp_type, qp[0]->pd == pd,
		qp[0]->send_cq == cq, qp[0]->recv_cq == cq, state_name(qp[0]->state),
		qp[0]->srq == NULL);
	say("its number", "%d", qp[0]->qp_num > 1 && qp[0]->qp_num < 0xffffff);
}

static void
try_cq(const char *what, int cqe, struct ibv_comp_channel *channel, int vector)
{
	struct ibv_cq *made = ibv_create_cq(ctx, cqe, NULL, channel, vector);

	say_ptr(what, made);
	if (made == NULL)
		return;
	say(what, "cqe %d", made->cqe >= cqe);
	ibv_destroy_cq(made);
}

static void
create_cq(void)
{
	struct ibv_device_attr dev;

	bed_open();
	MUST(ibv_query_device(ctx, &dev) == 0);
	try_cq("1 entry", 1, NULL, 0);
	try_cq("no entries", 0, NULL, 0);
	try_cq("-1 entries", -1, NULL, 0);
	try_cq("too many", dev.max_cqe + 1, NULL, 0);
	try_cq("vector -1", 16, NULL, -1);
	try_cq("a vector too many", 16, NULL, ctx->num_comp_vectors);
}

static void
device(void)
{
	struct ibv_device_attr d;
	struct ibv_port_attr p;
	union ibv_gid gid, zero = {.raw = {0}};
	struct ibv_gid_entry entry;
	__be16 pkey = 0;
	int i;

	bed_open();
	MUST(ibv_query_device(ctx, &d) == 0);
	say("limits", "%d %d %d %d %d %d %d", d.max_qp > 0, d.max_qp_wr > 0, d.max_sge > 1,
		d.max_cq > 0, d.max_cqe > 0, d.max_mr > 0, d.max_pd > 0);
	say("more limits", "%d %d %d %d", d.max_qp_rd_atom > 0, d.max_qp_init_rd_atom > 0,
		d.max_srq > 0, d.max_ah > 0);
	say("ports", "%d", d.phys_port_cnt);
	say("atomics", "%d", d.atomic_cap != IBV_ATOMIC_NONE);
	say("sizes of pages", "%d", (d.page_size_cap & 4096) != 0);
	say("node", "%d %d", ctx->device->node_type, ctx->device->transport_type);
	MUST(ibv_query_port(ctx, 1, &p) == 0);
	say("port", "state %d link layer %d lid %d lmc %d sm_lid %d pkeys %d phys %d", p.state,
		p.link_layer, p.lid, p.lmc, p.sm_lid, p.pkey_tbl_len, p.phys_state);
	say("port", "mtu %d gids %d message %d", p.active_mtu <= p.max_mtu, p.gid_tbl_len > 0,
		p.max_msg_sz >= 1u << 20);
	say("port", "flags %#x", p.flags);
	say_rc("port 0", ibv_query_port(ctx, 0, &p));
	say_rc("port 2", ibv_query_port(ctx, 2, &p));
	say("its GID", "%d",
		ibv_query_gid(ctx, 1, own_index, &gid) == 0 && memcmp(&gid, &own_gid, 16) == 0);
	MUST(ibv_query_port(ctx, 1, &p) == 0);
	say("the last GID", "%d %d", ibv_query_gid(ctx, 1, p.gid_tbl_len - 1, &gid) == 0,
		memcmp(&gid, &zero, 16) == 0);
	say("a GID too many", "%d", ibv_query_gid(ctx, 1, p.gid_tbl_len, &gid) == 0);
	say("a GID of port 2", "%d", ibv_query_gid(ctx, 2, 0, &gid) == 0);
	say_rc("entry of the last GID",
		ibv_query_gid_ex(ctx, 1, (uint32_t)p.gid_tbl_len - 1, &entry, 0));
	say_rc("entry of a GID too many",
		ibv_query_gid_ex(ctx, 1, (uint32_t)p.gid_tbl_len, &entry, 0));
	say_rc("entry of port 2", ibv_query_gid_ex(ctx, 2, 0, &entry, 0));
	say_rc("entry with flags", ibv_query_gid_ex(ctx, 1, (uint32_t)own_index, &entry, 1));
	say_rc("entry of its GID", ibv_query_gid_ex(ctx, 1, (uint32_t)own_index, &entry, 0));
	say("entry", "index %d port %u type %u", entry.gid_index == (uint32_t)own_index,
		entry.port_num, entry.gid_type);
	i = ibv_query_pkey(ctx, 1, 0, &pkey);
	say("P_Key", "%d %#x", i, be16toh(pkey));
	say("P_Key 1", "%d", ibv_query_pkey(ctx, 1, 1, &pkey) != 0);
	say("index of a P_Key", "%d", ibv_get_pkey_index(ctx, 1, htobe16(0xffff)));
	say("index of another", "%d", ibv_get_pkey_index(ctx, 1, htobe16(0x1234)));
	say("events of none", "%d", fcntl(ctx->async_fd, F_GETFL) >= 0);
}

static void
ah(void)
{
	struct ibv_ah_attr way;

	bed_open();
#define TRY_AH(field, value)                                                 \
	do {                                                                 \
		way = full_attr(IBV_QPS_RTR, 0).ah_attr;                     \
		way.field = (value);                                         \
		say_ptr("with " #field " " #value, ibv_create_ah(pd, &way)); \
	} while (0)
	TRY_AH(is_global, 1);
	TRY_AH(is_global, 0);
	TRY_AH(port_num, 0);
	TRY_AH(port_num, 2);
	TRY_AH(grh.sgid_index, 255);
	TRY_AH(grh.sgid_index, 9);
	TRY_AH(grh.hop_limit, 0);
	TRY_AH(dlid, 5);
	TRY_AH(sl, 7);
	TRY_AH(sl, 16);
}

const struct same_case object_cases[] = {
	{"order of ends", order},
	{"create QP", create_qp},
	{"create CQ", create_cq},
	{"device", device},
	{"AH", ah},
	{0},
};
