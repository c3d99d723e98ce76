/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Where the other parts of karst are: in a build directory, or installed. */
#ifndef KARST_RUN_PLACE_H
#define KARST_RUN_PLACE_H

#include <limits.h>
#include <stdbool.h>

/** What the file name of a provider ends with: libibverbs appends it by itself. */
#define KR_PROVIDER_END "-rdmav34.so"

struct kr_places {
	char provider[PATH_MAX]; /* where it is; or, if it is nowhere, where it should be */
	bool has_provider;
	char karstd[PATH_MAX];
	bool has_karstd;
};

/** @provider: NULL, or the one to use.  @return -1: go on; otherwise what to exit with, after a
 *  word: that one cannot be used. */
int kr_places_find(const char *provider, struct kr_places *p);

/** Where libkarst-sockets.so is.  @out: PATH_MAX bytes.  @return as kr_places_find() */
int kr_place_sockets(char *out);

#endif /* KARST_RUN_PLACE_H */
