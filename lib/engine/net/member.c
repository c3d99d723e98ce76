/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The host's side of IGMP and MLD, which differ only in their messages.
 *
 * A change is reported at once, and again a few times at random moments within a second (ten
 * seconds with old versions), since nothing acknowledges it.  A query is answered after a random
 * time, so that not all hosts answer at once; for a query about all groups there is one time for
 * all.  A group that was left stays in the table until that has been reported often enough.
 *
 * Any host on the link can send queries at any rate that request an answer at once.  So after an
 * answer, the same answer is not sent again for a while: a second for all groups, which queriers
 * ask for every two minutes; a tenth of a second for a single group, for which queriers may wait so
 * little.
 *
 * A querier of an older version makes the whole link use that version until no such querier has
 * been heard for a while.  Reports of other hosts do not suppress ours, although old versions want
 * that: switches that snoop reports keep them from this host anyhow, and need ours.
 */
#include "member.h"

#include <string.h>

#define SECOND         UINT64_C(1000000000)
#define ROBUSTNESS     2u
#define ROBUSTNESS_MAX 7u
#define REPEAT_NS      SECOND
#define OLD_REPEAT_NS  (10 * SECOND)
#define QUIET_NS       SECOND
#define GROUP_QUIET_NS (SECOND / 10)
/* Older Version Querier Present Timeout: twice the query interval, plus the response time. */
#define OLD_QUERIER_NS (260 * SECOND)

static const uint8_t ip4_head[12] = {[10] = 0xff, [11] = 0xff};

static enum eng_member_proto
proto_of(const uint8_t ip[16])
{
	return memcmp(ip, ip4_head, sizeof(ip4_head)) == 0 ? ENG_IGMP : ENG_MLD;
}

static uint8_t
member_newest(enum eng_member_proto proto)
{
	return proto == ENG_IGMP ? 3 : 2;
}

size_t
eng_members_bytes(uint32_t max_groups)
{
	/* as many groups may be leaving */
	return sizeof(struct eng_members) + 2 * (size_t)max_groups * sizeof(struct eng_member);
}

void
eng_members_init(struct eng_members *m, uint32_t max_groups, uint64_t seed)
{
	enum eng_member_proto i;

	memset(m, 0, sizeof(*m));
	m->max = 2 * max_groups;
	m->random = seed | 1;
	m->due_ns = ENG_MEMBERS_NEVER;
	for (i = ENG_IGMP; i <= ENG_MLD; i++)
		m->family[i] = (struct eng_member_family){.robustness = ROBUSTNESS,
			.version = member_newest(i),
			.answer_ns = ENG_MEMBERS_NEVER};
}

/* A random time within @span_ns from now. */
static uint64_t
member_moment(struct eng_members *m, uint64_t now_ns, uint64_t span_ns)
{
	m->random ^= m->random << 13;
	m->random ^= m->random >> 7;
	m->random ^= m->random << 17;
	return now_ns + m->random % (span_ns + 1);
}

static void
members_settle_due(struct eng_members *m)
{
	uint64_t due = karst_min_u64(m->family[ENG_IGMP].answer_ns, m->family[ENG_MLD].answer_ns);
	uint32_t i;

	for (i = 0; i < m->n; i++) {
		due = karst_min_u64(due, m->group[i].answer_ns);
		if (m->group[i].changes != 0)
			due = karst_min_u64(due, m->group[i].change_ns);
	}
	m->due_ns = due;
}

/* --- changes --- */

/* The all-hosts groups are never reported, nor are groups that do not leave a host. */
static bool
is_reported(const uint8_t ip[16])
{
	static const uint8_t all_hosts[4] = {224, 0, 0, 1};
	static const uint8_t all_nodes[16] = {0xff, 0x02, [15] = 1};

	if (proto_of(ip) == ENG_IGMP)
		return memcmp(ip + 12, all_hosts, 4) != 0;
	return (ip[1] & 15) > 1 && memcmp(ip, all_nodes, 16) != 0;
}

static void
member_change(struct eng_members *m, struct eng_member *g, bool joined, uint64_t now_ns)
{
	const struct eng_member_family *f = &m->family[proto_of(g->ip)];

	g->joined = joined;
	g->changes = f->robustness;
	g->change_ns = now_ns;
	g->answer_ns = ENG_MEMBERS_NEVER;
}

static void
take_out(struct eng_members *m, uint32_t i)
{
	m->n--;
	memmove(&m->group[i], &m->group[i + 1], (m->n - i) * sizeof(m->group[0]));
}

/* Forgets up to @n leaving groups without a report: the querier will notice. */
static void
forget_leaving(struct eng_members *m, uint32_t n)
{
	uint32_t i, kept = 0;

	for (i = 0; i < m->n; i++) {
		if (n > 0 && !m->group[i].joined)
			n--;
		else
			m->group[kept++] = m->group[i];
	}
	m->n = kept;
}

/* Determines the version in use on the link.  A change of version cancels all pending reports. */
static void
settle_version(struct eng_members *m, enum eng_member_proto proto, uint64_t now_ns)
{
	struct eng_member_family *f = &m->family[proto];
	uint8_t version = member_newest(proto), v;
	uint32_t i, kept = 0;

	for (v = version - 1; v >= 1; v--)
		if (now_ns < f->old_ns[v - 1])
			version = v;
	if (version == f->version)
		return;
	f->version = version;
	f->answer_ns = ENG_MEMBERS_NEVER;
	for (i = 0; i < m->n; i++) {
		struct eng_member *g = &m->group[i];

		if (proto_of(g->ip) == proto) {
			if (!g->joined)
				continue;
			g->changes = 0;
			g->answer_ns = ENG_MEMBERS_NEVER;
		}
		m->group[kept++] = *g;
	}
	m->n = kept;
}

/* Marks existing groups as joined or leaving.  @return how many of @ips are new. */
static uint32_t
settle_joined(struct eng_members *m, const uint8_t (*ips)[16], uint32_t n, uint64_t now_ns)
{
	uint32_t i = 0, j = 0, fresh = 0;

	while (i < m->n || j < n) {
		int d = i == m->n ? 1 : j == n ? -1 : memcmp(m->group[i].ip, ips[j], 16);

		if (d > 0) {
			fresh += is_reported(ips[j]);
			j++;
			continue;
		}
		if (m->group[i].joined != (d == 0))
			member_change(m, &m->group[i], d == 0, now_ns);
		i++;
		j += d == 0;
	}
	return fresh;
}

/* Inserts the @fresh groups of @ips that are not in the table; there is room.  It works from the
 * end, so that each other group is moved once, however many there are. */
static void
put_in(struct eng_members *m, const uint8_t (*ips)[16], uint32_t n, uint32_t fresh, uint64_t now_ns)
{
	uint32_t i = m->n, to = m->n + fresh;

	m->n = to;
	while (fresh > 0) {
		const uint8_t *ip = ips[--n];

		while (i > 0 && memcmp(m->group[i - 1].ip, ip, 16) > 0)
			m->group[--to] = m->group[--i];
		if ((i > 0 && memcmp(m->group[i - 1].ip, ip, 16) == 0) || !is_reported(ip))
			continue;
		memcpy(m->group[--to].ip, ip, 16);
		m->group[to].quiet_ns = 0;
		member_change(m, &m->group[to], true, now_ns);
		fresh--;
	}
}

void
eng_members_set(struct eng_members *m, const uint8_t (*ips)[16], uint32_t n, uint64_t now_ns)
{
	uint32_t fresh;

	assert(n <= m->max / 2);
	settle_version(m, ENG_IGMP, now_ns);
	settle_version(m, ENG_MLD, now_ns);
	fresh = settle_joined(m, ips, n, now_ns);
	if (fresh > m->max - m->n)
		forget_leaving(m, fresh - (m->max - m->n));
	put_in(m, ips, n, fresh, now_ns);
	members_settle_due(m);
}

/* --- queries --- */

bool
eng_members_query(struct eng_members *m, const uint8_t *l3, size_t len, uint64_t now_ns)
{
	struct eng_member_family *f;
	struct eng_member_query q;
	uint64_t answer_ns;
	uint32_t i;

	if (!eng_member_query_parse(l3, len, &q)) {
		m->bad_queries++;
		return false;
	}
	m->queries++;
	f = &m->family[q.proto];
	if (q.version < member_newest(q.proto))
		f->old_ns[q.version - 1] = now_ns + OLD_QUERIER_NS;
	settle_version(m, q.proto, now_ns);
	if (q.robustness != 0)
		f->robustness = (uint8_t)karst_min_u32(q.robustness, ROBUSTNESS_MAX);
	answer_ns = member_moment(m, now_ns, q.wait_ns);
	if (q.general)
		f->answer_ns = karst_min_u64(f->answer_ns, karst_max_u64(answer_ns, f->quiet_ns));
	/* an earlier answer for all groups also answers this query */
	for (i = 0; !q.general && answer_ns < f->answer_ns && i < m->n; i++) {
		struct eng_member *g = &m->group[i];

		if (g->joined && memcmp(g->ip, q.ip, 16) == 0)
			g->answer_ns =
				karst_min_u64(g->answer_ns, karst_max_u64(answer_ns, g->quiet_ns));
	}
	members_settle_due(m);
	return true;
}

/* --- reports --- */

/* Turns a due answer about all groups into an answer for each group. */
static void
spread_answer(struct eng_members *m, enum eng_member_proto proto, uint64_t now_ns)
{
	uint32_t i;

	if (m->family[proto].answer_ns > now_ns)
		return;
	m->family[proto].answer_ns = ENG_MEMBERS_NEVER;
	m->family[proto].quiet_ns = now_ns + QUIET_NS;
	for (i = 0; i < m->n; i++)
		if (m->group[i].joined && proto_of(m->group[i].ip) == proto)
			m->group[i].answer_ns = now_ns;
}

static bool
is_due(const struct eng_member *g, uint64_t now_ns)
{
	return (g->changes != 0 && g->change_ns <= now_ns) || g->answer_ns <= now_ns;
}

/* Notes that what is due for a group is in the message.  @return whether that was its last
 * report. */
static bool
member_said(struct eng_members *m, struct eng_member *g, uint64_t repeat_ns, uint64_t now_ns)
{
	if (g->changes != 0 && g->change_ns <= now_ns) {
		g->changes--;
		g->change_ns = member_moment(m, now_ns, repeat_ns);
	}
	/* a report of a change includes the answer */
	if (g->answer_ns <= now_ns)
		g->answer_ns = ENG_MEMBERS_NEVER;
	g->quiet_ns = now_ns + GROUP_QUIET_NS;
	return !g->joined && g->changes == 0;
}

static enum eng_member_record
record_of(const struct eng_member *g, uint64_t now_ns)
{
	if (g->changes == 0 || g->change_ns > now_ns)
		return ENG_MEMBER_IS_IN;
	return g->joined ? ENG_MEMBER_JOINS : ENG_MEMBER_LEAVES;
}

/* Builds a report with all that is due, up to what a message holds. */
static size_t
next_new(struct eng_members *m, enum eng_member_proto proto, const struct eng_member_src *src,
	uint64_t now_ns, struct eng_member_msg *msg)
{
	bool any = false;
	uint32_t i = 0;

	while (i < m->n) {
		struct eng_member *g = &m->group[i];

		if (proto_of(g->ip) != proto || !is_due(g, now_ns)) {
			i++;
			continue;
		}
		if (!any)
			eng_member_report_open(msg, proto, src);
		any = true;
		if (!eng_member_report_add(msg, record_of(g, now_ns), g->ip))
			break;
		if (member_said(m, g, REPEAT_NS, now_ns))
			take_out(m, i);
		else
			i++;
	}
	if (!any)
		return 0;
	eng_member_report_close(msg);
	return msg->len;
}

/* Builds a message of an old version, about one group. */
static size_t
next_old(struct eng_members *m, enum eng_member_proto proto, const struct eng_member_src *src,
	uint64_t now_ns, struct eng_member_msg *msg)
{
	uint8_t version = m->family[proto].version;
	size_t len = 0;
	uint32_t i = 0;

	while (i < m->n && len == 0) {
		struct eng_member *g = &m->group[i];

		if (proto_of(g->ip) != proto || !is_due(g, now_ns)) {
			i++;
			continue;
		}
		if (g->joined || proto == ENG_MLD || version > 1) {
			eng_member_old_build(msg, proto, version, !g->joined, g->ip, src);
			len = msg->len;
		}
		/* leaving is reported once */
		if (!g->joined)
			g->changes = 1;
		if (member_said(m, g, OLD_REPEAT_NS, now_ns))
			take_out(m, i);
		else
			i++;
	}
	return len;
}

size_t
eng_members_next(struct eng_members *m, const struct eng_member_src *src, uint64_t now_ns,
	struct eng_member_msg *msg)
{
	enum eng_member_proto proto;
	size_t len = 0;

	for (proto = ENG_IGMP; m->due_ns <= now_ns && len == 0 && proto <= ENG_MLD; proto++) {
		settle_version(m, proto, now_ns);
		spread_answer(m, proto, now_ns);
		len = m->family[proto].version == member_newest(proto)
			? next_new(m, proto, src, now_ns, msg)
			: next_old(m, proto, src, now_ns, msg);
	}
	members_settle_due(m);
	m->reports += len != 0;
	return len;
}
