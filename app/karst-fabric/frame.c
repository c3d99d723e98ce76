/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Frames: their headers as the core has built them, and their length.  Payload, pad and ICRC are
 * not stored: the receiver of a frame finds arbitrary bytes after the headers.
 */
#include "karst_hdr.h"
#include "karst_opcode.h"
#include "sim.h"

#define CHUNK 256u

/* The frames here have no VLAN tag and are IPv4. */
#define IP_OFF  14u
#define UDP_OFF (IP_OFF + KARST_IP4_LEN)

struct fab_frame *
fab_frame_get(struct fab_sim *s)
{
	struct fab_frame *f = s->free_frames;
	uint32_t i;

	if (karst_unlikely(f == NULL)) {
		f = fab_alloc(s, CHUNK * sizeof(*f));
		for (i = 0; i < CHUNK; i++) {
			f[i].next = s->free_frames;
			s->free_frames = &f[i];
		}
		f = s->free_frames;
	}
	s->free_frames = f->next;
	f->next = NULL;
	f->ce = false;
	f->mad = NULL;
	return f;
}

void
fab_frame_put(struct fab_sim *s, struct fab_frame *f)
{
	if (karst_unlikely(f->mad != NULL))
		fab_mad_put(s, f->mad);
	f->next = s->free_frames;
	s->free_frames = f;
}

void
fab_frame_sent(struct fab_frame *f, const struct karst_pkt *pkt)
{
	const uint8_t *ip = f->data + IP_OFF;
	uint32_t src = karst_get_be32(karst_ip4_src(ip)), dst = karst_get_be32(karst_ip4_dst(ip));

	f->len = pkt->len;
	f->ect = (ip[1] & 3) != 0;
	f->request = (karst_opcode_flags(pkt->opcode) & KARST_OPF_REQUEST) != 0;
	f->dst = (dst & 0xffffff) - 1;
	f->tuple[0] = (uint64_t)src << 32 | dst;
	/* both UDP ports; the protocol is the same in all */
	f->tuple[1] = karst_get_be32(f->data + UDP_OFF);
}

uint32_t
fab_wire_bytes(uint32_t len)
{
	uint32_t frame = len + FAB_FCS;

	return (frame < FAB_ETH_MIN ? FAB_ETH_MIN : frame) + FAB_AROUND;
}

void
fab_frame_mark(uint8_t *data)
{
	uint8_t *ip = data + IP_OFF;
	uint32_t sum = (uint16_t)~karst_get_be16(ip + 10) + (3u - (ip[1] & 3));

	ip[1] |= 3;
	karst_put_be16(ip + 10, (uint16_t) ~((sum & 0xffff) + (sum >> 16)));
}
