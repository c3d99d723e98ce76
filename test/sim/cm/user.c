/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The users of both ends of every connection, and the oracle (C1, C2).
 *
 * The events that an end may get depend on its state and on what the other end has done: an RTU
 * only if the other end has called ready, a DREQ only if the other end disconnects or is destroyed,
 * and every event at most once.  The private data contains the connection's index, side and
 * message, so that it can be compared with the expected data.
 *
 * Each end offers selective repeat or does not (X1): what both say about it by ECE (C3) must lead
 * to the same agreement, whatever was lost or duplicated.
 */
#include "sim_cm.h"

/* --- drawing --- */

static void
draw_end(struct world *w, struct end *e, uint32_t qpn)
{
	struct sim_rng *r = &w->rng;

	e->node = rng_below(r, w->nnodes);
	e->qpn = qpn;
	e->psn = rng_below(r, 1u << 24);
	e->answer = rng_one_in(r, 4) ? rng_range(r, REJECT, DESTROY) : AGREE;
	e->answer_ns =
		rng_one_in(r, 2) ? 0 : rng_u64(r) % (w->profile == LOSSLESS ? 100 * MS : 400 * MS);
	e->mra = rng_one_in(r, 4);
	e->disconnects = rng_one_in(r, 2);
	e->ends_by_destroy = rng_one_in(r, 4);
	e->stay_ns = rng_one_in(r, 4) ? 0 : rng_u64(r) % (5 * SECOND);
	e->act_at = NEVER;
}

void
user_draw(struct world *w)
{
	struct conn *c;
	uint32_t i;

	w->nconns = rng_range(&w->rng, 1, CONNS);
	for (i = 0; i < w->nconns; i++) {
		c = &w->conns[i];
		c->sidr = rng_one_in(&w->rng, 5);
		c->unheard = rng_one_in(&w->rng, 10);
		draw_end(w, &c->active, 0x100 + 2 * i);
		draw_end(w, &c->passive, 0x101 + 2 * i);
		if (!c->active.disconnects && !c->passive.disconnects)
			c->active.disconnects = true;
		c->active.act_at = w->now_ns + rng_u64(&w->rng) % (3 * SECOND);
	}
}

/* --- private data --- */

struct note {
	uint32_t conn;
	uint8_t passive;
	uint8_t kind; /* enum karst_cm_kind */
	uint16_t check;
};

static struct note
note_of(const struct world *w, const struct conn *c, bool passive, enum karst_cm_kind kind)
{
	struct note n = {.conn = (uint32_t)(c - w->conns),
		.passive = passive,
		.kind = (uint8_t)kind,
		.check = 0xc5};

	return n;
}

static void
expect_note(struct world *w, const struct conn *c, bool passive, enum karst_cm_kind kind,
	const struct karst_cm_ev *ev)
{
	struct note want = note_of(w, c, passive, kind);

	REQUIRE(w, ev->remote.private_data_len == karst_cm_private_max(kind),
		"private data of %s are %u bytes", karst_cm_kind_name(kind),
		ev->remote.private_data_len);
	REQUIRE(w,
		ev->remote.private_data_len >= sizeof(want) &&
			memcmp(ev->remote.private_data, &want, sizeof(want)) == 0,
		"private data of %s are not those that were sent", karst_cm_kind_name(kind));
}

/* --- what users do --- */

static bool
is_passive(const struct conn *c, const struct end *e)
{
	return e == &c->passive;
}

static void
did(struct world *w, const struct conn *c, const struct end *e, const char *what, int ret)
{
	if (w->verbose)
		printf("%12.6f  conn %u %s: %s = %d\n", (double)w->now_ns / 1e9,
			(unsigned int)(c - w->conns), is_passive(c, e) ? "passive" : "active", what,
			ret);
	REQUIRE(w, ret == 0, "%s in step %d: %d", what, e->step, ret);
}

static void
destroy(struct world *w, const struct conn *c, struct end *e)
{
	e->did_destroy = true;
	e->act_at = NEVER;
	did(w, c, e, "destroy", karst_cm_id_destroy(w->cm[e->node], e->id));
	e->step = GONE;
}

static uint32_t
abilities(const struct end *e)
{
	return e->psn & 1 ? KARST_CM_ECE_REPEAT : 0;
}

static struct karst_cm_ece
offer_of(const struct conn *c)
{
	static const struct karst_cm_ece none;

	return abilities(&c->active) != 0 ? karst_cm_ece_offer(abilities(&c->active), ECE_WINDOW)
					  : none;
}

static struct karst_cm_param
param_of(const struct end *e, const struct note *n)
{
	struct karst_cm_param p = {.qp_type = KARST_QPT_RC,
		.responder_resources = (uint8_t)(e->psn & 15),
		.initiator_depth = (uint8_t)(e->psn >> 4 & 15),
		.retry_count = 7,
		.rnr_retry_count = (uint8_t)(e->psn >> 8 & 7),
		.qpn = e->qpn,
		.psn = e->psn,
		.qkey = e->psn,
		.private_data = n,
		.private_data_len = sizeof(*n)};

	return p;
}

static void
act_connect(struct world *w, struct conn *c, struct end *e)
{
	struct note n = note_of(w, c, false, c->sidr ? KARST_CM_SIDR_REQ : KARST_CM_REQ);
	struct karst_cm_param p = param_of(e, &n);
	struct karst_cm_path path = {
		.flow_label = 77, .pkey = 0xffff, .hop_limit = 64, .mtu = 3, .ack_timeout = 19};
	uint64_t service = SERVICE + 2 * (uint64_t)(c - w->conns) + c->unheard;
	int ret;

	p.ece = offer_of(c);
	node_address(e->node, path.local_ip);
	node_address(c->passive.node, path.remote_ip);
	e->step = CONNECTING;
	e->act_at = NEVER;
	if (c->sidr)
		ret = karst_cm_id_sidr_request(
			w->cm[e->node], &path, service, &n, sizeof(n), e, &e->id);
	else
		ret = karst_cm_id_connect(w->cm[e->node], &path, service, &p, e, &e->id);
	did(w, c, e, c->sidr ? "sidr_request" : "connect", ret);
}

static void
act_asked(struct world *w, struct conn *c, struct end *e)
{
	struct note n = note_of(w, c, true, c->sidr ? KARST_CM_SIDR_REP : KARST_CM_REP);
	struct note why = note_of(w, c, true, KARST_CM_REJ);
	struct karst_cm_param p = param_of(e, &n);
	struct karst_cm *cm = w->cm[e->node];

	p.ece = karst_cm_ece_answer(&c->asked, abilities(e), ECE_WINDOW);
	if (e->answer == DESTROY) {
		destroy(w, c, e);
		return;
	}
	if (c->sidr) {
		did(w, c, e, "sidr_reply",
			karst_cm_id_sidr_reply(cm, e->id,
				e->answer == REJECT ? KARST_CM_SIDR_REJECT : KARST_CM_SIDR_SUCCESS,
				&p));
		e->step = OVER;
		e->act_at = w->now_ns + e->stay_ns;
		return;
	}
	if (e->answer == REJECT) {
		e->did_reject = true;
		e->step = OVER;
		e->act_at = w->now_ns + e->stay_ns;
		did(w, c, e, "reject",
			karst_cm_id_reject(cm, e->id, KARST_CM_REJ_CONSUMER_DEFINED, NULL, 0, &why,
				sizeof(why)));
		return;
	}
	e->step = ACCEPTED;
	e->act_at = NEVER;
	did(w, c, e, "accept", karst_cm_id_accept(cm, e->id, &p));
}

/* An alternate path that no connection uses, and that identifies its connection and end. */
static struct karst_cm_path
path_offered(const struct world *w, const struct conn *c, const struct end *e)
{
	const struct end *other = is_passive(c, e) ? &c->active : &c->passive;
	struct karst_cm_path path = {.pkey = 0xffff, .hop_limit = 9, .mtu = 3, .ack_timeout = 19};

	path.flow_label = 1000 + 2 * (uint32_t)(c - w->conns) + is_passive(c, e);
	node_address(e->node, path.local_ip);
	node_address(other->node, path.remote_ip);
	return path;
}

static void
act_lap(struct world *w, const struct conn *c, struct end *e)
{
	struct note n = note_of(w, c, is_passive(c, e), KARST_CM_LAP);
	struct karst_cm_path path = path_offered(w, c, e);

	e->did_lap = true;
	did(w, c, e, "lap", karst_cm_id_lap(w->cm[e->node], e->id, &path, &n, sizeof(n)));
}

static void
act_established(struct world *w, const struct conn *c, struct end *e)
{
	if ((e->psn >> 11 & 3) == 0)
		act_lap(w, c, e);
	if (e->disconnects)
		e->act_at = w->now_ns + e->stay_ns;
	else
		e->act_at = NEVER;
}

static void
act_answered(struct world *w, struct conn *c, struct end *e)
{
	struct note n = note_of(w, c, false, KARST_CM_RTU);
	struct note why = note_of(w, c, false, KARST_CM_REJ);
	struct karst_cm *cm = w->cm[e->node];

	if (e->answer == DESTROY) {
		destroy(w, c, e);
	} else if (e->answer == REJECT) {
		e->did_reject = true;
		e->step = OVER;
		e->act_at = w->now_ns + e->stay_ns;
		did(w, c, e, "reject",
			karst_cm_id_reject(cm, e->id, KARST_CM_REJ_CONSUMER_DEFINED, NULL, 0, &why,
				sizeof(why)));
	} else {
		e->did_ready = true;
		e->step = ESTABLISHED;
		did(w, c, e, "ready", karst_cm_id_ready(cm, e->id, &n, sizeof(n)));
		act_established(w, c, e);
	}
}

static void
act_end(struct world *w, const struct conn *c, struct end *e)
{
	struct note n = note_of(w, c, is_passive(c, e), KARST_CM_DREQ);

	e->did_disconnect = true;
	if (e->ends_by_destroy) {
		destroy(w, c, e);
		return;
	}
	e->step = DISCONNECTING;
	e->act_at = NEVER;
	did(w, c, e, "disconnect", karst_cm_id_disconnect(w->cm[e->node], e->id, &n, sizeof(n)));
}

static void
act_reply(struct world *w, const struct conn *c, struct end *e)
{
	struct note n = note_of(w, c, is_passive(c, e), KARST_CM_DREP);

	e->did_reply = true;
	if (e->ends_by_destroy) {
		destroy(w, c, e);
		return;
	}
	e->step = ENDED;
	e->act_at = NEVER;
	did(w, c, e, "disconnect_reply",
		karst_cm_id_disconnect_reply(w->cm[e->node], e->id, &n, sizeof(n)));
}

static void
act(struct world *w, struct conn *c, struct end *e)
{
	w->cm[e->node]->now_ns = w->now_ns;
	switch (e->step) {
	case NOT_YET:
		act_connect(w, c, e);
		break;
	case ASKED:
		act_asked(w, c, e);
		break;
	case ANSWERED:
		act_answered(w, c, e);
		break;
	case ESTABLISHED:
		act_end(w, c, e);
		break;
	case TOLD_TO_END:
		act_reply(w, c, e);
		break;
	default:
		destroy(w, c, e);
		break;
	}
}

uint64_t
user_next(const struct world *w)
{
	uint64_t at = NEVER;
	uint32_t i;

	for (i = 0; i < w->nconns; i++) {
		at = karst_min_u64(at, w->conns[i].active.act_at);
		at = karst_min_u64(at, w->conns[i].passive.act_at);
	}
	return at;
}

void
user_act(struct world *w)
{
	uint32_t i;

	for (i = 0; i < w->nconns; i++) {
		if (w->conns[i].active.act_at <= w->now_ns)
			act(w, &w->conns[i], &w->conns[i].active);
		if (w->conns[i].passive.act_at <= w->now_ns)
			act(w, &w->conns[i], &w->conns[i].passive);
	}
}

/* --- events that users get --- */

/* The user waits before its next action. */
static void
think(struct world *w, const struct conn *c, struct end *e)
{
	e->act_at = w->now_ns + e->answer_ns;
	if (e->mra && e->answer_ns > 0 && !c->sidr && (e->step == ASKED || e->step == ANSWERED))
		did(w, c, e, "mra", karst_cm_id_mra(w->cm[e->node], e->id, 20, NULL, 0));
}

static void
over(struct world *w, struct end *e)
{
	e->step = OVER;
	e->act_at = w->now_ns + e->stay_ns;
}

/* Checks that a connection is given up only on bad links. */
static void
gave_up(struct world *w, struct end *e, const char *what)
{
	REQUIRE(w, w->profile == BRUTAL, "%s though the link is good enough", what);
	e->did_give_up = true;
}

/* A new id: it must belong to a connection that was started and for which no user was asked yet. */
static void
told_req(struct world *w, uint32_t node, const struct karst_cm_ev *ev, bool sidr)
{
	const struct note *n = ev->remote.private_data;
	uint32_t index = n->conn;
	struct conn *c;
	uint8_t ip[16];

	if (index >= w->nconns) {
		violated(w, "a REQ of connection %u, which is none", index);
		return;
	}
	c = &w->conns[index];
	REQUIRE(w, c->sidr == sidr && c->passive.node == node && !c->unheard,
		"conn %u: REQ at node %u", index, node);
	REQUIRE(w, c->passive.step == NOT_YET, "conn %u: asked again", index);
	REQUIRE(w, c->active.step != NOT_YET, "conn %u: asked before it began", index);
	expect_note(w, c, false, sidr ? KARST_CM_SIDR_REQ : KARST_CM_REQ, ev);
	REQUIRE(w, ev->listen_id == w->listener[node], "conn %u: not its listener", index);
	REQUIRE(w, ev->service_id == SERVICE + 2 * index, "conn %u: service id", index);
	node_address(c->active.node, ip);
	REQUIRE(w, memcmp(ev->path->remote_ip, ip, 16) == 0, "conn %u: address", index);
	if (!sidr)
		REQUIRE(w,
			ev->remote.qpn == c->active.qpn && ev->remote.psn == c->active.psn &&
				ev->remote.responder_resources == (c->active.psn >> 4 & 15) &&
				ev->remote.initiator_depth == (c->active.psn & 15) &&
				ev->remote.rnr_retry_count == (c->active.psn >> 8 & 7) &&
				ev->remote.ece.vendor == offer_of(c).vendor &&
				ev->remote.ece.options == offer_of(c).options,
			"conn %u: parameters of the REQ", index);
	c->asked = ev->remote.ece;
	c->passive.id = ev->id;
	c->passive.step = ASKED;
	karst_cm_id_set_user(w->cm[node], ev->id, &c->passive);
	think(w, c, &c->passive);
}

static void
told_rep(struct world *w, struct conn *c, struct end *e, const struct karst_cm_ev *ev)
{
	const struct end *p = &c->passive;
	const struct karst_cm_ece offer = offer_of(c);

	REQUIRE(w, e->step == CONNECTING && !c->sidr, "EV_REP in step %d", e->step);
	REQUIRE(w, p->answer == AGREE && p->step >= ACCEPTED, "EV_REP, but nobody accepted");
	expect_note(w, c, true, KARST_CM_REP, ev);
	REQUIRE(w,
		ev->remote.qpn == p->qpn && ev->remote.psn == p->psn &&
			ev->remote.responder_resources == (p->psn >> 4 & 15) &&
			ev->remote.initiator_depth == (p->psn & 15) &&
			ev->remote.rnr_retry_count == (p->psn >> 8 & 7),
		"parameters of the REP");
	REQUIRE(w,
		karst_cm_ece_agreed(&offer, &ev->remote.ece) == (abilities(e) & abilities(p)) &&
			(ev->remote.ece.vendor == 0) == ((abilities(e) & abilities(p)) == 0),
		"the agreement");
	e->step = ANSWERED;
	think(w, c, e);
}

static void
told_rej(struct world *w, struct conn *c, struct end *e, const struct end *other,
	const struct karst_cm_ev *ev)
{
	REQUIRE(w, e->step < DISCONNECTING, "EV_REJ in step %d", e->step);
	if (ev->local) { /* the peer has given up long ago */
		REQUIRE(w, ev->reason == KARST_CM_REJ_TIMEOUT && e->step == ASKED,
			"refused for local reasons (%u)", ev->reason);
		gave_up(w, e, "waiting for the user");
		over(w, e);
		return;
	}
	switch (ev->reason) {
	case KARST_CM_REJ_INVALID_SERVICE_ID:
		REQUIRE(w, c->unheard && e->step == CONNECTING, "somebody listens");
		break;
	case KARST_CM_REJ_CONSUMER_DEFINED:
		REQUIRE(w, other->did_reject || other->did_destroy, "nobody refused");
		if (other->did_reject)
			expect_note(w, c, !is_passive(c, e), KARST_CM_REJ, ev);
		break;
	case KARST_CM_REJ_TIMEOUT:
	case KARST_CM_REJ_INVALID_COMM_ID:
		REQUIRE(w, other->did_give_up || other->did_destroy || other->step == OVER,
			"EV_REJ (%u), but the other end waits", ev->reason);
		break;
	default:
		violated(w, "EV_REJ with reason %u", ev->reason);
	}
	if (e->step == ESTABLISHED && !is_passive(c, e))
		e->step = ENDED, e->act_at = NEVER;
	else
		over(w, e);
}

static void
told_sidr_rep(struct world *w, struct conn *c, struct end *e, const struct karst_cm_ev *ev)
{
	const struct end *p = &c->passive;

	REQUIRE(w, e->step == CONNECTING && c->sidr, "EV_SIDR_REP in step %d", e->step);
	if (c->unheard) {
		REQUIRE(w, ev->reason == KARST_CM_SIDR_UNSUPPORTED, "SIDR status %u", ev->reason);
	} else if (p->answer == AGREE) {
		REQUIRE(w, ev->reason == KARST_CM_SIDR_SUCCESS, "SIDR status %u", ev->reason);
		REQUIRE(w, ev->remote.qpn == p->qpn && ev->remote.qkey == p->psn,
			"parameters of the SIDR REP");
		expect_note(w, c, true, KARST_CM_SIDR_REP, ev);
	} else {
		REQUIRE(w, ev->reason == KARST_CM_SIDR_REJECT, "SIDR status %u", ev->reason);
	}
	over(w, e);
}

static void
told_dreq(struct world *w, struct conn *c, struct end *e, const struct end *other,
	const struct karst_cm_ev *ev)
{
	REQUIRE(w, e->step >= ACCEPTED && e->step <= ESTABLISHED, "EV_DREQ in step %d", e->step);
	REQUIRE(w, other->did_disconnect, "EV_DREQ, but nobody disconnects");
	if (!other->ends_by_destroy)
		expect_note(w, c, !is_passive(c, e), KARST_CM_DREQ, ev);
	e->step = TOLD_TO_END;
	think(w, c, e);
}

static void
told_disconnected(struct world *w, struct end *e, const struct end *other, bool error)
{
	REQUIRE(w, e->step == DISCONNECTING, "disconnected in step %d", e->step);
	if (error)
		gave_up(w, e, "EV_DREQ_ERROR");
	else
		REQUIRE(w,
			other->did_reply || other->did_disconnect || other->did_destroy ||
				other->step >= ENDED,
			"EV_DREP, but nobody answered");
	e->step = ENDED;
}

/* C4: the event comes once, and has the path of the other end. */
static void
told_lap(struct world *w, const struct conn *c, struct end *e, const struct end *other,
	const struct karst_cm_ev *ev)
{
	struct note n = note_of(w, c, is_passive(c, e), KARST_CM_APR);
	struct karst_cm_path path = path_offered(w, c, other);

	REQUIRE(w, e->step == ESTABLISHED, "EV_LAP in step %d", e->step);
	REQUIRE(w, other->did_lap && !e->told_lap, "EV_LAP, but %s",
		e->told_lap ? "it was told before" : "nothing was offered");
	expect_note(w, c, is_passive(c, other), KARST_CM_LAP, ev);
	REQUIRE(w,
		ev->remote.alternate->flow_label == path.flow_label &&
			ev->remote.alternate->hop_limit == path.hop_limit &&
			memcmp(ev->remote.alternate->local_ip, path.remote_ip, 16) == 0 &&
			memcmp(ev->remote.alternate->remote_ip, path.local_ip, 16) == 0,
		"another path than the one that was offered");
	e->told_lap = true;
	e->said = e->psn >> 13 & 1 ? KARST_CM_APR_LOADED : KARST_CM_APR_INVALID_SL;
	did(w, c, e, "apr",
		karst_cm_id_apr(w->cm[e->node], e->id, e->said, NULL, 0, &n, sizeof(n)));
}

/* The answer must be that of the other user, or the other end has sent a LAP, too, or is ending. */
static void
told_apr(struct world *w, const struct conn *c, struct end *e, const struct end *other,
	const struct karst_cm_ev *ev)
{
	REQUIRE(w, e->step == ESTABLISHED, "EV_APR in step %d", e->step);
	REQUIRE(w, e->did_lap && !e->told_apr, "EV_APR, but nothing was offered, or it was told");
	e->told_apr = true;
	if (ev->reason == KARST_CM_APR_REJECTED)
		REQUIRE(w, other->did_lap, "an offer was refused as if there had been another");
	else if (ev->reason == KARST_CM_APR_INVALID_COMM_ID)
		REQUIRE(w, other->step != ESTABLISHED, "refused by who is established");
	else {
		REQUIRE(w, other->told_lap && ev->reason == other->said,
			"EV_APR says %u, the user %u", ev->reason, other->said);
		expect_note(w, c, is_passive(c, other), KARST_CM_APR, ev);
	}
}

static void
told_end(struct world *w, struct conn *c, struct end *e, struct end *other,
	const struct karst_cm_ev *ev)
{
	switch (ev->code) {
	case KARST_CM_EV_REP:
		told_rep(w, c, e, ev);
		break;
	case KARST_CM_EV_RTU:
		REQUIRE(w, e->step == ACCEPTED && other->did_ready, "EV_RTU in step %d", e->step);
		expect_note(w, c, false, KARST_CM_RTU, ev);
		e->step = ESTABLISHED;
		w->established++;
		act_established(w, c, e);
		break;
	case KARST_CM_EV_MRA:
		REQUIRE(w, e->step == CONNECTING || e->step == ACCEPTED, "EV_MRA in step %d",
			e->step);
		break;
	case KARST_CM_EV_REJ:
		told_rej(w, c, e, other, ev);
		break;
	case KARST_CM_EV_LAP:
		told_lap(w, c, e, other, ev);
		break;
	case KARST_CM_EV_APR:
		told_apr(w, c, e, other, ev);
		break;
	case KARST_CM_EV_LAP_ERROR:
		REQUIRE(w, e->step == ESTABLISHED && e->did_lap && !e->told_apr,
			"no answer to a LAP in step %d", e->step);
		gave_up(w, e, "no answer to a LAP");
		e->told_apr = true;
		break;
	case KARST_CM_EV_DREQ:
		told_dreq(w, c, e, other, ev);
		break;
	case KARST_CM_EV_DREP:
	case KARST_CM_EV_DREQ_ERROR:
		told_disconnected(w, e, other, ev->code == KARST_CM_EV_DREQ_ERROR);
		break;
	case KARST_CM_EV_TIMEWAIT_EXIT:
		REQUIRE(w, e->step == ENDED, "EV_TIMEWAIT_EXIT in step %d", e->step);
		over(w, e);
		break;
	case KARST_CM_EV_REQ_ERROR:
	case KARST_CM_EV_SIDR_ERROR:
		REQUIRE(w, e->step == CONNECTING, "no answer in step %d", e->step);
		gave_up(w, e, "no answer to a REQ");
		over(w, e);
		break;
	case KARST_CM_EV_REP_ERROR:
		REQUIRE(w, e->step == ACCEPTED, "no RTU in step %d", e->step);
		gave_up(w, e, "no RTU");
		over(w, e);
		break;
	case KARST_CM_EV_SIDR_REP:
		told_sidr_rep(w, c, e, ev);
		break;
	default:
		violated(w, "event %d", ev->code);
	}
}

void
user_event(struct world *w, uint32_t node, const struct karst_cm_ev *ev)
{
	struct end *e = ev->user, *other;
	struct conn *c;
	uint32_t i;

	if (w->verbose)
		printf("%12.6f  node %u: event %d id %08x reason %u\n", (double)w->now_ns / 1e9,
			node, ev->code, ev->id, ev->reason);
	if (ev->code == KARST_CM_EV_REQ || ev->code == KARST_CM_EV_SIDR_REQ) {
		told_req(w, node, ev, ev->code == KARST_CM_EV_SIDR_REQ);
		return;
	}
	for (i = 0; i < w->nconns; i++) {
		c = &w->conns[i];
		if (e != &c->active && e != &c->passive)
			continue;
		other = is_passive(c, e) ? &c->active : &c->passive;
		REQUIRE(w, e->id == ev->id && e->node == node, "event %d of id %08x, not %08x",
			ev->code, ev->id, e->id);
		REQUIRE(w, e->step != GONE, "event %d after destroy", ev->code);
		if (++e->told > 40)
			violated(w, "more than 40 events of one id");
		told_end(w, c, e, other, ev);
		return;
	}
	violated(w, "event %d of no connection", ev->code);
}

/* --- when all is quiet --- */

/* With a link this bad, an end may never learn that the other one has gone. */
bool
user_rouse(struct world *w)
{
	bool any = false;
	struct end *e;
	uint32_t i;

	for (i = 0; i < 2 * w->nconns && w->profile == BRUTAL; i++) {
		e = i % 2 != 0 ? &w->conns[i / 2].passive : &w->conns[i / 2].active;
		if (e->step != ESTABLISHED)
			continue;
		e->ends_by_destroy = true;
		e->act_at = w->now_ns;
		any = true;
	}
	return any;
}

static void
judge_end(struct world *w, const struct conn *c, const struct end *e)
{
	bool passive = is_passive(c, e);

	REQUIRE(w, e->step == GONE || (passive && e->step == NOT_YET),
		"conn %u: the %s end hangs in step %d", (unsigned int)(c - w->conns),
		passive ? "passive" : "active", e->step);
}

void
user_judge(struct world *w)
{
	const struct conn *c;
	uint32_t i;

	for (i = 0; i < w->nconns; i++) {
		c = &w->conns[i];
		judge_end(w, c, &c->active);
		judge_end(w, c, &c->passive);
		if (w->profile == BRUTAL || c->unheard)
			continue;
		REQUIRE(w, c->passive.step != NOT_YET, "conn %u: never asked", i);
		if (c->sidr || c->passive.answer != AGREE || c->active.answer != AGREE)
			continue;
		REQUIRE(w, c->active.did_ready, "conn %u: never ready", i);
		REQUIRE(w, c->active.did_disconnect || c->passive.did_disconnect,
			"conn %u: nobody disconnected", i);
	}
}
