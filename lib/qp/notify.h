/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The notification point, as the rest of lib/qp sees it (notify.c). */
#ifndef KARST_QP_NOTIFY_H
#define KARST_QP_NOTIFY_H

#include "qp_priv.h"

size_t karst_np_bytes(void);
/** @np: zeros. */
void karst_np_init(struct karst_np *np, const struct karst_np_params *p);

/** A packet that has passed all checks of W9 is marked CE: counts it, and owes a CNP if one is due
 *  (E4). */
void karst_np_marked(
	struct karst_core *core, struct karst_core_qp *qp, const struct karst_pkt *pkt);

/** Builds the CNPs that are owed, as far as there is room; core->ncnps are left. */
void karst_np_tx(struct karst_core *core, struct karst_tx_burst *b);

/** A CNP for @qp has come, for which the checks of W9 have found @drop.  @return what it is counted
 *  as: nothing of it is delivered (E5). */
enum karst_drop karst_cnp_rx(struct karst_core *core, struct karst_core_qp *qp,
	const struct karst_pkt *pkt, enum karst_drop drop);

#endif /* KARST_QP_NOTIFY_H */
