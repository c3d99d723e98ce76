/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The ICRC of native InfiniBand packets: the sample of the specification, a GRH, truncated
 * packets. */
#include <criterion/criterion.h>

#include "karst_icrc.h"
#include "reference.h"

/* The sample packet of the InfiniBand specification (volume 1, 7.8): VL 7, no GRH. */
static const uint8_t ib_sample[] = {0x70, 0x12, 0x37, 0x5c, 0x00, 0x0e, 0x17, 0xd2, 0x0a, 0x20,
	0x24, 0x87, 0x00, 0x87, 0xb1, 0xb3, 0x00, 0x0d, 0xec, 0x2a, 0x01, 0x71, 0x0a, 0x1c, 0x01,
	0x5d, 0x40, 0x02, 0x38, 0xf2, 0x7a, 0x05, 0x00, 0x00, 0x00, 0x0e, 0xbb, 0x88, 0x4d, 0x85,
	0xfd, 0x5c, 0xfb, 0xa4, 0x72, 0x8b, 0xc0, 0x69, 0x0e, 0xd4, 0x00, 0x00};

Test(icrc, native_sample)
{
	uint8_t p[sizeof(ib_sample)];

	for (unsigned int k = 0; ref_kernel(k) != NULL; k++) {
		memcpy(p, ib_sample, sizeof(p));
		/* On the wire: 96 25 b7 5a. */
		cr_assert_eq(karst_icrc_native(p, sizeof(p), false), 0x5ab72596u);
		p[0] ^= 0xf0;  /* VL */
		p[12] ^= 0xff; /* BTH: FECN, BECN, reserved */
		cr_assert_eq(karst_icrc_native(p, sizeof(p), false), 0x5ab72596u);
		p[0] ^= 0x01;
		cr_assert_neq(karst_icrc_native(p, sizeof(p), false), 0x5ab72596u);
	}
}

/* With a GRH the LRH counts as ones, and so do the GRH's fields that a router may change. */
Test(icrc, native_grh)
{
	uint8_t p[8 + 40 + 12 + 300], masked[sizeof(p)];

	for (unsigned int k = 0; ref_kernel(k) != NULL; k++) {
		for (size_t len = 8 + 40 + 12; len <= sizeof(p); len++) {
			ref_fill(p, sizeof(p), len);
			memcpy(masked, p, sizeof(p));
			memset(masked, 0xff, 8);
			masked[8] |= 0x0f;
			memset(masked + 9, 0xff, 3);
			masked[8 + 7] = 0xff;
			masked[8 + 40 + 4] = 0xff;
			cr_assert_eq(karst_icrc_native(p, len, true), ~ref_crc32(~0u, masked, len));
		}
	}
}

/* A truncated packet has some ICRC, and computing it reads nothing beyond the packet. */
Test(icrc, native_cut)
{
	struct ref_guard g = ref_guard_open(100);

	for (unsigned int k = 0; ref_kernel(k) != NULL; k++) {
		for (size_t len = 0; len < 100; len++) {
			uint8_t *p = ref_tail(&g, len);

			ref_fill(p, len, len);
			karst_icrc_native(p, len, len & 1);
		}
	}
	ref_guard_close(&g);
}
