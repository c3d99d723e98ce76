/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The kernel's own list of RDMA devices.
 *
 * libibverbs asks for it through a socket of the family NETLINK_RDMA, and reads sysfs only if there
 * is no such family.  But karst's devices are only in sysfs.  If the kernel has that family (its
 * RDMA core is loaded, or can be), the program must not see it: a seccomp filter answers that one
 * call.  Real adapters are found all the same, because they are in sysfs as well.
 */
#ifndef KARST_RUN_HIDE_H
#define KARST_RUN_HIDE_H

#include <stdbool.h>

enum kr_netlink { KR_NETLINK_AUTO, KR_NETLINK_HIDE, KR_NETLINK_KEEP };

/**
 * Can such a socket be created?  Trying loads the kernel's RDMA core if it can be loaded, as
 * libibverbs' own attempt would.
 */
bool kr_netlink_present(void);

/** Has the list to be hidden from the program?  @present: as above; not called if @want decides. */
bool kr_netlink_hides(enum kr_netlink want, bool (*present)(void));

/**
 * Hides it from now on, for this thread and the program that it executes.  -errno: the kernel has
 * no seccomp.
 */
int kr_netlink_hide(void);

#endif /* KARST_RUN_HIDE_H */
