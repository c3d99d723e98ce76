/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * XRC targets and SRQs of several owners that are destroyed in the middle of a message (U3).  The
 * test polls the lcore, so it can stop at any point.
 */
#include "engine_bed.h"

#include <errno.h>

#include <criterion/criterion.h>

#include "karst_owner.h"

#define BYTES 60000u

static uint8_t from[BYTES], to[BYTES];

struct rig {
	struct engine_bed bed;
	uint32_t key;
	struct karst_engine_owner *owner; /* of the SRQ */
	struct karst_engine_xrcd *xrcd;
	struct karst_engine_cq *cq;
	struct karst_engine_srq *srq;
	struct karst_engine_qp *ini;
	struct karst_engine_qp *tgt;
};

static void
step(struct rig *r, struct karst_engine_qp *qp, enum karst_qp_type type, int side, uint32_t peer,
	enum karst_qp_state state)
{
	struct karst_core_qp_attr attr;
	unsigned int required, optional;

	engine_bed_attr(&r->bed, KARST_QPT_RC, side, peer, state, &attr);
	cr_assert_eq(karst_qp_transition(
			     type, (enum karst_qp_state)(state - 1), state, &required, &optional),
		0);
	cr_assert_eq(karst_engine_qp_modify(r->bed.e, qp, &attr, KARST_QP_STATE | required), 0);
}

static void
make_pair(struct rig *r)
{
	struct karst_engine_qp_init init = {
		.type = KARST_QPT_XRC_RECV, .xrcd = r->xrcd, .max_dest_rd_atomic = 16};
	enum karst_qp_state state;

	cr_assert_eq(karst_engine_qp_create(r->bed.e, &init, &r->tgt), 0);
	cr_assert_eq(r->tgt->lcore, r->xrcd->lcore);
	init = (struct karst_engine_qp_init){.type = KARST_QPT_XRC_SEND,
		.pd = r->bed.pd,
		.send_cq = r->bed.cq,
		.max_send_wr = 4};
	cr_assert_eq(karst_engine_qp_create(r->bed.e, &init, &r->ini), 0);
	for (state = KARST_QPS_INIT; state <= KARST_QPS_RTS; state++) {
		step(r, r->ini, KARST_QPT_XRC_SEND, 0, r->tgt->num, state);
		step(r, r->tgt, KARST_QPT_XRC_RECV, 1, r->ini->num, state);
	}
}

static void
rig_up(struct rig *r)
{
	const struct karst_engine_owner_init owner = {.name = "other"};
	const struct karst_engine_xrcd_init xrcd = {.lcore = KARST_ENGINE_ANY_LCORE};
	struct engine_bed_config cfg = {.engine = {.window_packets = 2}};
	struct karst_engine_srq_init init = {.lcore = KARST_ENGINE_ANY_LCORE, .max_wr = 4};

	engine_bed_up(&r->bed, &cfg);
	engine_bed_settle(&r->bed);
	r->key = engine_bed_mr(&r->bed, from, sizeof(from));
	cr_assert_eq(karst_engine_owner_create(r->bed.e, &owner, &r->owner), 0);
	cr_assert_eq(karst_engine_xrcd_open(r->bed.e, &xrcd, &r->xrcd), 0);
	cr_assert_eq(
		karst_engine_cq_create(r->bed.e,
			&(struct karst_engine_cq_init){.entries = 8, .owner = r->owner}, &r->cq),
		0);
	init.pd = r->bed.pd;
	init.owner = r->owner;
	init.xrcd = r->xrcd;
	cr_assert_eq(karst_engine_srq_create(r->bed.e, &init, &r->srq), -EINVAL, "no CQ");
	init.cq = r->bed.cq;
	cr_assert_eq(karst_engine_srq_create(r->bed.e, &init, &r->srq), -EINVAL, "another's CQ");
	init.cq = r->cq;
	cr_assert_eq(karst_engine_srq_create(r->bed.e, &init, &r->srq), 0);
	make_pair(r);
}

static void
rig_down(struct rig *r)
{
	cr_assert_eq(karst_engine_srq_destroy(r->bed.e, r->srq), 0);
	cr_assert_eq(karst_engine_cq_destroy(r->bed.e, r->cq), 0);
	cr_assert_eq(karst_engine_owner_destroy(r->owner), 0);
	cr_assert_eq(karst_engine_xrcd_close(r->bed.e, r->xrcd), 0);
	cr_assert_eq(karst_engine_mr_dereg(r->bed.e, r->key), 0);
	engine_bed_down(&r->bed);
}

/* A long message, up to the point where the target has taken a receive request for it. */
static void
begin_message(struct rig *r, uint32_t key_to, uint64_t id)
{
	struct karst_recv_wqe *recv = karst_wq_slot(&r->srq->rq, 0);
	struct karst_send_wqe *send = karst_engine_send_slot(r->ini, 0);
	unsigned int turns = 0;
	uint32_t head;

	*recv = (struct karst_recv_wqe){
		.wr_id = id, .num_sge = 1, .sge = {{(uintptr_t)to, BYTES, key_to}}};
	karst_engine_post_srq_recv(r->srq, 1);
	*send = (struct karst_send_wqe){.wr_id = id,
		.opcode = KARST_WR_SEND,
		.flags = KARST_SEND_SIGNALED,
		.num = 1,
		.rdma = {.srqn = r->srq->num},
		.sge = {{(uintptr_t)from, BYTES, r->key}}};
	head = atomic_load(&r->srq->rq.sh->head);
	cr_assert_eq(karst_engine_post_send(r->ini, 1), 0);
	while (atomic_load(&r->srq->rq.sh->head) == head) {
		cr_assert_lt(turns++, 1000);
		karst_engine_poll(r->bed.e, 0);
	}
}

static void
expect(struct karst_engine_cq *cq, uint64_t id, enum karst_wc_status status)
{
	struct karst_cqe cqe;

	cr_assert_eq(karst_engine_cq_poll(cq, &cqe, 1), 1, "no completion");
	cr_assert_eq(cqe.wr_id, id);
	cr_assert_eq(cqe.status, status, "%u", cqe.status);
}

/* The creator's handle is destroyed, and the message continues; with the last handle the receive
 * request returns to its owner before the call returns. */
Test(engine_xrc, u3_handles)
{
	struct karst_engine_qp_open open;
	struct karst_engine_qp *again;
	uint32_t key_to;
	struct rig r;

	rig_up(&r);
	key_to = engine_bed_mr(&r.bed, to, sizeof(to));
	open = (struct karst_engine_qp_open){.xrcd = r.xrcd, .qpn = r.tgt->num, .owner = r.owner};
	cr_assert_eq(karst_engine_qp_open(r.bed.e, &open, &again), 0);
	cr_assert(karst_engine_qp_is_shared(r.bed.e, r.tgt));
	engine_bed_fill(from, BYTES, 1);
	begin_message(&r, key_to, 1);
	cr_assert_eq(karst_engine_qp_destroy(r.bed.e, r.tgt), 0);
	cr_assert_not(karst_engine_qp_is_shared(r.bed.e, again));
	engine_bed_settle(&r.bed);
	expect(r.cq, 1, KARST_WC_SUCCESS);
	expect(r.bed.cq, 1, KARST_WC_SUCCESS);
	cr_assert_eq(memcmp(from, to, BYTES), 0);
	begin_message(&r, key_to, 2);
	cr_assert_eq(karst_engine_owner_destroy(r.owner), -EBUSY);
	cr_assert_eq(karst_engine_qp_destroy(r.bed.e, again), 0);
	expect(r.cq, 2, KARST_WC_WR_FLUSH_ERR);
	cr_assert_eq(karst_engine_qp_open(r.bed.e, &open, &again), -ENOENT);
	cr_assert_eq(karst_engine_qp_destroy(r.bed.e, r.ini), 0);
	cr_assert_eq(karst_engine_mr_dereg(r.bed.e, key_to), 0);
	rig_down(&r);
}

/* Loads the alternate path by port A, with @timeout. */
static void
load_alternate(struct rig *r, struct karst_engine_qp *qp, uint8_t timeout)
{
	struct karst_core_qp_attr attr = {.alt_timeout = timeout};
	struct karst_engine_port_info dst;

	cr_assert_eq(karst_engine_port_info(r->bed.e, r->bed.port[1], &dst), 0);
	cr_assert_eq(karst_engine_path_init(
			     r->bed.e, r->bed.port[0], 0, dst.mac, dst.addrs[0].ip, &attr.alt_path),
		0);
	cr_assert_eq(karst_engine_qp_modify(r->bed.e, qp, &attr, KARST_QP_ALT_PATH), 0);
}

static void
expect_alternate(struct rig *r, struct karst_engine_qp *qp, uint8_t timeout)
{
	struct karst_core_qp_attr is;

	cr_assert_eq(karst_engine_qp_query(r->bed.e, qp, &is), 0);
	cr_assert_eq(is.alt_timeout, timeout, "%u", is.alt_timeout);
	cr_assert_eq(is.alt_port_num, r->bed.port[0] + 1, "%u", is.alt_port_num);
}

/* An alternate path belongs to the QP, and stays while there is a handle, whichever handle loaded
 * it. */
static void
alternate_stays(struct rig *r, bool maker_loads)
{
	struct karst_engine_qp_open open = {.xrcd = r->xrcd, .qpn = r->tgt->num, .owner = r->owner};
	struct karst_engine_qp *again, *first = r->tgt, *ini = r->ini;

	cr_assert_eq(karst_engine_qp_open(r->bed.e, &open, &again), 0);
	load_alternate(r, maker_loads ? first : again, 17);
	cr_assert_eq(karst_engine_qp_destroy(r->bed.e, maker_loads ? first : again), 0);
	first = maker_loads ? again : first;
	/* of the same sizes, so memory that was freed is used again */
	make_pair(r);
	load_alternate(r, r->tgt, 9);
	expect_alternate(r, first, 17);
	load_alternate(r, first, 18);
	expect_alternate(r, r->tgt, 9);
	expect_alternate(r, first, 18);
	cr_assert_eq(karst_engine_qp_destroy(r->bed.e, first), 0);
	cr_assert_eq(karst_engine_qp_destroy(r->bed.e, ini), 0);
	expect_alternate(r, r->tgt, 9);
}

Test(engine_xrc, u3_alternate_path)
{
	struct rig r;

	rig_up(&r);
	alternate_stays(&r, true);
	alternate_stays(&r, false);
	cr_assert_eq(karst_engine_qp_destroy(r.bed.e, r.ini), 0);
	cr_assert_eq(karst_engine_qp_destroy(r.bed.e, r.tgt), 0);
	rig_down(&r);
}

/* Each file has a domain of its own, shared by all who open the file; other domains are shared with
 * nobody. */
Test(engine_xrc, u3_domains_of_many_files)
{
	enum { FILES = 3000 };
	static struct karst_engine_xrcd *first[FILES], *again[FILES], *private[FILES];
	struct karst_engine_xrcd_init init = {.shared = true, .create = true, .exclusive = true},
				      own = {.lcore = KARST_ENGINE_ANY_LCORE};
	struct engine_bed bed;
	struct engine_bed_config cfg = {0};
	unsigned int i;

	engine_bed_up(&bed, &cfg);
	init.lcore = KARST_ENGINE_ANY_LCORE;
	for (i = 0; i < FILES; i++) {
		init.dev = i % 2;
		init.ino = i / 2;
		cr_assert_eq(karst_engine_xrcd_open(bed.e, &init, &first[i]), 0);
		cr_assert_eq(karst_engine_xrcd_open(bed.e, &own, &private[i]), 0);
		cr_assert_eq(karst_engine_xrcd_open(bed.e, &init, &again[i]), -EEXIST);
		cr_assert(i == 0 || first[i]->number > private[i - 1] -> number);
		cr_assert_gt(private[i] -> number, first[i] -> number);
	}
	init.create = init.exclusive = false;
	for (i = 0; i < FILES; i++) {
		init.dev = i % 2;
		init.ino = i / 2;
		cr_assert_eq(karst_engine_xrcd_open(bed.e, &init, &again[i]), 0);
		cr_assert_eq(again[i], first[i]);
		cr_assert_eq(karst_engine_xrcd_close(bed.e, private[i]), 0);
		cr_assert_eq(karst_engine_xrcd_close(bed.e, first[i]), 0);
	}
	for (i = FILES; i-- > 0;) {
		init.dev = i % 2;
		init.ino = i / 2;
		cr_assert_eq(karst_engine_xrcd_close(bed.e, again[i]), 0);
		cr_assert_eq(karst_engine_xrcd_open(bed.e, &init, &again[i]), -ENOENT);
	}
	engine_bed_down(&bed);
}

/* Events of a target go to all of its handles, so the number of handles is limited. */
Test(engine_xrc, u3_handles_of_a_target)
{
	struct karst_engine_qp *h[KARST_ENGINE_TARGET_HANDLES], *more;
	struct karst_engine_qp_open open = {0};
	struct rig r;
	uint32_t i;

	rig_up(&r);
	open.xrcd = r.xrcd;
	open.qpn = r.tgt->num;
	open.owner = r.owner;
	for (i = 1; i < KARST_ENGINE_TARGET_HANDLES; i++)
		cr_assert_eq(karst_engine_qp_open(r.bed.e, &open, &h[i]), 0);
	cr_assert_eq(karst_engine_qp_open(r.bed.e, &open, &more), -EUSERS);
	/* one handle is destroyed, another one opened */
	cr_assert_eq(karst_engine_qp_destroy(r.bed.e, h[9]), 0);
	cr_assert_eq(karst_engine_qp_open(r.bed.e, &open, &h[9]), 0);
	for (i = 1; i < KARST_ENGINE_TARGET_HANDLES; i++)
		cr_assert_eq(karst_engine_qp_destroy(r.bed.e, h[i]), 0);
	cr_assert_eq(karst_engine_qp_destroy(r.bed.e, r.ini), 0);
	cr_assert_eq(karst_engine_qp_destroy(r.bed.e, r.tgt), 0);
	rig_down(&r);
}

/* The SRQ is withdrawn, or destroyed with its CQ: the message is refused, and nothing completes. */
Test(engine_xrc, u3_queue_gone)
{
	struct karst_cqe cqe;
	uint32_t key_to;
	struct rig r;

	rig_up(&r);
	key_to = engine_bed_mr(&r.bed, to, sizeof(to));
	begin_message(&r, key_to, 1);
	cr_assert_eq(karst_engine_srq_withdraw(r.bed.e, r.srq), 0);
	engine_bed_settle(&r.bed);
	expect(r.bed.cq, 1, KARST_WC_REM_INV_REQ_ERR);
	cr_assert_eq(karst_engine_cq_poll(r.cq, &cqe, 1), 0);
	cr_assert_eq(karst_engine_cq_destroy(r.bed.e, r.cq), -EBUSY);
	cr_assert_eq(karst_engine_qp_destroy(r.bed.e, r.ini), 0);
	cr_assert_eq(karst_engine_qp_destroy(r.bed.e, r.tgt), 0);
	cr_assert_eq(karst_engine_mr_dereg(r.bed.e, key_to), 0);
	rig_down(&r);
}
