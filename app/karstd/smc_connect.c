/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Connects the queue pair of a link.  The peer states its address, and a host on the path to that
 * address has to answer path resolution.  If the address does not exist, that takes seconds, for
 * which the service does not wait: it checks again after a while, and then tells lib/smc.
 */
#include "smc_priv.h"

#include <errno.h>

#include "karst_neigh.h"

#define HOP_LIMIT     64
#define RNR_TIMER     12            /* 0.64 ms */
#define PATH_NS       3000000000ull /* limit for path resolution */
#define PATH_NAP_NS   1000000ull    /* until the second check; then twice as long each time, */
#define PATH_NAP_MOST 100000000ull  /* up to this */

/*
 * With the last link all connections of its group end, and the peer may notice that half a minute
 * later.  So a link is patient: it lives for 8.6 s without an acknowledgement, as with librdmacm.
 * A peer in software does not answer while its CPU is used by others, or its machine is migrated.
 */
#define ACK_TIMEOUT 18 /* 1.07 s */
#define RETRIES     7
#define RNR_RETRIES 7 /* no limit */
static_assert((4096ull << ACK_TIMEOUT) * (RETRIES + 1) < SVC_LINK_LIFE_MS * 1000000ull,
	"within it a link has carried what it was given, or has ended");

/* 0; -EAGAIN: path resolution is in progress; -errno: there is no path. */
static int
look_for_path(struct kd_smc *s, const struct svc_link *l, const struct karst_gid_entry *g)
{
	static const struct karst_engine_resolve_opts opts = {.quiet = true, .no_wait = true};
	struct karst_path path;

	return karst_engine_resolve(
		s->engine, (uint8_t)(g->port_num - 1), g->gid_index, l->remote.gid, &opts, &path);
}

static int
connect_qp(struct kd_smc *s, const struct svc_link *l, const struct karst_gid_entry *g)
{
	const struct karst_smc_end *remote = &l->remote;
	struct karst_qp_attr attr = {
		.qp_state = KARST_QPS_RTR,
		.path_mtu = (enum karst_mtu)remote->mtu,
		.rq_psn = remote->psn,
		.dest_qp_num = remote->qpn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = RNR_TIMER,
		.ah_attr = {.hop_limit = HOP_LIMIT},
	};
	int rc;

	memcpy(attr.ah_attr.dgid.raw, remote->gid, sizeof(remote->gid));
	attr.ah_attr.sgid_index = (uint8_t)g->gid_index;
	attr.ah_attr.port_num = (uint8_t)g->port_num;
	rc = karst_modify_qp(l->qp.qp, &attr,
		KARST_QP_STATE | KARST_QP_AV | KARST_QP_PATH_MTU | KARST_QP_DEST_QPN |
			KARST_QP_RQ_PSN | KARST_QP_MAX_DEST_RD_ATOMIC | KARST_QP_MIN_RNR_TIMER);
	attr = (struct karst_qp_attr){
		.qp_state = KARST_QPS_RTS,
		.sq_psn = l->local.psn,
		.timeout = ACK_TIMEOUT,
		.retry_cnt = RETRIES,
		.rnr_retry = RNR_RETRIES,
		.max_rd_atomic = 1,
	};
	if (rc == 0)
		rc = karst_modify_qp(l->qp.qp, &attr,
			KARST_QP_STATE | KARST_QP_SQ_PSN | KARST_QP_TIMEOUT | KARST_QP_RETRY_CNT |
				KARST_QP_RNR_RETRY | KARST_QP_MAX_QP_RD_ATOMIC);
	if (rc != 0)
		karst_log_some(&s->log, kd_clock_ns(), KARST_LOG_WARNING,
			"smc: connecting a queue pair: %s", karst_why());
	return rc;
}

/* -EAGAIN: not yet.  An address without a path is not logged, since peers choose it. */
static int
try_to_connect(struct kd_smc *s, const struct svc_link *l)
{
	const struct karst_gid_entry *g = svc_rdma_gid_entry(s, l->local.gid);
	int rc = g != NULL ? look_for_path(s, l, g) : -ENODEV;

	return rc == 0 ? connect_qp(s, l, g) : rc;
}

int
svc_connect(struct kd_smc *s, struct svc_link *l, const struct karst_smc_end *remote)
{
	int rc;

	l->remote = *remote;
	rc = try_to_connect(s, l);
	if (rc != -EAGAIN)
		return rc;
	l->connects = true;
	l->nap_ns = PATH_NAP_NS;
	l->look_ns = s->core->now_ns + l->nap_ns;
	l->until_ns = s->core->now_ns + PATH_NS;
	return -EINPROGRESS;
}

/* lib/smc may close this link, or another one, when it gets the result. */
static void
connect_again(struct kd_smc *s, struct svc_link *l)
{
	int rc = try_to_connect(s, l);

	if (rc == -EAGAIN && s->core->now_ns < l->until_ns) {
		l->nap_ns = karst_min_u64(2 * l->nap_ns, PATH_NAP_MOST);
		l->look_ns = s->core->now_ns + l->nap_ns;
		return;
	}
	l->connects = false;
	karst_smc_link_connected(s->core, l->id, rc == -EAGAIN ? -EHOSTUNREACH : rc);
}

void
svc_connect_expire(struct kd_smc *s)
{
	uint32_t i;

	for (i = 0; i < SMC_LINKS; i++)
		if (s->links[i].connects && s->links[i].look_ns <= s->core->now_ns)
			connect_again(s, &s->links[i]);
}

uint64_t
svc_connect_next_ns(const struct kd_smc *s)
{
	uint64_t next = UINT64_MAX;
	uint32_t i;

	for (i = 0; i < SMC_LINKS; i++)
		if (s->links[i].connects)
			next = karst_min_u64(next, s->links[i].look_ns);
	return next;
}
