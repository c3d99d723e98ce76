/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Recognise headers that have come before.  Packets of a flow mostly differ only in identification,
 * checksum and PSN.  Such a packet is parsed, and its flow is found, by comparing it with an
 * earlier one.
 *
 * Only IPv4 packets without a VLAN tag and without a UDP checksum are kept, and none whose extended
 * headers identify the flow (DETH) or are rare.  For these packets the result of the parser depends
 * only on the bytes that are compared, except for the PSN, the AckReq bit and the fields of
 * extended headers, which are loaded from the packet.  The ICRC depends on the whole packet; the
 * contribution of the compared bytes is kept.
 *
 * For one thread.
 */
#ifndef FWD_MEMO_H
#define FWD_MEMO_H

#include "flows.h"

#define FWD_MEMO_BITS 8
#define FWD_MEMOS     (1u << FWD_MEMO_BITS) /* a newer entry replaces an older one */

#define FWD_STAMP_LEN 16u /* of a time stamp in a payload */
#define FWD_MEMO_BTH  42u /* offset of the BTH in packets that are kept, and of what follows it */
#define FWD_MEMO_END  54u
/* Offsets of the three pieces of 16 bytes.  The last one overlaps the one before. */
#define FWD_MEMO_AT_0 12u
#define FWD_MEMO_AT_1 28u
#define FWD_MEMO_AT_2 34u

typedef uint64_t fwd_memo_bytes __attribute__((vector_size(16)));
typedef long long fwd_memo_test __attribute__((vector_size(16)));

/** How to handle a packet like this one, if its ICRC is correct. */
enum fwd_memo_kind {
	FWD_MEMO_ANY,     /* parse it */
	FWD_MEMO_REQUEST, /* check its PSN, which is the only one that it takes */
	FWD_MEMO_ACK,     /* count its syndrome; do not check its PSN */
};

struct fwd_memo_entry {
	/* The first cache line has all that is needed to find an entry, and to check the ICRC. */
	fwd_memo_bytes bytes[3]; /* from EtherType to destination QP; all ones: unused */
	struct fwd_flow *flow;
	uint32_t sum; /* karst_icrc_known_sum(); unless FWD_MEMO_ANY */
	/*
	 * length and port, as in fwd_memo_where(); all ones: FWD_MEMO_ANY, which
	 * fwd_memo_find_right() has to skip
	 */
	uint32_t where;
	/* The second cache line is for what is done then. */
	uint32_t hits;     /* correct packets that are not counted yet */
	uint16_t checksum; /* sum of IP checksum and identification, with end-around carry */
	uint16_t port;
	uint16_t len;
	uint8_t kind; /* enum fwd_memo_kind */
	uint8_t opcode;
	uint8_t stamp;   /* offset of a time stamp; of the EtherType if there is no room for one */
	uint8_t ecn;     /* of IP */
	uint8_t notices; /* 1: FECN, 2: BECN */
	/*
	 * offsets of fields of extended headers in the frame; the BTH for fields that are not
	 * there, as in the parser
	 */
	uint8_t reth, aeth, imm;
	bool extended; /* has extended headers */
} karst_cache_aligned;

static_assert(offsetof(struct fwd_memo_entry, hits) == KARST_CACHE_LINE, "two lines");

struct fwd_memo {
	struct fwd_memo_entry entry[FWD_MEMOS];
	struct karst_pkt pkt[FWD_MEMOS]; /* result of the parser, by entry */
};

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "masks are words of bytes");

/*
 * The bytes that are compared leave out identification and checksum of IP and, after the
 * destination QP, AckReq, the reserved bits (which the parser ignores) and the PSN.
 */
static inline fwd_memo_bytes
fwd_memo_piece_0(const uint8_t *d)
{
	const fwd_memo_bytes mask = {UINT64_C(0x0000ffffffffffff), UINT64_C(0xffff0000ffffffff)};
	fwd_memo_bytes v;

	memcpy(&v, d + FWD_MEMO_AT_0, sizeof(v));
	return v & mask;
}

static inline fwd_memo_bytes
fwd_memo_piece_1(const uint8_t *d)
{
	fwd_memo_bytes v;

	memcpy(&v, d + FWD_MEMO_AT_1, sizeof(v));
	return v;
}

static inline fwd_memo_bytes
fwd_memo_piece_2(const uint8_t *d)
{
	fwd_memo_bytes v;

	memcpy(&v, d + FWD_MEMO_AT_2, sizeof(v));
	return v;
}

static inline uint32_t
fwd_memo_word(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/**
 * Finds the place for a packet with these bytes (at least FWD_MEMO_END).  The index is the highest
 * bits of a product, which depend on all bits of the first two words of the BTH.
 */
static inline struct fwd_memo_entry *
fwd_memo_place(struct fwd_memo *m, const uint8_t *d)
{
	uint64_t bth;

	memcpy(&bth, d + FWD_MEMO_BTH, sizeof(bth));
	return &m->entry[bth * UINT64_C(0x9e3779b97f4a7c15) >> (64 - FWD_MEMO_BITS)];
}

/* Whether the bytes of a frame are the same as those of the entry, except for those left out. */
static inline bool
fwd_memo_same(const struct fwd_memo_entry *e, const uint8_t *d)
{
	fwd_memo_bytes differ = (fwd_memo_piece_0(d) ^ e->bytes[0]) |
		(fwd_memo_piece_1(d) ^ e->bytes[1]) | (fwd_memo_piece_2(d) ^ e->bytes[2]);
#ifdef __SSE4_1__
	return __builtin_ia32_ptestz128((fwd_memo_test)differ, (fwd_memo_test)differ) != 0;
#else
	return (differ[0] | differ[1]) == 0;
#endif
}

/* Sums up identification and checksum of IP with end-around carry. */
static inline uint16_t
fwd_memo_checksum(const uint8_t *d)
{
	uint16_t sum;
	bool carry = __builtin_add_overflow(
		(uint16_t)fwd_memo_word(d + 18), (uint16_t)fwd_memo_word(d + 24), &sum);

	return (uint16_t)(sum + carry);
}

static inline uint32_t
fwd_memo_where(uint32_t len, uint16_t port)
{
	return len | (uint32_t)port << 16;
}

/** Finds the entry of a frame that is like an earlier one from @port.  @return NULL: none. */
static inline struct fwd_memo_entry *
fwd_memo_find(struct fwd_memo *m, const uint8_t *d, uint32_t len, uint16_t port)
{
	struct fwd_memo_entry *e;

	if (karst_unlikely(len < FWD_MEMO_END))
		return NULL;
	e = fwd_memo_place(m, d);
	if (karst_unlikely(!fwd_memo_same(e, d) || fwd_memo_checksum(d) != e->checksum ||
		    len < e->len || port != e->port))
		return NULL;
	return e;
}

/**
 * As fwd_memo_find(), but only for entries that need no parsing and if nothing follows the ICRC.
 */
static inline struct fwd_memo_entry *
fwd_memo_find_right(struct fwd_memo *m, const uint8_t *d, uint32_t len, uint16_t port)
{
	struct fwd_memo_entry *e;

	if (karst_unlikely(len < FWD_MEMO_END))
		return NULL;
	e = fwd_memo_place(m, d);
	if (karst_unlikely(fwd_memo_where(len, port) != e->where || !fwd_memo_same(e, d) ||
		    fwd_memo_checksum(d) != e->checksum))
		return NULL;
	return e;
}

void fwd_memo_init(struct fwd_memo *m);
/**
 * Parses a frame that is like an earlier one, as karst_parse() would.  Does not check its ICRC.  @p
 * keeps its own data and port.
 */
void fwd_memo_parse(const struct fwd_memo *m, const struct fwd_memo_entry *e, struct karst_pkt *p);
/** Keeps a packet that was parsed and found correct, if it is of the kind that is kept. */
void fwd_memo_keep(
	struct fwd_memo *m, const struct karst_pkt *p, uint16_t port, struct fwd_flow *flow);

#endif /* FWD_MEMO_H */
