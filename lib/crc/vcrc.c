/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The variant CRC of native InfiniBand (W8): CRC-16 with polynomial 0x100B over the bits as they
 * are sent, lowest of each byte first; the register starts as all ones and is sent inverted.  Only
 * the dissector needs it, so one byte at a time is fast enough.
 */
#include "karst_crc.h"

#include "crc_kernel.h"

uint16_t
karst_vcrc(const void *buf, size_t len)
{
	const uint8_t *p = buf;
	uint16_t state = 0xffff;

	for (; len > 0; len--)
		state = (uint16_t)(state >> 8 ^ crc_vcrc_table[(state ^ *p++) & 0xff]);
	return (uint16_t)~state;
}
