/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include <rte_cycles.h>
#include <rte_launch.h>
#include <rte_lcore.h>

#include "check.h"
#include "fwd.h"
#include "gen.h"

/* With idle = sleep, an lcore sleeps for SLEEP_NS after SLEEP_BEHIND empty turns. */
#define SLEEP_NS     50000
#define SLEEP_BEHIND 64u

/* @return the port that sends what port number @i receives. */
static struct fwd_port *
peer_of(struct fwd *f, uint32_t i)
{
	if (f->mode->loops || f->nports == 1)
		return &f->ports[i];
	switch (f->opts.topology) {
	case FWD_LOOP:
		return &f->ports[i];
	case FWD_CHAINED:
		return &f->ports[(i + 1) % f->nports];
	default:
		/* with an odd number of ports, the last one has no partner */
		return &f->ports[(i ^ 1) < f->nports ? i ^ 1 : i];
	}
}

static int
out_of_memory(void)
{
	fprintf(stderr, "karst-fwd: no memory\n");
	return -1;
}

static int
make_streams(struct fwd *f)
{
	uint32_t i, q, n = 0;

	f->nstreams = f->nports * f->opts.rxq;
	f->streams = aligned_alloc(KARST_CACHE_LINE, f->nstreams * sizeof(*f->streams));
	if (f->streams == NULL)
		return out_of_memory();
	memset(f->streams, 0, f->nstreams * sizeof(*f->streams));
	/* in the order of queues, so that each port's queues are distributed over the lcores */
	for (q = 0; q < f->opts.rxq; q++)
		for (i = 0; i < f->nports; i++, n++)
			f->streams[n] = (struct fwd_stream){
				.rx = &f->ports[i],
				.tx = peer_of(f, i),
				.rx_queue = (uint16_t)q,
				.tx_queue = (uint16_t)q,
				.number = n,
			};
	return 0;
}

/* @return the number of lcores to use for the streams. */
static uint32_t
lcores_to_use(const struct fwd *f)
{
	uint32_t n = rte_lcore_count() - 1;

	if (f->opts.nb_cores != 0)
		n = karst_min_u32(n, f->opts.nb_cores);
	return karst_min_u32(n, f->nstreams);
}

static int
make_lcores(struct fwd *f)
{
	unsigned int id;
	uint32_t i, n = 0;

	f->nlcores = lcores_to_use(f);
	f->lcores = aligned_alloc(KARST_CACHE_LINE, f->nlcores * sizeof(*f->lcores));
	if (f->lcores == NULL)
		return out_of_memory();
	memset(f->lcores, 0, f->nlcores * sizeof(*f->lcores));
	RTE_LCORE_FOREACH_WORKER(id)
	{
		if (n == f->nlcores)
			break;
		f->lcores[n++] = (struct fwd_lcore){.fwd = f,
			.id = id,
			.streams = calloc(f->nstreams, sizeof(struct fwd_stream *))};
	}
	for (i = 0; i < f->nlcores; i++) {
		if (f->lcores[i].streams == NULL)
			return out_of_memory();
		if (!f->mode->checks)
			continue;
		f->lcores[i].check = fwd_check_new(f->opts.flows);
		if (f->lcores[i].check == NULL)
			return out_of_memory();
	}
	for (i = 0; i < f->nstreams; i++) {
		struct fwd_lcore *lc = &f->lcores[i % f->nlcores];

		lc->streams[lc->nstreams++] = &f->streams[i];
	}
	return 0;
}

static int
make_generators(struct fwd *f, bool tx_first)
{
	uint32_t i;

	if (!f->mode->generates && !tx_first)
		return 0;
	for (i = 0; i < f->nstreams; i++) {
		f->streams[i].gen = fwd_gen_new(f, &f->streams[i], !f->mode->generates);
		if (f->streams[i].gen == NULL)
			return -1; /* fwd_gen_new() has printed the reason */
	}
	return 0;
}

void
fwd_streams_free(struct fwd *f)
{
	uint32_t i;

	for (i = 0; i < f->nlcores && f->lcores != NULL; i++) {
		free(f->lcores[i].streams);
		fwd_check_free(f->lcores[i].check);
	}
	for (i = 0; i < f->nstreams && f->streams != NULL; i++)
		fwd_gen_free(f->streams[i].gen);
	free(f->lcores);
	free(f->streams);
	f->lcores = NULL;
	f->streams = NULL;
	f->nlcores = f->nstreams = 0;
}

static inline void
rest(enum fwd_idle idle, uint32_t *empty)
{
	static const struct timespec pause = {.tv_nsec = SLEEP_NS};

	if (idle == FWD_YIELD)
		sched_yield();
	else if (idle == FWD_SLEEP && ++*empty > SLEEP_BEHIND)
		nanosleep(&pause, NULL);
}

static int
streams_run(void *arg)
{
	struct fwd_lcore *lc = arg;
	struct fwd *f = lc->fwd;
	uint32_t (*turn)(struct fwd_lcore *, struct fwd_stream *) = f->mode->turn;
	enum fwd_idle idle = f->opts.idle;
	uint32_t i, empty = 0;

	while (!atomic_load_explicit(&f->stop, memory_order_relaxed)) {
		uint32_t moved = 0;

		for (i = 0; i < lc->nstreams; i++)
			if (karst_likely(!fwd_port_is_gone(lc->streams[i]->rx)))
				moved += turn(lc, lc->streams[i]);
		if (karst_likely(moved != 0))
			empty = 0;
		else
			rest(idle, &empty);
	}
	if (lc->check != NULL)
		fwd_check_idle(lc->check); /* from now on the counters are complete */
	return 0;
}

int
fwd_start(struct fwd *f, uint32_t tx_first)
{
	uint32_t i;
	int rc;

	fwd_streams_free(f);
	f->mode = fwd_mode_of(f->opts.mode);
	rc = make_streams(f);
	if (rc == 0)
		rc = make_lcores(f);
	if (rc == 0)
		rc = make_generators(f, tx_first != 0);
	if (rc != 0) {
		fwd_streams_free(f);
		f->mode = NULL; /* nothing was forwarded in it */
		return rc;
	}
	for (i = 0; i < f->nstreams; i++)
		if (tx_first != 0 && !f->mode->generates)
			fwd_gen_first(f, &f->streams[i], tx_first);
	f->start_tsc = rte_rdtsc();
	f->stop_tsc = 0;
	atomic_store(&f->stop, false);
	for (i = 0; i < f->nlcores; i++)
		rte_eal_remote_launch(streams_run, &f->lcores[i], f->lcores[i].id);
	f->running = true;
	return 0;
}

void
fwd_stop(struct fwd *f)
{
	uint32_t i;

	if (!f->running)
		return;
	atomic_store(&f->stop, true);
	for (i = 0; i < f->nlcores; i++)
		rte_eal_wait_lcore(f->lcores[i].id);
	f->stop_tsc = rte_rdtsc();
	f->running = false;
}

bool
fwd_generated(const struct fwd *f)
{
	uint32_t i;

	for (i = 0; i < f->nstreams; i++)
		if (f->streams[i].gen != NULL && !fwd_gen_done(f->streams[i].gen) &&
			!fwd_port_is_gone(f->streams[i].tx))
			return false;
	return true;
}

const struct fwd_port *
fwd_cut_generator(const struct fwd *f)
{
	uint32_t i;

	/* those of --tx-first have no end */
	for (i = 0; f->mode != NULL && f->mode->generates && i < f->nstreams; i++)
		if (f->streams[i].gen != NULL && !fwd_gen_done(f->streams[i].gen) &&
			fwd_port_is_gone(f->streams[i].tx))
			return f->streams[i].tx;
	return NULL;
}

bool
fwd_can_receive(const struct fwd *f)
{
	uint32_t i;

	for (i = 0; i < f->nstreams; i++)
		if (!fwd_port_is_gone(f->streams[i].rx))
			return true;
	return false;
}

uint64_t
fwd_received(const struct fwd *f)
{
	uint64_t n = 0;
	uint32_t i;

	for (i = 0; i < f->nstreams; i++)
		n += fwd_read(&f->streams[i].rx_packets);
	return n;
}
