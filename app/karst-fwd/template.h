/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * What the generator is told to make: "transport=rc op=write size=65536 mtu=4096 flows=4 ...".
 *
 * Words of the form key=value with blanks between; those that are not given have their defaults.
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
	uint32_t size; /* bytes of a message */
	uint32_t mtu;
	uint32_t flows;          /* of each queue that sends */
	uint64_t count;          /* messages of each flow; 0: without end */
	bool smac_set, dmac_set; /* else those of the port and its peer */
	uint8_t smac[6], dmac[6];
	bool ip6;
	uint8_t src[16], dst[16]; /* IPv4 in the first four bytes */
	uint16_t sport; /* of the first flow; of the others one more each, from 49152 to 65535 */
	uint8_t tclass; /* DSCP and ECN */
	uint8_t ttl;
	bool vlan_set;
	uint16_t vlan; /* TCI */
	uint16_t pkey;
	uint32_t qpn;           /* destination, of the first flow; of the others one more each */
	uint32_t src_qpn, qkey; /* UD */
	uint32_t psn;
	uint64_t va;
	uint32_t rkey;
	uint32_t imm;
};

#define FWD_WHY 256

void fwd_template_default(struct fwd_template *t);
/** @return 0; -1: @why says which word is wrong, and what is allowed.  @t is unchanged then. */
int fwd_template_parse(struct fwd_template *t, const char *text, char why[FWD_WHY]);
/** The keys with what they take, a line each: for --help and the prompt. */
const char *fwd_template_help(void);

/* --- shared with others --- */

/** 6 bytes from "02:00:00:00:00:01"; false: it is none. */
bool fwd_mac_parse(const char *text, uint8_t mac[6]);
/** An address of either kind. */
bool fwd_ip_parse(const char *text, bool *ip6, uint8_t addr[16]);
void fwd_ip_text(bool ip6, const uint8_t addr[16], char text[64]);

#endif /* FWD_TEMPLATE_H */
