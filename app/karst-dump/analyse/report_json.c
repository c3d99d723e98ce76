/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Write the report as one JSON object. */
#include "../json_more.h"
#include "an_priv.h"

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
		json_set_uint(o, "flow", at->flow->number);
	if (at->text[0] != '\0')
		json_object_set_new(o, "text", json_text(at->text));
	return o;
}

static json_t *
check(const struct an_result *r, const struct an_check_info *info)
{
	json_t *o = json_object(), *found = json_array();
	unsigned int i, v;

	json_object_set_new(o, "verdict", json_string(an_verdict_name(an_overall(r->count))));
	json_set_uint(o, "pass", r->count[AN_PASS]);
	json_set_uint(o, "fail", r->count[AN_FAIL]);
	json_set_uint(o, "cannot_tell", r->count[AN_UNKNOWN]);
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
	json_set_uint(c, "packets", s->n);
	if (s->min_frame[0] != 0) {
		json_set_uint(c, "shortest_ns", s->min_ns);
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

	json_set_uint(o, "flow", f->number);
	an_address_text(f->pair->src->address, text, sizeof(text));
	json_object_set_new(o, "src", json_string(text));
	an_address_text(f->pair->dst->address, text, sizeof(text));
	json_object_set_new(o, "dst", json_string(text));
	json_set_uint(o, "qp", f->dqpn);
	if (f->peer != NULL)
		json_set_uint(o, "answered_by", f->peer->number);
	json_set_uint(o, "packets", f->packets);
	json_set_uint(o, "bytes", f->bytes);
	json_set_uint(o, "requests", s->sent);
	json_set_uint(o, "again", s->again);
	json_set_uint(o, "reads", s->reads);
	json_set_uint(o, "ask", s->asked);
	json_set_uint(o, "acks", s->acks);
	json_set_uint(o, "ack_psns_max", s->coalesced_max);
	json_set_uint(o, "naks", s->naks);
	json_set_uint(o, "rnr_naks", s->rnrs);
	json_set_uint(o, "timeouts", s->timeouts);
	json_set_uint(o, "ce", f->ce);
	json_object_set_new(o, "trace_incomplete", json_boolean(f->tainted));
	cnps(o, "cnp", &f->cnp);
	if (f->cnp.n != 0) {
		json_set_uint(o, "cnp_dscp", f->cnp_tclass >> 2);
		json_set_uint(o, "cnp_ecn", f->cnp_tclass & 3);
		json_set_uint(o, "cnp_migreq", f->cnp_migreq);
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
		json_set_uint(l, "n", m->n);
		json_set_uint(l, "min_ns", m->min);
		json_set_uint(l, "mean_ns", m->sum / m->n);
		json_set_uint(l, "max_ns", m->max);
		json_object_set_new(o, an_latency_names[i], l);
	}
	return o;
}

/*
 * Makes an array of CNPs by port, destination and pair of addresses.  CNPs by queue pair are with
 * the flows.
 */
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

	json_object_set_new(o, "file", json_text(file));
	json_set_uint(o, "frames", a->frames);
	json_set_uint(o, "packets", a->packets);
	json_set_uint(o, "truncated", a->truncated);
	json_set_uint(o, "doubled", a->doubled);
	json_set_uint(o, "injuries", a->injuries);
	json_set_uint(o, "injuries_found", a->injuries_used);
	json_set_uint(o, "injury_records_lost", a->injuries_lost);
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
