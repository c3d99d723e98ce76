/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Membership of multicast groups. */
#ifndef ENGINE_MCAST_H
#define ENGINE_MCAST_H

#include "lcore.h"

/* To be called within control calls. */

/* The port of @q has changed. */
void eng_mcast_moved(struct karst_engine *e, struct eng_qp *q, uint8_t port_num);
/* The QPs are about to be destroyed. */
void eng_mcast_forget(struct karst_engine *e, struct karst_engine_qp *const *qps, uint32_t n);
void eng_mcast_port_added(struct karst_engine *e, uint8_t port);

#endif /* ENGINE_MCAST_H */
