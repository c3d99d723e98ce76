/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* IGMP and MLD of a host: what it sends, when, and which messages it accepts.  The test sets the
 * time. */
#include <stdlib.h>

#include <criterion/criterion.h>

#include "member.h"

#define SECOND UINT64_C(1000000000)
#define T0     (100 * SECOND)

static const struct eng_member_src src = {
	.ip4 = {192, 0, 2, 7}, .link_local = {0xfe, 0x80, [11] = 0xff, [12] = 0xfe, [15] = 7}};
/* 239.1.2.3, 239.9.9.9 and ff05::1:3 in ascending order, after all-hosts and all-nodes */
static const uint8_t groups[][16] = {
	{[10] = 0xff, 0xff, 224, 0, 0, 1},
	{[10] = 0xff, 0xff, 239, 1, 2, 3},
	{[10] = 0xff, 0xff, 239, 9, 9, 9},
	{0xff, 0x01, [15] = 9},
	{0xff, 0x02, [15] = 1},
	{0xff, 0x05, [13] = 1, [15] = 3},
};

static struct eng_members *
table(uint32_t max)
{
	struct eng_members *m = malloc(eng_members_bytes(max));

	eng_members_init(m, max, 4711);
	return m;
}

static uint32_t
sum(const uint8_t *p, size_t len, uint32_t s)
{
	size_t i;

	for (i = 0; i < len; i++)
		s += (uint32_t)p[i] << (i % 2 == 0 ? 8 : 0);
	while (s >> 16 != 0)
		s = (s & 0xffff) + (s >> 16);
	return s;
}

/* What every message must have. */
static void
check_frame(const struct eng_member_msg *msg)
{
	const uint8_t *p = msg->bytes;

	if (p[0] >> 4 == 4) {
		cr_assert_eq(p[0], 0x46);
		cr_assert_eq((size_t)p[2] << 8 | p[3], msg->len);
		cr_assert_eq(p[8], 1, "TTL");
		cr_assert_eq(p[9], 2, "protocol");
		cr_assert_arr_eq(p + 12, src.ip4, 4);
		cr_assert_arr_eq(p + 16, msg->dst + 12, 4);
		cr_assert_arr_eq(p + 20, ((const uint8_t[]){0x94, 4, 0, 0}), 4, "router alert");
		cr_assert_eq(sum(p, 24, 0), 0xffff);
		cr_assert_eq(sum(p + 24, msg->len - 24, 0), 0xffff);
	} else {
		cr_assert_eq(p[0], 0x60);
		cr_assert_eq((size_t)p[4] << 8 | p[5], msg->len - 40);
		cr_assert_eq(p[6], 0, "hop-by-hop first");
		cr_assert_eq(p[7], 1, "hop limit");
		cr_assert_arr_eq(p + 8, src.link_local, 16);
		cr_assert_arr_eq(p + 24, msg->dst, 16);
		cr_assert_arr_eq(p + 40, ((const uint8_t[]){58, 0, 5, 2, 0, 0, 1, 0}), 8);
		cr_assert_eq(
			sum(p + 48, msg->len - 48, sum(p + 8, 32, (uint32_t)msg->len - 48 + 58)),
			0xffff);
	}
}

/* Advances the clock to the next message.  @return when that is. */
static uint64_t
next_at(struct eng_members *m, struct eng_member_msg *msg)
{
	uint64_t now = eng_members_due(m);

	cr_assert_neq(now, ENG_MEMBERS_NEVER, "nothing is due");
	cr_assert_neq(eng_members_next(m, &src, now, msg), 0);
	check_frame(msg);
	return now;
}

static void
no_more(struct eng_members *m)
{
	cr_assert_eq(eng_members_due(m), ENG_MEMBERS_NEVER);
}

/* Expects an IGMPv3 report of these records, each a type and the index of a group. */
static void
expect_igmp3(const struct eng_member_msg *msg, unsigned int n, const unsigned int rec[][2])
{
	const uint8_t *p = msg->bytes + 24;
	unsigned int i;

	cr_assert_eq(p[0], 0x22);
	cr_assert_arr_eq(msg->dst + 12, ((const uint8_t[]){224, 0, 0, 22}), 4);
	cr_assert_eq((unsigned int)p[6] << 8 | p[7], n);
	cr_assert_eq(msg->len, 24 + 8 + 8 * n);
	for (i = 0; i < n; i++) {
		cr_assert_eq(p[8 + 8 * i], rec[i][0], "record %u", i);
		cr_assert_arr_eq(p + 12 + 8 * i, groups[rec[i][1]] + 12, 4);
	}
}

static void
expect_mld2(const struct eng_member_msg *msg, unsigned int type)
{
	const uint8_t *p = msg->bytes + 48;

	cr_assert_eq(p[0], 143);
	cr_assert_eq(msg->dst[15], 22);
	cr_assert_eq(p[7], 1);
	cr_assert_eq(msg->len, 48 + 8 + 20);
	cr_assert_eq(p[8], type);
	cr_assert_arr_eq(p + 12, groups[5], 16);
}

#define RECORDS(...)              \
	(const unsigned int[][2]) \
	{                         \
		__VA_ARGS__       \
	}

/* A change is reported at once and once more within a second; the all-hosts groups are not
 * reported. */
Test(member, joins_and_leaves)
{
	struct eng_members *m = table(16);
	struct eng_member_msg msg;
	uint64_t at;

	eng_members_set(m, groups, 3, T0);
	cr_assert_eq(next_at(m, &msg), T0);
	expect_igmp3(&msg, 2, RECORDS({4, 1}, {4, 2}));
	at = next_at(m, &msg);
	cr_assert(at > T0 && at <= T0 + SECOND);
	expect_igmp3(&msg, 1, RECORDS({4, msg.bytes[24 + 13] == 1 ? 1 : 2}));
	at = next_at(m, &msg);
	cr_assert(at <= T0 + SECOND);
	no_more(m);
	eng_members_set(m, groups, 2, T0 + 9 * SECOND);
	cr_assert_eq(next_at(m, &msg), T0 + 9 * SECOND);
	expect_igmp3(&msg, 1, RECORDS({3, 2}));
	next_at(m, &msg);
	expect_igmp3(&msg, 1, RECORDS({3, 2}));
	no_more(m);
	cr_assert_eq(m->n, 1);
	cr_assert_eq(m->reports, 5);
	free(m);
}

Test(member, mld_joins_and_leaves)
{
	struct eng_members *m = table(16);
	struct eng_member_msg msg;

	eng_members_set(m, groups + 3, 3, T0);
	cr_assert_eq(next_at(m, &msg), T0);
	expect_mld2(&msg, 4);
	next_at(m, &msg);
	expect_mld2(&msg, 4);
	no_more(m);
	/* joined again before its leaving was reported often enough */
	eng_members_set(m, NULL, 0, T0 + 2 * SECOND);
	next_at(m, &msg);
	expect_mld2(&msg, 3);
	eng_members_set(m, groups + 5, 1, T0 + 2 * SECOND);
	cr_assert_eq(next_at(m, &msg), T0 + 2 * SECOND);
	expect_mld2(&msg, 4);
	next_at(m, &msg);
	expect_mld2(&msg, 4);
	no_more(m);
	free(m);
}

/* --- queries --- */

/* Builds an IGMP query of @len bytes; @group: an index of groups[], 0: general. */
static size_t
igmp_query(uint8_t *p, size_t len, uint8_t code, unsigned int group, uint8_t qrv)
{
	uint32_t s;

	memset(p, 0, 24 + len);
	p[0] = 0x46;
	p[3] = (uint8_t)(24 + len);
	p[8] = 1;
	p[9] = 2;
	memcpy(p + 12, (const uint8_t[]){192, 0, 2, 1, 224, 0, 0, 1, 0x94, 4}, 10);
	s = sum(p, 24, 0) ^ 0xffff;
	p[10] = (uint8_t)(s >> 8);
	p[11] = (uint8_t)s;
	p[24] = 0x11;
	p[25] = code;
	if (group != 0)
		memcpy(p + 28, groups[group] + 12, 4);
	if (len > 8)
		p[32] = qrv;
	s = sum(p + 24, len, 0) ^ 0xffff;
	p[26] = (uint8_t)(s >> 8);
	p[27] = (uint8_t)s;
	return 24 + len;
}

/* Builds an MLD query of @len bytes; @group: an index of groups[], 0: general. */
static size_t
mld_query(uint8_t *p, size_t len, uint16_t code, unsigned int group)
{
	uint32_t s;

	memset(p, 0, 48 + len);
	p[0] = 0x60;
	p[5] = (uint8_t)(8 + len);
	p[7] = 1;
	memcpy(p + 8, (const uint8_t[]){0xfe, 0x80, [15] = 1}, 16);
	memcpy(p + 24, (const uint8_t[]){0xff, 2, [15] = 1}, 16);
	memcpy(p + 40, (const uint8_t[]){58, 0, 5, 2, 0, 0, 1, 0}, 8);
	p[48] = 130;
	p[52] = (uint8_t)(code >> 8);
	p[53] = (uint8_t)code;
	if (group != 0)
		memcpy(p + 56, groups[group], 16);
	s = sum(p + 48, len, sum(p + 8, 32, (uint32_t)len + 58)) ^ 0xffff;
	p[50] = (uint8_t)(s >> 8);
	p[51] = (uint8_t)s;
	return 48 + len;
}

/* All groups are joined, and no report of that is due any more. */
static struct eng_members *
settled(void)
{
	struct eng_members *m = table(16);
	struct eng_member_msg msg;

	eng_members_set(m, groups, 6, T0);
	while (eng_members_due(m) != ENG_MEMBERS_NEVER)
		next_at(m, &msg);
	return m;
}

Test(member, general_query)
{
	struct eng_members *m = settled();
	uint64_t now = T0 + 60 * SECOND, at;
	struct eng_member_msg msg;
	uint8_t q[128];

	/* within 5 s: all groups in one report, and no others; a second query does not delay it */
	cr_assert(eng_members_query(m, q, igmp_query(q, 12, 50, 0, 2), now));
	at = eng_members_due(m);
	cr_assert(at > now && at <= now + 5 * SECOND);
	cr_assert(eng_members_query(m, q, igmp_query(q, 12, 100, 0, 2), now));
	cr_assert_leq(eng_members_due(m), at);
	cr_assert_eq(eng_members_next(m, &src, eng_members_due(m) - 1, &msg), 0);
	next_at(m, &msg);
	expect_igmp3(&msg, 2, RECORDS({2, 1}, {2, 2}));
	no_more(m);
	cr_assert(eng_members_query(m, q, mld_query(q, 28, 10000, 0), now));
	at = next_at(m, &msg);
	cr_assert(at >= now && at <= now + 10 * SECOND);
	expect_mld2(&msg, 2);
	no_more(m);
	cr_assert_eq(m->queries, 3);
	free(m);
}

Test(member, query_of_a_group)
{
	struct eng_members *m = settled();
	uint64_t now = T0 + 60 * SECOND, at;
	struct eng_member_msg msg;
	uint8_t q[128];

	cr_assert(eng_members_query(m, q, igmp_query(q, 12, 10, 2, 2), now));
	at = next_at(m, &msg);
	cr_assert(at >= now && at <= now + SECOND);
	expect_igmp3(&msg, 1, RECORDS({2, 2}));
	no_more(m);
	cr_assert(eng_members_query(m, q, mld_query(q, 28, 1000, 5), now));
	at = next_at(m, &msg);
	cr_assert(at >= now && at <= now + SECOND);
	expect_mld2(&msg, 2);
	/* a query for a group that was not joined, or was left */
	eng_members_set(m, groups, 2, now);
	while (eng_members_due(m) != ENG_MEMBERS_NEVER)
		next_at(m, &msg);
	cr_assert(eng_members_query(m, q, igmp_query(q, 12, 10, 2, 2), now));
	no_more(m);
	free(m);
}

/* How many messages answer a querier that asks every 10 ms for 3 s, and wants an answer at once;
 * @group as for the queries. */
static unsigned int
answers_to_a_flood(bool mld, unsigned int group, bool old)
{
	struct eng_members *m = settled();
	uint64_t now = T0 + 60 * SECOND, end = now + 3 * SECOND;
	struct eng_member_msg msg;
	unsigned int n = 0;
	uint8_t q[128];

	for (; now < end; now += SECOND / 100) {
		size_t len = mld ? mld_query(q, old ? 24 : 28, 0, group)
				 : igmp_query(q, old ? 8 : 12, 0, group, 2);

		cr_assert(eng_members_query(m, q, len, now));
		while (eng_members_due(m) <= now)
			n += eng_members_next(m, &src, now, &msg) != 0;
	}
	free(m);
	return n;
}

/* A querier that asks again and again is answered, but not each time. */
Test(member, query_flood)
{
	cr_assert_eq(answers_to_a_flood(false, 0, false), 3);
	cr_assert_eq(answers_to_a_flood(true, 0, false), 3);
	cr_assert_eq(answers_to_a_flood(false, 2, false), 30);
	cr_assert_eq(answers_to_a_flood(true, 5, false), 30);
	cr_assert_eq(answers_to_a_flood(true, 0, true), 3);
}

/* The querier's robustness variable is how often a change is reported; 0 has no effect. */
Test(member, robustness)
{
	struct eng_members *m = table(4);
	struct eng_member_msg msg;
	unsigned int i;
	uint8_t q[128];

	eng_members_query(m, q, igmp_query(q, 12, 10, 0, 4), T0);
	eng_members_next(m, &src, eng_members_due(m), &msg);
	eng_members_query(m, q, igmp_query(q, 12, 10, 2, 0), T0);
	eng_members_set(m, groups + 1, 1, T0 + 2 * SECOND);
	for (i = 0; i < 4; i++) {
		next_at(m, &msg);
		expect_igmp3(&msg, 1, RECORDS({4, 1}));
	}
	no_more(m);
	free(m);
}

/* RFC 3376, 7: after a query of version 2, or 1, the host uses that version until no such query has
 * come for 260 s. */
Test(member, old_queriers)
{
	struct eng_members *m = settled();
	uint64_t now = T0 + 60 * SECOND, at;
	struct eng_member_msg msg;
	uint8_t q[128];

	cr_assert(eng_members_query(m, q, igmp_query(q, 8, 100, 2, 0), now));
	at = next_at(m, &msg);
	cr_assert(at >= now && at <= now + 10 * SECOND);
	cr_assert_eq(msg.bytes[24], 0x16);
	cr_assert_eq(msg.len, 32);
	cr_assert_arr_eq(msg.dst, groups[2], 16, "to the group");
	cr_assert_arr_eq(msg.bytes + 28, groups[2] + 12, 4);
	no_more(m);
	/* the leave message, to all routers, once */
	eng_members_set(m, groups, 2, now + 20 * SECOND);
	next_at(m, &msg);
	cr_assert_eq(msg.bytes[24], 0x17);
	cr_assert_arr_eq(msg.dst + 12, ((const uint8_t[]){224, 0, 0, 2}), 4);
	cr_assert_arr_eq(msg.bytes + 28, groups[2] + 12, 4);
	/* the MLD group was left, too, with the current version */
	next_at(m, &msg);
	expect_mld2(&msg, 3);
	next_at(m, &msg);
	no_more(m);
	/* version 1, with all groups: there is no message for leaving */
	now += 30 * SECOND;
	cr_assert(eng_members_query(m, q, igmp_query(q, 8, 0, 0, 0), now));
	cr_assert_eq(m->family[ENG_IGMP].version, 1);
	next_at(m, &msg);
	cr_assert_eq(msg.bytes[24], 0x12);
	eng_members_set(m, NULL, 0, now + 20 * SECOND);
	cr_assert_eq(eng_members_next(m, &src, now + 20 * SECOND, &msg), 0);
	no_more(m);
	/* no old querier has been heard for long */
	now += 261 * SECOND;
	eng_members_set(m, groups, 2, now);
	next_at(m, &msg);
	cr_assert_eq(m->family[ENG_IGMP].version, 3);
	free(m);
}

Test(member, old_mld_querier)
{
	struct eng_members *m = settled();
	struct eng_member_msg msg;
	uint8_t q[128];

	cr_assert(eng_members_query(m, q, mld_query(q, 24, 1000, 0), T0 + 60 * SECOND));
	next_at(m, &msg);
	cr_assert_eq(msg.bytes[48], 131);
	cr_assert_eq(msg.len, 48 + 24);
	cr_assert_arr_eq(msg.dst, groups[5], 16);
	cr_assert_arr_eq(msg.bytes + 56, groups[5], 16);
	eng_members_set(m, groups, 3, T0 + 70 * SECOND);
	next_at(m, &msg);
	cr_assert_eq(msg.bytes[48], 132);
	cr_assert_eq(msg.dst[15], 2);
	no_more(m);
	free(m);
}

/* Other messages are not accepted: each byte of a query is varied that must not vary, and each
 * length. */
Test(member, bad_queries)
{
	static const unsigned int igmp[] = {0, 2, 3, 6, 8, 10, 12, 20, 24, 26, 28, 32};
	static const unsigned int mld[] = {4, 5, 6, 7, 8, 40, 41, 42, 48, 49, 50, 60};
	struct eng_members *m = settled();
	uint64_t now = T0 + 60 * SECOND;
	uint8_t q[128];
	unsigned int i;
	size_t len;

	for (i = 0; i < sizeof(igmp) / sizeof(igmp[0]); i++) {
		len = igmp_query(q, 12, 50, 2, 2);
		q[igmp[i]] ^= 0x40;
		cr_assert_not(eng_members_query(m, q, len, now), "byte %u", igmp[i]);
	}
	for (i = 0; i < sizeof(mld) / sizeof(mld[0]); i++) {
		len = mld_query(q, 28, 50, 5);
		q[mld[i]] ^= 0x40;
		cr_assert_not(eng_members_query(m, q, len, now), "byte %u", mld[i]);
	}
	for (len = igmp_query(q, 12, 50, 2, 2); len-- > 0;)
		cr_assert_not(eng_members_query(m, q, len, now), "%zu bytes", len);
	for (len = mld_query(q, 28, 50, 5); len-- > 0;)
		cr_assert_not(eng_members_query(m, q, len, now), "%zu bytes", len);
	cr_assert_not(eng_members_query(m, q, igmp_query(q, 9, 50, 2, 2), now));
	no_more(m);
	cr_assert_eq(m->queries, 0);
	cr_assert_gt(m->bad_queries, 0);
	free(m);
}

/* Reports are not queries, and belong to the same protocols. */
Test(member, what_is_what)
{
	struct eng_members *m = table(8);
	struct eng_member_msg msg;
	uint8_t q[128];

	eng_members_set(m, groups, 6, T0);
	while (eng_members_due(m) != ENG_MEMBERS_NEVER) {
		next_at(m, &msg);
		cr_assert(eng_member_is_any(msg.bytes, msg.len));
		cr_assert_not(eng_member_is_query(msg.bytes, msg.len));
		cr_assert_not(eng_member_is_any(msg.bytes, 27));
	}
	cr_assert(eng_member_is_any(q, igmp_query(q, 8, 1, 0, 0)));
	cr_assert(eng_member_is_any(q, mld_query(q, 24, 1, 0)));
	q[48] = 135;
	cr_assert_not(eng_member_is_any(q, 72), "a solicitation");
	free(m);
}

/* --- many --- */

static void
number(uint8_t ip[16], uint32_t i)
{
	memset(ip, 0, 16);
	ip[10] = ip[11] = 0xff;
	ip[12] = 239;
	ip[14] = (uint8_t)(i >> 8);
	ip[15] = (uint8_t)i;
}

/* More records than fit into one report are sent in several; the table never holds more than twice
 * as many groups. */
Test(member, many)
{
	struct eng_members *m = table(300);
	static uint8_t ips[600][16];
	struct eng_member_msg msg;
	uint32_t i, said = 0;

	for (i = 0; i < 600; i++)
		number(ips[i], i);
	eng_members_set(m, (const uint8_t(*)[16])ips, 300, T0);
	while (eng_members_due(m) == T0) {
		next_at(m, &msg);
		said += msg.bytes[24 + 7];
		cr_assert_leq(msg.bytes[24 + 7], ENG_MEMBER_RECORDS);
	}
	cr_assert_eq(said, 300);
	/* other groups, and then others again before the leaving of the first ones has been
	 * reported */
	eng_members_set(m, (const uint8_t(*)[16])ips + 300, 300, T0);
	cr_assert_eq(m->n, 600);
	eng_members_set(m, (const uint8_t(*)[16])ips + 150, 300, T0);
	cr_assert_eq(m->n, 600);
	for (i = said = 0; i < m->n; i++) {
		said += m->group[i].joined;
		cr_assert(i == 0 || memcmp(m->group[i - 1].ip, m->group[i].ip, 16) < 0);
	}
	cr_assert_eq(said, 300);
	free(m);
}

static int
by_bytes(const void *a, const void *b)
{
	return memcmp(a, b, 16);
}

/* New groups each time, in a full table: those that are joined are in it, in order. */
Test(member, a_full_table)
{
	static uint8_t ips[4][16];
	struct eng_members *m = table(4);
	uint32_t i, k, joined;

	for (i = 0; i < 1000; i++) {
		for (k = 0; k < 4; k++)
			number(ips[k], (i * 7919u + k * 16001u) & 0xffff);
		qsort(ips, 4, 16, by_bytes);
		eng_members_set(m, (const uint8_t(*)[16])ips, 4, T0 + i);
		cr_assert_leq(m->n, 8);
		for (k = joined = 0; k < m->n; k++) {
			cr_assert(k == 0 || memcmp(m->group[k - 1].ip, m->group[k].ip, 16) < 0);
			joined += m->group[k].joined;
		}
		cr_assert_eq(joined, 4);
	}
	free(m);
}
