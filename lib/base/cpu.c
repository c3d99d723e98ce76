/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Processor features.  On x86 the compiler's run-time support evaluates cpuid, and whether the
 * system saves the wide registers (XCR0); on Arm the kernel reports them.
 */
#include "karst_cpu.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

unsigned int
karst_cpu_features(void)
{
	unsigned int f = 0;

#if defined(__x86_64__)
	__builtin_cpu_init();
	if (__builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("pclmul"))
		f |= KARST_CPU_PCLMUL;
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq"))
		f |= KARST_CPU_VPCLMUL_256;
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
		__builtin_cpu_supports("vpclmulqdq"))
		f |= KARST_CPU_VPCLMUL_512;
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("gfni"))
		f |= KARST_CPU_GFNI_512;
	if (__builtin_cpu_is("amd"))
		f |= KARST_CPU_FAST_AFFINE;
#elif defined(__aarch64__)
	if (getauxval(AT_HWCAP) & HWCAP_PMULL)
		f |= KARST_CPU_PMULL;
#endif
	return f;
}
