/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Format of LLC messages (S3): a header of 4 bytes (type, length, flags) and the fields of the
 * type.  Messages of version 2 have 0x20 in the type, and a length of 16 bits in the byte order of
 * the sender's processor, as the number of keys in ADD_LINK.  Both orders are accepted, because
 * only one fits the length of the received message.  Messages of version 1 are always 44 bytes.
 */
#include "karst_smc_msg.h"

#include <errno.h>

#include "smc_wire.h"

#define HDR_LEN        4
#define ADD_EXT        44 /* continuation of ADD_LINK in version 2 */
#define ADD_EXT_LEN    28
#define ADD_RKEY_LEN   16
#define ADD_CONT_RKEYS 2 /* in one ADD_LINK_CONT */
#define RTOKEN_LEN     13
#define DELETE_RKEYS   8 /* offset of the keys ... */
#define DELETE_MAX_V1  8 /* ... and their maximum number */
#define REQ_ADD_GIDS   28
#define DIRECT         0x80u
static_assert(ADD_EXT + ADD_EXT_LEN + KARST_SMC_RKEYS_MAX * ADD_RKEY_LEN == KARST_SMC_LLC_BUILD_MAX,
	"the longest message");

const char *
karst_smc_llc_name(enum karst_smc_llc_type type)
{
	static const char *const names[] = {[KARST_SMC_LLC_CONFIRM_LINK] = "CONFIRM_LINK",
		[KARST_SMC_LLC_ADD_LINK] = "ADD_LINK",
		[KARST_SMC_LLC_ADD_LINK_CONT] = "ADD_LINK_CONT",
		[KARST_SMC_LLC_DELETE_LINK] = "DELETE_LINK",
		[KARST_SMC_LLC_REQ_ADD_LINK] = "REQ_ADD_LINK",
		[KARST_SMC_LLC_CONFIRM_RKEY] = "CONFIRM_RKEY",
		[KARST_SMC_LLC_TEST_LINK] = "TEST_LINK",
		[KARST_SMC_LLC_CONFIRM_RKEY_CONT] = "CONFIRM_RKEY_CONT",
		[KARST_SMC_LLC_DELETE_RKEY] = "DELETE_RKEY"};

	return type < KARST_DIM(names) ? names[type] : NULL;
}

static uint16_t
get_le16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static void
put_le16(uint8_t *p, size_t v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}

static void
get_rtoken(const uint8_t *p, struct karst_smc_rtoken *t)
{
	t->link = p[0];
	t->rkey = karst_get_be32(p + 1);
	t->vaddr = karst_get_be64(p + 5);
}

static void
put_rtoken(uint8_t *p, uint8_t first, const struct karst_smc_rtoken *t)
{
	p[0] = first;
	karst_put_be32(p + 1, t->rkey);
	karst_put_be64(p + 5, t->vaddr);
}

static void
get_add_rkeys(const uint8_t *p, struct karst_smc_llc *msg, size_t n)
{
	for (size_t i = 0; i < n; i++, p += ADD_RKEY_LEN) {
		msg->rtokens[i].link = karst_get_be32(p);
		msg->rtokens[i].rkey = karst_get_be32(p + 4);
		msg->rtokens[i].vaddr = karst_get_be64(p + 8);
	}
}

static void
put_add_rkeys(uint8_t *p, const struct karst_smc_llc *msg, size_t n)
{
	for (size_t i = 0; i < n; i++, p += ADD_RKEY_LEN) {
		karst_put_be32(p, msg->rtokens[i].link);
		karst_put_be32(p + 4, msg->rtokens[i].rkey);
		karst_put_be64(p + 8, msg->rtokens[i].vaddr);
	}
}

/* --- each type --- */

static int
parse_add_link(const uint8_t *m, size_t len, struct karst_smc_llc *msg)
{
	size_t n;

	memcpy(msg->mac, m + 4, 6);
	memcpy(msg->gid, m + 12, 16);
	msg->qpn = smc_get_be24(m + 28);
	msg->link = m[31];
	msg->mtu = m[32] & 15;
	msg->psn = smc_get_be24(m + 33);
	/* a refusal has no further fields */
	if (!msg->v2 || msg->flags & KARST_SMC_LLC_REJECTED || len < ADD_EXT + ADD_EXT_LEN)
		return 0;
	msg->direct = m[ADD_EXT] & DIRECT;
	memcpy(msg->target, m + ADD_EXT + 2, 16);
	n = get_le16(m + ADD_EXT + 26);
	if (ADD_EXT + ADD_EXT_LEN + n * ADD_RKEY_LEN > len)
		n = karst_get_be16(m + ADD_EXT + 26);
	if (n > KARST_SMC_RKEYS_MAX || ADD_EXT + ADD_EXT_LEN + n * ADD_RKEY_LEN > len)
		return -EPROTO;
	msg->nrtokens = (uint16_t)n;
	get_add_rkeys(m + ADD_EXT + ADD_EXT_LEN, msg, n);
	return 0;
}

static size_t
build_add_link(const struct karst_smc_llc *msg, uint8_t *m)
{
	memcpy(m + 4, msg->mac, 6);
	memcpy(m + 12, msg->gid, 16);
	smc_put_be24(m + 28, msg->qpn);
	m[31] = msg->link;
	m[32] = msg->mtu;
	smc_put_be24(m + 33, msg->psn);
	if (!msg->v2 || msg->flags & KARST_SMC_LLC_REJECTED)
		return KARST_SMC_LLC_LEN;
	m[ADD_EXT] = msg->direct ? DIRECT : 0;
	memcpy(m + ADD_EXT + 2, msg->target, 16);
	put_le16(m + ADD_EXT + 26, msg->nrtokens);
	put_add_rkeys(m + ADD_EXT + ADD_EXT_LEN, msg, msg->nrtokens);
	return ADD_EXT + ADD_EXT_LEN + (size_t)msg->nrtokens * ADD_RKEY_LEN;
}

static void
parse_confirm_link(const uint8_t *m, struct karst_smc_llc *msg)
{
	memcpy(msg->mac, m + 4, 6);
	memcpy(msg->gid, m + 10, 16);
	msg->qpn = smc_get_be24(m + 26);
	msg->link = m[29];
	memcpy(msg->link_uid, m + 30, 4);
	msg->max_links = m[34];
	msg->max_conns = m[35];
}

static void
build_confirm_link(const struct karst_smc_llc *msg, uint8_t *m)
{
	memcpy(m + 4, msg->mac, 6);
	memcpy(m + 10, msg->gid, 16);
	smc_put_be24(m + 26, msg->qpn);
	m[29] = msg->link;
	memcpy(m + 30, msg->link_uid, 4);
	m[34] = msg->max_links;
	m[35] = msg->max_conns;
}

static int
parse_confirm_rkey(const uint8_t *m, struct karst_smc_llc *msg)
{
	get_rtoken(m + 4, &msg->first);
	msg->nrtokens = m[4];
	if (msg->nrtokens > 2)
		/* the rest would come in CONFIRM_RKEY_CONT: for more than three links */
		return -EPROTO;
	for (size_t i = 0; i < msg->nrtokens; i++)
		get_rtoken(m + 4 + (i + 1) * RTOKEN_LEN, &msg->rtokens[i]);
	return 0;
}

static int
parse_delete_rkey(const uint8_t *m, size_t len, struct karst_smc_llc *msg)
{
	msg->nrtokens = m[4];
	msg->error_mask = m[5];
	if (msg->flags & KARST_SMC_LLC_RESPONSE && msg->v2)
		return 0; /* the keys are not repeated */
	if (msg->nrtokens > (msg->v2 ? (len - DELETE_RKEYS) / 4 : DELETE_MAX_V1))
		return -EPROTO;
	for (size_t i = 0; i < msg->nrtokens; i++)
		msg->rtokens[i].rkey = karst_get_be32(m + DELETE_RKEYS + 4 * i);
	return 0;
}

static size_t
build_delete_rkey(const struct karst_smc_llc *msg, uint8_t *m)
{
	m[4] = (uint8_t)msg->nrtokens;
	m[5] = msg->error_mask;
	if (msg->flags & KARST_SMC_LLC_RESPONSE && msg->v2)
		return KARST_SMC_LLC_LEN;
	for (size_t i = 0; i < msg->nrtokens; i++)
		karst_put_be32(m + DELETE_RKEYS + 4 * i, msg->rtokens[i].rkey);
	return msg->nrtokens <= DELETE_MAX_V1 ? KARST_SMC_LLC_LEN
					      : DELETE_RKEYS + 4u * msg->nrtokens;
}

static int
parse_req_add_link(const uint8_t *m, size_t len, struct karst_smc_llc *msg)
{
	if (!msg->v2)
		return 0;
	if (REQ_ADD_GIDS + (size_t)m[24] * 16 > len)
		return -EPROTO;
	msg->ngids = m[24] < KARST_SMC_GIDS_MAX ? m[24] : KARST_SMC_GIDS_MAX;
	memcpy(msg->gids, m + REQ_ADD_GIDS, (size_t)msg->ngids * 16);
	return 0;
}

static int
parse_body(const uint8_t *m, size_t len, struct karst_smc_llc *msg)
{
	switch (msg->type) {
	case KARST_SMC_LLC_CONFIRM_LINK:
		parse_confirm_link(m, msg);
		return 0;
	case KARST_SMC_LLC_ADD_LINK:
		return parse_add_link(m, len, msg);
	case KARST_SMC_LLC_ADD_LINK_CONT:
		msg->link = m[4];
		if (msg->v2)
			return -EPROTO;
		msg->nrtokens = m[5];
		get_add_rkeys(m + 8, msg, karst_min_u32(msg->nrtokens, ADD_CONT_RKEYS));
		return 0;
	case KARST_SMC_LLC_DELETE_LINK:
		msg->link = m[4];
		msg->reason = karst_get_be32(m + 5);
		return 0;
	case KARST_SMC_LLC_REQ_ADD_LINK:
		return parse_req_add_link(m, len, msg);
	case KARST_SMC_LLC_CONFIRM_RKEY:
		return parse_confirm_rkey(m, msg);
	case KARST_SMC_LLC_TEST_LINK:
		memcpy(msg->user_data, m + 4, sizeof(msg->user_data));
		return 0;
	case KARST_SMC_LLC_CONFIRM_RKEY_CONT:
		return 0;
	case KARST_SMC_LLC_DELETE_RKEY:
		return parse_delete_rkey(m, len, msg);
	}
	return -EPROTO;
}

int
karst_smc_llc_parse(const void *buf, size_t len, struct karst_smc_llc *msg)
{
	const uint8_t *m = buf;

	if (len < KARST_SMC_LLC_LEN || len > KARST_SMC_LLC_MAX_LEN ||
		(m[0] & ~(KARST_SMC_LLC_V2 | 15u)) != 0)
		return -EPROTO;
	memset(msg, 0, offsetof(struct karst_smc_llc, rtokens));
	msg->ngids = 0;
	msg->v2 = m[0] & KARST_SMC_LLC_V2;
	msg->type = m[0] & 15;
	msg->flags = m[3];
	if (msg->v2) {
		if (get_le16(m + 1) != len && karst_get_be16(m + 1) != len)
			return -EPROTO;
	} else {
		if (m[1] != KARST_SMC_LLC_LEN || len != KARST_SMC_LLC_LEN)
			return -EPROTO;
		msg->reject_reason = m[2] & 15;
	}
	return parse_body(m, len, msg);
}

static size_t
build_body(const struct karst_smc_llc *msg, uint8_t *m)
{
	size_t i;

	switch (msg->type) {
	case KARST_SMC_LLC_CONFIRM_LINK:
		build_confirm_link(msg, m);
		break;
	case KARST_SMC_LLC_ADD_LINK:
		return build_add_link(msg, m);
	case KARST_SMC_LLC_ADD_LINK_CONT:
		m[4] = msg->link;
		m[5] = (uint8_t)msg->nrtokens;
		put_add_rkeys(m + 8, msg, karst_min_u32(msg->nrtokens, ADD_CONT_RKEYS));
		break;
	case KARST_SMC_LLC_DELETE_LINK:
		m[4] = msg->link;
		karst_put_be32(m + 5, msg->reason);
		break;
	case KARST_SMC_LLC_REQ_ADD_LINK:
		if (!msg->v2)
			break;
		m[24] = msg->ngids;
		memcpy(m + REQ_ADD_GIDS, msg->gids, (size_t)msg->ngids * 16);
		i = REQ_ADD_GIDS + (size_t)msg->ngids * 16;
		return i > KARST_SMC_LLC_LEN ? i : KARST_SMC_LLC_LEN;
	case KARST_SMC_LLC_CONFIRM_RKEY:
		put_rtoken(m + 4, (uint8_t)msg->nrtokens, &msg->first);
		for (i = 0; i < msg->nrtokens && i < 2; i++)
			put_rtoken(m + 4 + (i + 1) * RTOKEN_LEN, (uint8_t)msg->rtokens[i].link,
				&msg->rtokens[i]);
		break;
	case KARST_SMC_LLC_TEST_LINK:
		memcpy(m + 4, msg->user_data, sizeof(msg->user_data));
		break;
	case KARST_SMC_LLC_CONFIRM_RKEY_CONT:
		break;
	case KARST_SMC_LLC_DELETE_RKEY:
		return build_delete_rkey(msg, m);
	}
	return KARST_SMC_LLC_LEN;
}

static size_t
llc_bytes_of(const struct karst_smc_llc *msg)
{
	if (msg->v2 && msg->type == KARST_SMC_LLC_ADD_LINK)
		return ADD_EXT + ADD_EXT_LEN + (size_t)msg->nrtokens * ADD_RKEY_LEN;
	if (msg->v2 && msg->type == KARST_SMC_LLC_DELETE_RKEY)
		return KARST_SMC_LLC_LEN + 4u * msg->nrtokens;
	if (msg->v2 && msg->type == KARST_SMC_LLC_REQ_ADD_LINK)
		return KARST_SMC_LLC_LEN + (size_t)msg->ngids * 16;
	return KARST_SMC_LLC_LEN;
}

int
karst_smc_llc_build(const struct karst_smc_llc *msg, void *buf, size_t room)
{
	uint8_t *m = buf;
	size_t len = llc_bytes_of(msg);

	if (len > room)
		return -ENOSPC;
	memset(m, 0, len);
	len = build_body(msg, m);
	m[0] = (uint8_t)(msg->type | (msg->v2 ? KARST_SMC_LLC_V2 : 0));
	if (msg->v2) {
		put_le16(m + 1, len);
	} else {
		m[1] = KARST_SMC_LLC_LEN;
		m[2] = msg->reject_reason & 15;
	}
	m[3] = msg->flags;
	return (int)len;
}
