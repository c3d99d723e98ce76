/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* What DPDK's headers get of the compiler's intrinsics, in place of the compiler's header of this name:
 * that declares those of every instruction set there is, which took half of the time to compile a file.
 * For a machine without AVX, DPDK uses none beyond SSE4.2. */
#ifndef KARST_X86INTRIN_H
#define KARST_X86INTRIN_H

#ifdef __AVX__
#include_next <x86intrin.h>
#else
#include <nmmintrin.h>
#endif

#endif /* KARST_X86INTRIN_H */
