/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "opts.h"
#include "place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "karst_base.h"

#define PROVIDER "libkarst" KR_PROVIDER_END
#define SOCKETS  "libkarst-sockets.so"

/* Returns the folder of this program's file. */
static void
own_folder(char *out, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", out, size - 1);
	char *slash;

	out[n > 0 ? n : 0] = '\0';
	slash = strrchr(out, '/');
	if (slash != NULL)
		*slash = '\0';
}

/* Finds the first existing path of @where, relative to @from unless absolute; if there is none,
 * returns the last. */
static bool
place_find(const char *from, const char *const *where, unsigned int n, char *out)
{
	char path[PATH_MAX];
	unsigned int i;
	int len;

	for (i = 0; i < n; i++) {
		if (where[i][0] == '/')
			len = snprintf(path, sizeof(path), "%s", where[i]);
		else
			len = snprintf(path, sizeof(path), "%s/%s", from, where[i]);
		/* a truncated path may be that of another file */
		if ((size_t)len < sizeof(path) && access(path, F_OK) == 0 &&
			realpath(path, out) != NULL)
			return true;
	}
	snprintf(out, PATH_MAX, "%s", path);
	return false;
}

/* The path is used in lists with these separators. */
static int
check_provider(const char *path)
{
	size_t n = strlen(path), end = strlen(KR_PROVIDER_END);

	if (n <= end || strcmp(path + n - end, KR_PROVIDER_END) != 0)
		return kr_fail(
			"%s: the name of a provider ends with \"" KR_PROVIDER_END "\"", path);
	if (strpbrk(path, " \t\n:;") != NULL)
		return kr_fail(
			"%s: libibverbs takes no provider with a blank, ':' or ';' in its path",
			path);
	return -1;
}

int
kr_places_find(const char *provider, struct kr_places *p)
{
	static const char *const providers[] = {
		"../../drivers/verbs/" PROVIDER,            /* build directory */
		"../" KARST_LIBDIR "/libibverbs/" PROVIDER, /* installed with any prefix */
		KARST_PREFIX "/" KARST_LIBDIR "/libibverbs/" PROVIDER,
	};
	static const char *const karstds[] = {
		"../karstd/karstd",
		"../" KARST_SBINDIR "/karstd",
		KARST_PREFIX "/" KARST_SBINDIR "/karstd",
	};
	char from[PATH_MAX];

	memset(p, 0, sizeof(*p));
	own_folder(from, sizeof(from));
	p->has_karstd = place_find(from, karstds, KARST_DIM(karstds), p->karstd);
	if (provider == NULL) {
		p->has_provider = place_find(from, providers, KARST_DIM(providers), p->provider);
	} else {
		if (realpath(provider, p->provider) == NULL)
			return kr_fail("--provider %s: %s", provider, strerror(errno));
		p->has_provider = true;
	}
	return check_provider(p->provider);
}

int
kr_place_sockets(char *out)
{
	static const char *const where[] = {
		"../../drivers/sockets/" SOCKETS, /* build directory */
		"../" KARST_LIBDIR "/karst/" SOCKETS,
		KARST_PREFIX "/" KARST_LIBDIR "/karst/" SOCKETS,
	};
	char from[PATH_MAX];

	own_folder(from, sizeof(from));
	if (!place_find(from, where, KARST_DIM(where), out))
		return kr_fail("%s is not there: build or install all of karst", out);
	if (strpbrk(out, " \t\n:") != NULL)
		return kr_fail("%s: LD_PRELOAD takes no path with a blank or ':'", out);
	return -1;
}
