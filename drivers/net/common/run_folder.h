/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * DPDK keeps the sockets and the configuration of a process in a folder: in /var/run for root, in
 * XDG_RUNTIME_DIR for other users, and in /tmp/dpdk for users without that variable. /tmp/dpdk
 * belongs to the first user who needs it.  Programs of other users then do not start, or have no
 * telemetry.
 */
#ifndef KARST_RUN_FOLDER_H
#define KARST_RUN_FOLDER_H

#include <stddef.h>

/**
 * Call before rte_eal_init(): gives /tmp/dpdk-UID to a user who is not root and has no run-time
 * folder.  (An XDG_RUNTIME_DIR that belongs to another user, as su leaves it, does not count.)
 * DPDK learns the folder from systemd's RUNTIME_DIRECTORY, which has precedence over all of these.
 *
 * @return 0, or a negative errno with a sentence in @why: the folder cannot be created, or other
 * users have access to it.
 */
int run_folder_choose(char *why, size_t len);

#endif
