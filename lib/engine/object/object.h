/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* What programs create, and whose it is. */
#ifndef ENGINE_OBJECT_H
#define ENGINE_OBJECT_H

#include "lcore.h"

/* --- owner.c --- */

/* The owner of what the embedding program makes. */
int eng_owner_create_self(struct karst_engine *e);
/* Frees all owners. */
void eng_owners_fini(struct karst_engine *e);
/* Zeroed memory of the rings of @o, for an object that nobody knows of yet: ctl_lock, which is
 * held, is given away while much of it is made ready.  NULL: as eng_arena_alloc() */
void *eng_owner_rings_alloc(struct karst_engine_owner *o, size_t bytes);

/* --- objects.c, lanes.c, qp.c --- */

/* The size that lanes of at least @entries get: two at least, since a lane of one would end in the
 * middle of a cache line.  0: out of range */
uint32_t eng_lane_entries(uint32_t entries);
/* Frees what was laid and not used (lanes.c). */
void eng_cq_free_next(struct eng_cq *c);

/* The lcore that @wanted means.  -EINVAL: there is no such lcore. */
int eng_choose_lcore(const struct karst_engine *e, uint32_t wanted, uint32_t *lcore);

/* The bell and the eventfd of its owner for lcore @lcore. */
void eng_qp_set_doorbell(struct eng_qp *q, uint32_t lcore);

/* --- xrc.c --- */

/* Something is in a domain, or is not any more. */
void eng_xrcd_get(struct karst_engine_xrcd *xrcd);
void eng_xrcd_put(struct karst_engine *e, struct karst_engine_xrcd *xrcd);

/* On the lcore: @q is no handle of its QP any more.  false: it is the last. */
bool eng_qp_part(struct eng_lcore *lc, struct eng_qp *q);
/* Which of the handles of @q's QP has the memory of its alternate path; or could have it. */
void **eng_qp_alternate(struct eng_qp *q);

/* --- qp_call.c --- */

struct eng_qp_report {
	enum karst_qp_type type;
	uint32_t lcore;
	uint32_t pd;
	uint32_t sq_seen, sq_done; /* karst_qp_send_queue() */
	struct karst_core_qp_attr attr;
	struct karst_qp_stats stats;
	struct karst_qp_rate rate;
};

/* "RC" */
const char *eng_qp_type_name(enum karst_qp_type type);
/* "RTS"; "?" for what is none */
const char *eng_qp_state_name(uint32_t state);

/* All about QP @qpn, as its lcore sees it between two turns.  -ENOENT, -EDEADLK */
int eng_qp_by_number(struct karst_engine *e, uint32_t qpn, struct eng_qp_report *report);

/* --- qp_ece.c --- */

/* It was agreed to that @q repeats selectively. */
bool eng_qp_ece_repeats(const struct eng_qp *q);
/* With RESET. */
void eng_qp_ece_forget(struct eng_qp *q);

/* --- qp_call.c, of control calls --- */

/* Bursts that one control call may send of what was posted before it. */
#define ENG_SEND_FIRST 16u

/* On the lcore: sends what was posted before a control call, which stops @q, in at most *bursts.
 * true: there is more to be sent; the call is to be tried again. */
bool eng_qp_send_first(struct eng_lcore *lc, struct eng_qp *q, unsigned int *bursts);

/* Of one control call; 0 at first. */
struct eng_tries {
	uint64_t until_ns;
	uint32_t n;
};

/* Within a control call, whose lock is given away meanwhile: shall it be tried again? */
bool eng_qp_try_again(struct karst_engine *e, struct eng_tries *t);

/* Whether there are requests that are not complete, seen from any thread: the program says so. */
bool eng_qp_has_posted(const struct karst_engine_qp *qp);

/* Queue pairs that are asked in one call to an lcore, which takes no longer than for one. */
#define ENG_SENDS_AT_ONCE 8u

/* Sends what up to ENG_SENDS_AT_ONCE queue pairs have posted, as far as it can go.  @tries: of the
 * control call, for all its queue pairs together; NULL: each is looked at once at most.  -EAGAIN,
 * then alone: there is more, which may wait for memory that is copied; -EDEADLK */
int eng_qps_send_posted(struct karst_engine *e, struct karst_engine_qp *const *qps, uint32_t n,
	struct eng_tries *tries);

#endif /* ENGINE_OBJECT_H */
