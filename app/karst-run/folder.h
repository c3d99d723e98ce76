/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The folder of this user's karst-runs: $XDG_RUNTIME_DIR/karst, or /tmp/karst-UID.  A process
 * that needs it makes it; the one that takes the last file out of it removes it.
 */
#ifndef KARST_RUN_FOLDER_H
#define KARST_RUN_FOLDER_H

#include <stddef.h>

/* Short enough that a socket in it has a path that fits its address. */
#define KR_FOLDER 64

/** Where it is, whether or not it is there. */
void kr_folder_path(char *path);

/** Makes it if need be.  -EAGAIN: somebody has removed it meanwhile; another -errno after a word:
 *  it is somebody else's, or cannot be made. */
int kr_folder_make(const char *path);

/** Makes it, too, and waits until nobody else has the lock in it.  @return a descriptor for
 *  kr_folder_unlock(), or -errno after a word. */
int kr_folder_lock(const char *path);

/** Gives the lock back and removes it, and the folder if there is nothing else in it. */
void kr_folder_unlock(const char *path, int lock);

#endif /* KARST_RUN_FOLDER_H */
