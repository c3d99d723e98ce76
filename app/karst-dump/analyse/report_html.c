/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Write the report as one page: verdicts, the packets that show them, and for each flow a sequence
 * plot as SVG.  The page refers to no other files and has no scripts, so it can be kept, mailed and
 * opened anywhere.
 */
#include <inttypes.h>

#include "an_priv.h"

#define W      1000
#define H      320
#define LEFT   90
#define BOTTOM 40
#define TICKS  5

static const char head[] =
	"<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
	"<style>\n"
	"body{font:15px/1.45 sans-serif;margin:2em auto;max-width:68em;padding:0 1em;color:#1c2330;"
	"background:#fff}\n"
	"table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;"
	"padding:.3em .7em;border-bottom:1px solid #d8dde5}\n"
	"td.n{text-align:right;font-variant-numeric:tabular-nums}\n"
	".v{white-space:nowrap;font-weight:600}.pass{color:#176b3a}.fail{color:#b3191f}"
	".cannot{color:#8a5a00}.not{color:#717a88}\n"
	".why{color:#4a5362;font-size:13px}.scroll{overflow-x:auto}\n"
	"svg{background:#fafbfc;border:1px solid #d8dde5;max-width:100%;height:auto}"
	"svg text{font:12px sans-serif;fill:#4a5362}\n"
	".k span{margin-right:1.4em}\n"
	"</style>\n";

static const struct {
	const char *name, *colour;
	const char *mark; /* SVG path around 0,0 */
} kinds[] = {
	[AN_PT_NEW] = {"new request", "#3566b8", "M-1.5-1.5h3v3h-3z"},
	[AN_PT_AGAIN] = {"sent again", "#c8371f", "M-4-4L4 4M-4 4L4-4"},
	[AN_PT_ACK] = {"acknowledged", "#2f9155", "M-2 0h4"},
	[AN_PT_NAK] = {"NAK", "#8a1fa8", "M0-6L6 5H-6z"},
	[AN_PT_RNR] = {"RNR NAK", "#b97700", "M0 6L6-5H-6z"},
	[AN_PT_CNP] = {"CNP", "#0f8a94", "M0-6L5 0L0 6L-5 0z"},
};

/* Whether the mark is drawn as lines, not filled. */
static bool
is_line(unsigned int kind)
{
	return kind == AN_PT_AGAIN || kind == AN_PT_ACK;
}

static void
escape(FILE *out, const char *s)
{
	for (; *s != '\0'; s++)
		if (*s == '<')
			fputs("&lt;", out);
		else if (*s == '>')
			fputs("&gt;", out);
		else if (*s == '&')
			fputs("&amp;", out);
		else if (*s == '"')
			fputs("&quot;", out);
		else
			fputc((unsigned char)*s < 0x20 ? '?' : *s, out);
}

static void
html_finding(FILE *out, const struct an_finding *at, enum an_verdict v)
{
	char where[128] = "";
	unsigned int i;

	fputs("<div class=\"why\">", out);
	if (v == AN_UNKNOWN)
		fputs("cannot tell: ", out);
	for (i = 0; i < at->n; i++)
		fprintf(out, "%s%" PRIu64, i == 0 ? (at->n > 1 ? "packets " : "packet ") : ", ",
			at->packets[i]);
	if (at->flow != NULL)
		an_flow_text(at->flow, where, sizeof(where));
	if (at->n != 0 && where[0] != '\0')
		fputs(", ", out);
	escape(out, where);
	fputs(": ", out);
	escape(out, at->text);
	fputs("</div>\n", out);
}

static void
html_check(FILE *out, const struct an_result *r, const struct an_check_info *info)
{
	static const char *const class[] = {"pass", "fail", "cannot", "not"};
	enum an_verdict v = an_overall(r->count);
	unsigned int i;

	fprintf(out,
		"<tr><td><b>%s</b></td><td class=\"v %s\">%s</td><td class=\"n\">%" PRIu64
		"</td><td class=\"n\">%" PRIu64 "</td><td class=\"n\">%" PRIu64 "</td><td>",
		info->name, class[v], an_verdict_name(v), r -> count[AN_PASS], r -> count[AN_FAIL],
		r -> count[AN_UNKNOWN]);
	escape(out, info->meaning);
	fputs(" <span class=\"why\">(", out);
	escape(out, info->rule);
	fputs(")</span>\n", out);
	for (i = 0; i < r->found[AN_FAIL].n; i++)
		html_finding(out, &r->found[AN_FAIL].at[i], AN_FAIL);
	for (i = 0; i < r->found[AN_UNKNOWN].n && i < 3; i++)
		html_finding(out, &r->found[AN_UNKNOWN].at[i], AN_UNKNOWN);
	fputs("</td></tr>\n", out);
}

/* --- the plot --- */

struct frame {
	uint64_t ns0, ns1;
	uint32_t psn0;
	int32_t lo, hi; /* PSNs, relative to psn0 */
};

static void
bounds(const struct an_plot *t, struct frame *b)
{
	unsigned int i;

	*b = (struct frame){.ns0 = t->at[0].ns, .ns1 = t->at[0].ns, .psn0 = t->at[0].psn};
	for (i = 0; i < t->n; i++) {
		int32_t d = karst_psn_diff(t->at[i].psn, b->psn0);

		b->lo = d < b->lo ? d : b->lo;
		b->hi = d > b->hi ? d : b->hi;
		b->ns0 = t->at[i].ns < b->ns0 ? t->at[i].ns : b->ns0;
		b->ns1 = t->at[i].ns > b->ns1 ? t->at[i].ns : b->ns1;
	}
	b->hi += b->hi == b->lo;
	b->ns1 += b->ns1 == b->ns0;
}

static double
x_of(const struct frame *b, uint64_t ns)
{
	return LEFT + (double)(ns - b->ns0) / (double)(b->ns1 - b->ns0) * (W - LEFT - 20);
}

static double
y_of(const struct frame *b, double psn)
{
	return H - BOTTOM - (psn - b->lo) / ((double)b->hi - b->lo) * (H - BOTTOM - 20);
}

static void
axes(FILE *out, const struct frame *b)
{
	int i;

	for (i = 0; i <= TICKS; i++) {
		uint64_t ns = b->ns0 + (b->ns1 - b->ns0) / TICKS * (unsigned int)i;
		double psn = b->lo + ((double)b->hi - b->lo) * i / TICKS;
		double x = x_of(b, ns), y = y_of(b, (int32_t)psn);

		fprintf(out,
			"<path d=\"M%.1f 20V%d\" stroke=\"#e4e8ee\"/><text x=\"%.1f\" y=\"%d\" "
			"text-anchor=\"%s\">%.3f</text>\n",
			x, H - BOTTOM, x, H - BOTTOM + 16,
			i == 0               ? "start"
				: i == TICKS ? "end"
					     : "middle",
			(double)ns / 1e6);
		if (i != 0 &&
			(int32_t)psn ==
				(int32_t)(b->lo + ((double)b->hi - b->lo) * (i - 1) / TICKS))
			continue;
		fprintf(out,
			"<path d=\"M%d %.1fH%d\" stroke=\"#e4e8ee\"/><text x=\"%d\" y=\"%.1f\" "
			"text-anchor=\"end\">%06x</text>\n",
			LEFT, y, W - 20, LEFT - 6, y + 4,
			karst_psn_add(b->psn0, (uint32_t)(int32_t)psn));
	}
	fprintf(out,
		"<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">ms since the first frame</text>\n",
		(W + LEFT) / 2, H - 6);
	fprintf(out, "<text x=\"8\" y=\"14\">PSN</text>\n");
}

/* Draws the ordinary points, or the marks, which have to be drawn over these. */
static void
points(FILE *out, const struct an_plot *t, const struct frame *b, bool marks)
{
	unsigned int i;

	for (i = 0; i < t->n; i++) {
		const struct an_point *at = &t->at[i];
		bool mark = at->kind != AN_PT_NEW && at->kind != AN_PT_ACK;
		double y = y_of(b, karst_psn_diff(at->psn, b->psn0));

		if (mark != marks)
			continue;
		fprintf(out, "<path transform=\"translate(%.1f %.1f)\" d=\"%s\" %s=\"%s\"%s>",
			x_of(b, at->ns), y, kinds[at->kind].mark,
			is_line(at->kind) ? "stroke" : "fill", kinds[at->kind].colour,
			is_line(at->kind) ? " stroke-width=\"1.6\"" : "");
		fprintf(out, "<title>%s, PSN %06x, %.6f ms</title></path>\n", kinds[at->kind].name,
			at->psn, (double)at->ns / 1e6);
	}
}

static void
plot(FILE *out, const struct an_flow *f)
{
	const struct an_plot *t = &f->req.plot;
	struct frame b;
	char text[128];

	if (t->n < 2)
		return;
	bounds(t, &b);
	an_flow_text(f, text, sizeof(text));
	fprintf(out, "<h3>Flow %u: ", f->number);
	escape(out, text);
	fprintf(out,
		"</h3>\n<p class=\"why\">%" PRIu64 " requests, %" PRIu64 " sent again, %" PRIu64
		" ACKs, %" PRIu64 " NAKs, %" PRIu64 " RNR NAKs, %" PRIu64 " timeouts",
		f->req.sent, f->req.again, f->req.acks, f->req.naks, f->req.rnrs, f->req.timeouts);
	if (t->stride > 1)
		fprintf(out, "; of new requests and ACKs every %uth is drawn", t->stride);
	if (t->missing != 0)
		fprintf(out, "; %" PRIu64 " points had no room", t->missing);
	fprintf(out,
		"</p>\n<div class=\"scroll\"><svg viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
		"role=\"img\" aria-label=\"PSN over time\">\n",
		W, H, W, H);
	axes(out, &b);
	points(out, t, &b, false);
	points(out, t, &b, true);
	fputs("</svg></div>\n", out);
}

static void
legend(FILE *out)
{
	unsigned int i;

	fputs("<p class=\"k\">", out);
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		fprintf(out,
			"<span><svg viewBox=\"-8 -8 16 16\" width=\"16\" height=\"16\" "
			"style=\"border:0\"><path d=\"%s\" %s=\"%s\"/></svg> %s</span>",
			kinds[i].mark, is_line(i) ? "stroke-width=\"1.6\" stroke" : "fill",
			kinds[i].colour, kinds[i].name);
	fputs("</p>\n", out);
}

static void
html_latencies(FILE *out, const struct an *a)
{
	unsigned int i;

	fputs("<h2>Times</h2>\n<table><tr><th>from, to</th><th>n</th><th>least, us</th><th>mean, us</th>"
	      "<th>most, us</th></tr>\n",
		out);
	for (i = 0; i < AN_LATENCIES; i++)
		if (a->latency[i].n != 0)
			fprintf(out,
				"<tr><td>%s</td><td class=\"n\">%" PRIu64
				"</td><td class=\"n\">%.3f</td>"
				"<td class=\"n\">%.3f</td><td class=\"n\">%.3f</td></tr>\n",
				an_latency_names[i], a->latency[i].n,
				(double)a->latency[i].min / 1e3,
				(double)a->latency[i].sum / (double)a->latency[i].n / 1e3,
				(double)a->latency[i].max / 1e3);
	fputs("</table>\n", out);
}

void
an_report_html(const struct an *a, FILE *out, const char *file)
{
	const struct an_flow *f;
	unsigned int i;

	fputs(head, out);
	fputs("<title>", out);
	escape(out, file);
	fputs("</title></head><body>\n<h1>", out);
	escape(out, file);
	fprintf(out, "</h1>\n<p>%" PRIu64 " frames, %" PRIu64 " packets, %u flows", a->frames,
		a->packets, a->nflows);
	if (a->have_log)
		fprintf(out,
			"; the injury log has %" PRIu64 " packets, %" PRIu64
			" of them in the capture",
			a->injuries, a->injuries_used);
	fputs(".  By karst-dump --analyse.</p>\n<h2>Checks</h2>\n<div class=\"scroll\"><table>"
	      "<tr><th>check</th><th>verdict</th><th>pass</th><th>fail</th><th>cannot tell</th>"
	      "<th>what has to hold (rules of doc/protocol.rst)</th></tr>\n",
		out);
	for (i = 0; i < AN_CHECKS; i++)
		html_check(out, &a->result[i], &an_checks[i]);
	fputs("</table></div>\n", out);
	html_latencies(out, a);
	fputs("<h2>Sequence plots</h2>\n", out);
	legend(out);
	for (f = a->flows; f != NULL; f = f->all_next)
		plot(out, f);
	fputs("</body></html>\n", out);
}
