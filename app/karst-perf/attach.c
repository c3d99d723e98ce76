/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "attach.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_cycles.h>

#include "link.h"

#define RETRIES     7
#define RNR_FOREVER 7
#define RNR_CODE    1 /* 0.01 ms (Q7) */
#define HOP_LIMIT   64
#define MAX_GIDS    256

struct perf_attach_objects {
	struct karst_pd *pd;
	struct karst_mr *mr, *lat_mr;
	struct karst_cq *send_cq, *recv_cq, *lat_cq;
	struct karst_comp_channel *channel; /* of the queue that is waited for; NULL: none is */
	bool armed;
	struct karst_qp **qps; /* [num_qps] */
	uint32_t num_qps;
	struct karst_qp *lat_qp;
	struct karst_ah *ah;
};

int
perf_qp_ring_attached(struct karst_qp *qp)
{
	return karst_ring_bell(qp);
}

static int
attach_refused(const char *what, int rc)
{
	fprintf(stderr, "karst-perf: %s: %s (%s)\n", what, karst_why(), strerror(-rc));
	return rc;
}

/* --- the device --- */

static bool
is_ip4(const union karst_gid *gid)
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

	return memcmp(gid->raw, prefix, sizeof(prefix)) == 0;
}

/* The requested GID; else the first IPv4 entry; else the first entry. */
static int
choose_gid(const struct perf_opts *o, struct perf_attach *a)
{
	struct karst_gid_entry *table = calloc(MAX_GIDS, sizeof(*table));
	int i, n, best = -1;

	if (table == NULL)
		return 1;
	n = karst_query_gid_table(a->ctx, table, MAX_GIDS);
	for (i = 0; i < n; i++) {
		if (table[i].port_num != a->port)
			continue;
		if (o->gid_index >= 0) {
			if (table[i].gid_index == (uint32_t)o->gid_index)
				best = i;
			continue;
		}
		if (best < 0 || (is_ip4(&table[i].gid) && !is_ip4(&table[best].gid)))
			best = i;
	}
	if (best >= 0) {
		a->gid_index = table[best].gid_index;
		a->gid = table[best].gid;
	}
	free(table);
	if (best >= 0)
		return 0;
	fprintf(stderr, "karst-perf: --gid-index: port %u has no such GID\n", a->port);
	return 2;
}

static int
attach_check_port(const struct perf_opts *o, struct perf_attach *a)
{
	struct karst_port_attr attr;
	int rc;

	if (a->port < 1 || a->port > a->ctx->nports) {
		fprintf(stderr, "karst-perf: --port: %u is not allowed; allowed: 1 to %u\n",
			a->port, a->ctx->nports);
		return 2;
	}
	rc = karst_query_port(a->ctx, a->port, &attr);
	if (rc != 0) {
		attach_refused("port", rc);
		return 1;
	}
	/* a server gets the MTU from its client */
	if (!o->server && o->mtu > 128u << attr.active_mtu) {
		fprintf(stderr,
			"karst-perf: --mtu: port %u carries a path MTU of %u; allowed: up to that\n",
			a->port, 128u << attr.active_mtu);
		return 2;
	}
	return 0;
}

int
perf_attach_open(const struct perf_opts *o, enum perf_end end, struct perf_attach *a)
{
	int rc;

	memset(a, 0, sizeof(*a));
	a->end = end;
	a->port = o->port;
	a->odp = o->odp;
	a->waits = o->events;
	rc = karst_open(o->connect, NULL, &a->ctx);
	if (rc != 0) {
		attach_refused(o->connect, rc);
		return 1;
	}
	rc = attach_check_port(o, a);
	if (rc == 0)
		rc = choose_gid(o, a);
	if (rc != 0)
		perf_attach_close(a);
	return rc;
}

/* If sched_yield() took this long, another thread has run. */
#define USED_NS 700u

void
perf_attach_rest(struct perf_attach *a)
{
	uint64_t began = rte_rdtsc();

	sched_yield();
	/* with several lcores it is not known which lcore the thread waits for */
	if (a->ctx->nlcores == 1 &&
		(rte_rdtsc() - began) * 1000000000u > rte_get_tsc_hz() * USED_NS)
		karst_near_lcore(a->ctx, 0);
}

/* Limit of a sleep, so that a waiting thread checks the clock even if nothing completes. */
#define WAIT_MS 10

bool
perf_attach_wait(struct perf_attach *a, int also)
{
	struct perf_attach_objects *own = a->objects;
	struct pollfd p[2] = {
		{.fd = own->channel->fd, .events = POLLIN}, {.fd = also, .events = POLLIN}};
	struct karst_cq *cq;
	void *context;

	if (!own->armed) {
		karst_req_notify_cq(a->end == PERF_CLIENT ? own->send_cq : own->recv_cq, false);
		own->armed = true;
		return false;
	}
	if (poll(p, 2, WAIT_MS) <= 0)
		return false;
	if (p[0].revents != 0 && karst_get_cq_event(own->channel, &cq, &context) == 0) {
		karst_ack_cq_events(cq, 1);
		own->armed = false;
		a->events++;
	}
	return p[1].revents != 0;
}

void
perf_attach_close(struct perf_attach *a)
{
	if (a->ctx != NULL)
		karst_close(a->ctx);
	a->ctx = NULL;
}

/* --- making a bed --- */

static int
attach_create_memory(struct perf_attach *a, const struct perf_bed *b, bool latency)
{
	unsigned int access = PERF_ACCESS | (a->odp ? KARST_ACCESS_ON_DEMAND : 0);
	struct perf_attach_objects *own = a->objects;
	const struct karst_mr *mrs[2];
	uint32_t i;
	int rc;

	rc = karst_alloc_pd(a->ctx, &own->pd);
	if (rc != 0)
		return attach_refused("protection domain", rc);
	rc = karst_reg_mr(own->pd, b->mem->base[a->end], b->job->working_set, access, &own->mr);
	if (rc == 0 && latency)
		rc = karst_reg_mr(
			own->pd, b->mem->lat[a->end], b->mem->lat_bytes, access, &own->lat_mr);
	if (rc != 0)
		return attach_refused("memory region", rc);
	memset(&a->paths, 0, sizeof(a->paths));
	mrs[0] = own->mr;
	mrs[1] = own->lat_mr;
	for (i = 0; i < 2 && mrs[i] != NULL; i++) {
		a->paths.shared += mrs[i]->shared_bytes - mrs[i]->migrated_bytes;
		a->paths.migrated += mrs[i]->migrated_bytes;
		a->paths.copied += mrs[i]->copied_bytes;
	}
	return 0;
}

static int
attach_create_cqs(struct perf_attach *a, const struct perf_bed *b, bool latency)
{
	struct perf_attach_objects *own = a->objects;
	bool client = a->end == PERF_CLIENT;
	uint32_t sends, receives;
	int rc;

	perf_bed_cq_sizes(b->job, &sends, &receives);
	a->events = 0;
	rc = a->waits ? karst_create_comp_channel(a->ctx, &own->channel) : 0;
	if (rc != 0)
		return attach_refused("completion channel", rc);
	rc = karst_create_cq(
		a->ctx, client ? sends : 64, NULL, client ? own->channel : NULL, &own->send_cq);
	if (rc == 0)
		rc = karst_create_cq(a->ctx, client ? 64 : receives, NULL,
			client ? NULL : own->channel, &own->recv_cq);
	if (rc == 0 && latency)
		rc = karst_create_cq(a->ctx, 4 * PERF_LAT_WRS, NULL, NULL, &own->lat_cq);
	return rc == 0 ? 0 : attach_refused("completion queue", rc);
}

static int
attach_to_init(const struct perf_attach *a, const struct perf_job *j, struct karst_qp *qp)
{
	struct karst_qp_attr attr = {
		.qp_state = KARST_QPS_INIT,
		.port_num = (uint8_t)a->port,
		.qp_access_flags =
			j->transport == PERF_UC ? KARST_ACCESS_REMOTE_WRITE : KARST_ACCESS_REMOTE,
		.qkey = PERF_QKEY,
	};
	unsigned int mask = KARST_QP_STATE | KARST_QP_PKEY_INDEX | KARST_QP_PORT;

	mask |= j->transport == PERF_UD ? KARST_QP_QKEY : KARST_QP_ACCESS_FLAGS;
	return karst_modify_qp(qp, &attr, mask);
}

static int
create_qp(struct perf_attach *a, const struct perf_job *j, struct karst_qp_init_attr *init,
	struct karst_qp **qp)
{
	int rc = karst_create_qp(a->objects->pd, init, qp);

	if (rc == 0)
		rc = attach_to_init(a, j, *qp);
	return rc == 0 ? 0 : attach_refused("queue pair", rc);
}

static int
attach_create_qps(struct perf_attach *a, const struct perf_bed *b, bool latency)
{
	struct perf_attach_objects *own = a->objects;
	const struct perf_job *j = b->job;
	bool client = a->end == PERF_CLIENT;
	int rc = 0;

	own->qps = calloc(j->qps, sizeof(*own->qps));
	if (own->qps == NULL)
		return -ENOMEM;
	while (rc == 0 && own->num_qps < j->qps) {
		struct karst_qp_init_attr init = {
			.send_cq = own->send_cq,
			.recv_cq = own->recv_cq,
			.qp_type = perf_qp_type(j->transport),
			.cap = {.max_send_wr = client ? karst_pow2_ceil(j->depth) : 1,
				.max_recv_wr = !client && j->recv_depth != 0 ? j->recv_depth : 1,
				.max_send_sge = 1,
				.max_recv_sge = 1,
				.max_inline_data = client && j->inlined ? j->size : 0},
		};

		rc = create_qp(a, j, &init, &own->qps[own->num_qps]);
		if (own->qps[own->num_qps] != NULL)
			own->num_qps++;
	}
	if (rc == 0 && latency) {
		struct karst_qp_init_attr init = {
			.send_cq = own->lat_cq,
			.recv_cq = own->lat_cq,
			.qp_type = perf_qp_type(j->transport),
			.cap = {.max_send_wr = PERF_LAT_WRS,
				.max_recv_wr = PERF_LAT_WRS,
				.max_send_sge = 1,
				.max_recv_sge = 1,
				.max_inline_data = j->inlined ? j->size : 0},
		};

		rc = create_qp(a, j, &init, &own->lat_qp);
	}
	return rc;
}

static void
attach_show_qp(struct karst_qp *from, struct perf_qp *to)
{
	to->sq = from->sq;
	to->rq = from->rq;
	to->num = from->qp_num;
	to->attached = from;
}

/* Describes the objects in @bed, for the traffic. */
static int
attach_show(const struct perf_attach *a, struct perf_bed *b)
{
	const struct perf_attach_objects *own = a->objects;
	uint32_t i;

	b->qps[a->end] = perf_qp_array(own->num_qps);
	if (own->lat_qp != NULL)
		b->lat_qp[a->end] = perf_qp_array(1);
	if (b->qps[a->end] == NULL || (own->lat_qp != NULL && b->lat_qp[a->end] == NULL))
		return -ENOMEM;
	for (i = 0; i < own->num_qps; i++) {
		attach_show_qp(own->qps[i], &b->qps[a->end][i]);
		b->far[a->end].qpns[i] = own->qps[i]->qp_num;
	}
	b->far[a->end].key = own->mr->rkey;
	if (own->lat_qp != NULL) {
		attach_show_qp(own->lat_qp, b->lat_qp[a->end]);
		b->far[a->end].lat_qpn = own->lat_qp->qp_num;
		b->far[a->end].lat_key = own->lat_mr->rkey;
		b->lat_lanes[a->end] = (struct perf_lanes){own->lat_cq->lane, own->lat_cq->nlanes};
	}
	b->sends = (struct perf_lanes){own->send_cq->lane, own->send_cq->nlanes};
	b->receives = (struct perf_lanes){own->recv_cq->lane, own->recv_cq->nlanes};
	return 0;
}

int
perf_attach_bed_create(struct perf_attach *a, const struct perf_job *job,
	const struct perf_memory *mem, bool latency, struct perf_bed *b)
{
	int rc = perf_bed_init(job, mem, b);

	b->attach = a;
	a->objects = calloc(1, sizeof(*a->objects));
	if (rc == 0 && a->objects == NULL)
		rc = -ENOMEM;
	if (rc == 0)
		rc = attach_create_memory(a, b, latency);
	if (rc == 0)
		rc = attach_create_cqs(a, b, latency);
	if (rc == 0)
		rc = attach_create_qps(a, b, latency);
	if (rc == 0)
		rc = attach_show(a, b);
	if (rc != 0)
		perf_attach_bed_destroy(b);
	return rc == 0 ? 0 : 1;
}

/* --- connecting --- */

static void
fill_ah(const struct perf_attach *a, struct karst_ah_attr *ah)
{
	ah->dgid = a->peer_gid;
	ah->sgid_index = (uint8_t)a->gid_index;
	ah->port_num = (uint8_t)a->port;
	ah->hop_limit = HOP_LIMIT;
}

static int
connect_qp(const struct perf_bed *b, struct karst_qp *qp, uint32_t peer_qpn)
{
	const struct perf_job *j = b->job;
	struct karst_qp_attr attr = {
		.qp_state = KARST_QPS_RTR,
		.path_mtu = (enum karst_mtu)(karst_log2(j->mtu) - 7),
		.dest_qp_num = peer_qpn,
		.rq_psn = peer_qpn & 0xffffff,
		.max_dest_rd_atomic = (uint8_t)j->rd_atomic,
		.min_rnr_timer = RNR_CODE,
	};
	unsigned int mask = KARST_QP_STATE;
	int rc;

	fill_ah(b->attach, &attr.ah_attr);
	if (j->transport != PERF_UD)
		mask |= KARST_QP_AV | KARST_QP_PATH_MTU | KARST_QP_DEST_QPN | KARST_QP_RQ_PSN;
	if (j->transport == PERF_RC)
		mask |= KARST_QP_MAX_DEST_RD_ATOMIC | KARST_QP_MIN_RNR_TIMER;
	rc = karst_modify_qp(qp, &attr, mask);
	if (rc != 0)
		return rc;
	attr = (struct karst_qp_attr){
		.qp_state = KARST_QPS_RTS,
		.sq_psn = qp->qp_num & 0xffffff,
		.timeout = (uint8_t)j->timeout,
		.retry_cnt = RETRIES,
		.rnr_retry = RNR_FOREVER,
		.max_rd_atomic = (uint8_t)j->rd_atomic,
	};
	mask = KARST_QP_STATE | KARST_QP_SQ_PSN;
	if (j->transport == PERF_RC)
		mask |= KARST_QP_TIMEOUT | KARST_QP_RETRY_CNT | KARST_QP_RNR_RETRY |
			KARST_QP_MAX_QP_RD_ATOMIC;
	return karst_modify_qp(qp, &attr, mask);
}

int
perf_attach_bed_connect(struct perf_bed *b)
{
	struct perf_attach *a = b->attach;
	struct perf_attach_objects *own = a->objects;
	const struct perf_far *far = &b->far[1 - a->end];
	struct karst_ah_attr ah = {0};
	uint32_t i;
	int rc = 0;

	for (i = 0; rc == 0 && i < own->num_qps; i++)
		rc = connect_qp(b, own->qps[i], far->qpns[i]);
	if (rc == 0 && own->lat_qp != NULL)
		rc = connect_qp(b, own->lat_qp, far->lat_qpn);
	if (rc == 0 && b->job->transport == PERF_UD) {
		fill_ah(a, &ah);
		rc = karst_create_ah(own->pd, &ah, &own->ah);
		if (rc == 0)
			b->ah[a->end] = own->ah->handle;
	}
	return rc == 0 ? 0 : attach_refused("connecting", rc);
}

void
perf_attach_bed_destroy(struct perf_bed *b)
{
	struct perf_attach *a = b->attach;
	struct perf_attach_objects *own = a->objects;

	if (own != NULL) {
		if (own->ah != NULL)
			karst_destroy_ah(own->ah);
		while (own->num_qps > 0)
			karst_destroy_qp(own->qps[--own->num_qps]);
		free(own->qps);
		if (own->lat_qp != NULL)
			karst_destroy_qp(own->lat_qp);
		if (own->send_cq != NULL)
			karst_destroy_cq(own->send_cq);
		if (own->recv_cq != NULL)
			karst_destroy_cq(own->recv_cq);
		if (own->lat_cq != NULL)
			karst_destroy_cq(own->lat_cq);
		if (own->channel != NULL)
			karst_destroy_comp_channel(own->channel);
		if (own->mr != NULL)
			karst_dereg_mr(own->mr);
		if (own->lat_mr != NULL)
			karst_dereg_mr(own->lat_mr);
		if (own->pd != NULL)
			karst_dealloc_pd(own->pd);
		free(own);
		a->objects = NULL;
	}
	perf_bed_fini(b);
}

/* --- descriptions --- */

json_t *
perf_attach_describe(const struct perf_bed *b)
{
	const struct perf_attach *a = b->attach;
	const struct perf_far *own = &b->far[a->end];
	char gid[INET6_ADDRSTRLEN];
	json_t *qpns = json_array();
	uint32_t i;

	inet_ntop(AF_INET6, a->gid.raw, gid, sizeof(gid));
	for (i = 0; i < b->job->qps; i++)
		json_array_append_new(qpns, json_integer(own->qpns[i]));
	return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:o}", "gid", gid, "base",
		(json_int_t)own->base, "lat", (json_int_t)own->lat, "key", (json_int_t)own->key,
		"lat_key", (json_int_t)own->lat_key, "lat_qpn", (json_int_t)own->lat_qpn, "qpns",
		qpns);
}

int
perf_attach_learn(struct perf_bed *b, const json_t *o)
{
	struct perf_attach *a = b->attach;
	struct perf_far *far = &b->far[1 - a->end];
	const json_t *qpns = json_object_get(o, "qpns"), *gid = json_object_get(o, "gid");
	uint64_t key, lat_key, lat_qpn;
	uint32_t i;

	if (!json_is_string(gid) ||
		inet_pton(AF_INET6, json_string_value(gid), a->peer_gid.raw) != 1 ||
		perf_link_number(o, "base", UINT64_MAX, &far->base) != 0 ||
		perf_link_number(o, "lat", UINT64_MAX, &far->lat) != 0 ||
		perf_link_number(o, "key", UINT32_MAX, &key) != 0 ||
		perf_link_number(o, "lat_key", UINT32_MAX, &lat_key) != 0 ||
		perf_link_number(o, "lat_qpn", 0xffffff, &lat_qpn) != 0 ||
		json_array_size(qpns) != b->job->qps)
		return -EPROTO;
	far->key = (uint32_t)key;
	far->lat_key = (uint32_t)lat_key;
	far->lat_qpn = (uint32_t)lat_qpn;
	for (i = 0; i < b->job->qps; i++) {
		const json_t *v = json_array_get(qpns, i);

		if (!json_is_integer(v) || (uint64_t)json_integer_value(v) > 0xffffff)
			return -EPROTO;
		far->qpns[i] = (uint32_t)json_integer_value(v);
	}
	return 0;
}
