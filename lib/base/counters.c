/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Names and sums of counters and drop reasons; the tables are the .def files. */
#include "karst_counters.h"

struct name {
	const char *name;
	const char *help;
};

static const struct name drop_names[KARST_DROP_MAX] = {
#define KARST_DROP_REASON(sym, n, h) [KARST_DROP_##sym] = {n, h},
#include "karst_drop.def"
#undef KARST_DROP_REASON
};

static const struct name counter_names[KARST_CTR_MAX] = {
#define KARST_COUNTER(sym, n, h) [KARST_CTR_##sym] = {n, h},
#include "karst_counter.def"
#undef KARST_COUNTER
};

static const struct name hw_names[] = {
#define KARST_HW_COUNTER(n, sum, h) {n, h},
#include "karst_hw_counter.def"
#undef KARST_HW_COUNTER
};

const char *
karst_drop_name(enum karst_drop reason)
{
	return (unsigned int)reason < KARST_DROP_MAX ? drop_names[reason].name : "unknown";
}

const char *
karst_drop_help(enum karst_drop reason)
{
	return (unsigned int)reason < KARST_DROP_MAX ? drop_names[reason].help : "unknown";
}

const char *
karst_counter_name(enum karst_counter ctr)
{
	return (unsigned int)ctr < KARST_CTR_MAX ? counter_names[ctr].name : "unknown";
}

const char *
karst_counter_help(enum karst_counter ctr)
{
	return (unsigned int)ctr < KARST_CTR_MAX ? counter_names[ctr].help : "unknown";
}

const char *
karst_hw_counter_name(unsigned int i)
{
	return i < KARST_HW_COUNTERS ? hw_names[i].name : "unknown";
}

const char *
karst_hw_counter_help(unsigned int i)
{
	return i < KARST_HW_COUNTERS ? hw_names[i].help : "unknown";
}

uint64_t
karst_hw_counter_value(const struct karst_counters *c, unsigned int i)
{
#define CTR(sym)  c->ctr[KARST_CTR_##sym]
#define DROP(sym) c->drop[KARST_DROP_##sym]
	const uint64_t values[] = {
#define KARST_HW_COUNTER(n, sum, h) sum,
#include "karst_hw_counter.def"
#undef KARST_HW_COUNTER
	};
#undef DROP
#undef CTR
	return i < KARST_HW_COUNTERS ? values[i] : 0;
}

void
karst_counters_add(struct karst_counters *sum, const struct karst_counters *from)
{
	unsigned int i;

	for (i = 0; i < KARST_DROP_MAX; i++)
		sum->drop[i] += __atomic_load_n(&from->drop[i], __ATOMIC_RELAXED);
	for (i = 0; i < KARST_CTR_MAX; i++)
		sum->ctr[i] += __atomic_load_n(&from->ctr[i], __ATOMIC_RELAXED);
}
