/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A work queue: tail, head and the idle flag.  karst_wq_free() and karst_wq_publish()
 * (lib/ring/karst_ring.h) against karst_wqe_poll(), karst_wqe_publish_head(), karst_wqe_idle() and
 * karst_wqe_busy() (karst_ring_engine.h).  For send queues the three steps of karst_wqe_idle() are apart:
 * karst_wqe_idle_begin(), one fence for several queues, karst_wqe_idle_end(); with one queue that is the
 * same.  The engine also looks without a bell, as it does for an acknowledgement, and takes bells that
 * nobody rang.  The bell is a counter, and orders nothing.
 *
 * Proved: each request is taken, once, as it was written; no slot is overwritten while it is read; the
 * bell rings at most once for each time that the engine became idle, and at most one bell is under
 * way, and one more for each look without a bell.
 *
 * Size: 3 requests, 2 slots, 2 looks without a bell.
 *
 * mutants: TAIL_RELEASE TAIL_ACQUIRE HEAD_RELEASE HEAD_ACQUIRE PROGRAM_FENCE ENGINE_FENCE
 * mutants: PROGRAM_EXCHANGE ENGINE_EXCHANGE
 */
#define TAIL_RELEASE     1
#define TAIL_ACQUIRE     2
#define HEAD_RELEASE     3
#define HEAD_ACQUIRE     4
#define PROGRAM_FENCE    5
#define ENGINE_FENCE     6
#define PROGRAM_EXCHANGE 7 /* instead: read, then store */
#define ENGINE_EXCHANGE  8

#define POSTS 3
#define SLOTS 2
#define LOOKS 2 /* looks without a bell, at most */

#define PROGRAM 0
#define ENGINE  1
#define THREADS 2

#define TAIL    0
#define HEAD    1
#define IDLE    2
#define BELL    3
#define ATOMICS 4
#define SLOT(i) (ATOMICS + 2 * ((i) % SLOTS))
#define LOCS    (ATOMICS + 2 * SLOTS)
#define WRITES  12

#include "c11.inc"

byte idled = 1; /* how often the flag was set; 1 by karst_wqe_init() */
byte rung;
byte bells; /* bells that the engine has taken */
byte looks; /* looks without a bell, so far */

/* karst_wq_publish() of n slots; then rings the bell if it says so */
inline publish(n)
{
	tail = tail + n;
	store(PROGRAM, TAIL, tail, STRONG(TAIL_RELEASE));
	fence(PROGRAM, STRONG(PROGRAM_FENCE));
	load(PROGRAM, IDLE, was, false);
	if
	:: was ->
		if
		:: STRONG(PROGRAM_EXCHANGE) -> exchange(PROGRAM, IDLE, was, 0, false, false)
		:: else -> store(PROGRAM, IDLE, 0, false)
		fi;
		if
		:: was ->
			rung++;
			assert(rung <= idled);
			assert(rung - bells <= 1 + looks);
			exchange(PROGRAM, BELL, was, rung, false, false)
		:: else
		fi
	:: else
	fi;
	was = 0
}

proctype program()
{
	byte tail, head, was, i;

	do
	:: tail < POSTS ->
		/* karst_wq_free(), until there is room */
		if
		:: tail - head == SLOTS ->
			newest(HEAD) != head;
			load_newest(PROGRAM, HEAD, head, STRONG(HEAD_ACQUIRE))
		:: else
		fi;
		i = 0;
		do
		:: i < SLOTS - (tail - head) && tail + i < POSTS ->
			plain_write(PROGRAM, SLOT(tail + i), tail + i + 1);
			i++
		:: i > 0 -> break
		od;
		publish(i)
	:: else -> break
	od
}

proctype engine()
{
	byte tail, head, it;

wait:
	do
	:: newest(BELL) > bells ->
		/* karst_core_doorbell() */
		bells++;
		store(ENGINE, IDLE, 0, false);
		break
	:: looks < LOOKS ->
		looks++;
		store(ENGINE, IDLE, 0, false);
		break
	:: looks < LOOKS ->
		looks++;
		break
	od;
look:
	/* karst_wqe_poll() */
	load(ENGINE, TAIL, tail, STRONG(TAIL_ACQUIRE));
	assert(tail >= head && tail - head <= SLOTS);
	do
	:: head < tail ->
		plain_read(ENGINE, SLOT(head), it);
		assert(it == head + 1);
		it = 0;
		head++;
		/* karst_wqe_publish_head() */
		store(ENGINE, HEAD, head, STRONG(HEAD_RELEASE))
	:: else -> break
	od;
	if
	:: head == POSTS -> goto end
	:: else
	fi;
	/* karst_wqe_idle() */
	idled++;
	store(ENGINE, IDLE, 1, false);
	fence(ENGINE, STRONG(ENGINE_FENCE));
	load(ENGINE, TAIL, it, false);
	if
	:: it == tail -> goto wait
	:: else
	fi;
	if
	:: STRONG(ENGINE_EXCHANGE) -> exchange(ENGINE, IDLE, it, 0, false, false)
	:: else -> store(ENGINE, IDLE, 0, false); it = 1
	fi;
	if
	:: it -> goto look
	:: else -> goto wait
	fi;
end:
	skip
}

init
{
	atomic {
		mem[IDLE].m[0].val = 1;
		run program();
		run engine()
	}
}
