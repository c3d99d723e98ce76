/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The form of control messages: the table of operations, the checks whether a message is well
 * formed, and replies that refuse a request.  No I/O, no state; both ends use it.
 */
#ifndef KARST_CTL_MSG_H
#define KARST_CTL_MSG_H

#include "karst_ctl.h"

/** Maximum size of a reply. */
#define KARST_CTL_REPLY_MAX 4096u

/** The format of an operation's messages. */
struct karst_ctl_op_info {
	const char *name;   /* such as "REG_MR" */
	uint32_t req_bytes; /* of a request's body, without pieces */
	uint32_t rsp_bytes; /* of a reply's body */
	uint32_t max_fds;   /* maximum number of descriptors of a request */
	bool pieces;        /* pieces follow a request's body */
};

/** NULL: there is no such operation. */
const struct karst_ctl_op_info *karst_ctl_op_info(uint32_t op);

/**
 * Sets the reason for a failure: prints into @why (KARST_CTL_WHY bytes; NULL is ignored).  @return
 * @ret.
 */
int karst_ctl_reason(char *why, int ret, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/**
 * Is @msg, @len bytes with @nfds descriptors, a well-formed request?  The function does not read
 * beyond @len.  Afterwards the caller may read its header, fixed body and pieces.  Of their
 * contents only the reserved members have been checked, which are 0. @msg: aligned to 8 bytes.
 * @why: KARST_CTL_WHY bytes, written on failure.
 * @return 0, -EPROTO; -EOPNOTSUPP: no such operation.
 */
int karst_ctl_check_request(const void *msg, size_t len, unsigned int nfds, char *why);

/**
 * The same for a reply to @req.  If its status is negative, the body is struct karst_ctl_fault.
 * -EPROTO
 */
int karst_ctl_check_reply(
	const struct karst_ctl_hdr *req, const void *msg, size_t len, unsigned int nfds, char *why);

/**
 * Begins the reply to a checked request: fills in the header, and a body of zeros.  @rsp:
 * KARST_CTL_MAX bytes.  @return size of the reply in bytes.
 */
size_t karst_ctl_reply(const struct karst_ctl_hdr *req, void *rsp);

/**
 * Builds the reply that refuses any message, also one that is too short for a header.  @return size
 * of the reply in bytes.
 */
size_t karst_ctl_refuse(const void *req, size_t len, int status, const char *why, void *rsp);

#endif /* KARST_CTL_MSG_H */
