/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Common code for tests of groups and their links. */
#ifndef SMC_GROUP_BED_H
#define SMC_GROUP_BED_H

#include <criterion/criterion.h>

#include "bed.h"

#define SEC UINT64_C(1000000000)

static inline uint64_t
counter(struct bed *b, unsigned int sys, enum karst_smc_counter c)
{
	return b->s[sys].smc->counters[c];
}

/* Delivers @m to system @to, by its first link. */
static inline void
llc(struct bed *b, unsigned int to, const struct karst_smc_llc *m)
{
	uint8_t buf[KARST_SMC_LLC_MAX_LEN];
	int len = karst_smc_llc_build(m, buf, sizeof(buf));

	cr_assert_gt(len, 0);
	karst_smc_link_rx(b->s[to].smc, b->s[to].links[0], buf, (size_t)len);
}

/* Ends the connection on both sides. */
static inline void
close_both(struct bed *b)
{
	for (unsigned int i = 0; i < 2; i++)
		karst_smc_conn_close(b->s[i].smc, b->s[i].conn);
	bed_pump(b);
	for (unsigned int i = 0; i < 2; i++)
		cr_assert_eq(karst_smc_conn_release(b->s[i].smc, b->s[i].conn), 0);
	bed_pump(b);
}

/* Of the only group. */
static inline unsigned int
nlinks(struct bed *b, unsigned int sys)
{
	struct karst_smc_group_info info;

	cr_assert_eq(karst_smc_group_info(b->s[sys].smc, 0, &info), 0);
	return info.nlinks;
}

#endif /* SMC_GROUP_BED_H */
