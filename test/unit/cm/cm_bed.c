/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "cm_bed.h"

#include "selfcheck.h"

char bed_listener, bed_user;

static void
check(const struct cm_bed *b)
{
	const char *why = cm_selfcheck(b->cm);

	cr_assert_null(why, "not so: %s", why);
}

/* --- the CM's ops --- */

static void
on_send(void *user, const struct karst_cm_path *path, const uint8_t *mad)
{
	struct cm_bed *b = user;
	struct cm_bed_msg *out = &b->out[b->out_tail++ % BED_QUEUE];

	cr_assert_leq(b->out_tail - b->out_head, BED_QUEUE);
	out->path = *path;
	memcpy(out->mad, mad, KARST_CM_MAD_LEN);
	cr_assert_eq(karst_cm_msg_parse(out->mad, KARST_CM_MAD_LEN, &out->m), KARST_CM_PARSE_OK);
}

static void
on_event(void *user, const struct karst_cm_ev *ev)
{
	struct cm_bed *b = user;
	struct cm_bed_ev *e = &b->evs[b->ev_tail++ % BED_QUEUE];

	cr_assert_leq(b->ev_tail - b->ev_head, BED_QUEUE);
	e->ev = *ev;
	e->path = *ev->path;
	e->ev.path = &e->path;
	if (ev->remote.alternate != NULL) {
		e->alternate = *ev->remote.alternate;
		e->ev.remote.alternate = &e->alternate;
	}
	memset(e->private_data, 0, sizeof(e->private_data));
	memset(e->info, 0, sizeof(e->info));
	if (ev->remote.private_data_len != 0)
		memcpy(e->private_data, ev->remote.private_data, ev->remote.private_data_len);
	e->ev.remote.private_data = e->private_data;
	if (ev->info_len != 0)
		memcpy(e->info, ev->info, ev->info_len);
	e->ev.info = e->info;
	if (b->on_event != NULL)
		b->on_event(b, ev);
}

static const struct karst_cm_ops bed_ops = {on_send, on_event};

/* --- the bed --- */

static void
put_ip(uint8_t ip[16], uint8_t last)
{
	static const uint8_t net[16] = {[10] = 0xff, 0xff, 192, 0, 2, 0};

	memcpy(ip, net, 16);
	ip[15] = last;
}

struct cm_bed *
cm_bed_up(struct cm_bed *b, const struct karst_cm_config *in)
{
	struct karst_cm_config cfg = {.max_ids = 64};

	memset(b, 0, sizeof(*b));
	if (in != NULL)
		cfg = *in;
	cfg.guid = OUR_GUID;
	if (cfg.secret[0] == 0)
		cfg.secret[0] = 4711;
	cfg.ops = &bed_ops;
	cfg.user = b;
	b->mem = aligned_alloc(64, (karst_cm_bytes(&cfg) + 63) / 64 * 64);
	cr_assert_eq(karst_cm_init(b->mem, &cfg, 5 * SECOND, &b->cm), 0);
	put_ip(b->path.local_ip, 1);
	put_ip(b->path.remote_ip, 2);
	b->path.flow_label = 0x12345;
	b->path.pkey = 0xffff;
	b->path.hop_limit = 64;
	b->path.mtu = 3;
	b->path.ack_timeout = 17;
	b->param.qp_type = KARST_QPT_RC;
	b->param.responder_resources = 4;
	b->param.initiator_depth = 3;
	b->param.retry_count = 7;
	b->param.rnr_retry_count = 6;
	b->param.qpn = OUR_QPN;
	b->param.psn = 0x654321;
	b->param.private_data = "from us";
	b->param.private_data_len = 7;
	check(b);
	return b;
}

void
cm_bed_down(struct cm_bed *b)
{
	expect_no_msg(b);
	expect_no_ev(b);
	check(b);
	free(b->mem);
}

struct karst_cm_path
seen_from(const struct cm_bed *b, unsigned int n)
{
	struct karst_cm_path seen = b->path;

	put_ip(seen.remote_ip, (uint8_t)(2 + n));
	seen.remote_ip[14] = (uint8_t)(seen.remote_ip[14] + ((2 + n) >> 8));
	return seen;
}

void
send_from(struct cm_bed *b, unsigned int n, struct karst_cm_msg m)
{
	struct karst_cm_path seen = seen_from(b, n);
	uint8_t *mad = malloc(KARST_CM_MAD_LEN); /* allocated, so that sanitizers watch its end */

	cr_assert_eq(karst_cm_msg_build(&m, mad), 0);
	karst_cm_rx(b->cm, &seen, mad, KARST_CM_MAD_LEN);
	free(mad);
	check(b);
}

void
send_msg(struct cm_bed *b, struct karst_cm_msg m)
{
	send_from(b, 0, m);
}

void
send_raw(struct cm_bed *b, const void *mad, size_t len)
{
	struct karst_cm_path seen = seen_from(b, 0);
	uint8_t *copy = malloc(len + 1);

	memcpy(copy, mad, len);
	karst_cm_rx(b->cm, &seen, copy, len);
	free(copy);
	check(b);
}

/* Advances the clock from deadline to deadline, as an engine would. */
void
advance(struct cm_bed *b, uint64_t ns)
{
	uint64_t end = b->cm->now_ns + ns, next;

	for (;;) {
		next = karst_cm_next_ns(b->cm);
		if (next > end)
			break;
		if (next > b->cm->now_ns)
			b->cm->now_ns = next;
		karst_cm_expire(b->cm, 1);
		check(b);
	}
	b->cm->now_ns = end;
	check(b);
}

/* --- the peer's messages --- */

struct karst_cm_msg
peer_req(const struct cm_bed *b, uint32_t n)
{
	struct karst_cm_msg m = {.kind = KARST_CM_REQ, .tid = TID + n, .local_id = PEER_ID + n};

	m.req.service_id = SERVICE;
	m.req.guid = PEER_GUID;
	m.req.qpn = PEER_QPN + n;
	m.req.psn = 0x123456;
	m.req.pkey = 0xffff;
	m.req.mtu = 3;
	m.req.responder_resources = 16;
	m.req.initiator_depth = 8;
	m.req.remote_response_timeout = 20;
	m.req.local_response_timeout = 18;
	m.req.max_retries = 3;
	m.req.retry_count = 7;
	m.req.rnr_retry_count = 5;
	memcpy(m.req.primary.local_gid, b->path.remote_ip, 16);
	memcpy(m.req.primary.remote_gid, b->path.local_ip, 16);
	m.req.primary.hop_limit = 64;
	m.req.primary.ack_timeout = 17;
	m.req.primary.tclass = 0x20;
	m.private_data = (const uint8_t *)"from the peer";
	m.private_data_len = 13;
	return m;
}

struct karst_cm_msg
peer_msg(enum karst_cm_kind kind, uint32_t id, const struct cm_bed_msg *about, uint32_t n)
{
	struct karst_cm_msg m = {.kind = kind,
		.tid = about != NULL ? about->m.tid : TID + n,
		.local_id = PEER_ID + n,
		.remote_id = id};

	return m;
}

struct karst_cm_msg
peer_rep(const struct cm_bed_msg *req, uint32_t n)
{
	struct karst_cm_msg m = peer_msg(KARST_CM_REP, req->m.local_id, req, n);

	m.rep.guid = PEER_GUID;
	m.rep.qpn = PEER_QPN + n;
	m.rep.psn = 0x777777;
	m.rep.responder_resources = 2;
	m.rep.initiator_depth = 1;
	m.rep.rnr_retry_count = 7;
	m.rep.target_ack_delay = 15;
	m.private_data = (const uint8_t *)"welcome";
	m.private_data_len = 7;
	return m;
}

struct karst_cm_msg
peer_dreq(uint32_t id, uint32_t n)
{
	struct karst_cm_msg m = peer_msg(KARST_CM_DREQ, id, NULL, n);

	m.tid = 0x9999 + n;
	m.dreq.qpn = OUR_QPN + n;
	return m;
}

struct karst_cm_path
alternate_path(const struct cm_bed *b)
{
	struct karst_cm_path path = b->path;

	put_ip(path.local_ip, 101);
	put_ip(path.remote_ip, 102);
	path.flow_label = 0xabcde;
	path.tclass = 0x40;
	path.hop_limit = 32;
	path.sl = 3;
	path.rate = 7;
	path.ack_timeout = 18;
	return path;
}

struct karst_cm_msg
peer_lap(const struct cm_bed *b, uint32_t id, uint32_t n)
{
	struct karst_cm_msg m = peer_msg(KARST_CM_LAP, id, NULL, n);
	struct karst_cm_path path = alternate_path(b);

	m.tid = 0x7777 + n;
	m.lap.qpn = OUR_QPN + n;
	memcpy(m.lap.alternate.local_gid, path.remote_ip, 16);
	memcpy(m.lap.alternate.remote_gid, path.local_ip, 16);
	m.lap.alternate.flow_label = path.flow_label;
	m.lap.alternate.tclass = path.tclass;
	m.lap.alternate.hop_limit = path.hop_limit;
	m.lap.alternate.sl = path.sl;
	m.lap.alternate.rate = path.rate;
	m.lap.alternate.ack_timeout = path.ack_timeout;
	m.private_data = (const uint8_t *)"another way";
	m.private_data_len = 11;
	return m;
}

/* --- expectations --- */

struct cm_bed_msg *
cm_bed_msg_at(struct cm_bed *b, enum karst_cm_kind kind, int line)
{
	struct cm_bed_msg *out = &b->out[b->out_head % BED_QUEUE];

	cr_assert_neq(b->out_head, b->out_tail, "line %d: nothing was sent, expected %s", line,
		karst_cm_kind_name(kind));
	cr_assert_eq(out->m.kind, kind, "line %d: sent was %s, expected %s", line,
		karst_cm_kind_name(out->m.kind), karst_cm_kind_name(kind));
	b->out_head++;
	return out;
}

const struct karst_cm_ev *
cm_bed_ev_at(struct cm_bed *b, enum karst_cm_ev_code code, int line)
{
	const struct cm_bed_ev *e = &b->evs[b->ev_head % BED_QUEUE];

	cr_assert_neq(b->ev_head, b->ev_tail, "line %d: no event, expected %d", line, code);
	cr_assert_eq(e->ev.code, code, "line %d: event %d, expected %d", line, e->ev.code, code);
	b->ev_head++;
	return &e->ev;
}

void
cm_bed_no_msg_at(struct cm_bed *b, int line)
{
	cr_assert_eq(b->out_head, b->out_tail, "line %d: %s was sent", line,
		karst_cm_kind_name(b->out[b->out_head % BED_QUEUE].m.kind));
}

void
cm_bed_no_ev_at(struct cm_bed *b, int line)
{
	cr_assert_eq(b->ev_head, b->ev_tail, "line %d: event %d", line,
		b->evs[b->ev_head % BED_QUEUE].ev.code);
}

/* --- ways to a state --- */

uint32_t
cm_bed_listen(struct cm_bed *b)
{
	uint32_t id;

	cr_assert_eq(karst_cm_id_listen(b->cm, SERVICE, UINT64_MAX, BED_LISTENER, &id), 0);
	return id;
}

uint32_t
cm_bed_req_rcvd(struct cm_bed *b, uint32_t n)
{
	send_msg(b, peer_req(b, n));
	return expect_ev(b, REQ)->id;
}

uint32_t
cm_bed_rep_sent(struct cm_bed *b, uint32_t n)
{
	uint32_t id = cm_bed_req_rcvd(b, n);

	b->param.qpn = OUR_QPN + n;
	cr_assert_eq(karst_cm_id_set_user(b->cm, id, BED_USER), 0);
	cr_assert_eq(karst_cm_id_accept(b->cm, id, &b->param), 0);
	expect_msg(b, REP);
	return id;
}

uint32_t
cm_bed_passive(struct cm_bed *b, uint32_t n)
{
	uint32_t id = cm_bed_rep_sent(b, n);

	send_msg(b, peer_msg(KARST_CM_RTU, id, NULL, n));
	expect_ev(b, RTU);
	return id;
}

uint32_t
cm_bed_req_sent(struct cm_bed *b, uint32_t n, struct cm_bed_msg *req)
{
	uint32_t id;

	b->param.qpn = OUR_QPN + n;
	cr_assert_eq(karst_cm_id_connect(b->cm, &b->path, SERVICE, &b->param, BED_USER, &id), 0);
	*req = *expect_msg(b, REQ);
	return id;
}

uint32_t
cm_bed_rep_rcvd(struct cm_bed *b, uint32_t n, struct cm_bed_msg *req)
{
	uint32_t id = cm_bed_req_sent(b, n, req);

	send_msg(b, peer_rep(req, n));
	expect_ev(b, REP);
	return id;
}

uint32_t
cm_bed_active(struct cm_bed *b, uint32_t n)
{
	struct cm_bed_msg req;
	uint32_t id = cm_bed_rep_rcvd(b, n, &req);

	cr_assert_eq(karst_cm_id_ready(b->cm, id, NULL, 0), 0);
	expect_msg(b, RTU);
	return id;
}

enum karst_cm_state
state_of(struct cm_bed *b, uint32_t id)
{
	struct karst_cm_info info;

	cr_assert_eq(karst_cm_id_info(b->cm, id, &info), 0);
	return info.state;
}
