/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A mount namespace in which the devices of an engine are where the kernel's would be: in
 * /sys/class, /dev/infiniband and /etc/libibverbs.d, for this process and the program that it
 * executes.
 *
 * Each of these folders is covered by one that has the same entries, as bind mounts, and karst's
 * entries in addition.  An overlay file system would do the same with one mount.  But in a user
 * namespace it may not cover /sys or /dev, because there are mounts below those that must not be
 * uncovered, and special files would not work through it there.  Nothing is left behind: the new
 * folders are in memory and end with the namespace.
 */
#ifndef KARST_RUN_NS_H
#define KARST_RUN_NS_H

#include "view.h"

enum kr_ns_kind {
	KR_NS_NONE,  /* neither is permitted */
	KR_NS_MOUNT, /* the process may mount */
	KR_NS_USER,  /* in a user namespace, in which user and group keep their numbers */
};

/** Does libibverbs have a folder of drivers here, which can be covered in a namespace? */
bool kr_ns_has_drivers(void);

const char *kr_ns_name(enum kr_ns_kind kind);

/** Prints the folders that are covered. */
void kr_ns_print(void);

/**
 * Enters the namespace.  The caller must be single-threaded.  @provider: the driver for
 * /etc/libibverbs.d.  *kind: the kind of namespace that was used.  @return 0, or -errno with a
 * sentence in @why (KR_NS_WHY bytes); after an error the process may be partly in the namespace,
 * and can only exit.
 */
#define KR_NS_WHY 256
int kr_ns_enter(const struct kr_view *v, const char *provider, enum kr_ns_kind *kind, char *why);

/** Does the same in a separate process to find out whether it works.  @return as above. */
int kr_ns_try(const struct kr_view *v, const char *provider, enum kr_ns_kind *kind, char *why);

#endif /* KARST_RUN_NS_H */
