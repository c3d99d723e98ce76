/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Objects and functions that the cases share: see same.h. */
#include "same.h"

#include <arpa/inet.h>
#include <time.h>

#define LOOK_MS   2
#define NONE_MS   60 /* enough for most wrong completions to come; a later one is not detected */
#define GID_TRIES 256

const char *device_name;
char own_address[64];
struct ibv_context *ctx;
struct ibv_pd *pd;
struct ibv_cq *cq;
struct ibv_mr *mr;
uint8_t *buf;
int own_index;
union ibv_gid own_gid;
struct ibv_qp *qp[2];

struct ibv_context *
open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *opened = NULL;
	size_t i;

	MUST(list != NULL);
	for (i = 0; list[i] != NULL; i++)
		if (strcmp(ibv_get_device_name(list[i]), device_name) == 0)
			opened = ibv_open_device(list[i]);
	MUST(opened != NULL);
	ibv_free_device_list(list);
	return opened;
}

/* Finds the first IPv4 address of the port. */
static void
find_gid(void)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	struct ibv_gid_entry entry;

	for (own_index = 0; own_index < GID_TRIES; own_index++)
		if (ibv_query_gid_ex(ctx, 1, (uint32_t)own_index, &entry, 0) == 0 &&
			entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
			memcmp(entry.gid.raw, mapped, sizeof(mapped)) == 0)
			break;
	MUST(own_index < GID_TRIES);
	own_gid = entry.gid;
	MUST(inet_ntop(AF_INET, own_gid.raw + 12, own_address, sizeof(own_address)) != NULL);
}

void
bed_open(void)
{
	ctx = open_device();
	find_gid();
	buf = aligned_alloc(4096, BUF_BYTES);
	MUST(buf != NULL);
	memset(buf, 0, BUF_BYTES);
	MUST((pd = ibv_alloc_pd(ctx)) != NULL);
	MUST((cq = ibv_create_cq(ctx, 256, NULL, NULL, 0)) != NULL);
	MUST((mr = ibv_reg_mr(pd, buf, BUF_BYTES, ALL_ACCESS | IBV_ACCESS_MW_BIND)) != NULL);
}

/* --- queue pairs --- */

struct ibv_qp_init_attr
qp_init(enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr){
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 16,
			.max_recv_wr = 16,
			.max_send_sge = 2,
			.max_recv_sge = 2,
			.max_inline_data = 32},
		.qp_type = type,
	};
}

struct ibv_qp *
make_qp(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = qp_init(type);
	struct ibv_qp *made = ibv_create_qp(pd, &init);

	MUST(made != NULL);
	return made;
}

struct ibv_qp_attr
full_attr(enum ibv_qp_state state, uint32_t peer)
{
	return (struct ibv_qp_attr){
		.qp_state = state,
		.path_mtu = IBV_MTU_1024,
		.qkey = QKEY,
		.rq_psn = 100,
		.sq_psn = 100,
		.dest_qp_num = peer,
		.qp_access_flags = ALL_ACCESS,
		.ah_attr = {.grh = {.dgid = own_gid,
				    .sgid_index = (uint8_t)own_index,
				    .hop_limit = 7,
				    .flow_label = 0x12345,
				    .traffic_class = 8},
			.is_global = 1,
			.port_num = 1},
		.alt_ah_attr = {.grh = {.dgid = own_gid,
					.sgid_index = (uint8_t)own_index,
					.hop_limit = 7},
			.is_global = 1,
			.port_num = 1},
		.alt_port_num = 1,
		.max_rd_atomic = 4,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.port_num = 1,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 0,
		.cap = qp_init(IBV_QPT_RC).cap,
	};
}

int
needed(enum ibv_qp_type type, enum ibv_qp_state to)
{
	bool rc = type == IBV_QPT_RC, ud = type == IBV_QPT_UD;

	switch (to) {
	case IBV_QPS_INIT:
		return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			(ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	case IBV_QPS_RTR:
		return IBV_QP_STATE |
			(ud ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) |
			(rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
	case IBV_QPS_RTS:
		return IBV_QP_STATE | IBV_QP_SQ_PSN |
			(rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						IBV_QP_MAX_QP_RD_ATOMIC
			    : 0);
	default:
		return IBV_QP_STATE;
	}
}

int
move(struct ibv_qp *q, enum ibv_qp_state to, uint32_t peer)
{
	struct ibv_qp_attr attr = full_attr(to, peer);

	return ibv_modify_qp(q, &attr, needed(q->qp_type, to));
}

static void
pause_ms(long ms)
{
	nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static bool
is_draining(struct ibv_qp *q)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	MUST(ibv_query_qp(q, &attr, IBV_QP_STATE, &init) == 0);
	return attr.sq_draining != 0;
}

void
bring_to(struct ibv_qp *q, enum ibv_qp_state to, uint32_t peer)
{
	static const enum ibv_qp_state way[] = {
		IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD};
	enum ibv_qp_state now = IBV_QPS_RESET;
	size_t i;

	if (to == IBV_QPS_ERR) {
		/* Linux has no transition from RESET to ERR */
		if (state_of(q) == IBV_QPS_RESET)
			MUST(move(q, IBV_QPS_INIT, peer) == 0);
		MUST(move(q, to, peer) == 0);
		return;
	}
	for (i = 0; now != to && i < sizeof(way) / sizeof(way[0]); i++) {
		now = way[i];
		MUST(move(q, now, peer) == 0);
	}
	while (now == IBV_QPS_SQD && is_draining(q))
		pause_ms(LOOK_MS);
}

enum ibv_qp_state
state_of(struct ibv_qp *q)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	MUST(ibv_query_qp(q, &attr, IBV_QP_STATE, &init) == 0);
	return attr.qp_state;
}

const char *
state_name(enum ibv_qp_state state)
{
	static const char *const names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

	return (unsigned int)state < sizeof(names) / sizeof(names[0]) ? names[state] : "no state";
}

static void
link_pair(void)
{
	int i;

	for (i = 0; i < 2; i++)
		bring_to(qp[i], IBV_QPS_RTS, qp[1 - i]->qp_num);
}

void
connect_pair(enum ibv_qp_type type)
{
	int i;

	for (i = 0; i < 2; i++)
		qp[i] = make_qp(type);
	link_pair();
}

void
again(void)
{
	struct ibv_wc wc;
	int i;

	for (i = 0; i < 2; i++)
		MUST(move(qp[i], IBV_QPS_ERR, 0) == 0);
	for (i = 0; i < 2; i++)
		MUST(move(qp[i], IBV_QPS_RESET, 0) == 0);
	while (ibv_poll_cq(cq, 1, &wc) > 0)
		continue;
	link_pair();
}

/* --- requests --- */

struct ibv_sge
piece(size_t off, uint32_t len)
{
	return (struct ibv_sge){.addr = (uintptr_t)buf + off, .length = len, .lkey = mr->lkey};
}

struct ibv_send_wr
send_wr(enum ibv_wr_opcode opcode, uint64_t id, struct ibv_sge *sge)
{
	struct ibv_send_wr wr = {.wr_id = id,
		.sg_list = sge,
		.num_sge = sge != NULL,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED};
	uint64_t remote = (uintptr_t)buf + BUF_BYTES / 2;

	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = mr->rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = mr->rkey;
	}
	return wr;
}

int
post_send(struct ibv_qp *q, uint64_t id, size_t off, uint32_t len)
{
	struct ibv_sge sge = piece(off, len);
	struct ibv_send_wr wr = send_wr(IBV_WR_SEND, id, &sge), *bad;

	return ibv_post_send(q, &wr, &bad);
}

int
post_recv(struct ibv_qp *q, uint64_t id, size_t off, uint32_t len)
{
	struct ibv_sge sge = piece(off, len);
	struct ibv_recv_wr wr = {.wr_id = RECV_ID + id, .sg_list = &sge, .num_sge = 1}, *bad;

	return ibv_post_recv(q, &wr, &bad);
}

/* --- completions and events --- */

struct ibv_wc
next_wc(struct ibv_cq *q)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(q, 1, &wc)) == 0)
		pause_ms(LOOK_MS);
	MUST(n == 1);
	return wc;
}

static void
say_wc(const char *what, const struct ibv_wc *wc)
{
	int end = qp[0] != NULL && wc->qp_num == qp[0]->qp_num ? 0 : 1;
	unsigned int flags = wc->wc_flags & ~(unsigned int)IBV_WC_IP_CSUM_OK;

	/* if the request has failed, no other fields are valid */
	if (wc->status != IBV_WC_SUCCESS)
		say(what, "qp%d wr %llu %s", end, (unsigned long long)wc->wr_id,
			ibv_wc_status_str(wc->status));
	else if (wc->opcode & IBV_WC_RECV) {
		/* only datagrams have a GRH */
		if (qp[end] != NULL && qp[end]->qp_type != IBV_QPT_UD)
			flags &= ~(unsigned int)IBV_WC_GRH;
		say(what, "qp%d wr %llu success opcode %d bytes %u flags %#x imm %#x", end,
			(unsigned long long)wc->wr_id, wc->opcode, wc->byte_len, flags,
			wc->wc_flags & IBV_WC_WITH_IMM ? ntohl(wc->imm_data) : 0);
	} else {
		say(what, "qp%d wr %llu success opcode %d", end, (unsigned long long)wc->wr_id,
			wc->opcode);
	}
}

/* The sort key of a completion: completions of different queues are not ordered. */
static int
queue_of(const struct ibv_wc *wc)
{
	return (qp[0] != NULL && wc->qp_num == qp[0]->qp_num ? 0 : 2) + (wc->wr_id >= RECV_ID);
}

void
say_wcs(const char *what, struct ibv_cq *q, int n)
{
	struct ibv_wc wc[64];
	int i, queue;

	MUST(n <= 64);
	for (i = 0; i < n; i++)
		wc[i] = next_wc(q);
	for (queue = 0; queue < 4; queue++)
		for (i = 0; i < n; i++)
			if (queue_of(&wc[i]) == queue)
				say_wc(what, &wc[i]);
}

void
say_none(const char *what, struct ibv_cq *q)
{
	struct ibv_wc wc;
	int n;

	pause_ms(NONE_MS);
	n = ibv_poll_cq(q, 1, &wc);
	if (n > 0)
		say_wc(what, &wc);
	else
		say(what, "%s", n == 0 ? "none" : "polling fails");
}

static enum ibv_event_type
next_async(void)
{
	struct ibv_async_event e;

	MUST(ibv_get_async_event(ctx, &e) == 0);
	ibv_ack_async_event(&e);
	return e.event_type;
}

void
say_async(const char *what)
{
	say(what, "%s", ibv_event_type_str(next_async()));
}

void
say_until(const char *what, enum ibv_event_type type)
{
	while (next_async() != type)
		continue;
	say(what, "%s", ibv_event_type_str(type));
}
