/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * ICRC of RoCEv2 by the chosen kernel (crc_fold_icrc.h has the mechanism), and of native
 * InfiniBand, which only a dissector needs and which may take its time.
 */
#include "karst_icrc.h"

#include "crc_kernel.h"

#define LRH_LEN  8
#define GRH_LEN  40
#define BTH_RESV 4 /* FECN, BECN and reserved bits, from the BTH */

void
karst_icrc_seal_burst(const struct karst_seal *jobs, unsigned int n)
{
	crc_kernel_chosen()->seal_burst(jobs, n);
}

unsigned int
karst_icrc_verify_burst(struct karst_pkt *const *pkts, unsigned int n)
{
	return crc_kernel_chosen()->verify_burst(pkts, n);
}

uint32_t
karst_icrc_rocev2(const uint8_t *l3, size_t len, bool ip6)
{
	return crc_kernel_chosen()->rocev2(l3, len, ip6);
}

uint32_t
karst_icrc_native(const uint8_t *lrh, size_t len, bool grh)
{
	const struct karst_crc_ops *ops = karst_crc_ops();
	uint8_t head[LRH_LEN + GRH_LEN + BTH_RESV + 1];
	size_t bth = grh ? LRH_LEN + GRH_LEN : LRH_LEN;
	size_t n = bth + BTH_RESV + 1;

	if (n > len)
		n = len;
	memcpy(head, lrh, n);
	if (grh) {
		memset(head, 0xff, n < LRH_LEN ? n : LRH_LEN);
		/* IPVer stays; traffic class, flow label and hop limit do not count. */
		head[LRH_LEN] |= 0x0f;
		memset(head + LRH_LEN + 1, 0xff, 3);
		head[LRH_LEN + 7] = 0xff;
	} else {
		head[0] |= 0xf0;
	}
	head[bth + BTH_RESV] = 0xff;
	return ~ops->update(ops->update(KARST_CRC32_INIT, head, n), lrh + n, len - n);
}
