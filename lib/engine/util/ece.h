/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* ECE definitions for queue pairs (object/qp_ece.c) and their connections (cm/cm_ece.c). */
#ifndef ENGINE_ECE_H
#define ENGINE_ECE_H

#include "karst_cm_ece.h"
#include "karst_engine.h"

/* Abilities that an engine's RC queue pairs may agree on; 0: none. */
static inline uint32_t
eng_ece_can(const struct karst_engine_config *cfg)
{
	return cfg->ece != KARST_ENGINE_ECE_OFF ? KARST_CM_ECE_REPEAT : 0;
}

#endif /* ENGINE_ECE_H */
