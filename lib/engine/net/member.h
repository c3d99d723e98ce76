/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Reports to the routers and switches of a link which multicast groups a host has joined: IGMP (RFC
 * 3376, with RFC 2236 and RFC 1112 for old queriers) and MLD (RFC 3810, RFC 2710).  No I/O and no
 * clock: one struct eng_members is one interface, time is an argument, messages are bytes from the
 * IP header on.  Groups are joined for all sources.
 *
 *	eng_members_set()    sets the current groups
 *	eng_members_query()  processes a received query
 *	eng_members_next()   at eng_members_due(): the next message to send, until it returns 0
 */
#ifndef ENG_MEMBER_H
#define ENG_MEMBER_H

#include "member_msg.h"

#define ENG_MEMBERS_NEVER UINT64_MAX

struct eng_member {
	uint8_t ip[16];
	bool joined;        /* false: it is leaving, and this has to be reported some more times */
	uint8_t changes;    /* reports of joining or leaving that are still to be sent */
	uint64_t change_ns; /* when the next of them is due */
	uint64_t answer_ns; /* when a query is to be answered; NEVER: no query is open */
	uint64_t quiet_ns;  /* no query is answered before this time */
};

/* IGMP, MLD */
struct eng_member_family {
	uint8_t robustness; /* how often a change is reported, set by the querier */
	uint8_t version;    /* version in use on the link: IGMP 1 to 3, MLD 1 and 2 */
	uint64_t old_ns[2]; /* until when a querier of version 1, 2 counts as present; 0: none */
	uint64_t answer_ns; /* when a query for all groups is to be answered */
	uint64_t quiet_ns;  /* no such query is answered before this time */
};

struct eng_members {
	struct eng_member_family family[2]; /* enum eng_member_proto */
	uint64_t random;
	uint64_t due_ns;
	uint32_t n, max;
	/* counters */
	uint64_t queries;          /* valid */
	uint64_t bad_queries;      /* malformed, or not from this link */
	uint64_t reports;          /* messages that were sent, including those of leaving */
	struct eng_member group[]; /* in the order of their addresses */
};

/* Bytes for up to @max_groups groups at a time; never 0. */
size_t eng_members_bytes(uint32_t max_groups);
void eng_members_init(struct eng_members *m, uint32_t max_groups, uint64_t seed);

/* Sets the groups that the interface is in: exactly @ips, in ascending order.  Changes are due at
 * once.  The all-hosts groups and groups of scope interface-local are not reported. */
void eng_members_set(struct eng_members *m, const uint8_t (*ips)[16], uint32_t n, uint64_t now_ns);

/* Processes a packet that eng_member_is_query(), from its IP header on.  @return false: it is
 * invalid. */
bool eng_members_query(struct eng_members *m, const uint8_t *l3, size_t len, uint64_t now_ns);

/* When eng_members_next() has a message; ENG_MEMBERS_NEVER: not until something changes. */
static inline uint64_t
eng_members_due(const struct eng_members *m)
{
	return m->due_ns;
}

/* Builds a message that is due, from the addresses @src.  @return its length; 0: there is none. */
size_t eng_members_next(struct eng_members *m, const struct eng_member_src *src, uint64_t now_ns,
	struct eng_member_msg *msg);

#endif /* ENG_MEMBER_H */
