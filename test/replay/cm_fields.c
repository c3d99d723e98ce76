/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "cm_fields.h"

struct pair {
	struct rp_report *r;
	uint32_t number;
	const char *kind;
};

static void
field(const struct pair *p, const char *name, uint64_t ours, uint64_t theirs)
{
	if (ours != theirs)
		rp_differs(p->r, p->number, "%s: %s %llx instead of %llx", p->kind, name,
			(unsigned long long)ours, (unsigned long long)theirs);
}

static void
bytes(const struct pair *p, const char *name, const uint8_t *ours, const uint8_t *theirs, size_t n)
{
	if (memcmp(ours, theirs, n) != 0)
		rp_differs(p->r, p->number, "%s: other %s", p->kind, name);
}

#define FIELD(member) field(p, #member, a->member, b->member)

static void
compare_path(const struct pair *p, const struct karst_cm_wire_path *a,
	const struct karst_cm_wire_path *b)
{
	bytes(p, "local_gid", a->local_gid, b->local_gid, 16);
	bytes(p, "remote_gid", a->remote_gid, b->remote_gid, 16);
	FIELD(local_lid);
	FIELD(remote_lid);
	FIELD(flow_label);
	FIELD(rate);
	FIELD(tclass);
	FIELD(hop_limit);
	FIELD(sl);
	FIELD(ack_timeout);
	FIELD(subnet_local);
}

static void
compare_req(const struct pair *p, const struct karst_cm_req *a, const struct karst_cm_req *b)
{
	FIELD(service_id);
	FIELD(guid);
	FIELD(qkey);
	FIELD(qpn);
	FIELD(eecn);
	FIELD(remote_eecn);
	FIELD(psn);
	FIELD(pkey);
	FIELD(responder_resources);
	FIELD(initiator_depth);
	FIELD(remote_response_timeout);
	FIELD(local_response_timeout);
	FIELD(transport);
	FIELD(extended_transport);
	FIELD(retry_count);
	FIELD(rnr_retry_count);
	FIELD(mtu);
	FIELD(max_retries);
	FIELD(flow_control);
	FIELD(rdc_exists);
	FIELD(srq);
	compare_path(p, &a->primary, &b->primary);
	compare_path(p, &a->alternate, &b->alternate);
}

static void
compare_rep(const struct pair *p, const struct karst_cm_rep *a, const struct karst_cm_rep *b)
{
	FIELD(guid);
	FIELD(qkey);
	FIELD(qpn);
	FIELD(eecn);
	FIELD(psn);
	FIELD(responder_resources);
	FIELD(initiator_depth);
	FIELD(target_ack_delay);
	FIELD(failover);
	FIELD(rnr_retry_count);
	FIELD(flow_control);
	FIELD(srq);
}

static void
compare_other(const struct pair *p, const struct karst_cm_msg *a, const struct karst_cm_msg *b)
{
	switch (a->kind) {
	case KARST_CM_REQ:
		compare_req(p, &a->req, &b->req);
		break;
	case KARST_CM_REP:
		compare_rep(p, &a->rep, &b->rep);
		break;
	case KARST_CM_REJ:
		FIELD(rej.message);
		FIELD(rej.reason);
		break;
	case KARST_CM_DREQ:
		FIELD(dreq.qpn);
		break;
	case KARST_CM_SIDR_REQ:
		FIELD(sidr_req.service_id);
		FIELD(sidr_req.pkey);
		break;
	case KARST_CM_SIDR_REP:
		FIELD(sidr_rep.service_id);
		FIELD(sidr_rep.qpn);
		FIELD(sidr_rep.qkey);
		FIELD(sidr_rep.status);
		break;
	default:
		break;
	}
}

void
rp_compare_cm(struct rp_report *r, uint32_t number, const struct karst_cm_msg *a,
	const struct karst_cm_msg *b)
{
	const struct pair pair = {r, number, karst_cm_kind_name(b->kind)}, *p = &pair;

	r->compared++;
	if (a->kind != b->kind) {
		rp_differs(r, number, "%s instead of %s", karst_cm_kind_name(a->kind),
			karst_cm_kind_name(b->kind));
		return;
	}
	FIELD(tid);
	FIELD(local_id);
	FIELD(remote_id);
	FIELD(info_len);
	compare_other(p, a, b);
	FIELD(private_data_len);
	if (a->private_data_len == b->private_data_len)
		bytes(p, "private data", a->private_data, b->private_data, a->private_data_len);
}
#undef FIELD
