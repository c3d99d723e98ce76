/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "private.h"

const char *
kr_engine_named(const struct kr_opts *o)
{
	const char *socket = o->socket != NULL ? o->socket : getenv("KARST_SOCKET");

	return socket != NULL && socket[0] != '\0' ? socket : NULL;
}

/* Uses the machine's engine, if there is one that this user may use.  @return as
 * kr_engine_look(). */
static int
take_default(struct kr_engine *e)
{
	const char *why;

	switch (kr_view_take(KARST_DEFAULT_SOCKET, &e->view, &why)) {
	case 0:
		return -1;
	case -ENOENT:
	case -ECONNREFUSED:
		return KR_EXIT_OK;
	case -EACCES:
		kr_fail("%s; a private engine is used instead", why);
		return KR_EXIT_OK;
	default:
		return kr_fail("%s; --private uses another engine", why);
	}
}

int
kr_engine_look(const struct kr_opts *o, struct kr_engine *e)
{
	const char *named = kr_engine_named(o), *why;
	int rc;

	e->hold = -1;
	if (o->private_engine)
		return KR_EXIT_OK;
	if (named == NULL)
		return take_default(e);
	rc = kr_view_take(named, &e->view, &why);
	if (rc == 0)
		return -1;
	return kr_fail("%s%s", why,
		rc == -ENOENT || rc == -ECONNREFUSED
			? " --private starts an engine for this program"
			: "");
}

int
kr_engine_find(const struct kr_opts *o, const struct kr_places *places, const char *folder,
	struct kr_engine *e)
{
	int rc = kr_engine_look(o, e);

	return rc == KR_EXIT_OK ? kr_private_join(o, places, folder, &e->view, &e->hold) : rc;
}
