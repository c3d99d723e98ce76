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
#define UNCOUNTED   64u /* bursts after which counters are brought up to date at the latest */

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

/* A payload with a time stamp. */
static karst_noinline void
stamped(struct fwd_check *c, const uint8_t *payload)
{
	struct fwd_stamp s;

	c->stamps = true;
	if (c->now == 0)
		c->now = rte_rdtsc(); /* the first of many: the clock was not read before */
	memcpy(&s, payload, sizeof(s));
	if ((int64_t)(c->now - s.tsc) >= 0)
		perf_hist_add(c->latency, c->now - s.tsc);
}

/* A time stamp may be at @payload. */
static inline void
look_for_stamp(struct fwd_check *c, const uint8_t *payload)
{
	uint32_t magic;

	memcpy(&magic, payload, sizeof(magic));
	if (karst_unlikely(magic == FWD_STAMP_MAGIC))
		stamped(c, payload);
}

/* Of a burst, what is added up in registers: four counts of 16 bits. */
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

/* Packets that are parsed and verified. */
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
 * A frame in several buffers is copied into one piece, and judged before the next one needs that.
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
	/* not the piece, if all of it is in the first buffer */
	p->data = (uint8_t *)(uintptr_t)whole;
	p->len = (uint16_t)m->pkt_len;
	if (karst_parse(p) == KARST_DROP_NONE)
		(void)karst_icrc_verify_burst(&p, 1);
}

/* --- packets that are like earlier ones --- */

/* What packets of the entry have left to be counted. */
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
	if (e->pkt.flags & KARST_PKT_CE)
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

static inline void
acknowledged(struct fwd_check *c, const struct fwd_memo_entry *e, const uint8_t *d)
{
	uint32_t aeth = karst_get_be32(d + FWD_MEMO_END);

	fwd_add(&c->seen.syndrome[karst_aeth_syndrome(aeth)], 1);
	if ((karst_aeth_syndrome(aeth) & KARST_AETH_TYPE_MASK) != KARST_AETH_ACK)
		fwd_flow_acknowledged(e->flow, aeth);
}

/* A right one. */
static inline void
like(struct fwd_check *c, struct fwd_memo_entry *e, const uint8_t *d)
{
	struct fwd_flow *f = e->flow;

	e->hits++;
	f->opcode = e->opcode;
	if (karst_likely(e->kind == FWD_MEMO_REQUEST))
		(void)fwd_flow_follow(f, karst_bth_psn(d + FWD_MEMO_BTH), 1);
	else
		acknowledged(c, e, d);
	look_for_stamp(c, d + e->stamp);
}

/* Is the @i-th of c->known one?  @wrong has a bit for each that is not. */
static inline void
like_or_wrong(struct fwd_check *c, struct fwd_memo_entry *e, uint32_t i, uint64_t wrong)
{
	if (karst_unlikely(wrong >> i & 1))
		fwd_add(&c->seen.refused[KARST_DROP_ICRC], 1);
	else
		like(c, e, c->known.data[i]);
}

/*
 * Puts into c->like what those are like that begin c->known; the first that is like none, or has
 * bytes behind its ICRC, ends that.  @return how many there are.
 */
static uint32_t
all_alike(struct fwd_check *c, uint32_t n, uint16_t port)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		struct fwd_memo_entry *e =
			fwd_memo_find_right(&c->memo, c->known.data[i], c->known.len[i], port);

		if (karst_unlikely(e == NULL))
			break;
		c->like[i] = e;
		c->known.sum[i] = e->icrc;
	}
	return i;
}

/*
 * From the @i-th of c->known on, leaves those there that are like earlier ones, without gaps, and
 * puts the others in c->rest with their packets in @pkts.  @return how many others there are.
 */
static karst_noinline uint32_t
sort_out(struct fwd_check *c, uint32_t i, struct karst_pkt *pkts, uint32_t n, uint16_t port,
	bool look)
{
	uint32_t known = i, rest = 0;

	for (; i < n; i++) {
		uint8_t *d = (uint8_t *)(uintptr_t)c->known.data[i];
		uint32_t len = c->known.len[i];
		struct fwd_memo_entry *e = look ? fwd_memo_find(&c->memo, d, len, port) : NULL;

		if (karst_likely(e != NULL && e->kind != FWD_MEMO_ANY)) {
			c->like[i] = e;
			c->known.data[known] = d;
			c->known.sum[known] = e->icrc;
			c->known.len[known] = e->len;
			known++;
			continue;
		}
		c->like[i] = NULL;
		pkts[i].data = d;
		pkts[i].len = (uint16_t)len;
		c->rest[rest++] = &pkts[i];
	}
	return rest;
}

/* Parses and verifies @n of c->rest, from headers alike where it can. */
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
			fwd_memo_parse(e, p);
		else
			unlike[left++] = p;
	}
	(void)karst_parse_burst(unlike, left);
	(void)karst_icrc_verify_burst(c->rest, n);
	judge(c, c->rest, n);
}

/* PSNs of all, in the order in which they came. */
static void
in_order(struct fwd_check *c, uint32_t n, uint16_t port, uint64_t wrong)
{
	uint32_t i = 0, known = 0, rest = 0;

	while (i < n) {
		uint32_t first = rest;

		for (; i < n && c->like[i] != NULL; i++, known++)
			like_or_wrong(c, c->like[i], known, wrong);
		for (; i < n && c->like[i] == NULL; i++)
			rest++;
		if (rest != first)
			fwd_add(&c->seen.untracked,
				fwd_flows_see(&c->flows, c->rest + first, c->flow_of_rest + first,
					rest - first, port));
	}
}

/* Some of a chunk, from the @i-th on, are not like an earlier one, or not all of their bytes. */
static karst_noinline void
check_mixed(struct fwd_check *c, uint32_t i, struct karst_pkt *pkts, uint32_t n, uint16_t port,
	bool look)
{
	bool few = fwd_flows_are_few(&c->flows), fresh[FWD_CHECK_CHUNK];
	uint32_t rest = sort_out(c, i, pkts, n, port, look);
	uint64_t wrong = karst_icrc_verify_known(&c->known, n - rest);

	see_rest(c, rest, port);
	for (i = 0; i < rest && few; i++)
		fresh[i] = c->flow_of_rest[i] == NULL;
	in_order(c, n, port, wrong);
	for (i = 0; i < rest && few; i++) {
		const struct karst_pkt *p = c->rest[i];

		if (!fresh[i] || c->flow_of_rest[i] == NULL)
			continue;
		count_entry(c, fwd_memo_place(&c->memo, p->data));
		fwd_memo_keep(&c->memo, p, port, c->flow_of_rest[i]);
	}
}

/* At most FWD_CHECK_CHUNK, in c->known, that lie in one buffer each, the common case. */
static inline void
check_pieces(struct fwd_check *c, struct karst_pkt *pkts, uint32_t n, uint16_t port, bool packets)
{
	bool look = !packets && fwd_flows_are_few(&c->flows);
	uint32_t i = look ? all_alike(c, n, port) : 0;
	uint64_t wrong;

	if (karst_unlikely(i < n)) {
		check_mixed(c, i, pkts, n, port, look);
		return;
	}
	wrong = karst_icrc_verify_known(&c->known, n);
	if (karst_likely(wrong == 0)) {
		for (i = 0; i < n; i++)
			like(c, c->like[i], c->known.data[i]);
		return;
	}
	for (i = 0; i < n; i++)
		like_or_wrong(c, c->like[i], i, wrong);
}

/* Those of a burst of which some are in several buffers. */
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
			whole_one(c, m[i], p);
		}
		judge(c, &p, 1);
		fwd_add(&c->seen.untracked, fwd_flows_see(&c->flows, &p, &flow, 1, port));
		if (m[i]->nb_segs != 1)
			p->drop = KARST_DROP_SEGMENTED; /* for others, the piece is gone soon */
	}
}

/*
 * Puts @n frames in c->known, and asks for their headers.
 * @bytes: theirs are added.
 * @return whether each of them is in one buffer.
 */
static inline bool
fetch(struct fwd_check *c, struct rte_mbuf *const *m, uint32_t n, uint64_t *bytes)
{
	uint64_t sum = *bytes, segs = 0;
	uint32_t i;

	for (i = 0; i < n; i++) {
		const uint8_t *d = rte_pktmbuf_mtod(m[i], const uint8_t *);

		rte_prefetch0(d);
		rte_prefetch0(d + KARST_CACHE_LINE);
		c->known.data[i] = d;
		c->known.len[i] = m[i]->data_len;
		sum += m[i]->pkt_len;
		segs |= m[i]->nb_segs; /* never 0 */
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
		if (karst_likely(fetch(c, m + i, k, &bytes)))
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
