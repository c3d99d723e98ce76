/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Admin commands; identify.c and log.c have the contents of Identify and Get Log Page. */
#include "target_priv.h"

#define SAVE       0x80000000u
#define SELECT(dw) ((dw) >> 8 & 7)

enum select {
	SELECT_CURRENT,
	SELECT_DEFAULT,
	SELECT_SAVED,
	SELECT_CAPABILITIES,
};

#define CHANGEABLE  4u /* one of the capabilities of a feature */
#define NOT_ABORTED 1u

/* Returns the value of a feature that the controller only stores; NULL: other features. */
static uint32_t *
kept_feature(struct nt_ctrl *ctrl, uint8_t feature)
{
	switch (feature) {
	case NVME_FEAT_ARBITRATION:
		return &ctrl->arbitration;
	case NVME_FEAT_TEMPERATURE:
		return &ctrl->temperature;
	case NVME_FEAT_ERROR_RECOVERY:
		return &ctrl->error_recovery;
	case NVME_FEAT_WRITE_ATOMICITY:
		return &ctrl->write_atomicity;
	case NVME_FEAT_ASYNC_EVENT:
		return &ctrl->async_events;
	default:
		return NULL;
	}
}

/* Discovery controllers have only these features. */
static bool
known_to_discovery(uint8_t feature)
{
	return feature == NVME_FEAT_ASYNC_EVENT || feature == NVME_FEAT_KATO;
}

static uint64_t
queues_granted(const struct nt_ctrl *ctrl)
{
	return (ctrl->io_queues - 1) | (uint64_t)(ctrl->io_queues - 1) << 16;
}

static uint16_t
set_queues(struct nt_cmd *cmd, uint64_t *result)
{
	struct nt_ctrl *ctrl = cmd->queue->ctrl;
	uint32_t dw11 = nt_dword(cmd, SQE_CDW11), i;
	uint32_t sq = (dw11 & 0xffff) + 1, cq = (dw11 >> 16) + 1;
	uint32_t n = sq < cq ? sq : cq, most = cmd->queue->target->config.max_io;

	if ((dw11 & 0xffff) == 0xffff || dw11 >> 16 == 0xffff)
		return NT_FAIL(NVME_INVALID_FIELD);
	for (i = 1; i <= NT_MAX_IO; i++)
		if (ctrl->queues[i] != NULL)
			return NT_FAIL(NVME_SEQUENCE);
	ctrl->io_queues = n < most ? n : most;
	*result = queues_granted(ctrl);
	return NVME_OK;
}

uint16_t
nt_set_features(struct nt_cmd *cmd, uint64_t *result)
{
	struct nt_ctrl *ctrl = cmd->queue->ctrl;
	uint8_t feature = cmd->sqe[SQE_CDW10];
	uint32_t value = nt_dword(cmd, SQE_CDW11);
	uint32_t *kept = kept_feature(ctrl, feature);

	if (ctrl->discovery && !known_to_discovery(feature))
		return NT_FAIL(NVME_INVALID_FIELD);
	if ((nt_dword(cmd, SQE_CDW10) & SAVE) != 0)
		return NT_FAIL(NVME_NOT_SAVEABLE);
	if (kept != NULL) {
		*kept = value;
		return NVME_OK;
	}
	switch (feature) {
	case NVME_FEAT_POWER:
		return value == 0 ? NVME_OK : NT_FAIL(NVME_INVALID_FIELD);
	case NVME_FEAT_WRITE_CACHE: /* the cache of the kernel, which cannot be turned off for
				     * one file */
		return (value & 1) != 0 ? NVME_OK : NT_FAIL(NVME_NOT_CHANGEABLE);
	case NVME_FEAT_QUEUES:
		return set_queues(cmd, result);
	case NVME_FEAT_KATO:
		ctrl->kato_ms = value;
		nt_ctrl_alive(cmd->queue->target, ctrl);
		return NVME_OK;
	case NVME_FEAT_HOST_ID: /* set by Connect */
		return NT_FAIL(NVME_SEQUENCE);
	default:
		return NT_FAIL(NVME_INVALID_FIELD);
	}
}

uint16_t
nt_get_features(struct nt_cmd *cmd, uint64_t *result)
{
	struct nt_ctrl *ctrl = cmd->queue->ctrl;
	uint32_t select = SELECT(nt_dword(cmd, SQE_CDW10));
	uint8_t feature = cmd->sqe[SQE_CDW10];
	uint32_t *kept = kept_feature(ctrl, feature);
	bool current = select == SELECT_CURRENT;

	if (select > SELECT_CAPABILITIES || (ctrl->discovery && !known_to_discovery(feature)))
		return NT_FAIL(NVME_INVALID_FIELD);
	switch (feature) {
	case NVME_FEAT_POWER:
		*result = 0;
		break;
	case NVME_FEAT_WRITE_CACHE:
		*result = 1;
		break;
	case NVME_FEAT_QUEUES:
		*result = queues_granted(ctrl);
		break;
	case NVME_FEAT_KATO:
		*result = current ? ctrl->kato_ms : 0;
		break;
	case NVME_FEAT_HOST_ID:
		if ((nt_dword(cmd, SQE_CDW11) & 1) == 0) /* Fabrics does not use 64-bit
							  * identifiers */
			return NT_FAIL(NVME_INVALID_FIELD);
		memcpy(cmd->data, ctrl->hostid, NVME_HOSTID_LEN);
		break;
	default:
		if (kept == NULL)
			return NT_FAIL(NVME_INVALID_FIELD);
		*result = current ? *kept : 0;
	}
	if (select == SELECT_CAPABILITIES)
		*result = kept != NULL || feature == NVME_FEAT_KATO || feature == NVME_FEAT_QUEUES
			? CHANGEABLE
			: 0;
	return NVME_OK;
}

static void
admin_async_event(struct nt_cmd *cmd)
{
	struct nt_ctrl *ctrl = cmd->queue->ctrl;

	if (ctrl->naers == NT_AERS) {
		nt_cmd_done(cmd, NT_FAIL(NVME_AER_LIMIT), 0);
		return;
	}
	ctrl->aers[ctrl->naers++] = cmd;
	nt_ctrl_tell(ctrl);
}

uint16_t
nt_admin_begin(struct nt_cmd *cmd)
{
	bool discovery = cmd->queue->ctrl->discovery;

	switch (cmd->sqe[SQE_OPCODE]) {
	case NVME_ADMIN_IDENTIFY:
		cmd->dir = NT_TO_HOST;
		cmd->len = NVME_IDENTIFY_LEN;
		return NVME_OK;
	case NVME_ADMIN_GET_LOG:
		return nt_log_begin(cmd);
	case NVME_ADMIN_GET_FEATURES:
		if (cmd->sqe[SQE_CDW10] == NVME_FEAT_HOST_ID) {
			cmd->dir = NT_TO_HOST;
			cmd->len = NVME_HOSTID_LEN;
		}
		return NVME_OK;
	case NVME_ADMIN_SET_FEATURES:
	case NVME_ADMIN_ASYNC_EVENT:
	case NVME_ADMIN_KEEP_ALIVE:
		return NVME_OK;
	case NVME_ADMIN_ABORT:
		return discovery ? NT_FAIL(NVME_INVALID_OPCODE) : NVME_OK;
	default:
		return NT_FAIL(NVME_INVALID_OPCODE);
	}
}

void
nt_admin_execute(struct nt_cmd *cmd)
{
	uint64_t result = 0;
	uint16_t status = NVME_OK;

	switch (cmd->sqe[SQE_OPCODE]) {
	case NVME_ADMIN_IDENTIFY:
		status = nt_identify(cmd);
		break;
	case NVME_ADMIN_GET_LOG:
		status = nt_log(cmd);
		break;
	case NVME_ADMIN_GET_FEATURES:
		status = nt_get_features(cmd, &result);
		break;
	case NVME_ADMIN_SET_FEATURES:
		status = nt_set_features(cmd, &result);
		break;
	case NVME_ADMIN_ASYNC_EVENT:
		admin_async_event(cmd);
		return;
	case NVME_ADMIN_ABORT: /* commands that have begun end soon enough */
		result = NOT_ABORTED;
		break;
	default: /* keep alive: every command has that effect */
		break;
	}
	nt_cmd_done(cmd, status, status == NVME_OK ? result : 0);
}
