/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A mount namespace in which the devices of an engine are where the kernel's would be: in
 * /sys/class, /dev/infiniband and /etc/libibverbs.d, for this process and what it becomes.
 *
 * Each of these folders is covered by one that has the same entries, bound, and ours beside them.
 * An overlay file system would do the same with one mount, but may not lie over /sys or /dev in a
 * user namespace, because there are mounts below those that must not be uncovered; and special
 * files would not work through it there.  Nothing is left behind: the new folders are in memory
 * and end with the namespace.
 */
#ifndef KARST_RUN_NS_H
#define KARST_RUN_NS_H

#include "view.h"

enum kr_ns_kind {
	KR_NS_NONE,  /* neither is allowed */
	KR_NS_MOUNT, /* as one who may mount */
	KR_NS_USER,  /* in a user namespace, in which user and group keep their numbers */
};

/** Has libibverbs a folder of drivers here, in which a namespace can show it another one? */
bool kr_ns_has_drivers(void);

const char *kr_ns_name(enum kr_ns_kind kind);

/** Prints which folders are covered. */
void kr_ns_print(void);

/**
 * Goes there.  Single-threaded callers only.  @provider: the driver for /etc/libibverbs.d.
 * *kind: how it is done.  @return 0, or -errno with a sentence in @why (KR_NS_WHY bytes); the
 * process is then of no use for anything but to end, since it may be half there.
 */
#define KR_NS_WHY 256
int kr_ns_enter(const struct kr_view *v, const char *provider, enum kr_ns_kind *kind, char *why);

/** Does the same in a process of its own to see whether it can be done.  @return as above. */
int kr_ns_try(const struct kr_view *v, const char *provider, enum kr_ns_kind *kind, char *why);

#endif /* KARST_RUN_NS_H */
