/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Report the comparison of the captures of two ends as text, and as one JSON object. */
#include <inttypes.h>

#include "../json_more.h"
#include "an_priv.h"
#include "ends.h"

#define SHOWN 16 /* maximum number of packets that are listed */

static void
frames_of(FILE *out, const struct ends *e, unsigned int i, uint8_t fate, bool unsure,
	const char *what)
{
	const struct ends_fates *f = &e->way[i].fates;
	unsigned int shown = 0;
	size_t k;

	for (k = 0; k < f->n; k++) {
		if (f->at[k].fate != fate || f->at[k].unsure != unsure)
			continue;
		if (shown == SHOWN) {
			fputs(" ...", out);
			break;
		}
		if (shown++ == 0)
			fprintf(out, "      %s, as numbered in %s:", what, e->path[i]);
		fprintf(out, " %" PRIu64, f->at[k].frame);
	}
	if (shown != 0)
		fputc('\n', out);
}

static void
way(FILE *out, const struct ends *e, unsigned int i)
{
	const struct ends_way *w = &e->way[i];
	char from[64], to[64];

	an_address_text(e->address[i], from, sizeof(from));
	an_address_text(e->address[1 - i], to, sizeof(to));
	fprintf(out,
		"  %s > %s: sent %" PRIu64 ", arrived %" PRIu64 ", lost %" PRIu64
		", damaged %" PRIu64 ", doubled %" PRIu64 ", out of order %" PRIu64 "\n",
		from, to, w->sent, w->arrived, w->lost, w->damaged, w->doubled, w->late);
	if (w->uncovered != 0)
		fprintf(out,
			"      cannot tell of %" PRIu64 ": %s does not cover the time of their "
			"arrival\n",
			w->uncovered, e->path[1 - i]);
	if (w->unsure != 0)
		fprintf(out,
			"      cannot tell which: %" PRIu64
			" are the same as others that were sent "
			"about then; of them lost %" PRIu64 ", damaged %" PRIu64 "\n",
			w->unsure, w->unsure_lost, w->unsure_damaged);
	if (w->strange != 0)
		fprintf(out, "      arrived, but %s does not have them: %" PRIu64 "\n", e->path[i],
			w->strange);
	if (w->arrived != 0)
		fprintf(out, "      delay%s: least %.3f us, mean %.3f us, most %.3f us\n",
			e->one_way ? ", less the shortest" : "", (double)w->delay_min_ns / 1e3,
			w->delay_sum_ns / (double)w->arrived / 1e3, (double)w->delay_max_ns / 1e3);
	frames_of(out, e, i, AN_LOST, false, "lost");
	frames_of(out, e, i, AN_MAYBE, false, "damaged");
	frames_of(out, e, i, AN_MAYBE, true, "cannot tell which");
}

void
ends_report_text(const struct ends *e, FILE *out)
{
	fprintf(out,
		"between %s and %s: the second clock is %.6f s ahead, and gains %.1f us a second; "
		"known to %.3f us\n",
		e->path[0], e->path[1], e->ahead_ns / 1e9, e->drift * 1e6, e->known_ns / 1e3);
	way(out, e, 0);
	way(out, e, 1);
}

static json_t *
frames_json(const struct ends_fates *f, uint8_t fate, bool unsure)
{
	json_t *list = json_array();
	size_t k;

	for (k = 0; k < f->n; k++)
		if (f->at[k].fate == fate && f->at[k].unsure == unsure)
			json_array_append_new(list, json_integer((json_int_t)f->at[k].frame));
	return list;
}

static json_t *
way_json(const struct ends *e, unsigned int i)
{
	const struct ends_way *w = &e->way[i];
	json_t *o = json_object();
	char text[64];

	an_address_text(e->address[i], text, sizeof(text));
	json_object_set_new(o, "src", json_string(text));
	an_address_text(e->address[1 - i], text, sizeof(text));
	json_object_set_new(o, "dst", json_string(text));
	json_set_uint(o, "sent", w->sent);
	json_set_uint(o, "arrived", w->arrived);
	json_set_uint(o, "lost", w->lost);
	json_set_uint(o, "damaged", w->damaged);
	json_set_uint(o, "doubled", w->doubled);
	json_set_uint(o, "out_of_order", w->late);
	json_set_uint(o, "cannot_tell", w->uncovered + w->unsure);
	json_set_uint(o, "cannot_tell_which", w->unsure);
	json_set_uint(o, "cannot_tell_which_lost", w->unsure_lost);
	json_set_uint(o, "cannot_tell_which_damaged", w->unsure_damaged);
	json_set_uint(o, "not_in_senders_capture", w->strange);
	if (w->arrived != 0)
		json_object_set_new(o, "delay_ns",
			json_pack("{s:I, s:f, s:I}", "min", (json_int_t)w->delay_min_ns, "mean",
				w->delay_sum_ns / (double)w->arrived, "max",
				(json_int_t)w->delay_max_ns));
	json_object_set_new(o, "lost_packets", frames_json(&w->fates, AN_LOST, false));
	json_object_set_new(o, "damaged_packets", frames_json(&w->fates, AN_MAYBE, false));
	json_object_set_new(o, "cannot_tell_which_packets", frames_json(&w->fates, AN_MAYBE, true));
	return o;
}

void
ends_report_json(const struct ends *e, FILE *out)
{
	json_t *o = json_pack("{s:[o, o], s:f, s:f, s:f, s:b, s:[o, o]}", "files",
		json_text(e->path[0]), json_text(e->path[1]), "clock_ahead_s", e->ahead_ns / 1e9,
		"clock_drift", e->drift, "clock_known_ns", e->known_ns, "delay_from_shortest",
		e->one_way, "directions", way_json(e, 0), way_json(e, 1));

	json_dumpf(o, out, JSON_COMPACT | JSON_PRESERVE_ORDER);
	fputc('\n', out);
	json_decref(o);
}
