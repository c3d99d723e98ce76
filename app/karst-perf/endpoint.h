/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Queue pairs and completion queues as the traffic uses them: as rings, regardless of their owner.
 * Those of an embedded engine (bed.c) and those of an attached program (attach.c) differ only in
 * how the doorbell is rung.
 */
#ifndef PERF_ENDPOINT_H
#define PERF_ENDPOINT_H

#include "karst_engine.h"

struct karst_qp;

/** One thread at a time posts to each queue. */
struct perf_qp {
	/* the sender needs only this cache line */
	struct karst_wq sq;
	struct karst_bell_shared *bell; /* of an embedded engine */
	struct karst_qp *attached;      /* or the attached program's handle, else NULL */
	uint32_t bell_mask;
	uint32_t num; /* QP number */
	struct karst_wq rq;
} karst_cache_aligned;

/** The completion lanes that an end polls. */
struct perf_lanes {
	struct karst_cq_lane *lane;
	uint32_t n;
};

int perf_qp_ring_attached(struct karst_qp *qp);

static inline int
perf_qp_ring(struct perf_qp *qp)
{
	if (qp->attached != NULL)
		return perf_qp_ring_attached(qp->attached);
	return karst_bell_ring(qp->bell, qp->bell_mask, qp->num);
}

static inline struct karst_send_wqe *
perf_qp_send_slot(const struct perf_qp *qp, uint32_t i)
{
	return (struct karst_send_wqe *)karst_wq_slot(&qp->sq, i);
}

static inline struct karst_recv_wqe *
perf_qp_recv_slot(const struct perf_qp *qp, uint32_t i)
{
	return (struct karst_recv_wqe *)karst_wq_slot(&qp->rq, i);
}

/** Hands @n filled slots to the engine. */
static inline int
perf_qp_post_send(struct perf_qp *qp, uint32_t n)
{
	return karst_wq_publish(&qp->sq, n) ? perf_qp_ring(qp) : 0;
}

static inline int
perf_qp_post_recv(struct perf_qp *qp, uint32_t n)
{
	return karst_unlikely(karst_wq_publish(&qp->rq, n)) ? perf_qp_ring(qp) : 0;
}

#endif /* PERF_ENDPOINT_H */
