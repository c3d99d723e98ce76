/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Write the verdicts as text: a line for each check, and below it the packets that show it. */
#include <inttypes.h>

#include "an_priv.h"

#define UNKNOWN_SHOWN 3

static void
text_finding(FILE *out, const struct an_finding *at)
{
	char where[128] = "";
	unsigned int i;

	fputs("      ", out);
	for (i = 0; i < at->n; i++)
		fprintf(out, "%s%" PRIu64, i == 0 ? (at->n > 1 ? "packets " : "packet ") : ", ",
			at->packets[i]);
	if (at->flow != NULL)
		an_flow_text(at->flow, where, sizeof(where));
	fprintf(out, "%s%s%s%s: %s\n", at->n != 0 && at->flow != NULL ? " (" : "", where,
		at->n != 0 && at->flow != NULL ? ")" : "",
		at->n == 0 && at->flow == NULL ? "file" : "", at->text);
}

static void
passes(FILE *out, const struct an_result *r)
{
	const struct an_findings *f = &r->found[AN_PASS];
	unsigned int i, shown = 0;

	for (i = 0; i < f->n && shown < 8; i++)
		if (f->at[i].n != 0)
			fprintf(out, "%s%" PRIu64,
				shown++ == 0 ? "      for example packets " : " ",
				f->at[i].packets[f->at[i].n - 1]);
	if (shown != 0)
		fputc('\n', out);
}

static void
text_check(FILE *out, const struct an_result *r, const struct an_check_info *info)
{
	enum an_verdict v = an_overall(r->count);
	unsigned int i;

	fprintf(out, "  %-15s %-12s", info->name, an_verdict_name(v));
	if (v != AN_VERDICTS)
		fprintf(out, "pass %" PRIu64 ", fail %" PRIu64 ", cannot tell %" PRIu64,
			r->count[AN_PASS], r->count[AN_FAIL], r->count[AN_UNKNOWN]);
	fprintf(out, "\n      %s (%s)\n", info->meaning, info->rule);
	for (i = 0; i < r->found[AN_FAIL].n; i++)
		text_finding(out, &r->found[AN_FAIL].at[i]);
	if (v == AN_PASS)
		passes(out, r);
	for (i = 0; i < r->found[AN_UNKNOWN].n && i < UNKNOWN_SHOWN; i++) {
		fputs("      cannot tell:\n", out);
		text_finding(out, &r->found[AN_UNKNOWN].at[i]);
	}
}

static void
text_flow(FILE *out, const struct an_flow *f)
{
	const struct an_stream *s = &f->req;
	char text[128];

	an_flow_text(f, text, sizeof(text));
	fprintf(out, "  flow %u: %s: %" PRIu64 " packets, %" PRIu64 " bytes", f->number, text,
		f->packets, f->bytes);
	if (f->peer != NULL)
		fprintf(out, ", answered by flow %u", f->peer->number);
	if (s->begun)
		fprintf(out,
			"\n      requests %" PRIu64 ", again %" PRIu64 ", READs %" PRIu64
			", ask for an ACK %" PRIu64 "; ACKs %" PRIu64
			", up to %u PSNs each, NAKs %" PRIu64 ", RNR NAKs %" PRIu64
			", timeouts %" PRIu64,
			s->sent, s->again, s->reads, s->asked, s->acks, s->coalesced_max, s->naks,
			s->rnrs, s->timeouts);
	if (f->ce != 0)
		fprintf(out, "\n      marked CE %" PRIu64, f->ce);
	if (f->cnp.n != 0)
		fprintf(out, "\n      CNPs %" PRIu64 ", DSCP %u, ECN %u, MigReq %u", f->cnp.n,
			f->cnp_tclass >> 2, f->cnp_tclass & 3, f->cnp_migreq);
	fputc('\n', out);
}

static void
text_scope(FILE *out, const char *name, const struct an_cnp_scope *s, const char *who)
{
	if (s->min_frame[0] != 0)
		fprintf(out,
			"  CNPs by %s, %s: %" PRIu64 ", shortest interval %.1f us (packets %" PRIu64
			", %" PRIu64 ")\n",
			name, who, s->n, (double)s->min_ns / 1e3, s->min_frame[0], s->min_frame[1]);
}

static void
text_scopes(FILE *out, const struct an *a)
{
	const struct an_flow *f;
	const struct an_pair *p;
	const struct an_end *e;
	char text[128], to[64];

	for (e = a->ends; e != NULL; e = e->next) {
		an_address_text(e->address, text, sizeof(text));
		text_scope(out, "port", &e->from, text);
		text_scope(out, "destination", &e->to, text);
	}
	for (p = a->pairs; p != NULL; p = p->next) {
		an_address_text(p->src->address, text, 60);
		an_address_text(p->dst->address, to, sizeof(to));
		strcat(text, " > ");
		strcat(text, to);
		text_scope(out, "pair of addresses", &p->cnp, text);
	}
	for (f = a->flows; f != NULL; f = f->all_next) {
		an_flow_text(f, text, sizeof(text));
		text_scope(out, "queue pair", &f->cnp, text);
	}
}

void
an_report_text(const struct an *a, FILE *out, const char *file)
{
	const struct an_flow *f;
	unsigned int i;

	fprintf(out, "%s: %" PRIu64 " frames, %" PRIu64 " packets, %u flows", file, a->frames,
		a->packets, a->nflows);
	if (a->truncated != 0)
		fprintf(out, ", captured in part %" PRIu64, a->truncated);
	if (a->doubled != 0)
		fprintf(out, ", doubled %" PRIu64, a->doubled);
	if (a->o->injuries != NULL)
		fprintf(out, "; injuries %" PRIu64 ", found %" PRIu64 ", records lost %" PRIu64,
			a->injuries, a->injuries_used, a->injuries_lost);
	fputc('\n', out);
	for (f = a->flows; f != NULL; f = f->all_next)
		text_flow(out, f);
	for (i = 0; i < AN_CHECKS; i++)
		text_check(out, &a->result[i], &an_checks[i]);
	for (i = 0; i < AN_LATENCIES; i++)
		if (a->latency[i].n != 0)
			fprintf(out,
				"  %-38s n %" PRIu64
				", least %.3f us, mean %.3f us, most %.3f us\n",
				an_latency_names[i], a->latency[i].n,
				(double)a->latency[i].min / 1e3,
				(double)a->latency[i].sum / (double)a->latency[i].n / 1e3,
				(double)a->latency[i].max / 1e3);
	text_scopes(out, a);
}
