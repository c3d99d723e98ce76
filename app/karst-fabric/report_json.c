/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include <errno.h>
#include <jansson.h>

#include "report.h"

#define DIGITS 10

static json_t *
config(const struct fab_config *c)
{
	static const char *const modes[] = {[KARST_CONGESTION_OFF] = "off",
		[KARST_CONGESTION_NOTIFY] = "notify",
		[KARST_CONGESTION_DCQCN] = "dcqcn",
		[KARST_CONGESTION_SWIFT] = "swift"};

	return json_pack(
		"{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:b, s:b, s:I, s:I, s:f, "
		"s:f, s:I, s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:s, s:I, s:s, s:I, s:f, s:I, s:f, s:f, s:f, s:f, "
		"s:I, s:s, s:f, s:I}",
		"topology", fab_topology_names[c->topology], "workload",
		fab_workload_names[c->workload], "hosts", (json_int_t)c->hosts, "leaves",
		(json_int_t)c->leaves, "spines", (json_int_t)c->spines, "fan_in",
		(json_int_t)c->fan_in, "connections", (json_int_t)c->connections, "speed_bps",
		(double)c->speed * 1e6, "core_speed_bps", (double)c->core_speed * 1e6, "delay_us",
		(double)c->delay_ns / 1e3, "buffer", (json_int_t)c->buffer, "alpha", c->alpha,
		"pfc", c->pfc, "marking", c->marking, "kmin", (json_int_t)c->kmin, "kmax",
		(json_int_t)c->kmax, "pmax", c->pmax, "loss", c->loss, "lose_nth",
		(json_int_t)c->lose_nth, "mtu", (json_int_t)c->mtu, "op",
		c->read ? "read" : "write", "message", (json_int_t)c->message, "depth",
		(json_int_t)c->depth, "window", (json_int_t)c->window, "timeout",
		(json_int_t)c->timeout, "retry_cnt", (json_int_t)c->retry, "probes", c->probes,
		"recovery",
		!c->repeat           ? "go-back-n"
			: c->decline ? "offer"
				     : "selective-repeat",
		"spray", (json_int_t)c->spray, "congestion", modes[c->cc.mode], "size",
		(json_int_t)c->size, "load", c->load, "incast_size", (json_int_t)c->incast_size,
		"incast_load", c->incast_load, "stagger_us", (double)c->stagger_ns / 1e3,
		"duration_us", (double)c->duration_ns / 1e3, "warmup_us",
		(double)c->warmup_ns / 1e3, "seed", (json_int_t)c->seed, "connect",
		c->timed ? "timed" : "before", "mad_loss", c->mad_loss, "lose_mad",
		(json_int_t)c->lose_mad);
}

static json_t *
params(const struct fab_config *c)
{
	struct karst_rp_params rp = c->cc.rp;
	const struct karst_np_params *np = &c->cc.np;
	uint32_t *value, least, most;
	json_t *o = json_pack("{s:I, s:I}", "min_time_between_cnps",
		(json_int_t)np->min_time_between_cnps, "cnp_scope", (json_int_t)np->cnp_scope);
	const char *name;
	unsigned int i;

	for (i = 0; (name = karst_rp_param(&rp, i, &value, &least, &most)) != NULL; i++)
		json_object_set_new(o, name, json_integer(*value));
	return o;
}

static json_t *
flows(const struct fab_result *r)
{
	static const char *const states[] = {[FAB_FLOW_RUNNING] = "running",
		[FAB_FLOW_DONE] = "done",
		[FAB_FLOW_FAILED] = "failed"};
	json_t *a = json_array();
	uint64_t i;

	for (i = 0; i < r->nflows; i++) {
		const struct fab_flow_result *f = &r->flow[i];

		json_array_append_new(a,
			json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:s}", "src",
				(json_int_t)f->src, "dst", (json_int_t)f->dst, "size",
				(json_int_t)f->size, "bytes", (json_int_t)f->bytes, "start_us",
				(double)f->start_ps / 1e6, "time_us",
				f->state == FAB_FLOW_DONE ? (double)(f->end_ps - f->start_ps) / 1e6
							  : 0.0,
				"ideal_us", (double)f->ideal_ps / 1e6, "goodput_bps", f->goodput,
				"state", states[f->state]));
	}
	return a;
}

static json_t *
slowdown(const struct fab_result *r)
{
	json_t *a = json_array();
	uint32_t i;

	for (i = 0; i <= FAB_CLASSES; i++) {
		const struct fab_class *c = &r->cls[i];
		json_t *o = json_pack("{s:I, s:f, s:f, s:f}", "flows", (json_int_t)c->flows, "p50",
			c->p50, "p95", c->p95, "p99", c->p99);

		json_object_set_new(o, "up_to",
			c->most != UINT64_MAX ? json_integer((json_int_t)c->most) : json_null());
		json_object_set_new(o, "all", json_boolean(i == FAB_CLASSES));
		json_array_append_new(a, o);
	}
	return a;
}

static json_t *
latency(const struct fab_latency *l)
{
	return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "messages", (json_int_t)l->messages,
		"p50", (double)l->p50_ps / 1e6, "p99", (double)l->p99_ps / 1e6, "p999",
		(double)l->p999_ps / 1e6, "max", (double)l->max_ps / 1e6, "mean", l->mean_ps / 1e6);
}

static json_t *
connections(const struct fab_connections *n)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:I}", "established",
		(json_int_t)n->established, "failed", (json_int_t)n->failed, "selective_repeat",
		(json_int_t)n->repeat, "ended", (json_int_t)n->ended, "broken",
		(json_int_t)n->broken, "p50_us", (double)n->p50_ps / 1e6, "p99_us",
		(double)n->p99_ps / 1e6, "max_us", (double)n->max_ps / 1e6, "mads",
		(json_int_t)n->mads, "mads_retried", (json_int_t)n->mads_again, "mads_lost",
		(json_int_t)n->mads_lost);
}

static json_t *
counts(const struct fab_result *r)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I}",
		"requests", (json_int_t)r->requests, "retransmits", (json_int_t)r->retransmits,
		"local_ack_timeout_err", (json_int_t)r->timeouts, "roce_adp_retrans",
		(json_int_t)r->probes, "packet_seq_err", (json_int_t)r->seq_naks, "marks",
		(json_int_t)r->marks, "np_cnp_sent", (json_int_t)r->cnps_sent, "rp_cnp_handled",
		(json_int_t)r->cnps_handled, "drops", (json_int_t)r->drops, "lost",
		(json_int_t)r->lost, "pfc_pauses", (json_int_t)r->pauses, "pfc_paused_us",
		(double)r->paused_ps / 1e6, "frames", (json_int_t)r->frames, "events",
		(json_int_t)r->events);
}

static json_t *
queue(const struct fab_result *r)
{
	const struct fab_queue *q = &r->queue;
	json_t *a = json_array();
	uint32_t i;

	for (i = 0; i < FAB_PERCENTILES; i++)
		json_array_append_new(a, json_integer((json_int_t)q->percentile[i]));
	return json_pack("{s:s, s:I, s:I, s:f, s:I, s:I, s:I, s:o}", "port", q->name, "max",
		(json_int_t)q->max, "p99", (json_int_t)q->p99, "mean", q->mean, "kmin",
		(json_int_t)q->kmin, "kmax", (json_int_t)q->kmax, "max_of_any",
		(json_int_t)r->queue_max, "percentiles", a);
}

int
fab_report_json(FILE *out, const struct fab_config *c, const struct fab_result *r)
{
	double share = r->requests != 0 ? (double)r->retransmits / (double)r->requests : 0;
	json_t *o = json_pack(
		"{s:o, s:o, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:o, s:o}",
		"config", config(c), "congestion_params", params(c), "flows", (json_int_t)r->nflows,
		"done", (json_int_t)r->done, "failed", (json_int_t)r->failed, "time_us",
		(double)r->end_ps / 1e6, "goodput_bps", r->goodput, "jain", r->jain, "bus_bps",
		r->bus_bps, "retransmitted_share", share, "slowdown", slowdown(r), "latency_us",
		latency(&r->latency), "queue", queue(r), "counts", counts(r), "connections",
		connections(&r->connections), "flow", flows(r));
	int rc;

	if (o == NULL)
		return -ENOMEM;
	rc = json_dumpf(o, out, JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(DIGITS));
	json_decref(o);
	return rc != 0 || fputc('\n', out) == EOF || fflush(out) != 0 ? -EIO : 0;
}
