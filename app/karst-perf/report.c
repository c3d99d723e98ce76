/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "report.h"
#include "attach.h"
#include "cpu.h"
#include "tsc.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include <jansson.h>
#include <rte_cycles.h>

/* --- figures --- */

static int
median_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Sorts a copy, so that the rounds stay in order. */
static double
report_median(const double *values, uint32_t num)
{
	double *sorted, m;

	if (num == 0)
		return 0;
	sorted = malloc(num * sizeof(*sorted));
	if (sorted == NULL)
		return 0;
	memcpy(sorted, values, num * sizeof(*sorted));
	qsort(sorted, num, sizeof(*sorted), median_compare);
	m = num % 2 != 0 ? sorted[num / 2] : (sorted[num / 2 - 1] + sorted[num / 2]) / 2;
	free(sorted);
	return m;
}

static double
report_ratio(double a, double b)
{
	return b > 0 ? a / b : 0;
}

static double
cycles_to_ns(double cycles)
{
	return cycles * 1e9 / (double)perf_tsc_hz();
}

static void
make_rates(const struct perf_run *r, struct perf_result *x)
{
	double cycles = (double)r->sum.cycles * r->job->lcores;

	x->messages = r->sum.messages;
	x->seconds = cycles_to_ns((double)r->sum.cycles) / 1e9;
	x->mops = report_ratio((double)x->messages / 1e6, x->seconds);
	x->gbps = report_ratio((double)x->messages * r->job->size * 8 / 1e9, x->seconds);
	x->cycles_per_message = report_ratio(cycles, (double)x->messages);
	x->cycles_per_packet = report_ratio(cycles, (double)r->sum.packets);
}

static uint64_t
completed_of(const void *flows, uint32_t i)
{
	return ((const struct perf_flow *)flows)[i].completed;
}

static void
make_shares(const struct perf_run *r, struct perf_result *x)
{
	x->cpu_s = r->sum.cpu_s;
	x->gb_a_cpu = report_ratio((double)x->messages * r->job->size * 8 / 1e9, x->cpu_s);
	x->fairness = perf_jain(completed_of, r->client.flows, r->job->qps);
}

static void
make_latency(const struct perf_run *r, struct perf_result *x)
{
	static const double fractions[] = {0.5, 0.99, 0.999, 1};
	const struct perf_hist *h = r->pingpong ? r->latency : r->client.loaded;
	uint32_t i;

	for (i = 0; i < KARST_DIM(fractions); i++)
		x->latency_ns[i] = cycles_to_ns((double)perf_hist_percentile(h, fractions[i]));
}

static void
make_baselines(const struct perf_run *r, struct perf_result *x)
{
	const struct perf_slices *s = &r->slices;

	x->gbps_median = report_median(s->traffic, s->num);
	x->memcpy_gbps = report_median(s->copy, s->num);
	x->ring_copy_gbps = report_median(s->ring_copy, s->num);
	x->memcpy_ratio = report_ratio(x->gbps_median, x->memcpy_gbps);
	x->ring_copy_ratio = report_ratio(x->gbps_median, x->ring_copy_gbps);
	x->ring_rtt_ns = cycles_to_ns((double)perf_hist_percentile(r->baseline->rtt, 0.5));
}

static void
make_counts(const struct perf_run *r, struct perf_result *x)
{
	const struct perf_tally *c = &r->client.tally, *s = &r->server.tally;
	const uint64_t *b = r->before.ctr, *bd = r->before.drop;
	struct karst_counters now;

	now = r->before;
	if (r->ports != NULL) {
		memset(&now, 0, sizeof(now));
		karst_engine_counters(r->ports->engine, KARST_ENGINE_ANY_LCORE, &now);
	}
	x->posted = c->posted;
	x->retransmits = now.ctr[KARST_CTR_RETRANSMITS] - b[KARST_CTR_RETRANSMITS];
	x->timeouts = now.ctr[KARST_CTR_LOCAL_ACK_TIMEOUT] - b[KARST_CTR_LOCAL_ACK_TIMEOUT];
	x->rnr_naks = now.ctr[KARST_CTR_RNR_NAK_SENT] - b[KARST_CTR_RNR_NAK_SENT];
	x->injected = now.drop[KARST_DROP_INJECTED] - bd[KARST_DROP_INJECTED];
	x->icrc_drops = now.drop[KARST_DROP_ICRC] - bd[KARST_DROP_ICRC];
	x->verify_errors = c->wrong + s->wrong;
	x->errors = c->errors + s->errors + r->ping.errors + r->pong.errors + r->stuck + r->broken;
	/* messages that receivers never got; for one-sided operations only --verify detects them */
	x->lost = c->lost + s->lost;
	if (r->job->transport != PERF_RC && r->job->recv_depth != 0)
		x->lost = c->posted - karst_min_u64(c->posted, s->completed);
}

void
perf_result_make(const struct perf_run *r, struct perf_result *x)
{
	memset(x, 0, sizeof(*x));
	make_rates(r, x);
	make_shares(r, x);
	make_latency(r, x);
	make_baselines(r, x);
	make_counts(r, x);
}

bool
perf_result_bad(const struct perf_result *x)
{
	return x->errors != 0 || x->verify_errors != 0;
}

void
perf_report_trouble(const struct perf_run *r, const struct perf_result *x)
{
	const char *op = perf_op_name(r->job->op);

	if (x->verify_errors != 0)
		fprintf(stderr,
			"karst-perf: %s of %u bytes: %" PRIu64 " messages with wrong data\n", op,
			r->job->size, x->verify_errors);
	if (r->client.tally.errors != 0)
		fprintf(stderr,
			"karst-perf: %s of %u bytes: %" PRIu64
			" completions in error at the client, the first with status %u\n",
			op, r->job->size, r->client.tally.errors, r->client.first_error);
	if (r->server.tally.errors != 0)
		fprintf(stderr,
			"karst-perf: %s of %u bytes: %" PRIu64
			" completions in error at the server, the first with status %u\n",
			op, r->job->size, r->server.tally.errors, r->server.first_error);
	if (r->ping.errors + r->pong.errors != 0)
		fprintf(stderr, "karst-perf: %s of %u bytes: ping-pong ended in error\n", op,
			r->job->size);
	if (r->broken)
		fprintf(stderr, "karst-perf: %s of %u bytes: the server is gone\n", op,
			r->job->size);
	if (r->stuck)
		fprintf(stderr, "karst-perf: %s of %u bytes: messages never completed\n", op,
			r->job->size);
}

/* --- table --- */

void
perf_report_size(char *to, size_t bytes, uint64_t size)
{
	static const char units[] = "\0KMG";
	uint32_t unit = 0;

	while (unit < 3 && size >= 1024 && size % 1024 == 0) {
		size /= 1024;
		unit++;
	}
	if (unit == 0)
		snprintf(to, bytes, "%" PRIu64, size);
	else
		snprintf(to, bytes, "%" PRIu64 "%c", size, units[unit]);
}

void
perf_report_table_head(FILE *to)
{
	fputs("                                             cycles per      latency us     memcpy   "
	      "ring                    bad\n"
	      "op           transp  size    Gb/s   Mmsg/s   msg    pkt     p50     p99    ratio  "
	      "ratio  resent   lost  data  errors\n",
		to);
}

void
perf_report_table_row(FILE *to, const struct perf_run *r, const struct perf_result *x)
{
	char size[24];

	perf_report_size(size, sizeof(size), r->job->size);
	fprintf(to,
		"%-12s %-3s %9s %7.2f %8.3f %6.0f %5.0f %8.2f %8.2f %7.2f %6.2f %7" PRIu64
		" %6" PRIu64 " %5" PRIu64 " %6" PRIu64 "\n",
		perf_op_name(r->job->op), perf_transport_name(r->job->transport), size, x->gbps,
		x->mops, x->cycles_per_message, x->cycles_per_packet, x->latency_ns[0] / 1e3,
		x->latency_ns[1] / 1e3, x->memcpy_ratio, x->ring_copy_ratio, x->retransmits,
		x->lost + r->lost_pings, x->verify_errors, x->errors);
	fflush(to);
}

/* The ratio of the two, and further figures of karst's part. */
static void
tcp_ratios(
	FILE *to, const struct perf_job *j, const struct perf_result *x, const struct perf_tcp *t)
{
	double tcp = report_ratio((double)t->bytes * 8 / 1e9, t->cpu_s);

	fprintf(to, "    times TCP: throughput %.2f, ", report_ratio(x->gbps, t->gbps));
	if (x->cpu_s > 0 && t->cpu_s > 0)
		fprintf(to, "bytes a CPU second %.2f (%.1f and %.1f Gbit)",
			report_ratio(x->gb_a_cpu, tcp), x->gb_a_cpu, tcp);
	else
		fprintf(to, "too short to tell CPU time");
	if (j->qps > 1)
		fprintf(to, "; fairness of %u QPs %.3f", j->qps, x->fairness);
	fputc('\n', to);
}

void
perf_report_tcp_row(
	FILE *to, const struct perf_job *j, const struct perf_result *x, const struct perf_tcp *t)
{
	char size[24];

	perf_report_size(size, sizeof(size), j->size);
	fprintf(to, "%-12s %-3s %9s %7.2f %8s %6s %5s %8.2f %8.2f  %s to %s\n",
		perf_op_fetches(j->op) ? "  tcp, back" : "  tcp", "-", size, t->gbps, "-", "-", "-",
		(double)perf_hist_percentile(t->rtt, 0.5) / 1e3,
		(double)perf_hist_percentile(t->rtt, 0.99) / 1e3, t->here, t->there);
	tcp_ratios(to, j, x, t);
	fflush(to);
}

/* --- JSON --- */

/* Six digits are more than the precision of any figure here. */
static json_t *
put_real(double v)
{
	return json_real(isfinite(v) ? v : 0);
}

static json_t *
put_integer(uint64_t v)
{
	return json_integer((json_int_t)v);
}

/* Shares of the registered bytes, by access method; memory of an embedded engine is shared. */
static int
add_paths(json_t *o, const struct perf_run *r)
{
	struct perf_paths p = {.shared = 1};
	double sum;

	if (r->bed->attach != NULL)
		p = r->bed->attach->paths;
	sum = (double)(p.shared + p.migrated + p.copied);
	return json_object_set_new(o, "memory_path",
		json_pack("{s:f, s:f, s:f}", "shared", report_ratio((double)p.shared, sum),
			"migrated", report_ratio((double)p.migrated, sum), "copied",
			report_ratio((double)p.copied, sum)));
}

static int
add_setup(json_t *o, const struct perf_run *r)
{
	const struct perf_job *j = r->job;
	int rc = 0;

	rc |= json_object_set_new(o, "op", json_string(perf_op_name(j->op)));
	rc |= json_object_set_new(o, "transport", json_string(perf_transport_name(j->transport)));
	rc |= json_object_set_new(o, "size_bytes", put_integer(j->size));
	rc |= json_object_set_new(o, "mtu_bytes", put_integer(j->mtu));
	rc |= json_object_set_new(o, "qps", put_integer(j->qps));
	rc |= json_object_set_new(o, "depth", put_integer(j->depth));
	rc |= json_object_set_new(o, "lcores", put_integer(j->lcores));
	rc |= json_object_set_new(
		o, "port", json_string(r->ports != NULL ? r->ports->driver : "karstd"));
	rc |= json_object_set_new(o, "mode", json_string(perf_opts_mode(r->opts)));
	rc |= json_object_set_new(o, "memory", json_string(perf_memory_name(r->opts->memory)));
	rc |= add_paths(o, r);
	if (r->opts->events) {
		rc |= json_object_set_new(
			o, "completion_events", put_integer(r->bed->attach->events));
		rc |= json_object_set_new(
			o, "server_completion_events", put_integer(r->server_events));
	}
	return rc;
}

static int
add_figures(json_t *o, const struct perf_result *x)
{
	json_t *latency = json_object();
	int rc = latency == NULL;

	rc |= json_object_set_new(o, "messages", put_integer(x->messages));
	rc |= json_object_set_new(o, "seconds", put_real(x->seconds));
	rc |= json_object_set_new(o, "gbps", put_real(x->gbps));
	rc |= json_object_set_new(o, "mops", put_real(x->mops));
	rc |= json_object_set_new(o, "cycles_per_message", put_real(x->cycles_per_message));
	rc |= json_object_set_new(o, "cycles_per_packet", put_real(x->cycles_per_packet));
	rc |= json_object_set_new(latency, "p50", put_real(x->latency_ns[0]));
	rc |= json_object_set_new(latency, "p99", put_real(x->latency_ns[1]));
	rc |= json_object_set_new(latency, "p999", put_real(x->latency_ns[2]));
	rc |= json_object_set_new(latency, "max", put_real(x->latency_ns[3]));
	rc |= json_object_set_new(o, "latency_ns", latency);
	rc |= json_object_set_new(o, "memcpy_gbps", put_real(x->memcpy_gbps));
	rc |= json_object_set_new(o, "memcpy_ratio", put_real(x->memcpy_ratio));
	rc |= json_object_set_new(o, "ring_copy_gbps", put_real(x->ring_copy_gbps));
	rc |= json_object_set_new(o, "ring_copy_ratio", put_real(x->ring_copy_ratio));
	rc |= json_object_set_new(o, "ring_rtt_ns", put_real(x->ring_rtt_ns));
	rc |= json_object_set_new(o, "retransmits", put_integer(x->retransmits));
	rc |= json_object_set_new(o, "icrc_drops", put_integer(x->icrc_drops));
	rc |= json_object_set_new(o, "verify_errors", put_integer(x->verify_errors));
	rc |= json_object_set_new(o, "errors", put_integer(x->errors));
	return rc;
}

/* Figures that explain a measurement, but are not needed to compare two of them. */
static int
add_more(json_t *o, const struct perf_run *r, const struct perf_result *x)
{
	const struct perf_job *j = r->job;
	int rc = 0;

	rc |= json_object_set_new(
		o, "latency_kind", json_string(r->pingpong ? "pingpong" : "loaded"));
	rc |= json_object_set_new(o, "gbps_median", put_real(x->gbps_median));
	rc |= json_object_set_new(o, "fairness", put_real(x->fairness));
	if (r->opts->compare_tcp)
		rc |= json_object_set_new(o, "cpu_seconds", put_real(x->cpu_s));
	rc |= json_object_set_new(o, "slices", put_integer(r->slices.num));
	rc |= json_object_set_new(o, "verify", json_boolean(r->opts->verify));
	rc |= json_object_set_new(o, "loss", put_real(r->opts->loss));
	rc |= json_object_set_new(
		o, "recovery", json_string(r->opts->repeat ? "selective-repeat" : "go-back-n"));
	rc |= json_object_set_new(o, "early_retransmission", json_boolean(r->opts->early));
	rc |= json_object_set_new(
		o, "congestion", json_string(perf_congestion_name(r->opts->congestion)));
	rc |= json_object_set_new(o, "injected_drops", put_integer(x->injected));
	rc |= json_object_set_new(o, "timeouts", put_integer(x->timeouts));
	rc |= json_object_set_new(o, "rnr_naks", put_integer(x->rnr_naks));
	rc |= json_object_set_new(o, "posted", put_integer(x->posted));
	rc |= json_object_set_new(o, "lost", put_integer(x->lost));
	rc |= json_object_set_new(o, "lost_pings", put_integer(r->lost_pings));
	rc |= json_object_set_new(o, "batch", put_integer(j->batch));
	rc |= json_object_set_new(o, "inflight", put_integer(j->inflight));
	rc |= json_object_set_new(o, "inline", json_boolean(j->inlined));
	if (r->ports != NULL)
		rc |= json_object_set_new(o, "window_packets",
			put_integer(karst_engine_config(r->ports->engine)->window_packets));
	rc |= json_object_set_new(o, "timeout", put_integer(j->timeout));
	rc |= json_object_set_new(o, "working_set_bytes", put_integer(j->working_set));
	if (r->ports != NULL)
		rc |= json_object_set_new(o, "ring_size", put_integer(r->ports->ring_size));
	rc |= json_object_set_new(o, "connect_seconds", put_real(r->connect_s));
	rc |= json_object_set_new(o, "qp_bytes", put_integer(r->bed->qp_bytes));
	rc |= json_object_set_new(o, "qp_ring_bytes", put_integer(r->bed->ring_bytes));
	return rc;
}

int
perf_report_json(FILE *to, const struct perf_run *r, const struct perf_result *x)
{
	json_t *o = json_object();
	int rc = o == NULL || add_setup(o, r) != 0 || add_figures(o, x) != 0 ||
		add_more(o, r, x) != 0;

	if (rc == 0)
		rc = json_dumpf(o, to, JSON_COMPACT | JSON_REAL_PRECISION(6));
	json_decref(o);
	fputc('\n', to);
	fflush(to);
	return rc == 0 ? 0 : -ENOMEM;
}

int
perf_report_tcp_json(FILE *to, const struct perf_job *j, const struct perf_tcp *t)
{
	json_t *o = json_pack("{s:s, s:s, s:I, s:o, s:o, s:I, s:o, s:{s:I, s:I}, s:s, s:s}", "op",
		"tcp", "beside", perf_op_name(j->op), "size_bytes", (json_int_t)j->size, "gbps",
		put_real(t->gbps), "seconds", put_real(t->seconds), "bytes", (json_int_t)t->bytes,
		"cpu_seconds", put_real(t->cpu_s), "latency_ns", "p50",
		(json_int_t)perf_hist_percentile(t->rtt, 0.5), "p99",
		(json_int_t)perf_hist_percentile(t->rtt, 0.99), "from", t->here, "to", t->there);
	int rc = o == NULL ? -ENOMEM : json_dumpf(o, to, JSON_COMPACT | JSON_REAL_PRECISION(6));

	json_decref(o);
	fputc('\n', to);
	fflush(to);
	return rc == 0 ? 0 : -ENOMEM;
}
