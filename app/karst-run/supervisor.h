/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The supervisor process of a private engine: see private.h. */
#ifndef KARST_RUN_SUPERVISOR_H
#define KARST_RUN_SUPERVISOR_H

#include <limits.h>

#include "folder.h"
#include "opts.h"

struct kr_supervised {
	const char *karstd;
	const char *folder;
	unsigned int linger_s;
	char socket[KR_FOLDER + 16];
	char socket_lock[KR_FOLDER + 24];
	char conf[KR_FOLDER + 16];
	char alive[KR_FOLDER + 16];
	char log[PATH_MAX];
	bool log_is_ours; /* it is removed at the end */
	int log_fd;       /* open for writing when kr_supervisor_start() is called */
};

/** Fills in the paths; does nothing else. */
void kr_supervised_init(
	struct kr_supervised *k, const struct kr_opts *o, const char *karstd, const char *folder);

/** Removes the files of an engine that has no supervisor. */
void kr_supervised_remove(const struct kr_supervised *k);

/**
 * @return a descriptor from which karstd's status, as waitpid(2) returns it, can be read once it
 * has ended; or -errno.
 */
int kr_supervisor_start(const struct kr_supervised *k);

#endif /* KARST_RUN_SUPERVISOR_H */
