/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Frames under construction.  A frame starts as a copy of a header template.  The builder appends
 * extended headers, adds the sources of the payload, and closes the frame, which sets the lengths
 * and the IPv4 checksum and leaves a seal job: karst_icrc_seal_burst() writes payload, pad and ICRC
 * later, in one pass over the whole burst.
 *
 *	uint8_t *p = karst_frame_open(b, tmpl);       end of the BTH
 *	p = append headers ...
 *	karst_frame_seg(b, src, len) ...              payload, 0 or more times
 *	karst_frame_close(b, tmpl, p, ...);
 */
#ifndef KARST_QP_FRAME_H
#define KARST_QP_FRAME_H

#include "qp_priv.h"

/** Whether there is room for one more frame whose payload has at most @segs sources. */
static inline bool
karst_frame_room(const struct karst_tx_burst *b, uint32_t segs)
{
	return b->n < b->max && b->nsegs + segs <= b->max_segs;
}

static inline uint8_t *
karst_frame_open(struct karst_tx_burst *b, const struct karst_tmpl *t)
{
	uint8_t *data = b->pkts[b->n]->data;

	memcpy(data, t->bytes, KARST_TMPL_NEAR);
	if (karst_unlikely(t->bth_off > KARST_TMPL_NEAR - KARST_BTH_LEN))
		memcpy(data + KARST_TMPL_NEAR, t->bytes + KARST_TMPL_NEAR,
			KARST_TMPL_MAX - KARST_TMPL_NEAR);
	b->seals[b->n].segs = &b->segs[b->nsegs];
	b->seals[b->n].nsegs = 0;
	return data + t->bth_off + KARST_BTH_LEN;
}

static inline void
karst_frame_seg(struct karst_tx_burst *b, const uint8_t *src, uint32_t len)
{
	struct karst_seg *seg = &b->segs[b->nsegs++];

	seg->src = src;
	seg->len = len;
	b->seals[b->n].nsegs++;
}

/**
 * Closes the frame.  @end: first byte after the headers; @flags: BTH byte 1 without pad and without
 * MigReq, which the template adds (SE).
 */
static inline void
karst_frame_close(struct karst_tx_burst *b, const struct karst_tmpl *t, uint8_t *end,
	uint8_t opcode, uint8_t flags, bool ackreq, uint32_t psn, uint32_t pay_len)
{
	struct karst_pkt *pkt = b->pkts[b->n];
	struct karst_seal *s = &b->seals[b->n];
	uint8_t *data = pkt->data, *l3 = data + t->l3_off, *bth = data + t->bth_off;
	uint32_t pad = -pay_len & 3;
	uint32_t l3_len = (uint32_t)(end - l3) + pay_len + pad + KARST_ICRC_LEN;

	karst_bth_set(bth, opcode, (uint8_t)(t->bth_flags | flags), pad, ackreq, psn);
	karst_put_be16(bth - 4, (uint16_t)(l3_len - (uint32_t)(bth - KARST_UDP_LEN - l3)));
	if (t->ip6) {
		karst_put_be16(l3 + 4, (uint16_t)(l3_len - KARST_IP6_LEN));
	} else {
		/* identifications of consecutive packets count up (W11), without any state */
		uint32_t sum = t->ip_sum + l3_len + (psn & 0xffff);

		sum = (sum & 0xffff) + (sum >> 16);
		sum = (sum & 0xffff) + (sum >> 16);
		karst_put_be16(l3 + 2, (uint16_t)l3_len);
		karst_put_be16(l3 + 4, (uint16_t)psn);
		karst_put_be16(l3 + 10, (uint16_t)~sum);
	}

	s->l3 = l3;
	s->pay = end;
	s->pad = (uint8_t)pad;
	s->ip6 = t->ip6;

	pkt->len = (uint16_t)(t->l3_off + l3_len);
	pkt->port = t->port;
	pkt->bth_off = t->bth_off;
	pkt->pay_off = (uint8_t)(end - data);
	pkt->pay_len = (uint16_t)pay_len;
	pkt->opcode = opcode;
	pkt->drop = KARST_DROP_NONE;

	b->n++;
	b->bytes += pkt->len;
}

#endif /* KARST_QP_FRAME_H */
