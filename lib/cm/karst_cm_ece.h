/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What two karst ends agree on by enhanced connection establishment (C3, X1): whether an RC queue
 * pair uses selective repeat.  Pure functions.
 *
 * The active side sends an offer in its REQ.  The passive side answers in its REP with what both
 * sides support, and that is then in effect.  An answer contains no offer.  Offer and answer have
 * different marks, because some passive sides return an offer unchanged, or its vendor with options
 * of their own; neither is an answer.  A value that is not exactly an offer or an answer is
 * ignored, and the connection is made without ECE.
 *
 *   31       16 15      8 7       0
 *   +----------+---------+---------+
 *   |   mark   | window  |  abilities   window: of selective repeat, as an exponent of 2 (X2)
 *   +----------+---------+---------+
 */
#ifndef KARST_CM_ECE_H
#define KARST_CM_ECE_H

#include "karst_cm_msg.h"

/** Locally administered, so no other vendor's OUI. */
#define KARST_CM_ECE_VENDOR 0x724b53u
#define KARST_CM_ECE_OFFER  0x4b520000u /* marks */
#define KARST_CM_ECE_ANSWER 0xb4510000u
#define KARST_CM_ECE_MARK   0xffff0000u
#define KARST_CM_ECE_WINDOW 0x0000ff00u
#define KARST_CM_ECE_REPEAT 0x00000001u /* abilities */
#define KARST_CM_ECE_CAN    0x000000ffu

/** Returns the offer for a REQ of a side with abilities @can and a window of 2^@window PSNs. */
struct karst_cm_ece karst_cm_ece_offer(uint32_t can, unsigned int window);

/**
 * Returns the answer for a REP of a side with abilities @can to @offer.  All 0: no answer, because
 * @offer is not an offer or the two sides have no ability in common.  Unknown abilities are
 * ignored: a later karst may have them.
 */
struct karst_cm_ece karst_cm_ece_answer(
	const struct karst_cm_ece *offer, uint32_t can, unsigned int window);

/** Returns the abilities that an answer agrees to; 0: @answer is not an answer to @offer. */
uint32_t karst_cm_ece_agreed(const struct karst_cm_ece *offer, const struct karst_cm_ece *answer);

/** Is there an ECE value at all? */
static inline bool
karst_cm_ece_is(const struct karst_cm_ece *ece)
{
	return (ece->vendor | ece->options) != 0;
}

#endif /* KARST_CM_ECE_H */
