/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* A listening socket of net_memif goes with its port (intr_listener.c). */
#ifndef ENG_INTR_LISTENER_H
#define ENG_INTR_LISTENER_H

#include <stdbool.h>

/* Is it net_memif whose code this is? */
bool eng_intr_is_memif(const void *code);

#endif /* ENG_INTR_LISTENER_H */
