/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Capsules and data of a connection; rdma.h describes their flow. */
#include <errno.h>
#include <stdio.h>

#include "rdma.h"

#define NO_SLOT UINT32_MAX
#define A_TURN  16 /* polls of NR_POLL completions before other queues get their turn */

/* The id of a work request: its kind in the low bits, and the index of its slot or request. */
enum kind {
	KIND_RECV,
	KIND_READ,
	KIND_WRITE,
	KIND_SEND,
};

static uint64_t
wr_id(enum kind kind, uint32_t index)
{
	return (uint64_t)index << 2 | kind;
}

static int
post_slot(struct nr_queue *queue, uint32_t slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)(queue->memory + (size_t)slot * queue->slot_len),
		.length = queue->slot_len,
		.lkey = queue->mr->lkey,
	};
	struct ibv_recv_wr wr = {.wr_id = wr_id(KIND_RECV, slot), .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	return ibv_post_recv(queue->id->qp, &wr, &bad);
}

int
nr_post_slots(struct nr_queue *queue)
{
	uint32_t i;
	int rc = 0;

	for (i = 0; rc == 0 && i < queue->nslots; i++)
		rc = post_slot(queue, i);
	return rc;
}

static void
request_free(struct nr_queue *queue, struct nr_request *request)
{
	nr_buffer_put(queue->server, request);
	SLIST_INSERT_HEAD(&queue->free, request, next);
}

/* Sends the data, if any, and the completion behind it. */
static void
io_answer(struct nr_queue *queue, struct nr_request *request)
{
	struct nt_cmd *cmd = &request->cmd;
	uint8_t *cqe = queue->answers + (size_t)request->index * NVME_CQE_LEN;
	struct ibv_sge data = {.addr = (uintptr_t)cmd->data,
		.length = cmd->len,
		.lkey = queue->device->buffers->lkey};
	struct ibv_sge sge = {
		.addr = (uintptr_t)cqe, .length = NVME_CQE_LEN, .lkey = queue->mr->lkey};
	struct ibv_send_wr send = {
		.wr_id = wr_id(KIND_SEND, request->index),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = cmd->invalidate ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.invalidate_rkey = cmd->invalidate ? cmd->rkey : 0,
	};
	struct ibv_send_wr write = {
		.wr_id = wr_id(KIND_WRITE, request->index),
		.next = &send,
		.sg_list = &data,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = {.remote_addr = cmd->raddr, .rkey = cmd->rkey},
	};
	bool has_data = cmd->dir == NT_TO_HOST && cmd->status == NVME_OK;
	struct ibv_send_wr *bad;

	nt_cmd_cqe(cmd, cqe);
	if (request->slot != NO_SLOT) {
		uint32_t slot = request->slot;

		request->slot = NO_SLOT;
		if (post_slot(queue, slot) != 0) {
			nr_queue_close(queue, "a receive could not be posted");
			return;
		}
	}
	if (ibv_post_send(queue->id->qp, has_data ? &write : &send, &bad) != 0)
		nr_queue_close(queue, "an answer could not be posted");
}

static void
io_complete(struct nt_cmd *cmd)
{
	struct nr_request *request = (struct nr_request *)cmd;
	struct nr_queue *queue = (struct nr_queue *)cmd->queue;

	if (queue->state != NR_CLOSING)
		io_answer(queue, request);
}

static void
close_queue(struct nt_queue *core)
{
	nr_queue_close((struct nr_queue *)core, "its controller has ended");
}

const struct nt_ops nr_ops = {
	.complete = io_complete,
	.close = close_queue,
};

static void
io_fetch(struct nr_queue *queue, struct nr_request *request)
{
	struct nt_cmd *cmd = &request->cmd;
	struct ibv_sge sge = {.addr = (uintptr_t)cmd->data,
		.length = cmd->len,
		.lkey = queue->device->buffers->lkey};
	struct ibv_send_wr wr = {
		.wr_id = wr_id(KIND_READ, request->index),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = cmd->raddr, .rkey = cmd->rkey},
	};
	struct ibv_send_wr *bad;

	if (ibv_post_send(queue->id->qp, &wr, &bad) != 0)
		nr_queue_close(queue, "a read could not be posted");
}

void
nr_request_run(struct nr_request *request)
{
	struct nr_queue *queue = (struct nr_queue *)request->cmd.queue;

	request->cmd.data = request->buffer->data;
	if (request->cmd.dir == NT_FROM_HOST)
		io_fetch(queue, request);
	else
		nt_cmd_execute(&request->cmd);
}

/* Begins the command of a capsule, with a free request. */
static void
io_capsule(struct nr_queue *queue, uint32_t slot)
{
	struct nr_request *request = SLIST_FIRST(&queue->free);
	uint8_t *bytes = queue->memory + (size_t)slot * queue->slot_len;

	SLIST_REMOVE_HEAD(&queue->free, next);
	request->slot = slot;
	if (!nt_cmd_begin(&request->cmd, &queue->core, bytes, queue->slot_used[slot]))
		io_complete(&request->cmd);
	else if (request->cmd.dir == NT_NO_DATA || request->cmd.in_capsule)
		nt_cmd_execute(&request->cmd);
	else if (nr_buffer_get(queue->server, request))
		nr_request_run(request);
}

static void
run_waiting(struct nr_queue *queue)
{
	while (queue->nwaiting > 0 && !SLIST_EMPTY(&queue->free) && queue->state != NR_CLOSING) {
		uint32_t slot = queue->waiting[queue->waiting_first];

		queue->waiting_first = (queue->waiting_first + 1) % queue->nslots;
		queue->nwaiting--;
		io_capsule(queue, slot);
	}
}

static void
io_completion(struct nr_queue *queue, const struct ibv_wc *wc)
{
	uint32_t index = (uint32_t)(wc->wr_id >> 2);
	struct nr_request *request;

	if (wc->status != IBV_WC_SUCCESS) {
		if (wc->status != IBV_WC_WR_FLUSH_ERR)
			queue->server->counters.lost++;
		nr_queue_close(queue, ibv_wc_status_str(wc->status));
		return;
	}
	switch (wc->wr_id & 3) {
	case KIND_RECV:
		queue->slot_used[index] = wc->byte_len;
		queue->waiting[(queue->waiting_first + queue->nwaiting++) % queue->nslots] = index;
		break;
	case KIND_READ:
		nt_cmd_execute(&queue->requests[index].cmd);
		break;
	case KIND_SEND:
		request = &queue->requests[index];
		request_free(queue, request);
		break;
	default: /* WRITEs are not signaled */
		break;
	}
	run_waiting(queue);
}

/* @return true: there may be more completions. */
static bool
poll_some(struct nr_queue *queue)
{
	struct ibv_wc wc[NR_POLL];
	int turn, i, n = 0;

	for (turn = 0; turn < A_TURN; turn++) {
		n = ibv_poll_cq(queue->cq, NR_POLL, wc);
		if (n < 0) {
			nr_queue_close(queue, "its completion queue is broken");
			return false;
		}
		for (i = 0; i < n && queue->state != NR_CLOSING; i++)
			io_completion(queue, &wc[i]);
		if (n == 0 || queue->state == NR_CLOSING)
			return false;
	}
	return true;
}

static void
io_make_ready(struct nr_queue *queue)
{
	if (queue->ready)
		return;
	queue->ready = true;
	STAILQ_INSERT_HEAD(&queue->server->ready, queue, next_ready);
}

void
nr_cq_event(struct nr_server *server, struct nr_device *device)
{
	struct nr_queue *queue;
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(device->channel, &cq, &context) != 0) {
		if (errno != EAGAIN && errno != EINTR)
			server->fatal = true;
		return;
	}
	queue = context;
	queue->unacked++;
	/* Armed again before polling: a completion that arrives in between causes another event. */
	if (ibv_req_notify_cq(cq, 0) != 0)
		nr_queue_close(queue, "its completion queue cannot be armed");
	else
		io_make_ready(queue);
}

void
nr_run_ready(struct nr_server *server)
{
	struct nr_ready now = STAILQ_HEAD_INITIALIZER(now);
	struct nr_queue *queue;

	/* a queue that has more completions is handled again in the next turn */
	STAILQ_CONCAT(&now, &server->ready);
	while ((queue = STAILQ_FIRST(&now)) != NULL) {
		STAILQ_REMOVE_HEAD(&now, next_ready);
		queue->ready = false;
		if (queue->state != NR_CLOSING && poll_some(queue))
			io_make_ready(queue);
	}
}
