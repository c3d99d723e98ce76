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
#define AHEAD       4u

struct fwd_check *
fwd_check_new(uint32_t flows)
{
	struct fwd_check *c = aligned_alloc(KARST_CACHE_LINE, sizeof(*c));

	size_t i;

	if (c == NULL)
		return NULL;
	memset(c, 0, sizeof(*c));
	for (i = 0; i < FWD_BURST_MAX; i++)
		c->ptr[i] = &c->pkts[i];
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

static inline void
stamped(struct fwd_check *c, const struct karst_pkt *p, uint64_t now)
{
	struct fwd_stamp s;

	if (p->pay_len < sizeof(s))
		return;
	memcpy(&s, p->data + p->pay_off, sizeof(s));
	if (s.magic == FWD_STAMP_MAGIC && (int64_t)(now - s.tsc) >= 0)
		perf_hist_add(c->latency, now - s.tsc);
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
judge(struct fwd_check *c, struct karst_pkt *const *pkts, uint32_t n, uint64_t now)
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
		stamped(c, p, now);
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
	p->len = 0;
	if (m->pkt_len > PIECE_BYTES) {
		p->drop = KARST_DROP_SEGMENTED;
		fwd_add(&c->seen.segmented, 1);
		return;
	}
	if (rte_pktmbuf_read(m, 0, m->pkt_len, c->piece) == NULL) {
		p->drop = KARST_DROP_RUNT;
		return;
	}
	p->data = c->piece;
	p->len = (uint16_t)m->pkt_len;
	if (karst_parse(p) == KARST_DROP_NONE)
		(void)karst_icrc_verify_burst(&p, 1);
}

/*
 * Packets that are like earlier ones are parsed, and have their flows; the others go to @c->rest.
 * With many flows that would mostly be in vain.  @return how many others there are.
 */
static uint32_t
parse_known(struct fwd_check *c, struct rte_mbuf *const *m, uint32_t n, uint16_t port)
{
	bool look = fwd_flows_are_few(&c->flows);
	uint32_t i, left = 0;

	for (i = 0; i < n; i++) {
		struct karst_pkt *p = &c->pkts[i];

		if (i + AHEAD < n)
			rte_prefetch0(rte_pktmbuf_mtod(m[i + AHEAD], void *));
		p->data = rte_pktmbuf_mtod(m[i], uint8_t *);
		p->len = m[i]->data_len;
		c->known[i] = look ? fwd_memo_parse(&c->memo, p, port) : NULL;
		if (c->known[i] == NULL)
			c->rest[left++] = p;
	}
	return left;
}

/* Those that lie in one buffer each, the common case. */
static void
check_pieces(
	struct fwd_check *c, struct rte_mbuf *const *m, uint32_t n, uint16_t port, uint64_t now)
{
	uint32_t i, left = parse_known(c, m, n, port);

	(void)karst_parse_burst(c->rest, left);
	(void)karst_icrc_verify_burst(c->ptr, n);
	judge(c, c->ptr, n, now);
	fwd_add(&c->seen.untracked, fwd_flows_see(&c->flows, c->ptr, c->known, n, port));
	for (i = 0; i < left; i++) {
		struct fwd_flow *f = c->known[c->rest[i] - c->pkts];

		if (f != NULL)
			fwd_memo_keep(&c->memo, c->rest[i], port, f);
	}
}

void
fwd_check_burst(struct fwd_check *c, struct rte_mbuf *const *m, uint32_t n, uint16_t port)
{
	uint64_t now = rte_rdtsc(), bytes = 0;
	bool whole = true;
	uint32_t i;

	for (i = 0; i < n && i < AHEAD; i++)
		rte_prefetch0(rte_pktmbuf_mtod(m[i], void *));
	for (i = 0; i < n; i++) {
		bytes += m[i]->pkt_len;
		whole &= m[i]->nb_segs == 1;
	}
	fwd_add(&c->seen.frames, n);
	fwd_add(&c->seen.bytes, bytes);
	if (karst_likely(whole)) {
		check_pieces(c, m, n, port, now);
		return;
	}
	for (i = 0; i < n; i++) {
		struct karst_pkt *p = &c->pkts[i];

		if (m[i]->nb_segs == 1) {
			p->data = rte_pktmbuf_mtod(m[i], uint8_t *);
			p->len = m[i]->data_len;
			if (karst_parse(p) == KARST_DROP_NONE)
				(void)karst_icrc_verify_burst(&p, 1);
		} else {
			whole_one(c, m[i], p);
		}
		judge(c, &p, 1, now);
		c->known[i] = NULL;
		fwd_add(&c->seen.untracked, fwd_flows_see(&c->flows, &p, &c->known[i], 1, port));
		if (m[i]->nb_segs != 1)
			p->drop = KARST_DROP_SEGMENTED; /* for others, the piece is gone soon */
	}
}

uint32_t
fwd_turn_check(struct fwd_lcore *lc, struct fwd_stream *s)
{
	struct rte_mbuf *m[FWD_BURST_MAX];
	uint32_t n = fwd_receive(lc, s, m);

	if (n == 0)
		return 0;
	fwd_check_burst(lc->check, m, n, s->rx->id);
	fwd_send(s, m, n);
	return n;
}
