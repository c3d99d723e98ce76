/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "check.h"
#include "pattern.h"

static uint8_t *
check_at(uint64_t base, uint64_t off)
{
	return (uint8_t *)(uintptr_t)(base + off);
}

/* Checks a place from the headroom on: the message, and that nothing was written after it. */
static bool
check_holds(const struct perf_job *j, const uint8_t *p, uint64_t seed, uint32_t flow, uint64_t seq)
{
	uint32_t room = j->stride - j->headroom;

	return perf_pattern_check(p, j->size, seed, flow, (uint32_t)seq) &&
		perf_pattern_zero(p + j->size, room - j->size);
}

void
perf_check_begin(struct perf_client *c)
{
	if (!c->verify)
		return;
	memset(check_at(c->local, 0), 0, c->job.working_set);
	/* an end in another process clears its own memory: perf_check_expect() */
	if (c->bed->mem->base[PERF_SERVER] != NULL)
		memset(check_at(c->remote, 0), 0, c->job.working_set);
}

/* --- atomics --- */

static uint64_t
check_operand(const struct perf_client *c, uint32_t flow, uint64_t seq)
{
	return perf_mix64(perf_pattern_first(c->seed, flow, (uint32_t)seq));
}

static uint64_t *
shadow_of(const struct perf_client *c, uint64_t off)
{
	return &c->shadow[off / c->job.stride];
}

static uint64_t
cas_compare(uint64_t now, uint64_t seq)
{
	return seq % 4 == 3 ? ~now : now;
}

static void
post_atomic(
	struct perf_client *c, struct karst_send_wqe *w, uint32_t flow, uint64_t seq, uint64_t off)
{
	uint64_t result = ~UINT64_C(0);

	/* the memory must not already hold the expected result */
	memcpy(check_at(c->local, off), &result, sizeof(result));
	if (c->job.op == PERF_OP_FAA) {
		w->atomic.compare_add = check_operand(c, flow, seq);
		return;
	}
	w->atomic.compare_add = cas_compare(*shadow_of(c, off), seq);
	w->atomic.swap = check_operand(c, flow, seq);
}

static bool
complete_atomic(struct perf_client *c, uint32_t flow, uint64_t seq, uint64_t off)
{
	uint64_t *shadow = shadow_of(c, off), before = *shadow, old;

	memcpy(&old, check_at(c->local, off), sizeof(old));
	if (c->job.op == PERF_OP_FAA)
		*shadow += check_operand(c, flow, seq);
	else if (cas_compare(before, seq) == before)
		*shadow = check_operand(c, flow, seq);
	return old == before;
}

/* --- messages --- */

void
perf_check_posted(
	struct perf_client *c, struct karst_send_wqe *w, uint32_t flow, uint64_t seq, uint64_t off)
{
	uint64_t base = perf_op_fetches(c->job.op) ? c->remote : c->local;

	if (c->shadow != NULL)
		post_atomic(c, w, flow, seq, off);
	else if (!perf_op_fetches(c->job.op) || c->bed->mem->base[PERF_SERVER] != NULL)
		perf_pattern_fill(check_at(base, off), c->job.size, c->seed, flow, (uint32_t)seq);
}

void
perf_check_completed(struct perf_client *c, uint32_t flow, uint32_t n)
{
	const struct perf_job *j = &c->job;
	uint64_t seq = c->flows[flow].completed, end = seq + n, wrong = 0;
	uint64_t base = perf_op_fetches(j->op) ? c->local : c->remote;

	if (perf_op_receives(j->op) || (c->late_check && !perf_op_fetches(j->op)))
		return;
	for (; seq < end; seq++) {
		uint64_t off = perf_bed_offset(j, flow, seq);

		if (c->shadow != NULL)
			wrong += !complete_atomic(c, flow, seq, off);
		else
			wrong += !check_holds(j, check_at(base, off), c->seed, flow, seq);
	}
	if (wrong != 0)
		perf_tally_add(&c->tally.wrong, wrong);
}

/* Checks messages [from, to) of a flow that were written to @base.  The wire is empty. */
static void
settle_flow(const struct perf_job *j, uint64_t base, uint64_t seed, uint32_t flow, uint64_t from,
	uint64_t to, struct perf_tally *tally)
{
	for (; from < to; from++) {
		const uint8_t *p = check_at(base, perf_bed_offset(j, flow, from));

		if (check_holds(j, p, seed, flow, from))
			continue;
		/* the last packet comes only if all others came (U1) */
		if (j->transport == PERF_RC ||
			perf_pattern_check_end(p, j->size, seed, flow, (uint32_t)from))
			perf_tally_add(&tally->wrong, 1);
		else
			perf_tally_add(&tally->lost, 1);
	}
}

void
perf_client_settle(struct perf_client *c)
{
	uint32_t i;

	if (!c->late_check)
		return;
	for (i = 0; i < c->job.qps; i++) {
		struct perf_flow *f = &c->flows[i];

		if (c->bed->mem->base[PERF_SERVER] != NULL)
			settle_flow(
				&c->job, c->remote, c->seed, i, f->checked, f->posted, &c->tally);
		f->checked = f->posted;
	}
}

static uint64_t
mix_targets(const uint8_t *base, uint32_t stride, uint64_t places)
{
	uint64_t i, v, sum = 0;

	for (i = 0; i < places; i++) {
		memcpy(&v, base + i * stride, sizeof(v));
		sum = perf_mix64(sum + v + i);
	}
	return sum;
}

uint64_t
perf_check_targets(const struct perf_server *s)
{
	return mix_targets(
		s->bed->mem->base[PERF_SERVER], s->job.stride, (uint64_t)s->job.qps * s->job.slots);
}

void
perf_client_finish(struct perf_client *c, uint64_t targets)
{
	uint64_t places = (uint64_t)c->job.qps * c->job.slots, i, target, wrong = 0;

	if (c->shadow == NULL || c->failed)
		return;
	if (c->bed->mem->base[PERF_SERVER] == NULL) {
		wrong = targets !=
			mix_targets((const uint8_t *)c->shadow, sizeof(uint64_t), places);
	} else {
		for (i = 0; i < places; i++) {
			memcpy(&target, check_at(c->remote, i * c->job.stride), sizeof(target));
			wrong += target != c->shadow[i];
		}
	}
	if (wrong != 0)
		perf_tally_add(&c->tally.wrong, wrong);
}

/* --- the server's part, when the client cannot see its memory --- */

void
perf_check_expect(struct perf_server *s)
{
	const struct perf_job *j = &s->job;
	uint8_t *base = s->bed->mem->base[PERF_SERVER];
	uint32_t flow, slot;

	memset(base, 0, j->working_set);
	if (!perf_op_fetches(j->op))
		return;
	for (flow = 0; flow < j->qps; flow++)
		for (slot = 0; slot < j->slots; slot++)
			perf_pattern_fill(base + perf_bed_offset(j, flow, slot), j->size, s->seed,
				flow, slot);
}

void
perf_server_settle(struct perf_server *s, uint32_t flow, uint64_t posted)
{
	const struct perf_job *j = &s->job;
	struct perf_sink *k = &s->sinks[flow];
	uint64_t base = s->bed->far[PERF_SERVER].base;

	if (!perf_op_fetches(j->op)) {
		settle_flow(j, base, s->seed, flow, k->checked, posted, &s->tally);
		k->checked = posted;
		return;
	}
	/* writes the next pattern to memory that has been read */
	for (; k->checked < posted; k->checked++)
		perf_pattern_fill(check_at(base, perf_bed_offset(j, flow, k->checked)), j->size,
			s->seed, flow, (uint32_t)(k->checked + j->slots));
}

/* --- receives --- */

void
perf_check_received(struct perf_server *s, uint32_t flow, const struct karst_cqe *e)
{
	const struct perf_job *j = &s->job;
	struct perf_sink *k = &s->sinks[flow];
	const uint8_t *base = s->bed->mem->base[PERF_SERVER], *p;
	uint32_t extra = j->transport == PERF_UD ? PERF_GRH_BYTES : 0;
	uint64_t seq = k->expected, first;
	bool right = e->byte_len == j->size + extra;

	if (j->op == PERF_OP_WRITE_IMM) {
		seq += (uint32_t)(e->imm - (uint32_t)seq);
		p = base + perf_bed_offset(j, flow, seq);
		right &= e->opcode == KARST_WC_RECV_RDMA_WITH_IMM &&
			(e->flags & KARST_WC_WITH_IMM) != 0;
	} else {
		p = base + perf_bed_offset(j, flow, (uint32_t)e->wr_id);
		if (j->transport != PERF_RC && j->size >= sizeof(first)) {
			memcpy(&first, p, sizeof(first));
			seq += (uint32_t)(perf_pattern_seq(s->seed, flow, first) - (uint32_t)seq);
		}
		right &= e->opcode == KARST_WC_RECV;
	}
	if (j->transport == PERF_UD)
		right &= (e->flags & KARST_WC_GRH) != 0 && e->src_qpn == k->peer_qpn;
	/* reliable messages arrive in sequence; the numbers of unreliable ones never go back */
	right &= j->transport == PERF_RC ? seq == k->expected : seq - k->expected < 1u << 31;
	if (!right || !check_holds(j, p, s->seed, flow, seq)) {
		perf_tally_add(&s->tally.wrong, 1);
		k->expected++;
		return;
	}
	if (seq > k->expected)
		perf_tally_add(&s->tally.lost, seq - k->expected);
	k->expected = seq + 1;
}
