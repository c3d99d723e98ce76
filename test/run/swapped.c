/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Preloaded into karst-run: its folder, which the environment variable KARST_SWAPPED names, is
 * replaced by one that everybody may write to, as soon as karst-run has checked it for the first
 * time.  Another user could do that if the folder was removed meanwhile.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int
lstat(const char *path, struct stat *st)
{
	static bool swapped;
	int (*real)(const char *, struct stat *) = dlsym(RTLD_NEXT, "lstat");
	const char *folder = getenv("KARST_SWAPPED");
	int rc = real(path, st);

	if (rc != 0 || swapped || folder == NULL || strcmp(path, folder) != 0 ||
		strcmp(program_invocation_short_name, "karst-run") != 0)
		return rc;
	swapped = true;
	if (rmdir(path) != 0 || mkdir(path, 0700) != 0 || chmod(path, 0777) != 0)
		abort();
	return rc;
}
