/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Refusals: REJ with the right reason, sent and received; stale connections; LAP (C1, C2). */
#include "cm_bed.h"

#include "karst_hdr.h"

static struct karst_cm_msg
peer_rej(uint32_t id, const struct cm_bed_msg *about, uint32_t n, uint16_t reason)
{
	struct karst_cm_msg m = peer_msg(KARST_CM_REJ, id, about, n);

	m.rej.reason = reason;
	return m;
}

/* --- by the user --- */

Test(cm_refuse, c1_user_rejects_req)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct karst_cm_msg again;
	struct cm_bed_msg *m;
	uint32_t id;

	cm_bed_listen(b);
	id = cm_bed_req_rcvd(b, 0);
	cr_assert_eq(karst_cm_id_reject(
			     b->cm, id, KARST_CM_REJ_CONSUMER_DEFINED, "why", 3, "private", 7),
		0);
	m = expect_msg(b, REJ);
	cr_expect_eq(m->m.tid, TID);
	cr_expect_eq(m->m.local_id, id);
	cr_expect_eq(m->m.remote_id, PEER_ID);
	cr_expect_eq(m->m.rej.reason, 28);
	cr_expect_eq(m->m.rej.message, KARST_CM_ABOUT_REQ);
	cr_expect_eq(m->m.info_len, 3);
	cr_expect_arr_eq(m->m.info, "why\0", 4);
	cr_expect_arr_eq(m->m.private_data, "private\0", 8);
	/* the REJ was lost: the REQ comes again, and the user gets no second event */
	send_msg(b, peer_req(b, 0));
	cr_expect_arr_eq(expect_msg(b, REJ)->mad, m->mad, KARST_CM_MAD_LEN);
	/* another attempt of the same queue pair is a new request */
	again = peer_req(b, 1);
	again.req.qpn = PEER_QPN;
	send_msg(b, again);
	cr_expect_neq(expect_ev(b, REQ)->id, id);
	advance(b, 15 * SECOND);
	cr_expect_eq(state_of(b, id), KARST_CM_TIMEWAIT);
	advance(b, 2200 * MS);
	cr_expect_eq(state_of(b, id), KARST_CM_IDLE);
	expect_msg(b, REJ); /* the new one was not answered either */
	expect_ev(b, REJ);
	cm_bed_down(b);
}

/* The peer was asked to wait by an MRA, and the REJ was lost: it sends its REQ again only after
 * that wait. */
Test(cm_refuse, c1_rejected_after_mra)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	uint32_t id;

	cm_bed_listen(b);
	id = cm_bed_req_rcvd(b, 0);
	send_msg(b, peer_req(b, 0));
	cr_expect_eq(expect_msg(b, MRA)->m.mra.service_timeout, 24);
	cr_assert_eq(karst_cm_id_destroy(b->cm, id), 0);
	expect_msg(b, REJ);
	advance(b, 70 * SECOND);
	send_msg(b, peer_req(b, 0));
	expect_msg(b, REJ);
	advance(b, 20 * SECOND);
	cr_expect_eq(b->cm->nids, 1);
	cm_bed_down(b);
}

Test(cm_refuse, c1_user_rejects_rep)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct cm_bed_msg req, *m;
	uint32_t id = cm_bed_rep_rcvd(b, 0, &req);

	cr_assert_eq(karst_cm_id_reject(b->cm, id, KARST_CM_REJ_NO_RESOURCES, NULL, 0, NULL, 0), 0);
	m = expect_msg(b, REJ);
	cr_expect_eq(m->m.rej.message, KARST_CM_ABOUT_REP);
	cr_expect_eq(m->m.tid, req.m.tid);
	send_msg(b, peer_rep(&req, 0));
	expect_msg(b, REJ);
	cr_expect_eq(karst_cm_id_ready(b->cm, id, NULL, 0), -EINVAL);
	cr_expect_eq(karst_cm_id_reject(b->cm, id, 28, NULL, 0, NULL, 0), -EINVAL);
	cm_bed_down(b);
}

/* --- by the peer, in every state --- */

Test(cm_refuse, c1_req_rejected)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct cm_bed_msg req;
	uint32_t id = cm_bed_req_sent(b, 0, &req);
	struct karst_cm_msg rej = peer_rej(id, &req, 0, KARST_CM_REJ_CONSUMER_DEFINED);
	const struct karst_cm_ev *ev;

	rej.info = (const uint8_t *)"info";
	rej.info_len = 4;
	rej.private_data = (const uint8_t *)"because";
	rej.private_data_len = 7;
	send_msg(b, rej);
	ev = expect_ev(b, REJ);
	cr_expect_eq(ev->id, id);
	cr_expect_eq(ev->reason, KARST_CM_REJ_CONSUMER_DEFINED);
	cr_expect_not(ev->local);
	cr_expect_eq(ev->info_len, 4);
	cr_expect_arr_eq(ev->info, "info", 4);
	cr_expect_str_eq(ev->remote.private_data, "because");
	cr_expect_eq(ev->remote.private_data_len, KARST_CM_REJ_PRIVATE);
	cr_expect_eq(state_of(b, id), KARST_CM_IDLE);
	send_msg(b, rej);
	cr_expect_eq(counted(b, STATE), 1);
	advance(b, 100 * SECOND);
	cm_bed_down(b);
}

/* Linux refuses a port without a listener in this way: the REJ has no id of its own. */
Test(cm_refuse, c1_req_rejected_by_nobody)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct cm_bed_msg req;
	uint32_t id = cm_bed_req_sent(b, 0, &req);
	struct karst_cm_msg rej = peer_rej(id, &req, 0, KARST_CM_REJ_INVALID_SERVICE_ID);

	rej.local_id = 0;
	send_msg(b, rej);
	cr_expect_eq(expect_ev(b, REJ)->reason, KARST_CM_REJ_INVALID_SERVICE_ID);
	cm_bed_down(b);
}

/* The peer has waited long enough, and does not know our id: the REJ names the peer's own id. */
Test(cm_refuse, c1_peer_gives_up)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct karst_cm_msg rej;
	uint8_t guid[8];
	uint32_t id;

	cm_bed_listen(b);
	id = cm_bed_req_rcvd(b, 0);
	karst_put_be64(guid, PEER_GUID);
	rej = peer_rej(0, NULL, 0, KARST_CM_REJ_TIMEOUT);
	send_msg(b, rej); /* of an unknown id */
	cr_expect_eq(counted(b, NO_ID), 1);
	rej.info = guid;
	rej.info_len = 8;
	send_from(b, 1, rej); /* from another address */
	cr_expect_eq(counted(b, NO_ID), 2);
	send_msg(b, rej);
	cr_expect_eq(expect_ev(b, REJ)->id, id);
	cr_expect_eq(b->cm->nhalf_open, 0);
	cr_expect_eq(karst_cm_id_accept(b->cm, id, &b->param), -EINVAL);

	id = cm_bed_rep_sent(b, 1);
	send_msg(b, peer_rej(id, NULL, 1, KARST_CM_REJ_TIMEOUT));
	cr_expect_eq(expect_ev(b, REJ)->id, id);
	cr_expect_eq(b->cm->nhalf_open, 0);
	send_msg(b, peer_req(b, 0)); /* duplicated by the network, and late */
	send_msg(b, peer_req(b, 1));
	cr_expect_eq(duplicates(b, REQ), 2);
	rej = peer_req(b, 1); /* the same number, but another transaction */
	rej.tid += 1000;
	send_msg(b, rej);
	expect_ev(b, REQ);
	advance(b, SECOND);
	cr_expect_eq(state_of(b, id), KARST_CM_IDLE);
	cm_bed_down(b);
}

/* None of our RTUs arrived. */
Test(cm_refuse, c1_established_rejected)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	uint32_t id = cm_bed_active(b, 0);

	send_msg(b, peer_rej(id, NULL, 0, KARST_CM_REJ_TIMEOUT));
	cr_expect_eq(expect_ev(b, REJ)->id, id);
	cr_expect_eq(state_of(b, id), KARST_CM_TIMEWAIT);
	advance(b, SECOND);
	expect_ev(b, TIMEWAIT_EXIT);
	cm_bed_down(b);
}

/* --- invalid REQs --- */

static void
expect_refused(struct cm_bed *b, struct karst_cm_msg req, uint16_t reason)
{
	uint64_t before = counted(b, INVALID);
	struct cm_bed_msg *m;

	send_msg(b, req);
	m = expect_msg(b, REJ);
	cr_expect_eq(m->m.rej.reason, reason, "%u instead of %u", m->m.rej.reason, reason);
	cr_expect_eq(m->m.rej.message, KARST_CM_ABOUT_REQ);
	cr_expect_eq(m->m.tid, req.tid);
	cr_expect_eq(m->m.local_id, 0);
	cr_expect_eq(m->m.remote_id, req.local_id);
	cr_expect_eq(b->cm->nids, 1);
	cr_expect_eq(counted(b, INVALID), before + (reason != KARST_CM_REJ_INVALID_SERVICE_ID));
}

Test(cm_refuse, c1_c2_req_invalid)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct karst_cm_msg req;

	cm_bed_listen(b);
	req = peer_req(b, 0);
	req.req.service_id++;
	expect_refused(b, req, KARST_CM_REJ_INVALID_SERVICE_ID);
	cr_expect_eq(counted(b, NO_SERVICE), 1);
	req = peer_req(b, 0);
	req.req.transport = KARST_CM_TRANSPORT_RD;
	expect_refused(b, req, KARST_CM_REJ_INVALID_TRANSPORT_TYPE);
	req.req.transport = KARST_CM_TRANSPORT_EXTENDED;
	req.req.extended_transport = 2;
	expect_refused(b, req, KARST_CM_REJ_INVALID_TRANSPORT_TYPE);
	req = peer_req(b, 0);
	req.req.mtu = 0;
	expect_refused(b, req, KARST_CM_REJ_INVALID_MTU);
	req.req.mtu = 6;
	expect_refused(b, req, KARST_CM_REJ_INVALID_MTU);
	req = peer_req(b, 0);
	req.req.qpn = 0;
	expect_refused(b, req, KARST_CM_REJ_NO_QP);
	/* the connection's packets would go to another host */
	req = peer_req(b, 0);
	req.req.primary.local_gid[15]++;
	expect_refused(b, req, KARST_CM_REJ_INVALID_GID);
	req = peer_req(b, 0);
	req.req.primary.remote_gid[15]++;
	expect_refused(b, req, KARST_CM_REJ_INVALID_GID);
	/* without an id or a GUID there is nobody to answer */
	req = peer_req(b, 0);
	req.local_id = 0;
	send_msg(b, req);
	req = peer_req(b, 0);
	req.req.guid = 0;
	send_msg(b, req);
	cr_expect_eq(counted(b, INVALID), 9);
	cm_bed_down(b);
}

/* --- stale connections --- */

/* The peer has restarted: its queue pair or its id is one that is still known here. */
Test(cm_refuse, c1_stale_req)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct karst_cm_msg req;
	struct cm_bed_msg dreq;
	uint32_t id;

	cm_bed_listen(b);
	id = cm_bed_passive(b, 0);
	req = peer_req(b, 1);
	req.req.qpn = PEER_QPN;
	send_msg(b, req);
	cr_expect_eq(expect_msg(b, REJ)->m.rej.reason, KARST_CM_REJ_STALE_CONN);
	dreq = *expect_msg(b, DREQ);
	cr_expect_eq(dreq.m.local_id, id);
	cr_expect_eq(counted(b, STALE), 1);
	send_msg(b, req); /* still ending */
	cr_expect_eq(expect_msg(b, REJ)->m.rej.reason, KARST_CM_REJ_STALE_CONN);
	send_msg(b, peer_msg(KARST_CM_DREP, id, &dreq, 0));
	expect_ev(b, DREP);
	send_msg(b, req); /* in time-wait */
	cr_expect_eq(expect_msg(b, REJ)->m.rej.reason, KARST_CM_REJ_STALE_CONN);
	send_msg(b, peer_req(b, 0)); /* its very first REQ, late: it has had its answer */
	cr_expect_eq(duplicates(b, REQ), 1);
	advance(b, SECOND);
	expect_ev(b, TIMEWAIT_EXIT);
	send_msg(b, req);
	expect_ev(b, REQ);

	/* the same id, another transaction */
	id = cm_bed_passive(b, 2);
	req = peer_req(b, 2);
	req.tid += 1000;
	req.req.qpn += 1000;
	send_msg(b, req);
	cr_expect_eq(expect_msg(b, REJ)->m.rej.reason, KARST_CM_REJ_STALE_CONN);
	cr_expect_eq(expect_msg(b, DREQ)->m.local_id, id);
	/* the same number at another address is another peer */
	req = peer_req(b, 2);
	memcpy(req.req.primary.local_gid, seen_from(b, 1).remote_ip, 16);
	send_from(b, 1, req);
	expect_ev(b, REQ);
	cm_bed_down(b);
}

/* Half open, and the peer restarts: the connection is given up, with an event, but not within
 * another event's callback. */
Test(cm_refuse, c1_stale_half_open)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct karst_cm_msg req;
	const struct karst_cm_ev *ev;
	uint32_t id;

	cm_bed_listen(b);
	id = cm_bed_req_rcvd(b, 0);
	req = peer_req(b, 0);
	req.tid += 1000;
	send_msg(b, req);
	cr_expect_eq(expect_msg(b, REJ)->m.rej.reason, KARST_CM_REJ_STALE_CONN);
	cr_expect_eq(karst_cm_id_accept(b->cm, id, &b->param), -EINVAL);
	cr_expect_eq(karst_cm_id_mra(b->cm, id, 20, NULL, 0), -EINVAL);
	advance(b, MS);
	expect_msg(b, REJ);
	ev = expect_ev(b, REJ);
	cr_expect_eq(ev->id, id);
	cr_expect(ev->local);
	cr_expect_eq(ev->reason, KARST_CM_REJ_STALE_CONN);
	send_msg(b, req);
	expect_ev(b, REQ);

	id = cm_bed_rep_sent(b, 1);
	req = peer_req(b, 2);
	req.req.qpn = PEER_QPN + 1;
	send_msg(b, req);
	expect_msg(b, REJ);
	send_msg(b, peer_msg(KARST_CM_RTU, id, NULL, 1));
	advance(b, MS);
	expect_msg(b, REJ);
	cr_expect_eq(expect_ev(b, REJ)->id, id);
	cm_bed_down(b);
}

/* A late copy of the first REQ does not keep a connection that is being given up. */
Test(cm_refuse, c1_stale_and_asked_again)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct karst_cm_msg req;

	cm_bed_listen(b);
	cm_bed_req_rcvd(b, 0);
	req = peer_req(b, 0);
	req.tid += 1000;
	send_msg(b, req);
	expect_msg(b, REJ);
	send_msg(b, peer_req(b, 0));
	expect_no_msg(b);
	advance(b, MS);
	expect_msg(b, REJ);
	cr_expect_eq(expect_ev(b, REJ)->reason, KARST_CM_REJ_STALE_CONN);
	cm_bed_down(b);
}

/* A REP with the queue pair of an existing connection. */
Test(cm_refuse, c1_stale_rep)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	uint32_t old = cm_bed_active(b, 0), id;
	const struct karst_cm_ev *ev;
	struct karst_cm_msg rep;
	struct cm_bed_msg req, *rej;

	id = cm_bed_req_sent(b, 1, &req);
	rep = peer_rep(&req, 1);
	rep.rep.qpn = PEER_QPN;
	send_msg(b, rep);
	rej = expect_msg(b, REJ);
	cr_expect_eq(rej->m.rej.reason, KARST_CM_REJ_STALE_CONN);
	cr_expect_eq(rej->m.rej.message, KARST_CM_ABOUT_REP);
	cr_expect_eq(expect_msg(b, DREQ)->m.local_id, old);
	ev = expect_ev(b, REJ);
	cr_expect_eq(ev->id, id);
	cr_expect(ev->local);
	cr_expect_eq(ev->reason, KARST_CM_REJ_STALE_CONN);
	cm_bed_down(b);
}

/* The same before the user was ready: its readiness comes too late. */
Test(cm_refuse, c1_stale_rep_before_ready)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct cm_bed_msg req;
	uint32_t old = cm_bed_rep_rcvd(b, 0, &req);
	struct karst_cm_msg rep;

	cm_bed_req_sent(b, 1, &req);
	rep = peer_rep(&req, 1);
	rep.rep.qpn = PEER_QPN;
	send_msg(b, rep);
	expect_msg(b, REJ);
	expect_ev(b, REJ);
	cr_expect_eq(karst_cm_id_ready(b->cm, old, NULL, 0), -EINVAL);
	advance(b, MS);
	cr_expect_eq(expect_msg(b, REJ)->m.rej.reason, KARST_CM_REJ_STALE_CONN);
	cr_expect_eq(expect_ev(b, REJ)->id, old);
	cm_bed_down(b);
}

/* --- after a disconnect before the RTU --- */

static uint32_t
disconnected_before_rtu(struct cm_bed *b, struct cm_bed_msg *dreq)
{
	uint32_t id;

	cm_bed_listen(b);
	id = cm_bed_rep_sent(b, 0);
	cr_assert_eq(karst_cm_id_disconnect(b->cm, id, NULL, 0), 0);
	*dreq = *expect_msg(b, DREQ);
	return id;
}

/* The REP was lost, and the REQ that comes again is refused: the peer has no connection, so its
 * queue pair may be connected again at once. */
Test(cm_refuse, c1_no_rtu_and_refused)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct cm_bed_msg dreq;
	struct karst_cm_msg next;
	uint32_t id = disconnected_before_rtu(b, &dreq);

	send_msg(b, peer_req(b, 0));
	cr_expect_eq(expect_msg(b, REJ)->m.rej.reason, KARST_CM_REJ_CONSUMER_DEFINED);
	/* the peer has no connection to end */
	send_msg(b, peer_msg(KARST_CM_DREP, id, &dreq, 0));
	expect_ev(b, DREP);
	next = peer_req(b, 1);
	next.req.qpn = PEER_QPN;
	send_msg(b, next);
	cr_expect_neq(expect_ev(b, REQ)->id, id);
	/* the first REQ again, late: still refused, no new request */
	send_msg(b, peer_req(b, 0));
	cr_expect_eq(expect_msg(b, REJ)->m.rej.reason, KARST_CM_REJ_CONSUMER_DEFINED);
	expect_no_ev(b);
	cm_bed_down(b);
}

/* The peer has the REP, and refuses it: it will not send its REQ again. */
Test(cm_refuse, c1_no_rtu_and_rep_refused)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct cm_bed_msg dreq;
	struct karst_cm_msg rej;
	uint32_t id = disconnected_before_rtu(b, &dreq);

	rej = peer_rej(id, NULL, 0, KARST_CM_REJ_CONSUMER_DEFINED);
	rej.rej.message = KARST_CM_ABOUT_REP;
	send_msg(b, rej);
	expect_ev(b, DREQ_ERROR);
	advance(b, (UINT64_C(4096) << 17) + MS);
	cr_expect_eq(expect_ev(b, TIMEWAIT_EXIT)->id, id);
	cm_bed_down(b);
}

/* The same when the DREQ has been answered. */
Test(cm_refuse, c1_no_rtu_and_rep_refused_late)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct cm_bed_msg dreq;
	struct karst_cm_msg rej;
	uint32_t id = disconnected_before_rtu(b, &dreq);

	send_msg(b, peer_msg(KARST_CM_DREP, id, &dreq, 0));
	expect_ev(b, DREP);
	rej = peer_rej(id, NULL, 0, KARST_CM_REJ_CONSUMER_DEFINED);
	rej.rej.message = KARST_CM_ABOUT_REP;
	send_msg(b, rej);
	advance(b, (UINT64_C(4096) << 17) + MS);
	cr_expect_eq(expect_ev(b, TIMEWAIT_EXIT)->id, id);
	cm_bed_down(b);
}
