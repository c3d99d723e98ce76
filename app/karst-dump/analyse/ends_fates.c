/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Find which packets have arrived.  Packets that are identical to the last bit are judged together,
 * as a group.
 *
 * If as many packets of a group have arrived as were sent, each arrival is the sent packet at the
 * same position.  This is the explanation with the fewest impairments.  Such packets also tell the
 * order: a packet that arrives between two of them was sent between them.  If the network is seen
 * to reorder, the limits are widened by the variation of the delay that was seen.
 *
 * Otherwise some packets were lost, or arrived twice.  Then that order and the clocks tell which
 * ones.  An arrival may be a packet that was sent before it (within the uncertainty of the clocks),
 * by no more than the time that packets take.  If the missing packet may be any of several, the
 * fate of all of these is unsure.
 */
#include <stdlib.h>

#include "ends_priv.h"

#define MARGIN_NS 2e3   /* times in a capture are whole microseconds */
#define LOOSE_NS  100e3 /* allowance for wrong clocks where nothing has to be told apart */
#define CHAIN     64u
#define NEAR      64u /* packets that are examined for the order, in each direction */

/* Whether the capture of end @i ran at @ns, and for @longest after it. */
static bool
covers(const struct ends_reading *r, unsigned int i, double ns, double longest)
{
	return ns >= ends_by_first(r, i, r->begin_ns[i]) &&
		ns + longest <= ends_by_first(r, i, r->end_ns[i]);
}

static void
fate_add(struct ends_reading *r, unsigned int i, const struct ends_seen *s, uint8_t fate,
	bool unsure)
{
	struct ends_fates *f = &r->e->way[i].fates;
	size_t room = f->room == 0 ? 1024 : 2 * f->room;
	struct ends_fate *at;

	if (f->n == f->room) {
		at = realloc(f->at, room * sizeof(*at));
		if (at == NULL) {
			r->failed = true;
			return;
		}
		f->at = at;
		f->room = room;
	}
	f->at[f->n++] = (struct ends_fate){.frame = s->frame, .fate = fate, .unsure = unsure};
}

/* --- groups --- */

/*
 * Collects the packets like @s that have no verdict yet, from the oldest on.  @more: set if there
 * are more than @limit.  @return their number.
 */
static unsigned int
gather(const struct ends_window *w, const struct ends_seen *s, unsigned int limit,
	struct ends_seen **list, uint64_t *index, bool *more)
{
	uint64_t at = w->oldest[s->slot];
	unsigned int n = 0;

	for (; ends_has(w, at); at = ends_at(w, at)->newer) {
		struct ends_seen *one = ends_at(w, at);

		if (one->settled || !ends_is_like(one, s))
			continue;
		if (n == limit) {
			*more = true;
			break;
		}
		index[n] = at;
		list[n++] = one;
	}
	return n;
}

static struct ends_group *
group_of(struct ends_reading *r, unsigned int i, const struct ends_seen *s, unsigned int limit)
{
	const struct ends_lane *l = &r->lane[i];
	struct ends_group *g = &r->group;
	bool more_sent = false, more_arrived = false;
	unsigned int k;

	g->n_sent = gather(&l->sent, s, limit, g->sent, g->sent_at, &more_sent);
	g->n_arrived = gather(&l->arrived, s, limit, g->arrived, g->arrived_at, &more_arrived);
	g->horizon = 1e300;
	if (more_sent)
		g->horizon = g->sent[g->n_sent - 1]->ns;
	if (more_arrived && g->arrived[g->n_arrived - 1]->ns - l->most_ns < g->horizon)
		g->horizon = g->arrived[g->n_arrived - 1]->ns - l->most_ns;
	while (g->n_sent > 1 && g->sent[g->n_sent - 1]->ns > g->horizon)
		g->n_sent--;
	for (k = 0; k < g->n_sent; k++) {
		g->came[k] = ENDS_GROUP;
		g->late[k] = g->unsure[k] = false;
	}
	for (k = 0; k < g->n_arrived; k++) {
		g->of[k] = ENDS_GROUP;
		g->after[k] = -1e300;
		g->before[k] = 1e300;
	}
	return g;
}

/*
 * Sets the bounds of when arrival @k was sent, from the nearest arrivals before and after it that
 * have a verdict.
 */
static void
neighbours(struct ends_reading *r, unsigned int i, unsigned int k)
{
	const struct ends_lane *l = &r->lane[i];
	struct ends_group *g = &r->group;
	uint64_t at = g->arrived_at[k];
	unsigned int n;

	for (n = 1; n <= NEAR && n <= at && ends_has(&l->arrived, at - n); n++) {
		uint64_t sent = ends_at(&l->arrived, at - n)->other;

		if (!ends_has(&l->sent, sent))
			continue;
		g->after[k] = ends_at(&l->sent, sent)->ns - l->reorder_ns;
		break;
	}
	for (n = 1; n <= NEAR && ends_has(&l->arrived, at + n); n++) {
		uint64_t sent = ends_at(&l->arrived, at + n)->other;

		if (!ends_has(&l->sent, sent))
			continue;
		g->before[k] = ends_at(&l->sent, sent)->ns + l->reorder_ns;
		break;
	}
}

/* --- which sent packet an arrival may be --- */

static double
took(const struct ends_group *g, unsigned int sent, unsigned int arrived)
{
	return g->arrived[arrived]->ns - g->sent[sent]->ns;
}

/* Whether @arrived may be @sent by the ICRC, and because it was sent before. */
static bool
may_be_at_all(const struct ends_reading *r, unsigned int sent, unsigned int arrived)
{
	const struct ends_group *g = &r->group;

	return ends_is_same(g->sent[sent], g->arrived[arrived]) &&
		took(g, sent, arrived) >= -r->e->known_ns - MARGIN_NS;
}

/* As may_be_at_all(), and also by the order. */
static bool
may_be(const struct ends_reading *r, unsigned int sent, unsigned int arrived)
{
	const struct ends_group *g = &r->group;
	double ns = g->sent[sent]->ns;

	return ns >= g->after[arrived] && ns <= g->before[arrived] &&
		may_be_at_all(r, sent, arrived);
}

/* As may_be(), and also by the time that packets take. */
static bool
may_soon(const struct ends_reading *r, unsigned int i, unsigned int sent, unsigned int arrived)
{
	return may_be(r, sent, arrived) &&
		took(&r->group, sent, arrived) <= r->lane[i].most_ns + MARGIN_NS;
}

static void
pair(struct ends_group *g, unsigned int sent, unsigned int arrived, bool late)
{
	g->came[sent] = arrived;
	g->of[arrived] = sent;
	g->late[sent] = late;
}

/* Matches arrivals whose ICRC is known, or those whose ICRC is not, by may_soon(). */
static void
match_soon(struct ends_reading *r, unsigned int i, bool icrc_known)
{
	struct ends_group *g = &r->group;
	unsigned int first = 0, k, n;

	for (n = 0; n < g->n_arrived; n++) {
		if (g->arrived[n]->icrc_known != icrc_known)
			continue;
		while (first < g->n_sent && g->came[first] != ENDS_GROUP)
			first++;
		for (k = first; k < g->n_sent; k++)
			if (g->came[k] == ENDS_GROUP && may_soon(r, i, k, n)) {
				pair(g, k, n, false);
				break;
			}
	}
}

/* Matches arrivals that took longer than any other packet. */
static void
match_late(struct ends_reading *r)
{
	struct ends_group *g = &r->group;
	unsigned int k, n, other;

	for (k = 0; k < g->n_sent; k++) {
		if (g->came[k] != ENDS_GROUP)
			continue;
		for (n = 0; n < g->n_arrived; n++)
			if (g->of[n] == ENDS_GROUP && may_be(r, k, n))
				break;
		if (n == g->n_arrived)
			continue;
		pair(g, k, n, true);
		/* it may also be a duplicate of another packet */
		for (other = 0; other < g->n_sent; other++)
			if (other != k && may_be(r, other, n))
				g->unsure[k] = true;
	}
}

/* Matches arrivals for which the order allows no packet: the order was different here. */
static void
match_at_all(struct ends_reading *r)
{
	struct ends_group *g = &r->group;
	unsigned int k, n, last;

	for (n = 0; n < g->n_arrived; n++) {
		if (g->of[n] != ENDS_GROUP)
			continue;
		last = ENDS_GROUP;
		for (k = 0; k < g->n_sent && !may_be(r, k, n); k++)
			if (g->came[k] == ENDS_GROUP && may_be_at_all(r, k, n))
				last = k;
		if (k < g->n_sent || last == ENDS_GROUP)
			continue;
		pair(g, last, n, true);
		for (k = 0; k < g->n_sent; k++)
			g->unsure[k] |=
				(g->came[k] == ENDS_GROUP || k == last) && may_be_at_all(r, k, n);
	}
}

/*
 * A missing packet may be any of those that could have arrived in place of another one.  Marks
 * these as unsure.
 */
static void
doubt_missing(struct ends_reading *r, unsigned int i)
{
	struct ends_group *g = &r->group;
	unsigned int n = 0, done, k;

	for (k = 0; k < g->n_sent; k++)
		if (g->came[k] == ENDS_GROUP)
			g->todo[n++] = k;
	for (done = 0; done < n; done++)
		for (k = 0; k < g->n_sent; k++) {
			unsigned int s = g->todo[done], as = g->came[k];

			if (k == s || as == ENDS_GROUP ||
				!(g->late[k] ? may_be(r, s, as) : may_soon(r, i, s, as)))
				continue;
			g->unsure[s] = true;
			if (!g->unsure[k] && n < ENDS_GROUP)
				g->todo[n++] = k;
			g->unsure[k] = true;
		}
}

/*
 * Marks identical packets as unsure without comparing each with each.  For groups that continue in
 * the next group.
 */
static void
doubt_many(struct ends_group *g)
{
	unsigned int k, other, missing = 0;

	for (k = 0; k < g->n_sent; k++)
		missing += g->came[k] == ENDS_GROUP;
	for (k = 0; missing != 0 && k < g->n_sent; k++)
		for (other = 0; other < g->n_sent && !g->unsure[k]; other++)
			g->unsure[k] = other != k && ends_is_same(g->sent[k], g->sent[other]);
}

/* A damaged arrival may be another packet.  Marks both as unsure. */
static void
doubt_damaged(struct ends_reading *r, unsigned int i)
{
	struct ends_group *g = &r->group;
	unsigned int k, s;

	for (s = 0; s < g->n_sent; s++) {
		if (g->came[s] == ENDS_GROUP || !g->arrived[g->came[s]]->damaged)
			continue;
		for (k = 0; k < g->n_sent; k++)
			if (k != s && g->came[k] != ENDS_GROUP &&
				!g->arrived[g->came[k]]->damaged && may_soon(r, i, s, g->came[k]) &&
				may_soon(r, i, k, g->came[s]))
				g->unsure[s] = g->unsure[k] = true;
	}
}

/* --- verdicts --- */

static void
has_come(struct ends_way *w, double ns)
{
	if (w->arrived == 0 || ns < (double)w->delay_min_ns)
		w->delay_min_ns = (int64_t)ns;
	if (w->arrived == 0 || ns > (double)w->delay_max_ns)
		w->delay_max_ns = (int64_t)ns;
	w->arrived++;
	w->delay_sum_ns += ns;
}

static void
sent_verdict(struct ends_reading *r, unsigned int i, unsigned int k)
{
	struct ends_group *g = &r->group;
	struct ends_way *w = &r->e->way[i];
	struct ends_seen *s = g->sent[k], *a = NULL;
	bool covered = covers(r, 1 - i, s->ns, r->lane[i].longest_ns);

	s->settled = true;
	if (g->came[k] != ENDS_GROUP)
		a = g->arrived[g->came[k]];
	if (g->unsure[k]) {
		w->unsure++;
		w->unsure_lost += a == NULL && covered;
		w->unsure_damaged += a != NULL && a->damaged;
		fate_add(r, i, s, AN_MAYBE, true);
	} else if (a != NULL) {
		a->other = g->sent_at[k];
		has_come(w, a->ns - s->ns);
		if (a->damaged) {
			w->damaged++;
			fate_add(r, i, s, AN_MAYBE, false);
		}
	} else if (!covered) {
		w->uncovered++;
	} else {
		w->lost++;
		fate_add(r, i, s, AN_LOST, false);
	}
}

/* Whether arrival @n is the same as a packet that was sent. */
static bool
again(const struct ends_reading *r, unsigned int i, unsigned int n)
{
	const struct ends_window *w = &r->lane[i].sent;
	const struct ends_seen *a = r->group.arrived[n];
	uint64_t at = w->oldest[a->slot];
	unsigned int k;

	for (k = 0; k < r->group.n_sent; k++)
		if (may_be_at_all(r, k, n))
			return true;
	for (k = 0; k < CHAIN && ends_has(w, at); k++, at = ends_at(w, at)->newer)
		if (ends_at(w, at)->settled && ends_is_same(ends_at(w, at), a) &&
			ends_at(w, at)->ns <= a->ns + r->e->known_ns + MARGIN_NS)
			return true;
	return false;
}

static void
arrival_verdict(struct ends_reading *r, unsigned int i, unsigned int n, const struct ends_seen *s)
{
	struct ends_group *g = &r->group;
	struct ends_seen *a = g->arrived[n];
	double early = r->e->known_ns + MARGIN_NS + LOOSE_NS;

	if (g->of[n] == ENDS_GROUP && a != s && a->ns > g->horizon - early)
		return; /* belongs to packets that are left for the next group */
	a->settled = true;
	if (g->of[n] != ENDS_GROUP)
		return;
	if (again(r, i, n))
		r->e->way[i].doubled++;
	else if (covers(r, i, a->ns - early, 0))
		r->e->way[i].strange++;
}

/* Gives verdicts on the whole group.  @s: the packet with which it began. */
static void
settled(struct ends_reading *r, unsigned int i, const struct ends_seen *s)
{
	struct ends_group *g = &r->group;
	unsigned int k;

	for (k = 0; k < g->n_arrived; k++)
		arrival_verdict(r, i, k, s);
	for (k = 0; k < g->n_sent; k++)
		sent_verdict(r, i, k);
}

/*
 * Matches arrivals in the order of sending, if as many have arrived as were sent.
 * @return whether this is possible.
 */
static bool
in_order(struct ends_reading *r, unsigned int i)
{
	struct ends_group *g = &r->group;
	unsigned int k;

	if (g->n_sent != g->n_arrived || g->horizon < 1e300)
		return false;
	for (k = 0; k < g->n_sent; k++) {
		double ns = took(g, k, k);

		if (!ends_is_same(g->sent[k], g->arrived[k]) ||
			ns < -r->e->known_ns - MARGIN_NS - LOOSE_NS ||
			(g->n_sent > 1 && ns > r->lane[i].most_ns + MARGIN_NS))
			return false;
	}
	for (k = 0; k < g->n_sent; k++)
		pair(g, k, k, false);
	return true;
}

void
ends_settle_plain(struct ends_reading *r, unsigned int i, const struct ends_seen *s)
{
	struct ends_group *g;
	unsigned int k;

	if (s->settled)
		return;
	g = group_of(r, i, s, ENDS_FEW);
	for (k = 0; k < g->n_arrived && g->n_sent > 1; k++)
		if (g->arrived[k]->damaged)
			return; /* cannot tell which one was damaged */
	if (in_order(r, i))
		settled(r, i, s);
}

void
ends_settle(struct ends_reading *r, unsigned int i, const struct ends_seen *s)
{
	struct ends_group *g;
	unsigned int n;

	if (s->settled)
		return;
	g = group_of(r, i, s, ENDS_GROUP);
	for (n = 0; n < g->n_arrived && g->n_sent > 1; n++)
		neighbours(r, i, n);
	if (!in_order(r, i)) {
		match_soon(r, i, true);
		match_soon(r, i, false);
	}
	if (g->horizon < 1e300) {
		doubt_many(g);
	} else {
		match_late(r);
		match_at_all(r);
		doubt_missing(r, i);
	}
	doubt_damaged(r, i);
	settled(r, i, s);
}

void
ends_arrival_goes(struct ends_reading *r, unsigned int i, const struct ends_seen *s)
{
	struct ends_lane *l = &r->lane[i];

	if (s->other == ENDS_NONE)
		return;
	if (l->newest != ENDS_NONE && s->other < l->newest)
		r->e->way[i].late++;
	else
		l->newest = s->other;
}
