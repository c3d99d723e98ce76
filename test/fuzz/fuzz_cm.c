/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Fuzz target: communication management, against peers and users that may do anything.
 *
 * An input is a list of steps, a byte each with its arguments behind it: a MAD whose bytes are in
 * the input; a MAD of a chosen kind with chosen fields, whose ids and transaction were seen before;
 * a matching answer to the last message that was sent; a call of the user; time.  What the user
 * does within an event comes from the input, too.
 *
 * What must hold: no sanitizer report; the tables agree with each other (selfcheck.h); what is sent
 * is well formed and goes to the right peer; a received MAD causes at most three (an eviction, a
 * REJ, a DREQ); events name ids that exist; and when all ids are destroyed and time passes, nothing
 * is left.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"
#include "input.h"
#include "karst_cm.h"
#include "karst_hdr.h"
#include "selfcheck.h"

#define IDS     16u
#define SECOND  UINT64_C(1000000000)
#define SERVICE UINT64_C(0x0000000001061c06)

struct fuzz {
	struct input in;
	struct karst_cm *cm;
	/* the user's ids, some of which no longer exist */
	uint32_t ids[IDS];
	uint32_t nids;
	/* the last message sent, and how many were sent since the last one was received */
	uint8_t sent[KARST_CM_MAD_LEN];
	struct karst_cm_path sent_path;
	uint32_t nsent;
	/* numbers that were on the wire */
	uint32_t remote_ids[IDS];
	uint64_t tids[IDS];
	uint32_t nseen;
};

static void
selfcheck(const struct fuzz *f)
{
	const char *why = cm_selfcheck(f->cm);

	if (why != NULL)
		check(false, why, __FILE__, __LINE__);
}

/* --- the user --- */

static void
remember(struct fuzz *f, uint32_t id)
{
	f->ids[f->nids++ % IDS] = id;
}

static uint32_t
some_id(struct fuzz *f)
{
	return f->ids[u8(&f->in) % IDS];
}

static struct karst_cm_path
some_path(struct fuzz *f)
{
	struct karst_cm_path path = {.pkey = 0xffff, .hop_limit = 64, .mtu = 3, .ack_timeout = 14};
	uint8_t peer = u8(&f->in);

	memcpy(path.local_ip, "\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\2\1", 16);
	memcpy(path.remote_ip, path.local_ip, 16);
	path.remote_ip[15] = peer & 0x80 ? peer : (uint8_t)(1 + peer % 3);
	return path;
}

static void
call(struct fuzz *f)
{
	static const uint8_t types[] = {
		KARST_QPT_RC, KARST_QPT_UC, KARST_QPT_XRC_SEND, KARST_QPT_XRC_RECV};
	static const uint8_t data[256] = {1, 2, 3};
	uint8_t which = u8(&f->in), len = u8(&f->in);
	uint32_t id = some_id(f), made = 0;
	struct karst_cm_path path = some_path(f);
	struct karst_cm_param p = {.private_data = data, .private_data_len = len};
	struct karst_cm *cm = f->cm;
	struct karst_cm_info info;

	p.qpn = u8(&f->in);
	p.qp_type = types[p.qpn % 4];
	p.ece = (struct karst_cm_ece){.vendor = p.qpn, .options = p.qpn};
	if (which >= 248) {
		p.alternate = len & 1 ? &path : NULL;
		p.alternate_taken = len & 2;
	}
	if (which >= 250) {
		if (which & 1)
			karst_cm_id_lap(cm, id, &path, data, len);
		else
			karst_cm_id_apr(cm, id, which & 15, data, len & 0x7f, data, len);
		return;
	}
	switch (which % 13) {
	case 0:
		karst_cm_id_connect(cm, &path, SERVICE, &p, NULL, &made);
		break;
	case 1:
		karst_cm_id_listen(cm, SERVICE, UINT64_MAX << (len & 63), NULL, &made);
		break;
	case 2:
		if (karst_cm_id_accept(cm, id, &p) == -EINVAL) {
			p.qp_type = KARST_QPT_RC;
			karst_cm_id_accept(cm, id, &p);
		}
		break;
	case 3:
		karst_cm_id_ready(cm, id, data, len);
		break;
	case 4:
		if ((len & 0x80) != 0 && karst_cm_id_sidr_refuse(cm, id, which) != -ENOENT)
			karst_cm_id_refuse(cm, id, which, data, len & 0x7f);
		karst_cm_id_reject(cm, id, which, data, len & 0x7f, data, len);
		break;
	case 5:
		karst_cm_id_established(cm, id);
		break;
	case 6:
		karst_cm_id_mra(cm, id, which & 63, data, len);
		break;
	case 7:
		karst_cm_id_disconnect(cm, id, data, len);
		break;
	case 8:
		karst_cm_id_disconnect_reply(cm, id, data, len);
		break;
	case 9:
		karst_cm_id_sidr_request(cm, &path, SERVICE, data, len, NULL, &made);
		break;
	case 10:
		karst_cm_id_sidr_reply(cm, id, which & 7, len & 1 ? &p : NULL);
		break;
	case 11:
		if (karst_cm_id_info(cm, id, &info) == 0)
			CHECK(karst_cm_id_set_user(cm, id, f) == 0);
		break;
	default:
		if (karst_cm_id_destroy(cm, id) == 0)
			CHECK(karst_cm_id_destroy(cm, id) == -ENOENT);
		break;
	}
	if (made != 0)
		remember(f, made);
}

/* --- the CM's ops --- */

static void
on_send(void *user, const struct karst_cm_path *path, const uint8_t *mad)
{
	struct fuzz *f = user;
	struct karst_cm_msg m;

	CHECK(karst_cm_msg_parse(mad, KARST_CM_MAD_LEN, &m) == KARST_CM_PARSE_OK);
	memcpy(f->sent, mad, KARST_CM_MAD_LEN);
	f->sent_path = *path;
	f->nsent++;
	f->tids[f->nseen % IDS] = m.tid;
	f->remote_ids[f->nseen++ % IDS] = m.remote_id;
}

static void
on_event(void *user, const struct karst_cm_ev *ev)
{
	struct fuzz *f = user;
	struct karst_cm_info info;

	CHECK(karst_cm_id_info(f->cm, ev->id, &info) == 0);
	CHECK(ev->remote.private_data_len == 0 || ev->remote.private_data != NULL);
	CHECK(ev->code != KARST_CM_EV_LAP || ev->remote.alternate != NULL);
	if (ev->code == KARST_CM_EV_REQ || ev->code == KARST_CM_EV_SIDR_REQ)
		remember(f, ev->id);
	while ((u8(&f->in) & 3) == 3)
		call(f);
	selfcheck(f);
}

/* --- received messages --- */

static void
receive(struct fuzz *f, const struct karst_cm_path *seen, const uint8_t *mad, size_t len)
{
	uint8_t *copy = malloc(len != 0 ? len : 1);
	size_t calls = f->in.left;

	if (copy == NULL)
		abort();
	memcpy(copy, mad, len);
	f->nsent = 0;
	karst_cm_rx(f->cm, seen, copy, len);
	/* unless the user has made calls within an event */
	CHECK(f->nsent <= 3 || calls - f->in.left > 1);
	free(copy);
}

static uint32_t
some_number(struct fuzz *f)
{
	uint8_t how = u8(&f->in);

	if (how & 0x80)
		return f->remote_ids[how % IDS];
	return how & 0x40 ? f->ids[how % IDS] : how;
}

static void
crafted(struct fuzz *f)
{
	struct karst_cm_path seen = some_path(f);
	struct karst_cm_msg m = {.kind = u8(&f->in) % KARST_CM_KINDS};
	uint8_t mad[KARST_CM_MAD_LEN], how = u8(&f->in), i;

	m.local_id = some_number(f);
	m.remote_id = some_number(f);
	m.tid = how & 0x80 ? f->tids[how % IDS] : how;
	if (m.kind == KARST_CM_REQ) {
		m.req.service_id = SERVICE;
		m.req.guid = 2 + (how & 1);
		m.req.qpn = u8(&f->in);
		m.req.mtu = 3;
		m.req.local_response_timeout = how & 31;
		m.req.max_retries = how & 15;
		memcpy(m.req.primary.local_gid, seen.remote_ip, 16);
		memcpy(m.req.primary.remote_gid, seen.local_ip, 16);
		m.req.alternate = m.req.primary;
		m.req.alternate.remote_gid[15] = how & 0x60 ? 9 : 0;
	} else if (m.kind == KARST_CM_SIDR_REQ) {
		m.sidr_req.service_id = SERVICE;
	} else if (m.kind == KARST_CM_LAP) {
		m.lap.qpn = u8(&f->in);
		memcpy(m.lap.alternate.local_gid, seen.remote_ip, 16);
		memcpy(m.lap.alternate.remote_gid, seen.local_ip, 16);
		m.lap.alternate.flow_label = how & 0x7f;
	}
	CHECK(karst_cm_msg_build(&m, mad) == 0);
	/* and some random bytes */
	for (i = u8(&f->in) & 3; i > 0; i--)
		mad[u8(&f->in)] = u8(&f->in);
	receive(f, &seen, mad, sizeof(mad));
}

static void
raw(struct fuzz *f)
{
	struct karst_cm_path seen = some_path(f);
	uint8_t mad[KARST_CM_MAD_LEN];
	uint8_t less = u8(&f->in);

	bytes(&f->in, mad, sizeof(mad));
	receive(f, &seen, mad, less < 250 ? sizeof(mad) : sizeof(mad) - less);
}

/* What a correct peer would answer to the last message. */
static void
answer(struct fuzz *f)
{
	static const uint8_t kinds[KARST_CM_KINDS] = {[KARST_CM_REQ] = KARST_CM_REP,
		[KARST_CM_REP] = KARST_CM_RTU,
		[KARST_CM_RTU] = KARST_CM_DREQ,
		[KARST_CM_DREQ] = KARST_CM_DREP,
		[KARST_CM_SIDR_REQ] = KARST_CM_SIDR_REP,
		[KARST_CM_DREP] = KARST_CM_DREP,
		[KARST_CM_LAP] = KARST_CM_APR,
		[KARST_CM_APR] = KARST_CM_LAP,
		[KARST_CM_MRA] = KARST_CM_REQ};
	struct karst_cm_path seen = f->sent_path;
	struct karst_cm_msg m, a = {0};
	uint8_t mad[KARST_CM_MAD_LEN], how = u8(&f->in);
	struct karst_cm_info info;

	if (karst_cm_msg_parse(f->sent, sizeof(f->sent), &m) != KARST_CM_PARSE_OK)
		return;
	a.kind = how & 0x80 ? KARST_CM_REJ : how & 0x40 ? KARST_CM_MRA : kinds[m.kind];
	a.tid = m.tid;
	a.local_id = m.kind == KARST_CM_SIDR_REQ ? m.local_id
		: m.remote_id != 0               ? m.remote_id
						 : 1u + (how & 15);
	a.remote_id = m.local_id;
	if (a.kind == KARST_CM_REP) {
		a.rep.guid = 2;
		a.rep.qpn = 1 + how % 8u;
		a.rep.eecn = a.rep.qpn;
	} else if (a.kind == KARST_CM_DREQ && karst_cm_id_info(f->cm, m.local_id, &info) == 0) {
		a.dreq.qpn = info.local_qpn;
	} else if (a.kind == KARST_CM_LAP && karst_cm_id_info(f->cm, m.local_id, &info) == 0) {
		a.tid += 1u + (how & 1);
		a.lap.qpn = info.local_qpn;
		memcpy(a.lap.alternate.local_gid, info.path.remote_ip, 16);
		memcpy(a.lap.alternate.remote_gid, info.path.local_ip, 16);
		a.lap.alternate.flow_label = 1;
	} else if (a.kind == KARST_CM_MRA) {
		a.mra.service_timeout = how & 31;
		a.mra.message =
			m.kind == KARST_CM_LAP ? KARST_CM_ABOUT_OTHER : m.kind == KARST_CM_REP;
	}
	CHECK(karst_cm_msg_build(&a, mad) == 0);
	receive(f, &seen, mad, sizeof(mad));
}

static void
pass(struct fuzz *f)
{
	uint8_t how = u8(&f->in);

	f->cm->now_ns += UINT64_C(1) << (how % 38);
	CHECK(karst_cm_expire(f->cm, how & 15) <= (how & 15));
}

/* --- until nothing is left --- */

static void
end(struct fuzz *f, uint32_t slots)
{
	uint64_t next;
	uint32_t i, turns;

	f->in.left = 0;
	for (i = 0; i < IDS; i++)
		karst_cm_id_destroy(f->cm, f->ids[i]);
	/* connections that were not destroyed end by time, or stay established for ever */
	for (turns = 0; (next = karst_cm_next_ns(f->cm)) != UINT64_MAX; turns++) {
		CHECK(turns < 100000);
		if (next > f->cm->now_ns)
			f->cm->now_ns = next;
		karst_cm_expire(f->cm, 16);
		selfcheck(f);
	}
	CHECK(f->cm->nhalf_open == 0);
	CHECK(f->cm->nids <= slots);
	if (f->nids <= IDS)
		CHECK(f->cm->nids == 0);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct karst_cm_ops ops = {on_send, on_event};
	struct fuzz f = {.in = {data, size}};
	struct karst_cm_config cfg = {.guid = 2, .ops = &ops, .user = &f};
	uint32_t listener;
	void *mem;

	cfg.max_ids = 2 + u8(&f.in) % 14;
	cfg.max_half_open = 1 + u8(&f.in) % cfg.max_ids;
	cfg.response_timeout = (uint8_t)(1 + u8(&f.in) % 20);
	cfg.max_retries = 1 + cfg.response_timeout % 15;
	cfg.secret[0] = u32(&f.in);
	mem = aligned_alloc(64, (karst_cm_bytes(&cfg) + 63) / 64 * 64);
	CHECK(mem != NULL && karst_cm_init(mem, &cfg, SECOND, &f.cm) == 0);
	CHECK(karst_cm_id_listen(f.cm, SERVICE, UINT64_MAX, NULL, &listener) == 0);
	remember(&f, listener);
	while (f.in.left > 0) {
		switch (u8(&f.in) % 6) {
		case 0:
			raw(&f);
			break;
		case 1:
			crafted(&f);
			break;
		case 2:
		case 3:
			answer(&f);
			break;
		case 4:
			call(&f);
			break;
		default:
			pass(&f);
			break;
		}
		selfcheck(&f);
	}
	end(&f, cfg.max_ids);
	free(mem);
	return 0;
}
