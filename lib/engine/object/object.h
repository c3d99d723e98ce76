/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Objects that programs create, and their owners. */
#ifndef ENGINE_OBJECT_H
#define ENGINE_OBJECT_H

#include "lcore.h"

/* --- owner.c --- */

/* Creates the owner of the embedding program's objects. */
int eng_owner_create_self(struct karst_engine *e);
/* Frees all owners. */
void eng_owners_fini(struct karst_engine *e);
/* Allocates zeroed memory for rings of @o, for an object that is not visible yet: ctl_lock, which
 * is held, is released while a large block is made ready.  NULL: as eng_arena_alloc() */
void *eng_owner_rings_alloc(struct karst_engine_owner *o, size_t bytes);

/* --- objects.c, lanes.c, qp.c --- */

/* Number of entries of lanes with at least @entries: at least two, since a lane of one would end in
 * the middle of a cache line.  0: out of range */
uint32_t eng_lane_entries(uint32_t entries);
/* Frees lanes that were allocated for a resize and not used (lanes.c). */
void eng_cq_free_next(struct eng_cq *c);

/* Chooses the lcore for @wanted.  -EINVAL: there is no such lcore. */
int eng_choose_lcore(const struct karst_engine *e, uint32_t wanted, uint32_t *lcore);

/* Sets the bell and the eventfd of its owner for lcore @lcore. */
void eng_qp_set_doorbell(struct eng_qp *q, uint32_t lcore);

/* --- xrc.c --- */

/* Adds and drops a reference of an object in a domain. */
void eng_xrcd_get(struct karst_engine_xrcd *xrcd);
void eng_xrcd_put(struct karst_engine *e, struct karst_engine_xrcd *xrcd);

/* On the lcore: removes @q from the handles of its QP.  @return false: it is the last one. */
bool eng_qp_part(struct eng_lcore *lc, struct eng_qp *q);
/* The handle of @q's QP that has the memory of its alternate path, or that could have it. */
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
/* "RTS"; "?" for an invalid state */
const char *eng_qp_state_name(uint32_t state);

/* Reports all about QP @qpn, as its lcore sees it between two turns.  -ENOENT, -EDEADLK */
int eng_qp_by_number(struct karst_engine *e, uint32_t qpn, struct eng_qp_report *report);

/* --- qp_ece.c --- */

/* Whether selective repeat was agreed on for @q. */
bool eng_qp_ece_repeats(const struct eng_qp *q);
/* To be called when the QP goes to RESET. */
void eng_qp_ece_forget(struct eng_qp *q);

/* --- qp_call.c, for use in control calls --- */

/* Bursts of requests posted before it that one control call may send. */
#define ENG_SEND_FIRST 16u

/* On the lcore: before a control call that stops @q, sends what was posted before, in at most
 * *bursts.
 * @return true: there is more to send; repeat the call. */
bool eng_qp_send_first(struct eng_lcore *lc, struct eng_qp *q, unsigned int *bursts);

/* Attempts of one control call; initially 0. */
struct eng_tries {
	uint64_t until_ns;
	uint32_t n;
};

/* Within a control call: whether it shall be repeated.  Releases and retakes its lock. */
bool eng_qp_try_again(struct karst_engine *e, struct eng_tries *t);

/* Whether the program has posted requests that are not complete.  Any thread. */
bool eng_qp_has_posted(const struct karst_engine_qp *qp);

/* Queue pairs that one call to an lcore handles; it takes no longer than for one. */
#define ENG_SENDS_AT_ONCE 8u

/* Sends what up to ENG_SENDS_AT_ONCE queue pairs have posted, as far as possible.  @tries: of the
 * control call, for all its queue pairs together; NULL: each is tried once at most.  -EAGAIN, only
 * in that case: there is more, which may wait for memory that is being copied; -EDEADLK */
int eng_qps_send_posted(struct karst_engine *e, struct karst_engine_qp *const *qps, uint32_t n,
	struct eng_tries *tries);

#endif /* ENGINE_OBJECT_H */
