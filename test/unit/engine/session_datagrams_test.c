/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A program destroys an address handle while datagrams with that handle are posted on many of its
 * queue pairs.  Doorbells are not rung, so only that call can send them.
 */
#include <unistd.h>

#include <criterion/criterion.h>

#include "engine_priv.h"
#include "program.h"
#include "session_bed.h"

#define BUF     (64u << 10)
#define PAGE    4096u
#define SENDERS 64u
#define BYTES   64u
#define QKEY    0x1234u
/* The least number of turns that one queue pair gets, however slow lcores are. */
#define TURNS_OF_ONE 64u

static uint8_t dst[BUF];

static uint32_t
copied_region(struct client *c, uint32_t pd, uint64_t addr)
{
	const struct karst_ctl_reg_mr_req req = {
		.pd = pd, .addr = addr, .len = BUF, .iova = addr, .npieces = 1};
	const struct karst_ctl_piece piece = {.addr = addr,
		.len = BUF,
		.kind = KARST_CTL_PIECE_COPY,
		.flags = KARST_CTL_PIECE_ON_DEMAND};
	uint8_t m[sizeof(req) + sizeof(piece)];

	memcpy(m, &req, sizeof(req));
	memcpy(m + sizeof(req), &piece, sizeof(piece));
	cr_assert_eq(client_call(c, KARST_CTL_REG_MR, m, sizeof(m)), 0, "%s", c->why);
	cr_assert_eq(RSP(c, reg_mr)->copied_bytes, BUF);
	return RSP(c, reg_mr)->key;
}

static void
datagram_qp(struct engine_bed *bed, struct client *c, uint32_t pd, const struct client_cq *cq,
	int side, struct client_qp *qp)
{
	enum karst_qp_state to;

	client_qp(c, KARST_QPT_UD, pd, cq, 0, 0, qp);
	for (to = KARST_QPS_INIT; to <= KARST_QPS_RTS; to++) {
		struct karst_core_qp_attr a;
		struct karst_ctl_modify_qp_req req = {.qp = qp->handle};

		req.mask = engine_bed_attr(bed, KARST_QPT_UD, side, 0, to, &a);
		req.attr = (struct karst_ctl_qp_attr){.qp_state = a.qp_state,
			.qkey = a.qkey,
			.sq_psn = a.sq_psn,
			.port_num = a.port_num};
		cr_assert_eq(
			client_call(c, KARST_CTL_MODIFY_QP, &req, sizeof(req)), 0, "%s", c->why);
	}
}

static uint32_t
address_of_b(const struct engine_bed *bed, struct client *c, uint32_t pd)
{
	struct karst_ctl_create_ah_req req = {
		.pd = pd, .attr = {.port_num = (uint8_t)(bed->port[0] + 1), .hop_limit = 64}};
	struct karst_engine_port_info info;

	cr_assert_eq(karst_engine_port_info(bed->e, bed->port[1], &info), 0);
	memcpy(req.attr.dgid, info.addrs[0].ip, 16);
	cr_assert_eq(client_call(c, KARST_CTL_CREATE_AH, &req, sizeof(req)), 0, "%s", c->why);
	return RSP(c, create_ah)->ah;
}

static void
post_datagram(struct client_qp *qp, uint64_t from, uint32_t lkey, uint32_t ah, uint32_t remote_qpn)
{
	struct karst_send_wqe *w;

	cr_assert_geq(karst_wq_free(&qp->sq, 1), 1);
	w = karst_wq_slot(&qp->sq, 0);
	memset(w, 0, sizeof(*w));
	w->opcode = KARST_WR_SEND;
	w->num = 1;
	w->ud.ah = ah;
	w->ud.remote_qpn = remote_qpn;
	w->ud.remote_qkey = QKEY;
	w->sge[0] = (struct karst_sge){.addr = from, .len = BYTES, .lkey = lkey};
	karst_wq_publish(&qp->sq, 1);
}

struct senders {
	struct client *c;
	uint32_t pd, ah;
	struct client_cq cq;
	struct client_qp qp[SENDERS];
};

static void
senders_up(struct senders *s, struct engine_bed *bed, const struct program *p)
{
	uint32_t i;

	s->c = client_of_process(bed->e, p->pid, p->pidfd);
	s->pd = client_pd(s->c);
	client_cq(s->c, 256, 0, 0, &s->cq);
	for (i = 0; i < SENDERS; i++)
		datagram_qp(bed, s->c, s->pd, &s->cq, 0, &s->qp[i]);
	s->ah = address_of_b(bed, s->c, s->pd);
}

static uint64_t
messages(const struct engine_bed *bed)
{
	return __atomic_load_n(&bed->e->lcore[0].stats.messages, __ATOMIC_RELAXED);
}

/* Each has a datagram in memory that never becomes available: together they have the time of one
 * call, in which the call cannot try as often as if each had its own time. */
Test(session_datagrams, all_have_the_time_of_one_call)
{
	struct engine_bed_config cfg = {.engine.lcores = 1};
	struct engine_bed_poller poller;
	static struct senders s;
	struct engine_bed bed;
	struct program p;
	uint64_t never, asked;
	uint32_t key, i;
	int ret;

	if (access("/dev/fuse", R_OK | W_OK) != 0)
		cr_skip("needs /dev/fuse");
	program_start(&p, 0);
	cr_assert_eq(program_never(&p, BUF, &never), 0);
	engine_bed_up(&bed, &cfg);
	engine_bed_poller_start(&poller, &bed, 1);
	senders_up(&s, &bed, &p);
	key = copied_region(s.c, s.pd, never);
	for (i = 0; i < SENDERS; i++)
		post_datagram(&s.qp[i], never + i % (BUF / PAGE) * PAGE, key, s.ah, 0x100);
	asked = messages(&bed);
	ret = CALL(s.c, DESTROY_AH, destroy_ah, .ah = s.ah);
	asked = messages(&bed) - asked;
	/* first: this process cannot end while it waits for that memory */
	program_kill(&p);
	client_close(s.c);
	engine_bed_poller_stop(&poller);
	cr_assert_eq(ret, 0);
	cr_assert_gt(asked, TURNS_OF_ONE, "it has waited for memory: asked %d times", (int)asked);
	cr_assert_lt(asked, SENDERS * TURNS_OF_ONE, "asked %d times", (int)asked);
	engine_bed_down(&bed);
}

/* More queue pairs than are handled at once, with copied memory: all that they have posted is
 * sent. */
Test(session_datagrams, all_go_with_their_address)
{
	struct engine_bed_config cfg = {.engine.lcores = 1};
	struct engine_bed_poller poller;
	uint32_t pd, here, there, i;
	struct client_qp qp[SENDERS];
	static struct senders s;
	struct engine_bed bed;
	struct client_cq cq;
	struct karst_cqe cqe;
	struct client *far;
	struct program p;
	uint64_t mem, len;

	program_start(&p, 0);
	cr_assert_eq(program_make(&p, KIND_ANONYMOUS, &mem, &len), 0);
	cr_assert_geq(len, BUF);
	engine_bed_up(&bed, &cfg);
	engine_bed_poller_start(&poller, &bed, 1);
	senders_up(&s, &bed, &p);
	there = copied_region(s.c, s.pd, mem);
	far = client_open(bed.e, NULL);
	pd = client_pd(far);
	client_cq(far, 256, 0, 0, &cq);
	here = client_mr(far, pd, dst, BUF);
	for (i = 0; i < SENDERS; i++) {
		datagram_qp(&bed, far, pd, &cq, 1, &qp[i]);
		client_post_recv(&qp[i], i, dst + i * 2 * BYTES, 2 * BYTES, here);
		post_datagram(&s.qp[i], mem + i * BYTES, there, s.ah, qp[i].num);
	}
	cr_assert_eq(CALL(s.c, DESTROY_AH, destroy_ah, .ah = s.ah), 0, "%s", s.c->why);
	for (i = 0; i < SENDERS; i++) {
		cr_assert(client_wait(&bed, &cq, &cqe), "%u of them came", i);
		cr_assert_eq(cqe.status, KARST_WC_SUCCESS);
		cr_assert_eq(cqe.byte_len, BYTES + 40);
	}
	program_end(&p);
	client_close(s.c);
	client_close(far);
	engine_bed_poller_stop(&poller);
	engine_bed_down(&bed);
}
