/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Common state of the fuzz target of queue pairs (fuzz_qp.c): a core with two queue pairs, and
 * pages some of which may not be written to.
 */
#ifndef QP_RIG_H
#define QP_RIG_H

#include "input.h"
#include "karst_qp.h"
#include "selfcheck.h"

#define PAGE    4096u
#define PAGES   7u
#define VA      0x500000000000ull
#define SLOTS   16u
#define MAX_SGE 3u
#define INLINE  48u
#define CQ_SIZE 256u
#define QPS     2u
#define FRAMES  8u
#define MTU     256u

/* Pages of the arena; the others are guards. */
enum { PAGE_OPEN = 1, PAGE_LOCAL = 3, PAGE_READ_ONLY = 4, PAGE_OTHER_PD = 5 };

enum { KEY_OPEN, KEY_LOCAL, KEY_READ_ONLY, KEY_OTHER_PD, KEY_WINDOW1, KEY_WINDOW2, KEYS };

struct rig {
	struct karst_mem *mem;
	struct karst_core *core;
	struct karst_ah_table *ahs;
	struct karst_core_cq *cq;
	uint32_t cq_entries;
	struct karst_core_srq *srq;
	struct karst_core_srq *srq2; /* XRC: created and destroyed */
	struct karst_core_qp *qp[QPS];
	struct karst_wq sq[QPS];
	struct karst_wq rq[QPS];
	uint32_t pd;
	uint32_t key[KEYS];
	uint32_t ah;
	bool local_named; /* the program has used the key of PAGE_LOCAL */
	struct karst_path path;
	enum karst_qp_type type; /* of both; XRC_SEND: the second is an XRC_RECV */
};

extern uint8_t arena[PAGES * PAGE];
extern uint8_t cq_shared[16384];
extern uint8_t srq_shared[4096];
extern uint8_t sq_shared[QPS][4096];
extern uint8_t rq_shared[QPS][4096];

/* Reads up to @bytes bytes as a number, the highest one first; fewer where the input ends. */
static inline uint32_t
take(struct input *in, unsigned int bytes)
{
	uint32_t v = 0;

	while (bytes-- > 0 && in->left > 0) {
		v = v << 8 | *in->p++;
		in->left--;
	}
	return v;
}

/* --- qp_rig.c --- */

uint32_t region(struct rig *r, uint32_t pd, unsigned int page, unsigned int access);
bool is_xrc(const struct rig *r);
/** Opens one of the two SRQs of XRC, with its ring initialized. */
struct karst_core_srq *open_xrc_srq(struct rig *r, unsigned int i);
void open_rig(struct rig *r, struct input *in);
uint32_t some_key(const struct rig *r, struct input *in);
uint64_t some_va(struct input *in);
uint32_t some_len(struct input *in);

/* --- qp_frames.c --- */

void raw_frame(struct rig *r, struct input *in);
void made_frame(struct rig *r, struct input *in);
bool visit(struct rig *r, struct karst_core_qp *qp, uint32_t frames, uint32_t bytes);
void transmit(struct rig *r, struct input *in);
void pass_time(struct rig *r, struct input *in);

/* --- qp_program.c --- */

void post_send(struct rig *r, struct input *in);
void post_recv(struct rig *r, struct input *in);
/** Writes bytes of the input anywhere in shared memory: slots, tails, heads, flags, the CQ. */
void scribble(struct rig *r, struct input *in);
void modify(struct rig *r, struct input *in);
void renew_region(struct rig *r);
/** Takes completions; the key that a bind returned is the window's key from now on. */
void take_completions(struct rig *r, struct input *in);

#endif /* QP_RIG_H */
