/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Clients of net_memif (memif.c). */
#ifndef KARSTD_MEMIF_H
#define KARSTD_MEMIF_H

#include <stdint.h>

/**
 * Makes a started net_memif of role client ask its server for a connection, if it has no link.  An
 * earlier attempt that has not finished is given up.
 * @return 0: asked, and the link comes up if the server accepts; -ENOTCONN: no server listens;
 * -ENOTSUP: the driver cannot be made to ask, now or at all.
 */
int kd_memif_ask(uint16_t ethdev);

#endif /* KARSTD_MEMIF_H */
