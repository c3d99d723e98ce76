/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Copies of an lcore, to memory that is not mapped and from it (karst_copy.h); copies.c says
 * how. */
#ifndef ENGINE_COPIES_H
#define ENGINE_COPIES_H

#include "lcore.h"
#include "space_priv.h"

/* At once, of an lcore.  A queue pair has three at most, and few wait at the same time. */
#define ENG_COPIES 256u

/* Where in a program a part lies. */
struct eng_place {
	struct karst_space *space;
	uint64_t remote;
	uint8_t *mapped; /* NULL: copied */
	uint32_t n;      /* bytes that lie together */
};

enum eng_copy_phase {
	ENG_COPY_CORE,     /* lib/qp has it, or nobody */
	ENG_COPY_TODO,     /* for the next safe point */
	ENG_COPY_DEFERRED, /* for a copier */
	ENG_COPY_RUNNING,  /* a thread is doing it */
	ENG_COPY_OVER,     /* it has been done by a copier */
};

struct eng_copy {
	struct karst_copy pub; /* first */
	struct eng_copy *next; /* of whatever list it is in */
	_Atomic uint8_t phase; /* enum eng_copy_phase; from DEFERRED on under the pool's lock */
	bool dropped;          /* lib/qp wants it no more */
	bool refused;          /* not to be made at all */
	bool held;             /* eng_copy_hold() */
	bool handed;           /* in the pool's list for the driver */
	bool queued;           /* counted among its program's that wait for a copier */
	bool awaited;          /* counted in struct eng_copies.nawaited */
	_Atomic bool inside;   /* its thread waits for this process, and not for the program */
	uint32_t result;       /* bytes moved, once it is over */
	struct eng_place where[KARST_COPY_PARTS];
};

struct eng_copy_list {
	struct eng_copy *head;
	struct eng_copy *tail;
};

struct eng_copies {
	struct eng_copy *free;
	struct eng_copy *spent; /* free at the next safe point: frames are made of their rooms */
	struct eng_copy_list todo;
	struct eng_copy_list unsent; /* of slow programs, for the pool's list */
	uint32_t nused;              /* of copy[], ever */
	uint32_t nkept;              /* packets that wait */
	uint32_t nawaited;           /* copies that copiers have, or will have */
	bool left_behind;            /* threads may still write here */
	bool fleeting;               /* packets delivered now are not their buffers': keep a copy */
	struct eng_copy copy[ENG_COPIES];
	uint8_t room[ENG_COPIES][KARST_COPY_ROOM] __attribute__((aligned(4096)));
};

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

/* Where @n bytes at an address of unmapped memory lead to, or the first of them. */
struct eng_place eng_place_of(const uint8_t *host, uint32_t n);
/* Does the process still live?  Asked before it is touched. */
bool eng_space_alive(struct karst_space *s, uint64_t now_ns);
/* karst_copy_ops.map */
uint8_t *eng_unmapped_map(struct karst_core *core, const uint8_t *host, uint32_t *n);

/* --- copies.c --- */

/* For struct karst_core_config; core->user is the lcore. */
extern const struct karst_copy_ops eng_unmapped_ops;
extern const struct karst_hold_ops eng_hold_ops;

int eng_copies_init(struct eng_lcore *lc);
void eng_copies_fini(struct eng_lcore *lc);

/* Any thread: moves the bytes.  @return how many.  *beat, if it is not NULL, becomes the time after
 * each part. */
uint32_t eng_copy_execute(struct eng_copy *c, uint64_t now_ns, _Atomic uint64_t *beat);
/* At a safe point: what became of it.  @back: no thread has it any more. */
void eng_copy_finish(struct eng_lcore *lc, struct eng_copy *c, bool back);

/* At a safe point of the lcore: all copies that wait for one.  @return false: this thread has lost
 * the lcore (workers.c) and may not touch it. */
bool eng_copies_run(struct eng_lcore *lc);
/* Is there anything for it? */
bool eng_copies_wait(const struct eng_lcore *lc);
/* Has a copier something for it?  Asked before the lcore sleeps. */
bool eng_copies_are_over(const struct eng_lcore *lc);

#endif /* ENGINE_COPIES_H */
