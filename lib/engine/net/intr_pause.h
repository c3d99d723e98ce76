/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* EAL's interrupt thread stands still while devices are stopped and closed (intr_pause.c); what
 * programs call is in karst_engine.h. */
#ifndef ENG_INTR_PAUSE_H
#define ENG_INTR_PAUSE_H

/* To be called before the others, more than once if need be.  -errno */
int eng_intr_pause_init(void);

#endif /* ENG_INTR_PAUSE_H */
