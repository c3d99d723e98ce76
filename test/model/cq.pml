/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A completion queue with one or two lanes, each of an lcore's own, and a program that arms
 * the queue, looks once more, and waits for the event: the lanes' tails and the armed word are
 * Dekker pairs.
 * lib/ring/karst_ring.h (karst_cq_lane_peek, karst_cq_lane_take, karst_cq_arm) against
 * lib/ring/karst_ring_engine.h (karst_lane_room, karst_lane_publish) and lib/qp/cq.c
 * (karst_core_flush, signal_lane).
 *
 * Lanes have one entry, so that they wrap around at once.  The first lcore's completions are
 * solicited.  The program sometimes arms for those first and then for all.  The compare and
 * exchange and the exchange of the armed word order nothing here: they need not.  The event does,
 * as sockets, pipes and eventfds do: else the program might not see that it is no longer armed.
 *
 * Holds: every completion is taken, once, as it was written (no deadlock, assertions); no entry
 * is overwritten while it is read; there is at most one event each time that the word is armed.
 *
 * mutants: TAIL_RELEASE TAIL_ACQUIRE HEAD_RELEASE HEAD_ACQUIRE PROGRAM_FENCE ENGINE_FENCE
 * mutants: EVENT_ORDER
 * variant: TWO_LANES
 * mutants: TAIL_RELEASE TAIL_ACQUIRE PROGRAM_FENCE ENGINE_FENCE EVENT_ORDER
 * mutants: SIGNAL_EXCHANGE ARM_STRONGER
 */
#define TAIL_RELEASE    1
#define TAIL_ACQUIRE    2
#define HEAD_RELEASE    3
#define HEAD_ACQUIRE    4
#define PROGRAM_FENCE   5
#define ENGINE_FENCE    6
#define SIGNAL_EXCHANGE 7 /* instead: look, then store */
#define EVENT_ORDER     8
#define ARM_STRONGER    9 /* instead: anything that is armed will do */

#ifdef TWO_LANES
#define LANES 2
#define EACH  1 /* completions */
#else
#define LANES 1
#define EACH  4
#endif

#define SOLICITED 1
#define NEXT      2

#define PROGRAM LANES
#define THREADS (LANES + 1)

#define ARMED    0
#define EVENT    1
#define TAIL(l)  (2 + (l))
#define HEAD(l)  (2 + LANES + (l))
#define ATOMICS  (2 + 2 * LANES)
#define ENTRY(l) (ATOMICS + 2 * (l))
#define LOCS     (ATOMICS + 2 * LANES)
#define WRITES   12

#include "c11.inc"

byte arms, events; /* times that the word became armed; events raised */

proctype lcore(byte me)
{
	byte tail, head, was;

	do
	:: tail < EACH ->
		/* karst_lane_room(), until there is */
		if
		:: tail > head ->
			newest(HEAD(me)) == tail;
			load_newest(me, HEAD(me), head, STRONG(HEAD_ACQUIRE))
		:: else
		fi;
		tail++;
		plain_write(me, ENTRY(me), tail);
		/* karst_core_flush() */
		store(me, TAIL(me), tail, STRONG(TAIL_RELEASE));
		fence(me, STRONG(ENGINE_FENCE));
		/* signal_lane() */
		load(me, ARMED, was, false);
		if
		:: was == NEXT || (was == SOLICITED && me == 0) ->
			if
			:: STRONG(SIGNAL_EXCHANGE) ->
				exchange(me, ARMED, was, 0, false, false)
			:: else -> store(me, ARMED, 0, false)
			fi;
			if
			:: was != 0 ->
				atomic {
					events++;
					assert(events <= arms);
					exchange(me, EVENT, was, events, false, STRONG(EVENT_ORDER))
				}
			:: else
			fi
		:: else
		fi;
		was = 0
	:: else -> break
	od
}

/* karst_cq_arm() */
inline arm(want)
{
	is = 0;
	do
	:: true ->
		atomic {
			compare_exchange(PROGRAM, ARMED, is, found, want, false, false);
			if
			:: found == is && is == 0 -> arms++
			:: else
			fi
		}
		if
		:: found == is -> break
		:: else -> is = found
		fi;
		if
		:: is >= want -> break
		:: is > 0 && !STRONG(ARM_STRONGER) -> break
		:: else
		fi
	od;
	is = 0; found = 0;
	fence(PROGRAM, STRONG(PROGRAM_FENCE))
}

proctype program()
{
	byte head[LANES], tail, it, is, found, got, done, l;

	do
	:: done == LANES * EACH -> break
	:: else ->
		if
		:: arm(SOLICITED)
		:: true
		fi;
		arm(NEXT);
		/* looks at each lane once more */
		it = 0;
		for (l : 0 .. LANES - 1) {
			load(PROGRAM, TAIL(l), tail, STRONG(TAIL_ACQUIRE));
			assert(tail >= head[l] && tail - head[l] <= 1);
			if
			:: tail > head[l] ->
				plain_read(PROGRAM, ENTRY(l), it);
				head[l]++;
				assert(it == head[l]);
				done++;
				store(PROGRAM, HEAD(l), head[l], STRONG(HEAD_RELEASE))
			:: else
			fi
		}
		tail = 0; l = 0;
		if
		:: it > 0 -> it = 0
		:: else ->
			/* waits */
			newest(EVENT) > got;
			got++;
			load_newest(PROGRAM, EVENT, it, STRONG(EVENT_ORDER));
			it = 0
		fi
	od
}

init
{
	atomic {
		run lcore(0);
#ifdef TWO_LANES
		run lcore(1);
#endif
		run program()
	}
}
