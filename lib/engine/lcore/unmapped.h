/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Handles mapped pages that programs have taken away while lcores use them; see unmapped.c. */
#ifndef ENGINE_UNMAPPED_H
#define ENGINE_UNMAPPED_H

#include "lcore.h"
#include "window.h"

/* Whether a program has taken pages away that this lcore has not handled yet. */
static inline bool
eng_unmapped_is_broken(const struct eng_lcore *lc)
{
	return karst_unlikely(eng_window_breaks() != lc->breaks);
}

/* In that case, once a turn: makes that program's keys unusable. */
void eng_unmapped_revoke(struct eng_lcore *lc);

/* In that case, after a burst was sealed.  @return bit set of frames that must not be sent. */
uint64_t eng_unmapped_broken(struct eng_lcore *lc, const struct karst_tx_burst *b);

#endif /* ENGINE_UNMAPPED_H */
