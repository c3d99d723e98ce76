/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Automatic path migration (rules G): what a queue pair with an alternate path keeps besides, in
 * memory that its modify call brought.  The others have a NULL pointer, and their packets do not
 * ask for it: MigReq is in the template, and packets that must be looked at are made to differ from
 * what is expected, so that they take the way of those that do not match (KARST_QP_WATCHES).
 */
#ifndef KARST_QP_MIGRATE_H
#define KARST_QP_MIGRATE_H

#include "qp_priv.h"

struct karst_alternate {
	struct karst_path path;
	uint8_t port_num;
	uint8_t timeout;
	uint8_t state; /* enum karst_mig_state */
	bool loaded;   /* there is a path to go to */
	bool migrated; /* since it was in RESET */
	bool left;     /* no clock ran, and requests before left_psn were under way */
	uint32_t left_psn;
};

/** 0, or -EINVAL: not in this state (G2).  Values have been checked. */
int karst_migrate_check(
	const struct karst_core_qp *qp, const struct karst_core_qp_attr *a, unsigned int mask);
/** Takes over what karst_migrate_check() has allowed; may migrate. */
void karst_migrate_modify(struct karst_core *core, struct karst_core_qp *qp,
	const struct karst_core_qp_attr *a, unsigned int mask);
/** RESET: there is no alternate path. */
void karst_migrate_reset(struct karst_core_qp *qp);

/** The MigReq bit of packets of @qp (G1). */
uint8_t karst_migrate_bth_flags(const struct karst_core *core, const struct karst_core_qp *qp);
/** Must each packet be looked at? */
bool karst_migrate_watches(const struct karst_core_qp *qp);

/** Slow half of karst_migrate_left(). */
bool karst_migrate_still_left(struct karst_core_qp *qp);

/** Nothing tells what becomes of the oldest request: no clock runs, and it left over the old path,
 *  or what was said about it came by that (G4). */
static inline bool
karst_migrate_left(struct karst_core_qp *qp)
{
	return karst_unlikely(qp->alternate != NULL && qp->alternate->left) &&
		karst_migrate_still_left(qp);
}

/** Retries are exhausted.  @return true: they begin anew, over the alternate path (G4). */
bool karst_migrate_instead(struct karst_core *core, struct karst_core_qp *qp);

/** A packet that has passed all checks but that of its addresses: are they those of the primary
 *  path?  @return whether they are right after all, since the peer has migrated (G3). */
bool karst_migrate_heard(struct karst_core *core, struct karst_core_qp *qp,
	const struct karst_pkt *pkt, bool primary);

#endif /* KARST_QP_MIGRATE_H */
