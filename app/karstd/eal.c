/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * EAL's main lcore is the thread that runs main(), and control threads are created by it.  So it
 * may use every CPU that is not an lcore's (all CPUs if there is no other).  Engine lcore i is EAL
 * lcore i + 1, pinned.
 *
 * Nothing is left in the file system: DPDK refuses --in-memory together with --no-huge, but there
 * --no-shconf has the same effect.
 */
#include "eal.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_pci.h>

#include "few_drivers.h"
#include "karst_log.h"
#include "port_kind.h"

#define MAX_ARGS   (32u + 2 * KD_MAX_PORTS)
#define TEXT_BYTES 16384u
/* With "auto": other programs may take some between the check and the use. */
#define HUGE_SPARE (UINT64_C(64) << 20)
#define HUGE_PATH  "/sys/kernel/mm/hugepages"
#define SYS_MODULE "/sys/module"
#define MIB        (UINT64_C(1) << 20)

#define MBUF_BYTES      5120u /* including all overhead */
#define MBUFS_OF_LCORE  2048u
#define EAL_BASE_BYTES  (64 * MIB)
#define EAL_LCORE_BYTES (4 * MIB)

struct args {
	int num;
	char *argv[MAX_ARGS + 1];
	char text[TEXT_BYTES];
	size_t used;
};

__attribute__((format(printf, 2, 3))) static void
arg_add(struct args *a, const char *fmt, ...)
{
	char *to = a->text + a->used;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(to, TEXT_BYTES - a->used, fmt, ap);
	va_end(ap);
	assert(n >= 0 && (size_t)n < TEXT_BYTES - a->used && a->num < (int)MAX_ARGS);
	a->used += (size_t)n + 1;
	a->argv[a->num++] = to;
}

/* --- lcores --- */

/* Writes the CPUs of control threads in EAL's format: "0,2,3". */
static int
control_cpus(const struct kd_conf *c, char *to, size_t len)
{
	cpu_set_t set, rest;
	size_t n = 0;
	uint32_t i;
	int cpu;

	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return -errno;
	rest = set;
	for (i = 0; i < c->engine.lcores.n; i++)
		CPU_CLR(c->engine.lcores.cpu[i], &rest);
	if (CPU_COUNT(&rest) == 0)
		rest = set;
	for (cpu = 0; cpu < CPU_SETSIZE && n + 8 < len; cpu++)
		if (CPU_ISSET(cpu, &rest))
			n += (size_t)snprintf(to + n, len - n, "%s%d", n != 0 ? "," : "", cpu);
	return 0;
}

static int
add_lcores(struct args *a, const struct kd_conf *c, struct kd_eal *eal)
{
	char control[5 * CPU_SETSIZE], list[KARST_ENGINE_MAX_LCORES * 12] = "";
	size_t n = 0;
	uint32_t i;
	int rc = control_cpus(c, control, sizeof(control));

	if (rc != 0)
		return rc;
	for (i = 0; i < c->engine.lcores.n; i++) {
		eal->lcore[i] = i + 1;
		n += (size_t)snprintf(
			list + n, sizeof(list) - n, ",%u@%u", i + 1, c->engine.lcores.cpu[i]);
	}
	arg_add(a, "--lcores=0@(%s)%s", control, list);
	return 0;
}

/* --- memory --- */

static uint64_t
free_huge_bytes(void)
{
	DIR *dir = opendir(HUGE_PATH);
	const struct dirent *d;
	uint64_t sum = 0;

	if (dir == NULL)
		return 0;
	while ((d = readdir(dir)) != NULL) {
		uint64_t kib, pages = 0;
		char path[sizeof(HUGE_PATH) + sizeof(d->d_name) + 20];
		FILE *f;

		if (sscanf(d->d_name, "hugepages-%" SCNu64 "kB", &kib) != 1)
			continue;
		snprintf(path, sizeof(path), HUGE_PATH "/%s/free_hugepages", d->d_name);
		f = fopen(path, "re");
		if (f == NULL)
			continue;
		if (fscanf(f, "%" SCNu64, &pages) == 1)
			sum += pages * (kib << 10);
		fclose(f);
	}
	closedir(dir);
	return sum;
}

static uint64_t
machine_bytes(void)
{
	return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Returns the number of buffers that PSN windows and the rings of all ports can hold at once. */
static uint32_t
mbufs_wanted(const struct kd_conf *c)
{
	uint32_t n = c->engine.lcores.n, sum = MBUFS_OF_LCORE * (n + 1), i;

	if (c->engine.mbufs != 0)
		return c->engine.mbufs;
	if (c->engine.selective_repeat.n != 0 || c->engine.ece != KARST_ENGINE_ECE_OFF)
		sum += n * c->engine.held_frames;
	for (i = 0; i < c->nports; i++) {
		const struct kd_conf_port *p = &c->port[i];
		uint32_t rx_buffers = kd_port_needs(p).rx_buffers;

		if (rx_buffers != 0)
			sum += (p->lcores.n != 0 ? p->lcores.n : n) *
				(rx_buffers * p->rx_slots + p->tx_slots);
	}
	return sum;
}

static int
add_memory(struct args *a, const struct kd_conf *c, struct kd_eal *eal)
{
	uint64_t bytes = c->engine.memory, free_bytes = free_huge_bytes();

	eal->mbufs = mbufs_wanted(c);
	if (bytes == 0)
		bytes = EAL_BASE_BYTES + c->engine.lcores.n * EAL_LCORE_BYTES +
			(uint64_t)eal->mbufs * MBUF_BYTES;
	eal->huge = c->engine.huge_pages == KD_YES ||
		(c->engine.huge_pages == KD_AUTO && free_bytes >= bytes + HUGE_SPARE);
	if (eal->huge && free_bytes < bytes) {
		karst_log(KARST_LOG_ERR,
			"huge_pages = yes, but %" PRIu64 " MiB of them are free and %" PRIu64
			" are needed: raise vm.nr_hugepages, or set huge_pages = auto",
			free_bytes / MIB, (bytes + MIB - 1) / MIB);
		return -EIO;
	}
	if (!eal->huge && bytes > machine_bytes()) {
		karst_log(KARST_LOG_ERR,
			"the engine is to have %" PRIu64
			" MiB of memory, and the machine has %" PRIu64
			" MiB: make [engine] memory or mbufs less, or [port] rx_slots and tx_slots",
			bytes / MIB, machine_bytes() / MIB);
		return -EIO;
	}
	if (eal->huge)
		arg_add(a, "--in-memory");
	else
		arg_add(a, "--no-shconf");
	if (!eal->huge)
		arg_add(a, "--no-huge");
	/* Memory for an adapter's DMA is mapped while this process has the right to do that, all of
	 * it at once. */
	if (eal->huge && !kd_port_needs_any(c).dma)
		return 0;
	arg_add(a, "-m");
	arg_add(a, "%" PRIu64, (bytes + MIB - 1) / MIB);
	return 0;
}

/* --- devices, logs --- */

static void
add_devices(struct args *a, const struct kd_conf *c)
{
	uint32_t i, n = 0;

	for (i = 0; i < c->nports; i++) {
		char name[PCI_PRI_STR_SIZE];

		if (c->port[i].kind->eal_device == NULL)
			continue;
		c->port[i].kind->eal_device(&c->port[i], name, sizeof(name));
		arg_add(a, "-a");
		arg_add(a, "%s", name);
		n++;
	}
	if (n != 0)
		return;
	arg_add(a, "--no-pci");
	few_drivers_begin();
}

static void
add_logs(struct args *a, const struct kd_conf *c)
{
	static const char *const names[] = {"error", "warning", "notice", "info", "debug"};

	/* For types that are registered later, the first matching pattern applies.  Telemetry warns
	 * of sockets that other programs have left behind. */
	arg_add(a, "--log-level=lib.telemetry:error");
	arg_add(a, "--log-level=karst:%s", names[c->log.level]);
	arg_add(a, "--log-level=*:%s", names[c->log.dpdk_level]);
}

int
kd_eal_start(const struct kd_conf *c, struct kd_eal *eal)
{
	struct args a = {.num = 0};
	int rc;

	memset(eal, 0, sizeof(*eal));
	arg_add(&a, "karstd");
	arg_add(&a, "--file-prefix=%s", c->engine.name);
	rc = add_lcores(&a, c, eal);
	if (rc != 0) {
		karst_log(KARST_LOG_ERR, "the processors that may be used: %s", strerror(-rc));
		return -EIO;
	}
	rc = add_memory(&a, c, eal);
	if (rc != 0)
		return rc;
	add_devices(&a, c);
	add_logs(&a, c);
	if (rte_eal_init(a.num, a.argv) >= 0)
		return 0;
	karst_log(KARST_LOG_ERR, "DPDK does not start: %s; its own messages are above",
		rte_strerror(rte_errno));
	/* "Cannot init VFIO" is all that DPDK says of it, even if no device needs VFIO */
	if (access(SYS_MODULE, F_OK) != 0)
		karst_log(KARST_LOG_ERR,
			"DPDK needs " SYS_MODULE ", which is not there; systemd-nspawn has it with "
			"--bind-ro=" SYS_MODULE);
	return -EIO;
}
