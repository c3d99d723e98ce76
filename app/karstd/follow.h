/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Ports whose device, or whose section of karst.conf, changes while the daemon runs. */
#ifndef KARSTD_FOLLOW_H
#define KARSTD_FOLLOW_H

#include "port_kind.h"

/** @return a descriptor that is readable when a kernel interface has changed; -1: said. */
int kd_news_open(void);

/** Takes note of them; kd_ports_watch() has to come next. */
void kd_news_read(struct kd_ports *ps);

/** As in kd_port_kind, of kernel interfaces. */
void kd_netdev_follow(
	struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port, struct karst_engine *e);

/**
 * Ports that are not in @to go, and those that have other addresses there get them.
 * @asked: the configuration of now, as it was read; what has been taken over is changed there.
 * @return whether there is more that differs, and takes another start.
 */
bool kd_ports_reload(struct kd_ports *ps, struct kd_conf *asked, const struct kd_conf *to,
	struct karst_engine *e);

#endif /* KARSTD_FOLLOW_H */
