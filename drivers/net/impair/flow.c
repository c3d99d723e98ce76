/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Record the history of flows, for rules that depend on the transmission of a packet or count by
 * QP.
 *
 * A flow is all packets with the same addresses, the same destination QP, and the same kind,
 * request or response; responses have the PSNs of the requests of the other direction.  The table
 * has a fixed size.  A flow can be in one of WAYS places.  If all are taken, the least recently
 * used flow is replaced.  So packets of a million forged flows can displace the history of others,
 * but take no memory.
 *
 * For each of the last IMP_FLOW_PSNS PSNs, a byte counts how often it was seen.  An older PSN
 * restarts the flow, as if the queue pair had been reset.
 */
#include "impair.h"

#include <stdlib.h>

#include "karst_hdr.h"
#include "karst_opcode.h"
#include "karst_psn.h"

#define WAYS 4u

struct imp_flows *
imp_flows_new(uint64_t flows, uint32_t counters, bool psns, uint64_t seed)
{
	struct imp_flows *fs = calloc(1, sizeof(*fs));

	if (fs == NULL)
		return NULL;
	fs->mask = rte_align64pow2(flows) / WAYS - 1;
	fs->stride =
		sizeof(struct imp_flow) + counters * sizeof(uint32_t) + (psns ? IMP_FLOW_PSNS : 0);
	fs->stride = RTE_ALIGN_CEIL(fs->stride, (size_t)64);
	fs->counters = counters;
	fs->psns = psns;
	fs->secret = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
	fs->memory = calloc((fs->mask + 1) * WAYS, fs->stride);
	if (fs->memory == NULL) {
		free(fs);
		return NULL;
	}
	return fs;
}

void
imp_flows_free(struct imp_flows *fs)
{
	if (fs != NULL)
		free(fs->memory);
	free(fs);
}

static uint64_t
mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * UINT64_C(0xff51afd7ed558ccd);
	return h ^ h >> 32;
}

static uint64_t
key_of(const struct imp_flows *fs, const struct imp_frame *f)
{
	const uint8_t *addr = f->ip6 ? karst_ip6_src(f->l3) : karst_ip4_src(f->l3);
	uint32_t i, words = f->ip6 ? 4 : 1;
	bool response = (karst_opcode_flags(f->opcode) & KARST_OPF_RESPONSE) != 0;
	uint64_t h = mix(fs->secret, (uint64_t)f->qpn << 1 | response), v;

	for (i = 0; i < words; i++) {
		memcpy(&v, addr + i * 8, sizeof(v));
		h = mix(h, v);
	}
	return h | 1; /* 0 means unused */
}

struct imp_flow *
imp_flow_of(struct imp_flows *fs, const struct imp_frame *f, uint64_t *evicted)
{
	uint64_t key = key_of(fs, f);
	uint8_t *bucket = fs->memory + (key >> 8 & fs->mask) * WAYS * fs->stride;
	struct imp_flow *oldest = (struct imp_flow *)bucket, *flow;
	uint32_t i;

	fs->tick++;
	for (i = 0; i < WAYS; i++) {
		flow = (struct imp_flow *)(bucket + i * fs->stride);
		if (flow->key == key) {
			flow->used = fs->tick;
			return flow;
		}
		if (flow->used < oldest->used)
			oldest = flow;
	}
	if (oldest->key != 0)
		imp_add(evicted, 1);
	memset(oldest, 0, fs->stride);
	oldest->key = key;
	oldest->used = fs->tick;
	oldest->next_psn = UINT32_MAX;
	return oldest;
}

/* Clears the counts of the PSNs after the newest one, up to @psn, which becomes the newest. */
static void
advance(struct imp_flow *flow, uint8_t *times, uint32_t psn, uint32_t gap)
{
	uint32_t i;

	if (gap >= IMP_FLOW_PSNS)
		memset(times, 0, IMP_FLOW_PSNS);
	else
		for (i = 0; i <= gap; i++)
			times[(flow->next_psn + i) % IMP_FLOW_PSNS] = 0;
	flow->next_psn = karst_psn_add(psn, 1);
}

uint32_t
imp_flow_transmission(const struct imp_flows *fs, struct imp_flow *flow, uint32_t psn)
{
	uint8_t *times = (uint8_t *)&flow->seen[fs->counters];
	uint8_t *mine = &times[psn % IMP_FLOW_PSNS];
	int32_t ahead;

	if (flow->next_psn == UINT32_MAX)
		flow->next_psn = psn;
	ahead = karst_psn_diff(psn, flow->next_psn);
	if (ahead >= 0)
		advance(flow, times, psn, (uint32_t)ahead);
	else if (ahead < -(int32_t)IMP_FLOW_PSNS)
		advance(flow, times, psn, IMP_FLOW_PSNS);
	*mine = (uint8_t)(*mine + (*mine <= IMP_TRANSMISSION_MAX));
	return *mine - 1u;
}
