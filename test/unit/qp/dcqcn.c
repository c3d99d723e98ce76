/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The reaction point (E2) by itself: sequences that were computed by hand, the equations of the
 * paper, and random events against a simple simulation, which steps through time in doubles.
 */
#include <criterion/criterion.h>

#include "rp_defaults.h"

#define US   1000ull
#define LINE 100000000000ull

static struct karst_rp
rp_of(const struct karst_rp_params *p)
{
	struct karst_rp rp;

	karst_rp_set(&rp, p);
	return rp;
}

/* The paper's parameters: g = 1/256, timers of 50 and 55 us, F = 5. */
static struct karst_rp_params
paper(void)
{
	struct karst_rp_params p = defaults();

	p.dce_tcp_g = 1020;
	p.dce_tcp_rtt = 55;
	p.rate_reduce_monitor_period = 50;
	p.rpg_time_reset = 55;
	p.rpg_byte_reset = 10000000;
	p.rpg_threshold = 5;
	p.rpg_ai_rate = 40;
	p.rpg_hai_rate = 400;
	p.clamp_tgt_rate = 1;
	return p;
}

/* (E2): an adapter's defaults, computed by hand. */
Test(dcqcn, e2_first_cnp)
{
	struct karst_rp_params p = defaults();
	struct karst_rp rp = rp_of(&p);
	struct karst_dcqcn d = {0};

	cr_assert_not(karst_dcqcn_limits(&d));
	cr_assert_eq(karst_dcqcn_next(&d, &rp), UINT64_MAX);
	karst_dcqcn_cnp(&d, &rp, LINE, 0);
	/* 1 - 1023/2048 */
	cr_assert_eq(d.rate, 50048828125);
	cr_assert_eq(d.target, LINE);
	cr_assert(karst_dcqcn_limits(&d));
	cr_assert_eq(karst_dcqcn_next(&d, &rp), 300 * US);
	karst_dcqcn_advance(&d, &rp, 300 * US - 1);
	cr_assert_eq(d.rate, 50048828125);
	/* the target is the line rate already, each stage halves the distance */
	karst_dcqcn_advance(&d, &rp, 300 * US);
	cr_assert_eq(d.rate, 75024414063);
	karst_dcqcn_advance(&d, &rp, 600 * US);
	cr_assert_eq(d.rate, 87512207032);
	/* by bytes as well */
	karst_dcqcn_sent(&d, &rp, 32766);
	cr_assert_eq(d.rate, 87512207032);
	karst_dcqcn_sent(&d, &rp, 1);
	cr_assert_eq(d.rate, 93756103516);
	/* no limit in the end, and no timer is left */
	karst_dcqcn_advance(&d, &rp, 1000000 * US);
	cr_assert_eq(d.rate, LINE);
	cr_assert_not(karst_dcqcn_limits(&d));
	cr_assert_eq(karst_dcqcn_next(&d, &rp), UINT64_MAX);
}

/* (E2): however many CNPs come, there is one reduction in a monitor period, of a half at most. */
Test(dcqcn, e2_flood)
{
	struct karst_rp_params p = defaults();
	struct karst_rp rp = rp_of(&p);
	struct karst_dcqcn d = {0};
	uint64_t before, t;
	uint32_t cuts = 0;

	karst_dcqcn_cnp(&d, &rp, LINE, 0);
	for (t = 1; t <= 400 * US; t++) {
		before = d.rate;
		karst_dcqcn_cnp(&d, &rp, LINE, t);
		if (d.rate < before) {
			cr_assert_geq(d.rate, karst_max_u64(before / 2 - 1, 1000000));
			cuts++;
		}
	}
	cr_assert_leq(cuts, 100);
	cr_assert_eq(d.rate, 1000000, "never below rpg_min_rate, and not above it either");
}

/* (E2): a CNP within the period takes effect when the period ends, even if the state is not read
 * meanwhile. */
Test(dcqcn, e2_pending)
{
	struct karst_rp_params p = defaults();
	struct karst_rp rp = rp_of(&p);
	struct karst_dcqcn d = {0};
	uint64_t rate;

	karst_dcqcn_cnp(&d, &rp, LINE, 0);
	rate = d.rate;
	karst_dcqcn_cnp(&d, &rp, LINE, 3 * US);
	cr_assert_eq(d.rate, rate);
	cr_assert_eq(karst_dcqcn_next(&d, &rp), 4 * US);
	karst_dcqcn_advance(&d, &rp, 290 * US);
	cr_assert_lt(d.rate, rate);
	cr_assert_eq(d.cut_ns, 4 * US);
	/* without clamping, two reductions in a row keep the same target */
	cr_assert_eq(d.target, LINE);
	cr_assert_eq(karst_dcqcn_next(&d, &rp), 304 * US);
}

/* (E2): the target after a reduction, depending on what has raised the rate before. */
Test(dcqcn, e2_clamp)
{
	struct karst_rp_params p = defaults();
	struct karst_dcqcn d = {0};
	struct karst_rp rp;
	uint64_t raised;
	unsigned int how;

	for (how = 0; how < 8; how++) {
		bool clamp = how & 1, after_time = how & 2, by_bytes = how & 4;

		p.clamp_tgt_rate = clamp;
		p.clamp_tgt_rate_after_time_inc = after_time;
		rp = rp_of(&p);
		d = (struct karst_dcqcn){0};
		karst_dcqcn_cnp(&d, &rp, LINE, 0);
		if (by_bytes)
			karst_dcqcn_sent(&d, &rp, 32767);
		else
			karst_dcqcn_advance(&d, &rp, 300 * US);
		raised = d.rate;
		karst_dcqcn_cnp(&d, &rp, LINE, 310 * US);
		/* by then the timer has raised the rate in either case */
		if (by_bytes)
			raised = (raised + LINE + 1) / 2;
		cr_assert_eq(d.target, clamp || after_time || by_bytes ? raised : LINE, "%u", how);
	}
}

/* (E2): the phases of the paper: F - 1 halvings, then additive increase (ai), and hyper increase
 * (hai) when both have passed F. */
Test(dcqcn, e2_phases)
{
	struct karst_rp_params p = paper();
	struct karst_rp rp = rp_of(&p);
	struct karst_dcqcn d = {0};
	uint64_t target, rate;
	uint32_t i;

	karst_dcqcn_cnp(&d, &rp, LINE, 0);
	karst_dcqcn_cnp(&d, &rp, LINE, 50 * US);
	target = d.target;
	rate = d.rate;
	cr_assert_lt(target, LINE, "clamped");
	for (i = 1; i < 5; i++) {
		karst_dcqcn_advance(&d, &rp, 50 * US + i * 55 * US);
		cr_assert_eq(d.target, target);
		cr_assert_leq(llabs((long long)(d.rate - (target - ((target - rate) >> i)))), 2);
	}
	for (; i < 10; i++) {
		karst_dcqcn_advance(&d, &rp, 50 * US + i * 55 * US);
		target += 40000000;
		cr_assert_eq(d.target, target);
	}
	/* the byte counter: additive increase as long as it has not passed F itself */
	for (i = 1; i <= 8; i++) {
		karst_dcqcn_sent(&d, &rp, 10000000);
		target += i <= 5 ? 40000000 : 400000000;
		cr_assert_eq(d.target, target, "byte stage %u", i);
	}
}

/* (E2): without a byte counter only time drives the phases. */
Test(dcqcn, e2_time_alone)
{
	struct karst_rp_params p = paper();
	struct karst_dcqcn d = {0};
	struct karst_rp rp;
	uint64_t target;
	uint32_t i;

	p.rpg_byte_reset = 0;
	rp = rp_of(&p);
	karst_dcqcn_cnp(&d, &rp, LINE, 0);
	karst_dcqcn_cnp(&d, &rp, LINE, 50 * US);
	target = d.target;
	karst_dcqcn_sent(&d, &rp, 1 << 30);
	for (i = 1; i < 9; i++) {
		karst_dcqcn_advance(&d, &rp, 50 * US + i * 55 * US);
		target += i < 5 ? 0 : i == 5 ? 40000000 : 400000000;
		cr_assert_eq(d.target, target, "stage %u", i);
	}
}

/* (E2): configured rates. */
Test(dcqcn, e2_rates)
{
	struct karst_rp_params p = defaults();
	struct karst_dcqcn d = {0};
	struct karst_rp rp;
	uint32_t i;

	p.rate_to_set_on_first_cnp = 10000;
	p.rpg_max_rate = 25000;
	p.rpg_min_dec_fac = 80;
	rp = rp_of(&p);
	karst_dcqcn_cnp(&d, &rp, LINE, 0);
	cr_assert_eq(d.rate, 8000000000, "80 % at least");
	cr_assert_eq(d.target, 10000000000);
	/* 5 Mb/s a round, several rounds in a call */
	for (i = 0; i < 100; i++)
		karst_dcqcn_advance(&d, &rp, 10000000 * US);
	cr_assert_eq(d.rate, 25000000000, "the highest is rpg_max_rate");
	/* a maximum that is lowered at runtime holds from the next CNP on */
	p.rpg_max_rate = 1000;
	rp = rp_of(&p);
	karst_dcqcn_cnp(&d, &rp, LINE, 10000001 * US);
	cr_assert_leq(d.rate, 1000000000);
	/* the minimum is above the maximum: the maximum counts */
	p.rpg_min_rate = 2000;
	rp = rp_of(&p);
	karst_dcqcn_cnp(&d, &rp, LINE, 10000010 * US);
	cr_assert_eq(d.rate, 1000000000);
}

/* (E2): a CNP after a long time without events takes effect at once, and so does the next. */
Test(dcqcn, e2_after_a_long_time)
{
	struct karst_rp_params p = defaults();
	struct karst_dcqcn d = {0};
	struct karst_rp rp;
	uint64_t hour = 3600000000 * US, rate;
	uint32_t i;

	p.rate_reduce_monitor_period = 1000;
	rp = rp_of(&p);
	karst_dcqcn_cnp(&d, &rp, LINE, 0);
	for (i = 0; i < 100; i++)
		karst_dcqcn_advance(&d, &rp, hour);
	cr_assert_eq(d.rate, LINE);
	karst_dcqcn_cnp(&d, &rp, LINE, hour);
	/* alpha has decayed to almost nothing meanwhile */
	cr_assert_gt(d.rate, LINE / 100 * 99);
	rate = d.rate;
	karst_dcqcn_cnp(&d, &rp, LINE, hour + 500 * US);
	cr_assert(d.pending);
	karst_dcqcn_advance(&d, &rp, hour + 1000 * US);
	cr_assert_not(d.pending);
	cr_assert_lt(d.rate, LINE);
	cr_assert_gt(rate, 0);
}

/* --- against a simple simulation --- */

struct plain {
	double rate, target, alpha;
	double since_raise, since_cut, since_alpha; /* us */
	double bytes;
	int time_stage, byte_stage;
	bool heard, pending, started;
};

static double
greater(double a, double b)
{
	return a > b ? a : b;
}

/* Tells whether they are equal, except for rounding. */
static bool
about(uint64_t is, double should)
{
	double by = (double)is - should;

	return greater(by, -by) <= 1e-4 * should + 1;
}

static void
plain_cut(struct plain *x, const struct karst_rp_params *p)
{
	double least = x->rate * p->rpg_min_dec_fac / 100;

	if (p->clamp_tgt_rate || x->byte_stage > 0 ||
		(x->time_stage > 0 && p->clamp_tgt_rate_after_time_inc))
		x->target = x->rate;
	x->rate *= 1 - x->alpha * 1024 / (1u << p->rpg_gd);
	x->rate = greater(greater(x->rate, least), p->rpg_min_rate * 1e6);
	x->since_raise = x->since_cut = x->bytes = 0;
	x->time_stage = x->byte_stage = 0;
	x->pending = false;
}

static void
plain_raise(struct plain *x, const struct karst_rp_params *p, int *stage)
{
	int b, least, most;

	*stage += 1;
	b = p->rpg_byte_reset != 0 ? x->byte_stage : x->time_stage;
	least = x->time_stage < b ? x->time_stage : b;
	most = x->time_stage > b ? x->time_stage : b;
	if (least > (int)p->rpg_threshold)
		x->target += p->rpg_hai_rate * 1e6;
	else if (most >= (int)p->rpg_threshold)
		x->target += p->rpg_ai_rate * 1e6;
	if (x->target > LINE)
		x->target = LINE;
	x->rate = (x->rate + x->target) / 2;
}

/* One step, of a microsecond. */
static void
plain_step(struct plain *x, const struct karst_rp_params *p)
{
	if (!x->started)
		return;
	x->since_alpha += 1;
	if (x->since_alpha >= p->dce_tcp_rtt) {
		x->since_alpha = 0;
		x->alpha = (x->alpha * p->dce_tcp_g + (x->heard ? 1024 - p->dce_tcp_g : 0)) / 1024;
		x->heard = false;
	}
	x->since_cut += 1;
	x->since_raise += 1;
	if (x->pending && x->since_cut >= p->rate_reduce_monitor_period) {
		plain_cut(x, p);
	} else if (x->since_raise >= p->rpg_time_reset) {
		x->since_raise = 0;
		plain_raise(x, p, &x->time_stage);
	}
}

static void
plain_cnp(struct plain *x, const struct karst_rp_params *p)
{
	if (!x->started) {
		x->started = true;
		x->rate = x->target = LINE;
		x->alpha = p->initial_alpha_value / 1024.0;
		x->heard = true;
		plain_cut(x, p);
		return;
	}
	x->heard = true;
	if (x->since_cut >= p->rate_reduce_monitor_period)
		plain_cut(x, p);
	else
		x->pending = true;
}

static void
plain_sent(struct plain *x, const struct karst_rp_params *p, uint32_t bytes)
{
	if (!x->started || p->rpg_byte_reset == 0)
		return;
	for (x->bytes += bytes; x->bytes >= p->rpg_byte_reset; x->bytes -= p->rpg_byte_reset)
		plain_raise(x, p, &x->byte_stage);
}

static uint32_t
draw(uint64_t *state, uint32_t below)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33) % below;
}

static void
compare_with_plain(const struct karst_rp_params *p, uint64_t seed)
{
	struct karst_rp rp = rp_of(p);
	struct karst_dcqcn d = {0};
	struct plain x = {0};
	uint64_t state = seed;
	uint32_t t;

	for (t = 1; t < 20000; t++) {
		plain_step(&x, p);
		/* the lazy one is advanced only now and then */
		if (draw(&state, 40) == 0)
			karst_dcqcn_advance(&d, &rp, t * US);
		if (draw(&state, 300) == 0) {
			karst_dcqcn_cnp(&d, &rp, LINE, t * US);
			plain_cnp(&x, p);
		}
		if (draw(&state, 50) == 0) {
			uint32_t bytes = draw(&state, 100000);

			karst_dcqcn_advance(&d, &rp, t * US);
			karst_dcqcn_sent(&d, &rp, bytes);
			plain_sent(&x, p, bytes);
		}
		if (draw(&state, 100) != 0)
			continue;
		karst_dcqcn_advance(&d, &rp, t * US);
		cr_assert(about(d.rate, x.rate), "seed %llu, %u us: rate %llu, should be %.0f",
			(unsigned long long)seed, t, (unsigned long long)d.rate, x.rate);
		cr_assert(about(d.target, x.target),
			"seed %llu, %u us: target %llu, should be %.0f", (unsigned long long)seed,
			t, (unsigned long long)d.target, x.target);
	}
}

/* (E2): rounds that are computed later are the rounds that a clock would have made. */
Test(dcqcn, e2_lazy_is_exact)
{
	struct karst_rp_params p = defaults();
	uint64_t seed;

	for (seed = 1; seed <= 20; seed++) {
		p = seed & 1 ? defaults() : paper();
		p.clamp_tgt_rate = seed >> 1 & 1;
		p.clamp_tgt_rate_after_time_inc = seed >> 2 & 1;
		if (seed % 5 == 0)
			p.rpg_byte_reset = 0;
		if (seed % 3 == 0)
			p.rpg_gd = 12;
		compare_with_plain(&p, seed);
	}
}

/* Each parameter has its name, its default and its range. */
Test(dcqcn, parameters)
{
	struct karst_congestion_config c;
	uint32_t *value, least, most, n;
	const char *name;

	karst_congestion_defaults(&c);
	cr_assert(karst_rp_params_valid(&c.rp));
	for (n = 0; (name = karst_rp_param(&c.rp, n, &value, &least, &most)) != NULL; n++) {
		uint32_t was = *value;

		cr_assert(was >= least && was <= most, "%s", name);
		*value = most + 1;
		cr_assert_not(karst_rp_params_valid(&c.rp), "%s", name);
		*value = most;
		cr_assert(karst_rp_params_valid(&c.rp), "%s", name);
		*value = least;
		cr_assert(karst_rp_params_valid(&c.rp), "%s", name);
		if (least > 0) {
			*value = least - 1;
			cr_assert_not(karst_rp_params_valid(&c.rp), "%s", name);
		}
		*value = was;
	}
	cr_assert_eq(n, sizeof(c.rp) / sizeof(uint32_t));
	c.rp.rpg_byte_reset = 1023;
	cr_assert_not(karst_rp_params_valid(&c.rp));
	c.mode = KARST_CONGESTION_DCQCN;
	cr_assert_not(karst_congestion_valid(&c));
	c.mode = KARST_CONGESTION_NOTIFY;
	cr_assert(karst_congestion_valid(&c), "they are of no use then");
}
