/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Ending connections: DREQ, DREP, time-wait, ids that their user destroys (C1). */
#include "cm_bed.h"

#include "karst_hdr.h"

#define TIMEWAIT (UINT64_C(4096) << 17)

static struct cm_bed *
cm_bed_listening(void)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);

	cm_bed_listen(b);
	return b;
}

static void
expect_timewait(struct cm_bed *b, uint32_t id)
{
	cr_expect_eq(state_of(b, id), KARST_CM_TIMEWAIT);
	advance(b, TIMEWAIT - MS);
	expect_no_ev(b);
	advance(b, 2 * MS);
	cr_expect_eq(expect_ev(b, TIMEWAIT_EXIT)->id, id);
	cr_expect_eq(state_of(b, id), KARST_CM_IDLE);
}

static struct karst_cm_msg
drep_for(const struct cm_bed_msg *dreq, uint32_t n)
{
	return peer_msg(KARST_CM_DREP, dreq->m.local_id, dreq, n);
}

/* This side disconnects. */
Test(cm_end, c1_disconnect)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	uint32_t id = cm_bed_active(b, 0);
	const struct karst_cm_ev *ev;
	struct karst_cm_msg drep;
	struct cm_bed_msg dreq;

	cr_assert_eq(karst_cm_id_disconnect(b->cm, id, "bye", 3), 0);
	dreq = *expect_msg(b, DREQ);
	cr_expect_eq(dreq.m.local_id, id);
	cr_expect_eq(dreq.m.remote_id, PEER_ID);
	cr_expect_eq(dreq.m.dreq.qpn, PEER_QPN);
	cr_expect_arr_eq(dreq.m.private_data, "bye\0", 4);
	cr_expect_eq(karst_cm_id_disconnect(b->cm, id, NULL, 0), -EINVAL);
	advance(b, 300 * MS);
	cr_expect_arr_eq(expect_msg(b, DREQ)->mad, dreq.mad, KARST_CM_MAD_LEN);
	drep = drep_for(&dreq, 0);
	drep.private_data = (const uint8_t *)"farewell";
	drep.private_data_len = 8;
	send_msg(b, drep);
	ev = expect_ev(b, DREP);
	cr_expect_eq(ev->id, id);
	cr_expect_str_eq(ev->remote.private_data, "farewell");
	send_msg(b, drep);
	cr_expect_eq(duplicates(b, DREP), 1);
	expect_timewait(b, id);
	cm_bed_down(b);
}

/* The peer disconnects. */
Test(cm_end, c1_disconnected)
{
	struct cm_bed *b = cm_bed_listening();
	uint32_t id = cm_bed_passive(b, 0);
	struct karst_cm_msg dreq = peer_dreq(id, 0);
	const struct karst_cm_ev *ev;
	struct cm_bed_msg *m;

	dreq.private_data = (const uint8_t *)"bye";
	dreq.private_data_len = 3;
	send_msg(b, dreq);
	ev = expect_ev(b, DREQ);
	cr_expect_eq(ev->id, id);
	cr_expect_eq(ev->user, BED_USER);
	cr_expect_str_eq(ev->remote.private_data, "bye");
	send_msg(b, dreq); /* the user has not answered yet */
	cr_expect_eq(duplicates(b, DREQ), 1);
	cr_assert_eq(karst_cm_id_disconnect_reply(b->cm, id, "ok", 2), 0);
	m = expect_msg(b, DREP);
	cr_expect_eq(m->m.tid, dreq.tid);
	cr_expect_eq(m->m.local_id, id);
	cr_expect_eq(m->m.remote_id, PEER_ID);
	cr_expect_arr_eq(m->m.private_data, "ok\0", 3);
	send_msg(b, dreq); /* the DREP was lost */
	m = expect_msg(b, DREP);
	cr_expect_eq(m->m.tid, dreq.tid);
	expect_timewait(b, id);
	send_msg(b, dreq);
	expect_msg(b, DREP);
	cr_assert_eq(karst_cm_id_destroy(b->cm, id), 0);
	send_msg(b, dreq);
	m = expect_msg(b, DREP);
	cr_expect_eq(m->m.tid, dreq.tid);
	cr_expect_eq(m->m.remote_id, PEER_ID);
	cr_expect_eq(counted(b, NO_ID), 1);
	cm_bed_down(b);
}

/* Both sides at once: two DREQs, two DREPs, one event each. */
Test(cm_end, c1_crossed_dreqs)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	uint32_t id = cm_bed_active(b, 0);
	struct karst_cm_msg theirs = peer_dreq(id, 0);
	const struct karst_cm_ev *ev;
	struct cm_bed_msg ours;

	cr_assert_eq(karst_cm_id_disconnect(b->cm, id, NULL, 0), 0);
	ours = *expect_msg(b, DREQ);
	theirs.private_data = (const uint8_t *)"me too";
	theirs.private_data_len = 6;
	send_msg(b, theirs);
	cr_expect_eq(expect_msg(b, DREP)->m.tid, theirs.tid);
	ev = expect_ev(b, DREP);
	cr_expect_eq(ev->id, id);
	cr_expect_str_eq(ev->remote.private_data, "me too");
	send_msg(b, drep_for(&ours, 0));
	send_msg(b, theirs);
	expect_msg(b, DREP);
	cr_expect_eq(karst_cm_id_disconnect_reply(b->cm, id, NULL, 0), -EINVAL);
	expect_timewait(b, id);
	cm_bed_down(b);
}

/* A DREQ overtakes the RTU, or comes instead of it. */
Test(cm_end, c1_dreq_before_rtu)
{
	struct cm_bed *b = cm_bed_listening();
	uint32_t id = cm_bed_rep_sent(b, 0);

	send_msg(b, peer_dreq(id, 0));
	expect_ev(b, DREQ);
	send_msg(b, peer_msg(KARST_CM_RTU, id, NULL, 0));
	cr_expect_eq(counted(b, STATE), 1);
	cr_assert_eq(karst_cm_id_disconnect_reply(b->cm, id, NULL, 0), 0);
	expect_msg(b, DREP);
	cr_expect_eq(b->cm->nhalf_open, 0);
	expect_timewait(b, id);

	/* and from this side: disconnected before the RTU came */
	id = cm_bed_rep_sent(b, 1);
	cr_assert_eq(karst_cm_id_disconnect(b->cm, id, NULL, 0), 0);
	expect_msg(b, DREQ);
	cr_expect_eq(b->cm->nhalf_open, 0);
	cm_bed_down(b);
}

/* The peer's DREQ comes before our user is ready. */
Test(cm_end, c1_dreq_before_ready)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct cm_bed_msg req;
	uint32_t id = cm_bed_rep_rcvd(b, 0, &req);

	send_msg(b, peer_dreq(id, 0));
	expect_ev(b, DREQ);
	cr_expect_eq(karst_cm_id_ready(b->cm, id, NULL, 0), -EINVAL);
	cr_expect_eq(karst_cm_id_disconnect_reply(b->cm, id, NULL, 0), 0);
	expect_msg(b, DREP);
	expect_timewait(b, id);
	cm_bed_down(b);
}

/* No answer: the connection is disconnected all the same. */
Test(cm_end, c1_dreq_lost)
{
	struct karst_cm_config cfg = {.max_ids = 8, .max_retries = 2, .response_timeout = 16};
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, &cfg);
	uint32_t id = cm_bed_active(b, 0);

	cr_assert_eq(karst_cm_id_disconnect(b->cm, id, NULL, 0), 0);
	advance(b, 3 * (UINT64_C(4096) << 16) + MS);
	expect_msg(b, DREQ);
	expect_msg(b, DREQ);
	expect_msg(b, DREQ);
	cr_expect_eq(expect_ev(b, DREQ_ERROR)->id, id);
	cr_expect_eq(counted(b, TIMEOUTS), 1);
	advance(b, TIMEWAIT);
	expect_ev(b, TIMEWAIT_EXIT);
	cm_bed_down(b);
}

/* The peer does not know the connection (any more). */
Test(cm_end, c1_dreq_rejected)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	uint32_t id = cm_bed_active(b, 0);
	struct karst_cm_msg rej;
	struct cm_bed_msg dreq;

	cr_assert_eq(karst_cm_id_disconnect(b->cm, id, NULL, 0), 0);
	dreq = *expect_msg(b, DREQ);
	rej = peer_msg(KARST_CM_REJ, id, &dreq, 0);
	rej.rej.reason = KARST_CM_REJ_INVALID_COMM_ID;
	send_msg(b, rej);
	cr_expect_eq(expect_ev(b, DREQ_ERROR)->id, id);
	expect_timewait(b, id);
	cm_bed_down(b);
}

/* Time-wait is as long as the path's acknowledgement timeout, within limits. */
Test(cm_end, c1_timewait_limits)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct cm_bed_msg dreq;
	uint32_t id;

	b->path.ack_timeout = 31;
	id = cm_bed_active(b, 0);
	karst_cm_id_disconnect(b->cm, id, NULL, 0);
	dreq = *expect_msg(b, DREQ);
	send_msg(b, drep_for(&dreq, 0));
	expect_ev(b, DREP);
	advance(b, (UINT64_C(4096) << 20) - MS);
	expect_no_ev(b);
	advance(b, 2 * MS);
	expect_ev(b, TIMEWAIT_EXIT);
	b->path.ack_timeout = 0;
	id = cm_bed_active(b, 1);
	karst_cm_id_disconnect(b->cm, id, NULL, 0);
	dreq = *expect_msg(b, DREQ);
	send_msg(b, drep_for(&dreq, 1));
	expect_ev(b, DREP);
	advance(b, 15 * MS);
	expect_no_ev(b);
	advance(b, 3 * MS);
	expect_ev(b, TIMEWAIT_EXIT);
	cm_bed_down(b);
}

/* --- destroyed in every state --- */

Test(cm_end, c1_destroy_req_sent)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct cm_bed_msg req, *rej;
	uint32_t id = cm_bed_req_sent(b, 0, &req);

	cr_assert_eq(karst_cm_id_destroy(b->cm, id), 0);
	rej = expect_msg(b, REJ);
	cr_expect_eq(rej->m.rej.reason, KARST_CM_REJ_TIMEOUT);
	cr_expect_eq(karst_get_be64(rej->m.info), OUR_GUID);
	cr_expect_eq(b->cm->nids, 0);
	advance(b, 100 * SECOND);
	cm_bed_down(b);
}

/* The REJ is repeated for a peer that has missed it, and there are no events. */
Test(cm_end, c1_destroy_req_rcvd)
{
	struct cm_bed *b = cm_bed_listening();
	uint32_t id = cm_bed_req_rcvd(b, 0);
	struct cm_bed_msg *rej;

	cr_assert_eq(karst_cm_id_destroy(b->cm, id), 0);
	rej = expect_msg(b, REJ);
	cr_expect_eq(rej->m.rej.reason, KARST_CM_REJ_CONSUMER_DEFINED);
	cr_expect_eq(rej->m.rej.message, KARST_CM_ABOUT_REQ);
	cr_expect_eq(rej->m.remote_id, PEER_ID);
	cr_expect_eq(karst_cm_id_accept(b->cm, id, &b->param), -ENOENT);
	send_msg(b, peer_req(b, 0));
	expect_msg(b, REJ);
	cr_expect_eq(b->cm->nids, 2);
	advance(b, 4 * (UINT64_C(4096) << 20) - MS);
	cr_expect_eq(b->cm->nids, 2);
	advance(b, 2 * MS);
	cr_expect_eq(b->cm->nids, 1);
	cm_bed_down(b);
}

Test(cm_end, c1_destroy_rep_sent)
{
	struct cm_bed *b = cm_bed_listening();
	uint32_t id = cm_bed_rep_sent(b, 0);

	cr_assert_eq(karst_cm_id_destroy(b->cm, id), 0);
	cr_expect_eq(expect_msg(b, REJ)->m.rej.message, KARST_CM_ABOUT_OTHER);
	/* the REJ was lost: the peer takes the connection for established */
	send_msg(b, peer_msg(KARST_CM_RTU, id, NULL, 0));
	expect_msg(b, REJ);
	advance(b, 4 * (UINT64_C(4096) << 20) + MS);
	cr_expect_eq(b->cm->nids, 1);
	cm_bed_down(b);
}

Test(cm_end, c1_destroy_rep_rcvd)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct cm_bed_msg req;
	uint32_t id = cm_bed_rep_rcvd(b, 0, &req);

	cr_assert_eq(karst_cm_id_destroy(b->cm, id), 0);
	cr_expect_eq(expect_msg(b, REJ)->m.rej.message, KARST_CM_ABOUT_REP);
	send_msg(b, peer_rep(&req, 0));
	expect_msg(b, REJ);
	advance(b, 16 * (UINT64_C(4096) << 20) + MS);
	cr_expect_eq(b->cm->nids, 0);
	cm_bed_down(b);
}

/* The DREQ is repeated and time-wait passes, without the user. */
Test(cm_end, c1_destroy_established)
{
	struct cm_bed *b = cm_bed_listening();
	uint32_t id = cm_bed_passive(b, 0);
	struct cm_bed_msg dreq;

	cr_assert_eq(karst_cm_id_destroy(b->cm, id), 0);
	dreq = *expect_msg(b, DREQ);
	advance(b, 300 * MS);
	expect_msg(b, DREQ);
	send_msg(b, drep_for(&dreq, 0));
	cr_expect_eq(b->cm->nids, 2);
	advance(b, TIMEWAIT + MS);
	cr_expect_eq(b->cm->nids, 1);
	cm_bed_down(b);
}

Test(cm_end, c1_destroy_dreq_sent)
{
	struct karst_cm_config cfg = {.max_ids = 8, .max_retries = 1, .response_timeout = 16};
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, &cfg);
	uint32_t id = cm_bed_active(b, 0);

	cr_assert_eq(karst_cm_id_disconnect(b->cm, id, NULL, 0), 0);
	expect_msg(b, DREQ);
	cr_assert_eq(karst_cm_id_destroy(b->cm, id), 0);
	advance(b, 400 * MS);
	expect_msg(b, DREQ);
	advance(b, 2 * SECOND);
	cr_expect_eq(b->cm->nids, 0);
	cm_bed_down(b);
}

/* Crossed DREQs, without a user. */
Test(cm_end, c1_destroy_crossed)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	uint32_t id = cm_bed_active(b, 0);

	cr_assert_eq(karst_cm_id_destroy(b->cm, id), 0);
	expect_msg(b, DREQ);
	send_msg(b, peer_dreq(id, 0));
	expect_msg(b, DREP);
	advance(b, TIMEWAIT + MS);
	cr_expect_eq(b->cm->nids, 0);
	cm_bed_down(b);
}

Test(cm_end, c1_destroy_dreq_rcvd_and_timewait)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	uint32_t id = cm_bed_active(b, 0);

	send_msg(b, peer_dreq(id, 0));
	expect_ev(b, DREQ);
	cr_assert_eq(karst_cm_id_destroy(b->cm, id), 0);
	expect_msg(b, DREP);
	send_msg(b, peer_dreq(id, 0));
	expect_msg(b, DREP);
	advance(b, TIMEWAIT + MS);
	cr_expect_eq(b->cm->nids, 0);

	id = cm_bed_active(b, 1);
	send_msg(b, peer_dreq(id, 1));
	expect_ev(b, DREQ);
	cr_assert_eq(karst_cm_id_disconnect_reply(b->cm, id, NULL, 0), 0);
	expect_msg(b, DREP);
	cr_assert_eq(karst_cm_id_destroy(b->cm, id), 0);
	advance(b, TIMEWAIT + MS);
	cr_expect_eq(b->cm->nids, 0);
	cm_bed_down(b);
}

/* The callback of an event may destroy its id, and others, too. */
static uint32_t other_id;

static void
destroy_both(struct cm_bed *b, const struct karst_cm_ev *ev)
{
	cr_assert_eq(karst_cm_id_destroy(b->cm, ev->id), 0);
	if (other_id != 0)
		cr_assert_eq(karst_cm_id_destroy(b->cm, other_id), 0);
	other_id = 0;
}

Test(cm_end, c1_destroy_in_event)
{
	struct karst_cm_config cfg = {.max_ids = 8, .max_retries = 1, .response_timeout = 16};
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, &cfg);
	struct cm_bed_msg req;
	uint32_t id;

	cm_bed_req_sent(b, 0, &req);
	other_id = cm_bed_req_sent(b, 1, &req);
	b->on_event = destroy_both;
	advance(b, 2 * SECOND);
	expect_msg(b, REQ);
	expect_msg(b, REQ);
	expect_msg(b, REJ); /* the one that timed out */
	expect_ev(b, REQ_ERROR);
	expect_msg(b, REJ); /* the other one */
	cr_expect_eq(b->cm->nids, 0);

	b->on_event = NULL;
	id = cm_bed_active(b, 2);
	b->on_event = destroy_both;
	send_msg(b, peer_dreq(id, 2));
	expect_ev(b, DREQ);
	expect_msg(b, DREP);
	cm_bed_down(b);
}

/* --- a DREQ instead of an RTU --- */

/* This side disconnects before the RTU, and its REP was lost.  The peer, which knows of no answer,
 * repeats its REQ, and is told that it is refused, for as long as it may repeat it; the REQ is not
 * taken for a new one. */
Test(cm_end, c1_disconnected_before_the_rtu)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct karst_cm_msg drep;
	struct cm_bed_msg dreq;
	uint32_t id, i;

	cm_bed_listen(b);
	id = cm_bed_rep_sent(b, 0);
	cr_assert_eq(karst_cm_id_disconnect(b->cm, id, NULL, 0), 0);
	dreq = *expect_msg(b, DREQ);
	send_msg(b, peer_req(b, 0));
	cr_expect_eq(expect_msg(b, REJ)->m.rej.reason, KARST_CM_REJ_CONSUMER_DEFINED);
	expect_no_ev(b);
	/* Linux answers a DREQ even while it waits for the REP */
	drep = peer_msg(KARST_CM_DREP, id, &dreq, 0);
	send_msg(b, drep);
	expect_ev(b, DREP);
	for (i = 0; i < 2; i++) {
		send_msg(b, peer_req(b, 0));
		expect_msg(b, REJ);
		advance(b, 8 * SECOND);
	}
	expect_no_ev(b);
	advance(b, 60 * SECOND);
	expect_ev(b, TIMEWAIT_EXIT);
	cm_bed_down(b);
}

/* A peer that has received the REP sends its RTU and then its DREP: a connection like others. */
Test(cm_end, c1_rtu_crosses_the_dreq)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct karst_cm_msg drep;
	struct cm_bed_msg dreq;
	uint32_t id;

	cm_bed_listen(b);
	id = cm_bed_rep_sent(b, 0);
	cr_assert_eq(karst_cm_id_disconnect(b->cm, id, NULL, 0), 0);
	dreq = *expect_msg(b, DREQ);
	send_msg(b, peer_msg(KARST_CM_RTU, id, NULL, 0));
	expect_no_msg(b);
	expect_no_ev(b);
	drep = peer_msg(KARST_CM_DREP, id, &dreq, 0);
	send_msg(b, drep);
	expect_ev(b, DREP);
	advance(b, 5 * SECOND);
	expect_ev(b, TIMEWAIT_EXIT);
	cm_bed_down(b);
}

/* --- table entries --- */

/* Orphans make room for new connections, the oldest first; ids with a user never do. */
Test(cm_end, c1_orphans_make_room)
{
	struct karst_cm_config cfg = {.max_ids = 4};
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, &cfg);
	struct cm_bed_msg req;
	uint32_t ids[4], i, id;

	for (i = 0; i < 4; i++)
		ids[i] = cm_bed_active(b, i);
	cr_expect_eq(karst_cm_id_connect(b->cm, &b->path, SERVICE, &b->param, NULL, &id), -ENOSPC);
	cr_expect_eq(karst_cm_id_listen(b->cm, SERVICE, UINT64_MAX, NULL, &id), -ENOSPC);
	cr_expect_eq(
		karst_cm_id_sidr_request(b->cm, &b->path, SERVICE, NULL, 0, NULL, &id), -ENOSPC);
	for (i = 0; i < 2; i++) {
		cr_assert_eq(karst_cm_id_destroy(b->cm, ids[i]), 0);
		expect_msg(b, DREQ);
	}
	cm_bed_req_sent(b, 10, &req);
	advance(b, 300 * MS);
	expect_msg(b, DREQ); /* for the second one, which still exists */
	expect_msg(b, REQ);
	cm_bed_req_sent(b, 11, &req);
	cr_expect_eq(karst_cm_id_connect(b->cm, &b->path, SERVICE, &b->param, NULL, &id), -ENOSPC);
	cm_bed_down(b);
}

/* Requests that were answered with a REJ or a SIDR REP are forgotten before connections that are
 * still to be ended: any host can have thousands of requests refused. */
Test(cm_end, c1_refused_requests_make_room_first)
{
	struct karst_cm_config cfg = {.max_ids = 6};
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, &cfg);
	struct karst_cm_msg m = {.kind = KARST_CM_SIDR_REQ, .tid = TID, .local_id = PEER_ID + 20};
	uint32_t id, i;

	cm_bed_listen(b);
	id = cm_bed_active(b, 1);
	cr_assert_eq(karst_cm_id_destroy(b->cm, id), 0);
	expect_msg(b, DREQ);
	for (i = 10; i < 18; i++) {
		id = cm_bed_req_rcvd(b, i);
		cr_assert_eq(karst_cm_id_destroy(b->cm, id), 0);
		expect_msg(b, REJ);
		m.local_id++;
		m.sidr_req.service_id = SERVICE;
		m.sidr_req.pkey = 0xffff;
		send_msg(b, m);
		id = expect_ev(b, SIDR_REQ)->id;
		cr_assert_eq(karst_cm_id_destroy(b->cm, id), 0);
		expect_msg(b, SIDR_REP);
	}
	cr_assert_eq(b->cm->nids, 6);
	advance(b, 300 * MS);
	expect_msg(b, DREQ); /* it still waits for its DREP */
	cm_bed_down(b);
}

/* A reused table entry has another number, so that late messages do not match it. */
Test(cm_end, c1_numbers_are_not_used_again)
{
	struct karst_cm_config cfg = {.max_ids = 2};
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, &cfg);
	struct cm_bed_msg req;
	uint32_t ids[64], i, j;

	for (i = 0; i < 64; i++) {
		ids[i] = cm_bed_req_sent(b, 0, &req);
		cr_assert_neq(ids[i], 0);
		for (j = 0; j < i; j++)
			cr_assert_neq(ids[i], ids[j]);
		karst_cm_id_destroy(b->cm, ids[i]);
		expect_msg(b, REJ);
	}
	send_msg(b, peer_rep(&req, 0));
	expect_msg(b, REJ);
	cm_bed_down(b);
}
