/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A private engine of a user: a karstd with a loopback port, which all karst-runs of the user
 * share, so that two programs that are started in two terminals can connect.
 *
 * The first karst-run starts it through a supervisor, under the lock of the user's folder.  The
 * supervisor is karstd's parent, and is itself not a child of any process of the user.  Each user
 * of the engine has the FIFO "alive" open for writing.  The supervisor has it open for reading, and
 * so notices when the last user is gone, however it ended.  The supervisor then waits --linger
 * seconds, stops karstd and removes all files.  If the supervisor dies, karstd ends with it, and
 * the next karst-run finds a FIFO without a reader.
 */
#ifndef KARST_RUN_PRIVATE_H
#define KARST_RUN_PRIVATE_H

#include "opts.h"
#include "place.h"
#include "view.h"

/**
 * Finds the private engine or starts it, in @folder.  *hold: a descriptor; the engine ends some
 * time after the last one is closed.  @return -1: go on; otherwise the exit status, after a
 * message.
 */
int kr_private_join(const struct kr_opts *o, const struct kr_places *places, const char *folder,
	struct kr_view *v, int *hold);

#endif /* KARST_RUN_PRIVATE_H */
