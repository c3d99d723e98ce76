/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The invariant CRC of RoCEv2 (W7): seals frames to send, verifies received frames.  Both work on
 * bursts; the kernel is selected once per burst, not per packet.
 */
#ifndef KARST_ICRC_H
#define KARST_ICRC_H

#include "karst_crc.h"
#include "karst_pkt.h"

/**
 * A frame whose headers are final and whose payload, pad and ICRC are still to be written.  At
 * least 8 bytes of the same buffer precede @l3 (the Ethernet header does), and at most 124 bytes of
 * headers are between @l3 and @pay (the longest that W5 allows are 104).
 */
struct karst_seal {
	uint8_t *l3;                  /* IP header */
	uint8_t *pay;                 /* first byte after the headers */
	const struct karst_seg *segs; /* sources of the payload, in order */
	uint16_t nsegs;
	uint8_t pad;  /* zero bytes after the payload, 0..3 */
	uint8_t ip6;  /* 1 for IPv6, 0 for IPv4 */
	uint8_t cold; /* 1: another processor last used the frame's memory; prefetch it */
};

/**
 * Copies the payload of each job into its frame and writes pad and ICRC, in one pass over the
 * payload.  The sources do not overlap the frames.
 */
void karst_icrc_seal_burst(const struct karst_seal *jobs, unsigned int n);

/**
 * Verifies the ICRC of parsed packets.  A packet with pkt->drop set already is skipped; one
 * whose ICRC is wrong gets drop = KARST_DROP_ICRC.
 * @return how many were wrong.
 */
unsigned int karst_icrc_verify_burst(struct karst_pkt *const *pkts, unsigned int n);

/** Limit of packets that are processed together. */
#define KARST_ICRC_KNOWN 64u
/** Shortest frame: BTH, four bytes and the ICRC. */
#define KARST_ICRC_KNOWN_LEN_MIN 62u

/**
 * Untagged IPv4 frames whose headers are known up to the end of the BTH, except the identification
 * of IP, the acknowledge request and the PSN.  The contribution of the known fields to the ICRC is
 * the same for all of them, so it is computed once, and each frame is verified without reading
 * those fields again: its ICRC is right if the frame's sum equals karst_icrc_known_sum() of an
 * earlier frame of the same headers and length.
 */
struct karst_icrc_known {
	const uint8_t *data[KARST_ICRC_KNOWN];
	uint16_t len[KARST_ICRC_KNOWN]; /* from data to the last byte of the ICRC */
	uint32_t sum[KARST_ICRC_KNOWN]; /* out: the required contribution of the headers */
};

/**
 * Computes the sums of the first @n; their lines need not be in the cache yet.  For a frame that is
 * shorter than KARST_ICRC_KNOWN_LEN_MIN, or longer by other than whole words, the sum is
 * unspecified.
 */
void karst_icrc_known_sums(struct karst_icrc_known *k, unsigned int n);

/**
 * The sum for a right ICRC, in a frame of @len bytes (one that may have known headers) with the
 * headers of @data, for any identification, acknowledge request and PSN.
 */
uint32_t karst_icrc_known_sum(const uint8_t *data, uint32_t len);

/** The ICRC of a RoCEv2 packet: @len bytes from the IP header to the last pad byte (W7). */
uint32_t karst_icrc_rocev2(const uint8_t *l3, size_t len, bool ip6);

/**
 * The ICRC of a native InfiniBand packet (W8): @len bytes from the LRH to the last pad byte;
 * @grh whether a GRH follows the LRH.
 */
uint32_t karst_icrc_native(const uint8_t *lrh, size_t len, bool grh);

#endif /* KARST_ICRC_H */
