/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * A completion queue, whose lanes belong to one lcore each, and a program that arms the queue, looks
 * once more, and waits for the event.  karst_cq_lane_peek(), karst_cq_lane_take() and
 * karst_cq_arm_behind() (lib/ring/karst_ring.h) against karst_lane_room() and karst_lane_publish()
 * (karst_ring_engine.h), karst_core_flush() and signal_lane() (lib/qp/cq.c).  With -DBEHIND the program
 * arms behind what the lanes show, and polls once between arming and waiting (drivers/verbs/cq.c).
 * The event orders what came before it, as sockets and eventfds do; disarming orders nothing.
 *
 * Proved: each completion is taken, once, as it was written; no entry is overwritten while it is read;
 * there is at most one event each time that the word is armed, with -DBEHIND none without a completion.
 *
 * Size: lanes of 1 entry; 1 lane with 4 completions, or 2 lanes with 1 completion each (-DTWO_LANES,
 * -DBEHIND).  Those of the first lane are solicited, and the program may arm for solicited ones first.
 *
 * mutants: TAIL_RELEASE TAIL_ACQUIRE HEAD_RELEASE HEAD_ACQUIRE PROGRAM_FENCE ENGINE_FENCE
 * mutants: EVENT_ORDER
 * variant: TWO_LANES
 * mutants: TAIL_RELEASE TAIL_ACQUIRE PROGRAM_FENCE ENGINE_FENCE EVENT_ORDER
 * mutants: SIGNAL_EXCHANGE ARM_STRONGER
 * variant: BEHIND
 * mutants: TAIL_RELEASE TAIL_ACQUIRE PROGRAM_FENCE ENGINE_FENCE EVENT_ORDER
 * mutants: SIGNAL_EXCHANGE POSITION COUNT OWN_EVENT KNOWN_FIRST ARM_RELEASE ARMED_ACQUIRE
 */
#define TAIL_RELEASE    1
#define TAIL_ACQUIRE    2
#define HEAD_RELEASE    3
#define HEAD_ACQUIRE    4
#define PROGRAM_FENCE   5
#define ENGINE_FENCE    6
#define SIGNAL_EXCHANGE 7 /* instead: read, then store */
#define EVENT_ORDER     8
#define ARM_STRONGER    9 /* instead: any armed state is enough */
#define POSITION        10 /* instead: the engine ignores it */
#define COUNT           11 /* instead: a word may have an earlier value again */
#define OWN_EVENT       12 /* instead: the program leaves events to the engine */
#define KNOWN_FIRST     13 /* instead: the poll takes everything */
#define ARM_RELEASE     14
#define ARMED_ACQUIRE   15

#if defined(TWO_LANES) || defined(BEHIND)
#define LANES 2
#define EACH  1 /* completions */
#else
#define LANES 1
#define EACH  4
#endif

/* The armed word: one of these, and four times the count. */
#define SOLICITED 1
#define NEXT      2
#define WHAT(w)   ((w) % 4)

#define PROGRAM LANES
#define THREADS (LANES + 1)

#define ARMED    0
#define EVENT    1
#define TAIL(l)  (2 + (l))
#define HEAD(l)  (2 + LANES + (l))
#ifdef BEHIND
#define POS(l)   (2 + 2 * LANES + (l)) /* armed_at */
#define ATOMICS  (2 + 3 * LANES)
#else
#define ATOMICS  (2 + 2 * LANES)
#endif
#define ENTRY(l) (ATOMICS + 2 * (l))
#define LOCS     (ATOMICS + 2 * LANES)
#define WRITES   6

#include "c11.inc"

byte arms, events; /* how often the word became armed; events raised */
byte done;         /* completions taken */

/* Raises the event, by the thread that has disarmed the queue. */
inline raise(t)
{
	atomic {
		events++;
		assert(events <= arms);
#ifdef BEHIND
		assert(done < LANES * EACH);
#endif
		exchange(t, EVENT, was, events, false, STRONG(EVENT_ORDER))
	}
}

/* cq_disarm() of lib/qp/cq.c; the queue was disarmed if found == was. */
inline disarm_as(t)
{
	compare_exchange(t, ARMED, was, found, was - WHAT(was), false, false);
	if
	:: found != was && WHAT(found) != 0 && found / 4 == was / 4 ->
		/* made stronger meanwhile */
		was = found;
		compare_exchange(t, ARMED, was, found, was - WHAT(was), false, false)
	:: else
	fi
}

proctype lcore(byte me)
{
	byte tail, head, was, found;
	bool due;

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
		load(me, ARMED, was, STRONG(ARMED_ACQUIRE));
		due = WHAT(was) == NEXT || (WHAT(was) == SOLICITED && me == 0);
#ifdef BEHIND
		if
		:: due && STRONG(POSITION) ->
			load(me, POS(me), found, false);
			due = found != tail;
			found = 0
		:: else
		fi;
#endif
		if
		:: due ->
			if
			:: STRONG(SIGNAL_EXCHANGE) -> disarm_as(me)
			:: else ->
				store(me, ARMED, was - WHAT(was), false);
				found = was
			fi;
			if
			:: found == was -> raise(me)
			:: else
			fi
		:: else
		fi;
		was = 0; found = 0; due = false
	:: else -> break
	od
}

#ifdef BEHIND
/* karst_cq_lanes_arm() */
inline lanes_arm()
{
	for (l : 0 .. LANES - 1) {
		load(PROGRAM, TAIL(l), pos[l], false);
		store(PROGRAM, POS(l), pos[l], false)
	}
	l = 0
}
#else
inline lanes_arm()
{
	skip
}
#endif

/* karst_cq_arm_behind() */
inline arm(want)
{
	load(PROGRAM, ARMED, is, false);
	do
	:: WHAT(is) >= want -> break
	:: WHAT(is) > 0 && !STRONG(ARM_STRONGER) -> break
	:: else ->
		to = is - WHAT(is) + want;
		if
		:: WHAT(is) == 0 ->
			lanes_arm();
			to = to + (STRONG(COUNT) -> 4 : 0)
		:: else
		fi;
		atomic {
			compare_exchange(PROGRAM, ARMED, is, found, to, false, STRONG(ARM_RELEASE));
			if
			:: found == is && WHAT(is) == 0 -> arms++
			:: else
			fi
		}
		if
		:: found == is -> break
		:: else -> is = found
		fi
	od;
	is = 0; found = 0; to = 0;
	fence(PROGRAM, STRONG(PROGRAM_FENCE))
}

#ifdef BEHIND
/* kv_req_notify_cq() of drivers/verbs: an event for completions that came meanwhile, for which the
 * engine raises none. */
inline raise_what_came()
{
	for (l : 0 .. LANES - 1) {
		load(PROGRAM, TAIL(l), tail, false);
		if
		:: tail != pos[l] -> it = 1
		:: else
		fi
	}
	l = 0; tail = 0;
	if
	:: it != 0 && STRONG(OWN_EVENT) ->
		/* karst_cq_disarm(), which the engine executes for the program */
		atomic {
			choose(PROGRAM, ARMED, open_end(ARMED));
			d_step {
				was = mem[ARMED].m[at].val;
				rmw_at(PROGRAM, ARMED, was - WHAT(was), false, false);
				at = 0;
				forget(ARMED)
			}
		}
		if
		:: WHAT(was) != 0 -> raise(PROGRAM)
		:: else
		fi
	:: else
	fi;
	it = 0; was = 0
}

/* kv_poll_cq(), the first one since the queue was armed. */
inline poll_once()
{
	known = false;
	for (l : 0 .. LANES - 1) {
		known = known || (pos[l] > head[l] && STRONG(KNOWN_FIRST))
	}
	for (l : 0 .. LANES - 1) {
		load(PROGRAM, TAIL(l), tail, STRONG(TAIL_ACQUIRE));
		assert(tail >= head[l] && tail - head[l] <= 1);
		if
		:: tail > head[l] && (!known || pos[l] > head[l]) ->
			plain_read(PROGRAM, ENTRY(l), it);
			head[l]++;
			assert(it == head[l]);
			done++;
			store(PROGRAM, HEAD(l), head[l], STRONG(HEAD_RELEASE))
		:: else
		fi
	}
	tail = 0; l = 0; known = false;
	assert(it > 0); /* there must be no event without a completion */
	it = 0
}

proctype program()
{
	byte head[LANES], pos[LANES], tail, it, is, found, to, was, got, l;
	bool known;

	/* before any completion can come: the queue is not polled then */
	arm(NEXT);
	atomic {
		run lcore(0);
		run lcore(1)
	};
	do
	:: done == LANES * EACH -> break
	:: else ->
		newest(EVENT) > got;
		got++;
		load_newest(PROGRAM, EVENT, it, STRONG(EVENT_ORDER));
		it = 0;
		arm(NEXT);
		raise_what_came();
		poll_once()
	od
}
#else
proctype program()
{
	byte head[LANES], tail, it, is, found, to, got, l;

	do
	:: done == LANES * EACH -> break
	:: else ->
		if
		:: arm(SOLICITED)
		:: true
		fi;
		arm(NEXT);
		/* checks each lane once more */
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
#endif

init
{
	atomic {
#ifndef BEHIND
		run lcore(0);
#endif
#ifdef TWO_LANES
		run lcore(1);
#endif
		run program()
	}
}
