/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "run_folder.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OF_SYSTEMD "RUNTIME_DIRECTORY"
#define OF_USER    "XDG_RUNTIME_DIR"

static bool
is_usable(const char *folder)
{
	struct stat st;

	return folder != NULL && folder[0] == '/' && stat(folder, &st) == 0 &&
		S_ISDIR(st.st_mode) && st.st_uid == geteuid() && access(folder, W_OK | X_OK) == 0;
}

int
run_folder_choose(char *why, size_t len)
{
	char folder[sizeof("/tmp/dpdk-4294967295")];
	struct stat st;

	if (geteuid() == 0 || getenv(OF_SYSTEMD) != NULL || is_usable(getenv(OF_USER)))
		return 0;
	snprintf(folder, sizeof(folder), "/tmp/dpdk-%u", (unsigned int)geteuid());
	if ((mkdir(folder, 0700) != 0 && errno != EEXIST) || lstat(folder, &st) != 0) {
		int rc = -errno;

		snprintf(why, len, "making DPDK's folder %s: %s", folder, strerror(-rc));
		return rc;
	}
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
		snprintf(why, len,
			"%s must be a folder that is yours alone (mode 0700): remove it, or set " OF_USER
			" to one that is",
			folder);
		return -EPERM;
	}
	return setenv(OF_SYSTEMD, folder, 1) == 0 ? 0 : -errno;
}
