/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The parts of the simulation alone: events, gauges, distributions, ECMP, configurations. */
#include "run.h"

#include <errno.h>
#include <math.h>

#include "sim.h"

static struct fab_result result;
static struct fab_config config;
static struct fab_sim sim;

static void
fresh(void)
{
	memset(&sim, 0, sizeof(sim));
	config = fab_test_config(FAB_ONE);
	sim.c = &config;
	sim.r = &result;
	sim.secret[0] = 7;
}

static void
done(void)
{
	fab_free_all(&sim);
}

static void
nothing(struct fab_sim *s, void *arg)
{
	(void)s;
	(void)arg;
}

Test(fabric_parts, events_come_in_order, .init = fresh, .fini = done)
{
	struct fab_event e, last = {0};
	uint64_t n = 0;
	uint32_t i;

	for (i = 0; i < 5000; i++)
		fab_event_add(&sim, fab_below(&sim, FAB_TRAFFIC, 1000), nothing, NULL);
	while (fab_event_next(&sim.events, &e)) {
		cr_assert(n == 0 || e.at_ps > last.at_ps ||
			(e.at_ps == last.at_ps && e.seq > last.seq));
		last = e;
		n++;
		/* and while others are added */
		if (n % 3 == 0 && n < 3000)
			fab_event_add(
				&sim, e.at_ps + fab_below(&sim, FAB_TRAFFIC, 50), nothing, NULL);
	}
	cr_assert_eq(n, 5000 + 999);
}

Test(fabric_parts, gauge_of_long_times, .init = fresh, .fini = done)
{
	struct fab_gauge g = {0};
	uint64_t second = UINT64_C(1000000000000);

	fab_gauge_init(&sim, &g, FAB_GAUGE_PS);
	fab_gauge_count(&g, 1);
	fab_gauge_count(&g, 10 * second);
	fab_gauge_count(&g, 20 * second);
	fab_gauge_count(&g, UINT64_MAX);
	cr_assert_eq(fab_gauge_percentile(&g, 0.25), 1);
	cr_assert_float_eq((double)fab_gauge_percentile(&g, 0.5), 10e12, 0.4e12);
	cr_assert_float_eq((double)fab_gauge_percentile(&g, 0.75), 20e12, 0.8e12);
	cr_assert_eq(fab_gauge_percentile(&g, 1), UINT64_MAX);
}

/* 10 % of the time empty, 80 % 1000 bytes, 10 % a million. */
Test(fabric_parts, gauge_counts_by_time, .init = fresh, .fini = done)
{
	struct fab_gauge g = {0};

	fab_gauge_init(&sim, &g, FAB_GAUGE_BYTES);
	fab_gauge_add(&g, 100, 1000);
	fab_gauge_add(&g, 900, 999000);
	fab_gauge_add(&g, 1000, -1000000);
	cr_assert_eq(fab_gauge_percentile(&g, 0.05), 0);
	cr_assert_float_eq((double)fab_gauge_percentile(&g, 0.5), 1000, 32);
	cr_assert_float_eq((double)fab_gauge_percentile(&g, 0.89), 1000, 32);
	cr_assert_eq(fab_gauge_percentile(&g, 0.99), 1000000);
	cr_assert_float_eq((double)g.area / (double)g.total_ps, 100800, 0.5);
	fab_gauge_restart(&g, 1000);
	cr_assert_eq(g.max, 0);
}

Test(fabric_parts, gauge_is_never_off_by_more_than_a_bucket, .init = fresh, .fini = done)
{
	uint64_t v;

	for (v = 1; v < 1ull << 40; v = v * 5 / 4 + 1) {
		struct fab_gauge g = {0};

		fab_gauge_init(&sim, &g, FAB_GAUGE_BYTES);
		fab_gauge_add(&g, 0, (int64_t)v);
		fab_gauge_add(&g, 10, (int64_t)(v / 2));
		fab_gauge_add(&g, 11, -(int64_t)v);
		cr_assert_geq(fab_gauge_percentile(&g, 0.5), v);
		cr_assert_leq(fab_gauge_percentile(&g, 0.5), v + v / 32);
	}
}

Test(fabric_parts, distributions_have_their_means)
{
	enum fab_workload w;

	for (w = FAB_WEBSEARCH; w <= FAB_ALISTORAGE; w++) {
		double mean = fab_sizes_mean(w), sum = 0;
		uint32_t i, n = 1000000;

		for (i = 0; i < n; i++)
			sum += (double)fab_sizes_draw(w, (i + 0.5) / n);
		cr_assert_float_eq(sum / n, mean, mean / 1000 + 1, "%s: %f, not %f",
			fab_workload_names[w], sum / n, mean);
	}
	cr_assert_eq(fab_sizes_draw(FAB_WEBSEARCH, 0.15), 10000);
	cr_assert_eq(fab_sizes_draw(FAB_WEBSEARCH, 0), 1);
	cr_assert_leq(fab_sizes_draw(FAB_WEBSEARCH, nextafter(1, 0)), 30000000);
	cr_assert_eq(fab_sizes_draw(FAB_FB_HADOOP, 0.5), 700);
	cr_assert_eq(fab_sizes_draw(FAB_ALISTORAGE, 0.6921), 8000);
}

/* As much arrives as the load says: within four standard deviations of a Poisson process. */
Test(fabric_parts, arrivals_have_the_load)
{
	struct fab_config c = fab_test_config(FAB_ALISTORAGE);
	struct fab_result r;
	double want;

	c.hosts = 8;
	c.load = 0.2;
	c.duration_ns = 2000000;
	r = fab_test_run(&c);
	want = 0.2 * 1e11 / 8 * 8 * 2e-3 / fab_sizes_mean(FAB_ALISTORAGE);
	cr_assert_float_eq((double)r.nflows, want, 4 * sqrt(want), "%llu flows, not %.0f",
		(unsigned long long)r.nflows, want);
	cr_assert_eq(r.done, r.nflows);
	cr_assert_eq(r.cls[FAB_CLASSES].flows, r.nflows);
	cr_assert_geq(r.cls[FAB_CLASSES].p50, 1);
	fab_result_free(&r);
}

/* Incasts in addition to a distribution: as many as their load says, each from so many hosts to
 * another one, at once; and the other flows are the same as without incasts. */
Test(fabric_parts, incasts_beside_arrivals)
{
	struct fab_config c = fab_test_config(FAB_ALISTORAGE), alone = c;
	struct fab_result r, without;
	uint64_t events = 0, i, j, k, others = 0;
	double want;

	c.hosts = alone.hosts = 8;
	c.load = alone.load = 0.1;
	c.duration_ns = alone.duration_ns = 2000000;
	c.fan_in = 5;
	c.incast_size = 12345;
	c.incast_load = 0.2;
	r = fab_test_run(&c);
	without = fab_test_run(&alone);
	for (i = 0; i < r.nflows; i++) {
		const struct fab_flow_result *f = &r.flow[i];

		if (f->size != c.incast_size) {
			cr_assert_lt(others, without.nflows);
			cr_assert_eq(f->size, without.flow[others].size);
			cr_assert_eq(f->start_ps, without.flow[others].start_ps);
			others++;
			continue;
		}
		cr_assert_leq(i + c.fan_in, r.nflows);
		for (j = i; j < i + c.fan_in; j++) {
			cr_assert_eq(r.flow[j].size, c.incast_size);
			cr_assert_eq(r.flow[j].dst, f->dst);
			cr_assert_eq(r.flow[j].start_ps, f->start_ps);
			cr_assert_neq(r.flow[j].src, f->dst);
			for (k = i; k < j; k++)
				cr_assert_neq(r.flow[k].src, r.flow[j].src);
		}
		i += c.fan_in - 1;
		events++;
	}
	cr_assert_eq(others, without.nflows);
	want = 0.2 * 1e11 / 8 * 8 * 2e-3 / (5 * 12345.0);
	cr_assert_float_eq((double)events, want, 4 * sqrt(want), "%llu incasts, not %.0f",
		(unsigned long long)events, want);
	cr_assert_eq(r.done, r.nflows);
	fab_result_free(&r);
	fab_result_free(&without);
}

/* Connections are spread over spines, and each connection keeps its path. */
Test(fabric_parts, ecmp_spreads_connections, .init = fresh, .fini = done)
{
	static struct fab_route route = {.first = 8, .n = 4};
	struct fab_port ports[12];
	struct fab_switch w = {.port = ports, .key = {1, 2}, .route = &route};
	uint32_t n[4] = {0}, i;

	for (i = 0; i < 4000; i++) {
		uint64_t tuple[2] = {0x0a0000010a000002ull, (0xc000u + i) << 16 | 4791};
		struct fab_port *p = fab_switch_out(&w, 0, tuple);

		cr_assert_geq(p - ports, 8);
		n[p - ports - 8]++;
		cr_assert_eq(fab_switch_out(&w, 0, tuple), p);
	}
	/* four standard deviations */
	for (i = 0; i < 4; i++)
		cr_assert_float_eq((double)n[i], 1000, 4 * sqrt(4000 * 0.25 * 0.75));
}

/* RFC 1624: a marked header has the right checksum. */
Test(fabric_parts, marking_keeps_the_checksum_right)
{
	uint8_t data[FAB_HEAD] = {[12] = 8, [14] = 0x45, [15] = 2, [22] = 64, [23] = 17};
	uint32_t id, sum, i;

	for (id = 0; id < 65536; id++) {
		data[18] = (uint8_t)(id >> 8);
		data[19] = (uint8_t)id;
		data[15] = 2;
		data[24] = data[25] = 0;
		for (i = 14, sum = 0; i < 34; i += 2)
			sum += (uint32_t)data[i] << 8 | data[i + 1];
		sum = (sum & 0xffff) + (sum >> 16);
		sum = (uint16_t) ~((sum & 0xffff) + (sum >> 16));
		data[24] = (uint8_t)(sum >> 8);
		data[25] = (uint8_t)sum;
		fab_frame_mark(data);
		cr_assert_eq(data[15], 3);
		for (i = 14, sum = 0; i < 34; i += 2)
			sum += (uint32_t)data[i] << 8 | data[i + 1];
		sum = (sum & 0xffff) + (sum >> 16);
		cr_assert_eq((sum & 0xffff) + (sum >> 16), 0xffff, "identification %u", id);
	}
}

/* The flows are the same; the results of the run may differ. */
static void
same_traffic(struct fab_config *c, const struct fab_result *as)
{
	struct fab_result r = fab_test_run(c);
	uint64_t i;

	cr_assert_eq(r.nflows, as->nflows);
	for (i = 0; i < r.nflows; i++) {
		cr_assert_eq(r.flow[i].src, as->flow[i].src);
		cr_assert_eq(r.flow[i].dst, as->flow[i].dst);
		cr_assert_eq(r.flow[i].size, as->flow[i].size);
		cr_assert_eq(r.flow[i].start_ps, as->flow[i].start_ps);
	}
	fab_result_free(&r);
}

/* The same seed makes the same run, and the same traffic in another network; another seed makes
 * another run. */
Test(fabric_parts, a_run_is_decided_by_its_seed)
{
	struct fab_config c = fab_test_config(FAB_FB_HADOOP);
	struct fab_result a, b, other;

	c.topology = FAB_CLOS;
	c.hosts = 8;
	c.duration_ns = 200000;
	c.cc.mode = KARST_CONGESTION_DCQCN;
	c.loss = 0.001;
	c.seed = 1;
	a = fab_test_run(&c);
	b = fab_test_run(&c);
	c.cc.mode = KARST_CONGESTION_OFF;
	c.loss = 0;
	same_traffic(&c, &a);
	c.seed = 2;
	other = fab_test_run(&c);
	cr_assert_eq(a.nflows, b.nflows);
	cr_assert_arr_eq(a.flow, b.flow, a.nflows * sizeof(*a.flow));
	cr_assert_eq(a.events, b.events);
	cr_assert_eq(a.marks, b.marks);
	cr_assert_eq(a.lost, b.lost);
	cr_assert_neq(a.events, other.events);
	fab_result_free(&a);
	fab_result_free(&b);
	fab_result_free(&other);
}

Test(fabric_parts, impossible_configurations_are_refused)
{
	struct fab_config c = fab_test_config(FAB_INCAST);
	char why[256];

	c.hosts = 4;
	c.fan_in = 4;
	cr_assert_eq(fab_config_complete(&c, why, sizeof(why)), -EINVAL);
	cr_assert_str_eq(why, "--fan-in 4: less than --hosts 4");
	c = fab_test_config(FAB_PERMUTATION);
	c.topology = FAB_CLOS;
	c.hosts = 10;
	c.leaves = 4;
	cr_assert_eq(fab_config_complete(&c, why, sizeof(why)), -EINVAL);
	cr_assert_str_eq(why, "--hosts 10: not a multiple of --leaves 4");
	c = fab_test_config(FAB_RING);
	c.size = 5;
	c.hosts = 6;
	cr_assert_eq(fab_config_complete(&c, why, sizeof(why)), -EINVAL);
	c = fab_test_config(FAB_ONE);
	c.kmin = 1000;
	c.kmax = 999;
	cr_assert_eq(fab_config_complete(&c, why, sizeof(why)), -EINVAL);
	c = fab_test_config(FAB_ONE);
	c.buffer = 1000;
	cr_assert_eq(fab_config_complete(&c, why, sizeof(why)), -EINVAL);
}
