/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The invariant CRC of RoCEv2 (W7): sealing frames that leave, verifying frames that came.
 * Both work on bursts; the kernel is picked once per burst, not per packet.
 */
#ifndef KARST_ICRC_H
#define KARST_ICRC_H

#include "karst_crc.h"
#include "karst_pkt.h"

/**
 * A frame whose headers are final and whose payload, pad and ICRC are still to be written.
 * At least 8 bytes of the same buffer precede @l3 (the Ethernet header does), and at most 124
 * bytes of headers lie between @l3 and @pay (the longest that W5 knows are 104).
 */
struct karst_seal {
	uint8_t *l3;                  /* IP header */
	uint8_t *pay;                 /* first byte after the headers */
	const struct karst_seg *segs; /* where the payload comes from, in order */
	uint16_t nsegs;
	uint8_t pad;  /* zero bytes after the payload, 0..3 */
	uint8_t ip6;  /* 1 for IPv6, 0 for IPv4 */
	uint8_t cold; /* 1: another processor had the frame's memory last; fetch it ahead */
};

/**
 * Gathers the payload of each job into its frame, writes pad and ICRC, touching each payload
 * byte once.  The sources do not overlap the frames.
 */
void karst_icrc_seal_burst(const struct karst_seal *jobs, unsigned int n);

/**
 * Verifies the ICRC of parsed packets.  A packet with pkt->drop set already is skipped; one
 * whose ICRC is wrong gets drop = KARST_DROP_ICRC.
 * @return how many were wrong.
 */
unsigned int karst_icrc_verify_burst(struct karst_pkt *const *pkts, unsigned int n);

/** Packets that are looked at together. */
#define KARST_ICRC_KNOWN 64u
/** Shortest frame: BTH, four bytes and the ICRC. */
#define KARST_ICRC_KNOWN_LEN_MIN 62u

/**
 * Frames without a tag over IPv4 whose headers are known up to the end of the BTH, but for the
 * identification of IP, the acknowledge request and the PSN.  What is known of an ICRC depends on
 * the others alone, so that it is had once, and each frame's is verified without another look at
 * its headers: it is right if the frame's sum is karst_icrc_known_sum() of an earlier one of the
 * same headers and length.
 */
struct karst_icrc_known {
	const uint8_t *data[KARST_ICRC_KNOWN];
	uint16_t len[KARST_ICRC_KNOWN]; /* from data to the last byte of the ICRC */
	uint32_t sum[KARST_ICRC_KNOWN]; /* out: what the headers would have to come to */
};

/**
 * Computes the sums of the first @n; their lines need not be near yet.  Of what cannot be such a
 * frame, shorter than KARST_ICRC_KNOWN_LEN_MIN or not longer by whole words, the sum may be
 * anything.
 */
void karst_icrc_known_sums(struct karst_icrc_known *k, unsigned int n);

/**
 * What a sum is if the ICRC is right, in a frame of @len bytes (one that may have known headers)
 * with the headers of @data, whatever their identification, acknowledge request and PSN.
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
