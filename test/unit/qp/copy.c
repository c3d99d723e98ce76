/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Memory that has to be copied (karst_copy.h): packets and frames in two passes. */
#include "copy_bed.h"

/* --- packets --- */

Test(copy, write_parks_and_what_follows_waits)
{
	struct bed *b = open_far(KARST_QPT_RC);

	expect_taken(b, write_far(b, 0, 0, 64));
	expect_taken(b,
		send_pkt(b, RC_WRITE_ONLY, R(1), .va = VA + 128, .rkey = b->key, .dma_len = 64,
			.pay_len = 64, .ackreq = true));
	expect_taken(b, write_far(b, 0, 0, 64)); /* once more */
	expect_taken(b, write_far(b, 2, 256, 64));
	expect_none(b);
	expect_untouched(b, 0, 512);
	cr_assert_eq(copy_once(b, ALL), 1);
	expect_mem(b, 0, 0, 64);
	expect_mem(b, 128, 0, 64);
	expect_untouched(b, 256, 64);
	expect_ack(b, R(1), 2);
	copy_all(b);
	expect_mem(b, 256, 0, 64);
	expect_ack(b, R(2), 3);
	cr_assert_eq(drops(b, DUPLICATE), 1);
	cr_assert_eq(count(b, DUPLICATE_REQUEST), 1);
	close_far(b);
}

/* (R15): a FLUSH is not answered before the WRITEs in front of it have been copied, wherever its
 * range is. */
Test(copy, r15_flush_waits_for_copies)
{
	struct bed *b = open_far(KARST_QPT_RC);

	expect_taken(b, write_far(b, 0, 0, 64));
	expect_taken(b,
		send_pkt(b, RC_FLUSH, R(1), .feth = KARST_FLUSH_GLOBAL, .va = FAR, .rkey = far_key,
			.dma_len = 64, .ackreq = true));
	expect_taken(b,
		send_pkt(b, RC_FLUSH, R(2), .feth = KARST_FLUSH_GLOBAL, .va = VA, .rkey = b->key,
			.dma_len = 8, .ackreq = true));
	expect_none(b);
	expect_untouched(b, 0, 64);
	copy_all(b);
	expect_mem(b, 0, 0, 64);
	cr_assert_eq(expect_pkt(b, RC_READ_RESP_ONLY, R(1))->aeth, 0x1f000003);
	expect_pkt(b, RC_READ_RESP_ONLY, R(2));
	close_far(b);
}

/* (R3, L12, L18): a SEND behind a READ ends the wait for a receive request before the RNR NAK has
 * left, but gets no copy.  Nobody has asked for an acknowledgement of what precedes the READ, and
 * duplicates of that are still left to the responses. */
Test(copy, rnr_nak_taken_back_by_a_send_that_gets_no_copy)
{
	struct bed *b = open_far(KARST_QPT_RC);
	const struct karst_sge sge = FAR_SGE(0, 64);

	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
	expect_ack(b, R(0), 1);
	expect_taken(
		b, send_pkt(b, RC_READ_REQUEST, R(1), .va = VA, .rkey = b->key, .dma_len = 512));
	expect_pkt(b, RC_READ_RESP_FIRST, R(1));
	expect_pkt(b, RC_READ_RESP_LAST, R(2));
	expect_drop(b, RNR, send_pkt(b, RC_SEND_ONLY, R(3), .pay_len = 64, .ackreq = true));
	post_recv_sge(b, 1, &sge, 1);
	driver.full = true;
	send_pkt(b, RC_SEND_ONLY, R(3), .pay_len = 64, .ackreq = true);
	cr_assert_eq(drops(b, COPY_FULL), 1);
	expect_none(b);
	expect_drop(b, DUPLICATE, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true));
	expect_none(b);
	expect_taken(
		b, send_pkt(b, RC_READ_REQUEST, R(1), .va = VA, .rkey = b->key, .dma_len = 512));
	expect_pkt(b, RC_READ_RESP_FIRST, R(1));
	expect_pkt(b, RC_READ_RESP_LAST, R(2));
	driver.full = false;
	expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(3), .pay_len = 64, .ackreq = true));
	copy_all(b);
	expect_ack(b, R(3), 3);
	expect_recv(b, 1, SUCCESS);
	close_far(b);
}

/* A packet that is dropped because no copy is accepted takes no place of those that wait. */
Test(copy, write_whose_copy_is_not_accepted)
{
	struct bed *b = open_far(KARST_QPT_RC);

	driver.full = true;
	write_far(b, 0, 0, 64);
	cr_assert_eq(driver.kept, 0);
	driver.in_place = true;
	write_far(b, 0, 0, 64);
	cr_assert_eq(driver.kept, 0);
	cr_assert_eq(drops(b, COPY_FULL), 2);
	driver.full = driver.in_place = false;
	expect_taken(b, write_far(b, 0, 0, 64));
	copy_all(b);
	expect_mem(b, 0, 0, 64);
	expect_ack(b, R(0), 1);
	close_far(b);
}

Test(copy, write_that_cannot_be_placed)
{
	struct bed *b = open_far(KARST_QPT_RC);

	expect_taken(b, write_far(b, 0, 0, 64));
	expect_taken(b, write_far(b, 1, 64, 64));
	copy_once(b, 63);
	expect_nak(b, R(0), REM_ACCESS, 0);
	expect_event(b, QP_ACCESS_ERR);
	expect_state(b, ERR);
	cr_assert_eq(drops(b, REQUEST), 1);
	cr_assert_eq(drops(b, QP_STATE), 1, "what waited behind it");
	close_far(b);
}

Test(copy, order_of_a_message)
{
	struct bed *b = open_far(KARST_QPT_RC);

	/* its end is mapped: nothing is stored there before the rest has been copied */
	driver.mapped = b->buf + 32;
	expect_taken(b, write_far(b, 0, 0, 64));
	expect_untouched(b, 0, 64);
	copy_all(b);
	expect_mem(b, 0, 0, 64);
	expect_ack(b, R(0), 1);
	/* all of it is mapped */
	expect_taken(b, write_far(b, 1, 64, 64));
	cr_assert_eq(driver.ntodo, 0);
	expect_mem(b, 64, 0, 64);
	expect_ack(b, R(1), 2);
	close_far(b);
}

Test(copy, too_many_wait)
{
	struct bed *b = open_far(KARST_QPT_RC);
	uint32_t i;

	for (i = 0; i <= KARST_COPY_BACKLOG; i++)
		expect_taken(b, write_far(b, i, 64 * i, 64));
	expect_drop(b, COPY_FULL, write_far(b, i, 64 * i, 64));
	copy_all(b);
	/* the peer goes back to the dropped request */
	expect_nak(b, R(i), PSN_SEQ, i);
	expect_mem(b, 64 * (i - 1), 0, 64);
	expect_untouched(b, 64 * i, 64);
	expect_drop(b, NAKED, write_far(b, i + 1, 0, 64));
	expect_none(b);
	close_far(b);
}

Test(copy, none_is_left)
{
	struct bed *b = open_far(KARST_QPT_RC);

	memset(driver.used, true, sizeof(driver.used));
	expect_drop(b, COPY_FULL, write_far(b, 0, 0, 64));
	memset(driver.used, false, sizeof(driver.used));
	expect_taken(b, write_far(b, 0, 0, 64));
	copy_all(b);
	expect_ack(b, R(0), 1);
	close_far(b);
}

Test(copy, message_into_a_receive)
{
	struct bed *b = open_far(KARST_QPT_RC);
	const struct karst_sge sge[] = {
		FAR_SGE(0, 100), {.addr = VA + 1024, .len = 300, .lkey = b->key}};

	post_recv_sge(b, 1, sge, 2);
	expect_taken(b, send_pkt(b, RC_SEND_FIRST, R(0), .pay_len = MTU));
	expect_taken(b, send_pkt(b, RC_SEND_LAST, R(1), .pay_len = 64, .ackreq = true));
	expect_no_wc(b);
	copy_all(b);
	expect_mem(b, 0, 0, 100);
	expect_mem(b, 1024, 100, MTU - 100);
	cr_assert_eq(expect_recv(b, 1, SUCCESS)->byte_len, MTU + 64);
	expect_ack(b, R(1), 1);
	close_far(b);
}

/* It has no bytes to place, but its completion says that the WRITEs before it have arrived
 * (R14). */
Test(copy, immediate_of_no_bytes_waits)
{
	struct bed *b = open_far(KARST_QPT_RC);

	post_recv(b, 1, 1024, 8);
	expect_taken(b, write_far(b, 0, 0, 64));
	expect_taken(b,
		send_pkt(b, RC_WRITE_ONLY_IMM, R(1), .va = FAR, .rkey = far_key, .dma_len = 0,
			.imm = 7, .ackreq = true));
	expect_no_wc(b);
	copy_all(b);
	expect_mem(b, 0, 0, 64);
	cr_assert_eq(expect_recv(b, 1, SUCCESS)->byte_len, 0);
	expect_ack(b, R(1), 2);
	close_far(b);
}

Test(copy, receive_that_cannot_be_filled)
{
	struct bed *b = open_far(KARST_QPT_RC);
	const struct karst_sge sge = FAR_SGE(0, 100);

	post_recv_sge(b, 1, &sge, 1);
	expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 64, .ackreq = true));
	copy_once(b, 0);
	expect_recv(b, 1, LOC_PROT_ERR);
	expect_nak(b, R(0), REM_OP, 0);
	expect_event(b, QP_REQ_ERR);
	expect_state(b, ERR);
	close_far(b);
}

Test(copy, atomics)
{
	struct bed *b = open_far(KARST_QPT_RC);
	uint64_t value = 41, now;

	memcpy(b->buf, &value, 8);
	expect_taken(b,
		send_pkt(b, RC_FETCH_ADD, R(0), .va = FAR, .rkey = far_key, .swap_add = 1,
			.ackreq = true));
	expect_none(b);
	copy_all(b);
	memcpy(&now, b->buf, 8);
	cr_assert_eq(now, 42);
	cr_assert_not_null(expect_pkt(b, RC_ATOMIC_ACK, R(0)));
	expect_taken(b,
		send_pkt(b, RC_FETCH_ADD, R(1), .va = FAR, .rkey = far_key, .swap_add = 1,
			.ackreq = true));
	copy_once(b, 0);
	expect_nak(b, R(1), REM_ACCESS, 1);
	expect_event(b, QP_ACCESS_ERR);
	close_far(b);
}

Test(copy, result_of_an_own_read)
{
	struct bed *b = open_far(KARST_QPT_RC);
	const struct karst_sge sge = FAR_SGE(0, 64);

	post(b, RDMA_READ, 1, .sge = &sge, .nsge = 1);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(0), .pay_len = 64));
	expect_no_wc(b);
	copy_all(b);
	expect_mem(b, 0, 0, 64);
	expect_wc(b, 1, SUCCESS);
	post(b, RDMA_READ, 2, .sge = &sge, .nsge = 1);
	expect_pkt(b, RC_READ_REQUEST, S(1));
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(1), .pay_len = 64));
	copy_once(b, 8);
	expect_wc(b, 2, LOC_PROT_ERR);
	expect_state(b, ERR);
	close_far(b);
}

Test(copy, uc)
{
	struct bed *b = open_far(KARST_QPT_UC);

	expect_taken(b,
		send_pkt(b, UC_WRITE_ONLY, R(0), .va = FAR, .rkey = far_key, .dma_len = 64,
			.pay_len = 64));
	copy_all(b);
	expect_mem(b, 0, 0, 64);
	expect_taken(b,
		send_pkt(b, UC_WRITE_ONLY, R(1), .va = FAR + 64, .rkey = far_key, .dma_len = 64,
			.pay_len = 64));
	copy_once(b, 0);
	cr_assert_eq(drops(b, UC_ACCESS), 1);
	expect_state(b, RTS);
	close_far(b);
}

Test(copy, ud)
{
	struct bed *b = open_far(KARST_QPT_UD);
	const struct karst_sge sge = FAR_SGE(0, 200);

	post_recv_sge(b, 1, &sge, 1);
	expect_taken(b,
		send_pkt(
			b, UD_SEND_ONLY, R(0), .pay_len = 64, .src_qpn = PEER_QPN, .qkey = 0x1234));
	expect_no_wc(b);
	copy_all(b);
	expect_mem(b, 40, 0, 64);
	cr_assert_eq(expect_recv(b, 1, SUCCESS)->byte_len, 104);
	close_far(b);
}

/* Datagrams are not sent again, so all wait for which there are receives and room in the driver. */
Test(copy, datagrams_wait)
{
	struct setup s = setup_of(KARST_QPT_UD);
	struct karst_sge sge;
	struct bed *b;
	uint32_t i;

	s.qp.max_recv_wr = s.cq_entries = 256;
	b = open_far_with(&s);
	sge = (struct karst_sge)FAR_SGE(0, 200);
	for (i = 0; i < 200; i++)
		post_recv_sge(b, i, &sge, 1);
	for (i = 0; i < 200; i++)
		expect_taken(b,
			send_pkt(b, UD_SEND_ONLY, R(i), .pay_len = 64, .src_qpn = PEER_QPN,
				.qkey = 0x1234));
	copy_all(b);
	for (i = 0; i < 200; i++)
		expect_recv(b, i, SUCCESS);
	cr_assert_eq(drops(b, COPY_FULL), 0);
	close_far(b);
}

/* --- frames --- */

Test(copy, message_from_copied_memory)
{
	struct bed *b = open_far(KARST_QPT_RC);
	const struct karst_sge sge[] = {FAR_SGE(0, 100), FAR_SGE(1000, 300)};
	const struct karst_pkt *p;

	post(b, RDMA_WRITE, 1, .sge = sge, .nsge = 2);
	post(b, SEND, 2, .sge = sge, .nsge = 1);
	expect_none(b);
	cr_assert_eq(copy_once(b, ALL), 1, "both requests at once");
	p = expect_pkt(b, RC_WRITE_FIRST, S(0));
	cr_assert_eq(memcmp(p->data + p->pay_off, b->buf, 100), 0);
	cr_assert_eq(memcmp(p->data + p->pay_off + 100, b->buf + 1000, MTU - 100), 0);
	p = expect_pkt(b, RC_WRITE_LAST, S(1));
	expect_data(b, p, 1000 + MTU - 100, 400 - MTU);
	p = expect_pkt(b, RC_SEND_ONLY, S(2));
	expect_data(b, p, 0, 100);
	expect_taken(b, send_pkt(b, RC_ACK, S(2)));
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	close_far(b);
}

Test(copy, message_that_cannot_be_fetched)
{
	struct bed *b = open_far(KARST_QPT_RC);
	const struct karst_sge sge = FAR_SGE(0, 3 * MTU);

	post(b, RDMA_WRITE, 1, .sge = &sge, .nsge = 1);
	turn(b);
	copy_once(b, 2 * MTU + 1);
	expect_pkt(b, RC_WRITE_FIRST, S(0));
	expect_pkt(b, RC_WRITE_MIDDLE, S(1));
	expect_wc(b, 1, LOC_PROT_ERR);
	expect_state(b, ERR);
	close_far(b);
}

Test(copy, answer_from_copied_memory)
{
	struct bed *b = open_far(KARST_QPT_RC);
	const struct karst_pkt *p;

	expect_taken(b,
		send_pkt(b, RC_READ_REQUEST, R(0), .va = FAR + 8, .rkey = far_key,
			.dma_len = 2 * MTU));
	expect_none(b);
	copy_all(b);
	p = expect_pkt(b, RC_READ_RESP_FIRST, R(0));
	expect_data(b, p, 8, MTU);
	p = expect_pkt(b, RC_READ_RESP_LAST, R(1));
	expect_data(b, p, 8 + MTU, MTU);
	expect_taken(
		b, send_pkt(b, RC_READ_REQUEST, R(2), .va = FAR, .rkey = far_key, .dma_len = 64));
	turn(b);
	copy_once(b, 0);
	expect_nak(b, R(2), REM_ACCESS, 2);
	expect_event(b, QP_ACCESS_ERR);
	close_far(b);
}

/* (R4, D11): a READ that was answered is duplicated late, and its source has gone since: no answer.
 * The first answer that cannot be given is an error (R13). */
Test(copy, source_went_away)
{
	struct bed *b = open_far(KARST_QPT_RC);
	uint32_t i;

	for (i = 0; i < 2; i++) {
		expect_taken(b,
			send_pkt(b, RC_READ_REQUEST, R(0), .va = FAR, .rkey = far_key,
				.dma_len = 300));
		turn(b);
		copy_once(b, i == 0 ? ALL : 0);
		if (i == 0) {
			expect_pkt(b, RC_READ_RESP_FIRST, R(0));
			expect_pkt(b, RC_READ_RESP_LAST, R(1));
		}
	}
	/* the rest, which is fetched ahead, cannot be fetched either */
	while (driver.ntodo > 0 || karst_qp_fetching(b->s->qp)) {
		copy_once(b, 0);
		turn(b);
	}
	expect_none(b);
	expect_no_event(b);
	expect_state(b, RTS);
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(2), .ackreq = true));
	expect_ack(b, R(2), 2);
	close_far(b);
}

/* --- queue pairs that do not wait for copies --- */

Test(copy, reset_while_parked)
{
	struct bed *b = open_far(KARST_QPT_RC);
	const struct karst_sge sge = FAR_SGE(0, 64);

	post(b, RDMA_WRITE, 1, .sge = &sge, .nsge = 1);
	turn(b);
	expect_taken(b, write_far(b, 0, 0, 64));
	expect_taken(b, write_far(b, 1, 64, 64));
	cr_assert_eq(driver.ntodo, 2);
	cr_assert_eq(bed_to_state(b, KARST_QPS_RESET), 0);
	cr_assert_eq(driver.kept, 0);
	expect_untouched(b, 0, 128);
	close_far(b);
}

Test(copy, destroyed_while_parked)
{
	struct bed *b = open_far(KARST_QPT_RC);

	expect_taken(b, write_far(b, 0, 0, 64));
	expect_taken(b, write_far(b, 1, 64, 64));
	close_far(b);
}

/* A receive that a copy may still write to is not flushed before the copy is complete. */
Test(copy, error_while_parked)
{
	struct bed *b = open_far(KARST_QPT_RC);
	const struct karst_sge sge = FAR_SGE(0, 100);

	post_recv_sge(b, 1, &sge, 1);
	expect_taken(b, send_pkt(b, RC_SEND_ONLY, R(0), .pay_len = 64, .ackreq = true));
	cr_assert_eq(bed_to_state(b, KARST_QPS_ERR), 0);
	turn(b);
	expect_no_wc(b);
	copy_all(b);
	expect_recv(b, 1, WR_FLUSH_ERR);
	cr_assert_eq(drops(b, QP_STATE), 1);
	close_far(b);
}

/* The peer is not silent, so the timeout does not count. */
Test(copy, no_timeout_while_parked)
{
	struct bed *b = open_far(KARST_QPT_RC);
	const struct karst_sge sge = FAR_SGE(0, 64);

	post(b, RDMA_READ, 1, .sge = &sge, .nsge = 1);
	expect_pkt(b, RC_READ_REQUEST, S(0));
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(0), .pay_len = 64));
	advance_time(b, 10000 * MS);
	advance_time(b, 10000 * MS);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 0);
	expect_none(b);
	copy_all(b);
	expect_wc(b, 1, SUCCESS);
	close_far(b);
}
