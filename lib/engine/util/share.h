/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Fair shares: what the users of an engine may have of that which it has only so much of.
 *
 * Limits of a program say nothing of a user who runs many.  So there is an account for each user,
 * of all that his programs have, and what is there is shared out by one rule:
 *
 *	a user takes no more than share / (100 - share) times what is free afterwards.
 *
 * With a share of 75: who is alone gets three quarters of everything; of two who take what they can
 * each gets three sevenths, of three three tenths; and whatever they do, something is left for the
 * next who comes, who in turn may have three times what he leaves.  So no number must be chosen for
 * how many users there will be, and no user has to be turned out.  A user always gets the first one
 * of a thing that is counted one by one, as long as one is left.  A share of 100 is limited only by
 * what exists; it counts as used for the others.
 *
 * For some things a user may have a limit in addition, which holds however much is free.
 *
 * Control calls take time of the lcores, which cannot be saved up: they are paced.  A user's
 * programs together may make so many a second, with a second's worth in advance; a program that is
 * faster waits, on the thread of its own session.  They also take turns by users: of one user's
 * threads only one waits for the engine's lock at a time (eng_ctl_for()).
 *
 * Any thread; nothing else is locked while the lock in here is held.
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

/** What one user may. */
struct eng_share_rule {
	uint32_t percent;               /* of what is free with what he has, 1 to 100 */
	uint32_t calls;                 /* control calls a second; 0: as many as he likes */
	uint64_t most[ENG_SHARE_KINDS]; /* whatever is free; 0: no such limit */
};

struct eng_share;

struct eng_shares {
	pthread_mutex_t lock; /* the rest, and all accounts */
	uint64_t total[ENG_SHARE_KINDS];
	uint64_t used[ENG_SHARE_KINDS];
	LIST_HEAD(, eng_share) accounts; /* in the order of users' numbers */
	uint32_t n;
};

/** A user's account, as others see it. */
struct eng_share_info {
	uid_t uid;
	uint32_t sessions;
	struct eng_share_rule rule;
	uint64_t used[ENG_SHARE_KINDS];
	uint64_t refused[ENG_SHARE_KINDS]; /* times that it was too much */
	uint64_t calls, calls_late;        /* control calls; of these, that had to wait */
	uint64_t ejected;                  /* programs that held up an lcore in their memory */
};

/** "name" and "what" of share.def */
const char *eng_share_name(enum eng_share_kind kind);
const char *eng_share_what(enum eng_share_kind kind);

/** Everything is NO_LIMIT at first. */
void eng_shares_init(struct eng_shares *t);
void eng_shares_fini(struct eng_shares *t);
/** How much there is of @kind, for all together; what is taken already stays. */
void eng_shares_set_total(struct eng_shares *t, enum eng_share_kind kind, uint64_t total);

/** The account of @uid, for one more session, with the rule that now holds for all of his.
 *  NULL: no memory */
struct eng_share *eng_share_join(
	struct eng_shares *t, uid_t uid, const struct eng_share_rule *rule, uint64_t now_ns);
bool eng_share_is_of(const struct eng_share *s, uid_t uid);
/** Before that, the session has given back all. */
void eng_share_leave(struct eng_share *s);

/** @n more of @kind for the account.  false: too much, counted.  NULL has no limits. */
bool eng_share_take(struct eng_share *s, enum eng_share_kind kind, uint64_t n);
void eng_share_give(struct eng_share *s, enum eng_share_kind kind, uint64_t n);
/** Would that be too much? */
bool eng_share_fits(struct eng_share *s, enum eng_share_kind kind, uint64_t n);
/** What the user could have of @kind if he were alone. */
uint64_t eng_share_most(struct eng_share *s, enum eng_share_kind kind);

/** The same for places that no account counts, as there are so many of them each time: one more,
 *  for a user who has @mine of the @used ones?  NULL has no limits but @total. */
bool eng_share_admits_one(struct eng_share *s, uint64_t total, uint64_t used, uint64_t mine);
/** How many of them he could have if he were alone. */
uint64_t eng_share_most_of(struct eng_share *s, uint64_t total);

/** Whether one of @kind would fit a user who may have no account yet; counted if not. */
bool eng_share_admits(struct eng_shares *t, uid_t uid, const struct eng_share_rule *rule,
	enum eng_share_kind kind);

/** Who has it is the one of the user's threads that waits for the engine's lock, or has that. */
pthread_mutex_t *eng_share_turn(struct eng_share *s);

/** @n control calls are made.  @return how long to wait first, ns */
uint64_t eng_share_pace(struct eng_share *s, uint32_t n, uint64_t now_ns);

/** Up to @max accounts, the lowest numbers from @from on, in order.  @return how many. */
unsigned int eng_share_list(
	struct eng_shares *t, uid_t from, struct eng_share_info *infos, unsigned int max);
void eng_share_info(struct eng_share *s, struct eng_share_info *info);

/** A program of the user has held up an lcore in memory of his that the engine had mapped.  No more
 *  of it is mapped for as long as the engine lives, which remembers him. */
void eng_share_eject(struct eng_share *s);
/** May his memory be mapped? */
bool eng_share_trusted(struct eng_share *s);

#endif /* ENG_SHARE_H */
