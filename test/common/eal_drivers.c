/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Linked into a test with an EAL in each of its cases: that EAL has the drivers that the test is
 * linked with, and no others.  An EAL of shared libraries loads all drivers of the system, more
 * than a hundred and the libraries that they need, which takes longer than many cases; a static
 * one does not.  It finds out which it is by asking for its own library, and is told here that it
 * is static.  (drivers/net/common/few_drivers.h is what karstd and karst-perf have.)
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EAL_LIBRARY "librte_eal.so"

void *
dlopen(const char *file, int mode)
{
	void *(*real)(const char *, int) =
		(void *(*)(const char *, int))(uintptr_t)dlsym(RTLD_NEXT, "dlopen");

	if (file != NULL && (mode & RTLD_NOLOAD) != 0 &&
		strncmp(file, EAL_LIBRARY, sizeof(EAL_LIBRARY) - 1) == 0)
		return NULL;
	return real(file, mode);
}
