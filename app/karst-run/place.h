/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Finds the other parts of karst: in a build directory, or installed. */
#ifndef KARST_RUN_PLACE_H
#define KARST_RUN_PLACE_H

#include <limits.h>
#include <stdbool.h>

/** The end of the file name of a provider, which libibverbs appends itself. */
#define KR_PROVIDER_END "-rdmav34.so"

struct kr_places {
	char provider[PATH_MAX]; /* its path; if it was not found, where it should be */
	bool has_provider;
	char karstd[PATH_MAX];
	bool has_karstd;
};

/**
 * @provider: NULL, or the one to use.  @return -1: go on; otherwise the exit status, after a
 * message: that provider cannot be used.
 */
int kr_places_find(const char *provider, struct kr_places *p);

/** Finds libkarst-sockets.so.  @out: PATH_MAX bytes.  @return as kr_places_find() */
int kr_place_sockets(char *out);

#endif /* KARST_RUN_PLACE_H */
