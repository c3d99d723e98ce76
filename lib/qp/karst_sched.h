/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The scheduler: selects the queue pair of a core that sends next.  It is deficit round robin by
 * frame bytes on two levels: over the users who have active queue pairs, and, in each user's turn,
 * over that user's active queue pairs.  Its cost is O(1) for any number of them.
 *
 * The driver assigns queue pairs to users (karst_qp_init.sharer).  A user with a thousand queue
 * pairs sends as many bytes as a user with one, as long as that one has something to send.
 *
 *	while (there is room && (qp = karst_core_pick(core)) != NULL)
 *		if (the port karst_qp_port(qp) takes frames)
 *			karst_core_visit(core, burst, max_bytes);
 *		else
 *			karst_core_park(core, burst, parked of that port);
 *	...
 *	the port takes frames again: karst_core_unpark(core, parked, ...);
 *
 * A driver with an order of its own takes queue pairs by karst_core_next_active() instead.
 */
#ifndef KARST_SCHED_H
#define KARST_SCHED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "karst_base.h"

struct karst_core;
struct karst_core_qp;
struct karst_tx_burst;

#define KARST_SCHED_READY 8u

/** Queue pairs that wait until a port accepts frames, or the driver copies, again.  All zero:
 *  empty. */
LIST_HEAD(karst_parked, karst_core_qp);

struct karst_sched_block;
struct karst_timers;

/** One user of a core; all but the last two members are private to sched.c.  All zero: no active
 *  queue pair. */
struct karst_sched_user {
	struct karst_core_qp *ready[KARST_SCHED_READY];
	struct karst_sched_user *next; /* in the circle of users; NULL: not in it */
	struct karst_sched_user *prev;
	struct karst_sched_block *head; /* of the list of active queue pairs */
	struct karst_sched_block *tail;
	uint32_t nactive; /* queue pairs on the list */
	uint16_t first;   /* index of the first one in the head block */
	uint16_t room;    /* free places in the tail block */
	uint16_t block;   /* low bits of the number of the tail block */
	uint8_t nfetched; /* how many of them, from the first on, are being prefetched */
	uint8_t ready_head;
	uint8_t nready;
	bool starves;    /* on the list of the core */
	int32_t deficit; /* bytes; used only while other users are in the circle */
	/* queue pairs that wait for copies, in the order in which they came; the last of them */
	struct karst_parked starved;
	struct karst_core_qp *starved_last;
	TAILQ_ENTRY(karst_sched_user) starving;
	uint32_t gaps;               /* gaps in use, of core->gaps (gaps.c) */
	struct karst_timers *timers; /* armed timers (timers.c); NULL: there never was one */
} karst_cache_aligned;

/** The scheduler of a core; private to sched.c. */
struct karst_sched {
	struct karst_sched_user *turn;  /* the user who has the turn; never NULL */
	struct karst_sched_user *users; /* by number */
	/* the queue pair of karst_core_pick_first() until its visit, or NULL; and the user who has
	 * the turn after that visit, or NULL */
	const struct karst_core_qp *out_of_turn;
	struct karst_sched_user *resumes;
	struct karst_sched_block *blocks, *spare; /* memory of the lists */
	uint32_t nblocks;                         /* blocks that were ever used */
	uint32_t nusers;
	int32_t quantum; /* bytes, of a user and of a queue pair */
	/* users who have, or had, queue pairs that wait for copies */
	TAILQ_HEAD(, karst_sched_user) starving;
	uint8_t refused; /* enum karst_refusal: of the queue pair that is visited */
};

/** Why a queue pair got no copy in a visit. */
enum karst_refusal {
	KARST_NOT_REFUSED,
	KARST_REFUSED, /* the driver accepts none */
	KARST_YIELDS,  /* it has left its copy to others of its user */
};

/** Bits of karst_core_sends(). */
enum {
	KARST_SENDS = 1,         /* queue pairs may be visited */
	KARST_SENDS_STARVED = 2, /* karst_core_feed() has something to do */
};

/** Puts a queue pair that has something to send at the end of the list; no effect if it is on the
 *  list. */
void karst_core_activate(struct karst_core *core, struct karst_core_qp *qp);

/** What has something to send; queue pairs that are parked at a port do not count.  0: nothing. */
unsigned int karst_core_sends(const struct karst_core *core);
/** Whether that is not 0. */
bool karst_core_has_active(const struct karst_core *core);
/** The same without those that got no copy. */
bool karst_core_has_ready(const struct karst_core *core);
/** Whether karst_core_feed() has something to do. */
bool karst_core_has_starved(const struct karst_core *core);

/** Returns the queue pair whose turn it is; NULL: none.  The next call returns another one only
 *  after this one was visited or parked. */
struct karst_core_qp *karst_core_pick(struct karst_core *core);

/**
 * Lets the queue pair that karst_core_pick() returned build frames into @b by karst_qp_tx().  The
 * visit ends when the quantum of the queue pair is spent; when that of its user is spent, if other
 * users are active; when @b is full; when @b has @max_bytes, including the charge for requests
 * without frames; or when nothing is left to send.
 */
void karst_core_visit(struct karst_core *core, struct karst_tx_burst *b, uint32_t max_bytes);

/**
 * Parks the queue pair that karst_core_pick() returned, because its port accepts no frames.  Work
 * that needs no frame is still done (karst_qp_tx_quiet()).
 */
void karst_core_park(
	struct karst_core *core, struct karst_tx_burst *b, struct karst_parked *parked);

/** Activates up to @most of the parked queue pairs.  @return whether none is left. */
bool karst_core_unpark(struct karst_core *core, struct karst_parked *parked, uint32_t most);
/** Moves all of @from to @to, which is empty. */
void karst_core_park_over(struct karst_parked *from, struct karst_parked *to);

/** Activates up to @most of the queue pairs that got no copy (karst_copy.h) in a visit: of their
 *  users in turn, and of each user in the order in which they came.  Until then they are not
 *  visited for that reason again. */
void karst_core_feed(struct karst_core *core, uint32_t most);

/** Makes @qp the one that karst_core_pick() returns next, whether or not it is active.  The bytes
 *  of that visit are charged to its user, who repays them in later rounds. */
void karst_core_pick_first(struct karst_core *core, struct karst_core_qp *qp);

/** Takes the next queue pair off its list, of each user in turn; NULL: none. */
struct karst_core_qp *karst_core_next_active(struct karst_core *core);

#endif /* KARST_SCHED_H */
