/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The copies that an lcore makes to and from memory that is not mapped (karst_copy.h); see
 * copies.c. */
#ifndef ENGINE_COPIES_H
#define ENGINE_COPIES_H

#include "lcore.h"
#include "space_priv.h"

/* Most copies of an lcore at a time.  A queue pair has at most three, and few wait at the same
 * time. */
#define ENG_COPIES 256u

/* If there are so many, further ones are only made for packets that arrive, and copiers make none
 * for slow programs: a packet is lost if there is no copy for it, but to send can wait. */
#define ENG_COPIES_MOST (ENG_COPIES * 3 / 4)
/* Users are told apart by a hash with a secret; those with the same one have these numbers
 * together. */
#define ENG_USER_HASHES 4096u

/* Location of a part of a copy in a program. */
struct eng_place {
	struct karst_space *space;
	uint64_t remote;
	uint8_t *mapped; /* NULL: copied */
	uint32_t n;      /* contiguous bytes */
};

/*
 * Phases of a copy.  While it has references, its programs' structures stay, and calls that remove
 * a key wait for it (eng_copies_settle()).
 *
 *	          who has it                  references  what is next
 *	CORE      lib/qp, or it is free           -       submitted: TODO, VOID or DEFERRED
 *	VOID      todo, and nobody makes it       -       safe point: CORE
 *	WAITING   todo, since an earlier turn    yes      as TODO
 *	TODO      todo                            -       safe point: CORE if it is made, RUNNING
 *	                                                  if its thread loses the lcore, DEFERRED,
 *	                                                  or WAITING if there is no time left;
 *	                                                  dropped by lib/qp, or refused: VOID
 *	DEFERRED  unsent, then the pool's        yes      a copier takes it: RUNNING;
 *	          queue                                   cancelled: OVER
 *	RUNNING   a thread                       yes      the thread returns: OVER
 *	OVER      the pool's list over, or        -       safe point: CORE
 *	          returned
 *
 * A copy that lib/qp drops in a later phase passes through the same ones, and is free in CORE.  If
 * the thread of a RUNNING copy is written off, lib/qp is told that nothing was moved, while the
 * copy is RUNNING until the thread returns.
 */
enum eng_copy_phase {
	ENG_COPY_CORE,
	ENG_COPY_VOID,
	ENG_COPY_WAITING,
	ENG_COPY_TODO,
	ENG_COPY_DEFERRED,
	ENG_COPY_RUNNING,
	ENG_COPY_OVER,
};

struct eng_copy {
	struct karst_copy pub; /* first */
	struct eng_copy *next; /* of the list that it is in */
	_Atomic uint8_t phase; /* enum eng_copy_phase; from DEFERRED on, protected by the pool's
				* lock */
	bool dropped;          /* lib/qp does not need it any more */
	bool handed;           /* in the pool's list of copies for the driver */
	bool queued;           /* counted among the copies of its program that wait for a copier */
	bool awaited;          /* counted in struct eng_copies.nawaited */
	bool unused;           /* submit() has not accepted it: no frame refers to its room */
	bool counted;          /* in struct eng_copies.ncounted */
	bool slow;             /* a program of it was slow when a copier was to make it */
	uint16_t user;         /* hash of its user */
	_Atomic bool inside;   /* its thread waits for this process, not for the program */
	_Atomic bool made;     /* its thread only has to hand it in */
	uint32_t result;       /* bytes moved, once the copy is done */
	struct eng_place where[KARST_COPY_PARTS];
};

struct eng_copy_list {
	struct eng_copy *head;
	struct eng_copy *tail;
};

/* What a user's programs have of an lcore's copies. */
struct eng_copies_user {
	uint16_t ncounted; /* of struct eng_copies.ncounted */
	uint16_t nbehind;  /* of struct eng_copies.nbehind */
	/* deferred.c; written by the driver and the watchdog, relaxed */
	_Atomic uint32_t nslow;     /* programs that became slow here in its window */
	_Atomic uint64_t window_ns; /* start of the window */
	_Atomic uint64_t until_ns;  /* end of the time in which all its programs count as slow */
};

struct eng_copies {
	struct eng_copy *free;  /* their rooms have pages */
	struct eng_copy *cold;  /* free, and their rooms have none */
	struct eng_copy *spent; /* free at the next safe point: frames still refer to their rooms */
	/* pushed by threads that were left behind: no thread works on them any more */
	struct eng_copy *_Atomic returned;
	struct eng_copy_list todo;
	struct eng_copy_list unsent; /* of slow programs, not yet in the pool's list */
	uint32_t nkept;              /* packets that wait for a copy: one for each copy, and ... */
	uint32_t nbehind;            /* ... those behind it */
	uint32_t nawaited;           /* copies that copiers have or will get */
	uint32_t ncounted;           /* copies from submit() until they are free */
	uint32_t nfree;              /* elements of the list free */
	uint32_t nspent;             /* copies freed while queue pairs waited for one, since those
				      * tried again */
	uint32_t nused;              /* elements of copy[] that have been used so far */
	uint32_t salt;               /* of the hash of users */
	struct eng_copies_user of_user[ENG_USER_HASHES];
	/* threads that were left behind in copies; for each of copy[], the uid of the program that
	 * holds such a thread, plus 1, or 0 (deferred.c).  Any thread, relaxed */
	_Atomic uint32_t nleft;
	_Atomic uint64_t left[ENG_COPIES];
	bool left_behind; /* threads that were left behind may still write here */
	bool fleeting;    /* packets that are delivered now do not own their buffers:
				      * keep a copy */
	struct eng_copy copy[ENG_COPIES];
	uint8_t room[ENG_COPIES][KARST_COPY_ROOM] __attribute__((aligned(4096)));
};

static inline enum eng_copy_phase
eng_copy_phase(const struct eng_copy *c)
{
	/* relaxed: the pool's lock orders what other threads do to a copy */
	return (enum eng_copy_phase)atomic_load_explicit(&c->phase, memory_order_relaxed);
}

static inline void
eng_copy_append(struct eng_copy_list *l, struct eng_copy *c)
{
	c->next = NULL;
	if (l->head == NULL)
		l->head = c;
	else
		l->tail->next = c;
	l->tail = c;
}

static inline struct eng_copy *
eng_copy_first(struct eng_copy_list *l)
{
	struct eng_copy *c = l->head;

	if (c != NULL)
		l->head = c->next;
	return c;
}

/* --- unmapped.c --- */

/* Location of the @n bytes at an address of unmapped memory, or of the first of them. */
struct eng_place eng_place_of(const uint8_t *host, uint32_t n);
/* Whether the process is alive.  To be called before its memory is accessed. */
bool eng_space_alive(struct karst_space *s, uint64_t now_ns);
/* karst_copy_ops.map */
uint8_t *eng_unmapped_map(struct karst_core *core, const uint8_t *host, uint32_t *n);

/* --- copies.c --- */

/* For struct karst_core_config; core->user is the lcore. */
extern const struct karst_copy_ops eng_unmapped_ops;
extern const struct karst_hold_ops eng_hold_ops;

int eng_copies_init(struct eng_lcore *lc);
void eng_copies_fini(struct eng_lcore *lc);

/* Makes the copy.  @return bytes moved.  If @beat is not NULL, *beat is set to the time after each
 * part.  Any thread. */
uint32_t eng_copy_execute(struct eng_copy *c, uint64_t now_ns, _Atomic uint64_t *beat);
/* At a safe point: completes the copy.  @back: no thread works on it any more. */
void eng_copy_finish(struct eng_lcore *lc, struct eng_copy *c, bool back);

/* At a safe point of the lcore: makes or completes all copies that wait for one.  @return false:
 * this thread has lost the lcore (workers.c) and must not access it. */
bool eng_copies_run(struct eng_lcore *lc);
/* At the end of a safe point, or after the last turn: keeps references for copies that wait for the
 * next safe point.  A thread that waits for the program's copies must count them, since keys may be
 * removed meanwhile. */
void eng_copies_hold(struct eng_copies *cs);
/* Around what may begin copies while no thread has the lcore; with attach_lock held.  In between, a
 * thread that removes a key waits, until the copies are counted.  @return for eng_lcore_leave():
 * no thread has it. */
bool eng_lcore_visit(struct eng_lcore *lc);
void eng_lcore_leave(struct eng_lcore *lc, bool visiting);
/* A thread that was left behind has returned from @c.  The lcore may be gone, @cs is not. */
void eng_copy_return(struct eng_copies *cs, struct eng_copy *c);
/* Whether copies wait for a safe point. */
bool eng_copies_wait(const struct eng_lcore *lc);
/* Whether copiers have finished copies for the driver.  To be called before the lcore sleeps. */
bool eng_copies_are_over(const struct eng_lcore *lc);

#endif /* ENGINE_COPIES_H */
