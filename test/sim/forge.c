/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Frames with a right ICRC that no honest peer sends.
 *
 * Noise: a copy of a good frame with one field changed so that it must be dropped before any
 * state changes (W9).  Any connection may get such a frame, and it must have no effect.
 *
 * Forgery: a frame of a connection with FAULT_FORGED is changed in any way.  The connection may
 * break; all other memory and connections must not be affected.
 */
#include "karst_hdr.h"
#include "karst_icrc.h"
#include "karst_opcode.h"
#include "sim.h"

static void
put_ip4_checksum(uint8_t *ip)
{
	uint32_t sum = 0, i;

	karst_put_be16(ip + 10, 0);
	for (i = 0; i < KARST_IP4_LEN; i += 2)
		sum += karst_get_be16(ip + i);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	karst_put_be16(ip + 10, (uint16_t)~sum);
}

/* Sets lengths, checksum and ICRC to the correct values for the changed frame. */
static void
seal_again(struct sim_frame *f, const struct karst_pkt *p)
{
	uint32_t l3 = karst_pkt_l3_off(p);
	bool ip6 = (p->flags & KARST_PKT_IP6) != 0;
	uint8_t *ip = f->buf + l3, *udp = f->buf + p->bth_off - KARST_UDP_LEN;
	uint32_t crc;

	if (ip6)
		karst_put_be16(ip + 4, (uint16_t)(f->len - l3 - KARST_IP6_LEN));
	else
		karst_put_be16(ip + 2, (uint16_t)(f->len - l3));
	karst_put_be16(udp + 4, (uint16_t)(f->len - (uint32_t)(udp - f->buf)));
	karst_put_be16(udp + 6, 0);
	if (!ip6)
		put_ip4_checksum(ip);
	crc = karst_icrc_rocev2(ip, f->len - l3 - KARST_ICRC_LEN, ip6);
	/* sent least significant byte first */
	memcpy(f->buf + f->len - KARST_ICRC_LEN, &crc, KARST_ICRC_LEN);
}

void
sim_forge_noise(struct sim *s, struct sim_frame *f, const struct karst_pkt *p)
{
	struct sim_rng *r = &s->rng;
	uint8_t *bth = f->buf + p->bth_off, *ip = f->buf + karst_pkt_l3_off(p);
	bool ip6 = (p->flags & KARST_PKT_IP6) != 0;

	uint32_t what = rng_below(r, 6);

	f->noise = true;
	/* Datagrams may come from anywhere. */
	if (what == 1 && (karst_opcode_flags(p->opcode) & KARST_OPF_DETH))
		what = 5;
	/* with another transport a CNP could become a packet of its queue pair's transport */
	if (what == 4 && p->opcode == KARST_CNP)
		what = 0;
	switch (what) {
	case 0: /* another partition */
		karst_put_be16(bth + 2, (uint16_t)rng_range(r, 1, 0x7ffe));
		break;
	case 1: /* another host's address */
		ip[ip6 ? 8 + 8 + rng_below(r, 7) : 12 + rng_below(r, 3)] ^=
			(uint8_t)rng_range(r, 1, 255);
		break;
	case 2: /* a QP that does not exist */
		karst_put_be32(bth + 4, 0x800000 | rng_below(r, 0x800000));
		break;
	case 3: /* transport version */
		bth[1] |= (uint8_t)rng_range(r, 1, 15);
		break;
	case 4: /* another transport, including that of CNPs (E5) */
		bth[0] ^= (uint8_t)(rng_range(r, 1, 7) << 5);
		break;
	default:
		if (karst_opcode_flags(p->opcode) & KARST_OPF_DETH)
			bth[12 + rng_below(r, 4)] ^= (uint8_t)rng_range(r, 1, 255); /* Q_Key */
		else
			bth[0] = rng_one_in(r, 2) ? 0x81 : 0xff;
		break;
	}
	seal_again(f, p);
}

/* Makes the payload shorter or longer, by whole words. */
static void
change_length(struct sim *s, struct sim_frame *f, const struct karst_pkt *p)
{
	uint32_t least = p->bth_off + KARST_BTH_LEN + KARST_ICRC_LEN, most = KARST_FRAME_MAX - 200;
	uint32_t len;

	len = rng_one_in(&s->rng, 2) ? f->len + 4 * rng_below(&s->rng, 64)
				     : f->len - 4 * rng_below(&s->rng, 64);
	if (rng_one_in(&s->rng, 4))
		len = least + 4 * rng_below(&s->rng, 280);
	if (len < least || len > most)
		return;
	if (len > f->len)
		sim_fill(f->buf + f->len, len - f->len, rng_u64(&s->rng));
	f->len = (uint16_t)len;
}

void
sim_forge(struct sim *s, struct sim_frame *f, const struct karst_pkt *p)
{
	struct sim_rng *r = &s->rng;
	uint8_t *bth = f->buf + p->bth_off;
	uint32_t n = rng_range(r, 1, 2), keep = karst_get_be32(bth + 4), i;
	uint32_t span = f->len - p->bth_off - KARST_ICRC_LEN;

	while (n-- > 0) {
		switch (rng_below(r, 6)) {
		case 0: /* any opcode of the same transport */
			bth[0] = (uint8_t)((bth[0] & KARST_TRANSPORT_MASK) | rng_below(r, 32));
			break;
		case 1: /* a PSN close by, or anywhere */
			i = rng_one_in(r, 4) ? (uint32_t)rng_u64(r)
					     : karst_get_be32(bth + 8) + rng_below(r, 9) - 4;
			karst_put_be32(
				bth + 8, (karst_get_be32(bth + 8) & 0xff000000) | (i & 0xffffff));
			break;
		case 2:
			change_length(s, f, p);
			break;
		case 3: /* flags and pad */
			bth[1] ^= (uint8_t)(rng_u64(r) & 0xf0);
			break;
		default: /* extended headers */
			for (i = rng_range(r, 1, 4); i > 0 && span > 12; i--)
				bth[12 + rng_below(r, karst_min_u32(span - 12, 28))] =
					(uint8_t)rng_u64(r);
			break;
		}
		span = f->len - p->bth_off - KARST_ICRC_LEN;
	}
	/* The frame stays within its connection. */
	karst_put_be32(bth + 4, keep);
	f->noise = true;
	seal_again(f, p);
}
