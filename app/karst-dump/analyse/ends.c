/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Both files are read side by side, the earlier packet first, by clocks as far as they are known.
 * What arrives is looked for among what was sent and is not accounted for yet; what is sent among
 * what has arrived unexpected, since clocks are never quite right.
 *
 * A packet that is sent again is the same to the last bit.  What arrives is the last of those that
 * were sent before, and behind the one that arrived before it: a network keeps the order nearly
 * always, and what it delays it does not delay as long as a requester waits.
 *
 * The first reading finds out what the clocks differ by.  The time between sending and arrival is
 * the delay plus the difference, for the other direction less the difference.  Of each BLOCK
 * packets the shortest counts, and of those the median, so that single mistakes have no weight; the
 * medians of the first and of the second half tell how fast one clock goes away from the other.
 *
 * That the shortest way is as long in both directions need not be so.  If it is not, the clocks are
 * taken wrongly by half of what it takes there and back at the most, and by so much a packet may
 * seem to arrive before it was sent.
 */
#include "ends.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "an_priv.h"

#define WINDOW   65536u /* packets of a direction, each of sent and arrived; a power of two */
#define CHAIN    64u    /* with one hash, from the newest on */
#define NONE     UINT64_MAX
#define BLOCK    32u
#define BLOCKS   4096u /* of them as many are kept; beyond, each second one, and so on */
#define HALVES   8u    /* blocks from which on a drift is told */
#define SLACK_NS 100e3 /* by which the estimate may be wrong besides, as medians are */

/* A packet that was sent or has arrived. */
struct seen {
	uint64_t frame;
	double ns;      /* by the first clock, since the first capture began */
	uint64_t older; /* with the same hash */
	uint32_t psn, dqpn, icrc;
	uint8_t opcode;
	bool icrc_known; /* false: the capture holds its beginning only, or it is damaged */
	bool damaged;
	bool matched;
	bool again; /* arrived, as the same had before */
};

struct window {
	struct seen *at; /* [WINDOW] */
	uint64_t *slot;  /* [WINDOW]: the newest with that hash */
	uint64_t n;      /* so far */
};

/* The shortest time from one clock to the other of each BLOCK packets. */
struct shortest {
	struct block {
		double when, ns;
	} * at; /* [BLOCKS] */
	unsigned int n, stride, skipped, filled;
	struct block next;
};

struct lane {
	struct window sent, arrived;
	uint64_t last; /* index of the newest that was sent of those that have arrived, or NONE */
	struct shortest shortest;
};

struct file {
	struct capture c;
	struct capture_frame f;
	struct judge j;
	double ns;  /* as of struct seen */
	bool sends; /* by this end to the other, or the other way */
	bool more;
	bool damaged; /* f does not say so: its UDP checksum is wrong */
	uint8_t whole[JUDGE_FRAME_MAX];
};

struct reading {
	struct ends *e;
	const struct judge_options *o;
	struct lane lane[2]; /* what end 0 sends, what end 1 sends */
	struct file file[2];
	uint64_t origin_ns;            /* of time: the first capture begins, by its clock */
	double begin_ns[2], end_ns[2]; /* of both captures, each by its own clock */
	double slack_ns;               /* so early a packet may seem to arrive */
	bool last;                     /* the clocks are known: what is counted is the result */
	bool failed;                   /* no memory */
};

/* --- windows --- */

static struct seen *
seen_at(const struct window *w, uint64_t i)
{
	return &w->at[i % WINDOW];
}

static uint64_t *
window_slot(const struct window *w, const struct seen *s)
{
	uint64_t h = ((uint64_t)s->dqpn << 32 | (uint64_t)s->opcode << 24 | s->psn) *
		0x9e3779b97f4a7c15u;

	static_assert(WINDOW == 1u << 16, "the upper bits of a hash");
	return &w->slot[h >> 48];
}

static bool
window_has(const struct window *w, uint64_t i)
{
	return i != NONE && i + WINDOW >= w->n;
}

static bool
is_same(const struct seen *a, const struct seen *b)
{
	return a->psn == b->psn && a->dqpn == b->dqpn && a->opcode == b->opcode &&
		(!a->icrc_known || !b->icrc_known || a->icrc == b->icrc);
}

/* The newest from @i on, which may be NONE, that is the same as @s and is @matched, or NONE.  CNPs
 * are all the same, so only CHAIN are looked at. */
static uint64_t
find(const struct window *w, uint64_t i, const struct seen *s, bool matched)
{
	unsigned int n;

	for (n = 0; n < CHAIN && window_has(w, i); n++) {
		if (seen_at(w, i)->matched == matched && is_same(seen_at(w, i), s))
			return i;
		i = seen_at(w, i)->older;
	}
	return NONE;
}

static int
window_make(struct window *w)
{
	w->at = calloc(WINDOW, sizeof(*w->at));
	w->slot = malloc(WINDOW * sizeof(*w->slot));
	if (w->at == NULL || w->slot == NULL)
		return -ENOMEM;
	memset(w->slot, 0xff, WINDOW * sizeof(*w->slot));
	return 0;
}

static void
window_free(struct window *w)
{
	free(w->at);
	free(w->slot);
	*w = (struct window){0};
}

/* The place of the newest, and there what had it before. */
static struct seen
window_add(struct window *w, const struct seen *s)
{
	struct seen old = w->n >= WINDOW ? *seen_at(w, w->n) : (struct seen){.matched = true};
	uint64_t *slot = window_slot(w, s);

	*seen_at(w, w->n) = *s;
	seen_at(w, w->n)->older = *slot;
	*slot = w->n++;
	return old;
}

/* --- clocks --- */

static void
shortest_keep(struct shortest *t)
{
	unsigned int i;

	if (++t->skipped < t->stride)
		return;
	t->skipped = 0;
	if (t->n == BLOCKS) {
		for (i = 0; i < BLOCKS / 2; i++)
			t->at[i] = t->at[2 * i];
		t->n = BLOCKS / 2;
		t->stride *= 2;
	}
	t->at[t->n++] = t->next;
}

static void
shortest_add(struct shortest *t, double when, double ns)
{
	if (t->filled == 0 || ns < t->next.ns)
		t->next = (struct block){when, ns};
	if (++t->filled == BLOCK) {
		t->filled = 0;
		shortest_keep(t);
	}
}

static int
by_ns(const void *a, const void *b)
{
	const struct block *x = a, *y = b;

	return (x->ns > y->ns) - (x->ns < y->ns);
}

/* The median of @n blocks, whose order is lost. */
static struct block
median(struct block *at, unsigned int n)
{
	struct block m;
	double when = 0;
	unsigned int i;

	for (i = 0; i < n; i++)
		when += at[i].when / n;
	qsort(at, n, sizeof(*at), by_ns);
	m = at[n / 2];
	m.when = when;
	return m;
}

/* A line through what one direction says: @at0 at time 0, and @slope.  @return whether it says
 * something. */
static bool
line(struct shortest *t, double *at0, double *slope)
{
	struct block a, b;

	if (t->n == 0 && t->filled != 0)
		t->at[t->n++] = t->next;
	*slope = 0;
	if (t->n == 0)
		return false;
	if (t->n < HALVES) {
		*at0 = median(t->at, t->n).ns;
		return true;
	}
	a = median(t->at, t->n / 2);
	b = median(t->at + t->n / 2, t->n - t->n / 2);
	if (b.when > a.when)
		*slope = (b.ns - a.ns) / (b.when - a.when);
	*at0 = a.ns - *slope * a.when;
	return true;
}

/* What is @own by the clock of end @i, by the first clock. */
static double
by_first_clock(const struct reading *r, unsigned int i, double own)
{
	double since = own - r->e->ahead_ns;

	return i == 0 ? own : since - r->e->drift * since;
}

/* @return whether anything has told. */
static bool
set_clocks(struct reading *r)
{
	double there, back, there_slope, back_slope;
	bool ab = line(&r->lane[0].shortest, &there, &there_slope);
	bool ba = line(&r->lane[1].shortest, &back, &back_slope);
	struct ends *e = r->e;
	double ahead = 0, drift = 0;

	e->one_way = ab != ba;
	r->slack_ns = SLACK_NS;
	if (ab && ba) {
		if (there + back > 0)
			r->slack_ns += (there + back) / 2;
		ahead = (there - back) / 2;
		drift = (there_slope - back_slope) / 2;
	} else if (ab) {
		ahead = there;
		drift = there_slope;
	} else if (ba) {
		ahead = -back;
		drift = -back_slope;
	}
	/* what was measured is by the clocks as they were taken to be */
	e->ahead_ns += ahead;
	e->drift += drift;
	return ab || ba;
}

/* --- fates --- */

static void
fate_add(struct reading *r, struct ends_fates *f, uint64_t frame, uint8_t fate)
{
	size_t room = f->room == 0 ? 1024 : 2 * f->room;
	struct ends_fate *at;

	if (!r->last)
		return;
	if (f->n == f->room) {
		at = realloc(f->at, room * sizeof(*at));
		if (at == NULL) {
			r->failed = true;
			return;
		}
		f->at = at;
		f->room = room;
	}
	f->at[f->n++] = (struct ends_fate){frame, fate};
}

/* Whether the capture of end @i ran at @ns, and @longest after it. */
static bool
covers(const struct reading *r, unsigned int i, double ns, double longest)
{
	return ns >= by_first_clock(r, i, r->begin_ns[i]) &&
		ns + longest <= by_first_clock(r, i, r->end_ns[i]);
}

/* What end @i has sent, and will not arrive any more. */
static void
sent_gone(struct reading *r, unsigned int i, const struct seen *s)
{
	struct ends_way *w = &r->e->way[i];
	double longest = w->delay_max_ns > 0 ? (double)w->delay_max_ns : 0;

	if (s->matched || !r->last)
		return;
	if (!covers(r, 1 - i, s->ns, longest)) {
		w->uncovered++;
		return;
	}
	w->lost++;
	fate_add(r, &w->fates, s->frame, AN_LOST);
}

/* What has arrived from end @i, and will not be seen there any more. */
static void
arrival_gone(struct reading *r, unsigned int i, const struct seen *s)
{
	if (!r->last || s->matched)
		return;
	if (s->again)
		r->e->way[i].doubled++;
	else if (covers(r, i, s->ns - r->slack_ns, 0))
		r->e->way[i].strange++;
}

static void
match(struct reading *r, unsigned int i, uint64_t index, const struct seen *arrival)
{
	struct lane *l = &r->lane[i];
	struct ends_way *w = &r->e->way[i];
	struct seen *s = seen_at(&l->sent, index);
	double ns = arrival->ns - s->ns;

	s->matched = true;
	if (arrival->damaged) {
		w->damaged++;
		fate_add(r, &w->fates, s->frame, AN_MAYBE);
	}
	if (l->last != NONE && index < l->last)
		w->late++;
	else
		l->last = index;
	if (w->arrived == 0 || ns < (double)w->delay_min_ns)
		w->delay_min_ns = (int64_t)ns;
	if (w->arrived == 0 || ns > (double)w->delay_max_ns)
		w->delay_max_ns = (int64_t)ns;
	w->arrived++;
	w->delay_sum_ns += ns;
}

/* --- packets --- */

/* Whether nothing else in the windows can be taken for @s: then it may tell of the clocks. */
static bool
is_only(const struct lane *l, uint64_t sent, uint64_t arrived, const struct seen *s)
{
	const struct window *w[] = {&l->sent, &l->arrived};
	uint64_t from[] = {sent, arrived};
	unsigned int i;

	for (i = 0; i < 2; i++) {
		uint64_t at =
			from[i] == NONE ? *window_slot(w[i], s) : seen_at(w[i], from[i])->older;

		if (find(w[i], at, s, false) != NONE || find(w[i], at, s, true) != NONE)
			return false;
	}
	return true;
}

static void
is_sent(struct reading *r, unsigned int i, const struct seen *s)
{
	struct lane *l = &r->lane[i];
	struct seen old = window_add(&l->sent, s), *arrival;
	uint64_t early = find(&l->arrived, *window_slot(&l->arrived, s), s, false);

	r->e->way[i].sent++;
	sent_gone(r, i, &old);
	if (early == NONE)
		return;
	arrival = seen_at(&l->arrived, early);
	if (r->last && arrival->ns < s->ns - r->slack_ns)
		return; /* of one before it */
	if (!r->last && is_only(l, l->sent.n - 1, early, s))
		shortest_add(&l->shortest, s->ns, arrival->ns - s->ns);
	arrival->matched = true;
	match(r, i, l->sent.n - 1, arrival);
}

static void
has_arrived(struct reading *r, unsigned int i, const struct seen *s)
{
	struct lane *l = &r->lane[i];
	uint64_t sent = find(&l->sent, *window_slot(&l->sent, s), s, false);
	struct seen one = *s, old;

	if (sent != NONE) {
		if (!r->last && is_only(l, sent, NONE, s))
			shortest_add(&l->shortest, s->ns, s->ns - seen_at(&l->sent, sent)->ns);
		match(r, i, sent, s);
		return;
	}
	/* or it is sent again, but the clocks say later */
	one.again = find(&l->sent, *window_slot(&l->sent, s), s, true) != NONE;
	old = window_add(&l->arrived, &one);
	arrival_gone(r, i, &old);
}

/* Whether @j went from end @i to the other. */
static bool
is_from(const struct reading *r, const struct judge *j, unsigned int i)
{
	uint8_t src[16], dst[16];

	an_addresses(j, src, dst);
	return memcmp(src, r->e->address[i], 16) == 0 && memcmp(dst, r->e->address[1 - i], 16) == 0;
}

/* The next packet of file @i that went from one end to the other, or none. */
static void
advance(struct reading *r, unsigned int i)
{
	struct file *f = &r->file[i];
	double own;

	while (capture_next(&f->c, &f->f) > 0) {
		if (i == 0 && f->c.frames == 1)
			r->origin_ns = f->c.start_ns;
		own = (double)(int64_t)(f->c.start_ns + f->f.time_ns - r->origin_ns);
		if (f->c.frames == 1)
			r->begin_ns[i] = own;
		r->end_ns[i] = own;
		f->ns = by_first_clock(r, i, own);
		judge_frame(&f->f, r->o, &f->j);
		if (f->f.len < f->f.wire_len)
			judge_beginning(&f->f, f->whole, &f->j);
		f->damaged = judge_damaged(&f->f, f->whole, &f->j) || f->j.icrc_is == JUDGE_CRC_BAD;
		f->sends = f->j.ib != NULL && is_from(r, &f->j, i);
		if (f->sends || (f->j.ib != NULL && is_from(r, &f->j, 1 - i)))
			return;
	}
	f->more = false;
}

static void
take(struct reading *r, unsigned int i)
{
	const struct file *f = &r->file[i];
	struct seen s = {.frame = f->f.number,
		.ns = f->ns,
		.psn = f->j.ib->psn,
		.dqpn = f->j.ib->dqpn,
		.opcode = f->j.ib->opcode,
		.icrc = f->j.icrc,
		.damaged = f->damaged};

	s.icrc_known = !s.damaged && f->f.len >= f->f.wire_len;
	if (f->sends)
		is_sent(r, i, &s);
	else
		has_arrived(r, 1 - i, &s);
}

/* --- readings --- */

static void
windows_free(struct reading *r)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		window_free(&r->lane[i].sent);
		window_free(&r->lane[i].arrived);
		free(r->lane[i].shortest.at);
	}
}

static int
windows_make(struct reading *r)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		struct lane *l = &r->lane[i];

		*l = (struct lane){.last = NONE, .shortest = {.stride = 1}};
		l->shortest.at = calloc(BLOCKS, sizeof(*l->shortest.at));
		if (window_make(&l->sent) != 0 || window_make(&l->arrived) != 0 ||
			l->shortest.at == NULL)
			return -1;
	}
	return 0;
}

/* What is left in the windows. */
static void
finish(struct reading *r)
{
	unsigned int i;
	uint64_t k;

	for (i = 0; i < 2; i++) {
		const struct lane *l = &r->lane[i];

		for (k = l->sent.n > WINDOW ? l->sent.n - WINDOW : 0; k < l->sent.n; k++)
			sent_gone(r, i, seen_at(&l->sent, k));
		for (k = l->arrived.n > WINDOW ? l->arrived.n - WINDOW : 0; k < l->arrived.n; k++)
			arrival_gone(r, i, seen_at(&l->arrived, k));
	}
}

/* Both files once, by the clocks as they are known.  @return 0 or -1, after a message. */
static int
read_both(struct reading *r)
{
	unsigned int i;
	int rc = 0;

	for (i = 0; i < 2; i++) {
		struct file *f = &r->file[i];

		r->e->way[i] = (struct ends_way){0};
		*f = (struct file){0};
		f->more = rc == 0 && capture_open(&f->c, r->e->path[i]) == 0;
		f->c.quiet = true; /* of damage it is told when the file is judged */
		rc = f->more ? 0 : -1;
	}
	if (windows_make(r) != 0)
		r->failed = true;
	for (i = 0; rc == 0 && !r->failed && i < 2; i++)
		advance(r, i);
	while (rc == 0 && !r->failed && (r->file[0].more || r->file[1].more)) {
		i = !r->file[0].more || (r->file[1].more && r->file[1].ns < r->file[0].ns);
		take(r, i);
		advance(r, i);
	}
	if (rc == 0 && !r->failed)
		finish(r);
	for (i = 0; i < 2; i++)
		capture_close(&r->file[i].c);
	if (r->failed)
		fputs("karst-dump: out of memory\n", stderr);
	return r->failed ? -1 : rc;
}

static int
by_frame(const void *a, const void *b)
{
	const struct ends_fate *x = a, *y = b;

	return (x->frame > y->frame) - (x->frame < y->frame);
}

int
ends_match(struct ends *e, const struct judge_options *o)
{
	struct reading r = {.e = e, .o = o};
	unsigned int i, tries;
	bool told = false;
	int rc = 0;

	for (tries = 0; rc == 0 && !told && tries < 2; tries++) {
		if (tries != 0) /* clocks that are far apart: did they begin at the same time? */
			e->ahead_ns = r.begin_ns[1] - r.begin_ns[0];
		rc = read_both(&r);
		told = rc == 0 && set_clocks(&r);
		windows_free(&r);
	}
	if (rc == 0 && !told) {
		fprintf(stderr,
			"karst-dump: --ends: no packet between the two addresses is in both files, by "
			"destination queue pair, opcode, PSN and ICRC, within %u packets of each "
			"other: wrong addresses or files, or clocks that are too far apart\n",
			WINDOW);
		rc = -1;
	}
	r.last = true;
	if (rc == 0) {
		rc = read_both(&r);
		windows_free(&r);
	}
	for (i = 0; i < 2; i++)
		if (e->way[i].fates.n != 0)
			qsort(e->way[i].fates.at, e->way[i].fates.n, sizeof(*e->way[i].fates.at),
				by_frame);
	return rc;
}

void
ends_free(struct ends *e)
{
	free(e->way[0].fates.at);
	free(e->way[1].fates.at);
}
