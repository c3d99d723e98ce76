/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* What most files of these drivers include, compiled once a driver: <rte_ethdev.h> brings all
 * vector intrinsics of the compiler.  A file still includes what it uses. */
#include <rte_ethdev.h>
#include <rte_mbuf.h>
