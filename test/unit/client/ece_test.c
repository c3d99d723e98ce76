/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Enhanced connection establishment between two programs of one engine (C3, X1). */
#include <errno.h>

#include <criterion/criterion.h>

#include "rdmacm_bed.h"

#define VENDOR 0x724b53u
#define OFFER  0x4b520a01u
#define ANSWER 0xb4510a01u

static bool
is(struct karst_ece ece, uint32_t vendor, uint32_t options)
{
	return ece.vendor_id == vendor && ece.options == options;
}

/* What becomes of the connection if the active side offers @offer, and the passive side sets it on
 * its queue pair (@sets) and answers what the queue pair has made of it, or else the offer
 * itself. */
struct ends {
	struct program *server, *client;
	struct end s, c;
	uint32_t listener;
	struct karst_ece offered, answered; /* as the events report it */
};

static void
ends_up(struct ends *x, struct client_bed *bed, bool offers, bool sets)
{
	const uint8_t timeout = 12; /* 17 ms */
	struct karst_rdmacm_conn_param p;
	struct karst_rdmacm_event ev;
	struct karst_ece ece;

	*x = (struct ends){.server = program_up(bed), .client = program_up(bed)};
	x->s.p = x->server;
	x->c.p = x->client;
	x->listener = listen_on(x->server, "10.0.0.2", SERVICE, 1);
	ready_end(&x->c, NULL, "10.0.0.2", 2);
	cr_assert_eq(karst_rdmacm_set_option(x->client->b.ctx, x->c.id, 0,
			     KARST_RDMACM_OPTION_ACK_TIMEOUT, &timeout, sizeof(timeout)),
		0, "%s", karst_why());
	p = param_of(&x->c, "hello");
	if (offers)
		cr_assert_eq(karst_query_ece(x->c.qp, &p.ece), 0, "%s", karst_why());
	cr_assert_eq(karst_rdmacm_connect(x->client->b.ctx, x->c.id, &p), 0, "%s", karst_why());

	ev = expect(x->server, KARST_RDMACM_CONNECT_REQUEST, 1);
	x->offered = ece = ev.conn.ece;
	x->s.id = ev.id;
	x->s.qp = client_bed_qp(&x->server->b, KARST_QPT_RC);
	to_state(&x->s, KARST_QPS_INIT);
	if (sets)
		cr_assert_eq(karst_set_ece(x->s.qp, &ece), 0, "%s", karst_why());
	to_state(&x->s, KARST_QPS_RTR);
	to_state(&x->s, KARST_QPS_RTS);
	p = param_of(&x->s, "welcome");
	p.responder_resources = 2;
	p.initiator_depth = 3;
	p.ece = ece;
	cr_assert_eq(karst_rdmacm_accept(x->server->b.ctx, x->s.id, 3, &p), 0, "%s", karst_why());

	ev = expect(x->client, KARST_RDMACM_CONNECT_RESPONSE, 2);
	x->answered = ece = ev.conn.ece;
	if (sets)
		cr_assert_eq(karst_set_ece(x->c.qp, &ece), 0, "%s", karst_why());
	to_state(&x->c, KARST_QPS_RTR);
	to_state(&x->c, KARST_QPS_RTS);
	cr_assert_eq(karst_rdmacm_accept(x->client->b.ctx, x->c.id, 0, NULL), 0);
	expect(x->server, KARST_RDMACM_ESTABLISHED, 3);
	exchange(&x->c, &x->s);
	exchange(&x->s, &x->c);
}

static void
ends_down(struct ends *x)
{
	cr_assert_eq(karst_destroy_qp(x->c.qp), 0);
	cr_assert_eq(karst_destroy_qp(x->s.qp), 0);
	cr_assert_eq(karst_rdmacm_destroy_id(x->client->b.ctx, x->c.id, NULL), 0);
	cr_assert_eq(karst_rdmacm_destroy_id(x->server->b.ctx, x->s.id, NULL), 0);
	cr_assert_eq(karst_rdmacm_destroy_id(x->server->b.ctx, x->listener, NULL), 0);
	program_down(x->client);
	program_down(x->server);
}

#define BURST 10u /* requests that are posted together, so that a lost one has others behind it */

/* Sends while frames are lost; with @some, until a request that arrived ahead of the expected one
 * has been held.  @return how many were held */
static uint64_t
held(struct client_bed *bed, struct ends *x, bool some)
{
	struct karst_mr *mr = x->c.p->mr;
	struct karst_sge sge = {.addr = mr->iova, .lkey = mr->lkey};
	struct karst_counters sum = {0};
	struct karst_send_wr wr[BURST];
	unsigned int i, round;

	for (i = 0; i < BURST; i++)
		wr[i] = (struct karst_send_wr){.wr_id = i,
			.next = i + 1 < BURST ? &wr[i + 1] : NULL,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = KARST_WR_RDMA_WRITE,
			.send_flags = KARST_SEND_SIGNALED};
	cr_assert_eq(karst_engine_set_loss(bed->e, 0.1, 1), 0);
	for (round = 0; round < (some && sum.ctr[KARST_CTR_REQUESTS_HELD] == 0 ? 1000 : 5);
		round++) {
		cr_assert_eq(karst_post_send(x->c.qp, wr, NULL), 0, "%s", karst_why());
		for (i = 0; i < BURST; i++)
			cr_assert_eq(client_bed_wait(x->c.p->b.cq).status, KARST_WC_SUCCESS);
		karst_engine_counters(bed->e, 0, &sum);
	}
	cr_assert_eq(karst_engine_set_loss(bed->e, 0, 1), 0);
	return sum.ctr[KARST_CTR_REQUESTS_HELD];
}

Test(client_ece, x1_both)
{
	struct client_bed bed;
	struct karst_ece ece;
	struct ends x;

	client_bed_up(
		&bed, &(struct client_bed_config){.lcores = 1, .ece = KARST_ENGINE_ECE_OFFER});
	ends_up(&x, &bed, true, true);
	cr_expect(is(x.offered, VENDOR, OFFER));
	cr_expect(is(x.answered, VENDOR, ANSWER));
	cr_expect_eq(karst_query_ece(x.s.qp, &ece), 0);
	cr_expect(is(ece, VENDOR, ANSWER));
	cr_expect_eq(karst_query_ece(x.c.qp, &ece), 0);
	cr_expect(is(ece, VENDOR, ANSWER));
	cr_expect_gt(held(&bed, &x, true), 0);
	ends_down(&x);
	client_bed_down(&bed);
}

/* The passive program repeats the offer: that is no answer, and is not sent. */
Test(client_ece, x1_echo)
{
	struct client_bed bed;
	struct ends x;

	client_bed_up(
		&bed, &(struct client_bed_config){.lcores = 1, .ece = KARST_ENGINE_ECE_OFFER});
	ends_up(&x, &bed, true, false);
	cr_expect(is(x.offered, VENDOR, OFFER));
	cr_expect(is(x.answered, 0, 0));
	cr_expect_eq(held(&bed, &x, false), 0);
	ends_down(&x);
	client_bed_down(&bed);
}

/* Nobody offers: what the queue pairs could do does not matter. */
Test(client_ece, x1_not_offered)
{
	struct client_bed bed;
	struct ends x;

	client_bed_up(
		&bed, &(struct client_bed_config){.lcores = 1, .ece = KARST_ENGINE_ECE_OFFER});
	ends_up(&x, &bed, false, true);
	cr_expect(is(x.offered, 0, 0));
	cr_expect(is(x.answered, 0, 0));
	cr_expect_eq(held(&bed, &x, false), 0);
	ends_down(&x);
	client_bed_down(&bed);
}

/* An engine that answers, and offers nothing even if the program asks for it. */
Test(client_ece, x1_answer_alone)
{
	struct client_bed bed;
	struct ends x;

	client_bed_up(
		&bed, &(struct client_bed_config){.lcores = 1, .ece = KARST_ENGINE_ECE_ANSWER});
	ends_up(&x, &bed, true, true);
	cr_expect(is(x.offered, 0, 0));
	cr_expect_eq(held(&bed, &x, false), 0);
	ends_down(&x);
	client_bed_down(&bed);
}

Test(client_ece, x1_off)
{
	struct karst_device_attr device;
	struct karst_ece ece = {VENDOR, OFFER};
	struct client_bed bed;
	struct ends x;

	client_bed_up(&bed, &(struct client_bed_config){.lcores = 1});
	cr_expect_eq(karst_query_device(bed.ctx, &device), 0);
	cr_expect_eq(device.ece, 0);
	ends_up(&x, &bed, false, false);
	cr_expect_eq(karst_query_ece(x.c.qp, &ece), -EOPNOTSUPP);
	cr_expect_eq(karst_set_ece(x.c.qp, &ece), -EOPNOTSUPP);
	cr_expect_eq(held(&bed, &x, false), 0);
	ends_down(&x);
	client_bed_down(&bed);
}

/* When the options may be set: before RTR, on RC, of this vendor; an error changes nothing. */
Test(client_ece, x1_when)
{
	struct karst_ece ece = {VENDOR, OFFER}, other = {0x15b3, OFFER};
	struct client_bed bed;
	struct karst_qp *a, *b, *uc;

	client_bed_up(
		&bed, &(struct client_bed_config){.lcores = 1, .ece = KARST_ENGINE_ECE_ANSWER});
	a = client_bed_qp(&bed, KARST_QPT_RC);
	b = client_bed_qp(&bed, KARST_QPT_RC);
	uc = client_bed_qp(&bed, KARST_QPT_UC);
	cr_expect_eq(karst_set_ece(uc, &ece), -EOPNOTSUPP);
	cr_expect_eq(karst_query_ece(uc, &ece), -EOPNOTSUPP);
	cr_expect_eq(karst_set_ece(a, &ece), 0); /* in RESET */
	cr_expect(is(ece, VENDOR, ANSWER));
	cr_expect_eq(karst_set_ece(a, &other), -EINVAL);
	cr_expect_eq(karst_query_ece(a, &ece), 0);
	cr_expect(is(ece, VENDOR, ANSWER), "what was refused changed something");
	client_bed_connect(a, b);
	ece = (struct karst_ece){0, 0};
	cr_expect_eq(karst_set_ece(a, &ece), -EINVAL, "in RTS");
	ece = (struct karst_ece){VENDOR, ANSWER};
	cr_expect_eq(karst_set_ece(b, &ece), -EINVAL, "in RTS");
	cr_expect_eq(karst_query_ece(a, &ece), 0);
	cr_expect(is(ece, VENDOR, ANSWER));
	cr_assert_eq(client_bed_to(a, KARST_QPS_RESET, 1, 0), 0);
	cr_expect_eq(karst_query_ece(a, &ece), 0);
	cr_expect(is(ece, VENDOR, OFFER), "RESET ends it");
	ece = (struct karst_ece){VENDOR, 0xffffffff};
	cr_expect_eq(karst_set_ece(a, &ece), 0);
	cr_expect(is(ece, 0, 0), "nonsense is nothing");
	cr_expect_eq(karst_query_ece(a, &ece), 0);
	cr_expect(is(ece, VENDOR, 0));
	cr_assert_eq(client_bed_to(b, KARST_QPS_RESET, 2, 0), 0);
	client_bed_connect(a, b);
	cr_assert_eq(karst_destroy_qp(a), 0);
	cr_assert_eq(karst_destroy_qp(b), 0);
	cr_assert_eq(karst_destroy_qp(uc), 0);
	client_bed_down(&bed);
}

/* A program that claims options that are not its queue pair's. */
Test(client_ece, x1_claims)
{
	static const struct karst_ece claims[] = {{0x15b3, OFFER}, {VENDOR, ANSWER},
		{VENDOR, OFFER | 2}, {VENDOR, UINT32_MAX}, {VENDOR | 1u << 24, OFFER},
		{UINT32_MAX, UINT32_MAX}};
	struct karst_rdmacm_conn_param p;
	struct client_bed bed;
	struct program *client;
	struct end c = {0};
	unsigned int i;

	client_bed_up(
		&bed, &(struct client_bed_config){.lcores = 1, .ece = KARST_ENGINE_ECE_OFFER});
	c.p = client = program_up(&bed);
	ready_end(&c, NULL, "10.0.0.2", 2);
	p = param_of(&c, "hello");
	for (i = 0; i < KARST_DIM(claims); i++) {
		p.ece = claims[i];
		cr_expect_eq(karst_rdmacm_connect(client->b.ctx, c.id, &p), -EINVAL, "%u", i);
		cr_expect_not_null(strstr(karst_why(), "ECE"), "%s", karst_why());
	}
	/* options without a vendor are no offer, so the program can ask for a connection; nobody
	 * listens */
	p.ece = (struct karst_ece){0, OFFER};
	cr_expect_eq(karst_rdmacm_connect(client->b.ctx, c.id, &p), 0, "%s", karst_why());
	expect(client, KARST_RDMACM_REJECTED, 2);
	cr_assert_eq(karst_destroy_qp(c.qp), 0);
	cr_assert_eq(karst_rdmacm_destroy_id(client->b.ctx, c.id, NULL), 0);
	program_down(client);
	client_bed_down(&bed);
}
