/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Selective repeat while the expected request waits for a copy. */
#include "copy_bed.h"
#include "repeat_bed.h"

/* X4, X7: what was dropped is still reported while the expected request waits for its copy, and not
 * any more when it has been executed. */
Test(copy, dropped_behind_a_parked_one)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	setup_repeat(&s, 16);
	b = open_far_with(&s);
	expect_drop(b, HELD_FULL, send_write(b, R(WINDOW + 1), 0, 8));
	expect_taken(b, write_far(b, 0, 0, 64));
	expect_sack(b, R(0), 1);
	copy_all(b);
	expect_mem(b, 0, 0, 64);
	expect_ack(b, R(0), 1);
	expect_none(b);
	close_far(b);
	free(repeat_mem);
}

/* X5: a held request for which no copy was free when its turn came is executed when a later one
 * arrives.  The peer does not send it again before a timeout, since it knows that it is held. */
Test(copy, held_without_a_copy)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	setup_repeat(&s, 16);
	b = open_far_with(&s);
	expect_taken(b, write_far(b, 1, 0, 64));
	expect_sack(b, R(0), 2);
	driver.full = true;
	expect_taken(b, send_write(b, R(0), 1024, 8));
	visit_all(b);
	expect_sack(b, R(1), 0);
	expect_untouched(b, 0, 64);
	driver.full = false;
	expect_taken(b, send_write(b, R(2), 2048, 8));
	copy_all(b);
	expect_mem(b, 0, 0, 64);
	expect_ack(b, R(2), 3);
	expect_none(b);
	close_far(b);
	free(repeat_mem);
}

/* X4: what had no room behind a parked request is reported when its copy is made. */
Test(copy, x4_behind_a_full_backlog)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;
	uint32_t i;

	setup_repeat(&s, 16);
	b = open_far_with(&s);
	expect_taken(b, write_far(b, 0, 0, 64));
	for (i = 1; i <= KARST_COPY_BACKLOG; i++)
		expect_taken(b, send_write(b, R(i), 1024, 8));
	expect_drop(b, COPY_FULL, send_write(b, R(i), 1024, 8));
	copy_all(b);
	expect_sack(b, R(i), 1);
	expect_taken(b, send_write(b, R(i), 1024, 8));
	expect_ack(b, R(i), i + 1);
	close_far(b);
	free(repeat_mem);
}

/* X4, X5: a held request, for which no copy was free, is executed when a later one arrives, since
 * its memory has been mapped meanwhile.  What was dropped is then not reported any more. */
Test(copy, x4_report_ends_with_a_held_request)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	setup_repeat(&s, 16);
	b = open_far_with(&s);
	expect_taken(b, write_far(b, 1, 0, 64));
	expect_sack(b, R(0), 2);
	driver.full = true;
	expect_taken(b, send_write(b, R(0), 1024, 8));
	visit_all(b);
	expect_sack(b, R(1), 0);
	expect_drop(b, HELD_FULL, send_write(b, R(WINDOW + 2), 1024, 8));
	visit_all(b);
	expect_sack(b, R(1), 1);
	driver.mapped = b->buf;
	expect_taken(b, send_write(b, R(2), 2048, 8));
	expect_mem(b, 0, 0, 64);
	expect_ack(b, R(2), 3);
	expect_none(b);
	driver.mapped = NULL;
	driver.full = false;
	close_far(b);
	free(repeat_mem);
}

static struct karst_pkt *
hold_in_place(struct karst_core *core, struct karst_pkt *pkt)
{
	return pkt;
}

static void
free_held(struct karst_core *core, struct karst_pkt *pkt)
{
	free(pkt->data);
	free(pkt);
}

static const struct karst_hold_ops in_place = {.hold = hold_in_place, .release = free_held};

/* Delivers a WRITE of 64 bytes into far memory in a packet that may be kept where it is.
 * @return whether it is kept. */
static bool
deliver(struct bed *b, struct karst_pkt *pkt, uint32_t psn, uint32_t off)
{
	struct karst_ib_hdrs ib = {
		.opcode = KARST_RC_WRITE_ONLY,
		.psn = psn,
		.va = FAR + off,
		.rkey = far_key,
		.dma_len = 64,
		.pay_len = 64,
		.ackreq = true,
	};
	struct karst_frame f = bed_frame(b, &ib);

	memset(pkt, 0, sizeof(*pkt));
	pkt->data = malloc(KARST_FRAME_MAX);
	pkt->len = (uint16_t)karst_build_frame(pkt->data, KARST_FRAME_MAX, &f);
	cr_assert_eq(karst_parse(pkt), KARST_DROP_NONE);
	pkt->qp = karst_core_lookup(b->core, pkt->dqpn);
	return karst_qp_rx(b->core, pkt);
}

/* X5: a request is held, and parked for a copy before its driver has it back: a later packet at the
 * same address is not taken for it. */
Test(copy, held_and_parked_in_one_delivery)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct karst_pkt *pkt;
	struct bed *b;

	setup_repeat(&s, 16);
	s.core.hold_ops = &in_place;
	b = open_far_with(&s);
	driver.in_place = true;
	cr_assert(deliver(b, malloc(sizeof(*pkt)), R(1), 4096));
	expect_sack(b, R(0), 2);
	driver.full = true;
	expect_taken(b, send_write(b, R(0), 8192, 8));
	visit_all(b);
	expect_sack(b, R(1), 0);
	driver.full = false;
	driver.mapped = b->buf + 4096;
	pkt = malloc(sizeof(*pkt));
	cr_assert(deliver(b, pkt, R(2), 0));
	copy_once(b, ALL);
	expect_ack(b, R(2), 3);
	/* it may be the same one */
	pkt = malloc(sizeof(*pkt));
	cr_assert_not(deliver(b, pkt, R(0), 0), "a duplicate is kept");
	free_held(b->core, pkt);
	expect_ack(b, R(2), 3);
	driver.mapped = NULL;
	close_far(b);
	free(repeat_mem);
}
