/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Messages of IGMP and MLD as a host sends and reads them, from the IP header on. */
#ifndef ENG_MEMBER_MSG_H
#define ENG_MEMBER_MSG_H

#include "karst_base.h"

enum eng_member_proto { ENG_IGMP, ENG_MLD };

/* Of a report: 40 + 8 + 8 + 14 * 20 bytes fit the least MTU of a port and the smallest buffer. */
#define ENG_MEMBER_RECORDS 14u

/* Record types of RFC 3376, 4.2.12, and RFC 3810, 5.2.12: of groups without a list of sources. */
enum eng_member_record {
	ENG_MEMBER_IS_IN = 2,  /* answer to a query */
	ENG_MEMBER_LEAVES = 3, /* from now on, from no source */
	ENG_MEMBER_JOINS = 4,  /* from now on, from every source */
};

/* Own addresses, as source; all zero: there is none. */
struct eng_member_src {
	uint8_t ip4[4];
	uint8_t link_local[16];
};

struct eng_member_msg {
	size_t len;
	uint8_t dst[16]; /* destination: IPv4 as ::ffff:a.b.c.d */
	uint8_t bytes[400];
};

/* Builds a report of version 3 (IGMP) or 2 (MLD). */
void eng_member_report_open(
	struct eng_member_msg *msg, enum eng_member_proto proto, const struct eng_member_src *src);
/* @return false: the report is full. */
bool eng_member_report_add(
	struct eng_member_msg *msg, enum eng_member_record type, const uint8_t ip[16]);
void eng_member_report_close(struct eng_member_msg *msg);

/* Builds the message of an older version for one group: joined, or left.  IGMP version 1 has no
 * message for leaving. */
void eng_member_old_build(struct eng_member_msg *msg, enum eng_member_proto proto,
	unsigned int version, bool leaves, const uint8_t ip[16], const struct eng_member_src *src);

struct eng_member_query {
	enum eng_member_proto proto;
	uint8_t version;    /* version of the querier */
	uint8_t robustness; /* 0: not given */
	uint64_t wait_ns;   /* maximum response time */
	bool general;       /* about all groups; false: about one */
	uint8_t ip[16];
};

/* Whether this is a packet of IGMP or MLD. */
bool eng_member_is_any(const uint8_t *l3, size_t len);
/* Whether this packet may be a query; eng_member_query_parse() checks it. */
bool eng_member_is_query(const uint8_t *l3, size_t len);
/* @return false: malformed, or not from this link. */
bool eng_member_query_parse(const uint8_t *l3, size_t len, struct eng_member_query *q);

#endif /* ENG_MEMBER_MSG_H */
