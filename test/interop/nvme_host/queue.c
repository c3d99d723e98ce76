/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Queues of the host: their memory, and commands from their creation to their answers. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "host.h"

#define GUARD        64u
#define GUARD_BYTE   0x5c
#define OLD_BYTE     0xa5 /* fills buffers before something is read into them */
#define ALIGN        64u  /* data begins at any of so many byte offsets */
#define KEYED_MAX    0xffffffu
#define KIND_SHIFT   32
#define SGL_LENGTH   8
#define SGL_KEY      11
#define SGL_TYPE     15
#define CQES_A_BURST 16

enum kind {
	KIND_ANSWER,
	KIND_COMMAND,
	KIND_KEY,
};

/* --- memory --- */

static uint32_t
commands(const struct nh_queue *queue)
{
	return queue->shape.entries - 1;
}

static size_t
room_len(const struct nh_queue *queue)
{
	return 2 * GUARD + ALIGN + queue->shape.max_data;
}

/* Receives; capsules; rooms for data. */
static void
make_memory(struct nh_queue *queue)
{
	size_t capsule = NVME_SQE_LEN + queue->shape.in_capsule, n = commands(queue);
	int access = IBV_ACCESS_LOCAL_WRITE;
	struct nh *h = queue->host;
	uint32_t i;

	access |= h->opt.windows ? IBV_ACCESS_MW_BIND
				 : IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	queue->memory_len = queue->shape.entries * NVME_CQE_LEN + n * (capsule + room_len(queue));
	queue->memory = mmap(NULL, queue->memory_len, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	nh_must(queue->memory != MAP_FAILED, "mmap");
	queue->mr = ibv_reg_mr(h->pd, queue->memory, queue->memory_len, access);
	nh_must(queue->mr != NULL, "ibv_reg_mr");
	queue->answers = queue->memory;
	nh_must((queue->cmd = calloc(n, sizeof(*queue->cmd))) != NULL, "calloc");
	for (i = 0; i < n; i++) {
		struct nh_cmd *cmd = &queue->cmd[i];

		cmd->queue = queue;
		cmd->index = i;
		cmd->capsule = queue->answers + queue->shape.entries * NVME_CQE_LEN + i * capsule;
		cmd->room = queue->answers + queue->shape.entries * NVME_CQE_LEN + n * capsule +
			i * room_len(queue);
		if (!h->opt.windows)
			continue;
		cmd->window = ibv_alloc_mw(h->pd, IBV_MW_TYPE_2);
		nh_must(cmd->window != NULL, "ibv_alloc_mw");
		cmd->key = cmd->window->rkey;
	}
}

static void
post_answer(struct nh_queue *queue, uint32_t index)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)queue->answers + index * NVME_CQE_LEN,
		.length = NVME_CQE_LEN,
		.lkey = queue->mr->lkey,
	};
	struct ibv_recv_wr wr = {.wr_id = (uint64_t)KIND_ANSWER << KIND_SHIFT | index,
		.sg_list = &sge,
		.num_sge = 1};
	struct ibv_recv_wr *bad;

	nh_must(ibv_post_recv(queue->id->qp, &wr, &bad) == 0, "ibv_post_recv");
}

static void
make_qp(struct nh_queue *queue)
{
	uint32_t entries = queue->shape.entries, i;
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 3 * entries,
			.max_recv_wr = entries,
			.max_send_sge = 1,
			.max_recv_sge = 1},
	};

	queue->cq = ibv_create_cq(
		queue->host->verbs, (int)(4 * entries), queue, queue->host->channel, 0);
	nh_must(queue->cq != NULL, "ibv_create_cq");
	attr.send_cq = attr.recv_cq = queue->cq;
	nh_must(rdma_create_qp(queue->id, queue->host->pd, &attr) == 0, "rdma_create_qp");
	make_memory(queue);
	for (i = 0; i < entries; i++)
		post_answer(queue, i);
}

static void
free_queue(struct nh_queue *queue)
{
	uint32_t i;

	rdma_destroy_qp(queue->id);
	for (i = 0; i < commands(queue); i++)
		nh_must(queue->cmd[i].window == NULL || ibv_dealloc_mw(queue->cmd[i].window) == 0,
			"ibv_dealloc_mw");
	nh_must(ibv_dereg_mr(queue->mr) == 0, "ibv_dereg_mr");
	ibv_ack_cq_events(queue->cq, queue->unacked);
	nh_must(ibv_destroy_cq(queue->cq) == 0, "ibv_destroy_cq");
	nh_must(rdma_destroy_id(queue->id) == 0, "rdma_destroy_id");
	munmap(queue->memory, queue->memory_len);
	free(queue->cmd);
	queue->host->queue[queue->qid] = NULL;
	free(queue);
}

struct nh_queue *
nh_queue_open(struct nh *h, uint16_t qid, const struct nh_shape *shape, int *why)
{
	struct nh_queue *queue = calloc(1, sizeof(*queue));
	uint8_t data[NVME_RDMA_PRIV_LEN] = {0};

	nh_must(queue != NULL, "calloc");
	queue->host = h;
	queue->qid = qid;
	queue->shape = *shape;
	nh_rdma_resolve(queue);
	make_qp(queue);
	h->queue[qid] = queue;
	nvme_put16(data + RDMA_REQ_RECFMT, shape->format);
	nvme_put16(data + RDMA_REQ_QID, qid);
	nvme_put16(data + RDMA_REQ_HRQSIZE, (uint16_t)shape->entries);
	nvme_put16(data + RDMA_REQ_HSQSIZE, (uint16_t)(shape->entries - 1));
	if (nh_rdma_connect(queue, data, why))
		return queue;
	free_queue(queue);
	return NULL;
}

void
nh_queue_close(struct nh_queue *queue)
{
	nh_rdma_disconnect(queue);
	free_queue(queue);
}

/* --- commands --- */

struct nh_cmd *
nh_cmd_get(struct nh_queue *queue, uint8_t opcode, uint32_t nsid)
{
	struct nh_cmd *cmd = queue->cmd, *end = cmd + commands(queue);

	while (cmd < end && cmd->state != NH_FREE)
		cmd++;
	if (cmd == end)
		return NULL;
	cmd->state = NH_READY;
	cmd->sent = cmd->came = cmd->stale = false;
	memset(cmd->capsule, 0, NVME_SQE_LEN);
	cmd->capsule[SQE_OPCODE] = opcode;
	cmd->capsule[SQE_FLAGS] = NVME_FLAGS_PSDT_SGL;
	nvme_put16(cmd->capsule + SQE_CID, (uint16_t)cmd->index);
	nvme_put32(cmd->capsule + SQE_NSID, nsid);
	nh_cmd_data(cmd, NH_NO_DATA, 0, false);
	return cmd;
}

void
nh_cmd_data(struct nh_cmd *cmd, enum nh_dir dir, uint32_t len, bool in_capsule)
{
	const struct nh_shape *shape = &cmd->queue->shape;
	uint8_t *sgl = cmd->capsule + SQE_SGL;

	cmd->dir = dir;
	cmd->len = len;
	cmd->keyed = dir != NH_NO_DATA &&
		!(in_capsule && dir == NH_TO_TARGET && len <= shape->in_capsule);
	cmd->capsule_len = NVME_SQE_LEN;
	cmd->data = NULL;
	sgl[SGL_TYPE] = NVME_SGL_KEYED;
	if (dir == NH_NO_DATA)
		return;
	if (!cmd->keyed) {
		cmd->data = cmd->capsule + NVME_SQE_LEN;
		cmd->capsule_len += len;
		nvme_put32(sgl + SGL_LENGTH, len);
		sgl[SGL_TYPE] = NVME_SGL_DATA_OFFSET;
		return;
	}
	if (len > shape->max_data || len > KEYED_MAX)
		nh_die("queue %u: %u bytes are too many", cmd->queue->qid, len);
	cmd->data = cmd->room + GUARD + nh_random(cmd->queue->host, ALIGN);
	memset(cmd->data - GUARD, GUARD_BYTE, GUARD);
	memset(cmd->data, OLD_BYTE, len);
	memset(cmd->data + len, GUARD_BYTE, GUARD);
	nvme_put64(sgl, (uintptr_t)cmd->data);
	nvme_put32(sgl + SGL_LENGTH, len);
	sgl[SGL_TYPE] = cmd->window != NULL ? NVME_SGL_KEYED_INV : NVME_SGL_KEYED;
}

/* Binds the window to its command's bytes, with the next one of its keys. */
static void
post_bind(struct nh_cmd *cmd)
{
	struct ibv_send_wr invalidate = {
		.wr_id = (uint64_t)KIND_KEY << KIND_SHIFT | cmd->index,
		.opcode = IBV_WR_LOCAL_INV,
		.invalidate_rkey = cmd->key,
	};
	struct ibv_send_wr bind = {
		.wr_id = (uint64_t)KIND_KEY << KIND_SHIFT | cmd->index,
		.opcode = IBV_WR_BIND_MW,
		.bind_mw = {.mw = cmd->window,
			.rkey = ibv_inc_rkey(cmd->key),
			.bind_info = {.mr = cmd->queue->mr,
				.addr = (uintptr_t)cmd->data,
				.length = cmd->len,
				.mw_access_flags = cmd->dir == NH_TO_TARGET
					? IBV_ACCESS_REMOTE_READ
					: IBV_ACCESS_REMOTE_WRITE}},
	};
	struct ibv_send_wr *bad;

	if (cmd->bound) /* a target that does not know the command does not invalidate its key */
		nh_must(ibv_post_send(cmd->queue->id->qp, &invalidate, &bad) == 0, "ibv_post_send");
	nh_must(ibv_post_send(cmd->queue->id->qp, &bind, &bad) == 0, "ibv_post_send");
	/* providers may know a window of type 2 by its last key, as rxe's does */
	cmd->key = cmd->window->rkey = bind.bind_mw.rkey;
	cmd->bound = true;
	cmd->queue->host->counters.bound++;
}

void
nh_cmd_post(struct nh_cmd *cmd)
{
	struct nh_counters *counters = &cmd->queue->host->counters;
	struct ibv_sge sge = {
		.addr = (uintptr_t)cmd->capsule,
		.length = cmd->capsule_len,
		.lkey = cmd->queue->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = (uint64_t)KIND_COMMAND << KIND_SHIFT | cmd->index,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad;

	if (cmd->keyed && cmd->window != NULL && !cmd->stale)
		post_bind(cmd);
	if (cmd->keyed)
		nvme_put32(cmd->capsule + SQE_SGL + SGL_KEY,
			cmd->window != NULL ? cmd->key : cmd->queue->mr->rkey);
	nh_must(ibv_post_send(cmd->queue->id->qp, &wr, &bad) == 0, "ibv_post_send");
	cmd->state = NH_POSTED;
	counters->commands++;
	counters->in_capsule += cmd->dir == NH_TO_TARGET && !cmd->keyed;
	counters->to_target += cmd->dir == NH_TO_TARGET && cmd->keyed;
	counters->from_target += cmd->dir == NH_FROM_TARGET;
}

void
nh_cmd_put(struct nh_cmd *cmd)
{
	uint32_t i;

	for (i = 0; cmd->keyed && i < GUARD; i++)
		if (cmd->data[-1 - (int)i] != GUARD_BYTE || cmd->data[cmd->len + i] != GUARD_BYTE)
			nh_die("queue %u: bytes beside the %u of command %u have changed",
				cmd->queue->qid, cmd->len, cmd->index);
	cmd->state = NH_FREE;
}

/* --- completions --- */

static void
take_key(struct nh_cmd *cmd, const struct ibv_wc *wc)
{
	bool invalidated = (wc->wc_flags & IBV_WC_WITH_INV) != 0;

	if (invalidated && (!cmd->bound || !cmd->keyed || wc->invalidated_rkey != cmd->key))
		nh_die("queue %u: key %#x is invalidated, and %#x was the command's",
			cmd->queue->qid, wc->invalidated_rkey, cmd->key);
	if (!invalidated && cmd->keyed && cmd->bound && cmd->status == NVME_OK)
		nh_die("queue %u: an answer that does not invalidate the key", cmd->queue->qid);
	if (invalidated) {
		cmd->bound = false;
		cmd->queue->host->counters.invalidated++;
	}
}

static struct nh_cmd *
take_answer(struct nh_queue *queue, const struct ibv_wc *wc, uint32_t index)
{
	const uint8_t *cqe = queue->answers + index * NVME_CQE_LEN;
	uint16_t cid = nvme_get16(cqe + CQE_CID);
	struct nh_cmd *cmd = cid < commands(queue) ? &queue->cmd[cid] : NULL;

	if (wc->byte_len != NVME_CQE_LEN)
		nh_die("queue %u: an answer of %u bytes", queue->qid, wc->byte_len);
	if (cmd == NULL || cmd->state != NH_POSTED || cmd->came)
		nh_die("queue %u: an answer to command %u, which is not there", queue->qid, cid);
	if (nvme_get16(cqe + CQE_SQHD) >= queue->shape.entries)
		nh_die("queue %u: the head of the queue is %u", queue->qid,
			nvme_get16(cqe + CQE_SQHD));
	cmd->status = nvme_get16(cqe + CQE_STATUS) >> 1;
	cmd->result = nvme_get64(cqe + CQE_RESULT);
	cmd->came = true;
	take_key(cmd, wc);
	if (!queue->deaf)
		post_answer(queue, index);
	return cmd;
}

static void
take(struct nh_queue *queue, const struct ibv_wc *wc)
{
	uint32_t index = (uint32_t)wc->wr_id;
	struct nh_cmd *cmd = NULL;

	if (wc->status != IBV_WC_SUCCESS) {
		nh_rdma_ended(queue, ibv_wc_status_str(wc->status));
		return;
	}
	switch ((enum kind)(wc->wr_id >> KIND_SHIFT)) {
	case KIND_ANSWER:
		cmd = take_answer(queue, wc, index);
		break;
	case KIND_COMMAND:
		cmd = &queue->cmd[index];
		cmd->sent = true;
		break;
	default:
		nh_die("queue %u: a completion that nobody has asked for", queue->qid);
	}
	if (cmd->sent && cmd->came)
		cmd->state = NH_ANSWERED;
}

static bool
take_all(struct nh *h)
{
	struct ibv_wc wc[CQES_A_BURST];
	bool any = false;
	uint32_t i;
	int n, k;

	for (i = 0; i <= NH_MAX_QUEUES; i++) {
		if (h->queue[i] == NULL)
			continue;
		while ((n = ibv_poll_cq(h->queue[i]->cq, CQES_A_BURST, wc)) > 0) {
			for (k = 0; k < n; k++)
				take(h->queue[i], &wc[k]);
			any = true;
		}
		nh_must(n == 0, "ibv_poll_cq");
	}
	return any;
}

static void
wake_me(struct nh *h)
{
	uint32_t i;

	for (i = 0; i <= NH_MAX_QUEUES; i++)
		if (h->queue[i] != NULL)
			nh_must(ibv_req_notify_cq(h->queue[i]->cq, 0) == 0, "ibv_req_notify_cq");
}

void
nh_wait(struct nh *h)
{
	struct pollfd fds[2] = {{.events = POLLIN}, {.events = POLLIN}};
	struct ibv_cq *cq;
	void *queue;

	if (take_all(h))
		return;
	wake_me(h);
	if (take_all(h))
		return;
	fds[0].fd = h->channel->fd;
	fds[1].fd = h->events->fd;
	if (poll(fds, 2, (int)h->opt.patience_s * 1000) == 0)
		nh_die("nothing happens for %u s", h->opt.patience_s);
	while (ibv_get_cq_event(h->channel, &cq, &queue) == 0)
		((struct nh_queue *)queue)->unacked++;
	take_all(h);
	nh_rdma_events(h);
}

uint16_t
nh_run(struct nh_cmd *cmd)
{
	nh_must(cmd != NULL, "a free command");
	nh_cmd_post(cmd);
	while (cmd->state != NH_ANSWERED)
		nh_wait(cmd->queue->host);
	return cmd->status;
}

uint16_t
nh_code(const struct nh_cmd *cmd)
{
	return (uint16_t)(cmd->status & ~(NVME_DNR | NVME_MORE));
}

void
nh_run_to(struct nh_cmd *cmd, uint16_t status, const char *what)
{
	nh_run(cmd);
	if (nh_code(cmd) != status)
		nh_die("%s: status %#x instead of %#x", what, cmd->status, status);
	nh_cmd_put(cmd);
}
