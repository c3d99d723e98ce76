/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Fields of three bytes, which queue pair numbers and PSNs are. */
#ifndef KARST_SMC_WIRE_H
#define KARST_SMC_WIRE_H

#include "karst_hdr.h"

static inline uint32_t
smc_get_be24(const uint8_t *p)
{
	return (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
}

static inline void
smc_put_be24(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 16);
	p[1] = (uint8_t)(v >> 8);
	p[2] = (uint8_t)v;
}

#endif /* KARST_SMC_WIRE_H */
