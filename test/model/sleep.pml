/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * An lcore that sleeps, and threads of a program that ring.  The end of karst_bell_ring() and
 * karst_bell_must_wake() (lib/ring/karst_ring.h) against karst_bell_poll(), karst_bell_sleep() and
 * karst_bell_awake() (karst_ring_engine.h).  The eventfd is one bit, as for an edge-triggered epoll,
 * and orders nothing.  Cells are relaxed here; bell.pml checks their orderings.
 *
 * Proved: each bell is taken; the eventfd is written at most once for each time that the lcore has
 * announced its sleep.
 *
 * Size: 2 threads, 2 bells, and 1 sleep that ends by itself; or 3 bells and none (-DTHREE).
 *
 * compile: -O1
 * variant: THREE
 * mutants: RING_FENCE SLEEP_FENCE WAKE_EXCHANGE
 */
#define RING_FENCE    1
#define SLEEP_FENCE   2
#define WAKE_EXCHANGE 3 /* instead: read, then store */

#define PROGRAMS 2
#ifdef THREE
#define BELLS 3
#define NAPS  0 /* naps that end by themselves */
#else
#define BELLS 2
#define NAPS  1
#endif

#define ENGINE  PROGRAMS
#define THREADS (PROGRAMS + 1)

#define ASLEEP  0
#define SEQ(t)  (1 + (t))
#define ATOMICS (1 + BELLS)
#define LOCS    ATOMICS
#define WRITES  16

#include "c11.inc"

byte tickets;
bool eventfd;
byte may_wake; /* how often it announced a sleep, and was not woken */

proctype program(byte me)
{
	byte ticket, found;

	do
	:: atomic { tickets < BELLS -> ticket = tickets; tickets++ };
		/* the rest of karst_bell_ring() */
		store(me, SEQ(ticket), 1, false);

		/* karst_bell_must_wake() */
		fence(me, STRONG(RING_FENCE));
		load(me, ASLEEP, found, false);
		if
		:: found ->
			if
			:: STRONG(WAKE_EXCHANGE) ->
				exchange(me, ASLEEP, found, 0, false, false)
			:: else -> store(me, ASLEEP, 0, false)
			fi;
			if
			:: found ->
				atomic {
					assert(may_wake > 0);
					may_wake--;
					eventfd = true
				}
			:: else
			fi
		:: else
		fi;
		ticket = 0; found = 0
	:: tickets == BELLS -> break
	od
}

proctype engine()
{
	byte head, seq, naps;

	do
	:: head == BELLS -> break
	:: else ->
		/* karst_bell_poll() */
		load(ENGINE, SEQ(head), seq, false);
		if
		:: seq -> head++
		:: else ->
			if
			:: newest(SEQ(head)) == 1 /* it continues to poll */
			:: true ->
				/* karst_bell_sleep() */
				may_wake++;
				store(ENGINE, ASLEEP, 1, false);
				fence(ENGINE, STRONG(SLEEP_FENCE));
				load(ENGINE, SEQ(head), seq, false);
				if
				:: seq
				:: else ->
					if
					:: eventfd -> eventfd = false
					:: naps < NAPS -> naps++
					fi
				fi;
				/* karst_bell_awake() */
				store(ENGINE, ASLEEP, 0, false)
			fi
		fi;
		seq = 0
	od
}

init
{
	byte i;

	atomic {
		for (i : 0 .. PROGRAMS - 1) {
			run program(i)
		}
		run engine()
	}
}
