/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The loops over bursts.  A kernel file includes this file after it has defined
 *   icrc_frame(l3, end, ip6): the state after a whole packet
 *   icrc_headers_and(job, src, len): the state after headers and a first segment, copied
 *   crc_copy(): struct karst_crc_ops.copy
 */
#ifndef CRC_BURST_H
#define CRC_BURST_H

#include "crc_kernel.h"
#include "karst_counters.h"

/* Cache lines of the next packet to prefetch while processing this one: the hardware prefetches the
 * rest. */
#define AHEAD_LINES 4

karst_always_inline uint32_t
load_le32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	v = __builtin_bswap32(v);
#endif
	return v;
}

karst_always_inline void
store_le32(uint8_t *p, uint32_t v)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	v = __builtin_bswap32(v);
#endif
	memcpy(p, &v, sizeof(v));
}

karst_always_inline void
prefetch_lines(const uint8_t *p)
{
	for (unsigned int i = 0; i < AHEAD_LINES; i++)
		__builtin_prefetch(p + i * KARST_CACHE_LINE);
}

karst_always_inline bool
verify_one(const struct karst_pkt *p)
{
	const uint8_t *end = p->data + p->len - 4;
	unsigned int ip6 = (p->flags & KARST_PKT_IP6) != 0;

	return ~icrc_frame(p->data + karst_pkt_l3_off(p), end, ip6) == load_le32(end);
}

static unsigned int
verify_burst(struct karst_pkt *const *pkts, unsigned int n)
{
	unsigned int wrong = 0;

	for (unsigned int i = 0; i < n; i++) {
		if (i + 1 < n)
			prefetch_lines(pkts[i + 1]->data);
		if (pkts[i]->drop != KARST_DROP_NONE)
			continue;
		if (karst_unlikely(!verify_one(pkts[i]))) {
			pkts[i]->drop = KARST_DROP_ICRC;
			wrong++;
		}
	}
	return wrong;
}

karst_always_inline void
seal_one(const struct karst_seal *j)
{
	const struct karst_seg *s = j->segs, *end = s + j->nsegs;
	uint8_t *out = j->pay;
	uint32_t state;

	if (karst_likely(j->nsegs > 0)) {
		state = icrc_headers_and(j, s->src, s->len);
		out += s->len;
		while (karst_unlikely(++s < end)) {
			state = crc_copy(state, out, s->src, s->len);
			out += s->len;
		}
	} else {
		state = icrc_headers_and(j, out, 0);
	}
	if (karst_unlikely(j->pad > 0)) {
		static const uint8_t zeros[4];

		state = crc_copy(state, out, zeros, j->pad);
		out += j->pad;
	}
	store_le32(out, ~state);
}

/* Minimum payload for which a cold frame is prefetched for writing. */
#define COLD_MIN 1024u

/*
 * Prefetches a frame that another processor last wrote or read.  Without this, each line would be
 * fetched when it is stored to, with the latency of that processor's cache; with a prefetch one
 * packet ahead, the lines arrive while other work is done.
 */
static karst_noinline void
fetch_cold(const struct karst_seal *j)
{
	uint32_t len = 0;

	for (unsigned int i = 0; i < j->nsegs; i++)
		len += j->segs[i].len;
	if (len < COLD_MIN)
		return;
	for (uint32_t off = 0; off < len; off += KARST_CACHE_LINE)
		karst_prefetchw(j->pay + off);
}

static void
seal_burst(const struct karst_seal *jobs, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		if (i + 1 < n) {
			__builtin_prefetch(jobs[i + 1].l3);
			if (jobs[i + 1].nsegs > 0)
				prefetch_lines(jobs[i + 1].segs->src);
			if (jobs[i + 1].cold)
				fetch_cold(&jobs[i + 1]);
		}
		seal_one(&jobs[i]);
	}
}

#endif /* CRC_BURST_H */
