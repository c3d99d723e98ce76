/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The target, its connections, and the steps of a command. */
#include "target.h"

#include <errno.h>
#include <stdlib.h>

#include "ns.h"
#include "pool.h"
#include "target_priv.h"

int
nt_target_init(struct nt_target *target, const struct nt_config *config, const struct nt_ops *ops,
	struct nt_pool *pool)
{
	memset(target, 0, sizeof(*target));
	target->ctrls = calloc(config->max_ctrls, sizeof(target->ctrls[0]));
	if (target->ctrls == NULL)
		return -ENOMEM;
	target->config = *config;
	target->ops = ops;
	target->pool = pool;
	target->generation = 1;
	return 0;
}

void
nt_target_fini(struct nt_target *target)
{
	uint32_t i;

	for (i = 0; i < target->nns; i++)
		nt_ns_close(target->ns[i]);
	free(target->ctrls);
	memset(target, 0, sizeof(*target));
}

int
nt_target_add_ns(struct nt_target *target, struct nt_ns *ns)
{
	if (target->nns == NT_MAX_NS)
		return -ENOSPC;
	target->ns[target->nns++] = ns;
	nt_ns_name(ns, target->config.nqn, target->nns);
	return 0;
}

struct nt_ns *
nt_ns_of(const struct nt_target *target, uint32_t nsid)
{
	return nsid == 0 || nsid > target->nns ? NULL : target->ns[nsid - 1];
}

enum nvme_rdma_reject
nt_request_parse(const struct nt_config *config, const uint8_t *data, uint32_t len, uint16_t *qid,
	uint16_t *entries)
{
	uint32_t size;

	if (data == NULL || len < NVME_RDMA_PRIV_LEN)
		return NVME_RDMA_INVALID_LEN;
	if (nvme_get16(data + RDMA_REQ_RECFMT) != 0)
		return NVME_RDMA_INVALID_RECFMT;
	if (nvme_get16(data + RDMA_REQ_QID) > config->max_io)
		return NVME_RDMA_INVALID_QID;
	*qid = nvme_get16(data + RDMA_REQ_QID);
	size = nvme_get16(data + RDMA_REQ_HSQSIZE) + 1u;
	if (size < 2 || size > (*qid == 0 ? NVME_AQ_ENTRIES : config->queue_size))
		return NVME_RDMA_INVALID_HSQSIZE;
	if (nvme_get16(data + RDMA_REQ_HRQSIZE) == 0)
		return NVME_RDMA_INVALID_HRQSIZE;
	*entries = (uint16_t)size;
	return NVME_RDMA_ACCEPT;
}

void
nt_queue_init(struct nt_queue *queue, struct nt_target *target, uint16_t qid, uint16_t entries)
{
	memset(queue, 0, sizeof(*queue));
	queue->target = target;
	queue->qid = qid;
	queue->max_size = entries;
	queue->size = entries;
}

void
nt_queue_gone(struct nt_queue *queue)
{
	struct nt_ctrl *ctrl = queue->ctrl;

	queue->ctrl = NULL;
	if (ctrl == NULL)
		return;
	ctrl->queues[queue->qid] = NULL;
	if (queue->qid == 0)
		nt_ctrl_end(queue->target, ctrl);
}

/* Finds the location of the data from the only descriptor of a command. */
static uint16_t
begin_data(struct nt_cmd *cmd, uint8_t *capsule, uint32_t capsule_len)
{
	const uint8_t *sgl = cmd->sqe + SQE_SGL;
	uint64_t offset, room = capsule_len - NVME_SQE_LEN;

	switch (sgl[15]) {
	case NVME_SGL_DATA_OFFSET:
		offset = nvme_get64(sgl);
		if (cmd->dir != NT_FROM_HOST)
			return NT_FAIL(NVME_SGL_TYPE);
		if (nvme_get32(sgl + 8) != cmd->len)
			return NT_FAIL(NVME_SGL_LENGTH);
		if (offset > room || cmd->len > room - offset)
			return NT_FAIL(NVME_SGL_OFFSET);
		cmd->in_capsule = true;
		cmd->data = capsule + NVME_SQE_LEN + offset;
		return NVME_OK;
	case NVME_SGL_KEYED:
	case NVME_SGL_KEYED_INV:
		cmd->raddr = nvme_get64(sgl);
		if ((uint32_t)(sgl[8] | sgl[9] << 8 | sgl[10] << 16) != cmd->len)
			return NT_FAIL(NVME_SGL_LENGTH);
		cmd->rkey = nvme_get32(sgl + 11);
		cmd->invalidate = sgl[15] == NVME_SGL_KEYED_INV;
		return NVME_OK;
	default:
		return NT_FAIL(NVME_SGL_TYPE);
	}
}

static uint16_t
command_begin(struct nt_cmd *cmd, uint8_t *capsule, uint32_t len)
{
	bool fabrics = cmd->sqe[SQE_OPCODE] == NVME_FABRICS;
	const struct nt_ctrl *ctrl = cmd->queue->ctrl;
	uint16_t status;

	if (len < NVME_SQE_LEN)
		return NT_FAIL(NVME_INVALID_FIELD);
	if (!fabrics && (cmd->sqe[SQE_FLAGS] & NVME_FLAGS_PSDT) != NVME_FLAGS_PSDT_SGL)
		return NT_FAIL(NVME_INVALID_FIELD);
	if ((cmd->sqe[SQE_FLAGS] & NVME_FLAGS_FUSE) != 0)
		return NT_FAIL(NVME_INVALID_FIELD);
	if (fabrics)
		status = nt_fabrics_begin(cmd);
	else if (ctrl == NULL || (ctrl->csts & NVME_CSTS_RDY) == 0)
		status = NT_FAIL(NVME_SEQUENCE);
	else if (cmd->queue->qid == 0)
		status = nt_admin_begin(cmd);
	else
		status = nt_io_begin(cmd);
	if (status != NVME_OK || cmd->dir == NT_NO_DATA)
		return status;
	if (cmd->len > cmd->queue->target->config.max_transfer)
		return NT_FAIL(NVME_INVALID_FIELD);
	return begin_data(cmd, capsule, len);
}

bool
nt_cmd_begin(struct nt_cmd *cmd, struct nt_queue *queue, uint8_t *capsule, uint32_t len)
{
	memset(cmd, 0, sizeof(*cmd));
	cmd->queue = queue;
	memcpy(cmd->sqe, capsule, len < NVME_SQE_LEN ? len : NVME_SQE_LEN);
	if (queue->ctrl != NULL)
		nt_ctrl_alive(queue->target, queue->ctrl);
	cmd->status = command_begin(cmd, capsule, len);
	return cmd->status == NVME_OK;
}

void
nt_cmd_execute(struct nt_cmd *cmd)
{
	/* Fetching the host's data may have taken long, and the controller may be gone. */
	if (cmd->sqe[SQE_OPCODE] == NVME_FABRICS)
		nt_fabrics_execute(cmd);
	else if (cmd->queue->ctrl == NULL)
		nt_cmd_done(cmd, NT_FAIL(NVME_SEQUENCE), 0);
	else if (cmd->queue->qid == 0)
		nt_admin_execute(cmd);
	else
		nt_io_execute(cmd);
}

void
nt_target_reap(struct nt_target *target)
{
	struct nt_cmds done;
	struct nt_cmd *cmd;

	nt_pool_reap(target->pool, &done);
	while ((cmd = STAILQ_FIRST(&done)) != NULL) {
		STAILQ_REMOVE_HEAD(&done, next);
		cmd->queue->working--;
		nt_cmd_done(cmd, cmd->status, 0);
	}
}

void
nt_cmd_done(struct nt_cmd *cmd, uint16_t status, uint64_t result)
{
	cmd->status = status;
	cmd->result = result;
	cmd->queue->target->ops->complete(cmd);
}

static void
target_count(struct nt_counters *counters, const struct nt_cmd *cmd)
{
	if (cmd->status != NVME_OK)
		counters->failed++;
	if (cmd->queue->qid == 0 || cmd->sqe[SQE_OPCODE] == NVME_FABRICS) {
		counters->admin++;
	} else if (cmd->sqe[SQE_OPCODE] == NVME_IO_READ) {
		counters->reads++;
		counters->read_bytes += cmd->status == NVME_OK ? cmd->len : 0;
	} else if (cmd->sqe[SQE_OPCODE] == NVME_IO_WRITE) {
		counters->writes++;
		counters->written_bytes += cmd->status == NVME_OK ? cmd->len : 0;
	} else {
		counters->others++;
	}
}

void
nt_cmd_cqe(struct nt_cmd *cmd, uint8_t *cqe)
{
	struct nt_queue *queue = cmd->queue;

	target_count(&queue->target->counters, cmd);
	if (cmd->status != NVME_OK && queue->ctrl != NULL)
		nt_ctrl_log_error(queue->ctrl, cmd);
	queue->sqhd = (uint16_t)((queue->sqhd + 1u) % queue->size);
	memset(cqe, 0, NVME_CQE_LEN);
	nvme_put64(cqe + CQE_RESULT, cmd->result);
	nvme_put16(cqe + CQE_SQHD, queue->no_sq_flow ? 0xffff : queue->sqhd);
	memcpy(cqe + CQE_CID, cmd->sqe + SQE_CID, 2);
	nvme_put16(cqe + CQE_STATUS, (uint16_t)(cmd->status << 1));
}
