/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Which queue pair of a core sends next: deficit round robin by frame bytes over the users who have
 * active queue pairs, and in each user's turn over these, O(1) whatever their numbers.
 *
 * Who the users are (karst_qp_init.sharer) the driver says.  One who has a thousand queue pairs
 * sends as many bytes as one who has a single one, as long as that has something to send.
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

/** Queue pairs that wait until a port takes frames again.  All zero: none. */
LIST_HEAD(karst_parked, karst_core_qp);

struct karst_sched_block;
struct karst_timers;

/** One of those who share a core; all but the last two sched.c's alone.  All zero: has nothing. */
struct karst_sched_user {
	struct karst_core_qp *ready[KARST_SCHED_READY];
	struct karst_sched_user *next; /* in the circle; NULL: not there */
	struct karst_sched_user *prev;
	struct karst_sched_block *head; /* of the list */
	struct karst_sched_block *tail;
	uint32_t nactive; /* on the list */
	uint16_t first;   /* in its head */
	uint16_t room;    /* in its tail */
	uint16_t block;   /* low bits of that one's number */
	uint8_t nfetched; /* of these, from the first on, are being loaded */
	uint8_t ready_head;
	uint8_t nready;
	int32_t deficit;             /* bytes; while others are in the circle, too */
	uint32_t gaps;               /* of core->gaps (gaps.c) */
	struct karst_timers *timers; /* that are armed (timers.c); NULL: never was any */
} karst_cache_aligned;

/** Of a core; sched.c's alone. */
struct karst_sched {
	struct karst_sched_user *turn;  /* who has it; never NULL */
	struct karst_sched_user *users; /* by number */
	/* of karst_core_pick_first(), until its visit, and who has the turn then; or NULL */
	const struct karst_core_qp *out_of_turn;
	struct karst_sched_user *resumes;
	struct karst_sched_block *blocks, *spare; /* lists are made of */
	uint32_t nblocks;                         /* that were ever used */
	uint32_t nusers;
	int32_t quantum; /* bytes, of a user as of a queue pair */
};

/** Puts a queue pair that has something to send at the end of the list; nothing happens if it is
 *  there. */
void karst_core_activate(struct karst_core *core, struct karst_core_qp *qp);

/** Has any queue pair something to send, those that are parked aside? */
bool karst_core_has_active(const struct karst_core *core);

/** The queue pair whose turn it is; NULL: none.  The next call returns another one only after a
 *  visit, or after it was parked. */
struct karst_core_qp *karst_core_pick(struct karst_core *core);

/**
 * Lets the queue pair that karst_core_pick() has returned build frames into @b, as karst_qp_tx():
 * until its quantum is spent, or that of its user, who is not alone; @b is full; @b has @max_bytes
 * with what its quiet requests count as; or there is nothing to send.
 */
void karst_core_visit(struct karst_core *core, struct karst_tx_burst *b, uint32_t max_bytes);

/**
 * Takes the queue pair that karst_core_pick() has returned out of the way, because its port takes
 * nothing.  What needs no frame is done all the same (karst_qp_tx_quiet()).
 */
void karst_core_park(
	struct karst_core *core, struct karst_tx_burst *b, struct karst_parked *parked);

/** @most of them are active again.  @return whether none is left. */
bool karst_core_unpark(struct karst_core *core, struct karst_parked *parked, uint32_t most);
/** All of @from go to @to, which is empty. */
void karst_core_park_over(struct karst_parked *from, struct karst_parked *to);

/** Makes @qp the one that karst_core_pick() returns next, whether or not it is active.  What it
 *  sends then its user pays back later. */
void karst_core_pick_first(struct karst_core *core, struct karst_core_qp *qp);

/** Takes the next queue pair off its list, of each user in turn; NULL: none. */
struct karst_core_qp *karst_core_next_active(struct karst_core *core);

#endif /* KARST_SCHED_H */
