/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Ways from a port's address to a peer's, for MADs and for identifiers.
 *
 * A path is asked for once, whoever wants it; meanwhile they wait with it.  Each look is a control
 * call, made by the thread without the lock; only the thread forgets paths, so the one that it
 * looks for stays.  Then all MADs go to one list, in their order, from which the thread sends.
 *
 * A path that was found is used for some seconds, and then looked for again, which costs one look.
 * One that was not found stays as such for a second, lest somebody who sends requests with made-up
 * addresses makes us search all the time; only an identifier begins anew.
 */
#include <errno.h>

#include "cm.h"
#include "neigh.h"
#include "port.h"

#define MAX_PATHS         1024u
#define MAX_MAD_PATHS     768u /* of them; the others are for programs that ask for one */
#define MAX_MADS          4096u
#define PATH_ASK_NS       UINT64_C(3000000000)
#define KEEP_NS           UINT64_C(2000000000)
#define FAILED_NS         UINT64_C(1000000000)
#define SWEEP_NS          UINT64_C(1000000000)
#define PATH_NAP_FIRST_NS UINT64_C(50000)
#define PATH_NAP_MOST_NS  UINT64_C(10000000)

static struct cm_mad *
mads_take(struct cm_mads *m)
{
	struct cm_mad *mad = STAILQ_FIRST(m);

	if (mad != NULL)
		STAILQ_REMOVE_HEAD(m, next);
	return mad;
}

static void
mad_free(struct eng_cm *cm, struct cm_mad *mad)
{
	cm->nmads--;
	free(mad);
}

static void
mads_drop(struct eng_cm *cm, struct cm_mads *m)
{
	struct cm_mad *mad;

	while ((mad = mads_take(m)) != NULL) {
		cm->stats.mads_dropped++;
		mad_free(cm, mad);
	}
}

/* --- the table --- */

static struct cm_path_bucket *
path_bucket_of(struct eng_cm *cm, uint8_t port, const uint8_t src[16], const uint8_t dst[16])
{
	uint64_t words[4], h = port;
	unsigned int i;

	memcpy(words, src, 16);
	memcpy(words + 2, dst, 16);
	for (i = 0; i < 4; i++)
		h = (h ^ words[i]) * 0x9e3779b97f4a7c15ull;
	return &cm->paths[h >> 56];
}
static_assert(CM_PATH_BUCKETS == 256, "the upper 8 bits of a hash");

static void
path_ask(struct eng_cm *cm, struct cm_path *w)
{
	w->state = CM_PATH_ASKING;
	w->look_ns = cm->cm->now_ns;
	w->until_ns = w->look_ns + PATH_ASK_NS;
	w->nap_ns = PATH_NAP_FIRST_NS;
	LIST_INSERT_HEAD(&cm->asking, w, asked);
}

/* The path; ASKING if it is new, or was found too long ago.  NULL: there would be more than
 * @most. */
static struct cm_path *
path_of(struct eng_cm *cm, uint8_t port, const uint8_t src[16], const uint8_t dst[16],
	uint32_t most)
{
	struct cm_path_bucket *bucket = path_bucket_of(cm, port, src, dst);
	struct cm_path *w;

	LIST_FOREACH(w, bucket, next)
		if (w->port == port && memcmp(w->src_ip, src, 16) == 0 &&
			memcmp(w->dst_ip, dst, 16) == 0)
			break;
	if (w == NULL) {
		w = cm->npaths < most ? calloc(1, sizeof(*w)) : NULL;
		if (w == NULL)
			return NULL;
		w->port = port;
		memcpy(w->src_ip, src, 16);
		memcpy(w->dst_ip, dst, 16);
		STAILQ_INIT(&w->mads);
		LIST_INSERT_HEAD(bucket, w, next);
		cm->npaths++;
		path_ask(cm, w);
	} else if (w->state != CM_PATH_ASKING && cm->cm->now_ns >= w->until_ns) {
		path_ask(cm, w);
	}
	return w;
}

/* Forgets what is not valid any more. */
static void
path_sweep(struct eng_cm *cm)
{
	unsigned int i;

	cm->sweep_ns = cm->cm->now_ns + SWEEP_NS;
	for (i = 0; i < CM_PATH_BUCKETS; i++) {
		struct cm_path *w, *next;

		for (w = LIST_FIRST(&cm->paths[i]); w != NULL; w = next) {
			next = LIST_NEXT(w, next);
			if (w->state == CM_PATH_ASKING || cm->cm->now_ns < w->until_ns)
				continue;
			LIST_REMOVE(w, next);
			cm->npaths--;
			free(w);
		}
	}
}

/* --- what waits --- */

/* The path of a MAD: the one resolved, and what the connection says. */
static void
path_complete(struct cm_mad *mad, const struct karst_path *resolved)
{
	uint8_t tclass = mad->path.tclass, hop_limit = mad->path.hop_limit;
	uint32_t flow_label = mad->path.flow_label;

	mad->path = *resolved;
	mad->path.tclass = tclass;
	mad->path.hop_limit = hop_limit;
	mad->path.flow_label = flow_label;
}

void
eng_cm_path_send(struct eng_cm *cm, const struct karst_cm_path *path, const uint8_t *bytes)
{
	struct cm_path *w = path_of(cm, path->port, path->local_ip, path->remote_ip, MAX_MAD_PATHS);
	struct cm_mad *mad = NULL;

	if (w != NULL && w->state != CM_PATH_FAILED && cm->nmads < MAX_MADS)
		mad = calloc(1, sizeof(*mad));
	if (mad == NULL) {
		cm->stats.mads_dropped++;
		return;
	}
	cm->nmads++;
	memcpy(mad->bytes, bytes, sizeof(mad->bytes));
	mad->path.tclass = path->tclass;
	mad->path.hop_limit = path->hop_limit;
	mad->path.flow_label = path->flow_label;
	if (w->state == CM_PATH_READY) {
		path_complete(mad, &w->path);
		STAILQ_INSERT_TAIL(&cm->out, mad, next);
	} else {
		STAILQ_INSERT_TAIL(&w->mads, mad, next);
	}
}

int
eng_cm_path_find(struct eng_cm *cm, struct cm_id *id)
{
	struct cm_path *w = path_of(cm, id->port, id->src.ip, id->dst.ip, MAX_PATHS);

	if (w == NULL)
		return -ENOSPC;
	if (w->state == CM_PATH_READY) {
		eng_cm_id_resolved(cm, id, 0);
		return 0;
	}
	if (w->state == CM_PATH_FAILED)
		path_ask(cm, w);
	if (w->until_ns < id->until_ns)
		w->until_ns = id->until_ns;
	id->waits_for = w;
	LIST_INSERT_HEAD(&w->ids, id, path_next);
	return 0;
}

void
eng_cm_path_forget(struct cm_id *id)
{
	if (id->waits_for == NULL)
		return;
	LIST_REMOVE(id, path_next);
	id->waits_for = NULL;
}

/* The search is over. */
static void
path_found(struct eng_cm *cm, struct cm_path *w, int ret, const struct karst_path *path)
{
	struct cm_mad *mad;
	struct cm_id *id;

	LIST_REMOVE(w, asked);
	w->state = ret == 0 ? CM_PATH_READY : CM_PATH_FAILED;
	w->until_ns = cm->cm->now_ns + (ret == 0 ? KEEP_NS : FAILED_NS);
	if (ret == 0) {
		w->path = *path;
		while ((mad = mads_take(&w->mads)) != NULL) {
			path_complete(mad, path);
			STAILQ_INSERT_TAIL(&cm->out, mad, next);
		}
	} else {
		cm->stats.paths_failed++;
		mads_drop(cm, &w->mads);
	}
	while ((id = LIST_FIRST(&w->ids)) != NULL) {
		eng_cm_path_forget(id);
		eng_cm_id_resolved(cm, id, ret);
	}
}

/* --- on the thread --- */

/* Identifiers that do not want to wait any longer.  @return when the next one will not. */
static uint64_t
path_give_up(struct eng_cm *cm, struct cm_path *w)
{
	uint64_t next = UINT64_MAX;
	struct cm_id *id, *after;

	for (id = LIST_FIRST(&w->ids); id != NULL; id = after) {
		after = LIST_NEXT(id, path_next);
		if (cm->cm->now_ns < id->until_ns) {
			next = karst_min_u64(next, id->until_ns);
			continue;
		}
		eng_cm_path_forget(id);
		eng_cm_id_resolved(cm, id, -ETIMEDOUT);
	}
	return next;
}

/* One look for a path that is due.  @return when to look again. */
static uint64_t
path_look(struct eng_cm *cm, struct cm_path *w)
{
	struct karst_path path;
	int ret;

	pthread_mutex_unlock(&cm->lock);
	ret = eng_resolve_try(cm->e, w->port, w->src_ip, w->dst_ip, &path);
	pthread_mutex_lock(&cm->lock);
	cm->cm->now_ns = engine_now(cm->e);
	if (ret == -EAGAIN && cm->cm->now_ns >= w->until_ns)
		ret = -ETIMEDOUT;
	if (ret != -EAGAIN) {
		path_found(cm, w, ret, &path);
		return UINT64_MAX;
	}
	w->look_ns = cm->cm->now_ns + w->nap_ns;
	w->nap_ns = karst_min_u64(2 * w->nap_ns, PATH_NAP_MOST_NS);
	return karst_min_u64(w->look_ns, path_give_up(cm, w));
}

static void
send_all(struct eng_cm *cm)
{
	struct eng_gsi_out out[ENG_GSI_BURST];
	struct cm_mad *mad[ENG_GSI_BURST];
	unsigned int i, n;

	while (!STAILQ_EMPTY(&cm->out)) {
		for (n = 0; n < ENG_GSI_BURST && (mad[n] = mads_take(&cm->out)) != NULL; n++)
			out[n] = (struct eng_gsi_out){.path = mad[n]->path, .mad = mad[n]->bytes};
		pthread_mutex_unlock(&cm->lock);
		eng_gsi_send(cm->e, out, n);
		pthread_mutex_lock(&cm->lock);
		for (i = 0; i < n; i++)
			mad_free(cm, mad[i]);
	}
	cm->cm->now_ns = engine_now(cm->e);
}

uint64_t
eng_cm_path_work(struct eng_cm *cm)
{
	uint64_t next = UINT64_MAX;
	struct cm_path *w, *after;

	/* Only this thread takes paths off the list, and new ones come to its front, so "after"
	 * stays good. */
	for (w = LIST_FIRST(&cm->asking); w != NULL; w = after) {
		after = LIST_NEXT(w, asked);
		next = karst_min_u64(
			next, cm->cm->now_ns >= w->look_ns ? path_look(cm, w) : w->look_ns);
	}
	send_all(cm);
	if (cm->npaths > 0 && cm->cm->now_ns >= cm->sweep_ns)
		path_sweep(cm);
	if (cm->npaths > 0)
		next = karst_min_u64(next, cm->sweep_ns);
	return next;
}

void
eng_cm_path_fini(struct eng_cm *cm)
{
	struct cm_path *w;
	unsigned int i;

	for (i = 0; i < CM_PATH_BUCKETS; i++)
		while ((w = LIST_FIRST(&cm->paths[i])) != NULL) {
			LIST_REMOVE(w, next);
			mads_drop(cm, &w->mads);
			free(w);
		}
	mads_drop(cm, &cm->out);
}
