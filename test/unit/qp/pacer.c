/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* How fast queue pairs send (E6), and how CNPs change that (E2, E5). */
#include "harness.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "qp_priv.h"

static struct karst_congestion_config config;

static struct setup
reacting(enum karst_qp_type type)
{
	return setup_congested(type, KARST_CONGESTION_DCQCN, &config);
}

static enum karst_drop
send_cnp(struct bed *b)
{
	return send_pkt(b, CNP, 0, .becn = true);
}

/* of a queue pair that was created without room for it; otherwise NULL */
static void *pacer_mem;

static void
limit(struct bed *b, uint64_t bps, uint32_t burst)
{
	cr_assert_eq(bps % 1000, 0);
	karst_qp_rate_limit(b->core, b->s->qp, (uint32_t)(bps / 1000), burst, pacer_mem);
}

/* Bytes of the frames that the core has sent and the test has not yet consumed; they are
 * discarded. */
static uint64_t
take_sent(struct bed *b)
{
	uint64_t bytes = 0;

	for (; b->out_head != b->out_tail; b->out_head++)
		bytes += b->out[b->out_head % OUT_MAX].pkt.len;
	bed_forget(b);
	return bytes;
}

/* Sends for @ns at @bps, always with more to send and with a turn each @step_ns, or at irregular
 * times up to four times that.  @return bytes */
static uint64_t
send_for(struct bed *b, uint64_t ns, uint64_t step_ns, bool irregular, uint32_t len)
{
	uint64_t until = b->core->now_ns + ns, bytes = 0, seed = 1;

	while (b->core->now_ns < until) {
		uint64_t step = step_ns;

		while (karst_wq_free(&b->s->sq, 64) != 0)
			post(b, SEND, 1, .len = len, .quiet = true);
		if (irregular) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			step = 1 + (seed >> 33) % (4 * step_ns);
		}
		advance_time(b, karst_min_u64(step, until - b->core->now_ns));
		bytes += take_sent(b);
	}
	return bytes;
}

/* Checks how much a bed that always has more to send really sends, against its limit. */
static void
exact(uint64_t bps, uint64_t ns, uint64_t step_ns, bool irregular)
{
	struct setup s = setup_of(KARST_QPT_UC);
	uint64_t bytes, may;
	struct bed *b;

	s.attr.path_mtu = 5;
	s.qp.pacer = pacer_mem == NULL;
	b = bed_open(&s);
	limit(b, bps, 0);
	/* until it is in a steady state */
	send_for(b, ns / 10 + 1, step_ns, irregular, 4096);
	bytes = send_for(b, ns, step_ns, irregular, 4096);
	may = (uint64_t)((unsigned __int128)bps * ns / 8000000000ull);
	/* a frame more or less, and what is allowed in the time between two turns */
	cr_assert_leq(llabs((long long)(bytes - may)),
		(long long)(4200 + bps / 8 * (4 * step_ns + 3 * KARST_WHEEL_TICK_NS) / 1000000000),
		"%llu bit/s: %llu bytes instead of %llu", (unsigned long long)bps,
		(unsigned long long)bytes, (unsigned long long)may);
	bed_forget(b);
	bed_close(b);
}

/* (E6): exact at any rate, however irregular the lcore's turns are. */
Test(pacer, e6_exact)
{
	exact(1000000, 20000 * MS, 1 * MS, false); /* 1 Mb/s: a frame in 33 ms */
	exact(1000000, 20000 * MS, 1 * MS, true);
	exact(7777000, 2000 * MS, 50 * US, true);
	exact(1000000000, 30 * MS, 10 * US, true);
	exact(100000000000, 1 * MS, 4096, false); /* 100 Gb/s: 12 frames in a tick */
	exact(100000000000, 1 * MS, 4 * US, true);
	exact(40000000000, 2 * MS, 1000, false);
}

/* The same, for a queue pair whose pacer memory is given with its first limit. */
Test(pacer, e6_memory_comes_with_a_limit)
{
	struct setup s = setup_of(KARST_QPT_UC);
	struct karst_qp_rate rate;
	struct bed *b;

	s.qp.pacer = false;
	b = bed_open(&s);
	karst_qp_rate_limit(b->core, b->s->qp, 0, 0, NULL);
	karst_qp_rate(b->core, b->s->qp, &rate);
	cr_assert_eq(rate.rate, 0);
	bed_close(b);
	pacer_mem = aligned_alloc(64, (karst_qp_pacer_bytes() + 63) / 64 * 64);
	memset(pacer_mem, 0xdd, karst_qp_pacer_bytes());
	exact(1000000000, 30 * MS, 10 * US, true);
	free(pacer_mem);
	pacer_mem = NULL;
}

/* With congestion control each queue pair must have room for it. */
Test(pacer, e2_none_without_room)
{
	static char mem[8192] __attribute__((aligned(64)));
	struct setup s = reacting(KARST_QPT_RC);
	struct karst_core_qp *qp;
	struct bed *b = bed_open(&s);

	s.qp.pacer = false;
	s.qp.max_send_wr = s.qp.max_recv_wr = 1;
	s.qp.send_cq = b->scq;
	s.qp.recv_cq = b->rcq;
	s.qp.sq_shared = b->s->sq_mem;
	s.qp.rq_shared = b->s->rq_mem;
	cr_assert_leq(karst_qp_bytes(&s.qp), sizeof(mem));
	karst_qp_prepare(mem, &s.qp);
	cr_assert_eq(karst_qp_create(b->core, mem, &s.qp, &qp), -EINVAL);
	bed_close(b);
}

/* (E6): an idle queue pair may not catch up, except for a burst that its program has asked for. */
Test(pacer, e6_idle_saves_little)
{
	struct setup s = setup_of(KARST_QPT_UC);
	struct bed *b;
	uint32_t burst;

	s.attr.path_mtu = 5;
	for (burst = 0; burst <= 20000; burst += 20000) {
		uint64_t most = burst != 0 ? burst : 1000000000ull * 4096 / 8000000000ull;
		uint64_t bytes;
		uint32_t i;

		b = bed_open(&s);
		limit(b, 1000000000, burst);
		advance_time(b, 1000 * MS);
		for (i = 0; i < 64; i++)
			post(b, SEND, 1, .len = 4096, .quiet = true);
		turn(b);
		bytes = take_sent(b);
		cr_assert(bytes > most && bytes <= most + 4200, "%llu bytes at once",
			(unsigned long long)bytes);
		bed_forget(b);
		bed_close(b);
	}
}

/* (E6): acknowledgements and CNPs are not delayed by the pacer, and are not charged. */
Test(pacer, e6_acknowledgements_are_free)
{
	struct setup s = reacting(KARST_QPT_RC);
	struct bed *b = bed_open(&s);
	uint32_t i;

	limit(b, 1000000, 0);
	post(b, SEND, 1, .len = 256);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	post(b, SEND, 2, .len = 256);
	expect_none(b);
	for (i = 0; i < 20; i++) {
		expect_taken(b, send_write(b, R(i), 0, 16));
		expect_ack(b, R(i), i + 1);
	}
	expect_drop(b, SEQUENCE, send_write(b, R(30), 0, 16));
	expect_nak(b, R(20), PSN_SEQ, 20);
	/* 256 bytes and 58 of headers and ICRC are 2512 bits */
	advance_time(b, 2512 * US - 1);
	expect_none(b);
	advance_time(b, 3 * KARST_WHEEL_TICK_NS);
	expect_pkt(b, RC_SEND_ONLY, S(1));
	ack(b, S(1), 2);
	expect_wc(b, 1, SUCCESS);
	expect_wc(b, 2, SUCCESS);
	bed_close(b);
}

/* (E6): the data that a responder sends is charged to the queue pair as well. */
Test(pacer, e6_read_responses)
{
	struct bed *b = bed_rc();
	uint32_t i;

	limit(b, 1000000, 0);
	expect_taken(b,
		send_pkt(b, RC_READ_REQUEST, R(0), .va = VA, .rkey = b->key, .dma_len = 4 * MTU));
	expect_pkt(b, RC_READ_RESP_FIRST, R(0));
	for (i = 1; i < 4; i++) {
		expect_none(b);
		advance_time(b, 1 * MS);
		expect_none(b);
		advance_time(b, 2 * MS);
		expect_at(b, __FILE__, __LINE__,
			i < 3 ? KARST_RC_READ_RESP_MIDDLE : KARST_RC_READ_RESP_LAST, R(i));
	}
	bed_close(b);
}

/* (E6, Q6): retransmissions are paced, and use no retry while they wait. */
Test(pacer, e6_retransmissions)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b;
	uint32_t i;

	s.attr.timeout = 14; /* 67 ms */
	b = bed_open(&s);
	post(b, SEND, 1, .len = 4 * MTU);
	for (i = 0; i < 4; i++)
		cr_assert_not_null(expect_at(b, __FILE__, __LINE__,
			i == 0          ? KARST_RC_SEND_FIRST
				: i < 3 ? KARST_RC_SEND_MIDDLE
					: KARST_RC_SEND_LAST,
			S(i)));
	limit(b, 10000, 0); /* a packet in a quarter of a second */
	expect_taken(b, send_nak(b, S(0), KARST_NAK_PSN_SEQ));
	expect_pkt(b, RC_SEND_FIRST, S(0));
	ack(b, S(0), 0);
	for (i = 1; i < 4; i++) {
		expect_none(b);
		/* (Q2) a pause follows, so it asks for an acknowledgement */
		advance_time(b, 260 * MS);
		cr_assert(expect_at(b, __FILE__, __LINE__,
				  i < 3 ? KARST_RC_SEND_MIDDLE : KARST_RC_SEND_LAST, S(i))
				  ->flags &
			KARST_PKT_ACKREQ);
		ack(b, S(i), i / 3);
	}
	expect_wc(b, 1, SUCCESS);
	cr_assert_eq(count(b, LOCAL_ACK_TIMEOUT), 0);
	bed_close(b);
}

/* (E6): requests that wait are flushed at once when the queue pair ends, and nothing is left
 * behind. */
Test(pacer, e6_end)
{
	struct bed *b = bed_rc();
	unsigned int how;

	for (how = 0; how < 3; how++) {
		limit(b, 1000000, 0);
		post(b, SEND, 1, .len = 16);
		expect_pkt(b, RC_SEND_ONLY, S(0));
		post(b, SEND, 2, .len = 16);
		expect_none(b);
		cr_assert(b->s->qp->req.paced);
		if (how == 0) {
			cr_assert_eq(bed_to_state(b, KARST_QPS_ERR), 0);
			turn(b);
			expect_wc(b, 1, WR_FLUSH_ERR);
			expect_wc(b, 2, WR_FLUSH_ERR);
		}
		if (how == 2)
			break; /* bed_close() checks for timers */
		cr_assert_eq(bed_to_state(b, KARST_QPS_RESET), 0);
		cr_assert_not(b->s->qp->req.paced, "a new life");
		{
			struct setup s = setup_of(KARST_QPT_RC);

			karst_wq_attach(&b->s->sq, b->s->sq_mem, 64, karst_wq_stride(true, 4, 128));
			karst_wq_attach(&b->s->rq, b->s->rq_mem, 64, karst_wq_stride(false, 4, 0));
			bed_bring_up(b, &s, KARST_QPS_RTS);
		}
	}
	bed_forget(b);
	bed_close(b);
}

/* (E6): a limit that is lifted or raised takes effect for requests that wait because of the old
 * one. */
Test(pacer, e6_change)
{
	struct setup s = setup_of(KARST_QPT_UC);
	struct bed *b = bed_open(&s);
	uint32_t i;

	limit(b, 1000, 0);
	for (i = 0; i < 20; i++)
		post(b, SEND, 1, .len = 256, .quiet = true);
	turn(b);
	cr_assert_leq(take_sent(b), 400);
	limit(b, 1000000000, 0);
	advance_time(b, 20 * US);
	cr_assert_gt(take_sent(b), 400);
	limit(b, 0, 0);
	turn(b);
	cr_assert_not(b->s->qp->req.paced);
	cr_assert_geq(take_sent(b), 256);
	bed_forget(b);
	bed_close(b);
}

/* (E6): what was sent under a limit that has ended is not paid for under the next one. */
Test(pacer, e6_debt_ends)
{
	struct setup s = setup_of(KARST_QPT_UC);
	struct bed *b = bed_open(&s);
	uint32_t i;

	for (i = 0; i < 2; i++) {
		limit(b, 1000, 0); /* a packet in more than two seconds */
		post(b, SEND, 2 * i, .len = MTU, .quiet = true);
		expect_pkt(b, UC_SEND_ONLY, S(2 * i));
		post(b, SEND, 2 * i + 1, .len = MTU, .quiet = true);
		expect_none(b);
		limit(b, 0, 0);
		expect_pkt(b, UC_SEND_ONLY, S(2 * i + 1));
		cr_assert_not(b->s->qp->req.paced);
	}
	bed_close(b);
}

/* (E2, E5): a CNP halves the rate of its queue pair, and of no other. */
Test(pacer, e2_cnp)
{
	struct setup s = reacting(KARST_QPT_RC);
	struct bed *b = bed_open(&s);
	const struct karst_core_qp *first = b->s->qp;

	expect_drop(b, CNP, send_cnp(b));
	cr_assert(first->req.paced);
	cr_assert_eq(first->pacer->rate, 50048828125);
	cr_assert_eq(count(b, RP_CNP_HANDLED), 1);
	bed_add(b, &s);
	cr_assert_not(b->s->qp->req.paced);
	/* recovered: the pacer does not limit any more */
	b->s = &b->side[0];
	b->core->now_ns += 1000 * MS;
	post(b, SEND, 1, .len = 16);
	expect_pkt(b, RC_SEND_ONLY, S(0));
	cr_assert_not(first->req.paced);
	ack(b, S(0), 1);
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* (E2): the highest rate is the link rate of its port, unless another is configured. */
Test(pacer, e2_line)
{
	struct setup s = reacting(KARST_QPT_RC);
	struct karst_qp_rate rate;
	struct bed *b = bed_open(&s);

	b->core->line_mbps[s.attr.path.port] = 25000;
	b->core->line_mbps[s.attr.path.port + 1] = 400000;
	expect_drop(b, CNP, send_cnp(b));
	karst_qp_rate(b->core, b->s->qp, &rate);
	cr_assert_eq(rate.cc_target, 25000000000);
	cr_assert_leq(rate.cc_rate, 12600000000);
	bed_close(b);
	s = reacting(KARST_QPT_RC);
	config.rp.rpg_max_rate = 10000;
	b = bed_open(&s);
	b->core->line_mbps[s.attr.path.port] = 25000;
	expect_drop(b, CNP, send_cnp(b));
	karst_qp_rate(b->core, b->s->qp, &rate);
	cr_assert_eq(rate.cc_target, 10000000000);
	bed_close(b);
}

/* (E5): none of these reduces a rate. */
Test(pacer, e5_no_reaction)
{
	struct setup s = reacting(KARST_QPT_RC);
	struct karst_ib_hdrs ib = {.opcode = KARST_CNP, .becn = true};
	struct karst_frame f;
	struct bed *b = bed_open(&s);

	ib.becn = false;
	expect_drop(b, CNP, bed_rx(b, &ib));
	ib.becn = true;
	ib.pkey = 0x1234;
	expect_drop(b, PKEY, bed_rx(b, &ib));
	ib.pkey = 0;
	f = bed_frame(b, &ib);
	f.saddr[3] ^= 1;
	expect_drop(b, ADDRESS, bed_rx_frame(b, &f));
	cr_assert_not(b->s->qp->req.paced);
	cr_assert_eq(count(b, RP_CNP_IGNORED), 3);
	cr_assert_eq(count(b, RP_CNP_HANDLED), 0);
	bed_close(b);
	/* anyone can send datagrams: the sender of a CNP to such a queue pair is not known */
	s = reacting(KARST_QPT_UD);
	b = bed_open(&s);
	expect_drop(b, CNP, send_cnp(b));
	cr_assert_not(b->s->qp->req.paced);
	cr_assert_eq(count(b, RP_CNP_IGNORED), 1);
	bed_close(b);
	s = reacting(KARST_QPT_RC);
	config.mode = KARST_CONGESTION_NOTIFY;
	b = bed_open(&s);
	expect_drop(b, CNP, send_cnp(b));
	cr_assert_not(b->s->qp->req.paced);
	bed_close(b);
}

/* (E2): a queue pair that waits at the lowest rate is woken by its recovery, and not only by its
 * tokens. */
Test(pacer, e2_recovery_wakes)
{
	struct setup s = reacting(KARST_QPT_UC);
	uint64_t begin, bytes = 0;
	struct bed *b;
	uint32_t i;

	s.attr.path_mtu = 5;
	b = bed_open(&s);
	for (i = 0; i < 100; i++) {
		expect_drop(b, CNP, send_cnp(b));
		b->core->now_ns += 4 * US;
	}
	cr_assert_eq(b->s->qp->pacer->rate, 1000000);
	for (i = 0; i < 64; i++)
		post(b, SEND, 1, .len = 4096, .quiet = true);
	turn(b);
	bytes += take_sent(b);
	cr_assert_leq(bytes, 4200);
	begin = b->core->now_ns;
	/* from one timer to the next; at the old rate the second frame would be sent after 33 ms */
	while (bytes <= 4200) {
		uint64_t next = karst_core_next_ns(b->core);

		cr_assert_neq(next, UINT64_MAX);
		b->core->now_ns = next;
		turn(b);
		bytes += take_sent(b);
	}
	cr_assert_lt(b->core->now_ns - begin, 10 * MS);
	bed_forget(b);
	bed_close(b);
}

/* (E2): the paper's setup between a core and a peer that marks half of the packets: rates fall and
 * recover. */
Test(pacer, e2_paced_rate_is_what_it_sends)
{
	struct setup s = reacting(KARST_QPT_UC);
	uint64_t bytes, may = 0;
	struct bed *b;
	uint32_t i;

	s.attr.path_mtu = 5;
	config.rp.rpg_max_rate = 10000;
	config.rp.rpg_byte_reset = 0;
	b = bed_open(&s);
	expect_drop(b, CNP, send_cnp(b));
	send_for(b, 50 * US, 4096, false, 4096);
	bytes = 0;
	for (i = 0; i < 100; i++) {
		may += b->s->qp->pacer->rate * 10 * US / 8000000000ull;
		bytes += send_for(b, 10 * US, 2500, false, 4096);
	}
	cr_assert_leq(llabs((long long)(bytes - may)), 4200 + (long long)may / 50,
		"%llu bytes instead of %llu", (unsigned long long)bytes, (unsigned long long)may);
	bed_forget(b);
	bed_close(b);
}
