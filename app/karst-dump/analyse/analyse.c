/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Take frames and produce verdicts: find the flow of each frame and the checks that apply to it.
 * Copies of a frame (doubled.c) are counted and left out.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "an_priv.h"

struct an *
an_new(const struct an_options *o)
{
	struct an *a = calloc(1, sizeof(*a));

	if (a == NULL || (a->whole = malloc(JUDGE_FRAME_MAX)) == NULL) {
		fputs("karst-dump: out of memory\n", stderr);
		free(a);
		return NULL;
	}
	if (getrandom(a->key, sizeof(a->key), 0) != (ssize_t)sizeof(a->key))
		a->key[0] = (uintptr_t)a; /* predictable, but still differs between runs */
	a->o = o;
	a->have_log = o->fates != NULL;
	a->flows_tail = &a->flows;
	if (o->injuries != NULL && an_injuries_read(a, o->injuries) != 0) {
		an_free(a);
		return NULL;
	}
	if (o->counters != NULL && access(o->counters, R_OK) != 0) {
		fprintf(stderr, "karst-dump: --counters %s: %s\n", o->counters, strerror(errno));
		an_free(a);
		return NULL;
	}
	return a;
}

void
an_addresses(const struct judge *j, uint8_t src[16], uint8_t dst[16])
{
	memset(src, 0, 16);
	memset(dst, 0, 16);
	if (j->kind == JUDGE_NATIVE && j->native.lnh == KARST_LNH_GLOBAL) {
		memcpy(src, j->native.sgid, 16);
		memcpy(dst, j->native.dgid, 16);
	} else if (j->kind == JUDGE_NATIVE) {
		karst_put_be16(src + 14, j->native.slid);
		karst_put_be16(dst + 14, j->native.dlid);
	} else if (j->roce.ip6) {
		memcpy(src, j->roce.saddr, 16);
		memcpy(dst, j->roce.daddr, 16);
	} else {
		src[10] = src[11] = dst[10] = dst[11] = 0xff;
		memcpy(src + 12, j->roce.saddr, 4);
		memcpy(dst + 12, j->roce.daddr, 4);
	}
}

static uint8_t
tclass_of(const struct judge *j)
{
	if (j->kind == JUDGE_ROCE)
		return j->roce.tclass;
	return j->native.lnh == KARST_LNH_GLOBAL ? j->native.tclass : 0;
}

/* Takes the fate of this packet from the capture of the other end. */
static void
packet_fate(struct an *a, struct an_pkt *p)
{
	const struct ends_fates *f = a->o->fates;

	while (f != NULL && a->fates_used < f->n && f->at[a->fates_used].frame < p->frame)
		a->fates_used++;
	if (f != NULL && a->fates_used < f->n && f->at[a->fates_used].frame == p->frame)
		p->fate |= f->at[a->fates_used].fate;
}

/* Gets the addresses of a frame that cannot be parsed as RoCE.  @return whether it has any. */
static bool
ip_addresses(const struct capture_frame *f, struct an_pkt *p)
{
	uint32_t off = KARST_ETH_LEN;

	if (f->link != CAPTURE_ETHERNET || f->len < KARST_ETH_LEN + KARST_VLAN_LEN + KARST_IP6_LEN)
		return false;
	if (karst_get_be16(f->data + off - 2) == 0x8100)
		off += KARST_VLAN_LEN;
	if (karst_get_be16(f->data + off - 2) == 0x86dd) {
		memcpy(p->src, karst_ip6_src(f->data + off), 16);
		memcpy(p->dst, karst_ip6_dst(f->data + off), 16);
		return true;
	}
	p->src[10] = p->src[11] = p->dst[10] = p->dst[11] = 0xff;
	memcpy(p->src + 12, karst_ip4_src(f->data + off), 4);
	memcpy(p->dst + 12, karst_ip4_dst(f->data + off), 4);
	return karst_get_be16(f->data + off - 2) == 0x0800;
}

static void
note(struct an_flow *f, const struct an_pkt *p)
{
	if (f->packets++ == 0) {
		f->first_frame = p->frame;
		f->first_ns = p->ns;
	}
	f->bytes += p->wire_len;
	f->last_frame = p->frame;
	f->last_ns = p->ns;
	f->migreq[p->ib->migreq] = true;
	if ((p->tclass & 3) == 3 || p->fate & AN_CE) {
		f->ce++;
		f->ce_frame = p->frame;
		f->pair->ce++;
		if (!f->ce_asked && p->flags & KARST_OPF_REQUEST) {
			f->ce_asked = true;
			f->ce_psn = p->ib->psn;
		}
	}
}

static void
dispatch(struct an *a, struct an_flow *f, const struct an_pkt *p)
{
	uint8_t transport = p->ib->opcode & KARST_TRANSPORT_MASK;
	struct an_flow *asked;

	if (p->flags & KARST_OPF_CNP) {
		an_cnp(a, f, p);
		return;
	}
	/* karst's own opcodes for selective retransmission are not judged (X7) */
	if (transport == KARST_TRANSPORT_VENDOR)
		return;
	f->transport = transport;
	if (transport == KARST_TRANSPORT_UD)
		an_cm(a, p);
	if (transport == KARST_TRANSPORT_UD || transport == KARST_TRANSPORT_RD)
		return;
	an_rate(a, f, p);
	if (p->flags & KARST_OPF_REQUEST) {
		an_request(a, f, p);
		return;
	}
	asked = an_flow_answered(a, f, p);
	if (asked != NULL && karst_psn_diff(p->ib->psn, asked->req.next) >= 0) {
		struct an_flow *other = an_flow_repaired(a, f, p);

		asked = other != NULL ? other : asked;
	}
	if (asked != NULL)
		an_response(a, f, asked, p);
	else
		f->orphans++;
}

static void
packet(struct an *a, struct an_pkt *p, uint64_t absolute_ns)
{
	struct an_flow *f;
	uint64_t copied;

	an_addresses(p->j, p->src, p->dst);
	p->tclass = tclass_of(p->j);
	f = an_flow_of(a, p);
	if (f == NULL) { /* no memory, or too many flows */
		if (a->left_out++ == 0)
			a->left_out_frame = p->frame;
		return;
	}
	a->packets++;
	an_injury_of(a, f, p, absolute_ns);
	packet_fate(a, p);
	copied = an_copy_of(a, f, p);
	if (copied != 0) {
		a->doubled++;
		f->doubled++;
		if (p->flags & KARST_OPF_CNP && f->cnp_same++ == 0)
			f->cnp_same_frame = p->frame;
		an_say(a, f, AN_TRACE, AN_UNKNOWN, copied, p->frame,
			"the same frame twice: doubled on the way or by the capture; left out");
		return;
	}
	if (!p->cut)
		an_integrity(a, f, p);
	note(f, p);
	an_count_seen(a, f, p);
	dispatch(a, f, p);
}

/* Opcodes from 0xc0 on are reserved for manufacturers, whose own rules apply. */
static bool
is_manufacturers(const struct judge *j)
{
	return j->kind == JUDGE_MALFORMED && j->drop == KARST_DROP_OPCODE && j->pkt.bth_off != 0 &&
		j->pkt.data[j->pkt.bth_off] >= KARST_TRANSPORT_VENDOR;
}

/*
 * Records a frame that cannot be parsed.  Its contents are unknown, so packets of the connections
 * between its two ends are taken as missing.
 */
static void
malformed(struct an *a, const struct capture_frame *f, const struct judge *j)
{
	bool cut = f->len < f->wire_len, own = is_manufacturers(j);
	struct an_pkt p = {0};

	an_say(a, NULL, AN_FORM, cut || own ? AN_UNKNOWN : AN_FAIL, f->number, 0, "%s%s",
		own ? "an opcode of a manufacturer's own" : karst_drop_help(j->drop),
		cut ? "; the capture holds only a part" : "");
	if (ip_addresses(f, &p))
		an_pair_malformed(a, p.src, p.dst);
	else
		a->malformed = true;
}

/*
 * Advances the time of the analysis.  If the clock was set back, or frames are not in order, the
 * time that has passed is not known.
 */
static void
pass_time(struct an *a, const struct capture_frame *f)
{
	if (f->time_ns >= a->stamp_ns) {
		a->last_ns += (uint64_t)f->time_ns - (uint64_t)a->stamp_ns;
	} else {
		a->backwards++;
		a->unsteady = f->number;
		an_say(a, NULL, AN_TRACE, AN_UNKNOWN, f->number, 0,
			"its time is before that of the frame before it");
	}
	a->stamp_ns = f->time_ns;
	if (f->time_ns > a->newest_ns)
		a->newest_ns = f->time_ns;
}

void
an_frame(struct an *a, const struct capture_frame *f, const struct judge *j, uint64_t start_ns)
{
	bool cut = f->len < f->wire_len;
	struct judge again;
	struct an_pkt p;

	a->frames++;
	a->truncated += cut;
	pass_time(a, f);
	if (cut && judge_beginning(f, a->whole, &again))
		j = &again;
	else if (j->kind == JUDGE_MALFORMED)
		malformed(a, f, j);
	if (j->ib == NULL)
		return;
	p = (struct an_pkt){.j = j,
		.ib = j->ib,
		.flags = karst_opcode_flags(j->ib->opcode),
		.frame = f->number,
		.ns = a->last_ns,
		.wire_len = f->wire_len,
		.cut = cut,
		.late = f->time_ns < a->newest_ns};
	packet(a, &p, start_ns + (uint64_t)f->time_ns);
}

static void
one_direction(struct an *a, struct an_flow *f)
{
	if (f->peer == NULL && f->req.begun && !f->req.una_known &&
		f->transport != KARST_TRANSPORT_UC)
		an_say(a, f, AN_ACK, AN_UNKNOWN, f->first_frame, 0,
			"no answer to these requests was seen, or whose they are is not clear");
	else if (f->peer == NULL && f->orphans != 0)
		an_say(a, f, AN_TRACE, AN_UNKNOWN, f->first_frame, 0,
			"answers whose requests were not seen, or are not clear: %llu",
			(unsigned long long)f->orphans);
}

/* Whether missing or misordered packets may be the reason that the check fails. */
static bool
is_spoilt(const struct an_flow *f, unsigned int check)
{
	return f->tainted && (an_checks[check].spoilt || (check == AN_TRACE && f->misordered));
}

/*
 * If the capture lacks packets of a connection, turns failures that these may have caused into
 * AN_UNKNOWN.
 */
static void
demote(struct an *a, struct an_flow *f)
{
	unsigned int c;

	f->tainted |= an_flow_malformed(a, f);
	for (c = 0; f->tainted && c < AN_CHECKS; c++)
		if (is_spoilt(f, c)) {
			f->count[c][AN_UNKNOWN] += f->count[c][AN_FAIL];
			f->count[c][AN_FAIL] = 0;
		}
	for (c = 0; c < AN_CHECKS; c++) {
		unsigned int v;

		for (v = 0; v < AN_VERDICTS; v++)
			a->result[c].count[v] += f->count[c][v];
	}
}

static void
demote_findings(struct an *a, unsigned int check)
{
	struct an_result *r = &a->result[check];
	struct an_findings *fails = &r->found[AN_FAIL], *unknown = &r->found[AN_UNKNOWN];
	unsigned int i, kept = 0;

	for (i = 0; i < fails->n; i++) {
		const struct an_finding *at = &fails->at[i];

		if (at->flow == NULL || !is_spoilt(at->flow, check))
			fails->at[kept++] = *at;
		else if (unknown->n < AN_FINDINGS)
			unknown->at[unknown->n++] = *at;
	}
	fails->n = kept;
}

/* With a wrong address at --tap, few things can be judged, and nothing else would show why. */
static void
check_tap(struct an *a)
{
	const struct an_flow *f = a->flows;

	if (a->o->tap != AN_TAP_ADDRESS || f == NULL)
		return;
	for (; f != NULL; f = f->all_next)
		if (memcmp(a->o->tap_address, f->pair->src->address, 16) == 0 ||
			memcmp(a->o->tap_address, f->pair->dst->address, 16) == 0)
			return;
	an_say(a, NULL, AN_TRACE, AN_UNKNOWN, 0, 0,
		"no packet has the address at which the capture was taken (--tap)");
}

void
an_finish(struct an *a, bool broken)
{
	struct an_flow *f;
	unsigned int c;

	a->broken = broken;
	if (broken)
		an_say(a, NULL, AN_TRACE, AN_UNKNOWN, a->frames, 0,
			"the file ends in the middle of a frame");
	check_tap(a);
	an_flows_finish(a);
	an_cm_finish(a);
	an_cnp_finish(a);
	for (f = a->flows; f != NULL; f = f->all_next) {
		an_jump_finish(a, f);
		one_direction(a, f);
	}
	if (a->o->counters != NULL)
		an_counters_check(a, a->o->counters);
	for (f = a->flows; f != NULL; f = f->all_next)
		demote(a, f);
	for (c = 0; c < AN_CHECKS; c++)
		demote_findings(a, c);
}

bool
an_failed(const struct an *a)
{
	unsigned int c;

	for (c = 0; c < AN_CHECKS; c++)
		if (a->result[c].count[AN_FAIL] != 0)
			return true;
	return false;
}

void
an_free(struct an *a)
{
	an_injuries_free(a);
	an_cm_free(a);
	an_flows_free(a);
	free(a->whole);
	free(a);
}
