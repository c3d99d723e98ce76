/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Automatic path migration (rules G): the state of a queue pair with an alternate path, in memory
 * that its modify call supplied.  Other queue pairs have a NULL pointer, and their packets need no
 * extra test: the template contains MigReq, and a queue pair whose packets must be checked expects
 * a value of ip6 that no packet has, so that its packets take the path for a mismatch
 * (KARST_QP_WATCHES).
 */
#ifndef KARST_QP_MIGRATE_H
#define KARST_QP_MIGRATE_H

#include "qp_priv.h"

struct karst_alternate {
	struct karst_path path;
	uint8_t port_num;
	uint8_t timeout;
	uint8_t state; /* enum karst_mig_state */
	bool loaded;   /* there is an alternate path */
	bool migrated; /* the queue pair has migrated since it was in RESET */
	bool left;     /* no timer ran, and requests before left_psn were under way */
	uint32_t left_psn;
};

/** 0, or -EINVAL: not in this state (G2).  The caller has checked the values. */
int karst_migrate_check(
	const struct karst_core_qp *qp, const struct karst_core_qp_attr *a, unsigned int mask);
/** Applies what karst_migrate_check() has allowed; may migrate. */
void karst_migrate_modify(struct karst_core *core, struct karst_core_qp *qp,
	const struct karst_core_qp_attr *a, unsigned int mask);
/** RESET: removes the alternate path. */
void karst_migrate_reset(struct karst_core_qp *qp);

/** The MigReq bit of packets of @qp (G1). */
uint8_t karst_migrate_bth_flags(const struct karst_core *core, const struct karst_core_qp *qp);
/** Whether each packet must be checked again. */
bool karst_migrate_watches(const struct karst_core_qp *qp);

/** Slow path of karst_migrate_left(). */
bool karst_migrate_still_left(struct karst_core_qp *qp);

/** Whether nothing will show what became of the oldest request: no timer runs, and the request or
 *  its answer was sent over the old path (G4). */
static inline bool
karst_migrate_left(struct karst_core_qp *qp)
{
	return karst_unlikely(qp->alternate != NULL && qp->alternate->left) &&
		karst_migrate_still_left(qp);
}

/** Retries are exhausted.  @return true: the queue pair has migrated, and has all retries again
 *  (G4). */
bool karst_migrate_instead(struct karst_core *core, struct karst_core_qp *qp);

/** A packet has passed all checks but that of its addresses.  @primary: they are those of the
 *  primary path.  @return whether they are acceptable after all, because the peer has migrated
 *  (G3). */
bool karst_migrate_heard(struct karst_core *core, struct karst_core_qp *qp,
	const struct karst_pkt *pkt, bool primary);

#endif /* KARST_QP_MIGRATE_H */
