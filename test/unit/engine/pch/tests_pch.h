/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* What most tests of the engine include, compiled once: <rte_ethdev.h> brings all vector
 * intrinsics of the compiler.  A file still includes what it uses. */
#include <criterion/criterion.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
