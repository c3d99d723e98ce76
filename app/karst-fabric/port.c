/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * One end of a link, which sends one frame after the other: frames that its switch has queued, or
 * frames that its host builds at that time.  A frame has arrived when its last bit has arrived.
 *
 * There is an event for the end of a frame only if another frame waits for it.
 */
#include "sim.h"

#define PS_BITS 8000000ull /* of a byte, at 1 Mb/s */

void
fab_port_init(struct fab_sim *s, struct fab_port *p, uint64_t mbps, uint64_t delay_ns)
{
	p->mbps = mbps;
	p->prop_ps = delay_ns * PS_PER_NS;
	p->tail = &p->head;
	p->kmin = (uint64_t)((double)s->c->kmin * (double)mbps / (double)s->c->speed);
	p->kmax = (uint64_t)((double)s->c->kmax * (double)mbps / (double)s->c->speed);
}

void
fab_link(struct fab_port *a, struct fab_port *b)
{
	a->peer = b;
	b->peer = a;
}

uint64_t
fab_serial_ps(const struct fab_port *p, uint32_t wire)
{
	return (wire * PS_BITS + p->mbps - 1) / p->mbps;
}

static void
arrive(struct fab_sim *s, void *arg)
{
	struct fab_frame *f = arg;

	if (f->at->sw != NULL)
		fab_switch_rx(s, f);
	else
		fab_host_rx(s, f);
}

static void
is_free(struct fab_sim *s, void *arg)
{
	struct fab_port *p = arg;

	p->waits = false;
	if (p->host != NULL)
		fab_host_run(s, p->host);
	else
		fab_port_kick(s, p);
}

static void
wait_until_free(struct fab_sim *s, struct fab_port *p)
{
	if (p->waits)
		return;
	p->waits = true;
	fab_event_add(s, p->busy_ps, is_free, p);
}

static bool
has_more(const struct fab_port *p)
{
	if (p->host == NULL)
		return p->head != NULL;
	return p->host->mads != NULL || karst_core_has_active(p->host->core);
}

void
fab_port_kick(struct fab_sim *s, struct fab_port *p)
{
	struct fab_frame *f;

	if (p->paused || !has_more(p))
		return;
	if (s->now_ps < p->busy_ps) {
		wait_until_free(s, p);
		return;
	}
	f = p->host != NULL ? fab_host_build(s, p->host) : fab_switch_dequeue(s, p);
	if (f == NULL)
		return;
	p->busy_ps = s->now_ps + fab_serial_ps(p, fab_wire_bytes(f->len));
	f->at = p->peer;
	fab_event_add(s, p->busy_ps + p->prop_ps, arrive, f);
	if (has_more(p))
		wait_until_free(s, p);
}

void
fab_port_pause(struct fab_sim *s, struct fab_port *p, bool pause)
{
	if (pause == p->paused)
		return;
	p->paused = pause;
	if (pause) {
		p->paused_since_ps = s->now_ps;
		return;
	}
	s->r->paused_ps += s->now_ps - p->paused_since_ps;
	if (p->host != NULL)
		fab_host_run(s, p->host);
	else
		fab_port_kick(s, p);
}
