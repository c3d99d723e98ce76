/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Bursts by the selected kernel (crc_fold_icrc.h explains the method); single ICRCs, of RoCEv2 and
 * of native InfiniBand, for dissectors and tests, where speed does not matter.
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

void
karst_icrc_known_sums(struct karst_icrc_known *k, unsigned int n)
{
	crc_kernel_chosen()->known_sums(k, n);
}

uint32_t
crc_known_sum(const uint8_t *data, uint32_t len)
{
	static const uint8_t zeros[KARST_CACHE_LINE];
	const struct karst_crc_ops *ops = karst_crc_ops();
	const uint8_t *ones = crc_icrc_ones[0] + CRC_ICRC_ONES_BASE;
	uint8_t head[CRC_ICRC_LEAD + CRC_KNOWN_END - CRC_KNOWN_L3];
	uint32_t i, n, state;

	memcpy(head, ones, CRC_ICRC_LEAD);
	for (i = CRC_ICRC_LEAD; i < sizeof(head); i++)
		head[i] = data[CRC_KNOWN_L3 - CRC_ICRC_LEAD + i] | ones[i];
	memset(head + CRC_ICRC_LEAD + 4, 0, 2); /* identification */
	memset(head + sizeof(head) - 4, 0, 4);  /* acknowledge request, PSN */
	state = ops->update(0, head, sizeof(head));
	for (n = len - CRC_KNOWN_END - 4; n > 0; n -= i) {
		i = karst_min_u32(n, sizeof(zeros));
		state = ops->update(state, zeros, i);
	}
	return ~state;
}

uint32_t
karst_icrc_known_sum(const uint8_t *data, uint32_t len)
{
	if (len - CRC_KNOWN_END - 4 > crc_kernel_chosen()->known_tail)
		return 0; /* the kernel's sums cover the whole frame */
	return crc_known_sum(data, len);
}

/* Not by the kernel's method, which would read the bytes before @l3. */
uint32_t
karst_icrc_rocev2(const uint8_t *l3, size_t len, bool ip6)
{
	const struct karst_crc_ops *ops = karst_crc_ops();
	const uint8_t *ones = crc_icrc_ones[ip6] + CRC_ICRC_ONES_BASE;
	uint8_t head[KARST_CACHE_LINE];
	size_t n = karst_min_u64(len, sizeof(head) - CRC_ICRC_LEAD);

	memcpy(head, ones, CRC_ICRC_LEAD);
	for (size_t i = 0; i < n; i++)
		head[CRC_ICRC_LEAD + i] = l3[i] | ones[CRC_ICRC_LEAD + i];
	return ~ops->update(ops->update(0, head, CRC_ICRC_LEAD + n), l3 + n, len - n);
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
		/* IPVer is covered; traffic class, flow label and hop limit are not. */
		head[LRH_LEN] |= 0x0f;
		memset(head + LRH_LEN + 1, 0xff, 3);
		head[LRH_LEN + 7] = 0xff;
	} else {
		head[0] |= 0xf0;
	}
	head[bth + BTH_RESV] = 0xff;
	return ~ops->update(ops->update(KARST_CRC32_INIT, head, n), lrh + n, len - n);
}
