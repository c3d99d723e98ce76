/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *
kr_engine_named(const struct kr_opts *o)
{
	const char *socket = o->socket != NULL ? o->socket : getenv("KARST_SOCKET");

	return socket != NULL && socket[0] != '\0' ? socket : NULL;
}

int
kr_engine_find(const struct kr_opts *o, const struct kr_places *places, const char *folder,
	struct kr_engine *e)
{
	const char *named = kr_engine_named(o), *why = NULL;
	const char *socket = named != NULL ? named : KARST_DEFAULT_SOCKET;

	(void)places;
	(void)folder;
	e->hold = -1;
	if (kr_view_take(socket, &e->view, &why) != 0)
		return kr_fail("%s", why);
	return -1;
}
