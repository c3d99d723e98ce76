/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Operations that lib/smc asks for, done by libkarst in the engine's process.
 *
 * A link has memory for SMC_SLOTS messages to send, which are used in turn, since they complete in
 * order, and for SMC_RECVS messages to receive.  WRITEs are sent from the program's buffer; the
 * completion of the SEND behind them shows that they are complete.
 *
 * Each connection has memory of its own, which its program maps.  So a buffer of lib/smc's pool is
 * only a number here: its key is created when a connection takes it.  As long as the peer has the
 * key, the connection's memory exists, even if its program has gone.  A connection that has ended
 * may leave its memory, with the key, to another one of its program (smc_spare.c).
 */
#include "smc_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "karst_session.h"

#define CQ_ENTRIES 16384u
#define POLL_BATCH 32
#define MSG_BYTES  KARST_SMC_LLC_MAX_LEN
#define SLOT_BYTES 4160u /* for sending: the longest LLC message, on cache lines of its own */
#define RECV_FLAG  0x8000u
#define RMB_IOVA   0x100000000ull

static_assert(SMC_LINKS * (SMC_SLOTS + SMC_RECVS) <= CQ_ENTRIES, "no completion is lost");
static_assert(KARST_SMC_LLC_BUILD_MAX <= SLOT_BYTES, "a slot has room for any message");

/* --- links --- */

static struct svc_link *
link_of(struct kd_smc *s, uint32_t id)
{
	uint32_t i;

	for (i = 0; i < SMC_LINKS; i++)
		if (s->links[i].id == id)
			return &s->links[i];
	return NULL;
}

const struct karst_gid_entry *
svc_rdma_gid_entry(const struct kd_smc *s, const uint8_t gid[16])
{
	uint32_t i;

	for (i = 0; i < s->ngids; i++)
		if (memcmp(s->gids[i].gid.raw, gid, 16) == 0)
			return &s->gids[i];
	return NULL;
}

static uint8_t *
recv_slot(const struct svc_link *l, uint32_t slot)
{
	return l->mem + SMC_SLOTS * SLOT_BYTES + slot * MSG_BYTES;
}

static int
post_recv(struct kd_smc *s, struct svc_link *l, uint32_t slot)
{
	const struct karst_sge sge = {
		.addr = (uintptr_t)recv_slot(l, slot), .len = MSG_BYTES, .lkey = l->mr->lkey};
	const struct karst_recv_wr wr = {
		.wr_id = (uint64_t)l->generation << 32 | (uint64_t)(l - s->links) << 16 |
			RECV_FLAG | slot,
		.sg_list = &sge,
		.num_sge = 1,
	};

	return karst_post_recv(l->qp, &wr, NULL);
}

static void
link_free(struct svc_link *l)
{
	if (l->qp != NULL)
		(void)karst_destroy_qp(l->qp);
	if (l->mr != NULL)
		karst_dereg_mr(l->mr);
	karst_free(l->mem);
	*l = (struct svc_link){.id = SMC_NO_ID, .generation = (uint16_t)(l->generation + 1)};
}

static int
link_make(struct kd_smc *s, struct svc_link *l, uint32_t port)
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
	const struct karst_qp_attr attr = {.qp_state = KARST_QPS_INIT,
		.port_num = (uint8_t)port,
		.qp_access_flags = KARST_ACCESS_REMOTE_WRITE};
	const size_t bytes = SMC_SLOTS * SLOT_BYTES + SMC_RECVS * MSG_BYTES;
	uint32_t i;
	int rc;

	l->mem = karst_alloc(bytes);
	if (l->mem == NULL)
		return -ENOMEM;
	rc = karst_reg_mr(s->pd, l->mem, bytes, KARST_ACCESS_LOCAL_WRITE, &l->mr);
	if (rc == 0)
		rc = karst_create_qp(s->pd, &init, &l->qp);
	if (rc == 0)
		rc = karst_modify_qp(l->qp, &attr,
			KARST_QP_STATE | KARST_QP_PKEY_INDEX | KARST_QP_PORT |
				KARST_QP_ACCESS_FLAGS);
	for (i = 0; rc == 0 && i < SMC_RECVS; i++)
		rc = post_recv(s, l, i);
	return rc;
}

static int
op_link_open(void *user, const struct karst_smc_link_ask *ask, struct karst_smc_end *local)
{
	struct kd_smc *s = user;
	struct svc_link *l = link_of(s, SMC_NO_ID);
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
	l->port = g->port_num;
	memcpy(local->gid, g->gid.raw, sizeof(local->gid));
	memcpy(local->mac, port.mac, sizeof(local->mac));
	local->qpn = l->qp->qp_num;
	if (getrandom(&local->psn, sizeof(local->psn), 0) != sizeof(local->psn))
		local->psn = 0;
	local->psn &= 0xffffff;
	local->mtu = (uint8_t)port.active_mtu;
	l->local = *local;
	return 0;
}

static int
op_link_connect(void *user, uint32_t link, const struct karst_smc_end *remote)
{
	struct kd_smc *s = user;
	struct svc_link *l = link_of(s, link);

	return l != NULL ? svc_connect(s, l, remote) : -ENODEV;
}

static void
op_link_close(void *user, uint32_t link)
{
	struct svc_link *l = link_of(user, link);

	if (l != NULL)
		link_free(l);
}

/* --- sending --- */

/* A request that is refused means that the queue pair is in Error. */
static void
post(struct svc_link *l, struct karst_send_wr *wr)
{
	(void)karst_post_send(l->qp, wr, NULL);
}

static void
op_send(void *user, uint32_t link, const void *msg, size_t len)
{
	struct kd_smc *s = user;
	struct svc_link *l = link_of(s, link);
	struct karst_sge sge;
	struct karst_send_wr wr = {.sg_list = &sge,
		.num_sge = 1,
		.opcode = KARST_WR_SEND,
		.send_flags = KARST_SEND_SIGNALED | KARST_SEND_SOLICITED};
	uint8_t *slot;

	if (l == NULL)
		return;
	assert(len <= SLOT_BYTES);
	slot = l->mem + l->next_slot * SLOT_BYTES;
	l->next_slot = (l->next_slot + 1) % SMC_SLOTS;
	memcpy(slot, msg, len);
	sge = (struct karst_sge){
		.addr = (uintptr_t)slot, .len = (uint32_t)len, .lkey = l->mr->lkey};
	wr.wr_id = (uint64_t)l->generation << 32 | (uint64_t)(l - s->links) << 16;
	post(l, &wr);
}

/* lib/smc splits where the position in the stream wraps around; the ring wraps around elsewhere. */
static void
op_write(void *user, const struct karst_smc_write *w)
{
	struct kd_smc *s = user;
	struct svc_link *l = link_of(s, w->link);
	struct svc_conn *c = w->user;
	struct karst_sge sge;
	struct karst_send_wr wr = {.sg_list = &sge,
		.num_sge = 1,
		.opcode = KARST_WR_RDMA_WRITE,
		.rdma = {.rkey = w->rkey}};
	uint32_t done, n;

	if (l == NULL || c->rings == NULL || c->rings->tx_mr == NULL)
		return;
	wr.wr_id = (uint64_t)l->generation << 32 | (uint64_t)(l - s->links) << 16;
	for (done = 0; done < w->len; done += n) {
		uint32_t at = (uint32_t)(w->pos + done + c->tx_shift) & (c->buffer - 1);

		n = karst_min_u32(w->len - done, c->buffer - at);
		wr.rdma.remote_addr = w->vaddr + done;
		sge = (struct karst_sge){
			.addr = (uintptr_t)c->tx + at, .len = n, .lkey = c->rings->tx_mr->lkey};
		post(l, &wr);
	}
}

/* --- keys --- */

static int
op_rmb_open(void *user, uint32_t rmb, uint32_t bytes)
{
	return 0;
}

static int
op_rmb_key(
	void *user, uint32_t rmb, void *conn_user, uint32_t link, uint32_t *rkey, uint64_t *vaddr)
{
	struct kd_smc *s = user;
	struct svc_conn *c = conn_user;
	struct svc_rmb *r = &s->rmbs[rmb];
	int rc;

	if (r->mr != NULL && (c == NULL || c == r->conn)) { /* on another link the key is the
							     * same */
		*rkey = r->mr->rkey;
		*vaddr = RMB_IOVA;
		return 0;
	}
	if (c == NULL || r->mr != NULL)
		return -EINVAL;
	if (!svc_conn_map(c))
		return -ENOMEM;
	rc = karst_reg_mr_iova(s->pd, c->rx, c->buffer, RMB_IOVA,
		KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE, &r->mr);
	if (rc != 0) {
		karst_log_some(
			&s->log, kd_clock_ns(), KARST_LOG_WARNING, "smc: a key: %s", karst_why());
		return -ENOMEM;
	}
	svc_spare_leave(c->rings);
	r->rings = c->rings;
	r->rings->rmb = rmb;
	r->rings->keys++;
	svc_rdma_enter_rmb(c, rmb);
	*rkey = r->mr->rkey;
	*vaddr = RMB_IOVA;
	return 0;
}

void
svc_rdma_enter_rmb(struct svc_conn *c, uint32_t rmb)
{
	c->smc->rmbs[rmb].conn = c;
	c->refs++;
}

void
svc_rdma_leave_rmb(struct kd_smc *s, uint32_t rmb)
{
	struct svc_conn *c = s->rmbs[rmb].conn;

	s->rmbs[rmb].conn = NULL;
	svc_conn_put(c);
}

static void
op_rmb_unkey(void *user, uint32_t rmb)
{
	struct kd_smc *s = user;
	struct svc_rmb r = s->rmbs[rmb];

	if (r.mr == NULL)
		return;
	karst_dereg_mr(r.mr);
	s->rmbs[rmb] = (struct svc_rmb){0};
	r.rings->keys--;
	if (r.rings->rmb == rmb) {
		svc_spare_leave(r.rings);
		r.rings->rmb = SMC_NO_ID;
	}
	if (r.conn != NULL) {
		svc_conn_put(r.conn);
	} else {
		s->nspares--;
		svc_rings_unkeyed(r.rings);
	}
}

static void
op_rmb_close(void *user, uint32_t rmb)
{
}

int
svc_rdma_tx_key(struct svc_conn *c)
{
	if (!svc_conn_map(c))
		return -ENOMEM;
	return c->rings->tx_mr == NULL
		? karst_reg_mr(c->smc->pd, c->tx, c->buffer, 0, &c->rings->tx_mr)
		: 0;
}

void
svc_rdma_tx_unkey(struct svc_rings *r)
{
	if (r->tx_mr != NULL)
		karst_dereg_mr(r->tx_mr);
	r->tx_mr = NULL;
}

static void
op_clc(void *user, uint32_t conn, void *conn_user, const void *msg, size_t len)
{
	svc_clc_send(conn_user, msg, len);
}

const struct karst_smc_ops svc_rdma_ops = {op_clc, op_link_open, op_link_connect, op_link_close,
	op_send, op_write, op_rmb_open, op_rmb_key, op_rmb_unkey, op_rmb_close};

/* --- completions --- */

static void
complete(struct kd_smc *s, const struct karst_cqe *e)
{
	struct svc_link *l = &s->links[(e->wr_id >> 16 & 0xffff) % SMC_LINKS];
	uint32_t slot = (uint32_t)(e->wr_id & (RECV_FLAG - 1)), id = l->id;

	if (id == SMC_NO_ID || l->generation != (uint16_t)(e->wr_id >> 32))
		return; /* of a link that was closed meanwhile */
	if (e->status != KARST_WC_SUCCESS) {
		if (!l->down) {
			l->down = true;
			karst_smc_link_down(s->core, id);
		}
	} else if ((e->wr_id & RECV_FLAG) == 0) {
		karst_smc_link_sent(s->core, id, 1);
	} else {
		karst_smc_link_rx(s->core, id, recv_slot(l, slot), e->byte_len);
		if (l->id == id) /* handling the message may have closed it */
			(void)post_recv(s, l, slot);
	}
}

bool
svc_rdma_poll(struct kd_smc *s)
{
	struct karst_cqe e[POLL_BATCH];
	int n = karst_poll_cq(s->cq, POLL_BATCH, e), i;

	for (i = 0; i < n; i++)
		complete(s, &e[i]);
	return n > 0;
}

void
svc_rdma_poll_all(struct kd_smc *s)
{
	unsigned int left = CQ_ENTRIES / POLL_BATCH + 1; /* a limit, because peers may send
							  * without end */

	while (left-- > 0 && svc_rdma_poll(s))
		;
}

void
svc_rdma_arm(struct kd_smc *s)
{
	s->armed = karst_req_notify_cq(s->cq, false) == 0;
}

static void
channel_ready(struct svc_source *src, uint32_t events)
{
	struct kd_smc *s = svc_of(src, struct kd_smc, channel_source);
	struct karst_cq *cq;
	void *unused;

	s->armed = false;
	/* there is one queue, which was asked for one event; epoll would report further ones
	 * again */
	if (karst_get_cq_event(s->channel, &cq, &unused) == 0)
		karst_ack_cq_events(cq, 1);
}

/* --- addresses --- */

void
svc_rdma_load_gids(struct kd_smc *s)
{
	int n = karst_query_gid_table(s->ctx, s->gids, SMC_MAX_GIDS);

	s->ngids = n > 0 ? (uint32_t)n : 0;
}

bool
svc_rdma_gid(struct kd_smc *s, const struct sockaddr_storage *local, uint8_t gid[16])
{
	uint8_t ip[16] = {[10] = 0xff, [11] = 0xff};

	if (local->ss_family == AF_INET)
		memcpy(ip + 12, &((const struct sockaddr_in *)local)->sin_addr, 4);
	else
		memcpy(ip, &((const struct sockaddr_in6 *)local)->sin6_addr, 16);
	if (ip[10] == 0xff && ip[12] == 127)
		memcpy(ip + 12, (const uint8_t[]){127, 0, 0, 1}, 4);
	if (svc_rdma_gid_entry(s, ip) == NULL)
		svc_rdma_load_gids(s); /* a port may have got an address since */
	if (svc_rdma_gid_entry(s, ip) == NULL)
		return false;
	memcpy(gid, ip, 16);
	return true;
}

/*
 * In a network namespace of their own, users can use any address, also that of a port and that of
 * its peer.  What they send there as that peer would be taken for messages of the real peer, also
 * about its link groups.
 */
bool
svc_rdma_is_here(const struct svc_conn *c)
{
	return c->smc->netns == 0 || c->netns == c->smc->netns;
}

static void
see_netns(struct kd_smc *s)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(s->netns);

	if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &s->netns, &len) != 0)
		s->netns = 0; /* before Linux 5.14 */
	if (fd >= 0)
		close(fd);
}

/* --- start and end --- */

int
svc_rdma_init(struct kd_smc *s)
{
	const struct karst_session_limits limits = {.share = 0};
	const struct karst_open_attr attr = {.program = "karstd-smc"};
	const struct karst_cq_init_attr init = {.cqe = CQ_ENTRIES};
	struct karst_cq_init_attr with = init;
	struct karst_ctl_conn conn;
	uint32_t i;
	int rc;

	for (i = 0; i < SMC_LINKS; i++)
		s->links[i].id = SMC_NO_ID;
	see_netns(s);
	/* buffers of connections, and as many as may be spare when these are created */
	s->nrmbs = karst_min_u32(s->conf->smc.max_connections + SMC_SPARES, 1u << 16);
	s->rmbs = calloc(s->nrmbs, sizeof(*s->rmbs));
	if (s->rmbs == NULL)
		return -ENOMEM;
	rc = karst_session_conn(s->engine, &limits, &conn);
	if (rc != 0)
		return rc;
	rc = karst_open_conn(&conn, &attr, &s->ctx);
	if (rc != 0) {
		conn.close(conn.user);
		return rc;
	}
	svc_rdma_load_gids(s);
	rc = karst_alloc_pd(s->ctx, &s->pd);
	if (rc == 0)
		rc = karst_create_comp_channel(s->ctx, &s->channel);
	with.channel = s->channel;
	if (rc == 0)
		rc = karst_create_cq_ex(s->ctx, &with, &s->cq);
	if (rc != 0)
		return rc;
	s->channel_source.ready = channel_ready;
	if (fcntl(s->channel->fd, F_SETFL, O_NONBLOCK) != 0)
		return -errno;
	return svc_watch(s, s->channel->fd, EPOLLIN, &s->channel_source);
}

void
svc_rdma_fini(struct kd_smc *s)
{
	uint32_t i;

	for (i = 0; i < SMC_LINKS; i++)
		if (s->links[i].id != SMC_NO_ID)
			link_free(&s->links[i]);
	if (s->cq != NULL)
		karst_destroy_cq(s->cq);
	if (s->channel != NULL)
		karst_destroy_comp_channel(s->channel);
	if (s->pd != NULL)
		karst_dealloc_pd(s->pd);
	if (s->ctx != NULL)
		karst_abandon(s->ctx);
	free(s->rmbs);
}
