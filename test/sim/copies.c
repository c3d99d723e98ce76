/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Memory that has to be copied (karst_copy.h).  In some schedules the regions of programs are
 * registered as unmapped memory, of which some pages may be dereferenced after all.  A copy is made
 * a while after it was submitted, and then its queue pair continues.  Meanwhile packets arrive,
 * paths fail, and programs go on.
 *
 * A copy has no effect but that of the operation that needs it, so the other files check these
 * schedules like any other.  But a packet that was delivered may wait for a copy, or behind a
 * packet that does: while a core has copies, they do not expect that it has acted on a packet.
 */
#include "karst_copy.h"
#include "karst_unmapped.h"
#include "sim.h"

#define PAGE 4096u

/* Longest time that a copy takes: much less than the shortest timeout. */
#define COPY_NS_MAX 30000

struct sim_copy {
	struct karst_copy copy;
	struct sim_copy *next; /* in the list of pending or free ones */
	uint64_t due_ns;
	uint8_t room[KARST_COPY_ROOM];
};

void
sim_copies_config(struct sim *s)
{
	/* not drawn, so that recorded seeds still give the same schedules */
	s->copying.state = sim_mix(s->seed ^ 0x636f70696573ull);
	s->copies = s->profile < SIM_FAULTS && rng_one_in(&s->copying, 6);
}

void *
sim_copies_host(const struct sim *s, uint8_t *host)
{
	return s->copies ? (void *)((uintptr_t)host | KARST_MEM_UNMAPPED) : host;
}

static uint8_t *
plain(const uint8_t *host)
{
	return (uint8_t *)((uintptr_t)host & ~(uintptr_t)KARST_MEM_UNMAPPED);
}

static bool
is_mapped(const struct sim *s, const uint8_t *p)
{
	return sim_mix(s->seed ^ (uintptr_t)(p - s->arena.base) / PAGE) % 8 == 0;
}

static uint8_t *
copies_map(struct karst_core *core, const uint8_t *host, uint32_t *n)
{
	const struct sim_core *c = core->user;
	const struct sim *s = c->node->s;
	uint8_t *p = plain(host);
	bool mapped = is_mapped(s, p);
	uint32_t len = PAGE - (uint32_t)(p - s->arena.base) % PAGE;

	while (len < *n && is_mapped(s, p + len) == mapped)
		len += PAGE;
	*n = karst_min_u32(*n, len);
	return mapped ? p : NULL;
}

static struct karst_copy *
copies_take(struct karst_core *core)
{
	struct sim_core *c = core->user;
	struct sim_copy *x = c->copies_free;

	if (x != NULL)
		c->copies_free = x->next;
	else
		x = sim_alloc_raw(c->node->s, sizeof(*x));
	x->copy.room = x->room;
	return &x->copy;
}

static bool
copies_submit(struct karst_core *core, struct karst_copy *copy)
{
	struct sim_copy *x = karst_container_of(copy, struct sim_copy, copy);
	struct sim_core *c = core->user;
	struct sim *s = c->node->s;

	x->due_ns = s->now_ns + rng_log(&s->copying, 10, COPY_NS_MAX);
	x->next = c->copies;
	c->copies = x;
	return true;
}

static bool
take_out(struct sim_core *c, struct sim_copy *x)
{
	struct sim_copy **at = &c->copies;

	while (*at != NULL && *at != x)
		at = &(*at)->next;
	if (*at == NULL)
		return false;
	*at = x->next;
	return true;
}

static void
copies_release(struct karst_core *core, struct karst_pkt *pkt)
{
	struct sim_core *c = core->user;
	struct sim_ep *ep = sim_ep_of(c->node, pkt->dqpn);

	if (ep != NULL)
		sim_wire_taken(ep, pkt);
	sim_hold_ops.release(core, pkt);
}

static void
copies_give_back(struct karst_core *core, struct karst_copy *copy)
{
	struct sim_copy *x = karst_container_of(copy, struct sim_copy, copy);
	struct sim_core *c = core->user;

	(void)take_out(c, x);
	if (copy->half == KARST_COPY_RX && copy->pkt != NULL)
		copies_release(core, copy->pkt);
	/* frames of this turn may still refer to it */
	x->next = c->copies_used;
	c->copies_used = x;
}

static struct karst_pkt *
copies_keep(struct karst_core *core, struct karst_copy *copy, struct karst_pkt *pkt)
{
	const struct sim_core *c = core->user;
	const struct sim_arena *a = &c->node->s->arena;

	/* a frame that is held remains where it is */
	if ((uint8_t *)pkt >= a->base && (uint8_t *)pkt < a->base + a->size)
		return pkt;
	return sim_hold_ops.hold(core, pkt);
}

static void
copies_unkeep(struct karst_core *core, struct karst_pkt *pkt)
{
}

const struct karst_copy_ops sim_copy_ops = {
	.map = copies_map,
	.take = copies_take,
	.submit = copies_submit,
	.give_back = copies_give_back,
	.keep = copies_keep,
	.unkeep = copies_unkeep,
	.release = copies_release,
};

static void
copy_part(struct karst_copy *copy, const struct karst_copy_part *part)
{
	uint8_t *host = plain(part->host);

	switch (copy->op) {
	case KARST_COPY_READ:
		memcpy(part->local, host, part->n);
		return;
	case KARST_COPY_WRITE:
		memcpy(host, part->local, part->n);
		return;
	case KARST_COPY_STORE:
		memcpy(host, &copy->operand, 8);
		return;
	case KARST_COPY_CAS:
		copy->old = karst_mem_cas(host, copy->compare, copy->operand);
		return;
	default:
		copy->old = karst_mem_faa(host, copy->operand);
	}
}

void
sim_copies_turn(struct sim *s, struct sim_core *c)
{
	struct sim_copy *x, *next;
	uint32_t i;

	while ((x = c->copies_used) != NULL) {
		c->copies_used = x->next;
		x->next = c->copies_free;
		c->copies_free = x;
	}
	x = c->copies;
	for (; x != NULL; x = next) {
		next = x->next;
		if (x->due_ns > s->now_ns)
			continue;
		(void)take_out(c, x);
		for (i = 0; i < x->copy.nparts; i++)
			copy_part(&x->copy, &x->copy.part[i]);
		x->copy.moved = x->copy.bytes;
		karst_copy_done(c->core, &x->copy);
		/* the list may have changed */
		next = c->copies;
	}
}

uint64_t
sim_copies_next(const struct sim_core *c)
{
	const struct sim_copy *x;
	uint64_t next = UINT64_MAX;

	for (x = c->copies; x != NULL; x = x->next)
		next = karst_min_u64(next, x->due_ns);
	return next;
}
