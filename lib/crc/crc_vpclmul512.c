/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* CRC-32 with VPCLMULQDQ on 512 bits. */
#include "karst_cpu.h"

#define FOLD_ACCS 4

#include "crc_avx512.h"
#include "crc_fold.h"
#include "crc_fold_icrc.h"
#include "crc_burst.h"
#include "crc_known.h"

const struct crc_kernel crc_kernel_vpclmul512 = {
	.ops = {.name = "vpclmul512", .update = crc_update, .copy = crc_copy},
	.needs = KARST_CPU_VPCLMUL_512 | KARST_CPU_PCLMUL,
	.seal_burst = seal_burst,
	.verify_burst = verify_burst,
	.known_sums = known_sums,
	.known_tail = CRC_KNOWN_TAIL,
};
