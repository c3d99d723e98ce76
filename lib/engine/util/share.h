/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Fair shares: how much the users of an engine may have of its limited resources.
 *
 * Limits of a program do not limit a user who runs many programs.  So each user has an account for
 * what all their programs have, and resources are shared out by one rule:
 *
 *	a user takes no more than share / (100 - share) times what is free afterwards.
 *
 * With a share of 75: a single user gets three quarters of everything; of two users who take what
 * they can each gets three sevenths, of three three tenths; in each case something is left for the
 * next user, who in turn may have three times what that user leaves.  So no number of users has to
 * be configured, and no user has to be evicted.  A user always gets the first one of a resource
 * that is counted in units, as long as one is left.  A share of 100 is limited only by what exists;
 * it counts as used for the others.
 *
 * For some resources a user may have an additional limit, which holds however much is free.
 *
 * Control calls take time of the lcores, which cannot be saved up: they are paced.  A user's
 * programs together may make a number of calls a second, up to a second's worth in advance; a
 * program that is faster waits, on the thread of its own session.  Control calls also take turns by
 * users: only one thread of a user at a time waits for the engine's lock (eng_ctl_for()).
 *
 * Any thread; no other lock is taken while the lock in here is held.
 */
#ifndef ENG_SHARE_H
#define ENG_SHARE_H

#include <pthread.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "karst_base.h"

enum eng_share_kind {
#define ENG_SHARE(symbol, name, what) ENG_SHARE_##symbol,
#include "share.def"
#undef ENG_SHARE
	ENG_SHARE_KINDS
};

#define ENG_SHARE_NO_LIMIT UINT64_MAX

/** Limits of one user. */
struct eng_share_rule {
	uint32_t percent;               /* of what is free or already the user's, 1 to 100 */
	uint32_t calls;                 /* control calls a second; 0: no limit */
	uint64_t most[ENG_SHARE_KINDS]; /* however much is free; 0: no such limit */
};

struct eng_share;

struct eng_shares {
	pthread_mutex_t lock; /* protects the rest, and all accounts */
	uint64_t total[ENG_SHARE_KINDS];
	uint64_t used[ENG_SHARE_KINDS];
	LIST_HEAD(, eng_share) accounts; /* sorted by uid */
	uint32_t n;
};

/** A user's account, for readers. */
struct eng_share_info {
	uid_t uid;
	uint32_t sessions;
	struct eng_share_rule rule;
	uint64_t used[ENG_SHARE_KINDS];
	uint64_t refused[ENG_SHARE_KINDS]; /* requests that were too much */
	uint64_t calls, calls_late;        /* control calls; of these, that had to wait */
	uint64_t ejected;                  /* programs whose memory has blocked an lcore */
};

/** "name" and "what" of share.def */
const char *eng_share_name(enum eng_share_kind kind);
const char *eng_share_what(enum eng_share_kind kind);

/** All totals are NO_LIMIT at first. */
void eng_shares_init(struct eng_shares *t);
void eng_shares_fini(struct eng_shares *t);
/** Sets how much of @kind exists for all users together; what is already taken stays. */
void eng_shares_set_total(struct eng_shares *t, enum eng_share_kind kind, uint64_t total);

/** The account of @uid, for one more session; @rule now holds for all sessions of the user.  NULL:
 *  no memory */
struct eng_share *eng_share_join(
	struct eng_shares *t, uid_t uid, const struct eng_share_rule *rule, uint64_t now_ns);
bool eng_share_is_of(const struct eng_share *s, uid_t uid);
/** The session must have given back everything before. */
void eng_share_leave(struct eng_share *s);

/** Charges @n more of @kind to the account.  @return false: too much, counted.  NULL has no
 *  limits. */
bool eng_share_take(struct eng_share *s, enum eng_share_kind kind, uint64_t n);
void eng_share_give(struct eng_share *s, enum eng_share_kind kind, uint64_t n);
/** Whether that would be allowed. */
bool eng_share_fits(struct eng_share *s, enum eng_share_kind kind, uint64_t n);
/** What the user could have of @kind as the only user. */
uint64_t eng_share_most(struct eng_share *s, enum eng_share_kind kind);

/** The same rule for resources that are not in the accounts: whether a user with @mine of the @used
 *  ones may have one more of @total.  NULL is limited only by @total. */
bool eng_share_admits_one(struct eng_share *s, uint64_t total, uint64_t used, uint64_t mine);
/** How many of them the user could have as the only user. */
uint64_t eng_share_most_of(struct eng_share *s, uint64_t total);

/** Whether a user, who may have no account yet, may have one more of @kind; a refusal is
 *  counted. */
bool eng_share_admits(struct eng_shares *t, uid_t uid, const struct eng_share_rule *rule,
	enum eng_share_kind kind);

/** The lock whose holder is the one thread of the user that waits for the engine's lock, or holds
 *  it. */
pthread_mutex_t *eng_share_turn(struct eng_share *s);

/** Counts @n control calls.  @return how long to wait first, ns */
uint64_t eng_share_pace(struct eng_share *s, uint32_t n, uint64_t now_ns);

/** Lists up to @max accounts with the lowest uids from @from on, in order.  @return how many. */
unsigned int eng_share_list(
	struct eng_shares *t, uid_t from, struct eng_share_info *infos, unsigned int max);
void eng_share_info(struct eng_share *s, struct eng_share_info *info);

/** Notes that mapped memory of the user has blocked an lcore.  No more memory of the user is mapped
 *  for as long as the engine lives; the account is kept. */
void eng_share_eject(struct eng_share *s);
/** Whether the user's memory may be mapped. */
bool eng_share_trusted(struct eng_share *s);

#endif /* ENG_SHARE_H */
