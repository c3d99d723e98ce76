/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Flow rules: the device itself steers RoCE to the engine's queues (flow.c).
 */
#ifndef ENG_FLOW_H
#define ENG_FLOW_H

#include "lcore.h"

/* Before the device is configured: from now on it delivers only what rules select, and leaves the
 * rest to the others that share it.  Logs the reason of a failure. */
int eng_flow_isolate(struct eng_port *p);

/**
 * After the device was started: creates rules for UDP to port 4791, if the device accepts them and
 * they are useful, and logs how frames reach the lcores.  @rss: the device spreads all frames over
 * its queues.  An error, logged, only if @isolate, since then no frames would be received.
 */
int eng_flow_steer(struct eng_port *p, bool rss, bool isolate);

/* To be called before the device is stopped. */
void eng_flow_clear(struct eng_port *p);

#endif /* ENG_FLOW_H */
