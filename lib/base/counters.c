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

void
karst_counters_add(struct karst_counters *sum, const struct karst_counters *from)
{
	unsigned int i;

	for (i = 0; i < KARST_DROP_MAX; i++)
		sum->drop[i] += __atomic_load_n(&from->drop[i], __ATOMIC_RELAXED);
	for (i = 0; i < KARST_CTR_MAX; i++)
		sum->ctr[i] += __atomic_load_n(&from->ctr[i], __ATOMIC_RELAXED);
}
