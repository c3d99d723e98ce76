/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Calls about an existing queue pair that its lcore carries out: modify, query, and the sending of
 * posted requests before such a call.  All hold ctl_lock.
 */
#include "mcast.h"
#include "object.h"
#include "port.h"

#include <time.h>

/* SEND_FIRST_ON_NS: how long one control call may send what was posted before it.  SEND_FIRST_NS:
 * how long it waits for memory that is being copied for that. */
#define SEND_FIRST_ON_NS 500000u
#define SEND_FIRST_NS    100000000u
/* Minimum of attempts, however slow the lcore is. */
#define SEND_FIRST_TURNS 64u

struct qp_call {
	struct eng_qp *q;
	const struct karst_core_qp_attr *attr;
	struct karst_core_qp_attr *out;
	unsigned int mask;
	unsigned int bursts; /* that it may still send */
	bool last;           /* carry the call out now, whatever is left to send */
};

/*
 * Sends what a program has posted, and what the responder has to send, before a call that stops the
 * QP.
 *
 * An lcore serves its mailbox before it polls doorbells, and may have slept for a while.  So a call
 * could overtake a request that was posted well before it, or a response that only waited for its
 * turn.  With an adapter neither happens, and some programs post a last message and exit.  What
 * cannot be sent now (window, credits, a full port) is lost, as with an adapter; the lcore waits
 * for nothing.  An lcore that is attached to no thread sends nothing either.
 *
 * Data that is copied from the program's memory arrives at the lcore's next safe point, and the
 * time of a call on an lcore is limited: in both cases the caller repeats the call, for a while,
 * with no lock held.
 *
 * @return true: something waits for that.
 */
static bool
send_until(struct eng_lcore *lc, struct eng_qp *q, unsigned int *bursts, uint64_t until)
{
	struct karst_qp_stats before, after;

	/* relaxed: only this thread itself stores its own id */
	if (atomic_load_explicit(&lc->owner, memory_order_relaxed) != this_thread())
		return false;
	karst_core_doorbell(lc->core, karst_qp_num(q->qp));
	karst_qp_stats(q->qp, &after);
	for (; *bursts > 0 && karst_qp_state(q->qp) != KARST_QPS_RESET; --*bursts) {
		before = after;
		karst_core_pick_first(lc->core, q->qp);
		eng_tx_poll(lc);
		karst_qp_stats(q->qp, &after);
		if (after.tx_packets == before.tx_packets)
			break;
		if (engine_now(lc->e) >= until)
			return true;
	}
	if (!karst_qp_fetching(q->qp))
		return false;
	if (*bursts < ENG_SEND_FIRST)
		*bursts = ENG_SEND_FIRST;
	return true;
}

bool
eng_qp_send_first(struct eng_lcore *lc, struct eng_qp *q, unsigned int *bursts)
{
	return send_until(lc, q, bursts, engine_now(lc->e) + SEND_FIRST_ON_NS);
}

bool
eng_qp_try_again(struct karst_engine *e, struct eng_tries *t)
{
	const struct timespec nap = {.tv_nsec = 50000};

	if (t->n++ == 0)
		t->until_ns = engine_now(e) + SEND_FIRST_NS;
	if (t->n > SEND_FIRST_TURNS && engine_now(e) >= t->until_ns)
		return false;
	eng_ctl_leave(e);
	if (eng_poll_mine(e) == 0)
		nanosleep(&nap, NULL);
	/* this cannot be a callback: the call was entered before */
	return eng_ctl_enter(e) == 0;
}

/* Makes a call about call->q that may have to wait until what was posted before is sent. */
static int
call_after_sends(struct karst_engine *e, struct qp_call *call, eng_fn fn)
{
	struct eng_tries tries = {0};
	int ret;

	call->bursts = ENG_SEND_FIRST;
	for (;;) {
		ret = eng_mailbox_call(&e->lcore[call->q->pub.lcore], fn, call);
		if (ret != -EAGAIN)
			return ret;
		call->last = !eng_qp_try_again(e, &tries);
	}
}

static int
check_mtu(const struct eng_lcore *lc, const struct qp_call *call, const struct karst_path *path,
	uint8_t path_mtu)
{
	const struct karst_engine_port_info *info = &lc->e->port[eng_port_base(path->port)].info;

	if (path_mtu <= info->path_mtu)
		return 0;
	karst_log(KARST_LOG_ERR,
		"%s: QP %u has a path MTU of %u bytes: MTU %u of port %u carries at most %u",
		lc->e->name, call->q->pub.num, 128u << path_mtu, info->mtu, path->port,
		128u << info->path_mtu);
	return -EINVAL;
}

/* In SQD a QP may get another path, or an alternate one, but keeps its path MTU, which the new path
 * must support. */
static int
check_moved(const struct eng_lcore *lc, const struct qp_call *call)
{
	struct karst_core_qp_attr is;
	int ret = 0;

	if ((call->mask & (KARST_QP_AV | KARST_QP_ALT_PATH)) == 0 ||
		(call->mask & KARST_QP_PATH_MTU) != 0)
		return 0;
	karst_qp_query(call->q->qp, &is);
	if ((call->mask & KARST_QP_AV) != 0)
		ret = check_mtu(lc, call, &call->attr->path, is.path_mtu);
	if (ret == 0 && (call->mask & KARST_QP_ALT_PATH) != 0)
		ret = check_mtu(lc, call, &call->attr->alt_path, is.path_mtu);
	return ret;
}

static int
qp_modify_on_lcore(struct eng_lcore *lc, void *arg)
{
	struct qp_call *call = arg;
	int ret = check_moved(lc, call);

	if (ret != 0)
		return ret;

	if ((call->mask & KARST_QP_STATE) != 0 && call->attr->qp_state == KARST_QPS_RESET)
		eng_bell_poll_of(lc, call->q->owner);
	if ((call->mask & KARST_QP_STATE) != 0 &&
		(call->attr->qp_state == KARST_QPS_ERR ||
			call->attr->qp_state == KARST_QPS_RESET) &&
		eng_qp_send_first(lc, call->q, &call->bursts) && !call->last)
		return -EAGAIN;
	return karst_qp_modify(lc->core, call->q->qp, call->attr, call->mask);
}

static int
qp_query_on_lcore(struct eng_lcore *lc, void *arg)
{
	struct qp_call *call = arg;

	karst_qp_query(call->q->qp, call->out);
	return 0;
}

static int
check_path(const struct karst_engine *e, const struct karst_engine_qp *qp,
	const struct karst_path *path, const struct karst_core_qp_attr *attr, unsigned int mask)
{
	const struct karst_engine_port_info *info;

	if (eng_port_check_path(e, qp->lcore, path) != 0)
		return -EINVAL;
	info = &e->port[eng_port_base(path->port)].info;
	if ((mask & KARST_QP_PATH_MTU) == 0 || attr->path_mtu <= info->path_mtu)
		return 0;
	karst_log(KARST_LOG_ERR, "%s: path_mtu of %u bytes: MTU %u of port %u carries at most %u",
		e->name, 128u << attr->path_mtu, info->mtu, path->port, 128u << info->path_mtu);
	return -EINVAL;
}

/* Checks what only the engine knows: its ports. */
static int
check_attr(const struct karst_engine *e, const struct karst_engine_qp *qp,
	const struct karst_core_qp_attr *attr, unsigned int mask)
{
	int ret = 0;

	if ((mask & KARST_QP_PORT) && !eng_port_present(e, attr->port_num - 1u)) {
		karst_log(KARST_LOG_ERR, "%s: port_num %u: must be 1 to %u", e->name,
			attr->port_num, e->nports);
		return -EINVAL;
	}
	if ((mask & KARST_QP_AV) != 0)
		ret = check_path(e, qp, &attr->path, attr, mask);
	if (ret == 0 && (mask & KARST_QP_ALT_PATH) != 0)
		ret = check_path(e, qp, &attr->alt_path, attr, mask);
	return ret;
}

/* Whether @ip belongs to a peer that uses selective repeat, according to the configuration. */
static bool
peer_repeats(const struct karst_engine *e, const uint8_t ip[16])
{
	uint32_t i;

	for (i = 0; i < e->cfg.nrepeat_peers; i++)
		if (karst_engine_addr_covers(&e->repeat_peers[i], ip))
			return true;
	return false;
}

/* X1: whether selective repeat was agreed on, in either way. */
static bool
agreed_to_repeat(const struct karst_engine *e, const struct qp_call *call)
{
	return eng_qp_ece_repeats(call->q) ||
		(e->cfg.nrepeat_peers != 0 && peer_repeats(e, call->attr->path.dst_ip));
}

/* Provides the memory for a queue pair's alternate path (G2).  @attr: replaces the attributes of
 * the call if there is an alternate path. */
static int
bring_alternate(struct karst_engine *e, struct qp_call *call, struct karst_core_qp_attr *attr)
{
	void **mem;

	if ((call->mask & KARST_QP_ALT_PATH) == 0)
		return 0;
	mem = eng_qp_alternate(call->q);
	if (*mem == NULL)
		*mem = eng_arena_alloc(&e->objects, karst_qp_alternate_bytes());
	if (*mem == NULL)
		return -ENOMEM;
	*attr = *call->attr;
	attr->alternate_mem = *mem;
	attr->alt_port_num = (uint8_t)(eng_port_base(attr->alt_path.port) + 1);
	call->attr = attr;
	return 0;
}

/* Provides what a queue pair needs for selective repeat, if it was agreed on. */
static int
agree_to_repeat(struct karst_engine *e, struct qp_call *call, struct karst_core_qp_attr *attr)
{
	struct eng_qp *q = call->q;

	call->mask &= ~(unsigned int)KARST_QP_REPEAT;
	if (karst_qp_type(q->qp) != KARST_QPT_RC || (call->mask & KARST_QP_STATE) == 0 ||
		call->attr->qp_state != KARST_QPS_RTR || (call->mask & KARST_QP_AV) == 0 ||
		!agreed_to_repeat(e, call))
		return 0;
	if (q->repeat_mem == NULL)
		q->repeat_mem = eng_arena_alloc(&e->objects, karst_repeat_bytes(ENG_REPEAT_WINDOW));
	if (q->repeat_mem == NULL)
		return -ENOMEM;
	if (call->attr != attr)
		*attr = *call->attr;
	attr->repeat_window = ENG_REPEAT_WINDOW;
	attr->repeat_mem = q->repeat_mem;
	call->attr = attr;
	call->mask |= KARST_QP_REPEAT;
	return 0;
}

int
karst_engine_qp_modify(struct karst_engine *e, struct karst_engine_qp *qp,
	const struct karst_core_qp_attr *attr, unsigned int mask)
{
	struct qp_call call = {
		.q = karst_container_of(qp, struct eng_qp, pub), .attr = attr, .mask = mask};
	struct karst_core_qp_attr more;
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = check_attr(e, qp, attr, mask);
	if (ret == 0)
		ret = bring_alternate(e, &call, &more);
	if (ret == 0)
		ret = agree_to_repeat(e, &call, &more);
	if (ret == 0)
		ret = call_after_sends(e, &call, qp_modify_on_lcore);
	if (ret == 0 && (mask & KARST_QP_PORT) != 0)
		eng_mcast_moved(e, call.q, attr->port_num);
	if (ret == 0 && (mask & KARST_QP_STATE) != 0 && attr->qp_state == KARST_QPS_RESET)
		eng_qp_ece_forget(call.q);
	eng_ctl_leave(e);
	return ret;
}

/* --- sending for many queue pairs --- */

bool
eng_qp_has_posted(const struct karst_engine_qp *qp)
{
	const struct eng_qp *q = karst_container_of(qp, const struct eng_qp, pub);
	const struct karst_wq_shared *sq = (const struct karst_wq_shared *)q->rings;

	/* relaxed: the call itself orders what this program posted before it */
	return sq != NULL &&
		atomic_load_explicit(&sq->tail, memory_order_relaxed) !=
		atomic_load_explicit(&sq->head, memory_order_relaxed);
}

struct sends_call {
	struct karst_engine_qp *const *qps;
	uint32_t n;
	uint32_t left;                          /* bit set of those that may have more to send */
	unsigned int bursts[ENG_SENDS_AT_ONCE]; /* that each may still send */
	bool last;                              /* return now, whatever is left to send */
};

/* In other states the QP sends nothing, and the call does not wait. */
static bool
may_send(const struct eng_qp *q)
{
	enum karst_qp_state state = karst_qp_state(q->qp);

	return state == KARST_QPS_RTS || state == KARST_QPS_SQD;
}

static int
qps_send_on_lcore(struct eng_lcore *lc, void *arg)
{
	struct sends_call *call = arg;
	uint64_t until = engine_now(lc->e) + SEND_FIRST_ON_NS;
	bool looked = false;
	uint32_t i;

	for (i = 0; i < call->n && (!looked || engine_now(lc->e) < until); i++) {
		struct eng_qp *q = karst_container_of(call->qps[i], struct eng_qp, pub);

		if ((call->left >> i & 1) == 0 || call->qps[i]->lcore != lc->index)
			continue;
		looked = true;
		if (!may_send(q) || !send_until(lc, q, &call->bursts[i], until) || call->last)
			call->left &= ~(1u << i);
	}
	return 0;
}

static void
ask_lcores(struct karst_engine *e, struct sends_call *call)
{
	uint64_t lcores = 0;
	uint32_t i;

	for (i = 0; i < call->n; i++)
		lcores |= (uint64_t)(call->left >> i & 1) << call->qps[i]->lcore;
	for (; lcores != 0; lcores &= lcores - 1)
		eng_mailbox_call(&e->lcore[__builtin_ctzll(lcores)], qps_send_on_lcore, call);
}

int
eng_qps_send_posted(struct karst_engine *e, struct karst_engine_qp *const *qps, uint32_t n,
	struct eng_tries *tries)
{
	struct sends_call call = {.qps = qps, .n = n, .left = (uint32_t)((1ull << n) - 1)};
	int ret = eng_ctl_enter(e);
	uint32_t i;

	if (ret != 0)
		return ret;
	for (i = 0; i < n; i++)
		call.bursts[i] = ENG_SEND_FIRST;
	ask_lcores(e, &call);
	while (call.left != 0 && tries != NULL) {
		call.last = !eng_qp_try_again(e, tries);
		ask_lcores(e, &call);
	}
	eng_ctl_leave(e);
	return call.left != 0 ? -EAGAIN : 0;
}

int
karst_engine_qp_send_posted(struct karst_engine *e, struct karst_engine_qp *qp)
{
	struct eng_tries tries = {0};

	return eng_qp_has_posted(qp) ? eng_qps_send_posted(e, &qp, 1, &tries) : 0;
}

int
karst_engine_qp_query(
	struct karst_engine *e, const struct karst_engine_qp *qp, struct karst_core_qp_attr *attr)
{
	struct qp_call call = {.q = karst_container_of(qp, struct eng_qp, pub), .out = attr};
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = eng_mailbox_call(&e->lcore[qp->lcore], qp_query_on_lcore, &call);
	eng_ctl_leave(e);
	return ret;
}

struct rate_call {
	struct karst_core_qp *qp;
	uint32_t kbps;
	uint32_t burst;
	void *pacer_mem;
};

static int
qp_rate_on_lcore(struct eng_lcore *lc, void *arg)
{
	const struct rate_call *call = arg;
	enum karst_qp_state state = karst_qp_state(call->qp);

	if (state < KARST_QPS_RTR || state > KARST_QPS_SQD)
		return -EINVAL;
	karst_qp_rate_limit(lc->core, call->qp, call->kbps, call->burst, call->pacer_mem);
	return 0;
}

int
karst_engine_qp_rate_limit(
	struct karst_engine *e, struct karst_engine_qp *qp, uint32_t kbps, uint32_t burst)
{
	struct eng_qp *q = karst_container_of(qp, struct eng_qp, pub);
	struct rate_call call = {.qp = q->qp, .kbps = kbps, .burst = burst};
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	if (kbps != 0 && !q->pacer && q->pacer_mem == NULL)
		q->pacer_mem = eng_arena_alloc(&e->objects, karst_qp_pacer_bytes());
	call.pacer_mem = q->pacer_mem;
	if (kbps != 0 && !q->pacer && q->pacer_mem == NULL)
		ret = -ENOMEM;
	else
		ret = eng_mailbox_call(&e->lcore[qp->lcore], qp_rate_on_lcore, &call);
	eng_ctl_leave(e);
	return ret;
}

const char *
eng_qp_state_name(uint32_t state)
{
	static const char *const names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

	return state < KARST_DIM(names) ? names[state] : "?";
}

const char *
eng_qp_type_name(enum karst_qp_type type)
{
	switch (type) {
	case KARST_QPT_RC:
		return "RC";
	case KARST_QPT_UC:
		return "UC";
	case KARST_QPT_UD:
		return "UD";
	case KARST_QPT_XRC_SEND:
		return "XRC_SEND";
	case KARST_QPT_XRC_RECV:
		return "XRC_RECV";
	}
	return "?";
}

struct find_call {
	uint32_t qpn;
	struct eng_qp_report *report;
};

static int
find_on_lcore(struct eng_lcore *lc, void *arg)
{
	struct find_call *call = arg;
	struct karst_core_qp *qp = karst_core_lookup(lc->core, call->qpn);

	if (qp == NULL)
		return -ENOENT;
	call->report->type = karst_qp_type(qp);
	call->report->lcore = lc->index;
	call->report->pd = ((struct eng_qp *)karst_qp_user(qp))->pub.pd;
	karst_qp_query(qp, &call->report->attr);
	karst_qp_stats(qp, &call->report->stats);
	karst_qp_rate(lc->core, qp, &call->report->rate);
	karst_qp_send_queue(qp, &call->report->sq_seen, &call->report->sq_done);
	return 0;
}

int
eng_qp_by_number(struct karst_engine *e, uint32_t qpn, struct eng_qp_report *report)
{
	struct find_call call = {.qpn = qpn, .report = report};
	struct eng_lcore *lc = lcore_of_qpn(e, qpn);
	int ret = eng_ctl_enter(e);

	if (ret != 0)
		return ret;
	ret = lc != NULL ? eng_mailbox_call(lc, find_on_lcore, &call) : -ENOENT;
	eng_ctl_leave(e);
	return ret;
}
