/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Messages of IGMP and MLD as a host sends and reads them, from the IP header on. */
#ifndef ENG_MEMBER_MSG_H
#define ENG_MEMBER_MSG_H

#include "karst_base.h"

enum eng_member_proto { ENG_IGMP, ENG_MLD };

#define ENG_MEMBER_RECORDS 48u /* of a report: 40 + 8 + 8 + 48 * 20 fit into any link's MTU */

/* Record types of RFC 3376, 4.2.12, and RFC 3810, 5.2.12: of groups without a list of sources. */
enum eng_member_record {
	ENG_MEMBER_IS_IN = 2,  /* the answer to a query */
	ENG_MEMBER_LEAVES = 3, /* from now on from no source */
	ENG_MEMBER_JOINS = 4,  /* from now on from every source */
};

/* Own addresses, to send from; all zero: there is none. */
struct eng_member_src {
	uint8_t ip4[4];
	uint8_t link_local[16];
};

struct eng_member_msg {
	size_t len;
	uint8_t dst[16]; /* where it goes: IPv4 as ::ffff:a.b.c.d */
	uint8_t bytes[1100];
};

/* A report of version 3 (IGMP) or 2 (MLD) that is being written. */
void eng_member_report_open(
	struct eng_member_msg *msg, enum eng_member_proto proto, const struct eng_member_src *src);
/* False: it is full. */
bool eng_member_report_add(
	struct eng_member_msg *msg, enum eng_member_record type, const uint8_t ip[16]);
void eng_member_report_close(struct eng_member_msg *msg);

/* What older versions say of one group: that somebody is in it, or has left.  IGMP of version 1
 * has no word for leaving. */
void eng_member_old_build(struct eng_member_msg *msg, enum eng_member_proto proto,
	unsigned int version, bool leaves, const uint8_t ip[16], const struct eng_member_src *src);

struct eng_member_query {
	enum eng_member_proto proto;
	uint8_t version;    /* of the querier */
	uint8_t robustness; /* 0: not told */
	uint64_t wait_ns;   /* the answer is wanted within this time */
	bool general;       /* about all groups, else one */
	uint8_t ip[16];
};

/* Is this packet one of IGMP or MLD at all? */
bool eng_member_is_any(const uint8_t *l3, size_t len);
/* Might this packet be a query?  Then eng_member_query_parse() says more. */
bool eng_member_is_query(const uint8_t *l3, size_t len);
/* False: malformed, or not of this link. */
bool eng_member_query_parse(const uint8_t *l3, size_t len, struct eng_member_query *q);

#endif /* ENG_MEMBER_MSG_H */
