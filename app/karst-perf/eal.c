/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "eal.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>

#include "few_drivers.h"
#include "run_folder.h"

#define EAL_MAX_ARGS (PERF_MAX_EAL_ARGS + 16u)
#define ARG_BYTES    256u
#define HUGE_PATH    "/sys/kernel/mm/hugepages"

/* EAL's command line under construction. */
struct args {
	int num;
	char *argv[EAL_MAX_ARGS + 1];
	char text[16][ARG_BYTES];
	int texts;
};

static void
arg_add(struct args *a, const char *word)
{
	assert(a->num < (int)EAL_MAX_ARGS);
	/* EAL keeps and reorders the pointers, and does not write to the words */
	a->argv[a->num++] = (char *)(uintptr_t)word;
}

__attribute__((format(printf, 2, 3))) static void
arg_addf(struct args *a, const char *fmt, ...)
{
	char *to = a->text[a->texts++];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(to, ARG_BYTES, fmt, ap);
	va_end(ap);
	arg_add(a, to);
}

uint64_t
perf_eal_free_memory(void)
{
	FILE *f = fopen("/proc/meminfo", "r");
	uint64_t kib = 0;
	char line[128];

	if (f != NULL) {
		while (fgets(line, sizeof(line), f) != NULL)
			if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
				break;
		fclose(f);
	}
	return kib != 0 ? kib << 10
			: (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Bytes of free huge pages of all sizes. */
static uint64_t
free_huge(void)
{
	DIR *dir = opendir(HUGE_PATH);
	struct dirent *d;
	uint64_t sum = 0;

	if (dir == NULL)
		return 0;
	while ((d = readdir(dir)) != NULL) {
		uint64_t kib, pages = 0;
		char path[512];
		FILE *f;

		if (sscanf(d->d_name, "hugepages-%" SCNu64 "kB", &kib) != 1)
			continue;
		snprintf(path, sizeof(path), HUGE_PATH "/%s/free_hugepages", d->d_name);
		f = fopen(path, "r");
		if (f == NULL)
			continue;
		if (fscanf(f, "%" SCNu64, &pages) == 1)
			sum += pages * (kib << 10);
		fclose(f);
	}
	closedir(dir);
	return sum;
}

/* Does one of the user's options begin with one of @names? */
static bool
user_has(const struct perf_opts *o, const char *const *names, uint32_t num)
{
	uint32_t i, k;

	for (i = 0; i < o->num_eal_args; i++)
		for (k = 0; k < num; k++)
			if (strncmp(o->eal_args[i], names[k], strlen(names[k])) == 0)
				return true;
	return false;
}

/* The workers use the last allowed processors; the main thread may use any. */
static int
add_lcores(struct args *a, const struct perf_opts *o, struct perf_eal *eal)
{
	char main_cpus[128] = "", workers[64] = "";
	int cpu, last = -1, before = -1;
	cpu_set_t set;
	size_t len = 0;

	if (sched_getaffinity(0, sizeof(set), &set) != 0) {
		perror("karst-perf: sched_getaffinity");
		return 1;
	}
	eal->num_cpus = (uint32_t)CPU_COUNT(&set);
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &set))
			continue;
		before = last;
		last = cpu;
		if (len < sizeof(main_cpus) - 8)
			len += (size_t)snprintf(main_cpus + len, sizeof(main_cpus) - len, "%s%d",
				len == 0 ? "" : ",", cpu);
	}
	if (before < 0)
		before = last; /* one processor for everything */
	if (o->lcores == 1)
		snprintf(workers, sizeof(workers), "1@%d", last);
	else
		snprintf(workers, sizeof(workers), "1@%d,2@%d", last, before);
	arg_addf(a, "--lcores=0@(%s),%s", main_cpus, workers);
	return 0;
}

static void
add_memory(struct args *a, const struct perf_opts *o, uint64_t bytes, struct perf_eal *eal)
{
	static const char *const own[] = {"--no-huge", "-m", "--socket-mem", "--huge",
		"--legacy-mem", "--single-file-segments"};

	if (user_has(o, own, KARST_DIM(own))) {
		static const char *const none[] = {"--no-huge"};

		eal->huge = !user_has(o, none, 1);
		return;
	}
	eal->huge = free_huge() >= bytes;
	if (eal->huge) {
		arg_add(a, "--in-memory");
		return;
	}
	/* EAL does not accept --in-memory with --no-huge; this has the same effect */
	arg_add(a, "--no-shconf");
	arg_add(a, "--no-huge");
	arg_addf(a, "-m");
	arg_addf(a, "%" PRIu64, (bytes >> 20) + 1);
}

/* Which workers EAL has started, and where. */
static int
find_workers(const struct perf_opts *o, struct perf_eal *eal)
{
	unsigned int lcore;
	uint32_t n = 0;

	RTE_LCORE_FOREACH_WORKER(lcore)
	{
		rte_cpuset_t set;
		int cpu;

		if (n == o->lcores)
			break;
		set = rte_lcore_cpuset(lcore);
		for (cpu = 0; cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &set); cpu++)
			;
		eal->lcores[n] = lcore;
		eal->cpus[n++] = cpu;
	}
	if (n == o->lcores)
		return 0;
	fprintf(stderr,
		"karst-perf: the EAL options leave %u worker lcores; allowed: a main lcore and at "
		"least %u workers, as in -l 0-%u\n",
		n, o->lcores, o->lcores);
	return 2;
}

int
perf_eal_start(const struct perf_opts *o, uint64_t bytes, struct perf_eal *eal)
{
	static const char *const cores[] = {"-l", "-c", "--lcores", "-s", "-S"};
	static const char *const logs[] = {"--log-level"};
	struct args a = {.num = 0};
	char why[256];
	uint32_t i;
	int rc;

	memset(eal, 0, sizeof(*eal));
	if (run_folder_choose(why, sizeof(why)) != 0) {
		fprintf(stderr, "karst-perf: %s\n", why);
		return 1;
	}
	arg_add(&a, "karst-perf");
	if (user_has(o, cores, KARST_DIM(cores)))
		eal->num_cpus = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
	else if ((rc = add_lcores(&a, o, eal)) != 0)
		return rc;
	arg_add(&a, "--no-pci");
	if (!user_has(o, logs, 1)) {
		/* for log types that are registered later, the first matching pattern counts */
		arg_add(&a, "--log-level=lib.telemetry:error");
		arg_add(&a, "--log-level=*:warning");
	}
	add_memory(&a, o, bytes, eal);
	/* devices that the user names may need any driver */
	if (o->num_vdevs == 0 && o->num_eal_args == 0)
		few_drivers_begin();
	for (i = 0; i < o->num_vdevs; i++)
		arg_addf(&a, "--vdev=%s", o->vdevs[i]);
	for (i = 0; i < o->num_eal_args; i++)
		arg_add(&a, o->eal_args[i]);
	if (rte_eal_init(a.num, a.argv) < 0) {
		fprintf(stderr, "karst-perf: DPDK does not start: %s; its own words are above\n",
			rte_strerror(rte_errno));
		return o->num_eal_args + o->num_vdevs != 0 && rte_errno == EINVAL ? 2 : 1;
	}
	return find_workers(o, eal);
}

int
perf_eal_start_attached(struct perf_eal *eal)
{
	struct args a = {.num = 0};
	char cpus[256] = "";
	int cpu, last = -1;
	size_t len = 0;
	cpu_set_t set;

	memset(eal, 0, sizeof(*eal));
	if (sched_getaffinity(0, sizeof(set), &set) != 0) {
		perror("karst-perf: sched_getaffinity");
		return 1;
	}
	eal->num_cpus = (uint32_t)CPU_COUNT(&set);
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &set))
			continue;
		if (len < sizeof(cpus) - 8)
			len += (size_t)snprintf(
				cpus + len, sizeof(cpus) - len, "%s%d", len == 0 ? "" : ",", cpu);
		last = cpu;
	}
	eal->cpus[0] = last;
	arg_add(&a, "karst-perf");
	arg_addf(&a, "--lcores=0@(%s)", cpus);
	arg_add(&a, "--no-pci");
	arg_add(&a, "--no-huge");
	arg_add(&a, "--no-shconf");
	arg_add(&a, "--no-telemetry");
	arg_add(&a, "--log-level=*:warning");
	arg_add(&a, "-m");
	arg_add(&a, "32");
	few_drivers_begin();
	if (rte_eal_init(a.num, a.argv) < 0) {
		fprintf(stderr, "karst-perf: DPDK does not start: %s; its own words are above\n",
			rte_strerror(rte_errno));
		return 1;
	}
	return 0;
}
