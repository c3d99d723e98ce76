/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Data, the end of data, and violations by a peer (S4, S12 to S17, S19). */
#include <criterion/criterion.h>

#include <errno.h>

#include "bed.h"

static struct bed *
connected(void)
{
	struct bed *b = bed_new(NULL);

	cr_assert(bed_connect(b));
	bed_take_events(b, 0);
	bed_take_events(b, 1);
	return b;
}

static struct karst_smc_cdc
last_cdc(struct bed *b, unsigned int sys)
{
	struct bed_msg *m = bed_last(b, sys);
	struct karst_smc_cdc cdc = {0};

	cr_assert_not_null(m);
	cr_assert_eq(karst_smc_cdc_parse(m->msg, m->len, &cdc), 0);
	return cdc;
}

Test(smc_data, s4_bytes_arrive)
{
	struct bed *b = connected();

	cr_assert_eq(bed_write(b, 0, 1000, false), 0);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 1).recv_pos, 1000);
	cr_assert_eq(b->s[1].rmb[bed_info(b, 1).rmb][999], (uint8_t)999);
	cr_assert(bed_take_events(b, 1) & KARST_SMC_EV_READABLE);
	cr_assert_eq(bed_info(b, 0).free_pos, 1000);
	bed_free(b);
}

/* Two WRITEs, and one message for both. */
Test(smc_data, s12_split_at_the_end)
{
	struct bed *b = connected();
	unsigned int writes = 0, i;

	bed_write(b, 0, 16000, false);
	bed_pump(b);
	karst_smc_conn_consumed(b->s[1].smc, b->s[1].conn, 16000);
	bed_pump(b);
	bed_write(b, 0, 1000, false);
	for (i = b->s[0].head; i != b->s[0].tail; i++)
		writes += b->s[0].out[i % BED_QUEUE].kind == 'w';
	cr_assert_eq(writes, 2);
	cr_assert_eq(last_cdc(b, 0).prod.wrap, 1);
	cr_assert_eq(last_cdc(b, 0).prod.count, 16000 + 1000 - 16384);
	bed_pump(b);
	cr_assert_eq(b->s[1].rmb[bed_info(b, 1).rmb][0], 0);
	bed_free(b);
}

/* A writer announces that it is blocked when the element is full, and continues when the reader has
 * reported progress. */
Test(smc_data, s14_blocked_writer)
{
	struct bed *b = connected();

	bed_write(b, 0, 16384, false);
	cr_assert(last_cdc(b, 0).prod_flags & KARST_SMC_CDC_BLOCKED);
	bed_pump(b);
	cr_assert_eq(bed_write(b, 0, 10, false), 0);
	cr_assert_eq(bed_info(b, 0).written_pos, 16384);
	cr_assert(bed_info(b, 1).peer_blocked);
	karst_smc_conn_consumed(b->s[1].smc, b->s[1].conn, 1600); /* less than a tenth */
	bed_pump(b);
	cr_assert_eq(bed_info(b, 0).written_pos, 16384);
	karst_smc_conn_consumed(b->s[1].smc, b->s[1].conn, 100);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 0).written_pos, 16394);
	bed_free(b);
}

Test(smc_data, s16_urgent)
{
	struct bed *b = connected();
	struct karst_smc_cdc m;

	bed_write(b, 0, 5, true);
	m = last_cdc(b, 0);
	cr_assert_eq(m.prod_flags, KARST_SMC_CDC_URGENT | KARST_SMC_CDC_URGENT_PENDING);
	bed_pump(b);
	cr_assert_not(bed_info(b, 1).urgent_coming, "it is there");
	cr_assert(bed_take_events(b, 1) & KARST_SMC_EV_URGENT);
	cr_assert_eq(bed_info(b, 1).urgent_pos, 4);
	karst_smc_conn_consumed(b->s[1].smc, b->s[1].conn, 5);
	bed_write(b, 0, 16384, false);
	bed_pump(b);
	bed_write(b, 0, 3, true);
	cr_assert_eq(bed_info(b, 0).written_pos, 16384 + 5, "no room");
	karst_smc_conn_consumed(b->s[1].smc, b->s[1].conn, 16384);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 1).urgent_pos, 16384 + 5 + 2);
	bed_free(b);
}

/* It is announced; the peer does not answer, as an answer would tell nothing new. */
Test(smc_data, s16_pending)
{
	struct bed *b = connected();

	bed_write(b, 0, 10000, false);
	bed_pump(b);
	bed_write(b, 0, 7000, true);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 1).recv_pos, 16384);
	cr_assert(bed_info(b, 1).urgent_coming);
	cr_assert_not(bed_info(b, 1).urgent);
	cr_assert_eq(b->s[1].smc->counters[KARST_SMC_CTR_CDC_TX], 0);
	karst_smc_conn_consumed(b->s[1].smc, b->s[1].conn, 16384);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 1).urgent_pos, 16999);
	cr_assert_not(bed_info(b, 1).urgent_coming, "it has come");
	bed_free(b);
}

/* As Linux: its receiver does not count an urgent byte, and handles one only if nothing is behind
 * it. */
Test(smc_data, s16_nothing_behind_an_urgent_byte_until_it_is_consumed)
{
	struct bed *b = connected();

	bed_write(b, 0, 5, true);
	bed_write(b, 0, 10, false);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 0).written_pos, 5);
	karst_smc_conn_consumed(b->s[1].smc, b->s[1].conn, 4);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 0).written_pos, 5);
	karst_smc_conn_shutdown(b->s[0].smc, b->s[0].conn);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_ACTIVE, "the end is behind what waits");
	karst_smc_conn_consumed(b->s[1].smc, b->s[1].conn, 1);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 1).recv_pos, 15);
	cr_assert_eq(bed_info(b, 1).urgent_pos, 4);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_APP_CLOSE_WAIT1);
	bed_free(b);
}

/* The mark is at the producer's cursor, where there must be bytes. */
Test(smc_data, s16_urgent_marks_that_lie)
{
	struct bed *b = connected();
	struct karst_smc_cdc m;

	bed_write(b, 0, 5, false);
	bed_pump(b);
	m = bed_honest(b, 0);
	m.prod_flags |= KARST_SMC_CDC_URGENT;
	bed_cdc(b, 0, &m);
	cr_assert_not(bed_info(b, 1).urgent, "no byte has come with it");
	m.seq++;
	m.prod.count -= 3;
	bed_cdc(b, 0, &m);
	cr_assert_not(bed_info(b, 1).urgent, "backwards");
	cr_assert_eq(bed_info(b, 1).recv_pos, 5);
	m.seq++;
	m.prod.count = 7;
	bed_cdc(b, 0, &m);
	cr_assert_eq(bed_info(b, 1).urgent_pos, 6);
	m.seq++;
	bed_cdc(b, 0, &m);
	cr_assert_eq(bed_info(b, 1).urgent_pos, 6, "twice");
	m.seq++;
	m.prod.count = 9;
	bed_cdc(b, 0, &m);
	cr_assert_eq(bed_info(b, 1).urgent_pos, 8, "the later one");
	m.seq++;
	m.prod.count = bed_info(b, 1).rmb_bytes;
	bed_cdc(b, 0, &m);
	cr_assert_eq(bed_info(b, 1).urgent_pos, 8);
	cr_assert_eq(bed_info(b, 1).error, EPROTO, "beyond the buffer");
	bed_free(b);
}

Test(smc_data, s15_half_close_and_close)
{
	struct bed *b = connected();

	karst_smc_conn_shutdown(b->s[0].smc, b->s[0].conn);
	cr_assert_eq(bed_write(b, 0, 1, false), -EPIPE);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 0).state, KARST_SMC_PEER_CLOSE_WAIT1);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_APP_CLOSE_WAIT1);
	cr_assert(bed_take_events(b, 1) & KARST_SMC_EV_PEER_DONE);
	cr_assert_eq(bed_write(b, 1, 7, false), 0);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 0).recv_pos, 7);
	karst_smc_conn_consumed(b->s[0].smc, b->s[0].conn, 7);
	karst_smc_conn_close(b->s[1].smc, b->s[1].conn);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_PEER_FIN_CLOSE_WAIT);
	cr_assert_eq(bed_info(b, 0).state, KARST_SMC_APP_FIN_CLOSE_WAIT);
	karst_smc_conn_close(b->s[0].smc, b->s[0].conn);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 0).state, KARST_SMC_CLOSED);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_CLOSED);
	cr_assert(bed_take_events(b, 0) & KARST_SMC_EV_CLOSED);
	cr_assert_eq(karst_smc_conn_release(b->s[0].smc, b->s[0].conn), 0);
	cr_assert_eq(karst_smc_conn_release(b->s[1].smc, b->s[1].conn), 0);
	bed_pump(b);
	cr_assert_eq(b->s[0].unkeys, 1);
	bed_free(b);
}

/* Data that was written before is sent before the end is announced. */
Test(smc_data, s15_close_waits_for_the_data)
{
	struct bed *b = connected();

	bed_write(b, 0, 16384, false);
	bed_pump(b);
	bed_write(b, 0, 100, false);
	karst_smc_conn_close(b->s[0].smc, b->s[0].conn);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_ACTIVE);
	karst_smc_conn_consumed(b->s[1].smc, b->s[1].conn, 16384);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 1).recv_pos, 16484);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_APP_CLOSE_WAIT1);
	bed_free(b);
}

/* close_wait_ns, a minute, counts from the last sign that the peer reads, as with TCP. */
Test(smc_data, s15_close_waits_while_the_peer_reads)
{
	struct bed *b = connected();
	unsigned int i;

	bed_write(b, 0, 16384, false);
	bed_pump(b);
	bed_write(b, 0, 16384, false);
	karst_smc_conn_close(b->s[0].smc, b->s[0].conn);
	bed_pump(b);
	for (i = 0; i < 8; i++) {
		bed_wait(b, UINT64_C(10000000000));
		karst_smc_conn_consumed(b->s[1].smc, b->s[1].conn, 2048);
		bed_pump(b);
	}
	cr_assert_eq(bed_info(b, 0).error, 0);
	cr_assert_eq(bed_info(b, 1).recv_pos, 16384 + 8 * 2048, "all has arrived");
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_APP_CLOSE_WAIT1);
	for (; i < 16; i++) { /* all is written, and still it reads */
		bed_wait(b, UINT64_C(10000000000));
		karst_smc_conn_consumed(b->s[1].smc, b->s[1].conn, 2048);
		bed_pump(b);
	}
	cr_assert_eq(bed_info(b, 0).error, 0);
	karst_smc_conn_close(b->s[1].smc, b->s[1].conn);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 0).state, KARST_SMC_CLOSED);
	bed_free(b);
}

/* The same when the peer reads on in what was written before: it has enough room, so it would not
 * tell that it reads unless it is asked (S14). */
Test(smc_data, s15_close_waits_while_the_peer_reads_the_rest)
{
	struct bed *b = connected();
	unsigned int i;

	bed_write(b, 0, 8000, false);
	bed_pump(b);
	karst_smc_conn_close(b->s[0].smc, b->s[0].conn);
	bed_pump(b);
	for (i = 0; i < 8; i++) {
		bed_wait(b, UINT64_C(50000000000));
		karst_smc_conn_consumed(b->s[1].smc, b->s[1].conn, 1000);
		bed_pump(b);
	}
	cr_assert_eq(bed_info(b, 0).error, 0);
	bed_wait(b, UINT64_C(61000000000)); /* all is read, and it does not close */
	cr_assert_eq(bed_info(b, 0).error, ETIMEDOUT);
	bed_free(b);
}

/* It reads no more, with bytes that are not written. */
Test(smc_data, s15_close_of_a_peer_that_reads_no_more)
{
	struct bed *b = connected();

	bed_write(b, 0, 16384, false);
	bed_pump(b);
	bed_write(b, 0, 16384, false);
	karst_smc_conn_close(b->s[0].smc, b->s[0].conn);
	bed_pump(b);
	bed_wait(b, UINT64_C(50000000000));
	karst_smc_conn_consumed(b->s[1].smc, b->s[1].conn, 2048);
	bed_pump(b);
	bed_wait(b, UINT64_C(50000000000));
	cr_assert_eq(bed_info(b, 0).error, 0);
	bed_wait(b, UINT64_C(11000000000));
	cr_assert_eq(bed_info(b, 0).error, ETIMEDOUT);
	bed_free(b);
}

Test(smc_data, s15_unread_bytes_abort)
{
	struct bed *b = connected();

	bed_write(b, 0, 10, false);
	bed_pump(b);
	karst_smc_conn_close(b->s[1].smc, b->s[1].conn);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 0).state, KARST_SMC_PROCESS_ABORT);
	cr_assert_eq(bed_info(b, 0).error, ECONNRESET);
	cr_assert(bed_take_events(b, 0) & KARST_SMC_EV_RESET);
	bed_free(b);
}

/* The peer does not answer a program that has closed: its connection ends all the same. */
Test(smc_data, s15_silent_peer)
{
	struct bed *b = connected();

	karst_smc_conn_close(b->s[0].smc, b->s[0].conn);
	bed_pump(b);
	bed_wait(b, UINT64_C(61000000000));
	cr_assert_eq(bed_info(b, 0).state, KARST_SMC_CLOSED);
	cr_assert_eq(bed_info(b, 0).error, ETIMEDOUT);
	bed_free(b);
}

static void
injured(void (*injure)(struct karst_smc_cdc *m), bool ends)
{
	struct bed *b = connected();
	struct karst_smc_cdc m;

	bed_write(b, 0, 100, false);
	bed_pump(b);
	karst_smc_conn_consumed(b->s[1].smc, b->s[1].conn, 50);
	m = bed_honest(b, 0);
	injure(&m);
	bed_cdc(b, 0, &m);
	if (ends) {
		cr_assert_eq(bed_info(b, 1).error, EPROTO);
		cr_assert_eq(bed_info(b, 1).state, KARST_SMC_PEER_ABORT_WAIT);
		cr_assert(b->s[1].smc->counters[KARST_SMC_CTR_CDC_BAD] == 1);
	} else {
		cr_assert_eq(bed_info(b, 1).state, KARST_SMC_ACTIVE);
		cr_assert_eq(bed_info(b, 1).recv_pos, 100);
	}
	bed_free(b);
}

static void
past_the_end(struct karst_smc_cdc *m)
{
	m->prod.count = 16384;
}

static void
too_far(struct karst_smc_cdc *m)
{
	m->prod.wrap = 1;
	m->prod.count = 101;
}

static void
backwards(struct karst_smc_cdc *m)
{
	m->prod.count = 99;
}

static void
consumed_more(struct karst_smc_cdc *m)
{
	m->cons.count = 1;
}

static void
consumer_past_the_end(struct karst_smc_cdc *m)
{
	m->cons.count = 0x80000000;
}

static void
other_token(struct karst_smc_cdc *m)
{
	m->token = 77;
	m->conn_flags = KARST_SMC_CDC_ABORT;
}

static void
nothing(struct karst_smc_cdc *m)
{
	(void)m;
}

Test(smc_data, s13_cursors_that_lie)
{
	injured(nothing, false);
	injured(past_the_end, true);
	injured(too_far, true);
	injured(backwards, false);
	injured(consumed_more, true);
	injured(consumer_past_the_end, true);
	injured(other_token, false);
}

/* A message that is older than the last one, and a duplicate. */
Test(smc_data, s13_old_messages)
{
	struct bed *b = connected();
	struct karst_smc_cdc m = bed_honest(b, 0);

	m.prod.count = 10;
	bed_cdc(b, 0, &m);
	bed_cdc(b, 0, &m);
	cr_assert_eq(bed_info(b, 1).recv_pos, 10);
	m.seq--;
	m.prod.count = 20;
	bed_cdc(b, 0, &m);
	cr_assert_eq(bed_info(b, 1).recv_pos, 10);
	cr_assert_eq(b->s[1].smc->counters[KARST_SMC_CTR_CDC_OLD], 1);
	bed_free(b);
}

/* A link fails with data under way: the data is written again on the other link, after
 * validation. */
Test(smc_data, s17_failover)
{
	struct bed *b = bed_two_ports();
	struct karst_smc_cdc m;

	cr_assert(bed_connect(b));
	bed_write(b, 0, 100, false);
	bed_pump(b);
	bed_write(b, 0, 50, false); /* lost */
	b->s[0].head = b->s[0].tail;
	karst_smc_link_down(b->s[0].smc, bed_info(b, 0).link);
	cr_assert_eq(b->s[0].out[b->s[0].head % BED_QUEUE].kind, 's');
	cr_assert_eq(karst_smc_cdc_parse(b->s[0].out[b->s[0].head % BED_QUEUE].msg, 44, &m), 0);
	cr_assert_eq(m.prod_flags, KARST_SMC_CDC_VALIDATE);
	cr_assert_eq(m.seq, 1, "of the last message that was complete");
	bed_pump(b);
	cr_assert_eq(bed_info(b, 1).recv_pos, 150);
	cr_assert_eq(b->s[1].rmb[bed_info(b, 1).rmb][149], 149);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_ACTIVE);
	bed_free(b);
}

/* Writes of the peer on a link that it left may arrive late, when the buffer holds other bytes. */
Test(smc_data, s17_left_link_is_closed)
{
	struct karst_smc_group_info group;
	struct bed *b = bed_two_ports();

	cr_assert(bed_connect(b));
	bed_write(b, 0, 100, false);
	bed_pump(b);
	karst_smc_link_down(b->s[0].smc, bed_info(b, 0).link);
	cr_assert(bed_step(b, 0)); /* the validation, before the system is told that the link has
				    * failed */
	cr_assert_eq(karst_smc_group_info(b->s[1].smc, bed_info(b, 1).group, &group), 0);
	cr_assert_eq(group.nlinks, 1);
	bed_pump(b);
	bed_write(b, 1, 100, false);
	bed_pump(b);
	cr_assert_eq(bed_info(b, 0).recv_pos, 100);
	bed_free(b);
}

/* The peer takes something for delivered which was not. */
Test(smc_data, s17_out_of_sync)
{
	struct bed *b = connected();
	struct karst_smc_cdc m = bed_honest(b, 0);

	bed_cdc(b, 0, &m);
	m.seq++;
	m.prod_flags = KARST_SMC_CDC_VALIDATE;
	bed_cdc(b, 0, &m);
	cr_assert_eq(bed_info(b, 1).state, KARST_SMC_PEER_ABORT_WAIT);
	bed_free(b);
}
