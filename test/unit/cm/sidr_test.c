/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* SIDR REQ and SIDR REP: which queue pair serves datagrams (C2). */
#include "cm_bed.h"

static struct karst_cm_msg
peer_sidr_req(uint32_t n)
{
	struct karst_cm_msg m = {
		.kind = KARST_CM_SIDR_REQ, .tid = TID + n, .local_id = PEER_ID + n};

	m.sidr_req.service_id = SERVICE;
	m.sidr_req.pkey = 0xffff;
	m.private_data = (const uint8_t *)"hello";
	m.private_data_len = 5;
	return m;
}

static struct karst_cm_msg
peer_sidr_rep(const struct cm_bed_msg *req)
{
	struct karst_cm_msg m = {
		.kind = KARST_CM_SIDR_REP, .tid = req->m.tid, .local_id = req->m.local_id};

	m.sidr_rep.service_id = SERVICE;
	m.sidr_rep.qpn = PEER_QPN;
	m.sidr_rep.qkey = 0x01234567;
	m.private_data = (const uint8_t *)"here";
	m.private_data_len = 4;
	return m;
}

Test(cm_sidr, c2_asked)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	const struct karst_cm_ev *ev;
	struct cm_bed_msg req;
	uint32_t id;

	cr_assert_eq(
		karst_cm_id_sidr_request(b->cm, &b->path, SERVICE, "where", 5, BED_USER, &id), 0);
	req = *expect_msg(b, SIDR_REQ);
	cr_expect_eq(req.m.local_id, id);
	cr_expect_eq(req.m.sidr_req.service_id, SERVICE);
	cr_expect_eq(req.m.sidr_req.pkey, 0xffff);
	cr_expect_arr_eq(req.m.private_data, "where\0", 6);
	advance(b, 300 * MS);
	cr_expect_arr_eq(expect_msg(b, SIDR_REQ)->mad, req.mad, KARST_CM_MAD_LEN);
	send_msg(b, peer_sidr_rep(&req));
	ev = expect_ev(b, SIDR_REP);
	cr_expect_eq(ev->id, id);
	cr_expect_eq(ev->user, BED_USER);
	cr_expect_eq(ev->reason, KARST_CM_SIDR_SUCCESS);
	cr_expect_eq(ev->service_id, SERVICE);
	cr_expect_eq(ev->remote.qp_type, KARST_QPT_UD);
	cr_expect_eq(ev->remote.qpn, PEER_QPN);
	cr_expect_eq(ev->remote.qkey, 0x01234567);
	cr_expect_eq(ev->remote.private_data_len, KARST_CM_SIDR_REP_PRIVATE);
	cr_expect_str_eq(ev->remote.private_data, "here");
	send_msg(b, peer_sidr_rep(&req));
	cr_expect_eq(counted(b, STATE), 1);
	cr_expect_eq(state_of(b, id), KARST_CM_IDLE);
	advance(b, 100 * SECOND);
	cm_bed_down(b);
}

Test(cm_sidr, c2_refused)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	const struct karst_cm_ev *ev;
	struct karst_cm_msg rep;
	struct cm_bed_msg req;
	uint32_t id;

	cr_assert_eq(karst_cm_id_sidr_request(b->cm, &b->path, SERVICE, NULL, 0, NULL, &id), 0);
	req = *expect_msg(b, SIDR_REQ);
	rep = peer_sidr_rep(&req);
	rep.sidr_rep.status = KARST_CM_SIDR_UNSUPPORTED;
	rep.info = (const uint8_t *)"info";
	rep.info_len = 4;
	send_from(b, 1, rep); /* from another sender */
	rep.tid++;
	send_msg(b, rep);
	cr_expect_eq(counted(b, FORGED), 2);
	rep.tid--;
	rep.local_id++;
	send_msg(b, rep);
	cr_expect_eq(counted(b, NO_ID), 1);
	rep.local_id--;
	send_msg(b, rep);
	ev = expect_ev(b, SIDR_REP);
	cr_expect_eq(ev->reason, KARST_CM_SIDR_UNSUPPORTED);
	cr_expect_eq(ev->info_len, 4);
	cm_bed_down(b);
}

Test(cm_sidr, c2_lost)
{
	struct karst_cm_config cfg = {.max_ids = 4, .max_retries = 1, .response_timeout = 16};
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, &cfg);
	uint32_t id;

	cr_assert_eq(karst_cm_id_sidr_request(b->cm, &b->path, SERVICE, NULL, 0, NULL, &id), 0);
	advance(b, 600 * MS);
	expect_msg(b, SIDR_REQ);
	expect_msg(b, SIDR_REQ);
	cr_expect_eq(expect_ev(b, SIDR_ERROR)->id, id);
	cr_assert_eq(karst_cm_id_destroy(b->cm, id), 0);
	cr_assert_eq(karst_cm_id_sidr_request(b->cm, &b->path, SERVICE, NULL, 0, NULL, &id), 0);
	expect_msg(b, SIDR_REQ);
	cr_assert_eq(karst_cm_id_destroy(b->cm, id), 0);
	advance(b, 10 * SECOND);
	cm_bed_down(b);
}

/* The user gets one event, and the same answer is repeated for as long as the peer may repeat the
 * request. */
Test(cm_sidr, c2_asks)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	uint32_t listener = cm_bed_listen(b), id;
	struct karst_cm_param p = {.qpn = OUR_QPN,
		.qkey = 0x7654321,
		.private_data = "at your service",
		.private_data_len = 15};
	const struct karst_cm_ev *ev;
	struct cm_bed_msg first;

	send_msg(b, peer_sidr_req(0));
	ev = expect_ev(b, SIDR_REQ);
	id = ev->id;
	cr_expect_eq(ev->listen_id, listener);
	cr_expect_eq(ev->listen_user, BED_LISTENER);
	cr_expect_eq(ev->service_id, SERVICE);
	cr_expect_eq(ev->remote.private_data_len, KARST_CM_SIDR_REQ_PRIVATE);
	cr_expect_str_eq(ev->remote.private_data, "hello");
	cr_expect_arr_eq(ev->path->remote_ip, b->path.remote_ip, 16);
	send_msg(b, peer_sidr_req(0));
	cr_expect_eq(duplicates(b, SIDR_REQ), 1);
	cr_expect_eq(b->cm->nhalf_open, 1);
	cr_expect_eq(karst_cm_id_sidr_reply(b->cm, id, 0, NULL), -EINVAL);
	p.private_data_len = KARST_CM_SIDR_REP_PRIVATE + 1;
	cr_expect_eq(karst_cm_id_sidr_reply(b->cm, id, 0, &p), -EMSGSIZE);
	p.private_data_len = 15;
	p.qpn = 1u << 24;
	cr_expect_eq(karst_cm_id_sidr_reply(b->cm, id, 0, &p), -EINVAL);
	p.qpn = OUR_QPN;
	cr_assert_eq(karst_cm_id_sidr_reply(b->cm, id, KARST_CM_SIDR_SUCCESS, &p), 0);
	first = *expect_msg(b, SIDR_REP);
	cr_expect_eq(first.m.tid, TID);
	cr_expect_eq(first.m.local_id, PEER_ID); /* the peer's number */
	cr_expect_eq(first.m.sidr_rep.status, 0);
	cr_expect_eq(first.m.sidr_rep.qpn, OUR_QPN);
	cr_expect_eq(first.m.sidr_rep.qkey, 0x7654321);
	cr_expect_eq(first.m.sidr_rep.service_id, SERVICE);
	cr_expect_arr_eq(first.m.private_data, "at your service\0", 16);
	cr_expect_eq(b->cm->nhalf_open, 0);
	advance(b, 5 * SECOND);
	send_msg(b, peer_sidr_req(0));
	cr_expect_arr_eq(expect_msg(b, SIDR_REP)->mad, first.mad, KARST_CM_MAD_LEN);
	/* destroyed for its user, but still known to the peer */
	cr_assert_eq(karst_cm_id_destroy(b->cm, id), 0);
	send_msg(b, peer_sidr_req(0));
	expect_msg(b, SIDR_REP);
	advance(b, 100 * SECOND);
	cr_expect_eq(b->cm->nids, 1);
	send_msg(b, peer_sidr_req(0));
	expect_ev(b, SIDR_REQ);
	cm_bed_down(b);
}

Test(cm_sidr, c2_asks_in_vain)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct karst_cm_msg req;
	struct cm_bed_msg *m;
	uint32_t id;

	send_msg(b, peer_sidr_req(0));
	m = expect_msg(b, SIDR_REP);
	cr_expect_eq(m->m.sidr_rep.status, KARST_CM_SIDR_UNSUPPORTED);
	cr_expect_eq(m->m.local_id, PEER_ID);
	cr_expect_eq(m->m.tid, TID);
	cr_expect_eq(b->cm->nids, 0);
	cr_expect_eq(counted(b, NO_SERVICE), 1);

	cm_bed_listen(b);
	send_msg(b, peer_sidr_req(1));
	id = expect_ev(b, SIDR_REQ)->id;
	cr_assert_eq(karst_cm_id_sidr_reply(b->cm, id, KARST_CM_SIDR_NO_QP, NULL), 0);
	cr_expect_eq(expect_msg(b, SIDR_REP)->m.sidr_rep.status, KARST_CM_SIDR_NO_QP);

	send_msg(b, peer_sidr_req(2));
	id = expect_ev(b, SIDR_REQ)->id;
	cr_assert_eq(karst_cm_id_destroy(b->cm, id), 0);
	cr_expect_eq(expect_msg(b, SIDR_REP)->m.sidr_rep.status, KARST_CM_SIDR_REJECT);

	/* the user does not answer; the number is used again after that */
	send_msg(b, peer_sidr_req(3));
	id = expect_ev(b, SIDR_REQ)->id;
	req = peer_sidr_req(3);
	req.tid += 1000;
	send_msg(b, req);
	cr_expect_neq(expect_ev(b, SIDR_REQ)->id, id);
	advance(b, 100 * SECOND);
	cr_expect_eq(expect_ev(b, SIDR_ERROR)->id, id);
	expect_ev(b, SIDR_ERROR);
	cr_expect_eq(karst_cm_id_sidr_reply(b->cm, id, KARST_CM_SIDR_NO_QP, NULL), -EINVAL);
	cm_bed_down(b);
}

/* Numbers of requests and of connections are distinct. */
Test(cm_sidr, c2_request_is_no_connection)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	uint32_t id;

	cm_bed_listen(b);
	send_msg(b, peer_sidr_req(0));
	expect_ev(b, SIDR_REQ);
	id = cm_bed_passive(b, 0);
	send_msg(b, peer_sidr_req(0));
	cr_expect_eq(duplicates(b, SIDR_REQ), 1);
	cr_expect_eq(state_of(b, id), KARST_CM_ESTABLISHED);
	cm_bed_down(b);
}

Test(cm_sidr, c2_flood)
{
	struct karst_cm_config cfg = {.max_ids = 64, .max_half_open = 8};
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, &cfg);
	uint32_t i;

	cm_bed_listen(b);
	for (i = 0; i < 100; i++)
		send_msg(b, peer_sidr_req(i));
	cr_expect_eq(b->cm->nhalf_open, 4);
	cr_expect_eq(counted(b, FLOOD), 96);
	for (i = 0; i < 4; i++)
		expect_ev(b, SIDR_REQ);
	cm_bed_down(b);
}
