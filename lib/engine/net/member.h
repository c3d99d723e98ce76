/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Telling routers and switches of a link which multicast groups a host is in: IGMP (RFC 3376, with
 * RFC 2236 and RFC 1112 for old queriers) and MLD (RFC 3810, RFC 2710).  No I/O and no clock: one
 * struct eng_members is one interface, time is an argument, messages are bytes from the IP header
 * on.  Groups are joined for all sources.
 *
 *	eng_members_set()    these are the groups now
 *	eng_members_query()  a query came
 *	eng_members_next()   at eng_members_due(), until it has nothing more: a message to send
 */
#ifndef ENG_MEMBER_H
#define ENG_MEMBER_H

#include "member_msg.h"

#define ENG_MEMBERS_NEVER UINT64_MAX

struct eng_member {
	uint8_t ip[16];
	bool joined;        /* else it is leaving, and this has to be said a few times more */
	uint8_t changes;    /* reports of joining or leaving that are still to be sent */
	uint64_t change_ns; /* when the next of these is due */
	uint64_t answer_ns; /* when a query is to be answered; NEVER: there is none */
	uint64_t quiet_ns;  /* no query is answered before */
};

/* IGMP, MLD */
struct eng_member_family {
	uint8_t robustness; /* how often a change is said, by the querier's wish */
	uint8_t version;    /* that the link understands: IGMP 1 to 3, MLD 1 and 2 */
	uint64_t old_ns[2]; /* until when there is a querier of version 1, 2; 0: none */
	uint64_t answer_ns; /* when a query for all groups is to be answered */
	uint64_t quiet_ns;  /* none is before */
};

struct eng_members {
	struct eng_member_family family[2]; /* enum eng_member_proto */
	uint64_t random;
	uint64_t due_ns;
	uint32_t n, max;
	/* counted */
	uint64_t queries;          /* that were understood */
	uint64_t bad_queries;      /* malformed, or not from this link */
	uint64_t reports;          /* messages that were sent, those of leaving included */
	struct eng_member group[]; /* in the order of their addresses */
};

/* For up to @max_groups groups at a time; 0 bytes never. */
size_t eng_members_bytes(uint32_t max_groups);
void eng_members_init(struct eng_members *m, uint32_t max_groups, uint64_t seed);

/* The interface is in these groups, and in no others: @ips in ascending order.  Changes are due at
 * once.  All hosts' groups and those that never leave a host are not reported. */
void eng_members_set(struct eng_members *m, const uint8_t (*ips)[16], uint32_t n, uint64_t now_ns);

/* A packet, from its IP header on, that eng_member_is_query().  False: it is no good. */
bool eng_members_query(struct eng_members *m, const uint8_t *l3, size_t len, uint64_t now_ns);

/* When eng_members_next() has something to say; ENG_MEMBERS_NEVER: not for the time being. */
static inline uint64_t
eng_members_due(const struct eng_members *m)
{
	return m->due_ns;
}

/* A message that is due, from the addresses @src.  @return its length; 0: there is none. */
size_t eng_members_next(struct eng_members *m, const struct eng_member_src *src, uint64_t now_ns,
	struct eng_member_msg *msg);

#endif /* ENG_MEMBER_H */
