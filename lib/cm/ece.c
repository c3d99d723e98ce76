/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "karst_cm_ece.h"

#define WINDOW_SHIFT 8

static const struct karst_cm_ece nothing;

static bool
has_mark(const struct karst_cm_ece *ece, uint32_t mark)
{
	return ece->vendor == KARST_CM_ECE_VENDOR && (ece->options & KARST_CM_ECE_MARK) == mark;
}

struct karst_cm_ece
karst_cm_ece_offer(uint32_t can, unsigned int window)
{
	struct karst_cm_ece ece = {.vendor = KARST_CM_ECE_VENDOR,
		.options = KARST_CM_ECE_OFFER | window << WINDOW_SHIFT | (can & KARST_CM_ECE_CAN)};

	return ece;
}

struct karst_cm_ece
karst_cm_ece_answer(const struct karst_cm_ece *offer, uint32_t can, unsigned int window)
{
	struct karst_cm_ece ece = {.vendor = KARST_CM_ECE_VENDOR};
	uint32_t both = offer->options & can & KARST_CM_ECE_CAN;

	/* the windows must be the same (X2), and selective repeat is the only ability */
	if (!has_mark(offer, KARST_CM_ECE_OFFER) || both == 0 ||
		(offer->options & KARST_CM_ECE_WINDOW) != window << WINDOW_SHIFT)
		return nothing;
	ece.options = KARST_CM_ECE_ANSWER | window << WINDOW_SHIFT | both;
	return ece;
}

uint32_t
karst_cm_ece_agreed(const struct karst_cm_ece *offer, const struct karst_cm_ece *answer)
{
	uint32_t both = answer->options & KARST_CM_ECE_CAN;

	if (!has_mark(offer, KARST_CM_ECE_OFFER) || !has_mark(answer, KARST_CM_ECE_ANSWER) ||
		((offer->options ^ answer->options) & KARST_CM_ECE_WINDOW) != 0 ||
		(both & ~offer->options) != 0)
		return 0;
	return both;
}
