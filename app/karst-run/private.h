/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * An engine of one user's own: a karstd with a loopback port, which all of his karst-runs share, so
 * that two programs started in two terminals meet.
 *
 * The first karst-run starts it, under the lock of the user's folder, by way of a supervisor: a
 * process without a parent of the user's, which is karstd's parent.  Each user of the engine holds
 * the FIFO "alive" open for writing; the supervisor has it open for reading, and so sees when the
 * last user is gone, however it ended.  The supervisor then waits --linger seconds, stops karstd
 * and removes everything.  If the supervisor dies, karstd ends with it, and the next karst-run
 * finds a FIFO that nobody reads.
 */
#ifndef KARST_RUN_PRIVATE_H
#define KARST_RUN_PRIVATE_H

#include "opts.h"
#include "place.h"
#include "view.h"

/** Finds it or starts it, in @folder.  *hold: a descriptor; the engine ends some time after the
 *  last one is closed.  @return -1: go on; otherwise what to exit with, after a word. */
int kr_private_join(const struct kr_opts *o, const struct kr_places *places, const char *folder,
	struct kr_view *v, int *hold);

#endif /* KARST_RUN_PRIVATE_H */
