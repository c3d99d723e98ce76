/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Pages that programs have taken away under an lcore; unmapped.c says how. */
#ifndef ENGINE_UNMAPPED_H
#define ENGINE_UNMAPPED_H

#include "lcore.h"
#include "window.h"

/* Has any program taken pages away since this lcore last looked? */
static inline bool
eng_unmapped_is_broken(const struct eng_lcore *lc)
{
	return karst_unlikely(eng_window_breaks() != lc->breaks);
}

/* Then, once a turn: that program's keys become unusable. */
void eng_unmapped_revoke(struct eng_lcore *lc);

/* Then, after a burst was sealed.  @return bit set of frames that must not be sent. */
uint64_t eng_unmapped_broken(struct eng_lcore *lc, const struct karst_tx_burst *b);

#endif /* ENGINE_UNMAPPED_H */
