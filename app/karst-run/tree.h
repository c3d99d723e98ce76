/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The part of sysfs that describes RDMA devices, with those of an engine in it.
 *
 * It is a picture of the moment: what changes at the engine later (a port's addresses, its link)
 * shows in programs that are started later.  libibverbs takes GIDs and P_Keys from here, the rest
 * its provider asks the engine for.  The provider finds the engine by two files that the kernel
 * does not have, karst/socket and karst/port.
 */
#ifndef KARST_RUN_TREE_H
#define KARST_RUN_TREE_H

#include "view.h"

/** The number that every device's node has: that of /dev/full, which takes no write and says so,
 *  should one get past the provider. */
#define KR_NODE_TARGET "/dev/full"
/** The connection manager's node, and what sysfs calls it. */
#define KR_RDMA_CM "rdma_cm"

/**
 * Makes class/infiniband, class/infiniband_verbs and class/misc in the folder @dir, which has no
 * class yet.  Devices that the kernel has are in it as links into /sys.  -errno
 */
int kr_tree_write(int dir, const struct kr_view *v);

/** Makes the nodes of the devices and of the connection manager, links to KR_NODE_TARGET, in
 *  @folder in @dir. */
int kr_tree_nodes(int dir, const char *folder, const struct kr_view *v);

/** Makes @folder/karst.driver in @dir, by which libibverbs finds @provider. */
int kr_tree_driver(int dir, const char *folder, const char *provider);

/** Makes @path, a file relative to @dir with the folders it is in. */
int kr_tree_put(int dir, const char *path, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/** Removes everything in the folder @dir of which @path is the name, and the folder. */
void kr_tree_remove(const char *path);

#endif /* KARST_RUN_TREE_H */
