/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Common code for tests of the shares of users. */
#ifndef SHARE_BED_H
#define SHARE_BED_H

#include <criterion/criterion.h>

#include "karst_ctl_sock.h"
#include "session_bed.h"
#include "session_priv.h"
#include "share.h"

static const struct eng_share_rule fair = {.percent = 75};

static inline struct eng_share *
join(struct eng_shares *t, uid_t uid, const struct eng_share_rule *rule)
{
	struct eng_share *s = eng_share_join(t, uid, rule, 0);

	cr_assert_not_null(s);
	return s;
}

/* A program of user @uid, who may have @share percent of everything. */
static inline struct client *
user(struct karst_engine *e, uid_t uid, uint32_t share)
{
	const struct karst_session_init init = {.program = "share",
		.pidfd = -1,
		.uid = uid,
		.limits = {.share = share, .max_ring_bytes = 64 << 20}};
	struct karst_session *s;
	int ret = karst_session_create(e, &init, &s);

	cr_assert_eq(ret, 0, "%d", ret);
	return client_over(s, -1);
}

/* A channel of connection management. */
static inline uint32_t
cm_channel(struct client *c)
{
	cr_assert_eq(CALL(c, CM_CREATE_CHANNEL, cm_create_channel, .reserved = 0), 0);
	karst_ctl_close_fds(c->fds, c->nfds);
	return RSP(c, cm_create_channel)->channel;
}

#endif /* SHARE_BED_H */
