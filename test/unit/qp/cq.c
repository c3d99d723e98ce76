/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Completion queues: arming, solicited events, overflow. */
#include "harness.h"
#include "qp_priv.h"

static void
recv_one(struct bed *b, uint32_t psn, bool se)
{
	post_recv(b, psn, 0, 64);
	expect_taken(b, send_pkt(b, RC_SEND_ONLY, psn, .pay_len = 4, .se = se));
	expect_recv(b, psn, SUCCESS);
}

/* Armed: one event at the next completion, at the flush; not armed: none. */
Test(cq, armed)
{
	struct bed *b = bed_rc();

	recv_one(b, R(0), true);
	cr_assert_eq(b->cq_events, 0);
	karst_cq_arm(b->rcq_shared, false);
	post_recv(b, 1, 0, 64);
	expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(1)));
	cr_assert_eq(b->cq_events, 0);
	turn(b);
	cr_assert_eq(b->cq_events, 1);
	expect_recv(b, 1, SUCCESS);
	recv_one(b, R(2), true);
	cr_assert_eq(b->cq_events, 1);
	cr_assert_eq(count(b, EVENTS), 1);
	bed_close(b);
}

/* Armed for solicited events: completions with SE and errors. */
Test(cq, solicited)
{
	struct bed *b = bed_rc();

	karst_cq_arm(b->rcq_shared, true);
	recv_one(b, R(0), false);
	cr_assert_eq(b->cq_events, 0);
	recv_one(b, R(1), true);
	cr_assert_eq(b->cq_events, 1);
	karst_cq_arm(b->rcq_shared, true);
	recv_one(b, R(2), false);
	cr_assert_eq(b->cq_events, 1);
	post_recv(b, 9, 0, 64);
	cr_assert_eq(bed_to_state(b, KARST_QPS_ERR), 0);
	expect_recv(b, 9, WR_FLUSH_ERR);
	cr_assert_eq(b->cq_events, 2);
	bed_close(b);
}

/* A send completion is not solicited; a failed one is. */
Test(cq, solicited_send)
{
	struct bed *b = bed_rc();

	karst_cq_arm(b->scq_shared, true);
	post(b, SEND, 1, .len = 4, .flags = KARST_SEND_SOLICITED);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	expect_taken(b, send_pkt(b, RC_ACK, S(0), .aeth = 0x1f000001));
	expect_wc(b, 1, SUCCESS);
	cr_assert_eq(b->cq_events, 0);
	post(b, SEND, 2, .len = 4, .lkey = 0x666);
	expect_wc(b, 2, LOC_PROT_ERR);
	cr_assert_eq(b->cq_events, 1);
	bed_close(b);
}

/* Armed for solicited events first, then for any: the stronger counts; an invalid value wakes. */
Test(cq, armed_words)
{
	struct bed *b = bed_rc();
	struct karst_cq_shared *sh = b->rcq_shared;

	karst_cq_arm(sh, false);
	karst_cq_arm(sh, true);
	recv_one(b, R(0), false);
	cr_assert_eq(b->cq_events, 1);
	karst_cq_arm(sh, true);
	karst_cq_arm(sh, false);
	recv_one(b, R(1), false);
	cr_assert_eq(b->cq_events, 2);
	atomic_store(&sh->armed, 0xdeadbeef);
	recv_one(b, R(2), false);
	cr_assert_eq(b->cq_events, 3);
	cr_assert_not(karst_cq_is_armed(sh));
	bed_close(b);
}

/* A full lane: the completion is lost, CQ_ERR comes once, and the QPs that complete into it
 * fail. */
Test(cq, overflow)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;
	uint32_t i;

	s.cq_entries = 4;
	b = bed_open(&s);
	for (i = 0; i < 6; i++)
		post(b, RDMA_WRITE, i, .len = 1);
	turn(b);
	b->out_head = b->out_tail;
	expect_taken(b, send_pkt(b, RC_ACK, S(3), .aeth = 0x1f000004));
	cr_assert_not(karst_cq_overflown(b->scq));
	turn(b);
	expect_state(b, RTS);
	expect_taken(b, send_pkt(b, RC_ACK, S(4), .aeth = 0x1f000005));
	cr_assert(karst_cq_overflown(b->scq));
	cr_assert_not(karst_cq_overflown(b->rcq));
	expect_event_of(b, CQ_ERR, b->scq);
	expect_event(b, QP_FATAL);
	expect_state(b, ERR);
	for (i = 0; i < 4; i++)
		expect_wc(b, i, SUCCESS);
	/* nothing comes after it, though there is room again; the send queue is emptied all the
	 * same */
	expect_no_wc(b);
	cr_assert_eq(karst_wq_free(&b->s->sq, 64), 64);
	cr_assert_geq(count(b, CQ_OVERFLOWS), 2);
	/* another QP on the same queue finds out when it completes */
	bed_add(b, &s);
	post(b, RDMA_WRITE, 7, .len = 1);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_taken(b, send_pkt(b, RC_ACK, S(0), .aeth = 0x1f000001));
	expect_event(b, QP_FATAL);
	bed_close(b);
}

/* Completions and the overflow in one batch: a program that gets the overflow event finds all
 * completions from before it. */
Test(cq, overflow_is_shown_last)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct karst_cq_shared *sh;
	struct karst_cq_lane lane;
	const struct karst_cqe *e;
	struct bed *b;
	uint32_t i;

	s.cq_entries = 4;
	b = bed_open(&s);
	sh = b->scq_shared;
	lane = b->slane;
	for (i = 0; i < 6; i++)
		post(b, RDMA_WRITE, i, .len = 1);
	turn(b);
	b->out_head = b->out_tail;
	expect_taken(b, send_pkt(b, RC_ACK, S(5), .aeth = 0x1f000006));
	expect_event_of(b, CQ_ERR, b->scq);
	cr_assert_eq(karst_cq_lane_peek(&lane, &e), 0);
	cr_assert_eq(atomic_load(&sh->overflown), 0, "told before the completions");
	karst_core_flush(b->core);
	cr_assert_eq(atomic_load(&sh->overflown), 1);
	cr_assert_eq(karst_cq_lane_peek(&lane, &e), 4);
	for (i = 0; i < 4; i++)
		expect_wc(b, i, SUCCESS);
	expect_event(b, QP_FATAL);
	bed_close(b);
}

/* On the receive side; a message whose completion is lost is not acknowledged. */
Test(cq, overflow_of_receives)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;

	s.cq_entries = 1;
	b = bed_open(&s);
	post_recv(b, 1, 0, 64);
	post_recv(b, 2, 0, 64);
	expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 4, .ackreq = true));
	expect_ack(b, R(0), 1);
	expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(1), .pay_len = 4, .ackreq = true));
	expect_none(b);
	expect_event_of(b, CQ_ERR, b->rcq);
	expect_event(b, QP_FATAL);
	expect_recv(b, 1, SUCCESS);
	bed_close(b);
}

/* UC completes when it sends: the queue overflows there as well. */
Test(cq, overflow_uc)
{
	struct setup s = setup_of(KARST_QPT_UC);
	struct bed *b;

	s.cq_entries = 1;
	b = bed_open(&s);
	post(b, SEND, 1, .len = 1);
	post(b, SEND, 2, .len = 1);
	post(b, SEND, 3, .len = 1);
	expect_pkt(b, UC_SEND_ONLY, S(0));
	expect_pkt(b, UC_SEND_ONLY, S(1));
	expect_none(b);
	expect_event_of(b, CQ_ERR, b->scq);
	expect_event(b, QP_FATAL);
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* The program can write any value to its head: at worst it loses its own completions. */
Test(cq, impossible_head)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct karst_lane_shared *lane;
	struct bed *b;
	uint32_t i;

	s.cq_entries = 4;
	b = bed_open(&s);
	lane = b->scq_lanes;
	for (i = 0; i < 5; i++)
		post(b, RDMA_WRITE, i, .len = 1);
	turn(b);
	b->out_head = b->out_tail;
	atomic_store(&lane->head, 0x80000000u);
	expect_taken(b, send_pkt(b, RC_ACK, S(4), .aeth = 0x1f000005));
	cr_assert(karst_cq_overflown(b->scq));
	bed_forget(b);
	bed_close(b);
}

/* Both completion queues of a queue pair must have a lane for its lcore. */
Test(cq, lane_of_the_lcore)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct karst_core_config cfg = s.core;
	struct bed *b = bed_open(&s);
	struct karst_qp_init init = s.qp;
	struct karst_core *core;
	struct karst_core_qp *qp;
	void *mem, *qp_mem;

	cfg.lcore_bits = 1;
	cfg.lcore = 1;
	cfg.mem = b->mem;
	cfg.ops = b->core->ops;
	mem = aligned_alloc(64, (karst_core_bytes(&cfg) + 63) & ~(size_t)63);
	cr_assert_eq(karst_core_init(mem, &cfg, 0, &core), 0);
	init.pd = b->pd;
	init.send_cq = b->scq; /* one lane */
	init.recv_cq = b->rcq;
	init.sq_shared = b->s->sq_mem;
	init.rq_shared = b->s->rq_mem;
	qp_mem = aligned_alloc(64, karst_qp_bytes(&init));
	cr_assert_eq(karst_qp_create(core, qp_mem, &init, &qp), -EINVAL);
	free(qp_mem);
	free(mem);
	bed_close(b);
}

static uint32_t
head_of(const struct karst_wq *wq)
{
	return atomic_load(&wq->sh->head);
}

/* Makes completions that count, which are published in the same flush. */
static uint32_t
ready_of(const struct karst_cq_lane *lane)
{
	cr_assert_eq(atomic_load(&lane->sh->ready), atomic_load(&lane->sh->tail));
	return atomic_load(&lane->sh->ready);
}

/* A slot is freed with the completion of its request, which names it, and not before. */
Test(cq, slots_come_back_with_their_completions)
{
	struct bed *b = bed_rc();

	post_recv(b, 1, 0, 1024);
	post_recv(b, 2, 0, 1024);
	expect_taken(b, send_pkt(b, RC_SEND_FIRST, R(0), .pay_len = 256));
	turn(b);
	cr_assert_eq(head_of(&b->s->rq), 0, "taken by a message that is not complete");
	expect_taken(b, send_pkt(b, RC_SEND_LAST, R(1), .pay_len = 1));
	cr_assert_eq(head_of(&b->s->rq), 0, "the completion is not visible yet");
	cr_assert_eq(ready_of(&b->rlane), 0);
	turn(b);
	cr_assert_eq(head_of(&b->s->rq), 1);
	cr_assert_eq(ready_of(&b->rlane), 1);
	cr_assert_eq(expect_recv(b, 1, SUCCESS)->slot, 0);
	post(b, RDMA_WRITE, 1, .len = 1, .quiet = true);
	post(b, RDMA_WRITE, 2, .len = 1);
	turn(b);
	b->out_head = b->out_tail;
	cr_assert_eq(head_of(&b->s->sq), 0);
	expect_taken(b, send_pkt(b, RC_ACK, S(1), .aeth = 0x1f000002));
	cr_assert_eq(head_of(&b->s->sq), 0, "the completion is not visible yet");
	cr_assert_eq(ready_of(&b->slane), 0);
	turn(b);
	cr_assert_eq(head_of(&b->s->sq), 2);
	cr_assert_eq(ready_of(&b->slane), 1);
	cr_assert_eq(expect_wc(b, 2, SUCCESS)->slot, 1);
	bed_close(b);
}

/* Sends WRITE number @n, from 1 on, and the ACK for it. */
static void
write_acked(struct bed *b, uint32_t n)
{
	post(b, RDMA_WRITE, n, .len = 1);
	turn(b);
	b->out_head = b->out_tail;
	expect_taken(b, send_pkt(b, RC_ACK, S(n - 1), .aeth = 0x1f000000 + n));
}

/* With many queue pairs their heads are not in any cache: a head that has not moved is not
 * written. */
Test(cq, heads_that_have_not_moved_are_not_written)
{
	enum { UNTOUCHED = 0x5a5a5a5a };
	struct bed *b = bed_rc();

	post_recv(b, 1, 0, 1024);
	post_recv(b, 2, 0, 1024);
	atomic_store(&b->s->rq.sh->head, UNTOUCHED);
	write_acked(b, 1);
	turn(b);
	cr_assert_eq(head_of(&b->s->sq), 1);
	cr_assert_eq(head_of(&b->s->rq), UNTOUCHED, "no receive has completed");
	/* both at once; and then the send queue's alone again */
	write_acked(b, 2);
	expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 1));
	turn(b);
	cr_assert_eq(head_of(&b->s->sq), 2);
	cr_assert_eq(head_of(&b->s->rq), 1);
	atomic_store(&b->s->rq.sh->head, UNTOUCHED);
	write_acked(b, 3);
	turn(b);
	cr_assert_eq(head_of(&b->s->sq), 3);
	cr_assert_eq(head_of(&b->s->rq), UNTOUCHED);
	bed_forget(b);
	bed_close(b);
}

/* What cannot be created; what is in use. */
Test(cq, create)
{
	struct bed *b = bed_rc();
	struct karst_cq_init init = {
		.shared = b->scq_shared, .lanes = b->scq_lanes, .entries = 256, .nlanes = 1};
	void *mem = aligned_alloc(64, karst_cq_object_bytes(&init));
	struct karst_core_cq *cq;

	cr_assert_eq(karst_cq_destroy(b->scq), -EBUSY);
	init.entries = 0;
	cr_assert_eq(karst_cq_create(mem, &init, &cq), -EINVAL);
	init.entries = 100;
	cr_assert_eq(karst_cq_create(mem, &init, &cq), -EINVAL);
	init.entries = 2 * KARST_CQ_MAX_ENTRIES;
	cr_assert_eq(karst_cq_create(mem, &init, &cq), -EINVAL);
	init.entries = 256;
	init.nlanes = 0;
	cr_assert_eq(karst_cq_object_bytes(&init), 0);
	cr_assert_eq(karst_cq_create(mem, &init, &cq), -EINVAL);
	init.nlanes = 257;
	cr_assert_eq(karst_cq_create(mem, &init, &cq), -EINVAL);
	init.nlanes = 1;
	init.shared = NULL;
	cr_assert_eq(karst_cq_create(mem, &init, &cq), -EINVAL);
	init.shared = b->scq_shared;
	init.lanes = NULL;
	cr_assert_eq(karst_cq_create(mem, &init, &cq), -EINVAL);
	free(mem);
	bed_close(b);
}

/* All completions of a flush have its timestamp; without timestamps the driver's clock is not
 * read. */
Test(cq, times)
{
	struct bed *b = bed_rc();
	struct karst_cq_init init = {
		.shared = b->scq_shared, .entries = 4, .nlanes = 1, .flags = KARST_CQ_TIMESTAMPS};
	size_t bytes = karst_lane_bytes(4, KARST_CQ_TIMESTAMPS);
	struct karst_core_cq *cq;
	struct karst_cq_lane lane;
	const struct karst_cqe *at;
	void *mem = aligned_alloc(64, karst_cq_object_bytes(&init));
	uint32_t i;

	init.lanes = aligned_alloc(64, bytes);
	memset(init.lanes, 0, bytes);
	cr_assert_eq(karst_cq_create(mem, &init, &cq), 0);
	karst_cq_lane_attach(&lane, init.lanes, 4, KARST_CQ_TIMESTAMPS);
	for (i = 0; i < 10; i++) {
		b->core->stamp_ns = 1; /* a time that belongs to no flush */
		karst_cq_push(b->core, cq, false)->wr_id = 2 * i;
		karst_cq_push(b->core, cq, false)->wr_id = 2 * i + 1;
		b->core->stamp_ns = 100 + i;
		karst_core_flush(b->core);
		cr_assert_eq(karst_cq_lane_peek(&lane, &at), 2);
		cr_assert_eq(at[1].wr_id, 2 * i + 1);
		cr_assert_eq(karst_cq_lane_stamps(&lane)[0], 100 + i);
		cr_assert_eq(karst_cq_lane_stamps(&lane)[1], 100 + i);
		karst_cq_lane_take(&lane, 2);
	}
	free(init.lanes);
	free(mem);
	bed_close(b);
}

/* A lane is moved between a completion and its flush; a moderated event still comes, and the room
 * is that of the new lane. */
Test(cq, moved_before_the_flush)
{
	struct setup s = setup_of(KARST_QPT_RC);
	size_t bytes = karst_lane_bytes(8, KARST_CQ_TIMESTAMPS);
	struct karst_lane_shared *to = aligned_alloc(64, bytes);
	struct karst_lane_span span;
	struct karst_lane lane, new;
	struct bed *b;
	uint32_t i;

	s.cq_entries = 4;
	b = bed_open(&s);
	memset(to, 0, bytes);
	karst_cq_set_moderation(b->scq, 6, 0);
	karst_cq_arm(b->scq_shared, false);
	for (i = 0; i < 2; i++)
		karst_cq_push(b->core, b->scq, false)->wr_id = i;
	karst_core_flush(b->core);
	karst_core_resize_cq_prepare(b->core, b->scq, &lane, &span);
	new = karst_lane_in(&lane, to, 8);
	karst_lane_copy(&new, &lane, span.from, span.upto);
	for (; i < 4; i++)
		karst_cq_push(b->core, b->scq, false)->wr_id = i;
	cr_assert_eq(karst_core_resize_cq_commit(b->core, b->scq, to, 8, &span), 0);
	cr_assert_eq(to->tail, 2);
	cr_assert_eq(to->ready, 2, "what is not flushed does not count yet");
	for (; i < 8; i++)
		karst_cq_push(b->core, b->scq, false)->wr_id = i;
	cr_assert_eq(b->cq_events, 0);
	karst_core_flush(b->core);
	cr_assert_eq(b->cq_events, 1);
	karst_cq_lane_attach(&b->slane, to, 8, 0);
	for (i = 0; i < 8; i++) {
		const struct karst_cqe *at;

		cr_assert_gt(karst_cq_lane_peek(&b->slane, &at), 0);
		cr_assert_eq(at->wr_id, i);
		karst_cq_lane_take(&b->slane, 1);
	}
	cr_assert_not(karst_cq_overflown(b->scq));
	bed_close(b);
	free(to);
}

/* --- moderation --- */

/* Makes @n receives that complete, one in each turn. */
static void
recv_some(struct bed *b, uint32_t *psn, uint32_t n)
{
	for (; n > 0; n--)
		recv_one(b, R((*psn)++), false);
}

Test(cq, moderated_by_count)
{
	struct bed *b = bed_rc();
	uint32_t psn = 0;

	karst_cq_set_moderation(b->rcq, 3, 0);
	recv_some(b, &psn, 5);
	karst_cq_arm(b->rcq_shared, false);
	recv_some(b, &psn, 2);
	cr_assert_eq(b->cq_events, 0, "what came before it was armed does not count");
	advance_time(b, 1000000000);
	cr_assert_eq(b->cq_events, 0, "however long it takes");
	recv_some(b, &psn, 1);
	cr_assert_eq(b->cq_events, 1);
	recv_some(b, &psn, 9);
	cr_assert_eq(b->cq_events, 1, "it is not armed");
	karst_cq_arm(b->rcq_shared, false);
	recv_some(b, &psn, 2);
	cr_assert_eq(b->cq_events, 1, "counting begins anew");
	recv_some(b, &psn, 1);
	cr_assert_eq(b->cq_events, 2);
	bed_close(b);
}

Test(cq, moderated_by_period)
{
	struct bed *b = bed_rc();
	uint32_t psn = 0, i;

	karst_cq_set_moderation(b->rcq, 0, 100);
	for (i = 0; i < 3; i++) {
		karst_cq_arm(b->rcq_shared, false);
		advance_time(b, 1000000);
		cr_assert_eq(b->cq_events, i, "nothing has come");
		recv_some(b, &psn, 1);
		advance_time(b, 60000);
		recv_some(b, &psn, 20);
		cr_assert_eq(b->cq_events, i, "however many");
		advance_time(b, 60000);
		cr_assert_eq(b->cq_events, i + 1, "the period of the first is over");
		advance_time(b, 1000000);
		cr_assert_eq(b->cq_events, i + 1);
	}
	bed_close(b);
}

/* Whichever comes first; when the count has raised an event, its timer raises no second one. */
Test(cq, moderated_by_both)
{
	struct bed *b = bed_rc();
	uint32_t psn = 0;

	karst_cq_set_moderation(b->rcq, 4, 100);
	karst_cq_arm(b->rcq_shared, false);
	recv_some(b, &psn, 4);
	cr_assert_eq(b->cq_events, 1);
	karst_cq_arm(b->rcq_shared, false);
	advance_time(b, 1000000);
	cr_assert_eq(b->cq_events, 1);
	recv_some(b, &psn, 3);
	cr_assert_eq(b->cq_events, 1);
	advance_time(b, 200000);
	cr_assert_eq(b->cq_events, 2);
	bed_close(b);
}

/* A solicited completion starts moderation; later ones count whatever they are. */
Test(cq, moderated_solicited)
{
	struct bed *b = bed_rc();

	karst_cq_set_moderation(b->rcq, 2, 100);
	karst_cq_arm(b->rcq_shared, true);
	recv_one(b, R(0), false);
	advance_time(b, 1000000);
	cr_assert_eq(b->cq_events, 0);
	recv_one(b, R(1), true);
	cr_assert_eq(b->cq_events, 0);
	recv_one(b, R(2), false);
	cr_assert_eq(b->cq_events, 1);
	bed_close(b);
}

Test(cq, no_moderation)
{
	struct bed *b = bed_rc();
	uint32_t psn = 0, i;

	for (i = 0; i < 4; i++) {
		/* turned on, and off while an event is held back: that event comes in its time */
		karst_cq_set_moderation(b->rcq, 0, 100);
		karst_cq_arm(b->rcq_shared, false);
		recv_some(b, &psn, 1);
		cr_assert_eq(b->cq_events, 2 * i);
		karst_cq_set_moderation(b->rcq, (uint16_t)(i & 1), (uint16_t)(i & 1 ? 50 : 0));
		advance_time(b, 200000);
		cr_assert_eq(b->cq_events, 2 * i + 1);
		karst_cq_arm(b->rcq_shared, false);
		recv_some(b, &psn, 1);
		cr_assert_eq(b->cq_events, 2 * i + 2);
	}
	bed_close(b);
}

/* The queue is destroyed while an event is held back: its timer does not fire any more. */
Test(cq, moderated_and_destroyed)
{
	struct bed *b = bed_rc();
	uint32_t psn = 0;

	karst_cq_set_moderation(b->rcq, 0, 100);
	karst_cq_arm(b->rcq_shared, false);
	recv_some(b, &psn, 1);
	karst_core_forget_cq(b->core, b->rcq);
	advance_time(b, 1000000);
	cr_assert_eq(b->cq_events, 0);
	bed_close(b);
}
