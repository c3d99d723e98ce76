/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Enhanced connection establishment: how it is encoded (C3), and what is an agreement (X1). */
#include "cm_bed.h"

#include "karst_cm_ece.h"

#define WINDOW 10u
#define CAN    KARST_CM_ECE_REPEAT

static const struct karst_cm_ece nothing;

static bool
same(struct karst_cm_ece a, struct karst_cm_ece b)
{
	return a.vendor == b.vendor && a.options == b.options;
}

/* --- on the wire --- */

/* In both directions, also in retransmissions. */
Test(cm_ece, c3_active)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct cm_bed_msg req;
	struct karst_cm_msg rep;
	const struct karst_cm_ev *ev;
	uint32_t id;

	b->param.ece = (struct karst_cm_ece){.vendor = 0x010203, .options = 0x04050607};
	id = cm_bed_req_sent(b, 0, &req);
	cr_expect(same(req.m.req.ece, b->param.ece));
	advance(b, SECOND / 2);
	cr_expect_arr_eq(expect_msg(b, REQ)->mad, req.mad, KARST_CM_MAD_LEN);
	rep = peer_rep(&req, 0);
	rep.rep.ece = (struct karst_cm_ece){.vendor = 0xa1a2a3, .options = 0xb1b2b3b4};
	send_msg(b, rep);
	ev = expect_ev(b, REP);
	cr_expect(same(ev->remote.ece, rep.rep.ece));
	karst_cm_id_destroy(b->cm, id);
	expect_msg(b, REJ);
	cm_bed_down(b);
}

Test(cm_ece, c3_passive)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct karst_cm_msg req = peer_req(b, 0);
	const struct karst_cm_ev *ev;
	struct cm_bed_msg rep;
	uint32_t id;

	cm_bed_listen(b);
	req.req.ece = (struct karst_cm_ece){.vendor = 0xa1a2a3, .options = 0xb1b2b3b4};
	send_msg(b, req);
	ev = expect_ev(b, REQ);
	id = ev->id;
	cr_expect(same(ev->remote.ece, req.req.ece));
	b->param.ece = (struct karst_cm_ece){.vendor = 0x010203, .options = 0x04050607};
	cr_assert_eq(karst_cm_id_accept(b->cm, id, &b->param), 0);
	rep = *expect_msg(b, REP);
	cr_expect(same(rep.m.rep.ece, b->param.ece));
	/* the REQ again, with other options: the answer stays as it was */
	req.req.ece = nothing;
	send_msg(b, req);
	cr_expect_arr_eq(expect_msg(b, REP)->mad, rep.mad, KARST_CM_MAD_LEN);
	karst_cm_id_destroy(b->cm, id);
	expect_msg(b, REJ);
	cm_bed_down(b);
}

/* (C3): Linux with an adapter that supports ECE sends options in answers to peers that have offered
 * nothing. */
Test(cm_ece, c3_options_without_vendor)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct cm_bed_msg req;
	struct karst_cm_msg rep;
	uint32_t id = cm_bed_req_sent(b, 0, &req);

	rep = peer_rep(&req, 0);
	rep.rep.ece.options = 0x3;
	send_msg(b, rep);
	cr_expect_eq(expect_ev(b, REP)->remote.ece.options, 0x3);
	cr_expect_eq(counted(b, MALFORMED), 0);
	karst_cm_id_destroy(b->cm, id);
	expect_msg(b, REJ);
	cm_bed_down(b);
}

/* --- agreements --- */

Test(cm_ece, x1_both)
{
	struct karst_cm_ece offer = karst_cm_ece_offer(CAN, WINDOW),
			    answer = karst_cm_ece_answer(&offer, CAN, WINDOW);

	/* this value is on the wire and must never change */
	cr_expect(same(offer, (struct karst_cm_ece){0x724b53, 0x4b520a01}));
	cr_expect(same(answer, (struct karst_cm_ece){0x724b53, 0xb4510a01}));
	cr_expect_eq(karst_cm_ece_agreed(&offer, &answer), KARST_CM_ECE_REPEAT);
}

/* One side, or neither, supports it. */
Test(cm_ece, x1_not_both)
{
	struct karst_cm_ece offer = karst_cm_ece_offer(CAN, WINDOW),
			    empty = karst_cm_ece_offer(0, WINDOW);

	cr_expect(same(karst_cm_ece_answer(&offer, 0, WINDOW), nothing));
	cr_expect(same(karst_cm_ece_answer(&empty, CAN, WINDOW), nothing));
	cr_expect(same(karst_cm_ece_answer(&nothing, CAN, WINDOW), nothing));
	cr_expect(same(karst_cm_ece_answer(&offer, CAN, WINDOW - 1), nothing));
	cr_expect_eq(karst_cm_ece_agreed(&offer, &nothing), 0);
	cr_expect_eq(karst_cm_ece_agreed(&nothing, &nothing), 0);
}

/* A later karst offers more than this one supports. */
Test(cm_ece, x1_later_karst)
{
	struct karst_cm_ece offer = karst_cm_ece_offer(0xff, WINDOW),
			    answer = karst_cm_ece_answer(&offer, CAN, WINDOW);

	cr_expect_eq(answer.options, 0xb4510a01);
	cr_expect_eq(karst_cm_ece_agreed(&offer, &answer), KARST_CM_ECE_REPEAT);
}

/* What passive sides send that do not understand the offer: the offer itself, or its vendor with
 * options of their own. */
Test(cm_ece, x1_echo)
{
	struct karst_cm_ece offer = karst_cm_ece_offer(CAN, WINDOW), echo = offer;

	cr_expect_eq(karst_cm_ece_agreed(&offer, &echo), 0);
	echo.options = 0x10000003;
	cr_expect_eq(karst_cm_ece_agreed(&offer, &echo), 0);
	echo.options = 0;
	cr_expect_eq(karst_cm_ece_agreed(&offer, &echo), 0);
}

/* Answers that were not asked for: nothing was offered, or less. */
Test(cm_ece, x1_more_than_offered)
{
	struct karst_cm_ece offer = karst_cm_ece_offer(CAN, WINDOW),
			    answer = karst_cm_ece_answer(&offer, CAN, WINDOW), bad = answer;

	cr_expect_eq(karst_cm_ece_agreed(&nothing, &answer), 0);
	cr_expect(same(karst_cm_ece_answer(&answer, CAN, WINDOW), nothing), "answered an answer");
	bad.options |= 2;
	cr_expect_eq(karst_cm_ece_agreed(&offer, &bad), 0);
	bad = answer;
	bad.options ^= 0x100;
	cr_expect_eq(karst_cm_ece_agreed(&offer, &bad), 0);
	bad = answer;
	bad.vendor ^= 1;
	cr_expect_eq(karst_cm_ece_agreed(&offer, &bad), 0);
	bad = offer;
	bad.vendor |= 1u << 24;
	cr_expect(same(karst_cm_ece_answer(&bad, CAN, WINDOW), nothing));
}

/* With any single wrong bit an answer means no agreement, except in the bit of the ability, after
 * which nothing is left to agree on; and an offer with a wrong bit gets an answer only if the bit
 * is an ability. */
Test(cm_ece, x1_bits)
{
	struct karst_cm_ece offer = karst_cm_ece_offer(CAN, WINDOW),
			    answer = karst_cm_ece_answer(&offer, CAN, WINDOW), bad;
	unsigned int i;

	for (i = 0; i < 32; i++) {
		bad = answer;
		bad.options ^= 1u << i;
		cr_expect_eq(karst_cm_ece_agreed(&offer, &bad), 0, "bit %u", i);
		bad = offer;
		bad.options ^= 1u << i;
		cr_expect_eq(same(karst_cm_ece_answer(&bad, CAN, WINDOW), nothing), i == 0 || i > 7,
			"bit %u", i);
	}
}
