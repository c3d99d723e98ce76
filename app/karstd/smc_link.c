/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Links: their queue pairs, and the memory of their messages.
 *
 * A link has memory for SMC_SLOTS messages to send, which are used in turn, since they complete in
 * order, and for SMC_RECVS messages to receive.
 *
 * Most of the time that the first connection of two hosts takes is the time to make a queue pair
 * and its memory: pages have to be allocated, and an lcore that sleeps has to be woken several
 * times.  So a few are made in advance (smc_stock.c), for the port that links will probably use.
 */
#include "smc_priv.h"

#include <sys/random.h>

#define MSG_BYTES KARST_SMC_LLC_MAX_LEN

static_assert(KARST_SMC_LLC_BUILD_MAX <= SVC_SLOT_BYTES, "a slot has room for any message");

struct svc_link *
svc_link_of(struct kd_smc *s, uint32_t id)
{
	uint32_t i;

	for (i = 0; i < SMC_LINKS; i++)
		if (s->links[i].id == id)
			return &s->links[i];
	return NULL;
}

uint8_t *
svc_link_received(const struct svc_link *l, uint32_t slot)
{
	return l->qp.mem + SMC_SLOTS * SVC_SLOT_BYTES + slot * MSG_BYTES;
}

uint8_t *
svc_link_slot(struct svc_link *l)
{
	uint8_t *slot = l->qp.mem + l->next_slot * SVC_SLOT_BYTES;

	l->next_slot = (l->next_slot + 1) % SMC_SLOTS;
	return slot;
}

uint64_t
svc_link_wr_id(const struct kd_smc *s, const struct svc_link *l)
{
	return (uint64_t)l->generation << 32 | (uint64_t)(l - s->links) << 16;
}

int
svc_link_post_recv(struct kd_smc *s, struct svc_link *l, uint32_t slot)
{
	const struct karst_sge sge = {.addr = (uintptr_t)svc_link_received(l, slot),
		.len = MSG_BYTES,
		.lkey = l->qp.mr->lkey};
	const struct karst_recv_wr wr = {
		.wr_id = svc_link_wr_id(s, l) | SVC_RECV_FLAG | slot,
		.sg_list = &sge,
		.num_sge = 1,
	};

	return karst_post_recv(l->qp.qp, &wr, NULL);
}

/* --- queue pairs --- */

static void
qp_free(struct svc_qp *q)
{
	if (q->qp != NULL)
		(void)karst_destroy_qp(q->qp);
	if (q->mr != NULL)
		karst_dereg_mr(q->mr);
	karst_free(q->mem);
	*q = (struct svc_qp){0};
}

/* INIT, or to another port there. */
static int
qp_init(struct svc_qp *q, uint32_t port)
{
	const struct karst_qp_attr attr = {.qp_state = KARST_QPS_INIT,
		.port_num = (uint8_t)port,
		.qp_access_flags = KARST_ACCESS_REMOTE_WRITE};

	q->port = port;
	return karst_modify_qp(q->qp, &attr,
		KARST_QP_STATE | KARST_QP_PKEY_INDEX | KARST_QP_PORT | KARST_QP_ACCESS_FLAGS);
}

static int
qp_make(struct kd_smc *s, struct svc_qp *q, uint32_t port)
{
	struct karst_qp_init_attr init = {
		.send_cq = s->cq,
		.recv_cq = s->cq,
		/* a SEND, five WRITEs, and one more WRITE because of the end of the ring */
		.cap = {.max_send_wr = SMC_SLOTS * 7,
			.max_recv_wr = SMC_RECVS,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.qp_type = KARST_QPT_RC,
	};
	const size_t bytes = SMC_SLOTS * SVC_SLOT_BYTES + SMC_RECVS * MSG_BYTES;
	int rc;

	*q = (struct svc_qp){.mem = karst_alloc(bytes)};
	if (q->mem == NULL)
		return -ENOMEM;
	rc = karst_reg_mr(s->pd, q->mem, bytes, KARST_ACCESS_LOCAL_WRITE, &q->mr);
	if (rc == 0)
		rc = karst_create_qp(s->pd, &init, &q->qp);
	if (rc == 0)
		rc = qp_init(q, port);
	if (rc != 0)
		qp_free(q);
	return rc;
}

/* --- in stock --- */

uint32_t
svc_link_port(const struct kd_smc *s)
{
	uint32_t i;

	for (i = 0; i < s->ngids; i++)
		if (!svc_ports_is_local(s->gids[i].gid.raw) || s->conf->smc.direct == KD_NO)
			return s->gids[i].port_num;
	return 0;
}

bool
svc_link_lacks(const struct kd_smc *s)
{
	uint32_t i;

	if (s->nqps == SMC_QPS || svc_link_port(s) == 0)
		return false;
	for (i = 0; i < SMC_LINKS; i++)
		if (s->links[i].id == SMC_NO_ID)
			return true;
	return false;
}

bool
svc_link_stock(struct kd_smc *s)
{
	if (qp_make(s, &s->qps[s->nqps], svc_link_port(s)) != 0)
		return false;
	s->nqps++;
	return true;
}

void
svc_link_unstock(struct kd_smc *s, uint32_t port)
{
	uint32_t i, n = s->nqps;

	for (i = s->nqps = 0; i < n; i++)
		if (s->qps[i].port == port)
			qp_free(&s->qps[i]);
		else
			s->qps[s->nqps++] = s->qps[i];
	s->stock_failed = false;
}

/* --- operations for lib/smc --- */

static void
link_free(struct svc_link *l)
{
	qp_free(&l->qp);
	*l = (struct svc_link){.id = SMC_NO_ID, .generation = (uint16_t)(l->generation + 1)};
}

/* One from the stock, whose port may have gone meanwhile, or a new one. */
static int
link_make(struct kd_smc *s, struct svc_link *l, uint32_t port)
{
	uint32_t i;
	int rc = -ENOENT;

	s->stock_failed = false;
	if (s->nqps != 0) {
		l->qp = s->qps[--s->nqps];
		rc = l->qp.port == port ? 0 : qp_init(&l->qp, port);
		if (rc != 0)
			qp_free(&l->qp);
	}
	if (rc != 0)
		rc = qp_make(s, &l->qp, port);
	for (i = 0; rc == 0 && i < SMC_RECVS; i++)
		rc = svc_link_post_recv(s, l, i);
	return rc;
}

int
svc_link_open(void *user, const struct karst_smc_link_ask *ask, struct karst_smc_end *local)
{
	struct kd_smc *s = user;
	struct svc_link *l = svc_link_of(s, SMC_NO_ID);
	const struct karst_gid_entry *g;
	struct karst_port_attr port;
	int rc;

	g = ask->local_gid != NULL ? svc_rdma_gid_entry(s, ask->local_gid)
				   : svc_ports_other(s, ask);
	if (g == NULL || karst_query_port(s->ctx, g->port_num, &port) != 0)
		return -ENODEV;
	if (l == NULL)
		return -ENOMEM;
	rc = link_make(s, l, g->port_num);
	if (rc != 0) {
		karst_log_some(&s->log, kd_clock_ns(), KARST_LOG_WARNING, "smc: a queue pair: %s",
			karst_why());
		link_free(l);
		return -ENOMEM;
	}
	l->id = ask->link;
	l->group = ask->group;
	memcpy(local->gid, g->gid.raw, sizeof(local->gid));
	memcpy(local->mac, port.mac, sizeof(local->mac));
	local->qpn = l->qp.qp->qp_num;
	if (getrandom(&local->psn, sizeof(local->psn), 0) != sizeof(local->psn))
		local->psn = 0;
	local->psn &= 0xffffff;
	local->mtu = (uint8_t)port.active_mtu;
	l->local = *local;
	return 0;
}

int
svc_link_connect(void *user, uint32_t link, const struct karst_smc_end *remote)
{
	struct kd_smc *s = user;
	struct svc_link *l = svc_link_of(s, link);

	return l != NULL ? svc_connect(s, l, remote) : -ENODEV;
}

void
svc_link_close(void *user, uint32_t link)
{
	struct svc_link *l = svc_link_of(user, link);

	if (l != NULL)
		link_free(l);
}

/* --- start and end --- */

void
svc_link_init(struct kd_smc *s)
{
	uint32_t i;

	for (i = 0; i < SMC_LINKS; i++)
		s->links[i].id = SMC_NO_ID;
}

void
svc_link_fini(struct kd_smc *s)
{
	uint32_t i;

	for (i = 0; i < SMC_LINKS; i++)
		if (s->links[i].id != SMC_NO_ID)
			link_free(&s->links[i]);
	while (s->nqps != 0)
		qp_free(&s->qps[--s->nqps]);
}
