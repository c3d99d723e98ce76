/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Builds whole frames from plain fields.  For tools and tests: the engine sends from templates.
 *
 * The caller adds the CRCs (lib/crc is above this library): build, compute the ICRC over what was
 * built, write it to the last four bytes, then, if a UDP checksum is wanted, call
 * karst_build_udp_checksum().
 *
 * Any thread; no state.  Sources and destination do not overlap.
 */
#ifndef KARST_BUILD_H
#define KARST_BUILD_H

#include "karst_frame.h"

/**
 * Writes BTH, extended headers, payload and pad (zeros), in this order (W5, W6).
 * @return bytes written; -EINVAL: the opcode is unknown, or has no payload and pay_len is not
 *   0; -ENOSPC: more than @room bytes.
 */
int karst_build_ib(uint8_t *buf, size_t room, const struct karst_ib_hdrs *ib);

/**
 * Writes a RoCEv2 frame from the Ethernet header to the pad, and four zero bytes in place of
 * the ICRC.  Lengths and the IPv4 header checksum are computed, the UDP checksum is copied.
 * @return frame length, ICRC included, without Ethernet padding; -EINVAL as above, or longer
 *   than an IP packet can be; -ENOSPC.
 */
int karst_build_frame(uint8_t *buf, size_t room, const struct karst_frame *f);

/**
 * Writes a native InfiniBand packet from the LRH to the pad, and six zero bytes in place of
 * ICRC and VCRC (W8).
 * @return length, ICRC and VCRC included; -EINVAL as above, or LNH says that no InfiniBand
 *   transport follows, or the length does not fit the LRH; -ENOSPC.
 */
int karst_build_native(uint8_t *buf, size_t room, const struct karst_native *n);

/**
 * Computes the UDP checksum of a complete frame and writes it.  Never 0 (RFC 768).
 * @udp the UDP header, preceded by an IP header; @len UDP length; @ip6 the IP version.
 */
void karst_build_udp_checksum(uint8_t *udp, size_t len, bool ip6);

#endif /* KARST_BUILD_H */
