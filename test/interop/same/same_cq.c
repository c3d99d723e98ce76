/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Completion queues and their events. */
#include "same.h"

#include <fcntl.h>
#include <poll.h>

static struct ibv_comp_channel *channel;

/* Waits for an event of the channel (200 ms if none is due), and prints whether it has come. */
static void
say_event(const char *what, bool due)
{
	struct pollfd p = {.fd = channel->fd, .events = POLLIN};
	struct ibv_cq *of;
	void *context;

	if (poll(&p, 1, due ? 10000 : 200) <= 0) {
		say(what, "no event");
		return;
	}
	MUST(ibv_get_cq_event(channel, &of, &context) == 0);
	say(what, "an event, of the queue %d, with its context %d", of == cq, context == &channel);
	ibv_ack_cq_events(of, 1);
}

static void
send_one(unsigned int flags)
{
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = send_wr(IBV_WR_SEND, 1, &sge), *bad;

	wr.send_flags = flags;
	MUST(post_recv(qp[1], 2, 1024, 8) == 0);
	MUST(ibv_post_send(qp[0], &wr, &bad) == 0);
}

static void
events(void)
{
	struct ibv_cq *of;
	void *context;

	bed_open();
	MUST((channel = ibv_create_comp_channel(ctx)) != NULL);
	MUST(ibv_destroy_cq(cq) == 0);
	MUST((cq = ibv_create_cq(ctx, 64, &channel, channel, 0)) != NULL);
	connect_pair(IBV_QPT_RC);
	send_one(0);
	say_event("not armed", false);
	say_wcs("not armed", cq, 1);
	say_rc("armed", ibv_req_notify_cq(cq, 0));
	send_one(0);
	say_event("armed", true);
	say_wcs("armed", cq, 1);
	send_one(0);
	say_event("armed once", false);
	say_wcs("armed once", cq, 1);
	say_rc("armed for solicited ones", ibv_req_notify_cq(cq, 1));
	send_one(0);
	say_event("not solicited", false);
	say_wcs("not solicited", cq, 1);
	send_one(IBV_SEND_SOLICITED);
	say_event("solicited", true);
	say_wcs("solicited", cq, 1);
	say_rc("armed for solicited ones", ibv_req_notify_cq(cq, 1));
	say_rc("armed for all", ibv_req_notify_cq(cq, 0));
	send_one(0);
	say_event("armed for both", true);
	say_wcs("armed for both", cq, 1);
	say_rc("armed for all", ibv_req_notify_cq(cq, 0));
	say_rc("armed for solicited ones", ibv_req_notify_cq(cq, 1));
	send_one(0);
	say_event("armed for both, the other way", true);
	say_wcs("armed for both, the other way", cq, 1);
	MUST(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) == 0);
	say_rc("without waiting", ibv_get_cq_event(channel, &of, &context));
}

static void
resize(void)
{
	struct ibv_cq *small;
	struct ibv_device_attr dev;
	struct ibv_qp_init_attr init;
	int i;

	bed_open();
	MUST(ibv_query_device(ctx, &dev) == 0);
	MUST((small = ibv_create_cq(ctx, 16, NULL, NULL, 0)) != NULL);
	say_rc("larger", ibv_resize_cq(small, 100));
	say("larger", "%d", small->cqe >= 100);
	say_rc("smaller", ibv_resize_cq(small, 10));
	say("smaller", "%d", small->cqe >= 10);
	say_rc("no entries", ibv_resize_cq(small, 0));
	say_rc("-1 entries", ibv_resize_cq(small, -1));
	say_rc("too many", ibv_resize_cq(small, dev.max_cqe + 1));
	init = qp_init(IBV_QPT_RC);
	init.recv_cq = small;
	MUST((qp[0] = ibv_create_qp(pd, &init)) != NULL);
	bring_to(qp[0], IBV_QPS_INIT, 0);
	for (i = 0; i < 8; i++)
		MUST(post_recv(qp[0], (uint64_t)i, 0, 8) == 0);
	MUST(move(qp[0], IBV_QPS_ERR, 0) == 0);
	say_rc("with some in it", ibv_resize_cq(small, 200));
	say_wcs("all are there", small, 8);
	say_none("and no other", small);
}

static void
overrun(void)
{
	struct ibv_cq *small;
	struct ibv_qp_init_attr init;
	struct ibv_wc wc;
	int i, n, got = 0;

	bed_open();
	MUST((small = ibv_create_cq(ctx, 1, NULL, NULL, 0)) != NULL);
	init = qp_init(IBV_QPT_RC);
	init.recv_cq = small;
	init.cap.max_recv_wr = 1000;
	MUST((qp[0] = ibv_create_qp(pd, &init)) != NULL);
	bring_to(qp[0], IBV_QPS_INIT, 0);
	for (i = 0; i < 1000; i++)
		MUST(post_recv(qp[0], (uint64_t)i, 0, 8) == 0);
	MUST(move(qp[0], IBV_QPS_ERR, 0) == 0);
	say_async("overrun");
	while ((n = ibv_poll_cq(small, 1, &wc)) > 0 && got < 1000)
		got++;
	say("polling", "%d", n < 0);
	say("not all were had", "%d", got < 1000);
}

/* Polls for more completions than there are, and for none. */
static void
polling(void)
{
	struct ibv_wc wc[16];
	int n = 0;

	bed_open();
	qp[0] = make_qp(IBV_QPT_RC);
	say("an empty one", "%d", ibv_poll_cq(cq, 8, wc));
	bring_to(qp[0], IBV_QPS_ERR, 0);
	MUST(post_send(qp[0], 1, 0, 8) == 0);
	MUST(post_send(qp[0], 2, 0, 8) == 0);
	say("for none", "%d", ibv_poll_cq(cq, 0, wc));
	while (n < 2)
		n += ibv_poll_cq(cq, 8, wc + n);
	say("for more than there are", "%d", n);
	say("the second", "%d", (int)wc[1].wr_id);
}

static void
gone(void)
{
	bed_open();
	qp[0] = make_qp(IBV_QPT_RC);
	bring_to(qp[0], IBV_QPS_INIT, 0);
	MUST(post_recv(qp[0], 1, 0, 8) == 0);
	say_rc("destroyed with a receive", ibv_destroy_qp(qp[0]));
	say_none("none of it", cq);
}

const struct same_case cq_cases[] = {
	{"events of completions", events},
	{"resize", resize},
	{"overrun", overrun},
	{"polling", polling},
	{"a queue pair that goes", gone},
	{0},
};
