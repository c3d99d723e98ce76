/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The same as one JSON object. */
#include <jansson.h>

#include "an_priv.h"

static void
set(json_t *o, const char *key, uint64_t v)
{
	json_object_set_new(o, key, json_integer((json_int_t)v));
}

static json_t *
finding(const struct an_finding *at, enum an_verdict v)
{
	json_t *o = json_object(), *packets = json_array();
	unsigned int i;

	json_object_set_new(o, "verdict", json_string(an_verdict_name(v)));
	for (i = 0; i < at->n; i++)
		json_array_append_new(packets, json_integer((json_int_t)at->packets[i]));
	json_object_set_new(o, "packets", packets);
	if (at->flow != NULL)
		set(o, "flow", at->flow->number);
	if (at->text[0] != '\0')
		json_object_set_new(o, "text", json_string(at->text));
	return o;
}

static json_t *
check(const struct an_result *r, const struct an_check_info *info)
{
	json_t *o = json_object(), *found = json_array();
	unsigned int i, v;

	json_object_set_new(o, "verdict", json_string(an_verdict_name(an_overall(r->count))));
	set(o, "pass", r->count[AN_PASS]);
	set(o, "fail", r->count[AN_FAIL]);
	set(o, "cannot_tell", r->count[AN_UNKNOWN]);
	json_object_set_new(o, "meaning", json_string(info->meaning));
	json_object_set_new(o, "rule", json_string(info->rule));
	for (v = 0; v < AN_VERDICTS; v++)
		for (i = 0; i < r->found[v].n; i++)
			json_array_append_new(
				found, finding(&r->found[v].at[i], (enum an_verdict)v));
	json_object_set_new(o, "findings", found);
	return o;
}

static void
cnps(json_t *o, const char *key, const struct an_cnp_scope *s)
{
	json_t *c;

	if (s->n == 0)
		return;
	c = json_object();
	set(c, "packets", s->n);
	if (s->n > 1) {
		set(c, "shortest_ns", s->min_ns);
		json_object_set_new(c, "at",
			json_pack("[I, I]", (json_int_t)s->min_frame[0],
				(json_int_t)s->min_frame[1]));
	}
	json_object_set_new(o, key, c);
}

static json_t *
flow(const struct an_flow *f)
{
	const struct an_stream *s = &f->req;
	json_t *o = json_object();
	char text[64];

	set(o, "flow", f->number);
	an_address_text(f->pair->src->address, text, sizeof(text));
	json_object_set_new(o, "src", json_string(text));
	an_address_text(f->pair->dst->address, text, sizeof(text));
	json_object_set_new(o, "dst", json_string(text));
	set(o, "qp", f->dqpn);
	if (f->peer != NULL)
		set(o, "answered_by", f->peer->number);
	set(o, "packets", f->packets);
	set(o, "bytes", f->bytes);
	set(o, "requests", s->sent);
	set(o, "again", s->again);
	set(o, "reads", s->reads);
	set(o, "ask", s->asked);
	set(o, "acks", s->acks);
	set(o, "ack_psns_max", s->coalesced_max);
	set(o, "naks", s->naks);
	set(o, "rnr_naks", s->rnrs);
	set(o, "timeouts", s->timeouts);
	set(o, "ce", f->ce);
	json_object_set_new(o, "trace_incomplete", json_boolean(f->tainted));
	cnps(o, "cnp", &f->cnp);
	if (f->cnp.n != 0) {
		set(o, "cnp_dscp", f->cnp_tclass >> 2);
		set(o, "cnp_ecn", f->cnp_tclass & 3);
		set(o, "cnp_migreq", f->cnp_migreq);
	}
	return o;
}

static json_t *
latencies(const struct an *a)
{
	json_t *o = json_object();
	unsigned int i;

	for (i = 0; i < AN_LATENCIES; i++) {
		const struct an_measure *m = &a->latency[i];
		json_t *l;

		if (m->n == 0)
			continue;
		l = json_object();
		set(l, "n", m->n);
		set(l, "min_ns", m->min);
		set(l, "mean_ns", m->sum / m->n);
		set(l, "max_ns", m->max);
		json_object_set_new(o, an_latency_names[i], l);
	}
	return o;
}

/* CNPs by port, destination and pair of addresses; those by queue pair are with the flows. */
static json_t *
scopes(const struct an *a)
{
	json_t *list = json_array();
	const struct an_pair *p;
	const struct an_end *e;
	char text[64];

	for (e = a->ends; e != NULL; e = e->next) {
		json_t *o;

		if (e->from.n + e->to.n == 0)
			continue;
		o = json_object();
		an_address_text(e->address, text, sizeof(text));
		json_object_set_new(o, "address", json_string(text));
		cnps(o, "port", &e->from);
		cnps(o, "destination", &e->to);
		json_array_append_new(list, o);
	}
	for (p = a->pairs; p != NULL; p = p->next) {
		json_t *o;

		if (p->cnp.n == 0)
			continue;
		o = json_object();
		an_address_text(p->src->address, text, sizeof(text));
		json_object_set_new(o, "src", json_string(text));
		an_address_text(p->dst->address, text, sizeof(text));
		json_object_set_new(o, "dst", json_string(text));
		cnps(o, "pair", &p->cnp);
		json_array_append_new(list, o);
	}
	return list;
}

void
an_report_json(const struct an *a, FILE *out, const char *file)
{
	json_t *o = json_object(), *checks = json_object(), *flows = json_array();
	const struct an_flow *f;
	unsigned int i;

	json_object_set_new(o, "file", json_string(file));
	set(o, "frames", a->frames);
	set(o, "packets", a->packets);
	set(o, "truncated", a->truncated);
	set(o, "doubled", a->doubled);
	set(o, "injuries", a->injuries);
	set(o, "injuries_found", a->injuries_used);
	set(o, "injury_records_lost", a->injuries_lost);
	json_object_set_new(o, "cut_short", json_boolean(a->broken));
	for (i = 0; i < AN_CHECKS; i++)
		json_object_set_new(checks, an_checks[i].name, check(&a->result[i], &an_checks[i]));
	json_object_set_new(o, "checks", checks);
	json_object_set_new(o, "latencies", latencies(a));
	json_object_set_new(o, "cnps", scopes(a));
	for (f = a->flows; f != NULL; f = f->all_next)
		json_array_append_new(flows, flow(f));
	json_object_set_new(o, "flows", flows);
	json_dumpf(o, out, JSON_COMPACT | JSON_PRESERVE_ORDER);
	fputc('\n', out);
	json_decref(o);
}
