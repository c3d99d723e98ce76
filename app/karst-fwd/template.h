/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Parse what the generator is to make: "transport=rc op=write size=65536 mtu=4096 flows=4 ...".
 *
 * A template has words of the form key=value, separated by blanks.  Keys that are not given have
 * their defaults.
 */
#ifndef FWD_TEMPLATE_H
#define FWD_TEMPLATE_H

#include "karst_base.h"

enum fwd_transport { FWD_RC, FWD_UC, FWD_UD };
enum fwd_op {
	FWD_SEND,
	FWD_SEND_IMM,
	FWD_WRITE,
	FWD_WRITE_IMM,
	FWD_READ,
	FWD_FETCH_ADD,
	FWD_CMP_SWAP
};
enum fwd_ackreq { FWD_ACK_LAST, FWD_ACK_ALL, FWD_ACK_NONE };

#define FWD_TEMPLATE_FLOWS_MAX 65536u

struct fwd_template {
	enum fwd_transport transport;
	enum fwd_op op;
	enum fwd_ackreq ackreq;
	uint32_t size; /* bytes per message */
	uint32_t mtu;
	uint32_t flows;          /* per transmit queue */
	uint64_t count;          /* messages per flow; 0: without end */
	bool smac_set, dmac_set; /* false: the addresses of the port and its peer */
	uint8_t smac[6], dmac[6];
	bool ip6;
	uint8_t src[16], dst[16]; /* IPv4: in the first four bytes */
	uint16_t sport; /* of the first flow, plus one for each further flow, from 49152 to 65535 */
	uint8_t tclass; /* DSCP and ECN */
	uint8_t ttl;
	bool vlan_set;
	uint16_t vlan; /* TCI */
	uint16_t pkey;
	uint32_t qpn;           /* destination of the first flow, plus one for each further flow */
	uint32_t src_qpn, qkey; /* UD */
	uint32_t psn;
	uint64_t va;
	uint32_t rkey;
	uint32_t imm;
};

#define FWD_WHY 256

void fwd_template_default(struct fwd_template *t);
/** @return 0; -1: @why tells which word is wrong, and what is allowed, and @t is unchanged. */
int fwd_template_parse(struct fwd_template *t, const char *text, char why[FWD_WHY]);
/** @return the keys and their values, one per line, for --help and the prompt. */
const char *fwd_template_help(void);

/* --- used by other files, too --- */

/** Parses 6 bytes such as "02:00:00:00:00:01".  @return false: it is not a MAC address. */
bool fwd_mac_parse(const char *text, uint8_t mac[6]);
/** Parses an IPv4 or IPv6 address.  @return whether it is one. */
bool fwd_ip_parse(const char *text, bool *ip6, uint8_t addr[16]);
void fwd_ip_text(bool ip6, const uint8_t addr[16], char text[64]);

#endif /* FWD_TEMPLATE_H */
