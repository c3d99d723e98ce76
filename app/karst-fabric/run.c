/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* One run: builds the network, loops over its events, and ends. */
#include <errno.h>
#include <stdlib.h>

#include "karst_prf.h"
#include "sim.h"

/* Events between two progress callbacks. */
#define PROGRESS_EVERY (1u << 20)

static void
make_memory(struct fab_sim *s)
{
	const struct karst_mem_config mc = {.max_keys = 16, .max_pds = 2, .seed = {1, s->c->seed}};
	int rc;

	rc = karst_mem_init(fab_alloc(s, karst_mem_size(&mc)), &mc, &s->mem);
	if (rc == 0)
		rc = karst_pd_alloc(s->mem, &s->pd);
	s->region = fab_alloc(s, s->c->message);
	if (rc == 0)
		rc = karst_mr_reg(s->mem, s->pd, s->region, (uintptr_t)s->region, s->c->message,
			KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE |
				KARST_ACCESS_REMOTE_READ,
			&s->key);
	if (rc != 0)
		fab_bail(s, rc, "memory of %u bytes: %s", s->c->message, strerror(-rc));
	s->scratch = fab_alloc(s, KARST_FRAME_MAX);
}

/* Begins the measured time. */
static void
warm(struct fab_sim *s, void *arg)
{
	uint64_t i;
	uint32_t j;

	(void)arg;
	for (i = 0; i < s->nflows; i++)
		fab_flow_at(s, i)->warm = fab_flow_at(s, i)->r.bytes;
	fab_gauge_restart(&s->message, s->now_ps);
	for (i = 0; i < s->nswitches; i++)
		for (j = 0; j < s->sw[i].nports; j++)
			fab_gauge_restart(&s->sw[i].port[j].queue, s->now_ps);
}

/* Ends the measured time: no more flows begin, and data in flight does not count as goodput. */
static void
cool(struct fab_sim *s, void *arg)
{
	(void)arg;
	fab_result_count(s);
}

static void
stop(struct fab_sim *s, void *arg)
{
	(void)arg;
	s->ended = true;
}

bool
fab_step(struct fab_sim *s)
{
	struct fab_event e;

	if (!fab_event_next(&s->events, &e))
		return false;
	s->now_ps = e.at_ps;
	e.fn(s, e.arg);
	if (++s->r->events % PROGRESS_EVERY == 0 && s->c->progress != NULL)
		s->c->progress(s->now_ps / PS_PER_NS, s->r->events, s->c->progress_arg);
	return true;
}

static void
loop(struct fab_sim *s)
{
	while (!s->ended && (s->running != 0 || s->waiting != 0) && fab_step(s))
		;
	s->r->end_ps = s->now_ps;
}

static void
simulate(struct fab_sim *s)
{
	const struct fab_config *c = s->c;

	karst_prf_derive((uint64_t[2]){c->seed, 0}, 0, 0, s->secret);
	make_memory(s);
	fab_gauge_init(s, &s->message, FAB_GAUGE_PS);
	fab_gauge_init(s, &s->connects, FAB_GAUGE_PS);
	s->handed_tail = &s->handed;
	s->at_once = fab_workload_is_random(c->workload) && !c->timed;
	fab_topology_build(s);
	fab_workload_prepare(s);
	if (!c->timed)
		fab_connect_all(s);
	if (c->duration_ns != 0)
		fab_event_add(s, c->duration_ns * PS_PER_NS, cool, NULL);
	if (c->limit_ns != 0)
		fab_event_add(s, c->limit_ns * PS_PER_NS, stop, NULL);
	if (c->warmup_ns != 0)
		fab_event_add(s, c->warmup_ns * PS_PER_NS, warm, NULL);
	fab_workload_begin(s);
	loop(s);
	fab_result_make(s);
	fab_disconnect_all(s);
	fab_connect_result(s);
}

int
fab_run(const struct fab_config *c, struct fab_result *r)
{
	struct fab_sim *s;
	int rc;

	memset(r, 0, sizeof(*r));
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return -ENOMEM;
	s->c = c;
	s->r = r;
	if (setjmp(s->bail) == 0)
		simulate(s);
	rc = s->rc;
	fab_free_all(s);
	free(s);
	if (rc != 0)
		fab_result_free(r);
	return rc;
}
