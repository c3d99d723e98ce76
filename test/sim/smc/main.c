/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "sim_smc.h"

#include <getopt.h>

void
violated(struct world *w, const char *fmt, ...)
{
	va_list ap;

	if (w->failed)
		return;
	w->failed = true;
	va_start(ap, fmt);
	vsnprintf(w->why, sizeof(w->why), fmt, ap);
	va_end(ap);
}

void
note(struct world *w, const char *fmt, ...)
{
	va_list ap;

	if (!w->verbose)
		return;
	printf("%14.6f ms  ", (double)w->now_ns / 1e6);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
}

/* --- a schedule --- */

/* Versions, releases and EIDs of the two systems may or may not match (S6). */
static void
open_system(struct world *w, unsigned int i, uint8_t release, bool v1)
{
	struct sys *s = &w->sys[i];
	struct karst_smc_config cfg = {.max_conns = PAIRS,
		.max_groups = 64,
		.max_rmbs = RMBS,
		.release = release,
		.v1 = v1,
		.neids = 1,
		.group_links = w->second_port ? 2 : 1,
		.group_conns = (uint8_t)(rng_one_in(&w->rng, 3) ? 16 : 255),
		.send_slots = (uint8_t)rng_range(&w->rng, 8, 24),
		.cork_bytes = rng_one_in(&w->rng, 2) ? rng_log(&w->rng, 1, 65536) : 0,
		.ops = &wire_ops,
		.user = s};

	memset(cfg.eids[0], ' ', sizeof(cfg.eids[0]));
	cfg.eids[0][0] = w->no_common_eid ? (uint8_t)('A' + i) : 'K';
	cfg.system_id[7] = (uint8_t)(i + 1);
	if (v1 && rng_one_in(&w->rng, 2))
		cfg.neids = 0;
	s->w = w;
	s->mem = aligned_alloc(64, karst_smc_bytes(&cfg));
	if (karst_smc_init(s->mem, &cfg, w->now_ns, &s->smc) != 0)
		abort();
}

static void
draw(struct world *w)
{
	struct sim_rng *r = &w->rng;
	bool v1 = rng_one_in(r, 8);

	w->now_ns = rng_u64(r) >> 20;
	w->rdma_max_ns = rng_range(r, 1000, rng_one_in(r, 2) ? 10000 : 300000);
	w->tcp_max_ns = rng_log(r, 10000, 5000000);
	w->stall_ppm = rng_one_in(r, 2) ? rng_below(r, 20000) : 0;
	w->second_port = rng_below(r, 3) != 0;
	w->one_kill = w->second_port && rng_below(r, 4) != 0;
	w->kills = w->one_kill || rng_one_in(r, 5);
	w->deaths = w->kills && !w->one_kill;
	w->no_common_eid = rng_one_in(r, 50);
	w->keeps = rng_below(r, 4) != 0;
	w->kill_ns =
		w->kills ? w->now_ns + rng_range(r, 1, rng_one_in(r, 2) ? 30 : 300) * MSEC : NEVER;
	open_system(w, 0, (uint8_t)(rng_one_in(r, 8) ? 0 : 1), v1);
	open_system(w, 1, (uint8_t)(rng_one_in(r, 8) ? 0 : 1), v1);
	w->npairs = rng_one_in(r, 20) ? rng_range(r, 1, 60) : rng_log(r, 1, 20);
	for (unsigned int i = 0; i < w->npairs; i++)
		w->pairs[i] = pair_new(w, i);
}

/* Lets a link fail: with @deaths any link, otherwise one of a group that has two at both ends. */
static void
kill_something(struct world *w)
{
	unsigned int i, n = 0, pick = rng_below(&w->rng, w->nqps);
	struct karst_smc_group_info info;

	w->kill_ns = NEVER;
	if (w->nqps == 0)
		return;
	if (w->deaths) {
		wire_kill(w, &w->qps[pick]);
		if (rng_one_in(&w->rng, 2))
			w->kill_ns = w->now_ns + rng_range(&w->rng, 1, 200) * MSEC;
		return;
	}
	for (i = 0; i < 64 && !w->kill_done; i++) {
		bool both = karst_smc_group_info(w->sys[0].smc, i, &info) == 0 && info.nlinks == 2;
		unsigned int which = rng_below(&w->rng, 2);

		for (n = 0; both && n < w->nqps; n++) {
			struct karst_smc_group_info peer;
			unsigned int k, ready = 0;

			if (!w->qps[n].open || w->qps[n].sys != 0 ||
				w->qps[n].link != info.links[which])
				continue;
			for (k = 0; k < 64; k++)
				ready |= karst_smc_group_info(w->sys[1].smc, k, &peer) == 0 &&
					peer.nlinks == 2 &&
					(peer.local[0].qpn == w->qps[n].remote_qpn ||
						peer.local[1].qpn == w->qps[n].remote_qpn);
			if (!ready)
				continue;
			w->kill_done = true;
			/*
			 * Connections that are being made may fall back; established ones continue.
			 */
			for (k = 0; k < w->npairs; k++) {
				if (!w->pairs[k]->e[0].connected || !w->pairs[k]->e[1].connected)
					w->pairs[k]->decline = true;
			}
			wire_kill(w, &w->qps[n]);
			return;
		}
	}
}

static uint64_t
smc_next(const struct world *w)
{
	return karst_min_u64(karst_smc_next_ns(w->sys[0].smc), karst_smc_next_ns(w->sys[1].smc));
}

/* Lets the first of the next actions happen. */
static bool
turn(struct world *w)
{
	uint64_t wire = wire_next(w), smc = smc_next(w), pair = NEVER, at;
	unsigned int i;

	for (i = 0; i < w->npairs; i++)
		pair = karst_min_u64(pair, pair_next(w->pairs[i]));
	at = karst_min_u64(karst_min_u64(wire, smc), karst_min_u64(pair, w->kill_ns));
	if (at == NEVER)
		return false;
	if (at > w->now_ns)
		w->now_ns = at;
	if (at == w->kill_ns) {
		kill_something(w);
	} else if (at == wire) {
		wire_turn(w);
	} else if (at == pair) {
		for (i = 0; i < w->npairs; i++) {
			if (pair_next(w->pairs[i]) <= w->now_ns)
				pair_turn(w, w->pairs[i]);
		}
	} else {
		for (i = 0; i < 2; i++) {
			w->sys[i].smc->now_ns = w->now_ns;
			karst_smc_expire(w->sys[i].smc, rng_range(&w->rng, 1, 3));
			pair_events(w, i);
		}
	}
	return true;
}

/* Checks that idle groups have ended on both sides, and that nothing is left (S5, S18). */
static void
judge(struct world *w)
{
	static const enum karst_smc_counter never[] = {KARST_SMC_CTR_CLC_BAD, KARST_SMC_CTR_LLC_BAD,
		KARST_SMC_CTR_LLC_NO_SLOT, KARST_SMC_CTR_CDC_BAD, KARST_SMC_CTR_CDC_OLD};
	unsigned int i, k;

	for (i = 0; i < 2 && !w->failed; i++) {
		const struct karst_smc *smc = w->sys[i].smc;

		REQUIRE(w, smc->nconns == 0, "system %u: %u connections are left", i, smc->nconns);
		REQUIRE(w, smc->ngroups == 0, "system %u: %u groups are left", i, smc->ngroups);
		for (k = 0; k < KARST_DIM(never) && !w->kills; k++)
			REQUIRE(w, smc->counters[never[k]] == 0, "system %u: %s: %lu", i,
				karst_smc_counter_name(never[k]),
				(unsigned long)smc->counters[never[k]]);
		REQUIRE(w, smc->counters[KARST_SMC_CTR_CDC_BAD] == 0,
			"system %u: impossible cursors", i);
		REQUIRE(w, w->kills || smc->counters[KARST_SMC_CTR_CURSOR_BACK] == 0,
			"S13: system %u: cursors went backwards", i);
		REQUIRE(w,
			!w->one_kill || w->deaths ||
				/* an end that aborts sends no validation */
				(w->sys[i].validations <= smc->counters[KARST_SMC_CTR_FAILOVER] &&
					w->sys[i].validations +
							smc->counters[KARST_SMC_CTR_ABORTED] >=
						smc->counters[KARST_SMC_CTR_FAILOVER]),
			"S17: system %u: %lu connections went to another link, %lu validations", i,
			(unsigned long)smc->counters[KARST_SMC_CTR_FAILOVER],
			(unsigned long)w->sys[i].validations);
	}
	wire_judge(w, false);
	for (i = 0; i < 2; i++)
		karst_smc_fini(w->sys[i].smc);
	wire_judge(w, true);
}

static bool
all_done(const struct world *w)
{
	for (unsigned int i = 0; i < w->npairs; i++) {
		if (!w->pairs[i]->done)
			return false;
	}
	return true;
}

/* @return true if no rule was violated. */
static bool
run(uint64_t seed, bool verbose, uint64_t *connected)
{
	struct world *w = calloc(1, sizeof(*w));
	uint64_t turns = 0;
	bool good;
	unsigned int i;

	w->seed = seed;
	w->verbose = verbose;
	w->rng.state = sim_mix(seed);
	draw(w);
	while (!w->failed && turn(w)) {
		if (++turns > 600000) {
			violated(w, "it does not end");
			break;
		}
	}
	if (!w->failed && !all_done(w)) {
		for (i = 0; i < w->npairs && w->pairs[i]->done; i++)
			;
		violated(w, "stuck: pair %u: client %u/%u/%u/%u/%u, server %u/%u/%u/%u/%u", i,
			w->pairs[i]->e[0].connected, w->pairs[i]->e[0].fallback,
			w->pairs[i]->e[0].failed, w->pairs[i]->e[0].closed,
			w->pairs[i]->e[0].released, w->pairs[i]->e[1].connected,
			w->pairs[i]->e[1].fallback, w->pairs[i]->e[1].failed,
			w->pairs[i]->e[1].closed, w->pairs[i]->e[1].released);
	}
	if (!w->failed)
		judge(w);
	good = !w->failed;
	if (!good)
		printf("seed %lu: %s\nAgain: --seed %lu -v\n", (unsigned long)seed, w->why,
			(unsigned long)seed);
	connected[0] += w->sys[0].smc->counters[KARST_SMC_CTR_CONNECTED];
	connected[1] += w->sys[0].smc->counters[KARST_SMC_CTR_FAILOVER];
	connected[2] += w->sys[0].smc->counters[KARST_SMC_CTR_BLOCKED];
	connected[3] += w->sys[0].smc->counters[KARST_SMC_CTR_RMB_REUSED];
	connected[4] += w->echoed;
	wire_free(w);
	for (i = 0; i < w->npairs; i++)
		pair_free(w->pairs[i]);
	free(w->sys[0].mem);
	free(w->sys[1].mem);
	free(w);
	return good;
}

static int
usage(FILE *f, int status)
{
	fputs("usage: karst-sim-smc [--seeds A..B | --seed N] [--expect-failure] [-v]\n", f);
	return status;
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {{"seeds", required_argument, NULL, 's'},
		{"seed", required_argument, NULL, '1'}, {"expect-failure", no_argument, NULL, 'x'},
		{"verbose", no_argument, NULL, 'v'}, {"help", no_argument, NULL, 'h'}, {0}};
	unsigned long from = 1, to = 1000;
	uint64_t figures[5] = {0};
	bool expect = false, verbose = false;
	int o;

	while ((o = getopt_long(argc, argv, "v", options, NULL)) != -1) {
		if (o == 's' && sscanf(optarg, "%lu..%lu", &from, &to) == 2 && from <= to)
			continue;
		if (o == '1' && sscanf(optarg, "%lu", &from) == 1)
			to = from;
		else if (o == 'x')
			expect = true;
		else if (o == 'v')
			verbose = true;
		else
			return o == 'h' ? usage(stdout, 0) : usage(stderr, 2);
	}
	for (unsigned long seed = from; seed <= to; seed++) {
		if (!run(seed, verbose, figures))
			return expect ? 0 : 1;
	}
	printf("%lu schedules: %lu connections, %lu with a kept buffer, %lu went to another link, %lu times a "
	       "full element, %lu with an echo\n",
		to - from + 1, (unsigned long)figures[0], (unsigned long)figures[3],
		(unsigned long)figures[1], (unsigned long)figures[2], (unsigned long)figures[4]);
	return expect ? 1 : 0;
}
