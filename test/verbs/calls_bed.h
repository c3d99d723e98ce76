/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* What the cases of calls.c share: TAP points, an open device, two connected queue pairs. */
#ifndef CALLS_BED_H
#define CALLS_BED_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#define BUF_BYTES  65536u
#define PATIENCE_S 120

/* A case continues after a failed CHECK() or EQ(); a failed MUST() ends the program. */
#define CHECK(ok, ...) (check((ok), __LINE__, #ok, __VA_ARGS__))
#define EQ(a, b)                                                                         \
	do {                                                                             \
		long long got = (long long)(a), want = (long long)(b);                   \
		check(got == want, __LINE__, #a " == " #b, "%lld, not %lld", got, want); \
	} while (0)
#define MUST(ok)                                                        \
	do {                                                            \
		if (!check((ok), __LINE__, #ok, "%s", strerror(errno))) \
			give_up();                                      \
	} while (0)

bool check(bool ok, int line, const char *what, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
_Noreturn void give_up(void);

/** Runs a case and prints a TAP point, which fails if one of the case's checks has failed. */
void run_case(const char *name, void (*fn)(void));
/** @return the exit status. */
int cases_end(void);
/** @return a steady time. */
double seconds(void);

struct rig {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr; /* of buf, with all access rights */
	struct ibv_qp *qp[2];
	struct ibv_srq *srq; /* of the second queue pair; NULL unless the case creates one */
	uint8_t *buf;        /* BUF_BYTES */
};

struct ibv_context *open_device(void);
/** Creates all objects except queue pairs. */
void rig_up(struct rig *r);
/** Creates a queue pair of 16 requests, 2 SGEs, 64 inline bytes; @srq may be NULL. */
struct ibv_qp *make_qp(struct rig *r, enum ibv_qp_type type, struct ibv_srq *srq);
/** @return as ibv_modify_qp() */
int to_init(struct ibv_qp *qp);
int to_rtr(struct ibv_qp *qp, uint32_t peer);
int to_rts(struct ibv_qp *qp);
/** Connects the two queue pairs, which the case has created. */
void rig_link(struct rig *r);
/** Creates and connects the two queue pairs. */
void rig_connect(struct rig *r, enum ibv_qp_type type);
void rig_down(struct rig *r);
/** Registers the buffer once more, as an on-demand region.  @sge: receives its first page. */
struct ibv_mr *rig_on_demand(struct rig *r, struct ibv_sge *sge);

struct ibv_sge piece(struct rig *r, size_t off, uint32_t len);
int post_recv(struct rig *r, struct ibv_qp *qp, uint64_t wr_id, size_t off, uint32_t len);
int post_send(
	struct rig *r, struct ibv_qp *qp, uint64_t wr_id, size_t off, uint32_t len, unsigned flags);
/** Returns the next completion; gives up if none comes. */
struct ibv_wc wait_for(struct ibv_cq *cq);
/** Checks that there are no completions but those of one more SEND and its receive. */
void nothing_more(struct rig *r);

/* --- cases in files of their own --- */

/* calls_events.c */
void completion_events(void);
void armed_late(void);
void armed_for_solicited(void);
void unread_events_go_along(void);
void children_wait_for_nobody(void);
void refused_queues_keep_events(void);
void refused_srqs_keep_events(void);
void asynchronous_events(void);
void events_of_its_own_port(void);

/** Checks that the channel has no event, by poll(2) and by a non-blocking call. */
void no_event(struct ibv_comp_channel *ch);

/* calls_ends.c */
void asynchronous_events_while_it_goes(void);
void completion_events_while_it_goes(void);
void calls_about_what_goes(void);
void memory_is_watched_beside_forks(void);
void channels_end_beside_others(void);
void children_move_nothing(void);
void children_close_channels(void);
void children_close_all(void);
void children_are_refused_at_once(void);

/* calls_wait.c */
void events_are_for_what_is_left(void);
void one_poll_for_each_event(void);
void armed_before_any_poll(void);
void one_completion_for_each_event(void);
void armed_while_polled(void);

/* calls_empty.c */
void empty_regions(void);

/* calls_rate.c */
void rates_are_kept(void);
void limits_and_states_change_together(void);

/* calls_poll.c */
void polls_look_again(void);

/* calls_windows.c */
void failed_binds_are_undone(void);

/* calls_within.c */
void queue_pairs_go_within_a_poll(void);
void resized_within_a_poll(void);
void changed_by_two_threads_within_polls(void);

/* calls_xrc.c */
void cqs_that_are_only_named(void);

/* calls_threads.c */
void polls_go_on_beside_requests(void);
void requests_in_the_midst_of_a_poll(void);
void no_advice_about_what_goes(void);
void regions_go_beside_advice(void);
void reregistered_by_two_threads(void);
void cancelled_while_it_destroys(void);
void used_until_acknowledged(void);

#endif /* CALLS_BED_H */
