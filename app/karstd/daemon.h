/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Runs the daemon, from a valid configuration to its end. */
#ifndef KARSTD_DAEMON_H
#define KARSTD_DAEMON_H

#include "conf.h"

/** Reads the configuration again and reports errors. 0 or -EINVAL. */
typedef int (*kd_reread_fn)(void *user, struct kd_conf *c);

/** Runs until a signal ends it.  @return enum kd_exit. */
int kd_daemon_run(struct kd_conf *c, kd_reread_fn reread, void *user);

#endif /* KARSTD_DAEMON_H */
