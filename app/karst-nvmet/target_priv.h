/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Declarations that the files of the target share.  All functions run on the transport's thread. */
#ifndef TARGET_PRIV_H
#define TARGET_PRIV_H

#include "target.h"

#define NT_FAIL(code) ((uint16_t)((code) | NVME_DNR))

static inline uint32_t
nt_dword(const struct nt_cmd *cmd, enum nvme_sqe_byte at)
{
	return nvme_get32(cmd->sqe + at);
}

/* Sets status and, on success, result; then calls ops->complete(). */
void nt_cmd_done(struct nt_cmd *cmd, uint16_t status, uint64_t result);

/* Each kind has a "begin", which sets dir and len and returns a status, and an "execute". */
uint16_t nt_fabrics_begin(struct nt_cmd *cmd);
void nt_fabrics_execute(struct nt_cmd *cmd);
uint16_t nt_admin_begin(struct nt_cmd *cmd);
void nt_admin_execute(struct nt_cmd *cmd);
uint16_t nt_io_begin(struct nt_cmd *cmd);
void nt_io_execute(struct nt_cmd *cmd);

/* Process cmd->len bytes of data; @return a status. */
uint16_t nt_identify(struct nt_cmd *cmd);
uint16_t nt_log_begin(struct nt_cmd *cmd);
uint16_t nt_log(struct nt_cmd *cmd);
uint16_t nt_set_features(struct nt_cmd *cmd, uint64_t *result);
uint16_t nt_get_features(struct nt_cmd *cmd, uint64_t *result);

/* @return NULL: there are too many. */
struct nt_ctrl *nt_ctrl_new(struct nt_target *target, bool discovery);
struct nt_ctrl *nt_ctrl_find(struct nt_target *target, uint16_t cntlid);
void nt_ctrl_end(struct nt_target *target, struct nt_ctrl *ctrl);
/* A command of the host arrived: restarts the keep-alive timer. */
void nt_ctrl_alive(struct nt_target *target, struct nt_ctrl *ctrl);
void nt_ctrl_set_cc(struct nt_ctrl *ctrl, uint32_t cc);
/* Completes a pending Asynchronous Event Request if there is an event. */
void nt_ctrl_tell(struct nt_ctrl *ctrl);
void nt_ctrl_log_error(struct nt_ctrl *ctrl, const struct nt_cmd *cmd);

/* NULL: no such namespace. */
struct nt_ns *nt_ns_of(const struct nt_target *target, uint32_t nsid);

#endif
