/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Identifiers that wait for a path, by user.
 *
 * A path is tried as long as a program is willing to wait, so the number of such paths is limited,
 * and each user has a share of it (share.h): a path counts once for each user whose identifiers
 * wait for it, as long as they do.
 *
 * The timeouts are on a timer wheel: a user may have thousands of identifiers that wait for one
 * path, which is tried a hundred times a second.
 */
#include <errno.h>

#include "cm.h"
#include "karst_neigh.h"

/* Limit of all users, and fewer than the neighbours that a port stores: otherwise neighbours that
 * are being resolved would evict each other before they can answer. */
#define MAX_WAITS 512u
static_assert(MAX_WAITS <= KARST_ENGINE_NEIGH_MAX / 2, "some of them are for peers");

void
eng_cm_wait_init(struct eng_cm *cm)
{
	karst_wheel_init(&cm->patience, engine_now(cm->e));
	eng_shares_set_total(&cm->e->shares, ENG_SHARE_CM_PATHS, MAX_WAITS);
}

/* Counts a new wait, of all and of the user. */
static int
wait_new(struct eng_cm *cm, char *why, const struct cm_client *client, struct cm_path *path,
	struct cm_wait **out)
{
	struct eng_share *share = client->ids.share;
	struct cm_wait *w;

	/* only this limits a program without an account, or with a share of all */
	if (cm->nwaits >= MAX_WAITS)
		return karst_ctl_reason(why, -ENOSPC,
			"path: the engine looks for %u addresses, and for no more at a time",
			MAX_WAITS);
	if (!eng_share_take(share, ENG_SHARE_CM_PATHS, 1))
		return karst_ctl_reason(why, -ENOSPC,
			"path: programs of user %u look for so many addresses that one more would "
			"leave too little to others of the %u that the engine looks for at a time "
			"([limits] share)",
			client->uid, MAX_WAITS);
	w = calloc(1, sizeof(*w));
	if (w == NULL) {
		eng_share_give(share, ENG_SHARE_CM_PATHS, 1);
		return karst_ctl_reason(why, -ENOMEM, "path: the engine has no memory");
	}
	w->path = path;
	w->share = share;
	LIST_INSERT_HEAD(&path->waits, w, next);
	cm->nwaits++;
	*out = w;
	return 0;
}

static void
wait_arm(struct eng_cm *cm, struct cm_id *id)
{
	/* an empty wheel does not advance; it may be behind by more than its range */
	if (cm->patience.count == 0)
		karst_wheel_advance(&cm->patience, cm->cm->now_ns, NULL, 0);
	karst_wheel_add(&cm->patience, &id->patience, id->until_ns);
}

int
eng_cm_wait(struct eng_cm *cm, char *why, struct cm_id *id, struct cm_path *path)
{
	struct cm_wait *w;
	int ret;

	LIST_FOREACH(w, &path->waits, next)
		if (w->share == id->client->ids.share)
			break;
	if (w == NULL) {
		ret = wait_new(cm, why, id->client, path, &w);
		if (ret != 0)
			return ret;
	}
	id->waits_for = w;
	LIST_INSERT_HEAD(&w->ids, id, path_next);
	wait_arm(cm, id);
	return 0;
}

struct cm_path *
eng_cm_wait_end(struct eng_cm *cm, struct cm_id *id)
{
	struct cm_wait *w = id->waits_for;
	struct cm_path *path = w->path;

	karst_wheel_del(&cm->patience, &id->patience);
	LIST_REMOVE(id, path_next);
	id->waits_for = NULL;
	if (LIST_EMPTY(&w->ids)) {
		LIST_REMOVE(w, next);
		eng_share_give(w->share, ENG_SHARE_CM_PATHS, 1);
		cm->nwaits--;
		free(w);
	}
	return path;
}

struct cm_id *
eng_cm_wait_over(struct eng_cm *cm)
{
	struct karst_timer *t;
	struct cm_id *id;

	while (karst_wheel_advance(&cm->patience, cm->cm->now_ns, &t, 1) == 1) {
		id = karst_container_of(t, struct cm_id, patience);
		if (cm->cm->now_ns >= id->until_ns)
			return id;
		wait_arm(cm, id); /* further away than the range of the wheel */
	}
	return NULL;
}
