/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Addresses that programs look for without waiting (NO_WAIT).
 *
 * A request that waits for its path looks for one address at a time.  A program that does not wait
 * could look for as many addresses as it sends requests; each is a broadcast, and an entry in the
 * port's table of neighbours, where it replaces another one.  So the number of these addresses is
 * limited, for each program and for all, and each user has a share (share.h).  An address counts
 * from the first attempt until it is found, and for at most SEEK_NS, since the program may have
 * given up.
 *
 * Beyond a limit, attempts find what the port knows already, but nothing is sent.
 */
#include "session_priv.h"

#include <string.h>

#include "karst_neigh.h"

#define SEEKS_SESSION 64u
/* Requests that wait, and connection management (cm_wait.c), add to these. */
static_assert(ENG_SEEKS_MAX <= KARST_ENGINE_NEIGH_MAX / 4, "they are to leave room for others");

/* A little longer than libkarst repeats its request. */
#define SEEK_NS UINT64_C(3200000000)
/* Interval of attempts that send something in any case; the port repeats its own requests. */
#define SEEK_AGAIN_NS UINT64_C(1000000000)

struct session_seek {
	LIST_ENTRY(session_seek) next;
	struct karst_session *s;
	struct session_seek_key key;
	uint64_t until_ns, sent_ns;
};

/* --- session_lock is held --- */

static void
seek_free(struct session_seek *k)
{
	LIST_REMOVE(k, next);
	eng_share_give(k->s->share, ENG_SHARE_PATHS, 1);
	k->s->e->nseeks--;
	k->s->nseeks--;
	free(k);
}

static void
seeks_expire(struct karst_engine *e, uint64_t now_ns)
{
	struct session_seek *k, *next;

	for (k = LIST_FIRST(&e->seeks); k != NULL; k = next) {
		next = LIST_NEXT(k, next);
		if (now_ns >= k->until_ns)
			seek_free(k);
	}
}

static struct session_seek *
seek_find(const struct karst_session *s, const struct session_seek_key *key)
{
	struct session_seek *k;

	LIST_FOREACH(k, &s->e->seeks, next)
		if (k->s == s && memcmp(&k->key, key, sizeof(*key)) == 0)
			return k;
	return NULL;
}

/* Counts one more address.  NULL: a limit is reached, or there is no memory. */
static struct session_seek *
seek_new(struct karst_session *s, const struct session_seek_key *key, uint64_t now_ns)
{
	struct session_seek *k;

	if (s->nseeks >= SEEKS_SESSION || s->e->nseeks >= ENG_SEEKS_MAX ||
		!eng_share_take(s->share, ENG_SHARE_PATHS, 1))
		return NULL;
	k = calloc(1, sizeof(*k));
	if (k == NULL) {
		eng_share_give(s->share, ENG_SHARE_PATHS, 1);
		return NULL;
	}
	k->s = s;
	k->key = *key;
	k->until_ns = now_ns + SEEK_NS;
	LIST_INSERT_HEAD(&s->e->seeks, k, next);
	s->e->nseeks++;
	s->nseeks++;
	return k;
}

/* --- */

bool
eng_session_seek(struct karst_session *s, const struct session_seek_key *key, bool *send)
{
	uint64_t now_ns = engine_now(s->e);
	struct session_seek *k;

	pthread_mutex_lock(&s->e->session_lock);
	seeks_expire(s->e, now_ns);
	k = seek_find(s, key);
	if (k == NULL)
		k = seek_new(s, key, now_ns);
	*send = k != NULL && (k->sent_ns == 0 || now_ns - k->sent_ns >= SEEK_AGAIN_NS);
	if (*send)
		k->sent_ns = now_ns;
	pthread_mutex_unlock(&s->e->session_lock);
	return k != NULL;
}

void
eng_session_seek_end(struct karst_session *s, const struct session_seek_key *key)
{
	struct session_seek *k;

	pthread_mutex_lock(&s->e->session_lock);
	k = seek_find(s, key);
	if (k != NULL)
		seek_free(k);
	pthread_mutex_unlock(&s->e->session_lock);
}

void
eng_session_drop_seeks(struct karst_session *s)
{
	struct session_seek *k, *next;

	pthread_mutex_lock(&s->e->session_lock);
	for (k = LIST_FIRST(&s->e->seeks); k != NULL; k = next) {
		next = LIST_NEXT(k, next);
		if (k->s == s)
			seek_free(k);
	}
	pthread_mutex_unlock(&s->e->session_lock);
}
