/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Commands of the NVM command set.  Work on files is done by a thread of the pool; memory is copied
 * at once, except for ranges that may be long.
 */
#include <errno.h>

#include "ns.h"
#include "pool.h"
#include "target_priv.h"

#define FORCE_ACCESS   0x40000000u
#define DSM_DEALLOCATE 0x04u
#define DEALLOCATE     0x02000000u /* of Write Zeroes */

static uint64_t
lba_of(const struct nt_cmd *cmd)
{
	return nvme_get64(cmd->sqe + SQE_CDW10);
}

static uint32_t
blocks_of(const struct nt_cmd *cmd)
{
	return nvme_get16(cmd->sqe + SQE_CDW12) + 1u;
}

/* --- executed by threads of the pool, or at once if the namespace is memory --- */

static void
work_read(struct nt_cmd *cmd)
{
	int rc = nt_ns_read(cmd->ns, lba_of(cmd), cmd->data, cmd->len);

	cmd->status = rc == 0 ? NVME_OK : NVME_READ_ERROR;
}

static void
work_write(struct nt_cmd *cmd)
{
	int rc = nt_ns_write(cmd->ns, lba_of(cmd), cmd->data, cmd->len);

	if (rc == 0 && (nt_dword(cmd, SQE_CDW12) & FORCE_ACCESS) != 0)
		rc = nt_ns_flush(cmd->ns);
	cmd->status = rc == 0 ? NVME_OK : NVME_WRITE_FAULT;
}

static void
work_compare(struct nt_cmd *cmd)
{
	int rc = nt_ns_compare(cmd->ns, lba_of(cmd), cmd->data, cmd->len);

	if (rc == 0)
		cmd->status = NVME_OK;
	else
		cmd->status = rc == -EILSEQ ? NT_FAIL(NVME_COMPARE_FAILURE) : NVME_READ_ERROR;
}

static void
work_flush(struct nt_cmd *cmd)
{
	const struct nt_target *target = cmd->queue->target;
	uint32_t i;
	int rc = 0;

	if (cmd->ns != NULL)
		rc = nt_ns_flush(cmd->ns);
	else
		for (i = 0; rc == 0 && i < target->nns; i++)
			rc = nt_ns_flush(target->ns[i]);
	cmd->status = rc == 0 ? NVME_OK : NVME_WRITE_FAULT;
}

static void
work_zero(struct nt_cmd *cmd)
{
	uint32_t dw12 = nt_dword(cmd, SQE_CDW12);
	int rc = 0;

	if ((dw12 & DEALLOCATE) != 0 && cmd->ns->punches)
		nt_ns_deallocate(cmd->ns, lba_of(cmd), blocks_of(cmd));
	else
		rc = nt_ns_zero(cmd->ns, lba_of(cmd), blocks_of(cmd));
	if (rc == 0 && (dw12 & FORCE_ACCESS) != 0)
		rc = nt_ns_flush(cmd->ns);
	cmd->status = rc == 0 ? NVME_OK : NVME_WRITE_FAULT;
}

static void
work_deallocate(struct nt_cmd *cmd)
{
	uint32_t n = cmd->sqe[SQE_CDW10] + 1u, i;

	cmd->status = NVME_OK;
	for (i = 0; i < n; i++) {
		const uint8_t *range = cmd->data + i * NVME_DSM_RANGE;
		uint64_t lba = nvme_get64(range + 8);
		uint32_t blocks = nvme_get32(range + 4);

		if (!nt_ns_holds(cmd->ns, lba, blocks)) {
			cmd->status = NT_FAIL(NVME_LBA_RANGE);
			return;
		}
		nt_ns_deallocate(cmd->ns, lba, blocks);
	}
}

/* --- on the transport's thread --- */

/* Check the range of a command, and whether it may write. */
static uint16_t
check_range(const struct nt_cmd *cmd, const struct nt_ns *ns)
{
	return nt_ns_holds(ns, lba_of(cmd), blocks_of(cmd)) ? NVME_OK : NT_FAIL(NVME_LBA_RANGE);
}

static uint16_t
check_writable(const struct nt_ns *ns)
{
	return ns->read_only ? NT_FAIL(NVME_WRITE_PROTECTED) : NVME_OK;
}

static uint16_t
begin_blocks(struct nt_cmd *cmd, enum nt_dir dir, void (*work)(struct nt_cmd *))
{
	cmd->dir = dir;
	cmd->len = dir == NT_NO_DATA ? 0 : blocks_of(cmd) << cmd->ns->shift;
	cmd->work = work;
	return check_range(cmd, cmd->ns);
}

/* Hosts may send more data than the ranges need. */
static uint16_t
begin_dsm(struct nt_cmd *cmd)
{
	const uint8_t *sgl = cmd->sqe + SQE_SGL;
	uint32_t least = (cmd->sqe[SQE_CDW10] + 1u) * NVME_DSM_RANGE;
	bool keyed = (sgl[15] & 0xf0) == NVME_SGL_KEYED;

	cmd->dir = NT_FROM_HOST;
	cmd->len = keyed ? (uint32_t)(sgl[8] | sgl[9] << 8 | sgl[10] << 16) : nvme_get32(sgl + 8);
	cmd->work = work_deallocate;
	return cmd->len < least ? NT_FAIL(NVME_SGL_LENGTH) : NVME_OK;
}

uint16_t
nt_io_begin(struct nt_cmd *cmd)
{
	uint32_t nsid = nt_dword(cmd, SQE_NSID);
	uint8_t opcode = cmd->sqe[SQE_OPCODE];
	uint16_t status = NVME_OK;

	cmd->ns = nt_ns_of(cmd->queue->target, nsid);
	if (opcode == NVME_IO_FLUSH && (cmd->ns != NULL || nsid == NVME_NSID_ALL)) {
		cmd->work = work_flush;
		return NVME_OK;
	}
	if (opcode != NVME_IO_FLUSH && opcode != NVME_IO_WRITE && opcode != NVME_IO_READ &&
		opcode != NVME_IO_COMPARE && opcode != NVME_IO_WRITE_ZEROES &&
		opcode != NVME_IO_DSM)
		return NT_FAIL(NVME_INVALID_OPCODE);
	if (cmd->ns == NULL)
		return NT_FAIL(NVME_INVALID_NS);
	if (opcode == NVME_IO_WRITE || opcode == NVME_IO_WRITE_ZEROES || opcode == NVME_IO_DSM)
		status = check_writable(cmd->ns);
	if (status != NVME_OK)
		return status;
	switch (opcode) {
	case NVME_IO_READ:
		return begin_blocks(cmd, NT_TO_HOST, work_read);
	case NVME_IO_WRITE:
		return begin_blocks(cmd, NT_FROM_HOST, work_write);
	case NVME_IO_COMPARE:
		return begin_blocks(cmd, NT_FROM_HOST, work_compare);
	case NVME_IO_WRITE_ZEROES:
		return begin_blocks(cmd, NT_NO_DATA, work_zero);
	default:
		return begin_dsm(cmd);
	}
}

/* Is the command short enough to be executed at once? */
static bool
short_work(const struct nt_cmd *cmd)
{
	if (cmd->ns == NULL || cmd->ns->memory == NULL)
		return false;
	return cmd->sqe[SQE_OPCODE] != NVME_IO_WRITE_ZEROES && cmd->sqe[SQE_OPCODE] != NVME_IO_DSM;
}

void
nt_io_execute(struct nt_cmd *cmd)
{
	if (cmd->sqe[SQE_OPCODE] == NVME_IO_DSM &&
		(nt_dword(cmd, SQE_CDW11) & DSM_DEALLOCATE) == 0) {
		nt_cmd_done(cmd, NVME_OK, 0); /* other hints are ignored */
	} else if (short_work(cmd)) {
		cmd->work(cmd);
		nt_cmd_done(cmd, cmd->status, 0);
	} else {
		cmd->queue->working++;
		nt_pool_submit(cmd->queue->target->pool, cmd);
	}
}
