/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Automatic path migration (G1 to G5): which calls are allowed when, the MigReq bit, and what makes
 * a queue pair migrate to the alternate path.
 */
#include "migrate_bed.h"

/* --- the program (G2) --- */

Test(migrate, g2_load_and_query)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b = bed_open(&s);
	struct karst_core_qp_attr a;

	karst_qp_query(b->s->qp, &a);
	cr_assert_eq(a.path_mig_state, KARST_MIG_MIGRATED);
	cr_assert_eq(a.alt_port_num, 0);
	cr_assert_null(karst_qp_alternate(b->s->qp));
	cr_assert_eq(migrate_load(b, &alt_path, 0, KARST_QP_ALT_PATH), 0);
	karst_qp_query(b->s->qp, &a);
	cr_assert_eq(a.path_mig_state, KARST_MIG_MIGRATED);
	cr_assert_eq(a.alt_port_num, 2);
	cr_assert_eq(a.alt_timeout, ALT_TIMEOUT);
	cr_assert_eq(memcmp(a.alt_path.dst_ip, alt_path.dst_ip, 16), 0);
	cr_assert_eq(karst_qp_alternate(b->s->qp)->port, 1);
	/* loaded, and not armed: as if there were no path */
	expect_drop(b, ADDRESS, (peer_migrates(b), send_write(b, R(0), 0, 8)));
	b->path = s.attr.path;
	expect_taken(b, send_write(b, R(0), 0, 8));
	expect_via(b, expect_pkt(b, RC_ACK, R(0)), &b->path, true);
	expect_path(b, &b->path);
	/* RESET discards it */
	cr_assert_eq(bed_to_state(b, KARST_QPS_RESET), 0);
	cr_assert_null(karst_qp_alternate(b->s->qp));
	bed_bring_up(b, &s, KARST_QPS_RTS);
	cr_assert_eq(migrate_set(b, KARST_MIG_REARM), -EINVAL);
	bed_close(b);
}

Test(migrate, g2_values)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b = bed_open(&s);
	struct karst_core_qp_attr good = {.alt_path = alt_path,
		.alt_port_num = 2,
		.alt_timeout = 31,
		.alternate_mem = migrate_memory()};
	struct karst_core_qp_attr a[6];
	unsigned int i;

	for (i = 0; i < KARST_DIM(a); i++)
		a[i] = good;
	a[0].alt_port_num = 0;
	a[1].alt_timeout = 32;
	a[2].alt_pkey_index = 1;
	memset(a[3].alt_path.dst_ip, 0, 16);
	a[4].alternate_mem = NULL;
	a[5].alt_path.udp_sport = 7;
	for (i = 0; i < KARST_DIM(a); i++)
		cr_assert_eq(bed_modify(b, &a[i], KARST_QP_ALT_PATH), -EINVAL, "%u", i);
	cr_assert_null(karst_qp_alternate(b->s->qp));
	cr_assert_eq(bed_modify(b, &good, KARST_QP_ALT_PATH), 0);
	bed_close(b);
}

/* Each state with each requested migration state, alone and with a path. */
Test(migrate, g2_states)
{
	static const struct {
		enum karst_mig_state now, wish;
		bool loads;
		int want;
	} table[] = {
		{KARST_MIG_MIGRATED, KARST_MIG_MIGRATED, false, 0},
		{KARST_MIG_MIGRATED, KARST_MIG_MIGRATED, true, 0},
		{KARST_MIG_MIGRATED, KARST_MIG_REARM, false, -EINVAL}, /* there is no path */
		{KARST_MIG_MIGRATED, KARST_MIG_REARM, true, 0},
		{KARST_MIG_MIGRATED, KARST_MIG_ARMED, true, -EINVAL},
		{KARST_MIG_REARM, KARST_MIG_REARM, false, 0},
		{KARST_MIG_REARM, KARST_MIG_REARM, true, 0},
		{KARST_MIG_REARM, KARST_MIG_MIGRATED, false, -EINVAL},
		{KARST_MIG_REARM, KARST_MIG_MIGRATED, true, -EINVAL},
		{KARST_MIG_REARM, KARST_MIG_ARMED, false, -EINVAL},
		{KARST_MIG_ARMED, KARST_MIG_REARM, false, 0},
		{KARST_MIG_ARMED, KARST_MIG_REARM, true, 0},
		{KARST_MIG_ARMED, KARST_MIG_MIGRATED, true, -EINVAL},
		{KARST_MIG_ARMED, KARST_MIG_MIGRATED, false, 0},
		{KARST_MIG_ARMED, KARST_MIG_ARMED, false, -EINVAL},
		{KARST_MIG_ARMED, (enum karst_mig_state)3, false, -EINVAL},
	};
	struct setup s = setup_of(KARST_QPT_RC);
	unsigned int i;

	for (i = 0; i < KARST_DIM(table); i++) {
		struct bed *b =
			table[i].now == KARST_MIG_ARMED ? bed_armed(KARST_QPT_RC) : bed_open(&s);

		if (table[i].now == KARST_MIG_REARM)
			cr_assert_eq(migrate_rearm(b), 0);
		cr_assert_eq(
			migrate_load(b, &alt_path, table[i].wish,
				KARST_QP_PATH_MIG_STATE | (table[i].loads ? KARST_QP_ALT_PATH : 0)),
			table[i].want, "row %u", i);
		if (table[i].want != 0)
			expect_mig_at(b, (int)i, table[i].now);
		bed_forget(b);
		bed_close(b);
	}
}

/* A path to which the peer may have agreed is replaced only together with arming again. */
Test(migrate, g2_no_other_path_while_armed)
{
	struct bed *b = bed_armed(KARST_QPT_RC);

	cr_assert_eq(migrate_load(b, &alt_path, 0, KARST_QP_ALT_PATH), -EINVAL);
	expect_mig(b, ARMED);
	cr_assert_eq(migrate_rearm(b), 0);
	expect_mig(b, REARM);
	bed_close(b);
}

/* --- arming (G1, G3) --- */

/* A peer that sends MigReq set, like peers that do not support migration, is never ready. */
Test(migrate, g3_rearm_waits_for_the_peer)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b = bed_open(&s);

	post(b, RDMA_WRITE, 1, .len = 1);
	expect_via(b, expect_pkt(b, RC_WRITE_ONLY, S(0)), &b->path, true);
	cr_assert_eq(migrate_rearm(b), 0);
	expect_taken(b, send_pkt(b, RC_ACK, S(0), .aeth = 0x1f000001, .migreq = true));
	expect_wc(b, 1, SUCCESS);
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(0), .migreq = true, .ackreq = true));
	expect_via(b, expect_pkt(b, RC_ACK, R(0)), &b->path, false);
	expect_mig(b, REARM);
	/* a packet that is not from the peer tells nothing */
	b->path.dst_ip[15] ^= 0x40;
	expect_drop(b, ADDRESS, send_pkt(b, RC_WRITE_ONLY, R(1), .ackreq = true));
	b->path.dst_ip[15] ^= 0x40;
	expect_drop(b, PKEY, send_pkt(b, RC_WRITE_ONLY, R(1), .pkey = 0x7ffe));
	expect_mig(b, REARM);
	post(b, RDMA_WRITE, 2, .len = 1);
	expect_via(b, expect_pkt(b, RC_WRITE_ONLY, S(1)), &b->path, false);
	expect_taken(b, send_ack(b, S(1), 2));
	expect_wc(b, 2, SUCCESS);
	expect_mig(b, ARMED);
	bed_close(b);
}

/* (E3): a CNP never has the bit, which has no meaning there. */
Test(migrate, g3_cnp_does_not_arm)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b = bed_open(&s);

	cr_assert_eq(migrate_rearm(b), 0);
	send_pkt(b, CNP, 0, .becn = true);
	expect_mig(b, REARM);
	peer_migrates(b);
	send_pkt(b, CNP, 0, .becn = true, .migreq = true);
	expect_mig(b, REARM);
	bed_close(b);
}

/* --- migrating (G3, G4) --- */

/* The path fails; retries are exhausted, and start again on the other path. */
Test(migrate, g4_retries_exhausted)
{
	struct bed *b = bed_armed(KARST_QPT_RC);
	struct karst_path old = b->path;
	unsigned int i;

	post(b, RDMA_WRITE, 1, .len = 1, .quiet = true);
	post(b, RDMA_READ, 2, .len = 1);
	for (i = 0; i < 4; i++) {
		expect_via(b, expect_pkt(b, RC_WRITE_ONLY, S(0)), &old, false);
		expect_via(b, expect_pkt(b, RC_READ_REQUEST, S(1)), &old, false);
		expect_no_event(b);
		advance_time(b, 4 * RTO);
	}
	expect_event(b, PATH_MIG);
	expect_mig(b, MIGRATED);
	expect_path(b, &alt_path);
	cr_assert_null(karst_qp_alternate(b->s->qp));
	/* an acknowledgement tells the peer, too: the peer may have nothing to answer */
	expect_via(b, expect_pkt(b, RC_ACK, R(0)), &alt_path, true);
	expect_via(b, expect_pkt(b, RC_WRITE_ONLY, S(0)), &alt_path, true);
	expect_via(b, expect_pkt(b, RC_READ_REQUEST, S(1)), &alt_path, true);
	expect_no_wc(b);
	/* after the timeout of the new path, with all its retries */
	for (i = 0; i < 3; i++) {
		advance_time(b, ALT_RTO * 3 / 2);
		expect_via(b, expect_pkt(b, RC_WRITE_ONLY, S(0)), &alt_path, true);
		expect_pkt(b, RC_READ_REQUEST, S(1));
	}
	/* packets of the old path are dropped */
	expect_drop(b, ADDRESS, send_ack(b, S(0), 1));
	peer_migrates(b);
	expect_taken(b, send_pkt(b, RC_ACK, S(0), .aeth = 0x1f000001, .migreq = true));
	expect_taken(b, send_pkt(b, RC_READ_RESP_ONLY, S(1), .pay_len = 1, .migreq = true));
	expect_wc(b, 2, SUCCESS);
	expect_state(b, RTS);
	bed_close(b);
}

/* Both paths have failed: the queue pair fails. */
Test(migrate, g4_both_dead)
{
	struct bed *b = bed_armed(KARST_QPT_RC);
	unsigned int i;

	post(b, RDMA_WRITE, 1, .len = 1);
	for (i = 0; i < 10; i++)
		advance_time(b, 4 * RTO);
	expect_event(b, PATH_MIG);
	expect_wc(b, 1, RETRY_EXC_ERR);
	expect_state(b, ERR);
	bed_forget(b);
	bed_close(b);
}

/* The queue pair is parked because its port is full: after migration it is not parked any more. */
Test(migrate, g4_not_parked_any_more)
{
	struct bed *b = bed_armed(KARST_QPT_RC);
	struct karst_parked dead = LIST_HEAD_INITIALIZER(dead);
	unsigned int i;

	post(b, RDMA_WRITE, 1, .len = 1);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	b->core->now_ns += 4 * RTO;
	karst_core_expire(b->core, 8);
	cr_assert_eq(visit_picked(b, 1, &dead), b->s->qp);
	cr_assert_not(LIST_EMPTY(&dead));
	for (i = 0; i < 16 && !LIST_EMPTY(&dead); i++) {
		b->core->now_ns += 16 * RTO;
		karst_core_expire(b->core, 8);
	}
	cr_assert(LIST_EMPTY(&dead));
	expect_event(b, PATH_MIG);
	expect_via(b, expect_pkt(b, RC_ACK, R(0)), &alt_path, true);
	expect_via(b, expect_pkt(b, RC_WRITE_ONLY, S(0)), &alt_path, true);
	bed_forget(b);
	bed_close(b);
}

/* A queue pair with a limit has an unanswered WRITE and one for which there are no tokens.  When
 * these have come, its port is full. */
static void
park_with_tokens(struct bed *b, struct karst_parked *full)
{
	karst_qp_rate_limit(b->core, b->s->qp, 1000, 0, NULL);
	post(b, RDMA_WRITE, 1, .len = 1);
	post(b, RDMA_WRITE, 2, .len = 1);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_none(b);
	b->core->now_ns += 2 * MS;
	karst_core_expire(b->core, 8);
	cr_assert_eq(visit_picked(b, 1, full), b->s->qp);
	cr_assert_not(LIST_EMPTY(full));
}

/* (E6, Q6): a queue pair with a limit does not wait for tokens any more when it is parked: it
 * migrates, too, ... */
Test(migrate, g4_not_parked_with_tokens)
{
	struct bed *b = bed_armed(KARST_QPT_RC);
	struct karst_parked full = LIST_HEAD_INITIALIZER(full);
	unsigned int i;

	park_with_tokens(b, &full);
	for (i = 0; i < 16 && !LIST_EMPTY(&full); i++) {
		b->core->now_ns += 16 * RTO;
		karst_core_expire(b->core, 8);
	}
	cr_assert(LIST_EMPTY(&full), "parked for ever");
	expect_event(b, PATH_MIG);
	expect_via(b, expect_pkt(b, RC_ACK, R(0)), &alt_path, true);
	expect_via(b, expect_pkt(b, RC_WRITE_ONLY, S(0)), &alt_path, true);
	bed_forget(b);
	bed_close(b);
}

/* ... and without an alternate path it fails. */
Test(migrate, q6_parked_with_tokens)
{
	struct bed *b = bed_rc();
	struct karst_parked full = LIST_HEAD_INITIALIZER(full);
	unsigned int i;

	park_with_tokens(b, &full);
	for (i = 0; i < 16; i++) {
		b->core->now_ns += 16 * RTO;
		karst_core_expire(b->core, 8);
	}
	expect_state(b, ERR);
	expect_wc(b, 1, RETRY_EXC_ERR);
	expect_wc(b, 2, WR_FLUSH_ERR);
	bed_forget(b);
	bed_close(b);
}

/* (E6): a queue pair that is parked loses nothing of its rate: the tokens of the whole time that it
 * has waited, for tokens and then for its port, are there. */
Test(migrate, e6_parked_loses_no_rate)
{
	struct bed *b = bed_rc();
	struct karst_parked full = LIST_HEAD_INITIALIZER(full);
	unsigned int i;

	karst_qp_rate_limit(b->core, b->s->qp, 100000, 0, NULL); /* 330 bytes in 26 us */
	for (i = 0; i < 8; i++)
		post(b, RDMA_WRITE, i, .len = MTU);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	expect_none(b);
	b->core->now_ns += MS / 25;
	karst_core_expire(b->core, 8);
	cr_assert_eq(visit_picked(b, 1, &full), b->s->qp);
	cr_assert_not(LIST_EMPTY(&full));
	b->core->now_ns += MS / 5;
	karst_core_unpark(b->core, &full, UINT32_MAX);
	for (i = 1; i < 6; i++)
		expect_pkt(b, RC_WRITE_ONLY, S(i));
	bed_forget(b);
	bed_close(b);
}

/* In REARM the queue pair fails when retries are exhausted: the peer has not agreed to migrate. */
Test(migrate, g4_not_in_rearm)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b = bed_open(&s);

	cr_assert_eq(migrate_rearm(b), 0);
	expect_exhausted(b);
	bed_close(b);
}

/* The peer migrates, with a new request, or with one that it repeats. */
Test(migrate, g3_peer_asks_by_a_request)
{
	unsigned int again;

	for (again = 0; again < 2; again++) {
		struct bed *b = bed_armed(KARST_QPT_RC);

		peer_migrates(b);
		/* before the peer announces it, packets of that path are dropped */
		expect_drop(b, ADDRESS, send_write(b, R(1), 0, 8));
		expect_mig(b, ARMED);
		cr_assert_eq(send_pkt(b, RC_WRITE_ONLY, R(1 - again), .va = VA, .rkey = b->key,
				     .ackreq = true, .migreq = true),
			again ? KARST_DROP_DUPLICATE : KARST_DROP_NONE);
		expect_event(b, PATH_MIG);
		expect_mig(b, MIGRATED);
		expect_path(b, &alt_path);
		expect_via(b, expect_pkt(b, RC_ACK, R(1 - again)), &alt_path, true);
		/* from now on the bit has no effect */
		expect_taken(b, send_write(b, R(2 - again), 0, 8));
		expect_pkt(b, RC_ACK, R(2 - again));
		bed_close(b);
	}
}

/* ... or with a response, also with a repetition of the last one; requests that are not
 * acknowledged are sent again. */
Test(migrate, g3_peer_asks_by_an_answer)
{
	struct bed *b = bed_armed(KARST_QPT_RC);

	post(b, RDMA_WRITE, 1, .len = 1);
	expect_pkt(b, RC_WRITE_ONLY, S(0));
	peer_migrates(b);
	expect_drop(b, GHOST_ACK, send_pkt(b, RC_ACK, S(-1), .aeth = 0x1f000000, .migreq = true));
	expect_event(b, PATH_MIG);
	expect_via(b, expect_pkt(b, RC_ACK, R(0)), &alt_path, true);
	expect_via(b, expect_pkt(b, RC_WRITE_ONLY, S(0)), &alt_path, true);
	expect_taken(b, send_pkt(b, RC_ACK, S(0), .aeth = 0x1f000001, .migreq = true));
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

/* In REARM as well: the peer learnt of it, and its answer that it is ready was lost. */
Test(migrate, g3_peer_asks_in_rearm)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b = bed_open(&s);

	cr_assert_eq(migrate_rearm(b), 0);
	peer_migrates(b);
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(0), .ackreq = true, .migreq = true));
	expect_event(b, PATH_MIG);
	expect_via(b, expect_pkt(b, RC_ACK, R(0)), &alt_path, true);
	bed_close(b);
}

/* The program migrates the queue pair. */
Test(migrate, g4_by_command)
{
	struct bed *b = bed_armed(KARST_QPT_RC);

	post(b, RDMA_WRITE, 1, .len = 1);
	expect_via(b, expect_pkt(b, RC_WRITE_ONLY, S(0)), &b->path, false);
	cr_assert_eq(migrate_set(b, KARST_MIG_MIGRATED), 0);
	expect_event(b, PATH_MIG);
	expect_path(b, &alt_path);
	expect_via(b, expect_pkt(b, RC_ACK, R(0)), &alt_path, true);
	expect_via(b, expect_pkt(b, RC_WRITE_ONLY, S(0)), &alt_path, true);
	expect_none(b);
	peer_migrates(b);
	expect_taken(b, send_pkt(b, RC_ACK, S(0), .aeth = 0x1f000001, .migreq = true));
	expect_wc(b, 1, SUCCESS);
	/* repeating it changes nothing */
	cr_assert_eq(migrate_set(b, KARST_MIG_MIGRATED), 0);
	bed_close(b);
}

/* Congestion state that was learned belongs to the old path and is reset; what the program has set
 * stays. */
Test(migrate, g4_control_begins_anew)
{
	const enum karst_congestion_mode modes[] = {KARST_CONGESTION_DCQCN, KARST_CONGESTION_SWIFT};
	const struct karst_ib_hdrs cnp = {.opcode = KARST_CNP, .becn = true};
	struct karst_congestion_config config;
	struct karst_qp_rate first, was, is;
	unsigned int i;

	for (i = 0; i < KARST_DIM(modes); i++) {
		struct setup s = setup_congested(KARST_QPT_RC, modes[i], &config);
		struct bed *b = bed_armed_as(KARST_QPT_RC, &s);
		bool swift = modes[i] == KARST_CONGESTION_SWIFT;

		karst_qp_rate_limit(b->core, b->s->qp, 4000000, 0, NULL);
		karst_qp_rate(b->core, b->s->qp, &first);
		post(b, RDMA_WRITE, 1, .len = 1);
		expect_pkt(b, RC_WRITE_ONLY, S(0));
		if (swift)
			b->core->now_ns += 1000000; /* far above the target delay */
		else
			expect_drop(b, CNP, bed_rx(b, &cnp));
		expect_taken(b, send_pkt(b, RC_ACK, S(0), .aeth = 0x1f000001));
		expect_wc(b, 1, SUCCESS);
		karst_qp_rate(b->core, b->s->qp, &was);
		if (swift)
			cr_assert_lt(was.cwnd, first.cwnd);
		else
			cr_assert_gt(was.cc_rate, 0);

		cr_assert_eq(migrate_set(b, KARST_MIG_MIGRATED), 0);
		expect_event(b, PATH_MIG);
		karst_qp_rate(b->core, b->s->qp, &is);
		cr_expect_eq(is.cwnd, first.cwnd, "mode %u: cwnd %u", modes[i], is.cwnd);
		cr_expect_eq(is.delay_ns, 0, "mode %u: delay %u", modes[i], is.delay_ns);
		cr_expect_eq(is.cc_rate, first.cc_rate, "mode %u: %lu", modes[i], is.cc_rate);
		cr_expect_eq(is.program_rate, 4000000000ull);
		cr_expect_eq(is.rate, 4000000000ull);
		expect_via(b, expect_pkt(b, RC_ACK, R(0)), &alt_path, true);
		expect_none(b);
		bed_close(b);
	}
}

/* There and back: the old path is loaded as the alternate one. */
Test(migrate, g2_there_and_back)
{
	struct bed *b = bed_armed(KARST_QPT_RC);
	struct karst_path old = peer_migrates(b);

	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(1), .ackreq = true, .migreq = true));
	expect_event(b, PATH_MIG);
	expect_pkt(b, RC_ACK, R(1));
	cr_assert_eq(
		migrate_load(b, &old, KARST_MIG_REARM, KARST_QP_ALT_PATH | KARST_QP_PATH_MIG_STATE),
		0);
	/* the peer is not ready yet, and its packet is old */
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(2), .ackreq = true, .migreq = true));
	expect_via(b, expect_pkt(b, RC_ACK, R(2)), &alt_path, false);
	expect_mig(b, REARM);
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(3), .ackreq = true));
	expect_pkt(b, RC_ACK, R(3));
	expect_mig(b, ARMED);
	b->path = old;
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(4), .ackreq = true, .migreq = true));
	expect_event(b, PATH_MIG);
	expect_via(b, expect_pkt(b, RC_ACK, R(4)), &old, true);
	bed_close(b);
}

/* Two paths with the same addresses, on another port: only the bit tells that the peer has
 * migrated. */
Test(migrate, g3_same_addresses)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b = bed_open(&s);
	struct karst_path twin = b->path;

	twin.port = 1;
	twin.dst_mac[5] = 0x77;
	cr_assert_eq(migrate_load(b, &twin, KARST_MIG_REARM,
			     KARST_QP_ALT_PATH | KARST_QP_PATH_MIG_STATE),
		0);
	expect_taken(b, send_write(b, R(0), 0, 8));
	expect_pkt(b, RC_ACK, R(0));
	expect_mig(b, ARMED);
	expect_taken(b, send_write(b, R(1), 0, 8));
	expect_pkt(b, RC_ACK, R(1));
	expect_path(b, &b->path);
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(2), .ackreq = true, .migreq = true));
	expect_event(b, PATH_MIG);
	expect_via(b, expect_pkt(b, RC_ACK, R(2)), &twin, true);
	bed_close(b);
}

/* (L5): where the peer's port is latched, the new path latches a port of its own. */
Test(migrate, g3_latched)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct karst_frame f;
	struct bed *b;

	s.core.latch_sport = true;
	b = bed_open(&s);
	cr_assert_eq(migrate_rearm(b), 0);
	expect_taken(b, send_write(b, R(0), 0, 8));
	expect_pkt(b, RC_ACK, R(0));
	expect_mig(b, ARMED);
	/* another sender's port latches nothing */
	f = bed_frame(b,
		&(struct karst_ib_hdrs){
			.opcode = KARST_RC_WRITE_ONLY, .psn = R(1), .migreq = true});
	f.sport = 0xd222;
	expect_drop(b, SOURCE_PORT, bed_rx_frame(b, &f));
	expect_mig(b, ARMED);
	peer_migrates(b);
	f = bed_frame(b,
		&(struct karst_ib_hdrs){.opcode = KARST_RC_WRITE_ONLY,
			.psn = R(1),
			.ackreq = true,
			.migreq = true});
	f.sport = 0xd333;
	expect_taken(b, bed_rx_frame(b, &f));
	expect_event(b, PATH_MIG);
	expect_pkt(b, RC_ACK, R(1));
	bed_close(b);
}

/* --- UC, XRC, IPv6 --- */

Test(migrate, g3_uc)
{
	struct bed *b = bed_armed(KARST_QPT_UC);

	peer_migrates(b);
	expect_drop(b, ADDRESS, send_pkt(b, UC_WRITE_ONLY, R(1), .va = VA, .rkey = b->key));
	expect_taken(b, send_pkt(b, UC_WRITE_ONLY, R(7), .va = VA, .rkey = b->key, .migreq = true));
	expect_event(b, PATH_MIG);
	post(b, RDMA_WRITE, 1, .len = 1);
	expect_via(b, expect_pkt(b, UC_WRITE_ONLY, S(0)), &alt_path, true);
	expect_wc(b, 1, SUCCESS);
	bed_close(b);
}

Test(migrate, g4_xrc_initiator)
{
	struct setup s = setup_of(KARST_QPT_XRC_SEND);
	struct bed *b = bed_open(&s);
	unsigned int i;

	cr_assert_eq(migrate_rearm(b), 0);
	post(b, RDMA_WRITE, 1, .len = 1);
	expect_via(b, expect_pkt(b, XRC_WRITE_ONLY, S(0)), &b->path, false);
	expect_taken(b, send_pkt(b, XRC_ACK, S(0), .aeth = 0x1f000001));
	expect_wc(b, 1, SUCCESS);
	expect_mig(b, ARMED);
	post(b, RDMA_WRITE, 2, .len = 1);
	for (i = 0; i < 4; i++) {
		expect_via(b, expect_pkt(b, XRC_WRITE_ONLY, S(1)), &b->path, false);
		advance_time(b, 4 * RTO);
	}
	expect_event(b, PATH_MIG);
	expect_via(b, expect_pkt(b, XRC_WRITE_ONLY, S(1)), &alt_path, true);
	peer_migrates(b);
	expect_taken(b, send_pkt(b, XRC_ACK, S(1), .aeth = 0x1f000002, .migreq = true));
	expect_wc(b, 2, SUCCESS);
	bed_close(b);
}

Test(migrate, g3_xrc_target)
{
	struct setup s = setup_of(KARST_QPT_XRC_RECV);
	struct bed *b = bed_open(&s);
	uint32_t srqn = karst_srq_num(b->srq);

	cr_assert_eq(migrate_rearm(b), 0);
	expect_taken(b, send_pkt(b, XRC_WRITE_ONLY, R(0), .ackreq = true, .srqn = srqn));
	expect_via(b, expect_pkt(b, XRC_ACK, R(0)), &b->path, false);
	expect_mig(b, ARMED);
	peer_migrates(b);
	expect_taken(
		b, send_pkt(b, XRC_WRITE_ONLY, R(1), .ackreq = true, .srqn = srqn, .migreq = true));
	expect_event(b, PATH_MIG);
	expect_via(b, expect_pkt(b, XRC_ACK, R(1)), &alt_path, true);
	bed_close(b);
}

/* From IPv4 to IPv6. */
Test(migrate, g3_ip6)
{
	struct setup s = setup_of(KARST_QPT_RC);
	struct bed *b = bed_open(&s);
	const struct karst_path six = {.src_mac = {2, 0, 0, 0, 1, 1},
		.dst_mac = {2, 0, 0, 0, 1, 2},
		.src_ip = {0x20, 1, [15] = 1},
		.dst_ip = {0x20, 1, [15] = 2},
		.ip6 = true,
		.port = 1};

	cr_assert_eq(
		migrate_load(b, &six, KARST_MIG_REARM, KARST_QP_ALT_PATH | KARST_QP_PATH_MIG_STATE),
		0);
	expect_taken(b, send_write(b, R(0), 0, 8));
	expect_pkt(b, RC_ACK, R(0));
	b->path = six;
	b->path.dst_ip[15] = 3;
	expect_drop(b, ADDRESS, send_pkt(b, RC_WRITE_ONLY, R(1), .migreq = true));
	b->path = six;
	expect_taken(b, send_pkt(b, RC_WRITE_ONLY, R(1), .ackreq = true, .migreq = true));
	expect_event(b, PATH_MIG);
	cr_assert(expect_pkt(b, RC_ACK, R(1))->flags & KARST_PKT_IP6);
	bed_close(b);
}
