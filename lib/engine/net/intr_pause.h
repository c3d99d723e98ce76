/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Pauses EAL's interrupt thread while devices are stopped and closed (intr_pause.c); karst_engine.h
 * declares the functions for programs. */
#ifndef ENG_INTR_PAUSE_H
#define ENG_INTR_PAUSE_H

/* To be called before the other functions; further calls have no effect.  -errno */
int eng_intr_pause_init(void);

#endif /* ENG_INTR_PAUSE_H */
