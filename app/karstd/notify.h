/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Tells systemd how the daemon is, sd_notify(3), if it has asked for that. */
#ifndef KARSTD_NOTIFY_H
#define KARSTD_NOTIFY_H

/** @state: "READY=1", ...  Errors are ignored. */
void kd_notify(const char *state);

#endif /* KARSTD_NOTIFY_H */
