/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The process that keeps a private engine: see private.h. */
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
	bool log_is_ours; /* removed in the end */
	int log_fd;       /* open for writing when kr_supervisor_start() is called */
};

/** Says what is where; does nothing. */
void kr_supervised_init(
	struct kr_supervised *k, const struct kr_opts *o, const char *karstd, const char *folder);

/** Removes what is in the folder for an engine that nobody keeps. */
void kr_supervised_remove(const struct kr_supervised *k);

/** @return a descriptor from which karstd's status can be read, as waitpid(2) gives it, once it
 *  has ended; or -errno. */
int kr_supervisor_start(const struct kr_supervised *k);

#endif /* KARST_RUN_SUPERVISOR_H */
