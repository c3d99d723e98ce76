/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The features of the processor; read once by code that selects kernels. */
#ifndef KARST_CPU_H
#define KARST_CPU_H

#include "karst_base.h"

enum karst_cpu_feature {
	KARST_CPU_PCLMUL = 1u << 0,      /* SSE4.1 + PCLMULQDQ */
	KARST_CPU_VPCLMUL_256 = 1u << 1, /* AVX2 + VPCLMULQDQ, OS saves ymm */
	KARST_CPU_VPCLMUL_512 = 1u << 2, /* AVX512F/BW/VL/VBMI + VPCLMULQDQ, OS saves zmm */
	KARST_CPU_PMULL = 1u << 3,       /* Armv8 crypto extension */
	KARST_CPU_GFNI_512 = 1u << 4,    /* AVX512F + GFNI, OS saves zmm */
	KARST_CPU_FAST_AFFINE = 1u << 5, /* bit matrices are much faster than VPCLMULQDQ (AMD) */
};

/** Bit set of enum karst_cpu_feature of this machine.  Any thread; no state. */
unsigned int karst_cpu_features(void);

#endif /* KARST_CPU_H */
