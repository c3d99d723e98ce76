/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The part of sysfs that describes RDMA devices, including those of an engine.
 *
 * It is a snapshot: later changes of the engine (addresses of a port, its link) are seen by
 * programs that are started later. libibverbs reads GIDs and P_Keys from here; its provider asks
 * the engine for everything else.  The provider finds the engine by two files that the kernel does
 * not have, karst/socket and karst/port.
 */
#ifndef KARST_RUN_TREE_H
#define KARST_RUN_TREE_H

#include "view.h"

/**
 * The device number of every node: that of /dev/full, on which each write fails with an error, if
 * one should get past the provider.
 */
#define KR_NODE_TARGET "/dev/full"
/** The node of the connection manager, and its name in sysfs. */
#define KR_RDMA_CM "rdma_cm"

/**
 * Creates class/infiniband, class/infiniband_verbs and class/misc in the folder @dir, which has no
 * class yet.  The kernel's own devices are included as links into /sys.  -errno
 */
int kr_tree_write(int dir, const struct kr_view *v);

/**
 * Creates the nodes of the devices and of the connection manager, as links to KR_NODE_TARGET, in
 * @folder in @dir.
 */
int kr_tree_nodes(int dir, const char *folder, const struct kr_view *v);

/** Creates @folder/karst.driver in @dir, by which libibverbs finds @provider. */
int kr_tree_driver(int dir, const char *folder, const char *provider);

/** Creates the file @path, relative to @dir, and the folders above it. */
int kr_tree_put(int dir, const char *path, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/** Removes the folder @path and everything in it. */
void kr_tree_remove(const char *path);

#endif /* KARST_RUN_TREE_H */
