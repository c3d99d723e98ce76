/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A switch.  A frame that has arrived is put into the queue of its output port without delay; it
 * leaves the queue and the buffer when its first bit is sent.
 *
 * Buffer: all ports share it.  Without PFC a queue may hold alpha times the free bytes (dynamic
 * threshold); frames beyond that are dropped.
 *
 * PFC: the switch counts for each port the bytes that arrived there and are still in the switch.
 * When these are more than alpha times the free bytes, the sender at that port is paused, and it
 * resumes when there are two frames less.  A separate part of the buffer, the headroom, is for
 * frames in flight; it does not count as free.  So no frame is dropped.
 *
 * Marking is RED by the current length of the queue, not by an average, as DCQCN requires.
 */
#include <errno.h>
#include <stdio.h>

#include "karst_prf.h"
#include "sim.h"

#define PAUSE_WIRE (FAB_ETH_MIN + FAB_AROUND)

/* Bytes of the buffer that a frame takes. */
static uint32_t
stored(const struct fab_frame *f)
{
	return f->len + FAB_FCS;
}

void
fab_switch_init(struct fab_sim *s, struct fab_switch *w, uint32_t nports)
{
	w->id = (uint32_t)(w - s->sw);
	w->nports = nports;
	w->port = fab_alloc(s, nports * sizeof(*w->port));
	w->route = fab_alloc(s, s->c->hosts * sizeof(*w->route));
	karst_prf_derive(s->secret, 1, w->id, w->key);
}

/* Bytes that may still arrive at @p after the decision to pause: those that are sent until the
 * pause frame, which waits for a frame in the other direction, has arrived, and until the frame
 * that is being sent then has ended. */
static uint64_t
headroom_of(const struct fab_sim *s, const struct fab_port *p)
{
	uint64_t frame = fab_wire_bytes(s->c->mtu + FAB_HEAD);
	uint64_t way = 2 * p->prop_ps / 1000 * p->mbps / 8000;

	return way + 4 * frame + PAUSE_WIRE;
}

void
fab_switch_ready(struct fab_sim *s, struct fab_switch *w)
{
	uint64_t headroom = 0, frame = s->c->mtu + FAB_HEAD;
	uint32_t i;

	for (i = 0; i < w->nports; i++) {
		w->port[i].sw = w;
		fab_gauge_init(s, &w->port[i].queue, FAB_GAUGE_BYTES);
		headroom += headroom_of(s, &w->port[i]);
	}
	w->shared = s->c->buffer;
	if (!s->c->pfc)
		return;
	if (headroom + w->nports * frame > s->c->buffer)
		fab_bail(s, -EINVAL,
			"buffer of %llu bytes: with PFC %s needs at least %llu, for what is under way to "
			"its %u ports",
			(unsigned long long)s->c->buffer, w->name,
			(unsigned long long)(headroom + w->nports * frame), w->nports);
	w->shared -= headroom;
}

/* --- ECMP --- */

struct fab_port *
fab_switch_out(struct fab_switch *w, uint32_t dst, const uint64_t tuple[2])
{
	const struct fab_route *r = &w->route[dst];
	uint64_t hash;

	if (r->n == 1)
		return &w->port[r->first];
	hash = karst_prf(w->key, tuple[0], tuple[1]);
	return &w->port[r->first + ((hash >> 32) * r->n >> 32)];
}

/* --- marking --- */

bool
fab_red(uint64_t queue, uint64_t kmin, uint64_t kmax, double pmax, double u)
{
	if (queue <= kmin)
		return false;
	if (queue > kmax)
		return true;
	return u < pmax * (double)(queue - kmin) / (double)(kmax - kmin);
}

static void
mark(struct fab_sim *s, const struct fab_port *out, struct fab_frame *f)
{
	uint64_t q = out->queue.now;

	if (!s->c->marking || !f->ect || f->ce || q <= out->kmin)
		return;
	if (!fab_red(q, out->kmin, out->kmax, s->c->pmax, fab_uniform(s, FAB_MARKS)))
		return;
	f->ce = true;
	s->r->marks++;
}

/* --- PFC --- */

/* Limit of the bytes that arrived at a port; beyond it the sender is paused. */
static uint64_t
threshold(const struct fab_sim *s, const struct fab_switch *w)
{
	uint64_t unused = w->shared > w->used ? w->shared - w->used : 0;

	return (uint64_t)(s->c->alpha * (double)unused);
}

static void
pause_comes(struct fab_sim *s, void *arg)
{
	fab_port_pause(s, arg, true);
}

static void
resume_comes(struct fab_sim *s, void *arg)
{
	fab_port_pause(s, arg, false);
}

/* A pause frame is sent before all others, but after the end of the frame that is being sent. */
static void
send_pause(struct fab_sim *s, struct fab_port *in, bool pause)
{
	uint64_t at =
		karst_max_u64(s->now_ps, in->busy_ps) + fab_serial_ps(in, PAUSE_WIRE) + in->prop_ps;

	in->pausing = pause;
	if (pause)
		s->r->pauses++;
	fab_event_add(s, at, pause ? pause_comes : resume_comes, in->peer);
}

static void
came_in(struct fab_sim *s, struct fab_switch *w, struct fab_port *in, uint32_t bytes)
{
	in->in_bytes += bytes;
	if (s->c->pfc && !in->pausing && in->in_bytes > threshold(s, w))
		send_pause(s, in, true);
}

static void
went_out(struct fab_sim *s, struct fab_switch *w, struct fab_port *in, uint32_t bytes)
{
	uint64_t slack = 2ull * (s->c->mtu + FAB_HEAD);

	in->in_bytes -= bytes;
	if (in->pausing && (in->in_bytes == 0 || in->in_bytes + slack <= threshold(s, w)))
		send_pause(s, in, false);
}

/* --- in and out --- */

static bool
has_room(const struct fab_sim *s, const struct fab_switch *w, const struct fab_port *out,
	uint32_t bytes)
{
	uint64_t unused = s->c->buffer - w->used;

	if (bytes > unused)
		return false;
	return s->c->pfc || (double)(out->queue.now + bytes) <= s->c->alpha * (double)unused;
}

void
fab_switch_rx(struct fab_sim *s, struct fab_frame *f)
{
	struct fab_port *in = f->at, *out;
	struct fab_switch *w = in->sw;
	uint32_t bytes = stored(f);

	out = fab_switch_out(w, f->dst, f->tuple);
	if (!has_room(s, w, out, bytes)) {
		if (f->mad != NULL)
			s->r->connections.mads_lost++;
		else
			s->r->drops++;
		fab_frame_put(s, f);
		return;
	}
	mark(s, out, f);
	w->used += bytes;
	*out->tail = f;
	out->tail = &f->next;
	fab_gauge_add(&out->queue, s->now_ps, bytes);
	came_in(s, w, in, bytes);
	fab_port_kick(s, out);
}

struct fab_frame *
fab_switch_dequeue(struct fab_sim *s, struct fab_port *p)
{
	struct fab_frame *f = p->head;
	struct fab_switch *w = p->sw;

	if (f == NULL)
		return NULL;
	p->head = f->next;
	if (p->head == NULL)
		p->tail = &p->head;
	f->next = NULL;
	w->used -= stored(f);
	fab_gauge_add(&p->queue, s->now_ps, -(int64_t)stored(f));
	went_out(s, w, f->at, stored(f));
	return f;
}
