/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Where the programs of exec.c and privileged.c have memory: at the same addresses, so that an
 * engine that takes one program for the other reads and writes the wrong program's memory. */
#ifndef HOSTILE_EXEC_H
#define HOSTILE_EXEC_H

#define EXEC_PRIVATE_AT ((void *)0x100000000000) /* private */
#define EXEC_SHARED_AT  ((void *)0x110000000000) /* a shared mapping of a memory file */
#define EXEC_BYTES      65536u
#define EXEC_SECRET     0x53

#endif /* HOSTILE_EXEC_H */
