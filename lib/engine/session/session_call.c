/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Common parts of the handlers of control messages: reasons, handles, descriptors, places. */
#include "session_priv.h"

#include <errno.h>
#include <fcntl.h>

int
eng_session_give_fd(struct session_call *c, int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (copy < 0)
		return reason(c, -EMFILE, "the engine has no descriptors left (its ulimit -n)");
	c->rsp_fds[c->nrsp_fds++] = copy;
	return 0;
}

/* Sets the reason that one more of @kind is too much for the user of the account. */
static int
reason_share(struct session_call *c, struct eng_share *share, enum eng_share_kind kind)
{
	struct eng_share_info info;

	eng_share_info(share, &info);
	return reason(c, -ENOSPC,
		"%s: user %u has %llu in all, and one more would leave too little to others "
		"([limits] share, %u)",
		eng_share_what(kind), info.uid, (unsigned long long)info.used[kind],
		info.rule.percent);
}

int
eng_session_reason_share(
	const struct karst_session *s, struct session_call *c, enum eng_share_kind kind)
{
	return reason_share(c, s->share, kind);
}

bool
eng_session_share_fault(
	const struct karst_session *s, struct session_call *c, enum eng_share_kind kind, uint64_t n)
{
	if (eng_share_fits(s->share, kind, n))
		return false;
	reason_share(c, s->share, kind);
	return true;
}

bool
eng_session_ring_fault(const struct karst_session *s, struct session_call *c)
{
	if (!karst_engine_owner_over_share(s->owner))
		return false;
	if (!eng_session_share_fault(s, c, ENG_SHARE_DESCRIPTORS, 1))
		reason_share(c, s->share, ENG_SHARE_RING_BYTES);
	return true;
}

static int
reason_full(struct session_call *c, int ret, uint32_t max, const char *what, const char *limit)
{
	if (ret == -ENOSPC)
		return reason(
			c, ret, "%s: this program's limit of %u is reached (%s)", what, max, limit);
	return reason(c, ret, "%s: the engine has no memory", what);
}

int
eng_session_handle_add(struct session_call *c, struct handles *h, void *item, const char *what,
	const char *limit, uint32_t *handle)
{
	int ret = eng_handles_add(h, item, handle);

	if (ret == -ENOSPC && h->used < h->max)
		return reason_share(c, h->share, h->kind);
	return ret == 0 ? 0 : reason_full(c, ret, h->max, what, limit);
}

int
eng_session_key_reserve(struct session_call *c, struct keys *k, const char *what, const char *limit)
{
	int ret = eng_keys_reserve(k);

	if (ret == -ENOSPC && k->used < k->max)
		return reason_share(c, k->share, k->kind);
	return ret == 0 ? 0 : reason_full(c, ret, k->max, what, limit);
}

void *
eng_session_find(struct session_call *c, const struct handles *h, uint32_t handle, const char *what)
{
	void *item = eng_handles_get(h, handle);

	if (item == NULL)
		reason(c, -EINVAL, "%s %u does not exist in this program", what, handle);
	return item;
}

void
eng_session_place(
	const struct karst_session *s, const void *p, uint64_t len, struct karst_ctl_place *place)
{
	int ret = karst_engine_owner_locate(s->owner, p, &place->chunk, &place->off);

	assert(ret == 0);
	(void)ret;
	place->len = len;
}
