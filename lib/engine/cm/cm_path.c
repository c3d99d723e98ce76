/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Paths from a port's address to a peer's, for MADs and for identifiers.
 *
 * A path is resolved once for all that need it; MADs and identifiers wait for it meanwhile, and
 * when none of them waits any more, the resolution ends.  Each attempt is a control call, which the
 * thread makes without the lock; the entry of the path stays meanwhile.  Then all MADs are put on
 * one list, in their order, from which the thread sends.
 *
 * Programs wait as long as they request, for a limited number of paths (cm_wait.c).  MADs wait for
 * some seconds, for another limited number of paths, so that peers get answers whatever programs
 * wait for; MADs whose path is known do not count as waiting, for example for a peer that has gone.
 * In addition to both there is always room for paths that are not waited for; new paths evict the
 * oldest of these.
 *
 * The longer there is no answer, the less often a path is tried: paths that programs wait for at
 * least a hundred times a second unless there are many of them, paths that only MADs wait for at
 * growing intervals, so that an answer is seen after twice the time that it took.  Otherwise a
 * sender of requests with made-up addresses would make us try hundreds of paths all the time.
 *
 * A resolved path is used for some seconds and then resolved again, which takes one attempt.  A
 * path that was not found is not tried again for a second, so that a sender of requests with
 * made-up addresses does not make us search all the time; only an identifier starts a new search.
 */
#include <errno.h>
#include <time.h>

#include "cm.h"
#include "karst_prf.h"
#include "neigh.h"
#include "port.h"

#define MAX_PATHS         1536u /* more than can be waited for */
#define MAX_MAD_PATHS     512u  /* that MADs wait for */
#define MAX_MADS          4096u /* that wait; and as many whose path is known */
#define MAX_PATH_MADS     1024u /* that wait for one path */
#define PATH_ASK_NS       UINT64_C(3000000000)
#define KEEP_NS           UINT64_C(2000000000)
#define FAILED_NS         UINT64_C(1000000000)
#define SWEEP_NS          UINT64_C(1000000000)
#define PATH_NAP_FIRST_NS UINT64_C(50000)
#define PATH_NAP_MOST_NS  UINT64_C(10000000)
#define PATHS_A_NAP       64u /* for each so many, the longest nap grows by its own length */
#define LOOKS_AT_ONCE     16u /* then messages have their turn */
#define GIVE_UPS_AT_ONCE  64u
/* Identifiers of one path that are notified before other threads get the lock, and the sleep that
 * lets them: a thread that only releases the lock has it again before others wake up. */
#define TELLS_AT_ONCE 256u
#define TELL_NAP_NS   50000

void
eng_cm_path_init(struct eng_cm *cm)
{
	STAILQ_INIT(&cm->out);
	TAILQ_INIT(&cm->asking);
	TAILQ_INIT(&cm->idle);
	eng_cm_wait_init(cm);
}

static struct cm_mad *
mads_take(struct cm_mads *m)
{
	struct cm_mad *mad = STAILQ_FIRST(m);

	if (mad != NULL)
		STAILQ_REMOVE_HEAD(m, next);
	return mad;
}

/* --- the table --- */

static uint64_t
hash_ip(const struct eng_cm *cm, const uint8_t ip[16])
{
	uint64_t half[2];

	memcpy(half, ip, sizeof(half));
	return karst_prf(cm->place_key, half[0], half[1]);
}

/* The hash has a secret key: peers choose addresses. */
static struct cm_path_bucket *
path_bucket_of(struct eng_cm *cm, uint8_t port, const uint8_t src[16], const uint8_t dst[16])
{
	uint64_t ends = karst_prf(cm->place_key, hash_ip(cm, src), hash_ip(cm, dst));

	return &cm->paths[karst_prf(cm->place_key, ends, port) % CM_PATH_BUCKETS];
}

static bool
path_is_wanted(const struct cm_path *w)
{
	return !LIST_EMPTY(&w->waits) || !STAILQ_EMPTY(&w->mads);
}

/* Starts the resolution, since something waits for it. */
static void
path_ask(struct eng_cm *cm, struct cm_path *w)
{
	if (w->state == CM_PATH_ASKING)
		return;
	TAILQ_REMOVE(&cm->idle, w, listed);
	w->state = CM_PATH_ASKING;
	w->look_ns = cm->cm->now_ns;
	w->nap_ns = PATH_NAP_FIRST_NS;
	TAILQ_INSERT_HEAD(&cm->asking, w, listed);
}

/* The path is ASKING for MADs, and an identifier joins, which is not meant to wait as long as they
 * do. */
static void
path_hurry(struct eng_cm *cm, struct cm_path *w)
{
	w->nap_ns = PATH_NAP_FIRST_NS;
	if (w == cm->looking)
		return;
	w->look_ns = cm->cm->now_ns;
	if (cm->after == w)
		cm->after = TAILQ_NEXT(w, listed);
	TAILQ_REMOVE(&cm->asking, w, listed);
	TAILQ_INSERT_HEAD(&cm->asking, w, listed);
}

/* Ends the resolution with a state that is valid for @ns; 0: as if it were new. */
static void
path_settle(struct eng_cm *cm, struct cm_path *w, enum cm_path_state state, uint64_t ns)
{
	if (cm->after == w)
		cm->after = TAILQ_NEXT(w, listed);
	TAILQ_REMOVE(&cm->asking, w, listed);
	w->state = state;
	w->until_ns = cm->cm->now_ns + ns;
	if (ns == 0)
		TAILQ_INSERT_HEAD(&cm->idle, w, listed);
	else
		TAILQ_INSERT_TAIL(&cm->idle, w, listed);
}

/* Frees a path that is not ASKING. */
static void
path_free(struct eng_cm *cm, struct cm_path *w)
{
	TAILQ_REMOVE(&cm->idle, w, listed);
	LIST_REMOVE(w, next);
	cm->npaths--;
	free(w);
}

/* NULL: no memory. */
static struct cm_path *
path_new(struct eng_cm *cm, uint8_t port, const uint8_t src[16], const uint8_t dst[16])
{
	struct cm_path *w;

	if (cm->npaths >= MAX_PATHS)
		path_free(cm, TAILQ_FIRST(&cm->idle));
	w = calloc(1, sizeof(*w));
	if (w == NULL)
		return NULL;
	w->state = CM_PATH_FAILED;
	w->port = port;
	memcpy(w->src_ip, src, 16);
	memcpy(w->dst_ip, dst, 16);
	STAILQ_INIT(&w->mads);
	LIST_INSERT_HEAD(path_bucket_of(cm, port, src, dst), w, next);
	TAILQ_INSERT_HEAD(&cm->idle, w, listed);
	cm->npaths++;
	return w;
}

/* Finds or creates the path.  NULL: no memory. */
static struct cm_path *
path_of(struct eng_cm *cm, uint8_t port, const uint8_t src[16], const uint8_t dst[16])
{
	struct cm_path *w;

	LIST_FOREACH(w, path_bucket_of(cm, port, src, dst), next)
		if (w->port == port && memcmp(w->src_ip, src, 16) == 0 &&
			memcmp(w->dst_ip, dst, 16) == 0)
			return w;
	return path_new(cm, port, src, dst);
}

/* Whether it is READY, or FAILED, and has not expired. */
static bool
path_is(const struct eng_cm *cm, const struct cm_path *w, enum cm_path_state state)
{
	return w->state == state && cm->cm->now_ns < w->until_ns;
}

/* Frees paths that have expired. */
static void
path_sweep(struct eng_cm *cm)
{
	struct cm_path *w, *next;

	cm->sweep_ns = cm->cm->now_ns + SWEEP_NS;
	for (w = TAILQ_FIRST(&cm->idle); w != NULL; w = next) {
		next = TAILQ_NEXT(w, listed);
		if (cm->cm->now_ns >= w->until_ns)
			path_free(cm, w);
	}
}

/* --- MADs --- */

/* Completes the path of a MAD: the resolved path with the values of the connection. */
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

static void
out_put(struct eng_cm *cm, struct cm_mad *mad, const struct karst_path *path)
{
	path_complete(mad, path);
	STAILQ_INSERT_TAIL(&cm->out, mad, next);
	cm->nmads_out++;
}

static void
mad_wait(struct eng_cm *cm, struct cm_mad *mad, struct cm_path *w)
{
	if (w->nmads++ == 0) {
		cm->nmad_paths++;
		w->until_ns = cm->cm->now_ns + PATH_ASK_NS;
	}
	cm->nmads_waiting++;
	STAILQ_INSERT_TAIL(&w->mads, mad, next);
	path_ask(cm, w);
}

/* Ends the wait of all MADs: they are sent or, if there is no path (NULL), dropped. */
static void
mads_end(struct eng_cm *cm, struct cm_path *w, const struct karst_path *path)
{
	struct cm_mad *mad;

	if (w->nmads != 0)
		cm->nmad_paths--;
	cm->nmads_waiting -= w->nmads;
	w->nmads = 0;
	while ((mad = mads_take(&w->mads)) != NULL) {
		if (path != NULL) {
			out_put(cm, mad, path);
			continue;
		}
		cm->stats.mads_dropped++;
		free(mad);
	}
}

static bool
mad_has_room(const struct eng_cm *cm, const struct cm_path *w)
{
	if (path_is(cm, w, CM_PATH_READY))
		return cm->nmads_out < MAX_MADS;
	if (path_is(cm, w, CM_PATH_FAILED))
		return false;
	return cm->nmads_waiting < MAX_MADS && w->nmads < MAX_PATH_MADS &&
		(w->nmads != 0 || cm->nmad_paths < MAX_MAD_PATHS);
}

void
eng_cm_path_send(struct eng_cm *cm, const struct karst_cm_path *path, const uint8_t *bytes)
{
	struct cm_path *w = path_of(cm, path->port, path->local_ip, path->remote_ip);
	struct cm_mad *mad = NULL;

	if (w != NULL && mad_has_room(cm, w))
		mad = calloc(1, sizeof(*mad));
	if (mad == NULL) {
		cm->stats.mads_dropped++;
		return;
	}
	memcpy(mad->bytes, bytes, sizeof(mad->bytes));
	mad->path.tclass = path->tclass;
	mad->path.hop_limit = path->hop_limit;
	mad->path.flow_label = path->flow_label;
	if (path_is(cm, w, CM_PATH_READY))
		out_put(cm, mad, &w->path);
	else
		mad_wait(cm, mad, w);
}

/* --- identifiers --- */

int
eng_cm_path_find(struct eng_cm *cm, char *why, struct cm_id *id)
{
	struct cm_path *w = path_of(cm, id->port, id->src.ip, id->dst.ip);
	bool first;
	int ret;

	if (w == NULL)
		return karst_ctl_reason(why, -ENOMEM, "path: the engine has no memory");
	if (path_is(cm, w, CM_PATH_READY)) {
		eng_cm_id_resolved(cm, id, 0);
		return 0;
	}
	first = LIST_EMPTY(&w->waits);
	ret = eng_cm_wait(cm, why, id, w);
	if (ret != 0)
		return ret;
	if (w->state != CM_PATH_ASKING)
		path_ask(cm, w);
	else if (first)
		path_hurry(cm, w);
	return 0;
}

void
eng_cm_path_forget(struct eng_cm *cm, struct cm_id *id)
{
	struct cm_path *w;

	if (id->waits_for == NULL)
		return;
	w = eng_cm_wait_end(cm, id);
	if (w->state == CM_PATH_ASKING && w != cm->looking && !path_is_wanted(w))
		path_settle(cm, w, CM_PATH_FAILED, 0);
}

static void
id_end(struct eng_cm *cm, struct cm_id *id, int status)
{
	eng_cm_path_forget(cm, id);
	eng_cm_id_resolved(cm, id, status);
}

/* --- on the thread --- */

/* Notifies the identifiers that wait for @w of the result.  The path stays meanwhile, as it is
 * "looking". */
static void
tell_waiting(struct eng_cm *cm, struct cm_path *w, int ret)
{
	const struct timespec nap = {.tv_nsec = TELL_NAP_NS};
	struct cm_wait *wait;
	unsigned int n = 0;

	while ((wait = LIST_FIRST(&w->waits)) != NULL) {
		if (++n % TELLS_AT_ONCE != 0) {
			id_end(cm, LIST_FIRST(&wait->ids), ret);
			continue;
		}
		pthread_mutex_unlock(&cm->lock);
		nanosleep(&nap, NULL);
		pthread_mutex_lock(&cm->lock);
		cm->cm->now_ns = engine_now(cm->e);
	}
}

/* The resolution has ended. */
static void
path_found(struct eng_cm *cm, struct cm_path *w, int ret, const struct karst_path *path)
{
	tell_waiting(cm, w, ret);
	if (ret == 0) {
		w->path = *path;
		path_settle(cm, w, CM_PATH_READY, KEEP_NS);
	} else {
		cm->stats.paths_failed++;
		path_settle(cm, w, CM_PATH_FAILED, FAILED_NS);
	}
	mads_end(cm, w, ret == 0 ? path : NULL);
}

/* Ends the waits of identifiers that have timed out, for any path.  How long a program has waited
 * is not visible to peers.  @return when to call again. */
static uint64_t
ids_give_up(struct eng_cm *cm)
{
	const struct cm_path *w;
	struct cm_id *id;
	unsigned int n;

	for (n = 0; n < GIVE_UPS_AT_ONCE && (id = eng_cm_wait_over(cm)) != NULL; n++) {
		w = id->waits_for->path;
		id_end(cm, id, -ETIMEDOUT);
		cm->stats.paths_failed += w->state != CM_PATH_ASKING;
	}
	return karst_wheel_next_ns(&cm->patience);
}

/* The same for MADs of @w, whose resolution ends if nothing waits for it any more. */
static void
mads_give_up(struct eng_cm *cm, struct cm_path *w)
{
	bool over = w->nmads != 0 && cm->cm->now_ns >= w->until_ns;

	if (over)
		mads_end(cm, w, NULL);
	if (path_is_wanted(w))
		return;
	cm->stats.paths_failed += over;
	path_settle(cm, w, CM_PATH_FAILED, over ? FAILED_NS : 0);
}

/* Makes one attempt for a path that is due.  @return when to try again. */
static uint64_t
path_look(struct eng_cm *cm, struct cm_path *w)
{
	uint64_t longest = PATH_NAP_MOST_NS * (1 + (cm->nwaits + cm->nmad_paths) / PATHS_A_NAP);
	struct karst_path path;
	int ret;

	if (LIST_EMPTY(&w->waits))
		longest = PATH_ASK_NS;

	cm->looking = w;
	pthread_mutex_unlock(&cm->lock);
	ret = eng_resolve_try(cm->e, w->port, w->src_ip, w->dst_ip, &path);
	pthread_mutex_lock(&cm->lock);
	cm->cm->now_ns = engine_now(cm->e);
	if (ret != -EAGAIN)
		path_found(cm, w, ret, &path);
	else
		mads_give_up(cm, w);
	cm->looking = NULL;
	if (w->state != CM_PATH_ASKING)
		return UINT64_MAX;
	w->look_ns = cm->cm->now_ns + w->nap_ns;
	if (w->nmads != 0)
		w->look_ns = karst_min_u64(w->look_ns, w->until_ns);
	w->nap_ns = karst_min_u64(2 * w->nap_ns, longest);
	return w->look_ns;
}

/* Tries the paths that are due, but only some of many at once: new paths come to the front of the
 * list, and those that were tried go to its end.  @return when to call again. */
static uint64_t
look_all(struct eng_cm *cm)
{
	uint64_t next = UINT64_MAX;
	unsigned int looks = 0;
	struct cm_path *w;

	for (w = TAILQ_FIRST(&cm->asking); w != NULL; w = cm->after) {
		cm->after = TAILQ_NEXT(w, listed);
		if (cm->cm->now_ns < w->look_ns) {
			next = karst_min_u64(next, w->look_ns);
			continue;
		}
		if (looks++ == LOOKS_AT_ONCE)
			next = cm->cm->now_ns;
		if (looks > LOOKS_AT_ONCE)
			break;
		TAILQ_REMOVE(&cm->asking, w, listed);
		TAILQ_INSERT_TAIL(&cm->asking, w, listed);
		next = karst_min_u64(next, path_look(cm, w));
	}
	cm->after = NULL;
	return next;
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
		cm->nmads_out -= n;
		for (i = 0; i < n; i++)
			free(mad[i]);
	}
	cm->cm->now_ns = engine_now(cm->e);
}

uint64_t
eng_cm_path_work(struct eng_cm *cm)
{
	uint64_t next = look_all(cm);

	send_all(cm);
	next = karst_min_u64(next, ids_give_up(cm));
	if (cm->npaths > 0 && cm->cm->now_ns >= cm->sweep_ns)
		path_sweep(cm);
	if (cm->npaths > 0)
		next = karst_min_u64(next, cm->sweep_ns);
	return next;
}

void
eng_cm_path_fini(struct eng_cm *cm)
{
	struct cm_mad *mad;
	struct cm_path *w;

	while ((w = TAILQ_FIRST(&cm->asking)) != NULL) {
		mads_end(cm, w, NULL);
		path_settle(cm, w, CM_PATH_FAILED, 0);
	}
	while ((w = TAILQ_FIRST(&cm->idle)) != NULL)
		path_free(cm, w);
	while ((mad = mads_take(&cm->out)) != NULL)
		free(mad);
}
