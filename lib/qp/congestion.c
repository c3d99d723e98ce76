/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * DCQCN, as in its paper (SIGCOMM 2015, "Congestion Control for Large-Scale RDMA Deployments"),
 * with the parameters of adapters.
 *
 *	a CNP:     target = rate (or stays, by "clamp"), rate *= 1 - alpha / 2, stages = 0
 *	alpha:     each period alpha = g * alpha, + (1 - g) if a CNP came in it
 *	recovery:  each time_reset without a reduction, and each byte_reset bytes, is a stage:
 *	             both below the threshold  fast recovery   target stays
 *	             one of them not           additive        target += ai
 *	             both above                hyper           target += hai
 *	           and then rate = (rate + target) / 2
 *
 * Before the first CNP there is no rate: it starts at that of the link, or at
 * rate_to_set_on_first_cnp.  The rate is reduced at most once in a monitor period, so however many
 * CNPs are received, it falls by no more than a half in that time.  A CNP before the end of the
 * period takes effect when the period ends.
 */
#include "congestion.h"

#define MBPS 1000000ull

/* Limit of rounds in a call of karst_dcqcn_advance(). */
#define ROUNDS_MAX 64u
/* Maximum of a stage count; it is above any threshold. */
#define STAGE_MAX 1000u

/* --- parameters --- */

static const struct {
	const char *name;
	uint32_t def, least, most;
	size_t offset;
} params[] = {
#define KARST_RP_PARAM(name, def, least, most) \
	{#name, def, least, most, offsetof(struct karst_rp_params, name)},
#include "karst_rp_param.def"
#undef KARST_RP_PARAM
};

const char *
karst_rp_param(struct karst_rp_params *p, unsigned int i, uint32_t **value, uint32_t *least,
	uint32_t *most)
{
	if (i >= KARST_DIM(params))
		return NULL;
	*value = (uint32_t *)((uint8_t *)p + params[i].offset);
	*least = params[i].least;
	*most = params[i].most;
	return params[i].name;
}

bool
karst_rp_params_valid(const struct karst_rp_params *p)
{
	unsigned int i;

	for (i = 0; i < KARST_DIM(params); i++) {
		uint32_t v;

		memcpy(&v, (const uint8_t *)p + params[i].offset, sizeof(v));
		if (v < params[i].least || v > params[i].most)
			return false;
	}
	/* a smaller value would cause 32 rounds for a frame */
	return p->rpg_byte_reset == 0 || p->rpg_byte_reset >= 1024;
}

void
karst_congestion_defaults(struct karst_congestion_config *c)
{
	unsigned int i;

	*c = (struct karst_congestion_config){
		.mode = KARST_CONGESTION_OFF,
		.np = {.min_time_between_cnps = 4, .cnp_dscp = 48, .cnp_802p_prio = 6},
	};
	for (i = 0; i < KARST_DIM(params); i++)
		memcpy((uint8_t *)&c->rp + params[i].offset, &params[i].def, sizeof(uint32_t));
}

bool
karst_congestion_valid(const struct karst_congestion_config *c)
{
	return c->mode <= KARST_CONGESTION_SWIFT && c->np.cnp_scope <= KARST_CNP_PORT &&
		c->np.cnp_dscp < 64 && c->np.cnp_802p_prio < 8 &&
		(c->mode < KARST_CONGESTION_DCQCN || karst_rp_params_valid(&c->rp));
}

void
karst_rp_set(struct karst_rp *rp, const struct karst_rp_params *p)
{
	*rp = (struct karst_rp){
		.time_reset_ns = p->rpg_time_reset * 1000ull,
		.monitor_ns = p->rate_reduce_monitor_period * 1000ull,
		.rtt_ns = p->dce_tcp_rtt * 1000ull,
		.ai = p->rpg_ai_rate * MBPS,
		.hai = p->rpg_hai_rate * MBPS,
		.max = p->rpg_max_rate * MBPS,
		.min = p->rpg_min_rate * MBPS,
		.first = p->rate_to_set_on_first_cnp * MBPS,
		.byte_reset = p->rpg_byte_reset,
		.threshold = p->rpg_threshold,
		.g = p->dce_tcp_g,
		.gd = p->rpg_gd,
		.initial_alpha = p->initial_alpha_value * (KARST_ALPHA_ONE / 1024),
		.min_dec_percent = p->rpg_min_dec_fac,
		.clamp = p->clamp_tgt_rate != 0,
		.clamp_after_time = p->clamp_tgt_rate_after_time_inc != 0,
	};
}

/* --- alpha --- */

/* (g / 1024) to the power of @n, in units of 1/KARST_ALPHA_ONE. */
static uint64_t
decay(uint32_t g, uint64_t n)
{
	uint64_t result = KARST_ALPHA_ONE, x = (uint64_t)g * (KARST_ALPHA_ONE / 1024);

	for (; n != 0 && result != 0; n >>= 1) {
		if (n & 1)
			result = result * x / KARST_ALPHA_ONE;
		x = x * x / KARST_ALPHA_ONE;
	}
	return result;
}

/* Ends the periods that are over at @t_ns.  A CNP can have been received only in the first of
 * them. */
static void
alpha_advance(struct karst_dcqcn *d, const struct karst_rp *rp, uint64_t t_ns)
{
	uint64_t n = t_ns > d->alpha_ns ? (t_ns - d->alpha_ns) / rp->rtt_ns : 0, alpha = d->alpha;

	if (n == 0)
		return;
	alpha = alpha * rp->g / 1024;
	if (d->heard)
		alpha += (uint64_t)(1024 - rp->g) * (KARST_ALPHA_ONE / 1024);
	d->alpha = (uint32_t)(alpha * decay(rp->g, n - 1) / KARST_ALPHA_ONE);
	d->heard = false;
	d->alpha_ns += n * rp->rtt_ns;
}

/* --- reducing --- */

/* Whether there is nothing to recover. */
static bool
is_whole(const struct karst_dcqcn *d)
{
	return d->rate == d->max && d->target == d->max && !d->pending;
}

static void
restart_timers(struct karst_dcqcn *d, uint64_t t_ns)
{
	d->time_stage = d->byte_stage = 0;
	d->bytes = 0;
	d->raise_ns = t_ns;
}

/* E2 */
static void
dcqcn_reduce(struct karst_dcqcn *d, const struct karst_rp *rp, uint64_t t_ns)
{
	uint64_t cut, least;

	alpha_advance(d, rp, t_ns);
	/* alpha >> 20 is in units of 1/2^10; a gd of 11 then cuts by alpha / 2 */
	cut = (uint64_t)((unsigned __int128)d->rate * d->alpha >> (20 + rp->gd));
	least = d->rate / 100 * rp->min_dec_percent;
	if (rp->clamp || d->byte_stage != 0 || (d->time_stage != 0 && rp->clamp_after_time))
		d->target = d->rate;
	d->rate = karst_max_u64(d->rate - cut, least);
	d->rate = karst_max_u64(d->rate, karst_min_u64(rp->min, d->max));
	d->target = karst_max_u64(d->target, d->rate);
	restart_timers(d, t_ns);
	d->cut_ns = t_ns;
	d->pending = false;
}

void
karst_dcqcn_cnp(struct karst_dcqcn *d, const struct karst_rp *rp, uint64_t line, uint64_t now_ns)
{
	bool was_whole = is_whole(d);

	d->max = rp->max != 0 ? rp->max : line;
	if (d->rate == 0) {
		d->rate = d->target = rp->first != 0 ? karst_min_u64(rp->first, d->max) : d->max;
		d->alpha = rp->initial_alpha;
		d->alpha_ns = now_ns;
		d->heard = true;
		dcqcn_reduce(d, rp, now_ns);
		return;
	}
	/* its timer was stopped while there was nothing to recover */
	if (was_whole)
		d->raise_ns = now_ns;
	d->rate = karst_min_u64(d->rate, d->max);
	d->target = karst_min_u64(d->target, d->max);
	karst_dcqcn_advance(d, rp, now_ns);
	alpha_advance(d, rp, now_ns);
	d->heard = true;
	if (now_ns >= d->cut_ns + rp->monitor_ns)
		dcqcn_reduce(d, rp, now_ns);
	else
		d->pending = true;
}

/* --- recovering --- */

static void
next_stage(uint16_t *stage)
{
	if (*stage < STAGE_MAX)
		(*stage)++;
}

/* Raises the rate after a stage of the timer or of the byte counter. */
static void
raise_rate(struct karst_dcqcn *d, const struct karst_rp *rp)
{
	uint32_t t = d->time_stage, b = rp->byte_reset != 0 ? d->byte_stage : t;
	uint32_t most = t > b ? t : b, least = t < b ? t : b;

	if (least > rp->threshold)
		d->target += rp->hai;
	else if (most >= rp->threshold)
		d->target += rp->ai;
	d->target = karst_min_u64(d->target, d->max);
	d->rate = karst_min_u64((d->rate + d->target + 1) / 2, d->max);
}

void
karst_dcqcn_advance(struct karst_dcqcn *d, const struct karst_rp *rp, uint64_t now_ns)
{
	uint32_t i;

	for (i = 0; i < ROUNDS_MAX && karst_dcqcn_next(d, rp) <= now_ns; i++) {
		if (d->pending && d->cut_ns + rp->monitor_ns <= d->raise_ns + rp->time_reset_ns) {
			dcqcn_reduce(d, rp, d->cut_ns + rp->monitor_ns);
			continue;
		}
		d->raise_ns += rp->time_reset_ns;
		next_stage(&d->time_stage);
		raise_rate(d, rp);
	}
}

void
karst_dcqcn_sent(struct karst_dcqcn *d, const struct karst_rp *rp, uint32_t bytes)
{
	if (d->rate == 0 || rp->byte_reset == 0 || is_whole(d))
		return;
	/* the parameter may have been reduced since */
	d->bytes = karst_min_u32(d->bytes, rp->byte_reset - 1) + bytes;
	for (; d->bytes >= rp->byte_reset; d->bytes -= rp->byte_reset) {
		next_stage(&d->byte_stage);
		raise_rate(d, rp);
	}
}

uint64_t
karst_dcqcn_next(const struct karst_dcqcn *d, const struct karst_rp *rp)
{
	uint64_t next;

	if (d->rate == 0 || is_whole(d))
		return UINT64_MAX;
	next = d->raise_ns + rp->time_reset_ns;
	return d->pending ? karst_min_u64(next, d->cut_ns + rp->monitor_ns) : next;
}
