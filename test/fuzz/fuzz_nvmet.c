/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Fuzz target: karst-nvmet's target, against hosts that may send anything.
 *
 * An input is a list of steps, a byte each with its arguments behind it: a capsule whose bytes are
 * in the input; one with a plausible command of which some bytes are changed; Connect; an end of a
 * connection; data of the host that comes late, when its connection may be gone; time; a namespace
 * that changes.
 *
 * What must hold: no sanitizer report, for which capsules, buffers and namespaces have exactly
 * their lengths; each command is answered once, or waits for an event; no buffer is longer than it
 * may be; controllers, queues and their counts agree; and when all connections are gone, nothing is
 * left.
 */
#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"
#include "input.h"
#include "ns.h"
#include "pool.h"
#include "target.h"

#define QUEUES   6u
#define LATE     8u
#define BLOCKS   64u
#define IN_CAPS  1024u
#define TRANSFER 8192u
#define CHANGES  4u

/* The command must be first: it is all that the target knows. */
struct request {
	struct nt_cmd cmd;
	struct request *next, **prev; /* in the list of all that are not answered */
	uint8_t *capsule, *buffer;
};

static struct fuzz {
	struct input in;
	struct nt_target target;
	struct nt_queue queues[QUEUES];
	bool up[QUEUES];
	struct request *open;
	struct request *late[LATE];
	uint64_t now_ms;
} fuzz;

static struct nt_pool *pool;

static void
forget(struct request *request)
{
	uint32_t i;

	for (i = 0; i < LATE; i++)
		if (fuzz.late[i] == request)
			fuzz.late[i] = NULL;
	*request->prev = request->next;
	if (request->next != NULL)
		request->next->prev = request->prev;
	free(request->capsule);
	free(request->buffer);
	free(request);
}

static void
complete(struct nt_cmd *cmd)
{
	struct request *request = (struct request *)cmd, *r;
	uint8_t cqe[NVME_CQE_LEN];

	for (r = fuzz.open; r != NULL && r != request; r = r->next)
		;
	CHECK(r == request);
	nt_cmd_cqe(cmd, cqe);
	CHECK(memcmp(cqe + 12, cmd->sqe + SQE_CID, 2) == 0);
	CHECK(nvme_get16(cqe + 8) < cmd->queue->size || cmd->queue->no_sq_flow);
	forget(request);
}

/* Frees the requests of a closed connection, as the transport does. */
static void
queue_down(struct nt_queue *queue)
{
	struct request *request, *next;
	uint32_t i = (uint32_t)(queue - fuzz.queues);

	CHECK(queue->working == 0);
	fuzz.up[i] = false;
	nt_queue_gone(queue);
	CHECK(queue->ctrl == NULL);
	for (request = fuzz.open; request != NULL; request = next) {
		next = request->next;
		if (request->cmd.queue == queue)
			forget(request);
	}
}

static void
close_queue(struct nt_queue *queue)
{
	CHECK(queue->ctrl == NULL);
	queue_down(queue);
}

static const struct nt_ops ops = {
	.complete = complete,
	.close = close_queue,
};

static void
settle(const struct nt_queue *queue)
{
	while (queue->working > 0)
		nt_target_reap(&fuzz.target);
}

static void
execute(struct request *request)
{
	struct nt_queue *queue = request->cmd.queue;

	nt_cmd_execute(&request->cmd); /* @request may be gone now */
	settle(queue);
}

static void
late_data(uint32_t i)
{
	struct request *request = fuzz.late[i];

	fuzz.late[i] = NULL;
	if (request == NULL)
		return;
	bytes(&fuzz.in, request->buffer, request->cmd.len < 64 ? request->cmd.len : 64);
	execute(request);
}

static void
capsule(struct nt_queue *queue, const uint8_t *bytes_of, uint32_t len, const uint8_t *data)
{
	struct request *request = calloc(1, sizeof(*request));
	uint32_t i;

	request->prev = &fuzz.open;
	request->next = fuzz.open;
	if (fuzz.open != NULL)
		fuzz.open->prev = &request->next;
	fuzz.open = request;
	request->capsule = malloc(len > 0 ? len : 1);
	memcpy(request->capsule, bytes_of, len);
	if (!nt_cmd_begin(&request->cmd, queue, request->capsule, len)) {
		CHECK(request->cmd.status != NVME_OK);
		complete(&request->cmd);
		return;
	}
	if (request->cmd.dir != NT_NO_DATA && !request->cmd.in_capsule) {
		CHECK(request->cmd.len > 0 && request->cmd.len <= TRANSFER);
		request->buffer = calloc(1, request->cmd.len);
		request->cmd.data = request->buffer;
		if (data != NULL) {
			CHECK(request->cmd.len == NVME_CONNECT_LEN);
			memcpy(request->buffer, data, NVME_CONNECT_LEN);
		} else if (request->cmd.dir == NT_FROM_HOST) {
			i = u8(&fuzz.in) % LATE;
			late_data(i);
			/* that may have ended this queue's connection */
			if (!fuzz.up[queue - fuzz.queues])
				return;
			fuzz.late[i] = request;
			return;
		}
	}
	execute(request);
}

static void
raw(struct nt_queue *queue)
{
	uint8_t buffer[NVME_SQE_LEN + IN_CAPS];
	uint32_t len = u16(&fuzz.in) % (nt_capsule_len(&fuzz.target.config, queue->qid) + 1);

	bytes(&fuzz.in, buffer, len);
	capsule(queue, buffer, len, NULL);
}

/* A command that would be valid without the changes. */
static void
plausible(struct nt_queue *queue)
{
	static const uint8_t admin[] = {NVME_ADMIN_GET_LOG, NVME_ADMIN_IDENTIFY, NVME_ADMIN_ABORT,
		NVME_ADMIN_SET_FEATURES, NVME_ADMIN_GET_FEATURES, NVME_ADMIN_ASYNC_EVENT,
		NVME_ADMIN_KEEP_ALIVE, NVME_FABRICS};
	static const uint8_t io[] = {NVME_IO_FLUSH, NVME_IO_WRITE, NVME_IO_READ, NVME_IO_COMPARE,
		NVME_IO_WRITE_ZEROES, NVME_IO_DSM};
	uint8_t buffer[NVME_SQE_LEN + IN_CAPS] = {0}, which = u8(&fuzz.in);
	uint32_t blocks = 1u + u8(&fuzz.in) % 20, i, n;

	buffer[SQE_OPCODE] =
		queue->qid == 0 ? admin[which % sizeof(admin)] : io[which % sizeof(io)];
	buffer[SQE_FLAGS] = NVME_FLAGS_PSDT_SGL;
	nvme_put32(buffer + SQE_NSID, 1u + (which >> 7));
	if (buffer[SQE_OPCODE] == NVME_FABRICS)
		buffer[SQE_FCTYPE] = which & 0x40 ? NVME_FC_PROPERTY_SET : NVME_FC_PROPERTY_GET;
	nvme_put32(buffer + SQE_SGL + 8, queue->qid == 0 ? 4096 : blocks * 512);
	nvme_put32(buffer + SQE_SGL + 11, 77);
	buffer[SQE_SGL + 15] = NVME_SGL_KEYED_INV;
	if (queue->qid == 0) {
		nvme_put32(buffer + SQE_CDW10, u8(&fuzz.in));
		if (buffer[SQE_OPCODE] == NVME_ADMIN_GET_LOG)
			nvme_put16(buffer + SQE_CDW10 + 2, 1023);
	} else {
		nvme_put64(buffer + SQE_CDW10, u8(&fuzz.in));
		nvme_put16(buffer + SQE_CDW12, (uint16_t)(blocks - 1));
		if (blocks <= IN_CAPS / 512 && (which & 0x20) != 0) {
			memset(buffer + SQE_SGL, 0, 16);
			nvme_put32(buffer + SQE_SGL + 8, blocks * 512);
			buffer[SQE_SGL + 15] = NVME_SGL_DATA_OFFSET;
		}
	}
	for (n = u8(&fuzz.in) % CHANGES, i = 0; i < n; i++) {
		uint8_t at = u8(&fuzz.in) % NVME_SQE_LEN;

		buffer[at] = u8(&fuzz.in);
	}
	capsule(queue, buffer, nt_capsule_len(&fuzz.target.config, queue->qid), NULL);
}

static void
connect(struct nt_queue *queue)
{
	uint8_t sqe[NVME_SQE_LEN] = {0}, data[NVME_CONNECT_LEN] = {0}, how = u8(&fuzz.in);
	uint32_t i, n;

	sqe[SQE_OPCODE] = NVME_FABRICS;
	sqe[SQE_FCTYPE] = NVME_FC_CONNECT;
	nvme_put16(sqe + SQE_QID, queue->qid);
	nvme_put16(sqe + SQE_SQSIZE, (uint16_t)(queue->max_size - 1));
	nvme_put32(sqe + SQE_KATO, (how & 0x40) != 0 ? 1000 : 0);
	nvme_put32(sqe + SQE_SGL + 8, NVME_CONNECT_LEN);
	sqe[SQE_SGL + 15] = NVME_SGL_KEYED;
	nvme_put16(data + CONNECT_CNTLID, queue->qid == 0 ? NVME_CNTLID_ANY : how & 0x0f);
	strcpy((char *)data + CONNECT_SUBNQN, (how & 0x80) != 0 ? NVME_DISCOVERY : "nqn.a");
	strcpy((char *)data + CONNECT_HOSTNQN, "nqn.h");
	for (n = u8(&fuzz.in) % CHANGES, i = 0; i < n; i++) {
		uint16_t at = u16(&fuzz.in) % NVME_CONNECT_LEN;

		data[at] = u8(&fuzz.in);
	}
	if (queue->ctrl == NULL)
		capsule(queue, sqe, sizeof(sqe), data);
	else
		capsule(queue, sqe, sizeof(sqe), NULL);
	/* and enables it, as hosts do */
	if (queue->qid == 0 && queue->ctrl != NULL && (how & 0x20) == 0) {
		memset(sqe, 0, sizeof(sqe));
		sqe[SQE_OPCODE] = NVME_FABRICS;
		nvme_put32(sqe + SQE_PROP_OFFSET, NVME_PROP_CC);
		nvme_put32(sqe + SQE_PROP_VALUE, 0x00460001);
		capsule(queue, sqe, sizeof(sqe), NULL);
	}
}

static void
request_of_connection(uint32_t i)
{
	uint8_t data[56];
	uint16_t qid, entries;

	bytes(&fuzz.in, data, 10);
	memset(data + 10, 0, sizeof(data) - 10);
	if (nt_request_parse(&fuzz.target.config, data, u8(&fuzz.in) % 57, &qid, &entries) !=
		NVME_RDMA_ACCEPT)
		return;
	CHECK(entries >= 2 && entries <= 64 && qid <= 3);
	if (fuzz.up[i])
		queue_down(&fuzz.queues[i]);
	nt_queue_init(&fuzz.queues[i], &fuzz.target, qid, entries);
	fuzz.up[i] = true;
}

static void
selfcheck(void)
{
	uint32_t i, j, n = 0, m = 0;

	for (i = 0; i < fuzz.target.config.max_ctrls; i++) {
		const struct nt_ctrl *ctrl = fuzz.target.ctrls[i];

		if (ctrl == NULL)
			continue;
		CHECK(ctrl->queues[0] != NULL && ctrl->naers <= NT_AERS);
		CHECK(ctrl->io_queues <= fuzz.target.config.max_io);
		for (j = 0; j <= NT_MAX_IO; j++) {
			if (ctrl->queues[j] == NULL)
				continue;
			CHECK(ctrl->queues[j]->ctrl == ctrl && ctrl->queues[j]->qid == j);
			CHECK(j == 0 || j <= ctrl->io_queues);
			n++;
		}
	}
	for (i = 0; i < QUEUES; i++)
		m += fuzz.up[i] && fuzz.queues[i].ctrl != NULL;
	CHECK(n == m);
}

static void
step(uint8_t what)
{
	uint32_t i = (what >> 4) % QUEUES;
	struct nt_queue *queue = &fuzz.queues[i];

	switch (what & 15) {
	case 0:
		request_of_connection(i);
		return;
	case 1:
		if (!fuzz.up[i]) {
			nt_queue_init(queue, &fuzz.target, (uint16_t)(i % 4), 16);
			fuzz.up[i] = true;
		}
		connect(queue);
		return;
	case 2:
		late_data(u8(&fuzz.in) % LATE);
		return;
	case 3:
		fuzz.now_ms += u16(&fuzz.in);
		nt_target_tick(&fuzz.target, fuzz.now_ms);
		return;
	case 4:
		atomic_store(&fuzz.target.ns[0]->blocks, 1 + u8(&fuzz.in) % BLOCKS);
		nt_target_refresh(&fuzz.target);
		return;
	case 5:
		if (fuzz.up[i])
			queue_down(queue);
		return;
	case 6:
	case 7:
		if (fuzz.up[i])
			raw(queue);
		return;
	default:
		if (fuzz.up[i])
			plausible(queue);
	}
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	pool = nt_pool_start(1);
	CHECK(pool != NULL);
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct nt_config config = {
		.nqn = "nqn.a",
		.max_ctrls = 3,
		.max_io = 3,
		.queue_size = 64,
		.in_capsule = IN_CAPS,
		.max_transfer = TRANSFER,
	};
	uint32_t i;

	memset(&fuzz, 0, sizeof(fuzz));
	fuzz.in = (struct input){.p = data, .left = size};
	CHECK(nt_target_init(&fuzz.target, &config, &ops, pool) == 0);
	/* the second one is smaller than a page, so that its end is near */
	CHECK(nt_target_add_ns(&fuzz.target, nt_ns_memory(BLOCKS * 512, 9, false)) == 0);
	CHECK(nt_target_add_ns(&fuzz.target, nt_ns_memory(8 * 512, 9, false)) == 0);
	while (fuzz.in.left > 0) {
		step(u8(&fuzz.in));
		selfcheck();
	}
	for (i = 0; i < QUEUES; i++)
		if (fuzz.up[i])
			queue_down(&fuzz.queues[i]);
	CHECK(fuzz.open == NULL);
	for (i = 0; i < config.max_ctrls; i++)
		CHECK(fuzz.target.ctrls[i] == NULL);
	nt_target_fini(&fuzz.target);
	return 0;
}
