/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The wire format of messages of communication management (U2, C1, C2).
 *
 * A MAD is a header of 24 bytes and a message of 232; offsets below count from the message.  Every
 * message begins with the sender's communication id, and in most the receiver's follows.  Private
 * data is always at the end of the message, so one table defines where it begins.
 *
 * Enhanced connection establishment (C3) uses fields that were reserved: the vendor is in reserved
 * bytes of REQ and REP, and the options are in the header's AttributeModifier, which is 0 in all
 * other messages.  Linux also sends options in SIDR REPs, as set by the queue pair's provider;
 * karst does not read them.
 */
#include "karst_cm_msg.h"

#include <errno.h>

#include "karst_hdr.h"

#define MAD_HDR_LEN      24
#define BASE_VERSION     1
#define CLASS_CM         7
#define CLASS_VERSION    2
#define METHOD_SEND      3
#define ATTRIBUTE_0      0x10
#define MSG_LEN          (KARST_CM_MAD_LEN - MAD_HDR_LEN)
#define PRIMARY_OFFSET   52
#define ALTERNATE_OFFSET 96

static const struct layout {
	const char *name;
	uint8_t private_max; /* at the end */
	uint8_t info;        /* offset of the additional information; 0: none */
	uint8_t info_len;    /* offset of the length of the information */
	bool to;             /* the message carries the receiver's communication id */
} layouts[KARST_CM_KINDS] = {
	[KARST_CM_REQ] = {"REQ", KARST_CM_REQ_PRIVATE},
	[KARST_CM_MRA] = {"MRA", KARST_CM_MRA_PRIVATE, .to = true},
	[KARST_CM_REJ] = {"REJ", KARST_CM_REJ_PRIVATE, 12, 9, .to = true},
	[KARST_CM_REP] = {"REP", KARST_CM_REP_PRIVATE, .to = true},
	[KARST_CM_RTU] = {"RTU", KARST_CM_RTU_PRIVATE, .to = true},
	[KARST_CM_DREQ] = {"DREQ", KARST_CM_DREQ_PRIVATE, .to = true},
	[KARST_CM_DREP] = {"DREP", KARST_CM_DREP_PRIVATE, .to = true},
	[KARST_CM_SIDR_REQ] = {"SIDR_REQ", KARST_CM_SIDR_REQ_PRIVATE},
	[KARST_CM_SIDR_REP] = {"SIDR_REP", KARST_CM_SIDR_REP_PRIVATE, 24, 5},
	[KARST_CM_LAP] = {"LAP", KARST_CM_LAP_PRIVATE, .to = true},
	[KARST_CM_APR] = {"APR", KARST_CM_APR_PRIVATE, 12, 8, .to = true},
};

unsigned int
karst_cm_private_max(enum karst_cm_kind kind)
{
	return kind < KARST_CM_KINDS ? layouts[kind].private_max : 0;
}

const char *
karst_cm_kind_name(enum karst_cm_kind kind)
{
	return kind < KARST_CM_KINDS ? layouts[kind].name : NULL;
}

static uint32_t
get_be24(const uint8_t *p)
{
	return (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
}

static void
put_be24(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 16);
	p[1] = (uint8_t)(v >> 8);
	p[2] = (uint8_t)v;
}

/* --- REQ --- */

static void
get_path(const uint8_t *p, struct karst_cm_wire_path *path)
{
	path->local_lid = karst_get_be16(p);
	path->remote_lid = karst_get_be16(p + 2);
	memcpy(path->local_gid, p + 4, 16);
	memcpy(path->remote_gid, p + 20, 16);
	path->flow_label = karst_get_be32(p + 36) >> 12;
	path->rate = p[39] & 0x3f;
	path->tclass = p[40];
	path->hop_limit = p[41];
	path->sl = p[42] >> 4;
	path->subnet_local = (p[42] & 8) != 0;
	path->ack_timeout = p[43] >> 3;
}

static void
put_path(uint8_t *p, const struct karst_cm_wire_path *path)
{
	karst_put_be16(p, path->local_lid);
	karst_put_be16(p + 2, path->remote_lid);
	memcpy(p + 4, path->local_gid, 16);
	memcpy(p + 20, path->remote_gid, 16);
	karst_put_be32(p + 36, path->flow_label << 12 | (path->rate & 0x3fu));
	p[40] = path->tclass;
	p[41] = path->hop_limit;
	p[42] = (uint8_t)(path->sl << 4 | (path->subnet_local ? 8 : 0));
	p[43] = (uint8_t)(path->ack_timeout << 3);
}

static void
get_req(const uint8_t *p, struct karst_cm_req *req)
{
	req->ece.vendor = get_be24(p + 5);
	req->service_id = karst_get_be64(p + 8);
	req->guid = karst_get_be64(p + 16);
	req->qkey = karst_get_be32(p + 28);
	req->qpn = get_be24(p + 32);
	req->responder_resources = p[35];
	req->eecn = get_be24(p + 36);
	req->initiator_depth = p[39];
	req->remote_eecn = get_be24(p + 40);
	req->remote_response_timeout = p[43] >> 3;
	req->transport = p[43] >> 1 & 3;
	req->flow_control = (p[43] & 1) != 0;
	req->psn = get_be24(p + 44);
	req->local_response_timeout = p[47] >> 3;
	req->retry_count = p[47] & 7;
	req->pkey = karst_get_be16(p + 48);
	req->mtu = p[50] >> 4;
	req->rdc_exists = (p[50] & 8) != 0;
	req->rnr_retry_count = p[50] & 7;
	req->max_retries = p[51] >> 4;
	req->srq = (p[51] & 8) != 0;
	req->extended_transport = p[51] & 7;
	get_path(p + PRIMARY_OFFSET, &req->primary);
	get_path(p + ALTERNATE_OFFSET, &req->alternate);
}

static void
put_req(uint8_t *p, const struct karst_cm_req *req)
{
	put_be24(p + 5, req->ece.vendor);
	karst_put_be64(p + 8, req->service_id);
	karst_put_be64(p + 16, req->guid);
	karst_put_be32(p + 28, req->qkey);
	put_be24(p + 32, req->qpn);
	p[35] = req->responder_resources;
	put_be24(p + 36, req->eecn);
	p[39] = req->initiator_depth;
	put_be24(p + 40, req->remote_eecn);
	p[43] = (uint8_t)(req->remote_response_timeout << 3 | (req->transport & 3) << 1 |
		req->flow_control);
	put_be24(p + 44, req->psn);
	p[47] = (uint8_t)(req->local_response_timeout << 3 | (req->retry_count & 7));
	karst_put_be16(p + 48, req->pkey);
	p[50] = (uint8_t)(req->mtu << 4 | req->rdc_exists << 3 | (req->rnr_retry_count & 7));
	p[51] = (uint8_t)(req->max_retries << 4 | req->srq << 3 | (req->extended_transport & 7));
	put_path(p + PRIMARY_OFFSET, &req->primary);
	put_path(p + ALTERNATE_OFFSET, &req->alternate);
}

/* --- REP --- */

static void
get_rep(const uint8_t *p, struct karst_cm_rep *rep)
{
	rep->qkey = karst_get_be32(p + 8);
	rep->qpn = get_be24(p + 12);
	rep->eecn = get_be24(p + 16);
	rep->psn = get_be24(p + 20);
	rep->responder_resources = p[24];
	rep->initiator_depth = p[25];
	rep->target_ack_delay = p[26] >> 3;
	rep->failover = p[26] >> 1 & 3;
	rep->flow_control = (p[26] & 1) != 0;
	rep->rnr_retry_count = p[27] >> 5;
	rep->srq = (p[27] & 0x10) != 0;
	rep->guid = karst_get_be64(p + 28);
	/* one byte behind each of three numbers */
	rep->ece.vendor = (uint32_t)p[15] << 16 | (uint32_t)p[19] << 8 | p[23];
}

static void
put_rep(uint8_t *p, const struct karst_cm_rep *rep)
{
	karst_put_be32(p + 8, rep->qkey);
	put_be24(p + 12, rep->qpn);
	put_be24(p + 16, rep->eecn);
	put_be24(p + 20, rep->psn);
	p[24] = rep->responder_resources;
	p[25] = rep->initiator_depth;
	p[26] = (uint8_t)(rep->target_ack_delay << 3 | (rep->failover & 3) << 1 |
		rep->flow_control);
	p[27] = (uint8_t)(rep->rnr_retry_count << 5 | rep->srq << 4);
	karst_put_be64(p + 28, rep->guid);
	p[15] = (uint8_t)(rep->ece.vendor >> 16);
	p[19] = (uint8_t)(rep->ece.vendor >> 8);
	p[23] = (uint8_t)rep->ece.vendor;
}

/* --- LAP: its path has the fields of a REQ's path in another order --- */

static void
get_lap(const uint8_t *p, struct karst_cm_lap *lap)
{
	struct karst_cm_wire_path *path = &lap->alternate;

	lap->qpn = get_be24(p + 12);
	lap->remote_response_timeout = p[15] >> 3;
	path->local_lid = karst_get_be16(p + 20);
	path->remote_lid = karst_get_be16(p + 22);
	memcpy(path->local_gid, p + 24, 16);
	memcpy(path->remote_gid, p + 40, 16);
	path->flow_label = karst_get_be32(p + 56) >> 12;
	path->tclass = p[59];
	path->hop_limit = p[60];
	path->rate = p[61] & 0x3f;
	path->sl = p[62] >> 4;
	path->subnet_local = (p[62] & 8) != 0;
	path->ack_timeout = p[63] >> 3;
}

static void
put_lap(uint8_t *p, const struct karst_cm_lap *lap)
{
	const struct karst_cm_wire_path *path = &lap->alternate;

	put_be24(p + 12, lap->qpn);
	p[15] = (uint8_t)(lap->remote_response_timeout << 3);
	karst_put_be16(p + 20, path->local_lid);
	karst_put_be16(p + 22, path->remote_lid);
	memcpy(p + 24, path->local_gid, 16);
	memcpy(p + 40, path->remote_gid, 16);
	karst_put_be32(p + 56, path->flow_label << 12);
	p[59] = path->tclass;
	p[60] = path->hop_limit;
	p[61] = path->rate & 0x3f;
	p[62] = (uint8_t)(path->sl << 4 | (path->subnet_local ? 8 : 0));
	p[63] = (uint8_t)(path->ack_timeout << 3);
}

/* --- all messages --- */

/* Messages whose AttributeModifier may be different from 0 (C3). */
static bool
has_modifier(uint16_t attribute)
{
	return attribute == ATTRIBUTE_0 + KARST_CM_REQ || attribute == ATTRIBUTE_0 + KARST_CM_REP ||
		attribute == ATTRIBUTE_0 + KARST_CM_SIDR_REP;
}

static struct karst_cm_ece *
ece_of(struct karst_cm_msg *m)
{
	switch (m->kind) {
	case KARST_CM_REQ:
		return &m->req.ece;
	case KARST_CM_REP:
		return &m->rep.ece;
	default:
		return NULL;
	}
}

static uint32_t
modifier_of(const struct karst_cm_msg *m)
{
	switch (m->kind) {
	case KARST_CM_REQ:
		return m->req.ece.options;
	case KARST_CM_REP:
		return m->rep.ece.options;
	default:
		return 0;
	}
}

static enum karst_cm_parse
mad_check_header(const uint8_t *mad, size_t len)
{
	uint16_t attribute;

	if (len != KARST_CM_MAD_LEN)
		return KARST_CM_PARSE_LENGTH;
	if (mad[0] != BASE_VERSION || mad[1] != CLASS_CM)
		return KARST_CM_PARSE_CLASS;
	if (mad[2] != CLASS_VERSION)
		return KARST_CM_PARSE_VERSION;
	attribute = karst_get_be16(mad + 16);
	if (mad[3] != METHOD_SEND || karst_get_be16(mad + 4) != 0 ||
		(karst_get_be32(mad + 20) != 0 && !has_modifier(attribute)))
		return KARST_CM_PARSE_METHOD;
	if (attribute < ATTRIBUTE_0 || attribute >= ATTRIBUTE_0 + KARST_CM_KINDS)
		return KARST_CM_PARSE_ATTRIBUTE;
	return KARST_CM_PARSE_OK;
}

/* Parses the fixed part of every message; REQ, REP and LAP have functions of their own. */
static void
get_fixed(const uint8_t *p, struct karst_cm_msg *m)
{
	switch (m->kind) {
	case KARST_CM_REQ:
		get_req(p, &m->req);
		break;
	case KARST_CM_REP:
		get_rep(p, &m->rep);
		break;
	case KARST_CM_LAP:
		get_lap(p, &m->lap);
		break;
	case KARST_CM_MRA:
		m->mra.message = p[8] >> 6;
		m->mra.service_timeout = p[9] >> 3;
		break;
	case KARST_CM_REJ:
		m->rej.message = p[8] >> 6;
		m->rej.reason = karst_get_be16(p + 10);
		break;
	case KARST_CM_DREQ:
		m->dreq.qpn = get_be24(p + 8);
		break;
	case KARST_CM_SIDR_REQ:
		m->sidr_req.pkey = karst_get_be16(p + 4);
		m->sidr_req.service_id = karst_get_be64(p + 8);
		break;
	case KARST_CM_SIDR_REP:
		m->sidr_rep.status = p[4];
		m->sidr_rep.qpn = get_be24(p + 8);
		m->sidr_rep.service_id = karst_get_be64(p + 12);
		m->sidr_rep.qkey = karst_get_be32(p + 20);
		break;
	case KARST_CM_APR:
		m->apr.status = p[9];
		break;
	default:
		break; /* RTU and DREP have only ids */
	}
}

static void
put_fixed(uint8_t *p, const struct karst_cm_msg *m)
{
	switch (m->kind) {
	case KARST_CM_REQ:
		put_req(p, &m->req);
		break;
	case KARST_CM_REP:
		put_rep(p, &m->rep);
		break;
	case KARST_CM_LAP:
		put_lap(p, &m->lap);
		break;
	case KARST_CM_MRA:
		p[8] = (uint8_t)(m->mra.message << 6);
		p[9] = (uint8_t)(m->mra.service_timeout << 3);
		break;
	case KARST_CM_REJ:
		p[8] = (uint8_t)(m->rej.message << 6);
		karst_put_be16(p + 10, m->rej.reason);
		break;
	case KARST_CM_DREQ:
		put_be24(p + 8, m->dreq.qpn);
		break;
	case KARST_CM_SIDR_REQ:
		karst_put_be16(p + 4, m->sidr_req.pkey);
		karst_put_be64(p + 8, m->sidr_req.service_id);
		break;
	case KARST_CM_SIDR_REP:
		p[4] = m->sidr_rep.status;
		put_be24(p + 8, m->sidr_rep.qpn);
		karst_put_be64(p + 12, m->sidr_rep.service_id);
		karst_put_be32(p + 20, m->sidr_rep.qkey);
		break;
	case KARST_CM_APR:
		p[9] = m->apr.status;
		break;
	default:
		break;
	}
}

/* In a REJ the length of the information shares its byte with a reserved bit. */
static unsigned int
info_shift(enum karst_cm_kind kind)
{
	return kind == KARST_CM_REJ ? 1 : 0;
}

enum karst_cm_kind
karst_cm_mad_kind(const uint8_t *mad)
{
	return karst_get_be16(mad + 16) - ATTRIBUTE_0;
}

enum karst_cm_parse
karst_cm_msg_parse(const void *mad, size_t len, struct karst_cm_msg *out)
{
	enum karst_cm_parse verdict = mad_check_header(mad, len);
	const uint8_t *p = (const uint8_t *)mad + MAD_HDR_LEN;
	struct karst_cm_msg m = {0};
	const struct layout *l;

	if (verdict != KARST_CM_PARSE_OK)
		return verdict;
	m.kind = karst_cm_mad_kind(mad);
	m.tid = karst_get_be64((const uint8_t *)mad + 8);
	l = &layouts[m.kind];
	m.local_id = karst_get_be32(p);
	m.remote_id = l->to ? karst_get_be32(p + 4) : 0;
	get_fixed(p, &m);
	if (ece_of(&m) != NULL)
		ece_of(&m)->options = karst_get_be32((const uint8_t *)mad + 20);
	if (l->info != 0) {
		m.info = p + l->info;
		m.info_len = p[l->info_len] >> info_shift(m.kind);
		if (m.info_len > KARST_CM_REJ_INFO)
			return KARST_CM_PARSE_FIELD;
	}
	m.private_data_len = l->private_max;
	m.private_data = p + MSG_LEN - l->private_max;
	*out = m;
	return KARST_CM_PARSE_OK;
}

int
karst_cm_msg_build(const struct karst_cm_msg *m, uint8_t mad[KARST_CM_MAD_LEN])
{
	const struct layout *l = &layouts[m->kind];
	uint8_t *p = mad + MAD_HDR_LEN;

	if (m->private_data_len > l->private_max ||
		m->info_len > (l->info != 0 ? KARST_CM_REJ_INFO : 0))
		return -EMSGSIZE;
	memset(mad, 0, KARST_CM_MAD_LEN);
	mad[0] = BASE_VERSION;
	mad[1] = CLASS_CM;
	mad[2] = CLASS_VERSION;
	mad[3] = METHOD_SEND;
	karst_put_be64(mad + 8, m->tid);
	karst_put_be16(mad + 16, (uint16_t)(ATTRIBUTE_0 + m->kind));
	karst_put_be32(mad + 20, modifier_of(m));
	karst_put_be32(p, m->local_id);
	if (l->to)
		karst_put_be32(p + 4, m->remote_id);
	put_fixed(p, m);
	if (m->info_len != 0) {
		p[l->info_len] = (uint8_t)(m->info_len << info_shift(m->kind));
		memcpy(p + l->info, m->info, m->info_len);
	}
	if (m->private_data_len != 0)
		memcpy(p + MSG_LEN - l->private_max, m->private_data, m->private_data_len);
	return 0;
}
