/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Decodes all fields of a frame to plain numbers, also those that struct karst_pkt has no room for.
 * Any thread; no state, except that the pointer to the payload points into the frame.
 */
#ifndef KARST_DECODE_H
#define KARST_DECODE_H

#include "karst_counters.h"
#include "karst_frame.h"
#include "karst_pkt.h"

/**
 * Reads BTH, extended headers, payload and pad.
 * @len bytes from the BTH to the last pad byte; nothing outside of them is read.
 * @return KARST_DROP_NONE; KARST_DROP_RUNT, KARST_DROP_TVER, KARST_DROP_OPCODE or
 *   KARST_DROP_PAD as karst_parse() would (and then @ib is undefined).
 */
enum karst_drop karst_decode_ib(const uint8_t *bth, size_t len, struct karst_ib_hdrs *ib);

/** Reads a frame that karst_parse() accepted. */
void karst_decode_frame(const struct karst_pkt *p, struct karst_frame *f);

/**
 * Reads a native InfiniBand packet (W8): @len bytes from the LRH on.  They must reach the end of
 * the ICRC; the caller can compute from pkt_len whether a VCRC follows.
 * @return KARST_DROP_NONE; KARST_DROP_RUNT: shorter than LRH.PktLen says, or PktLen too small for
 *   the headers; KARST_DROP_IP_HEADER: bad LVer, or a GRH that is invalid or contradicts PktLen;
 *   KARST_DROP_NOT_ROCE: LNH says that no InfiniBand transport follows; others as
 *   karst_decode_ib().
 */
enum karst_drop karst_decode_native(const uint8_t *lrh, size_t len, struct karst_native *n);

#endif /* KARST_DECODE_H */
