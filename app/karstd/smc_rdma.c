/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Operations that lib/smc asks for, done by libkarst in the engine's process.
 *
 * WRITEs are sent from the program's buffer; the completion of the SEND behind them shows that they
 * are complete.
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
#include <sys/socket.h>
#include <unistd.h>

#include "karst_session.h"

#define CQ_ENTRIES 16384u
#define POLL_BATCH 32
#define RMB_IOVA   0x100000000ull

static_assert(SMC_LINKS * (SMC_SLOTS + SMC_RECVS) <= CQ_ENTRIES, "no completion is lost");

/* --- sending --- */

/* A request that is refused means that the queue pair is in Error. */
static void
post(struct svc_link *l, struct karst_send_wr *wr)
{
	(void)karst_post_send(l->qp.qp, wr, NULL);
}

static void
op_send(void *user, uint32_t link, const void *msg, size_t len)
{
	struct kd_smc *s = user;
	struct svc_link *l = svc_link_of(s, link);
	struct karst_sge sge;
	struct karst_send_wr wr = {.sg_list = &sge,
		.num_sge = 1,
		.opcode = KARST_WR_SEND,
		.send_flags = KARST_SEND_SIGNALED | KARST_SEND_SOLICITED};
	uint8_t *slot;

	if (l == NULL)
		return;
	assert(len <= SVC_SLOT_BYTES);
	slot = svc_link_slot(l);
	memcpy(slot, msg, len);
	sge = (struct karst_sge){
		.addr = (uintptr_t)slot, .len = (uint32_t)len, .lkey = l->qp.mr->lkey};
	wr.wr_id = svc_link_wr_id(s, l);
	post(l, &wr);
}

/* lib/smc splits where the position in the stream wraps around; the ring wraps around elsewhere. */
static void
op_write(void *user, const struct karst_smc_write *w)
{
	struct kd_smc *s = user;
	struct svc_link *l = svc_link_of(s, w->link);
	struct svc_conn *c = w->user;
	struct karst_sge sge;
	struct karst_send_wr wr = {.sg_list = &sge,
		.num_sge = 1,
		.opcode = KARST_WR_RDMA_WRITE,
		.rdma = {.rkey = w->rkey}};
	uint32_t done, n;

	if (l == NULL || c->rings == NULL || c->rings->tx_mr == NULL)
		return;
	wr.wr_id = svc_link_wr_id(s, l);
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

const struct karst_smc_ops svc_rdma_ops = {op_clc, svc_link_open, svc_link_connect, svc_link_close,
	op_send, op_write, op_rmb_open, op_rmb_key, op_rmb_unkey, op_rmb_close};

/* --- completions --- */

static void
complete(struct kd_smc *s, const struct karst_cqe *e)
{
	struct svc_link *l = &s->links[(e->wr_id >> 16 & 0xffff) % SMC_LINKS];
	uint32_t slot = (uint32_t)(e->wr_id & (SVC_RECV_FLAG - 1)), id = l->id;

	if (id == SMC_NO_ID || l->generation != (uint16_t)(e->wr_id >> 32))
		return; /* of a link that was closed meanwhile */
	if (e->status != KARST_WC_SUCCESS) {
		if (!l->down) {
			l->down = true;
			karst_smc_link_down(s->core, id);
		}
	} else if ((e->wr_id & SVC_RECV_FLAG) == 0) {
		karst_smc_link_sent(s->core, id, 1);
	} else {
		karst_smc_link_rx(s->core, id, svc_link_received(l, slot), e->byte_len);
		if (l->id == id) /* handling the message may have closed it */
			(void)svc_link_post_recv(s, l, slot);
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

/* Events that found no room can be sent.  Control calls are made with s->lock, as this is. */
static void
session_ready(struct svc_source *src, uint32_t events)
{
	karst_session_attend(svc_of(src, struct kd_smc, session_source)->session);
}

/* --- addresses --- */

void
svc_rdma_load_gids(struct kd_smc *s)
{
	int n = karst_query_gid_table(s->ctx, s->gids, SMC_MAX_GIDS);

	s->ngids = n > 0 ? (uint32_t)n : 0;
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
	int rc;

	svc_link_init(s);
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
	s->session = karst_session_of(&conn);
	s->session_source.ready = session_ready;
	svc_rdma_load_gids(s);
	rc = svc_watch(s, karst_session_fd(s->session), EPOLLIN, &s->session_source);
	if (rc == 0)
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
	svc_link_fini(s);
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
