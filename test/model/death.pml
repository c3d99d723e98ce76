/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * An engine that dies at any moment, and what its program learns from the rings afterwards.
 * karst_core_flush() (lib/qp/cq.c) with karst_lane_ready(), karst_wqe_show_head() and
 * karst_lane_publish() (lib/ring/karst_ring_engine.h) against cli_flush_show_ready() and
 * cli_flush_requests() (lib/client/flush.c).  The program may see as little of what the engine did as
 * C11 allows, which is less than after a real death.
 *
 * Proved: each request completes, once, in order, by its entry or by a flush; it is flushed from the
 * slot in which it still is; no entry is read that the engine may have been writing.
 *
 * Size: 3 requests in a queue of 2 slots, and 1 entry of another queue, in a lane of 2 entries.
 *
 * mutants: READY_RELEASE READY_ACQUIRE HEAD_RELEASE HEAD_ACQUIRE TAIL_RELEASE TAIL_ACQUIRE
 * mutants: READY_BEFORE_HEAD HEAD_BEFORE_TAIL LOOK_AT_HEAD_FIRST READY_COUNTS NOT_SHOWN_ONLY
 * mutants: NEWEST_TELLS
 */
#define READY_RELEASE      1
#define READY_ACQUIRE      2
#define HEAD_RELEASE       3
#define HEAD_ACQUIRE       4
#define TAIL_RELEASE       5
#define TAIL_ACQUIRE       6
#define READY_BEFORE_HEAD  7  /* instead: after it */
#define HEAD_BEFORE_TAIL   8  /* instead: after it */
#define LOOK_AT_HEAD_FIRST 9  /* instead: at ready */
#define READY_COUNTS       10 /* instead: only published entries count */
#define NOT_SHOWN_ONLY     11 /* instead: the newest entry is searched in the whole lane */
#define NEWEST_TELLS       12 /* instead: only freed slots are complete */

#define POSTS   3
#define SLOTS   2
#define OTHERS  1
#define ENTRIES 2
#define OTHER   100 /* an entry of the other queue; otherwise the number of the request, from 1 */

#define PROGRAM 0
#define ENGINE  1
#define THREADS 2

#define WQ_TAIL  0
#define WQ_HEAD  1
#define READY    2
#define TAIL     3
#define HEAD     4
#define ATOMICS  5
#define ENTRY(i) (ATOMICS + 2 * ((i) % ENTRIES))
#define SLOT(i)  (ATOMICS + 2 * ENTRIES + 2 * ((i) % SLOTS))
#define LOCS     (ATOMICS + 2 * ENTRIES + 2 * SLOTS)
#define WRITES   4

#include "c11.inc"

bool dead;

inline show_ready()
{
	store(ENGINE, READY, tail, STRONG(READY_RELEASE))
}

inline show_tail()
{
	store(ENGINE, TAIL, tail, STRONG(TAIL_RELEASE))
}

proctype engine()
{
	byte posted, done, others, tail, head, fresh, it;

	{
		do
		:: posted < POSTS && newest(WQ_TAIL) > posted ->
			/* karst_wqe_poll() */
			load(ENGINE, WQ_TAIL, posted, true)
		:: tail - head == ENTRIES && newest(HEAD) > head ->
			/* karst_lane_room() */
			load(ENGINE, HEAD, head, true)
		:: done < posted && tail - head < ENTRIES ->
			plain_read(ENGINE, SLOT(done), it);
			assert(it == done + 1);
			it = 0;
			done++;
			plain_write(ENGINE, ENTRY(tail), done);
			tail++;
			fresh++
		:: others < OTHERS && tail - head < ENTRIES ->
			plain_write(ENGINE, ENTRY(tail), OTHER);
			others++;
			tail++;
			fresh++
		:: fresh > 0 ->
			/* karst_core_flush() */
			fresh = 0;
			if
			:: STRONG(READY_BEFORE_HEAD) -> show_ready()
			:: else
			fi;
			if
			:: STRONG(HEAD_BEFORE_TAIL) -> skip
			:: else -> show_tail()
			fi;
			store(ENGINE, WQ_HEAD, done, STRONG(HEAD_RELEASE));
			if
			:: STRONG(READY_BEFORE_HEAD) -> skip
			:: else -> show_ready()
			fi;
			if
			:: STRONG(HEAD_BEFORE_TAIL) -> show_tail()
			:: else
			fi
		od
	} unless {
		dead
	}
}

/* karst_cq_lane_take() of one entry */
inline take()
{
	plain_read(PROGRAM, ENTRY(head), it);
	if
	:: it != OTHER ->
		completed++;
		assert(it == completed)
	:: else
	fi;
	it = 0;
	head++;
	store(PROGRAM, HEAD, head, true)
}

proctype program()
{
	byte posted, room, head, tail, ready, completed, next, i, it;
	byte slot[SLOTS];

	do
	:: posted < POSTS && posted - room == SLOTS ->
		/* karst_wq_free() */
		load(PROGRAM, WQ_HEAD, room, true)
	:: posted < POSTS && posted - room < SLOTS ->
		slot[posted % SLOTS] = posted + 1;
		plain_write(PROGRAM, SLOT(posted), posted + 1);
		posted++;
		store(PROGRAM, WQ_TAIL, posted, true)
	:: newest(TAIL) > head ->
		/* karst_cq_lane_peek() */
		load(PROGRAM, TAIL, tail, STRONG(TAIL_ACQUIRE));
		do
		:: head < tail -> take()
		:: else -> break
		od
	:: true ->
		dead = true;
		break
	od;
	/* cli_flush_show_ready() */
	load(PROGRAM, TAIL, tail, STRONG(TAIL_ACQUIRE));
	if
	:: STRONG(LOOK_AT_HEAD_FIRST) ->
		load(PROGRAM, WQ_HEAD, next, STRONG(HEAD_ACQUIRE));
		load(PROGRAM, READY, ready, STRONG(READY_ACQUIRE))
	:: else ->
		load(PROGRAM, READY, ready, STRONG(READY_ACQUIRE));
		load(PROGRAM, WQ_HEAD, next, STRONG(HEAD_ACQUIRE))
	fi;
	if
	:: ready < tail || !STRONG(READY_COUNTS) -> ready = tail
	:: else
	fi;
	assert(ready - head <= ENTRIES);
	i = ready;
	do
	:: i > tail || (!STRONG(NOT_SHOWN_ONLY) && i > 0 && ready - i < ENTRIES) ->
		i--;
		plain_read(PROGRAM, ENTRY(i), it);
		if
		:: it != OTHER ->
			if
			:: STRONG(NEWEST_TELLS) && it > next && it <= posted -> next = it
			:: else
			fi;
			break
		:: else
		fi
	:: else -> break
	od;
	it = 0;
	do
	:: head < ready -> take()
	:: else -> break
	od;
	/* cli_flush_requests() */
	assert(next == completed);
	do
	:: next < posted ->
		assert(slot[next % SLOTS] == next + 1);
		next++
	:: else -> break
	od
}

init
{
	atomic {
		run program();
		run engine()
	}
}
