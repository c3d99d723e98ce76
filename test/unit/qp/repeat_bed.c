/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "repeat_bed.h"

/* --- a driver that holds frames --- */

struct kept {
	struct karst_pkt pkt;
	uint8_t data[KARST_FRAME_MAX];
};

uint32_t kept_now;

static struct karst_pkt *
hold(struct karst_core *core, struct karst_pkt *pkt)
{
	struct kept *k = malloc(sizeof(*k));

	(void)core;
	k->pkt = *pkt;
	k->pkt.data = k->data;
	memcpy(k->data, pkt->data, pkt->len);
	kept_now++;
	return &k->pkt;
}

static void
held_release(struct karst_core *core, struct karst_pkt *pkt)
{
	(void)core;
	free(karst_container_of(pkt, struct kept, pkt));
	kept_now--;
}

static const struct karst_hold_ops hold_ops = {.hold = hold, .release = held_release};
void *repeat_mem;

void
setup_repeat(struct setup *s, uint32_t frames)
{
	s->core.held_frames = frames;
	s->core.hold_ops = &hold_ops;
	repeat_mem = calloc(1, karst_repeat_bytes(WINDOW));
	s->attr.repeat_window = WINDOW;
	s->attr.repeat_mem = repeat_mem;
}

struct bed *
open_repeat(struct setup *s, uint32_t frames)
{
	setup_repeat(s, frames);
	return bed_open(s);
}

struct bed *
bed_held(uint32_t frames, bool probes)
{
	struct setup s = setup_of(KARST_QPT_RC);

	s.core.early_retransmission = probes;
	return open_repeat(&s, frames);
}

struct bed *
bed_repeat_spray(uint32_t ports, bool latch)
{
	struct setup s = setup_of(KARST_QPT_RC);

	s.core.spray_ports = ports;
	s.core.latch_sport = latch;
	return open_repeat(&s, 16);
}

struct bed *
bed_repeat(void)
{
	return bed_held(16, false);
}

void
close_repeat(struct bed *b)
{
	bed_close(b);
	cr_assert_eq(kept_now, 0, "frames are held and nobody knows of them");
	free(repeat_mem);
}

/* Expects that the next frame is a SACK before PSN @epsn with these bits of the PSNs from there
 * on. */
void
expect_sack_at(struct bed *b, int line, uint32_t epsn, uint32_t bits)
{
	const struct karst_pkt *p =
		expect_at(b, __FILE__, line, KARST_SACK, karst_psn_add(epsn, -1u));
	uint32_t map = 0;

	cr_assert_eq(p->pay_len, 4, "line %d", line);
	memcpy(&map, p->data + p->pay_off, 4);
	cr_assert_eq(map, bits, "line %d: bits %#x", line, map);
}

/* Sends a SACK of the peer. */
enum karst_drop
send_map(struct bed *b, uint32_t epsn, const void *map, uint16_t len)
{
	return send_pkt(b, SACK, karst_psn_add(epsn, -1u),
		.aeth = (uint32_t)KARST_AETH_CREDIT_UNLIMITED << 24, .pay = map, .pay_len = len);
}

enum karst_drop
send_sack(struct bed *b, uint32_t epsn, uint32_t bits)
{
	return send_map(b, epsn, &bits, 4);
}
