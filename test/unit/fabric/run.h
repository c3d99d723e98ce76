/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* A run that has to succeed, and lengths on the wire, counted by hand. */
#ifndef TEST_FABRIC_RUN_H
#define TEST_FABRIC_RUN_H

#include <criterion/criterion.h>

#include "fabric.h"

/* Preamble 8, Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4, FCS 4, gap 12. */
#define AROUND  82u
#define RETH    16u
#define AETH    4u
#define IMM     4u
#define ACK     (AROUND + 4u)
#define PS_100G 80u      /* of a byte */
#define US      1000000u /* ps */

static inline struct fab_result
fab_test_run(struct fab_config *c)
{
	struct fab_result r;
	char why[256] = "";
	int rc;

	cr_assert_eq(fab_config_complete(c, why, sizeof(why)), 0, "%s", why);
	rc = fab_run(c, &r);
	cr_assert_eq(rc, 0, "%d %s", rc, r.error);
	return r;
}

static inline struct fab_config
fab_test_config(enum fab_workload w)
{
	struct fab_config c;

	fab_config_defaults(&c);
	c.workload = w;
	return c;
}

#endif /* TEST_FABRIC_RUN_H */
