/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The kernel's own list of RDMA devices.
 *
 * libibverbs asks for it by a socket of the family NETLINK_RDMA, and reads sysfs only if there is
 * no such family.  Where the kernel has one (its RDMA core is loaded, or can be), karst's devices
 * are in sysfs only, so that family must seem absent to the program: a seccomp filter answers
 * that one call.  Real adapters are found all the same, because sysfs has them, too.
 */
#ifndef KARST_RUN_HIDE_H
#define KARST_RUN_HIDE_H

#include <stdbool.h>

enum kr_netlink { KR_NETLINK_AUTO, KR_NETLINK_HIDE, KR_NETLINK_KEEP };

/** Can such a socket be made?  Asking loads the kernel's RDMA core if it can be loaded, as
 *  libibverbs' own question would. */
bool kr_netlink_present(void);

/** Whether to hide it from the program.  @present: as above; not asked if @want decides. */
bool kr_netlink_hides(enum kr_netlink want, bool (*present)(void));

/** From here on, for this thread and what it becomes.  -errno: the kernel has no seccomp. */
int kr_netlink_hide(void);

#endif /* KARST_RUN_HIDE_H */
