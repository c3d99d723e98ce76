/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Sessions: the order of calls, message formats, limits, numbers of other sessions; a refused call
 * has changed nothing. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "cm.h"
#include "engine_priv.h"
#include "karst_ctl_sock.h"
#include "session_bed.h"

#define OVER 10000u

/* --- HELLO --- */

Test(session_control, hello)
{
	struct engine_bed_config cfg = {.engine = {.lcores = 2, .name = "greeter"}};
	const struct karst_ctl_hello_rsp *rsp;
	struct karst_session_info info;
	struct karst_ctl_hello_req req;
	struct client *c;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	engine_bed_settle(&bed); /* this thread has the lcores */
	c = client_open_raw(bed.e, NULL);
	refused(c, -EPROTO, "HELLO", CALL(c, ALLOC_PD, alloc_pd, .reserved = 0));
	refused(c, -EPROTO, "abi 77", CALL(c, HELLO, hello, .abi = 77));
	memset(&req, 'x', sizeof(req));
	req.abi = KARST_RING_ABI;
	refused(c, -EINVAL, "program", client_call(c, KARST_CTL_HELLO, &req, sizeof(req)));
	cr_assert_eq(CALL(c, HELLO, hello, .program = "test", .abi = KARST_RING_ABI), 0);
	rsp = RSP(c, hello);
	cr_assert_str_eq(rsp->engine, "greeter");
	cr_assert_eq(rsp->abi, KARST_RING_ABI);
	cr_assert_eq(rsp->nlcores, 2);
	cr_assert_eq(rsp->nports, 2);
	cr_assert_eq(rsp->engine_pid, getpid());
	cr_assert_geq(rsp->nchunks, 1);
	cr_assert_eq(c->nfds, 3);
	karst_ctl_close_fds(c->fds, c->nfds);
	c->number = rsp->client;
	info = client_info(bed.e, c);
	cr_assert_str_eq(info.program, "test");
	cr_assert_eq(info.pid, getpid());
	cr_assert_eq(info.requests, 4);
	cr_assert_eq(info.refused, 3);
	refused(c, -EPROTO, "already served", CALL(c, HELLO, hello, .abi = KARST_RING_ABI));
	client_close(c);
	cr_assert_eq(karst_session_list(bed.e, NULL, 0), 0);
	engine_bed_down(&bed);
}

/* Two queues of the largest size that the device reports can be created, whatever ring memory there
 * is. */
Test(session_control, largest_completion_queue)
{
	const struct karst_ctl_query_device_rsp *dev;
	struct engine_bed_config cfg = {.engine.lcores = 2};
	uint64_t bytes;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	engine_bed_settle(&bed);
	for (bytes = 4u << 20; bytes <= 512u << 20; bytes += bytes / 3) {
		struct karst_session_limits limits = {.max_ring_bytes = bytes};
		struct client *c = client_open(bed.e, &limits);
		uint32_t cqe, i;

		cr_assert_eq(CALL(c, QUERY_DEVICE, query_device, .reserved = 0), 0);
		dev = RSP(c, query_device);
		cqe = dev->max_cqe;
		/* on two lcores */
		cr_assert_geq((uint64_t)cqe * 2 * 2 * sizeof(struct karst_cqe), bytes / 16);
		for (i = 0; i < 2; i++)
			cr_assert_eq(CALL(c, CREATE_CQ, create_cq, .entries = cqe,
					     .flags = KARST_CQ_TIMESTAMPS),
				0, "%u entries: %s", cqe, c->why);
		refused(c, -EINVAL, "max_ring_bytes",
			CALL(c, CREATE_CQ, create_cq, .entries = cqe + 1));
		client_close(c);
	}
	engine_bed_down(&bed);
}

Test(session_control, device)
{
	struct karst_session_limits limits = {.max_qps = 3, .max_mr_bytes = 5};
	const struct karst_ctl_query_device_rsp *dev;
	const struct karst_ctl_query_port_rsp *port;
	const struct karst_ctl_query_gids_rsp *gids;
	struct engine_bed_config cfg = {0};
	struct client *c;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	engine_bed_settle(&bed); /* this thread has the lcores */
	c = client_open(bed.e, &limits);
	cr_assert_eq(CALL(c, QUERY_DEVICE, query_device, .reserved = 0), 0);
	dev = RSP(c, query_device);
	cr_assert_eq(dev->max_qp, 3);
	cr_assert_eq(dev->max_mr_bytes, 5);
	cr_assert_eq(dev->max_mr, 4096);
	cr_assert_eq(dev->nports, 2);
	cr_assert_eq(
		dev->node_guid, 0x000000fffe000001ull, "%llx", (unsigned long long)dev->node_guid);
	cr_assert_eq(CALL(c, QUERY_PORT, query_port, .port = 2), 0);
	port = RSP(c, query_port);
	cr_assert_eq(port->mac[5], 2);
	cr_assert_eq(port->gids, KARST_ENGINE_MAX_ADDRS, "room for all that may come");
	cr_assert_eq(port->max_mtu, 5);
	refused(c, -EINVAL, "port 0", CALL(c, QUERY_PORT, query_port, .port = 0));
	refused(c, -EINVAL, "1 to 2", CALL(c, QUERY_PORT, query_port, .port = 3));
	refused(c, -EINVAL, "port 257", CALL(c, QUERY_PORT, query_port, .port = 257));
	cr_assert_eq(CALL(c, QUERY_GIDS, query_gids, .port = 1), 0);
	gids = RSP(c, query_gids);
	cr_assert_eq(gids->n, 2);
	cr_assert_eq(gids->gid[0].valid, 1);
	cr_assert_eq(gids->gid[0].type, 2);
	cr_assert_eq(gids->gid[0].gid[15], 1);
	cr_assert_eq(gids->gid[1].gid[0], 0xfd);
	cr_assert_eq(gids->gid[2].valid, 0);
	cr_assert_eq(CALL(c, QUERY_GIDS, query_gids, .port = 1, .first = UINT32_MAX), 0);
	cr_assert_eq(RSP(c, query_gids)->n, 0);
	refused(c, -EINVAL, "port 9", CALL(c, QUERY_GIDS, query_gids, .port = 9));
	refused(c, -EINVAL, "chunk 999", CALL(c, GET_CHUNK, get_chunk, .chunk = 999));
	client_close(c);
	engine_bed_down(&bed);
}

/* --- limits --- */

static const struct karst_session_limits tight = {.max_qps = 2,
	.max_cqs = 2,
	.max_srqs = 2,
	.max_mrs = 2,
	.max_mws = 2,
	.max_pds = 2,
	.max_ahs = 2,
	.max_channels = 2,
	.max_xrcds = 2,
	.max_mr_bytes = 8192};

/* What a session has, and what it uses of the engine. */
struct usage {
	struct karst_session_info info;
	unsigned int fds;
	uint64_t objects;
};

static struct usage
usage_of(const struct engine_bed *bed, const struct client *c)
{
	return (struct usage){.info = client_info(bed->e, c),
		.fds = engine_bed_open_fds(),
		.objects = bed->e->objects.used};
}

static bool
same_usage(const struct usage *a, const struct usage *b)
{
	const struct karst_session_info *x = &a->info, *y = &b->info;

	return x->qps == y->qps && x->cqs == y->cqs && x->srqs == y->srqs && x->mrs == y->mrs &&
		x->mws == y->mws && x->pds == y->pds && x->ahs == y->ahs &&
		x->channels == y->channels && x->ring_bytes == y->ring_bytes &&
		x->shared_bytes == y->shared_bytes && a->fds == b->fds && a->objects == b->objects;
}

/* @call is refused with @ret and a reason that contains @word, however often it is made, and
 * nothing changes. */
#define over_the_limit(bed, c, ret, word, call)                  \
	do {                                                     \
		struct usage before_ = usage_of(bed, c), after_; \
		unsigned int i_;                                 \
		for (i_ = 0; i_ < OVER; i_++)                    \
			refused(c, ret, word, call);             \
		after_ = usage_of(bed, c);                       \
		cr_assert(same_usage(&before_, &after_), word);  \
	} while (0)

Test(session_control, limits, .timeout = 1500)
{
	static uint8_t mem[16384];
	struct karst_ctl_ah_attr ah = {.port_num = 1};
	struct engine_bed_config cfg = {0};
	struct client_cq cq[2];
	struct client_qp qp[2];
	uint32_t pd, i;
	struct client *c;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	engine_bed_settle(&bed); /* this thread has the lcores */
	c = client_open(bed.e, &tight);
	pd = client_pd(c);
	client_pd(c);
	over_the_limit(&bed, c, -ENOSPC, "max_pds", CALL(c, ALLOC_PD, alloc_pd, .reserved = 0));
	for (i = 0; i < 2; i++) {
		cr_assert_eq(CALL(c, CREATE_CHANNEL, create_channel, .reserved = 0), 0);
		close(c->fds[0]);
	}
	over_the_limit(&bed, c, -ENOSPC, "max_channels",
		CALL(c, CREATE_CHANNEL, create_channel, .reserved = 0));
	for (i = 0; i < 2; i++)
		cr_assert_eq(CALL(c, OPEN_XRCD, open_xrcd, .flags = 0), 0, "%s", c->why);
	over_the_limit(&bed, c, -ENOSPC, "max_xrcds", CALL(c, OPEN_XRCD, open_xrcd, .flags = 0));
	for (i = 0; i < 2; i++)
		client_cq(c, 16, 0, 0, &cq[i]);
	over_the_limit(&bed, c, -ENOSPC, "max_cqs", CALL(c, CREATE_CQ, create_cq, .entries = 16));
	for (i = 0; i < 2; i++)
		cr_assert_eq(CALL(c, CREATE_SRQ, create_srq, .pd = pd, .max_wr = 4), 0);
	over_the_limit(&bed, c, -ENOSPC, "max_srqs",
		CALL(c, CREATE_SRQ, create_srq, .pd = pd, .max_wr = 4));
	for (i = 0; i < 2; i++)
		client_qp(c, KARST_QPT_RC, pd, &cq[0], 0, 0, &qp[i]);
	over_the_limit(&bed, c, -ENOSPC, "max_qps",
		CALL(c, CREATE_QP, create_qp, .type = KARST_QPT_RC, .pd = pd,
			.send_cq = cq[0].handle, .recv_cq = cq[0].handle, .lcore = UINT32_MAX));
	over_the_limit(&bed, c, -ENOMEM, "max_mr_bytes",
		CALL(c, REG_MR, reg_mr, .pd = pd, .addr = (uintptr_t)mem, .len = 8193));
	for (i = 0; i < 2; i++)
		client_mr(c, pd, mem, 4096);
	over_the_limit(&bed, c, -ENOMEM, "max_mr_bytes",
		CALL(c, REG_MR, reg_mr, .pd = pd, .addr = (uintptr_t)mem, .len = 1));
	for (i = 0; i < 2; i++)
		cr_assert_eq(CALL(c, ALLOC_MW, alloc_mw, .pd = pd, .type = 2), 0);
	over_the_limit(
		&bed, c, -ENOSPC, "max_mws", CALL(c, ALLOC_MW, alloc_mw, .pd = pd, .type = 1));
	memcpy(ah.dgid, (uint8_t[16]){[10] = 0xff, 0xff, 10, 0, 0, 2}, 16);
	for (i = 0; i < 2; i++)
		cr_assert_eq(CALL(c, CREATE_AH, create_ah, .pd = pd, .attr = ah), 0, "%s", c->why);
	over_the_limit(
		&bed, c, -ENOSPC, "max_ahs", CALL(c, CREATE_AH, create_ah, .pd = pd, .attr = ah));
	client_close(c);
	engine_bed_down(&bed);
}

/* The limit of regions, and that what was freed can be allocated again. */
Test(session_control, limit_of_regions, .timeout = 1500)
{
	struct karst_session_limits limits = {.max_mrs = 2};
	struct engine_bed_config cfg = {0};
	static uint8_t mem[4096];
	uint32_t pd, key[2], i;
	struct client *c;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	engine_bed_settle(&bed); /* this thread has the lcores */
	c = client_open(bed.e, &limits);
	pd = client_pd(c);
	for (i = 0; i < 2; i++)
		key[i] = client_mr(c, pd, mem, sizeof(mem));
	over_the_limit(&bed, c, -ENOSPC, "max_mrs",
		CALL(c, REG_MR, reg_mr, .pd = pd, .addr = (uintptr_t)mem, .len = 1));
	for (i = 0; i < 1000; i++) {
		cr_assert_eq(CALL(c, DEREG_MR, dereg_mr, .key = key[i % 2]), 0, "%s", c->why);
		refused(c, -EINVAL, "no such region",
			CALL(c, DEREG_MR, dereg_mr, .key = key[i % 2]));
		key[i % 2] = client_mr(c, pd, mem, sizeof(mem));
	}
	client_close(c);
	engine_bed_down(&bed);
}

/* The engine's own limits, which other programs may have used up. */
Test(session_control, limits_of_the_engine, .timeout = 1500)
{
	struct engine_bed_config cfg = {
		.engine = {
			.max_qps = 2, .max_keys = 2, .max_pds = 3, .max_ahs = 2, .max_owners = 2}};
	struct karst_ctl_ah_attr ah = {.port_num = 1};
	struct karst_session_init init = {.pidfd = -1};
	struct karst_session *s;
	struct client *c, *d;
	struct client_cq cq;
	struct client_qp qp;
	uint32_t pd, i;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	engine_bed_settle(&bed); /* this thread has the lcores */
	c = client_open(bed.e, NULL);
	d = client_open(bed.e, NULL);
	cr_assert_eq(karst_session_create(bed.e, &init, &s), -ENOSPC);
	client_pd(d);
	pd = client_pd(c);
	over_the_limit(&bed, c, -ENOSPC, "limit of 3", CALL(c, ALLOC_PD, alloc_pd, .reserved = 0));
	client_cq(c, 16, 0, 0, &cq);
	for (i = 0; i < 2; i++)
		client_qp(c, KARST_QPT_UC, pd, &cq, 0, 0, &qp);
	client_cq(d, 16, 0, 0, &cq);
	over_the_limit(&bed, c, -ENOSPC, "max_qps",
		CALL(c, CREATE_QP, create_qp, .type = KARST_QPT_UC, .pd = pd, .send_cq = cq.handle,
			.recv_cq = cq.handle, .lcore = UINT32_MAX));
	for (i = 0; i < 2; i++)
		cr_assert_eq(CALL(c, ALLOC_MW, alloc_mw, .pd = pd, .type = 2), 0);
	client_close(d);
	d = client_open(bed.e, NULL);
	i = client_pd(d);
	over_the_limit(&bed, d, -ENOSPC, "keys", CALL(d, ALLOC_MW, alloc_mw, .pd = i, .type = 2));
	over_the_limit(&bed, d, -ENOSPC, "keys", CALL(d, REG_MR, reg_mr, .pd = i, .len = 1));
	memcpy(ah.dgid, (uint8_t[16]){[10] = 0xff, 0xff, 10, 0, 0, 2}, 16);
	for (i = 0; i < 2; i++)
		cr_assert_eq(CALL(c, CREATE_AH, create_ah, .pd = pd, .attr = ah), 0, "%s", c->why);
	client_close(c);
	client_close(d);
	engine_bed_down(&bed);
}

/* Rings of this program alone are counted, and freed. */
Test(session_control, ring_bytes, .timeout = 1500)
{
	struct karst_session_limits limits = {.max_ring_bytes = 16 << 20};
	struct engine_bed_config cfg = {0};
	struct client_cq cq[512];
	struct client *c;
	unsigned int i, n;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	engine_bed_settle(&bed); /* this thread has the lcores */
	c = client_open(bed.e, &limits);
	for (n = 0; n < 512; n++) {
		if (CALL(c, CREATE_CQ, create_cq, .entries = 4096) != 0)
			break;
		cq[n].handle = RSP(c, create_cq)->cq;
	}
	cr_assert_lt(n, 512);
	cr_assert_gt(n, 64);
	refused(c, -ENOMEM, "max_ring_bytes", CALL(c, CREATE_CQ, create_cq, .entries = 4096));
	refused(c, -EINVAL, "max_ring_bytes",
		CALL(c, CREATE_CQ, create_cq, .entries = KARST_CQ_MAX_ENTRIES));
	for (i = 0; i < n; i++)
		cr_assert_eq(CALL(c, DESTROY_CQ, destroy_cq, .cq = cq[i].handle), 0);
	for (i = 0; i < n; i++)
		cr_assert_eq(CALL(c, CREATE_CQ, create_cq, .entries = 4096), 0, "%s", c->why);
	client_close(c);
	engine_bed_down(&bed);
}

/* --- numbers that are not this session's --- */

/* Every kind of handle and key, tried where it does not belong. */
static void
try_others(struct client *c, uint32_t pd, uint32_t mr, uint32_t mw, uint32_t ah, uint32_t ch,
	uint32_t cq, uint32_t srq, uint32_t qp)
{
	uint32_t mine = client_pd(c);
	struct client_cq q;

	client_cq(c, 16, 0, 0, &q);
	refused(c, -EINVAL, "pd", CALL(c, FREE_PD, free_pd, .pd = pd));
	refused(c, -EINVAL, "pd", CALL(c, REG_MR, reg_mr, .pd = pd, .len = 1));
	refused(c, -EINVAL, "pd", CALL(c, ALLOC_MW, alloc_mw, .pd = pd, .type = 1));
	refused(c, -EINVAL, "pd", CALL(c, CREATE_AH, create_ah, .pd = pd));
	refused(c, -EINVAL, "pd", CALL(c, CREATE_SRQ, create_srq, .pd = pd, .max_wr = 1));
	refused(c, -EINVAL, "pd",
		CALL(c, CREATE_QP, create_qp, .type = 2, .pd = pd, .send_cq = q.handle,
			.recv_cq = q.handle));
	refused(c, -EINVAL, "key", CALL(c, DEREG_MR, dereg_mr, .key = mr));
	refused(c, -EINVAL, "key",
		CALL(c, REREG_MR, rereg_mr, .key = mr, .what = KARST_REREG_ACCESS));
	refused(c, -EINVAL, "key", CALL(c, FREE_MW, free_mw, .key = mw));
	refused(c, -EINVAL, "key", CALL(c, FREE_MW, free_mw, .key = mr));
	refused(c, -EINVAL, "key", CALL(c, DEREG_MR, dereg_mr, .key = mw));
	refused(c, -EINVAL, "ah", CALL(c, DESTROY_AH, destroy_ah, .ah = ah));
	refused(c, -EINVAL, "channel", CALL(c, DESTROY_CHANNEL, destroy_channel, .channel = ch));
	if (ch != 0)
		refused(c, -EINVAL, "channel",
			CALL(c, CREATE_CQ, create_cq, .entries = 1, .channel = ch));
	refused(c, -EINVAL, "cq", CALL(c, DESTROY_CQ, destroy_cq, .cq = cq));
	refused(c, -EINVAL, "cq", CALL(c, MODIFY_CQ, modify_cq, .cq = cq));
	refused(c, -EINVAL, "cq", CALL(c, RAISE_CQ, raise_cq, .cq = cq));
	refused(c, -EINVAL, "send_cq",
		CALL(c, CREATE_QP, create_qp, .type = 2, .pd = mine, .send_cq = cq,
			.recv_cq = q.handle));
	refused(c, -EINVAL, "recv_cq",
		CALL(c, CREATE_QP, create_qp, .type = 2, .pd = mine, .send_cq = q.handle,
			.recv_cq = cq));
	if (srq != 0)
		refused(c, -EINVAL, "srq",
			CALL(c, CREATE_QP, create_qp, .type = 2, .pd = mine, .send_cq = q.handle,
				.recv_cq = q.handle, .srq = srq));
	refused(c, -EINVAL, "srq", CALL(c, MODIFY_SRQ, modify_srq, .srq = srq));
	refused(c, -EINVAL, "srq", CALL(c, QUERY_SRQ, query_srq, .srq = srq));
	refused(c, -EINVAL, "srq", CALL(c, DESTROY_SRQ, destroy_srq, .srq = srq));
	refused(c, -EINVAL, "qp", CALL(c, MODIFY_QP, modify_qp, .qp = qp, .mask = 1));
	refused(c, -EINVAL, "qp", CALL(c, QUERY_QP, query_qp, .qp = qp));
	refused(c, -EINVAL, "qp", CALL(c, DESTROY_QP, destroy_qp, .qp = qp));
	cr_assert_eq(CALL(c, DESTROY_CQ, destroy_cq, .cq = q.handle), 0);
	cr_assert_eq(CALL(c, FREE_PD, free_pd, .pd = mine), 0);
}

Test(session_control, numbers_of_others, .timeout = 1500)
{
	struct karst_ctl_ah_attr ah = {.port_num = 1};
	uint32_t pd, mr, mw, ahn, ch, srq, i;
	struct engine_bed_config cfg = {0};
	static uint8_t mem[4096];
	struct client *c, *d;
	struct client_cq cq;
	struct client_qp qp;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	engine_bed_settle(&bed); /* this thread has the lcores */
	c = client_open(bed.e, NULL);
	d = client_open(bed.e, NULL);
	/* so that the other session has more */
	for (i = 0; i < 3; i++)
		pd = client_pd(d);
	mr = client_mr(d, pd, mem, sizeof(mem));
	cr_assert_eq(CALL(d, ALLOC_MW, alloc_mw, .pd = pd, .type = 2), 0);
	mw = RSP(d, alloc_mw)->key;
	memcpy(ah.dgid, (uint8_t[16]){[10] = 0xff, 0xff, 10, 0, 0, 2}, 16);
	cr_assert_eq(CALL(d, CREATE_AH, create_ah, .pd = pd, .attr = ah), 0, "%s", d->why);
	ahn = RSP(d, create_ah)->ah;
	cr_assert_eq(CALL(d, CREATE_CHANNEL, create_channel, .reserved = 0), 0);
	close(d->fds[0]);
	ch = RSP(d, create_channel)->channel;
	for (i = 0; i < 3; i++)
		client_cq(d, 16, ch, 0, &cq);
	cr_assert_eq(CALL(d, CREATE_SRQ, create_srq, .pd = pd, .max_wr = 4), 0);
	srq = RSP(d, create_srq)->srq;
	client_qp(d, KARST_QPT_RC, pd, &cq, 0, 0, &qp);
	try_others(c, pd, mr, mw, ahn, ch, cq.handle, srq, qp.handle);
	try_others(c, 0, 0, 0, 0, 0, 0, 0, 0);
	try_others(c, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX,
		UINT32_MAX, UINT32_MAX);
	/* a region's key with another low byte is invalid, a window's is valid */
	refused(d, -EINVAL, "key", CALL(d, DEREG_MR, dereg_mr, .key = mr ^ 1));
	cr_assert_eq(CALL(d, FREE_MW, free_mw, .key = mw ^ 0x55), 0, "%s", d->why);
	/* the other session's objects are as they were */
	cr_assert_eq(CALL(d, DESTROY_QP, destroy_qp, .qp = qp.handle), 0);
	cr_assert_eq(CALL(d, DEREG_MR, dereg_mr, .key = mr), 0);
	/* and a destroyed object belongs to no session */
	try_others(d, 0, mr, mw, 0, 0, 0, 0, qp.handle);
	client_close(c);
	client_close(d);
	engine_bed_down(&bed);
}

/* --- order of destruction --- */

Test(session_control, wrong_order)
{
	struct karst_ctl_ah_attr ah = {.port_num = 1};
	struct engine_bed_config cfg = {0};
	struct client *c;
	struct client_cq cq;
	struct client_qp qp;
	uint32_t pd, ch, srq, ahn;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	engine_bed_settle(&bed); /* this thread has the lcores */
	c = client_open(bed.e, NULL);
	pd = client_pd(c);
	cr_assert_eq(CALL(c, CREATE_CHANNEL, create_channel, .reserved = 0), 0);
	close(c->fds[0]);
	ch = RSP(c, create_channel)->channel;
	client_cq(c, 16, ch, 0, &cq);
	refused(c, -EBUSY, "1 completion queues",
		CALL(c, DESTROY_CHANNEL, destroy_channel, .channel = ch));
	cr_assert_eq(CALL(c, CREATE_SRQ, create_srq, .pd = pd, .max_wr = 4), 0);
	srq = RSP(c, create_srq)->srq;
	client_qp(c, KARST_QPT_RC, pd, &cq, srq, 0, &qp);
	refused(c, -EBUSY, "queue pairs use it", CALL(c, DESTROY_CQ, destroy_cq, .cq = cq.handle));
	refused(c, -EBUSY, "queue pairs use it", CALL(c, DESTROY_SRQ, destroy_srq, .srq = srq));
	refused(c, -EBUSY, "left", CALL(c, FREE_PD, free_pd, .pd = pd));
	cr_assert_eq(CALL(c, DESTROY_QP, destroy_qp, .qp = qp.handle), 0);
	refused(c, -EBUSY, "left", CALL(c, FREE_PD, free_pd, .pd = pd));
	cr_assert_eq(CALL(c, DESTROY_SRQ, destroy_srq, .srq = srq), 0);
	memcpy(ah.dgid, (uint8_t[16]){[10] = 0xff, 0xff, 10, 0, 0, 2}, 16);
	cr_assert_eq(CALL(c, CREATE_AH, create_ah, .pd = pd, .attr = ah), 0, "%s", c->why);
	ahn = RSP(c, create_ah)->ah;
	refused(c, -EBUSY, "left", CALL(c, FREE_PD, free_pd, .pd = pd));
	cr_assert_eq(CALL(c, DESTROY_AH, destroy_ah, .ah = ahn), 0);
	cr_assert_eq(CALL(c, FREE_PD, free_pd, .pd = pd), 0);
	cr_assert_eq(CALL(c, DESTROY_CQ, destroy_cq, .cq = cq.handle), 0);
	cr_assert_eq(CALL(c, DESTROY_CHANNEL, destroy_channel, .channel = ch), 0);
	client_close(c);
	engine_bed_down(&bed);
}

/* --- arbitrary requests --- */

/* Each operation with a body of every possible size. */
Test(session_control, every_size, .timeout = 1500)
{
	static const uint8_t zeros[KARST_CTL_MAX];
	struct engine_bed_config cfg = {0};
	struct client *c;
	struct engine_bed bed;
	uint32_t op;
	size_t n;

	engine_bed_up(&bed, &cfg);
	engine_bed_settle(&bed); /* this thread has the lcores */
	c = client_open(bed.e, &tight);
	for (op = 0; op < 60; op++) {
		const struct karst_ctl_op_info *info = karst_ctl_op_info(op);

		for (n = 0; n <= sizeof(zeros) - sizeof(struct karst_ctl_hdr);
			n += n < 4096 ? 1 : 997) {
			int ret = client_call(c, op, zeros, n);

			karst_ctl_close_fds(c->fds, c->nfds);
			if (info == NULL)
				cr_assert_eq(ret, -EOPNOTSUPP);
			else if (n < info->req_bytes)
				cr_assert_eq(ret, -EPROTO, "%s %zu", info->name, n);
			else
				cr_assert_neq(ret, -EOPNOTSUPP);
		}
	}
	client_close(c);
	engine_bed_down(&bed);
}

/* A byte of a request: usually a value that could be right. */
static uint8_t
wild_byte(unsigned int *seed, uint32_t i)
{
	unsigned int r = (unsigned int)rand_r(seed) % 16;

	if (i % 4 == 0 && r < 9)
		return (uint8_t)(r % 6);
	if (i % 4 == 2 && r < 9)
		return r < 4 ? 0x40 : 0; /* of handles of the first generation */
	return r < 15 ? 0 : (uint8_t)rand_r(seed);
}

/* Random requests: nothing breaks, nothing is left behind, and another session does not notice. */
Test(session_control, noise, .timeout = 1500)
{
	static uint8_t body[1024];
	struct engine_bed_config cfg = {.engine.lcores = 2};
	struct client *c, *other;
	unsigned int seed = 4711, i, done = 0;
	uint32_t pd, n, j;
	uint64_t objects;
	struct engine_bed bed;

	engine_bed_up(&bed, &cfg);
	engine_bed_settle(&bed); /* this thread has the lcores */
	other = client_open(bed.e, NULL);
	pd = client_pd(other);
	objects = bed.e->objects.used;
	for (i = 0; i < 20; i++) {
		unsigned int calls;

		c = client_open(bed.e, &tight);
		for (calls = 0; calls < 5000; calls++) {
			uint32_t op = 1 + (uint32_t)rand_r(&seed) % 51;
			const struct karst_ctl_op_info *info = karst_ctl_op_info(op);

			/* skip requests that would wait for an answer from the wire */
			if (info == NULL || op == KARST_CTL_CREATE_AH || op == KARST_CTL_REG_MR ||
				op == KARST_CTL_REREG_MR)
				continue;
			n = info->req_bytes;
			for (j = 0; j < n; j++)
				body[j] = wild_byte(&seed, j);
			done += client_call(c, op, body, n) == 0;
			karst_ctl_close_fds(c->fds, c->nfds);
		}
		client_close(c);
		cr_assert_eq(bed.e->objects.used, objects, "round %u", i);
	}
	cr_log_info("%u of 100000 done", done);
	cr_assert_gt(done, 1000);
	cr_assert_eq(CALL(other, FREE_PD, free_pd, .pd = pd), 0);
	client_close(other);
	engine_bed_down(&bed);
}

/* --- locks --- */

struct lister {
	struct karst_engine *e;
	_Atomic pid_t tid;
};

static void *
list_sessions(void *arg)
{
	struct lister *l = arg;
	struct karst_session_info info;

	atomic_store(&l->tid, gettid());
	return (void *)(uintptr_t)karst_session_list(l->e, &info, 1);
}

/* Waits until thread @tid sleeps. */
static void
until_asleep(const _Atomic pid_t *tid)
{
	char path[64], text[256], *state = NULL;
	FILE *f;

	while (state == NULL || state[2] != 'S') {
		sched_yield();
		if (atomic_load(tid) == 0)
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)atomic_load(tid));
		f = fopen(path, "r");
		cr_assert_not_null(f);
		state = fgets(text, sizeof(text), f) != NULL ? strrchr(text, ')') : NULL;
		fclose(f);
	}
}

/* The function that tells programs of changed addresses takes the lock of sessions first, too: a
 * thread that waits for that lock must not have the lock of connection management. */
Test(session_control, list_waits_without_other_locks)
{
	const struct engine_bed_config cfg = {.engine = {.lcores = 1}};
	struct lister l = {.tid = 0};
	struct engine_bed bed;
	pthread_t thread;
	void *n;

	engine_bed_up(&bed, &cfg);
	l.e = bed.e;
	pthread_mutex_lock(&bed.e->session_lock);
	cr_assert_eq(pthread_create(&thread, NULL, list_sessions, &l), 0);
	until_asleep(&l.tid);
	eng_cm_leave(eng_cm_enter(bed.e));
	pthread_mutex_unlock(&bed.e->session_lock);
	cr_assert_eq(pthread_join(thread, &n), 0);
	cr_assert_eq((uintptr_t)n, 0);
	engine_bed_down(&bed);
}

/* --- paths that are sought --- */

#define SOUGHT 2000u
#define SEEKS  64u /* addresses that one program may look for at a time */

static int
seek(struct client *c, uint32_t pd, bool no_wait, uint32_t ip4)
{
	struct karst_ctl_create_ah_req req = {
		.pd = pd, .no_wait = no_wait, .attr = {.port_num = 1}};
	struct karst_engine_addr addr = karst_engine_addr_ip4(ip4);

	memcpy(req.attr.dgid, addr.ip, sizeof(req.attr.dgid));
	return client_call(c, KARST_CTL_CREATE_AH, &req, sizeof(req));
}

static uint64_t
asked(const struct engine_bed *bed)
{
	struct karst_engine_lcore_stats st;

	cr_assert_eq(karst_engine_lcore_stats(bed->e, 0, &st), 0);
	return st.neigh_tx;
}

/* A program that does not wait for its paths looks for a limited number of addresses at a time, so
 * that it displaces no neighbours of others. */
Test(session_control, paths_that_are_sought_at_a_time)
{
	struct engine_bed_config cfg = {0};
	struct engine_bed bed;
	struct client *c, *d;
	uint32_t pd, pd_d, i;
	uint64_t before;

	engine_bed_up(&bed, &cfg);
	engine_bed_settle(&bed); /* this thread has the lcores */
	c = client_open(bed.e, &(struct karst_session_limits){.share = 75});
	d = client_open(bed.e, NULL);
	pd = client_pd(c);
	pd_d = client_pd(d);
	cr_assert_eq(seek(d, pd_d, false, 0x0a000002), 0, "%s", d->why);
	before = asked(&bed);
	for (i = 0; i < SOUGHT; i++) {
		cr_assert_eq(seek(c, pd, true, 0x0a010000 + i), -EAGAIN, "%s", c->why);
		cr_assert_eq(strstr(c->why, "no more at a time") != NULL, i >= SEEKS, "%u: %s", i,
			c->why);
	}
	cr_assert_leq(asked(&bed) - before, SEEKS, "%llu requests",
		(unsigned long long)(asked(&bed) - before));
	/* what is known is found in any case, and others may look */
	before = asked(&bed);
	cr_assert_eq(seek(d, pd_d, true, 0x0a000002), 0, "%s", d->why);
	cr_assert_eq(seek(c, pd, true, 0x0a000002), 0, "%s", c->why);
	cr_assert_eq(asked(&bed), before);
	cr_assert_eq(seek(d, pd_d, true, 0x0a020000), -EAGAIN);
	cr_assert_eq(asked(&bed), before + 1);
	/* an address that is not found counts only so long */
	usleep(3300000);
	cr_assert_eq(seek(c, pd, true, 0x0a020001), -EAGAIN);
	cr_assert_null(strstr(c->why, "no more at a time"), "%s", c->why);
	cr_assert_eq(asked(&bed), before + 2);
	cr_assert_eq(bed.e->shares.used[ENG_SHARE_PATHS], 1);
	client_close(c);
	client_close(d);
	cr_assert_eq(bed.e->shares.used[ENG_SHARE_PATHS], 0);
	cr_assert_eq(bed.e->nseeks, 0);
	engine_bed_down(&bed);
}
