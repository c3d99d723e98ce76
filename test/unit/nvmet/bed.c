/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "bed.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "ns.h"
#include "pool.h"

#define NONE      0xffff
#define CC_READY  0x00460001u /* enabled, entries of 64 and 16 bytes */
#define PROP_WIDE 1

/* A command, its capsule of exactly the length that came, and its buffer: tools detect accesses
 * beyond them. */
struct request {
	struct nt_cmd cmd;
	struct bed *bed;
	uint8_t *capsule;
	uint8_t *buffer;
};

static void
complete(struct nt_cmd *cmd)
{
	struct request *request = (struct request *)cmd;
	struct bed *bed = request->bed;

	nt_cmd_cqe(cmd, bed->cqe);
	bed->answers++;
	bed->status = cmd->status;
	bed->result = nvme_get64(bed->cqe);
	bed->invalidated = cmd->invalidate;
	cr_assert_eq(nvme_get16(bed->cqe + 14), (uint16_t)(cmd->status << 1));
	if (cmd->dir == NT_TO_HOST && cmd->status == NVME_OK)
		memcpy(bed->host + cmd->raddr, cmd->data, cmd->len);
	free(request->capsule);
	free(request->buffer);
	free(request);
}

static void
close_queue(struct nt_queue *queue)
{
	/* The queue's target is the first member of the bed. */
	struct bed *bed = (struct bed *)queue->target;

	cr_assert_lt(bed->nclosed, BED_CLOSED);
	bed->closed[bed->nclosed++] = queue;
	nt_queue_gone(queue);
}

static const struct nt_ops ops = {
	.complete = complete,
	.close = close_queue,
};

void
bed_make(struct bed *bed)
{
	static const struct nt_config config = {
		.nqn = BED_NQN,
		.max_ctrls = 4,
		.max_io = 4,
		.queue_size = 64,
		.in_capsule = 4096,
		.max_transfer = 32 << 10,
	};
	int fd;

	memset(bed, 0, sizeof(*bed));
	bed->pool = nt_pool_start(2);
	cr_assert_not_null(bed->pool);
	cr_assert_eq(nt_target_init(&bed->target, &config, &ops, bed->pool), 0);
	strcpy(bed->path, "/tmp/karst-nvmet-XXXXXX");
	fd = mkstemp(bed->path);
	cr_assert_geq(fd, 0);
	cr_assert_eq(ftruncate(fd, BED_BLOCKS * 512), 0);
	close(fd);
	cr_assert_eq(nt_target_add_ns(&bed->target, nt_ns_memory(BED_BLOCKS * 512, 9, false)), 0);
	cr_assert_eq(nt_target_add_ns(&bed->target, nt_ns_file(bed->path, 9, false)), 0);
	nt_queue_init(&bed->admin, &bed->target, 0, 32);
	nt_queue_init(&bed->io, &bed->target, 1, 64);
	snprintf(bed->admin.address, sizeof(bed->admin.address), "192.0.2.2");
	snprintf(bed->admin.port, sizeof(bed->admin.port), "4420");
}

void
bed_end(struct bed *bed)
{
	struct nt_ctrl *ctrl = bed->admin.ctrl;
	uint32_t i;

	/* Requests that wait for events end with their connection. */
	for (i = 0; ctrl != NULL && i < ctrl->naers; i++) {
		struct request *request = (struct request *)ctrl->aers[i];

		free(request->capsule);
		free(request);
	}
	nt_queue_gone(&bed->io);
	nt_queue_gone(&bed->admin);
	for (i = 0; i < bed->target.config.max_ctrls; i++)
		cr_assert_null(bed->target.ctrls[i], "controller %u is left", i);
	nt_pool_stop(bed->pool);
	nt_target_fini(&bed->target);
	unlink(bed->path);
}

void
bed_sqe(uint8_t *sqe, uint8_t opcode, uint32_t nsid, uint32_t len)
{
	static uint16_t cid;

	memset(sqe, 0, NVME_SQE_LEN);
	sqe[SQE_OPCODE] = opcode;
	sqe[SQE_FLAGS] = NVME_FLAGS_PSDT_SGL;
	nvme_put16(sqe + SQE_CID, ++cid);
	nvme_put32(sqe + SQE_NSID, nsid);
	nvme_put32(sqe + SQE_SGL + 8, len);
	nvme_put32(sqe + SQE_SGL + 11, BED_RKEY);
	sqe[SQE_SGL + 15] = NVME_SGL_KEYED_INV;
}

void
bed_settle(struct bed *bed)
{
	struct pollfd fd = {.fd = nt_pool_fd(bed->pool), .events = POLLIN};

	while (bed->io.working + bed->admin.working > 0) {
		poll(&fd, 1, -1);
		nt_target_reap(&bed->target);
	}
}

uint16_t
bed_run(struct bed *bed, struct nt_queue *queue, const uint8_t *capsule, uint32_t len)
{
	struct request *request = calloc(1, sizeof(*request));
	uint32_t before = bed->answers;

	cr_assert_not_null(request);
	request->bed = bed;
	request->capsule = malloc(len > 0 ? len : 1);
	memcpy(request->capsule, capsule, len);
	if (!nt_cmd_begin(&request->cmd, queue, request->capsule, len)) {
		complete(&request->cmd);
		return bed->status;
	}
	if (request->cmd.dir != NT_NO_DATA && !request->cmd.in_capsule) {
		cr_assert_leq(request->cmd.len, bed->target.config.max_transfer);
		cr_assert_eq(request->cmd.rkey, BED_RKEY);
		request->buffer = malloc(request->cmd.len);
		request->cmd.data = request->buffer;
		if (request->cmd.dir == NT_FROM_HOST)
			memcpy(request->buffer, bed->host + request->cmd.raddr, request->cmd.len);
	}
	nt_cmd_execute(&request->cmd);
	bed_settle(bed);
	return bed->answers == before ? NONE : bed->status;
}

uint16_t
bed_connect(struct bed *bed, struct nt_queue *queue, const char *subnqn, uint16_t cntlid)
{
	uint8_t sqe[NVME_SQE_LEN];

	bed_sqe(sqe, NVME_FABRICS, 0, NVME_CONNECT_LEN);
	sqe[SQE_FCTYPE] = NVME_FC_CONNECT;
	nvme_put16(sqe + SQE_QID, queue->qid);
	nvme_put16(sqe + SQE_SQSIZE, queue->max_size - 1);
	memset(bed->host, 0, NVME_CONNECT_LEN);
	bed->host[CONNECT_HOSTID] = 7;
	nvme_put16(bed->host + CONNECT_CNTLID, cntlid);
	snprintf((char *)bed->host + CONNECT_SUBNQN, NVME_NQN_FIELD, "%s", subnqn);
	snprintf((char *)bed->host + CONNECT_HOSTNQN, NVME_NQN_FIELD, "%s", BED_HOST);
	return bed_run(bed, queue, sqe, sizeof(sqe));
}

uint16_t
bed_property_set(struct bed *bed, uint32_t offset, uint32_t value)
{
	uint8_t sqe[NVME_SQE_LEN];

	bed_sqe(sqe, NVME_FABRICS, 0, 0);
	sqe[SQE_FCTYPE] = NVME_FC_PROPERTY_SET;
	nvme_put32(sqe + SQE_PROP_OFFSET, offset);
	nvme_put32(sqe + SQE_PROP_VALUE, value);
	return bed_run(bed, &bed->admin, sqe, sizeof(sqe));
}

uint16_t
bed_property_get(struct bed *bed, uint32_t offset, bool wide)
{
	uint8_t sqe[NVME_SQE_LEN];

	bed_sqe(sqe, NVME_FABRICS, 0, 0);
	sqe[SQE_FCTYPE] = NVME_FC_PROPERTY_GET;
	sqe[SQE_PROP_ATTRIB] = wide ? PROP_WIDE : 0;
	nvme_put32(sqe + SQE_PROP_OFFSET, offset);
	return bed_run(bed, &bed->admin, sqe, sizeof(sqe));
}

void
bed_ready(struct bed *bed)
{
	cr_assert_eq(bed_connect(bed, &bed->admin, BED_NQN, NVME_CNTLID_ANY), NVME_OK);
	cr_assert_eq(bed_property_set(bed, NVME_PROP_CC, CC_READY), NVME_OK);
	cr_assert_eq(bed_property_get(bed, NVME_PROP_CSTS, false), NVME_OK);
	cr_assert_eq(bed->result, NVME_CSTS_RDY);
	cr_assert_eq(bed_connect(bed, &bed->io, BED_NQN, bed->admin.ctrl->cntlid), NVME_OK);
}

uint16_t
bed_io(struct bed *bed, uint8_t opcode, uint32_t nsid, uint64_t lba, uint32_t blocks)
{
	uint8_t sqe[NVME_SQE_LEN];

	bed_sqe(sqe, opcode, nsid, blocks * 512);
	nvme_put64(sqe + SQE_CDW10, lba);
	nvme_put16(sqe + SQE_CDW12, (uint16_t)(blocks - 1));
	return bed_run(bed, &bed->io, sqe, sizeof(sqe));
}
