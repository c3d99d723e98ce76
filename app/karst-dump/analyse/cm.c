/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Pair the two flows of a connection according to the messages of the communication manager.
 *
 * A REQ names the queue pair of the end that sends it, and the REP that answers it names the other
 * one.  From then on it is known to which queue pair each end sends, before a response shows it
 * (flow.c), and even if several connections use the same PSNs.  A REP with the same queue pair
 * numbers, but of another exchange, begins a new connection on queue pair numbers that were used
 * before; the requests of the old one are then forgotten.
 *
 * Of open exchanges, the newest AN_CM_OPEN are kept.  Connections are kept for each pair of queue
 * pairs, but not more than AN_CM_WAYS / 2.
 */
#include <stdlib.h>

#include "an_priv.h"
#include "karst_cm_msg.h"

#define GSI_QPN      1
#define AN_CM_OPEN   1024 /* a power of two */
#define AN_CM_HASH   (1u << 15)
#define AN_CM_WAYS   (1u << 17) /* the maximum number of flows */
#define AN_CM_SEARCH 8          /* places that are searched for an exchange, from its hash on */

/* A REQ that was seen. */
struct open {
	uint8_t src[16], dst[16];
	uint32_t id;  /* communication id of its sender */
	uint32_t qpn; /* queue pair of its sender */
	bool used, xrc;
	uint64_t frame;
};

/* One direction of a connection: packets to queue pair @dqpn are answered to queue pair @back. */
struct way {
	struct way *next;
	const struct an_pair *pair;
	uint32_t dqpn, back;
	uint32_t from_id, to_id; /* communication ids of the exchange */
};

struct an_cm {
	struct open open[AN_CM_OPEN];
	struct way *ways[AN_CM_HASH];
	uint32_t nways;
	uint64_t left_out,
		left_out_frame; /* connections for which there was no room, and the first one */
};

static struct way **
way_slot(const struct an *a, const struct an_pair *pair, uint32_t dqpn)
{
	return &a->cm->ways[an_flow_hash(a, pair, dqpn) & (AN_CM_HASH - 1)];
}

static struct way *
way_find(const struct an *a, const struct an_pair *pair, uint32_t dqpn)
{
	struct way *w;

	for (w = *way_slot(a, pair, dqpn); w != NULL; w = w->next)
		if (w->pair == pair && w->dqpn == dqpn)
			return w;
	return NULL;
}

struct an_flow *
an_cm_peer(struct an *a, const struct an_flow *f)
{
	struct way *w = a->cm != NULL ? way_find(a, f->pair, f->dqpn) : NULL;

	return w != NULL && f->pair->reverse != NULL ? an_flow_find(a, f->pair->reverse, w->back)
						     : NULL;
}

/* Finds the place of an exchange.  @want: if there is none, find a place for a new one. */
static struct open *
open_at(struct an_cm *cm, const uint8_t src[16], const uint8_t dst[16], uint32_t id, bool want)
{
	struct open *oldest = NULL, *o;
	unsigned int i;

	for (i = 0; i < AN_CM_SEARCH; i++) {
		o = &cm->open[(id * 0x9e3779b1u + i) % AN_CM_OPEN];
		if (o->used && o->id == id && memcmp(o->src, src, 16) == 0 &&
			memcmp(o->dst, dst, 16) == 0)
			return o;
		if (oldest == NULL || !o->used || (oldest->used && o->frame < oldest->frame))
			oldest = o;
	}
	return want ? oldest : NULL;
}

static void
request(struct an_cm *cm, const struct an_pkt *p, const struct karst_cm_msg *m)
{
	struct open *o = open_at(cm, p->src, p->dst, m->local_id, true);

	memcpy(o->src, p->src, 16);
	memcpy(o->dst, p->dst, 16);
	o->id = m->local_id;
	o->qpn = m->req.qpn;
	o->xrc = m->req.transport == KARST_CM_TRANSPORT_EXTENDED;
	o->used = true;
	o->frame = p->frame;
}

/* @return whether the queue pairs belonged to another connection before. */
static bool
learn(struct an *a, const struct an_pair *pair, const struct way *what)
{
	struct way *w = way_find(a, pair, what->dqpn), **at;
	bool again;

	if (w == NULL) {
		w = a->cm->nways < AN_CM_WAYS ? malloc(sizeof(*w)) : NULL;
		if (w == NULL)
			return false;
		a->cm->nways++;
		*w = *what;
		w->pair = pair;
		at = way_slot(a, pair, what->dqpn);
		w->next = *at;
		*at = w;
		return false;
	}
	again = w->from_id != what->from_id || w->to_id != what->to_id || w->back != what->back;
	w->back = what->back;
	w->from_id = what->from_id;
	w->to_id = what->to_id;
	return again;
}

static void
begin_anew(struct an *a, struct an_pair *pair, uint32_t dqpn)
{
	struct an_flow *f = an_flow_find(a, pair, dqpn);

	if (f == NULL)
		return;
	if (f->peer != NULL)
		f->peer->peer = NULL;
	f->peer = NULL;
	an_jump_finish(a, f);
	an_stream_restart(&f->req);
}

static void
reply(struct an *a, const struct an_pkt *p, const struct karst_cm_msg *m)
{
	const struct open *o = open_at(a->cm, p->dst, p->src, m->remote_id, false);
	struct an_pair *to_b, *to_a;
	struct way there, back;

	if (o == NULL)
		return; /* its REQ is not in the capture */
	if (a->cm->nways == AN_CM_WAYS && a->cm->left_out++ == 0)
		a->cm->left_out_frame = p->frame;
	to_b = an_pair_of(a, p->dst, p->src);
	to_a = an_pair_of(a, p->src, p->dst);
	if (to_b == NULL || to_a == NULL)
		return;
	there = (struct way){.dqpn = o->xrc ? m->rep.eecn : m->rep.qpn,
		.back = o->qpn,
		.from_id = m->remote_id,
		.to_id = m->local_id};
	back = (struct way){.dqpn = there.back,
		.back = there.dqpn,
		.from_id = there.to_id,
		.to_id = there.from_id};
	if (learn(a, to_b, &there))
		begin_anew(a, to_b, there.dqpn);
	if (learn(a, to_a, &back))
		begin_anew(a, to_a, back.dqpn);
}

void
an_cm(struct an *a, const struct an_pkt *p)
{
	struct karst_cm_msg m;

	if (p->ib->dqpn != GSI_QPN || p->cut || p->j->icrc_is == JUDGE_CRC_BAD ||
		karst_cm_msg_parse(p->ib->pay, p->ib->pay_len, &m) != KARST_CM_PARSE_OK)
		return;
	if (a->cm == NULL && (a->cm = calloc(1, sizeof(*a->cm))) == NULL)
		return;
	if (m.kind == KARST_CM_REQ)
		request(a->cm, p, &m);
	else if (m.kind == KARST_CM_REP)
		reply(a, p, &m);
}

void
an_cm_finish(struct an *a)
{
	if (a->cm != NULL && a->cm->left_out != 0)
		an_say(a, NULL, AN_TRACE, AN_UNKNOWN, a->cm->left_out_frame, 0,
			"more than %u connections: what this packet and %llu further ones say of connections "
			"was not remembered",
			AN_CM_WAYS / 2, (unsigned long long)a->cm->left_out - 1);
}

void
an_cm_free(struct an *a)
{
	struct way *w, *next;
	unsigned int i;

	for (i = 0; a->cm != NULL && i < AN_CM_HASH; i++)
		for (w = a->cm->ways[i]; w != NULL; w = next) {
			next = w->next;
			free(w);
		}
	free(a->cm);
}
