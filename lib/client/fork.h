/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#ifndef KARST_CLIENT_FORK_H
#define KARST_CLIENT_FORK_H

/** Installs the fork handlers, once in a process, before memory is migrated.  -ENOMEM */
int cli_fork_init(void);

#endif /* KARST_CLIENT_FORK_H */
