/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "pingpong.h"

#define SIGNAL_EVERY 16u
#define RECEIVES     64u

static uint32_t
pingpong_area(uint32_t size)
{
	return (PERF_GRH_ROOM + size + KARST_CACHE_LINE - 1) / KARST_CACHE_LINE * KARST_CACHE_LINE;
}

uint64_t
perf_pinger_bytes(uint32_t size)
{
	return 2 * (uint64_t)pingpong_area(size);
}

static void
post_receives(struct perf_pinger *p, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		*perf_qp_recv_slot(p->qp, i) = p->receive;
	if (perf_qp_post_recv(p->qp, n) != 0)
		p->errors++;
}

static void
pingpong_template(const struct perf_bed *bed, enum perf_end end, struct perf_pinger *p)
{
	static const uint8_t opcodes[PERF_OP_MAX] = {
		[PERF_OP_WRITE] = KARST_WR_RDMA_WRITE,
		[PERF_OP_WRITE_IMM] = KARST_WR_RDMA_WRITE_WITH_IMM,
		[PERF_OP_READ] = KARST_WR_RDMA_READ,
		[PERF_OP_SEND] = KARST_WR_SEND,
		[PERF_OP_CAS] = KARST_WR_ATOMIC_CAS,
		[PERF_OP_FAA] = KARST_WR_ATOMIC_FAA,
		[PERF_OP_ATOMIC_WRITE] = KARST_WR_ATOMIC_WRITE,
	};
	const struct perf_job *j = bed->job;
	struct karst_send_wqe *w = &p->template;
	struct karst_sge sge = {(uintptr_t)p->out, j->size, bed->far[end].lat_key};

	w->opcode = opcodes[j->op];
	w->num = 1;
	if (j->transport == PERF_UD) {
		w->ud.ah = bed->ah[end];
		w->ud.remote_qpn = bed->far[1 - end].lat_qpn;
		w->ud.remote_qkey = PERF_QKEY;
	} else {
		w->rdma.remote_addr =
			bed->far[1 - end].lat + pingpong_area(j->size) + PERF_GRH_ROOM;
		w->rdma.rkey = bed->far[1 - end].lat_key;
	}
	if (j->op == PERF_OP_CAS || j->op == PERF_OP_FAA) {
		w->atomic.compare_add = 1;
		w->atomic.sge[0] = sge;
	} else if (j->inlined) {
		w->flags = KARST_SEND_INLINE;
		w->num = (uint16_t)j->size;
	} else {
		w->sge[0] = sge;
	}
}

void
perf_pinger_init(const struct perf_bed *bed, enum perf_end end, struct perf_pinger *p)
{
	const struct perf_job *j = bed->job;
	uint32_t grh = j->transport == PERF_UD ? PERF_GRH_BYTES : 0;

	memset(p, 0, sizeof(*p));
	memset(bed->mem->lat[end], 0, perf_pinger_bytes(j->size));
	p->bed = bed;
	p->qp = bed->lat_qp[end];
	p->lanes = bed->lat_lanes[end];
	p->out = bed->mem->lat[end];
	p->in = bed->mem->lat[end] + pingpong_area(j->size) + PERF_GRH_ROOM;
	p->fetches = j->op == PERF_OP_READ || perf_op_atomic(j->op);
	p->polls = j->op == PERF_OP_WRITE;
	pingpong_template(bed, end, p);
	if (!perf_op_receives(j->op))
		return;
	if (j->op == PERF_OP_SEND) {
		p->receive.num_sge = 1;
		p->receive.sge[0] = (struct karst_sge){
			(uintptr_t)p->in - grh, j->size + grh, bed->far[end].lat_key};
	}
	post_receives(p, RECEIVES);
}

static uint8_t
last_byte(const struct perf_pinger *p)
{
	/* acquire: the bytes before it have arrived as well (R14) */
	return __atomic_load_n(&p->in[p->bed->job->size - 1], __ATOMIC_ACQUIRE);
}

static void
pingpong_post(struct perf_pinger *p, uint32_t number)
{
	const struct perf_job *j = p->bed->job;
	struct karst_send_wqe *w;

	if (karst_wq_free(&p->qp->sq, 1) == 0)
		return; /* only when answers were lost: treated as lost, too */
	w = perf_qp_send_slot(p->qp, 0);
	*w = p->template;
	if (!p->fetches)
		p->out[j->size - 1] = (uint8_t)number;
	w->imm = number;
	if (j->inlined)
		memcpy(w->inline_data, p->out, j->size);
	if (p->fetches || ++p->posted % SIGNAL_EVERY == 0)
		w->flags |= KARST_SEND_SIGNALED;
	if (perf_qp_post_send(p->qp, 1) != 0)
		p->errors++;
}

/* Takes completions of sends and receives. */
static void
pingpong_reap_lane(struct perf_pinger *p, struct karst_cq_lane *lane)
{
	const struct karst_cqe *cqes;
	uint32_t i, receives = 0, n = karst_cq_lane_peek(lane, &cqes);

	if (n == 0)
		return;
	for (i = 0; i < n; i++) {
		const struct karst_cqe *e = &cqes[i];

		if (karst_unlikely(e->status != KARST_WC_SUCCESS)) {
			p->errors++;
		} else if (e->opcode < KARST_WC_RECV) {
			p->done = true;
		} else {
			receives++;
			p->received =
				p->bed->job->op == PERF_OP_SEND ? last_byte(p) : (uint8_t)e->imm;
		}
	}
	karst_cq_lane_take(lane, n);
	if (receives > 0)
		post_receives(p, receives);
}

static void
pingpong_reap(struct perf_pinger *p)
{
	uint32_t i;

	for (i = 0; i < p->lanes.n; i++)
		pingpong_reap_lane(p, &p->lanes.lane[i]);
}

void
perf_ping(struct perf_pinger *p)
{
	p->number = (p->number + 1) & 0xff;
	p->done = false;
	pingpong_post(p, p->number);
}

bool
perf_ping_done(struct perf_pinger *p)
{
	pingpong_reap(p);
	if (karst_unlikely(p->errors != 0))
		return true;
	if (p->fetches)
		return p->done;
	return (p->polls ? last_byte(p) : p->received) == p->number;
}

void
perf_pong(struct perf_pinger *p)
{
	uint32_t number;

	if (p->fetches)
		return;
	pingpong_reap(p);
	number = p->polls ? last_byte(p) : p->received;
	if (number == p->number)
		return;
	p->number = number;
	pingpong_post(p, number);
}
