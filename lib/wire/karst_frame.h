/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Every field of a frame as plain numbers: what karst_build.h writes and karst_decode.h reads.
 *
 * This is the slow and complete description, for the dissector, for tests and for fuzzing; the
 * data path uses struct karst_pkt.  Fields that an opcode does not have are ignored by the
 * builder and set to 0 by the decoder.  All integers are in host order.
 */
#ifndef KARST_FRAME_H
#define KARST_FRAME_H

#include "karst_base.h"

/** BTH, extended headers and payload (W2, W3, W5, W6): common to RoCE and native InfiniBand. */
struct karst_ib_hdrs {
	/* BTH */
	uint8_t opcode;
	uint8_t tver;
	uint8_t resv6; /* low six bits of byte 4; sent as 0 */
	uint8_t resv7; /* low seven bits of byte 8; sent as 0 */
	bool se;
	bool migreq;
	bool fecn;
	bool becn;
	bool ackreq;
	uint16_t pkey;
	uint32_t dqpn;
	uint32_t psn;
	/* RDETH */
	uint32_t eec;
	/* DETH */
	uint32_t qkey;
	uint32_t src_qpn;
	/* XRCETH */
	uint32_t srqn;
	/* FETH: selectivity level in bits 4 and 5, placement type in bits 0 to 3 */
	uint32_t feth;
	/* RETH or AtomicETH */
	uint64_t va;
	uint32_t rkey;
	uint32_t dma_len; /* RETH */
	uint64_t swap_add;
	uint64_t compare;
	/* AETH: syndrome in the top byte, MSN below */
	uint32_t aeth;
	/* AtomicAckETH: the value before */
	uint64_t orig;
	uint32_t imm;      /* ImmDt */
	uint32_t inv_rkey; /* IETH */

	const uint8_t *pay; /* not owned; NULL with pay_len > 0 builds zeros */
	uint16_t pay_len;   /* without pad */
};

/** A RoCEv2 frame (W1). */
struct karst_frame {
	/* Ethernet */
	uint8_t dmac[6];
	uint8_t smac[6];
	bool vlan; /* one 802.1Q tag */
	uint16_t vlan_tci;
	/* IP */
	bool ip6;
	uint8_t tclass;      /* ToS or traffic class: DSCP and ECN */
	uint8_t ttl;         /* or hop limit */
	uint16_t ip_id;      /* IPv4 */
	uint16_t ip_frag;    /* IPv4: flags in the top three bits, fragment offset; DF is 0x4000 */
	uint32_t flow_label; /* IPv6, 20 bits */
	uint8_t saddr[16];   /* IPv4 in the first four bytes */
	uint8_t daddr[16];
	/* UDP */
	uint16_t sport;
	uint16_t dport;
	uint16_t udp_checksum; /* as in the frame; 0: none */

	struct karst_ib_hdrs ib;
};

/* LRH.LNH: what follows the LRH (W8). */
enum karst_lnh {
	KARST_LNH_RAW = 0,
	KARST_LNH_IP = 1,    /* raw IPv6, no InfiniBand transport */
	KARST_LNH_LOCAL = 2, /* BTH */
	KARST_LNH_GLOBAL = 3 /* GRH, then BTH */
};

#define KARST_LRH_LEN  8
#define KARST_VCRC_LEN 2
#define KARST_GRH_NXT  0x1b /* next header: InfiniBand transport */

/** A native InfiniBand packet (W8). */
struct karst_native {
	/* LRH */
	uint8_t vl;
	uint8_t lver;
	uint8_t sl;
	uint8_t lnh; /* enum karst_lnh */
	uint16_t dlid;
	uint16_t slid;
	uint16_t pkt_len; /* 4-byte words from LRH to ICRC; the builder computes it */
	/* GRH */
	uint8_t ip_ver; /* 6 */
	uint8_t tclass;
	uint8_t next_hdr;
	uint8_t hop_limit;
	uint16_t grh_len; /* bytes after the GRH up to the ICRC's end; the builder computes it */
	uint32_t flow_label;
	uint8_t sgid[16];
	uint8_t dgid[16];

	struct karst_ib_hdrs ib;
};

#endif /* KARST_FRAME_H */
