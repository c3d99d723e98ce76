/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Find the flow of each packet, and the two flows of each connection.
 *
 * If the capture has the messages that made the connection, these tell (cm.c).  Otherwise a
 * response does, because it has the PSN of a request.  The candidates are the flows between the
 * same two addresses in the other direction that have no counterpart yet.  The counterpart is the
 * one that has a request with that PSN, of a kind that this response can answer, if there is
 * exactly one such flow.  PSNs are 24 bits wide and start anywhere, so a wrong match is rare.  If
 * several flows fit, a later response may decide; until then the flow's responses are not judged.
 *
 * A file may come from an untrusted source.  So the hashes are keyed, and there are limits to the
 * number of flows that are remembered and to the number that is examined in the search for
 * counterparts.  What exceeds these limits is not judged, and the report says so.
 */
#include <arpa/inet.h>
#include <stdlib.h>

#include "an_priv.h"
#include "karst_prf.h"

#define FIRST_HASH 256
#define MAX_TRIES  16
#define MAX_FLOWS  (1u << 17)
#define MAX_PAIRS  (1u << 17)
#define MAX_LOOKS  (1u << 22) /* 2,048 flows, each of which examines 2,048 */

bool
an_address(const char *text, uint8_t address[16])
{
	static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

	memcpy(address, mapped, sizeof(mapped));
	return inet_pton(AF_INET, text, address + 12) == 1 ||
		inet_pton(AF_INET6, text, address) == 1;
}

void
an_address_text(const uint8_t address[16], char *text, size_t room)
{
	static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
	static const uint8_t lid[14] = {0};

	if (memcmp(address, mapped, sizeof(mapped)) == 0)
		inet_ntop(AF_INET, address + 12, text, (socklen_t)room);
	else if (memcmp(address, lid, sizeof(lid)) == 0)
		snprintf(text, room, "lid %u", karst_get_be16(address + 14));
	else
		inet_ntop(AF_INET6, address, text, (socklen_t)room);
}

void
an_flow_text(const struct an_flow *f, char *text, size_t room)
{
	char src[INET6_ADDRSTRLEN], dst[INET6_ADDRSTRLEN];

	an_address_text(f->pair->src->address, src, sizeof(src));
	an_address_text(f->pair->dst->address, dst, sizeof(dst));
	snprintf(text, room, "%s > %s qp 0x%06x", src, dst, f->dqpn);
}

static uint32_t
hash_of(const struct an *a, const uint8_t address[16])
{
	return (uint32_t)karst_prf(a->key, karst_get_be64(address), karst_get_be64(address + 8));
}

struct an_end *
an_end_of(struct an *a, const uint8_t address[16])
{
	struct an_end *e;

	struct an_end **at = &a->end_hash[hash_of(a, address) % AN_ADDRESS_HASH];

	for (e = *at; e != NULL; e = e->hash_next)
		if (memcmp(e->address, address, 16) == 0)
			return e;
	e = calloc(1, sizeof(*e));
	if (e == NULL)
		return NULL;
	memcpy(e->address, address, 16);
	e->hash_next = *at;
	*at = e;
	e->next = a->ends;
	a->ends = e;
	return e;
}

static struct an_pair **
pair_slot(struct an *a, const uint8_t src[16], const uint8_t dst[16])
{
	return &a->pair_hash[(hash_of(a, src) * 31 + hash_of(a, dst)) % AN_ADDRESS_HASH];
}

static struct an_pair *
pair_find(struct an *a, const uint8_t src[16], const uint8_t dst[16])
{
	struct an_pair *p;

	for (p = *pair_slot(a, src, dst); p != NULL; p = p->hash_next)
		if (memcmp(p->src->address, src, 16) == 0 && memcmp(p->dst->address, dst, 16) == 0)
			return p;
	return NULL;
}

struct an_pair *
an_pair_of(struct an *a, const uint8_t src[16], const uint8_t dst[16])
{
	struct an_pair *p = pair_find(a, src, dst), **at;

	if (p != NULL)
		return p;
	p = a->npairs < MAX_PAIRS ? calloc(1, sizeof(*p)) : NULL;
	if (p == NULL)
		return NULL;
	p->src = an_end_of(a, src);
	p->dst = an_end_of(a, dst);
	if (p->src == NULL || p->dst == NULL) {
		free(p);
		return NULL;
	}
	p->reverse = memcmp(src, dst, 16) == 0 ? p : pair_find(a, dst, src);
	if (p->reverse != NULL)
		p->reverse->reverse = p;
	at = pair_slot(a, src, dst);
	p->hash_next = *at;
	*at = p;
	p->next = a->pairs;
	a->pairs = p;
	a->npairs++;
	return p;
}

void
an_pair_malformed(struct an *a, const uint8_t src[16], const uint8_t dst[16])
{
	struct an_pair *p = an_pair_of(a, src, dst);

	if (p != NULL)
		p->malformed = true;
	else
		a->malformed = true;
}

bool
an_flow_malformed(const struct an *a, const struct an_flow *f)
{
	return a->malformed || f->pair->malformed ||
		(f->pair->reverse != NULL && f->pair->reverse->malformed);
}

uint32_t
an_flow_hash(const struct an *a, const struct an_pair *p, uint32_t dqpn)
{
	return (uint32_t)karst_prf(a->key, (uintptr_t)p, dqpn);
}

static void
flows_grow(struct an *a)
{
	uint32_t mask = a->hash == NULL ? FIRST_HASH - 1 : a->hash_mask * 2 + 1;
	struct an_flow **h, *f;

	if (a->hash != NULL && a->nflows <= a->hash_mask)
		return;
	h = calloc((size_t)mask + 1, sizeof(struct an_flow *));
	if (h == NULL)
		return;
	for (f = a->flows; f != NULL; f = f->all_next) {
		struct an_flow **at = &h[an_flow_hash(a, f->pair, f->dqpn) & mask];

		f->next = *at;
		*at = f;
	}
	free(a->hash);
	a->hash = h;
	a->hash_mask = mask;
}

static struct an_flow *
new_flow(struct an *a, struct an_pair *pair, uint32_t dqpn)
{
	struct an_flow *f = a->nflows < MAX_FLOWS ? calloc(1, sizeof(*f)) : NULL, **at;

	if (f == NULL)
		return NULL;
	f->pair = pair;
	f->dqpn = dqpn;
	f->pair_next = pair->flows;
	pair->flows = f;
	*a->flows_tail = f;
	a->flows_tail = &f->all_next;
	f->number = ++a->nflows;
	at = &a->hash[an_flow_hash(a, pair, dqpn) & a->hash_mask];
	f->next = *at;
	*at = f;
	return f;
}

struct an_flow *
an_flow_find(struct an *a, const struct an_pair *pair, uint32_t dqpn)
{
	struct an_flow *f = NULL;

	if (a->hash != NULL)
		f = a->hash[an_flow_hash(a, pair, dqpn) & a->hash_mask];
	while (f != NULL && (f->pair != pair || f->dqpn != dqpn))
		f = f->next;
	return f;
}

struct an_flow *
an_flow_of(struct an *a, const struct an_pkt *p)
{
	struct an_flow *f = a->last;
	struct an_pair *pair;

	if (f != NULL && f->dqpn == p->ib->dqpn && memcmp(f->pair->src->address, p->src, 16) == 0 &&
		memcmp(f->pair->dst->address, p->dst, 16) == 0)
		return f;
	flows_grow(a);
	pair = an_pair_of(a, p->src, p->dst);
	if (a->hash == NULL || pair == NULL)
		return NULL;
	f = an_flow_find(a, pair, p->ib->dqpn);
	if (f == NULL)
		f = new_flow(a, pair, p->ib->dqpn);
	if (f != NULL)
		a->last = f;
	return f;
}

/* Whether @p may be the answer to a request of @s. */
static bool
answers(struct an_stream *s, const struct an_pkt *p)
{
	struct an_rec *r;
	uint32_t of;

	if (!s->begun || karst_psn_diff(p->ib->psn, s->next) >= 0)
		return false;
	r = an_stream_find(s, p->ib->psn);
	if (r == NULL)
		return false;
	of = karst_opcode_flags(r->opcode);
	if (p->flags & KARST_OPF_READ)
		return (of & (KARST_OPF_READ | KARST_OPF_ATOMICWRITE | KARST_OPF_FLUSH)) != 0;
	if (p->flags & KARST_OPF_ATOMIC)
		return (of & KARST_OPF_ATOMIC) != 0;
	return true;
}

/*
 * Finds the flow of the other direction that has asked for @p, among those without a counterpart.
 * @return NULL if there is none, or more than one.
 */
static struct an_flow *
only_asker(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	struct an_flow *g, **at, *fits = NULL;
	unsigned int n = 0;

	if (f->pair->reverse == NULL || f->tries >= MAX_TRIES)
		return NULL;
	f->tries++;
	for (at = &f->pair->reverse->unpaired; (g = *at) != NULL;) {
		if (a->looks++ >= MAX_LOOKS)
			return NULL;
		if (g->peer != NULL) {
			*at = g->unpaired_next;
			g->on_unpaired = false;
			continue;
		}
		if (answers(&g->req, p)) {
			fits = g;
			n++;
		}
		at = &g->unpaired_next;
	}
	return n == 1 ? fits : NULL;
}

static void
join(struct an_flow *f, struct an_flow *g)
{
	if (g->peer != NULL)
		g->peer->peer = NULL; /* the previous match was wrong */
	f->peer = g;
	g->peer = f;
	f->tries = g->tries = 0;
}

struct an_flow *
an_flow_answered(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	struct an_flow *g = f->peer;

	if (g != NULL)
		return g;
	g = an_cm_peer(a, f);
	if (g == NULL)
		g = only_asker(a, f, p);
	if (g != NULL)
		join(f, g);
	return g;
}

struct an_flow *
an_flow_repaired(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	struct an_flow *g = only_asker(a, f, p);

	if (g == NULL)
		return NULL;
	if (f->peer != NULL)
		f->peer->peer = NULL;
	join(f, g);
	return g;
}

void
an_flow_misordered(struct an_flow *f)
{
	f->misordered = f->tainted = true;
	if (f->peer != NULL)
		f->peer->misordered = f->peer->tainted = true;
}

void
an_flows_finish(struct an *a)
{
	if (a->left_out != 0)
		an_say(a, NULL, AN_TRACE, AN_UNKNOWN, a->left_out_frame, 0,
			"more than %u flows, or %u pairs of addresses: from this packet on %llu of further "
			"ones are left out",
			MAX_FLOWS, MAX_PAIRS, (unsigned long long)a->left_out);
	if (a->looks > MAX_LOOKS)
		an_say(a, NULL, AN_TRACE, AN_UNKNOWN, 0, 0,
			"whose answers they are was not found out for all flows: too many fit; a capture "
			"that has the messages which make the connections tells");
}

bool
an_sees_sent(const struct an *a, const struct an_flow *f)
{
	return a->o->tap == AN_TAP_SENDERS ||
		(a->o->tap == AN_TAP_ADDRESS &&
			memcmp(a->o->tap_address, f->pair->src->address, 16) == 0);
}

bool
an_sees_received(const struct an *a, const struct an_flow *f)
{
	return a->o->tap == AN_TAP_RECEIVERS ||
		(a->o->tap == AN_TAP_ADDRESS &&
			memcmp(a->o->tap_address, f->pair->dst->address, 16) == 0);
}

void
an_flows_free(struct an *a)
{
	struct an_flow *f, *f_next;
	struct an_pair *p, *p_next;
	struct an_end *e, *e_next;

	for (f = a->flows; f != NULL; f = f_next) {
		f_next = f->all_next;
		free(f->req.v);
		free(f->req.plot.at);
		free(f);
	}
	for (p = a->pairs; p != NULL; p = p_next) {
		p_next = p->next;
		free(p);
	}
	for (e = a->ends; e != NULL; e = e_next) {
		e_next = e->next;
		free(e);
	}
	free(a->hash);
}
