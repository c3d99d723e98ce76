/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * struct karst_pkt: the description of a packet that the stages of the engine pass on.
 *
 * It describes one RoCEv2 frame in one contiguous buffer.  On the data path it is in the private
 * area of the mbuf that contains the frame; in tests it is on the stack.  The parser
 * (karst_parse.h) fills it once.  Later stages read its fields instead of the headers, except for
 * rarely used ones (atomic operands, GRH), which they read through the accessors of karst_hdr.h.
 *
 * All integers are in host order.
 */
#ifndef KARST_PKT_H
#define KARST_PKT_H

#include "karst_base.h"

/* Bits of karst_pkt.flags. */
#define KARST_PKT_IP6    0x01 /* IPv6, else IPv4 */
#define KARST_PKT_VLAN   0x02 /* one 802.1Q tag: the IP header is at 18, else at 14 */
#define KARST_PKT_SE     0x04 /* BTH solicited event */
#define KARST_PKT_ACKREQ 0x08 /* BTH acknowledge request */
#define KARST_PKT_CE     0x10 /* IP ECN field is Congestion Experienced */
#define KARST_PKT_BECN   0x20 /* BTH BECN */
#define KARST_PKT_MIGREQ 0x40 /* BTH MigReq */

struct karst_core_qp;

struct karst_pkt {
	uint8_t *data;    /* first byte of the Ethernet header */
	uint16_t len;     /* from data to the last byte of the ICRC; Ethernet padding cut off */
	uint8_t port;     /* engine port of reception or transmission */
	uint8_t bth_off;  /* BTH, from data */
	uint8_t pay_off;  /* payload, from data */
	uint8_t drop;     /* enum karst_drop; KARST_DROP_NONE unless the packet is dropped */
	uint16_t pay_len; /* payload bytes without pad */
	uint8_t opcode;   /* BTH opcode, known to the opcode table once parsed */
	uint8_t flags;    /* KARST_PKT_* */
	uint16_t pkey;    /* BTH P_Key */
	uint32_t psn;     /* BTH PSN, 24 bits */
	uint32_t dqpn;    /* BTH destination QP, 24 bits */
	union {
		uint32_t imm;      /* ImmDt: the four bytes read as a big-endian number */
		uint32_t inv_rkey; /* IETH */
	};
	uint64_t va;      /* RETH or AtomicETH */
	uint32_t rkey;    /* RETH or AtomicETH */
	uint32_t dma_len; /* RETH */
	union {
		uint32_t aeth; /* AETH: syndrome in the top byte, MSN below */
		uint32_t qkey; /* DETH */
	};
	union {
		uint32_t src_qpn; /* DETH, 24 bits */
		uint32_t srqn;    /* XRCETH, 24 bits */
	};
	union {
		struct karst_core_qp *qp; /* set by dispatch; NULL before */
		/* while it waits behind another packet of its queue pair */
		struct karst_pkt *next;
	};
};

static_assert(sizeof(struct karst_pkt) == 64, "one cache line");
static_assert(offsetof(struct karst_pkt, opcode) == 16, "hot fields by offset");
static_assert(offsetof(struct karst_pkt, va) == 32, "hot fields by offset");

/** Offset of the IP header from data. */
static inline unsigned int
karst_pkt_l3_off(const struct karst_pkt *p)
{
	return p->flags & KARST_PKT_VLAN ? 18 : 14;
}

/** Pad bytes between payload and ICRC (W6). */
static inline unsigned int
karst_pkt_pad(const struct karst_pkt *p)
{
	return p->len - 4u - p->pay_off - p->pay_len;
}

#endif /* KARST_PKT_H */
