/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The configuration: defaults, derived values, and limits. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "sim.h"

/* 100 KB and 400 KB of queue at 25 Gb/s, the usual settings for DCQCN. */
#define KMIN_PER_MBPS 4u
#define KMAX_PER_MBPS 16u
/* Maximum ports of a switch; port numbers have 16 bits. */
#define MAX_PORTS 4096u
/* Duration of runs that have no end otherwise. */
#define DEFAULT_NS   20000000ull
#define INCAST_BYTES 500000u
#define INCAST_LOAD  0.02
/* Limit of the run, in durations: after the last flow has begun, queue pairs may wait for long. */
#define LIMIT_TIMES 100u

const char *const fab_topology_names[] = {
	[FAB_STAR] = "star", [FAB_DUMBBELL] = "dumbbell", [FAB_CLOS] = "clos", NULL};
const char *const fab_workload_names[] = {[FAB_ONE] = "one",
	[FAB_TWO] = "two",
	[FAB_PERMUTATION] = "permutation",
	[FAB_INCAST] = "incast",
	[FAB_RING] = "ring",
	[FAB_TREE] = "tree",
	[FAB_WEBSEARCH] = "websearch",
	[FAB_FB_HADOOP] = "fb_hadoop",
	[FAB_ALISTORAGE] = "alistorage",
	NULL};

void
fab_config_defaults(struct fab_config *c)
{
	*c = (struct fab_config){
		.topology = FAB_STAR,
		.workload = FAB_ONE,
		.speed = 100000,
		.delay_ns = 1000,
		.buffer = 32u << 20,
		.alpha = 1,
		.marking = true,
		.pmax = 0.2,
		.mad_loss = -1,
		.connections = 1,
		.mtu = 4096,
		.message = 65536,
		.depth = 16,
		.window = 256,
		.timeout = 14,
		.retry = 7,
		.spray = 1,
		.load = 0.5,
		.seed = 1,
	};
	karst_congestion_defaults(&c->cc);
}

static int __attribute__((format(printf, 3, 4))) refuse(char *why, size_t n, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, n, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

/* --- hosts and switches --- */

static uint32_t
hosts_of(const struct fab_config *c)
{
	switch (c->workload) {
	case FAB_ONE:
		return 2;
	case FAB_TWO:
		return 3;
	case FAB_INCAST:
		return c->fan_in != 0 ? c->fan_in + 1 : 17;
	default:
		return 16;
	}
}

static int
complete_clos(struct fab_config *c, char *why, size_t n)
{
	if (c->leaves == 0)
		c->leaves = c->hosts % 4 == 0 ? 4 : 2;
	if (c->spines == 0)
		c->spines = 2;
	if (c->leaves < 2)
		return refuse(why, n, "--leaves %u: 2 or more are needed", c->leaves);
	if (c->hosts % c->leaves != 0)
		return refuse(
			why, n, "--hosts %u: not a multiple of --leaves %u", c->hosts, c->leaves);
	if (c->leaves > MAX_PORTS || (uint64_t)c->hosts / c->leaves + c->spines > MAX_PORTS)
		return refuse(why, n, "a switch may have %u ports", MAX_PORTS);
	return 0;
}

static int
complete_topology(struct fab_config *c, char *why, size_t n)
{
	uint32_t least = c->workload == FAB_TWO ? 3 : 2;

	if (c->hosts == 0)
		c->hosts = hosts_of(c);
	if (c->hosts < least || c->hosts > FAB_MAX_HOSTS)
		return refuse(why, n, "--hosts %u: %u to %u are allowed with --workload %s",
			c->hosts, least, FAB_MAX_HOSTS, fab_workload_names[c->workload]);
	if (c->core_speed == 0)
		c->core_speed = c->speed;
	if (c->topology != FAB_CLOS && (c->leaves != 0 || c->spines != 0))
		return refuse(why, n, "--leaves and --spines go with --topology clos only");
	return c->topology == FAB_CLOS ? complete_clos(c, why, n) : 0;
}

/* --- traffic --- */

uint64_t
fab_config_qps(const struct fab_config *c)
{
	switch (c->workload) {
	case FAB_INCAST:
		return (uint64_t)c->connections * c->fan_in;
	case FAB_WEBSEARCH ... FAB_ALISTORAGE:
		return FAB_MAX_QPS;
	case FAB_TREE:
		/* three edges in one tree and one in the other, each up and down */
		return 8;
	default:
		return 2ull * c->connections;
	}
}

/* Limit for all hosts together if each flow has a connection: the number of flows is not known, and
 * memory is only used for existing connections. */
#define IDS_MOST (1u << 21)

uint64_t
fab_config_ids(const struct fab_config *c, uint32_t host)
{
	uint32_t n = karst_min_u32(FAB_MAX_QPS, karst_pow2_ceil(IDS_MOST / c->hosts / 2 + 1));

	switch (c->workload) {
	case FAB_ONE ... FAB_TWO:
		return (uint64_t)(host == c->hosts - 1 ? 2 : 1) * c->connections;
	case FAB_INCAST:
		return (uint64_t)c->connections * (host == 0 ? c->fan_in : 1);
	case FAB_WEBSEARCH ... FAB_ALISTORAGE:
		return n - 1;
	default:
		return fab_config_qps(c);
	}
}

static bool
may_be_endless(enum fab_workload w)
{
	return w <= FAB_INCAST;
}

static int
complete_times(struct fab_config *c, char *why, size_t n)
{
	bool random = fab_workload_is_random(c->workload);
	bool endless = may_be_endless(c->workload) && c->size == 0;

	if (c->duration_ns == 0 && (endless || (random && c->flows == 0)))
		c->duration_ns = DEFAULT_NS;
	if (c->limit_ns == 0 && c->duration_ns != 0)
		c->limit_ns = endless ? c->duration_ns : c->duration_ns * LIMIT_TIMES;
	if (c->duration_ns != 0 && c->warmup_ns >= c->duration_ns)
		return refuse(why, n,
			"--warmup: shorter than --duration, which is %llu ns, is allowed",
			(unsigned long long)c->duration_ns);
	if (c->duration_ns != 0 && c->stagger_ns >= c->duration_ns)
		return refuse(why, n,
			"--stagger: shorter than --duration, which is %llu ns, is allowed",
			(unsigned long long)c->duration_ns);
	if (c->warmup_ns != 0 && !endless && !random)
		return refuse(
			why, n, "--warmup goes with flows without end and with distributions only");
	if (c->limit_ns != 0 && c->limit_ns < c->duration_ns)
		return refuse(why, n, "--limit: not shorter than --duration, which is %llu ns",
			(unsigned long long)c->duration_ns);
	return 0;
}

static int
complete_traffic(struct fab_config *c, char *why, size_t n)
{
	bool random = fab_workload_is_random(c->workload);

	if (fab_workload_reduces(c->workload) && c->size == 0)
		c->size = 64u << 20;
	if (fab_workload_reduces(c->workload) && c->read)
		return refuse(why, n,
			"--op read: who is read from hears nothing of it, and "
			"--workload %s needs that",
			fab_workload_names[c->workload]);
	if (c->workload == FAB_TREE && c->size / 2 / FAB_CHUNKS_MAX >= c->message)
		return refuse(why, n, "--size %llu: up to %u times --message, %u, is reduced",
			(unsigned long long)c->size, 2 * FAB_CHUNKS_MAX, c->message);
	if (fab_workload_reduces(c->workload) && c->size < c->hosts)
		return refuse(why, n, "--size %llu: at least a byte for each of %u hosts",
			(unsigned long long)c->size, c->hosts);
	if (random && c->size != 0)
		return refuse(
			why, n, "--size: sizes are those of %s", fab_workload_names[c->workload]);
	if (fab_workload_reduces(c->workload) && c->timed)
		return refuse(why, n, "--connect timed goes not with --workload %s",
			fab_workload_names[c->workload]);
	if (c->workload > FAB_INCAST && (c->connections != 1 || c->stagger_ns != 0))
		return refuse(why, n,
			"--connections and --stagger go with flows between given hosts only");
	if (!random && c->flows != 0)
		return refuse(why, n, "--flows goes with distributions only");
	if (c->workload != FAB_INCAST && !random && c->fan_in != 0)
		return refuse(
			why, n, "--fan-in goes with --workload incast and with distributions only");
	if (c->workload == FAB_INCAST && c->fan_in == 0)
		c->fan_in = c->hosts - 1;
	if (c->fan_in >= c->hosts)
		return refuse(why, n, "--fan-in %u: less than --hosts %u", c->fan_in, c->hosts);
	if ((!random || c->fan_in == 0) && (c->incast_size != 0 || c->incast_load != 0))
		return refuse(why, n,
			"--incast-size and --incast-load go with distributions and --fan-in only");
	if (random && c->fan_in != 0 && c->incast_size == 0)
		c->incast_size = INCAST_BYTES;
	if (random && c->fan_in != 0 && c->incast_load == 0)
		c->incast_load = INCAST_LOAD;
	if (fab_config_qps(c) > FAB_MAX_QPS)
		return refuse(why, n, "--connections %u: a host may have %u queue pairs, not %llu",
			c->connections, FAB_MAX_QPS, (unsigned long long)fab_config_qps(c));
	return complete_times(c, why, n);
}

/* --- all --- */

static int
check_queue_pairs(const struct fab_config *c, char *why, size_t n)
{
	if (!karst_congestion_valid(&c->cc))
		return refuse(why, n, "rpg_byte_reset %u: 0, or 1024 and more, is allowed",
			c->cc.rp.rpg_byte_reset);
	if (c->spray != 1 && (!c->repeat || c->decline))
		return refuse(why, n, "--spray goes with --recovery sr only");
	if (c->kmax < c->kmin)
		return refuse(why, n, "--kmax %llu: not less than --kmin, %llu",
			(unsigned long long)c->kmax, (unsigned long long)c->kmin);
	if (c->buffer < c->mtu + FAB_HEAD)
		return refuse(why, n, "--buffer %llu: a frame has %u bytes",
			(unsigned long long)c->buffer, c->mtu + FAB_HEAD);
	return 0;
}

int
fab_config_complete(struct fab_config *c, char *why, size_t n)
{
	int rc;

	if (c->mad_loss < 0)
		c->mad_loss = c->loss;
	if (c->kmin == 0)
		c->kmin = c->speed * KMIN_PER_MBPS;
	if (c->kmax == 0)
		c->kmax = karst_max_u64(c->speed * KMAX_PER_MBPS, c->kmin);
	rc = complete_topology(c, why, n);
	if (rc == 0)
		rc = complete_traffic(c, why, n);
	return rc != 0 ? rc : check_queue_pairs(c, why, n);
}
