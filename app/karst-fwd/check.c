/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "check.h"

#include <stdlib.h>

#include <rte_cycles.h>

#include "karst_hdr.h"
#include "karst_icrc.h"
#include "karst_opcode.h"
#include "karst_parse.h"

#define PIECE_BYTES 65535u
#define ECN_CE      3u
#define MIXED       8u   /* one in so many that differs does not slow down the others */
#define UNCOUNTED   256u /* maximum number of bursts between updates of the counters */

struct fwd_check *
fwd_check_new(uint32_t flows)
{
	struct fwd_check *c = aligned_alloc(KARST_CACHE_LINE, sizeof(*c));

	if (c == NULL)
		return NULL;
	memset(c, 0, sizeof(*c));
	fwd_memo_init(&c->memo);
	c->latency = perf_hist_create();
	c->piece = malloc(PIECE_BYTES);
	if (c->latency != NULL && c->piece != NULL && fwd_flows_init(&c->flows, flows) == 0)
		return c;
	fwd_check_free(c);
	return NULL;
}

void
fwd_check_free(struct fwd_check *c)
{
	if (c == NULL)
		return;
	fwd_flows_free(&c->flows);
	free(c->latency);
	free(c->piece);
	free(c);
}

/* Handles a payload with a time stamp. */
static karst_noinline void
stamped(struct fwd_check *c, const uint8_t *payload)
{
	struct fwd_stamp s;

	c->stamps = true;
	if (c->now == 0)
		c->now = rte_rdtsc(); /* not read before the burst: the last one had no stamps */
	memcpy(&s, payload, sizeof(s));
	if ((int64_t)(c->now - s.tsc) >= 0)
		perf_hist_add(c->latency, c->now - s.tsc);
}

/* Handles the time stamp that may be at @payload. */
static inline void
look_for_stamp(struct fwd_check *c, const uint8_t *payload)
{
	uint32_t magic;

	memcpy(&magic, payload, sizeof(magic));
	if (karst_unlikely(magic == FWD_STAMP_MAGIC))
		stamped(c, payload);
}

/* Counts of a burst that are kept in registers: four counts of 16 bits each. */
struct tally {
	uint64_t ecn;     /* by ECN field */
	uint64_t notices; /* FECN, BECN */
};

static_assert(FWD_BURST_MAX <= UINT16_MAX, "counts of a burst");

static inline void
count_packet(struct fwd_check *c, const struct karst_pkt *p, struct tally *t)
{
	const uint8_t *l3 = p->data + karst_pkt_l3_off(p), *bth = p->data + p->bth_off;
	uint8_t tclass = p->flags & KARST_PKT_IP6 ? karst_ip6_tclass(l3) : karst_ip4_tos(l3);

	t->ecn += UINT64_C(1) << 16 * (tclass & 3);
	t->notices += (uint64_t)karst_bth_fecn(bth) | (uint64_t)karst_bth_becn(bth) << 16;
	fwd_add(&c->seen.opcode[p->opcode], 1);
	if ((p->opcode & KARST_OPERATION_MASK) == KARST_OPERATION_ACK &&
		karst_opcode_flags(p->opcode) & KARST_OPF_RESPONSE)
		fwd_add(&c->seen.syndrome[karst_aeth_syndrome(p->aeth)], 1);
}

static inline void
add_tally(struct fwd_seen *s, const struct tally *t)
{
	unsigned int i;

	for (i = 0; i < KARST_DIM(s->ecn); i++)
		fwd_add(&s->ecn[i], t->ecn >> 16 * i & UINT16_MAX);
	fwd_add(&s->fecn, t->notices & UINT16_MAX);
	fwd_add(&s->becn, t->notices >> 16);
}

/* Counts packets that were parsed and verified. */
static void
judge(struct fwd_check *c, struct karst_pkt *const *pkts, uint32_t n)
{
	struct tally t = {0};
	uint32_t i, right = 0;

	for (i = 0; i < n; i++) {
		const struct karst_pkt *p = pkts[i];

		if (karst_unlikely(p->drop != KARST_DROP_NONE)) {
			fwd_add(&c->seen.refused[p->drop], 1);
			continue;
		}
		right++;
		count_packet(c, p, &t);
		if (p->pay_len >= FWD_STAMP_LEN)
			look_for_stamp(c, p->data + p->pay_off);
	}
	fwd_add(&c->seen.roce, right);
	add_tally(&c->seen, &t);
}

/*
 * Copies a frame that is in several buffers into one piece, and parses it.  The packet has to be
 * judged before the next frame needs the piece.
 */
static karst_noinline void
whole_one(struct fwd_check *c, const struct rte_mbuf *m, struct karst_pkt *p)
{
	const void *whole;

	p->len = 0;
	if (m->pkt_len > PIECE_BYTES) {
		p->drop = KARST_DROP_SEGMENTED;
		fwd_add(&c->seen.segmented, 1);
		return;
	}
	whole = rte_pktmbuf_read(m, 0, m->pkt_len, c->piece);
	if (whole == NULL) {
		p->drop = KARST_DROP_RUNT;
		return;
	}
	/* use the first buffer, not the piece, if it has the whole frame */
	p->data = (uint8_t *)(uintptr_t)whole;
	p->len = (uint16_t)m->pkt_len;
	if (karst_parse(p) == KARST_DROP_NONE)
		(void)karst_icrc_verify_burst(&p, 1);
}

/* --- packets like earlier ones --- */

/* Adds the packets of the entry that are not counted yet to the counters. */
static void
count_entry(struct fwd_check *c, struct fwd_memo_entry *e)
{
	struct fwd_flow *f = e->flow;
	uint64_t n = e->hits;

	if (n == 0)
		return;
	e->hits = 0;
	fwd_add(&c->seen.roce, n);
	fwd_add(&c->seen.opcode[e->opcode], n);
	fwd_add(&c->seen.ecn[e->ecn], n);
	if (e->notices & 1)
		fwd_add(&c->seen.fecn, n);
	if (e->notices & 2)
		fwd_add(&c->seen.becn, n);
	fwd_add(&f->packets, n);
	fwd_add(&f->bytes, n * e->len);
	if (e->ecn == ECN_CE)
		fwd_add(&f->ce, n);
}

void
fwd_check_count(struct fwd_check *c)
{
	uint32_t i;

	for (i = 0; i < FWD_MEMOS; i++)
		count_entry(c, &c->memo.entry[i]);
	c->uncounted = 0;
}

/*
 * Handles a correct packet that is like an earlier one, if a few instructions are enough, as they
 * nearly always are.  @return false: they are not, and nothing was done.
 */
static inline bool
like_usual(struct fwd_check *c, struct fwd_memo_entry *e, const uint8_t *d)
{
	struct fwd_flow *f = e->flow;
	uint32_t magic;

	memcpy(&magic, d + e->stamp, sizeof(magic));
	if (karst_unlikely(magic == FWD_STAMP_MAGIC))
		return false;
	if (karst_likely(e->kind == FWD_MEMO_REQUEST)) {
		if (karst_unlikely(!fwd_flow_follow_usual(f, karst_bth_psn(d + FWD_MEMO_BTH))))
			return false;
	} else {
		uint8_t syndrome = karst_aeth_syndrome(karst_get_be32(d + FWD_MEMO_END));

		if (karst_unlikely((syndrome & KARST_AETH_TYPE_MASK) != KARST_AETH_ACK))
			return false;
		fwd_add(&c->seen.syndrome[syndrome], 1);
	}
	e->hits++;
	f->opcode = e->opcode;
	return true;
}

/* Handles any correct packet that is like an earlier one. */
static karst_noinline void
like(struct fwd_check *c, struct fwd_memo_entry *e, const uint8_t *d)
{
	uint32_t aeth;

	e->hits++;
	e->flow->opcode = e->opcode;
	if (e->kind == FWD_MEMO_REQUEST) {
		(void)fwd_flow_follow(e->flow, karst_bth_psn(d + FWD_MEMO_BTH), 1);
	} else {
		aeth = karst_get_be32(d + FWD_MEMO_END);
		fwd_add(&c->seen.syndrome[karst_aeth_syndrome(aeth)], 1);
		fwd_flow_acknowledged(e->flow, aeth);
	}
	look_for_stamp(c, d + e->stamp);
}

/* Handles the @i-th frame of c->known, which is like @e, except perhaps for its ICRC. */
static inline void
like_or_wrong(struct fwd_check *c, struct fwd_memo_entry *e, uint32_t i)
{
	const uint8_t *d = c->known.data[i];

	if (karst_unlikely(c->known.sum[i] != e->sum)) {
		fwd_add(&c->seen.refused[KARST_DROP_ICRC], 1);
		return;
	}
	if (karst_unlikely(!like_usual(c, e, d)))
		like(c, e, d);
}

/*
 * Handles the frames of c->known from the @i-th on, as long as they are correct, like an earlier
 * one, and accepted by like_usual().  The function calls no other one, so that everything constant
 * stays in registers.
 * @return index of the first other frame; its c->like is set if it is correct and like an earlier
 *   one, else NULL.
 */
static karst_noinline uint32_t
follow_usual(struct fwd_check *c, uint32_t i, uint32_t n, uint16_t port)
{
	for (; i < n; i++) {
		const uint8_t *d = c->known.data[i];
		struct fwd_memo_entry *e = fwd_memo_find_right(&c->memo, d, c->known.len[i], port);

		if (karst_unlikely(e == NULL || e->sum != c->known.sum[i])) {
			c->like[i] = NULL;
			break;
		}
		if (karst_unlikely(!like_usual(c, e, d))) {
			c->like[i] = e;
			break;
		}
	}
	return i;
}

/*
 * Handles the frames of c->known, whose sums are computed, as long as they are correct and like an
 * earlier one, and have nothing after the ICRC.  @return how many it has handled.
 */
static inline uint32_t
follow_alike(struct fwd_check *c, uint32_t n, uint16_t port)
{
	uint32_t i = follow_usual(c, 0, n, port);

	while (karst_unlikely(i < n) && c->like[i] != NULL) {
		like(c, c->like[i], c->known.data[i]);
		i = follow_usual(c, i + 1, n, port);
	}
	return i;
}

/*
 * Sorts the frames of c->known from the @i-th on.  Those that are like earlier ones remain there,
 * without gaps.  The others go to c->rest, with their packets in @pkts.  @sums: the sums of all are
 * computed.  In the end, those of all that remain are.
 * @return number of the others.
 */
static karst_noinline uint32_t
sort_out(struct fwd_check *c, uint32_t i, struct karst_pkt *pkts, uint32_t n, uint16_t port,
	bool look, bool sums)
{
	uint32_t known = 0, rest = 0;

	for (; i < n; i++) {
		uint8_t *d = (uint8_t *)(uintptr_t)c->known.data[i];
		uint32_t len = c->known.len[i];
		struct fwd_memo_entry *e = look ? fwd_memo_find(&c->memo, d, len, port) : NULL;

		if (karst_likely(e != NULL && e->kind != FWD_MEMO_ANY)) {
			sums = sums && len == e->len;
			c->like[i] = e;
			c->known.data[known] = d;
			c->known.sum[known] = c->known.sum[i];
			c->known.len[known] = e->len;
			known++;
			continue;
		}
		c->like[i] = NULL;
		pkts[i].data = d;
		pkts[i].len = (uint16_t)len;
		c->rest[rest++] = &pkts[i];
	}
	if (!sums)
		karst_icrc_known_sums(&c->known, known);
	return rest;
}

/* Parses and verifies @n packets of c->rest, using earlier headers where possible. */
static void
see_rest(struct fwd_check *c, uint32_t n, uint16_t port)
{
	struct karst_pkt *unlike[FWD_CHECK_CHUNK];
	bool look = fwd_flows_are_few(&c->flows);
	uint32_t i, left = 0;

	for (i = 0; i < n; i++) {
		struct karst_pkt *p = c->rest[i];
		struct fwd_memo_entry *e =
			look ? fwd_memo_find(&c->memo, p->data, p->len, port) : NULL;

		c->flow_of_rest[i] = e == NULL ? NULL : e->flow;
		if (e != NULL)
			fwd_memo_parse(&c->memo, e, p);
		else
			unlike[left++] = p;
	}
	(void)karst_parse_burst(unlike, left);
	(void)karst_icrc_verify_burst(c->rest, n);
	judge(c, c->rest, n);
}

/* Follows PSNs of the frames from the @i-th to the last, in the order of their arrival. */
static void
in_order(struct fwd_check *c, uint32_t i, uint32_t n, uint16_t port)
{
	uint32_t known = 0, rest = 0;

	while (i < n) {
		uint32_t first = rest;

		for (; i < n && c->like[i] != NULL; i++, known++)
			like_or_wrong(c, c->like[i], known);
		for (; i < n && c->like[i] == NULL; i++)
			rest++;
		if (rest != first)
			fwd_add(&c->seen.untracked,
				fwd_flows_see(&c->flows, c->rest + first, c->flow_of_rest + first,
					rest - first, port));
	}
}

/*
 * Handles a chunk from the @i-th frame on, of which some are not like an earlier one, not correct,
 * or have more bytes than their packet.  @sums: the sums of c->known are computed.
 */
static karst_noinline void
check_mixed(struct fwd_check *c, uint32_t i, struct karst_pkt *pkts, uint32_t n, uint16_t port,
	bool look, bool sums)
{
	bool few = fwd_flows_are_few(&c->flows), fresh[FWD_CHECK_CHUNK];
	uint32_t j, rest = sort_out(c, i, pkts, n, port, look, sums);

	see_rest(c, rest, port);
	for (j = 0; j < rest && few; j++)
		fresh[j] = c->flow_of_rest[j] == NULL;
	in_order(c, i, n, port);
	for (j = 0; j < rest && few; j++) {
		const struct karst_pkt *p = c->rest[j];

		if (!fresh[j] || c->flow_of_rest[j] == NULL)
			continue;
		count_entry(c, fwd_memo_place(&c->memo, p->data));
		fwd_memo_keep(&c->memo, p, port, c->flow_of_rest[j]);
	}
	c->alike = rest * MIXED <= n;
}

/* Prefetches the headers of @n frames in c->known. */
static inline void
fetch(const struct fwd_check *c, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		rte_prefetch0(c->known.data[i]);
		rte_prefetch0(c->known.data[i] + KARST_CACHE_LINE);
	}
}

/*
 * Handles up to FWD_CHECK_CHUNK frames in c->known, each of which is in one buffer: the common
 * case.
 */
static inline void
check_pieces(struct fwd_check *c, struct karst_pkt *pkts, uint32_t n, uint16_t port, bool packets)
{
	bool look = !packets && fwd_flows_are_few(&c->flows);
	uint32_t i = 0;

	if (karst_likely(look && c->alike)) {
		karst_icrc_known_sums(&c->known, n);
		i = follow_alike(c, n, port);
		if (karst_likely(i == n))
			return;
	} else {
		fetch(c, n);
	}
	check_mixed(c, i, pkts, n, port, look, look && c->alike);
}

/* Handles frames of which some are in several buffers. */
static karst_noinline void
check_one_by_one(struct fwd_check *c, struct rte_mbuf *const *m, struct karst_pkt *pkts, uint32_t n,
	uint16_t port)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		struct karst_pkt *p = &pkts[i];
		struct fwd_flow *flow = NULL;

		if (m[i]->nb_segs == 1) {
			p->data = rte_pktmbuf_mtod(m[i], uint8_t *);
			p->len = m[i]->data_len;
			if (karst_parse(p) == KARST_DROP_NONE)
				(void)karst_icrc_verify_burst(&p, 1);
		} else {
			fwd_add(&c->seen.bytes, m[i]->pkt_len - m[i]->data_len);
			whole_one(c, m[i], p);
		}
		judge(c, &p, 1);
		fwd_add(&c->seen.untracked, fwd_flows_see(&c->flows, &p, &flow, 1, port));
		if (m[i]->nb_segs != 1)
			p->drop = KARST_DROP_SEGMENTED; /* the piece gets overwritten */
	}
}

/*
 * Puts @n frames into c->known.  @bytes: the function adds the bytes in their first buffers.
 * @return whether each of them is in one buffer.
 */
static inline bool
list_pieces(struct fwd_check *c, struct rte_mbuf *const *m, uint32_t n, uint64_t *bytes)
{
	uint64_t sum = *bytes, segs = 0;
	uint32_t i;

	for (i = 0; i < n; i++) {
		const struct rte_mbuf *b = m[i];
		uint32_t off = b->data_off, len = b->data_len;

		segs |= b->nb_segs; /* never 0 */
		sum += len;
		c->known.len[i] = (uint16_t)len;
		c->known.data[i] = (const uint8_t *)b->buf_addr + off;
	}
	*bytes = sum;
	return segs <= 1;
}

void
fwd_check_burst(
	struct fwd_check *c, struct rte_mbuf *const *m, uint32_t n, uint16_t port, bool packets)
{
	uint64_t bytes = 0;
	uint32_t i, k;

	c->now = c->stamps ? rte_rdtsc() : 0;
	c->stamps = false;
	for (i = 0; i < n; i += k) {
		k = karst_min_u32(n - i, FWD_CHECK_CHUNK);
		if (karst_likely(list_pieces(c, m + i, k, &bytes)))
			check_pieces(c, &c->pkts[i], k, port, packets);
		else
			check_one_by_one(c, m + i, &c->pkts[i], k, port);
	}
	fwd_add(&c->seen.frames, n);
	fwd_add(&c->seen.bytes, bytes);
	if (++c->uncounted >= UNCOUNTED)
		fwd_check_count(c);
}

uint32_t
fwd_turn_check(struct fwd_lcore *lc, struct fwd_stream *s)
{
	struct rte_mbuf *m[FWD_BURST_MAX];
	uint32_t n = fwd_receive(lc, s, m);

	if (n == 0) {
		fwd_check_idle(lc->check);
		return 0;
	}
	fwd_check_burst(lc->check, m, n, s->rx->id, false);
	fwd_send(s, m, n);
	return n;
}
