/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The table of neighbours, with the test's own clock. */
#include <stdlib.h>

#include <criterion/criterion.h>

#include "neigh_table.h"

#define MS UINT64_C(1000000)
#define S  (1000 * MS)

static const uint8_t mac_a[6] = {2, 0, 0, 0, 0, 0xa};
static const uint8_t mac_b[6] = {2, 0, 0, 0, 0, 0xb};

static struct karst_engine_addr
host(uint32_t n)
{
	return karst_engine_addr_ip4(0x0a000000 + n);
}

static struct eng_neigh_table *
table(void)
{
	static const uint64_t key[2] = {4711, 4712};
	struct eng_neigh_table *t = malloc(sizeof(*t));

	cr_assert_not_null(t);
	eng_neigh_table_init(t, key);
	return t;
}

static bool
use(struct eng_neigh_table *t, uint32_t n, uint64_t now, uint8_t mac[6], bool *ask)
{
	memset(mac, 0, 6);
	return eng_neigh_use(t, host(n).ip, now, mac, ask);
}

/* Counts the questions that @n lookups in turn cause, one each @step. */
static unsigned int
questions(struct eng_neigh_table *t, uint64_t from, uint64_t step, unsigned int n)
{
	unsigned int i, asked = 0;
	uint8_t mac[6];
	bool ask;

	for (i = 0; i < n; i++) {
		use(t, 1, from + i * step, mac, &ask);
		asked += ask;
	}
	return asked;
}

Test(neigh_table, questions_are_paced)
{
	struct eng_neigh_table *t = table();

	/* at 0, 100, 300, 700, 1500, 2500, 3500 ms, ... */
	cr_assert_eq(questions(t, 0, MS, 1), 1);
	cr_assert_eq(questions(t, MS, MS, 99), 0);
	cr_assert_eq(questions(t, 100 * MS, MS, 1), 1);
	cr_assert_eq(questions(t, 101 * MS, MS, 1400), 3);
	cr_assert_eq(questions(t, 1501 * MS, MS, 10000), 10);
	/* the entry was removed, and is wanted again: questions come quickly at first */
	cr_assert_eq(questions(t, 60 * S, MS, 101), 2);
	free(t);
}

Test(neigh_table, age_and_doubt)
{
	struct eng_neigh_table *t = table();
	uint64_t now = S;
	uint8_t mac[6];
	bool ask;

	cr_assert_not(eng_neigh_answer(t, host(1).ip, mac_a, now), "nobody has asked");
	cr_assert_not(use(t, 1, now, mac, &ask));
	cr_assert(ask);
	cr_assert(eng_neigh_answer(t, host(1).ip, mac_a, now + MS));
	cr_assert_not(eng_neigh_answer(t, host(1).ip, mac_b, now + 2 * MS), "it was answered");
	cr_assert(use(t, 1, now + 50 * S, mac, &ask));
	cr_assert_not(ask);
	cr_assert_arr_eq(mac, mac_a, 6);
	/* old: used and asked for, a few times, then no more */
	now += 61 * S;
	cr_assert(use(t, 1, now, mac, &ask));
	cr_assert(ask);
	cr_assert(use(t, 1, now + 200 * MS, mac, &ask));
	cr_assert(use(t, 1, now + 500 * MS, mac, &ask));
	cr_assert(use(t, 1, now + 1000 * MS, mac, &ask));
	cr_assert(ask);
	cr_assert_not(use(t, 1, now + 2000 * MS, mac, &ask));
	/* back, with another MAC address */
	cr_assert(ask);
	cr_assert(eng_neigh_answer(t, host(1).ip, mac_b, now + 2001 * MS));
	cr_assert(use(t, 1, now + 3 * S, mac, &ask));
	cr_assert_arr_eq(mac, mac_b, 6);
	/* a claim that agrees changes nothing, a claim that differs makes the table ask */
	eng_neigh_claim(t, host(1).ip, mac_b);
	cr_assert(use(t, 1, now + 4 * S, mac, &ask));
	cr_assert_not(ask);
	eng_neigh_claim(t, host(1).ip, mac_a);
	cr_assert(use(t, 1, now + 5 * S, mac, &ask));
	cr_assert(ask);
	cr_assert_arr_eq(mac, mac_b, 6);
	/* unused for so long that the neighbour has to answer first */
	now += 1000 * S;
	cr_assert_not(use(t, 1, now, mac, &ask));
	/* an answer that comes much too late */
	cr_assert_not(eng_neigh_answer(t, host(1).ip, mac_a, now + 100 * S));
	free(t);
}

Test(neigh_table, bounded)
{
	struct karst_engine_neigh *list = calloc(KARST_ENGINE_NEIGH_MAX, sizeof(*list));
	struct eng_neigh_table *t = table();
	unsigned int i, n, again = 0;
	uint8_t mac[6];
	bool ask;

	for (i = 0; i < 100000; i++) {
		/* an entry that is in use all the time stays */
		use(t, 1, i * MS, mac, &ask);
		if (ask)
			eng_neigh_answer(t, host(1).ip, mac_a, i * MS);
		else
			cr_assert_arr_eq(mac, mac_a, 6);
		again += ask;
		use(t, 2 + i, i * MS, mac, &ask);
	}
	cr_assert_leq(again, 3);
	n = eng_neigh_entries(t, 100 * S, list, 10);
	cr_assert_leq(n, KARST_ENGINE_NEIGH_MAX);
	cr_assert_gt(n, KARST_ENGINE_NEIGH_MAX / 2);
	cr_assert_eq(eng_neigh_entries(t, 100 * S, list, KARST_ENGINE_NEIGH_MAX), n);
	for (i = 0; i < n && memcmp(list[i].ip, host(1).ip, 16) != 0; i++)
		;
	cr_assert_lt(i, n);
	cr_assert_eq(list[i].state, KARST_NEIGH_KNOWN);
	cr_assert_arr_eq(list[i].mac, mac_a, 6);
	free(list);
	free(t);
}
