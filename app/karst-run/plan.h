/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* --print: what karst-run would do, in lines. */
#ifndef KARST_RUN_PLAN_H
#define KARST_RUN_PLAN_H

#include "engine.h"
#include "ns.h"
#include "vars.h"

/** An engine and its devices. */
void kr_plan_engine(const struct kr_view *v);

/** A private engine that is not asked, because it may have to be started first. */
void kr_plan_private(const struct kr_places *places, const char *folder);

/** How the program would see them.  @provider: who serves them.  @vars, @ns: as it would be run;
 *  @hidden: the kernel's list. */
void kr_plan_program(const char *provider, const struct kr_vars *vars, enum kr_ns_kind ns,
	bool hidden, char **argv);

#endif /* KARST_RUN_PLAN_H */
