/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* --doctor: checks whether everything is there that a verbs program over karst needs. */
#ifndef KARST_RUN_DOCTOR_H
#define KARST_RUN_DOCTOR_H

#include "opts.h"
#include "place.h"

/**
 * Prints a line for each check: "ok", "note" or "wrong", and what to do about it.  @return
 * KR_EXIT_OK or KR_EXIT_UNWELL.
 */
int kr_doctor(const struct kr_opts *o, const struct kr_places *places, const char *folder);

#endif /* KARST_RUN_DOCTOR_H */
