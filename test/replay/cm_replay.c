/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The management datagrams of a capture and lib/cm (U2, C1, C2): karst takes the place of one side.
 *
 * What the peer sent is received, and must raise the corresponding event.  Whenever the captured
 * side sent a message, the test's user makes the corresponding call of karst, and what karst sends
 * has to be the same message in every field, except for the communication ids and the transaction
 * ids that each side chooses itself.  Messages that the captured side sent without its user (a REJ
 * where there is no listener) must be sent by karst on its own.
 */
#include <stdlib.h>

#include "cm_fields.h"
#include "karst_cm.h"
#include "replay.h"

#define QUEUE 64u

struct event {
	enum karst_cm_ev_code code;
	uint32_t id;
	uint32_t qpn;
	uint32_t psn;
	uint8_t private_data[256];
	uint8_t len;
};

/* Ids that the captured side used, and karst's in their place. */
struct name {
	uint64_t captured;
	uint64_t ours;
};

struct side {
	struct rp_report *r;
	const struct rp_capture *c;
	unsigned int us;
	struct karst_cm *cm;
	void *memory;
	uint8_t out[QUEUE][KARST_CM_MAD_LEN];
	unsigned int out_head, out_tail;
	struct event ev[QUEUE];
	unsigned int ev_head, ev_tail;
	struct name ids[QUEUE];
	unsigned int nids;
	struct name tids[QUEUE];
	unsigned int ntids;
	bool crossed; /* both sides disconnected at once */
};

/* --- what lib/cm reports --- */

static void
on_send(void *user, const struct karst_cm_path *path, const uint8_t *mad)
{
	struct side *t = user;

	(void)path;
	memcpy(t->out[t->out_tail++ % QUEUE], mad, KARST_CM_MAD_LEN);
}

static void
on_event(void *user, const struct karst_cm_ev *ev)
{
	struct side *t = user;
	struct event *e = &t->ev[t->ev_tail++ % QUEUE];

	*e = (struct event){.code = ev->code,
		.id = ev->id,
		.qpn = ev->remote.qpn,
		.psn = ev->remote.psn,
		.len = ev->remote.private_data_len};
	if (e->len != 0)
		memcpy(e->private_data, ev->remote.private_data, e->len);
}

static const struct karst_cm_ops cm_ops = {on_send, on_event};

/* --- ids --- */

static uint64_t
named(const struct name *all, unsigned int n, uint64_t captured)
{
	while (n-- != 0) {
		if (all[n].captured == captured)
			return all[n].ours;
	}
	return captured;
}

static void
name(struct name *all, unsigned int *n, uint64_t captured, uint64_t ours)
{
	all[(*n)++ % QUEUE] = (struct name){captured, ours};
}

static uint32_t
our_id(const struct side *t, const struct karst_cm_msg *captured)
{
	return (uint32_t)named(t->ids, t->nids, captured->local_id);
}

/* --- messages of the peer --- */

static void
cm_put_ip(uint8_t to[16], const uint8_t *from, bool ip6)
{
	memset(to, 0, 16);
	if (!ip6)
		to[10] = to[11] = 0xff;
	memcpy(to + (ip6 ? 0 : 12), from, ip6 ? 16 : 4);
}

/* The event that corresponds to a message of the peer; 0: none. */
static enum karst_cm_ev_code
event_of(enum karst_cm_kind kind)
{
	switch (kind) {
	case KARST_CM_REQ:
		return KARST_CM_EV_REQ;
	case KARST_CM_REP:
		return KARST_CM_EV_REP;
	case KARST_CM_RTU:
		return KARST_CM_EV_RTU;
	case KARST_CM_REJ:
		return KARST_CM_EV_REJ;
	case KARST_CM_DREQ:
		return KARST_CM_EV_DREQ;
	case KARST_CM_DREP:
		return KARST_CM_EV_DREP;
	case KARST_CM_SIDR_REQ:
		return KARST_CM_EV_SIDR_REQ;
	case KARST_CM_SIDR_REP:
		return KARST_CM_EV_SIDR_REP;
	default:
		return 0;
	}
}

static void
check_event(struct side *t, const struct rp_frame *f, const struct karst_cm_msg *m)
{
	const struct event *e = &t->ev[(t->ev_tail - 1) % QUEUE];
	enum karst_cm_ev_code want = event_of(m->kind);

	t->r->compared++;
	/* a DREQ that crosses ours ends the connection like a DREP */
	if (t->crossed && m->kind == KARST_CM_DREQ)
		want = KARST_CM_EV_DREP;
	if (e->code != want)
		rp_problem(t->r, "frame %u: %s raised event %d", f->number,
			karst_cm_kind_name(m->kind), e->code);
	else if (e->len != m->private_data_len ||
		memcmp(e->private_data, m->private_data, e->len) != 0)
		rp_problem(t->r, "frame %u: other private data", f->number);
	else if ((m->kind == KARST_CM_REQ && (e->qpn != m->req.qpn || e->psn != m->req.psn)) ||
		(m->kind == KARST_CM_REP && (e->qpn != m->rep.qpn || e->psn != m->rep.psn)) ||
		(m->kind == KARST_CM_SIDR_REP && e->qpn != m->sidr_rep.qpn))
		rp_problem(t->r, "frame %u: another queue pair or PSN", f->number);
}

/* Whether the captured side answers a message with that transaction by a REJ. */
static bool
is_refused(const struct side *t, uint64_t tid)
{
	struct karst_cm_msg m;
	unsigned int i;

	for (i = 0; i < t->c->n; i++) {
		const struct rp_frame *f = &t->c->frames[i];

		if (f->from == t->us && f->f.ib.dqpn == KARST_CM_QPN &&
			karst_cm_msg_parse(f->f.ib.pay, f->f.ib.pay_len, &m) == KARST_CM_PARSE_OK &&
			m.kind == KARST_CM_REJ && m.tid == tid)
			return true;
	}
	return false;
}

static void
comes(struct side *t, const struct rp_frame *f, struct karst_cm_msg *m)
{
	struct karst_cm_path seen = {.pkey = 0xffff, .hop_limit = 64, .mtu = 3};
	uint64_t tid = m->tid;
	uint8_t mad[KARST_CM_MAD_LEN];
	unsigned int events = t->ev_tail;

	cm_put_ip(seen.local_ip, f->f.daddr, f->f.ip6);
	cm_put_ip(seen.remote_ip, f->f.saddr, f->f.ip6);
	m->tid = named(t->tids, t->ntids, m->tid);
	if (m->kind == KARST_CM_SIDR_REP)
		m->local_id = (uint32_t)named(t->ids, t->nids, m->local_id);
	else
		m->remote_id = (uint32_t)named(t->ids, t->nids, m->remote_id);
	if (karst_cm_msg_build(m, mad) != 0)
		rp_problem(t->r, "frame %u: cannot be built again", f->number);
	karst_cm_rx(t->cm, &seen, mad, sizeof(mad));
	if (t->r->verbose)
		printf("# -> %s (frame %u)\n", karst_cm_kind_name(m->kind), f->number);
	if (t->ev_tail != events)
		check_event(t, f, m);
	else if (!is_refused(t, tid) && !(t->crossed && m->kind == KARST_CM_DREP))
		rp_problem(t->r, "frame %u: %s raised no event", f->number,
			karst_cm_kind_name(m->kind));
}

/* --- calls of the user --- */

static struct karst_cm_path
cm_path(const struct rp_frame *f, const struct karst_cm_wire_path *w)
{
	struct karst_cm_path p = {.pkey = 0xffff, .hop_limit = 64, .mtu = 3};

	cm_put_ip(p.local_ip, f->f.saddr, f->f.ip6);
	cm_put_ip(p.remote_ip, f->f.daddr, f->f.ip6);
	if (w == NULL)
		return p;
	memcpy(p.local_ip, w->local_gid, 16);
	memcpy(p.remote_ip, w->remote_gid, 16);
	p.flow_label = w->flow_label;
	p.tclass = w->tclass;
	p.hop_limit = w->hop_limit;
	p.sl = w->sl;
	p.rate = w->rate;
	p.ack_timeout = w->ack_timeout;
	return p;
}

static int
connect_as(struct side *t, const struct rp_frame *f, const struct karst_cm_msg *m, uint32_t *id)
{
	struct karst_cm_path path = cm_path(f, &m->req.primary);
	struct karst_cm_param p = {
		.qp_type = m->req.transport == KARST_CM_TRANSPORT_UC ? KARST_QPT_UC : KARST_QPT_RC,
		.flow_control = m->req.flow_control,
		.srq = m->req.srq,
		.responder_resources = m->req.responder_resources,
		.initiator_depth = m->req.initiator_depth,
		.retry_count = m->req.retry_count,
		.rnr_retry_count = m->req.rnr_retry_count,
		.qpn = m->req.qpn,
		.psn = m->req.psn,
		.private_data = m->private_data,
		.private_data_len = m->private_data_len};

	path.mtu = m->req.mtu;
	path.pkey = m->req.pkey;
	return karst_cm_id_connect(t->cm, &path, m->req.service_id, &p, NULL, id);
}

/* Events of the captured side's user that are not answered yet: takes the oldest with @code. */
static uint32_t
take_event(struct side *t, enum karst_cm_ev_code code)
{
	unsigned int i;

	for (i = t->ev_head; i != t->ev_tail; i++) {
		struct event *e = &t->ev[i % QUEUE];

		if (e->code == code) {
			e->code = 0;
			return e->id;
		}
	}
	return 0;
}

static int
accept_as(struct side *t, const struct karst_cm_msg *m, uint32_t *id)
{
	struct karst_cm_param p = {.qp_type = KARST_QPT_RC,
		.flow_control = m->rep.flow_control,
		.srq = m->rep.srq,
		.responder_resources = m->rep.responder_resources,
		.initiator_depth = m->rep.initiator_depth,
		.rnr_retry_count = m->rep.rnr_retry_count,
		.qpn = m->rep.qpn,
		.psn = m->rep.psn,
		.private_data = m->private_data,
		.private_data_len = m->private_data_len};

	*id = take_event(t, KARST_CM_EV_REQ);
	return karst_cm_id_accept(t->cm, *id, &p);
}

static int
sidr_reply_as(struct side *t, const struct karst_cm_msg *m)
{
	struct karst_cm_param p = {.qp_type = KARST_QPT_UD,
		.qpn = m->sidr_rep.qpn,
		.qkey = m->sidr_rep.qkey,
		.private_data = m->private_data,
		.private_data_len = m->private_data_len};

	return karst_cm_id_sidr_reply(
		t->cm, take_event(t, KARST_CM_EV_SIDR_REQ), m->sidr_rep.status, &p);
}

static int
act(struct side *t, const struct rp_frame *f, const struct karst_cm_msg *m)
{
	struct karst_cm_path path = cm_path(f, NULL);
	uint32_t id = our_id(t, m);
	int rc = 0;

	switch (m->kind) {
	case KARST_CM_REQ:
		rc = connect_as(t, f, m, &id);
		name(t->ids, &t->nids, m->local_id, id);
		break;
	case KARST_CM_REP:
		rc = accept_as(t, m, &id);
		name(t->ids, &t->nids, m->local_id, id);
		break;
	case KARST_CM_RTU:
		rc = karst_cm_id_ready(t->cm, id, m->private_data, m->private_data_len);
		break;
	case KARST_CM_DREQ:
		rc = karst_cm_id_disconnect(t->cm, id, m->private_data, m->private_data_len);
		break;
	case KARST_CM_DREP:
		/* where the two crossed, no call is made */
		if (take_event(t, KARST_CM_EV_DREQ) != 0)
			rc = karst_cm_id_disconnect_reply(
				t->cm, id, m->private_data, m->private_data_len);
		break;
	case KARST_CM_SIDR_REQ:
		path.pkey = m->sidr_req.pkey;
		rc = karst_cm_id_sidr_request(t->cm, &path, m->sidr_req.service_id, m->private_data,
			m->private_data_len, NULL, &id);
		name(t->ids, &t->nids, m->local_id, id);
		break;
	case KARST_CM_SIDR_REP:
		rc = sidr_reply_as(t, m);
		break;
	default:
		break; /* a REJ is sent without a call */
	}
	return rc;
}

static void
goes(struct side *t, const struct rp_frame *f, struct karst_cm_msg *m)
{
	struct karst_cm_msg ours;
	int rc = act(t, f, m);

	if (t->r->verbose)
		printf("# <- %s (frame %u)\n", karst_cm_kind_name(m->kind), f->number);
	if (rc != 0 || t->out_head == t->out_tail) {
		rp_problem(t->r, "frame %u: %s is not sent (%s)", f->number,
			karst_cm_kind_name(m->kind), strerror(-rc));
		return;
	}
	if (karst_cm_msg_parse(t->out[t->out_head++ % QUEUE], KARST_CM_MAD_LEN, &ours) !=
		KARST_CM_PARSE_OK) {
		rp_problem(t->r, "frame %u: karst's message is malformed", f->number);
		return;
	}
	if (m->kind == KARST_CM_REQ || m->kind == KARST_CM_DREQ || m->kind == KARST_CM_SIDR_REQ)
		name(t->tids, &t->ntids, m->tid, ours.tid);
	m->tid = named(t->tids, t->ntids, m->tid);
	m->local_id = (uint32_t)named(t->ids, t->nids, m->local_id);
	rp_compare_cm(t->r, f->number, &ours, m);
}

/* --- a side --- */

/* Listens for the services for which the captured side listened: those that it did not refuse. */
static void
listen_as(struct side *t)
{
	struct karst_cm_msg m;
	unsigned int i;
	uint32_t id;

	for (i = 0; i < t->c->n; i++) {
		const struct rp_frame *f = &t->c->frames[i];

		if (f->from == t->us || f->f.ib.dqpn != KARST_CM_QPN ||
			karst_cm_msg_parse(f->f.ib.pay, f->f.ib.pay_len, &m) != KARST_CM_PARSE_OK ||
			is_refused(t, m.tid))
			continue;
		if (m.kind == KARST_CM_REQ)
			karst_cm_id_listen(t->cm, m.req.service_id, UINT64_MAX, NULL, &id);
		if (m.kind == KARST_CM_SIDR_REQ)
			karst_cm_id_listen(t->cm, m.sidr_req.service_id, UINT64_MAX, NULL, &id);
	}
}

/* The GUID is configured, and not karst's choice. */
static uint64_t
guid_of(const struct rp_capture *c, unsigned int us)
{
	struct karst_cm_msg m;
	unsigned int i;

	for (i = 0; i < c->n; i++) {
		const struct rp_frame *f = &c->frames[i];

		if (f->from != us || f->f.ib.dqpn != KARST_CM_QPN ||
			karst_cm_msg_parse(f->f.ib.pay, f->f.ib.pay_len, &m) != KARST_CM_PARSE_OK)
			continue;
		if (m.kind == KARST_CM_REQ)
			return m.req.guid;
		if (m.kind == KARST_CM_REP)
			return m.rep.guid;
	}
	return 1;
}

/* Whether both sides have sent DREQs, each before the other's was received. */
static bool
cross(const struct rp_frame *f, const struct rp_frame *g)
{
	struct karst_cm_msg m, n;

	return f->from != g->from && g->f.ib.dqpn == KARST_CM_QPN &&
		karst_cm_msg_parse(f->f.ib.pay, f->f.ib.pay_len, &m) == KARST_CM_PARSE_OK &&
		karst_cm_msg_parse(g->f.ib.pay, g->f.ib.pay_len, &n) == KARST_CM_PARSE_OK &&
		m.kind == KARST_CM_DREQ && n.kind == KARST_CM_DREQ && m.local_id == n.remote_id;
}

static void
side_play(struct side *t, const struct rp_frame *f)
{
	struct karst_cm_msg m;

	t->cm->now_ns = karst_max_u64(t->cm->now_ns, f->ns);
	karst_cm_expire(t->cm, 100);
	if (karst_cm_msg_parse(f->f.ib.pay, f->f.ib.pay_len, &m) != KARST_CM_PARSE_OK)
		rp_problem(t->r, "frame %u: no message of connection management", f->number);
	else if (f->from == t->us)
		goes(t, f, &m);
	else
		comes(t, f, &m);
}

unsigned int
rp_cm(struct rp_report *r, const struct rp_capture *c, unsigned int us)
{
	struct side *t = calloc(1, sizeof(*t));
	struct karst_cm_config cfg = {.max_ids = 64,
		.guid = guid_of(c, us),
		.secret = {3},
		.target_ack_delay = KARST_CA_ACK_DELAY,
		.ops = &cm_ops,
		.user = t};
	unsigned int i, n = 0;

	t->r = r;
	t->c = c;
	t->us = us;
	t->memory = aligned_alloc(64, (karst_cm_bytes(&cfg) + 63) & ~(size_t)63);
	if (karst_cm_init(t->memory, &cfg, c->frames[0].ns, &t->cm) != 0)
		abort();
	listen_as(t);
	for (i = 0; i < c->n; i++) {
		const struct rp_frame *f = &c->frames[i];

		if (f->f.ib.dqpn != KARST_CM_QPN)
			continue;
		n++;
		if (i + 1 < c->n && cross(f, f + 1)) {
			/* ours first: it was sent before the peer's had arrived */
			t->crossed = true;
			side_play(t, f->from == us ? f : f + 1);
			side_play(t, f->from == us ? f + 1 : f);
			i++;
			n++;
		} else {
			side_play(t, f);
		}
	}
	if (t->out_head != t->out_tail)
		rp_problem(r, "%u messages too many, the first: %s", t->out_tail - t->out_head,
			karst_cm_kind_name(karst_cm_mad_kind(t->out[t->out_head % QUEUE])));
	free(t->memory);
	free(t);
	return n;
}
