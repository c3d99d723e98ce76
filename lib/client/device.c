/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Queries of the device, its ports and their addresses. */
#include "client_priv.h"

#include <errno.h>
#include <unistd.h>

int
karst_query_device(struct karst_context *ctx, struct karst_device_attr *attr)
{
	struct karst_client *c = cli_of(ctx);
	CLI_REQ(query_device) m = {.body.reserved = 0};
	struct karst_ctl_query_device_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	int ret = cli_call(c, KARST_CTL_QUERY_DEVICE, &m.hdr, sizeof(m), NULL, 0, &reply);

	if (ret != 0)
		return ret;
	*attr = (struct karst_device_attr){
		.node_guid = r.node_guid,
		.max_mr_size = r.max_mr_bytes,
		.page_size_cap = ~((uint64_t)sysconf(_SC_PAGESIZE) - 1),
		.nports = r.nports,
		.max_qp = r.max_qp,
		.max_qp_wr = r.max_qp_wr,
		.max_sge = r.max_sge,
		.max_inline_data = r.max_inline,
		.max_cq = r.max_cq,
		.max_cqe = r.max_cqe,
		.max_mr = r.max_mr,
		.max_mw = r.max_mw,
		.max_pd = r.max_pd,
		.max_ah = r.max_ah,
		.max_srq = r.max_srq,
		.max_srq_wr = r.max_srq_wr,
		.max_srq_sge = r.max_srq_sge,
		.max_qp_rd_atom = r.max_qp_rd_atom,
		.max_channels = r.max_channels,
		.num_comp_vectors = ctx->nlcores,
		.max_mcast_grp = r.max_mcasts,
		.max_mcast_qp_attach = r.max_mcast_qps,
		.max_total_mcast_qp_attach = r.max_mcasts,
		.max_xrcd = r.max_xrcd,
		.ece = r.ece,
	};
	memcpy(attr->engine, c->engine, sizeof(attr->engine));
	memcpy(attr->version, c->version, sizeof(attr->version));
	return 0;
}

int
karst_query_port(struct karst_context *ctx, uint32_t port, struct karst_port_attr *attr)
{
	CLI_REQ(query_port) m = {.body.port = port};
	struct karst_ctl_query_port_rsp r;
	struct cli_reply reply = {&r, sizeof(r), NULL, 0};
	int ret = cli_call(cli_of(ctx), KARST_CTL_QUERY_PORT, &m.hdr, sizeof(m), NULL, 0, &reply);

	if (ret != 0)
		return ret;
	*attr = (struct karst_port_attr){
		.state = (enum karst_port_state)r.state,
		.max_mtu = (enum karst_mtu)r.max_mtu,
		.active_mtu = (enum karst_mtu)r.active_mtu,
		.ip_mtu = r.mtu,
		.vlan = r.vlan,
		.gid_tbl_len = r.gids,
		.mbps = r.mbps,
	};
	memcpy(attr->mac, r.mac, sizeof(attr->mac));
	memcpy(attr->name, r.name, sizeof(attr->name) - 1);
	memcpy(attr->netdev, r.netdev, sizeof(attr->netdev) - 1);
	return 0;
}

/* Reads a part of a port's table, from entry @first on. */
static int
device_gids(
	struct karst_client *c, uint32_t port, uint32_t first, struct karst_ctl_query_gids_rsp *r)
{
	CLI_REQ(query_gids) m = {.body = {.port = port, .first = first}};
	struct cli_reply reply = {r, sizeof(*r), NULL, 0};
	int ret = cli_call(c, KARST_CTL_QUERY_GIDS, &m.hdr, sizeof(m), NULL, 0, &reply);

	if (ret == 0 && r->n > KARST_CTL_GIDS)
		return cli_fail(-EPROTO, "reply of the engine has %u addresses", r->n);
	return ret;
}

int
karst_query_gid(struct karst_context *ctx, uint32_t port, uint32_t index, union karst_gid *gid)
{
	struct karst_ctl_query_gids_rsp r;
	int ret = device_gids(cli_of(ctx), port, index, &r);

	if (ret != 0)
		return ret;
	if (r.n == 0 || !r.gid[0].valid)
		return cli_fail(-ENODATA, "port %u has no address at index %u", port, index);
	memcpy(gid->raw, r.gid[0].gid, sizeof(gid->raw));
	return 0;
}

static int
port_gids(struct karst_client *c, uint32_t port, struct karst_gid_entry *entries, size_t max,
	size_t *n)
{
	struct karst_ctl_query_gids_rsp r;
	uint32_t first, i;
	int ret;

	for (first = 0;; first += r.n) {
		ret = device_gids(c, port, first, &r);
		if (ret != 0 || r.n == 0)
			return ret;
		for (i = 0; i < r.n && *n < max; i++) {
			if (!r.gid[i].valid)
				continue;
			entries[*n] = (struct karst_gid_entry){
				.gid_index = first + i,
				.port_num = port,
				.gid_type = r.gid[i].type,
				.ndev_ifindex = r.gid[i].ifindex,
				.vlan = r.gid[i].vlan,
			};
			memcpy(entries[*n].gid.raw, r.gid[i].gid, sizeof(entries[*n].gid.raw));
			++*n;
		}
		if (*n == max)
			return 0;
	}
}

int
karst_query_gid_table(struct karst_context *ctx, struct karst_gid_entry *entries, size_t max)
{
	uint32_t port;
	size_t n = 0;
	int ret;

	for (port = 1; port <= ctx->nports; port++) {
		ret = port_gids(cli_of(ctx), port, entries, max, &n);
		if (ret != 0)
			return ret;
	}
	return (int)n;
}

int
karst_query_clock(struct karst_context *ctx, uint64_t *ns)
{
	if (cli_forked(cli_of(ctx)))
		return cli_fail_forked();
	*ns = cli_now_ns();
	return 0;
}

int
karst_query_lcore(struct karst_context *ctx, uint32_t lcore, uint32_t *cpu)
{
	const struct karst_client *c = cli_of(ctx);

	if (cli_forked(c))
		return cli_fail_forked();
	if (lcore >= ctx->nlcores)
		return cli_fail(-EINVAL, "lcore %u: must be below %u", lcore, ctx->nlcores);
	if (c->cpu[lcore] < 0)
		return cli_fail_const(-ENODATA, "the lcore is not bound to one CPU");
	*cpu = (uint32_t)c->cpu[lcore];
	return 0;
}
