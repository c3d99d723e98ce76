/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* --print: prints what karst-run would do. */
#ifndef KARST_RUN_PLAN_H
#define KARST_RUN_PLAN_H

#include "engine.h"
#include "ns.h"
#include "vars.h"

/** Prints an engine and its devices. */
void kr_plan_engine(const struct kr_view *v);

/** Prints a private engine without asking it, because it may have to be started first. */
void kr_plan_private(const struct kr_places *places, const char *folder);

/**
 * Prints how the program would see the devices.  @provider: the provider; @vars, @ns: as they would
 * be used; @hidden: the kernel's list is hidden.
 */
void kr_plan_program(const char *provider, const struct kr_vars *vars, enum kr_ns_kind ns,
	bool hidden, char **argv);

#endif /* KARST_RUN_PLAN_H */
