/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The reaper: a process that waits for the end of a program and of its descendants, and then
 * removes what was made for them.
 *
 * karst-run becomes the program, so that its process number, its terminal, its signals and its exit
 * status are the program's by nature.  Where something must be cleaned up afterwards, a reaper
 * stays behind.  It is no child of the program, which might wait for children, and has none of its
 * descriptors.  It waits for the end of the process, and then for the end of a pipe that the
 * program's descendants inherit.  So a program that closes all descriptors is waited for to its own
 * end, and one that goes into the background to the end of its last descendant.
 */
#ifndef KARST_RUN_REAPER_H
#define KARST_RUN_REAPER_H

/**
 * Starts a reaper for the calling process.  At the end it removes the folder @tree (NULL: none),
 * gives back @held (a descriptor that it keeps open; -1: none), and removes @folder if nothing else
 * is in it.  -errno, after a word.
 */
int kr_reaper_start(const char *folder, const char *tree, int held);

/** Makes the calling process one that belongs to nobody: its own session, no descriptors but
 *  @keep[0..n), quiet, and deaf to the signals of a terminal.  @name: for ps(1). */
void kr_reaper_detach(const char *name, const int *keep, unsigned int n);

#endif /* KARST_RUN_REAPER_H */
