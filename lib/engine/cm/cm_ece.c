/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Enhanced connection establishment of identifiers (C3, X1): its values in REQs and REPs, in both
 * directions.
 *
 * Programs do not see values of other vendors, or values that are neither an offer nor an answer:
 * the provider of librdmacm could not use them, and an answer in the name of another vendor would
 * make that vendor's adapter assume abilities that do not exist.  So only values of this engine are
 * sent: an offer, or the answer to one.
 */
#include <errno.h>

#include "cm.h"
#include "ece.h"

static const struct karst_cm_ece nothing;

static uint32_t
can(const struct eng_cm *cm, const struct cm_id *id)
{
	return id->qp_type == KARST_QPT_RC ? eng_ece_can(&cm->e->cfg) : 0;
}

static struct karst_cm_ece
ece_of_ctl(const struct karst_ctl_ece *ece)
{
	return (struct karst_cm_ece){.vendor = ece->vendor, .options = ece->options};
}

static void
ece_tell(struct cm_event *out, const struct karst_cm_ece *ece)
{
	out->rsp.ece = (struct karst_ctl_ece){.vendor = ece->vendor, .options = ece->options};
}

/* --- active side --- */

int
eng_cm_ece_connect(struct eng_cm *cm, char *why, const struct cm_id *id,
	const struct karst_ctl_ece *ece, struct karst_cm_ece *out)
{
	const struct karst_cm_ece offer = karst_cm_ece_offer(can(cm, id), ENG_REPEAT_WINDOW_SHIFT);

	*out = nothing;
	if (ece->vendor == 0 || ece->options == 0)
		return 0;
	if (ece->vendor != offer.vendor || (can(cm, id) != 0 && ece->options != offer.options))
		return karst_ctl_reason(why, -EINVAL,
			"connect: ECE of vendor 0x%06x with options 0x%08x: must be what a queue "
			"pair of this engine offers, 0x%06x and 0x%08x",
			ece->vendor, ece->options, offer.vendor, offer.options);
	if (can(cm, id) != 0 && cm->e->cfg.ece == KARST_ENGINE_ECE_OFFER)
		*out = offer;
	return 0;
}

void
eng_cm_ece_connected(struct eng_cm *cm, struct cm_id *id, const struct karst_cm_ece *offer)
{
	id->offer = *offer;
	if (karst_cm_ece_is(offer))
		cm->stats.ece_offered++;
}

void
eng_cm_ece_response(struct eng_cm *cm, const struct cm_id *id, const struct karst_cm_ece *said,
	struct cm_event *out)
{
	if (karst_cm_ece_agreed(&id->offer, said) != 0) {
		cm->stats.ece_agreed++;
		ece_tell(out, said);
	} else if (karst_cm_ece_is(said)) {
		cm->stats.ece_ignored++;
	}
}

/* --- passive side --- */

void
eng_cm_ece_request(
	struct eng_cm *cm, struct cm_id *id, const struct karst_cm_ece *said, struct cm_event *out)
{
	const struct karst_cm_ece answer =
		karst_cm_ece_answer(said, can(cm, id), ENG_REPEAT_WINDOW_SHIFT);

	if (karst_cm_ece_is(&answer)) {
		id->offer = *said;
		ece_tell(out, said);
	} else if (karst_cm_ece_is(said)) {
		cm->stats.ece_ignored++;
	}
}

struct karst_cm_ece
eng_cm_ece_accept(const struct eng_cm *cm, const struct cm_id *id, const struct karst_ctl_ece *ece)
{
	const struct karst_cm_ece answer = ece_of_ctl(ece);
	uint32_t agreed = karst_cm_ece_agreed(&id->offer, &answer);

	return agreed != 0 && (agreed & ~can(cm, id)) == 0 ? answer : nothing;
}

void
eng_cm_ece_accepted(struct eng_cm *cm, const struct karst_cm_ece *answer)
{
	if (karst_cm_ece_is(answer))
		cm->stats.ece_agreed++;
}
