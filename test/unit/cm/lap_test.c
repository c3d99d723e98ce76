/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Alternate paths (C4): offered by a REQ, and by LAP and APR while the connection is
 * established. */
#include "cm_bed.h"

static void
expect_path(const struct cm_bed *b, const struct karst_cm_path *is)
{
	struct karst_cm_path want = alternate_path(b);

	cr_assert_not_null(is);
	cr_expect_arr_eq(is->local_ip, want.local_ip, 16);
	cr_expect_arr_eq(is->remote_ip, want.remote_ip, 16);
	cr_expect_eq(is->flow_label, want.flow_label);
	cr_expect_eq(is->tclass, want.tclass);
	cr_expect_eq(is->hop_limit, want.hop_limit);
	cr_expect_eq(is->sl, want.sl);
	cr_expect_eq(is->rate, want.rate);
	cr_expect_eq(is->ack_timeout, want.ack_timeout);
	/* members that were not set: those of the connection */
	cr_expect_eq(is->mtu, b->path.mtu);
	cr_expect_eq(is->pkey, b->path.pkey);
	cr_expect_eq(is->port, b->path.port);
}

/* The message has the same path, seen from this side. */
static void
expect_wire(const struct cm_bed *b, const struct karst_cm_wire_path *is)
{
	struct karst_cm_path want = alternate_path(b);

	cr_expect_arr_eq(is->local_gid, want.local_ip, 16);
	cr_expect_arr_eq(is->remote_gid, want.remote_ip, 16);
	cr_expect_eq(is->flow_label, want.flow_label);
	cr_expect_eq(is->tclass, want.tclass);
	cr_expect_eq(is->hop_limit, want.hop_limit);
	cr_expect_eq(is->sl, want.sl);
	cr_expect_eq(is->rate, want.rate);
	cr_expect_eq(is->ack_timeout, want.ack_timeout);
	cr_expect_eq(is->local_lid, 0xffff);
	cr_expect_eq(is->remote_lid, 0xffff);
}

/* --- in a REQ --- */

static uint8_t
failover_to(struct cm_bed *b, struct karst_cm_msg req, bool offered, bool taken)
{
	const struct karst_cm_ev *ev;

	send_msg(b, req);
	ev = expect_ev(b, REQ);
	cr_expect_eq(ev->remote.alternate != NULL, offered);
	if (offered)
		expect_path(b, ev->remote.alternate);
	b->param.alternate_taken = taken;
	cr_assert_eq(karst_cm_id_accept(b->cm, ev->id, &b->param), 0);
	return expect_msg(b, REP)->m.rep.failover;
}

/* The passive side answers whether it takes the path; an invalid path is not reported to the user,
 * and no reason to refuse the connection. */
Test(cm_lap, c4_req_passive)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct karst_cm_msg req[6];
	uint32_t i;

	cm_bed_listen(b);
	for (i = 0; i < 6; i++) {
		req[i] = peer_req(b, i);
		req[i].req.alternate = peer_lap(b, 1, 0).lap.alternate;
	}
	memset(req[2].req.alternate.local_gid, 0, 32);
	memset(req[3].req.alternate.remote_gid, 0, 16);
	memset(req[4].req.alternate.local_gid + 12, 0, 4);
	req[5].req.alternate.remote_gid[0] = 0x20; /* IPv4 to IPv6 */
	cr_expect_eq(failover_to(b, req[0], true, true), KARST_CM_FAILOVER_ACCEPTED);
	cr_expect_eq(failover_to(b, req[1], true, false), KARST_CM_FAILOVER_UNSUPPORTED);
	cr_expect_eq(failover_to(b, req[2], false, true), 0);
	for (i = 3; i < 6; i++)
		cr_expect_eq(failover_to(b, req[i], false, true), KARST_CM_FAILOVER_REJECTED);
	cm_bed_down(b);
}

/* The active side offers it, and gets the answer. */
Test(cm_lap, c4_req_active)
{
	static const uint8_t said[] = {KARST_CM_FAILOVER_ACCEPTED, KARST_CM_FAILOVER_UNSUPPORTED,
		KARST_CM_FAILOVER_REJECTED, 3};
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct karst_cm_path alternate = alternate_path(b);
	struct karst_cm_msg rep;
	struct cm_bed_msg req;
	uint32_t n;

	b->param.alternate = &alternate;
	for (n = 0; n < 4; n++) {
		cm_bed_req_sent(b, n, &req);
		expect_wire(b, &req.m.req.alternate);
		rep = peer_rep(&req, n);
		rep.rep.failover = said[n];
		send_msg(b, rep);
		cr_expect_eq(expect_ev(b, REP)->remote.alternate_taken, n == 0);
	}
	/* a side that has offered nothing gets no promise */
	b->param.alternate = NULL;
	cm_bed_req_sent(b, n, &req);
	cr_expect_eq(req.m.req.alternate.local_lid, 0);
	send_msg(b, peer_rep(&req, n));
	cr_expect_not(expect_ev(b, REP)->remote.alternate_taken);
	cm_bed_down(b);
}

/* --- LAP, passive side --- */

Test(cm_lap, c4_asked)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	const struct karst_cm_ev *ev;
	struct cm_bed_msg *apr;
	struct karst_cm_msg lap;
	uint32_t id;

	cm_bed_listen(b);
	id = cm_bed_passive(b, 0);
	lap = peer_lap(b, id, 0);
	cr_expect_eq(karst_cm_id_apr(b->cm, id, 0, NULL, 0, NULL, 0), -EINVAL);
	send_msg(b, lap);
	ev = expect_ev(b, LAP);
	cr_expect_eq(ev->id, id);
	cr_expect_eq(ev->user, BED_USER);
	expect_path(b, ev->remote.alternate);
	cr_expect_eq(memcmp(ev->remote.private_data, "another way", 12), 0);
	/* it waits for its user: a duplicate causes no second event */
	send_msg(b, lap);
	cr_expect_eq(duplicates(b, LAP), 1);
	cr_expect_eq(karst_cm_id_lap(b->cm, id, ev->remote.alternate, NULL, 0), -EINVAL);
	cr_expect_eq(
		karst_cm_id_apr(b->cm, id, 0, NULL, 0, NULL, KARST_CM_APR_PRIVATE + 1), -EMSGSIZE);
	cr_expect_eq(karst_cm_id_apr(b->cm, id, KARST_CM_APR_INVALID_SL, "\4", 1, "no", 2), 0);
	apr = expect_msg(b, APR);
	cr_expect_eq(apr->m.apr.status, KARST_CM_APR_INVALID_SL);
	cr_expect_eq(apr->m.info_len, 1);
	cr_expect_eq(apr->m.info[0], 4);
	cr_expect_eq(memcmp(apr->m.private_data, "no", 3), 0);
	cr_expect_eq(apr->m.tid, lap.tid);
	cr_expect_eq(apr->m.local_id, id);
	cr_expect_eq(apr->m.remote_id, PEER_ID);
	cr_expect_eq(karst_cm_id_apr(b->cm, id, 0, NULL, 0, NULL, 0), -EINVAL);
	/* the answer was lost */
	send_msg(b, lap);
	cr_expect_eq(expect_msg(b, APR)->m.apr.status, KARST_CM_APR_INVALID_SL);
	/* another LAP is a new one */
	lap.tid++;
	send_msg(b, lap);
	expect_ev(b, LAP);
	cr_expect_eq(karst_cm_id_apr(b->cm, id, KARST_CM_APR_LOADED, NULL, 0, NULL, 0), 0);
	cr_expect_eq(expect_msg(b, APR)->m.apr.status, KARST_CM_APR_LOADED);
	cr_expect_eq(state_of(b, id), KARST_CM_ESTABLISHED);
	cm_bed_down(b);
}

/* The peer gives up waiting for the user, and offers another path: that LAP is answered. */
Test(cm_lap, c4_asked_anew)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	uint32_t id = cm_bed_active(b, 0);
	struct karst_cm_msg lap = peer_lap(b, id, 0);

	send_msg(b, lap);
	expect_ev(b, LAP);
	lap.tid++;
	send_msg(b, lap);
	expect_ev(b, LAP);
	cr_expect_eq(karst_cm_id_apr(b->cm, id, KARST_CM_APR_LOADED, NULL, 0, NULL, 0), 0);
	cr_expect_eq(expect_msg(b, APR)->m.tid, lap.tid);
	cm_bed_down(b);
}

/* LAPs that are refused without asking the user, and LAPs that are not answered at all. */
Test(cm_lap, c4_refused)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	uint32_t id = cm_bed_active(b, 0), waiting;
	struct karst_cm_msg lap = peer_lap(b, id, 0), bad;
	struct cm_bed_msg *apr;

	bad = lap;
	bad.remote_id ^= 0x40;
	send_msg(b, bad);
	apr = expect_msg(b, APR);
	cr_expect_eq(apr->m.apr.status, KARST_CM_APR_INVALID_COMM_ID);
	cr_expect_eq(apr->m.tid, lap.tid);
	cr_expect_eq(counted(b, NO_ID), 1);
	/* another peer, and another id of the same peer */
	send_from(b, 1, lap);
	cr_expect_eq(expect_msg(b, APR)->m.apr.status, KARST_CM_APR_INVALID_COMM_ID);
	bad = lap;
	bad.local_id++;
	send_msg(b, bad);
	cr_expect_eq(expect_msg(b, APR)->m.apr.status, KARST_CM_APR_INVALID_COMM_ID);
	cr_expect_eq(counted(b, FORGED), 2);
	bad = lap;
	bad.lap.qpn++;
	send_msg(b, bad);
	cr_expect_eq(expect_msg(b, APR)->m.apr.status, KARST_CM_APR_INVALID_QPN);
	bad = lap;
	memset(bad.lap.alternate.local_gid, 0, 16);
	send_msg(b, bad);
	cr_expect_eq(expect_msg(b, APR)->m.apr.status, KARST_CM_APR_INVALID_GID);
	bad = lap;
	bad.lap.alternate.remote_gid[3] = 1; /* IPv4 from IPv6 */
	send_msg(b, bad);
	cr_expect_eq(expect_msg(b, APR)->m.apr.status, KARST_CM_APR_INVALID_GID);
	bad = lap;
	memcpy(bad.lap.alternate.local_gid, b->path.remote_ip, 16);
	memcpy(bad.lap.alternate.remote_gid, b->path.local_ip, 16);
	bad.lap.alternate.flow_label = b->path.flow_label;
	bad.lap.alternate.tclass = b->path.tclass;
	send_msg(b, bad);
	cr_expect_eq(expect_msg(b, APR)->m.apr.status, KARST_CM_APR_IS_CURRENT);
	cr_expect_eq(counted(b, INVALID), 4);
	/* our REP is under way, or their RTU: the peer repeats its LAP, which is answered then */
	cm_bed_listen(b);
	waiting = cm_bed_rep_sent(b, 1);
	send_msg(b, peer_lap(b, waiting, 1));
	cr_expect_eq(counted(b, STATE), 1);
	/* the connection is ending */
	cr_assert_eq(karst_cm_id_disconnect(b->cm, id, NULL, 0), 0);
	expect_msg(b, DREQ);
	send_msg(b, lap);
	cr_expect_eq(expect_msg(b, APR)->m.apr.status, KARST_CM_APR_INVALID_COMM_ID);
	cr_expect_eq(counted(b, STATE), 2);
	cr_expect_eq(karst_cm_id_apr(b->cm, id, 0, NULL, 0, NULL, 0), -EINVAL);
	cm_bed_down(b);
}

/* --- LAP, active side --- */

static struct cm_bed_msg
lap_sent(struct cm_bed *b, uint32_t id)
{
	struct karst_cm_path path = alternate_path(b);

	cr_assert_eq(karst_cm_id_lap(b->cm, id, &path, "this way", 8), 0);
	return *expect_msg(b, LAP);
}

Test(cm_lap, c4_asks)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	uint32_t id = cm_bed_active(b, 0);
	struct karst_cm_path path = alternate_path(b);
	const struct karst_cm_ev *ev;
	struct cm_bed_msg lap = lap_sent(b, id), again;
	struct karst_cm_msg apr = peer_msg(KARST_CM_APR, id, &lap, 0);

	expect_wire(b, &lap.m.lap.alternate);
	cr_expect_eq(lap.m.local_id, id);
	cr_expect_eq(lap.m.remote_id, PEER_ID);
	cr_expect_eq(lap.m.lap.qpn, PEER_QPN);
	cr_expect_eq(memcmp(lap.m.private_data, "this way", 9), 0);
	/* only one at a time */
	cr_expect_eq(karst_cm_id_lap(b->cm, id, &path, NULL, 0), -EINVAL);
	advance(b, 400 * MS);
	again = *expect_msg(b, LAP);
	cr_expect_arr_eq(again.mad, lap.mad, KARST_CM_MAD_LEN);
	apr.apr.status = KARST_CM_APR_REJECTED;
	apr.private_data = (const uint8_t *)"not now";
	apr.private_data_len = 7;
	apr.tid++;
	send_msg(b, apr);
	cr_expect_eq(counted(b, FORGED), 1);
	apr.tid--;
	send_from(b, 1, apr);
	cr_expect_eq(counted(b, FORGED), 2);
	send_msg(b, apr);
	ev = expect_ev(b, APR);
	cr_expect_eq(ev->id, id);
	cr_expect_eq(ev->reason, KARST_CM_APR_REJECTED);
	cr_expect_eq(memcmp(ev->remote.private_data, "not now", 8), 0);
	send_msg(b, apr);
	cr_expect_eq(duplicates(b, APR), 1);
	/* another LAP is another exchange: an answer to the first one does not apply to it */
	again = lap_sent(b, id);
	cr_expect_neq(again.m.tid, lap.m.tid);
	send_msg(b, apr);
	cr_expect_eq(counted(b, FORGED), 3);
	apr.tid = again.m.tid;
	apr.apr.status = KARST_CM_APR_LOADED;
	send_msg(b, apr);
	cr_expect_eq(expect_ev(b, APR)->reason, KARST_CM_APR_LOADED);
	advance(b, 100 * SECOND);
	cr_expect_eq(state_of(b, id), KARST_CM_ESTABLISHED);
	cm_bed_down(b);
}

/* No answer: the connection stays as it was, and another LAP may be sent. */
Test(cm_lap, c4_no_answer)
{
	struct karst_cm_config cfg = {.max_ids = 8, .response_timeout = 18, .max_retries = 2};
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, &cfg);
	uint32_t id;

	cm_bed_listen(b);
	id = cm_bed_passive(b, 0);
	lap_sent(b, id);
	advance(b, 30 * SECOND);
	expect_msg(b, LAP);
	expect_msg(b, LAP);
	cr_expect_eq(expect_ev(b, LAP_ERROR)->id, id);
	cr_expect_eq(counted(b, TIMEOUTS), 1);
	cr_expect_eq(state_of(b, id), KARST_CM_ESTABLISHED);
	lap_sent(b, id);
	/* and the exchange ends with the connection */
	send_msg(b, peer_dreq(id, 0));
	expect_ev(b, DREQ);
	advance(b, 30 * SECOND);
	cm_bed_down(b);
}

/* The peer asks for time, by an MRA. */
Test(cm_lap, c4_mra)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	uint32_t id = cm_bed_active(b, 0);
	struct cm_bed_msg lap = lap_sent(b, id);
	struct karst_cm_msg mra = peer_msg(KARST_CM_MRA, id, &lap, 0), apr;

	mra.mra.service_timeout = 20;
	mra.mra.message = KARST_CM_ABOUT_REP;
	send_msg(b, mra);
	cr_expect_eq(counted(b, STATE), 1);
	mra.mra.message = KARST_CM_ABOUT_OTHER;
	send_msg(b, mra);
	cr_expect_eq(expect_ev(b, MRA)->message, KARST_CM_ABOUT_OTHER);
	advance(b, 4 * SECOND);
	expect_no_msg(b);
	apr = peer_msg(KARST_CM_APR, id, &lap, 0);
	send_msg(b, apr);
	expect_ev(b, APR);
	cm_bed_down(b);
}

/* Both send a LAP at once: both are refused, and no state is left of them. */
Test(cm_lap, c4_crossing)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	uint32_t id = cm_bed_active(b, 0);
	struct cm_bed_msg lap = lap_sent(b, id);
	struct karst_cm_msg apr = peer_msg(KARST_CM_APR, id, &lap, 0);

	send_msg(b, peer_lap(b, id, 0));
	cr_expect_eq(expect_msg(b, APR)->m.apr.status, KARST_CM_APR_REJECTED);
	apr.apr.status = KARST_CM_APR_REJECTED;
	send_msg(b, apr);
	cr_expect_eq(expect_ev(b, APR)->reason, KARST_CM_APR_REJECTED);
	send_msg(b, peer_lap(b, id, 0));
	expect_ev(b, LAP);
	cm_bed_down(b);
}

/* A lost RTU is repeated unchanged, also during and after a LAP exchange. */
Test(cm_lap, c4_rtu_again)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct karst_cm_msg apr;
	struct cm_bed_msg req, rtu, lap;
	uint32_t id = cm_bed_rep_rcvd(b, 0, &req);

	cr_assert_eq(karst_cm_id_ready(b->cm, id, "at last", 7), 0);
	rtu = *expect_msg(b, RTU);
	lap = lap_sent(b, id);
	send_msg(b, peer_rep(&req, 0));
	cr_expect_arr_eq(expect_msg(b, RTU)->mad, rtu.mad, KARST_CM_MAD_LEN);
	apr = peer_msg(KARST_CM_APR, id, &lap, 0);
	send_msg(b, apr);
	expect_ev(b, APR);
	send_msg(b, peer_lap(b, id, 0));
	expect_ev(b, LAP);
	cr_assert_eq(karst_cm_id_apr(b->cm, id, 0, NULL, 0, NULL, 0), 0);
	expect_msg(b, APR);
	send_msg(b, peer_rep(&req, 0));
	cr_expect_arr_eq(expect_msg(b, RTU)->mad, rtu.mad, KARST_CM_MAD_LEN);
	cm_bed_down(b);
}

/* --- invalid calls --- */

Test(cm_lap, c4_calls_refused)
{
	static struct cm_bed bed;
	struct cm_bed *b = cm_bed_up(&bed, NULL);
	struct karst_cm_path good = alternate_path(b), bad = good;
	struct cm_bed_msg req;
	uint32_t id = cm_bed_req_sent(b, 0, &req);

	cr_expect_eq(karst_cm_id_lap(b->cm, id, &good, NULL, 0), -EINVAL);
	cr_expect_eq(karst_cm_id_lap(b->cm, id + 1, &good, NULL, 0), -ENOENT);
	cr_expect_eq(karst_cm_id_apr(b->cm, id + 1, 0, NULL, 0, NULL, 0), -ENOENT);
	send_msg(b, peer_rep(&req, 0));
	expect_ev(b, REP);
	cr_expect_eq(karst_cm_id_lap(b->cm, id, &good, NULL, 0), -EINVAL);
	cr_assert_eq(karst_cm_id_ready(b->cm, id, NULL, 0), 0);
	expect_msg(b, RTU);
	memset(bad.local_ip, 0, 16);
	cr_expect_eq(karst_cm_id_lap(b->cm, id, &bad, NULL, 0), -EINVAL);
	b->param.alternate = &bad;
	cr_expect_eq(karst_cm_id_connect(b->cm, &b->path, SERVICE, &b->param, NULL, &id), -EINVAL);
	bad = good;
	bad.ack_timeout = 32;
	cr_expect_eq(karst_cm_id_lap(b->cm, id, &bad, NULL, 0), -EINVAL);
	cr_expect_eq(karst_cm_id_lap(b->cm, id, &good, NULL, KARST_CM_LAP_PRIVATE + 1), -EMSGSIZE);
	cr_expect_eq(state_of(b, id), KARST_CM_ESTABLISHED);
	cm_bed_down(b);
}
