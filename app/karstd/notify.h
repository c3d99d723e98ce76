/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Reports the daemon's state to systemd, sd_notify(3), if systemd has asked for that. */
#ifndef KARSTD_NOTIFY_H
#define KARSTD_NOTIFY_H

/** @state: "READY=1", ...  Errors are ignored. */
void kd_notify(const char *state);

#endif /* KARSTD_NOTIFY_H */
