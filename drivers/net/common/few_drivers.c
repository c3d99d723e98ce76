/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* See few_drivers.h. */
#include "few_drivers.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <rte_build_config.h>
#include <rte_eal.h>

#define FEW_EAL "librte_eal.so"

static bool few_drivers;

/* Handlers of mempools: DPDK's default, which drivers ask for, and the handler of an engine's
 * frames. */
static const char *const few_mempools[] = {"mempool_ring", "mempool_stack"};

/* Virtual devices whose driver does not use another driver; NULL: the driver is part of this
 * program. */
static const struct {
	const char *device,
		*driver; /* prefixes of names; the bus of virtual devices matches them in the
			  * same way */
} few_known[] = {
	{"net_kport", NULL},
	{"net_impair", NULL},
	{"net_af_packet", "net_af_packet"},
	{"net_af_xdp", "net_af_xdp"},
	{"net_memif", "net_memif"},
	{"net_null", "net_null"},
	{"net_pcap", "net_pcap"},
	{"net_ring", "net_ring"},
	{"net_tap", "net_tap"},
	{"net_tun", "net_tap"},
	{"net_vhost", "net_vhost"},
	{"net_virtio_user", "net_virtio"},
};

/*
 * Overrides libc's dlopen().  EAL calls it with RTLD_NOLOAD for its own library, to find out
 * whether it is a shared library and has to load drivers.  There is no option that prevents that.
 */
void *
dlopen(const char *file, int mode)
{
	void *(*real)(const char *, int) =
		(void *(*)(const char *, int))(uintptr_t)dlsym(RTLD_NEXT, "dlopen");

	if (few_drivers && file != NULL && (mode & RTLD_NOLOAD) != 0 &&
		strncmp(file, FEW_EAL, sizeof(FEW_EAL) - 1) == 0)
		return NULL;
	return real(file, mode);
}

static int
few_open(const char *file, char *why, size_t len)
{
	char path[sizeof(RTE_EAL_PMD_PATH) + 300];

	snprintf(path, sizeof(path), "%s/%.256s", RTE_EAL_PMD_PATH, file);
	if (dlopen(path, RTLD_NOW) != NULL)
		return 0;
	snprintf(why, len, "DPDK's driver %s is not loaded: %s", path, dlerror());
	return -ENOENT;
}

static int
few_open_driver(const char *driver, char *why, size_t len)
{
	char file[64];

	snprintf(file, sizeof(file), "librte_%s.so", driver);
	return few_open(file, why, len);
}

static int
few_open_all(char *why, size_t len)
{
	DIR *dir = opendir(RTE_EAL_PMD_PATH);
	const struct dirent *d;
	int rc = 0;

	if (dir == NULL) {
		snprintf(why, len, "DPDK's drivers in %s: %s", RTE_EAL_PMD_PATH, strerror(errno));
		return -ENOENT;
	}
	while (rc == 0 && (d = readdir(dir)) != NULL) {
		size_t n = strlen(d->d_name);

		if (n > 3 && strcmp(d->d_name + n - 3, ".so") == 0)
			rc = few_open(d->d_name, why, len);
	}
	closedir(dir);
	return rc;
}

/* If EAL is part of this program, so are the drivers, and none can be loaded. */
static bool
few_is_shared(void)
{
	const char *base;
	Dl_info info;

	if (dladdr((void *)(uintptr_t)rte_eal_init, &info) == 0 || info.dli_fname == NULL)
		return false;
	base = strrchr(info.dli_fname, '/');
	base = base != NULL ? base + 1 : info.dli_fname;
	return strncmp(base, FEW_EAL, sizeof(FEW_EAL) - 1) == 0;
}

void
few_drivers_begin(void)
{
	char why[512];
	size_t i;

	few_drivers = few_is_shared();
	for (i = 0; few_drivers && i < sizeof(few_mempools) / sizeof(few_mempools[0]); i++)
		few_drivers = few_open_driver(few_mempools[i], why, sizeof(why)) == 0;
}

int
few_drivers_load(const char *name, char *why, size_t len)
{
	size_t i;

	if (!few_drivers)
		return 0;
	for (i = 0; i < sizeof(few_known) / sizeof(few_known[0]); i++)
		if (strncmp(name, few_known[i].device, strlen(few_known[i].device)) == 0)
			return few_known[i].driver == NULL
				? 0
				: few_open_driver(few_known[i].driver, why, len);
	return few_open_all(why, len);
}
