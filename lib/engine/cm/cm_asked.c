/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Incomplete requests for connections, by the address of the peer and by user.
 *
 * A peer keeps a place for each incomplete request, and has a limited number of places for one
 * address, as it cannot distinguish our users.  So the places are shared out here, by the rule of
 * all shares (share.h): a user who sends requests and never completes them uses up only their own
 * share of the peer's places.  A request beyond the share is not sent, as if it were lost on its
 * way; its retry is checked again.  The peer does not tell how many places it has; it is assumed to
 * have our configuration.
 *
 * A connection counts from its REQ until it is established, refused or given up, and the peer is
 * told of each of these.  But a peer is not told that a SIDR REQ is not waited for any more: one
 * without an answer counts for as long as the peer may keep it, and up to twice that.
 *
 * So a user who sends requests to one address after another and waits for no answer leaves a record
 * for each.  Records are shared out by the same rule, and a request beyond that share is not sent
 * either.  A record that is over is freed when its bucket is next visited; each new record makes
 * one more bucket be swept, so this does not take long.
 */
#include "cm.h"
#include "karst_prf.h"

/* How long lib/cm keeps a SIDR REQ that is not answered; see sidr.c there. */
#define KEPT_NS (UINT64_C(4096) << 24)

/* A user who has records. */
struct cm_asker {
	LIST_ENTRY(cm_asker) next;
	uid_t uid;
	uint32_t n; /* records */
};

struct cm_asked {
	LIST_ENTRY(cm_asked) next; /* in its bucket */
	uint8_t ip[16];
	struct cm_asker *asker;
	uint32_t n; /* identifiers */
	/* SIDR REQs that are not waited for any more, of this period and of the previous one */
	uint32_t left[2];
	uint64_t period; /* number of the period, in units of KEPT_NS */
};

static struct cm_asked_bucket *
asked_bucket_of(struct eng_cm *cm, const uint8_t ip[16])
{
	uint64_t half[2];

	memcpy(half, ip, sizeof(half));
	return &cm->asked[karst_prf(cm->place_key, half[0], half[1]) % KARST_DIM(cm->asked)];
}

static void
asked_age(const struct eng_cm *cm, struct cm_asked *a)
{
	uint64_t period = cm->cm->now_ns / KEPT_NS;

	if (period == a->period)
		return;
	a->left[1] = period == a->period + 1 ? a->left[0] : 0;
	a->left[0] = 0;
	a->period = period;
}

static uint32_t
asked_places(const struct cm_asked *a)
{
	return a->n + a->left[0] + a->left[1];
}

/* --- records --- */

/* NULL: the user has no records. */
static struct cm_asker *
asker_of(const struct eng_cm *cm, uid_t uid)
{
	struct cm_asker *u;

	LIST_FOREACH(u, &cm->askers, next)
		if (u->uid == uid)
			return u;
	return NULL;
}

static void
asked_free(struct eng_cm *cm, struct cm_asked *a)
{
	LIST_REMOVE(a, next);
	cm->nasked--;
	if (--a->asker->n == 0) {
		LIST_REMOVE(a->asker, next);
		free(a->asker);
	}
	free(a);
}

/* Frees the records of the bucket that are over. */
static void
bucket_sweep(struct eng_cm *cm, const struct cm_asked_bucket *bucket)
{
	struct cm_asked *a, *next;

	for (a = LIST_FIRST(bucket); a != NULL; a = next) {
		next = LIST_NEXT(a, next);
		asked_age(cm, a);
		if (asked_places(a) == 0)
			asked_free(cm, a);
	}
}

/* The record of @uid and @ip or NULL, and the places of all users at @ip. */
static struct cm_asked *
asked_find(struct eng_cm *cm, const uint8_t ip[16], uid_t uid, uint64_t *all)
{
	const struct cm_asked_bucket *bucket = asked_bucket_of(cm, ip);
	struct cm_asked *a, *found = NULL;

	*all = 0;
	bucket_sweep(cm, bucket);
	LIST_FOREACH(a, bucket, next) {
		if (memcmp(a->ip, ip, sizeof(a->ip)) != 0)
			continue;
		*all += asked_places(a);
		if (a->asker->uid == uid)
			found = a;
	}
	return found;
}

/* NULL: too many, of this user or of all, or no memory. */
static struct cm_asked *
asked_new(struct eng_cm *cm, const uint8_t ip[16], const struct cm_client *client)
{
	struct cm_asker *u;
	struct cm_asked *a;

	bucket_sweep(cm, &cm->asked[cm->asked_sweep++ % CM_ASKED_BUCKETS]);
	u = asker_of(cm, client->uid);
	if (!eng_share_admits_one(
		    client->ids.share, CM_ASKED_MAX, cm->nasked, u != NULL ? u->n : 0)) {
		cm->stats.ask_share++;
		return NULL;
	}
	a = calloc(1, sizeof(*a));
	if (a == NULL)
		return NULL;
	if (u == NULL) {
		u = calloc(1, sizeof(*u));
		if (u == NULL) {
			free(a);
			return NULL;
		}
		u->uid = client->uid;
		LIST_INSERT_HEAD(&cm->askers, u, next);
	}
	u->n++;
	cm->nasked++;
	memcpy(a->ip, ip, sizeof(a->ip));
	a->asker = u;
	a->period = cm->cm->now_ns / KEPT_NS;
	LIST_INSERT_HEAD(asked_bucket_of(cm, ip), a, next);
	return a;
}

/* --- requests --- */

bool
eng_cm_ask(struct eng_cm *cm, struct cm_id *id)
{
	const struct cm_client *client = id->client;
	struct cm_asked *a;
	uint64_t all;

	if (id->asked != NULL)
		return true;
	a = asked_find(cm, id->path.remote_ip, client->uid, &all);
	/* programs without an account are not limited */
	if (client->ids.share != NULL &&
		!eng_share_admits_one(client->ids.share, cm->cm->half_open_of_one, all,
			a != NULL ? asked_places(a) : 0)) {
		cm->stats.ask_share++;
		return false;
	}
	if (a == NULL)
		a = asked_new(cm, id->path.remote_ip, client);
	if (a == NULL)
		return false;
	a->n++;
	id->asked = a;
	return true;
}

void
eng_cm_answered(struct cm_id *id)
{
	if (id->asked == NULL)
		return;
	id->asked->n--; /* the record is freed when its bucket is swept */
	id->asked = NULL;
}

void
eng_cm_unanswered(struct eng_cm *cm, struct cm_id *id)
{
	if (id->asked != NULL && id->qp_type == KARST_QPT_UD) {
		asked_age(cm, id->asked);
		id->asked->left[0]++;
	}
	eng_cm_answered(id);
}

void
eng_cm_asked_fini(struct eng_cm *cm)
{
	struct cm_asked *a;
	unsigned int i;

	for (i = 0; i < KARST_DIM(cm->asked); i++)
		while ((a = LIST_FIRST(&cm->asked[i])) != NULL)
			asked_free(cm, a);
}
