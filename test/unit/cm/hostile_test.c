/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Messages that no correct peer sends: forged messages, floods, random bytes (U2, C1). */
#include "cm_bed.h"

/* --- malformed --- */

Test(cm_hostile, u2_malformed)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct karst_cm_msg req = peer_req(b, 0);
	uint8_t mad[KARST_CM_MAD_LEN];

	cm_bed_listen(b);
	cr_assert_eq(karst_cm_msg_build(&req, mad), 0);
	send_raw(b, mad, 0);
	send_raw(b, mad, 255);
	cr_expect_eq(counted(b, MALFORMED), 2);
	mad[2] = 1;
	send_raw(b, mad, sizeof(mad));
	mad[2] = 2;
	mad[3] = 0x81;
	send_raw(b, mad, sizeof(mad));
	mad[3] = 3;
	cr_expect_eq(counted(b, MALFORMED), 4);
	mad[1] = 3;
	send_raw(b, mad, sizeof(mad));
	cr_expect_eq(counted(b, OTHER_CLASS), 1);
	mad[1] = 7;
	mad[17] = 1;
	send_raw(b, mad, sizeof(mad));
	mad[17] = 0x1b;
	send_raw(b, mad, sizeof(mad));
	cr_expect_eq(counted(b, ATTRIBUTE), 2);
	mad[17] = 0x10;
	send_raw(b, mad, sizeof(mad));
	expect_ev(b, REQ);
	cm_bed_down(b);
}

/* --- forged --- */

/* The sender knows the ids, but not the peer's address, the queue pair or the transaction. */
Test(cm_hostile, c1_forged_dreq)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	uint32_t id;
	struct karst_cm_msg m;

	cm_bed_listen(b);
	id = cm_bed_passive(b, 0);
	m = peer_dreq(id, 0);
	send_from(b, 1, m); /* another address */
	m.dreq.qpn++;
	send_msg(b, m); /* another queue pair */
	m = peer_dreq(id, 0);
	m.local_id++;
	send_msg(b, m); /* another id of the peer */
	cr_expect_eq(counted(b, FORGED), 3);
	cr_expect_eq(state_of(b, id), KARST_CM_ESTABLISHED);
	cm_bed_down(b);
}

Test(cm_hostile, c1_forged_answers)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct cm_bed_msg req, dreq;
	uint32_t id = cm_bed_req_sent(b, 0, &req);
	struct karst_cm_msg m = peer_rep(&req, 0);

	send_from(b, 1, m);
	m.tid++;
	send_msg(b, m);
	cr_expect_eq(counted(b, FORGED), 2);
	m = peer_rep(&req, 0);
	m.local_id = 0;
	send_msg(b, m);
	m = peer_rep(&req, 0);
	m.rep.qpn = 0;
	send_msg(b, m);
	cr_expect_eq(counted(b, INVALID), 2);
	cr_expect_eq(state_of(b, id), KARST_CM_REQ_SENT);
	m = peer_msg(KARST_CM_REJ, id, &req, 0);
	m.rej.reason = KARST_CM_REJ_CONSUMER_DEFINED;
	send_from(b, 1, m);
	m = peer_msg(KARST_CM_MRA, id, &req, 0);
	m.mra.service_timeout = 31;
	send_from(b, 1, m);
	cr_expect_eq(counted(b, FORGED), 4);
	send_msg(b, peer_rep(&req, 0));
	expect_ev(b, REP);
	cr_assert_eq(karst_cm_id_ready(b->cm, id, NULL, 0), 0);
	expect_msg(b, RTU);
	cr_assert_eq(karst_cm_id_disconnect(b->cm, id, NULL, 0), 0);
	dreq = *expect_msg(b, DREQ);
	m = peer_msg(KARST_CM_DREP, id, &dreq, 0);
	m.tid++;
	send_msg(b, m);
	send_from(b, 1, peer_msg(KARST_CM_DREP, id, &dreq, 0));
	cr_expect_eq(counted(b, FORGED), 6);
	cr_expect_eq(state_of(b, id), KARST_CM_DREQ_SENT);
	cm_bed_down(b);
}

/* A half-open connection is not established by an RTU from another sender. */
Test(cm_hostile, c1_forged_rtu)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct karst_cm_msg m;
	uint32_t id;

	cm_bed_listen(b);
	id = cm_bed_rep_sent(b, 0);
	m = peer_msg(KARST_CM_RTU, id, NULL, 0);
	send_from(b, 1, m);
	m.local_id++;
	send_msg(b, m);
	m = peer_msg(KARST_CM_RTU, id + 1, NULL, 0);
	send_msg(b, m);
	cr_expect_eq(counted(b, FORGED), 2);
	cr_expect_eq(counted(b, NO_ID), 1);
	cr_expect_eq(b->cm->nhalf_open, 1);
	cr_expect_eq(state_of(b, id), KARST_CM_REP_SENT);
	cm_bed_down(b);
}

/* A peer rejects its own request, and answers the REP after that: no REJ is repeated for it. */
Test(cm_hostile, c1_rep_after_own_rej)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct cm_bed_msg req = {0};
	struct karst_cm_msg m;
	uint32_t id;

	cm_bed_listen(b);
	id = cm_bed_rep_sent(b, 0); /* the REP told the sender this id */
	m = peer_msg(KARST_CM_REJ, id, NULL, 0);
	m.rej.reason = KARST_CM_REJ_CONSUMER_DEFINED;
	send_msg(b, m);
	expect_ev(b, REJ);
	cr_expect_eq(state_of(b, id), KARST_CM_TIMEWAIT);
	req.m.local_id = id;
	send_msg(b, peer_rep(&req, 0));
	expect_no_msg(b);
	cr_expect_eq(counted(b, STATE), 1);
	cr_expect_eq(duplicates(b, REP), 0);
	cm_bed_down(b);
}

/* Messages about a listener's id, and messages about no id. */
Test(cm_hostile, c1_about_a_listener)
{
	static const enum karst_cm_kind silent[] = {KARST_CM_MRA, KARST_CM_REJ, KARST_CM_RTU,
		KARST_CM_DREP, KARST_CM_REP, KARST_CM_DREQ};
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	uint32_t listener = cm_bed_listen(b), i;

	for (i = 0; i < KARST_DIM(silent); i++)
		send_msg(b, peer_msg(silent[i], listener, NULL, 0));
	cr_expect_eq(counted(b, NO_ID), KARST_DIM(silent));
	for (i = 0; i < 4; i++)
		send_msg(b, peer_msg(silent[i], 0, NULL, 0));
	cr_expect_eq(counted(b, NO_ID), KARST_DIM(silent) + 4);
	send_msg(b, peer_msg(KARST_CM_REP, 0, NULL, 0));
	cr_expect_eq(expect_msg(b, REJ)->m.rej.reason, KARST_CM_REJ_INVALID_COMM_ID);
	send_msg(b, peer_msg(KARST_CM_DREQ, 0, NULL, 0));
	expect_msg(b, DREP);
	cm_bed_down(b);
}

/* --- floods --- */

static void
flood(struct cm_bed *b, unsigned int n, uint32_t from, uint32_t to)
{
	struct karst_cm_path seen = seen_from(b, n);
	struct karst_cm_msg req;

	for (; from < to; from++) {
		req = peer_req(b, from);
		memcpy(req.req.primary.local_gid, seen.remote_ip, 16);
		send_from(b, n, req);
	}
}

/* One address cannot have more than half, so that others still get in. */
Test(cm_hostile, c1_flood_from_one_address)
{
	struct karst_cm_config cfg = {.max_ids = 256, .max_half_open = 16};
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, &cfg);
	uint32_t i;

	cm_bed_listen(b);
	flood(b, 1, 0, 1000);
	cr_expect_eq(b->cm->nhalf_open, 8);
	cr_expect_eq(counted(b, FLOOD), 992);
	for (i = 0; i < 8; i++)
		expect_ev(b, REQ);
	cm_bed_passive(b, 5000);
	cm_bed_passive(b, 5001);
	cr_expect_eq(b->cm->nhalf_open, 8);
	cm_bed_down(b);
}

/* However many others there are, connections that one address has begun do not take another's
 * place. */
Test(cm_hostile, c1_flood_from_one_address_is_its_own)
{
	enum { HALF = 1024, OTHERS = 600 };
	struct karst_cm_config cfg = {.max_ids = 2 * HALF, .max_half_open = 2 * HALF};
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, &cfg);
	uint32_t i;

	cm_bed_listen(b);
	for (i = 0; i < HALF + 1; i++) {
		flood(b, 1, i, i + 1);
		if (i < HALF)
			expect_ev(b, REQ);
	}
	cr_expect_eq(counted(b, FLOOD), 1);
	for (i = 0; i < OTHERS; i++) {
		flood(b, 2 + i, 0, 1);
		expect_ev(b, REQ);
	}
	cr_expect_eq(counted(b, FLOOD), 1);
	cr_expect_eq(b->cm->nhalf_open, HALF + OTHERS);
	cm_bed_down(b);
}

/* From many addresses: connections that are a second old make room, younger ones stay. */
Test(cm_hostile, c1_flood_from_everywhere)
{
	struct karst_cm_config cfg = {.max_ids = 256, .max_half_open = 16};
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, &cfg);
	const struct karst_cm_ev *ev;
	uint32_t i, oldest = 0, id;

	cm_bed_listen(b);
	for (i = 0; i < 40; i++)
		flood(b, 1 + i, 0, 1);
	cr_expect_eq(b->cm->nhalf_open, 16);
	cr_expect_eq(counted(b, FLOOD), 24);
	for (i = 0; i < 16; i++) {
		ev = expect_ev(b, REQ);
		if (i == 0)
			oldest = ev->id;
	}
	advance(b, 2 * SECOND);
	b->param.qpn = OUR_QPN + 7000;
	send_msg(b, peer_req(b, 7000));
	cr_expect_eq(expect_msg(b, REJ)->m.rej.reason, KARST_CM_REJ_NO_RESOURCES);
	ev = expect_ev(b, REJ);
	cr_expect_eq(ev->id, oldest);
	cr_expect(ev->local);
	id = expect_ev(b, REQ)->id;
	cr_expect_eq(counted(b, EVICTED), 1);
	cr_assert_eq(karst_cm_id_accept(b->cm, id, &b->param), 0);
	expect_msg(b, REP);
	send_msg(b, peer_msg(KARST_CM_RTU, id, NULL, 7000));
	expect_ev(b, RTU);
	cr_expect_eq(karst_cm_id_accept(b->cm, oldest, &b->param), -EINVAL);
	cr_expect_eq(karst_cm_id_destroy(b->cm, oldest), 0);
	cm_bed_down(b);
}

/* When the callback learns that a connection was dropped, it stops listening: the new request finds
 * no listener. */
static uint32_t listener;

static void
stop_listening(struct cm_bed *b, const struct karst_cm_ev *ev)
{
	if (ev->code == KARST_CM_EV_REJ)
		cr_assert_eq(karst_cm_id_destroy(b->cm, listener), 0);
}

Test(cm_hostile, c1_listener_gone_while_making_room)
{
	struct karst_cm_config cfg = {.max_ids = 64, .max_half_open = 2};
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, &cfg);

	listener = cm_bed_listen(b);
	flood(b, 1, 0, 1);
	flood(b, 2, 0, 1);
	expect_ev(b, REQ);
	expect_ev(b, REQ);
	advance(b, 2 * SECOND);
	b->on_event = stop_listening;
	send_msg(b, peer_req(b, 0));
	cr_expect_eq(expect_msg(b, REJ)->m.rej.reason, KARST_CM_REJ_NO_RESOURCES);
	expect_ev(b, REJ);
	cr_expect_eq(expect_msg(b, REJ)->m.rej.reason, KARST_CM_REJ_INVALID_SERVICE_ID);
	cm_bed_down(b);
}

/* All entries taken: a REJ with that reason. */
Test(cm_hostile, c1_table_full)
{
	struct karst_cm_config cfg = {.max_ids = 4, .max_half_open = 4};
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, &cfg);
	uint32_t i;

	cm_bed_listen(b);
	for (i = 0; i < 3; i++)
		cm_bed_passive(b, i);
	send_msg(b, peer_req(b, 9));
	cr_expect_eq(expect_msg(b, REJ)->m.rej.reason, KARST_CM_REJ_NO_RESOURCES);
	cr_expect_eq(counted(b, TABLE_FULL), 1);
	cm_bed_down(b);
}

/* A refused request costs nothing but the REJ: no table entry, no half-open connection. */
Test(cm_hostile, c1_refused_leave_nothing)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	uint32_t i;

	for (i = 0; i < 1000; i++) {
		send_msg(b, peer_req(b, i));
		expect_msg(b, REJ);
	}
	cr_expect_eq(b->cm->nids, 0);
	cm_bed_down(b);
}

/* A peer that asks for the fastest or the slowest possible retransmissions gets reasonable ones. */
Test(cm_hostile, c1_extreme_timeouts)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct karst_cm_msg req = peer_req(b, 0);
	uint32_t id, sent = 0;

	cm_bed_listen(b);
	req.req.local_response_timeout = 0;
	req.req.remote_response_timeout = 0;
	req.req.max_retries = 15;
	send_msg(b, req);
	id = expect_ev(b, REQ)->id;
	cr_assert_eq(karst_cm_id_accept(b->cm, id, &b->param), 0);
	advance(b, 600 * MS);
	for (; b->out_head != b->out_tail; sent++)
		expect_msg(b, REP);
	cr_expect_leq(sent, 9);
	advance(b, 2 * SECOND);
	for (; sent < 16; sent++)
		expect_msg(b, REP);
	expect_msg(b, REJ);
	expect_ev(b, REP_ERROR);

	req = peer_req(b, 1);
	req.req.local_response_timeout = 31;
	req.req.remote_response_timeout = 31;
	req.req.max_retries = 15;
	send_msg(b, req);
	id = expect_ev(b, REQ)->id;
	advance(b, 600 * SECOND);
	expect_msg(b, REJ);
	cr_expect_eq(expect_ev(b, REJ)->reason, KARST_CM_REJ_TIMEOUT);
	cm_bed_down(b);
}

/* --- listeners for ranges --- */

Test(cm_hostile, c1_masks)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	uint32_t all, space, one, id;
	struct karst_cm_msg req = peer_req(b, 0);

	cr_assert_eq(karst_cm_id_listen(b->cm, 0, 0, NULL, &all), 0);
	cr_assert_eq(karst_cm_id_listen(b->cm, SERVICE, ~UINT64_C(0xffff), NULL, &space), 0);
	cr_assert_eq(karst_cm_id_listen(b->cm, SERVICE, UINT64_MAX, NULL, &one), 0);
	cr_expect_eq(
		karst_cm_id_listen(b->cm, SERVICE + 1, ~UINT64_C(0xffff), NULL, &id), -EADDRINUSE);
	cr_expect_eq(karst_cm_id_listen(b->cm, 77, 0, NULL, &id), -EADDRINUSE);
	send_msg(b, req);
	cr_expect_eq(expect_ev(b, REQ)->listen_id, one);
	cr_assert_eq(karst_cm_id_destroy(b->cm, one), 0);
	send_msg(b, peer_req(b, 1));
	cr_expect_eq(expect_ev(b, REQ)->listen_id, space);
	req = peer_req(b, 2);
	req.req.service_id = karst_cm_service_id(KARST_CM_PS_UDP, 7);
	send_msg(b, req);
	cr_expect_eq(expect_ev(b, REQ)->listen_id, all);
	cr_expect_eq(b->evs[(b->ev_head - 1) % BED_QUEUE].ev.service_id, req.req.service_id);
	cm_bed_down(b);
}

/* --- guessing --- */

#define SHOWN 32u

/* Sends requests for SHOWN connections, with a given secret. */
static void
show(const uint64_t secret[2], uint32_t id[SHOWN], uint64_t tid[SHOWN])
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(
		&bed, &(struct karst_cm_config){.max_ids = 64, .secret = {secret[0], secret[1]}});
	uint32_t i;

	for (i = 0; i < SHOWN; i++) {
		struct cm_bed_msg req;

		id[i] = cm_bed_req_sent(b, i, &req);
		tid[i] = req.m.tid;
		cr_assert_eq(req.m.local_id, id[i]);
	}
	for (i = 0; i < SHOWN; i++) {
		cr_assert_eq(karst_cm_id_destroy(b->cm, id[i]), 0);
		expect_msg(b, REJ);
	}
	cm_bed_down(b);
}

/* Ids and transactions of some connections do not help to guess the next: no difference comes
 * twice, nor does a part of a number when the rest is known. */
Test(cm_hostile, c1_numbers_tell_nothing)
{
	const uint64_t secret[2] = {4711, 4712};
	uint32_t id[SHOWN], i, j, twice = 0, low = 0;
	uint64_t tid[SHOWN];

	show(secret, id, tid);
	for (i = 1; i < SHOWN; i++) {
		cr_expect_neq(tid[i] >> 32, tid[0] >> 32);
		cr_expect_neq((uint32_t)tid[i], id[i]);
		/* entries are numbered in sequence: without a mask, or with a constant one, this
		 * would show */
		low += ((id[i] ^ id[0]) & 63) == i;
		for (j = 1; j < i; j++) {
			twice += (id[i] ^ id[i - 1]) == (id[j] ^ id[j - 1]);
			twice += id[i] - id[i - 1] == id[j] - id[j - 1];
		}
	}
	cr_expect_lt(low, 8);
	cr_expect_eq(twice, 0);
}

/* All 128 bits of the secret count, and a test with the same secret has the same run. */
Test(cm_hostile, c1_numbers_follow_from_the_secret)
{
	uint64_t secret[2] = {4711, 4712}, tid[2][SHOWN];
	uint32_t id[2][SHOWN], i, bit;

	show(secret, id[0], tid[0]);
	show(secret, id[1], tid[1]);
	cr_assert_arr_eq(id[0], id[1], sizeof(id[0]));
	cr_assert_arr_eq(tid[0], tid[1], sizeof(tid[0]));
	for (bit = 0; bit < 128; bit += 31) {
		secret[bit / 64] ^= UINT64_C(1) << bit % 64;
		show(secret, id[1], tid[1]);
		for (i = 0; i < SHOWN; i++)
			cr_expect(id[0][i] != id[1][i] && tid[0][i] != tid[1][i]);
		secret[bit / 64] ^= UINT64_C(1) << bit % 64;
	}
}
