/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Control messages as bytes: which operations there are, whether a message is well formed, and
 * the replies that say no.  No I/O, no state; both ends use it.
 */
#ifndef KARST_CTL_MSG_H
#define KARST_CTL_MSG_H

#include "karst_ctl.h"

/** No reply is longer. */
#define KARST_CTL_REPLY_MAX 4096u

/** What an operation's messages look like. */
struct karst_ctl_op_info {
	const char *name;   /* "REG_MR" */
	uint32_t req_bytes; /* of a request's body, without pieces */
	uint32_t rsp_bytes; /* of a reply's body */
	uint32_t max_fds;   /* that may come beside a request */
	bool pieces;        /* pieces follow a request's body */
};

/** NULL: there is no such operation. */
const struct karst_ctl_op_info *karst_ctl_op_info(uint32_t op);

/** A sentence for whoever sent something wrong: printf into @why (KARST_CTL_WHY bytes; NULL is
 *  ignored).  @return @ret. */
int karst_ctl_reason(char *why, int ret, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/**
 * Is @msg, @len bytes with @nfds descriptors beside it, a well-formed request?  It is not looked
 * at beyond @len.  Afterwards its header, fixed body and pieces may be read; what stands in them
 * has not been judged but for reserved members, which are 0.
 * @msg: aligned to 8 bytes.  @why: KARST_CTL_WHY bytes, written if it is not.
 * @return 0, -EPROTO; -EOPNOTSUPP: no such operation.
 */
int karst_ctl_check_request(const void *msg, size_t len, unsigned int nfds, char *why);

/** The same for a reply to @req; of one with a negative status the body is struct
 *  karst_ctl_fault.  -EPROTO */
int karst_ctl_check_reply(
	const struct karst_ctl_hdr *req, const void *msg, size_t len, unsigned int nfds, char *why);

/** Begins the reply to a checked request: header, and a body of zeros.  @rsp: KARST_CTL_MAX bytes.
 *  @return bytes of the reply. */
size_t karst_ctl_reply(const struct karst_ctl_hdr *req, void *rsp);

/** The reply that refuses any message, also one too short for a header.
 *  @return bytes of the reply. */
size_t karst_ctl_refuse(const void *req, size_t len, int status, const char *why, void *rsp);

#endif /* KARST_CTL_MSG_H */
