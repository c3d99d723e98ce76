/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* ibv_modify_qp(): each transition with one attribute less or more, and values out of range. */
#include "same.h"

#define TEXT_BYTES 512

/* Without alternate paths, capabilities and rate limits, which not every device supports. */
static const struct {
	int bit;
	const char *name;
} attrs[] = {
	{IBV_QP_CUR_STATE, "CUR_STATE"},
	{IBV_QP_EN_SQD_ASYNC_NOTIFY, "EN_SQD_ASYNC_NOTIFY"},
	{IBV_QP_ACCESS_FLAGS, "ACCESS_FLAGS"},
	{IBV_QP_PKEY_INDEX, "PKEY_INDEX"},
	{IBV_QP_PORT, "PORT"},
	{IBV_QP_QKEY, "QKEY"},
	{IBV_QP_AV, "AV"},
	{IBV_QP_PATH_MTU, "PATH_MTU"},
	{IBV_QP_TIMEOUT, "TIMEOUT"},
	{IBV_QP_RETRY_CNT, "RETRY_CNT"},
	{IBV_QP_RNR_RETRY, "RNR_RETRY"},
	{IBV_QP_RQ_PSN, "RQ_PSN"},
	{IBV_QP_MAX_QP_RD_ATOMIC, "MAX_QP_RD_ATOMIC"},
	{IBV_QP_MIN_RNR_TIMER, "MIN_RNR_TIMER"},
	{IBV_QP_SQ_PSN, "SQ_PSN"},
	{IBV_QP_MAX_DEST_RD_ATOMIC, "MAX_DEST_RD_ATOMIC"},
	{IBV_QP_PATH_MIG_STATE, "PATH_MIG_STATE"},
	{IBV_QP_DEST_QPN, "DEST_QPN"},
};

static const enum ibv_qp_state states[] = {
	IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_ERR};
#define STATES (sizeof(states) / sizeof(states[0]))

static struct ibv_qp *one;

static void
begin_in(enum ibv_qp_state from)
{
	/* Linux cannot go from SQD to RESET while it drains, and has no transition from RESET to
	 * ERR */
	if (state_of(one) != IBV_QPS_RESET)
		MUST(move(one, IBV_QPS_ERR, 0) == 0);
	MUST(move(one, IBV_QPS_RESET, 0) == 0);
	bring_to(one, from, one->qp_num);
}

/* Calls ibv_modify_qp(), and brings the queue pair back to @from.  @return the call's result */
static int
attempt(enum ibv_qp_state from, const struct ibv_qp_attr *attr, int mask)
{
	struct ibv_qp_attr copy = *attr;
	int rc = ibv_modify_qp(one, &copy, mask);

	if (rc == 0) {
		begin_in(from);
	} else if (state_of(one) != from) {
		say(state_name(from), "a call that failed left it in %s",
			state_name(state_of(one)));
		begin_in(from);
	}
	return rc;
}

/* Tries a valid transition with each attribute added or removed.  Prints two lines: the changes
 * that are accepted, and those that are refused. */
static void
bits_of(enum ibv_qp_state from, enum ibv_qp_state to, int base)
{
	struct ibv_qp_attr attr = full_attr(to, one->qp_num);
	char what[64], refused[TEXT_BYTES] = "", taken[TEXT_BYTES] = "", *list;
	size_t i;
	int rc;

	attr.cur_qp_state = from;
	for (i = 0; i < sizeof(attrs) / sizeof(attrs[0]); i++) {
		rc = attempt(from, &attr, base ^ attrs[i].bit);
		list = rc == 0 ? taken : refused;
		snprintf(list + strlen(list), TEXT_BYTES - strlen(list), " %s%s%s",
			base & attrs[i].bit ? "-" : "+", attrs[i].name,
			rc == 0 || rc == EINVAL ? "" : error_name(rc));
	}
	snprintf(what, sizeof(what), "%s to %s, taken", state_name(from), state_name(to));
	say(what, "%s", taken);
	snprintf(what, sizeof(what), "%s to %s, refused", state_name(from), state_name(to));
	say(what, "%s", refused);
}

static void
transitions(enum ibv_qp_type type)
{
	struct ibv_qp_attr attr;
	char what[64];
	size_t f, t;
	int base, rc;

	bed_open();
	one = make_qp(type);
	for (f = 0; f < STATES; f++) {
		begin_in(states[f]);
		for (t = 0; t < STATES; t++) {
			base = states[f] < states[t] ? needed(type, states[t]) : IBV_QP_STATE;
			attr = full_attr(states[t], one->qp_num);
			rc = attempt(states[f], &attr, base);
			snprintf(what, sizeof(what), "%s to %s", state_name(states[f]),
				state_name(states[t]));
			say_rc(what, rc);
			if (rc == 0)
				bits_of(states[f], states[t], base);
		}
	}
}

static void
transitions_rc(void)
{
	transitions(IBV_QPT_RC);
}

static void
transitions_uc(void)
{
	transitions(IBV_QPT_UC);
}

static void
transitions_ud(void)
{
	transitions(IBV_QPT_UD);
}

/* --- values --- */

#define TRY(from, to, field, value)                                     \
	do {                                                            \
		struct ibv_qp_attr a = full_attr((to), one->qp_num);    \
		a.field = (value);                                      \
		say_rc(#to " with " #field " " #value,                  \
			attempt((from), &a, needed(IBV_QPT_RC, (to)))); \
	} while (0)

static void
values(void)
{
	union ibv_gid none = {.raw = {0}};

	bed_open();
	one = make_qp(IBV_QPT_RC);
	TRY(IBV_QPS_RESET, IBV_QPS_INIT, port_num, 0);
	TRY(IBV_QPS_RESET, IBV_QPS_INIT, port_num, 2);
	TRY(IBV_QPS_RESET, IBV_QPS_INIT, pkey_index, 1);
	TRY(IBV_QPS_RESET, IBV_QPS_INIT, qp_access_flags, 1u << 15);
	TRY(IBV_QPS_RESET, IBV_QPS_INIT, qp_access_flags, IBV_ACCESS_REMOTE_WRITE);
	TRY(IBV_QPS_RESET, IBV_QPS_INIT, qp_state, 7);
	begin_in(IBV_QPS_INIT);
	TRY(IBV_QPS_INIT, IBV_QPS_RTR, path_mtu, 0);
	TRY(IBV_QPS_INIT, IBV_QPS_RTR, path_mtu, 6);
	TRY(IBV_QPS_INIT, IBV_QPS_RTR, path_mtu, IBV_MTU_256);
	TRY(IBV_QPS_INIT, IBV_QPS_RTR, max_dest_rd_atomic, 255);
	TRY(IBV_QPS_INIT, IBV_QPS_RTR, max_dest_rd_atomic, 0);
	TRY(IBV_QPS_INIT, IBV_QPS_RTR, min_rnr_timer, 32);
	TRY(IBV_QPS_INIT, IBV_QPS_RTR, dest_qp_num, 0);
	TRY(IBV_QPS_INIT, IBV_QPS_RTR, ah_attr.is_global, 0);
	TRY(IBV_QPS_INIT, IBV_QPS_RTR, ah_attr.port_num, 0);
	TRY(IBV_QPS_INIT, IBV_QPS_RTR, ah_attr.port_num, 2);
	TRY(IBV_QPS_INIT, IBV_QPS_RTR, ah_attr.grh.sgid_index, 255);
	TRY(IBV_QPS_INIT, IBV_QPS_RTR, ah_attr.grh.sgid_index, 9);
	TRY(IBV_QPS_INIT, IBV_QPS_RTR, ah_attr.grh.hop_limit, 0);
	TRY(IBV_QPS_INIT, IBV_QPS_RTR, ah_attr.grh.dgid, none);
	TRY(IBV_QPS_INIT, IBV_QPS_RTR, rq_psn, 1u << 24);
	begin_in(IBV_QPS_RTR);
	TRY(IBV_QPS_RTR, IBV_QPS_RTS, timeout, 32);
	TRY(IBV_QPS_RTR, IBV_QPS_RTS, retry_cnt, 8);
	TRY(IBV_QPS_RTR, IBV_QPS_RTS, rnr_retry, 8);
	TRY(IBV_QPS_RTR, IBV_QPS_RTS, max_rd_atomic, 255);
	TRY(IBV_QPS_RTR, IBV_QPS_RTS, max_rd_atomic, 0);
	TRY(IBV_QPS_RTR, IBV_QPS_RTS, sq_psn, 1u << 24);
	begin_in(IBV_QPS_RTR);
	{
		struct ibv_qp_attr a = full_attr(IBV_QPS_RTS, one->qp_num);

		a.cur_qp_state = IBV_QPS_INIT;
		say_rc("RTR to RTS as if from INIT",
			attempt(IBV_QPS_RTR, &a,
				needed(IBV_QPT_RC, IBV_QPS_RTS) | IBV_QP_CUR_STATE));
		a.qp_state = IBV_QPS_SQE;
		say_rc("RTR to SQE", attempt(IBV_QPS_RTR, &a, IBV_QP_STATE));
		say_rc("nothing at all", attempt(IBV_QPS_RTR, &a, 0));
		say_rc("an unknown attribute", attempt(IBV_QPS_RTR, &a, 1 << 30));
	}
}

/* --- queries --- */

static void
tell(const char *what)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	memset(&a, 0xff, sizeof(a));
	MUST(ibv_query_qp(one, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_CAP, &init) == 0);
	say(what, "%s, cur %s, qp->state %s, access %#x, pkey %u, port %u, qkey %#x, sqd %d",
		state_name(a.qp_state), state_name(a.cur_qp_state), state_name(one->state),
		a.qp_access_flags & ALL_ACCESS & ~(unsigned int)IBV_ACCESS_LOCAL_WRITE,
		a.pkey_index, a.port_num, a.qkey, a.sq_draining);
	say(what, "caps %d %d %d %d %d, of init %d, sq_sig_all %d, type %d, cqs %d",
		a.cap.max_send_wr >= 16, a.cap.max_recv_wr >= 16, a.cap.max_send_sge >= 2,
		a.cap.max_recv_sge >= 2, a.cap.max_inline_data >= 32,
		memcmp(&a.cap, &init.cap, sizeof(a.cap)) == 0, init.sq_sig_all, init.qp_type,
		init.send_cq == cq && init.recv_cq == cq);
	if (a.qp_state != IBV_QPS_RTR && a.qp_state != IBV_QPS_RTS)
		return;
	say(what, "mtu %d, psn %u, dest %d, global %d, dgid %d, sgid %d, flow %#x, class %u",
		a.path_mtu, a.rq_psn, a.dest_qp_num == one->qp_num, a.ah_attr.is_global,
		memcmp(&a.ah_attr.grh.dgid, &own_gid, 16) == 0,
		a.ah_attr.grh.sgid_index == own_index, a.ah_attr.grh.flow_label,
		a.ah_attr.grh.traffic_class);
	say(what, "dest rd %u, min rnr %u, path port %u", a.max_dest_rd_atomic, a.min_rnr_timer,
		a.ah_attr.port_num);
	if (a.qp_state == IBV_QPS_RTS)
		say(what, "sq psn %u, rd %u, timeout %u, retry %u, rnr %u", a.sq_psn,
			a.max_rd_atomic, a.timeout, a.retry_cnt, a.rnr_retry);
}

static void
queried(void)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
	static const char *const names[] = {"RC", "UC", "UD"};
	char what[64];
	size_t i, t;

	bed_open();
	for (t = 0; t < 3; t++) {
		one = make_qp(types[t]);
		for (i = 0; i < STATES; i++) {
			begin_in(states[i]);
			if (types[t] != IBV_QPT_RC && states[i] == IBV_QPS_RTS)
				continue;
			if (types[t] != IBV_QPT_RC && states[i] == IBV_QPS_RTR)
				continue;
			snprintf(what, sizeof(what), "%s in %s", names[t], state_name(states[i]));
			tell(what);
		}
		begin_in(IBV_QPS_RTS);
		begin_in(IBV_QPS_RESET);
		tell("RESET again");
	}
}

const struct same_case modify_cases[] = {
	{"transitions RC", transitions_rc},
	{"transitions UC", transitions_uc},
	{"transitions UD", transitions_ud},
	{"values", values},
	{"queried", queried},
	{0},
};
