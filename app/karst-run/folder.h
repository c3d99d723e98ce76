/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The folder of this user's karst-runs: $XDG_RUNTIME_DIR/karst, or /tmp/karst-UID.  A process that
 * needs it creates it; the process that removes the last file from it removes the folder.  One in
 * /tmp stays, since another user could create it again.
 *
 * It is checked again when there is a file of ours in it.  From then on it cannot be replaced:
 * others cannot remove a folder that has files, nor rename one of ours in a folder such as /tmp.
 */
#ifndef KARST_RUN_FOLDER_H
#define KARST_RUN_FOLDER_H

#include <stddef.h>

/* Short enough that the path of a socket in it fits into its address. */
#define KR_FOLDER 64

/** Returns its path, whether or not it exists. */
void kr_folder_path(char *path);

/**
 * Creates it if necessary.  -EAGAIN: another process has removed it meanwhile; other -errno, after
 * a message: it belongs to another user, or cannot be created.
 */
int kr_folder_make(const char *path);

/** As kr_folder_make(), but does not create it. */
int kr_folder_check(const char *path);

/** Removes it if it is empty and not in /tmp. */
void kr_folder_leave(const char *path);

/**
 * Creates the folder if necessary, and waits for its lock.  @return a descriptor for
 * kr_folder_unlock(), or -errno after a message.
 */
int kr_folder_lock(const char *path);

/** Releases the lock and removes it, and leaves the folder. */
void kr_folder_unlock(const char *path, int lock);

#endif /* KARST_RUN_FOLDER_H */
