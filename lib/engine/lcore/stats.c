/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Counters of lcores, the engine's clock, and keys that are derived from its secret. */
#include "karst_prf.h"
#include "lcore.h"

uint64_t
karst_engine_now_ns(const struct karst_engine *e)
{
	return engine_now(e);
}

void
eng_secret(const struct karst_engine *e, enum eng_secret_use use, uint32_t n, uint64_t key[2])
{
	karst_prf_derive(e->secret, use, n, key);
}

void
karst_engine_counters(const struct karst_engine *e, uint32_t lcore, struct karst_counters *sum)
{
	uint32_t i;

	memset(sum, 0, sizeof(*sum));
	for (i = 0; i < e->nlcores; i++)
		if (lcore == i || lcore == KARST_ENGINE_ANY_LCORE)
			karst_counters_add(sum, &e->lcore[i].core->counters);
}

int
karst_engine_lcore_stats(
	const struct karst_engine *e, uint32_t lcore, struct karst_engine_lcore_stats *stats)
{
	const uint64_t *from;
	uint64_t *to = (uint64_t *)stats;
	size_t i;

	if (lcore >= e->nlcores)
		return -EINVAL;
	from = (const uint64_t *)&e->lcore[lcore].stats;
	for (i = 0; i < sizeof(*stats) / sizeof(*to); i++)
		to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
	return 0;
}
