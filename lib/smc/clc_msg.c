/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Format of CLC messages (S2).  Each is a header of 8 bytes, which ends with version and modes, a
 * body, and the eyecatcher again.  Offsets below count from the message's first byte.
 *
 *   Proposal        8 who (30)   38 offset of prefixes   40 SMC-D (40)   ... prefixes,
 *                   version 2
 *   Accept/Confirm  8 who (30)   38 QPN 3, 41 key, 45 index, 46 token, 50 size and MTU, 52 address,
 *                   61 PSN; version 2: 64 EID, 104 first contact (36 or 52), GIDs (4 + 16 each)
 *   Decline         8 system id  16 reason   version 2: 20 OS
 *
 * The order of prefixes and version 2's extension is not fixed: both are found by offset fields,
 * which count from the offset field to the object.
 */
#include "karst_smc_msg.h"

#include <errno.h>

#include "smc_wire.h"

#define TRAILER_LEN     4
#define WHO             8
#define PREFIX_OFFSET   38
#define PROPOSAL_BASE   40
#define V2_OFFSET_AT    10 /* in the area of SMC-D */
#define SMCD_LEN        40
#define PREFIX_LEN      8
#define PREFIX6_LEN     17
#define V2_LEN          40
#define ACCEPT_LEN      68
#define ACCEPT_V2_LEN   108
#define FIRST           104
#define FIRST_SHORT_LEN 36 /* Accept of Linux before release 1 */
#define FIRST_LEN       52
#define GIDS_HDR_LEN    4
#define DECLINE_LEN     28
#define DECLINE_V2_LEN  44
#define FIRST_CONTACT   0x08u /* in Decline: out of sync */
#define DIRECT          0x80u

static const uint8_t eyecatcher[4] = {0xe2, 0xd4, 0xc3, 0xd9};

static const struct {
	uint32_t code;
	const char *text;
} reasons[] = {
#define KARST_SMC_REASON(symbol, code, meaning) {code, meaning},
#include "karst_smc_reason.def"
#undef KARST_SMC_REASON
};

const char *
karst_smc_reason_text(uint32_t reason)
{
	for (size_t i = 0; i < KARST_DIM(reasons); i++) {
		if (reasons[i].code == reason)
			return reasons[i].text;
	}
	return NULL;
}

bool
karst_smc_clc_begins(const void *buf, size_t len)
{
	return memcmp(buf, eyecatcher, len < sizeof(eyecatcher) ? len : sizeof(eyecatcher)) == 0;
}

static void
get_peer(const uint8_t *p, struct karst_smc_peer *peer)
{
	memcpy(peer->system_id, p, 8);
	memcpy(peer->gid, p + 8, 16);
	memcpy(peer->mac, p + 24, 6);
}

static void
put_peer(uint8_t *p, const struct karst_smc_peer *peer)
{
	memcpy(p, peer->system_id, 8);
	memcpy(p + 8, peer->gid, 16);
	memcpy(p + 24, peer->mac, 6);
}

/* --- Proposal --- */

/* @end: offset of the trailer. */
static int
parse_prefixes(const uint8_t *m, size_t end, struct karst_smc_proposal *p)
{
	size_t at = PROPOSAL_BASE + karst_get_be16(m + PREFIX_OFFSET), i;

	if (at + PREFIX_LEN > end)
		return -EPROTO;
	p->subnet = karst_get_be32(m + at);
	p->subnet_len = m[at + 4];
	p->nprefixes = m[at + 7];
	if (p->subnet_len > 32 || p->nprefixes > KARST_DIM(p->prefixes) ||
		at + PREFIX_LEN + (size_t)p->nprefixes * PREFIX6_LEN > end)
		return -EPROTO;
	for (i = 0; i < p->nprefixes; i++) {
		const uint8_t *q = m + at + PREFIX_LEN + i * PREFIX6_LEN;

		memcpy(p->prefixes[i].prefix, q, 16);
		p->prefixes[i].len = q[16];
		if (q[16] > 128)
			return -EPROTO;
	}
	return 0;
}

static int
parse_v2(const uint8_t *m, size_t end, struct karst_smc_proposal *p)
{
	size_t base = PROPOSAL_BASE + V2_OFFSET_AT, at;

	if (base + 2 > end)
		return -EPROTO;
	at = base + 2 + karst_get_be16(m + base);
	if (at + V2_LEN > end)
		return -EPROTO;
	p->neids = m[at];
	p->release = m[at + 3] >> 4;
	if (p->neids > KARST_SMC_EIDS_MAX ||
		at + V2_LEN + (size_t)p->neids * KARST_SMC_EID_LEN > end)
		return -EPROTO;
	memcpy(p->roce, m + at + 8, 16);
	p->max_conns = m[at + 24];
	p->max_links = m[at + 25];
	p->features = karst_get_be16(m + at + 26);
	memcpy(p->eids, m + at + V2_LEN, (size_t)p->neids * KARST_SMC_EID_LEN);
	return 0;
}

static int
parse_proposal(const uint8_t *m, size_t len, struct karst_smc_proposal *p)
{
	size_t end = len - TRAILER_LEN;
	int rc = 0;

	if (end < PROPOSAL_BASE)
		return -EPROTO;
	memset(p, 0, sizeof(*p));
	p->version = m[7] >> 4;
	p->mode1 = m[7] & 3;
	p->mode2 = p->version > 1 ? m[7] >> 2 & 3 : KARST_SMC_MODE_N;
	get_peer(m + WHO, &p->peer);
	if (p->mode1 != KARST_SMC_MODE_N)
		rc = parse_prefixes(m, end, p);
	if (rc == 0 && p->mode2 != KARST_SMC_MODE_N)
		rc = parse_v2(m, end, p);
	return rc;
}

static size_t
build_prefixes(const struct karst_smc_proposal *p, uint8_t *at)
{
	karst_put_be32(at, p->subnet);
	at[4] = p->subnet_len;
	at[7] = p->nprefixes;
	for (size_t i = 0; i < p->nprefixes; i++) {
		memcpy(at + PREFIX_LEN + i * PREFIX6_LEN, p->prefixes[i].prefix, 16);
		at[PREFIX_LEN + i * PREFIX6_LEN + 16] = p->prefixes[i].len;
	}
	return PREFIX_LEN + (size_t)p->nprefixes * PREFIX6_LEN;
}

static size_t
build_proposal(const struct karst_smc_proposal *p, uint8_t *m)
{
	size_t at = PROPOSAL_BASE;

	m[7] = (uint8_t)(p->version << 4 | (p->version > 1 ? p->mode2 << 2 : 0) | p->mode1);
	put_peer(m + WHO, &p->peer);
	if (p->version > 1)
		at += SMCD_LEN;
	if (p->mode1 != KARST_SMC_MODE_N) {
		karst_put_be16(m + PREFIX_OFFSET, (uint16_t)(at - PROPOSAL_BASE));
		at += build_prefixes(p, m + at);
	}
	if (p->version > 1 && p->mode2 != KARST_SMC_MODE_N) {
		karst_put_be16(m + PROPOSAL_BASE + V2_OFFSET_AT,
			(uint16_t)(at - (PROPOSAL_BASE + V2_OFFSET_AT + 2)));
		m[at] = p->neids;
		m[at + 3] = (uint8_t)(p->release << 4);
		memcpy(m + at + 8, p->roce, 16);
		m[at + 24] = p->max_conns;
		m[at + 25] = p->max_links;
		karst_put_be16(m + at + 26, p->features);
		memcpy(m + at + V2_LEN, p->eids, (size_t)p->neids * KARST_SMC_EID_LEN);
		at += V2_LEN + (size_t)p->neids * KARST_SMC_EID_LEN;
	}
	return at;
}

/* --- Accept and Confirm --- */

static int
parse_first(const uint8_t *m, size_t end, bool confirm, struct karst_smc_accept *a)
{
	size_t at = FIRST + FIRST_LEN;

	if (end < FIRST + FIRST_SHORT_LEN)
		return -EPROTO;
	a->direct = m[FIRST] & DIRECT;
	a->os = m[FIRST + 1] >> 4;
	a->release = m[FIRST + 1] & 15;
	memcpy(a->hostname, m + FIRST + 4, KARST_SMC_HOSTNAME_LEN);
	if (end < at)
		return a->release == 0 && !confirm ? 0 : -EPROTO;
	a->max_conns = m[FIRST + 36];
	a->max_links = m[FIRST + 37];
	a->features = karst_get_be16(m + FIRST + 38);
	if (!confirm)
		return 0;
	if (end < at + GIDS_HDR_LEN)
		return -EPROTO;
	if (end < at + GIDS_HDR_LEN + (size_t)m[at] * 16)
		return -EPROTO;
	a->ngids = m[at] < KARST_SMC_GIDS_MAX ? m[at] : KARST_SMC_GIDS_MAX;
	memcpy(a->gids, m + at + GIDS_HDR_LEN, (size_t)a->ngids * 16);
	return 0;
}

static int
parse_accept(const uint8_t *m, size_t len, struct karst_smc_accept *a)
{
	memset(a, 0, sizeof(*a));
	a->version = m[7] >> 4;
	if ((m[7] & 3) != KARST_SMC_MODE_R || len < (a->version > 1 ? ACCEPT_V2_LEN : ACCEPT_LEN))
		return -EPROTO;
	a->first_contact = m[7] & FIRST_CONTACT;
	get_peer(m + WHO, &a->peer);
	a->qpn = smc_get_be24(m + 38);
	a->rkey = karst_get_be32(m + 41);
	a->index = m[45];
	a->token = karst_get_be32(m + 46);
	a->size = m[50] >> 4;
	a->mtu = m[50] & 15;
	a->vaddr = karst_get_be64(m + 52);
	a->psn = smc_get_be24(m + 61);
	if (a->index == 0 || a->mtu < 1 || a->mtu > 5)
		return -EPROTO;
	if (a->version < 2)
		return 0;
	memcpy(a->eid, m + 64, KARST_SMC_EID_LEN);
	return a->first_contact
		? parse_first(m, len - TRAILER_LEN, m[4] == KARST_SMC_CLC_CONFIRM, a)
		: 0;
}

static size_t
build_accept(const struct karst_smc_accept *a, bool confirm, uint8_t *m)
{
	size_t at = FIRST + FIRST_LEN;

	m[7] = (uint8_t)(a->version << 4 | (a->first_contact ? FIRST_CONTACT : 0));
	put_peer(m + WHO, &a->peer);
	smc_put_be24(m + 38, a->qpn);
	karst_put_be32(m + 41, a->rkey);
	m[45] = a->index;
	karst_put_be32(m + 46, a->token);
	m[50] = (uint8_t)(a->size << 4 | a->mtu);
	karst_put_be64(m + 52, a->vaddr);
	smc_put_be24(m + 61, a->psn);
	if (a->version < 2)
		return ACCEPT_LEN - TRAILER_LEN;
	memcpy(m + 64, a->eid, KARST_SMC_EID_LEN);
	if (!a->first_contact)
		return ACCEPT_V2_LEN - TRAILER_LEN;
	m[FIRST] = a->direct ? DIRECT : 0;
	m[FIRST + 1] = (uint8_t)(a->os << 4 | a->release);
	memcpy(m + FIRST + 4, a->hostname, KARST_SMC_HOSTNAME_LEN);
	m[FIRST + 36] = a->max_conns;
	m[FIRST + 37] = a->max_links;
	karst_put_be16(m + FIRST + 38, a->features);
	if (!confirm)
		return at;
	m[at] = a->ngids;
	memcpy(m + at + GIDS_HDR_LEN, a->gids, (size_t)a->ngids * 16);
	return at + GIDS_HDR_LEN + (size_t)a->ngids * 16;
}

/* --- Decline --- */

static int
parse_decline(const uint8_t *m, size_t len, struct karst_smc_decline *d)
{
	memset(d, 0, sizeof(*d));
	d->version = m[7] >> 4;
	if (len != DECLINE_LEN && len != DECLINE_V2_LEN)
		return -EPROTO;
	d->out_of_sync = m[7] & FIRST_CONTACT;
	memcpy(d->system_id, m + 8, 8);
	d->reason = karst_get_be32(m + 16);
	d->os = d->version > 1 ? m[20] >> 4 : 0;
	return 0;
}

static size_t
build_decline(const struct karst_smc_decline *d, uint8_t *m)
{
	m[7] = (uint8_t)(d->version << 4 | (d->out_of_sync ? FIRST_CONTACT : 0));
	memcpy(m + 8, d->system_id, 8);
	karst_put_be32(m + 16, d->reason);
	if (d->version > 1)
		m[20] = (uint8_t)(d->os << 4);
	return (d->version > 1 ? DECLINE_V2_LEN : DECLINE_LEN) - TRAILER_LEN;
}

/* --- all of them --- */

int
karst_smc_clc_parse(const void *buf, size_t room, struct karst_smc_clc *msg)
{
	const uint8_t *m = buf;
	size_t len;
	int rc;

	if (!karst_smc_clc_begins(m, room))
		return -EPROTO;
	if (room < KARST_SMC_CLC_HDR_LEN)
		return -EAGAIN;
	len = karst_get_be16(m + 5);
	if (len < DECLINE_LEN || len > KARST_SMC_CLC_MAX_LEN || m[7] >> 4 == 0)
		return -EPROTO;
	if (room < len)
		return -EAGAIN;
	if (memcmp(m + len - TRAILER_LEN, eyecatcher, TRAILER_LEN) != 0)
		return -EPROTO;
	msg->type = m[4];
	switch (msg->type) {
	case KARST_SMC_CLC_PROPOSAL:
		rc = parse_proposal(m, len, &msg->proposal);
		break;
	case KARST_SMC_CLC_ACCEPT:
	case KARST_SMC_CLC_CONFIRM:
		rc = parse_accept(m, len, &msg->accept);
		break;
	case KARST_SMC_CLC_DECLINE:
		rc = parse_decline(m, len, &msg->decline);
		break;
	default:
		rc = -EPROTO;
	}
	return rc != 0 ? rc : (int)len;
}

int
karst_smc_clc_build(const struct karst_smc_clc *msg, void *buf, size_t room)
{
	uint8_t m[KARST_SMC_CLC_BUILD_MAX] = {0};
	size_t len;

	switch (msg->type) {
	case KARST_SMC_CLC_PROPOSAL:
		len = build_proposal(&msg->proposal, m);
		break;
	case KARST_SMC_CLC_ACCEPT:
	case KARST_SMC_CLC_CONFIRM:
		len = build_accept(&msg->accept, msg->type == KARST_SMC_CLC_CONFIRM, m);
		break;
	default:
		len = build_decline(&msg->decline, m);
	}
	if (len + TRAILER_LEN > room)
		return -ENOSPC;
	memcpy(m + len, eyecatcher, TRAILER_LEN);
	len += TRAILER_LEN;
	memcpy(m, eyecatcher, 4);
	m[4] = (uint8_t)msg->type;
	karst_put_be16(m + 5, (uint16_t)len);
	memcpy(buf, m, len);
	return (int)len;
}
