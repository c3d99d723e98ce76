/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Accounts are found by a linear search: there are as many as users who have programs, and a few
 * more.  These are accounts of users whose last program has gone but who had made calls ahead of
 * their rate (so that detaching and attaching again does not avoid the wait), and of users of whom
 * a program was ejected.
 */
#include "share.h"

#include <stdlib.h>

#define SECOND_NS UINT64_C(1000000000)

struct eng_share {
	struct eng_shares *table;
	LIST_ENTRY(eng_share) next;
	struct eng_share_info info;
	uint64_t due_ns; /* when all calls made so far would have been made at the user's pace */
	pthread_mutex_t turn;
};

static const struct {
	const char *name, *what;
} kinds[ENG_SHARE_KINDS] = {
#define ENG_SHARE(symbol, text, words) [ENG_SHARE_##symbol] = {text, words},
#include "share.def"
#undef ENG_SHARE
};

const char *
eng_share_name(enum eng_share_kind kind)
{
	return kinds[kind].name;
}

const char *
eng_share_what(enum eng_share_kind kind)
{
	return kinds[kind].what;
}

/* --- the table --- */

void
eng_shares_init(struct eng_shares *t)
{
	unsigned int i;

	memset(t, 0, sizeof(*t));
	pthread_mutex_init(&t->lock, NULL);
	for (i = 0; i < ENG_SHARE_KINDS; i++)
		t->total[i] = ENG_SHARE_NO_LIMIT;
}

static void
share_free(struct eng_share *s)
{
	LIST_REMOVE(s, next);
	pthread_mutex_destroy(&s->turn);
	free(s);
}

void
eng_shares_fini(struct eng_shares *t)
{
	struct eng_share *s;

	while ((s = LIST_FIRST(&t->accounts)) != NULL)
		share_free(s);
	pthread_mutex_destroy(&t->lock);
}

void
eng_shares_set_total(struct eng_shares *t, enum eng_share_kind kind, uint64_t total)
{
	pthread_mutex_lock(&t->lock);
	t->total[kind] = total;
	pthread_mutex_unlock(&t->lock);
}

/* --- accounts; the lock is held --- */

/* Frees accounts that are not needed. */
static void
share_forget(struct eng_shares *t, uint64_t now_ns)
{
	struct eng_share *s, *next;

	for (s = LIST_FIRST(&t->accounts); s != NULL; s = next) {
		next = LIST_NEXT(s, next);
		if (s->info.sessions != 0 || s->due_ns > now_ns || s->info.ejected != 0)
			continue;
		t->n--;
		share_free(s);
	}
}

/* The account of @uid, a new one if there is none. */
static struct eng_share *
share_account(struct eng_shares *t, uid_t uid)
{
	struct eng_share *at, *before = NULL, *s;

	LIST_FOREACH(at, &t->accounts, next) {
		if (at->info.uid == uid)
			return at;
		if (at->info.uid > uid)
			break;
		before = at;
	}
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return NULL;
	s->table = t;
	s->info.uid = uid;
	pthread_mutex_init(&s->turn, NULL);
	if (before != NULL)
		LIST_INSERT_AFTER(before, s, next);
	else
		LIST_INSERT_HEAD(&t->accounts, s, next);
	t->n++;
	return s;
}

struct eng_share *
eng_share_join(struct eng_shares *t, uid_t uid, const struct eng_share_rule *rule, uint64_t now_ns)
{
	struct eng_share *s;

	assert(rule->percent >= 1 && rule->percent <= 100);
	pthread_mutex_lock(&t->lock);
	share_forget(t, now_ns);
	s = share_account(t, uid);
	if (s != NULL) {
		s->info.rule = *rule;
		s->info.sessions++;
	}
	pthread_mutex_unlock(&t->lock);
	return s;
}

bool
eng_share_is_of(const struct eng_share *s, uid_t uid)
{
	return s->info.uid == uid;
}

void
eng_share_leave(struct eng_share *s)
{
	struct eng_shares *t = s->table;
	unsigned int i;

	pthread_mutex_lock(&t->lock);
	s->info.sessions--;
	for (i = 0; i < ENG_SHARE_KINDS && s->info.sessions == 0; i++)
		assert(s->info.used[i] == 0);
	pthread_mutex_unlock(&t->lock);
}

/* --- taking and giving --- */

/* Whether a user with @mine of the @used out of @total may have @n more. */
static bool
rule_admits(uint32_t percent, uint64_t total, uint64_t used, uint64_t mine, uint64_t n)
{
	if (used > total || n > total - used)
		return false;
	if (percent == 100 || (mine == 0 && n == 1))
		return true;
	return (unsigned __int128)(mine + n) * (100 - percent) <=
		(unsigned __int128)(total - used - n) * percent;
}

static bool
share_fits(const struct eng_share *s, enum eng_share_kind kind, uint64_t n)
{
	const struct eng_shares *t = s->table;
	uint64_t mine = s->info.used[kind];

	if (s->info.rule.most[kind] != 0 &&
		(n > s->info.rule.most[kind] || mine > s->info.rule.most[kind] - n))
		return false;
	return t->total[kind] == ENG_SHARE_NO_LIMIT || s->info.rule.percent == 100 ||
		rule_admits(s->info.rule.percent, t->total[kind], t->used[kind], mine, n);
}

static uint32_t
percent_of(struct eng_share *s)
{
	uint32_t percent;

	if (s == NULL)
		return 100;
	pthread_mutex_lock(&s->table->lock);
	percent = s->info.rule.percent;
	pthread_mutex_unlock(&s->table->lock);
	return percent;
}

bool
eng_share_admits_one(struct eng_share *s, uint64_t total, uint64_t used, uint64_t mine)
{
	return rule_admits(percent_of(s), total, used, mine, 1);
}

uint64_t
eng_share_most_of(struct eng_share *s, uint64_t total)
{
	uint64_t most = total * percent_of(s) / 100;

	return most == 0 && total != 0 ? 1 : most;
}

bool
eng_share_fits(struct eng_share *s, enum eng_share_kind kind, uint64_t n)
{
	bool good;

	if (s == NULL)
		return true;
	pthread_mutex_lock(&s->table->lock);
	good = share_fits(s, kind, n);
	pthread_mutex_unlock(&s->table->lock);
	return good;
}

bool
eng_share_take(struct eng_share *s, enum eng_share_kind kind, uint64_t n)
{
	bool good;

	if (s == NULL)
		return true;
	pthread_mutex_lock(&s->table->lock);
	good = share_fits(s, kind, n);
	if (good) {
		s->info.used[kind] += n;
		s->table->used[kind] += n;
	} else {
		s->info.refused[kind]++;
	}
	pthread_mutex_unlock(&s->table->lock);
	return good;
}

bool
eng_share_admits(struct eng_shares *t, uid_t uid, const struct eng_share_rule *rule,
	enum eng_share_kind kind)
{
	struct eng_share none = {.table = t, .info.rule = *rule}, *s;
	bool good;

	pthread_mutex_lock(&t->lock);
	LIST_FOREACH(s, &t->accounts, next)
		if (s->info.uid == uid)
			break;
	if (s == NULL)
		s = &none;
	good = share_fits(s, kind, 1);
	s->info.refused[kind] += !good;
	pthread_mutex_unlock(&t->lock);
	return good;
}

void
eng_share_give(struct eng_share *s, enum eng_share_kind kind, uint64_t n)
{
	if (s == NULL)
		return;
	pthread_mutex_lock(&s->table->lock);
	assert(s->info.used[kind] >= n);
	s->info.used[kind] -= n;
	s->table->used[kind] -= n;
	pthread_mutex_unlock(&s->table->lock);
}

uint64_t
eng_share_most(struct eng_share *s, enum eng_share_kind kind)
{
	uint64_t most = ENG_SHARE_NO_LIMIT;

	if (s == NULL)
		return most;
	pthread_mutex_lock(&s->table->lock);
	if (s->table->total[kind] != ENG_SHARE_NO_LIMIT && s->info.rule.percent != 100)
		most = (uint64_t)((unsigned __int128)s->table->total[kind] * s->info.rule.percent /
			100);
	if (most == 0 && s->table->total[kind] != 0)
		most = 1;
	if (s->info.rule.most[kind] != 0)
		most = karst_min_u64(most, s->info.rule.most[kind]);
	pthread_mutex_unlock(&s->table->lock);
	return most;
}

/* --- calls --- */

pthread_mutex_t *
eng_share_turn(struct eng_share *s)
{
	return &s->turn;
}

uint64_t
eng_share_pace(struct eng_share *s, uint32_t n, uint64_t now_ns)
{
	uint64_t wait = 0;

	if (s == NULL)
		return 0;
	pthread_mutex_lock(&s->table->lock);
	s->info.calls += n;
	if (s->info.rule.calls != 0) {
		if (s->due_ns < now_ns)
			s->due_ns = now_ns;
		if (s->due_ns - now_ns > SECOND_NS) {
			wait = s->due_ns - now_ns - SECOND_NS;
			s->info.calls_late++;
		}
		s->due_ns += n * SECOND_NS / s->info.rule.calls;
	}
	pthread_mutex_unlock(&s->table->lock);
	return wait;
}

/* --- looking --- */

unsigned int
eng_share_list(struct eng_shares *t, uid_t from, struct eng_share_info *infos, unsigned int max)
{
	const struct eng_share *s;
	unsigned int n = 0;

	pthread_mutex_lock(&t->lock);
	LIST_FOREACH(s, &t->accounts, next)
		if (s->info.uid >= from && n < max)
			infos[n++] = s->info;
	pthread_mutex_unlock(&t->lock);
	return n;
}

void
eng_share_info(struct eng_share *s, struct eng_share_info *info)
{
	pthread_mutex_lock(&s->table->lock);
	*info = s->info;
	pthread_mutex_unlock(&s->table->lock);
}

void
eng_share_eject(struct eng_share *s)
{
	if (s == NULL)
		return;
	pthread_mutex_lock(&s->table->lock);
	s->info.ejected++;
	pthread_mutex_unlock(&s->table->lock);
}

bool
eng_share_trusted(struct eng_share *s)
{
	bool yes;

	if (s == NULL)
		return true;
	pthread_mutex_lock(&s->table->lock);
	yes = s->info.ejected == 0;
	pthread_mutex_unlock(&s->table->lock);
	return yes;
}
