/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The notification point (notify.c): its interface within lib/qp. */
#ifndef KARST_QP_NOTIFY_H
#define KARST_QP_NOTIFY_H

#include "qp_priv.h"

size_t karst_np_bytes(void);
/** @np: zeroed memory. */
void karst_np_init(struct karst_np *np, const struct karst_np_params *p);

/** A packet that has passed all checks of W9 is marked CE: counts it, and schedules a CNP if one is
 *  due (E4). */
void karst_np_marked(
	struct karst_core *core, struct karst_core_qp *qp, const struct karst_pkt *pkt);

/** Builds the scheduled CNPs, as far as there is room; core->ncnps are left. */
void karst_np_tx(struct karst_core *core, struct karst_tx_burst *b);

/** A CNP for @qp was received; the checks of W9 gave @drop.  @return the drop reason to count: a
 *  CNP delivers nothing (E5). */
enum karst_drop karst_cnp_rx(struct karst_core *core, struct karst_core_qp *qp,
	const struct karst_pkt *pkt, enum karst_drop drop);

#endif /* KARST_QP_NOTIFY_H */
