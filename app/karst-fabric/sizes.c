/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Published distributions of flow sizes.  Their points are those that simulations of RDMA networks
 * have used since the HPCC paper (SIGCOMM 2019): between two points all sizes are equally likely.
 */
#include "sim.h"

struct point {
	double bytes;
	double percent; /* of flows that are not larger */
};

/* Web search: "Data Center TCP (DCTCP)", SIGCOMM 2010. */
static const struct point websearch[] = {{0, 0}, {10e3, 15}, {20e3, 20}, {30e3, 30}, {50e3, 40},
	{80e3, 53}, {200e3, 60}, {1e6, 70}, {2e6, 80}, {5e6, 90}, {10e6, 97}, {30e6, 100}};

/* Hadoop at Facebook: "Inside the Social Network's (Datacenter) Network", SIGCOMM 2015. */
static const struct point fb_hadoop[] = {{0, 0}, {100, 1}, {200, 2}, {300, 5}, {350, 15}, {400, 20},
	{500, 30}, {600, 40}, {700, 50}, {1e3, 60}, {2e3, 67}, {7e3, 70}, {30e3, 72}, {50e3, 82},
	{80e3, 87}, {120e3, 90}, {300e3, 95}, {1e6, 97.5}, {2e6, 99}, {10e6, 100}};

/* Distributed storage at Alibaba, 2019. */
static const struct point alistorage[] = {{0, 0}, {4e3, 22.93}, {8e3, 69.21}, {16e3, 80.61},
	{32e3, 90.47}, {64e3, 93.53}, {128e3, 96.77}, {256e3, 97.53}, {2e6, 100}};

static const struct point *
points_of(enum fab_workload w)
{
	switch (w) {
	case FAB_WEBSEARCH:
		return websearch;
	case FAB_FB_HADOOP:
		return fb_hadoop;
	default:
		return alistorage;
	}
}

uint64_t
fab_sizes_draw(enum fab_workload w, double u)
{
	const struct point *p = points_of(w);
	double percent = 100 * u, bytes;

	for (p++; p->percent < percent; p++)
		;
	bytes = p[-1].bytes +
		(p->bytes - p[-1].bytes) * (percent - p[-1].percent) / (p->percent - p[-1].percent);
	return bytes < 1 ? 1 : (uint64_t)bytes;
}

double
fab_sizes_mean(enum fab_workload w)
{
	const struct point *p = points_of(w);
	double mean = 0;

	do {
		p++;
		mean += (p->bytes + p[-1].bytes) / 2 * (p->percent - p[-1].percent) / 100;
	} while (p->percent < 100);
	return mean;
}
