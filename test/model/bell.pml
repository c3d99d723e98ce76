/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The doorbell ring: QUEUES threads of a program, each of which rings for a queue of its own, and the
 * engine, which takes the bells.  karst_bell_ring() and the taking of the idle flag in
 * karst_wq_publish() (lib/ring/karst_ring.h) against karst_bell_poll() and karst_wqe_idle(), or
 * karst_wqe_idle_begin() (karst_ring_engine.h).  A thread may stop between its ticket and its cell, and others overtake it.
 *
 * Proved: each bell is taken, once, with the number that was written; the ring is never full.  With
 * -DEAGER, where a program does not wait until the engine is idle, the ring may be full, and all else
 * holds.
 *
 * Size: 2 queues, 2 cells, 2 rings of each queue.
 *
 * mutants: CELL_RELEASE CELL_ACQUIRE IDLE_RELEASE IDLE_ACQUIRE
 * mutants: TICKET_RELEASE TICKET_ACQUIRE TICKET_EXCHANGE
 * variant: EAGER
 * mutants: CELL_RELEASE CELL_ACQUIRE FREE_RELEASE FREE_ACQUIRE TICKET_EXCHANGE
 */
#define CELL_RELEASE    1
#define CELL_ACQUIRE    2
#define FREE_RELEASE    3
#define FREE_ACQUIRE    4
#define IDLE_RELEASE    5
#define IDLE_ACQUIRE    6
#define TICKET_RELEASE  7
#define TICKET_ACQUIRE  8
#define TICKET_EXCHANGE 9 /* instead: read, then store */

#define QUEUES 2
#define ROUNDS 2 /* rings of each program */
#define CELLS  2

#define ENGINE  QUEUES
#define THREADS (QUEUES + 1)

#define TAIL    0
#define SEQ(t)  (1 + (t) % CELLS)
#define IDLE(q) (1 + CELLS + (q))
#define ATOMICS (1 + CELLS + QUEUES)
#define QPN(t)  (ATOMICS + 2 * ((t) % CELLS))
#define LOCS    (ATOMICS + 2 * CELLS)
#define WRITES  (QUEUES * ROUNDS + 1)

#include "c11.inc"

byte whose[QUEUES * ROUNDS]; /* ticket */

/* one queue's thread */
proctype program(byte me)
{
	byte round, pos, seq, found;

	do
	:: round < ROUNDS ->
#ifndef EAGER
		/* karst_wq_publish() finds that the engine is idle on this queue */
		newest(IDLE(me)) == 1;
		load_newest(me, IDLE(me), found, false);
		exchange(me, IDLE(me), found, 0, STRONG(IDLE_ACQUIRE), false);
		assert(found == 1);
#endif

		/* karst_bell_ring() */
		load(me, TAIL, pos, STRONG(TICKET_ACQUIRE));
		do
		:: true ->
			load(me, SEQ(pos), seq, STRONG(FREE_ACQUIRE));
			if
			:: seq < pos ->
				/* the ring is full */
#ifdef EAGER
				newest(SEQ(pos)) >= pos
#else
				assert(false)
#endif
			:: seq > pos -> load(me, TAIL, pos, STRONG(TICKET_ACQUIRE))
			:: seq == pos ->
				if
				:: STRONG(TICKET_EXCHANGE) ->
					compare_exchange(me, TAIL, pos, found, pos + 1,
						STRONG(TICKET_ACQUIRE), STRONG(TICKET_RELEASE))
				:: else ->
					load(me, TAIL, found, true);
					if
					:: found == pos -> store(me, TAIL, pos + 1, true)
					:: else
					fi
				fi;
				if
				:: found == pos -> break
				:: else -> pos = found
				fi
			fi
		od;
		whose[pos] = me;
		plain_write(me, QPN(pos), me);
		store(me, SEQ(pos), pos + 1, STRONG(CELL_RELEASE));
		round++;
		pos = 0; seq = 0; found = 0
	:: else -> break
	od
}

proctype engine()
{
	byte head, seq, qpn;

	do
	:: head == QUEUES * ROUNDS -> break
	:: else ->
		/* karst_bell_poll(), until there is one */
		newest(SEQ(head)) == head + 1;
		load_newest(ENGINE, SEQ(head), seq, STRONG(CELL_ACQUIRE));
		plain_read(ENGINE, QPN(head), qpn);
		store(ENGINE, SEQ(head), head + CELLS, STRONG(FREE_RELEASE));
		assert(qpn == whose[head]);
		head++;
#ifndef EAGER
		/* the queue has run dry: karst_wqe_idle() */
		store(ENGINE, IDLE(qpn), 1, STRONG(IDLE_RELEASE));
#endif
		qpn = 0;
		seq = 0
	od
}

init
{
	byte i;

	atomic {
		for (i : 0 .. CELLS - 1) {
			mem[SEQ(i)].m[0].val = i
		}
		for (i : 0 .. QUEUES - 1) {
			mem[IDLE(i)].m[0].val = 1;
			run program(i)
		}
		run engine()
	}
}
