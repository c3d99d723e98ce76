/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * DPDK keeps the sockets and the configuration of a process in a folder: in /var/run of root, in
 * XDG_RUNTIME_DIR of others, and in /tmp/dpdk of those who have no such variable.  /tmp/dpdk is the
 * first user's who comes there, and another one's programs do not start, or have no telemetry.
 */
#ifndef KARST_RUN_FOLDER_H
#define KARST_RUN_FOLDER_H

#include <stddef.h>

/**
 * Before rte_eal_init(): a user who is not root and has no run-time folder (an XDG_RUNTIME_DIR of
 * another user, as su leaves it behind, is none) gets /tmp/dpdk-UID.  RUNTIME_DIRECTORY of systemd,
 * which goes before all of these, says so to DPDK.
 *
 * @return 0, or a negative errno with a sentence in @why: that folder cannot be made, or is not the
 * user's alone.
 */
int run_folder_choose(char *why, size_t len);

#endif
