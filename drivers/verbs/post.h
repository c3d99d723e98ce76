/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Functions that posting lists (post.c) and posting by ibv_wr_*() (wr.c) share. */
#ifndef KARST_VERBS_POST_H
#define KARST_VERBS_POST_H

#include "karst_wr.h"
#include "provider.h"

static inline struct karst_wr_limits
kv_wr_limits(const struct kv_qp *qp)
{
	const struct karst_qp *k = qp->karst;

	return (struct karst_wr_limits){.qp_type = k->qp_type,
		.max_send_sge = k->cap.max_send_sge,
		.max_inline_data = k->cap.max_inline_data};
}

/** Converts an error to the errno of verbs.  Too much inline data is ENOMEM, as with the drivers of
 *  adapters. */
static inline int
kv_wr_errno(enum karst_wr_error error)
{
	if (karst_likely(error == KARST_WR_OK))
		return 0;
	return error == KARST_WR_INLINE_BYTES ? ENOMEM : EINVAL;
}

/** Checks that @ah belongs to the queue pair's context.  The handle of another context would be the
 *  number of an unrelated address handle here. */
static inline bool
kv_wr_ah_ok(const struct kv_qp *qp, const struct ibv_ah *ah)
{
	return ah != NULL && ah->context == qp->vqp.qp.context;
}

#endif /* KARST_VERBS_POST_H */
