/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The verbs objects of interop-peer: device, memory, queue pairs and memory windows.  Regions and
 * completion queues exist as long as the program; queue pairs, and the objects that depend on them,
 * are created again after each step that ends in an error.
 */
#include "peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define REMOTE_ALL (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define CQ_ENTRIES 1024
#define INLINE     64u

#define MUST(p, ok)                                               \
	do {                                                      \
		if (!(ok))                                        \
			die((p), "%s: %s", #ok, strerror(errno)); \
	} while (0)

/* Calls that return their errno. */
#define MUST_0(p, call)                                           \
	do {                                                      \
		int err = (call);                                 \
		if (err != 0)                                     \
			die((p), "%s: %s", #call, strerror(err)); \
	} while (0)

/* --- device --- */

/* Whether GID @index is what the user asked for: a kind (v4, v6, ll for link-local), an address, or
 * an index. */
static bool
gid_fits(const union ibv_gid *gid, int index, const char *wanted)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	bool v4 = memcmp(gid->raw, mapped, sizeof(mapped)) == 0;
	bool ll = gid->raw[0] == 0xfe && gid->raw[1] == 0x80;
	uint8_t raw[16] = {0};
	char *end;

	if (strtol(wanted, &end, 10) == index && end != wanted && *end == '\0')
		return true;
	if (strcmp(wanted, "v4") == 0)
		return v4;
	if (strcmp(wanted, "ll") == 0)
		return ll;
	if (strcmp(wanted, "v6") == 0)
		return !v4 && !ll;
	if (inet_pton(AF_INET6, wanted, raw) == 1)
		return memcmp(gid->raw, raw, sizeof(raw)) == 0;
	return v4 && inet_pton(AF_INET, wanted, raw) == 1 && memcmp(gid->raw + 12, raw, 4) == 0;
}

/* Searches the GIDs of port 1. */
static bool
gid_find(struct peer *p, const char *wanted)
{
	static const union ibv_gid none;
	struct ibv_port_attr port;
	union ibv_gid gid;
	int i;

	if (ibv_query_port(p->ctx, 1, &port) != 0)
		return false;
	for (i = 0; i < port.gid_tbl_len && i < 256; i++) {
		if (ibv_query_gid(p->ctx, 1, i, &gid) != 0 ||
			memcmp(&gid, &none, sizeof(gid)) == 0 || !gid_fits(&gid, i, wanted))
			continue;
		if (128u << port.active_mtu < p->opt.mtu)
			die(p, "the port's MTU is %u", 128u << port.active_mtu);
		p->gid_index = (uint8_t)i;
		p->gid = gid;
		return true;
	}
	return false;
}

void
device_open(struct peer *p, const char *dev, const char *gid)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	unsigned int i;

	MUST(p, list != NULL);
	for (i = 0; list[i] != NULL; i++) {
		if (dev != NULL && strcmp(dev, ibv_get_device_name(list[i])) != 0)
			continue;
		MUST(p, (p->ctx = ibv_open_device(list[i])) != NULL);
		if (gid_find(p, gid))
			break;
		ibv_close_device(p->ctx);
		p->ctx = NULL;
	}
	ibv_free_device_list(list);
	if (p->ctx == NULL)
		die(p, "no device %s has the address %s", dev != NULL ? dev : "", gid);
}

void
device_close(struct peer *p)
{
	unsigned int i;

	MUST_0(p, ibv_dereg_mr(p->local_mr));
	MUST_0(p, ibv_dereg_mr(p->recv_mr));
	for (i = 0; i < KEY_COUNT; i++)
		if (p->area_mr[i] != NULL)
			MUST_0(p, ibv_dereg_mr(p->area_mr[i]));
	MUST_0(p, ibv_destroy_cq(p->scq));
	MUST_0(p, ibv_destroy_cq(p->rcq));
	if (p->channel != NULL)
		MUST_0(p, ibv_destroy_comp_channel(p->channel));
	MUST_0(p, ibv_dealloc_pd(p->other_pd));
	MUST_0(p, ibv_dealloc_pd(p->pd));
	MUST_0(p, ibv_close_device(p->ctx));
}

/* --- memory --- */

static struct ibv_mr *
image_make(struct peer *p, struct image *i, const char *name, uint32_t size, int access)
{
	struct ibv_mr *mr;

	i->name = name;
	i->size = size;
	i->bytes = aligned_alloc(4096, size + GUARD);
	i->want = malloc(size + GUARD);
	i->late = calloc(size + GUARD, 1);
	MUST(p, i->bytes != NULL && i->want != NULL && i->late != NULL);
	memset(i->bytes, 0, size + GUARD);
	mr = ibv_reg_mr(p->pd, i->bytes, size, access);
	MUST(p, mr != NULL);
	return mr;
}

void
memory_make(struct peer *p, uint32_t local, uint32_t area, uint32_t recvs)
{
	static const int access[KEY_COUNT] = {
		[KEY_READ] = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
		[KEY_WRITE] = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
		[KEY_NONE] = IBV_ACCESS_LOCAL_WRITE,
		[KEY_OTHER_PD] = IBV_ACCESS_LOCAL_WRITE | REMOTE_ALL,
		[KEY_DEAD] = IBV_ACCESS_LOCAL_WRITE | REMOTE_ALL,
	};
	unsigned int i;

	MUST(p, (p->pd = ibv_alloc_pd(p->ctx)) != NULL);
	MUST(p, (p->other_pd = ibv_alloc_pd(p->ctx)) != NULL);
	if (p->opt.events)
		MUST(p, (p->channel = ibv_create_comp_channel(p->ctx)) != NULL);
	MUST(p, (p->scq = ibv_create_cq(p->ctx, CQ_ENTRIES, NULL, p->channel, 0)) != NULL);
	MUST(p, (p->rcq = ibv_create_cq(p->ctx, CQ_ENTRIES, NULL, p->channel, 0)) != NULL);
	p->local_mr = image_make(
		p, &p->local, "what it sends from and reads into", local, IBV_ACCESS_LOCAL_WRITE);
	p->recv_mr = image_make(p, &p->recvs, "where it receives", recvs, IBV_ACCESS_LOCAL_WRITE);
	p->area_mr[KEY_ALL] = image_make(p, &p->area, "what the other end may reach", area,
		IBV_ACCESS_LOCAL_WRITE | REMOTE_ALL | IBV_ACCESS_MW_BIND);
	p->mine.rkey[KEY_ALL] = p->area_mr[KEY_ALL]->rkey;
	for (i = KEY_ALL + 1; i < KEY_COUNT; i++) {
		p->area_mr[i] = ibv_reg_mr(
			i == KEY_OTHER_PD ? p->other_pd : p->pd, p->area.bytes, area, access[i]);
		MUST(p, p->area_mr[i] != NULL);
		p->mine.rkey[i] = p->area_mr[i]->rkey;
	}
	MUST_0(p, ibv_dereg_mr(p->area_mr[KEY_DEAD]));
	p->area_mr[KEY_DEAD] = NULL;
	p->mine.area = (uintptr_t)p->area.bytes;
	p->bad_key = 0x550000;
}

/* --- queue pairs --- */

static void
qp_create(struct peer *p)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 2 * MAX_ITEMS, .max_sge = MAX_SGE}};
	struct ibv_qp_init_attr_ex init = {
		.send_cq = p->scq,
		.recv_cq = p->rcq,
		.qp_type = p->opt.qp_type,
		.cap = {.max_send_wr = 2 * MAX_ITEMS,
			.max_recv_wr = 2 * MAX_ITEMS,
			.max_send_sge = MAX_SGE,
			.max_recv_sge = MAX_SGE,
			.max_inline_data = INLINE},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = p->pd,
		.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE,
	};

	if (p->opt.srq)
		MUST(p, (p->srq = ibv_create_srq(p->pd, &srq)) != NULL);
	init.srq = p->srq;
	p->qpx = NULL;
	p->qp = p->opt.qp_type == IBV_QPT_RC ? ibv_create_qp_ex(p->ctx, &init) : NULL;
	if (p->qp != NULL) {
		p->qpx = ibv_qp_to_qp_ex(p->qp);
	} else { /* kernels before 6.3 */
		init.comp_mask = IBV_QP_INIT_ATTR_PD;
		MUST(p, (p->qp = ibv_create_qp_ex(p->ctx, &init)) != NULL);
	}
}

static void
address(const struct peer *p, struct ibv_ah_attr *ah)
{
	*ah = (struct ibv_ah_attr){
		.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = p->other.gid, .sgid_index = p->gid_index, .hop_limit = 64},
	};
}

static enum ibv_mtu
mtu_of(uint32_t bytes)
{
	enum ibv_mtu mtu = IBV_MTU_256;

	while (mtu < IBV_MTU_4096 && 128u << mtu < bytes)
		mtu++;
	return mtu;
}

static void
connect_ud(struct peer *p)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR};
	struct ibv_ah_attr ah;

	MUST_0(p, ibv_modify_qp(p->qp, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTS;
	a.sq_psn = p->opt.psn[p->me];
	MUST_0(p, ibv_modify_qp(p->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN));
	address(p, &ah);
	MUST(p, (p->ah = ibv_create_ah(p->pd, &ah)) != NULL);
}

static void
connect_rc(struct peer *p)
{
	const struct options *o = &p->opt;
	bool rc = o->qp_type == IBV_QPT_RC;
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu_of(o->mtu),
		.dest_qp_num = p->other.qpn,
		.rq_psn = o->psn[!p->me],
		.max_dest_rd_atomic = (uint8_t)o->rd_atomic,
		.min_rnr_timer = (uint8_t)o->min_rnr_timer,
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	address(p, &a.ah_attr);
	MUST_0(p,
		ibv_modify_qp(p->qp, &a,
			mask | (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)));
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.sq_psn = o->psn[p->me],
		.timeout = (uint8_t)o->timeout,
		.retry_cnt = (uint8_t)o->retry_cnt,
		.rnr_retry = (uint8_t)o->rnr_retry,
		.max_rd_atomic = (uint8_t)o->rd_atomic,
	};
	mask = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	MUST_0(p, ibv_modify_qp(p->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | (rc ? mask : 0)));
}

void
qp_make(struct peer *p)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11111111};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	qp_create(p);
	if (p->opt.qp_type == IBV_QPT_UD)
		mask |= IBV_QP_QKEY;
	else
		mask |= IBV_QP_ACCESS_FLAGS;
	a.qp_access_flags = p->opt.qp_type == IBV_QPT_RC ? REMOTE_ALL : IBV_ACCESS_REMOTE_WRITE;
	MUST_0(p, ibv_modify_qp(p->qp, &a, mask));
	p->mine.qpn = p->qp->qp_num;
	p->mine.gid = p->gid;
	p->mine.atomic_write = p->qpx != NULL;
	ctl_swap(p, 0x9a, &p->mine, &p->other, sizeof(p->mine));
	if (p->opt.qp_type == IBV_QPT_UD)
		connect_ud(p);
	else
		connect_rc(p);
	/* no end sends before both can receive */
	ctl_swap(p, 0x9b, &p->number, &(uint32_t){0}, sizeof(p->number));
}

void
qp_unmake(struct peer *p)
{
	struct ibv_wc wc;

	if (p->mw != NULL)
		MUST_0(p, ibv_dealloc_mw(p->mw));
	MUST_0(p, ibv_destroy_qp(p->qp));
	if (p->srq != NULL)
		MUST_0(p, ibv_destroy_srq(p->srq));
	if (p->ah != NULL)
		MUST_0(p, ibv_destroy_ah(p->ah));
	p->mw = NULL;
	p->srq = NULL;
	p->ah = NULL;
	p->n_posted = p->recv_cursor = 0;
	/* of receives that were not waited for */
	while (ibv_poll_cq(p->scq, 1, &wc) > 0 || ibv_poll_cq(p->rcq, 1, &wc) > 0)
		;
}

void
qp_state_is(struct peer *p, enum ibv_qp_state state)
{
	time_t end = time(NULL) + p->opt.patience_s;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	for (;;) {
		MUST_0(p, ibv_query_qp(p->qp, &a, IBV_QP_STATE, &init));
		if (a.qp_state == state)
			return;
		if (time(NULL) > end)
			break;
		usleep(2000);
	}
	problem(p, "the queue pair is in state %d, not %d", a.qp_state, state);
}

void
qp_fail(struct peer *p)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

	MUST_0(p, ibv_modify_qp(p->qp, &a, IBV_QP_STATE));
}

/* --- windows --- */

static int
window_rights(uint32_t flags)
{
	return flags & F_NO_REMOTE     ? 0
		: flags & F_READ_ONLY  ? IBV_ACCESS_REMOTE_READ
		: flags & F_WRITE_ONLY ? IBV_ACCESS_REMOTE_WRITE
				       : REMOTE_ALL;
}

/* Posts the bind.  @return the new key, if the window is of type 2. */
static uint32_t
bind_post(struct peer *p, bool type2)
{
	const struct step *s = p->step;
	struct ibv_mw_bind_info info = {
		.mr = p->area_mr[s->flags & F_NO_REMOTE ? KEY_NONE : KEY_ALL],
		.addr = (uintptr_t)p->area.bytes + (s->flags & F_END ? p->area.size : WINDOW_OFF),
		.length = s->len,
		.mw_access_flags = (unsigned int)window_rights(s->flags),
	};
	struct ibv_mw_bind bind = {.wr_id = 1, .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
	struct ibv_send_wr wr = {
		.wr_id = 1, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	if (!type2) {
		MUST_0(p, ibv_bind_mw(p->qp, p->mw, &bind));
		return 0;
	}
	wr.bind_mw.mw = p->mw;
	wr.bind_mw.rkey = ibv_inc_rkey(p->mw->rkey);
	wr.bind_mw.bind_info = info;
	MUST_0(p, ibv_post_send(p->qp, &wr, &bad));
	return wr.bind_mw.rkey;
}

static void
local_inv_post(struct peer *p)
{
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.opcode = IBV_WR_LOCAL_INV,
		.send_flags = IBV_SEND_SIGNALED,
		.invalidate_rkey = p->window_rkey[p->me],
	};
	struct ibv_send_wr *bad;

	MUST_0(p, ibv_post_send(p->qp, &wr, &bad));
}

void
window_step(struct peer *p)
{
	enum ibv_mw_type type = p->step->op == OP_BIND1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2;
	bool inv = p->step->op == OP_LOCAL_INV;
	struct ibv_wc wc;
	uint32_t rkey = 0;

	if (inv) {
		local_inv_post(p);
	} else {
		if (p->mw != NULL && p->mw->type != type) {
			MUST_0(p, ibv_dealloc_mw(p->mw));
			p->mw = NULL;
		}
		if (p->mw == NULL)
			MUST(p, (p->mw = ibv_alloc_mw(p->pd, type)) != NULL);
		rkey = bind_post(p, type == IBV_MW_TYPE_2);
	}
	if (!wait_cq(p, p->scq, &wc))
		return;
	if (wc.status != (enum ibv_wc_status)p->step->status)
		problem(p, "it ends with %s, not %s", status_name(wc.status),
			status_name(p->step->status));
	else if (wc.status == IBV_WC_SUCCESS &&
		wc.opcode != (inv ? IBV_WC_LOCAL_INV : IBV_WC_BIND_MW))
		problem(p, "the completion is of opcode %d", wc.opcode);
	qp_state_is(p, wc.status == IBV_WC_SUCCESS ? IBV_QPS_RTS : IBV_QPS_ERR);
	if (!inv) {
		if (type == IBV_MW_TYPE_2 && wc.status == IBV_WC_SUCCESS)
			p->mw->rkey = rkey;
		p->window_rkey[p->me] = p->mw->rkey;
	}
}
