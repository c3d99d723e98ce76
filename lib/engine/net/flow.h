/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Flow rules: RoCE to the engine's queues by the device itself (flow.c).
 */
#ifndef ENG_FLOW_H
#define ENG_FLOW_H

#include "lcore.h"

/* Before the device is configured: from now on it gives us only what rules ask for, and leaves the
 * rest to whoever shares it.  Logs why it cannot. */
int eng_flow_isolate(struct eng_port *p);

/**
 * After the device was started: rules for UDP to port 4791, if the device takes them and they are
 * of use; says in the log how frames come to the lcores.  @rss: it spreads all frames over its
 * queues.  An error, logged, only if @isolate, since nothing would come then.
 */
int eng_flow_steer(struct eng_port *p, bool rss, bool isolate);

/* Before the device is stopped. */
void eng_flow_clear(struct eng_port *p);

#endif /* ENG_FLOW_H */
