/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "copy_bed.h"

#define ALL_MASK (KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE)

/* --- the driver's side --- */

struct room {
	struct room *next;
	uint8_t bytes[KARST_COPY_ROOM];
};

struct copy_driver driver;

static uint8_t *
plain(const uint8_t *host)
{
	return (uint8_t *)((uintptr_t)host & ~(uintptr_t)KARST_MEM_UNMAPPED);
}

static uint8_t *
map(struct karst_core *core, const uint8_t *host, uint32_t *n)
{
	uint8_t *p = plain(host);

	if (driver.mapped != NULL && p >= driver.mapped)
		return p;
	if (driver.mapped != NULL)
		*n = karst_min_u32(*n, (uint32_t)(driver.mapped - p));
	return NULL;
}

static struct karst_copy *
take(struct karst_core *core)
{
	struct room *room;
	uint32_t i;

	for (i = 0; i < COPIES && driver.used[i]; i++)
		;
	if (i == COPIES)
		return NULL;
	driver.used[i] = true;
	room = malloc(sizeof(*room));
	room->next = driver.rooms;
	driver.rooms = room;
	driver.copy[i].room = room->bytes;
	return &driver.copy[i];
}

static bool
submit(struct karst_core *core, struct karst_copy *c)
{
	if (driver.full)
		return false;
	driver.todo[driver.ntodo++] = c;
	return true;
}

static void
release(struct karst_core *core, struct karst_pkt *pkt)
{
	driver.kept--;
	free(pkt->data);
	free(pkt);
}

static void
give_back(struct karst_core *core, struct karst_copy *c)
{
	uint32_t i, n = 0;

	for (i = 0; i < driver.ntodo; i++)
		if (driver.todo[i] != c)
			driver.todo[n++] = driver.todo[i];
	driver.ntodo = n;
	if (c->half == KARST_COPY_RX && c->pkt != NULL)
		release(core, c->pkt);
	driver.used[c - driver.copy] = false;
}

static struct karst_pkt *
keep(struct karst_core *core, struct karst_copy *c, struct karst_pkt *pkt)
{
	struct karst_pkt *copy;

	driver.kept++;
	if (driver.in_place)
		return pkt;
	copy = malloc(sizeof(*copy));
	*copy = *pkt;
	copy->data = malloc(pkt->len);
	memcpy(copy->data, pkt->data, pkt->len);
	return copy;
}

static void
unkeep(struct karst_core *core, struct karst_pkt *pkt)
{
	driver.kept--;
}

static const struct karst_copy_ops ops = {
	.map = map,
	.take = take,
	.submit = submit,
	.give_back = give_back,
	.keep = keep,
	.unkeep = unkeep,
	.release = release,
};

static uint32_t
move(struct karst_copy *c, uint32_t most)
{
	uint32_t i, moved = 0;

	for (i = 0; i < c->nparts && moved < most; i++) {
		const struct karst_copy_part *p = &c->part[i];
		uint32_t n = karst_min_u32(p->n, most - moved);
		uint64_t old;

		memcpy(&old, plain(p->host), sizeof(old));
		if (c->op == KARST_COPY_READ)
			memcpy(p->local, plain(p->host), n);
		else if (c->op == KARST_COPY_WRITE)
			memcpy(plain(p->host), p->local, n);
		else if (c->op == KARST_COPY_STORE)
			memcpy(plain(p->host), &c->operand, 8);
		c->old = old;
		if (c->op == KARST_COPY_FAA)
			old += c->operand;
		else if (c->op == KARST_COPY_CAS && old == c->compare)
			old = c->operand;
		if (c->op == KARST_COPY_FAA || c->op == KARST_COPY_CAS)
			memcpy(plain(p->host), &old, 8);
		moved += n;
	}
	return moved;
}

uint32_t
copy_once(struct bed *b, uint32_t most)
{
	struct karst_copy *todo[COPIES];
	uint32_t i, n = driver.ntodo;

	memcpy(todo, driver.todo, sizeof(todo));
	driver.ntodo = 0;
	for (i = 0; i < n; i++) {
		todo[i]->moved = move(todo[i], most);
		karst_copy_done(b->core, todo[i]);
	}
	return n;
}

void
copy_all(struct bed *b)
{
	while (copy_once(b, ALL) > 0)
		;
	turn(b);
}

/* --- a test bed with such a driver --- */

uint32_t far_key;

struct bed *
open_far_with(struct setup *s)
{
	struct bed *b;

	s->core.copy_ops = &ops;
	b = bed_open(s);
	cr_assert_eq(karst_mr_reg(b->mem, b->pd, (void *)((uintptr_t)b->buf | KARST_MEM_UNMAPPED),
			     FAR, BUF_BYTES, ALL_MASK, &far_key),
		0);
	return b;
}

struct bed *
open_far(enum karst_qp_type type)
{
	struct setup s = setup_of(type);

	return open_far_with(&s);
}

void
close_far(struct bed *b)
{
	struct room *room;
	uint32_t i;

	bed_dereg(b, far_key);
	bed_close(b);
	while ((room = driver.rooms) != NULL) {
		driver.rooms = room->next;
		free(room);
	}
	cr_assert_eq(driver.kept, 0, "packets");
	cr_assert_eq(driver.ntodo, 0, "copies to do");
	for (i = 0; i < COPIES; i++)
		cr_assert_not(driver.used[i], "copies");
}
