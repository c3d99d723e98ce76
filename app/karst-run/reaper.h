/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The reaper: a process that waits for the end of a program and of its descendants, and then
 * removes what was created for them.
 *
 * karst-run executes the program in its own process, so that process number, terminal, signals and
 * exit status are those of the program.  If something has to be cleaned up afterwards, a reaper
 * stays behind.  It is not a child of the program, which might wait for children, and has none of
 * its descriptors.  It waits for the end of the process, and then for the end of a pipe that the
 * program's descendants inherit.  So for a program that closes all descriptors it waits until the
 * program itself ends, and for one that goes into the background until its last descendant ends.
 */
#ifndef KARST_RUN_REAPER_H
#define KARST_RUN_REAPER_H

/**
 * Starts a reaper for the calling process.  At the end it removes the folder @tree (NULL: none),
 * closes @held (a descriptor that it keeps open; -1: none), and removes @folder if that is empty.
 * -errno, after a message.
 */
int kr_reaper_start(const char *folder, const char *tree, int held);

/**
 * Detaches the calling process: own session, no descriptors but @keep[0..n), no output, and signals
 * of a terminal are ignored.  @name: for ps(1).
 */
void kr_reaper_detach(const char *name, const int *keep, unsigned int n);

#endif /* KARST_RUN_REAPER_H */
