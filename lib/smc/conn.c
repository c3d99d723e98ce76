/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Creation and release of connections, and the program's calls for one. */
#include "smc_priv.h"

#define SIZE_MAX_OWN 10 /* 16 MiB */

int
karst_smc_conn_open(struct karst_smc *smc, const struct karst_smc_conn_attr *attr, uint32_t *id)
{
	struct smc_core *c = core_of(smc);
	struct smc_conn *conn;
	uint16_t generation;
	bool listed;
	uint32_t ev_next;

	if (attr->size > SIZE_MAX_OWN || !karst_is_pow2(attr->send_bytes) ||
		attr->role > KARST_SMC_SERVER)
		return -EINVAL;
	if (c->free_conn == NIL)
		return -ENOSPC;
	conn = &c->conns[c->free_conn];
	c->free_conn = conn->group_next;
	generation = (uint16_t)(conn->generation + 1);
	/* events of the previous connection in this slot, which was released with events */
	listed = conn->ev_listed;
	ev_next = conn->ev_next;
	*conn = (struct smc_conn){
		.generation = generation,
		.ev_listed = listed,
		.ev_next = ev_next,
		.user = attr->user,
		.role = (uint8_t)attr->role,
		.size = attr->size,
		.send_bytes = attr->send_bytes,
		.rmb_bytes = karst_smc_size_bytes(attr->size),
		.timer.kind = TIMER_CONN,
	};
	memcpy(conn->local_gid, attr->local_gid, 16);
	memcpy(conn->peer_ip, attr->peer_ip, 16);
	smc->nconns++;
	*id = conn_id(c, conn);
	smc_timer_set(c, &conn->timer, c->cfg.clc_wait_ns);
	if (attr->role == KARST_SMC_CLIENT)
		smc_client_propose(c, conn);
	else
		conn->state = KARST_SMC_WAIT_PROPOSAL;
	return 0;
}

int
karst_smc_conn_release(struct karst_smc *smc, uint32_t id)
{
	struct smc_core *c = core_of(smc);
	struct smc_conn *conn = smc_conn_find(c, id);

	if (conn == NULL)
		return -ENOENT;
	if (conn->state != KARST_SMC_FELL_BACK && conn->state != KARST_SMC_FAILED &&
		(conn->state != KARST_SMC_CLOSED || conn->in_flight != 0))
		return -EBUSY;
	smc_timer_stop(c, &conn->timer);
	smc_link_unwait(c, conn);
	smc_rmb_put(c, conn);
	smc_group_leave(c, conn);
	conn->state = KARST_SMC_FREE;
	conn->ev = 0;
	conn->group_next = c->free_conn;
	c->free_conn = conn_index(c, conn);
	smc->nconns--;
	return 0;
}

int
karst_smc_conn_decline(struct karst_smc *smc, uint32_t id, uint32_t reason)
{
	struct smc_core *c = core_of(smc);
	struct smc_conn *conn = smc_conn_find(c, id);

	if (conn == NULL)
		return -ENOENT;
	if (conn->state >= KARST_SMC_WAIT_ADD_LINK)
		return -EINVAL;
	smc_refuse(c, conn, reason);
	return 0;
}

int
karst_smc_conn_send(struct karst_smc *smc, uint32_t id, uint32_t bytes, bool urgent)
{
	struct smc_core *c = core_of(smc);
	struct smc_conn *conn = smc_conn_find(c, id);

	if (conn == NULL)
		return -ENOENT;
	if (conn->state < KARST_SMC_ACTIVE)
		return -EINVAL;
	if (conn->app_shut || conn->app_closed || conn->dead || !conn_connected(conn))
		return -EPIPE;
	if (conn->snd_pos + bytes - conn->fin > conn->send_bytes)
		return -ENOSPC;
	conn->snd_pos += bytes;
	if (urgent && bytes != 0) {
		conn->urgent_set = true;
		conn->urgent_end = conn->snd_pos + (smc_mutant(URGENT_LATE) ? 1 : 0);
	}
	smc_push(c, conn);
	return 0;
}

/*
 * Whether to send an update: more than a tenth was consumed, and not much room is left.  The peer
 * needs the information most when its view of the buffer is nearly full (S14).
 */
static bool
worth_telling(const struct smc_conn *conn)
{
	uint64_t untold = conn->cons - conn->cons_told;
	uint64_t room = conn->rmb_bytes - (conn->recv_pos - conn->cons_told);

	if (smc_mutant(NO_UPDATE))
		return false;
	if (conn->rx_prod_flags & KARST_SMC_CDC_UPDATE)
		return true;
	return untold > conn->rmb_bytes / 10 &&
		(room <= conn->rmb_bytes / 2 || conn->rx_prod_flags & KARST_SMC_CDC_BLOCKED);
}

int
karst_smc_conn_consumed(struct karst_smc *smc, uint32_t id, uint32_t bytes)
{
	struct smc_core *c = core_of(smc);
	struct smc_conn *conn = smc_conn_find(c, id);
	bool past_urgent;

	if (conn == NULL)
		return -ENOENT;
	if (conn->state < KARST_SMC_ACTIVE || bytes > conn->recv_pos - conn->cons)
		return -EINVAL;
	past_urgent = conn->urgent_seen && conn->cons <= conn->urgent_pos &&
		conn->cons + bytes > conn->urgent_pos;
	conn->cons += bytes;
	if (worth_telling(conn) || past_urgent)
		smc_push_cdc(c, conn);
	return 0;
}
