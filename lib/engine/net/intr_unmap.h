/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Ensures that EAL's interrupt thread unmaps nothing that an lcore may be using (intr_unmap.c). */
#ifndef ENG_INTR_UNMAP_H
#define ENG_INTR_UNMAP_H

#include "lcore.h"

/* From now on the interrupt thread waits for the lcores of @e; none may be attached before.  Any
 * thread, also one that has lcores of other engines. */
void eng_intr_unmap_add(struct karst_engine *e);
/* No lcore of @e is attached any more. */
void eng_intr_unmap_del(struct karst_engine *e);

/* For a thread that waits for the interrupt thread, which may wait for lcores of any engine: serves
 * the lcores that are attached to the calling thread. */
void eng_intr_serve_mine(void);

#endif /* ENG_INTR_UNMAP_H */
