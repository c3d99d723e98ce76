/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The sockets of net_memif (intr_socket.c). */
#ifndef ENG_INTR_SOCKET_H
#define ENG_INTR_SOCKET_H

#include <stdbool.h>

/* Whether @code is an address in net_memif's code. */
bool eng_intr_is_memif(const void *code);

#endif /* ENG_INTR_SOCKET_H */
