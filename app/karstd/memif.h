/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Clients of net_memif (memif.c). */
#ifndef KARSTD_MEMIF_H
#define KARSTD_MEMIF_H

#include <stdint.h>

/**
 * A started net_memif of role client, if it has no link, asks its server for a connection.  What
 * has begun of an earlier one is given up.
 * @return 0: asked, and the link comes if the server wants it; -ENOTCONN: nobody listens;
 * -ENOTSUP: its driver cannot be asked, now or at all.
 */
int kd_memif_ask(uint16_t ethdev);

#endif /* KARSTD_MEMIF_H */
