/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The parameters of a reaction point that nobody has set. */
#ifndef UNIT_QP_RP_DEFAULTS_H
#define UNIT_QP_RP_DEFAULTS_H

#include "congestion.h"

static inline struct karst_rp_params
defaults(void)
{
	struct karst_congestion_config c;

	karst_congestion_defaults(&c);
	return c.rp;
}

#endif /* UNIT_QP_RP_DEFAULTS_H */
