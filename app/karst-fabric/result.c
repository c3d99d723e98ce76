/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The result of a run: goodput, fairness, slowdown, queues, and the counters of the cores. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim.h"

static const uint64_t class_most[FAB_CLASSES] = {
	1000, 3000, 10000, 100000, 1000000, 10000000, UINT64_MAX};

#define PS_PER_S 1e12

/* --- goodput --- */

/* The goodput of a completed flow is over its duration; that of a flow without end, or of one that
 * was cut off, is over the measured part. */
static void
flow_goodput(struct fab_sim *s, struct fab_flow *f)
{
	uint64_t warm = s->c->warmup_ns * PS_PER_NS, bytes = f->r.bytes, from = f->r.start_ps, to;

	to = f->r.state == FAB_FLOW_RUNNING ? s->r->end_ps : f->r.end_ps;
	if (f->r.state != FAB_FLOW_DONE && from < warm) {
		from = warm;
		bytes -= f->warm;
	}
	f->r.goodput = to > from ? (double)bytes * 8 * PS_PER_S / (double)(to - from) : 0;
}

static void
goodput(struct fab_sim *s)
{
	struct fab_result *r = s->r;
	double sum = 0, squares = 0;
	uint64_t warm = s->c->warmup_ns * PS_PER_NS, i;

	for (i = 0; i < r->nflows; i++) {
		struct fab_flow *f = fab_flow_at(s, i);

		flow_goodput(s, f);
		sum += f->r.goodput;
		squares += f->r.goodput * f->r.goodput;
		r->done += f->r.state == FAB_FLOW_DONE;
		r->failed += f->r.state == FAB_FLOW_FAILED;
		r->flow[i] = f->r;
	}
	if (s->counted_until_ps > warm)
		r->goodput = (double)s->counted_bytes * 8 * PS_PER_S /
			(double)(s->counted_until_ps - warm);
	if (squares > 0)
		r->jain = sum * sum / ((double)r->nflows * squares);
	if (fab_workload_reduces(s->c->workload) && r->done == r->nflows && r->end_ps != 0)
		r->bus_bps = 2.0 * (s->c->hosts - 1) / s->c->hosts * (double)s->c->size * 8 *
			PS_PER_S / (double)r->end_ps;
}

/* --- slowdown --- */

static int
compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The smallest value that @fraction of the @n sorted values do not exceed. */
static double
percentile(const double *v, uint64_t n, double fraction)
{
	uint64_t i = (uint64_t)((double)n * fraction + 0.999999);

	return v[i == 0 ? 0 : i - 1];
}

/* The slowdown of flows larger than @above. */
static void
slowdown(const struct fab_result *r, double *v, uint64_t above, struct fab_class *c)
{
	uint64_t n = 0, i;

	for (i = 0; i < r->nflows; i++) {
		const struct fab_flow_result *f = &r->flow[i];

		if (f->state == FAB_FLOW_DONE && f->size > above && f->size <= c->most)
			v[n++] = (double)(f->end_ps - f->start_ps) / (double)f->ideal_ps;
	}
	c->flows = n;
	if (n == 0)
		return;
	qsort(v, n, sizeof(*v), compare);
	c->p50 = percentile(v, n, 0.50);
	c->p95 = percentile(v, n, 0.95);
	c->p99 = percentile(v, n, 0.99);
}

static void
slowdowns(struct fab_sim *s)
{
	struct fab_result *r = s->r;
	double *v = fab_alloc(s, (r->nflows + 1) * sizeof(*v));
	uint64_t above = 0;
	uint32_t i;

	for (i = 0; i < FAB_CLASSES; i++) {
		r->cls[i].most = class_most[i];
		slowdown(r, v, above, &r->cls[i]);
		above = class_most[i];
	}
	r->cls[FAB_CLASSES].most = UINT64_MAX;
	slowdown(r, v, 0, &r->cls[FAB_CLASSES]);
	fab_free(s, v);
}

/* --- latency --- */

static void
latency(const struct fab_gauge *g, struct fab_latency *l)
{
	l->messages = g->total_ps;
	if (l->messages == 0)
		return;
	l->p50_ps = fab_gauge_percentile(g, 0.5);
	l->p99_ps = fab_gauge_percentile(g, 0.99);
	l->p999_ps = fab_gauge_percentile(g, 0.999);
	l->max_ps = g->max;
	l->mean_ps = (double)g->area / (double)l->messages;
}

/* --- queues --- */

static void
port_name(const struct fab_port *p, char *name, size_t n)
{
	if (p->peer->host != NULL)
		snprintf(name, n, "%s to host%u", p->sw->name, p->peer->host->id);
	else
		snprintf(name, n, "%s to %s", p->sw->name, p->peer->sw->name);
}

static void
queue_of(struct fab_sim *s, struct fab_port *p)
{
	struct fab_queue *q = &s->r->queue;
	uint64_t p99;
	uint32_t i;

	fab_gauge_add(&p->queue, s->now_ps, 0);
	p99 = fab_gauge_percentile(&p->queue, 0.99);
	s->r->queue_max = karst_max_u64(s->r->queue_max, p->queue.max);
	if (q->name[0] != '\0' && (p99 < q->p99 || (p99 == q->p99 && p->queue.max <= q->max)))
		return;
	port_name(p, q->name, sizeof(q->name));
	q->p99 = p99;
	q->max = p->queue.max;
	q->mean = p->queue.total_ps != 0 ? (double)p->queue.area / (double)p->queue.total_ps : 0;
	for (i = 0; i < FAB_PERCENTILES; i++)
		q->percentile[i] = fab_gauge_percentile(&p->queue, i / 100.0);
	q->kmin = p->kmin;
	q->kmax = p->kmax;
}

void
fab_result_count(struct fab_sim *s)
{
	uint64_t i;
	uint32_t j, k;

	if (s->counted_until_ps != 0)
		return;
	s->counted_until_ps = s->now_ps;
	for (i = 0; i < s->nflows; i++)
		s->counted_bytes += fab_flow_at(s, i)->r.bytes - fab_flow_at(s, i)->warm;
	for (j = 0; j < s->nswitches; j++)
		for (k = 0; k < s->sw[j].nports; k++)
			queue_of(s, &s->sw[j].port[k]);
}

/* --- all --- */

static void
still_paused(struct fab_sim *s, const struct fab_port *p)
{
	if (p->paused)
		s->r->paused_ps += s->now_ps - p->paused_since_ps;
}

static void
counters(struct fab_sim *s)
{
	struct fab_result *r = s->r;
	uint32_t i;

	for (i = 0; i < s->c->hosts; i++) {
		const struct fab_host *h = &s->host[i];
		const struct karst_counters *c = &h->core->counters;

		r->requests += h->requests;
		r->retransmits += c->ctr[KARST_CTR_RETRANSMITS];
		r->timeouts += c->ctr[KARST_CTR_LOCAL_ACK_TIMEOUT];
		r->probes += c->ctr[KARST_CTR_ADP_RETRANS];
		r->seq_naks += c->ctr[KARST_CTR_PACKET_SEQ_ERR];
		r->cnps_sent += c->ctr[KARST_CTR_NP_CNP_SENT];
		r->cnps_handled += c->ctr[KARST_CTR_RP_CNP_HANDLED];
		still_paused(s, &h->port);
	}
}

void
fab_result_make(struct fab_sim *s)
{
	struct fab_result *r = s->r;
	uint32_t i, j;

	r->nflows = s->nflows;
	r->flow = calloc(r->nflows + 1, sizeof(*r->flow));
	if (r->flow == NULL)
		fab_bail(s, -ENOMEM, "out of memory for the result of %llu flows",
			(unsigned long long)r->nflows);
	fab_result_count(s);
	goodput(s);
	slowdowns(s);
	latency(&s->message, &r->latency);
	for (i = 0; i < s->nswitches; i++)
		for (j = 0; j < s->sw[i].nports; j++)
			still_paused(s, &s->sw[i].port[j]);
	counters(s);
}

void
fab_result_free(struct fab_result *r)
{
	free(r->flow);
	r->flow = NULL;
}
