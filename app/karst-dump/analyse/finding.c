/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Record verdicts: count them by flow and check, and keep the first few of each kind with their
 * packets.  So the memory needed here does not depend on the length of the capture.
 */
#include <stdarg.h>

#include "an_priv.h"

const struct an_check_info an_checks[AN_CHECKS] = {
#define CHECK(sym, name, spoilt, meaning, rule) [AN_##sym] = {name, spoilt, meaning, rule},
#include "checks.def"
#undef CHECK
};

const char *const an_latency_names[AN_LATENCIES] = {
	[AN_LAT_ACK] = "request to acknowledgement",
	[AN_LAT_NAK] = "gap shown to NAK",
	[AN_LAT_REACTION] = "NAK to retransmission",
	[AN_LAT_RECOVERY] = "lost packet to its acknowledgement",
	[AN_LAT_READ_GAP] = "gap in READ responses to new request",
	[AN_LAT_TIMEOUT] = "transmission to timeout",
	[AN_LAT_RNR] = "RNR NAK to retransmission",
};

static void
count(struct an *a, struct an_flow *f, enum an_check check, enum an_verdict verdict)
{
	if (f == NULL)
		a->result[check].count[verdict]++;
	else
		f->count[check][verdict] += f->count[check][verdict] != UINT32_MAX;
}

void
an_say(struct an *a, struct an_flow *f, enum an_check check, enum an_verdict verdict, uint64_t p0,
	uint64_t p1, const char *format, ...)
{
	struct an_findings *found = &a->result[check].found[verdict];
	struct an_finding *at;
	va_list args;

	count(a, f, check, verdict);
	if (found->n == AN_FINDINGS)
		return;
	at = &found->at[found->n++];
	*at = (struct an_finding){.flow = f};
	if (p0 != 0)
		at->packets[at->n++] = p0;
	if (p1 != 0)
		at->packets[at->n++] = p1;
	va_start(args, format);
	vsnprintf(at->text, sizeof(at->text), format, args);
	va_end(args);
}

void
an_pass(struct an *a, struct an_flow *f, enum an_check check, uint64_t packet)
{
	struct an_findings *found = &a->result[check].found[AN_PASS];

	count(a, f, check, AN_PASS);
	if (found->n == AN_FINDINGS)
		return;
	found->at[found->n++] = (struct an_finding){.flow = f, .packets = {packet}, .n = 1};
}

void
an_measure(struct an *a, enum an_latency what, uint64_t ns)
{
	struct an_measure *m = &a->latency[what];

	if (m->n++ == 0)
		m->min = m->max = ns;
	m->sum += ns;
	if (ns < m->min)
		m->min = ns;
	if (ns > m->max)
		m->max = ns;
}

enum an_verdict
an_timed(const struct an *a, enum an_verdict verdict, uint64_t from)
{
	return verdict == AN_FAIL && from < a->unsteady ? AN_UNKNOWN : verdict;
}

enum an_verdict
an_overall(const uint64_t n[AN_VERDICTS])
{
	if (n[AN_FAIL] != 0)
		return AN_FAIL;
	if (n[AN_UNKNOWN] != 0)
		return AN_UNKNOWN;
	return n[AN_PASS] != 0 ? AN_PASS : AN_VERDICTS;
}

const char *
an_verdict_name(enum an_verdict v)
{
	static const char *const names[] = {[AN_PASS] = "pass",
		[AN_FAIL] = "fail",
		[AN_UNKNOWN] = "cannot tell",
		[AN_VERDICTS] = "not seen"};

	return names[v];
}
