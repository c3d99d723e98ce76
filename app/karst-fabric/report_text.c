/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include <inttypes.h>

#include "report.h"

/* Flows are listed only if there are at most this many. */
#define FLOWS_MOST 32u

static const char *
mode_name(const struct fab_config *c)
{
	static const char *const names[] = {[KARST_CONGESTION_OFF] = "off",
		[KARST_CONGESTION_NOTIFY] = "notify",
		[KARST_CONGESTION_DCQCN] = "dcqcn",
		[KARST_CONGESTION_SWIFT] = "swift"};

	return names[c->cc.mode];
}

static void
traffic(FILE *out, const struct fab_config *c)
{
	fprintf(out, "%-12s %s", "workload", fab_workload_names[c->workload]);
	if (c->workload == FAB_INCAST)
		fprintf(out, " of %u", c->fan_in);
	if (c->connections != 1)
		fprintf(out, ", %u connections each", c->connections);
	if (c->workload >= FAB_WEBSEARCH)
		fprintf(out, ", load %g", c->load);
	if (c->workload >= FAB_WEBSEARCH && c->fan_in != 0)
		fprintf(out, ", incasts of %u times %" PRIu64 " bytes, load %g", c->fan_in,
			c->incast_size, c->incast_load);
	if (c->workload < FAB_WEBSEARCH && c->size != 0)
		fprintf(out, ", %" PRIu64 " bytes", c->size);
	if (c->duration_ns != 0)
		fprintf(out, ", %g ms, counted from %g ms on", (double)c->duration_ns / 1e6,
			(double)c->warmup_ns / 1e6);
	if (c->loss != 0)
		fprintf(out, ", loss %g", c->loss);
	fprintf(out, ", seed %" PRIu64 "\n\n", c->seed);
}

static void
network(FILE *out, const struct fab_config *c)
{
	fprintf(out, "%-12s %s", "network", fab_topology_names[c->topology]);
	if (c->topology == FAB_CLOS)
		fprintf(out, " of %u leaves, %u spines", c->leaves, c->spines);
	fprintf(out, ", %u hosts at %g Gb/s", c->hosts, (double)c->speed / 1000);
	if (c->topology != FAB_STAR)
		fprintf(out, ", %g Gb/s between switches", (double)c->core_speed / 1000);
	fprintf(out, ", %g us a link\n", (double)c->delay_ns / 1000);
	fprintf(out, "%-12s %" PRIu64 " bytes of buffer, alpha %g, PFC %s, ", "switches", c->buffer,
		c->alpha, c->pfc ? "on" : "off");
	if (c->marking && c->cc.mode != KARST_CONGESTION_OFF)
		fprintf(out, "marking from %" PRIu64 " to %" PRIu64 " bytes, pmax %g\n", c->kmin,
			c->kmax, c->pmax);
	else
		fprintf(out, "no marking\n");
	fprintf(out, "%-12s RC, %s, ", "queue pairs",
		!c->repeat           ? "go-back-N"
			: c->decline ? "go-back-N, selective repeat offered in vain"
				     : "selective repeat");
	if (c->spray > 1)
		fprintf(out, "sprayed over %u ports, ", c->spray);
	fprintf(out,
		"MTU %u, %ss of %u bytes, %u packets under way, timeout "
		"%u, probes %s, congestion control %s\n",
		c->mtu, c->read ? "READ" : "WRITE", c->message, c->window, c->timeout,
		c->probes ? "on" : "off", mode_name(c));
	traffic(out, c);
}

static void
flow(FILE *out, const struct fab_flow_result *f)
{
	static const char *const states[] = {[FAB_FLOW_RUNNING] = "running",
		[FAB_FLOW_DONE] = "done",
		[FAB_FLOW_FAILED] = "failed"};

	fprintf(out, "  host%-5u to host%-5u %12" PRIu64 " bytes  %8.3f Gb/s  %s", f->src, f->dst,
		f->bytes, f->goodput / 1e9, states[f->state]);
	if (f->state == FAB_FLOW_DONE)
		fprintf(out, " in %.3f us, alone %.3f", (double)(f->end_ps - f->start_ps) / 1e6,
			(double)f->ideal_ps / 1e6);
	fputc('\n', out);
}

static void
goodput(FILE *out, const struct fab_result *r)
{
	double least = 0, most = 0;
	uint64_t i;

	for (i = 0; i < r->nflows; i++) {
		double g = r->flow[i].goodput;

		least = i == 0 || g < least ? g : least;
		most = g > most ? g : most;
	}
	fprintf(out, "%-12s %" PRIu64 ": %" PRIu64 " done, %" PRIu64 " failed, in %.3f us\n",
		"flows", r->nflows, r->done, r->failed, (double)r->end_ps / 1e6);
	fprintf(out, "%-12s %.3f Gb/s in all; of a flow %.3f to %.3f Gb/s, Jain's index %.4f\n",
		"goodput", r->goodput / 1e9, least / 1e9, most / 1e9, r->jain);
	if (r->bus_bps != 0)
		fprintf(out, "%-12s %.3f Gb/s\n", "bus", r->bus_bps / 1e9);
	for (i = 0; i < r->nflows && r->nflows <= FLOWS_MOST; i++)
		flow(out, &r->flow[i]);
}

static void
text_slowdown(FILE *out, const struct fab_result *r)
{
	uint32_t i;

	if (r->done == 0)
		return;
	fprintf(out, "\n%-12s %10s %10s %10s %10s\n", "slowdown", "flows", "p50", "p95", "p99");
	for (i = 0; i <= FAB_CLASSES; i++) {
		const struct fab_class *c = &r->cls[i];
		char name[32];

		if (c->flows == 0)
			continue;
		if (c->most != UINT64_MAX)
			snprintf(name, sizeof(name), "<= %" PRIu64 " KB", c->most / 1000);
		else
			snprintf(name, sizeof(name), i == FAB_CLASSES ? "all" : "larger");
		fprintf(out, "  %-10s %10" PRIu64 " %10.3f %10.3f %10.3f\n", name, c->flows, c->p50,
			c->p95, c->p99);
	}
}

static void
text_latency(FILE *out, const struct fab_latency *l, bool read)
{
	if (l->messages == 0)
		return;
	fprintf(out,
		"\n%-12s %" PRIu64
		" %ss took p50 %.3f, p99 %.3f, p99.9 %.3f, at most %.3f us; mean %.3f\n",
		"latency", l->messages, read ? "READ" : "WRITE", (double)l->p50_ps / 1e6,
		(double)l->p99_ps / 1e6, (double)l->p999_ps / 1e6, (double)l->max_ps / 1e6,
		l->mean_ps / 1e6);
}

static void
network_counts(FILE *out, const struct fab_result *r)
{
	fprintf(out,
		"\n%-12s %s: max %" PRIu64 ", p99 %" PRIu64 ", mean %.0f bytes; max of any %" PRIu64
		"\n",
		"queue", r->queue.name, r->queue.max, r->queue.p99, r->queue.mean, r->queue_max);
	fprintf(out,
		"%-12s %" PRIu64 " marks, %" PRIu64 " CNPs sent, %" PRIu64 " handled, %" PRIu64
		" pauses of %.3f us together\n",
		"congestion", r->marks, r->cnps_sent, r->cnps_handled, r->pauses,
		(double)r->paused_ps / 1e6);
	fprintf(out, "%-12s %" PRIu64 " frames dropped by switches, %" PRIu64 " lost on links\n",
		"loss", r->drops, r->lost);
	fprintf(out,
		"%-12s %" PRIu64 " of %" PRIu64 " request frames sent again (%.4f), %" PRIu64
		" sequence NAKs, %" PRIu64 " probes, %" PRIu64 " timeouts\n",
		"recovery", r->retransmits, r->requests,
		r->requests != 0 ? (double)r->retransmits / (double)r->requests : 0, r->seq_naks,
		r->probes, r->timeouts);
}

static void
text_connections(FILE *out, const struct fab_config *c, const struct fab_connections *n)
{
	fprintf(out, "%-12s %" PRIu64 " made, %" PRIu64 " failed", "connections", n->established,
		n->failed);
	if (n->max_ps != 0)
		fprintf(out, "; %s, took p50 %.3f, p99 %.3f, at most %.3f us",
			c->timed ? "while it counts" : "before it counts", (double)n->p50_ps / 1e6,
			(double)n->p99_ps / 1e6, (double)n->max_ps / 1e6);
	fprintf(out, "; %" PRIu64 " messages, %" PRIu64 " sent again, %" PRIu64 " lost\n", n->mads,
		n->mads_again, n->mads_lost);
}

void
fab_report_text(FILE *out, const struct fab_config *c, const struct fab_result *r)
{
	network(out, c);
	goodput(out, r);
	text_slowdown(out, r);
	text_latency(out, &r->latency, c->read);
	network_counts(out, r);
	text_connections(out, c, &r->connections);
}
