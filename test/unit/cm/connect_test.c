/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Establishing connections: REQ, REP, RTU, MRA, both sides, lost and duplicated messages (C1,
 * C2). */
#include "cm_bed.h"

#include <stdio.h>

#include "karst_hdr.h"
#include "karst_wheel.h"

/* --- the active side --- */

Test(cm_connect, c1_active)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct karst_cm_info info;
	const struct karst_cm_ev *ev;
	struct cm_bed_msg *rtu, req;
	uint32_t id = cm_bed_req_sent(b, 0, &req);

	cr_expect_eq(state_of(b, id), KARST_CM_REQ_SENT);
	send_msg(b, peer_rep(&req, 0));
	ev = expect_ev(b, REP);
	cr_expect_eq(ev->id, id);
	cr_expect_eq(ev->user, BED_USER);
	cr_expect_eq(ev->remote_guid, PEER_GUID);
	cr_expect_eq(ev->remote.qp_type, KARST_QPT_RC);
	cr_expect_eq(ev->remote.qpn, PEER_QPN);
	cr_expect_eq(ev->remote.psn, 0x777777);
	cr_expect_eq(ev->remote.responder_resources, 1); /* what the peer may have outstanding */
	cr_expect_eq(ev->remote.initiator_depth, 2);     /* what the peer can hold for us */
	cr_expect_eq(ev->remote.rnr_retry_count, 7);
	cr_expect_eq(ev->target_ack_delay, 15);
	cr_expect_eq(ev->remote.private_data_len, KARST_CM_REP_PRIVATE);
	cr_expect_str_eq(ev->remote.private_data, "welcome");
	cr_expect_eq(state_of(b, id), KARST_CM_REP_RCVD);

	cr_assert_eq(karst_cm_id_ready(b->cm, id, "go", 2), 0);
	rtu = expect_msg(b, RTU);
	cr_expect_eq(rtu->m.tid, req.m.tid);
	cr_expect_eq(rtu->m.local_id, id);
	cr_expect_eq(rtu->m.remote_id, PEER_ID);
	cr_expect_arr_eq(rtu->m.private_data, "go\0", 3);
	cr_expect_arr_eq(rtu->path.remote_ip, b->path.remote_ip, 16);
	cr_assert_eq(karst_cm_id_info(b->cm, id, &info), 0);
	cr_expect_eq(info.state, KARST_CM_ESTABLISHED);
	cr_expect_eq(info.remote_id, PEER_ID);
	cr_expect_eq(info.remote_qpn, PEER_QPN);
	cr_expect_eq(info.local_qpn, OUR_QPN);
	cr_expect_eq(counted(b, ESTABLISHED), 1);
	advance(b, 1000 * SECOND);
	cm_bed_down(b);
}

/* The contents of a REQ. */
Test(cm_connect, c2_req)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	const struct karst_cm_req *req;
	struct cm_bed_msg m;
	uint32_t id;

	b->path.tclass = 0x20;
	b->path.sl = 3;
	b->path.rate = 7;
	b->param.srq = true;
	b->param.flow_control = true;
	id = cm_bed_req_sent(b, 0, &m);
	req = &m.m.req;
	cr_expect_eq(m.m.local_id, id);
	cr_expect_neq(m.m.tid, 0);
	cr_expect_eq(req->service_id, SERVICE);
	cr_expect_eq(req->guid, OUR_GUID);
	cr_expect_eq(req->qpn, OUR_QPN);
	cr_expect_eq(req->psn, 0x654321);
	cr_expect_eq(req->pkey, 0xffff);
	cr_expect_eq(req->mtu, 3);
	cr_expect_eq(req->responder_resources, 4);
	cr_expect_eq(req->initiator_depth, 3);
	cr_expect_eq(req->retry_count, 7);
	cr_expect_eq(req->rnr_retry_count, 6);
	cr_expect_eq(req->transport, KARST_CM_TRANSPORT_RC);
	cr_expect_eq(req->max_retries, 15);
	cr_expect_eq(req->remote_response_timeout, 20);
	cr_expect(req->srq && req->flow_control);
	cr_expect_arr_eq(req->primary.local_gid, b->path.local_ip, 16);
	cr_expect_arr_eq(req->primary.remote_gid, b->path.remote_ip, 16);
	cr_expect_eq(req->primary.flow_label, 0x12345);
	cr_expect_eq(req->primary.tclass, 0x20);
	cr_expect_eq(req->primary.sl, 3);
	cr_expect_eq(req->primary.rate, 7);
	cr_expect_eq(req->primary.ack_timeout, 17);
	cr_expect_not(req->primary.subnet_local);
	cr_expect_arr_eq(m.m.private_data, "from us\0", 8);
	karst_cm_id_destroy(b->cm, id);
	expect_msg(b, REJ);
	cm_bed_down(b);
}

/* The same REQ as rping on a Linux host sends, except for ids and transaction (test/captures). */
Test(cm_connect, c1_c2_as_linux)
{
	static const char linux_req[] =
		"ff3f9f05000000000000000001061c06505400fffe000001000000000000000000003d01"
		"00000001000000a00e203da7ffff37f0ffffffff00000000000000000000ffffc0000201"
		"00000000000000000000ffffc00002025746100000400088000000000000000000000000"
		"00000000000000000000000000000000000000000000000000000000000000000040b045"
		"000000000000000000000000c0000201000000000000000000000000c0000202";
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct karst_cm_ip ip = {.src_port = 0xb045};
	uint8_t header[KARST_CM_IP_LEN], want[232] = {0};
	unsigned int i, byte;
	uint32_t id;

	for (i = 0; i < sizeof(linux_req) / 2; i++) {
		cr_assert_eq(sscanf(linux_req + 2 * i, "%2x", &byte), 1);
		want[i] = (uint8_t)byte;
	}
	memcpy(ip.src_ip, b->path.local_ip, 16);
	memcpy(ip.dst_ip, b->path.remote_ip, 16);
	karst_cm_ip_build(&ip, header);
	b->path.flow_label = 0x57461;
	b->param = (struct karst_cm_param){.qp_type = KARST_QPT_RC,
		.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 7,
		.rnr_retry_count = 7,
		.qpn = 0x3d,
		.psn = 0x0e203d,
		.private_data = header,
		.private_data_len = sizeof(header)};
	cr_assert_eq(karst_cm_id_connect(b->cm, &b->path, SERVICE, &b->param, NULL, &id), 0);
	karst_put_be32(want, id);
	karst_put_be64(want + 16, OUR_GUID);
	cr_expect_arr_eq(expect_msg(b, REQ)->mad + 24, want, sizeof(want));
	karst_cm_id_destroy(b->cm, id);
	expect_msg(b, REJ);
	cm_bed_down(b);
}

/* No deadline was due for longer than the range of the timers, 4.9 hours: a message that is sent
 * then still has its usual timeout. */
Test(cm_connect, c1_req_after_hours_of_silence)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct cm_bed_msg req;
	uint32_t id;

	b->cm->now_ns += 24 * 3600 * SECOND;
	id = cm_bed_req_sent(b, 0, &req);
	advance(b, 260 * MS);
	expect_no_msg(b);
	advance(b, 10 * MS);
	cr_expect_arr_eq(expect_msg(b, REQ)->mad, req.mad, KARST_CM_MAD_LEN);
	karst_cm_id_destroy(b->cm, id);
	expect_msg(b, REJ);
	cm_bed_down(b);
}

/* The timeout starts short and doubles, and the last one is the full one; then the peer gets a REJ,
 * and the user an event. */
Test(cm_connect, c1_req_lost)
{
	struct karst_cm_config cfg = {.max_ids = 4, .max_retries = 5, .response_timeout = 18};
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, &cfg);
	uint64_t full = UINT64_C(4096) << 18, wait = UINT64_C(4096) << 16;
	struct cm_bed_msg req, *m;
	uint32_t id = cm_bed_req_sent(b, 0, &req);
	unsigned int i, ticks;

	for (i = 0; i < 5; i++) {
		advance(b, wait - 3 * KARST_WHEEL_TICK_NS);
		expect_no_msg(b);
		for (ticks = 0; ticks < 6 && b->out_head == b->out_tail; ticks++)
			advance(b, KARST_WHEEL_TICK_NS);
		m = expect_msg(b, REQ);
		cr_expect_arr_eq(m->mad, req.mad, KARST_CM_MAD_LEN);
		wait = wait * 2 < full ? wait * 2 : full;
	}
	advance(b, full - 3 * KARST_WHEEL_TICK_NS);
	expect_no_msg(b);
	expect_no_ev(b);
	advance(b, 6 * KARST_WHEEL_TICK_NS);
	m = expect_msg(b, REJ);
	cr_expect_eq(m->m.rej.reason, KARST_CM_REJ_TIMEOUT);
	cr_expect_eq(m->m.local_id, id);
	cr_expect_eq(m->m.info_len, 8);
	cr_expect_eq(karst_get_be64(m->m.info), OUR_GUID);
	cr_expect_eq(expect_ev(b, REQ_ERROR)->id, id);
	cr_expect_eq(state_of(b, id), KARST_CM_IDLE);
	cr_expect_eq(b->cm->counters.tx_retries[KARST_CM_REQ], 5);
	cr_expect_eq(counted(b, TIMEOUTS), 1);
	/* too late: the peer must not wait for an RTU */
	send_msg(b, peer_rep(&req, 0));
	cr_expect_eq(expect_msg(b, REJ)->m.rej.reason, KARST_CM_REJ_INVALID_COMM_ID);
	cr_assert_eq(karst_cm_id_destroy(b->cm, id), 0);
	send_msg(b, peer_rep(&req, 0));
	m = expect_msg(b, REJ);
	cr_expect_eq(m->m.rej.reason, KARST_CM_REJ_INVALID_COMM_ID);
	cr_expect_eq(m->m.rej.message, KARST_CM_ABOUT_REP);
	cr_expect_eq(m->m.remote_id, PEER_ID);
	cm_bed_down(b);
}

/* A second REP is answered by the RTU again, which may have been lost. */
Test(cm_connect, c1_rep_twice)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct cm_bed_msg req, *rtu;
	uint32_t id = cm_bed_rep_rcvd(b, 0, &req);
	uint8_t first[KARST_CM_MAD_LEN];

	send_msg(b, peer_rep(&req, 0)); /* the user has not decided yet */
	expect_no_msg(b);
	cr_assert_eq(karst_cm_id_mra(b->cm, id, 20, "wait", 4), 0);
	rtu = expect_msg(b, MRA);
	cr_expect_eq(rtu->m.mra.message, KARST_CM_ABOUT_REP);
	cr_expect_eq(rtu->m.mra.service_timeout, 20);
	cr_expect_arr_eq(rtu->m.private_data, "wait\0", 5);
	send_msg(b, peer_rep(&req, 0));
	expect_msg(b, MRA);
	cr_assert_eq(karst_cm_id_ready(b->cm, id, NULL, 0), 0);
	memcpy(first, expect_msg(b, RTU)->mad, sizeof(first));
	send_msg(b, peer_rep(&req, 0));
	cr_expect_arr_eq(expect_msg(b, RTU)->mad, first, sizeof(first));
	cr_expect_eq(duplicates(b, REP), 3);
	cm_bed_down(b);
}

/* An MRA stops the retransmissions for the time that it asks for, once for each message sent. */
Test(cm_connect, c1_mra_for_req)
{
	struct karst_cm_config cfg = {.max_ids = 4, .max_retries = 1};
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, &cfg);
	struct cm_bed_msg req;
	uint32_t id = cm_bed_req_sent(b, 0, &req);
	struct karst_cm_msg mra = peer_msg(KARST_CM_MRA, id, &req, 0);
	const struct karst_cm_ev *ev;

	mra.mra.message = KARST_CM_ABOUT_REQ;
	mra.mra.service_timeout = 24;
	mra.private_data = (const uint8_t *)"soon";
	mra.private_data_len = 4;
	send_msg(b, mra);
	ev = expect_ev(b, MRA);
	cr_expect_eq(ev->id, id);
	cr_expect_eq(ev->service_timeout, 24);
	cr_expect_eq(ev->message, KARST_CM_ABOUT_REQ);
	cr_expect_str_eq(ev->remote.private_data, "soon");
	advance(b, 60 * SECOND);
	expect_no_msg(b);
	send_msg(b, mra); /* a duplicate changes nothing */
	cr_expect_eq(duplicates(b, MRA), 1);
	advance(b, 14 * SECOND);
	expect_msg(b, REQ);
	send_msg(b, mra); /* for this one */
	expect_ev(b, MRA);
	advance(b, 60 * SECOND);
	send_msg(b, peer_rep(&req, 0));
	expect_ev(b, REP);
	/* about a message for which no answer is due */
	send_msg(b, mra);
	cr_expect_eq(counted(b, STATE), 1);
	karst_cm_id_destroy(b->cm, id);
	expect_msg(b, REJ);
	cm_bed_down(b);
}

/* --- the passive side --- */

Test(cm_connect, c1_passive)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	uint32_t listener = cm_bed_listen(b), id;
	const struct karst_cm_ev *ev;
	struct karst_cm_msg req = peer_req(b, 0), rtu;
	struct cm_bed_msg *m;

	req.req.primary.flow_label = 0xfedcb;
	send_msg(b, req);
	ev = expect_ev(b, REQ);
	id = ev->id;
	cr_expect_eq(ev->listen_id, listener);
	cr_expect_eq(ev->listen_user, BED_LISTENER);
	cr_expect_null(ev->user);
	cr_expect_eq(ev->service_id, SERVICE);
	cr_expect_eq(ev->remote_guid, PEER_GUID);
	cr_expect_eq(ev->remote.qp_type, KARST_QPT_RC);
	cr_expect_eq(ev->remote.qpn, PEER_QPN);
	cr_expect_eq(ev->remote.psn, 0x123456);
	cr_expect_eq(ev->remote.responder_resources, 8);
	cr_expect_eq(ev->remote.initiator_depth, 16);
	cr_expect_eq(ev->remote.retry_count, 7);
	cr_expect_eq(ev->remote.rnr_retry_count, 5);
	cr_expect_eq(ev->remote.private_data_len, KARST_CM_REQ_PRIVATE);
	cr_expect_str_eq(ev->remote.private_data, "from the peer");
	cr_expect_arr_eq(ev->path->remote_ip, b->path.remote_ip, 16);
	cr_expect_arr_eq(ev->path->local_ip, b->path.local_ip, 16);
	cr_expect_eq(ev->path->flow_label, 0xfedcb);
	cr_expect_eq(ev->path->tclass, 0x20);
	cr_expect_eq(ev->path->mtu, 3);
	cr_expect_eq(ev->path->ack_timeout, 17);
	cr_expect_eq(b->cm->nhalf_open, 1);

	cr_assert_eq(karst_cm_id_set_user(b->cm, id, BED_USER), 0);
	cr_assert_eq(karst_cm_id_accept(b->cm, id, &b->param), 0);
	m = expect_msg(b, REP);
	cr_expect_eq(m->m.tid, TID);
	cr_expect_eq(m->m.local_id, id);
	cr_expect_eq(m->m.remote_id, PEER_ID);
	cr_expect_eq(m->m.rep.guid, OUR_GUID);
	cr_expect_eq(m->m.rep.qpn, OUR_QPN);
	cr_expect_eq(m->m.rep.eecn, 0);
	cr_expect_eq(m->m.rep.psn, 0x654321);
	cr_expect_eq(m->m.rep.responder_resources, 4);
	cr_expect_eq(m->m.rep.initiator_depth, 3);
	cr_expect_eq(m->m.rep.rnr_retry_count, 6);
	cr_expect_eq(m->m.rep.failover, KARST_CM_FAILOVER_ACCEPTED);
	cr_expect_arr_eq(m->m.private_data, "from us\0", 8);
	cr_expect_eq(state_of(b, id), KARST_CM_REP_SENT);

	rtu = peer_msg(KARST_CM_RTU, id, NULL, 0);
	rtu.private_data = (const uint8_t *)"go";
	rtu.private_data_len = 2;
	send_msg(b, rtu);
	ev = expect_ev(b, RTU);
	cr_expect_eq(ev->id, id);
	cr_expect_eq(ev->user, BED_USER);
	cr_expect_str_eq(ev->remote.private_data, "go");
	cr_expect_eq(state_of(b, id), KARST_CM_ESTABLISHED);
	cr_expect_eq(b->cm->nhalf_open, 0);
	send_msg(b, rtu);
	cr_expect_eq(duplicates(b, RTU), 1);
	/* late, duplicated by the network */
	send_msg(b, req);
	cr_expect_eq(duplicates(b, REQ), 1);
	advance(b, 1000 * SECOND);
	cm_bed_down(b);
}

/* A duplicate REQ before the user has decided is answered by an MRA, afterwards by the REP. */
Test(cm_connect, c1_req_twice)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct cm_bed_msg *m;
	uint32_t id;

	cm_bed_listen(b);
	id = cm_bed_req_rcvd(b, 0);
	send_msg(b, peer_req(b, 0));
	m = expect_msg(b, MRA);
	cr_expect_eq(m->m.tid, TID);
	cr_expect_eq(m->m.local_id, id);
	cr_expect_eq(m->m.remote_id, PEER_ID);
	cr_expect_eq(m->m.mra.message, KARST_CM_ABOUT_REQ);
	cr_expect_eq(m->m.mra.service_timeout, 24);
	send_msg(b, peer_req(b, 0));
	expect_msg(b, MRA);
	/* the user's own MRA has precedence */
	cr_assert_eq(karst_cm_id_mra(b->cm, id, 21, NULL, 0), 0);
	expect_msg(b, MRA);
	send_msg(b, peer_req(b, 0));
	cr_expect_eq(expect_msg(b, MRA)->m.mra.service_timeout, 21);
	cr_assert_eq(karst_cm_id_accept(b->cm, id, &b->param), 0);
	expect_msg(b, REP);
	send_msg(b, peer_req(b, 0));
	expect_msg(b, REP);
	cr_expect_eq(duplicates(b, REQ), 4);
	send_msg(b, peer_msg(KARST_CM_RTU, id, NULL, 0));
	expect_ev(b, RTU);
	cm_bed_down(b);
}

Test(cm_connect, c1_mra_never)
{
	struct karst_cm_config cfg = {.max_ids = 8, .mra_service_timeout = 255};
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, &cfg);

	cm_bed_listen(b);
	cm_bed_req_rcvd(b, 0);
	send_msg(b, peer_req(b, 0));
	cm_bed_down(b);
}

/* No RTU: the REP is repeated as often and at the intervals that the REQ asked for. */
Test(cm_connect, c1_rep_lost)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	uint64_t full = UINT64_C(4096) << 18;
	struct karst_cm_msg mra;
	struct cm_bed_msg *rej;
	uint32_t id;

	cm_bed_listen(b);
	id = cm_bed_rep_sent(b, 0);
	advance(b, 1 * SECOND);
	expect_msg(b, REP);
	expect_msg(b, REP);
	mra = peer_msg(KARST_CM_MRA, id, NULL, 0);
	mra.mra.message = KARST_CM_ABOUT_REP;
	mra.mra.service_timeout = 23;
	send_msg(b, mra);
	expect_ev(b, MRA);
	advance(b, 30 * SECOND);
	expect_no_msg(b);
	advance(b, (UINT64_C(4096) << 23) - 30 * SECOND + full + MS);
	expect_msg(b, REP);
	expect_no_ev(b);
	advance(b, full + MS);
	rej = expect_msg(b, REJ);
	cr_expect_eq(rej->m.rej.reason, KARST_CM_REJ_TIMEOUT);
	cr_expect_eq(rej->m.remote_id, PEER_ID);
	cr_expect_eq(expect_ev(b, REP_ERROR)->id, id);
	/* late: what the peer may have missed is sent again, and the user gets no second event */
	send_msg(b, peer_msg(KARST_CM_RTU, id, NULL, 0));
	cr_expect_eq(counted(b, STATE), 1);
	expect_msg(b, REJ);
	send_msg(b, peer_req(b, 0));
	expect_msg(b, REJ);
	cr_expect_eq(karst_cm_id_accept(b->cm, id, &b->param), -EINVAL);
	advance(b, 30 * SECOND);
	cr_expect_eq(state_of(b, id), KARST_CM_IDLE);
	cm_bed_down(b);
}

/* The RTU was lost, but the connection's first packet arrived. */
Test(cm_connect, c1_established_by_packet)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	uint32_t id;

	cm_bed_listen(b);
	id = cm_bed_req_rcvd(b, 0);
	cr_expect_eq(karst_cm_id_established(b->cm, id), -EINVAL);
	cr_assert_eq(karst_cm_id_accept(b->cm, id, &b->param), 0);
	expect_msg(b, REP);
	cr_expect_eq(karst_cm_id_established(b->cm, id), 0);
	cr_expect_eq(karst_cm_id_established(b->cm, id), -EALREADY);
	cr_expect_eq(counted(b, ESTABLISHED), 1);
	send_msg(b, peer_msg(KARST_CM_RTU, id, NULL, 0));
	cr_expect_eq(duplicates(b, RTU), 1);
	advance(b, 100 * SECOND);
	cm_bed_down(b);
}

/* The user decides later than the peer waits. */
Test(cm_connect, c1_req_never_answered)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	const struct karst_cm_ev *ev;
	uint32_t id;

	cm_bed_listen(b);
	id = cm_bed_req_rcvd(b, 0);
	advance(b, 4 * (UINT64_C(4096) << 20) - SECOND);
	expect_no_ev(b);
	advance(b, 2 * SECOND);
	cr_expect_eq(expect_msg(b, REJ)->m.rej.reason, KARST_CM_REJ_TIMEOUT);
	ev = expect_ev(b, REJ);
	cr_expect_eq(ev->id, id);
	cr_expect(ev->local);
	cr_expect_eq(ev->reason, KARST_CM_REJ_TIMEOUT);
	cr_expect_eq(karst_cm_id_accept(b->cm, id, &b->param), -EINVAL);
	cm_bed_down(b);
}

/* UC and XRC: how they are encoded, and where an XRC target's number is. */
Test(cm_connect, c2_transports)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct karst_cm_msg rep, req;
	struct cm_bed_msg m;
	uint32_t id;

	b->param.qp_type = KARST_QPT_UC;
	cm_bed_req_sent(b, 0, &m);
	cr_expect_eq(m.m.req.transport, KARST_CM_TRANSPORT_UC);

	b->param.qp_type = KARST_QPT_XRC_SEND;
	id = cm_bed_req_sent(b, 1, &m);
	cr_expect_eq(m.m.req.transport, KARST_CM_TRANSPORT_EXTENDED);
	cr_expect_eq(m.m.req.extended_transport, KARST_CM_EXTENDED_XRC);
	cr_expect_eq(m.m.req.responder_resources, 0);
	cr_expect_eq(m.m.req.initiator_depth, 3);
	rep = peer_rep(&m, 1);
	rep.rep.qpn = 0;
	rep.rep.eecn = 0x3333;
	send_msg(b, rep);
	cr_expect_eq(expect_ev(b, REP)->remote.qpn, 0x3333);
	cr_assert_eq(karst_cm_id_ready(b->cm, id, NULL, 0), 0);
	expect_msg(b, RTU);
	cr_assert_eq(karst_cm_id_disconnect(b->cm, id, NULL, 0), 0);
	cr_expect_eq(expect_msg(b, DREQ)->m.dreq.qpn, 0x3333);

	cm_bed_listen(b);
	req = peer_req(b, 2);
	req.req.transport = KARST_CM_TRANSPORT_EXTENDED;
	req.req.extended_transport = KARST_CM_EXTENDED_XRC;
	send_msg(b, req);
	id = expect_ev(b, REQ)->id;
	b->param.qp_type = KARST_QPT_RC;
	cr_expect_eq(karst_cm_id_accept(b->cm, id, &b->param), -EINVAL);
	b->param.qp_type = KARST_QPT_XRC_RECV;
	b->param.qpn = 0x4444;
	cr_assert_eq(karst_cm_id_accept(b->cm, id, &b->param), 0);
	m = *expect_msg(b, REP);
	cr_expect_eq(m.m.rep.qpn, 0);
	cr_expect_eq(m.m.rep.eecn, 0x4444);
	cr_expect(m.m.rep.srq);
	cm_bed_down(b);
}

/* --- invalid calls --- */

Test(cm_connect, c1_calls_refused)
{
	struct karst_cm_config cfg = {.max_ids = 3};
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, &cfg);
	struct karst_cm_param p = b->param;
	struct karst_cm_path path = b->path;
	uint8_t data[256] = {0};
	uint32_t id = 77, other;

	p.private_data = data;
	p.private_data_len = KARST_CM_REQ_PRIVATE + 1;
	cr_expect_eq(karst_cm_id_connect(b->cm, &path, SERVICE, &p, NULL, &id), -EMSGSIZE);
	p = b->param;
	p.qp_type = KARST_QPT_UD;
	cr_expect_eq(karst_cm_id_connect(b->cm, &path, SERVICE, &p, NULL, &id), -EINVAL);
	p.qp_type = KARST_QPT_XRC_RECV;
	cr_expect_eq(karst_cm_id_connect(b->cm, &path, SERVICE, &p, NULL, &id), -EINVAL);
	p = b->param;
	p.qpn = 0;
	cr_expect_eq(karst_cm_id_connect(b->cm, &path, SERVICE, &p, NULL, &id), -EINVAL);
	p.qpn = 1u << 24;
	cr_expect_eq(karst_cm_id_connect(b->cm, &path, SERVICE, &p, NULL, &id), -EINVAL);
	p = b->param;
	p.rnr_retry_count = 8;
	cr_expect_eq(karst_cm_id_connect(b->cm, &path, SERVICE, &p, NULL, &id), -EINVAL);
	p = b->param;
	path.mtu = 6;
	cr_expect_eq(karst_cm_id_connect(b->cm, &path, SERVICE, &p, NULL, &id), -EINVAL);
	path = b->path;
	path.flow_label = 1u << 20;
	cr_expect_eq(karst_cm_id_connect(b->cm, &path, SERVICE, &p, NULL, &id), -EINVAL);
	cr_expect_eq(id, 77);
	cr_expect_eq(b->cm->nids, 0);

	id = cm_bed_listen(b);
	cr_expect_eq(karst_cm_id_listen(b->cm, SERVICE, UINT64_MAX, NULL, &other), -EADDRINUSE);
	cr_expect_eq(karst_cm_id_accept(b->cm, id, &b->param), -EINVAL);
	cr_expect_eq(karst_cm_id_ready(b->cm, id, NULL, 0), -EINVAL);
	cr_expect_eq(karst_cm_id_reject(b->cm, id, 28, NULL, 0, NULL, 0), -EINVAL);
	cr_expect_eq(karst_cm_id_disconnect(b->cm, id, NULL, 0), -EINVAL);
	cr_expect_eq(karst_cm_id_disconnect_reply(b->cm, id, NULL, 0), -EINVAL);
	cr_expect_eq(karst_cm_id_mra(b->cm, id, 20, NULL, 0), -EINVAL);
	cr_expect_eq(karst_cm_id_established(b->cm, id), -EINVAL);
	cr_expect_eq(karst_cm_id_sidr_reply(b->cm, id, 0, &b->param), -EINVAL);
	cr_expect_eq(karst_cm_id_destroy(b->cm, id), 0);
	cr_expect_eq(karst_cm_id_destroy(b->cm, id), -ENOENT);
	cr_expect_eq(karst_cm_id_accept(b->cm, id, &b->param), -ENOENT);
	cr_expect_eq(karst_cm_id_info(b->cm, 0, &(struct karst_cm_info){0}), -ENOENT);
	cr_expect_eq(karst_cm_id_set_user(b->cm, 12345, NULL), -ENOENT);
	cm_bed_down(b);
}

/* Private data too long, in each call: nothing was sent, and the state is as it was. */
Test(cm_connect, c1_private_data_too_long)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct cm_bed_msg req;
	uint8_t data[256] = {0};
	uint32_t id;

	cm_bed_listen(b);
	id = cm_bed_req_rcvd(b, 0);
	b->param.private_data = data;
	b->param.private_data_len = KARST_CM_REP_PRIVATE + 1;
	cr_expect_eq(karst_cm_id_accept(b->cm, id, &b->param), -EMSGSIZE);
	cr_expect_eq(karst_cm_id_mra(b->cm, id, 20, data, KARST_CM_MRA_PRIVATE + 1), -EMSGSIZE);
	cr_expect_eq(karst_cm_id_reject(b->cm, id, 28, NULL, 0, data, KARST_CM_REJ_PRIVATE + 1),
		-EMSGSIZE);
	cr_expect_eq(
		karst_cm_id_reject(b->cm, id, 28, data, KARST_CM_REJ_INFO + 1, NULL, 0), -EMSGSIZE);
	cr_expect_eq(state_of(b, id), KARST_CM_REQ_RCVD);
	b->param.private_data_len = KARST_CM_REP_PRIVATE;
	cr_expect_eq(karst_cm_id_accept(b->cm, id, &b->param), 0);
	expect_msg(b, REP);
	b->param.private_data_len = 0;

	id = cm_bed_rep_rcvd(b, 1, &req);
	cr_expect_eq(karst_cm_id_ready(b->cm, id, data, KARST_CM_RTU_PRIVATE + 1), -EMSGSIZE);
	cr_expect_eq(state_of(b, id), KARST_CM_REP_RCVD);
	cr_expect_eq(karst_cm_id_ready(b->cm, id, data, KARST_CM_RTU_PRIVATE), 0);
	expect_msg(b, RTU);
	cr_expect_eq(karst_cm_id_disconnect(b->cm, id, data, KARST_CM_DREQ_PRIVATE + 1), -EMSGSIZE);
	cr_expect_eq(state_of(b, id), KARST_CM_ESTABLISHED);
	send_msg(b, peer_dreq(id, 1));
	expect_ev(b, DREQ);
	cr_expect_eq(karst_cm_id_disconnect_reply(b->cm, id, data, KARST_CM_DREP_PRIVATE + 1),
		-EMSGSIZE);
	cr_expect_eq(state_of(b, id), KARST_CM_DREQ_RCVD);
	cr_expect_eq(karst_cm_id_sidr_request(b->cm, &b->path, SERVICE, data,
			     KARST_CM_SIDR_REQ_PRIVATE + 1, NULL, &id),
		-EMSGSIZE);
	cm_bed_down(b);
}

Test(cm_connect, configurations)
{
	struct karst_cm_config good = {.guid = 1, .ops = &(const struct karst_cm_ops){0}}, bad;
	struct karst_cm *cm;
	unsigned int i;

	cr_expect_neq(karst_cm_bytes(&good), 0);
	for (i = 0; i < 8; i++) {
		bad = good;
		if (i == 0)
			bad.guid = 0;
		else if (i == 1)
			bad.ops = NULL;
		else if (i == 2)
			bad.max_ids = 1;
		else if (i == 3)
			bad.max_ids = (1u << 20) + 1;
		else if (i == 4)
			bad.max_half_open = 8193;
		else if (i == 5)
			bad.max_retries = 16;
		else if (i == 6)
			bad.mra_service_timeout = 32;
		else
			bad.target_ack_delay = 32;
		cr_expect_eq(karst_cm_bytes(&bad), 0, "case %u", i);
		cr_expect_eq(karst_cm_init(NULL, &bad, 0, &cm), -EINVAL, "case %u", i);
	}
	for (i = 0; i < KARST_CM_CTRS; i++)
		cr_expect(karst_cm_counter_name(i) != NULL && karst_cm_counter_meaning(i) != NULL);
	cr_expect_null(karst_cm_counter_name(KARST_CM_CTRS));
	cr_expect_null(karst_cm_counter_meaning(KARST_CM_CTRS));
}
