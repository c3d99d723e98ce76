/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Estimate the difference of two clocks, and the uncertainty of this estimate.
 *
 * The time between sending and arrival is the delay plus the difference of the clocks in one
 * direction, and the delay minus the difference in the other one.  Of each BLOCK packets, only the
 * shortest time is used.
 *
 * The first reading takes the median of these times, so that single wrong matches have no weight.
 * The medians of the first half and of the second half give the drift of one clock against the
 * other.  With clocks that are about right, the second reading makes few wrong matches.  So it can
 * use bounds, which tell more: no packet arrives before it was sent.  Each block of one direction
 * gives an upper bound of the difference at its time, each block of the other direction a lower
 * bound.  If drift is constant and no clock is worse than DRIFT_MAX, then the difference is a line
 * between all of these bounds.  The line in the middle is taken, and its uncertainty is the
 * distance to the outermost ones.  This is half of the shortest round trip if some packets of
 * either direction were fast during the whole capture.  It is more if one of the ends was slow with
 * everything for a part of the time, as a busy end is.
 */
#include <stdlib.h>

#include "ends_priv.h"

#define BLOCK     32u
#define BLOCKS    4096u /* maximum number of blocks; beyond, one of two is kept, and so on */
#define HALVES    8u    /* minimum number of blocks to estimate a drift */
#define SLACK_NS  100e3 /* additional uncertainty of medians */
#define DRIFT_MAX 500e-6
#define STEPS     80 /* steps of a search along a line */

int
ends_times_make(struct ends_times *t)
{
	*t = (struct ends_times){.stride = 1};
	t->at = calloc(BLOCKS, sizeof(*t->at));
	return t->at != NULL ? 0 : -1;
}

static void
keep(struct ends_times *t)
{
	unsigned int i;

	if (++t->skipped < t->stride)
		return;
	t->skipped = 0;
	if (t->n == BLOCKS) {
		for (i = 0; i < BLOCKS / 2; i++) {
			double most = t->at[2 * i + 1].most;

			t->at[i] = t->at[2 * i];
			if (most > t->at[i].most)
				t->at[i].most = most;
		}
		t->n = BLOCKS / 2;
		t->stride *= 2;
	}
	t->at[t->n++] = t->next;
}

void
ends_times_add(struct ends_times *t, double when, double ns)
{
	struct ends_block *b = &t->next;

	if (t->filled == 0 && t->skipped == 0)
		b->most = ns;
	if (t->filled == 0 || ns < b->ns) {
		b->when = when;
		b->ns = ns;
	}
	if (ns > b->most)
		b->most = ns;
	if (++t->filled == BLOCK) {
		t->filled = 0;
		keep(t);
	}
}

static void
no_more(struct ends_times *t)
{
	bool some = t->filled != 0 || t->skipped != 0;

	if (some && t->n < BLOCKS)
		t->at[t->n++] = t->next;
	else if (some && t->next.most > t->at[t->n - 1].most)
		t->at[t->n - 1].most = t->next.most;
	t->filled = t->skipped = 0;
}

/* --- medians --- */

static int
by_ns(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Takes the median of @n blocks.  @when: their mean time. */
static double
median(const struct ends_block *at, unsigned int n, double *when)
{
	static double ns[BLOCKS];
	unsigned int i;

	*when = 0;
	for (i = 0; i < n; i++) {
		ns[i] = at[i].ns;
		*when += at[i].when / n;
	}
	qsort(ns, n, sizeof(*ns), by_ns);
	return ns[n / 2];
}

struct line {
	double at0, slope;
};

/* Estimates the line of one direction.  @return whether it has any block. */
static bool
line(const struct ends_times *t, struct line *l)
{
	double when_a, when_b, a, b;
	unsigned int half = t->n / 2;

	*l = (struct line){0};
	if (t->n == 0)
		return false;
	if (t->n < HALVES) {
		l->at0 = median(t->at, t->n, &when_a);
		return true;
	}
	a = median(t->at, half, &when_a);
	b = median(t->at + half, t->n - half, &when_b);
	if (when_b > when_a)
		l->slope = (b - a) / (when_b - when_a);
	l->at0 = a - l->slope * when_a;
	return true;
}

static double
line_at(const struct line *l, double when)
{
	return l->at0 + l->slope * when;
}

/* Limits @d to the drift that clocks may have. */
static double
possible(double d)
{
	return d > DRIFT_MAX ? DRIFT_MAX : d < -DRIFT_MAX ? -DRIFT_MAX : d;
}

bool
ends_clocks_roughly(struct ends_reading *r)
{
	struct line there, back;
	struct ends *e = r->e;
	struct line l = {0};
	double middle = 0;
	bool ab, ba;

	no_more(&r->lane[0].times);
	no_more(&r->lane[1].times);
	ab = line(&r->lane[0].times, &there);
	ba = line(&r->lane[1].times, &back);
	if (!ab && !ba)
		return false;
	e->one_way = ab != ba;
	if (ab)
		l = there;
	if (ba)
		l = (struct line){-back.at0, -back.slope};
	if (ab && ba)
		l = (struct line){(there.at0 - back.at0) / 2, (there.slope - back.slope) / 2};
	if (l.slope != 0) { /* a slope beyond DRIFT_MAX comes from a busy end, not from the clock */
		median((ab ? &r->lane[0] : &r->lane[1])->times.at,
			(ab ? &r->lane[0] : &r->lane[1])->times.n, &middle);
		l.at0 = line_at(&l, middle) - possible(l.slope) * middle;
	}
	e->ahead_ns += l.at0;
	e->drift += possible(l.slope);
	return true;
}

/* --- bounds --- */

/* Bounds of the difference that remains after the estimate so far. */
struct bounds {
	/* upper bounds: times of @most; lower bounds: the negative times of @least */
	const struct ends_times *most, *least;
	struct line most_line, least_line;
	double trust; /* times this far below their line are wrong matches */
};

enum of_bounds { AT_MOST, AT_LEAST, APART };

/*
 * For lines of @slope, computes the value at time 0 of the highest one below all upper bounds
 * (AT_MOST), of the lowest one above all lower bounds (AT_LEAST), or the first minus the second
 * (APART).
 */
static double
of_slope(const struct bounds *b, double slope, enum of_bounds what)
{
	double hi = 1e300, lo = -1e300;
	unsigned int i;

	for (i = 0; i < b->most->n; i++) {
		const struct ends_block *at = &b->most->at[i];
		double bound = at->ns - slope * at->when;

		if (bound < hi && at->ns > line_at(&b->most_line, at->when) - b->trust)
			hi = bound;
	}
	for (i = 0; i < b->least->n; i++) {
		const struct ends_block *at = &b->least->at[i];
		double bound = -at->ns - slope * at->when;

		if (bound > lo && at->ns > line_at(&b->least_line, at->when) - b->trust)
			lo = bound;
	}
	return what == AT_MOST ? hi : what == AT_LEAST ? lo : hi - lo;
}

/* Finds the slope in [@a, @c] that maximises @sign * (of_slope(@what) + slope * @when). */
static double
steepest(const struct bounds *b, double a, double c, enum of_bounds what, double sign, double when)
{
	unsigned int i;

	for (i = 0; i < STEPS; i++) {
		double p = a + (c - a) / 3, q = c - (c - a) / 3;

		if (sign * (of_slope(b, p, what) + p * when) <
			sign * (of_slope(b, q, what) + q * when))
			a = p;
		else
			c = q;
	}
	return (a + c) / 2;
}

/* Finds the last slope for which the bounds leave room, from @good, where they do, towards @bad. */
static double
last_good(const struct bounds *b, double good, double bad)
{
	unsigned int i;

	if (of_slope(b, bad, APART) >= 0)
		return bad;
	for (i = 0; i < STEPS; i++) {
		double middle = (good + bad) / 2;

		if (of_slope(b, middle, APART) >= 0)
			good = middle;
		else
			bad = middle;
	}
	return good;
}

/* Finds the highest and the lowest value at @when of all lines that the bounds allow. */
static void
extremes(const struct bounds *b, double a, double c, double when, double *hi, double *lo)
{
	double up = steepest(b, a, c, AT_MOST, 1, when),
	       down = steepest(b, a, c, AT_LEAST, -1, when);

	*hi = of_slope(b, up, AT_MOST) + up * when;
	*lo = of_slope(b, down, AT_LEAST) + down * when;
}

static void
span(const struct ends_times *t, double *from, double *to)
{
	unsigned int i;

	for (i = 0; i < t->n; i++) {
		*from = t->at[i].when < *from ? t->at[i].when : *from;
		*to = t->at[i].when > *to ? t->at[i].when : *to;
	}
}

/*
 * Finds the line in the middle of all that the bounds allow.  @return how far from it the outermost
 * ones are.
 */
static double
middle_line(const struct bounds *b, double drift, struct line *l)
{
	double min = -DRIFT_MAX - drift, max = DRIFT_MAX - drift, from, to, hi[2], lo[2];
	double best = steepest(b, min, max, APART, 1, 0), room = of_slope(b, best, APART);

	from = to = b->most->at[0].when;
	span(b->most, &from, &to);
	span(b->least, &from, &to);
	l->slope = best;
	l->at0 = (of_slope(b, best, AT_MOST) + of_slope(b, best, AT_LEAST)) / 2;
	if (room < 0) /* drift is not constant, or a match was wrong */
		return SLACK_NS - room;
	min = last_good(b, best, min);
	max = last_good(b, best, max);
	extremes(b, min, max, from, &hi[0], &lo[0]);
	extremes(b, min, max, to, &hi[1], &lo[1]);
	if (to > from) {
		l->slope = (hi[1] + lo[1] - hi[0] - lo[0]) / 2 / (to - from);
		l->at0 = (hi[0] + lo[0]) / 2 - l->slope * from;
	}
	return (hi[0] - lo[0] > hi[1] - lo[1] ? hi[0] - lo[0] : hi[1] - lo[1]) / 2;
}

/*
 * Sets the limits of the delay and of reordering, by the clocks as known now.  The limit of the
 * delay allows twice the variation that was seen.
 */
static void
limits(struct ends_lane *lane, const struct line *l, double sign)
{
	const struct ends_times *t = &lane->times;
	double least = 1e300, most = -1e300;
	unsigned int i;

	for (i = 0; i < t->n; i++) {
		double off = sign * line_at(l, t->at[i].when);

		least = t->at[i].ns - off < least ? t->at[i].ns - off : least;
		most = t->at[i].most - off > most ? t->at[i].most - off : most;
	}
	lane->longest_ns = most > 0 ? most : 0;
	lane->most_ns = t->n != 0 ? most + (most - least) : 1e300;
	if (lane->reorder_ns > 0)
		lane->reorder_ns += most - least;
}

void
ends_clocks_exactly(struct ends_reading *r)
{
	struct bounds b = {.most = &r->lane[0].times, .least = &r->lane[1].times};
	struct ends *e = r->e;
	struct line l = {0};
	bool ab, ba;

	no_more(&r->lane[0].times);
	no_more(&r->lane[1].times);
	ab = line(b.most, &b.most_line);
	ba = line(b.least, &b.least_line);
	e->one_way = !(ab && ba);
	e->known_ns = SLACK_NS;
	if (ab && ba) {
		double end = b.most->at[b.most->n - 1].when;
		double both = line_at(&b.most_line, 0) + line_at(&b.least_line, 0);
		double both_end = line_at(&b.most_line, end) + line_at(&b.least_line, end);

		both = both_end > both ? both_end : both;
		b.trust = SLACK_NS + (both > 0 ? both : 0);
		e->known_ns = middle_line(&b, e->drift, &l);
	}
	limits(&r->lane[0], &l, 1);
	limits(&r->lane[1], &l, -1);
	e->ahead_ns += l.at0;
	e->drift += l.slope;
}
