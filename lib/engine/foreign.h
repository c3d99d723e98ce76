/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Foreign memory on an lcore; foreign.c says how it works. */
#ifndef ENGINE_FOREIGN_H
#define ENGINE_FOREIGN_H

#include "engine_priv.h"
#include "window.h"

/* For struct karst_core_config; core->user is the lcore. */
extern const struct karst_foreign_ops eng_foreign_ops;

int eng_foreign_init(struct eng_lcore *lc);
void eng_foreign_fini(struct eng_lcore *lc);

/* A burst with foreign segments was built: makes them ordinary ones.  The copies are good until
 * the next burst is begun.  @return bit set of frames that must not be sent. */
uint64_t eng_foreign_fetch(struct eng_lcore *lc, const struct karst_tx_burst *b);

/* Has any program taken pages away since this lcore last looked? */
static inline bool
eng_foreign_is_broken(const struct eng_lcore *lc)
{
	return karst_unlikely(eng_window_breaks() != lc->breaks);
}

/* Then, after a burst was sealed: that program's keys become unusable.  @return bit set of frames
 * that must not be sent. */
uint64_t eng_foreign_broken(struct eng_lcore *lc, const struct karst_tx_burst *b);

/* Packets were delivered: what they queued is written, so that their buffers can be used again. */
static inline void
eng_foreign_flush(struct eng_lcore *lc)
{
	if (karst_unlikely(lc->core->foreign_queued != 0))
		eng_foreign_ops.flush(lc->core, NULL);
}

#endif /* ENGINE_FOREIGN_H */
