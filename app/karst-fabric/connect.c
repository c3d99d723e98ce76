/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Makes and ends connections with lib/cm: REQ, REP and RTU, then DREQ and DREP.  From these
 * messages the queue pairs learn the attributes of their peers: numbers, first PSNs, path MTU,
 * timeout, retries, outstanding READs, and whether they use selective repeat.
 *
 * Time of connection management:
 *
 * - If the connections of a workload are known, they are made before its time begins: all are
 *   requested at once, through the network, which is empty otherwise, and when the last one has its
 *   RTU the clock is set to 0.  They end after the workload's time.
 * - A flow of a distribution has a connection of its own, which is made and ended at the times at
 *   which the flow begins and ends: messages are delivered directly, without delay or queueing.
 *
 * So connections do not affect the workload.  With --connect timed they do: a flow begins with its
 * REQ, which shares the network with all other traffic.
 */
#include <errno.h>

#include "karst_cm_ece.h"
#include "sim.h"

/* How many other queue pairs are tried when the peer still knows the chosen ones as connected. */
#define TRIES 8u
/* Approximate memory that lib/cm touches for a connection. */
#define ID_BYTES 1024u

#define RNR_RETRY 7u
#define PSN_SHIFT 16u

/* Random, but a multiple of every number that divides PSNs into groups (X12: UDP source ports), so
 * that the first PSN does not affect a run. */
static uint32_t
first_psn(struct fab_sim *s)
{
	return fab_below(s, FAB_PSNS, 1u << (24 - PSN_SHIFT)) << PSN_SHIFT;
}

static struct karst_cm_param
param_of(const struct fab_sim *s, const struct fab_end *e)
{
	return (struct karst_cm_param){
		.qp_type = KARST_QPT_RC,
		.flow_control = true,
		.responder_resources = FAB_READS,
		.initiator_depth = FAB_READS,
		.retry_count = (uint8_t)s->c->retry,
		.rnr_retry_count = RNR_RETRY,
		.qpn = karst_qp_num(e->qp),
		.psn = e->psn,
	};
}

/* --- the side that asks --- */

static void
send_req(struct fab_sim *s, struct fab_conn *c)
{
	struct fab_end *e = &c->end[FAB_SENDER];
	struct karst_cm_path path = {
		.pkey = 0xffff,
		.hop_limit = 64,
		.mtu = fab_mtu_code(s->c->mtu),
		.ack_timeout = (uint8_t)s->c->timeout,
	};
	struct karst_cm_param p;
	uint8_t mac[6];
	int rc;

	e->psn = first_psn(s);
	p = param_of(s, e);
	if (s->c->repeat)
		p.ece = karst_cm_ece_offer(KARST_CM_ECE_REPEAT, FAB_REPEAT_SHIFT);
	c->ece = p.ece;
	fab_address(path.local_ip, mac, e->host->id);
	fab_address(path.remote_ip, mac, c->end[FAB_RECEIVER].host->id);
	fab_host_enter(s, e->host);
	rc = karst_cm_id_connect(e->host->cm, &path, c->index, &p, c, &e->cm_id);
	if (rc != 0)
		fab_bail(s, rc,
			"host %u: %u connections at once, more than a host may have here: %s",
			e->host->id, e->host->cm->nids, strerror(-rc));
	c->asking = true;
	s->unsettled++;
}

/* Charges the memory of identifiers. */
static void
charge(struct fab_sim *s, struct fab_host *h)
{
	while (h->ids_most < h->cm->nids) {
		fab_charge(s, ID_BYTES);
		h->ids_most++;
	}
}

void
fab_connect(struct fab_sim *s, struct fab_conn *c)
{
	c->asked_ps = s->now_ps;
	send_req(s, c);
	charge(s, c->end[FAB_SENDER].host);
	fab_gsi_run(s, c->end[FAB_SENDER].host);
}

static void
established(struct fab_sim *s, struct fab_host *h, struct fab_conn *c, const struct karst_cm_ev *ev)
{
	struct fab_peer p = {
		.qpn = ev->remote.qpn,
		.sq_psn = ev->remote.psn,
		.path_mtu = fab_mtu_code(s->c->mtu),
		.timeout = (uint8_t)s->c->timeout,
		.retry_cnt = (uint8_t)s->c->retry,
		.rnr_retry = ev->remote.rnr_retry_count,
		.max_rd_atomic = ev->remote.initiator_depth,
		.max_dest_rd_atomic = ev->remote.responder_resources,
		.repeat = karst_cm_ece_agreed(&c->ece, &ev->remote.ece) != 0,
	};
	struct fab_flow *f = c->first;

	fab_conn_ready(s, &c->end[FAB_SENDER], c->end[FAB_RECEIVER].host->id, &p);
	karst_cm_id_ready(h->cm, ev->id, NULL, 0);
	c->asking = false;
	c->live = true;
	s->unsettled--;
	s->r->connections.established++;
	s->r->connections.repeat += p.repeat;
	fab_gauge_count(&s->connects, s->now_ps - c->asked_ps);
	if (f == NULL)
		return;
	c->first = NULL;
	s->waiting--;
	fab_flow_begin(s, f, c);
}

/* --- the side that is asked --- */

static void
asked(struct fab_sim *s, struct fab_host *h, const struct karst_cm_ev *ev)
{
	struct fab_conn *c = ev->service_id < s->nconns ? s->conn[ev->service_id] : NULL;
	struct karst_cm_param answer;
	struct fab_end *e;
	struct fab_peer p;

	charge(s, h);
	/* a late event may be for an earlier connection that used this memory */
	if (c == NULL || !c->asking || c->end[FAB_RECEIVER].host != h ||
		c->end[FAB_RECEIVER].cm_id != 0 ||
		karst_qp_num(c->end[FAB_SENDER].qp) != ev->remote.qpn) {
		karst_cm_id_destroy(h->cm, ev->id);
		return;
	}
	e = &c->end[FAB_RECEIVER];
	e->psn = first_psn(s);
	answer = param_of(s, e);
	answer.ece = karst_cm_ece_answer(&ev->remote.ece,
		s->c->repeat && !s->c->decline ? KARST_CM_ECE_REPEAT : 0, FAB_REPEAT_SHIFT);
	p = (struct fab_peer){
		.qpn = ev->remote.qpn,
		.sq_psn = ev->remote.psn,
		.path_mtu = ev->path->mtu,
		.timeout = ev->path->ack_timeout,
		.retry_cnt = ev->remote.retry_count,
		.rnr_retry = ev->remote.rnr_retry_count,
		.max_rd_atomic = ev->remote.initiator_depth,
		.max_dest_rd_atomic = ev->remote.responder_resources,
		.repeat = karst_cm_ece_is(&answer.ece),
	};
	fab_conn_ready(s, e, c->end[FAB_SENDER].host->id, &p);
	e->cm_id = ev->id;
	c->awaiting = true;
	s->unsettled++;
	karst_cm_id_set_user(h->cm, ev->id, c);
	karst_cm_id_accept(h->cm, ev->id, &answer);
}

/* --- what comes to nothing --- */

static void
settle(struct fab_sim *s, struct fab_conn *c)
{
	s->unsettled -= c->asking + c->awaiting;
	c->asking = c->awaiting = false;
}

/* Destroys the identifiers of @c without waiting for the peer. */
static void
forget(struct fab_sim *s, struct fab_conn *c)
{
	uint32_t i;

	settle(s, c);
	for (i = 0; i < FAB_SIDES; i++) {
		struct fab_end *e = &c->end[i];

		if (e->cm_id == 0)
			continue;
		fab_host_enter(s, e->host);
		karst_cm_id_destroy(e->host->cm, e->cm_id);
		e->cm_id = 0;
	}
}

static void
refused(struct fab_sim *s, struct fab_conn *c, const struct karst_cm_ev *ev)
{
	bool stale = ev->code == KARST_CM_EV_REJ && ev->reason == KARST_CM_REJ_STALE_CONN;
	struct fab_flow *f = c->first;

	forget(s, c);
	if (stale && c->tries++ < TRIES) {
		fab_conn_renew(s, c);
		send_req(s, c);
		return;
	}
	s->r->connections.failed++;
	c->first = NULL;
	fab_conn_close(s, c);
	if (f == NULL)
		return;
	s->waiting--;
	fab_flow_refuse(s, f);
}

/* The receiver got no RTU in time, and the sender was notified. */
static void
lost(struct fab_sim *s, struct fab_conn *c)
{
	forget(s, c);
	s->r->connections.established--;
	s->r->connections.failed++;
	fab_flow_fail(s, c);
}

static void
sender_event(
	struct fab_sim *s, struct fab_host *h, struct fab_conn *c, const struct karst_cm_ev *ev)
{
	switch (ev->code) {
	case KARST_CM_EV_REP:
		established(s, h, c, ev);
		return;
	case KARST_CM_EV_REJ:
	case KARST_CM_EV_REQ_ERROR:
		if (c->live)
			lost(s, c);
		else if (c->asking)
			refused(s, c, ev);
		return;
	default:
		return;
	}
}

static void
receiver_event(
	struct fab_sim *s, struct fab_host *h, struct fab_conn *c, const struct karst_cm_ev *ev)
{
	switch (ev->code) {
	case KARST_CM_EV_RTU:
		s->unsettled -= c->awaiting;
		c->awaiting = false;
		return;
	case KARST_CM_EV_REJ:
	case KARST_CM_EV_REP_ERROR:
		/* the sender will be notified, or has sent the notification itself */
		s->unsettled -= c->awaiting;
		c->awaiting = false;
		c->end[FAB_RECEIVER].cm_id = 0;
		karst_cm_id_destroy(h->cm, ev->id);
		return;
	default:
		return;
	}
}

/* --- the end --- */

void
fab_disconnect(struct fab_sim *s, struct fab_conn *c)
{
	struct fab_end *from = &c->end[FAB_SENDER], *to = &c->end[FAB_RECEIVER];

	settle(s, c);
	/* the receiver's identifier ends when the DREQ arrives, even if the connection's memory is
	 * in use for another connection then */
	if (to->cm_id != 0)
		karst_cm_id_set_user(to->host->cm, to->cm_id, NULL);
	to->cm_id = 0;
	if (from->cm_id == 0)
		return;
	fab_host_enter(s, from->host);
	karst_cm_id_set_user(from->host->cm, from->cm_id, NULL);
	if (karst_cm_id_disconnect(from->host->cm, from->cm_id, NULL, 0) == 0)
		s->disconnecting++;
	else
		karst_cm_id_destroy(from->host->cm, from->cm_id);
	from->cm_id = 0;
	fab_gsi_run(s, from->host);
}

static void
end_event(struct fab_sim *s, struct fab_host *h, const struct karst_cm_ev *ev)
{
	if (ev->code == KARST_CM_EV_DREP || ev->code == KARST_CM_EV_DREQ_ERROR) {
		*(ev->code == KARST_CM_EV_DREP ? &s->r->connections.ended
					       : &s->r->connections.broken) += 1;
		s->disconnecting--;
	}
	/* the side that gets a DREQ disconnects and answers */
	karst_cm_id_destroy(h->cm, ev->id);
}

void
fab_connect_event(void *host, const struct karst_cm_ev *ev)
{
	struct fab_host *h = host;
	struct fab_sim *s = h->s;
	struct fab_conn *c = ev->user;

	if (ev->code == KARST_CM_EV_REQ)
		asked(s, h, ev);
	else if (ev->code == KARST_CM_EV_MRA)
		return;
	else if (c == NULL)
		end_event(s, h, ev);
	else if (c->end[FAB_SENDER].host == h && c->end[FAB_SENDER].cm_id == ev->id)
		sender_event(s, h, c, ev);
	else
		receiver_event(s, h, c, ev);
}

/* --- before and after the workload's time --- */

/* A multiple of every granularity of timers, so that timers behave as if the clock were 0. */
#define CLOCK_ROUND (UINT64_C(1) << 44)

static void
restart_port(struct fab_port *p)
{
	p->busy_ps = 0;
	p->waits = false;
	if (p->queue.bucket != NULL)
		fab_gauge_restart(&p->queue, 0);
}

/* Begins the workload's time.  No frame is in flight, so remaining events are obsolete. */
static void
restart(struct fab_sim *s)
{
	uint32_t i, j;

	s->before_ns = (fab_host_clock_ns(s) / CLOCK_ROUND + 1) * CLOCK_ROUND;
	s->now_ps = 0;
	s->events.n = 0;
	s->r->pauses = s->r->paused_ps = 0;
	for (i = 0; i < s->nswitches; i++)
		for (j = 0; j < s->sw[i].nports; j++)
			restart_port(&s->sw[i].port[j]);
	for (i = 0; i < s->c->hosts; i++) {
		restart_port(&s->host[i].port);
		fab_host_restart(s, &s->host[i]);
	}
}

void
fab_connect_all(struct fab_sim *s)
{
	while ((s->unsettled != 0 || s->mads != 0) && fab_step(s))
		;
	restart(s);
}

void
fab_disconnect_all(struct fab_sim *s)
{
	struct fab_result r = *s->r;
	uint32_t i;

	s->ended = true;
	for (i = 0; i < s->nconns; i++) {
		if (s->conn[i]->open)
			fab_conn_close(s, s->conn[i]);
		fab_disconnect(s, s->conn[i]);
	}
	while ((s->disconnecting != 0 || s->mads != 0) && fab_step(s))
		;
	/* from now on, frames of the workload do not count for its result */
	r.connections = s->r->connections;
	*s->r = r;
}

void
fab_connect_result(struct fab_sim *s)
{
	struct fab_connections *r = &s->r->connections;
	uint32_t i, k;

	for (i = 0; i < s->c->hosts; i++) {
		const struct karst_cm_counters *c = &s->host[i].cm->counters;

		for (k = 0; k < KARST_CM_KINDS; k++) {
			r->mads += c->tx[k];
			r->mads_again += c->tx_retries[k];
		}
	}
	if (s->connects.total_ps == 0)
		return;
	r->p50_ps = fab_gauge_percentile(&s->connects, 0.5);
	r->p99_ps = fab_gauge_percentile(&s->connects, 0.99);
	r->max_ps = s->connects.max;
}
