/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Both files are read side by side, the earlier packet first, by clocks as far as they are known,
 * and three times: the first reading finds out roughly what the clocks differ by, the second one
 * exactly, and how well that is known (ends_clocks.c).  These take of each packet that arrives the
 * time since it was sent, if nothing else in the windows is the same.  The third finds what became
 * of what was sent, packet by packet (ends_fates.c): those that are the same are looked at when
 * HALF as many others have come, as these tell of the order, and what is not clear then when they
 * leave the window.
 *
 * That the shortest way is as long in both directions need not be so.  If it is not, the clocks are
 * taken wrongly by half of what it takes there and back at the most, and by so much a packet may
 * seem to arrive before it was sent.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "ends_priv.h"
#include "karst_prf.h"

#define CHAIN 64u /* with one hash, from the newest on */
#define HALF  (ENDS_WINDOW / 2)

static_assert(ENDS_WINDOW == 1u << 16, "a hash is a uint16_t");

struct file {
	struct capture c;
	struct capture_frame f;
	struct judge j;
	double ns;  /* as of struct ends_seen */
	bool sends; /* by this end to the other, or the other way */
	bool more;
	bool damaged; /* f does not say so: its UDP checksum is wrong */
	uint8_t whole[JUDGE_FRAME_MAX];
};

/* What only the reading itself needs. */
struct reader {
	struct ends_reading r;
	const struct judge_options *o;
	struct file file[2];
	uint64_t origin_ns; /* of time: the first capture begins, by its clock */
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

/* The newest from @i on, which may be NONE, that is the same as @s, and @matched if that matters,
 * or NONE.  CNPs are all the same, so only CHAIN are looked at. */
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

/* In the place of the oldest. */
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

/* Whether nothing else in the windows is the same as @s, which is the newest in one of them and
 * @other in the other window. */
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

	/* when: by the first clock, however little is known of the second one */
	ends_times_add(&l->times, i == 0 ? sent->ns : arrived->ns, arrived->ns - sent->ns);
	if (sent->ns > l->newest_ns)
		l->newest_ns = sent->ns;
	else if (l->newest_ns - sent->ns > l->reorder_ns)
		l->reorder_ns = l->newest_ns - sent->ns;
}

/* @s was sent, or has arrived: the other window has what it belongs to, or will have it. */
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

/* The same, when the clocks are known. */
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

/* Whether @j went from end @i to the other. */
static bool
is_from(const struct ends *e, const struct judge *j, unsigned int i)
{
	uint8_t src[16], dst[16];

	an_addresses(j, src, dst);
	return memcmp(src, e->address[i], 16) == 0 && memcmp(dst, e->address[1 - i], 16) == 0;
}

/* The next packet of file @i that went from one end to the other, or none. */
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

/* @what is done to all that are left in a window. */
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

/* Both files once, by the clocks as they are known.  @return 0 or -1, after a message. */
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
		f->c.quiet = true; /* of damage it is told when the file is judged */
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

/* Any number of files may be read side by side, but by clocks that are far apart nothing is found:
 * did they begin at the same time?  @return whether anything has told of the clocks. */
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
		rd->r.key[0] = (uintptr_t)rd; /* better than nothing */
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
