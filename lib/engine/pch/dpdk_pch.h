/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* What most files of lib/engine include, compiled once: <rte_mempool.h> brings all vector
 * intrinsics of the compiler, which takes half of the time of most files.  A file still includes
 * what it uses. */
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_rcu_qsbr.h>
#include <rte_ring.h>
