/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Draws the parameters of a schedule from its seed: how many nodes, cores and connections there
 * are, how bad the links are, what each connection does and which faults are injected.
 *
 * Most schedules are small, because many small ones find more than few large ones; rng_log()
 * sometimes gives a large one.
 */
#include "sim.h"

static enum sim_profile
draw_profile(struct sim *s)
{
	uint32_t x = rng_below(&s->rng, 100);

	if (s->opt.profile != SIM_ALL)
		return s->opt.profile;
	if (x < 25)
		return SIM_LOSSLESS;
	if (x < 60)
		return SIM_MILD;
	if (x < 72)
		return SIM_BRUTAL;
	return x < 92 ? SIM_FAULTS : SIM_HOSTILE;
}

static void
draw_link(struct sim *s, struct sim_link *l, enum sim_profile how)
{
	struct sim_rng *r = &s->rng;

	l->delay_ns = rng_log(r, 100, 20000);
	l->jitter_ppm = rng_one_in(r, 3) ? 0 : 500000;
	l->jitter_ns = rng_log(r, 100, 20000);
	l->reorder_ns = rng_log(r, 1000, 200000);
	if (how == SIM_LOSSLESS)
		return;
	if (how == SIM_MILD) {
		l->drop_ppm = rng_one_in(r, 3) ? 0 : rng_below(r, 25000);
		l->dup_ppm = rng_one_in(r, 3) ? rng_below(r, 30000) : 0;
		l->reorder_ppm = rng_one_in(r, 3) ? rng_below(r, 50000) : 0;
		l->corrupt_ppm = rng_one_in(r, 3) ? rng_below(r, 10000) : 0;
		l->ack_drop_ppm = rng_one_in(r, 4) ? rng_below(r, 40000) : 0;
		return;
	}
	l->drop_ppm = rng_one_in(r, 4) ? 0 : rng_below(r, 250000);
	l->dup_ppm = rng_one_in(r, 2) ? rng_below(r, 300000) : 0;
	l->reorder_ppm = rng_one_in(r, 2) ? rng_below(r, 300000) : 0;
	l->corrupt_ppm = rng_one_in(r, 2) ? rng_below(r, 100000) : 0;
	l->ack_drop_ppm = rng_one_in(r, 3) ? rng_below(r, 300000) : 0;
}

static void
draw_links(struct sim *s)
{
	enum sim_profile how = s->profile;
	uint32_t i, j;

	if (how == SIM_FAULTS || how == SIM_HOSTILE)
		how = rng_one_in(&s->rng, 2) ? SIM_LOSSLESS : SIM_MILD;
	for (i = 0; i < s->nnodes; i++) {
		for (j = 0; j < s->nnodes; j++) {
			struct sim_link *l = &s->links[i][j];

			memset(l, 0, sizeof(*l));
			draw_link(s, l, how);
			s->lossy |= l->drop_ppm != 0 || l->corrupt_ppm != 0 || l->ack_drop_ppm != 0;
			s->jumbled |= l->dup_ppm != 0 || l->reorder_ppm != 0;
		}
	}
}

/* Draws the weights of a connection's operations, by opcode. */
static void
draw_mix(struct sim *s, struct sim_pair *p)
{
	static const uint8_t rc_ops[] = {KARST_WR_RDMA_WRITE, KARST_WR_RDMA_WRITE_WITH_IMM,
		KARST_WR_SEND, KARST_WR_SEND_WITH_IMM, KARST_WR_RDMA_READ, KARST_WR_ATOMIC_CAS,
		KARST_WR_ATOMIC_FAA, KARST_WR_ATOMIC_WRITE, KARST_WR_FLUSH, KARST_WR_BIND_MW,
		KARST_WR_SEND_WITH_INV, KARST_WR_LOCAL_INV};
	static const uint8_t uc_ops[] = {KARST_WR_RDMA_WRITE, KARST_WR_RDMA_WRITE_WITH_IMM,
		KARST_WR_SEND, KARST_WR_SEND_WITH_IMM};
	static const uint8_t ud_ops[] = {KARST_WR_SEND, KARST_WR_SEND_WITH_IMM};
	const uint8_t *ops = p->type == KARST_QPT_RC ? rc_ops
		: p->type == KARST_QPT_UC            ? uc_ops
						     : ud_ops;
	uint32_t n = p->type == KARST_QPT_RC ? KARST_DIM(rc_ops)
		: p->type == KARST_QPT_UC    ? KARST_DIM(uc_ops)
					     : KARST_DIM(ud_ops);
	uint32_t i, sum = 0;

	memset(p->mix, 0, sizeof(p->mix));
	for (i = 0; i < n; i++) {
		p->mix[ops[i]] = rng_one_in(&s->rng, 3) ? 0 : rng_below(&s->rng, 100);
		if (ops[i] == KARST_WR_BIND_MW || ops[i] == KARST_WR_LOCAL_INV)
			p->mix[ops[i]] /= 4;
		else if (ops[i] != KARST_WR_SEND_WITH_INV || !p->xrc)
			sum += p->mix[ops[i]];
	}
	if (p->xrc) /* a type 2 window belongs to one QP, and with XRC another QP receives */
		p->mix[KARST_WR_BIND_MW] = p->mix[KARST_WR_LOCAL_INV] =
			p->mix[KARST_WR_SEND_WITH_INV] = 0;
	if (sum == 0)
		p->mix[ops[n > 2 ? rng_below(&s->rng, 8 < n ? 8 : n) : 0]] = 50;
}

static enum sim_fault
draw_fault(struct sim *s, const struct sim_pair *p)
{
	static const enum sim_fault uc[] = {FAULT_LOCAL_KEY, FAULT_RECV_KEY, FAULT_TO_ERR,
		FAULT_RESET, FAULT_DESTROY, FAULT_CQ_OVERFLOW, FAULT_BAD_WQE, FAULT_PEER_DIES};

	if (p->type != KARST_QPT_RC)
		return uc[rng_below(&s->rng, KARST_DIM(uc))];
	return (enum sim_fault)rng_range(&s->rng, FAULT_NONE + 1, FAULT_SCRIBBLE - 1);
}

static void
draw_pair(struct sim *s, struct sim_pair *p, uint32_t idx)
{
	struct sim_rng *r = &s->rng;
	uint32_t x = rng_below(r, 100);

	memset(p, 0, sizeof(*p));
	p->idx = idx;
	p->type = x < 74 ? KARST_QPT_RC : x < 88 ? KARST_QPT_UC : KARST_QPT_UD;
	/* only where no end may fail: if one of the two QPs of an end fails, the other continues */
	p->xrc = p->type == KARST_QPT_RC && s->profile < SIM_BRUTAL &&
		sim_mix(s->seed * SIM_MAX_PAIRS + idx) % 5 == 0;
	p->mtu_shift = 8 + (rng_one_in(r, 3) ? rng_below(r, 5) : rng_below(r, 2));
	p->dead_ns = UINT64_MAX;
	p->credits = rng_one_in(r, 3) && !p->xrc;
	p->rnr_pressure = rng_one_in(r, 3);
	p->use_sqd = p->type == KARST_QPT_RC && rng_one_in(r, 8);
	p->inline_ppm = rng_one_in(r, 2) ? rng_below(r, 600000) : 0;
	p->fence_ppm = rng_one_in(r, 2) ? rng_below(r, 300000) : 0;
	p->zero_ppm = rng_one_in(r, 2) ? rng_below(r, 100000) : 0;
	p->fault_end = rng_below(r, 2);
	sim_repeat_config(s, p);
	draw_mix(s, p);
	if (s->profile == SIM_FAULTS && (idx == 0 || rng_one_in(r, 3)))
		p->fault = draw_fault(s, p);
	if (s->profile == SIM_HOSTILE && (idx == 0 || rng_one_in(r, 4))) {
		p->victim = true;
		p->fault = rng_one_in(r, 2) ? FAULT_SCRIBBLE : FAULT_FORGED;
	}
}

void
sim_config(struct sim *s)
{
	struct sim_rng *r = &s->rng;
	uint32_t i;

	s->profile = draw_profile(s);
	s->nnodes = rng_one_in(r, 8) ? 3 : 2;
	s->lcore_bits = rng_one_in(r, 3);
	s->ncores = 1u << s->lcore_bits;
	s->lossy = s->jumbled = false;
	draw_links(s);
	s->npairs = rng_log(r, 1, SIM_MAX_PAIRS);
	if (s->profile == SIM_HOSTILE && s->npairs == 1)
		s->npairs = 2;
	for (i = 0; i < s->npairs; i++)
		draw_pair(s, &s->pairs[i], i);
	s->ops_per_ep = rng_range(r, 60, 300) / (2 * s->npairs);
	if (s->ops_per_ep < 8)
		s->ops_per_ep = 8;
	s->epochs = s->profile < SIM_FAULTS && rng_one_in(r, 4) ? 2 : 1;
	s->noise_ppm = rng_one_in(r, 4) ? rng_below(r, 60000) : 0;
	s->step_ns = rng_log(r, 20, 500);
	s->max_burst = rng_range(r, 1, SIM_MAX_BURST);
	s->max_bytes = rng_log(r, 64, 65536);
	s->ports.state = sim_mix(s->seed ^ 0x706f727473ull);
	s->shuts = rng_one_in(&s->ports, 4);
	sim_marks_config(s);
	sim_delay_config(s);
	s->paths.state = sim_mix(s->seed ^ 0x7061746873ull);
	s->migrated = false;
	sim_pauses_config(s);
	sim_copies_config(s);
	for (i = 0; i < s->npairs; i++)
		sim_paths_config(s, &s->pairs[i]);
	/* not drawn, so that recorded seeds still give the same schedules */
	s->early = (s->seed >> 2 & 1) != 0;
}
