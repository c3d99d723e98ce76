/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Follows changes of ports while the daemon runs: of their devices, and of their sections of
 * karst.conf. */
#ifndef KARSTD_FOLLOW_H
#define KARSTD_FOLLOW_H

#include "port_kind.h"

/** @return a descriptor that is readable when a kernel interface has changed; -1: logged. */
int kd_news_open(void);

/** Records these changes; the caller has to call kd_ports_watch() next. */
void kd_news_read(struct kd_ports *ps);

/** kd_port_kind.follow() of kernel interfaces. */
void kd_netdev_follow(
	struct kd_ports *ps, const struct kd_conf *c, struct kd_port *port, struct karst_engine *e);

/**
 * Removes ports that are not in @to, and sets the addresses of those that have other ones there.
 * @asked: the present configuration as it was read; changes that are applied are made there, too.
 * @return whether there are other differences, which need a restart.
 */
bool kd_ports_reload(struct kd_ports *ps, struct kd_conf *asked, const struct kd_conf *to,
	struct karst_engine *e);

#endif /* KARSTD_FOLLOW_H */
