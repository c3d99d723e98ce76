/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Commands of NVMe over Fabrics: Connect, and the properties of a controller. */
#include <stdio.h>

#include "target_priv.h"

#define CAP_CQR (UINT64_C(1) << 16)  /* queues must be contiguous */
#define CAP_TO  (UINT64_C(15) << 24) /* ready within 7.5 s */
#define CAP_NVM (UINT64_C(1) << 37)  /* the NVM command set */
#define IN_DATA (1u << 16)           /* the error is in the data, not in the command */

static void
connect_failed(struct nt_cmd *cmd, uint16_t code, uint64_t result)
{
	cmd->queue->target->counters.refused++;
	nt_cmd_done(cmd, NT_FAIL(code), result);
}

/* @return false, with an empty string: the field is not a string that can be a name. */
static bool
connect_get_nqn(const uint8_t *field, char *nqn)
{
	nqn[0] = '\0';
	if (field[0] == '\0' || memchr(field, '\0', NVME_NQN_LEN + 1) == NULL)
		return false;
	memcpy(nqn, field, NVME_NQN_LEN + 1);
	return true;
}

static bool
host_allowed(const struct nt_config *config, const char *hostnqn)
{
	uint32_t i;

	for (i = 0; i < config->nhosts; i++)
		if (strcmp(config->hosts[i], hostnqn) == 0)
			return true;
	return config->nhosts == 0;
}

static void
connect_done(struct nt_cmd *cmd, struct nt_ctrl *ctrl)
{
	struct nt_queue *queue = cmd->queue;

	queue->ctrl = ctrl;
	queue->size = (uint16_t)(nvme_get16(cmd->sqe + SQE_SQSIZE) + 1u);
	queue->no_sq_flow = (cmd->sqe[SQE_CATTR] & NVME_CATTR_NO_SQ_FLOW) != 0;
	ctrl->queues[queue->qid] = queue;
	nt_ctrl_alive(queue->target, ctrl);
	nt_cmd_done(cmd, NVME_OK, ctrl->cntlid);
}

static void
connect_admin(struct nt_cmd *cmd, bool discovery, const char *hostnqn)
{
	struct nt_target *target = cmd->queue->target;
	struct nt_ctrl *ctrl;

	if (nvme_get16(cmd->data + CONNECT_CNTLID) != NVME_CNTLID_ANY) {
		connect_failed(cmd, NVME_CONNECT_PARAM, IN_DATA | CONNECT_CNTLID);
		return;
	}
	ctrl = nt_ctrl_new(target, discovery);
	if (ctrl == NULL) {
		target->counters.refused++;
		nt_cmd_done(cmd, NVME_CONNECT_BUSY, 0);
		return;
	}
	snprintf(ctrl->hostnqn, sizeof(ctrl->hostnqn), "%s", hostnqn);
	memcpy(ctrl->hostid, cmd->data + CONNECT_HOSTID, NVME_HOSTID_LEN);
	ctrl->kato_ms = nt_dword(cmd, SQE_KATO);
	connect_done(cmd, ctrl);
}

static void
connect_io(struct nt_cmd *cmd, const char *hostnqn)
{
	struct nt_target *target = cmd->queue->target;
	uint16_t cntlid = nvme_get16(cmd->data + CONNECT_CNTLID);
	struct nt_ctrl *ctrl = nt_ctrl_find(target, cntlid);

	if (ctrl == NULL || ctrl->discovery) {
		connect_failed(cmd, NVME_CONNECT_PARAM, IN_DATA | CONNECT_CNTLID);
	} else if (strcmp(ctrl->hostnqn, hostnqn) != 0) {
		connect_failed(cmd, NVME_CONNECT_PARAM, IN_DATA | CONNECT_HOSTNQN);
	} else if (memcmp(ctrl->hostid, cmd->data + CONNECT_HOSTID, NVME_HOSTID_LEN) != 0) {
		connect_failed(cmd, NVME_CONNECT_PARAM, IN_DATA | CONNECT_HOSTID);
	} else if ((ctrl->csts & NVME_CSTS_RDY) == 0) {
		connect_failed(cmd, NVME_SEQUENCE, 0);
	} else if (cmd->queue->qid > ctrl->io_queues) {
		connect_failed(cmd, NVME_CONNECT_PARAM, SQE_QID);
	} else if (ctrl->queues[cmd->queue->qid] != NULL) {
		connect_failed(cmd, NVME_SEQUENCE, 0);
	} else {
		connect_done(cmd, ctrl);
	}
}

static void
connect_execute(struct nt_cmd *cmd)
{
	char subnqn[NVME_NQN_LEN + 1], hostnqn[NVME_NQN_LEN + 1];
	const struct nt_config *config = &cmd->queue->target->config;
	struct nt_queue *queue = cmd->queue;
	uint32_t size = nvme_get16(cmd->sqe + SQE_SQSIZE) + 1u;
	bool discovery;

	if (nvme_get16(cmd->sqe + SQE_RECFMT) != 0) {
		connect_failed(cmd, NVME_CONNECT_FORMAT, 0);
		return;
	}
	if (size < 2 || size > queue->max_size) {
		connect_failed(cmd, NVME_CONNECT_PARAM, SQE_SQSIZE);
		return;
	}
	if (nvme_get16(cmd->sqe + SQE_QID) != queue->qid) {
		connect_failed(cmd, NVME_CONNECT_PARAM, SQE_QID);
		return;
	}
	if (!connect_get_nqn(cmd->data + CONNECT_HOSTNQN, hostnqn)) {
		connect_failed(cmd, NVME_CONNECT_PARAM, IN_DATA | CONNECT_HOSTNQN);
		return;
	}
	discovery = connect_get_nqn(cmd->data + CONNECT_SUBNQN, subnqn) &&
		strcmp(subnqn, NVME_DISCOVERY) == 0;
	if (subnqn[0] == '\0' || (!discovery && strcmp(subnqn, config->nqn) != 0) ||
		(discovery && queue->qid != 0)) {
		connect_failed(cmd, NVME_CONNECT_PARAM, IN_DATA | CONNECT_SUBNQN);
		return;
	}
	if (!discovery && !host_allowed(config, hostnqn)) {
		connect_failed(cmd, NVME_CONNECT_HOST, 0);
		return;
	}
	if (queue->qid == 0)
		connect_admin(cmd, discovery, hostnqn);
	else
		connect_io(cmd, hostnqn);
}

static void
property_get(struct nt_cmd *cmd)
{
	const struct nt_ctrl *ctrl = cmd->queue->ctrl;
	const struct nt_config *config = &cmd->queue->target->config;
	bool wide = (cmd->sqe[SQE_PROP_ATTRIB] & 7) == NVME_PROP_8BYTES;
	uint32_t offset = nt_dword(cmd, SQE_PROP_OFFSET);

	if (wide && offset == NVME_PROP_CAP)
		nt_cmd_done(cmd, NVME_OK, (config->queue_size - 1) | CAP_CQR | CAP_TO | CAP_NVM);
	else if (!wide && offset == NVME_PROP_VS)
		nt_cmd_done(cmd, NVME_OK, NVME_VERSION);
	else if (!wide && offset == NVME_PROP_CC)
		nt_cmd_done(cmd, NVME_OK, ctrl->cc);
	else if (!wide && offset == NVME_PROP_CSTS)
		nt_cmd_done(cmd, NVME_OK, ctrl->csts);
	else
		nt_cmd_done(cmd, NT_FAIL(NVME_INVALID_FIELD), 0);
}

static void
property_set(struct nt_cmd *cmd)
{
	if ((cmd->sqe[SQE_PROP_ATTRIB] & 7) == NVME_PROP_8BYTES ||
		nt_dword(cmd, SQE_PROP_OFFSET) != NVME_PROP_CC) {
		nt_cmd_done(cmd, NT_FAIL(NVME_INVALID_FIELD), 0);
		return;
	}
	nt_ctrl_set_cc(cmd->queue->ctrl, nt_dword(cmd, SQE_PROP_VALUE));
	nt_cmd_done(cmd, NVME_OK, 0);
}

uint16_t
nt_fabrics_begin(struct nt_cmd *cmd)
{
	const struct nt_queue *queue = cmd->queue;

	switch (cmd->sqe[SQE_FCTYPE]) {
	case NVME_FC_CONNECT:
		if (queue->ctrl != NULL)
			return NT_FAIL(NVME_SEQUENCE);
		cmd->dir = NT_FROM_HOST;
		cmd->len = NVME_CONNECT_LEN;
		return NVME_OK;
	case NVME_FC_PROPERTY_GET:
	case NVME_FC_PROPERTY_SET:
		if (queue->ctrl == NULL)
			return NT_FAIL(NVME_SEQUENCE);
		return queue->qid == 0 ? NVME_OK : NT_FAIL(NVME_INVALID_OPCODE);
	default:
		return NT_FAIL(queue->ctrl == NULL ? NVME_SEQUENCE : NVME_INVALID_OPCODE);
	}
}

void
nt_fabrics_execute(struct nt_cmd *cmd)
{
	bool connect = cmd->sqe[SQE_FCTYPE] == NVME_FC_CONNECT;

	/* Two Connects may arrive at the same time, and the controller may have ended meanwhile. */
	if (connect ? cmd->queue->ctrl != NULL : cmd->queue->ctrl == NULL)
		nt_cmd_done(cmd, NT_FAIL(NVME_SEQUENCE), 0);
	else if (connect)
		connect_execute(cmd);
	else if (cmd->sqe[SQE_FCTYPE] == NVME_FC_PROPERTY_GET)
		property_get(cmd);
	else
		property_set(cmd);
}
