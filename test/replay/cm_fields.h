/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Messages of connection management, field by field. */
#ifndef TEST_REPLAY_CM_FIELDS_H
#define TEST_REPLAY_CM_FIELDS_H

#include "karst_cm_msg.h"
#include "replay.h"

/** Compares; reports differences to @r with the number of the frame in place of a PSN. */
void rp_compare_cm(struct rp_report *r, uint32_t number, const struct karst_cm_msg *ours,
	const struct karst_cm_msg *theirs);

#endif /* TEST_REPLAY_CM_FIELDS_H */
