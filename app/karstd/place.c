/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The default is the last CPU that the daemon may use, because the first CPUs get the machine's
 * interrupts and most of its other work.
 */
#include "place.h"

#include <errno.h>
#include <numa.h>
#include <string.h>

#include "karst_log.h"
#include "port_kind.h"

static int
read_node(const char *path)
{
	FILE *f = fopen(path, "re");
	int node = -1;

	if (f == NULL)
		return -1;
	if (fscanf(f, "%d", &node) != 1)
		node = -1;
	fclose(f);
	return node;
}

int
kd_place_node_of_device(const struct kd_conf_port *p)
{
	char path[128];

	if (p->kind->node_path == NULL)
		return -1;
	p->kind->node_path(p, path, sizeof(path));
	return read_node(path);
}

static int
node_of_cpu(int cpu)
{
	return numa_available() < 0 ? -1 : numa_node_of_cpu(cpu);
}

int
kd_place_choose(struct kd_conf *c)
{
	int node = kd_place_node_of_device(&c->port[0]), cpu, last = -1, near = -1;
	cpu_set_t set;

	if (c->engine.lcores.n != 0)
		return 0;
	if (sched_getaffinity(0, sizeof(set), &set) != 0) {
		karst_log(KARST_LOG_ERR, "the processors that may be used: %s", strerror(errno));
		return -EIO;
	}
	for (cpu = 0; cpu < (int)KD_MAX_CPUS; cpu++) {
		if (!CPU_ISSET(cpu, &set))
			continue;
		last = cpu;
		if (node >= 0 && node_of_cpu(cpu) == node)
			near = cpu;
	}
	c->engine.lcores.n = 1;
	c->engine.lcores.cpu[0] = (uint16_t)(near >= 0 ? near : last);
	return 0;
}

void
kd_place_warn(const struct kd_conf *c, const struct kd_conf_port *p, uint64_t lcore_mask, int node)
{
	uint32_t i;

	for (i = 0; node >= 0 && i < c->engine.lcores.n; i++) {
		int cpu = c->engine.lcores.cpu[i], its = node_of_cpu(cpu);

		if ((lcore_mask >> i & 1) != 0 && its >= 0 && its != node)
			karst_log(KARST_LOG_WARNING,
				"port %s is on NUMA node %d, and served by CPU %d of node %d, which "
				"costs throughput: choose [engine] lcores of node %d",
				p->name, node, cpu, its, node);
	}
}
