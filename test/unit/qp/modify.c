/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * karst_qp_modify(): every transition of every type with every attribute, against a table of the
 * test's own; values out of range; and that a refused call has changed nothing.
 */
#include "harness.h"

#define ST_ KARST_QP_STATE
#define RC  KARST_QPT_RC
#define UC  KARST_QPT_UC
#define UD  KARST_QPT_UD

/* ibv_modify_qp(3), written down independently. */
static bool
table(enum karst_qp_type type, int from, int to, unsigned int *required, unsigned int *optional)
{
	const unsigned int acc = KARST_QP_ACCESS_FLAGS, pk = KARST_QP_PKEY_INDEX;
	const unsigned int cur = KARST_QP_CUR_STATE, rnr = KARST_QP_MIN_RNR_TIMER;
	const unsigned int qk = KARST_QP_QKEY, port = KARST_QP_PORT;
	const bool ud = type == UD, rc = type == RC;
	const unsigned int alt = ud ? 0 : KARST_QP_ALT_PATH;
	const unsigned int mig = ud ? 0 : alt | KARST_QP_PATH_MIG_STATE;

	*required = *optional = 0;
	if (to == KARST_QPS_RESET || to == KARST_QPS_ERR)
		return true;
	switch (from * 8 + to) {
	case KARST_QPS_RESET * 8 + KARST_QPS_INIT:
		*required = pk | port | (ud ? qk : acc);
		return true;
	case KARST_QPS_INIT * 8 + KARST_QPS_INIT:
		*optional = pk | port | (ud ? qk : acc);
		return true;
	case KARST_QPS_INIT * 8 + KARST_QPS_RTR:
		*optional = pk | (ud ? qk : acc) | alt;
		if (!ud)
			*required = KARST_QP_AV | KARST_QP_PATH_MTU | KARST_QP_DEST_QPN |
				KARST_QP_RQ_PSN;
		if (rc)
			*required |= KARST_QP_MAX_DEST_RD_ATOMIC | rnr;
		return true;
	case KARST_QPS_RTR * 8 + KARST_QPS_RTS:
		*required = KARST_QP_SQ_PSN;
		*optional = cur | (ud ? qk : acc) | (rc ? rnr : 0) | mig;
		if (rc)
			*required |= KARST_QP_TIMEOUT | KARST_QP_RETRY_CNT | KARST_QP_RNR_RETRY |
				KARST_QP_MAX_QP_RD_ATOMIC;
		return true;
	case KARST_QPS_RTS * 8 + KARST_QPS_RTS:
	case KARST_QPS_SQD * 8 + KARST_QPS_RTS:
		*optional = cur | (ud ? qk : acc) | (rc ? rnr : 0) | mig;
		return true;
	case KARST_QPS_RTS * 8 + KARST_QPS_SQD:
		*optional = KARST_QP_EN_SQD_ASYNC_NOTIFY;
		return true;
	case KARST_QPS_SQD * 8 + KARST_QPS_SQD:
		*optional = ud ? pk | qk : port | KARST_QP_AV | acc | pk | mig;
		if (rc)
			*optional |= KARST_QP_TIMEOUT | KARST_QP_RETRY_CNT | KARST_QP_RNR_RETRY |
				KARST_QP_MAX_QP_RD_ATOMIC | KARST_QP_MAX_DEST_RD_ATOMIC | rnr;
		return true;
	case KARST_QPS_SQE * 8 + KARST_QPS_RTS:
		*optional = cur | (ud ? qk : acc);
		return !rc;
	default:
		return false;
	}
}

/* Brings b->s from RESET to @state; to SQE by a send that fails. */
static void
go_to(struct bed *b, const struct setup *s, enum karst_qp_state state)
{
	cr_assert_eq(bed_to_state(b, KARST_QPS_RESET), 0);
	if (state <= KARST_QPS_RTS) {
		bed_bring_up(b, s, state);
	} else {
		bed_bring_up(b, s, KARST_QPS_RTS);
		if (state == KARST_QPS_SQE) {
			post(b, SEND, 1, .len = 4, .lkey = 0x666);
			bed_forget(b);
		} else {
			cr_assert_eq(bed_to_state(b, state), 0);
		}
	}
	bed_forget(b);
	cr_assert_eq(karst_qp_state(b->s->qp), state);
}

/* A refused call leaves all attributes as they were. */
static int
modify_checked(struct bed *b, const struct karst_core_qp_attr *attr, unsigned int mask)
{
	struct karst_core_qp_attr before, after;
	int rc;

	memset(&before, 0, sizeof(before));
	memset(&after, 0, sizeof(after));
	karst_qp_query(b->s->qp, &before);
	rc = bed_modify(b, attr, mask);
	karst_qp_query(b->s->qp, &after);
	if (rc != 0)
		cr_assert_eq(memcmp(&before, &after, sizeof(before)), 0,
			"a refused call has changed something (mask %x)", mask);
	return rc;
}

/* Memory for an alternate path. */
static uint64_t alternate[32];

static void
try_transition(struct bed *b, const struct setup *s, int from, int to)
{
	enum karst_qp_type type = karst_qp_type(b->s->qp);
	struct karst_core_qp_attr attr = s->attr;
	unsigned int required, optional, bit;
	bool allowed = table(type, from, to, &required, &optional);

	attr.qp_state = (enum karst_qp_state)to;
	attr.cur_qp_state = (enum karst_qp_state)from;
	attr.alt_path = s->attr.path;
	attr.alt_port_num = 1;
	attr.alternate_mem = alternate;
	go_to(b, s, (enum karst_qp_state)from);
	cr_assert_eq(modify_checked(b, &attr, ST_ | required), allowed ? 0 : -EINVAL,
		"type %d, %d to %d", type, from, to);
	if (!allowed)
		return;
	cr_assert_eq(karst_qp_state(b->s->qp), attr.qp_state);
	for (bit = 1; bit <= KARST_QP_DEST_QPN; bit <<= 1) {
		int want = 0;

		if (bit == ST_)
			continue;
		go_to(b, s, (enum karst_qp_state)from);
		if (bit & required) {
			cr_assert_eq(modify_checked(b, &attr, ST_ | (required & ~bit)), -EINVAL,
				"type %d, %d to %d without %x", type, from, to, bit);
			continue;
		}
		if (bit & KARST_QP_CAP)
			want = -EOPNOTSUPP;
		else if (!(bit & optional))
			want = -EINVAL;
		cr_assert_eq(modify_checked(b, &attr, ST_ | required | bit), want,
			"type %d, %d to %d with %x", type, from, to, bit);
	}
	go_to(b, s, (enum karst_qp_state)from);
	cr_assert_eq(modify_checked(b, &attr, ST_ | required | optional), 0);
	bed_forget(b);
}

static void
try_all(enum karst_qp_type type)
{
	struct setup s = setup_of(type);
	struct bed *b = bed_open(&s);
	int from, to;

	for (from = KARST_QPS_RESET; from <= KARST_QPS_ERR; from++) {
		if (from == KARST_QPS_SQE && type == RC)
			continue;
		for (to = KARST_QPS_RESET; to <= KARST_QPS_ERR; to++)
			try_transition(b, &s, from, to);
	}
	bed_close(b);
}

Test(modify, transitions_rc)
{
	try_all(RC);
}

Test(modify, transitions_uc)
{
	try_all(UC);
}

Test(modify, transitions_ud)
{
	try_all(UD);
}

struct value {
	const char *what;
	size_t offset;
	size_t bytes;
	uint64_t bad;
	uint64_t good;
	unsigned int mask;
	enum karst_qp_state from;
	enum karst_qp_state to;
};

#define FIELD(f) offsetof(struct karst_core_qp_attr, f), sizeof(((struct karst_core_qp_attr *)0)->f)

static const struct value values[] = {
	{"port 0", FIELD(port_num), 0, 255, KARST_QP_PORT, KARST_QPS_RESET, KARST_QPS_INIT},
	{"pkey_index", FIELD(pkey_index), 1, 0, KARST_QP_PKEY_INDEX, KARST_QPS_RESET,
		KARST_QPS_INIT},
	{"access", FIELD(access_flags), KARST_ACCESS_ZERO_BASED, 7, KARST_QP_ACCESS_FLAGS,
		KARST_QPS_RESET, KARST_QPS_INIT},
	{"MTU 0", FIELD(path_mtu), 0, 1, 0, KARST_QPS_INIT, KARST_QPS_RTR},
	{"MTU 6", FIELD(path_mtu), 6, 5, 0, KARST_QPS_INIT, KARST_QPS_RTR},
	{"dest_qpn", FIELD(dest_qpn), 0x1000000, 0xffffff, 0, KARST_QPS_INIT, KARST_QPS_RTR},
	{"rq_psn", FIELD(rq_psn), 0x1000000, 0xffffff, 0, KARST_QPS_INIT, KARST_QPS_RTR},
	{"max_dest_rd_atomic", FIELD(max_dest_rd_atomic), 5, 4, 0, KARST_QPS_INIT, KARST_QPS_RTR},
	{"min_rnr_timer", FIELD(min_rnr_timer), 32, 31, 0, KARST_QPS_INIT, KARST_QPS_RTR},
	{"udp_sport", FIELD(path.udp_sport), 0xbfff, 0xc000, 0, KARST_QPS_INIT, KARST_QPS_RTR},
	{"flow_label", FIELD(path.flow_label), 0x100000, 0xfffff, 0, KARST_QPS_INIT, KARST_QPS_RTR},
	{"timeout", FIELD(timeout), 32, 31, 0, KARST_QPS_RTR, KARST_QPS_RTS},
	{"retry_cnt", FIELD(retry_cnt), 8, 7, 0, KARST_QPS_RTR, KARST_QPS_RTS},
	{"rnr_retry", FIELD(rnr_retry), 8, 7, 0, KARST_QPS_RTR, KARST_QPS_RTS},
	{"sq_psn", FIELD(sq_psn), 0x1000000, 0, 0, KARST_QPS_RTR, KARST_QPS_RTS},
	{"max_rd_atomic", FIELD(max_rd_atomic), 129, 128, 0, KARST_QPS_RTR, KARST_QPS_RTS},
};

/* Each value just inside and just outside of its range. */
Test(modify, ranges)
{
	struct setup s = setup_of(RC);
	struct bed *b = bed_open(&s);
	unsigned int i, required, optional;

	for (i = 0; i < KARST_DIM(values); i++) {
		const struct value *v = &values[i];
		struct karst_core_qp_attr attr = s.attr;

		cr_assert(table(RC, (int)v->from, (int)v->to, &required, &optional));
		attr.qp_state = v->to;
		go_to(b, &s, v->from);
		memcpy((char *)&attr + v->offset, &v->bad, v->bytes);
		cr_assert_eq(
			modify_checked(b, &attr, ST_ | required | v->mask), -EINVAL, "%s", v->what);
		memcpy((char *)&attr + v->offset, &v->good, v->bytes);
		cr_assert_eq(modify_checked(b, &attr, ST_ | required | v->mask), 0, "%s", v->what);
	}
	bed_close(b);
}

/* Invalid addresses. */
Test(modify, addresses)
{
	struct setup s = setup_of(RC);
	struct bed *b = bed_open(&s);
	unsigned int i, required, optional;

	for (i = 0; i < 4; i++) {
		struct karst_core_qp_attr attr = s.attr;

		attr.qp_state = KARST_QPS_RTR;
		attr.path.ip6 = i & 1;
		memset(i & 2 ? attr.path.src_ip : attr.path.dst_ip, 0, 16);
		go_to(b, &s, KARST_QPS_INIT);
		table(RC, KARST_QPS_INIT, KARST_QPS_RTR, &required, &optional);
		cr_assert_eq(modify_checked(b, &attr, ST_ | required), -EINVAL);
	}
	bed_close(b);
}

/* CUR_STATE must be the state; states and attributes that do not exist; no STATE at all. */
Test(modify, odd_masks)
{
	struct setup s = setup_of(RC);
	struct bed *b = bed_open(&s);
	struct karst_core_qp_attr attr = s.attr;

	attr.qp_state = KARST_QPS_RTS;
	attr.cur_qp_state = KARST_QPS_SQD;
	cr_assert_eq(modify_checked(b, &attr, ST_ | KARST_QP_CUR_STATE), -EINVAL);
	attr.cur_qp_state = KARST_QPS_RTS;
	cr_assert_eq(modify_checked(b, &attr, ST_ | KARST_QP_CUR_STATE), 0);
	cr_assert_eq(modify_checked(b, &attr, ST_ | KARST_QP_DEST_QPN << 1), -EINVAL);
	attr.qp_state = 7;
	cr_assert_eq(modify_checked(b, &attr, ST_), -EINVAL);
	attr.qp_state = 0xffff;
	cr_assert_eq(modify_checked(b, &attr, ST_), -EINVAL);
	attr.min_rnr_timer = 3;
	cr_assert_eq(modify_checked(b, &attr, KARST_QP_MIN_RNR_TIMER), 0);
	cr_assert_eq(modify_checked(b, &attr, KARST_QP_TIMEOUT), -EINVAL);
	cr_assert_eq(modify_checked(b, &attr, 0), 0);
	bed_close(b);
}

/* A query returns what was set. */
Test(modify, query)
{
	struct setup s = setup_of(RC);
	struct karst_core_qp_attr a;
	struct bed *b;

	s.attr.path.port = 0;
	s.attr.port_num = 3;
	s.attr.pkey = 0x8123;
	b = bed_open(&s);
	karst_qp_query(b->s->qp, &a);
	cr_assert_eq(a.qp_state, KARST_QPS_RTS);
	cr_assert_eq(a.path_mtu, 1);
	cr_assert_eq(a.rq_psn, FIRST_PSN);
	cr_assert_eq(a.sq_psn, FIRST_PSN);
	cr_assert_eq(a.dest_qpn, PEER_QPN);
	cr_assert_eq(a.access_flags, KARST_ACCESS_REMOTE);
	cr_assert_eq(a.pkey, 0x8123);
	cr_assert_eq(a.max_rd_atomic, 4);
	cr_assert_eq(a.max_dest_rd_atomic, 4);
	cr_assert_eq(a.min_rnr_timer, 12);
	cr_assert_eq(a.port_num, 3);
	cr_assert_eq(a.timeout, 10);
	cr_assert_eq(a.retry_cnt, 3);
	cr_assert_eq(a.rnr_retry, 2);
	cr_assert_eq(memcmp(&a.path, &s.attr.path, sizeof(a.path)), 0);
	cr_assert_eq(karst_qp_port(b->s->qp), s.attr.path.port);
	cr_assert_eq(karst_qp_user(b->s->qp), b);
	bed_close(b);
}

/* (R6): fewer saved responses from now on. */
Test(modify, r6_max_dest_rd_atomic_while_drained)
{
	struct karst_core_qp_attr attr = {.max_dest_rd_atomic = 1};
	struct bed *b = bed_rc();
	uint32_t i;

	for (i = 0; i < 3; i++) {
		expect_taken(b, send_pkt(b, RC_FETCH_ADD, R(i), .va = VA, .rkey = b->key));
		expect_pkt(b, RC_ATOMIC_ACK, R(i));
	}
	cr_assert_eq(bed_to_state(b, KARST_QPS_SQD), 0);
	cr_assert_eq(bed_modify(b, &attr, KARST_QP_MAX_DEST_RD_ATOMIC), 0);
	expect_drop(b, DUPLICATE, send_pkt(b, RC_FETCH_ADD, R(1), .va = VA, .rkey = b->key));
	expect_taken(b, send_pkt(b, RC_FETCH_ADD, R(2), .va = VA, .rkey = b->key));
	expect_pkt(b, RC_ATOMIC_ACK, R(2));
	bed_close(b);
}

/* (R1): access rights may be taken away while connected. */
Test(modify, r1_access_flags_in_rts)
{
	struct karst_core_qp_attr attr = {.access_flags = KARST_ACCESS_REMOTE_READ};
	struct bed *b = bed_rc();

	cr_assert_eq(bed_modify(b, &attr, KARST_QP_ACCESS_FLAGS), 0);
	expect_drop(b, REQUEST,
		send_pkt(b, RC_WRITE_ONLY, R(0), .va = VA, .rkey = b->key, .dma_len = 4,
			.pay_len = 4));
	expect_nak(b, R(0), INV_REQ, 0);
	bed_forget(b);
	bed_close(b);
}

/* A request for the drain event does not survive a reset. */
Test(modify, drain_notice_after_reset)
{
	struct setup s = setup_of(RC);
	struct bed *b = bed_open(&s);
	struct karst_core_qp_attr attr = s.attr;

	attr.qp_state = KARST_QPS_SQD;
	attr.en_sqd_async_notify = 1;
	cr_assert_eq(bed_modify(b, &attr, KARST_QP_STATE | KARST_QP_EN_SQD_ASYNC_NOTIFY), 0);
	expect_event(b, SQ_DRAINED);
	karst_qp_query(b->s->qp, &attr);
	cr_assert_not(attr.sq_draining);
	cr_assert_eq(bed_to_state(b, KARST_QPS_RESET), 0);
	bed_bring_up(b, &s, KARST_QPS_RTS);
	cr_assert_eq(bed_to_state(b, KARST_QPS_SQD), 0);
	bed_close(b);
}

/* What cannot be created. */
Test(modify, create)
{
	struct setup s = setup_of(RC);
	struct bed *b = bed_open(&s);
	struct karst_qp_init good = s.qp, bad;

	good.pd = b->pd;
	good.send_cq = b->scq;
	good.recv_cq = b->rcq;
	good.sq_shared = b->s->sq_mem;
	good.rq_shared = b->s->rq_mem;
	cr_assert_neq(karst_qp_bytes(&good), 0);
#define REFUSED(field, value) \
	bad = good;           \
	bad.field = (value);  \
	cr_assert_eq(karst_qp_bytes(&bad), 0, #field)
	REFUSED(type, 9);
	REFUSED(send_cq, NULL);
	REFUSED(recv_cq, NULL);
	REFUSED(sq_shared, NULL);
	REFUSED(rq_shared, NULL);
	REFUSED(max_send_wr, 0);
	REFUSED(max_send_wr, 3);
	REFUSED(max_send_wr, 2 * KARST_WQ_MAX_SLOTS);
	REFUSED(max_recv_wr, 0);
	REFUSED(max_recv_wr, 48);
	REFUSED(max_send_sge, 0);
	REFUSED(max_send_sge, KARST_WQ_MAX_SGE + 1);
	REFUSED(max_recv_sge, 0);
	REFUSED(max_recv_sge, KARST_WQ_MAX_SGE + 1);
	REFUSED(max_inline, KARST_WQ_MAX_INLINE + 1);
	REFUSED(max_dest_rd_atomic, KARST_QP_MAX_RD_ATOMIC + 1);
	REFUSED(ud_mtu, 6);
#undef REFUSED
	bed_close(b);
}
