/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Headers that have come before.  Packets of a flow mostly differ in identification, checksum and
 * PSN alone: such a packet is parsed, and its flow is found, by a comparison with an earlier one.
 *
 * Only packets without a tag over IPv4 and without a UDP checksum are kept, and none whose extended
 * headers say which flow they are of (DETH) or are rare: then what the parser tells depends on what
 * is compared, but for the PSN, the acknowledge request and the fields of extended headers, which
 * are loaded.  The ICRC depends on all of it: what the compared bytes contribute to it is kept.
 *
 * One thread.
 */
#ifndef FWD_MEMO_H
#define FWD_MEMO_H

#include "flows.h"

#define FWD_MEMO_BITS 8
#define FWD_MEMOS     (1u << FWD_MEMO_BITS) /* a newer one takes the place of an older one */

#define FWD_STAMP_LEN 16u /* of a time stamp in a payload */
#define FWD_MEMO_BTH  42u /* where the kind that is kept has its BTH, and what is behind it */
#define FWD_MEMO_END  54u
/* Where the three pieces of 16 bytes begin; the last one overlaps the one before. */
#define FWD_MEMO_AT_0 12u
#define FWD_MEMO_AT_1 28u
#define FWD_MEMO_AT_2 34u

typedef uint64_t fwd_memo_bytes __attribute__((vector_size(16)));
typedef long long fwd_memo_test __attribute__((vector_size(16)));

/** What is to be done with a packet of the kind, if its ICRC is right. */
enum fwd_memo_kind {
	FWD_MEMO_ANY,     /* it has to be parsed */
	FWD_MEMO_REQUEST, /* its PSN follows the last one's, and it takes no more than that */
	FWD_MEMO_ACK,     /* its syndrome counts, and its PSN does not */
};

struct fwd_memo_entry {
	/* The first line is all that finding needs, and the ICRC. */
	fwd_memo_bytes bytes[3]; /* from EtherType to destination QP; all ones: unused */
	struct fwd_flow *flow;
	uint32_t sum; /* karst_icrc_known_sum(); unless FWD_MEMO_ANY */
	/* length and port, as fwd_memo_where() has them; all ones: FWD_MEMO_ANY, which the fast way
	 * does not take */
	uint32_t where;
	/* The second one is what is done then. */
	uint32_t hits;     /* right packets that are to be counted yet */
	uint16_t checksum; /* of IP: what it and the identification add up to, carries added */
	uint16_t port;
	uint16_t len;
	uint8_t kind; /* enum fwd_memo_kind */
	uint8_t opcode;
	uint8_t stamp;   /* where a time stamp may be; without room for one, the EtherType */
	uint8_t ecn;     /* of IP */
	uint8_t notices; /* 1: FECN, 2: BECN */
	/* where fields of extended headers are, from the frame's beginning; of those that are not
	 * there, the BTH, as in the parser */
	uint8_t reth, aeth, imm;
	bool extended; /* there are some */
} karst_cache_aligned;

static_assert(offsetof(struct fwd_memo_entry, hits) == KARST_CACHE_LINE, "two lines");

struct fwd_memo {
	struct fwd_memo_entry entry[FWD_MEMOS];
	struct karst_pkt pkt[FWD_MEMOS]; /* what the parser said, by entry */
};

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "masks are words of bytes");

/*
 * Not compared: the identification and checksum of IP, and behind the destination QP the
 * acknowledge request, reserved bits, which the parser does not look at, and the PSN.
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
 * The entry that a packet of these bytes, at least FWD_MEMO_END of them, would have: by the highest
 * bits of a product, to which all of the first two words of the BTH come.
 */
static inline struct fwd_memo_entry *
fwd_memo_place(struct fwd_memo *m, const uint8_t *d)
{
	uint64_t bth;

	memcpy(&bth, d + FWD_MEMO_BTH, sizeof(bth));
	return &m->entry[bth * UINT64_C(0x9e3779b97f4a7c15) >> (64 - FWD_MEMO_BITS)];
}

/* Whether the bytes of a frame are those of the entry, but for what is not compared. */
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

/* The identification and the checksum of IP added up, carries added. */
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

/** The entry of a frame that is like an earlier one that came in at @port, or NULL. */
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

/** The same of those that need not be parsed, and only if there is nothing behind the ICRC. */
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
 * Parses a frame that is like an earlier one, as karst_parse() would; its ICRC is not looked at.
 * @p has data and port of its own.
 */
void fwd_memo_parse(const struct fwd_memo *m, const struct fwd_memo_entry *e, struct karst_pkt *p);
/**
 * Keeps a packet that was parsed and found right, if it is of the kind that is kept, in its place.
 */
void fwd_memo_keep(
	struct fwd_memo *m, const struct karst_pkt *p, uint16_t port, struct fwd_flow *flow);

#endif /* FWD_MEMO_H */
