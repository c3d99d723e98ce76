/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Private to lib/crc: what the file of one instruction set provides, and the shared tables.
 *
 * Each kernel file defines exactly one struct crc_kernel, by including crc_fold.h and crc_burst.h
 * after its primitives (crc_scalar.c needs no folding).  The burst functions are part of the
 * kernel, so that there is one indirect call per burst and none per packet.
 */
#ifndef CRC_KERNEL_H
#define CRC_KERNEL_H

#include "karst_crc.h"
#include "karst_icrc.h"

struct crc_kernel {
	struct karst_crc_ops ops;
	unsigned int needs; /* enum karst_cpu_feature bits */
	unsigned int likes; /* features without which it runs, but not as the fastest kernel */
	void (*seal_burst)(const struct karst_seal *jobs, unsigned int n);
	unsigned int (*verify_burst)(struct karst_pkt *const *pkts, unsigned int n);
	void (*known_sums)(struct karst_icrc_known *k, unsigned int n);
	/* for tails after the BTH up to this length, the sums exclude the known headers */
	unsigned int known_tail;
};

extern const struct crc_kernel crc_kernel_scalar;
extern const struct crc_kernel crc_kernel_pclmul;
extern const struct crc_kernel crc_kernel_vpclmul256;
extern const struct crc_kernel crc_kernel_vpclmul512;
extern const struct crc_kernel crc_kernel_gfni512;
extern const struct crc_kernel crc_kernel_pmull;

/** The kernel that karst_crc_init() selected. */
const struct crc_kernel *crc_kernel_chosen(void);

/* Tables written by gen_tables.py. */

/** Row k: the contribution of a byte to the state with k more bytes after it. */
extern const uint32_t crc_slice_table[16][256];

#define CRC_FOLD_WORDS 128
/** Fold factors, by distance from the end: see crc_fold.h. */
extern const uint64_t crc_fold_table[CRC_FOLD_WORDS];
/* Offsets in frames of struct karst_icrc_known: the IP header, and the first byte after the BTH. */
#define CRC_KNOWN_L3  14
#define CRC_KNOWN_END 54

/** The contribution of the known headers of @data to the ICRC of a frame of @len bytes. */
uint32_t crc_known_sum(const uint8_t *data, uint32_t len);

/** Longest tail of struct karst_icrc_known that crc_known.h processes. */
#define CRC_KNOWN_TAIL 256
/** By tail / 8: the factors of the words with identification and PSN. */
extern const uint64_t crc_known_table[CRC_KNOWN_TAIL / 8 + 1][2];
/** The quotient x^96 / P (without its last bit) and P, reflected. */
extern const uint64_t crc_barrett[2];
/** 16 bytes at offset n: a byte shuffle that moves the low n bytes of a vector to its top. */
extern const uint8_t crc_shift_table[32];
/** Bit matrices [to][from] that carry five blocks over the next five: see crc_gfni512.c. */
extern const uint64_t crc_column_matrices[4][5];
extern const uint16_t crc_vcrc_table[256];

/** 0, 1, .. 63. */
extern const uint8_t crc_iota[64];

#define CRC_ICRC_LEAD      4 /* bytes of ones before the IP header: see crc_burst.h */
#define CRC_ICRC_ONES      256
#define CRC_ICRC_ONES_BASE 64 /* entry for the first of those bytes */
/**
 * The bytes to OR over a RoCEv2 packet before its CRC (W7), IPv4 and IPv6; zeros on both sides, so
 * that any 64 bytes that overlap the headers have their 64 bytes of ones here.
 */
extern const uint8_t crc_icrc_ones[2][CRC_ICRC_ONES];

#endif /* CRC_KERNEL_H */
