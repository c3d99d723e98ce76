/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Functions that the handlers of connection management share. */
#ifndef SESSION_CM_H
#define SESSION_CM_H

#include "cm.h"
#include "session_priv.h"

#define MAX_ACK_TIMEOUT 31u /* of exponents */

/* Calls @op for the identifier @handle, under the lock. */
int eng_cm_with_id(struct karst_session *s, struct session_call *c, uint32_t handle,
	int (*op)(struct eng_cm *cm, struct session_call *c, struct cm_id *id));
/* Sets the reason that @what needs @id to be in the state @wanted. */
int eng_cm_state_fault(
	struct session_call *c, const struct cm_id *id, const char *what, const char *wanted);

#endif /* SESSION_CM_H */
