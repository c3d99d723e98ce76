/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The engine whose devices a program will see. */
#ifndef KARST_RUN_ENGINE_H
#define KARST_RUN_ENGINE_H

#include "folder.h"
#include "opts.h"
#include "place.h"
#include "view.h"

struct kr_engine {
	struct kr_view view;
	/* A private engine ends when no process holds such a descriptor any more; -1: it is not
	 * private. */
	int hold;
};

/** Returns the socket that an option or variable names; NULL: none. */
const char *kr_engine_named(const struct kr_opts *o);

/**
 * Finds a running engine.  @return -1: go on; KR_EXIT_OK: the user has to get a private engine;
 * otherwise the exit status, after a message.
 */
int kr_engine_look(const struct kr_opts *o, struct kr_engine *e);

/**
 * Finds an engine or, where that is allowed, starts a private engine of this user in @folder.
 * @return -1: go on; otherwise the exit status, after a message.
 */
int kr_engine_find(const struct kr_opts *o, const struct kr_places *places, const char *folder,
	struct kr_engine *e);

#endif /* KARST_RUN_ENGINE_H */
