/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What two karst ends say to each other by enhanced connection establishment (C3, X1): that an RC
 * queue pair repeats selectively.  Pure functions.
 *
 * The active side offers in its REQ, the passive side answers in its REP with what both can, and
 * that holds; nobody offers in an answer.  Offer and answer have different marks, for there are
 * passive sides that send back an offer as it came, or its vendor with options of their own;
 * neither is an answer.  What is not exactly an offer or an answer is nothing: the connection is
 * made, and does without.
 *
 *	31       16 15      8 7       0
 *	+----------+---------+---------+
 *	|   mark   | window  |  abilities   window: of selective repeat, as an exponent of 2 (X2)
 *	+----------+---------+---------+
 */
#ifndef KARST_CM_ECE_H
#define KARST_CM_ECE_H

#include "karst_cm_msg.h"

/** Locally administered, so nobody's OUI. */
#define KARST_CM_ECE_VENDOR 0x724b53u
#define KARST_CM_ECE_OFFER  0x4b520000u /* marks */
#define KARST_CM_ECE_ANSWER 0xb4510000u
#define KARST_CM_ECE_MARK   0xffff0000u
#define KARST_CM_ECE_WINDOW 0x0000ff00u
#define KARST_CM_ECE_REPEAT 0x00000001u /* abilities */
#define KARST_CM_ECE_CAN    0x000000ffu

/** What a REQ says of somebody who @can (abilities) with a window of 2^@window PSNs. */
struct karst_cm_ece karst_cm_ece_offer(uint32_t can, unsigned int window);

/** What a REP says to @offer of somebody who @can; all 0: nothing, @offer is none, or there is
 *  nothing that both can.  Abilities that are not known are passed over: a later karst may have
 *  them. */
struct karst_cm_ece karst_cm_ece_answer(
	const struct karst_cm_ece *offer, uint32_t can, unsigned int window);

/** The abilities that an answer agrees to; 0: @answer is none to @offer. */
uint32_t karst_cm_ece_agreed(const struct karst_cm_ece *offer, const struct karst_cm_ece *answer);

/** Somebody has said something. */
static inline bool
karst_cm_ece_is(const struct karst_cm_ece *ece)
{
	return (ece->vendor | ece->options) != 0;
}

#endif /* KARST_CM_ECE_H */
