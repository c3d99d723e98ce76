/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Log pages, including that of the discovery service. */
#include <stdio.h>

#include "target_priv.h"

#define RETAIN_EVENT    0x8000u
#define ERROR_LEN       64u
#define SMART_LEN       512u
#define FIRMWARE_LEN    512u
#define EFFECTS_LEN     4096u
#define EFFECTS_IO      1024u
#define CHANGED_LEN     4096u
#define DISCOVERY_LEN   (2 * NVME_DISC_ENTRY)
#define LONGEST         4096u
#define SUPPORTED       0x00000001u
#define CHANGES_CONTENT 0x00000002u
#define ROOM_K          293     /* reported as temperature, because there is no sensor */
#define DATA_UNIT       512000u /* 1000 blocks of 512 bytes */

#define DISC_IPV4         1
#define DISC_IPV6         2
#define DISC_SUBTYPE_NVM  2
#define DISC_TREQ_NO_FLOW 0x04 /* SQ flow control may be disabled */
#define DISC_CONNECTED    1
#define DISC_NO_PROVIDER  1 /* the kind of RDMA transport is not specified */

static void
error_log(const struct nt_ctrl *ctrl, uint8_t *d)
{
	uint64_t n = ctrl->nerrors < NT_ERRORS ? ctrl->nerrors : NT_ERRORS, i;

	for (i = 0; i < n; i++, d += ERROR_LEN) { /* latest entry first */
		const struct nt_error *e = &ctrl->errors[(ctrl->nerrors - 1 - i) % NT_ERRORS];

		nvme_put64(d, e->count);
		nvme_put16(d + 8, e->sqid);
		nvme_put16(d + 10, e->cid);
		nvme_put16(d + 12, e->status);
		nvme_put16(d + 14, 0xffff); /* location of the error in the command: not
					     * specified */
		nvme_put64(d + 16, e->lba);
		nvme_put32(d + 24, e->nsid);
	}
}

static uint64_t
log_units(uint64_t bytes)
{
	return (bytes + DATA_UNIT - 1) / DATA_UNIT;
}

static void
smart_log(const struct nt_target *target, const struct nt_ctrl *ctrl, uint8_t *d)
{
	const struct nt_counters *c = &target->counters;

	nvme_put16(d + 1, ROOM_K);
	d[3] = 100; /* percent of spare capacity */
	d[4] = 10;  /* a warning below this percentage */
	nvme_put64(d + 32, log_units(c->read_bytes));
	nvme_put64(d + 48, log_units(c->written_bytes));
	nvme_put64(d + 64, c->reads);
	nvme_put64(d + 80, c->writes);
	nvme_put64(d + 176, ctrl->nerrors);
}

static void
firmware_log(uint8_t *d)
{
	size_t n = strlen(KARST_VERSION);

	d[0] = 1; /* slot 1 is active */
	memset(d + 8, ' ', 8);
	memcpy(d + 8, KARST_VERSION, n < 8 ? n : 8);
}

static void
changed_log(struct nt_ctrl *ctrl, bool retain, uint8_t *d)
{
	uint32_t i;

	for (i = 0; i < NT_MAX_NS; i++) {
		if ((ctrl->changed_ns >> i & 1) == 0)
			continue;
		nvme_put32(d, i + 1);
		d += 4;
	}
	if (!retain) {
		ctrl->changed_ns = 0;
		ctrl->tell_changed_ns = false;
	}
}

static void
effects_log(uint8_t *d)
{
	static const uint8_t admin[] = {NVME_ADMIN_GET_LOG, NVME_ADMIN_IDENTIFY, NVME_ADMIN_ABORT,
		NVME_ADMIN_SET_FEATURES, NVME_ADMIN_GET_FEATURES, NVME_ADMIN_ASYNC_EVENT,
		NVME_ADMIN_KEEP_ALIVE};
	static const uint8_t reads[] = {NVME_IO_FLUSH, NVME_IO_READ, NVME_IO_COMPARE};
	static const uint8_t writes[] = {NVME_IO_WRITE, NVME_IO_WRITE_ZEROES, NVME_IO_DSM};
	uint32_t i;

	for (i = 0; i < sizeof(admin); i++)
		nvme_put32(d + admin[i] * 4u, SUPPORTED);
	for (i = 0; i < sizeof(reads); i++)
		nvme_put32(d + EFFECTS_IO + reads[i] * 4u, SUPPORTED);
	for (i = 0; i < sizeof(writes); i++)
		nvme_put32(d + EFFECTS_IO + writes[i] * 4u, SUPPORTED | CHANGES_CONTENT);
}

static void
discovery_log(const struct nt_target *target, const struct nt_queue *queue, uint8_t *d)
{
	nvme_put64(d + DISC_GENERATION, target->generation);
	nvme_put64(d + DISC_COUNT, 1);
	d += NVME_DISC_ENTRY;
	d[DISC_TRTYPE] = DISC_RDMA;
	d[DISC_ADRFAM] = queue->ipv6 ? DISC_IPV6 : DISC_IPV4;
	d[DISC_SUBTYPE] = DISC_SUBTYPE_NVM;
	d[DISC_TREQ] = DISC_TREQ_NO_FLOW;
	nvme_put16(d + DISC_PORTID, 1);
	nvme_put16(d + DISC_CNTLID, NVME_CNTLID_ANY);
	nvme_put16(d + DISC_ASQSZ, NVME_AQ_ENTRIES);
	snprintf((char *)d + DISC_TRSVCID, 32, "%s", queue->port);
	snprintf((char *)d + DISC_SUBNQN, NVME_NQN_FIELD, "%s", target->config.nqn);
	snprintf((char *)d + DISC_TRADDR, 256, "%s", queue->address);
	d[DISC_QPTYPE] = DISC_CONNECTED;
	d[DISC_PRTYPE] = DISC_NO_PROVIDER;
	d[DISC_CMS] = DISC_RDMA_CM;
}

/* Returns the size of a page in bytes; 0: there is no such page. */
static uint32_t
page_len(const struct nt_ctrl *ctrl, uint8_t page)
{
	if (ctrl->discovery && page != NVME_LOG_ERROR)
		return page == NVME_LOG_DISCOVERY ? DISCOVERY_LEN : 0;
	switch (page) {
	case NVME_LOG_ERROR:
		return NT_ERRORS * ERROR_LEN;
	case NVME_LOG_SMART:
		return SMART_LEN;
	case NVME_LOG_FIRMWARE:
		return FIRMWARE_LEN;
	case NVME_LOG_CHANGED_NS:
		return CHANGED_LEN;
	case NVME_LOG_EFFECTS:
		return EFFECTS_LEN;
	default:
		return 0;
	}
}

uint16_t
nt_log_begin(struct nt_cmd *cmd)
{
	uint64_t dwords = (nt_dword(cmd, SQE_CDW10) >> 16 |
				  (uint64_t)(nt_dword(cmd, SQE_CDW11) & 0xffff) << 16) +
		1;

	if (page_len(cmd->queue->ctrl, cmd->sqe[SQE_CDW10]) == 0)
		return NT_FAIL(NVME_INVALID_LOG);
	if (dwords * 4 > cmd->queue->target->config.max_transfer)
		return NT_FAIL(NVME_INVALID_FIELD);
	cmd->dir = NT_TO_HOST;
	cmd->len = (uint32_t)dwords * 4;
	return NVME_OK;
}

uint16_t
nt_log(struct nt_cmd *cmd)
{
	uint64_t offset = nvme_get64(cmd->sqe + SQE_CDW12);
	struct nt_ctrl *ctrl = cmd->queue->ctrl;
	uint8_t whole[LONGEST] = {0}, page = cmd->sqe[SQE_CDW10];
	bool retain = (nt_dword(cmd, SQE_CDW10) & RETAIN_EVENT) != 0;
	uint32_t len = page_len(ctrl, page);

	if (offset > len || (offset & 3) != 0)
		return NT_FAIL(NVME_INVALID_FIELD);
	switch (page) {
	case NVME_LOG_ERROR:
		error_log(ctrl, whole);
		break;
	case NVME_LOG_SMART:
		smart_log(cmd->queue->target, ctrl, whole);
		break;
	case NVME_LOG_FIRMWARE:
		firmware_log(whole);
		break;
	case NVME_LOG_CHANGED_NS:
		changed_log(ctrl, retain, whole);
		break;
	case NVME_LOG_EFFECTS:
		effects_log(whole);
		break;
	default:
		discovery_log(cmd->queue->target, cmd->queue, whole);
	}
	len -= (uint32_t)offset;
	memset(cmd->data, 0, cmd->len); /* bytes behind the page are 0 */
	memcpy(cmd->data, whole + offset, len < cmd->len ? len : cmd->len);
	return NVME_OK;
}
