/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Read both files in parallel, always taking the packet that is earlier by the clocks as known so
 * far, and do this three times.  The first reading estimates the difference of the clocks roughly.
 * The second one estimates it exactly, with its uncertainty (ends_clocks.c).  These two measure,
 * for each packet that arrives, the time since it was sent, if nothing else in the windows is
 * identical to it.  The third reading finds what became of each packet that was sent
 * (ends_fates.c).  Identical packets are judged when HALF more packets have come after the first of
 * them, because those tell the order.  What is not clear then is judged when the packet leaves the
 * window.
 *
 * The shortest delay need not be the same in both directions.  If it is not, the estimate of the
 * clock difference is wrong by up to half of the shortest round trip.  By as much, a packet may
 * seem to have arrived before it was sent.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "ends_priv.h"
#include "karst_prf.h"

#define CHAIN 64u /* maximum number of packets of one hash that are examined, from the newest on */
#define HALF  (ENDS_WINDOW / 2)

static_assert(ENDS_WINDOW == 1u << 16, "a hash is a uint16_t");

struct file {
	struct capture c;
	struct capture_frame f;
	struct judge j;
	double ns;  /* as in struct ends_seen */
	bool sends; /* true: from this end to the other; false: the other way */
	bool more;
	bool damaged; /* its UDP checksum or its ICRC is wrong */
	uint8_t whole[JUDGE_FRAME_MAX];
};

/* The part of the state that only the reading itself needs. */
struct reader {
	struct ends_reading r;
	const struct judge_options *o;
	struct file file[2];
	uint64_t origin_ns; /* time 0: when the first capture begins, by its clock */
};

double
ends_by_first(const struct ends_reading *r, unsigned int i, double own)
{
	double since = own - r->e->ahead_ns;

	return i == 0 ? own : since - r->e->drift * since;
}

/* --- windows --- */

static uint16_t
slot_of(const struct ends_reading *r, const struct ends_seen *s)
{
	return (uint16_t)karst_prf(r->key, (uint64_t)s->dqpn << 32 | s->psn, s->opcode);
}

bool
ends_is_like(const struct ends_seen *a, const struct ends_seen *b)
{
	return a->psn == b->psn && a->dqpn == b->dqpn && a->opcode == b->opcode;
}

bool
ends_is_same(const struct ends_seen *a, const struct ends_seen *b)
{
	return ends_is_like(a, b) && (!a->icrc_known || !b->icrc_known || a->icrc == b->icrc);
}

/*
 * Finds the newest packet, from @i on, that is the same as @s.  @i may be NONE.  @unmatched: only
 * one that is not matched.  At most CHAIN packets are examined, because all CNPs are identical.
 * @return its index or NONE.
 */
static uint64_t
find(const struct ends_window *w, uint64_t i, const struct ends_seen *s, bool unmatched)
{
	unsigned int n;

	for (n = 0; n < CHAIN && ends_has(w, i); n++) {
		if (!(unmatched && ends_at(w, i)->matched) && ends_is_same(ends_at(w, i), s))
			return i;
		i = ends_at(w, i)->older;
	}
	return ENDS_NONE;
}

static int
window_make(struct ends_window *w)
{
	w->at = calloc(ENDS_WINDOW, sizeof(*w->at));
	w->newest = malloc(ENDS_WINDOW * sizeof(*w->newest));
	w->oldest = malloc(ENDS_WINDOW * sizeof(*w->oldest));
	if (w->at == NULL || w->newest == NULL || w->oldest == NULL)
		return -ENOMEM;
	memset(w->newest, 0xff, ENDS_WINDOW * sizeof(*w->newest));
	memset(w->oldest, 0xff, ENDS_WINDOW * sizeof(*w->oldest));
	return 0;
}

static void
window_free(struct ends_window *w)
{
	free(w->at);
	free(w->newest);
	free(w->oldest);
	*w = (struct ends_window){0};
}

/* Adds @s in the place of the oldest packet. */
static void
window_add(struct ends_window *w, const struct ends_seen *s)
{
	uint64_t older;

	if (w->n >= ENDS_WINDOW) {
		const struct ends_seen *old = ends_at(w, w->n);

		w->oldest[old->slot] = old->newer;
		if (old->newer == ENDS_NONE)
			w->newest[old->slot] = ENDS_NONE;
	}
	older = w->newest[s->slot];
	*ends_at(w, w->n) = *s;
	ends_at(w, w->n)->older = older;
	ends_at(w, w->n)->newer = ENDS_NONE;
	if (older == ENDS_NONE)
		w->oldest[s->slot] = w->n;
	else
		ends_at(w, older)->newer = w->n;
	w->newest[s->slot] = w->n++;
}

/* --- packets --- */

/*
 * Whether nothing else in the windows is the same as @s, where @s is the newest in its own window
 * and @other is its match in the other one.
 */
static bool
is_only(const struct ends_window *own, const struct ends_window *others, uint64_t other,
	const struct ends_seen *s, uint64_t older)
{
	return find(own, older, s, false) == ENDS_NONE &&
		find(others, ends_at(others, other)->older, s, false) == ENDS_NONE;
}

static void
time_taken(struct ends_reading *r, unsigned int i, const struct ends_seen *sent,
	const struct ends_seen *arrived)
{
	struct ends_lane *l = &r->lane[i];

	/* take the time from the first clock, because little may be known of the second one */
	ends_times_add(&l->times, i == 0 ? sent->ns : arrived->ns, arrived->ns - sent->ns);
	if (sent->ns > l->newest_ns)
		l->newest_ns = sent->ns;
	else if (l->newest_ns - sent->ns > l->reorder_ns)
		l->reorder_ns = l->newest_ns - sent->ns;
}

/*
 * Takes @s, which was sent or has arrived, and measures its time if the other window has its match.
 */
static void
take_time(struct ends_reading *r, unsigned int i, const struct ends_seen *s, bool sent)
{
	struct ends_lane *l = &r->lane[i];
	struct ends_window *own = sent ? &l->sent : &l->arrived;
	struct ends_window *others = sent ? &l->arrived : &l->sent;
	struct ends_seen *one;
	uint64_t other = find(others, others->newest[s->slot], s, true);

	window_add(own, s);
	if (other == ENDS_NONE)
		return;
	one = ends_at(others, other);
	one->matched = ends_at(own, own->n - 1)->matched = true;
	if (is_only(own, others, other, s, ends_at(own, own->n - 1)->older))
		time_taken(r, i, sent ? s : one, sent ? one : s);
}

/* As take_time(), when the clocks are known: finds the fates of packets. */
static void
take_fate(struct ends_reading *r, unsigned int i, const struct ends_seen *s, bool sent)
{
	struct ends_lane *l = &r->lane[i];
	struct ends_window *w = sent ? &l->sent : &l->arrived;

	r->e->way[i].sent += sent;
	if (w->n >= HALF)
		ends_settle_plain(r, i, ends_at(w, w->n - HALF));
	if (w->n >= ENDS_WINDOW) {
		ends_settle(r, i, ends_at(w, w->n));
		if (!sent)
			ends_arrival_goes(r, i, ends_at(w, w->n));
	}
	window_add(w, s);
}

/* Whether the packet of @j went from end @i to the other end. */
static bool
is_from(const struct ends *e, const struct judge *j, unsigned int i)
{
	uint8_t src[16], dst[16];

	an_addresses(j, src, dst);
	return memcmp(src, e->address[i], 16) == 0 && memcmp(dst, e->address[1 - i], 16) == 0;
}

/* Reads the next packet of file @i that went from one end to the other; there may be none. */
static void
advance(struct reader *rd, unsigned int i)
{
	struct ends_reading *r = &rd->r;
	struct file *f = &rd->file[i];
	double own;

	while (capture_next(&f->c, &f->f) > 0) {
		if (i == 0 && f->c.frames == 1)
			rd->origin_ns = f->c.start_ns;
		own = (double)(int64_t)(f->c.start_ns + (uint64_t)f->f.time_ns - rd->origin_ns);
		if (f->c.frames == 1 || own < r->begin_ns[i])
			r->begin_ns[i] = own;
		if (f->c.frames == 1 || own > r->end_ns[i])
			r->end_ns[i] = own;
		f->ns = ends_by_first(r, i, own);
		judge_frame(&f->f, rd->o, &f->j);
		if (f->f.len < f->f.wire_len)
			judge_beginning(&f->f, f->whole, &f->j);
		f->damaged = judge_damaged(&f->f, f->whole, &f->j) || f->j.icrc_is == JUDGE_CRC_BAD;
		f->sends = f->j.ib != NULL && is_from(r->e, &f->j, i);
		if (f->sends || (f->j.ib != NULL && is_from(r->e, &f->j, 1 - i)))
			return;
	}
	f->more = false;
}

static void
take(struct reader *rd, unsigned int i)
{
	const struct file *f = &rd->file[i];
	struct ends_reading *r = &rd->r;
	unsigned int way = f->sends ? i : 1 - i;
	struct ends_seen s = {.frame = f->f.number,
		.ns = f->ns,
		.other = ENDS_NONE,
		.psn = f->j.ib->psn,
		.dqpn = f->j.ib->dqpn,
		.opcode = f->j.ib->opcode,
		.icrc = f->j.icrc,
		.damaged = f->damaged};

	s.slot = slot_of(r, &s);
	s.icrc_known = !s.damaged && f->f.len >= f->f.wire_len;
	if (r->pass == ENDS_FATES)
		take_fate(r, way, &s, f->sends);
	else
		take_time(r, way, &s, f->sends);
}

/* --- readings --- */

static void
windows_free(struct ends_reading *r)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		window_free(&r->lane[i].sent);
		window_free(&r->lane[i].arrived);
		free(r->lane[i].times.at);
	}
}

static int
windows_make(struct ends_reading *r)
{
	unsigned int i;
	int rc = 0;

	for (i = 0; i < 2; i++) {
		struct ends_lane *l = &r->lane[i];
		struct ends_lane was = *l;

		*l = (struct ends_lane){.newest = ENDS_NONE, .newest_ns = -1e300};
		if (r->pass == ENDS_FATES) {
			l->longest_ns = was.longest_ns;
			l->most_ns = was.most_ns;
			l->reorder_ns = was.reorder_ns;
		}
		rc |= ends_times_make(&l->times) | window_make(&l->sent) | window_make(&l->arrived);
	}
	return rc;
}

/* Calls @what for all packets that are left in a window. */
static void
all(struct ends_reading *r, unsigned int i, const struct ends_window *w,
	void (*what)(struct ends_reading *, unsigned int, const struct ends_seen *))
{
	uint64_t k;

	for (k = w->n > ENDS_WINDOW ? w->n - ENDS_WINDOW : 0; k < w->n; k++)
		what(r, i, ends_at(w, k));
}

static void
finish(struct ends_reading *r)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		const struct ends_lane *l = &r->lane[i];

		all(r, i, &l->sent, ends_settle_plain);
		all(r, i, &l->sent, ends_settle);
		all(r, i, &l->arrived, ends_settle);
		all(r, i, &l->arrived, ends_arrival_goes);
	}
}

/* Reads both files once, by the clocks as known so far.  @return 0 or -1, after a message. */
static int
read_both(struct reader *rd, enum ends_pass pass)
{
	struct ends_reading *r = &rd->r;
	unsigned int i;
	int rc = 0;

	r->pass = pass;
	for (i = 0; i < 2; i++) {
		struct file *f = &rd->file[i];

		r->e->way[i] = (struct ends_way){0};
		*f = (struct file){0};
		f->more = rc == 0 && capture_open(&f->c, r->e->path[i]) == 0;
		f->c.quiet = true; /* damage is reported when the file is judged */
		rc = f->more ? 0 : -1;
	}
	if (windows_make(r) != 0)
		r->failed = true;
	for (i = 0; rc == 0 && !r->failed && i < 2; i++)
		advance(rd, i);
	while (rc == 0 && !r->failed && (rd->file[0].more || rd->file[1].more)) {
		i = !rd->file[0].more || (rd->file[1].more && rd->file[1].ns < rd->file[0].ns);
		take(rd, i);
		advance(rd, i);
	}
	if (rc == 0 && !r->failed && pass == ENDS_FATES)
		finish(r);
	for (i = 0; i < 2; i++)
		capture_close(&rd->file[i].c);
	if (r->failed)
		fputs("karst-dump: out of memory\n", stderr);
	return r->failed ? -1 : rc;
}

/*
 * Estimates the clocks.  If the clocks are far apart, reading by them finds no match.  The second
 * try then assumes that both captures began at the same time.  @return 0 or -1, after a message.
 */
static int
find_clocks(struct reader *rd)
{
	struct ends *e = rd->r.e;
	unsigned int tries;
	bool told = false;
	int rc = 0;

	for (tries = 0; rc == 0 && !told && tries < 2; tries++) {
		if (tries != 0)
			e->ahead_ns = rd->r.begin_ns[1] - rd->r.begin_ns[0];
		rc = read_both(rd, ENDS_ROUGHLY);
		told = rc == 0 && ends_clocks_roughly(&rd->r);
		windows_free(&rd->r);
	}
	if (rc == 0 && !told) {
		fprintf(stderr,
			"karst-dump: --ends: no packet between the two addresses is in both files, by "
			"destination queue pair, opcode, PSN and ICRC, within %u packets of each "
			"other: wrong addresses or files, or clocks that are too far apart\n",
			ENDS_WINDOW);
		rc = -1;
	}
	if (rc != 0)
		return rc;
	rc = read_both(rd, ENDS_EXACTLY);
	if (rc == 0)
		ends_clocks_exactly(&rd->r);
	windows_free(&rd->r);
	return rc;
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
	struct reader *rd = calloc(1, sizeof(*rd));
	unsigned int i;
	int rc;

	if (rd == NULL) {
		fputs("karst-dump: out of memory\n", stderr);
		return -1;
	}
	rd->r.e = e;
	rd->o = o;
	if (getrandom(rd->r.key, sizeof(rd->r.key), 0) != (ssize_t)sizeof(rd->r.key))
		rd->r.key[0] = (uintptr_t)rd; /* predictable, but still differs between runs */
	rc = find_clocks(rd);
	if (rc == 0) {
		rc = read_both(rd, ENDS_FATES);
		windows_free(&rd->r);
	}
	free(rd);
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
