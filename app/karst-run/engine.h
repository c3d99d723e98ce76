/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The engine whose devices a program is to see. */
#ifndef KARST_RUN_ENGINE_H
#define KARST_RUN_ENGINE_H

#include "folder.h"
#include "opts.h"
#include "place.h"
#include "view.h"

struct kr_engine {
	struct kr_view view;
	/* A private engine ends when nobody holds one of these any more; -1: it is not private. */
	int hold;
};

/** The socket that is named, by option or variable; NULL: none is. */
const char *kr_engine_named(const struct kr_opts *o);

/** Finds one that runs.  @return -1: go on; KR_EXIT_OK: a private one is what the user is to have;
 *  otherwise what to exit with, after a word. */
int kr_engine_look(const struct kr_opts *o, struct kr_engine *e);

/** Finds one or, where that is allowed, starts one of this user's own in @folder.
 *  @return -1: go on; otherwise what to exit with, after a word. */
int kr_engine_find(const struct kr_opts *o, const struct kr_places *places, const char *folder,
	struct kr_engine *e);

#endif /* KARST_RUN_ENGINE_H */
