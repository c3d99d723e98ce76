/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Controllers: creation and end, keep-alive timer, and events for their host. */
#include <stdlib.h>

#include "ns.h"
#include "target_priv.h"

/* Identifiers from 0xfff0 on are reserved. */
#define LAST_CNTLID 0xffefu

static struct nt_ctrl **
find_slot(struct nt_target *target, uint16_t cntlid)
{
	uint32_t i;

	for (i = 0; i < target->config.max_ctrls; i++)
		if (target->ctrls[i] != NULL && target->ctrls[i]->cntlid == cntlid)
			return &target->ctrls[i];
	return NULL;
}

struct nt_ctrl *
nt_ctrl_find(struct nt_target *target, uint16_t cntlid)
{
	struct nt_ctrl **slot = find_slot(target, cntlid);

	return slot == NULL ? NULL : *slot;
}

struct nt_ctrl *
nt_ctrl_new(struct nt_target *target, bool discovery)
{
	struct nt_ctrl *ctrl;
	uint32_t i;

	for (i = 0; i < target->config.max_ctrls && target->ctrls[i] != NULL; i++)
		;
	if (i == target->config.max_ctrls)
		return NULL;
	ctrl = calloc(1, sizeof(*ctrl));
	if (ctrl == NULL)
		return NULL;
	/* The number of a controller that has just ended is not reused soon: its host may still use
	 * it as its own. */
	do {
		target->last_cntlid =
			target->last_cntlid >= LAST_CNTLID ? 1 : target->last_cntlid + 1;
	} while (nt_ctrl_find(target, target->last_cntlid) != NULL);
	ctrl->cntlid = target->last_cntlid;
	ctrl->discovery = discovery;
	ctrl->io_queues = discovery ? 0 : target->config.max_io;
	target->ctrls[i] = ctrl;
	if (discovery)
		target->counters.discovery_ctrls++;
	else
		target->counters.ctrls++;
	return ctrl;
}

void
nt_ctrl_end(struct nt_target *target, struct nt_ctrl *ctrl)
{
	struct nt_ctrl **slot = find_slot(target, ctrl->cntlid);
	uint32_t i;

	for (i = 0; i <= NT_MAX_IO; i++) {
		struct nt_queue *queue = ctrl->queues[i];

		if (queue == NULL)
			continue;
		ctrl->queues[i] = NULL;
		queue->ctrl = NULL;
		target->ops->close(queue);
	}
	*slot = NULL;
	free(ctrl);
}

void
nt_ctrl_alive(struct nt_target *target, struct nt_ctrl *ctrl)
{
	ctrl->deadline_ms = target->now_ms + ctrl->kato_ms;
}

/* A target that did not run for so long could not hear its hosts meanwhile. */
#define STANDSTILL_MS 1000u

void
nt_target_tick(struct nt_target *target, uint64_t now_ms)
{
	uint64_t stood_ms = now_ms - target->now_ms;
	uint32_t i;

	if (stood_ms <= STANDSTILL_MS)
		stood_ms = 0;
	target->now_ms = now_ms;
	for (i = 0; i < target->config.max_ctrls; i++) {
		struct nt_ctrl *ctrl = target->ctrls[i];

		if (ctrl == NULL || ctrl->kato_ms == 0)
			continue;
		ctrl->deadline_ms += stood_ms;
		if (now_ms < ctrl->deadline_ms)
			continue;
		target->counters.expired++;
		nt_ctrl_end(target, ctrl);
	}
}

void
nt_ctrl_set_cc(struct nt_ctrl *ctrl, uint32_t cc)
{
	uint32_t was = ctrl->cc;
	bool wrong = (cc & (NVME_CC_CSS | NVME_CC_MPS | NVME_CC_AMS)) != 0;

	if (!ctrl->discovery)
		wrong = wrong || NVME_CC_IOSQES(cc) != NVME_IO_SQE_SHIFT ||
			NVME_CC_IOCQES(cc) != NVME_IO_CQE_SHIFT;
	ctrl->cc = cc;
	if ((cc & NVME_CC_EN) != 0 && (was & NVME_CC_EN) == 0)
		ctrl->csts = wrong ? NVME_CSTS_CFS : NVME_CSTS_RDY;
	if ((cc & NVME_CC_EN) == 0)
		ctrl->csts &= ~NVME_CSTS_RDY;
	if ((cc & NVME_CC_SHN) != 0)
		ctrl->csts = (ctrl->csts & ~NVME_CSTS_SHST) | NVME_CSTS_SHST_DONE;
}

void
nt_ctrl_tell(struct nt_ctrl *ctrl)
{
	if (!ctrl->tell_changed_ns || ctrl->naers == 0 ||
		(ctrl->async_events & NVME_AEN_NS_ATTRIBUTE) == 0)
		return;
	ctrl->tell_changed_ns = false; /* not again until the log page has been read */
	nt_cmd_done(ctrl->aers[--ctrl->naers], NVME_OK, NVME_AER_NS_CHANGED);
}

uint32_t
nt_target_refresh(struct nt_target *target)
{
	uint64_t changed = 0;
	uint32_t i, n = 0;

	for (i = 0; i < target->nns; i++) {
		if (nt_ns_refresh(target->ns[i])) {
			changed |= UINT64_C(1) << i;
			n++;
		}
	}
	for (i = 0; changed != 0 && i < target->config.max_ctrls; i++) {
		struct nt_ctrl *ctrl = target->ctrls[i];

		if (ctrl == NULL || ctrl->discovery)
			continue;
		ctrl->tell_changed_ns = ctrl->tell_changed_ns || ctrl->changed_ns == 0;
		ctrl->changed_ns |= changed;
		nt_ctrl_tell(ctrl);
	}
	return n;
}

void
nt_ctrl_log_error(struct nt_ctrl *ctrl, const struct nt_cmd *cmd)
{
	struct nt_error *error = &ctrl->errors[ctrl->nerrors % NT_ERRORS];

	error->count = ++ctrl->nerrors;
	error->sqid = cmd->queue->qid;
	error->cid = nvme_get16(cmd->sqe + SQE_CID);
	error->status = (uint16_t)(cmd->status << 1);
	error->nsid = cmd->sqe[SQE_OPCODE] == NVME_FABRICS ? 0 : nt_dword(cmd, SQE_NSID);
	error->lba = cmd->queue->qid == 0 ? 0 : nvme_get64(cmd->sqe + SQE_CDW10);
}
