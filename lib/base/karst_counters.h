/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Counters and drop reasons.  Both are generated from one table each (karst_counter.def,
 * karst_drop.def); a third table (karst_hw_counter.def) has those for which Linux has other names.
 * A set belongs to one lcore, which is its only writer; readers on other threads see no torn 64-bit
 * values.
 */
#ifndef KARST_COUNTERS_H
#define KARST_COUNTERS_H

#include "karst_base.h"

enum karst_drop {
#define KARST_DROP_REASON(sym, name, help) KARST_DROP_##sym,
#include "karst_drop.def"
#undef KARST_DROP_REASON
	KARST_DROP_MAX
};

enum karst_counter {
#define KARST_COUNTER(sym, name, help) KARST_CTR_##sym,
#include "karst_counter.def"
#undef KARST_COUNTER
	KARST_CTR_MAX
};

/* Position in karst_hw_counter.def. */
enum {
	KARST_HW_COUNTERS = 0
#define KARST_HW_COUNTER(name, sum, help) +1
#include "karst_hw_counter.def"
#undef KARST_HW_COUNTER
};

struct karst_counters {
	uint64_t drop[KARST_DROP_MAX];
	uint64_t ctr[KARST_CTR_MAX];
} karst_cache_aligned;

/** Telemetry name of a drop reason, "unknown" if out of range. */
const char *karst_drop_name(enum karst_drop reason);
/** One-line meaning of a drop reason. */
const char *karst_drop_help(enum karst_drop reason);
/** Telemetry name of a counter, "unknown" if out of range. */
const char *karst_counter_name(enum karst_counter ctr);
/** One-line meaning of a counter. */
const char *karst_counter_help(enum karst_counter ctr);
/** Name in the style of Linux's hw_counters; @i below KARST_HW_COUNTERS, else "unknown". */
const char *karst_hw_counter_name(unsigned int i);
/** One-line meaning. */
const char *karst_hw_counter_help(unsigned int i);
/** Its value, from counters that were summed up before. */
uint64_t karst_hw_counter_value(const struct karst_counters *c, unsigned int i);
/** Adds @from to @sum, entry by entry; the lcore of @from may write to it at the same time. */
void karst_counters_add(struct karst_counters *sum, const struct karst_counters *from);

/*
 * Plain load, relaxed store: there is one writer, so no read-modify-write is needed, and readers on
 * other threads see no torn value.
 */
static inline void
karst_count_n(struct karst_counters *c, enum karst_counter ctr, uint64_t n)
{
	__atomic_store_n(&c->ctr[ctr], c->ctr[ctr] + n, __ATOMIC_RELAXED);
}

static inline void
karst_count(struct karst_counters *c, enum karst_counter ctr)
{
	karst_count_n(c, ctr, 1);
}

static inline void
karst_count_drop(struct karst_counters *c, enum karst_drop reason)
{
	__atomic_store_n(&c->drop[reason], c->drop[reason] + 1, __ATOMIC_RELAXED);
}

#endif /* KARST_COUNTERS_H */
