/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Allreduce by two binary trees, each of which reduces one half of the bytes.
 *
 * A half is cut into chunks of one WRITE each.  A node sends a chunk to its parent when the chunk
 * has arrived from both children, and the root sends it down again to all nodes.  Chunks follow one
 * another, so all levels work at the same time.  The children of node i are 2 i + 1 and 2 i + 2.
 * Host i is node i of the first tree and node N - 1 - i of the second one, so that an inner node of
 * one tree is a leaf of the other.
 *
 * Each WRITE has immediate data, which notifies the receiver.  Each edge has a connection up and
 * one down; chunks arrive in order on each connection, so a count identifies them.
 */
#include "sim.h"

#define TREES 2u
/* Receives of a connection: one is posted again for each that was consumed. */
#define RECVS 2u

/* The edge between a node (place) and its parent. */
struct edge {
	struct fab_conn *up;
	struct fab_conn *down;
	uint32_t sent;     /* chunks, to the parent */
	uint32_t reduced;  /* chunks that have arrived at the parent */
	uint32_t returned; /* chunks that have arrived from the parent */
};

struct fab_tree {
	uint64_t bytes;
	uint32_t chunks;
	uint32_t sent; /* by the root, to its children */
	struct edge *edge;
};

static uint32_t
host_at(const struct fab_sim *s, uint32_t t, uint32_t place)
{
	return t == 0 ? place : s->c->hosts - 1 - place;
}

static void
send_chunk(struct fab_sim *s, struct fab_tree *tree, struct fab_conn *c, uint32_t chunk)
{
	uint64_t off = (uint64_t)chunk * s->c->message;
	struct fab_flow *f;

	if (!c->live)
		return;
	f = fab_flow_new(s, c->end[FAB_SENDER].host->id, c->end[FAB_RECEIVER].host->id,
		karst_min_u64(s->c->message, tree->bytes - off));
	f->tell = true;
	f->imm = chunk;
	fab_flow_begin(s, f, c);
}

/* Sends a chunk to the children of @place, which may be fewer than two. */
static void
send_down(struct fab_sim *s, struct fab_tree *tree, uint32_t place, uint32_t chunk)
{
	uint32_t i;

	for (i = 2 * place + 1; i <= 2 * place + 2 && i < s->c->hosts; i++)
		send_chunk(s, tree, tree->edge[i].down, chunk);
}

/* Sends the chunks that have arrived from all children to the parent. */
static void
send_up(struct fab_sim *s, struct fab_tree *tree, uint32_t place)
{
	struct edge *e = &tree->edge[place];
	uint32_t ready = tree->chunks, i;

	for (i = 2 * place + 1; i <= 2 * place + 2 && i < s->c->hosts; i++)
		ready = karst_min_u32(ready, tree->edge[i].reduced);
	while (place != 0 && e->sent < ready)
		send_chunk(s, tree, e->up, e->sent++);
	while (place == 0 && tree->sent < ready)
		send_down(s, tree, 0, tree->sent++);
}

void
fab_tree_received(struct fab_sim *s, struct fab_conn *c)
{
	struct fab_tree *tree = &s->tree[c->tag & 1];
	uint32_t place = c->tag >> 1;
	struct edge *e = &tree->edge[place];

	if (c == e->up) {
		e->reduced++;
		send_up(s, tree, (place - 1) / 2);
	} else {
		send_down(s, tree, place, e->returned++);
	}
}

static struct fab_conn *
open_edge(struct fab_sim *s, uint32_t t, uint32_t place, uint32_t from, uint32_t to)
{
	struct fab_conn *c = fab_conn_open(s, host_at(s, t, from), host_at(s, t, to));
	uint32_t i;

	c->tag = place << 1 | t;
	for (i = 0; i < RECVS; i++)
		fab_conn_post_recv(s, c);
	fab_connect(s, c);
	return c;
}

static void
make_tree(struct fab_sim *s, uint32_t t)
{
	struct fab_tree *tree = &s->tree[t];
	uint32_t i;

	tree->bytes = (s->c->size + (t == 0)) / 2;
	tree->chunks = (uint32_t)((tree->bytes + s->c->message - 1) / s->c->message);
	tree->edge = fab_alloc(s, s->c->hosts * sizeof(*tree->edge));
	for (i = 1; i < s->c->hosts; i++) {
		tree->edge[i].up = open_edge(s, t, i, i, (i - 1) / 2);
		tree->edge[i].down = open_edge(s, t, i, (i - 1) / 2, i);
	}
}

void
fab_tree_prepare(struct fab_sim *s)
{
	uint32_t t;

	s->tree = fab_alloc(s, TREES * sizeof(*s->tree));
	for (t = 0; t < TREES; t++)
		make_tree(s, t);
}

void
fab_tree_begin(struct fab_sim *s)
{
	uint32_t t, i;

	for (t = 0; t < TREES; t++)
		for (i = 1; i < s->c->hosts; i++)
			send_up(s, &s->tree[t], i);
}
