/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "engine_bed.h"

#include <dirent.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <rte_eal.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>

#include "../idle.h"

#define PATIENCE_NS 120000000000ull
/* A quarter of the default: creating a larger pool takes longer than most cases. */
#define BED_MBUFS_EACH 512u

static void
eal_up(bool telemetry)
{
	char prefix[48];
	char *argv[] = {(char *)"bed", (char *)"--no-huge", (char *)"--no-shconf",
		(char *)"--no-pci", (char *)"-m", (char *)"64", (char *)"--log-level=4",
		(char *)"--lcores", (char *)"(0-2)@(0-1)", (char *)"--no-telemetry"};
	int argc = KARST_DIM(argv);

	if (telemetry) {
		/* a socket for this test alone */
		snprintf(prefix, sizeof(prefix), "--file-prefix=karst_test_%d", (int)getpid());
		argv[argc - 1] = prefix;
	}
	cr_assert_geq(rte_eal_init(argc, argv), 0, "EAL");
}

static void
make_ports(struct engine_bed *bed, unsigned int queues, unsigned int slots)
{
	unsigned int side, q;
	char name[32];

	for (side = 0; side < 2; side++) {
		for (q = 0; q < queues; q++) {
			snprintf(name, sizeof(name), "wire%u_%u", side, q);
			bed->ring[side][q] = rte_ring_create(name, slots, 0, RING_F_EXACT_SZ);
			cr_assert_not_null(bed->ring[side][q]);
		}
	}
	for (side = 0; side < 2; side++) {
		int id;

		snprintf(name, sizeof(name), "side%u", side);
		id = rte_eth_from_rings(
			name, bed->ring[1 - side], queues, bed->ring[side], queues, 0);
		cr_assert_geq(id, 0);
		bed->ethdev[side] = (uint16_t)id;
	}
}

static struct karst_engine_addr
address(int side, bool ip6)
{
	struct karst_engine_addr a = karst_engine_addr_ip4(0x0a000001 + (uint32_t)side);

	if (ip6) {
		memset(a.ip, 0, sizeof(a.ip));
		a.ip[0] = 0xfd;
		a.ip[15] = (uint8_t)(side + 1);
	}
	return a;
}

struct engine_bed *
engine_bed_up(struct engine_bed *bed, const struct engine_bed_config *cfg)
{
	const struct karst_engine_cq_init cq = {.entries = 1024};
	struct karst_engine_config engine = cfg->engine;
	unsigned int queues = cfg->queues;
	int side;

	memset(bed, 0, sizeof(*bed));
	eal_up(cfg->telemetry);
	if (engine.mbufs == 0)
		engine.mbufs = BED_MBUFS_EACH * (RTE_MAX(engine.lcores, 1u) + 1);
	cr_assert_eq(karst_engine_create(&engine, &bed->e), 0);
	if (queues == 0)
		queues = cfg->mask[0] != 0 ? (unsigned int)__builtin_popcountll(cfg->mask[0])
					   : karst_engine_config(bed->e)->lcores;
	make_ports(bed, queues, cfg->slots != 0 ? cfg->slots : 1024);
	for (side = 0; side < 2; side++) {
		struct karst_engine_addr addr[2] = {
			address(side, cfg->ip6), address(side, !cfg->ip6)};
		struct karst_engine_port_config port = {
			.ethdev = bed->ethdev[side],
			.lcore_mask = cfg->mask[side],
			.mac = {2, 0, 0, 0, 0, (uint8_t)(side + 1)},
			.mtu = side != 0 && cfg->mtu_b != 0 ? cfg->mtu_b : cfg->mtu,
			.vlan = cfg->vlan,
			.exception_tap = side == 0 ? cfg->tap : NULL,
			.num_addrs = 2,
			.addrs = addr,
		};

		cr_assert_eq(karst_engine_port_add(bed->e, &port, &bed->port[side]), 0);
	}
	bed->timeout = 17; /* half a second, for a busy machine */
	bed->mine = (1ull << karst_engine_config(bed->e)->lcores) - 1;
	cr_assert_eq(karst_engine_pd_alloc(bed->e, &bed->pd), 0);
	cr_assert_eq(karst_engine_cq_create(bed->e, &cq, &bed->cq), 0);
	return bed;
}

void
engine_bed_down(struct engine_bed *bed)
{
	engine_bed_release(bed);
	cr_assert_eq(karst_engine_destroy(bed->e), 0);
}

struct karst_engine_qp *
engine_bed_qp(struct engine_bed *bed, enum karst_qp_type type, uint32_t lcore)
{
	struct karst_engine_qp_init init = {
		.type = type,
		.lcore = lcore,
		.pd = bed->pd,
		.send_cq = bed->cq,
		.recv_cq = bed->cq,
		.max_send_wr = 64,
		.max_recv_wr = 64,
		.max_dest_rd_atomic = 16,
	};
	struct karst_engine_qp *qp = NULL;

	cr_assert_eq(karst_engine_qp_create(bed->e, &init, &qp), 0);
	return qp;
}

unsigned int
engine_bed_attr(const struct engine_bed *bed, enum karst_qp_type type, int side, uint32_t peer,
	enum karst_qp_state to, struct karst_core_qp_attr *attr)
{
	struct karst_engine_port_info dst;
	unsigned int mask = KARST_QP_STATE;

	memset(attr, 0, sizeof(*attr));
	attr->qp_state = to;
	if (to == KARST_QPS_INIT) {
		attr->port_num = (uint8_t)(bed->port[side] + 1);
		attr->access_flags = KARST_ACCESS_REMOTE;
		attr->qkey = 0x1234;
		mask |= KARST_QP_PKEY_INDEX | KARST_QP_PORT;
		mask |= type == KARST_QPT_UD ? KARST_QP_QKEY : KARST_QP_ACCESS_FLAGS;
	} else if (to == KARST_QPS_RTR && type != KARST_QPT_UD) {
		cr_assert_eq(karst_engine_port_info(bed->e, bed->port[1 - side], &dst), 0);
		cr_assert_eq(karst_engine_path_init(bed->e, bed->port[side], 0, dst.mac,
				     dst.addrs[0].ip, &attr->path),
			0);
		attr->path_mtu = 5;
		attr->dest_qpn = peer;
		attr->rq_psn = side != 0 ? 0xfffff0 : 7; /* the PSNs of what the peer sends */
		mask |= KARST_QP_AV | KARST_QP_PATH_MTU | KARST_QP_DEST_QPN | KARST_QP_RQ_PSN;
		if (type == KARST_QPT_RC) {
			attr->max_dest_rd_atomic = 16;
			attr->min_rnr_timer = 1;
			mask |= KARST_QP_MAX_DEST_RD_ATOMIC | KARST_QP_MIN_RNR_TIMER;
		}
	} else if (to == KARST_QPS_RTS) {
		attr->sq_psn = side != 0 ? 7 : 0xfffff0;
		mask |= KARST_QP_SQ_PSN;
		if (type == KARST_QPT_RC) {
			attr->timeout = bed->timeout;
			attr->retry_cnt = 7;
			attr->rnr_retry = 7;
			attr->max_rd_atomic = 16;
			mask |= KARST_QP_TIMEOUT | KARST_QP_RETRY_CNT | KARST_QP_RNR_RETRY |
				KARST_QP_MAX_QP_RD_ATOMIC;
		}
	}
	return mask;
}

void
engine_bed_connect(struct engine_bed *bed, struct karst_engine_qp *a, struct karst_engine_qp *b)
{
	struct karst_engine_qp *qp[2] = {a, b};
	enum karst_qp_state to;
	struct karst_core_qp_attr attr;
	int side;

	for (to = KARST_QPS_INIT; to <= KARST_QPS_RTS; to++) {
		for (side = 0; side < 2; side++) {
			unsigned int mask = engine_bed_attr(
				bed, KARST_QPT_RC, side, qp[1 - side]->num, to, &attr);

			cr_assert_eq(karst_engine_qp_modify(bed->e, qp[side], &attr, mask), 0,
				"side %d to state %d", side, to);
		}
	}
}

uint32_t
engine_bed_mr(struct engine_bed *bed, void *mem, size_t len)
{
	uint32_t key;

	cr_assert_eq(karst_engine_mr_reg(bed->e, bed->pd, mem, (uintptr_t)mem, len,
			     KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE, &key),
		0);
	return key;
}

static unsigned int
poll_all(struct karst_engine *e, uint64_t lcores)
{
	unsigned int n = 0;

	for (; lcores != 0; lcores &= lcores - 1)
		n += karst_engine_poll(e, (uint32_t)__builtin_ctzll(lcores));
	return n;
}

static void
release_all(struct karst_engine *e, uint64_t lcores)
{
	for (; lcores != 0; lcores &= lcores - 1)
		karst_engine_release(e, (uint32_t)__builtin_ctzll(lcores));
}

static void *
poller(void *arg)
{
	struct engine_bed_poller *p = arg;
	unsigned int idle = 0;

	while (!atomic_load(&p->stop)) {
		idle_after(&idle, poll_all(p->bed->e, p->lcores) != 0);
		atomic_store(&p->running, true);
	}
	release_all(p->bed->e, p->lcores);
	return NULL;
}

void
engine_bed_poller_start(struct engine_bed_poller *p, struct engine_bed *bed, uint64_t lcores)
{
	release_all(bed->e, lcores);
	bed->mine &= ~lcores;
	p->bed = bed;
	p->lcores = lcores;
	atomic_init(&p->running, false);
	atomic_init(&p->stop, false);
	cr_assert_eq(pthread_create(&p->thread, NULL, poller, p), 0);
	while (!atomic_load(&p->running))
		sched_yield();
}

void
engine_bed_poller_stop(struct engine_bed_poller *p)
{
	atomic_store(&p->stop, true);
	pthread_join(p->thread, NULL);
	p->bed->mine |= p->lcores;
}

bool
engine_bed_wait(struct engine_bed *bed, struct karst_cqe *cqe)
{
	uint64_t until = karst_engine_now_ns(bed->e) + PATIENCE_NS;
	unsigned int idle = 0;

	while (karst_engine_now_ns(bed->e) < until) {
		if (karst_engine_cq_poll(bed->cq, cqe, 1) == 1)
			return true;
		idle_after(&idle, poll_all(bed->e, bed->mine) != 0);
	}
	return false;
}

void
engine_bed_settle(struct engine_bed *bed)
{
	unsigned int idle = 0;

	while (idle < 100)
		idle = poll_all(bed->e, bed->mine) == 0 ? idle + 1 : 0;
}

void
engine_bed_release(struct engine_bed *bed)
{
	release_all(bed->e, bed->mine);
}

void
engine_bed_post(struct karst_engine_qp *qp, enum karst_wr_opcode op, uint64_t wr_id, void *local,
	uint32_t len, uint32_t lkey, void *remote, uint32_t rkey)
{
	struct karst_send_wqe *w;

	cr_assert_geq(karst_engine_send_room(qp, 1), 1);
	w = karst_engine_send_slot(qp, 0);
	memset(w, 0, sizeof(*w));
	w->wr_id = wr_id;
	w->opcode = (uint8_t)op;
	w->flags = KARST_SEND_SIGNALED;
	w->num = 1;
	w->rdma.remote_addr = (uintptr_t)remote;
	w->rdma.rkey = rkey;
	w->sge[0] = (struct karst_sge){.addr = (uintptr_t)local, .len = len, .lkey = lkey};
	cr_assert_eq(karst_engine_post_send(qp, 1), 0);
}

void
engine_bed_post_recv(
	struct karst_engine_qp *qp, uint64_t wr_id, void *buf, uint32_t len, uint32_t lkey)
{
	struct karst_recv_wqe *w;

	cr_assert_geq(karst_wq_free(&qp->rq, 1), 1);
	w = karst_engine_recv_slot(qp, 0);
	memset(w, 0, sizeof(*w));
	w->wr_id = wr_id;
	w->num_sge = 1;
	w->sge[0] = (struct karst_sge){.addr = (uintptr_t)buf, .len = len, .lkey = lkey};
	cr_assert_eq(karst_engine_post_recv(qp, 1), 0);
}

void
engine_bed_fill(void *buf, size_t len, unsigned int seed)
{
	uint8_t *p = buf;
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = (uint8_t)(i * 7 + (i >> 8) * 13 + seed * 101);
}

bool
engine_bed_is_dumped(const void *p)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	char line[512] = "";
	uintptr_t from, to;
	bool in = false;

	cr_assert_not_null(f);
	while (fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
			in = from <= (uintptr_t)p && (uintptr_t)p < to;
		if (in && strncmp(line, "VmFlags:", 8) == 0)
			break;
	}
	fclose(f);
	cr_assert(in, "not mapped");
	return strstr(line, " dd") == NULL;
}

unsigned int
engine_bed_open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned int n = 0;

	cr_assert_not_null(d);
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

unsigned int
engine_bed_mappings(const char *name)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned int n = 0;
	char line[512], of[64];

	cr_assert_not_null(f);
	snprintf(of, sizeof(of), "/memfd:%s", name);
	while (fgets(line, sizeof(line), f) != NULL)
		n += strstr(line, of) != NULL;
	fclose(f);
	return n;
}
