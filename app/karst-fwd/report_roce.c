/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Report the counters of roce-check: the sums of all lcores. */
#include <stdlib.h>

#include "check.h"
#include "karst_crc.h"
#include "karst_hdr.h"
#include "karst_opcode.h"
#include "report.h"
#include "report_json.h"

static void
sum_seen(const struct fwd *f, struct fwd_seen *sum)
{
	uint64_t *to = (uint64_t *)sum;
	uint32_t i;
	size_t k;

	static_assert(sizeof(*sum) % sizeof(uint64_t) == 0, "counters and nothing else");
	memset(sum, 0, sizeof(*sum));
	for (i = 0; i < f->nlcores; i++) {
		if (f->lcores[i].check == NULL)
			continue;
		for (k = 0; k < sizeof(*sum) / sizeof(uint64_t); k++)
			to[k] += fwd_read((const uint64_t *)&f->lcores[i].check->seen + k);
	}
}

/* Whether the frame is not RoCEv2 at all, as opposed to a wrong RoCEv2 frame. */
static bool
is_other(enum karst_drop drop)
{
	return drop == KARST_DROP_ETHERTYPE || drop == KARST_DROP_IP_FRAGMENT ||
		drop == KARST_DROP_NOT_UDP || drop == KARST_DROP_NOT_ROCE;
}

static void
put_refused(json_t *o, const struct fwd_seen *s)
{
	json_t *malformed = json_object(), *other = json_object();
	uint64_t bad = 0, others = 0;
	unsigned int i;

	for (i = 1; i < KARST_DROP_MAX; i++) {
		if (s->refused[i] == 0 || i == KARST_DROP_ICRC)
			continue;
		fwd_report_set_count(is_other((enum karst_drop)i) ? other : malformed,
			karst_drop_name((enum karst_drop)i), s->refused[i]);
		*(is_other((enum karst_drop)i) ? &others : &bad) += s->refused[i];
	}
	fwd_report_set_count(o, "icrc_ok", s->roce);
	fwd_report_set_count(o, "icrc_bad", s->refused[KARST_DROP_ICRC]);
	fwd_report_set_count(o, "malformed", bad);
	fwd_report_set_count(o, "other", others);
	json_object_set_new(o, "by_reason", malformed);
	json_object_set_new(o, "other_by_reason", other);
}

static const char *
syndrome_name(uint8_t s)
{
	static const char *const naks[] = {"nak_psn_sequence", "nak_invalid_request",
		"nak_remote_access", "nak_remote_operation", "nak_invalid_rd_request"};
	uint8_t value = s & KARST_AETH_VALUE_MASK;

	switch (s & KARST_AETH_TYPE_MASK) {
	case KARST_AETH_ACK:
		return "ack";
	case KARST_AETH_RNR:
		return "rnr_nak";
	case KARST_AETH_NAK:
		return value < KARST_DIM(naks) ? naks[value] : "nak_reserved";
	default:
		return "reserved";
	}
}

static void
put_counted(json_t *o, const struct fwd_seen *s)
{
	static const char *const ecn[] = {"not_ect", "ect1", "ect0", "ce"};
	json_t *opcodes = json_object(), *acks = json_object(), *marks = json_object();
	uint64_t naks = 0, rnr = 0;
	unsigned int i;

	for (i = 0; i < 256; i++) {
		uint8_t type = (uint8_t)(i & KARST_AETH_TYPE_MASK);

		if (s->opcode[i] != 0)
			fwd_report_set_count(
				opcodes, karst_opcode_symbol((uint8_t)i), s->opcode[i]);
		if (s->syndrome[i] == 0)
			continue;
		fwd_report_add_count(acks, syndrome_name((uint8_t)i), s->syndrome[i]);
		naks += type == KARST_AETH_NAK ? s->syndrome[i] : 0;
		rnr += type == KARST_AETH_RNR ? s->syndrome[i] : 0;
	}
	for (i = 0; i < 4; i++)
		fwd_report_set_count(marks, ecn[i], s->ecn[i]);
	json_object_set_new(o, "by_opcode", opcodes);
	json_object_set_new(o, "by_syndrome", acks);
	fwd_report_set_count(o, "nak", naks);
	fwd_report_set_count(o, "rnr_nak", rnr);
	fwd_report_set_count(o, "cnp", s->opcode[KARST_CNP]);
	json_object_set_new(o, "ecn", marks);
	fwd_report_set_count(o, "fecn", s->fecn);
	fwd_report_set_count(o, "becn", s->becn);
}

static void
put_flow_sums(json_t *o, const struct fwd *f)
{
	uint64_t flows = 0, gaps = 0, missing = 0, late = 0, repeated = 0, restarts = 0;
	uint32_t i, k;

	for (i = 0; i < f->nlcores; i++) {
		const struct fwd_check *c = f->lcores[i].check;
		uint32_t n = c == NULL ? 0 : fwd_flows_count(&c->flows);

		flows += n;
		for (k = 0; k < n; k++) {
			const struct fwd_flow *flow = &c->flows.flows[k];

			gaps += fwd_read(&flow->gaps);
			missing += fwd_read(&flow->missing);
			late += fwd_read(&flow->late);
			repeated += fwd_read(&flow->repeated);
			restarts += fwd_read(&flow->restarts);
		}
	}
	fwd_report_set_count(o, "flows", flows);
	fwd_report_set_count(o, "psn_gaps", gaps);
	fwd_report_set_count(o, "psn_missing", missing);
	fwd_report_set_count(o, "psn_late", late);
	fwd_report_set_count(o, "psn_repeated", repeated);
	fwd_report_set_count(o, "psn_restarts", restarts);
}

json_t *
fwd_report_roce(const struct fwd *f)
{
	struct fwd_seen s;
	json_t *o = json_object();

	sum_seen(f, &s);
	fwd_report_set_count(o, "frames", s.frames);
	fwd_report_set_count(o, "bytes", s.bytes);
	put_refused(o, &s);
	put_counted(o, &s);
	put_flow_sums(o, f);
	fwd_report_set_count(o, "untracked", s.untracked);
	fwd_report_set_text(o, "crc_kernel", karst_crc_ops()->name);
	return o;
}

static json_t *
flow_to_json(const struct fwd_flow *flow)
{
	static const char *const kinds[] = {"requests", "responses", "datagrams"};
	const struct fwd_flow_key *k = &flow->key;
	json_t *o = json_object();
	char text[64];

	fwd_report_set_count(o, "port", k->port);
	fwd_report_set_text(o, "kind", kinds[k->kind]);
	fwd_ip_text(k->ip6, k->src, text);
	fwd_report_set_text(o, "src", text);
	fwd_ip_text(k->ip6, k->dst, text);
	fwd_report_set_text(o, "dst", text);
	fwd_report_set_count(o, "qpn", k->qpn);
	if (k->kind == FWD_FLOW_DATAGRAMS)
		fwd_report_set_count(o, "src_qpn", k->src_qpn);
	fwd_report_set_text(o, "opcode", karst_opcode_symbol(flow->opcode));
	fwd_report_set_count(o, "packets", fwd_read(&flow->packets));
	fwd_report_set_count(o, "bytes", fwd_read(&flow->bytes));
	fwd_report_set_count(o, "gaps", fwd_read(&flow->gaps));
	fwd_report_set_count(o, "missing", fwd_read(&flow->missing));
	fwd_report_set_count(o, "late", fwd_read(&flow->late));
	fwd_report_set_count(o, "repeated", fwd_read(&flow->repeated));
	fwd_report_set_count(o, "restarts", fwd_read(&flow->restarts));
	fwd_report_set_count(o, "nak", fwd_read(&flow->naks));
	fwd_report_set_count(o, "rnr_nak", fwd_read(&flow->rnr_naks));
	fwd_report_set_count(o, "ce", fwd_read(&flow->ce));
	return o;
}

json_t *
fwd_report_flows(const struct fwd *f)
{
	json_t *list = json_array();
	uint32_t i, k;

	for (i = 0; i < f->nlcores; i++) {
		const struct fwd_check *c = f->lcores[i].check;
		uint32_t n = c == NULL ? 0 : fwd_flows_count(&c->flows);

		for (k = 0; k < n; k++)
			json_array_append_new(list, flow_to_json(&c->flows.flows[k]));
	}
	return list;
}

/* --- distributions --- */

static void
merge(struct perf_hist *sum, const struct perf_hist *h)
{
	uint32_t i;

	if (h->count == 0)
		return;
	sum->count += h->count;
	sum->min = karst_min_u64(sum->min, h->min);
	sum->max = karst_max_u64(sum->max, h->max);
	for (i = 0; i < PERF_HIST_BUCKETS; i++)
		sum->buckets[i] += h->buckets[i];
}

void
fwd_report_put_hist(json_t *o, const struct perf_hist *h)
{
	fwd_report_set_count(o, "samples", h->count);
	if (h->count == 0)
		return;
	fwd_report_set_count(o, "min_ns", fwd_report_ns_of(h->min));
	fwd_report_set_count(o, "p50_ns", fwd_report_ns_of(perf_hist_percentile(h, 0.5)));
	fwd_report_set_count(o, "p90_ns", fwd_report_ns_of(perf_hist_percentile(h, 0.9)));
	fwd_report_set_count(o, "p99_ns", fwd_report_ns_of(perf_hist_percentile(h, 0.99)));
	fwd_report_set_count(o, "p999_ns", fwd_report_ns_of(perf_hist_percentile(h, 0.999)));
	fwd_report_set_count(o, "max_ns", fwd_report_ns_of(h->max));
}

json_t *
fwd_report_latency(const struct fwd *f)
{
	struct perf_hist *sum = perf_hist_create();
	json_t *o = json_object();
	uint32_t i;

	if (sum == NULL)
		return o;
	for (i = 0; i < f->nlcores; i++)
		if (f->lcores[i].check != NULL)
			merge(sum, f->lcores[i].check->latency);
	fwd_report_put_hist(o, sum);
	free(sum);
	return o;
}
