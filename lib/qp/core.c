/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The protocol core of one lcore: its queue pairs by number.
 *
 * A QPN is (slot << lcore_bits | lcore).  A slot is drawn at random from the half of the free ones
 * that have been free for longest.  So a number is reused late, packets of a dead connection rarely
 * match a new one, and the number of the next connection cannot be predicted.  Numbers 0 and 1
 * (SMI, GSI) and 0xffffff (multicast) are never given out.
 */
#include "gaps.h"
#include "notify.h"

#include <errno.h>

#include "karst_prf.h"

enum key_use { USE_QPN = 1, USE_SRQ };

#define DEFAULT_ACK_INTERVAL 32u
#define DEFAULT_WINDOW       256u
#define MAX_WINDOW           (1u << 22)
#define DEFAULT_STREAM_BYTES (16u << 20)
#define DEFAULT_XRC_SRQS     1024u
#define DEFAULT_QUANTUM      (16u << 10)
#define MAX_QUANTUM          (1u << 24)
#define MAX_SHARERS          65536u

const uint8_t karst_qp_transports[] = {
	[KARST_QPT_RC] = KARST_TRANSPORT_RC,
	[KARST_QPT_UC] = KARST_TRANSPORT_UC,
	[KARST_QPT_UD] = KARST_TRANSPORT_UD,
	[KARST_QPT_XRC_SEND] = KARST_TRANSPORT_XRC,
	[KARST_QPT_XRC_RECV] = KARST_TRANSPORT_XRC,
};

const uint32_t karst_rnr_ns[32] = {655360000, 10000, 20000, 30000, 40000, 60000, 80000, 120000,
	160000, 240000, 320000, 480000, 640000, 960000, 1280000, 1920000, 2560000, 3840000, 5120000,
	7680000, 10240000, 15360000, 20480000, 30720000, 40960000, 61440000, 81920000, 122880000,
	163840000, 245760000, 327680000, 491520000};

const uint16_t karst_credits[31] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256,
	384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};

static bool
config_ok(const struct karst_core_config *cfg)
{
	return cfg->lcore_bits <= 8 && cfg->lcore < 1u << cfg->lcore_bits && cfg->max_qps >= 1 &&
		cfg->max_qps <= (1u << (24 - cfg->lcore_bits)) - 3 &&
		cfg->qpns <= 1u << (24 - cfg->lcore_bits) &&
		cfg->max_xrc_srqs <= 1u << (23 - cfg->lcore_bits) &&
		cfg->max_sharers <= MAX_SHARERS && cfg->quantum_bytes <= MAX_QUANTUM &&
		cfg->mem != NULL && cfg->ops != NULL &&
		(cfg->held_frames == 0 || cfg->hold_ops != NULL) &&
		(cfg->spray_ports == 0 ||
			(karst_is_pow2(cfg->spray_ports) && cfg->spray_ports <= KARST_SPRAY_MAX)) &&
		cfg->window_packets <= MAX_WINDOW &&
		(cfg->congestion == NULL || karst_congestion_valid(cfg->congestion));
}

/* Slots of the QPN table, including room for the numbers that are never given out. */
static uint32_t
table_slots(const struct karst_core_config *cfg)
{
	return cfg->qpns > cfg->max_qps + 3 ? cfg->qpns : cfg->max_qps + 3;
}

static uint32_t
srq_slots(const struct karst_core_config *cfg)
{
	return karst_pow2_ceil(cfg->max_xrc_srqs != 0 ? cfg->max_xrc_srqs : DEFAULT_XRC_SRQS);
}

static bool
notifies(const struct karst_core_config *cfg)
{
	return cfg->congestion != NULL && cfg->congestion->mode != KARST_CONGESTION_OFF;
}

static bool
reacts(const struct karst_core_config *cfg)
{
	return cfg->congestion != NULL && cfg->congestion->mode == KARST_CONGESTION_DCQCN;
}

static bool
measures_delay(const struct karst_core_config *cfg)
{
	return cfg->congestion != NULL && cfg->congestion->mode == KARST_CONGESTION_SWIFT;
}

static size_t
free_bytes(const struct karst_core_config *cfg)
{
	/* the memory after it must be aligned */
	return ((size_t)table_slots(cfg) + 1) / 2 * 2 * sizeof(uint32_t);
}

static uint32_t
sharers(const struct karst_core_config *cfg)
{
	return cfg->max_sharers != 0 ? cfg->max_sharers : 1;
}

/* All but the wheels and the lists of the scheduler. */
static size_t
cleared_bytes(const struct karst_core_config *cfg)
{
	return sizeof(struct karst_core) + karst_sched_users_bytes(sharers(cfg)) +
		sizeof(struct karst_gaps) + (notifies(cfg) ? karst_np_bytes() : 0) +
		(reacts(cfg) ? sizeof(struct karst_rp) : 0) +
		(measures_delay(cfg) ? sizeof(struct karst_swift_rp) : 0) +
		table_slots(cfg) * sizeof(struct karst_core_qp *) +
		srq_slots(cfg) * sizeof(struct karst_core_srq *) + free_bytes(cfg);
}

size_t
karst_core_bytes(const struct karst_core_config *cfg)
{
	if (!config_ok(cfg))
		return 0;
	return cleared_bytes(cfg) + karst_timers_bytes(sharers(cfg)) +
		karst_sched_list_bytes(cfg, sharers(cfg));
}

/* Makes all numbers free, except those that are never given out. */
static void
init_numbers(struct karst_core *core, const struct karst_core_config *cfg)
{
	uint64_t key[2];
	uint32_t slot;

	karst_prf_derive(cfg->seed, USE_QPN, 0, core->qpn_key);
	karst_prf_derive(cfg->seed, USE_SRQ, 0, key);
	core->next_srq = (uint32_t)key[0];
	for (slot = 0; slot < core->qpns; slot++) {
		uint32_t qpn = slot << core->lcore_bits | core->lcore;

		if (qpn > 1 && qpn != KARST_QPN_MULTICAST)
			core->free[core->nfree++] = slot;
	}
}

int
karst_core_init(
	void *buf, const struct karst_core_config *cfg, uint64_t now_ns, struct karst_core **out)
{
	struct karst_core *core = buf;
	uint8_t *rest = (uint8_t *)(core + 1);
	struct karst_sched_user *users;

	if (!config_ok(cfg))
		return -EINVAL;
	/* wheels and lists of the active come last; they need no pages before a user has timers or
	 * active QPs */
	memset(core, 0, cleared_bytes(cfg));
	core->now_ns = now_ns;
	core->user = cfg->user;
	core->mem = cfg->mem;
	core->ahs = cfg->ahs;
	core->ops = cfg->ops;
	core->copy_ops = cfg->copy_ops;
	core->hold_ops = cfg->hold_ops;
	core->held_max = cfg->held_frames;
	core->spray_mask = cfg->spray_ports != 0 ? (uint8_t)(cfg->spray_ports - 1) : 0;
	core->lcore = cfg->lcore;
	core->lcore_bits = cfg->lcore_bits;
	core->ack_interval = cfg->ack_interval != 0 ? cfg->ack_interval : DEFAULT_ACK_INTERVAL;
	core->window_packets = cfg->window_packets != 0 ? cfg->window_packets : DEFAULT_WINDOW;
	core->wary_packets = core->window_packets > 1
		? core->window_packets - (core->window_packets + 7) / 8
		: core->window_packets;
	/* Q2: a full window must contain a packet that asks for an acknowledgement; for smaller
	 * windows see asks_again() in requester_build.c */
	core->ack_interval = karst_min_u32(core->ack_interval, core->window_packets);
	core->placer.stream_bytes =
		cfg->stream_bytes != 0 ? cfg->stream_bytes : DEFAULT_STREAM_BYTES;
	core->linger_turns = cfg->linger_turns;
	core->cross_cpu = cfg->cross_cpu;
	core->latch_sport = cfg->latch_sport;
	core->divide_writes = cfg->divide_writes;
	core->early = cfg->early_retransmission;
	core->measures = core->early || measures_delay(cfg);
	core->bth_flags = cfg->migreq ? KARST_BTH_MIGREQ : 0;
	core->max_qps = cfg->max_qps;
	core->qpns = table_slots(cfg);
	users = (struct karst_sched_user *)rest;
	rest += karst_sched_users_bytes(sharers(cfg));
	if (notifies(cfg)) {
		core->np = (struct karst_np *)rest;
		core->ect = true;
		karst_np_init(core->np, &cfg->congestion->np);
		rest += karst_np_bytes();
	}
	if (reacts(cfg)) {
		core->rp = (struct karst_rp *)rest;
		karst_rp_set(core->rp, &cfg->congestion->rp);
		rest += sizeof(struct karst_rp);
	}
	if (measures_delay(cfg)) {
		core->swift = (struct karst_swift_rp *)rest;
		karst_swift_set(core->swift, &cfg->congestion->rp);
		rest += sizeof(struct karst_swift_rp);
	}
	core->gaps = (struct karst_gaps *)rest;
	karst_gaps_init(core->gaps);
	rest += sizeof(struct karst_gaps);
	core->qps = (struct karst_core_qp **)rest;
	core->srqs = (struct karst_core_srq **)(core->qps + core->qpns);
	core->srq_mask = srq_slots(cfg) - 1;
	core->free = (uint32_t *)(core->srqs + srq_slots(cfg));
	init_numbers(core, cfg);
	rest = (uint8_t *)core->free + free_bytes(cfg);
	karst_timers_init(core, rest);
	rest += karst_timers_bytes(sharers(cfg));
	karst_sched_init(core, users, sharers(cfg), rest,
		cfg->quantum_bytes != 0 ? cfg->quantum_bytes : DEFAULT_QUANTUM);
	*out = core;
	return 0;
}

void
karst_qp_doorbell(struct karst_core *core, struct karst_core_qp *qp)
{
	/* in RESET, too: the program will not ring again, so the queue must be polled at the
	 * transition to RTS */
	qp->req.flags &= (uint8_t)~KARST_REQ_IDLE;
	karst_wqe_busy(&qp->sq);
	if (qp->state != KARST_QPS_RESET)
		karst_core_activate(core, qp);
}

void
karst_core_doorbell(struct karst_core *core, uint32_t qpn)
{
	struct karst_core_qp *qp = karst_core_lookup(core, qpn);

	if (qp != NULL)
		karst_qp_doorbell(core, qp);
}
